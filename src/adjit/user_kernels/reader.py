"""A user's function to its structured form: statements, branches, loops, calls read in place."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Literal, NoReturn

import numpy as np

from .. import config
from . import library
from .advice import OF_NODES
from .choices import BranchSide, chosen
from .expressions import may_have_rows
from .for_each import rounds
from .jumps import (
    RESULT,
    Jumps,
    LeavingFor,
    LeavingWhile,
    always_returns,
    may_return,
    returns_value,
)
from .numpy_functions import NumpyFunctions
from .refusal import NotDifferentiable
from .sizes import use_demands
from .source import Function, SourceText, is_constant_array, parallel_option, python_function
from .structure import (
    Atom,
    Branch,
    Carried,
    Demand,
    Make,
    Procedure,
    Repeat,
    Statement,
    StoreElement,
    Suite,
    eliminate,
    link,
    walk,
)
from .twins import Mark
from .values import (
    UNDEFINED,
    ArrayExpression,
    ArrayLike,
    ArrayView,
    BoundMethod,
    FixedIndex,
    PythonObject,
    TupleValue,
    Unreadable,
    Value,
    _Unassigned,
    fields_of_both,
    kind_of_value,
)
from .vocabulary import BINARY, promoted

# (dimensions, dtype) of an array, dtype of a number, or that there is none
ArgumentKind = tuple[int, str] | str
NONE = "None"
_JUMPS = (ast.Return, ast.Break, ast.Continue)
_DROPPED = "<dropped>"  # the next value of what is not carried after all
_MADE_IN_LOOP = (
    "is an array made in a loop, and read behind it", "make it before the loop, and write into it: y[:] = ..."
)  # fmt: skip
_COPY_IT = "copy it where it gets the other name: y = x.copy()"
_ONE_KIND = (
    "make it before the loop as rounds make it, as by np.zeros(n, np.float64), or use two names"
)
_NOT_CONTIGUOUS = "copy it into an array made before the loop"


def read(
    function: Function, kinds: Sequence[ArgumentKind], *, on_gpu: bool = False, dtypes: Mapping[str, str] = {},
    in_order: Set[str] = frozenset(),
) -> Procedure:  # fmt: skip
    """Read a function for arguments of these kinds.

    `on_gpu`: loops by `prange` are independent whatever options Numba was given. `dtypes`: of some numbers.
    `in_order`: lines of loops by `prange` that are `range`.

    Raises:
        NotDifferentiable: with the line, if it has something that cannot be differentiated.
    """
    reader = FunctionReader()
    reader.on_gpu, reader.in_order = on_gpu, in_order
    reader.dtypes.update(dtypes)
    try:
        return reader.read(function, kinds)
    except NotDifferentiable:
        loop = reader.independent
        if loop is None or not loop.is_optional:
            raise
    return read(function, kinds, on_gpu=on_gpu, dtypes=dtypes, in_order={*in_order, loop.note})


def runs_parallel(function: Function) -> bool:
    """Whether `prange` is more than `range`: as in Numba not in an njit function without parallel=True, and
    not where indices are checked, which raises errors. In a plain function it is both: there rounds are
    shared by threads where they are apart."""
    return parallel_option(function) is not False and not config.DEBUG


class FunctionReader(NumpyFunctions):
    """Reads one function and all that it calls."""

    has_settings = False  # whether the function may have keyword-only parameters

    def __init__(self) -> None:
        super().__init__()
        self.returned: set[str] = set()  # arrays
        self.constants: dict[int, ArrayView] = {}  # global arrays, made before all else
        self.made_first: list[Statement] = []
        self.on_gpu = False
        self.in_order: Set[str] = frozenset()

    def read(self, function: Function, kinds: Sequence[ArgumentKind]) -> Procedure:
        source = self.enter(function, None)
        if source.tree.args.kwonlyargs and not self.has_settings:
            self.reject(source.tree, "a function with keyword-only parameters", "use plain ones")
        params = self._parameters(source)
        if len(params) != len(kinds):
            self.reject(
                source.tree, f"a call with {len(kinds)} arguments of a function with {len(params)}"
            )
        names: list[str] = []
        for p, kind in zip(params, kinds, strict=True):
            names.append(name := self.fresh(p))
            if kind == NONE:  # so it is known which side of a branch there is
                self.environment[p] = PythonObject(None)
            elif isinstance(kind, str):
                self.environment[p] = name
                self.dtypes.setdefault(name, kind)
            else:
                self.arrays[name] = kind
                self.environment[p] = ArrayView.whole(name, *kind)
        top = self.block
        self._body(source)
        result = self.environment.get(RESULT, UNDEFINED)
        returns = self._returned(result, source.tree)
        top.items[:0] = self.made_first
        for name in names:  # who calls reads arrays
            self._check_fresh(name, source.tree)
        f = Procedure(
            name=python_function(function).__name__,
            params=names,
            arrays=self.arrays,
            body=top,
            returns=returns,
            returns_tuple=isinstance(result, TupleValue),
            written=self.written,
            alias=self.alias,
            heading=f"{source.filename}:{source.first}",
            supposed=self.supposed,
        )
        f.written = {f.root(a) for a in f.written}
        link(f)
        use_demands(f)
        eliminate(f)
        link(f)
        return f

    def _parameters(self, source: SourceText) -> list[str]:
        args = source.tree.args
        if args.vararg or args.kwarg:
            self.reject(source.tree, "a function with *args or **kwargs", "use plain parameters")
        return [a.arg for a in [*args.posonlyargs, *args.args, *args.kwonlyargs]]

    def _body(self, source: SourceText) -> None:
        body = source.tree.body
        for node in [n for s in body for n in ast.walk(s) if isinstance(n, ast.stmt)]:
            if not isinstance(node, _JUMPS) and not hasattr(self, f"do_{type(node).__name__}"):
                self._refuse_statement(node)
        if returns_value(body) and not always_returns(body):
            self.reject(source.tree, "a function that returns a value only on some ways",
                        "end it with a return")  # fmt: skip
        count = _length_of_results(body)
        if count:  # a loop that is left by `return` hands on that many numbers
            self.environment[RESULT] = TupleValue((UNDEFINED,) * count)
        self._statements(Jumps().rewrite(body))

    def _returned(self, result: Value, node: ast.AST) -> list[Atom]:
        if result is UNDEFINED or (isinstance(result, PythonObject) and result.value is None):
            return []
        if isinstance(result, TupleValue):
            return [a for v in result.items for a in self._returned_one(v, node)]
        return self._returned_one(result, node)

    def _returned_one(self, value: Value, node: ast.AST) -> list[Atom]:
        """A number, or an array that nobody else has."""
        if isinstance(value, TupleValue):
            self.reject(node, "a result that is a tuple in a tuple", "return one tuple")
        if isinstance(value, Unreadable):
            self.reject(node, f"a result that {value.why}", value.instead)
        if isinstance(value, (ArrayView, ArrayExpression)):
            own = (
                {i.dst for i in self.block.items if isinstance(i, Make)}
                - self.swapped
                - self.returned
            )
            if not isinstance(value, ArrayView) or not value.is_whole or value.name not in own:
                value = self.copied(value, node)
            self.returned.add(value.name)
            return [value.name]
        return [self.atom(value, node)]

    def constant_array(self, value: np.ndarray[Any, Any], node: ast.AST) -> Value:
        if not is_constant_array(value):
            what = f"a global array of shape {value.shape} and {value.dtype}"
            self.reject(node, what, "pass it as an argument")
        if id(value) not in self.constants:
            name, dtype = self.fresh("constants"), value.dtype.str[1:]
            made: list[Statement] = [Make(name, [*value.shape], None, dtype)]
            for index, element in np.ndenumerate(value):
                made.append(StoreElement(name, [*index], element.item(), self.fresh("old")))
            for item in made:
                item.note = self.note(node)
            self.made_first += made
            self.arrays[name] = (value.ndim, dtype)
            self.written.add(name)
            self.written_sizes |= {(name, k): n for k, n in enumerate(value.shape)}
            self.constants[id(value)] = ArrayView.whole(name, value.ndim, dtype)
        return self.constants[id(value)]

    def run(
        self, function: Function, args: list[Value], node: ast.AST, *, is_library: bool
    ) -> Value:
        if is_library and not self.stack[-1].is_library:
            self._call_line = getattr(node, "lineno", 1)
        source = self.enter(function, node, is_library=is_library)
        around, self.environment = self.environment, {}
        was_conditional, self.is_conditional = self.is_conditional, False
        self.environment.update(zip(self._parameters(source), args, strict=True))
        self._body(source)
        result = self.environment.get(RESULT, UNDEFINED)
        self.environment, self.is_conditional = around, was_conditional
        self.stack.pop()
        return PythonObject(None) if result is UNDEFINED else result

    # ----- statements -----

    def _refuse_statement(self, s: ast.stmt) -> NoReturn:
        kind = type(s).__name__
        self.reject(s, f"a statement of this kind ({kind})", OF_NODES.get(kind, ""))

    def _statements(self, statements: Sequence[ast.stmt]) -> None:
        for s in statements:
            kind = {"LeavingFor": "For", "LeavingWhile": "While"}.get(
                type(s).__name__, type(s).__name__
            )
            method: Callable[[Any], None] | None = getattr(self, f"do_{kind}", None)
            assert method is not None, kind
            method(s)

    def do_Pass(self, s: ast.Pass) -> None:
        """Nothing to read."""

    def do_Expr(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):
            self.expression(s.value)

    def do_Delete(self, s: ast.Delete) -> None:
        for target in s.targets:
            if not isinstance(target, ast.Name):
                self.reject(s, "this", OF_NODES["Delete"])
            self.environment[target.id] = UNDEFINED

    def on_NamedExpr(self, e: ast.NamedExpr, base: str) -> Value:
        if self.is_conditional:
            self.reject(e, "an assignment that is not made on every way, or in the test of a loop,",
                        "make it in a statement of its own")  # fmt: skip
        value = self.settled(self.expression(e.value, _base(e.target)), e, e.target.id)
        self._assign(e.target, value, e)
        return value

    def do_Assert(self, s: ast.Assert) -> None:
        condition = self.number(s.test)
        if condition is not True:
            self.demand(condition, "AssertionError", _message(s.msg), s)

    def do_Raise(self, s: ast.Raise) -> None:
        raised, message = s.exc, ""
        if isinstance(raised, ast.Call):
            message = _message(raised.args[0] if raised.args else None)
            raised = raised.func
        if not isinstance(raised, ast.Name) or not isinstance(
            getattr(builtins, raised.id, None), type
        ):
            self.reject(s, "raising this", "raise an error of Python's with a text")
        self.demand(False, raised.id, message, s)

    def demand(self, condition: Atom, error: str, message: str, node: ast.AST) -> None:
        if condition is not True:
            self.emit(Demand(condition, error, message), node)

    def do_AnnAssign(self, s: ast.AnnAssign) -> None:
        if s.value is not None:
            self._assign(s.target, self.expression(s.value, _base(s.target)), s)

    def do_Assign(self, s: ast.Assign) -> None:
        if isinstance(s.value, ast.List) and isinstance(s.targets[0], ast.Subscript):
            value: Value = self._list(s.value)
        else:
            value = self.expression(s.value, _base(s.targets[0]))
        if isinstance(s.targets[0], ast.Name):
            value = self.settled(value, s, s.targets[0].id)
        for target in s.targets:
            self._assign(target, value, s)

    def _assign(self, target: ast.expr, value: Value, node: ast.AST) -> None:
        match target:
            case ast.Name(name):
                self.environment[name] = self.settled(value, node, name)
            case ast.Tuple(elts) | ast.List(elts):
                if isinstance(value, (ArrayView, ArrayExpression)):
                    value = self._items(value, len(elts), target)
                if any(isinstance(t, ast.Starred) for t in elts):
                    self.reject(target, "a target with a star", OF_NODES["Starred"])
                if not isinstance(value, TupleValue):
                    self.reject(
                        node, "unpacking of something that is no tuple", "pick its elements"
                    )
                if len(elts) != len(value.items):
                    self.reject(
                        node, f"unpacking of {len(value.items)} values into {len(elts)} names"
                    )
                for t, v in zip(elts, value.items, strict=True):
                    self._assign(t, v, node)
            case ast.Subscript():
                picks = self.index_array(target)
                if isinstance(picks, tuple):
                    self._assign_picked(target, *picks, value, node)
                    return
                view = self._target(picks)
                if not view.axes:
                    at = self.place(view, [], target)
                    self.store(view.name, at, self.atom(value, node), node)
                else:
                    self._assign_whole(view, value, node)
            case _:
                self.reject(node, f"an assignment to this ({type(target).__name__})")

    def _list(self, e: ast.List) -> TupleValue:
        """A list of numbers, which are of one dtype in Numba."""
        items = [self.number(v) for v in e.elts]
        dtype = np.dtype(promoted(map(self.dtype_of_number, items))).name if items else ""
        return TupleValue(tuple([
            a if np.dtype(self.dtype_of_number(a)).name == dtype
            else self.op(dtype, [a if isinstance(a, str) else int(a)], e)
            for a in items
        ]))  # fmt: skip

    def _target(self, node: ast.Subscript) -> ArrayView:
        owner = self.expression(node.value)
        if isinstance(owner, BoundMethod) and owner.name == "flat":
            return self.in_flat(owner, node)
        if not isinstance(owner, ArrayView):
            self.reject(node, "an assignment to an element of something that is no array")
        return self.subview(owner, node)

    def _items(self, value: ArrayLike, count: int, node: ast.expr) -> Value:
        """The items of an array that must have as many as there are names."""
        name = f"each.{node.lineno}.{node.col_offset}"
        self.environment[name] = view = self.settled(value, node)
        assert isinstance(view, ArrayView)
        if view.ndim == 0:
            return view
        same = self.op("==", [self.size(view, 0, node), count], node)
        self.demand(same, "ValueError", f"there are not {count} values to unpack", node)
        items = [
            ast.Subscript(ast.Name(name, ast.Load()), ast.Constant(k), ast.Load())
            for k in range(count)
        ]
        return TupleValue(tuple([
            self.expression(ast.fix_missing_locations(ast.copy_location(i, node))) for i in items
        ]))  # fmt: skip

    def _assign_picked(
        self, target: ast.Subscript, owner: ArrayView, index: ArrayLike, value: Value, node: ast.AST
    ) -> None:
        """`y[mask] = v` and `y[k] = v` for an array of indices."""
        if index.dtype == "b1":
            if isinstance(value, (ArrayView, ArrayExpression)):
                function = getattr(library, f"spread{owner.ndim}{index.ndim}", None)
                if function is None or value.ndim != 1:
                    self.reject(node, "this assignment where an array is true",
                                "write y[:] = np.where(mask, v, y), for a v of the shape of y")  # fmt: skip
                given = [self.settled(index, node), self.settled(value, node)]
                self.run(function, [owner, *given], node, is_library=True)
                return
            both: list[Value] = [index, self.atom(value, node), owner]
            self._assign_whole(owner, self.apply("select", both, node), node)
        elif owner.ndim != 1 or index.ndim != 1:
            self.reject(target, "an array as an index here", "write the loop over its elements")
        else:
            if not isinstance(value, (ArrayView, ArrayExpression)):
                value = self._constant_array(index, self.atom(value, node), node, owner.dtype)
            value = self.settled(value, node)
            self.run_library("scatter", [owner, self.settled(index, node), value], node)

    def _assign_whole(self, view: ArrayView, value: Value, node: ast.AST) -> None:
        if isinstance(value, (ArrayView, ArrayExpression)):
            self.run_library("assign", [view, self._fitting(view, value, node)], node)
        elif isinstance(value, TupleValue):
            self._assign_items(view, value, node)
        else:
            self.run_library("fill", [view, self.atom(value, node)], node)

    def _assign_items(self, view: ArrayView, value: TupleValue, node: ast.AST) -> None:
        """`y[i] = a, b, c`: what Numba takes, numbers of one dtype, and as many as there are elements."""
        if view.ndim != 1 or not value.items:
            what = f"the assignment of {len(value.items)} items to {view.ndim} dimensions"
            self.reject(node, what, "assign row by row: y[0] = a, b")
        items = [self.atom(v, node) for v in value.items]
        if len({self.dtype_of_number(a) for a in items}) > 1:
            self.reject(node, "the assignment of a tuple of several dtypes",
                        "write 1.0 for a 1 beside floats, or a list: y[:] = [a, b]")  # fmt: skip
        size, count = self.size(view, 0, node), len(items)
        if type(size) is not int or size != count:
            same: Atom = False if type(size) is int else self.op("==", [size, count], node)
            message = f"cannot assign {count} values to a slice of another length"
            self.demand(same, "ValueError", message, node)
        for k, item in enumerate(items):
            self.store(view.name, self.place(view, [k], node), item, node)

    def _fitting(self, view: ArrayView, value: ArrayView | ArrayExpression, node: ast.AST) -> Value:
        """The value in the shape of the view; in memory of its own if it reads what is written."""
        reads = value.reads if isinstance(value, ArrayExpression) else (value,)
        if value.ndim > view.ndim:
            self.reject(node, "an array assigned to one of fewer dimensions")
        if any(self._may_share(r, view) and not _go_together(r, view) for r in reads):
            value = self.copied(value, node)
        shape = self.common_shape([view, value], node)
        for axis, size in enumerate(shape):
            if self.size(view, axis, node) != size:
                self.demand_same(self.size(view, axis, node), size, node)
        fixed = [
            k
            for k in range(value.ndim)
            if self.size(value, k, node) != shape[view.ndim - value.ndim + k]
        ]
        if value.ndim == view.ndim and not fixed:
            return value
        narrow = value

        def element(index: list[Atom]) -> Atom:
            own = index[len(index) - narrow.ndim :]
            sizes = [self.size(narrow, k, node) for k in range(narrow.ndim)]
            at: list[Atom] = [
                0 if type(n) is int and n == 1 else i for i, n in zip(own, sizes, strict=True)
            ]
            return self.element(narrow, at, node)

        return ArrayExpression(tuple(shape), value.dtype, element, reads, self.writes)

    def _may_share(self, a: ArrayView, b: ArrayView) -> bool:
        return a.name == b.name or (a.name in self.swapped and b.name in self.swapped)

    def do_AugAssign(self, s: ast.AugAssign) -> None:
        if isinstance(s.op, ast.MatMult):
            self.reject(s, "@=", "write x = x @ y")
        function = BINARY[type(s.op)]
        if isinstance(s.target, ast.Name):
            old = self.expression(ast.copy_location(ast.Name(s.target.id, ast.Load()), s.target))
            if not isinstance(old, ArrayView):
                value = self.expression(s.value)
                self.environment[s.target.id] = self.settled(
                    self.apply(function, [old, value], s, s.target.id), s, s.target.id
                )
                return
            view = old
        elif isinstance(s.target, ast.Subscript):
            picks = self.index_array(s.target)
            if isinstance(picks, tuple) and picks[1].dtype == "b1":
                self._change_where_true(function, *picks, s)
                return
            if isinstance(picks, tuple):
                self.reject(s, "this, which adds once where an index is there twice,",
                            "write the loop: for i in range(len(k)): y[k[i]] += v[i]")  # fmt: skip
            view = self._target(picks)
        else:
            self.reject(s, "an assignment to this")
        value = self.expression(s.value)
        adds = function in ("+", "-") and view.dtype[0] == "f"
        if not view.axes:
            at = self.place(view, [], s.target)
            number = self.atom(value, s)
            if adds:
                self.store(
                    view.name,
                    at,
                    self.op("neg", [number], s) if function == "-" else number,
                    s,
                    True,
                )
            else:
                old_value = self.load(view.name, at, s)
                self.store(view.name, at, self.op(function, [old_value, number], s), s)
        elif adds:
            if not isinstance(value, (ArrayView, ArrayExpression)):
                value = self._constant_array(view, self.atom(value, s), s)
            fitting = self._fitting(view, value, s)
            self.run_library(
                "increase",
                [view, self.apply("neg", [fitting], s) if function == "-" else fitting],
                s,
            )
        else:
            self._assign_whole(view, self.apply(function, [view, value], s), s)

    def _change_where_true(
        self, function: str, owner: ArrayView, mask: ArrayLike, s: ast.AugAssign
    ) -> None:
        """`y[mask] += v`."""
        assert isinstance(s.target, ast.Subscript)
        where, value = self.settled(mask, s), self.expression(s.value)
        assert isinstance(where, ArrayView)
        if isinstance(value, (ArrayView, ArrayExpression)):
            old = self.where_true(owner, where, s)
            changed = self.apply(function, [old, value], s)
            self._assign_picked(s.target, owner, where, changed, s)
            return
        changed = self.apply(function, [owner, self.atom(value, s)], s)
        self._assign_whole(owner, self.apply("select", [where, changed, owner], s), s)

    def _constant_array(
        self, view: ArrayLike, value: Atom, node: ast.AST, dtype: str = ""
    ) -> ArrayExpression:
        shape = tuple(self.size(view, k, node) for k in range(view.ndim))
        return ArrayExpression(shape, dtype or view.dtype, lambda _: value, (), self.writes)

    # ----- branches -----

    def do_If(self, s: ast.If) -> None:
        condition = self.number(s.test)
        if isinstance(condition, (bool, int, float)):  # known while reading
            return self._statements(s.body if condition else s.orelse)
        around = self.environment
        then, orelse = (self._side(part, around) for part in (s.body, s.orelse))
        self.environment = around
        results: list[tuple[str, Atom, Atom]] = []
        choose = partial(chosen, self, sides=(then, orelse), condition=condition, node=s)
        for name in {**then.environment, **orelse.environment}:
            a, b = (side.environment.get(name, UNDEFINED) for side in (then, orelse))
            self.environment[name] = self._join(name, a, b, results, choose)
        self.emit(Branch(condition, then.block, orelse.block, results), s)
        return None

    def _side(self, statements: Sequence[ast.stmt], around: dict[str, Value]) -> BranchSide:
        outer, hoisted = self.block, len(self.hoisted)
        block = self.open_block(Suite("branch"))
        self.environment = dict(around)
        self.open_blocks.append(block)
        self._statements(statements)
        self.open_blocks.pop()
        self.close_block(outer)
        return self.side(block, hoisted)

    def side(self, block: Suite, hoisted: int) -> BranchSide:
        made = [item for _, item in walk(block)] + self.hoisted[hoisted:]
        makes = {item.dst: item for item in made if isinstance(item, Make)}
        return BranchSide(block, self.environment, makes)

    def choice(
        self, base: str, arrays: tuple[Value, Value], blocks: tuple[Suite, Suite], hoisted: int,
        condition: Atom, node: ast.AST,
    ) -> ArrayView | None:  # fmt: skip
        sides = (self.side(blocks[0], hoisted), self.side(blocks[1], hoisted))
        return chosen(self, base, arrays, sides, condition, node)

    def store(
        self, array: str, index: list[Atom], value: Atom, node: ast.AST, adds: bool = False
    ) -> None:
        if self._is_frozen(array):
            self.reject(
                node, "a write into an array that has another name since a branch chose it",
                "copy it where it is chosen: y = x.copy() if test else z.copy()",
            )  # fmt: skip
        if self._root(array) in {self._root(c.name) for c in self.constants.values()}:
            self.reject(node, "a write into a global array", "copy it before: y = x.copy()")
        if adds:
            self._check_fresh(array, node)
        super().store(array, index, value, node, adds)
        self.twins.write(array)

    def load(self, array: str, index: list[Atom], node: ast.AST, base: str = "t") -> str:
        self._check_fresh(array, node)
        self.twins.read(array)
        return super().load(array, index, node, base)

    def _check_fresh(self, array: str, node: ast.AST) -> None:
        if self.twins.is_stale(array):
            self.reject(node, "an array that was written by another of its names", _COPY_IT)

    def _is_frozen(self, array: str) -> bool:
        return bool(self.frozen) and self._root(array) in map(self._root, self.frozen)

    def _join(
        self, name: str, a: Value, b: Value, results: list[tuple[str, Atom, Atom]],
        choose: Callable[[str, tuple[Value, Value]], Value | None],
    ) -> Value:  # fmt: skip
        """What a name stands for behind a branch."""
        if a is b or (type(a) is type(b) and not isinstance(a, float) and a == b):
            return a
        if isinstance(a, Unreadable) or isinstance(b, Unreadable):
            return a if isinstance(a, Unreadable) else b
        if isinstance(a, TupleValue) or isinstance(b, TupleValue):
            n = len(a.items) if isinstance(a, TupleValue) else len(b.items)  # type: ignore[union-attr]
            xs = a.items if isinstance(a, TupleValue) else (UNDEFINED,) * n
            ys = b.items if isinstance(b, TupleValue) else (UNDEFINED,) * n
            if len(xs) != len(ys) or not all(v is UNDEFINED or isinstance(v, (TupleValue, _Unassigned))
                                             for v in (a, b)):  # fmt: skip
                return Unreadable(name, "is another tuple after each branch")
            return TupleValue(
                tuple(
                    self._join(f"{name}{k}", x, y, results, choose)
                    for k, (x, y) in enumerate(zip(xs, ys, strict=True))
                ),
                fields_of_both(a, b),
            )
        array = choose(name, (a, b))
        if array is not None:
            return array
        for value in (a, b):
            if not isinstance(value, (str, int, float, _Unassigned)):
                if UNDEFINED in (a, b):
                    return Unreadable(name, "is not assigned on every way here")
                return Unreadable(
                    name, "is another array or object after each branch",
                    "make an array before the branch, and write into it on both sides: y[:] = ...",
                )  # fmt: skip
        dst = self.fresh(name)
        first, second = (0 if isinstance(v, _Unassigned) else v for v in (a, b))
        assert isinstance(first, (str, int, float))
        assert isinstance(second, (str, int, float))
        self.dtypes.setdefault(dst, self.likely_dtype(first, second))
        results.append((dst, first, second))
        return dst

    # ----- loops -----

    def do_For(self, s: LeavingFor) -> None:
        match s.iter:
            case ast.Call(func, args, []) if _name_of(func) in ("range", "prange") and args:
                pass
            case _:
                return self._statements(rounds(self, s))
        bounds = [self.number(a) for a in args]
        start: Atom = bounds[0] if len(bounds) > 1 else 0
        stop = bounds[0] if len(bounds) == 1 else bounds[1]
        step = bounds[2] if len(bounds) == 3 else 1
        if type(step) is not int or step == 0:
            self.reject(
                s.iter,
                "a step that is not a number in the text",
                "write -1, 1, 2, ...",
            )
        if not isinstance(s.target, ast.Name):
            self.reject(s.target, "this target of a loop", "use a name")
        is_parallel = _name_of(func) == "prange" and not self.depth and self._is_shared(s)
        self._loop(s, "for", s.target.id, (start, stop, step), is_parallel=is_parallel)
        return None

    def _is_shared(self, s: ast.stmt) -> bool:
        """Whether the rounds of a `prange` may be shared by threads."""
        in_order = any(call.parallel is False for call in self.stack) or config.DEBUG
        return self.on_gpu or not (in_order or self.note(s) in self.in_order)

    def do_While(self, s: LeavingWhile) -> None:
        self._loop(s, "while", "", (0, 0, 1))

    def _loop(
        self,
        s: LeavingFor | LeavingWhile,
        kind: Literal["for", "while"],
        target: str,
        bounds: tuple[Atom, Atom, int],
        *,
        is_parallel: bool = False,
    ) -> None:
        names = _assigned(s.body)
        names.pop(target, None)
        for name in names.keys() - _assigned(s.body, in_place=False).keys():
            if isinstance(self.environment.get(name), ArrayView):
                del names[name]  # written in place
        body = Suite("loop")
        item = Repeat(kind, body, [], self.fresh("trips"), is_parallel=is_parallel)
        item.is_library, item.note = self.stack[-1].is_library, self.note(s)
        item.is_optional = not (self.on_gpu or any(call.parallel for call in self.stack))
        firsts = self.environment
        buffers = self._buffers(s, names)
        outer, around = self.block, self.environment
        inside: dict[str, Value] = dict(around)
        starts: dict[str, Value] = {}
        for name in names:
            start = around.get(name, UNDEFINED)
            if start is UNDEFINED and (count := _items_of_tuples(s.body, name)):
                start = TupleValue((UNDEFINED,) * count)
            inside[name] = starts[name] = self._carry_in(name, start, item.carried, name in buffers)
        self.loop_names |= {c.inside for c in item.carried}
        swapped = [c for c in item.carried if c.is_array]
        self.twins.change_places([str(c.first) for c in swapped], [c.inside for c in swapped])
        mark = self.twins.mark(self.arrays)
        if any(self._is_frozen(str(c.first)) for c in swapped):
            self.frozen |= {c.inside for c in swapped}
        self.environment = inside
        if kind == "for":
            item.counter = self.fresh(target)
            self.dtypes.setdefault(item.counter, "i8")
            item.start, item.stop, item.step = bounds
            self.loop_names.add(item.counter)
            self.counters[item.counter] = bounds
            if type(item.start) is int and item.start >= 0 and item.step > 0:
                self.never_negative.add(item.counter)
            inside[target] = item.counter
        else:
            item.test = self.open_block(Suite("test"))
            with self.conditionally():
                item.condition = self.number(s.test)  # type: ignore[union-attr]
            self.close_block(outer)
        self.open_block(body)
        self.depth += 1
        self.open_blocks.append(body)
        self.independent = item if is_parallel else self.independent
        self._statements(s.body)
        others = self._others(buffers, firsts, item, mark, s)
        self._refill(buffers, mark, s)
        self.open_blocks.pop()
        self.close_block(outer)
        self.depth -= 1
        if s.flag:
            item.leaves = self.atom(self.environment[s.flag], s)
        by_name = {c.inside: c for c in item.carried}
        after = dict(around)
        for name in names:
            final = self.environment.get(name, UNDEFINED)
            after[name] = self._carry_out(name, starts[name], final, by_name)
        if target:
            after.pop(target, None)  # a name of the reader's, or one that nobody reads any more
        self.environment = after
        item.carried = [c for c in item.carried if c.following != _DROPPED]
        self._check_swaps(item, s)
        if self.twins.clash(mark):
            self.reject(
                s, "a loop that writes an array by one of its names and reads another", _COPY_IT
            )
        for array, each in others.items():
            self.twins.tie(array, each)
        if not self.depth:
            if is_parallel and self.hoisted and not may_have_rows(item):
                self.reject(s, "a prange whose rounds make arrays",
                            "count upwards from 0, or make one before, with a row for each round")  # fmt: skip
            self.independent = None
            outer.items += self.hoisted
            self.hoisted = []
        self.emit(item, s)

    def _check_swaps(self, item: Repeat, s: ast.stmt) -> None:
        """Arrays that a loop hands on must be the same ones in another order, also where loops inside of it
        change their places."""
        swaps = [c for c in item.carried if c.is_array]
        handed_on = {str(c.following) for c in swaps}
        for _, inner in reversed(list(walk(item.body))):
            inside = [c for c in inner.carried if c.is_array] if isinstance(inner, Repeat) else []
            if handed_on & {c.after for c in inside}:
                if not {c.after for c in inside} <= handed_on:
                    break
                handed_on -= {c.after for c in inside}
                handed_on |= {str(c.first) for c in inside}
        if handed_on != {c.inside for c in swaps}:
            self.reject(
                s, "an array that is another one in each round of this loop", _NOT_CONTIGUOUS
            )

    def _buffers(
        self, s: LeavingFor | LeavingWhile, names: dict[str, None]
    ) -> dict[str, ArrayView]:
        """Arrays that a loop sets anew, as in `y = step(y)`: they get memory of their own before the loop,
        which each round writes at its end. Those that only change places do not."""
        arrays = {n: v for n in names if isinstance(v := self.environment.get(n), ArrayView)}
        found: dict[str, ArrayView] = {}
        for name, value in arrays.items():
            if not _only_changes_places(s.body, name, set(arrays)):
                found[name] = self.copied(value, s)
        if found:
            self.environment = self.environment | found
        return found

    def _others(
        self, buffers: dict[str, ArrayView], around: dict[str, Value], item: Repeat, mark: Mark, s: ast.stmt
    ) -> dict[str, set[str]]:  # fmt: skip
        """Other arrays that those which a loop sets anew may be behind it, in the user's program."""
        names = {b.name: n for n, b in buffers.items()}
        firsts = {a: v.name for a, n in names.items() if isinstance(v := around[n], ArrayView)}
        finals = {
            a: v.name
            for a, n in names.items()
            if isinstance(v := self.environment.get(n, UNDEFINED), ArrayView)
        }
        before = {self._root(a) for a in mark.arrays}
        swaps = [c for c in item.carried if c.is_array]
        places = {c.inside for c in swaps}

        def set_to(array: str, known: tuple[str, ...] = ()) -> set[str]:
            final = finals[array]
            if final == array or final in known:
                return {firsts[array]}
            if final in finals:  # the array that another one was in the round before
                return {firsts[final]} | set_to(final, (*known, array))
            return {a for a in (final, *self.twins.of([final])) if self._root(a) in before}

        made = {a: {self._root(o) for o in (f, *self.twins.of([f]))} for a, f in finals.items()}
        has_rounds = item.kind == "for" and _is_positive(item.start, item.stop, item.step)
        others: dict[str, set[str]] = {}
        for array, final in finals.items():
            found = set_to(array)
            may_be = found | {firsts[array]} | self.twins.of([*found, firsts[array]])
            if may_be & (places | {str(c.first) for c in swaps}):
                may_be |= places
            is_handed_on = array in [f for a, f in finals.items() if a != array]
            if self.twins.are_written(may_be, mark) and (
                is_handed_on or self.twins.are_read([array], mark)
            ):
                what = f"`{names[array]}`, which is an array that this loop writes, too,"
                self.reject(s, what, _COPY_IT)
            others[array] = found | {a for a in finals if a != array and made[a] & made[array]}
            if final == array or not has_rounds:
                others[array].add(firsts[array])
        return others

    def _refill(self, buffers: dict[str, ArrayView], mark: Mark, s: ast.stmt) -> None:
        """Write what a round hands on into the memory that was made before the loop."""
        finals: dict[str, ArrayView] = {}
        names = {buffer.name for buffer in buffers.values()}
        for name, buffer in buffers.items():
            final = self.environment.get(name, UNDEFINED)
            if any(
                self._root(n) == self._root(buffer.name) for n in self.alias if n != buffer.name
            ):
                self.reject(s, f"`{name}`, which this loop sets anew, and an inner loop lets change places,",
                            "use the same names in both loops: u, v = v, u")  # fmt: skip
            if self.twins.are_written([buffer.name], mark):
                self.reject(s, f"`{name}`, which this loop both sets anew and writes into,",
                            "write into all of it instead: y[:] = ...")  # fmt: skip
            if final == buffer:
                continue
            if isinstance(final, Unreadable):
                self.reject(
                    s, f"`{name}`, which {final.why},", "write into it where it changes: y[:] = ..."
                )
            before, after = kind_of_value(buffer), kind_of_value(final)
            if not isinstance(final, ArrayView) or before != after:
                what = (
                    f"`{name}`, which is {before} before this loop and {after} after a round of it,"
                )
                self.reject(s, what, _ONE_KIND)
            finals[name] = self.copied(final, s) if final.name in names else final
        for name, final in finals.items():
            buffer = buffers[name]
            self.run_library("assign", [buffer, self._fitting(buffer, final, s)], s)
            self.environment[name] = buffer

    def _carry_in(self, name: str, value: Value, carried: list[Carried], is_buffer: bool) -> Value:
        if is_buffer:
            return value
        if isinstance(value, TupleValue):
            return TupleValue(
                tuple(
                    self._carry_in(f"{name}{k}", v, carried, False)
                    for k, v in enumerate(value.items)
                )
            )
        if isinstance(value, ArrayView) and value.is_whole:
            inside = self.fresh(value.name)
            self.arrays[inside] = (value.ndim, value.dtype)
            self.swapped |= {inside, value.name}
            carried.append(Carried(inside, value.name, _DROPPED, self.fresh(value.name), True))
            self.swapped.add(carried[-1].after)
            self.array_before |= {inside: value.name, carried[-1].after: value.name}
            return ArrayView.whole(inside, value.ndim, value.dtype)
        if isinstance(value, Unreadable):
            return value
        if not isinstance(value, (str, int, float, _Unassigned)):
            return Unreadable(name, "is another array or object in each round of a loop")
        inside = self.fresh(name)
        first: Atom = 0 if isinstance(value, _Unassigned) else value
        carried.append(Carried(inside, first, _DROPPED, after := self.fresh(name)))
        for each in (inside, after):
            self.dtypes.setdefault(each, self.likely_dtype(first))
        return inside

    def _carry_out(
        self, name: str, start: Value, final: Value, by_name: dict[str, Carried]
    ) -> Value:
        if isinstance(start, TupleValue):
            if not isinstance(final, TupleValue) or len(final.items) != len(start.items):
                return Unreadable(name, "is a tuple in some rounds of a loop")
            pairs = zip(start.items, final.items, strict=True)
            return TupleValue(tuple(self._carry_out(name, a, b, by_name) for a, b in pairs))
        if isinstance(start, ArrayView):
            c = by_name.get(start.name)
            if c is None:
                return start  # a buffer
            if not isinstance(final, ArrayView) or not final.is_whole:
                return Unreadable(name, "is another array after each round of a loop")
            c.following = final.name
            self.arrays[c.after] = self.arrays[c.inside]
            self._unite(c.inside, str(c.first), c.after, final.name)
            return ArrayView.whole(c.after, *self.arrays[c.after])
        if isinstance(start, str) and start in by_name:
            if isinstance(final, TupleValue):
                return Unreadable(name, "is a tuple made in a loop")
            if not isinstance(final, (str, int, float)):
                return final if isinstance(final, Unreadable) else Unreadable(name, *_MADE_IN_LOOP)
            by_name[start].following = final
            return by_name[start].after
        if isinstance(final, (ArrayView, TupleValue)):
            return Unreadable(name, *_MADE_IN_LOOP)
        return (
            Unreadable(name, "is set in a loop") if isinstance(final, (str, int, float)) else final
        )

    def _unite(self, *names: str) -> None:
        """Note arrays that may be the same memory."""
        roots = {self._root(n) for n in names}
        first = min(roots)
        for r in roots:
            self.alias[r] = first


