"""Scalar bodies to device kernels: the lines that the CPU's kernel is made of, in a loop of a GPU.

A kernel over contiguous operands takes several neighbours at once, as many as the widest operand
has in 16 bytes, where all operands lie on such borders:

    def mul_on_gpu(p_x, p_y, p_out, n):
        whole = N(0)
        if aligned(p_x, 16) and aligned(p_y, 16) and aligned(p_out, 16):
            whole = quotient(n, N(4))
        for group in range(first_unit(), whole, all_threads()):
            wide_x = load_wide(p_x, group * 4, 4)
            wide_y = load_wide(p_y, group * 4, 4)
            _x = wide_x[0]
            _y = wide_y[0]
            out = _x * _y
            to0_out = out
            ...
            store_wide(p_out, group * 4, (to0_out, to1_out, to2_out, to3_out))
        for i in range(N(whole * 4 + first_unit()), n, all_threads()):
            _x = p_x[i]
            _y = p_y[i]
            out = _x * _y
            p_out[i] = out

Any other reads the sizes and strides of its axes, and finds its place by dividing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..planning.recipe import DeviceSource, Flat, Operand
from .loops import COLUMN, CONTIGUOUS, REPEATED, ROW, STRIDED, TURNED, assemble, value_name

THREADS = 256
WIDE = 16  # bytes that one access moves
MOST_AT_ONCE = 4  # elements of a thread: a body is pasted once for each
# Lines of a body that is pasted more than once: of 61 operations and their gradients four copies took 6.2 s to
# compile, one takes 0.6, and such a body is not waiting for memory.
MOST_LINES = 24
MOST_NARROWED = 63  # numbers that a launch makes float32 of: see `launcher.float_bit`
DEVICE = "adjit.kernels.language.device"


def elementwise(flat: Flat, axes: int, index: str) -> DeviceSource:
    """The device kernel that does what a CPU kernel over elements does.

    `axes` are those outside the innermost one of a nested loop, `index` the dtype of whole numbers.
    Its units of work are elements; the words of its row are those of the CPU's.
    """
    operands = [o for o in [*flat.inputs, *flat.outputs] if o.strides is not None]
    letters = dict(zip([o.name for o in [*flat.inputs, *flat.outputs]], flat.flags, strict=True))
    strided = [o.name for o in operands if letters[o.name] in (STRIDED, TURNED)]
    columns = [o.name for o in operands if letters[o.name] == COLUMN]
    rows = not flat.nested and (columns or any(letters[o.name] == ROW for o in operands))
    numbers = [o for o in flat.inputs if o.strides is None]
    parameters = [f"p_{o.name}" for o in operands]
    signature = [f"*{o.dtype.stored}" for o in operands]
    if flat.nested:
        parameters += ["outer", "inner", *(f"size_{d}" for d in range(axes))]
        parameters += [f"stride_{o.name}_{d}" for o in operands for d in range(axes)]
    elif rows:
        parameters += ["inner", *(f"down_{name}" for name in columns)]
    parameters += [f"step_{name}" for name in strided]
    signature += [index] * (len(parameters) - len(signature))
    kinds = [_kind_of_word(flat, o, len(numbers) - k) for k, o in enumerate(numbers)]
    parameters += [f"word_{o.name}" for o in numbers]
    signature += kinds
    parameters.append("n")
    signature.append(index)

    head = [_number(flat, o, kind) for o, kind in zip(numbers, kinds, strict=True)]
    if flat.nested or strided or rows:
        body = [*head, *_scattered(flat, operands, letters, axes)]
        at_once = 1
    else:
        at_once = min(MOST_AT_ONCE, WIDE // max(o.dtype.itemsize for o in operands))
        if len(flat.lines) > MOST_LINES:
            at_once = 1
        body = [*head, *_neighbours(flat, operands, letters, at_once)]
    text = "\n".join("    " + line for line in body)
    words = dict.fromkeys(
        ("first_unit", "all_threads", "aligned", "load_wide", "store_wide"), DEVICE
    )
    words["quotient"] = "adjit.kernels.language.abi"
    words["scalar"] = "adjit.kernels.on_gpu.warp"
    imports = {**flat.imports, **{w: module for w, module in words.items() if f"{w}(" in text}}
    bound = {"N": index} | ({} if flat.compute is None else {"T": flat.compute.computed})
    name = f"{flat.name}_on_gpu"
    return DeviceSource(
        name,
        assemble(name, text, imports, bound, ", ".join(parameters)),
        tuple(signature),
        THREADS,
        THREADS * at_once,
        name,
    )


def _kind_of_word(flat: Flat, operand: Operand, left: int) -> str:
    """What a Python number is as a parameter, the last of `left`: a launch makes float32 of the last ones only,
    others travel as the bits of float64."""
    is_float = operand.dtype.is_floating_point and operand.name not in flat.logical
    is_narrowed = operand.dtype.computed == "float32"
    if not is_float or (is_narrowed and left > MOST_NARROWED):
        return "int64"
    return operand.dtype.computed


def _number(flat: Flat, operand: Operand, kind: str) -> str:
    """The line that reads a Python number from its word."""
    word = f"word_{operand.name}"
    value = value_name(operand.name, flat.compute)
    if operand.name in flat.logical:
        return f"{value} = {word} != 0"
    if kind == "int64" and operand.dtype.is_floating_point:
        return f"{value} = scalar({word}, float32)"
    letter = "T" if operand.dtype is flat.compute else operand.dtype.computed
    return f"{value} = {letter}({word})"


def _loaded(flat: Flat, operand: Operand, value: str) -> str:
    """The line that turns what lies in memory into what the body reads."""
    if flat.compute is None:
        pass
    elif operand.name in flat.logical:
        value = f"{value} != 0"
    elif operand.name in flat.whole:
        value = f"int64({value})"
    elif operand.dtype.stored != flat.compute.computed:
        value = f"T({value})"
    return f"{value_name(operand.name, flat.compute)} = {value}"


def _stored(flat: Flat, operand: Operand) -> str:
    """What is written of a result."""
    if flat.compute is None:
        return operand.name
    if operand.dtype.kind == "b":
        truth = f"{operand.name} != 0" if flat.compute.kind == "b" else operand.name
        return f"uint8({truth})"
    if operand.dtype.stored != flat.compute.computed:
        return f"{operand.dtype.stored}({operand.name})"
    return operand.name


def _neighbours(
    flat: Flat, operands: Sequence[Operand], letters: dict[str, str], at_once: int
) -> list[str]:
    """Loops over contiguous operands: groups of neighbours, then what is left."""
    inputs = [o for o in flat.inputs if o.strides is not None]
    repeated = [o for o in inputs if letters[o.name] == REPEATED]
    read = [o for o in inputs if letters[o.name] == CONTIGUOUS]
    lines = [_loaded(flat, o, f"p_{o.name}[0]") for o in repeated]
    if at_once > 1:
        borders = [
            f"aligned(p_{o.name}, {o.dtype.itemsize * at_once})" for o in [*read, *flat.outputs]
        ]
        lines += ["whole = N(0)", f"if {' and '.join(borders)}:"]
        lines += [f"    whole = quotient(n, N({at_once}))"]
        group = [
            f"wide_{o.name} = load_wide(p_{o.name}, group * {at_once}, {at_once})" for o in read
        ]
        for k in range(at_once):
            group += [_loaded(flat, o, f"wide_{o.name}[{k}]") for o in read]
            group += flat.lines
            group += [f"to{k}_{o.name} = {_stored(flat, o)}" for o in flat.outputs]
        for o in flat.outputs:
            values = ", ".join(f"to{k}_{o.name}" for k in range(at_once))
            group.append(f"store_wide(p_{o.name}, group * {at_once}, ({values}))")
        lines.append("for group in range(first_unit(), whole, all_threads()):")
        lines += ["    " + line for line in group]
        lines.append(f"for i in range(N(whole * {at_once} + first_unit()), n, all_threads()):")
    else:
        lines.append("for i in range(first_unit(), n, all_threads()):")
    single = [_loaded(flat, o, f"p_{o.name}[i]") for o in read]
    single += flat.lines
    single += [f"p_{o.name}[i] = {_stored(flat, o)}" for o in flat.outputs]
    return lines + ["    " + line for line in single]


def _scattered(
    flat: Flat, operands: Sequence[Operand], letters: dict[str, str], axes: int
) -> list[str]:
    """One loop over all elements; each finds its place along every axis."""
    lines = ["for i in range(first_unit(), n, all_threads()):"]
    inside: list[str] = []
    if flat.nested:
        inside += ["rest = quotient(i, inner)", "place = i - rest * inner"]
        for d in range(axes - 1):
            inside += [f"ahead_{d} = quotient(rest, size_{d})",
                       f"at_{d} = rest - ahead_{d} * size_{d}", f"rest = ahead_{d}"]  # fmt: skip
        inside.append(f"at_{axes - 1} = rest")
    else:
        inside.append("place = i")

    def place(o: Operand) -> str:
        letter = letters[o.name]
        parts = [f"at_{d} * stride_{o.name}_{d}" for d in range(axes)] if flat.nested else []
        if letter == ROW:
            return "i - quotient(i, inner) * inner"
        if letter == COLUMN:
            return f"quotient(i, inner) * down_{o.name}"
        if letter != REPEATED:
            parts.append("place" if letter == CONTIGUOUS else f"place * step_{o.name}")
        return " + ".join(parts) or "0"

    read = [o for o in flat.inputs if o.strides is not None]
    inside += [_loaded(flat, o, f"p_{o.name}[{place(o)}]") for o in read]
    inside += flat.lines
    inside += [f"p_{o.name}[{place(o)}] = {_stored(flat, o)}" for o in flat.outputs]
    return lines + ["    " + line for line in inside]
