"""What templates make of other sizes, beside what is made of these directly: all of it has to be the same.

`checked()` has every template of the process looked at so, and made at the second call of a family; with
ADJIT_TEST_SIZES=1 whole files of tests run in it.
"""

import contextlib
import functools
import types
from collections import Counter
from operator import itemgetter

from adjit.graph import node, other_sizes
from adjit.graph.node import Spec
from adjit.graph.operation import Kin
from adjit.graph.state import state
from adjit.graph.templates import alone
from adjit.schedule.planning.recipe import Recipe, Source, Step, Wanted

FOUND = Counter()  # templates that were used, made, and given up
NOT_COMPARED = {"head", "serial", "__weakref__", "launches", "device_steps", "is_resized"}
OF_THE_FIRST = {
    "kin",
    "remake",
    "traces",
    "lasts",
    "over",
}  # what a template does not make


def told(thing, around=()):
    """All that there is to an object, in plain values."""
    if any(thing is other for other in around):
        return "itself"
    inside = (*around, thing)
    if isinstance(thing, Recipe):
        kinds = {name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())}
        names = sorted(kinds - NOT_COMPARED)
        return {name: told(getattr(thing, name, "unset"), inside) for name in names}
    if isinstance(thing, Wanted):  # its list is that of the memory pool
        return thing.size
    if isinstance(thing, Spec):
        names = {*Spec.__slots__, "form_and_numbers"} - {"_form_and_numbers"}
        return {name: getattr(thing, name) for name in names}
    if isinstance(thing, Source):
        return thing.name, thing.text
    if isinstance(thing, Step):
        return told(thing.source), thing.n, thing.grain
    if hasattr(thing, "of_sizes"):
        names = sorted({*type(thing).__slots__} - OF_THE_FIRST)
        kept = [name for name in names if not name.startswith("vjps")]
        return {name: told(getattr(thing, name), inside) for name in kept}
    if isinstance(thing, Kin):
        return thing.layout, thing.places
    if isinstance(thing, (tuple, list)):
        return [type(thing).__name__, *[told(part, inside) for part in thing]]
    if isinstance(thing, dict):
        return {name: told(part, inside) for name, part in thing.items()}
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, thing.keywords]
    if isinstance(thing, itemgetter):
        return repr(thing)
    if isinstance(thing, types.FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        return thing.__qualname__, told(cells, inside)
    return thing


def made(family, numbers, make):
    """What a template gives, or what is made directly."""
    before = len(family.templates), family.next_inquiry
    MAKES.setdefault(family, make)
    found = original(family, numbers, make)
    FOUND["made"] += len(family.templates) > before[0]
    FOUND["given up"] += family.next_inquiry > before[1]
    if len(family.templates) > before[0]:
        look_at(family, numbers, found)
    return found


def made_by_template(family, numbers):
    """What a template gives, once it is seen to be what is made directly, as far as that is known."""
    found = by_template(family, numbers) if family in MAKES else None
    look_at(family, numbers, found)
    return found


def look_at(family, numbers, found):
    """See that what a template gave is what is made directly."""
    if found is not None and not state.careful:  # what is made directly uses templates, too
        FOUND["used"] += 1
        direct = alone(lambda: MAKES[family](iter(numbers)))
        a, b = told(found), told(direct)
        assert a == b, (numbers, different(a, b))


original, by_template = other_sizes.Family.made, other_sizes.Family.made_by_template
MAKES = {}  # what makes the things of a family directly; it may keep tensors


def different(a, b, path=()):
    """Where two descriptions differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        return [d for name in a for d in different(a[name], b.get(name), (*path, name))]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return [d for k, (x, y) in pairs for d in different(x, y, (*path, k))]
    return [] if a == b else [(path, a, b)]


@contextlib.contextmanager
def watched():
    """A block in which Python asks for all templates, as tests have it."""
    other_sizes.watchers.append("a test")
    try:
        yield
    finally:
        other_sizes.watchers.remove("a test")


@contextlib.contextmanager
def checked():
    """A block in which every template is looked at, and made as soon as it can be."""
    enough, most = other_sizes.ENOUGH, node.made_once.most
    look_at_all()
    try:
        yield FOUND
    finally:
        other_sizes.ENOUGH, node.made_once.most = enough, most
        del node.made_once.items[most:]
        node.made_once.place = 0
        other_sizes.watchers.remove("templates")
        other_sizes.Family.made = original
        other_sizes.Family.made_by_template = by_template
        MAKES.clear()


def look_at_all():
    """`checked()` for good."""
    other_sizes.ENOUGH = 1
    other_sizes.watchers.append("templates")
    node.made_once.most = 1 << 20  # what is the same spec in one is to be so in the other
    other_sizes.Family.made = made
    other_sizes.Family.made_by_template = made_by_template
