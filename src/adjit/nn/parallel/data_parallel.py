"""A module on the GPUs of one process: it runs on the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import devices, driver
from ..module import Module
from .scatter_gather import moved


class DataParallel(Module):
    """Runs a module, on the first of several GPUs where there are some.

    It computes what PyTorch's computes. That spreads a batch over GPUs by threads of one process, and PyTorch's
    documentation advises against it: `DistributedDataParallel` uses several, with a process for each.

    Args:
        module: whose forward is run; it is the attribute `module`.
        device_ids: GPUs; the first is used.
        output_device: where the results come.
        dim: accepted for PyTorch's programs.

    Example:
        >>> net = nn.DataParallel(nn.Linear(2, 1))
        >>> net(adjit.ones(3, 2)).shape, list(net.state_dict())
        (adjit.Size([3, 1]), ['module.weight', 'module.bias'])
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        self.module, self.dim = module, dim
        if driver.reason():
            self.device_ids: list[Any] = []
            return
        self.device_ids = [0] if device_ids is None else list(device_ids)
        self.output_device = self.device_ids[0] if output_device is None else output_device
        self.module.to(devices.check(self.device_ids[0]))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        place = devices.check(self.device_ids[0])
        output = self.module(*moved(inputs, place), **moved(kwargs, place))
        return moved(output, devices.check(self.output_device))


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Run a module once, as `DataParallel` does.

    Args:
        module: whose forward is run.
        inputs: a tuple of arguments, or the only one.
        device_ids, output_device, dim: as of `DataParallel`.
        module_kwargs: arguments by name.

    Example:
        >>> nn.parallel.data_parallel(nn.Linear(2, 1), adjit.ones(3, 2)).shape
        adjit.Size([3, 1])
    """
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*given, **(module_kwargs or {}))
