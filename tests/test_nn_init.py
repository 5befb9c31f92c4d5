"""Initialisers: their moments, bounds, fans and structure, and PyTorch's errors and warnings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from library import T, array, raises, same, warns

init = T.nn.init


@pytest.fixture(autouse=True)
def _seeded() -> None:
    T.manual_seed(3)


@pytest.mark.parametrize(
    ("nonlinearity", "param", "gain"),
    [
        ("linear", None, 1),
        ("conv2d", None, 1),
        ("conv_transpose3d", None, 1),
        ("sigmoid", None, 1),
        ("tanh", None, 5 / 3),
        ("relu", None, math.sqrt(2)),
        ("leaky_relu", None, math.sqrt(2 / 1.0001)),
        ("leaky_relu", 2, math.sqrt(2 / 5)),
        ("selu", None, 0.75),
    ],
)
def test_gains(nonlinearity: str, param: Any, gain: float) -> None:
    assert init.calculate_gain(nonlinearity, param) == gain


def test_refused_gains() -> None:
    with raises(ValueError, "Unsupported nonlinearity gelu"):
        init.calculate_gain("gelu")
    with raises(ValueError, "negative_slope True not a valid number"):
        init.calculate_gain("leaky_relu", True)


def uniform_bound(bound: float) -> Callable[[np.ndarray], None]:
    def check(values: np.ndarray) -> None:
        assert values.min() >= -bound
        assert values.max() <= bound
        assert values.max() > 0.98 * bound
        assert values.min() < -0.98 * bound
        assert abs(values.std() / (bound / math.sqrt(3)) - 1) < 0.03

    return check


def deviation(std: float) -> Callable[[np.ndarray], None]:
    def check(values: np.ndarray) -> None:
        assert abs(values.std() / std - 1) < 0.03
        assert abs(values.mean()) < 0.05 * std
        assert abs(values).max() > 2.5 * std

    return check


# Shape (60, 50, 3): fan_in 150, fan_out 180.
@pytest.mark.parametrize(
    ("fill", "check"),
    [
        (lambda t: init.uniform_(t, -2.0, 2.0), uniform_bound(2.0)),
        (lambda t: init.normal_(t, 0.0, 3.0), deviation(3.0)),
        (lambda t: init.xavier_uniform_(t, 2.0), uniform_bound(2 * math.sqrt(6 / 330))),
        (lambda t: init.xavier_normal_(t, 2.0), deviation(2 * math.sqrt(2 / 330))),
        (init.kaiming_uniform_, uniform_bound(math.sqrt(2) * math.sqrt(3 / 150))),
        (
            lambda t: init.kaiming_uniform_(t, math.sqrt(5)),
            uniform_bound(1 / math.sqrt(150)),
        ),
        (
            lambda t: init.kaiming_uniform_(t, mode="fan_out", nonlinearity="tanh"),
            uniform_bound(5 / 3 * math.sqrt(3 / 180)),
        ),
        (lambda t: init.kaiming_normal_(t, nonlinearity="relu"), deviation(math.sqrt(2 / 150))),
        (
            lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="linear"),
            deviation(math.sqrt(1 / 180)),
        ),
    ],
)
def test_distributions(fill: Callable[[Any], Any], check: Callable[[np.ndarray], None]) -> None:
    tensor = T.nn.Parameter(T.empty(60, 50, 3))
    assert fill(tensor) is tensor
    assert tensor.grad_fn is None
    check(array(tensor))


@pytest.mark.parametrize(
    ("mean", "std", "low", "high"),
    [(0.0, 1.0, -2.0, 2.0), (0.0, 1.0, 0.5, 0.8), (1.0, 0.5, 2.0, 4.0), (0.0, 0.02, -2.0, 2.0)],
)
def test_truncated_normal(mean: float, std: float, low: float, high: float) -> None:
    from scipy.stats import truncnorm

    values = array(init.trunc_normal_(T.empty(40, 500), mean, std, low, high))
    expected = truncnorm((low - mean) / std, (high - mean) / std, loc=mean, scale=std)
    assert values.min() >= np.float32(low)
    assert values.max() <= np.float32(high)
    assert abs(values.mean() - expected.mean()) < 0.03 * expected.std()
    assert abs(values.std() / expected.std() - 1) < 0.03


def test_truncated_normal_far_from_its_mean() -> None:
    with warns(
        UserWarning,
        "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
        "The distribution of values may be incorrect.",
    ):
        values = array(init.trunc_normal_(T.empty(1000), 0.0, 1.0, 3.0, 4.0))
    assert values.min() >= 3.0
    assert values.max() <= 4.0


def test_constants() -> None:
    same(init.constant_(T.empty(2), 0.5), [0.5, 0.5])
    same(init.ones_(T.empty(2)), [1.0, 1.0])
    same(init.zeros_(T.ones(2)), [0.0, 0.0])
    same(init.eye_(T.empty(2, 3)), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert init.eye_(T.empty(2, 2, dtype=T.float64)).dtype == T.float64


def test_dirac_passes_channels_on() -> None:
    weight = array(init.dirac_(T.empty(4, 2, 3), groups=2))
    expected = np.zeros((4, 2, 3))
    expected[[0, 1, 2, 3], [0, 1, 0, 1], 1] = 1
    np.testing.assert_array_equal(weight, expected)
    assert array(init.dirac_(T.empty(3, 2, 5, 3))).nonzero()[2].tolist() == [2, 2]
    assert array(init.dirac_(T.empty(1, 1, 2, 2, 2)))[0, 0, 1, 1, 1] == 1


@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (8, 3), (4, 2, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    weight = init.orthogonal_(T.nn.Parameter(T.empty(*shape)), gain=2.0)
    matrix = array(weight).reshape(shape[0], -1)
    small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_sparse() -> None:
    weight = array(init.sparse_(T.empty(10, 50), sparsity=0.25, std=1.0))
    assert ((weight == 0).sum(axis=0) == 3).all()
    assert abs(weight[weight != 0].std() - 1) < 0.15


def test_generators_decide_the_draws() -> None:
    def draw(fill: Callable[..., Any], *args: Any) -> np.ndarray:
        return array(fill(T.empty(6, 5), *args, generator=T.Generator().manual_seed(5)))

    for fill, *args in [
        (init.uniform_,),
        (init.normal_,),
        (init.trunc_normal_,),
        (init.xavier_uniform_,),
        (init.xavier_normal_,),
        (init.kaiming_uniform_,),
        (init.kaiming_normal_,),
        (init.orthogonal_,),
    ]:
        np.testing.assert_array_equal(draw(fill, *args), draw(fill, *args))
        assert (draw(fill, *args) != array(fill(T.empty(6, 5), *args))).any()


@pytest.mark.parametrize("fill", [init.kaiming_uniform_, init.kaiming_normal_])
def test_empty_tensors_are_left_alone(fill: Callable[..., Any]) -> None:
    with warns(UserWarning, "Initializing zero-element tensors is a no-op"):
        assert fill(T.empty(0, 3)).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: init.eye_(T.empty(2)), "Only tensors with 2 dimensions are supported"),
        (lambda: init.sparse_(T.empty(2), 0.1), "Only tensors with 2 dimensions are supported"),
        (
            lambda: init.dirac_(T.empty(2, 2)),
            "Only tensors with 3, 4, or 5 dimensions are supported",
        ),
        (lambda: init.dirac_(T.empty(3, 2, 1), 2), "dim 0 must be divisible by groups"),
        (
            lambda: init.orthogonal_(T.empty(2)),
            "Only tensors with 2 or more dimensions are supported",
        ),
        (
            lambda: init.xavier_normal_(T.empty(2)),
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions",
        ),
        (
            lambda: init.kaiming_normal_(T.empty(2, 2), mode="fan"),
            "Mode fan not supported, please use one of ['fan_in', 'fan_out']",
        ),
        (
            lambda: init.kaiming_normal_(T.empty(2, 2), nonlinearity="gelu"),
            "Unsupported nonlinearity gelu",
        ),
    ],
)
def test_refusals(call: Callable[[], Any], text: str) -> None:
    with raises(ValueError, text):
        call()


def test_old_names_warn() -> None:
    for name in ("uniform", "normal", "xavier_uniform", "kaiming_normal", "orthogonal", "eye"):
        with warns(
            FutureWarning,
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.",
        ):
            getattr(init, name)(T.empty(2, 2))


def test_linear_starts_within_the_bounds_of_its_fan() -> None:
    layer = T.nn.Linear(400, 50)
    uniform_bound(1 / math.sqrt(400))(array(layer.weight))
    assert abs(array(layer.bias)).max() <= 1 / math.sqrt(400)
    assert array(layer.bias).any()
    with warns(UserWarning, "Initializing zero-element tensors is a no-op"):
        same(T.nn.Linear(0, 2)(T.empty(3, 0)), np.zeros((3, 2)))


def test_embedding_starts_normal_with_a_zero_padding_row() -> None:
    weight = array(T.nn.Embedding(500, 20, padding_idx=-1).weight)
    deviation(1.0)(weight[:-1])
    assert not weight[-1].any()
