"""The rooms: imports point one way, and `import adjit` stays small."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from adjit.schedule.jit import kernel_files

SOURCE = Path(__file__).parent.parent / "src" / "adjit"
KERNELS = SOURCE.parent.parent / "kernels"

# A room may import itself, the leaf modules, and the rooms named here.
LEAVES = {
    "absent", "atomic", "config", "cublas", "devices", "driver", "dtypes", "errors", "formats", "gpu",
    "heap_types", "locks", "printing", "shapes", "storage", "unknown", "version",
}  # fmt: skip
MAY_IMPORT = {
    "_higher_order_ops": {"func", "graph", "ops", "tensor", "utils"},
    "amp": {"autograd", "ops", "tensor"},
    "schedule": {"kernels"},
    "graph": {"schedule", "kernels"},
    "tensor": {"graph", "schedule"},
    "ops": {"graph", "schedule", "kernels", "tensor", "random"},
    "random": {"graph", "ops", "schedule", "tensor"},
    "tracers": {"graph", "ops", "tensor"},
    "autograd": {"graph", "schedule", "ops", "tensor", "tables", "tracers"},
    "func": {"graph", "ops", "schedule", "tensor", "autograd", "tracers", "utils", "nn", "random"},
    "captured": {"graph", "schedule", "ops", "tensor", "autograd", "optim", "random"},
    "nn": {"graph", "ops", "tensor", "tracers", "autograd", "captured", "random", "distributed"},
    "optim": {"graph", "ops", "tensor", "autograd", "captured", "nn", "random"},
    "utils": {"graph", "ops", "schedule", "tables", "tensor", "autograd", "nn", "random"}
    | {"captured", "overrides", "distributed"},
    "serialization": {"graph", "ops", "tensor", "nn"},
    "distributed": {"paths", "cuda", "graph", "ops", "schedule", "tensor", "autograd", "optim"}
    | {"futures", "nn", "serialization", "utils"},
    "multiprocessing": {"graph", "ops"},
    "distributions": {"ops", "tensor", "autograd", "nn"},
    "models": {"nn", "tensor", "serialization"},
    "fx": {"paths", "names", "nn", "overrides", "tensor"},
    "jit": {"nn"},
    "onnx": {"autograd", "nn", "ops", "overrides", "paths", "tensor"},
    "packing": {"graph", "nn", "schedule", "kernels"},
    "user_kernels": {"autograd", "graph", "kernels", "ops", "schedule", "tensor", "tracers"},
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


# PyTorch has both `torch.device` and `torch.cuda.device`; its `autograd.graph.Node` is a backward function.
# `fx` has nodes and tracers of its own, and a `Transformer`. `nn.utils.prune.Identity` prunes nothing.
# `distributed.GroupMember` says which processes are meant. A `SavePlan` is one of checkpoints, in PyTorch's
# words, and one of what a node saves for backward. Streams and their events are of `cuda` and of `cpu`.
NAMED_TWICE = {
    "GradScaler", "autocast", "device", "Node", "Identity", "GroupMember", "Tracer", "Transformer", "SavePlan",
    "Stream", "StreamContext", "Event",
}  # fmt: skip


def test_no_two_classes_have_one_name():
    """So that a search finds one thing."""
    found = {}
    for module, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(f"{module}:{node.lineno}")
    twice = {name: where for name, where in found.items() if len(where) > 1}
    assert twice.keys() == NAMED_TWICE, twice


# Where `Any` stands in graph/, and what it means there: an object of the user's, a kernel, or a tensor on its
# way to the room that has its class. Everything else has a type that says what it is.
ANY_IN_GRAPH = {
    "call_sites": {"watched": "the class with a property in the place of a slot"},
    "copies": {"on_copied_memory": "the memo of copy.deepcopy"},
    "elementwise": {
        "Scalar": "the text of kernels", "Reference": "a function of NumPy", "saved_value": "of the user's",
    },
    "export": {"Function": "called with objects of the user's", "export": "a decorator of those"},
    "fastpath": {"Key": "of a table that only machine code looks into", "Fallback": "any function"},
    "copy_slices": {"saved_value": "of the user's"},
    "launch": {"Kernel": "a function of the kernels room", "launch": "the arguments of `recipe_of`"},
    "node": {
        "Hook": "of the user's", "metadata": "of the user's", "saved_value": "of the user's",
        "saved": "tensors and versions, or what the user's function keeps", "__getattr__": "of the op table",
        "__init__": "hooks of the user's", "NewTensor": "a tensor for the room above",
    },
    "op_record": {"Pick": "picks of any tuple"},
    "operation": {"__get__": "the op, or that bound to an object", "saved_value": "of the user's"},
    "primitives": {"Array": "an array of any shape and dtype"},
    "record": {
        "tensor_classes": "classes of the user's", "is_tensor": "of the user's",
        "plain_number": "of the user's",
    },
    "registry": {
        "__call__": "of the user's", "__getattr__": "of SciPy", "call": "of SciPy", "reference": "of SciPy",
    },
    "saved": {"saved_value": "of the user's"},
    "signature": {"Argument": "of the user's"},
    "state": {"SavingHooks": "of the user's"},
    "straight": {"saved_value": "of the user's"},
    "trace": {"Results": "tensors for the room above"},
    "view": {"saved_value": "of the user's"},
}  # fmt: skip


def uses_of_any(path):
    """The names of what is annotated with `Any`, or is another name for a type with it."""
    found = set()

    def look(node, name):
        if isinstance(node, ast.Name) and node.id == "Any":
            found.add(name)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for part in (node.args, node.returns, *node.decorator_list):
                if part is not None:
                    look(part, node.name)
            for part in node.body:
                look(part, name)
            return
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = getattr(target, "id", getattr(target, "attr", name))
        for child in ast.iter_child_nodes(node):
            look(child, name)

    look(ast.parse(path.read_text()), "")
    return found


def test_any_is_where_it_is_meant():
    found = {path.stem: uses_of_any(path) for path in (SOURCE / "graph").glob("*.py")}
    assert {file: names for file, names in found.items() if names} == {
        file: set(reasons) for file, reasons in ANY_IN_GRAPH.items()
    }


MOST_FIELDS = 13
LARGER = {
    "Runtime": "one tuple, as machine code is handed it",
    "Elementwise": "an op, with the names that Python and PyTorch give a function",
}


def fields_of(cls):
    """The fields that a class declares as slots or by their types, or else those that `__init__` sets."""
    declared, are_set = set(), set()
    for node in cls.body:
        if isinstance(node, ast.AnnAssign):
            declared.add(node.target.id)
        elif isinstance(node, ast.Assign) and node.targets[0].id == "__slots__":
            declared |= {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            parts = [part for part in ast.walk(node) if isinstance(part, ast.Attribute)]
            are_set |= {part.attr for part in parts if isinstance(part.ctx, ast.Store)}
    return declared or are_set


def test_no_class_has_fields_of_several_ideas():
    large = set()
    for path in [*(SOURCE / "graph").glob("*.py"), SOURCE / "schedule" / "planning" / "recipe.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and len(fields_of(node)) > MOST_FIELDS:
                large.add(node.name)
    assert large == LARGER.keys()


def test_every_kind_of_backward_node_has_a_context_of_its_own():
    """`GradNode.context` is of a class that says what it is; the classes are those that its text names."""
    found, text = set(), ""
    for path in FILES.values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                if any(getattr(base, "id", None) == "GradContext" for base in node.bases):
                    found.add(node.name)
                if node.name == "GradContext":
                    text = ast.get_docstring(node)
    assert found == set(re.findall(r"`(\w+)`", text))


IS_BARE = re.compile(
    r"__class__ is (?:not )?Node\b|isinstance\(\w+, Node\)"
    r"|class_of\(\w+\) [!=]= item\(runtime, RUNTIME_NODE_CLASS\)"
)


def test_only_one_function_tells_a_bare_gradient_from_a_tensor():
    """One in Python and one in machine code."""
    # Nodes of `fx` are steps of a program, and no gradients.
    files = {module: path for module, path in FILES.items() if ".fx." not in module}
    found = [module for module, path in files.items() for _ in IS_BARE.findall(path.read_text())]
    assert sorted(found) == ["adjit.graph.node", "adjit.kernels.fastpath.tensors"]


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


def test_import_leaves_alone_what_few_programs_need():
    code = "import sys, adjit; print([m for m in sys.argv[1:] if m in sys.modules])"
    late = ["scipy.sparse", "scipy.special", "scipy.optimize", "adjit.distributions", "adjit.scipy"]
    found = subprocess.run(
        [sys.executable, "-c", code, *late], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_import_compiles_nothing(tmp_path):
    code = "import adjit; from adjit.schedule.jit import cache, disk; print(len(cache._linked), disk.size()[0])"
    import os

    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=os.environ | {"ADJIT_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert found.stdout.split() == ["0", "0"]


def test_nobody_holds_all_objects():
    """Among them are tuples that other threads are filling, which fails then, with a SystemError."""
    calls = [
        n
        for path in FILES.values()
        for n in ast.walk(ast.parse(path.read_text()))
        if isinstance(n, ast.Call)
    ]
    assert "gc.get_objects" not in {ast.unparse(call.func) for call in calls}


@pytest.mark.parametrize(
    ("before", "enabled", "frozen"),
    [
        ("pass", True, "many"),
        ("gc.disable()", False, "as many"),
        ("gc.freeze(); x = [[] for _ in range(2000)]; gc.freeze()", True, "as many"),
        ("x = [[] for _ in range(100_000)]", True, "as many"),
    ],
)
def test_import_leaves_the_collector_as_it_was(before, enabled, frozen):
    """But for what it has made itself, unless a program decides what is frozen or has much of its own."""
    code = f"import gc; {before}; before = gc.get_freeze_count(); import adjit; "
    code += "made = gc.get_freeze_count() - before; "
    code += "print(gc.isenabled(), 'many' if made > 30_000 else 'as many')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == f"{enabled} {frozen}"


def test_an_installation_has_all_packages():
    project = tomllib.loads((KERNELS.parent / "pyproject.toml").read_text())
    found = {
        ".".join([name, *file.parent.relative_to(folder).parts])
        for name, folder in {"adjit": SOURCE, "adjit.kernels": KERNELS}.items()
        for file in folder.rglob("__init__.py")
    }
    assert found == set(project["tool"]["setuptools"]["packages"])
