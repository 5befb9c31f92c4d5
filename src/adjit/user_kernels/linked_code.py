"""Functions that only other compiled functions call: linked into those, optimised and compiled once, there.

Numba makes machine code of every function, and again of all that it was linked into. A way back is most of the
function that calls it, and the tape's functions are small and many: without this, value and gradient of an LSTM
are compiled in 2.2 s for 1.8.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import (
    BaseNativeLowering,
    DumpParforDiagnostics,
    InlineOverloads,
    NativeLowering,
    NopythonRewrites,
)
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FindLiterallyCalls,
    InlineClosureLikes,
    InlineInlinables,
    LiteralPropagationSubPipelinePass,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    RewriteDynamicRaises,
    RewriteSemanticConstants,
    WithLifting,
)

from .unversioned import without_versions

# What generated code has nothing for. Behind each step Numba finds anew which names live where, in a time that
# grows with blocks times names: of a Kalman filter's 21 s these steps took 7.
_NOT_NEEDED = {
    WithLifting, InlineClosureLikes, MakeFunctionToJitFunction, InlineInlinables, InlineOverloads,
    RewriteSemanticConstants, DeadBranchPrune, RewriteDynamicRaises, FindLiterallyCalls, LiteralUnroll,
    LiteralPropagationSubPipelinePass, NopythonRewrites, DumpParforDiagnostics,
}  # fmt: skip


class _LinkedCode(JITCodeLibrary):  # type: ignore[misc]
    """A module for others to link, left as it was translated."""

    def _optimize_final_module(self) -> None:
        """Nothing: done where it is linked into."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class LinkedLowering(BaseNativeLowering):  # type: ignore[misc]
    """Numba's translation to LLVM, without an entry for Python."""

    @property
    def lowering_class(self) -> type[Lower]:
        return Lower

    def run_pass(self, state: Any) -> bool:
        flags = state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        state.library = _LinkedCode(state.targetctx.codegen(), state.func_id.func_qualname)
        super().run_pass(state)
        state.status.fail_reason = None  # of the pipeline before, if there was one
        lowered = state["cr"]
        entry: Any = [].append  # Numba knows the function by a built-in one, which nobody calls
        state.targetctx.insert_user_function(entry, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=entry)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PlainLowering(LinkedLowering):
    _name = "adjit_linked_lowering"


class LinkedCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's compiler for such a function, which is not cached by itself."""

    lowering: type[LinkedLowering] = _PlainLowering

    def define_pipelines(self) -> list[PassManager]:
        manager = PassManager("adjit_linked")
        for step, name in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if step not in _NOT_NEEDED:
                manager.add_pass(self.lowering if step is NativeLowering else step, name)
        manager.finalize()
        return [without_versions(manager), manager]
