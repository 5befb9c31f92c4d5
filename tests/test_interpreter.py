"""Where objects are not as machine code takes them to be, it does not touch them."""

import os
import re
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from adjit.kernels.fastpath import cpython, freelists

from adjit import __main__ as command_line
from adjit.captured import guards
from adjit.schedule.jit import interpreter, native

IS_USUAL = interpreter.misfit() is None
usual = pytest.mark.skipif(not IS_USUAL, reason="another interpreter")

# Constants, each with a wrong value, and what is found to be elsewhere.
WRONG = [
    (cpython, "COUNT", 8, "counts of references"),
    (cpython, "COUNT_BITS", 0xFF, "counts of references"),
    (cpython, "HAS_TAGS", not cpython.HAS_TAGS, "never freed"),
    (cpython, "CLASS", 0, "class of an object"),
    (cpython, "LENGTH", 24, "items of a tuple"),
    (cpython, "ITEMS", cpython.ITEMS - 8, "items of a tuple"),
    (cpython, "ITEMS_OF_LIST", 32, "items of a list"),
    (cpython, "ITEMS_OF_LIST", 16, "items of a list"),
    (cpython, "CONTENTS", 24, "bytes"),
    (cpython, "DIGITS", cpython.DIGITS + 4, "digits of an int"),
    (cpython, "BITS_OF_DIGIT", 15, "digits of an int"),
    (cpython, "BOUNDS_OF_SLICE", 24, "bounds of a slice"),
    (interpreter, "_DESCRIPTION", 32, "slots of an object"),
    (interpreter, "_DESCRIPTION", 16, "slots of an object"),
    (interpreter, "_OFFSET", 8, "slots of an object"),
    (cpython, "BASIC_SIZE", 40, "facts of a class"),
    (cpython, "FLAGS", 160, "digits of an int"),
    (cpython, "INT_SUBCLASS", 1 << 25, "digits of an int"),
    (freelists, "WEAK_REFERENCES", 216, "facts of a class"),
    (interpreter, "HAVE_VECTORCALL", 1 << 10, "facts of a class"),
    (interpreter, "METHOD_DESCRIPTOR", 1 << 10, "facts of a class"),
    (freelists, "ALLOCATE", 312, "functions of a class"),
    (freelists, "DEALLOCATE", 56, "functions of a class"),
    (freelists, "HAS_DICT_BEFORE", 0, "before an object"),
    (freelists, "NEXT_TRACKED", -8, "before an object"),
]


@usual
@pytest.mark.parametrize(("module", "name", "value", "told"), WRONG)
def test_what_is_elsewhere_is_noticed(module, name, value, told, monkeypatch):
    monkeypatch.setattr(module, name, value)
    assert told in interpreter.misfit()


HEADERS = Path(sysconfig.get_path("include"))
IN_C = {"void": "none", "int": "int32", "double": "float64"}  # every other result is a word


@pytest.mark.skipif(not (HEADERS / "Python.h").exists(), reason="Python's headers are missing")
def test_functions_of_the_interpreter_give_what_its_headers_say():
    """An int is the lower half of a register, whose upper half may be anything."""
    said = "\n".join(path.read_text(encoding="utf-8") for path in HEADERS.rglob("*.h"))
    functions = [f for f in vars(cpython).values() if isinstance(f, cpython.ExternalFunction)]
    assert len(functions) > 40
    for function in functions:
        declared = re.search(rf"PyAPI_FUNC\(([^)]*)\)\s*{function.symbol}\s*\(", said)
        assert declared, function.symbol
        assert str(function.sig.return_type) == IN_C.get(declared[1], "int64"), function.symbol


@usual
def test_a_list_of_what_the_collector_tracks_is_noticed(monkeypatch):
    monkeypatch.setattr(interpreter.gc, "is_tracked", lambda _: False)
    assert "the collector tracks" in interpreter.misfit()


