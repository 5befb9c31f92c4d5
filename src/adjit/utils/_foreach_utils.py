"""How PyTorch's optimisers, and those that were written after them, group lists of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..devices import device
from ..tensor import Tensor


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[device, Any], tuple[list[list[Any]], list[int]]]:
    """Lists side by side, apart by device and dtype of the first list's tensors; positions too if asked for."""
    found: dict[tuple[device, Any], tuple[list[list[Any]], list[int]]] = {}
    for k, row in enumerate(zip(*tensorlistlist, strict=True)):
        key = row[0].device, row[0].dtype
        lists, places = found.setdefault(key, ([[] for _ in tensorlistlist], []))
        for column, value in zip(lists, row, strict=True):
            column.append(value)
        if with_indices:
            places.append(k)
    return found


def _get_foreach_kernels_supported_devices() -> list[str]:
    return ["cuda"]


def _get_fused_kernels_supported_devices() -> list[str]:
    return ["cuda", "cpu"]


def _device_has_foreach_support(device: device) -> bool:
    return device.type in ("cpu", "cuda")


def _has_foreach_support(tensors: Sequence[Tensor | None], device: device) -> bool:
    return _device_has_foreach_support(device) and all(
        t is None or type(t) is Tensor for t in tensors
    )
