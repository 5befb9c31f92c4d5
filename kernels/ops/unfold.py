"""Images as columns of their windows, and back.

Memory is in C order: planes x height x width, and planes x kernel height x kernel width x rows x
columns. Words: x, out; sizes, output sizes, kernel, stride, padding and dilation of the two axes.
"""

from ..language.abi import T, at, helper, kernel, shifted, words

SIZE, OUT, KERNEL, STRIDE, PADDING, DILATION = 0, 2, 4, 6, 8, 10


@helper
def columns_inside(q, tap):
    """The columns, from the first to one past the last, whose tap lies in the image; its shift."""
    stride, shift = q[STRIDE + 1], tap * q[DILATION + 1] - q[PADDING + 1]
    first = min(max(-(shift // stride), 0), q[OUT + 1])
    last = min(max((q[SIZE + 1] - 1 - shift) // stride + 1, first), q[OUT + 1])
    return first, last, shift


@kernel
def unfold(args, start, stop):
    """out = the elements of each window, 0 in the padding; a unit is a tap of a plane."""
    p = words(args)
    x, out, q = at(p[0], T), at(p[1], T), shifted(p, 2)
    height, width, rows, columns = q[SIZE], q[SIZE + 1], q[OUT], q[OUT + 1]
    taps = q[KERNEL] * q[KERNEL + 1]
    stride = q[STRIDE + 1]
    for unit in range(start, stop):
        kh, kw = unit % taps // q[KERNEL + 1], unit % q[KERNEL + 1]
        first, last, shift = columns_inside(q, kw)
        for oh in range(rows):
            h = oh * q[STRIDE] + kh * q[DILATION] - q[PADDING]
            target = shifted(out, (unit * rows + oh) * columns)
            line = shifted(x, (unit // taps * height + h) * width + shift)
            inside = h >= 0 and h < height
            for ow in range(first if inside else columns):
                target[ow] = T(0)
            if inside:
                if stride == 1:
                    for ow in range(first, last):
                        target[ow] = line[ow]
                else:
                    for ow in range(first, last):
                        target[ow] = line[ow * stride]
                for ow in range(last, columns):
                    target[ow] = T(0)


@kernel
def fold(args, start, stop):
    """The transpose of unfold: out = the sum over the windows that an element lies in.

    A unit is a plane of the image; x holds the windows.
    """
    p = words(args)
    x, out, q = at(p[0], T), at(p[1], T), shifted(p, 2)
    height, width, rows, columns = q[SIZE], q[SIZE + 1], q[OUT], q[OUT + 1]
    stride = q[STRIDE + 1]
    for unit in range(start, stop):
        plane = shifted(out, unit * height * width)
        for i in range(height * width):
            plane[i] = T(0)
        for kh in range(q[KERNEL]):
            for kw in range(q[KERNEL + 1]):
                first, last, shift = columns_inside(q, kw)
                tap = (unit * q[KERNEL] + kh) * q[KERNEL + 1] + kw
                for oh in range(rows):
                    h = oh * q[STRIDE] + kh * q[DILATION] - q[PADDING]
                    if h < 0 or h >= height:
                        continue
                    source = shifted(x, (tap * rows + oh) * columns)
                    line = shifted(plane, h * width + shift)
                    if stride == 1:
                        for ow in range(first, last):
                            line[ow] += source[ow]
                    else:
                        for ow in range(first, last):
                            line[ow * stride] += source[ow]


# words: x, out, factor, height and width of the small image; a unit is a row of a large image


@kernel
def shuffle(args, start, stop):
    """out[c, h * r + i, w * r + j] = x[(c * r + i) * r + j, h, w]."""
    p = words(args)
    x, out, r, height, width = at(p[0], T), at(p[1], T), p[2], p[3], p[4]
    for unit in range(start, stop):
        c, h, i = unit // (height * r), unit // r % height, unit % r
        target = shifted(out, unit * width * r)
        for j in range(r):
            source = shifted(x, (((c * r + i) * r + j) * height + h) * width)
            for w in range(width):
                target[w * r + j] = source[w]


@kernel
def unshuffle(args, start, stop):
    """The reverse of shuffle: x is the large image."""
    p = words(args)
    x, out, r, height, width = at(p[0], T), at(p[1], T), p[2], p[3], p[4]
    for unit in range(start, stop):
        c, h, i = unit // (height * r), unit // r % height, unit % r
        source = shifted(x, unit * width * r)
        for j in range(r):
            target = shifted(out, (((c * r + i) * r + j) * height + h) * width)
            for w in range(width):
                target[w] = source[w * r + j]
