"""Templates for machine code: what a template does, as numbers that are read one after the other.

A template is a function of Python in straight lines: numbers are computed of numbers, conditions end it,
objects are made of both. A tape has the same as words, which `kernels/fastpath/templates.py` reads. A template
with something else in it has none, and stays a function of Python.
"""

from __future__ import annotations

import array
import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..schedule.codegen.body import parse
from ..schedule.jit import native
from ..schedule.jit.interpreter import offset_of
from ..shapes import Size

MOST_NUMBERS = 512  # that a tape is given and computes

# What instructions of numbers do with two of them. Conditions come first: they give no number.
EQUAL, UNEQUAL, LESS, LESS_OR_EQUAL, ADD, SUBTRACT, MULTIPLY, DIVIDE, REMAINDER = range(9)
BIT_LENGTH, LITERAL, CALLED = range(9, 12)

# What instructions of objects make of operands; the last two, what the collector is to be told of.
TUPLE, INSTANCE, LIST, DICT, SPEC, SAME, CALL, RECIPE, COPY = range(9)
HIDDEN = 1 << 8  # from the collector

# What the last two bits of an operand say it is; the others, which one.
CONSTANT, OBJECT, NUMBER, OWN_DICT = range(4)

native.register_layout(
    TAPE_EQUAL=EQUAL, TAPE_UNEQUAL=UNEQUAL, TAPE_LESS=LESS, TAPE_LESS_OR_EQUAL=LESS_OR_EQUAL, TAPE_ADD=ADD,
    TAPE_SUBTRACT=SUBTRACT, TAPE_MULTIPLY=MULTIPLY, TAPE_DIVIDE=DIVIDE, TAPE_REMAINDER=REMAINDER,
    TAPE_BIT_LENGTH=BIT_LENGTH, TAPE_LITERAL=LITERAL, TAPE_CALLED=CALLED,
    TAPE_TUPLE=TUPLE, TAPE_INSTANCE=INSTANCE, TAPE_LIST=LIST, TAPE_DICT=DICT, TAPE_SPEC=SPEC,
    TAPE_RECIPE=RECIPE, TAPE_COPY=COPY, TAPE_SAME=SAME, TAPE_HIDDEN=HIDDEN, TAPE_MOST_NUMBERS=MOST_NUMBERS,
    TAPE_CONSTANT=CONSTANT, TAPE_OBJECT=OBJECT, TAPE_NUMBER=NUMBER,
)  # fmt: skip

_ARITHMETIC: dict[type[ast.operator], int] = {
    ast.Add: ADD, ast.Sub: SUBTRACT, ast.Mult: MULTIPLY, ast.FloorDiv: DIVIDE, ast.Mod: REMAINDER,
}  # fmt: skip
# A condition, and whether its two numbers change places.
_CONDITIONS: dict[type[ast.cmpop], tuple[int, bool]] = {
    ast.Eq: (EQUAL, False), ast.NotEq: (UNEQUAL, False), ast.Lt: (LESS, False),
    ast.LtE: (LESS_OR_EQUAL, False), ast.Gt: (LESS, True), ast.GtE: (LESS_OR_EQUAL, True),
}  # fmt: skip
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}  # fmt: skip


class Tape(NamedTuple):
    """The words of a template, and what they name."""

    words: bytes
    constants: tuple[object, ...]


class _Unusual(Exception):
    """A line that no instruction is for."""


def tape_of(text: str, given: int, variables: Mapping[str, object]) -> Tape | None:
    """What a template of this text does, given so many numbers, where names mean this; None if no tape can have
    all of it."""
    if not native.is_supported:
        return None
    try:
        return _TapeWriter(given, variables).tape(parse(text).body[0])
    except _Unusual:
        return None


