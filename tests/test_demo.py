"""The programs of `make demo` and `make demo-cnn` learn the digits and draw what they learned."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")
image = pytest.importorskip("matplotlib.image")
pytest.importorskip("tqdm")

PROGRAMS = Path(__file__).parent.parent / "notebooks"


class Demo:
    """A run of a demo in a folder of its own."""

    def __init__(self, folder: Path, program: str, *options: str) -> None:
        self.folder = folder / "demo-output"
        result = subprocess.run(
            [sys.executable, str(PROGRAMS / program), *options],
            cwd=folder,
            env={**os.environ, "MPLBACKEND": "agg"},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        self.lines = result.stdout.splitlines()
        self.progress = result.stderr


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return Demo(tmp_path_factory.mktemp("demo"), "digits.py")


def test_the_last_line_is_the_accuracy_and_it_is_good(demo: Demo) -> None:
    found = re.fullmatch(r"test accuracy (0\.9\d\d)", demo.lines[-1])
    assert found
    assert float(found[1]) >= 0.95


def test_no_warning_is_shown(demo: Demo) -> None:
    assert "Warning" not in demo.progress


def test_the_loss_falls(demo: Demo) -> None:
    losses = [float(loss) for loss in re.findall(r"loss=(\d+\.\d+)", demo.progress)]
    assert losses[-1] < 0.2 * losses[0]


def test_the_digits_are_drawn(demo: Demo) -> None:
    data = (demo.folder / "digits.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])  # of the header, always the first chunk
    assert 800 <= width <= 3000
    assert 300 <= height <= 2000
    assert 10_000 < len(data) < 500_000


def test_the_graph_is_drawn_with_the_names_of_the_parameters(demo: Demo) -> None:
    root = ElementTree.parse(demo.folder / "graph.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("AddmmBackward0") == 3
    assert {"0.weight", "0.bias", "5.weight", "5.bias"} <= set(texts)


def test_a_convolutional_network_learns_the_digits(tmp_path: Path) -> None:
    demo = Demo(tmp_path, "digits_cnn.py")
    found = re.fullmatch(r"test accuracy (\d\.\d\d\d)", demo.lines[-1])
    assert found
    assert float(found[1]) >= 0.97
    assert "Warning" not in demo.progress
    assert (demo.folder / "digits_cnn.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_convolutional_network_learns_the_images_of_a_folder(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for label, light in (("day", 0.6), ("night", 0.1)):
        (tmp_path / "images" / label).mkdir(parents=True)
        for k in range(12):
            size = (int(rng.integers(20, 50)), int(rng.integers(20, 50)), 3 + k % 2)
            pixels = np.clip(light + 0.2 * rng.random(size), 0, 1)
            image.imsave(tmp_path / "images" / label / f"{k}.png", pixels)
    demo = Demo(tmp_path, "digits_cnn.py", "--images", str(tmp_path / "images"))
    assert demo.lines[0] == "18 training images, 6 test images"
    assert demo.lines[-1] == "test accuracy 1.000"
