"""Products of matrices and vectors."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import config, dtypes
from ..devices import CPU
from ..dtypes import dtype
from ..graph import record
from ..graph.batching import Batch, folded, unfolded
from ..graph.calls import short
from ..graph.export import add_method, export
from ..graph.launch import launch
from ..graph.node import Spec
from ..graph.normalized import forget_calls, normalizes_in_order, remembering
from ..graph.operation import operation
from ..graph.view import as_own
from ..graph.wrong_types import declined
from ..kernels.ops import dot_tile, gemm_tile
from ..kernels.ops import matmul as kernels
from ..kernels.ops import matrix_vector as vectors
from ..schedule.jit.modules import emitted
from ..schedule.planning.recipe import Source
from ..schedule.settle import float_word
from ..shapes import Shape, broadcast_shapes, broadcast_strides, coalesce, numel
from ..tensor import Tensor
from ..unknown import cached
from .dots import are_worth_it, panel_of, segment_dots

# Multiplications below which a product is not worth a second thread. 100 x 100 x 100, the first size
# that is split: 78 GFLOP/s on one thread, 98 to 121 on two.
GRAIN = 1 << 18
LEAST = 1 << 11  # multiplications that take as long as what else a unit takes
FEW = 64  # multiplications of an entry of a batch that are made one by one
VECTOR_GRAIN = 1 << 15  # the same where one operand is a vector, which memory bounds
# Rows by a matrix that lies by columns, as a layer's weight does, up to which nothing is packed: by 1024 x
# 1024 float32 two take 82 us for 298 and four 138 for 297, with AVX2 111 and 199 for 226, five more than that.
FEW_ROWS = 4
# Elements of a matrix from which on a vector has a kernel of its own although something is added to the
# product: 1024 x 1024 take 55 us for 186, 64 x 64 take 3.2 for 2.6.
APART = 1 << 13
# Rows from which on a sum is apart where they are shorter than a vector: 1000 x 2 by 10 take 6.6 us for 16.2.
MANY_NARROW = 256
INTEGER_ROWS = 32


# --------------------------------------------------------------------------- precision


PRECISIONS = {"highest": kernels.FULL, "high": kernels.TF32, "medium": kernels.BF16}


def use_precision(precision: str) -> None:
    """Set how exactly products of float32 have to be computed; what ops have recorded is forgotten."""
    if precision != config.MATMUL_PRECISION:
        config.MATMUL_PRECISION = precision
        forget_products()


def forget_products() -> None:
    """Have what is recorded next planned anew."""
    plan_product.cache_clear()
    forget_calls()


# --------------------------------------------------------------------------- geometry


class Product(NamedTuple):
    """One way to run a product: its kernel, the kernel's constant words, and the units."""

    kernel: Any
    shape: Shape
    words: tuple[int, ...]
    n: int
    grain: int
    swapped: bool = False  # the kernel's left operand is the right one
    runs: int = 0  # of columns, where the threads of a CPU share these


@functools.cache
def float_kernels(kind: dtype) -> tuple[Source, Source]:
    """`product` and `product_and_bias`."""
    unit = emitted("matmul", kernels.emit, kind.name)
    sources = []
    for place, function in enumerate((kernels.product, kernels.product_and_bias)):
        name = function.__name__
        text = f'"""{name}_{kind.name}: vector instructions from adjit.kernels.ops.matmul."""'
        source = Source(name, text, (function, {"T": kind.stored}))
        source.label, source.unit = f"{name}_{kind.name}", (unit, place)
        sources.append(source)
    return sources[0], sources[1]


@functools.cache
def memory_words() -> tuple[int, int, int]:
    """The addresses of functions that allocate and release memory without the GIL, and of the words that keep
    some.
    """
    names = ("PyMem_RawMalloc", "PyMem_RawFree")
    functions = [getattr(ctypes.pythonapi, name) for name in names]
    first, second = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
    return first, second, ctypes.addressof(_kept)


_kept = (ctypes.c_int64 * kernels.KEPT_BLOCKS)()


