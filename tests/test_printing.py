"""Printed tensors are PyTorch's, character by character, and their HTML form is sound."""

import html.parser
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import adjit
from adjit import printing

DEFAULTS = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}


@pytest.fixture(autouse=True)
def default_options():
    printing.set_printoptions(**DEFAULTS)
    yield
    printing.set_printoptions(**DEFAULTS)


def text(values, *, dtype=None, **facts):
    """The text form, with the dtype facts a float32-by-default library would give."""
    array = np.asarray(values, dtype=dtype)
    return printing.tensor_repr(
        array,
        dtype_name=f"adjit.{array.dtype}",
        is_default_dtype=array.dtype in (np.float32, np.complex64),
        **facts,
    )


# ---- known strings -------------------------------------------------------------------------------

KNOWN = [
    (np.full((2, 2), 2, "f4"), "tensor([[2., 2.],\n        [2., 2.]])"),
    (np.float32(1.5), "tensor(1.5000)"),
    (np.float32(1), "tensor(1.)"),
    (np.arange(3), "tensor([0, 1, 2])"),
    (np.array([1e-8, 1], "f4"), "tensor([1.0000e-08, 1.0000e+00])"),
    (np.array([], "f4"), "tensor([])"),
    (np.array([], "i8"), "tensor([], dtype=adjit.int64)"),
    (np.zeros((0, 3), "f4"), "tensor([], size=(0, 3))"),
    (np.zeros((2, 0), bool), "tensor([], size=(2, 0), dtype=adjit.bool)"),
    (np.zeros((0, 2), "c8"), "tensor([], size=(0, 2), dtype=adjit.complex64)"),
    (np.array([1, 2], "f8"), "tensor([1., 2.], dtype=adjit.float64)"),
    (np.array([[5, 8]], "u1"), "tensor([[5, 8]], dtype=adjit.uint8)"),
    (np.array([True, False]), "tensor([ True, False])"),
    (np.array(True), "tensor(True)"),
    (np.array([0.0, -0.0], "f4"), "tensor([0., -0.])"),
    (np.array([math.nan, math.inf, -math.inf], "f4"), "tensor([nan, inf, -inf])"),
    (np.array([1, math.nan], "f4"), "tensor([1., nan])"),
    (np.array([0.5, math.inf], "f4"), "tensor([0.5000,    inf])"),
    (np.array([1, 1000], "f4"), "tensor([   1., 1000.])"),
    (np.array([1, 1001], "f4"), "tensor([1.0000e+00, 1.0010e+03])"),
    (np.array([1e8], "f4"), "tensor([100000000.])"),
    (np.array([-(2**63), 2**63 - 1]), "tensor([-9223372036854775808,  9223372036854775807])"),
    (np.array([1 + 2j, 3.5 - 4j], "c8"), "tensor([1.0000+2.j, 3.5000-4.j])"),
    (np.array(-0.0 - 1j, "c8"), "tensor(-0.-1.j)"),
    (np.arange(2000), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"),
    (
        np.arange(2000).reshape(1000, 2),
        "tensor([[   0,    1],\n        [   2,    3],\n        [   4,    5],\n        ...,\n"
        "        [1994, 1995],\n        [1996, 1997],\n        [1998, 1999]])",
    ),
    (
        np.arange(4, dtype="f4").reshape(2, 1, 2),
        "tensor([[[0., 1.]],\n\n        [[2., 3.]]])",
    ),
]


@pytest.mark.parametrize(("values", "expected"), KNOWN)
def test_known_texts(values, expected):
    assert text(values) == expected


def test_known_notes():
    twos = np.array([2, 2], "f4")
    assert text(twos, grad_fn_name="MulBackward0") == "tensor([2., 2.], grad_fn=<MulBackward0>)"
    assert text(twos, requires_grad=True) == "tensor([2., 2.], requires_grad=True)"
    assert text(twos, requires_grad=True, grad_fn_name="AddBackward0").count("=") == 1
    assert text(twos, device="cuda:0") == "tensor([2., 2.], device='cuda:0')"
    assert text(twos, tangent=text(twos)) == "tensor([2., 2.], tangent=tensor([2., 2.]))"
    assert text(twos, dtype="f8", device="cuda:0", requires_grad=True) == (
        "tensor([2., 2.], device='cuda:0', dtype=adjit.float64, requires_grad=True)"
    )


def test_a_parameter_is_indented_like_a_tensor():
    values = np.ones((2, 2), "f4")
    parameter = text(values, prefix="Parameter containing:\ntensor(", requires_grad=True)
    assert parameter == "Parameter containing:\n" + text(values, requires_grad=True)


def test_a_note_that_does_not_fit_goes_to_the_next_line():
    values = np.full(8, 0.125, "f4")
    assert text(values, grad_fn_name="MulBackward0") == (
        "tensor([0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250],\n"
        "       grad_fn=<MulBackward0>)"
    )


# ---- options -------------------------------------------------------------------------------------


def test_options_are_kept_and_restored():
    with printing.printoptions(precision=1, edgeitems=1, threshold=3):
        assert printing.get_printoptions() == DEFAULTS | {
            "precision": 1,
            "edgeitems": 1,
            "threshold": 3,
        }
        assert text(np.array([0.25, 1, 2, 3], "f4")) == "tensor([0.2,  ..., 3.0])"
    assert printing.get_printoptions() == DEFAULTS


def test_options_are_restored_after_an_error():
    with pytest.raises(KeyError), printing.printoptions(precision=1):
        raise KeyError
    assert printing.get_printoptions() == DEFAULTS


def test_profiles():
    printing.set_printoptions(profile="short", precision=3)
    assert printing.get_printoptions() == DEFAULTS | {"edgeitems": 2, "precision": 3}
    printing.set_printoptions(profile="full")
    assert printing.get_printoptions() == DEFAULTS | {"threshold": math.inf}
    assert "..." not in text(np.arange(2000))
    before = printing.get_printoptions()
    printing.set_printoptions(
        profile="long"
    )  # which is none, as programs have it, and changes nothing
    assert printing.get_printoptions() == before


def test_sci_mode_is_set_by_every_call():
    printing.set_printoptions(sci_mode=True)
    assert text(np.float32(1)) == "tensor(1.0000e+00)"
    printing.set_printoptions(precision=2)
    assert text(np.float32(1e-5)) == "tensor(1.00e-05)"
    printing.set_printoptions(sci_mode=False)
    assert text(np.float32(1e-5)) == "tensor(0.00)"


def test_an_infinite_line_is_one_line():
    printing.set_printoptions(linewidth=math.inf, threshold=math.inf)
    assert "\n" not in text(np.arange(5000), requires_grad=True)


# ---- formatting an item --------------------------------------------------------------------------


def test_format_takes_the_item():
    assert printing.format_tensor_spec(np.array(2.5, "f4"), ".2f") == "2.50"
    assert printing.format_tensor_spec(np.array(7), "04d") == "0007"
    assert printing.format_tensor_spec(np.array(True), "") == "True"
    with pytest.raises(TypeError, match=r"unsupported format string passed to Tensor\.__format__"):
        printing.format_tensor_spec(np.ones(2), ".2f")


# ---- a summary looks at what it shows ------------------------------------------------------------


class Untouchable(np.ndarray):
    """An array whose elements may only be picked, never all listed."""

    def tolist(self):
        assert self.size < 100
        return super().tolist()


def test_summaries_format_only_what_they_show():
    huge = np.broadcast_to(np.float32(1), (10**6, 10**6)).view(Untouchable)
    assert text(huge).count("1.") == 36
    assert html_of(huge).count("<td>1.</td>") == 100


# ---- against PyTorch -----------------------------------------------------------------------------

DTYPES = ["bool", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6)

interesting_floats = st.one_of(
    st.floats(width=16),
    st.integers(-20, 20).map(float),
    st.sampled_from([0.0, -0.0, 1e-4, 1e8, 0.1, 1000.0, 1001.0, math.inf, -math.inf, math.nan]),
)


@st.composite
def arrays(draw):
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(SHAPES)
    if dtype.kind == "f":
        elements = interesting_floats.filter(lambda x: dtype != "f2" or abs(x) != 1e8)
        return draw(hnp.arrays(dtype, shape, elements=elements))
    if dtype.kind == "c":
        elements = st.builds(complex, interesting_floats, interesting_floats)
        return draw(hnp.arrays(dtype, shape, elements=elements))
    return draw(hnp.arrays(dtype, shape))


@st.composite
def large_arrays(draw):
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.sampled_from([(1001,), (7, 150), (150, 7), (2, 6, 101), (11, 1, 11, 11)]))
    scale = draw(st.sampled_from([1, 30, 1e4]))
    numbers = np.random.default_rng(draw(st.integers(0, 99))).normal(size=shape) * scale
    return numbers.astype("i4").astype(dtype) if dtype.kind in "biu" else numbers.astype(dtype)


