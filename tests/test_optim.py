"""Optimisers and schedules: step by step as PyTorch's, checkpoints that either library can load."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from adjit.kernels.ops import optim as optim_kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from library import T, array, plain, quiet

from adjit import storage
from adjit.graph.node import dense_spec
from adjit.ops import steps
from adjit.schedule import plan_cache
from adjit.schedule import settle as scheduling

torch = pytest.importorskip("torch")

RULES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "maximize": True}),
    ("Adam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"weight_decay": 0.3, "amsgrad": True, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"centered": True, "alpha": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True, "momentum": 0.9, "maximize": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1}),
    ("Adagrad", {"maximize": True, "eps": 1e-2}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.5, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {}),
    ("Adamax", {"betas": (0.5, 0.9), "eps": 1e-2, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"betas": (0.5, 0.9), "eps": 1e-2, "momentum_decay": 0.3, "weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {}),
    ("RAdam", {"betas": (0.5, 0.9), "eps": 1e-2, "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 2, "weight_decay": 0.1}),
    ("ASGD", {"t0": 0, "maximize": True}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.3, "etas": (0.3, 1.7), "step_sizes": (0.1, 0.4), "maximize": True}),
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.5, "beta2_decay": -0.4, "eps": (1e-2, 0.5), "weight_decay": 0.1}),
    ("Adafactor", {"d": 1.5, "maximize": True}),
]
SHAPES = [(3, 2), (4,), ()]

rules = pytest.mark.parametrize(
    ("rule", "options"),
    RULES,
    ids=["-".join([rule, *options]) for rule, options in RULES],
)


def optimizer_module(lib: Any) -> Any:
    return importlib.import_module(f"{lib.__name__}.optim.optimizer")


def parameters(lib: Any, dtype: str = "float32") -> list[Any]:
    rng = np.random.default_rng(1)
    return [
        lib.tensor(rng.normal(size=shape), dtype=getattr(lib, dtype), requires_grad=True)
        for shape in SHAPES
    ]


def gradients(step: int) -> list[np.ndarray]:
    rng = np.random.default_rng(100 + step)
    return [np.asarray(rng.normal(size=shape)) for shape in SHAPES]


def take_steps(lib: Any, optimizer: Any, steps: range) -> None:
    """Steps along given gradients; the second parameter has none at first."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for step in steps:
        for i, (p, g) in enumerate(zip(params, gradients(step), strict=True)):
            p.grad = None if i == 1 and step < 2 else lib.tensor(g, dtype=p.dtype)
        optimizer.step()


def assert_same_values(params: list[Any], expected: list[Any], rtol: float) -> None:
    for p, q in zip(params, expected, strict=True):
        np.testing.assert_allclose(array(p), q.detach().numpy(), rtol=rtol, atol=rtol)


def assert_same_state(optimizer: Any, expected: Any, rtol: float) -> None:
    saved, wanted = optimizer.state_dict(), expected.state_dict()
    assert saved["state"].keys() == wanted["state"].keys()
    for key, state in wanted["state"].items():
        assert list(saved["state"][key]) == list(state)
        for name, value in state.items():
            mine = saved["state"][key][name]
            assert tuple(mine.shape) == tuple(value.shape)
            assert plain(mine.dtype) == plain(value.dtype)
            np.testing.assert_allclose(array(mine), value.numpy(), rtol=rtol, atol=rtol)
    assert saved["param_groups"] == wanted["param_groups"]


def outcome(action: Callable[[], Any]) -> tuple[type, str] | None:
    """How `action` fails."""
    try:
        action()
    except Exception as error:
        return type(error), plain(error)
    return None


def assert_same_error(action: Callable[[Any], Any]) -> None:
    """`action`, given either library, fails alike."""
    expected = outcome(lambda: action(torch))
    assert expected is not None
    assert outcome(lambda: action(T)) == expected


# ---------------------------------------------------------------- update rules


@rules
@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 2e-6), ("float64", 1e-13)])
def test_steps_are_those_of_torch(rule, options, dtype, rtol):
    ours, theirs = parameters(T, dtype), parameters(torch, dtype)
    optimizer = getattr(T.optim, rule)(ours, **options)
    reference = getattr(torch.optim, rule)(theirs, **options)
    for step in range(12):
        take_steps(T, optimizer, range(step, step + 1))
        take_steps(torch, reference, range(step, step + 1))
        assert_same_values(ours, theirs, rtol)
    assert_same_state(optimizer, reference, rtol)


@rules
def test_a_parameter_with_elements_in_one_place_is_not_moved(rule, options):
    outcomes = []
    for lib in (T, torch):
        other = lib.tensor([1.0, 2.0], requires_grad=True)
        p = lib.nn.Parameter(lib.zeros(3, 1).expand(3, 2))
        p.grad, other.grad = lib.ones(3, 2), lib.ones(2)
        optimizer = getattr(lib.optim, rule)([p, other], **options)
        outcomes.append(outcome(optimizer.step))
        if lib is T:
            assert p.tolist() == [[0.0, 0.0]] * 3
            assert all(state["step"] == 0 for state in optimizer.state.values())
    assert outcomes[0] == outcomes[1]


def test_groups_have_their_own_options():
    results = []
    for lib in (T, torch):
        a, b, c = parameters(lib)
        optimizer = lib.optim.SGD(
            [{"params": [a, b], "lr": 0.5}, {"params": c, "momentum": 0.9}], lr=0.1
        )
        take_steps(lib, optimizer, range(4))
        optimizer.param_groups[1]["lr"] = 0.01
        take_steps(lib, optimizer, range(4, 6))
        results.append([a, b, c])
    assert_same_values(*results, rtol=1e-6)


def test_group_added_later():
    results = []
    for lib in (T, torch):
        a, b, c = parameters(lib)
        optimizer = lib.optim.Adam([a], lr=0.1)
        a.grad = lib.ones(3, 2)
        optimizer.step()
        optimizer.add_param_group({"params": [b, c], "lr": 0.01})
        take_steps(lib, optimizer, range(3))
        results.append([a, b, c])
        assert optimizer.param_groups[1]["lr"] == 0.01
        assert optimizer.param_groups[1]["betas"] == (0.9, 0.999)
    assert_same_values(*results, rtol=1e-6)


@pytest.mark.parametrize(
    "rule",
    ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD",
     "Adafactor"],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (1,)])
def test_learning_rate_in_a_tensor_is_followed(rule, shape):
    number, tensor = parameters(T), parameters(T)
    by_number = getattr(T.optim, rule)(number, lr=0.25)
    lr = T.full(shape, 0.25)
    by_tensor = getattr(T.optim, rule)(tensor, lr=lr)
    take_steps(T, by_number, range(2))
    take_steps(T, by_tensor, range(2))
    by_number.param_groups[0]["lr"] = 0.125
    lr.fill_(0.125)
    take_steps(T, by_number, range(2, 4))
    take_steps(T, by_tensor, range(2, 4))
    assert_same_values(tensor, number, rtol=1e-6)


