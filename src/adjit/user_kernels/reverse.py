"""Reverse mode: one function that runs the user's, keeps what the way back needs, and goes back.

What the way back needs of a round of a loop is computed again where that is cheap (sums, products,
comparisons, elements of arrays that nobody wrote meanwhile); else it is on the tape. Stores put back the
bits that they overwrote, where an element that is read again may have been read before (`undo`).

The adjoint of a name `x` is `x_b`; of what a loop hands on, `x_c`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from .activity import active_names
from .checkpoints import FirstRun, Parts, outer_loops
from .in_turns import may_take_turns
from .parallel import Rounds, parallel_loops
from .refusal import NotDifferentiable
from .rules import PICKS, may_be_infinite, rules_for
from .single_rounds import SingleRounds
from .structure import (
    Apply,
    Atom,
    Branch,
    Carried,
    Demand,
    Load,
    Make,
    Procedure,
    Repeat,
    Statement,
    StoreElement,
    Suite,
    blocks_of,
    inner_blocks,
    walk,
)
from .subscripts import never_negative
from .tape_layout import WORD, TapeLayout, trips_text
from .undo import (
    load_of_round_before,
    loads_of_neighbours,
    may_read_before,
    needed_undos,
    never_meet,
)
from .vocabulary import CHEAP, TESTS, applied, text
from .writing import (
    BACK,
    Lines,
    ProcedureWriter,
    add_copy,
    dtype_text,
    is_zero,
    results_text,
    shape_text,
)

SHORT = 8  # steps of a branch that may run again on the way back
ASIDE = 512  # rounds whose additions to neighbours wait for each other


@dataclass(eq=False)
class WayBack:
    """The code of a block's way back, and what it needs of the blocks around."""

    block: Suite
    w: Lines = field(default_factory=Lines)
    have: set[str] = field(default_factory=set)
    outer: dict[str, None] = field(default_factory=dict)
    outer_adjoints: dict[str, None] = field(default_factory=dict)
    position: int = 0


