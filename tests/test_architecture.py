"""The rooms: imports point one way, and `import adjit` stays small."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from adjit.schedule.jit import kernel_files

SOURCE = Path(__file__).parent.parent / "src" / "adjit"
KERNELS = SOURCE.parent.parent / "kernels"

# A room may import itself, the leaf modules, and the rooms named here.
LEAVES = {
    "absent", "atomic", "config", "cublas", "devices", "driver", "dtypes", "errors", "gpu", "heap_types",
    "locks", "printing", "shapes", "storage",
}  # fmt: skip
MAY_IMPORT = {
    "schedule": {"kernels"},
    "graph": {"schedule", "kernels"},
    "tensor": {"graph", "schedule"},
    "ops": {"graph", "schedule", "kernels", "tensor", "random"},
    "random": {"graph", "ops", "schedule", "tensor"},
    "autograd": {"graph", "schedule", "ops", "tensor", "tables"},
    "captured": {"graph", "schedule", "ops", "tensor", "autograd", "optim", "random"},
    "nn": {"graph", "ops", "tensor", "autograd", "captured", "random"},
    "optim": {"graph", "ops", "tensor", "autograd", "captured", "random"},
    "utils": {"graph", "ops", "tensor", "autograd", "random"},
    "serialization": {"graph", "ops", "tensor", "nn"},
    "distributions": {"ops", "tensor", "autograd", "nn"},
    "models": {"nn", "tensor", "serialization"},
}


def files_of_the_library():
    """Every file by the name of its module."""
    found = {}
    for folder, package in ((SOURCE, "adjit"), (KERNELS, "adjit.kernels")):
        for path in folder.rglob("*.py"):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


FILES = files_of_the_library()


def imported_files(module):
    """The files that one imports, late and for its annotations too."""
    found, path = set(), FILES[module]
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            home = package.split(".")[: package.count(".") + 2 - node.level]
            base = ".".join([*home, *([node.module] if node.module else [])])
            found |= {name if (name := f"{base}.{a.name}") in FILES else base for a in node.names}
    return found - {module}


def test_no_files_import_each_other_in_a_circle():
    left = {module: imported_files(module) for module in FILES}
    while free := {module for module, needed in left.items() if not needed & left.keys()}:
        left = {module: needed for module, needed in left.items() if module not in free}
    assert left == {}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_point_one_way(room):
    allowed = {room} | LEAVES | MAY_IMPORT[room]
    for module in FILES:
        if module.split(".")[1:2] == [room]:
            rooms = {name.split(".")[1] for name in imported_files(module) if name != "adjit"}
            assert rooms <= allowed, module


# PyTorch has both: `torch.device` and `torch.cuda.device`.
NAMED_TWICE = {"device"}


def test_no_two_classes_have_one_name():
    """So that a search finds one thing."""
    found = {}
    for module, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(f"{module}:{node.lineno}")
    twice = {name: where for name, where in found.items() if len(where) > 1}
    assert twice.keys() == NAMED_TWICE, twice


def test_leaf_modules_import_only_leaves():
    for leaf in LEAVES:
        rooms = {name.split(".")[1] for name in imported_files(f"adjit.{leaf}") if name != "adjit"}
        assert rooms <= LEAVES, leaf


def test_only_its_module_sets_the_switch_for_gradients():
    """Machine code relies on `record_gradients`, which counts the threads that have it off."""
    setting = re.compile(r"\b(state|switches)\.grad\b[^=\n:]*=(?!=)")
    found = [path for path in SOURCE.rglob("*.py") if setting.search(path.read_text())]
    assert found == [SOURCE / "graph" / "state.py"]


# A folder of kernels may import itself and those named here.
KERNELS_MAY_IMPORT = {
    "language": set(),
    "math": {"language"},
    "ops": {"language", "math"},
    "on_gpu": {"language", "ops"},
    "runtime": {"language"},
    "fastpath": {"language", "runtime"},
}


def test_kernels_import_each_other_one_way_and_nothing_from_the_library():
    assert {path.name for path in KERNELS.iterdir() if path.is_dir()} >= {*KERNELS_MAY_IMPORT}
    for path in KERNELS.rglob("*.py"):
        module = ".".join(path.relative_to(KERNELS).with_suffix("").parts)
        room = module.split(".")[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                where = f"{module}:{node.lineno}"
                assert not (node.module or "").startswith("adjit"), where
                assert node.level <= module.count(".") + 1, where
        for other in kernel_files.imported(path.read_text(), module):
            assert other.split(".")[0] in {room, *KERNELS_MAY_IMPORT.get(room, ())}, (module, other)


def test_import_loads_only_the_dependencies():
    code = (
        "import sys, adjit; "
        "print(*sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in found.stdout.split() if not name.startswith("_")}
    allowed = {"adjit", "numba", "llvmlite", "numpy", "scipy", "typing_extensions", "sitecustomize",
               "cython_runtime"}  # fmt: skip
    assert {n for n in loaded if not n.startswith("__editable__")} <= allowed


def test_import_compiles_nothing(tmp_path):
    code = "import adjit; from adjit.schedule.jit import cache, disk; print(len(cache._linked), disk.size()[0])"
    import os

    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=os.environ | {"ADJIT_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert found.stdout.split() == ["0", "0"]


@pytest.mark.parametrize(
    ("before", "after"),
    [("pass", "True False"), ("gc.disable()", "False False"), ("gc.freeze()", "True True")],
)
def test_import_leaves_the_collector_as_it_was(before, after):
    code = f"import gc; {before}; import adjit; print(gc.isenabled(), gc.get_freeze_count() > 0)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == after
