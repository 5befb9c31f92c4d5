"""Values and gradients beside PyTorch where formulas end.

Every elementwise op of the registry is called with every combination of NaN, infinities, zeros of both
signs, the smallest and the largest numbers, ends of domains, and ties. PyTorch's own answer may depend on
whether an element lies in a vector of the processor or in what is left over; either is right then. Ours
may not depend on it.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import adjit
from adjit.graph.elementwise import Elementwise
from adjit.graph.registry import registry

Arrays = list[Any]
Mask = Callable[..., Any]

OPS = [op for op in registry.values() if isinstance(op, Elementwise)]
FLOATS = ["float32", "float64"]

# What PyTorch calls an op, where it is no function of this name and these arguments. `a` are the operands.
COUNTERPARTS = {
    "hardtanh": "F.hardtanh(*a)", "threshold": "F.threshold(*a, 0.5, -1.0)", "leaky_relu": "F.leaky_relu(*a)",
    "prelu": "T._prelu_kernel(*a)", "hardsigmoid": "F.hardsigmoid(*a)",
    "hardswish": "F.hardswish(*a)", "softshrink": "F.softshrink(*a)", "elu": "F.elu(*a)", "gelu": "F.gelu(*a)",
    "gelu_tanh": "F.gelu(*a, approximate='tanh')", "silu": "F.silu(*a)", "mish": "F.mish(*a)",
    "softplus": "F.softplus(*a)", "logsigmoid": "F.logsigmoid(*a)", "add_scaled": "T.add(*a, alpha=1)",
    "sub_scaled": "T.sub(*a, alpha=1)", "cube": "a[0] ** 3", "nan_to_num": "T.nan_to_num(*a, 0.0, 0.0, 0.0)",
    "copy": "a[0].clone()", "truth": "a[0].bool()", "isclose": "T.isclose(*a, rtol=0.0, atol=0.0)",
    "squared_error": "F.mse_loss(*a, reduction='none')",
    "smooth_absolute_error": "F.smooth_l1_loss(*a, reduction='none')",
    "huber_error": "F.huber_loss(*a, reduction='none')",
    "logit_cross_entropy": "F.binary_cross_entropy_with_logits(a[0], a[1], pos_weight=a[2], reduction='none')",
    "round_decimals": "T.round(*a)", "trunc_divide": "T.div(*a, rounding_mode='trunc')",
    "trigamma": "T.polygamma(1, *a)", "zeta": "T.special.zeta(*a)", "polygamma": "T.polygamma(2, *a)",
    **{name: f"T.special.{name}(*a)" for name in (
        "erfcx", "ndtr", "log_ndtr", "ndtri", "entr", "xlog1py", "i0e", "i1", "i1e")},
    "logit_bounded": "T.logit(*a, 0.05)", "masked_fill": "T.where(a[1], a[2], a[0])",
}  # fmt: skip
INTEGERS = {
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift",
    "gcd", "lcm",
}  # fmt: skip


class Apart(NamedTuple):
    """Where an op is not PyTorch's on purpose, and why."""

    why: str
    where: Mask  # of the operands
    of: str = "value gradient"


def tiny(*arrays: Any) -> Any:
    """Where one is so small that products with it have few digits, or none."""
    return np.any([(a != 0) & (np.abs(a) <= np.finfo(a.dtype).tiny) for a in arrays], 0)


def huge(*arrays: Any) -> Any:
    """Where one is so large that twice as much is infinite."""
    return np.any([np.abs(a) >= np.finfo(a.dtype).max / 2 for a in arrays], 0)


