"""SciPy's optimisers and solvers on functions of tensors, with derivatives by backward.

`minimize`, `root`, `least_squares` and `solve_ivp` take and give tensors, lists and dicts of them, or the
parameters of a module, where SciPy has one flat float64 array. Values and derivatives are compiled functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.integrate
import scipy.optimize

from .autograd.api import grad
from .autograd.modes import enable_grad, no_grad
from .captured import compile
from .dtypes import float64
from .nn.module import Module
from .ops.creation import eye, from_numpy, tensor, zeros_like
from .ops.joining import cat
from .tensor import Tensor
from .utils._pytree import tree_flatten, tree_unflatten

__all__ = ["least_squares", "minimize", "root", "solve_ivp"]

Array = np.ndarray[Any, np.dtype[np.float64]]
Func = Callable[..., Any]

# Their stubs know methods as literals, each with forms of its own for all other arguments.
optimize: Any = scipy.optimize
integrate: Any = scipy.integrate

WITHOUT_GRADIENT = frozenset({"nelder-mead", "powell", "cobyla", "cobyqa"})
WITH_PRODUCTS = frozenset({"newton-cg", "trust-ncg", "trust-krylov", "trust-constr"})
WITH_HESSIAN = frozenset({"dogleg", "trust-exact"})
WITH_JACOBIAN = frozenset({"hybr", "lm"})  # of the methods of `root`
STIFF = frozenset({"Radau", "BDF", "LSODA"})
MOST_COMPILED = 32  # rows of a Jacobian that are one plan; more are recorded one by one


# ----- between tensors and SciPy's flat arrays -----


class Layout:
    """The tensors that a flat vector stands for, one behind the other in float64."""

    def __init__(self, x: Any, caller: str, name: str = "x0") -> None:
        self.module = x if isinstance(x, Module) else None
        leaves, self.spec = tree_flatten(x)
        if self.module is not None:
            self.names = [n for n, p in self.module.named_parameters() if p.requires_grad]
            leaves = [p for p in self.module.parameters() if p.requires_grad]
        for leaf in leaves:
            if not isinstance(leaf, Tensor) or not leaf.dtype.is_floating_point:
                told = (
                    f"a tensor of {leaf.dtype}" if isinstance(leaf, Tensor) else type(leaf).__name__
                )
                raise TypeError(
                    f"{caller}(): {name} must be a floating tensor, a list or dict of them, or a module; "
                    f"got {told}"
                )
        if not leaves:
            raise ValueError(f"{caller}(): {name} has no tensors that need gradients")
        self.tensors: list[Tensor] = leaves
        self.is_tensor = self.module is None and isinstance(x, Tensor)
        self.sizes = [leaf.numel() for leaf in leaves]

    def split(self, flat: Tensor) -> list[Tensor]:
        """The parts of a vector as the tensors that they stand for, recorded."""
        parts = flat.split(self.sizes)
        return [
            part.reshape(leaf.shape).to(device=leaf.device, dtype=leaf.dtype)
            for part, leaf in zip(parts, self.tensors, strict=True)
        ]

    def placed(self, flat: Tensor, requires_grad: bool) -> tuple[Any, list[Tensor]]:
        """What a function is called with at a vector, and the leaves that it is differentiated by."""
        with no_grad():
            leaves = self.split(flat)
            if self.module is not None:
                for parameter, value in zip(self.tensors, leaves, strict=True):
                    parameter.copy_(value)
                return self.module, self.tensors
        leaves = [leaf.detach().requires_grad_(requires_grad) for leaf in leaves]
        return leaves[0] if self.is_tensor else tree_unflatten(leaves, self.spec), leaves

    def restored(self, flat: Array) -> Any:
        """A vector of SciPy's in the structure of what it came from; a module is written."""
        return self.placed(from_numpy(np.array(flat, np.float64)), False)[0]


def flattened(values: Any, like: Sequence[Tensor] = ()) -> Tensor:
    """Tensors as one float64 vector on the CPU; None stands for zeros like those of `like`."""
    leaves = values if like else tree_flatten(values)[0]
    filled = [zeros_like(like[at]) if leaf is None else leaf for at, leaf in enumerate(leaves)]
    return cat([leaf.reshape(-1).to(device="cpu", dtype=float64) for leaf in filled])


