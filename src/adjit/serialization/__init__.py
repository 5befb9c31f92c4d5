"""Files: `save` and `load`, as in PyTorch, without ever running code from a file.

The readers and writers are imported when they are first used: `import adjit` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .. import formats
from .allowed import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

if TYPE_CHECKING:
    from .source import FileLike
    from .torch_files import MapLocation

__all__ = [
    "DEFAULT_PROTOCOL", "add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals",
    "save",
]  # fmt: skip

DEFAULT_PROTOCOL = 2  # of pickles, where programs write some of their own: no file here is one


def save(
    obj: Any,
    f: FileLike,
    pickle_module: Any = None,
    pickle_protocol: int | None = None,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Write an object to a file, from which `load` makes it again.

    The file is in the safetensors format: a `state_dict()` is one for other programs too. Beside
    tensors, an object may consist of None, bools, ints, floats, complex numbers, strings, bytes,
    dtypes, devices, sizes, and lists, tuples, sets, dicts, OrderedDicts and Counters of all these:
    the state of an optimiser, for instance. A whole module or another object of a class is written by the
    name of the class and what it consists of, and comes back where `add_safe_globals` allows that class and
    all that it holds; a `state_dict()` needs no leave and outlives changes of the program.

    - A `Parameter` comes back as one, `requires_grad` is kept, gradients and history are not.
    - Tensors that overlap in memory are stored once and share it again; a list or dict that occurs
      in several places is one again. What no tensor reaches is not stored: a row of a large matrix
      makes a small file.
    - Values, shapes and dtypes are kept to the bit, strides where the elements lie without gaps.

    A file that is replaced is whole at every moment, the old one or the new one: the bytes go to a
    temporary file beside it, which takes its name once they are on the disk.

    Args:
        obj: what to write.
        f: a path, or a binary file open for writing. By convention the name ends in
            `.safetensors`.
        pickle_module: accepted, as the two further arguments that PyTorch has: no file is a pickle.

    Raises:
        TypeError: for an object of another type, which is named together with its place.
        ValueError: for a container that contains itself.
        OSError: if the file cannot be written.

    Example:
        >>> layer = adjit.nn.Linear(2, 1)
        >>> adjit.save({"model": layer.state_dict(), "epoch": 3}, "checkpoint.safetensors")
        >>> adjit.load("checkpoint.safetensors")["epoch"]
        3
    """
    from . import native

    native.save(obj, f)


def load(
    f: FileLike,
    map_location: MapLocation = None,
    pickle_module: None = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    half_to_float32: bool = False,
) -> Any:
    """Read what `adjit.save`, `torch.save` or any program that knows safetensors has written.

    The format is found out by looking at the file: safetensors, the zip archives of PyTorch 1.6 and
    later, the rows of pickles from before. Nothing in a file is ever run: pickles are read as by
    PyTorch's `weights_only=True`, so what is no tensor and no plain value is refused by its name, unless
    `adjit.serialization.add_safe_globals` allows it.
    The memory that loading takes is bounded by the size of the file. Safetensors files of others
    give a dict of their tensors.

    Files of `adjit.save` and zip archives have checksums, which are compared. Rows of pickles and
    safetensors files of others have none: flipped bits in their numbers go unnoticed.

    Args:
        f: a path, or a binary file open for reading, that holds one object.
        map_location: where tensors go, for files with tensors of a GPU: `"cpu"`, a device, a dict
            from locations in the file to those, or a function of a storage and its location that
            returns the storage or None.
        pickle_module: must be None; PyTorch has this argument.
        weights_only: must not be False.
        mmap: let the tensors of a file named by its path lie in a private mapping of it: bytes are
            read when they are first looked at, writes stay in memory. Checksums are not compared.
        half_to_float32: make float32 tensors of float16 and bfloat16 ones, which adjit does not have.

    Raises:
        pickle.UnpicklingError: if a file of PyTorch names something that is not allowed.
        NotImplementedError: for a tensor of a dtype that adjit does not have, named.
        RuntimeError: if the file is corrupt, truncated, or of no known format; for tensors of a GPU
            without `map_location`.
        ValueError: with `weights_only=False`; with `mmap=True` for a file that is no path.

    Example:
        >>> adjit.save([adjit.ones(2), "two"], "pair.safetensors")
        >>> adjit.load("pair.safetensors")
        [tensor([1., 1.]), 'two']
    """
    if pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    from .reading import read

    return read(f, map_location, weights_only is not False, bool(mmap), half_to_float32)


def _get_layout(name: str) -> formats.layout:
    """The layout of a name such as `torch.strided`, which pickles of PyTorch's call."""
    found = getattr(formats, name.rpartition(".")[2])
    assert isinstance(found, formats.layout)
    return found


def __getattr__(name: str) -> Any:
    if name == "MAP_LOCATION":  # PyTorch's name of the type, for annotations
        return importlib.import_module(f"{__name__}.torch_files").MapLocation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