QUOTIENT = "exact here; PyTorch divides first, which overflows"
ONCE = "PyTorch rounds a product and a sum once, so less overflows"
PRECISE = "PyTorch's series has eight digits, and its sine is that of a rounded multiple of pi"
DIGITS = (
    "PyTorch multiplies numbers first of which few digits are left, or squares what then overflows"
)
SIXTH = "PyTorch has 1 / 6 in float32"
LIMIT = "the limit here, NaN there"
TAIL = "PyTorch's tails are differences of numbers near 1, or exponentials of rounded squares"
NO_NAN = "PyTorch's gradient is that of 0"
APART = {
    "remainder": [Apart(QUOTIENT, lambda x, y: huge(x / y))],
    "fmod": [Apart(QUOTIENT, lambda x, y: huge(x / y))],
    "addcmul": [Apart(ONCE, lambda x, t, u: huge(t * u))],
    "lerp": [Apart(ONCE, lambda x, y, w: huge(x, y, w), "value")],
    "addcdiv": [Apart(DIGITS, lambda x, t, u: tiny(u) | huge(u), "gradient")],
    "hypot": [Apart(DIGITS, lambda x, y: tiny(x, y) | huge(x, y), "gradient")],
    "hardsigmoid": [Apart(SIXTH, lambda x: x.dtype == np.float64, "gradient")],
    "lgamma": [Apart(PRECISE, lambda x: x < 0, "gradient")],
    "digamma": [
        Apart(PRECISE, lambda x: x < 0),
        Apart(PRECISE, lambda x: x.dtype == np.float64, "gradient"),
    ],
    "trigamma": [
        Apart(PRECISE, lambda x: x < 0),
        Apart(PRECISE, lambda x: x.dtype == np.float64, "value"),
        Apart(LIMIT, np.isinf, "gradient"),
    ],
    "polygamma": [Apart(LIMIT, np.isinf)],
    "erfcx": [Apart(DIGITS, lambda x: x > 5, "gradient")],
    "ndtr": [Apart(TAIL, lambda x: abs(x) > 3)],
    "log_ndtr": [Apart(TAIL, lambda x: abs(x) > 5)],
    "ndtri": [Apart(TAIL, lambda x: x < 1e-15, "gradient")],
    "i0": [Apart(LIMIT, np.isinf)],
    "i0e": [Apart(DIGITS, lambda x: abs(x) > 80, "gradient")],
    "i1": [Apart(LIMIT, lambda x: abs(x) > 700), Apart(NO_NAN, np.isnan, "gradient")],
    "i1e": [Apart(DIGITS, lambda x: abs(x) > 1.5, "gradient"), Apart(NO_NAN, np.isnan, "gradient")],
    "logit_cross_entropy": [Apart(LIMIT, lambda x, y, f: np.isinf(y))],
    "zeta": [
        Apart(LIMIT, lambda x, y: (x > 1e15) | (y > 1e15) | np.isnan(x)),
        Apart("PyTorch's sum ends with its first term", lambda x, y: (x < 1.001) & (y < 1e-5)),
    ],
}  # fmt: skip


def special_points(kind: str, arity: int) -> Any:
    """The points of a dtype; fewer where they are combined."""
    f = np.finfo(kind)
    most: list[Any] = [
        0.0, 1.0, f.max, f.tiny, f.smallest_subnormal, 0.5, 2.0, 1.0 - f.eps / 2, 3.0, 1e16,
        1.0 + f.eps, f.tiny / 4, f.max / 2, 0.25, 1.5, 6.0, 20.0, 1e-3, f.eps, 100.0, 1e30,
        2.5, 4.0, 7.25, 20.5, 0.1, 0.9, 9.0, 1e-20, 1e17, 2.0**24, 2.0**31, 2.0**53, 2.0**63, 30.0, 50.0,
        88.5, 104.0, 171.5, 710.0, 745.0, math.pi, math.pi / 2,
    ]  # fmt: skip
    size = {1: len(most), 2: 21, 3: 5}[arity]
    chosen = np.array(most[:size], kind)
    return np.concatenate([np.array([np.nan, np.inf, -np.inf], kind), chosen, -chosen])


