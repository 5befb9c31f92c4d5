"""What would run to compute a tensor: the kernels, the plan of its memory, as text and picture.

Nothing runs, is compiled or is recorded for good: a plan is laid out for the nodes behind the
tensor as they lie in `pending`.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import threading
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, cast

from . import config
from .autograd.api import grad
from .autograd.draw import CHARACTER_WIDTH, COLOURS, FONT, printable
from .captured.tracing import reachable
from .devices import CPU, of_tensors
from .graph.export import add_method
from .ops.creation import ones_like
from .schedule import deferred, plan_cache, settle
from .schedule.dispatch import Failed
from .schedule.gpu import lower
from .schedule.gpu.plan import GpuPlanLowering
from .schedule.graph_key import Structure, key_of, numbered, reads_of, structure_of, walk
from .schedule.planning.memory import MemorySlot
from .schedule.planning.plan import Plan
from .schedule.planning.recipe import DeviceSource, DeviceStep, Recipe
from .schedule.planning.step_info import OperandInfo, StepInfo, copy_info, node_infos
from .storage import size_class
from .tables import aligned, shortened, size
from .tensor import Tensor

if TYPE_CHECKING:
    from .schedule.gpu.run import Gpu

NOTHING = "nothing is left to run: the value is there already"


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Outline:
    """The steps that would compute something, and where their operands lie.

    `print` shows a line for each step; notebooks show the picture by themselves.

    Attributes:
        steps: the steps in order, each with its kernel, elements, what it reads and writes.
        arena: bytes of the memory that results share which only later steps read.
        fused: whether it runs as a plan; else every operation runs its own kernel.
    """

    steps: tuple[StepInfo, ...]
    arena: int
    fused: bool

    @property
    def arena_values(self) -> int:
        """Bytes that what lives in the arena would need, had each value memory of its own."""
        return sum([life.nbytes for life in self.lives() if life.kind == "arena"])

    def lives(self) -> list[Life]:
        """The memory that the steps use, from the first use to the last."""
        found: dict[Any, Life] = {}
        for at, step in enumerate(self.steps):
            for use in step.reads:
                _live(found, use, at, made=False)
            for use in step.writes:
                _live(found, use, at, made=True)
            for use in step.scratch:
                _live(found, use, at, made=True, key=("scratch", step.nodes[0]))
        return list(found.values())

    def __str__(self) -> str:
        if not self.steps:
            return NOTHING
        rows = [("step", "kernel", "elements", "reads", "writes")]
        for at, step in enumerate(self.steps):
            rows.append(
                (
                    f"{at}",
                    shortened(step.source.label, 44),
                    f"{step.elements}",
                    ", ".join([f"{use.name} {_place_text(use.place)}" for use in step.reads]),
                    ", ".join(
                        [
                            f"{use.name} {_place_text(use.place)}"
                            for use in (*step.writes, *step.scratch)
                        ]
                    ),
                )
            )
        count = len(self.steps)
        told = f"{count} step{'s' if count > 1 else ''}"
        if not self.fused:
            told += ", one for each operation: there is nothing to fuse"
        elif self.arena:
            told += f", an arena of {size(self.arena)} for {size(self.arena_values)} of values"
        else:
            told += ", no memory for values in between"
        return f"{aligned(rows, (0, 2))}\n{told}"

    __repr__ = __str__

    def svg(self) -> str:
        """The memory over the steps, as an SVG document.

        Grey bars are values from outside, blue ones live in the arena, at their height in it; green
        ones are results and other values that somebody holds. A bar begins in the step that writes
        it and ends in the last one that reads it.
        """
        return _svg(self)

    def _repr_svg_(self) -> str:
        return self.svg()


@dataclasses.dataclass(slots=True)
class Life:
    """A value's memory: where, and from which step to which."""

    name: str  # of the value in the kernel that writes it
    kind: str  # "external", "held", "arena"
    at: int
    nbytes: int
    first: int
    last: int
    made: bool  # by one of the steps


def _live(
    found: dict[Any, Life],
    use: OperandInfo,
    at: int,
    *,
    made: bool,
    key: tuple[str, int] | None = None,
) -> None:
    assert use.place is not None
    life = found.get(key or use.value)
    if life is None:
        nbytes = size_class(max(use.nbytes, 1)) if use.place.kind == "arena" else use.nbytes
        found[key or use.value] = Life(use.name, use.place.kind, use.place.at, nbytes, at, at, made)
    else:
        life.last = at


def _place_text(place: MemorySlot | None) -> str:
    assert place is not None
    at = place.at + place.extra if place.kind == "arena" else place.at
    name = {"external": "external", "held": "block", "arena": "arena+"}[place.kind]
    text = f"{name}{at}" if place.kind == "arena" else f"{name} {at}"
    return text if place.kind == "arena" or not place.extra else f"{text}+{place.extra}"