print_options = st.fixed_dictionaries(
    {},
    optional={
        "precision": st.integers(0, 9),
        "threshold": st.integers(0, 40),
        "edgeitems": st.integers(0, 4),
        "linewidth": st.integers(5, 120),
        "sci_mode": st.sampled_from([None, True, False]),
        "profile": st.sampled_from(["default", "short", "full"]),
    },
)


def check_against_torch(torch, values, options, requires_grad):
    tensor = torch.from_numpy(values.copy())
    facts = {}
    if requires_grad and values.dtype.kind in "fc":
        tensor.requires_grad_(True)
        facts["requires_grad"] = True
    torch.set_printoptions(**DEFAULTS)
    torch.set_printoptions(**options)
    try:
        with printing.printoptions(**options):
            assert printing.get_printoptions() == torch._tensor_str.get_printoptions()
            ours = text(values, **facts)
            theirs = repr(tensor)
            prefix = "Parameter containing:\ntensor("
            ours_as_parameter = text(values, prefix=prefix, **facts)
            theirs_as_parameter = repr(torch.nn.Parameter(tensor, requires_grad=bool(facts)))
    finally:
        torch.set_printoptions(**DEFAULTS)
    # A dtype's name may decide about a line break, so the names are made equally long.
    assert ours.replace("adjit.", "torch.") == theirs
    assert ours_as_parameter.replace("adjit.", "torch.") == theirs_as_parameter


