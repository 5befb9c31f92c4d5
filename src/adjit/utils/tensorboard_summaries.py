"""What files for TensorBoard hold beside numbers, images and texts: curves, sounds, films, meshes, points."""

from __future__ import annotations

import io
import json
import math
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.mesh import metadata as mesh_metadata
from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData
from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData
from tensorboard.plugins.projector.projector_config_pb2 import EmbeddingInfo

Array = np.ndarray[Any, Any]

MOST_THRESHOLDS = 127  # PyTorch's limit: more do not fit what it writes
LEAST = 1e-7  # in the place of counts that are 0


def _floats(data: Array) -> Any:
    """Numbers with their shape."""
    sizes = [TensorShapeProto.Dim(size=size) for size in data.shape]
    return TensorProto(
        dtype="DT_FLOAT",
        float_val=data.reshape(-1).tolist(),
        tensor_shape=TensorShapeProto(dim=sizes),
    )


FIELDS = {  # by kind and size of numbers: the name of their type, the field that holds them
    ("f", 4): ("FLOAT", "float_val"), ("f", 8): ("DOUBLE", "double_val"), ("i", 8): ("INT64", "int64_val"),
    ("i", 4): ("INT32", "int_val"), ("i", 2): ("INT16", "int_val"), ("i", 1): ("INT8", "int_val"),
    ("u", 1): ("UINT8", "uint32_val"), ("b", 1): ("BOOL", "bool_val"),
}  # fmt: skip


def tensor(tag: str, data: Array) -> Any:
    """The elements of a tensor."""
    found = FIELDS.get((data.dtype.kind, data.dtype.itemsize))
    if found is None:
        raise ValueError(f"{tag} has unsupported tensor dtype {data.dtype}")
    kind, field = found
    sizes = [TensorShapeProto.Dim(size=size) for size in data.shape]
    proto = TensorProto(
        dtype=f"DT_{kind}", tensor_shape=TensorShapeProto(dim=sizes),
        **{field: data.reshape(-1).tolist()},
    )  # fmt: skip
    plugin = SummaryMetadata.PluginData(plugin_name="tensor")
    return Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=proto)


def curve(tag: str, counts: Sequence[Any], thresholds: int) -> Any:
    """Counts of true and false positives and negatives, precision and recall, at thresholds."""
    content = PrCurvePluginData(version=0, num_thresholds=min(thresholds, MOST_THRESHOLDS))
    plugin = SummaryMetadata.PluginData(
        plugin_name="pr_curves", content=content.SerializeToString()
    )
    return Summary.Value(
        tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=_floats(np.stack(counts))
    )


def counts_of(labels: Array, predictions: Array, thresholds: int, weights: Any) -> list[Array]:
    """What `curve` is made of."""
    thresholds = min(thresholds, MOST_THRESHOLDS)
    weights = 1.0 if weights is None else weights
    places = np.int32(np.floor(predictions * (thresholds - 1)))
    positive = labels.astype(np.float64)

    def at_least(of: Any) -> Array:
        counts, _ = np.histogram(places, bins=thresholds, range=(0, thresholds - 1), weights=of)
        return np.cumsum(counts[::-1])[::-1]

    tp, fp = at_least(positive * weights), at_least((1.0 - positive) * weights)
    tn, fn = fp[0] - fp, tp[0] - tp
    precision, recall = (tp / np.maximum(LEAST, tp + other) for other in (fp, fn))
    return [tp, fp, tn, fn, precision, recall]


def layout(charts: Mapping[str, Mapping[str, Sequence[Any]]]) -> Any:
    """Which curves are shown together, by categories and titles."""
    categories = []
    for category, titled in charts.items():
        shown = []
        for title, (kind, tags, *_) in titled.items():
            if kind != "Margin":
                lines = layout_pb2.MultilineChartContent(tag=tags)
                shown.append(layout_pb2.Chart(title=title, multiline=lines))
                continue
            if len(tags) != 3:
                raise AssertionError("len(tags) != 3")
            series = layout_pb2.MarginChartContent.Series(
                value=tags[0], lower=tags[1], upper=tags[2]
            )
            margin = layout_pb2.MarginChartContent(series=[series])
            shown.append(layout_pb2.Chart(title=title, margin=margin))
        categories.append(layout_pb2.Category(title=category, chart=shown))
    text = TensorProto(
        dtype="DT_STRING", string_val=[layout_pb2.Layout(category=categories).SerializeToString()],
        tensor_shape=TensorShapeProto(),
    )  # fmt: skip
    plugin = SummaryMetadata.PluginData(plugin_name="custom_scalars")
    return Summary.Value(
        tag="custom_scalars__config__", tensor=text, metadata=SummaryMetadata(plugin_data=plugin)
    )


def mesh(tag: str, parts: Mapping[Any, Array | None], config: Any) -> Any:
    """Vertices, faces and colours."""
    there = {kind: data for kind, data in parts.items() if data is not None}
    written = "{}" if config is None else json.dumps(config, sort_keys=True)
    components = mesh_metadata.get_components_bitmask(list(there))
    values = []
    for kind, data in there.items():
        told = mesh_metadata.create_summary_metadata(
            tag, None, kind, components, data.shape, None, json_config=written
        )
        name = mesh_metadata.get_instance_name(tag, kind)
        values.append(Summary.Value(tag=name, tensor=_floats(data), metadata=told))
    return Summary(value=values)


VERTEX, FACE, COLOR = MeshPluginData.VERTEX, MeshPluginData.FACE, MeshPluginData.COLOR