@pytest.mark.parametrize(
    "rule", ["Adam", "AdamW", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"]
)
def test_capturable_counts_in_a_tensor(rule):
    number, tensor = parameters(T), parameters(T)
    by_number = getattr(T.optim, rule)(number)
    by_tensor = getattr(T.optim, rule)(tensor, capturable=True)
    take_steps(T, by_number, range(2))
    take_steps(T, by_tensor, range(2))
    steps = [state["step"] for state in by_tensor.state.values()]
    take_steps(T, by_number, range(2, 4))
    take_steps(T, by_tensor, range(2, 4))
    assert steps[0].item() == 4  # the tensor of before, counted on in place
    assert_same_values(tensor, number, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr": 0.1, "weight_decay": 0.0, "momentum": 0.5, "nesterov": False},
        {"adjust_lr_fn": "match_rms_adamw", "eps": 1.0, "ns_steps": 2},
        {"adjust_lr_fn": "original", "ns_coefficients": (2.0, -1.5, 0.5)},
    ],
)
def test_muon_is_that_of_torch_without_rounding_to_bfloat16(options, shape, dtype, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    rng = np.random.default_rng(0)
    start, grads = rng.normal(size=shape), rng.normal(size=(6, *shape))
    found, saved = [], []
    for lib in (T, torch):
        p = lib.tensor(start, dtype=getattr(lib, dtype), requires_grad=True)
        optimizer = lib.optim.Muon([p], **options)
        for grad in grads:
            p.grad = lib.tensor(grad, dtype=p.dtype)
            optimizer.step()
        found.append(p)
        saved.append(optimizer)
    assert_same_values([found[0]], [found[1]], {"float32": 2e-5, "float64": 1e-12}[dtype])
    assert_same_state(*saved, {"float32": 2e-5, "float64": 1e-12}[dtype])


def test_flags_for_other_kernels_change_nothing():
    results = []
    for flags in ({}, {"foreach": True}, {"fused": True}, {"foreach": False, "fused": False}):
        params = parameters(T)
        take_steps(T, T.optim.Adam(params, **flags), range(3))
        results.append([array(p) for p in params])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_steps_are_not_recorded():
    (p, *_) = params = parameters(T)
    optimizer = T.optim.SGD(params, momentum=0.9)
    take_steps(T, optimizer, range(2))
    assert p.is_leaf
    assert p.requires_grad
    assert not optimizer.state[p]["momentum_buffer"].requires_grad


def test_velocity_does_not_alias_the_gradient():
    p = T.zeros(2, requires_grad=True)
    optimizer = T.optim.SGD([p], lr=1.0, momentum=0.5)
    p.grad = T.ones(2)
    optimizer.step()
    p.grad.zero_()
    optimizer.step()
    assert array(p).tolist() == [-1.5, -1.5]


def test_closure_runs_with_gradients_and_its_loss_comes_back():
    p = T.ones(2, requires_grad=True)
    optimizer = T.optim.SGD([p], lr=0.5)

    def closure():
        assert T.is_grad_enabled()
        optimizer.zero_grad()
        p.grad = T.ones(2)
        return "loss"

    with T.no_grad():
        assert optimizer.step(closure) == "loss"
    assert array(p).tolist() == [0.5, 0.5]
    assert optimizer.step() is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_amsgrad_keeps_what_is_not_finite(value):
    ours, theirs = (lib.ones(3, requires_grad=True) for lib in (T, torch))
    optimizers = [lib.optim.Adam([p], amsgrad=True) for lib, p in ((T, ours), (torch, theirs))]
    for gradient in ([1.0, value, 2.0], [2.0, 1.0, 1.0]):
        ours.grad, theirs.grad = T.tensor(gradient), torch.tensor(gradient)
        for optimizer in optimizers:
            optimizer.step()
    assert_same_values([ours], [theirs], 2e-6)
    assert_same_state(*optimizers, 2e-6)


def test_zero_grad():
    p, q = T.zeros(2, requires_grad=True), T.zeros(2, requires_grad=True)
    optimizer = T.optim.SGD([p, q])
    p.grad = kept = T.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is kept
    assert array(kept).tolist() == [0, 0]
    assert q.grad is None
    optimizer.zero_grad()
    assert p.grad is None


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=4), st.floats(0.01, 0.4))
def test_descent_on_a_parabola_is_geometric(start, lr):
    p = T.tensor(start, dtype=T.float64, requires_grad=True)
    optimizer = T.optim.SGD([p], lr=lr)
    for _ in range(3):
        p.grad = 2 * p.detach()
        optimizer.step()
    np.testing.assert_allclose(array(p), np.array(start) * (1 - 2 * lr) ** 3, atol=1e-12)


# ---------------------------------------------------------------- L-BFGS


def bowl(lib: Any, params: list[Any]) -> Any:
    a, b = params
    return ((a - 1) ** 4).sum() + (a[0] * b).square().sum() + (b + 0.5).square().sum()


def valley(lib: Any, params: list[Any]) -> Any:
    """Rosenbrock's, in five dimensions."""
    x = lib.cat([p.reshape(-1) for p in params])
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def waves(lib: Any, params: list[Any]) -> Any:
    a, b = params
    return (3 * a).sin().sum() + 0.1 * a.square().sum() + (2 * b).cos().sum() + 0.2 * (b**2).sum()


def minimise(
    lib: Any, f: Any, steps: int, dtype: str, optimizer: Any = None, **options: Any
) -> Any:
    params = [
        lib.tensor(start, dtype=getattr(lib, dtype), requires_grad=True)
        for start in ([-1.2, 1.0, 0.3], [[0.5], [2.0]])
    ]
    optimizer = lib.optim.LBFGS(params, **options)
    losses, evaluations = [], []

    def closure():
        optimizer.zero_grad()
        loss = f(lib, params)
        loss.backward()
        evaluations.append(loss.item())
        return loss

    for _ in range(steps):
        losses.append(optimizer.step(closure).item())
    return optimizer, losses, evaluations


LBFGS_OPTIONS: list[dict[str, Any]] = [
    {"lr": 0.01},
    {"lr": 0.02, "max_iter": 4, "history_size": 3},
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "max_iter": 3, "history_size": 2, "lr": 0.1},
    {"line_search_fn": "strong_wolfe", "max_eval": 5, "lr": 3.0},
    {"line_search_fn": "strong_wolfe", "max_eval": 1, "lr": 0.01},
    {"line_search_fn": "strong_wolfe", "tolerance_grad": 1e-2, "tolerance_change": 1e-4},
]


@pytest.mark.parametrize("f", [bowl, valley, waves])
@pytest.mark.parametrize("options", LBFGS_OPTIONS)
def test_lbfgs_goes_where_that_of_torch_goes(options, f):
    optimizer, *found = minimise(T, f, 5, "float64", **options)
    reference, *wanted = minimise(torch, f, 5, "float64", **options)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-9)
    ours, theirs = (o.state_dict()["state"][0] for o in (optimizer, reference))
    assert ours["n_iter"] == theirs["n_iter"]
    assert ours["func_evals"] == theirs["func_evals"]
    groups, theirs = optimizer.state_dict()["param_groups"], reference.state_dict()["param_groups"]
    assert groups == theirs
    assert [*groups[0]] == [*theirs[0]]


def test_lbfgs_finds_the_minimum_in_float32():
    _, losses, _ = minimise(T, valley, 20, "float32", line_search_fn="strong_wolfe")
    np.testing.assert_allclose(losses[-1], 3.930839, rtol=1e-5)  # the other one, near (-1, 1, ...)


def test_lbfgs_does_not_follow_a_loss_that_is_not_a_number():
    def f(lib: Any, params: list[Any]) -> Any:
        return (params[0] - 2).sqrt().sum() + params[1].sum()

    _, *found = minimise(T, f, 1, "float64", line_search_fn="strong_wolfe")
    _, *wanted = minimise(torch, f, 1, "float64", line_search_fn="strong_wolfe")
    np.testing.assert_array_equal(found[0], wanted[0])


