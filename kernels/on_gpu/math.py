"""The bodies of `vector_math` traced for a GPU: the same arithmetic in the instructions it has.

libNVVM reads LLVM's text of an older day: it knows other names for rounding and no whole numbers wider
than 64 bits. What comes out has the bits that the CPU's code has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from ..language.device import I64, call
from ..language.intrinsics import OutOfLine, Value, bits, from_bits

WORD = 64
ALL_ONES = (1 << WORD) - 1
CONSTANT = 4  # the address space of constants

ROUNDING = {
    "llvm.rint": "llvm.nvvm.round",
    "llvm.floor": "llvm.nvvm.floor",
    "llvm.ceil": "llvm.nvvm.ceil",
    "llvm.trunc": "llvm.nvvm.trunc",
    "llvm.sqrt": "llvm.nvvm.sqrt.rn",
    "llvm.fabs": "llvm.nvvm.fabs",
}


class GpuValue(Value):
    """A value whose operators append instructions for a GPU."""

    __slots__ = ()

    def call(self, name: str, *others: Any) -> Value:
        """The GPU's name for an LLVM intrinsic."""
        if name == "llvm.copysign":
            return self._with_sign_of(self.make(self.lift(others[0])))
        if name not in ROUNDING:
            return super().call(name, *others)
        suffix = "f" if isinstance(self.type, ir.FloatType) else "d"
        return self.make(call(self.builder, f"{ROUNDING[name]}.{suffix}", self.type, self.ir))

    def _with_sign_of(self, other: Value) -> Value:
        size, sign = bits(self), bits(other)
        top = 1 << (size.type.width - 1)
        return from_bits((size & (top - 1)) | (sign & -top))

    def resized(self, width: int) -> Any:
        """A whole number from 0 up in another width, of which a GPU has up to 64 bits."""
        if width <= WORD:
            return super().resized(width)
        zero = self.make(I64(0))
        return Limbs([super().resized(WORD), *[zero] * (-(-width // WORD) - 1)], width)

    def shifted_constant(self, value: int, width: int) -> Any:
        """A constant of any width, its bits shifted down by this number, in 64 bits a time."""
        count = -(-width // WORD)
        words = [value >> WORD * k & ALL_ONES for k in range(count)] + [0] * (count + 1)
        kind = ir.ArrayType(I64, len(words))
        name = f"constant_{width}_{value >> (width - 32):x}"
        table = self.builder.module.globals.get(name)
        if table is None:
            table = ir.GlobalVariable(self.builder.module, kind, name, addrspace=CONSTANT)
            table.linkage, table.global_constant = "internal", True
            table.initializer = ir.Constant(kind, words)
        by = self.resized(WORD)
        first, within = by.shift_down(6), by & (WORD - 1)

        def word(k: int) -> Value:
            place = self.builder.gep(table, [I64(0), (first + k).ir])
            return self.make(self.builder.load(place))

        return Limbs([joined(word(k), word(k + 1), within) for k in range(count)], width)

    def long_fmod(self, other: Value) -> Value:
        """libdevice's function, which is exact; the instruction `frem` is not."""
        name = "__nv_fmodf" if isinstance(self.type, ir.FloatType) else "__nv_fmod"
        return self.make(call(self.builder, name, self.type, self.ir, other.ir))

    def out_of_line(self, slow: OutOfLine, args: tuple[Value, ...]) -> Value:
        """The body itself: a call would take a stack."""
        return slow.body(*args)


def joined(low: Value, high: Value, by: Any) -> Value:
    """The low 64 bits of two words shifted down by a number below 64."""
    return low.shift_down(by) | ((high << 1) << (WORD - 1 - by))


def below(x: Value, y: Value) -> Value:
    """1 if x is below y, both without a sign, else 0."""
    less = x.builder.icmp_unsigned("<", x.ir, y.ir)
    return x.make(x.builder.zext(less, I64))


class Limbs:
    """A whole number wider than 64 bits: its words, the lowest first, with zeros above `width`.

    It has what the reduction of large angles asks of a value.
    """

    def __init__(self, words: list[Any], width: int) -> None:
        spare = len(words) * WORD - width
        self.words, self.width, self.spare = words, width, spare
        self.words[-1] = words[-1] & ((1 << (WORD - spare)) - 1)
        self.zero = words[0].make(I64(0))

    def word(self, k: int) -> Any:
        return self.words[k] if 0 <= k < len(self.words) else self.zero

    def made(self, word: Callable[[int], Any]) -> Limbs:
        return Limbs([word(k) for k in range(len(self.words))], self.width)

    def resized(self, width: int) -> Any:
        """In another width, by dropping or adding zeros at the top."""
        if width <= WORD:
            return self.words[0].resized(width)
        return Limbs([self.word(k) for k in range(-(-width // WORD))], width)

    def select(self, condition: Value, x: Limbs, y: Limbs) -> Limbs:
        return self.made(lambda k: self.zero.select(condition, x.words[k], y.words[k]))

    def __mul__(self, other: Limbs) -> Limbs:
        """The product with a number of one word."""
        factor, carry, words = other.words[0], self.zero, []
        for word in self.words:
            low = word * factor
            total = low + carry
            high = call(word.builder, "llvm.nvvm.mulhi.ull", I64, word.ir, factor.ir)
            carry = word.make(high) + below(total, low)
            words.append(total)
        return Limbs(words, self.width)

    def _plus(self, other: Callable[[int], Any], carry: Any) -> Limbs:
        words = []
        for k, word in enumerate(self.words):
            part = word + other(k)
            total = part + carry
            carry = below(part, word) | below(total, part)
            words.append(total)
        return Limbs(words, self.width)

    def __add__(self, other: int) -> Limbs:
        return self._plus(lambda k: other >> WORD * k & ALL_ONES, self.zero)

    def __sub__(self, other: Limbs) -> Limbs:
        return self._plus(lambda k: ~other.words[k], self.zero + 1)

    def __neg__(self) -> Limbs:
        return self.made(lambda k: self.zero) - self

    def __lt__(self, zero: int) -> Value:
        """Whether the highest bit is set, which is a sign."""
        return self.words[-1].shift_down(WORD - 1 - self.spare) == 1

    def shift_down(self, count: int) -> Limbs:
        whole, within = divmod(count, WORD)
        return self.made(lambda k: joined(self.word(k + whole), self.word(k + whole + 1), within))

    def __lshift__(self, count: Any) -> Limbs:
        """Shifted up by a constant, or by a number of 64 bits."""
        by = self.zero + count
        whole, within = by.shift_down(6), by & (WORD - 1)
        moved = [
            (word << within) | self.word(k - 1).shift_down(1).shift_down(WORD - 1 - within)
            for k, word in enumerate(self.words)
        ]

        def word(k: int) -> Any:
            found = self.zero
            for j in range(k + 1):
                found = found.select(whole == j, moved[k - j], found)
            return found

        return self.made(word)

    def leading_zeros(self) -> Value:
        """How many zeros the number's bits start with."""
        count = self.words[0].leading_zeros() - self.spare
        for word in self.words[1:]:
            count = count.select(word == 0, count + WORD, word.leading_zeros() - self.spare)
        return count


def lowering(body: Callable[..., Any], given: types.Type, arity: int) -> Callable[..., Any]:
    """A traced body as a definition for the CUDA target's `intrinsic`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return body(*(GpuValue(builder, arg) for arg in args)).ir

    definitions = (
        lambda typingctx, x: (given(given), codegen),
        lambda typingctx, x, y: (given(given, given), codegen),
        lambda typingctx, x, y, z: (given(given, given, given), codegen),
    )
    return definitions[arity - 1]
