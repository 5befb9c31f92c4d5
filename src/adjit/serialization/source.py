"""Where the bytes of a file come from: bounded reads, a mapping, and tensors filled from them."""

from __future__ import annotations

import io
import mmap
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .. import dtypes
from ..dtypes import dtype as Dtype
from ..graph import record
from ..graph.node import spec_of
from ..ops import creation
from ..shapes import Size, is_dense
from ..tensor import Tensor

FileLike = str | os.PathLike[str] | BinaryIO

MAX_DIMS = 64  # what NumPy can look at; also bounds what a tensor of a hostile file costs


class Piece(NamedTuple):
    """Bytes of a file: where they start, how many, and their CRC-32 where the file states it.

    `seed` is the CRC-32 of what the checksum covers before them.
    """

    start: int
    nbytes: int
    crc: int | None = None
    seed: int = 0

    def check(self, source: ByteSource, data: Any) -> None:
        """Raise if the checksum of what was read is not the one that the file states."""
        if self.crc is not None and zlib.crc32(data, self.seed) != self.crc:
            raise source.corrupt(
                f"the checksum of the {self.nbytes} bytes at {self.start} is wrong"
            )


class ByteSource:
    """A file of known size. Nothing is read, or allocated, beyond what it holds.

    `name` stands in error messages. Sequential reads (`take`, `line`) go on from `at`.
    """

    def __init__(self, file: BinaryIO, name: str, mapped: bool = False) -> None:
        self.name = name
        self.at = 0
        self._file = file
        self.size = file.seek(0, os.SEEK_END)
        self.mapping = None
        if mapped and self.size:
            self.mapping = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_COPY)

    def corrupt(self, what: str) -> RuntimeError:
        """The error for a file that is not what it seems to be."""
        return RuntimeError(f"{self.name} is corrupt or truncated: {what}")

    def _go(self, start: int, count: int) -> None:
        if not 0 <= start <= start + count <= self.size:
            raise self.corrupt(
                f"{count} bytes at position {start} are needed, it has {self.size} bytes in all"
            )
        self._file.seek(start)

    def read(self, start: int, count: int) -> bytes:
        """Bytes at a position."""
        self._go(start, count)
        data = self._file.read(count)
        if len(data) != count:
            raise self.corrupt(f"it ended after {start + len(data)} bytes")
        return data

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill a buffer of bytes from a position."""
        self._go(start, len(buffer))
        done = 0
        while done < len(buffer):
            count = self._file.readinto(buffer[done:])  # type: ignore[attr-defined]
            if not count:
                raise self.corrupt(f"it ended after {start + done} bytes")
            done += count

    def take(self, count: int) -> bytes:
        """The next bytes."""
        data = self.read(self.at, count)
        self.at += count
        return data

    def line(self, limit: int = 1024) -> bytes:
        """The next line, without its end."""
        self._go(self.at, 0)
        data = self._file.readline(limit)
        if not data.endswith(b"\n"):
            raise self.corrupt(f"a line at position {self.at} does not end")
        self.at += len(data)
        return data[:-1]

    def stream(self) -> BinaryIO:
        """The file, for readers that go where they want."""
        return self._file

    def inner(self, data: bytes) -> ByteSource:
        """A part of the file as a source of its own."""
        return ByteSource(io.BytesIO(data), self.name)


@contextmanager
def opened(f: FileLike, mapped: bool = False) -> Iterator[ByteSource]:
    """The source behind a path or a binary file.

    Raises:
        TypeError: for anything else.
        ValueError: where a file that is no path is to be mapped.
    """
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            yield ByteSource(file, f"'{os.fspath(f)}'", mapped)
        return
    if mapped:
        raise ValueError("f must be a file path in order to use the mmap argument")
    if not hasattr(f, "read"):
        raise TypeError(f"expected a path or a binary file to read, got {type(f).__name__}")
    name = f"'{f.name}'" if isinstance(getattr(f, "name", None), str) else "the file"
    if hasattr(f, "readinto") and hasattr(f, "seekable") and f.seekable() and not f.tell():
        yield ByteSource(f, name)
        return
    data = f.read()
    if not isinstance(data, (bytes, bytearray)):
        raise TypeError(f"{name} is open as text; open it with mode 'rb'")
    yield ByteSource(io.BytesIO(data), name)


# ----- elements -----


def readable(kind: Dtype, half_to_float32: bool) -> Dtype:
    """The dtype of tensors whose elements a file stores as `kind`.

    Raises:
        NotImplementedError: if adjit has no such dtype, and nothing that was asked for to take
            its place.
    """
    if kind in dtypes.SUPPORTED:
        return kind
    if not is_readable(kind, half_to_float32):
        raise missing_dtype(kind.name)
    return dtypes.float32


def is_readable(kind: Dtype, half_to_float32: bool) -> bool:
    """Whether there are tensors for elements that a file stores as `kind`."""
    return kind in dtypes.SUPPORTED or (half_to_float32 and kind.name in _HALF)


_HALF = ("float16", "bfloat16")


def missing_dtype(name: str, tensor: str = "a tensor") -> NotImplementedError:
    """The error for elements that adjit has no dtype for."""
    way_out = (
        "; adjit.load(..., half_to_float32=True) loads it as float32, without loss"
        if name in _HALF
        else f" (supported: {', '.join(d.name for d in dtypes.SUPPORTED)})"
    )
    return NotImplementedError(
        f"{tensor} is stored as {name}, which adjit does not support yet{way_out}"
    )


def read_elements(
    source: ByteSource,
    piece: Piece,
    kind: Dtype,
    *,
    half_to_float32: bool = False,
    big: bool = False,
) -> Tensor:
    """A 1-d tensor of the elements in a piece of a file.

    Of a mapped source, it lies in the mapping (copy on write) where dtype and alignment permit;
    its checksum is then left alone, because computing it would read all of it.
    """
    wanted = readable(kind, half_to_float32)
    if source.mapping is not None and piece.nbytes:
        found = np.frombuffer(source.mapping, np.uint8, piece.nbytes, piece.start)
        native = kind.itemsize == 1 or big == (sys.byteorder == "big")
        aligned = found.__array_interface__["data"][0] % kind.itemsize == 0
        if native and aligned and wanted is kind is not dtypes.bool:
            return creation.from_numpy(found.view(kind.numpy))
    made = creation.empty(piece.nbytes // kind.itemsize, dtype=wanted)
    fill(made, source, piece, kind, big=big)
    return made


def fill(made: Tensor, source: ByteSource, piece: Piece, kind: Dtype, *, big: bool = False) -> None:
    """Read the elements of a 1-d tensor, converting half precision and byte order.

    Raises:
        RuntimeError: if the file ends before them, or their checksum is another one.
    """
    if not piece.nbytes:
        piece.check(source, b"")
        return
    values = made.numpy()
    same = kind is made.dtype
    raw: Any = values.view(np.uint8) if same else np.empty(piece.nbytes, np.uint8)
    source.read_into(piece.start, memoryview(raw))
    piece.check(source, raw)
    if big != (sys.byteorder == "big"):
        raw.view(kind.numpy).byteswap(inplace=True)
    if kind is dtypes.bool:
        np.not_equal(raw, 0, out=values)  # kernels rely on 0 and 1
    elif kind is dtypes.float16:
        values[:] = raw.view(np.float16)
    elif kind is dtypes.bfloat16:
        # The upper half of a float32.
        np.left_shift(raw.view(np.uint16), 16, out=values.view(np.uint32), dtype=np.uint32)


def view_of(base: Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> Tensor:
    """A tensor on the memory of a 1-d one, a leaf and no view in the sense of autograd.

    Raises:
        ValueError: if it would reach outside of the memory, or is no geometry at all.
    """
    numbers = (*shape, *strides, offset)
    if len(shape) != len(strides) or len(shape) > MAX_DIMS:
        raise ValueError(f"{len(shape)} sizes and {len(strides)} strides describe no tensor")
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers):
        raise ValueError("sizes, strides and offsets must be ints of at least 0")
    spec = spec_of(Size(shape), tuple(strides), base.dtype, base._spec.device)
    if spec.numel * base.dtype.itemsize >= 1 << 63:
        raise ValueError(f"a tensor of shape {list(shape)} is too large")
    if spec.numel and offset + spec.extent > base.numel():
        raise ValueError(
            f"sizes {list(shape)}, strides {list(strides)} and offset {offset} reach outside of "
            f"{base.numel()} stored elements"
        )
    if spec.numel == base._storage.spec.numel and is_dense(spec.shape, spec.strides):
        base._storage.spec = spec  # writes to a tensor that covers its storage are cheaper
    return record.make_tensor(base._storage, spec, base._offset + offset, base._version_counter)


def set_attributes(owner: Any, attributes: Any) -> None:
    """Give a tensor or an OrderedDict the Python attributes that were stored with it."""
    if type(attributes) is not dict or not all(type(name) is str for name in attributes):
        raise ValueError("attributes must be a dict with names")
    owner.__dict__.update(attributes)
