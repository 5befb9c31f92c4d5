"""Backward passes, and the switches and tools around them."""

from . import forward_ad, functional, graph
from .api import Variable, backward, grad
from .draw import draw
from .function import Function
from .gradcheck import gradcheck, gradgradcheck
from .modes import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_detect_anomaly,
    set_grad_enabled,
    set_multithreading_enabled,
)

__all__ = [
    "Function", "Variable", "backward", "detect_anomaly", "draw", "enable_grad", "forward_ad",
    "functional", "grad", "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_grad_enabled",
    "no_grad", "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip
