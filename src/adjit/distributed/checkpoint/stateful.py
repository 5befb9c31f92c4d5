"""Objects that know their state, as modules and optimisers do."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

__all__ = ["Stateful", "StatefulT"]


@runtime_checkable
class Stateful(Protocol):
    """Anything with `state_dict` and `load_state_dict`, which `save` and `load` call.

    Example:
        >>> from adjit.distributed.checkpoint.stateful import Stateful
        >>> isinstance(nn.Linear(2, 1), Stateful), isinstance({}, Stateful)
        (True, False)
    """

    def state_dict(self) -> dict[str, Any]:
        """Give the state, which `save` writes and whose tensors `load` overwrites.

        Example:
            >>> list(nn.Linear(2, 1).state_dict())
            ['weight', 'bias']
        """
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take over a state.

        Example:
            >>> nn.Linear(2, 1).load_state_dict(nn.Linear(2, 1).state_dict())
            <All keys matched successfully>
        """
        ...


StatefulT = TypeVar("StatefulT", bound=Stateful)
