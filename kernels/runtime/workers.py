"""Threads of our own that run the parts of large steps.

A step says how many parts are left; whoever counts one down, the calling thread or a worker, runs it. A
step that finds the workers busy runs on its calling thread. Who waits, spins: a worker for some 0.1 ms
after the last part, the calling thread until all parts are finished. Only then a worker sleeps, since waking
it takes longer than many a step. Measured on a 2-core Zen 5 virtual machine, `abs` of float32 recorded and
run, in us:

    elements        64k   128k   256k   512k     1M     4M
    one thread        5     10     23     38     72    395
    two, tbb          8      9     15     27     51    439
    two, workers      4      5     10     22     40    406
"""

import ctypes
import signal

from ..language.abi import call, helper, stack_words, words
from ..language.sharing import increase, pause, replaced, seen, tell

# Words of a job, what a step says to the threads. The first three have the addresses and the
# meaning that Numba's parallel_for gives them: a base that moves by `stride` for each part.
BASE, PARTS, STRIDE, KERNEL, ARGS, UNITS, WORKERS = range(7)

# Words of a pool of workers: functions of pthreads, what they act on, and the job in progress.
LOCK, UNLOCK, WAIT, BROADCAST, YIELD, MUTEX, WORK = range(7)
BUSY, SLEEPING, RUN, JOB, LEFT, FINISHED = range(7, 13)
POOL_WORDS = 13
PTHREAD_WORDS = 16  # room for a pthread_mutex_t or a pthread_cond_t on any platform

LOOKS = 10_000  # at the parts left, before a worker sleeps: 0.1 ms, 0.5 on processors that take a pause longer
PATIENCE = 256  # looks at the parts finished, before the caller lets other threads run

SHARE_SIGNATURE = "void(int64, int64, int64, int64, int64, int64, int64, int64)"
WORK_SIGNATURE = "void(int64)"


# ----- the pool -----


@helper
def take_part(pool: int, piece: int) -> bool:
    """Run one of the parts that are left, if there is one."""
    left = seen(pool + 8 * LEFT)
    while left > 0:
        if replaced(pool + 8 * LEFT, left, left - 1):
            job = words(pool)[JOB]
            words(piece)[0], words(piece)[1] = words(job)[PARTS] - left, 1
            call(words(pool)[RUN], (piece, piece + 8, 0, job))
            increase(pool + 8 * FINISHED, 1)
            return True
        left = seen(pool + 8 * LEFT)
    return False


def share(
    run: int, base: int, count: int, stride: int, job: int, inner: int, arrays: int, threads: int
) -> None:
    """The workers' parallel_for, called like Numba's."""
    pool, parts = words(job)[WORKERS], words(job)[PARTS]
    if not replaced(pool + 8 * BUSY, 0, 1):
        call(run, (base, count, stride, job))
        return
    p = words(pool)
    p[RUN], p[JOB] = run, job
    tell(pool + 8 * FINISHED, 0)
    tell(pool + 8 * LEFT, parts)
    if seen(pool + 8 * SLEEPING) > 0:
        call(p[LOCK], (p[MUTEX],))
        call(p[BROADCAST], (p[WORK],))
        call(p[UNLOCK], (p[MUTEX],))
    piece = stack_words(2)
    while take_part(pool, piece):
        pass
    looks = 0
    while seen(pool + 8 * FINISHED) < parts:
        looks += 1
        if looks % PATIENCE == 0:
            call(p[YIELD], ())
        else:
            pause()
    tell(pool + 8 * BUSY, 0)


def work(pool: int) -> None:
    """The life of a worker."""
    p = words(pool)
    piece = stack_words(2)
    while True:
        looks = LOOKS
        while looks > 0:
            looks -= 1
            if take_part(pool, piece):
                looks = LOOKS
            pause()
        call(p[LOCK], (p[MUTEX],))
        increase(
            pool + 8 * SLEEPING, 1
        )  # before the last look: the caller first tells, then counts who sleeps
        while seen(pool + 8 * LEFT) == 0:
            call(p[WAIT], (p[WORK], p[MUTEX]))
        increase(pool + 8 * SLEEPING, -1)
        call(p[UNLOCK], (p[MUTEX],))


class Workers:
    """A pool and its threads. Their memory is never freed: they never end."""

    def __init__(self, work_address: int) -> None:
        self._system = ctypes.CDLL(None)
        self._work = ctypes.c_void_p(work_address)
        self._count = 0
        self._system.calloc.restype = ctypes.c_void_p
        self.address = int(self._system.calloc(POOL_WORDS + 2 * PTHREAD_WORDS, 8))
        if not self.address:
            raise MemoryError("no memory for the pool of workers")
        pool = (ctypes.c_int64 * POOL_WORDS).from_address(self.address)
        for place, function in (
            (LOCK, "pthread_mutex_lock"),
            (UNLOCK, "pthread_mutex_unlock"),
            (WAIT, "pthread_cond_wait"),
            (BROADCAST, "pthread_cond_broadcast"),
            (YIELD, "sched_yield"),
        ):
            pool[place] = ctypes.cast(self._system[function], ctypes.c_void_p).value or 0
        for position, (place, initialise) in enumerate(
            ((MUTEX, "pthread_mutex_init"), (WORK, "pthread_cond_init"))
        ):
            pool[place] = self.address + 8 * (POOL_WORDS + position * PTHREAD_WORDS)
            self._system[initialise](ctypes.c_void_p(pool[place]), None)

    def grow(self, count: int) -> None:
        """Start workers until there are `count`, or as many as the system grants."""
        # A signal that a worker took would not wake the main thread from a system call.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            while self._count < count:
                thread = ctypes.c_void_p()
                if self._system.pthread_create(
                    ctypes.byref(thread), None, self._work, ctypes.c_void_p(self.address)
                ):
                    break  # the threads that there are, at worst the caller, run every part
                self._system.pthread_detach(thread)
                self._count += 1
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