def operands_of(op: Elementwise, kind: str) -> Arrays:
    """Every combination of points; truth values are both."""
    truths = np.array([False, True])
    points = [truths if p in op.body.logical else special_points(kind, op.arity) for p in op.params]
    combined = list(zip(*itertools.product(*points), strict=True))
    return [np.array(c, p.dtype) for c, p in zip(combined, points, strict=True)]


def beside(array: Any, library: Any, strided: bool) -> Any:
    """A leaf with these elements, a part of larger memory or not."""
    wide = library.tensor(np.stack([array, array], 1) if strided else array)
    return wide.requires_grad_() if wide.is_floating_point() else wide


def seen(call: Callable[..., Any], library: Any, arrays: Arrays, strided: bool) -> Arrays:
    """The value of a call, and the gradient of each operand."""
    leaves = [beside(a, library, strided) for a in arrays]
    given = [t[:, 0] if strided else t for t in leaves]
    wanted = [t for t in leaves if t.requires_grad]
    weights = library.tensor(np.linspace(0.5, 1.5, len(arrays[0])).astype(arrays[-1].dtype))
    grads: Any = ()
    try:
        out = call(*given)
        if out.is_floating_point() and out.requires_grad:
            grads = library.autograd.grad(out, wanted, weights, allow_unused=True)
    except RuntimeError as error:
        if "derivative" not in str(error) and "differentiable" not in str(error):
            raise
        wanted, out = [], call(*[t.detach() for t in given])  # PyTorch has no gradient
    found = [out.detach().numpy()]
    if grads:
        for t, g in zip(wanted, grads, strict=True):
            g = library.zeros_like(t) if g is None else g
            found.append(g[:, 0].numpy(force=True) if strided else g.numpy(force=True))
    return found


def counterpart(op: Elementwise, torch: Any) -> Callable[..., Any]:
    """PyTorch's function."""
    text = COUNTERPARTS.get(op.name, f"T.{op.name}(*a)")
    names = {"T": torch, "F": torch.nn.functional}
    return lambda *a: eval(text, names | {"a": a})


def close(found: Any, wanted: Any, loose: bool) -> Any:
    """Which elements are equal, up to some units in the last place."""
    if found.dtype.kind != "f":
        return found == wanted
    f = np.finfo(found.dtype)
    with np.errstate(all="ignore"):
        size = np.abs(wanted.astype(np.float64))
        room = (512 if loose else 64) * float(f.eps) * size + 4 * float(f.smallest_subnormal)
        room += 16 * float(f.eps) if loose else 0
        apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        return (found == wanted) | (np.isnan(found) & np.isnan(wanted)) | (apart <= room)


# Functions whose last digits differ, or whose parts are nearly equal and of opposite signs.
LOOSE = {
    "gelu", "gelu_tanh", "silu", "mish", "tanh", "sigmoid", "logaddexp", "logaddexp2", "polygamma",
    "logit_cross_entropy",
}  # fmt: skip


def differences(op: Elementwise, kind: str) -> list[str]:
    """Where an op is not PyTorch's."""
    torch = pytest.importorskip("torch")
    arrays = operands_of(op, kind)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        own = [seen(op, adjit, arrays, strided) for strided in (False, True)]
        both = [seen(counterpart(op, torch), torch, arrays, strided) for strided in (False, True)]
        for one, other in zip(*own, strict=True):
            np.testing.assert_array_equal(one, other)
        told = []
        for k, results in enumerate(zip(own[0], *both, strict=False)):
            found, *wanted = results
            right = [found.dtype == w.dtype and close(found, w, op.name in LOOSE) for w in wanted]
            wrong = ~(right[0] | right[1])
            for apart in APART.get(op.name, ()):
                if ("gradient" if k else "value") in apart.of:
                    wrong &= ~np.asarray(apart.where(*arrays))
            what = "value" if k == 0 else f"gradient {k}"
            for i in np.flatnonzero(wrong):
                given = ", ".join(str(a[i]) for a in arrays)
                told.append(
                    f"{op.name}({given}): {what} {found[i]}, not {wanted[0][i]}, {wanted[1][i]}"
                )
    return told


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(
    "op", [op for op in OPS if op.name not in INTEGERS], ids=lambda op: op.name
)
def test_special_points_are_those_of_pytorch(op: Elementwise, kind: str) -> None:
    told = differences(op, kind)
    assert not told, "\n".join([f"{len(told)} in all:", *told[:12]])


