"""Writing what TensorBoard shows: PyTorch's `SummaryWriter`, on the package `tensorboard`.

Without it the import of this module says what is missing.
"""

from __future__ import annotations

import io
import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..nn.module import Module
from ..tensor import Tensor

try:
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog, TaggedRunMetadata
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
    from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    from . import tensorboard_graph
    from . import tensorboard_summaries as summaries
except ImportError as error:
    raise ImportError(
        "adjit.utils.tensorboard writes with the package tensorboard: pip install tensorboard"
    ) from error

__all__ = ["SummaryWriter"]


def _array(values: Any) -> np.ndarray[Any, Any]:
    return values.numpy(force=True) if isinstance(values, Tensor) else np.asarray(values)


class SummaryWriter:
    """Write numbers, images, sounds, texts, graphs and more to files of events for TensorBoard.

    Args:
        log_dir: the folder; by default `runs/`, then the date, the time, the machine's name and `comment`.
        comment: the end of the name of the default folder.
        purge_step: have TensorBoard hide earlier events from this step on, after a crash.
        max_queue: the events that wait before they are written.
        flush_secs: the seconds after which they are written.
        filename_suffix: the end of the names of the files.

    Example:
        >>> with adjit.utils.tensorboard.SummaryWriter("run") as writer:
        ...     writer.add_scalar("loss", adjit.tensor(0.5), global_step=1)
    """

    def __init__(
        self, log_dir: str | os.PathLike[str] | None = None, comment: str = "", purge_step: int | None = None,
        max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "",
    ) -> None:  # fmt: skip
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self.purge_step = purge_step
        self._queue = max_queue, flush_secs, filename_suffix
        self._writers: dict[str, Any] = {}
        self._projector = ProjectorConfig()
        self._writer(self.log_dir)

    def _writer(self, folder: str) -> Any:
        """What writes into a folder; opened again where it was closed."""
        writer = self._writers.get(folder)
        if writer is None:
            writer = self._writers[folder] = EventFileWriter(folder, *self._queue)
            if self.purge_step is not None:
                for given in (
                    {"file_version": "brain.Event:2"},
                    {"session_log": SessionLog(status=SessionLog.START)},
                ):
                    writer.add_event(Event(step=self.purge_step, wall_time=time.time(), **given))
                self.purge_step = None
        return writer

    def _add(
        self, value: Any, global_step: Any, walltime: float | None, folder: str | None = None
    ) -> None:
        summary = value if isinstance(value, Summary) else Summary(value=[value])
        event = Event(summary=summary, wall_time=time.time() if walltime is None else walltime)
        if global_step is not None:
            event.step = int(global_step)
        self._writer(folder or self.log_dir).add_event(event)

    def get_logdir(self) -> str:
        """Tell the folder of the files.

        Example:
            >>> adjit.utils.tensorboard.SummaryWriter("run").get_logdir()
            'run'
        """
        return self.log_dir

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: Any = None, walltime: float | None = None,
        new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """Write a number: a point of the curve `tag`.

        Raises:
            AssertionError: if it is not one number.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_scalar("loss", 0.5, 1)
        """
        value = _scalar(tag, scalar_value, new_style, double_precision)
        self._add(value, global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Write numbers of several curves that are shown together, each into a folder of its own.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_scalars("loss", {"train": 0.5, "test": 0.6}, 1)
        """
        walltime = time.time() if walltime is None else walltime
        for tag, number in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            self._add(_scalar(main_tag, number), global_step, walltime, folder)

    def add_histogram(
        self, tag: str, values: Any, global_step: Any = None, bins: Any = "tensorflow",
        walltime: float | None = None, max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """Write how often numbers occur: of a tensor or an array of any shape.

        Args:
            bins: "tensorflow" for bins that grow by a tenth, or what `numpy.histogram` takes.
            max_bins: bins are joined until there are no more than these.

        Raises:
            ValueError: if there are no numbers.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_histogram("weights", adjit.rand(100), 1)
        """
        wanted = _growing_bins() if isinstance(bins, str) and bins == "tensorflow" else bins
        self._add(
            Summary.Value(tag=tag, histo=_histogram(_array(values), wanted, max_bins)),
            global_step,
            walltime,
        )

    def add_histogram_raw(
        self, tag: str, min: float, max: float, num: int, sum: float, sum_squares: float,
        bucket_limits: Any, bucket_counts: Any, global_step: Any = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Write how often numbers occur that were counted elsewhere.

        Args:
            bucket_limits: the upper ends of the bins.
            bucket_counts: how many numbers are in each.

        Raises:
            ValueError: if there are not as many counts as bins.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_histogram_raw("w", 0.0, 2.0, 3, 3.0, 5.0, [1.0, 2.0], [1, 2])
        """
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        histogram = HistogramProto(
            min=min, max=max, num=num, sum=sum, sum_squares=sum_squares,
            bucket_limit=_array(bucket_limits).tolist(), bucket=_array(bucket_counts).tolist(),
        )  # fmt: skip
        self._add(Summary.Value(tag=tag, histo=histogram), global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Tensor, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Write the elements of a tensor.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_tensor("x", adjit.ones(3))
        """
        self._add(summaries.tensor(tag, _array(tensor)), global_step, walltime)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """Write an image of bytes, or of floats in [0, 1].

        Args:
            img_tensor: (3, H, W) or (1, H, W), unless `dataformats` says otherwise: "HWC", "HW", ….

        Raises:
            AssertionError: if the letters do not fit the shape.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_image("input", adjit.rand(3, 8, 8))
        """
        image = _image(_in_colour(_array(img_tensor), dataformats.upper()))
        self._add(Summary.Value(tag=tag, image=image), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Write images side by side, eight to a row; arguments as for `add_image`.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_images("inputs", adjit.rand(4, 3, 8, 8))
        """
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_image_with_boxes(
        self, tag: str, img_tensor: Any, box_tensor: Any, global_step: Any = None,
        walltime: float | None = None, rescale: float = 1, dataformats: str = "CHW",
        labels: str | Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Write an image with red boxes.

        Args:
            img_tensor: as for `add_image`.
            box_tensor: (boxes, 4): left, top, right and bottom of each, in pixels.
            rescale: how many times larger the image is written.
            labels: a text for each box; left out if there are not as many.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_image_with_boxes("i", adjit.rand(3, 8, 8), adjit.tensor([[1., 1., 5., 5.]]))
        """
        boxes = _array(box_tensor)
        if isinstance(labels, str):
            labels = [labels]
        if labels is not None and len(labels) != len(boxes):
            labels = None
        pixels = _bytes_of(_in_colour(_array(img_tensor), dataformats.upper()))
        image = _image(summaries.with_boxes(pixels, boxes, labels, rescale))
        image.height, image.width = pixels.shape[:2]  # as PyTorch says, also of one that is larger
        self._add(Summary.Value(tag=tag, image=image), global_step, walltime)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: Any = None, fps: float = 4,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Write videos of bytes, or of floats in [0, 1], side by side as one film.

        Args:
            vid_tensor: (videos, frames, colours, height, width).
            fps: frames per second.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_video("moves", adjit.rand(2, 5, 3, 8, 8))
        """
        self._add(summaries.video(tag, _array(vid_tensor), fps), global_step, walltime)

    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: Any = None, sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Write sound of one channel, in [-1, 1].

        Args:
            snd_tensor: (samples,) or (1, samples).

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_audio("tone", adjit.linspace(0, 100, 1000).sin())
        """
        self._add(summaries.audio(tag, _array(snd_tensor), sample_rate), global_step, walltime)

    def add_mesh(
        self, tag: str, vertices: Any, colors: Any = None, faces: Any = None,
        config_dict: Mapping[str, Any] | None = None, global_step: Any = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Write points in space, or a mesh.

        Args:
            vertices: (batch, points, 3).
            colors: (batch, points, 3), bytes or floats in [0, 1].
            faces: (batch, faces, 3), the numbers of the points of each.
            config_dict: how Three.js shows it.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_mesh("cloud", adjit.rand(1, 10, 3))
        """
        given = {summaries.VERTEX: vertices, summaries.FACE: faces, summaries.COLOR: colors}
        parts = {kind: None if one is None else _array(one) for kind, one in given.items()}
        self._add(summaries.mesh(tag, parts, config_dict), global_step, walltime)

    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, global_step: Any = None,
        num_thresholds: int = 127, weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Write precision over recall.

        Args:
            labels: 1 where something is there, 0 where not.
            predictions: the chances that it is there, in [0, 1].
            num_thresholds: the points of the curve, at most 127.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_pr_curve("found", adjit.tensor([0, 1, 1]), adjit.tensor([0.2, 0.7, 0.4]))
        """
        counts = summaries.counts_of(_array(labels), _array(predictions), num_thresholds, weights)
        self._add(summaries.curve(tag, counts, num_thresholds), global_step, walltime)

    def add_pr_curve_raw(
        self, tag: str, true_positive_counts: Any, false_positive_counts: Any,
        true_negative_counts: Any, false_negative_counts: Any, precision: Any, recall: Any,
        global_step: Any = None, num_thresholds: int = 127, weights: Any = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Write precision over recall, and the counts that they come from, at thresholds.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_pr_curve_raw("found", [2], [1], [0], [0], [0.67], [1.0], num_thresholds=1)
        """
        given = (true_positive_counts, false_positive_counts, true_negative_counts,
                 false_negative_counts, precision, recall)  # fmt: skip
        counts = [_array(one) for one in given]
        self._add(summaries.curve(tag, counts, num_thresholds), global_step, walltime)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Have curves shown in common charts; once for a writer.

        Args:
            layout: by category and title, `["Multiline", tags]`, or `["Margin", [value, lower, upper]]`.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_custom_scalars({"loss": {"both": ["Multiline", ["train", "test"]]}})
        """
        self._add(summaries.layout(layout), None, None)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Have curves shown in one chart.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_custom_scalars_multilinechart(["train", "test"])
        """
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Have a curve shown between two others.

        Args:
            tags: the curve, the lower one, the upper one.

        Raises:
            AssertionError: if these are not three.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_custom_scalars_marginchart(["mean", "low", "high"])
        """
        if len(tags) != 3:
            raise AssertionError(f"Expected 3 tags, got {len(tags)}.")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_embedding(
        self, mat: Any, metadata: Sequence[Any] | None = None, label_img: Any = None,
        global_step: Any = None, tag: str = "default", metadata_header: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Write points for the projector, into files of their own in the writer's folder.

        Args:
            mat: (points, width).
            metadata: a label for each point, or several if there is a `metadata_header`.
            label_img: (points, colours, H, W), an image in [0, 1] for each.

        Raises:
            AssertionError: if there are not as many labels or images as points.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_embedding(adjit.rand(3, 5), metadata=["a", "b", "c"], global_step=1)
        """
        step = str(0 if global_step is None else global_step).zfill(5)
        subfolder = f"{step}/{summaries.encoded(tag)}"
        folder = Path(self.log_dir) / subfolder
        if folder.is_dir():
            print("warning: Embedding dir exists, did you set global_step for add_embedding()?")
        elif folder.exists():
            raise NotADirectoryError(f"Path: `{folder}` exists, but is a file. Cannot proceed.")
        folder.mkdir(parents=True, exist_ok=True)
        images = None if label_img is None else _array(label_img)
        summaries.embedding(folder, _array(mat), metadata, images, metadata_header)
        name = f"{tag}:{step}"
        self._projector.embeddings.append(
            summaries.embedding_info(name, subfolder, metadata is not None, images)
        )
        config = Path(self.log_dir) / "projector_config.pbtxt"
        config.write_text(str(self._projector), encoding="utf-8")

    def add_graph(
        self, model: Module, input_to_model: Any = None, verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:  # fmt: skip
        """Write the graph of a module: the functions that one call of it calls, in the modules around them.

        The call is in evaluation mode.

        Args:
            input_to_model: the argument, or a tuple of them.
            verbose: whether the graph is printed.
            use_strict_trace: not used: lists and dicts of tensors may be given and returned.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_graph(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), adjit.ones(2, 3))
        """
        try:
            graph, metadata = tensorboard_graph.graph_of(model, input_to_model, verbose)
        except RuntimeError as error:
            print(error)
            print("Error occurs, No graph saved")
            raise
        told = TaggedRunMetadata(tag="step1", run_metadata=metadata.SerializeToString())
        for part in ({"graph_def": graph.SerializeToString()}, {"tagged_run_metadata": told}):
            self._writer(self.log_dir).add_event(Event(wall_time=time.time(), **part))

    def add_onnx_graph(self, prototxt: Any) -> NoReturn:
        """Refuse: no ONNX files are read here.

        Raises:
            NotImplementedError: always.

        Example:
            >>> adjit.utils.tensorboard.SummaryWriter("run").add_onnx_graph("net.onnx")
            Traceback (most recent call last):
            NotImplementedError: adjit reads no ONNX files; write the graph of a module by add_graph
        """
        raise NotImplementedError(
            "adjit reads no ONNX files; write the graph of a module by add_graph"
        )

    def add_figure(
        self, tag: str, figure: Any, global_step: Any = None, close: bool = True,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Write a figure of matplotlib, or a list of figures of one size, and close it unless told otherwise.

        Example:
            >>> from matplotlib.figure import Figure
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_figure("curve", Figure(), close=False)
        """
        figures = list(figure) if isinstance(figure, Sequence) else [figure]
        drawn = [_drawn(one) for one in figures]
        if close:
            from matplotlib import pyplot

            for one in figures:
                pyplot.close(one)
        if isinstance(figure, Sequence):
            self.add_images(tag, np.stack(drawn), global_step, walltime, "NHWC")
        else:
            self.add_image(tag, drawn[0], global_step, walltime, "HWC")

    def add_text(
        self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Write a text, which may be Markdown.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_text("notes", "**first** run")
        """
        plugin = SummaryMetadata.PluginData(
            plugin_name="text", content=TextPluginData(version=0).SerializeToString()
        )
        text = TensorProto(
            dtype="DT_STRING", string_val=[text_string.encode()],
            tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
        )  # fmt: skip
        value = Summary.Value(
            tag=f"{tag}/text_summary", metadata=SummaryMetadata(plugin_data=plugin), tensor=text
        )
        self._add(value, global_step, walltime)

    def add_hparams(
        self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any],
        hparam_domain_discrete: Mapping[str, list[Any]] | None = None, run_name: str | None = None,
        global_step: Any = None,
    ) -> None:  # fmt: skip
        """Write the hyperparameters of a run and what came out, into a folder of its own.

        Args:
            hparam_dict: numbers, bools, strings and tensors of one element by their names; None is left out.
            metric_dict: numbers by their names.
            hparam_domain_discrete: the values that a hyperparameter can have, by its name.
            run_name: the name of the folder; the time unless given.

        Raises:
            TypeError: if they are no dicts, or values do not fit.
            ValueError: for a value of another type.

        Example:
            >>> writer = adjit.utils.tensorboard.SummaryWriter("run")
            >>> writer.add_hparams({"lr": 0.1, "layers": 2}, {"accuracy": 0.9}, run_name="first")
        """
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        parts = _hyperparameters(hparam_dict, metric_dict, hparam_domain_discrete or {})
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        with SummaryWriter(folder) as writer:
            for part in parts:
                writer._add(part, global_step, None)
            for name, number in metric_dict.items():
                writer.add_scalar(name, number, global_step)

    def flush(self) -> None:
        """Write what waits.

        Example:
            >>> adjit.utils.tensorboard.SummaryWriter("run").flush()
        """
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Write what waits and close the files; what is added later opens others.

        Example:
            >>> adjit.utils.tensorboard.SummaryWriter("run").close()
        """
        for writer in self._writers.values():
            writer.flush()
            writer.close()
        self._writers.clear()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ----- what the files hold -----


def _scalar(tag: str, number: Any, new_style: bool = False, double_precision: bool = False) -> Any:
    found = _array(number).squeeze()
    if found.ndim:
        raise AssertionError(
            "Tensor should contain one element (0 dimensions). Was given size: "
            f"{found.size} and {found.ndim} dimensions."
        )
    if not new_style:
        return Summary.Value(tag=tag, simple_value=float(found))
    kind = "DOUBLE" if double_precision else "FLOAT"
    proto = TensorProto(dtype=f"DT_{kind}", **{f"{kind.lower()}_val": [float(found)]})
    plugin = SummaryMetadata.PluginData(plugin_name="scalars")
    return Summary.Value(tag=tag, tensor=proto, metadata=SummaryMetadata(plugin_data=plugin))


def _growing_bins() -> list[float]:
    bins = [1e-12]
    while bins[-1] * 1.1 < 1e20:
        bins.append(bins[-1] * 1.1)
    return [-edge for edge in reversed(bins)] + [0.0] + bins


def _histogram(values: np.ndarray[Any, Any], bins: Any, max_bins: int | None) -> Any:
    """The counts of the bins from the first to the last that is not empty, and an empty one before."""
    values = values.reshape(-1)
    if not values.size:
        raise ValueError("The input has no element.")
    counts, edges = np.histogram(values, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        joined = len(counts) // max_bins
        rest = len(counts) % joined
        counts = np.pad(counts, (0, joined - rest if rest else 0)).reshape(-1, joined).sum(axis=-1)
        edges = np.append(edges[:-1:joined], edges[-1])
    (used,) = np.nonzero(counts)
    if not used.size:
        raise ValueError("The histogram is empty: no number is in a bin.")
    first, last = int(used[0]), int(used[-1]) + 1
    shown = counts[first - 1 : last] if first else np.append(0, counts[:last])
    return HistogramProto(
        min=values.min(), max=values.max(), num=len(values), sum=values.sum(),
        sum_squares=values.dot(values), bucket_limit=edges[first : last + 1].tolist(),
        bucket=shown.tolist(),
    )  # fmt: skip


def _in_colour(image: np.ndarray[Any, Any], letters: str) -> np.ndarray[Any, Any]:
    """An image as (H, W, colours); several as a grid."""
    if len(set(letters)) != len(letters):
        raise AssertionError(
            f"You can not use the same dimension shorthand twice. input_format: {letters}"
        )
    if image.ndim != len(letters):
        raise AssertionError(
            "size of input tensor and input format are different. tensor shape: "
            f"{image.shape}, input_format: {letters}"
        )
    wanted = {4: "NHWC", 3: "HWC", 2: "HW"}[image.ndim]
    image = image.transpose([letters.index(letter) for letter in wanted])
    if image.ndim == 2:
        image = image[..., None]
    if image.shape[-1] == 1:
        image = np.repeat(image, 3, axis=-1)
    return image if image.ndim == 3 else _grid(image)


def _grid(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    count, height, width, colours = images.shape
    columns = min(count, 8)
    rows = math.ceil(count / columns)
    filled = np.zeros((rows * columns, height, width, colours), images.dtype)
    filled[:count] = images
    tiles = filled.reshape(rows, columns, height, width, colours)
    return tiles.swapaxes(1, 2).reshape(rows * height, columns * width, colours)


def _bytes_of(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    scale = 1 if pixels.dtype == np.uint8 else 255
    return (pixels.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)


def _image(pixels: np.ndarray[Any, Any]) -> Any:
    from PIL import Image

    pixels = _bytes_of(pixels)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="PNG")
    height, width, colours = pixels.shape
    return Summary.Image(
        height=height, width=width, colorspace=colours, encoded_image_string=stream.getvalue()
    )


def _drawn(figure: Any) -> np.ndarray[Any, Any]:
    """The pixels of a figure of matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def _hyperparameters(
    given: dict[str, Any], metrics: dict[str, Any], domains: Mapping[str, list[Any]]
) -> list[Any]:
    """The three parts that the plugin of hyperparameters reads: the experiment, its begin and its end."""
    for name, domain in domains.items():
        if (
            name not in given
            or not isinstance(domain, list)
            or not all(isinstance(value, type(given[name])) for value in domain)
        ):
            raise TypeError(
                f"parameter: hparam_domain_discrete[{name}] should be a list of same type as "
                f"hparam_dict[{name}]."
            )
    begin, infos = plugin_data_pb2.SessionStartInfo(), []
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, Tensor):
            value = value.item()
        if isinstance(value, bool):
            kind, field = "BOOL", "bool_value"
        elif isinstance(value, (int, float)):
            kind, field = "FLOAT64", "number_value"
        elif isinstance(value, str):
            kind, field = "STRING", "string_value"
        else:
            raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")
        setattr(begin.hparams[name], field, value)
        info = api_pb2.HParamInfo(name=name, type=api_pb2.DataType.Value(f"DATA_TYPE_{kind}"))
        for choice in domains.get(name, ()):
            setattr(info.domain_discrete.values.add(), field, choice)
        infos.append(info)
    experiment = api_pb2.Experiment(
        hparam_infos=infos,
        metric_infos=[api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in metrics],
    )
    end = plugin_data_pb2.SessionEndInfo(status=api_pb2.Status.Value("STATUS_SUCCESS"))
    return [
        _of_plugin(metadata.EXPERIMENT_TAG, experiment=experiment),
        _of_plugin(metadata.SESSION_START_INFO_TAG, session_start_info=begin),
        _of_plugin(metadata.SESSION_END_INFO_TAG, session_end_info=end),
    ]


def _of_plugin(tag: str, **part: Any) -> Any:
    content = plugin_data_pb2.HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **part)
    plugin = SummaryMetadata.PluginData(
        plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString()
    )
    return Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin))
