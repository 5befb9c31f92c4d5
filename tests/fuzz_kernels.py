"""Random programs for `adjit.user_kernels`: `python tests/fuzz_kernels.py COUNT [FIRST]`.

A program has loops, branches, overwritten arrays, arrays that change places, slices, and calls. Its generated
code runs as plain Python; reverse mode is compared with differences and with forward mode, the
product with the Hessian with differences of the gradient. What Numba would refuse to compile, names that are
not assigned on all paths to where they are read, is found in the text.
"""

import ast
import contextlib
import linecache
import os
import random
import sys
import time
import unittest.mock
import warnings

if __name__ == "__main__":
    os.environ["NUMBA_DISABLE_JIT"] = "1"

import numba
import numpy as np

from adjit.user_kernels import NotDifferentiable, folding, generated
from adjit.user_kernels.tangent_functions import tangent_function

STEEP = (
    1e9  # a gradient beyond which differences of doubles say nothing: rounding and saturation win
)

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


def smooth(v):
    r = np.empty_like(v)
    for i in range(len(v)):
        r[i] = 0.5 * v[i] + 0.3 * v[i - 1] * v[i]
    return r


def shift(v, by):
    v[1:] += by * v[:-1]


def prog(x, y, z, a, b):
    c = 0.5
    m = 1
    w = np.full(5, 0.7)
"""
TAIL = """    s = a * b + c
    for q in range(5):
        s += x[q] * (q + 1) + y[q] * x[q] + w[q] * 0.7 + z[q, 4 - q] * y[q]
    return s
