"""PyTorch's ways of computing attention as settings, `torch.nn.attention`: here each device has one way."""

from __future__ import annotations

import contextlib
import enum
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from ...absent import absent

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """What may compute `scaled_dot_product_attention`; programs choose, and adjit takes what it has.

    Example:
        >>> nn.attention.SDPBackend.MATH
        <SDPBackend.MATH: 0>
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


enabled = set(SDPBackend) - {SDPBackend.ERROR}


def enable(backend: SDPBackend, wanted: bool) -> None:
    """Note whether a way may be taken."""
    if wanted:
        enabled.add(backend)
    else:
        enabled.discard(backend)


@contextlib.contextmanager
def sdpa_kernel(
    backends: list[SDPBackend] | SDPBackend, set_priority: bool = False
) -> Iterator[dict[str, bool]]:
    """Note which ways of computing attention may be taken, until the context ends.

    Nothing else changes: a CPU computes by tiles, a GPU by products and a softmax.

    Args:
        backends: one, or a list.
        set_priority: whether earlier ones are to be preferred.

    Raises:
        AssertionError: if it is neither.

    Example:
        >>> x = adjit.ones(2, 3)
        >>> with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        ...     F.scaled_dot_product_attention(x, x, x).shape
        adjit.Size([2, 3])
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
            f"{type(backends).__name__}"
        )
    wanted: Sequence[SDPBackend] = backends if isinstance(backends, list) else [backends]
    before = set(enabled)
    enabled.clear()
    enabled.update(wanted)
    try:
        yield {}
    finally:
        enabled.clear()
        enabled.update(before)


def __getattr__(name: str) -> Any:
    """What few programs need, and what PyTorch has and adjit has not."""
    if name in ("bias", "flex_attention"):
        return importlib.import_module(f"{__name__}.{name}")
    raise absent("nn.attention", name)
