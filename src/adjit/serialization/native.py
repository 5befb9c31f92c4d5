"""adjit's own files: safetensors, with the nesting of the object in the metadata.

The tensors are stored under their paths (`model.fc.weight`), so that a state dict is one for every
other reader of safetensors too. Two entries of the metadata belong to adjit: `adjit`, the structure
as JSON with a checksum of each tensor, and `adjit.crc32`, the checksum of that text.
"""

from __future__ import annotations

import io
import json
import math
import os
import stat
import zlib
from typing import Any, BinaryIO

import numpy as np

from .. import devices, dtypes
from ..graph import record
from ..graph.node import dense_spec
from ..graph.write import placed
from ..nn.parameter import Parameter
from ..ops import creation
from ..shapes import contiguous_strides, is_dense
from ..tensor import Tensor
from .atomic import replace_file
from .source import ByteSource, FileLike, Piece, is_readable, missing_dtype, read_elements, view_of
from .structure import Decoder, Encoder, Json
from .torch_files import MapLocation, destination

VERSION = 1
MAX_HEADER = 100_000_000  # the limit of the safetensors library

_STRUCTURE, _CHECKSUM = "adjit", "adjit.crc32"
_KINDS = {kind.row.file: kind for kind in dtypes.ALL if kind.row.file}

Array = np.ndarray[Any, Any]
Saved = tuple[str, Tensor, dict[str, Json]]  # the path of a tensor, and the JSON that stands for it


# ----- saving -----


def save(obj: Any, f: FileLike) -> None:
    """`adjit.save`."""
    import safetensors.numpy as safetensors  # costs what programs that only load do not need

    arrays, metadata = _packed(obj)
    if isinstance(f, (str, os.PathLike)) and not _is_stream(f):
        replace_file(f, lambda path: safetensors.save_file(arrays, path, metadata))
    elif isinstance(f, (str, os.PathLike)):
        with open(f, "wb") as file:
            file.write(safetensors.save(arrays, metadata))
    elif hasattr(f, "write"):
        _write(f, safetensors.save(arrays, metadata))
    else:
        raise TypeError(f"expected a path or a binary file to write, got {type(f).__name__}")


def _is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a pipe or a device, which take bytes and cannot be replaced."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _write(file: BinaryIO, data: bytes) -> None:
    if isinstance(file, io.TextIOBase):
        raise TypeError("the file to save to is open as text; open it with mode 'wb'")
    file.write(data)
    if hasattr(file, "flush"):
        file.flush()


def _packed(obj: Any) -> tuple[dict[str, Array], dict[str, str]]:
    """An object as what safetensors stores: arrays by name, and strings."""
    encoder = Encoder()
    try:
        value = encoder.encode(obj)
        arrays = _arrays(encoder.tensors)
        checksums = {
            name: _checksum(array.dtype, array.shape, array) for name, array in arrays.items()
        }
        text = json.dumps({"version": VERSION, "value": value, "crc32": checksums})
    except RecursionError:
        raise ValueError("cannot save this: it is nested too deeply") from None
    return arrays, {
        "format": "pt",  # tensors are laid out as PyTorch's; some readers insist on this entry
        _STRUCTURE: text,
        _CHECKSUM: str(zlib.crc32(text.encode())),
    }


def _arrays(tensors: list[Saved]) -> dict[str, Array]:
    """The arrays to store for tensors; writes into the JSON of each where its elements are.

    A tensor that has its memory for itself is stored by its values. Tensors whose memory overlaps
    are stored once, as the range that they reach, and remember their geometry: under the name of
    one that is the whole range, or else under a name of its own.
    """
    arrays: dict[str, Array] = {}
    for members in _overlapping(tensors):
        path, tensor, encoded = members[0]
        if len(members) == 1:
            encoded["tensor"] = name = _unused(path, arrays)
            arrays[name] = _stored(tensor)
            if not tensor.is_contiguous() and is_dense(tensor.shape, tensor.stride()):
                encoded["stride"] = list(tensor.stride())
            continue
        first = min(t._offset for _, t, _ in members)
        reach = max(t._offset + t._spec.extent for _, t, _ in members) - first
        spec = dense_spec((reach,), tensor.dtype, tensor._spec.device)
        flat = record.make_tensor(tensor._storage, spec, first)
        whole = (m for m in members if m[1].numel() == reach and m[1]._spec.contiguous)
        path, stored, _ = next(whole, (f"{path}.storage", flat, None))
        name = _unused(path, arrays)
        arrays[name] = _stored(stored)
        for _, member, place in members:
            place["tensor"] = name
            place["shape"], place["stride"] = list(member.shape), list(member._spec.strides)
            place["offset"] = member._offset - first
    return arrays


def _overlapping(tensors: list[Saved]) -> list[list[Saved]]:
    """Tensors in groups whose ranges of memory overlap, in the order in which they were met."""
    groups: list[list[Saved]] = []
    ends: dict[int, tuple[int, list[Saved]]] = {}  # of the last group of a storage
    for entry in sorted(tensors, key=lambda entry: entry[1]._offset):
        tensor = entry[1]
        key, stop = id(tensor._storage), tensor._offset + tensor._spec.extent
        end, group = ends.get(key, (0, []))
        if not tensor.numel() or tensor._offset >= end:
            group = []
            groups.append(group)
        group.append(entry)
        if tensor.numel():
            ends[key] = max(end, stop), group
    order = {id(entry[2]): number for number, entry in enumerate(tensors)}
    for group in groups:
        group.sort(key=lambda entry: order[id(entry[2])])
    return sorted(groups, key=lambda group: order[id(group[0][2])])


def _stored(tensor: Tensor) -> Array:
    """The elements in C order and little-endian."""
    return np.asarray(tensor._values(), tensor.dtype.numpy.newbyteorder("<"), order="C")


