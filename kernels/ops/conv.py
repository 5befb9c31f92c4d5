"""Convolutions: of an image by a weight, and both ways back.

Everything is a product of matrices whose left or right operand is never written down. With channels
last, what one output *pixel* sees under one *tap* of the weight is a run of neighbouring numbers; taps
that lie side by side join to one *segment*. A table gives the address of every pixel, a short list the
segments relative to it, and the tiles below read the image through both:

    convolve    out[pixel, column] = sum over segments of image[pixel + segment] * weight[.., column]
    correlate   gradient[segment, column] = sum over pixels of image[pixel + segment] * g[pixel, column]

The gradient of the image is a `convolve` of `g`. Where the stride is above 1 it falls into *phases*:
the pixels of the image that see the same taps. Strides, dilations and up to three axes are all in the
tables. Pixels are computed in *boxes* of a few hundred. What a box sees is copied into a *region* with
channels last and zeros around it, unless it can be read where it lies; a region stays in cache, and so
the copy costs little. The weight is packed into *panels* of as many columns as a tile has.

An element is summed up in one order that shapes and layouts alone decide, not the threads.

Of small images a good part of what the taps see is padding: boxes are then computed line by line, and
lines of taps outside of the image are left out, as oneDNN does.

Of a few pixels the products take less time than packing the weight, which is then multiplied as it
lies: what the pixels see is copied in the order of a line of the weight, for dot products with it; on
the way back, products of the gradient and the weight are added up where the taps lie.

With one channel in and out of each group (depthwise) no matrix is left; these have tiles of their own,
which multiply vectors of channels.

Of a few columns a vector would hold hardly anything: dot products are made of them, along what a pixel
sees.

Measured on one core of Zen 4 (peak 118 GFLOP/s in float32) beside PyTorch with oneDNN, on its default
layout and on channels last, by the processor's time; `bench/conv.py` prints a whole table. GFLOP/s:

                                  forward         image           weight
    8x64x56x56, 3x3            108  103  111   108  100  112   103   90   95
    8x128x28x28, 3x3           109  107  113   109  106  114   105  100   99
    8x256x14x14, 3x3           112  116  116   112  113  114   102   92   95
    8x512x7x7, 3x3             109  120  112   110  119  108    94   65   74
    16x256x4x4, 3x3            112  133  120   108  124  119    94   88   77
    8x3x224x224 to 64, 7x7 / 2  98   53   98    20   19   20    93   86   85
    8x144x56x56 to 24, 1x1      75   54   40    72   46   48    69   52   54
    8x960x7x7 to 320, 1x1       97   69   83    92   61   77    97   91   90
    8x144x56x56, depthwise      24   13   18    24   12   17    16   11   14
    8x960x7x7, depthwise        36   20   48    37   17   26    37   26   38

Zeros that are left out count as done, in both libraries.

CPU side below, the CUDA side at the end.
"""

import math
from operator import add

from ..language.abi import (
    T,
    at,
    call,
    helper,
    kernel,
    quotient,
    remainder,
    shifted,
    stack_words,
    words,
)
from ..language.device import all_threads, first_unit, lane, on_device
from ..language.lanes import fold, spread
from ..language.processor import VECTOR_BYTES
from .conv_tile import DOT_ROWS, TALLEST, TOGETHER
from .gemm_tile import HEIGHT

# --------------------------------------------------------------------------- layout of the words

# Strides are in elements; what `bytes` stands in, and the offsets of segments, are in bytes. The axes
# 0, 1 and 2 are depth, height and width. After the functions and sizes come: the source and what of it
# is copied; boxes, and the steps from pixel to pixel in the source, the region and the result; the
# weight; sums over chunks of boxes; scratch memory, shared first and then a slot for each part; what is
# done to the results last: its steps, and the places in the row of what they read.
PASS = (
    "item_bytes", "pack", "pack_places", "multiply",
    "batch", "groups", "depth", "columns", "panel", "panels",
    "source_batch", "source_channel", "source_0", "source_1", "source_2",
    "source_size_0", "source_size_1", "source_size_2",
    "copies", "region_bytes", "region_pitch", "region_0", "region_1", "region_2",
    "box_batch", "box_0", "box_1", "box_2", "step_0", "step_1", "step_2",
    "pixel_batch", "pixel_0", "pixel_1", "pixel_2",
    "out_batch", "out_channel", "out_0", "out_1", "out_2",
    "has_bias", "side_by_side", "packs", "skips",
    "weight_group", "weight_column", "weight_depth", "weight_taps",
    "manner", "chunks", "sum_chunk", "sum_group", "sum_column", "sum_step",
    "shared_bytes", "slot_bytes", "part", "phases",
    "finishes", "scale", "shift", "residual", "bounds", "dot_rows",
)  # fmt: skip
(
    ITEM_BYTES, PACK, PACK_PLACES, MULTIPLY, BATCH, GROUPS, DEPTH, COLUMNS, PANEL, PANELS,
    SOURCE_BATCH, SOURCE_CHANNEL, SOURCE_0, SOURCE_1, SOURCE_2,
    SOURCE_SIZE_0, SOURCE_SIZE_1, SOURCE_SIZE_2,
    COPIES, REGION_BYTES, REGION_PITCH, REGION_0, REGION_1, REGION_2,
    BOX_BATCH, BOX_0, BOX_1, BOX_2, STEP_0, STEP_1, STEP_2,
    PIXEL_BATCH, PIXEL_0, PIXEL_1, PIXEL_2, OUT_BATCH, OUT_CHANNEL, OUT_0, OUT_1, OUT_2,
    HAS_BIAS, SIDE_BY_SIDE, PACKS, SKIPS, WEIGHT_GROUP, WEIGHT_COLUMN, WEIGHT_DEPTH, WEIGHT_TAPS,
    MANNER, CHUNKS, SUM_CHUNK, SUM_GROUP, SUM_COLUMN, SUM_STEP,
    SHARED_BYTES, SLOT_BYTES, PART, PHASES,
    FINISHES, SCALE, SHIFT, RESIDUAL, BOUNDS, ROWS_OF_DOTS,
) = range(len(PASS))  # fmt: skip
FIRST_PHASE = len(PASS)

