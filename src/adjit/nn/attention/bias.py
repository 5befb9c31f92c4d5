"""Causal masks of which only the kind and the sizes are kept: PyTorch's `torch.nn.attention.bias`."""

from __future__ import annotations

import warnings
from enum import IntEnum, auto
from typing import Any

from ...devices import CPU, device
from ...dtypes import bool as boolean
from ...ops.creation import ones
from ...tensor import Tensor
from .. import functional

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """Where the triangle of a mask that is not square lies.

    `UPPER_LEFT`: position `i` attends to the first `i + 1` keys, as with `is_causal=True`. `LOWER_RIGHT`: the
    last position attends to all keys, as where queries continue a sequence whose keys are kept.
    """

    UPPER_LEFT = auto()
    LOWER_RIGHT = auto()


class CausalBias(Tensor):
    """A causal mask for `F.scaled_dot_product_attention`, made by `causal_upper_left` or `causal_lower_right`.

    It has no elements: attention gets `is_causal=True` where that is the same, else a mask.

    Args:
        variant: where the triangle lies.
        seq_len_q: how many queries there are.
        seq_len_kv: how many keys.

    Raises:
        AssertionError: if `variant` is none.
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        super().__init__()
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv
        if seq_len_q > seq_len_kv and variant is CausalVariant.LOWER_RIGHT:
            warnings.warn(
                "Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!",
                stacklevel=2,
            )

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        made: CausalBias = super().__new__(cls)
        return made

    def _materialize(self, device: device | None = None) -> Tensor:
        """The mask: shape (seq_len_q, seq_len_kv), True where a query attends to a key."""
        is_last = self.variant is CausalVariant.LOWER_RIGHT
        whole = ones(self.seq_len_q, self.seq_len_kv, dtype=boolean, device=device or CPU)
        mask: Tensor = whole.tril(self.seq_len_kv - self.seq_len_q if is_last else 0)
        return mask

    @property
    def _is_causal(self) -> bool:
        """Whether it is the mask of `is_causal=True`."""
        return self.variant is CausalVariant.UPPER_LEFT or self.seq_len_q == self.seq_len_kv

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is functional.scaled_dot_product_attention:
            return _attend(*args, **(kwargs or {}))
        ordinary: Any = super()
        return ordinary.__torch_function__(func, types, args, kwargs)

    def __repr__(self) -> str:  # type: ignore[override]
        return repr(self._materialize())


def _attend(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: CausalBias, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Attention under such a mask."""
    if is_causal:
        raise ValueError("CausalBias should not be used with causal=True")
    whole = attn_mask._is_causal
    found: Tensor = functional.scaled_dot_product_attention(
        query, key, value, None if whole else attn_mask._materialize(query.device), dropout_p, whole,
        scale=scale, enable_gqa=enable_gqa,
    )  # fmt: skip
    return found


def causal_upper_left(*size: int) -> CausalBias:
    """A causal mask whose triangle begins at the first key.

    Args:
        size: how many queries and keys there are.

    Raises:
        AssertionError: for other than two sizes.

    Example:
        >>> from adjit.nn.attention.bias import causal_upper_left
        >>> causal_upper_left(2, 3)
        tensor([[ True, False, False],
                [ True,  True, False]])
    """
    return _of_sizes(CausalVariant.UPPER_LEFT, size)


def causal_lower_right(*size: int) -> CausalBias:
    """A causal mask whose triangle ends at the last key: queries continue the sequence of the keys.

    Args:
        size: how many queries and keys there are.

    Raises:
        AssertionError: for other than two sizes.

    Example:
        >>> from adjit.nn.attention.bias import causal_lower_right
        >>> causal_lower_right(2, 3)
        tensor([[ True,  True, False],
                [ True,  True,  True]])
    """
    return _of_sizes(CausalVariant.LOWER_RIGHT, size)


def _of_sizes(variant: CausalVariant, size: tuple[int, ...]) -> CausalBias:
    if len(size) != 2:
        raise AssertionError(f"causal_{variant.name.lower()} only supports 2D tensors")
    return CausalBias(variant, *size)
