"""An optimiser whose state is spread over the processes: `ZeroRedundancyOptimizer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NoReturn

from ..absent import absent as _absent
from ..autograd.modes import no_grad
from ..devices import device
from ..optim.optimizer import Optimizer, ParamsT, StateDict
from ..tensor import Tensor
from . import collectives, memory, objects
from .algorithms import Join, Joinable, JoinHook
from .group import ProcessGroup, default_group

__all__ = ["ZeroRedundancyOptimizer"]

Groups = list[dict[str, Any]]


class _Steps(JoinHook):
    """Steps an optimiser whose process has no batches left: the others need what is its share."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self.optimizer = optimizer

    def main_hook(self) -> None:
        self.optimizer.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Runs an optimiser on this process's share of the parameters, and takes the others over from theirs.

    Each process keeps the state of about one of so many parts of the elements. Every parameter belongs to
    one process: those of a group, the largest first, go to the process that has the fewest elements so far.
    All processes need the same gradients, as `DistributedDataParallel` gives them; their parameters then are,
    bit for bit, what the optimiser alone would give.

    Rajbhandari et al., *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*,
    arXiv:1910.02054.

    Args:
        params: tensors of one dtype and device, or parameter groups.
        optimizer_class: the optimiser, one that treats each parameter on its own.
        process_group: whose processes take part; all if it is not given.
        parameters_as_bucket_view: accepted, without effect: parameters of one owner are always sent together.
        overlap_with_ddp: must be False.
        **defaults: the options of `optimizer_class`.

    Raises:
        TypeError: if `params` are neither tensors nor groups.
        ValueError: if there are none, or of several kinds; before `init_process_group`.
        NotImplementedError: `overlap_with_ddp=True`.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = dist.optim.ZeroRedundancyOptimizer([w], adjit.optim.SGD, lr=0.1)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8000, 1.6000], requires_grad=True)
        >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        params: ParamsT,
        optimizer_class: type[Optimizer],
        process_group: ProcessGroup | None = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp needs communication hooks, which are not "
                "supported: leave it out, and step after backward"
            )
        given = _checked(params)
        self.process_group = default_group() if process_group is None else process_group
        self.world_size, self.rank = self.process_group.size(), self.process_group.rank()
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._sizes = [0] * self.world_size  # elements of each process
        self._shares: list[Groups] = [[] for _ in range(self.world_size)]  # groups of each process
        self._all_states: list[StateDict] = []  # of each process, where they were collected
        super().__init__(given, defaults)
        # A group may be empty here: it is this process's share of one that is not.
        self.optim = optimizer_class(self._shares[self.rank], **defaults)
        _copy_options(self.optim.param_groups, self.param_groups)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own, in all processes.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> v, w = (adjit.ones(2, requires_grad=True) for _ in range(2))
            >>> optimizer = dist.optim.ZeroRedundancyOptimizer([v], adjit.optim.SGD, lr=0.1)
            >>> optimizer.add_param_group({"params": [w], "lr": 1.0})
            >>> [group["lr"] for group in optimizer.param_groups]
            [0.1, 1.0]
            >>> dist.destroy_process_group()
        """
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        shares: list[list[Tensor]] = [[] for _ in range(self.world_size)]
        for p in sorted(group["params"], key=Tensor.numel, reverse=True):
            owner = self._sizes.index(min(self._sizes))
            shares[owner].append(p)
            self._sizes[owner] += p.numel()
        for share, owned in zip(shares, self._shares, strict=True):
            owned.append({**group, "params": share})
        if "optim" in self.__dict__:
            self.optim.add_param_group(self._shares[self.rank][-1])
            _copy_options(self.optim.param_groups[-1:], self.param_groups[-1:])

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Move this process's parameters, and take over those of the others.

        Args:
            closure: evaluates the model again and returns the loss, which is then what `step` returns.
            **kwargs: what the optimiser's own `step` is given besides.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = dist.optim.ZeroRedundancyOptimizer([w], adjit.optim.SGD, lr=0.1)
            >>> w.square().sum().backward()
            >>> optimizer.step()
            >>> dist.destroy_process_group()
        """
        Join.notify_join_context(self)
        _copy_options(self.param_groups, self.optim.param_groups)
        given = kwargs if closure is None else {"closure": closure, **kwargs}
        loss = self.optim.step(**given)
        _copy_options(self.optim.param_groups, self.param_groups)
        self._take_over()
        return loss

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Make what this process does once it has no batches left, for `Join`: it steps with the others.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = dist.optim.ZeroRedundancyOptimizer([w], adjit.optim.SGD, lr=0.1)
            >>> isinstance(optimizer.join_hook(), dist.algorithms.JoinHook)
            True
            >>> dist.destroy_process_group()
        """
        return _Steps(self)

    @property
    def join_device(self) -> device:
        """The device of the parameters.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> dist.optim.ZeroRedundancyOptimizer([w], adjit.optim.SGD, lr=0.1).join_device
            device(type='cpu')
            >>> dist.destroy_process_group()
        """
        place: device = self.param_groups[0]["params"][0].device
        return place

    @property
    def join_process_group(self) -> ProcessGroup:
        """The processes that take part.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = dist.optim.ZeroRedundancyOptimizer([w], adjit.optim.SGD, lr=0.1)
            >>> optimizer.join_process_group.size()
            1
            >>> dist.destroy_process_group()
        """
        return self.process_group

    def _take_over(self) -> None:
        """Have all processes take over each one's parameters."""
        under_way = []
        for owner, groups in enumerate(self._shares):
            owned = [p.detach() for group in groups for p in group["params"]]
            if owned:
                if owner == self.rank:
                    flat = memory.flattened(owned)
                else:
                    flat = memory.empty_like(owned[0], (sum(map(Tensor.numel, owned)),))
                work = collectives.broadcast(
                    flat, group=self.process_group, group_src=owner, async_op=True
                )
                under_way.append((owner, owned, flat, work))
        with no_grad():
            for owner, owned, flat, work in under_way:
                if work is not None:
                    work.wait()
                if owner != self.rank:
                    memory.scatter_to(owned, flat)

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collect the state of all processes in one of them, for `state_dict`; all have to call it.

        Args:
            to: the rank in the group that gets it.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = dist.optim.ZeroRedundancyOptimizer([w], adjit.optim.SGD, lr=0.1)
            >>> optimizer.consolidate_state_dict()
            >>> optimizer.state_dict()["param_groups"][0]["lr"]
            0.1
            >>> dist.destroy_process_group()
        """
        _copy_options(self.param_groups, self.optim.param_groups)
        found: list[Any] | None = [None] * self.world_size if self.rank == to else None
        objects.gather_object(
            self.optim.state_dict(), found, group=self.process_group, group_dst=to
        )
        self._all_states = found or []

    def state_dict(self) -> StateDict:
        """The state of all parameters, as the optimiser alone would give it, as it was when last collected.

        Raises:
            RuntimeError: if it was not collected in this process.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> dist.optim.ZeroRedundancyOptimizer([w], adjit.optim.SGD, lr=0.1).state_dict()
            Traceback (most recent call last):
                ...
            RuntimeError: Optimizer state has not been consolidated on this rank. Please call ...
            >>> dist.destroy_process_group()
        """
        if not self._all_states:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to save the "
                "global state."
            )
        saved = super().state_dict()
        number = {p: k for k, p in enumerate(self._params_of_groups())}
        state = saved["state"]
        for share, theirs in zip(self._shares, self._all_states, strict=True):
            for ours, group in zip(share, theirs["param_groups"], strict=True):
                for p, k in zip(ours["params"], group["params"], strict=True):
                    if k in theirs["state"]:
                        state[number[p]] = theirs["state"][k]
        saved["state"] = dict(sorted(state.items()))
        return saved

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over options, and this process's share of the state, from what `state_dict` gave.

        Raises:
            ValueError: the groups differ in number or size.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = dist.optim.ZeroRedundancyOptimizer([w], adjit.optim.SGD, lr=0.1)
            >>> optimizer.consolidate_state_dict()
            >>> optimizer.load_state_dict(optimizer.state_dict())
            >>> dist.destroy_process_group()
        """
        super().load_state_dict({**state_dict, "state": {}})
        number = {p: k for k, p in enumerate(self._params_of_groups())}
        mine = self._shares[self.rank]
        own = {p: k for k, p in enumerate(chain.from_iterable(g["params"] for g in mine))}
        self.optim.load_state_dict(
            {
                "state": {
                    k: state_dict["state"][number[p]]
                    for p, k in own.items()
                    if number[p] in state_dict["state"]
                },
                "param_groups": [
                    {**saved, "params": [own[p] for p in share["params"]]}
                    for saved, share in zip(state_dict["param_groups"], mine, strict=True)
                ],
            }
        )


