"""What the kernels are, and compute, on a processor that this one is not: an ARM with NEON.

`python tests/on_aarch64.py` prints figures and faults as JSON; with the word `all`, of every program of
`on_level.py` and of all of the interpreter's part. One process runs the programs as usual and notes the
texts of their kernels and the bits of their results. Another one, which takes its processor for an ARM,
compiles the texts and what needs no program: the tiles, the runner, the interpreter's part. A third one
runs the programs as that ARM would, where there is an emulator.
"""

from __future__ import annotations

import importlib.util
import inspect
import io
import json
import os
import pkgutil
import re
import struct
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from contextlib import redirect_stdout
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

TRIPLE = "aarch64-unknown-linux-gnu"
# Others are `generic`, the oldest instructions, and neoverse-v2, which has SVE.
PROCESSOR = os.environ.get("ADJIT_AARCH64", "neoverse-n1")
FEATURES = "+neon,+fp-armv8"
PARTS = ("texts", "look", "run")  # what the processes do

part = sys.argv[1] if __name__ == "__main__" and sys.argv[1:] else ""
if part in PARTS:
    # Before adjit is imported: chains are fused, however short, and at once.
    os.environ |= {"ADJIT_JIT": "sync", "ADJIT_HOT": "1", "ADJIT_MIN_FUSED": "1"}
if part in ("texts", "run"):
    # The interpreter's machine code has constants of a process; the emulator is for one thread.
    os.environ |= {"ADJIT_RECORDER": "python", "ADJIT_NUM_THREADS": "1"}
if part in ("look", "run"):
    import llvmlite.binding as llvm

    folder = tempfile.TemporaryDirectory(prefix="adjit_aarch64_")
    os.environ |= {"NUMBA_CPU_NAME": PROCESSOR, "NUMBA_CPU_FEATURES": FEATURES}
    os.environ["ADJIT_CACHE_DIR"] = folder.name
    os.environ.pop("ADJIT_CPU", None)  # a level of another architecture
    for module in (llvm, llvm.targets):
        module.get_process_triple = module.get_default_triple = lambda: TRIPLE
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()

FEW = {  # programs of `on_level.py` that stand for all
    "exp adjit.float32", "pow adjit.float64", "lgamma adjit.float32", "where adjit.float64", "chain, fused",
    "long sums", "whole numbers", "conversions", "norms",
    "convolution of points float64",
}  # fmt: skip
LONG = ["sorted", "convolution float32", "attention float32"]  # which take turns
TURN = os.environ.get("ADJIT_TEST_TURN")
FEW.update([LONG[int(TURN) % len(LONG)]] if TURN else LONG)
FEWER = {"exp adjit.float32", "conversions", "long sums", "convolution of points float64"}  # to run
FEW_FAMILIES = {"record", "recycle"}  # of the interpreter's part

# ----- what is there to be compiled -----


def run(chosen: set[str]) -> dict[str, str]:
    """Run the programs with some names, by default all; the bits of their results."""
    import cuda_cases
    import numpy as np
    from on_level import digest, programs

    import adjit
    from adjit.schedule import settle

    bits = {}
    for name, program, _ in programs(not chosen):
        if not chosen or name in chosen:
            adjit.manual_seed(0)
            cuda_cases.rng = np.random.default_rng(0)
            for _ in range(2):  # the second time by a plan
                bits[name] = digest(program())
    settle.settle()
    return bits


def texts(every: bool) -> dict[str, Any]:
    """Name, text and signature of each kernel that programs ask for, and the bits of their results."""
    from adjit.schedule.jit import cache

    unit, found = cache._unit, {}

    def noted(name: str, text: str, signature: str) -> Any:
        found[name, text, signature] = None
        return unit(name, text, signature)

    cache._unit = noted
    return {"bits": run(set() if every else FEW), "texts": list(found)}


def emitters() -> list[Any]:
    """The functions of the kernels room that write modules of LLVM's instructions for a dtype."""
    from adjit import kernels

    found = []
    for info in pkgutil.walk_packages(kernels.__path__, "adjit.kernels."):
        emit = getattr(import_module(info.name), "emit", None)
        if emit is not None and list(inspect.signature(emit).parameters) == ["dtype"]:
            found.append(emit)
    return found


