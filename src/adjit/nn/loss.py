"""Losses as modules. All take `reduction`: `"mean"`, `"sum"` or `"none"`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..tensor import Tensor
from . import functional as F
from .layers import Linear, PairwiseDistance
from .module import Module
from .reduction import chosen_reduction


class _Loss(Module):
    reduction: str

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.reduction = chosen_reduction(size_average, reduce, reduction)


class _WeightedLoss(_Loss):
    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """|input - target|.

    Args:
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> nn.L1Loss()(adjit.tensor([1.0, 2.0]), adjit.tensor([0.0, 0.0]))
        tensor(1.5000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """(input - target)².

    Args:
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> nn.MSELoss()(adjit.tensor([1.0, 2.0]), adjit.tensor([0.0, 0.0]))
        tensor(2.5000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """The L1 loss, rounded off by a parabola where it is below `beta` (Girshick, 2015).

    Input and target of one shape (*).

    Args:
        beta: the error where the parabola ends.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> nn.SmoothL1Loss()(adjit.tensor([0.5, 3.0]), adjit.zeros(2))
        tensor(1.3125)
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Half the squared error up to `delta`, a straight line beyond it.

    Input and target of one shape (*).

    Args:
        delta: the error where the parabola ends.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        TypeError: `delta` is no number.

    Example:
        >>> nn.HuberLoss(delta=2.0)(adjit.tensor([0.5, 3.0]), adjit.zeros(2))
        tensor(2.0625)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        if not isinstance(delta, (float, int)):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class CrossEntropyLoss(_WeightedLoss):
    """-log softmax(input) at the target, along dimension 1.

    The input is (C), (N, C) or (N, C, *); the target holds class indices, () or (N) or (N, *), or
    probabilities in the shape of the input.

    Args:
        weight: a factor for every class, (C,).
        size_average: the old form of `reduction`.
        ignore_index: a target index that counts for nothing.
        reduce: the old form of `reduction`.
        reduction: `"mean"` (over the weights of the targets), `"sum"` or `"none"`.
        label_smoothing: the share of the target that is spread over all classes.

    Example:
        >>> nn.CrossEntropyLoss()(adjit.zeros(3, 5), adjit.tensor([1, 0, 4]))
        tensor(1.6094)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class LinearCrossEntropyLoss(_WeightedLoss):
    """`CrossEntropyLoss` of what a linear layer of its own, `linear`, gives for the input.

    The input is (in_features) or (N, in_features).

    Args:
        in_features: the size of the input.
        num_classes: how many classes.
        out_features: further axes of the scores, behind those of the classes.
        bias: whether the layer has one.
        device: where its parameters are.
        dtype: their dtype.
        reduction: `"mean"` (over the weights of the targets), `"sum"` or `"none"`.
        weight: a factor for every class, (num_classes,).
        ignore_index: a target index that counts for nothing; -100 if it is left out.
        label_smoothing: the share of the target that is spread over all classes.
        options: None; PyTorch's way in chunks is not there.

    Raises:
        RuntimeError: if `weight` is of another shape, or `label_smoothing` not between 0 and 1.

    Example:
        >>> loss = nn.LinearCrossEntropyLoss(2, 5)
        >>> loss(adjit.zeros(3, 2), adjit.tensor([1, 0, 4]))
        tensor(1.6094, grad_fn=<NllLossBackward0>)
    """

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (),
        bias: bool = False, device: Any = None, dtype: Any = None, reduction: str = "mean",
        weight: Tensor | None = None, ignore_index: int | None = None,
        label_smoothing: float = 0.0, options: None = None,
    ) -> None:  # fmt: skip
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        super().__init__(weight, reduction=reduction)
        self.num_classes, self.out_features = num_classes, out_features
        self.ignore_index, self.label_smoothing, self.options = (
            ignore_index,
            label_smoothing,
            options,
        )
        self.linear = Linear(
            in_features, math.prod(out_features, start=num_classes), bias, device, dtype
        )

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        scores = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input, self.linear.weight.reshape(*scores, -1), target,
            linear_bias=None if bias is None else bias.reshape(scores), weight=self.weight,
            reduction=self.reduction, ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing, options=self.options,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )


class NLLLoss(_WeightedLoss):
    """Take the negative of the input, log-probabilities (C), (N, C) or (N, C, *), at the target's class.

    The arguments are those of `CrossEntropyLoss`.

    Example:
        >>> nn.NLLLoss()(adjit.tensor([[-0.5, -1.0], [-2.0, -0.1]]), adjit.tensor([0, 1]))
        tensor(0.3000)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class BCELoss(_WeightedLoss):
    """-(target log(input) + (1 - target) log(1 - input)), logarithms being at least -100.

    Input and target of one shape (*); a 0-d result unless `reduction` is "none".

    Args:
        weight: a factor for every element, broadcast.
        size_average: the old form of `reduction`.
        reduce: the old form of `reduction`.
        reduction: how the elements are put together.

    Example:
        >>> nn.BCELoss()(adjit.tensor([0.9, 0.2]), adjit.tensor([1.0, 0.0]))
        tensor(0.1643)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """The binary cross entropy of sigmoid(input), without overflow.

    Input and target of one shape (*).

    Args:
        weight: a factor for every element, broadcast.
        size_average: the old form of `reduction`.
        reduce: the old form of `reduction`.
        reduction: how the elements are put together.
        pos_weight: a factor for the positive share of every class, broadcast.

    Example:
        >>> nn.BCEWithLogitsLoss()(adjit.tensor([0.0, 3.0]), adjit.tensor([1.0, 1.0]))
        tensor(0.3709)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class KLDivLoss(_Loss):
    """target * (log(target) - input), the input being log-probabilities.

    Input and target of one shape (*).

    Args:
        size_average: the old form of `reduction`.
        reduce: the old form of `reduction`.
        reduction: also `"batchmean"`, which is the Kullback-Leibler divergence of a batch.
        log_target: whether the target holds log-probabilities.

    Example:
        >>> nn.KLDivLoss(reduction="batchmean")(adjit.tensor([[0.5, 0.5]]).log(), adjit.tensor([[0.9, 0.1]]))
        tensor(0.3681)
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """exp(input) - target * input, or input - target * log(input + eps) without `log_input`.

    `full` adds Stirling's approximation of log(target!).

    Input and target of one shape (*).

    Args:
        log_input: whether the input holds logarithms of rates.
        full: add Stirling's approximation of log(target!).
        eps: keeps the logarithm of a rate of 0 finite.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> nn.PoissonNLLLoss()(adjit.tensor([0.0, 1.0]), adjit.tensor([1.0, 2.0]))
        tensor(0.8591)
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class GaussianNLLLoss(_Loss):
    """(log(var) + (input - target)² / var) / 2, the variance being at least `eps`.

    `full` adds the constant log(2 π) / 2.

    Input (*), the means; the target broadcasts with it; variances of the same shape.

    Args:
        full: add the constant log(2 π) / 2.
        eps: the least variance.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> nn.GaussianNLLLoss()(adjit.tensor([0.0, 1.0]), adjit.tensor([1.0, 1.0]), adjit.tensor([1.0, 4.0]))
        tensor(0.5966)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class HingeEmbeddingLoss(_Loss):
    """The input where the target is 1, max(0, margin - input) where it is -1.

    Input and target of one shape (*).

    Args:
        margin: the distance up to which pairs that do not belong together cost.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> nn.HingeEmbeddingLoss()(adjit.tensor([0.3, 0.4]), adjit.tensor([1, -1]))
        tensor(0.4500)
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input)), the target being 1 or -1.

    Input and target of one shape (*).

    Args:
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> nn.SoftMarginLoss()(adjit.tensor([1.0, -2.0]), adjit.tensor([1.0, 1.0]))
        tensor(1.2201)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The logistic loss of every class, averaged over the last dimension.

    Input and target (N, C) or (C).

    Args:
        weight: a factor for every class, (C).
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> nn.MultiLabelSoftMarginLoss()(adjit.tensor([[0.0, 2.0]]), adjit.tensor([[0.0, 1.0]]))
        tensor(0.4100)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(
            input, target, weight=self.weight, reduction=self.reduction
        )


