"""Machine code finds fields, slots and numbers by their names; one that is gone is an error at load."""

import ast
import re
from typing import NamedTuple

import pytest

from adjit.autograd import engine
from adjit.graph import fastpath, trace
from adjit.graph.state import State
from adjit.schedule import plan_cache
from adjit.schedule import settle as scheduling
from adjit.schedule.jit import kernel_files, native

pytestmark = pytest.mark.skipif(not native.is_supported, reason="another interpreter")

FILES = sorted((kernel_files.FOLDER / "fastpath").glob("*.py"))
MODULES = [f"fastpath.{path.stem}" for path in FILES]


@pytest.fixture(scope="module", autouse=True)
def every_family():
    """Also those that are made when they are asked for first."""
    trace.recorded()
    fastpath.elementwise_recorder()


def test_all_machine_code_can_be_loaded():
    for family in native.families:
        assert family.load(compiling=True), (family.module, family.name)


@pytest.mark.parametrize("module", MODULES)
def test_all_that_machine_code_leaves_open_is_bound(module):
    names, opened = {}, native.opened(kernel_files.text_of(module))
    text = native._bound(module)
    exec(compile(text, module, "exec"), names)
    assert {name: names[name] for name in opened} == {n: native.constants[n] for n in opened}


@pytest.mark.parametrize("module", MODULES)
def test_machine_code_opens_the_names_that_it_uses(module):
    """All of them and no others, so that a search for a field finds who reads it."""
    tree = ast.parse(kernel_files.text_of(module))
    used = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    imported = {alias.name for node in imports for alias in node.names}
    assert native.opened(kernel_files.text_of(module)) <= used
    assert not imported & native.constants.keys()


@pytest.mark.parametrize("module", MODULES)
def test_machine_code_counts_no_fields(module):
    """A list of numbered names is for words that machine code alone reads and writes."""
    own = {"fastpath.elementwise": ["CALL_OP_RECORD"], "fastpath.graph_key": ["VALUE"]}
    found = re.findall(
        r"^\(?([A-Z_0-9]+),[A-Z_0-9, \n]*\)? = range\(", kernel_files.text_of(module), re.M
    )
    assert found == own.get(module, [])


def test_every_function_of_machine_code_is_called_by_somebody():
    found = set()
    for module in MODULES:
        for node in ast.parse(kernel_files.text_of(module)).body:
            if not isinstance(node, ast.FunctionDef) or node.decorator_list:
                continue
            if [arg.arg for arg in node.args.args][1:] == ["arguments", "count", "names"]:
                found.add((module.removeprefix("fastpath."), node.name))
    made = {(family.module, family.name) for family in native.families}
    assert found == {each for each in made if each[0] != "freelists"}


BREAKS = {
    "a field of what all functions get": ("RUNTIME_PENDING", "tensors", "elementwise"),
    "a field of a context": ("BACKWARD_UNBROADCAST_TRACES", "backward", "backward"),
    "a field of a plan's table": ("TABLE_PLACES_AT", "plans", "plans"),
    "a slot": ("NODE_OTHERS", "dispatch", "dispatch"),
    "a parameter": ("ADVANCE_SUMS", "backward", "backward"),
    "a number": ("PASSED", "backward", "backward"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_name_that_is_gone_is_an_error_at_load(name, monkeypatch):
    constant, module, _ = BREAKS[name]
    monkeypatch.delitem(native.constants, constant)
    wanted = rf"^kernels/fastpath/{module}\.py wants {constant}, which `native\.register_layout` was not told$"
    with pytest.raises(NameError, match=wanted):
        native._bound(f"fastpath.{module}")
    for family in native.families:
        if family.module == BREAKS[name][2]:
            with pytest.raises(NameError, match=constant):
                family.load(compiling=False)


@pytest.mark.parametrize(
    "left",
    [
        "NODE_INPUTS = NODE_OTHERS = (\n    BOUND\n)", "NODE_INPUTS = NODE_OTHERS = (BOUND)",
        "NODE_INPUTS: int = BOUND", "NODE_INPUTS, SIX = BOUND, 6", "SIX, NODE_INPUTS = 6, BOUND",
        "if True:\n    NODE_INPUTS = BOUND", "nodes = BOUND",
    ],
)  # fmt: skip
def test_a_name_that_would_stay_unbound_is_an_error_at_load(left, monkeypatch):
    """A formatter that wraps a long line once left names at 0: machine code read what lies there."""
    name, text_of = "fastpath.dispatch", kernel_files.text_of
    text = text_of(name)
    at = text.index("NODE_ADDRESS = ")
    broken = f"{text[:at]}{left}\n{text[at:]}"
    line = broken.count("\n", 0, at + left.index("BOUND")) + 1
    monkeypatch.setattr(
        kernel_files, "text_of", lambda module: broken if module == name else text_of(module)
    )
    wanted = rf"^kernels/fastpath/dispatch\.py, line {line}: what is BOUND here stays 0"
    with pytest.raises(NameError, match=wanted):
        native._bound(name)


def test_a_module_whose_names_would_all_stay_unbound_is_bound_nevertheless(monkeypatch):
    """By the modules that import it, so that they find what is wrong."""
    name, text_of = "fastpath.guards", kernel_files.text_of
    broken = re.sub(r"= BOUND$", "= (\n    BOUND\n)", text_of(name), flags=re.M)
    monkeypatch.setattr(
        kernel_files, "text_of", lambda module: broken if module == name else text_of(module)
    )
    monkeypatch.setattr(native, "_is_open", native._is_open.__wrapped__)
    assert native._is_open(name)
    with pytest.raises(NameError, match=r"^kernels/fastpath/guards\.py, line "):
        native._bound(name)


def test_machine_code_has_the_small_ints_that_it_needs():
    most = native.constants["MOST_OPERANDS"]
    assert len(fastpath.runtime().integers) > max(engine.MOST, (1 << most) - 1)


def test_what_is_known_by_name():
    class Pair(NamedTuple):
        first: int
        second: int

    class Holder:
        __slots__ = ("held",)

    def asked(one, other, *, third=None):
        for inside in (one, other):
            third = inside
        return third

    before = dict(native.constants)
    try:
        native.register_layout(TEST_PAIR=Pair, TEST_HOLDER=Holder, TEST_ASKED=asked, TEST_NUMBER=-3)
        found = {name: n for name, n in native.constants.items() if name not in before}
        assert found.pop("TEST_HOLDER_HELD") == native.offset_of(Holder.held)
        assert found == {
            "TEST_PAIR_FIRST": 0, "TEST_PAIR_SECOND": 1, "TEST_ASKED_ONE": 0, "TEST_ASKED_OTHER": 1,
            "TEST_NUMBER": -3,
        }  # fmt: skip
        native.register_layout(TEST_PAIR=Pair)
        with pytest.raises(ValueError, match="TEST_NUMBER is known to machine code as -3, not 4"):
            native.register_layout(TEST_NUMBER=4)
    finally:
        native.constants.clear()
        native.constants.update(before)


def test_variables_and_attributes_that_machine_code_looks_up_are_there():
    for flag in (*scheduling._scheduler.flags, scheduling._scheduler.fresh):
        assert flag.name in flag.module
    with pytest.raises(AttributeError, match="has no attribute 'is_gone'"):
        native.variable(plan_cache.__name__, "is_gone", True)
    with pytest.raises(AttributeError, match="has no attribute 'gone'"):
        native.named(State, "gone")