def units(noted: list[tuple[str, str, str]], every: bool) -> dict[str, Any]:
    """What translates and compiles each piece of object code, by a name to tell it by."""
    from adjit.kernels.runtime import runner

    import adjit
    from adjit.schedule.jit import cache, modules, native

    found = {unit.stem: unit.translate for unit in (cache._unit(*parts) for parts in noted)}
    made = runner.Runner()
    made.set_num_threads(2)
    for function, signature in [
        *made.functions(large=True),
        (runner.timed_walk, runner.TIMED_WALK_SIGNATURE),
    ]:
        unit = cache._unit_of_function(function, signature)
        found[unit.stem] = unit.translate
    for emit in emitters():
        for dtype in (adjit.float32, adjit.float64)[: 1 + every]:
            unit = modules.emitted(TILES + emit.__module__.rpartition(".")[2], emit, dtype.name)
            found[unit.stem] = unit.translate
    for family in native.families:
        if every or family.name in FEW_FAMILIES:
            unit = cache._unit(
                family.name, native._bound(f"fastpath.{family.module}"), family.signature
            )
            found[unit.stem] = unit.translate
    return found


# ----- what is looked at -----

TILES = "tiles_of_"  # how the names of emitted modules begin
# What LLVM itself calls for copies, and for the rest of a division: in the C library of every system.
FROM_LLVM = {"memcpy", "memmove", "memset", "fmod", "fmodf"}
UNDEFINED, SYMBOLS = 0, 2  # a section of ELF, a type of sections

VECTOR = re.compile(r"^\t\w+\t.*\bv\d+\.(?:2d|2s|4s|4h|8h|8b|16b)\b", re.MULTILINE)
OF_FLOATS = re.compile(r"^\tf\w+\t.*\bv\d+\.(?:2d|2s|4s)\b", re.MULTILINE)
SCALABLE = re.compile(r"^\t\w+\t.*\bz\d+\.[bhsd]\b", re.MULTILINE)
FUSED = re.compile(r"^\tfn?m(?:la|ls|add|sub|ad|sb)\t", re.MULTILINE)
ON_THE_STACK = re.compile(r"^\t(?:st|ld)u?[rp]\tq\d+.*\[(?:sp|x29, #-)", re.MULTILINE)
LOOP = re.compile(r"^(\.L\w+):\n((?:\t.*\n)*?)\t(?:b\.\w+|cbn?z|tbn?z)\t(?:.*, )?\1$", re.MULTILINE)
OF_OTHERS = re.compile(r"llvm\.x86\.[\w.]+|asm (?:sideeffect )?\"[^\"]+\"|fp-math\"=\"preserve\S*")
LOOSE = re.compile(r"= .*\b(?:fast|contract|reassoc|arcp|afn) .*|llvm\.fmuladd\S*")


class Look(NamedTuple):
    """What is in the object code of a unit."""

    name: str
    nbytes: int
    instructions: int
    vectors: int  # instructions of NEON
    of_floats: int  # those among them that compute with floats
    scalable: int  # instructions of SVE
    fused: int  # multiply-adds, of vectors or not
    on_the_stack: int  # loads and stores of vectors there
    products: list[
        int
    ]  # of each loop of one block, the multiply-adds of vectors, where there are some
    faults: list[str]


def foreign(ir: str) -> list[str]:
    """What LLVM would end the process for: it is of another processor."""
    return [f"not of this processor: {found}" for found in OF_OTHERS.findall(ir)]


def needed(code: bytes) -> set[str]:
    """The names that object code leaves open."""
    (table,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, table + size * k) for k in range(count)]
    names = set()
    for _, kind, _, _, start, length, link, *_ in sections:
        for place in range(start, start + length, 24) if kind == SYMBOLS else ():
            name, _, _, section = struct.unpack_from("<IBBH", code, place)
            begin = sections[link][4] + name
            if name and section == UNDEFINED:
                names.add(code[begin : code.index(b"\0", begin)].decode())
    return names


