"""What to run, and when: the one place where recorded nodes become bytes.

Recorded nodes lie on a tape in the order of their creation, which is an order of dependence.
Settling drops those that nobody can look at any more, gives the others their memory, writes one
row of words for each step and hands the rows to the compiled runner.
"""

from __future__ import annotations

import struct
import sys
import threading
from array import array
from itertools import chain
from typing import Any

from .. import config
from ..storage import Foreign, allocate, size_class
from . import hot, native, profile, run_cpu
from .cache import link
from .layout import copy_words
from .plan import copied
from .recipe import Recipe
from .structure import structure_of

lock = threading.RLock()
tape: list[Any] = []
MAX_PENDING = 1 if config.EAGER else config.MAX_PENDING
captured_threads: set[int] = set()  # inside of a function that is being captured
looking_threads: set[int] = set()  # inside of one that will be
MAX_STREAM = 4096  # steps that run without coming back to Python, so that Ctrl-C gets through

_refcount = sys.getrefcount
_bits = struct.Struct("d").pack, struct.Struct("q").unpack


def float_word(value: float) -> int:
    """The bits of a float64: how a number travels among the words of a step."""
    return _bits[1](_bits[0](value))[0]


def settle() -> None:
    """Run everything that is recorded and still wanted."""
    global _fresh
    if captured_threads and threading.get_ident() in captured_threads:
        return  # what is recorded there will run as one plan
    with lock:
        _fresh = 0
        if not tape:
            return
        batch = tape[:]
        del tape[: len(batch)]
        if native.is_wanted and hot.is_on:
            native.settled(hot.compiler.add)
        elements = _drop_unwanted(batch)
        worth = hot.is_on and elements >= config.MIN_FUSED * len(batch) and len(batch) > 1
        if batch and not (worth and _run_plan(batch)):
            if profile.active is None:
                _run(batch)
            else:
                _run_watched(batch, profile.active)


def _drop_unwanted(batch: list[Any]) -> int:
    """Keep the nodes that something beside the tape refers to; later nodes go first.

    Returns the elements of those that are worth being fused.
    """
    keep: list[Any] = []
    elements = 0
    while batch:
        node = batch.pop()
        if _refcount(node) > _UNWANTED:
            keep.append(node)
            elements += node.recipe.wide
    keep.reverse()
    batch[:] = keep
    return elements


def _run_plan(batch: list[Any]) -> bool:
    """Run a batch by its plan, if it has one that is ready."""
    if Failed.count and any(
        value.recipe.__class__ is Failed for node in batch for value in (node, *(node.inputs or ()))
    ):
        return False
    try:
        structure = structure_of(batch)
        plan = hot.plan_of(batch, structure)
    except BaseException:  # Ctrl-C while a kernel is compiled, for instance
        tape[:0] = batch
        raise
    if plan is None:
        return False
    blocks: list[Any] = []
    try:
        blocks = plan.prepare(structure.externals)
        plan.set_numbers(list(chain.from_iterable([batch[at].scalars for at in plan.numbered])))
        sites = None if profile.active is None else profile.active.sites_of(batch)
        plan.run(structure.externals, blocks, sites)
    except BaseException:
        if plan.has_run:
            _hand_out(batch, plan, blocks)
        else:
            tape[:0] = batch
        raise
    failed = plan.failed_node()
    if failed >= 0:
        node, recipe = batch[failed], batch[failed].recipe
        rest = [n for n in batch if n is not node]
        tape[:0] = rest
        error = found_error(recipe, tuple(plan.status[:4]), node.site)
        _fail(node, error)
        raise error
    _hand_out(batch, plan, blocks)
    return True


def _hand_out(batch: list[Any], plan: Any, blocks: list[Any]) -> None:
    """Give the nodes that somebody holds their memory; the others are done with."""
    for at, numbers in plan.results:
        node = batch[at]
        node.address = blocks[numbers[0]]
        if len(numbers) > 1:
            node.others = [blocks[k] for k in numbers]
    for node in batch:
        node.recipe = node.inputs = None


