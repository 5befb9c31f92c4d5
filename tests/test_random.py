"""Random numbers: distributions, laws of determinism, errors beside PyTorch."""

from __future__ import annotations

import ctypes
import importlib
import pickle
import warnings

import numpy as np
import pytest
from adjit.kernels.language.abi import SIGNATURE, words
from adjit.kernels.language.target import compile_function, load
from adjit.kernels.ops.random import block
from against_torch import agree_in_error
from numpy import uint64
from scipy import stats

import adjit as T
from adjit.graph.composed import composed

F = importlib.import_module("adjit.nn.functional")
SIZE = 20_011  # no multiple of a chunk
DTYPES = [T.float32, T.float64]


@pytest.fixture(autouse=True)
def seeded():
    T.manual_seed(20)


def follows(sample: T.Tensor, law: object) -> None:
    """Assert that a sample may come from a continuous distribution."""
    assert stats.kstest(sample.numpy().ravel().astype(float), law.cdf).pvalue > 1e-3


def test_philox_gives_the_published_words():
    def kernel(args, start, stop):
        p = words(args)
        p[3], p[4], p[5], p[6] = block(uint64(p[0]), uint64(p[1]), uint64(p[2]))

    compiled = compile_function(kernel, SIGNATURE)
    run = ctypes.CFUNCTYPE(None, *3 * [ctypes.c_int64])(load(compiled.symbol, compiled.code))
    cases = [
        ((0, 0), 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ]
    for (low, high), number, wanted in cases:
        row = np.array([low, high, number, 0, 0, 0, 0], np.uint64)
        run(row.ctypes.data, 0, 0)
        assert " ".join(f"{int(word):08x}" for word in row[3:]) == wanted


# ----- distributions -----


@pytest.mark.parametrize("dtype", DTYPES)
def test_uniform(dtype):
    x = T.rand(SIZE, dtype=dtype)
    assert x.dtype is dtype
    assert 0 <= x.min().item() <= x.max().item() < 1
    follows(x, stats.uniform())
    follows(T.empty(SIZE, dtype=dtype).uniform_(-2, 5), stats.uniform(-2, 7))
    follows(T.rand_like(x), stats.uniform())


@pytest.mark.parametrize("dtype", DTYPES)
def test_normal(dtype):
    x = T.randn(SIZE, dtype=dtype)
    follows(x, stats.norm())
    assert abs(stats.kurtosis(x.numpy())) < 0.15
    follows(T.empty(SIZE, dtype=dtype).normal_(3, 2), stats.norm(3, 2))
    follows(T.normal(3.0, 2.0, (SIZE,), dtype=dtype), stats.norm(3, 2))
    mean = T.arange(SIZE, dtype=dtype)
    follows(T.normal(mean, 2.0) - mean, stats.norm(0, 2))
    follows(T.normal(1.0, mean + 1) / (mean + 1) - 1 / (mean + 1), stats.norm())
    follows(T.normal(mean, mean + 1) / (mean + 1) - mean / (mean + 1), stats.norm())
    follows(T.randn_like(x), stats.norm())


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_continuous_distributions(dtype):
    x = T.empty(SIZE, dtype=dtype)
    follows(x.exponential_(2.0), stats.expon(scale=0.5))
    follows(x.cauchy_(1.0, 2.0), stats.cauchy(1, 2))
    follows(x.log_normal_(0.5, 0.8), stats.lognorm(0.8, scale=np.exp(0.5)))


def test_neighbours_are_independent():
    x = T.randn(SIZE).numpy()
    for lag in (1, 2, 64, 128, 192, 256):
        assert abs(np.corrcoef(x[:-lag], x[lag:])[0, 1]) < 0.03


def test_integers():
    x = T.randint(-3, 4, (SIZE,))
    assert x.dtype is T.int64
    assert stats.chisquare(np.bincount(x.numpy() + 3, minlength=7)).pvalue > 1e-3
    assert T.randint(5, (2, 3)).shape == (2, 3)
    assert T.randint(5, size=(2,)).shape == (2,)
    assert T.randint(1, 2, (3,), dtype=T.float32).tolist() == [1.0, 1.0, 1.0]
    assert set(T.randint(0, 2, (50,), dtype=T.bool).tolist()) == {False, True}
    assert set(T.randint_like(T.zeros(50), 3, 5).tolist()) == {3.0, 4.0}
    wide = T.randint(-(2**63), 2**63 - 1, (SIZE,)).numpy().astype(float)
    follows(T.tensor(wide / 2**64 + 0.5), stats.uniform())
    middle = T.randint(0, 3 * 2**61, (SIZE,)).numpy().astype(float)
    follows(T.tensor(middle / (3 * 2**61)), stats.uniform())


def test_random_fills_the_range():
    assert set(T.zeros(100).random_(2).tolist()) == {0.0, 1.0}
    assert set(T.zeros(100).random_(-1, 1).tolist()) == {-1.0, 0.0}
    assert T.zeros(SIZE, dtype=T.uint8).random_().max().item() == 255
    assert T.zeros(SIZE, dtype=T.int8).random_().min().item() == 0
    low, high = T.zeros(SIZE, dtype=T.int8).random_(-128, None).aminmax()
    assert (low.item(), high.item()) == (-128, 127)
    assert T.zeros(SIZE).random_(2**24 - 1, None).min().item() == 2**24 - 1
    follows(T.zeros(SIZE).random_() / 2**24, stats.uniform())


def test_geometric_and_bernoulli():
    whole = T.empty(3, dtype=T.int64)
    assert T.bernoulli(T.tensor([0.0, 1.0, 1.0]), out=whole).tolist() == [0, 1, 1]
    x = T.zeros(SIZE, dtype=T.float64).geometric_(0.3).numpy()
    counts = np.bincount(x.astype(int).clip(max=9), minlength=10)[1:]
    expected = SIZE * np.append(0.3 * 0.7 ** np.arange(8), 0.7**8)
    assert stats.chisquare(counts, expected).pvalue > 1e-3
    for p in (0.0, 0.2, 1.0):
        for sample in (
            T.bernoulli(T.full((SIZE,), p)), T.zeros(SIZE).bernoulli_(p),
            T.zeros(SIZE, dtype=T.int32).bernoulli_(p),
            T.zeros(SIZE).bernoulli_(T.tensor(p)), T.bernoulli(T.zeros(SIZE), p),
        ):  # fmt: skip
            assert set(sample.tolist()) <= {0, 1}
            assert abs(sample.double().mean().item() - p) <= 4 * np.sqrt(p * (1 - p) / SIZE)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 127, 128, 129, 257, 1000])
