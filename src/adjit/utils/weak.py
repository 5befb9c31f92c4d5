"""Dictionaries by objects themselves, which do not live on by that: PyTorch's `torch.utils.weak`."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

__all__ = [
    "TensorWeakRef",
    "WeakIdKeyDictionary",
    "WeakIdRef",
    "WeakRef",
    "WeakTensorKeyDictionary",
]

WeakRef = TensorWeakRef = weakref.ref


class WeakIdRef(weakref.ref[Any]):
    """A weak reference that equals others to the same object, and none when that is gone but itself.

    Args:
        key: an object.
        callback: called with the reference when the object goes.

    Example:
        >>> from adjit.utils.weak import WeakIdRef
        >>> x, y = adjit.ones(2), adjit.ones(2)
        >>> WeakIdRef(x) == WeakIdRef(x), WeakIdRef(x) == WeakIdRef(y)
        (True, False)
    """

    __slots__ = ("_id",)
    _id: int

    def __init__(self, key: Any, callback: Callable[[Any], Any] | None = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeakIdRef):
            return False
        mine, its = self(), other()
        return self is other if mine is None or its is None else mine is its

    def __ne__(self, other: object) -> bool:
        return not self == other


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dictionary by objects themselves: an entry goes with its key. Tensors can be keys, which `==` compares
    by elements.

    Args:
        dict: a mapping to begin with.
        ref_type: the class of the references that are kept.

    Example:
        >>> from adjit.utils.weak import WeakIdKeyDictionary
        >>> names = WeakIdKeyDictionary()
        >>> x = adjit.ones(2)
        >>> names[x] = "x"
        >>> names[x], adjit.ones(2) in names, len(names)
        ('x', False, 1)
        >>> del x
        >>> len(names)
        0
    """

    def __init__(
        self, dict: Mapping[Any, Any] | None = None, ref_type: type[Any] = WeakIdRef
    ) -> None:
        self.data: MutableMapping[Any, Any] = {}
        self.ref_type = ref_type
        this = weakref.ref(self)

        def remove(reference: Any) -> None:
            found = this()
            if found is not None:
                found.data.pop(reference, None)

        self._remove = remove
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._remove)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # nothing that a weak reference can be to
            return False

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        for reference in [*self.data]:  # others may go meanwhile
            key = reference()
            if key is not None:
                yield key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        mine, its = ({id(key): value for key, value in m.items()} for m in (self, other))
        return mine == its

    __hash__ = None  # type: ignore[assignment]

    def keyrefs(self) -> list[Any]:
        """The references to the keys, some of which may be gone.

        Example:
            >>> from adjit.utils.weak import WeakIdKeyDictionary
            >>> x = adjit.ones(1)
            >>> [reference() is x for reference in WeakIdKeyDictionary({x: 1}).keyrefs()]
            [True]
        """
        return list(self.data)

    def copy(self) -> WeakIdKeyDictionary:
        """Another one with the same entries.

        Example:
            >>> from adjit.utils.weak import WeakIdKeyDictionary
            >>> x = adjit.ones(1)
            >>> WeakIdKeyDictionary({x: 1}).copy()[x]
            1
        """
        return type(self)(self, self.ref_type)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> WeakIdKeyDictionary:
        made = type(self)(None, self.ref_type)
        for key, value in self.items():
            made[key] = copy.deepcopy(value, memo)
        return made

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, Mapping):
            return NotImplemented
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> Any:
        if not isinstance(other, Mapping):
            return NotImplemented
        made = type(self)(other, self.ref_type)
        made.update(self)
        return made

    def __ior__(self, other: Any) -> WeakIdKeyDictionary:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"


WeakTensorKeyDictionary = WeakIdKeyDictionary