@usual
def test_attributes_that_are_not_in_a_dict_are_noticed(monkeypatch):
    monkeypatch.setattr(interpreter.gc, "get_referents", lambda thing: [thing.first])
    assert "attributes of an object" in interpreter.misfit()


@usual
@pytest.mark.skipif(sys.version_info < (3, 14), reason="attributes are in dicts anyway")
def test_room_for_attributes_in_objects_is_noticed(monkeypatch):
    monkeypatch.setattr(interpreter, "_INLINE_VALUES", 0)
    assert "attributes of an object" in interpreter.misfit()


@usual
def test_every_trial_can_fail():
    told = [told for *_, told in WRONG] + ["the collector tracks", "attributes of an object"]
    assert [what for what in interpreter._trials if not any(t in what for t in told)] == []


@usual
def test_another_interpreter_is_left_alone(monkeypatch):
    def named(module, name, value):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value, raising=False)
            return interpreter.misfit()

    assert named(sys, "implementation", SimpleNamespace(name="pypy")) == "this is pypy, not CPython"
    assert "without its lock" in named(interpreter.sysconfig, "get_config_var", lambda _: 1)
    assert "for debugging" in named(sys, "gettotalrefcount", lambda: 0)
    assert "64 bits" in named(interpreter.struct, "calcsize", lambda _: 4)
    assert "64 bits" in named(sys, "byteorder", "big")
    assert interpreter.misfit() is None


@usual
@pytest.mark.parametrize(("name", "value"), [("_COUNT", 24), ("_TABLE", 16), ("_VALUES", 16)])
def test_dicts_that_are_laid_out_otherwise_are_noticed(name, value, monkeypatch):
    assert guards._dicts_fit()
    monkeypatch.setattr(guards, name, value)
    assert not guards._dicts_fit()


TRAINING = """
import adjit as T
from adjit.schedule.jit import native
T.manual_seed(0)
model = T.nn.Sequential(T.nn.Linear(3, 8), T.nn.Tanh(), T.nn.Linear(8, 1))
optimizer = T.optim.Adam(model.parameters(), lr=0.05)
x = T.rand(16, 3)
y = x.sum(1, keepdim=True)
losses = []
for _ in range(30):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with T.no_grad():
    row = x[1:3].mul_(2)
print(losses[::6], row.tolist(), T.compile(lambda x: x.exp().sum())(x).item())
print(native.is_used(), native.is_supported)
from adjit.__main__ import main
main(["info"])
"""

MISFIT = """
import importlib.machinery, sys

class Elsewhere(importlib.machinery.SourceFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        module.ITEMS += 8

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "adjit.kernels.fastpath.cpython":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        spec.loader = Elsewhere(name, spec.origin)
        return spec

sys.meta_path.insert(0, Finder)
"""


def trained(text, **settings):
    env = {**os.environ, "ADJIT_JIT": "sync", **settings}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    losses, used, *facts = done.stdout.splitlines()
    return losses, used, dict(line.split(maxsplit=1) for line in facts)["recorder"]


@usual
def test_where_something_does_not_fit_python_does_the_work():
    losses, used, told = trained(TRAINING, ADJIT_RECORDER="compiled")
    assert (used, told) == ("True True", "machine code")
    others, used, told = trained(MISFIT + TRAINING, ADJIT_RECORDER="compiled")
    assert others == losses
    assert used == "False False"
    assert told.startswith("Python: this Python has the items of a tuple elsewhere than CPython")
    others, used, told = trained(TRAINING, ADJIT_RECORDER="python")
    assert (others, used, told) == (losses, "False False", "Python: ADJIT_RECORDER is python")


def test_info_says_who_records(capsys, monkeypatch):
    monkeypatch.setattr(native, "is_supported", False)
    monkeypatch.setattr(native, "why_python", "of this test")
    command_line.main(["info"])
    assert "\nrecorder   Python: of this test\n" in capsys.readouterr().out
