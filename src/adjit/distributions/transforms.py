"""Maps between tensors with the logarithms of their determinants, of which distributions are transformed.

`transform(x)` maps, `transform.inv(y)` maps back, and `log_abs_det_jacobian(x, y)` tells how volume changes,
where y = transform(x). A transform has a domain and a codomain, whose event dimensions belong together.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..nn.functional import logsigmoid, pad, softplus
from ..ops import joining
from ..ops.creation import eye
from ..ops.linalg import linalg_cholesky
from ..shapes import Size, broadcast_shapes, numel
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, Unsaid
from .utils import (
    NUMBERS,
    Operand,
    broadcast_all,
    eps_of,
    lazy_property,
    sum_rightmost,
    tiny_of,
    tril_matrix_to_vec,
    vec_to_tril_matrix,
)

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform",
    "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform",
    "Transform", "identity_transform",
]  # fmt: skip

Shape = tuple[int, ...]


class Transform:
    """A map that distributions are transformed by.

    A subclass has a `domain`, a `codomain`, `_call`, and where it is `bijective`, `_inverse` and
    `log_abs_det_jacobian`.

    Args:
        cache_size: 1 to remember the last pair of x and y, so that the inverse of y is x itself; else 0.

    Attributes:
        bijective: whether there is an inverse.
        sign: +1 or -1 where a bijective map of numbers rises or falls.

    Raises:
        ValueError: for other cache sizes.

    Example:
        >>> adjit.distributions.transforms.ExpTransform().inv(adjit.tensor(1.))
        tensor(0.)
    """

    bijective: Any = False
    domain: Any = Unsaid()
    codomain: Any = Unsaid()
    sign: Any = Unsaid()

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: Transform | None = None
        self._cached_x_y: tuple[Any, Any] = None, None
        super().__init__()  # of what a class of the program is besides: a module

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_inv": None}

    @property
    def event_dim(self) -> int:
        """Tell how many dimensions belong together, where that is the same before and after.

        Raises:
            ValueError: where it is not.

        Example:
            >>> adjit.distributions.transforms.SoftmaxTransform().event_dim
            1
        """
        before: int = self.domain.event_dim
        if before != self.codomain.event_dim:
            raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")
        return before

    @property
    def inv(self) -> Transform:
        """Give the inverse transform.

        Example:
            >>> adjit.distributions.transforms.SigmoidTransform().inv(adjit.tensor(0.5))
            tensor(0.)
        """
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Give the same transform with another cache size.

        Example:
            >>> adjit.distributions.transforms.ExpTransform().with_cache()
            ExpTransform()
        """
        return self if self._cache_size == cache_size else self._copy(cache_size)

    def _copy(self, cache_size: int) -> Transform:
        """A copy with an empty cache."""
        new = copy.copy(self)
        Transform.__init__(new, cache_size)
        return new

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, x: Tensor) -> Tensor:
        known, found = self._cached_x_y
        return found if self._cache_size and x is known else self._remember(x, self._call(x))[1]

    def _inv_call(self, y: Tensor) -> Tensor:
        found, known = self._cached_x_y
        return found if self._cache_size and y is known else self._remember(self._inverse(y), y)[0]

    def _remember(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self._cache_size:
            self._cached_x_y = x, y
        return x, y

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Give the logarithm of the size of the determinant of dy/dx.

        Example:
            >>> x = adjit.tensor(2.)
            >>> adjit.distributions.transforms.ExpTransform().log_abs_det_jacobian(x, x.exp())
            tensor(2.)
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}()"

    def forward_shape(self, shape: Any) -> Any:
        """Tell the shape of what comes out of a tensor of a shape.

        Example:
            >>> adjit.distributions.transforms.StickBreakingTransform().forward_shape((2, 3))
            (2, 4)
        """
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """Tell the shape of a tensor that this shape comes out of.

        Example:
            >>> adjit.distributions.transforms.StickBreakingTransform().inverse_shape((2, 4))
            (2, 3)
        """
        return shape


def at_least(shape: Any, count: int = 1) -> Any:
    """A shape that is checked to have so many dimensions."""
    if len(shape) < count:
        raise ValueError("Too few dimensions on input")
    return shape


class _InverseTransform(Transform):
    """The inverse of a transform, which has the cache."""

    _inv: Transform

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return self._inv.domain

    @property
    def bijective(self) -> Any:
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self._inv!r})"

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)


# --------------------------------------------------------------------------- made of others


