"""`vmap`: every op does with many examples what it does with one, beside loops and beside PyTorch."""

from __future__ import annotations

import importlib
import itertools
import re

import numpy as np
import pytest
from opinfo import OPS, Lacking, exists, torch
from vmap_laws import Law, differences, rows_differ

import adjit
from adjit.func import grad, vmap
from adjit.graph.operation import Operation, operation
from adjit.graph.registry import registry

# Before any test makes an operation of its own.
OPERATIONS = {name: op for name, op in registry.items() if isinstance(op, Operation)}
SAMPLES = 2
# What draws, makes uninitialised memory, or has dtypes and orders that are not there.
LEFT_OUT = """
    bernoulli cauchy exponential geometric log_normal multinomial uniform normal normal_in_place
    normal_number_mean rand_like randint randint_like randn randn_like nn_functional_alpha_dropout
    nn_functional_dropout nn_functional_dropout2d nn_functional_dropout3d
    nn_functional_feature_alpha_dropout_with_train nn_functional_fractional_max_pool2d
    nn_functional_fractional_max_pool3d nn_functional_multi_head_attention_forward nn_functional_rrelu
    empty empty_like empty_strided new_empty new_empty_strided bfloat16 half norm_nuc
    as_strided_partial_views
"""
# Where the elements of an example decide a shape or what Python does: refused, with such a text.
LOOKS = "data-dependent control flow|calling .item|dynamic shape|data pointer|Cannot access storage"
REFUSED = {
    "argwhere": LOOKS, "bincount": LOOKS, "cov": LOOKS, "histogram": LOOKS, "histogramdd": LOOKS,
    "index_put": LOOKS,
    "linspace_tensor_overload": LOOKS, "logspace_tensor_overload": LOOKS, "nanquantile": LOOKS,
    "narrow": LOOKS, "nn_functional_embedding_bag": LOOKS, "nn_functional_gaussian_nll_loss": LOOKS,
    "nonzero": LOOKS, "nonzero_static": LOOKS, "quantile": LOOKS, "repeat_interleave": LOOKS, "resize_": LOOKS,
    "resize_as_": LOOKS, "tensor_split": LOOKS, "unique": LOOKS, "unique_consecutive": LOOKS,
    "masked_select": "differently shaped Tensor",
    "nn_functional_batch_norm": "Batch norm got a batched tensor",
    "nn_functional_instance_norm": "Batch norm got a batched tensor",
    "nn_functional_one_hot": "explicit positive num_classes",
    "nn_functional_ctc_loss": LOOKS,
}  # fmt: skip
# Views of any geometry mean where examples lie: along the last axis they are elsewhere.
BY_MEMORY = {"as_strided", "as_strided_copy"}
NAMES = sorted(
    name
    for name, info in OPS.items()
    if exists(info) and info.dtypes and name not in LEFT_OUT.split()
)


def samples_of(info):
    dtype = torch.float64 if torch.float64 in info.dtypes else sorted(info.dtypes, key=str)[-1]
    wants = bool(info.supports_autograd and dtype.is_floating_point)
    every = list(info.sample_inputs("cpu", dtype, requires_grad=wants))
    few = np.linspace(0, len(every) - 1, min(SAMPLES, len(every))).round().astype(int)
    return [every[k] for k in few]


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("name", NAMES)
def test_examples_at_once_are_a_loop_over_them(name):
    found = []
    for sample in samples_of(OPS[name]):
        try:
            law = Law(OPS[name].op, sample)
            found += [*differences(law), *rows_differ(law)]
        except (Lacking, NotImplementedError):
            continue
    if name in REFUSED:
        found = [text for text in found if not re.search(REFUSED[name], text)]
    if name in BY_MEMORY:
        found = [
            text for text in found if "last axis" not in text and "another example" not in text
        ]
    assert found == []


# What only runs on tensors that are no examples: how many places there are decides a shape, and of examples
# bags are looked up first.
WITHOUT_RULE = {
    "end_of_bags",
    "largest_of_bags",
    "picked_few",
    "places_of_few",
    "sum_of_bags",
    "sum_of_weighted_bags",
}


def test_operations_say_what_they_do_with_examples():
    assert {
        n for n, op in OPERATIONS.items() if op.rules.batching is None and not op.rules.draws
    } == WITHOUT_RULE


