"""Pictures of the backward graph: complete, legible, and refused where too big."""

import itertools
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library import T

from adjit.autograd.draw import _ascending, _crossings, _Layout, draw

SVG = "{http://www.w3.org/2000/svg}"


class Leaf:
    requires_grad = True
    grad_fn = None

    def __init__(self, shape=(2, 3)):
        self.shape = shape


class Function:
    """A backward function, as far as a picture needs it."""

    def __init__(self, name, inputs, **attributes):
        self.text = name
        self.next_functions = tuple((fn, 0) for fn in inputs)
        self.__dict__.update(attributes)

    def name(self):
        return self.text


class Output:
    requires_grad = True
    shape = (4,)

    def __init__(self, grad_fn):
        self.grad_fn = grad_fn


def accumulate(leaf):
    return Function("torch::autograd::AccumulateGrad", [], variable=leaf)


class Picture:
    """The boxes of an SVG document by their first line, and what else it holds."""

    def __init__(self, drawing):
        root = ElementTree.fromstring(drawing.svg)
        self.frame = tuple(float(number) for number in root.get("viewBox").split())
        texts = iter(root.findall(f"{SVG}text"))
        self.boxes = []
        for rect in root.findall(f"{SVG}rect"):
            x, y, w, h = (float(rect.get(key)) for key in ("x", "y", "width", "height"))
            lines = [next(texts).text for _ in range(round((h - 10) / 16))]
            self.boxes.append((rect.get("class"), lines, (x, y, x + w, y + h)))
        assert next(texts, None) is None
        self.links = root.find(f"{SVG}g").findall(f"{SVG}path")
        self.arrows = root.find(f"{SVG}path").get("d").count("M")

    def named(self, first_line):
        [box] = [box for _, lines, box in self.boxes if lines[0] == first_line]
        return box

    def lines(self, kind):
        return sorted(tuple(lines) for box_kind, lines, _ in self.boxes if box_kind == kind)


# ---- graphs of the library -----------------------------------------------------------------------


def test_the_picture_of_the_tutorial():
    a = T.tensor([2.0, 3.0], requires_grad=True)
    b = T.tensor([6.0, 4.0], requires_grad=True)
    drawing = draw(3 * a**3 - b**2, {"a": a, "b": b})
    picture = Picture(drawing)
    assert picture.lines("leaf") == [("a", "(2,)"), ("b", "(2,)")]
    assert picture.lines("output") == [("output", "(2,)")]
    assert picture.lines("function") == [
        ("MulBackward0",),
        ("PowBackward0",),
        ("PowBackward0",),
        ("SubBackward0",),
    ]
    assert picture.arrows == 6
    assert drawing._repr_svg_() == drawing.svg


def test_a_leaf_used_twice_is_one_box_with_two_arrows():
    x = T.ones(2, 2, requires_grad=True)
    picture = Picture(draw((x * x).sum(), {"x": x}))
    assert picture.lines("leaf") == [("x", "(2, 2)")]
    assert picture.lines("output") == [("output", "()")]
    assert picture.arrows == 4


def test_a_leaf_is_a_picture_too():
    x = T.ones(2, requires_grad=True)
    picture = Picture(draw(x, {"x": x}))
    assert [kind for kind, _, _ in picture.boxes] == ["output", "leaf"]
    assert picture.arrows == 1


def test_the_output_can_have_a_name():
    x = T.ones(2, requires_grad=True)
    y = x.exp()
    picture = Picture(draw(y, {"y": y}))
    assert picture.lines("output") == [("y", "(2,)")]
    assert picture.lines("leaf") == [("(2,)",)]


def test_what_needs_no_gradient_has_no_graph():
    with pytest.raises(ValueError, match="there is no graph to draw"):
        draw(T.ones(2))
    with T.no_grad(), pytest.raises(ValueError, match="does not require grad"):
        draw(T.ones(2, requires_grad=True) * 2)


def test_drawing_changes_nothing():
    x = T.ones(3, requires_grad=True)
    y = (x * x).sum()
    draw(y)
    y.backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


# ---- any graph -----------------------------------------------------------------------------------


@st.composite
def graphs(draw_from):
    """Functions and leaves, each function used by a later one; the last is the root."""
    leaf_count = draw_from(st.integers(1, 6))
    nodes = [accumulate(Leaf()) for _ in range(leaf_count)]
    for number in range(draw_from(st.integers(1, 25))):
        inputs = draw_from(st.lists(st.integers(0, len(nodes) - 1), min_size=1, max_size=3))
        nodes.append(Function(f"F{number}", [nodes[i] for i in inputs] + [None]))
    return Output(nodes[-1])


def reached(root):
    found, pending = {}, [root]
    while pending:
        fn = pending.pop()
        if id(fn) not in found:
            found[id(fn)] = fn
            pending += [parent for parent, _ in fn.next_functions if parent is not None]
    return list(found.values())