# The words of a phase: its pixels, where the region of pixel 0 begins and how much of the source a
# pixel sees, where its pixel 0 lies in the result, then its taps.
PHASE = (
    "extent_0", "extent_1", "extent_2", "start_0", "start_1", "start_2",
    "reach_0", "reach_1", "reach_2", "out", "packed_bytes", "panel_bytes",
    "taps", "tap_list", "segments", "segment_list", "lines_apart", "offset_list",
)  # fmt: skip
(
    EXTENT_0, EXTENT_1, EXTENT_2, START_0, START_1, START_2,
    REACH_0, REACH_1, REACH_2, OUT, PACKED_BYTES, PANEL_BYTES,
    TAPS, TAP_LIST, SEGMENTS, SEGMENT_LIST, LINES_APART, OFFSET_LIST,
) = range(len(PHASE))  # fmt: skip
PHASE_WORDS = len(PHASE)

# How a weight is packed: by squares of its columns and (depth, taps), which are all of a phase and in
# C order; number by number, where neighbours are columns or depths of other taps; tap by tap; or, for
# dot products, each column for itself.
SQUARES, NUMBERS, LINES, APART = range(4)

# How `correlate` makes a product: columns of the result are those of the segments, or of the weight in
# its own order, which takes a copy of every number that a pixel sees, or the channels of `g`.
BY_SEGMENT, BY_TAP, BY_CHANNEL = range(3)

# Words of a box, at the begin of a slot.
CORNER, SIZES, BOX_WORDS = 0, 4, 8

LINE = 64  # bytes of a line of a cache, where tables, copies and regions begin
AFTER = 6  # words of what happens to results before they are stored: see `conv_tiles.py`

DEPTH_BLOCK = 1024  # numbers of a panel, with which it stays in an L2 cache beside a region

# --------------------------------------------------------------------------- boxes


@helper
def boxes_along(c, phase, axis):
    """Into how many boxes an axis of a phase is cut."""
    return (phase[EXTENT_0 + axis] + c[BOX_0 + axis] - 1) // c[BOX_0 + axis]


@helper
def boxes_of(c, phase):
    """Into how many boxes a phase is cut."""
    count = (c[BATCH] + c[BOX_BATCH] - 1) // c[BOX_BATCH]
    for axis in range(3):
        count *= boxes_along(c, phase, axis)
    return count


@helper
def find_box(c, index, box):
    """Write the corner and the sizes of a box; the phase that it belongs to."""
    phase = shifted(c, FIRST_PHASE)
    while index >= boxes_of(c, phase):
        index -= boxes_of(c, phase)
        phase = shifted(phase, PHASE_WORDS)
    for axis in range(2, -1, -1):
        count = boxes_along(c, phase, axis)
        first = index % count * c[BOX_0 + axis]
        box[CORNER + 1 + axis] = first
        box[SIZES + 1 + axis] = min(c[BOX_0 + axis], phase[EXTENT_0 + axis] - first)
        index //= count
    box[CORNER] = index * c[BOX_BATCH]
    box[SIZES] = min(c[BOX_BATCH], c[BATCH] - box[CORNER])
    return phase


@helper
def fill_region(source, region, c, phase, box, zero):
    """Copy what a box of pixels sees, channels last, with zeros where that is outside the source."""
    channels, channel, line = c[DEPTH], c[SOURCE_CHANNEL], c[SOURCE_2]
    pitch = c[REGION_PITCH]
    z = phase[START_0] + box[CORNER + 1] * c[STEP_0]
    y = phase[START_1] + box[CORNER + 2] * c[STEP_1]
    x = phase[START_2] + box[CORNER + 3] * c[STEP_2]
    layers = (box[SIZES + 1] - 1) * c[STEP_0] + phase[REACH_0]
    height = (box[SIZES + 2] - 1) * c[STEP_1] + phase[REACH_1]
    width = (box[SIZES + 3] - 1) * c[STEP_2] + phase[REACH_2]
    first = min(max(-x, 0), width)
    last = max(first, min(c[SOURCE_SIZE_2] - x, width))
    for n in range(box[SIZES]):
        for k in range(layers):
            for j in range(height):
                row = ((n * c[REGION_0] + k) * c[REGION_1] + j) * c[REGION_2]
                target = shifted(region, row * pitch)
                low, high = first, last
                if not (0 <= z + k < c[SOURCE_SIZE_0] and 0 <= y + j < c[SOURCE_SIZE_1]):
                    low, high = width, width
                for i in range(low * pitch):
                    target[i] = zero
                for i in range(high * pitch, width * pitch):
                    target[i] = zero
                if low == high:
                    continue
                offset = (box[CORNER] + n) * c[SOURCE_BATCH]
                offset += (z + k) * c[SOURCE_0] + (y + j) * c[SOURCE_1] + x * line
                here = shifted(source, offset)
                if channel == 1 and line == pitch:
                    for i in range(low * pitch, high * pitch):
                        target[i] = here[i]
                elif channel == 1:
                    for w in range(low, high):
                        for i in range(channels):
                            target[w * pitch + i] = here[w * line + i]
                elif line == 1 and pitch == channels == 3:  # an image's colours, vector by vector
                    green, blue = shifted(here, channel), shifted(here, 2 * channel)
                    for w in range(low, high):
                        target[3 * w] = here[w]
                        target[3 * w + 1] = green[w]
                        target[3 * w + 2] = blue[w]
                else:
                    for i in range(channels):
                        for w in range(low, high):
                            target[w * pitch + i] = here[w * line + i * channel]