def test_an_operation_without_a_rule_is_an_error():
    @operation("NothingBackward0")
    def without_a_rule(x):
        return x * 2

    with pytest.raises(
        RuntimeError, match="Batching rule not implemented for aten::without_a_rule"
    ):
        vmap(without_a_rule)(adjit.tensor(X))


# ----- layers over sequences -----


def sequence_layer(kind, **settings):
    name, _, nonlinearity = kind.partition(" ")
    if nonlinearity:
        settings["nonlinearity"] = nonlinearity
    adjit.manual_seed(4)
    return getattr(adjit.nn, name)(4, 3, **settings).double()


def of_sequences(layer, way, p, x):
    """The results of a layer: of a batch, one sequence, or packed ones of lengths 5, 3 and 1."""
    if way == "one":
        x = x[:, 0]
    if way == "packed":
        x = adjit.nn.utils.rnn.pack_padded_sequence(x, [5, 3, 1])
    out, states = adjit.func.functional_call(layer, p, (x,))
    return [
        out.data if way == "packed" else out,
        *(states if isinstance(states, tuple) else [states]),
    ]


def sequence_loss(layer, way, p, x):
    return sum([(t * t.detach().cos() + t.pow(3)).sum() for t in of_sequences(layer, way, p, x)])


def close_all(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-12)


SEQUENCES = adjit.tensor(np.random.default_rng(8).standard_normal((4, 5, 3, 4)))
KINDS_OF_LAYERS = ["RNN", "RNN relu", "GRU", "LSTM"]


@pytest.mark.parametrize("way", ["batch", "one", "packed"])
@pytest.mark.parametrize("kind", KINDS_OF_LAYERS)
def test_layers_over_sequences_are_a_loop_over_examples(kind, way):
    layer = sequence_layer(kind, num_layers=2, bidirectional=True)
    p = dict(layer.named_parameters())
    found = vmap(lambda x: of_sequences(layer, way, p, x))(SEQUENCES)
    rows = [of_sequences(layer, way, p, x) for x in SEQUENCES]
    wanted = [adjit.stack(t) for t in zip(*rows, strict=True)]
    close_all(found, wanted)

    x = SEQUENCES.clone().requires_grad_()
    wrt = [x, *layer.parameters()]
    losses = [
        vmap(lambda x: sequence_loss(layer, way, p, x))(x),
        adjit.stack([sequence_loss(layer, way, p, one) for one in x]),
    ]
    first = [adjit.autograd.grad(made.sin().sum(), wrt, create_graph=True) for made in losses]
    close_all(*first)
    close_all(*[adjit.autograd.grad(sum([g.cos().sum() for g in made]), wrt) for made in first])


@pytest.mark.parametrize("way", ["batch", "one", "packed"])
@pytest.mark.parametrize("kind", KINDS_OF_LAYERS)
def test_gradients_of_each_sequence_and_ensembles_of_layers(kind, way):
    layers = [sequence_layer(kind) for _ in range(4)]
    for k, layer in enumerate(layers):
        with adjit.no_grad():
            for p in layer.parameters():
                p.add_(0.1 * k)
    p, _ = adjit.func.stack_module_state(layers)
    for in_dims in ((0, 0), (None, 0), (0, None)):
        given = [
            p if in_dims[0] == 0 else dict(layers[1].named_parameters()),
            SEQUENCES if in_dims[1] == 0 else SEQUENCES[1],
        ]
        slope = grad(lambda p, x: sequence_loss(layers[0], way, p, x), (0, 1))
        of_weights, of_x = vmap(slope, in_dims)(*given)
        wanted = [
            slope(dict(layers[k if in_dims[0] == 0 else 1].named_parameters()),
                  SEQUENCES[k if in_dims[1] == 0 else 1])
            for k in range(4)
        ]  # fmt: skip
        close_all([of_x], [adjit.stack([w[1] for w in wanted])])
        for name, found in of_weights.items():
            close_all([found], [adjit.stack([w[0][name] for w in wanted])])


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch loops over examples
@pytest.mark.parametrize("lengths", ["tensors", "numbers"])
@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0)])
def test_losses_of_label_sequences(in_dims, lengths):
    values = RANDOM.standard_normal((3, 6, 2, 5))
    targets = RANDOM.integers(1, 5, (3, 2, 3))
    given = [v if d == 0 else v[0] for v, d in zip((values, targets), in_dims, strict=True)]

    def loss(L, x, t):
        into = [(6, 5), (3, 2)]
        into = [L.tensor(v) for v in into] if lengths == "tensors" else into
        return L.nn.functional.ctc_loss(x.log_softmax(-1), t, *into, reduction="none")

    same(*both(loss, *given, in_dims=in_dims))
    x, t = map(adjit.tensor, given)
    slope = grad(lambda x, t: loss(adjit, x, t).sin().sum())
    rows = [slope(x[k] if in_dims[0] == 0 else x, t[k] if in_dims[1] == 0 else t) for k in range(3)]
    close_all([vmap(slope, in_dims)(x, t)], [adjit.stack(rows)])
    nested = vmap(vmap(slope, (None, 0)), (0, None))(x[None] if in_dims[0] is None else x,
                                                     t[None] if in_dims[1] is None else t)  # fmt: skip
    for i, row in enumerate(nested):
        for k, one in enumerate(row):
            close_all(
                [one], [slope(x[i] if in_dims[0] == 0 else x, t[k] if in_dims[1] == 0 else t)]
            )


@pytest.mark.parametrize("name", ["conv1d", "conv_transpose2d"])
def test_gradients_of_each_image_under_another_vmap(name):
    axes, turned = int(name[-2]), "transpose" in name
    w = RANDOM.standard_normal((4, 3, 2, *[2] * axes))
    x = RANDOM.standard_normal((4, 5, 3 if turned else 2, *[5] * axes))

    def slopes(L, w, x):
        conv = getattr(L.nn.functional, name)
        slope = L.func.grad(lambda w, x: conv(x[None], w).pow(3).sum(), (0, 1))
        return L.func.vmap(slope, (None, 0))(w, x)

    for in_dims in ((0, 0), (None, 0), (0, None)):
        given = [v if d == 0 else v[0] for v, d in zip((w, x), in_dims, strict=True)]
        same(*both(slopes, *given, in_dims=in_dims))
        same(*both(lambda L, w, x: L.func.grad(lambda w: slopes(L, w, x)[0].sin().sum())(w),
                   *given, in_dims=in_dims))  # fmt: skip


@pytest.mark.parametrize("images", [1, 3])
def test_several_gradients_of_images_that_share_a_weight(images):
    """As many images as examples, too: no axis may stand for another."""
    weights = RANDOM.standard_normal((2, 2, 2, 2)), RANDOM.standard_normal((3, 2, 2, 2))
    x = RANDOM.standard_normal((3, images, 2, 5, 5))
    upper = RANDOM.standard_normal((4, images, 3, 3, 3))

    def slopes(L, x, v, w, upper):
        conv = L.nn.functional.conv2d
        pull = L.func.vjp(lambda v, w: conv(conv(x, v).sin(), w), v, w)[1]
        return L.func.vmap(pull)(upper)

    same(*both(slopes, x, *weights, upper, in_dims=(0, None, None, None)))


# ----- arguments -----


def both(function, *arrays, **settings):
    """What a function of a library and tensors gives in `vmap`, in both libraries."""
    ours = adjit.func.vmap(lambda *t: function(adjit, *t), **settings)(*map(adjit.tensor, arrays))
    theirs = torch.func.vmap(lambda *t: function(torch, *t), **settings)(*map(torch.tensor, arrays))
    return ours, theirs


def same(ours, theirs):
    if isinstance(theirs, torch.Tensor):
        assert tuple(ours.shape) == tuple(theirs.shape)
        np.testing.assert_allclose(
            ours.numpy(force=True), theirs.numpy(force=True), rtol=1e-9, atol=1e-12
        )
        return
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        ours, theirs = ours.values(), theirs.values()
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        same(a, b)


RANDOM = np.random.default_rng(5)
X, Y = RANDOM.standard_normal((3, 4, 5)), RANDOM.standard_normal((4, 5))


@pytest.mark.parametrize("in_dims", [0, 1, -1, 2])
@pytest.mark.parametrize("out_dims", [0, 1, -1])
def test_axes_of_arguments_and_results(in_dims, out_dims):
    same(*both(lambda L, x: x.sin() @ x.t(), X, in_dims=in_dims, out_dims=out_dims))


