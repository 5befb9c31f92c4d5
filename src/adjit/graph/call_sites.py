"""Which line of the user's program recorded a node, noted while somebody wants to know.

Every node that is recorded gets its Python numbers once, so that is what is watched. It costs
nothing while nobody asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from operator import is_not
from types import MemberDescriptorType
from typing import Any

from .. import errors
from ..locks import Lock
from .node import Node
from .state import Sites, observers

_scalars: MemberDescriptorType = Node.__dict__["scalars"]
_lock = Lock()


@contextlib.contextmanager
def recording_sites(sites: Sites) -> Iterator[None]:
    """Note where nodes are recorded, under their ids. An id is good as long as its node lives."""
    watched: Any = Node
    with _lock:
        observers.append(sites)
        watched.scalars = property(_scalars.__get__, _note)
    try:
        yield
    finally:
        with _lock:
            observers[:] = filter(partial(is_not, sites), observers)
            if not observers:
                watched.scalars = _scalars


def _note(node: Node, scalars: tuple[int, ...]) -> None:
    _scalars.__set__(node, scalars)
    call_site = errors.user_call_site()
    for sites in observers:
        sites[id(node)] = call_site
