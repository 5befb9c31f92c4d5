"""Files: what `save` writes `load` makes again, PyTorch's files are read, bad files end in an error."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import stat
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections import Counter, OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import adjit
from adjit.dtypes import SUPPORTED
from adjit.serialization.source import ByteSource
from adjit.serialization.unpickler import Unpickler

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch writes the files of this test")
both_formats = pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])

# What a bad file may end in; anything else is a crash.
CLEAN = (RuntimeError, pickle.UnpicklingError)


def saved(obj: Any) -> bytes:
    """The bytes of a file of `adjit.save`."""
    file = io.BytesIO()
    adjit.save(obj, file)
    return file.getvalue()


def loaded(data: bytes, **options: Any) -> Any:
    return adjit.load(io.BytesIO(data), **options)


def of_torch(obj: Any, new: bool) -> bytes:
    """The bytes of a file of `torch.save`."""
    file = io.BytesIO()
    torch.save(obj, file, _use_new_zipfile_serialization=new)
    return file.getvalue()


def is_tensor(value: Any) -> bool:
    return isinstance(value, adjit.Tensor) or (
        torch is not None and isinstance(value, torch.Tensor)
    )


def plain(value: Any) -> Any:
    """A nested value of either library as one that can be compared, types included."""
    if is_tensor(value):
        kind = "Parameter" if type(value).__name__ == "Parameter" else "Tensor"
        array = value.detach().numpy()
        return (kind, str(array.dtype), array.shape, value.stride(), array.tobytes(),
                value.requires_grad, plain(vars(value) or None))  # fmt: skip
    if isinstance(value, dict):
        pairs = [(plain(k), plain(v)) for k, v in value.items()]
        return type(value).__name__, pairs, plain(getattr(value, "__dict__", None) or None)
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return type(value).__name__, [plain(part) for part in parts]
    return type(value).__name__, repr(value).replace("torch.", "adjit.")


def training(library: Any) -> tuple[Any, Any]:
    """A small model and its optimiser after a step."""
    library.manual_seed(0)
    model = library.nn.Sequential(
        library.nn.Linear(4, 3), library.nn.ReLU(), library.nn.Linear(3, 2)
    )
    optimizer = library.optim.Adam(model.parameters(), lr=0.1)
    step(library, model, optimizer)
    return model, optimizer


def step(library: Any, model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(library.linspace(-1, 1, 8).reshape(2, 4)).square().sum().backward()
    optimizer.step()


# ----- adjit's own files -----

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text()
    | st.binary() | st.sampled_from([*SUPPORTED, adjit.float16, adjit.device("cpu"), adjit.Size([2, 3])])
)  # fmt: skip
tensors = st.builds(
    lambda kind, shape, order, grad: (
        adjit.from_numpy(np.arange(np.prod(shape)).reshape(shape, order=order).astype(kind.numpy))
        .requires_grad_(grad and kind.is_floating_point)
    ),
    st.sampled_from(SUPPORTED), st.lists(st.integers(0, 3), max_size=3), st.sampled_from("CF"), st.booleans(),
)  # fmt: skip
keys = st.text() | st.integers() | st.tuples(st.integers(), st.text())
values = st.recursive(
    scalars | tensors,
    lambda parts: (
        st.lists(parts, max_size=3) | st.lists(parts, max_size=3).map(tuple)
        | st.sets(st.integers() | st.text(), max_size=3) | st.frozensets(st.floats(), max_size=3)
        | st.dictionaries(keys, parts, max_size=3)
        | st.dictionaries(keys, parts, max_size=3).map(OrderedDict)
        | st.dictionaries(keys, st.integers(), max_size=3).map(Counter)
    ),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(values)
def test_what_is_saved_is_loaded(value):
    assert plain(loaded(saved(value))) == plain(value)


def test_training_goes_on_from_a_checkpoint(tmp_path):
    model, optimizer = training(adjit)
    path = tmp_path / "checkpoint.safetensors"
    adjit.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}, path)
    step(adjit, model, optimizer)

    again, other = training(adjit)
    step(adjit, again, other)  # to be somewhere else
    checkpoint = adjit.load(path)
    assert checkpoint["epoch"] == 1
    again.load_state_dict(checkpoint["model"])
    other.load_state_dict(checkpoint["optimizer"])
    step(adjit, again, other)
    assert plain(again.state_dict()) == plain(model.state_dict())
    assert plain(other.state_dict()) == plain(optimizer.state_dict())


def test_a_state_dict_is_one_for_every_reader_of_safetensors(tmp_path):
    model, _ = training(adjit)
    path = tmp_path / "model.safetensors"
    adjit.save(model.state_dict(), path)
    found = safetensors.numpy.load_file(path)
    assert set(found) == set(model.state_dict())
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(found[name], tensor.numpy())


def test_other_readers_find_shared_tensors_under_the_name_of_the_whole():
    base = adjit.arange(12.0).reshape(3, 4)
    found = safetensors.numpy.load(saved({"row": base[1], "all": base}))
    assert {name: array.shape for name, array in found.items()} == {"all": (3, 4)}
    found = safetensors.numpy.load(saved({"left": base[:, :3], "right": base[:, 1:]}))
    assert {name: array.shape for name, array in found.items()} == {"left.storage": (12,)}
    found = safetensors.numpy.load(saved({"up": base[:1], "down": base[1:]}))
    assert {name: array.shape for name, array in found.items()} == {"up": (1, 4), "down": (2, 4)}


def test_what_was_shared_is_shared_again():
    base = adjit.arange(12.0).reshape(3, 4)
    names = ["a"]
    state = {
        "row": base[1],
        "all": base,
        "columns": base.t(),
        "again": base,
        "n": names,
        "m": names,
    }
    for data in (state, dict(reversed(state.items()))):
        back = loaded(saved(data))
        back["all"][1, 2] = 100
        assert back["row"].tolist() == [4, 5, 100, 7]
        assert back["columns"].tolist() == back["all"].t().tolist()
        assert back["again"] is back["all"]
        assert back["n"] is back["m"] == ["a"]
        assert back["all"].is_contiguous()
        assert back["columns"].stride() == (1, 4)


def test_a_part_of_a_large_tensor_makes_a_small_file():
    large = adjit.zeros(1000, 1000)
    assert len(saved(large[3, :10])) < 1000
    assert len(saved([large[3, :10], large[3, 5:15], large[900, :10]])) < 1500


def test_writes_to_a_loaded_parameter_are_those_to_any_other():
    back = loaded(saved([adjit.nn.Parameter(adjit.ones(4, 4))]))
    optimizer = adjit.optim.SGD(back, lr=0.5)
    back[0].sum().backward()
    optimizer.step()
    assert back[0].tolist() == [[0.5] * 4] * 4
    # What a step of all parameters in one kernel asks for.
    assert back[0]._spec is back[0]._storage.spec
    assert not back[0]._storage.shared


def test_computed_tensors_are_saved_as_leaves():
    x = adjit.ones(2, requires_grad=True)
    back = loaded(saved([x * 2, x.view(2, 1)]))
    assert [t.is_leaf for t in back] == [True, True]
    assert [t.requires_grad for t in back] == [True, True]


def test_a_buffer_is_saved_as_the_tensor_that_it_is():
    back = loaded(saved(adjit.nn.Buffer(adjit.ones(2))))
    assert type(back) is adjit.Tensor
    assert not vars(back)


def test_names_of_tensors_that_would_meet_stay_apart():
    twins = {"a.b": adjit.zeros(1), "a": {"b": adjit.ones(1)}, "__metadata__": adjit.ones(2)}
    assert plain(loaded(saved(twins))) == plain(twins)


class Sub(adjit.Tensor):
    pass


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def ring() -> list[Any]:
    one: list[Any] = []
    one.append([one])
    return one


REFUSED = {
    "an object": ({"a": [object()]}, TypeError, "the entry 'a.0': an object of type builtins.object"),
    "a module": ([adjit.nn.ReLU(), type("Local", (adjit.nn.ReLU,), {})()], TypeError,
                 "save its state_dict() instead"),
    "an array": ({"x": np.ones(2)}, TypeError, "save adjit.tensor(...) of it"),
    "a NumPy number": ({"x": np.float64(1)}, TypeError, "its item()"),
    "a subclass": (adjit.ones(1).as_subclass(Sub), TypeError, "save its detach() instead"),
    "a function": ([print], TypeError, "builtin_function_or_method"),
    "a ring": ({"a": ring()}, ValueError, "the entry 'a.0.0': it contains itself"),
    "a deep nest": (nested(100_000), ValueError, "nested too deeply"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_saved_is_named_and_writes_nothing(case, tmp_path):
    value, error, text = REFUSED[case]
    with pytest.raises(error) as caught:
        adjit.save(value, tmp_path / "x")
    assert text in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# ----- writing -----


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    adjit.save([1], path)

    def interrupted(arrays, filename, metadata):
        Path(filename).write_bytes(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(safetensors.numpy, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        adjit.save([2], path)
    assert adjit.load(path) == [1]
    assert os.listdir(tmp_path) == [path.name]


def test_the_bytes_are_on_the_disk_before_their_name(tmp_path, monkeypatch):
    done = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda n: (done.append(stat.S_ISDIR(os.fstat(n).st_mode)), sync(n))
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("replace"), replace(a, b)))
    adjit.save([1], tmp_path / "x")
    assert done == [False, "replace", True]


KILLED = """
import sys, adjit
for k in range(1, 1000):
    adjit.save(adjit.full((1 << 22,), float(k)), sys.argv[1])
