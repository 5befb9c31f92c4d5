"""How a convolution is cut into the steps of `kernels/ops/conv.py`: all that does not depend on numbers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..dtypes import dtype
from ..graph.node import Spec
from ..kernels.language import processor
from ..kernels.ops import conv as kernels
from ..kernels.ops import conv_tile, dot_tile, gemm_tile
from ..schedule.jit.cache import addresses
from ..schedule.jit.modules import emitted
from ..shapes import Shape, numel
from ..unknown import cached
from .dots import are_worth_it, panel_of, segment_dots

GRAIN = 1 << 18  # multiplications below which a part is not worth a thread
PACK_GRAIN = 1 << 15
PIXELS = 256  # of a box at most
FEW = 16  # pixels of a convolution whose weight is not packed, at most
FEW_PIXELS = 48  # of a box at least, where the image has as many
BOXES = 8  # units that a convolution is cut into at least, where that leaves FEW_PIXELS
REGION_BYTES = 1 << 20  # at most, where boxes can be made smaller
DOT_PIXELS = 1 << 10  # of a box whose few columns are dot products
FOLD, DOT_GAIN = (
    3,
    1.5,
)  # vectors that a dot product takes beside its own, and how much less they have to be
DEPTHWISE_BYTES = 1 << 18  # of the pixels of a depthwise box
SKIPPING = 6  # times the taps of an axis: images of fewer lines leave out lines that are zeros
SUM_BYTES = 1 << 21  # of the sums of several chunks
CHUNKS = 16  # units that a gradient of the weight is cut into at least


class Geometry:
    """What a convolution and its gradients know: sizes, and how taps step over the image.

    `image` and `out` are sizes without batch and channels, `padding` is what comes before an axis:
    how much comes after it follows from the sizes. Equal ones are one object: see `geometry_of`.
    """

    __slots__ = ("dilation", "groups", "image", "kernel", "out", "padding", "stride")

    def __init__(
        self, image: Shape, out: Shape, kernel: Shape, stride: Shape, padding: Shape,
        dilation: Shape, groups: int,
    ) -> None:  # fmt: skip
        self.image, self.out, self.kernel = image, out, kernel
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups

    @property
    def is_pointwise(self) -> bool:
        """Whether a result is a product of the matrix of all pixels and the weight."""
        ones = (1,) * len(self.kernel)
        return self.groups == 1 and self.kernel == self.stride == ones and self.image == self.out

    def lifted(self) -> Geometry:
        """The same with three axes."""
        more = 3 - len(self.kernel)
        if not more:
            return self
        ones, zeros = (1,) * more, (0,) * more
        return Geometry(
            ones + self.image, ones + self.out, ones + self.kernel, ones + self.stride,
            zeros + self.padding, ones + self.dilation, self.groups,
        )  # fmt: skip


geometry_of = cached(4096)(Geometry)


def lifted(values: Shape, fill: int) -> Shape:
    """Sizes or strides of a tensor as if it had three axes after batch and channels."""
    return (*values[:2], *[fill] * (5 - len(values)), *values[2:])


class ConvPlan(NamedTuple):
    """What `launch` is told: the shape of the result, channels last, and the steps."""

    shape: Shape
    steps: list[tuple[Any, int, int]]
    words: tuple[int, ...]
    scratch: int
    finishes: bool = False  # whether its kernel can do more to the result


class Taps(NamedTuple):
    """One axis of a phase: its pixels, where the first lies in the result, and its taps.

    A tap is its index in the weight and the offset in the source from pixel 0; they are in the order
    of their offsets.
    """

    extent: int
    first: int
    taps: tuple[tuple[int, int], ...]

    @property
    def start(self) -> int:
        """The offset of the first tap."""
        return self.taps[0][1] if self.taps else 0

    @property
    def apart(self) -> int:
        """From one tap to the next: the distance is always the same."""
        return self.taps[1][1] - self.taps[0][1] if len(self.taps) > 1 else 1

    @property
    def reach(self) -> int:
        """From the first tap to one past the last."""
        return self.taps[-1][1] - self.start + 1 if self.taps else 1


Phase = tuple[Taps, ...]


def forward_phases(geometry: Geometry) -> list[Phase]:
    """The one phase of a convolution."""
    axes = zip(geometry.out, geometry.kernel, geometry.padding, geometry.dilation, strict=True)
    return [tuple(Taps(n, 0, tuple((i, i * d - p) for i in range(k))) for n, k, p, d in axes)]


def backward_phases(geometry: Geometry) -> list[Phase]:
    """The phases of the gradient of an image, whose pixel i sees tap k at (i + p - k * d) / s."""
    axes = []
    for size, taps, s, p, d in zip(
        geometry.image, geometry.kernel, geometry.stride, geometry.padding, geometry.dilation,
        strict=True,
    ):  # fmt: skip
        phases = []
        for first in range(min(s, size)):
            seen = [
                (k, (first + p - k * d) // s) for k in range(taps) if (first + p - k * d) % s == 0
            ]
            seen.sort(key=lambda tap: tap[1])
            phases.append(Taps(-(-(size - first) // s), first, tuple(seen)))
        axes.append(phases)
    return list(itertools.product(*axes))


@functools.cache
def functions(kind: dtype) -> dict[str, int]:
    """The addresses of the emitted functions."""
    names = (
        "pack", "pack_places", "rows", "steps", "copy_steps", "dots", "depthwise_rows", "depthwise_steps",
    )  # fmt: skip
    found = addresses(emitted("conv", conv_tile.emit, kind.name))
    return dict(zip(names, found, strict=True))


def rounded(nbytes: int) -> int:
    """Bytes rounded up to whole lines of a cache."""
    return nbytes + -nbytes % kernels.LINE


def dense_last(sizes: Sequence[int], channels: int) -> Shape:
    """The strides of the batch and three axes, channels last, in elements."""
    strides = [channels]
    for size in reversed(sizes):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))


def tap_product(phase: Phase) -> Any:
    """The taps of all axes together: for each an index and an offset along every axis."""
    return itertools.product(*[axis.taps for axis in phase])


class ConvLayout:
    """How the pixels of some phases see a source: words for the kernels, and the room that takes.

    `depth` is the number of channels that a pixel sees, `room` the number of pixels of a box.
    """

    def __init__(
        self, kind: dtype, source: Shape, strides: Shape, depth: int, phases: list[Phase],
        step: Shape, room: int, *, is_depthwise: bool, joins: bool = False,
    ) -> None:  # fmt: skip
        self.size, self.depth, self.phases = kind.itemsize, depth, phases
        self.batch, self.sizes = source[0], source[2:]
        # Where taps have to join, they are copied side by side.
        self.copies = (depth > 1 and strides[1] != 1) or (joins and strides[4] != depth)
        for phase in phases:
            for axis, size, apart in zip(phase, self.sizes, step, strict=True):
                last = (axis.extent - 1) * apart + axis.start + axis.reach - 1
                self.copies |= bool(axis.taps) and (axis.start < 0 or last >= size)
        # Pixels that are a multiple of 8 vectors apart would share few sets of a cache.
        lanes = gemm_tile.lanes_of(self.size)
        self.pitch = depth + (is_depthwise and depth % (8 * lanes) == 0) * lanes
        extents = [max(phase[a].extent for phase in phases) for a in range(3)]
        reach = [max(phase[a].reach for phase in phases) for a in range(3)]
        while True:
            self.box = box_of((self.batch, *extents), room)
            region = [(n - 1) * s + r for n, s, r in zip(self.box[1:], step, reach, strict=True)]
            steps = dense_last(region, self.pitch)
            self.region_bytes = self.copies * self.box[0] * steps[0] * self.size
            if self.region_bytes <= REGION_BYTES or room <= FEW_PIXELS:
                break
            room //= 2
        if not self.copies:
            steps = strides[0], *strides[2:]
        self.steps = steps
        self.boxes = sum(
            numel(-(-n // b) for n, b in zip((self.batch, *extent), self.box, strict=True))
            for extent in ([axis.extent for axis in phase] for phase in phases)
        )
        self.words = {
            "item_bytes": self.size, "batch": self.batch, "depth": depth, "copies": self.copies,
            "region_bytes": rounded(self.region_bytes),
            **numbered("source", (strides[0], *strides[2:])), "source_channel": strides[1],
            **numbered("source_size", (0, *self.sizes)), "region_pitch": self.pitch,
            **numbered("region", (0, *region)), **numbered("box", self.box),
            **numbered("step", (0, *step)),
            **numbered("pixel", (steps[0], *[n * s for n, s in zip(steps[1:], step, strict=True)])),
            "phases": len(phases),
        }  # fmt: skip

    def table_bytes(self) -> int:
        """The head of a slot: the box, and the addresses of pixels and targets."""
        return rounded(8 * (kernels.BOX_WORDS + 2 * numel(self.box) + 2)) + kernels.LINE

    def offsets(self, phase: Phase) -> list[int]:
        """Where a pixel sees each tap, in bytes."""
        starts = [axis.start for axis in phase]
        return [
            self.size * sum(
                (offset - start) * step
                for (_, offset), start, step in zip(tap, starts, self.steps[1:], strict=True)
            )
            for tap in tap_product(phase)
        ]  # fmt: skip

    def segments(self, phase: Phase) -> list[tuple[int, int]]:
        """What a pixel sees, as offset and length in bytes: taps side by side are one."""
        found: list[tuple[int, int]] = []
        for offset in self.offsets(phase):
            length = self.depth * self.size
            if found and sum(found[-1]) == offset:
                offset, before = found.pop()
                length += before
            found.append((offset, length))
        return found

    def has_lines(self, phase: Phase) -> bool:
        """Whether each segment is what a pixel sees of one line, so that lines can be left out."""
        line = self.depth * self.size * len(phase[2].taps)
        lengths = [length for _, length in self.segments(phase)]
        return len(phase[0].taps) == 1 and lengths == [line] * len(phase[1].taps)

    def lay(
        self, lists: list[list[list[int]]], phase_words: list[dict[str, int]], **more: int
    ) -> Shape:
        """All words of a pass: its own, those of its phases, and their lists."""
        words = {**self.words, **more}
        flat: list[int] = []
        first = kernels.FIRST_PHASE + len(self.phases) * kernels.PHASE_WORDS
        laid = [words.get(name, 0) for name in kernels.PASS]
        for phase, own, (taps, segments) in zip(self.phases, phase_words, lists, strict=True):
            values = {
                **numbered("extent", (0, *[axis.extent for axis in phase])),
                **numbered("start", (0, *[axis.start for axis in phase])),
                **numbered("reach", (0, *[axis.reach for axis in phase])),
                "taps": numel(len(axis.taps) for axis in phase), "tap_list": first + len(flat),
                "segments": len(segments) // 2, "segment_list": first + len(flat) + len(taps),
                **own,
            }  # fmt: skip
            flat += [*taps, *segments]
            values["offset_list"] = first + len(flat)
            flat += [offset for tap in tap_product(phase) for _, offset in tap]
            laid += [values.get(name, 0) for name in kernels.PHASE]
        return tuple(int(word) for word in (*laid, *flat))


def numbered(name: str, values: Sequence[int]) -> dict[str, int]:
    """Words of a batch and three axes by their names."""
    return dict(zip([f"{name}_{a}" for a in ("batch", 0, 1, 2)], values, strict=True))


def box_of(extents: Sequence[int], room: int) -> Shape:
    """The sizes of boxes of at most `room` pixels that cut extents evenly, the last axis first."""
    box = []
    for size in reversed(extents):
        count = -(-size // max(room, 1))
        box.append(-(-size // count))
        room //= box[-1]
    return tuple(reversed(box))


def parts_of(units: int, work: int, threads: int) -> tuple[int, int]:
    """The grain of a step whose units take so much work, and the slots that its parts need.

    There are no more parts than threads now, so that there is not much scratch memory.
    """
    grain = max(1, GRAIN // max(work, 1), units // threads)
    return grain, max(units // grain, 1)


def gains_by_dots(phases: list[Phase], depth: int, columns: int, groups: int, lanes: int) -> bool:
    """Whether few columns are dot products along what a pixel sees: else they are a few lanes of a vector."""
    numbers = vectors = 0
    for phase in phases:
        along = len(phase[2].taps)
        together = along if phase[2].apart == 1 else 1
        segments = numel(len(axis.taps) for axis in phase) // max(together, 1)
        numbers += segments * together * depth
        vectors += segments * -(-together * depth // lanes)
    if depth == columns == 1 < groups:  # vectors of channels are what others are
        columns = groups
    return are_worth_it(columns, lanes, vectors, numbers, len(phases))


@cached(4096)
def plan_convolve(
    image: Spec, filters: Spec, given: Geometry, threads: int, *, is_backward: bool, has_bias: bool
) -> ConvPlan:
    """A convolution of an image, or with `is_backward` the gradient of one, by its result's."""
    kind, geometry = image.dtype, given.lifted()
    size, groups, kernel = kind.itemsize, geometry.groups, geometry.kernel
    source, strides = lifted(image.shape, 1), lifted(image.strides, 0)
    weight, weight_strides = lifted(filters.shape, 1), lifted(filters.strides, 0)
    depth = source[1] // groups
    columns = weight[1] if is_backward else weight[0] // groups
    phases = backward_phases(geometry) if is_backward else forward_phases(geometry)
    out = geometry.image if is_backward else geometry.out
    one = (1, 1, 1)
    step, apart = (one, geometry.stride) if is_backward else (geometry.stride, one)
    by_dots = gains_by_dots(phases, depth, columns, groups, gemm_tile.lanes_of(size))
    is_depthwise = depth == columns == 1 < groups and not by_dots
    panel = gemm_tile.WIDTH * gemm_tile.lanes_of(size)
    if by_dots:
        panel = panel_of(columns)
    panels = -(-columns // panel)
    pixels = source[0] * numel(out) // len(phases)
    if source[0] * numel(geometry.out) <= FEW and filters.contiguous and not is_depthwise:
        plan_few = plan_spread if is_backward else plan_dots
        return plan_few(image, filters, given, threads, has_bias=has_bias)
    seen = groups if is_depthwise else depth
    if is_depthwise:
        most = max(PIXELS, DEPTHWISE_BYTES // (seen * size))
    elif by_dots:
        most = DOT_PIXELS
    else:  # few columns do little with what is copied, of which larger boxes share more
        most = PIXELS * max(1, panel // (2 * columns))
    room = pixels // BOXES if is_depthwise else pixels * panels * groups // BOXES
    room = max(FEW_PIXELS, min(most, room))
    layout = ConvLayout(
        kind, source, strides, seen, phases, step, room, is_depthwise=is_depthwise,
        joins=by_dots and kernel[2] > 1,
    )  # fmt: skip
    total = columns * groups
    target = dense_last(out, total)
    packed = 0
    lists, phase_words = [], []
    for phase in phases:
        places = [
            sum(k * s for (k, _), s in zip(tap, weight_strides[2:], strict=True))
            for tap in tap_product(phase)
        ]
        if is_depthwise:
            seen_at = layout.offsets(phase)
            panel_bytes = rounded(len(places) * total * size)
        elif by_dots:
            seen_at = [*itertools.chain.from_iterable(layout.segments(phase))]
            panel_bytes = rounded(len(places) * depth * size) * panel
        else:
            seen_at = [*itertools.chain.from_iterable(layout.segments(phase))]
            # `pack` writes whole squares, and threads must not write into each other's panels.
            panel_bytes = (len(places) * depth + gemm_tile.lanes_of(size)) * panel * size
        first = sum(axis.first * s for axis, s in zip(phase, target[1:], strict=True))
        own = {"out": first, "packed_bytes": packed, "panel_bytes": panel_bytes}
        phase_words.append({**own, "lines_apart": phase[1].apart})
        lists.append([places, seen_at])
        packed += panel_bytes * (1 if is_depthwise else panels * groups)
    slot = layout.table_bytes() + rounded(max(panel, total) * size) + rounded(layout.region_bytes)
    # A weight that is read once is packed where it is read.
    packs = not is_depthwise and layout.boxes == len(phases)
    if packs:
        packed = 0
        slot += max(words["panel_bytes"] for words in phase_words)
    units = layout.boxes if is_depthwise else layout.boxes * panels * groups
    work = numel(layout.box) * depth * numel(kernel) // len(phases)
    work *= groups if is_depthwise else min(panel, columns)
    # Phases have different numbers of taps: with more parts the threads come out even.
    part, slots = parts_of(units, work, threads if len(phases) == 1 else 2 * threads)
    skips = (
        not is_depthwise
        and layout.copies
        and out[1] < SKIPPING * kernel[1]
        and all(layout.has_lines(phase) for phase in phases)
    )
    tiles = functions(kind)
    multiply = tiles["depthwise_rows" if is_depthwise else "rows"]
    if by_dots:
        multiply = segment_dots(kind)
    manner = kernels.APART if by_dots else kernels.LINES
    if filters.contiguous and numel(kernel) > 1 and not by_dots:
        manner = kernels.NUMBERS if is_backward else kernels.SQUARES
    words = layout.lay(
        lists, phase_words,
        pack=tiles["pack"], pack_places=tiles["pack_places"],
        multiply=multiply, dot_rows=by_dots and dot_tile.dot_rows(panel),
        groups=groups, columns=columns, panel=panel, panels=panels,
        **numbered("out", (target[0], *[n * s for n, s in zip(target[1:], apart, strict=True)])),
        has_bias=has_bias, manner=manner, packs=packs, skips=skips,
        side_by_side=not layout.copies and layout.steps[3] * step[2] == depth * numel(kernel),
        weight_group=weight_strides[0] * (depth if is_backward else columns),
        weight_column=weight_strides[1] if is_backward and not is_depthwise else weight_strides[0],
        weight_depth=weight_strides[0 if is_backward else 1],
        shared_bytes=packed, slot_bytes=slot, part=part,
    )  # fmt: skip
    convolve = kernels.convolve_depthwise if is_depthwise else kernels.convolve
    steps = [(convolve, units, part)]
    if is_depthwise:
        taps = sum(len(places) for places, _ in lists)
        steps.insert(0, (kernels.pack_depthwise, taps, PACK_GRAIN // total + 1))
    elif not packs:
        numbers = depth * numel(kernel) * panel // len(phases)
        grain = PACK_GRAIN // max(numbers, 1) + 1
        steps.insert(0, (kernels.pack_weight, len(phases) * groups * panels, grain))
    shape = source[0], *(given.image if is_backward else given.out), total
    return ConvPlan(shape, steps, words, packed + slots * slot, finishes=True)


def lay_few(
    kind: dtype, image: Shape, strides: Shape, geometry: Geometry, **words: int
) -> tuple[Shape, int]:
    """The words of a convolution of few pixels, which begin with the image, and how many there are."""
    phases, pixels = forward_phases(geometry), image[0] * numel(geometry.out)
    layout = ConvLayout(
        kind, image, strides, image[1] // geometry.groups, phases, geometry.stride, pixels,
        is_depthwise=False,
    )  # fmt: skip
    offsets = [offset for tap in tap_product(phases[0]) for _, offset in tap]
    return layout.lay([[offsets, []]], [{}], groups=geometry.groups, **words), pixels


def plan_dots(
    image: Spec, filters: Spec, given: Geometry, threads: int, *, has_bias: bool
) -> ConvPlan:
    """A convolution of few pixels: a copy of what they see, and dot products with the weight as it
    lies, which would take longer to pack.
    """
    kind, groups, columns = image.dtype, given.groups, filters.shape[0] // given.groups
    length, panel = (
        numel(filters.shape[1:]),
        conv_tile.dot_columns(gemm_tile.lanes_of(kind.itemsize)),
    )
    panels = -(-columns // panel)
    words, pixels = lay_few(
        kind, lifted(image.shape, 1), lifted(image.strides, 0), given.lifted(),
        multiply=functions(kind)["dots"], columns=columns, panel=panel, panels=panels,
        has_bias=has_bias,
    )  # fmt: skip
    part, _ = parts_of(groups * panels, pixels * panel * length, threads)
    steps = [
        (kernels.unfold_pixels, groups * pixels, PACK_GRAIN // length + 1),
        (kernels.dot_pixels, groups * panels, part),
    ]
    shape = image.shape[0], *given.out, columns * groups
    scratch = groups * pixels * length * kind.itemsize
    return ConvPlan(shape, steps, words, scratch, finishes=True)


def plan_spread(
    upper: Spec, filters: Spec, given: Geometry, threads: int, *, has_bias: bool
) -> ConvPlan:
    """The gradient of an image by that of few pixels: products with the weight as it lies."""
    kind, geometry, groups = upper.dtype, given.lifted(), given.groups
    size, total, depth = kind.itemsize, filters.shape[0], filters.shape[1]
    image, taps = (upper.shape[0], depth * groups, *geometry.image), numel(geometry.kernel)
    panel, strides = (
        gemm_tile.WIDTH * gemm_tile.lanes_of(size),
        dense_last(geometry.image, depth * groups),
    )
    panels, upper_strides = -(-depth // panel), lifted(upper.strides, 0)
    pixels = upper.shape[0] * numel(geometry.out)
    part, slots = parts_of(groups * panels, pixels * panel * taps * total // groups, threads)
    shared, slot = rounded((16 + pixels * size) * total), rounded(pixels * panel * taps * size)
    words, _ = lay_few(
        kind, image, (strides[0], 1, *strides[1:]), geometry,
        multiply=functions(kind)["steps"], columns=total // groups, panel=panel, panels=panels,
        **numbered("out", (upper_strides[0], *upper_strides[2:])), out_channel=upper_strides[1],
        has_bias=has_bias, shared_bytes=shared, slot_bytes=slot, part=part,
    )  # fmt: skip
    steps = [
        (kernels.turn_pixels, total, PACK_GRAIN // pixels + 1),
        (kernels.spread_pixels, groups * panels, part),
    ]
    return ConvPlan((image[0], *given.image, image[1]), steps, words, shared + slots * slot)


@cached(4096)
def plan_correlate(image: Spec, upper: Spec, given: Geometry, threads: int) -> ConvPlan:
    """The gradient of a weight, by an image and the gradient of the result, channels last."""
    kind, geometry = image.dtype, given.lifted()
    size, groups, kernel = kind.itemsize, geometry.groups, geometry.kernel
    source, strides = lifted(image.shape, 1), lifted(image.strides, 0)
    channels, upper_strides = upper.shape[1], lifted(upper.strides, 0)
    depth, columns = source[1] // groups, channels // groups
    lanes = gemm_tile.lanes_of(size)
    panel = gemm_tile.WIDTH * lanes
    phases = forward_phases(geometry)
    is_depthwise = depth == columns == 1 < groups
    seen = groups if is_depthwise else depth
    taps, pixels = numel(kernel), source[0] * numel(geometry.out)
    room = PIXELS
    if is_depthwise:
        room = max(FEW_PIXELS, min(max(PIXELS, DEPTHWISE_BYTES // (seen * size)), pixels // BOXES))
    layout = ConvLayout(
        kind, source, strides, seen, phases, geometry.stride, room, is_depthwise=is_depthwise
    )
    length = taps * depth
    offsets = layout.offsets(phases[0])
    segments = layout.segments(phases[0])
    widths = [width // size for _, width in segments]
    manner = kernels.BY_SEGMENT
    panels = sum(-(-width // panel) for width in widths)
    vectors = columns * sum(-(-width // lanes) for width in widths)
    if is_depthwise:
        panels = 1
    elif -(-columns // lanes) * sum(width + width % 2 for width in widths) < vectors:
        manner, panels = kernels.BY_CHANNEL, -(-columns // panel)
    elif taps > 1 and pixels < columns:  # copying what is seen costs less than sorting the sums
        manner, panels = kernels.BY_TAP, -(-length // panel)
    units = 1 if is_depthwise else groups * panels
    enough = BOXES if is_depthwise else -(-CHUNKS // units)
    chunks = min(layout.boxes, enough, SUM_BYTES // (channels * length * size))
    chunks = max(1, chunks)
    units *= chunks
    by_tap, by_channel = manner == kernels.BY_TAP, manner == kernels.BY_CHANNEL
    sorts = is_depthwise or chunks > 1 or by_channel or (taps > 1 and not by_tap)
    sums = rounded(chunks * channels * length * size) if sorts else 0
    part, slots = parts_of(units, channels * length * pixels // units, threads)
    slot = layout.table_bytes() + rounded(layout.region_bytes)
    slot += rounded(8 * numel(layout.box)) + kernels.LINE
    # With AVX-512 a step has several lines of a panel: there it is read where it lies.
    rows = max(widths) if by_channel else columns
    packs = not (by_tap or is_depthwise or processor.MASKS_STORES) and rows > 2 * gemm_tile.HEIGHT
    slot += (by_tap or packs) * numel(layout.box) * panel * size
    words = layout.lay(
        [[offsets, [*itertools.chain.from_iterable(segments)]]], [{}],
        multiply=functions(kind)["depthwise_steps" if is_depthwise else "steps"],
        pack=functions(kind)["copy_steps"] if packs else 0,
        groups=groups, columns=columns, panel=panel, panels=panels,
        **numbered("out", (upper_strides[0], *upper_strides[2:])),
        manner=manner, chunks=chunks, sum_chunk=channels * length,
        sum_group=columns * length, sum_column=1 if by_channel else length,
        sum_step=columns if by_channel else 1,
        weight_column=columns, weight_depth=length if by_tap else seen,
        weight_taps=1 if by_tap else taps,
        shared_bytes=sums, slot_bytes=slot, part=part,
    )  # fmt: skip
    steps = [(kernels.correlate_depthwise if is_depthwise else kernels.correlate, units, part)]
    if sorts:
        grain = PACK_GRAIN // (chunks * length) + 1
        steps.append((kernels.gather_weight, 1 if is_depthwise else channels, grain))
    return ConvPlan((channels, depth, *given.kernel), steps, words, sums + slots * slot)