class ReverseWriter(ProcedureWriter):
    """Writes the function with its way back."""

    def __init__(
        self,
        f: Procedure,
        params: Sequence[str],
        *,
        strong_zero: bool = False,
        checkpoint: bool = False,
    ) -> None:
        super().__init__(f)
        self.checkpoint = checkpoint
        self.parts: dict[Repeat, Parts] = {}  # loops that run again
        self.single: dict[Repeat, SingleRounds] = {}  # each round of which runs again
        self.is_checked = False  # whether what is written has run before without an error
        self.rounds = parallel_loops(f)
        self.functions: list[str] = []  # of the way back of these
        self.wanted = list(params)
        self.strong_zero = strong_zero  # whether zeros are kept from all that may be infinite
        self.active = active_names(f, params)
        self.tape = TapeLayout(f)
        self.undone: set[str] | None = None  # stores whose old value is kept; None: all
        self.found_again: set[str] = set()  # names whose value is read where it was stored
        self._neighbours: dict[Repeat, set[Load]] = {}
        self._handed: dict[Repeat, dict[Statement, Load]] = {}
        self._start_sweep()

    def _start_sweep(self) -> None:
        self.functions = []
        self.has_adjoint: set[str] = set()
        self.counted: set[str] = set()  # loops whose rounds are counted
        self.read_again: dict[str, list[Load]] = {}
        self.sums: dict[str, list[Load]] = {}  # loop -> loads of one place in all rounds
        # loop -> loads whose adjoints are added behind it, and the name of what is added
        self.later: dict[str, dict[Load, str]] = {}
        self.tape.taped = {}

    # ----- names -----

    def is_active(self, a: Atom | None) -> bool:
        return isinstance(a, str) and self.f.root(a) in self.active

    def zero(self, name: str) -> str:
        return "float32(0)" if self.f.types.get(name) == "f4" else "0.0"

    def adjoint_place(self, item: Load | StoreElement) -> str:
        return self.place(f"{item.array}_b", item.index)

    def _writes(self, item: Statement) -> set[str]:
        """The arrays that a statement writes, by their roots."""
        found = {self.f.root(item.array)} if isinstance(item, StoreElement) else set()
        for block in inner_blocks(item):
            found |= {self.f.root(i.array) for _, i in walk(block) if isinstance(i, StoreElement)}
        return found

    def chosen(self, item: Branch) -> str:
        """The test of a branch. Where the way back reads what one side alone has made, Numba must not know the
        side that runs: it drops the other one, but keeps what it merges behind the branch, undefined."""
        test = super().chosen(item)
        return f"bool({test})" if self.is_persistent(item.then.parent) else test

    def is_persistent(self, block: Suite | None) -> bool:
        """Whether names of a block are still there on the way back: those outside of all loops are."""
        while block is not None:
            if block.owner in self.rounds or block.owner in self.single:
                return True
            if block.kind in ("loop", "test"):
                return False
            block = block.parent
        return True

    # ----- values on the way back -----

    def need(self, name: Atom | None, back: WayBack, position: int | None = None) -> None:
        """Code that has a name's value, before what is written next."""
        f = self.f
        if not isinstance(name, str) or name in f.arrays or name not in f.places:
            return
        position = back.position if position is None else position
        block, at = f.places[name]
        if block is not back.block:
            back.outer[name] = None
            return
        item = f.makers[name]
        if isinstance(item, Repeat) and item.trips == name:
            self.counted.add(name)
        if self.is_persistent(block) or name in back.have:
            return
        if self._may_be_found_again(name, item):
            self.found_again.add(name)  # from the next sweep on
        match item:
            case Apply() if self._is_test_of_carried(item, block):
                self.tape.keep(block, name)
            case Apply() if item.function in CHEAP:
                for a in item.args:
                    self.need(a, back, position)
                back.w.add(applied(item))
            case Load() if self._is_unchanged(item, at, block, position):
                for a in item.index:
                    self.need(a, back, position)
                self.read_again.setdefault(f.root(item.array), []).append(item)
                back.w.add(f"{name} = {self.place(item.array, item.index)}")
            case Branch() if not item.then.items and not item.orelse.items:
                _, a, b = next(r for r in item.results if r[0] == name)
                for x in (item.condition, a, b):
                    self.need(x, back, position)
                back.w.add(f"{name} = {text(a)} if {text(item.condition)} else {text(b)}")
            case Branch() if self._is_cheap(item, at, block, position):
                self._choose_again(name, item, back, position)
            case Repeat() if name == item.counter:
                pass
            case Repeat() if at == -1 and (line := self._closed_form(item, name)) is not None:
                first, step = line
                if isinstance(first, str):
                    back.outer[first] = None
                back.w.add(f"{name} = {text(first)} + {item.trips}_k * {text(step)}")
            case _:
                self.tape.keep(block, name)
        back.have.add(name)

    def _is_test_of_carried(self, item: Apply, block: Suite) -> bool:
        """Whether a comparison takes less of the tape, a byte, than what it compares."""
        return (
            item.function in TESTS
            and self.tape.window_loop(block) is not None
            and any(isinstance(a, str) and self._is_carried(a) for a in item.args)
        )

    def _is_carried(self, name: str) -> bool:
        """Whether a number is handed from round to round, and is not known otherwise."""
        loop = self.f.makers.get(name)
        return (
            isinstance(loop, Repeat)
            and self.f.places[name] == (loop.body, -1)
            and name != loop.counter
            and self._closed_form(loop, name) is None
        )

    def _closed_form(self, loop: Repeat, name: str) -> tuple[Atom, int] | None:
        """(first, step) of a whole number that grows by a number in every round."""
        c = next((c for c in loop.carried if c.inside == name), None)
        if c is None or self.f.types.get(name) != "i8" or not isinstance(c.following, str):
            return None
        item = self.f.makers.get(c.following)
        if not isinstance(item, Apply) or self.f.places[c.following][0] is not loop.body:
            return None
        if item.function in ("+", "-") and item.args[0] == name and type(item.args[1]) is int:
            return c.first, item.args[1] if item.function == "+" else -item.args[1]
        return None

    def _is_cheap(self, branch: Branch, at: int, block: Suite, position: int) -> bool:
        """Whether both sides of a branch may run again: they are short, and what they read is still there."""
        items = branch.then.items + branch.orelse.items
        return len(items) <= SHORT and all(
            item.function in CHEAP
            if isinstance(item, Apply)
            else isinstance(item, Load) and self._is_unchanged(item, at, block, position)
            for item in items
        )

    def _choose_again(self, name: str, branch: Branch, back: WayBack, position: int) -> None:
        """Code that chooses a result of a branch once more."""
        w = back.w
        _, *values = next(r for r in branch.results if r[0] == name)
        sides: list[Lines] = []
        for side, value in zip((branch.then, branch.orelse), values, strict=True):
            lines, needed = [], {value}
            for item in reversed(side.items):
                if isinstance(item, (Apply, Load)) and item.dst in needed:
                    needed.discard(item.dst)
                    needed |= set(item.args if isinstance(item, Apply) else item.index)
                    if isinstance(item, Load):
                        self.read_again.setdefault(self.f.root(item.array), []).append(item)
                        lines.append(f"{item.dst} = {self.place(item.array, item.index)}")
                    else:
                        lines.append(applied(item))
            for a in [a for a in needed if isinstance(a, str)]:
                self.need(a, back, position)
            sides.append(Lines())
            for line in [*reversed(lines), f"{name} = {text(value)}"]:
                sides[-1].add(line)
        self.need(branch.condition, back, position)
        for head, side_lines in zip((f"if {text(branch.condition)}:", "else:"), sides, strict=True):
            w.add(head)
            with w.indented():
                w.extend(side_lines)

    def _is_unchanged(self, load: Load, at: int, block: Suite, position: int) -> bool:
        """Whether nobody in the block writes the array of a load before a position."""
        root = self.f.root(load.array)
        for k in range(at + 1, min(position + 1, len(block.items))):
            if root in self._writes(
                block.items[k]
            ):  # an index of a store is needed before its undo
                return False
        return True

    # ----- adjoints -----

    def add(self, name: Atom, expression: str, back: WayBack) -> None:
        """Code that adds to the adjoint of a name."""
        if not isinstance(name, str) or not self.is_active(name) or name in self.f.arrays:
            return
        if self._block_of(name) is not back.block:
            back.outer_adjoints[name] = None
        elif name not in self.has_adjoint:
            self.has_adjoint.add(name)
            back.w.add(f"{name}_b = {expression}")
            return
        if expression.startswith("-") and re.fullmatch(r"\w+( [*/] [\w.]+)*", expression[1:]):
            back.w.add(f"{name}_b -= {expression[1:]}")
        else:
            back.w.add(f"{name}_b += {expression}")

    def _block_of(self, name: str) -> Suite:
        return self.f.places[name][0] if name in self.f.places else self.f.body

    def enter(self, inner: WayBack, back: WayBack) -> None:
        """What the code of a block inside needs, before it."""
        for name in inner.outer:
            self.need(name, back)
        for name in inner.outer_adjoints:
            if self._block_of(name) is not back.block:
                back.outer_adjoints[name] = None
            elif name not in self.has_adjoint:
                self.has_adjoint.add(name)
                back.w.add(f"{name}_b = {self.zero(name)}")

    # ----- going back -----

    def back(self, block: Suite, back: WayBack) -> None:
        for position in range(len(block.items) - 1, -1, -1):
            back.position = position
            item = block.items[position]
            before, last = len(back.w.lines), back.w.last_note
            match item:
                case Apply():
                    self.back_apply(item, back)
                case Load():
                    self.back_load(item, back)
                case StoreElement():
                    self.back_store(item, back)
                case Make():
                    self.back_make(item, back)
                case Branch():
                    self.back_branch(item, back)
                case Repeat():
                    self.back_loop(item, back)
            if len(back.w.lines) > before and item.note and item.note != last:
                back.w.last_note = item.note
                back.w.insert(before, f"# back {item.note}")

    def back_load(self, item: Load, back: WayBack) -> None:
        if item.dst not in self.has_adjoint or not self.is_active(item.array):
            return
        loop = self._constant_in(item, back.block)
        if loop is not None:
            self.sums.setdefault(loop.trips, []).append(item)
            back.w.add(f"{item.dst}_s += {item.dst}_b")
            return
        owner = back.block.owner
        if isinstance(owner, Repeat) and item in self._of_neighbours(owner):
            self._put_aside(item, owner, back)
            return
        if isinstance(owner, Repeat) and item in self._of_rounds_before(owner):
            back.w.add(f"{item.dst}_h = {item.dst}_b")
            return
        for a in item.index:
            self.need(a, back)
        back.w.add(f"{self.adjoint_place(item)} += {item.dst}_b")

    def _of_neighbours(self, loop: Repeat) -> set[Load]:
        """The loads of an innermost loop's rounds that reach other rounds' places, `x[i - 1]` beside `x[i]`.

        What all rounds add to their adjoints is a chain through memory, round by round, unless it is put aside
        and added behind the loop, load by load.
        """
        if loop not in self._neighbours:
            self._neighbours[loop] = set()
            for loads, stores in self._by_arrays(loop) if self._may_be_vectorised(loop) else ():
                self._neighbours[loop].update(loads_of_neighbours(self.f, loop, loads, stores))
        return self._neighbours[loop]

    def _may_be_vectorised(self, loop: Repeat) -> bool:
        """Whether nothing else makes a chain of the rounds of a loop, or keeps LLVM from taking many at once:
        numbers that are no sums, accesses of arrays in branches."""
        for c in loop.carried:
            item = self.f.makers.get(c.following) if isinstance(c.following, str) else None
            adds = isinstance(item, Apply) and item.function in ("+", "-") and c.inside in item.args
            if self.is_active(c.inside) and not adds:
                return False
        return not any(
            isinstance(inner, (Load, StoreElement)) and self.is_active(inner.array)
            for item in loop.body.items
            for block in inner_blocks(item)
            for _, inner in walk(block)
        )

    def _of_rounds_before(self, loop: Repeat) -> dict[Statement, Load]:
        """For stores of an innermost loop, and for such loads themselves, the load of what the round before has
        stored: its adjoint is handed from round to round by a name, which takes less time than through memory.
        """
        if loop not in self._handed:
            found: dict[Statement, Load] = {}
            self._handed[loop] = found
            for loads, stores in self._by_arrays(loop):
                load = (
                    load_of_round_before(self.f, loop, stores[0], loads)
                    if len(stores) == 1
                    else None
                )
                if load is not None:
                    found |= {stores[0]: load, load: load}
        return self._handed[loop]

    def _by_arrays(self, loop: Repeat) -> Iterator[tuple[list[Load], list[StoreElement]]]:
        """For each array with an adjoint that an innermost loop reads, the loads that each round does, and all
        stores into memory that may be the array's."""
        items = [item for _, item in walk(loop.body)]
        is_innermost = not any(isinstance(item, Repeat) for item in items)
        if self.rounds or not is_innermost or loop.kind != "for" or loop.leaves is not None:
            return
        loads = [
            item
            for item in loop.body.items
            if isinstance(item, Load) and self.is_active(item.array)
        ]
        for array in {item.array: None for item in loads}:
            root = self.f.root(array)
            stores = [item for item in items if isinstance(item, StoreElement)]
            yield (
                [item for item in loads if item.array == array],
                [item for item in stores if self.f.root(item.array) == root],
            )

    def _constant_in(self, load: Load, block: Suite | None) -> Repeat | None:
        """The outermost loop around in all of whose rounds a load reads one place that nobody writes."""
        found = None
        while block is not None:
            if block.owner in self.rounds:
                break
            if block.kind == "loop" and isinstance(block.owner, Repeat):
                inside = set(blocks_of(block.owner))
                names = [
                    n
                    for n in (load.array, *load.index)
                    if isinstance(n, str) and n in self.f.places
                ]
                if any(self.f.places[n][0] in inside for n in names):
                    break
                if not self._is_left_alone(load, block.owner):
                    break
                found = block.owner
            block = block.parent
        return found

    def _stored(self, name: str) -> tuple[StoreElement, Load] | None:
        """The store of a name in its block, and a load of what it has stored."""
        block, at = self.f.places[name]
        for k in range(at + 1, len(block.items)):
            item = block.items[k]
            if isinstance(item, StoreElement) and item.value == name and not item.adds:
                if self.f.arrays[item.array][1] != self.f.types.get(name):
                    return None  # it was rounded
                load = Load(f"{item.old}_again", item.array, item.index)
                self.f.places[load.dst] = block, k
                return item, load
        return None

    def _may_be_found_again(self, name: str, item: Statement) -> bool:
        """Whether the value of a name, which costs something, is still where it was stored when the way back
        comes there, with no more kept than is kept anyhow."""
        if self.undone is None or isinstance(item, (Load, StoreElement)):
            return False
        if isinstance(item, Apply) and item.function in CHEAP and item.function != "/":
            return False
        stored = self._stored(name)
        return stored is not None and all(
            other.old in self.undone
            for _, other in walk(self.f.body)
            if isinstance(other, StoreElement)
            and self.f.root(other.array) == self.f.root(stored[0].array)
            and may_read_before(self.f, stored[1], other)
        )

    def _find_again(self, item: StoreElement, back: WayBack) -> None:
        """Read the value that a store has stored, before its place is given back what was there."""
        name = item.value
        if not isinstance(name, str) or name not in self.found_again or name in back.have:
            return
        stored = self._stored(name)
        if stored is None or stored[0] is not item:
            return
        for a in item.index:
            self.need(a, back)
        self.read_again.setdefault(self.f.root(item.array), []).append(stored[1])
        back.w.add(f"{name} = {self.place(item.array, item.index)}")
        back.have.add(name)

    def _is_left_alone(self, load: Load, loop: Repeat) -> bool:
        """Whether no round of a loop writes the place of a load, which is the same in all of them."""
        root = self.f.root(load.array)
        return root not in self._writes(loop) or all(
            never_meet(self.f, loop, load, item)
            for block in inner_blocks(loop)
            for _, item in walk(block)
            if isinstance(item, StoreElement) and self.f.root(item.array) == root
        )

    def _strong(self, g: str, expression: str, item: Apply) -> str:
        """No gradient times whatever is no gradient, also where the derivative is infinite."""
        if not may_be_infinite(item.function, self.strong_zero):
            return expression
        if item.function == "*" and any(not isinstance(a, str) for a in item.args):
            return expression
        divided = re.fullmatch(rf"{g} / (\w+|\(\w+ \+ \w+\))", expression)
        if divided:
            return f"over({g}, {divided[1]})"
        if "/" in expression or "**" in expression:  # would raise in plain Python
            return f"({expression} if {g} != 0 else 0.0)"
        return f"pick({g} != 0, {expression}, 0.0)"

    def back_apply(self, item: Apply, back: WayBack) -> None:
        if item.dst not in self.has_adjoint or not self.is_active(item.dst):
            return
        g, args, function = f"{item.dst}_b", item.args, item.function
        if function == "select" or function in PICKS:
            self._back_pick(item, back)
        elif function in ("abs", "math.fabs"):
            x, zero = args[0], self.zero(item.dst)
            self.need(x, back)
            self.add(x, f"pick({x} > 0, {g}, pick({x} < 0, -{g}, {zero}))", back)
        elif function == "*" and args[0] == args[1]:
            self.need(args[0], back)
            self.add(args[0], self._strong(g, f"({g} + {g}) * {text(args[0])}", item), back)
        elif function == "/" and all(self.is_active(a) for a in args):
            self.need(args[1], back)
            self.need(item.dst, back)
            back.w.add(f"{g} = {self._strong(g, f'{g} / {text(args[1])}', item)}")
            self.add(args[0], g, back)
            self.add(args[1], self._strong(g, f"-{g} * {item.dst}", item), back)
        else:
            for a, rule in zip(args, rules_for(function, args), strict=False):
                if rule is None or not self.is_active(a):
                    continue
                for k, other in enumerate(args):
                    if f"{{{k}}}" in rule:
                        self.need(other, back)
                if "{r}" in rule:
                    self.need(item.dst, back)
                told = rule.format(*map(text, args), g=g, r=item.dst)
                self.add(a, self._strong(g, told, item), back)

    def _back_pick(self, item: Apply, back: WayBack) -> None:
        g = f"{item.dst}_b"
        if item.function == "select":
            condition, a, b = item.args
            self.need(condition, back)
            test = text(condition)
        else:
            a, b = item.args
            self.need(a, back)
            self.need(b, back)
            test = PICKS[item.function].format(text(a), text(b))
        zero = self.zero(item.dst)
        if self.is_active(a) and self.is_active(b) and isinstance(a, str) and isinstance(b, str):
            back.w.add(f"{item.dst}_p = pick({test}, {g}, {zero})")
            self.add(a, f"{item.dst}_p", back)
            self.add(b, f"rest({g}, {item.dst}_p)", back)
        else:
            self.add(a, f"pick({test}, {g}, {zero})", back)
            self.add(b, f"pick({test}, {zero}, {g})", back)

    def _undoes(self, item: StoreElement) -> bool:
        return self.undone is None or item.old in self.undone

    def back_store(self, item: StoreElement, back: WayBack) -> None:
        undoes, active = self._undoes(item), self.is_active(item.array)
        self._find_again(item, back)
        if undoes or active:
            for a in item.index:
                self.need(a, back)
        if undoes:
            self.need(item.old, back)
            back.w.add(f"{self.place(item.array, item.index)} = {item.old}")
        if active:
            where, value = self.adjoint_place(item), self.adjoint_place(item)
            owner = back.block.owner
            if isinstance(owner, Repeat) and (load := self._of_rounds_before(owner).get(item)):
                value += f" + {load.dst}_h"
            self.add(item.value, value, back)
            if not item.adds:
                zero = "float32(0)" if self.f.arrays[item.array][1] == "f4" else "0.0"
                back.w.add(f"{where} = {zero}")

    def back_branch(self, item: Branch, back: WayBack) -> None:
        sides: list[WayBack] = []
        for k, block in enumerate((item.then, item.orelse)):
            inner = WayBack(block)
            for result in item.results:
                if result[0] in self.has_adjoint and self.is_active(result[0]):
                    self.add(result[k + 1], f"{result[0]}_b", inner)
            self.back(block, inner)
            if not self.is_persistent(block):
                inner.w.prepend(self.tape.pop(block))
            sides.append(inner)
        if not any(inner.w.lines for inner in sides):
            return
        for inner in sides:
            self.enter(inner, back)
        self.need(item.condition, back)
        then, orelse = sides
        test = self.chosen(item)
        back.w.add(f"if {test}:" if then.w.lines else f"if not {test}:")
        if then.w.lines:
            with back.w.indented():
                back.w.extend(then.w)
            if orelse.w.lines:
                back.w.add("else:")
        if orelse.w.lines:
            with back.w.indented():
                back.w.extend(orelse.w)

    def back_loop(self, item: Repeat, back: WayBack) -> None:
        if item in self.rounds:
            self._back_in_parallel(self.rounds[item], back)
            return
        w, parts = back.w, self.parts.get(item)
        live = [c for c in item.carried if not c.is_array and self.is_active(c.inside)]
        rounds, again = Lines(), Lines()
        with parts.one() if parts else nullcontext():
            inner = self._back_of_round(item, live)
            self._rounds(item, inner, rounds)
            if parts:
                with self._checked():
                    super().loop(item, again)
        self.enter(inner, back)
        for c in live:
            has = c.after in self.has_adjoint
            w.add(f"{c.inside}_c = {f'{c.after}_b' if has else self.zero(c.inside)}")
        sums = self.sums.get(item.trips, [])
        for load in sums:
            w.add(f"{load.dst}_s = {self.zero(load.dst)}")
        handed = list(dict.fromkeys(self._of_rounds_before(item).values()))
        for load in handed:
            w.add(f"{load.dst}_h = {self.zero(load.dst)}")
        if parts:
            self.need(item.start, back)
            w.add(f"for {item.trips}_d in range({item.trips}_c - 1, -1, -1):")
            with w.indented():
                parts.begin(text(item.start), item.step, w)
                w.extend(again)
                w.add(f"{item.trips} = min({item.trips}_s - {item.trips}_e, {item.trips}_d + 1)")
        elif item.leaves is not None or item.kind == "while":
            self.need(item.trips, back)
        else:
            self.need(item.start, back)
            self.need(item.stop, back)
            w.add(f"{item.trips} = {trips_text(item)}")
        # A loop inside of another one finds the arrays of its last round, and leaves those of its first.
        arrays = [c for c in item.carried if c.is_array and not self.is_persistent(back.block)]
        self._rename([(c.inside, c.after) for c in arrays], w)
        with w.indented() if parts else nullcontext():
            w.extend(rounds)
        self._add_handed(handed, item, back)
        self._rename([(str(c.first), c.inside) for c in arrays], w)
        for load in sums:
            self._add_sum(load, back)
        for c in live:
            self.add(c.first, f"{c.inside}_c", back)

    def enter_rounds(self, rounds: Rounds, back: WayBack) -> tuple[list[Carried], WayBack, Lines]:
        """Begin the way back of rounds that run again: the sums that they add to, one's way back, one again."""
        item = rounds.loop
        live = [c for c in item.carried if self.is_active(c.inside)]
        inner, again = WayBack(item.body), Lines()
        for c in live:
            self.add(c.following, f"{c.inside}_c", inner)
        self.back(item.body, inner)
        with self._checked():
            self.block(item.body, again)
        self.enter(inner, back)
        for c in live:
            has = c.after in self.has_adjoint
            back.w.add(f"{c.inside}_c = {f'{c.after}_b' if has else self.zero(c.inside)}")
        return live, inner, again

    def leave_rounds(self, live: Sequence[Carried], back: WayBack) -> None:
        for c in live:
            self.add(c.first, f"{c.inside}_c", back)

    def _back_in_parallel(self, rounds: Rounds, back: WayBack) -> None:
        item, w, f = rounds.loop, back.w, self.f
        live, inner, again = self.enter_rounds(rounds, back)
        rounds.restore_arrays(w)
        numbers = list(inner.outer_adjoints)
        rounds.begin_blocks(len(numbers), w)
        arrays = [a for a in rounds.names if a in f.arrays and self.is_active(a)]
        own = [f"{a}_b" for a in arrays if a not in rounds.shared]
        shared = [a for a in arrays if a in rounds.shared]
        rows = [f"{a}_b_w" for a in shared]
        for a, row in zip(shared, rows, strict=True):
            kind = dtype_text(f.arrays[a][1])
            shape = [f"{a}.shape[{d}]" for d in range(f.arrays[a][0])]
            w.add(f"{row} = np.zeros(({', '.join([f'{item.trips}_c', *shape])}), np.{kind})")
        names = [*rounds.names, *[n for n in inner.outer if n not in rounds.names]]
        given = [*names, *own, *[f"{c.inside}_c" for c in live]]
        rounds.call("back", [*given, *rows], w)
        k = f"{item.trips}_k"
        sums = [(f"{n}_b", f"{item.trips}_s[{k}, {j}]") for j, n in enumerate(numbers)]
        sums += [(f"{a}_b", f"{row}[{k}]") for a, row in zip(shared, rows, strict=True)]
        rounds.add_up(sums, w)
        self.leave_rounds(live, back)
        text_of_rounds = self._rounds_of_block(rounds, inner, again, [*given, *rows], numbers)
        self.functions += [text_of_rounds, rounds.over_blocks("back", given, rows)]

    def _rounds_of_block(
        self,
        rounds: Rounds,
        inner: WayBack,
        again: Lines,
        given: Sequence[str],
        numbers: Sequence[str],
    ) -> str:
        """The function that runs the rounds of a block again, each with its way back."""
        t, w = rounds.trips, Lines()
        params = [f"{t}_start_k", f"{t}_stop_k", f"{t}_s", *given]
        w.add(f"def {t}_back({', '.join(params)}):")
        with w.indented():
            for name in given:
                if name.endswith("_b_w"):
                    w.add(f"{name.removesuffix('_w')} = {name}")
            for c in rounds.sums:  # which nobody reads
                w.add(f"{c.inside} = 0.0")
            for n in numbers:
                w.add(f"{n}_b = {self.zero(n)}")
            w.add("tape = open_tape()")
            w.add(rounds.header())
            with w.indented():
                w.extend(again)
                w.extend(inner.w)
            w.add("close_tape(tape)")
            for k, n in enumerate(numbers):
                w.add(f"{t}_s[{k}] = {n}_b")
        return "\n".join(w.lines) + "\n"

    def _back_of_round(self, item: Repeat, live: Sequence[Carried]) -> WayBack:
        """The way back of one round."""
        inner = WayBack(item.body)
        for c in live:  # the adjoint of what a round hands on
            self.add(c.following, f"{c.inside}_c", inner)
        self.back(item.body, inner)
        for c in live:
            has = c.inside in self.has_adjoint
            inner.w.add(f"{c.inside}_c = {f'{c.inside}_b' if has else self.zero(c.inside)}")
        inner.w.prepend(self.tape.pop(item.body))
        head = Lines()
        if item in self.single:
            self.single[item].restore(head)
            with self._checked():
                self.block(item.body, head)
            inner.w.prepend(head)
            head = Lines()
        self._rename([(str(c.following), c.inside) for c in item.carried if c.is_array], head)
        self._counter(item, inner, head)
        inner.w.prepend(head)
        return inner

    def _counter(self, item: Repeat, inner: WayBack, head: Lines) -> None:
        """Code at the start of a round's way back that has its counter."""
        if item.counter and any(_mentions(line, item.counter) for line in inner.w.lines):
            head.add(f"{item.counter} = {_counter_text(item)}")
            if isinstance(item.start, str):
                inner.outer[item.start] = None

    def _put_aside(self, load: Load, loop: Repeat, back: WayBack) -> None:
        """Keep the adjoint of a load until some rounds are through; one that is there already is kept once."""
        later = self.later.setdefault(loop.trips, {})
        value = _copied(f"{load.dst}_b", back.w)
        if value not in later.values():
            place = f"{loop.trips}_{value}_w[{loop.trips}_k - {loop.trips}_e]"
            back.w.add(f"{place} = {value}")
        later[load] = value

    def _rounds_by_blocks(self, item: Repeat, inner: WayBack, w: Lines) -> None:
        """The loop of the way back in blocks of rounds, with what each block has put aside added behind it."""
        t, later = item.trips, self.later[item.trips]
        values = list(dict.fromkeys(later.values()))
        w.add(f"{t}_p = reserve(apart, {ASIDE * WORD * len(values)})")
        for k, value in enumerate(values):
            kind = self.f.types[value.removesuffix("_b")]
            w.add(f"{t}_{value}_w = at_{kind}({t}_p{f' + {ASIDE * WORD * k}' if k else ''})")
        if self.tape.has_windows(item):
            self.tape.windows(item, w, "release")
        w.add(f"for {t}_d in range({t}, 0, -{ASIDE}):")
        with w.indented():
            w.add(f"{t}_e = rounds({t}_d - {ASIDE})")
            w.add(f"for {t}_k in range({t}_d - 1, {t}_e - 1, -1):")
            with w.indented():
                w.extend(inner.w)
            for load, value in later.items():
                one, head = WayBack(item.body), Lines()
                one.position = self.f.places[load.dst][1]
                for a in load.index:
                    self.need(a, one)
                one.w.add(f"{self.adjoint_place(load)} += {t}_{value}_w[{t}_k - {t}_e]")
                self._counter(item, one, head)
                inner.outer |= one.outer
                w.add(f"for {t}_k in range({t}_e, {t}_d):")
                with w.indented():
                    w.extend(head)
                    w.extend(one.w)
        w.add(f"release(apart, {ASIDE * WORD * len(values)})")

    def _add_handed(self, handed: Sequence[Load], loop: Repeat, back: WayBack) -> None:
        """Add what the first round has left for the round before it."""
        for load in handed:
            inner = WayBack(loop.body)
            inner.position = self.f.places[load.dst][1]
            for a in load.index:
                self.need(a, inner)
            if isinstance(loop.start, str):
                inner.outer[loop.start] = None
            self.enter(inner, back)
            back.w.add(f"if {loop.trips} > 0:")
            with back.w.indented():
                back.w.add(f"{loop.counter} = {text(loop.start)}")
                back.w.extend(inner.w)
                back.w.add(f"{self.adjoint_place(load)} += {load.dst}_h")

    def _rounds(self, item: Repeat, inner: WayBack, w: Lines) -> None:
        """The loop of the way back, over rounds whose number is known."""
        if item.trips in self.later:
            self._rounds_by_blocks(item, inner, w)
            return
        if self.tape.has_windows(item):
            self.tape.windows(item, w, "release")
        runs = self.tape.runs(item)
        if runs:
            w.add(f"{item.trips}_p, {item.trips}_e = tape_low(tape)")
        w.add(f"for {item.trips}_k in range({item.trips} - 1, -1, -1):")
        with w.indented():
            if not inner.w.has_code:
                inner.w.add("pass")
            w.extend(inner.w)
        if runs:
            w.add(f"tape_set(tape, {item.trips}_p)")

    def _rename(self, pairs: list[tuple[str, str]], w: Lines) -> None:
        """Give arrays other names, and their adjoints."""
        pairs = [(a, b) for a, b in pairs if a != b]
        pairs += [(f"{a}_b", f"{b}_b") for a, b in pairs if self.is_active(b)]
        if pairs:
            w.add(f"{', '.join(a for a, _ in pairs)} = {', '.join(b for _, b in pairs)}")

    def _add_sum(self, load: Load, back: WayBack) -> None:
        """A load that never ran may be out of bounds."""
        for a in load.index:
            self.need(a, back)
        size = [f"{load.array}.shape[{d}]" for d in range(len(load.index))]
        inside = [f"-{n} <= {text(a)} < {n}" for a, n in zip(load.index, size, strict=True)]
        back.w.add(f"if {' and '.join(inside)}:")
        back.w.add(f"    {self.adjoint_place(load)} += {load.dst}_s")

    def back_make(self, item: Make, back: WayBack) -> None:
        if not self._is_on_tape(item):
            return
        for a in item.shape:
            self.need(a, back)
        for _ in range(2 if self.is_active(item.dst) else 1):
            back.w.add(f"release(tape, {_bytes_text(item)})")

    # ----- forward, with the tape -----

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Code of what runs again."""
        self.is_checked = True
        yield
        self.is_checked = False

    def item(self, item: Statement, w: Lines) -> None:
        if not (self.is_checked and isinstance(item, Demand)):
            super().item(item, w)

    def check(self, item: Load | StoreElement, w: Lines) -> None:
        if not self.is_checked:
            super().check(item, w)

    def loop(self, item: Repeat, w: Lines) -> None:
        if item in self.rounds:
            self.rounds[item].keep_arrays(w)
            self.rounds[item].run_or_raise(w, self.before_error)
        elif item in self.parts or item in self.single:
            FirstRun(self.parts.get(item) or self.single[item]).loop(item, w)
        else:
            super().loop(item, w)

    def counts(self, loop: Repeat) -> bool:
        return loop.trips in self.counted and (loop.leaves is not None or loop.kind == "while")

    def takes_turns(self, loop: Repeat) -> bool:
        return may_take_turns(self.f, loop) and not any(map(self.tape.taped.get, blocks_of(loop)))

    def before_loop(self, loop: Repeat, w: Lines) -> None:
        if self.tape.has_windows(loop):
            w.add(f"{loop.trips} = {trips_text(loop)}")
            self.tape.windows(loop, w, "reserve")
        if self.tape.runs(loop):
            w.add(f"{loop.trips}_p, {loop.trips}_e = tape_top(tape)")

    def after_loop(self, loop: Repeat, w: Lines) -> None:
        if self.tape.runs(loop):
            w.add(f"tape_set(tape, {loop.trips}_p)")

    def end_of_block(self, block: Suite, w: Lines) -> None:
        if not self.is_persistent(block):
            self.tape.push(block, w)

    def before_store(self, item: StoreElement, w: Lines) -> None:
        block = self.f.places[item.old][0]
        if self._undoes(item) and (self.tape.is_kept(block, item.old) or self.is_persistent(block)):
            w.add(f"{item.old} = {self.place(item.array, item.index)}")

    def before_error(self, w: Lines) -> None:
        w.add("close_tape(tape)")

    def _is_on_tape(self, item: Make) -> bool:
        return item.dst not in self.f.returns and item.dtype in ("f8", "f4", "i8")

    def make(self, item: Make, w: Lines) -> None:
        """Local arrays and their adjoints are on the tape, whose memory was touched before."""
        if not self._is_on_tape(item):
            super().make(item, w)
            if self.is_active(item.dst):
                w.add(f"{item.dst}_b = {item.dst}_seed")
            return
        for n in item.shape:
            if not never_negative(self.f, n):  # or memory of other arrays would be cleared
                w.add(f"if {text(n)} < 0:")
                with w.indented():
                    self.before_error(w)
                    w.add("raise ValueError('negative dimensions are not allowed')")
        shape = shape_text(item.shape)
        room = f"_{item.dtype}(reserve(tape, {_bytes_text(item)}), {shape})"
        w.add(f"{item.dst} = {'zeros' if is_zero(item.fill) else 'array'}{room}")
        if item.fill is not None and not is_zero(item.fill):
            add_copy(w, item.dst, text(item.fill), len(item.shape), f"{item.dst}_")
        if self.is_active(item.dst):
            w.add(f"{item.dst}_b = zeros{room}")

    def carries(self, loop: Repeat) -> list[tuple[str, Atom, Atom, str]]:
        """Arrays that change places take their adjoints along."""
        pairs = super().carries(loop)
        for c in loop.carried:
            if c.is_array and self.is_active(c.inside):
                pairs.append((f"{c.inside}_b", f"{c.first}_b", f"{c.following}_b", f"{c.after}_b"))
        return pairs

    # ----- the whole -----

    def _sweep(self) -> WayBack:
        """Write the way back once; says what is to be kept."""
        self._start_sweep()
        back = WayBack(self.f.body)
        for k, v in enumerate(self.f.returns):
            if isinstance(v, str) and v not in self.f.arrays:
                self.add(v, f"seed{k}", back)
        back.position = len(self.f.body.items)
        self.back(self.f.body, back)
        return back

    def _settled(self) -> WayBack:
        """The way back, written until what is to be kept is what the time before has found."""
        for _ in range(20):
            again = [*self.parts.values(), *self.single.values(), *self.rounds.values()]
            for parts in again:
                parts.choose(self.undone or ())
            before = set(self.found_again)
            back = self._sweep()
            undone = needed_undos(
                self.f, self.read_again, [parts.loop for parts in again], self.single
            )
            settled = undone == self.undone and self.tape.known == self.tape.taped
            if settled and before == self.found_again:
                return back
            self.undone, self.tape.known = undone, self.tape.taped
        raise NotDifferentiable(f"{self.f.heading}: what {self.f.name} must keep cannot be decided")

    def _single(self, loop: Repeat) -> SingleRounds | None:
        """How each round of a loop runs again, where that saves half of the tape."""
        if any(inner in self.rounds for _, inner in walk(loop.body)):
            return None
        try:
            single = SingleRounds(self.f, loop)
        except NotDifferentiable:  # what it hands on cannot be kept
            return None
        single.choose(needed_undos(self.f, self.read_again, [loop], [loop]))
        return single if single.saves_half(self.undone or (), self.tape.taped) else None

    def write(self, name: str) -> str:
        """The source of a function (see `parameters`) that gives the results and the gradients of numbers."""
        f = self.f
        back = self._settled()
        using = [x for x in outer_loops(f.body) if any(map(self.tape.taped.get, blocks_of(x)))]
        using = [loop for loop in using if loop not in self.rounds]
        if self.checkpoint:
            self.parts = {loop: Parts(f, loop) for loop in using}
        else:
            self.single = {loop: single for loop in using if (single := self._single(loop))}
        if self.parts or self.single:
            # Of their rounds only some run one behind the other.
            for loop in (*self.parts, *self.single):
                self._neighbours[loop], self._handed[loop] = set(), {}
            back = self._settled()
        w = Lines()
        w.add(f"def {name}({', '.join(self.parameters())}):")
        with w.indented():
            self.block(f.body, w)
            w.add("")
            w.add(BACK)
            for p in f.params:
                if self.is_active(p) and p not in f.arrays and p not in self.has_adjoint:
                    w.add(f"{p}_b = {self.zero(p)}")
            if self.later:
                w.add("apart = open_tape()  # for what is added behind loops")
            w.extend(back.w)
            if self.later:
                w.add("close_beside(tape, apart)")
            values = [text(v) for v in f.returns] + [f"{p}_b" for p in self.number_gradients()]
            w.add(f"return {results_text(values, True)}")
        return "\n".join(w.lines) + "\n"

    def memories(self) -> dict[str, str]:
        """Names of arrays, each with one name of the memory behind it: different memories do not overlap.

        What is on the tape is apart from all else only if no part of the tape is used again: where each round
        runs again, windows of loops inside are, local arrays are not.
        """
        if self.rounds:
            return {}
        found = {a: self.f.root(a) for a in self.f.arrays}
        if self.parts:
            on_tape = {root for a, root in found.items() if a not in self.f.params}
            found = {a: root for a, root in found.items() if root not in on_tape}
        found |= {f"{a}_b": f"{root}_b" for a, root in found.items() if self.is_active(a)}
        for trips, later in self.later.items():
            found |= {f"{trips}_{value}_w": "apart" for value in later.values()}
        return found if self.parts else found | {n: n for n in self.tape.window_names(self.single)}

    def shadows(self) -> list[str]:
        """Array parameters with an adjoint, which the caller owns."""
        return [p for p in self.f.params if p in self.f.arrays and self.is_active(p)]

    def seeds(self) -> list[str]:
        """For each result with an adjoint, the parameter that has it."""
        return [
            f"{v}_seed" if v in self.f.arrays else f"seed{k}"
            for k, v in enumerate(self.f.returns)
            if isinstance(v, str) and self.is_active(v)
        ]

    def number_gradients(self) -> list[str]:
        """The numbers among the parameters whose gradients the function returns."""
        return [p for p in self.wanted if p not in self.f.arrays and self.is_active(p)]

    def parameters(self) -> list[str]:
        return [*self.f.params, *[f"{a}_b" for a in self.shadows()], *self.seeds(), "tape"]


def _copied(name: str, w: Lines) -> str:
    """The adjoint of which one is a copy, by the lines that made it; itself if it is none."""
    made = _lines_of(name, w)
    copy = re.fullmatch(r"\w+ = (\w+_b)", w.lines[made[0]].strip()) if len(made) == 1 else None
    if copy and all(k < made[0] for k in _lines_of(copy[1], w)):
        return _copied(copy[1], w)
    return name


def _lines_of(name: str, w: Lines) -> list[int]:
    """The lines that assign to a name."""
    return [k for k, line in enumerate(w.lines) if re.match(rf"\s*{name} [-+]?= ", line)]


def _counter_text(loop: Repeat) -> str:
    at = f"{loop.trips}_k" if loop.step == 1 else f"{loop.trips}_k * {text(loop.step)}"
    return at if type(loop.start) is int and loop.start == 0 else f"{text(loop.start)} + {at}"


def _mentions(line: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", line.partition("#")[0]) is not None


def _bytes_text(item: Make) -> str:
    size = {"f4": 4}.get(item.dtype, 8)
    return " * ".join([*map(text, item.shape), str(size)])
