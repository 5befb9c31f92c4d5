"""Points that cover a cube more evenly than random ones: PyTorch's `torch.quasirandom`, on SciPy's engine."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from scipy.stats import qmc

from .dtypes import dtype as Dtype
from .dtypes import get_default_dtype
from .ops.creation import tensor
from .ops.random import randint
from .tensor import Tensor

__all__ = ["SobolEngine"]

# SciPy 1.15 gave the argument another name.
_SEED = "rng" if "rng" in inspect.signature(qmc.Sobol).parameters else "seed"


class SobolEngine:
    """Sobol sequences of points in the unit cube, by direction numbers of Joe and Kuo (2008).

    Points that are not scrambled are PyTorch's; scrambled ones are other points of the same quality, after
    Matousek (1998), since random numbers here are not PyTorch's.

    Args:
        dimension: of the cube, 1 to 21,201.
        scramble: whether points are shifted and their bits mixed at random, so that means over them have no
            bias, and independent engines tell an error.
        seed: of that; by default it comes from the library's random numbers.

    Raises:
        ValueError: for other dimensions.

    Example:
        >>> engine = adjit.quasirandom.SobolEngine(dimension=3)
        >>> engine.draw(4)
        tensor([[0.0000, 0.0000, 0.0000],
                [0.5000, 0.5000, 0.5000],
                [0.7500, 0.2500, 0.2500],
                [0.2500, 0.7500, 0.7500]])
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        is_drawn = scramble and seed is None
        options: dict[str, Any] = {_SEED: int(randint(1 << 31, ()).item()) if is_drawn else seed}
        self._engine = qmc.Sobol(dimension, scramble=scramble, bits=self.MAXBIT, **options)

    @property
    def num_generated(self) -> int:
        """How many points were drawn or passed over."""
        return int(self._engine.num_generated)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Dtype | None = None) -> Tensor:
        """The next points.

        Args:
            n: how many.
            out: a tensor that gets them, whatever its shape was.
            dtype: of the result; the default dtype if not given.

        Returns:
            Shape (n, dimension), values in [0, 1).

        Raises:
            ValueError: if there are no more than 2 ** 30 points behind the last one.

        Example:
            >>> adjit.quasirandom.SobolEngine(2, scramble=True, seed=0).draw(8).shape
            adjit.Size([8, 2])
        """
        # The first one by itself: SciPy warns of a first number that is no power of 2.
        counts = (1, n - 1) if self.num_generated == 0 and n > 1 else (n,)
        points = np.concatenate([self._engine.random(count) for count in counts])
        made = tensor(points, dtype=dtype or get_default_dtype())
        if out is None:
            return made
        written: Tensor = out.resize_as_(made).copy_(made)
        return written

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Dtype | None = None) -> Tensor:
        """The next 2 ** m points, which together with those before are a power of 2.

        Args:
            m: the exponent.
            out: a tensor that gets them, whatever its shape was.
            dtype: of the result; the default dtype if not given.

        Returns:
            Shape (2 ** m, dimension).

        Raises:
            ValueError: if the number of all points would be no power of 2.

        Example:
            >>> adjit.quasirandom.SobolEngine(2).draw_base2(5).mean(0)
            tensor([0.4844, 0.4844])
        """
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Go back to the first point.

        Example:
            >>> engine = adjit.quasirandom.SobolEngine(2)
            >>> bool((engine.draw(4) == engine.reset().draw(4)).all())
            True
        """
        self._engine.reset()
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Pass over points.

        Args:
            n: how many.

        Example:
            >>> adjit.quasirandom.SobolEngine(1).fast_forward(2).draw(2)
            tensor([[0.7500],
                    [0.2500]])
        """
        self._engine.fast_forward(n)
        return self

    def __repr__(self) -> str:
        said: dict[str, Any] = {"dimension": self.dimension}
        if self.scramble:
            said["scramble"] = True
        if self.seed is not None:
            said["seed"] = self.seed
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in said.items())})"
        )
