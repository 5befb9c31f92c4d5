"""Sets that values of distributions and their parameters lie in: `constraint.check(value)` says which do.

A constraint has as many event dimensions (`event_dim`) as one value has; they are left out of what `check`
returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes
from ..ops import joining
from ..ops.creation import full
from ..ops.linalg import is_positive_definite
from ..tensor import Tensor
from .utils import eps_of

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent",
    "dependent_property", "greater_than", "greater_than_eq", "half_open_interval", "independent",
    "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky", "lower_triangular",
    "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
    "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack",
    "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A set of values.

    Attributes:
        is_discrete: whether it is a set of separate points.
        event_dim: how many dimensions one value has.

    Example:
        >>> adjit.distributions.constraints.positive.check(adjit.tensor([1., -1.]))
        tensor([ True, False])
    """

    is_discrete: Any = False
    event_dim: Any = 0
    _shown: tuple[str, ...] = ()  # attributes that `repr` shows

    def check(self, value: Tensor) -> Tensor:
        """Tell which values are in the set: a tensor of truth values, without the event dimensions.

        Example:
            >>> adjit.distributions.constraints.simplex.check(adjit.tensor([0.5, 0.5]))
            tensor(True)
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)
        return f"{self.__class__.__name__[1:]}({shown})"


# --------------------------------------------------------------------------- dependent and composed


def _require(holds: bool, told: str) -> None:
    """Raise as PyTorch does for constraints that cannot be made."""
    if not holds:
        raise AssertionError(told)


class _Dependent(Constraint):
    """A set that depends on the parameters of a distribution: nothing can be checked.

    Example:
        >>> adjit.distributions.constraints.dependent(event_dim=1).event_dim
        1
    """

    def __init__(
        self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented
    ) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> Any:
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return self._is_discrete

    @property
    def event_dim(self) -> Any:
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return self._event_dim

    def __call__(
        self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented
    ) -> Constraint:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Tell whether a constraint depends on parameters, so that nothing can be checked.

    Example:
        >>> adjit.distributions.constraints.is_dependent(adjit.distributions.constraints.dependent)
        True
    """
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """Make a method that returns a constraint a property, which is a dependent constraint of the class.

    Args:
        is_discrete: whether values are separate points, if that is known of the class.
        event_dim: how many dimensions one value has, if that is known of the class.

    Example:
        >>> class Below(adjit.distributions.Distribution):
        ...     @adjit.distributions.constraints.dependent_property(is_discrete=False, event_dim=0)
        ...     def support(self):
        ...         return adjit.distributions.constraints.less_than(self.high)
        >>> Below.support.event_dim
        0
    """

    def __init__(
        self, fn: Callable[..., Any] | None = None, *, is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:  # fmt: skip
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[..., Any]) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _OfBase(Constraint):
    """A constraint made of another one."""

    def __init__(self, base_constraint: Constraint) -> None:
        _require(
            isinstance(base_constraint, Constraint),
            f"base_constraint must be a Constraint, got {type(base_constraint).__name__}",
        )
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> Any:
        return self.base_constraint.is_discrete


class _IndependentConstraint(_OfBase):
    """Values whose parts, along dimensions that count as those of one event, are all in a set.

    Args:
        base_constraint: the set of the parts.
        reinterpreted_batch_ndims: how many more dimensions belong to one value.

    Example:
        >>> c = adjit.distributions.constraints
        >>> c.independent(c.positive, 1).check(adjit.tensor([[1., 2.], [1., -2.]]))
        tensor([ True, False])
    """

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        super().__init__(base_constraint)
        count = reinterpreted_batch_ndims
        _require(
            isinstance(count, int),
            f"reinterpreted_batch_ndims must be an int, got {type(count).__name__}",
        )
        _require(count >= 0, f"reinterpreted_batch_ndims must be >= 0, got {count}")
        self.reinterpreted_batch_ndims = count

    @property
    def event_dim(self) -> Any:
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        batch = result.ndim - self.reinterpreted_batch_ndims
        if batch < 0:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        return result.reshape((*result.shape[:batch], -1)).all(-1)

    def __repr__(self) -> str:
        name = self.__class__.__name__[1:]
        return f"{name}({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(_OfBase):
    """Values that are in the supports of all components of a mixture.

    Args:
        base_constraint: the support of the components.

    Example:
        >>> c = adjit.distributions.constraints
        >>> c.MixtureSameFamilyConstraint(c.positive).check(adjit.tensor([1., -1.]))
        tensor([ True, False])
    """

    @property
    def event_dim(self) -> Any:
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        batch = value.ndim - self.event_dim
        if batch < 0:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        return result.reshape((*result.shape[:batch], -1)).all(-1)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.base_constraint!r})"


