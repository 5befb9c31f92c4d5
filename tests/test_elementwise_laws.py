"""Laws that every elementwise op keeps, whatever it computes.

The cases come from the registry: an op that is added is tested.
"""

from __future__ import annotations

import contextlib
import gc
import math
import re
import sys
import threading
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
import templates
from adjit.kernels.language.abi import SIGNATURE
from adjit.kernels.language.target import compile_function

import adjit
from adjit.graph import elementwise_record, other_sizes
from adjit.graph.elementwise import Elementwise, elementwise, scalar_functions
from adjit.graph.export import export, methods, namespace
from adjit.graph.record import MOST_MET_ONCE
from adjit.graph.registry import registry
from adjit.schedule.codegen.body import parse, special
from adjit.schedule.jit import native

OPS = [op for op in registry.values() if isinstance(op, Elementwise)]
FLOATS = (adjit.float32, adjit.float64)
EPS = {adjit.float32: 2.0**-23, adjit.float64: 2.0**-52}


def accepts(op: Elementwise, *kinds: Any) -> bool:
    """Whether the op's dtype rule takes operands of these dtypes."""
    try:
        op.dtypes(
            [(kind, 1) for kind, p in zip(kinds, op.params, strict=True) if p not in masks(op)]
        )
    except (RuntimeError, NotImplementedError):
        return False
    return True


def masks(op: Elementwise) -> frozenset[str]:
    """The operands that are read as truth values."""
    return op.body.logical


def named(ops: list[Elementwise]) -> Any:
    """Parametrise a test over ops."""
    return pytest.mark.parametrize("op", ops, ids=[op.name for op in ops])


FLOAT_OPS = [op for op in OPS if accepts(op, *[adjit.float64] * op.arity)]
INT_OPS = [
    op
    for op in OPS
    if op.__module__ != "adjit.ops.losses"  # means of errors: floating dtypes
    and accepts(op, *[adjit.int64] * op.arity)
    and (masks(op) == set(op.params) or op.dtypes([(adjit.int64, 1)] * op.arity)[0].kind != "f")
]
SMOOTH_OPS = [op for op in FLOAT_OPS if op.differentiable]
NO_GRADIENT = {"zeta": 0}  # operands whose derivative is not implemented


def domain_of(op: Elementwise, k: int) -> tuple[float, float]:
    first = op.domain[0]
    return op.domain[k] if isinstance(first, tuple) else op.domain


