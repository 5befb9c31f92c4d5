"""Settings of products and of attention on GPUs: PyTorch's `torch.backends.cuda`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from .. import config
from ..nn import attention
from ..nn.attention import SDPBackend
from ..ops.matmul import use_precision

__all__ = [
    "cudnn_sdp_enabled", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp",
    "enable_mem_efficient_sdp", "flash_sdp_enabled", "is_built", "is_flash_attention_available",
    "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled", "sdp_kernel",
]  # fmt: skip


def is_built() -> bool:
    """True: nothing of CUDA is built in, and what a GPU needs is looked for when it is asked for.

    Example:
        >>> adjit.backends.cuda.is_built()
        True
    """
    return True


class _Matmul:
    """`matmul.allow_tf32` is another name for a precision of float32 products below "highest"."""

    @property
    def allow_tf32(self) -> bool:
        return config.MATMUL_PRECISION != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        use_precision("high" if allowed else "highest")


matmul = _Matmul()


# --------------------------------------------------------------------------- attention

DEPRECATED = (
    "`adjit.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager will be "
    "removed. Please see `adjit.nn.attention.sdpa_kernel()` for the new context manager, with updated "
    "signature."
)


def flash_sdp_enabled() -> bool:
    """Tell whether attention may be computed by FlashAttention's way.

    Example:
        >>> adjit.backends.cuda.flash_sdp_enabled()
        True
    """
    return SDPBackend.FLASH_ATTENTION in attention.enabled


def enable_flash_sdp(enabled: bool) -> None:
    """Note whether attention may be computed by FlashAttention's way; what computes it stays as it is.

    Example:
        >>> adjit.backends.cuda.enable_flash_sdp(True)
    """
    attention.enable(SDPBackend.FLASH_ATTENTION, enabled)


def mem_efficient_sdp_enabled() -> bool:
    """Tell whether attention may be computed by the way that takes little memory.

    Example:
        >>> adjit.backends.cuda.mem_efficient_sdp_enabled()
        True
    """
    return SDPBackend.EFFICIENT_ATTENTION in attention.enabled


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Note whether attention may be computed by the way that takes little memory; nothing else changes.

    Example:
        >>> adjit.backends.cuda.enable_mem_efficient_sdp(True)
    """
    attention.enable(SDPBackend.EFFICIENT_ATTENTION, enabled)


def math_sdp_enabled() -> bool:
    """Tell whether attention may be computed by products and a softmax.

    Example:
        >>> adjit.backends.cuda.math_sdp_enabled()
        True
    """
    return SDPBackend.MATH in attention.enabled


def enable_math_sdp(enabled: bool) -> None:
    """Note whether attention may be computed by products and a softmax; nothing else changes.

    Example:
        >>> adjit.backends.cuda.enable_math_sdp(True)
    """
    attention.enable(SDPBackend.MATH, enabled)


def cudnn_sdp_enabled() -> bool:
    """Tell whether attention may be computed by cuDNN, which adjit does not use.

    Example:
        >>> adjit.backends.cuda.cudnn_sdp_enabled()
        True
    """
    return SDPBackend.CUDNN_ATTENTION in attention.enabled


def enable_cudnn_sdp(enabled: bool) -> None:
    """Note whether attention may be computed by cuDNN; nothing else changes.

    Example:
        >>> adjit.backends.cuda.enable_cudnn_sdp(True)
    """
    attention.enable(SDPBackend.CUDNN_ATTENTION, enabled)


def is_flash_attention_available() -> bool:
    """False: on a GPU, attention is made of products and a softmax.

    Example:
        >>> adjit.backends.cuda.is_flash_attention_available()
        False
    """
    return False


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[dict[str, bool]]:
    """`nn.attention.sdpa_kernel` by one flag for each way, as older programs call it: it warns.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"), adjit.backends.cuda.sdp_kernel():
        ...     adjit.ones(1)
        tensor([1.])
    """
    warnings.warn(DEPRECATED, FutureWarning, stacklevel=3)
    wanted = {
        SDPBackend.FLASH_ATTENTION: enable_flash,
        SDPBackend.EFFICIENT_ATTENTION: enable_mem_efficient,
        SDPBackend.MATH: enable_math,
        SDPBackend.CUDNN_ATTENTION: enable_cudnn,
    }
    with attention.sdpa_kernel(
        [backend for backend, is_wanted in wanted.items() if is_wanted]
    ) as context:
        yield context
