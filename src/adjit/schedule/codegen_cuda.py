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

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..kernels.device import Word
from ..kernels.warp import WARPS
from .body import VECTOR_MATH
from .cache import VectorMath
from .codegen import CONTIGUOUS, REPEATED, ROW, STRIDED, assemble
from .recipe import DeviceSource, Flat, Operand, Source

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
    words = ("first_unit", "all_threads", "aligned", "load_wide", "store_wide", "quotient")
    imports = {**flat.imports, **{w: DEVICE for w in words if f"{w}(" in text}}
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


# ----- kernels of the kernels room -----

BY_WARPS = ("cast", "combine_four", "first_equal", "fold", "load", "load_four", "load_some", "spread",
            "store", "store_some")  # fmt: skip


def by_text(source: Source, count: int) -> DeviceSource:
    """`by_units` for a kernel that the scheduler has written."""
    module = ModuleType(source.name)
    exec(compile(source.text, f"<{source.name}>", "exec"), module.__dict__)
    return by_units(getattr(module, source.name), {}, count, source.text)


def by_units(
    function: Callable[..., Any], bind: Mapping[str, str], count: int, text: str = ""
) -> DeviceSource:
    """The device kernel in which a CPU kernel does one unit of its work after the other.

    A unit is done by one thread or, where the kernel computes with lanes, by the 32 of a warp; loops
    whose rounds do not depend on each other are then dealt out to them. `count` are the words of
    the row, all of them int64; `text` is the module of a function that has no file.

    Raises:
        NotImplementedError: if the kernel is not written in a way that a GPU can take over.
    """
    room = _Room(bind, text)
    device = getattr(function, "device", None)
    room.add(device or function)
    name = f"{function.__name__}_on_gpu"
    words = [f"w{k}" for k in range(count)]
    step = (
        "first_unit() // 32, n, all_threads() // 32"
        if room.warps
        else "first_unit(), n, all_threads()"
    )
    row = f"laid_out(({', '.join(words)},))"
    room.imports |= {"first_unit": DEVICE, "all_threads": DEVICE, "laid_out": room.warp_module}
    kernel = [f"def {name}({', '.join([*words, 'n'])}):", f"    row = {row}"]
    threads, units = 32 * WARPS, WARPS if room.warps else 32 * WARPS
    if device is not None:
        threads, units, _ = device.launch
        kernel.append(f"    {device.__name__}(row, n)")
    else:
        kernel.append(f"    for unit in range({step}):")
        kernel.append(f"        {function.__name__}(row, unit, unit + 1)")
    modules: dict[str, list[str]] = {}
    for item, module in room.imports.items():
        modules.setdefault(module, []).append(item)
    head = [f'"""{function.__name__} of {function.__module__}, on a GPU."""', ""]
    head += ["import math", ""] if room.uses_math else []
    head += ["import numpy as np"] if room.uses_numpy else []
    head += [f"from numpy import {kind}" for kind in sorted(set(bind.values()))]
    head += [f"from {m} import {', '.join(sorted(set(n)))}" for m, n in sorted(modules.items())]
    head += ["", *(f"{letter} = {kind}" for letter, kind in sorted(bind.items()))]
    text = "\n".join(head) + "\n\n\n" + "\n\n\n".join([*room.texts, "\n".join(kernel)]) + "\n"
    return DeviceSource(name, text, ("int64",) * (count + 1), threads, units, name)