# ----- what would run -----


def outline(t: Any, backward: bool = False) -> Outline:
    """The steps that would compute a tensor, and with `backward` the gradients of its leaves."""
    with settle.lock:
        batch, held = _recorded(t, backward)
        if not batch:
            return Outline((), 0, False)
        if (
            config.EAGER
            or not plan_cache.is_on
            or sum(node.recipe.fusion.wide for node in batch) < 2
        ):
            return Outline(tuple(_one_by_one(batch)), 0, False)
        structure = _structure(batch, held, backward)
        if t.is_cuda:
            layout = _OnNoGpu(batch, structure)
            layout.build()
            notes, arena = layout.notes, layout.memory.arena.size
        else:
            plan = Plan(batch, structure, config.MIN_FUSED)
            notes, arena = plan.notes.unpacked(), plan.arena
        return Outline(tuple([note for note in notes if note.nodes]), arena, True)


def _recorded(t: Any, backward: bool) -> tuple[list[Any], list[Any]]:
    """The nodes behind a tensor, with `backward` those of the walk back too, and what of it is kept.

    Callers hold the lock.
    """
    settle.run_waiting()
    deferred.bring_back(settle.pending, everything=True)
    leaves = _leaves(t) if backward else []
    gradients = record_gradients(t, leaves)
    roots = [t._storage.value, *[g._storage.value for g in gradients if g is not None]]
    batch = reachable(roots)
    _raise_failures([*roots, *batch])
    return batch, [*roots, *[leaf._storage.value for leaf in leaves]]


def _structure(batch: list[Any], held: Sequence[Any], backward: bool) -> Structure:
    """The structure of what is recorded; after a `backward()` nothing in between is kept."""
    return _holding(batch, held) if backward else structure_of(batch, settle.pending)


def _raise_failures(nodes: Sequence[Any]) -> None:
    """Raise what went wrong with a node, or with one that it reads."""
    for node in nodes:
        for value in (node, *(node.inputs or ())):
            if isinstance(value.recipe, Failed):
                raise value.recipe.error


def kernels(t: Any, backward: bool = False, device: Any = None) -> str:
    """The sources of these steps, on the device of the tensor or on another kind of device."""
    if (t.device if device is None else of_tensors(device)).type == "cuda":
        texts = [
            f"# {source.label}, {n} units of work, {source.threads} threads a block\n{source.text}"
            for source, n, _ in device_steps(t, backward)
        ]
    else:
        texts = [
            f"# {note.source.label}, {note.elements} elements\n{note.source.text}"
            for note in outline(t, backward).steps
        ]
    return "\n\n".join(dict.fromkeys(texts)) or f"# {NOTHING}"


def device_steps(t: Any, backward: bool = False) -> list[DeviceStep]:
    """The launches that would compute a tensor on a GPU, which need not be there."""
    with settle.lock:
        batch, held = _recorded(t, backward)
        if config.EAGER or not plan_cache.is_on or len(batch) < 2:
            nodes = [node.recipe for node in batch if node.recipe.pick < 0]
            return [step for recipe in nodes for step in lower.device_steps(recipe) if step.n]
        made = _OnNoGpu(batch, _structure(batch, held, backward))
        made.build()
        return made.launches


class _OnNoGpu(GpuPlanLowering):
    """A plan for a GPU of which only the launches are looked at."""

    def __init__(self, batch: Sequence[Any], structure: Structure) -> None:
        self.launches: list[DeviceStep] = []
        self._apart: dict[Recipe, Recipe] = {}
        super().__init__(batch, structure, 1, cast("Gpu", None))

    def build(self) -> None:
        self.items = [item._replace(recipe=self._of_gpu(item.recipe)) for item in self.items]
        super().build()

    def _of_gpu(self, recipe: Recipe) -> Recipe:
        """A recipe as it is recorded on a GPU."""
        if recipe.device is not CPU:
            return recipe
        made = self._apart.get(recipe)
        if made is None:
            made = self._apart[recipe] = copy.copy(recipe)
            made.fusion = recipe.fusion._replace(finishes=False)
            made.device_steps = lower.device_steps(recipe)
            if recipe.alias is not None:
                made.alias = self._of_gpu(recipe.alias)
        return made

    def _kernel_rows(self, recipe: Recipe, row: Sequence[Any], owner: int = -1) -> None:
        if not recipe.moves:  # between devices the driver copies
            super()._kernel_rows(recipe, row, owner)

    def _call_of(self, recipe: Recipe) -> None:
        """None: what a library computes has no kernel to be shown."""

    def _launch(self, source: DeviceSource, n: int, row: Sequence[Any]) -> None:
        self.launches.append(DeviceStep(source, n))

    def _copy_row(self, old: MemorySlot, fresh: MemorySlot, nbytes: int) -> None:
        """The driver copies here too."""


