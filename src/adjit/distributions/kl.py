"""Divergences of Kullback and Leibler, by pairs of classes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from ..nn.functional import softplus
from ..ops.comparison import where
from ..ops.linalg import solve_triangular
from ..shapes import broadcast_shapes
from ..tensor import Tensor
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .covariance import half_log_det, mahalanobis, squared_norm
from .dirichlet import Dirichlet
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .laplace import Laplace
from .lowrank_multivariate_normal import LowRankMultivariateNormal, distance, log_det, weighted
from .multivariate_normal import MultivariateNormal
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import euler_constant, sum_rightmost

__all__ = ["kl_divergence", "register_kl"]

Pair = tuple[type, type]
Rule = Callable[[Any, Any], Tensor]

_KL_REGISTRY: dict[Pair, Rule] = {}  # as registered
_KL_MEMOIZE: dict[Pair, Rule | None] = {}  # of the classes that came, found


def register_kl(type_p: type, type_q: type) -> Callable[[Rule], Rule]:
    """Register a function of p and q that gives the divergence between two classes, and their subclasses.

    The rule of the most specific classes is taken; where that is not clear, `kl_divergence` warns.

    Raises:
        TypeError: if one is no class.

    Example:
        >>> class Fixed(adjit.distributions.Distribution):
        ...     arg_constraints = {}
        >>> @adjit.distributions.register_kl(Fixed, Fixed)
        ... def divergence(p, q):
        ...     return adjit.tensor(0.)
        >>> adjit.distributions.kl_divergence(Fixed(), Fixed())
        tensor(0.)
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):  # of what is mixed into distributions too, as in Pyro
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def decorator(function: Rule) -> Rule:
        _KL_REGISTRY[type_p, type_q] = function
        _KL_MEMOIZE.clear()
        return function

    return decorator


def _found(type_p: type, type_q: type) -> Rule | None:
    """The rule for two classes."""
    matches = [(p, q) for p, q in _KL_REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not matches:
        return None
    near_p, near_q = type_p.__mro__.index, type_q.__mro__.index
    left = min(matches, key=lambda pair: (near_p(pair[0]), near_q(pair[1])))
    right = min(matches, key=lambda pair: (near_q(pair[1]), near_p(pair[0])))
    if _KL_REGISTRY[left] is not _KL_REGISTRY[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please "
            f"register_kl({left[0].__name__}, {right[1].__name__})",
            RuntimeWarning, stacklevel=3,
        )  # fmt: skip
    return _KL_REGISTRY[left]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Give the divergence of Kullback and Leibler: the mean of log p(x) - log q(x) over x from p.

    Args:
        p: a distribution.
        q: another one, whose batch shape broadcasts.

    Returns:
        A tensor of the batch shape. Differentiable in the parameters.

    Raises:
        NotImplementedError: if there is no rule for the two classes (`register_kl`).

    Example:
        >>> normal = adjit.distributions.Normal
        >>> adjit.distributions.kl_divergence(normal(0., 1.), normal(1., 1.))
        tensor(0.5000)
    """
    pair = type(p), type(q)
    if pair not in _KL_MEMOIZE:
        _KL_MEMOIZE[pair] = _found(*pair)
    rule = _KL_MEMOIZE[pair]
    if rule is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
        )
    return rule(p, q)


def _infinite_where(condition: Tensor, x: Tensor) -> Tensor:
    return where(condition, math.inf, x)


def _x_log_x(x: Tensor) -> Tensor:
    return x.xlogy(x)


def _log_beta(q: Beta) -> Tensor:
    """The logarithm of the beta function of the parameters."""
    return q._log_normalizer(q.concentration1, q.concentration0)


def _log_gamma_norm(q: Gamma) -> Tensor:
    """What the logarithm of a gamma density lacks."""
    return q.concentration.lgamma() - q.concentration * q.rate.log()


# --------------------------------------------------------------------------- infinite

# p has values that q has not.
_INFINITE = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def _kl_infinite(p: Any, q: Any) -> Tensor:
    return p.mean.new_full(broadcast_shapes(p.batch_shape, q.batch_shape), math.inf)


for _p, _others in _INFINITE.items():
    for _q in _others:
        register_kl(_p, _q)(_kl_infinite)


# --------------------------------------------------------------------------- of one family


@register_kl(Bernoulli, Bernoulli)
def _kl_bernoulli_bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    def part(p_one: Tensor, q_one: Tensor, p_logits: Tensor, q_logits: Tensor) -> Tensor:
        found = p_one * (softplus(-q_logits) - softplus(-p_logits))
        return where(p_one == 0, 0.0, where(q_one == 0, math.inf, found))

    success = part(p.probs, q.probs, p.logits, q.logits)
    return success + part(1 - p.probs, 1 - q.probs, -p.logits, -q.logits)


@register_kl(Beta, Beta)
def _kl_beta_beta(p: Beta, q: Beta) -> Tensor:
    return _kl_dirichlet_dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Binomial, Binomial)
def _kl_binomial_binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return _infinite_where(p.total_count > q.total_count, p.total_count * each)


@register_kl(Categorical, Categorical)
def _kl_categorical_categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = _infinite_where(q.probs == 0, p.probs * (p.logits - q.logits))
    return where(p.probs == 0, 0.0, terms).sum(-1)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _kl_continuous_bernoulli_continuous_bernoulli(
    p: ContinuousBernoulli, q: ContinuousBernoulli
) -> Tensor:
    norms = [d._cont_bern_log_norm() + (-d.probs).log1p() for d in (p, q)]
    return p.mean * (p.logits - q.logits) + norms[0] - norms[1]


@register_kl(Dirichlet, Dirichlet)
def _kl_dirichlet_dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    mean_logs = a.digamma() - a.sum(-1, True).digamma()
    return q._log_normalizer(b) - p._log_normalizer(a) + ((a - b) * mean_logs).sum(-1)


@register_kl(Exponential, Exponential)
def _kl_exponential_exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_expfamily_expfamily(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """Bregman's divergence of the normalizer."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using "
            "Bregman divergences"
        )
    parameters, normalizer, means = p._normalized()
    result = q._log_normalizer(*q._natural_params) - normalizer
    for own, other, mean in zip(parameters, q._natural_params, means, strict=True):
        result = result - sum_rightmost((other - own) * mean, own.ndim - len(p.batch_shape))
    return result


