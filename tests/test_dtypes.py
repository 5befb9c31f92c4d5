"""The table of dtypes: every place that asks has an answer for each row, and no other file lists dtypes."""

import ast
import io
import os
import pickle
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from adjit.kernels.language import intrinsics
from adjit.kernels.math import integer, special, vector
from adjit.kernels.ops import gemm_tile
from test_architecture import FILES, KERNELS, SOURCE

import adjit
from adjit import dtypes
from adjit.ops import creation, exchange
from adjit.schedule.codegen import loops
from adjit.schedule.gpu import products

NAMES = {row.name for row in dtypes.TABLE}
SUPPORTED = [pytest.param(kind, id=kind.name) for kind in dtypes.SUPPORTED]
NEAR_MOST = 40  # a number that every dtype but bool holds


def some_numbers(kind):
    """Elements of a dtype: the smallest and the largest among them."""
    if kind.kind == "b":
        return np.array([True, False, True])
    limits = (np.finfo if kind.is_floating_point else np.iinfo)(kind.numpy)
    return np.array([0, 1, NEAR_MOST, limits.min, limits.max], kind.numpy)


# ----- rows -----


def test_every_row_is_a_dtype_under_its_name():
    assert [kind.name for kind in dtypes.ALL] == [row.name for row in dtypes.TABLE]
    for kind in dtypes.ALL:
        assert getattr(adjit, kind.name) is getattr(dtypes, kind.name) is kind
        assert dtypes.by_name(kind.name) is kind
        assert kind.name in dtypes.__all__


def test_a_row_is_whole():
    """What a dtype needs in kernels and ops it has all of, or nothing of."""
    for kind in dtypes.ALL:
        needed = "stored", "computed", "moved", "summed", "running"
        assert len({bool(getattr(kind.row, name)) for name in needed}) == 1, kind
        assert (kind.kind in "fc") is (kind.row.digits > 0), kind
        assert kind.numpy.itemsize == kind.itemsize, kind


@pytest.mark.parametrize("column", ["name", "legacy", "c", "file", "method"])
def test_names_stand_for_one_dtype(column):
    names = [getattr(row, column) for row in dtypes.TABLE if getattr(row, column)]
    assert len(set(names)) == len(names)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_rows_are_pytorchs():
    torch = pytest.importorskip("torch")
    for kind in dtypes.ALL:
        theirs = getattr(torch, kind.name)
        assert theirs.itemsize == kind.itemsize
        assert theirs.is_floating_point is kind.is_floating_point
        assert theirs.is_complex is kind.is_complex
        assert theirs.is_signed is kind.is_signed
        assert torch.zeros(0, dtype=theirs).type() == f"torch.{kind.legacy}Tensor"
        if kind.kind in "fc":
            assert kind.row.digits == 1 - round(np.log2(torch.finfo(theirs).eps))
        if kind.row.method:
            assert getattr(torch.zeros(0), kind.row.method)().dtype is theirs
        first = torch.float32 if kind is dtypes.uint16 else torch.uint16
        with pytest.raises(RuntimeError) as error:  # an error with C++'s name
            torch.zeros(1, dtype=first).lerp(torch.zeros(1, dtype=theirs), 0.5)
        assert str(error.value).endswith(f"got dtype {kind.row.c}")
        for other in dtypes.ALL:
            try:
                promoted = torch.promote_types(theirs, getattr(torch, other.name))
            except RuntimeError as error:
                with pytest.raises(RuntimeError, match=f"^{re.escape(str(error))}$"):
                    dtypes.promote_types(kind, other)
            else:
                found = dtypes.promote_types(kind, other).name
                assert f"torch.{found}" == str(promoted), (kind, other)


def test_limits_are_pytorchs():
    torch = pytest.importorskip("torch")
    for kind in dtypes.ALL:
        if kind.kind == "f":
            ours, theirs = dtypes.finfo(kind), torch.finfo(getattr(torch, kind.name))
            names = "bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype"
        elif kind.kind in "ui":
            ours, theirs = dtypes.iinfo(kind), torch.iinfo(getattr(torch, kind.name))
            names = "bits", "max", "min", "dtype"
        else:
            continue
        for name in names:
            assert getattr(ours, name) == getattr(theirs, name), (kind, name)
        assert repr(ours) == repr(theirs)
        assert ours == type(ours)(kind)
    assert dtypes.finfo(dtypes.float32) != dtypes.finfo(dtypes.float64)


