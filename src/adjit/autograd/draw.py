"""A picture of the backward graph, as SVG or as Graphviz source, with a layout of its own.

The picture is layered (Sugiyama's method): every box is one layer above the last one that uses it,
edges that span several layers run through points in the layers between, the order within the layers
is chosen for few crossings, and the horizontal places for short and straight edges.
"""

import dataclasses
import itertools
import pathlib
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Protocol

__all__ = ["Drawing", "draw"]


class Drawable(Protocol):
    """A tensor, as far as its picture needs it."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def requires_grad(self) -> bool: ...
    @property
    def grad_fn(self) -> Any: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of a graph; notebooks show it by themselves.

    Attributes:
        svg: the picture as an SVG document.
        dot: the same graph as source text for Graphviz.
    """

    svg: str = dataclasses.field(repr=False)
    dot: str = dataclasses.field(repr=False)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | pathlib.Path) -> None:
        """Write the picture to a file ending in .svg, or its Graphviz source to one in .dot.

        Raises:
            ValueError: the file name ends otherwise.
        """
        path = pathlib.Path(path)
        forms = {".svg": self.svg, ".dot": self.dot}
        if path.suffix not in forms:
            raise ValueError(
                f"cannot save a drawing as {path.name!r}: the name has to end in .svg or .dot"
            )
        path.write_text(forms[path.suffix], encoding="utf-8")


def draw(
    y: Drawable, params: Mapping[str, Drawable] | None = None, *, max_nodes: int = 500
) -> Drawing:
    """Draw the graph that `y.backward()` would walk.

    Grey boxes are backward functions, blue ones are leaves with their shape, the green one is `y`.
    Arrows point in the direction of the forward pass, from the leaves to `y`.

    Args:
        y: a tensor that needs gradients, of any shape.
        params: names for leaves, for example `dict(model.named_parameters())`; may name `y` too.
        max_nodes: the largest number of functions and leaves to draw.

    Raises:
        ValueError: `y` needs no gradient, or its graph has more than `max_nodes` nodes.

    Example:
        >>> import adjit
        >>> a = adjit.tensor([2.0, 3.0], requires_grad=True)
        >>> b = adjit.tensor([6.0, 4.0], requires_grad=True)
        >>> drawing = adjit.autograd.draw(3 * a**3 - b**2, {"a": a, "b": b})
        >>> drawing.dot.count("PowBackward0")
        2
    """
    boxes, edges = _read(y, params or {}, max_nodes)
    return Drawing(svg=_svg(boxes, edges), dot=_dot(boxes, edges))


# ---- reading the graph ---------------------------------------------------------------------------

Edge = tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Box:
    """What is written into a box; `kind` is "function", "leaf" or "output"."""

    kind: str
    lines: tuple[str, ...]


def _read(
    y: Drawable, params: Mapping[str, Drawable], max_nodes: int
) -> tuple[list[_Box], list[Edge]]:
    """The boxes, the output first, and the edges in the direction of the forward pass."""
    if not y.requires_grad:
        raise ValueError(
            "there is no graph to draw: the tensor does not require grad (it was made from tensors "
            "that do not, or under no_grad, or detached)"
        )
    names = {id(tensor): name for name, tensor in params.items()}
    boxes = [_Box("output", (names.get(id(y), "output"), _shape_text(y)))]
    edges: list[Edge] = []
    # The subjects are kept here as well, or an identity could be that of two of them.
    index_of: dict[int, tuple[int, Any]] = {}
    pending = [(y if y.grad_fn is None else _subject(y.grad_fn), 0)]
    while pending:
        subject, user = pending.pop()
        if id(subject) not in index_of:
            if len(index_of) == max_nodes:
                raise ValueError(
                    f"the graph has more than {max_nodes} nodes, too many for a picture: draw a "
                    "part of it (one block of a network, fewer steps of a loop), or raise max_nodes"
                )
            index_of[id(subject)] = len(boxes), subject
            inputs = [fn for fn, _ in getattr(subject, "next_functions", ()) if fn is not None]
            pending += [(_subject(fn), len(boxes)) for fn in reversed(inputs)]
            boxes.append(_box(subject, names))
        edges.append((index_of[id(subject)][0], user))
    return boxes, edges


def _subject(fn: Any) -> Any:
    """What a backward function stands for: a leaf where it only accumulates, else itself."""
    return fn.variable if _name(fn) == "AccumulateGrad" else fn


