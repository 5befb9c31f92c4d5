"""Learning rate schedules.

The learning rates live in the optimiser's parameter groups. Most schedules are chainable: they
multiply what they find there, so that several may act on one optimiser and the user may interfere.
The others compute it from ``last_epoch`` alone.
"""

from .base import LRScheduler
from .chained import ChainedScheduler, SequentialLR
from .cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts
from .cyclic import CyclicLR, OneCycleLR
from .lambdas import LambdaLR, MultiplicativeLR
from .plateau import ReduceLROnPlateau
from .step_wise import ConstantLR, ExponentialLR, LinearLR, MultiStepLR, PolynomialLR, StepLR

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

_LRScheduler = LRScheduler  # the base class's name in old programs
