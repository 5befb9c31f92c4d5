"""What was recorded for some sizes, made again for others.

Where data decide on sizes (what a mask chooses, sentences of ever other length), each call would be looked at
anew: shapes, strides, kernels and their words. All of that follows from the specs of operands and from plain
numbers. A `Family` is the calls that differ in numbers alone. Once some have come, the Python behind them
runs on unknown numbers in the place of those in which two of them differ (`../unknown.py`), and what it makes
becomes a function of Python that makes the same of other numbers: a template. It holds under the conditions
that were met on the way; where they are not met the usual way is taken, and may lead to another template.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

from .. import config
from ..devices import device
from ..dtypes import dtype
from ..schedule import settle as settling
from ..schedule.jit import native
from ..shapes import Size, sized
from .node import Node, Spec, TensorBase, spec_of
from .record import (
    MAX_RECIPES,
    MOST_MET_AT_ALL,
    MOST_MET_ONCE,
    is_met_again,
    make_storage,
    make_tensor,
    met,
    new_node,
)
from .ring import Ring
from .signature import Argument
from .state import observers, state
from .templates import UNKNOWN_VALUE, Numbers, TapesContext, Template, first_made, inquire, tapes

Form = tuple[Hashable, ...]  # what is left of a signature without its numbers

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)

# Calls of a family that are looked at one by one, before an inquiry (2 ms) is worth it; 0: none ever is.
ENOUGH = config.TEMPLATES
MOST_MET = 8  # calls of a family that others are compared with
MOST_TEMPLATES = 24  # of a family: each layer has its own, and so have large and small sizes
MOST_PATTERNS = 3  # of numbers that differ, for one template
MOST_FAMILIES = 1 << 10  # of one op
# Of one op, made by templates for numbers that came once: it takes 3 us to make them again.
MOST_MADE = 16

# Who looks at what templates make: machine code does not use them itself then.
watchers: list[object] = []


class Family:
    """Calls that differ in numbers alone."""

    __slots__ = ("met", "misses", "next_inquiry", "templates")

    def __init__(self) -> None:
        # Those that no template was for, the last ones, and how many there were.
        self.met: deque[Numbers] = deque(maxlen=MOST_MET)
        self.misses = 0
        self.next_inquiry = ENOUGH  # of misses; later after each inquiry that led to nothing
        self.templates: list[Template] = []

    def made(self, numbers: Numbers, make: Callable[[Iterator[int]], _T]) -> _T | None:
        """What `make` gives for numbers, made by a template; None if there is none for them.

        `make` gets the numbers one by one, some of them unknown.
        """
        found = self.made_by_template(numbers)
        if found is not None:
            return cast(_T, found)
        if numbers in self.met:
            return None
        found = self._inquired(numbers, make) if self._is_worth_it() else None
        if found is None:
            self.met.append(numbers)
            self.misses += 1
        return cast("_T | None", found)

    def made_by_template(self, numbers: Numbers) -> object:
        """What a template gives that is there; None if there is none for these numbers."""
        templates = self.templates
        found = first_made(templates, numbers)
        if found is None:
            return None
        if found[1]:
            self._put_first(templates[found[1]])
        return found[0]

    def _inquired(self, numbers: Numbers, make: Callable[[Iterator[int]], object]) -> object:
        """What a new template gives; where few numbers differ others may be axes, which have to be known."""
        patterns = {tuple(map(operator.eq, numbers, other)): other for other in self.met}
        for pattern in sorted(patterns, key=sum, reverse=True)[:MOST_PATTERNS]:
            made = inquire(patterns[pattern], numbers, make)
            found = None if made is None else first_made([made], numbers)
            if made is not None and found is not None:
                self._put_first(made)
                return found[0]
        self.next_inquiry = 2 * self.misses  # sizes were special, or Python does not go on
        return None

    def _put_first(self, template: Template) -> None:
        """Have a template be asked first; other threads may be asking."""
        self.templates = [template, *[other for other in self.templates if other is not template]]

    def _is_worth_it(self) -> bool:
        return (
            ENOUGH > 0
            and self.next_inquiry <= self.misses
            and len(self.templates) < MOST_TEMPLATES
            and not (settling.captured_threads or observers or state.levels or state.forward)
            and not (state.careful or state.rehearsing or state.session)
        )


class OtherSizes:
    """What an op keeps for operands of ever other sizes: families, and which entries go again.

    Entries that were met once go, the oldest first: the collector would go several times through all that is
    known of each.
    """

    __slots__ = ("families", "made_once", "met_once")

    def __init__(self) -> None:
        self.families: dict[Hashable, Family] = {}  # by their forms
        self.met_once: Ring[Hashable] = Ring(MOST_MET_ONCE)
        self.made_once: Ring[Hashable] = Ring(MOST_MADE)  # by templates

    def made_by_template(self, form: Hashable, numbers: Numbers) -> object:
        """What a template gives that is there; None if there is none for these numbers."""
        family = self.families.get(form)
        return None if family is None else family.made_by_template(numbers)

    def made(
        self, form: Hashable, numbers: Numbers, make: Callable[[Iterator[int]], _T]
    ) -> _T | None:
        """What `make` gives, made by a template of the family of this form; None if there is none."""
        family = self.families.get(form)
        if family is None:
            if len(self.families) >= MOST_FAMILIES:
                self.families.clear()
            family = self.families[form] = Family()
        return family.made(numbers, make)

    def keep(
        self,
        entries: dict[_K, _T],
        key: _K,
        name: object,
        said: object = None,
        *,
        is_made: bool = False,
    ) -> None:
        """Keep an entry that is new, for good if its key was met before, else until there are some more; less
        long if a template has made it. `name` stands for the op, `said` for the key where that is known.
        """
        if said is None:
            parts = key if isinstance(key, tuple) else (key,)
            # By what specs say: others would get the addresses of those that have gone.
            said = tuple([p.form_and_numbers if p.__class__ is Spec else p for p in parts])
        if not is_met_again((name, said)):
            oldest = (self.made_once if is_made else self.met_once).take(key)
            if oldest is not None:
                entries.pop(cast(_K, oldest), None)

    def clear(self) -> None:
        """Forget all families."""
        self.families.clear()


# ----- forms and numbers -----


def _form_of(parts: Sequence[object]) -> tuple[Form, Numbers] | None:
    """What is left of a signature without its numbers, and these; None where no other sizes are looked for."""
    form: list[Hashable] = []
    numbers: list[int] = []
    before: object = None
    for part in parts:
        if isinstance(part, Spec):
            said = part.form_and_numbers
            if said[0] is None:
                return None
            form.append(said[0])
            numbers.extend(said[1])
        elif isinstance(part, Size):
            numbers.extend(part)
            form.append(len(part))
        elif before is int and isinstance(part, int):
            numbers.append(part)
        elif part.__class__ in IN_FORMS:
            form.append(part)
        else:  # which may have sizes in it
            return None
        before = part
    return tuple(form), tuple(numbers)


IN_FORMS = {type, int, str, bool, float, type(None), dtype, device}


class FormsContext(NamedTuple):
    """What takes signatures apart, and finds and keeps what templates make."""

    fallback: Callable[[Sequence[object]], tuple[Form, Numbers] | None]
    none: None
    spec_class: type
    size_class: type
    int_class: type
    tuple_class: type
    in_forms: set[type]
    form_and_numbers: str  # the name of an attribute of specs
    met: set[int]
    watchers: list[object]
    tapes: TapesContext


native.register_layout(
    FORMS=FormsContext,
    FAMILY=Family,
    OTHER_SIZES=OtherSizes,
    MOST_KEPT=MAX_RECIPES,
    MOST_MET_AT_ALL=MOST_MET_AT_ALL,
)
forms = FormsContext(
    _form_of, None, Spec, Size, int, tuple, IN_FORMS, native.named(Spec, "form_and_numbers"), met, watchers,
    tapes,
)  # fmt: skip
form_of = native.FastPath("other_sizes", "form_of").function(_form_of, forms)


def spec_like(spec: Spec, numbers: Iterator[int]) -> Spec:
    """A spec of the form of another one, with other numbers."""
    shape = sized([next(numbers) for _ in spec.shape])
    assert spec.form is not None
    if spec.form[2]:
        strides, step = [], 1
        for size in reversed(shape):
            strides.append(step)
            step = step * size
        return spec_of(shape, tuple(reversed(strides)), spec.dtype)
    return spec_of(shape, tuple([next(numbers) for _ in shape]), spec.dtype)


def with_numbers(
    values: Sequence[Argument], numbers: Iterator[int], operands: list[TensorBase]
) -> list[Argument]:
    """Arguments of a call with other numbers, in the order in which `describe` finds them; the tensors among
    them stand for others, and go to `operands`."""
    made: list[Argument] = []
    for value in values:
        kind = value.__class__
        if isinstance(value, TensorBase):
            value = stand_in(spec_like(value._spec, numbers))
            operands.append(value)
        elif kind is int:
            value = next(numbers)
        elif kind is Spec:
            value = spec_like(value, numbers)
        elif kind is Size:
            value = sized([next(numbers) for _ in value])
        elif isinstance(value, (tuple, list)):
            parts = with_numbers(value, numbers, operands)
            value = parts if kind is list else tuple(parts) if kind is tuple else kind(*parts)
        elif kind is slice:
            value = slice(*with_numbers((value.start, value.stop, value.step), numbers, operands))
        made.append(value)
    return made


def stand_in(spec: Spec) -> TensorBase:
    """A tensor without a value."""
    node = new_node(Node)
    node.recipe, node.inputs, node.offsets, node.scalars = UNKNOWN_VALUE, (), None, ()
    made: TensorBase = make_tensor(make_storage(node, spec), spec)
    return made