def _box(subject: Any, names: Mapping[int, str]) -> _Box:
    if hasattr(subject, "next_functions"):
        return _Box("function", (_name(subject),))
    name = names.get(id(subject))
    shape = _shape_text(subject)
    return _Box("leaf", (shape,) if name is None else (name, shape))


def _name(fn: Any) -> str:
    return str(fn.name()).rsplit("::", 1)[-1]


def _shape_text(tensor: Drawable) -> str:
    return str(tuple(tensor.shape))


# ---- layout --------------------------------------------------------------------------------------

_SWEEPS = 12
_GAP = 18.0


@dataclasses.dataclass(slots=True)
class _Layout:
    """Boxes and the points of long edges, by layer; layer 0 holds the output.

    Items are numbered: first the boxes, then the points.  A link joins an item to one in the layer
    below it.  All long edges from one box share their points, so that a leaf used in many places
    has one trunk and many branches.
    """

    widths: list[float]
    rows: list[list[int]]
    links: list[Edge]
    box_count: int

    def neighbours(self) -> tuple[list[list[int]], list[list[int]]]:
        """For every item the items that it is linked to above, and below."""
        above: list[list[int]] = [[] for _ in self.widths]
        below: list[list[int]] = [[] for _ in self.widths]
        for upper, lower in self.links:
            above[lower].append(upper)
            below[upper].append(lower)
        return above, below


def _layers(count: int, edges: Iterable[Edge]) -> list[int]:
    """The length of the longest way from every box to the output."""
    sources: list[list[int]] = [[] for _ in range(count)]
    uses = [0] * count
    for source, user in edges:
        sources[user].append(source)
        uses[source] += 1
    layer = [0] * count
    ready = [0]
    while ready:
        user = ready.pop()
        for source in sources[user]:
            layer[source] = max(layer[source], layer[user] + 1)
            uses[source] -= 1
            if uses[source] == 0:
                ready.append(source)
    return layer


def _layered(widths: Sequence[float], edges: Sequence[Edge]) -> _Layout:
    """Put the boxes into layers, and points into the layers that an edge passes."""
    layer = _layers(len(widths), edges)
    layout = _Layout(list(widths), [[] for _ in range(max(layer) + 1)], [], len(widths))
    for box, level in enumerate(layer):
        layout.rows[level].append(box)
    trunks: dict[int, list[int]] = {}
    for source, user in edges:
        trunk = trunks.setdefault(source, [source])
        while len(trunk) < layer[source] - layer[user]:
            point = len(layout.widths)
            layout.widths.append(0.0)
            layout.rows[layer[source] - len(trunk)].append(point)
            layout.links.append((trunk[-1], point))
            trunk.append(point)
        layout.links.append((trunk[layer[source] - layer[user] - 1], user))
    return layout


def _reduce_crossings(layout: _Layout) -> None:
    """Order the items of every layer by the mean place of their neighbours, to and fro."""
    above, below = layout.neighbours()
    place = [0.0] * len(layout.widths)

    def number(row: Iterable[int]) -> None:
        for position, item in enumerate(row):
            place[item] = float(position)

    for row in layout.rows:
        number(row)
    best, fewest = layout.rows, _crossings(layout)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        linked, step = (below, 1) if sweep % 2 == 0 else (above, -1)
        rows = [list(row) for row in layout.rows]
        for row in rows[::step]:
            centre = {
                item: sum(place[n] for n in linked[item]) / len(linked[item])
                if linked[item]
                else place[item]
                for item in row
            }
            row.sort(key=centre.__getitem__)
            number(row)
        layout.rows = rows
        crossings = _crossings(layout)
        if crossings < fewest:
            best, fewest = rows, crossings
    layout.rows = best


def _crossings(layout: _Layout) -> int:
    """How many pairs of links cross."""
    place = {item: position for row in layout.rows for position, item in enumerate(row)}
    _, below = layout.neighbours()
    crossings = 0
    for row in layout.rows:
        ends: list[int] = []
        for item in row:
            lower = sorted(place[n] for n in below[item])
            crossings += sum(len(ends) - bisect_right(ends, end) for end in lower)
            for end in lower:
                insort(ends, end)
    return crossings


_ROUNDS = 60

Springs = list[list[tuple[int, float]]]