# ----- without PyTorch -----

FUNCTIONS: dict[
    str, tuple[Callable[[Any], Any], float]
] = {  # and the gradient at NaN where 2.0 is sent back
    "elu": (adjit.nn.functional.elu, math.nan),
    "celu": (adjit.celu, math.nan),
    "selu": (adjit.selu, math.nan),
    "hardswish": (adjit.nn.functional.hardswish, math.nan),
    "logit": (lambda x: adjit.logit(x, 0.1), math.nan),
    "hardtanh": (adjit.nn.functional.hardtanh, 2.0),
    "relu6": (adjit.nn.functional.relu6, 2.0),
    "softshrink": (adjit.nn.functional.softshrink, 2.0),
    "hardshrink": (adjit.hardshrink, 2.0),
    "relu": (adjit.relu, 2.0),
    "huber": (lambda x: adjit.nn.functional.huber_loss(x, adjit.zeros_like(x), "none"), math.nan),
}


@pytest.mark.parametrize("size", [1, 7, 64, 5000])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gradient_at_nan_is_nan_or_passes(name: str, size: int) -> None:
    function, wanted = FUNCTIONS[name]
    x = adjit.full((size,), math.nan, requires_grad=True)
    function(x).backward(adjit.full((size,), 2.0))
    np.testing.assert_array_equal(x.grad.numpy(), np.full(size, wanted, np.float32))