@register_kl(Gamma, Gamma)
def _kl_gamma_gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    return (
        b * (p.rate / q.rate).log()
        + b.lgamma()
        - a.lgamma()
        + (a - b) * a.digamma()
        + (q.rate - p.rate) * (a / p.rate)
    )


@register_kl(Gumbel, Gumbel)
def _kl_gumbel_gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, away = p.scale / q.scale, (q.loc - p.loc) / q.scale
    growth = (away + (1 + ratio).lgamma()).exp()
    return ratio * euler_constant - ratio.log() - away + growth - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _kl_geometric_geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _kl_halfnormal_halfnormal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _kl_normal_normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _kl_laplace_laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return away / q.scale + ratio * (-away / p.scale).exp() - ratio.log() - 1


@register_kl(Normal, Normal)
def _kl_normal_normal(p: Normal, q: Normal) -> Tensor:
    ratio, away = (p.scale / q.scale).square(), ((p.loc - q.loc) / q.scale).square()
    return 0.5 * (ratio + away - 1 - ratio.log())


@register_kl(OneHotCategorical, OneHotCategorical)
def _kl_onehotcategorical_onehotcategorical(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _kl_categorical_categorical(p._categorical, q._categorical)


@register_kl(Pareto, Pareto)
def _kl_pareto_pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return _infinite_where(p.scale < q.scale, found)


@register_kl(Poisson, Poisson)
def _kl_poisson_poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _kl_uniform_uniform(p: Uniform, q: Uniform) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return _infinite_where((q.low > p.low) | (q.high < p.high), found)


@register_kl(Cauchy, Cauchy)
def _kl_cauchy_cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    """Chyzak and Nielsen, 2019."""
    squares = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return squares.log() - (4 * p.scale * q.scale).log()


@register_kl(TransformedDistribution, TransformedDistribution)
def _kl_transformed_transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _kl_independent_independent(p: Independent[Any], q: Independent[Any]) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# --------------------------------------------------------------------------- normal vectors


def _check_event_shapes(p: Distribution, q: Distribution, kind: str) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {kind} with different event shapes cannot be computed"
        )


def _trace_by_low_rank(q: LowRankMultivariateNormal, factor: Tensor) -> Tensor:
    """trace(S_q^-1 X X^T), by Woodbury's identity."""
    root = q._unbroadcasted_cov_diag.rsqrt().unsqueeze(-1)
    inner = solve_triangular(q._capacitance_tril, weighted(q), upper=False)
    return squared_norm(factor * root) - squared_norm(inner @ factor)


