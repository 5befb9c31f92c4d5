"""Expressions of a user's function: arithmetic, elements, slices, whole arrays, calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import library, library_orders, library_shapes
from .advice import OF_FUNCTIONS, OF_NODES
from .array_dtypes import ArrayDtypes
from .round_sizes import RoundSizes
from .source import MISSING, RULE, Function, meaning_of, python_function
from .structure import Apply, Atom, Branch, Make, Repeat, Statement, Suite, made_by, walk
from .twins import Twins
from .values import (
    NEW_AXIS,
    UNDEFINED,
    ArrayExpression,
    ArrayLike,
    ArrayView,
    BoundMethod,
    FixedIndex,
    PythonObject,
    Strided,
    TupleValue,
    Unreadable,
    Value,
    fields_of_both,
    is_array,
)
from .vocabulary import (
    BINARY,
    COMPARE,
    FUNCTIONS,
    HARMLESS,
    promoted,
)

REDUCTIONS = {"sum", "mean", "prod", "max", "min", "argmax", "argmin"}
_REDUCTION_NAMES = {getattr(np, name): name for name in REDUCTIONS} | {
    np.amax: "max",
    np.amin: "min",
}
_OF_ANY_DTYPE = {"max", "min", "argmax", "argmin"}
_LOOP = "write the loop over the elements"
_LIBRARY = (library, library_orders, library_shapes)


class KnownValue(ast.expr):
    """An expression that has been read."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


def may_have_rows(loop: Repeat) -> bool:
    """Whether the counter of a loop can be the first index of an array with a row for each round."""
    return type(loop.start) is int and loop.start >= 0 and loop.step > 0


