"""The cold road: recorded nodes are run one by one, each on the kernels of its own recipe.

Every node becomes rows of words, one for each of its steps; the rows go to the compiled runner in
one stream.
"""

from __future__ import annotations

import struct
import sys
import threading
from array import array
from itertools import chain
from typing import Any

from ..devices import CPU
from ..storage import Foreign, LargeBlock, allocate, size_class
from . import native, profile, run_cpu
from .cache import compile_ahead, link
from .layout import copy_words
from .recipe import HEADER, Recipe

# Bytes of results after which a stream runs, of which a step has 64 at the least. What is dead by
# then serves those that follow, and Ctrl-C gets through. A result of this size takes its kernel 15 us
# or more, a stream of its own 1.5.
STREAM_BYTES = 1 << 18

_refcount = sys.getrefcount


running = 0  # the thread that runs nodes, which then count as done before they have their values


def run(batch: list[Any]) -> None:
    """Run nodes in order. What is not reached, because of an error, is left in the batch."""
    global running
    running = threading.get_ident()
    batch.reverse()
    try:
        if places and profile.active is None:
            _run_usual(batch)
        if batch:
            _run_others(batch)
        if not places:  # by now, as the walk was compiled with the kernels
            places.extend((run_cpu.walk_address(), run_cpu.team_address(), _status_at))
    finally:
        batch.reverse()
        running = 0


def _run_usual(batch: list[Any]) -> None:
    """Run the nodes at the end of a batch, up to one that machine code leaves to Python."""
    if run_rows(batch, *places):
        raise_bad_value(batch)


def raise_bad_value(batch: list[Any]) -> None:
    """Raise what the kernel of the node at the end of a batch has found."""
    raise _failed(batch.pop())


def _run_others(batch: list[Any]) -> None:
    """Run nodes from the end of a batch on, those of which some memory is full at a time; machine code, if
    it is there, goes on behind each."""
    one_by_one = rows.is_loaded and profile.active is None
    stream = Stream()
    is_new = True
    try:
        while batch:
            node = batch[-1]
            recipe = node.recipe
            if recipe is None:  # run by another thread in the meantime
                batch.pop()
                continue
            if is_new and any(not step.source.address for step in recipe.steps):
                _compile_ahead(batch[::-1])
                is_new = False  # what is missing among the others is there by now
            words: list[int] = []
            if node.offsets is not None:  # an address behind a block's does not keep the block
                stream.blocks += [v.address for v in node.inputs if v.recipe is None]
            try:
                steps = _rows(node, recipe, words)
            except Exception as error:
                fail(batch.pop(), error)
                raise
            batch.pop()
            stream.blocks += words
            stream.add(words, steps, recipe.nbytes if steps else 0, recipe.large)
            del words  # like the stream, it would keep blocks alive
            can_fail = recipe.fallible is not None and steps > 0
            if can_fail or one_by_one or stream.nbytes >= STREAM_BYTES:
                now, stream = stream, Stream()
                _status[0] = 0
                now.run()
                del now
                if can_fail and _status[0]:
                    raise _failed(node, recipe)
            if one_by_one and places:
                _run_usual(batch)
    finally:
        stream.run()


def _compile_ahead(batch: list[Any]) -> None:
    """Compile what running nodes takes, first what comes first."""
    recipes = [node.recipe for node in batch if node.recipe]
    large = any(recipe.large for recipe in recipes)
    sources = [step.source for recipe in recipes for step in recipe.steps]
    compile_ahead(sources, run_cpu.functions(large=large))


class Stream:
    """Rows that are to be run, and the blocks that they read and write: nothing else may hold them."""

    __slots__ = ("blocks", "large", "nbytes", "rows", "steps")

    def __init__(self) -> None:
        self.rows = bytearray()
        self.blocks: list[int] = []
        self.steps = self.nbytes = 0
        self.large = False

    def add(self, words: list[int], steps: int, nbytes: int, large: bool) -> None:
        """Add rows of some steps; `large` says whether one may be split over threads."""
        self.rows += struct.pack(f"{len(words)}q", *words)
        self.steps += steps
        self.nbytes += nbytes
        self.large = self.large or large

    def run(self) -> None:
        """Run the steps now."""
        if not self.steps:
            return
        words = array("q", bytes(self.rows))
        address = words.buffer_info()[0]
        if profile.active is None:
            run_cpu.run(address, self.steps, 0, large=self.large)
        else:
            profile.active.run_node(address, words, self.steps, self.large)


def run_watched(batch: list[Any], watcher: profile.Watcher) -> None:
    """`run` for a profile: one by one, so that it knows whose steps it sees."""
    batch.reverse()
    one: list[Any] = []
    try:
        while batch:
            one.append(batch.pop())
            watcher.expect(one[0])
            run(one)
    finally:
        batch += one
        batch.reverse()


def _run_rows(batch: list[Any], walk: int, team: int, status: int) -> bool:
    """Run the nodes at the end of a batch, the last one first, up to one that is not usual, and take
    them off; whether the last one has found a bad value, which the status tells. In Python none is.
    """
    return False