@cached(4096)
def plan_product(
    kind: dtype, x_shape: Shape, x_strides: Shape, y_shape: Shape, y_strides: Shape,
    bias_shape: Shape | None, bias_strides: Shape, activation: int = kernels.IDENTITY,
    is_scaled: bool = False,
) -> Product:  # fmt: skip
    """Everything about `x @ y` that does not depend on the elements.

    A result of one column is computed as one row, which fills vectors, and a batch of matrices by one matrix as
    one matrix of all their rows.
    """
    rows, depth = x_shape[-2:]
    columns = y_shape[-1]
    batch = broadcast_shapes(x_shape[:-2], y_shape[:-2])
    shape = (*batch, rows, columns)
    added = broadcast_strides(bias_shape or (), bias_strides, shape)
    sizes, (left, right, bias) = coalesce(
        (*batch, rows),
        [
            (*broadcast_strides(x_shape[:-2], x_strides[:-2], batch), x_strides[-2]),
            (*broadcast_strides(y_shape[:-2], y_strides[:-2], batch), 0),
            added[:-1],
        ],
    )
    rows, left_row, bias_row = 1, 0, 0
    if sizes and right[-1] == 0:
        rows, left_row, bias_row = sizes[-1], left[-1], bias[-1]
        sizes, left, right, bias = sizes[:-1], left[:-1], right[:-1], bias[:-1]
    operands = [left, right, bias]
    strides, bias_column = (left_row, x_strides[-1], *y_strides[-2:]), added[-1]
    swapped = columns == 1 < rows and kind.is_floating_point and depth > 0
    if swapped:
        rows, columns, strides = columns, rows, strides[::-1]
        bias_row, bias_column = bias_column, bias_row
        operands[:2] = operands[1::-1]
    batch_words = itertools.chain(sizes, *operands)
    if kind.is_floating_point and depth > 0:
        kernel = float_kernels(kind)[bias_shape is not None]
        panel = gemm_tile.WIDTH * gemm_tile.lanes_of(kind.itemsize)
        height, blocks = kernels.UNIT_ROWS, -(-columns * kind.itemsize // gemm_tile.BLOCK_BYTES)
        # Threads that shared few rows would each read the whole right operand.
        if rows <= kernels.FEW_SWEPT and columns * kind.itemsize >= kernels.LONG_BYTES:
            blocks = max(blocks, 2)
        width = -(-columns // (max(blocks, 1) * panel)) * panel
        if is_paired := bias_shape is None and may_be_symmetric(
            x_shape, x_strides, y_shape, y_strides
        ):
            height, blocks = 2 * height, 1
    else:
        kernel, height, blocks, width = kernels.plain_product, INTEGER_ROWS, 1, columns
        is_paired = False
    tiles = -(-rows // height)
    precision = PRECISIONS[config.MATMUL_PRECISION]
    words = (
        *memory_words(), rows, columns, depth, *strides,
        bias_row, bias_column, activation, precision, is_scaled, is_paired, width, blocks, tiles, len(sizes),
        *batch_words,
    )  # fmt: skip
    across = columns if is_paired else min(width, columns)
    grain = max(1, GRAIN // max(min(height, rows) * across * depth, LEAST))
    return Product(kernel, shape, words, numel(sizes) * blocks * tiles, grain, swapped)


def may_be_symmetric(x_shape: Shape, x_strides: Shape, y_shape: Shape, y_strides: Shape) -> bool:
    """Whether this is x @ x.T, as far as shapes tell, and large enough to compute only half of it."""
    shape, strides = ((*of[:-2], *of[:-3:-1]) for of in (x_shape, x_strides))
    return (y_shape, y_strides) == (shape, strides) and min(x_shape[-2:]) >= kernels.PAIRED_SIZE


def multiply(x: Tensor, y: Tensor) -> Tensor:
    """`x @ y` of matrices or batches of matrices, or a matrix and a vector, recorded."""
    kind = x.dtype
    if is_outer(x, y):  # in C order, not in that of operands which are turned
        return x.contiguous() * y.contiguous()
    if not kind.is_floating_point:
        y = y.contiguous()
    by_vector = None
    if x.ndim == 2:
        if y.ndim == 1:
            x = with_dense_axis(x)
            by_vector = plan_vector(kind, x.shape, x._spec.strides, y._spec.strides[0], x.shape[:1])
        elif y.ndim == 2 and y.shape[1] == 1:
            by_vector = plan_vector(
                kind, x.shape, x._spec.strides, y._spec.strides[0], (x.shape[0], 1)
            )
        elif y.ndim == 2 and x.shape[0] == 1:
            turned, strides = y.shape[::-1], y._spec.strides[::-1]
            by_vector = plan_vector(kind, turned, strides, x._spec.strides[1], (1, y.shape[1]))
            by_vector = by_vector and by_vector._replace(swapped=True)
    if by_vector is None and y.ndim == 1:
        return multiply(x, y.unsqueeze(1)).view(x.shape[0])
    plan = by_vector
    if plan is None and x.device is CPU:
        given = kind, x.shape, x._spec.strides, y.shape, y._spec.strides
        plan = plan_few(*given) if x.ndim > 2 else None
        plan = plan or plan_few_rows(*given) or plan_few_columns(*given)
    if plan is None:
        plan = plan_product(kind, x.shape, x._spec.strides, y.shape, y._spec.strides, None, ())
    operands = (y, x) if plan.swapped else (x, y)
    if plan.runs and x.device is CPU:
        return multiply_by_runs(operands, plan)
    return launch(
        plan.kernel, operands, [(plan.shape, kind)],
        bind={"T": kind}, words=plan.words, n=plan.n, grain=plan.grain,
    )  # fmt: skip


def is_outer(x: Tensor, y: Tensor) -> bool:
    """Whether each element of `x @ y` is one product: 300,000 packed take 218 us, 37 like this."""
    return y.ndim > 1 and x.shape[-1] == 1 and x.dtype.is_floating_point


def axes_of_batch(
    x_shape: Shape, x_strides: Shape, y_shape: Shape, y_strides: Shape
) -> tuple[Shape, Shape, list[Shape]]:
    """The batch of a product, as few axes as lead through it, and the strides of both operands along these."""
    batch = broadcast_shapes(x_shape[:-2], y_shape[:-2])
    left = broadcast_strides(x_shape[:-2], x_strides[:-2], batch)
    right = broadcast_strides(y_shape[:-2], y_strides[:-2], batch)
    return batch, *coalesce(batch, [left, right])


@cached(4096)
def plan_few_rows(
    kind: dtype, x_shape: Shape, x_strides: Shape, y_shape: Shape, y_strides: Shape
) -> Product | None:
    """A few vectors by a matrix that lies by columns, or batches of these; None where they are more, or lie in
    another way."""
    (rows, depth), columns = x_shape[-2:], y_shape[-1]
    if not kind.is_floating_point or not 0 < rows <= FEW_ROWS or depth < vectors.NARROW:
        return None
    if (x_strides[-1], y_strides[-2]) != (1, 1):
        return None
    batch, sizes, (left, right) = axes_of_batch(x_shape, x_strides, y_shape, y_strides)
    more = 2 - len(sizes)
    if more < 0:
        return None
    inner = (1, 1, *sizes)[-1]
    apart = (*[0] * more, *right, *[0] * more, *left)
    words = (columns, depth, y_strides[-1], x_strides[-2], rows, inner, *apart)
    grain = -(-VECTOR_GRAIN // (depth * rows))
    n = numel(batch) * columns
    return Product(vectors.rows_by_vectors, (*batch, rows, columns), words, n, grain, swapped=True)


@cached(4096)
def plan_few_columns(
    kind: dtype, x_shape: Shape, x_strides: Shape, y_shape: Shape, y_strides: Shape
) -> Product | None:
    """Rows by a few columns that lie apart, as those of a layer's weight do, or batches of these: 4096 x 512 by
    2 take 123 us for 667. None where they are more, or lie in another way."""
    depth, columns = x_shape[-1], y_shape[-1]
    if not kind.is_floating_point or (x_strides[-1], y_strides[-2]) != (1, 1):
        return None
    lanes = gemm_tile.lanes_of(kind.itemsize)
    if not are_worth_it(columns, lanes, -(-depth // lanes), depth):
        return None
    batch, sizes, (left, right) = axes_of_batch(x_shape, x_strides, y_shape, y_strides)
    rows = x_shape[-2]
    if len(sizes) == 1 and (left[0], right[0]) == (rows * x_strides[-2], 0):
        rows, sizes, left, right = rows * sizes[0], (), (), ()
    more = 2 - len(sizes)
    if more < 0:
        return None
    panel, inner = panel_of(columns), (1, 1, *sizes)[-1]
    words = (
        segment_dots(kind), kind.itemsize, depth, x_strides[-2], columns, y_strides[-1], panel,
        dot_tile.dot_rows(panel), rows, inner, *[0] * more, *left, *[0] * more, *right,
    )  # fmt: skip
    grain = -(-VECTOR_GRAIN // (depth * columns))
    shape, n = (*batch, x_shape[-2], columns), numel(batch) * x_shape[-2]
    return Product(vectors.rows_by_columns, shape, words, n, grain)


@cached(4096)
def plan_few(
    kind: dtype, x_shape: Shape, x_strides: Shape, y_shape: Shape, y_strides: Shape
) -> Product | None:
    """A batch of matrices of few elements, or None where they are more, or do not lie in one step."""
    rows, depth = x_shape[-2:]
    columns = y_shape[-1]
    if not kind.is_floating_point or not 0 < rows * columns * depth <= FEW:
        return None
    batch, sizes, (left, right) = axes_of_batch(x_shape, x_strides, y_shape, y_strides)
    if len(sizes) != 1:
        return None
    words = (rows, columns, depth, *left, *x_strides[-2:], *right, *y_strides[-2:])
    grain = max(1, VECTOR_GRAIN // (rows * columns * depth))
    return Product(kernels.few_by_few, (*batch, rows, columns), words, sizes[0], grain)


def multiply_by_runs(operands: tuple[Tensor, Tensor], plan: Product) -> Tensor:
    """A matrix of few rows, which lies by columns, and a vector: threads share the columns."""
    kind, rows = operands[0].dtype, plan.words[0]
    grain = max(1, VECTOR_GRAIN // (vectors.COLUMN_RUN * rows))
    return launch(
        [(vectors.runs_by_vector, plan.runs, grain), (vectors.total_of_runs, rows, rows)],
        operands, [(plan.shape, kind)], bind={"T": kind}, words=plan.words,
        scratch=plan.runs * rows * kind.itemsize,
    )  # fmt: skip


@cached(4096)
def plan_vector(
    kind: dtype, shape: Shape, strides: Shape, step: int, result: Shape
) -> Product | None:
    """A matrix by a vector whose elements lie `step` apart, or None where neither rows nor columns
    of the matrix are dense.
    """
    (rows, columns), (down, across) = shape, strides
    if not kind.is_floating_point or columns == 0:
        return None
    if across == 1 or columns == 1:
        words = (rows, columns, down, step)
        grain = -(-VECTOR_GRAIN // columns)
        return Product(vectors.rows_by_vector, result, words, rows, grain)
    if down == 1 or rows == 1:
        words = (rows, columns, across, step)
        units = -(-rows // vectors.COLUMNS_OF_A_UNIT)
        grain = -(-VECTOR_GRAIN // (columns * vectors.COLUMNS_OF_A_UNIT))
        runs = -(-columns // vectors.COLUMN_RUN)
        enough = max(2, min(-(-rows // vectors.ROWS_OF_A_RUN), vectors.MANY_RUNS))
        shared = runs if rows <= vectors.STRIP and runs >= enough else 0
        return Product(vectors.columns_by_vector, result, words, units, grain, runs=shared)
    return None


def with_dense_axis(x: Tensor) -> Tensor:
    """`x`, or a copy where neither its rows nor its columns are dense."""
    return x if 1 in x._spec.strides or 1 in x.shape else x.contiguous()


def multiply_add(
    bias: Tensor, x: Tensor, y: Tensor, beta: Any, alpha: Any, activation: int = kernels.IDENTITY
) -> Tensor:
    """`activation(beta * bias + alpha * (x @ y))`, recorded; in one pass for floats, unless that takes longer.

    The bits are those of the operations one by one, but for a few rows or columns that `x @ y` alone does not
    pack. Only floats take an activation.
    """
    kind = x.dtype
    for factor in (beta, alpha):
        dtypes.check_fits(factor, kind)
    is_apart = activation == kernels.IDENTITY and x.ndim == y.ndim and is_quicker_apart(x, y)
    if kind.is_floating_point and x.shape[-1] > 0 and beta != 0 and not is_apart:
        plan = plan_product(
            kind,
            x.shape,
            x._spec.strides,
            y.shape,
            y._spec.strides,
            bias.shape,
            bias._spec.strides,
            activation,
            beta != 1,
        )
        return launch(
            plan.kernel, (y, x, bias) if plan.swapped else (x, y, bias), [(plan.shape, kind)],
            words=plan.words, scalars=(float_word(beta), float_word(alpha)),
            n=plan.n, grain=plan.grain, activation=kernels.ACTIVATION,
        )  # fmt: skip
    if not kind.is_floating_point:
        beta, alpha = int(beta), int(alpha)
    product = multiply(x, y)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return product + (bias if beta == 1 else bias * beta)


def is_quicker_apart(x: Tensor, y: Tensor) -> bool:
    """Whether `x @ y` and a sum take less time one after the other: where nothing is packed and an operand or
    the result is large, and where rows are many and shorter than a vector, as those of batches nearly always
    are: 135 of 95x1 by 1x5 take 22 us for 198."""
    (rows, depth), columns = x.shape[-2:], y.shape[-1]
    is_batch, is_narrow = x.ndim > 2, columns <= gemm_tile.lanes_of(x.dtype.itemsize)
    if is_narrow and (is_batch or rows >= MANY_NARROW) and x.device is CPU:
        return True
    if is_batch:
        return depth == 1 and x.device is CPU
    if max(rows * depth, depth * columns, rows * columns) < APART:
        return False
    given = x.dtype, x.shape, x._spec.strides, y.shape, y._spec.strides
    is_few = x.device is CPU and (plan_few_rows(*given) or plan_few_columns(*given)) is not None
    return is_few or 1 in (rows, depth, columns)


# --------------------------------------------------------------------------- checks


def check_multiplies(operator: str, kind: dtype) -> None:
    """Raise for the dtypes that have no product."""
    if kind is dtypes.bool:
        raise NotImplementedError(f"\"{operator}\" not implemented for 'Bool'")


def check_dims(x: Tensor, ndim: int, message: str) -> None:
    """Raise if `x` has another number of axes."""
    if x.ndim != ndim:
        raise RuntimeError(message)


def check_matrices(x: Tensor, y: Tensor) -> None:
    """Raise if `x @ y` has no meaning."""
    if x.shape[1] != y.shape[0]:
        (a, b), (c, d) = x.shape, y.shape
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a}x{b} and {c}x{d})")


def check_batches(x: Tensor, y: Tensor) -> None:
    """Raise if two batches of matrices do not fit."""
    check_dims(x, 3, "batch1 must be a 3D tensor")
    check_dims(y, 3, "batch2 must be a 3D tensor")
    if (x.shape[0], x.shape[2]) != tuple(y.shape[:2]):
        raise RuntimeError(
            "Expected size for first two dimensions of batch2 tensor to be: "
            f"[{x.shape[0]}, {x.shape[2]}] but got: [{y.shape[0]}, {y.shape[1]}]."
        )


# Products of two matrices from which on PyTorch asks MKL, whose errors have other texts.
LEAST_OF_MKL = 400


def check_dtypes(x: Tensor, y: Tensor) -> None:
    """Raise if two batches have no product, or different dtypes, in the words of what PyTorch asks for it."""
    if x.shape[-2] * x.shape[-1] * y.shape[-1] < LEAST_OF_MKL:
        check_multiplies("bmm", x.dtype)
        wanted, found = x.dtype, y.dtype
    elif y.dtype.is_floating_point:
        wanted, found = y.dtype, x.dtype
    else:
        if x.dtype is not y.dtype:
            raise RuntimeError(
                f"expected m1 and m2 to have the same dtype, but got: {x.dtype.row.c} != {y.dtype.row.c}"
            )
        check_multiplies("addmm_impl_cpu_", x.dtype)
        return
    if wanted is not found:
        raise RuntimeError(f"expected scalar type {wanted.legacy} but found {found.legacy}")


def check_expands(x: Tensor, shape: Sequence[int]) -> None:
    """Raise if `x` does not broadcast to `shape`."""
    x.expand(tuple(shape))


# --------------------------------------------------------------------------- matrices


@export(method=True, out=True)
@operation("MmBackward0")
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Product of two matrices, without broadcasting.

    Args:
        input: (n, m), any dtype but bool.
        mat2: (m, p), of the same dtype.

    Returns:
        A tensor (n, p). Differentiable in both arguments.

    Raises:
        RuntimeError: if an argument is no matrix, or sizes or dtypes do not fit.

    Example:
        >>> adjit.mm(adjit.tensor([[2., 1.]]), adjit.tensor([[1., 2.], [3., 4.]]))
        tensor([[5., 8.]])
    """
    record.check_tensor("mm", "mat2", 2, mat2)
    check_product(input, mat2)
    return multiply(input, mat2)


mm.multilinear("input", "mat2")


@mm.vjp
def _(g: Tensor, input: Tensor, mat2: Tensor, layouts: Any) -> Any:
    return product_like(layouts[0], g, mat2.t()), product_like(layouts[1], input.t(), g)


def product_like(spec: Spec, x: Tensor, y: Tensor) -> Tensor:
    """`x @ y`, turned where `spec` is: the gradient of a transposed weight lies as the weight does."""
    is_turned = not spec.contiguous and spec.strides == (1, spec.shape[0])
    return y.t().mm(x.t()).t() if is_turned else x.mm(y)


def check_product(input: Tensor, mat2: Tensor) -> None:
    """Raise if `mm` of two tensors has no meaning."""
    check_dims(input, 2, "self must be a matrix")
    check_dims(mat2, 2, "mat2 must be a matrix")
    check_matrices(input, mat2)
    if input.dtype is not mat2.dtype:
        raise RuntimeError(
            "expected m1 and m2 to have the same dtype, but got: "
            f"{input.dtype.row.c} != {mat2.dtype.row.c}"
        )
    check_multiplies("addmm_impl_cpu_", input.dtype)


@mm.batched
def _(batch: Batch, input: Tensor, mat2: Tensor) -> Tensor:
    check_product(input, mat2)
    if batch.has(mat2):
        return batch.wrapped(batched_product(batch.full(input), batch.full(mat2)))
    rows = batch.full(input)
    return batch.wrapped(unfolded(mm(folded(rows), mat2), batch.size))


@operation("UnsafeViewBackward0")
def product_of_lines(x: Tensor, y: Tensor) -> Tensor:
    """The product of the lines of a tensor, as rows, and a matrix."""
    return as_own(mm(lines_of(x), y).view(*x.shape[:-1], y.shape[1]))


product_of_lines.multilinear("x", "y")


@product_of_lines.vjp
def _(g: Tensor, x: Tensor, y: Tensor, layouts: Any) -> Any:
    return product_of_lines(g, y.t()), product_like(layouts[1], lines_of(x).t(), lines_of(g))


@product_of_lines.batched
def _(batch: Batch, x: Tensor, y: Tensor) -> Tensor:
    full = batch.full(x)
    if not batch.has(y):
        return batch.wrapped(product_of_lines(full, y))
    rows = full.reshape(full.shape[0], numel(full.shape[1:-1]), full.shape[-1])
    made = batched_product(rows, batch.full(y))
    return batch.wrapped(made.view(*full.shape[:-1], y.shape[1]))


@operation("BmmBackward0")
def batched_product(x: Tensor, y: Tensor) -> Tensor:
    """`x @ y` over any number of batch axes, which broadcast."""
    if (
        x.ndim == y.ndim == 3
        and y._spec.strides[0] == 0
        and y.shape[0] == x.shape[0] > 1 < x.shape[1]
    ):
        return multiply(x.reshape(x.shape[0] * x.shape[1], x.shape[2]), y[0]).view(
            *x.shape[:2], y.shape[2]
        )
    return multiply(x, y)


batched_product.multilinear("x", "y")


@batched_product.vjp
def _(g: Tensor, x: Tensor, y: Tensor, layouts: Any) -> Any:
    return (
        batched_product_like(layouts[0], g, y.transpose(-2, -1)),
        batched_product_like(layouts[1], x.transpose(-2, -1), g),
    )


def batched_product_like(spec: Spec, x: Tensor, y: Tensor) -> Tensor:
    """`x @ y`, turned where `spec` is one transposed weight for all examples."""
    is_turned = spec.ndim == 3 and spec.strides == (0, 1, spec.shape[1]) and spec.shape[1] > 1
    if is_turned:
        return batched_product(y.transpose(-2, -1), x.transpose(-2, -1)).transpose(-2, -1)
    return batched_product(x, y)


@batched_product.batched
def _(batch: Batch, x: Tensor, y: Tensor) -> Tensor:
    axes = max(x.ndim, y.ndim)
    return batch.wrapped(batched_product(in_axes(batch, x, axes), in_axes(batch, y, axes)))


def in_axes(batch: Batch, t: Tensor, axes: int) -> Tensor:
    """One tensor that broadcasts with others whose examples have so many axes."""
    if not batch.has(t):
        return t
    whole = batch.full(t)
    return whole.reshape(whole.shape[0], *[1] * (axes - t.ndim), *t.shape)


@export(method=True, out=True)
@normalizes_in_order
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Product of two batches of matrices, entry by entry, without broadcasting.

    Args:
        input: (b, n, m), any dtype but bool.
        mat2: (b, m, p), of the same dtype.

    Returns:
        A tensor (b, n, p). Differentiable in both arguments.

    Raises:
        RuntimeError: if the shapes or dtypes do not fit.

    Example:
        >>> adjit.bmm(adjit.ones(4, 2, 3), adjit.ones(4, 3, 5)).shape
        adjit.Size([4, 2, 5])
    """
    record.check_tensor("bmm", "mat2", 2, mat2)
    check_batches(input, mat2)
    check_dtypes(input, mat2)
    return batched_product.on(input, mat2)


# --------------------------------------------------------------------------- vectors


@export(method=True, out=True)
@operation("MvBackward0")
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Product of a matrix and a vector.

    Args:
        input: (n, m), any dtype but bool.
        vec: (m,), of the same dtype.

    Returns:
        A tensor (n,). Differentiable in both arguments.

    Raises:
        RuntimeError: if the shapes or dtypes do not fit.

    Example:
        >>> adjit.mv(adjit.tensor([[1., 2.], [3., 4.]]), adjit.tensor([1., 1.]))
        tensor([3., 7.])
    """
    record.check_tensor("mv", "vec", 2, vec)
    check_vector_product(input, vec, input.shape[:1], vec.dtype)
    return multiply(input, vec)


mv.multilinear("input", "vec")


@mv.vjp
def _(g: Tensor, input: Tensor, vec: Tensor) -> Any:
    return outer(g, vec), input.t().mv(g)


@mv.batched
def _(batch: Batch, input: Tensor, vec: Tensor) -> Tensor:
    check_vector_product(input, vec, input.shape[:1], vec.dtype)
    if not batch.has(input):
        return batch.wrapped(mm(batch.full(vec), input.t()))
    made = batched_product(batch.full(input), batch.full(vec).unsqueeze(-1))
    return batch.wrapped(made.squeeze(-1))


def check_vector_product(matrix: Tensor, vec: Tensor, added: Sequence[int], kind: dtype) -> None:
    """Raise if `matrix @ vec` has no meaning, or if its sum with a vector has none."""
    if matrix.ndim != 2 or vec.ndim != 1 or len(added) > 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {len(added)}, {matrix.ndim}, {vec.ndim}"
        )
    rows, columns = matrix.shape
    if columns != vec.shape[0] or (added and added[0] not in (rows, 1)):
        raise RuntimeError(
            f"size mismatch, got input ({added[0] if added else 1}), mat ({rows}x{columns}), "
            f"vec ({vec.shape[0]})"
        )
    if not matrix.dtype is vec.dtype is kind:
        raise RuntimeError(
            "addmv input tensors must have the same dtype, but got "
            f"{kind.legacy}, {matrix.dtype.legacy}, and {vec.dtype.legacy}"
        )
    check_multiplies("addmv_impl_cpu", matrix.dtype)


def check_dot(x: Tensor, y: Tensor) -> None:
    """Raise if `x` and `y` have no dot product."""
    if x.ndim != 1 or y.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {x.ndim}D and {y.ndim}D tensors")
    if x.dtype is not y.dtype:
        raise RuntimeError(
            "dot : expected both vectors to have same dtype, but found "
            f"{x.dtype.legacy} and {y.dtype.legacy}"
        )
    (a,), (b,) = x.shape, y.shape
    if a != b:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{a}] and src [{b}] to have the same "
            f"number of elements, but got {a} and {b} elements respectively"
        )
    check_multiplies("dot", x.dtype)


def multiply_vectors(x: Tensor, y: Tensor) -> Tensor:
    """The dot product of two vectors, recorded."""
    kind, length = x.dtype, x.shape[0]
    blocks = -(-length // kernels.DOT_BLOCK)
    return launch(
        [
            (kernels.dot_blocks, blocks, max(1, GRAIN // 16 // kernels.DOT_BLOCK)),
            (kernels.dot_total, 1, 1),
        ],
        (x, y), [((), kind)], bind={"T": kind, "A": kind},
        words=(length, x._spec.strides[0], y._spec.strides[0]), scratch=max(blocks, 1) * kind.itemsize,
    )  # fmt: skip


@export(method=True, out=True)
@operation("DotBackward0")
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Sum of the products of two vectors.

    Args:
        input: (n,), any dtype but bool.
        tensor: (n,), of the same dtype.

    Returns:
        A 0-d tensor. Differentiable in both arguments.

    Raises:
        RuntimeError: if an argument is no vector, or sizes or dtypes differ.

    Example:
        >>> adjit.dot(adjit.tensor([2., 3.]), adjit.tensor([2., 1.]))
        tensor(7.)
    """
    record.check_tensor("dot", "tensor", 2, tensor)
    check_dot(input, tensor)
    return multiply_vectors(input, tensor)


dot.multilinear("input", "tensor")


@dot.vjp
def _(g: Tensor, input: Tensor, tensor: Tensor) -> Any:
    return g * tensor, g * input


@dot.batched
def _(batch: Batch, input: Tensor, tensor: Tensor) -> Tensor:
    return dots(batch, input, tensor)


def dots(batch: Batch, x: Tensor, y: Tensor) -> Tensor:
    """The dot products of two vectors in all examples."""
    check_dot(x, y)
    product = batched_product(batch.full(x).unsqueeze(1), batch.full(y).unsqueeze(2))
    return batch.wrapped(product.reshape(batch.size))


@export(method=True, out=True)
@operation("VdotBackward0")
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """Sum of the products of two vectors, conjugating the first; see `dot`.

    Differentiable.

    Example:
        >>> adjit.vdot(adjit.tensor([2., 3.]), adjit.tensor([2., 1.]))
        tensor(7.)
    """
    record.check_tensor("vdot", "other", 2, other)
    check_dot(input, other)
    return multiply_vectors(input, other)


vdot.multilinear("input", "other")


@vdot.vjp
def _(g: Tensor, input: Tensor, other: Tensor) -> Any:
    return g * other, g * input


@vdot.batched
def _(batch: Batch, input: Tensor, other: Tensor) -> Tensor:
    return dots(batch, input, other)


@export(method=True, out=True)
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of two vectors.

    Args:
        input: (n,).
        vec2: (m,).

    Returns:
        A tensor (n, m). Differentiable in both arguments.

    Raises:
        RuntimeError: if an argument is no vector.

    Example:
        >>> adjit.outer(adjit.tensor([1., 2.]), adjit.tensor([3., 4.]))
        tensor([[3., 4.],
                [6., 8.]])
    """
    record.check_tensor("outer", "vec2", 2, vec2)
    check_dims(input, 1, f"outer: Expected 1-D argument self, but got {input.ndim}-D")
    check_dims(vec2, 1, f"outer: Expected 1-D argument vec2, but got {vec2.ndim}-D")
    return input.unsqueeze(1) * vec2


@export(method=True, out=True)
def ger(input: Tensor, vec2: Tensor) -> Tensor:
    """Compute the outer product: the old name of `outer`.

    Differentiable.

    Example:
        >>> adjit.tensor([1., 2.]).ger(adjit.tensor([3., 4.]))
        tensor([[3., 4.],
                [6., 8.]])
    """
    return outer(input, vec2)


# --------------------------------------------------------------------------- any shapes


def folds(x: Tensor, y: Tensor) -> bool:
    """Whether the batch axes of `x` become rows of one matrix that meets a matrix or vector `y`.

    That spares the gradient of `y` an intermediate with batch axes.
    """
    if x._spec.ndim < 3 or y._spec.ndim > 2:
        return False
    if x._spec.contiguous or y.requires_grad or x.numel() == 0:
        return True
    strides = x._spec.strides
    return all(strides[d] == strides[d + 1] * x.shape[d + 1] for d in range(x.ndim - 2))


def lines_of(x: Tensor) -> Tensor:
    """The lines along the last axis as rows of a matrix; -1 would not tell how many there are of length 0."""
    return x.reshape(numel(x.shape[:-1]), x.shape[-1])


@export(method=True, out=True)
@normalizes_in_order
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Product of vectors, matrices, or batches of matrices, as `@`.

    Two vectors give their dot product, a matrix and a vector the matrix-vector product. A vector
    on the left is a row, on the right a column, and the axis put in for it is taken out again.
    Axes before the last two are batch axes and broadcast.

    Args:
        input: (n,), (n, m) or (..., n, m), any dtype but bool.
        other: (m,), (m, p) or (..., m, p), of the same dtype.

    Returns:
        The product. Differentiable in both arguments.

    Raises:
        RuntimeError: if an argument is 0-d, or sizes or dtypes do not fit.

    Example:
        >>> (adjit.ones(10, 1, 2, 3) @ adjit.ones(5, 3, 4)).shape
        adjit.Size([10, 5, 2, 4])
    """
    record.check_tensor("matmul", "other", 2, other)
    x, y = input, other
    left, right = x._spec.ndim, y._spec.ndim
    if left == right == 2:
        return mm.on(x, y)
    if left == 0 or right == 0:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {left}D and {right}D"
        )
    if right == 1:
        if left == 1:
            return dot.on(x, y)
        if left == 2:
            return mv.on(x, y)
        if folds(x, y):
            return as_own(mv(lines_of(x), y).view(x.shape[:-1]))
        return as_own(batched(x, y.unsqueeze(1)).squeeze(-1))
    if right == 2:
        if left == 1:
            return as_own(mm(x.unsqueeze(0), y).squeeze(0))
        if x._spec.contiguous:
            return product_of_lines.on(x, y)
        return product_of_lines(x, y) if folds(x, y) else batched(x, y)
    if left == 1:
        turned = y.transpose(-2, -1)
        if folds(turned, x):
            return as_own(mv(lines_of(turned), x).view(turned.shape[:-1]))
        return as_own(batched(x.unsqueeze(0), y).squeeze(-2))
    if left == 2 and x.requires_grad:
        turned = y.transpose(-2, -1)
        product = mm(lines_of(turned), x.t())
        return as_own(product.view(*turned.shape[:-1], x.shape[0]).transpose(-2, -1))
    check_batched(x, y)
    return batched_product(x, y) if left == 2 else batched_product.on(x, y)


export(namespace="linalg", out=True)(matmul)


def left_operator(self: Tensor, other: Any) -> Any:
    """`self @ other`."""
    if isinstance(other, Tensor):
        return matmul(self, other)
    return declined("__matmul__", self, other)


def right_operator(self: Tensor, other: Any) -> Any:
    """`other @ self`."""
    if isinstance(other, Tensor):
        return matmul(other, self)
    return declined("__rmatmul__", self, other)


add_method("__matmul__", short(remembering[matmul].all_calls, left_operator))
add_method("__rmatmul__", right_operator)


def batched(x: Tensor, y: Tensor) -> Tensor:
    """The general case of `matmul`: matrices with batch axes that broadcast."""
    check_batched(x, y)
    return batched_product(x, y)


def check_batched(x: Tensor, y: Tensor) -> None:
    """Raise if two batches of matrices whose batch axes broadcast do not fit."""
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    if x.shape[-1] != y.shape[-2]:
        count = numel(batch)
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{count}, "
            f"{x.shape[-1]}] but got: [{count}, {y.shape[-2]}]."
        )
    check_dtypes(x, y)
