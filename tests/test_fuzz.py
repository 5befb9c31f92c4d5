"""A small part of `make fuzz`, and what it found before: the folder `fuzz/found`, a program a file."""

from __future__ import annotations

import re
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz import calls, compare, programs, shrink, ways, worker
from fuzz.arguments import FITTING, MADE, PLAIN
from fuzz.programs import HOLE, Palette, Program
from hypothesis import HealthCheck, Phase, given, settings

pytestmark = [pytest.mark.cpu, pytest.mark.filterwarnings("ignore")]
FOUND = sorted((Path(__file__).parent / "fuzz" / "found").glob("*.py"))


@pytest.fixture(scope="module")
def processes() -> Iterator[ways.Workers]:
    with ways.workers() as made:
        yield made


# ----- the calls -----


def test_every_public_function_has_a_call() -> None:
    """One that is added says in `fuzz/calls.py` how it is called."""
    assert sorted(calls.public() - calls.called()) == []


def test_every_hole_can_be_filled() -> None:
    holes = {
        hole.split(":")[0]
        for made in calls.table().values()
        for c in made
        for hole in HOLE.findall(c)
    }
    holes = {h for h in holes if not re.fullmatch(r"[xfib]\d?|=\w+", h)}
    assert holes == {*FITTING, *MADE, *PLAIN}


def test_what_differs_on_purpose_is_among_the_calls() -> None:
    plain = {"dims": "()", "flag": "False", "number": "inf"}
    everything = "\n".join(
        HOLE.sub(lambda hole: plain.get(hole[1], "v0"), call)
        for made in calls.table().values()
        for call in made
    )
    expected = [*compare.ON_PURPOSE, *compare.REFUSED_THERE]
    assert [p for p in expected if not re.search(p, everything)] == []


@pytest.mark.parametrize("kind", calls.table())
def test_every_call_is_made_with_legal_arguments(kind: str) -> None:
    """With the arguments of some program, at least."""
    palette = Palette.whole_registry()
    never = [
        c for c in calls.table()[kind] if not any(is_legal(c, kind, palette, k) for k in range(60))
    ]
    assert never == []


def is_legal(call: str, kind: str, palette: Palette, seed: int) -> bool:
    alone = palette._replace(calls={k: [call] if k == kind else [] for k in palette.calls})
    program = programs.program(seed, alone, only=kind)
    names = worker.world("adjit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return all(worker.run_line(line, names) is None for line in program.lines)


# ----- programs -----


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("number", range(3))
def test_programs_do_the_same_in_every_way(processes: ways.Workers, number: int) -> None:
    @settings(
        max_examples=40, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip
    @given(programs.programs(Palette.of(number)))
    def run(program: Program) -> None:
        check(processes, program, processes.chosen(zlib.crc32(str(program).encode())))

    run()


def check(processes: ways.Workers, program: Program, names: list[str]) -> None:
    found = compare.found_in(processes, program, names)
    if found:
        shorter, what = shrink.shortest(processes, program, *found)
        pytest.fail(f"{found[0]}: {what}\n{shorter}", pytrace=False)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_stays_mended(processes: ways.Workers, path: Path) -> None:
    check(processes, Program.read(path.read_text()), processes.names)


# ----- the fuzzer itself -----


def test_it_notices_what_differs(processes: ways.Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another value, an error, a flag, a stride; and the program shrinks to the line that shows it."""
    program = Program(
        ["v0 = T.tensor([[1.0, 2.0]])", "v1 = v0 + 1", "v2 = v0.sum()", "v3 = v1 * 3"], 1
    )
    asked = ways.Workers.request
    for line, text in (
        ("v1 = v0 + 2", "v1 is"),
        ("v1 = v0 + [1.0]", "line 2: no error, but TypeError"),
        ("v1 = (v0 + 1).requires_grad_()", "v1.is_leaf|v1.requires_grad is False"),
        ("v1 = (v0 + 1).expand(2, 2)", r"v1.shape is \(1, 2\), but \(2, 2\)"),
        ("v1 = v0.to(T.float64) + 1", "v1 is float32, but float64"),
    ):

        def request(
            self: ways.Workers, name: str, p: Program, line: str = line
        ) -> dict[str, object]:
            made = asked(self, name, p)
            if name != "unfused":
                made["lines"] = [line if one == program.lines[1] else one for one in p.lines]
            return made

        monkeypatch.setattr(ways.Workers, "request", request)
        for way in ("eager", "torch") if "torch" in processes.names else ("eager",):
            name, what = compare.found_in(processes, program, ["unfused", way]) or ("", "")
            assert name == way
            assert re.match(text, what.replace("torch's ", "but ").replace("torch ", "")), what
            shorter = shrink.shrunk(
                program, lambda p, way=way: bool(compare.found_in(processes, p, ["unfused", way]))
            )
            assert shorter.lines == program.lines[:2]


def test_a_process_that_dies_is_a_finding(processes: ways.Workers) -> None:
    program = Program(["v0 = __import__('os').kill(__import__('os').getpid(), 9)"], 0)
    assert compare.found_in(processes, program, ["unfused"]) == (
        "unfused",
        "the process ended: SIGKILL",
    )
    assert compare.found_in(processes, Program(["v0 = T.ones(1)"], 0), ["unfused", "eager"]) is None
