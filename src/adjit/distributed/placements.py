"""How a tensor would lie over processes: the placements of PyTorch's `DTensor`, as plain values.

Programs name them in tables at their beginning. No tensor is spread here: they are compared and printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from ..absent import absent

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """What the placements have in common: questions of which kind they are.

    Example:
        >>> from adjit.distributed.tensor import Placement, Shard
        >>> isinstance(Shard(0), Placement)
        True
    """

    __slots__ = ()

    def is_shard(self, dim: int | None = None) -> bool:
        """True for a `Shard`, with `dim` for one along it.

        Example:
            >>> from adjit.distributed.tensor import Shard
            >>> Shard(1).is_shard(), Shard(1).is_shard(0)
            (True, False)
        """
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """True for a `Replicate`.

        Example:
            >>> from adjit.distributed.tensor import Replicate
            >>> Replicate().is_replicate()
            True
        """
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """True for a `Partial`, with `reduce_op` for one that is reduced by it.

        Example:
            >>> from adjit.distributed.tensor import Partial
            >>> Partial().is_partial("sum"), Partial().is_partial("max")
            (True, False)
        """
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each process has a part along a dimension.

    Example:
        >>> from adjit.distributed.tensor import Shard
        >>> Shard(0) == Shard(0)
        True
    """

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Each process has the whole.

    Example:
        >>> from adjit.distributed.tensor import Replicate
        >>> Replicate()
        Replicate()
    """

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, repr=False)
class Partial(Placement):
    """Each process has a tensor of which the whole is the reduction.

    Example:
        >>> from adjit.distributed.tensor import Partial
        >>> Partial("avg")
        Partial(avg)
    """

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


def __getattr__(name: str) -> NoReturn:
    """What PyTorch has and adjit has not."""
    raise absent("distributed.tensor", name)
