"""Templates: functions of numbers that make again what was made of other numbers.

What is made is an object of any class that recording knows: a trace, what is known of an op, a view. Where
there are unknown numbers in it, the template has a line of Python; all else is as it was. A class with sizes
in it says which of its parts depend on them (`parts_with_sizes`) and how it is made again of others
(`resized`). An object that may hide a number ends the attempt.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from threading import get_ident
from typing import Protocol, runtime_checkable

from ..devices import CPU, device
from ..dtypes import dtype
from ..kernels.language.target import Helper
from ..schedule import settle as settling
from ..schedule.codegen.body import Body
from ..schedule.jit.native import NativeFunction
from ..schedule.planning.recipe import Recipe, Source, Step
from ..shapes import Size
from ..unknown import Inquiry, is_unknown, text_of
from .cycles import hidden
from .node import Spec, known_spec
from .state import modes_used, record_gradients, resume_gradients, state

Numbers = tuple[int, ...]
Template = Callable[[Numbers], object]  # None where its conditions are not met
Make = Callable[[Iterator[int]], object]  # of numbers, one by one, some of them unknown

UNKNOWN_VALUE = Recipe("unknown", (), (), [])  # of what stands in the place of operands
ROOM = 256  # nodes that one call records, at most


class Unresizable(Exception):
    """What was made of unknown numbers cannot be made again of others."""


@runtime_checkable
class WithSizes(Protocol):
    """An object that depends on sizes by some of its parts."""

    @property
    def resized(self) -> Callable[..., object]:
        """What makes one like it of other parts."""

    def parts_with_sizes(self) -> tuple[object, ...]:
        """These parts."""


def inquire(first: Numbers, second: Numbers, make: Make) -> Template | None:
    """The template of what is made, where the numbers are unknown in which two calls differ; None if that does
    not go on, or if it is for these numbers alone."""
    names: dict[tuple[int, int], str] = {}
    heads: list[str] = []
    with Inquiry() as inquiry:
        numbers: list[int] = []
        for k, pair in enumerate(zip(first, second, strict=True)):
            if pair[0] == pair[1]:
                heads.append(f"if n[{k}] != {pair[1]}: return None")
                numbers.append(pair[1])
                continue
            if pair in names:
                heads.append(f"if n[{k}] != {names[pair]}: return None")
            else:
                names[pair] = f"n{k}"
                heads.append(f"n{k} = n[{k}]")
            numbers.append(inquiry.number(names[pair], pair[1]))
        try:
            lines = TemplateLines(alone(lambda: make(iter(numbers))))
        except Exception:  # whatever does not go on with an unknown number
            return None
    if inquiry.fixes({name: pair[1] for pair, name in names.items()}):
        return None
    text = "\n    ".join([*heads, *inquiry.lines, *lines.made])
    variables: dict[str, object] = {"__name__": __name__, **lines.names, **inquiry.functions}
    # By its file and its module it is code of the library, to who looks for the user's.
    exec(compile(f"def template(n):\n    {text}", __file__, "exec"), variables)
    template = variables["template"]
    assert callable(template)
    return template


def _refuse(problem: str) -> None:
    raise Unresizable(problem)


def alone(run: Callable[[], object]) -> object:
    """What a function gives that records on values which are not there: Python records all, nothing runs, and
    to look at a value ends it. Other threads do not settle meanwhile, and meet nothing of it."""
    with settling.lock:
        if len(settling.pending) + ROOM > settling.MAX_PENDING:
            settling.settle()
        thread = get_ident()
        before, was_graded = (state.careful, state.rehearsing), record_gradients(False)
        try:
            settling.give_up[thread] = _refuse
            settling.captured_threads.add(thread)
            modes_used.append(ALONE)
            state.careful = state.rehearsing = True
            return run()
        finally:
            if was_graded:
                resume_gradients()
            state.careful, state.rehearsing = before
            settling.captured_threads.discard(thread)
            settling.give_up.pop(thread, None)
            with contextlib.suppress(ValueError):  # another thread has written the list anew
                modes_used.remove(ALONE)
            _take_out_unreal()


def _take_out_unreal() -> None:
    """Take nodes that cannot run out of what is pending: of unknown numbers, or on what stands for operands."""
    unreal: set[int] = set()
    for node in settling.pending[:]:
        read = node.inputs or ()
        on_unreal = any(v.recipe is UNKNOWN_VALUE or id(v) in unreal for v in read)
        if on_unreal or _is_of_unknown(node.recipe):
            unreal.add(id(node))
            settling.pending.remove(node)


def _is_of_unknown(recipe: object) -> bool:
    """Whether unknown numbers are in what runs a node."""
    if not isinstance(recipe, Recipe):
        return False
    specs = [spec for spec in (*recipe.inputs, *recipe.outputs) if spec is not None]
    numbers = [n for spec in specs for n in (*spec.shape, *spec.strides)]
    numbers += [n for step in recipe.steps for n in (step.n, step.grain)]
    return any(map(is_unknown, (*numbers, *recipe.constants, recipe.scratch)))


ALONE = "alone"  # among the modes that are used, as long as some thread is


_SIMPLE = {int, float, str, bool, type(None), dtype, device}
_PLAIN = (type, Body, Source, Helper, NativeFunction, frozenset, *_SIMPLE)


def _is_in_no_cycle(thing: object) -> bool:
    """Whether an object refers neither to itself nor to what is kept for later calls."""
    if isinstance(thing, Recipe):
        return thing.alias is not thing
    return isinstance(thing, (tuple, list, Spec))


def with_cells(function: types.FunctionType, *cells: object) -> types.FunctionType:
    """A function like another one, around other values."""
    inside = tuple(map(types.CellType, cells))
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, inside
    )
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return made


class TemplateLines:
    """The lines of a template that make an object again."""

    def __init__(self, thing: object) -> None:
        self.names: dict[str, object] = {
            "Size": Size, "Step": Step, "again": tuple.__new__, "known_spec": known_spec,
            "hidden": hidden, "partial": functools.partial, "with_cells": with_cells,
        }  # fmt: skip
        self.made: list[str] = []
        self._texts: dict[int, tuple[object, str | None]] = {}  # None: it is as it was
        self._hidden: list[str] = []
        whole = self.text_of(thing)
        parts = [name for name in self._hidden if name != whole]
        self.made.append(f"return hidden({', '.join([whole, *parts])})")

    def text_of(self, thing: object) -> str:
        """An expression that gives an object."""
        found = self._changed(thing)
        return self._constant(thing) if found is None else found

    def _constant(self, thing: object) -> str:
        if thing.__class__ in (int, bool, type(None)):
            return repr(thing)
        name = f"k{id(thing)}"
        self.names[name] = thing
        return name

    def _changed(self, thing: object) -> str | None:
        """An expression for an object in which there are unknown numbers, else None."""
        if is_unknown(thing):
            return text_of(thing)
        if thing.__class__ in _SIMPLE:
            return None
        known = self._texts.get(id(thing))
        if known is None:
            text = self._lines_of(thing)
            if text is not None:
                name = f"m{len(self._texts)}"
                self.made.append(f"{name} = {text}")
                text = name
                if _is_in_no_cycle(thing):
                    self._hidden.append(name)
            known = self._texts[id(thing)] = thing, text  # which keeps it: others would get its id
        return known[1]

    def _lines_of(self, thing: object) -> str | None:
        if isinstance(thing, Spec):
            return self._spec(thing)
        if isinstance(thing, Recipe):
            return self._recipe(thing)
        if isinstance(thing, Step):
            return self._call("Step", (thing.source, thing.n, thing.grain))
        if isinstance(thing, (tuple, list)):
            return self._sequence(thing)
        if isinstance(thing, dict):
            pairs = [
                f"{self.text_of(name)}: {self.text_of(value)}" for name, value in thing.items()
            ]
            return f"{{{', '.join(pairs)}}}" if self._is_changed(thing.values()) else None
        if isinstance(thing, slice):
            return self._call("slice", (thing.start, thing.stop, thing.step))
        if isinstance(thing, WithSizes):
            return self._call(self._constant(thing.resized), thing.parts_with_sizes())
        if isinstance(thing, types.FunctionType):
            return self._function(thing)
        if isinstance(thing, functools.partial):
            self._check_plain((thing.func, thing.keywords))
            function = self._constant(functools.partial(thing.func, **thing.keywords))
            return self._call(function, thing.args, "partial")
        self._check_plain(thing)
        return None

    def _call(self, function: str, parts: Sequence[object], around: str = "") -> str | None:
        """A call with these parts, if there are unknown numbers in one of them."""
        if not self._is_changed(parts):
            return None
        given = ", ".join(map(self.text_of, parts))
        return f"{around}({function}, {given})" if around else f"{function}({given})"

    def _is_changed(self, parts: Iterable[object]) -> bool:
        return any(self._changed(part) is not None for part in parts)

    def _function(self, function: types.FunctionType) -> str | None:
        self._check_plain(
            (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        )
        cells = tuple([cell.cell_contents for cell in function.__closure__ or ()])
        return self._call(self._constant(function), cells, "with_cells")

    def _check_plain(self, thing: object) -> None:
        """See that there is no unknown number in an object that stays as it is."""
        if isinstance(thing, _PLAIN) or getattr(thing.__class__, "has_no_sizes", False):
            return
        if isinstance(thing, (types.MethodType, types.BuiltinMethodType)):
            inside: object = thing.__self__
            if isinstance(inside, types.ModuleType):
                return
        elif isinstance(thing, itemgetter):
            inside = thing.__reduce__()[1]
        elif isinstance(thing, (tuple, list, dict, types.FunctionType, functools.partial)):
            inside = thing
        else:
            raise Unresizable(f"{thing!r} may depend on sizes")
        if self._changed(inside) is not None:
            raise Unresizable(f"{thing!r} depends on sizes")

    def _sequence(self, thing: Sequence[object]) -> str | None:
        parts = [self._changed(part) for part in thing]
        if all(part is None for part in parts):
            return None
        pairs = zip(parts, thing, strict=True)
        inner = ", ".join([self.text_of(v) if text is None else text for text, v in pairs])
        kind = thing.__class__
        if kind is list:
            return f"[{inner}]"
        if kind is tuple:
            return f"({inner},)"
        if kind is Size:
            return f"Size(({inner},))"
        self.names[kind.__name__] = kind
        return f"again({kind.__name__}, ({inner},))"

    def _spec(self, spec: Spec) -> str | None:
        if spec.device is not CPU or spec.chosen:
            raise Unresizable("a spec with reported strides, or on a GPU")
        parts = spec.shape, spec.strides, spec.dtype, spec.numel, spec.contiguous, spec.extent
        return self._call("known_spec", parts)

    def _recipe(self, recipe: Recipe) -> str | None:
        if recipe is UNKNOWN_VALUE or recipe.device is not CPU or recipe.moves:
            raise Unresizable("not a recipe of the CPU")
        self._check_plain(recipe.fallible)
        if recipe.in_place is not None or recipe.here:
            raise Unresizable("a write that others are to see")
        alias = True if recipe.alias is recipe else recipe.alias
        parts = (
            recipe.inputs, recipe.outputs, recipe.steps, recipe.constants, recipe.scratch, recipe.fusion,
            alias, recipe.picks, recipe.draw,
        )  # fmt: skip
        return self._call(f"{self._constant(recipe)}.resized", parts)
