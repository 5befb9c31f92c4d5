"""Generators of random numbers: a seed, and how many blocks of numbers are used up.

An op reserves its blocks when it is recorded. What it draws is a function of the seed and the
number of its first block, so neither the order of evaluation nor the threads can change a result.
"""

from __future__ import annotations

import contextlib
import operator
import secrets
import struct
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from . import devices
from .graph import generators
from .graph.export import export, namespace
from .graph.state import state
from .locks import Lock

if TYPE_CHECKING:
    from .tensor import Tensor

__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed",
    "seed", "set_rng_state",
]  # fmt: skip

STATE = struct.Struct("<QQ")
DEFAULT_SEED = 67280421310721

Place = tuple[int, int, int]  # where blocks begin: the halves of the seed, the number of the first


@export
class Generator:
    """A stream of random numbers of its own.

    Args:
        device: what its `device` tells; the numbers do not depend on it.

    Example:
        >>> g = adjit.Generator().manual_seed(0)
        >>> bool((adjit.rand(2, generator=g) == adjit.rand(2, generator=g)).all())
        False
    """

    __slots__ = ("_lock", "_offset", "_seed", "device")
    has_no_sizes = True

    def __init__(self, device: Any = "cpu") -> None:
        self.device = devices.check(device)
        self._lock = Lock()
        self._seed, self._offset = DEFAULT_SEED, 0

    def manual_seed(self, seed: int) -> Generator:
        """Start again from a seed; negative ones count down from 2**64. Returns the generator.

        Raises:
            ValueError: if the seed needs more than 64 bits.

        Example:
            >>> adjit.Generator().manual_seed(5).initial_seed()
            5
        """
        number = int(seed)
        if not -(1 << 63) <= number < 1 << 64:
            raise ValueError("Overflow when unpacking long long")
        with self._lock:
            self._seed, self._offset = number % (1 << 64), 0
        if state.session is not None:
            state.session.refuse("it seeds a generator of random numbers")
        return self

    def seed(self) -> int:
        """Start again from a seed that the operating system gives; returns it.

        Example:
            >>> generator = adjit.Generator()
            >>> generator.seed() == generator.initial_seed()
            True
        """
        number = secrets.randbits(64)
        self.manual_seed(number)
        return number

    def initial_seed(self) -> int:
        """Tell the seed that the stream started from.

        Example:
            >>> adjit.Generator().manual_seed(5).initial_seed()
            5
        """
        return self._seed

    def reserve(self, blocks: int) -> Place:
        """Use up blocks, and say where they begin."""
        state.deterministic = False
        return self._advance_alone(blocks)

    def advance(self, blocks: int) -> Place:
        """`reserve`, where a recipe's `draw` does this whenever it is recorded again: of this generator, or of
        that which a call was given."""
        if state.generator is not None:
            assert isinstance(state.generator, Generator)
            return state.generator._advance_alone(blocks)
        with self._lock:
            first = self._offset
            place = self._seed & 0xFFFFFFFF, self._seed >> 32, first
            if state.rehearsing:
                return place
            blocks = operator.index(
                blocks
            )  # a tensor would stay one, and so the words of later draws
            self._offset = first + blocks
        if state.session is not None:
            state.session.numbers(
                place, partial(self.advance, blocks), is_unique=True,
                save=lambda: partial(self._take_back, self._offset, blocks),
            )  # fmt: skip
        return place

    def _advance_alone(self, blocks: int) -> Place:
        before, state.generator = state.generator, None
        try:
            return self.advance(blocks)
        finally:
            state.generator = before

    def _take_back(self, first: int, blocks: int) -> None:
        """Have blocks again that were used up from `first` on, unless somebody has used more since."""
        with self._lock:
            if self._offset == first + blocks:
                self._offset = first

    def get_state(self) -> Tensor:
        """Give the state as a uint8 tensor, for `set_state`.

        Example:
            >>> adjit.Generator().get_state().dtype
            adjit.uint8
        """
        from .ops.creation import tensor

        with self._lock:
            state = STATE.pack(self._seed, self._offset)
        return tensor(np.frombuffer(state, np.uint8))

    def set_state(self, new_state: Tensor) -> Generator:
        """Continue from a state that `get_state` gave; returns the generator.

        Raises:
            TypeError: if it is no uint8 tensor.
            RuntimeError: if it has the wrong size.

        Example:
            >>> generator = adjit.Generator()
            >>> state = generator.get_state()
            >>> first = adjit.rand(2, generator=generator)
            >>> adjit.equal(first, adjit.rand(2, generator=generator.set_state(state)))
            True
        """
        if getattr(new_state, "dtype", None) is not _byte():
            raise TypeError("RNG state must be a torch.ByteTensor")
        if new_state.numel() != STATE.size:
            raise RuntimeError("RNG state is wrong size")
        place = STATE.unpack(bytes(new_state.tolist()))
        with self._lock:
            self._seed, self._offset = place
        return self

    def clone_state(self) -> Generator:
        """Make another generator that goes on from the same state.

        Example:
            >>> g = adjit.Generator().manual_seed(0)
            >>> adjit.equal(adjit.rand(2, generator=g.clone_state()), adjit.rand(2, generator=g))
            True
        """
        with self._lock:
            made = _restored(self._seed, self._offset)
        made.device = self.device
        return made

    def get_offset(self) -> int:
        """Tell how far a generator of a GPU is in its stream.

        Raises:
            RuntimeError: for one of the CPU, as in PyTorch.

        Example:
            >>> adjit.Generator("cuda").get_offset() if adjit.cuda.is_available() else 0
            0
        """
        self._refuse_on_cpu()
        return self._offset

    def set_offset(self, offset: int) -> None:
        """Go to a place in the stream of a generator of a GPU.

        Raises:
            RuntimeError: for one of the CPU, as in PyTorch.

        Example:
            >>> if adjit.cuda.is_available():
            ...     adjit.Generator("cuda").set_offset(4)
        """
        self._refuse_on_cpu()
        with self._lock:
            self._offset = int(offset)

    def _refuse_on_cpu(self) -> None:
        if self.device.type == "cpu":
            raise RuntimeError("CPU Generator does not use offset")

    def __repr__(self) -> str:
        return f"<adjit.Generator seed={self._seed} offset={self._offset}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._seed, self._offset)


