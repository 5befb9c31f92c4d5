"""What computes, and how exactly: PyTorch's `torch.backends`, as far as programs set it.

adjit has no cuDNN, MKL or MPS: these rooms take the settings that programs make at their beginning and
say that nothing is there. Its kernels are deterministic, and none is chosen by trying.
"""

from __future__ import annotations

import warnings
from typing import Any

from .. import config
from ..ops.matmul import use_precision
from ..shapes import check_bool
from . import cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]

PRECISIONS = ("highest", "high", "medium")


def set_float32_matmul_precision(precision: str) -> None:
    """Say how exactly products of float32 matrices have to be computed.

    "highest" is float32 throughout. With "high" the tensor cores of a GPU multiply numbers rounded to TF32,
    which has 10 bits of mantissa, with "medium" numbers rounded to bfloat16, which has 7, at twice the rate;
    they add in float32. The CPU computes in float32 always.

    Raises:
        RuntimeError: if it is no string. One that is none of these changes nothing and warns.

    Example:
        >>> adjit.set_float32_matmul_precision("highest")
        >>> adjit.get_float32_matmul_precision()
        'highest'
    """
    if not isinstance(precision, str):
        raise RuntimeError(
            f"set_float32_matmul_precision expects a str, but got {type(precision).__name__}"
        )
    if precision not in PRECISIONS:
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current"
            "setFloat32MatmulPrecision call has no effect.",
            stacklevel=2,
        )
        return
    use_precision(precision)


def get_float32_matmul_precision() -> str:
    """Tell how exactly products of float32 matrices are computed: "highest", "high" or "medium".

    Example:
        >>> adjit.get_float32_matmul_precision()
        'highest'
    """
    return config.MATMUL_PRECISION


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Choose whether every kernel gives the same bits in every run, as all do unless this is switched off.

    False lets users' own kernels (`adjit.kernel`) on a GPU add to what several rounds read by atomics, in no
    order: faster where that is a large array. All other kernels stay as they are.

    Example:
        >>> adjit.use_deterministic_algorithms(True)
    """
    check_bool("_set_deterministic_algorithms", "mode", mode)
    config.DETERMINISTIC = mode


def are_deterministic_algorithms_enabled() -> bool:
    """Tell whether every kernel gives the same bits in every run: True unless that was switched off.

    Example:
        >>> adjit.are_deterministic_algorithms_enabled()
        True
    """
    return config.DETERMINISTIC


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'adjit.backends' has no attribute {name!r}")