class Expressions(ArrayDtypes):
    """Reads expressions into atoms, views and array expressions."""

    has_precisions = True  # whether a number of float32 is told from others

    def __init__(self) -> None:
        super().__init__()
        self.environment: dict[str, Value] = {}
        self.depth = 0  # of loops
        self.hoisted: list[Statement] = []  # arrays of loops, made before the outermost
        self.independent: Repeat | None = None  # the prange that is being read
        self.open_blocks: list[Suite] = []
        self.is_conditional = False
        self.written_sizes: dict[tuple[str, int], int] = {}  # by array and dimension: numbers
        self.alias: dict[str, str] = {}
        self.twins = Twins(self._root)
        self.frozen: set[str] = set()  # arrays that have two names since a branch
        self.never_negative: set[Atom] = set()  # counters of loops that count from 0 or more
        self.loop_names: set[Atom] = set()  # names that change from round to round
        self.counters: dict[Atom, tuple[Atom, Atom, int]] = {}  # of loops: start, stop, step
        self.counts: dict[
            Atom, Atom
        ] = {}  # of elements where an array is true: how many there are at all
        self.of_rounds: set[Atom] = set()  # sizes of arrays that are others in each round
        self.array_before: dict[
            Atom, str
        ] = {}  # arrays that change places in a loop -> one before it

    def _root(self, name: str) -> str:
        """One name of arrays that may be the same memory."""
        while (found := self.alias.get(name, name)) != name:
            name = found
        return name

    def run(
        self, function: Function, args: list[Value], node: ast.AST, *, is_library: bool
    ) -> Value:
        """Read a call of another function in place; the reader of statements does."""
        raise NotImplementedError

    def expression(self, e: ast.expr, base: str = "t") -> Value:
        method: Callable[[Any, str], Value] | None = getattr(self, f"on_{type(e).__name__}", None)
        if method is None:
            kind = type(e).__name__
            self.reject(e, f"an expression of this kind ({kind})", OF_NODES.get(kind, ""))
        return method(e, base)

    @contextmanager
    def conditionally(self) -> Iterator[None]:
        """While what is read does not run on every way."""
        before, self.is_conditional = self.is_conditional, True
        yield
        self.is_conditional = before

    def atom(self, value: Value, node: ast.AST) -> Atom:
        """A number, or a refusal."""
        if isinstance(value, (str, int, float)):
            return value
        if isinstance(value, (ArrayView, ArrayExpression)):
            self.reject(node, "an array where a number is needed", _LOOP)
        if isinstance(value, TupleValue):
            self.reject(node, "a tuple where a number is needed", "pick its elements")
        return self.reject(
            node, "an object that is no number", "pass numbers and arrays as arguments"
        )

    def number(self, e: ast.expr, base: str = "t") -> Atom:
        return self.atom(self.expression(e, base), e)

    # ----- names and constants -----

    def on_Constant(self, e: ast.Constant, base: str) -> Value:
        if isinstance(e.value, (bool, int, float)):
            return e.value
        if e.value is None or isinstance(e.value, str):
            return PythonObject(e.value)
        if isinstance(e.value, complex):
            return self.reject(e, f"the constant {e.value!r}", OF_FUNCTIONS["complex"])
        return self.reject(e, f"the constant {e.value!r}", "use numbers")

    def on_Name(self, e: ast.Name, base: str) -> Value:
        if e.id in self.environment:
            value = self.environment[e.id]
            if value is UNDEFINED:
                self.reject(
                    e, f"`{e.id}`, which is not assigned on every way here,", "assign it before"
                )
            if isinstance(value, Unreadable):
                self.reject(e, f"`{value.name}`, which {value.why},", value.instead)
            return value
        found = meaning_of(self.stack[-1].function, e.id)
        if found is MISSING:
            self.reject(e, f"the name `{e.id}`, which means nothing here,")
        return self.constant(found, e)

    def constant(self, value: Any, node: ast.AST) -> Value:
        """What a global, a variable of an enclosing function, or an attribute of a module stands for."""
        if isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, np.generic):
            if value.dtype.kind not in "biuf":
                self.reject(node, f"a constant of dtype {value.dtype}")
            found = value.item()
            is_single = value.dtype == np.float32 and self.has_precisions
            return self.op("float32", [found], node) if is_single else found
        if isinstance(value, tuple):
            return TupleValue(tuple(self.constant(v, node) for v in value))
        if isinstance(value, np.ndarray):
            return self.constant_array(value, node)
        if getattr(value, RULE, None) is not None:  # which would be lost
            self.reject(
                node, f"`{value.__name__}`, which has a derivative of its own,",
                "call it on tensors, and give its result to this function",
            )  # fmt: skip
        return PythonObject(value)

    def constant_array(self, value: np.ndarray[Any, Any], node: ast.AST) -> Value:
        """An array that a name of the text stands for, with the elements that it has now."""
        raise NotImplementedError

    def on_Tuple(self, e: ast.Tuple, base: str) -> Value:
        return TupleValue(tuple(self.settled(self.expression(v), v) for v in e.elts))

    # ----- arithmetic -----

    def on_UnaryOp(self, e: ast.UnaryOp, base: str) -> Value:
        value = self.expression(e.operand)
        match e.op:
            case ast.UAdd():
                return value
            case ast.USub():
                return self.apply("neg", [value], e, base)
            case ast.Not():
                test = self.atom(value, e.operand)
                return (not test) if isinstance(test, bool) else self.op("not", [test], e, base)
        of_truths = isinstance(value, (ArrayView, ArrayExpression)) and value.dtype == "b1"
        return self.apply("not" if of_truths else "invert", [value], e, base)

    def on_BinOp(self, e: ast.BinOp, base: str) -> Value:
        a, b = (self.expression(n) for n in (e.left, e.right))
        if isinstance(e.op, ast.MatMult):
            return self.product(a, b, e)
        if isinstance(e.op, ast.Add) and isinstance(a, TupleValue) and isinstance(b, TupleValue):
            return TupleValue((*a.items, *b.items))
        return self.apply(BINARY[type(e.op)], [a, b], e, base)

    def is_written_since(self, value: ArrayExpression) -> bool:
        """Whether an array that arithmetic reads may have been written since the arithmetic: asked wherever an
        element of it is read, as any call beside it may write."""
        written = {self._root(name) for name in self.stored[value.writes :]}
        if not written:
            return False
        names = {r.name for r in value.reads}
        if names & self.swapped and written & {self._root(name) for name in self.swapped}:
            return True
        return not written.isdisjoint({self._root(n) for n in (*names, *self.twins.of([*names]))})

    def on_Compare(self, e: ast.Compare, base: str) -> Value:
        values = [self.expression(n) for n in (e.left, *e.comparators)]
        result: Value | None = None
        for op, a, b in zip(e.ops, values, values[1:], strict=False):
            test = self._comparison(op, a, b, e)
            result = (
                test
                if result is None
                else self.op("and", [self.atom(result, e), self.atom(test, e)], e)
            )
        assert result is not None
        return result

    def _comparison(self, op: ast.cmpop, a: Value, b: Value, e: ast.Compare) -> Value:
        words = [v.value for v in (a, b) if isinstance(v, PythonObject)]
        are_texts = len(words) == 2 and all(isinstance(w, str) for w in words)
        if are_texts and isinstance(op, (ast.Eq, ast.NotEq)):
            return (words[0] == words[1]) is isinstance(op, ast.Eq)
        negated = isinstance(op, (ast.NotIn, ast.IsNot, ast.NotEq))
        of_none = [isinstance(v, PythonObject) and v.value is None for v in (a, b)]
        if isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)) and any(of_none):
            return all(of_none) is not negated
        if type(op) in COMPARE:
            return self.apply(COMPARE[type(op)], [a, b], e, "t")
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(b, TupleValue):
            found: Atom = False
            for item in b.items:
                same = self.atom(self._comparison(ast.Eq(), a, item, e), e)
                if isinstance(same, bool):
                    if same:
                        return not negated
                    continue
                found = same if found is False else self.op("or", [found, same], e)
            if isinstance(found, bool):
                return found is not negated
            return self.op("not", [found], e) if negated else found
        return self.reject(e, "this comparison", "compare numbers by <, <=, >, >=, == or !=")

    def on_BoolOp(self, e: ast.BoolOp, base: str) -> Value:
        result = self.number(e.values[0])
        is_and = isinstance(e.op, ast.And)
        for node in e.values[1:]:
            if isinstance(result, (bool, int, float)) and bool(result) is not is_and:
                return result  # what follows is never asked
            outer = self.block
            inner = self.open_block(Suite("branch"))
            self.open_blocks.append(inner)
            with self.conditionally():
                value = self.number(node)
            self.open_blocks.pop()
            self.close_block(outer)
            if isinstance(result, (bool, int, float)):  # known while reading
                outer.items += inner.items
                result = value
                continue
            if isinstance(value, bool) and self.is_test(result) and not inner.items:
                result = result if value is is_and else value
                continue
            of_then: Atom = value if is_and else result
            of_else: Atom = result if is_and else value
            if all(isinstance(i, Apply) and i.function in HARMLESS for i in inner.items):
                outer.items += inner.items
                if self.is_test(result) and self.is_test(value):
                    result = self.op("and" if is_and else "or", [result, value], e)
                else:
                    result = self.op("select", [result, of_then, of_else], e)
                continue
            dst, empty = self.fresh("t"), Suite("branch")
            if self.is_test(result) and self.is_test(value):
                self.tests.add(dst)
            self.dtypes.setdefault(dst, self.likely_dtype(of_then, of_else))
            then, orelse = (inner, empty) if is_and else (empty, inner)
            self.emit(Branch(result, then, orelse, [(dst, of_then, of_else)]), e)
            result = dst
        return result

    def on_IfExp(self, e: ast.IfExp, base: str) -> Value:
        condition = self.number(e.test)
        if isinstance(condition, (bool, int, float)):
            return self.expression(e.body if condition else e.orelse, base)
        outer, hoisted = self.block, len(self.hoisted)
        sides: list[tuple[Suite, Value]] = []
        for part in (e.body, e.orelse):
            block = self.open_block(Suite("branch"))
            self.open_blocks.append(block)
            with self.conditionally():
                sides.append((block, self.settled(self.expression(part), part)))
            self.open_blocks.pop()
            self.close_block(outer)
        (then, first), (orelse, second) = sides
        array = self.choice(base, (first, second), (then, orelse), hoisted, condition, e)
        if array is not None:
            self.emit(Branch(condition, then, orelse, []), e)
            return array
        if isinstance(first, TupleValue) and isinstance(second, TupleValue):
            if len(first.items) != len(second.items):
                self.reject(e, "a choice between tuples of different lengths")
            results = [
                (self.fresh(base), self.atom(x, e), self.atom(y, e))
                for x, y in zip(first.items, second.items, strict=True)
            ]
            for each, x, y in results:
                self.dtypes.setdefault(each, self.likely_dtype(x, y))
            self.emit(Branch(condition, then, orelse, results), e)
            return TupleValue(tuple([dst for dst, _, _ in results]), fields_of_both(first, second))
        a, b = self.atom(first, e.body), self.atom(second, e.orelse)
        if all(isinstance(i, Apply) and i.function in HARMLESS for i in then.items + orelse.items):
            outer.items += then.items + orelse.items
            return self.op("select", [condition, a, b], e, base)
        dst = self.fresh(base)
        self.dtypes.setdefault(dst, self.likely_dtype(a, b))
        self.emit(Branch(condition, then, orelse, [(dst, a, b)]), e)
        return dst

    def apply(self, function: str, args: list[Value], node: ast.AST, base: str = "t") -> Value:
        """A function of numbers, element by element where an argument is an array."""
        arrays = [a for a in args if isinstance(a, (ArrayView, ArrayExpression))]
        if not arrays:
            return self.op(function, [self.atom(a, node) for a in args], node, base)
        shape = self.common_shape(arrays, node)
        operands = [
            a if isinstance(a, (ArrayView, ArrayExpression)) else self.atom(a, node) for a in args
        ]
        reads = tuple(
            r for a in arrays for r in (a.reads if isinstance(a, ArrayExpression) else (a,))
        )
        dtype = self.dtype_of_result(function, operands, node)

        def element(index: list[Atom]) -> Atom:
            found = self.elements(operands, index, node)
            return self.op(
                function, self.as_ufuncs_do(function, operands, found, dtype, node), node
            )

        return ArrayExpression(tuple(shape), dtype, element, reads, self.writes)

    def elements(
        self, operands: Sequence[ArrayLike | Atom], index: list[Atom], node: ast.AST
    ) -> list[Atom]:
        """The elements that meet at an index of what arrays are broadcast to, and numbers as they are."""
        found: list[Atom] = []
        for a in operands:
            if isinstance(a, (ArrayView, ArrayExpression)):
                own = index[len(index) - a.ndim :]
                sizes = [self.size(a, k, node) for k in range(a.ndim)]
                at: list[Atom] = [
                    0 if size == 1 and type(size) is int else i
                    for i, size in zip(own, sizes, strict=True)
                ]
                found.append(self.element(a, at, node))
            else:
                found.append(a)
        return found

    def common_shape(self, arrays: list[ArrayLike], node: ast.AST) -> list[Atom]:
        """The shape that arrays are broadcast to; sizes that are not known to agree are checked at run time."""
        ndim = max(a.ndim for a in arrays)
        shape: list[Atom] = []
        for axis in range(ndim):
            found: Atom = 1
            for a in arrays:
                own = axis - (ndim - a.ndim)
                if own < 0:
                    continue
                size = self.size(a, own, node)
                if type(size) is int and size == 1:
                    continue
                if type(found) is int and found == 1:
                    found = size
                elif found != size:
                    self.demand_same(found, size, node)
            shape.append(found)
        return shape

    def demand_same(self, a: Atom, b: Atom, node: ast.AST) -> None:
        """Check two sizes where that is not known."""
        if type(a) is int and type(b) is int:
            if a != b:
                self.reject(
                    node, f"arrays with {a} and {b} elements along an axis, which do not agree,"
                )
            return
        self.demand(
            self.op("==", [a, b], node),
            "ValueError",
            "the shapes of arrays do not agree (a size of 1 is not broadcast in a kernel, index by None)",
            node,
        )

    def demand(self, condition: Atom, error: str, message: str, node: ast.AST) -> None:
        raise NotImplementedError

    def choice(
        self, base: str, arrays: tuple[Value, Value], blocks: tuple[Suite, Suite], hoisted: int,
        condition: Atom, node: ast.AST,
    ) -> ArrayView | None:  # fmt: skip
        """An array of its own for `a if condition else b`, None where it cannot be one.

        `hoisted`: how many arrays of loops there were before.
        """
        raise NotImplementedError

    def simple_call(self, f: Any, e: ast.Call, base: str) -> Value | None:
        """A call of a function of numbers that is no single application; None if it is another."""
        raise NotImplementedError

    def numpy_call(self, f: Any, e: ast.Call, base: str) -> Value | None:
        """A call of a function of NumPy's that is not read here; None if it is not read at all."""
        raise NotImplementedError

    def array_method(self, m: BoundMethod, e: ast.Call) -> Value | None:
        """Likewise of a method."""
        raise NotImplementedError

    def method_call(self, m: BoundMethod, e: ast.Call) -> Value | None:
        """A call of a method that is a function of NumPy's with loops of its own."""
        raise NotImplementedError

    # ----- arrays -----

    def size(self, a: ArrayLike, axis: int, node: ast.AST) -> Atom:
        if isinstance(a, ArrayExpression):
            return a.shape[axis]
        dim = a.axes[axis]
        if dim == NEW_AXIS:
            return 1
        kept = a.dims[dim]
        assert isinstance(kept, Strided)
        if kept.size is not None:
            return kept.size
        written = self.written_sizes.get((a.name, dim))  # which may be 1, and then is broadcast
        return self.op("shape", [a.name, dim], node, "n") if written is None else written

    def whole_size(self, a: ArrayLike, node: ast.AST) -> Atom:
        total: Atom = 1
        for k in range(a.ndim):
            total = (
                self.op("*", [total, self.size(a, k, node)], node) if k else self.size(a, 0, node)
            )
        return total

    def element(self, a: ArrayLike, index: list[Atom], node: ast.AST, base: str = "t") -> Atom:
        if isinstance(a, ArrayExpression):
            if self.is_written_since(a):
                self.reject(node, "arithmetic on arrays beside a call that writes into arrays",
                            "give the arithmetic a name in a statement of its own")  # fmt: skip
            return a.element(index)
        return self.load(a.name, self.place(a, index, node), node, base)

    def place(self, view: ArrayView, index: list[Atom], node: ast.AST) -> list[Atom]:
        """Where an element of a view is in its memory."""
        of_axis = {axis: i for axis, i in zip(view.axes, index, strict=True) if axis != NEW_AXIS}
        found: list[Atom] = []
        for k, dim in enumerate(view.dims):
            if isinstance(dim, FixedIndex):
                found.append(dim.at)
                continue
            at = of_axis[k]
            if dim != Strided() and dim.size is not None:
                at = self.from_end(at, dim.size, node)
            if dim.step != 1:
                at = self.op("*", [at, dim.step], node)
            if not (type(dim.start) is int and dim.start == 0):
                at = self.op("+", [dim.start, at], node)
            found.append(at)
        return found

    def from_end(self, at: Atom, size: Atom, node: ast.AST) -> Atom:
        """An index of a view that does not run over all of its memory: negative ones count from its end."""
        if type(at) is int:
            return at if at >= 0 else self.op("+", [size, at], node)
        if at in self.never_negative:
            return at
        return self.op(
            "select", [self.op("<", [at, 0], node), self.op("+", [at, size], node), at], node
        )

    def index_array(self, e: ast.Subscript) -> tuple[ArrayView, ArrayLike] | ast.Subscript:
        """The array and the one that it is indexed by, if that is an array; else the subscript, of which the
        index is not read again."""
        if isinstance(e.slice, (ast.Slice, ast.Tuple, ast.Constant)):
            return e
        index = self.expression(e.slice)
        if isinstance(index, TupleValue) and [*map(is_array, index.items)] == [True]:
            index = index.items[0]  # as np.nonzero gives it
        if is_array(index):
            owner = self.expression(e.value)
            if is_array(owner):
                view = self.settled(owner, e)
                assert isinstance(view, ArrayView)
                return view, index
        known = ast.copy_location(KnownValue(index), e.slice)
        return ast.copy_location(ast.Subscript(e.value, known, e.ctx), e)

    def on_KnownValue(self, e: KnownValue, base: str) -> Value:
        return e.value

    def where_true(self, owner: ArrayView, mask: ArrayLike, e: ast.AST) -> ArrayView:
        """`x[mask]`, in as much memory as there could be elements."""
        function = getattr(library, f"picked{owner.ndim}{mask.ndim}", None)
        if function is None:
            what = f"the elements of {owner.ndim} dimensions where {mask.ndim} dimensions are true"
            self.reject(e, what, "write the loop over the elements, with an if")
        return self.filled_up(
            owner.dtype, owner, mask.ndim, lambda made: [function, owner, mask, made], e
        )

    def filled_up(
        self, dtype: str, like: ArrayLike, ndim: int, call: Callable[[ArrayView], list[Any]], e: ast.AST
    ) -> ArrayView:  # fmt: skip
        """The part of an array that a library function has filled, which returns how far.

        It has room for all elements of the first `ndim` dimensions of another array in its first one.
        """
        sizes = [self.size(like, k, e) for k in range(like.ndim)]
        room = sizes[0]
        for size in sizes[1:ndim]:
            room = self.op("*", [room, size], e)
        made = self.make([room, *sizes[ndim:]], None, dtype, e, "picked")
        function, *args = call(made)
        count = self.atom(self.run(function, args, e, is_library=True), e)
        self.counts[count] = room
        dims = list(made.dims)
        dims[made.axes[0]] = Strided(0, 1, count)
        return ArrayView(made.name, dtype, tuple(dims), made.axes)

    def picked(self, owner: ArrayView, index: ArrayLike, e: ast.AST) -> ArrayLike:
        """`x[k]` for an array of indices or of truth values."""
        if index.dtype == "b1":
            return self.where_true(owner, index, e)
        if index.dtype[0] != "i":
            self.reject(e, "an array of floats as an index", "use one of whole numbers")
        sizes = [self.size(index, k, e) for k in range(index.ndim)]
        sizes += [self.size(owner, k, e) for k in range(1, owner.ndim)]

        def element(at: list[Atom]) -> Atom:
            first = self.element(index, at[: index.ndim], e)
            return self.element(owner, [first, *at[index.ndim :]], e)

        anywhere = ArrayView(owner.name, owner.dtype, owner.dims, ())
        reads = (anywhere, *(index.reads if isinstance(index, ArrayExpression) else (index,)))
        return ArrayExpression(tuple(sizes), owner.dtype, element, reads, self.writes)

    def on_Subscript(self, e: ast.Subscript, base: str) -> Value:
        found = self.index_array(e)
        if isinstance(found, tuple):
            return self.picked(*found, e)
        e, value = found, self.expression(e.value)
        if isinstance(value, TupleValue):
            if isinstance(e.slice, ast.Slice):
                return self._part_of_tuple(value, e.slice, e)
            k = self.expression(e.slice)
            if type(k) is not int or not -len(value.items) <= k < len(value.items):
                return self._chosen(value, k, e)
            return value.items[k]
        if isinstance(value, BoundMethod) and value.name == "flat":
            view = self.in_flat(value, e)
            return self.load(view.name, self.place(view, [], e), e, base)
        if isinstance(value, ArrayExpression):
            parts = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
            if self.stack[-1].is_library and len(parts) == value.ndim:
                return self.element(value, [self.number(p) for p in parts], e)
            value = self.settled(value, e)
        if not isinstance(value, ArrayView):
            self.reject(e, "an index of something that is no array or tuple",
                        "make it a tuple, or pass it as an array")  # fmt: skip
        view = self.subview(value, e)
        if view.axes:
            return view
        return self.load(view.name, self.place(view, [], e), e, base)

    def in_flat(self, flat: BoundMethod, e: ast.Subscript) -> ArrayView:
        """The element of `x.flat[k]`."""
        view = self.settled(flat.owner, e)
        if not isinstance(view, ArrayView) or isinstance(e.slice, (ast.Slice, ast.Tuple)):
            self.reject(e, "this index of `flat`", "write one whole number")
        sizes = [self.size(view, k, e) for k in range(view.ndim)]
        rest = self.from_end(self.number(e.slice), self.whole_size(view, e), e)
        index: list[Atom] = []
        for n in reversed(sizes[1:]):
            index.append(self.op("%", [rest, n], e))
            rest = self.op("//", [rest, n], e)
        at = self.place(view, [rest, *index[::-1]], e)
        return ArrayView(view.name, view.dtype, tuple([FixedIndex(k) for k in at]), ())

    def _part_of_tuple(self, value: TupleValue, s: ast.Slice, e: ast.AST) -> TupleValue:
        bounds: list[int | None] = []
        for node in (s.lower, s.upper, s.step):
            bound = None if node is None else self.expression(node)
            if bound is not None and type(bound) is not int:
                self.reject(
                    e,
                    "a part of a tuple whose bounds are no numbers of the text",
                    "pick its elements",
                )
            bounds.append(bound)
        return TupleValue(value.items[slice(*bounds)])

    def _chosen(self, items: TupleValue, k: Value, e: ast.Subscript) -> Value:
        """An item of a tuple at an index that is not known while reading."""
        if type(k) is int or not items.items:
            self.reject(e, "an index beyond a tuple")
        at, count = self.atom(k, e), len(items.items)
        wrapped = self.from_end(at, count, e)
        inside = [self.op("<=", [0, wrapped], e), self.op("<", [wrapped, count], e)]
        self.demand(self.op("and", inside, e), "IndexError", "tuple index out of range", e)
        found = self.atom(items.items[-1], e)
        for j in range(count - 2, -1, -1):
            here = self.op("==", [wrapped, j], e)
            found = self.op("select", [here, self.atom(items.items[j], e), found], e)
        return found

    def subview(self, value: ArrayView, e: ast.Subscript) -> ArrayView:
        """A view at the indices and slices of a subscript."""
        parts = list(e.slice.elts) if isinstance(e.slice, ast.Tuple) else [e.slice]
        values: list[Value | ast.Slice] = []
        for part in parts:
            if isinstance(part, ast.Slice):
                values.append(part)
            elif isinstance(part, ast.Constant) and part.value is Ellipsis:
                named = sum(
                    not (isinstance(p, ast.Constant) and p.value in (None, ...)) for p in parts
                )
                values += [ast.Slice()] * (value.ndim - named)
            else:
                found = self.expression(part)
                if isinstance(found, TupleValue):
                    values += found.items
                else:
                    values.append(found)
        dims, axes, rest = list(value.dims), [], list(value.axes)
        for v in values:
            if isinstance(v, PythonObject) and v.value is None:
                axes.append(NEW_AXIS)
                continue
            if not rest:
                self.reject(e, f"an array of {value.ndim} dimensions with more indices")
            axis = rest.pop(0)
            if axis == NEW_AXIS:
                if isinstance(v, ast.Slice):
                    axes.append(axis)
                continue
            dim = dims[axis]
            assert isinstance(dim, Strided)
            if isinstance(v, ast.Slice):
                dims[axis] = self._sliced(value, axis, dim, v, e)
                axes.append(axis)
                continue
            if isinstance(v, (ArrayView, ArrayExpression)):
                self.reject(e, "an array as an index", "write the loop over its elements")
            at = self.atom(v, e)
            if self.is_known_float(at):
                self.reject(e, "an index that is a float", "write int(...)")
            one = ArrayView(value.name, value.dtype, (dim,), (0,))
            dims[axis] = FixedIndex(self.place(one, [at], e)[0])
        return ArrayView(value.name, value.dtype, tuple(dims), (*axes, *rest))

    def _sliced(
        self, value: ArrayView, axis: int, dim: Strided, s: ast.Slice, e: ast.AST
    ) -> Strided:
        if s.lower is None and s.upper is None and s.step is None:
            return dim
        step = 1 if s.step is None else self.expression(s.step)
        if type(step) is not int or step == 0:
            self.reject(e, "a slice whose step is not a number in the text", "write -1, 1, 2, ...")
        size = self.op("shape", [value.name, axis], e, "n") if dim.size is None else dim.size
        count: Atom
        if step > 0:
            lower = self._bound(s.lower, 0, size, e, 0, size)
            upper = self._bound(s.upper, size, size, e, 0, size)
            count = self.op("-", [upper, lower], e)
            if step != 1:
                count = self.op("//", [self.op("+", [count, step - 1], e), step], e)
        else:
            last = self.op("-", [size, 1], e)
            lower = self._bound(s.lower, last, size, e, -1, last)
            upper = -1 if s.upper is None else self._bound(s.upper, -1, size, e, -1, last)
            count = self.op("-", [lower, upper], e)
            if step != -1:
                count = self.op("//", [self.op("+", [count, -step - 1], e), -step], e)
        whole = type(lower) is int and lower == 0 and step > 0
        count = count if whole else self.op("max", [0, count], e)
        start = (
            self.op("+", [dim.start, self.op("*", [lower, dim.step], e)], e)
            if dim.step != 1
            else lower
        )
        if dim.step == 1 and not (type(dim.start) is int and dim.start == 0):
            start = self.op("+", [dim.start, lower], e)
        return Strided(start, dim.step * step, count)

    def reversed(self, value: ArrayView, axis: int, e: ast.AST) -> Strided:
        """A dimension of a view's memory from its end."""
        dim = value.dims[axis]
        assert isinstance(dim, Strided)
        return self._sliced(value, axis, dim, ast.Slice(None, None, ast.Constant(-1)), e)

    def _bound(
        self, node: ast.expr | None, default: Atom, size: Atom, e: ast.AST, least: Atom, most: Atom
    ) -> Atom:
        """A bound of a slice, as Python takes it: from the end if negative, and inside of the array."""
        if node is None:
            return default
        at = self.number(node)
        if type(at) is int and at >= 0:
            return 0 if at == 0 and least == 0 else self.op("min", [at, most], e)
        if type(at) is int:
            return self.op("max", [self.op("+", [size, at], e), least], e)
        wrapped = self.op("select", [self.op("<", [at, 0], e), self.op("+", [at, size], e), at], e)
        return self.op("min", [self.op("max", [wrapped, least], e), most], e)

    def settled(self, value: Value, node: ast.AST, base: str = "t") -> Value:
        """Give arithmetic on arrays memory of its own."""
        if not isinstance(value, ArrayExpression):
            return value
        made = self.make(list(value.shape), None, value.dtype, node, base)
        self.run_library("assign", [made, value], node)
        return made

    def make(
        self, shape: list[Atom], fill: Atom | None, dtype: str, node: ast.AST, base: str
    ) -> ArrayView:
        """A new array. In a loop it is one for all rounds, made before the outermost and filled where it
        stands; in a prange a row of it for each round."""
        dst = self.fresh(base if base != "t" else "a")
        loop = self.independent
        if loop is not None and may_have_rows(loop):
            rows = Apply(self.fresh("n"), "max", [loop.stop, 0])
            rows.note = self.note(node)
            sizes = [self._before_loops(a, node) for a in shape]
            self.hoisted.append(rows)
            item = Make(dst, [rows.dst, *sizes], 0, dtype)
            made = ArrayView.row(dst, len(shape), dtype, loop.counter)
        else:
            made = ArrayView.whole(dst, len(shape), dtype)
            if not self.depth:
                self.arrays[dst] = (len(shape), dtype)
                self.written_sizes |= {(dst, k): n for k, n in enumerate(shape) if type(n) is int}
                self.emit(Make(dst, shape, fill, dtype), node)
                return made
            sizes = [self._before_loops(a, node) for a in shape]
            item = Make(dst, sizes, 0, dtype)
            for size, before in zip(shape, sizes, strict=True):
                if size != before and self._is_of_swapped(size):
                    self.demand_same(size, before, node)
        item.note = self.note(node)
        self.hoisted.append(item)
        self.arrays[dst] = (len(item.shape), dtype)
        first = len(made.dims) - len(shape)  # the number of a round
        parts = [Strided(0, 1, a) if a in self.of_rounds else Strided() for a in shape]
        for k, (n, part) in enumerate(zip(shape, parts, strict=True)):
            if type(n) is int:
                self.written_sizes[dst, first + k] = n
            elif part.size is not None:
                self._demand_not_negative(n, node)
        made = ArrayView(dst, dtype, (*made.dims[:first], *parts), made.axes)
        return self._filled(made, fill, node)

    def _before_loops(self, a: Atom, node: ast.AST) -> Atom:
        """The size that an array of a loop has before the outermost one: its own, or, of one that is another in
        each round, what it is at most."""
        own = self._hoist(a, node)
        if own is not None:
            return own
        bounds = RoundSizes(self, node)
        most = None if self._is_of_swapped(a) else bounds.most(a)
        if most is None:
            self.reject(
                node, "an array made inside of a loop with a size that is computed there",
                "make it before the loop and use a part of it",
            )  # fmt: skip
        self.of_rounds.add(a)
        if type(most) is int and most >= 0:
            return most
        room = Apply(self.fresh("n"), "max", [most, 0])
        room.note = self.note(node)
        self.hoisted.append(room)
        return room.dst

    def _demand_not_negative(self, n: Atom, node: ast.AST) -> None:
        """Check a size that may be negative, as NumPy does."""
        least = RoundSizes(self, node).least(n)
        if not (type(least) is int and least >= 0):
            condition = self.op("<=", [0, n], node)
            self.demand(condition, "ValueError", "negative dimensions not allowed", node)

    def _filled(self, made: ArrayView, fill: Atom | None, node: ast.AST) -> ArrayView:
        if fill is not None:
            is_float = made.dtype[0] == "f" and type(fill) is int
            self.run_library("fill", [made, float(fill) if is_float else fill], node)
        return made

    def _is_of_swapped(self, size: Atom) -> bool:
        """Whether a size is made of those of arrays that change places, which may differ."""
        if size in self.array_before:
            return True
        inside = (i for b in self.open_blocks for _, i in walk(b))
        item = next((i for i in inside if isinstance(i, Apply) and i.dst == size), None)
        return item is not None and any(self._is_of_swapped(a) for a in item.args)

    def _hoist(self, a: Atom, node: ast.AST) -> Atom | None:
        """A size before the outermost loop: computed there again if it is made of what is there; None where it
        is not."""
        while a in self.array_before:
            a = self.array_before[a]
        inside = [i for b in self.open_blocks for _, i in walk(b)]
        item = next((i for i in inside if isinstance(i, Apply) and i.dst == a), None)
        if item is None:
            return None if a in self.loop_names or any(a in made_by(i) for i in inside) else a
        args: list[Atom] = []
        for x in item.args:
            before = self._hoist(x, node) if isinstance(x, str) else x
            if before is None:
                return None
            args.append(before)
        copied = Apply(self.fresh("n"), item.function, args)
        copied.note = item.note
        self.hoisted.append(copied)
        return copied.dst

    def run_library(self, name: str, args: list[Value], node: ast.AST) -> Value:
        """Read a function of `library` whose name ends with the dimensions of its first argument."""
        first = args[0]
        assert isinstance(first, (ArrayView, ArrayExpression))
        for room in _LIBRARY:
            found = getattr(room, f"{name}{first.ndim}", None)
            if found is not None:
                return self.run(found, args, node, is_library=True)
        return self.reject(node, f"`{name}` of an array of {first.ndim} dimensions", _LOOP)

    def product(self, a: Value, b: Value, node: ast.AST) -> Value:
        """`a @ b`, `np.dot(a, b)`."""
        if not isinstance(a, (ArrayView, ArrayExpression)) or not isinstance(
            b, (ArrayView, ArrayExpression)
        ):
            self.reject(node, "a product of something that is no array")
        self.demand_floats([a, b], node)
        found = getattr(library, f"dot{a.ndim}{b.ndim}", None)
        if found is None:
            self.reject(node, f"a product of arrays of {a.ndim} and {b.ndim} dimensions", _LOOP)
        return self.run(
            found, [self.settled(a, node), self.settled(b, node)], node, is_library=True
        )

    # ----- attributes and calls -----

    def on_Attribute(self, e: ast.Attribute, base: str) -> Value:
        value = self.expression(e.value)
        if isinstance(value, (str, int, float)) and e.attr in ("shape", "ndim"):
            return TupleValue(()) if e.attr == "shape" else 0  # of np.asarray(number)
        if isinstance(value, (ArrayView, ArrayExpression)):
            match e.attr:
                case "shape":
                    return TupleValue(tuple(self.size(value, k, e) for k in range(value.ndim)))
                case "size":
                    return self.whole_size(value, e)
                case "ndim":
                    return value.ndim
                case "dtype":
                    return PythonObject(np.dtype(value.dtype))
                case "T" if isinstance(value, ArrayView):
                    return ArrayView(value.name, value.dtype, value.dims, value.axes[::-1])
            return BoundMethod(value, e.attr)
        if isinstance(value, PythonObject):
            found = getattr(value.value, e.attr, MISSING)
            if found is MISSING:
                self.reject(e, f"`{ast.unparse(e)}`, which is not there,")
            return self.constant(found, e)
        if isinstance(value, TupleValue) and e.attr in value.fields:
            return value.items[value.fields.index(e.attr)]
        instead = "leave it out" if e.attr == "item" else ""
        return self.reject(e, f"the attribute `{e.attr}` of a number or tuple", instead)

    def on_Call(self, e: ast.Call, base: str) -> Value:
        called = self.expression(e.func)
        if any(isinstance(a, ast.Starred) for a in e.args):
            e = self._written_out(e)
        if isinstance(called, BoundMethod):
            return self._method(called, e)
        if not isinstance(called, PythonObject):
            self.reject(e, "a call of this")
        f = called.value
        try:
            known = FUNCTIONS.get(f)
        except TypeError:
            known = None
        simple = self.simple_call(f, e, base)
        if simple is not None:
            return simple
        if known is not None:
            return self._scalar_call(known, e, base)
        if f is len:
            value = self.expression(e.args[0])
            if isinstance(value, TupleValue):
                return len(value.items)
            if isinstance(value, (ArrayView, ArrayExpression)):
                return self.size(value, 0, e)
            self.reject(e, "the length of this")
        if (getattr(f, "__module__", None) or "").partition(".")[0] == "numpy":
            return self._numpy_call(f, e, base)
        if isinstance(f, type) and issubclass(f, tuple) and hasattr(f, "_fields"):
            return self._named_tuple(f, e)
        if not hasattr(python_function(f), "__code__"):
            name = str(getattr(f, "__name__", type(f).__name__))
            instead = "write it as a loop, or as a function of your own"
            if type(f).__name__ == "DUFunc":
                instead = "decorate the function by njit in place of vectorize, and call it for each element"
            self.reject(e, f"`{ast.unparse(e.func)}`", OF_FUNCTIONS.get(name, instead))
        return self._user_call(f, e)

    def _written_out(self, e: ast.Call) -> ast.Call:
        """A call whose `*arguments` have names of their own."""
        args: list[ast.expr] = []
        for a in e.args:
            if not isinstance(a, ast.Starred):
                args.append(a)
                continue
            value = self.expression(a.value)
            if not isinstance(value, TupleValue):
                self.reject(
                    a, "a star before something that is no tuple", "pass the arguments one by one"
                )
            for k, item in enumerate(value.items):
                name = f"star.{a.lineno}.{a.col_offset}.{k}"
                self.environment[name] = item
                args.append(ast.copy_location(ast.Name(name, ast.Load()), a))
        return ast.copy_location(ast.Call(e.func, args, e.keywords), e)

    def _scalar_call(self, function: str, e: ast.Call, base: str) -> Value:
        if e.keywords:
            self.reject(e, "keyword arguments of this function")
        args = [self.expression(n) for n in e.args]
        if not args:
            self.reject(e, "a call without arguments")
        if function in ("min", "max"):
            if len(args) == 1 and isinstance(args[0], TupleValue):
                args = list(args[0].items)
            if len(args) < 2:
                self.reject(e, f"`{function}` of one argument", "call np.min or np.max of an array")
            result = self.atom(args[0], e)
            for a in args[1:]:
                result = self.op(function, [result, self.atom(a, e)], e, base)
            return result
        if function == "math.pow":
            args = [self.apply("float64", [a], e) for a in args]
            function = "**"
        if function == "round" and len(args) != 1:
            self.reject(e, "`round` to digits", "round x * 10.0**n")
        return self.apply(function, args, e, base)

    def _numpy_call(self, f: Any, e: ast.Call, base: str) -> Value:
        name = getattr(f, "__name__", repr(f))
        full = f"np{f.__module__.removeprefix('numpy')}.{name}"
        options = {k.arg: k.value for k in e.keywords}
        if name in ("zeros", "ones", "empty", "full") or name.endswith("_like"):
            return self._creation(name, e, base)
        found = self.numpy_call(f, e, base)
        if found is not None:
            return found
        if options:
            self.reject(e, f"keyword arguments of {full}", OF_FUNCTIONS.get(name, _LOOP))
        if name in OF_FUNCTIONS and name != "where" and f not in _REDUCTION_NAMES:
            self.reject(e, f"the function {full}", OF_FUNCTIONS[name])
        if name == "cross" and len(e.args) == 2:
            return self._cross(e)
        args = [self.expression(n) for n in e.args]
        if f in _REDUCTION_NAMES:
            if len(args) != 1:
                self.reject(e, f"{full} along an axis", "write the loop over the other axes")
            return self.reduction(_REDUCTION_NAMES[f], args[0], e)
        match name, args:
            case "where", [test, a, b]:
                return self.apply("select", [test, a, b], e, base)
            case "square", [a]:
                return self.apply("*", [a, a], e, base)
            case "clip", [a, low, high]:
                return self.clipped(a, low, high, e)
            case "dot" | "matmul" | "vdot", [a, b]:
                return self.product(a, b, e)
            case "linspace", _ if len(args) in (2, 3):
                return self.run(library.linspace, [*args, 50][:3], e, is_library=True)
            case "copy", [a]:
                return self.copied(a, e)
        instead = OF_FUNCTIONS.get(name, "write it as a loop, or as a function of your own")
        return self.reject(e, f"the function {full}", instead)

    def _cross(self, e: ast.Call) -> Value:
        """The product of two vectors of three elements, also of written ones."""
        arrays: list[Value] = []
        for node in e.args:
            if isinstance(node, (ast.List, ast.Tuple)):
                elements = [self.number(n) for n in node.elts]
                dtype = promoted(map(self.dtype_of_number, elements))
                value: Value = self.make([len(elements)], None, dtype, node, "t")
                assert isinstance(value, ArrayView)
                for k, element in enumerate(elements):
                    self.store(value.name, self.place(value, [k], node), element, node)
            else:
                value = self.settled(self.expression(node), node)
            if not isinstance(value, ArrayView) or value.ndim != 1:
                self.reject(node, "np.cross of this", "give it two vectors of three elements")
            arrays.append(value)
        floats = self.promoted_floats([v for v in arrays if isinstance(v, ArrayView)], e)
        return self.run(library.cross11, [*floats], e, is_library=True)

    def reduction(self, name: str, value: Value, e: ast.AST) -> Value:
        if not isinstance(value, (ArrayView, ArrayExpression)):
            self.reject(e, f"`{name}` of something that is no array")
        if name == "sum" and value.dtype[0] in "bi":
            return self.run_library("count" if value.dtype == "b1" else "total", [value], e)
        if name == "mean":
            (value,) = self.promoted_floats([value], e)
        elif name not in _OF_ANY_DTYPE:
            self.demand_floats([value], e)
        return self.run_library(name, [value], e)

    def clipped(self, a: Value, low: Value, high: Value, e: ast.AST) -> Value:
        """`np.clip`, whose result is of the dtype of what is clipped."""
        found = a
        for function, bound in (("np.maximum", low), ("np.minimum", high)):
            if bound != PythonObject(None):
                found = self.apply(function, [found, bound], e)
        if isinstance(a, (ArrayView, ArrayExpression)):
            if a.dtype[0] != "f":
                self.demand_floats([a], e)
            return self.in_dtype_of(a, found, e)
        return found

    def copied(self, value: Value, node: ast.AST) -> ArrayView:
        """A new array with the same elements."""
        if not isinstance(value, (ArrayView, ArrayExpression)):
            self.reject(node, "a copy of something that is no array")
        if isinstance(value, ArrayExpression):
            made = self.settled(value, node)
            assert isinstance(made, ArrayView)
            return made
        shape = [self.size(value, k, node) for k in range(value.ndim)]
        made = self.make(shape, None, value.dtype, node, "copy")
        self.run_library("assign", [made, value], node)
        return made

    def _creation(self, name: str, e: ast.Call, base: str) -> Value:
        rest = list(e.args)
        options = {k.arg: k.value for k in e.keywords}
        fill: Atom | None = {"zeros": 0, "ones": 1}.get(name.removesuffix("_like"))
        dtype = "f8"
        first = (
            self.expression(rest.pop(0)) if rest else self.reject(e, "a new array without a shape")
        )
        shape: list[Atom]
        if name.endswith("_like"):
            if not isinstance(first, (ArrayView, ArrayExpression)):
                self.reject(e, f"np.{name} of something that is no array")
            shape = [self.size(first, k, e) for k in range(first.ndim)]
            dtype = first.dtype
        else:
            items = first.items if isinstance(first, TupleValue) else (first,)
            shape = [self.atom(s, e) for s in items]
        if name.startswith("full"):
            node = rest.pop(0) if rest else options.pop("fill_value", None)
            if node is None:
                self.reject(e, f"np.{name} without a value")
            fill = self.number(node)
            if name == "full" and not rest and "dtype" not in options and type(fill) in (int, bool):
                self.reject(e, "np.full with a whole number and no dtype", "write 0.0 for a float")
        kind = rest.pop(0) if rest else options.pop("dtype", None)
        if kind is not None:
            dtype = self.given_dtype(kind)
        if rest or options:
            self.reject(e, f"these arguments of np.{name}")
        elif name == "full" and isinstance(fill, str):
            dtype = self.dtype_of_number(fill)
        if isinstance(fill, str):  # a value that may have a gradient: it is written by a loop
            made = self.make(shape, None, dtype, e, base)
            self.run_library("fill", [made, fill], e)
            return made
        return self.make(shape, fill, dtype, e, base)

    def given_dtype(self, node: ast.expr) -> str:
        value = self.expression(node)
        try:
            found = np.dtype(value.value) if isinstance(value, PythonObject) else None
        except TypeError:
            found = None
        if found is None or found.kind not in "bif":
            self.reject(node, "an array of this dtype", "use np.float64, np.float32 or np.int64")
        return found.str[1:]

    def _method(self, m: BoundMethod, e: ast.Call) -> Value:
        found = self.method_call(m, e)
        if found is not None:
            return found
        match m.name:
            case "copy" if not e.args and not e.keywords:
                return self.copied(m.owner, e)
            case "fill" if len(e.args) == 1 and isinstance(m.owner, ArrayView):
                return self.run_library("fill", [m.owner, self.number(e.args[0])], e)
            case "dot" if len(e.args) == 1:
                return self.product(m.owner, self.expression(e.args[0]), e)
            case "item" if not e.args and m.owner.ndim == 0:
                return self.element(m.owner, [], e)
            case name if name in REDUCTIONS and not e.args and not e.keywords:
                return self.reduction(name, m.owner, e)
        found = self.array_method(m, e)
        if found is not None:
            return found
        instead = OF_FUNCTIONS.get(m.name, _LOOP)
        return self.reject(e, f"the method `{m.name}` with these arguments", instead)

    def _named_tuple(self, kind: Any, e: ast.Call) -> TupleValue:
        given = dict(zip(kind._fields, e.args, strict=False))
        given |= {k.arg: k.value for k in e.keywords if k.arg is not None}
        if len(e.args) + len(e.keywords) != len(given) or set(given) != set(kind._fields):
            self.reject(e, f"a `{kind.__name__}` of these", "give it each of its fields once")
        items = [self.settled(self.expression(given[name]), given[name]) for name in kind._fields]
        return TupleValue(tuple(items), kind._fields)

    def _user_call(self, f: Function, e: ast.Call) -> Value:
        is_library = self.stack[-1].is_library
        values = [
            self.expression(a) if is_library else self.settled(self.expression(a), a)
            for a in e.args
        ]
        python = python_function(f)
        code = python.__code__
        params = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given: dict[str, Value] = dict(zip(params[: code.co_argcount], values, strict=False))
        for k in e.keywords:
            if k.arg is None or k.arg not in params:
                self.reject(e, "these keyword arguments", "pass them by position")
            given[k.arg] = self.settled(self.expression(k.value), k.value)
        defaults = python.__defaults__ or ()
        by_default = dict(zip(params[code.co_argcount - len(defaults) :], defaults, strict=False))
        for p, d in (by_default | (python.__kwdefaults__ or {})).items():
            if p not in given:
                given[p] = self.constant(d, e)
        if len(values) > code.co_argcount or set(given) != set(params):
            self.reject(
                e, f"a call with {len(values)} arguments of a function with {code.co_argcount}"
            )
        found = self.run(f, [given[p] for p in params], e, is_library=is_library)
        if isinstance(found, Unreadable):
            self.reject(e, f"`{python.__name__}`, whose result {found.why},", found.instead)
        return found
