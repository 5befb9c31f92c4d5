"""Machine code of aarch64, run in this process by an emulator of such a processor.

The emulator (`pip install unicorn`) sees this process's memory at its own addresses, so arrays, constants
and what LLVM has linked are where the code takes them to be. Code is seen once more, ALIAS further up:
only there may it be run, and a jump to any other address stops the emulator. What is called then is
another function of that kind, or one of this processor's, which is called for it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import unicorn
from unicorn import arm64_const as arm

ALIAS = 1 << 47  # above all addresses of a process
NOWHERE = ALIAS - (1 << 12)  # where the outermost function returns to
WORD = 1 << 64
STACK_BYTES = 1 << 24
CODE_AT_ONCE, DATA_AT_ONCE = 1 << 16, 1 << 30  # bytes that are made visible together
ARGUMENTS = [getattr(arm, f"UC_ARM64_REG_X{k}") for k in range(8)]
WORDS_TO_WORD = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(ARGUMENTS))
JUMPS = unicorn.UC_ERR_FETCH_UNMAPPED, unicorn.UC_ERR_FETCH_PROT


def address_of(function: Any) -> int:
    """Where a function of C is."""
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def signed(word: int) -> int:
    """A register's bits as an int64."""
    return word - WORD if word >> 63 else word


class Emulator:
    """One processor, for one thread at a time."""

    def __init__(self) -> None:
        self._processor = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self._processor.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
        self._processor.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # vectors are allowed
        data = unicorn.UC_HOOK_MEM_READ_UNMAPPED | unicorn.UC_HOOK_MEM_WRITE_UNMAPPED
        self._processor.hook_add(data, self._show_data)
        self._stack = ctypes.create_string_buffer(STACK_BYTES)
        self._visible: set[int] = set()
        self._code: dict[int, int] = {}  # what `callable` gave, and the code behind
        self._callables: list[Any] = []
        self._lock = threading.Lock()
        library = ctypes.CDLL(None)
        self._of_floats = {
            address_of(library[name]): (library[name], kind)
            for name, kind in (("fmod", ctypes.c_double), ("fmodf", ctypes.c_float))
        }

    def callable(self, address: int) -> int:
        """The address of a function of this processor, which has the emulator run the code at an address."""
        made = WORDS_TO_WORD(lambda *args: self._run(address, args))
        self._callables.append(made)
        self._code[address_of(made)] = address
        return address_of(made)

    def _run(self, address: int, args: Sequence[int]) -> int:
        processor = self._processor
        with self._lock:
            top = ctypes.addressof(self._stack) + STACK_BYTES
            processor.reg_write(arm.UC_ARM64_REG_SP, top & ~63)
            processor.reg_write(arm.UC_ARM64_REG_LR, NOWHERE)
            for register, value in zip(ARGUMENTS, args, strict=True):
                processor.reg_write(register, value % WORD)
            place = ALIAS + address
            while place != NOWHERE:
                place = self._follow(self._run_until_a_jump(place))
            return signed(processor.reg_read(ARGUMENTS[0]))

    def _run_until_a_jump(self, place: int) -> int:
        """Run code from a place on; where it went that cannot be run."""
        try:
            self._processor.emu_start(place, NOWHERE)
        except unicorn.UcError as error:
            if error.errno not in JUMPS:
                raise
        return int(self._processor.reg_read(arm.UC_ARM64_REG_PC))

    def _follow(self, place: int) -> int:
        """Where to go on after a jump to a place."""
        if place == NOWHERE:
            return place
        if place >= ALIAS:
            if not self._show(place):
                raise RuntimeError(f"the emulator cannot run what is at {place - ALIAS:#x}")
            return place
        if place in self._code:
            return ALIAS + self._code[place]
        self._call(place)
        return int(self._processor.reg_read(arm.UC_ARM64_REG_LR))

    def _call(self, place: int) -> None:
        """Call a function of this processor with the arguments in registers."""
        read, write = self._processor.reg_read, self._processor.reg_write
        if place not in self._of_floats:
            result = WORDS_TO_WORD(place)(*(signed(read(register)) for register in ARGUMENTS))
            write(ARGUMENTS[0], result % WORD)
            return
        function, kind = self._of_floats[place]
        bits = (read(register) for register in (arm.UC_ARM64_REG_D0, arm.UC_ARM64_REG_D1))
        function.argtypes, function.restype = (kind, kind), kind
        found = kind(function(*(kind.from_buffer_copy(b.to_bytes(8, "little")) for b in bits)))
        write(arm.UC_ARM64_REG_D0, int.from_bytes(bytes(found), "little"))

    def _show_data(
        self, _: Any, access: int, address: int, size: int, value: int, data: Any
    ) -> bool:
        if not CODE_AT_ONCE <= address < 2 * ALIAS:
            return False  # nothing of a process is there
        self._show(address)
        self._show(address + size - 1)
        return True

    def _show(self, address: int) -> bool:
        """Have the memory around an address seen; whether it was not before."""
        is_code = address >= ALIAS
        size = CODE_AT_ONCE if is_code else DATA_AT_ONCE
        more = unicorn.UC_PROT_EXEC if is_code else unicorn.UC_PROT_WRITE
        start = address // size * size
        if start in self._visible:
            return False
        self._visible.add(start)
        # A program that is not moved to random addresses has its heap in the first window, but nothing at 0.
        first = max(start, CODE_AT_ONCE)
        size -= first - start
        self._processor.mem_map_ptr(first, size, unicorn.UC_PROT_READ | more, first % ALIAS)
        return True
