"""`torch.jit.annotations`, where programs import `List` and other names of `typing` from."""

from typing import *  # noqa: F403
from typing import Any
from typing import __all__ as __all__


class BroadcastingListCls:
    """What annotates an argument that is one number or a list of so many: it says nothing to Python."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingListCls()
