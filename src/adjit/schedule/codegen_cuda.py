"""Scalar bodies to device kernels: the lines that the CPU's kernel is made of, in a loop of a GPU.

A kernel over contiguous operands takes several neighbours at once, as many as the widest operand
has in 16 bytes, where all operands lie on such borders. The loop's own names begin with an
underscore, since a body may call its own what it likes:

    def mul_on_gpu(_p_x, _p_y, _p_out, _n):
        _whole = N(0)
        if aligned(_p_x, 16) and aligned(_p_y, 16) and aligned(_p_out, 16):
            _whole = quotient(_n, N(4))
        for _group in range(first_unit(), _whole, all_threads()):
            _all_x = load_wide(_p_x, _group * 4, 4)
            _all_y = load_wide(_p_y, _group * 4, 4)
            x = _all_x[0]
            y = _all_y[0]
            out = x * y
            _out_0 = out
            ...
            store_wide(_p_out, _group * 4, (_out_0, _out_1, _out_2, _out_3))
        for _i in range(N(_whole * 4 + first_unit()), _n, all_threads()):
            x = _p_x[_i]
            y = _p_y[_i]
            out = x * y
            _p_out[_i] = out

Any other reads the sizes and strides of its axes, and finds its place by dividing.
"""

from __future__ import annotations

from collections.abc import Sequence

from .codegen import CONTIGUOUS, REPEATED, ROW, STRIDED, assemble
from .recipe import DeviceSource, Flat, Operand

THREADS = 256
WIDE = 16  # bytes that one access moves
MOST_AT_ONCE = 4  # elements of a thread: a body is pasted once for each
DEVICE = "adjit.kernels.device"


