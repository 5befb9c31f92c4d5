"""Templates: functions of numbers that make again what was made of other numbers.

What is made is an object of any class that recording knows: a trace, what is known of an op, a view. Where
there are unknown numbers in it, the template has a line of Python; all else is as it was. A class with sizes
in it says which of its slots depend on them (`of_sizes`) and which have a dict that is the object's own
(`of_its_own`). An object that may hide a number ends the attempt.

Machine code reads a tape in the place of these lines (`tapes.py`): some 2 us for 10.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from threading import get_ident
from typing import NamedTuple

from ..devices import CPU, device
from ..dtypes import dtype
from ..kernels.language.target import Helper
from ..schedule import settle as settling
from ..schedule.codegen.body import Body
from ..schedule.jit import native
from ..schedule.jit.native import NativeFunction
from ..schedule.planning.recipe import (
    MemoryOfOne,
    Recipe,
    Source,
    Step,
    memories,
    memory_of_one,
    serials,
)
from ..shapes import Shape, Size, sized
from ..storage import ALIGNMENT, SMALL
from ..unknown import Inquiry, is_unknown, text_of
from .cycles import hidden
from .node import Spec, dense_specs, known_spec, made_once, specs
from .ring import Ring
from .state import modes_used, record_gradients, resume_gradients, state
from .tapes import tape_of

Numbers = tuple[int, ...]
Make = Callable[[Iterator[int]], object]  # of numbers, one by one, some of them unknown

UNKNOWN_VALUE = Recipe("unknown", (), (), [])  # of what stands in the place of operands
ROOM = 256  # nodes that one call records, at most


class Template(NamedTuple):
    """What makes an object of numbers."""

    function: Callable[[Numbers], object]  # None where their conditions are not met
    tape: bytes | None  # the same for machine code, where there is that
    constants: tuple[object, ...]  # of the tape


def _first_made(templates: Sequence[Template], numbers: Numbers) -> tuple[object, int] | None:
    """What the first template makes whose conditions numbers meet, and which it is; None if there is none."""
    for k, template in enumerate(templates):
        found = template.function(numbers)
        if found is not None:
            return found, k
    return None


class KnownSpecs(NamedTuple):
    """The shared specs, and which of them go again."""

    spec_class: type
    cpu: device
    specs: Mapping[tuple[object, ...], Spec]
    dense: Mapping[tuple[object, ...], Spec]
    made_once: Ring[tuple[Size, Shape, dtype]]


class TapesContext(NamedTuple):
    """What reads tapes."""

    fallback: Callable[[Sequence[Template], Numbers], tuple[object, int] | None]
    none: None
    int_class: type
    true: bool
    false: bool
    empty: tuple[()]
    known_specs: KnownSpecs
    serials: Iterator[int]
    memories: Mapping[int, MemoryOfOne]
    make_memory: Callable[[int], MemoryOfOne]


native.register_layout(
    TEMPLATE=Template, KNOWN_SPECS=KnownSpecs, TAPES=TapesContext, KNOWN=known_spec, RESIZED=Recipe.resized,
    MEMORY=MemoryOfOne, RING=Ring, ROW_STEP=Step, KERNEL_SOURCE=Source, POOL_ALIGNMENT=ALIGNMENT,
    POOL_SMALL=SMALL,
)  # fmt: skip
tapes = TapesContext(
    _first_made, None, int, True, False, (), KnownSpecs(Spec, CPU, specs, dense_specs, made_once), serials,
    memories, memory_of_one,
)  # fmt: skip
first_made = native.FastPath("templates", "first_made").function(_first_made, tapes)


class Unresizable(Exception):
    """What was made of unknown numbers cannot be made again of others."""


def copied(
    thing: object, kept: Sequence[str], own: Sequence[str], names: Sequence[str], *parts: object
) -> object:
    """An object like another one, with what is kept, dicts of its own, and other parts of these names."""
    made = object.__new__(thing.__class__)
    for name in kept:
        setattr(made, name, getattr(thing, name))
    for name in own:
        setattr(made, name, {})
    for name, part in zip(names, parts, strict=True):
        setattr(made, name, part)
    return made


def _slots_of(kind: type) -> list[str]:
    """The names of what objects of a class hold."""
    held = types.MemberDescriptorType
    return [
        name for one in kind.__mro__ for name, slot in vars(one).items() if isinstance(slot, held)
    ]


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
    text = "\n    ".join(["def template(n):", *heads, *inquiry.lines, *lines.made])
    variables: dict[str, object] = {"__name__": __name__, **lines.names, **inquiry.functions}
    # By its file and its module it is code of the library, to who looks for the user's.
    exec(compile(text, __file__, "exec"), variables)
    template = variables["template"]
    assert callable(template)
    tape = tape_of(text, len(first), variables)
    return Template(template, *(tape or (None, ())))


def _refuse(problem: str) -> None:
    raise Unresizable(problem)


def alone(run: Callable[[], object]) -> object:
    """What a function gives that records on values which are not there: Python records all, nothing runs, and
    to look at a value ends it. Other threads do not settle meanwhile, and meet nothing of it."""
    with settling.lock:
        if len(settling.pending) + ROOM > settling.MAX_PENDING:
            settling.settle()
        thread = get_ident()
        before = state.careful, state.attentive, state.rehearsing
        was_graded = record_gradients(False)
        try:
            settling.give_up[thread] = _refuse
            settling.captured_threads.add(thread)
            modes_used.append(ALONE)
            state.careful, state.attentive, state.rehearsing = True, False, True
            return run()
        finally:
            if was_graded:
                resume_gradients()
            state.careful, state.attentive, state.rehearsing = before
            settling.captured_threads.discard(thread)
            settling.give_up.pop(thread, None)
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
    return isinstance(thing, (tuple, list, Spec, Step))


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
            "sized": sized, "again": tuple.__new__, "copied": copied, "hidden": hidden,
            "known_spec": known_spec, "partial": functools.partial, "slice": slice, "with_cells": with_cells,
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
        if isinstance(thing, (tuple, list)):
            return self._sequence(thing)
        if isinstance(thing, dict):
            pairs = [
                f"{self.text_of(name)}: {self.text_of(value)}" for name, value in thing.items()
            ]
            return f"{{{', '.join(pairs)}}}" if self._is_changed(thing.values()) else None
        if isinstance(thing, slice):
            return self._call("slice", (thing.start, thing.stop, thing.step))
        names = getattr(thing.__class__, "of_sizes", ())
        if names:
            own: tuple[str, ...] = getattr(thing.__class__, "of_its_own", ())
            kept = tuple([n for n in _slots_of(thing.__class__) if n not in own and n not in names])
            parts = [getattr(thing, name) for name in names]
            return self._call("copied", parts, *map(self._constant, (thing, kept, own, names)))
        if isinstance(thing, types.FunctionType):
            return self._function(thing)
        if isinstance(thing, functools.partial):
            self._check_plain((thing.func, thing.keywords))
            function = self._constant(functools.partial(thing.func, **thing.keywords))
            return self._call("partial", thing.args, function)
        self._check_plain(thing)
        return None

    def _call(self, function: str, parts: Sequence[object], *before: str) -> str | None:
        """A call with these parts, behind others, if there are unknown numbers in one of them."""
        if not self._is_changed(parts):
            return None
        return f"{function}({', '.join([*before, *map(self.text_of, parts)])})"

    def _is_changed(self, parts: Iterable[object]) -> bool:
        return any(self._changed(part) is not None for part in parts)

    def _function(self, function: types.FunctionType) -> str | None:
        self._check_plain(
            (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        )
        cells = tuple([cell.cell_contents for cell in function.__closure__ or ()])
        return self._call("with_cells", cells, self._constant(function))

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
            return f"sized(({inner},))"
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
