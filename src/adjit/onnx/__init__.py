"""Models as ONNX graphs: PyTorch's `torch.onnx`.

`export` runs a model and records its calls (`recording.py`), several times where dimensions are dynamic
(`dynamic.py`, `sizes.py`); what the recordings have in common (`translation.py`) is written as nodes
(`builder.py`) by a table of rules (`rules/`), and becomes a program (`exporting.py`, `program.py`).
"""

from __future__ import annotations

from typing import Any

from .. import paths
from ..absent import absent
from . import errors, symbolic_helper
from .errors import OnnxExporterError
from .exporting import (
    OperatorExportTypes,
    TrainingMode,
    export,
    is_in_onnx_export,
    select_model_mode_for_export,
)
from .program import ONNXProgram
from .symbolic_helper import register_custom_op_symbolic, unregister_custom_op_symbolic

__all__ = [
    "ONNXProgram", "OnnxExporterError", "OperatorExportTypes", "TrainingMode", "errors", "export",
    "is_in_onnx_export", "register_custom_op_symbolic", "select_model_mode_for_export", "symbolic_helper",
    "unregister_custom_op_symbolic",
]  # fmt: skip

paths.place("onnx.utils", ("onnx.exporting",))
for _version in range(7, 21):  # PyTorch's rules for TorchScript's graphs, of which none are here
    paths.place(f"onnx.symbolic_opset{_version}", ())


def __getattr__(name: str) -> Any:
    """What PyTorch has and adjit has not."""
    raise absent("onnx", name)