"""


@pytest.mark.skipif(os.name == "nt", reason="needs kill -9")
def test_a_killed_save_leaves_a_whole_file(tmp_path):
    path = tmp_path / "x.safetensors"
    child = subprocess.Popen([sys.executable, "-c", KILLED, path])
    try:
        # Two whole saves may have passed; now one is under way.
        while child.poll() is None and not (path.exists() and len(os.listdir(tmp_path)) == 2):
            time.sleep(0.0005)
        assert child.poll() is None
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    back = adjit.load(path)
    assert back.numel() == 1 << 22
    assert (back == back[0]).all()


@pytest.mark.skipif(os.name == "nt", reason="permissions and links of POSIX")
def test_permissions_and_links_are_kept(tmp_path):
    path, link = tmp_path / "x", tmp_path / "link"
    old = os.umask(0o027)
    try:
        adjit.save([1], path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o600)
    link.symlink_to(path)
    adjit.save([2], link)
    assert link.is_symlink()
    assert adjit.load(path) == [2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_device_is_written_to_and_not_replaced():
    if not os.path.exists(os.devnull) or os.name == "nt":
        pytest.skip("no device to write to")
    adjit.save([1], os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_places_that_cannot_be_written_say_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="folder to save to does not exist"):
        adjit.save([1], tmp_path / "absent" / "x")
    with pytest.raises(IsADirectoryError):
        adjit.save([1], tmp_path)
    with pytest.raises(TypeError, match="open it with mode 'wb'"):
        adjit.save([1], io.StringIO())
    with pytest.raises(TypeError, match="expected a path or a binary file to write, got int"):
        adjit.save([1], 3)


def test_every_kind_of_file_can_be_read(tmp_path):
    path = tmp_path / "x.safetensors"
    adjit.save([1], str(path))
    assert adjit.load(str(path)) == adjit.load(path) == [1]
    with open(path, "rb") as file:
        assert adjit.load(file) == [1]
    behind = io.BytesIO(b"something else" + path.read_bytes())
    behind.seek(14)
    assert adjit.load(behind) == [1]
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.write(path, "x")
        with archive.open("x") as file:
            assert adjit.load(file) == [1]
    with pytest.raises(TypeError, match="open it with mode 'rb'"):
        adjit.load(io.StringIO("text"))
    with pytest.raises(TypeError, match="expected a path or a binary file to read, got int"):
        adjit.load(3)
    with pytest.raises(FileNotFoundError):
        adjit.load(tmp_path / "absent")


# ----- files of others -----


def test_a_safetensors_file_of_others_is_a_dict_of_its_tensors():
    arrays = {
        "b": np.arange(6.0).reshape(2, 3),
        "a": np.array([True, False]),
        "c": np.zeros((0, 2), np.int8),
    }
    back = loaded(safetensors.numpy.save(arrays, {"by": "somebody"}))
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name].numpy(), array)
        assert back[name].numpy().dtype == array.dtype


def test_half_precision_is_named_and_can_become_float32():
    halves = np.array([1.5, -2.0, np.inf, 65504, 6e-8], np.float16)
    data = safetensors.numpy.save({"layer.weight": halves})
    with pytest.raises(NotImplementedError, match=r"tensor 'layer\.weight' is stored as float16"):
        loaded(data)
    back = loaded(data, half_to_float32=True)["layer.weight"]
    assert back.dtype is adjit.float32
    np.testing.assert_array_equal(back.numpy(), halves.astype(np.float32))

    floats = np.array([1.5, -3.0e38, np.inf, 2.0**-130], np.float32)
    header = {"x": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}
    data = by_hand(header, (floats.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    with pytest.raises(NotImplementedError, match="tensor 'x' is stored as bfloat16"):
        loaded(data)
    np.testing.assert_allclose(loaded(data, half_to_float32=True)["x"].numpy(), floats, rtol=2**-7)


def by_hand(header: Any, data: bytes = b"") -> bytes:
    """A safetensors file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_other_dtypes_are_named():
    data = safetensors.numpy.save({"ids": np.ones(2, np.uint64)})
    with pytest.raises(
        NotImplementedError, match=r"tensor 'ids' is stored as uint64.*supported: bool"
    ):
        loaded(data)