@pytest.mark.parametrize("direction", ["from torch", "to torch", "to ourselves"])
def test_lbfgs_resumes(direction):
    source, target = {
        "from torch": (torch, T), "to torch": (T, torch), "to ourselves": (T, T),
    }[direction]  # fmt: skip
    _, losses, _ = minimise(source, valley, 4, "float64", max_iter=6, lr=0.02)

    def converted(value: Any) -> Any:
        if isinstance(value, (T.Tensor, torch.Tensor)):
            return target.tensor(array(value) if source is T else value.numpy())
        if isinstance(value, list):
            return [converted(one) for one in value]
        return value

    half, first, _ = minimise(source, valley, 2, "float64", max_iter=6, lr=0.02)
    params = [converted(p.detach()).requires_grad_() for p in half.param_groups[0]["params"]]
    optimizer = target.optim.LBFGS(params)
    saved = half.state_dict()
    state = {key: converted(value) for key, value in saved["state"][0].items()}
    optimizer.load_state_dict({"state": {0: state}, "param_groups": saved["param_groups"]})

    def closure():
        optimizer.zero_grad()
        loss = valley(target, params)
        loss.backward()
        return loss

    second = [optimizer.step(closure).item() for _ in range(2)]
    np.testing.assert_allclose([*first, *second], losses, rtol=1e-7)


def test_lbfgs_leaves_the_parameters_where_a_search_that_fails_began():
    p = T.tensor([3.0], requires_grad=True)
    optimizer = T.optim.LBFGS([p], line_search_fn="strong_wolfe")
    calls = []

    def closure():
        calls.append(p.item())
        if len(calls) == 2:
            raise KeyboardInterrupt
        optimizer.zero_grad()
        loss = (p**4).sum()
        loss.backward()
        return loss

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert p.item() == calls[0] == 3.0
    assert calls[1] == 2.0


