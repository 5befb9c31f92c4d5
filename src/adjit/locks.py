"""Locks for `with` blocks, which an interrupt does not leave held.

Up to Python 3.13 nothing comes between a lock and the block that gives it back. Python 3.14 calls
`__enter__` as it calls any function, and looks for signals behind it: what a handler of Ctrl-C raises
there leaves the lock held, and other threads wait for ever.
"""

from __future__ import annotations

import _thread
import sys
import threading

if sys.version_info < (3, 14):
    Lock = threading.RLock
else:

    class Lock(_thread.RLock):
        """A reentrant lock. Signals are looked for behind functions of C, not behind those of Python."""

        __slots__ = ()

        def __enter__(self) -> bool:
            held = self._recursion_count()
            try:
                return self.acquire()
            except BaseException:
                if self._recursion_count() > held:
                    self.release()
                raise