"""


class Program:
    """Writes a random program."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.lines, self.counters = [], []
        self.depth = self.loops = self.branches = self.size = self.names = 0

    def add(self, line):
        self.lines.append("    " * (self.depth + 1) + line)

    def number(self):
        return self.r.choice("abc")

    def array(self):
        return self.r.choice("xyw")

    def index(self):
        c = self.r.random()
        if self.counters and c < 0.6:
            i = self.r.choice(self.counters)
            k = self.r.choice(["", "", " + 1", " + 2", " - 1", " - 1"])
            if self.r.random() < 0.75:
                return f"{i}{k}"
            return f"({i}{k}) % 5" if k else f"{i} % 5"
        return str(self.r.randrange(-1, 5)) if c < 0.8 else "m % 5"

    def atom(self):
        r = self.r
        return r.choice([
            self.number(), self.number(), f"{self.array()}[{self.index()}]", f"{r.uniform(-1, 1):.2f}",
            f"z[{self.index()}, {self.index()}]",
        ])  # fmt: skip

    def expression(self, depth=2):
        if depth == 0:
            return self.atom()
        e, atom = (lambda: self.expression(depth - 1)), self.atom
        return self.r.choice([
            lambda: atom(), lambda: f"{e()} * {atom()}", lambda: f"math.sin({e()})", lambda: f"({e()} + {e()})",
            lambda: f"({e()} - {atom()})", lambda: f"np.tanh({e()})",
            lambda: f"{atom()} / (2.0 + math.cos({e()}))",
            lambda: f"math.exp(-abs({e()}))", lambda: f"max({e()}, {atom()})",
            lambda: f"({atom()} if {self.condition()} else {e()})", lambda: f"math.sqrt(1.5 + math.sin({e()}))",
            lambda: f"helper({atom()}, {atom()})", lambda: f"({e()}) ** 2",
            lambda: f"np.minimum({e()}, {atom()})",
            lambda: f"np.sum({self.view()}) * 0.2", lambda: f"np.dot({self.array()}, {self.array()}) * 0.1",
            lambda: self.function(),
        ])()  # fmt: skip

    def function(self):
        """A number from a function of NumPy's on an array."""
        v, n = self.view(5), self.r.randrange(4)
        return self.r.choice([
            f"np.sort({v})[{n}]", f"np.median({v})", f"{v}[np.argsort({self.array()})[{n}]]",
            f"np.quantile({v}, 0.3)", f"{v}[np.argmax({self.array()})]", f"np.trapezoid({v}) * 0.2",
            f"np.interp({self.atom()}, np.array([-0.5, 0.1, 0.8]), {self.array()}[1:4])", f"z.flat[{n} - m]",
            f"np.convolve({v}, {self.array()}[:2])[{n}] * 0.3", f"np.trace(np.triu(z), {n - 1}) * 0.2",
            f"{v}[np.searchsorted(np.sort({self.array()}), {self.atom()}) % 5]",
        ])  # fmt: skip

    def condition(self):
        r = self.r
        return r.choice([
            f"m % {r.choice([2, 3])} == {r.randrange(2)}", f"{self.number()} > {r.uniform(-0.5, 0.5):.3f}",
            f"m > {r.randrange(6)}", f"{self.number()} > 0.1 and x[{self.index()}] < 0.9",
            f"not ({self.number()} < 0.2 or m == 2)",
        ])  # fmt: skip

    def view(self, length=None):
        """A view of a vector; of all views those of one length."""
        a, r = self.array(), self.r
        if length == 4:
            return r.choice(
                [f"{a}[1:]", f"{a}[:-1]", f"{a}[:4]", f"{a}[3::-1]", f"z[{self.index()}, 1:]"]
            )
        if length == 5:
            return r.choice(
                [a, f"{a}[:]", f"{a}[::-1]", f"z[{self.index()}]", f"z[:, {self.index()}]"]
            )
        return r.choice([a, f"{a}[1:]", f"{a}[m % 3:]", f"{a}[::2]", f"{a}[:-2]", f"{a}[3:0:-1]"])

    def whole(self, length):
        """Arithmetic on whole arrays."""
        v, n = (lambda: self.view(length)), self.number()
        return self.r.choice([
            lambda: f"{v()} * {v()} * 0.7", lambda: f"np.sin({v()} + {n}) * {v()}",
            lambda: f"0.3 * {v()} + {n}",
            lambda: f"np.where({v()} > 0.1, {v()}, 0.5 * {v()})", lambda: v(),
            lambda: f"-{v()} / (1.5 + {v()} ** 2)", lambda: f"np.sort({v()})", lambda: f"np.flip({v()}) * {n}",
            lambda: f"np.cumsum({v()}) * 0.3", lambda: f"np.roll({v()}, m)", lambda: f"np.fmax({v()}, {v()})",
        ])()  # fmt: skip

    def statement(self):
        r = self.r
        self.size += 1
        c = r.random()
        if self.loops and c < 0.32:
            self.recurrence()
        elif c < 0.28:
            self.add(f"{self.number()} = math.tanh({self.expression()})")
        elif c < 0.38:
            self.add(
                f"{self.number()} {r.choice(['+=', '-=', '*='])} math.sin({self.expression(1)})"
            )
        elif c < 0.48:
            self.add(f"{self.array()}[{self.index()}] = math.tanh({self.expression()})")
        elif c < 0.54:
            by = r.choice(
                [f"1.5 + math.sin({self.expression(1)})", f"2.0 + math.cos({self.atom()})"]
            )
            self.add(f"{self.array()}[{self.index()}] {r.choice(['+=', '-=', '*=', '/='])} {by}")
        elif c < 0.57:
            self.add(f"z[{self.index()}, {self.index()}] = {self.atom()} * {self.number()}")
        elif c < 0.63:
            self.arrays()
        elif c < 0.66:
            self.chosen()
        elif c < 0.675 and self.depth < 4:
            self.grid()
        elif c < 0.69:
            self.add("m += 1")
        elif c < 0.72:
            self.add("a, b = b, a")
        elif c < 0.75 and not self.branches:
            self.add("y, w = w, y")
        elif c < 0.86 and self.depth < 4:
            self.branch()
        elif self.depth < 4 and self.size < 40:
            self.loop()
        else:
            self.add(f"{self.number()} = {self.atom()}")

    def recurrence(self):
        r, i, a = self.r, self.r.choice(self.counters), self.array()
        b = r.choice([a, a, self.array()])
        i1, i2 = i + r.choice(["", " + 1", " - 1"]), i + r.choice(["", " + 1", " - 1", " - 2"])
        form = r.choice([
            f"{a}[{i1}] = math.tanh({b}[{i2}] * {self.expression(1)})", f"{a}[{i1}] *= {b}[{i2}]",
            f"{a}[{i1}] = math.sin({b}[{i2}]) * {b}[{i2}] + {a}[{i1}]",
            f"c = math.sin({b}[{i2}] * {b}[{i2}] * c); {a}[{i1}] = c",
            f"{a}[{i1}] += {b}[{i2}] * {b}[{i}] * 0.5",
        ])  # fmt: skip
        for part in form.split("; "):
            self.add(part)

    def arrays(self):
        """A statement on whole arrays."""
        r, a, n = self.r, self.array(), self.r.choice([4, 5])
        target = r.choice([f"{a}[1:]", f"{a}[:-1]", f"{a}[::-1][1:]"]) if n == 4 else f"{a}[:]"
        self.names += 1
        self.add(r.choice([
            f"{target} = np.tanh({self.whole(n)})", f"{target} += 0.1 * np.sin({self.whole(n)})",
            f"{target} *= {self.number()}", f"z[{self.index()}] = {self.whole(5)} * 0.3",
            f"v{self.names} = {self.whole(4)}; c = math.sin(np.sum(v{self.names}))", f"shift({a}, 0.2)",
            f"v{self.names} = smooth({a}); {a}[:] = np.sin(v{self.names})", f"z *= 0.5 + 0.1 * {self.number()}",
        ]))  # fmt: skip
        if "; " in self.lines[-1]:
            first, second = self.lines.pop().strip().split("; ")
            self.add(first)
            self.add(second)

    def grid(self):
        """A loop over all elements or indices, which `break` and `continue` leave whole."""
        r, a = self.r, self.array()
        self.names += 1
        e, i, j = (f"{letter}{self.names}" for letter in "eij")
        self.loops += 1
        head, value = r.choice([
            (f"{e} in z.flat", e), (f"{e} in {a}.flat", e), (f"{i}, {j} in np.ndindex(2, 3)", f"z[{i}, {j}]"),
            (f"({i}, {j}), {e} in np.ndenumerate(z)", f"{e} * {a}[{j}]"),
            (f"{i}, {e} in enumerate(z[1:3].flat)", f"{e} * {a}[{i} % 5]"),
        ])  # fmt: skip
        self.add(f"for {head}:")
        self.add(f"    c = 0.8 * c + 0.3 * math.sin({value})")
        if r.random() < 0.4:
            self.add(f"    if c > {r.uniform(0.1, 0.5):.3f}:")
            self.add(f"        {r.choice(['break', 'continue'])}")
        if r.random() < 0.5:
            self.add(f"    {self.array()}[m % 5] += 0.1 * {value} * c")
        self.loops -= 1

    def chosen(self):
        """An array that a branch chooses, read and now and then written behind it."""
        r = self.r
        self.names += 1
        v = f"v{self.names}"

        def made():
            if r.random() < 0.15:  # which nobody may write into behind the branch
                return self.array()
            n = 5 if self.loops or r.random() < 0.8 else 4
            return r.choice(
                [f"np.tanh({self.whole(n)})", f"smooth({self.array()})", f"0.5 * ({self.whole(n)})"]
            )

        if r.random() < 0.3:
            self.add(f"{v} = {made()} if {self.condition()} else {made()}")
        else:
            self.add(f"if {self.condition()}:")
            self.add(f"    {v} = {made()}")
            if r.random() < 0.3:
                self.add(f"    {self.number()} = {v}[{r.randrange(4)}] * {self.atom()}")
            self.add("else:")
            self.add(f"    {v} = {made()}")
        if r.random() < 0.4:
            self.add(f"{v}[{r.randrange(4)}] {r.choice(['=', '+='])} {self.atom()}")
        if r.random() < 0.5:
            self.add(f"{self.array()}[1:] += 0.2 * {v}[:4]")
        self.add(f"c = math.sin(np.sum({v}) + {v}[{r.randrange(4)}])")

    def block(self, count):
        self.depth += 1
        for _ in range(count):
            self.statement()
        self.depth -= 1

    def branch(self):
        r = self.r
        self.add(f"if {self.condition()}:")
        self.branches += 1
        self.block(r.randint(1, 3))
        self.depth += 1
        if self.loops and r.random() < 0.25:
            self.add(r.choice(["break", "continue"]))
        elif r.random() < 0.06:
            self.add("return a * b + x[0]")
        self.depth -= 1
        if r.random() < 0.4:
            if r.random() < 0.5:
                self.add(f"elif {self.condition()}:")
                self.block(r.randint(1, 3))
            self.add("else:")
            self.block(r.randint(1, 3))
        self.branches -= 1

    def loop(self):
        r = self.r
        self.names += 1
        self.loops += 1
        counter = f"i{self.names}"
        if r.random() < 0.7:
            bounds = r.choice([
                "4", "5", "1, 4", "1, 5", "3, -1, -1", "4, 0, -1", "0, 5, 2", "m % 3", "2, 2", "m % 2, 4",
                *[f"{i}, 4" for i in self.counters if i[0] == "i"],
                *[f"{i} + 1" for i in self.counters if i[0] == "i"],
            ])  # fmt: skip
            self.add(f"for {counter} in range({bounds}):")
        else:
            counter = f"k{self.names}"
            self.add(f"{counter} = {r.randrange(3)}")
            also = f" and {self.number()} < 5.0" if r.random() < 0.4 else ""
            self.add(f"while {counter} < {r.randint(2, 4)}{also}:")
            self.depth += 1
            self.add(f"{counter} += 1")
            self.depth -= 1
        self.counters.append(counter)
        self.block(r.randint(1, 4))
        self.counters.pop()
        self.loops -= 1
        if r.random() < 0.2:
            self.add("else:")
            self.block(r.randint(1, 2))

    def steps(self):
        """A loop whose rounds write arrays, as stages of a step, whole or in parts, and read them then."""
        r, first = self.r, self.names + 1
        self.names += 5
        names = [f"u{k}" for k in range(first, first + r.randint(1, 4))]
        outside = [u for u in names if r.random() < 0.5]
        for u in outside:
            self.add(f"{u} = np.full(5, 0.1)")
        self.loops += 1
        self.add(r.choice([f"for i{first} in range({r.randint(1, 4)}):", "while m < 4:"]))
        self.depth += 1
        self.add("m += 1")
        stages = ["x", "y", "w"]
        for u in names:
            is_whole = False
            if u not in outside:
                is_whole = r.random() < 0.6
                self.add(f"{u} = np.{'empty' if is_whole else 'zeros'}(5)")
            self.stage(u, r.choice(stages), is_whole)
            if r.random() < 0.2:
                self.add(f"{u}[{r.randrange(5)}] += 0.5 * {u}[{r.randrange(5)}]")
            stages.append(u)
        for _ in range(r.randint(1, 2)):
            u, v, x = r.choice(stages), r.choice(names), r.choice("xyw")
            self.add(r.choice([
                f"{x}[:] = 0.9 * {x} + 0.1 * {u} * {v}", f"{x} += 0.2 * {v} - 0.1 * {u} * {v}",
                f"c = 0.5 * c + {u}[{r.randrange(5)}] * {v}[m % 5]",
                f"{x}[{r.randrange(5)}] = {u}[m % 5] * {v}[2]",
            ]))  # fmt: skip
        if r.random() < 0.3:
            self.add(f"if {self.condition()}:")
            self.add("    break")
        self.depth -= 1
        self.loops -= 1

    def stage(self, u, v, is_whole):
        """Statements that write an array, all of its elements or not."""
        r, number = self.r, self.number()
        form = r.random()
        if form < 0.25:
            parts = [] if is_whole else [(0, 1, 3), range(4)]
            for k in r.choice([range(5), (4, 0, 1, 2, 3), *parts]):
                self.add(f"{u}[{k}] = {v}[{r.randrange(-1, 5)}] * {number}")
        elif form < 0.4:
            self.add(f"{u}[:] = {v} * {number} - 0.1")
        else:
            parts = [] if is_whole else ["4", "1, 5", "m % 6"]
            self.add(
                f"for j in range({r.choice(['5', f'len({u})', f'{v}.shape[0]', '4, -1, -1', *parts])}):"
            )
            place = r.choice(["j", "j", "4 - j"] if is_whole else ["j", "j", "j - 1", "m % 5"])
            indent = ""
            if not is_whole and r.random() < 0.3:
                self.add(f"    if {v}[j] > 0.1:")
                indent = "    "
            value = f"0.4 * {v}[{r.choice(['j', 'j - 1'])}] * {number} + 0.3 * {r.choice('xyw')}[j]"
            self.add(f"    {indent}{u}[{place}] = {value}")

    def rows(self):
        """A loop whose rounds add up numbers of their own, which may be stored where others read."""
        r, n = self.r, self.names + 1
        self.names += 1
        i, q, e = f"i{n}", f"q{n}", f"e{n}"
        self.add(f"for {i} in range({r.choice(['5', '5', 'len(x)', '1, 5', 'm % 3, 5', '3'])}):")
        self.add(f"    {e} = {r.choice([self.atom(), f'{self.array()}[{i}]', '0.0'])}")
        for _ in range(r.randint(1, 2)):
            self.add(f"    for {q} in range({r.choice(['5', 'len(y)', 'z.shape[1]', '1, 4', i])}):")
            v, u = (
                f"{self.array()}[{q}]",
                r.choice([f"z[{i}, {q}]", f"z[{q}, {i}]", f"{self.array()}[{i}]"]),
            )
            value = r.choice(
                [f"{u} * {v}", f"{u} * math.sin({v})", f"0.3 * math.exp(-{v} * {v}) * {u}"]
            )
            self.add(
                f"        {e} {r.choice(['+=', '-=', f'= 0.5 * {e} +', f'= max({e}, 0.1) -'])} {value}"
            )
        for _ in range(r.choice([1, 1, 1, 2])):
            place = r.choice([i, i, i, f"{i} - 1", "m % 5", f"4 - {i}"])
            self.add(f"    {self.array()}[{place}] {r.choice(['=', '=', '+='])} math.tanh({e})")

    def source(self):
        if self.r.random() < 0.25:
            self.steps()
        if self.r.random() < 0.3:
            self.rows()
        for _ in range(self.r.randint(3, 7)):
            self.statement()
        return HEAD + "\n".join(self.lines) + "\n" + TAIL


