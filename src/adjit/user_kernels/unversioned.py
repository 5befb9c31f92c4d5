"""Compilations without Numba's versions of names, where every name is of one type.

Numba gives each assignment of a name a name of its own, in a walk over the whole function for each name: a
tenth of a first call. LLVM does the same again; Numba needs it only for names that change their type.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from numba import typeof, types
from numba.core import ir
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.errors import TypingError
from numba.core.typed_passes import NopythonTypeInference, PreLowerStripPhis
from numba.core.untyped_passes import ReconstructSSA


@register_pass(mutates_CFG=False, analysis_only=True)
class _OneTypeEach(FunctionPass):  # type: ignore[misc]
    """An error, after which Numba tries the next of the pipelines, if a name is of several types."""

    _name = "adjit_one_type_each"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        assigned = [a for b in state.func_ir.blocks.values() for a in b.find_insts(ir.Assign)]
        times = Counter(a.target.name for a in assigned)
        for a in assigned:
            name = a.target.name
            if times[name] > 1 and not _same(state, a.value, state.typemap[name]):
                raise TypingError(f"{name} changes its type", a.loc)
        return False


def _same(state: Any, value: Any, kind: types.Type) -> bool:
    """Whether a value is of the type that its name has after all of the name's assignments."""
    match value:
        case ir.Var():
            found = state.typemap[value.name]
        case ir.Const():
            found = typeof(value.value)
        case ir.Arg():
            found = state.args[value.index]
        case ir.Expr(op="static_getitem") if isinstance(
            state.typemap[value.value.name], types.BaseTuple
        ):
            found = state.typemap[value.value.name][value.index]
        case ir.Expr() if state.calltypes.get(value) is not None:
            found = state.calltypes[value].return_type
        case _:
            return False
    return bool(types.unliteral(found) == types.unliteral(kind))


def without_versions(versioned: PassManager) -> PassManager:
    """The same pipeline, but for names' versions; it ends in an error if it needs them."""
    manager = PassManager(f"{versioned.pipeline_name}_unversioned")
    for step, name in versioned.passes:
        if step not in (ReconstructSSA, PreLowerStripPhis):
            manager.add_pass(step, name)
        if step is NopythonTypeInference:
            manager.add_pass(_OneTypeEach, "names of one type each")
    manager.finalize()
    return manager