def _calibrate() -> int:
    """The reference count that `_drop_unwanted` sees for a node held by the tape alone."""
    batch = [object()]
    while batch:
        node = batch.pop()
        count = _refcount(node)
    return count


_UNWANTED = _calibrate()


def _run(batch: list[Any]) -> None:
    """Run nodes in order. What is not reached, because of an error, goes back onto the tape."""
    batch.reverse()
    words: list[int] = []
    steps = 0
    large = False
    try:
        while batch:
            node = batch[-1]
            recipe = node.recipe
            if recipe is None:  # run by another thread in the meantime
                batch.pop()
                continue
            if not recipe.plain:
                if recipe.pick >= 0 and node.inputs[0].recipe is None:
                    node.address = node.inputs[0].others[recipe.pick]
                    node.recipe = node.inputs = None
                    batch.pop()
                    continue
                before = len(words)
                try:
                    added = _special(node, recipe, words)
                except Exception as error:
                    del words[before:]
                    _fail(batch.pop(), error)
                    raise
                batch.pop()
                steps += added
                large = large or recipe.large
                if recipe.fallible is not None and added:
                    stream, words = words, []
                    count, steps = steps, 0
                    execute(stream, count, large)
                    _look_for_error(node, recipe)
                continue
            free = recipe.free
            try:
                head = recipe.head or _link(recipe)
                block = free.pop() if free else allocate(recipe.size)
            except Exception as error:
                _fail(batch.pop(), error)
                raise
            inputs = node.inputs
            words += head
            try:
                if node.offsets is not None:
                    words += (*_row_with_offsets(node), block)
                elif len(inputs) == 2:
                    a, b = inputs
                    words += (a.address, b.address, block)
                elif len(inputs) == 1:
                    words += (inputs[0].address, block)
                else:
                    words += [value.address for value in inputs]
                    words.append(block)
            except AttributeError:
                del words[-4:]
                _inherit_error(node)
                batch.pop()
                continue
            if recipe.constants:
                words += recipe.constants
            if node.scalars:
                words += node.scalars
            steps += 1
            if recipe.large:
                large = True
            node.address = block
            node.recipe = node.inputs = None
            batch.pop()
            if steps >= MAX_STREAM:
                stream, words = words, []
                count, steps = steps, 0
                execute(stream, count, large)
    finally:
        if steps:
            execute(words, steps, large)
        if batch:
            batch.reverse()
            tape[:0] = batch


def _run_watched(batch: list[Any], watcher: profile.Watcher) -> None:
    """`_run` for a profile: one by one, so that it knows whose steps it sees."""
    batch.reverse()
    one: list[Any] = []
    try:
        while batch:
            one.append(batch.pop())
            watcher.expect(one[0])
            _run(one)
    finally:
        batch.reverse()
        tape[len(one) : len(one)] = batch  # `_run` has put back the one that it did not reach


def execute(words: list[int], steps: int, large: bool) -> None:
    """Run a stream of steps now."""
    stream = array("q", struct.pack(f"{len(words)}q", *words))  # faster than from the list
    address = stream.buffer_info()[0]
    if profile.active is None:
        run_cpu.run(address, steps, 0, large=large)
    else:
        profile.active.run_node(address, words, steps, large)


def _link(recipe: Recipe) -> tuple[int, ...]:
    step = recipe.steps[0]
    recipe.head = (link(step.source), step.n, step.grain, recipe.count)
    return recipe.head


def _row_with_offsets(node: Any) -> list[int]:
    sizes = [spec.dtype.itemsize for spec in node.recipe.inputs]
    return [
        value.address + offset * size
        for value, offset, size in zip(node.inputs, node.offsets, sizes, strict=True)
    ]