# ----- places that ask -----


@pytest.mark.parametrize("kind", SUPPORTED)
def test_kernels_have_what_a_row_says(kind):
    row = kind.row
    for name in (row.stored, row.computed, row.moved):
        assert loops.KINDS.fullmatch(name)
        assert np.dtype(name).name == name
    assert np.dtype(row.stored).itemsize == np.dtype(row.moved).itemsize == kind.itemsize
    assert np.dtype(row.moved).kind in "iu"
    assert dtypes.sum_of(kind) in dtypes.SUPPORTED
    assert dtypes.running_sum_of(kind) in dtypes.SUPPORTED
    if kind.is_floating_point:
        assert row.least > 0
        names = {name for name, _ in vector.TABLE}
        assert {name for name, computed in vector.TABLE if computed == row.computed} == names
        names = {name for name, _ in special.TABLE}
        assert {name for name, computed in special.TABLE if computed == row.computed} == names
        assert row.stored in gemm_tile.SCALARS
        assert row.stored in products.TYPES
    else:
        assert all(callable(getattr(integer, name)) for name in integer.TABLE.values())


@pytest.mark.parametrize("kind", SUPPORTED)
def test_elements_go_in_and_come_out(kind):
    numbers = some_numbers(kind)
    x = adjit.tensor(numbers)
    assert x.dtype is kind is dtypes.of_numpy(kind.numpy)
    assert repr(x.tolist()) == repr(numbers.tolist())
    assert [repr(x[k].item()) for k in range(len(x))] == [repr(v.item()) for v in numbers]
    assert adjit.tensor(numbers.tolist(), dtype=kind).tolist() == numbers.tolist()
    assert adjit.tensor(1, dtype=kind).item() == adjit.full((1,), 1, dtype=kind).item() == 1
    assert str(x).count(",") >= len(x) - 1
    assert np.array_equal(x.numpy(), numbers)
    assert np.array_equal(x.flip(0).clone().numpy(), numbers[::-1])
    assert np.array_equal(adjit.cat([x, x]).numpy(), np.concatenate([numbers, numbers]))


@pytest.mark.parametrize("kind", SUPPORTED)
def test_machine_code_reads_and_writes_elements_as_python_does(kind):
    """The first eight settles Python does it: so each is done often."""
    numbers = some_numbers(kind)
    expected = numbers.tolist()
    for _ in range(20):
        x = adjit.tensor(expected, dtype=kind)
        assert repr(x.tolist()) == repr(expected)
        assert repr(x[-1].item()) == repr(expected[-1])
        assert bool(x[1]) is bool(expected[1])


@pytest.mark.parametrize("kind", SUPPORTED)
def test_elements_are_computed_with(kind):
    numbers = some_numbers(kind)[:3]
    x = adjit.tensor(numbers)
    total = numbers.sum(dtype=dtypes.sum_of(kind).numpy)
    assert x.sum().item() == x.cumsum(0)[-1].item() == total
    assert x.sum().dtype is x.cumsum(0).dtype is dtypes.sum_of(kind)
    assert (x * x).tolist() == (numbers * numbers).tolist()
    assert (x == x).all()
    assert x.to(adjit.float64).tolist() == numbers.astype(np.float64).tolist()
    assert adjit.tensor(numbers.astype(np.float64)).to(kind).tolist() == numbers.tolist()
    if kind.is_floating_point:
        assert adjit.finfo(kind).eps == 2.0 ** (1 - kind.row.digits)
        assert adjit.tensor([1, 2, 4], dtype=kind).var().item() == pytest.approx(7 / 3)
    elif kind.kind != "b":
        assert adjit.iinfo(kind).max == np.iinfo(kind.numpy).max


