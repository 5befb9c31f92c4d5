"""Kernel packs: found by other processes, refused where they are damaged or of other versions, never needed."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from adjit.kernels.language import processor

from adjit import __main__ as command_line
from adjit.packing import build, wheel
from adjit.schedule.jit import cache, disk, native, pack

LEVEL = build.best_level()
SCRIPT = """
import adjit
x = adjit.ones(3, requires_grad=True)
(x.exp() * x).sum().backward()
x.grad.tolist()
"""
PROGRAM = """
import sys
import adjit
from adjit.kernels.language.processor import CHOSEN
from adjit.schedule.jit import cache
compiled = []
original = cache._translate
cache._translate = lambda *a: compiled.append(a[0]) or original(*a)
x = adjit.ones(3, requires_grad=True)
(x.exp() * x).sum().backward()
print(CHOSEN.level, len(compiled), x.grad.numpy().tobytes().hex())
"""
USUAL = {"ADJIT_CPU": "", "ADJIT_KERNEL_PACK": ""}


def ran(folder: Path, **environment: str) -> list[str]:
    """The level of a process, how many kernels it compiles, and the bits of its result."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=False,
        env=os.environ | USUAL | {"ADJIT_CACHE_DIR": str(folder)} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of what one small program needs, made by the command."""
    folder = tmp_path_factory.mktemp("pack")
    script, path = folder / "script.py", folder / "small.pack"
    script.write_text(SCRIPT)
    assert command_line.main(f"cache pack --only --out {path} {script}".split()) == 0
    return path


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a process says that has no pack, at the level that packs are made for."""
    return ran(tmp_path_factory.mktemp("empty"), ADJIT_KERNEL_PACK="off", ADJIT_CPU=LEVEL)


def edited(made: Path, folder: Path, change) -> Path:
    """A pack with other entries: `change` gets them by their stems."""
    found = pack.opened(made)
    whole = made.read_bytes()
    entries = {stem: whole[at : at + size] for stem, (at, size) in found.places.items()}
    path = folder / "edited.pack"
    path.write_bytes(pack.written(LEVEL, change(entries)))
    return path


def test_another_process_compiles_nothing_and_has_the_same_bits(made, without, tmp_path):
    level, compiled, bits = ran(tmp_path, ADJIT_KERNEL_PACK=str(made))
    assert (level, compiled) == (LEVEL, "0")
    assert list(tmp_path.glob("*.o")) == []
    assert without[0] == LEVEL
    assert int(without[1]) > 3
    assert bits == without[2]


@pytest.mark.skipif(LEVEL == processor.NATIVE, reason="packs of levels of x86-64")
def test_another_model_of_the_same_level_compiles_nothing(made, without, tmp_path):
    features = ",".join(f"+{feature}" for feature in processor.features_of(LEVEL))
    model = {"x86-64-v4": "skylake-avx512", "x86-64-v3": "haswell"}.get(LEVEL, "nehalem")
    other = {"NUMBA_CPU_NAME": model, "NUMBA_CPU_FEATURES": features}
    assert ran(tmp_path, ADJIT_KERNEL_PACK=str(made), **other) == [LEVEL, "0", without[2]]


def test_only_a_pack_of_the_highest_level_decides(monkeypatch):
    def usual(found, *packed):
        monkeypatch.setattr(processor.levels, "has_kernels", packed.__contains__)
        return found.usual_level()

    features = ",".join(f"+{f}" for f in processor.features_of("x86-64-v3"))
    haswell = processor.Processor("native", "x86_64-unknown-linux-gnu", "haswell", features)
    assert haswell.levels() == ["x86-64-v2", "x86-64-v3"]
    assert usual(haswell, "x86-64-v3") == "x86-64-v3"
    assert usual(haswell, "x86-64-v2", "x86-64-v4") == "native"
    features = ",".join(f"+{f}" for f in processor.features_of("x86-64-v4"))
    assert usual(haswell._replace(features=features), "x86-64-v3") == "native"
    apple = processor.Processor("native", "arm64-apple-darwin", "apple-m1", "+neon")
    assert usual(apple, "native", "x86-64-v3") == "native"


