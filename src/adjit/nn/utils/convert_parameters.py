"""Parameters as one flat vector."""

from __future__ import annotations

from collections.abc import Iterable

from ...ops import joining
from ...tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters, flattened and concatenated; differentiable.

    Raises:
        TypeError: the parameters lie on different devices.

    Example:
        >>> nn.utils.parameters_to_vector(nn.Linear(2, 1).parameters()).shape
        adjit.Size([3])
    """
    listed = list(parameters)
    _check_one_device(listed)
    return joining.cat([param.view(-1) for param in listed])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Point every parameter's data at its slice of `vec`, in the order of
    `parameters_to_vector`.

    Raises:
        TypeError: `vec` is no tensor, or the parameters lie on different devices.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> nn.utils.vector_to_parameters(adjit.tensor([1.0, 2.0, 3.0]), layer.parameters())
        >>> layer.weight.tolist(), layer.bias.tolist()
        ([[1.0, 2.0]], [3.0])
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__qualname__}")
    listed = list(parameters)
    _check_one_device(listed)
    start = 0
    for param in listed:
        stop = start + param.numel()
        param.data = vec[start:stop].view_as(param).data
        start = stop


def _check_one_device(parameters: list[Tensor]) -> None:
    if len({param.device for param in parameters}) > 1:
        raise TypeError(
            "Found two parameters on different devices, this is currently not supported."
        )