def test_permutations_have_every_number_once(n):
    assert sorted(T.randperm(n).tolist()) == list(range(n))


def test_all_places_of_a_permutation_are_as_likely():
    drawn = np.array([T.randperm(150).tolist() for _ in range(3000)])
    for place in (0, 1, 63, 64, 127, 128, 149):
        assert stats.chisquare(np.bincount(drawn[:, place], minlength=150)).pvalue > 1e-4
    for number in (0, 64, 149):
        places = np.nonzero(drawn == number)[1]
        assert stats.chisquare(np.bincount(places, minlength=150)).pvalue > 1e-4
    neighbours = np.diff(drawn, axis=1) == 1
    assert abs(neighbours.mean() - 1 / 150) < 4 * np.sqrt(1 / 150 / neighbours.size)


def test_permutations():
    assert T.randperm(0).tolist() == []
    assert T.randperm(5, dtype=T.float32).dtype is T.float32
    found = {tuple(T.randperm(3).tolist()) for _ in range(200)}
    assert len(found) == 6


def test_multinomial():
    weights = T.tensor([0.0, 1.0, 3.0, 0.0, 4.0])
    x = T.multinomial(weights, SIZE, replacement=True).numpy()
    counts = np.bincount(x, minlength=5)
    assert counts[0] == counts[3] == 0
    assert stats.chisquare(counts[[1, 2, 4]], SIZE * np.array([1, 3, 4]) / 8).pvalue > 1e-3
    rows = T.multinomial(weights.expand(SIZE // 10, 5), 2)
    assert rows.shape == (SIZE // 10, 2)
    first, second = rows.numpy().T
    assert (first != second).all()
    chances = np.array([1, 3, 4]) / 8
    assert stats.chisquare(
        np.bincount(first, minlength=5)[[1, 2, 4]], len(first) * chances
    ).pvalue > 1e-3  # fmt: skip
    after_four = np.bincount(second[first == 4], minlength=5)[[1, 2]]
    assert stats.chisquare(after_four, after_four.sum() * np.array([1, 3]) / 4).pvalue > 1e-3
    assert sorted(T.multinomial(T.ones(4), 4).tolist()) == [0, 1, 2, 3]


# ----- determinism -----


def test_one_seed_gives_one_stream():
    def draw():
        return [T.rand(5).tolist(), T.randn(300).tolist(), T.randperm(7).tolist()]

    first = draw()
    assert draw() != first
    T.manual_seed(20)
    assert draw() == first
    T.manual_seed(21)
    assert draw() != first


def test_order_of_evaluation_changes_nothing():
    a, b = T.rand(10), T.randn(10)
    late_first = b.tolist(), a.tolist()
    T.manual_seed(20)
    a = T.rand(10).tolist()
    assert (T.randn(10).tolist(), a) == late_first


def test_a_value_that_is_not_looked_at_still_counts():
    T.rand(10)
    seen = T.rand(10).tolist()
    T.manual_seed(20)
    T.rand(10).numpy()
    assert T.rand(10).tolist() == seen


def test_threads_change_nothing():
    threads = T.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            T.set_num_threads(count)
            T.manual_seed(1)
            found.append([T.randn(200_000).numpy(), F.dropout(T.ones(200_000)).numpy()])
    finally:
        T.set_num_threads(threads)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


CHANCES = T.tensor([[0.2, 0.8, 0.5], [0.7, 0.1, 0.3]])
DRAWING = {
    "rand": lambda **g: T.rand(5, **g),
    "randn": lambda **g: T.randn((2, 3), dtype=T.float64, **g),
    "randint": lambda **g: T.randint(1000, (5,), **g),
    "randperm": lambda **g: T.randperm(20, **g),
    "rand_like": lambda **g: T.rand_like(CHANCES, **g),
    "randn_like": lambda **g: T.randn_like(CHANCES, **g),
    "randint_like": lambda **g: T.randint_like(CHANCES, 1000, **g),
    "normal": lambda **g: T.normal(1.0, 2.0, (4,), **g),
    "normal around": lambda **g: T.normal(CHANCES, 2.0, **g),
    "bernoulli": lambda **g: T.bernoulli(CHANCES.repeat(8, 1), **g),
    "bernoulli of one": lambda **g: CHANCES.repeat(8, 1).bernoulli(0.5, **g),
    "multinomial": lambda **g: T.multinomial(CHANCES.repeat(8, 1), 2, **g),
    "with replacement": lambda **g: T.multinomial(CHANCES, 20, True, **g),
    "poisson": lambda **g: T.poisson(9 * CHANCES.repeat(8, 1), **g),
    "binomial": lambda **g: T.binomial(T.full((16,), 50.0), T.full((16,), 0.5), **g),
    "dirichlet": lambda **g: T._sample_dirichlet(CHANCES, **g),
    "gamma": lambda **g: T._standard_gamma(CHANCES, **g),
    "in place": lambda **g: T.stack([
        CHANCES.clone().uniform_(2, 3, **g), CHANCES.clone().normal_(**g), CHANCES.clone().random_(**g),
        CHANCES.clone().exponential_(**g), CHANCES.clone().log_normal_(**g), CHANCES.clone().cauchy_(**g),
        CHANCES.clone().geometric_(0.01, **g), CHANCES.clone().random_(5, 1000, **g),
    ]),
    "in place of chances": lambda **g: T.zeros(16).bernoulli_(0.5, **g),
    "trunc_normal_": lambda **g: T.nn.init.trunc_normal_(T.zeros(8), **g),
    "orthogonal_": lambda **g: T.nn.init.orthogonal_(T.zeros(3, 1), **g),
}  # fmt: skip


@pytest.mark.parametrize("draw", DRAWING.values(), ids=DRAWING)
def test_what_is_given_a_generator_draws_from_that_alone(draw):
    """What was recorded for one generator, or for the default one, draws from others afterwards."""
    T.manual_seed(7)
    expected = [draw().tolist() for _ in range(3)]
    assert expected[0] != expected[1]
    T.manual_seed(20)
    for _ in range(4):
        g = T.Generator().manual_seed(7)
        assert [draw(generator=g).tolist() for _ in range(3)] == expected
    assert T.default_generator.get_state().tolist() == T.manual_seed(20).get_state().tolist()
    assert draw().tolist() == draw(generator=T.Generator().manual_seed(20)).tolist()


def test_what_draws_from_a_generator_of_its_own_is_not_repeated_with_the_default_one():
    g = T.Generator()

    @composed
    def jittered(x):
        return x + T.rand(3, generator=g) * 2

    for _ in range(5):
        g.manual_seed(3)
        found = jittered(T.zeros(3)), jittered(T.zeros(3))
        again = T.Generator().manual_seed(3)
        assert [x.tolist() for x in found] == [
            (2 * T.rand(3, generator=again)).tolist() for _ in range(2)
        ]


def test_an_error_of_a_draw_leaves_the_default_generator():
    with pytest.raises(RuntimeError, match="uniform_ expects to return"):
        T.zeros(2).uniform_(3, 2, generator=T.Generator())
    T.manual_seed(3)
    x = T.rand(2)
    assert T.rand(2, generator=T.Generator().manual_seed(3)).tolist() == x.tolist()
    T.manual_seed(3)
    assert T.rand(2).tolist() == x.tolist()


def test_generators_are_independent_of_each_other():
    g, h = T.Generator().manual_seed(3), T.Generator().manual_seed(3)
    x = T.rand(4, generator=g)
    T.rand(100)
    assert T.rand(4, generator=h).tolist() == x.tolist()
    assert T.rand(4, generator=g).tolist() != x.tolist()
    assert g.initial_seed() == 3
    assert g.device == T.device("cpu")
    assert g.set_state(g.get_state()) is g
    again = pickle.loads(pickle.dumps(g))
    assert T.rand(4, generator=again).tolist() == T.rand(4, generator=g).tolist()


def test_states():
    T.rand(3)
    state = T.get_rng_state()
    assert state.dtype is T.uint8
    x = T.rand(5).tolist()
    T.set_rng_state(state)
    assert T.rand(5).tolist() == x
    with T.random.fork_rng():
        T.manual_seed(5)
        T.rand(5)
    T.set_rng_state(state)
    assert T.rand(5).tolist() == x
    with pytest.raises(TypeError, match="RNG state must be"):
        T.set_rng_state(T.ones(2))
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        T.set_rng_state(state[:5])


def test_seeds():
    assert T.manual_seed(-5).initial_seed() == 2**64 - 5
    assert T.manual_seed(7.5).initial_seed() == 7
    assert T.seed() == T.initial_seed()
    for bad in (2**64, -(2**70)):
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            T.manual_seed(bad)


# ----- gradients, in place -----


def test_random_numbers_stop_the_gradient():
    for fill in (
        lambda x: x.normal_(), lambda x: x.uniform_(), lambda x: x.exponential_(),
        lambda x: x.bernoulli_(0.5), lambda x: x.random_(5),
    ):  # fmt: skip
        x = T.ones(4, requires_grad=True)
        y = fill(x * 2)
        y.sum().backward()
        assert x.grad.tolist() == [0.0] * 4
    x = T.full((4,), 0.5, requires_grad=True)
    T.bernoulli(x).sum().backward()
    T.normal(x, x).sum().backward()
    assert x.grad.tolist() == [0.0] * 4
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.normal_()
    with T.no_grad():
        x.normal_()


def test_leaves():
    x = T.rand(2, 3, requires_grad=True)
    assert x.is_leaf
    assert x.requires_grad


# ----- dropout -----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout(dtype, p):
    x = T.arange(1, SIZE + 1, dtype=dtype).requires_grad_()
    y = F.dropout(x, p)
    kept = y.detach().numpy() != 0
    assert abs(kept.mean() - (1 - p)) < 4 * np.sqrt(p * (1 - p) / SIZE)
    np.testing.assert_allclose(
        y.detach().numpy()[kept], x.detach().numpy()[kept] / (1 - p), rtol=1e-6
    )
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), kept / (1 - p), rtol=1e-6)


def test_dropout_twice_differentiable():
    x = T.ones(50, requires_grad=True)
    y = F.dropout(x * x)
    (g,) = T.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = T.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(h.numpy(), 2 * y.detach().numpy())


def test_dropout_of_strided_input():
    x = T.ones(30, 20).t().requires_grad_()
    y = F.dropout(x)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())


