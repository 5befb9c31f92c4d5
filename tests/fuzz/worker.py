"""Runs programs: in a process for each set of settings, since these are read once.

`python worker.py adjit|torch` reads requests from its standard input and answers on its output, both pickled.
With ADJIT_TEST_DEVICE=cuda among the settings, what adjit makes is on a GPU.
"""

from __future__ import annotations

import faulthandler
import io
import math
import os
import pickle
import random
import re
import struct
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

import numpy as np

ASSIGNED = re.compile(r"^\s*(?:with [^\n]*\n\s*)?((?:v\d+, )*v\d+,?) = ")
SEED = 1
NOISE = 4.0  # units in the last place
DIGITS = {"float32": 14, "float64": 26}  # binary ones, of what counts as exact


class Seen(NamedTuple):
    """What there is to see of a variable at the end of a program."""

    kind: str  # its class, and of a tensor its dtype
    values: np.ndarray | None
    facts: dict[str, Any]
    strides: tuple[int, ...] = ()
    spread: np.ndarray | float = 0.0  # how far they move if every step is rounded otherwise

    def uncounted(self) -> Seen:
        """The same without versions."""
        facts = {k: v for k, v in self.facts.items() if k != "version"}
        if "grad" in facts:
            facts["grad"] = facts["grad"].uncounted()
        return self._replace(facts=facts)


class Outcome(NamedTuple):
    """What a program did: the error of each line or None, and what is left."""

    errors: list[tuple[str, str] | None]
    variables: dict[str, Seen]


def world(library: str) -> dict[str, Any]:
    """The names that a program starts with."""
    T: Any = __import__(library)
    return {"T": T, "F": T.nn.functional, "nan": math.nan, "inf": math.inf}


def run(
    library: str, lines: list[str], after: Callable[..., None] | None = None,
    before: Callable[..., None] | None = None,
) -> Outcome:  # fmt: skip
    """Run a program line by line, and look at what is left."""
    names = world(library)
    names["T"].manual_seed(SEED)
    errors = [run_line(line, names, after, before) for line in lines]
    return Outcome(errors, look(names))


def run_line(
    line: str, names: dict[str, Any], after: Callable[..., None] | None = None,
    before: Callable[..., None] | None = None,
) -> tuple[str, str] | None:  # fmt: skip
    """Run a line; the class and the text of its error."""
    try:
        if before is not None:
            before(line, names)
        exec(code_of(line), names)
        if after is not None:
            after(line, names)
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def code_of(line: str) -> types.CodeType:
    """The code of a line."""
    found = codes.get(line)
    if found is None:
        if len(codes) > 4096:
            codes.clear()
        found = codes[line] = compile(line, "<program>", "exec")
    return found


codes: dict[str, types.CodeType] = {}


def look(names: dict[str, Any]) -> dict[str, Seen]:
    """What the variables of a program hold."""
    T = names["T"]
    return {name: seen(T, names[name]) for name in sorted(names) if re.fullmatch(r"v\d+", name)}


def seen(T: Any, value: Any) -> Seen:
    if not isinstance(value, T.Tensor):
        return Seen(type(value).__name__, None, {"is": plainly(T, value)})
    try:
        facts = {
            "shape": tuple(value.shape),
            "requires_grad": value.requires_grad,
            "is_leaf": value.is_leaf,
            "version": None if value.is_inference() else value._version,
        }
        values = array(value)
        if value.is_leaf and value.grad is not None:
            facts["grad"] = seen(T, value.grad)
        return Seen(str(value.dtype).partition(".")[2], values, facts, tuple(value.stride()))
    except Exception as error:
        return Seen("error", None, {"is": (type(error).__name__, str(error))})


def array(tensor: Any) -> np.ndarray:
    """The values, with one kind of NaN: which one comes out is nobody's promise."""
    values = np.array(tensor.detach().cpu().numpy())
    if values.dtype.kind == "f":
        values[np.isnan(values)] = np.nan
    return values


