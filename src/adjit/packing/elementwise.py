"""Every elementwise op, on the operands that programs meet first."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from functools import partial
from itertools import product
from typing import Any

import adjit

from ..graph.elementwise import Elementwise
from ..graph.registry import registry

torch: Any = adjit  # as programs have it

# What most formulas are made of: these meet rows, columns and single elements, on either side.
CORE = ("add", "sub", "mul", "div")
SHAPE, ROW, COLUMN, ONE, PLANE = (4, 6), (6,), (4, 1), (), (3, 4, 6)
PAIRS = [
    (SHAPE, SHAPE), *((SHAPE, other) for other in (ROW, COLUMN, ONE)),
    *((other, SHAPE) for other in (ROW, COLUMN, ONE)), (COLUMN, (1, 6)),
    (PLANE, (3, 1, 6)), (PLANE, (3, 4, 1)), (PLANE, (3, 1, 1)), ((3, 1, 6), (1, 4, 6)),
]  # fmt: skip
LARGE_PAIRS = [
    *(((64, 80), other) for other in ((64, 80), (80,), (64, 1), ())), ((64, 1), (64, 80)),
    *(((16, 20, 32), other) for other in ((16, 20, 32), (16, 1, 32), (16, 20, 1), (16, 1, 1), (20, 1))),
    ((16, 1, 32), (16, 20, 32)),
    *(((64, 64, width), (64, 64, other)) for width in (2, 3, 4) for other in (width, 1)),
]  # fmt: skip
# Few programs begin with these, and their code is long.
RARE = {
    "zeta", "polygamma", "trigamma", "digamma", "lgamma", "erfinv", "nan_to_num", "ldexp", "logaddexp2",
    "erfcx", "ndtr", "log_ndtr", "ndtri", "entr", "xlog1py", "i0", "i0e", "i1", "i1e", "nextafter",
    "isclose", "gcd", "lcm", "logit_bounded", "round_decimals", "copysign", "heaviside", "frac", "sinc",
    "isposinf", "isneginf", "signbit", "deg2rad", "rad2deg", "hardshrink", "softshrink", "threshold",
    "bitwise_left_shift", "bitwise_right_shift", "bitwise_not", "bitwise_xor", "cube", "fmax", "fmin",
}  # fmt: skip
# What whole numbers and truth values are used for.
OF_WHOLE_NUMBERS = {
    *CORE, "rsub", "neg", "abs", "floor_divide", "remainder", "maximum", "minimum", "clamp", "where", "copy",
    "truth", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and",
}  # fmt: skip
OF_TRUTH = {
    "logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "bitwise_not", "where", "copy",
    "eq", "ne",
}  # fmt: skip


def made(shape: tuple[int, ...], kind: Any = torch.float32, needs_grad: bool = True) -> Any:
    """A tensor of numbers that nearly every function takes."""
    number: Any = True if kind is torch.bool else 0.5 if kind.is_floating_point else 1
    return torch.full(shape, number, dtype=kind).requires_grad_(
        needs_grad and kind.is_floating_point
    )


def run(function: Callable[..., Any], *operands: Any) -> None:
    """A function, and the gradients that it has: for a gradient in memory, and for one number spread out.

    Each is settled alone: the kernels are those of single operations.
    """
    out = function(*operands)
    out.tolist()
    leaves = [t for t in operands if isinstance(t, torch.Tensor) and t.requires_grad]
    if not leaves or not out.requires_grad:
        return
    plain = torch.full(out.shape, 0.5, dtype=out.dtype)
    for gradient in (plain, plain[(0,) * out.ndim].expand(out.shape)):
        for found in torch.autograd.grad(function(*operands), leaves, gradient, allow_unused=True):
            if found is not None:
                found.tolist()


def takes(op: Elementwise, kind: Any) -> bool:
    """Whether an op has kernels for a dtype."""
    try:
        op.dtypes([(kind, 1)] * (op.arity - len(op.body.logical)))
    except (RuntimeError, NotImplementedError):
        return False
    return True


def of_op(op: Elementwise, kind: Any) -> None:
    """An op as formulas have it: on tensors of one shape, and with a number for one of them."""
    kinds = [torch.bool if name in op.body.logical else kind for name in op.params]
    run(op, *(made(SHAPE, k) for k in kinds))
    number = 2.0 if kind.is_floating_point else 2
    for k in range(op.arity if op.arity > 1 else 0):
        if kinds[k] is kind is not torch.bool:
            run(op, *(number if i == k else made(SHAPE, kinds[i]) for i in range(op.arity)))


def of_ops(kind: Any, names: Collection[str] = ()) -> None:
    """The ops of these names, or all that programs begin with."""
    for op in list(registry.values()):
        wanted = op.name in names if names else op.name not in RARE
        if isinstance(op, Elementwise) and wanted and takes(op, kind):
            of_op(op, kind)


def broadcast(kind: Any) -> None:
    """Arithmetic between operands of different shapes, of which the first needs a gradient, or both."""
    for name, (first, second) in product(CORE, PAIRS):
        for needed in (True, False):
            run(registry[name], made(first, kind), made(second, kind, needed))


def both_gradients(kind: Any) -> None:
    """Gradients of both operands at once: one kernel makes them where tensors are not small."""
    for op in list(registry.values()):
        if (
            isinstance(op, Elementwise)
            and op.arity == 2
            and op.name not in RARE
            and takes(op, kind)
        ):
            run(op, made((64, 80), kind), made((64, 80), kind))
    for name, (first, second) in product(("mul", "div"), LARGE_PAIRS):
        x, y = made(first, kind), made(second, kind)
        run(registry[name], x, y)
        for dim in range(len(first)):  # the gradient of a sum is spread along its axis
            out = registry[name](x, y).sum(dim)
            for found in torch.autograd.grad(out, (x, y), torch.full_like(out, 0.5)):
                found.tolist()


def choices(kind: Any) -> None:
    """Bounds, comparisons and selections between operands of different shapes."""
    x = made(SHAPE, kind)
    run(lambda x: x.clamp(0.1, 0.9), x)
    for shape in (ROW, COLUMN, ONE):
        other = made(shape, kind)
        run(torch.maximum, x, other)
        run(torch.minimum, x, other)
        run(lambda x, y: torch.add(x, y, alpha=2), x, other)
        run(lambda x, y: torch.sub(x, y, alpha=2), x, other)
        run(partial(torch.where, made(shape, torch.bool)), x, made(SHAPE, kind))
        run(lambda x, mask: x.masked_fill(mask, 0.0), x, made(shape, torch.bool))
        for compare in (
            operator.lt,
            operator.le,
            operator.gt,
            operator.ge,
            operator.eq,
            operator.ne,
        ):
            run(compare, x, other)


def with_numbers(kind: Any) -> None:
    """What operators with a number become, and powers of the usual exponents."""
    number = 2.0 if kind.is_floating_point else 2
    for act in (operator.add, operator.sub, operator.mul, operator.truediv):
        run(lambda x, act=act: act(x, number), made(SHAPE, kind))
        run(lambda x, act=act: act(number, x), made(SHAPE, kind))
    for exponent in (2, 3, 4, 0.5, -0.5, -1, -2, 1.5):
        if kind.is_floating_point or exponent in (2, 3, 4):
            run(lambda x, e=exponent: x**e, made(SHAPE, kind))
    run(lambda x: 2**x, made(SHAPE, kind))


def strided(kind: Any) -> None:
    """Parts of tensors, and turned ones, as operands and as what is written to."""
    whole = made((8, 12), kind)
    views: list[Callable[[Any], Any]] = [
        lambda x: x[:, :6], lambda x: x[:, ::2], lambda x: x[::2], lambda x: x[:, 0], lambda x: x.t(),
    ]  # fmt: skip
    for view in views:
        for act in (operator.add, operator.sub, operator.mul):
            run(lambda x, act=act, view=view: act(view(x), view(x)), whole)
            run(lambda x, act=act, view=view: act(view(x), 2), whole)
        run(lambda x, view=view: view(x).clone(), whole)
    for view in views:
        written = made((8, 12), kind, needs_grad=False)
        view(written).add_(1)
        view(written).mul_(2)
        view(written).copy_(view(made((8, 12), kind, needs_grad=False)))
        view(written).zero_()
        written.tolist()


def second_derivatives(kind: Any) -> None:
    """Gradients of gradients of smooth functions of one number, and of products."""
    smooth = (op for op in list(registry.values()) if isinstance(op, Elementwise) and op.arity == 1)
    for op in smooth:
        if not op.differentiable or op.name in RARE or not takes(op, kind):
            continue
        x = made(SHAPE, kind)
        out = op(x)
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True, allow_unused=True)
        if first is not None and first.requires_grad:
            first.tolist()
            (second,) = torch.autograd.grad(first.sum(), x, allow_unused=True)
            if second is not None:
                second.tolist()


FLOATS = (torch.float32, torch.float64)
PROGRAMS: list[Callable[[], None]] = [
    *(partial(of_ops, kind) for kind in FLOATS),
    partial(of_ops, torch.int64, OF_WHOLE_NUMBERS), partial(of_ops, torch.bool, OF_TRUTH),
    *(partial(broadcast, kind) for kind in FLOATS),
    *(partial(both_gradients, kind) for kind in FLOATS),
    *(partial(choices, kind) for kind in FLOATS),
    *(partial(with_numbers, kind) for kind in (*FLOATS, torch.int64)),
    *(partial(strided, kind) for kind in FLOATS),
    *(partial(second_derivatives, kind) for kind in FLOATS),
]  # fmt: skip