@helper
def enter_box(source, out, region, c, phase, box, pixels, targets):
    """Write the addresses of the pixels of a box, in the source or a region, and in the result.

    They are in the order of the batch, or by lines where taps are skipped. An odd last pixel stands
    there twice: tiles have an even height. The number of the pixels.
    """
    size = c[ITEM_BYTES]
    target = out + (box[CORNER] * c[OUT_BATCH] + phase[OUT]) * size
    seen = region
    if not c[COPIES]:
        seen = source + box[CORNER] * c[SOURCE_BATCH] * size
    for axis in range(3):
        first = box[CORNER + 1 + axis]
        target += first * c[OUT_0 + axis] * size
        if not c[COPIES]:
            seen += (phase[START_0 + axis] + first * c[STEP_0 + axis]) * c[SOURCE_0 + axis] * size
    count = 0
    by_line = c[SKIPS]
    for i in range(box[SIZES + 2] if by_line else box[SIZES]):
        for z in range(box[SIZES + 1]):
            for j in range(box[SIZES] if by_line else box[SIZES + 2]):
                n, y = (j, i) if by_line else (i, j)
                here = seen + (n * c[PIXEL_BATCH] + z * c[PIXEL_0] + y * c[PIXEL_1]) * size
                there = target + (n * c[OUT_BATCH] + z * c[OUT_0] + y * c[OUT_1]) * size
                for x in range(box[SIZES + 3]):
                    pixels[count] = here + x * c[PIXEL_2] * size
                    targets[count] = there + x * c[OUT_2] * size
                    count += 1
    pixels[count] = pixels[count - 1]
    targets[count] = targets[count - 1]
    return count


