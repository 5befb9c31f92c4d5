"""Modules that find out from their first input how large their parameters are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from .. import dtypes
from ..autograd.modes import no_grad
from ..dtypes import dtype as DType
from ..ops import creation
from ..tensor import Tensor
from .conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    _ConvTransposeNd,
    _Forward,
    _OverAxes,
)
from .layers import Linear
from .norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    _NormBase,
)
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy


class LazyModuleMixin:
    """For modules with parameters whose shapes follow from the first input.

    A class derives from this and then from a module, and defines `initialize_parameters(*args)`,
    which is given what the first call is, and materialises all parameters. After that call the module
    is of the class `cls_to_become`, if there is one.

    Example:
        >>> class LazyScale(nn.lazy.LazyModuleMixin, nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.scale = nn.UninitializedParameter()
        ...     def initialize_parameters(self, x):
        ...         self.scale.materialize(x.shape[-1:])
        ...         nn.init.ones_(self.scale)
        ...     def forward(self, x):
        ...         return x * self.scale
        >>> LazyScale()(adjit.tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """

    cls_to_become: type[Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        module: Any = self
        self._load_hook = module.register_load_state_dict_pre_hook(_take_shapes)
        self._initialize_hook = module.register_forward_pre_hook(_initialize, with_kwargs=True)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialise the parameters for an input: written by the subclass."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self) -> bool:
        """Tell whether a parameter or buffer of the module itself has no shape yet."""
        module: Any = self
        return any(map(is_lazy, chain(module._parameters.values(), module._buffers.values())))


def _take_shapes(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Before a state is loaded: give parameters without a shape that of the state."""
    for name, t in [*module._parameters.items(), *module._buffers.items()]:
        value = state.get(prefix + name)
        if value is not None and is_lazy(t) and not is_lazy(value):
            with no_grad():
                t.materialize(value.shape)


def _initialize(module: Any, args: Any, kwargs: Any) -> None:
    """Before the first forward: give all parameters a shape, and the module its class."""
    module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
    for hook in ("_initialize_hook", "_load_hook"):
        getattr(module, hook).remove()
        delattr(module, hook)
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


class LazyLinear(LazyModuleMixin, Linear):
    """A `Linear` that takes `in_features` from its first input, and is one from then on.

    Args:
        out_features: the size of the last dimension of the output.
        bias: whether there is a b.
        device: where the parameters are.
        dtype: their floating dtype.

    Example:
        >>> layer = nn.LazyLinear(3)
        >>> layer(adjit.zeros(2, 5)).shape
        adjit.Size([2, 3])
        >>> layer
        Linear(in_features=5, out_features=3, bias=True)
    """

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: DType | None = None
    ) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, if they are there.

        Example:
            >>> nn.LazyLinear(3).reset_parameters()
        """
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Find `in_features`.

        Example:
            >>> layer = nn.LazyLinear(3)
            >>> layer.initialize_parameters(adjit.zeros(2, 5))
            >>> layer.weight.shape
            adjit.Size([3, 5])
        """
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            _materialize(self.weight, (self.out_features, self.in_features))
            _materialize(self.bias, (self.out_features,))
            self.reset_parameters()
        if self.in_features == 0:  # a state has been loaded
            if input.shape[-1] != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {input.shape[-1]} is not equal to "
                    f"in_features from self.weight: {self.weight.shape[-1]}"
                )
            self.in_features = input.shape[-1]


def _materialize(t: Any, shape: tuple[int, ...]) -> None:
    """Give a parameter a shape, if it is there and has none."""
    if is_lazy(t):
        t.materialize(shape)


