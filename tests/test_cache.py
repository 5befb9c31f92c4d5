"""The kernel cache: found again, rebuilt when damaged, survived when unusable."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from adjit.schedule.jit import cache, disk

PROGRAM = """
import sys
import adjit
from adjit.schedule.jit import cache, disk
compiled = []
original = cache._translate
cache._translate = lambda *a: compiled.append(a[0]) or original(*a)
x = adjit.ones(3, requires_grad=True)
(x.exp() * x).sum().backward()
print(len(compiled), [round(v, 4) for v in x.grad.tolist()], disk.folder())
"""


WARNING = "adjit cannot keep the kernels that it compiles"


def run(folder, *, warns=""):
    """How many kernels a process compiles, and the folder that it keeps them in."""
    done = subprocess.run(
        [sys.executable, "-W", "always" if warns else "error", "-c", PROGRAM], text=True,
        capture_output=True, env=os.environ | {"ADJIT_CACHE_DIR": str(folder)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Warning: ") == bool(warns), done.stderr
    assert not warns or f"RuntimeWarning: {WARNING} ({warns})" in done.stderr, done.stderr
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
from adjit.schedule.jit import cache, disk, modules
from adjit.schedule.planning.recipe import Source

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


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"not an object at all",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data.replace(b'"symbol": "', b'"symbol": "_'),
        lambda data: data.replace(b'"external": []', b'"external": ["no_such_symbol"]'),
        lambda data: data.replace(b"adjit object 2", b"adjit object 1"),
    ],
    ids=["empty", "half", "foreign", "one bit", "symbol", "unknown symbol", "version"],
)
def test_a_damaged_entry_is_rebuilt(filled, damage):
    path = next(filled.glob("exp_f32*.o"))
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert path.read_bytes() != whole
    assert run(filled)[0] == 1
    assert run(filled)[0] == 0


def test_an_entry_in_the_place_of_another_one_is_rebuilt(filled):
    first, second = next(filled.glob("exp_f32*.o")), next(filled.glob("mul_*.o"))
    contents = second.read_bytes(), first.read_bytes()
    first.write_bytes(contents[0])
    second.write_bytes(contents[1])
    assert run(filled)[0] == 2
    assert run(filled)[0] == 0
    first.unlink()
    first.symlink_to(second)
    assert run(filled)[0] == 1
    assert not first.is_symlink()


def test_an_entry_that_expects_what_is_not_there_is_rebuilt(filled):
    path = next(filled.glob("exp_f32*.o"))
    entry = disk.read(path)
    disk.write(path, entry._replace(external=("no_such_symbol",)))
    assert disk.read(path).external == ("no_such_symbol",)
    assert run(filled)[0] == 1
    assert disk.read(path) == entry


def test_code_that_needs_what_is_not_there_is_refused():
    entry = disk.CacheEntry("kernel", b"", ("no_such_symbol",))
    unit = cache.CompilationUnit("no_such_kernel", lambda: lambda: entry)
    with pytest.raises(RuntimeError, match="no_such_kernel needs no_such_symbol, which nothing"):
        cache.addresses(unit)


def test_what_is_damaged_is_compiled_along_with_what_is_missing(filled):
    exp, mul = (str(next(filled.glob(f"{name}*.o"))) for name in ("exp_f32", "mul_"))
    program = f"""
import adjit
from adjit.schedule.jit import cache
together, compile_all = [], cache._compile_all
cache._compile_all = lambda missing: together.append(len(missing)) or compile_all(missing)
x = adjit.ones(3, requires_grad=True)
for path in ({exp!r}, {mul!r}):
    open(path, "wb").close()
(x.exp() * x).sum().backward()
print(together)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True,
        env=os.environ | {"ADJIT_CACHE_DIR": str(filled)}, check=False,
    )  # fmt: skip
    assert done.stdout == "[2]\n", done.stderr
    assert run(filled)[0] == 0


