"""Weights of models: what they are, and the local files they are read from."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Self

from .. import config, serialization


class ImageClassification(NamedTuple):
    """How the images were prepared that a model was measured with.

    The shorter side is scaled to `resize_size` (bilinear, with antialiasing), the middle
    `crop_size` by `crop_size` pixels are taken, brought to [0, 1], and `(x - mean) / std` is
    computed for red, green and blue. A description: adjit reads and scales no images.
    """

    crop_size: int
    resize_size: int = 256
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


class Weights(NamedTuple):
    """Weights that somebody trained.

    Attributes:
        url: where their file comes from. Its name ends in the first digits of its SHA-256.
        preset: how images have to be prepared.
        meta: what is known: `num_params`, `num_classes`, and `_metrics` as torchvision reports them.
    """

    url: str
    preset: ImageClassification
    meta: dict[str, Any]


class WeightsEnum(Enum):
    """The weights that there are for a model; `DEFAULT` names the best."""

    @classmethod
    def verify(cls, obj: Any) -> Self | None:
        """A member of this enum for a member, its name, or None.

        Raises:
            TypeError: for a member of another model's weights, or anything else.
            KeyError: for a name that is not there.
        """
        if obj is None or isinstance(obj, cls):
            return obj
        if isinstance(obj, str):
            return cls[obj.removeprefix(f"{cls.__name__}.")]
        raise TypeError(
            f"Invalid Weight class provided; expected {cls.__name__} but received "
            f"{type(obj).__name__}."
        )

    @property
    def url(self) -> str:
        """Where the file comes from."""
        return str(self.value.url)

    @property
    def meta(self) -> dict[str, Any]:
        """What is known about the weights."""
        return dict(self.value.meta)

    def transforms(self) -> ImageClassification:
        """How images have to be prepared."""
        return self.value.preset

    @property
    def path(self) -> Path:
        """Where the file has to be: in `checkpoints` in the folder that `ADJIT_HOME` names."""
        home = Path(config.HOME) if config.HOME else config.user_cache() / "adjit"
        return home / "checkpoints" / self.url.rpartition("/")[2]

    def get_state_dict(self, check_hash: bool = True, progress: bool = True) -> dict[str, Any]:
        """The weights, from their local file.

        Args:
            check_hash: compare the file's SHA-256 with the digits in its name.
            progress: torchvision has this argument for its downloads; adjit has none.

        Raises:
            FileNotFoundError: if there is no such file; says which one to put where.
            RuntimeError: if it is another file than its name says.
        """
        path = self.path
        if not path.exists():
            raise FileNotFoundError(
                f"the file of {self} is missing: download {self.url} and put it at {path}, or set "
                "ADJIT_HOME to a folder that has it in its folder 'checkpoints'. adjit downloads "
                "nothing by itself"
            )
        if check_hash:
            _check_hash(path)
        return serialization.load(path, map_location="cpu")


def _check_hash(path: Path) -> None:
    """Compare a file with the digits at the end of its name."""
    import hashlib

    expected = path.stem.rpartition("-")[2]
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(expected):
        raise RuntimeError(
            f"{path} is not the file that it should be: its SHA-256 begins with "
            f"{found[: len(expected)]}, not with {expected}. Download it again; weights of your own "
            "are loaded with model.load_state_dict(adjit.load(...))"
        )
