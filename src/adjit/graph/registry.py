"""What all ops have in common: their names in a table, references for their tests.

An elementwise op is two scalar bodies (`elementwise.py`), any other a function and its vjp (`operation.py`);
`names.py` gives them to users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Op(Protocol):
    """An `Elementwise` or an `Operation`."""

    name: str

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Record it on arguments of the user's."""


registry: dict[str, Op] = {}  # every op by its name


class _Reference:
    """`scipy.special` for the tests' references, imported when one is called: it takes 90 ms."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            import scipy.special

            return getattr(scipy.special, name)(*args, **kwargs)

        return call


reference: Any = _Reference()
