"""What the level of a process follows from where ADJIT_CPU does not say it.

The library hands this down before anybody looks at the processor: which kernels were compiled elsewhere, for
which level, is nothing that kernels know.
"""

from collections.abc import Callable

Has = Callable[[str], bool]


def has_nothing(level: str) -> bool:
    return False


has_kernels: Has = has_nothing  # whether the kernels of a level are there, compiled ahead


def set_kernels(has: Has) -> None:
    """Say which levels have kernels that were compiled ahead."""
    global has_kernels
    has_kernels = has