@helper
def tile_height(rows, width):
    """Rows of a tile that cuts so many evenly, for columns of so many bytes."""
    most = TALLEST if width <= VECTOR_BYTES else HEIGHT
    tiles = (rows + most - 1) // most
    return ((rows + tiles - 1) // tiles + 1) // 2 * 2


@helper
def slot_of(scratch, c, start):
    """The memory of the part of a step that begins at a unit, and where its tables and region lie.

    A part has at least `part` units, so that no two begin in the same slot.
    """
    memory = scratch + c[SHARED_BYTES] + start // c[PART] * c[SLOT_BYTES]
    most = c[BOX_BATCH] * c[BOX_0] * c[BOX_1] * c[BOX_2] + 1
    pixels = memory + 8 * BOX_WORDS
    targets = pixels + 8 * most
    rest = targets + 8 * most
    return words(memory), pixels, targets, rest + -rest % LINE


# --------------------------------------------------------------------------- forward


@helper
def pack_columns(weight, c, phase, group, panel, target, kind):
    """`pack_panel`, each column for itself."""
    size, depth, along = c[ITEM_BYTES], c[DEPTH], c[WEIGHT_DEPTH]
    column = panel * c[PANEL]
    for j in range(min(c[PANEL], c[COLUMNS] - column)):
        first = group * c[WEIGHT_GROUP] + (column + j) * c[WEIGHT_COLUMN]
        packed = at(target + j * quotient(phase[PANEL_BYTES], c[PANEL]), kind)
        for tap in range(phase[TAPS]):
            here = shifted(at(weight + first * size, kind), c[phase[TAP_LIST] + tap])
            for k in range(depth):
                packed[tap * depth + k] = here[k * along]


@helper
def pack_panel(weight, c, phase, group, panel, target, kind):
    """A panel of columns of the weight, the taps of a phase one after the other."""
    size, depth, line = c[ITEM_BYTES], c[DEPTH], c[WEIGHT_COLUMN]
    taps, along, row = phase[TAPS], c[WEIGHT_DEPTH], c[PANEL] * size
    column = panel * c[PANEL]
    lines = min(c[PANEL], c[COLUMNS] - column)
    source = weight + (group * c[WEIGHT_GROUP] + column * line) * size
    if c[MANNER] == SQUARES:
        lanes = VECTOR_BYTES // size
        places = stack_words(VECTOR_BYTES)
        tap, k = 0, 0
        for i in range(0, depth * taps, lanes):
            for j in range(lanes):
                place = tap * depth + k if k < depth else taps * depth
                words(places)[j] = target + place * row
                tap += 1
                if tap == taps:
                    tap = 0
                    k += 1
            count = min(lanes, depth * taps - i)
            for first in range(0, lines, lanes):
                here = source + (i + first * line) * size
                rest = min(lanes, lines - first)
                # Of one line after the other what the squares after the next will need.
                turn = i // lanes
                ahead = (first + turn % lanes) * line + (turn // lanes + 1) * lanes * lanes
                call(
                    c[PACK_PLACES],
                    (here, line, rest, count, places, first * size, source + ahead * size),
                )
    elif c[MANNER] == APART:
        pack_columns(weight, c, phase, group, panel, target, kind)
    elif c[MANNER] == NUMBERS:
        for k in range(depth):
            for tap in range(taps):
                here = shifted(at(source, kind), k * along + c[phase[TAP_LIST] + tap])
                packed = at(target + (tap * depth + k) * row, kind)
                for i in range(lines):
                    packed[i] = here[i * line]
                for i in range(
                    lines, c[PANEL]
                ):  # tiles multiply whole vectors: 50 times as long for denormals
                    packed[i] = kind(0)
    else:
        for tap in range(taps):
            here = source + c[phase[TAP_LIST] + tap] * size
            there = target + tap * depth * row
            call(c[PACK], (here, line, along, lines, depth, there, c[PANEL]))


@kernel
def pack_weight(args, start, stop):
    """All panels of all phases; a unit is a panel."""
    p = words(args)
    weight, scratch, c = p[1], p[4], shifted(p, 5)
    panels = c[PANELS]
    for unit in range(start, stop):
        panel, group = unit % panels, unit // panels % c[GROUPS]
        phase = shifted(c, FIRST_PHASE + unit // (panels * c[GROUPS]) * PHASE_WORDS)
        target = scratch + phase[PACKED_BYTES] + (group * panels + panel) * phase[PANEL_BYTES]
        pack_panel(weight, c, phase, group, panel, target, T)


@helper
def taps_inside(c, phase, y):
    """Which segments of a line of pixels lie inside the source: all unless each is one line of taps."""
    count = phase[SEGMENTS]
    if not c[SKIPS]:
        return 0, count
    apart = phase[LINES_APART]
    first = phase[START_1] + y * c[STEP_1]
    low = min(max(0, (apart - 1 - first) // apart), count)
    high = min(count, (c[SOURCE_SIZE_1] - 1 - first) // apart + 1)
    return low, max(low, high)


@helper
def enter_after(p, c, offset, after):
    """Write what happens to results before they are stored, for columns from an offset on."""
    after[0] = c[FINISHES]
    if c[FINISHES]:
        after[1] = p[c[SCALE]] + offset
        after[2] = p[c[SHIFT]] + offset
        after[3] = p[c[RESIDUAL]] - p[3]
        after[4] = p[c[BOUNDS]]
        after[5] = p[c[BOUNDS] + 1]


@kernel
def convolve(args, start, stop):
    """A unit is a panel of columns of a group in a box; of one that no other box needs, it is packed
    here, so that it does not leave the cache."""
    p = words(args)
    source, bias, out, scratch, c = p[0], p[2], p[3], p[4], shifted(p, 5)
    size, groups, panels = c[ITEM_BYTES], c[GROUPS], c[PANELS]
    box, pixels, targets, spare = slot_of(scratch, c, start)
    region = spare + c[PANEL] * size
    own = region + c[REGION_BYTES]
    after, nothing = stack_words(AFTER), stack_words(1)
    words(nothing)[0] = 0
    phase, seen, count = c, -1, 0
    for unit in range(start, stop):
        panel, group = unit % panels, unit // panels % groups
        if unit // panels != seen:
            seen = unit // panels
            phase = find_box(c, seen // groups, box)
            here = source + group * c[DEPTH] * c[SOURCE_CHANNEL] * size
            if c[COPIES]:
                fill_region(at(here, T), at(region, T), c, phase, box, T(0))
            count = enter_box(here, out, region, c, phase, box, words(pixels), words(targets))
        column = panel * c[PANEL]
        columns = min(c[PANEL], c[COLUMNS] - column)
        offset = (group * c[COLUMNS] + column) * size
        words(targets)[count] = spare - offset
        enter_after(p, c, offset, words(after))
        if c[PACKS]:
            packed = own
            pack_panel(p[1], c, phase, group, panel, packed, T)
        else:
            packed = scratch + phase[PACKED_BYTES] + (group * panels + panel) * phase[PANEL_BYTES]
        added = bias + offset if c[HAS_BIAS] else 0
        by_dots, row, beside = False, c[PANEL], c[SIDE_BY_SIDE]
        if c[ROWS_OF_DOTS]:
            by_dots, row, beside = True, 1, quotient(phase[PANEL_BYTES], c[PANEL])
        lines = box[SIZES + 2] if c[SKIPS] else 1
        first_line = 0
        while first_line < lines:
            low, high = taps_inside(c, phase, box[CORNER + 2] + first_line)
            last_line = first_line + 1
            while last_line < lines and (low, high) == taps_inside(
                c, phase, box[CORNER + 2] + last_line
            ):
                last_line += 1
            # A pixel too many writes where the next lines will write.
            first, last = count * first_line // lines, count * last_line // lines
            tall = c[ROWS_OF_DOTS] if by_dots else tile_height(last - first, columns * size)
            list_of = args + 8 * (5 + phase[SEGMENT_LIST])
            panel_now = packed + low * words(list_of)[1] * row
            k = low
            while k < high or k == low:
                segments = list_of + 16 * k
                together, nbytes = 0, 0
                while (nbytes < DEPTH_BLOCK * size or by_dots) and k + together < high:
                    nbytes += words(segments)[2 * together + 1]
                    together += 1
                for pixel in range(first, last, tall):
                    call(c[MULTIPLY], (
                        min(tall, last - pixel), columns, pixels + 8 * pixel, segments, together,
                        panel_now, added, targets + 8 * pixel, offset, k - low, beside,
                        after if k + together >= high else nothing,
                    ))  # fmt: skip
                panel_now += nbytes * row
                k += max(together, 1)
            first_line = last_line


@helper
def pixel_of(phase, number):
    """Where a pixel of a phase lies: in the batch and along the axes."""
    x, number = remainder(number, phase[EXTENT_2]), quotient(number, phase[EXTENT_2])
    y, number = remainder(number, phase[EXTENT_1]), quotient(number, phase[EXTENT_1])
    return quotient(number, phase[EXTENT_0]), remainder(number, phase[EXTENT_0]), y, x


@helper
def place_seen(c, pixel, tap):
    """Where a tap of a pixel lies in the image, -1 outside of it."""
    n, z, y, x = pixel_of(shifted(c, FIRST_PHASE), pixel)
    offset = shifted(c, shifted(c, FIRST_PHASE)[TAP_LIST] + 3 * tap)
    i, j = z * c[STEP_0] + offset[0], y * c[STEP_1] + offset[1]
    k = x * c[STEP_2] + offset[2]
    if not (0 <= i < c[SOURCE_SIZE_0] and 0 <= j < c[SOURCE_SIZE_1] and 0 <= k < c[SOURCE_SIZE_2]):
        return -1
    return n * c[SOURCE_BATCH] + i * c[SOURCE_0] + j * c[SOURCE_1] + k * c[SOURCE_2]


@helper
def pixels_of(c):
    """The pixels of a convolution of few."""
    phase = shifted(c, FIRST_PHASE)
    return c[BATCH] * phase[EXTENT_0] * phase[EXTENT_1] * phase[EXTENT_2]


@kernel
def unfold_pixels(args, start, stop):
    """What pixels see, in the order of the weight's numbers; a unit is a pixel of a group."""
    p = words(args)
    source, unfolded, c = at(p[0], T), at(p[4], T), shifted(p, 5)
    depth, taps, channel = c[DEPTH], shifted(c, FIRST_PHASE)[TAPS], c[SOURCE_CHANNEL]
    pixels = pixels_of(c)
    for unit in range(start, stop):
        for tap in range(taps):
            place = place_seen(c, unit % pixels, tap)
            here = shifted(source, place + unit // pixels * depth * channel)
            target = shifted(unfolded, unit * depth * taps + tap)
            for i in range(depth):
                target[i * taps] = T(0) if place < 0 else here[i * channel]


@kernel
def dot_pixels(args, start, stop):
    """`convolve` of few pixels, by the weight as it lies; a unit is a panel of a group's columns."""
    p = words(args)
    bias, c = p[2], shifted(p, 5)
    size, columns, pixels = c[ITEM_BYTES], c[COLUMNS], pixels_of(c)
    length, total = c[DEPTH] * shifted(c, FIRST_PHASE)[TAPS], columns * c[GROUPS]
    after = stack_words(AFTER)
    for unit in range(start, stop):
        group, column = unit // c[PANELS], unit % c[PANELS] * c[PANEL]
        some, to = min(c[PANEL], columns - column), group * columns + column
        added = bias + to * size if c[HAS_BIAS] else 0
        enter_after(p, c, to * size, words(after))
        for i in range(0, pixels, DOT_ROWS):
            seen, out = (group * pixels + i) * length, i * total + to
            call(c[MULTIPLY], (
                min(DOT_ROWS, pixels - i), some, p[4] + seen * size, p[1] + to * length * size,
                length, added, p[3] + out * size, total, after,
            ))  # fmt: skip


@kernel
def turn_pixels(args, start, stop):
    """The gradient of few pixels with those side by side, and where its lines and those of the weight
    lie; a unit is a column."""
    p = words(args)
    upper, c = at(p[0], T), shifted(p, 5)
    total, pixels = c[GROUPS] * c[COLUMNS], pixels_of(c)
    lefts, rights, turned = words(p[4]), words(p[4] + 8 * total), p[4] + 16 * total
    length = c[DEPTH] * shifted(c, FIRST_PHASE)[TAPS]
    for column in range(start, stop):
        lefts[column] = turned + column * pixels * c[ITEM_BYTES]
        rights[column] = p[1] + column * length * c[ITEM_BYTES]
    for pixel in range(pixels):
        n, z, y, x = pixel_of(shifted(c, FIRST_PHASE), pixel)  # divisions: once for all columns
        place = n * c[OUT_BATCH] + z * c[OUT_0] + y * c[OUT_1] + x * c[OUT_2]
        seen, line = shifted(upper, place), shifted(at(turned, T), pixel)
        for column in range(start, stop):
            line[column * pixels] = seen[column * c[OUT_CHANNEL]]


@kernel
def spread_pixels(args, start, stop):
    """The gradient of an image of which few pixels see something, by the weight as it lies; a unit is
    a panel of a group's channels, whose products are added up where their pixels see them."""
    p = words(args)
    c = shifted(p, 5)
    size, depth, columns, pixels = c[ITEM_BYTES], c[DEPTH], c[COLUMNS], pixels_of(c)
    taps, panel, area = shifted(c, FIRST_PHASE)[TAPS], c[PANEL], c[SOURCE_BATCH] * c[BATCH]
    products = p[4] + c[SHARED_BYTES] + start // c[PART] * c[SLOT_BYTES]
    for unit in range(start, stop):
        group, channel = unit // c[PANELS], unit % c[PANELS] * panel
        some, to = min(panel, depth - channel), group * depth + channel
        lefts = p[4] + 8 * group * columns
        rights = lefts + 8 * c[GROUPS] * columns
        for j in range(0, some * taps, panel):
            multiply_rows(c, pixels, min(panel, some * taps - j), lefts, 0, rights,
                          (channel * taps + j) * size, columns, products + j * size,
                          panel * taps, 0)  # fmt: skip
        out, bias = at(p[3] + to * size, T), at(p[2] + to * size, T)
        for place in range(0, area, c[SOURCE_2]):
            for i in range(some):
                out[place + i] = bias[i] if c[HAS_BIAS] else T(0)
        for pixel in range(pixels):
            for tap in range(taps):
                place = place_seen(c, pixel, tap)
                line = shifted(at(products, T), pixel * panel * taps + tap)
                if place >= 0:
                    for i in range(some):
                        out[place + i] += line[i * taps]


@kernel
def convolve_depthwise(args, start, stop):
    """`convolve` of every channel on its own; a unit is a box."""
    p = words(args)
    source, bias, out, scratch, c = p[0], p[2], p[3], p[4], shifted(p, 5)
    channels = c[DEPTH]
    box, pixels, targets, spare = slot_of(scratch, c, start)
    region = spare + channels * c[ITEM_BYTES]
    region += -region % LINE
    after = stack_words(AFTER)
    enter_after(p, c, 0, words(after))
    for unit in range(start, stop):
        phase = find_box(c, unit, box)
        if c[COPIES]:
            fill_region(at(source, T), at(region, T), c, phase, box, T(0))
        count = enter_box(source, out, region, c, phase, box, words(pixels), words(targets))
        words(targets)[count] = spare
        offsets = args + 8 * (5 + phase[SEGMENT_LIST])
        added = bias if c[HAS_BIAS] else 0
        tall = tile_height(count, VECTOR_BYTES)
        for row in range(0, count, tall):
            call(c[MULTIPLY], (
                min(tall, count - row), channels, pixels + 8 * row, offsets, phase[TAPS],
                scratch + phase[PACKED_BYTES], added, targets + 8 * row, after,
            ))  # fmt: skip


@kernel
def pack_depthwise(args, start, stop):
    """The weight with its channels side by side; a unit is a tap of a phase."""
    p = words(args)
    weight, scratch, c = at(p[1], T), p[4], shifted(p, 5)
    channels = c[DEPTH]
    phase, first = shifted(c, FIRST_PHASE), 0
    for unit in range(start, stop):
        while unit >= first + phase[TAPS]:
            first += phase[TAPS]
            phase = shifted(phase, PHASE_WORDS)
        tap = unit - first
        here = shifted(weight, c[phase[TAP_LIST] + tap])
        packed = at(scratch + phase[PACKED_BYTES] + tap * channels * c[ITEM_BYTES], T)
        for i in range(channels):
            packed[i] = here[i * c[WEIGHT_COLUMN]]


# --------------------------------------------------------------------------- weight


@kernel
def correlate(args, start, stop):
    """A unit is a panel of a group's part of the gradient, summed over a chunk of the boxes."""
    p = words(args)
    source, upper, scratch, c = p[0], p[1], p[3], shifted(p, 4)
    size, groups, panels, manner = c[ITEM_BYTES], c[GROUPS], c[PANELS], c[MANNER]
    sums = scratch if c[SHARED_BYTES] else p[2]
    box, pixels, targets, rest = slot_of(scratch, c, start)
    phase = shifted(c, FIRST_PHASE)
    boxes, taps = boxes_of(c, phase), phase[TAPS]
    copied = words(rest)
    most = c[BOX_BATCH] * c[BOX_0] * c[BOX_1] * c[BOX_2]
    patch = rest + 8 * most
    patch += -patch % LINE
    region = patch
    if manner == BY_TAP or c[PACK]:
        region = patch + most * c[PANEL] * size
        for i in range(most):
            copied[i] = patch + i * c[PANEL] * size
    offsets = words(stack_words(VECTOR_BYTES))
    length = taps * c[DEPTH]
    unit = start
    while unit < stop:
        group, chunk = unit // panels % groups, unit // panels // groups
        last = min(stop, (unit // panels + 1) * panels)
        total = sums + (chunk * c[SUM_CHUNK] + group * c[SUM_GROUP]) * size
        first_box = boxes * chunk // c[CHUNKS]
        for number in range(first_box, boxes * (chunk + 1) // c[CHUNKS]):
            find_box(c, number, box)
            here = source + group * c[DEPTH] * c[SOURCE_CHANNEL] * size
            there = upper + group * c[COLUMNS] * size
            if c[COPIES]:
                fill_region(at(here, T), at(region, T), c, phase, box, T(0))
            count = enter_box(here, there, region, c, phase, box, words(pixels), words(targets))
            add = number - first_box
            if manner == BY_TAP:
                for panel in range(unit % panels, unit % panels + last - unit):
                    column = panel * c[PANEL]
                    columns = min(c[PANEL], length - column)
                    for i in range(columns):
                        tap, channel = (column + i) % taps, (column + i) // taps
                        offsets[i] = c[phase[TAP_LIST] + tap] + channel * size
                    copy_seen(words(pixels), offsets, at(patch, T), count, columns, c[PANEL], T)
                    multiply_rows(c, c[COLUMNS], columns, targets, 0, rest, 0, count,
                                  total + column * size, length, add)  # fmt: skip
            elif manner == BY_CHANNEL:
                for panel in range(unit % panels, unit % panels + last - unit):
                    column = panel * c[PANEL]
                    columns = min(c[PANEL], c[COLUMNS] - column)
                    result = total + column * size
                    for k in range(phase[SEGMENTS]):
                        offset = c[phase[SEGMENT_LIST] + 2 * k]
                        rows = c[phase[SEGMENT_LIST] + 2 * k + 1] // size
                        rights, right = dense_steps(
                            c, columns, targets, column * size, count, rest, patch
                        )
                        multiply_rows(c, rows, columns, pixels, offset, rights, right,
                                      count, result, c[COLUMNS], add)  # fmt: skip
                        result += rows * c[COLUMNS] * size
            else:
                k, first, before = 0, 0, 0
                for panel in range(unit % panels, unit % panels + last - unit):
                    width = c[phase[SEGMENT_LIST] + 2 * k + 1] // size
                    while (panel - first) * c[PANEL] >= width:  # the next segment
                        first += (width + c[PANEL] - 1) // c[PANEL]
                        before += width
                        k += 1
                        width = c[phase[SEGMENT_LIST] + 2 * k + 1] // size
                    column = (panel - first) * c[PANEL]
                    columns = min(c[PANEL], width - column)
                    offset = c[phase[SEGMENT_LIST] + 2 * k] + column * size
                    rights, right = dense_steps(c, columns, pixels, offset, count, rest, patch)
                    multiply_rows(c, c[COLUMNS], columns, targets, 0, rights, right, count,
                                  total + (before + column) * size, length, add)  # fmt: skip
        unit = last


@helper
def dense_steps(c, columns, rights, right, steps, copied, patch):
    """The table of addresses and the offset of a panel's steps, or of a copy of them, if `c[PACK]` makes one.

    Pixels lie as far apart as they have channels: where that is a power of two, they share few sets of a
    cache, and every tile of the panel would fetch them anew.
    """
    if not c[PACK]:
        return rights, right
    call(c[PACK], (columns, rights, right, steps, patch))
    return copied, 0


@helper
def multiply_rows(c, rows, columns, lefts, left, rights, right, steps, out, row, add):
    """out (+)= left.T @ right for a panel, whose steps begin at the addresses in two tables."""
    size = c[ITEM_BYTES]
    tall = tile_height(rows, columns * size)
    for i in range(0, rows, tall):
        call(c[MULTIPLY], (
            min(tall, rows - i), columns, lefts, left + i * size, rights, right, steps,
            out + i * row * size, row, add,
        ))  # fmt: skip


@helper
def copy_seen(pixels, offsets, out, count, columns, width, kind):
    """out[pixel, i] = the number at an offset from a pixel."""
    for k in range(count):
        row = shifted(out, k * width)
        for i in range(columns):
            row[i] = at(pixels[k] + offsets[i], kind)[0]


@kernel
def gather_weight(args, start, stop):
    """The sum of the chunks in the order of the weight's memory; a unit is a column, or all channels
    of a depthwise weight."""
    p = words(args)
    out, sums, c = at(p[2], T), at(p[3], T), shifted(p, 4)
    taps, depth, columns = c[WEIGHT_TAPS], c[WEIGHT_DEPTH], c[WEIGHT_COLUMN]
    step = c[SUM_STEP]
    for unit in range(start, stop):
        first = unit // columns * c[SUM_GROUP] + unit % columns * c[SUM_COLUMN]
        total = shifted(sums, first)
        for number in range(1, c[CHUNKS]):
            part = shifted(total, number * c[SUM_CHUNK])
            for i in range(0, depth * taps * step, step):
                total[i] = T(total[i] + part[i])
        for tap in range(taps):
            here = shifted(total, tap * depth * step)
            target = shifted(out, unit * depth * taps + tap)
            for i in range(depth):
                target[i * taps] = here[i * step]


@kernel
def correlate_depthwise(args, start, stop):
    """`correlate` of every channel on its own; a unit is a chunk of the boxes."""
    p = words(args)
    source, upper, scratch, c = p[0], p[1], p[3], shifted(p, 4)
    channels, size = c[DEPTH], c[ITEM_BYTES]
    box, pixels, targets, region = slot_of(scratch, c, start)
    phase = shifted(c, FIRST_PHASE)
    boxes, taps = boxes_of(c, phase), phase[TAPS]
    for chunk in range(start, stop):
        first_box = boxes * chunk // c[CHUNKS]
        for number in range(first_box, boxes * (chunk + 1) // c[CHUNKS]):
            find_box(c, number, box)
            if c[COPIES]:
                fill_region(at(source, T), at(region, T), c, phase, box, T(0))
            count = enter_box(source, upper, region, c, phase, box, words(pixels), words(targets))
            tap = 0
            while tap < taps:
                together = 1
                for some in TOGETHER:
                    if some <= taps - tap:
                        together = max(together, some)
                total = scratch + (chunk * c[SUM_CHUNK] + tap * channels) * size
                offsets = args + 8 * (4 + phase[TAP_LIST] + tap)
                call(c[MULTIPLY], (
                    together, channels, pixels, offsets, targets, count, total, number - first_box,
                ))  # fmt: skip
                tap += together


# --------------------------------------------------------------------------- CUDA

# Directly, without packing: a thread sums an element of the result over taps and channels, a warp an
# element of a weight's gradient over pixels. Neighbouring threads have neighbouring columns.


def all_pixels_of(c):
    """The pixels of the result of all phases, from the constant words."""
    total = 0
    for k in range(c[PHASES]):
        extents = FIRST_PHASE + k * PHASE_WORDS + EXTENT_0
        total += c[BATCH] * c[extents] * c[extents + 1] * c[extents + 2]
    return total


def results_of(c):
    """The elements of a convolution."""
    return all_pixels_of(c) * c[GROUPS] * c[COLUMNS]


def weights_of(c):
    """The elements of a weight's gradient."""
    return depthwise_weights_of(c) * c[DEPTH]


def depthwise_weights_of(c):
    """The same with one channel in each group: there `DEPTH` counts all of them."""
    return c[GROUPS] * c[COLUMNS] * c[FIRST_PHASE + TAPS]


@helper
def seen_at(c, offsets, z, y, x):
    """The element of the source that a pixel sees through a tap, -1 in the padding."""
    i, j, k = (
        z * c[STEP_0] + offsets[0], y * c[STEP_1] + offsets[1], x * c[STEP_2] + offsets[2]
    )  # fmt: skip
    place = -1
    if 0 <= i < c[SOURCE_SIZE_0] and 0 <= j < c[SOURCE_SIZE_1] and 0 <= k < c[SOURCE_SIZE_2]:
        place = i * c[SOURCE_0] + j * c[SOURCE_1] + k * c[SOURCE_2]
    return place


@helper
def convolve_elements(source, weight, bias, out, c, depth, begin, stop, step, fma, T):
    """Every `step`-th element of the result from `begin` on."""
    channels = c[GROUPS] * c[COLUMNS]
    for unit in range(begin, stop, step):
        channel, pixel = remainder(unit, channels), quotient(unit, channels)
        first = FIRST_PHASE  # with a pointer that the loop moves NVIDIA's linker finds no end
        count = c[BATCH] * c[first + EXTENT_0] * c[first + EXTENT_1] * c[first + EXTENT_2]
        while pixel >= count:
            pixel -= count
            first += PHASE_WORDS
            count = c[BATCH] * c[first + EXTENT_0] * c[first + EXTENT_1] * c[first + EXTENT_2]
        phase = shifted(c, first)
        n, z, y, x = pixel_of(phase, pixel)
        group, column = quotient(channel, c[COLUMNS]), remainder(channel, c[COLUMNS])
        image = shifted(source, n * c[SOURCE_BATCH] + group * depth * c[SOURCE_CHANNEL])
        factors = shifted(weight, group * c[WEIGHT_GROUP] + column * c[WEIGHT_COLUMN])
        total = T(0)
        for tap in range(phase[TAPS]):
            seen = seen_at(c, shifted(c, phase[OFFSET_LIST] + 3 * tap), z, y, x)
            if seen >= 0:
                factor = c[phase[TAP_LIST] + tap]
                for k in range(depth):
                    total = fma(
                        image[seen + k * c[SOURCE_CHANNEL]],
                        factors[factor + k * c[WEIGHT_DEPTH]],
                        total,
                    )
        if c[HAS_BIAS]:
            total += bias[channel]
        place = n * c[OUT_BATCH] + z * c[OUT_0] + y * c[OUT_1] + x * c[OUT_2]
        out[phase[OUT] + place + channel] = total


@on_device(convolve, units=256, work=results_of)
def convolve_by_threads(row, n):
    """A convolution, or the gradient of an image."""
    c = shifted(row, 5)
    convolve_elements(at(row[0], T), at(row[1], T), at(row[2], T), at(row[3], T), c, c[DEPTH],
                      first_unit(), n, all_threads(), math.fma, T)  # fmt: skip


@on_device(convolve_depthwise, units=256, work=results_of)
def convolve_depthwise_by_threads(row, n):
    """The same with one channel in each group."""
    convolve_elements(at(row[0], T), at(row[1], T), at(row[2], T), at(row[3], T), shifted(row, 5), 1,
                      first_unit(), n, all_threads(), math.fma, T)  # fmt: skip


@helper
def correlate_elements(source, upper, out, c, depth, begin, stop, step, fma, T):
    """Every `step`-th element of the weight's gradient from `begin` on; the lanes share the pixels."""
    phase = shifted(c, FIRST_PHASE)
    taps, columns = phase[TAPS], c[COLUMNS]
    pixels = c[BATCH] * phase[EXTENT_0] * phase[EXTENT_1] * phase[EXTENT_2]
    for unit in range(begin, stop, step):
        tap, k = unit % taps, unit // taps % depth
        channel = unit // taps // depth
        offsets = shifted(c, phase[OFFSET_LIST] + 3 * tap)
        image = shifted(source, (channel // columns * depth + k) * c[SOURCE_CHANNEL])
        total = spread(T(0))
        for pixel in range(lane(), pixels, 32):
            n, z, y, x = pixel_of(phase, pixel)
            seen = seen_at(c, offsets, z, y, x)
            if seen >= 0:
                place = n * c[OUT_BATCH] + z * c[OUT_0] + y * c[OUT_1] + x * c[OUT_2]
                total = fma(image[n * c[SOURCE_BATCH] + seen], upper[place + channel], total)
        out[unit] = fold(add, total)


@on_device(correlate, threads=128, units=4, work=weights_of)
def correlate_by_warps(row, n):
    """The gradient of a weight."""
    c = shifted(row, 4)
    correlate_elements(at(row[0], T), at(row[1], T), at(row[2], T), c, c[DEPTH],
                       first_unit() // 32, n, all_threads() // 32, math.fma, T)  # fmt: skip


@on_device(correlate_depthwise, threads=128, units=4, work=depthwise_weights_of)
def correlate_depthwise_by_warps(row, n):
    """The same with one channel in each group."""
    correlate_elements(at(row[0], T), at(row[1], T), at(row[2], T), shifted(row, 4), 1,
                       first_unit() // 32, n, all_threads() // 32, math.fma, T)  # fmt: skip


def few_results_of(c):
    """The elements of a convolution of few pixels."""
    extents = FIRST_PHASE + EXTENT_0
    pixels = c[BATCH] * c[extents] * c[extents + 1] * c[extents + 2]
    return pixels * c[GROUPS] * c[COLUMNS]


@on_device(dot_pixels, threads=128, units=4, work=few_results_of)
def dot_pixels_by_warps(row, n):
    """A convolution of few pixels: dot products, which the lanes of a warp sum."""
    unfolded, weight, bias, out = at(row[4], T), at(row[1], T), at(row[2], T), at(row[3], T)
    c = shifted(row, 5)
    columns, pixels, total = c[COLUMNS], pixels_of(c), c[COLUMNS] * c[GROUPS]
    length = c[DEPTH] * shifted(c, FIRST_PHASE)[TAPS]
    for unit in range(first_unit() // 32, n, all_threads() // 32):
        column, pixel = unit % total, unit // total
        seen, factors = (column // columns * pixels + pixel) * length, column * length
        parts = spread(T(0))
        for k in range(lane(), length, 32):
            parts = math.fma(unfolded[seen + k], weight[factors + k], parts)
        result = fold(add, parts)
        out[pixel * total + column] = result + bias[column] if c[HAS_BIAS] else result


def image_of(c):
    """The elements of an image, channels last."""
    return c[SOURCE_BATCH] * c[BATCH] // c[SOURCE_2] * c[GROUPS] * c[DEPTH]


@on_device(spread_pixels, units=256, work=image_of)
def spread_pixels_by_threads(row, n):
    """The gradient of an image of which few pixels see something: each element asks all of them."""
    upper, weight, bias, out = at(row[0], T), at(row[1], T), at(row[2], T), at(row[3], T)
    c = shifted(row, 5)
    phase, columns, depth = shifted(c, FIRST_PHASE), c[COLUMNS], c[DEPTH]
    taps, channels, pixels = phase[TAPS], c[GROUPS] * c[DEPTH], pixels_of(c)
    for unit in range(first_unit(), n, all_threads()):
        channel, place = unit % channels, unit // channels * c[SOURCE_2]
        first = channel // depth * columns
        total = T(0)
        for pixel in range(pixels):
            image, z, y, x = pixel_of(phase, pixel)
            here = image * c[OUT_BATCH] + z * c[OUT_0] + y * c[OUT_1] + x * c[OUT_2]
            for tap in range(taps):
                if place_seen(c, pixel, tap) == place:
                    for column in range(first, first + columns):
                        factor = weight[(column * depth + channel % depth) * taps + tap]
                        total = math.fma(upper[here + column * c[OUT_CHANNEL]], factor, total)
        out[place + channel] = total + bias[channel] if c[HAS_BIAS] else total


def no_work(c):
    """Nothing is packed, and no sums are gathered."""
    return 0


for _kernel in (pack_weight, pack_depthwise, gather_weight, turn_pixels):

    @on_device(_kernel, work=no_work)
    def nothing(row, n):
        """What the CPU does here is part of the other kernels."""