class _LazyConvolution(LazyModuleMixin, _OverAxes):
    """What lazy convolutions share; their arguments are those of the others, without `in_channels`."""

    def _expect(self, out_channels: int, bias: bool, device: Any, dtype: DType | None) -> None:
        """Put parameters without a shape in the place of those without elements."""
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if out_channels % self.groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, if they are there."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *_: Any, **__: Any) -> None:
        """Find `in_channels`; a transposed convolution is given its `output_size` too."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            return
        if input.ndim not in (self._axes + 1, self._axes + 2):
            raise RuntimeError(
                f"Expected {self._axes + 1}D (unbatched) or {self._axes + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        self.in_channels = input.shape[input.ndim - self._axes - 1]
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if self.has_uninitialized_params():
            given, wanted = self.in_channels, self.out_channels
            channels = (
                (given, wanted // self.groups)
                if self.transposed
                else (wanted, given // self.groups)
            )
            _materialize(self.weight, (*channels, *self.kernel_size))
            _materialize(self.bias, (wanted,))
            self.reset_parameters()


class _LazyForward(_LazyConvolution, _Forward):
    def __init__(
        self,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._expect(out_channels, bias, device, dtype)


class _LazyTransposed(_LazyConvolution, _ConvTransposeNd):
    def __init__(
        self,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            0,
            0,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            False,
            dilation,
            padding_mode,
        )
        self._expect(out_channels, bias, device, dtype)


class LazyConv1d(_LazyForward, Conv1d):
    """A `Conv1d` that takes `in_channels` from its first input, and is one from then on.

    Example:
        >>> nn.LazyConv1d(4, 3)(adjit.zeros(2, 5, 8)).shape
        adjit.Size([2, 4, 6])
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyForward, Conv2d):
    """A `Conv2d` that takes `in_channels` from its first input, and is one from then on.

    Example:
        >>> nn.LazyConv2d(4, 3)(adjit.zeros(2, 5, 8, 8)).shape
        adjit.Size([2, 4, 6, 6])
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyForward, Conv3d):
    """A `Conv3d` that takes `in_channels` from its first input, and is one from then on.

    Example:
        >>> nn.LazyConv3d(4, 3)(adjit.zeros(1, 2, 4, 4, 4)).shape
        adjit.Size([1, 4, 2, 2, 2])
    """

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d):
    """A `ConvTranspose1d` that takes `in_channels` from its first input, and is one from then on.

    Example:
        >>> nn.LazyConvTranspose1d(4, 3)(adjit.zeros(2, 5, 8)).shape
        adjit.Size([2, 4, 10])
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d):
    """A `ConvTranspose2d` that takes `in_channels` from its first input, and is one from then on.

    Example:
        >>> nn.LazyConvTranspose2d(4, 3)(adjit.zeros(2, 5, 8, 8)).shape
        adjit.Size([2, 4, 10, 10])
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d):
    """A `ConvTranspose3d` that takes `in_channels` from its first input, and is one from then on.

    Example:
        >>> nn.LazyConvTranspose3d(4, 3)(adjit.zeros(1, 2, 4, 4, 4)).shape
        adjit.Size([1, 4, 6, 6, 6])
    """

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin, _NormBase):
    """What lazy norms of channels share."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=False)
        self.affine, self.track_running_stats = affine, track_running_stats
        if self.affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if self.track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = creation.tensor(0, dtype=dtypes.int64, device=device)

    def reset_parameters(self) -> None:
        """Set weight, bias and statistics to where they start, if they are there."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Find `num_features`."""
        is_new = self.has_uninitialized_params()
        if is_new or self.num_features == 0:
            self.num_features = input.shape[1]
        if is_new:
            for t in (self.weight, self.bias, self.running_mean, self.running_var):
                _materialize(t, (self.num_features,))
            self.reset_parameters()


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A `BatchNorm1d` that takes `num_features` from its first input, and is one from then on.

    Example:
        >>> nn.LazyBatchNorm1d()(adjit.zeros(2, 5)).shape
        adjit.Size([2, 5])
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A `BatchNorm2d` that takes `num_features` from its first input, and is one from then on.

    Example:
        >>> nn.LazyBatchNorm2d()(adjit.zeros(2, 5, 3, 3)).shape
        adjit.Size([2, 5, 3, 3])
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A `BatchNorm3d` that takes `num_features` from its first input, and is one from then on.

    Example:
        >>> nn.LazyBatchNorm3d()(adjit.zeros(2, 5, 3, 3, 3)).shape
        adjit.Size([2, 5, 3, 3, 3])
    """

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An `InstanceNorm1d` that takes `num_features` from its first input, and is one from then on.

    Example:
        >>> nn.LazyInstanceNorm1d()(adjit.zeros(2, 5, 4)).shape
        adjit.Size([2, 5, 4])
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An `InstanceNorm2d` that takes `num_features` from its first input, and is one from then on.

    Example:
        >>> nn.LazyInstanceNorm2d()(adjit.zeros(2, 5, 3, 3)).shape
        adjit.Size([2, 5, 3, 3])
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An `InstanceNorm3d` that takes `num_features` from its first input, and is one from then on.

    Example:
        >>> nn.LazyInstanceNorm3d()(adjit.zeros(2, 5, 3, 3, 3)).shape
        adjit.Size([2, 5, 3, 3, 3])
    """

    cls_to_become = InstanceNorm3d