def record_gradients(t: Any, leaves: Sequence[Any]) -> list[Any]:
    """The gradients of leaves, recorded as by a `backward()` that is never looked at; None for a leaf
    that is not behind the tensor. Callers hold the lock.
    """
    if not leaves:
        return []
    thread = threading.get_ident()
    before = set(settle.captured_threads)
    settle.captured_threads.add(thread)  # nothing that this thread records runs
    try:
        return list(grad(t, leaves, ones_like(t), retain_graph=True, allow_unused=True))
    finally:
        if thread not in before:
            settle.captured_threads.discard(thread)


def _leaves(t: Any) -> list[Any]:
    """The leaves behind a tensor."""
    if not t.requires_grad:
        raise RuntimeError("there is no backward to show: the tensor does not require grad")
    if t.grad_fn is None:
        return [t]
    leaves, seen, stack = [], {t.grad_fn}, [t.grad_fn]
    while stack:
        fn = stack.pop()
        if hasattr(fn, "variable"):
            leaves.append(fn.variable)
        fresh = {edge[0] for edge in fn.edges if edge is not None} - seen
        seen |= fresh
        stack += fresh
    return leaves


def _holding(batch: list[Any], values: Sequence[Any]) -> Structure:
    """The structure of a batch of which nothing but some values is held."""
    words, externals, _ = walk(batch)
    wanted = set(map(id, values))
    held = tuple([at for at, node in enumerate(batch) if id(node) in wanted])
    return Structure(key_of(words, held, ()), externals)


def _one_by_one(batch: list[Any]) -> Iterator[StepInfo]:
    """The steps of a batch that is not planned: every value in a block of its own."""
    numbers = numbered(walk(batch)[1])
    places: list[list[tuple[MemorySlot, int]]] = []
    count = 0
    for at, node in enumerate(batch):
        recipe = node.recipe
        reads = []
        for spec, (source, offset) in zip(recipe.inputs, reads_of(node, numbers), strict=True):
            if source < 0:
                reads.append((MemorySlot("external", ~source), source))
            else:
                place, number = places[source][0]
                reads.append((place._replace(extra=offset * spec.dtype.itemsize), number))
        if recipe.pick >= 0:
            places.append([places[node.inputs[0].at][recipe.pick]])
            continue
        writes = [(MemorySlot("held", count + k), count + k) for k in range(len(recipe.outputs))]
        count += len(writes)
        places.append(writes)
        if recipe.write:
            yield copy_info(recipe.steps[0].source, recipe.inputs[1], at, reads[1], writes[0])
        else:
            yield from node_infos(recipe, (at,), reads, writes)


# ----- the picture -----

_LEFT, _TOP, _MARGIN = 104.0, 44.0, 12.0
_LANE, _BAR = 20.0, 14.0
_ARENA_HEIGHT = 180.0
_MAX_LANES = 12
_STYLE = {"external": "function", "arena": "leaf", "held": "output"}


def _svg(plan: Outline) -> str:
    lives = plan.lives()
    count = max(len(plan.steps), 1)
    column = max(6.0, min(132.0, 960 / count))
    parts: list[str] = []
    y = _TOP
    for kind, title in (("external", "external"), ("arena", "arena"), ("held", "block")):
        group = [life for life in lives if life.kind == kind]
        if kind == "arena" and plan.arena:
            parts += _arena(plan, group, column, y)
            y += _ARENA_HEIGHT + 10
        elif group:
            lanes = list(dict.fromkeys(sorted([life.at for life in group])))
            for lane in lanes[:_MAX_LANES]:
                parts.append(_text(_LEFT - 10, y + 12, f"{title} {lane}", "end"))
                for life in group:
                    if life.at == lane:
                        parts.append(_bar(plan, life, column, y + 1, _BAR))
                y += _LANE
            if len(lanes) > _MAX_LANES:
                parts.append(_text(_LEFT - 10, y + 12, f"{len(lanes) - _MAX_LANES} more", "end"))
                y += _LANE
            y += 6
    if not plan.steps:
        parts.append(_text(_LEFT, _TOP, NOTHING, "start"))
    rules = [
        f"M{_LEFT + k * column:.1f},{_TOP - 6:.1f}V{y:.1f}" for k in range(len(plan.steps) + 1)
    ]
    heads: list[str] = []
    if column >= 20:
        for k, step in enumerate(plan.steps):
            middle = _LEFT + (k + 0.5) * column
            name = shortened(_operation(step.source.label), int(column / CHARACTER_WIDTH) - 1)
            heads.append(_text(middle, _TOP - 28, f"{k}", "middle", bold=True))
            heads.append(_text(middle, _TOP - 12, name, "middle"))
    width = _LEFT + max(count * column, 0 if plan.steps else 400) + _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}" '
            f'viewBox="0 0 {width:.1f} {y:.1f}" role="img" font-size="12" font-family="{FONT}">',
            "<title>memory of a plan</title>",
            f'<path d="{"".join(rules)}" stroke="#e3e6ea" stroke-width="1"/>',
            *heads,
            *parts,
            "</svg>",
            "",
        ]
    )


