"""The library's functions of numbers, for generated code; in plain Python NumPy's, which are faster there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import config

from ..kernels.math import vector
from .ahead import FUNCTIONS, SUFFIXES

_PYTHON = {"np": np, "math": math}


def _function(text: str, name: str) -> Any:
    module, _, function = text.partition(".")
    return getattr(_PYTHON[module], function) if config.DISABLE_JIT else getattr(vector, name)


for _text, _short in FUNCTIONS.items():
    for _suffix in SUFFIXES.values():
        globals()[f"{_short}_{_suffix}"] = _function(_text, f"{_short}_{_suffix}")
