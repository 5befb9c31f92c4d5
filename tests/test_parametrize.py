"""Parameters that are computed: parametrisations, weight and spectral norm, pruning, fused batch norms."""

from __future__ import annotations

import copy
import importlib
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from library import T, plain, quiet

torch = pytest.importorskip("torch")
both = pytest.mark.parametrize("lib", [T, torch], ids=["ours", "torch"])


def utils(lib: Any, name: str) -> Any:
    return importlib.import_module(f"{lib.__name__}.nn.utils.{name}")


def outcome(action: Callable[[], Any]) -> tuple[type, str] | None:
    try:
        action()
    except Exception as error:
        return type(error), plain(error)
    return None


def assert_same_error(action: Callable[[Any], Any]) -> None:
    expected = outcome(lambda: action(torch))
    assert expected is not None
    assert outcome(lambda: action(T)) == expected


def fill(lib: Any, module: Any, seed: int = 0) -> Any:
    """Give a module the parameters that every call gives, by name."""
    rng = np.random.default_rng(seed)
    with lib.no_grad():
        for _, t in sorted(module.state_dict().items()):
            if t.is_floating_point():
                t.copy_(lib.tensor(rng.normal(size=tuple(t.shape)), dtype=t.dtype))
    return module


def values(t: Any) -> np.ndarray:
    return t.detach().numpy()


def assert_alike(mine: Any, wanted: Any, rtol: float = 2e-5) -> None:
    """Modules have the same state, gradients and names of parameters."""
    assert list(mine.state_dict()) == list(wanted.state_dict())
    for name, t in wanted.state_dict().items():
        np.testing.assert_allclose(
            values(mine.state_dict()[name]), t.numpy(), rtol=rtol, atol=1e-6, err_msg=name
        )
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in wanted.named_parameters()]
    for p, q in zip(mine.parameters(), wanted.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if q.grad is not None:
            np.testing.assert_allclose(values(p.grad), q.grad.numpy(), rtol=1e-4, atol=1e-5)


def trained(lib: Any, module: Any, shape: tuple[int, ...], steps: int = 3) -> Any:
    optimizer = lib.optim.SGD(module.parameters(), lr=0.01)
    rng = np.random.default_rng(9)
    for _ in range(steps):
        optimizer.zero_grad()
        x = lib.tensor(rng.normal(size=shape), dtype=lib.float32)
        module(x).square().mean().backward()
        optimizer.step()
    return module


# ---------------------------------------------------------------- weight and spectral norm

LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "Linear": (lambda nn: nn.Linear(4, 3), (5, 4)),
    "Conv2d": (lambda nn: nn.Conv2d(2, 3, 2), (2, 2, 4, 4)),
    "ConvTranspose1d": (lambda nn: nn.ConvTranspose1d(2, 3, 2), (2, 2, 4)),
}
layers = pytest.mark.parametrize(("make", "shape"), LAYERS.values(), ids=LAYERS.keys())


@layers
@pytest.mark.parametrize("dim", [0, 1, None, -1])
@pytest.mark.parametrize("old", [False, True])
def test_weight_norm(make, shape, dim, old):
    found = []
    for lib in (T, torch):
        module = fill(lib, make(lib.nn))
        with quiet():
            where = lib.nn.utils if old else lib.nn.utils.parametrizations
            assert where.weight_norm(module, dim=dim) is module
        found.append(trained(lib, module, shape))
    assert_alike(*found)
    np.testing.assert_allclose(
        values(found[0].weight), values(found[1].weight), rtol=1e-5, atol=1e-6
    )
    if not old:
        assert plain(found[0]) == plain(found[1])
    for lib, module in zip((T, torch), found, strict=True):
        if old:
            lib.nn.utils.remove_weight_norm(module)
        else:
            lib.nn.utils.parametrize.remove_parametrizations(module, "weight")
        module.zero_grad()
        trained(lib, module, shape, steps=1)
    assert_alike(*found)
    assert plain(found[0]) == plain(found[1])


