"""Optimisers and learning rate schedules, with PyTorch's names and results."""

from typing import NoReturn

from ..absent import absent
from . import lr_scheduler, optimizer
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .rmsprop import RMSprop
from .sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler", "optimizer"]


def __getattr__(name: str) -> NoReturn:
    """Names that PyTorch has and adjit has not."""
    raise absent("optim", name)
