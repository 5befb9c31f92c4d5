"""`SummaryWriter`: the events in its files are those that PyTorch's writes."""

from __future__ import annotations

import io
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
WIDE = np.random.default_rng(2).random((3, 40, 60)).astype(np.float32)
BOXES = np.array([[2.0, 3.0, 30.0, 20.0], [10.0, 5.0, 50.0, 35.0]])
LABELS = np.random.default_rng(3).integers(0, 2, 50)
CHANCES = np.random.default_rng(4).random(50).astype(np.float32)
SPACE = np.random.default_rng(5).random((1, 4, 3)).astype(np.float32)
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
    "histogram of counts": lambda w, L: w.add_histogram_raw("h", 0.5, 2.0, 3, 3.0, 5.5, [1.0, 2.0], [1, 2], 3),
    "tensor": lambda w, L: w.add_tensor("x", L.arange(6.0).view(2, 3), 1),
    "tensor of bools": lambda w, L: w.add_tensor("x", L.tensor([True, False])),
    "tensor of int64": lambda w, L: w.add_tensor("x", L.tensor([3, -4])),
    "tensor of bytes": lambda w, L: w.add_tensor("x", L.tensor([3, 4], dtype=L.uint8)),
    "tensor of int16": lambda w, L: w.add_tensor("x", L.tensor([3, 4], dtype=L.int16)),
    "tensor of doubles": lambda w, L: w.add_tensor("x", L.tensor([3.5], dtype=L.float64)),
    "boxes": lambda w, L: w.add_image_with_boxes("b", L.tensor(WIDE), L.tensor(BOXES), 2),
    "boxes with labels": lambda w, L: w.add_image_with_boxes(
        "b", WIDE, BOXES, rescale=1.5, labels=["one", "two"]
    ),
    "boxes with a label too few": lambda w, L: w.add_image_with_boxes("b", WIDE, BOXES, labels="one"),
    "sound": lambda w, L: w.add_audio("s", L.tensor(np.sin(np.arange(200) / 9)), 3, sample_rate=8000),
    "loud sound": lambda w, L: w.add_audio("s", 2 * np.cos(np.arange(200) / 9)[None]),
    "curve": lambda w, L: w.add_pr_curve("p", L.tensor(LABELS), L.tensor(CHANCES), 1),
    "curve of weights": lambda w, L: w.add_pr_curve(
        "p", LABELS, CHANCES, num_thresholds=20, weights=CHANCES + 1
    ),
    "curve with many points": lambda w, L: w.add_pr_curve("p", LABELS, CHANCES, num_thresholds=500),
    "curve of counts": lambda w, L: w.add_pr_curve_raw(
        "p", L.tensor([3.0, 2.0]), [1, 0], [0, 1], [0, 1], [0.75, 1.0], [1.0, 0.6], 4, num_thresholds=2
    ),
    "points in space": lambda w, L: w.add_mesh("m", L.tensor(SPACE), global_step=1),
    "mesh": lambda w, L: w.add_mesh(
        "m", L.tensor(SPACE), L.tensor(BYTES[None, 0, :4, :3]), L.tensor([[[0, 1, 2], [1, 2, 3]]]),
        {"camera": {"cls": "PerspectiveCamera", "fov": 75}},
    ),
    "charts": lambda w, L: w.add_custom_scalars(
        {"a": {"x": ["Multiline", ["l/1", "l/2"]], "y": ["Margin", ["m", "l", "h"]]}, "b": {}}
    ),
    "lines of a chart": lambda w, L: w.add_custom_scalars_multilinechart(["l/1", "l/2"], title="t"),
    "margins": lambda w, L: w.add_custom_scalars_marginchart(["m", "l", "h"], "c"),
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


def files(folder: Path) -> dict[str, bytes]:
    """What lies in a folder beside files of events."""
    found = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in found
        if not file.name.startswith("events.out")
    }


EMBEDDINGS = {
    "points": lambda w, L: w.add_embedding(L.tensor(VALUES)),
    "labels": lambda w, L: w.add_embedding(L.tensor(VALUES), ["a", "b", 3], global_step=2, tag="x/y%"),
    "columns": lambda w, L: w.add_embedding(
        L.tensor(VALUES), [["a", 1], ["b", 2], ["c", 3]], metadata_header=["name", "number"]
    ),
    "images": lambda w, L: w.add_embedding(L.tensor(VALUES), None, L.tensor(PIXELS[:, None, :4, :4])),
    "two": lambda w, L: [w.add_embedding(L.tensor(VALUES), global_step=k) for k in range(2)],
}  # fmt: skip


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_files_of_embeddings_are_those_of_pytorch(tmp_path, name):
    written(tmp_path, EMBEDDINGS[name])
    theirs, ours = (files(tmp_path / library) for library in ("torch", "adjit"))
    assert theirs
    assert ours == theirs


def test_embeddings_that_do_not_fit(tmp_path):
    for library, writer in zip((torch, adjit), WRITERS, strict=True):
        with writer(str(tmp_path / library.__name__)) as w:
            for given, told in (
                ({"metadata": ["a"]}, "#labels should equal with #data points"),
                ({"label_img": library.ones(1, 3, 2, 2)}, "#images should equal with #data points"),
                ({"metadata": ["ab"] * 3, "metadata_header": ["x"]}, "len of header must be equal"),
            ):
                with pytest.raises(AssertionError, match=told):
                    w.add_embedding(library.tensor(VALUES), **given)
            with pytest.raises(AssertionError, match="mat should be 2D"):
                w.add_embedding(library.ones(3))
            with pytest.raises(AssertionError, match="Expected 3 tags, got 1"):
                w.add_custom_scalars_marginchart(["a"])
            with pytest.raises(AssertionError, match="should be 1 dimensional"):
                w.add_audio("a", library.ones(2, 3))
            with pytest.raises(ValueError, match="bucket_limits"):
                w.add_histogram_raw("h", 0, 1, 1, 1, 1, [1.0], [])