@pytest.mark.parametrize("step", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("most", [1, 3, 25])
def test_programs_search_along_lines_with_the_parts_of_lbfgs(step, most):
    found = []
    for lib in (T, torch):

        def evaluate(x: Any, t: Any, d: Any, lib: Any = lib) -> Any:
            place = (x + t * d).detach().requires_grad_()
            loss = (1 - place[0]) ** 2 + 100 * (place[1] - place[0] ** 2) ** 2
            (gradient,) = lib.autograd.grad(loss, place)
            return float(loss.detach()), gradient

        x = lib.tensor([-1.2, 1.0], dtype=lib.float64)
        f, g = evaluate(x, 0.0, x)
        d = -g / g.abs().sum()
        search = importlib.import_module(f"{lib.__name__}.optim.lbfgs")._strong_wolfe
        f_new, g_new, t, count = search(evaluate, x, step, d, f, g, g.dot(d), max_ls=most)
        found.append((f_new, g_new.tolist(), float(t), count))
    (f, g, t, count), (their_f, their_g, their_t, their_count) = found
    assert count == their_count
    np.testing.assert_allclose([f, t, *g], [their_f, their_t, *their_g], rtol=1e-9)


@pytest.mark.parametrize("bounds", [None, (0.3, 0.9), (-1.0, 0.2)])
@pytest.mark.parametrize(
    "ends", [(0, 1.0, -2.0, 1, 0.5, 1.0), (1, 2.0, 3.0, 0, 1.0, -1.0), (0, 0.0, 1.0, 1, 5.0, 1.0)]
)
def test_programs_find_the_minimum_of_a_cubic_with_the_parts_of_lbfgs(ends, bounds):
    ours, pytorchs = (importlib.import_module(f"{lib.__name__}.optim.lbfgs") for lib in (T, torch))
    mine = ours._cubic_interpolate(*(T.tensor(float(end)) for end in ends), bounds=bounds)
    given = [torch.tensor(float(end)) for end in ends]
    theirs = pytorchs._cubic_interpolate(*given, bounds=bounds)
    np.testing.assert_allclose(float(mine), float(theirs), rtol=1e-6)
    of_numbers = ours._cubic_interpolate(*map(float, ends))
    assert of_numbers == pytest.approx(float(pytorchs._cubic_interpolate(*given)))


# ---------------------------------------------------------------- checkpoints


@rules
def test_checkpoint_of_torch_is_loaded(rule, options):
    theirs = parameters(torch)
    reference = getattr(torch.optim, rule)(theirs, **options)
    take_steps(torch, reference, range(3))

    ours = [T.tensor(p.detach().numpy(), requires_grad=True) for p in theirs]
    optimizer = getattr(T.optim, rule)(ours, lr=7.0)
    optimizer.load_state_dict(copy.deepcopy(reference.state_dict()))
    assert_same_state(optimizer, reference, rtol=0)
    take_steps(torch, reference, range(3, 5))
    take_steps(T, optimizer, range(3, 5))
    assert_same_values(ours, theirs, rtol=2e-6)


@rules
def test_checkpoint_is_loaded_by_torch(rule, options):
    ours = parameters(T)
    optimizer = getattr(T.optim, rule)(ours, **options)
    take_steps(T, optimizer, range(3))
    saved = optimizer.state_dict()
    as_torch = {
        "state": {
            key: {name: torch.tensor(array(value)) for name, value in state.items()}
            for key, state in saved["state"].items()
        },
        "param_groups": saved["param_groups"],
    }
    theirs = [torch.tensor(array(p), requires_grad=True) for p in ours]
    reference = getattr(torch.optim, rule)(theirs)
    reference.load_state_dict(as_torch)
    take_steps(torch, reference, range(3, 5))
    take_steps(T, optimizer, range(3, 5))
    assert_same_values(ours, theirs, rtol=2e-6)


@rules
def test_resuming_gives_the_same_bits(rule, options):
    through = parameters(T)
    optimizer = getattr(T.optim, rule)(through, **options)
    take_steps(T, optimizer, range(3))
    saved = copy.deepcopy(optimizer.state_dict())
    resumed = [p.detach().clone().requires_grad_() for p in through]
    second = getattr(T.optim, rule)(resumed)
    second.load_state_dict(saved)
    take_steps(T, optimizer, range(3, 5))
    take_steps(T, second, range(3, 5))
    for p, q in zip(through, resumed, strict=True):
        np.testing.assert_array_equal(array(p), array(q))


def test_loading_casts_to_the_parameter():
    p = T.zeros(2, dtype=T.float64, requires_grad=True)
    optimizer = T.optim.Adam([p])
    source = T.optim.Adam([T.zeros(2, requires_grad=True)])
    source.param_groups[0]["params"][0].grad = T.ones(2)
    source.step()
    optimizer.load_state_dict(source.state_dict())
    assert optimizer.state[p]["exp_avg"].dtype == T.float64
    assert optimizer.state[p]["step"] == 1


def test_loading_into_capturable_keeps_a_tensor():
    p = T.zeros(2, requires_grad=True)
    optimizer = T.optim.Adam([p], capturable=True)
    p.grad = T.ones(2)
    optimizer.step()
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert isinstance(optimizer.state[p]["step"], T.Tensor)
    assert optimizer.state[p]["step"].item() == 1


def test_adamw_stays_adamw():
    p = T.zeros(2, requires_grad=True)
    optimizer = T.optim.AdamW([p])
    optimizer.load_state_dict(T.optim.Adam([p]).state_dict())
    assert optimizer.param_groups[0]["decoupled_weight_decay"]


def test_names_of_parameters_are_kept():
    for lib in (T, torch):
        a, b, _ = parameters(lib)
        optimizer = lib.optim.SGD([("a", a), ("b", b)])
        saved = optimizer.state_dict()
        assert saved["param_groups"][0]["param_names"] == ["a", "b"]
        del saved["param_groups"][0]["param_names"]
        optimizer.load_state_dict(saved)
        assert optimizer.param_groups[0]["param_names"] == ["a", "b"]


def test_optimizer_can_be_pickled_and_copied():
    optimizer = T.optim.SGD(parameters(T), momentum=0.9)
    take_steps(T, optimizer, range(2))
    for fallback in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        take_steps(T, fallback, range(2, 4))
    take_steps(T, optimizer, range(2, 4))
    expected = [array(p) for p in optimizer.param_groups[0]["params"]]
    assert_same_values(fallback.param_groups[0]["params"], [T.tensor(p) for p in expected], rtol=0)


@pytest.mark.parametrize("lib", [T, torch], ids=["ours", "torch"])
def test_checkpoint_hooks(lib):
    optimizer = lib.optim.SGD([lib.zeros(1, requires_grad=True)])
    seen = []
    optimizer.register_state_dict_pre_hook(lambda opt: seen.append("before"))
    optimizer.register_state_dict_post_hook(lambda opt, saved: {"wrapped": saved})
    first = optimizer.register_load_state_dict_pre_hook(lambda opt, saved: saved["wrapped"])
    optimizer.register_load_state_dict_post_hook(lambda opt: seen.append("loaded"))
    optimizer.register_load_state_dict_post_hook(lambda opt: seen.append("first"), prepend=True)
    saved = optimizer.state_dict()
    assert list(saved) == ["wrapped"]
    optimizer.load_state_dict(saved)
    assert seen == ["before", "first", "loaded"]
    first.remove()
    with pytest.raises(KeyError):
        optimizer.load_state_dict(saved)


# ---------------------------------------------------------------- step hooks, texts and errors


@pytest.mark.parametrize("lib", [T, torch], ids=["ours", "torch"])
def test_step_hooks(lib):
    p = lib.ones(1, requires_grad=True)
    optimizer = lib.optim.SGD([p], lr=1.0)
    p.grad = lib.ones(1)
    seen: list[Any] = []
    everywhere = [
        optimizer_module(lib).register_optimizer_step_pre_hook(lambda *a: seen.append("all pre")),
        optimizer_module(lib).register_optimizer_step_post_hook(lambda *a: seen.append("all post")),
    ]
    pre = optimizer.register_step_pre_hook(
        lambda opt, args, kwargs: seen.append((opt is optimizer, args[0] is opt, p.item()))
    )
    post = optimizer.register_step_post_hook(
        lambda opt, args, kwargs: seen.append((kwargs, p.item()))
    )
    optimizer.step()
    assert seen == ["all pre", (True, True, 1.0), ({}, 0.0), "all post"]
    for handle in (*everywhere, pre, post):
        handle.remove()
    optimizer.step()
    assert len(seen) == 4

    def closure():
        return "replaced"

    optimizer.register_step_pre_hook(lambda opt, args, kwargs: ((opt, closure), kwargs))
    assert optimizer.step() == "replaced"


def test_hook_that_returns_something_else():
    optimizer = T.optim.SGD([T.zeros(1, requires_grad=True)])
    optimizer.register_step_pre_hook(lambda *args: 3)
    with pytest.raises(RuntimeError, match=r"must return None or a tuple of .*, but got 3\."):
        optimizer.step()


@pytest.mark.parametrize("lib", [torch, T], ids=["torch", "ours"])
def test_optimizer_around_another_that_never_runs_its_own_init(lib):
    class Lookahead(lib.optim.Optimizer):
        def __init__(self, inner):
            self.inner, self.param_groups = inner, inner.param_groups
            self.slow = [p.detach().clone() for p in inner.param_groups[0]["params"]]

        def step(self, closure=None):
            loss = self.inner.step(closure)
            for p, slow in zip(self.param_groups[0]["params"], self.slow, strict=True):
                p.data.copy_(slow.add_(p.data - slow, alpha=0.5))
            return loss

    w = lib.tensor([1.0, 2.0], requires_grad=True)
    optimizer = Lookahead(lib.optim.SGD([w], lr=0.1))
    for _ in range(2):
        w.grad = None
        w.square().sum().backward()
        optimizer.step()
    np.testing.assert_allclose(w.detach().numpy(), [0.81, 1.62], rtol=1e-6)


def test_step_of_a_subclass_runs_hooks_once():
    class Twice(T.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            super().step(closure)

    p = T.ones(1, requires_grad=True)
    p.grad = T.ones(1)
    optimizer = Twice([p], lr=0.25)
    seen = []
    optimizer.register_step_post_hook(lambda *args: seen.append(p.item()))
    optimizer.step()
    assert seen == [0.5]


def test_optimizer_of_your_own():
    class SignDescent(T.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @T.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(group["lr"] * p.grad.sign())
                    self.state[p]["steps"] = self.state[p].get("steps", 0) + 1

    p = T.zeros(2, requires_grad=True)
    optimizer = SignDescent([p], lr=0.5)
    p.grad = T.tensor([3.0, -0.1])
    optimizer.step()
    assert array(p).tolist() == [-0.5, 0.5]
    assert optimizer.state_dict()["state"] == {0: {"steps": 1}}


@rules
def test_repr(rule, options):
    texts = [
        plain(getattr(lib.optim, rule)([{"params": p} for p in parameters(lib)], **options))
        for lib in (T, torch)
    ]
    assert texts[0] == texts[1]


def zero(lib: Any, **options: Any) -> Any:
    return lib.zeros(2, requires_grad=True, **options)


def stepped(lib: Any, rule: Any, **options: Any) -> None:
    p = lib.ones(2, 3, requires_grad=True)
    optimizer = rule([p], **options)
    optimizer.step()  # without a gradient: nothing happens
    p.grad = lib.ones(2, 3)
    optimizer.step()


ERRORS: list[Callable[[Any], Any]] = [
    lambda lib: lib.optim.SGD([], lr=0.1),
    lambda lib: lib.optim.SGD(zero(lib), lr=0.1),
    lambda lib: lib.optim.SGD([zero(lib) * 2], lr=0.1),
    lambda lib: lib.optim.SGD([1.0], lr=0.1),
    lambda lib: lib.optim.SGD(["weight"], lr=0.1),
    lambda lib: lib.optim.SGD([dict], lr=0.1),
    lambda lib: lib.optim.SGD([{"params": {zero(lib)}}], lr=0.1),
    lambda lib: lib.optim.SGD([zero(lib)], lr=-0.1),
    lambda lib: lib.optim.SGD([zero(lib)], lr=lib.ones(2)),
    lambda lib: lib.optim.SGD([zero(lib)], momentum=-0.1),
    lambda lib: lib.optim.SGD([zero(lib)], weight_decay=-0.1),
    lambda lib: lib.optim.SGD([zero(lib)], nesterov=True),
    lambda lib: lib.optim.SGD([zero(lib)], nesterov=True, momentum=0.9, dampening=0.1),
    lambda lib: lib.optim.SGD([zero(lib)], fused=True, differentiable=True),
    lambda lib: lib.optim.SGD([zero(lib)], fused=True, foreach=True),
    lambda lib: lib.optim.SGD([zero(lib)], 0.1, 0, 0, 0, False, True),
    lambda lib: lib.optim.SGD([("w", zero(lib)), zero(lib)]),
    lambda lib: lib.optim.Adam([zero(lib)], lr=-1),
    lambda lib: lib.optim.Adam([zero(lib)], eps=-1),
    lambda lib: lib.optim.Adam([zero(lib)], betas=(1.0, 0.9)),
    lambda lib: lib.optim.Adam([zero(lib)], betas=(0.9, -0.1)),
    lambda lib: lib.optim.AdamW([zero(lib)], weight_decay=-1),
    lambda lib: lib.optim.RMSprop([zero(lib)], lr=-1),
    lambda lib: lib.optim.RMSprop([zero(lib)], eps=-1),
    lambda lib: lib.optim.RMSprop([zero(lib)], momentum=-1),
    lambda lib: lib.optim.RMSprop([zero(lib)], weight_decay=-1),
    lambda lib: lib.optim.RMSprop([zero(lib)], alpha=-1),
    lambda lib: lib.optim.Adagrad([zero(lib)], lr_decay=-1),
    lambda lib: lib.optim.Adagrad([zero(lib)], initial_accumulator_value=-1),
    lambda lib: lib.optim.Adadelta([zero(lib)], rho=1.5),
    lambda lib: lib.optim.Adadelta([zero(lib)], eps=-1),
    lambda lib: lib.optim.Adadelta([zero(lib)], weight_decay=-1),
    lambda lib: lib.optim.Adamax([zero(lib)], eps=-1),
    lambda lib: lib.optim.Adamax([zero(lib)], betas=(1.0, 0.9)),
    lambda lib: lib.optim.NAdam([zero(lib)], betas=(0.9, -0.1)),
    lambda lib: lib.optim.NAdam([zero(lib)], momentum_decay=-1),
    lambda lib: lib.optim.RAdam([zero(lib)], betas=(0.9, 1.0)),
    lambda lib: lib.optim.RAdam([zero(lib)], weight_decay=-1),
    lambda lib: lib.optim.ASGD([zero(lib)], weight_decay=-1),
    lambda lib: lib.optim.Rprop([zero(lib)], lr=-1),
    lambda lib: lib.optim.Rprop([zero(lib)], etas=(1.0, 1.2)),
    lambda lib: lib.optim.Adafactor([zero(lib)], lr=-1),
    lambda lib: lib.optim.Adafactor([zero(lib)], beta2_decay=0.1),
    lambda lib: lib.optim.Adafactor([zero(lib)], eps=(-1, 1)),
    lambda lib: lib.optim.Adafactor([zero(lib)], eps=(None, -1)),
    lambda lib: lib.optim.Adafactor([zero(lib)], d=0.5),
    lambda lib: lib.optim.Adafactor([zero(lib)], weight_decay=-1),
    lambda lib: lib.optim.Muon([lib.ones(2, 2)], lr=-1),
    lambda lib: lib.optim.Muon([lib.ones(2, 2)], momentum=-1),
    lambda lib: lib.optim.Muon([lib.ones(2, 2)], weight_decay=-1),
    lambda lib: lib.optim.Muon([lib.ones(2, 2)], adjust_lr_fn="none"),
    lambda lib: lib.optim.Muon([zero(lib)]),
    lambda lib: stepped(lib, lib.optim.Muon, ns_steps=100),
    lambda lib: stepped(lib, lib.optim.Muon, ns_coefficients=(1, 2)),
    lambda lib: stepped(lib, lib.optim.SparseAdam),
    lambda lib: lib.optim.SparseAdam([zero(lib)], lr=0.0),
    lambda lib: lib.optim.SparseAdam([zero(lib)], eps=0.0),
    lambda lib: lib.optim.SparseAdam([zero(lib)], betas=(1.0, 0.9)),
    lambda lib: lib.optim.LBFGS([zero(lib)], lr=-1),
    lambda lib: lib.optim.LBFGS([{"params": zero(lib)}, {"params": zero(lib)}]),
    lambda lib: lib.optim.LBFGS([zero(lib)]).step(),
    lambda lib: lib.optim.LBFGS([p := zero(lib)], line_search_fn="armijo").step(
        lambda: [loss := (p - 1).square().sum(), loss.backward()][0]
    ),
    lambda lib: lib.optim.Optimizer([zero(lib)], {"lr": optimizer_module(lib).required}),
    lambda lib: lib.optim.Optimizer([zero(lib)], {}).step(),
    lambda lib: lib.optim.SGD([zero(lib)]).add_param_group([zero(lib)]),
    lambda lib: lib.optim.SGD([zero(lib)]).add_param_group({"params": [("w", zero(lib))]}),
    lambda lib: lib.optim.SGD([("w", zero(lib))]).add_param_group({"params": [zero(lib)]}),
    lambda lib: [o := lib.optim.SGD([zero(lib)]), o.add_param_group(dict(o.param_groups[0]))],
    lambda lib: lib.optim.SGD([zero(lib)]).load_state_dict(
        lib.optim.SGD([{"params": zero(lib)}, {"params": zero(lib)}]).state_dict()
    ),
    lambda lib: lib.optim.SGD([zero(lib)]).load_state_dict(
        lib.optim.SGD([zero(lib), zero(lib)]).state_dict()
    ),
]


@pytest.mark.cpu
@pytest.mark.parametrize("action", ERRORS, ids=range(len(ERRORS)))
def test_errors_are_those_of_torch(action):
    assert_same_error(action)


def test_a_parameter_twice_in_a_group_warns():
    p = zero(T)
    with pytest.warns(UserWarning, match="a parameter group with duplicate parameters"):
        T.optim.SGD([p, p])


def test_retained_gradient_may_be_optimised():
    p = zero(T) * 2
    p.retain_grad()
    T.optim.SGD([p])


# ---------------------------------------------------------------- schedules


def sequential(s: Any, o: Any) -> Any:
    parts = [
        s.LinearLR(o, start_factor=0.1, total_iters=4),
        s.ExponentialLR(o, gamma=0.8),
        s.CosineAnnealingLR(o, T_max=5),
    ]
    return s.SequentialLR(o, parts, milestones=[5, 9])


def chained(s: Any, o: Any) -> Any:
    parts = [s.ConstantLR(o, factor=0.1, total_iters=3), s.StepLR(o, 4, 0.5)]
    return s.ChainedScheduler(parts, optimizer=o)


def sequential_of_chained(s: Any, o: Any) -> Any:
    return s.SequentialLR(o, [chained(s, o), s.PolynomialLR(o, 6, 2.0)], milestones=[6])


def swa(s: Any) -> Any:
    """The module of averages of the library whose schedules are given."""
    return importlib.import_module(s.__name__.replace("lr_scheduler", "swa_utils"))


SCHEDULES: dict[str, Callable[[Any, Any], Any]] = {
    "StepLR": lambda s, o: s.StepLR(o, step_size=3, gamma=0.5),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, milestones=[2, 5, 5, 9], gamma=0.3),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, gamma=0.9),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, T_max=5, eta_min=0.01),
    "LambdaLR": lambda s, o: s.LambdaLR(o, lambda e: 0.95**e),
    "LambdaLR of each": lambda s, o: s.LambdaLR(o, [lambda e: 0.95**e, lambda e: 1 / (e + 1)]),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, lambda e: 1 - 1 / (e + 2)),
    "ConstantLR": lambda s, o: s.ConstantLR(o, factor=0.25, total_iters=4),
    "LinearLR": lambda s, o: s.LinearLR(o, start_factor=0.2, end_factor=0.7, total_iters=6),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, total_iters=8, power=1.5),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, max_lr=[0.5, 1.0], total_steps=16),
    "OneCycleLR linear": lambda s, o: s.OneCycleLR(
        o, 0.5, epochs=4, steps_per_epoch=5, anneal_strategy="linear", three_phase=True
    ),
    "OneCycleLR without momentum": lambda s, o: s.OneCycleLR(
        o, 0.5, total_steps=16, cycle_momentum=False, pct_start=0.5, div_factor=5.0
    ),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=3, step_size_down=5),
    "CyclicLR triangular2": lambda s, o: s.CyclicLR(
        o, [0.01, 0.02], [0.1, 0.3], step_size_up=3, mode="triangular2"
    ),
    "CyclicLR exp_range": lambda s, o: s.CyclicLR(
        o, 0.01, 0.1, step_size_up=3, mode="exp_range", gamma=0.9, cycle_momentum=False
    ),
    "CyclicLR scale_fn": lambda s, o: s.CyclicLR(
        o, 0.01, 0.1, step_size_up=3, scale_fn=lambda i: 1 / (1 + i), scale_mode="iterations"
    ),
    "SWALR": lambda s, o: swa(s).SWALR(o, swa_lr=0.05, anneal_epochs=6),
    "SWALR linear": lambda s, o: swa(s).SWALR(o, [0.05, 0.1], 4, anneal_strategy="linear"),
    "SWALR at once": lambda s, o: swa(s).SWALR(o, 0.05, anneal_epochs=0),
    "SequentialLR": sequential,
    "ChainedScheduler": chained,
    "SequentialLR of chained": sequential_of_chained,
}