@layers
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("iterations", [1, 3])
def test_spectral_norm(make, shape, old, iterations):
    found = []
    for lib in (T, torch):
        module = make(lib.nn)
        where = lib.nn.utils if old else lib.nn.utils.parametrizations
        assert where.spectral_norm(module, n_power_iterations=iterations) is module
        fill(lib, module)
        found.append(trained(lib, module, shape))
    assert_alike(*found)
    for module in found:
        module.eval()
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    outputs = [values(m(lib.tensor(x))) for lib, m in zip((T, torch), found, strict=True)]
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)
    assert_alike(*found)  # evaluation moves nothing
    for lib, module in zip((T, torch), found, strict=True):
        if old:
            lib.nn.utils.remove_spectral_norm(module)
        else:
            lib.nn.utils.parametrize.remove_parametrizations(module, "weight")
    assert_alike(*found)


def test_spectral_norm_is_one_after_many_iterations():
    layer = T.nn.utils.parametrizations.spectral_norm(T.nn.Linear(6, 4))
    for _ in range(100):
        weight = layer.weight
    assert np.linalg.svd(values(weight))[1][0] == pytest.approx(1, rel=1e-4)
    vector = T.nn.utils.parametrizations.spectral_norm(T.nn.BatchNorm1d(4))
    assert np.linalg.norm(values(vector.weight)) == pytest.approx(1)


def test_two_forwards_with_spectral_norm_before_one_backward():
    found = []
    for lib in (T, torch):
        module = fill(lib, lib.nn.utils.spectral_norm(lib.nn.Linear(3, 2)))
        x = lib.ones(1, 3)
        (module(x).sum() - module(2 * x).square().sum()).backward()
        found.append(module)
    assert_alike(*found)


def test_checkpoints_of_the_old_weight_norm_are_loaded_by_the_new_one():
    with quiet():
        old = T.nn.utils.weight_norm(fill(T, T.nn.Linear(3, 2)))
    new = T.nn.utils.parametrizations.weight_norm(T.nn.Linear(3, 2))
    new.load_state_dict(old.state_dict())
    np.testing.assert_allclose(values(new.weight), values(old.weight), rtol=1e-6)


def test_weight_norm_may_be_compiled():
    found = []
    for compiled in (False, True):
        module = T.nn.utils.parametrizations.weight_norm(fill(T, T.nn.Linear(4, 3)))
        if compiled:
            module.compile()
        found.append(trained(T, module, (5, 4), steps=6))
    assert_alike(*found, rtol=1e-6)


NORM_ERRORS: list[Callable[[Any], Any]] = [
    lambda lib: lib.nn.utils.remove_weight_norm(lib.nn.Linear(2, 1)),
    lambda lib: lib.nn.utils.remove_spectral_norm(lib.nn.Linear(2, 1)),
    lambda lib: lib.nn.utils.spectral_norm(lib.nn.Linear(2, 1), n_power_iterations=0),
    lambda lib: lib.nn.utils.spectral_norm(lib.nn.Linear(2, 1, bias=False), "bias"),
    lambda lib: lib.nn.utils.spectral_norm(lib.nn.utils.spectral_norm(lib.nn.Linear(2, 1))),
    lambda lib: lib.nn.utils.weight_norm(lib.nn.utils.weight_norm(lib.nn.Linear(2, 1))),
    lambda lib: lib.nn.utils.weight_norm(lib.nn.LazyLinear(1)),
    lambda lib: lib.nn.utils.spectral_norm(lib.nn.LazyLinear(1)),
    lambda lib: lib.nn.utils.parametrizations.spectral_norm(lib.nn.Linear(2, 1), "w"),
    lambda lib: lib.nn.utils.parametrizations.spectral_norm(lib.nn.Linear(2, 1), dim=2),
    lambda lib: lib.nn.utils.parametrizations.spectral_norm(
        lib.nn.Linear(2, 1), n_power_iterations=0
    ),
    lambda lib: lib.nn.utils.parametrizations.weight_norm(lib.nn.Linear(2, 1), "w"),
]


@pytest.mark.parametrize("action", NORM_ERRORS, ids=range(len(NORM_ERRORS)))
def test_errors_of_norms_are_those_of_torch(action):
    with quiet():
        assert_same_error(action)