@pytest.mark.parametrize("name", ["elu", "celu", "selu"])
def test_second_derivatives_of_exponential_units_at_0_are_0(name: str) -> None:
    """As in PyTorch, whose first derivative there is that of what is below."""
    x = adjit.tensor([0.0, -0.0, -1.0, 2.0], dtype=adjit.float64, requires_grad=True)
    alpha = {"alpha": 2.0} if name != "selu" else {}
    (first,) = adjit.autograd.grad(
        getattr(adjit.nn.functional, name)(x, **alpha).sum(), x, create_graph=True
    )
    (second,) = adjit.autograd.grad(first.sum(), x, create_graph=True)
    assert first[0].item() == {"elu": 2.0, "celu": 1.0, "selu": 1.7580993408473766}[name]
    assert second[:2].tolist() == [0.0, 0.0]
    assert second[2].item() > 0
    (third,) = adjit.autograd.grad(second.sum(), x)
    assert third[:2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("size", [8, 100_000])
def test_ties_and_nan_of_the_larger_and_the_smaller(size: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.choice([1.0, -1.0, 0.0, -0.0, np.inf, -np.inf, np.nan], (2, size))
    for op, is_first in ((adjit.fmax, a >= b), (adjit.fmin, a <= b)):
        for turned in (False, True):
            x, y = (adjit.tensor(v.reshape(4, -1), requires_grad=True) for v in (a, b))
            out = op(x.t(), y.t()).t() if turned else op(x, y)
            out.backward(adjit.full(out.shape, 3.0, dtype=adjit.float64))
            first = (is_first | np.isnan(b)).reshape(4, -1)
            np.testing.assert_array_equal(
                out.detach().numpy(), np.where(first, x.numpy(force=True), y.numpy(force=True))
            )
            np.testing.assert_array_equal(x.grad.numpy(), np.where(first, 3.0, 0.0))
            np.testing.assert_array_equal(y.grad.numpy(), np.where(first, 0.0, 3.0))


@pytest.mark.parametrize("kind", FLOATS)
def test_next_numbers_are_those_of_numpy(kind: str) -> None:
    points = special_points(kind, 1)
    x, y = (a.ravel() for a in np.meshgrid(points, points))
    found = adjit.nextafter(adjit.tensor(x), adjit.tensor(y)).numpy()
    with np.errstate(all="ignore"):
        wanted = np.nextafter(x, y)
    np.testing.assert_array_equal(found, wanted)
    is_number = wanted == wanted
    np.testing.assert_array_equal(np.signbit(found[is_number]), np.signbit(wanted[is_number]))


BELOW = [-0.5, -1.5, -2.5, -0.25, -10.3, -100.7, -1000.25, -1e-5, -0.999, -3.75]


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_polygamma_of_negative_numbers(order: int) -> None:
    """By the definition: the sum over all poles, those on the way to 0 one by one."""
    scipy = pytest.importorskip("scipy.special")
    x = np.array([*BELOW, 0.5, 3.0, 1e16, 1e30])
    found = adjit.polygamma(order, adjit.tensor(x)).numpy()
    np.testing.assert_allclose(found, scipy.polygamma(order, x), rtol=3e-12)
    poles = adjit.polygamma(order, adjit.tensor([0.0, -0.0, -1.0, -2.0, -1e16]).double())
    assert poles.tolist() == [math.inf if order % 2 else -math.inf] * 5


@pytest.mark.parametrize("kind", FLOATS)
def test_zeta_outside_of_its_domain(kind: str) -> None:
    def zeta(s: float, q: float) -> float:
        dtype = getattr(adjit, kind)
        return adjit.special.zeta(adjit.tensor(s, dtype=dtype), adjit.tensor(q, dtype=dtype)).item()

    assert [zeta(1.0, 2.0), zeta(2.0, 0.0), zeta(3.0, -4.0), zeta(2.5, -4.0)] == [math.inf] * 4
    assert all(
        math.isnan(v)
        for v in (zeta(0.5, 2.0), zeta(-2.0, 2.0), zeta(2.5, -0.5), zeta(math.nan, 2.0))
    )
    assert [zeta(math.inf, 0.5), zeta(math.inf, 1.0), zeta(math.inf, 3.0)] == [math.inf, 1.0, 0.0]
    assert zeta(2.0, -0.5) == pytest.approx(
        4 + math.pi**2 / 2, rel=1e-6 if kind == "float32" else 1e-14
    )
    assert zeta(3.0, 1e12) == pytest.approx(5e-25, rel=1e-6)


def test_gradients_of_digamma_far_out() -> None:
    x = adjit.tensor(
        [1e16, 1e17, 1e30, 1e200, 1e300, -1e16], dtype=adjit.float64, requires_grad=True
    )
    (first,) = adjit.autograd.grad(adjit.digamma(x).sum(), x, create_graph=True)
    np.testing.assert_allclose(
        first.detach().numpy()[:5], [1e-16, 1e-17, 1e-30, 1e-200, 1e-300], rtol=1e-14
    )
    (second,) = adjit.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy()[:3], [-1e-32, -1e-34, -1e-60], rtol=1e-14)
    assert (first[5].item(), second[5].item()) == (math.inf, -math.inf)
    y = adjit.tensor([1e16, 1e19], requires_grad=True)
    (first,) = adjit.autograd.grad(adjit.digamma(y).sum(), y, create_graph=True)
    (second,) = adjit.autograd.grad(first.sum(), y)
    np.testing.assert_allclose(second.numpy(), [-1e-32, -1e-38], rtol=1e-5)


@pytest.mark.parametrize("kind", FLOATS)
def test_cross_entropies_of_logits_keep_their_digits(kind: str) -> None:
    x = adjit.tensor([-20.0, -30.0, -50.0], dtype=getattr(adjit, kind), requires_grad=True)
    adjit.nn.functional.binary_cross_entropy_with_logits(
        x, adjit.zeros_like(x), reduction="sum"
    ).backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([-20.0, -30.0, -50.0]), rtol=1e-5)
    infinite = adjit.nn.functional.binary_cross_entropy_with_logits(
        adjit.ones(1), adjit.full((1,), math.inf)
    )
    assert infinite.item() == -math.inf


