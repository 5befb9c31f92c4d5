"""What every distribution has, and how its parameters are checked and expanded."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

from ..autograd import no_grad
from ..shapes import Shape, Size
from ..tensor import Tensor
from . import constraints
from .utils import lazy_property

__all__ = ["Distribution"]

PACKAGE = __name__.rpartition(".")[0]


class Unsaid:
    """Stands for what a subclass has to say: to look at it is an error."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        raise NotImplementedError


class Distribution:
    """A distribution of tensors: a batch of independent ones, each of events of one shape.

    A subclass names its parameters in `arg_constraints`; each is an attribute of the shape `batch_shape` with
    the dimensions of the parameter behind.

    Args:
        batch_shape: how many distributions, one beside the other.
        event_shape: the shape of one value.
        validate_args: whether to check parameters and values, which looks at them; `__debug__` if None.

    Attributes:
        arg_constraints: of the parameters, by name.
        support: where values lie.
        has_rsample: whether `rsample` gives samples that are differentiable in the parameters.
        has_enumerate_support: whether `enumerate_support` is there.

    Raises:
        ValueError: if a parameter is not where it may be.

    Example:
        >>> adjit.distributions.Normal(adjit.zeros(3), 1.).batch_shape
        adjit.Size([3])
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    arg_constraints: Any = Unsaid()
    support: Any = Unsaid()
    _validate_args: bool = __debug__
    # What an expanded copy has beside the parameters: tensors that are expanded; and distributions, which are
    # expanded too, and anything else, as it is.
    _expands: ClassVar[tuple[str, ...]] = ()
    _keeps: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Choose whether distributions made from now on check their parameters and values.

        Raises:
            ValueError: if it is no truth value.

        Example:
            >>> adjit.distributions.Distribution.set_default_validate_args(True)
        """
        if value not in [True, False]:
            raise ValueError
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Iterable[int] = (), event_shape: Iterable[int] = (),
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()
        super().__init__()  # of what a class of the program is besides: a module

    def _validate_parameters(self) -> None:
        for name, constraint in self._constraints().items():
            is_lazy = isinstance(getattr(type(self), name, None), lazy_property)
            if constraints.is_dependent(constraint) or (is_lazy and name not in self.__dict__):
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) "
                    f"of distribution {self!r} to satisfy the constraint {constraint!r}, but found "
                    f"invalid values:\n{value}"
                )

    def _constraints(self) -> dict[str, constraints.Constraint]:
        """Those of the parameters, with a warning where a class does not say."""
        try:
            found: dict[str, constraints.Constraint] = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. Please set `arg_constraints = {{}}` "
                "or initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return {}
        return found

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> Any:
        """Make the same distribution with another batch shape, whose parameters are expanded views.

        Raises:
            NotImplementedError: for a subclass with an `__init__` of its own, which has to do it itself.

        Example:
            >>> adjit.distributions.Normal(0., 1.).expand((2, 3)).batch_shape
            adjit.Size([2, 3])
        """
        ours = next(c for c in type(self).__mro__ if c.__module__.startswith(PACKAGE))
        new = self._get_checked_instance(ours, _instance)
        shape, old = Size(batch_shape), len(self._batch_shape)
        for name in (*self.arg_constraints, *self._expands, *self._keeps):
            value = self.__dict__.get(name)
            if isinstance(value, Distribution):
                value = value.expand((*shape, *value.batch_shape[old:]))
            elif isinstance(value, Tensor) and name not in self._keeps:
                value = value.expand((*shape, *value.shape[old:]))
            if value is not None:
                new.__dict__[name] = value
        Distribution.__init__(new, shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """An instance to fill: a new one, unless a subclass gives its own."""
        if _instance is not None:
            return _instance
        if type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return type(self).__new__(type(self))

    @property
    def batch_shape(self) -> Size:
        """Tell how many distributions lie one beside the other.

        Example:
            >>> adjit.distributions.Normal(adjit.zeros(3), 1.).batch_shape
            adjit.Size([3])
        """
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """Tell the shape of one value.

        Example:
            >>> adjit.distributions.Dirichlet(adjit.ones(3)).event_shape
            adjit.Size([3])
        """
        return self._event_shape

    @property
    def mean(self) -> Tensor:
        """Give the mean.

        Example:
            >>> adjit.distributions.Uniform(0., 3.).mean
            tensor(1.5000)
        """
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """Give the value of the largest density.

        Raises:
            NotImplementedError: where it is not implemented.

        Example:
            >>> adjit.distributions.Exponential(1.).mode
            tensor(0.)
        """
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """Give the variance.

        Example:
            >>> adjit.distributions.Normal(0., 3.).variance
            tensor(9.)
        """
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """Give the standard deviation.

        Example:
            >>> adjit.distributions.Normal(0., 3.).stddev
            tensor(3.)
        """
        return self.variance.sqrt()

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Draw values, of the shape `sample_shape`, `batch_shape`, `event_shape`. Not differentiable.

        Example:
            >>> adjit.distributions.Normal(adjit.zeros(3), 1.).sample((2,)).shape
            adjit.Size([2, 3])
        """
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Draw values that are differentiable in the parameters (`has_rsample`).

        Example:
            >>> scale = adjit.tensor(0., requires_grad=True)
            >>> adjit.distributions.Normal(2., scale.exp()).rsample().requires_grad
            True
        """
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """Draw `n` values; use `sample((n,))` instead, which does not warn.

        Example:
            >>> adjit.distributions.Normal(0., 1.).sample_n(4).shape
            adjit.Size([4])
        """
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.",
            FutureWarning, stacklevel=2,
        )  # fmt: skip
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """Give the logarithm of the density, or of the chance, at values.

        Raises:
            ValueError: if arguments are validated and a value does not fit or is not in the support.

        Example:
            >>> adjit.distributions.Exponential(1.).log_prob(adjit.tensor([0., 2.]))
            tensor([ 0., -2.])
        """
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """Give the chance of not more than each value.

        Raises:
            NotImplementedError: where there is no closed form.

        Example:
            >>> adjit.distributions.Uniform(0., 4.).cdf(adjit.tensor([1., 3.]))
            tensor([0.2500, 0.7500])
        """
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """Give the values that are not exceeded with these chances: the inverse of `cdf`.

        Raises:
            NotImplementedError: where there is no closed form.

        Example:
            >>> adjit.distributions.Uniform(0., 4.).icdf(adjit.tensor([0.25, 0.75]))
            tensor([1., 3.])
        """
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """List all values of a discrete distribution along a new first dimension.

        Args:
            expand: whether to repeat them for the whole batch.

        Raises:
            NotImplementedError: where there are too many.

        Example:
            >>> adjit.distributions.Bernoulli(0.5).enumerate_support()
            tensor([0., 1.])
        """
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Give the entropy, in nats.

        Raises:
            NotImplementedError: where there is no closed form.

        Example:
            >>> adjit.distributions.Uniform(0., 1.).entropy()
            tensor(0.)
        """
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """Give the exponential of the entropy.

        Example:
            >>> adjit.distributions.Uniform(0., 3.).perplexity()
            tensor(3.)
        """
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Iterable[int] = ()) -> Shape:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _checked(self, value: Tensor) -> Tensor:
        """A value, validated if arguments are."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        batch = len(value.shape) - len(self._event_shape)
        if value.shape[batch:] != self._event_shape:
            raise ValueError(
                f"The right-most size of value must match event_shape: {value.shape} vs {self._event_shape}."
            )
        expected = self._extended_shape()
        for i, j in zip(reversed(value.shape), reversed(expected), strict=False):
            if 1 not in (i, j) and i != j:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {expected}."
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable sample validation. Please "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        if not support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be "
                f"within the support ({support!r}) of the distribution {self!r}, but found invalid "
                f"values:\n{value}"
            )

    def __repr__(self) -> str:
        found = {k: self.__dict__[k] for k in self.arg_constraints if k in self.__dict__}
        shown = [f"{k}: {v if v.numel() == 1 else v.size()}" for k, v in found.items()]
        return f"{self.__class__.__name__}({', '.join(shown)})"
