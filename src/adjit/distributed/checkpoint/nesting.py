"""Nested dicts and lists as one dict of dotted names, and values put back along their paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from ...graph import record

Path = tuple[str | int, ...]


def flatten(state: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Path]]:
    """The values of nested dicts by dotted name, and the path behind each name.

    Lists are entered if they hold a tensor or a dict somewhere; tuples are values.

    Raises:
        ValueError: if two values have one name.
    """
    values: dict[str, Any] = {}
    paths: dict[str, Path] = {}

    def put(path: Path, value: Any) -> None:
        name = ".".join(map(str, path))
        if name in values:
            raise ValueError(f"duplicated flatten key {name}")
        values[name], paths[name] = value, path

    for key, value in state.items():
        _visit((str(key),), value, put)
    return values, paths


def _visit(path: Path, value: Any, put: Callable[[Path, Any], None]) -> None:
    if isinstance(value, Mapping):
        for key, part in value.items():
            _visit((*path, str(key)), part, put)
    elif isinstance(value, list) and any(map(_is_entered, value)):
        for number, part in enumerate(value):
            _visit((*path, number), part, put)
    else:
        put(path, value)


def _is_entered(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_entered, value))
    return record.is_tensor(value) or isinstance(value, Mapping)


def put_at(root: Any, path: Path, value: Any) -> None:
    """Put a value in its place among nested dicts and lists; those that are missing are made."""
    at = root
    for part, following in pairwise(path):
        place = _room_for(at, part)
        inner = at.get(place) if isinstance(at, Mapping) else at[place]
        if inner is None:
            inner = at[place] = {} if isinstance(following, str) else []
        at = inner
    at[_room_for(at, path[-1])] = value


def _room_for(container: Any, part: str | int) -> Any:
    """The key or index of a part of a path; names stand for keys that are no strings too."""
    if not isinstance(container, Mapping):
        container.extend([None] * (int(part) + 1 - len(container)))
        return part
    if part in container:
        return part
    return next((key for key in container if str(key) == part), part)