schedules = pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES.keys())


def scheduled(lib: Any, rule: str = "SGD") -> Any:
    options = {"momentum": 0.9} if rule == "SGD" else {}
    groups = [{"params": zero(lib)}, {"params": zero(lib), "lr": 0.5}]
    return getattr(lib.optim, rule)(groups, lr=0.2, **options)


def options_now(optimizer: Any) -> list[tuple[Any, Any]]:
    return [
        (float(group["lr"]), *(group["betas"] if "betas" in group else (group["momentum"],)))
        for group in optimizer.param_groups
    ]


def run(optimizer: Any, scheduler: Any, steps: int) -> list[Any]:
    history = [(options_now(optimizer), [float(lr) for lr in scheduler.get_last_lr()])]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        history.append((options_now(optimizer), [float(lr) for lr in scheduler.get_last_lr()]))
    return history


def assert_same_history(ours: list[Any], theirs: list[Any], rtol: float = 1e-13) -> None:
    for (mine, last), (wanted, wanted_last) in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=rtol, atol=1e-16)
        np.testing.assert_allclose(last, wanted_last, rtol=rtol, atol=1e-16)


@schedules
@pytest.mark.filterwarnings("ignore:Detected call of")  # a chain in a sequence steps early
@pytest.mark.parametrize("rule", ["SGD", "Adam"])
def test_rates_are_those_of_torch(make, rule):
    histories = []
    for lib in (T, torch):
        optimizer = scheduled(lib, rule)
        scheduler = make(lib.optim.lr_scheduler, optimizer)
        histories.append(run(optimizer, scheduler, 15))
    assert_same_history(*histories)


