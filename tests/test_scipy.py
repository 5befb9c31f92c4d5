"""SciPy's solvers on tensors: beside SciPy on arrays with derivatives written by hand."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize

import adjit
from adjit import nn
from adjit.scipy import Derivatives, Layout

BY_GRADIENT = ["CG", "BFGS", "L-BFGS-B", "TNC", "SLSQP"]
BY_HESSIAN = ["Newton-CG", "trust-ncg", "trust-krylov", "trust-exact"]
START = [0.5, 0.8, 1.2, 0.9]


def rosenbrock(x: adjit.Tensor) -> adjit.Tensor:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def float64(values: Any) -> adjit.Tensor:
    return adjit.tensor(values, dtype=adjit.float64)


@pytest.mark.parametrize("method", [*BY_GRADIENT, *BY_HESSIAN])
def test_methods_take_the_same_path_as_with_derivatives_written_by_hand(method: str) -> None:
    told: dict[str, Any] = {"jac": optimize.rosen_der}
    if method in ("Newton-CG", "trust-ncg", "trust-krylov"):
        told["hessp"] = optimize.rosen_hess_prod
    if method == "trust-exact":
        told["hess"] = optimize.rosen_hess
    wanted = optimize.minimize(optimize.rosen, START, method=method, **told)
    found = adjit.scipy.minimize(rosenbrock, float64(START), method)
    assert found.x.dtype is adjit.float64
    assert found.success == wanted.success
    assert found.nit == pytest.approx(wanted.nit, abs=2)
    np.testing.assert_allclose(found.x, wanted.x, rtol=1e-4)
    np.testing.assert_allclose(found.x, np.ones(4), rtol=1e-3)


@pytest.mark.parametrize("method", ["Nelder-Mead", "Powell", "COBYLA"])
def test_methods_without_gradients_get_values_only(method: str) -> None:
    found = adjit.scipy.minimize(lambda x: (x - 2).square().sum(), adjit.zeros(2), method, tol=1e-6)
    np.testing.assert_allclose(found.x, [2, 2], rtol=1e-3)


def test_dogleg_gets_the_hessian() -> None:
    wanted = optimize.minimize(
        lambda x: float(np.sum(np.cosh(x - 1))), np.zeros(2), method="dogleg",
        jac=lambda x: np.sinh(x - 1), hess=lambda x: np.diag(np.cosh(x - 1)),
    )  # fmt: skip
    found = adjit.scipy.minimize(lambda x: (x - 1).cosh().sum(), float64([0.0, 0.0]), "dogleg")
    assert (found.nit, found.nhev) == (wanted.nit, wanted.nhev)
    np.testing.assert_allclose(found.x, wanted.x, rtol=1e-10)


def test_derivatives_are_those_of_the_function() -> None:
    function = Derivatives(rosenbrock, Layout(float64(START), "minimize"), "minimize")
    for at in (np.array(START), np.array([1.0, -0.3, 2.0, 0.1]), np.array([0.2, 0.1, -2.0, 0.7])):
        value, gradient = function.with_gradient(at)
        assert value == pytest.approx(optimize.rosen(at), rel=1e-12)
        np.testing.assert_allclose(gradient, optimize.rosen_der(at), rtol=1e-10)
        v = np.array([0.3, -1.0, 2.0, 0.5])
        np.testing.assert_allclose(
            function.product(at, v), optimize.rosen_hess_prod(at, v), rtol=1e-10
        )
        np.testing.assert_allclose(
            function.hessian(at), optimize.rosen_hess(at), rtol=1e-10, atol=1e-9
        )


@pytest.mark.parametrize(("rows", "columns"), [(2, 5), (5, 2), (3, 3), (40, 35), (1, 3)])
@pytest.mark.parametrize("is_linear", [False, True])
def test_jacobians_by_rows_and_by_columns(rows: int, columns: int, is_linear: bool) -> None:
    m = np.random.default_rng(0).normal(size=(rows, columns))
    matrix = float64(m)
    x = np.linspace(-1, 1, columns)
    function = Derivatives(
        lambda t: matrix @ t if is_linear else (matrix @ t).sin(),
        Layout(float64(x), "root"),
        "root",
    )
    for at in (x, x + 0.5, x * 2):
        np.testing.assert_allclose(function.value(at), m @ at if is_linear else np.sin(m @ at))
        wanted = m if is_linear else np.cos(m @ at)[:, None] * m
        np.testing.assert_allclose(function.jacobian(at), wanted, rtol=1e-9, atol=1e-12)


def test_jacobians_of_what_does_not_depend_on_everything_have_zeros() -> None:
    layout = Layout([float64([1.0, 2.0]), float64([3.0])], "root")
    for count in (1, 5):
        function = Derivatives(lambda x, n=count: adjit.ones(n) * x[1], layout, "root")
        wanted = np.zeros((count, 3))
        wanted[:, 2] = 1
        np.testing.assert_array_equal(function.jacobian(np.array([1.0, 2.0, 3.0])), wanted)
        constant = Derivatives(lambda x, n=count: adjit.ones(n), layout, "root")
        np.testing.assert_array_equal(constant.jacobian(np.ones(3)), np.zeros((count, 3)))
        other = adjit.ones(count, requires_grad=True)
        closed = Derivatives(lambda x, o=other: o * 2, layout, "root")
        np.testing.assert_array_equal(closed.jacobian(np.ones(3)), np.zeros((count, 3)))
    linear = Derivatives(lambda x: x[0].sum(), layout, "minimize")
    np.testing.assert_array_equal(linear.product(np.ones(3), np.ones(3)), np.zeros(3))
    np.testing.assert_array_equal(linear.with_gradient(np.ones(3))[1], [1, 1, 0])


# ----- structures -----


def test_structures_dtypes_and_shapes_are_kept() -> None:
    start = {"a": adjit.zeros(2, 3), "rest": [float64(0.0), (adjit.zeros(1),)]}

    def distance(x: Any) -> adjit.Tensor:
        return (
            (x["a"] - 1).square().sum()
            + (x["rest"][0] - 2) ** 2
            + (x["rest"][1][0] - 3).square().sum()
        )

    found = adjit.scipy.minimize(distance, start)
    assert list(found.x) == ["a", "rest"]
    a, (b, (c,)) = found.x["a"], found.x["rest"]
    assert (a.dtype, b.dtype, c.dtype) == (adjit.float32, adjit.float64, adjit.float32)
    assert not a.requires_grad
    np.testing.assert_allclose(a, np.ones((2, 3)), rtol=1e-5)
    np.testing.assert_allclose([b, c[0]], [2, 3], rtol=1e-5)
    np.testing.assert_array_equal(start["a"], np.zeros((2, 3)))


def test_modules_are_fitted_in_place_and_frozen_parameters_stay() -> None:
    adjit.manual_seed(0)
    x = adjit.randn(40, 3)
    y = x @ adjit.tensor([[1.0], [-2.0], [0.5]]) + 0.25
    model = nn.Linear(3, 1)
    found = adjit.scipy.minimize(lambda m: nn.functional.mse_loss(m(x), y), model, "L-BFGS-B")
    assert found.x is model
    np.testing.assert_allclose(model.weight.detach(), [[1, -2, 0.5]], atol=1e-2)
    np.testing.assert_allclose(model.bias.detach(), [0.25], atol=1e-2)
    assert model.weight.requires_grad
    assert model.weight.grad is None

    frozen = nn.Linear(3, 1)
    frozen.weight.requires_grad_(False)
    before = frozen.weight.clone()
    adjit.scipy.minimize(
        lambda m: nn.functional.mse_loss(m(x), y), frozen, bounds={"bias": (None, 0.1)}
    )
    np.testing.assert_array_equal(frozen.weight, before)
    assert frozen.bias.item() <= 0.1 + 1e-6
    with pytest.raises(ValueError, match="'scale', which is no parameter"):
        adjit.scipy.minimize(lambda m: m.bias.sum(), frozen, bounds={"scale": (0, 1)})


@pytest.mark.parametrize(
    "bounds",
    [
        (0, 1.5),
        (None, adjit.tensor([1.5, 1.5])),
        [(0, 1.5), (None, 1.5)],
        optimize.Bounds(0, 1.5),
        np.array([[0, 1.5], [0, 1.5]]),
    ],
)
def test_bounds_come_in_several_forms(bounds: Any) -> None:
    target = adjit.tensor([1.0, 3.0])
    found = adjit.scipy.minimize(
        lambda x: (x - target).square().sum(), adjit.zeros(2), bounds=bounds
    )
    np.testing.assert_allclose(found.x, [1, 1.5], rtol=1e-5)


def test_bounds_by_structure() -> None:
    start = {"a": adjit.zeros(2), "b": adjit.zeros(())}
    found = adjit.scipy.minimize(
        lambda x: (x["a"] - 3).square().sum() + (x["b"] + 2) ** 2,
        start,
        bounds={"a": (None, adjit.tensor([1.0, 5.0])), "b": None},
    )
    np.testing.assert_allclose(found.x["a"], [1, 3], rtol=1e-5)
    np.testing.assert_allclose(found.x["b"], -2, rtol=1e-5)
    with pytest.raises(ValueError, match="structure of x0"):
        adjit.scipy.minimize(lambda x: x["a"].sum(), start, bounds={"a": (0, 1)})


# ----- constraints and callbacks -----


@pytest.mark.parametrize("method", ["SLSQP", "trust-constr"])
@pytest.mark.parametrize("form", ["dict", "object", "linear"])
def test_constraints_on_tensors(method: str, form: str) -> None:
    constraint: Any = {
        "dict": {"type": "ineq", "fun": lambda x, most: most - x.square().sum(), "args": (2.0,)},
        "object": optimize.NonlinearConstraint(lambda x: x.square().sum(), -np.inf, 2.0),
        "linear": [optimize.LinearConstraint([[1, 1]], -np.inf, 2)],
    }[form]
    found = adjit.scipy.minimize(
        lambda x: -(x[0] + x[1]) + 0.1 * (x[0] - x[1]) ** 2,
        float64([0.3, 0.4]), method, constraints=constraint,
    )  # fmt: skip
    np.testing.assert_allclose(found.x, [1, 1], rtol=5e-3)


def test_callbacks_get_tensors_and_stop() -> None:
    seen: list[Any] = []
    adjit.scipy.minimize(rosenbrock, float64(START), "BFGS", callback=lambda x: seen.append(x))
    assert all(isinstance(x, adjit.Tensor) and x.shape == (4,) for x in seen)
    assert len({tuple(x.tolist()) for x in seen}) == len(seen) > 3

    def stop(intermediate_result: Any) -> None:
        assert isinstance(intermediate_result.x, adjit.Tensor)
        if intermediate_result.fun < 1:
            raise StopIteration

    found = adjit.scipy.minimize(rosenbrock, float64(START), "BFGS", callback=stop)
    assert found.fun < 1
    assert not found.success


# ----- the other solvers -----


@pytest.mark.parametrize("method", ["hybr", "lm", "krylov", "broyden1"])
def test_roots(method: str) -> None:
    start = {"x": float64([0.8, 0.9]), "y": float64(0.5)}
    found = adjit.scipy.root(
        lambda p: [p["x"] + 0.1 * p["y"] - 1, 0.1 * p["x"].sum() + p["y"] ** 3 - 0.3], start, method
    )
    assert found.success
    np.testing.assert_allclose(found.x["x"] + 0.1 * found.x["y"], [1, 1], rtol=1e-5)


def test_roots_use_the_jacobian() -> None:
    calls = []

    def equations(x: adjit.Tensor) -> adjit.Tensor:
        return adjit.stack([x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1, 0.5 * (x[1] - x[0]) ** 3 + x[1]])

    found = adjit.scipy.root(equations, float64([0.0, 0.0]), callback=None)
    wanted = optimize.root(
        lambda x: [x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1, 0.5 * (x[1] - x[0]) ** 3 + x[1]], [0, 0]
    )
    assert found.njev == 1
    np.testing.assert_allclose(found.x, wanted.x, rtol=1e-8)
    adjit.scipy.root(
        equations, float64([0.0, 0.0]), "krylov", callback=lambda x, f: calls.append((x, f))
    )
    assert isinstance(calls[0][0], adjit.Tensor)


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
def test_least_squares_beside_scipy(method: str) -> None:
    t = np.linspace(0, 2, 30)
    y = 3 * np.exp(-1.5 * t) + 0.01 * np.sin(40 * t)
    wanted = optimize.least_squares(
        lambda p: p[0] * np.exp(p[1] * t) - y, [1.0, 0.0], method=method,
        jac=lambda p: np.stack([np.exp(p[1] * t), p[0] * t * np.exp(p[1] * t)], 1),
    )  # fmt: skip
    times, values = float64(t), float64(y)
    found = adjit.scipy.least_squares(
        lambda p: p[0] * (p[1] * times).exp() - values, [float64(1.0), float64(0.0)], method=method
    )
    assert found.nfev == wanted.nfev
    np.testing.assert_allclose([float(p) for p in found.x], wanted.x, rtol=1e-8)
    np.testing.assert_allclose(found.jac, wanted.jac, rtol=1e-6)


def test_least_squares_take_bounds_and_options() -> None:
    found = adjit.scipy.least_squares(
        lambda p: p["a"] - 3,
        {"a": adjit.zeros(2)},
        bounds={"a": (None, 2)},
        loss="soft_l1",
        max_nfev=50,
    )
    np.testing.assert_allclose(found.x["a"], [2, 2], rtol=1e-4)


@pytest.mark.parametrize("method", ["RK45", "DOP853", "Radau", "BDF", "LSODA"])
def test_initial_value_problems_beside_scipy(method: str) -> None:
    rate = 30.0

    def jacobian(t: float, y: Any) -> Any:
        return np.array([[0, 1], [-2 * rate * y[0] * y[1] - 1, rate * (1 - y[0] ** 2)]])

    told: dict[str, Any] = {"jac": jacobian} if method in ("Radau", "BDF", "LSODA") else {}
    t_eval = np.linspace(0, 2, 5)
    wanted = integrate.solve_ivp(
        lambda t, y: [y[1], rate * (1 - y[0] ** 2) * y[1] - y[0]], (0, 2), [2.0, 0.0], method,
        t_eval=t_eval, **told,
    )  # fmt: skip
    found = adjit.scipy.solve_ivp(
        lambda t, y: {"x": y["v"], "v": rate * (1 - y["x"] ** 2) * y["v"] - y["x"]},
        (0, 2), {"x": float64([2.0]), "v": float64([0.0])}, method, t_eval=t_eval,
    )  # fmt: skip
    assert found.nfev == wanted.nfev
    assert found.njev == wanted.njev
    np.testing.assert_array_equal(found.t, wanted.t)
    np.testing.assert_allclose(found.y["x"], wanted.y[:1], rtol=1e-7)
    np.testing.assert_allclose(found.y["v"], wanted.y[1:], rtol=1e-6, atol=1e-9)


def test_times_reach_the_right_hand_side_and_its_jacobian() -> None:
    found = adjit.scipy.solve_ivp(
        lambda t, y: -100 * t * (y - t.cos()),
        (0, 1),
        adjit.zeros(2, 2),
        "BDF",
        rtol=1e-8,
        atol=1e-10,
    )
    wanted = integrate.solve_ivp(
        lambda t, y: -100 * t * (y - np.cos(t)), (0, 1), [0.0], rtol=1e-8, atol=1e-10
    )
    assert found.y.shape == (2, 2, len(found.t))
    assert found.y.dtype is adjit.float32
    np.testing.assert_allclose(found.y[1, 0, -1], wanted.y[0, -1], rtol=1e-6)


# ----- errors -----


BAD = [
    (
        lambda s: s.minimize(rosenbrock, [1.0, 2.0]),
        TypeError,
        r"minimize\(\): x0 must be .* got float",
    ),
    (lambda s: s.minimize(rosenbrock, adjit.tensor([1])), TypeError, r"a tensor of adjit\.int64"),
    (lambda s: s.solve_ivp(rosenbrock, (0, 1), 1.0), TypeError, r"solve_ivp\(\): y0 must be"),
    (lambda s: s.minimize(rosenbrock, []), ValueError, "x0 has no tensors"),
    (
        lambda s: s.minimize(lambda x: x, adjit.ones(2)),
        RuntimeError,
        r"one element, got shape \(2,\)",
    ),
    (lambda s: s.minimize(lambda x: 1.0, adjit.ones(2)), RuntimeError, "one element, got float"),
    (
        lambda s: s.minimize(lambda x: x, adjit.ones(2), "Powell"),
        RuntimeError,
        "one element, got 2",
    ),
    (
        lambda s: s.minimize(lambda x: adjit.ones(()), adjit.ones(2)),
        RuntimeError,
        "does not require grad",
    ),
    (
        lambda s: s.minimize(rosenbrock, adjit.ones(2), "newton"),
        ValueError,
        "Unknown solver newton",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_errors_say_what_is_expected(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(adjit.scipy)


def test_gradient_mode_outside_does_not_matter() -> None:
    with adjit.no_grad():
        found = adjit.scipy.minimize(lambda x: (x - 1).square().sum(), adjit.zeros(2))
    np.testing.assert_allclose(found.x, [1, 1], rtol=1e-6)


def test_it_is_loaded_at_its_first_use() -> None:
    code = "import adjit, sys; assert 'scipy.optimize' not in sys.modules; adjit.scipy.minimize"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