class Failed:
    """Stands in the place of a recipe once a node has raised; `error` is raised at every look."""

    __slots__ = ("error", "inputs", "large", "plain")
    fallible = None
    pick = -1
    wide = 0
    count = 0  # of all in this process

    def __init__(self, error: BaseException) -> None:
        Failed.count += 1
        self.error = error
        self.plain = self.large = False
        self.inputs = ()


def _fail(node: Any, error: BaseException) -> None:
    """Remember what went wrong with a node; nothing tries to run it again."""
    node.recipe, node.inputs = Failed(error), None


def _inherit_error(node: Any) -> None:
    """A node that reads a failed one has failed in the same way."""
    for value in node.inputs:
        if isinstance(value.recipe, Failed):
            node.recipe, node.inputs = value.recipe, None
            return
    raise RuntimeError(f"{node.recipe.name} was to run before its inputs")


def _special(node: Any, recipe: Any, words: list[int]) -> int:
    """The steps of a node with several of them or several results, with scratch memory, that writes
    in place or can fail; how many were added to the words."""
    if isinstance(recipe, Failed):
        return 0
    if any(value.recipe is not None for value in node.inputs):
        _inherit_error(node)
        return 0
    if recipe.write:
        return _write(node, recipe, words)
    row = (
        [value.address for value in node.inputs]
        if node.offsets is None
        else _row_with_offsets(node)
    )
    blocks: list[Any]
    may_alias = recipe.alias is not None and node.offsets is None
    if may_alias and _refcount(node.inputs[0]) <= _HELD_BY_NODE:
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
        if block is None or _refcount(inputs[k]) > _HELD_BY_NODE or block.__class__ is Foreign:
            block = allocate(size)
        blocks.append(block)
    return blocks


def _look_for_error(node: Any, recipe: Recipe) -> None:
    """Raise what the kernel of a node has found, and remember it in the node."""
    site, status = node.site
    node.site = None
    if status[0]:
        error = found_error(recipe, tuple(status), site)
        _fail(node, error)
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
    target, source = _row_with_offsets(node)
    block = node.inputs[0].address
    steps = 1
    if recipe.write == "copy" and (
        _refcount(node.inputs[0]) > _HELD_BY_NODE or block.__class__ is Foreign
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


_HELD_BY_NODE = _held_by_node()


def value_of(storage: Any) -> Any:
    """The value of a cell, settled; raises what went wrong while it was computed."""
    if (captured_threads or looking_threads) and threading.get_ident() in (
        captured_threads | looking_threads
    ):
        raise RuntimeError(LOOKED)
    value = storage.value
    if value.recipe is not None:
        settle()
        with lock:
            pass  # another thread may be running it
        if value.recipe is not None:
            if isinstance(value.recipe, Failed):
                raise value.recipe.error
            raise RuntimeError("a recorded value could not be settled")
    return value


LOOKED = (
    "adjit.compile: the captured function looked at the value of a tensor (item, bool, float, print, "
    "numpy, a mask as an index, a loop over data ...), which has none yet. Return the tensor and look "
    "at it outside, or write the choice as adjit.where."
)


def fresh_block(nbytes: int) -> Any:
    """Memory for data from outside. Much of it since the last settle calls for one: recorded
    nodes keep what they read alive."""
    global _fresh
    with lock:
        _fresh += nbytes
        if _fresh > MAX_FRESH:
            settle()
        return allocate(size_class(nbytes))


_fresh = 0
MAX_FRESH = 1 << 25


def remember(node: Any) -> None:
    """Put a recorded node onto the tape."""
    tape.append(node)
    if len(tape) >= MAX_PENDING:
        settle()


def own(value: Any, nbytes: int) -> Any:
    """`value` itself if only the caller holds it, else a copy: its bytes will be shared outside."""
    if _refcount(value) <= _OWN:
        return value
    return copied(value, value.address, nbytes)


def _calibrate_own() -> int:
    """The reference count that `own` sees for a value that its caller alone holds in a variable."""
    value = object()
    return _count_argument(value)


def _count_argument(value: Any) -> int:
    return _refcount(value)


_OWN = _calibrate_own()
