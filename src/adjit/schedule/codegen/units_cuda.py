"""CPU kernels on a GPU as they are: a unit of work by a thread, a warp or a block.

A kernel that computes with vectors of 32 elements is a program for a warp, see `kernels/on_gpu/warp.py`. Its
plain loops are dealt out to the lanes where no round needs the one before it:

    def softmax_rows(args, start, stop):
        ...
            for k in range(first + lane(), last, 32):
                out[j + k] = exp(x[i + k] - top)
            sync_warp()
            total += reduce_span(add, out, j + first, j + last, T(0), T)

    def softmax_rows_on_gpu(w0, w1, w2, n):
        row = laid_out((w0, w1, w2))
        for unit in range(first_unit() // 32, n, all_threads() // 32):
            softmax_rows(row, unit, unit + 1)

Kernels of rows and those that the scheduler has written give a unit to a block, and the rounds of
loops to all of its threads; sums of spans are those of `kernels/on_gpu/block.py`. Other sums of lanes are
computed by every warp alike. What waits there for the sum of a row lies in shared memory, as much of
it as a row is wide.

Kernels with a CUDA side of their own, marked by `on_device`, have their blocks and loops themselves.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from ...kernels.language import lanes
from ...kernels.language.device import Word, function_on_gpu
from ...kernels.on_gpu.block import MOST_THREADS, PARTS_BYTES
from ..jit.cache import VectorMath
from ..planning.recipe import DeviceSource, Source, Text
from .body import VECTOR_MATH, parse, written_text
from .loops_cuda import DEVICE

SHARED_BYTES = 48 << 10  # of a block, without asking for more
# How units are dealt out: the first, the step to the next.
UNITS = {
    "thread": ("first_unit()", "all_threads()"),
    "warp": ("first_unit() // 32", "all_threads() // 32"),
    "block": ("block()", "blocks()"),
}
# And the rounds of a loop within one: the first, the step to the next, what waits for the others.
ROUNDS = {"warp": ("lane()", "32", "sync_warp()"), "block": ("thread()", "threads()", "barrier()")}
BY_WARPS = ("cast", "combine_four", "first_equal", "fold", "load", "load_four", "load_over", "load_some",
            "spread", "spread_as", "spread_over", "store", "store_some", "where_moved")  # fmt: skip


def width_word(origin: Any) -> int | None:
    """Which constant word says how many elements a unit has, -1 if none does, of a kernel whose units
    are done by blocks; None for others."""
    if isinstance(origin, Text):
        return origin.width
    function = origin[0]
    if hasattr(function, "row"):
        return 0
    return 1 if getattr(function, "folds", "columns") != "columns" else None


# Words of a row in the GPU's memory that become values at once. Words that a store might change, for all
# the compiler knows, sent nvJitLink into copies of the loops of pooling without end.
MOST_VALUES = 64


def by_text(source: Source, count: int, by_table: bool = False) -> DeviceSource:
    """`by_units` for a kernel that the scheduler has written."""
    module = ModuleType(source.name)
    exec(compile(source.text, f"<{source.name}>", "exec"), module.__dict__)
    return by_units(getattr(module, source.name), {}, count, by_table, source.text)


def by_units(
    function: Callable[..., Any],
    bind: Mapping[str, str],
    count: int,
    by_table: bool = False,
    text: str = "",
    side: Callable[..., Any] | None = None,
) -> DeviceSource:
    """The device kernel in which a CPU kernel does one unit of its work after the other, or `side`.

    A unit is done by one thread or, where the kernel computes with lanes, by the 32 of a warp or by
    a block; loops whose rounds do not depend on each other are then dealt out to them. `count` are
    the words of the row, all of them int64, parameters unless the row lies in the GPU's memory
    (`by_table`); `text` is the module of a function that has no file.

    Raises:
        NotImplementedError: if the kernel is not written in a way that a GPU can take over.
    """
    if bind.get("T") == "float32" and "A" in bind:  # few GPUs have many units for float64
        bind = {**bind, "A": "float32"}
    room = _Room(bind, text)
    room.add(side or function)
    name = f"{(side or function).__name__}_on_gpu"
    words = ["table"] if by_table else [f"w{k}" for k in range(count)]
    row = "at(table, int64)"
    if not by_table or count <= MOST_VALUES:
        values = [f"{row}[{k}]" for k in range(count)] if by_table else words
        row = f"laid_out(({', '.join(values)},))"
    for word in ("at", "laid_out"):
        if f"{word}(" in row:
            room.imports[word] = room.warp_module
    kernel = [f"def {name}({', '.join([*words, 'n'])}):", f"    row = {row}"]
    warps = room.warps_of_block()
    threads = 32 * warps
    units = {"thread": threads, "warp": warps, "block": 1}[room.by]
    if side is not None:
        threads, units = side.launch.threads, side.launch.units  # type: ignore[attr-defined]
        kernel.append(f"    {side.__name__}(row, n)")
    else:
        first, step = UNITS[room.by]
        room.import_words(first, step)
        kernel.append(f"    for unit in range({first}, n, {step}):")
        kernel.append(f"        {function.__name__}(row, unit, unit + 1)")
    modules: dict[str, list[str]] = {}
    for item, module in room.imports.items():
        modules.setdefault(module, []).append(item)
    head = [f'"""{function.__name__} of {function.__module__}, on a GPU."""', ""]
    head += ["import math", ""] if room.uses_math else []
    head += ["import numpy as np"] if room.uses_numpy else []
    head += [f"from numpy import {kind}" for kind in sorted({*bind.values(), "int64"})]
    head += [f"from {m} import {', '.join(sorted(set(n)))}" for m, n in sorted(modules.items())]
    head += ["", *(f"{letter} = {kind}" for letter, kind in sorted(bind.items()))]
    texts = [re.sub(r"(\d+) \* WARPS", lambda m: str(int(m[1]) * warps), t) for t in room.texts]
    text = "\n".join(head) + "\n\n\n" + "\n\n\n".join([*texts, "\n".join(kernel)]) + "\n"
    signature = ("int64",) * (len(words) + 1)
    return DeviceSource(name, text, signature, threads, units, name, 0, room.bytes_each, by_table)


class _Room:
    """The functions that a kernel calls, as text, and what they import."""

    def __init__(self, bind: Mapping[str, str], text: str) -> None:
        from ...kernels.language import abi
        from ...kernels.on_gpu import block, warp
        from ...kernels.ops import attention, ctc, reduce, sort

        self.bind, self.text = bind, text
        self.texts: list[str] = []
        self.imports: dict[str, str] = {}
        self.uses_math = self.uses_numpy = False
        self.by = "thread"  # what does a unit
        self.done: set[Any] = set()
        self.stack_bytes = 0  # that the lanes of a warp, or a block, share
        self.bytes_each = 0  # of dynamic memory, for each element of a row
        self.replaced = {id(getattr(lanes, n)): n for n in BY_WARPS}
        self.replaced |= {id(abi.words): "words", id(abi.at): "at", id(abi.scalar): "scalar"}
        self.welcome = {
            id(lanes.combine), id(lanes.least_of), id(abi.bits_of_float), id(abi.quotient),
            id(abi.remainder), id(sort.sort_key), id(sort.size_of), id(attention.weight),
            id(ctc.log_of_sum),
        }  # fmt: skip
        self.on_device = {id(abi.shifted): "shifted"}
        self.warp_module = warp.__name__
        self.of_blocks = {
            id(reduce.reduce_span): block.reduce_span,
            id(reduce.dot_span): block.dot_span,
            id(reduce.square_deviations): block.square_deviations,
        }

    def add(self, function: Any) -> None:
        """Add a kernel and, before it, everything that it calls."""
        if self.text or hasattr(function, "by_blocks") or width_word((function,)) is not None:
            self.by = "block"
        elif not hasattr(function, "launch") and self._has_lanes(function, set()):
            self.by = "warp"
        self._add(function)

    def import_words(self, *texts: str) -> None:
        """Import the words of device kernels that some text calls."""
        self.imports |= dict.fromkeys(re.findall(r"(\w+)\(", " ".join(texts)), DEVICE)

    def warps_of_block(self) -> int:
        """The warps of a block: as many as its memory has room for; of one that does a unit, most."""
        if self.by == "block":
            return MOST_THREADS // 32
        most = SHARED_BYTES // max(self.stack_bytes, 1)
        if not most:
            raise NotImplementedError(
                f"a warp would need {self.stack_bytes} bytes of shared memory, and there are "
                f"{SHARED_BYTES}"
            )
        return max(w for w in (1, 2, 4) if w <= most)

    @staticmethod
    def _home(name: str, value: Any, tree: ast.Module) -> str:
        """The module that generated text has a name from."""
        for statement in tree.body:
            if isinstance(statement, ast.ImportFrom) and name in [a.name for a in statement.names]:
                return str(statement.module)
        raise NotImplementedError(f"a fused kernel uses {name}, {value!r}")

    def _has_lanes(self, function: Any, seen: set[Any]) -> bool:
        function = function_on_gpu(function)
        if function in seen:
            return False
        seen.add(function)
        values = [function.__globals__.get(n) for n in _names_in(function)]
        return any(self.replaced.get(id(v)) in BY_WARPS for v in values) or any(
            self._has_lanes(v, seen) for v in values if _is_helper(v)
        )

    def _add(self, function: Any) -> None:
        called = getattr(function, "py_func", function).__name__
        function = function_on_gpu(function)
        if function in self.done:
            return
        self.done.add(function)
        is_generated = bool(self.text) and len(self.done) == 1
        tree = parse(self.text if is_generated else written_text(function))
        definition = tree.body[-1] if is_generated else tree.body[0]
        assert isinstance(definition, ast.FunctionDef)
        definition.name, definition.decorator_list, definition.returns = called, [], None
        for argument in definition.args.args:
            argument.annotation = None
        definition = _EachAlone().visit(definition)
        if is_generated:
            definition = _Rooms(self).visit(definition)
        if len(self.done) == 1:  # as on the CPU, only the kernel itself has functions of its T
            vector = VectorMath(self.bind.get("T", "float64"))
            definition = vector.visit(definition)
            self.imports |= dict.fromkeys(vector.found, VECTOR_MATH)
        scope = function.__globals__
        for name in sorted({n.id for n in ast.walk(definition) if isinstance(n, ast.Name)}):
            if name in self.bind or name not in scope:
                continue
            value = scope[name]
            known = self.replaced.get(id(value))
            if isinstance(value, Word) or id(value) in self.on_device:
                self.imports[name] = DEVICE
            elif value is lanes.stack:
                definition = _Stacks(self, name, scope).visit(definition)
            elif known is not None:
                self.imports[name] = self.warp_module
            elif _is_helper(value):
                self._add(self.of_blocks.get(id(value), value) if self.by == "block" else value)
            elif hasattr(value, "_defn") and id(value) not in self.welcome:
                raise NotImplementedError(
                    f"{function.__name__} has no CUDA side yet: it calls {name}; move its operands "
                    "to the CPU with .cpu()"
                )
            elif value is math:
                self.uses_math = True
            elif value is np:
                self.uses_numpy = True
            elif inspect.ismodule(value):
                raise NotImplementedError(
                    f"{function.__name__} names the module {name}: kernels import what they need of it"
                )
            elif is_generated:
                self.imports[name] = self._home(name, value, tree)
            else:
                self.imports[name] = function.__module__
        if self.by != "thread":
            together = {n for n, v in scope.items() if _is_helper(v) and self._has_lanes(v, set())}
            dealt = _DealtOut(
                function.__name__,
                together.union(BY_WARPS),
                ROUNDS[self.by],
                all_that_write=is_generated,
            )
            definition = dealt.visit(definition)
            if dealt.found:
                self.import_words(*dealt.rounds)
        self.texts.append(ast.unparse(ast.fix_missing_locations(definition)))


def _is_helper(value: Any) -> bool:
    """Whether a global of a kernel is a function of the kernels room, compiled by Numba."""
    return hasattr(value, "py_func")


@functools.cache
def _names_in(function: Any) -> frozenset[str]:
    """The names in what a GPU does of a function."""
    tree = _EachAlone().visit(parse(written_text(function)))
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))


class _EachAlone(ast.NodeTransformer):
    """Rows and columns are units: what a kernel does where `W` is not 0 is left out."""

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        match node.test:
            case ast.Compare(ast.Name("W"), [ast.Eq() | ast.NotEq() as how], [ast.Constant(value)]):
                return node.body if (value == 0) == isinstance(how, ast.Eq) else node.orelse
        return node


class _Stacks(ast.NodeTransformer):
    """Memory on the stack becomes a thread's own, or a part of a block's for each of its warps."""

    def __init__(self, room: _Room, name: str, scope: Mapping[str, Any]) -> None:
        self.room, self.name, self.scope = room, name, scope

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name(called), [dtype, size]) if called == self.name:
                kind = ast.unparse(dtype)
            case _:
                return node
        room = self.room
        count = self.scope[size.id] if isinstance(size, ast.Name) else ast.literal_eval(size)
        if room.by == "thread":
            room.imports["local"] = DEVICE
            return parse(f"local({kind}, {count})", mode="eval").body
        if room.by == "block":
            room.imports["shared"] = DEVICE
            return parse(f"shared({kind}, {count})", mode="eval").body
        stored = room.bind.get(kind) or kind.removeprefix("np.")
        room.stack_bytes += count * np.dtype(stored).itemsize
        room.imports |= dict.fromkeys(("shared", "shifted", "thread"), DEVICE)
        text = f"shifted(shared({kind}, {count} * WARPS), thread() // 32 * {count})"
        return parse(text, mode="eval").body


class _Rooms(ast.NodeTransformer):
    """Memory for the values of a row becomes dynamic memory, as much as the row, or strip, is wide."""

    def __init__(self, room: _Room) -> None:
        self.room = room

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        match node:
            case ast.Assign([ast.Name("strip" | "count" as width)], ast.Subscript()):  # a word
                return [node, parse(f"room = ({width} + 15) // 16 * 16").body[0]]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(ast.Name("stack"), [ast.Name(kind), ast.Name("ROOM" | "FOUR_ROOMS")]):
                pass
            case _:
                return self.generic_visit(node)
        before, size = self.room.bytes_each, ast.unparse(node.args[1])
        self.room.bytes_each += np.dtype(kind).itemsize * (4 if size == "FOUR_ROOMS" else 1)
        self.room.imports["dynamic"] = DEVICE
        return parse(f"dynamic({kind}, {PARTS_BYTES} + room * {before})", mode="eval").body

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name("room", node.ctx) if node.id == "ROOM" else node


class _DealtOut(ast.NodeTransformer):
    """Loops whose rounds do not depend on each other are dealt out to the threads of a unit.

    What the scheduler has written may write over what it reads. There each innermost loop that writes has to be
    dealt out: of several threads that go through all of it, some would read what others have written.
    """

    def __init__(
        self, name: str, collective: set[str], rounds: tuple[str, str, str], *, all_that_write: bool
    ) -> None:
        self.name, self.collective, self.rounds = name, collective, rounds
        self.all_that_write = all_that_write
        self.found = False

    def visit_For(self, node: ast.For) -> Any:
        if not self._is_independent(node):
            if self.all_that_write and self._is_innermost(node) and _stores_in(node):
                raise NotImplementedError(f"{self.name} writes in a loop of all threads")
            return self.generic_visit(node)
        assert isinstance(node.iter, ast.Call)
        self.found = True
        start, stop = ([ast.Constant(0)] * 2 + node.iter.args)[-2:]
        mine, step = (parse(text, mode="eval").body for text in self.rounds[:2])
        node.iter.args = [ast.BinOp(start, ast.Add(), mine), stop, step]
        wait = parse(self.rounds[2]).body[0]
        # The warps of a block may still read what the loop writes.
        return [wait, node, wait] if self.rounds == ROUNDS["block"] else [node, wait]

    def _is_independent(self, node: ast.For) -> bool:
        match node:
            case ast.For(ast.Name(variable), ast.Call(ast.Name("range"), args)) if len(args) < 3:
                pass
            case _:
                return False
        followers, stores = self._followers(node.body, variable), _stores_in(node)
        if not self._is_innermost(node) or followers is None or not stores:
            return False
        apart = _further_on(node.body, variable, followers)
        return all(_is_own(s.slice, apart, followers) for s in stores)

    def _is_innermost(self, node: ast.For) -> bool:
        """Whether there is no other loop in it, nor anything that threads do together."""
        inside = [n for s in node.body for n in ast.walk(s)]
        names = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        return not names & self.collective and not any(
            isinstance(n, ast.For | ast.While | ast.Return) for n in inside
        )

    def _followers(self, body: list[ast.stmt], variable: str) -> set[str] | None:
        """The names that change with the variable of a loop, None if a round needs the one before."""
        written = {n.id for s in body for n in ast.walk(s)
                   if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}  # fmt: skip
        known: set[str] = set()
        followers = {variable}
        for statement in body:
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                return None
            read = {n.id for n in ast.walk(statement)
                    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}  # fmt: skip
            made = {n.id for n in ast.walk(statement)
                    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}  # fmt: skip
            if read & (written - known):
                return None
            known |= made
            if read & followers:
                followers |= made
        return followers

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if isinstance(node.target, ast.Subscript):
            raise NotImplementedError(f"{self.name} adds to memory in a loop of all lanes")
        return node


def _stores_in(node: ast.For) -> list[ast.Subscript]:
    """What a loop writes to memory."""
    inside = [n for s in node.body for n in ast.walk(s)]
    return [n for n in inside if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]


def _further_on(body: list[ast.stmt], variable: str, followers: set[str]) -> set[str]:
    """The names of places that lie `variable` further on than one that does not change with it."""
    apart = {variable}
    made = [
        n.id
        for s in body
        for n in ast.walk(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]
    for statement in body:
        match statement:
            case ast.Assign([ast.Name(name)], place) if made.count(name) == 1:
                if _is_own(place, apart, followers):
                    apart.add(name)
    return apart


def _is_own(place: ast.expr, apart: set[str], followers: set[str]) -> bool:
    """Whether no two rounds of a loop write to a place: what lies one of the names in `apart` further on.
    What is read from memory or divided may be the same twice, and so may what lies between two of them."""
    inside = [*ast.walk(place)]
    moved = [n.id for n in inside if isinstance(n, ast.Name) and n.id in followers]
    plain = (ast.Name, ast.Constant, ast.BinOp, ast.Add, ast.Sub, ast.expr_context)
    return len(moved) == 1 and moved[0] in apart and all(isinstance(n, plain) for n in inside)
