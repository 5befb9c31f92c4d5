"""Programs: calls strung together, each with arguments that fit.

What is chosen comes from hypothesis, or from a random number generator where there have to be many: hypothesis
takes 30 ms a program. While a program is written, it is recorded: so the shapes and dtypes are known that the
next call's arguments have to have. (Nothing of that is compared with anything.)
"""

from __future__ import annotations

import functools
import math
import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

import adjit as T

from . import calls
from .arguments import (
    FITTING,
    KINDS,
    MADE,
    PLAIN,
    SHAPES,
    SHAPES_OF_RANK,
    domain_of,
    name_of,
    numbers,
)
from .worker import run_line, world

MOST_ELEMENTS = 1 << 15
HOLE = re.compile(r"\{([^{}]+)\}")
WEIGHTS = {
    "elementwise": 8, "views": 6, "writes": 7, "reductions": 4, "matrices": 2, "moves": 3, "making": 1,
    "random": 1, "networks": 1, "losses": 1, "differentiating": 3, "derived": 1, "looks": 1,
}  # fmt: skip
# What every palette has: the calls that most programs consist of.
COMMON = {
    "elementwise": [
        "{x} + {y}", "{x} * {y}", "{x} - {y}", "{f}.exp()", "{f}.sin()", "{x}.relu()", "{x} > {number}",
    ],
    "views": [
        "{x}[{part}]", "{x}.t()", "{x}.transpose({dim}, {dim})", "{x}.expand({wider})", "{x}.reshape(-1)",
        "{x}.detach()",
    ],
    "writes": [
        "{x} += {y}", "{x}.mul_({y})", "{x}[{part}] = {number}", "{x}.copy_({y})", "{x}[{part}].mul_({number})",
        "{x}.zero_()",
    ],
    "reductions": ["{x}.sum()", "{x}.sum({dim})", "{f}.mean({dims}, keepdim={flag})"],
    "matrices": ["{f2}.mm({right})"],
    "moves": ["T.cat([{x}, {s}], {dim})", "{x}[{first_places}]"],
}  # fmt: skip
LAYOUTS = 7
LARGE = [(70, 90), (4099,), (3, 1400), (1100, 3)]
# What draws numbers: the calls of that table, and forms in place.
RANDOM = re.compile(
    rf"\b(?:{'|'.join(sorted(calls.drawing_names()))})_?\(|rrelu\w*\(.*training=True"
    r"|\b(?:random|log_normal|uniform|exponential|cauchy|geometric)_\("
)


WEIGHTED = [kind for kind, weight in WEIGHTS.items() for _ in range(weight)]


MAKES = re.compile(r"v\d+ = T\.(?:tensor|arange)\(")


class Program(NamedTuple):
    """The lines of a program; the first `inputs` make its inputs."""

    lines: list[str]
    inputs: int

    @property
    def is_random(self) -> bool:
        return any(RANDOM.search(line) for line in self.lines)

    @classmethod
    def read(cls, text: str) -> Program:
        """The program that a text shows."""
        lines: list[str] = []
        for line in text.split("\n"):
            if line.startswith("    "):
                lines[-1] += f"\n{line}"
            elif line and not line.startswith(("import ", "from ", "F = ", "#", '"""')):
                lines.append(line)
        return cls(
            lines, next((k for k, line in enumerate(lines) if not MAKES.match(line)), len(lines))
        )

    def __str__(self) -> str:
        return "\n".join(
            ["import adjit as T", "from math import inf, nan", "F = T.nn.functional", *self.lines]
        )


class Palette(NamedTuple):
    """What a batch of programs is made of: few functions, dtypes, shapes and layouts, so that few kernels are
    compiled."""

    calls: dict[str, list[str]]
    floating: list[str]
    whole: list[str]
    shapes: list[tuple[int, ...]]
    layouts: list[int]

    @classmethod
    def of(cls, seed: int, share: float = 0.03) -> Palette:
        rng = random.Random(seed)
        table = {
            kind: [*COMMON.get(kind, []), *rng.sample(known, math.ceil(len(known) * share))]
            for kind, known in calls.table().items()
        }
        floating = rng.choice([["float32"], ["float64"], ["float32"], ["float32", "float64"]])
        whole = rng.choice([["int64"], ["int64"], ["int32"], ["uint8"], ["int8"], ["int16"]])
        return cls(table, floating, whole, rng.sample(SHAPES, 5), rng.sample(range(1, LAYOUTS), 2))

    @classmethod
    def whole_registry(cls) -> Palette:
        whole = ["int64", "int32", "uint8", "int8", "int16"]
        return cls(calls.table(), ["float32", "float64"], whole, SHAPES, list(range(1, LAYOUTS)))