def entry(dtype: str = "F32", shape: Any = (2,), data_offsets: Any = (0, 8), **more: Any) -> Any:
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets, **more}


WRONG_HEADERS = {
    "no JSON": (b"{,", b""),
    "no text": (b'{"\xff', b""),
    "a list": (b"[]", b""),
    "a deep nest": (b'{"a":' + b"[" * 100_000, b""),
    "a name twice": (b'{"a":%s,"a":%s}' % ((json.dumps(entry()).encode(),) * 2), bytes(8)),
    "no dtype": ({"a": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "a dtype that is no text": ({"a": entry(dtype=3)}, bytes(8)),
    "something more": ({"a": entry(strides=[1])}, bytes(8)),
    "a negative size": ({"a": entry(shape=[-2])}, bytes(8)),
    "a fraction": ({"a": entry(shape=[2.0])}, bytes(8)),
    "true": ({"a": entry("U8", [True], [0, 1])}, bytes(1)),
    "a size that does not fit": ({"a": entry(shape=[3])}, bytes(8)),
    "a size beyond all bounds": ({"a": entry(shape=[1 << 62, 4])}, bytes(8)),
    "offsets beyond the end": ({"a": entry(shape=[4], data_offsets=[0, 16])}, bytes(8)),
    "offsets backwards": ({"a": entry(data_offsets=[8, 0])}, bytes(8)),
    "one offset": ({"a": entry(data_offsets=[8])}, bytes(8)),
    "an overlap": ({"a": entry(), "b": entry()}, bytes(8)),
    "a gap": ({"a": entry(data_offsets=[4, 12])}, bytes(12)),
    "bytes that belong to nobody": ({"a": entry()}, bytes(9)),
    "metadata that are no strings": ({"__metadata__": {"a": 1}}, b""),
    "metadata that are no dict": ({"__metadata__": [1]}, b""),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_HEADERS)
def test_a_wrong_header_is_refused(case):
    data = by_hand(*WRONG_HEADERS[case])
    with pytest.raises(RuntimeError, match=r"corrupt or truncated|no file of"):
        loaded(data)


@pytest.mark.parametrize("size", [1 << 63, 100_000_001, 1 << 20])
def test_a_header_is_not_read_beyond_the_file(size):
    with pytest.raises(RuntimeError, match=r"too large|bytes in all"):
        loaded(size.to_bytes(8, "little") + b"{}")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_the_safetensors_library_refuses_is_refused(data):
    file = bytearray(safetensors.numpy.save({"a": np.ones((2, 3)), "b": np.arange(4)}, {"k": "v"}))
    head = int.from_bytes(file[:8], "little") + 8
    at = data.draw(st.integers(0, head - 1))
    file[at] ^= data.draw(st.integers(1, 255))
    try:
        expected = safetensors.numpy.load(bytes(file))
    except Exception:
        with pytest.raises(CLEAN):
            loaded(bytes(file))
    else:
        back = loaded(bytes(file))
        assert {k: v.numpy().tobytes() for k, v in back.items()} == {
            k: v.tobytes() for k, v in expected.items()
        }


def altered(data: bytes, draw: Any) -> bytes:
    """A file with a byte flipped, its end cut off, or something behind it."""
    what = draw(st.sampled_from(["flip", "flip", "flip", "cut", "extend"]))
    if what == "cut":
        return data[: draw(st.integers(0, len(data) - 1))]
    if what == "extend":
        return data + draw(st.binary(min_size=1, max_size=40))
    at = draw(st.integers(0, len(data) - 1))
    return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]


def sample(library: Any) -> Any:
    base = library.arange(6.0).reshape(2, 3)
    return OrderedDict(
        weight=base, row=base[1], flags=library.tensor([True, False]),
        state={"step": 3, "lr": 0.1, "betas": (0.9, 0.999), "names": ["a", None, b"b", {1}]},
        parameter=library.nn.Parameter(library.ones(2, dtype=library.float64)),
        empty=library.zeros(0, 3),
    )  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_an_altered_file_is_equal_or_an_error(data):
    original = sample(adjit)
    try:
        back = loaded(altered(saved(original), data.draw))
    except CLEAN:
        return
    assert plain(back) == plain(original)


@needs_torch
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_an_altered_zip_archive_is_equal_or_an_error(data):
    original = sample(torch)
    try:
        back = loaded(altered(of_torch(original, new=True), data.draw))
    except CLEAN:
        return
    assert plain(back) == plain(original)


@needs_torch
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_an_altered_row_of_pickles_is_something_or_an_error(data):
    """It has no checksums: other numbers are not noticed."""
    with suppress(*CLEAN):
        loaded(altered(of_torch(sample(torch), new=False), data.draw))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_noise_is_an_error(noise):
    for start in (b"", b"PK\x03\x04", b"\x80\x02", bytes(8) + b"{"):
        with pytest.raises(CLEAN):
            loaded(start + noise)


# ----- PyTorch's files -----


@needs_torch
@both_formats
def test_a_file_of_pytorch_holds_what_pytorch_loads(new):
    base = torch.arange(12.0).reshape(3, 4)
    marked = torch.nn.Parameter(torch.ones(2))
    marked.tag = [1, 2]
    noted = torch.ones(2)
    noted.note = "n"
    versions = OrderedDict(a=1)
    versions._metadata = {"": {"version": 2}}
    value = {
        "sample": sample(torch), "views": [base.t(), base[1:, ::2], base[0, 0], torch.ones(3).expand(2, 3)],
        "dtypes": [torch.tensor([1, 0, 1]).to(getattr(torch, kind.name)) for kind in SUPPORTED],
        "attributes": [marked, noted, versions], "leaf": torch.ones(1, requires_grad=True),
        "plain": [1, -1, 2**40, -(2**70), 1e300, float("nan"), "é\ud800", b"\x00\xff", bytearray(b"xy"), 1 - 2j,
                  True, None, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {1, "a"}, {}, [], {(1, "a"): 2},
                  Counter("aab"), torch.Size([2, 3]), torch.device("cpu"), torch.float32, torch.bfloat16],
    }  # fmt: skip
    data = of_torch(value, new)
    assert plain(loaded(data)) == plain(torch.load(io.BytesIO(data)))


@needs_torch
@both_formats
def test_tensors_on_one_storage_share_it_again(new):
    base = torch.arange(12.0).reshape(3, 4)
    back = loaded(of_torch({"all": base, "row": base[1], "again": base}, new))
    back["row"].zero_()
    assert back["all"][1].tolist() == [0, 0, 0, 0]
    assert back["again"] is back["all"]


@needs_torch
@both_formats
def test_training_goes_on_from_a_checkpoint_of_pytorch(new):
    model, optimizer = training(torch)
    data = of_torch({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, new)
    step(torch, model, optimizer)

    ours, other = training(adjit)
    checkpoint = loaded(data)
    ours.load_state_dict(checkpoint["model"])
    other.load_state_dict(checkpoint["optimizer"])
    step(adjit, ours, other)
    for mine, theirs in zip(ours.parameters(), model.parameters(), strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-5)


@needs_torch
@both_formats
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_of_pytorch(kind, new):
    halves = torch.tensor([1.5, -2.0, 3e4]).to(getattr(torch, kind))
    data = of_torch({"model": OrderedDict({"a": 1, "fc.weight": torch.nn.Parameter(halves)})}, new)
    with pytest.raises(
        NotImplementedError, match=rf"tensor 'model\.fc\.weight' is stored as {kind}"
    ):
        loaded(data)
    back = loaded(data, half_to_float32=True)["model"]["fc.weight"]
    assert back.tolist() == halves.float().tolist()


@needs_torch
@both_formats
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensors_that_adjit_does_not_have_are_named(new):
    unsupported = {
        "complex64": torch.ones(2, dtype=torch.complex64),
        "uint16": torch.ones(2, dtype=torch.uint16),
        "sparse": torch.eye(2).to_sparse(),
        "QInt8": torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
    }
    for what, tensor in unsupported.items():
        with pytest.raises(NotImplementedError, match=what):
            loaded(of_torch({"x": tensor}, new))
    with pytest.raises(pickle.UnpicklingError, match="a storage by itself"):
        loaded(of_torch(torch.ones(2).untyped_storage(), new))


@needs_torch
def test_a_file_without_checksums_is_read():
    torch.serialization.set_crc32_options(False)
    try:
        data = of_torch(sample(torch), new=True)
    finally:
        torch.serialization.set_crc32_options(True)
    assert plain(loaded(data)) == plain(sample(torch))


@needs_torch
def test_torchscript_is_refused(tmp_path):
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        torch.jit.save(torch.jit.script(torch.nn.ReLU()), tmp_path / "x.pt")
    with pytest.raises(RuntimeError, match="TorchScript archive"):
        adjit.load(tmp_path / "x.pt")


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_a_mapped_file_gives_the_same_and_stays_as_it_is(kind, tmp_path):
    path = tmp_path / f"x.{kind}"
    if kind == "pt":
        pytest.importorskip("torch")
        path.write_bytes(of_torch(sample(torch), new=True))
    else:
        adjit.save(sample(adjit), path)
    before = path.read_bytes()
    back = adjit.load(path, mmap=True)
    assert plain(back) == plain(adjit.load(path))
    back["row"].zero_()
    assert back["weight"].tolist() == [[0, 1, 2], [0, 0, 0]]
    assert path.read_bytes() == before
    with pytest.raises(ValueError, match="f must be a file path in order to use the mmap argument"):
        adjit.load(io.BytesIO(before), mmap=True)


# ----- pickles made by hand, good and bad -----


def name(text: str) -> bytes:
    module, _, last = text.rpartition(".")
    return f"c{module}\n{last}\n".encode()


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a\x09" + data


def row(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def ints(*values: int) -> bytes:
    return row(*map(number, values))


def storage(
    key: str, numel: int, kind: str = "torch.FloatStorage", where: str = "cpu", view: bytes = b""
) -> bytes:
    return row(text("storage"), name(kind), text(key), text(where), number(numel), view) + b"Q"


def tensor(stored: bytes, shape: bytes, strides: bytes, offset: int = 0) -> bytes:
    parts = row(stored, number(offset), shape, strides)
    return name("torch._utils._rebuild_tensor") + parts + b"R"


def zipped(program: bytes, records: dict[str, bytes] | None = None, **options: Any) -> bytes:
    """A zip archive around a pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:
        archive.writestr("x/version", b"3\n")
        archive.writestr("x/data.pkl", b"\x80\x02" + program + b".")
        for key, data in (records or {}).items():
            archive.writestr(f"x/{key}", data)
    return file.getvalue()


def stacked(program: bytes, storages: dict[str, bytes], itemsize: int = 4) -> bytes:
    """A row of pickles, as PyTorch wrote them before 1.6."""
    head = b"".join(
        pickle.dumps(v, 2) for v in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    )
    tail = b"".join(struct.pack("<q", len(d) // itemsize) + d for d in storages.values())
    return head + b"\x80\x02" + program + b"." + pickle.dumps(list(storages), 2) + tail


FLOATS = np.arange(6, dtype=np.float32).tobytes()
MATRIX = tensor(storage("0", 6), ints(2, 3), ints(3, 1))
LEGACY_MATRIX = tensor(storage("0", 6, view=b"N"), ints(2, 3), ints(3, 1))


def read(data: bytes) -> Any:
    """What adjit loads; PyTorch, where it is there, loads the same."""
    back = loaded(data)
    if torch is not None:
        assert plain(back) == plain(torch.load(io.BytesIO(data), weights_only=True))
    return back


def test_files_made_by_hand_are_good_ones():
    """The bad ones below differ from these in one thing."""
    expected = [[0, 1, 2], [3, 4, 5]]
    assert read(zipped(MATRIX, {"data/0": FLOATS})).tolist() == expected
    assert read(stacked(LEGACY_MATRIX, {"0": FLOATS})).tolist() == expected
    big = np.arange(6, dtype=">f4").tobytes()
    assert read(zipped(MATRIX, {"data/0": big, "byteorder": b"big"})).tolist() == expected


def test_the_oldest_pickles_are_read():
    view = row(text("v"), number(2), number(3))
    part = tensor(storage("0", 6, view=view), ints(2), ints(1), offset=1)
    assert read(stacked(part, {"0": FLOATS})).tolist() == [3, 4]
    state = row(LEGACY_MATRIX, b"N", b"N", b"\x89", b"\x89")
    parameter = name("torch.nn.parameter.Parameter") + b")\x81" + state + b"b"
    back = read(stacked(parameter, {"0": FLOATS}))
    assert isinstance(back, adjit.nn.Parameter)
    assert (back.tolist(), back.requires_grad) == ([[0, 1, 2], [3, 4, 5]], False)
    python2 = b"}U\x01a" + name("__builtin__.set") + b"](K\x01K\x02e\x85Rs"
    assert read(stacked(python2, {})) == {"a": {1, 2}}


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A program that would leave a file behind, and the check that nothing has."""
    monkeypatch.chdir(tmp_path)
    yield "touch trapped"
    assert not (tmp_path / "trapped").exists()


class Trapped:
    def __init__(self, call: Any, *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> Any:
        return self.call, self.args


@pytest.mark.parametrize("shape", ["zip", "legacy", "plain"])
@pytest.mark.parametrize(
    ("call", "named"),
    [(os.system, "system"), (eval, "GLOBAL eval was"), (getattr, "GLOBAL getattr was"),
     (subprocess.Popen, "GLOBAL subprocess.Popen was"), (np.ones, "numpy"), (print, "GLOBAL print was")],
)  # fmt: skip
def test_code_is_refused_by_its_name_and_not_run(call, named, shape, trap):
    program = pickle.dumps({"a": Trapped(call, trap)}, 2)
    data = {"zip": zipped(program[2:-1]), "legacy": stacked(program[2:-1], {}), "plain": program}[
        shape
    ]
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed") as caught:
        loaded(data)
    assert named in str(caught.value)
    assert "never runs code" in str(caught.value)


OD = name("collections.OrderedDict")
FROM_TYPE = name("torch._tensor._rebuild_from_type_v2")
PART = row(text("v"), number(4), number(3))
HUGE = 1 << 40
BAD_PROGRAMS = {
    # calls and states of what is not meant for it
    "a call of a dict": b"})R",
    "a call of a dtype": name("torch.float32") + b")R",
    "a call of a storage class": name("torch.FloatStorage") + b")R",
    "a call of a tensor class": name("torch.Tensor") + b")R",
    "a call without a tuple": OD + b"]R",
    "a state for a dict": b"}}b",
    "a state for a tensor": MATRIX + b"}b",
    "a state for a function": name("torch._utils._rebuild_tensor") + b"}b",
    "a state that is no dict": OD + b")R]K\x01ab",
    "items for a list": b"]K\x01K\x02s",
    "items for a tensor": MATRIX + b"K\x01K\x02s",
    "elements for a dict": b"}K\x01a",
    "elements for a tuple": b")(K\x01e",
    "a tensor of a function": FROM_TYPE + row(OD, name("torch.Tensor"), b")", b"}") + b"R",
    "a tensor of another class": FROM_TYPE + row(
        name("torch._utils._rebuild_tensor"), OD, row(storage("0", 6), number(0), ints(6), ints(1)), b"}"
    ) + b"R",
    # names
    "a function by itself": name("torch._utils._rebuild_tensor"),
    "a class in a list": b"]" + OD + b"a",
    "a storage by itself": b"}K\x01" + storage("0", 6) + b"s",
    "a name that is not on the list": name("collections.defaultdict"),
    "a name without an end": b"c" + b"a" * 5000,
    "a name by the stack": text("os") + text("system") + b"\x93",
    "an extension": b"\x82\x01",
    "an instance": b"(ios\nsystem\n",
    "an object": b"(" + OD + b"o",
    "bytes by another codec": name("_codecs.encode") + row(text("a"), text("rot13")) + b"R",
    # persistent ids
    "an id that is a text": text("storage") + b"Q",
    "an id in words": b"Pstorage\n",
    "an id of a module": row(text("module"), OD, text("f"), text("s")) + b"Q",
    "an id with a wrong size": row(text("storage")) + b"Q",
    # geometry
    "a shape beyond the storage": tensor(storage("0", 6), ints(7), ints(1)),
    "an offset beyond the storage": tensor(storage("0", 6), ints(2), ints(1), offset=5),
    "a stride beyond the storage": tensor(storage("0", 6), ints(2, 2), ints(5, 1)),
    "a negative offset": tensor(storage("0", 6), ints(2), ints(1), offset=-1),
    "a negative stride": tensor(storage("0", 6), ints(2), ints(-1), offset=3),
    "a negative size": tensor(storage("0", 6), ints(-2), ints(1)),
    "fewer strides than sizes": tensor(storage("0", 6), ints(2, 3), ints(1)),
    "sizes whose product is too large": tensor(storage("0", 6), ints(HUGE, HUGE), ints(0, 0)),
    "a thousand axes": tensor(storage("0", 6), ints(*[1] * 1000), ints(*[1] * 1000)),
    "sizes that are no numbers": tensor(storage("0", 6), row(text("a")), ints(1)),
    "a storage larger than the file": tensor(storage("0", HUGE), ints(HUGE), ints(1)),
    "a storage that is not there": tensor(storage("1", 6), ints(6), ints(1)),
    "a storage of another size": tensor(storage("0", 5), ints(5), ints(1)),
    "a storage of a negative size": tensor(storage("0", -6), ints(0), ints(1)),
    "a storage of two types": row(MATRIX, tensor(storage("0", 6, "torch.IntStorage"), ints(6), ints(1))),
    "a view beyond its storage": tensor(storage("0", 6, view=PART), ints(3), ints(1)),
    "a gradient of integers": name("torch._utils._rebuild_tensor_v2") + row(
        storage("0", 6, "torch.IntStorage"), number(0), ints(6), ints(1), b"\x88", b"N") + b"R",
    "a conjugate": name("torch._utils._rebuild_tensor_v2") + row(
        storage("0", 6), number(0), ints(6), ints(1), b"\x89", b"N", b"}" + text("conj") + b"\x88s") + b"R",
    # bombs
    "a text that is not there": b"X\xff\xff\xff\xff",
    "a byte array by its size": name("builtins.bytearray") + row(number(HUGE)) + b"R",
    "a set of a long list, often": b"](" + b"K\x01" * 3000 + b"eq\x00(" + b"".join(
        name("builtins.set") + b"h\x00\x85R" for _ in range(200)) + b"t",
    "tuples of tuples as a key": b")q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"}h\x00Ns",
    "a tensor as a key": b"}" + MATRIX + b"Ns",
    "a list as a key": b"}]Ns",
    # wrong programs
    "an empty stack": b"R",
    "a mark that was never set": b"]K\x01e",
    "memory that was never filled": b"h\x07",
    "an odd number of items": b"}(K\x01u",
    "a number that is cut off": b"\x8a\xff",
    "another protocol's instruction": b"\x94",
    "no instruction": b"\xff",
    "a text that is no UTF-8": b"X\x01\x00\x00\x00\xff",
    "a device that nobody knows": name("torch.device") + row(text("abacus")) + b"R",
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_PROGRAMS)
def test_a_bad_program_is_a_clean_error(case):
    program = BAD_PROGRAMS[case]
    for data in (zipped(program, {"data/0": FLOATS}), stacked(program, {"0": FLOATS})):
        with pytest.raises(CLEAN):
            loaded(data)


def test_bombs_are_known_as_such():
    for case, text in (
        ("a set of a long list, often", "copies more"),
        ("tuples of tuples as a key", "as a key"),
    ):
        with pytest.raises(pickle.UnpicklingError, match=text):
            loaded(zipped(BAD_PROGRAMS[case]))


def test_a_program_that_only_remembers_stays_small():
    """A memo is a dict: a large number in it costs nothing."""
    machine = Unpickler(ByteSource(io.BytesIO(b"Nr\xff\xff\xff\x7f."), "x"), {}, {}, print)
    assert machine.load() is None
    assert len(machine.memo) == 1


def test_deep_nests_are_loaded_without_recursion():
    deep = loaded(zipped(b"]" * 50_000 + b"a" * 49_999))
    depth = 0
    while deep:
        (deep,), depth = deep, depth + 1
    assert depth == 49_999


def overlapping() -> bytes:
    """Two records on the same bytes."""
    data = zipped(MATRIX, {"data/0": FLOATS, "data/1": FLOATS})
    second = data.rindex(b"PK\x01\x02")
    first = data.rindex(b"PK\x01\x02", 0, second)
    at = data[first + 42 : first + 46]
    return data[: second + 42] + at + data[second + 46 :]


def doubled() -> bytes:
    """Two records of one name."""
    file = io.BytesIO(zipped(MATRIX, {"data/0": FLOATS}))
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("x/data/0", FLOATS)
    return file.getvalue()


def archive(**records: bytes) -> bytes:
    """A good archive, and more."""
    return zipped(MATRIX, {"data/0": FLOATS} | records)


BAD_ARCHIVES = {
    "compressed": (
        lambda: zipped(MATRIX, {"data/0": bytes(24)}, compression=zipfile.ZIP_DEFLATED), "is compressed",
    ),
    "overlapping": (overlapping, "overlaps another one"),
    "a record twice": (doubled, "two records 'x/data/0'"),
    "no pickle": (lambda: archive().replace(b"data.pkl", b"data.txt"), "without one record 'data.pkl'"),
    "an unknown byte order": (lambda: archive(byteorder=b"odd"), "byte order is b'odd'"),
    "flipped bits": (lambda: archive().replace(FLOATS, FLOATS[::-1]), "checksum of the 24 bytes"),
    "no directory": (lambda: archive()[:-10], "zip directory is unreadable"),
    "another name": (lambda: archive().replace(b"data/0", b"data/1", 1), "header of record"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ARCHIVES)
def test_a_bad_archive_says_what_is_wrong(case):
    made, text = BAD_ARCHIVES[case]
    with pytest.raises(RuntimeError, match=text):
        loaded(made())


def test_a_bad_row_of_pickles_says_what_is_wrong():
    good = stacked(LEGACY_MATRIX, {"0": FLOATS})
    for data, text in (
        (pickle.dumps(1, 2), "Invalid magic number"),
        (good.replace(pickle.dumps(1001, 2), pickle.dumps(1002, 2)), "Invalid protocol version"),
        (stacked(LEGACY_MATRIX, {}), "list of storages"),
        (stacked(LEGACY_MATRIX, {"0": FLOATS[:8]}), "2 elements instead of 6"),
        (good + b"x", "follows the last storage"),
        (good[:-1], "bytes in all"),
    ):
        with pytest.raises(RuntimeError, match=text):
            loaded(data)


def test_a_file_of_another_kind_says_so(tmp_path):
    for data, text in (
        (b"", "0 bytes and begins with b''"),
        (b"hello, world", "begins with b'hello, w'"),
        (bytes(257) + b"ustar" + bytes(300), "PyTorch 0.1.10 and earlier"),
    ):
        with pytest.raises(RuntimeError, match=text):
            loaded(data)
    (tmp_path / "x.pt").write_bytes(b"hello")
    with pytest.raises(RuntimeError, match=r"'.*x\.pt' is no file of"):
        adjit.load(tmp_path / "x.pt")


def test_a_structure_that_does_not_fit_is_corrupt():
    def file(structure: Any, text: str | None = None) -> bytes:
        text = json.dumps(structure) if text is None else text
        return safetensors.numpy.save(
            {"a": np.ones(2)}, {"adjit": text, "adjit.crc32": str(zlib.crc32(text.encode()))}
        )

    sums = {"a": zlib.crc32(np.ones(2), zlib.crc32(b"float64[2]"))}
    good = {"version": 1, "crc32": sums, "value": {"tensor": "a"}}
    assert loaded(file(good)).tolist() == [1, 1]
    for bad in (
        [], {}, good | {"version": 2}, good | {"crc32": {}}, good | {"crc32": {"a": 1}},
        *(good | {"value": value} for value in (
            {}, [], {"tensor": "b"}, {"same": 0}, {"unknown": 1}, {"dict": [1]}, {"set": [{"list": []}]},
            {"tensor": "a", "shape": [3], "stride": [1], "offset": 0}, {"tensor": "a", "stride": [2]},
            {"tensor": "a", "attributes": 1}, {"dtype": "nonsense"}, {"bytes": "?"}, {"float": "x"},
        )),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="corrupt or truncated"):
            loaded(file(bad))
    with pytest.raises(RuntimeError, match="structure is wrong"):
        loaded(file(None, "[" * 100_000))


# ----- arguments -----


def test_where_tensors_go():
    cuda = zipped(tensor(storage("0", 6, where="cuda:0"), ints(6), ints(1)), {"data/0": FLOATS})
    with pytest.raises(
        RuntimeError, match=r"on a 'cuda:0' device.*map_location=adjit.device\('cpu'\)"
    ):
        loaded(cuda)
    seen = []
    for where in (
        "cpu", adjit.device("cpu"), {"cuda:0": "cpu"},
        lambda kept, location: (seen.append((location, kept.nbytes())), kept)[1],
    ):  # fmt: skip
        assert loaded(cuda, map_location=where).tolist() == [0, 1, 2, 3, 4, 5]
    assert seen == [("cuda:0", 24)]
    for where, text in (
        ("cuda", "not available"), ({"cuda:0": "cuda:1"}, "not available"), ({}, "'cuda:0' device"),
        (lambda kept, location: None, "'cuda:0' device"), (lambda kept, location: 1, "must return the storage"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=text):
            loaded(cuda, map_location=where)
    with pytest.raises(RuntimeError, match="not available"):
        loaded(saved([1]), map_location="cuda")


def test_code_cannot_be_asked_for():
    with pytest.raises(ValueError, match="weights_only=False is not supported: adjit"):
        loaded(saved([1]), weights_only=False)
    with pytest.raises(RuntimeError, match="explicit pickle_module"):
        loaded(saved([1]), pickle_module=pickle)
    assert loaded(saved([1]), weights_only=True) == [1]


def test_a_row_of_pickles_cannot_be_mapped(tmp_path):
    path = tmp_path / "x.pt"
    path.write_bytes(stacked(LEGACY_MATRIX, {"0": FLOATS}))
    with pytest.raises(RuntimeError, match="mmap can only be used with safetensors"):
        adjit.load(path, mmap=True)


class Point:
    """A class of the program, as it lies in files."""

    def __init__(self, x=0, y=0):
        self.x, self.y = x, y

    def __eq__(self, other):
        return (self.x, self.y) == (other.x, other.y)

    __hash__ = None


class Slotted:
    """One with slots, and a state of its own."""

    __slots__ = ("x",)


def test_a_program_may_allow_classes_and_functions():
    from datetime import timedelta

    torch = pytest.importorskip("torch")
    slotted = Slotted()
    slotted.x = adjit.ones(1).item()
    values = [Point(1, [2]), timedelta(3, 4), slotted]
    data = of_torch(values, True)
    for allowed in ([], [Point], [Point, timedelta]):
        with (
            adjit.serialization.safe_globals(allowed),
            pytest.raises(pickle.UnpicklingError, match="was not an allowed global"),
        ):
            loaded(data)
    with adjit.serialization.safe_globals([Point, (timedelta, "datetime.timedelta"), Slotted]):
        made = loaded(data)
    assert made[:2] == values[:2]
    assert made[2].x == 1
    assert adjit.serialization.get_safe_globals() == []
    with torch.serialization.safe_globals([Point, timedelta, Slotted]):
        assert torch.load(io.BytesIO(data), weights_only=True)[:2] == values[:2]


def test_functions_are_saved_by_name_when_they_ask_subclasses_too():
    held = adjit.nn.functional.relu  # before a subclass has functions exchanged

    class Asked(adjit.Tensor):
        __torch_function__ = classmethod(lambda cls, func, types, args=(), kwargs=None: None)

    try:
        assert adjit.nn.functional.relu is not held
        data = saved([held, adjit.nn.functional.relu])
        with adjit.serialization.safe_globals([adjit.nn.functional.relu]):
            assert loaded(data) == [held, held]
    finally:
        adjit.overrides._unwrap_functions()


class Twice(adjit.nn.Module):
    """A module with shared parts, a function, a buffer and a hook."""

    def __init__(self):
        super().__init__()
        self.inner = adjit.nn.Sequential(adjit.nn.Linear(3, 4), adjit.nn.Dropout(0.5))
        self.same, self.f = self.inner[0], adjit.nn.functional.relu
        self.rnn = adjit.nn.LSTM(4, 2)
        self.attention = adjit.nn.TransformerEncoderLayer(4, 2)
        self.register_buffer("shift", adjit.ones(4))
        self.limits = Point(1, (2, None))

    def forward(self, x):
        return (
            self.attention(self.f(self.inner(x)) + self.shift).sum()
            + self.rnn(self.same(x))[0].sum()
        )


def test_a_whole_module_comes_back_where_its_classes_are_allowed():
    from adjit.nn.modules.linear import NonDynamicallyQuantizableLinear as Projection

    nn, made = adjit.nn, Twice().eval()
    data = saved({"model": made, "epoch": 2})
    classes = [Twice, Point, nn.Sequential, nn.Linear, nn.Dropout, nn.LSTM, nn.TransformerEncoderLayer,
               nn.MultiheadAttention, Projection, nn.LayerNorm, nn.functional.relu]  # fmt: skip
    for left_out in classes:
        allowed = [one for one in classes if one is not left_out]
        with (
            adjit.serialization.safe_globals(allowed),
            pytest.raises(
                pickle.UnpicklingError,
                match=rf"GLOBAL \S*{left_out.__name__} was not an allowed global",
            ),
        ):
            loaded(data)
    with adjit.serialization.safe_globals(classes):
        back = loaded(data)["model"]
    assert repr(back) == repr(made)
    assert back.same is back.inner[0]
    assert back.f is adjit.nn.functional.relu
    assert back.limits == made.limits
    x = adjit.randn(2, 3)
    assert back(x).item() == made(x).item()
    assert not back.training
    assert plain(back.state_dict()) == plain(made.state_dict())
    back(x).backward()
    assert all(p.grad is not None for p in back.inner.parameters())


def test_numbers_of_numpy_are_loaded_where_they_are_allowed():
    pytest.importorskip("torch")
    scalar = np.float64(1.5).__reduce__()[0]
    allowed = [scalar, np.dtype, type(np.dtype("float64"))]
    with adjit.serialization.safe_globals(allowed):
        assert loaded(of_torch({"loss": np.float64(1.5)}, True)) == {"loss": 1.5}


@pytest.mark.parametrize(
    ("wrong", "kind"), [((Point, "a", 3), ValueError), ((Point, 3), TypeError)]
)
def test_pairs_that_are_none_are_refused(wrong, kind):
    with pytest.raises(kind, match=r"Expected (tuple of length 2|second item)"):
        adjit.serialization.add_safe_globals([wrong])


def test_saving_takes_the_arguments_of_pytorch():
    stream = io.BytesIO()
    adjit.save(
        [1], stream, pickle_module=pickle, pickle_protocol=2, _use_new_zipfile_serialization=False
    )
    stream.seek(0)
    assert adjit.load(stream) == [1]


# ----- plain pickles of PyTorch's -----


class Renaming(pickle.Unpickler):
    """Reads PyTorch's pickles as programs do: names of `torch` are looked for here."""

    def find_class(self, module: str, name: str) -> Any:
        root, *rest = module.split(".")
        return super().find_class(".".join(["adjit" if root == "torch" else root, *rest]), name)


def renamed(obj: Any, protocol: int) -> Any:
    return Renaming(io.BytesIO(pickle.dumps(obj, protocol))).load()


@needs_torch
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_plain_pickles_of_pytorch_are_read(protocol):
    x = torch.arange(6.0).reshape(2, 3)
    marked = torch.ones(2)
    marked.note = "its own"
    for value in (
        x, x.double(), x.long(), x > 2, x[:, 1:], x.t(), torch.tensor(2.5), torch.zeros(0, 3),
        torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(3)), marked,
    ):  # fmt: skip
        found = renamed(value, protocol)
        assert type(found).__name__ == type(value).__name__
        assert found.tolist() == value.tolist()
        assert str(found.dtype).split(".")[1] == str(value.dtype).split(".")[1]
        assert found.stride() == tuple(value.stride())
        assert found.requires_grad == value.requires_grad
        assert found.is_leaf
    assert renamed(marked, protocol).note == "its own"
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).eval()
    found = renamed(model, protocol)
    expected = model(x).detach().numpy()
    np.testing.assert_allclose(found(adjit.from_numpy(x.numpy())).detach().numpy(), expected, 1e-6)
    extremes = renamed(x.max(1), protocol)
    assert type(extremes) is adjit.return_types.max
    assert extremes.indices.tolist() == [2, 2]
    assert renamed([torch.strided, x.shape, torch.float32], protocol) == [
        adjit.strided, adjit.Size((2, 3)), adjit.float32
    ]  # fmt: skip
    with pytest.raises(NotImplementedError, match="bfloat16"):
        renamed(x.bfloat16(), protocol)


@needs_torch
def test_a_library_under_the_name_of_another_is_one():
    """A program that puts adjit under PyTorch's name gets the modules that are there, and reads pickles."""
    program = f"""
import pickle, sys
import adjit
sys.modules["torch"] = adjit
import torch.nn as nn, torch.nn.functional as F, torch.distributions
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader
assert nn is adjit.nn and F is adjit.nn.functional and torch.distributions is adjit.distributions
assert DataLoader is adjit.utils.data.DataLoader and adjit.nn.__spec__.name == "adjit.nn"
x, layer = pickle.loads({pickle.dumps((torch.ones(2), torch.nn.Linear(2, 1)))!r})
assert type(x) is adjit.Tensor and type(layer) is adjit.nn.Linear
try:
    import torch.no_such_module
except ModuleNotFoundError as error:
    print(error.name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "adjit.no_such_module\n"), done.stderr


def test_named_results_in_copies_and_pickles():
    found = adjit.tensor([[1.0, 3.0], [5.0, 2.0]]).max(1)
    for again in (pickle.loads(pickle.dumps(found)), type(found)(tuple(found))):
        assert type(again) is adjit.return_types.max
        assert again.values.tolist() == [3.0, 5.0]
    with pytest.raises(TypeError, match=r"max\(\) takes a 2-sequence \(1-sequence given\)"):
        adjit.return_types.max((found.values,))


def test_storages_of_the_same_memory_are_equal():
    x = adjit.arange(6.0).reshape(2, 3)
    storage = x.untyped_storage()
    assert storage == x[1].untyped_storage()
    assert storage != adjit.arange(6.0).untyped_storage()
    assert {storage: 1}[x.t().untyped_storage()] == 1
    assert (str(storage.device), storage.is_cuda, storage.is_shared()) == ("cpu", False, False)
    assert storage.element_size() == 1
    assert x[1:].untyped_storage().tolist() == list(x.numpy().tobytes())