def _horizontal(layout: _Layout) -> list[float]:
    """The centre of every item.

    Links are springs.  Layer by layer, to and fro, the items go to the places of least tension that
    keep their order and distance; first the links to one side pull, in the end all do.
    """
    above, below = _springs(layout)
    both = [up + down for up, down in zip(above, below, strict=True)]
    offsets = [_offsets(layout, row) for row in layout.rows]
    centre = [0.0] * len(layout.widths)
    for row, offset in zip(layout.rows, offsets, strict=True):
        for item, x in zip(row, offset, strict=True):
            centre[item] = x
    for turn, springs in enumerate([below, above] * 4 + [both] * _ROUNDS):
        upwards = turn % 2 == 0
        for level in range(len(layout.rows))[:: 1 if upwards else -1]:
            row = layout.rows[level]
            wishes, weights = [], []
            for item, x in zip(row, offsets[level], strict=True):
                pull = sum(stiffness for _, stiffness in springs[item])
                drawn = sum(centre[n] * stiffness for n, stiffness in springs[item])
                wishes.append((drawn / pull if pull else centre[item]) - x)
                weights.append(pull or 0.01)
            places = _ascending(wishes, weights)
            for item, x, place in zip(row, offsets[level], places, strict=True):
                centre[item] = place + x
    left = min(x - width / 2 for x, width in zip(centre, layout.widths, strict=True))
    return [x - left for x in centre]


def _springs(layout: _Layout) -> tuple[Springs, Springs]:
    """For every item the stiffness of its links upwards, and downwards.

    Trunks are stiffest, then the longest way down to each box: it is the spine of the picture.
    """
    above, _ = layout.neighbours()
    ancestry = [0] * len(layout.widths)
    for row in reversed(layout.rows):
        for item in row:
            ancestry[item] = max((ancestry[n] + 1 for n in above[item]), default=0)
    up: Springs = [[] for _ in layout.widths]
    down: Springs = [[] for _ in layout.widths]
    for upper, lower in layout.links:
        if upper >= layout.box_count and lower >= layout.box_count:
            stiffness = 100.0
        elif 0 < ancestry[upper] == ancestry[lower] - 1:
            stiffness = 10.0
        else:
            stiffness = 1.0
        up[lower].append((upper, stiffness))
        down[upper].append((lower, stiffness))
    return up, down


def _offsets(layout: _Layout, row: Sequence[int]) -> list[float]:
    """The centres of a row's items when they stand as close as they may."""
    steps = ((layout.widths[a] + layout.widths[b]) / 2 + _GAP for a, b in itertools.pairwise(row))
    return list(itertools.accumulate(steps, initial=0.0))