def test_nested_axes():
    def f(library, tree, z):
        return {"a": tree["x"][0] * z, "b": (tree["y"].sum() - z, tree["x"][1])}

    for library in (adjit, torch):
        t = library.tensor
        tree = {"x": (t(X), t(Y)), "y": t(X)}
        found = library.func.vmap(
            lambda tree, z, library=library: f(library, tree, z),
            in_dims=({"x": (0, None), "y": -3}, None), out_dims={"a": 1, "b": (0, None)},
        )(tree, t(2.0))  # fmt: skip
        if library is adjit:
            ours = found
        else:
            same(ours, found)


def test_promotion_counts_axes_of_examples():
    """A tensor of one number an example is a number's tensor, whatever lies beside it."""
    single = np.ones(3, np.float32)
    double = np.ones(3)
    whole = np.arange(3)
    for f, arrays in (
        (lambda L, x, y: x + y, (double, np.ones((3, 2), np.float32))),
        (lambda L, x, y: x * y, (whole, np.ones((3, 2), np.float32))),
        (lambda L, x, y: x * y, (single, np.ones((3, 2), np.int64))),
        (lambda L, x, y: x + y, (single, double)),
        (lambda L, x, y: L.where(x > 0, x, y), (single, double)),
        (lambda L, x, y: x / y, (whole, np.ones((3, 2), np.int64))),
    ):
        ours, theirs = both(f, *arrays)
        assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
        same(ours, theirs)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_chunks(size):
    def f(library, x, y):
        return x.cumsum(0) * y, {"s": x.sum()}

    same(*both(f, X, Y, in_dims=(0, None), out_dims=(1, {"s": 0}), chunk_size=size))


def test_levels_in_levels():
    def f(library, x, y):
        inner = library.func.vmap(lambda a, b: (a * b).sum(-1) + x.sum(), in_dims=(0, None))
        return library.func.vmap(inner, in_dims=(None, 0), out_dims=1)(x, y)

    same(*both(f, X, Y, in_dims=(0, None)))
    same(*both(f, X, X, in_dims=(0, 0)))


def test_results_that_examples_share():
    same(*both(lambda L, x: L.ones(2), X))
    ours, _ = both(lambda L, x: 3.0, X, out_dims=None)
    assert ours == 3.0


# ----- errors -----


def add_in_place(L, x):
    return L.zeros(5, dtype=L.float64).copy_(x[0])


BAD = [
    (lambda L, x: L.func.vmap(lambda x: x, in_dims="a")(x)),
    (lambda L, x: L.func.vmap(lambda x: x)()),
    (lambda L, x: L.func.vmap(lambda x: x, in_dims=(0, 0))(x)),
    (lambda L, x: L.func.vmap(lambda x: x, in_dims=([0],))(x)),
    (lambda L, x: L.func.vmap(lambda x, y: x, in_dims=(0, 0))(x, 2.0)),
    (lambda L, x: L.func.vmap(lambda x: x, in_dims=3)(x)),
    (lambda L, x: L.func.vmap(lambda x: x, in_dims=-4)(x)),
    (lambda L, x: L.func.vmap(lambda x, y: x)(x, x[0])),
    (lambda L, x: L.func.vmap(lambda x, y: x, in_dims=(None, None))(x, x)),
    (lambda L, x: L.func.vmap(lambda x: x, out_dims="a")(x)),
    (lambda L, x: L.func.vmap(lambda x: x, out_dims=(0, 0))(x)),
    (lambda L, x: L.func.vmap(lambda x: (x, x), out_dims=(0, 0, 0))(x)),
    (lambda L, x: L.func.vmap(lambda x: x, out_dims=None)(x)),
    (lambda L, x: L.func.vmap(lambda x: 3.0)(x)),
    (lambda L, x: L.func.vmap(lambda x: x, out_dims=4)(x)),
    (lambda L, x: L.func.vmap(lambda x: x, randomness="no")(x)),
    (lambda L, x: L.func.vmap(lambda x: x, chunk_size=0)(x)),
    (lambda L, x: L.func.vmap(lambda x: x.sum().item())(x)),
    (lambda L, x: L.func.vmap(lambda x: x * float(x.sum()))(x)),
    (lambda L, x: L.func.vmap(lambda x: x if x.sum() > 0 else -x)(x)),
    (lambda L, x: L.func.vmap(lambda x: x.tolist())(x)),
    (lambda L, x: L.func.vmap(lambda x: x.numpy())(x)),
    (lambda L, x: L.func.vmap(lambda x: 1.0 in x)(x)),
    (lambda L, x: L.func.vmap(lambda x: x.requires_grad_())(x)),
    (lambda L, x: L.func.vmap(lambda x: x.sum().backward())(x)),
    (lambda L, x: L.func.vmap(lambda x: x.nonzero())(x)),
    (lambda L, x: L.func.vmap(lambda x: x[x > 0])(x)),
    (lambda L, x: L.func.vmap(lambda x: x.unique())(x)),
    (lambda L, x: L.func.vmap(lambda x: L.masked_select(x, x > 0))(x)),
    (lambda L, x: L.func.vmap(lambda x: L.nn.functional.one_hot(x.long().abs()))(x)),
    (lambda L, x: L.func.vmap(lambda x: add_in_place(L, x))(x)),
    (lambda L, x: L.func.vmap(lambda x: x + L.rand(5))(x)),
    (lambda L, x: L.func.vmap(lambda x: L.rand_like(x))(x)),
    (lambda L, x: L.func.vmap(lambda x: L.nn.functional.dropout(x))(x)),
    (lambda L, x: L.func.vmap(lambda x: x.clone().normal_())(x)),
    (lambda L, x: L.func.vmap(lambda x: L.randperm(3))(x)),
    (lambda L, x: L.func.vmap(lambda x: L.multinomial(x.abs()[0], 1))(x)),
    (lambda L, x: L.func.vmap(lambda x: L.bernoulli(x.sigmoid()), randomness="same")(x)),
    (lambda L, x: L.func.vmap(lambda x: L.multinomial(x.abs()[0], 1), randomness="same")(x)),
    (lambda L, x: L.func.vmap(lambda x: x.clone().bernoulli_(x.sigmoid()), randomness="same")(x)),
    (lambda L, x: L.autograd.grad(x, x, L.ones(2, 2), is_grads_batched=True)),
]  # fmt: skip