def plainly(T: Any, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plainly(T, one) for one in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__


# ----- in other ways -----


def run_in_threads(library: str, lines: list[str], count: int = 3) -> list[Outcome]:
    """Run a program in several threads at once."""
    outcomes: list[Outcome] = []
    start = threading.Barrier(count)

    def body() -> None:
        start.wait()
        outcomes.append(run(library, lines))

    threads = [threading.Thread(target=body) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def run_compiled(library: str, lines: list[str], inputs: int, times: int) -> list[Outcome]:
    """Run a program as a captured function of its first variables; `lines` are those that raise nothing."""
    T = world(library)["T"]
    given = [name for line in lines[:inputs] for name in assigned(line)]
    made = [name for line in lines[inputs:] for name in assigned(line)]
    body = [f"    {part}" for line in lines[inputs:] for part in line.split("\n")]
    text = "\n".join(
        [
            f"def program({', '.join(given)}):",
            *body,
            f"    return ({''.join(f'{n}, ' for n in made)})",
        ]
    )
    names = world(library)
    exec(compile(text, "<program>", "exec"), names)
    captured = T.compile(names["program"])
    outcomes = []
    for _ in range(times):
        own = world(library)
        T.manual_seed(SEED)
        errors = [run_line(line, own) for line in lines[:inputs]]
        try:
            results = captured(*[own[name] for name in given])
        except Exception as error:
            errors += [(type(error).__name__, str(error))]
        else:
            own.update(zip(made, results, strict=True))
        outcomes.append(Outcome(errors, look(own)))
    return outcomes


def assigned(line: str) -> list[str]:
    """The variables that a line makes."""
    found = ASSIGNED.match(line)
    return re.findall(r"v\d+", found[1]) if found else []


def written(line: str) -> str:
    """The variable that a line writes into, which is the first that it names; "" if it makes some."""
    found = re.search(r"\bv\d+\b", line)
    return found[0] if found and not assigned(line) else ""


# ----- how much rounding may change -----


def run_with_spread(library: str, lines: list[str], times: int = 2) -> Outcome:
    """Run a program, then again with every step rounded otherwise: what changes then cannot be compared more
    closely. (This is Monte Carlo arithmetic, as CADNA and Verrou do it.)"""
    is_clear = True

    def watch(line: str, names: dict[str, Any]) -> None:
        nonlocal is_clear
        is_clear = is_clear and not reads_what_it_writes(line, names)

    outcome = run(library, lines, before=watch)
    if not is_clear:
        return Outcome(outcome.errors, {})
    variables = outcome.variables
    for k in range(times):
        rng = np.random.default_rng(k)
        other = run(library, lines, lambda line, names, rng=rng: disturb(line, names, rng))
        if other.errors != outcome.errors:
            return Outcome(outcome.errors, {})
        variables = {n: with_spread(one, other.variables.get(n)) for n, one in variables.items()}
    return Outcome(outcome.errors, variables)


def reads_what_it_writes(line: str, names: dict[str, Any]) -> bool:
    """Whether a write in place goes to memory that the same line reads at other places, or twice to one place:
    what PyTorch reads there may be written already."""
    Tensor, target = names["T"].Tensor, names.get(written(line))
    if not isinstance(target, Tensor) or not target.numel() or "backward" in line:
        return False
    sizes, strides = target.shape[::-1], target.stride()[::-1]
    if any(s == 0 and n > 1 for s, n in zip(strides, sizes, strict=True)):
        return False  # which is refused
    axes = enumerate(zip(sizes, strides, strict=True))
    places = sum(np.arange(n).reshape(-1, *[1] * k) * s for k, (n, s) in axes)
    if np.unique(places).size < target.numel():
        return True
    others = [names.get(name) for name in re.findall(r"\bv\d+\b", line)[1:]]
    read = [t for t in others if isinstance(t, Tensor) and memory_of(t) == memory_of(target)]
    where = lambda t: (t.data_ptr(), t.shape, t.stride())  # noqa: E731
    moves = re.search(r"scatter|index_|put_|\]\s*[^\s=]?=", line)
    return any(moves or where(t) != where(target) for t in read)


def memory_of(tensor: Any) -> int:
    """Where the memory begins that a tensor of PyTorch shows."""
    return int(tensor.untyped_storage().data_ptr())


def disturb(line: str, names: dict[str, Any], rng: np.random.Generator) -> None:
    """Round what a line made otherwise, but for numbers of few digits, which are exact."""
    for name in assigned(line):
        value = names.get(name)
        if not isinstance(value, names["T"].Tensor) or not value.dtype.is_floating_point:
            continue
        others = [t for n, t in names.items() if n != name and isinstance(t, names["T"].Tensor)]
        if value.numel() == 0 or memory_of(value) in map(memory_of, others):
            continue
        a = value.detach().numpy()
        with np.errstate(all="ignore"):
            digits = np.frexp(a)[0] * float(1 << DIGITS[a.dtype.name])
            exact = np.round(digits) == digits
            noise = NOISE * np.finfo(a.dtype).eps * rng.uniform(-1, 1, a.shape)
            changed = np.where(exact | ~np.isfinite(a), a, a * (1 + noise)).astype(a.dtype)
        if any(s == 0 and n > 1 for s, n in zip(value.stride(), value.shape, strict=True)):
            continue
        a[...] = changed


def with_spread(one: Seen, other: Seen | None) -> Seen:
    """How far apart two runs are: without bound where they went different ways."""
    if other is None or one.kind != other.kind:
        return one._replace(spread=math.inf)
    facts = dict(one.facts)
    grads = facts.get("grad"), other.facts.get("grad")
    if grads[0] is not None:
        facts["grad"] = with_spread(*grads)
    rest = [{k: v for k, v in f.items() if k != "grad"} for f in (facts, other.facts)]
    a, b = one.values, other.values
    if repr(rest[0]) != repr(rest[1]) or (a is None) != (b is None):
        return one._replace(spread=math.inf)
    if a is None or b is None:
        return one
    if a.dtype.kind != "f":
        spread: Any = 0.0 if np.array_equal(a, b) else math.inf
    else:
        with np.errstate(all="ignore"):
            apart = np.abs(a.astype(np.float64) - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        spread = np.where(same, 0.0, np.where(np.isnan(apart), math.inf, apart))
    return one._replace(facts=facts, spread=np.maximum(one.spread, spread))


# ----- the process -----


def answer(library: str, request: dict[str, Any]) -> list[Outcome]:
    lines = request["lines"]
    way = request.get("way", "")
    if way == "threads":
        return run_in_threads(library, lines)
    if way == "compiled":
        return run_compiled(library, lines, request["inputs"], request.get("times", 1))
    if way == "spread":
        return [run_with_spread(library, lines)]
    return [run(library, lines) for _ in range(request.get("times", 1))]


def send(stream: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message)
    stream.write(struct.pack("q", len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(stream.read(*struct.unpack("q", head)))


def main(library: str) -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    requests, answers = sys.stdin.buffer, io.FileIO(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print
    if library == "torch":
        __import__(library).set_num_threads(1)
    else:
        __import__(library).set_default_device(os.environ.get("ADJIT_TEST_DEVICE", "cpu"))
    random.seed(0)
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        try:
            reply: Any = answer(library, request)
        except Exception as error:
            import traceback

            reply = "".join(traceback.format_exception(error))
        send(answers, reply)  # type: ignore[arg-type]


if __name__ == "__main__":
    # Pickles of what is defined here name the module that the other side imports.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from fuzz import worker

    worker.main(sys.argv[1])
