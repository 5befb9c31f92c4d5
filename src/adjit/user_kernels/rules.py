"""Derivatives of functions of numbers: for each argument a text, or None where it has none.

`{g}` is the adjoint of the result on the way back and the tangent of the argument forward, `{r}` the
result, `{0}` and `{1}` the arguments.
"""

from __future__ import annotations

from .structure import Atom
from .vocabulary import text

RULES: dict[str, list[str | None]] = {
    "+": ["{g}", "{g}"],
    "-": ["{g}", "-{g}"],
    "neg": ["-{g}"],
    "*": ["{g} * {1}", "{g} * {0}"],
    "/": ["{g} / {1}", "-{g} / {1} * {r}"],
    "**": [
        "({g} * {1} * {0} ** ({1} - 1) if {1} != 0 else 0.0)",
        "({g} * {r} * np.log({0}) if {0} > 0 else 0.0)",
    ],
    "%": ["{g}", "-{g} * np.floor({0} / {1})"],
    "np.exp": ["{g} * {r}"],
    "np.expm1": ["{g} * ({r} + 1.0)"],
    "np.log": ["{g} / {0}"],
    "np.log2": ["{g} / ({0} * 0.6931471805599453)"],
    "np.log10": ["{g} / ({0} * 2.302585092994046)"],
    "np.log1p": ["{g} / (1.0 + {0})"],
    "np.sqrt": ["{g} / ({r} + {r})"],
    "np.sin": ["{g} * np.cos({0})"],
    "np.cos": ["-{g} * np.sin({0})"],
    "np.tan": ["{g} * (1.0 + {r} * {r})"],
    "np.tanh": ["{g} * (1.0 - {r} * {r})"],
    "np.sinh": ["{g} * np.cosh({0})"],
    "np.cosh": ["{g} * np.sinh({0})"],
    "np.arcsin": ["{g} / np.sqrt(1.0 - {0} * {0})"],
    "np.arccos": ["-{g} / np.sqrt(1.0 - {0} * {0})"],
    "np.arctan": ["{g} / (1.0 + {0} * {0})"],
    "np.arcsinh": ["{g} / np.sqrt(1.0 + {0} * {0})"],
    "np.arccosh": ["{g} / np.sqrt({0} * {0} - 1.0)"],
    "np.arctanh": ["{g} / (1.0 - {0} * {0})"],
    "np.arctan2": ["{g} * {1} / ({0} * {0} + {1} * {1})", "-{g} * {0} / ({0} * {0} + {1} * {1})"],
    "np.hypot": ["{g} * {0} / {r}", "{g} * {1} / {r}"],
    "math.erf": ["{g} * 1.1283791670955126 * np.exp(-{0} * {0})"],
    "math.erfc": ["-{g} * 1.1283791670955126 * np.exp(-{0} * {0})"],
    "math.gamma": ["{g} * {r} * digamma({0})"],
    "math.lgamma": ["{g} * digamma({0})"],
    "digamma": ["{g} * trigamma({0})"],
    "trigamma": ["-2.0 * {g} * zeta(3.0, {0})"],
    "zeta": [None, "-{g} * {0} * zeta({0} + 1.0, {1})"],
    "abs": ["({g} if {0} > 0 else -{g} if {0} < 0 else 0.0)"],
    "math.fabs": ["({g} if {0} > 0 else -{g} if {0} < 0 else 0.0)"],
    "np.copysign": ["({g} if np.copysign(1.0, {0}) == np.copysign(1.0, {1}) else -{g})", None],
    "float64": ["{g}"],
    "float32": ["{g}"],
}

# One of two arguments is the result: which one is a test, and the first if it is true.
PICKS = {
    "min": "not {1} < {0}",
    "max": "not {1} > {0}",
    "np.minimum": "not {1} < {0}",
    "np.maximum": "not {1} > {0}",
}

# Constant between jumps: no derivative.
FLAT = {"np.rint", "np.floor", "np.ceil", "np.trunc", "math.floor", "math.ceil", "math.trunc", "np.sign", "//",
        "round", "int64", "int32"}  # fmt: skip

# Derivatives that are finite wherever the function is: there 0 times the derivative is 0 of itself.
_NO_POLES = {"+", "-", "neg", "*", "float64", "float32", "abs", "math.fabs", "np.copysign", "np.exp", "np.sin",
             "np.cos", "np.tanh", "np.arctan", "np.arcsinh", "math.erf", "math.erfc"}  # fmt: skip
_LINEAR = {"+", "-", "neg", "float64", "float32", "abs", "math.fabs", "np.copysign"}


def may_be_infinite(function: str, everywhere: bool) -> bool:
    """Whether a zero must be kept from a derivative that may be infinite; `everywhere`: also where only the
    arguments can make it so."""
    return function not in (_LINEAR if everywhere else _NO_POLES)


def rules_for(function: str, args: list[Atom]) -> list[str | None]:
    """The derivatives of an application; simpler ones where an argument is a number of the text."""
    if function == "**" and not isinstance(args[1], str):
        power = args[1]
        if power == 0:
            return [None, None]
        if power == 1:
            return ["{g}", None]
        if power == 2:
            return ["({g} + {g}) * {0}", None]
        if power == 0.5:  # `**` takes ten times as long as a square root
            return ["{g} / ({r} + {r})", None]
        if power == 1.5:
            return ["{g} * 1.5 * np.sqrt({0})", None]
        if isinstance(power, float) and power < 0:
            return ["{g} * {1} * {r} / {0}", None]
        return [f"{{g}} * {{1}} * {{0}} ** {text(power - 1)}", None]
    return RULES.get(function, [])