def test_dropout_at_its_limits():
    x = T.ones(5)
    assert F.dropout(x, 0.0) is x
    assert F.dropout(x, 0.5, training=False) is x
    assert F.dropout(x, 1.0).tolist() == [0.0] * 5
    y = T.ones(100)
    assert F.dropout(y, 0.5, inplace=True) is y
    assert set(y.tolist()) == {0.0, 2.0}
    assert T.dropout(x, 0.5, False) is x


def test_what_is_drawn_has_gradients_of_zero_for_values_and_probabilities():
    for shape, kind in (((2, 3), T.float32), ((3,), T.float64), ((), T.float32)):
        x = T.ones(2, 3, requires_grad=True)
        p = T.full(shape, 0.5, dtype=kind, requires_grad=True)
        (x * 1).bernoulli_(p).sum().backward()
        assert x.grad.tolist() == [[0] * 3] * 2
        assert p.grad.shape == shape
        assert not p.grad.any()


def test_channel_dropout():
    y = F.dropout2d(T.ones(40, 30, 2, 2)).numpy()
    assert set(y.ravel()) == {0.0, 2.0}
    assert (y == y[:, :, :1, :1]).all()
    assert F.dropout1d(T.ones(3, 4, 2)).shape == (3, 4, 2)
    assert F.dropout3d(T.ones(3, 4, 2, 2, 2)).shape == (3, 4, 2, 2, 2)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("ndim", range(7))