def _restored(seed: int, offset: int) -> Generator:
    made = Generator()
    made._seed, made._offset = seed, offset
    return made


def _byte() -> Any:
    from .dtypes import uint8

    return uint8


generators.classes.add(Generator)
default_generator = Generator()
default_generator.seed()
namespace[""]["default_generator"] = default_generator


@export
def manual_seed(seed: int) -> Generator:
    """Start the default generator again from a seed; returns it.

    Raises:
        ValueError: if the seed needs more than 64 bits.

    Example:
        >>> adjit.manual_seed(0).initial_seed()
        0
    """
    return default_generator.manual_seed(seed)


@export
def seed() -> int:
    """Start the default generator again from a seed that the operating system gives; returns it.

    Example:
        >>> adjit.seed() == adjit.initial_seed()
        True
    """
    return default_generator.seed()


@export
def initial_seed() -> int:
    """Tell the seed that the default generator started from.

    Example:
        >>> generator = adjit.manual_seed(5)
        >>> adjit.initial_seed()
        5
    """
    return default_generator.initial_seed()


@export
def get_rng_state() -> Tensor:
    """Give the state of the default generator as a uint8 tensor.

    Example:
        >>> adjit.get_rng_state().dtype
        adjit.uint8
    """
    return default_generator.get_state()


@export
def set_rng_state(new_state: Tensor) -> None:
    """Continue the default generator from a state that `get_rng_state` gave.

    Example:
        >>> state = adjit.get_rng_state()
        >>> first = adjit.rand(2)
        >>> adjit.set_rng_state(state)
        >>> adjit.equal(first, adjit.rand(2))
        True
    """
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **_: Any) -> Iterator[None]:
    """Put the default generator back to where it was at the end of a `with` block.

    Example:
        >>> with adjit.random.fork_rng():
        ...     g = adjit.manual_seed(0)
    """
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
