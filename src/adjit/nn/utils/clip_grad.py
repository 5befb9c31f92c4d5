"""Gradient clipping."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable

from ...autograd.modes import no_grad
from ...ops import creation, joining
from ...tensor import Tensor


@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all elements of the tensors together, as if they were one vector.

    Args:
        tensors: one tensor or an iterable, of floating dtypes and any shapes.
        norm_type: the order of the norm; `float("inf")` for the largest magnitude.
        error_if_nonfinite: raise where the result is NaN or infinite.
        foreach: without effect; kernels are fused in any case.

    Returns:
        A 0-d tensor, without history; 0 where there are no tensors.

    Raises:
        RuntimeError: a NaN or infinite norm, with `error_if_nonfinite`.

    Example:
        >>> nn.utils.get_total_norm([adjit.tensor([3.0]), adjit.tensor([4.0])])
        tensor(5.)
    """
    listed = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not listed:
        return creation.tensor(0.0)
    device = listed[0].device
    norms = [tensor.norm(norm_type).to(device) for tensor in listed]
    total_norm = joining.stack(norms).norm(norm_type)
    if error_if_nonfinite and not total_norm.isfinite():
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total_norm


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale the gradients in place by `max_norm / total_norm` where that is below one.

    The arguments are those of `clip_grad_norm_`, and the norm from `get_total_norm`.

    Example:
        >>> w = nn.Parameter(adjit.zeros(2))
        >>> w.grad = adjit.tensor([3.0, 4.0])
        >>> nn.utils.clip_grads_with_norm_([w], max_norm=1.0, total_norm=adjit.tensor(5.0))
        >>> w.grad
        tensor([0.6000, 0.8000])
    """
    scale = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    for grad in _grads(parameters):
        grad.mul_(scale.to(grad.device))


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients in place so that their norm, all together, is at most `max_norm`.

    Args:
        parameters: one tensor or an iterable; those without a gradient are left out.
        max_norm: the bound.
        norm_type: the order of the norm; `float("inf")` for the largest magnitude.
        error_if_nonfinite: raise where the norm is NaN or infinite, before anything is scaled.
        foreach: without effect; kernels are fused in any case.

    Returns:
        The norm before the scaling, a 0-d tensor.

    Raises:
        RuntimeError: a NaN or infinite norm, with `error_if_nonfinite`.

    Example:
        >>> weight = nn.Parameter(adjit.zeros(2))
        >>> (weight * adjit.tensor([3.0, 4.0])).sum().backward()
        >>> nn.utils.clip_grad_norm_(weight, max_norm=1.0)
        tensor(5.)
        >>> weight.grad
        tensor([0.6000, 0.8000])
    """
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if not listed and isinstance(parameters, Generator):
        warnings.warn(
            "`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2
        )
    total_norm: Tensor = get_total_norm(_grads(listed), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(listed, max_norm, total_norm)
    return total_norm


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Call `clip_grad_norm_`, whose old name this is; it warns.

    Example:
        >>> weight = nn.Parameter(adjit.zeros(2))
        >>> (weight * adjit.tensor([3.0, 4.0])).sum().backward()
        >>> nn.utils.clip_grad_norm(weight, max_norm=1.0)
        tensor(5.)
    """
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@no_grad()
def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clamp every element of the gradients to [-clip_value, clip_value], in place.

    Example:
        >>> weight = nn.Parameter(adjit.zeros(2))
        >>> (weight * adjit.tensor([0.1, 4.0])).sum().backward()
        >>> nn.utils.clip_grad_value_(weight, clip_value=0.5)
        >>> weight.grad
        tensor([0.1000, 0.5000])
    """
    bound = float(clip_value)
    for grad in _grads(parameters):
        grad.clamp_(min=-bound, max=bound)


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    listed = [parameters] if isinstance(parameters, Tensor) else parameters
    return [param.grad for param in listed if param.grad is not None]