def told(call, library):
    with pytest.raises(Exception, match=r".") as caught:
        call(library, library.tensor(X))
    text = str(caught.value).replace("adjit", "torch").splitlines()[0]
    return type(caught.value), text.replace("torch.tensor.Tensor", "torch.Tensor")


@pytest.mark.parametrize("call", BAD)
def test_errors_are_pytorchs(call):
    (kind, text), (wanted, expected) = told(call, adjit), told(call, torch)
    hidden = re.compile(r"<[^<>]*lambda[^<>]*>|at 0x\w+|PyTreeSpec|TreeSpec|structure .*")
    assert kind is wanted
    assert hidden.sub("", text) == hidden.sub("", expected)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (adjit.tril, [(3,)]), (adjit.triu, [(3,)]),
        (adjit.mm, [(4, 2, 2), (4, 2, 2)]), (adjit.mm, [(2,), (2, 2)]), (adjit.mm, [(2, 3), (2, 3)]),
        (adjit.mv, [(3,), (3,)]), (adjit.mv, [(3, 3), (3, 3)]), (adjit.mv, [(2, 3), (2,)]),
        (adjit.dot, [(2,), (3,)]), (adjit.dot, [(2, 3), (2, 3)]), (adjit.vdot, [(2,), (3,)]),
        (adjit.bmm, [(2, 2), (2, 2)]), (adjit.addmm, [(5, 2, 2), (2, 2), (2, 2)]),
        (adjit.addmv, [(3, 2), (2, 2), (2,)]), (adjit.addmv, [(2, 2), (1, 2), (2,)]),
        (adjit.addbmm, [(1, 2, 2), (1, 2, 2), (1, 2, 2)]),
        (adjit.baddbmm, [(2, 2), (1, 2, 2), (2, 2, 2)]), (adjit.baddbmm, [(3, 2, 2), (1, 2, 2), (1, 2, 2)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("in_dims", [0, "first", "last"])
def test_examples_that_do_not_fit_are_refused(function, shapes, in_dims):
    """What is an error for one example must not find a meaning for many."""
    with pytest.raises(RuntimeError) as one:
        function(*map(adjit.ones, shapes))
    if in_dims:
        last = len(shapes) - 1
        in_dims = tuple(
            [0 if k == (0 if in_dims == "first" else last) else None for k in range(last + 1)]
        )
    axes = in_dims or (0,) * len(shapes)
    given = [adjit.ones(s if a is None else (3, *s)) for s, a in zip(shapes, axes, strict=True)]
    with pytest.raises(RuntimeError) as many:
        vmap(function, in_dims=in_dims)(*given)
    assert str(many.value).split()[0] in ("self", str(one.value).split()[0])


def test_calls_known_to_machine_code_ask_the_level_too():
    """Draws that were repeated by machine code before are an error inside of `vmap`, and are not afterwards."""
    for _ in range(6):
        adjit.rand(3)
        adjit.zeros(3).uniform_()
        adjit.nn.functional.dropout(adjit.ones(3))
    for draw in (
        lambda: adjit.rand(3),
        lambda: adjit.zeros(3).uniform_(),
        lambda: adjit.nn.functional.dropout(adjit.ones(3)),
    ):
        with pytest.raises(RuntimeError, match="randomness error mode"):
            vmap(lambda x, draw=draw: x + draw())(adjit.ones(2, 3))
        draw()


# ----- random numbers -----

DRAWS = {
    "rand": lambda x: adjit.rand(50),
    "rand_like": lambda x: adjit.rand_like(x),
    "uniform_": lambda x: x.clone().uniform_(),
    "normal_": lambda x: x.clone().normal_(),
    "dropout": lambda x: adjit.nn.functional.dropout(adjit.ones(50, dtype=x.dtype)),
    "dropout of examples": lambda x: adjit.nn.functional.dropout(adjit.ones_like(x)),
    "randperm": lambda x: adjit.randperm(50),
    "randint": lambda x: adjit.randint(0, 1000, (50,)),
    "bernoulli": lambda x: adjit.bernoulli(adjit.full((50,), 0.5)),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.5),
    "bernoulli_ of shared chances": lambda x: x.clone().bernoulli_(adjit.full((50,), 0.5)),
    "multinomial": lambda x: adjit.multinomial(adjit.ones(50), 20),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers_are_the_same_or_different(name, randomness):
    x = adjit.ones(4, 50, dtype=adjit.float64)
    adjit.manual_seed(3)
    found = vmap(DRAWS[name], randomness=randomness)(x).numpy()
    assert found.shape[0] == 4
    alike = [bool((found[0] == found[k]).all()) for k in range(1, 4)]
    assert alike == [randomness == "same"] * 3
    adjit.manual_seed(3)
    again = vmap(DRAWS[name], randomness=randomness)(x).numpy()
    assert (found == again).all()


def test_permutations_of_examples_are_permutations():
    found = vmap(lambda x: adjit.randperm(6), randomness="different")(adjit.ones(5))
    assert (found.sort(1).values == adjit.arange(6)).all()


def test_the_same_random_numbers_in_all_chunks():
    def draw(x):
        return adjit.rand(5)

    adjit.manual_seed(1)
    found = vmap(draw, randomness="same", chunk_size=2)(adjit.ones(6))
    assert (found == found[0]).all()


def test_dropout_of_examples_has_its_mask_in_backward():
    x = adjit.ones(4, 1000, requires_grad=True)
    made = vmap(lambda x: adjit.nn.functional.dropout(x * 3), randomness="different")(x)
    (g,) = adjit.autograd.grad(made.sum(), x)
    assert (g * x).allclose(made)
    assert not (g[0] == g[1]).all()


# ----- writing -----


def test_writes_in_place_are_those_of_examples():
    def f(library, x, y):
        a = x.clone()
        a.mul_(2).add_(y)
        a[0] = y[1]
        a[1:3, 0] = 7.0
        a[:, -1] += x[:, 0]
        b = library.zeros_like(a)
        b[1].copy_(a[0])
        b.fill_(x[0, 0])
        b.masked_fill_(a > 0, -1.0)
        c = x.new_zeros(4, 5)
        c.t()[0] = x[:, 0]
        return a, b, c

    same(*both(f, X, Y, in_dims=(0, None)))
    same(*both(f, X, X))


def test_shapes_changed_in_place_are_those_of_examples():
    def f(library, x):
        y = x * 2
        y.unsqueeze_(0)
        shape = tuple(y.shape)
        y.squeeze_(0).t_()
        return y.sin() + len(shape), y @ x

    same(*both(f, X))


def test_writes_reach_what_examples_were_taken_of():
    x = adjit.zeros(3, 2)

    def f(x):
        x.add_(1)
        x[0] = 5.0
        return x

    vmap(f)(x)
    assert x.tolist() == [[5.0, 1.0]] * 3


def test_gradients_through_writes():
    def f(library, x):
        a = x.clone()
        a[1] = a[0].clone() * x[2]
        a.mul_(x)
        return (a.sin()).sum()

    for library in (adjit, torch):
        x = library.tensor(X)
        found = library.func.vmap(library.func.grad(lambda x, L=library: f(L, x)))(x)
        if library is adjit:
            ours = found
    same(ours, found)


# ----- shapes -----


def test_examples_look_like_one():
    seen = []

    def f(x):
        seen.append((x.shape, x.ndim, x.dtype, x.size(0), len(x), x.stride(), x.is_contiguous()))
        return x

    vmap(f)(adjit.zeros(2, 3, 4))
    assert seen == [((3, 4), 2, adjit.float32, 3, 3, (4, 1), True)]


def test_what_stands_for_an_example_shows_itself():
    texts = []
    vmap(lambda x: texts.append(repr(x)) or x)(adjit.tensor([1.0, 2.0]))
    assert texts == ["BatchedTensor(lvl=1, bdim=0, value=\n    tensor([1., 2.])\n)"]


def test_no_examples():
    assert vmap(lambda x: x.sin().sum(0))(adjit.zeros(0, 3, 2)).shape == (0, 2)


@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0)])
def test_indices_of_examples(in_dims):
    x = RANDOM.standard_normal((3, 4, 5, 6))
    i, j = RANDOM.integers(0, 4, (3, 2, 2)), RANDOM.integers(0, 5, (3, 2))
    whole = [x if in_dims[0] == 0 else x[0], i if in_dims[1] == 0 else i[0]]
    for f in (
        lambda L, x, i: x[i],
        lambda L, x, i: x[:, i],
        lambda L, x, i: x[:, :, i],
        lambda L, x, i: x[i, i],
        lambda L, x, i: x[i, :, i],
        lambda L, x, i: x[:, i, i],
        lambda L, x, i: x[i[0, 0]],
        lambda L, x, i: x[1, i],
        lambda L, x, i: x[i, :, L.tensor(j[0])],
        lambda L, x, i: x[..., i, None],
        lambda L, x, i: x.index_put((i,), x[0] * 2),
        lambda L, x, i: x.index_put((i, i), L.tensor(1.0, dtype=L.float64), accumulate=True),
    ):
        same(*both(f, *whole, in_dims=in_dims))


