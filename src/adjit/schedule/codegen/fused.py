"""Fused kernels: several scalar bodies in one loop, and the sums of what they compute.

Every value has the type that it would have in memory, so that fused and unfused kernels give the
same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ...kernels.language.lanes import BLOCK, LANES, ROWS
from ...kernels.ops.reduce import SHORT, SHORT_BYTES, sum_width
from ..planning.recipe import GRAIN, Element, Flat, Operand, Reduction, Source, Step, Text
from .body import Pasted, own
from .loops import (
    ASKING,
    CACHED,
    CONTIGUOUS,
    PADDED,
    STREAMED,
    Loop,
    ask,
    assemble,
    comes_from_far,
    dense_operands,
    geometry,
    interleaved,
    is_named,
    is_streamed,
    number_text,
    render,
    waits_for_memory,
)

# Operands of which one is written, and has to be told from the other before a loop is vectorised.
# With more of them LLVM stays with scalars: 48 bodies of Black-Scholes, 6 inputs and 19 results, on
# 1M float64 take 109 ms, 29 through blocks.
MAX_PAIRS = 24
PART = 128  # elements of a block of results where sums have blocks of their own
MAX_PADDED = 1024  # elements of the largest loop that is rounded up to whole lines


class GroupMember(NamedTuple):
    """One body of a fused kernel, its operands and results by their names there."""

    name: str
    element: Element
    arguments: tuple[str, ...]
    targets: tuple[str, ...]
    is_of_rows: bool = False  # of a row group, with one element for each row


class FusedSum(NamedTuple):
    """A sum that a fused kernel takes over chunks of rows of a value."""

    value: str
    fold: Reduction


def kernel(
    members: Sequence[GroupMember],
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    sums: Sequence[FusedSum],
    shape: Sequence[int],
    over: Mapping[str, str],
    padded: bool = False,
    on_host: bool = True,
) -> tuple[Step, tuple[int, ...]]:
    """The step, and its constant words, that runs several bodies over `shape` in one loop.

    `padded` says that every operand may be read, and every result written, to the end of its line. On a GPU,
    where `on_host` is False, each row is one block's, so that short ones are not joined.

    `inputs` are first the values that are read, then the Python numbers. Every value has the type
    that it would have in memory, so that fused and unfused kernels give the same bits.
    """
    lines: list[str] = []
    imports: dict[str, str] = {}
    logical: set[str] = set()
    for member in members:
        pasted, truths = member_lines(member)
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
    loop = geometry(shape, inputs, outputs, order)
    if sums:
        length, chunk, chunks = sums[0].fold.words
        size = max([s.fold.given.itemsize for s in sums])
        are_short = on_host and chunks == 1 and is_short(length, size)
        asked = asked_for(loop, [*inputs, *outputs], pasted) if on_host and not are_short else []
        source = render_sums(
            name, pasted, inputs, outputs, sums, frozenset(logical), over,
            sum_width((length,), ROWS, size) if are_short else 0, asked,
        )  # fmt: skip
        units = shape[0] // max(length, 1) * chunks
        grain = max(1, GRAIN // max(chunk, 1))
        step = Step(shared(source, f"{label}, sum"), units, grain)
        return step, (length, chunk, chunks)
    flat = Flat(
        name, tuple(lines), imports, None, tuple(inputs), tuple(outputs), frozenset(logical),
        loop.flags, loop.nested, loop.short,
    )  # fmt: skip
    blocks = PADDED if padded else "" if over else _blocks(loop, pasted, inputs, outputs)
    source = render(flat, over, blocks)
    return Step(shared(source, label), loop.n, loop.grain), loop.constants


def shared(source: Source, label: str) -> Source:
    """The one source of this text."""
    found = _fused.get(source.text)
    if found is None:
        if len(_fused) >= MAX_FUSED:
            _fused.clear()
        source.label = label
        found = _fused[source.text] = source
    return found


def is_short(width: int, size: int) -> bool:
    """Whether rows, of elements of so many bytes, are summed together with others."""
    return width <= SHORT and width * size <= SHORT_BYTES


_fused: dict[str, Source] = {}
MAX_FUSED = 4096


def member_lines(member: GroupMember) -> tuple[Pasted, set[str]]:
    """The lines of one body, and which Python numbers it reads as truth values.

    v1_x = float64(v0)
    v1_share = exp_f64(-v1_x)
    v1 = float32(v1_x * v1_share)
    """
    element, value_of = member.element, member.targets[0]
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
        elif operand.name in body.whole:
            value = f"int64({given})"
        elif operand.dtype.stored != compute.computed:
            value = f"{compute.computed}({given})"
        else:
            continue
        names[operand.name] = own(operand.name, value_of)
        lines.append(f"{names[operand.name]} = {value}")
    into = []
    for operand, target in zip(element.outputs, member.targets, strict=True):
        value = "({}) != 0" if operand.dtype.kind == compute.kind == "b" else "{}"
        into.append(f"{target} = {operand.dtype.stored}({value})")
    pasted = body.paste(element.wanted, into, compute, names, value_of)
    return Pasted(lines + pasted.lines, pasted.imports), truths


def number_lines(numbers: Sequence[Operand], first: int, logical: Collection[str]) -> list[str]:
    """The Python numbers, from the words from `first` on; those in `logical` are truth values."""
    lines = []
    for k, o in enumerate(numbers):
        value = number_text(f"p[{first + k}]", o.dtype, o.dtype.computed, o.name in logical)
        lines.append(f"{o.name} = {value}")
    return lines


def _blocks(
    loop: Loop, pasted: Pasted, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> str:
    """How a fused kernel stores its results."""
    if loop.nested or not loop.flags.endswith(CONTIGUOUS * len(outputs)):
        return ""
    if is_streamed(loop, outputs) and waits_for_memory(pasted):
        return STREAMED
    pairs = len(outputs) * (len(inputs) + len(outputs))
    if pairs > MAX_PAIRS and loop.n >= 16 * BLOCK:
        return CACHED
    return ASKING if asked_for(loop, [*inputs, *outputs], pasted) else ""


def asked_for(loop: Loop, operands: Sequence[Operand], pasted: Pasted) -> list[Operand]:
    """The operands whose memory a loop has fetched ahead."""
    asks = comes_from_far(loop, operands) and not waits_for_memory(pasted)
    return dense_operands(loop.flags, operands) if asks else []


def render_sums(
    name: str,
    pasted: Pasted,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    sums: Sequence[FusedSum],
    logical: frozenset[str],
    over: Mapping[str, str],
    width: int | None,
    asked: Sequence[Operand],
) -> Source:
    """The source of a fused kernel that sums some of its values over chunks of rows.

    The values of a block stay on the stack until they are summed, in the order of `sum_rows`. `width` is `W`
    where rows are short, else 0: short ones share a block, as a loop over one of them alone would leave much
    of a vector empty. Operands in `asked` are fetched ahead.
    """
    are_short, together = width != 0, "ROWS" if width is None else f"BLOCK // {LANES}"
    block = "ROOM" if together == "ROWS" else "BLOCK"
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
    if are_short:
        head.append(f"length = p[{base}]")
    else:
        head.append(f"length, step, chunks = p[{base}], p[{base + 1}], p[{base + 2}]")
    head += number_lines([o for o in inputs if o.strides is None], base + 3, logical)
    for k, s in enumerate(sums):
        head.append(f"block{k} = stack({s.fold.given.stored}, {block})")
    head += [f"{n} = p_{n}[0]" for n in sorted(repeated)]
    inner = [f"{o.name} = p_{o.name}[i]" for o in read if o.name not in repeated]
    inner += pasted.lines
    are_squared = [are_short and s.fold.how == "squares" for s in sums]
    terms = [
        f"{s.value} * {s.value}" if squared else s.value
        for s, squared in zip(sums, are_squared, strict=True)
    ]
    if len(outputs) * (len(read) + len(outputs)) <= MAX_PAIRS:
        inner += [f"p_{o.name}[i] = {o.name}" for o in outputs]
        inner += [f"block{k}[j] = {t}" for k, t in enumerate(terms)]
        blocks = ["for j in range(count):", "    i = first + j"]
        blocks += ["    " + line for line in inner]
        if asked:
            blocks[0] = f"for j in range(done, min(done + {BLOCK}, count)):"
            blocks = [*ask(asked, "first + done"), *blocks]
            blocks = [f"for done in range(0, count, {BLOCK}):", *["    " + line for line in blocks]]
    else:
        head += [f"part_{o.name} = stack({o.dtype.stored}, {PART})" for o in outputs]
        inner += [f"part_{o.name}[j] = {o.name}" for o in outputs]
        inner += [f"block{k}[done + j] = {t}" for k, t in enumerate(terms)]
        blocks = [f"for done in range(0, count, {PART}):", f"    part = min({PART}, count - done)",
                  *["    " + line for line in ask(asked, "first + done")],
                  "    for j in range(part):", "        i = first + done + j"]  # fmt: skip
        blocks += ["        " + line for line in inner]
        for o in outputs:
            blocks.append("    for j in range(part):")
            blocks.append(f"        p_{o.name}[first + done + j] = part_{o.name}[j]")
    if are_short:
        units = [
            f"rows = min({together}, stop - unit)",
            "first, count = unit * length, rows * length",
            *blocks,
        ]
        for k, s in enumerate(sums):
            given, made = s.fold.given.stored, s.fold.result.stored
            if width == 4:
                of_four = f"block{k}, shifted(p_sum{k}, unit), 0, rows, length, {made}"
                units.append(f"sum_shortest_rows({of_four})")
            else:
                of_all = f"block{k}, p_sum{k}, unit, rows, length, {width}, {given}, {made}"
                units.append(f"sum_rows_of_block({of_all})")
        every = f"for unit in range(start, stop, {together}):"
    else:
        units, every = _units_of_chunks(blocks, sums), "for unit in range(start, stop):"
    lines = [*head, every, *["    " + line for line in units]]
    text = "\n".join("    " + line for line in lines)
    imports = {
        "words": "adjit.kernels.language.abi",
        "at": "adjit.kernels.language.abi",
        **pasted.imports,
    }
    imports.update({n: module for n, module in KNOWN.items() if is_named(n, text)})
    imports |= interleaved(pasted) if are_short else {"add": "operator", **interleaved(pasted)}
    return Source(name, assemble(name, text, imports, {}), Text(-1))


KNOWN = {
    **dict.fromkeys(
        ("ROWS", "fold", "prefetch", "spread", "stack"), "adjit.kernels.language.lanes"
    ),
    **dict.fromkeys(
        ("BLOCK", "ROOM", "squares_onto", "sum_onto", "sum_rows_of_block", "sum_shortest_rows"),
        "adjit.kernels.ops.reduce",
    ),
    **dict.fromkeys(("scalar", "shifted"), "adjit.kernels.language.abi"),
}


def _units_of_chunks(blocks: Sequence[str], sums: Sequence[FusedSum]) -> list[str]:
    """The lines of a unit, a chunk of a row, around those that compute the values of a block."""
    inner = ["count = min(BLOCK, end - first)", *blocks]
    for k, s in enumerate(sums):
        add_up = "squares_onto" if s.fold.how == "squares" else "sum_onto"
        inner.append(
            f"total{k} = {add_up}(total{k}, block{k}, count, {s.fold.given.stored}, "
            f"{s.fold.result.stored})"
        )
    units = ["row = unit // chunks * length", "begin = row + unit % chunks * step",
             "end = min(begin + step, row + length)"]  # fmt: skip
    units += [f"total{k} = spread({s.fold.result.stored}(0))" for k, s in enumerate(sums)]
    units += ["for first in range(begin, end, BLOCK):", *["    " + line for line in inner]]
    return units + [f"p_sum{k}[unit] = fold(add, total{k})" for k in range(len(sums))]
