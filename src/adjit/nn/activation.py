"""Activations as modules."""

from __future__ import annotations

import warnings
from typing import Any

from ..dtypes import dtype as DType
from ..ops import creation
from ..tensor import Tensor
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


class _Inplace(Module):
    """An activation without other settings than `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_Inplace):
    """max(x, 0).

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.ReLU()(adjit.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, inplace=self.inplace)


class SiLU(_Inplace):
    """x * sigmoid(x), elementwise (Hendrycks and Gimpel, 2016).

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.SiLU()(adjit.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2689,  0.0000,  1.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, inplace=self.inplace)


class Mish(_Inplace):
    """x * tanh(softplus(x)), elementwise (Misra, 2019).

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Mish()(adjit.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.3034,  0.0000,  1.9440])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, inplace=self.inplace)


class SELU(_Inplace):
    """1.0507 * (x for positive x, 1.6733 * (exp(x) - 1) otherwise) (Klambauer et al., 2017).

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.SELU()(adjit.tensor([-1.0, 2.0]))
        tensor([-1.1113,  2.1014])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, inplace=self.inplace)


class Hardswish(_Inplace):
    """x * relu6(x + 3) / 6, elementwise (Howard et al., 2019).

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Hardswish()(adjit.tensor([-4.0, 1.0, 4.0]))
        tensor([-0.0000, 0.6667, 4.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        return ""


class Hardsigmoid(_Inplace):
    """relu6(x + 3) / 6, elementwise.

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Hardsigmoid()(adjit.tensor([-4.0, 0.0, 1.0]))
        tensor([0.0000, 0.5000, 0.6667])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        return ""


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Sigmoid()(adjit.tensor([-1.0, 0.0, 2.0]))
        tensor([0.2689, 0.5000, 0.8808])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class LogSigmoid(Module):
    """log(sigmoid(x)), without overflow.

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.LogSigmoid()(adjit.tensor([-100.0, 0.0]))
        tensor([-100.0000,   -0.6931])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent, elementwise.

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Tanh()(adjit.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.7616,  0.0000,  0.9640])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class Tanhshrink(Module):
    """x - tanh(x).

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Tanhshrink()(adjit.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2384,  0.0000,  1.0360])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class Softsign(Module):
    """x / (1 + |x|).

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Softsign()(adjit.tensor([-1.0, 0.0, 3.0]))
        tensor([-0.5000,  0.0000,  0.7500])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class GELU(Module):
    """x * Φ(x), Φ being the normal distribution function (Hendrycks and Gimpel, 2016).

    Any floating shape (*), and the result of the same.

    Args:
        approximate: `"none"`, or `"tanh"` for the approximation by tanh.

    Example:
        >>> nn.GELU()(adjit.tensor([-1.0, 2.0]))
        tensor([-0.1587,  1.9545])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class ELU(Module):
    """x for positive x, alpha * (exp(x) - 1) otherwise (Clevert et al., 2015).

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.ELU()(adjit.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{_inplace(self)}"


class CELU(Module):
    """x for positive x, alpha * (exp(x / alpha) - 1) otherwise (Barron, 2017).

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.CELU(alpha=0.5)(adjit.tensor([-1.0, 2.0]))
        tensor([-0.4323,  2.0000])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{_inplace(self)}"


class LeakyReLU(Module):
    """x for positive x, negative_slope * x otherwise.

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.LeakyReLU(0.1)(adjit.tensor([-1.0, 2.0]))
        tensor([-0.1000,  2.0000])
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}{_inplace(self)}"


class RReLU(Module):
    """Apply LeakyReLU with a slope drawn from [lower, upper] in training, with their mean otherwise.

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.RReLU(0.1, 0.3).eval()(adjit.tensor([-1.0, 2.0]))
        tensor([-0.2000,  2.0000])
    """

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}{_inplace(self)}"