def _checked(params: Any) -> list[Any]:
    """The parameters or groups as a list, with PyTorch's errors for what cannot be shared out."""
    if isinstance(params, Tensor):
        raise TypeError(
            f"`params` argument should be an iterable of Tensors, but got {params.type()}"
        )
    try:
        given = list(params)
    except TypeError as error:
        raise TypeError(
            "`params` argument should be an iterable of Tensors or dicts, but got "
            f"{type(params).__name__}"
        ) from error
    if not given:
        raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
    if all(isinstance(p, Tensor) for p in given):
        tensors = given
    elif all(isinstance(group, dict) for group in given):
        if not all("params" in group for group in given):
            raise ValueError(
                "Each parameter group passed-in via `params` must have a 'params' key mapping to the "
                "parameters in the group"
            )
        tensors = [p for group in given for p in group["params"]]
    else:
        raise TypeError("`params` argument should be an iterable of Tensors or dicts")
    kinds = list(dict.fromkeys(str(p.type()) for p in tensors))
    if len(kinds) > 1:
        raise ValueError(
            "ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got "
            f"both {kinds[0]} and {kinds[1]}"
        )
    return given


def _copy_options(source: Sequence[dict[str, Any]], target: Sequence[dict[str, Any]]) -> None:
    """Give groups the options of others, which have other parameters."""
    for ours, theirs in zip(source, target, strict=True):
        theirs.update({name: value for name, value in ours.items() if name != "params"})


def __getattr__(name: str) -> NoReturn:
    raise _absent("distributed.optim", name)
