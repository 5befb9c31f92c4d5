"""Whether machine code that moves references (`kernels/fastpath`) gives back as many as it takes, on every
path.

The functions are run on symbols instead of numbers: both ways of each condition, loops until nothing new comes
of them, calls with what is known of their arguments. Each symbol has a count: the references to it that the
code has to pass on or to drop. `own` and what makes an object add one; `drop`, a slot that is filled and what
takes a reference over take one away; a slot that is written over gives back what was in it. What is 0 has no
count. When nothing names a symbol any more, and when a function returns, the count must be 0; a function that
the interpreter calls returns one reference, or 0. What helpers take and give is found from their text, for each
kind of arguments.

What C functions do is in one table, `EFFECTS`; what the method cannot see is in `TRUSTED`. Nor does it see
whether two symbols are one object, what a call of Python changes in an object, or which item of a list two
numbers name.
"""

from __future__ import annotations

import ast
import collections
import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from adjit.schedule.jit import kernel_files

MODULES = sorted(path.stem for path in (kernel_files.FOLDER / "fastpath").glob("[a-z]*.py"))

# ----- what is known beforehand -----

BORROWED, WORD = "borrowed", "word"  # results: a reference of somebody else's or 0, a number
NEW, EMPTY, MEMORY = (
    "new",
    "empty",
    "memory",
)  # to be dropped, or 0; EMPTY: with empty slots; MEMORY: of words


class Effect(NamedTuple):
    """What a function does with references."""

    result: str
    takes: tuple[int, ...] = ()  # arguments whose reference it takes over, or drops


EFFECTS = {
    "_PyObject_GC_New": Effect(EMPTY),
    "_Py_Dealloc": Effect(WORD),
    "PyDict_Clear": Effect(WORD),
    "PyDict_DelItem": Effect(WORD),
    "PyDict_GetItemWithError": Effect(BORROWED),
    "PyDict_New": Effect(NEW),
    "PyDict_SetItem": Effect(WORD),
    "PyErr_CheckSignals": Effect(WORD),
    "PyErr_Clear": Effect(WORD),
    "PyErr_ExceptionMatches": Effect(WORD),
    "PyErr_Fetch": Effect(WORD),  # and three references in memory, see `_take_error`
    "PyErr_Occurred": Effect(WORD),
    "PyErr_Restore": Effect(WORD, takes=(0, 1, 2)),
    "PyEval_GetFrame": Effect(BORROWED),
    "PyEval_RestoreThread": Effect(WORD),
    "PyEval_SaveThread": Effect(WORD),
    "PyFloat_AsDouble": Effect(WORD),
    "PyFloat_FromDouble": Effect(NEW),
    "PyFrame_GetBack": Effect(NEW),
    "PyFrame_GetCode": Effect(NEW),
    "PyFrame_GetLasti": Effect(WORD),
    "PyBytes_FromStringAndSize": Effect(NEW),
    "PyIter_Next": Effect(NEW),
    "PyList_Append": Effect(WORD),
    "PyList_GetSlice": Effect(NEW),
    "PyList_New": Effect(EMPTY),
    "PyList_SetSlice": Effect(WORD),
    "PyLong_AsLongLong": Effect(WORD),
    "PyLong_FromLongLong": Effect(NEW),
    "PyLong_FromUnsignedLongLong": Effect(NEW),
    "PyMem_Free": Effect(WORD, takes=(0,)),
    "PyMem_Malloc": Effect(MEMORY),
    "PyObject_CallNoArgs": Effect(NEW),
    "PyObject_ClearWeakRefs": Effect(WORD),
    "PyObject_GC_Del": Effect(WORD),
    "PyObject_GC_Track": Effect(WORD),
    "PyObject_GC_UnTrack": Effect(WORD),
    "PyObject_GetAttr": Effect(NEW),
    "PyObject_IsTrue": Effect(WORD),
    "PyObject_RichCompareBool": Effect(WORD),
    "PyObject_SetAttr": Effect(WORD),
    "PyObject_Vectorcall": Effect(NEW),
    "PySet_Add": Effect(WORD),
    "PySet_Clear": Effect(WORD),
    "PySet_Contains": Effect(WORD),
    "PySet_Discard": Effect(WORD),
    "PySet_New": Effect(NEW),
    "PySet_Size": Effect(WORD),
    "PyTuple_New": Effect(EMPTY),
    "PyType_GenericAlloc": Effect(EMPTY),
    "PyWeakref_NewRef": Effect(NEW),
}  # fmt: skip

# Functions of ours whose text is not what tells their effect.
TRUSTED = {
    "own": "the count itself; see `_own`",
    "drop": "the count itself; see `_drop`",
    "drop_last_items": "how many references it drops, the length of a list says",
    "sort_by": "items of a list change places",
}
# `new_recycled` is run too, but its callers are told: a list of freed objects holds no references.
RESULTS = {"new_recycled": Effect(EMPTY), "sort_by": Effect(WORD), "drop_last_items": Effect(WORD)}

# Makers of objects some of whose slots are still empty.
OPEN = {"new_instance", "new_node", "new_object"}

# Fields that hold no reference: the count, a length, the link of a freed object to the next.
NUMBERS = {
    "COUNT",
    "LENGTH",
    "FLAGS",
    "BASIC_SIZE",
    "WEAK_REFERENCES",
    "NEXT_TRACKED",
    "FIRST_SLOT",
    "HASH",
}

# What an entry finds in its arguments and takes over: the reference that an object has to its class.
TAKEN = {("freelists", "recycle"): "CLASS"}
RAW = {
    ("freelists", "new_recycled"),
    ("freelists", "recycle"),
}  # the memory of objects comes and goes there

