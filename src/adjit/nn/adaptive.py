"""Softmax over many classes of which few are frequent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ..dtypes import dtype as DType
from ..ops import joining
from ..tensor import Tensor
from . import functional as F
from .container import ModuleList, Sequential
from .layers import Linear
from .module import Module


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of targets, where rare classes are clusters behind the frequent ones, and their loss.

    Grave et al., *Efficient softmax approximation for GPUs*, arXiv:1609.04309. Input (N, in_features)
    and target (N), or one of each; gives the log-probabilities (N) as `output` and their negative mean
    as `loss`. Targets are looked at, since each cluster is only computed for its own.

    Args:
        in_features: the size of an input.
        n_classes: the number of classes, frequent ones first.
        cutoffs: where clusters begin: the classes before the first one are in the head.
        div_value: by what the inner size of each cluster is smaller than that of the one before.
        head_bias: whether the head has a bias.
        device: where the weights are.
        dtype: their floating dtype.

    Raises:
        ValueError: cutoffs that are not increasing numbers between 1 and `n_classes - 1`.

    Example:
        >>> layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10], div_value=2.0)
        >>> output, loss = layer(adjit.rand(3, 8), adjit.tensor([1, 7, 19]))
        >>> output.shape, loss.shape
        (adjit.Size([3]), adjit.Size([]))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        bounds = list(cutoffs)
        if not bounds:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            bounds != sorted(set(bounds))
            or bounds[0] <= 0
            or bounds[-1] > n_classes - 1
            or any(int(bound) != bound for bound in bounds)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*bounds, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(bounds)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for k, (first, last) in enumerate(pairwise(self.cutoffs), 1):
            inner = int(in_features // div_value**k)
            self.tail.append(
                Sequential(
                    Linear(in_features, inner, bias=False, device=device, dtype=dtype),
                    Linear(inner, last - first, bias=False, device=device, dtype=dtype),
                )
            )

    def reset_parameters(self) -> None:
        """Draw all weights anew.

        Example:
            >>> nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5]).reset_parameters()
        """
        self.head.reset_parameters()
        cluster: Any
        for cluster in self.tail:
            cluster[0].reset_parameters()
            cluster[1].reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        if target_.ndim == 1:
            if input_.shape[0] != target_.shape[0]:
                raise RuntimeError(
                    "Input and target should have the same size in the batch dimension."
                )
            if input_.ndim != 2:
                raise RuntimeError(
                    "1D target tensor expects 2D input tensors, but found inputs with size "
                    f"{input_.size()}"
                )
        elif target_.ndim == 0:
            if input_.ndim != 1:
                raise RuntimeError(
                    "0D target tensor expects 1D input tensors, but found inputs with size "
                    f"{input_.size()}"
                )
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        input = input_ if target_.ndim else input_.unsqueeze(0)
        target = target_ if target_.ndim else target_.unsqueeze(0)
        if bool(((target < 0) | (target >= self.n_classes)).any()):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        output = input.new_zeros(target.shape)
        places = target
        for k, (first, last) in enumerate(pairwise(self.cutoffs)):
            rows = ((target >= first) & (target < last)).nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            inside = F.log_softmax(self.tail[k](input.index_select(0, rows)), dim=1)
            chosen = target.index_select(0, rows) - first
            output = output.index_copy(0, rows, inside.gather(1, chosen.unsqueeze(1)).squeeze(1))
            places = places.index_fill(0, rows, self.shortlist_size + k)
        head = F.log_softmax(self.head(input), dim=1)
        output = output + head.gather(1, places.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if target_.ndim else output.squeeze(0), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Compute the log-probabilities of all classes: (N, in_features) to (N, n_classes).

        Example:
            >>> layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10])
            >>> adjit.allclose(layer.log_prob(adjit.rand(3, 8)).exp().sum(1), adjit.ones(3))
            True
        """
        return self._log_prob(input, F.log_softmax(self.head(input), dim=1))

    def _log_prob(self, input: Tensor, head: Tensor) -> Tensor:
        parts = [head[:, : self.shortlist_size]]
        for k, cluster in enumerate(self.tail):
            inside = F.log_softmax(cluster(input), dim=1)
            parts.append(inside + head[:, self.shortlist_size + k].unsqueeze(1))
        return joining.cat(parts, dim=1)

    def predict(self, input: Tensor) -> Tensor:
        """Give the most probable class of each input: as `log_prob(input).argmax(1)`, but quicker.

        Clusters are computed only for inputs whose best entry of the head is one.

        Example:
            >>> layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10])
            >>> layer.predict(adjit.rand(3, 8)).shape
            adjit.Size([3])
        """
        scores = self.head(input)
        output = scores.argmax(1)
        rows = (output >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel() == 0:
            return output
        head = F.log_softmax(scores.index_select(0, rows), dim=1)
        best = self._log_prob(input.index_select(0, rows), head).argmax(1)
        return output.index_copy(0, rows, best)
