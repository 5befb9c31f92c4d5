"""L-BFGS."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from ..autograd.modes import enable_grad, no_grad
from ..ops.joining import cat
from ..tensor import Tensor
from .optimizer import Closure, Optimizer, ParamsT, check_learning_rate


class LBFGS(Optimizer):
    """L-BFGS: steps along an estimate of Newton's direction, made of the last changes of gradients.

    Liu and Nocedal, *On the limited memory BFGS method for large scale optimization*,
    Mathematical Programming 45, 1989; the line search is Algorithm 3.5 of Nocedal and Wright,
    *Numerical Optimization*. All parameters are one group, on one device. Values steer the
    search, so each evaluation is looked at: a step cannot be captured by `adjit.compile`.

    Args:
        params: tensors or `(name, tensor)` pairs.
        lr: the length of a step, in directions; the first guess of a line search.
        max_iter: the most directions a step takes.
        max_eval: the most evaluations a step takes; None is `max_iter * 1.25`.
        tolerance_grad: stop where no element of the gradient is larger.
        tolerance_change: stop where a parameter or the loss changes by less.
        history_size: how many changes are kept.
        line_search_fn: `"strong_wolfe"`, or None for steps of fixed length.

    Raises:
        ValueError: `lr` is not one number of at least zero, or there are several groups.
        RuntimeError: another name of a line search, at the step.

    Example:
        >>> w = adjit.tensor([-1.2, 1.0], requires_grad=True)
        >>> optimizer = adjit.optim.LBFGS([w], max_iter=50, line_search_fn="strong_wolfe")
        >>> def rosenbrock():
        ...     optimizer.zero_grad()
        ...     loss = (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2
        ...     loss.backward()
        ...     return loss
        >>> start = optimizer.step(rosenbrock)
        >>> w.detach().round(decimals=3)
        tensor([1., 1.])
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_learning_rate(lr)
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Take up to `max_iter` directions.

        Args:
            closure: clears the gradients, evaluates the model, calls `backward` and returns the
                loss. It is called up to `max_eval` times, and must be given.

        Returns:
            What the closure returned at the start.

        Raises:
            TypeError: no closure.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.LBFGS([w])
            >>> def closure():
            ...     optimizer.zero_grad()
            ...     loss = w.square().sum()
            ...     loss.backward()
            ...     return loss
            >>> float(optimizer.step(closure))
            5.0
        """
        if closure is None:
            raise TypeError("LBFGS.step() missing 1 required positional argument: 'closure'")
        evaluate = enable_grad()(closure)
        (group,) = self.param_groups
        params: list[Tensor] = group["params"]
        lr, max_iter, max_eval = float(group["lr"]), group["max_iter"], group["max_eval"]
        tolerance_change = group["tolerance_change"]
        # The state of all parameters is that of the first one, so that loading casts it.
        state = self.state[params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        start = evaluate()
        loss, gradient = _number(start), _flat_gradient(params)
        evaluations = 1
        state["func_evals"] += 1

        def is_flat() -> bool:
            return bool(gradient.abs().max() <= group["tolerance_grad"])

        if is_flat():
            return start
        memory = _Memory.of(state)
        iterations = 0
        while iterations < max_iter:
            iterations += 1
            state["n_iter"] += 1
            memory.turn(gradient, state, group["history_size"])
            memory.previous_loss = loss
            direction = memory.direction
            is_first = state["n_iter"] == 1
            length = min(1.0, 1.0 / gradient.abs().sum().item()) * lr if is_first else lr
            memory.length = length
            slope = gradient.dot(direction).item()
            if slope > -tolerance_change:
                break

            searched = 0
            if group["line_search_fn"] is not None:
                if group["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")

                def look(length: float, direction: Tensor = direction) -> _Point:
                    return _look(evaluate, params, direction, length)

                here = _Point(0.0, loss, gradient, slope)
                there, searched = _search(
                    look, here, length, direction.abs().max().item(), max_eval - evaluations
                )
                loss, gradient, memory.length = there.loss, there.gradient, there.length
                _move(params, direction, memory.length)
                flat = is_flat()
            else:
                _move(params, direction, length)
                flat = False
                if iterations != max_iter:
                    loss, gradient = _number(evaluate()), _flat_gradient(params)
                    flat = is_flat()
                    searched = 1
            evaluations += searched
            state["func_evals"] += searched

            if iterations == max_iter or evaluations >= max_eval or flat:
                break
            if (direction * memory.length).abs().max().item() <= tolerance_change:
                break
            if abs(loss - memory.previous_loss) < tolerance_change:
                break
        memory.keep(state)
        return start


class _Memory:
    """What is known of the curvature: the last direction, changes of parameters and of gradients."""

    direction: Tensor
    length: float
    changes: list[Tensor]  # of gradients
    steps: list[Tensor]
    inverse: list[float]  # of products of both
    scale: float
    previous: Tensor
    previous_loss: float

    _names: ClassVar = {
        "d": "direction", "t": "length", "old_dirs": "changes", "old_stps": "steps",
        "ro": "inverse", "H_diag": "scale", "prev_flat_grad": "previous",
        "prev_loss": "previous_loss",
    }  # fmt: skip

    @classmethod
    def of(cls, state: dict[str, Any]) -> _Memory:
        """What a state holds, in numbers where PyTorch's may be tensors."""
        memory = cls()
        if state.get("d") is not None:
            for key, name in cls._names.items():
                setattr(memory, name, state[key])
            memory.length, memory.scale = float(state["t"]), float(state["H_diag"])
            memory.inverse = [float(one) for one in state["ro"]]
            memory.changes, memory.steps = [*memory.changes], [*memory.steps]
        return memory

    def keep(self, state: dict[str, Any]) -> None:
        """Put all into the state, under PyTorch's names."""
        state.update({key: getattr(self, name) for key, name in self._names.items()})

    def turn(self, gradient: Tensor, state: dict[str, Any], size: int) -> None:
        """Take in a gradient, and find the direction there."""
        if state["n_iter"] == 1:
            self.direction = -gradient
            self.changes, self.steps, self.inverse, self.scale = [], [], [], 1.0
        else:
            change, step = gradient - self.previous, self.direction * self.length
            product = change.dot(step).item()
            if product > 1e-10:
                if len(self.changes) == size:
                    for kept in (self.changes, self.steps, self.inverse):
                        kept.pop(0)
                self.changes.append(change)
                self.steps.append(step)
                self.inverse.append(1.0 / product)
                self.scale = product / change.dot(change).item()
            self.direction = self._newton(gradient)
        self.previous = gradient

    def _newton(self, gradient: Tensor) -> Tensor:
        """Minus the estimated inverse Hessian times the gradient, by two loops over what is kept."""
        known = list(zip(self.changes, self.steps, self.inverse, strict=True))
        shares = []
        d = -gradient
        for change, step, inverse in reversed(known):
            share = step.dot(d) * inverse
            d = d - change * share
            shares.append(share)
        d = d * self.scale
        for (change, step, inverse), share in zip(known, reversed(shares), strict=True):
            d = d + step * (share - change.dot(d) * inverse)
        return d


class _Point(NamedTuple):
    """A place on a line: how far along, the loss there, its gradient, its slope along the line."""

    length: float
    loss: float
    gradient: Tensor
    slope: float


def _number(loss: Any) -> float:
    return loss.item() if isinstance(loss, Tensor) else float(loss)


def _flat_gradient(params: list[Tensor]) -> Tensor:
    """The gradients of all parameters as one vector."""
    grads = [(p.new_zeros(p.shape) if p.grad is None else p.grad).reshape(-1) for p in params]
    return cat(grads).detach()


def _move(params: list[Tensor], direction: Tensor, length: float) -> None:
    """Move the parameters along a direction."""
    parts = direction.split([p.numel() for p in params])
    for param, part in zip(params, parts, strict=True):
        param.add_(part.view_as(param), alpha=length)


def _look(evaluate: Closure, params: list[Tensor], direction: Tensor, length: float) -> _Point:
    """Evaluate at a point of a line; the parameters stay where they are, whatever happens."""
    before = [p.clone() for p in params]
    try:
        _move(params, direction, length)
        loss, gradient = _number(evaluate()), _flat_gradient(params)
    finally:
        for param, value in zip(params, before, strict=True):
            param.copy_(value)
    return _Point(length, loss, gradient, gradient.dot(direction).item())


def _search(
    look: Callable[[float], _Point], here: _Point, length: float, largest: float, most: int,
    decrease: float = 1e-4, curvature: float = 0.9, tolerance: float = 1e-9,
) -> tuple[_Point, int]:  # fmt: skip
    """A point along a line where the loss is low and its slope is flat enough, and how many were looked
    at. `largest` is the largest element of the direction, `most` how many looks there may be after
    the first.
    """

    def is_high(point: _Point) -> bool:
        return point.loss > here.loss + decrease * point.length * here.slope

    def is_flat(point: _Point) -> bool:
        return abs(point.slope) <= -curvature * here.slope

    before, now = here, look(length)
    looks = 0
    ends: list[_Point] | None = None
    while looks < most:
        if is_high(now) or (looks > 1 and now.loss >= before.loss):
            ends = [before, now]
            break
        if is_flat(now):
            return now, looks + 1
        if now.slope >= 0:
            ends = [before, now]
            break
        bounds = (now.length + 0.01 * (now.length - before.length), now.length * 10)
        before, now = now, look(_minimum_of_cubic(before, now, bounds))
        looks += 1
    if ends is None:
        ends = [here, now]

    is_stuck = False
    low, high = _order(ends)
    while looks < most:
        near, far = sorted(end.length for end in ends)
        if (far - near) * largest < tolerance:
            break
        length = _minimum_of_cubic(ends[0], ends[1], (near, far))
        margin = 0.1 * (far - near)
        if min(far - length, length - near) < margin:
            if is_stuck or length >= far or length <= near:  # twice at a border: go into the middle
                is_far = abs(length - far) < abs(length - near)
                length = far - margin if is_far else near + margin
                is_stuck = False
            else:
                is_stuck = True
        else:
            is_stuck = False
        now = look(length)
        looks += 1
        if is_high(now) or now.loss >= ends[low].loss:
            ends[high] = now
            low, high = _order(ends)
            continue
        done = is_flat(now)
        if not done and now.slope * (ends[high].length - ends[low].length) >= 0:
            ends[high] = ends[low]
        ends[low] = now
        if done:
            break
    return ends[low], looks + 1


def _order(ends: list[_Point]) -> tuple[int, int]:
    """Which of two points is lower, and which is higher."""
    return (0, 1) if ends[0].loss <= ends[1].loss else (1, 0)


def _minimum_of_cubic(a: _Point, b: _Point, bounds: tuple[float, float]) -> float:
    """Where the cubic through two points, with their slopes, is least; within bounds."""
    return _least_of_cubic(a.length, a.loss, a.slope, b.length, b.loss, b.slope, bounds)


def _least_of_cubic(
    x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, bounds: tuple[float, float]
) -> float:
    if x1 > x2:
        x1, f1, g1, x2, f2, g2 = x2, f2, g2, x1, f1, g1
    nearest, farthest = bounds
    # Two points at one place have no cubic: the quotient is NaN or infinite, as PyTorch's in tensors.
    between = x1 - x2
    mean = math.nan if between == 0 else g1 + g2 - 3 * (f1 - f2) / between
    square = mean * mean - g1 * g2
    if not square >= 0:
        return (nearest + farthest) / 2.0
    root = math.sqrt(square)
    below = g2 - g1 + 2 * root
    if below == 0:
        return (nearest + farthest) / 2.0
    least = x2 - (x2 - x1) * ((g2 + root - mean) / below)
    return min(max(least, nearest), farthest)


# ---------------------------------------------------------------- PyTorch's names for the parts

# Programs with line searches of their own import them.


def _strong_wolfe(
    obj_func: Callable[[Any, float, Tensor], tuple[Any, Tensor]], x: Any, t: Any, d: Tensor, f: Any, g: Tensor,
    gtd: Any, c1: float = 1e-4, c2: float = 0.9, tolerance_change: float = 1e-9, max_ls: int = 25,
) -> tuple[Any, Tensor, float, int]:  # fmt: skip
    """A step from `x` along `d`, at which strong Wolfe conditions hold.

    Args:
        obj_func: gives loss and flat gradient for `x`, a step and a direction.
        x: where the line begins, which `obj_func` knows what to do with.
        t: the first step to try.
        d: the direction, flat.
        f, g, gtd: loss, gradient and slope along `d` at `x`.
        c1, c2: how much the loss has to decrease, and how much of the slope may be left.
        tolerance_change: the least change of an element that is worth a look.
        max_ls: how many evaluations there may be after the first.

    Returns:
        The loss as `obj_func` gave it, the gradient and the step, and how many evaluations there were.
    """
    losses = {0.0: f}

    def look(length: float) -> _Point:
        loss, gradient = obj_func(x, length, d)
        losses[length] = loss
        gradient = gradient.clone()
        return _Point(length, _number(loss), gradient, gradient.dot(d).item())

    here = _Point(0.0, _number(f), g.clone(), _number(gtd))
    largest = d.abs().max().item()
    there, looks = _search(look, here, _number(t), largest, max_ls, c1, c2, tolerance_change)
    return losses[there.length], there.gradient, there.length, looks


def _cubic_interpolate(
    x1: Any, f1: Any, g1: Any, x2: Any, f2: Any, g2: Any, bounds: tuple[Any, Any] | None = None
) -> Any:
    """Where the cubic through two points of a line is least, within bounds: by default the points.

    Args:
        x1, f1, g1: place, value and slope of one of the points, numbers or tensors of one element.
        x2, f2, g2: those of the other.
        bounds: the least and the greatest place.
    """
    nearest, farthest = (min(x1, x2), max(x1, x2)) if bounds is None else bounds
    ends = (_number(x1), _number(f1), _number(g1), _number(x2), _number(f2), _number(g2))
    least = _least_of_cubic(*ends, (_number(nearest), _number(farthest)))
    tensors = (t for t in (g1, f1, x1) if isinstance(t, Tensor))
    return next((t.new_tensor(least) for t in tensors), least)
