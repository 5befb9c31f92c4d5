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

A large result goes block by block through a buffer on the stack, and from there past the caches;
the last block overlaps the one before it:

        for block in range(start & -128, stop, 128):
            first = min(max(block, start), stop - 128)
            for i in range(128):
                x = p_x[first + i]
                y = p_y[first + i]
                out = x * y
                block_out[i] = out
            stream_block(p_out, first, block_out, (p[2] + first * 4) % 64 == 0)
        fence()
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..dtypes import dtype
from ..kernels.lanes import BLOCK, CACHE_LINE
from ..shapes import coalesce
from .body import Body, Pasted
from .recipe import GRAIN, Element, Fold, Operand, Source, Step

STORED = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8")
# Bytes from which on a result is streamed. A store into a cache reads the line first, which by then
# is a read of memory. Measured on a 2-core Zen 4 with 32 MB of L3, one thread, float32: add on 4M
# elements 1,358 us for 1,973, and with the negation that reads the result 2,244 for 3,157; the
# latter pair on 1M elements is as fast either way, on 256k elements streaming loses a tenth.
STREAM_BYTES = 1 << 23

# Operands of which one is written, and has to be told from the other before a loop is vectorised.
# With more of them LLVM stays with scalars: 48 bodies of Black-Scholes, 6 inputs and 19 results, on
# 1M float64 take 109 ms, 29 through blocks.
MAX_PAIRS = 24
STREAMED, CACHED, PADDED = "streamed", "cached", "padded"
PART = 128  # elements of such a block where sums have blocks of their own
LINE = 64  # bytes; every block of memory is a whole number of lines
MAX_PADDED = 1024  # elements of the largest loop that is rounded up to whole lines
NUMBER = "k"  # a Python number, one word
CONTIGUOUS, REPEATED, STRIDED = "c", "s", "v"


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
    compute: dtype | None,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    logical: frozenset[str],
    flags: str,
    nested: bool,
    over: Mapping[str, str] | None = None,
    blocks: str = "",
) -> Source:
    """The source of one elementwise kernel.

    Operands are converted to and from `compute`; without it the pasted lines do that themselves.
    `logical` names inputs that the body reads as booleans; `over` says which outputs are written
    to the memory of which inputs. With `blocks` results are computed a block at a time on the stack
    and moved from there: "streamed" past the caches, or "cached"; "padded" blocks are a line of
    memory each, the last one too.
    """
    over = over or {}
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
        kind = next(o.dtype for o in inputs if o.name == n)
        if kind.is_floating_point:
            word = f"float_of_bits({word})"
        letter = kind.stored if compute is None else "T"
        head.append(f"{n} = {f'{letter}({word})' if n not in logical else word + ' != 0'}")

    body: list[str] = []
    setup: list[str] = []
    for k, o in enumerate(operands):
        source = f"p_{over[o.name]}" if o.name in over else ""
        if nested:
            element = f"p[{k}] + o_{o.name} * {o.dtype.itemsize}"
            setup.append(f"p_{o.name} = " + (source or f"at({element}, {o.dtype.stored})"))
        else:
            head.append(f"p_{o.name} = " + (source or f"at(p[{k}], {o.dtype.stored})"))

    i = "first + i" if blocks else "i"

    def subscript(n: str) -> str:
        letter = letters[n]
        return "0" if letter == REPEATED else i if letter == CONTIGUOUS else f"({i}) * step_{n}"

    for o in inputs:
        if o.strides is None:
            continue
        value = f"p_{o.name}[{subscript(o.name)}]"
        if compute is None:
            pass
        elif o.name in logical:
            value = f"{value} != 0"
        elif o.dtype.stored != compute.stored:
            value = f"T({value})"
        (setup if letters[o.name] == REPEATED else loads).append(f"{o.name} = {value}")
    for o in outputs:
        if compute is None:
            value = o.name
        elif o.dtype.kind == "b":
            value = f"uint8({o.name} != 0)" if compute.kind == "b" else f"uint8({o.name})"
        elif o.dtype.stored != compute.stored:
            value = f"{o.dtype.stored}({o.name})"
        else:
            value = o.name
        target = f"block_{o.name}[i]" if blocks else f"p_{o.name}[{subscript(o.name)}]"
        stores.append(f"{target} = {value}")

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
    elif blocks == PADDED:
        head += setup
        width = LINE // outputs[0].dtype.itemsize
        head += [f"block_{o.name} = stack({o.dtype.stored}, {width})" for o in outputs]
        body += [f"for first in range(start, stop, {width}):", f"    for i in range({width}):"]
        body += ["        " + line for line in [*loads, *pasted.lines, *stores]]
        for o in outputs:
            body.append(f"    for i in range({width}):")
            body.append(f"        p_{o.name}[first + i] = block_{o.name}[i]")
    elif blocks:
        head += setup
        inside = [f"first = min(max(block, start), stop - {BLOCK})", f"for i in range({BLOCK}):"]
        inside += ["    " + line for line in [*loads, *pasted.lines, *stores]]
        for o in outputs:
            head.append(f"block_{o.name} = stack({o.dtype.stored}, {BLOCK})")
            address = f"p[{pointers.index(o.name)}] + first * {o.dtype.itemsize}"
            aligned = f"({address}) % {CACHE_LINE} == 0" if blocks == STREAMED else "False"
            inside.append(f"stream_block(p_{o.name}, first, block_{o.name}, {aligned})")
        body.append(f"for block in range(start & -{BLOCK}, stop, {BLOCK}):")
        body += ["    " + line for line in inside] + ["fence()"] * (blocks == STREAMED)
    else:
        head += setup
        body.append("for i in range(start, stop):")
        body += ["    " + line for line in [*loads, *pasted.lines, *stores]]

    text = "\n".join("    " + line for line in head + body)
    imports = {"words": "adjit.kernels.abi", "at": "adjit.kernels.abi", **pasted.imports}
    if "float_of_bits" in text:
        imports["float_of_bits"] = "adjit.kernels.abi"
    if blocks:
        imports["stack"] = "adjit.kernels.lanes"
    if blocks in (STREAMED, CACHED):
        imports["stream_block"] = "adjit.kernels.lanes"
    if blocks == STREAMED:
        imports["fence"] = "adjit.kernels.lanes"
    bound = {} if compute is None else {"T": compute.stored}
    return Source(name, assemble(name, text, imports, bound))