def _unused(path: str, taken: dict[str, Array]) -> str:
    """A name for a tensor that no other has."""
    name = path = path.encode("utf-8", "replace").decode()
    count = 1
    while name in taken or name == "__metadata__":
        count += 1
        name = f"{path}#{count}"
    return name


def _checksum(kind: Any, shape: Any, data: Any) -> int:
    """The CRC-32 of a tensor: its dtype and shape, then its bytes."""
    return zlib.crc32(data, _seed(kind, shape))


def _seed(kind: Any, shape: Any) -> int:
    return zlib.crc32(f"{kind.name}{list(shape)}".encode())


# ----- loading -----


def load(source: ByteSource, map_location: MapLocation, half_to_float32: bool) -> Any:
    """What a safetensors file holds: the object that `save` was given, or a dict of tensors."""
    entries, metadata = _header(source)
    usual = destination(map_location, "cpu")
    if _STRUCTURE not in metadata and _CHECKSUM not in metadata:
        return {
            name: placed(_tensor(source, name, kind, shape, piece, half_to_float32), usual)
            for name, (kind, shape, piece) in entries.items()
        }
    text = metadata.get(_STRUCTURE, "")
    if metadata.get(_CHECKSUM) != str(zlib.crc32(text.encode("utf-8", "surrogatepass"))):
        raise source.corrupt("the checksum of its structure is wrong")
    try:
        return _object(source, entries, json.loads(text), map_location, half_to_float32)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise source.corrupt(f"its structure is wrong: {error}") from error


Entries = dict[str, tuple[str, list[int], Piece]]


def _object(
    source: ByteSource,
    entries: Entries,
    structure: Any,
    map_location: MapLocation,
    half_to_float32: bool,
) -> Any:
    """The object behind a structure."""
    if structure["version"] != VERSION:
        raise source.corrupt(f"it is of version {structure['version']}, which a newer adjit wrote")
    checksums = structure["crc32"]
    if set(checksums) != set(entries):
        raise source.corrupt("its tensors are not those of its structure")
    stored: dict[tuple[str, devices.device], Tensor] = {}

    def make(encoded: dict[str, Json]) -> Tensor:
        name = encoded["tensor"]
        place = destination(map_location, encoded.get("device", "cpu"))
        base = stored.get((name, place))
        if base is None:
            kind, shape, piece = entries[name]
            seed = _seed(_KINDS[kind], shape)
            piece = piece._replace(crc=checksums[name], seed=seed)
            base = _tensor(source, name, kind, shape, piece, half_to_float32)
            base = stored[name, place] = placed(base, place)
        if "offset" in encoded:
            made = view_of(base, encoded["shape"], encoded["stride"], encoded["offset"])
        elif "stride" in encoded:
            made = _restrided(base, encoded["stride"])
        else:
            made = base
        if encoded.get("parameter"):
            return Parameter(made, bool(encoded.get("requires_grad")))
        return made.requires_grad_() if encoded.get("requires_grad") else made

    return Decoder(make).decode(structure["value"])


def _restrided(tensor: Tensor, strides: list[int]) -> Tensor:
    """The same values with the axes in another order in memory."""
    if not is_dense(tensor.shape, strides):
        raise ValueError(f"strides {strides} leave gaps in shape {list(tensor.shape)}")
    flat = creation.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    return view_of(flat, tensor.shape, strides, 0).copy_(tensor)


def _tensor(
    source: ByteSource, name: str, code: str, shape: list[int], piece: Piece, half_to_float32: bool
) -> Tensor:
    """A tensor of the file."""
    kind = _KINDS.get(code)
    if kind is None or not is_readable(kind, half_to_float32):
        raise missing_dtype(code if kind is None else kind.name, f"tensor '{name}'")
    base = read_elements(source, piece, kind, half_to_float32=half_to_float32)
    return view_of(base, shape, contiguous_strides(shape), 0)


def _header(source: ByteSource) -> tuple[Entries, dict[str, str]]:
    """The tensors of a file (kind, shape, where they are) and its metadata, checked."""
    size = int.from_bytes(source.read(0, 8), "little")
    if size > MAX_HEADER:
        raise source.corrupt(f"a header of {size} bytes is too large")
    try:
        header = json.loads(source.read(8, size), object_pairs_hook=_without_twins)
        metadata = header.pop("__metadata__", {})
        if not all(type(text) is str for text in (metadata | {}).values()):
            raise ValueError("metadata that are no strings")
        entries = {name: _entry(8 + size, **entry) for name, entry in header.items()}
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise source.corrupt(f"its header is wrong: {error}") from error
    at = 8 + size
    for _, _, piece in sorted(entries.values(), key=lambda entry: entry[2][:2]):
        if piece.start != at:
            raise source.corrupt("its tensors overlap or leave gaps")
        at += piece.nbytes
    if at != source.size:
        raise source.corrupt(f"its header describes {at} bytes, it has {source.size}")
    return entries, metadata


def _without_twins(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name that occurs twice")
    return found


def _entry(begin: int, dtype: Any, shape: Any, data_offsets: Any) -> tuple[str, list[int], Piece]:
    """A tensor of the header, whose data begin at `begin`."""
    start, end = data_offsets
    if type(dtype) is not str or not all(type(n) is int and n >= 0 for n in (*shape, start, end)):
        raise ValueError("a tensor that is not described by a dtype, a shape and offsets")
    kind = _KINDS.get(dtype)
    if kind is not None and math.prod(shape) * kind.itemsize != end - start:
        raise ValueError(f"{end - start} bytes for shape {shape} of {dtype}")
    return dtype, shape, Piece(begin + start, end - start)