@settings(max_examples=300, deadline=None)
@given(values=arrays(), options=print_options, requires_grad=st.booleans())
def test_texts_are_those_of_torch(values, options, requires_grad):
    check_against_torch(pytest.importorskip("torch"), values, options, requires_grad)


@settings(max_examples=60, deadline=None)
@given(values=large_arrays(), options=print_options, requires_grad=st.booleans())
def test_summaries_are_those_of_torch(values, options, requires_grad):
    check_against_torch(pytest.importorskip("torch"), values, options, requires_grad)


@pytest.mark.parametrize("default", ["float32", "float64"])
@pytest.mark.parametrize(
    "kind", ["bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64"]
)
def test_tensors_name_their_dtype_where_pytorchs_do(kind, default):
    torch = pytest.importorskip("torch")

    def told(library):
        before = library.get_default_dtype()
        library.set_default_dtype(getattr(library, default))
        try:
            dtype = getattr(library, kind)
            shapes = (0,), (0, 3), (2, 0), (), (2,), (1, 2)
            return [repr(library.ones(shape, dtype=dtype)) for shape in shapes]
        finally:
            library.set_default_dtype(before)

    assert told(adjit) == [text.replace("torch.", "adjit.") for text in told(torch)]


@settings(max_examples=50, deadline=None)
@given(values=st.one_of(st.floats(), st.integers(-(2**63), 2**63 - 1), st.booleans()))
def test_formatted_items_are_those_of_torch(values):
    torch = pytest.importorskip("torch")
    array = np.asarray(values)
    for spec in ("", ".3f", "10.2e", "+g"):
        expected = format(torch.from_numpy(array), spec)
        assert printing.format_tensor_spec(array, spec) == expected


# ---- HTML ----------------------------------------------------------------------------------------


def html_of(values, **facts):
    array = np.asanyarray(values)
    return printing.tensor_html(array, dtype_name=f"adjit.{array.dtype}", **facts)


class Balance(html.parser.HTMLParser):
    """Collects table cells, and fails on a tag that is closed in the wrong order."""

    def __init__(self):
        super().__init__()
        self.open, self.cells, self.heads, self.tables = [], [], [], 0

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tables += tag == "table"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "td":
            self.cells.append(data)
        if self.open and self.open[-1] == "th":
            self.heads.append(data)


def parsed(markup):
    parser = Balance()
    parser.feed(markup)
    parser.close()
    assert not parser.open
    return parser


@settings(max_examples=50, deadline=None)
@given(values=arrays())
def test_html_is_balanced_and_shows_small_tensors_whole(values):
    page = parsed(html_of(values))
    assert page.tables <= 7
    if values.ndim <= 2:
        assert sum(cell != "…" for cell in page.cells) == values.size


def test_html_numbers_rows_and_columns():
    page = parsed(html_of(np.arange(40.0).reshape(2, 20)))
    assert page.heads == [*"01234", "…", "15", "16", "17", "18", "19", "0", "1"]
    assert page.cells[:6] == ["0.", "1.", "2.", "3.", "4.", "…"]
    assert page.cells[-1] == "39."


def test_html_labels_slices():
    markup = html_of(np.zeros((2, 3, 4, 5), "f4"))
    assert [f"<caption>[{i}, {j}, :, :]" in markup for i in range(2) for j in range(3)] == [
        True
    ] * 6
    many = html_of(np.zeros((64, 3, 4, 5), "f4"))
    assert parsed(many).tables == 6
    assert "<caption>[63, 2, :, :]" in many


def test_html_tells_about_the_tensor():
    markup = html_of(np.ones(2, "f4"), grad_fn_name="Mul<Backward>", device="cuda:0")
    assert "Tensor · (2,) · adjit.float32 · cuda:0 · grad_fn=&lt;Mul&lt;Backward&gt;&gt;" in markup
    assert "requires_grad=True" in html_of(np.ones(2), requires_grad=True)
    assert "Parameter · ()" in html_of(np.float32(1), kind="Parameter")
    assert "<script" not in markup


@pytest.mark.parametrize("rank", [64, 65, 70])
def test_tensors_of_more_axes_than_numpy_has(rank: int) -> None:
    torch = pytest.importorskip("torch")
    texts = []
    for library in (torch, adjit):
        x = library.arange(6.0).reshape([1] * (rank - 2) + [2, 3])
        texts.append(
            (repr(x).replace("torch.", "adjit."), x.tolist(), x.mT.transpose(0, -1).tolist())
        )
        texts[-1] += (library.zeros([0] + [1] * (rank - 1)).tolist(),)
        x.requires_grad_()
        texts[-1] += (str(x * 2),)
    assert texts[0] == texts[1]