def look(name: str, ir: str, text: str, code: bytes, external: tuple[str, ...]) -> Look:
    """What is in a unit: LLVM's form of it, the machine code as text and as it is, what the cache knows of."""
    products, faults = [], []
    for _, body in LOOP.findall(text):
        multiplied = len(re.findall(r"^\tfmla\tv", body, re.MULTILINE))
        products += [multiplied] if multiplied else []
        if multiplied and name.startswith(TILES) and ON_THE_STACK.search(body):
            faults.append(f"a loop of {multiplied} multiply-adds has sums on the stack")
    fused = len(FUSED.findall(text))
    faults += [f"may be rounded in other ways: {found}" for found in LOOSE.findall(ir)]
    faults += [
        f"calls {one}, which nobody looks for" for one in needed(code) - {*external} - FROM_LLVM
    ]
    if fused and "@llvm.fma." not in ir:
        faults.append(f"{fused} multiply-adds, of which the body says nothing")
    instructions = len(re.findall(r"^\t[a-z]\w*(?:\.\w+)?\t", text, re.MULTILINE))
    return Look(
        name, len(code), instructions, len(VECTOR.findall(text)), len(OF_FLOATS.findall(text)),
        len(SCALABLE.findall(text)), fused, len(ON_THE_STACK.findall(text)), products, faults,
    )  # fmt: skip


def look_at_all(wanted: dict[str, Any]) -> list[Look]:
    """Compile units, and look at each."""
    from adjit.kernels.language.target import load

    emit, seen = llvm.TargetMachine.emit_object, []

    def looked_at(machine: Any, module: Any) -> bytes:
        ir = str(module)
        if foreign(ir):
            raise ValueError("; ".join(foreign(ir)))
        seen[:] = ir, machine.emit_assembly(module.clone())  # instruction selection changes it
        return bytes(emit(machine, module))

    llvm.TargetMachine.emit_object = looked_at
    looks = []
    for stem, translate in wanted.items():
        try:
            entry = translate()()
        except Exception as error:
            looks.append(Look(stem, *[0] * 7, [], [f"{type(error).__name__}: {error}"]))
            continue
        looks.append(look(stem, *seen, entry.code, entry.external))
        for symbol in entry.symbol.split()[:1]:
            load(symbol, entry.code)  # LLVM's linker knows all that the code asks of it
    return looks


# ----- what is run -----


def emulate() -> None:
    """Have machine code run by an emulator once it is linked."""
    from adjit.kernels.language import target
    from emulator import Emulator

    from adjit.schedule.jit import cache

    def fail(what: Any) -> None:
        """End this process for an error that would be let pass, as nobody can raise it through machine code."""
        traceback.print_exception(what.exc_value)
        os._exit(1)

    emulator, load, linked = Emulator(), target.load, target.loader().get_function_address
    cache.load = lambda symbol, code: emulator.callable(load(symbol, code))
    cache.loader = lambda: SimpleNamespace(
        get_function_address=lambda name: emulator.callable(linked(name))
    )
    sys.unraisablehook = fail


def facts() -> dict[str, str]:
    """What `python -m adjit info` says."""
    from adjit.__main__ import main

    with redirect_stdout(io.StringIO()) as said:
        main(["info"])
    return dict(line.split(maxsplit=1) for line in said.getvalue().splitlines())


def told_by(part: str, every: bool, given: Any) -> Any:
    """What one of the processes finds out."""
    if part == "texts":
        return texts(every)
    if part == "run":
        emulate()
        return run(set() if every else FEWER)
    from adjit.kernels.language import processor
    from adjit.kernels.ops import gemm_tile

    looks = look_at_all(units(given["texts"], every))
    totals: Counter[str] = Counter()
    for one in looks:
        totals.update({k: v for k, v in one._asdict().items() if isinstance(v, int)})
    return {
        "facts": facts(),
        "vector_bytes": processor.VECTOR_BYTES,
        "fused": processor.FUSED,
        "tile": [gemm_tile.HEIGHT, gemm_tile.WIDTH],
        "totals": {"units": len(looks), **totals},
        "units": {one.name: one._asdict() for one in looks},
        "faults": [f"{one.name}: {fault}" for one in looks for fault in one.faults],
    }


def main() -> None:
    every = "all" in sys.argv[1:]
    if part in PARTS:
        told = told_by(part, every, json.load(sys.stdin))
    else:
        told = {}
        for name in PARTS if importlib.util.find_spec("unicorn") else PARTS[:2]:
            done = subprocess.run(
                [sys.executable, __file__, name, *["all"] * every], stdout=subprocess.PIPE,
                input=json.dumps(told.get("texts")), text=True, check=True,
            )  # fmt: skip
            told[name] = json.loads(done.stdout)
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