def as_array(t: Tensor) -> Array:
    """The elements as an array of its own: plans use memory again."""
    return np.array(t.detach().numpy())


class Derivatives:
    """A function of tensors as SciPy calls it, on a flat array, with what backward gives.

    Times and factors come as tensors too, so that other ones are no reason to compile again.
    """

    def __init__(self, function: Func, layout: Layout, caller: str) -> None:
        self.function, self.layout, self.caller = function, layout, caller
        self.count = MOST_COMPILED + 1  # values, once that is known
        self._value = compile(self._record_value)
        self._with_gradient = compile(self._record_gradient)
        self._product = compile(self._record_product)
        self._few_rows = compile(self._record_rows)

    # What is compiled

    def _scalar(self, x: Any) -> Tensor:
        value = self.function(x)
        if not isinstance(value, Tensor) or value.numel() != 1:
            told = (
                f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            )
            raise RuntimeError(
                f"{self.caller}(): fun must return a tensor of one element, got {told}"
            )
        return value.reshape(())

    def _record_value(self, flat: Tensor, *before: Tensor) -> Tensor:
        with no_grad():
            return flattened(self.function(*before, self.layout.placed(flat, False)[0]))

    def _record_gradient(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        with enable_grad():
            x, leaves = self.layout.placed(flat, True)
            value = self._scalar(x)
            slopes = grad(value, leaves, allow_unused=True)
            return value.detach(), flattened(slopes, leaves)

    def _record_product(self, flat: Tensor, v: Tensor, *factors: Tensor) -> Tensor:
        """The Hessian times a vector; of a function of several values, of their sum with factors."""
        with enable_grad():
            x, leaves = self.layout.placed(flat, True)
            value = (flattened(self.function(x)) * factors[0]).sum() if factors else self._scalar(x)
            slopes = grad(value, leaves, create_graph=True, allow_unused=True)
            along = (flattened(slopes, leaves) * v).sum()
            if not along.requires_grad:  # a linear function
                return flattened([None] * len(leaves), leaves)
            return flattened(grad(along, leaves, allow_unused=True), leaves)

    def _record_rows(self, flat: Tensor, *before: Tensor) -> tuple[Tensor, ...]:
        """The Jacobian by rows, or by columns where those are fewer."""
        with enable_grad():
            x, leaves = self.layout.placed(flat, True)
            values = flattened(self.function(*before, x))
            by_rows = values.numel() <= flat.numel()
            if by_rows and values.requires_grad:
                return tuple(
                    flattened(grad(values, leaves, u, retain_graph=True, allow_unused=True), leaves)
                    for u in eye(values.numel(), dtype=float64)
                )
            if values.requires_grad:
                u = zeros_like(values, requires_grad=True)
                slopes = grad(values, leaves, u, create_graph=True, allow_unused=True)
                product = flattened(slopes, leaves)
                if product.requires_grad:
                    return tuple(
                        grad(product, u, v, retain_graph=True)[0]
                        for v in eye(flat.numel(), dtype=float64)
                    )
            shorter, longer = (values, flat) if by_rows else (flat, values)
            return tuple(zeros_like(longer) for _ in range(shorter.numel()))

    # What SciPy calls

    def value(self, flat: Array, *before: Tensor) -> Array:
        """The values, flat."""
        values = as_array(self._value(from_numpy(np.array(flat)), *before))
        self.count = values.size
        return values

    def number(self, flat: Array) -> float:
        """The value of a function that has one."""
        value = self.value(flat)
        if value.size != 1:
            raise RuntimeError(
                f"{self.caller}(): fun must return a tensor of one element, got {value.size}"
            )
        return float(value[0])

    def with_gradient(self, flat: Array) -> tuple[float, Array]:
        """The value and the gradient, by one backward."""
        value, gradient = self._with_gradient(from_numpy(np.array(flat)))
        return float(value), as_array(gradient)

    def product(self, flat: Array, v: Array, *factors: Tensor) -> Array:
        """The Hessian times a vector."""
        direction = from_numpy(np.array(v, np.float64).reshape(-1))
        return as_array(self._product(from_numpy(np.array(flat)), direction, *factors))

    def hessian(self, flat: Array, *factors: Tensor) -> Array:
        """The Hessian, by as many products as it has columns."""
        return np.stack([self.product(flat, v, *factors) for v in np.eye(len(flat))])

    def weighted_hessian(self, flat: Array, factors: Array) -> Array:
        """The Hessian of the sum of values with factors."""
        return self.hessian(flat, from_numpy(np.array(factors, np.float64).reshape(-1)))

    def jacobian(self, flat: Array, *before: Tensor) -> Array:
        """The Jacobian, with a row for each value."""
        is_short = min(self.count, len(flat)) <= MOST_COMPILED
        rows = (self._few_rows if is_short else self._record_rows)(
            from_numpy(np.array(flat)), *before
        )
        made = np.stack([row.detach().numpy() for row in rows])
        return made if made.shape[1] == len(flat) else made.T


# ----- what users hand in beside functions -----


def is_range(value: Any) -> bool:
    """Whether something says between which numbers or tensors a tensor's elements lie."""
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_is_end, value))