def _kl_of_terms(p: Any, q: Any, log_ratio: Tensor, trace: Tensor, away: Tensor) -> Tensor:
    """The divergence of normal vectors; `log_ratio` is that of the determinants."""
    return 0.5 * (log_ratio + trace + away - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _kl_lowrank_lowrank(p: LowRankMultivariateNormal, q: LowRankMultivariateNormal) -> Tensor:
    _check_event_shapes(p, q, "Low Rank Multivariate Normals")
    factor, diagonal = p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag.sqrt().diag_embed()
    trace = _trace_by_low_rank(q, factor) + _trace_by_low_rank(q, diagonal)
    return _kl_of_terms(p, q, log_det(q) - log_det(p), trace, distance(q, q.loc - p.loc))


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _kl_multivariatenormal_lowrank(p: MultivariateNormal, q: LowRankMultivariateNormal) -> Tensor:
    _check_event_shapes(p, q, "(Low Rank) Multivariate Normals")
    factor = p._unbroadcasted_scale_tril
    log_ratio = log_det(q) - 2 * half_log_det(factor)
    trace = _trace_by_low_rank(q, factor)
    return _kl_of_terms(p, q, log_ratio, trace, distance(q, q.loc - p.loc))


def _trace_by_factor(q: MultivariateNormal, factor: Tensor) -> Tensor:
    """trace(S_q^-1 X X^T)."""
    return squared_norm(solve_triangular(q._unbroadcasted_scale_tril, factor, upper=False))


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _kl_lowrank_multivariatenormal(p: LowRankMultivariateNormal, q: MultivariateNormal) -> Tensor:
    _check_event_shapes(p, q, "(Low Rank) Multivariate Normals")
    factor, diagonal = p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag.sqrt().diag_embed()
    log_ratio = 2 * half_log_det(q._unbroadcasted_scale_tril) - log_det(p)
    trace = _trace_by_factor(q, factor) + _trace_by_factor(q, diagonal)
    away = mahalanobis(q._unbroadcasted_scale_tril, q.loc - p.loc)
    return _kl_of_terms(p, q, log_ratio, trace, away)


@register_kl(MultivariateNormal, MultivariateNormal)
def _kl_multivariatenormal_multivariatenormal(
    p: MultivariateNormal, q: MultivariateNormal
) -> Tensor:
    _check_event_shapes(p, q, "Multivariate Normals")
    own, other = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    log_ratio = 2 * (half_log_det(other) - half_log_det(own))
    away = mahalanobis(other, q.loc - p.loc)
    return _kl_of_terms(p, q, log_ratio, _trace_by_factor(q, own), away)


# --------------------------------------------------------------------------- of two families

# Where q is normal, exponential or gamma, means of p are enough: of x, of its square, of its logarithm.


def _to_normal(p: Any, q: Normal, mean: Tensor, variance: Tensor) -> Tensor:
    """The divergence from a distribution with an entropy."""
    away = (variance + (mean - q.loc).square()) / (2 * q.scale.square())
    return away - p.entropy() + 0.5 * math.log(2 * math.pi) + q.scale.log()


@register_kl(Beta, Normal)
@register_kl(ContinuousBernoulli, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Uniform, Normal)
def _kl_to_normal(p: Any, q: Normal) -> Tensor:
    return _to_normal(p, q, p.mean, p.variance)


@register_kl(Pareto, Normal)
def _kl_pareto_normal(p: Pareto, q: Normal) -> Tensor:
    return _infinite_where(p.alpha <= 2, _to_normal(p, q, p.mean, p.variance))


@register_kl(Beta, Exponential)
@register_kl(ContinuousBernoulli, Exponential)
@register_kl(Gamma, Exponential)
def _kl_to_exponential(p: Any, q: Exponential) -> Tensor:
    return q.rate * p.mean - p.entropy() - q.rate.log()


@register_kl(Pareto, Exponential)
def _kl_pareto_exponential(p: Pareto, q: Exponential) -> Tensor:
    return _infinite_where(p.alpha <= 1, _kl_to_exponential(p, q))


@register_kl(Uniform, Exponential)
def _kl_uniform_exponential(p: Uniform, q: Exponential) -> Tensor:
    return _infinite_where(p.low < 0, _kl_to_exponential(p, q))


def _to_gamma(p: Any, q: Gamma, mean_log: Tensor) -> Tensor:
    """The divergence from a distribution with a mean and an entropy."""
    return _log_gamma_norm(q) + q.rate * p.mean - (q.concentration - 1) * mean_log - p.entropy()


@register_kl(Beta, Gamma)
def _kl_beta_gamma(p: Beta, q: Gamma) -> Tensor:
    total = p.concentration1 + p.concentration0
    return _to_gamma(p, q, p.concentration1.digamma() - total.digamma())


@register_kl(Exponential, Gamma)
def _kl_exponential_gamma(p: Exponential, q: Gamma) -> Tensor:
    return _to_gamma(p, q, -euler_constant - p.rate.log())


@register_kl(Pareto, Gamma)
def _kl_pareto_gamma(p: Pareto, q: Gamma) -> Tensor:
    found = _to_gamma(p, q, p.scale.log() + p.alpha.reciprocal())
    return _infinite_where(p.alpha <= 1, found)


def _mean_log_uniform(p: Uniform) -> Tensor:
    """The mean of log(x)."""
    return (_x_log_x(p.high) - _x_log_x(p.low)) / (p.high - p.low) - 1


@register_kl(Uniform, Gamma)
def _kl_uniform_gamma(p: Uniform, q: Gamma) -> Tensor:
    return _infinite_where(p.low < 0, _to_gamma(p, q, _mean_log_uniform(p)))


@register_kl(Bernoulli, Poisson)
def _kl_bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs * q.rate.log() - p.entropy()


def _to_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()


@register_kl(Beta, ContinuousBernoulli)
def _kl_beta_continuous_bernoulli(p: Beta, q: ContinuousBernoulli) -> Tensor:
    return _to_continuous_bernoulli(p, q)


@register_kl(Uniform, ContinuousBernoulli)
def _kl_uniform_continuous_bernoulli(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    return _infinite_where((p.high > 1) | (p.low < 0), _to_continuous_bernoulli(p, q))


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _kl_to_uniform(p: Any, q: Uniform) -> Tensor:
    found = (q.high - q.low).log() - p.entropy()
    return _infinite_where((q.low > 0) | (q.high < 1), found)


@register_kl(Exponential, Gumbel)
def _kl_exponential_gumbel(p: Exponential, q: Gumbel) -> Tensor:
    product, place = p.rate * q.scale, q.loc / q.scale
    tail = place.exp() * product / (product + 1)
    return product.log() - 1 - place + tail + product.reciprocal()


@register_kl(Gamma, Gumbel)
def _kl_gamma_gumbel(p: Gamma, q: Gumbel) -> Tensor:
    a, product, place = p.concentration, p.rate * q.scale, q.loc / q.scale
    tail = place.exp() * (1 + product.reciprocal()).pow(-a)
    own = (a - 1) * a.digamma() - a.lgamma() - a
    return own + product.log() + a / product + tail - place


@register_kl(Normal, Gumbel)
def _kl_normal_gumbel(p: Normal, q: Gumbel) -> Tensor:
    away, ratio = (p.loc - q.loc) / q.scale, (p.scale / q.scale).square()
    growth = (0.5 * ratio - away).exp()
    return away + growth - 0.5 * ratio.log() - 0.5 * (1 + math.log(2 * math.pi))


@register_kl(Uniform, Gumbel)
def _kl_uniform_gumbel(p: Uniform, q: Gumbel) -> Tensor:
    share = q.scale / (p.high - p.low)
    high, low = (p.high - q.loc) / q.scale, (p.low - q.loc) / q.scale
    return share.log() + 0.5 * (high + low) - share * ((-high).exp() - (-low).exp())


@register_kl(Normal, Laplace)
def _kl_normal_laplace(p: Normal, q: Laplace) -> Tensor:
    away = (p.loc - q.loc) / p.scale
    mean_distance = math.sqrt(2 / math.pi) * (-0.5 * away.square()).exp()
    mean_distance = p.scale * (mean_distance + away * (math.sqrt(0.5) * away).erf())
    return mean_distance / q.scale - (p.scale / q.scale).log() - 0.5 * (1 + math.log(0.5 * math.pi))


@register_kl(Uniform, Beta)
def _kl_uniform_beta(p: Uniform, q: Beta) -> Tensor:
    width = p.high - p.low
    mean_log_rest = (_x_log_x(1 - p.low) - _x_log_x(1 - p.high)) / width - 1
    powers = (q.concentration1 - 1) * _mean_log_uniform(p) + (q.concentration0 - 1) * mean_log_rest
    return _infinite_where((p.high > 1) | (p.low < 0), _log_beta(q) - width.log() - powers)


@register_kl(Uniform, Pareto)
def _kl_uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    log_norm = (q.alpha * q.scale.pow(q.alpha) * (p.high - p.low)).log()
    return _infinite_where(p.low < q.scale, _mean_log_uniform(p) * (q.alpha + 1) - log_norm)
