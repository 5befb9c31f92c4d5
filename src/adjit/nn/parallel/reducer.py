"""Gradients averaged over processes while backward runs: parameters are put into buckets, and a bucket whose
gradients are all there is reduced meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ... import dtypes
from ...autograd.modes import no_grad
from ...distributed import memory
from ...distributed.group import ProcessGroup
from ...distributed.work import ReduceOp, Work
from ...graph.node import GradNode
from ...ops import creation, joining
from ...tensor import Tensor
from ..parameter import Parameter

FIRST_BUCKET = 1 << 20  # bytes: the first is small, so that something is under way early

NOT_FINISHED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error "
    "indicates that your module has parameters that were not used in producing loss. You can enable "
    "unused parameter detection by passing the keyword argument `find_unused_parameters=True` to "
    "`torch.nn.parallel.DistributedDataParallel`, and by \nmaking sure all `forward` function outputs "
    "participate in calculating loss. \nIf you already have done the above, then the distributed data "
    "parallel module wasn't able to locate the output tensors in the return value of your module's "
    "`forward` function. Please include the loss function and the structure of the return value of "
    "`forward` of your module when reporting this issue (e.g. list, dict, iterable).\nParameter indices "
    "which did not receive grad for rank {rank}: {missing}"
)


def buckets_of(parameters: Sequence[Parameter], limit: int) -> list[list[int]]:
    """The parameters by their numbers, those that come last first, in buckets of about so many bytes.

    A bucket has one dtype and one device.
    """
    made: list[list[int]] = []
    filling: dict[Any, tuple[list[int], int]] = {}
    for k in reversed(range(len(parameters))):
        p = parameters[k]
        kind = p.dtype, p.device
        bucket, size = filling.get(kind, ([], 0))
        if not bucket:
            made.append(bucket)
        bucket.append(k)
        size += p.nbytes
        is_full = size >= (FIRST_BUCKET if made[0] is bucket else limit)
        filling[kind] = ([], 0) if is_full else (bucket, size)
    return made


class Reducer:
    """The buckets of a module's parameters, and what of them is under way."""

    def __init__(
        self, parameters: Sequence[Parameter], group: ProcessGroup, limit: int, find_unused: bool
    ) -> None:
        self.parameters, self.group, self.find_unused = list(parameters), group, find_unused
        self.buckets = buckets_of(self.parameters, limit)
        self.bucket_of = {k: b for b, bucket in enumerate(self.buckets) for k in bucket}
        self.channels = [
            group.own_channel(self.parameters[bucket[0]].device) for bucket in self.buckets
        ]
        self.waiting: list[set[int]] = []  # for each bucket, whose gradients are still to come
        self.works: list[tuple[Work, Tensor]] = []  # of the buckets that are under way
        self.used: tuple[Work, Tensor] | None = None  # by how many processes each parameter is used
        self.divisor = group.size()  # of the sums
        self.is_expecting = False
        for k, p in enumerate(self.parameters):
            p.register_post_accumulate_grad_hook(self._hook(k))

    def _hook(self, k: int) -> Callable[[Tensor], None]:
        """What a parameter calls once it has its gradient."""
        return lambda _: self.mark(k)

    def check_finished(self) -> None:
        """Raise PyTorch's error if the last backward left gradients out."""
        if self.is_expecting and self.works_are_open():
            missing = sorted(k for bucket in self.waiting for k in bucket)
            raise RuntimeError(
                NOT_FINISHED.format(rank=self.group.rank(), missing=" ".join(map(str, missing)))
            )

    def works_are_open(self) -> bool:
        """Whether a backward has begun that has not come to its end."""
        return any(len(w) < len(b) for w, b in zip(self.waiting, self._expected, strict=True))

    def expect(self, outputs: Iterable[Tensor]) -> None:
        """Prepare for a backward from the outputs of a forward."""
        used = set(range(len(self.parameters)))
        if self.find_unused:
            used = self._used_by(outputs)
        self._expected = [used.intersection(bucket) for bucket in self.buckets]
        self.waiting = [set(bucket) for bucket in self._expected]
        self.works, self.used = [], None
        self._used_here = used
        self.is_expecting = bool(used) or self.find_unused

    def _used_by(self, outputs: Iterable[Tensor]) -> set[int]:
        """The parameters that a backward from the outputs reaches."""
        nodes = {id(p._accumulator()): k for k, p in enumerate(self.parameters)}
        held = [p._accumulator() for p in self.parameters]  # so that the numbers stay theirs
        found: set[int] = set()
        ready = [
            t._accumulator() if t.grad_fn is None else t.grad_fn for t in outputs if t.requires_grad
        ]
        seen: set[GradNode] = set()
        while ready:
            node = ready.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if id(node) in nodes:
                found.add(nodes[id(node)])
            ready += [other for other, _ in node.next_functions]
        del held
        return found

    def mark(self, k: int) -> None:
        """A parameter has its gradient: start what is complete, and end with the last one."""
        if not self.is_expecting:
            return
        self.waiting[self.bucket_of[k]].discard(k)
        for work, _ in self.works:
            work.is_completed()  # moves it on
        while len(self.works) < len(self.buckets) and not self.waiting[len(self.works)]:
            self._start(len(self.works))
        if len(self.works) == len(self.buckets):
            self._finish()

    def _start(self, b: int) -> None:
        """Sum the gradients of a bucket over the processes."""
        if self.find_unused and self.used is None:
            counts = creation.tensor(
                [int(k in self._used_here) for k in range(len(self.parameters))]
            )
            self.used = self._sum(self.group.own_channel(counts.device), counts)
        with no_grad():
            parts = [self._gradient(k).reshape(-1) for k in self.buckets[b]]
            flat = parts[0] if len(parts) == 1 else joining.cat(parts)
        self.works.append(self._sum(self.channels[b], flat))

    def shadow(self) -> None:
        """Take part in the sums of a backward of other processes."""
        works = []
        if self.find_unused:
            counts = creation.zeros(len(self.parameters), dtype=dtypes.int64)
            works.append(self._sum(self.group.own_channel(counts.device), counts))
        for channel, bucket in zip(self.channels, self.buckets, strict=True):
            parts = [self.parameters[k] for k in bucket]
            count = sum([p.numel() for p in parts])
            nothing = creation.zeros(count, dtype=parts[0].dtype, device=parts[0].device)
            works.append(self._sum(channel, nothing))
        for work, _ in works:
            work.wait()

    def _sum(self, channel: Any, t: Tensor) -> tuple[Work, Tensor]:
        out = memory.empty_like(t)
        return channel.all_reduce(memory.to_send(t), out, ReduceOp.SUM, None), out

    def _gradient(self, k: int) -> Tensor:
        p = self.parameters[k]
        return creation.zeros_like(p) if p.grad is None else p.grad.detach()

    def _finish(self) -> None:
        """Wait, and give the parameters the means."""
        self.is_expecting = False
        used = None
        if self.used is not None:
            self.used[0].wait()
            used = self.used[1].tolist()
        with no_grad():
            for bucket, (work, total) in zip(self.buckets, self.works, strict=True):
                work.wait()
                mean, at = total / self.divisor, 0
                for k in bucket:
                    p = self.parameters[k]
                    part = mean[at : at + p.numel()].view(p.shape)
                    at += p.numel()
                    if used is not None and not used[k]:
                        continue  # nobody has used it: what was there stays
                    if p.grad is None:
                        p.grad = part.clone()
                    else:
                        p.grad.detach().copy_(part)
        self.works, self.used = [], None