class ComposeTransform(Transform):
    """Transforms one after the other.

    Args:
        parts: the transforms, the first one first.

    Example:
        >>> t = adjit.distributions.transforms
        >>> t.ComposeTransform([t.ExpTransform(), t.AffineTransform(1., 2.)])(adjit.tensor(0.))
        tensor(3.)
    """

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return self._end([(p.domain, p.codomain) for p in reversed(self.parts)])

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return self._end([(p.codomain, p.domain) for p in self.parts])

    @staticmethod
    def _end(steps: list[tuple[Any, Any]]) -> Any:
        """The last set of a walk over (to, from), with as many event dimensions as the whole walk needs."""
        if not steps:
            return constraints.real
        event_dim = steps[0][1].event_dim
        for to, start in steps:
            event_dim = max(event_dim + to.event_dim - start.event_dim, to.event_dim)
        last = steps[-1][0]
        more = event_dim - last.event_dim
        return constraints.independent(last, more) if more else last

    @lazy_property
    def bijective(self) -> Any:
        """Whether all parts are."""
        return all(p.bijective for p in self.parts)

    @lazy_property
    def sign(self) -> Any:
        """The product of the parts' signs."""
        return functools.reduce(operator.mul, [p.sign for p in self.parts], 1)

    @property
    def inv(self) -> Transform:
        if self._inv is None:
            self._inv = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    def _copy(self, cache_size: int) -> Transform:
        return ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return x.new_zeros(x.shape)
        between = [x]
        for part in self.parts[:-1]:
            between.append(part(between[-1]))
        terms, event_dim = [], self.domain.event_dim
        for part, before, after in zip(self.parts, between, [*between[1:], y], strict=True):
            term = part.log_abs_det_jacobian(before, after)
            terms.append(sum_rightmost(term, event_dim - part.domain.event_dim))
            event_dim += part.codomain.event_dim - part.domain.event_dim
        return functools.reduce(operator.add, terms)

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        parts = ",\n    ".join(map(repr, self.parts))
        return f"{self.__class__.__name__}(\n    {parts}\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform of parts, of which several along the last dimensions count as one.

    Args:
        base_transform: the transform of each part.
        reinterpreted_batch_ndims: how many more dimensions belong together.

    Example:
        >>> t = adjit.distributions.transforms
        >>> x = adjit.tensor([1., 2.])
        >>> t.IndependentTransform(t.ExpTransform(), 1).log_abs_det_jacobian(x, x.exp())
        tensor(3.)
    """

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def _copy(self, cache_size: int) -> Transform:
        return IndependentTransform(
            self.base_transform, self.reinterpreted_batch_ndims, cache_size=cache_size
        )

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> Any:
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        at_least(x.shape, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        at_least(y.shape, self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        result = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(result, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        name = self.__class__.__name__
        return f"{name}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)


class _OfParts(Transform):
    """Transforms side by side along a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) if cache_size else t for t in tseq]
        self.dim = dim

    @property
    def bijective(self) -> Any:
        return all(t.bijective for t in self.transforms)

    def _split(self, x: Tensor, name: str) -> Sequence[Tensor]:
        """The parts of a tensor, which is checked."""
        raise NotImplementedError

    def _check(self, x: Tensor, name: str, size: int, shown: str) -> None:
        if not -x.ndim <= self.dim < x.ndim:
            name = "tensor" if name == "" else name
            raise AssertionError(f"dim {self.dim} out of range for {name} with {x.ndim} dimensions")
        if x.shape[self.dim] != size:
            raise AssertionError(
                f"{name or 'x'}.size({self.dim}) = {x.shape[self.dim]} must equal {shown} {size}"
            )

    def _mapped(self, maps: Iterable[Callable[[Tensor], Tensor]], x: Tensor) -> list[Tensor]:
        return [f(part) for f, part in zip(maps, self._split(x, ""), strict=True)]

    def _log_dets(self, x: Tensor, y: Tensor) -> list[Tensor]:
        parts = zip(self.transforms, self._split(x, "x"), self._split(y, "y"), strict=True)
        return [t.log_abs_det_jacobian(before, after) for t, before, after in parts]