def audio(tag: str, samples: Array, rate: int) -> Any:
    """Sound of one channel in [-1, 1], as a WAV file of 16 bits."""
    samples = samples.squeeze()
    if abs(samples).max() > 1:
        print("warning: audio amplitude out of range, auto clipped.")
        samples = samples.clip(-1, 1)
    if samples.ndim != 1:
        raise AssertionError("input tensor should be 1 dimensional.")
    samples = (samples * np.iinfo(np.int16).max).astype("<i2")
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    sound = Summary.Audio(
        sample_rate=rate, num_channels=1, length_frames=len(samples),
        encoded_audio_string=stream.getvalue(), content_type="audio/wav",
    )  # fmt: skip
    return Summary.Value(tag=tag, audio=sound)


def frames_of(videos: Array) -> Array:
    """Videos (videos, frames, colours, height, width) side by side: frames (frames, height, width, colours).

    A power of two of them fits into a grid, which is as high as wide or half as high; the rest is black.
    """
    count, frames, colours, height, width = videos.shape
    if videos.dtype == np.uint8:
        videos = videos.astype(np.float32) / 255.0
    missing = 0 if count & (count - 1) == 0 else 2 ** count.bit_length() - count
    if missing:
        black = np.zeros((missing, frames, colours, height, width))
        videos = np.concatenate((videos, black), axis=0)
    rows = 2 ** ((count.bit_length() - 1) // 2)
    columns = (count + missing) // rows
    tiles = videos.reshape(rows, columns, frames, colours, height, width)
    return tiles.transpose(2, 0, 4, 1, 5, 3).reshape(
        frames, rows * height, columns * width, colours
    )


def video(tag: str, videos: Array, fps: float) -> Any:
    """A moving GIF."""
    from PIL import Image

    frames = (frames_of(videos).astype(np.float32) * 255).clip(0, 255).astype(np.uint8)
    if frames.shape[-1] == 1:
        frames = np.repeat(frames, 3, axis=-1)
    first, *others = [Image.fromarray(frame) for frame in frames]
    stream = io.BytesIO()
    first.save(
        stream, format="GIF", save_all=True, append_images=others, duration=1000 / fps, loop=0
    )
    _, height, width, colours = frames.shape
    film = Summary.Image(
        height=height, width=width, colorspace=colours, encoded_image_string=stream.getvalue()
    )
    return Summary.Value(tag=tag, image=film)


def with_boxes(pixels: Array, boxes: Array, labels: Sequence[str] | None, rescale: float) -> Array:
    """An image (H, W, colours) of bytes with red boxes (left, top, right, bottom), which may have labels."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(pixels)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default()
    for k, (left, top, right, bottom) in enumerate(boxes[:, :4].tolist()):
        corners = [(left, top), (left, bottom), (right, bottom), (right, top), (left, top)]
        draw.line(corners, width=2, fill="Red")
        if labels is not None and (label := labels[k]):
            start, above, end, below = font.getbbox(label)
            margin = math.ceil(0.05 * (below - above))
            height = below - above
            at = bottom - height - 2 * margin
            draw.rectangle([(left, at), (left + end - start, bottom)], fill="Red")
            draw.text((left + margin, bottom - height - margin), label, fill="black", font=font)
    height, width = pixels.shape[:2]
    return np.asarray(image.resize((int(width * rescale), int(height * rescale)), Image.LANCZOS))


# ----- points of an embedding: files of their own -----


def encoded(tag: str) -> str:
    """A tag as a part of a path."""
    for letter in "%/\\":
        tag = tag.replace(letter, f"%{ord(letter):02x}")
    return tag


def embedding(
    folder: Path, points: Array, metadata: Any, images: Array | None, header: Any
) -> None:
    """Write points, what is known of them, and their images into a folder."""
    if metadata is not None:
        if len(points) != len(metadata):
            raise AssertionError("#labels should equal with #data points")
        lines = [str(entry) for entry in metadata]
        if header:
            if len(header) != len(metadata[0]):
                raise AssertionError(
                    "len of header must be equal to the number of columns in metadata"
                )
            lines = ["\t".join(map(str, entry)) for entry in [header, *metadata]]
        (folder / "metadata.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if images is not None:
        if len(points) != len(images):
            raise AssertionError("#images should equal with #data points")
        (folder / "sprite.png").write_bytes(_sprite(images))
    if points.ndim != 2:
        raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
    rows = ["\t".join(map(str, row)) + "\n" for row in points.tolist()]
    (folder / "tensors.tsv").write_text("".join(rows), encoding="utf-8")


def embedding_info(name: str, subfolder: str, has_metadata: bool, images: Array | None) -> Any:
    """Where the projector finds the files of an embedding."""
    info = EmbeddingInfo(tensor_name=name, tensor_path=f"{subfolder}/tensors.tsv")
    if has_metadata:
        info.metadata_path = f"{subfolder}/metadata.tsv"
    if images is not None:
        info.sprite.image_path = f"{subfolder}/sprite.png"
        info.sprite.single_image_dim.extend([images.shape[3], images.shape[2]])
    return info


def _sprite(images: Array) -> bytes:
    """Images (images, colours, H, W) in a square, which the projector cuts into them again."""
    from PIL import Image

    count, colours, height, width = images.shape
    if colours == 1:
        images = np.repeat(images, 3, axis=1)
    side = math.ceil(count**0.5)
    square = np.zeros((side * width, side * width, 3))
    for k, image in enumerate(images):
        top, left = k // side * height, k % side * width
        square[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    stream = io.BytesIO()
    Image.fromarray(np.uint8((square * 255).clip(0, 255))).save(stream, format="PNG")
    return stream.getvalue()
