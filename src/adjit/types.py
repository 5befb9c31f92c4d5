"""Names for annotations: PyTorch's `torch.types`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, Any

from .devices import device
from .dtypes import dtype
from .shapes import Size
from .tensor import Tensor

__all__ = ["Device", "FileLike", "Number", "Storage"]

Number = int | float | bool
Device = device | str | int | None
FileLike = str | os.PathLike[str] | IO[bytes]
Storage = Any
_int, _float, _bool, _dtype, _device = int, float, bool, dtype, device
_size = Size | list[int] | tuple[int, ...]
_TensorOrTensors = Tensor | Sequence[Tensor]
