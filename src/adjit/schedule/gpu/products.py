"""Products of matrices by cuBLASLt, where it is installed; the tiles of `kernels/ops/matmul.py` do the others.

What cuBLASLt takes: matrices of float32 and float64, of which each operand lies by rows or by columns,
batches a constant distance apart or all the same one. A sum that comes with a product is its too, if it is
a row that is added to every row as it is, or a matrix like the result. A ReLU is not: cuBLASLt's is
max(x, 0), and does not promise to keep NaN. It stays with the elementwise operations that follow.

cuBLASLt counts by columns, where we count by rows: out = left @ right is for it
out.T = right.T @ left.T, so the right operand is its A and the left one its B.

An algorithm is looked up once for a shape, or rather two: one for operands at multiples of 16 bytes,
one for any. Its workspace is memory of the current stream, like every result.
"""

from __future__ import annotations

import functools
import warnings
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from ... import config, cublas
from ...cublas import Library, Matrix
from ...kernels.ops import matmul
from ...kernels.runtime import launcher
from ...shapes import Shape, coalesce, numel
from ..jit import nvidia
from ..jit.cache import instantiate
from ..planning.recipe import Recipe, Source

MOST_WORKSPACE = 32 << 20  # bytes, what NVIDIA recommends for Hopper
WORKSPACE_ALIGNMENT = (
    256  # bytes, as cuBLASLt's log says; blocks of the pool lie at multiples of 512
)
MOST_CALLS = 4096  # whose algorithms are kept

TYPES = {"float32": cublas.R_32F, "float64": cublas.R_64F}  # of which this makes products
COMPUTE = {  # products of float32
    matmul.FULL: cublas.COMPUTE_32F,
    matmul.TF32: cublas.COMPUTE_32F_FAST_TF32,
    matmul.BF16: cublas.COMPUTE_32F_FAST_16BF,
}


class DeviceProduct(NamedTuple):
    """A product that cuBLASLt may take, as it sees it."""

    kind: str
    precision: int
    summand: int  # one of `launcher`: NONE, VECTOR, MATRIX
    transposes: tuple[int, int]
    matrices: tuple[Matrix, Matrix, Matrix, Matrix]  # A, B, C and D


class ProductCall:
    """A product whose descriptors and algorithms are there."""

    by_table = False

    def __init__(self, library: Library, handle: int, product: DeviceProduct) -> None:
        self._library, self.summand = library, product.summand
        self.layouts: list[int] = []
        self.is_single = product.kind == "float32"
        kind = TYPES[product.kind]
        compute = COMPUTE[product.precision] if self.is_single else cublas.COMPUTE_64F
        has_row = self.summand == launcher.VECTOR
        epilogue = cublas.EPILOGUE_BIAS if has_row else cublas.EPILOGUE_DEFAULT
        self.operation = library.operation(compute, kind, product.transposes, epilogue)
        for matrix in product.matrices:
            self.layouts.append(library.layout(kind, matrix))
        self.found: list[cublas.FoundAlgorithm | None] = []
        for alignment in (launcher.ALIGNMENT, 4 if self.is_single else 8):
            if has_row:
                library.expect_bias(self.operation, alignment)
            self.found.append(
                library.search(handle, self.operation, self.layouts, MOST_WORKSPACE, alignment)
            )
        known = [found for found in self.found if found is not None]
        self.workspace = max([found.workspace for found in known], default=0)
        self.words = (
            library.address("cublasLtMatmul"), library.address("cublasLtMatmulDescSetAttribute"),
            handle, self.operation, *self.layouts, *[found.address for found in known],
        )  # fmt: skip

    def __del__(self) -> None:
        for layout in self.layouts:
            self._library.destroy("cublasLtMatrixLayout", layout)
        if hasattr(self, "operation"):
            self._library.destroy("cublasLtMatmulDesc", self.operation)

    def row(self, row: Sequence[Any], workspace: Any, stream: int, report: int) -> list[Any]:
        """The words of `launcher.multiply` over the words of a row of the CPU's kernel."""
        left, right, *others = row
        bias, alpha, beta = 0, ONE, 0
        if self.summand != launcher.NONE:
            bias, *others = others
            beta, alpha = row[-2:]
        return [
            *self.words, workspace, self.workspace, stream, report, int(self.is_single), self.summand,
            right, left, bias, others[0], beta, alpha,
        ]  # fmt: skip


ONE = array("q", array("d", [1.0]).tobytes())[0]  # its bits