@functools.cache
def whole_numbers(low: int, high: int) -> Any:
    return st.integers(low, high)


@st.composite
def programs(draw: Any, palette: Palette) -> Program:
    """Programs that hypothesis makes and shrinks."""
    return written(lambda low, high: int(draw(whole_numbers(low, high))), palette)


def program(seed: int, palette: Palette, only: str = "") -> Program:
    """The program of this number; or one call, of one kind only."""
    return written(random.Random(seed).randint, palette, only)


MOST_CALLS = 12


def written(between: Callable[[int, int], int], palette: Palette, only: str = "") -> Program:
    writer = Writer(between, palette)
    writer.write_inputs()
    inputs = len(writer.lines)
    for _ in range(1 if only else between(1, MOST_CALLS)):
        writer.write_call(only)
    return Program(writer.lines, inputs)


class Writer:
    """Writes one program; `between` makes the choices, and small ones are the simple ones."""

    def __init__(self, between: Callable[[int, int], int], palette: Palette) -> None:
        self.between, self.palette = between, palette
        self.space = world("adjit")
        self.lines: list[str] = []
        self.tensors: list[str] = []  # the variables that are tensors, the newest last
        self.count = 0
        self.subject: Any = None  # the first tensor of the call that is being written
        self.named: dict[str, str] = {}
        self.domain: tuple[float, float] = (-2.0, 2.0)

    # ----- choices -----

    def choose(self, options: Any) -> Any:
        return options[self.between(0, len(options) - 1)]

    def rarely(self, often: int) -> bool:
        """Once in `often` times; what hypothesis shrinks to is no."""
        return self.between(0, often - 1) == often - 1

    # ----- lines -----

    def write(self, line: str) -> bool:
        """Add a line, and see what it makes."""
        self.lines.append(line)
        return run_line(line, self.space) is None

    def new_name(self) -> str:
        self.count += 1
        return f"v{self.count - 1}"

    def keep(self, name: str) -> None:
        value = self.space.get(name)
        if isinstance(value, T.Tensor) and value.numel() <= MOST_ELEMENTS and value.ndim <= 5:
            self.tensors.append(name)

    def write_inputs(self) -> None:
        for _ in range(self.between(1, 3)):
            self.fresh(self.a_shape(), self.a_dtype())

    def write_call(self, kind: str = "") -> None:
        kind = kind or self.choose(WEIGHTED)
        call = self.choose(self.palette.calls[kind])
        self.subject, self.named = None, {}
        text = HOLE.sub(lambda hole: self.fill(hole[1]), call)
        if kind in ("writes", "differentiating"):
            return self.write_guarded(text)
        first = self.new_name()
        self.write_guarded(f"{first} = {text}")
        value = self.space.get(first)
        if (
            not isinstance(value, (tuple, list))
            or not value
            or not isinstance(value[0], (T.Tensor, type(None)))
        ):
            return self.keep(first)
        names = [first, *[self.new_name() for _ in value[1:]]]
        self.lines[-1] = self.lines[-1].replace(
            f"{first} = ", f"{', '.join(names)}{',' * (len(names) == 1)} = ", 1
        )
        self.space.update(zip(names, value, strict=True))
        for name in names:
            self.keep(name)
        return None

    def write_guarded(self, line: str) -> None:
        """Write a line, sometimes without recording gradients."""
        mode = self.between(0, 29)
        if mode >= 28:
            line = f"with T.{'no_grad' if mode == 28 else 'enable_grad'}():\n    {line}"
        self.write(line)

    # ----- tensors -----

    def a_shape(self) -> tuple[int, ...]:
        return self.choose(LARGE) if self.rarely(40) else self.choose(self.palette.shapes)

    def a_dtype(self) -> str:
        kind = self.between(0, 9)
        if kind < 7:
            return self.choose(self.palette.floating)
        return "bool" if kind == 9 else self.choose(self.palette.whole)

    def floating(self) -> str:
        return self.choose(self.palette.floating)

    def fresh(
        self, shape: tuple[int, ...], dtype: str, domain: Any = None, finite: bool = False
    ) -> str:
        """A new tensor of a layout of its own."""
        name = self.new_name()
        layout, stored = self.layout(shape)
        values = self.values(stored, dtype, domain or self.domain, finite)
        wants = dtype.startswith("float") and self.between(0, 2) > 0
        self.write(f"{name} = {values}{layout}{'.requires_grad_()' if wants else ''}")
        self.keep(name)
        return name

    def layout(self, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        """What makes a tensor of this shape from a plain one, and the shape of that."""
        way = self.between(0, 7) - 5 if shape and 0 not in shape else 0
        way = self.palette.layouts[way % len(self.palette.layouts)] if way > 0 else 0
        if way == 1 and len(shape) > 1:
            return ".transpose(0, -1)", (shape[-1], *shape[1:-1], shape[0])
        if way == 2:
            return "[..., ::2]", (*shape[:-1], 2 * shape[-1])
        if way == 3:
            return "[1:]", (shape[0] + 1, *shape[1:])
        if way == 4:
            return f"[:1].expand{shape!r}" if len(shape) > 1 else f".expand({shape[0]})", (
                1,
                *shape[1:],
            )
        if way == 5 and len(shape) > 1:
            return f"[..., :1].expand{shape!r}", (*shape[:-1], 1)
        if way == 6 and len(shape) > 2:
            order = ", ".join(str(d) for d in (*range(1, len(shape)), 0))
            return f".permute({order})", (shape[-1], *shape[:-1])
        return "", shape

    def values(
        self, shape: tuple[int, ...], dtype: str, domain: tuple[float, float], finite: bool
    ) -> str:
        """A literal, or for many elements an expression."""
        if math.prod(shape) > 64 or 0 in shape:
            text = f"T.arange({math.prod(shape)}).mul(37).remainder(101).sub(50)"
            text += {"bool": ".gt(0)", "uint8": ".abs().to(T.uint8)"}.get(dtype, f".to(T.{dtype})")
            return f"{text}{'.div(16)' if dtype.startswith('float') else ''}.reshape({shape!r})"
        rng = np.random.default_rng(self.between(0, 99))
        a = numbers(rng, shape, dtype, self.between(0, 4 if finite else 5), domain)
        return f"T.tensor({a.tolist()!r}, dtype=T.{dtype})"

    def find(self, fits: Callable[[Any], bool]) -> str | None:
        """A variable that fits, the newer the likelier."""
        fitting = [name for name in self.tensors if fits(self.space[name])]
        if not fitting or self.rarely(12):
            return None
        back = min(
            self.between(0, 7) * len(fitting) // 6
            if len(fitting) > 6
            else self.between(0, len(fitting) - 1),
            len(fitting) - 1,
        )
        return fitting[-1 - back]

    def tensor(
        self,
        fits: Callable[[Any], bool],
        shape: Callable[[], tuple[int, ...]],
        dtype: Callable[[], str],
    ) -> str:
        name = self.find(fits)
        return self.fresh(shape(), dtype()) if name is None else name

    # ----- holes -----

    def fill(self, hole: str) -> str:
        name, *how = hole.split(":")
        if name.startswith("="):
            return self.named[name[1:]]
        if how:  # an elementwise op's operand
            self.domain = domain_of(how[0], int(how[1]))
        text = self.a_tensor(name) if re.fullmatch(r"[xfib]\d?", name) else None
        if text is None:
            text = (
                FITTING[name](self)
                if name in FITTING
                else MADE[name](self)
                if name in MADE
                else PLAIN[name](self)
            )
        self.domain = (-2.0, 2.0)
        self.named.setdefault(name, text)
        if self.subject is None and text in self.space:
            self.subject = self.space[text]
        return text

    def a_tensor(self, name: str) -> str:
        kind, rank = KINDS[name[0]], int(name[1]) if name[1:] else None
        shape = (lambda: self.a_shape()) if rank is None else lambda: SHAPES_OF_RANK[rank]
        dtype = {
            "x": self.a_dtype,
            "f": self.floating,
            "i": lambda: self.choose(self.palette.whole),
            "b": lambda: "bool",
        }[name[0]]
        return self.tensor(lambda t: kind(t) and (rank is None or t.ndim == rank), shape, dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.subject is None else tuple(self.subject.shape)

    @property
    def dtype(self) -> str:
        return "float32" if self.subject is None else name_of(self.subject.dtype)

    def like(self, shape: tuple[int, ...], dtype: str | None = None, domain: Any = None) -> str:
        """A tensor of just this shape and dtype."""
        dtype = dtype or self.dtype
        fits = lambda t: tuple(t.shape) == shape and name_of(t.dtype) == dtype  # noqa: E731
        found = self.find(fits) if domain is None else None
        return self.fresh(shape, dtype, domain) if found is None else found

    def finite(self, shape: tuple[int, ...]) -> str:
        """A tensor that no zero of a padding makes NaN: whether such products are made is nobody's promise."""
        return self.fresh(shape, self.dtype, finite=True)

    def numbers_for(self, shape: tuple[int, ...], dtype: str, a: Any) -> str:
        """A tensor made for a call, which no other call gets: its values are legal ones."""
        return f"T.tensor({np.asarray(a).reshape(shape).tolist()!r}, dtype=T.{dtype}).reshape({shape!r})"
