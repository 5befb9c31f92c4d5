"""A module in several processes, each with its part of the batch: `DistributedDataParallel`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from ... import devices
from ...autograd.modes import is_grad_enabled, no_grad
from ...distributed import collectives, memory, objects
from ...distributed.algorithms import Join, Joinable, JoinHook, announced
from ...distributed.group import ProcessGroup, default_group
from ...distributed.work import ReduceOp
from ...ops import creation
from ...tensor import Tensor
from ..module import Module
from .reducer import Reducer
from .scatter_gather import moved, tensors_in

BUCKET_MB = 25


class DistributedDataParallel(Module, Joinable):
    """Runs a module on this process's part of a batch, and averages the gradients over all processes.

    Before the first step all processes take over the parameters and buffers of rank 0. During backward the
    gradients are put together in buckets, the last layers' first; a bucket that is complete is summed over the
    processes while the rest of backward goes on. After `backward()` each `.grad` is the mean over the
    processes: if the loss is a mean over equal parts of a batch, the gradient of the whole batch, up to
    rounding. All processes have the same bits.

    Args:
        module: whose forward is run; it is the attribute `module`.
        device_ids: the GPU of the module, in a list; None or nothing for the CPU.
        output_device, dim: accepted for PyTorch's programs.
        broadcast_buffers: whether each forward begins with the buffers of rank 0 (True if it is not given).
        init_sync: whether parameters and buffers of rank 0 are taken over at once.
        process_group: whose processes take part; all if it is not given.
        bucket_cap_mb: megabytes of a bucket, 25 if they are not given.
        find_unused_parameters: whether forward looks for parameters that the outputs do not depend on.
        gradient_as_bucket_view, check_reduction: accepted, without effect.
        forward_sync_buffers: as `broadcast_buffers`; with False, buffers are still taken over once, at first.
        static_graph: whether the same parameters are used each time; it looks for unused ones too.

    Raises:
        RuntimeError: if no parameter needs a gradient, or the modules of the processes differ; from forward, if
            the last backward left out parameters and nobody looks for those.
        ValueError: if `device_ids` does not fit where the parameters are; before `init_process_group`.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
        >>> net(adjit.ones(3, 2)).mean().backward()
        >>> net.module.bias.grad
        tensor([1.])
        >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        self._divides_by_all = True  # in a block of `join`, sums by the number of all processes
        self.process_group = default_group() if process_group is None else process_group
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [
            (name, p)
            for name, p in module.named_parameters()
            if p.requires_grad and name not in ignored
        ]
        if not named:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that "
                "requires a gradient."
            )
        places = {p.device for _, p in named}
        if device_ids and (len(device_ids) > 1 or len(places) > 1 or devices.CPU in places):
            raise ValueError(
                "DistributedDataParallel device_ids and output_device arguments only work with "
                "single-device/multiple-device GPU modules or CPU modules, but got device_ids "
                f"{list(device_ids)}, output_device {output_device}, and module parameters {places}."
            )
        self.module = module
        self.device_ids = list(device_ids) if device_ids else None
        self.output_device, self.dim = output_device, dim
        in_forward = broadcast_buffers if forward_sync_buffers is None else forward_sync_buffers
        self.broadcast_buffers = self.forward_sync_buffers = in_forward is None or in_forward
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._place = next(iter(places)) if device_ids else None
        self._buffers_to_send = [b for name, b in module.named_buffers() if name not in ignored]
        self._check_same([(name, tuple(p.shape), str(p.dtype)) for name, p in named])
        if init_sync:
            at_first = self.broadcast_buffers or forward_sync_buffers is not None
            self._take_over([*module.parameters(), *(self._buffers_to_send if at_first else ())])
        limit = int((BUCKET_MB if bucket_cap_mb is None else bucket_cap_mb) * (1 << 20))
        self.reducer = Reducer(
            [p for _, p in named], self.process_group, limit, find_unused_parameters or static_graph
        )

    def _check_same(self, described: list[tuple[str, tuple[int, ...], str]]) -> None:
        """Whether all processes have the same parameters."""
        found: list[Any] = [None] * self.process_group.size()
        objects.all_gather_object(found, described, self.process_group)
        for rank, theirs in enumerate(found):
            if len(theirs) != len(found[0]):
                raise RuntimeError(
                    f"DDP expects same model across all ranks, but Rank 0 has {len(found[0])} params, "
                    f"while rank {rank} has inconsistent {len(theirs)} params."
                )
            for ours, other in zip(found[0], theirs, strict=True):
                if ours[1:] != other[1:]:
                    raise RuntimeError(
                        f"DDP expects same model across all ranks, but parameter {ours[0]} has shape "
                        f"{ours[1]} and {ours[2]} on rank 0, and {other[1]} and {other[2]} on rank {rank}"
                    )

    def _take_over(self, tensors: Sequence[Tensor], rank: int = 0) -> None:
        """Take over the tensors of a process, rank 0 if none is given."""
        kinds: dict[Any, list[Tensor]] = {}
        for t in tensors:
            kinds.setdefault((t.dtype, t.device), []).append(t.detach())
        for alike in kinds.values():
            flat = memory.flattened(alike)
            collectives.broadcast(flat, group=self.process_group, group_src=rank)
            if self.process_group.rank() != rank:
                memory.scatter_to(alike, flat)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        is_recording = is_grad_enabled()
        if is_recording and self.require_backward_grad_sync:
            self.reducer.check_finished()
        active = announced(self)
        self._share_buffers(is_active=True)
        if self._join_config.enable:
            self._synchronises(self.require_backward_grad_sync)
            self.reducer.divisor = self.process_group.size()
            if active is not None and not self._divides_by_all:
                active[0].wait()
                self.reducer.divisor = int(active[1])
        if self._place is not None:
            inputs, kwargs = moved(inputs, self._place), moved(kwargs, self._place)
        output = self.module(*inputs, **kwargs)
        if is_recording and self.require_backward_grad_sync:
            self.require_forward_param_sync = True
            self.reducer.expect(tensors_in(output))
        else:
            self.require_forward_param_sync = False
            self.reducer.is_expecting = False
        return output

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Leave gradients as they are in this process; the first backward outside averages what has added up.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
            >>> with net.no_sync():
            ...     net(adjit.ones(3, 2)).mean().backward()
            >>> net(adjit.ones(3, 2)).mean().backward()
            >>> net.module.bias.grad
            tensor([2.])
            >>> dist.destroy_process_group()
        """
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    # ----- processes with different numbers of batches -----

    def _share_buffers(self, is_active: bool) -> None:
        """Have all take over the buffers of a process that runs forward: rank 0, inside of `join` the last."""
        if self.require_forward_param_sync and self.broadcast_buffers and self._buffers_to_send:
            with no_grad():
                source = self._common_rank(is_active) if self._join_config.enable else 0
                self._take_over(self._buffers_to_send, source)

    def _common_rank(self, is_candidate: bool) -> int:
        """The last of the processes that are candidates."""
        rank = self.process_group.rank() if is_candidate else -1
        found = creation.tensor([rank], device=self.join_device)
        collectives.all_reduce(found, ReduceOp.MAX, self.process_group)
        return int(found)

    def _synchronises(self, does: bool) -> bool:
        """Whether any process averages the gradients of this step."""
        found = creation.tensor([float(does)], device=self.join_device)
        collectives.all_reduce(found, group=self.process_group)
        return bool(found > 0)

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """Let processes have different numbers of batches, in a `with` block around the loop.

        A process that has none left takes part in the sums of the others with zeros; at the end all take over
        the parameters and buffers of one that had most. It takes no part in sums of forward itself, as those of
        `SyncBatchNorm`.

        Args:
            divide_by_initial_world_size: whether sums are divided by the number of all processes; else by the
                number of those that have a batch.
            enable: False for a block that does nothing.
            throw_on_early_termination: whether all processes raise an error as soon as one has no batch left.

        Raises:
            RuntimeError: with `throw_on_early_termination`.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
            >>> with net.join():
            ...     for batch in adjit.ones(3, 4, 2):
            ...         net(batch).mean().backward()
            >>> net.module.bias.grad
            tensor([3.])
            >>> dist.destroy_process_group()
        """
        return Join(
            [self], enable, throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )  # fmt: skip

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Make what this process does for the others once it has no batches left; for `Join`.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
            >>> isinstance(net.join_hook(), dist.algorithms.JoinHook)
            True
            >>> dist.destroy_process_group()
        """
        self._divides_by_all = kwargs.get("divide_by_initial_world_size", True)
        return _Shadow(self)

    @property
    def join_device(self) -> devices.device:
        """The device of the parameters.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> nn.parallel.DistributedDataParallel(nn.Linear(2, 1)).join_device
            device(type='cpu')
            >>> dist.destroy_process_group()
        """
        return self.reducer.parameters[0].device

    @property
    def join_process_group(self) -> ProcessGroup:
        """The processes that take part.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> nn.parallel.DistributedDataParallel(nn.Linear(2, 1)).join_process_group.size()
            1
            >>> dist.destroy_process_group()
        """
        return self.process_group

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> NoReturn:
        """Refuse: gradients are always averaged.

        Raises:
            NotImplementedError: always.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> nn.parallel.DistributedDataParallel(nn.Linear(2, 1)).register_comm_hook(None, print)
            Traceback (most recent call last):
                ...
            NotImplementedError: DistributedDataParallel.register_comm_hook: use no_sync() and ...
            >>> dist.destroy_process_group()
        """
        raise NotImplementedError(
            "DistributedDataParallel.register_comm_hook: use no_sync() and distributed.all_reduce on the "
            "gradients"
        )


class _Shadow(JoinHook):
    """Takes part in what a module does in the processes that have batches left."""

    def __init__(self, net: DistributedDataParallel) -> None:
        self.net = net

    def main_hook(self) -> None:
        net = self.net
        net._share_buffers(is_active=False)
        net.require_forward_param_sync = net._synchronises(False)
        if net.require_forward_param_sync:
            net.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        net = self.net
        buffers = net._buffers_to_send if net.broadcast_buffers else ()
        net._take_over([*net.module.parameters(), *buffers], net._common_rank(is_last_joiner))
