"""Collectives: what the processes of a group do together with their tensors."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from .. import devices
from ..autograd.modes import no_grad
from ..graph import record
from ..ops import creation
from ..tensor import Tensor
from . import memory, mpi
from .errors import DistBackendError
from .group import ProcessGroup, find, get_group_rank
from .work import ReduceOp, Work

BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


# ----- checks, with PyTorch's texts -----


def _check_tensor(value: object, name: str) -> None:
    if not record.is_tensor(value):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n"
            f"             but got {type(value)} instead."
        )


def _check_list(values: object, name: str) -> None:
    if not isinstance(values, list):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
            f"             but got {type(values)} instead."
        )
    if not all(record.is_tensor(value) for value in values):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
            f"             but got {type(values)} with elements of type {[type(v) for v in values]}."
        )


def _check_same(what: str, tensors: Sequence[Tensor], like: Tensor, count: int) -> None:
    """Whether there is a tensor for each process, all of one dtype, shape and device."""
    if len(tensors) != count:
        side = "output" if "gather" in what else "input"
        raise RuntimeError(
            f"ProcessGroup::{what}: invalid {side} tensor list at index 0 (expected length {count}, got "
            f"{len(tensors)})"
        )
    for k, t in enumerate(tensors):
        if t.dtype is not like.dtype:
            raise ValueError(
                f"Invalid usage of tensors with different dtypesFound {like.dtype} and  {t.dtype}"
            )
        if t.shape != like.shape:
            raise RuntimeError(
                f"ProcessGroup::{what}: invalid tensor size at index {k} (expected "
                f"({', '.join(map(str, like.shape))}), got ({', '.join(map(str, t.shape))}))"
            )
        if t.device != like.device:
            raise RuntimeError(
                f"ProcessGroup::{what}: invalid tensor device at index {k} (expected {like.device}, got "
                f"{t.device})"
            )


def _check_op(op: object, t: Tensor) -> ReduceOp:
    if not isinstance(op, ReduceOp):
        raise TypeError(f"op must be a ReduceOp, not {type(op).__name__}")
    if op in BITWISE and t.dtype.is_floating_point:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype")
    if op is ReduceOp.AVG and not t.dtype.is_floating_point:
        raise RuntimeError(
            f"result type Float can't be cast to the desired output type {t.dtype.row.legacy}"
        )
    return op


def _root(
    group: ProcessGroup, what: str, rank: int | None, group_rank: int | None,
    default: int | None = None,
) -> int:  # fmt: skip
    """The rank in the group that a rank in the default group or in the group names."""
    if rank is not None and group_rank is not None:
        raise ValueError("Can't specify both group_rank and global_rank")
    if group_rank is not None:
        found = group_rank
    elif rank is None and default is None:
        raise ValueError("Must specify global_rank or group_rank")
    else:
        wanted = default if rank is None else rank
        assert wanted is not None
        found = (
            wanted if group.ranks == list(range(group.size())) else get_group_rank(group, wanted)
        )
    if not 0 <= found < group.size():
        raise RuntimeError(f"ProcessGroup::{what}: invalid root rank: {found}")
    return found


def _outside(what: str) -> None:
    """Warn that this process is not in the group."""
    warnings.warn(
        f"Running {what} on a rank that does not belong to the given group.",
        UserWarning,
        stacklevel=3,
    )


def _given(work: Work, async_op: bool) -> Work | None:
    """The work, or None once it is done."""
    if async_op:
        return work
    work.wait()
    return None


def _averaging(
    group: ProcessGroup, op: ReduceOp, out: Tensor, finish: memory.Finish | None
) -> memory.Finish | None:
    """What follows a sum that is to become a mean."""
    if op is not ReduceOp.AVG:
        return finish

    def then() -> None:
        if finish is not None:
            finish()
        with no_grad():
            out.detach().div_(group.size())

    return then


# ----- collectives -----


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduce a tensor of any shape over the processes, element by element; all get the result, in place.

    Its gradient is not recorded. With MPI all processes get the same bits.

    Args:
        tensor: of any shape, of one dtype in all processes; the result comes into it.
        op: how two elements become one.
        group: of processes, the default one if it is not given.
        async_op: whether to return at once.

    Returns:
        A `Work` with `async_op`, else None, and None outside of the group.

    Raises:
        RuntimeError: for an `op` that the dtype has not; if a process has ended, or after the timeout.
        TypeError: if it is no tensor.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> x = adjit.tensor([1., 2.])
        >>> dist.all_reduce(x)
        >>> x
        tensor([1., 2.])
        >>> dist.destroy_process_group()
    """
    _check_tensor(tensor, "tensor")
    found = find(group)
    if found is None:
        _outside("all_reduce")
        return None
    op = _check_op(op, tensor)
    channel = found.channel(tensor.device)
    send = memory.to_send(tensor)
    out, finish = memory.landing(tensor)
    return _given(
        channel.all_reduce(send, out, op, _averaging(found, op, tensor, finish)), async_op
    )