def function_of(source, filename):
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    space = {}
    exec(compile(source, filename, "exec"), space)
    return space["prog"]


def arguments(seed):
    rng = np.random.default_rng(seed)
    vectors = [rng.standard_normal(5) * 0.8 for _ in range(2)]
    return [*vectors, rng.standard_normal((5, 5)) * 0.6, 0.31417, -0.43271]


def copies(args):
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def flat(values):
    return np.concatenate([np.ravel(v) for v in values])


def moved(args, direction, by):
    return [a + by * d for a, d in zip(args, direction, strict=True)]


def directions(args):
    for k, a in enumerate(args):
        for i in np.ndindex(np.shape(a)):
            found = [np.zeros_like(b) if isinstance(b, np.ndarray) else 0.0 for b in args]
            if i:
                found[k][i] = 1.0
            else:
                found[k] = 1.0
            yield found


class Assigned:
    """The names that all paths to a place assign, and those that only one side of a branch does."""

    def __init__(self, names=(), sides=()):
        self.names, self.sides = set(names), dict(sides)

    def on(self, test, side):
        """What is known on a side of a branch: also what that side of earlier branches by the test left."""
        found = Assigned(self.names, self.sides)
        if (test, side) in self.sides:
            found.add(self.sides[test, side])
        return found

    def add(self, other):
        self.names |= other.names
        self.sides |= other.sides

    def common(self, other):
        """What is known on two paths that join."""
        if self is other:
            return self
        both = self.sides.keys() & other.sides.keys()
        sides = {k: self.sides[k].common(other.sides[k]) for k in both}
        return Assigned(self.names & other.names, sides)


