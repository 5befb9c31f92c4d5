"""The cold road: recorded nodes are run one by one, each on the kernels of its own recipe.

Every node becomes rows of words, one for each of its steps; the rows go to the compiled runner in
one stream.
"""

from __future__ import annotations

import struct
import sys
import threading
from array import array
from typing import Any

from ..devices import CPU
from ..storage import Foreign, LargeBlock, allocate, size_class
from . import native, profile, run_cpu
from .cache import compile_ahead, link
from .layout import copy_words
from .recipe import Recipe

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
    try:
        if profile.active is not None or not run_few(
            batch, run_cpu.walk_address(), run_cpu.team_address()
        ):
            _run_in_streams(batch)
    finally:
        running = 0


def _run_in_streams(batch: list[Any]) -> None:
    """Run nodes in order, those of which some memory is full at a time."""
    batch.reverse()
    stream = Stream()
    is_new = True
    try:
        while batch:
            found = take_rows(batch, STREAM_BYTES - stream.nbytes, stream.blocks)
            if found is not None:
                stream.add(*found)
            if stream.nbytes >= STREAM_BYTES or not batch:
                now, stream = stream, Stream()
                now.run()
                del now  # it keeps blocks alive
                continue
            node = batch[-1]
            recipe = node.recipe
            if recipe is None:  # run by another thread in the meantime
                batch.pop()
                continue
            if is_new and any(not step.source.address for step in recipe.steps):
                compile_ahead(s.source for n in reversed(batch) if n.recipe for s in n.recipe.steps)
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
            rows = struct.pack(f"{len(words)}q", *words)
            del words  # like the stream, it would keep blocks alive
            stream.add(rows, steps, recipe.nbytes if steps else 0, recipe.large)
            if recipe.fallible is not None and steps:
                now, stream = stream, Stream()
                now.run()
                del now
                _look_for_error(node, recipe)
    finally:
        stream.run()
        batch.reverse()


class Stream:
    """Rows that are to be run, and the blocks that they read and write: nothing else may hold them."""

    __slots__ = ("blocks", "large", "nbytes", "rows", "steps")

    def __init__(self) -> None:
        self.rows = bytearray()
        self.blocks: list[int] = []
        self.steps = self.nbytes = 0
        self.large = False

    def add(self, rows: bytes, steps: int, nbytes: int, large: bool) -> None:
        """Add rows of some steps; `large` says whether one may be split over threads."""
        self.rows += rows
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


def _take_rows(
    batch: list[Any], room: int, blocks: list[int]
) -> tuple[bytes, int, int, bool] | None:
    """The rows of the plain nodes at the end of a batch, which are done then, until their results
    have filled so many bytes; how many rows and bytes, and whether one is large. The blocks that
    could go back to the system are kept. In Python all nodes go through `_rows`.
    """
    return None


def _run_few(batch: list[Any], walk: int, team: int) -> bool:
    """Run the nodes of a short batch that are plain, up to the first that is not, or finds the memory
    full, and take them off; whether these were all. In Python no node is."""
    return False


_context = Recipe, LargeBlock, Foreign, allocate, None, True, False
take_rows = native.Family("rows", "take").function(_take_rows, _context)
run_few = native.Family("rows", "run").function(_run_few, _context)


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
    step = recipe.steps[0]
    recipe.head = recipe.head or (link(step.source), step.n, step.grain, recipe.count)
    block = allocate(recipe.size)
    words += (*recipe.head, *_addresses(node), block, *recipe.constants, *node.scalars)
    node.address = block
    node.recipe = node.inputs = None
    return 1


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

    __slots__ = ("error", "inputs", "large", "plain")
    fallible = None
    steps = ()
    device = CPU
    crosses = False
    pick = -1
    wide = nbytes = 0
    count = 0  # of all in this process

    def __init__(self, error: BaseException) -> None:
        Failed.count += 1
        self.error = error
        self.plain = self.large = False
        self.inputs = ()


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
    may_alias = recipe.alias is not None and node.offsets is None
    if may_alias and _refcount(node.inputs[0]) <= HELD_BY_NODE:
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
        node.site = node.site, array("q", [0, 0, 0, 0])
        row.append(node.site[1].buffer_info()[0])
    row += recipe.constants
    row += node.scalars
    for step in recipe.steps:
        words += (link(step.source), step.n, step.grain, len(row))
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
        block = inputs[k].address if k < recipe.over else None
        if block is None or _refcount(inputs[k]) > HELD_BY_NODE or block.__class__ is Foreign:
            block = allocate(size)
        blocks.append(block)
    return blocks


def _look_for_error(node: Any, recipe: Recipe) -> None:
    """Raise what the kernel of a node has found, and remember it in the node."""
    site, status = node.site
    node.site = None
    if status[0]:
        error = found_error(recipe, tuple(status), site)
        fail(node, error)
        del node.address
        raise error


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
    steps = 1
    if recipe.write == "copy" and (
        _refcount(node.inputs[0]) > HELD_BY_NODE or block.__class__ is Foreign
    ):
        fresh = allocate(recipe.size)
        whole = (recipe.spec.nbytes + 7) // 8
        words += (link(copy_words()), whole, 1 << 15, 2, block, fresh)
        target += fresh - block
        block = fresh
        steps = 2
    step = recipe.steps[0]
    words += (link(step.source), step.n, step.grain, recipe.count - 1, source, target)
    words += recipe.constants
    node.address = block
    node.recipe = node.inputs = None
    return steps


def _held_by_node() -> int:
    """The reference count of a value that only the inputs of one node hold."""

    class Holder:
        __slots__ = ("inputs",)

    node = Holder()
    node.inputs = (object(),)  # type: ignore[attr-defined]
    return _refcount(node.inputs[0])  # type: ignore[attr-defined]


HELD_BY_NODE = _held_by_node()
