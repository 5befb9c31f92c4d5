"""An edit of a file of kernels is seen by the machine code that has parts of it inside, and by no other."""

import ast
import inspect
import shutil

import pytest
from adjit.kernels.ops import fill

from adjit.schedule.codegen.body import written_text
from adjit.schedule.jit import cache, kernel_files

MODULES = sorted(
    ".".join(path.relative_to(kernel_files.FOLDER).with_suffix("").parts)
    for path in kernel_files.FOLDER.rglob("*.py")
    if path.stem != "__init__"
)


def imported_by_syntax(module):
    """The modules that one imports, as Python's own parser finds them."""
    found, package = set(), module.split(".")[:-1]
    for node in ast.walk(ast.parse(kernel_files.text_of(module))):
        if isinstance(node, ast.ImportFrom) and node.level:
            home = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            name = ".".join(filter(None, home))
            found |= {name, *(f"{name}.{alias.name}" for alias in node.names)}
    return found & set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_imports_are_those_that_python_finds(module):
    found = kernel_files.imported(kernel_files.text_of(module), module)
    assert found == imported_by_syntax(module)


def test_texts_of_kernels_are_read_too():
    text = """
from adjit.kernels.language.abi import at, words
from adjit.kernels.math import (
    integer,
    vector as vector_math,
)
from numpy import float32
"""
    found = kernel_files.imported(text)
    assert found == {"language.abi", "math.integer", "math.vector"}


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """A function that edits a file of a copy of the kernels."""
    folder = tmp_path / "kernels"
    shutil.copytree(kernel_files.FOLDER, folder)
    monkeypatch.setattr(kernel_files, "FOLDER", folder)
    caches = [f for f in vars(kernel_files).values() if hasattr(f, "cache_clear")]

    def forget():
        for cached in caches:
            cached.cache_clear()

    def edited(module):
        path = folder.joinpath(*module.split(".")).with_suffix(".py")
        path.write_text(path.read_text() + "\n# edited\n")
        forget()

    forget()
    yield edited
    forget()


@pytest.mark.parametrize(
    ("edited", "seen"),
    [
        ("ops.norm", {"ops.norm"}),
        ("ops.gemm_tile", {"ops.matmul", "ops.conv"}),
        ("math.constants_f32", {"math.vector"}),
        ("language.abi", {"ops.norm", "ops.matmul", "ops.conv", "fastpath.settle"}),
        ("fastpath.cpython", {"fastpath.settle"}),
    ],
)
def test_an_edit_is_seen_where_it_is_inside_and_only_there(edit, edited, seen):
    looked_at = ["ops.norm", "ops.matmul", "ops.conv", "math.vector", "fastpath.settle"]
    before = {module: kernel_files.digest_of([module]) for module in looked_at}
    edit(edited)
    changed = {m for m, digest in before.items() if kernel_files.digest_of([m]) != digest}
    assert changed == seen


def test_kernels_are_read_without_asking_functions_that_others_replace(monkeypatch):
    """As PyTorch replaces `inspect.getfile`: in a call that is watched such code would be the user's."""
    for name in ("getfile", "getmodule", "getsourcefile"):
        monkeypatch.setattr(inspect, name, None)
    source = cache._instantiate(fill.constant_float, {"T": "float32"})
    assert "def constant_float(" in source.text
    assert written_text(fill.constant_float).startswith(("@kernel", "def "))
