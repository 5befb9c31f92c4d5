"""`python -m adjit`: facts for bug reports, and the cache of kernels."""

import os
import platform
import subprocess
import sys

import numba
import numpy
import pytest

from adjit import __main__ as command_line
from adjit.__config__ import bytes_text


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def facts(output):
    return dict(line.split(maxsplit=1) for line in output.splitlines())


def test_info(capsys):
    assert command_line.main(["info"]) == 0
    told = facts(capsys.readouterr().out)
    assert told["python"].startswith(platform.python_version())
    assert told["numba"] == numba.__version__
    assert told["numpy"] == numpy.__version__
    assert int(told["threads"].split(",")[0]) >= 1
    assert {"adjit", "llvmlite", "scipy", "processor", "features", "cuda", "settings"} <= set(told)


def test_the_cache_is_found_counted_and_cleared(tmp_path):
    program = """
import adjit
from adjit.__main__ import main
(adjit.ones(3) * 2).sum().item()
for arguments in ["cache path", "info", "cache clear", "info"]:
    main(arguments.split())
    print("---")
"""
    folder = tmp_path / "kernels"
    result = run("-c", program, ADJIT_CACHE_DIR=str(folder))
    assert result.returncode == 0, result.stderr
    path, before, cleared, after, _ = result.stdout.split("---\n")
    assert path.startswith(str(folder))
    assert facts(before)["cache"].startswith(path.strip())
    assert "(0 files" not in facts(before)["cache"]
    count = facts(before)["cache"].rsplit("(", 1)[1].split(" files")[0]
    assert cleared.startswith(f"removed {count} files, ")
    assert facts(after)["cache"].endswith("(0 files, 0 bytes)")
    assert "numba" in facts(after)


@pytest.mark.parametrize("arguments", [[], ["dance"], ["cache"], ["cache", "burn"]])
def test_unknown_commands_show_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        command_line.main(arguments)
    assert exit_.value.code == 2
    assert "usage: python -m adjit" in capsys.readouterr().err


def test_the_module_runs():
    result = run("-m", "adjit", "cache", "path")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_sizes_are_told_in_units():
    sizes = [0, 999, 1000, 2_500_000, 7e9]
    told = ["0 bytes", "999 bytes", "1 kB", "2.5 MB", "7 GB"]
    assert [bytes_text(size) for size in sizes] == told


@pytest.mark.parametrize("arguments", ["info", "cache path"])
def test_a_reader_that_has_enough_is_no_error(arguments):
    """`python -m adjit info | head -1`: the pipe is closed before anything is written, or in between."""
    for reads in (0, 5):
        program = subprocess.Popen(
            [sys.executable, "-u", "-m", "adjit", *arguments.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.read(program.stdout.fileno(), reads)
        program.stdout.close()
        told = program.stderr.read().decode()
        program.stderr.close()
        assert program.wait(120) in (0, command_line.CLOSED_PIPE)
        assert told == ""
