"""The files of generated code: what is written, where it lies, how it is loaded again.

A file has the function as it was read, with its way back or its tangents, and functions to call them by.
Its name has a digest of all that it depends on, so that a file is never changed and Numba's cache beside it
holds; `FACTS` in it says what else is known, so that a later process neither reads nor transforms anything.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numba
import numpy as np
from numba import types

from .. import config
from ..kernels.language.processor import FUSED
from ..kernels.math import vector
from ..schedule.jit import disk, kernel_files
from .folding import folded
from .forward_mode import tangent_of
from .parallel import not_apart
from .reader import NONE, ArgumentKind, read, runs_parallel
from .refusal import NotDifferentiable
from .reverse import ReverseWriter
from .rules import FLAT
from .source import Function, Meaning, parallel_option, python_function
from .structure import Apply, Make, Procedure, StoreElement, walk
from .typing_pass import infer_types
from .writing import Lines, add_copy, primal_source, results_text

Mode = Literal["reverse", "forward", "second"]

_HEADER = '''"""{title}

Made by adjit, from {heading}. To step through it, run with NUMBA_DISABLE_JIT=1;
what is changed here stays until the function itself is changed.
"""

import math

import numpy as np
from numba import float32, float64, int32, int64, njit

from adjit.user_kernels.runtime import (
    array_b1, array_f4, array_f8, array_i8, at_b1, at_f4, at_f8, at_i8, close_beside, close_tape, digamma,
    nat, open_tape, over, overlap, pick, release, reserve, rest, room_f4, room_f8, rounds, tape_less,
    tape_low, tape_more, tape_set, tape_top, trigamma, zeros_as, zeros_f4, zeros_f8, zeros_i8,
)

FACTS = {facts!r}
compiled = njit(error_model="numpy", nogil=True, cache=True, boundscheck={checked})

'''
# Names of the same memory have the same name of it; no two memories overlap.
_APART = """from adjit.user_kernels.machine_code import WayBackCompiler

APART = {apart!r}
compiled_back = njit(error_model="numpy", nogil=True, boundscheck={checked}, pipeline_class=WayBackCompiler)

"""
# Only loops are shared by threads: what Numba itself makes parallel has other bits on other numbers of them.
_PARALLEL = """from numba import prange

from adjit.user_kernels.runtime import threads_used, use_threads

parallel = njit(error_model="numpy", nogil=True, cache=True, parallel=dict(
    comprehension=False, reduction=False, inplace_binop=False, setitem=False, numpy=False, stencil=False,
    fusion=False, prange=True,
))

