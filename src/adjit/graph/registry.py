"""What all ops have in common: their names in a table, references for their tests.

An elementwise op is two scalar bodies (`elementwise.py`), any other a function and its vjp (`operation.py`);
`names.py` gives them to users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .elementwise import Elementwise
    from .operation import Operation

registry: dict[str, Elementwise | Operation] = {}  # every op, for tests and reports


class _Reference:
    """`scipy.special` for the tests' references, imported when one is called: it takes 90 ms."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            import scipy.special

            return getattr(scipy.special, name)(*args, **kwargs)

        return call


reference: Any = _Reference()