def assemble(name: str, body: str, imports: dict[str, str], bound: dict[str, str]) -> str:
    """A whole module: imports, the dtypes behind the type letters, the kernel."""
    kinds = {k for k in STORED if re.search(rf"\b{k}\b", body)} | set(bound.values())
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
    fresh: bool = False,
) -> tuple[Step, tuple[int, ...]]:
    """The step, and its constant words, that runs `body` over `shape`.

    `fresh` says that the outputs are memory of their own.
    """
    loop = geometry(shape, [*inputs, *outputs], order)
    large = fresh and _is_streamed(loop, outputs)
    kinds = (
        "_".join(_short(o.dtype) for o in inputs)
        + "_to_"
        + "_".join(_short(o.dtype) for o in outputs)
    )
    label = f"{name}_{kinds}_{loop.flags}{'_rows' if loop.nested else ''}{'_over' if alias else ''}"
    key = (body, label, compute, tuple(wanted), tuple(o.name for o in inputs), large)
    source = _sources.get(key)
    if source is None:
        pasted = body.paste([o.name for o in outputs], wanted, compute)
        streamed = large and waits_for_memory(pasted)
        source = _sources[key] = render(
            f"{label}_streamed" if streamed else label, pasted, compute, inputs, outputs,
            body.logical, loop.flags, loop.nested,
            {outputs[0].name: inputs[0].name} if alias else None, STREAMED if streamed else "",
        )  # fmt: skip
    return Step(source, loop.n, loop.grain), loop.constants