# ----- what a path knows -----

Term = Any  # a number, ("k", NAME) of a constant, ("s", number) of a symbol, (operator, parts), ("tuple", …)


class Symbol(NamedTuple):
    """What is known of a word that the code works with."""

    kind: str = (
        "ref"  # "ref", "word" (a number), "memory" (of words), "spare" (lists of freed objects)
    )
    count: int = 0  # references that the code has to pass on or to drop
    null: str = "?"  # "0" if it is 0, "1" if not
    filled: frozenset[Term] | None = None  # of an object whose other slots are empty
    is_made: bool = False  # the reference was the code's from the beginning
    is_gone: bool = False  # the last reference that the code knows of was dropped


class State:
    """What is known at a place of a function, on one path to it."""

    def __init__(self) -> None:
        self.names: dict[str, Term] = {}
        self.symbols: dict[int, Symbol] = {}
        self.fields: dict[tuple[Term, Term], Term] = {}  # what lies where
        self.written: set[tuple[Term, Term]] = set()  # fields of arguments

    def copy(self) -> State:
        made = State()
        made.names, made.symbols = dict(self.names), dict(self.symbols)
        made.fields, made.written = dict(self.fields), set(self.written)
        return made

    def change(self, number: int, **changes: Any) -> None:
        self.symbols[number] = self.symbols[number]._replace(**changes)

    def parts(self, arguments: int) -> Parts:
        """What tells this state from others, whatever numbers its symbols have."""
        order = {k: k for k in range(arguments)}

        def number(term: Term) -> None:
            for found in symbols_in(term):
                order.setdefault(found, len(order))

        for name in sorted(self.names):
            number(self.names[name])
        while True:
            ready = [
                place for place, term in self.fields.items()
                if not all(n in order for n in symbols_in((place[1], term)))
                and all(n in order for n in symbols_in(place[0]))
            ]  # fmt: skip
            if not ready:
                break
            by_name = {repr(replaced((place, self.fields[place]), order)): place for place in ready}
            first = by_name[min(by_name)]
            number(first)
            number(self.fields[first])
        for n in sorted(self.symbols):
            order.setdefault(n, len(order))
        back = {place: n for n, place in order.items()}
        fields = frozenset(replaced(each, order) for each in self.fields.items())
        return Parts(
            tuple(sorted((name, replaced(term, order)) for name, term in self.names.items())),
            tuple(self.symbols[back[place]] for place in range(len(order))),
            (fields, frozenset(replaced(place, order) for place in self.written)),
            back,
        )


class Parts(NamedTuple):
    """A state with the numbers of its symbols in order."""

    names: tuple[tuple[str, Term], ...]
    symbols: tuple[Symbol, ...]
    fields: Any
    back: dict[int, int]  # the symbols' numbers in the state

    @property
    def key(self) -> Any:
        return self.names, self.symbols, self.fields


def symbols_in(term: Term) -> Iterator[int]:
    """The numbers of the symbols in a term."""
    if isinstance(term, tuple):
        if term[:1] == ("s",):
            yield term[1]
        else:
            for part in term:
                yield from symbols_in(part)


def replaced(term: Term, by: dict[int, Any]) -> Term:
    """A term with other symbols: `by` has their numbers, or terms in their place."""
    if not isinstance(term, tuple):
        return term
    if len(term) == 2 and term[0] == "s":
        new = by.get(term[1], -1)
        return ("s", new) if type(new) is int else new[0]
    return tuple([replaced(part, by) for part in term])


class Found(NamedTuple):
    """A place where the counts are wrong."""

    module: str
    function: str
    line: int
    problem: str


class Function(NamedTuple):
    """A function of the machine code, and the names of a module that it may use."""

    module: str
    node: ast.FunctionDef
    live: Live


# ----- which names are read later -----


