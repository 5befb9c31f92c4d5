"""PyTorch's `torch.distributed.nn`: collectives that give new tensors, with gradients.

All are linear, and come in pairs: what broadcast spreads is reduced on the way back, what was gathered is
scattered. Every process of the group has to take part in both, in one order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.function import Function
from ..ops.creation import empty, empty_like, zeros_like
from ..tensor import Tensor
from . import collectives
from .group import get_rank, get_world_size
from .work import ReduceOp

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce",
    "reduce_scatter", "scatter",
]  # fmt: skip

_Step = Callable[..., Any]  # from tensors to a tensor or a tuple of them


class _Collective(Function):
    """One linear step and its adjoint, which is the other one's step."""

    @staticmethod
    def forward(ctx: Any, there: _Step, back: _Step, *tensors: Tensor) -> Any:
        ctx.steps = back, there
        return there(*tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        found = _Collective.apply(*ctx.steps, *gradients)
        return None, None, *(found if isinstance(found, tuple) else (found,))


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """Give all processes the tensor of one. Its gradient is the sum of theirs, and 0 elsewhere.

    Args:
        tensor: of one shape and dtype in all processes.
        src: the rank of the process whose elements count.
        group: of processes, the default one if it is not given.

    Example:
        >>> import adjit.distributed as dist
        >>> from adjit.distributed.nn import broadcast
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> x = adjit.ones(2, requires_grad=True)
        >>> broadcast(x, 0).sum().backward()
        >>> x.grad
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    there = functools.partial(_broadcast, src, group)
    return _Collective.apply(there, functools.partial(_reduce, src, group), tensor)


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Sum the tensors of all processes in one, 0 in the others; the gradient of the sum goes to all.

    Args:
        tensor, group: as of `broadcast`.
        dst: the rank of the process that gets the sum.
        op: `ReduceOp.SUM`.

    Raises:
        NotImplementedError: for another `op`, if the tensor needs a gradient.

    Example:
        >>> import adjit.distributed as dist
        >>> from adjit.distributed.nn import reduce
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> reduce(adjit.ones(2), 0)
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    there = functools.partial(_reduce, dst, group, op=op)
    return _Collective.apply(
        there, _adjoint("reduce", op, functools.partial(_broadcast, dst, group)), tensor
    )


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """Bring the tensors of all processes to one; the others get tensors of 0.

    Args:
        tensor, group: as of `broadcast`.
        dst: the rank of the process that gets them.

    Example:
        >>> import adjit.distributed as dist
        >>> from adjit.distributed.nn import gather
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> gather(adjit.ones(2))
        (tensor([1., 1.]),)
        >>> dist.destroy_process_group()
    """
    there = functools.partial(_gather, dst, group)
    return _Collective.apply(there, functools.partial(_scatter, dst, group), tensor)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """Give each process one of the tensors of one.

    Args:
        tensors: one for each process, of one shape and dtype; only those of `src` are looked at.
        src: the rank of the process whose tensors they are.
        group: as of `broadcast`.

    Example:
        >>> import adjit.distributed as dist
        >>> from adjit.distributed.nn import scatter
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> scatter([adjit.ones(2)])
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    there = functools.partial(_scatter, src, group)
    return _Collective.apply(there, functools.partial(_gather, src, group), *tensors)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """Give all processes the tensors of all; the gradient is the sum of all that theirs are.

    Args:
        tensor, group: as of `broadcast`.

    Example:
        >>> import adjit.distributed as dist
        >>> from adjit.distributed.nn import all_gather
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> adjit.cat(all_gather(adjit.ones(2)))
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    there = functools.partial(_all_gather, group)
    return _Collective.apply(there, functools.partial(_reduce_scatter, group), tensor)


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
) -> Tensor:
    """Sum what all processes have for each one.

    Args:
        output: of the shape and dtype of the result; its elements are not looked at.
        input_list: a tensor for each process, of that shape and dtype.
        op: `ReduceOp.SUM`.
        group: as of `broadcast`.

    Raises:
        NotImplementedError: for another `op`, if a tensor needs a gradient.

    Example:
        >>> import adjit.distributed as dist
        >>> from adjit.distributed.nn import reduce_scatter
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> reduce_scatter(adjit.empty(2), [adjit.ones(2)])
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    there = functools.partial(_reduce_scatter, group, op=op)
    back = _adjoint("reduce_scatter", op, functools.partial(_all_gather, group))
    return _Collective.apply(there, back, *input_list)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Sum the tensors of all processes, for all; the gradient is the sum of theirs.

    Args:
        tensor, group: as of `broadcast`.
        op: `ReduceOp.SUM`.

    Raises:
        NotImplementedError: for another `op`, if the tensor needs a gradient.

    Example:
        >>> import adjit.distributed as dist
        >>> from adjit.distributed.nn import all_reduce
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> all_reduce(adjit.ones(2))
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    there = functools.partial(_all_reduce, group, op=op)
    back = _adjoint("all_reduce", op, functools.partial(_all_reduce, group))
    return _Collective.apply(there, back, tensor)


def all_to_all(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: Any = None,
) -> tuple[Tensor, ...]:
    """Give each process a tensor of each one.

    Args:
        output_tensor_list: of the shapes and dtype of the results; their elements are not looked at.
        input_tensor_list: a tensor for each process.
        group: as of `broadcast`.

    Example:
        >>> import adjit.distributed as dist
        >>> from adjit.distributed.nn import all_to_all
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> all_to_all([adjit.empty(2)], [adjit.ones(2)])
        (tensor([1., 1.]),)
        >>> dist.destroy_process_group()
    """
    there, back = [t.shape for t in output_tensor_list], [t.shape for t in input_tensor_list]
    return _Collective.apply(
        functools.partial(_all_to_all, there, group),
        functools.partial(_all_to_all, back, group),
        *input_tensor_list,
    )


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
) -> Tensor:
    """Give each process a part of the rows of each one's tensor.

    Args:
        output: of the shape and dtype of the result; its elements are not looked at.
        input: the rows for all processes, one after the other.
        output_split_sizes: how many rows come from each process; as many from each if not given.
        input_split_sizes: how many go to each.
        group: as of `broadcast`.

    Example:
        >>> import adjit.distributed as dist
        >>> from adjit.distributed.nn import all_to_all_single
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> all_to_all_single(adjit.empty(2), adjit.ones(2))
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    sizes = output_split_sizes, input_split_sizes
    return _Collective.apply(
        functools.partial(_all_to_all_single, output.shape, sizes, group),
        functools.partial(_all_to_all_single, input.shape, sizes[::-1], group),
        input,
    )


# ----- the steps, which leave their tensors alone -----


def _adjoint(what: str, op: ReduceOp, step: _Step) -> _Step:
    """The way back of a sum; of other reductions nothing is known of which process an element came from."""
    if op == ReduceOp.SUM:
        return step

    def refused(*gradients: Tensor) -> Any:
        raise NotImplementedError(
            f"distributed.nn.{what}: gradients are those of sums, op was {op}; for a mean divide the sum by "
            "get_world_size(), and detach what needs no gradient"
        )

    return refused


def _broadcast(src: int, group: Any, tensor: Tensor) -> Tensor:
    made = tensor.clone()
    collectives.broadcast(made, src, group)
    return made


def _reduce(dst: int, group: Any, tensor: Tensor, op: ReduceOp = ReduceOp.SUM) -> Tensor:
    made = tensor.clone()
    collectives.reduce(made, dst, op, group)
    return made if get_rank() == dst else zeros_like(tensor)


def _gather(dst: int, group: Any, tensor: Tensor) -> tuple[Tensor, ...]:
    made = [zeros_like(tensor) for _ in range(get_world_size(group))]
    collectives.gather(tensor, made if get_rank() == dst else None, dst, group)
    return tuple(made)


def _scatter(src: int, group: Any, *tensors: Tensor) -> Tensor:
    made = empty_like(tensors[0])
    collectives.scatter(made, [*tensors] if get_rank() == src else None, src, group)
    return made


def _all_gather(group: Any, tensor: Tensor) -> tuple[Tensor, ...]:
    made = [empty_like(tensor) for _ in range(get_world_size(group))]
    collectives.all_gather(made, tensor, group)
    return tuple(made)


def _reduce_scatter(group: Any, *tensors: Tensor, op: ReduceOp = ReduceOp.SUM) -> Tensor:
    made = empty_like(tensors[0])
    collectives.reduce_scatter(made, [*tensors], op, group)
    return made


def _all_reduce(group: Any, tensor: Tensor, op: ReduceOp = ReduceOp.SUM) -> Tensor:
    made = tensor.clone()
    collectives.all_reduce(made, op, group)
    return made


def _all_to_all(shapes: Sequence[Any], group: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
    made = [empty(shape, dtype=tensors[0].dtype, device=tensors[0].device) for shape in shapes]
    collectives.all_to_all(made, [*tensors], group)
    return tuple(made)


def _all_to_all_single(
    shape: Any, sizes: tuple[list[int] | None, list[int] | None], group: Any, tensor: Tensor
) -> Tensor:
    made = empty(shape, dtype=tensor.dtype, device=tensor.device)
    collectives.all_to_all_single(made, tensor, *sizes, group)
    return made