@settings(max_examples=100, deadline=None)
@given(y=graphs())
def test_every_node_and_edge_is_drawn_and_nothing_overlaps(y):
    nodes = reached(y.grad_fn)
    leaves = {f"leaf{i}": fn.variable for i, fn in enumerate(nodes) if hasattr(fn, "variable")}
    drawing = draw(y, leaves)
    picture = Picture(drawing)
    name_of = {id(leaf): name for name, leaf in leaves.items()}
    label = {
        id(fn): name_of[id(fn.variable)] if hasattr(fn, "variable") else fn.text for fn in nodes
    }
    edges = [
        (label[id(parent)], label[id(fn)])
        for fn in nodes
        for parent, _ in fn.next_functions
        if parent is not None
    ]

    assert len(picture.boxes) == len(nodes) + 1
    assert picture.arrows == len(edges) + 1
    assert drawing.dot.count(" -> ") == len(edges) + 1
    assert drawing.dot.count("label=") == len(nodes) + 1

    for source, user in [*edges, (label[id(y.grad_fn)], "output")]:
        assert picture.named(source)[3] < picture.named(user)[1]
    left, top, width, height = picture.frame
    for _, _, (x0, y0, x1, y1) in picture.boxes:
        assert left <= x0 < x1 <= left + width
        assert top <= y0 < y1 <= top + height
    for (_, _, a), (_, _, b) in itertools.combinations(picture.boxes, 2):
        assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]


def test_a_picture_is_always_the_same():
    def graph():
        leaves = [accumulate(Leaf()) for _ in range(4)]
        sums = [Function("Add", pair) for pair in itertools.combinations(leaves, 2)]
        return Output(Function("Cat", sums))

    assert draw(graph()) == draw(graph())


def test_a_long_edge_keeps_clear_of_the_boxes():
    x, w = accumulate(Leaf()), accumulate(Leaf())
    chain = Function("First", [x, w])
    for number in range(5):
        chain = Function(f"Step{number}", [chain])
    drawing = draw(Output(Function("Last", [chain, w])))
    picture = Picture(drawing)
    # A trunk is made of links between points, drawn as straight vertical lines.
    trunk = [link.get("d") for link in picture.links]
    columns = {float(d[1:].split(",")[0]) for d in trunk if "C" not in d}
    steps = [picture.named(f"Step{number}") for number in range(5)]
    beside = [x for x in columns if all(x < box[0] or x > box[2] for box in steps)]
    assert beside


# ---- limits and files ----------------------------------------------------------------------------


def test_deep_graphs_are_refused_with_a_way_out():
    fn = accumulate(Leaf())
    functions = [fn]
    for _ in range(100_000):
        fn = Function("Mul", [fn])
        functions.append(fn)
    with pytest.raises(ValueError, match=r"more than 500 nodes.*raise max_nodes"):
        draw(Output(fn))
    with pytest.raises(ValueError, match="more than 20 nodes"):
        draw(Output(functions[20]), max_nodes=20)
    assert Picture(draw(Output(functions[20]), max_nodes=21)).arrows == 21
    assert Picture(draw(Output(functions[1500]), max_nodes=2000)).arrows == 1501


def test_names_are_escaped():
    leaf = Leaf()
    name = 'a<b>&"c"\\n\x00\u202e'
    drawing = draw(Output(Function("My<Fn>Backward", [accumulate(leaf)])), {name: leaf})
    picture = Picture(drawing)
    assert picture.lines("leaf") == [('a<b>&"c"\\n\ufffd\ufffd', "(2, 3)")]
    assert picture.lines("function") == [("My<Fn>Backward",)]
    assert r'label="a<b>&\"c\"\\n' in drawing.dot


def test_save(tmp_path):
    drawing = draw(Output(accumulate(Leaf())))
    drawing.save(tmp_path / "graph.svg")
    drawing.save(str(tmp_path / "graph.dot"))
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8") == drawing.svg
    assert (tmp_path / "graph.dot").read_text(encoding="utf-8") == drawing.dot
    with pytest.raises(ValueError, match=r"'graph\.png'.*\.svg or \.dot"):
        drawing.save(tmp_path / "graph.png")


# ---- the parts of the layout ---------------------------------------------------------------------


@given(
    pairs=st.lists(
        st.tuples(st.integers(-50, 50).map(float), st.integers(1, 9).map(float)), max_size=8
    )
)
def test_ascending_is_the_isotonic_regression(pairs):
    wishes, weights = [w for w, _ in pairs], [w for _, w in pairs]

    def mean(first, last):
        piece = range(first, last + 1)
        return sum(wishes[i] * weights[i] for i in piece) / sum(weights[i] for i in piece)

    expected = [
        max(min(mean(j, k) for k in range(i, len(pairs))) for j in range(i + 1))
        for i in range(len(pairs))
    ]
    assert _ascending(wishes, weights) == pytest.approx(expected)


@given(links=st.lists(st.tuples(st.integers(0, 5), st.integers(6, 11)), max_size=20))
def test_crossings_are_counted(links):
    layout = _Layout([0.0] * 12, [[*range(6, 12)], [*range(6)]], links, 12)
    expected = sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in itertools.combinations(links, 2))
    assert _crossings(layout) == expected