class Live:
    """For each statement of a function, the names that are read after it; for a loop, also at its head."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self.after: dict[ast.stmt, set[str]] = {}
        self.head: dict[ast.stmt, set[str]] = {}
        self.body: dict[ast.stmt, set[str]] = {}
        self.other: dict[ast.stmt, set[str]] = {}
        self._before(node.body, set(), set(), set())

    def _before(
        self, body: list[ast.stmt], after: set[str], at_break: set[str], at_continue: set[str]
    ) -> set[str]:
        for statement in reversed(body):
            self.after[statement] = after
            after = self._before_one(statement, after, at_break, at_continue)
        return after

    def _before_one(
        self, statement: ast.stmt, after: set[str], at_break: set[str], at_continue: set[str]
    ) -> set[str]:
        match statement:
            case ast.Assign(targets=targets, value=value):
                written = {name for target in targets for name in _names(target, ast.Store)}
                return (after - written) | _names(value) | {n for t in targets for n in _names(t)}
            case ast.AugAssign(target=target, value=value):
                return after | _names(value) | _names(target) | _names(target, ast.Store)
            case ast.If(test=test, body=body, orelse=other):
                self.body[statement] = self._before(body, after, at_break, at_continue)
                self.other[statement] = self._before(other, after, at_break, at_continue)
                return _names(test) | self.body[statement] | self.other[statement]
            case ast.While(test=test, body=body):
                head = after | _names(test)
                for _ in range(2):
                    self.body[statement] = self._before(body, head, after, head)
                    head = head | self.body[statement]
                self.head[statement] = head
                return head
            case ast.For(target=target, iter=values, body=body):
                head = set(after)
                for _ in range(2):
                    self.body[statement] = self._before(body, head, after, head)
                    head = head | (self.body[statement] - _names(target, ast.Store))
                self.head[statement] = head
                return head | _names(values)
            case ast.Return():
                return _names(statement)
            case ast.Break():
                return at_break
            case ast.Continue():
                return at_continue
            case ast.Expr() | ast.Pass():
                return after | _names(statement)
        raise NotImplementedError(ast.unparse(statement))


def _names(node: ast.AST, context: type[ast.expr_context] = ast.Load) -> set[str]:
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, context)
    }


# ----- the program -----


class Program:
    """All functions of the machine code."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.functions: dict[tuple[str, str], Function] = {}
        self.names: dict[str, dict[str, tuple[str, str]]] = {}  # by module, where a name is from
        self.imported: dict[str, str] = {}  # C functions, by the names that they have here
        self.intrinsics: set[str] = set()
        for module, text in texts.items():
            self._read(module, ast.parse(text))

    def _read(self, module: str, tree: ast.Module) -> None:
        names = self.names[module] = {}
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    names[alias.name] = ((node.module or "").rpartition(".")[2], alias.name)
            elif isinstance(node, ast.FunctionDef):
                decorators = {ast.unparse(each) for each in node.decorator_list}
                names[node.name] = (module, node.name)
                if "intrinsic" in decorators:
                    self.intrinsics.add(node.name)
                elif node.name not in {"_imported", "_counted"}:
                    self.functions[module, node.name] = Function(module, node, Live(node))
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                target = node.targets[0]
                called = ast.unparse(node.value.func)
                if called in {"_imported", "ExternalFunction"} and isinstance(target, ast.Name):
                    names[target.id] = (module, target.id)
                    self.imported[target.id] = ast.literal_eval(node.value.args[0])

    def changed(self, module: str, node: ast.FunctionDef) -> Program:
        """The same with another function of this name."""
        made = object.__new__(Program)
        made.names, made.imported, made.intrinsics = self.names, self.imported, self.intrinsics
        made.functions = self.functions | {(module, node.name): Function(module, node, Live(node))}
        return made

    @functools.cached_property
    def entries(self) -> list[tuple[str, str]]:
        """Functions that are no helpers: those that the interpreter calls."""
        return [
            key for key, function in self.functions.items()
            if not function.node.decorator_list or key in RAW
        ]  # fmt: skip

    @functools.cache  # noqa: B019 - programs are few
    def called_by(self, key: tuple[str, str]) -> set[tuple[str, str]]:
        """The functions that one calls itself."""
        function = self.functions[key]
        names = self.names[function.module]
        found = {names.get(name) for name in _names(function.node)}
        return {each for each in found if each in self.functions}

    @functools.cache  # noqa: B019 - programs are few
    def callers(self, key: tuple[str, str]) -> list[tuple[str, str]]:
        """A function and all that call it, directly or not, the nearest first."""
        found = [key]
        for called in found:
            found += [
                each
                for each in self.functions
                if called in self.called_by(each) and each not in found
            ]
        return found


def program() -> Program:
    """The machine code as it is."""
    return Program({module: kernel_files.text_of(f"fastpath.{module}") for module in MODULES})


# ----- the run -----

COMPARISONS = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip

MOST = 4  # references that a path may have to one thing


class Wrong(Exception):
    """A place where the counts are wrong, which is enough to know."""


class Checker:
    """Runs functions on symbols, and keeps what they do to those they are given."""

    def __init__(self, program: Program, *, stops: bool = False) -> None:
        self.program = program
        self.stops = stops  # at the first thing that is wrong
        self.calls: dict[tuple[tuple[str, str], Any], tuple[State, int]] = {}
        self.exits: dict[tuple[tuple[str, str], Any], list[State]] = {}
        self.found: set[Found] = set()

    def check(self, entries: Iterable[tuple[str, str]]) -> set[Found]:
        """What is wrong in some entries, and in what they call."""
        for entry in entries:
            _Run(self, self.program.functions[entry]).check_entry()
        return self.found

    def is_noticed(self, module: str, changed: ast.FunctionDef) -> bool:
        """Whether it is noticed that a function has become another one; nothing was wrong before.

        That function first, as it was called before, then those that call it, at last entries: most is
        seen soon.
        """
        other = Checker(self.program.changed(module, changed), stops=True)
        touched = self.program.callers((module, changed.name))
        other.exits = {key: known for key, known in self.exits.items() if key[0] not in touched}
        try:
            for each in touched:
                for key, (entry, arguments) in self.calls.items():
                    if key[0] == each:
                        other.exits_of(other.program.functions[each], entry, arguments)
                if each in self.program.entries:
                    other.check([each])
        except Wrong:
            return True
        return False

    def exits_of(self, function: Function, entry: State, arguments: int) -> list[State]:
        """The states in which a function may return."""
        key = ((function.module, function.node.name), entry.parts(arguments).key)
        if key not in self.exits:
            self.calls[key] = entry, arguments
            self.exits[key] = _Run(self, function).exits(entry, arguments)
        return self.exits[key]


_numbers = itertools.count(1000)  # of symbols; those of arguments are smaller