def test_what_is_a_channel_is_what_torch_takes_for_one(axes, ndim):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (torch, T):
        lib.manual_seed(0)
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                y = getattr(lib.nn.functional, f"dropout{axes}d")(lib.ones((5,) * ndim)).numpy()
        except RuntimeError as error:
            found.append(str(error))
            continue
        leading = [k for k in range(ndim + 1) if (np.ptp(y.reshape(5**k, -1), axis=1) == 0).all()]
        found.append((leading[0], [str(warning.message) for warning in told]))
    assert found[0] == found[1]


def test_alpha_dropout_keeps_mean_and_variance():
    x = T.randn(200_000, dtype=T.float64)
    y = F.alpha_dropout(x, 0.3, training=True)
    assert abs(y.mean().item()) < 0.02
    assert abs(y.var().item() - 1) < 0.02


# ----- errors -----


def functional(L):
    """The library's `nn.functional`."""
    return importlib.import_module(f"{L.__name__}.nn.functional")


@pytest.mark.parametrize(
    "call",
    [
        lambda L: L.rand(2, -3),
        lambda L: L.rand(2, dtype=L.int64),
        lambda L: L.randn(2, dtype=L.int64),
        lambda L: L.randint(5, 1, (2,)),
        lambda L: L.randint(1, 1, (2,)),
        lambda L: L.randint(1, 500, (2,), dtype=L.uint8),
        lambda L: L.randint(1, 5, (2,), dtype=L.bool),
        lambda L: L.randperm(-1),
        lambda L: L.randperm(500, dtype=L.int8),
        lambda L: L.normal(L.ones(2), -1.0),
        lambda L: L.normal(L.ones(2), L.ones(3)),
        lambda L: L.normal(L.ones(2), -L.ones(2)),
        lambda L: L.normal(0.0, -1.0, (2,)),
        lambda L: L.bernoulli(L.ones(2).int()),
        lambda L: L.bernoulli(L.ones(2), 2.0),
        lambda L: L.ones(2).bernoulli_(2.0),
        lambda L: L.multinomial(L.ones(2), 3),
        lambda L: L.multinomial(L.ones(2), 0),
        lambda L: L.multinomial(L.ones(2, 2, 2), 1),
        lambda L: L.multinomial(-L.ones(2), 1),
        lambda L: L.multinomial(L.ones(2) * float("nan"), 1),
        lambda L: L.multinomial(L.zeros(2), 1),
        lambda L: L.multinomial(L.ones(2).int(), 1),
        lambda L: L.ones(2).exponential_(-1),
        lambda L: L.ones(2).int().exponential_(1),
        lambda L: L.ones(2).uniform_(2, 1),
        lambda L: L.ones(2).int().uniform_(),
        lambda L: L.ones(2).uniform_(-4e38, 1),
        lambda L: L.ones(2).uniform_(0, float("inf")),
        lambda L: L.ones(2).uniform_(float("nan"), 1),
        lambda L: L.ones(2).uniform_(-3.4e38, 3.4e38),
        lambda L: L.ones(2).double().uniform_(-1e308, 1e308),
        lambda L: L.ones(2, dtype=L.int8).random_(-300, 300),
        lambda L: L.ones(2, dtype=L.bool).random_(-5, -2),
        lambda L: L.ones(2).normal_(0, -1),
        lambda L: L.ones(2).int().normal_(),
        lambda L: L.ones(2).random_(3, 3),
        lambda L: L.ones(2).random_(0),
        lambda L: L.ones(2, dtype=L.uint8).random_(0, 300),
        lambda L: L.ones(2).log_normal_(0, -1),
        lambda L: L.ones(2).cauchy_(0, -1),
        lambda L: L.ones(2).geometric_(0),
        lambda L: L.ones(2).geometric_(1.5),
        lambda L: functional(L).dropout(L.ones(2), -1),
        lambda L: functional(L).dropout(L.ones(2), 2),
        lambda L: functional(L).alpha_dropout(L.ones(2), 2),
        lambda L: L.manual_seed("a"),
    ],
)
def test_errors(call):
    agree_in_error(call)


