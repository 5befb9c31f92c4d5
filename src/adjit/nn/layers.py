"""Layers: linear maps, reshaping, dropout, normalisation, embeddings and distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..dtypes import dtype as DType
from ..ops import creation
from ..shapes import for_each
from ..tensor import Tensor
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


class Identity(Module):
    """Return the input, of any shape; arguments of the constructor are ignored.

    Example:
        >>> nn.Identity()(adjit.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """y = x Aᵀ + b.

    Weight (out_features, in_features) and bias start from U(-k, k), k = 1 / sqrt(in_features).

    Args:
        in_features: the size of the last dimension of the input, (*, in_features).
        out_features: the size of the last dimension of the output, (*, out_features).
        bias: whether there is a b.
        device: where the parameters are.
        dtype: their floating dtype.

    Example:
        >>> nn.Linear(20, 30)(adjit.randn(128, 20)).shape
        adjit.Size([128, 30])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(
            creation.empty(out_features, in_features, device=device, dtype=dtype)
        )
        if bias:
            self.bias = Parameter(creation.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew.

        Example:
            >>> layer = nn.Linear(4, 2)
            >>> layer.bias.data.fill_(9)
            tensor([9., 9.])
            >>> layer.reset_parameters()
            >>> bool(layer.bias.abs().max() <= 0.5)
            True
        """
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))  # bounds of 1 / sqrt(in_features)
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Bilinear(Module):
    """y = x1ᵀ A x2 + b over the last dimensions of two inputs.

    Inputs (*, in1_features) and (*, in2_features), the result (*, out_features).

    Args:
        in1_features: the size of the last dimension of x1.
        in2_features: the size of the last dimension of x2.
        out_features: the size of the last dimension of y.
        bias: whether there is a b.
        device: where the parameters are.
        dtype: their floating dtype.

    Raises:
        ValueError: `in1_features` is not positive.

    Example:
        >>> nn.Bilinear(20, 30, 40)(adjit.randn(128, 20), adjit.randn(128, 30)).shape
        adjit.Size([128, 40])
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(
            creation.empty(out_features, in1_features, in2_features, device=device, dtype=dtype)
        )
        if bias:
            self.bias = Parameter(creation.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew from U(-k, k), k = 1 / sqrt(in1_features).

        Example:
            >>> layer = nn.Bilinear(4, 2, 3)
            >>> layer.bias.data.fill_(9)
            tensor([9., 9., 9.])
            >>> layer.reset_parameters()
            >>> bool(layer.bias.abs().max() <= 0.5)
            True
        """
        if self.in1_features <= 0:
            raise ValueError(
                f"in1_features must be > 0, but got (in1_features={self.in1_features})"
            )
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class Flatten(Module):
    """Joins the dimensions from `start_dim` to `end_dim`; by default all but the batch.

    (*, the flattened sizes, *) to (*, their product, *).

    Example:
        >>> nn.Flatten()(adjit.zeros(32, 1, 5, 5)).shape
        adjit.Size([32, 25])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits dimension `dim` into several.

    (*, a size, *) to (*, the sizes that it is split into, *).

    Args:
        dim: the dimension.
        unflattened_size: its new sizes; one may be -1.

    Raises:
        TypeError: `unflattened_size` is no tuple or list of ints.

    Example:
        >>> nn.Unflatten(1, (2, 5))(adjit.zeros(3, 10)).shape
        adjit.Size([3, 2, 5])
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(unflattened_size, (tuple, list)):
            raise TypeError(
                "unflattened_size must be a tuple of ints, but found type "
                f"{type(unflattened_size).__name__}"
            )
        for i, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise TypeError(
                    "unflattened_size must be tuple of ints, but found element of type "
                    f"{type(size).__name__} at pos {i}"
                )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class _DropoutNd(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, zeroes every element with probability `p` and scales the rest by 1 / (1 - p).

    Any floating shape (*), and the result of the same.

    After Hinton et al. (2012).

    Raises:
        ValueError: `p` is outside [0, 1].

    Example:
        >>> nn.Dropout(0.2).eval()(adjit.ones(2))
        tensor([1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Zero whole channels of (N, C, L) or (C, L) with probability `p` in training, scaling the others.

    Example:
        >>> dropped = nn.Dropout1d(0.5)(adjit.ones(1, 8, 4))
        >>> adjit.equal(dropped.amin(-1), dropped.amax(-1))  # a channel is kept or not
        True
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Zero whole channels of (N, C, H, W) or (C, H, W) with probability `p` in training.

    After Tompson et al. (2014).

    Example:
        >>> nn.Dropout2d(0.5).eval()(adjit.ones(1, 2, 1, 2))
        tensor([[[[1., 1.]],
        <BLANKLINE>
                 [[1., 1.]]]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Zero whole channels of (N, C, D, H, W) or (C, D, H, W) with probability `p` in training.

    Example:
        >>> nn.Dropout3d(0.5)(adjit.ones(1, 8, 2, 2, 2)).shape
        adjit.Size([1, 8, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Drop elements so that zero mean and unit variance stay, for networks of SELUs (Klambauer et al., 2017).

    Any floating shape (*), and the result of the same.

    Raises:
        ValueError: `p` is outside [0, 1].

    Example:
        >>> nn.AlphaDropout(0.2).eval()(adjit.ones(3))
        tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """Drop whole channels of (N, C, *) as AlphaDropout drops elements.

    Raises:
        ValueError: `p` is outside [0, 1].

    Example:
        >>> nn.FeatureAlphaDropout(0.2).eval()(adjit.ones(1, 2, 2)).shape
        adjit.Size([1, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)


class LayerNorm(Module):
    """Normalises over the last dimensions: (x - mean) / sqrt(var + eps) * weight + bias (Ba et al., 2016).

    Args:
        normalized_shape: the sizes of those dimensions, or one int for the last one.
        eps: added to the variance.
        elementwise_affine: whether there are a weight (ones at first) and a bias (zeros).
        bias: whether there is a bias.
        device: where the parameters are.
        dtype: their floating dtype.

    Example:
        >>> nn.LayerNorm(10)(adjit.randn(20, 5, 10)).shape
        adjit.Size([20, 5, 10])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = for_each(normalized_shape, 1)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        if elementwise_affine:
            self.weight = Parameter(
                creation.empty(self.normalized_shape, device=device, dtype=dtype)
            )
            if bias:
                self.bias = Parameter(
                    creation.empty(self.normalized_shape, device=device, dtype=dtype)
                )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to ones and the bias to zeros.

        Example:
            >>> norm = nn.LayerNorm(2)
            >>> norm.weight.data.fill_(3)
            tensor([3., 3.])
            >>> norm.reset_parameters()
            >>> norm.weight.tolist()
            [1.0, 1.0]
        """
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides by the root mean square over the last dimensions: x / sqrt(mean(x²) + eps) * weight.

    After Zhang and Sennrich (2019).

    Args:
        normalized_shape: the sizes of those dimensions, or one int for the last one.
        eps: added to the mean square; None stands for the machine epsilon of the input's dtype.
        elementwise_affine: whether there is a weight, ones at first.
        device: where it is.
        dtype: its floating dtype.

    Example:
        >>> nn.RMSNorm([2, 3])(adjit.randn(2, 2, 3)).shape
        adjit.Size([2, 2, 3])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = for_each(normalized_shape, 1)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", None)
        if elementwise_affine:
            self.weight = Parameter(
                creation.empty(self.normalized_shape, device=device, dtype=dtype)
            )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to ones.

        Example:
            >>> norm = nn.RMSNorm(2)
            >>> norm.weight.data.fill_(3)
            tensor([3., 3.])
            >>> norm.reset_parameters()
            >>> norm.weight.tolist()
            [1.0, 1.0]
        """
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class Embedding(Module):
    """A table of vectors, looked up by index: (*) of int64 or int32 to (*, embedding_dim).

    Args:
        num_embeddings: the number of rows.
        embedding_dim: the size of a row.
        padding_idx: a row that starts as zeros and gets no gradient.
        max_norm: rows that are looked up and have a larger norm are scaled down to it, in place.
        norm_type: the p of that norm.
        scale_grad_by_freq: whether a row's gradient is divided by how often it is looked up.
        sparse: without effect; gradients are dense.
        device: where the weight is.
        dtype: its floating dtype.

    Raises:
        AssertionError: `padding_idx` is outside the table.

    Example:
        >>> nn.Embedding(10, 3)(adjit.tensor([[1, 2], [4, 5]])).shape
        adjit.Size([2, 2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise AssertionError("Padding_idx must be within num_embeddings")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            table = creation.empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.weight = Parameter(table, requires_grad=not _freeze)
            self.reset_parameters()
        elif tuple(_weight.shape) != (num_embeddings, embedding_dim):
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        else:
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Draw the table anew from N(0, 1), with zeros in the padding row.

        Example:
            >>> table = nn.Embedding(3, 2, padding_idx=0)
            >>> table.reset_parameters()
            >>> table.weight[0].tolist()
            [0.0, 0.0]
        """
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor) -> Tensor:
        if input.__class__ is Tensor and input._storage.shared:
            input = input.clone()  # or what reads it is computed at once, before others write there
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        settings = [
            ("padding_idx", self.padding_idx, None),
            ("max_norm", self.max_norm, None),
            ("norm_type", self.norm_type, 2),
            ("scale_grad_by_freq", self.scale_grad_by_freq, False),
            ("sparse", self.sparse, False),
        ]
        changed = [f", {name}={value}" for name, value, usual in settings if value != usual]
        return f"{self.num_embeddings}, {self.embedding_dim}{''.join(changed)}"

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """Make an Embedding over a given (rows, columns) table, which is not copied.

        Args:
            embeddings: the table, of a floating dtype.
            freeze: whether its values are fixed.
            padding_idx: as in the constructor; the row keeps its values.
            max_norm: as in the constructor.
            norm_type: as in the constructor.
            scale_grad_by_freq: as in the constructor.
            sparse: as in the constructor.

        Raises:
            AssertionError: the table has not two dimensions.

        Example:
            >>> table = nn.Embedding.from_pretrained(adjit.tensor([[1.0, 2.0], [3.0, 4.0]]))
            >>> table(adjit.tensor([1, 0]))
            tensor([[3., 4.],
                    [1., 2.]])
        """
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        return cls(
            rows,
            columns,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
            _weight=embeddings,
            _freeze=freeze,
        )


class EmbeddingBag(Module):
    """Sums, means or maxima of vectors of a table: bags of indices to (bags, embedding_dim).

    Indices are (bags, n), or (n) with the offsets at which bags begin.

    Args:
        num_embeddings: the number of rows.
        embedding_dim: the size of a row.
        max_norm: rows that are looked up and have a larger norm are scaled down to it, in place.
        norm_type: the p of that norm.
        scale_grad_by_freq: whether a row's gradient is divided by how often it is looked up.
        mode: `"sum"`, `"mean"` or `"max"`.
        sparse: without effect; gradients are dense.
        include_last_offset: whether the last offset is the end of the last bag.
        padding_idx: a row that starts as zeros and does not count.
        device: where the weight is.
        dtype: its floating dtype.

    Raises:
        AssertionError: `padding_idx` is outside the table.

    Example:
        >>> bag = nn.EmbeddingBag(10, 3, mode="sum")
        >>> bag(adjit.tensor([1, 2, 4, 5, 4]), adjit.tensor([0, 3])).shape
        adjit.Size([2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise AssertionError("padding_idx must be within num_embeddings")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        if _weight is None:
            table = creation.empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.weight = Parameter(table)
            self.reset_parameters()
        elif tuple(_weight.shape) != (num_embeddings, embedding_dim):
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        else:
            self.weight = Parameter(_weight)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def reset_parameters(self) -> None:
        """Draw the table anew from N(0, 1), with zeros in the padding row.

        Example:
            >>> bag = nn.EmbeddingBag(3, 2, padding_idx=0)
            >>> bag.reset_parameters()
            >>> bag.weight[0].tolist()
            [0.0, 0.0]
        """
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        settings = [
            ("max_norm", self.max_norm, None),
            ("norm_type", self.norm_type, 2),
            ("scale_grad_by_freq", self.scale_grad_by_freq, False),
            ("mode", self.mode, ""),
            ("padding_idx", self.padding_idx, None),
        ]
        changed = [f", {name}={value!r}" for name, value, usual in settings if value != usual]
        return f"{self.num_embeddings}, {self.embedding_dim}{''.join(changed)}"

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Make bags of a given table, which does not learn if `freeze`.

        Raises:
            AssertionError: the table has other than two dimensions.

        Example:
            >>> nn.EmbeddingBag.from_pretrained(adjit.eye(3))(adjit.tensor([[0, 1]]))
            tensor([[0.5000, 0.5000, 0.0000]])
        """
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        made = cls(
            embeddings.shape[0],
            embeddings.shape[1],
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        made.weight.requires_grad_(not freeze)
        return made


class CosineSimilarity(Module):
    """The cosine of the angle between two inputs along `dim`; norms are at least `eps`.

    Inputs that broadcast with each other; the result without the dimension `dim`.

    Example:
        >>> nn.CosineSimilarity(dim=0)(adjit.tensor([1.0, 0.0]), adjit.tensor([2.0, 0.0]))
        tensor(1.)
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps over the last dimension.

    Inputs (N, D) or (D), the result (N) or ().

    Example:
        >>> nn.PairwiseDistance()(adjit.zeros(3, 4), adjit.ones(3, 4))
        tensor([2.0000, 2.0000, 2.0000])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