def _is_end(value: Any) -> bool:
    return value is None or isinstance(value, (int, float, Tensor))


def flat_bounds(bounds: Any, layout: Layout, caller: str) -> Any:
    """Bounds in the structure of what they bound as SciPy's; SciPy's own forms are left alone."""
    if bounds is None or isinstance(bounds, (scipy.optimize.Bounds, np.ndarray)):
        return bounds
    if layout.module is not None and isinstance(bounds, Mapping):
        if unknown := bounds.keys() - set(layout.names):
            raise ValueError(
                f"{caller}(): bounds for {min(unknown)!r}, which is no parameter of the module"
            )
        ranges = [bounds.get(name) for name in layout.names]
    else:
        ranges, spec = tree_flatten(bounds, lambda value: value is None or is_range(value))
        if spec != layout.spec or layout.module is not None:
            if isinstance(bounds, Mapping):
                raise ValueError(f"{caller}(): bounds must have the structure of x0")
            return bounds
    ends: tuple[list[Array], list[Array]] = ([], [])
    for leaf, pair in zip(layout.tensors, ranges, strict=True):
        for side, end, missing in zip(ends, pair or (None, None), (-np.inf, np.inf), strict=True):
            value = (
                end.detach().cpu().numpy()
                if isinstance(end, Tensor)
                else missing
                if end is None
                else end
            )
            side.append(np.broadcast_to(np.asarray(value, np.float64), leaf.shape).reshape(-1))
    return scipy.optimize.Bounds(np.concatenate(ends[0]), np.concatenate(ends[1]))


def flat_constraints(constraints: Any, layout: Layout, caller: str, with_hessians: bool) -> Any:
    """Constraints whose functions take tensors as ones that SciPy calls, with derivatives."""
    if isinstance(constraints, (Mapping, scipy.optimize.NonlinearConstraint)):
        constraints = [constraints]
    if isinstance(constraints, scipy.optimize.LinearConstraint):
        return constraints
    made: list[Any] = []
    for constraint in constraints:
        if isinstance(constraint, Mapping):
            function = Derivatives(_with_args(constraint), layout, caller)
            made.append(
                {"type": constraint["type"], "fun": function.value, "jac": function.jacobian}
            )
        elif isinstance(constraint, scipy.optimize.NonlinearConstraint):
            function = Derivatives(constraint.fun, layout, caller)
            second = {"hess": function.weighted_hessian} if with_hessians else {}
            made.append(
                optimize.NonlinearConstraint(
                    function.value, constraint.lb, constraint.ub, jac=function.jacobian,
                    keep_feasible=constraint.keep_feasible, **second,
                )
            )  # fmt: skip
        else:
            made.append(constraint)
    return made


def _with_args(constraint: Mapping[str, Any]) -> Func:
    function, args = constraint["fun"], constraint.get("args", ())
    return lambda x: function(x, *args)


def flat_callback(callback: Func | None, layout: Layout) -> Func | None:
    """A callback on tensors as one that SciPy calls; a parameter's name says how, as in SciPy."""
    if callback is None:
        return None
    if set(inspect.signature(callback).parameters) == {"intermediate_result"}:

        def told(*, intermediate_result: Any) -> Any:
            intermediate_result.x = layout.restored(intermediate_result.x)
            return callback(intermediate_result=intermediate_result)

        return told
    return lambda flat, *state: callback(layout.restored(flat), *state)


# ----- the solvers -----


