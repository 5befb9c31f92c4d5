"""Which results depend on which inputs, found while a function runs: never fewer than there are.

An element of a tensor has a row of a sparse matrix of truth values, in which a column stands for an input. An
elementwise op joins the rows of its operands, a view shows rows of its memory, an op that moves elements moves
their rows: where to is told by the op itself, called with numbers that stand for rows. Sums and what goes along
axes join rows of these axes, products those that they add up. Any other op makes all its results depend on all
that its operands do.

For second derivatives a level also collects pairs of inputs whose product some op may contain: all pairs of a
row where an op is not linear, and of an elementwise op only those that its derivative reads.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy  # its `sparse` takes 130 ms, and is imported when it is first used

from .. import dtypes
from ..graph import inplace
from ..graph.fastpath import elementwise_recorder
from ..graph.levels import Gradients, Level, level_of
from ..graph.op_record import ElementwiseOp
from ..graph.record import is_tensor
from ..graph.view import alias, aliases
from ..ops.creation import tensor
from ..ops.resample import maps_of
from ..schedule.codegen.body import Body
from ..tensor import Tensor
from ..tracers.tracer import Tracer, tracer

Matrix: TypeAlias = Any  # of SciPy, in compressed rows, of truth values
Places: TypeAlias = npt.NDArray[np.int64]

# Ops whose results are elements of operands, or constants: their rules of tangents move elements.
MOVING = {
    "convert", "laid_out", "moved", "on_diagonal", "put_diagonal", "put_range", "put_slice", "tril", "triu",
    "look_up", "largest_at_places", "gather_grid", "scatter_grid", "scatter_number", "index", "join",
    "pile", "place_blocks", "scatter_masked", "select_masked", "copy_of", "filled_by_tensor",
    "take_at_places", "copy_rows", "fill_rows", "fill_rows_with", "select_rows", "take_flat", "repeated",
    "reverse", "rolled", "turned", "columns_of", "shuffled", "shuffled_channels", "unshuffled", "padded",
    "max_axis", "min_axis", "median_axis", "nanmedian_axis", "mode_axis", "kth_axis", "sort_axis",
    "topk_axis", "cummax_axis", "cummin_axis", "largest_of_windows", "unpool",
}  # fmt: skip
# Ops that add elements up where they move them: their vjps move elements back.
ADDING = {
    "add_at_places", "add_looked_up", "scatter_sum", "add_rows", "put", "put_flat", "image_of",
}  # fmt: skip
# Ops each of whose results comes of a part of `x` along axes, and the name of these.
REDUCING = {
    **dict.fromkeys(
        ["sum_all", "mean_all", "max_all", "min_all", "median_all", "nanmedian_all", "prod_all"], None
    ),
    **dict.fromkeys(
        ["sum_axes", "mean_axes", "amax_axes", "amin_axes", "aminmax_axes", "nansum_axes", "logsumexp_axes",
         "vector_norm_axes", "var_axes", "std_axes", "var_mean_axes", "std_mean_axes"], "axes",
    ),
    "prod_axis": "axis",
}  # fmt: skip
# Ops of one operand that go along an axis: a result may depend on all elements there.
ALONG = {
    "softmax_axis", "log_softmax_axis", "cumsum_axis", "cumprod_axis", "logcumsumexp_axis",
    "others_along",
}  # fmt: skip
# Products of matrices: the factors, and what is added.
PRODUCTS = {
    "mm": ("input", "mat2", None), "batched_product": ("x", "y", None), "mv": ("input", "vec", None),
    "dot": ("input", "tensor", None), "vdot": ("input", "other", None), "addmm": ("mat1", "mat2", "input"),
    "addmv": ("mat", "vec", "input"), "baddbmm": ("batch1", "batch2", "input"),
    "affine": ("input", "weight", "bias"),
}  # fmt: skip
CONVOLUTIONS = {"convolved", "convolved_with_bias"}
PIECEWISE_LINEAR = {
    "sum_all", "sum_axes", "mean_all", "mean_axes", "nansum_axes", "cumsum_axis", "max_all", "min_all",
    "amax_axes", "amin_axes", "aminmax_axes", "median_all", "nanmedian_all", "drop", "map_axes",
}  # fmt: skip
LINEAR = MOVING | ADDING | PIECEWISE_LINEAR


class RowMemory:
    """The rows of the elements of a memory, in the order in which they lie there; None: no input is in it."""

    __slots__ = ("rows", "start")

    def __init__(self, rows: Matrix | None, start: int) -> None:
        self.rows, self.start = rows, start


class Depending(Tracer):
    """A value, and where the rows of its elements are."""

    __slots__ = ("_memory",)
    _memory: RowMemory

    @property
    def _rows(self) -> Matrix | None:
        """A row for each element, in C order."""
        found = self._memory.rows
        return None if found is None else found[self._places.ravel()]

    @property
    def _places(self) -> Places:
        """Where the elements lie in the memory."""
        return places_of(self._spec, self._offset - self._memory.start)

    def _like(self, value: Tensor) -> Tensor:
        """Another value that depends on the same."""
        made: Tensor = self._level.depending(value, self._rows)
        return made

    def detach(self) -> Tensor:
        """The value, which depends on nothing."""
        return self._value.detach()

    def _values(self) -> Any:
        return self._value._values()

    def _number(self) -> Any:
        return self._value._number()

    def __bool__(self) -> bool:
        return bool(self._value)

    def __index__(self) -> int:
        return self._value.__index__()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return repr(self._value)


def places_of(spec: Any, start: int) -> Places:
    """Where the elements of a layout lie."""
    found: Places = np.full((1,) * spec.ndim, start, np.int64)
    for d, (size, stride) in enumerate(zip(spec.shape, spec.strides, strict=True)):
        steps = np.arange(size, dtype=np.int64) * stride
        found = found + steps.reshape([-1 if k == d else 1 for k in range(spec.ndim)])
    return found


class PatternLevel(Level):
    """A run of a function that finds what depends on its inputs, and with `pairs` which of these meet."""

    tracer_class = Depending

    def __init__(self, inputs: int, pairs: bool = False) -> None:
        super().__init__()
        self.inputs = inputs
        self.pairs: Matrix | None = (
            scipy.sparse.csr_array((inputs, inputs), dtype=bool) if pairs else None
        )

    def depending(self, value: Any, rows: Matrix | None) -> Any:
        """A value whose elements depend on inputs."""
        made = tracer(Depending, self, value, value._spec)
        if rows is not None and rows.nnz == 0:
            rows = None
        if rows is not None and not value._spec.contiguous:
            places = places_of(value._spec, 0).ravel()
            order = scipy.sparse.csr_array(
                (np.ones(len(places), bool), (places, np.arange(len(places)))),
                shape=(value._spec.extent, len(places)),
            )
            rows = order @ rows
        made._memory = RowMemory(rows, value._offset)
        return made

    def has(self, t: Any) -> bool:
        """Whether a tensor is one of this level."""
        return t.__class__ is Depending and t._level is self

    def value(self, t: Any) -> Any:
        """What a tensor stands for; so the parts of a list."""
        if t.__class__ is tuple or t.__class__ is list:
            return t.__class__(map(self.value, t))
        return t._value if self.has(t) else t

    def rows(self, t: Any) -> Matrix | None:
        """A row for each element of a tensor, None if it depends on nothing."""
        return t._rows if self.has(t) else None

    def meet(self, one: Matrix, other: Matrix) -> None:
        """Note that the inputs of a row of one may be multiplied by those of the same row of the other."""
        if self.pairs is not None:
            self.pairs = self.pairs + one.T.tocsr() @ other

    # ----- primitives -----

    def elementwise(
        self, op: ElementwiseOp, operands: tuple[Any, ...], attributes: tuple[Any, ...]
    ) -> Any:
        """Join the rows of the operands that the result depends on smoothly."""
        out = elementwise_recorder()(op, self.value(operands), attributes, False)
        if not (op.differentiable and out.dtype.is_floating_point):
            return out
        rows: dict[str, Matrix] = {}
        for name, t in zip(op.params, operands, strict=True):
            found = self.rows(t) if name not in op.body.logical else None
            if found is not None:
                rows[name] = found if t.shape == out.shape else found[broadcast(t.shape, out.shape)]
        if not rows:
            return out
        total = functools.reduce(lambda a, b: a + b, rows.values())
        if self.pairs is not None:
            for k, name in enumerate(op.params):
                if name in rows:
                    for read in smooth_reads(op.back, k):
                        if read == "out" or read in rows:
                            self.meet(rows[name], total if read == "out" else rows[read])
        return self.depending(out, total)

    def operation(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Join rows as the kind of operation says."""
        bound = op.bind(args, kwargs)
        given = {name: self.value(v) for name, v in bound.items()}
        made = op.with_bound(given)
        outs = made if made.__class__ is tuple else (made,)
        targets = op.differentiable_among(outs)
        rows = {name: r for name, v in bound.items() if (r := self.operand_rows(v)) is not None}
        if not rows or not targets or (op.back is None and op.rules.push is None):
            return made
        several = list(outs)
        for k in targets:
            found = self.dependence(op, given, rows, outs, k)
            if self.pairs is not None and found is not None and op.name not in LINEAR:
                self.meet_in(op, given, rows, found)
            several[k] = self.depending(outs[k], found)
        return tuple(several) if made.__class__ is tuple else several[0]

    def operand_rows(self, value: Any) -> Any:
        """The rows of an operand, of a list a list of those of its tensors; None where there are none."""
        if value.__class__ is tuple or value.__class__ is list:
            found = [self.rows(part) for part in value]
            return found if any(part is not None for part in found) else None
        return self.rows(value)

    def meet_in(self, op: Any, given: Any, rows: Any, found: Matrix) -> None:
        """Note the pairs of an operation that is not linear."""
        if op.name in PRODUCTS or op.name in CONVOLUTIONS:
            first, second, _ = PRODUCTS.get(op.name, ("input", "weight", None))
            if first not in rows or second not in rows:
                return
            if op.name in ("dot", "vdot"):
                self.meet(rows[first], rows[second])
                return
        self.meet(found, found)

    def dependence(self, op: Any, given: Any, rows: Any, outs: Any, k: int) -> Matrix | None:
        """The rows of result `k`."""
        if op.name in MOVING and op.rules.push is not None:
            return moved(op, given, rows, outs, k)
        if op.name in ADDING:
            return added_up(op, given, rows, outs)
        if op.name == "drop":
            return rows["x"]
        out = outs[k]
        if op.name in REDUCING and "x" in rows:
            return reduced(rows["x"], given["x"], given.get(REDUCING[op.name] or ""), out)
        if op.name in ALONG:
            x, axis = given["x"], given["axis"]
            if not x.ndim:
                return rows["x"]
            groups = np.arange(x.numel() // max(x.shape[axis], 1)).reshape(
                [1 if d == axis % x.ndim else n for d, n in enumerate(x.shape)]
            )
            return spread(rows["x"], np.broadcast_to(groups, x.shape).ravel())
        if op.name == "layer_norm_rows" and set(rows) == {"x"}:
            return spread(rows["x"], np.arange(out.numel()) // max(given["length"], 1))
        if op.name in PRODUCTS:
            return multiplied(op.name, given, rows, out)
        if op.name == "map_axes":
            return mapped(op, given, rows["x"])
        if op.name in CONVOLUTIONS and "weight" not in rows and "bias" not in rows:
            return convolved(given, rows["input"])
        return everything(rows, out.numel())

    def view(
        self, t: Any, shape: Any, strides: Any, offset: int, backward_name: str, vjp: Any
    ) -> Any:
        """View the value; the memory is the same."""
        made = alias(t._value, shape, strides, offset, backward_name, vjp)
        rows, at = t._memory.rows, made._offset - t._memory.start
        if (
            rows is not None
            and made._spec.numel
            and (at < 0 or at + made._spec.extent > rows.shape[0])
        ):
            raise RuntimeError(
                "as_strided() reaches beyond the memory whose dependence is known: make the whole of it the "
                "input"
            )
        return self.viewed(t, made)

    def views(self, t: Any, parts: Any, backward_name: str, vjp: Any) -> Any:
        """View the value several times."""
        return tuple([self.viewed(t, v) for v in aliases(t._value, parts, backward_name, vjp)])

    def viewed(self, t: Any, view: Any) -> Any:
        """A view of a tensor of this level."""
        made = tracer(Depending, self, view, view._spec)
        made._memory = t._memory
        return made

    def write(self, t: Any, made: Any, overlap: bool) -> None:
        """Write the value; the rows of what was written replace others in memory."""
        if not self.has(t):
            raise RuntimeError(
                "the function writes into a tensor that is none of its inputs: make it inside of the function, "
                "with new_zeros or zeros_like of an input"
            )
        inplace.adopt(t._value, self.value(made), overlap=overlap)
        memory, rows = t._memory, self.rows(made)
        if memory.rows is None and rows is None:
            return
        places = t._places.ravel()
        if memory.rows is None:
            size = self.memory_size(t)
            memory.rows = scipy.sparse.csr_array((size, self.inputs), dtype=bool)
        if rows is None:
            rows = scipy.sparse.csr_array((len(places), self.inputs), dtype=bool)
        order = np.arange(memory.rows.shape[0])
        order[places] = memory.rows.shape[0] + np.arange(len(places))
        memory.rows = scipy.sparse.vstack([memory.rows, rows], format="csr")[order]

    @staticmethod
    def memory_size(t: Any) -> int:
        """How many elements there are from where a memory starts."""
        value = t._value
        base = value if value._view_of is None else value._view_of.base
        return int(base._offset + base._spec.extent - t._memory.start)

    def factory(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A new tensor, which depends on nothing so far."""
        given = self.value(args)
        around = level_of(given)
        made = (
            function(*given, **kwargs)
            if around is None
            else around.factory(function, given, kwargs)
        )
        return self.depending(made, None)

    # ----- gradients -----

    def gradients(
        self, roots: Sequence[Any], grads: Sequence[Any], targets: Sequence[Any], below: Gradients
    ) -> list[Any]:
        """Gradients of values; what these depend on is not followed, so it is everything."""
        found = below([self.value(t) for t in roots], [self.value(g) for g in grads],
                      [self.value(t) for t in targets])  # fmt: skip
        if self.pairs is not None:
            self.pairs = scipy.sparse.csr_array(np.ones((self.inputs, self.inputs), bool))
        made: list[Any] = []
        for g in found:
            full = (
                None
                if g is None
                else scipy.sparse.csr_array(np.ones((g.numel(), self.inputs), bool))
            )
            made.append(None if g is None else self.depending(g, full))
        return made

    def adding_axis(self, t: Any, change: Callable[[Any], Any]) -> Any:
        """Refuse: no level around has examples while a pattern is found."""
        raise NotImplementedError("a sparsity pattern is not found inside of vmap")

    removing_axis = adding_axis

    def stripped(self, t: Any) -> Any:
        """A tensor as it is: one of this level has the axes of what it stands for."""
        return t

    dressed = stripped


# ----- rows of results -----


def broadcast(shape: Sequence[int], wide: Sequence[int]) -> Places:
    """The element of a tensor behind each of it broadcast."""
    own = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    return np.broadcast_to(own, wide).ravel()


def selecting(chosen: Places, size: int, kept: npt.NDArray[np.bool_] | None = None) -> Matrix:
    """The matrix that picks a row for each number, nothing where it is below 0."""
    at = np.flatnonzero(chosen >= 0)
    return scipy.sparse.csr_array(
        (np.ones(len(at), bool), (at, chosen[at])), shape=(len(chosen), size)
    )


def spread(rows: Matrix, groups: Places) -> Matrix:
    """Each row joined with all of its group."""
    joining = scipy.sparse.csr_array(
        (np.ones(len(groups), bool), (groups, np.arange(len(groups)))),
        shape=(int(groups.max(initial=-1)) + 1, len(groups)),
    )
    return (joining @ rows)[groups]


def everything(rows: Any, count: int) -> Matrix:
    """All results depend on all that any operand does."""
    several = [
        r for found in rows.values() for r in (found if isinstance(found, list) else [found])
    ]
    total = scipy.sparse.vstack([r for r in several if r is not None], format="csr")
    joined = scipy.sparse.csr_array(np.ones((1, total.shape[0]), bool)) @ total
    return joined[np.zeros(count, np.int64)]


def codes_of(given: Any, rows: Any) -> tuple[dict[str, Any], Matrix]:
    """Tensors with the numbers of rows, from 1, in the places of operands; and all these rows."""
    stacked: list[Matrix] = []
    count = 0

    def coded(value: Any, found: Matrix | None) -> Any:
        nonlocal count
        if found is None:
            return None
        numbers = np.arange(count + 1, count + 1 + found.shape[0], dtype=np.float64)
        stacked.append(found)
        count += found.shape[0]
        return tensor(numbers.reshape(value.shape), device=value.device)

    codes = {
        name: [coded(v, r) for v, r in zip(given[name], found, strict=True)] if isinstance(found, list)
        else coded(given[name], found)
        for name, found in rows.items()
    }  # fmt: skip
    return codes, scipy.sparse.vstack(stacked, format="csr")


def numbers_in(t: Any) -> Places:
    """The numbers of rows in a result of codes, -1 where there is none."""
    found: Places = (
        np.rint(t.detach().cpu().to(dtypes.float64).numpy()).astype(np.int64).ravel() - 1
    )
    return found


def moved(op: Any, given: Any, rows: Any, outs: Any, k: int) -> Matrix | None:
    """The rows of an op that moves elements: it moves their numbers."""
    codes, stacked = codes_of(given, rows)
    wide = {name: as_double(v) for name, v in given.items()}
    made = op.rules.push(wide, codes, outs)
    made = made if made.__class__ is tuple else (made,)
    if made[0] is None:
        return None
    return selecting(numbers_in(made[0]), stacked.shape[0]) @ stacked


def as_double(value: Any) -> Any:
    """Floating operands and dtypes as float64, in which numbers of rows are exact."""
    if value.__class__ is tuple or value.__class__ is list:
        return value.__class__(map(as_double, value))
    if isinstance(value, dtypes.dtype) and value.is_floating_point:
        return dtypes.float64
    return value.to(dtypes.float64) if is_tensor(value) and value.dtype.is_floating_point else value


def added_up(op: Any, given: Any, rows: Any, outs: Any) -> Matrix:
    """The rows of an op that adds elements up: its vjp says where each of them goes."""
    out = outs[0]
    if op.name in ("put", "put_flat") and not given["accumulate"]:
        found = moved(op, given, rows, outs, 0)
        assert found is not None
        return found
    codes = tensor(
        np.arange(1, out.numel() + 1, dtype=np.float64).reshape(out.shape), device=out.device
    )
    wide = {name: 1 if name == "alpha" else as_double(v) for name, v in given.items()}
    goes = op.pull(wide, [as_double(o) for o in outs], [codes])
    total: Any = None
    for name, found in rows.items():
        target = numbers_in(goes[name].expand(given[name].shape))
        term = selecting(target, out.numel()).T.tocsr() @ found
        total = term if total is None else total + term
    return total


def reduced(rows: Matrix, x: Any, axes: Any, out: Any) -> Matrix:
    """The rows of what goes along axes, all of them if there are none."""
    axes = (
        range(x.ndim) if axes is None or axes == () else (axes,) if isinstance(axes, int) else axes
    )
    gone = {d % x.ndim for d in axes} if x.ndim else set()
    shape = [1 if d in gone else n for d, n in enumerate(x.shape)]
    if int(np.prod(shape, dtype=np.int64)) != out.numel():
        return everything({"x": rows}, out.numel())
    result = broadcast(shape, x.shape)
    return selecting(result, out.numel()).T.tocsr() @ rows


def multiplied(name: str, given: Any, rows: Any, out: Any) -> Matrix:
    """The rows of a product of matrices, as they lie in the last two axes."""
    first, second, plus = PRODUCTS[name]
    x, y = given[first], given[second]
    rows_of = {"x": rows.get(first), "y": rows.get(second)}
    shapes = {"x": list(x.shape), "y": list(y.shape)}
    if name == "affine":  # by the transposed weight
        shapes["y"] = shapes["y"][::-1]
        if rows_of["y"] is not None:
            rows_of["y"] = rows_of["y"][np.arange(y.numel()).reshape(y.shape).T.ravel()]
        y = y.t()
    if x.ndim == 1:
        shapes["x"] = [1, *shapes["x"]]
    if y.ndim == 1:
        shapes["y"] = [*shapes["y"], 1]
    batch = np.broadcast_shapes(tuple(shapes["x"][:-2]), tuple(shapes["y"][:-2]))
    wide = (*batch, shapes["x"][-2], shapes["y"][-1])
    total: Any = None
    if rows_of["x"] is not None:
        total = one_factor(rows_of["x"], shapes["x"], -1, wide, y, rows_of["y"])
    if rows_of["y"] is not None:
        term = one_factor(rows_of["y"], shapes["y"], -2, wide, x, rows_of["x"])
        total = term if total is None else total + term
    if plus in rows:
        term = rows[plus][broadcast(given[plus].shape, out.shape)]
        total = term if total is None else total + term
    return total


FULL = 0.5  # of its elements are not zero: a matrix whose zeros are not looked at


def one_factor(
    rows: Matrix, shape: list[int], axis: int, wide: Sequence[int], other: Any, other_rows: Any
) -> Matrix:
    """The rows of a product that come of one factor: sums along an axis, but for zeros of a constant matrix."""
    if other_rows is None and len(shape) == 2 and other.ndim == 2:
        matrix = scipy.sparse.csr_array(other.detach().numpy() != 0)
        if matrix.nnz < FULL * max(other.numel(), 1):
            if axis == -1:
                return (
                    scipy.sparse.kron(
                        scipy.sparse.eye_array(shape[0], dtype=bool), matrix.T, format="csr"
                    )
                    @ rows
                )
            return (
                scipy.sparse.kron(
                    matrix, scipy.sparse.eye_array(shape[1], dtype=bool), format="csr"
                )
                @ rows
            )
    summed = list(shape)
    summed[axis] = 1
    groups = broadcast(summed, shape)
    joined = selecting(groups, int(np.prod(summed, dtype=np.int64))).T.tocsr() @ rows
    return joined[broadcast(summed, wide)]


def convolved(given: Any, rows: Matrix) -> Matrix:
    """The rows of a convolution by constant weights, whose zeros take nothing."""
    image, weight, geometry = given["input"], given["weight"], given["geometry"]
    taken = weight.detach().numpy() != 0
    groups, each = geometry.groups, weight.shape[0] // geometry.groups
    total: Any = None
    for tap in itertools.product(*map(range, geometry.kernel)):
        channels = taken[(slice(None), slice(None), *tap)]
        if not channels.any():
            continue
        places = scipy.sparse.csr_array(np.ones((1, 1), bool))
        for d, k in enumerate(tap):
            at = (
                np.arange(geometry.out[d]) * geometry.stride[d]
                - geometry.padding[d]
                + k * geometry.dilation[d]
            )
            at[at >= geometry.image[d]] = -1
            places = scipy.sparse.kron(
                places, selecting(np.maximum(at, -1), geometry.image[d]), format="csr"
            )
        mixed = scipy.sparse.block_diag(
            [scipy.sparse.csr_array(channels[g * each : (g + 1) * each]) for g in range(groups)],
            format="csr",
        )
        term = scipy.sparse.kron(mixed, places, format="csr")
        total = term if total is None else total + term
    if total is None:
        size = weight.shape[0] * int(np.prod(geometry.out)), rows.shape[0] // max(image.shape[0], 1)
        total = scipy.sparse.csr_array(size, dtype=bool)
    return (
        scipy.sparse.kron(scipy.sparse.eye_array(image.shape[0], dtype=bool), total, format="csr")
        @ rows
    )


def mapped(op: Any, given: Any, rows: Matrix) -> Matrix:
    """The rows of what is interpolated or mirrored along axes: what each of them does to unit vectors."""
    x = given["x"]
    by_axis = {to.axis: to for to in given["maps"].axes}
    total = scipy.sparse.csr_array(np.ones((1, 1), bool))
    for d, size in enumerate(x.shape):
        matrix: Matrix = scipy.sparse.eye_array(size, dtype=bool)
        if d in by_axis:
            units = tensor(np.eye(size)).reshape(
                [size if k in (0, d) else 1 for k in range(x.ndim)]
            )
            made = op.with_bound({"x": units, "maps": maps_of(by_axis[d])})
            matrix = scipy.sparse.csr_array(made.reshape(size, -1).numpy().T != 0)
        total = scipy.sparse.kron(total, matrix, format="csr")
    return total @ rows


# ----- what derivatives read -----


@functools.cache
def smooth_reads(back: Body, k: int) -> frozenset[str]:
    """The values that the derivative of an operand changes with: a comparison is constant on both sides."""
    statements, _ = back.needed([k])
    names = _smooth_names(back.results[k])
    for statement in reversed(statements):
        written = {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        if written & names:
            names |= _smooth_names(statement.value)
    return frozenset(names)


def _smooth_names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Compare):
        return set()
    if isinstance(node, ast.IfExp):
        return _smooth_names(node.body) | _smooth_names(node.orelse)
    if isinstance(node, ast.Name):
        return {node.id}
    return set().union(*map(_smooth_names, ast.iter_child_nodes(node)))
