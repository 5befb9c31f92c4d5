"""Calls of functions of NumPy and Python that are several operations, or loops of `library`."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import library
from .numpy_loops import NumpyLoops
from .structure import Atom
from .values import (
    ArrayExpression,
    ArrayView,
    BoundMethod,
    PythonObject,
    Strided,
    TupleValue,
    Value,
    is_array,
)
from .vocabulary import promoted

# Functions whose loops are `NAME1` and `NAME2` of the library, for arrays of one dimension and of two.
_BY_DIMENSIONS = {
    np.var: "var", np.std: "std", np.any: "any", np.all: "all", np.count_nonzero: "count",
}  # fmt: skip
_BY_FACTORS = {np.linalg.inv, np.linalg.det, np.linalg.slogdet}
_METHODS = {"var": np.var, "std": np.std, "any": np.any, "all": np.all}
_OF_TRUTHS = {np.any, np.all, np.count_nonzero}
_READ_TWICE = {np.var, np.std}
_ALONG_AXES = {"sum", "mean", "max", "min", "amax", "amin"}

# Functions of numbers and of arrays, by what they are made of.
_FACTORS: dict[Any, float] = {
    math.degrees: 180.0 / math.pi, np.degrees: 180.0 / math.pi, np.rad2deg: 180.0 / math.pi,
    math.radians: math.pi / 180.0, np.radians: math.pi / 180.0, np.deg2rad: math.pi / 180.0,
}  # fmt: skip
_TYPES = {name: np.dtype(name).type for name in ("f8", "f4", "i8")}
_LOGICAL = {np.logical_and: "and", np.logical_or: "or"}


class NumpyFunctions(NumpyLoops):
    """Reads what `Expressions` has no rule for; None where this has none either."""

    def simple_call(self, f: Any, e: ast.Call, base: str) -> Value | None:
        if e.keywords or not _is_hashable(f):
            return None
        args = list(e.args)
        if f is library.in_dtype_of:
            array, value = (self.expression(a) for a in args)
            assert is_array(array)
            return self.in_dtype_of(array, value, e)
        if f is builtins.float and len(args) == 1:
            value = self.expression(args[0])
            is_single = isinstance(value, str) and self.dtype_of_number(value) == "f4"
            return value if is_single else self.apply("float64", [value], e, base)
        if f is type and len(args) == 1:
            kind = _TYPES.get(self.dtype_of_number(self.number(args[0])))
            return None if kind is None else PythonObject(kind)
        if f in _FACTORS and len(args) == 1:
            return self._in_own_dtype("*", _FACTORS[f], self.expression(args[0]), e)
        if f in _LOGICAL and len(args) == 2:
            a, b = (self.expression(x) for x in args)
            if is_array(a) or is_array(b):
                return self.apply("&" if f is np.logical_and else "|", [a, b], e, base)
            return self.op(_LOGICAL[f], [self.truth(a, e), self.truth(b, e)], e, base)
        if f is math.log and len(args) == 2:
            a, b = (self.apply("np.log", [self.expression(x)], e) for x in args)
            return self.apply("/", [a, b], e, base)
        if f in (np.fmod, math.fmod) and len(args) == 2:
            a, b = (self.expression(x) for x in args)
            rest = self.apply("%", [self.apply("abs", [a], e), self.apply("abs", [b], e)], e)
            return self.apply("np.copysign", [rest, a], e, base)
        if f is np.reciprocal and len(args) == 1:
            return self._in_own_dtype("/", 1.0, self.expression(args[0]), e)
        if f is np.exp2 and len(args) == 1:
            return self._in_own_dtype("**", 2.0, self.expression(args[0]), e)
        if f is builtins.pow and len(args) == 2:
            a, b = (self.expression(x) for x in args)
            return self.apply("**", [a, b], e, base)
        if f is builtins.divmod and len(args) == 2:
            a, b = (self.expression(x) for x in args)
            return TupleValue((self.apply("//", [a, b], e), self.apply("%", [a, b], e)))
        if f is builtins.sum and len(args) == 1:
            value = self.expression(args[0])
            if isinstance(value, TupleValue) and value.items:
                total = self.atom(value.items[0], e)
                for item in value.items[1:]:
                    total = self.op("+", [total, self.atom(item, e)], e, base)
                return total
            if isinstance(value, (ArrayView, ArrayExpression)):
                if value.ndim != 1:
                    self.reject(e, "`sum` of rows", "write x.sum(axis=0)")
                return self.reduction("sum", value, e)
        return None

    def _in_own_dtype(self, function: str, number: float, value: Value, e: ast.AST) -> Value:
        """A function of a number of ours and the user's value, which the number does not promote."""
        found = self.apply(function, [number, value], e)
        return self.in_dtype_of(value if is_array(value) else self.atom(value, e), found, e)

    def truth(self, a: Value, e: ast.AST) -> Atom:
        atom = self.atom(a, e)
        return atom if self.is_test(atom) else self.op("!=", [atom, 0], e)

    def numpy_call(self, f: Any, e: ast.Call, base: str) -> Value | None:
        if not _is_hashable(f):
            return None
        name = getattr(f, "__name__", "")
        options = {k.arg: k.value for k in e.keywords}
        found = self.loop_call(f, e)
        if found is not None:
            return found
        if f in (np.array, np.asarray) and e.args and {*options} <= {"dtype"}:
            return self._array(f, e, options.get("dtype"), base)
        if f in (np.arange, np.eye, np.identity) and e.args and {*options} == {"dtype"}:
            bare = ast.copy_location(ast.Call(e.func, e.args, []), e)
            return self._cast(self.numpy_call(f, bare, base), options["dtype"], e)
        if f is np.nansum and len(e.args) == 1 and not options:
            return self._sum_of_numbers(self.expression(e.args[0]), e)
        if f is np.ptp and len(e.args) == 1 and not options:
            value = self.settled(self.expression(e.args[0]), e)
            most, least = (self.reduction(name, value, e) for name in ("max", "min"))
            return self.apply("-", [most, least], e, base)
        if f is np.ravel and len(e.args) == 1 and not options:
            return self._flat(self.expression(e.args[0]), e)
        if (
            f in (np.ascontiguousarray, np.asfortranarray, np.real)
            and len(e.args) == 1
            and not options
        ):
            return self._contiguous(self.expression(e.args[0]), e)
        if f is np.expand_dims and e.args and (found := _axis(e, 1)) is not None:
            return self._expanded(self.expression(e.args[0]), found, e)
        if f is np.concatenate and e.args and (found := _axis(e, 1)) is not None:
            return self.joined(self.expression(e.args[0]), found, e)
        if f is np.stack and e.args and (found := _axis(e, 1)) is not None:
            return self._stacked(f, self.expression(e.args[0]), e, found)
        if name in _ALONG_AXES and (found := _axis(e, 1)) is not None:
            return self._along(name, self.expression(e.args[0]), found, e)
        if options:
            return None
        if f in _BY_DIMENSIONS and len(e.args) == 1:
            return self._by_dimensions(f, self.expression(e.args[0]), e)
        if f is np.linalg.cholesky and len(e.args) == 1:
            return self.run_library("cholesky", [self._matrix(self.expression(e.args[0]), e)], e)
        if f in _BY_FACTORS and len(e.args) == 1:
            return self._by_factors(f, self._matrix(self.expression(e.args[0]), e), e)
        if f is np.linalg.solve and len(e.args) == 2:
            a, b = self._matrix(self.expression(e.args[0]), e), self.expression(e.args[1])
            if not is_array(b) or b.ndim not in (1, 2):
                self.reject(e, "np.linalg.solve of this", "give it a vector or a matrix")
            self.demand_floats([b], e)
            if a.dtype != b.dtype:
                self.reject(e, "np.linalg.solve of arrays of two dtypes", "convert one by astype")
            solve = (library.solved1, library.solved2)[b.ndim - 1]
            b = self.settled(b, e)
            return self.run(solve, [*self._factors(a, e, is_regular=True), b], e, is_library=True)
        if f is np.size and len(e.args) == 1:
            value = self.expression(e.args[0])
            return (
                self.whole_size(value, e) if isinstance(value, (ArrayView, ArrayExpression)) else 1
            )
        args: list[Value]
        match f, len(e.args):
            case np.nonzero | np.where | np.flatnonzero | np.argwhere, 1:
                return self._places_of_true(f, self.expression(e.args[0]), e)
            case np.arange, 1 | 2 | 3:
                return self._arange([self.number(a) for a in e.args], e)
            case np.identity, 1:
                return self.run(library.eye, [self.number(e.args[0])], e, is_library=True)
            case np.concatenate, 1:
                return self.joined(self.expression(e.args[0]), 0, e)
            case np.vstack | np.hstack | np.dstack | np.column_stack | np.stack, 1:
                return self._stacked(f, self.expression(e.args[0]), e)
            case np.reshape, 2:
                args = [self.expression(a) for a in e.args]
                return self._reshaped(args[0], args[1], e)
        return None

    def array_method(self, m: BoundMethod, e: ast.Call) -> Value | None:
        options = {k.arg for k in e.keywords}
        if m.name == "nonzero" and not e.args and not options:
            return self._places_of_true(np.nonzero, m.owner, e)
        if m.name == "transpose" and not options:
            axes = [self.expression(a) for a in e.args]
            several = axes[0] if len(axes) == 1 else TupleValue(tuple(axes))
            return self.turned(e, m.owner, several if axes else PythonObject(None))
        if m.name in _ALONG_AXES and (axis := _axis(e, 0)) is not None:
            return self._along(m.name, m.owner, axis, e)
        if m.name in _METHODS and not e.args and not options:
            return self._by_dimensions(_METHODS[m.name], m.owner, e)
        if m.name == "clip" and len(e.args) == 2 and not options:
            low, high = (self.expression(a) for a in e.args)
            return self.clipped(m.owner, low, high, e)
        if m.name == "flatten" and not e.args and not options:
            self.demand_floats([m.owner], e)
            return self.run_library("flatten", [self.settled(m.owner, e)], e)
        if m.name == "astype" and len(e.args) == 1 and not options:
            return self._cast(m.owner, e.args[0], e)
        if m.name == "ravel" and not e.args and not options:
            return self._flat(m.owner, e)
        if m.name == "reshape" and e.args and not options:
            shape = [self.expression(a) for a in e.args]
            return self._reshaped(
                m.owner, shape[0] if len(shape) == 1 else TupleValue(tuple(shape)), e
            )
        return None

    # ----- each -----

    def _places_of_true(self, f: Any, value: Value, e: ast.AST) -> Value:
        """Where an array is true: `np.nonzero`, `np.flatnonzero`, `np.argwhere`."""
        if f is np.flatnonzero and is_array(value) and value.ndim > 1:
            value = self.run_library("flatten", [self.settled(value, e)], e)
        if not is_array(value) or value.ndim != 1:
            self.reject(e, "the places where this is true", "write a loop with an if")
        mask = value if value.dtype == "b1" else self.apply("!=", [value, 0], e)
        assert is_array(mask)
        places = self.filled_up(
            "i8", mask, 1, lambda made: [library.places_of_true1, mask, made], e
        )
        if f is np.argwhere:
            return self.with_axis(places, 1)
        return places if f is np.flatnonzero else TupleValue((places,))

    def _cast(self, value: Value | None, dtype: ast.expr, e: ast.AST) -> Value | None:
        kind = self.given_dtype(dtype)
        if value is None or not is_array(value):
            return None
        if kind == value.dtype:
            return self.copied(value, e)
        return self.apply(np.dtype(kind).name, [value], e) if kind in ("f8", "f4", "i8") else None

    def _flat(self, value: Value, e: ast.AST) -> Value | None:
        """`ravel`, which may be a view: a copy; if one of both is written, reads of the other are refused."""
        if not is_array(value):
            return None
        self.demand_floats([value], e)
        made = self.run_library("flatten", [self.settled(value, e)], e)
        if isinstance(value, ArrayView) and isinstance(made, ArrayView):
            self.twins.tie(made.name, [value.name])
        return made

    def _sum_of_numbers(self, value: Value, e: ast.AST) -> Value | None:
        if not is_array(value):
            return None
        zero = self.in_dtype_of(value, 0.0, e)
        value = self.settled(value, e)
        without = self.apply("select", [self.apply("np.isnan", [value], e), zero, value], e)
        return self.reduction("sum", without, e)

    def _by_dimensions(self, f: Any, value: Value, e: ast.AST) -> Value | None:
        if not isinstance(value, (ArrayView, ArrayExpression)):
            return None
        if f in _READ_TWICE:
            (value,) = self.promoted_floats([value], e)
        elif f not in _OF_TRUTHS:
            self.demand_floats([value], e)
        if f in _READ_TWICE:
            value = self.settled(value, e)
        return self.run_library(_BY_DIMENSIONS[f], [value], e)

    def _matrix(self, value: Value, e: ast.AST) -> ArrayView:
        view = self.settled(value, e)
        if not isinstance(view, ArrayView) or view.ndim != 2:
            self.reject(
                e, "this of something that is no matrix", "give it an array of two dimensions"
            )
        self.demand_floats([view], e)
        return view

    def _by_factors(self, f: Any, matrix: ArrayView, e: ast.AST) -> Value:
        lower, upper, rows = self._factors(matrix, e, is_regular=f is np.linalg.inv)
        if f is np.linalg.inv:
            return self.run(library.inverse, [lower, upper, rows], e, is_library=True)
        function = library.determinant if f is np.linalg.det else library.logarithm_of_determinant
        return self.run(function, [upper, rows], e, is_library=True)

    def _factors(self, matrix: ArrayView, e: ast.AST, *, is_regular: bool) -> tuple[Value, ...]:
        """The factors of a matrix, which are found once while nobody writes it."""
        key = self.of_array_now("factors", matrix.name, matrix)
        found: TupleValue | None = self.known(key, through_loops=False)
        if found is None:
            made = self.run(library.factors, [matrix], e, is_library=True)
            assert isinstance(made, TupleValue)
            found = made
            self.remember(key, found)
        if is_regular:
            self.run(library.demand_regular, [found.items[1]], e, is_library=True)
        return found.items

    def _along(self, name: str, value: Value, axis: int, e: ast.AST) -> Value | None:
        name = name.removeprefix("a")
        if not is_array(value) or value.ndim not in (1, 2, 3, 4):
            self.reject(e, f"`{name}` along an axis of this", "write the loop over the other axes")
        if not -value.ndim <= axis < value.ndim:
            self.reject(e, f"the axis {axis} of an array of {value.ndim} dimensions")
        if value.ndim == 1:
            return self.reduction(name, value, e)
        self.demand_floats([value], e)
        view = self.settled(value, e)
        assert isinstance(view, ArrayView)
        if value.ndim == 2:
            function: Callable[..., Any] = getattr(
                library, f"{name}_of_{('columns', 'rows')[axis]}"
            )
            return self.run(function, [view], e, is_library=True)
        at = axis % value.ndim
        axes = (*view.axes[:at], *view.axes[at + 1 :], view.axes[at])
        turned = ArrayView(view.name, view.dtype, view.dims, axes)
        return self.run_library(f"{name}_of_last", [turned], e)

    def _contiguous(self, value: Value, e: ast.AST) -> Value:
        """A copy, where NumPy makes one or not."""
        made = self.copied(value, e)
        if isinstance(value, ArrayView):
            self.twins.tie(made.name, [value.name])
        return made

    def _expanded(self, value: Value, axis: int, e: ast.AST) -> Value:
        if isinstance(value, (str, float)) and self.is_known_float(value) and axis in (0, -1):
            made = self.make([1], None, self.dtype_of_number(value), e, "t")
            self.store(made.name, self.place(made, [0], e), value, e)
            return made
        view = self.settled(value, e)
        if not isinstance(view, ArrayView) or not -view.ndim - 1 <= axis <= view.ndim:
            self.reject(e, "np.expand_dims of this", "give it an array and one of its axes")
        return self.with_axis(view, axis % (view.ndim + 1))

    def _array(self, f: Any, e: ast.Call, dtype: ast.expr | None, base: str) -> Value | None:
        """`np.array([a, b, c])`, also of rows, and a copy of an array."""
        given = e.args[0]
        if len(e.args) > 1:
            dtype = e.args[1]
        if not isinstance(given, (ast.List, ast.Tuple)):
            value = self.expression(given)
            if f is np.asarray and dtype is None and isinstance(value, (str, int, float)):
                return value  # an array without axes is a number
            if dtype is not None or not isinstance(value, (ArrayView, ArrayExpression)):
                return None
            return self.copied(value, e) if f is np.array else self.settled(value, e)
        rows = [x for x in given.elts if isinstance(x, (ast.List, ast.Tuple))]
        widths = {len(row.elts) for row in rows}
        if rows and (len(rows) < len(given.elts) or len(widths) > 1):
            self.reject(e, "an array of rows of different lengths")
        nodes = [x for row in rows for x in row.elts] if rows else given.elts
        values = [self.number(x) for x in nodes]
        shape: list[Atom] = [len(rows), widths.pop()] if rows else [len(values)]
        if dtype is not None:
            kind = self.given_dtype(dtype)
        else:
            kind = promoted(map(self.dtype_of_number, values)) if values else "f8"
        made = self.make(shape, None, kind, e, base)
        for k, v in enumerate(values):
            at: list[Atom] = [k // int(shape[1]), k % int(shape[1])] if rows else [k]
            self.store(made.name, self.place(made, at, e), v, e)
        return made

    def _arange(self, bounds: list[Atom], e: ast.AST) -> Value:
        first: Atom = bounds[0] if len(bounds) > 1 else 0
        last, step = bounds[min(len(bounds) - 1, 1)], bounds[2] if len(bounds) > 2 else 1
        if any(self.dtype_of_number(b, "i8")[0] == "f" for b in bounds):
            return self.run(library.arange_of_floats, [first, last, step], e, is_library=True)
        if type(step) is not int or step <= 0:
            self.reject(e, "np.arange with this step", "write the loop that fills the array")
        return self.run(library.arange, [first, last, step], e, is_library=True)

    def joined(self, value: Value, axis: int, e: ast.AST) -> Value:
        """`np.concatenate`, and what is made of it: arrays one behind the other along an axis."""
        parts = value.items if isinstance(value, TupleValue) else ()
        arrays = [p for p in parts if is_array(p)]
        if not arrays or len(arrays) < len(parts) or len({p.ndim for p in arrays}) > 1:
            self.reject(
                e,
                "np.concatenate of these",
                "make an array before, and write into its parts: y[:n] = a",
            )
        ndim = arrays[0].ndim
        if not -ndim <= axis < ndim:
            self.reject(e, f"the axis {axis} of arrays of {ndim} dimensions")
        axis %= ndim
        arrays = self.promoted_floats(arrays, e)
        shape = [self.size(arrays[0], k, e) for k in range(ndim)]
        for p in arrays[1:]:
            for k in range(ndim):
                if k != axis and (size := self.size(p, k, e)) != shape[k]:
                    self.demand_same(shape[k], size, e)
            shape[axis] = self.op("+", [shape[axis], self.size(p, axis, e)], e)
        made = self.make(shape, None, arrays[0].dtype, e, "joined")
        start: Atom = 0
        for p in arrays:
            size = self.size(p, axis, e)
            dims = list(made.dims)
            dims[made.axes[axis]] = Strided(start, 1, size)
            part = ArrayView(made.name, made.dtype, tuple(dims), made.axes)
            self.run_library("assign", [part, p], e)
            start = self.op("+", [start, size], e)
        return made

    def _stacked(self, f: Any, value: Value, e: ast.AST, axis: int = 0) -> Value:
        """`np.vstack`, `np.hstack`, `np.dstack`, `np.column_stack`, `np.stack`."""
        parts = value.items if isinstance(value, TupleValue) else ()
        arrays: list[Value] = []
        for p in parts:
            view = self.settled(p, e)
            if not isinstance(view, ArrayView):
                self.reject(e, "this of something that is no array", "give it a tuple of arrays")
            if f is np.stack:
                view = self.with_axis(view, axis % (view.ndim + 1))
            elif f in (np.vstack, np.dstack) and view.ndim == 1:
                view = self.with_axis(view, 0)
            elif f is np.column_stack and view.ndim == 1:
                view = self.with_axis(view, 1)
            if f is np.dstack and view.ndim == 2:
                view = self.with_axis(view, 2)
            arrays.append(view)
        is_wide = f is np.column_stack or (
            f is np.hstack and is_array(arrays[0]) and arrays[0].ndim > 1
        )
        along = {np.dstack: 2, np.stack: axis}.get(f, int(is_wide))
        return self.joined(TupleValue(tuple(arrays)), along, e)

    def _reshaped(self, value: Value, shape: Value, e: ast.AST) -> Value | None:
        """`reshape`, which may be a view: a copy; if one of both is written, reads of the other are refused."""
        sizes = [
            self.atom(s, e) for s in (shape.items if isinstance(shape, TupleValue) else (shape,))
        ]
        if not is_array(value) or not all(
            type(s) is int or not self.is_known_float(s) for s in sizes
        ):
            return None
        flat, total = self._flat(value, e), self.whole_size(value, e)
        if not isinstance(flat, ArrayView):
            return None
        known: Atom = 1
        for s in sizes:
            if not (type(s) is int and s == -1):
                known = self.op("*", [known, s], e) if known != 1 else s
        if rest := [k for k, s in enumerate(sizes) if type(s) is int and s == -1]:
            if len(rest) > 1:
                self.reject(e, "a shape with more than one -1")
            sizes[rest[0]] = self.op("//", [total, known], e)
            known = self.op("*", [sizes[rest[0]], known], e)
        if known != total:
            same: Atom = (
                False if type(known) is type(total) is int else self.op("==", [known, total], e)
            )
            self.demand(
                same, "ValueError", "an array cannot be reshaped to another number of elements", e
            )

        def element(index: list[Atom]) -> Atom:
            at = index[0]
            for n, k in zip(sizes[1:], index[1:], strict=True):
                at = self.op("+", [self.op("*", [at, n], e), k], e)
            return self.element(flat, [at], e)

        reads = (ArrayView(flat.name, flat.dtype, flat.dims, ()),)
        made = self.settled(
            ArrayExpression(tuple(sizes), value.dtype, element, reads, self.writes), e
        )
        if isinstance(value, ArrayView) and isinstance(made, ArrayView):
            self.twins.tie(made.name, [value.name])
        return made


def _axis(e: ast.Call, position: int) -> int | None:
    """The axis of a reduction, if it is the only thing that it is told."""
    rest = [*e.args[position:], *[k.value for k in e.keywords]]
    if len(rest) != 1 or any(k.arg != "axis" for k in e.keywords):
        return None
    try:
        found = ast.literal_eval(rest[0])
    except ValueError:
        return None
    return found if type(found) is int else None


def _is_hashable(f: Any) -> bool:
    try:
        hash(f)
    except TypeError:
        return False
    return True