def sample(op: Elementwise, dtype: Any, shape: tuple[int, ...] = (6,), seed: int = 0) -> list[Any]:
    """Operands as arrays, from the op's domain."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()) + seed)
    arrays: list[Any] = []
    for k, name in enumerate(op.params):
        low, high = domain_of(op, k)
        if name in masks(op):
            arrays.append(rng.random(shape) < 0.5)
        elif dtype.kind == "f":
            arrays.append(rng.uniform(low, high, shape).astype(dtype.numpy))
        elif dtype.kind == "b":
            arrays.append(rng.random(shape) < 0.5)
        else:
            positive = low > 0 or (op.arity == 2 and k == 1)
            low = 1 if positive else 0 if dtype.kind == "u" else -9
            arrays.append(rng.integers(low, 10, shape).astype(dtype.numpy))
    return arrays


def tensors(arrays: list[Any], requires_grad: bool = False) -> list[Any]:
    made = [adjit.tensor(a) for a in arrays]
    for t in made:
        if requires_grad and t.dtype.is_floating_point:
            t.requires_grad_()
    return made


def expected(op: Elementwise, arrays: list[Any]) -> Any:
    assert op.ref is not None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(op.ref(*arrays, *op.defaults.values()))


def assert_close(found: Any, wanted: Any, dtype: Any, ulps: float = 16) -> None:
    """Equal up to some units in the last place of numbers about 1 and above."""
    found = np.asarray(found.detach().numpy())
    assert found.shape == wanted.shape
    if dtype.kind == "f":
        tolerance = ulps * EPS[dtype]
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
        )
    else:
        np.testing.assert_array_equal(found, wanted.astype(found.dtype))


# ----- values -----


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
@named([op for op in FLOAT_OPS if op.ref is not None])
def test_values(op: Elementwise, dtype: Any) -> None:
    arrays = sample(op, dtype)
    out = op(*tensors(arrays))
    wide = [a if a.dtype == bool else a.astype(np.float64) for a in arrays]
    if not masks(op):
        assert out.dtype is op.dtypes([(dtype, 1)] * op.arity)[1]
    assert_close(out, expected(op, wide), out.dtype)


@named([op for op in INT_OPS if op.ref is not None])
def test_values_of_integers(op: Elementwise) -> None:
    arrays = sample(op, adjit.int64)
    assert_close(op(*tensors(arrays)), expected(op, arrays), adjit.int64)


SMALL = ["add", "mul", "neg", "maximum", "floor_divide", "remainder", "fmod", "pow", "bitwise_not",
         "bitwise_left_shift", "gcd", "eq", "clamp", "sign", "abs"]  # fmt: skip


@pytest.mark.parametrize("dtype", [adjit.uint8, adjit.int8, adjit.int32, adjit.bool], ids=repr)
@pytest.mark.parametrize("name", SMALL)
def test_values_of_small_integers_wrap_around(name: str, dtype: Any) -> None:
    op: Any = registry[name]
    if not accepts(op, *[dtype] * op.arity):
        with pytest.raises((RuntimeError, NotImplementedError)):
            op(*tensors(sample(op, dtype)))
        return
    arrays = sample(op, dtype)
    with np.errstate(all="ignore"):
        assert_close(op(*tensors(arrays)), expected(op, arrays), dtype)


@pytest.mark.parametrize("name", ["exp", "div", "sqrt", "sigmoid", "atan2", "add"])
@pytest.mark.parametrize("dtype", [adjit.int64, adjit.bool], ids=repr)
def test_integers_count_as_the_default_floating_dtype(name: str, dtype: Any) -> None:
    op: Any = registry[name]
    arrays = [np.ones(3, dtype.numpy)] * op.arity
    out = op(*tensors(arrays))
    if name != "add":
        assert out.dtype is adjit.float32
    assert_close(out, expected(op, [a.astype(np.float64) for a in arrays]), out.dtype)


# ----- layouts -----


def transposed(a: Any) -> Any:
    return adjit.tensor(np.ascontiguousarray(a.T)).t()


def sliced(a: Any) -> Any:
    wide = np.repeat(a, 2, axis=1)
    wide[:, 1::2] = 0
    return adjit.tensor(np.concatenate([wide[:1], wide]))[1:, ::2]


def one_row(a: Any) -> Any:
    return adjit.tensor(a[:1])


def one_column(a: Any) -> Any:
    return adjit.tensor(a[:, :1])


def one_element(a: Any) -> Any:
    return adjit.tensor(a[0, 0])


def expanded(a: Any) -> Any:
    return adjit.tensor(a[0]).expand(4, 3)


LAYOUTS = [adjit.tensor, transposed, sliced, one_row, one_column, one_element, expanded]
CHOSEN = ["add", "where", "exp", "clamp", "addcmul", "gt"]


def check_layouts(op: Elementwise, layouts: list[Any]) -> None:
    arrays = sample(op, adjit.float64, (4, 3))
    operands = [layout(a) for layout, a in zip(layouts, arrays, strict=True)]
    dense = [t.numpy().copy() for t in operands]
    out = op(*operands)
    wanted = op(*[adjit.tensor(a) for a in np.broadcast_arrays(*dense)])
    assert out.shape == wanted.shape
    np.testing.assert_array_equal(out.numpy(), wanted.numpy())


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", CHOSEN)
def test_every_layout(name: str, layout: Any) -> None:
    op: Any = registry[name]
    check_layouts(op, [layout] + [adjit.tensor] * (op.arity - 1))
    check_layouts(op, [adjit.tensor] * (op.arity - 1) + [layout])


@named(FLOAT_OPS)
def test_some_layout_of_every_op(op: Elementwise) -> None:
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    check_layouts(op, [LAYOUTS[k] for k in rng.integers(0, len(LAYOUTS), op.arity)])


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1), (2, 1, 3, 1)])
def test_shapes(name: str, shape: tuple[int, ...]) -> None:
    op: Any = registry[name]
    arrays = sample(op, adjit.float64, shape)
    assert_close(op(*tensors(arrays)), expected(op, arrays), adjit.float64)


def test_the_order_of_axes_of_full_operands_is_kept() -> None:
    x = adjit.rand(3, 4).t()
    assert x.exp().stride() == x.stride()
    assert (x + x).stride() == x.stride()
    repeated = x[:1].expand(x.shape)  # has no order of its own, as in PyTorch
    assert (repeated * x).stride() == (x * repeated).stride() == x.stride()
    y = adjit.rand(4, 3)  # the first operand decides, as in PyTorch
    assert ((x + y).stride(), (y + x).stride()) == (x.stride(), y.stride())


@pytest.mark.parametrize("dtype", [*FLOATS, adjit.int64], ids=repr)
@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "div", "maximum", "pow", "gt", "clamp_min", "remainder"]
)
def test_numbers_are_like_filled_tensors(name: str, dtype: Any) -> None:
    op: Any = registry[name]
    x = adjit.tensor([1, 2, 5], dtype=dtype)
    number = adjit.full((3,), 2, dtype=dtype)
    out = op(x, 2)
    assert out.dtype is op(x, number).dtype
    np.testing.assert_array_equal(out.numpy(), op(x, number).numpy())
    np.testing.assert_array_equal(op(2, x).numpy(), op(number, x).numpy())


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(RuntimeError, match=r"The size of tensor a \(2\) must match the size of"):
        adjit.rand(2) + adjit.rand(3)


# ----- gradients -----


def projected(op: Elementwise, operands: list[Any], weights: Any, **how: Any) -> list[Any]:
    """Gradients of sum(weights * op(operands)), zeros where there is none."""
    leaves = [t for t in operands if t.requires_grad]
    out = op(*operands)
    found = adjit.autograd.grad((out * weights).sum(), leaves, allow_unused=True, **how)
    return [adjit.zeros_like(t) if g is None else g for t, g in zip(leaves, found, strict=True)]


def moved(arrays: list[Any], directions: list[Any], step: float) -> list[Any]:
    return [a if d is None else a + step * d for a, d in zip(arrays, directions, strict=True)]


def directions_for(op: Elementwise, arrays: list[Any]) -> list[Any]:
    rng = np.random.default_rng(7)
    skip = NO_GRADIENT.get(op.name)
    return [
        None if a.dtype == bool or k == skip else rng.uniform(0.5, 1, a.shape)
        for k, a in enumerate(arrays)
    ]


def along(gradients: list[Any], operands: list[Any], directions: list[Any]) -> float:
    found = iter(gradients)
    total = 0.0
    for t, d in zip(operands, directions, strict=True):
        if t.requires_grad:
            g = next(found)
            total += 0.0 if d is None else float((g.detach().numpy() * d).sum())
    return total


STEP = 2.0**-18


@named(SMOOTH_OPS)
def test_gradients_are_projected_differences(op: Elementwise) -> None:
    arrays = sample(op, adjit.float64)
    directions = directions_for(op, arrays)
    weights = np.linspace(0.5, 1.5, 6)

    def value(step: float) -> float:
        return float((op(*tensors(moved(arrays, directions, step))).numpy() * weights).sum())

    operands = tensors(arrays, requires_grad=True)
    found = along(projected(op, operands, adjit.tensor(weights)), operands, directions)
    wanted = (value(STEP) - value(-STEP)) / (2 * STEP)
    assert found == pytest.approx(wanted, rel=1e-7, abs=1e-7)


@named(SMOOTH_OPS)
def test_second_gradients_are_projected_differences(op: Elementwise) -> None:
    arrays = sample(op, adjit.float64)
    directions = directions_for(op, arrays)
    weights = adjit.tensor(np.linspace(0.5, 1.5, 6))

    def slope(step: float) -> float:
        operands = tensors(moved(arrays, directions, step), requires_grad=True)
        return along(projected(op, operands, weights), operands, directions)

    operands = tensors(arrays, requires_grad=True)
    first = projected(op, operands, weights, create_graph=True)
    assert along(first, operands, directions) == pytest.approx(slope(0.0), rel=1e-13, abs=1e-13)
    leaves = [t for t in operands if t.requires_grad]
    moving = [d for t, d in zip(operands, directions, strict=True) if t.requires_grad]
    total = sum((g * adjit.tensor(d)).sum() for g, d in zip(first, moving, strict=True)
                if d is not None)  # fmt: skip
    found = 0.0
    if total.requires_grad:
        second = adjit.autograd.grad(total, leaves, allow_unused=True)
        second = [
            adjit.zeros_like(t) if g is None else g for t, g in zip(leaves, second, strict=True)
        ]
        found = along(second, operands, directions)
    wanted = (slope(STEP) - slope(-STEP)) / (2 * STEP)
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@pytest.mark.in_turn(3)
@named([op for op in SMOOTH_OPS if op.arity > 1])
def test_gradients_of_broadcast_operands(op: Elementwise) -> None:
    arrays = sample(op, adjit.float64, (4, 3))
    arrays[-1] = arrays[-1][:, :1] if arrays[-1].dtype != bool else arrays[-1]
    arrays[0] = arrays[0][0]
    operands = tensors(arrays, requires_grad=True)
    op(*operands).sum().backward()
    full = tensors([a.copy() for a in np.broadcast_arrays(*arrays)], requires_grad=True)
    op(*full).sum().backward()
    for t, f, a in zip(operands, full, arrays, strict=True):
        if not t.requires_grad:
            continue
        assert t.grad.shape == t.shape
        axes = {(3,): 0, (4, 1): 1, (4, 3): ()}[a.shape]
        wanted = f.grad.numpy().sum(axis=axes).reshape(a.shape)
        np.testing.assert_allclose(t.grad.numpy(), wanted, rtol=1e-12, atol=1e-12)


@named([op for op in SMOOTH_OPS if op.arity > 1])
def test_only_the_gradients_that_are_asked_for(op: Elementwise) -> None:
    """An operand that needs no gradient gets none, and changes none of the others."""
    arrays = sample(op, adjit.float64)
    weights = adjit.tensor(np.linspace(0.5, 1.5, 6))
    both = iter(projected(op, tensors(arrays, requires_grad=True), weights))
    for k, a in enumerate(arrays):
        if a.dtype == bool:
            continue
        operands = tensors(arrays)
        operands[k].requires_grad_()
        (alone,) = projected(op, operands, weights)
        np.testing.assert_array_equal(alone.numpy(), next(both).numpy())


def test_ops_that_decide_give_no_gradient() -> None:
    x = adjit.rand(3, requires_grad=True)
    for decided in (x > 0.5, x == x, x.isnan(), x.signbit(), adjit.logical_not(x)):
        assert not decided.requires_grad


# ----- writing in place -----

WRITERS = [  # copy_ and polygamma_ have other arguments than the op
    op
    for op in FLOAT_OPS
    if f"{op.name}_" in methods and not masks(op) and op.name not in ("copy", "polygamma")
]


@named(WRITERS)
def test_in_place_forms(op: Elementwise) -> None:
    arrays = sample(op, adjit.float64)
    x, *others = tensors(arrays)
    wanted = op(x, *others)
    y = x.clone()
    assert getattr(y, f"{op.name}_")(*others) is y
    assert y.dtype is adjit.float64
    assert y._version == 1
    np.testing.assert_array_equal(y.numpy(), wanted.numpy().astype(np.float64))


@pytest.mark.parametrize("name", ["exp", "add", "relu", "where"])
def test_in_place_forms_of_large_tensors(name: str) -> None:
    """Large results may be written over their operand."""
    op: Any = registry[name]
    arrays = sample(op, adjit.float64, (200, 100))
    operands = tensors(arrays)
    wanted = op(*operands).numpy().copy()
    if name == "where":
        operands[1].copy_(adjit.where(*operands))
        np.testing.assert_array_equal(operands[1].numpy(), wanted)
        return
    kept = operands[0].clone()
    getattr(operands[0], f"{name}_")(*operands[1:])
    np.testing.assert_array_equal(operands[0].numpy(), wanted)
    np.testing.assert_array_equal(kept.numpy(), arrays[0])


@pytest.mark.parametrize("name", ["sin", "exp", "mul", "pow", "sigmoid", "addcmul", "clamp_min"])
def test_gradients_through_writes(name: str) -> None:
    op: Any = registry[name]
    arrays = sample(op, adjit.float64)
    plain, written = tensors(arrays, requires_grad=True), tensors(arrays, requires_grad=True)
    op(*plain).sum().backward()
    y = written[0] * 1
    getattr(y, f"{name}_")(*written[1:])
    y.sum().backward()
    for a, b in zip(plain, written, strict=True):
        np.testing.assert_array_equal(a.grad.numpy(), b.grad.numpy())


def test_out_arguments() -> None:
    x, y, out = adjit.rand(3), adjit.rand(3), adjit.empty(3)
    for function in (adjit.add, adjit.mul, adjit.div, adjit.pow, adjit.maximum):
        assert function(x, y, out=out) is out
        np.testing.assert_array_equal(out.numpy(), function(x, y).numpy())
    truth = adjit.empty(3, dtype=adjit.bool)
    assert adjit.gt(x, y, out=truth).dtype is adjit.bool


# ----- kernels -----


def forward_source(op: Elementwise, dtype: Any) -> str:
    arrays = sample(op, dtype)
    operands = tensors(arrays)
    op(*operands)
    key = tuple(t._spec for t in operands)
    recipe = op.op_records[key if len(key) > 1 else key[0]].recipe
    return recipe.steps[0].source.text  # type: ignore[no-any-return]


LITERAL = re.compile(r"(?<![\w.\[])(?:\d+\.\d*|\.\d+|\d+e-?\d+)(?![\w\]])")


@named([op for op in FLOAT_OPS if masks(op) != set(op.params)])
def test_float32_kernels_hold_no_float64(op: Elementwise) -> None:
    """A bare 1.0 is float64 in Numba: every literal of a body must be typed."""
    text = forward_source(op, adjit.float32)
    assert "T = float32" in text
    assert "float64" not in text
    for match in LITERAL.finditer(text):
        assert text[: match.start()].rstrip("-").endswith("T("), text


@pytest.mark.parametrize("name", ["mul", "exp", "tanh", "gelu", "where", "maximum", "silu", "sub"])
def test_float32_machine_code_is_vector_code_of_float32(name: str) -> None:
    op: Any = registry[name]
    text = forward_source(op, adjit.float32)
    module: dict[str, Any] = {"__name__": "kernel"}
    exec(compile(text, "<kernel>", "exec"), module)
    (kernel,) = re.findall(r"^def (\w+)", text, re.MULTILINE)
    code = compile_function(module[kernel], SIGNATURE).library.get_llvm_str()
    assert "double" not in re.sub(r'"[^"]*"', "", code.split("define ")[1])
    assert re.search(r"<(4|8|16) x float>", code)


# ----- one op, one place -----


def test_a_toy_op_is_complete() -> None:
    @export(method=True, inplace=True)
    @elementwise(ref=lambda x, k: x * np.tanh(k * x))
    def toy(x, *, steepness=1.0):  # type: ignore[no-untyped-def]
        """x tanh(steepness x)."""
        return x * math.tanh(steepness * x)

    @toy.vjp
    def _(g, x, steepness):  # type: ignore[no-untyped-def]
        t = math.tanh(steepness * x)
        return g * (t + x * steepness * (1 - t * t))

    try:
        test_values(toy, adjit.float32)
        test_gradients_are_projected_differences(toy)
        test_second_gradients_are_projected_differences(toy)
        test_in_place_forms(toy)
        test_float32_kernels_hold_no_float64(toy)
        x = adjit.tensor([1.0, -2.0], requires_grad=True)
        y = x.toy(steepness=0.5)
        assert y.grad_fn.name() == "ToyBackward0"
        assert_close(y, x.detach().numpy() * np.tanh(0.5 * x.detach().numpy()), adjit.float32)
    finally:
        del (
            registry["toy"],
            scalar_functions["toy"],
            methods["toy"],
            methods["toy_"],
        )
        del adjit.Tensor.toy, adjit.Tensor.toy_
        del namespace[""]["toy"]


def test_a_new_attribute_compiles_nothing() -> None:
    op: Any = registry["leaky_relu"]
    x = adjit.rand(3)
    op(x, negative_slope=0.1)
    before = dict(op.op_records)
    np.testing.assert_allclose(op(-x, negative_slope=0.7).numpy(), -0.7 * x.numpy(), rtol=1e-6)
    assert op.op_records == before


def test_definitions_that_are_refused() -> None:
    @elementwise(ref=None, name="refused")
    def branching(x):  # type: ignore[no-untyped-def]
        if x > 0:
            x = x * 2
        return x

    @elementwise(ref=None, name="refused")
    def plain(x):  # type: ignore[no-untyped-def]
        return special.exp2(x)

    @elementwise(ref=None, name="refused")
    def unknown(x):  # type: ignore[no-untyped-def]
        return special.gcd(x, x)

    del registry["refused"], scalar_functions["refused"]
    with pytest.raises(TypeError, match="straight-line code, line 3 is If; write `a if condition"):
        branching(adjit.ones(1))
    with pytest.raises(TypeError, match=r"special\.gcd is not a scalar function of float32"):
        unknown(adjit.ones(1))
    with pytest.raises(TypeError, match=r"expected the parameters g and any of \['out', 'x'\]"):
        plain.vjp(lambda g, y: g * y)


def test_threads_parse_bodies_at_once() -> None:
    """Python's own parser raises a SystemError then, once in a while."""
    text = "def f(x):\n" + "".join(f"    t{k} = x * {k}\n" for k in range(60)) + "    return x\n"
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(200):
                parse(text)
        except SystemError as error:
            errors.append(error)

    collects, switches = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(1, 10**6, 10**6)
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*collects)
        sys.setswitchinterval(switches)
    assert errors == []


