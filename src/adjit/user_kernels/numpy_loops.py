"""Functions of NumPy's that are loops of the library, or views: how they are called, what stands for them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from . import library, library_orders, library_shapes
from .expressions import Expressions
from .source import Function
from .structure import Atom
from .values import (
    NEW_AXIS,
    ArrayExpression,
    ArrayLike,
    ArrayView,
    BoundMethod,
    PythonObject,
    Strided,
    TupleValue,
    Value,
    is_array,
)

Handler = Callable[..., Value]
_LOOP = "write it as a loop, or as a function of your own"


class NumpyLoops(Expressions):
    """Reads calls of the functions of `_CALLS`."""

    def loop_call(self, f: Any, e: ast.Call, owner: ArrayLike | None = None) -> Value | None:
        """A call of one of them, or of the method of that name; None if it is another function."""
        if f not in _CALLS:
            return None
        parameters, handler = _CALLS[f]
        values = self._arguments(parameters, e, owner)
        return None if values is None else handler(self, e, *values)

    def method_call(self, m: BoundMethod, e: ast.Call) -> Value | None:
        if m.name == "sort" and not e.args and not e.keywords:
            return self.sort_in_place(m.owner, e)
        if m.name == "round" and len(e.args) + len(e.keywords) < 2:
            return self.loop_call(np.round, e, m.owner)
        found = _METHODS.get(m.name)
        return None if found is None else self.loop_call(found, e, m.owner)

    def _arguments(
        self, parameters: str, e: ast.Call, owner: ArrayLike | None
    ) -> list[Value] | None:
        """The values of a call's parameters in order; None where it has others."""
        names = [p.partition("=")[0] for p in parameters.split()]
        defaults = [p.partition("=")[2] for p in parameters.split()]
        given: dict[str, Value] = {} if owner is None else {names[0]: owner}
        left = names[len(given) :]
        keywords = [k.arg for k in e.keywords]
        if len(e.args) > len(left) or not {*keywords} <= {*left[len(e.args) :]}:
            return None
        nodes = dict(zip(left, e.args, strict=False)) | {str(k.arg): k.value for k in e.keywords}
        if any(
            n not in nodes and not d for n, d in zip(names, defaults, strict=True) if n not in given
        ):
            return None
        for name, node in nodes.items():
            items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else None
            given[name] = (
                self.expression(node)
                if items is None
                else TupleValue(tuple(map(self.expression, items)))
            )
        for name, default in zip(names, defaults, strict=True):
            if name not in given:
                value = ast.literal_eval(default)
                is_number = isinstance(value, (bool, int, float))
                given[name] = value if is_number else PythonObject(value)
        return [given[name] for name in names]

    # ----- arguments -----

    def _view(self, value: Value, e: ast.AST, ndim: Sequence[int] = (1, 2, 3, 4)) -> ArrayView:
        """An argument that has memory, and so many dimensions."""
        view = self.settled(value, e)
        if not isinstance(view, ArrayView):
            self.reject(e, "this function of something that is no array", "give it an array")
        if view.ndim not in ndim:
            self.reject(e, f"this function of an array of {view.ndim} dimensions", _LOOP)
        return view

    def _vector(self, value: Value, e: ast.AST) -> ArrayView:
        """An argument as one row of elements, as it is read where NumPy flattens it."""
        view = self._view(value, e)
        if view.ndim == 1:
            return view
        flat = self.run_library("flatten", [view], e)
        assert isinstance(flat, ArrayView)
        return flat

    def _of_floats(self, value: Value, e: ast.AST, ndim: Sequence[int] = (1, 2)) -> ArrayView:
        """An array of float64, whatever numbers it had."""
        view = self._view(value, e, ndim)
        return view if view.dtype == "f8" else self._view(self.apply("float64", [view], e), e)

    def _both_of_floats(
        self, a: Value, b: Value, e: ast.AST, ndim: Sequence[int]
    ) -> list[ArrayView]:
        views = [self._view(v, e, ndim) for v in (a, b)]
        return [self._view(v, e) for v in self.promoted_floats(views, e)]

    def _literal(self, value: Value, e: ast.AST) -> int:
        if type(value) is not int:
            self.reject(e, "this argument, which is no number of the text,", "write it as a number")
        return value

    def _is_none(self, value: Value) -> bool:
        return isinstance(value, PythonObject) and value.value is None

    def _size_or(self, value: Value, other: Atom, e: ast.AST) -> Atom:
        return other if self._is_none(value) else self.atom(value, e)

    def loops(self, name: str, array: Value, rest: Sequence[Value], e: ast.AST) -> Value:
        """The loops of that name for an array's dimensions."""
        return self.run_library(name, [self._view(array, e), *rest], e)

    def _reads(self, view: ArrayView) -> tuple[ArrayView, ...]:
        """What an element may be read from anywhere in."""
        return (ArrayView(view.name, view.dtype, view.dims, ()),)

    def each(
        self, function: Function, values: Sequence[Value], e: ast.AST, *, dtype: str = "",
        fixed: Sequence[Value] = (),
    ) -> Value:  # fmt: skip
        """A function of the library on numbers, element by element where one is an array."""
        arrays = [v for v in values if is_array(v)]
        operands = [v if is_array(v) else self.atom(v, e) for v in values]
        if not arrays:
            return self.run(function, [*operands, *fixed], e, is_library=True)
        shape = self.common_shape(arrays, e)
        dtype = dtype or self.dtype_of_result("/", operands, e)

        def element(index: list[Atom]) -> Atom:
            given = self.elements(operands, index, e)
            found = self.atom(self.run(function, [*given, *fixed], e, is_library=True), e)
            return self.op("float32", [found], e) if dtype == "f4" else found

        reads = tuple(
            r for a in arrays for r in (a.reads if isinstance(a, ArrayExpression) else (a,))
        )
        reads += tuple(r for v in fixed if isinstance(v, ArrayView) for r in self._reads(v))
        return self.settled(ArrayExpression(tuple(shape), dtype, element, reads, self.writes), e)

    # ----- order -----

    def _argsort(self, e: ast.Call, a: Value, kind: Value) -> Value:
        found = kind.value if isinstance(kind, PythonObject) else None
        if found not in ("quicksort", "mergesort"):
            self.reject(e, "this kind of order", "write 'quicksort' or 'mergesort'")
        name = "argsort" if found == "quicksort" else "argsort_stable"
        return self.run_library(name, [self._view(a, e, [1])], e)

    def sort_in_place(self, owner: ArrayLike, e: ast.Call) -> Value:
        if not isinstance(owner, ArrayView):
            self.reject(e, "sorting something that has no name", "call np.sort")
        self.run_library("assign", [owner, self.loops("sort", owner, [], e)], e)
        return PythonObject(None)

    def _sorted(self, view: ArrayView, e: ast.AST, *, only_numbers: bool = False) -> ArrayView:
        if only_numbers and view.dtype[0] == "f":
            numbers = self._mask("not", [self.apply("np.isnan", [view], e)], e)
            view = self.where_true(view, numbers, e)
        return self._view(self.run_library("sort", [view], e), e)

    def _mask(self, function: str, args: list[Value], e: ast.AST) -> ArrayLike:
        found = self.apply(function, args, e)
        assert is_array(found)
        return found

    def _median(self, e: ast.Call, a: Value, only_numbers: bool) -> Value:
        order = self._sorted(self._vector(a, e), e, only_numbers=only_numbers)
        function = (
            library_orders.median_of_numbers if only_numbers else library_orders.median_of_sorted
        )
        return self.run(function, [order], e, is_library=True)

    def _quantile(
        self, e: ast.Call, a: Value, q: Value, factor: float, only_numbers: bool
    ) -> Value:
        floats = self._of_floats(self._vector(a, e), e)
        order = self._sorted(floats, e, only_numbers=only_numbers)
        return self.each(library_orders.percentile_of_sorted, [self._numbers(q, e)], e, dtype="f8",
                         fixed=[order, factor])  # fmt: skip

    def _numbers(self, value: Value, e: ast.AST) -> Value:
        """A number or an array; a tuple or list of numbers as an array."""
        if not isinstance(value, TupleValue):
            return value
        made = self.make([len(value.items)], None, "f8", e, "t")
        for k, item in enumerate(value.items):
            self.store(made.name, self.place(made, [k], e), self.atom(item, e), e)
        return made

    def _unique(self, e: ast.Call, a: Value) -> Value:
        view = self._vector(a, e)
        return self.filled_up(
            view.dtype, view, 1, lambda made: [library_orders.unique1, view, made], e
        )

    def _searchsorted(self, e: ast.Call, a: Value, v: Value, side: Value) -> Value:
        found = side.value if isinstance(side, PythonObject) else None
        if found not in ("left", "right"):
            self.reject(e, "this side", "write 'left' or 'right'")
        places = self._view(a, e, [1])
        function = {"left": library_orders.searchsorted, "right": library_orders.searchsorted_right}
        return self.each(function[found], [self._numbers(v, e)], e, dtype="i8", fixed=[places])

    def _digitize(self, e: ast.Call, x: Value, bins: Value, right: Value) -> Value:
        if not isinstance(right, (bool, int)):
            self.reject(e, "this argument, which is no number of the text,", "write True or False")
        edges = self._view(self._numbers(bins, e), e, [1])
        return self.each(library_orders.digitize, [x], e, dtype="i8", fixed=[edges, bool(right)])

    def _interp(self, e: ast.Call, x: Value, xp: Value, fp: Value) -> Value:
        given = [self._of_floats(v, e, [1]) for v in (xp, fp)]
        x = self.apply("float64", [self._numbers(x, e)], e)
        return self.each(library_orders.interp, [x], e, dtype="f8", fixed=given)

    def _histogram(self, e: ast.Call, a: Value, bins: Value, extent: Value) -> Value:
        values = self._of_floats(self._vector(a, e), e)
        if is_array(bins) or isinstance(bins, TupleValue):
            edges = self._view(self._numbers(bins, e), e, [1])
            counts = self.run_library("histogram_between", [values, edges], e)
            return TupleValue((counts, edges))
        if self._is_none(extent):
            return self.run_library("histogram_in_range", [values, bins], e)
        if not isinstance(extent, TupleValue) or len(extent.items) != 2:
            self.reject(e, "this range of np.histogram", "write a tuple of two numbers")
        low, high = (self.apply("float64", [v], e) for v in extent.items)
        return self.run_library("histogram", [values, bins, low, high], e)

    def _bincount(self, e: ast.Call, x: Value, weights: Value, least: Value) -> Value:
        view = self._view(x, e, [1])
        if view.dtype[0] != "i":
            self.reject(e, "np.bincount of floats", "give it an array of whole numbers")
        if self._is_none(weights):
            return self.run_library("bincount", [view, least], e)
        sums = self._of_floats(weights, e, [1])
        return self.run_library("bincount_weighted", [view, sums, least], e)

    def _arg_extreme(self, e: ast.Call, a: Value, axis: Value, name: str) -> Value:
        if self._is_none(axis):
            view = self._view(a, e)
            if view.ndim > 2:
                view = self._vector(view, e)
            return self.run_library(name, [view], e)
        view = self._view(a, e, [1, 2])
        at = self._literal(axis, e)
        if not -view.ndim <= at < view.ndim:
            self.reject(e, f"the axis {at} of an array of {view.ndim} dimensions")
        if view.ndim == 1:
            return self.run_library(name, [view], e)
        axes = view.axes if at % 2 else view.axes[::-1]
        turned = ArrayView(view.name, view.dtype, view.dims, axes)
        return self.run_library(f"{name}_of_last", [turned], e)

    # ----- triangles and diagonals -----

    def _triangle(self, e: ast.Call, m: Value, k: Value, name: str) -> Value:
        return self.run_library(name, [self._view(m, e, [2]), k], e)

    def _tri(self, e: ast.Call, n: Value, m: Value, k: Value, function: Function) -> Value:
        rows = self.atom(n, e)
        args: list[Value] = [rows, self._size_or(m, rows, e), k]
        return self.run(function, args, e, is_library=True)

    def _indices(self, e: ast.Call, n: Value, k: Value, m: Value, function: Function) -> Value:
        rows = self.atom(n, e)
        args: list[Value] = [rows, k, self._size_or(m, rows, e)]
        return self.run(function, args, e, is_library=True)

    def _indices_of(self, e: ast.Call, a: Value, k: Value, function: Function) -> Value:
        view = self._view(a, e, [2])
        args: list[Value] = [self.size(view, 0, e), k, self.size(view, 1, e)]
        return self.run(function, args, e, is_library=True)

    def _diagonal(self, e: ast.Call, a: Value, k: Value, name: str) -> Value:
        ndim = {"diag": (1, 2), "trace": (2,)}[name]
        view = self._view(a, e, ndim)
        if name == "trace":
            self.demand_floats([view], e)
        return self.run_library(name, [view, k], e)

    def _diagflat(self, e: ast.Call, v: Value, k: Value) -> Value:
        return self.run_library("diag", [self._vector(v, e), k], e)

    def _fill_diagonal(self, e: ast.Call, a: Value, value: Value, wrap: Value) -> Value:
        if not isinstance(a, ArrayView) or a.ndim != 2 or not isinstance(wrap, (bool, int)):
            self.reject(e, "np.fill_diagonal of this", "give it a matrix that has a name")
        name = "fill_diagonal_wrapped" if wrap else "fill_diagonal"
        return self.run_library(name, [a, self.atom(value, e)], e)

    # ----- elements in other places -----

    def _roll(self, e: ast.Call, a: Value, by: Value) -> Value:
        return self.run_library("roll", [self._view(a, e, [1, 2]), by], e)

    def _flip(self, e: ast.Call, a: Value, axes: Sequence[int] | None) -> ArrayView:
        view = self._view(a, e)
        dims = list(view.dims)
        for axis in range(view.ndim) if axes is None else axes:
            if axis >= view.ndim:
                self.reject(e, f"the axis {axis} of an array of {view.ndim} dimensions")
            dims[view.axes[axis]] = self.reversed(view, view.axes[axis], e)
        return ArrayView(view.name, view.dtype, tuple(dims), view.axes)

    def _rot90(self, e: ast.Call, a: Value, k: Value) -> Value:
        view = self._view(a, e, [2])
        turns = self._literal(k, e) % 4
        if turns == 0:
            return view
        if turns == 2:
            return self._flip(e, view, None)
        if turns == 1:
            view = self._flip(e, view, [1])
        turned = ArrayView(view.name, view.dtype, view.dims, view.axes[::-1])
        return turned if turns == 1 else self._flip(e, turned, [1])

    def _repeat(self, e: ast.Call, a: Value, repeats: Value) -> Value:
        view, times = self._vector(a, e), self._numbers(repeats, e)
        if not is_array(times):
            return self.run_library("repeat", [view, times], e)
        if times.dtype[0] != "i":
            self.reject(e, "np.repeat by floats", "give it whole numbers")
        return self.run_library("repeat_each", [view, self._view(times, e, [1])], e)

    def _take(self, e: ast.Call, a: Value, indices: Value) -> Value:
        view, index = self._vector(a, e), indices
        if is_array(index):
            return self.settled(self.picked(view, index, e), e)
        at = self.from_end(self.atom(index, e), self.size(view, 0, e), e)
        return self.element(view, [at], e)

    def _extract(self, e: ast.Call, condition: Value, a: Value) -> Value:
        mask: ArrayLike = self._vector(condition, e)
        if mask.dtype != "b1":
            mask = self._mask("!=", [mask, 0], e)
        return self.where_true(self._vector(a, e), mask, e)

    def _append(self, e: ast.Call, a: Value, values: Value) -> Value:
        parts: list[Value] = []
        for v in (a, self._numbers(values, e)):
            parts.append(self._vector(v, e) if is_array(v) else self._at_least(e, v, 1))
        return self.joined(TupleValue(tuple(parts)), 0, e)

    def joined(self, value: Value, axis: int, e: ast.AST) -> Value:
        """Arrays one behind the other along an axis."""
        raise NotImplementedError

    def _delete(self, e: ast.Call, a: Value, k: Value) -> Value:
        return self.run_library("delete", [self._vector(a, e), self.atom(k, e)], e)

    def _vander(self, e: ast.Call, x: Value, n: Value, rises: Value) -> Value:
        view = self._of_floats(x, e, [1])
        if not isinstance(rises, (bool, int)):
            self.reject(e, "this argument, which is no number of the text,", "write True or False")
        count = self._size_or(n, self.size(view, 0, e), e)
        args: list[Value] = [view, count, bool(rises)]
        return self.run(library_shapes.vander, args, e, is_library=True)

    def _logspace(self, e: ast.Call, first: Value, last: Value, count: Value) -> Value:
        powers = self.run(library.linspace, [first, last, count], e, is_library=True)
        return self.apply("**", [10.0, powers], e)

    # ----- views -----

    def turned(self, e: ast.AST, a: Value, axes: Value) -> Value:
        view = self._view(a, e)
        if self._is_none(axes):
            order = [*range(view.ndim)][::-1]
        else:
            items = axes.items if isinstance(axes, TupleValue) else (axes,)
            order = [self._literal(k, e) % max(view.ndim, 1) for k in items]
        if sorted(order) != [*range(view.ndim)]:
            self.reject(e, "this order of axes", "name each axis once")
        return ArrayView(view.name, view.dtype, view.dims, tuple([view.axes[k] for k in order]))

    def _swapaxes(self, e: ast.Call, a: Value, first: Value, second: Value) -> Value:
        view = self._view(a, e)
        order: list[Value] = [*range(view.ndim)]
        pair = [self._literal(k, e) for k in (first, second)]
        if not all(-view.ndim <= k < view.ndim for k in pair):
            self.reject(e, f"these axes of an array of {view.ndim} dimensions")
        i, j = (k % view.ndim for k in pair)
        order[i], order[j] = order[j], order[i]
        return self.turned(e, view, TupleValue(tuple(order)))

    def _broadcast_to(self, e: ast.Call, a: Value, shape: Value) -> Value:
        sizes = [
            self.atom(n, e) for n in (shape.items if isinstance(shape, TupleValue) else (shape,))
        ]
        view = self.settled(a, e)
        if not isinstance(view, ArrayView):
            number = self.atom(view, e)
            dtype = self.dtype_of_number(number)
            return ArrayExpression(tuple(sizes), dtype, lambda _: number, (), self.writes)
        if view.ndim > len(sizes):
            self.reject(e, "an array with more dimensions than it is broadcast to")
        own = [self.size(view, k, e) for k in range(view.ndim)]
        for size, wanted in zip(own, sizes[len(sizes) - view.ndim :], strict=True):
            if size != wanted and not (type(size) is int and size == 1):
                self.demand_same(size, wanted, e)

        def element(index: list[Atom]) -> Atom:
            return self.elements([view], index, e)[0]

        reads = self._reads(view)
        wide = ArrayExpression(tuple(sizes), view.dtype, element, reads, self.writes)
        made = self._view(wide, e)
        self.twins.tie(made.name, [view.name])  # which NumPy does not copy
        return made

    def _split(self, e: ast.Call, a: Value, parts: Value, axis: Value, is_equal: bool) -> Value:
        view, at = self._view(a, e), self._literal(axis, e)
        if not -view.ndim <= at < view.ndim:
            self.reject(e, f"the axis {at} of an array of {view.ndim} dimensions")
        size = self.size(view, at % view.ndim, e)
        bounds: list[Atom]
        if isinstance(parts, TupleValue):
            bounds = [self._literal(k, e) for k in parts.items]
            if any(isinstance(k, int) and k < 0 for k in bounds):
                self.reject(e, "a place before an array's beginning", "use slices")
            bounds = [0, *[self.op("min", [k, size], e) for k in bounds], size]
        else:
            count = self._literal(parts, e)
            if not 0 < count <= 64:
                self.reject(e, f"{count} parts of an array", "use slices in a loop")
            rest = self.op("%", [size, count], e)
            if is_equal:
                self.demand(self.op("==", [rest, 0], e), "ValueError",
                            "array split does not result in an equal division", e)  # fmt: skip
            each = self.op("//", [size, count], e)
            bounds = [0, *[
                self.op("+", [self.op("*", [each, k], e), self.op("min", [rest, k], e)], e)
                for k in range(1, count)
            ], size]  # fmt: skip
        return TupleValue(tuple([
            self.part(view, at % view.ndim, first, self.op("max", [self.op("-", [last, first], e), 0], e), e)
            for first, last in pairwise(bounds)
        ]))  # fmt: skip

    def split_by(self, e: ast.Call, a: Value, parts: Value, axis: int) -> Value:
        """`np.hsplit` and `np.vsplit`."""
        view = self._view(a, e)
        return self._split(e, view, parts, 0 if view.ndim == 1 else axis, True)

    def with_axis(self, view: ArrayView, at: int) -> ArrayView:
        """A view with one more axis, of one element."""
        axes = (*view.axes[:at], NEW_AXIS, *view.axes[at:])
        return ArrayView(view.name, view.dtype, view.dims, axes)

    def _at_least(self, e: ast.Call, a: Value, ndim: int) -> Value:
        if not is_array(a):
            number = self.atom(a, e)
            made = self.make([1], None, self.dtype_of_number(number), e, "t")
            self.store(made.name, self.place(made, [0], e), number, e)
            a = made
        view = self._view(a, e)
        while view.ndim < ndim:
            view = self.with_axis(view, 0)
        return view

    def part(self, view: ArrayView, axis: int, start: Atom, size: Atom, e: ast.AST) -> ArrayView:
        """So many elements of a view along an axis."""
        dims, at = list(view.dims), view.axes[axis]
        dim = dims[at]
        assert isinstance(dim, Strided)
        offset = self.op("*", [start, dim.step], e) if dim.step != 1 else start
        first = offset if dim.start == 0 else self.op("+", [dim.start, offset], e)
        dims[at] = Strided(first, dim.step, size)
        return ArrayView(view.name, view.dtype, tuple(dims), view.axes)

    # ----- products and sums -----

    def _outer(self, e: ast.Call, a: Value, b: Value) -> Value:
        views = [self._view(self._vector(v, e), e, [1]) for v in (a, b)]
        dtype = np.dtype(self.dtype_of_result("*", [*views], e))  # that of a product of elements
        both = [v if v.dtype == dtype.str[1:] else self.apply(dtype.name, [v], e) for v in views]
        return self.run(library.outer11, [self._view(v, e) for v in both], e, is_library=True)

    def _kron(self, e: ast.Call, a: Value, b: Value) -> Value:
        both = [self._view(v, e, [1, 2]) for v in (a, b)]
        self.demand_floats([*both], e)
        if both[0].ndim != both[1].ndim:
            self.reject(
                e, "np.kron of a vector and a matrix", "give the vector a second axis: v[None]"
            )
        function = (library_shapes.kron11, library_shapes.kron22)[both[0].ndim - 1]
        return self.run(function, [*both], e, is_library=True)

    def _inner(self, e: ast.Call, a: Value, b: Value) -> Value:
        if is_array(a) and is_array(b) and a.ndim == b.ndim == 1:
            return self.product(a, b, e)
        return self.reject(e, "np.inner of these", "write a @ b.T")

    def _convolve(self, e: ast.Call, a: Value, v: Value, mode: Value, correlates: bool) -> Value:
        kind = mode.value if isinstance(mode, PythonObject) else None
        if kind not in ("full", "same", "valid"):
            self.reject(e, "this mode", "write 'full', 'same' or 'valid'")
        x, y = self._both_of_floats(a, v, e, [1])
        n, m = (self.size(x, 0, e) for x in (x, y))
        for size in (n, m):
            if type(size) is not int:
                self.demand(
                    self.op("<", [0, size], e), "ValueError", "an array to convolve is empty", e
                )
        if correlates:
            y = self._flip(e, y, [0])
        least, most = (self.op(which, [n, m], e) for which in ("min", "max"))
        first: Atom = 0
        count: Atom = self.op("-", [self.op("+", [n, m], e), 1], e)
        if kind == "same":
            first, count = self.op("//", [self.op("-", [least, 1], e), 2], e), most
            if correlates:  # which is turned where the second one is longer
                other = self.op("//", [least, 2], e)
                first = self.op("select", [self.op("<", [n, m], e), other, first], e)
        elif kind == "valid":
            first = self.op("-", [least, 1], e)
            count = self.op("-", [most, first], e)
        return self.run(library_shapes.convolve, [x, y, first, count], e, is_library=True)

    def _cumulative(self, e: ast.Call, a: Value, name: str, zero: float | None) -> Value:
        if not is_array(a):
            self.reject(e, f"`{name}` of something that is no array")
        if a.ndim > 1:
            a = self._vector(a, e)
        if a.dtype[0] in "bi" and name == "cumsum":
            return self.run_library("cumsum_of_wholes", [a], e)
        self.demand_floats([a], e)
        if zero is not None:
            a = self._without_nan(a, zero, e)
        return self.run_library(name, [a], e)

    def _without_nan(self, a: ArrayLike, instead: float, e: ast.AST) -> ArrayLike:
        other = self.in_dtype_of(a, instead, e)
        view = self._view(a, e)
        return self._mask("select", [self.apply("np.isnan", [view], e), other, view], e)

    def _nan_reduction(self, e: ast.Call, a: Value, name: str) -> Value:
        view = self._vector(a, e)
        if name == "nanprod":
            self.demand_floats([view], e)
            return self.run_library("prod", [self._without_nan(view, 1.0, e)], e)
        if name in ("nanmax", "nanmin"):
            return self.run_library(name, [view], e)
        return self.run_library(name, [self._of_floats(view, e)], e)

    def _diff(self, e: ast.Call, a: Value, n: Value) -> Value:
        times = self._literal(n, e)
        if times < 0:
            self.reject(e, "np.diff with a negative order")
        view = self._view(a, e, [1, 2])
        self.demand_floats([view], e)
        for _ in range(times):
            view = self._view(self.run_library("diff", [view], e), e)
        return view if times else self.copied(view, e)

    def _ediff1d(self, e: ast.Call, a: Value) -> Value:
        return self._diff(e, self._vector(a, e), 1)

    def _trapezoid(self, e: ast.Call, y: Value, x: Value, dx: Value) -> Value:
        values = self._of_floats(y, e, [1])
        if self._is_none(x):
            return self.run_library("trapezoid_by", [values, dx], e)
        return self.run_library("trapezoid", [values, self._of_floats(x, e, [1])], e)

    def _average(self, e: ast.Call, a: Value, axis: Value, weights: Value) -> Value:
        if not self._is_none(axis):
            self.reject(e, "np.average along an axis", "write (x * w).sum(axis=0) / w.sum()")
        if self._is_none(weights):
            return self.reduction("mean", a, e)
        both = [self._of_floats(v, e) for v in (a, weights)]
        if both[0].ndim != both[1].ndim:
            self.reject(e, "weights with other dimensions than the array")
        return self.run_library("average", [*both], e)

    def _cov(
        self, e: ast.Call, m: Value, y: Value, by_rows: Value, bias: Value, lost: Value
    ) -> Value:
        rows = self._rows(m, y, by_rows, e)
        if self._is_none(lost):
            if not isinstance(bias, (bool, int)):
                self.reject(
                    e, "this argument, which is no number of the text,", "write True or False"
                )
            lost = 0 if bias else 1
        return self.run_library("cov", [rows, self.atom(lost, e)], e)

    def _corrcoef(self, e: ast.Call, m: Value, y: Value, by_rows: Value) -> Value:
        rows = self._rows(m, y, by_rows, e)
        if rows.ndim == 1:
            self.reject(e, "np.corrcoef of one vector", "give it two")
        return self.run_library("corrcoef", [rows], e)

    def _rows(self, m: Value, y: Value, by_rows: Value, e: ast.AST) -> ArrayView:
        """Variables as rows, one vector as it is."""
        if not isinstance(by_rows, (bool, int)):
            self.reject(e, "this argument, which is no number of the text,", "write True or False")
        parts = [self._of_floats(v, e) for v in (m, y) if not self._is_none(v)]
        turned = [p if by_rows or p.ndim == 1 else self._view(self.turned(e, p, PythonObject(None)), e)
                  for p in parts]  # fmt: skip
        if len(turned) == 1:
            return turned[0]
        rows = [self.with_axis(p, 0) if p.ndim == 1 else p for p in turned]
        return self._view(self.joined(TupleValue(tuple(rows)), 0, e), e)

    def _norm(self, e: ast.Call, a: Value, order: Value) -> Value:
        if self._is_none(order):
            if not is_array(a):
                self.reject(e, "a norm of something that is no array")
            self.demand_floats([a], e)
            return self.run_library("norm", [a], e)
        view = self._of_floats(a, e)
        size = self.apply("abs", [view], e)
        if view.ndim == 1:
            if order in (np.inf, -np.inf):
                return self.reduction("max" if order == np.inf else "min", size, e)
            if order == 1:
                return self.reduction("sum", size, e)
            if order == 2:
                return self.run_library("norm", [view], e)
            if isinstance(order, (int, float)) and order > 0:
                return self.run_library("norm_of_order", [view, float(order)], e)
        elif order in (1, -1, np.inf, -np.inf):
            over = "rows" if order in (np.inf, -np.inf) else "columns"
            sums = self.run(
                getattr(library, f"sum_of_{over}"), [self.settled(size, e)], e, is_library=True
            )
            return self.reduction("max" if order in (1, np.inf) else "min", sums, e)
        return self.reject(e, "this order of np.linalg.norm", _LOOP)

    def _matrix_power(self, e: ast.Call, a: Value, n: Value) -> Value:
        view, times = self._of_floats(a, e, [2]), self._literal(n, e)
        if times < 1:
            self.reject(e, f"the power {times} of a matrix", "use np.eye and np.linalg.inv")
        found, square, rest = None, view, times
        while rest:
            if rest & 1:
                found = square if found is None else self._view(self.product(found, square, e), e)
            rest >>= 1
            if rest:
                square = self._view(self.product(square, square, e), e)
        assert found is not None
        return self.copied(found, e) if found is view else found

    # ----- each element -----

    def _select(self, e: ast.Call, tests: Value, choices: Value, default: Value) -> Value:
        if not isinstance(tests, TupleValue) or not isinstance(choices, TupleValue):
            self.reject(e, "np.select of these", "give it lists or tuples of arrays")
        if len(tests.items) != len(choices.items) or not tests.items:
            self.reject(e, "np.select of as many tests as choices, which it has not,")
        found = self.atom(default, e)
        result: Value = float(found) if isinstance(found, (bool, int)) else found
        for test, choice in reversed([*zip(tests.items, choices.items, strict=True)]):
            result = self.apply("select", [test, choice, result], e)
        return self.settled(result, e)

    def _isclose(self, e: ast.Call, a: Value, b: Value, relative: Value, absolute: Value) -> Value:
        return self.each(library_shapes.isclose, [a, b], e, dtype="b1", fixed=[relative, absolute])

    def _allclose(self, e: ast.Call, a: Value, b: Value, relative: Value, absolute: Value) -> Value:
        found = self._isclose(e, a, b, relative, absolute)
        return self.run_library("all", [self._vector(found, e)], e) if is_array(found) else found

    def _array_equal(self, e: ast.Call, a: Value, b: Value) -> Value:
        both = [self._view(v, e) for v in (a, b)]
        if both[0].ndim != both[1].ndim:
            return False
        return self.run_library("array_equal", [*both], e)

    def _each_of(self, e: ast.Call, *values: Value, function: Function) -> Value:
        return self.each(function, values, e)

    def _isin(self, e: ast.Call, x: Value, values: Value) -> Value:
        found = self._vector(self._numbers(values, e), e)
        return self.each(library_shapes.isin, [x], e, dtype="b1", fixed=[found])

    def _unwrap(self, e: ast.Call, p: Value, least: Value, axis: Value, period: Value) -> Value:
        if axis not in (-1, 0):
            self.reject(e, "this axis", "unwrap a vector")
        half = self.op("/", [self.atom(period, e), 2.0], e)
        args: list[Value] = [
            self._of_floats(p, e, [1]),
            half if self._is_none(least) else least,
            period,
        ]
        return self.run_library("unwrap", args, e)

    def _nan_to_num(self, e: ast.Call, x: Value, copy: Value, nan: Value) -> Value:
        if copy is not True:
            self.reject(e, "np.nan_to_num in place", "write x[:] = np.nan_to_num(x)")
        return self.each(library_shapes.nan_to_num, [x, nan], e)

    def _logical_xor(self, e: ast.Call, a: Value, b: Value) -> Value:
        tests = [v if self.is_truth(v) else self.apply("!=", [v, 0], e) for v in (a, b)]
        return self.apply("!=", tests, e)

    def _signbit(self, e: ast.Call, x: Value) -> Value:
        return self.apply("<", [self.apply("np.copysign", [1.0, x], e), 0.0], e)

    def _rounded(self, e: ast.Call, x: Value, digits: Value) -> Value:
        if self._literal(digits, e):
            self.reject(e, "`round` to digits", "round x * 10.0**n")
        return self.apply("np.rint", [x], e)

    def _divmod(self, e: ast.Call, a: Value, b: Value) -> Value:
        both = [self.settled(v, e) for v in (a, b)]
        return TupleValue((self.apply("//", [*both], e), self.apply("%", [*both], e)))

    def _shape(self, e: ast.Call, a: Value) -> Value:
        if not is_array(a):
            return TupleValue(())
        return TupleValue(tuple([self.size(a, k, e) for k in range(a.ndim)]))

    def _ndim(self, e: ast.Call, a: Value) -> Value:
        return a.ndim if is_array(a) else 0

    def _window(self, e: ast.Call, n: Value, function: Function) -> Value:
        return self.run(function, [self.atom(n, e)], e, is_library=True)