def test_a_video_is_a_moving_image_of_its_frames(tmp_path):
    from PIL import Image, ImageSequence

    frames = np.zeros((3, 2, 1, 4, 8), np.uint8)  # two frames of three videos
    frames[0, 1], frames[2, 0] = 255, 255
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_video("v", adjit.tensor(frames), 1, fps=2)
    (event,) = [e for e in events(tmp_path)["."] if e.summary.value]
    film = event.summary.value[0].image
    assert (film.height, film.width, event.step) == (4, 32, 1)
    image = Image.open(io.BytesIO(film.encoded_image_string))
    shown = [np.asarray(f.convert("L")) for f in ImageSequence.Iterator(image)]
    expected = np.zeros((2, 4, 32))
    expected[1, :, :8], expected[0, :, 16:24] = 255, 255
    np.testing.assert_array_equal(shown, expected)
    assert image.info["duration"] == 500


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_videos_lie_side_by_side_as_in_pytorch(count):
    from torch.utils.tensorboard._utils import _prepare_video

    from adjit.utils.tensorboard_summaries import frames_of

    for videos in (np.random.rand(count, 2, 3, 4, 6), np.full((count, 2, 1, 4, 6), 77, np.uint8)):
        np.testing.assert_array_equal(frames_of(videos), _prepare_video(videos))


def net_of(library: Any) -> Any:
    """A module with parts, one of which is called twice."""
    nn = library.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 6)
            self.inner = nn.Sequential(nn.Tanh(), nn.Linear(6, 6), nn.ReLU())

        def forward(self, x, y):
            h = self.inner(self.inner(self.first(x)))
            return (h + y).softmax(1), h.sum(0)

    return Net()


def graph_in(folder: Path) -> Any:
    """The graph in the files of a folder."""
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    (event,) = [e for e in events(folder)["."] if e.graph_def]
    return GraphDef.FromString(event.graph_def)


def calls_and_edges(graph: Any) -> tuple[list[Any], list[Any]]:
    """The calls of a graph with their modules and shapes, in order, and which goes where."""

    def shape(node: Any) -> list[int]:
        return [d.size for d in node.attr["_output_shapes"].list.shape[0].dim]

    def what(node: Any) -> tuple[str, str]:
        home = (
            node.name if node.op in ("IO Node", "prim::GetAttr") else node.name.rpartition("/")[0]
        )
        return (home.rpartition("/")[0] if node.op == "prim::GetAttr" else home), node.op

    by_name = {node.name: node for node in graph.node}
    told = [node for node in graph.node if node.op.startswith(("aten", "IO"))]
    edges = [
        (what(by_name[name]), what(node))
        for node in told
        if node.op != "IO Node"  # PyTorch makes one tuple of what a module returns
        for name in node.input
        if by_name[name].op.startswith(("aten", "IO", "prim::GetAttr"))
    ]
    return [(*what(node), shape(node)) for node in told if node.op != "IO Node"], sorted(edges)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_graph_of_a_module_is_that_of_pytorch(tmp_path):
    found = []
    for library, writer in zip((torch, adjit), WRITERS, strict=True):
        folder, net = tmp_path / library.__name__, net_of(library)
        net.inner[1].eval()
        with writer(str(folder)) as w:
            w.add_graph(net, (library.ones(2, 4), library.ones(6)))
        assert net.training
        graph = graph_in(folder)
        assert graph.versions.producer == 22
        assert len({node.name for node in graph.node}) == len(graph.node)
        (told,) = [
            e.tagged_run_metadata for e in events(folder)["."] if e.HasField("tagged_run_metadata")
        ]
        found.append((*calls_and_edges(graph), told))
    assert not net.inner[1].training  # PyTorch has all parts train afterwards
    assert found[1] == found[0]


def test_graphs_of_constants_properties_and_unused_arguments(tmp_path, capsys):
    class Net(adjit.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", adjit.ones(3))

        def forward(self, x, unused):
            x += self.table
            return {"a": x.T @ adjit.ones(2, 2), "b": self.table}

    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_graph(Net(), (adjit.ones(2, 3), adjit.ones(1)), verbose=True)
    nodes = {node.name: node for node in graph_in(tmp_path).node}
    assert list(nodes["output/output.1"].input) == ["Net/matmul"]
    assert list(nodes["output/output.2"].input) == ["Net/table/table"]
    assert list(nodes["Net/matmul"].input) == ["Net/T", "Net/ones"]
    assert list(nodes["Net/T"].input) == ["Net/add"]
    assert list(nodes["Net/add"].input) == ["input/x", "Net/table/table"]
    assert "input/unused" not in nodes
    assert "Net/matmul = aten::matmul(Net/T, Net/ones)" in capsys.readouterr().out


def test_a_forward_that_fails_writes_no_graph(tmp_path, capsys):
    net = adjit.nn.Linear(3, 2)
    with SummaryWriter(str(tmp_path)) as writer:
        with pytest.raises(RuntimeError):
            writer.add_graph(net, adjit.ones(2, 5))
        with pytest.raises(NotImplementedError, match="adjit reads no ONNX files"):
            writer.add_onnx_graph("net.onnx")
    assert "Error occurs, No graph saved" in capsys.readouterr().out
    assert net.training
    assert adjit.ones(2).sin().sum() > 0  # no mode is left behind