"""
_MOST_READINGS = 32  # of one function
_VECTORISED = re.compile(r"\b\w+_f(?:64|32)(?=\()")
_TITLES = {
    "reverse": "`{}` and its way back.",
    "forward": "`{}` with its tangents.",
    "second": "The tangent of `{}` and its way back.",
}


@dataclass(frozen=True)
class GeneratedFile:
    """A loaded file of generated code."""

    module: ModuleType
    path: Path

    @property
    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.module.FACTS
        return facts

    @property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")


def is_floating(kind: types.Type) -> bool:
    return isinstance(kind.dtype if isinstance(kind, types.Array) else kind, types.Float)


def kind_of(function: Function, position: int, kind: types.Type) -> ArgumentKind:
    if isinstance(kind, types.Array):
        dtype = np.dtype(str(kind.dtype)) if kind.dtype is not types.boolean else np.dtype(bool)
        if dtype.kind in "bif" and dtype != np.float16 and kind.ndim:
            return kind.ndim, dtype.str[1:]
    elif isinstance(kind, (types.Integer, types.Float, types.Boolean)):
        if isinstance(kind, types.Float):
            return f"f{kind.bitwidth // 8}"
        return "b1" if isinstance(kind, types.Boolean) else "i8"
    elif isinstance(kind, types.NoneType):
        return NONE
    name = python_function(function).__name__
    raise NotDifferentiable(
        f"argument {position} of {name} has the type {kind}, which cannot be differentiated\n"
        "Pass numbers, None, and arrays with axes of float64, float32, whole numbers or bool."
    )


def generated(
    function: Function,
    argument_types: Sequence[types.Type],
    wrt: tuple[int, ...] | None,
    mode: Mode,
    *,
    checkpoint: bool = False,
    strong_zero: bool = False,
) -> GeneratedFile:
    """The file for a function and types of arguments, made if it is not there.

    `wrt` are the positions of the arguments to differentiate by; None are all that are floats.
    With `checkpoint` outer loops run again on the way back; with `strong_zero` no gradient flows through
    infinity wherever there is none, as in the second order.

    Raises:
        NotDifferentiable: if the function has something that cannot be differentiated.
        TypeError: if an argument of `wrt` is no float or array of floats.
    """
    argument_types = tuple(types.unliteral(t) for t in argument_types)
    floating = [k for k, t in enumerate(argument_types) if is_floating(t)]
    for k in wrt if wrt is not None else ():
        if k not in floating:
            name = python_function(function).__name__
            raise TypeError(
                f"argument {k} of {name} is no float or array of floats: it has no gradient"
            )
    wanted = tuple(floating if wrt is None else wrt)
    key = (
        Meaning(function).digest,
        str(argument_types),
        str(wanted),
        mode,
        str(config.DEBUG),
        str(checkpoint),
        str(strong_zero),
        str(parallel_option(function)),
        digest_of_room(),
    )
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
    name = f"user_{python_function(function).__name__}_{mode}_{digest}"
    return file_of(
        name,
        lambda: text_of(
            function, argument_types, wanted, mode, checkpoint=checkpoint, strong_zero=strong_zero
        ),
    )


def file_of(name: str, text: Callable[[], str]) -> GeneratedFile:
    """The file of a name, whose text is made if it is not there."""
    if name not in sys.modules:
        path = disk.folder() / f"{name}.py"
        if not path.exists():
            disk.write_atomically(path, text().encode())
        sys.modules[name] = _load(name, path)
    module = sys.modules[name]
    return GeneratedFile(module, Path(str(module.__file__)))


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Numba looks there for what it loads from its cache
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@functools.cache
def digest_of_room() -> str:
    """A digest of the files that write code, and of the functions that it calls: other ones make other code."""
    functions = kernel_files.digest_of([kernel_files.name_of(vector.__name__)])
    found = hashlib.sha256(f"{numba.__version__} {functions} {FUSED}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


def typed_form(function: Function, argument_types: tuple[types.Type, ...]) -> Procedure:
    """The structured form of a function, which all modes start from."""
    depends_on = Meaning(function).digest, runs_parallel(function)
    return _typed_form(function, argument_types, depends_on)


@functools.lru_cache(maxsize=4)
def _typed_form(
    function: Function, argument_types: tuple[types.Type, ...], depends_on: tuple[str, bool]
) -> Procedure:
    return read_with_types(function, argument_types)


def read_with_types(
    function: Function, argument_types: Sequence[types.Type], *, on_gpu: bool = False
) -> Procedure:
    """Read a function, again while numbers beside arrays turn out to be of other dtypes than was supposed.

    What is read before such a number stays the same, so the first of them is settled each time. Likewise where
    rounds of a `prange` turn out not to be apart.
    """
    kinds = [kind_of(function, k, t) for k, t in enumerate(argument_types)]
    known: dict[str, str] = {}
    in_order: set[str] = set()
    for _ in range(_MOST_READINGS):
        f = read(function, kinds, on_gpu=on_gpu, dtypes=known, in_order=in_order)
        infer_types(f, argument_types)
        found = {n: f.types.get(n, dtype) for n, dtype in f.supposed.items()}
        wrong = next((n for n, dtype in f.supposed.items() if found[n] != dtype), None)
        if wrong is not None:
            known[wrong] = found[wrong]
        elif others := not_apart(f):
            in_order |= others
        else:
            return f
    raise NotDifferentiable(
        f"{f.heading}: the dtypes of arrays in {f.name} depend on one another in a loop\n"
        "Make these arrays before the loop, with a dtype."
    )


def text_of(
    function: Function,
    argument_types: tuple[types.Type, ...],
    wanted: tuple[int, ...],
    mode: Mode,
    *,
    checkpoint: bool = False,
    strong_zero: bool = False,
) -> str:
    """The text of a file."""
    f = typed_form(function, argument_types)
    if mode == "reverse":
        return _reverse_file(f, [f.params[k] for k in wanted], mode, checkpoint, strong_zero)
    params = [f.params[k] for k in wanted]
    g = tangent_of(f, params, only_tangents=mode == "second")
    types_of_tangents = [argument_types[k] for k in wanted]
    if mode == "forward":
        return _forward_file(f, g, params)
    infer_types(g, [*argument_types, *types_of_tangents])
    return _reverse_file(g, [*params, *[f"{p}_d" for p in params]], mode, checkpoint, True)


def _file(
    f: Procedure,
    mode: Mode,
    facts: dict[str, Any],
    *sources: str,
    apart: dict[str, str] | None = None,
) -> str:
    head = _HEADER.format(
        title=_TITLES[mode].format(f.name), heading=f.heading, facts=facts, checked=config.DEBUG
    )
    if apart is not None:
        head += _APART.format(apart=apart, checked=config.DEBUG)
    if any(source.startswith("@parallel") for source in sources):
        head += _PARALLEL
    if vectorised := {name for source in sources for name in _VECTORISED.findall(source)}:
        names = ", ".join(sorted(vectorised))
        head += f"from adjit.user_kernels.vector_functions import {names}\n\n"
    return head + "\n\n".join(
        folded(source if source.startswith("@") else f"@compiled\n{source}") for source in sources
    )


def results_of(f: Procedure) -> list[str]:
    """`float` or `whole` for a number; dimensions and dtype of an array."""
    found: list[str] = []
    for v in f.returns:
        if isinstance(v, str) and v in f.arrays:
            found.append(f"array{f.arrays[v][0]}{f.arrays[v][1]}")
        else:
            found.append("float" if isinstance(v, float) or f.is_float(v) else "whole")
    return found


def dtypes_of(f: Procedure) -> list[str]:
    """The dtypes of the results, `whole` for numbers that are not floats."""
    found: list[str] = []
    for v, result in zip(f.returns, results_of(f), strict=True):
        if isinstance(v, str) and v in f.arrays:
            found.append(f.arrays[v][1])
        else:
            found.append("whole" if result == "whole" else f.types.get(str(v), "f8"))
    return found


def written_params(f: Procedure) -> list[str]:
    return [p for p in f.params if p in f.arrays and f.root(p) in f.written]


def _reverse_file(
    f: Procedure, wanted: list[str], mode: Mode, checkpoint: bool, strong_zero: bool
) -> str:
    writer = ReverseWriter(f, wanted, strong_zero=strong_zero, checkpoint=checkpoint)
    core = writer.write("way_back")
    facts = facts_of(f, writer, wanted)
    instead = {loop: rounds.run for loop, rounds in writer.rounds.items()}
    sources = [text for rounds in writer.rounds.values() for text in rounds.functions()]
    sources += [primal_source(f, "primal", instead=instead), *writer.functions]
    sources.append(f"@compiled_back\n{core}")
    sources.append(pullback_source(f, writer, wanted))
    if facts["results"] == ["float"]:
        sources.append(_value_and_grad(f, writer, wanted))
    sources.append(_peak_bytes(f, writer))
    return _file(f, mode, facts, *sources, apart=writer.memories())


def facts_of(f: Procedure, writer: ReverseWriter, wanted: list[str]) -> dict[str, Any]:
    return {
        "results": results_of(f),
        "is_tuple": f.returns_tuple,
        "dtypes": dtypes_of(f),
        "written": [f.params.index(p) for p in written_params(f)],
        "wanted": [f.params.index(p) for p in wanted],
        "kept": _kept(writer),
        "flat": _flat(writer),
    }


def _kept(writer: ReverseWriter) -> list[tuple[str, str, str]]:
    """(what is kept, the user's line, why) of all that is on the tape."""
    f, found = writer.f, []
    for block, names in writer.tape.taped.items():
        where = getattr(block.owner, "note", "")
        for n in names:
            item = f.makers[n]
            if isinstance(item, StoreElement):
                why = f"an element that is overwritten in `{item.note}` and read again"
            elif isinstance(item, Apply):
                why = f"the result of {item.function}, which costs more to compute again"
            else:
                why = "a value that a loop or branch hands on"
            found.append((n, item.note or where, why))
    for _, item in walk(f.body):
        if isinstance(item, Make):
            found.append((item.dst, item.note, "an array of the function"))
    for loop, parts in [*writer.parts.items(), *writer.single.items()]:
        state = ", ".join([*parts.numbers, *parts.arrays]) or "nothing"
        found.append((state, loop.note, f"the state of a loop at {parts.when}"))
    return found


def _flat(writer: ReverseWriter) -> list[tuple[str, str]]:
    """(function, line) of functions that are constant between jumps: no gradient flows through them."""
    floats = (
        (i.function, i.note) for _, i in walk(writer.f.body)
        if isinstance(i, Apply) and i.function in FLAT and any(writer.f.is_float(a) for a in i.args)
    )  # fmt: skip
    return list(floats)


def _shares(f: Procedure) -> list[tuple[str, str]]:
    """Pairs of arguments that must not overlap: one of them is written."""
    arrays, written = [p for p in f.params if p in f.arrays], written_params(f)
    return [(a, b) for a in written for b in arrays if a != b and not (b in written and b < a)]


def _check_shares(f: Procedure, w: Lines) -> None:
    for a, b in _shares(f):
        w.add(f"if overlap({a}, {b}):")
        w.add(f'    raise ValueError("{a} is written and shares memory with {b}: pass a copy")')


def _call_core(f: Procedure, writer: ReverseWriter, seeds: dict[str, str]) -> str:
    written = written_params(f)
    args = [f"{a}_copy" if a in written else seeds.get(a, a) for a in writer.parameters()]
    names = [f"value{k}" for k in range(len(f.returns))]
    names += [f"{p}_b" for p in writer.number_gradients()]
    call = f"way_back({', '.join(args)})"
    return f"{results_text(names, True)} = {call}" if names else call


def _gradients(f: Procedure, writer: ReverseWriter, wanted: list[str], w: Lines) -> str:
    for p in wanted:
        if p in f.arrays and not writer.is_active(p):
            w.add(f"{p}_b = zeros_as({p})")
    return results_text(
        [f"{p}_b" if p in f.arrays or writer.is_active(p) else "0.0" for p in wanted], True
    )


def _value_and_grad(f: Procedure, writer: ReverseWriter, wanted: list[str]) -> str:
    w = Lines()
    w.add(f"def value_and_grad({', '.join(f.params)}):")
    with w.indented():
        _check_shares(f, w)
        _call_without_effect(f, writer, dict.fromkeys(writer.seeds(), "1.0"), w)
        w.add("close_tape(tape)")
        w.add(f"return value0, {_gradients(f, writer, wanted, w)}")
    return "\n".join(w.lines) + "\n"


def _peak_bytes(f: Procedure, writer: ReverseWriter) -> str:
    """A function that gives the most bytes of the tape, for arguments of the user's function."""
    w = Lines()
    results = [f"first{k}" for k in range(len(f.returns))]
    seeds = dict.fromkeys(writer.seeds(), "1.0")
    w.add(f"def peak_bytes({', '.join(f.params)}):")
    with w.indented():
        if any(v in f.arrays for v in f.returns if isinstance(v, str)):
            given = [f"{p}.copy()" if p in written_params(f) else p for p in f.params]
            w.add(f"{results_text(results, f.returns_tuple)} = primal({', '.join(given)})")
            seeds |= {
                f"{v}_seed": f"zeros_as({first})"
                for v, first in zip(f.returns, results, strict=True)
                if f"{v}_seed" in seeds
            }
        _call_without_effect(f, writer, seeds, w)
        w.add("return close_tape(tape)")
    return "\n".join(w.lines) + "\n"


def _call_without_effect(
    f: Procedure, writer: ReverseWriter, seeds: dict[str, str], w: Lines
) -> None:
    """A call of the way back on copies of what is written, with new adjoints."""
    for p in writer.shadows():
        w.add(f"{p}_b = zeros_as({p})")
    for p in written_params(f):
        w.add(f"{p}_copy = {p}.copy()")
    w.add("tape = open_tape()")
    w.add(_call_core(f, writer, seeds))


def pullback_source(f: Procedure, writer: ReverseWriter, wanted: list[str]) -> str:
    """A function of (arguments, adjoints of the results that are floats, adjoints of the arrays that are
    written and floats, memory for the gradients of arrays) that fills the last and gives the results that
    are numbers, and the gradients of numbers."""
    w, seeds, extra = Lines(), {}, []
    active = set(writer.seeds())
    for k, (v, kind) in enumerate(zip(f.returns, results_of(f), strict=True)):
        if kind == "whole" or (kind.startswith("array") and "f" not in kind):
            continue
        extra.append(f"adjoint{k}")
        own = f"{v}_seed" if kind.startswith("array") else f"seed{k}"
        if own in active:
            seeds[own] = f"adjoint{k}.copy()" if kind.startswith("array") else f"adjoint{k}"
    written = [p for p in written_params(f) if f.arrays[p][1][0] == "f"]
    extra += [f"{p}_adjoint" for p in written]
    filled = [p for p in wanted if p in f.arrays]
    extra += [f"{p}_b" for p in filled]
    w.add(f"def pullback({', '.join([*f.params, *extra])}):")
    with w.indented():
        _check_shares(f, w)
        for p in filled:
            if p in written:
                add_copy(w, f"{p}_b", f"{p}_adjoint[{{at}}]", f.arrays[p][0], f"{p}_adjoint_")
            else:
                add_copy(w, f"{p}_b", "0.0", f.arrays[p][0], f"{p}_b_")
        for p in writer.shadows():
            if p not in filled:
                w.add(f"{p}_b = {p}_adjoint.copy()")
        for p in written_params(f):
            w.add(f"{p}_copy = {p}.copy()")
        w.add("tape = open_tape()")
        w.add(_call_core(f, writer, seeds))
        w.add("close_tape(tape)")
        numbers = [f"value{k}" for k, kind in enumerate(results_of(f)) if kind[:5] != "array"]
        gradients = [f"{p}_b" if writer.is_active(p) else "0.0" for p in wanted if p not in filled]
        w.add(f"return {results_text(numbers, True)}, {results_text(gradients, True)}")
    return "\n".join(w.lines) + "\n"


def _forward_file(f: Procedure, g: Procedure, params: list[str]) -> str:
    """The tangents' function, and one that leaves its arguments alone."""
    facts = {"results": results_of(f), "is_tuple": f.returns_tuple, "dtypes": dtypes_of(f)}
    w = Lines()
    w.add(f"def value_and_tangent({', '.join(g.params)}):")
    names = dict.fromkeys(written_params(g))
    with w.indented():
        _check_shares(f, w)
        for p in names:
            w.add(f"{p}_copy = {p}.copy()")
        outs = [f"v{k}" for k in range(len(g.returns))]
        call = f"tangents({', '.join(f'{p}_copy' if p in names else p for p in g.params)})"
        w.add(f"{results_text(outs, True)} = {call}" if outs else call)
        half = len(f.returns)
        parts = []
        for side, suffix in ((outs[:half], ""), (outs[half:], "_d")):
            changed = [f"{p}{suffix}_copy" if f"{p}{suffix}" in names else f"{p}{suffix}.copy()"
                       for p in written_params(f) if not suffix or p in params]  # fmt: skip
            parts.append(f"{results_text(side, f.returns_tuple)}, {results_text(changed, True)}")
        w.add(f"return {', '.join(parts)}")
    return _file(f, "forward", facts, primal_source(g, "tangents"), "\n".join(w.lines) + "\n")
