"""Random functions of numbers for `adjit.elementwise`: `python tests/fuzz_elementwise.py COUNT [FIRST]`.

A function has loops, branches, jumps, locals of changing type, whole numbers, truth values, a setting and
calls. What kernels call runs here as plain Python: values are compared with the function itself, gradients and
second derivatives with differences, and the float32 form may have no float64 inside.
"""

import sys

import fuzz_kernels
import numpy as np
from fuzz_kernels import function_of

from adjit.user_kernels import NotDifferentiable, scalar_reverse
from adjit.user_kernels.scalar_programs import ScalarParameter, read_program

HEAD = """import math
import numpy as np


def helper(p, q):
    if p > q:
        return p * q
    s = p
    for t in range(2):
        s = math.sin(s) + q * 0.5
        if s > 0.9:
            break
    return s


def pair(p, k, scale=0.5):
    return (p * scale, k + 1) if k % 2 == 0 else (math.cos(p), k)


def prog(a, b, n, flag, *, rate):
    c = 0.5
    d = 0
    m = 1
"""
TAIL = "    return a * b + c * d + rate * a, m + n, a > c\n"
PARAMETERS = [
    ScalarParameter("a", "f"), ScalarParameter("b", "f"), ScalarParameter("n", "i"),
    ScalarParameter("flag", "b"), ScalarParameter("rate", "f", is_setting=True),
]  # fmt: skip
ARGUMENTS = 0.31417, -0.43271
WHOLE_FUNCTIONS = {
    "int_quotient_or_zero": lambda x, y: x // y if y else y,
    "int_remainder_or_zero": lambda x, y: x % y if y else y,
    "int_pow": lambda x, y: x**y,
}


class Program(fuzz_kernels.Program):
    """Writes a random function."""

    def number(self):
        return self.r.choice("abcd")

    def whole(self):
        r = self.r
        counter = r.choice([*self.counters, "m"])
        return r.choice([
            "m", "n", counter, f"{counter} % 3", f"(n - {counter}) // 2", f"m * {counter}",
            f"int({self.number()} * 3)", f"(m if {self.condition()} else n)", f"min({counter}, n)",
            f"({counter} & 3)", "m**2 % 7", "int(flag)",
        ])  # fmt: skip

    def atom(self):
        r = self.r
        return r.choice([
            self.number(), self.number(), f"{r.uniform(-1, 1):.2f}", "rate", "m", "n",
            "(a if flag else 0.2)", f"float({self.r.choice([*self.counters, 'm'])})",
        ])  # fmt: skip

    def expression(self, depth=2):
        if depth == 0:
            return self.atom()
        e, atom = (lambda: self.expression(depth - 1)), self.atom
        return self.r.choice([
            lambda: atom(), lambda: f"{e()} * {atom()}", lambda: f"math.sin({e()})",
            lambda: f"({e()} + {e()})",
            lambda: f"({e()} - {atom()})", lambda: f"np.tanh({e()})",
            lambda: f"{atom()} / (2.0 + math.cos({e()}))",
            lambda: f"math.exp(-abs({e()}))", lambda: f"max({e()}, {atom()})", lambda: f"min({e()}, {atom()})",
            lambda: f"({atom()} if {self.condition()} else {e()})", lambda: f"math.sqrt(1.5 + math.sin({e()}))",
            lambda: f"helper({atom()}, {atom()})", lambda: f"({e()}) ** 2", lambda: f"math.tanh({e()}) ** 3",
            lambda: f"np.minimum({e()}, {atom()})", lambda: f"np.maximum({e()}, {atom()})",
            lambda: f"np.where({self.condition()}, {atom()}, {e()})", lambda: f"math.erf({e()})",
            lambda: f"math.log1p(abs({e()}))", lambda: f"math.atan2({e()}, 1.3)",
            lambda: f"math.hypot({e()}, 0.7)",
            lambda: f"(1.2 + math.sin({e()})) ** ({atom()} * 0.3)",
            lambda: f"({self.whole()}) * {atom()} * 0.1",
            lambda: f"math.lgamma(2.5 + math.sin({e()}))", lambda: f"np.clip({e()}, -0.8, {atom()})",
        ])()  # fmt: skip

    def condition(self):
        r = self.r
        return r.choice([
            f"m % {r.choice([2, 3])} == {r.randrange(2)}", f"{self.number()} > {r.uniform(-0.5, 0.5):.3f}",
            f"m > {r.randrange(6)}", f"{self.number()} > 0.1 and {self.number()} < 0.9", "flag", "not flag",
            f"not ({self.number()} < 0.2 or m == 2)", f"-0.7 < {self.number()} <= {self.number()}",
            "n > m or flag", f"math.isfinite({self.number()})",
        ])  # fmt: skip

    def statement(self):
        r = self.r
        self.size += 1
        c = r.random()
        if c < 0.3:
            self.add(f"{self.number()} = math.tanh({self.expression()})")
        elif c < 0.45:
            self.add(
                f"{self.number()} {r.choice(['+=', '-=', '*='])} math.sin({self.expression(1)})"
            )
        elif c < 0.5:
            self.add(f"{r.choice('cd')} = {r.choice(['1', '0.25', 'True', 'm % 2'])}")
        elif c < 0.56:
            self.add(f"m = ({self.whole()}) % 11")
        elif c < 0.6:
            self.add(f"{self.number()}, m = pair({self.atom()}, m % 8)")
        elif c < 0.65:
            self.add("a, b = b, a")
        elif c < 0.8 and self.depth < 4:
            self.branch()
        elif self.depth < 4 and self.size < 40:
            self.loop()
        else:
            self.add(f"{self.number()} = {self.atom()}")

    def source(self):
        for _ in range(self.r.randint(3, 7)):
            self.statement()
        text = HEAD + "\n".join(self.lines) + "\n" + TAIL
        return text.replace("return a * b + x[0]", "return a - b * c, m, flag")


