"""`SummaryWriter`: the events in its files are those that PyTorch's writes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")
pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader  # noqa: E402
from tensorboard.compat.proto.event_pb2 import Event  # noqa: E402

from adjit.utils.tensorboard import SummaryWriter  # noqa: E402

WRITERS = pytest.importorskip("torch.utils.tensorboard").SummaryWriter, SummaryWriter


def events(folder: Path) -> dict[str, list[Any]]:
    """The events in the files of a folder, without the times, by the folder that they are in."""
    found: dict[str, list[Any]] = {}
    for file in sorted(folder.rglob("events.out.*")):
        for raw in RawEventFileLoader(str(file)).Load():
            event = Event.FromString(raw)
            event.wall_time = 0
            event.ClearField("source_metadata")
            found.setdefault(str(file.parent.relative_to(folder)), []).append(event)
    return found


def written(tmp_path: Path, call: Any, **options: Any) -> list[dict[str, list[Any]]]:
    """What both writers write for calls that a function makes."""
    found = []
    for library, writer in zip((torch, adjit), WRITERS, strict=True):
        folder = tmp_path / library.__name__
        with writer(str(folder), **options) as w:
            call(w, library)
        found.append(events(folder))
    return found


VALUES = np.random.default_rng(0).normal(size=(3, 50))
PIXELS = np.random.default_rng(1).random((3, 6, 8)).astype(np.float32)
BYTES = (PIXELS * 255).astype(np.uint8)
CALLS = {
    "scalar": lambda w, L: w.add_scalar("a/loss", L.tensor(0.5, requires_grad=True), 3),
    "number": lambda w, L: w.add_scalar("loss", 1.25),
    "array": lambda w, L: w.add_scalar("loss", np.float32(2), 1, walltime=3.0),
    "new style": lambda w, L: w.add_scalar("loss", 1.25, 2, new_style=True),
    "in doubles": lambda w, L: w.add_scalar("loss", 0.1, 2, new_style=True, double_precision=True),
    "scalars": lambda w, L: w.add_scalars("a/b", {"x": 1, "y": L.tensor([2.0])}, 4),
    "histogram": lambda w, L: w.add_histogram("w", L.tensor(VALUES), 1),
    "histogram in bins": lambda w, L: w.add_histogram("w", VALUES, 1, bins="auto"),
    "histogram in few bins": lambda w, L: w.add_histogram("w", VALUES, 1, bins=64, max_bins=10),
    "histogram of one": lambda w, L: w.add_histogram("w", np.zeros(5), 1),
    "image": lambda w, L: w.add_image("i", L.tensor(PIXELS), 2),
    "image of bytes": lambda w, L: w.add_image("i", BYTES),
    "image turned": lambda w, L: w.add_image("i", BYTES.transpose(1, 2, 0), dataformats="HWC"),
    "grey": lambda w, L: w.add_image("i", PIXELS[0], dataformats="HW"),
    "grey with an axis": lambda w, L: w.add_image("i", PIXELS[:1]),
    "images": lambda w, L: w.add_images("i", np.stack([PIXELS * k / 10 for k in range(10)]), 1),
    "grey images": lambda w, L: w.add_images("i", PIXELS[:, None]),
    "text": lambda w, L: w.add_text("t", "**é**", 5),
    "hyperparameters": lambda w, L: w.add_hparams(
        {"lr": 0.1, "n": 3, "s": "adam", "none": None}, {"acc": 0.5}, {"n": [1, 3], "s": ["adam", "sgd"]},
        run_name="r", global_step=2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_events_are_those_of_pytorch(tmp_path, name):
    theirs, ours = written(tmp_path, CALLS[name])
    assert ours == theirs
    assert sum(map(len, ours.values())) >= 2


def test_a_figure_is_an_image(tmp_path):
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    def call(w: Any, library: Any) -> None:
        made = []
        for _ in range(2):
            figure, axes = pyplot.subplots(figsize=(2, 1))
            axes.plot([1, 2, 3])
            made.append(figure)
        w.add_figure("f", made[0], 1, close=False)
        w.add_figure("g", made, 2)
        assert not pyplot.get_fignums()

    theirs, ours = written(tmp_path, call)
    sizes = [[(e.summary.value[0].image.height, e.summary.value[0].image.width) for e in found["."][1:]]
             for found in (theirs, ours)]  # fmt: skip
    assert sizes[0] == sizes[1] == [(100, 200), (100, 400)]


def test_what_comes_after_a_crash_and_after_closing(tmp_path):
    theirs, ours = written(tmp_path, lambda w, L: w.add_scalar("x", 1, 7), purge_step=5)
    assert ours == theirs
    writer = SummaryWriter(tmp_path / "again")
    writer.close()
    writer.add_scalar("x", 1)
    writer.close()
    assert writer.get_logdir() == str(tmp_path / "again")
    assert [e.summary.value[0].tag for e in events(tmp_path / "again")["."] if e.summary.value] == [
        "x"
    ]


def test_the_default_folder_has_the_time_and_the_comment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="_lr1") as writer:
        assert re.fullmatch(r"runs/\w{3}\d\d_\d\d-\d\d-\d\d_.*_lr1", writer.get_logdir())


def test_a_bool_among_hyperparameters_is_one(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams({"b": True, "t": adjit.tensor([2.0])}, {"m": 1}, run_name="r")
    assert any(b"b\x12\x02 \x01" in e.SerializeToString() for e in events(tmp_path)["r"])


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda w, L: w.add_scalar("x", L.ones(2)), AssertionError),
        (lambda w, L: w.add_histogram("x", L.ones(0)), ValueError),
        (lambda w, L: w.add_image("x", L.ones(2, 3)), AssertionError),
        (lambda w, L: w.add_image("x", L.ones(2, 3, 3), dataformats="CCW"), AssertionError),
        (lambda w, L: w.add_hparams({"a": [1]}, {}), ValueError),
        (lambda w, L: w.add_hparams([1], {}), TypeError),
        (lambda w, L: w.add_hparams({"a": 1}, {}, {"b": [1]}), TypeError),
    ],
)
def test_what_cannot_be_shown_is_refused(tmp_path, call, kind):
    for library, writer in zip((torch, adjit), WRITERS, strict=True):
        with writer(str(tmp_path / library.__name__)) as w, pytest.raises(kind):
            call(w, library)


def test_a_histogram_without_numbers_in_its_bins_is_refused(tmp_path):
    with (
        SummaryWriter(tmp_path) as writer,
        pytest.raises(ValueError, match="no number is in a bin"),
    ):
        writer.add_histogram("x", np.ones(3), bins=[5, 6])


def test_without_the_package_the_import_says_what_is_missing():
    code = "import sys; sys.modules['tensorboard'] = None\nimport adjit\nimport adjit.utils.tensorboard"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (
        "ImportError: adjit.utils.tensorboard writes with the package tensorboard" in found.stderr
    )