class PReLU(Module):
    """x for positive x, weight * x otherwise, the weight being learned (He et al., 2015).

    (N, C, *), and the result of the same; one weight, or one for each channel.

    Args:
        num_parameters: the number of weights: one, or one for each channel (dimension 1).
        init: what they start from.
        device: where the weight is.
        dtype: its floating dtype.

    Example:
        >>> nn.PReLU()(adjit.tensor([-1.0, 2.0])).tolist()
        [-0.25, 2.0]
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(creation.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to its initial value.

        Example:
            >>> module = nn.PReLU(init=0.1)
            >>> module.weight.data.fill_(3)
            tensor([3.])
            >>> module.reset_parameters()
            >>> module.weight.tolist() == adjit.tensor([0.1]).tolist()
            True
        """
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Threshold(Module):
    """x where it is above `threshold`, `value` elsewhere.

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Threshold(1.0, 0.0)(adjit.tensor([0.5, 2.0]))
        tensor([0., 2.])
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}{_inplace(self)}"


class Hardtanh(Module):
    """x clamped to [min_val, max_val].

    Any floating shape (*), and the result of the same.

    Raises:
        AssertionError: `max_val` is not above `min_val`.

    Example:
        >>> nn.Hardtanh()(adjit.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.0000,  0.5000,  1.0000])
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        if min_value is not None:
            _warn_renamed("min_value", "min_val")
            min_val = min_value
        if max_value is not None:
            _warn_renamed("max_value", "max_val")
            max_val = max_value
        if max_val <= min_val:
            raise AssertionError(f"max_val ({max_val}) must be greater than min_val ({min_val})")
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}{_inplace(self)}"


class ReLU6(Hardtanh):
    """x clamped to [0, 6].

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.ReLU6()(adjit.tensor([-1.0, 2.0, 9.0]))
        tensor([0., 2., 6.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Hardshrink(Module):
    """x where |x| is above `lambd`, 0 elsewhere.

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Hardshrink()(adjit.tensor([-1.0, 0.3, 2.0]))
        tensor([-1.,  0.,  2.])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Softshrink(Module):
    """x moved towards 0 by `lambd`, 0 where it would pass it.

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Softshrink()(adjit.tensor([-1.0, 0.3, 2.0]))
        tensor([-0.5000,  0.0000,  1.5000])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above `threshold`.

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Softplus()(adjit.tensor([-1.0, 0.0, 30.0]))
        tensor([ 0.3133,  0.6931, 30.0000])
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class GLU(Module):
    """The first half of dimension `dim` times the sigmoid of the second half (Dauphin et al., 2016).

    (*, 2 n, *) to (*, n, *), the size of `dim` halved.

    Example:
        >>> nn.GLU()(adjit.tensor([1.0, 2.0, 0.0, 0.0]))
        tensor([0.5000, 1.0000])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class _OverDim(Module):
    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_OverDim):
    """exp(x) over its sum along `dim`.

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Softmax(dim=0)(adjit.zeros(2))
        tensor([0.5000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)


class Softmax2d(Module):
    """exp(x) over its sum along the channels of images, (N, C, H, W) or (C, H, W).

    Raises:
        ValueError: an input of other dimensions.

    Example:
        >>> nn.Softmax2d()(adjit.zeros(2, 1, 1)).flatten()
        tensor([0.5000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3)


class Softmin(_OverDim):
    """exp(-x) over its sum along `dim`.

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.Softmin(dim=0)(adjit.tensor([1.0, 2.0, 3.0]))
        tensor([0.6652, 0.2447, 0.0900])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim)


class LogSoftmax(_OverDim):
    """The logarithm of softmax along `dim`, without overflow.

    Any floating shape (*), and the result of the same.

    Example:
        >>> nn.LogSoftmax(dim=0)(adjit.zeros(2))
        tensor([-0.6931, -0.6931])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)


def _inplace(module: Any) -> str:
    return ", inplace=True" if module.inplace else ""


def _warn_renamed(old: str, new: str) -> None:
    warnings.warn(
        f"keyword argument `{old}` is deprecated and renamed to `{new}`",
        FutureWarning,
        stacklevel=3,
    )