def minimize(
    fun: Func,
    x0: Any,
    method: Any = None,
    *,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Func | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Find where a function of tensors is least, by `scipy.optimize.minimize` with derivatives by backward.

    The value and the gradient are one compiled call. Methods that take more get products of the Hessian with
    vectors (Newton-CG, trust-ncg, trust-krylov, trust-constr) or the Hessian (dogleg, trust-exact).

    Args:
        fun: called as `fun(x)` with `x` like `x0`; gives a tensor of one element.
        x0: where to begin: a floating tensor, nested lists, tuples or dicts of them, or a module. Of a
            module the parameters that need gradients are varied, in place: `fun` is called with the module.
        method: SciPy's name of one, or a function as SciPy takes it; by default BFGS, L-BFGS-B or SLSQP.
        bounds: `(low, high)` in the place of each tensor of `x0`, either of them None, a number or a tensor
            that fits; a dict by names of parameters for modules. SciPy's forms for flat vectors work too.
        constraints: SciPy's dicts and `NonlinearConstraint`s, whose functions take what `fun` takes and give
            tensors; their Jacobians and Hessians are found by backward. `LinearConstraint`s are about the
            flat vector.
        tol: when to stop.
        callback: called after each iteration with `x`, or by the name `intermediate_result`, as in SciPy.
        options: the method's.

    Returns:
        SciPy's `OptimizeResult`, whose `x` is like `x0`: tensors of the same dtypes, shapes and devices, or
        the module with the parameters found. All else in it is flat, in float64.

    Raises:
        TypeError: `x0` holds something that is no floating tensor.
        ValueError: `x0` holds no tensor; bounds for something that is not in it.
        RuntimeError: `fun` gives something else than one element, or nothing that depends on tensors.

    Example:
        >>> def rosenbrock(x):
        ...     return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
        >>> adjit.scipy.minimize(rosenbrock, adjit.zeros(3), method="trust-ncg").x
        tensor([1.0000, 1.0000, 1.0000])
        >>> start = {"a": adjit.tensor(2.0), "b": adjit.tensor([1.0, -1.0])}
        >>> found = adjit.scipy.minimize(
        ...     lambda p: (p["a"] * p["b"] - 3).square().sum(), start, bounds={"a": (0, 1), "b": (None, 2)})
        >>> found.x["b"]
        tensor([2., 2.])
    """
    layout = Layout(x0, "minimize")
    function = Derivatives(fun, layout, "minimize")
    name = method.lower() if isinstance(method, str) else method
    told: dict[str, Any] = {}
    if name not in WITHOUT_GRADIENT:
        told["jac"] = True
    if name in WITH_PRODUCTS:
        told["hessp"] = function.product
    if name in WITH_HESSIAN:
        told["hess"] = function.hessian
    result = optimize.minimize(
        function.number if name in WITHOUT_GRADIENT else function.with_gradient,
        as_array(flattened(layout.tensors)), method=method,
        bounds=flat_bounds(bounds, layout, "minimize"),
        constraints=flat_constraints(constraints, layout, "minimize", name == "trust-constr"),
        tol=tol, callback=flat_callback(callback, layout), options=options, **told,
    )  # fmt: skip
    result.x = layout.restored(result.x)
    return result


def root(
    fun: Func,
    x0: Any,
    method: str = "hybr",
    *,
    tol: float | None = None,
    callback: Func | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Find where a function of tensors is zero, by `scipy.optimize.root` with the Jacobian by backward.

    Args:
        fun: called as `fun(x)` with `x` like `x0`; gives as many elements as `x` has, in one tensor or several.
        x0: where to begin, as for `minimize`.
        method: SciPy's name of one; "hybr" and "lm" use the Jacobian.
        tol: when to stop.
        callback: called after each iteration with `x` and the residual, which is flat, by methods that do.
        options: the method's.

    Returns:
        SciPy's `OptimizeResult`, whose `x` is like `x0`.

    Raises:
        TypeError: `x0` holds something that is no floating tensor; `fun` gives another number of elements.
        ValueError: `x0` holds no tensor.

    Example:
        >>> adjit.scipy.root(lambda x: x ** 2 - adjit.tensor([4.0, 9.0]), adjit.ones(2)).x
        tensor([2., 3.])
    """
    layout = Layout(x0, "root")
    function = Derivatives(fun, layout, "root")
    told: dict[str, Any] = {"jac": function.jacobian} if method in WITH_JACOBIAN else {}
    if callback is not None:
        told["callback"] = flat_callback(callback, layout)
    result = optimize.root(
        function.value, as_array(flattened(layout.tensors)), method=method, tol=tol,
        options=options, **told,
    )  # fmt: skip
    result.x = layout.restored(result.x)
    return result


def least_squares(
    fun: Func, x0: Any, *, bounds: Any = None, method: str = "trf", **options: Any
) -> Any:
    """Find where a sum of squares is least, by `scipy.optimize.least_squares` with the Jacobian by backward.

    Args:
        fun: called as `fun(x)` with `x` like `x0`; gives the residuals, in one tensor or several.
        x0: where to begin, as for `minimize`.
        bounds: as for `minimize`.
        method: "trf", "dogbox" or "lm".
        **options: the others of SciPy's function (`loss`, `ftol`, `x_scale`, `max_nfev`, …).

    Returns:
        SciPy's `OptimizeResult`, whose `x` is like `x0`; its `fun` and `jac` are arrays.

    Raises:
        TypeError: `x0` holds something that is no floating tensor.
        ValueError: `x0` holds no tensor, or lies outside of the bounds.

    Example:
        >>> t = adjit.linspace(0, 1, 20)
        >>> y = 3 * (-2 * t).exp()
        >>> fit = adjit.scipy.least_squares(
        ...     lambda p: p["size"] * (p["rate"] * t).exp() - y,
        ...     {"size": adjit.tensor(1.0), "rate": adjit.tensor(0.0)})
        >>> fit.x["rate"].round(decimals=3)
        tensor(-2.)
    """
    layout = Layout(x0, "least_squares")
    function = Derivatives(fun, layout, "least_squares")
    if bounds is not None:
        options["bounds"] = flat_bounds(bounds, layout, "least_squares")
    result = optimize.least_squares(
        function.value, as_array(flattened(layout.tensors)), jac=function.jacobian,
        method=method, **options,
    )  # fmt: skip
    result.x = layout.restored(result.x)
    return result


def solve_ivp(
    fun: Func, t_span: tuple[float, float], y0: Any, method: Any = "RK45", **options: Any
) -> Any:
    """Solve an initial value problem dy/dt = fun(t, y) by `scipy.integrate.solve_ivp`.

    Stiff methods (Radau, BDF, LSODA) get the Jacobian by backward. The solution itself has no gradients.

    Args:
        fun: called as `fun(t, y)` with a float64 tensor of no dimensions and `y` like `y0`; gives the
            derivative, in tensors of the same shapes in the same order.
        t_span: from when to when.
        y0: the values at the beginning: a floating tensor, or nested lists, tuples or dicts of them.
        method: SciPy's name of one, or its class.
        **options: the others of SciPy's function (`t_eval`, `rtol`, `max_step`, …). `events` and `dense_output`
            are about flat arrays.

    Returns:
        SciPy's result, where `t` is a float64 tensor of the times, and `y` is like `y0`, each tensor with a
        last dimension for the times.

    Raises:
        TypeError: `y0` holds something that is no floating tensor.
        ValueError: `y0` holds no tensor.

    Example:
        >>> decay = adjit.scipy.solve_ivp(
        ...     lambda t, y: -1000 * (y - t.cos()), (0, 1), adjit.tensor([0.0]), "Radau", t_eval=[0, 1])
        >>> decay.y
        tensor([[0.0000, 0.5411]])
    """
    layout = Layout(y0, "solve_ivp", "y0")
    function = Derivatives(fun, layout, "solve_ivp")
    if method in STIFF:
        options["jac"] = lambda t, y: function.jacobian(y, scalar_of(t))
    result = integrate.solve_ivp(
        lambda t, y: function.value(y, scalar_of(t)), t_span, as_array(flattened(layout.tensors)),
        method, **options,
    )  # fmt: skip
    result.t = from_numpy(result.t)
    parts = np.split(result.y, np.cumsum(layout.sizes)[:-1])
    leaves = [
        tensor(part.reshape((*leaf.shape, -1)), dtype=leaf.dtype, device=leaf.device)
        for part, leaf in zip(parts, layout.tensors, strict=True)
    ]
    result.y = tree_unflatten(leaves, layout.spec)
    return result


def scalar_of(value: float) -> Tensor:
    """A number as a tensor."""
    return tensor(float(value), dtype=float64)
