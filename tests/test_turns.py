"""A run of the suite takes its share of the long tables, and runs in a row take all of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import those_whose_turn_it_is


def item(test: str, case: int, one_of: int | None) -> Any:
    marker = one_of and pytest.mark.in_turn(one_of).mark
    return SimpleNamespace(
        path=Path("test_some.py"), originalname=test, case=case, get_closest_marker=lambda _: marker
    )


def test_turns_share_all_cases_out() -> None:
    usual = [item("test_usual", k, None) for k in range(3)]
    long = [item("test_long", k, 4) for k in range(10)]
    other = [item("test_other", k, 2) for k in range(5)]
    items = [*long[:5], *usual, *other, *long[5:]]
    turns = [those_whose_turn_it_is(items, turn) for turn in range(7, 11)]
    taken = [one.case for turn in turns for one in turn if one in long]
    assert sorted(taken) == list(range(10))
    for turn in turns:
        assert [one for one in turn if one in usual] == usual
        assert 2 <= len([one for one in turn if one in long]) <= 3
        assert 2 <= len([one for one in turn if one in other]) <= 3
        assert turn == [one for one in items if one in turn]