# ----- what a gradient goes to, of several elements -----

NAN, INF = math.nan, math.inf
ROWS = {
    "ties": [[2.0, 2.0, 1.0], [2.0, 1.0, 2.0]],
    "infinite": [[INF, 1.0, INF], [-INF, -INF, 0.0]],
    "all infinite": [[INF, INF], [INF, INF]],
    "zeros": [[0.0, -0.0, 0.0], [-0.0, 0.0, -0.0]],
    "NaN": [[1.0, NAN, 2.0], [3.0, 0.0, NAN]],
    "all NaN": [[NAN, NAN], [NAN, NAN]],
    "all sorts": [[NAN, INF, -INF], [INF, NAN, 1.0]],
}
CHOOSING: dict[str, Callable[..., Any]] = {
    "amax": lambda T, x: T.amax(x),
    "amax of columns": lambda T, x: T.amax(x, 0),
    "amax of rows": lambda T, x: x.amax(1, keepdim=True),
    "amin": lambda T, x: x.amin((0, 1)),
    "amin of rows": lambda T, x: T.amin(x, 1),
    "aminmax": lambda T, x: sum(T.aminmax(x)),
    "aminmax of rows": lambda T, x: T.aminmax(x, dim=1)[0],
    "max": lambda T, x: x.max(),
    "max of rows": lambda T, x: x.max(1)[0],
    "min": lambda T, x: x.min(),
    "min of columns": lambda T, x: x.min(0)[0],
    "median": lambda T, x: x.median(),
    "nanmedian": lambda T, x: x.nanmedian(),
    "cummax": lambda T, x: x.cummax(1)[0],
    "cummin": lambda T, x: x.cummin(0)[0],
    "logsumexp": lambda T, x: x.logsumexp(1),
    "logsumexp of all": lambda T, x: x.logsumexp((0, 1)),
    "logcumsumexp": lambda T, x: x.logcumsumexp(1),
    "softmax": lambda T, x: x.softmax(1),
    "sort": lambda T, x: T.sort(x, dim=1, stable=True)[0],
    "sort downwards": lambda T, x: T.sort(x, dim=1, descending=True, stable=True)[0],
    "norm": lambda T, x: T.linalg.vector_norm(x, INF),
    "least size": lambda T, x: T.linalg.vector_norm(x, -INF, 1),
    "sums of columns": lambda T, x: T.linalg.matrix_norm(x, 1),
    "max_pool1d": lambda T, x: T.nn.functional.max_pool1d(x[None], 2),
    "adaptive_max_pool1d": lambda T, x: T.nn.functional.adaptive_max_pool1d(x[None], 1),
    "clamp": lambda T, x: x.clamp(-1.0, 2.0),
    "clamp by NaN": lambda T, x: x.clamp(min=NAN),
    **{
        name: lambda T, x, name=name: getattr(T, name)(x, x.flip(0))
        for name in ("maximum", "minimum", "fmax", "fmin", "max", "min", "logaddexp", "hypot")
    },
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", CHOOSING)
def test_gradients_go_where_those_of_pytorch_go(name: str, rows: str) -> None:
    found = []
    for library in (adjit, pytest.importorskip("torch")):
        x = library.tensor(np.array(ROWS[rows]), requires_grad=True)
        out = CHOOSING[name](library, x)
        weights = np.arange(1.0, 1 + out.numel()).reshape(tuple(out.shape))
        (grad,) = library.autograd.grad(out, x, library.tensor(weights))
        found.append((out.detach().numpy(), grad.numpy(force=True)))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, equal_nan=True)