class _Run:
    """One function, called in one way."""

    def __init__(self, checker: Checker, function: Function) -> None:
        self.checker, self.program, self.function = checker, checker.program, function
        self.names = self.program.names[function.module]
        self.line = function.node.lineno
        self.is_raw = (function.module, function.node.name) in RAW
        self.arguments = 0
        self.times_given: Mapping[Term, int] = {}
        self.returned: list[State] = []

    def report(self, problem: str) -> None:
        found = Found(self.function.module, self.function.node.name, self.line, problem)
        self.checker.found.add(found)
        if self.checker.stops:
            raise Wrong(found)

    # --- entries ---

    def check_entry(self) -> None:
        """Run a function that the interpreter calls: it borrows its arguments and returns a reference or 0."""
        key = (self.function.module, self.function.node.name)
        entry = State()
        parameters = [argument.arg for argument in self.function.node.args.args]
        kinds = {"arguments": "memory", "count": "word"}
        for k, name in enumerate(parameters):
            entry.names[name] = ("s", k)
            null = "?" if name == "names" else "1"
            entry.symbols[k] = Symbol(kinds.get(name, "ref"), null=null)
        for state in self.exits(entry, len(parameters)):
            self.check_exit(state, TAKEN.get(key))

    def check_exit(self, state: State, taken: str | None) -> None:
        result = state.names.get("return", 0)
        self.line = self.function.node.lineno
        given = result[1] if isinstance(result, tuple) and result[0] == "s" else None
        if given is None and result != 0:
            self.report("returns what is no reference")
        expected = dict.fromkeys(state.symbols, 0)
        if given is not None:
            expected[given] = state.symbols[given].count if self.is_raw else 1
        if taken is not None:
            held = state.fields.get((("s", 0), ("k", taken)))
            if held is None:
                self.report(f"does not drop the {taken} that it takes over")
            else:
                expected[held[1]] = -1
        for n, symbol in state.symbols.items():
            if symbol.null != "0" and symbol.count != expected[n]:
                if n == given:
                    self.report(
                        "returns a borrowed reference"
                        if symbol.count < 1
                        else "returns one reference of several"
                    )
                else:
                    self.report(_problem(symbol.count - expected[n]))

    def exits(self, entry: State, arguments: int) -> list[State]:
        """The states in which the function returns, called in one."""
        self.arguments = arguments
        self.times_given = collections.Counter(entry.names.values())
        self.returned = []
        body = self.function.node.body
        states, breaks, continues = self.block(body, [entry.copy()])
        assert not breaks
        assert not continues
        for state in states:
            state.names = {}
            self.returned.append(state)
        if self.function.node.name not in OPEN:
            for state in self.returned:
                for n, symbol in state.symbols.items():
                    if n >= arguments:
                        state.symbols[n] = symbol._replace(filled=None)
        return self.merged(self.returned, {"return"})

    # --- states ---

    def cleaned(self, state: State, live: set[str]) -> State:
        """The state without what nobody names any more; its count must be 0."""
        state.names = {name: term for name, term in state.names.items() if name in live}
        for n, symbol in state.symbols.items():
            if symbol.null == "0":
                state.symbols[n] = Symbol(symbol.kind, null="0")
            elif abs(symbol.count) > MOST:
                self.report("a count that a loop changes")
                state.symbols[n] = symbol._replace(count=0)
        reached = set(range(self.arguments))
        for term in state.names.values():
            reached.update(symbols_in(term))
        left, kept = dict(state.fields), {}
        is_new = True
        while is_new:
            is_new = False
            for place, term in list(left.items()):
                if not all(n in reached for n in symbols_in(place)):
                    continue
                inside = set(symbols_in(term))
                counted = any(state.symbols[n].count != 0 for n in inside)
                if self.kind(state, place[0]) == "memory" or counted:
                    reached |= inside
                    kept[place] = left.pop(place)
                    is_new = True
        for place, term in left.items():
            if all(n in reached for n in symbols_in((place, term))) and any(symbols_in(term)):
                kept[place] = term
        state.fields = kept
        for n in set(state.symbols) - reached:
            symbol = state.symbols.pop(n)
            if symbol.count != 0 and symbol.null != "0":
                self.report(_problem(symbol.count))
        given = set(range(self.arguments))
        state.written = {place for place in state.written if set(symbols_in(place)) <= given}
        return state

    def merged(self, states: list[State], live: set[str]) -> list[State]:
        """States that tell all there is to know, and as few as possible: two that differ in one yes or no
        are one in which that is not known."""
        found: dict[Any, tuple[State, Parts]] = {}
        alike: dict[Any, dict[str, Any]] = {}  # states that differ in one thing, by what that is
        waiting = list(states)
        for state in waiting:
            self.cleaned(state, live)
        while waiting:
            state = waiting.pop()
            parts = state.parts(self.arguments)
            if parts.key in found:
                continue
            found[parts.key] = state, parts
            for which, rest, value, about in _but_one(parts):
                others = alike.setdefault((which, rest), {})
                for other, (key, about_other) in list(others.items()):
                    if key not in found or key == parts.key:
                        del others[other]
                    elif "0" in (value, other) or about == about_other:
                        kept, kept_parts = found[key] if value == "0" else (state, parts)
                        del found[key], found[parts.key]
                        waiting.append(self.either(which, kept, kept_parts))
                        break
                if parts.key not in found:
                    break
                others[value] = parts.key, about
        return [state for state, _ in found.values()]

    def either(self, which: str | int, state: State, parts: Parts) -> State:
        """A state in which a name or a symbol, which was so, may be so or not."""
        made = state.copy()
        if isinstance(which, str):
            made.names[which] = self.symbol(made, "word")
        else:
            made.change(parts.back[which], null="?")
        return made

    def symbol(self, state: State, kind: str = "ref", **known: Any) -> Term:
        number = next(_numbers)
        state.symbols[number] = Symbol(kind, **known)
        return ("s", number)

    def kind(self, state: State, term: Term) -> str:
        """What an address is that of."""
        if isinstance(term, tuple):
            if term[0] == "s":
                return state.symbols[term[1]].kind
            if term[0] == "items":
                return "ref"
            kinds = [self.kind(state, part) for part in term[1:] if isinstance(part, tuple)]
            return next((kind for kind in kinds if kind in {"memory", "numbers", "spare"}), "word")
        return "word"

    # --- statements ---

    def block(
        self, body: list[ast.stmt], states: list[State]
    ) -> tuple[list[State], list[State], list[State]]:
        """The states behind some statements, at the breaks and at the continues in them."""
        breaks: list[State] = []
        continues: list[State] = []
        for statement in body:
            states, broken, continued = self.statement(statement, states)
            breaks += broken
            continues += continued
            self.line = statement.lineno
            states = self.merged(states, self.function.live.after[statement])
        return states, breaks, continues

    def statement(
        self, statement: ast.stmt, states: list[State]
    ) -> tuple[list[State], list[State], list[State]]:
        live, after, breaks, continues = self.function.live, [], [], []
        for state in states:
            self.line = statement.lineno
            match statement:
                case ast.Assign(targets=targets, value=value):
                    for made, term in self.values(value, state):
                        for target in targets:
                            self.assign(made, target, term)
                        after.append(made)
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    for made, term in self.values(value, state):
                        made.names[name] = self.computed(made, op, self.name(made, name), term)
                        after.append(made)
                case ast.Expr(value=value):
                    after += [made for made, _ in self.values(value, state)]
                case ast.If(test=test, body=body, orelse=other):
                    sides: dict[bool, list[State]] = {True: [], False: []}
                    for made, is_so in self.truths(test, state):
                        sides[is_so].append(made)
                    for side, part, names in (
                        (sides[True], body, live.body), (sides[False], other, live.other),
                    ):  # fmt: skip
                        side = self.merged(side, names[statement])
                        then, broken, continued = self.block(part, side)
                        after += then
                        breaks += broken
                        continues += continued
                case ast.While() | ast.For():
                    after += self.loop(statement, state)
                case ast.Return(value=value):
                    for made, term in self.values(value, state) if value else [(state, 0)]:
                        is_number = isinstance(term, tuple) and term[0] not in {"s", "k", "tuple"}
                        if is_number:
                            term = self.symbol(made, self.kind(made, term))
                        made.names = {"return": term}
                        self.returned.append(self.cleaned(made, {"return"}))
                case ast.Break():
                    breaks.append(state)
                case ast.Continue():
                    continues.append(state)
                case _:
                    after.append(state)
        return after, breaks, continues

    def assign(self, state: State, target: ast.expr, term: Term) -> None:
        match target:
            case ast.Name(id=name):
                state.names[name] = term
            case ast.Tuple(elts=parts):
                for k, part in enumerate(parts):
                    is_known = isinstance(term, tuple) and term[0] == "tuple"
                    self.assign(
                        state, part, term[1 + k] if is_known else self.symbol(state, "word")
                    )
            case ast.Subscript():
                pass  # an element of an array

    def loop(self, statement: ast.While | ast.For, state: State) -> list[State]:
        """The states behind a loop: its body is run in every state that comes to its head."""
        live = self.function.live
        counted = {
            each.target.id
            for each in ast.walk(statement)
            if isinstance(each, ast.AugAssign)
            and isinstance(each.target, ast.Name)
            and not isinstance(each.op, ast.BitAnd | ast.BitOr)
        }
        after: list[State] = []
        if isinstance(statement, ast.For):
            assert isinstance(statement.iter, ast.Call)
            waiting = []
            for made, terms in self.several(statement.iter.args, state):
                (after if terms[-1] == 0 and len(terms) == 1 else waiting).append(made)
        else:
            waiting = [state]
        seen: set[Any] = set()
        while waiting:
            for each in waiting:
                for name in counted & each.names.keys():
                    each.names[name] = self.symbol(each, self.kind(each, each.names[name]))
                for name, term in each.names.items():
                    if repr(term).count("(") > 8:
                        each.names[name] = self.symbol(each, self.kind(each, term))
            self.line = statement.lineno
            heads = [
                head
                for head in self.merged(waiting, live.head[statement])
                if head.parts(self.arguments).key not in seen
            ]
            seen |= {head.parts(self.arguments).key for head in heads}
            inside = []
            for head in heads:
                if isinstance(statement, ast.For):
                    after.append(head.copy())
                    assert isinstance(statement.target, ast.Name)
                    head.names[statement.target.id] = self.symbol(head, "word")
                    inside.append(head)
                else:
                    for made, is_so in self.truths(statement.test, head):
                        (inside if is_so else after).append(made)
            inside = self.merged(inside, live.body[statement])
            waiting, broken, continued = self.block(statement.body, inside)
            waiting = waiting + continued
            after += broken
        return after

    # --- expressions ---

    def name(self, state: State, name: str) -> Term:
        if name in state.names:
            return state.names[name]
        if name.isupper():
            return ("k", name)
        return self.symbol(state, "word")  # not set on this path

    def several(self, nodes: list[ast.expr], state: State) -> list[tuple[State, list[Term]]]:
        found: list[tuple[State, list[Term]]] = [(state, [])]
        for node in nodes:
            found = [
                (made, [*terms, term])
                for before, terms in found
                for made, term in self.values(node, before)
            ]
        return found

    def values(self, node: ast.expr, state: State) -> list[tuple[State, Term]]:
        """What an expression may be, with what is known then."""
        match node:
            case ast.Constant(value=int(value)):
                return [(state, int(value))]
            case ast.Name(id=name):
                return [(state, self.name(state, name))]
            case ast.Tuple(elts=parts):
                return [(made, ("tuple", *terms)) for made, terms in self.several(parts, state)]
            case ast.IfExp(test=test, body=body, orelse=other):
                return [
                    result
                    for made, is_so in self.truths(test, state)
                    for result in self.values(body if is_so else other, made)
                ]
            case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return [(made, int(is_so)) for made, is_so in self.truths(node, state)]
            case ast.BinOp(left=left, op=op, right=right):
                return [
                    (made, self.computed(made, op, *terms))
                    for made, terms in self.several([left, right], state)
                ]
            case ast.UnaryOp(operand=operand):
                return [
                    (made, self.symbol(made, "word")) for made, _ in self.values(operand, state)
                ]
            case ast.Subscript(value=value, slice=ast.Constant(value=int(k))):
                found = []
                for made, term in self.values(value, state):
                    is_known = isinstance(term, tuple) and term[0] == "tuple"
                    found.append((made, term[1 + k] if is_known else self.symbol(made, "word")))
                return found
            case ast.Call():
                return self.call(node, state)
            case ast.Constant() | ast.Attribute():
                return [(state, self.symbol(state, "word"))]
        raise NotImplementedError(ast.unparse(node))

    def computed(self, state: State, op: ast.operator, a: Term, b: Term) -> Term:
        match op, a, b:
            case (ast.Add() | ast.BitOr(), 0, x) | (ast.Add() | ast.Sub() | ast.BitOr(), x, 0):
                return x
            case (ast.Mult() | ast.BitAnd(), 1, x) | (ast.Mult() | ast.BitAnd(), x, 1):
                return x
            case (ast.Mult() | ast.BitAnd(), 0, _) | (ast.Mult() | ast.BitAnd(), _, 0):
                return 0
            case ast.BitOr(), 1, _:
                return 1
            case ast.Add(), int(), int():
                return a + b
            case ast.Mult(), int(), int():
                return a * b
            case ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv(), _, _:
                return (type(op).__name__, a, b)
        return self.symbol(state, "word")

    def truths(self, node: ast.expr, state: State) -> list[tuple[State, bool]]:
        """Whether a condition may be so, or not, with what is known then."""
        match node:
            case ast.BoolOp(op=op, values=[first, *others]):
                stops = isinstance(op, ast.Or)
                found = []
                for made, is_so in self.truths(first, state):
                    if is_so == stops or not others:
                        found.append((made, is_so))
                    else:
                        rest = ast.BoolOp(op, others) if len(others) > 1 else others[0]
                        found += self.truths(rest, made)
                return found
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return [(made, not is_so) for made, is_so in self.truths(operand, state)]
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return [
                    result
                    for made, (a, b) in self.several([left, right], state)
                    for result in self.compared(made, op, a, b)
                ]
            case ast.Compare(left=left, comparators=others):
                return [
                    result
                    for made, _ in self.several([left, *others], state)
                    for result in ((made.copy(), True), (made, False))
                ]
        return [
            result
            for made, term in self.values(node, state)
            for result in self.assumed(made, term, "1", "0")
        ]

    def compared(self, state: State, op: ast.cmpop, a: Term, b: Term) -> list[tuple[State, bool]]:
        is_equality = isinstance(op, ast.Eq | ast.NotEq)
        if isinstance(a, int) and not isinstance(b, int) and is_equality:
            a, b = b, a
        if isinstance(a, int) and isinstance(b, int):
            return [(state, COMPARISONS[type(op)](a, b))]
        if a == b and is_equality:
            return [(state, isinstance(op, ast.Eq))]
        match op, b:
            case ast.NotEq(), 0:
                return self.assumed(state, a, "1", "0")
            case ast.Eq(), 0:
                return self.assumed(state, a, "0", "1")
            case ast.Eq() | ast.Gt() | ast.GtE(), int() if b > 0 or isinstance(op, ast.Gt):
                return self.assumed(state, a, "1", "?")
        return [(state.copy(), True), (state, False)]

    def assumed(
        self, state: State, term: Term, if_so: str, if_not: str
    ) -> list[tuple[State, bool]]:
        """The state when a term is 0 ("0") or not ("1") if something is so, and if not."""
        if isinstance(term, int):
            null = "1" if term else "0"
        elif term[0] == "s":
            null = state.symbols[term[1]].null
        else:
            null = "1" if term[0] in {"k", "tuple"} and term[0] != "k" else "?"
        found = []
        for is_so, wanted in ((True, if_so), (False, if_not)):
            if "?" not in (wanted, null) and wanted != null:
                continue
            made = state.copy()
            if wanted != "?" and isinstance(term, tuple) and term[0] == "s":
                made.change(term[1], null=wanted)
            found.append((made, is_so))
        return found

    # --- calls ---

    def call(self, node: ast.Call, state: State) -> list[tuple[State, Term]]:
        assert not node.keywords, ast.unparse(node)
        if not isinstance(node.func, ast.Name):
            return [(made, self.symbol(made, "word")) for made, _ in self.several(node.args, state)]
        name = node.func.id
        found = []
        for made, terms in self.several(node.args, state):
            self.line = node.lineno
            found += self.applied(name, made, terms)
        return found

    def applied(self, name: str, state: State, terms: list[Term]) -> list[tuple[State, Term]]:
        own = {
            "own": self.own, "drop": self.drop, "get": self.get, "put": self.put, "int": lambda _, term: term,
            "stack_words": self.stack_words, "take_error": self.take_error, "_table": self.table,
            "min": self.number, "max": self.greater, "at": self.number, "bits_of_float": self.number,
            "abs": self.number, "float": self.number, "quotient": self.number,
        }  # fmt: skip
        home, original = self.names.get(name, ("", name))
        if original in own:
            return [(state, own[original](state, *terms))]
        effect = RESULTS.get(original)
        if home == "cpython" and original in self.program.imported:
            effect = EFFECTS[self.program.imported[original]]
        if effect is not None:
            return [(state, self.effect(state, effect, terms))]
        if original in self.program.intrinsics:
            return [(state, self.symbol(state, "word"))]
        function = self.program.functions[home, original]
        if is_short(function.node):
            return self.inside(function, state, terms)
        return self.entered(function, state, terms)

    def number(self, state: State, *_: Term) -> Term:
        return self.symbol(state, "word")

    def greater(self, state: State, *terms: Term) -> Term:
        if all(isinstance(term, int) for term in terms):
            return max(terms)
        return self.symbol(state, "word")

    def stack_words(self, state: State, _: Term) -> Term:
        return self.symbol(state, "memory", null="1")

    def table(self, state: State) -> Term:
        return self.symbol(state, "spare", null="1")

    def used(self, state: State, term: Term) -> None:
        """Something is done with an object: it must be there."""
        if any(state.symbols[n].is_gone for n in symbols_in(term)):
            self.report("used after it was dropped")

    def count(self, state: State, term: Term, change: int) -> None:
        """Change the count of a term, which may be 0."""
        if isinstance(term, tuple) and term[0] == "s":
            symbol = state.symbols[term[1]]
            if symbol.null != "0" and symbol.kind != "word":
                state.change(term[1], count=symbol.count + change)
        elif term != 0:
            self.report("the count of what is no reference is changed")

    def own(self, state: State, term: Term) -> Term:
        self.used(state, term)
        self.count(state, term, 1)
        return term

    def drop(self, state: State, term: Term) -> Term:
        self.used(state, term)
        self.count(state, term, -1)
        if isinstance(term, tuple) and term[0] == "s":
            symbol = state.symbols[term[1]]
            if symbol.count < 0 and term[1] >= self.arguments and not self.is_raw:
                self.report("dropped before a slot is written over, or though it is not ours")
            # Each argument may have come with a reference, also where two are the same object.
            left = symbol.count + self.times_given.get(term, 0)
            if left < 0 or (left == 0 and (symbol.is_made or term in self.times_given)):
                self.lose(state, term[1])
        return 0

    def lose(self, state: State, number: int) -> None:
        """An object is gone, and what was seen of it that nobody else is known to hold."""
        state.change(number, is_gone=True)
        for (base, _), term in state.fields.items():
            if number in symbols_in(base) and state.symbols[number].kind == "ref":
                for held in symbols_in(term):
                    symbol = state.symbols[held]
                    if symbol.count <= 0 and not symbol.is_gone and held >= self.arguments:
                        self.lose(state, held)

    def effect(self, state: State, effect: Effect, terms: list[Term]) -> Term:
        for base, term in [(place[0], term) for place, term in state.fields.items()]:
            if base in terms and self.kind(state, base) == "memory":
                self.used(state, term)  # an argument of what is called
        for k, term in enumerate(terms):
            self.used(state, term)
            if k in effect.takes:
                self.drop(state, term)
        if effect.result == WORD:
            return self.symbol(state, "word")
        if effect.result == BORROWED:
            return self.symbol(state)
        filled: frozenset[Term] | None = frozenset() if effect.result == EMPTY else None
        kind = "numbers" if effect.result == MEMORY else "ref"
        return self.symbol(state, kind, count=1, filled=filled, is_made=True)

    def take_error(self, state: State, *places: Term) -> Term:
        for place in places:
            self.put(state, place, 0, self.symbol(state, count=1, is_made=True))
        return 0

    # --- memory ---

    def place(self, state: State, address: Term, offset: Term) -> tuple[Term, Term]:
        """Where something lies: in what object or memory, and where in there."""
        while isinstance(address, tuple) and address[0] == "Add":
            if self.kind(state, address[1]) not in {"memory", "numbers", "spare"}:
                break
            offset = self.computed(state, ast.Add(), address[2], offset)
            address = address[1]
        if self.kind(state, address) == "memory" and any(symbols_in(offset)):
            return address, None  # somewhere
        return address, offset

    def get(self, state: State, address: Term, offset: Term) -> Term:
        base, place = self.place(state, address, offset)
        kind = self.kind(state, base)
        self.used(state, base)
        if kind == "spare":
            return self.symbol(state, filled=frozenset())
        if kind in {"word", "numbers"} or place is None:
            return self.symbol(state)
        if kind == "ref":
            if place[0:1] == ("k",) and place[1] in NUMBERS if isinstance(place, tuple) else False:
                return self.symbol(state, "word")
            if place == ("k", "ITEMS_OF_LIST"):
                return ("items", base)
        if (base, place) not in state.fields:
            null = "1" if kind == "memory" else "?"  # those that the interpreter calls with
            state.fields[base, place] = self.symbol(state, null=null)
        return state.fields[base, place]

    def put(self, state: State, address: Term, offset: Term, term: Term) -> Term:
        base, place = self.place(state, address, offset)
        kind = self.kind(state, base)
        if kind == "ref":
            self.used(state, base)
            if place == ("k", "LENGTH"):
                self.cut(state, base, term)
            elif not (isinstance(place, tuple) and place[0] == "k" and place[1] in NUMBERS):
                self.put_reference(state, base, place, term)
        elif kind == "memory" and place is not None:
            is_symbol = isinstance(term, tuple) and term[0] == "s"
            state.fields[base, place] = (
                term if is_symbol or term == 0 else self.symbol(state, "word")
            )
        return 0

    def put_reference(self, state: State, base: Term, place: Term, term: Term) -> None:
        """A slot takes a reference over; what was there before is the code's."""
        self.used(state, term)
        owner = next(symbols_in(base))
        filled = state.symbols[owner].filled
        if (base, place) in state.fields:
            self.count(state, state.fields[base, place], 1)
        elif filled is None or place in filled:
            self.symbol(state, count=1)
        self.count(state, term, -1)
        state.fields[base, place] = term
        state.written.add((base, place))
        if filled is not None and not any(symbols_in(place)):
            state.change(owner, filled=filled | {place})

    def cut(self, state: State, base: Term, length: Term) -> None:
        """A list becomes shorter by its last item, whose reference is the code's."""
        last = (("items", base), self.computed(state, ast.Mult(), 8, length))
        if last in state.fields:
            self.count(state, state.fields.pop(last), 1)
        else:
            self.report("a list is cut, and its last item not taken")

    # --- functions of ours ---

    def inside(
        self, function: Function, state: State, terms: list[Term]
    ) -> list[tuple[State, Term]]:
        """The same as `entered`, with all that is known here: of slots, above all."""
        run = _Run(self.checker, function)
        run.arguments, run.line = self.arguments, function.node.lineno
        run.times_given = self.times_given
        parameters = [argument.arg for argument in function.node.args.args]
        names, state.names = state.names, dict(zip(parameters, terms, strict=True))
        last = function.node.body[-1]
        assert isinstance(last, ast.Return | ast.Expr)
        assert last.value is not None
        found = run.values(last.value, state)
        for made, _ in found:
            made.names = dict(names)
        return found

    def entered(
        self, function: Function, state: State, terms: list[Term]
    ) -> list[tuple[State, Term]]:
        """What a call of a function may return, and the states then."""
        entry, given = State(), {}  # `given`: the numbers that symbols have inside
        inside: list[Term] = []  # what the arguments of the entry are here

        def passed(term: Term) -> Term:
            if isinstance(term, int) or term[0] == "k":
                return term
            if term[0] != "s":
                kind = self.kind(state, term)
                inside.append(term)
                number = len(inside) - 1
                null = "1" if kind in {"memory", "spare"} else "?"
                entry.symbols[number] = Symbol(kind, null=null)
                return ("s", number)
            if term[1] not in given:
                inside.append(term)
                given[term[1]] = len(inside) - 1
                symbol = state.symbols[term[1]]
                entry.symbols[len(inside) - 1] = symbol._replace(count=0, is_made=False)
            return ("s", given[term[1]])

        parameters = [argument.arg for argument in function.node.args.args]
        assert len(parameters) == len(terms), function.node.name
        for name, term in zip(parameters, terms, strict=True):
            entry.names[name] = passed(term)
        memories = {("s", n) for n in given if state.symbols[n].kind == "memory"}
        for (base, place), term in state.fields.items():
            if base in memories:
                entry.fields[passed(base), place] = passed(term)
        found = []
        for end in self.checker.exits_of(function, entry, len(inside)):
            made = self.after(state.copy(), inside, end)
            if made is not None:
                found.append(made)
        return found

    def after(self, state: State, inside: list[Term], end: State) -> tuple[State, Term] | None:
        """The state after a call that ended in one way; None if it cannot have."""
        here: dict[int, Any] = {}  # terms, each in a tuple of its own
        for number, term in enumerate(inside):
            here[number] = (term,)
            symbol = end.symbols[number]
            if isinstance(term, tuple) and term[0] == "s":
                before = state.symbols[term[1]]
                if "?" not in (before.null, symbol.null) and before.null != symbol.null:
                    return None
                null = symbol.null if before.null == "?" else before.null
                count = before.count + symbol.count
                gone = symbol.is_gone and (count < 0 or (count == 0 and before.is_made))
                state.symbols[term[1]] = before._replace(
                    null=null, count=count, filled=symbol.filled, is_gone=before.is_gone or gone
                )
            elif symbol.count != 0:
                self.report("the count of what is no reference is changed")
        for number, symbol in end.symbols.items():
            if number >= len(inside):
                here[number] = (self.symbol(state, **symbol._asdict()),)
        memories = {n for n in range(len(inside)) if end.symbols[n].kind == "memory"}
        for place, term in end.fields.items():
            if set(symbols_in(place[0])) <= memories:
                state.fields[replaced(place, here)] = replaced(term, here)
        for place in end.written:
            state.fields.pop(replaced(place, here), None)
            if place in end.fields:
                state.fields[replaced(place, here)] = replaced(end.fields[place], here)
        result = end.names.get("return", 0)
        return state, replaced(result, here)


def is_short(node: ast.FunctionDef) -> bool:
    """Whether a function is a name for an expression without a condition: a slot, as a rule."""
    body = [each for each in node.body if not _is_docstring(each)]
    return (
        len(body) == 1
        and isinstance(body[0], ast.Return | ast.Expr)
        and not any(
            isinstance(each, ast.IfExp | ast.BoolOp | ast.Compare) for each in ast.walk(body[0])
        )
    )


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _but_one(parts: Parts) -> Iterator[tuple[str | int, Any, str, Any]]:
    """All of a state but one thing that may be 0 or not, whether it is, and what is known of it else."""
    for k, (name, term) in enumerate(parts.names):
        if term in (0, 1):
            names = (*parts.names[:k], *parts.names[k + 1 :])
            yield name, (names, parts.symbols, parts.fields), str(int(term)), None
    for k, symbol in enumerate(parts.symbols):
        symbols = (*parts.symbols[:k], *parts.symbols[k + 1 :])
        about = symbol._replace(null="?")
        yield k, (parts.names, symbols, parts.fields), symbol.null, about


def _problem(count: int) -> str:
    return (
        "a reference is lost"
        if count > 0
        else "a reference is dropped, or given away, that is not ours"
    )