def all_reduce_coalesced(
    tensors: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduce several tensors of one dtype over the processes at once; all get the results, in place.

    Raises:
        RuntimeError: as `all_reduce`.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.all_reduce_coalesced([adjit.ones(2), adjit.ones(3)])
        >>> dist.destroy_process_group()
    """
    _check_list(tensors, "tensors")
    found = find(group)
    if found is None:
        _outside("all_reduce_coalesced")
        return None
    op = _check_op(op, tensors[0])
    flat = memory.flattened(tensors)
    out = memory.empty_like(flat)
    finish = _averaging(found, op, out, None)

    def then() -> None:
        if finish is not None:
            finish()
        memory.scatter_to(tensors, out)

    return _given(found.channel(tensors[0].device).all_reduce(flat, out, op, then), async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Reduce a tensor over the processes; `dst` gets the result, in place, and the others keep theirs.

    Args:
        tensor: of any shape, of one dtype in all processes.
        dst: the rank in the default group that gets it, or `group_dst` the one in the group.
        op, group, async_op: as of `all_reduce`.

    Raises:
        RuntimeError: as `all_reduce`.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.reduce(adjit.ones(2), dst=0)
        >>> dist.destroy_process_group()
    """
    _check_tensor(tensor, "tensor")
    found = find(group)
    if found is None:
        _outside("reduce")
        return None
    op = _check_op(op, tensor)
    root = _root(found, "reduce", dst, group_dst)
    channel = found.channel(tensor.device)
    send = memory.to_send(tensor)
    if found.rank() != root:
        return _given(channel.reduce(send, None, root, op, None), async_op)
    out = memory.empty_like(tensor)
    finish = _averaging(found, op, tensor, lambda: memory.take_over(tensor, out))
    return _given(channel.reduce(send, out, root, op, finish), async_op)


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Give all processes the tensor of one of them, in place.

    Args:
        tensor: of one shape and dtype in all processes.
        src: the rank in the default group that has it, or `group_src` the one in the group.
        group, async_op: as of `all_reduce`.

    Raises:
        RuntimeError: for a rank that is not there; if a process has ended, or after the timeout.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.broadcast(adjit.ones(2), src=0)
        >>> dist.destroy_process_group()
    """
    _check_tensor(tensor, "tensor")
    found = find(group)
    if found is None:
        _outside("broadcast")
        return None
    root = _root(found, "broadcast", src, group_src)
    channel = found.channel(tensor.device)
    if found.rank() == root:
        return _given(channel.broadcast(memory.to_send(tensor), root, None), async_op)
    out, finish = memory.landing(tensor)
    return _given(channel.broadcast(out, root, finish), async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Give all processes the tensors of all of them.

    Args:
        tensor_list: a tensor for each process, of the shape and dtype of `tensor`: the results, in place.
        tensor: what this process gives.
        group, async_op: as of `all_reduce`.

    Raises:
        RuntimeError: for a list of another length, or other shapes; if a process has ended.
        ValueError: for other dtypes.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> found = [adjit.zeros(2)]
        >>> dist.all_gather(found, adjit.ones(2))
        >>> found
        [tensor([1., 1.])]
        >>> dist.destroy_process_group()
    """
    _check_list(tensor_list, "tensor_list")
    _check_tensor(tensor, "tensor")
    found = find(group)
    if found is None:
        _outside("all_gather")
        return None
    _check_same("allgather", tensor_list, tensor, found.size())
    out = memory.empty_like(tensor, (found.size() * tensor.numel(),))
    work = found.channel(tensor.device).all_gather(
        memory.to_send(tensor), out, lambda: memory.scatter_to(tensor_list, out)
    )
    return _given(work, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Give all processes the tensors of all of them, one behind the other in one tensor.

    Args:
        output_tensor: as many elements as all inputs: joined along the first axis, or stacked; the result.
        input_tensor: what this process gives.
        group, async_op: as of `all_reduce`.

    Raises:
        RuntimeError: for an output of another size or dtype; if a process has ended.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> out = adjit.zeros(2)
        >>> dist.all_gather_into_tensor(out, adjit.ones(2))
        >>> out
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    _check_tensor(input_tensor, "input_tensor")
    _check_tensor(output_tensor, "output_tensor")
    found = find(group)
    if found is None:
        _outside("all_gather_into_tensor")
        return None
    _check_parts("all_gather_into_tensor", output_tensor, input_tensor, found.size())
    out, finish = memory.landing(output_tensor)
    work = found.channel(input_tensor.device).all_gather(memory.to_send(input_tensor), out, finish)
    return _given(work, async_op)


all_gather_single = all_gather_into_tensor


def _check_parts(what: str, whole: Tensor, part: Tensor, count: int) -> None:
    if whole.dtype is not part.dtype:
        raise RuntimeError(
            f"{what}: the dtypes of input and output differ, {part.dtype} and {whole.dtype}"
        )
    if whole.device != part.device:
        raise RuntimeError(
            f"{what}: input and output are on different devices, {part.device} and {whole.device}"
        )
    if whole.numel() != part.numel() * count:
        raise RuntimeError(
            f"{what}: the larger tensor has {whole.numel()} elements, not {count} times the "
            f"{part.numel()} of the smaller one"
        )


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Give one process the tensors of all of them.

    Args:
        tensor: what this process gives.
        gather_list: on `dst`, a tensor for each process, of the shape and dtype of `tensor`: the results.
        dst: the rank in the default group that gets them (0), or `group_dst` the one in the group.
        group, async_op: as of `all_reduce`.

    Raises:
        ValueError: if `gather_list` is given elsewhere than on `dst`, or not there.
        RuntimeError: for lists of another length, or other shapes; if a process has ended.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> found = [adjit.zeros(2)]
        >>> dist.gather(adjit.ones(2), found)
        >>> found
        [tensor([1., 1.])]
        >>> dist.destroy_process_group()
    """
    _check_tensor(tensor, "tensor")
    found = find(group)
    if found is None:
        _outside("gather")
        return None
    root = _root(found, "gather", dst, group_dst, found.ranks[0] if group else 0)
    channel = found.channel(tensor.device)
    send = memory.to_send(tensor)
    if found.rank() != root:
        if gather_list:
            raise ValueError(
                "Argument ``gather_list`` must NOT be specified on non-destination ranks."
            )
        return _given(channel.gather(send, None, root, None), async_op)
    if not gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    _check_list(gather_list, "gather_list")
    _check_same("gather", gather_list, tensor, found.size())
    out = memory.empty_like(tensor, (found.size() * tensor.numel(),))
    results = gather_list
    work = channel.gather(send, out, root, lambda: memory.scatter_to(results, out))
    return _given(work, async_op)


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Give each process one of the tensors that one of them has.

    Args:
        tensor: the result, in place.
        scatter_list: on `src`, a tensor for each process, of the shape and dtype of `tensor`.
        src: the rank in the default group that has them (0), or `group_src` the one in the group.
        group, async_op: as of `all_reduce`.

    Raises:
        ValueError: if `scatter_list` is given elsewhere than on `src`, or not there.
        RuntimeError: for lists of another length, or other shapes; if a process has ended.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> x = adjit.zeros(2)
        >>> dist.scatter(x, [adjit.ones(2)])
        >>> x
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    _check_tensor(tensor, "tensor")
    found = find(group)
    if found is None:
        _outside("scatter")
        return None
    root = _root(found, "scatter", src, group_src, found.ranks[0] if group else 0)
    channel = found.channel(tensor.device)
    send = None
    if found.rank() == root:
        if not scatter_list:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
        _check_list(scatter_list, "scatter_list")
        _check_same("scatter", scatter_list, tensor, found.size())
        send = memory.flattened(scatter_list)
    elif scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    out, finish = memory.landing(tensor)
    return _given(channel.scatter(send, out, root, finish), async_op)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce a list of tensors over the processes, and give each process one of the results.

    Args:
        output: the result, in place.
        input_list: a tensor for each process, of the shape and dtype of `output`.
        op, group, async_op: as of `all_reduce`.

    Raises:
        RuntimeError: for lists of another length, or other shapes; as `all_reduce`.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> x = adjit.zeros(2)
        >>> dist.reduce_scatter(x, [adjit.ones(2)])
        >>> x
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    _check_tensor(output, "output")
    _check_list(input_list, "input_list")
    found = find(group)
    if found is None:
        _outside("reduce_scatter")
        return None
    _check_same("reduce_scatter", input_list, output, found.size())
    return _reduce_scatter(found, output, memory.flattened(input_list), op, async_op)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce a tensor over the processes, and give each process its part of the result.

    Args:
        output: the result, in place.
        input: as many elements as all outputs: joined along the first axis, or stacked.
        op, group, async_op: as of `all_reduce`.

    Raises:
        RuntimeError: for an input of another size or dtype; as `all_reduce`.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> x = adjit.zeros(2)
        >>> dist.reduce_scatter_tensor(x, adjit.ones(2))
        >>> x
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    _check_tensor(output, "output")
    _check_tensor(input, "input")
    found = find(group)
    if found is None:
        _outside("reduce_scatter_tensor")
        return None
    _check_parts("reduce_scatter_tensor", input, output, found.size())
    return _reduce_scatter(found, output, memory.to_send(input), op, async_op)


reduce_scatter_single = reduce_scatter_tensor


def _reduce_scatter(
    group: ProcessGroup, output: Tensor, send: Tensor, op: ReduceOp, async_op: bool
) -> Work | None:
    op = _check_op(op, output)
    out, finish = memory.landing(output)
    work = group.channel(output.device).reduce_scatter(
        send, out, op, _averaging(group, op, output, finish)
    )
    return _given(work, async_op)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Give each process one tensor of each process.

    Args:
        output_tensor_list: a tensor for each process that one comes from: the results, in place.
        input_tensor_list: a tensor for each process that it goes to; the shapes may differ.
        group, async_op: as of `all_reduce`.

    Raises:
        RuntimeError: for lists of another length; if a process has ended.
        ValueError: for other dtypes.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> found = [adjit.zeros(2)]
        >>> dist.all_to_all(found, [adjit.ones(2)])
        >>> found
        [tensor([1., 1.])]
        >>> dist.destroy_process_group()
    """
    _check_list(output_tensor_list, "output_tensor_list")
    _check_list(input_tensor_list, "input_tensor_list")
    found = find(group)
    if found is None:
        _outside("all_to_all")
        return None
    for tensors in (output_tensor_list, input_tensor_list):
        if len(tensors) != found.size():
            raise RuntimeError(
                f"ProcessGroup::alltoall: invalid tensor list (expected length {found.size()}, got "
                f"{len(tensors)})"
            )
    kinds = {t.dtype for t in (*output_tensor_list, *input_tensor_list)}
    if len(kinds) > 1:
        one, other = sorted(map(str, kinds))[:2]
        raise ValueError(f"Invalid usage of tensors with different dtypesFound {one} and  {other}")
    send = memory.flattened(input_tensor_list)
    out = memory.empty_like(send, (sum(t.numel() for t in output_tensor_list),))
    work = found.channel(send.device).all_to_all(
        send, out, [t.nbytes for t in input_tensor_list], [t.nbytes for t in output_tensor_list],
        lambda: memory.scatter_to(output_tensor_list, out),
    )  # fmt: skip
    return _given(work, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Cut a tensor along its first axis, and give each process one part of each process.

    Args:
        output: the parts that come, one behind the other, in place.
        input: the parts that go.
        output_split_sizes, input_split_sizes: how long the parts are; equal if they are not given.
        group, async_op: as of `all_reduce`.

    Raises:
        RuntimeError: for parts that do not fit; if a process has ended.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> x = adjit.zeros(2)
        >>> dist.all_to_all_single(x, adjit.ones(2))
        >>> x
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    _check_tensor(output, "output")
    _check_tensor(input, "input")
    found = find(group)
    if found is None:
        _outside("all_to_all_single")
        return None
    if output.dtype is not input.dtype:
        raise ValueError(
            f"Invalid usage of tensors with different dtypesFound {output.dtype} and  {input.dtype}"
        )
    sent = _part_bytes(input, input_split_sizes, found.size())
    received = _part_bytes(output, output_split_sizes, found.size())
    out, finish = memory.landing(output)
    work = found.channel(input.device).all_to_all(
        memory.to_send(input), out, sent, received, finish
    )
    return _given(work, async_op)


def _part_bytes(t: Tensor, sizes: list[int] | None, count: int) -> list[int]:
    """The bytes of each process's part."""
    length = t.shape[0] if t.ndim else 0
    if not sizes:
        if length % count:
            raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
        sizes = [length // count] * count
    if len(sizes) != count:
        raise RuntimeError("Number of tensor splits not equal to group size")
    if sum(sizes) != length:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
    row = t.nbytes // length if length else 0
    return [size * row for size in sizes]


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all processes are here.

    Args:
        group, async_op: as of `all_reduce`.
        device_ids: accepted, without effect.

    Raises:
        RuntimeError: if a process has ended, or after the timeout.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.barrier()
        >>> dist.destroy_process_group()
    """
    found = find(group)
    if found is None:
        _outside("barrier")
        return None
    return _given(_any_channel(found).barrier(), async_op)


def _any_channel(group: ProcessGroup) -> mpi.MpiChannel:
    """The channel for what is no tensor."""
    found: mpi.MpiChannel = group.channels.get("cpu") or group.channels["control"]
    return found


def monitored_barrier(
    group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Wait until all processes are here, and say which are not.

    Args:
        group: as of `all_reduce`.
        timeout: that of the group if it is not given.
        wait_all_ranks: whether to name all that are missing, not the first.

    Raises:
        RuntimeError: on rank 0 with the ranks that have not come; on the others if it has not answered.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.monitored_barrier()
        >>> dist.destroy_process_group()
    """
    found = find(group)
    if found is None:
        _outside("monitored_barrier")
        return
    channel, limit = _any_channel(found), found.timeout if timeout is None else timeout
    told = creation.zeros(1)
    if found.rank():
        channel.send(told, 0, mpi.BARRIER_TAG).wait(limit)
        answer = memory.empty_like(told)
        try:
            channel.receive(answer, 0, mpi.BARRIER_TAG, None).wait(limit)
        except RuntimeError as error:
            raise DistBackendError(
                f"Rank {found.rank()} successfully reached monitoredBarrier, but received errors while "
                f"waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank. {error}"
            ) from error
        return
    missing = []
    for rank in range(1, found.size()):
        try:
            channel.receive(memory.empty_like(told), rank, mpi.BARRIER_TAG, None).wait(limit)
        except RuntimeError:
            missing.append(found.ranks[rank])
            if not wait_all_ranks:
                break
    if missing:
        raise DistBackendError(
            f"Rank(s) {', '.join(map(str, missing))} failed to pass monitoredBarrier in "
            f"{limit.total_seconds() * 1000:.0f} ms"
        )
    for rank in range(1, found.size()):
        channel.send(told, rank, mpi.BARRIER_TAG).wait(limit)


# ----- from one process to another -----


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Send a tensor to another process, and return at once.

    Args:
        tensor: that must be left alone until the work is done.
        dst: the rank in the default group that it goes to, or `group_dst` the one in the group.
        group: as of `all_reduce`.
        tag: a number that the receive has to have too.

    Raises:
        ValueError: for this process itself.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.isend(adjit.ones(2), dst=0)
        Traceback (most recent call last):
            ...
        ValueError: Invalid destination rank: destination rank should not be the same as the rank of ...
        >>> dist.destroy_process_group()
    """
    _check_tensor(tensor, "tensor")
    found = find(group)
    if found is None:
        _outside("isend")
        return None
    to = _root(found, "send", dst, group_dst)
    if to == found.rank():
        raise ValueError(
            "Invalid destination rank: destination rank should not be the same as the rank of the "
            "current process."
        )
    work: Work = found.channel(tensor.device).send(memory.to_send(tensor), to, tag)
    return work


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send a tensor to another process, and wait until it may be written again.

    Raises:
        ValueError: for this process itself.
        RuntimeError: if the other process has ended, or after the timeout.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.send(adjit.ones(2), dst=0)
        Traceback (most recent call last):
            ...
        ValueError: Invalid destination rank: destination rank should not be the same as the rank of ...
        >>> dist.destroy_process_group()
    """
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Receive a tensor of another process, and return at once.

    Args:
        tensor: of the shape and dtype of what is sent: the result, in place.
        src: the rank in the default group that it comes from, or `group_src` the one in the group; any if
            neither is given.
        group, tag: as of `isend`.

    Raises:
        RuntimeError: for this process itself.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.irecv(adjit.ones(2), src=0)
        Traceback (most recent call last):
            ...
        RuntimeError: Pair is not connected: source rank should not be the same as the rank of the ...
        >>> dist.destroy_process_group()
    """
    _check_tensor(tensor, "tensor")
    found = find(group)
    if found is None:
        _outside("irecv")
        return None
    source = None
    if src is not None or group_src is not None:
        source = _root(found, "recv", src, group_src)
        if source == found.rank():
            raise RuntimeError(
                "Pair is not connected: source rank should not be the same as the rank of the current "
                "process."
            )
    out, finish = memory.landing(tensor)
    work: Work = found.channel(tensor.device).receive(out, source, tag, finish)
    return work


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive a tensor of another process, and say which it was; -1 outside of the group.

    Raises:
        RuntimeError: for this process itself.
        RuntimeError: if the other process has ended, or after the timeout.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.recv(adjit.ones(2), src=0)
        Traceback (most recent call last):
            ...
        RuntimeError: Pair is not connected: source rank should not be the same as the rank of the ...
        >>> dist.destroy_process_group()
    """
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    if src is not None:
        return src
    found = find(group)
    assert found is not None
    return found.ranks[group_src] if group_src is not None else work.source_rank()


class P2POp:
    """A send or a receive of `batch_isend_irecv`.

    Args:
        op: `isend` or `irecv`.
        tensor: that is sent, or received into.
        peer: the rank in the default group of the other process, or `group_peer` that in the group.
        group, tag: as of `isend`.

    Raises:
        ValueError: for another `op`.

    Example:
        >>> adjit.distributed.P2POp(adjit.distributed.isend, adjit.ones(2), 1).peer
        1
    """

    def __init__(
        self,
        op: Callable[..., Work | None],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                "``torch.distributed.irecv``."
            )
        _check_tensor(tensor, "tensor")
        self.op, self.tensor, self.group, self.tag = op, tensor, group, tag
        self.peer, self.group_peer = peer, group_peer


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Start sends and receives together, and give the work of each.

    Raises:
        ValueError: for a list of something else.

    Example:
        >>> adjit.distributed.batch_isend_irecv([])
        []
    """
    if not isinstance(p2p_op_list, list) or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError(
            "Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``."
        )
    if not p2p_op_list:
        return []
    group, on_gpu = find(p2p_op_list[0].group), p2p_op_list[0].tensor.device is not devices.CPU
    batch: Any = contextlib.nullcontext()
    if group is not None and on_gpu:  # else one after the other would wait on the stream for ever
        batch = group.channel(p2p_op_list[0].tensor.device).batch()
    with batch:
        works = [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]
    return [work for work in works if work is not None]
