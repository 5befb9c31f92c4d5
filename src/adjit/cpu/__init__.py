"""PyTorch's `torch.cpu`: what programs ask of the module of any device, `getattr(torch, device.type)`.

Calls return when their work is recorded, and whoever looks at values gets them: there is nothing to wait for.
"""

from __future__ import annotations

from typing import Any

from . import amp as amp

__all__ = [
    "Event", "Stream", "StreamContext", "current_device", "current_stream", "device_count", "is_available",
    "is_initialized", "set_device", "stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """True: there is a CPU.

    Example:
        >>> adjit.cpu.is_available()
        True
    """
    return True


def is_initialized() -> bool:
    """True: there is nothing to be made ready.

    Example:
        >>> adjit.cpu.is_initialized()
        True
    """
    return True


def device_count() -> int:
    """Count the CPUs as devices, not their cores: 1.

    Example:
        >>> adjit.cpu.device_count()
        1
    """
    return 1


def current_device() -> str:
    """Name the only device: "cpu".

    Example:
        >>> adjit.cpu.current_device()
        'cpu'
    """
    return "cpu"


def set_device(device: Any) -> None:
    """Change nothing: there is one CPU.

    Example:
        >>> adjit.cpu.set_device("cpu")
    """


def synchronize(device: Any = None) -> None:
    """Wait for nothing: whoever looks at values gets those that were computed.

    Example:
        >>> adjit.cpu.synchronize()
    """


class Stream:
    """A stream of the CPU, where all is in order: its methods do nothing.

    Example:
        >>> adjit.cpu.Stream().wait_stream(adjit.cpu.current_stream())
    """

    def __init__(self, priority: int = -1) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: what was called before is in order.

        Example:
            >>> adjit.cpu.Stream().wait_stream(adjit.cpu.current_stream())
        """

    def record_event(self) -> None:
        """Do nothing.

        Example:
            >>> adjit.cpu.Stream().record_event()
        """

    def wait_event(self, event: Any) -> None:
        """Do nothing: what was called before is in order.

        Example:
            >>> adjit.cpu.Stream().wait_event(adjit.cpu.Event())
        """


class Event:
    """A moment of a stream of the CPU, which has always passed.

    Example:
        >>> event = adjit.cpu.Event()
        >>> event.record()
        >>> event.query()
        True
    """

    def query(self) -> bool:
        """True: what was recorded before it is done for all who look.

        Example:
            >>> adjit.cpu.Event().query()
            True
        """
        return True

    def record(self, stream: Any = None) -> None:
        """Do nothing.

        Example:
            >>> adjit.cpu.Event().record()
        """

    def synchronize(self) -> None:
        """Do nothing.

        Example:
            >>> adjit.cpu.Event().synchronize()
        """

    def wait(self, stream: Any = None) -> None:
        """Do nothing.

        Example:
            >>> adjit.cpu.Event().wait()
        """


_current = Stream()


def current_stream(device: Any = None) -> Stream:
    """Give the stream that `stream` has selected.

    Example:
        >>> adjit.cpu.current_stream() is adjit.cpu.current_stream()
        True
    """
    return _current


class StreamContext:
    """Selects a stream for a while, or none if it is None; `stream` makes it.

    Example:
        >>> chosen = adjit.cpu.Stream()
        >>> with adjit.cpu.StreamContext(chosen):
        ...     adjit.cpu.current_stream() is chosen
        True
    """

    def __init__(self, stream: Stream | None) -> None:
        self.stream, self.prev_stream = stream, _current

    def __enter__(self) -> None:
        global _current
        if self.stream is not None:
            self.prev_stream, _current = _current, self.stream

    def __exit__(self, *error: object) -> None:
        global _current
        if self.stream is not None:
            _current = self.prev_stream


def stream(stream: Stream | None) -> StreamContext:
    """Select a stream for a while.

    Example:
        >>> with adjit.cpu.stream(adjit.cpu.Stream()):
        ...     adjit.ones(1)
        tensor([1.])
    """
    return StreamContext(stream)