_context = Recipe, LargeBlock, Foreign, allocate, None, True, False, "", "copy", Exception
rows = native.Family("rows", "run")
run_rows = rows.function(_run_rows, _context)

_status = array("q", [0, 0, 0, 0])  # what the kernel that ran last has found
_status_at = _status.buffer_info()[0]
places: list[int] = []  # of the walk, of the team and of the status, once there is something to run


def _rows(node: Any, recipe: Any, words: list[int]) -> int:
    """Write the rows of a node, and give it its memory; how many they are."""
    if isinstance(recipe, Failed):
        return 0
    if recipe.pick >= 0 and node.inputs[0].recipe is None:
        node.address = node.inputs[0].others[recipe.pick]
        node.recipe = node.inputs = None
        return 0
    if any(value.recipe is not None for value in node.inputs):
        inherit_error(node)
        return 0
    if not recipe.plain:
        return _special(node, recipe, words)
    block = allocate(recipe.size)
    words += (*_head(recipe), *_addresses(node), block, *recipe.constants, *node.scalars)
    node.address = block
    node.recipe = node.inputs = None
    return 1


def _head(recipe: Any) -> tuple[int, ...]:
    """The first words of the rows of a recipe, whose kernels are linked then."""
    if not recipe.head:
        arguments = recipe.count - bool(
            recipe.write
        )  # a write has the old value's memory as its result
        rows = [(link(step.source), step.n, step.grain, arguments) for step in recipe.steps]
        recipe.head = tuple(chain.from_iterable(rows))
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

    __slots__ = ("_kept", "inputs", "large", "plain")
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
        self.plain = self.large = False
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


def _special(node: Any, recipe: Any, words: list[int]) -> int:
    """The steps of a node with several of them or several results, with scratch memory, that writes
    in place or can fail; how many were added to the words."""
    if recipe.write:
        return _write(node, recipe, words)
    row = _addresses(node)
    blocks: list[Any]
    may_alias = recipe.alias is not None and not (node.offsets and node.offsets[0])
    if may_alias and (recipe.here or is_free(node.inputs[0])):
        blocks = [node.inputs[0].address]
        recipe = recipe.alias
    elif recipe.over:
        blocks = _taken_over(node.inputs, recipe)
    else:
        blocks = [allocate(size) for size in recipe.sizes]
    row += blocks
    if recipe.scratch:
        # Free again once the row is written: steps run in order, so a later one may have it.
        row.append(allocate(size_class(recipe.scratch)))
    if recipe.fallible is not None:
        row.append(_status_at)
    row += recipe.constants
    row += node.scalars
    head = _head(recipe)
    for at in range(0, len(head), HEADER):
        words += head[at : at + HEADER]
        words += row
    node.address = blocks[0]
    if len(blocks) > 1:
        node.others = blocks
    node.recipe = node.inputs = None
    return len(recipe.steps)


def _taken_over(inputs: Any, recipe: Recipe) -> list[Any]:
    """Memory for results: that of old values which nobody else looks at, else new."""
    blocks = []
    for k, size in enumerate(recipe.sizes):
        taken = k < recipe.over and is_free(inputs[k])
        blocks.append(inputs[k].address if taken else allocate(size))
    return blocks


def _failed(node: Any, recipe: Any = None) -> Exception:
    """What is raised when the kernel of a node has found a bad value; the node remembers it."""
    error = found_error(recipe or node.recipe, tuple(_status), node.site)
    fail(node, error)
    del node.address
    return error


def found_error(recipe: Recipe, status: tuple[int, ...], site: Any) -> Exception:
    """What a kernel that found a bad value raises, with the line that recorded it."""
    assert recipe.fallible is not None
    error = recipe.fallible(status)
    if site is not None:
        file, line, where = site
        error.add_note(f'recorded at File "{file}", line {line}, in {where}')
    return error


def _write(node: Any, recipe: Recipe, words: list[int]) -> int:
    """Copy into a part of the old value: in its own bytes if nobody else looks, else in a copy.

    "here" writes into the same bytes whatever else looks at them: they are shared on purpose.
    """
    target, source = _addresses(node)
    block = node.inputs[0].address
    head = _head(recipe)
    steps = 1
    if recipe.write == "copy" and not is_free(node.inputs[0]):
        if len(head) == HEADER:
            copy = link(copy_words()), (recipe.spec.nbytes + 7) // 8, 1 << 15, 2
            recipe.head = head = head + copy
        fresh = allocate(recipe.size)
        words += (*head[HEADER:], block, fresh)
        target += fresh - block
        block = fresh
        steps = 2
    words += (*head[:HEADER], source, target, *recipe.constants)
    node.address = block
    node.recipe = node.inputs = None
    return steps


def is_free(value: Any) -> bool:
    """Whether only the node that reads a value holds it, so that its memory may be written."""
    return _refcount(value) <= _HELD_BY_NODE and value.address.__class__ is not Foreign


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