class MultiMarginLoss(_WeightedLoss):
    """max(0, margin - x[y] + x)^p of all classes but the target y, over the number of classes.

    Input (N, C) or (C), target (N) or one class, int64.

    Args:
        p: 1 or 2.
        margin: how much higher the score of the class has to be.
        weight: a factor for every class, (C).
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: another `p`, a weight of other dimensions.

    Example:
        >>> nn.MultiMarginLoss()(adjit.tensor([[0.5, 0.2, 2.0]]), adjit.tensor([0]))
        tensor(1.0667)
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.ndim != 1:
            raise ValueError(
                "MultiMarginLoss: expected weight to be None or 1D tensor, got "
                f"{weight.ndim}D instead"
            )
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(
            input, target, self.p, self.margin, self.weight, reduction=self.reduction
        )


class MultiLabelMarginLoss(_Loss):
    """max(0, 1 - (x[i] - x[j])) of all target classes i and other classes j, over the number of classes.

    Input and target (N, C) or (C); what follows the first -1 of a row of targets does not count.

    Args:
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> scores = adjit.tensor([[0.1, 0.2, 0.4, 0.8]])
        >>> nn.MultiLabelMarginLoss()(scores, adjit.tensor([[3, 0, -1, 1]]))
        tensor(0.8500)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class CTCLoss(_Loss):
    """Minus the log-probability of label sequences whose alignment in time is not known.

    Log-probabilities (T, N, C) or (T, C), targets (N, S) or all one after the other, lengths of both.

    Args:
        blank: the class of no label.
        reduction: `"mean"` (of losses over target lengths), `"sum"` or `"none"`.
        zero_infinity: whether the loss of a target that is too long is zero, and its gradient.

    Example:
        >>> log_probs = adjit.full((3, 1, 2), 0.5).log()
        >>> nn.CTCLoss()(log_probs, adjit.tensor([[1]]), [3], [1])
        tensor(0.2877)
    """

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self,
        log_probs: Tensor,
        targets: Tensor,
        input_lengths: Tensor | Sequence[int],
        target_lengths: Tensor | Sequence[int],
    ) -> Tensor:
        return F.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )


class CosineEmbeddingLoss(_Loss):
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1.

    Inputs (N, D) or (D), target (N) or ().

    Args:
        margin: the cosine above which pairs that do not belong together cost.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> x, y = adjit.tensor([[1.0, 0.0], [1.0, 0.0]]), adjit.tensor([[0.0, 1.0], [1.0, 1.0]])
        >>> nn.CosineEmbeddingLoss(reduction="none")(x, y, adjit.tensor([1, -1]))
        tensor([1.0000, 0.7071])
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class MarginRankingLoss(_Loss):
    """max(0, -target * (input1 - input2) + margin), the target being 1 or -1.

    Inputs and target of one shape (N) or ().

    Args:
        margin: the least difference that costs nothing.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> nn.MarginRankingLoss()(adjit.tensor([1.0, 2.0]), adjit.tensor([3.0, 0.0]), adjit.tensor([1.0, 1.0]))
        tensor(1.)
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) with the p-norm as distance.

    The three tensors (N, D) or (D).

    After Balntas et al. (2016).

    Args:
        margin: positive.
        p: the order of the norm.
        eps: added to the differences.
        swap: measure the negative from the positive where that is nearer.
        size_average: the old form of `reduction`.
        reduce: the old form of `reduction`.
        reduction: how the elements are put together.

    Raises:
        ValueError: `margin` is not positive.

    Example:
        >>> nn.TripletMarginLoss()(adjit.zeros(1, 2), adjit.ones(1, 2), adjit.tensor([[2.0, 0.0]]))
        tensor(0.4142)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        _check_margin("TripletMarginLoss", margin)
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """A triplet margin loss with a distance of the user's own, `PairwiseDistance` by default.

    The three tensors (N, *), as the distance takes them.

    Args:
        distance_function: takes two of the tensors and returns distances (N).
        margin: the least difference of distances that costs nothing.
        swap: take the distance of positive and negative where that is less than that of the anchor.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: `margin` is not positive.

    Example:
        >>> loss = nn.TripletMarginWithDistanceLoss()
        >>> loss(adjit.zeros(1, 2), adjit.ones(1, 2), adjit.tensor([[2.0, 0.0]]))
        tensor(0.4142)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        _check_margin("TripletMarginWithDistanceLoss", margin)
        self.distance_function: Any = distance_function or PairwiseDistance()
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


def _check_margin(loss: str, margin: float) -> None:
    if margin <= 0:
        raise ValueError(f"{loss}: expected margin to be greater than 0, got {margin} instead")