# ---------------------------------------------------------------- parametrisations


def modules(lib: Any) -> Any:
    class Symmetric(lib.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).t()

        def right_inverse(self, x):
            return x.triu()

    class Scaled(lib.nn.Module):
        def __init__(self, factor=2.0):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor

    class RankOne(lib.nn.Module):
        def forward(self, x, y):
            return x.unsqueeze(-1) @ y.unsqueeze(-2)

        def right_inverse(self, z):
            return z[:, 0].clone(), z[0].clone()

    class Gives(lib.nn.Module):
        def __init__(self, value, inverse=None):
            super().__init__()
            self.value, self.inverse = value, inverse

        def forward(self, x):
            return self.value(x)

        def right_inverse(self, x):
            return x if self.inverse is None else self.inverse(x)

    return Symmetric, Scaled, RankOne, Gives


@both
def test_a_parametrised_parameter(lib):
    symmetric, scaled, *_ = modules(lib)
    parametrize = utils(lib, "parametrize")
    layer = lib.nn.Linear(3, 3)
    before = layer.weight
    assert not parametrize.is_parametrized(layer)
    parametrize.register_parametrization(layer, "weight", symmetric())
    assert parametrize.is_parametrized(layer)
    assert parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert type(layer).__name__ == "ParametrizedLinear"
    assert isinstance(layer, lib.nn.Linear)
    assert parametrize.type_before_parametrizations(layer) is lib.nn.Linear
    assert layer.parametrizations.weight.original is before
    assert [n for n, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    assert (layer.weight == layer.weight.t()).all()
    layer(lib.ones(1, 3)).sum().backward()
    assert before.grad is not None
    layer.weight = lib.eye(3) * 2
    assert (before.detach() == lib.eye(3) * 2).all()

    parametrize.register_parametrization(layer, "weight", scaled())
    assert (layer.weight.detach() == lib.eye(3) * 4).all()
    with pytest.raises(RuntimeError, match="Scaled does not implement right_inverse"):
        layer.weight = lib.eye(3)
    fallback = copy.deepcopy(layer)
    with lib.no_grad():
        fallback.parametrizations.weight.original.mul_(3)
    assert (fallback.weight.detach() == 3 * layer.weight.detach()).all()
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(layer)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is lib.nn.Linear
    assert not hasattr(layer, "parametrizations")
    assert layer.weight is before
    assert (layer.weight.detach() == lib.eye(3) * 4).all()


@both
def test_several_parametrised_tensors_and_buffers(lib):
    _, scaled, *_ = modules(lib)
    parametrize = utils(lib, "parametrize")
    norm = lib.nn.BatchNorm1d(2)
    for name in ("weight", "running_mean"):
        parametrize.register_parametrization(norm, name, scaled(3.0))
    assert norm.weight.tolist() == [3.0, 3.0]
    assert [name for name, _ in norm.named_buffers()] == [
        "running_var", "num_batches_tracked", "parametrizations.running_mean.original",
    ]  # fmt: skip
    parametrize.remove_parametrizations(norm, "weight", leave_parametrized=False)
    assert norm.weight.tolist() == [1.0, 1.0]
    assert parametrize.is_parametrized(norm)
    assert norm.running_mean.tolist() == [0.0, 0.0]


@both
def test_a_parametrisation_of_several_tensors(lib):
    *_, rank_one, _ = modules(lib)
    parametrize = utils(lib, "parametrize")
    layer = lib.nn.Linear(2, 3)
    layer.weight.data = lib.ones(3, 2)
    parametrize.register_parametrization(layer, "weight", rank_one())
    assert [n for n, _ in layer.named_parameters()] == [
        "bias", "parametrizations.weight.original0", "parametrizations.weight.original1",
    ]  # fmt: skip
    layer.weight = 2 * lib.ones(3, 2)
    assert layer.weight.tolist() == [[4.0, 4.0]] * 3
    other = parametrize.transfer_parametrizations_and_params(layer, lib.nn.Linear(2, 3))
    assert other.weight.tolist() == layer.weight.tolist()
    assert parametrize.transfer_parametrizations_and_params(lib.nn.Linear(1, 1), other) is other
    with pytest.raises(ValueError, match="Cannot leave unparametrized"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(layer, "weight")
    assert isinstance(layer.weight, lib.nn.Parameter)
    assert layer.weight.tolist() == [[4.0, 4.0]] * 3


@both
def test_cached_tensors_are_computed_once(lib):
    calls = []
    *_, gives = modules(lib)
    parametrize = utils(lib, "parametrize")
    layer = lib.nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", gives(lambda x: calls.append(1) or x * 2))
    calls.clear()
    with parametrize.cached():
        with parametrize.cached():
            assert layer.weight is layer.weight
        layer(lib.ones(1, 2))
        assert len(calls) == 1
    assert layer.weight is not layer.weight
    assert len(calls) == 3


PARAMETRIZE_ERRORS: list[Callable[[Any, Any, Any], Any]] = [
    lambda lib, r, gives: r(lib.nn.Linear(2, 2), "w", gives(lambda x: x)),
    lambda lib, r, gives: r(lib.nn.Linear(2, 2), "weight", gives(lambda x: 3)),
    lambda lib, r, gives: r(lib.nn.Linear(2, 2), "weight", gives(lambda x: x[0])),
    lambda lib, r, gives: r(lib.nn.Linear(2, 2), "weight", gives(lambda x: x.double())),
    lambda lib, r, gives: r(lib.nn.Linear(2, 2), "weight", gives(lambda x: x, lambda x: 3)),
    lambda lib, r, gives: r(lib.nn.Linear(2, 2), "weight", gives(lambda x: x, lambda x: [3])),
    lambda lib, r, gives: r(
        lib.nn.Linear(2, 2), "weight", gives(lambda x: x, lambda x: x.double())
    ),
    *[
        lambda lib, r, gives, g=g, i=i: r(
            r(lib.nn.Linear(2, 2), "weight", gives(lambda x: x)), "weight", gives(g, i)
        )
        for g, i in [
            (lambda x: 3, None),
            (lambda x: x[0], None),
            (lambda x: x.double(), None),
            (lambda x: x, lambda x: 3),
            (lambda x: x, lambda x: x[0]),
            (lambda x: x, lambda x: x.double()),
        ]
    ],
]


@pytest.mark.parametrize("action", PARAMETRIZE_ERRORS, ids=range(len(PARAMETRIZE_ERRORS)))
def test_errors_of_parametrisations_are_those_of_torch(action):
    assert_same_error(
        lambda lib: action(
            lib, utils(lib, "parametrize").register_parametrization, modules(lib)[-1]
        )
    )


def test_removing_what_is_not_parametrised():
    assert_same_error(
        lambda lib: utils(lib, "parametrize").remove_parametrizations(lib.nn.Linear(2, 2), "weight")
    )


# ---------------------------------------------------------------- pruning

PRUNINGS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "identity": lambda lib, p, m: p.identity(m, "weight"),
    "l1, a number": lambda lib, p, m: p.l1_unstructured(m, "weight", 5),
    "l1, a share": lambda lib, p, m: p.l1_unstructured(m, "weight", 0.3),
    "l1, none": lambda lib, p, m: p.l1_unstructured(m, "bias", 0.0),
    "l1, scores": lambda lib, p, m: p.l1_unstructured(
        m, "bias", 2, importance_scores=lib.tensor([3.0, 1.0, 2.0])
    ),
    "rows": lambda lib, p, m: p.ln_structured(m, "weight", 1, n=2, dim=0),
    "columns": lambda lib, p, m: p.ln_structured(m, "weight", 0.5, n=1, dim=-1),
    "by the largest": lambda lib, p, m: p.ln_structured(m, "weight", 1, n=float("inf"), dim=1),
    "mask": lambda lib, p, m: p.custom_from_mask(m, "bias", lib.tensor([1, 0, 1])),
    "twice": lambda lib, p, m: p.l1_unstructured(p.l1_unstructured(m, "weight", 3), "weight", 0.5),
    "elements, then rows": lambda lib, p, m: p.ln_structured(
        p.l1_unstructured(m, "weight", 3), "weight", 1, n=2, dim=0
    ),
    "rows, then rows": lambda lib, p, m: p.ln_structured(
        p.ln_structured(m, "weight", 1, n=2, dim=0), "weight", 1, n=2, dim=0
    ),
    "rows, then elements, then a mask": lambda lib, p, m: p.custom_from_mask(
        p.l1_unstructured(p.ln_structured(m, "weight", 1, n=2, dim=0), "weight", 2),
        "weight",
        lib.ones(3, 4).tril(),
    ),
    "all together": lambda lib, p, m: p.global_unstructured(
        [(m, "weight"), (m, "bias")], p.L1Unstructured, amount=0.4
    ),
    "all together, scores": lambda lib, p, m: p.global_unstructured(
        [(m, "weight"), (m, "bias")],
        p.L1Unstructured,
        importance_scores={(m, "bias"): lib.tensor([100.0, 0.0, 100.0])},
        amount=5,
    ),
    "all together, twice": lambda lib, p, m: [
        p.global_unstructured([(m, "weight"), (m, "bias")], p.L1Unstructured, amount=0.3)
        for _ in range(2)
    ],
}


@pytest.mark.parametrize("action", PRUNINGS.values(), ids=PRUNINGS.keys())
def test_pruning(action):
    found = []
    for lib in (T, torch):
        prune = utils(lib, "prune")
        module = fill(lib, lib.nn.Linear(4, 3))
        assert not prune.is_pruned(module)
        action(lib, prune, module)
        assert prune.is_pruned(lib.nn.Sequential(module))
        found.append(trained(lib, module, (5, 4)))
    assert_alike(*found)
    for lib, module in zip((T, torch), found, strict=True):
        for name in ("weight", "bias"):
            if hasattr(module, f"{name}_orig"):
                assert utils(lib, "prune").remove(module, name) is module
        assert not utils(lib, "prune").is_pruned(module)
        module.zero_grad()
    assert_alike(*found)


def test_random_pruning():
    prune = T.nn.utils.prune
    module = prune.random_unstructured(T.nn.Linear(10, 10), "weight", 0.3)
    assert module.weight_mask.sum().item() == 70
    prune.random_unstructured(module, "weight", 10)
    assert module.weight_mask.sum().item() == 60
    assert len(next(iter(module._forward_pre_hooks.values()))) == 2
    module = prune.random_structured(T.nn.Linear(10, 10), "weight", 4, dim=1)
    assert sorted(module.weight_mask.sum(0).tolist()) == [0.0] * 4 + [10.0] * 6
    same_mask = prune.L1Unstructured(1).prune(
        T.tensor([3.0, 1.0, 2.0]), default_mask=T.tensor([1.0, 1.0, 0.0])
    )
    assert same_mask.tolist() == [3.0, 0.0, 0.0]


PRUNING_ERRORS: list[Callable[[Any, Any, Any], Any]] = [
    lambda lib, p, m: p.l1_unstructured(m, "weight", "1"),
    lambda lib, p, m: p.l1_unstructured(m, "weight", -1),
    lambda lib, p, m: p.l1_unstructured(m, "weight", 1.5),
    lambda lib, p, m: p.random_unstructured(m, "weight", 100),
    lambda lib, p, m: p.ln_structured(m, "bias", 1, n=2, dim=0),
    lambda lib, p, m: p.ln_structured(m, "weight", 1, n=2, dim=2),
    lambda lib, p, m: p.random_structured(m, "weight", 7, dim=0),
    lambda lib, p, m: p.remove(m, "weight"),
    lambda lib, p, m: p.l1_unstructured(m, "weight", 1, importance_scores=lib.ones(1)),
    lambda lib, p, m: p.custom_from_mask(m, "weight", lib.ones(2)),
    lambda lib, p, m: p.global_unstructured(3, p.L1Unstructured),
    lambda lib, p, m: p.global_unstructured([(m, "bias")], p.L1Unstructured, [1], amount=1),
    lambda lib, p, m: p.global_unstructured([(m, "bias")], p.LnStructured, amount=1, n=2),
    lambda lib, p, m: p.BasePruningMethod(),
    lambda lib, p, m: p.PruningContainer(3),
    lambda lib, p, m: p.L1Unstructured(1).prune(lib.ones(2), importance_scores=lib.ones(3)),
    lambda lib, p, m: p.L1Unstructured.apply(m, "weight", 1).remove(lib.nn.Linear(1, 1)),
]


@pytest.mark.parametrize("action", PRUNING_ERRORS, ids=range(len(PRUNING_ERRORS)))
def test_errors_of_pruning_are_those_of_torch(action):
    theirs, ours = (
        outcome(lambda lib=lib: action(lib, utils(lib, "prune"), lib.nn.Linear(4, 3)))
        for lib in (torch, T)
    )
    assert theirs is not None
    assert ours is not None
    assert ours[0] is theirs[0]
    if ours[0] not in (AttributeError, KeyError) and "abstract" not in ours[1]:
        assert ours[1].replace("adjit", "torch") == theirs[1]


def test_a_pruning_that_fails_leaves_the_module_as_it_was():
    layer = T.nn.Linear(4, 3)
    weight = layer.weight
    with pytest.raises(ValueError, match="amount=100"):
        T.nn.utils.prune.l1_unstructured(layer, "weight", 100)
    assert layer.weight is weight
    assert sorted(layer.state_dict()) == ["bias", "weight"]


# ---------------------------------------------------------------- fused batch norms, skip_init


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("kind", "affine"),
    [
        *itertools.product(["Conv1d", "Conv2d", "ConvTranspose2d"], [True, False]),
        ("Linear", True),  # PyTorch wants weights there
    ],
)
def test_batch_norms_become_part_of_a_layer(kind, bias, affine):
    found = []
    for lib in (T, torch):
        nn = lib.nn
        layer = (
            nn.Linear(2, 3, bias=bias)
            if kind == "Linear"
            else getattr(nn, kind)(2, 3, 2, bias=bias)
        )
        norm = getattr(nn, f"BatchNorm{'2d' if kind[-2:] == '2d' else '1d'}")(3, affine=affine)
        fill(lib, layer)
        fill(lib, norm, 1)
        norm.running_var.abs_()
        layer.eval()
        norm.eval()
        if kind == "Linear":
            fused = nn.utils.fuse_linear_bn_eval(layer, norm)
        else:
            fused = nn.utils.fuse_conv_bn_eval(layer, norm, transpose="Transpose" in kind)
        x = lib.ones(2, 2) if kind == "Linear" else lib.ones(1, 2, *[4] * int(kind[-2]))
        np.testing.assert_allclose(values(fused(x)), values(norm(layer(x))), rtol=1e-4, atol=1e-5)
        assert fused is not layer
        found.append(fused)
    assert_alike(*found)


