"""The table of what PyTorch has and adjit has not: complete, true, and told by errors."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import adjit
from adjit.absent import KNOWN, METHODS, OTHER_SUBJECTS, SUBJECTS

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


def module_of(room: str, library: str = "adjit") -> object:
    """The module of a name; none is the library's own."""
    return importlib.import_module(f"{library}.{room}".rstrip("."))


@pytest.mark.parametrize(("subject", "name"), NAMES, ids=[name for _, name in NAMES])
def test_an_error_says_what_to_do_instead(subject, name):
    room, last = room_of(name)
    with pytest.raises(AttributeError) as caught:
        getattr(module_of(room), last)
    assert f"has no attribute '{last}'" in str(caught.value)
    assert str(caught.value).endswith(subject.instead)


INSTEAD = {subject.title: subject.instead for subject in SUBJECTS} | OTHER_SUBJECTS
BY_NAME = [(title, name) for title, names in KNOWN.items() for name in names.split()]


@pytest.mark.parametrize(("title", "name"), BY_NAME, ids=[name for _, name in BY_NAME])
def test_what_is_there_by_name_only_is_nothing_and_does_nothing(title, name):
    room, last = room_of(name)
    found = getattr(module_of(room), last)
    assert found is getattr(module_of(room), last)
    assert (found.__module__, found.__qualname__) == (f"adjit.{room}".rstrip("."), last)
    with pytest.raises(
        NotImplementedError, match=rf"^adjit\.{name} is there by name only\. "
    ) as caught:
        found(adjit.ones(2))
    assert str(caught.value).endswith(INSTEAD[title])
    if last.lstrip("_")[0].isupper():
        assert not isinstance(adjit.ones(2), found)
        with pytest.raises(NotImplementedError):
            type("Mine", (found,), {})()


@pytest.mark.parametrize("name", [name for _, name in BY_NAME])
def test_what_is_there_by_name_only_is_pytorchs(name):
    pytest.importorskip("torch")
    room, last = room_of(name)
    theirs = getattr(module_of(room, "torch"), last)
    assert isinstance(theirs, type) == last.lstrip("_")[0].isupper()


def test_a_module_of_names_only_has_no_others():
    told = "use adjit.compile, and adjit.distributed with DistributedDataParallel"
    for room in ("fsdp", "tensor", "checkpoint.hf_storage"):
        module = importlib.import_module(f"adjit.distributed.{room}")
        with pytest.raises(AttributeError, match=rf"has no attribute 'save'\. .*{told}$"):
            module.save  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match=rf"^No module named '[a-z._]+'\. .*{told}$"):
        importlib.import_module("adjit.distributed.checkpoint.quantized_hf_storage")


def test_quantised_models_are_refused_when_they_are_made():
    told = "use dense float32 or float64 tensors"
    for room in ("quantization", "quantization.observer", "ao.quantization", "nn.quantized"):
        module = importlib.import_module(f"adjit.{room}")
        with pytest.raises(AttributeError, match=rf"has no attribute 'zork'\. .*{told}$"):
            module.zork  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match=rf"^No module named '[a-z._]+'\. .*{told}$"):
        importlib.import_module("adjit.ao.nn.quantized")
    with pytest.raises(NotImplementedError, match=told):
        adjit.quantization.QuantStub()


def test_no_name_has_two_subjects():
    names = [name for _, name in [*NAMES, *BY_NAME]]
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


MISSING = [(title, name) for title, names in METHODS.items() for name in names.split()]


@pytest.mark.parametrize(("title", "name"), MISSING, ids=[name for _, name in MISSING])
def test_the_error_of_a_missing_method_says_what_to_do_instead(title, name):
    x = adjit.ones(2)
    with pytest.raises(AttributeError) as caught:
        getattr(x, name)
    assert str(caught.value).startswith(f"'Tensor' object has no attribute '{name}'. {title}: ")
    assert str(caught.value).endswith(INSTEAD[title])
    assert (caught.value.name, caught.value.obj) == (name, x)
    assert not hasattr(x, name)
    assert not hasattr(adjit.Tensor, name)
    assert getattr(x, name, None) is None
    assert name not in dir(x)


def test_every_method_of_pytorch_is_there_or_in_the_table():
    torch = pytest.importorskip("torch")
    listed = [name for _, name in MISSING]
    assert len(set(listed)) == len(listed)
    public = {name for name in dir(torch.Tensor) if not name.startswith("_")}
    assert {name for name in public if not hasattr(adjit.Tensor, name)} == {
        name for name in listed if name[0] != "_"
    }


def test_what_a_user_names_as_a_missing_method_is_found():
    class Named(adjit.Tensor):
        values = "mine"

    x = adjit.ones(2)
    x.name = "weights"
    assert x.name == "weights"
    assert x.as_subclass(Named).values == "mine"
    with pytest.raises(
        AttributeError, match=r"^'Parameter' object has no attribute 'svd'\. Decomp"
    ):
        adjit.nn.Parameter(x).svd()
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'sinn'$"):
        x.sinn()


def test_a_slip_of_the_keyboard_is_told_as_such():
    with pytest.raises(AttributeError, match=r"^module 'adjit' has no attribute 'sinn'$"):
        adjit.sinn  # noqa: B018


# ----- what programs use -----

# The names of PyTorch that two or more of 92 public repositories use, without those of dtypes, devices and
# processes that are other subjects.
USED = (Path(__file__).parent / "names_of_programs.txt").read_text().split()
REFUSED = {name for _, name in NAMES} | {f"Tensor.{name}" for _, name in MISSING}


def found(name: str) -> object:
    """What a dotted name stands for, as a program comes to it by attributes and imports."""
    at: object = adjit
    for part in name.replace("Module.", "nn.Module.", name.startswith("Module.")).split("."):
        try:
            at = getattr(at, part)
        except AttributeError:
            if not hasattr(at, "__path__"):
                raise
            at = importlib.import_module(f"{at.__name__}.{part}")
    return at


@pytest.mark.parametrize("name", USED)
def test_a_name_that_programs_use_is_there_or_refused_with_a_reason(name):
    parts = name.split(".")
    if REFUSED.isdisjoint(".".join(parts[:n]) for n in range(1, len(parts) + 1)):
        found(name)
    else:
        with pytest.raises(
            (AttributeError, ImportError), match="adjit has not all that PyTorch has"
        ):
            found(name)


@pytest.mark.parametrize("name", ["package", "export", "classes"])
def test_the_error_of_an_import_says_what_to_do_instead(name):
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'adjit\.\S+'\. ") as caught:
        importlib.import_module(f"adjit.{name}")
    assert caught.value.name == f"adjit.{name}"
    assert "adjit has not all that PyTorch has; " in str(caught.value)


def test_a_module_that_nobody_has_is_not_found_as_usual():
    for name in ("adjit.nonsense", "nonsense.fx"):
        with pytest.raises(ModuleNotFoundError, match=r"^No module named '[a-z.]+'$"):
            importlib.import_module(name)


def test_extensions_are_imported_and_refused_when_they_are_built():
    from adjit.utils.cpp_extension import load

    with pytest.raises(
        NotImplementedError, match="adjit has not all that PyTorch has; write an adjit"
    ):
        load(name="ops", sources=["ops.cpp"])
