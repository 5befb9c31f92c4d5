"""Transforms from all real numbers to a constraint: `biject_to` bijective ones, `transform_to` cheap ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import constraints, transforms
from .utils import NUMBERS

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Transforms by the classes of the constraints that they lead to.

    Example:
        >>> adjit.distributions.transform_to(adjit.distributions.constraints.unit_interval)
        SigmoidTransform()
    """

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], transforms.Transform]] = {}

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Say what makes the transform to constraints of a class.

        Args:
            constraint: the class, or a constraint of it.
            factory: a function that gives the transform for a constraint; without it a decorator comes back.

        Raises:
            TypeError: if there is no constraint.

        Example:
            >>> class Even(adjit.distributions.constraints.Constraint):
            ...     pass
            >>> @adjit.distributions.transform_to.register(Even)
            ... def to_even(constraint):
            ...     return adjit.distributions.AffineTransform(0, 2)
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not isinstance(constraint, type) or not issubclass(constraint, constraints.Constraint):
            raise TypeError(
                f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}"
            )
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint: constraints.Constraint) -> transforms.Transform:
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(*kinds: Any) -> Callable[[Any], Any]:
    """Register a factory of a registry and a constraint in both."""

    def register(factory: Callable[[ConstraintRegistry, Any], transforms.Transform]) -> Any:
        for registry in (biject_to, transform_to):
            for kind in kinds:
                registry.register(kind, lambda c, registry=registry: factory(registry, c))
        return factory

    return register


@_both(constraints.real)
def _to_real(registry: ConstraintRegistry, constraint: Any) -> transforms.Transform:
    return transforms.identity_transform


@_both(constraints.independent)
def _to_independent(registry: ConstraintRegistry, constraint: Any) -> transforms.Transform:
    return transforms.IndependentTransform(
        registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims
    )


@_both(constraints.greater_than, constraints.greater_than_eq)
def _to_above(registry: ConstraintRegistry, constraint: Any) -> transforms.Transform:
    low = constraint.lower_bound
    return _affine_after(transforms.ExpTransform(), low, 1)


@_both(constraints.less_than)
def _to_below(registry: ConstraintRegistry, constraint: Any) -> transforms.Transform:
    return _affine_after(transforms.ExpTransform(), constraint.upper_bound, -1)


@_both(constraints.interval, constraints.half_open_interval)
def _to_interval(registry: ConstraintRegistry, constraint: Any) -> transforms.Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, NUMBERS) and isinstance(high, NUMBERS) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return _affine_after(transforms.SigmoidTransform(), low, high - low)


def _affine_after(first: transforms.Transform, loc: Any, scale: Any) -> transforms.Transform:
    return transforms.ComposeTransform([first, transforms.AffineTransform(loc, scale)])


@_both(constraints.corr_cholesky)
def _to_corr_cholesky(registry: ConstraintRegistry, constraint: Any) -> transforms.Transform:
    return transforms.CorrCholeskyTransform()


@_both(constraints.cat)
def _to_cat(registry: ConstraintRegistry, constraint: Any) -> transforms.Transform:
    parts = [registry(c) for c in constraint.cseq]
    return transforms.CatTransform(parts, constraint.dim, constraint.lengths)


@_both(constraints.stack)
def _to_stack(registry: ConstraintRegistry, constraint: Any) -> transforms.Transform:
    return transforms.StackTransform([registry(c) for c in constraint.cseq], constraint.dim)


biject_to.register(constraints.simplex, lambda _: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda _: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda _: transforms.LowerCholeskyTransform())
for _kind in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_kind, lambda _: transforms.PositiveDefiniteTransform())