# ----- where packs are found -----


def test_an_installed_pack_is_found(made, tmp_path):
    shutil.copy(made, tmp_path / pack.file_name(LEVEL))
    assert ran(tmp_path)[:2] == [LEVEL, "0"]


def test_a_wheel_is_found_as_a_package(made, without, tmp_path):
    packages, cache = tmp_path / "packages", tmp_path / "cache"
    path = wheel.put(tmp_path, LEVEL, made.read_bytes())
    assert path.name.startswith(f"{pack.module_name(LEVEL)}-{pack.__version__}-cp3")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(packages)
    (folder,) = packages.glob("*.dist-info")
    records = [line.split(",") for line in (folder / "RECORD").read_text().splitlines()]
    assert {name for name, *_ in records} == {
        file.relative_to(packages).as_posix() for file in packages.rglob("*") if file.is_file()
    }
    for name, digest, size in records[:-1]:
        data = (packages / name).read_bytes()
        told = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        assert (digest, int(size)) == (f"sha256={told}", len(data))
    versions = pack.versions()
    for name in ("adjit", "numba", "llvmlite"):
        assert f"Requires-Dist: {name}=={versions[name]}\n" in (folder / "METADATA").read_text()
    assert ran(cache, PYTHONPATH=str(packages)) == [LEVEL, "0", without[2]]


# ----- what is wrong with packs -----


def test_damaged_swapped_missing_and_cut_entries_are_compiled(made, without, tmp_path):
    def damaged(entries):
        assert len(entries) == int(without[1])
        first, second, third, fourth, *_ = sorted(entries)
        changed = entries[third][:-1] + bytes([entries[third][-1] ^ 1])
        swapped = {first: entries[second], second: entries[first], third: changed}
        return {stem: data for stem, data in (entries | swapped).items() if stem != fourth}

    path = edited(made, tmp_path, damaged)
    os.truncate(path, path.stat().st_size - 10)  # the last entry
    level, compiled, bits = ran(tmp_path / "cache", ADJIT_KERNEL_PACK=str(path))
    assert (level, compiled, bits) == (LEVEL, "5", without[2])


def with_header(made: Path, path: Path, **changes: str) -> Path:
    """A pack that says something else of itself."""
    magic, header, rest = made.read_bytes().split(b"\n", 2)
    changed = json.dumps(json.loads(header) | changes).encode()
    path.write_bytes(b"\n".join([magic, changed, rest]))
    return path


@pytest.mark.parametrize("name", ["adjit", "numba", "llvmlite", "python", "platform"])
def test_packs_of_other_versions_do_not_fit(name, made, tmp_path):
    path = with_header(made, tmp_path / "other.pack", **{name: "0.1"})
    with pytest.raises(pack.Misfit, match=f"^made by {name} 0.1$"):
        pack.opened(path)


def test_a_pack_of_other_versions_decides_nothing(made, without, tmp_path):
    path = with_header(made, tmp_path / "other.pack", numba="0.1")
    level, compiled, bits = ran(tmp_path / "cache", ADJIT_KERNEL_PACK=str(path))
    assert (level, compiled, bits) == ("native", without[1], without[2])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a kernel pack"),
        (b"adjit kernel pack 2\n{}\n{}\n", "not a kernel pack"),
        (pack.MAGIC, "damaged"),
        (pack.MAGIC + b"[]\n{}\n", "damaged"),
        (pack.MAGIC + b"{}\n{}\n", "damaged"),
        (pack.written("x", {})[:-2] + b"\n", "damaged"),
        (pack.written("x", {})[:-3] + b"[1]\n", "damaged"),
        (pack.written("x", {})[:-3] + b'{"a": 1}\n', "damaged"),
    ],
)
def test_other_files_are_no_packs(data, why, tmp_path):
    path = tmp_path / "some.pack"
    path.write_bytes(data)
    with pytest.raises(pack.Misfit, match=f"^{why}$"):
        pack.opened(path)
    with pytest.raises(pack.Misfit, match=r"^No such file"):
        pack.opened(tmp_path / "none.pack")