def elementwise(flat: Flat, axes: int, index: str) -> DeviceSource:
    """The device kernel that does what a CPU kernel over elements does.

    `axes` are those outside the innermost one of a nested loop, `index` the dtype of whole numbers.
    Its units of work are elements; the words of its row are those of the CPU's.
    """
    operands = [o for o in [*flat.inputs, *flat.outputs] if o.strides is not None]
    letters = dict(zip([o.name for o in [*flat.inputs, *flat.outputs]], flat.flags, strict=True))
    strided = [o.name for o in operands if letters[o.name] == STRIDED]
    rows = not flat.nested and any(letters[o.name] == ROW for o in operands)
    numbers = [o for o in flat.inputs if o.strides is None]
    parameters = [f"_p_{o.name}" for o in operands]
    signature = [f"*{o.dtype.stored}" for o in operands]
    if flat.nested:
        parameters += ["_outer", "_inner", *(f"_size_{d}" for d in range(axes))]
        parameters += [f"_stride_{o.name}_{d}" for o in operands for d in range(axes)]
    elif rows:
        parameters.append("_inner")
    parameters += [f"_step_{name}" for name in strided]
    signature += [index] * (len(parameters) - len(signature))
    for o in numbers:
        parameters.append(f"_word_{o.name}")
        floating = o.dtype.is_floating_point and o.name not in flat.logical
        signature.append(o.dtype.stored if floating else "int64")
    parameters.append("_n")
    signature.append(index)

    head = [_number(flat, o) for o in numbers]
    if flat.nested or strided or rows:
        body = [*head, *_scattered(flat, operands, letters, axes)]
        at_once = 1
    else:
        at_once = min(MOST_AT_ONCE, WIDE // max(o.dtype.itemsize for o in operands))
        body = [*head, *_neighbours(flat, operands, letters, at_once)]
    text = "\n".join("    " + line for line in body)
    words = dict.fromkeys(
        ("first_unit", "all_threads", "aligned", "load_wide", "store_wide"), DEVICE
    )
    words["quotient"] = "adjit.kernels.abi"
    imports = {**flat.imports, **{w: module for w, module in words.items() if f"{w}(" in text}}
    bound = {"N": index} | ({} if flat.compute is None else {"T": flat.compute.stored})
    name = f"{flat.name}_on_gpu"
    return DeviceSource(
        name,
        assemble(name, text, imports, bound, ", ".join(parameters)),
        tuple(signature),
        THREADS,
        THREADS * at_once,
        name,
    )


def _number(flat: Flat, operand: Operand) -> str:
    """The line that reads a Python number from its word."""
    word = f"_word_{operand.name}"
    if operand.name in flat.logical:
        return f"{operand.name} = {word} != 0"
    letter = operand.dtype.stored if flat.compute is None else "T"
    return f"{operand.name} = {letter}({word})"


def _loaded(flat: Flat, operand: Operand, value: str) -> str:
    """The line that turns what lies in memory into what the body reads."""
    if flat.compute is None:
        pass
    elif operand.name in flat.logical:
        value = f"{value} != 0"
    elif operand.dtype.stored != flat.compute.stored:
        value = f"T({value})"
    return f"{operand.name} = {value}"


def _stored(flat: Flat, operand: Operand) -> str:
    """What is written of a result."""
    if flat.compute is None:
        return operand.name
    if operand.dtype.kind == "b":
        truth = f"{operand.name} != 0" if flat.compute.kind == "b" else operand.name
        return f"uint8({truth})"
    if operand.dtype.stored != flat.compute.stored:
        return f"{operand.dtype.stored}({operand.name})"
    return operand.name


def _neighbours(
    flat: Flat, operands: Sequence[Operand], letters: dict[str, str], at_once: int
) -> list[str]:
    """Loops over contiguous operands: groups of neighbours, then what is left."""
    inputs = [o for o in flat.inputs if o.strides is not None]
    repeated = [o for o in inputs if letters[o.name] == REPEATED]
    read = [o for o in inputs if letters[o.name] == CONTIGUOUS]
    lines = [_loaded(flat, o, f"_p_{o.name}[0]") for o in repeated]
    if at_once > 1:
        borders = [
            f"aligned(_p_{o.name}, {o.dtype.itemsize * at_once})" for o in [*read, *flat.outputs]
        ]
        lines += ["_whole = N(0)", f"if {' and '.join(borders)}:"]
        lines += [f"    _whole = quotient(_n, N({at_once}))"]
        group = [
            f"_all_{o.name} = load_wide(_p_{o.name}, _group * {at_once}, {at_once})" for o in read
        ]
        for k in range(at_once):
            group += [_loaded(flat, o, f"_all_{o.name}[{k}]") for o in read]
            group += flat.lines
            group += [f"_{o.name}_{k} = {_stored(flat, o)}" for o in flat.outputs]
        for o in flat.outputs:
            values = ", ".join(f"_{o.name}_{k}" for k in range(at_once))
            group.append(f"store_wide(_p_{o.name}, _group * {at_once}, ({values}))")
        lines.append("for _group in range(first_unit(), _whole, all_threads()):")
        lines += ["    " + line for line in group]
        lines.append(f"for _i in range(N(_whole * {at_once} + first_unit()), _n, all_threads()):")
    else:
        lines.append("for _i in range(first_unit(), _n, all_threads()):")
    single = [_loaded(flat, o, f"_p_{o.name}[_i]") for o in read]
    single += flat.lines
    single += [f"_p_{o.name}[_i] = {_stored(flat, o)}" for o in flat.outputs]
    return lines + ["    " + line for line in single]


def _scattered(
    flat: Flat, operands: Sequence[Operand], letters: dict[str, str], axes: int
) -> list[str]:
    """One loop over all elements; each finds its place along every axis."""
    lines = ["for _i in range(first_unit(), _n, all_threads()):"]
    inside: list[str] = []
    if flat.nested:
        inside += ["_rest = quotient(_i, _inner)", "_at = _i - _rest * _inner"]
        for d in range(axes - 1):
            inside += [f"_ahead_{d} = quotient(_rest, _size_{d})",
                       f"_at_{d} = _rest - _ahead_{d} * _size_{d}", f"_rest = _ahead_{d}"]  # fmt: skip
        inside.append(f"_at_{axes - 1} = _rest")
    else:
        inside.append("_at = _i")

    def place(o: Operand) -> str:
        letter = letters[o.name]
        parts = [f"_at_{d} * _stride_{o.name}_{d}" for d in range(axes)] if flat.nested else []
        if letter == ROW:
            return "_i - quotient(_i, _inner) * _inner"
        if letter != REPEATED:
            parts.append("_at" if letter == CONTIGUOUS else f"_at * _step_{o.name}")
        return " + ".join(parts) or "0"

    read = [o for o in flat.inputs if o.strides is not None]
    inside += [_loaded(flat, o, f"_p_{o.name}[{place(o)}]") for o in read]
    inside += flat.lines
    inside += [f"_p_{o.name}[{place(o)}] = {_stored(flat, o)}" for o in flat.outputs]
    return lines + ["    " + line for line in inside]