FUSION_ERRORS: list[Callable[[Any], Any]] = [
    lambda nn: nn.utils.fuse_conv_bn_eval(nn.Conv1d(1, 1, 1), nn.BatchNorm1d(1).eval()),
    lambda nn: nn.utils.fuse_linear_bn_eval(nn.Linear(1, 1).eval(), nn.BatchNorm1d(1)),
    lambda nn: nn.utils.fuse_linear_bn_eval(nn.Linear(1, 3).eval(), nn.BatchNorm1d(2).eval()),
    lambda nn: nn.utils.fuse_conv_bn_eval(
        nn.Conv1d(1, 1, 1).eval(), nn.BatchNorm1d(1, track_running_stats=False).eval()
    ),
    lambda nn: nn.utils.skip_init(nn.ReLU),
]


@pytest.mark.parametrize("action", FUSION_ERRORS, ids=range(len(FUSION_ERRORS)))
def test_errors_of_fusion_are_those_of_torch(action):
    assert_same_error(lambda lib: action(lib.nn))


def test_skip_init():
    layer = T.nn.utils.skip_init(T.nn.Linear, 3, 2, bias=False, device="cpu", dtype=T.float64)
    assert layer.weight.shape == (2, 3)
    assert layer.weight.dtype is T.float64
    assert layer.bias is None
