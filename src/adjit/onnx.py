"""PyTorch's `torch.onnx`, as far as programs ask it: nothing is exported here."""

from typing import Any

from .absent import absent

__all__ = ["is_in_onnx_export"]


def is_in_onnx_export() -> bool:
    """False: models are not exported.

    Example:
        >>> adjit.onnx.is_in_onnx_export()
        False
    """
    return False


def __getattr__(name: str) -> Any:
    """What PyTorch has and adjit has not."""
    raise absent("onnx", name)