def _arena(plan: Outline, lives: Sequence[Life], column: float, top: float) -> Iterator[str]:
    """The arena as a field, its bytes from top to bottom."""
    wide = len(plan.steps) * column
    yield (
        f'<rect class="frame" x="{_LEFT:.1f}" y="{top:.1f}" width="{wide:.1f}" '
        f'height="{_ARENA_HEIGHT:.1f}" fill="none" stroke="{COLOURS["leaf"][1]}" '
        'stroke-dasharray="3 3"/>'
    )
    yield _text(_LEFT - 10, top + 12, "arena", "end", bold=True)
    yield _text(_LEFT - 10, top + 28, size(plan.arena), "end")
    scale = _ARENA_HEIGHT / plan.arena
    for life in lives:
        yield _bar(plan, life, column, top + life.at * scale, life.nbytes * scale)


def _bar(plan: Outline, life: Life, column: float, y: float, height: float) -> str:
    """One value: from the middle of the step that writes it to that of the last that reads it."""
    first = life.first + 0.52 if life.made else 0.0
    last = life.last + 0.48
    if life.name == "scratch":
        first, last = life.first + 0.1, life.last + 0.9
    elif life.kind == "held":
        last = len(plan.steps)
    elif life.first == life.last and life.made:
        last = life.last + 0.98
    fill, stroke = COLOURS[_STYLE[life.kind]]
    x, width = _LEFT + first * column, (last - first) * column
    told = f"{life.name}: {size(life.nbytes)}"
    if life.kind == "arena":
        told += f" at {life.at}"
    told += f", steps {life.first} to {life.last}"
    shape = (
        f'<rect class="{life.kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{max(height, 1.5):.1f}" rx="{min(4.0, height / 3):.1f}" fill="{fill}" '
        f'stroke="{stroke}"><title>{escape(told)}</title></rect>'
    )
    for label in (f"{life.name} {size(life.nbytes)}", size(life.nbytes), life.name):
        if height >= 12 and width >= len(label) * CHARACTER_WIDTH + 6:
            return shape + _text(x + width / 2, y + height / 2 + 4, label, "middle")
    return shape


def _operation(label: str) -> str:
    """A kernel's label without its dtypes, or just that it is a fused one."""
    return re.split(r"_(?:[fiu]|float|int|uint)\d|_b_| ", label)[0]


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#1d232b"{weight}>'
        f"{escape(printable(text))}</text>"
    )


def _tensor_kernels(self: Tensor, backward: bool = False, device: Any = None) -> str:
    """Show the source of the kernels that would compute this tensor from what is there already.

    Operations on large tensors are fused: several become one kernel. That is what runs once the
    same operations have been recorded before; the first time, each runs its own.

    Args:
        backward: also what would compute the gradients of the leaves, if `backward()` were
            called before anybody looked, and nothing in between were kept. Hooks on the way back
            are called.
        device: "cuda" for the kernels of the same operations on a GPU, which need not be there,
            "cpu" for those of the CPU; by default those of the device that the tensor is on.

    Raises:
        RuntimeError: with `backward`, if the tensor does not require grad.

    Example:
        >>> x = adjit.ones(5000)
        >>> "def fused_mul_add" in (x * 2 + 1).kernels()
        True
        >>> "first_unit()" in (x * 2 + 1).kernels(device="cuda")  # a thread's first element
        True
    """
    return kernels(self, backward, device)


def _tensor_plan(self: Tensor, backward: bool = False) -> Outline:
    """Show the steps that would compute this tensor, and where their operands lie.

    Values from outside are "external"; "block" is memory of its own, for what somebody holds;
    all else shares an arena, in which one value takes the place of another. `print` shows a line
    for each step, notebooks the memory as a picture, which `svg()` returns. Nothing is run.

    Args:
        backward: also what would compute the gradients of the leaves, if `backward()` were
            called before anybody looked, and nothing in between were kept. Hooks on the way back
            are called.

    Raises:
        RuntimeError: with `backward`, if the tensor does not require grad.

    Example:
        >>> x = adjit.tensor([1.0] * 5000)
        >>> print((x * 2 + 1).sum().plan())
        step  kernel               elements  reads          writes
        ----  -------------------  --------  -------------  ------------
           0  fused mul, add, sum      5000  x0 external 0  sum0 block 0
        ----  -------------------  --------  -------------  ------------
        1 step, no memory for values in between
    """
    return outline(self, backward)


add_method("kernels", _tensor_kernels)
add_method("plan", _tensor_plan)