def test_a_folder_that_cannot_be_made_is_replaced_for_the_process(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    count, used = run(blocked / "cache", warns=f"{blocked / 'cache'}: Not a directory")
    assert count > 3
    assert not used.startswith(str(tmp_path / "file"))
    assert not os.path.exists(used)  # removed when the process ended


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_replaced_for_the_process(tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert run(tmp_path, warns=f"{tmp_path}: Permission denied")[1] != str(tmp_path)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files away"
)
def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    os.chown(tmp_path, 12345, 12345)
    used = run(tmp_path, warns=f"{tmp_path}: it belongs to another user")[1]
    assert used != str(tmp_path)
    assert not any(tmp_path.iterdir())


def test_an_entry_that_cannot_be_written_is_told_of_once_in_a_run(filled):
    paths = [next(filled.glob(f"{name}*.o")) for name in ("exp_f32", "mul_")]
    contents = [path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
        path.mkdir()
    try:
        for _ in range(2):
            assert run(filled, warns=f"{paths[0]}: Is a directory")[0] == 2
        assert not [path for path in filled.iterdir() if path.name.startswith(".")]
    finally:
        for path, data in zip(paths, contents, strict=True):
            path.rmdir()
            path.write_bytes(data)
    assert run(filled)[0] == 0


def test_a_full_disk_is_told_of_when_the_results_are_there(tmp_path):
    program = f"""
import errno, os, sys, warnings
import adjit
from adjit.schedule.jit import disk
def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
os.replace = full
x = adjit.ones(3)
y = x + 1
try:
    y.tolist()
except RuntimeWarning as warning:
    print({WARNING!r} in str(warning), "No space left on device" in str(warning))
print(y._storage.value.recipe, y.tolist(), (x + 2).exp().log().tolist(), list(disk.folder().iterdir()))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True,
        env=os.environ | {"ADJIT_CACHE_DIR": str(tmp_path)}, check=False,
    )  # fmt: skip
    wanted = ["True True", "None [2.0, 2.0, 2.0] [3.0, 3.0, 3.0] []"]
    assert done.stdout.splitlines() == wanted, done.stderr


def test_a_folder_that_is_removed_meanwhile_is_made_anew(tmp_path):
    program = """
import shutil
import adjit
from adjit.schedule.jit import disk
x = adjit.ones(3)
print((x + 1).tolist())
shutil.rmtree(disk.folder())
print((x.exp() * 0).tolist(), disk.folder().stat().st_mode & 0o777 == 0o700)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True,
        env=os.environ | {"ADJIT_CACHE_DIR": str(tmp_path / "cache")}, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["[2.0, 2.0, 2.0]", "[0.0, 0.0, 0.0] True"], done.stderr
    assert any((tmp_path / "cache").glob("exp_*.o"))


def test_the_folder_is_private(tmp_path):
    _, used = run(tmp_path / "new")
    assert stat.S_IMODE(os.stat(used).st_mode) == 0o700
    (tmp_path / "new").chmod(0o777)
    run(tmp_path / "new")
    assert stat.S_IMODE(os.stat(used).st_mode) == 0o700


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="threads are not our own here")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_what_threads_need_is_compiled_with_the_first_kernels_where_there_are_several(
    threads, tmp_path
):
    program = """
import adjit
from adjit.schedule.jit import cache; from adjit.schedule import dispatch as cold
ahead, compile_ahead = [], cold.compile_ahead
cold.compile_ahead = lambda sources, functions: ahead.extend(f.__name__ for f, _ in functions) or (
    compile_ahead(sources, functions)
)
x = adjit.linspace(0, 1, 1 << 20).exp()
print(round(x.mean().item(), 4), *ahead)
adjit.set_num_threads(2)
print(x.add_(1).mean().item() > 2.7, adjit.get_num_threads())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False,
        env=os.environ | {"ADJIT_CACHE_DIR": str(tmp_path), "ADJIT_NUM_THREADS": threads},
    )  # fmt: skip
    of_threads = ["run_parts", "work", "share"] if threads == "2" else []
    assert done.stdout.split() == ["1.7183", "walk", *of_threads, "True", "2"], done.stderr
    assert all(any(tmp_path.glob(f"{name}_*.o")) for name in ("walk", "share"))


def test_what_needs_many_kernels_alone_and_few_together_gets_its_plan_at_once(tmp_path):
    program = """
import adjit
from adjit.schedule import plan_cache as hot
x = adjit.linspace(-2, 2, 5000, requires_grad=True)
y = {}
y.sum().backward()
ready = any(entry.is_ready for entry in hot.entries.values())
print(y.detach().sum().item().hex(), x.grad.sin().sum().item().hex(), ready)
"""
    chain = "(x.sin() * x + 0.5).tanh() * x.exp() - x.sigmoid() / (x.cos() + 2)"
    few = "x.sin() * x"

    def results(folder, expression, **environment):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program.format(expression)],
            capture_output=True, text=True, check=True,
            env=os.environ | {"ADJIT_CACHE_DIR": str(tmp_path / folder)} | environment,
        )  # fmt: skip
        value, slope, ready = done.stdout.split()
        return (value, slope), ready

    at_once = results("new", chain)
    alone = results("off", chain, ADJIT_JIT="off")
    assert at_once == (alone[0], "True")
    assert not any((tmp_path / "new").glob("tanh_*.o"))
    assert any((tmp_path / "off").glob("tanh_*.o"))
    # All is there that running one by one takes.
    assert results("off", chain) == (alone[0], "False")
    assert results("few", few)[1] == "False"


def test_the_part_of_llvm_waits_for_no_lock_of_numba(tmp_path):
    """Its thread works while another one, which may wait for it, translates and holds that lock."""
    program = """
import sys, threading
import adjit
from numba.core.compiler_lock import global_compiler_lock
from adjit.schedule.jit import cache
stuck = []
class OneThread:
    def __init__(self, *_): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def submit(self, finish):
        with global_compiler_lock:
            thread = threading.Thread(target=finish, daemon=True)
            thread.start()
            thread.join(20)
            stuck.append(thread.is_alive())
cache.ThreadPoolExecutor = OneThread
x = adjit.rand(20, 20, requires_grad=True)
(x @ x).relu().cumsum(0).sum().backward()
print(any(stuck), len(stuck) > 5)
print(sorted(name for name in sys.modules if name.startswith("numba.typed.")))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False,
        env=os.environ | {"ADJIT_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == "False True\n[]\n", done.stderr
    assert any(tmp_path.glob("matmul_float32_*.o"))