class CatTransform(_OfParts):
    """Transforms of parts of given lengths along a dimension.

    Args:
        tseq: the transforms.
        dim: the dimension.
        lengths: how long the parts are; all of length 1 if None.

    Example:
        >>> t = adjit.distributions.transforms
        >>> t.CatTransform([t.ExpTransform(), t.AbsTransform()], 0, [1, 2])(adjit.tensor([0., -1., 1.]))
        tensor([1., 1., 1.])
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(
                f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})"
            )

    @lazy_property
    def event_dim(self) -> Any:
        """The most that a part has."""
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self) -> Any:
        """The length of all parts together."""
        return sum(self.lengths)

    def _copy(self, cache_size: int) -> Transform:
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _split(self, x: Tensor, name: str) -> Sequence[Tensor]:
        self._check(x, name, self.length, "length")
        return x.split(self.lengths, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return joining.cat(self._mapped(self.transforms, x), self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return joining.cat(self._mapped([t.inv for t in self.transforms], y), self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = [
            sum_rightmost(term, self.event_dim - t.event_dim)
            for t, term in zip(self.transforms, self._log_dets(x, y), strict=True)
        ]
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        if dim >= 0:  # the parts belong to one event
            return functools.reduce(operator.add, terms)
        return joining.cat(terms, dim)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_OfParts):
    """Transforms of the slices along a dimension.

    Args:
        tseq: the transforms.
        dim: the dimension.

    Example:
        >>> t = adjit.distributions.transforms
        >>> t.StackTransform([t.ExpTransform(), t.AbsTransform()])(adjit.tensor([0., -1.]))
        tensor([1., 1.])
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    def _copy(self, cache_size: int) -> Transform:
        return StackTransform(self.transforms, self.dim, cache_size)

    def _split(self, x: Tensor, name: str) -> Sequence[Tensor]:
        self._check(x, name, len(self.transforms), "len(transforms)")
        return x.unbind(self.dim)

    def _stack(self, parts: list[Tensor]) -> Tensor:
        return joining.stack(parts, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return self._stack(self._mapped(self.transforms, x))

    def _inverse(self, y: Tensor) -> Tensor:
        return self._stack(self._mapped([t.inv for t in self.transforms], y))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self._stack(self._log_dets(x, y))

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)


# --------------------------------------------------------------------------- of numbers


class _Plain(Transform):
    """A transform without parameters: all of a class are one."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self))


class ExpTransform(_Plain):
    """y = exp(x).

    Example:
        >>> adjit.distributions.transforms.ExpTransform()(adjit.tensor(0.))
        tensor(1.)
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """y = x ** exponent, for positive x.

    Args:
        exponent: the exponent.

    Example:
        >>> adjit.distributions.transforms.PowerTransform(2.)(adjit.tensor(3.))
        tensor(9.)
    """

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Operand, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @lazy_property
    def sign(self) -> Any:
        """That of the exponent."""
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _are_equal(self.exponent, other.exponent)

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


def _are_equal(a: Operand, b: Operand) -> bool:
    """Whether two parameters have the same numbers."""
    same = a == b
    return bool(same.all()) if isinstance(same, Tensor) else same


def clipped_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid, away from 0 and 1."""
    return x.sigmoid().clamp(min=tiny_of(x), max=1 - eps_of(x))


class SigmoidTransform(_Plain):
    """y = 1 / (1 + exp(-x)).

    Example:
        >>> adjit.distributions.transforms.SigmoidTransform()(adjit.tensor(0.))
        tensor(0.5000)
    """

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = +1

    def _call(self, x: Tensor) -> Tensor:
        return clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        y = y.clamp(min=tiny_of(y), max=1 - eps_of(y))
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(_Plain):
    """y = log(1 + exp(x)).

    Example:
        >>> adjit.distributions.transforms.SoftplusTransform()(adjit.tensor(0.))
        tensor(0.6931)
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class TanhTransform(_Plain):
    """y = tanh(x).

    Nothing is clamped in the inverse: use `cache_size=1` where values come close to the ends.

    Example:
        >>> adjit.distributions.transforms.TanhTransform()(adjit.tensor(0.))
        tensor(0.)
    """

    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = +1

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * (math.log(2.0) - x - softplus(-2 * x))


