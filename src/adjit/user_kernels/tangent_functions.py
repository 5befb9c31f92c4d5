"""The tangents of a user's function as a Python function again, read and differentiated as any other: so on
tensors forward mode goes with `vmap`, with itself and with reverse mode, to any order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from .forward_mode import tangent_of
from .generated import typed_form
from .runtime import digamma, trigamma
from .source import Function, function_of_text, source_of
from .structure import Apply, Atom, Branch, Load, Make, Procedure, Repeat, StoreElement, Suite
from .vocabulary import CASTS, call, text
from .writing import Lines, PlainWriter, dtype_text, results_text, shape_text

_MEANINGS: dict[str, Any] = {
    "np": np, "math": math, "digamma": digamma, "trigamma": trigamma,
    **{name: getattr(np, name) for name in CASTS - {"bool"}},
}  # fmt: skip


def tangent_function(
    function: Function, argument_types: tuple[types.Type, ...], along: tuple[int, ...]
) -> Function:
    """The function of (arguments, directions of those at `along`) that gives the tangents of the results.

    An argument that is written is written here too, and its direction becomes its tangent.

    Raises:
        NotDifferentiable: if the function has something that cannot be differentiated.
    """
    f = typed_form(function, argument_types)
    g = tangent_of(f, [f.params[k] for k in along], only_tangents=True)
    name = f"{f.name}_tangent"
    source = source_of(function)
    origin = f"the tangents of {f.name} in {source.filename}:{source.first}"
    return function_of_text(name, _text(g, name), origin, _MEANINGS)


def _text(g: Procedure, name: str) -> str:
    writer, w = _ToBeRead(g), Lines()
    w.add(f"def {name}({', '.join(g.params)}):")
    with w.indented():
        writer.block(g.body, w)
        w.add(f"return {results_text([text(v) for v in g.returns], g.returns_tuple)}")
    return "\n".join(w.lines) + "\n"


class _ToBeRead(PlainWriter):
    """Writes in the language that users write in."""

    def _is_natural(self, name: str) -> bool:
        return False

    def check(self, item: Load | StoreElement, w: Lines) -> None:
        """Nothing: what reads the text writes the checks."""

    def applied(self, item: Apply) -> str:
        if item.function == "select":
            test, a, b = map(text, item.args)
            return f"{item.dst} = {a} if {test} else {b}"
        return super().applied(item)

    def move(self, pairs: list[tuple[str, Atom]], w: Lines) -> None:
        """Arrays change places in a statement of their own."""
        arrays = [pair for pair in pairs if pair[0] in self.f.arrays]
        super().move(arrays, w)
        super().move([pair for pair in pairs if pair not in arrays], w)

    def test_of(self, loop: Repeat) -> str:
        """In the head of a loop, for arrays that change places may do so in no branch."""
        if loop.test is None or loop.condition is None:
            return ""
        known: dict[Atom, str] = {}
        return text(_folded(loop.condition, known)) if self._fold(loop.test, known) else ""

    def _fold(self, block: Suite, known: dict[Atom, str]) -> bool:
        """Note what names of a block stand for, as expressions; False if one is none."""
        for item in block.items:
            match item:
                case Apply(function="select"):
                    test, a, b = (text(_folded(x, known)) for x in item.args)
                    known[item.dst] = f"({a} if {test} else {b})"
                case Apply():
                    args = [_folded(a, known) for a in item.args]
                    known[item.dst] = f"({call(item.function, args)})"
                case Load():
                    known[item.dst] = self.place(
                        item.array, [_folded(a, known) for a in item.index]
                    )
                case Branch():
                    if not self._fold(item.then, known) or not self._fold(item.orelse, known):
                        return False
                    test = text(_folded(item.condition, known))
                    for dst, x, y in item.results:
                        a, b = text(_folded(x, known)), text(_folded(y, known))
                        known[dst] = f"({a} if {test} else {b})"
                case _:
                    return False
        return True

    def make(self, item: Make, w: Lines) -> None:
        if item.fill is None or item.fill == 0:
            return super().make(item, w)
        shape, kind = shape_text(item.shape), dtype_text(item.dtype)
        w.add(f"{item.dst} = np.full({shape}, {text(item.fill)}, np.{kind})")
        return None


def _folded(a: Atom, known: dict[Atom, str]) -> Atom:
    return known.get(a, a) if isinstance(a, str) else a
