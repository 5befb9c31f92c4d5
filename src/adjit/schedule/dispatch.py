"""The dispatch tier: recorded nodes are run one by one, each on the kernels of its own recipe.

Every node becomes rows of words, one for each of its steps, which go to the compiled runner.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from ..atomic import Calls
from ..devices import CPU
from ..kernels.runtime.runner import HEADER, STATUS_WORDS
from ..storage import BorrowedMemory, allocate, size_class
from . import profile, run_cpu
from .jit import native
from .jit.cache import compile_ahead, link
from .planning.lower import copy_words
from .planning.recipe import COPY, NO_WRITE, Recipe

_refcount = sys.getrefcount


def run(batch: list[Any]) -> None:
    """Run nodes in order. What is not reached, because of an error, is left in the batch."""
    batch[:] = batch[::-1]  # no call, after which a signal would find the order unknown
    try:
        if places and profile.active is None:
            _run_usual(batch)
        if batch:
            _run_others(batch)
        if not places:  # by now, as the walk was compiled with the kernels
            places.extend((run_cpu.walk_address(), run_cpu.team_address(), _status_at))
    finally:
        batch[:] = [node for node in batch[::-1] if node.recipe is not None]


def _run_usual(batch: list[Any]) -> None:
    """Run the nodes at the end of a batch, up to one that machine code leaves to Python."""
    if run_rows(batch, *places):
        raise_bad_value(batch)


def raise_bad_value(batch: list[Any]) -> None:
    """Raise what the kernel of the node at the end of a batch has found."""
    raise _failed(batch.pop())


def _run_others(batch: list[Any]) -> None:
    """Run nodes from the end of a batch on, one by one; machine code, if it is there, goes on behind each."""
    has_code = rows.is_loaded and profile.active is None
    is_new = True
    while batch:
        node = batch[-1]
        recipe = node.recipe
        if recipe is not None:  # else it was run by another thread in the meantime
            if is_new and any(not step.source.address for step in recipe.steps):
                _compile_ahead(batch[::-1])
                is_new = False  # what is missing among the others is there by now
            try:
                _run_node(node, recipe)
            except MemoryError:  # there may be more the next time
                raise
            except Exception as error:
                if node.recipe.__class__ is not Failed:
                    fail(node, error)
                del batch[-1]
                raise
        del batch[-1], node, recipe  # nothing but what reads it is to hold a value
        if has_code and places:
            _run_usual(batch)


def _compile_ahead(batch: list[Any]) -> None:
    """Compile what running nodes takes, first what comes first."""
    recipes = [node.recipe for node in batch if node.recipe]
    large = any(recipe.large for recipe in recipes)
    sources = [step.source for recipe in recipes for step in recipe.steps]
    compile_ahead(sources, run_cpu.functions(large=large))


def _run_node(node: Any, recipe: Any) -> None:
    """Run a node. It counts as done together with its bytes: signals arrive between any two instructions of
    Python, so what must not be torn is one call.
    """
    if recipe.__class__ is Failed:
        return
    if recipe.pick >= 0 and node.inputs[0].recipe is None:
        node.address = node.inputs[0].others[recipe.pick]
        node.recipe = node.inputs = None
        return
    if any(value.recipe is not None for value in node.inputs):
        inherit_error(node)
        return
    words: list[int] = []  # they also keep the blocks that are written
    steps, blocks = _rows(node, recipe, words)
    status = _status_at if recipe.fallible is not None and steps else 0
    _status[0] = 0
    _go(words, steps, status, recipe.large, marks(node, blocks))
    if _status[0]:
        raise _failed(node, recipe)
    node.inputs = None  # only now: what frees memory is Python, in which a signal would be lost


def marks(node: Any, blocks: list[Any]) -> Calls:
    """What makes a node one that is done: calls that run no Python."""
    found = [partial(setattr, node, "address", blocks[0])]
    if len(blocks) > 1:
        found.append(partial(setattr, node, "others", blocks))
    return [*found, partial(setattr, node, "recipe", None)]


def _go(words: list[int], steps: int, status: int, large: bool, then: Calls) -> None:
    """Run rows, then at once what follows, unless a kernel has set the status."""
    stream = array("q", words)
    address = stream.buffer_info()[0]
    if profile.active is None:
        run_cpu.run(address, steps, status, large=large, then=then)
    else:
        profile.active.run_node(address, stream, steps, status, large, then)


def run_profiled(batch: list[Any], watcher: profile.Watcher) -> None:
    """`run` for a profile: one by one, so that it knows whose steps it sees."""
    one: list[Any] = []
    try:
        for _ in range(
            len(batch)
        ):  # up to 3.13.0 Python guards no jump back from the condition of a `while`
            one[:] = batch[:1]
            del batch[:1]
            watcher.expect(one[0])
            run(one)
    finally:
        batch[:0] = one


def _run_rows(batch: list[Any], walk: int, team: int, status: int) -> bool:
    """Run the nodes at the end of a batch, the last one first, up to one that is not usual, and take
    them off; whether the last one has found a bad value, which the status tells. In Python none is.
    """
    return False


class DispatchContext(NamedTuple):
    """What running nodes one by one needs."""

    recipe_class: type
    foreign: type
    allocate: Callable[[int], Any]
    none: None
    true: bool
    false: bool
    no_write: str  # kinds of writes
    copy: str
    exception: type


native.register_layout(DISPATCH=DispatchContext)
context = DispatchContext(
    Recipe, BorrowedMemory, allocate, None, True, False, NO_WRITE, COPY, Exception
)
rows = native.FastPath("dispatch", "run")
run_rows = rows.function(_run_rows, context)

# What the kernel that ran last has found, and whether machine code is writing rows: what a finalizer or a
# handler of signals runs then, in the same thread, must not count on them.
_status = array("q", [0] * (STATUS_WORDS + 1))
_status_at = _status.buffer_info()[0]
places: list[int] = []  # of the walk, of the team and of the status, once there is something to run


def _rows(node: Any, recipe: Any, words: list[int]) -> tuple[int, list[Any]]:
    """Write the rows of a node; how many they are, and the memory of its results."""
    if recipe.write:
        return _write(node, recipe, words)
    if not recipe.can_take_fast_path:
        return _special(node, recipe, words)
    block = allocate(recipe.sizes[0])
    words += (*_head(recipe), *_addresses(node), block, *recipe.constants, *node.scalars)
    return 1, [block]


def _head(recipe: Any) -> tuple[int, ...]:
    """The first words of the rows of a recipe, whose kernels are linked then."""
    if not recipe.head:
        recipe.head = recipe.heads([link(step.source) for step in recipe.steps])
    return recipe.head


def _addresses(node: Any) -> list[int]:
    """Where what a node reads begins."""
    if node.offsets is None:
        return [value.address for value in node.inputs]
    sizes = [spec.dtype.itemsize for spec in node.recipe.inputs]
    return [
        value.address + offset * size
        for value, offset, size in zip(node.inputs, node.offsets, sizes, strict=True)
    ]


class Failed:
    """Stands in the place of a recipe once a node has raised; `error` is raised at every look."""

    __slots__ = ("_kept", "can_take_fast_path", "inputs", "large")
    fallible = None
    steps = ()
    device = CPU
    crosses = False
    pick = -1
    wide = nbytes = 0
    count = 0  # of all in this process

    def __init__(self, error: BaseException) -> None:
        Failed.count += 1
        self._kept = unraised(error)
        self.can_take_fast_path = self.large = False
        self.inputs = ()

    @property
    def error(self) -> BaseException:
        """What went wrong, anew at every look."""
        return unraised(self._kept)


def unraised(error: BaseException) -> BaseException:
    """An error like another one, but that was not raised yet: no frames hang on it, nor what these hold."""
    made: BaseException = error.__class__.__new__(error.__class__, *error.args)
    vars(made).update(vars(error))
    if hasattr(error, "__notes__"):
        made.__notes__ = [*error.__notes__]
    if error.__cause__ is not None:
        made.__cause__ = unraised(error.__cause__)
    made.__suppress_context__ = error.__suppress_context__
    return made


def fail(node: Any, error: BaseException) -> None:
    """Remember what went wrong with a node; nothing tries to run it again."""
    node.recipe, node.inputs = Failed(error), None


def inherit_error(node: Any) -> None:
    """A node that reads a failed one has failed in the same way."""
    for value in node.inputs:
        if isinstance(value.recipe, Failed):
            node.recipe, node.inputs = value.recipe, None
            return
    raise RuntimeError(f"{node.recipe.name} was to run before its inputs")


def _special(node: Any, recipe: Any, words: list[int]) -> tuple[int, list[Any]]:
    """The rows of a node with several of them or several results, with scratch memory, that writes over
    what it reads or can fail."""
    row = _addresses(node)
    blocks: list[Any]
    may_alias = recipe.alias is not None and not (node.offsets and node.offsets[0])
    if may_alias and _may_take(node.inputs, recipe, 0):
        blocks = [node.inputs[0].address]
        recipe = recipe.alias
    elif recipe.over:
        blocks = _taken_over(node.inputs, recipe)
    else:
        blocks = [allocate(size) for size in recipe.sizes]
    row += blocks
    if recipe.scratch:
        row.append(allocate(size_class(recipe.scratch)))
    if recipe.fallible is not None:
        row.append(_status_at)
    row += recipe.constants
    row += node.scalars
    head = _head(recipe)
    for at in range(0, len(head), HEADER):
        words += head[at : at + HEADER]
        words += row
    return len(recipe.steps), blocks


def _may_take(inputs: Any, recipe: Recipe, k: int) -> bool:
    """Whether result `k` may be written over an input: nobody else looks, or they are to see it."""
    return (k < len(recipe.here) and recipe.here[k]) or is_free(inputs[k])


def _taken_over(inputs: Any, recipe: Recipe) -> list[Any]:
    """Memory for results: that of old values which nobody else looks at, else new."""
    blocks = []
    for k, size in enumerate(recipe.sizes):
        taken = k < recipe.over and _may_take(inputs, recipe, k)
        blocks.append(inputs[k].address if taken else allocate(size))
    return blocks


def _failed(node: Any, recipe: Any = None) -> Exception:
    """What is raised when the kernel of a node has found a bad value; the node remembers it."""
    error = found_error(recipe or node.recipe, tuple(_status[:STATUS_WORDS]), node.call_site)
    fail(node, error)
    with suppress(AttributeError):  # one that is interrupted before would run again
        del node.address
    return error


def found_error(recipe: Recipe, status: tuple[int, ...], call_site: Any) -> Exception:
    """What a kernel that found a bad value raises, with the line that recorded it."""
    assert recipe.fallible is not None
    error = recipe.fallible(status)
    if call_site is not None:
        file, line, where = call_site
        error.add_note(f'recorded at File "{file}", line {line}, in {where}')
    return error


def _write(node: Any, recipe: Recipe, words: list[int]) -> tuple[int, list[Any]]:
    """Copy into a part of the old value: in its own bytes if nobody else looks, else in a copy.

    IN_PLACE writes into the same bytes whatever else looks at them: they are shared on purpose.
    """
    target, source = _addresses(node)
    block = node.inputs[0].address
    head = _head(recipe)
    steps = 1
    if recipe.write == COPY and not is_free(node.inputs[0]):
        if len(head) == HEADER:
            copy = link(copy_words()), (recipe.spec.nbytes + 7) // 8, 1 << 15, 2
            recipe.head = head = head + copy
        fresh = allocate(recipe.sizes[0])
        words += (*head[HEADER:], block, fresh)
        target += fresh - block
        block = fresh
        steps = 2
    words += (*head[:HEADER], source, target, *recipe.constants)
    return steps, [block]


def is_free(value: Any) -> bool:
    """Whether only the node that reads a value holds it, so that its memory may be written."""
    return _refcount(value) <= _HELD_BY_NODE and value.address.__class__ is not BorrowedMemory


def _held_by_node() -> int:
    """The reference count that `is_free` sees for a value that only the inputs of one node hold."""

    class Holder:
        __slots__ = ("inputs",)

    node = Holder()
    node.inputs = (object(),)  # type: ignore[attr-defined]
    return _count_argument(node.inputs[0])  # type: ignore[attr-defined]


def _count_argument(value: Any) -> int:
    return _refcount(value)


_HELD_BY_NODE = _held_by_node()