def as_python(program, precision):
    """What kernels call, as plain Python; it takes the arguments that the program reads."""
    text = program._text().replace(
        "from adjit.kernels.language.abi import helper", "helper = lambda f: f"
    )
    space = {}
    exec(text, space)
    space |= {name: f for name, f in WHOLE_FUNCTIONS.items() if name in space}
    function = space[program._name_of(precision)]
    reads = space["FACTS"]["reads"]
    kinds = {"f": getattr(np, precision), "i": np.int64, "b": bool}

    def call(*args):
        given = [kinds[program.parameters[k].kind](args[k]) for k in reads]
        found = function(*given)
        return found if isinstance(found, tuple) else (found,)

    return call


def check(seed):
    """`ok`, `skipped`, `refused: ...` or `WRONG ...`, and the source."""
    source = Program(seed).source()
    prog = function_of(source, f"<function {seed}>")
    rng = np.random.default_rng(seed)
    rest = int(rng.integers(0, 6)), bool(rng.integers(2)), 0.37
    try:
        want = prog(*ARGUMENTS, *rest[:2], rate=rest[2])
    except (ValueError, OverflowError, ZeroDivisionError):
        return "skipped", source
    if not np.isfinite(want[0]):
        return "skipped", source
    program = read_program(prog, PARAMETERS)
    try:
        program.procedure  # noqa: B018
    except NotDifferentiable as error:
        return "refused: " + str(error).split(": ", 1)[-1].split("\n")[0], source
    return compared(program, prog, want, rest), source


def compared(program, prog, want, rest):
    value = as_python(program, "float64")(*ARGUMENTS, *rest)
    if not abs(value[0] - want[0]) <= 1e-11 * (1 + abs(want[0])) or tuple(value[1:]) != tuple(
        want[1:]
    ):
        return f"WRONG value {value} {want}"
    single = as_python(program, "float32")(*ARGUMENTS, *rest)
    if single[0].dtype != np.float32:
        return f"WRONG: {single[0].dtype} in float32"
    pull = as_python(program.pullback(0, (0, 1)), "float64")
    grad = np.array(pull(1.0, *ARGUMENTS, *rest))
    twice = np.array(pull(2.0, *ARGUMENTS, *rest))
    if not np.allclose(twice, 2 * grad, rtol=1e-12):
        return "WRONG: not linear in g"
    alone = [
        as_python(program.pullback(0, (k,)), "float64")(1.0, *ARGUMENTS, *rest)[0] for k in (0, 1)
    ]
    if not np.allclose(alone, grad, rtol=1e-12, atol=1e-15):
        return f"WRONG: together {grad}, alone {alone}"
    if not agrees(lambda *x: prog(*x, *rest[:2], rate=rest[2])[0], grad, 1e-4):
        return f"WRONG gradient {grad}"
    back, second_back = ways_back(prog)
    found = np.array(back(1.0, *ARGUMENTS, *rest))
    if not np.allclose(found, grad, rtol=1e-9, atol=1e-12):
        return f"WRONG: by the way back {found}, by tangents {grad}"
    slopes = program.pullback(0, (0,))
    second = slopes.pullback(0, (0, 1, 2))
    found = np.array(as_python(second, "float64")(1.0, 1.0, *ARGUMENTS, *rest))
    if not np.allclose(found[0], grad[0], rtol=1e-11, atol=1e-14):
        return "WRONG: the gradient by the second"
    again = np.array(second_back(1.0, 1.0, *ARGUMENTS, *rest))
    if not np.allclose(again, found, rtol=1e-8, atol=1e-10 * (1 + np.abs(found).max())):
        return f"WRONG: the second derivative by the way back {again}, by tangents {found}"
    slope = as_python(slopes, "float64")
    if not agrees(lambda *x: slope(1.0, *x, *rest)[0], found[1:], 1e-3):
        return f"WRONG second derivative {found[1:]}"
    return "ok"


def ways_back(prog):
    """The gradients, and the derivative of the first, by ways back, also where tangents would be taken."""
    usual, scalar_reverse.MOST_TANGENTS = scalar_reverse.MOST_TANGENTS, 0
    try:
        program = read_program(prog, PARAMETERS)
        slopes = program.pullback(0, (0,))
        programs = program.pullback(0, (0, 1)), slopes.pullback(0, (0, 1, 2))
        return [as_python(p, "float64") for p in programs]
    finally:
        scalar_reverse.MOST_TANGENTS = usual


def agrees(f, grad, tolerance):
    """Whether a gradient by both numbers is that of differences, for one of several steps."""
    for by in (1e-6, 1e-7, 1e-5, 1e-8):
        moved = [
            [x + sign * by * (k == j) for j, x in enumerate(ARGUMENTS)]
            for k in (0, 1)
            for sign in (1, -1)
        ]
        values = [f(*x) for x in moved]
        found = np.array([values[0] - values[1], values[2] - values[3]]) / (2 * by)
        if np.abs(found - grad).max() < tolerance * (1 + np.abs(grad).max()):
            return True
    return False


def main(count, first=0, seconds=1e18):
    return fuzz_kernels.main(count, first, seconds, check)


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
