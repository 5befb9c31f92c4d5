"""The examples in the docstrings of `adjit.nn` show what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest

import adjit


@pytest.mark.parametrize(
    "room",
    ["activation", "container", "conv", "functional", "init", "layers", "loss", "module", "norm",
     "padding", "parameter", "pooling", "resizing", "utils"],
)  # fmt: skip
def test_examples(room: str) -> None:
    names = {"adjit": adjit, "nn": adjit.nn, "F": adjit.nn.functional}
    failed, attempted = doctest.testmod(
        importlib.import_module(f"adjit.nn.{room}"), extraglobs=names
    )
    assert attempted
    assert not failed
