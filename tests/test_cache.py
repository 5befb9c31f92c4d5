"""The kernel cache: found again, rebuilt when damaged, survived when unusable."""

import os
import stat
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import adjit
from adjit.schedule import cache, disk
compiled = []
original = cache._translate
cache._translate = lambda *a: compiled.append(a[0]) or original(*a)
x = adjit.ones(3, requires_grad=True)
(x.exp() * x).sum().backward()
print(len(compiled), [round(v, 4) for v in x.grad.tolist()], disk.folder())
"""


def run(folder, **more):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True,
        env=os.environ | {"ADJIT_CACHE_DIR": str(folder)} | more, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    count, rest = done.stdout.strip().split(" ", 1)
    values, used = rest.rsplit(" ", 1)
    assert values == "[5.4366, 5.4366, 5.4366]"
    return int(count), used


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    count, used = run(folder)
    assert count > 3
    assert used == str(folder)
    return folder


def test_a_second_process_compiles_nothing(filled):
    assert run(filled) == (0, str(filled))


def test_the_source_lies_beside_the_machine_code(filled):
    objects = sorted(p.stem for p in filled.glob("*.o"))
    assert objects == sorted(p.stem for p in filled.glob("*.py"))
    source = next(filled.glob("exp_f32*.py")).read_text()
    assert "for i in range(start, stop):" in source
    assert "exp_f32" in source


def test_kernels_are_compiled_ahead(tmp_path):
    program = """
import gc, sys, threading
from adjit import float32
from adjit.ops.matmul import float_kernels
from adjit.schedule import cache, disk, modules
from adjit.schedule.recipe import Source

def source(name, line="pass"):
    return Source(name, f"def {name}(args, start, stop):\\n    {line}\\n")

def seen(*arguments):
    how.append(settings())
    return translate(*arguments)

def settings():
    return gc.isenabled(), round(sys.getswitchinterval(), 6)

how, before = [], settings()
translate, cache._translate = cache._translate, seen
first, wrong, second = source("first"), source("wrong", "unknown()"), source("second")
later, product = source("later"), float_kernels(float32)[1]
cache.expect(later)
cache.compile_ahead([])
print(len(list(disk.folder().glob("*.o"))))
cache.compile_ahead([product, first, wrong, second, source("first")])
print(sorted(path.name[:-23] for path in disk.folder().glob("*.o")))
print(how == 4 * [(False, cache.TURN)], settings() == before)
cache._translate = modules.object_code = None
print(all(cache.link(source) > 0 for source in (first, second, later, product)))
cache._translate = translate
try:
    cache.link(wrong)
except Exception as error:
    print("unknown" in str(error), settings() == before)
gc.disable()
cache.link(source("third"))
print(gc.isenabled())
gc.enable()
cache._translate = seen
how.clear()
thread = threading.Thread(target=cache.link, args=(source("fourth"),))
thread.start()
thread.join()
print(how == [before], settings() == before)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True,
        env=os.environ | {"ADJIT_CACHE_DIR": str(tmp_path)}, check=False,
    )  # fmt: skip
    found = "['first', 'later', 'matmul_float32', 'second']"
    wanted = ["0", found, "True True", "True", "True True", "False", "True True"]
    assert done.stdout.splitlines() == wanted, done.stderr


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"not an object at all",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data.replace(b'"external": []', b'"external": ["no_such_symbol"]'),
    ],
    ids=["empty", "half", "foreign", "one bit", "unknown symbol"],
)
def test_a_damaged_entry_is_rebuilt(filled, damage):
    path = next(filled.glob("exp_f32*.o"))
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert path.read_bytes() != whole
    assert run(filled)[0] == 1
    assert run(filled)[0] == 0


def test_a_folder_that_cannot_be_made_is_replaced_for_the_process(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    count, used = run(blocked / "cache")
    assert count > 3
    assert not used.startswith(str(tmp_path / "file"))
    assert not os.path.exists(used)  # removed when the process ended


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_replaced_for_the_process(tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert run(tmp_path)[1] != str(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_the_folder_is_private(tmp_path):
    _, used = run(tmp_path / "new")
    assert stat.S_IMODE(os.stat(used).st_mode) == 0o700
    (tmp_path / "new").chmod(0o777)
    run(tmp_path / "new")
    assert stat.S_IMODE(os.stat(used).st_mode) == 0o700
