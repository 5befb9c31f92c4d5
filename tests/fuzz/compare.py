"""What may differ between two ways to run a program.

Within adjit nothing: fused, planned, captured, recorded by Python, on more threads and once more, every bit,
every flag, every error is the same. Beside PyTorch, dtypes, shapes and flags are, and an error for an error;
values within what rounding each step otherwise changes, and some roundings of the largest number in sight.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from .programs import Program
from .ways import WAYS, Workers
from .worker import Outcome, Seen, assigned, written

# Beside PyTorch: some units in the last place of the largest number, and of what the other rounding changes.
UNITS, TIMES_SPREAD = 256.0, 64.0
# (How often a result was written while it was made, PyTorch does not say of gradients, nor adjit of results.)
FACTS = ("shape", "requires_grad", "is_leaf")
# A legal program may get there; after it the worlds differ, as they may: PyTorch saves more for backward,
# and either library refuses what the other one can do.
ROOTLESS = (
    "does not require grad and does not have a grad_fn"  # PyTorch's: a view made without a graph
)
FREED = "Trying to backward through the graph a second time"
OVERWRITTEN = "one of the variables needed for gradient computation has been modified by an inplace"
NOT_HERE = (
    "not supported|not implemented for|more than one element of the written-to|without overflow"
    "|some elements of the input tensor and the written-to"  # here all is read first
    "|derivative for aten::|the derivative for '|Bad in-place call"  # here there is one, and one is cast
    "|is ambiguous"  # sizes of nothing
    "|elements overlap or have gaps"  # whose gradient PyTorch divides among them
    "|are out of bounds for storage of size"  # PyTorch's storages may be larger than what is in them
    "|source tensor shape must match self"  # here a source is broadcast, and added as often as indices say
    "|other non-zero dimensions|index is out of bounds for dimension with size 0"  # where nothing is read
    r"|argument '\w+' \(position \d\) must be|positional arguments? but"  # here a tuple may be spread out
)
CREATES = (
    "create_graph=True"  # PyTorch says then that some gradients that are constant require gradients
)
# Errors of values, which nobody sees if nobody looks at what was computed.
LATE = "should be between 0 and 1|out of bounds|invalid max index|not between 0 and|p_in <= 1 to be true"
# An error of values in the middle of a write in place: PyTorch has written what came before, adjit nothing.
HALF_WRITTEN = "ZeroDivisionError"
# Legal calls that PyTorch refuses, and what it says.
REFUSED_THERE = {
    r"\b(?:kron|isin)\(": "view size is not compatible with input tensor's size and stride",
    r"\blogsumexp\(.*\(\), keepdim=False": r"output with shape \[\] doesn't match the broadcast shape",
}
# Calls that differ from PyTorch's on purpose, and why: programs that have them are not run beside it.
ON_PURPOSE = {
    r"\bunique": "PyTorch says that the results require gradients, and raises in backward",
    r"\.logical_\w+_\(": "PyTorch lets them write into a leaf that requires gradients",
    r"\bpolygamma|T\.special\.zeta": "PyTorch's have 10 digits",
    r"\.(?:eq|ne|[lg][te]|greater|less|\w+_equal)_\(": "PyTorch says that whole numbers require gradients then",
    r"\b(?:var|std)_mean\(": "PyTorch's mean of infinities is NaN then",
    r"\b(?:var|std)\(\(\), correction=": "PyTorch's gradient takes no axes for one element, not for all",
    r"\b(v\d+)\.(?:masked_scatter|scatter\w*|index_\w+|put)_\(.*\b\1\b": "PyTorch reads what is half written",
    r"\bgelu\(": "PyTorch gives NaN for infinity",
    r"(?s)\b(?:nan)?quantile\(.*(?:backward|grad)\(": "which of several NaN is named is open",
    r"\b(?:nanmedian|median|kthvalue|mode|topk|sort|argsort)\(": "which of equals is named is open",
    r"\bcross\(": "PyTorch rounds one of two products that it subtracts, which may be all there is",
    r"\bbatch_norm\(.*\b(v\d+)\b.*\b\1\b": "PyTorch writes averages, then reads weights",
    r"\bsoft_margin_loss": "PyTorch's overflows",
    r"\bunsafe_(?:split|chunk)": "there parts share memory, of which only one may be used once one is written",
    r"\b(?:elu|celu|selu)_\(": "PyTorch's gradient at NaN is another one in place",
    r"\b(?:softshrink|hardswish)": "PyTorch's gradient at NaN depends on where in a vector that is",
    r"\baddmm\(.*alpha=": "in PyTorch 0 times a product is 0, whatever that is",
    r"\bindex_add_?\(.*alpha=": "PyTorch cuts the digits of a factor of whole numbers",
    r"\bcum(?:sum|prod)_\(": "PyTorch lets truth values pass where there are none",
    r"\bldexp": "PyTorch raises 2 to a power of its own",
    r"\bupsample_bilinear|mode='(?:bi|tri)?(?:linear|cubic)'": "in PyTorch 0 times infinity counts",
    r"\bpos_weight=": "PyTorch has no gradient of it, and does not broadcast it to more elements",
    r"(?s)\binf\b.*\b(?:batch|group|instance|layer)_norm\(": "PyTorch adds infinities of x * scale + shift",
    r"\badaptive_avg_pool\dd\(|mode='area'": "here they are means of means: sums that cancel leave a rounding",
    r"(?s)\b(?:nan|inf)\b.*\bgrid_sample\(": "PyTorch reads NaN there, on a GPU 0",
    r"(?s)\b(?:digamma|psi)_?\(.*(?:backward|grad)\(": "PyTorch's gradient is finite at poles",
    r"(?s)\bmulti(?:label)?_margin_loss\(.*(?:backward|grad)\(": "in PyTorch NaN times a class left out counts",
    r"(?s)\b(?:nan|inf)\b.*\bcross_entropy\(.*ignore_index=": "in PyTorch NaN times a row left out counts",
    r"\bcorrcoef\(": "a row of equal numbers varies by nothing, or by a rounding, that divides",
    r"(?s)\b(?:nan|inf)\b.*\bscaled_dot_product_attention\(": "PyTorch's tiles take NaN for no key at all",
    r"(?s)\b(?:nan|inf)\b.*\bcumprod\(.*(?:backward|grad)\(": "PyTorch divides by what each factor was",
    r"\bdetach_copy\(": "PyTorch's has a history, which ends in an error",
    r"(?s)\bhardsigmoid_?\(.*(?:backward|grad)\(": "PyTorch's sixth is one of float32",
    r"\b(?:signbit|copysign)": "NaN has a sign, which nothing defines",
}
# Likewise, but it takes certain numbers, shapes or lines before and after.
IN_PROGRAMS = {
    r"\bmulti_margin_loss\(.*T\.tensor\(\[\]": "PyTorch's mean of no losses is undefined memory",
    r"(?s)\bint\d+\b.*\b(?:arctan2|atan2)_?\(": "PyTorch squares whole numbers for the gradient",
    r"(?s)\bconv(?:_transpose)?\dd\(.*(?:no_grad\(\)|as_strided)": "results lie channels last here",
    r"(?s)\b(v\d+),[^\n]*= T\.autograd\.grad\(.*\n\1\S*\w_\(": "PyTorch's gradient may be one number for many",
    r"(?s)\berf\w*\(.*\batanh_?\(": "next to 1 a rounding becomes many",
    r"(?s)\.expand\(.*\blayer_norm\(": "a rounding of the mean of equal numbers counts 316 times",
    r"(?s)\bfloat64\b.*\bfloat32\b.*\bscaled_dot_product_attention\(": "sums of float32, in float64 later",
    r"\bscatter_reduce_?\(.*'am(?:in|ax)'.*include_self=False": "PyTorch counts what is left out, if equal",
    r"\bresize_\(\(-1": "PyTorch makes a tensor of -1 elements",
    r"(?s)\b(v\d+) = .*requires_grad_\(\)\n.*no_grad\(\):\n +\1\.\w+_\(": "PyTorch loses leaves that are views",
}
# Memory that a program makes larger holds anything: views that repeat elements have less of it than elements.
UNDEFINED = r"(?s)\b(?:expand|expand_as|broadcast_to|broadcast_tensors)\(.*resize_"


def found_in(workers: Workers, program: Program, names: list[str]) -> tuple[str, str] | None:
    """The first way that differs from the plain one, and how."""
    text = "\n".join(program.lines)
    if re.search(UNDEFINED, text):
        return None
    reference, *others = [n for n in names if n in workers.workers]
    answers = workers.run(program, [reference])
    plain = answers[reference]
    if isinstance(plain, str):
        return reference, plain
    asked = [n for n in others if WAYS[n].takes_random or not program.is_random]
    if any(re.search(p, text) for p in (*ON_PURPOSE, *IN_PROGRAMS)):
        asked = [n for n in asked if n != "torch"]
    if raised(plain[0]) != [e for e in plain[0].errors if e]:
        asked = [n for n in asked if n != "compiled"]  # the whole call raises, late
    refused = [x for x, e in zip(program.lines, plain[0].errors, strict=True) if e]
    if Program(refused, 0).is_random or any("backward(" in x for x in refused):
        # What was refused may have drawn numbers, or got half its way back.
        asked = [n for n in asked if n != "compiled"]
    requests = without_refused(program, plain[0]) if "compiled" in asked else program
    answers = workers.run(program, [n for n in asked if n != "compiled"])
    if "compiled" in asked and requests is not None:
        answers |= workers.run(requests, ["compiled"])
    for name, outcomes in answers.items():
        if isinstance(outcomes, str):
            return name, outcomes
        for k, outcome in enumerate(outcomes):
            if name == "torch":
                found = beside_torch(program.lines, plain[0], outcome)
            elif name == "compiled":
                found = captured(plain[0], outcome)
            else:
                found = exactly(plain[0], outcome)
            if found:
                return name, found if not k else f"{found} (run {k + 1})"
    return None


def without_refused(program: Program, plain: Outcome) -> Program | None:
    """The program without the lines that raise; None where an input does."""
    if any(plain.errors[: program.inputs]):
        return None
    lines = [line for line, error in zip(program.lines, plain.errors, strict=True) if error is None]
    return Program(lines, program.inputs)


# ----- within adjit -----


def exactly(one: Outcome, other: Outcome) -> str | None:
    for k, (a, b) in enumerate(zip(one.errors, other.errors, strict=True)):
        if a != b:
            if b in (None, *raised(one)) and a in (None, *raised(other)):
                return None  # an error of values, which comes when somebody looks
            if b is not None and re.search(LATE, b[1]) and (a is None or re.search(LATE, a[1])):
                return None
            return f"line {k + 1}: {told(a)}, but {told(b)}"
    return variables(one, other, by_number(one.variables.keys() | other.variables.keys()))


def raised(outcome: Outcome) -> list[tuple[str, str]]:
    """The errors of a program, also those of looking at its variables."""
    seen = [one.facts["is"] for one in outcome.variables.values() if one.kind == "error"]
    return [*seen, *[error for error in outcome.errors if error is not None]]


def captured(one: Outcome, other: Outcome) -> str | None:
    """A captured function that raises raises for all."""
    errors = [e for e in other.errors if e is not None]
    if errors:
        is_known = any(re.search(f"compile|{LATE}", text) for _, text in errors)
        return None if is_known else f"{told(errors[0])}"
    # A replay does not count what it writes.
    uncounted = [
        o._replace(variables={n: v.uncounted() for n, v in o.variables.items()})
        for o in (one, other)
    ]
    return variables(*uncounted, by_number(one.variables.keys() & other.variables.keys()))


def by_number(names: Iterable[str]) -> list[str]:
    """Variables in the order in which they were made: the first one that differs tells most."""
    return sorted(names, key=lambda name: int(name[1:]))


def variables(one: Outcome, other: Outcome, names: list[str]) -> str | None:
    for name in names:
        a, b = one.variables.get(name), other.variables.get(name)
        if a is None or b is None:
            return f"{name} is there only once"
        late = {s.facts["is"] for s in (a, b) if s.kind == "error"}
        if late and late <= {*raised(one)} & {*raised(other)}:
            continue  # an error of values comes at whatever is looked at first
        found = same(a, b)
        if found:
            return f"{name}{found}"
    return None


def same(a: Seen, b: Seen) -> str | None:
    if a.kind != b.kind:
        return f" is {a.kind}, but {b.kind} {'' if b.values is not None else b.facts}"
    for fact in sorted(a.facts.keys() | b.facts.keys() - {"grad"}):
        if fact != "grad" and repr(a.facts.get(fact)) != repr(b.facts.get(fact)):
            return f".{fact} is {a.facts.get(fact)!r}, but {b.facts.get(fact)!r}"
    if a.strides != b.strides and 0 not in a.facts.get("shape", ()):
        return f".stride() is {a.strides}, but {b.strides}"
    if (a.values is None) != (b.values is None):
        return " has values only once"
    if a.values is not None and b.values is not None and a.values.tobytes() != b.values.tobytes():
        return f" is\n{a.values}, but\n{b.values}"
    return of_gradients(a, b, same)


def of_gradients(a: Seen, b: Seen, compare: Any) -> str | None:
    grads = a.facts.get("grad"), b.facts.get("grad")
    if grads[0] is None or grads[1] is None:
        return None if grads[0] is grads[1] else ".grad is there only once"
    found = compare(*grads)
    return f".grad{found}" if found else None


def told(error: tuple[str, str] | None) -> str:
    return "no error" if error is None else f"{error[0]}: {error[1][:200]}"


# ----- beside PyTorch -----


def beside_torch(lines: list[str], own: Outcome, theirs: Outcome) -> str | None:
    for k, (a, b) in enumerate(zip(own.errors, theirs.errors, strict=True)):
        if (a is None) != (b is None):
            texts = (a or b or ("", ""))[1]
            if FREED in texts or OVERWRITTEN in texts or re.search(NOT_HERE, texts):
                return None
            if b is not None and (b[0] == "AttributeError" or ROOTLESS in b[1]):
                return None  # PyTorch has no such name, or sends nothing back from there
            if a is None and len(raised(own)) > len([e for e in own.errors if e]):
                return None  # an error of values, which came when somebody looked
            if a is None and b is not None and is_refused_there(lines[k], b[1]):
                return None
            if a is None and b is not None and re.search(LATE, b[1]) and is_overwritten(lines, k):
                return None  # an error of values that nobody could see any more
            return f"line {k + 1}: {told(a)}, but torch {told(b)}"
        if a is not None and (FREED in a[1] or OVERWRITTEN in a[1]):
            return None
        if a == b == ("RuntimeError", HALF_WRITTEN) and not assigned(lines[k]):
            return None
    if not theirs.variables:
        return None  # its errors depend on the rounding
    largest = max((size(one) for one in theirs.variables.values()), default=0.0)
    creates = any(CREATES in line for line in lines)
    for name in by_number(theirs.variables):
        if name not in own.variables:
            return f"{name} is not there"
        if creates and own.variables[name].facts.get("requires_grad") is False:
            theirs.variables[name].facts.update(requires_grad=False, is_leaf=True)
        found = close(own.variables[name], theirs.variables[name], largest)
        if found:
            return f"{name}{found}"
    return None


def is_refused_there(line: str, text: str) -> bool:
    return any(re.search(call, line) and re.search(t, text) for call, t in REFUSED_THERE.items())


def is_overwritten(lines: list[str], k: int) -> bool:
    """Whether what a line makes is written in place later on."""
    return not {*assigned(lines[k])}.isdisjoint(map(written, lines[k + 1 :]))


def size(one: Seen | None) -> float:
    """The largest number in sight."""
    if one is None:
        return 0.0
    largest = size(one.facts.get("grad")) if isinstance(one.facts.get("grad"), Seen) else 0.0
    if one.values is not None and one.values.dtype.kind == "f" and one.values.size:
        finite = one.values[np.isfinite(one.values)]
        largest = max(largest, float(np.abs(finite).max(initial=0.0)))
    return largest


def close(own: Seen, theirs: Seen, largest: float) -> str | None:
    unsteady = np.isscalar(theirs.spread) and math.isinf(float(theirs.spread))  # type: ignore[arg-type]
    if unsteady:
        return None
    if theirs.kind == "error" and "ZeroTensor" in theirs.facts["is"][1]:
        return None
    if own.kind != theirs.kind:
        return f" is {own.kind}{own.facts.get('is', '')}, torch's {theirs.kind}{theirs.facts.get('is', '')}"
    for fact in FACTS:
        if fact == "is_leaf" and 0 in own.facts.get("shape", ()):
            continue  # what has no elements may be made without the operation
        if own.facts.get(fact) != theirs.facts.get(fact):
            return f".{fact} is {own.facts.get(fact)}, torch's {theirs.facts.get(fact)}"
    if own.values is None or theirs.values is None:
        return None
    if not are_close(own.values, theirs.values, theirs.spread, largest):
        return f" is\n{own.values}, torch's\n{theirs.values}"
    return of_gradients(own, theirs, lambda a, b: close(a, b, largest))


def are_close(own: np.ndarray, theirs: np.ndarray, spread: Any, largest: float) -> bool:
    if own.dtype.kind != "f":
        return bool((own == theirs).all()) or bool(np.isinf(spread).any())
    with np.errstate(all="ignore"):
        allowed = TIMES_SPREAD * np.asarray(spread, np.float64)
        allowed = allowed + UNITS * float(np.finfo(own.dtype).eps) * largest
        apart = np.abs(own.astype(np.float64) - theirs)
    agree = (own == theirs) | (np.isnan(own) & np.isnan(theirs)) | (apart <= allowed)
    return bool((agree | np.isinf(np.broadcast_to(spread, own.shape))).all())
