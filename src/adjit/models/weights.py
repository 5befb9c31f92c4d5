"""Weights of models: what they are, and the local files they are read from."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Self

from .. import config, serialization


class ImageClassification(NamedTuple):
    """The preparation of the images that a model was measured with.

    The shorter side is scaled to `resize_size` (bilinear, with antialiasing), the middle
    `crop_size` by `crop_size` pixels are taken, brought to [0, 1], and `(x - mean) / std` is
    computed for red, green and blue. A description: adjit reads and scales no images.

    Example:
        >>> adjit.models.ResNet18_Weights.DEFAULT.transforms().crop_size
        224
    """

    crop_size: int
    resize_size: int = 256
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


class Weights(NamedTuple):
    """Weights that somebody trained: a description of their file.

    Attributes:
        url: where their file comes from. Its name ends in the first digits of its SHA-256.
        preset: how images have to be prepared.
        meta: what is known: `num_params`, `num_classes`, and `_metrics` as torchvision reports them.

    Example:
        >>> adjit.models.ResNet18_Weights.DEFAULT.value.meta["num_params"]
        11689512
    """

    url: str
    preset: ImageClassification
    meta: dict[str, Any]


class WeightsEnum(Enum):
    """The weights that there are for a model; `DEFAULT` names the best.

    Example:
        >>> adjit.models.ResNet50_Weights.DEFAULT.name
        'IMAGENET1K_V2'
    """

    @classmethod
    def verify(cls, obj: Any) -> Self | None:
        """Find a member of this enum for a member, its name, or None.

        Raises:
            TypeError: for a member of another model's weights, or anything else.
            KeyError: for a name that is not there.

        Example:
            >>> adjit.models.ResNet50_Weights.verify("IMAGENET1K_V1").name
            'IMAGENET1K_V1'
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
        """The address that the file comes from.

        Example:
            >>> adjit.models.ResNet18_Weights.DEFAULT.url
            'https://download.pytorch.org/models/resnet18-f37072fd.pth'
        """
        return str(self.value.url)

    @property
    def meta(self) -> dict[str, Any]:
        """The facts that are known about the weights.

        Example:
            >>> adjit.models.ResNet18_Weights.DEFAULT.meta["num_classes"]
            1000
        """
        return dict(self.value.meta)

    def transforms(self) -> ImageClassification:
        """Tell how images have to be prepared.

        Example:
            >>> adjit.models.ResNet18_Weights.DEFAULT.transforms().resize_size
            256
        """
        return self.value.preset

    @property
    def path(self) -> Path:
        """The place where the file has to be: in `checkpoints` in the folder that `ADJIT_HOME` names.

        Example:
            >>> adjit.models.ResNet18_Weights.DEFAULT.path.name
            'resnet18-f37072fd.pth'
        """
        home = Path(config.HOME) if config.HOME else config.user_cache() / "adjit"
        return home / "checkpoints" / self.url.rpartition("/")[2]

    def get_state_dict(self, check_hash: bool = True, progress: bool = True) -> dict[str, Any]:
        """Read the weights from their local file.

        Args:
            check_hash: compare the file's SHA-256 with the digits in its name.
            progress: torchvision has this argument for its downloads; adjit has none.

        Raises:
            FileNotFoundError: if there is no such file; says which one to put where.
            RuntimeError: if it is another file than its name says.

        Example:
            >>> model = adjit.models.resnet18()
            >>> weights = adjit.models.ResNet18_Weights.DEFAULT
            >>> if weights.path.exists():
            ...     model.load_state_dict(weights.get_state_dict())
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