@schedules
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_resuming_a_schedule(make):
    optimizer = scheduled(T)
    scheduler = make(T.optim.lr_scheduler, optimizer)
    run(optimizer, scheduler, 6)
    saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
    resumed = scheduled(T)
    second = make(T.optim.lr_scheduler, resumed)
    resumed.load_state_dict(saved[0])
    second.load_state_dict(saved[1])
    assert run(resumed, second, 8) == run(optimizer, scheduler, 8)


@schedules
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_schedule_saved_by_torch_is_loaded(make):
    reference = scheduled(torch)
    expected = make(torch.optim.lr_scheduler, reference)
    run(reference, expected, 6)
    optimizer = scheduled(T)
    scheduler = make(T.optim.lr_scheduler, optimizer)
    assert sorted(scheduler.state_dict()) == sorted(expected.state_dict())
    optimizer.load_state_dict(copy.deepcopy(reference.state_dict()))
    scheduler.load_state_dict(copy.deepcopy(expected.state_dict()))
    assert_same_history(run(optimizer, scheduler, 8), run(reference, expected, 8))


@pytest.mark.parametrize(
    "name",
    [
        "StepLR",
        "MultiStepLR",
        "ExponentialLR",
        "CosineAnnealingLR",
        "ConstantLR",
        "LinearLR",
        "PolynomialLR",
        "LambdaLR",
    ],
)
def test_closed_forms(name):
    rates = []
    for lib in (T, torch):
        optimizer = scheduled(lib)
        scheduler = SCHEDULES[name](lib.optim.lr_scheduler, optimizer)
        optimizer.step()
        for epoch in (3, 1, 7, 12):
            with pytest.warns(UserWarning, match="The epoch parameter in `scheduler.step"):
                scheduler.step(epoch)
            rates.append([float(lr) for lr in scheduler.get_last_lr()])
    np.testing.assert_allclose(rates[:4], rates[4:], rtol=1e-13)


@pytest.mark.parametrize("t_mult", [1, 2])
def test_warm_restarts_take_fractions_of_epochs(t_mult):
    rates = []
    for lib in (T, torch):
        optimizer = scheduled(lib)
        scheduler = lib.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, t_mult)
        optimizer.step()
        for epoch in (0.5, 2.9, 3.0, 4.25, 8.5, 20.75):
            scheduler.step(epoch)
            rates.append(scheduler.get_last_lr())
    np.testing.assert_allclose(rates[:6], rates[6:], rtol=1e-13)


@pytest.mark.parametrize("name", ["CosineAnnealingLR", "StepLR", "LinearLR", "ExponentialLR"])
def test_resuming_by_last_epoch(name):
    arguments = {
        "CosineAnnealingLR": (5,),
        "StepLR": (3,),
        "LinearLR": (0.2, 0.7, 6),
        "ExponentialLR": (0.9,),
    }[name]
    histories = []
    for lib in (T, torch):
        optimizer = scheduled(lib)
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        scheduler = getattr(lib.optim.lr_scheduler, name)(optimizer, *arguments, last_epoch=3)
        histories.append(run(optimizer, scheduler, 6))
    assert_same_history(*histories)


@settings(max_examples=25, deadline=None)
@given(
    metrics=st.lists(st.floats(0.5, 2.0), min_size=1, max_size=25),
    mode=st.sampled_from(["min", "max"]),
    threshold_mode=st.sampled_from(["rel", "abs"]),
    threshold=st.sampled_from([1e-4, 0.1, 0.5]),
    patience=st.integers(0, 3),
    cooldown=st.integers(0, 2),
    min_lr=st.sampled_from([0, 0.01, [0.05, 0.001]]),
)
def test_plateau(metrics, min_lr, **options):
    histories = []
    for lib in (T, torch):
        optimizer = scheduled(lib)
        scheduler = lib.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, factor=0.3, min_lr=min_lr, **options
        )
        history = []
        for metric in metrics:
            scheduler.step(metric)
            history.append((scheduler.get_last_lr(), scheduler.num_bad_epochs, scheduler.best))
        histories.append(history)
    assert histories[0] == histories[1]


def test_plateau_takes_tensors_and_resumes():
    optimizer = scheduled(T)
    scheduler = T.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=0, factor=0.5)
    scheduler.step(T.tensor(1.0))
    saved = copy.deepcopy(scheduler.state_dict())
    scheduler.step(T.tensor(0.5))
    assert scheduler.get_last_lr() == [0.1, 0.25]
    second = T.optim.lr_scheduler.ReduceLROnPlateau(scheduled(T))
    second.load_state_dict(saved)
    second.step(0.5)
    assert second.get_last_lr() == [0.1, 0.25]


