"""The table of what PyTorch has and adjit has not: complete, true, and told by errors."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import adjit
from adjit.absent import SUBJECTS

NAMES = [(s, name) for s in SUBJECTS for name in s.names.split()]
ROOMS = ["nn.functional", "optim", "linalg", "special"]
# What PyTorch's own modules share among themselves, and what is no function of a user.
INTERNAL = re.compile(
    r"_.*|assert_int_or_pair|boolean_dispatch|conv_tbc|grouped_mm|handle_torch_function"
    r"|has_torch_function.*|scaled(_grouped)?_mm|native_channel_shuffle|swap_in_.*|LinAlgError|[A-Z]\w*Type"
    r"|Optional"
)


def room_of(name: str) -> tuple[str, str]:
    """The module of an entry, and the name in it."""
    room, _, last = name.rpartition(".")
    return room, last


@pytest.mark.parametrize(("subject", "name"), NAMES, ids=[name for _, name in NAMES])
def test_an_error_says_what_to_do_instead(subject, name):
    room, last = room_of(name)
    module = importlib.import_module(f"adjit.{room}" if room else "adjit")
    with pytest.raises(AttributeError) as caught:
        getattr(module, last)
    assert f"has no attribute '{last}'" in str(caught.value)
    assert str(caught.value).endswith(subject.instead)


def test_no_name_has_two_subjects():
    names = [name for _, name in NAMES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_of_pytorch_is_there_or_in_the_table(room):
    torch = pytest.importorskip("torch")
    theirs, ours = torch, adjit
    for part in room.split("."):
        theirs, ours = getattr(theirs, part), getattr(ours, part)
    listed = {name for _, name in NAMES}
    public = getattr(theirs, "__all__", None) or dir(theirs)
    missing = [
        name
        for name in public
        if callable(getattr(theirs, name, None))
        and not INTERNAL.fullmatch(name)
        and not hasattr(ours, name)
        and f"{room}.{name}" not in listed
    ]
    assert missing == []


def test_the_readme_has_every_subject():
    text = (Path(__file__).parents[1] / "README.md").read_text()
    listed = re.findall(r"^  - (.+?)(?: \(|$)", text.split("## What is not supported")[1], re.M)
    assert listed == [subject.title for subject in SUBJECTS]


def test_a_slip_of_the_keyboard_is_told_as_such():
    with pytest.raises(AttributeError, match=r"^module 'adjit' has no attribute 'sinn'$"):
        adjit.sinn  # noqa: B018