class Products:
    """The products that cuBLASLt makes on one GPU."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._calls: dict[DeviceProduct, ProductCall | None] = {}

    def call(self, recipe: Recipe) -> ProductCall | None:
        """What makes the product of a recipe, None if it is none that cuBLASLt takes."""
        if self._started is None:
            return None
        product = product_of(recipe)
        if product is None:
            return None
        if product not in self._calls:
            if len(self._calls) >= MOST_CALLS:
                self._calls.clear()
            self._owner.driver.use(self._owner.index)
            made = ProductCall(*self._started, product)
            self._calls[product] = None if None in made.found else made
        return self._calls[product]

    def error(self, code: int) -> RuntimeError:
        """What a status code of a call means."""
        assert self._started is not None
        return self._started[0].error(code, "cublasLtMatmul")

    @functools.cached_property
    def _started(self) -> tuple[Library, int] | None:
        """The library and a handle for the GPU, None where it is not installed or cannot be used."""
        path = nvidia.cublaslt() if config.CUBLASLT else None
        if path is None:
            return None
        try:
            library = library_at(path)
            self._owner.driver.use(self._owner.index)
            return library, library.handle()
        except (OSError, AttributeError, RuntimeError) as error:
            warnings.warn(
                f"cuBLASLt cannot be used ({error}; {path}); products run on adjit's own kernels. "
                "Install the one for the driver's version of CUDA, pip install 'adjit[cublas12]' or "
                "'adjit[cublas13]', or set ADJIT_CUBLASLT=off",
                RuntimeWarning,
                stacklevel=2,
            )
            return None


@functools.cache
def library_at(path: str) -> Library:
    """The library in a file, loaded once."""
    return Library(path)


def source() -> Source:
    """The kernel of the runner that calls cuBLASLt."""
    return instantiate(launcher.multiply, {})


def product_of(recipe: Recipe) -> DeviceProduct | None:
    """A recipe as cuBLASLt sees it, None if that is no product, or none that it takes."""
    origin = recipe.steps[0].source.origin if len(recipe.steps) == 1 else None
    if origin.__class__ is not tuple or origin[0] not in (matmul.product, matmul.product_and_bias):
        return None
    if origin[1]["T"] not in TYPES:
        return None
    return _product_of(origin[1]["T"], origin[0] is matmul.product_and_bias, recipe.constants)


class Placed(NamedTuple):
    """How cuBLASLt sees a matrix: by rows, or by columns when `transposed`, `ld` elements apart."""

    row: int
    column: int
    transposed: int
    ld: int


def placed(shape: Shape, strides: Shape) -> Placed | None:
    """Where the last two axes lie, or None if cuBLASLt cannot read them without a copy."""
    rows, columns = shape[-2:]
    row, column = strides[-2:]
    if rows == 0 or columns == 0:
        return Placed(max(columns, 1), 1, 0, max(columns, 1))
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return Placed(row, column, 0, row if rows > 1 else columns)
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return Placed(row, column, 1, column if columns > 1 else rows)
    return None


@functools.lru_cache(MOST_CALLS)
def _product_of(kind: str, has_bias: bool, c: tuple[int, ...]) -> DeviceProduct | None:
    rows, columns, depth = c[matmul.ROWS : matmul.DEPTH + 1]
    axes = c[matmul.BATCH_AXES]
    sizes, *strides = (
        c[matmul.BATCH_SIZES + k * axes : matmul.BATCH_SIZES + (k + 1) * axes] for k in range(4)
    )
    whole, strides = coalesce(sizes, strides)
    left = placed((rows, depth), c[matmul.LEFT_ROW : matmul.LEFT_COLUMN + 1])
    right = placed((depth, columns), c[matmul.RIGHT_ROW : matmul.RIGHT_COLUMN + 1])
    if left is None or right is None or len(whole) > 1 or rows * columns * numel(sizes) == 0:
        return None
    if c[matmul.ACTIVATION] != matmul.IDENTITY:
        return None
    batches = numel(whole)
    to_left, to_right, to_bias = (s[0] if s else 0 for s in strides)
    summand, added = launcher.NONE, None
    made = Matrix(columns, rows, columns, rows * columns if batches > 1 else 0, batches)
    if has_bias:
        bias_row, bias_column = c[matmul.BIAS_ROW : matmul.BIAS_COLUMN + 1]
        is_row = (bias_row == 0 or rows == 1) and (bias_column == 1 or columns == 1)
        added = placed((rows, columns), (bias_row, bias_column))
        if is_row and not to_bias and not c[matmul.SCALED]:
            summand, added = launcher.VECTOR, None
        elif added is not None and not added.transposed:
            summand = launcher.MATRIX
        else:
            return None
    return DeviceProduct(
        kind, c[matmul.PRECISION], summand,
        (right.transposed, left.transposed),
        (
            _matrix(depth, columns, right, to_right, batches),
            _matrix(rows, depth, left, to_left, batches),
            made if added is None else made._replace(ld=added.ld, stride=to_bias),
            made,
        ),
    )  # fmt: skip


def _matrix(rows: int, columns: int, place: Placed, stride: int, batches: int) -> Matrix:
    """An operand of `rows` by `columns`, whose rows are columns for cuBLASLt."""
    if place.transposed:
        rows, columns = columns, rows
    return Matrix(columns, rows, place.ld, stride, batches)