def _go_together(a: ArrayView, b: ArrayView) -> bool:
    """Whether two views of one array have the same place in it at each index, or never do: then an element
    that is written is read before, by that index."""
    pairs = zip(a.dims, b.dims, strict=True)
    are_rows = all(
        x == y or (isinstance(x, FixedIndex) and isinstance(y, FixedIndex)) for x, y in pairs
    )
    return a.name == b.name and a.axes == b.axes and are_rows


def _is_positive(start: Atom, stop: Atom, step: int) -> bool:
    """Whether a range is known to have a number."""
    return type(start) is int and type(stop) is int and (stop - start) * step > 0


def _name_of(function: ast.expr) -> str:
    return str(getattr(function, "id", getattr(function, "attr", "")))


def _length_of_results(body: Sequence[ast.stmt]) -> int:
    """How many results a function has that returns a tuple from within a loop, 0 for any other."""
    nodes = [n for s in body for n in ast.walk(s)]
    if not any(isinstance(n, (ast.For, ast.While)) and may_return(n.body) for n in nodes):
        return 0
    values = [n.value for n in nodes if isinstance(n, ast.Return)]
    lengths = {len(v.elts) if isinstance(v, ast.Tuple) else 0 for v in values}
    return lengths.pop() if len(lengths) == 1 else 0