def test_per_example_gradients_of_a_shared_weight_take_one_product():
    """An expanded weight is multiplied once, and its gradients are those of examples."""
    w, x = adjit.randn(7, 5), adjit.randn(6, 5)

    def f(w, x):
        y = adjit.nn.functional.linear(x, w)
        return y.square().sum()

    g = vmap(grad(f), in_dims=(None, 0))(w, x)
    wanted = adjit.stack([grad(f)(w, one) for one in x])
    np.testing.assert_allclose(g.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
    made = adjit.bmm(adjit.randn(6, 3, 5), w.expand(6, 7, 5).transpose(1, 2))
    assert made._storage.value.recipe.spec.shape == (18, 7)
    assert made.shape == (6, 3, 7)


WITHOUT_GRADIENTS = {
    "argmax": lambda L, x: x.argmax(), "argmin along": lambda L, x: x.argmin(0),
    "argsort": lambda L, x: x.argsort(-1, descending=True), "any": lambda L, x: (x > 1).any(),
    "all": lambda L, x: (x > -1).all(0), "count_nonzero": lambda L, x: L.count_nonzero(x > 0),
    "bucketize": lambda L, x: L.bucketize(x, L.tensor([-0.5, 0.5])),
    "searchsorted": lambda L, x: L.searchsorted(x.sort(-1).values, x),
    "isin": lambda L, x: L.isin(x.round(), L.tensor([0.0, 1.0])),
    "gather": lambda L, x: x.gather(-1, x.argsort(-1)), "zeros_like": lambda L, x: L.zeros_like(x) + 1,
    "full": lambda L, x: x.new_full((2,), 3.0).add_(x[0, 0]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")  # of PyTorch's, about its speed
@pytest.mark.filterwarnings("ignore:.torch.jit.script")
@pytest.mark.parametrize("name", WITHOUT_GRADIENTS)
def test_functions_without_gradients_of_examples_of_examples(name):
    """Also of those that have a tangent, and those of two levels and none."""
    values = np.random.default_rng(3).standard_normal((2, 3, 4, 5)).astype(np.float32)

    def found(L):
        of, x = WITHOUT_GRADIENTS[name], L.tensor(values)
        vmap, jvp = L.func.vmap, L.func.jvp
        forward = lambda x: jvp(lambda x: of(L, x) * x.sum(), (x,), (L.ones_like(x),))  # noqa: E731
        shared = x[0, 0]
        return [
            vmap(vmap(lambda x: of(L, x)))(x), vmap(vmap(lambda x: of(L, x), in_dims=2), in_dims=1)(x),
            *vmap(vmap(forward))(x), vmap(lambda x: vmap(lambda y: of(L, x) + y.sum())(x))(x[0]),
            vmap(lambda x: vmap(lambda y: of(L, shared) + x.sum() + y.sum())(x))(x[0]),
        ]  # fmt: skip

    for ours, theirs in zip(found(adjit), found(torch), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [(), (1,), (4,), (1, 4), (2, 4)], ids=str)
def test_what_examples_share_is_written_into_them(value):
    values = np.arange(np.prod(value, dtype=int) + 0.0).reshape(value)

    def found(L):
        def f(t):
            t = t.clone()
            t[0:2] = L.tensor(values)
            t[3] = L.tensor(values).reshape(-1)[0]
            return t

        return L.func.vmap(f)(L.zeros(3, 5, 4, dtype=L.float64))

    np.testing.assert_array_equal(found(adjit).numpy(), found(torch).numpy())


def test_vmap_as_older_programs_import_it():
    def found(L):
        internals = importlib.import_module(f"{L.__name__}._vmap_internals")
        x = L.tensor([1.0, 2.0, 3.0], dtype=L.float64, requires_grad=True)
        (slope,) = L.autograd.grad((x**3).sum() * x[0], x, create_graph=True)
        unit = L.eye(3, dtype=L.float64)
        once = internals._vmap(lambda v: L.autograd.grad(slope, x, v, retain_graph=True)[0])(unit)
        y = L.ones(2, dtype=L.float64, requires_grad=True)
        grads = internals._vmap(
            lambda v: L.autograd.grad(slope, (x, y), v, retain_graph=True, allow_unused=True),
            allow_none_pass_through=True,
        )(unit)
        single = internals._vmap(lambda v: v * 2, allow_none_pass_through=True)(unit)
        assert grads[1] is None
        return once, grads[0], single

    for ours, theirs in zip(found(adjit), found(torch), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy())


# ---------------------------------------------------------------- products of lines


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 4, 3), (2, 2, 4, 3)], ids=len)
@pytest.mark.parametrize("has_bias", [True, False])
def test_products_of_lines_have_all_derivatives(shape, has_bias):
    """A layer of a vector, of rows, and of what has more axes: each an op, for each example and at once."""
    adjit.manual_seed(3)
    x, w, b = (adjit.randn(5, *size, dtype=adjit.float64) for size in (shape, (6, 3), (6,)))
    given = (x, w, b) if has_bias else (x, w)
    products = (
        [adjit.nn.functional.linear]
        if has_bias
        else [adjit.nn.functional.linear, lambda x, w: x @ w.t()]
    )
    for product in products:
        one = product(*[t[0] for t in given])
        assert one.shape == (*shape[:-1], 6)
        rows = (x[0].unsqueeze(-2) * w[0]).sum(-1) + (b[0] if has_bias else 0)
        assert adjit.allclose(one, rows)
        leaves = [t[0].clone().requires_grad_() for t in given]
        assert adjit.autograd.gradcheck(
            product, leaves, check_forward_ad=True, check_batched_grad=True
        )
        assert adjit.autograd.gradgradcheck(product, leaves)
        for dims in itertools.product([0, None], repeat=len(given)):
            if all(dim is None for dim in dims):
                continue
            args = [t if dim == 0 else t[0] for t, dim in zip(given, dims, strict=True)]
            found = adjit.func.vmap(product, in_dims=dims)(*args)
            each = [
                product(*[t[k] if dim == 0 else t for t, dim in zip(args, dims, strict=True)])
                for k in range(5)
            ]
            assert adjit.allclose(found, adjit.stack(each)), dims