def read_unassigned(text):
    """Names of generated functions that are read, but not assigned on all paths. Only by a test that is
    written `bool(t)` do paths choose the same side again: Numba must not know it (`ReverseWriter.chosen`)."""
    missing = []

    def names(node, kind):
        return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, kind)]

    def read(node, known):
        missing.extend(n for n in names(node, ast.Load) if n in own and n not in known.names)

    def merged(test, then, orelse):
        if then is None or orelse is None:
            return orelse if then is None else then
        found = then.common(orelse)
        if test:
            found.sides |= {(test, True): then, (test, False): orelse}
        return found

    def branch(node, known, leaves):
        read(node.test, known)
        test, sides = node.test, (True, False)
        if isinstance(test, ast.UnaryOp):
            test, sides = test.operand, (False, True)
        is_told = isinstance(test, ast.Call) and ast.unparse(test.func) == "bool"
        name = ast.unparse(test) if is_told else ""
        first, second = (
            block(part, known.on(name, side), leaves)
            for part, side in zip((node.body, node.orelse), sides, strict=True)
        )
        return merged(name, *((first, second) if sides[0] else (second, first)))

    def block(statements, known, leaves):
        """What is known behind statements; None if no path leads there."""
        for node in statements:
            match node:
                case ast.If():
                    known = branch(node, known, leaves)
                case ast.For():
                    read(node.iter, known)
                    inside = Assigned([*known.names, *names(node.target, ast.Store)], known.sides)
                    block(node.body, inside, [])
                case ast.While():  # `while True`, left by break
                    ends = []
                    block(node.body, Assigned(known.names, known.sides), ends)
                    known = ends[0]
                    for other in ends[1:]:
                        known = merged("", known, other)
                case ast.Break():
                    leaves.append(known)
                    return None
                case ast.Continue() | ast.Raise() | ast.Return():
                    read(node, known)
                    return None
                case _:
                    read(node, known)
                    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                        missing.extend({node.target.id} - known.names)
                    made = names(node, ast.Store)
                    gone = {(f"bool({n})", side) for n in made for side in (True, False)}
                    known.sides = {k: v for k, v in known.sides.items() if k not in gone}
                    known.names.update(made)
            if known is None:
                return None
        return known

    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef):
            own = {*names(function, ast.Store)}
            block(function.body, Assigned(a.arg for a in function.args.args), [])
    return missing


