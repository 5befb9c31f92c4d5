"""The types of a structured function's names, by Numba's own type inference."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import config, float32, float64, int32, int64, types
from numba.core import compiler
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target
from numba.core.typed_passes import NopythonTypeInference
from numba.core.untyped_passes import FixupArgs, IRProcessing, ReconstructSSA, TranslateByteCode
from numba.extending import intrinsic

from .refusal import NotDifferentiable
from .structure import Procedure
from .writing import ARRAY, primal_source

_ORDER = ("b1", "i8", "f4", "f8")
# Only to be typed: Numba would compile functions of its own for their types.
_OF_A_FLOAT = types.ExternalFunction("of_a_float", float64(float64))
_OF_TWO_FLOATS = types.ExternalFunction("of_two_floats", float64(float64, float64))


@intrinsic  # type: ignore[untyped-decorator]
def _pick(context: Any, condition: Any, a: Any, b: Any) -> Any:
    result = context.unify_types(types.unliteral(a), types.unliteral(b))
    return result(condition, a, b), None


@intrinsic  # type: ignore[untyped-decorator]
def _array(context: Any, shape: Any, dtype: Any) -> Any:
    return types.Array(dtype.dtype, len(shape), "C")(shape, dtype), None


@register_pass(mutates_CFG=False, analysis_only=True)
class _KeepTypes(FunctionPass):  # type: ignore[misc]
    """Ends a compilation with the types."""

    _name = "adjit_keep_types"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.cr = dict(state.typemap)
        return False


_STEPS = (
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    ReconstructSSA,
    NopythonTypeInference,
    _KeepTypes,
)


class _OnlyTypes(compiler.CompilerBase):  # type: ignore[misc]
    """A compilation that stops when types are known."""

    def define_pipelines(self) -> list[PassManager]:
        manager = PassManager("adjit_types")
        for step in _STEPS:
            manager.add_pass(step, step.__name__)
        manager.finalize()
        return [manager]


def infer_types(f: Procedure, argument_types: Sequence[types.Type]) -> None:
    """Put the types of numbers into `f.types`: `b1`, `i8`, `f4` or `f8`.

    Raises:
        NotDifferentiable: if Numba cannot compile the function, or a number is of another type.
    """
    space: dict[str, Any] = {
        "np": np, "float32": float32, "float64": float64, "int32": int32, "int64": int64,
        "digamma": _OF_A_FLOAT, "trigamma": _OF_A_FLOAT,
        "zeta": _OF_TWO_FLOATS,
        "math": math, "pick": _pick, ARRAY: _array,
    }  # fmt: skip
    exec(compile(primal_source(f, f.name, errors=False), f"<{f.name}>", "exec"), space)
    typing, target = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    target.refresh()
    flags = compiler.Flags()
    flags.nrt = True
    flags.error_model = "numpy"
    disabled, config.DISABLE_JIT = (
        config.DISABLE_JIT,
        0,
    )  # Numba's own functions are typed by compiling
    try:
        found = compiler.compile_extra(
            typing,
            target,
            space[f.name],
            tuple(argument_types),
            None,
            flags,
            {},
            pipeline_class=_OnlyTypes,
        )
    except NumbaError as error:
        raise NotDifferentiable(f"{f.heading}: Numba cannot compile {f.name}:\n{error}") from None
    finally:
        config.DISABLE_JIT = disabled
    f.types.clear()
    for versioned, kind in found.items():
        name = re.sub(r"\.\d+$", "", versioned)
        if name.startswith(("$", "arg.")) or isinstance(kind, types.Array):
            continue
        short = _short(kind)
        if short is None:
            if isinstance(kind, types.Complex):
                raise NotDifferentiable(
                    f"{f.heading}: {f.name} has complex numbers, write their parts"
                )
            continue
        old = f.types.get(name, short)
        f.types[name] = max(old, short, key=_ORDER.index)


def _short(kind: types.Type) -> str | None:
    if isinstance(kind, (types.Boolean, types.BooleanLiteral)):
        return "b1"
    if isinstance(kind, types.Integer):
        return "i8"
    return {float32: "f4", float64: "f8"}.get(kind)
