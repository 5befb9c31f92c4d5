"""Devices: where the bytes of a tensor are."""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["CPU", "device", "get_default_device", "set_default_device"]

# Kinds of devices, by the names that PyTorch has for them; there are tensors on the first two.
_HERE = ("cpu", "cuda")
_KNOWN = (
    *_HERE, "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy",
    "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip


class device:
    """A device such as `adjit.device("cpu")`: a `type` and an `index` (None for the current one).

    `with adjit.device("cuda"):` lets what is created inside be there, see `set_default_device`. A device of
    another kind that PyTorch knows can be made and compared; there are no tensors on it.

    Raises:
        RuntimeError: if the text names no known kind of device, or the index is negative.
        TypeError: if there is neither a text nor a number.

    Example:
        >>> adjit.device("cpu")
        device(type='cpu')
    """

    __slots__ = ("index", "type")

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:
        if isinstance(type, device):
            type, index = type.type, type.index if index is None else index
        elif type.__class__ is not bool and hasattr(type, "__index__"):
            type, index = "cuda", operator.index(type)
        elif not isinstance(type, str):
            raise TypeError(
                f"device() received an invalid combination of arguments - got ({type.__class__.__name__}), "
                "but expected one of:\n * (torch.device device)\n * (str type, int index = -1)"
            )
        if index is not None and index < 0:
            raise RuntimeError("Device index must not be negative")
        if not type:
            raise RuntimeError("Device string must not be empty")
        match = re.fullmatch(r"([a-zA-Z_]+)(?::(0|[1-9]\d*))?", type)
        if match is None:
            raise RuntimeError(f"Invalid device string: '{type}'")
        if match[2] and index is not None:
            raise RuntimeError(
                f"type (string) must not include an index because index was passed explicitly: {type}"
            )
        if match[1] not in _KNOWN:
            raise RuntimeError(
                f"Expected one of {', '.join(_KNOWN)} device type at start of device string: {type}"
            )
        self.type: str = match[1]
        self.index: int | None = int(match[2]) if match[2] else index

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (str(self),)

    def __enter__(self) -> device:
        before = current.default
        set_default_device(self)
        current.before.append(before)
        return self

    def __exit__(self, *_: object) -> None:
        current.default = current.before.pop()


CPU = device("cpu")
_gpus: list[device] = []  # one object for each, so that `is` compares devices of specs
gpus_used: list[device] = []  # those that tensors were made on


def gpu(index: int) -> device:
    """The one object for a GPU."""
    while len(_gpus) <= index:
        _gpus.append(device("cuda", len(_gpus)))
    return _gpus[index]


class Current(threading.local):
    """What this thread means without saying so."""

    index = 0  # of the GPU that "cuda" without a number means
    default: device | None = None  # where tensors are made
    legacy = False  # whether `set_default_tensor_type` has said so

    def __init__(self) -> None:
        self.before: list[device | None] = []  # the defaults around `with device:`


current = Current()


def of_tensors(place: Any) -> device:
    """The device that a description means, of a kind that tensors can be on.

    Raises:
        NotImplementedError: if it is of another kind.
    """
    found: device = place if place.__class__ is device else device(place)
    if found.type not in _HERE:
        raise NotImplementedError(
            f"device '{found}' is not supported: adjit has tensors on {' and '.join(_HERE)}"
        )
    return found


def check(place: Any) -> device:
    """The device that a description means, the one object for it, ready to be used. None means the
    default device.

    Raises:
        NotImplementedError: if it is of a kind that there are no tensors on.
        RuntimeError: if there is no such device here; the text says what is missing.
    """
    if place is None:
        place = current.default
    if place is None or place is CPU or place == "cpu":
        return CPU
    found = place if place.__class__ is device else of_tensors(place)
    if found.type == "cpu":
        return CPU
    count = _count(found)
    index = current.index if found.index is None else found.index
    if index >= count:
        raise RuntimeError(
            f"CUDA error: invalid device ordinal: device '{found}' was asked for, and there "
            f"{'is' if count == 1 else 'are'} {count}"
        )
    place = gpu(index)
    if place not in gpus_used:
        gpus_used.append(place)
        for listener in _gpu_listeners:
            listener()
    return place


_gpu_listeners: list[Callable[[], object]] = []


def on_first_gpu(listener: Callable[[], object]) -> None:
    """Call `listener()` when a GPU comes into use: what was remembered may not know of devices."""
    _gpu_listeners.append(listener)


def get_default_device() -> device:
    """Tell where tensors are made that are not told where; the CPU at first.

    Example:
        >>> adjit.get_default_device()
        device(type='cpu')
    """
    return check(None)


def set_default_device(device: Any) -> None:
    """Say where this thread makes tensors that are not told where; None for the CPU.

    `from_numpy` shares memory of the CPU, and `FloatTensor` and its like name their device.

    Raises:
        RuntimeError: if there is no such device here; the text says what is missing.

    Example:
        >>> adjit.set_default_device("cpu")
        >>> adjit.zeros(2).device
        device(type='cpu')
    """
    if device is not None:
        check(device)
        device = _class(device)
    current.default = device


_class = device


def _count(wanted: device) -> int:
    from . import driver

    try:
        return driver.load().count
    except driver.Unavailable as error:
        raise RuntimeError(f"device '{wanted}' is not available: {error}") from None
