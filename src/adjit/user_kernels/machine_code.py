"""What LLVM is told of a way back: which memory is apart, and which sums may be added up in any order.

Loops of a way back touch more arrays than LLVM is willing to compare at the start of a loop, so it would not
vectorise them. Here each access of an array on the way back says in whose memory it is, as LLVM's
`alias.scope` (`APART` of the generated file, from `ReverseWriter.memories`). The way there is left to LLVM,
as the user's function is. A sum that the way back itself introduced, an adjoint that all rounds add to, has
no order of the user's: its additions are marked `reassoc`. Values are computed as they are written.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from numba.core import ir
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower

from .linked_code import LinkedCompiler, LinkedLowering
from .writing import BACK

_SUM = re.compile(r"_[bs](\.\d+)?$")  # names of adjoints, with Numba's number of an assignment


class _WayBackLower(Lower):  # type: ignore[misc]
    """Numba's translation to LLVM, with marks on accesses of arrays and on sums of adjoints."""

    def pre_lower(self) -> None:
        super().pre_lower()
        function = self.func_ir.func_id.func
        lines, first = inspect.getsourcelines(function)
        self._back = first + [line.strip() for line in lines].index(BACK)
        self._memory: dict[str, str] = function.__globals__["APART"]
        module, names = self.module, sorted(set(self._memory.values()))
        domain = module.add_metadata([f"adjit {self.fndesc.mangled_name}"])
        scopes = {name: module.add_metadata([name, domain]) for name in names}
        self._scope = {name: module.add_metadata([scopes[name]]) for name in names}
        self._others = {
            name: module.add_metadata([scopes[other] for other in names if other != name])
            for name in names
        }

    def lower_inst(self, inst: Any) -> None:
        block, before = self.builder.block, len(self.builder.block.instructions)
        super().lower_inst(inst)
        match inst:
            case ir.SetItem() | ir.StaticSetItem():
                self._mark_access(inst.target, "store", block, before)
            case ir.Assign(value=ir.Expr(op="inplace_binop") as sum_) if _SUM.search(sum_.lhs.name):
                for made in block.instructions[before:]:
                    if made.opname in ("fadd", "fsub"):
                        made.flags.append("reassoc")

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        block, before = self.builder.block, len(self.builder.block.instructions)
        value = super().lower_expr(resty, expr)
        if expr.op in ("getitem", "static_getitem"):
            self._mark_access(expr.value, "load", block, before)
        return value

    def _mark_access(self, array: Any, opname: str, block: Any, before: int) -> None:
        """Mark the access of an element, which comes last: loads of the variables in it come before."""
        memory = self._memory.get(re.sub(r"\.\d+$", "", array.name))
        if (
            self.loc.line < self._back
            or memory is None
            or len(self._memory) < 2
            or self.builder.block is not block
        ):
            return  # a slice is filled by a loop, in other blocks
        made = [i for i in block.instructions[before:] if i.opname == opname]
        made[-1].set_metadata("alias.scope", self._scope[memory])
        made[-1].set_metadata("noalias", self._others[memory])


@register_pass(mutates_CFG=True, analysis_only=False)
class _WayBackLowering(LinkedLowering):
    _name = "adjit_way_back_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        return _WayBackLower


class WayBackCompiler(LinkedCompiler):
    """Numba's compiler with these marks; `APART` is a name of the function's module."""

    lowering = _WayBackLowering