def test_plateau_tells_subclasses_the_epoch():
    told = []

    class Told(T.optim.lr_scheduler.ReduceLROnPlateau):
        def _reduce_lr(self, epoch):
            told.append(epoch)
            super()._reduce_lr(epoch)

    scheduler = Told(scheduled(T), patience=0, factor=0.5)
    for metric in (1.0, 2.0, 3.0):
        scheduler.step(metric)
    assert told == [2, 3]
    assert scheduler.get_last_lr() == [0.05, 0.125]


def test_callable_objects_in_schedules_are_saved():
    class Decay:
        def __init__(self, rate):
            self.rate = rate

        def __call__(self, epoch):
            return self.rate**epoch

    saved = T.optim.lr_scheduler.LambdaLR(scheduled(T), Decay(0.5)).state_dict()
    assert saved["lr_lambdas"] == [{"rate": 0.5}, {"rate": 0.5}]
    decay = Decay(0.9)
    T.optim.lr_scheduler.LambdaLR(scheduled(T), decay).load_state_dict(saved)
    assert decay.rate == 0.5


def test_rate_in_a_tensor_is_filled_in_place():
    lr = T.tensor(0.5)
    optimizer = T.optim.SGD([zero(T)], lr=lr)
    scheduler = T.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == 0.25
    assert scheduler.base_lrs[0].item() == 0.5


def test_schedule_of_your_own():
    class Halving(T.optim.lr_scheduler.LRScheduler):
        def get_lr(self):
            return [lr * 0.5**self.last_epoch for lr in self.base_lrs]

    optimizer = scheduled(T)
    scheduler = Halving(optimizer)
    run(optimizer, scheduler, 2)
    assert scheduler.get_last_lr() == [0.05, 0.125]


def warning_texts(action: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [plain(one.message) for one in caught]


def wrong_order(lib: Any) -> None:
    optimizer = scheduled(lib)
    scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 3)
    scheduler.step()
    scheduler.step()


def stepped_before_scheduler(lib: Any) -> None:
    optimizer = scheduled(lib)
    optimizer.step()
    lib.optim.lr_scheduler.StepLR(optimizer, 3).step()


def overridden(lib: Any) -> None:
    optimizer = scheduled(lib)
    scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 3)
    optimizer.step = lambda closure=None: None
    scheduler.step()


@pytest.mark.parametrize("name", T.optim.lr_scheduler.__all__)
def test_a_schedule_documents_each_of_its_arguments(name: str) -> None:
    schedule = getattr(T.optim.lr_scheduler, name)
    documented = re.findall(r"^ {4}(\w+): ", inspect.cleandoc(schedule.__doc__), re.MULTILINE)
    parameters = list(inspect.signature(schedule).parameters)
    assert documented[: len(parameters)] == parameters


def asked_outside(lib: Any) -> None:
    lib.optim.lr_scheduler.StepLR(scheduled(lib), 3).get_lr()


def right_order(lib: Any) -> None:
    optimizer = scheduled(lib)
    schedulers = [lib.optim.lr_scheduler.StepLR(optimizer, 3) for _ in range(2)]
    optimizer.step()
    for scheduler in schedulers:
        scheduler.step()


@pytest.mark.parametrize(
    "action", [wrong_order, stepped_before_scheduler, overridden, asked_outside, right_order]
)
def test_warnings_are_those_of_torch(action):
    assert warning_texts(lambda: action(T)) == warning_texts(lambda: action(torch))


SCHEDULE_ERRORS: list[Callable[[Any, Any], Any]] = [
    lambda s, o: swa(s).SWALR(o, 0.1, anneal_strategy="square"),
    lambda s, o: swa(s).SWALR(o, 0.1, anneal_epochs=-1),
    lambda s, o: swa(s).SWALR(o, [0.1]),
    lambda s, o: swa(s).get_ema_avg_fn(1.5),
    lambda s, o: swa(s).get_ema_multi_avg_fn(-0.5),
    lambda s, o: swa(s).AveragedModel(object(), avg_fn=max, multi_avg_fn=max),
    lambda s, o: s.StepLR("optimizer", 3),
    lambda s, o: s.StepLR(o, 3, last_epoch=2),
    lambda s, o: s.LRScheduler(o),
    lambda s, o: s.LambdaLR(o, [lambda e: 1]),
    lambda s, o: s.MultiplicativeLR(o, 0.5),
    lambda s, o: s.ConstantLR(o, factor=2.0),
    lambda s, o: s.LinearLR(o, start_factor=0.0),
    lambda s, o: s.LinearLR(o, end_factor=2.0),
    lambda s, o: s.SequentialLR(o, [], []),
    lambda s, o: s.SequentialLR(o, [s.StepLR(o, 3)], [1]),
    lambda s, o: s.SequentialLR(o, [object()], []),
    lambda s, o: s.SequentialLR(o, [s.ReduceLROnPlateau(o)], []),
    lambda s, o: s.ChainedScheduler([]),
    lambda s, o: s.ChainedScheduler([s.ReduceLROnPlateau(o)]),
    lambda s, o: s.ChainedScheduler([s.StepLR(o, 3), s.StepLR(copy.deepcopy(o), 3)]),
    lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
    lambda s, o: s.ReduceLROnPlateau(o, mode="median"),
    lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="ratio"),
    lambda s, o: s.ReduceLROnPlateau(o, min_lr=[0.1]),
    lambda s, o: s.ReduceLROnPlateau([]),
    lambda s, o: s.CosineAnnealingWarmRestarts(o, 0),
    lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 0),
    lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 1, "low"),
    lambda s, o: s.CosineAnnealingWarmRestarts(o, 3).step(-1),
    lambda s, o: s.OneCycleLR(o, 0.1),
    lambda s, o: s.OneCycleLR(o, 0.1, total_steps=-1),
    lambda s, o: s.OneCycleLR(o, 0.1, epochs=0, steps_per_epoch=3),
    lambda s, o: s.OneCycleLR(o, 0.1, epochs=3, steps_per_epoch=0.5),
    lambda s, o: s.OneCycleLR(o, 0.1, total_steps=9, pct_start=2.0),
    lambda s, o: s.OneCycleLR(o, 0.1, total_steps=9, anneal_strategy="sin"),
    lambda s, o: s.OneCycleLR(o, [0.1], total_steps=9),
    lambda s, o: run(o, s.OneCycleLR(o, 0.1, total_steps=3), 4),
    lambda s, o: s.CyclicLR(o, 0.1, [0.2]),
    lambda s, o: s.CyclicLR(o, 0.1, 0.2, mode="square"),
    lambda s, o: [o.defaults.pop("momentum"), s.CyclicLR(o, 0.1, 0.2)],
]


@pytest.mark.parametrize("action", SCHEDULE_ERRORS, ids=range(len(SCHEDULE_ERRORS)))
def test_schedule_errors_are_those_of_torch(action):
    with quiet():
        assert_same_error(lambda lib: action(lib.optim.lr_scheduler, scheduled(lib)))


# ---------------------------------------------------------------- averages of weights


AVERAGES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "mean": lambda u: {},
    "mean of all at once": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "mean of each": lambda u: {"avg_fn": u.get_swa_avg_fn(), "use_buffers": True},
    "ema": lambda u: {"avg_fn": u.get_ema_avg_fn(0.9), "use_buffers": True},
    "ema of all at once": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.75)},
    "ema, with buffers": lambda u: {
        "multi_avg_fn": u.get_ema_multi_avg_fn(0.75), "use_buffers": True
    },
    "your own": lambda u: {"avg_fn": lambda average, value, count: average + value * count},
}  # fmt: skip