class _Room:
    """The functions that a kernel calls, as text, and what they import."""

    def __init__(self, bind: Mapping[str, str], text: str) -> None:
        from ..kernels import abi, blas, lanes, sort, warp

        self.bind, self.text = bind, text
        self.texts: list[str] = []
        self.imports: dict[str, str] = {}
        self.uses_math = self.uses_numpy = self.warps = False
        self.done: set[Any] = set()
        self.replaced = {id(getattr(lanes, n)): n for n in BY_WARPS}
        self.replaced |= {id(abi.words): "words", id(abi.at): "at", id(lanes.stack): "stack"}
        self.welcome = {
            id(lanes.combine), id(abi.float_of_bits), id(abi.bits_of_float),
            id(sort.sort_key), id(sort.size_of),
        }  # fmt: skip
        self.on_device = {id(blas.shifted): "shifted"}
        self.warp_module = warp.__name__

    def add(self, function: Any) -> None:
        """Add a kernel and, before it, everything that it calls."""
        self.warps = getattr(function, "by_warps", False) or (
            not hasattr(function, "launch") and self._has_lanes(function, set())
        )
        self._add(function)

    @staticmethod
    def _home(name: str, value: Any, tree: ast.Module) -> str:
        """The module that generated text has a name from."""
        for statement in tree.body:
            if isinstance(statement, ast.ImportFrom) and name in [a.name for a in statement.names]:
                return str(statement.module)
        raise NotImplementedError(f"a fused kernel uses {name}, {value!r}")

    def _has_lanes(self, function: Any, seen: set[Any]) -> bool:
        function = getattr(function, "py_func", function)
        if function in seen:
            return False
        seen.add(function)
        values = [function.__globals__.get(n) for n in function.__code__.co_names]
        return any(self.replaced.get(id(v)) in BY_WARPS for v in values) or any(
            self._has_lanes(v, seen) for v in values if _is_helper(v)
        )

    def _add(self, function: Any) -> None:
        function = getattr(function, "py_func", function)
        if function in self.done:
            return
        self.done.add(function)
        is_generated = bool(self.text) and len(self.done) == 1
        tree = ast.parse(
            self.text if is_generated else textwrap.dedent(inspect.getsource(function))
        )
        definition = tree.body[-1] if is_generated else tree.body[0]
        assert isinstance(definition, ast.FunctionDef)
        definition.decorator_list, definition.returns = [], None
        for argument in definition.args.args:
            argument.annotation = None
        if len(self.done) == 1:  # as on the CPU, only the kernel itself has functions of its T
            vector = VectorMath(self.bind.get("T", "float64"))
            definition = vector.visit(definition)
            self.imports |= dict.fromkeys(vector.found, VECTOR_MATH)
        scope = function.__globals__
        for name in sorted({n.id for n in ast.walk(definition) if isinstance(n, ast.Name)}):
            if name in self.bind or name not in scope:
                continue
            value = scope[name]
            known = self.replaced.get(id(value))
            if isinstance(value, Word) or id(value) in self.on_device:
                self.imports[name] = DEVICE
            elif known == "stack" and not self.warps:
                definition = _Renamed({name: "local"}).visit(definition)
                self.imports["local"] = DEVICE
            elif known is not None:
                self.imports[name] = self.warp_module
            elif _is_helper(value):
                self._add(value)
            elif hasattr(value, "_defn") and id(value) not in self.welcome:
                raise NotImplementedError(
                    f"{function.__name__} has no CUDA side yet: it calls {name}; move its operands "
                    "to the CPU with .cpu()"
                )
            elif inspect.ismodule(value):
                self.uses_math = self.uses_math or name == "math"
                self.uses_numpy = self.uses_numpy or name == "np"
            elif is_generated:
                self.imports[name] = self._home(name, value, tree)
            else:
                self.imports[name] = function.__module__
        if self.warps:
            together = {n for n, v in scope.items() if _is_helper(v) and self._has_lanes(v, set())}
            dealt = _DealtOut(function.__name__, together.union(BY_WARPS))
            definition = dealt.visit(definition)
            if dealt.found:
                self.imports |= {"lane": DEVICE, "sync_warp": DEVICE}
        self.texts.append(ast.unparse(ast.fix_missing_locations(definition)))


def _is_helper(value: Any) -> bool:
    """Whether a global of a kernel is a function of the kernels room, compiled by Numba."""
    return hasattr(value, "py_func")


class _Renamed(ast.NodeTransformer):
    """Names become others."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


class _DealtOut(ast.NodeTransformer):
    """Loops whose rounds do not depend on each other are dealt out to the lanes of a warp."""

    def __init__(self, name: str, collective: set[str]) -> None:
        self.name, self.collective = name, collective
        self.found = False

    def visit_For(self, node: ast.For) -> Any:
        if not self._is_independent(node):
            return self.generic_visit(node)
        assert isinstance(node.iter, ast.Call)
        self.found = True
        start, stop = ([ast.Constant(0)] * 2 + node.iter.args)[-2:]
        lane = ast.parse("lane()", mode="eval").body
        node.iter.args = [ast.BinOp(start, ast.Add(), lane), stop, ast.Constant(32)]
        return [node, ast.parse("sync_warp()").body[0]]

    def _is_independent(self, node: ast.For) -> bool:
        match node:
            case ast.For(ast.Name(variable), ast.Call(ast.Name("range"), args)) if len(args) < 3:
                pass
            case _:
                return False
        inside = [n for s in node.body for n in ast.walk(s)]
        names = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        if names & self.collective or any(
            isinstance(n, ast.For | ast.While | ast.Return) for n in inside
        ):
            return False
        followers = self._followers(node.body, variable)
        stores = [
            n for n in inside if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)
        ]
        return (
            followers is not None
            and bool(stores)
            and all(
                any(isinstance(n, ast.Name) and n.id in followers for n in ast.walk(s.slice))
                for s in stores
            )
        )

    def _followers(self, body: list[ast.stmt], variable: str) -> set[str] | None:
        """The names that change with the variable of a loop, None if a round needs the one before."""
        written = {n.id for s in body for n in ast.walk(s)
                   if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}  # fmt: skip
        known: set[str] = set()
        followers = {variable}
        for statement in body:
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                return None
            read = {n.id for n in ast.walk(statement)
                    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}  # fmt: skip
            made = {n.id for n in ast.walk(statement)
                    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}  # fmt: skip
            if read & (written - known):
                return None
            known |= made
            if read & followers:
                followers |= made
        return followers

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if isinstance(node.target, ast.Subscript):
            raise NotImplementedError(f"{self.name} adds to memory in a loop of all lanes")
        return node