def files(function, args):
    """The generated code of the three modes, and of the tangents read as a function of their own, as plain
    Python."""
    kinds = tuple(numba.typeof(a) for a in args)
    wanted = tuple(range(len(args)))
    texts = {
        mode: generated.text_of(function, kinds, wanted, mode)
        for mode in ("reverse", "forward", "second")
    }
    with unittest.mock.patch.object(generated, "folded", str):
        texts["unfolded"] = generated.text_of(function, kinds, wanted, "reverse")
    for width in (30, 55):  # longer lines keep the names of some values, and not of others
        with unittest.mock.patch.object(folding, "_WIDEST", width):
            texts[f"{width} wide"] = generated.text_of(function, kinds, wanted, "reverse")
    # Those of arrays that change places in loops of loops are refused.
    with contextlib.suppress(NotDifferentiable):
        texts["again"] = generated.text_of(
            tangent_function(function, kinds, wanted), kinds * 2, tuple(range(2 * len(args))), "reverse",
            strong_zero=True,
        )  # fmt: skip
    found = {}
    for mode, text in texts.items():
        if missing := read_unassigned(text):
            raise NameError(f"{mode}: {missing[:5]} not assigned on all paths")
        found[mode] = {}
        exec(text.replace("cache=True", "cache=False"), found[mode])
    return found


