"""The modified Bessel functions I0 and I1 of float32, as von Mises angles need them, by polynomials.

Below `SPLIT` they are series in the square; above it sqrt(k) exp(-k) I0(k) and k^1.5 exp(-k) (I0(k) - I1(k))
are smooth in 1 / k. Chebyshev's nodes gave the coefficients; relative errors are below 2e-8.
"""

from __future__ import annotations

from typing import Any

from ..graph.operation import operation
from ..tensor import Tensor
from .comparison import where

SPLIT = 6.0
# Of (k / SPLIT)^2: (I0(k) - 1) / (k / 2)^2 and 2 I1(k) / k.
I0_SERIES = (
    0.9999999857183458, 2.2500018268429023, 2.249961765557855, 1.2659288743360413, 0.45444425057623844,
    0.11637985582341245, 0.018090401511659585, 0.004571576993832561,
)  # fmt: skip
I1_SERIES = (
    1.0000000032376666, 4.499999475747448, 6.750013946325848, 5.062357477988707, 2.278852505341334,
    0.6813602406592155, 0.1499105692016048, 0.020224590610604446, 0.004593446596689388,
)  # fmt: skip
# Of SPLIT / k: what is smooth above it.
I0_ABOVE = (
    0.398942282187679, 0.008311070784042482, 0.0007837420637811586, 0.00010180284781273495,
    0.00014851694823973102, -0.0001810027821785118, 0.00015718011215887963, -3.791702098297401e-05,
)  # fmt: skip
GAP_ABOVE = (
    0.19947114119500484, 0.012466706356334394, 0.001957412883950693, 0.00033019816269504057,
    0.0012495470261483976, -0.004694604254552135, 0.012486932014940591, -0.01981869352448895,
    0.01861249232878434, -0.009263980994165538, 0.0018659400469144263,
)  # fmt: skip


def polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """A polynomial by its coefficients, the lowest first."""
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


@operation("LogI0Backward0")
def log_i0_less_itself(k: Tensor) -> Tensor:
    """log(I0(k)) - k of numbers from 0 up."""
    square = (k.clamp(max=SPLIT) / SPLIT).square()
    below = (square * polynomial(square, I0_SERIES) * (SPLIT / 2) ** 2).log1p() - k
    large = k.clamp(min=SPLIT)
    above = (polynomial(SPLIT / large, I0_ABOVE) / large.sqrt()).log()
    return where(k < SPLIT, below, above)


@log_i0_less_itself.vjp
def _(g: Tensor, k: Tensor) -> Tensor:
    return -g * lost_of_cosine(k)


@log_i0_less_itself.jvp
def _(t_k: Tensor, k: Tensor) -> Tensor:
    return -t_k * lost_of_cosine(k)


log_i0_less_itself.batched_as_body()


def lost_of_cosine(k: Tensor) -> Tensor:
    """1 - I1(k) / I0(k) of numbers from 0 up, which falls like 1 / (2 k). Differentiable."""
    small = k.clamp(max=SPLIT) / SPLIT
    square = small.square()
    i0 = 1 + square * polynomial(square, I0_SERIES) * (SPLIT / 2) ** 2
    below = 1 - small * polynomial(square, I1_SERIES) * (SPLIT / 2) / i0
    inverse = SPLIT / k.clamp(min=SPLIT)
    above = inverse * polynomial(inverse, GAP_ABOVE) / (polynomial(inverse, I0_ABOVE) * SPLIT)
    return where(k < SPLIT, below, above)