def _blocks(
    loop: Loop, pasted: Pasted, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> str:
    """How a fused kernel stores its results."""
    if loop.nested or not loop.flags.endswith(CONTIGUOUS * len(outputs)):
        return ""
    if _is_streamed(loop, outputs) and waits_for_memory(pasted):
        return STREAMED
    pairs = len(outputs) * (len(inputs) + len(outputs))
    return CACHED if pairs > MAX_PAIRS and loop.n >= 16 * BLOCK else ""


def _is_streamed(loop: Loop, outputs: Sequence[Operand]) -> bool:
    """Whether results are too large to stay in a cache, and one after the other in memory."""
    return (
        not loop.nested
        and loop.flags.endswith(CONTIGUOUS * len(outputs))
        and loop.n * min([o.dtype.itemsize for o in outputs], default=0) >= STREAM_BYTES
    )


_sources: dict[Any, Source] = {}


def waits_for_memory(pasted: Pasted) -> bool:
    """Whether a loop is bound by memory: no function in it takes more than one instruction.

    A loop that computes more hides the read of the line, and bursts of streamed stores hold it up:
    sigmoid of 4M float32 takes 1,820 us streamed, 1,667 plain.
    """
    from ..kernels.vector_math import ONE_INSTRUCTION

    return ONE_INSTRUCTION.issuperset(pasted.imports)


def _short(kind: dtype) -> str:
    return f"{kind.kind}{kind.itemsize * 8}" if kind.kind != "b" else "b"


# ----- fused kernels -----


class Member(NamedTuple):
    """One body of a fused kernel, its operands and results by their names there."""

    name: str
    element: Element
    arguments: tuple[str, ...]
    targets: tuple[str, ...]


class Sum(NamedTuple):
    """A sum that a fused kernel takes over chunks of rows of a value."""

    value: str
    fold: Fold


def fused(
    members: Sequence[Member],
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    sums: Sequence[Sum],
    shape: Sequence[int],
    over: Mapping[str, str],
    padded: bool = False,
) -> tuple[Step, tuple[int, ...]]:
    """The step, and its constant words, that runs several bodies over `shape` in one loop.

    `padded` says that every operand may be read, and every result written, to the end of its line.

    `inputs` are first the values that are read, then the Python numbers. Every value has the type
    that it would have in memory, so that fused and unfused kernels give the same bits.
    """
    lines: list[str] = []
    imports: dict[str, str] = {}
    logical: set[str] = set()
    for member in members:
        pasted, truths = _member(member)
        lines += pasted.lines
        imports.update(pasted.imports)
        logical |= truths
    pasted = Pasted(lines, imports)
    names = list(dict.fromkeys(m.name for m in members))
    label = f"fused {', '.join([m.name for m in members])}"
    name = "_".join(["fused", *names[:4], str(len(members))])
    first = outputs[0] if outputs else inputs[0]
    assert first.strides is not None
    strides = first.strides
    order = sorted(range(len(shape)), key=lambda d: (-strides[d], d))
    loop = geometry(shape, [*inputs, *outputs], order)
    if sums:
        source = render_sums(name, pasted, inputs, outputs, sums, frozenset(logical), over)
        length, chunk, chunks = sums[0].fold.words
        units = shape[0] // max(length, 1) * chunks
        grain = max(1, GRAIN // max(chunk, 1))
        step = Step(_shared(source, f"{label}, sum"), units, grain)
        return step, (length, chunk, chunks)
    source = render(
        name, pasted, None, inputs, outputs, frozenset(logical), loop.flags, loop.nested, over,
        PADDED if padded else "" if over else _blocks(loop, pasted, inputs, outputs),
    )  # fmt: skip
    n = loop.n
    if padded:
        n += -n % (LINE // outputs[0].dtype.itemsize)
    return Step(_shared(source, label), n, loop.grain), loop.constants


def _shared(source: Source, label: str) -> Source:
    """The one source of this text."""
    found = _fused.get(source.text)
    if found is None:
        if len(_fused) >= MAX_FUSED:
            _fused.clear()
        source.label = label
        found = _fused[source.text] = source
    return found


_fused: dict[str, Source] = {}
MAX_FUSED = 4096


def _member(member: Member) -> tuple[Pasted, set[str]]:
    """The lines of one body, and which Python numbers it reads as truth values."""
    element, target = member.element, member.targets[0]
    body, compute = element.body, element.compute
    lines: list[str] = []
    names: dict[str, str] = {}
    truths: set[str] = set()
    for operand, given in zip(element.inputs, member.arguments, strict=True):
        names[operand.name] = given
        if operand.strides is None:
            if operand.name in body.logical:
                truths.add(given)
            continue
        if operand.name in body.logical:
            value = f"{given} != 0"
        elif operand.dtype.stored != compute.stored:
            value = f"{compute.stored}({given})"
        else:
            continue
        names[operand.name] = f"{target}_{operand.name}"
        lines.append(f"{names[operand.name]} = {value}")
    raw = [f"{t}_raw" for t in member.targets]
    pasted = body.inline(names, raw, element.wanted, compute)
    lines += pasted.lines
    for operand, target, value in zip(element.outputs, member.targets, raw, strict=True):
        if operand.dtype.kind == "b" and compute.kind == "b":
            value = f"{value} != 0"
        lines.append(f"{target} = {operand.dtype.stored}({value})")
    return Pasted(lines, pasted.imports), truths


def render_sums(
    name: str,
    pasted: Pasted,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    sums: Sequence[Sum],
    logical: frozenset[str],
    over: Mapping[str, str],
) -> Source:
    """The source of a fused kernel that sums some of its values over chunks of rows.

    The values of a block stay on the stack until they are summed, in the order of `sum_rows`.
    """
    read = [o for o in inputs if o.strides is not None]
    repeated = {o.name for o in read if not any(o.strides or ())}
    head = ["p = words(args)"]
    for k, o in enumerate([*read, *outputs]):
        source = f"p_{over[o.name]}" if o.name in over else f"at(p[{k}], {o.dtype.stored})"
        head.append(f"p_{o.name} = {source}")
    base = len(read) + len(outputs)
    for k, s in enumerate(sums):
        head.append(f"p_sum{k} = at(p[{base + k}], {s.fold.result.stored})")
    base += len(sums)
    head.append(f"length, step, chunks = p[{base}], p[{base + 1}], p[{base + 2}]")
    for k, o in enumerate([o for o in inputs if o.strides is None]):
        word = f"p[{base + 3 + k}]"
        if o.dtype.is_floating_point:
            word = f"float_of_bits({word})"
        truth = o.name in logical
        head.append(f"{o.name} = {f'{word} != 0' if truth else f'{o.dtype.stored}({word})'}")
    for k, s in enumerate(sums):
        head.append(f"block{k} = stack({s.fold.given.stored}, BLOCK)")
    head += [f"{n} = p_{n}[0]" for n in sorted(repeated)]
    inner = [f"{o.name} = p_{o.name}[i]" for o in read if o.name not in repeated]
    inner += pasted.lines
    if len(outputs) * (len(read) + len(outputs)) <= MAX_PAIRS:
        inner += [f"p_{o.name}[i] = {o.name}" for o in outputs]
        inner += [f"block{k}[j] = {s.value}" for k, s in enumerate(sums)]
        blocks = ["for j in range(count):", "    i = first + j"]
        blocks += ["    " + line for line in inner]
    else:
        head += [f"part_{o.name} = stack({o.dtype.stored}, {PART})" for o in outputs]
        inner += [f"part_{o.name}[j] = {o.name}" for o in outputs]
        inner += [f"block{k}[done + j] = {s.value}" for k, s in enumerate(sums)]
        blocks = [f"for done in range(0, count, {PART}):", f"    part = min({PART}, count - done)",
                  "    for j in range(part):", "        i = first + done + j"]  # fmt: skip
        blocks += ["        " + line for line in inner]
        for o in outputs:
            blocks.append("    for j in range(part):")
            blocks.append(f"        p_{o.name}[first + done + j] = part_{o.name}[j]")
    blocks.insert(0, "count = min(BLOCK, end - first)")
    for k, s in enumerate(sums):
        add_up = "squares_onto" if s.fold.squares else "sum_onto"
        blocks.append(
            f"total{k} = {add_up}(total{k}, block{k}, count, {s.fold.given.stored}, "
            f"{s.fold.result.stored})"
        )
    units = ["row = unit // chunks * length", "begin = row + unit % chunks * step",
             "end = min(begin + step, row + length)"]  # fmt: skip
    units += [f"total{k} = spread({s.fold.result.stored}(0))" for k, s in enumerate(sums)]
    units += ["for first in range(begin, end, BLOCK):", *["    " + line for line in blocks]]
    units += [f"p_sum{k}[unit] = fold(add, total{k})" for k in range(len(sums))]
    lines = [*head, "for unit in range(start, stop):", *["    " + line for line in units]]
    text = "\n".join("    " + line for line in lines)
    imports = {"words": "adjit.kernels.abi", "at": "adjit.kernels.abi", **pasted.imports}
    imports.update(dict.fromkeys(("fold", "spread", "stack"), "adjit.kernels.lanes"))
    imports.update({n: "adjit.kernels.reduce" for n in ("BLOCK", "squares_onto", "sum_onto")
                    if n in text})  # fmt: skip
    imports["add"] = "operator"
    if "float_of_bits" in text:
        imports["float_of_bits"] = "adjit.kernels.abi"
    return Source(name, assemble(name, text, imports, {}))