def small_model(lib: Any) -> Any:
    rng = np.random.default_rng(4)
    model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 1))
    with lib.no_grad():
        for p in model.parameters():
            p.copy_(lib.tensor(rng.normal(size=tuple(p.shape)), dtype=p.dtype))
    return model


def batches(lib: Any, count: int) -> list[Any]:
    rng = np.random.default_rng(5)
    return [lib.tensor(rng.normal(size=(5, 3)), dtype=lib.float32) for _ in range(count)]


def states_of(model: Any) -> dict[str, Any]:
    return {
        name: array(t) if hasattr(t, "_spec") else t.numpy()
        for name, t in model.state_dict().items()
    }


@pytest.mark.parametrize("options", AVERAGES.values(), ids=AVERAGES.keys())
def test_averaged_models_are_those_of_torch(options):
    found = []
    for lib in (T, torch):
        model = small_model(lib)
        averaged = lib.optim.swa_utils.AveragedModel(model, **options(lib.optim.swa_utils))
        optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
        for x in batches(lib, 4):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            averaged.update_parameters(model)
        averaged.eval()
        found.append((states_of(averaged), averaged(batches(lib, 1)[0]).detach().numpy()))
    assert [*found[0][0]] == [*found[1][0]]
    for name, wanted in found[1][0].items():
        np.testing.assert_allclose(found[0][0][name], wanted, rtol=2e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=2e-5, atol=1e-5)


@pytest.mark.cpu
@pytest.mark.parametrize("pack", [lambda x: x, lambda x: (x, 1), lambda x: [x]])
def test_update_bn_is_that_of_torch(pack):
    found = []
    for lib in (T, torch):
        model = small_model(lib).eval()
        lib.optim.swa_utils.update_bn([pack(x) for x in batches(lib, 3)], model, device="cpu")
        assert not model.training
        assert not model[1].training
        assert model[1].momentum == 0.1
        found.append(states_of(model))
        lib.optim.swa_utils.update_bn([None], lib.nn.Linear(1, 1))  # there is nothing to find
    for name, wanted in found[1].items():
        np.testing.assert_allclose(found[0][name], wanted, rtol=1e-5, atol=1e-6)


TOGETHER = [
    ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "dampening": 0.3, "maximize": True}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True, "betas": (0.3, 0.9)}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.2}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {"betas": (0.3, 0.5)}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"weight_decay": 0.2, "decoupled_weight_decay": True, "betas": (0.4, 0.9)}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"weight_decay": 0.2, "decoupled_weight_decay": True, "betas": (0.4, 0.9)}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 2, "weight_decay": 0.1}),
    ("ASGD", {"maximize": True}),
    ("Adadelta", {"weight_decay": 0.1, "maximize": True}),
    ("Adadelta", {"rho": 0.5, "lr": 0.1}),
    ("Rprop", {"lr": 0.1, "maximize": True}),
    ("Rprop", {"etas": (0.3, 2.0), "step_sizes": (0.01, 0.02)}),
    ("Adagrad", {"lr_decay": 0.5, "weight_decay": 0.1, "initial_accumulator_value": 0.3}),
    ("Adagrad", {"maximize": True}),
    ("RMSprop", {"weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {"momentum": 0.9}),
    ("RMSprop", {"centered": True, "alpha": 0.3}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rule", "options"), TOGETHER)
def test_a_launch_for_all_gives_the_bits_of_one_for_each(rule, options, dtype, monkeypatch):
    """Parameters of all kinds: several chunks, empty, views, turned, shared, without a gradient."""

    def run(together: bool) -> list[bytes]:
        rng = np.random.default_rng(0)

        def normal(*shape: int) -> Any:
            return T.tensor(rng.normal(size=shape), dtype=getattr(T, dtype))

        whole, shared = normal(8, 8), rng.normal(size=9).astype(dtype)
        params = [normal(*shape) for shape in [(3,), (40, 64), (2048,), (2049,), (), (0,)]]
        params += [whole[2:5].detach(), normal(4, 6).t().detach(), T.from_numpy(shared)]
        for p in params:
            p.requires_grad_()
        optimizer = getattr(T.optim, rule)(params, **options)
        if not together:
            monkeypatch.setattr(type(optimizer), "_update_together", lambda *_: False)
        for step in range(8):
            for k, p in enumerate(params):
                p.grad = None if (k + step) % 5 == 0 else normal(*p.shape)
            if params[1].grad is not None:
                params[1].grad = normal(64, 40).t()
            before = params[2].detach().clone(), params[2]._version
            optimizer.step()
            moved = params[2].grad is not None
            assert params[2]._version >= before[1] + moved
            assert (params[2] != before[0]).any().item() == moved
        found = [p.detach().clone().numpy().tobytes() for p in params]
        for state in optimizer.state_dict()["state"].values():
            found += [
                array(state[name]).tobytes() for name in sorted(state) if state[name] is not None
            ]
        return [*found, whole.numpy().tobytes(), shared.tobytes()]

    assert run(True) == run(False)


def test_parameters_that_share_memory_move_one_after_the_other():
    p = T.ones(3, requires_grad=True)
    q = p.detach().requires_grad_()
    p.grad, q.grad = T.ones(3), T.ones(3)
    T.optim.SGD([p, q], lr=0.25).step()
    assert p.tolist() == q.tolist() == [0.5, 0.5, 0.5]


def test_old_values_that_somebody_holds_stay():
    p = T.ones(3, requires_grad=True)
    later = p.detach() * 2
    p.grad = T.ones(3)
    T.optim.SGD([p, T.ones(2, requires_grad=True)], lr=0.5).step()
    assert later.tolist() == [2.0, 2.0, 2.0]
    assert p.tolist() == [0.5, 0.5, 0.5]


def test_a_large_step_does_not_keep_gradients_beside_the_next_ones():
    plan_cache.clear()  # after many sizes a structure has to come more often
    size = 1 << 21  # elements: 8 MiB
    weight = T.zeros(size, requires_grad=True)
    optimizer = T.optim.SGD([weight], lr=0.1, momentum=0.9)

    def step():
        optimizer.zero_grad()
        (weight * weight).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
        plan_cache.wait()
    optimizer.zero_grad()
    scheduling.settle()
    live = T.memory_stats()["live"]
    storage.reset_peak_memory()
    step()
    step()
    assert T.memory_stats()["peak"] - live <= 1.1 * 4 * size


@pytest.mark.parametrize("kernel", [optim_kernels.sgd_step, optim_kernels.adam_step])
def test_many_small_parameters_are_not_worth_a_second_thread(kernel):
    def is_split(shapes):
        specs = [dense_spec(shape, T.float32) for shape in shapes]
        return steps._recipe(kernel, specs, specs, 4).large

    assert not is_split([(64, 32), (32,), (10, 32), (10,)])
    assert not is_split([(8,)] * 500)
    assert is_split([(1024, 128), (8,)])


@pytest.mark.cpu
def test_the_kernel_of_a_step_is_expected_with_the_first_ones(monkeypatch):
    expected = []
    monkeypatch.setattr(steps, "expect", lambda source: expected.append(source.label))
    params = [T.ones(2, requires_grad=True), T.ones(2, dtype=T.float64)]
    T.optim.SGD(params, lr=0.1)
    T.optim.SGD(params, lr=0.1, momentum=0.9)
    T.optim.AdamW(params)
    kinds = ("float32", "float64")
    names = ("sgd_step", "momentum_step", "adam_step")
    assert expected == [f"{name}_{kind}" for name in names for kind in kinds]