def check(seed):
    """`ok`, `steep` (only forward and reverse mode are compared), `skipped` (an error of the program itself),
    `refused: ...` or `WRONG ...`, and the source."""
    source = Program(seed).source()
    prog = function_of(source, f"<program {seed}>")
    args = arguments(seed)
    try:
        want = prog(*copies(args))
    except (IndexError, ValueError):
        return "skipped", source
    if not np.isfinite(want):
        return "skipped", source
    try:
        made = files(prog, args)
    except NotDifferentiable as error:
        return "refused: " + str(error).split(": ", 1)[-1].split("\n")[0], source
    return compared(prog, args, want, made, seed), source


def compared(prog, args, want, made, seed):
    value_and_grad = made["reverse"]["value_and_grad"]
    given = copies(args)
    value, grads = value_and_grad(*given)
    if not all(np.array_equal(a, b) for a, b in zip(given, args, strict=True)):
        return "WRONG: an argument was changed"
    grad = flat(grads)
    # Sums in another order, which is as if arguments were rounded otherwise.
    rounding = 1e-15 * np.abs(grad) @ np.abs(flat(args))
    if not abs(value - want) <= 1e-12 * (1 + abs(want)) + rounding:
        return f"WRONG value {value} {want}"
    for text in ("unfolded", "30 wide", "55 wide"):
        value_again, grads_again = made[text]["value_and_grad"](*copies(args))
        if not np.array_equal([value, *grad], [value_again, *flat(grads_again)], equal_nan=True):
            return f"WRONG: other bits than {text}"
    rng = np.random.default_rng(seed + 1)
    along = [
        rng.standard_normal(np.shape(a)) if np.ndim(a) else float(rng.standard_normal())
        for a in args
    ]
    scale = 1 + np.abs(grad).max()
    tangent = made["forward"]["value_and_tangent"](*args, *along)[2]
    if not np.isfinite([tangent, *grad]).all():
        high, low = (prog(*copies(moved(args, along, by))) for by in (1e-11, -1e-11))
        if not abs(high - low) < 2e-11 * STEEP:
            return "steep"
    if not abs(tangent - grad @ flat(along)) < 1e-9 * scale * 10:
        return f"WRONG: forward {tangent}, reverse {grad @ flat(along)}"
    slope, products = made["second"]["value_and_grad"](*args, *along)
    if not abs(slope - tangent) < 1e-9 * scale * 10:
        return f"WRONG: forward {tangent}, forward in second {slope}"
    if not np.abs(flat(products[len(args) :]) - grad).max() < 1e-9 * scale * 10:
        return "WRONG: the gradient by the second"
    again = made.get("again", made["second"])
    slope_again, products_again = again["value_and_grad"](*args, *along)
    if not abs(slope - slope_again) < 1e-9 * scale * 10:
        return f"WRONG: tangents read again {slope_again}, {slope}"
    off = np.abs(flat(products_again) - flat(products)).max()
    if not off < 1e-9 * (1 + np.abs(flat(products)).max()):
        return f"WRONG: the second order of tangents read again by {off:.1e}"
    if abs(want) > 1e9 or scale > STEEP:  # what small terms add is lost
        return "steep"
    for by in (1e-6, 1e-7, 1e-5, 1e-8, 1e-10):
        differences = np.array([
            (prog(*moved(args, d, by)) - prog(*moved(args, d, -by))) / (2 * by) for d in directions(args)
        ])  # fmt: skip
        if np.abs(differences - grad).max() < 1e-4 * scale:
            break
    else:
        if is_steep(lambda *at: flat(value_and_grad(*at)[1]), args, along):
            return "steep"
        return f"WRONG gradient {np.abs(differences - grad).max():.1e}"
    second = flat(products[: len(args)])
    for by in (1e-5, 1e-6, 1e-7, 1e-8):
        high, low = (flat(value_and_grad(*moved(args, along, s * by))[1]) for s in (1, -1))
        if np.abs((high - low) / (2 * by) - second).max() < 1e-3 * (1 + np.abs(second).max()):
            return "ok"
    count = len(args)
    if is_steep(
        lambda *at: flat(made["second"]["value_and_grad"](*at, *along)[1][:count]), args, along
    ):
        return "steep"
    return f"WRONG product with the Hessian {np.abs((high - low) / (2 * by) - second).max():.1e}"


def is_steep(derivative, args, along):
    """Whether a derivative is another one 1e-11 away, so that differences of doubles say nothing of it."""
    here, near = derivative(*args), derivative(*moved(args, along, 1e-11))
    is_known = np.isfinite(here).all()  # NaN is none that differences could not tell
    return bool(is_known and not np.abs(here - near).max() < 1e-2 * (1 + np.abs(here).max()))


def main(count, first=0, seconds=1e18, check=check):
    """Check programs, while there is time, and say what became of them; whether none was wrong."""
    warnings.simplefilter("ignore")
    found, end, done = {}, time.time() + seconds, 0
    for seed in range(first, first + count):
        if time.time() > end:
            break
        done += 1
        try:
            result, _ = check(seed)
        except Exception as error:
            result = f"WRONG: {type(error).__name__}: {str(error)[:150]}"
        found.setdefault(result, []).append(seed)
        if result.startswith("WRONG"):
            print(seed, result, flush=True)
    print(done, "programs")
    for result, seeds in sorted(found.items(), key=lambda pair: -len(pair[1])):
        print(len(seeds), result, seeds[:5] if result != "ok" else "")
    return not any(result.startswith("WRONG") for result in found)


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
