"""Layers that pad the last one, two or three axes."""

from __future__ import annotations

from collections.abc import Sequence

from ..shapes import for_each
from ..tensor import Tensor
from . import functional as F
from .module import Module


class _Pad(Module):
    """Padding by what is there; subclasses say how, and how many axes are padded."""

    _axes: int
    _mode: str

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding = for_each(padding, 2 * self._axes)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return str(self.padding)


class _CircularPadNd(_Pad):
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (self._axes + 1, self._axes + 2):
            raise ValueError(
                f"expected {self._axes + 1}D or {self._axes + 2}D input (got {input.dim()}D input)"
            )
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """Pads the last axis of (N, C, L) or (C, L) as if its ends were joined.

    Args:
        padding: elements at both ends, or (before, after) of the last axis; in 2d and 3d then those
            of the axis before it, and so on. Negative numbers cut off.

    Raises:
        ValueError: for an input of other dimensions.
        RuntimeError: if an end is longer than its axis.

    Example:
        >>> nn.CircularPad1d(1)(adjit.tensor([[1.0, 2.0, 3.0]]))
        tensor([[3., 1., 2., 3., 1.]])
    """

    _axes = 1


class CircularPad2d(_CircularPadNd):
    """Pads the last two axes as if their ends were joined; takes what CircularPad1d takes.

    Input (N, C, H, W) or (C, H, W); the result has the padded sizes in place of the last two.

    Example:
        >>> nn.CircularPad2d((1, 0, 0, 1))(adjit.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[2., 1., 2.],
                 [4., 3., 4.],
                 [2., 1., 2.]]])
    """

    _axes = 2


class CircularPad3d(_CircularPadNd):
    """Pads the last three axes as if their ends were joined; takes what CircularPad1d takes.

    Input (N, C, D, H, W) or (C, D, H, W); the result has the padded sizes in place of the last three.

    Example:
        >>> nn.CircularPad3d(1)(adjit.zeros(1, 2, 3, 4)).shape
        adjit.Size([1, 4, 5, 6])
    """

    _axes = 3


class _ReflectionPadNd(_Pad):
    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Pads the last axis by its mirror image; takes what CircularPad1d takes.

    Input (N, C, L) or (C, L); the result has the padded sizes in place of the last one.

    Example:
        >>> nn.ReflectionPad1d(1)(adjit.tensor([[1.0, 2.0, 3.0]]))
        tensor([[2., 1., 2., 3., 2.]])
    """

    _axes = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Pads the last two axes by their mirror image; takes what CircularPad1d takes.

    Input (N, C, H, W) or (C, H, W); the result has the padded sizes in place of the last two.

    Example:
        >>> nn.ReflectionPad2d((1, 0, 0, 1))(adjit.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[2., 1., 2.],
                 [4., 3., 4.],
                 [2., 1., 2.]]])
    """

    _axes = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Pads the last three axes by their mirror image; takes what CircularPad1d takes.

    Input (N, C, D, H, W) or (C, D, H, W); the result has the padded sizes in place of the last three.

    Example:
        >>> nn.ReflectionPad3d(1)(adjit.zeros(1, 2, 3, 4)).shape
        adjit.Size([1, 4, 5, 6])
    """

    _axes = 3


class _ReplicationPadNd(_Pad):
    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Pads the last axis by its first and last elements; takes what CircularPad1d takes.

    Input (N, C, L) or (C, L); the result has the padded sizes in place of the last one.

    Example:
        >>> nn.ReplicationPad1d(1)(adjit.tensor([[1.0, 2.0, 3.0]]))
        tensor([[1., 1., 2., 3., 3.]])
    """

    _axes = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Pads the last two axes by their first and last elements.

    Input (N, C, H, W) or (C, H, W); the result has the padded sizes in place of the last two.

    Takes what `CircularPad1d` takes.

    Example:
        >>> nn.ReplicationPad2d((1, 0, 0, 1))(adjit.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[1., 1., 2.],
                 [3., 3., 4.],
                 [3., 3., 4.]]])
    """

    _axes = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Pads the last three axes by their first and last elements.

    Input (N, C, D, H, W) or (C, D, H, W); the result has the padded sizes in place of the last three.

    Takes what `CircularPad1d` takes.

    Example:
        >>> nn.ReplicationPad3d(1)(adjit.zeros(1, 2, 3, 4)).shape
        adjit.Size([1, 4, 5, 6])
    """

    _axes = 3


class _ConstantPadNd(_Pad):
    _mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Pads the last axis by one value; takes what CircularPad1d takes, and the value.

    Input (*), of at least one axis; the result has the padded sizes in place of the last one.

    Example:
        >>> nn.ConstantPad1d((1, 0), 7.0)(adjit.tensor([1.0, 2.0]))
        tensor([7., 1., 2.])
    """

    _axes = 1


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two axes by one value.

    Input (*), of at least two axes; the result has the padded sizes in place of the last two.

    Takes what `ConstantPad1d` takes.

    Example:
        >>> nn.ConstantPad2d((1, 0, 0, 1), 7.0)(adjit.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[7., 1., 2.],
                 [7., 3., 4.],
                 [7., 7., 7.]]])
    """

    _axes = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three axes by one value.

    Input (*), of at least three axes; the result has the padded sizes in place of the last three.

    Takes what `ConstantPad1d` takes.

    Example:
        >>> nn.ConstantPad3d(1, 7.0)(adjit.zeros(1, 2, 3, 4)).shape
        adjit.Size([1, 4, 5, 6])
    """

    _axes = 3


class _ZeroPad(_ConstantPadNd):
    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return str(self.padding)


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Pads the last axis by zeros.

    Input (*), of at least one axis; the result has the padded sizes in place of the last one.

    Takes what `CircularPad1d` takes.

    Example:
        >>> nn.ZeroPad1d(1)(adjit.tensor([[1.0, 2.0]]))
        tensor([[0., 1., 2., 0.]])
    """


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Pads the last two axes by zeros.

    Input (*), of at least two axes; the result has the padded sizes in place of the last two.

    Takes what `CircularPad1d` takes.

    Example:
        >>> nn.ZeroPad2d((1, 0, 0, 1))(adjit.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[0., 1., 2.],
                 [0., 3., 4.],
                 [0., 0., 0.]]])
    """


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Pads the last three axes by zeros.

    Input (*), of at least three axes; the result has the padded sizes in place of the last three.

    Takes what `CircularPad1d` takes.

    Example:
        >>> nn.ZeroPad3d(1)(adjit.zeros(1, 2, 3, 4)).shape
        adjit.Size([1, 4, 5, 6])
    """