@pytest.mark.parametrize("kind", SUPPORTED)
def test_random_numbers_are_of_the_dtype(kind):
    x = adjit.empty(1000, dtype=kind).random_(generator=adjit.Generator().manual_seed(1)).numpy()
    assert x.dtype == kind.numpy
    assert len(np.unique(x)) > (1 if kind.kind == "b" else 90)
    if kind.kind == "f":
        assert x.min() >= 0
        assert 2.0 ** (kind.row.digits - 1) < x.max() <= 2.0**kind.row.digits
        drawn = adjit.rand(1000, dtype=kind).numpy()
        assert 0 <= drawn.min() < 0.1 < 0.9 < drawn.max() < 1


@pytest.mark.parametrize("kind", SUPPORTED)
def test_files_hold_the_dtype(kind, tmp_path):
    x = adjit.tensor(some_numbers(kind))
    adjit.save({"x": x}, tmp_path / "x.safetensors")
    found = safetensors.numpy.load_file(tmp_path / "x.safetensors")["x"]
    assert np.array_equal(found, x.numpy())
    header = (tmp_path / "x.safetensors").read_bytes()[8:200]
    assert f'"dtype":"{kind.row.file}"'.encode() in header
    assert adjit.load(tmp_path / "x.safetensors")["x"].tolist() == x.tolist()


@pytest.mark.parametrize("kind", SUPPORTED)
def test_files_of_pytorch_hold_the_dtype(kind):
    torch = pytest.importorskip("torch")
    numbers = some_numbers(kind)
    file = io.BytesIO()
    torch.save(torch.from_numpy(numbers), file)
    file.seek(0)
    found = adjit.load(file)
    assert found.dtype is kind
    assert found.tolist() == numbers.tolist()


@pytest.mark.parametrize("kind", SUPPORTED)
def test_other_libraries_get_the_dtype(kind):
    numbers = some_numbers(kind)
    assert np.from_dlpack(adjit.tensor(numbers)).dtype == kind.numpy
    found = adjit.from_dlpack(np.array(numbers))
    assert found.dtype is kind
    assert found.tolist() == numbers.tolist()
    assert exchange.SPOKEN_CODES[kind.row.dlpack] in {
        "b": ["bool"], "u": ["uint"], "i": ["int"], "f": ["float", "bfloat"], "c": ["complex"]
    }[kind.kind]  # fmt: skip


@pytest.mark.parametrize("kind", SUPPORTED)
def test_pytorchs_old_names_of_the_dtype(kind):
    x = adjit.ones(1, dtype=kind)
    assert x.type() == f"torch.{kind.legacy}Tensor"
    if kind.row.method:
        assert getattr(adjit.zeros(1), kind.row.method)().dtype is kind
        old = creation.legacy_types[f"{kind.legacy}Tensor"]
        assert old([1]).dtype is kind
        assert isinstance(x, old)
        assert isinstance(x, old | None)  # an annotation of many programs
        assert isinstance(None, None | old)
        assert not isinstance(x.cpu().numpy(), old | None)
        assert pickle.loads(pickle.dumps(old)) is old


def test_dtypes_without_tensors_are_refused():
    missing = [kind for kind in dtypes.ALL if kind not in dtypes.SUPPORTED]
    for kind in missing:
        with pytest.raises(NotImplementedError, match=f"{kind!r} is not supported yet"):
            adjit.zeros(1, dtype=kind)
        if kind.row.method:
            with pytest.raises(NotImplementedError, match=f"{kind!r} is not supported yet"):
                getattr(adjit.zeros(1), kind.row.method)()


def test_functions_of_one_dtype_are_registered_by_its_name():
    for dtype in (np.float32, np.float64):
        assert intrinsics.register("same", lambda x: x, dtype, 1).traced[1].name == dtype.__name__