def _with(handler: Handler, **options: Any) -> Handler:
    return lambda reader, e, *values: handler(reader, e, *values, **options)


def _each(name: str) -> Handler:
    return _with(NumpyLoops._each_of, function=getattr(library_shapes, name))


def _plain(name: str) -> Handler:
    """A function of one array that is a loop of the library."""
    return lambda reader, e, a, *rest: reader.loops(name, a, rest, e)


_L = NumpyLoops
# By functions: the parameters, with defaults as texts without spaces, and who reads the call.
_CALLS: dict[Any, tuple[str, Handler]] = {
    np.sort: ("a", _plain("sort")),
    np.argsort: ("a kind='quicksort'", _L._argsort),
    np.median: ("a", _with(_L._median, only_numbers=False)),
    np.nanmedian: ("a", _with(_L._median, only_numbers=True)),
    np.quantile: ("a q", _with(_L._quantile, factor=100.0, only_numbers=False)),
    np.percentile: ("a q", _with(_L._quantile, factor=1.0, only_numbers=False)),
    np.nanquantile: ("a q", _with(_L._quantile, factor=100.0, only_numbers=True)),
    np.nanpercentile: ("a q", _with(_L._quantile, factor=1.0, only_numbers=True)),
    np.unique: ("ar", _L._unique),
    np.searchsorted: ("a v side='left'", _L._searchsorted),
    np.digitize: ("x bins right=False", _L._digitize),
    np.interp: ("x xp fp", _L._interp),
    np.histogram: ("a bins=10 range=None", _L._histogram),
    np.bincount: ("x weights=None minlength=0", _L._bincount),
    np.argmax: ("a axis=None", _with(_L._arg_extreme, name="argmax")),
    np.argmin: ("a axis=None", _with(_L._arg_extreme, name="argmin")),
    np.triu: ("m k=0", _with(_L._triangle, name="triu")),
    np.tril: ("m k=0", _with(_L._triangle, name="tril")),
    np.tri: ("N M=None k=0", _with(_L._tri, function=library_shapes.tri)),
    np.eye: ("N M=None k=0", _with(_L._tri, function=library_shapes.eye)),
    np.triu_indices: ("n k=0 m=None", _with(_L._indices, function=library_shapes.triu_indices)),
    np.tril_indices: ("n k=0 m=None", _with(_L._indices, function=library_shapes.tril_indices)),
    np.triu_indices_from: ("arr k=0", _with(_L._indices_of, function=library_shapes.triu_indices)),
    np.tril_indices_from: ("arr k=0", _with(_L._indices_of, function=library_shapes.tril_indices)),
    np.diag: ("v k=0", _with(_L._diagonal, name="diag")),
    np.trace: ("a offset=0", _with(_L._diagonal, name="trace")),
    np.diagflat: ("v k=0", _L._diagflat),
    np.fill_diagonal: ("a val wrap=False", _L._fill_diagonal),
    np.roll: ("a shift", _L._roll),
    np.flip: ("m", _with(_L._flip, axes=None)),
    np.flipud: ("m", _with(_L._flip, axes=(0,))), np.fliplr: ("m", _with(_L._flip, axes=(1,))),
    np.rot90: ("m k=1", _L._rot90),
    np.repeat: ("a repeats", _L._repeat),
    np.take: ("a indices", _L._take),
    np.extract: ("condition arr", _L._extract),
    np.append: ("arr values", _L._append),
    np.delete: ("arr obj", _L._delete),
    np.vander: ("x N=None increasing=False", _L._vander),
    np.logspace: ("start stop num=50", _L._logspace),
    np.transpose: ("a axes=None", _L.turned),
    np.swapaxes: ("a axis1 axis2", _L._swapaxes),
    np.broadcast_to: ("array shape", _L._broadcast_to),
    np.split: ("ary indices_or_sections axis=0", _with(_L._split, is_equal=True)),
    np.array_split: ("ary indices_or_sections axis=0", _with(_L._split, is_equal=False)),
    np.hsplit: ("ary indices_or_sections", lambda reader, e, a, parts: reader.split_by(e, a, parts, 1)),
    np.vsplit: ("ary indices_or_sections", lambda reader, e, a, parts: reader.split_by(e, a, parts, 0)),
    np.atleast_1d: ("a", _with(_L._at_least, ndim=1)), np.atleast_2d: ("a", _with(_L._at_least, ndim=2)),
    np.outer: ("a b", _L._outer), np.kron: ("a b", _L._kron), np.inner: ("a b", _L._inner),
    np.convolve: ("a v mode='full'", _with(_L._convolve, correlates=False)),
    np.correlate: ("a v mode='valid'", _with(_L._convolve, correlates=True)),
    np.cumsum: ("a", _with(_L._cumulative, name="cumsum", zero=None)),
    np.cumprod: ("a", _with(_L._cumulative, name="cumprod", zero=None)),
    np.nancumsum: ("a", _with(_L._cumulative, name="cumsum", zero=0.0)),
    np.nancumprod: ("a", _with(_L._cumulative, name="cumprod", zero=1.0)),
    np.diff: ("a n=1", _L._diff), np.ediff1d: ("ary", _L._ediff1d),
    getattr(np, "trapezoid", None) or getattr(np, "trapz", None): ("y x=None dx=1.0", _L._trapezoid),
    np.average: ("a axis=None weights=None", _L._average),
    np.cov: ("m y=None rowvar=True bias=False ddof=None", _L._cov),
    np.corrcoef: ("x y=None rowvar=True", _L._corrcoef),
    np.linalg.norm: ("x ord=None", _L._norm),
    np.linalg.matrix_power: ("a n", _L._matrix_power),
    np.select: ("condlist choicelist default=0", _L._select),
    np.isclose: ("a b rtol=1e-05 atol=1e-08", _L._isclose),
    np.allclose: ("a b rtol=1e-05 atol=1e-08", _L._allclose),
    np.array_equal: ("a1 a2", _L._array_equal),
    np.logaddexp: ("x1 x2", _each("logaddexp")), np.logaddexp2: ("x1 x2", _each("logaddexp2")),
    np.cbrt: ("x", _each("cbrt")), np.isin: ("element test_elements", _L._isin),
    np.union1d: ("ar1 ar2", lambda reader, e, a, b: reader._unique(e, reader._append(e, a, b))),
    np.unwrap: ("p discont=None axis=-1 period=6.283185307179586", _L._unwrap),
    np.ldexp: ("x1 x2", lambda reader, e, x, n: reader.apply("*", [x, reader.apply("**", [2.0, n], e)], e)),
    np.conj: ("x", lambda reader, e, x: reader.copied(x, e) if is_array(x) else x),
    np.sinc: ("x", _each("sinc")), np.heaviside: ("x1 x2", _each("heaviside")),
    np.fmax: ("x1 x2", _each("fmax")), np.fmin: ("x1 x2", _each("fmin")),
    np.nan_to_num: ("x copy=True nan=0.0", _L._nan_to_num),
    np.logical_xor: ("x1 x2", _L._logical_xor), np.signbit: ("x", _L._signbit),
    np.round: ("a decimals=0", _L._rounded), np.around: ("a decimals=0", _L._rounded),
    np.fix: ("x", lambda reader, e, x: reader.apply("np.trunc", [x], e)),
    np.positive: ("x", lambda reader, e, x: reader.copied(x, e) if is_array(x) else x),
    np.divmod: ("x1 x2", _L._divmod),
    np.shape: ("a", _L._shape), np.ndim: ("a", _L._ndim),
    np.bartlett: ("M", _with(_L._window, function=library_shapes.bartlett)),
    np.blackman: ("M", _with(_L._window, function=library_shapes.blackman)),
    np.hamming: ("M", _with(_L._window, function=library_shapes.hamming)),
    np.hanning: ("M", _with(_L._window, function=library_shapes.hanning)),
}  # fmt: skip
_CALLS.pop(None, None)
for _name in ("nanmean", "nanvar", "nanstd", "nanmax", "nanmin", "nanprod"):
    _CALLS[getattr(np, _name)] = ("a", _with(_L._nan_reduction, name=_name))
_METHODS = {name: getattr(np, name) for name in (
    "argsort", "argmax", "argmin", "repeat", "take", "cumsum", "cumprod", "trace", "searchsorted",
)}  # fmt: skip