def _base(target: ast.expr) -> str:
    return target.id if isinstance(target, ast.Name) else "t"


def _message(node: ast.expr | None) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _assigned(statements: Sequence[ast.stmt], *, in_place: bool = True) -> dict[str, None]:
    """The names that statements assign to, in order; with `in_place` those of `x += 1` too."""
    nodes = [n for s in statements for n in ast.walk(s)]
    left_out = {id(n.target) for n in nodes if isinstance(n, ast.AugAssign) and not in_place}
    return {
        n.id: None
        for n in nodes
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and id(n) not in left_out
    }


def _items_of_tuples(statements: Sequence[ast.stmt], name: str) -> int:
    """How many items a name has that is assigned nothing but written tuples of one length; else 0."""
    counts = {
        len(n.value.elts) if isinstance(n.value, ast.Tuple) else 0
        for s in statements
        for n in ast.walk(s)
        if isinstance(n, ast.Assign) and [getattr(t, "id", "") for t in n.targets] == [name]
    }
    return counts.pop() if len(counts) == 1 else 0


def _only_changes_places(statements: Sequence[ast.stmt], name: str, arrays: set[str]) -> bool:
    """Whether a name is assigned only by statements such as `u, v = v, u` of arrays."""
    for s in statements:
        for node in ast.walk(s):
            if isinstance(node, (ast.For, ast.While)):
                continue
            if isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") == name:
                continue  # in place
            if not isinstance(node, ast.Assign) or name not in _assigned([node]):
                continue
            target, value = node.targets[0], node.value
            if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
                return False
            left = [getattr(t, "id", None) for t in target.elts]
            right = [getattr(v, "id", None) for v in value.elts]
            if not set(left) <= arrays or sorted(map(str, left)) != sorted(map(str, right)):
                return False
    return True