def test_errors_of_our_own():
    with pytest.raises(RuntimeError, match="Expected p_in >= 0 && p_in <= 1"):
        T.bernoulli(T.ones(2) * 2).numpy()
    with pytest.raises(RuntimeError, match="not enough non-negative category"):
        T.multinomial(T.tensor([1.0, 0.0, 0.0]), 2).numpy()
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        T.randint(1.5, 5, (2,))
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        T.normal(0.0, 1.0)
    with pytest.raises(TypeError, match="generator"):
        T.rand(2, generator=5)


def test_a_tensor_in_the_place_of_a_number_leaves_none_in_the_stream():
    T.manual_seed(0)
    for _ in range(3):
        T.randperm(T.tensor(5))
        T.multinomial(T.ones(4), T.tensor(2))
    assert type(T.default_generator._offset) is int
    assert [len(T.rand(3).tolist()) for _ in range(4)] == [3] * 4


def test_dropouts_with_all_arguments_given() -> None:
    x = T.ones(40, 30, 5, 2)
    dropped = T.feature_dropout(x, 0.25, True)
    shares = dropped.flatten(2)
    assert ((shares == 0) | (shares == shares.max())).all()
    assert (shares.amax(2) == shares.amin(2)).all()  # whole channels
    assert 0.2 < (dropped == 0).float().mean().item() < 0.3
    np.testing.assert_allclose(dropped.max().item(), 1 / 0.75, rtol=1e-6)
    channels = T.feature_alpha_dropout(x, 0.5, True).flatten(2)
    assert (channels.amax(2) == channels.amin(2)).all()
    values = T.randn(20000)
    found = T.alpha_dropout(values, 0.3, True)
    assert abs(found.mean().item()) < 0.05
    assert abs(found.std().item() - 1) < 0.05
    for name in ("alpha_dropout", "feature_dropout", "feature_alpha_dropout"):
        function = getattr(T, name)
        assert function(x, 0.5, False) is x
        changed = x.clone()
        assert getattr(T, f"{name}_")(changed, 0.5, True) is changed
        assert (changed != x).any()
        with pytest.raises(RuntimeError, match="has to be between 0 and 1, but got 2"):
            function(x, 2.0, True)
    for name in ("feature_dropout", "feature_alpha_dropout"):
        with pytest.raises(RuntimeError, match="requires at least 2 dimensions"):
            getattr(T, name)(T.ones(3), 0.5, True)
    leaf = T.ones(3, 4, requires_grad=True)
    out = T.feature_dropout(leaf, 0.5, True)
    out.sum().backward()
    assert (leaf.grad == out).all()
