"""Scalar bodies to kernel source: one flat loop, or rows of a strided loop.

An elementwise kernel over contiguous operands reads like this:

    def mul(args, start, stop):
        p = words(args)
        p_x = at(p[0], float32)
        p_y = at(p[1], float32)
        p_out = at(p[2], float32)
        for i in range(start, stop):
            x = p_x[i]
            y = p_y[i]
            out = x * y
            p_out[i] = out
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..dtypes import dtype
from ..shapes import coalesce
from .body import Body, Pasted
from .recipe import GRAIN, Source, Step

NUMBER = "k"  # a Python number, one word
CONTIGUOUS, REPEATED, STRIDED = "c", "s", "v"


class Operand(NamedTuple):
    """An input or a result of an elementwise kernel."""

    name: str
    dtype: dtype
    strides: tuple[int, ...] | None  # in the shape of the loop; None for a Python number


class Loop(NamedTuple):
    """The geometry that an elementwise step runs over."""

    flags: str  # one letter an operand
    nested: bool
    n: int
    grain: int
    constants: tuple[int, ...]


def geometry(shape: Sequence[int], operands: Sequence[Operand], order: Sequence[int]) -> Loop:
    """Coalesce the axes, outermost first in `order`, and sort operands into classes of stride."""
    strided = [o for o in operands if o.strides is not None]
    sizes, strides = coalesce(
        [shape[d] for d in order],
        [[o.strides[d] for d in order] for o in strided],  # type: ignore[index]
    )
    inner = [s[-1] if s else 1 for s in strides]
    letters = iter({1: CONTIGUOUS, 0: REPEATED}.get(stride, STRIDED) for stride in inner)
    flags = "".join(NUMBER if o.strides is None else next(letters) for o in operands)
    steps = tuple(stride for stride in inner if stride not in (0, 1))
    if len(sizes) <= 1:
        return Loop(flags, False, sizes[0] if sizes else 1, GRAIN, steps)
    rows = 1
    for size in sizes[:-1]:
        rows *= size
    outer = [*reversed(sizes[:-1])]
    for s in strides:
        outer += reversed(s[:-1])
    constants = (len(sizes) - 1, sizes[-1], *outer, *steps)
    return Loop(flags, True, rows, max(1, GRAIN // max(sizes[-1], 1)), constants)


def render(
    name: str,
    pasted: Pasted,
    compute: dtype,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    logical: frozenset[str],
    flags: str,
    nested: bool,
    alias: bool = False,
) -> Source:
    """The source of one elementwise kernel.

    `logical` names inputs that the body reads as booleans; `alias` says that the first input
    and the first output are the same memory.
    """
    operands = [o for o in [*inputs, *outputs] if o.strides is not None]
    letters = dict(zip([o.name for o in [*inputs, *outputs]], flags, strict=True))
    pointers = [o.name for o in operands]
    head = ["p = words(args)"]
    loads: list[str] = []
    stores: list[str] = []
    base = len(pointers)
    strided = [n for n in pointers if letters[n] == STRIDED]
    tail = f"{base + 2} + outer * {len(pointers) + 1}" if nested else str(base)
    numbers = [o.name for o in inputs if o.strides is None]
    if nested:
        head += [f"outer = p[{base}]", f"inner = p[{base + 1}]", f"tail = {tail}"]
        tail = "tail"
    for k, n in enumerate(strided):
        head.append(f"step_{n} = p[{tail} + {k}]")
    for k, n in enumerate(numbers):
        word = f"p[{tail} + {len(strided) + k}]"
        if compute.is_floating_point:
            word = f"float_of_bits({word})"
        head.append(f"{n} = {'T(' + word + ')' if n not in logical else word + ' != 0'}")

    body: list[str] = []
    setup: list[str] = []
    for k, o in enumerate(operands):
        same = alias and o.name == outputs[0].name
        source = f"p_{inputs[0].name}" if same else ""
        if nested:
            element = f"p[{k}] + o_{o.name} * {o.dtype.itemsize}"
            setup.append(f"p_{o.name} = " + (source or f"at({element}, {o.dtype.stored})"))
        else:
            head.append(f"p_{o.name} = " + (source or f"at(p[{k}], {o.dtype.stored})"))

    def subscript(n: str) -> str:
        letter = letters[n]
        return "0" if letter == REPEATED else "i" if letter == CONTIGUOUS else f"i * step_{n}"

    for o in inputs:
        if o.strides is None:
            continue
        value = f"p_{o.name}[{subscript(o.name)}]"
        if o.name in logical:
            value = f"{value} != 0"
        elif o.dtype.stored != compute.stored:
            value = f"T({value})"
        (setup if letters[o.name] == REPEATED else loads).append(f"{o.name} = {value}")
    for o in outputs:
        if o.dtype.kind == "b":
            value = f"uint8({o.name} != 0)" if compute.kind == "b" else f"uint8({o.name})"
        elif o.dtype.stored != compute.stored:
            value = f"{o.dtype.stored}({o.name})"
        else:
            value = o.name
        stores.append(f"p_{o.name}[{subscript(o.name)}] = {value}")

    if nested:
        offsets = [f"o_{n}" for n in pointers]
        body.append("for row in range(start, stop):")
        inside = ["rest = row", *(f"{o} = 0" for o in offsets), "for d in range(outer):"]
        walk = [f"size = p[{base + 2} + d]", "ahead = rest // size", "at_d = rest - ahead * size",
                "rest = ahead"]  # fmt: skip
        for k, offset in enumerate(offsets):
            walk.append(f"{offset} += at_d * p[{base + 2} + outer * {k + 1} + d]")
        inside += ["    " + line for line in walk] + setup
        inside.append("for i in range(inner):")
        inside += ["    " + line for line in [*loads, *pasted.lines, *stores]]
        body += ["    " + line for line in inside]
    else:
        head += setup
        body.append("for i in range(start, stop):")
        body += ["    " + line for line in [*loads, *pasted.lines, *stores]]

    kinds = {o.dtype.stored for o in operands} | {compute.stored, "uint8"}
    text = "\n".join("    " + line for line in head + body)
    imports = {"words": "adjit.kernels.abi", "at": "adjit.kernels.abi", **pasted.imports}
    if "float_of_bits" in text:
        imports["float_of_bits"] = "adjit.kernels.abi"
    return Source(name, assemble(name, text, kinds, imports, {"T": compute.stored}))


def assemble(
    name: str, body: str, kinds: set[str], imports: dict[str, str], bound: dict[str, str]
) -> str:
    """A whole module: imports, the dtypes behind the type letters, the kernel."""
    kinds = {k for k in kinds if k in body} | set(bound.values())
    lines = []
    if "math." in body:
        lines.append("import math\n")
    lines.append(f"from numpy import {', '.join(sorted(kinds))}\n")
    modules: dict[str, list[str]] = {}
    for item, module in imports.items():
        modules.setdefault(module, []).append(item)
    for module in sorted(modules):
        lines.append(f"from {module} import {', '.join(sorted(modules[module]))}")
    lines.append("")
    lines += [f"{letter} = {kind}" for letter, kind in sorted(bound.items())]
    return "\n".join(lines) + f"\n\n\ndef {name}(args, start, stop):\n{body}\n"


def elementwise(
    name: str,
    body: Body,
    wanted: Sequence[int],
    compute: dtype,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    shape: Sequence[int],
    order: Sequence[int],
    alias: bool = False,
) -> tuple[Step, tuple[int, ...]]:
    """The step, and its constant words, that runs `body` over `shape`."""
    loop = geometry(shape, [*inputs, *outputs], order)
    kinds = (
        "_".join(_short(o.dtype) for o in inputs)
        + "_to_"
        + "_".join(_short(o.dtype) for o in outputs)
    )
    label = f"{name}_{kinds}_{loop.flags}{'_rows' if loop.nested else ''}{'_over' if alias else ''}"
    key = (body, label, compute, tuple(wanted), tuple(o.name for o in inputs))
    source = _sources.get(key)
    if source is None:
        pasted = body.paste([o.name for o in outputs], wanted, compute)
        source = _sources[key] = render(
            label, pasted, compute, inputs, outputs, body.logical, loop.flags, loop.nested, alias
        )
    return Step(source, loop.n, loop.grain), loop.constants


_sources: dict[Any, Source] = {}


def _short(kind: dtype) -> str:
    return f"{kind.kind}{kind.itemsize * 8}" if kind.kind != "b" else "b"