# ----- operators -----


def test_reflected_operators() -> None:
    x = adjit.tensor([1.0, 2.0])
    for found, wanted in (
        (3 + x, [4, 5]), (3 - x, [2, 1]), (3 * x, [3, 6]), (6 / x, [6, 3]), (5 // x, [5, 2]),
        (5 % x, [0, 1]), (3**x, [3, 9]),
    ):  # fmt: skip
        assert found.tolist() == wanted
    i = adjit.tensor([1, 6])
    for found, wanted in (
        (3 & i, [1, 2]), (1 | i, [1, 7]), (1 ^ i, [0, 7]), (1 << i, [2, 64]), (64 >> i, [32, 1]),
    ):  # fmt: skip
        assert found.tolist() == wanted


def test_operators_in_place() -> None:
    x = kept = adjit.tensor([7.0, -3.0])
    x += 1
    x -= 2
    x *= 3
    x /= 2
    x //= 2
    x %= 3
    x **= 2
    assert x is kept
    assert x.tolist() == [1.0, 0.0]
    i = kept = adjit.tensor([5, 12])
    i &= 6
    i |= 1
    i ^= 3
    i <<= 2
    i >>= 1
    assert i is kept
    assert i.tolist() == [((5 & 6 | 1) ^ 3) * 2, ((12 & 6 | 1) ^ 3) * 2]


@pytest.mark.parametrize("other", ["a", None, [1.0], {}], ids=repr)
def test_operators_leave_foreign_operands_to_python(other: Any) -> None:
    for family in native.families:  # which answers, too
        family.load(compiling=True)
    x = adjit.ones(2)
    for name in ("add", "radd", "sub", "rsub", "mul", "truediv", "rtruediv", "floordiv", "mod",
                 "pow", "rpow", "and", "or", "xor", "lshift", "lt", "le", "gt", "ge", "eq", "ne",
                 "iadd", "isub", "imul", "itruediv", "ipow"):  # fmt: skip
        assert getattr(x, f"__{name}__")(other) is NotImplemented
    assert (x == other) is False
    assert (x != other) is True
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+: 'Tensor' and"):
        x + other


# ----- against PyTorch -----

POINTS = np.array([0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 6, 20.5, -20.5, 0.25, 1e-3, 1.5, 7.25,
                   -0.75, 100, -100, np.inf, -np.inf, np.nan])  # fmt: skip

UNARY = """
abs neg sign signbit reciprocal sqrt rsqrt square floor ceil round trunc fix frac deg2rad rad2deg
exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sinc
erf erfc erfinv lgamma sigmoid logit relu nan_to_num isnan isinf isfinite isposinf isneginf
logical_not positive isreal special.expit special.gammaln special.ndtri special.entr
special.i0e
"""
ACTIVATIONS = """
relu6 leaky_relu elu selu celu gelu silu mish hardtanh hardsigmoid hardswish hardshrink softshrink
softsign tanhshrink softplus logsigmoid rrelu
"""
EXPRESSIONS = """
x**2; x**3; x**0.5; x**-1; x**0; x**1; x**2.5; x**-2; 2**x; 0**x; 2/x; 2-x; 2+x; x+2; x-2; x*3;
x/2; x%2; x%-2; T.fmod(x,2); x.clamp(-1,1); x.clamp(min=-1); x.clamp(max=1); x.clamp(1,-1);
x.clamp_min(0); x.clamp_max(0); x.nan_to_num(1,2,3); x.round(decimals=1); x.round(decimals=-1);
F.softplus(x,2,1); F.threshold(x,0.5,7); T.xlogy(2,x); T.xlogy(x,2); x.copysign(-1); x==1; x!=1;
x<1; x<=1; x>1; x>=1; T.float_power(x,2); x.add(1,alpha=3); T.sub(x,1,alpha=3);
T.rsub(x,1,alpha=3); T.lerp(x,x*2+1,0.3); x.div(2,rounding_mode='floor');
x.div(2,rounding_mode='trunc'); T.where(x>0,x,0.); T.where(x>0,1.,0.); T.where(x>0,1,0);
x.masked_fill(x>0,3); x.where(x>0,x*0); x+y; x-y; x*y; x/y; x%y; x**y; T.fmod(x,y);
T.maximum(x,y); T.minimum(x,y); T.fmax(x,y); T.fmin(x,y); T.hypot(x,y); T.atan2(x,y);
T.copysign(x,y); T.logaddexp(x,y); T.logaddexp2(x,y); T.xlogy(x,y); x==y; x!=y; x<y; x<=y; x>y;
x>=y; T.clamp(x,y,y*2); x.clamp_min(y); x.clamp_max(y); T.rsub(x,y); T.addcmul(x,y,y,value=2);
T.addcdiv(x,x,y,value=2); T.where(x>y,x,y); T.where(x>0,T.sqrt(x),y); T.lerp(x,y,y);
x.div(y,rounding_mode='floor'); x.div(y,rounding_mode='trunc'); T.isclose(x,y);
T.isclose(x,y,equal_nan=True,rtol=0.1); T.logical_and(x,y); T.logical_xor(x,y);
T.add(x,y,alpha=2); T.sub(x,y,alpha=2); F.prelu(x,y[:1]); x.masked_fill(x>0,y[2])
"""
CALLS = [
    *(f"T.{name}(x)" for name in UNARY.split()),
    *(f"F.{name}(x)" for name in ACTIVATIONS.split()),
    *(" ".join(e.split()) for e in EXPRESSIONS.split(";")),
]


def evaluate(library: Any, call: str) -> tuple[Any, str | None, int, list[Any]]:
    """The value of a call at all points, its backward node, and its gradients."""
    a = b = POINTS
    if "y" in re.findall(r"\b[xy]\b", call):
        a, b = (v.ravel() for v in np.meshgrid(POINTS, POINTS))
    if "F." in call:  # PyTorch's activations treat NaN as the width of its vectors has it
        keep = ~np.isnan(a)
        a, b = a[keep], b[keep]
    x, y = (library.tensor(v, requires_grad=True) for v in (a, b))
    out = eval(call, {"T": library, "F": library.nn.functional, "x": x, "y": y})
    value = out.detach().numpy()
    if out.grad_fn is None:
        return value, None, 0, []
    (out * library.tensor(np.linspace(0.5, 1.5, value.size))).sum().backward()
    gradients = [None if t.grad is None else t.grad.numpy() for t in (x, y)]
    return value, out.grad_fn.name(), len(out.grad_fn.next_functions), gradients


def assert_same(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_values_gradients_and_names_are_those_of_pytorch(call: str) -> None:
    """At kinks, zeros, infinities and NaN."""
    torch = pytest.importorskip("torch")
    wanted, name, edges, gradients = evaluate(torch, call)
    found, own_name, own_edges, own_gradients = evaluate(adjit, call)
    assert_same(found, wanted)
    assert own_name == name
    assert own_edges == edges
    for own, gradient in zip(own_gradients, gradients, strict=True):
        assert (own is None) == (gradient is None)
        if gradient is not None:
            if "hardsigmoid" in call:  # PyTorch rounds 1 / 6 to float32
                gradient = gradient.astype(np.float32).astype(np.float64)
                own = own.astype(np.float32).astype(np.float64)
                np.testing.assert_allclose(own, gradient, rtol=1e-6)
            else:
                assert_same(own, gradient)


ERRORS = """
-b; b-b; b-i; 1-b; i**-1; i//0; i%0; i//z; i%z; T.fmod(i,0); i.div(0,rounding_mode='trunc');
i.div(1,rounding_mode='up'); f&f; i&1.5; f|1; ~f; f<<1; T.bitwise_not(f);
T.bitwise_left_shift(b,b); f+'a'; f*None; f/[1]; f**'a'; 'a'**f; f//'a'; f%'a'; f<'a'; f&'a';
'a'&f; f<<'a'; T.abs(b); T.floor(b); T.frac(i); T.logaddexp(i,i); T.relu(b); T.hardshrink(i);
F.leaky_relu(i); F.elu(b); F.gelu(i); F.silu(i); F.softplus(i); F.logsigmoid(b); F.hardtanh(b);
F.gelu(f,approximate='x'); F.hardtanh(f,1,-1); F.prelu(f,f[:2]); T.where(i,f,f); f.clamp();
T.isclose(f,d); T.isclose(f,f,rtol=-1); T.lerp(f,d,0.5); T.addcdiv(f,i,i); T.heaviside(f,d);
f.masked_fill(i,1); f.masked_fill(b,f); i.add_(1.5); i.exp_(); i.div_(2); b.add_(1);
f.add_(T.ones(2,3)); f+T.ones(2); T.gcd(f,f); i+2**70; i.add(i,alpha=1.5); f.add(f,alpha='a');
b//b; b**b; T.positive(b); T.add(f,'a')
"""


@pytest.mark.parametrize("call", [" ".join(e.split()) for e in ERRORS.split(";")])
def test_errors_are_those_of_pytorch(call: str) -> None:
    torch = pytest.importorskip("torch")
    raised = []
    for library in (torch, adjit):
        names = {
            "T": library, "F": library.nn.functional, "i": library.tensor([1, 2, 3]),
            "b": library.tensor([True, False, True]), "f": library.tensor([1.0, 2.0, 3.0]),
            "d": library.tensor([1.0, 2.0, 3.0], dtype=library.float64),
            "z": library.tensor([1, 0, 2]),
        }  # fmt: skip
        with pytest.raises(Exception) as caught:  # noqa: PT011
            eval(call, names)
        raised.append((caught.type, re.sub(r"\btorch\.|\badjit\.", "", str(caught.value))))
    assert raised[1] == raised[0]


def test_promotion_is_that_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    names = ["bool", "uint8", "int8", "int32", "int64", "float32", "float64"]
    ops = {"add": adjit.add, "mul": adjit.mul, "div": adjit.div, "gt": adjit.gt, "pow": adjit.pow}
    for function_name, function in ops.items():
        for a in names:
            for b in [*names, 2, 2.5, *([True] if function_name != "pow" else [])]:
                for rank in (0, 1):
                    x = np.ones((1,) * rank)
                    outs = []
                    for library, call in (
                        (torch, getattr(torch, function_name)), (adjit, function)
                    ):  # fmt: skip
                        left = library.tensor(x, dtype=getattr(library, a))
                        right = (
                            library.tensor([1.0], dtype=getattr(library, b))
                            if isinstance(b, str)
                            else b
                        )
                        try:
                            outs.append(repr(call(left, right).dtype).split(".")[1])
                        except RuntimeError as error:
                            outs.append(str(error))
                    assert outs[0] == outs[1], (function_name, a, b, rank)


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
@pytest.mark.parametrize("number", [0.5, 1e-300, -0.0, float("nan"), -3, 0])
def test_a_number_is_true_unless_it_is_zero(name: str, number: float) -> None:
    x = np.array([0.0, -0.0, 0.25, np.nan, -2.0])
    found = getattr(adjit.tensor(x), name)(adjit.tensor(number, dtype=adjit.float64))
    np.testing.assert_array_equal(found.numpy(), getattr(np, name)(x, number))


EDGES = [0, 1, 2, 3, 7, 10, 2**31, 2**52, 2**53 - 1, 2**53, 2**53 + 1, 3 * 2**60, 2**62 - 1, 2**62, 2**62 + 1,
         2**63 - 2**11, 2**63 - 2**10, 2**63 - 2, 2**63 - 1]  # fmt: skip


def wrapped(number: int) -> int:
    """A number as 64 bits hold it."""
    return (number + 2**63) % 2**64 - 2**63


def quotients(x: Any, y: Any) -> list[list[int]]:
    """Quotients and rests of both kinds."""
    return [
        adjit.floor_divide(x, y).tolist(), adjit.remainder(x, y).tolist(),
        adjit.div(x, y, rounding_mode="trunc").tolist(), adjit.fmod(x, y).tolist(),
    ]  # fmt: skip


def expected_quotients(pairs: list[tuple[int, int]]) -> list[list[int]]:
    """The same, of Python's numbers."""
    found: list[list[int]] = [[], [], [], []]
    for x, y in pairs:
        towards_zero = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        for numbers, n in zip(
            found, (x // y, x % y, towards_zero, x - towards_zero * y), strict=True
        ):
            numbers.append(wrapped(n))
    return found


def test_whole_numbers_are_divided_exactly() -> None:
    """Machine code divides floats: the largest numbers, and those next to a multiple of the divisor."""
    rng = np.random.default_rng(0)
    edges = sorted({*EDGES, *[-n for n in EDGES], -(2**63)})
    pairs = [(x, y) for x in edges for y in edges if y]
    for bits in rng.integers(1, 64, (4000, 2)).tolist():
        x, y = (int(rng.integers(-(2 ** (b - 1)), 2 ** (b - 1))) or 1 for b in bits)
        pairs += [(x, y), (wrapped(x // y * y + int(rng.integers(-2, 3))), y)]
    x, y = (adjit.tensor(numbers) for numbers in zip(*pairs, strict=True))
    assert quotients(x, y) == expected_quotients(pairs)
    for divisor in (-(2**63), -7, -1, 1, 7, 10**12, 2**63 - 1):
        expected = expected_quotients([(n, divisor) for n, _ in pairs])
        assert quotients(x, divisor) == expected
    for kind, low, high in ((adjit.int8, -128, 128), (adjit.uint8, 0, 256)):
        every = [(x, y) for x in range(low, high) for y in range(low, high) if y]
        x, y = (adjit.tensor(numbers, dtype=kind) for numbers in zip(*every, strict=True))
        found, wanted = quotients(x, y), expected_quotients(every)
        assert found == [adjit.tensor(numbers).to(kind).tolist() for numbers in wanted]


BOUNDS = """
x.clamp(min=None,max=1); x.clamp(None,1); x.clamp(-1,None); x.clamp(t,1); x.clamp(-1,u);
T.clip(x,min=None,max=u); x.clamp(min=t,max=None); x.clone().clamp_(min=None,max=1);
x.clone().clamp_(t,1); x.clamp(t,u); x.clamp(True,2); x.clamp_min(min=t); T.clamp_max(x,u)
"""


@pytest.mark.parametrize("call", [" ".join(e.split()) for e in BOUNDS.split(";")])
def test_bounds_are_numbers_tensors_or_missing(call: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for library in (torch, adjit):
        x = library.tensor([-2.0, 0.5, 3.0, float("nan")])
        for low, high in ((-1.0, 1.0), (0.0, 2.0)):  # a bound is looked at, anew each time
            names = {"x": x, "T": library, "t": library.tensor(low), "u": library.tensor(high)}
            found.append(eval(call, names).tolist())
    np.testing.assert_array_equal(found[:2], found[2:])


def test_a_bound_with_dimensions_does_not_go_with_a_number() -> None:
    x = adjit.ones(3)
    for bound in (adjit.zeros(3), adjit.tensor(0.0, requires_grad=True)):
        with pytest.raises(TypeError, match=r"clamp\(\) received an invalid combination"):
            x.clamp(bound, 1)


# The last two are large enough for loops of their own; nothing is computed.
SHAPES = [(3,), (1,), (1, 1), (1, 5), (2, 3), (70, 40), (300, 200), (4096, 2048), (1 << 27,)]
WAYS_TO_LIE = {
    "dense": lambda whole: whole,
    "a row": lambda whole: whole[:1],
    "a column": lambda whole: whole[..., :1],
    "turned": lambda whole: whole.mT if whole.ndim > 1 else whole,
    "every second": lambda whole: whole[..., ::2],
    "repeated": lambda whole: whole[..., :1].expand(whole.shape),
}


@pytest.mark.in_turn(6)
@named(OPS)
def test_what_is_known_of_other_sizes_is_what_would_be_found_of_these(op):
    """Of operands that lie in all kinds of ways, and numbers; compared in `templates.py`."""
    kind = next(
        (k for k in (adjit.float32, adjit.int32, adjit.bool) if accepts(op, *[k] * op.arity)), None
    )
    if kind is None:
        pytest.skip("takes several dtypes")
    op.op_records.clear()
    op.sizes.families.clear()
    numbers = [()] if op.arity == 1 else [(), (0,), (op.arity - 1,)]
    with templates.checked() as counts:
        counts.clear()
        for order in (SHAPES, SHAPES[::-1]):
            for others in WAYS_TO_LIE.values():
                for shape in order:
                    whole = adjit.empty(shape, dtype=kind)
                    tensors = [*[whole] * (op.arity - 1), others(whole)]
                    for places in numbers:
                        operands = [2 if k in places else t for k, t in enumerate(tensors)]
                        key = [int if k in places else t._spec for k, t in enumerate(tensors)]
                        with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
                            elementwise_record.plan(op, tuple(operands), tuple(key))
    assert counts["used"] > 20
    op.op_records.clear()
    op.sizes.families.clear()


def test_what_comes_once_is_not_kept():
    op = registry["mul"]
    record = lambda n: adjit.ones(n, 2).mT * adjit.ones(n, 2).mT  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:  # no templates, which keep fewer
        patch.setattr(other_sizes.Family, "made", lambda *call: None)
        for n in range(30011, 30011 + MOST_MET_ONCE):
            record(n)
        before = len(op.op_records)
        for n in range(31000, 31000 + 3 * MOST_MET_ONCE):
            assert record(n).sum().item() == 2 * n
        assert len(op.op_records) == before
        for _ in range(2):  # whose record has gone, and now stays
            assert record(31000).shape == (2, 31000)
            for n in range(32000, 32000 + 2 * MOST_MET_ONCE):
                record(n)
        assert len(op.op_records) > before


def test_operands_that_lie_otherwise_are_told_apart():
    """Numbers, broadcast, transposed, of no elements, large ones: each beside what NumPy makes of it."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for a, b in (
        (x, x), (x, x[0]), (x, x[:, :1]), (x.T, x.T), (x[:, ::2], x[:, ::2]), (x[:0], x[:0]), (x, x[:1]),
        (x[0], x[0]), (x, x.astype(np.float64)), (x, x.astype(np.int32)),
        (np.ones((300, 300), np.float32),) * 2,
    ):  # fmt: skip
        found = adjit.tensor(a) * adjit.tensor(b)
        np.testing.assert_array_equal(found.numpy(), a * b)
        assert found.shape == (a * b).shape
    for number in (2, 2.5, True):
        for kind in (adjit.float32, adjit.int64, adjit.bool):
            for n in (3, 5):
                made = adjit.ones(n, dtype=kind) * number
                assert made.dtype == adjit.result_type(adjit.ones(n, dtype=kind), number)
                assert made.tolist() == [number * 1] * n