def test_places_outside_of_the_file_are_no_entries(made):
    found = pack.opened(made)
    stem = next(iter(found.places))
    assert found.entry(stem)
    for place in ((10**9, 50), (-5, 5), (0, 0)):
        assert found._replace(places={stem: place}).entry(stem) is None
    assert found._replace(path=made.with_name("gone")).entry(stem) is None
    assert found.entry("unknown") is None


# ----- the command -----


def test_the_command_installs_where_packs_are_found(made, tmp_path, monkeypatch, capsys):
    whole, found = made.read_bytes(), pack.opened(made)
    entries = {stem: whole[at : at + size] for stem, (at, size) in found.places.items()}
    asked = []
    monkeypatch.setattr(build, "build", lambda level, runs: asked.append((level, runs)) or entries)
    monkeypatch.setattr(disk, "folder", lambda: tmp_path)
    monkeypatch.setattr(pack.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(pack.config, "KERNEL_PACK", None)
    assert pack.described(LEVEL) == "none"
    assert command_line.main(["cache", "pack", "--install", "program.py"]) == 0
    path = tmp_path / f"{LEVEL}.pack"
    assert capsys.readouterr().out.startswith(f"{path} ({len(entries)} kernels, ")
    assert path.read_bytes() == whole
    assert pack.described(LEVEL) == f"{path} ({len(entries)} kernels)"
    ((level, runs),) = asked
    assert level == LEVEL
    assert runs[: len(build.ORDINARY)] == build.ORDINARY
    assert [run.arguments for run in runs[len(build.ORDINARY) :]] == 2 * [("program.py",)]
    monkeypatch.chdir(tmp_path)
    assert command_line.main(["cache", "pack", "--level", "x86-64-v3", "--only"]) == 0
    assert asked[1] == ("x86-64-v3", ())
    assert [file.name for file in tmp_path.glob("adjit_kernels_x86_64_v3-*.whl")]
    assert command_line.main(["cache", "clear"]) == 0
    assert not path.exists()


def test_why_a_named_pack_does_not_fit_is_told(made, tmp_path, monkeypatch):
    monkeypatch.setattr(pack.config, "KERNEL_PACK", str(made))
    assert pack.described("x86-64-v1") == f"not {made}: for {LEVEL}"
    monkeypatch.setattr(pack.config, "KERNEL_PACK", "off")
    assert pack.described(LEVEL) == "none"


def test_a_program_that_fails_makes_no_pack(tmp_path, capsys):
    script, path = tmp_path / "wrong.py", tmp_path / "wrong.pack"
    script.write_text("raise SystemExit('it went wrong')")
    assert command_line.main(f"cache pack --only --out {path} {script}".split()) == 1
    assert "it went wrong" in capsys.readouterr().err
    assert not path.exists()


def test_fastpath_keys_are_those_of_every_process():
    """Machine code of recording knows offsets within objects; none is an address of its process."""
    if not native.is_supported:
        pytest.skip("recording is in Python here")
    told = (
        "{f'{f.module}.{f.name}': cache._unit(f.name, native._bound(f'fastpath.{f.module}'), f.signature).stem"
        " for f in native.families}"
    )
    program = f"import adjit; from adjit.schedule.jit import cache, native; print({told})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    there, here = ast.literal_eval(done.stdout), eval(told, {"cache": cache, "native": native})
    assert there
    assert {
        name: here[name] for name in there
    } == there  # here are those that were asked for later, too


@pytest.mark.parametrize("name", ["elementwise", "operations", "networks", "sciences"])
def test_there_are_ordinary_programs(name):
    """They run while a pack is made; here one of each file does, the shortest."""
    found = importlib.import_module(f"adjit.packing.{name}").PROGRAMS
    assert len(found) >= 9
    shortest = {"elementwise": 3, "operations": 11, "networks": 7, "sciences": 10}[name]
    found[shortest]()