class AbsTransform(_Plain):
    """y = abs(x), whose inverse gives the positive x.

    Example:
        >>> adjit.distributions.transforms.AbsTransform()(adjit.tensor(-2.))
        tensor(2.)
    """

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """y = loc + scale * x.

    Args:
        loc: what is added.
        scale: what is multiplied.
        event_dim: how many dimensions belong together.

    Example:
        >>> adjit.distributions.transforms.AffineTransform(1., 2.)(adjit.tensor(3.))
        tensor(7.)
    """

    bijective = True

    def __init__(
        self, loc: Operand, scale: Operand, event_dim: int = 0, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        count = self._event_dim
        return constraints.independent(constraints.real, count) if count else constraints.real

    codomain = domain

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AffineTransform)
            and _are_equal(self.loc, other.loc)
            and _are_equal(self.scale, other.scale)
        )

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, NUMBERS):
            return (self.scale > 0) - (self.scale < 0)
        return self.scale.sign()

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, NUMBERS):
            result = x.new_full(x.shape, math.log(abs(self.scale)))
        else:
            result = self.scale.abs().log().expand(x.shape)
        return sum_rightmost(result, self._event_dim)

    def forward_shape(self, shape: Any) -> Any:
        sizes = [getattr(p, "shape", ()) for p in (self.loc, self.scale)]
        return broadcast_shapes(shape, *sizes)

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """The distribution function of a distribution, which makes its numbers uniform.

    Args:
        distribution: whose `cdf` and `icdf` are used.

    Example:
        >>> normal = adjit.distributions.Normal(0., 1.)
        >>> adjit.distributions.transforms.CumulativeDistributionTransform(normal)(adjit.tensor(0.))
        tensor(0.5000)
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = +1

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


# --------------------------------------------------------------------------- of vectors and matrices


class ReshapeTransform(Transform):
    """The same elements in another shape.

    Args:
        in_shape: the shape of one event.
        out_shape: the shape of what comes out.

    Raises:
        ValueError: if they have different numbers of elements.

    Example:
        >>> t = adjit.distributions.transforms.ReshapeTransform((4,), (2, 2))
        >>> t(adjit.zeros(3, 4)).shape
        adjit.Size([3, 2, 2])
    """

    bijective = True

    def __init__(
        self, in_shape: Iterable[int], out_shape: Iterable[int], cache_size: int = 0
    ) -> None:
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if numel(self.in_shape) != numel(self.out_shape):
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape((*x.shape[: x.ndim - len(self.in_shape)], *self.out_shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape((*y.shape[: y.ndim - len(self.out_shape)], *self.in_shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return self._exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._exchanged(shape, self.out_shape, self.in_shape)

    @staticmethod
    def _exchanged(shape: Any, old: Shape, new: Shape) -> Any:
        cut = len(at_least(shape, len(old))) - len(old)
        if tuple(shape[cut:]) != tuple(old):
            raise ValueError(f"Shape mismatch: expected {shape[cut:]} but got {old}")
        return Size((*shape[:cut], *new))


class SoftmaxTransform(_Plain):
    """The softmax along the last dimension. Its inverse, the logarithm, is one of many; it has no determinant.

    Example:
        >>> adjit.distributions.transforms.SoftmaxTransform()(adjit.zeros(2))
        tensor([0.5000, 0.5000])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        return at_least(shape)

    inverse_shape = forward_shape


class StickBreakingTransform(_Plain):
    """Vectors of n numbers to n + 1 numbers that add up to 1: each breaks a part off what is left of a stick.

    Example:
        >>> adjit.distributions.transforms.StickBreakingTransform()(adjit.zeros(1))
        tensor([0.5000, 0.5000])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    @staticmethod
    def _log_rest(x: Tensor) -> Tensor:
        """The logarithms of how many parts are still to be broken off."""
        n = x.shape[-1]
        return (n + 1 - x.new_ones(n).cumsum(-1)).log()

    def _call(self, x: Tensor) -> Tensor:
        z = clipped_sigmoid(x - self._log_rest(x))
        return pad(z, [0, 1], value=1) * pad((1 - z).cumprod(-1), [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = y[..., :-1]
        rest = (1 - parts.cumsum(-1)).clamp(min=tiny_of(y))  # rounding may make it negative
        return parts.log() - rest.log() + self._log_rest(parts)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._log_rest(x)
        return (-x + logsigmoid(x) + y[..., :-1].log()).sum(-1)  # 1 - z = exp(-x) z

    def forward_shape(self, shape: Any) -> Any:
        return (*at_least(shape)[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        return (*at_least(shape)[:-1], shape[-1] - 1)


class LowerCholeskyTransform(_Plain):
    """Matrices to lower triangular ones with a positive diagonal.

    Example:
        >>> adjit.distributions.transforms.LowerCholeskyTransform()(adjit.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Plain):
    """Matrices to positive-definite ones, by `LowerCholeskyTransform` and a product.

    Example:
        >>> adjit.distributions.transforms.PositiveDefiniteTransform()(adjit.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(linalg_cholesky(y))


class CorrCholeskyTransform(_Plain):
    """Vectors of n (n - 1) / 2 numbers to Cholesky factors of correlation matrices of n rows.

    Each number, made one of (-1, 1) by tanh, is a share of what is left of its row's length.

    Example:
        >>> adjit.distributions.transforms.CorrCholeskyTransform()(adjit.zeros(1))
        tensor([[1., 0.],
                [0., 1.]])
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        eps = eps_of(x)
        shares = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - shares.square()).sqrt().cumprod(-1)
        n = shares.shape[-1]
        shares = shares + eye(n, dtype=x.dtype, device=x.device)
        return shares * pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = pad((1 - y.square().cumsum(-1))[..., :-1], [1, 0], value=1)
        shares = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return shares.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # Of the elements below the diagonal: y has more, which follow from them.
        left = tril_matrix_to_vec(1 - y.square().cumsum(-1), diag=-2)
        of_tanh = -2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)
        return 0.5 * left.log().sum(-1) + of_tanh

    def forward_shape(self, shape: Any) -> Any:
        count = at_least(shape)[-1]
        n = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != count:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Any) -> Any:
        n = at_least(shape, 2)[-1]
        if shape[-2] != n:
            raise ValueError("Input is not square")
        return (*shape[:-2], n * (n - 1) // 2)