class _OfSeveral(Constraint):
    """Parts of a tensor along one dimension, each with a constraint of its own."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        _require(
            all(isinstance(c, Constraint) for c in cseq),
            "All elements of cseq must be Constraint instances",
        )
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> Any:
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> Any:
        return max(c.event_dim for c in self.cseq)

    def _check_dim(self, value: Tensor) -> None:
        _require(
            -value.ndim <= self.dim < value.ndim,
            f"dim {self.dim} out of range for value with {value.ndim} dimensions",
        )


class _Cat(_OfSeveral):
    """Parts of given lengths along a dimension, each with a constraint of its own.

    Args:
        cseq: the constraints.
        dim: the dimension.
        lengths: how long the parts are; all of length 1 if None.

    Example:
        >>> c = adjit.distributions.constraints
        >>> c.cat([c.positive, c.real], 0, [1, 2]).check(adjit.tensor([-1., -1., 1.]))
        tensor([False,  True,  True])
    """

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        _require(
            len(self.lengths) == len(self.cseq),
            f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})",
        )

    def check(self, value: Tensor) -> Tensor:
        self._check_dim(value)
        checks, start = [], 0
        for constraint, length in zip(self.cseq, self.lengths, strict=True):
            checks.append(constraint.check(value.narrow(self.dim, start, length)))
            start += length
        return joining.cat(checks, self.dim)


class _Stack(_OfSeveral):
    """Slices along a dimension, each with a constraint of its own.

    Args:
        cseq: the constraints.
        dim: the dimension.

    Example:
        >>> c = adjit.distributions.constraints
        >>> c.stack([c.positive, c.real]).check(adjit.tensor([-1., -1.]))
        tensor([False,  True])
    """

    @property
    def event_dim(self) -> Any:
        most: int = super().event_dim
        return most + 1 if self.dim + most < 0 else most

    def check(self, value: Tensor) -> Tensor:
        self._check_dim(value)
        slices = value.unbind(self.dim)
        checks = [c.check(v) for v, c in zip(slices, self.cseq, strict=False)]
        return joining.stack(checks, self.dim)


# --------------------------------------------------------------------------- numbers


class _Boolean(Constraint):
    """0 and 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _Real(Constraint):
    """All numbers but NaN."""

    def check(self, value: Tensor) -> Tensor:
        return value == value


class _Above(Constraint):
    """A constraint with a lower bound."""

    _shown = ("lower_bound",)

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _Below(Constraint):
    """A constraint with an upper bound."""

    _shown = ("upper_bound",)

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class _Between(Constraint):
    """A constraint with both bounds."""

    _shown = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _IntegerInterval(_Between):
    """Whole numbers from `lower_bound` to `upper_bound`, both included.

    Example:
        >>> adjit.distributions.constraints.integer_interval(0, 2).check(adjit.tensor([2., 1.5]))
        tensor([ True, False])
    """

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Above):
    """Whole numbers from a bound up."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _GreaterThan(_Above):
    """Numbers above `lower_bound`.

    Example:
        >>> adjit.distributions.constraints.greater_than(1).check(adjit.tensor([1., 2.]))
        tensor([False,  True])
    """

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


class _GreaterThanEq(_Above):
    """Numbers from `lower_bound` up.

    Example:
        >>> adjit.distributions.constraints.greater_than_eq(1).check(adjit.tensor([1., 0.]))
        tensor([ True, False])
    """

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class _LessThan(_Below):
    """Numbers below `upper_bound`.

    Example:
        >>> adjit.distributions.constraints.less_than(1).check(adjit.tensor([1., 0.]))
        tensor([False,  True])
    """

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class _Interval(_Between):
    """Numbers from `lower_bound` to `upper_bound`, both included.

    Example:
        >>> adjit.distributions.constraints.interval(0, 1).check(adjit.tensor([1., 2.]))
        tensor([ True, False])
    """

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    """Numbers from `lower_bound` to below `upper_bound`.

    Example:
        >>> adjit.distributions.constraints.half_open_interval(0, 1).check(adjit.tensor([0., 1.]))
        tensor([ True, False])
    """

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


# --------------------------------------------------------------------------- vectors


class _OneHot(Constraint):
    """Vectors of zeros with a one."""

    is_discrete, event_dim = True, 1

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & value.sum(-1).eq(1)


class _Simplex(Constraint):
    """Vectors of numbers that are not negative and add up to 1."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(_Below):
    """Vectors of counts that add up to at most `upper_bound`.

    Example:
        >>> adjit.distributions.constraints.multinomial(3).check(adjit.tensor([[1., 2.], [2., 2.]]))
        tensor([ True, False])
    """

    is_discrete, event_dim = True, 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)

    def __repr__(self) -> str:
        return "Multinomial()"


# --------------------------------------------------------------------------- matrices


class _LowerTriangular(Constraint):
    """Matrices with zeros above the diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    """Lower triangular matrices with a positive diagonal."""

    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """Cholesky factors of correlation matrices: lower ones whose rows have length 1."""

    def check(self, value: Tensor) -> Tensor:
        tolerance = eps_of(value) * value.shape[-1] * 10
        lengths = value.detach().square().sum(-1).sqrt()
        return super().check(value) & ((lengths - 1).abs() <= tolerance).all(-1)


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        is_square = value.shape[-2] == value.shape[-1]
        return full(value.shape[:-2], is_square, dtype=dtypes.bool, device=value.device)


class _Symmetric(_Square):
    """Symmetric matrices."""

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return value.isclose(value.mT, atol=1e-6).all(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices whose eigenvalues are not negative."""

    def check(self, value: Tensor) -> Tensor:
        raise NotImplementedError(
            "constraints.positive_semidefinite needs eigenvalues, which adjit has not yet; check the "
            "matrices with numpy.linalg.eigvalsh(value.detach().numpy())"
        )


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices whose eigenvalues are positive."""

    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        return is_positive_definite(value) if symmetric.all() else symmetric


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
