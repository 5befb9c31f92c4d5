"""Settings of products on GPUs: PyTorch's `torch.backends.cuda`."""

from __future__ import annotations

from .. import config
from ..ops.matmul import use_precision

__all__ = ["is_built", "matmul"]


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