def _ascending(wishes: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The ascending numbers nearest to the wishes, by weighted squares; wishes that clash pool."""
    pools: list[tuple[float, float, int]] = []
    for wish, weight in zip(wishes, weights, strict=True):
        pool = (wish, weight, 1)
        while pools and pools[-1][0] >= pool[0]:
            mean, total, count = pools.pop()
            joint = total + pool[1]
            pool = ((mean * total + pool[0] * pool[1]) / joint, joint, count + pool[2])
        pools.append(pool)
    return [mean for mean, _, count in pools for _ in range(count)]


# ---- SVG -----------------------------------------------------------------------------------------

FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"
CHARACTER_WIDTH = 7.25  # of 12 px monospace type
_LINE_HEIGHT = 16.0
_LAYER_GAP = 32.0
_MARGIN = 12.0
_ARROW = 7.0

COLOURS = {
    "function": ("#eef0f3", "#b3b9c2"),
    "leaf": ("#cfe5fa", "#5a9bd8"),
    "output": ("#d2efd3", "#5fae63"),
}


def _svg(boxes: Sequence[_Box], edges: Sequence[Edge]) -> str:
    """The picture; leaves at the top, the output at the bottom."""
    sizes = [_size(box) for box in boxes]
    layout = _layered([width for width, _ in sizes], edges)
    _reduce_crossings(layout)
    x = _horizontal(layout)
    spans, height = _vertical(layout, x, [height for _, height in sizes])
    width = max(c + w / 2 for c, w in zip(x, layout.widths, strict=True))
    middle = [(top + bottom) / 2 for top, bottom in spans]
    half = [height / 2 for _, height in sizes] + [0.0] * (len(x) - len(boxes))

    full_width, full_height = width + 2 * _MARGIN, height + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full_width:.0f}" '
        f'height="{full_height:.0f}" viewBox="{-_MARGIN:g} {-_MARGIN:g} {full_width:.1f} '
        f'{full_height:.1f}" role="img" font-size="12" text-anchor="middle" '
        f'font-family="{FONT}">',
        "<title>backward graph</title>",
        '<g fill="none" stroke="#8a929e" stroke-width="1.3">',
    ]
    tips = []
    for upper, lower, port in _ports(layout, x):
        end = middle[lower] - half[lower]
        line = _line(x[upper], spans[upper][1], port, spans[lower][0])
        if lower < layout.box_count:
            tips.append(f"M{port:.1f},{end:.1f}l-3.5,-{_ARROW:g}h7z")
            end -= _ARROW
        parts.append(
            f'<path d="M{x[upper]:.1f},{middle[upper] + half[upper]:.1f}{line}V{end:.1f}"/>'
        )
    parts += ["</g>", f'<path fill="#8a929e" d="{"".join(tips)}"/>']
    for box, (box_width, _), centre, y in zip(boxes, sizes, x, middle, strict=False):
        parts += _drawn(box, box_width, centre, y)
    return "\n".join([*parts, "</svg>", ""])


def _size(box: _Box) -> tuple[float, float]:
    longest = max(map(len, box.lines))
    return longest * CHARACTER_WIDTH + 20, len(box.lines) * _LINE_HEIGHT + 10


def _vertical(
    layout: _Layout, x: Sequence[float], heights: Sequence[float]
) -> tuple[list[tuple[float, float]], float]:
    """Top and bottom of every item's layer, and the height of the picture."""
    above, _ = layout.neighbours()
    spans = [(0.0, 0.0)] * len(layout.widths)
    bottom = 0.0
    for row in reversed(layout.rows):
        farthest = max((abs(x[item] - x[n]) for item in row for n in above[item]), default=0.0)
        gap = _LAYER_GAP + min(_LAYER_GAP, farthest / 12) if bottom else 0.0
        top = bottom + gap
        bottom = top + max((heights[item] for item in row if item < layout.box_count), default=0.0)
        for item in row:
            spans[item] = top, bottom
    return spans, bottom


def _ports(layout: _Layout, x: Sequence[float]) -> Iterator[tuple[int, int, float]]:
    """Every link with the place where it ends: side by side on top of a box."""
    above, _ = layout.neighbours()
    for lower, uppers in enumerate(above):
        room = max(0.0, layout.widths[lower] - 24)
        step = min(16.0, room / max(1, len(uppers) - 1))
        first = x[lower] - step * (len(uppers) - 1) / 2
        for position, upper in enumerate(sorted(uppers, key=x.__getitem__)):
            yield upper, lower, first + step * position


def _line(x0: float, y0: float, x1: float, y1: float) -> str:
    """The part of an edge between two layers; it leaves and arrives vertically."""
    if abs(x0 - x1) < 3:
        return f"V{y0:.1f}L{x1:.1f},{y1:.1f}"
    bend = (y1 - y0) * 0.6
    return f"V{y0:.1f}C{x0:.1f},{y0 + bend:.1f} {x1:.1f},{y1 - bend:.1f} {x1:.1f},{y1:.1f}"


def _drawn(box: _Box, width: float, x: float, y: float) -> Iterator[str]:
    fill, stroke = COLOURS[box.kind]
    height = len(box.lines) * _LINE_HEIGHT + 10
    yield (
        f'<rect class="{box.kind}" x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}" rx="5" fill="{fill}" stroke="{stroke}"/>'
    )
    for number, line in enumerate(box.lines):
        baseline = y + (number - (len(box.lines) - 1) / 2) * _LINE_HEIGHT + 4
        weight = ' font-weight="bold"' if len(box.lines) > 1 and number == 0 else ""
        yield (
            f'<text x="{x:.1f}" y="{baseline:.1f}" fill="#1d232b"{weight}>'
            f"{escape(printable(line))}</text>"
        )


def printable(text: str) -> str:
    """The text without characters that XML forbids."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


# ---- Graphviz ------------------------------------------------------------------------------------


def _dot(boxes: Sequence[_Box], edges: Iterable[Edge]) -> str:
    """The same picture in the language of Graphviz."""
    parts = [
        "digraph backward {",
        '  node [shape=box, style="rounded,filled", fontname="monospace", fontsize=10];',
        '  edge [color="#8a929e"];',
    ]
    for number, box in enumerate(boxes):
        fill, stroke = COLOURS[box.kind]
        label = "\\n".join(
            printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in box.lines
        )
        parts.append(f'  n{number} [label="{label}", fillcolor="{fill}", color="{stroke}"];')
    parts += [f"  n{source} -> n{user};" for source, user in edges]
    return "\n".join([*parts, "}", ""])