class _TapeWriter:
    """Instructions as they are written."""

    def __init__(self, given: int, variables: Mapping[str, object]) -> None:
        self.given, self.variables = given, variables
        self.computed: list[int] = []
        self.made: list[list[int]] = []
        self.numbers: dict[str, int] = {}  # where those are that lines have names for
        self.literals: dict[int, int] = {}
        self.fractions: dict[str, ast.expr] = {}  # numbers that are not whole, by their names
        self.objects: dict[str, int] = {}
        self.constants: list[object] = []
        self.places: dict[int, int] = {}  # of the constants, by their ids

    def tape(self, template: ast.stmt) -> Tape:
        """All of a template."""
        assert isinstance(template, ast.FunctionDef)
        for line in template.body:
            match line:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.assign(name, value)
                case ast.If(test=test):
                    self.require(test)
                case ast.Return(value=ast.Call(args=[ast.Name() as whole, *rest])):
                    if self.objects.get(whole.id) != len(self.made) - 1:
                        self.thing(SAME, None, [whole])
                    for part in rest:
                        assert isinstance(part, ast.Name)
                        self.made[self.objects[part.id]][0] |= HIDDEN
                case _:
                    raise _Unusual(ast.unparse(line))
        count = self.given + len(self.computed) // 3
        if count > MOST_NUMBERS:
            raise _Unusual("too many numbers")
        head = [self.given, len(self.computed) // 3, len(self.made)]
        words = array.array("q", [*head, *self.computed, *[w for one in self.made for w in one]])
        return Tape(words.tobytes(), tuple(self.constants))

    def assign(self, name: str, value: ast.expr) -> None:
        """A line that gives a number or an object a name."""
        if name.startswith("m"):
            self.make(value)
            self.objects[name] = len(self.made) - 1
        elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
            self.fractions[name] = value
        else:
            self.numbers[name] = self.number(value)

    def require(self, test: ast.expr) -> None:
        """A condition under which a template ends: `a != b`, or `not` of what has to be so."""
        is_wanted = isinstance(test, ast.UnaryOp)
        if isinstance(test, ast.UnaryOp):
            test = test.operand
            if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test, is_wanted = test.operand, False
        match test:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                what = type(op) if is_wanted else _OPPOSITES[type(op)]
                condition, is_turned = _CONDITIONS[what]
                pair = self.number(left), self.number(right)
                self.add(condition, *(reversed(pair) if is_turned else pair))
            case _:
                raise _Unusual(ast.unparse(test))

    def add(self, what: int, first: int, second: int) -> int:
        """Add an instruction of numbers; where its own will be."""
        self.computed += [what, first, second]
        return self.given + len(self.computed) // 3 - 1

    def number(self, value: ast.expr) -> int:
        """Where the number is that an expression gives."""
        match value:
            case ast.Name(id=name) if name in self.numbers:
                return self.numbers[name]
            case ast.Subscript(slice=ast.Constant(value=int(k))):  # of those that are given
                return k
            case ast.Constant(value=int(literal)) if abs(literal) < 1 << 62:
                return self.literal(literal)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(literal))):
                return self.literal(-literal)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.add(SUBTRACT, self.literal(0), self.number(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return self.add(_ARITHMETIC[type(op)], self.number(left), self.number(right))
            case ast.Call(func=ast.Attribute(value=operand, attr="bit_length")):
                found = self.number(operand)
                return self.add(BIT_LENGTH, found, found)
            case ast.Call(func=ast.Name(id=function), args=[ast.Name(id=name)]) if (
                name in self.fractions
            ):
                return self.of_fraction(function, self.fractions[name])
            case ast.Call(func=ast.Name(id=function), args=[operand]):
                return self.add(
                    CALLED, self.constant(self.variables[function]), self.number(operand)
                )
        raise _Unusual(ast.unparse(value))

    def of_fraction(self, function: str, fraction: ast.expr) -> int:
        """Where the number is that a function gives for a fraction of one number."""
        names = {part.id for part in ast.walk(fraction) if isinstance(part, ast.Name)}
        if len(names) != 1 or not names <= self.numbers.keys():
            raise _Unusual(ast.unparse(fraction))
        name = names.pop()
        text = f"lambda {name}: {function}({ast.unparse(fraction)})"
        called = eval(text, {function: self.variables[function]})
        return self.add(CALLED, self.constant(called), self.numbers[name])

    def literal(self, literal: int) -> int:
        """Where a number is that is always the same."""
        if literal not in self.literals:
            self.literals[literal] = self.add(LITERAL, literal, 0)
        return self.literals[literal]

    def constant(self, thing: object) -> int:
        """The place of an object among those that are always the same."""
        if id(thing) not in self.places:
            self.places[id(thing)] = len(self.constants)
            self.constants.append(thing)
        return self.places[id(thing)]

    def make(self, value: ast.expr) -> None:
        """A line that makes an object."""
        match value:
            case ast.Tuple(elts=parts):
                self.thing(TUPLE, None, parts)
            case ast.List(elts=parts):
                self.thing(LIST, None, parts)
            case ast.Dict(keys=names, values=values):
                pairs = zip(names, values, strict=True)
                self.thing(
                    DICT, None, [part for pair in pairs for part in pair if part is not None]
                )
            case ast.Call(
                func=ast.Name(id="again"), args=[ast.Name(id=kind), ast.Tuple(elts=parts)]
            ):
                self.thing(INSTANCE, self.variables[kind], parts)
            case ast.Call(func=ast.Name(id="sized"), args=[ast.Tuple(elts=parts)]):
                self.thing(INSTANCE, Size, parts)
            case ast.Call(func=ast.Name(id="known_spec"), args=parts):
                self.thing(SPEC, None, parts)
            case ast.Call(func=ast.Name(id="copied"), args=[thing, _, own, names, *parts]):
                self.copy(thing, own, names, parts)
            case ast.Call(func=ast.Name(id=function), args=parts):
                self.thing(CALL, self.variables[function], parts)
            case ast.Call(func=ast.Attribute(value=recipe, attr="resized"), args=parts):
                self.thing(RECIPE, self.meant(recipe), parts)
            case _:
                raise _Unusual(ast.unparse(value))

    def meant(self, name: ast.expr) -> object:
        """What a name means."""
        assert isinstance(name, ast.Name)
        return self.variables[name.id]

    def copy(
        self, like: ast.expr, own: ast.expr, names: ast.expr, parts: Sequence[ast.expr]
    ) -> None:
        """Add an instruction that copies an object: where each of its other parts lies, and that."""
        thing, dicts, others = map(self.meant, (like, own, names))
        assert isinstance(dicts, tuple)
        assert isinstance(others, tuple)
        kind = thing.__class__
        operands: list[int] = []
        for name in dicts:
            operands += [offset_of(getattr(kind, name)), OWN_DICT]
        for name, part in zip(others, parts, strict=True):
            operands += [offset_of(getattr(kind, name)), self.operand(part)]
        self.made.append([COPY, self.constant(thing), len(operands), *operands])

    def thing(self, what: int, of: object, parts: Iterable[ast.expr]) -> None:
        """Add an instruction of objects."""
        operands = [self.operand(part) for part in parts]
        self.made.append([what, self.constant(of), len(operands), *operands])

    def operand(self, part: ast.expr) -> int:
        """What an instruction says of an operand: what it is, in the last two bits, and which."""
        match part:
            case ast.Name(id=name) if name in self.objects:
                return self.objects[name] << 2 | OBJECT
            case ast.Name(id=name) if name in self.numbers:
                return self.numbers[name] << 2 | NUMBER
            case ast.Name(id=name) if name in self.variables:
                return self.constant(self.variables[name]) << 2 | CONSTANT
            case ast.Constant(value=constant):
                return self.constant(constant) << 2 | CONSTANT
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(literal))):
                return self.constant(-literal) << 2 | CONSTANT
        raise _Unusual(ast.unparse(part))