ROW = """    DtypeRow("uint16", "u", 2, 2, "uint16", ctypes.c_uint16, "uint16", "uint16", "int16",
             "int64", "uint16", 0, 0.0, "UInt16", "", "unsigned short", "U16", 1),
)
# fmt: on
"""
PROGRAM = """
import numpy as np
import adjit
numbers = np.array([[1, 2, 40, 65535], [7, 0, 3, 60000]], np.uint16)
for _ in range(20):
    x = adjit.tensor(numbers)
    assert x.dtype is adjit.dtypes.uint16
    assert x[0].tolist() == [1, 2, 40, 65535] and x[1, 3].item() == 60000 and x[0, 3]
    assert (x + x * 3).tolist() == (numbers + numbers * np.uint16(3)).tolist()
assert (x // 7).tolist() == (numbers // 7).tolist()
assert x.sum(1).tolist() == numbers.sum(1).tolist() and x.sum().dtype is adjit.int64
assert x.sort(1)[0].tolist() == np.sort(numbers, 1).tolist()
assert x.double().tolist() == numbers.tolist() and adjit.tensor([65535.0]).to(x.dtype).item() == 65535
assert adjit.from_dlpack(numbers).dtype is x.dtype and np.from_dlpack(x).dtype == numbers.dtype
adjit.save({"x": x}, "x.safetensors")
assert adjit.load("x.safetensors")["x"].tolist() == numbers.tolist()
"""


def test_a_row_is_all_that_a_dtype_of_whole_numbers_takes(tmp_path):
    shutil.copytree(SOURCE, tmp_path / "adjit")
    shutil.copytree(KERNELS, tmp_path / "adjit" / "kernels", dirs_exist_ok=True)
    file = tmp_path / "adjit" / "dtypes.py"
    text = file.read_text().replace(")\n# fmt: on\n", ROW, 1)
    file.write_text(text.replace("\nALL: ", '\nuint16 = dtype("uint16")\nALL: ', 1))
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr


# ----- no second table -----


def dtypes_named(node):
    """The dtypes that the parts of a display, or the arguments of a call, name: `int8`, "int8" or T.int8."""
    found = set()
    match node:
        case ast.Dict():
            parts = [part for part in (*node.keys, *node.values) if part is not None]
        case ast.Tuple() | ast.List() | ast.Set():
            parts = node.elts
        case ast.Call():
            parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        case ast.ClassDef():
            parts = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
        case _:
            return found
    for part in parts:
        match part:
            case ast.Constant(str() as name) | ast.Name(name) | ast.Attribute(_, name):
                found |= {name.removesuffix("_")} & NAMES
    return found


# These name casts in the source of users' functions, which Numba types: five words of a language.
OF_USERS_SOURCE = {"adjit.user_kernels.typing_pass", "adjit.user_kernels.vocabulary"}
MODULES = [module for module in FILES if module not in {"adjit.dtypes", *OF_USERS_SOURCE}]


@pytest.mark.parametrize("module", MODULES)
def test_no_other_file_lists_dtypes(module):
    text = FILES[module].read_text()
    listed = {
        f"{module}:{node.lineno}": names
        for node in ast.walk(ast.parse(text))
        if len(names := dtypes_named(node)) >= 3
    }
    assert listed == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"int8": 1, "int16": 2, "int32": 3}', "{1: T.int8, 2: T.bool, 4: T.int32}",
        '("float16", "float32", "float64")', "[np.bool_, np.int8, np.uint8]",
        "Kinds(T.int8, T.int16, x=T.int64)", "class Kinds:\n    bool: D\n    int8: D\n    int16: D",
    ],
)  # fmt: skip
def test_lists_of_dtypes_are_found(text):
    assert max(len(dtypes_named(node)) for node in ast.walk(ast.parse(text))) == 3


def test_complex_dtypes_are_known_as_pytorchs():
    torch = pytest.importorskip("torch")
    names = "complex32", "chalf", "complex64", "cfloat", "complex128", "cdouble"

    def told(library):
        kinds = [getattr(library, name) for name in names]
        others = [
            library.float16,
            library.bfloat16,
            library.float32,
            library.float64,
            library.int64,
            library.bool,
        ]
        found = [
            [str(kind), str(kind.to_real()), str(library.finfo(kind)), library.finfo(kind).bits,
             library._utils._element_size(kind)] for kind in kinds
        ]  # fmt: skip
        pairs = [str(library.promote_types(a, b)) for a in kinds for b in kinds + others]
        casts = [library.can_cast(a, b) for a in kinds for b in others]
        return str(found).replace("adjit", "torch"), str(pairs).replace("adjit", "torch"), casts

    assert told(adjit) == told(torch)
