"""Train a convolutional network on the 1,797 scanned digits that scikit-learn ships.

    python notebooks/digits_cnn.py [--images FOLDER]

Writes `demo-output/digits_cnn.png` and prints the test accuracy. With `--images`, learns instead from
the PNG and JPEG files of a folder that has a folder of its own for each class, `FOLDER/cat/1.png`.
"""

import argparse
import time
from pathlib import Path

import digits
import matplotlib.image
import numpy as np

import adjit
from adjit import nn
from adjit.nn import functional as F
from adjit.utils.data import TensorDataset

SIZE = 32  # of the images of a folder, which are brought to one


def network(channels: int, size: int, classes: int) -> nn.Module:
    """Two blocks of convolutions with batch norm, then the mean over the image."""

    def block(columns: int, wide: int) -> list[nn.Module]:
        convolution = nn.Conv2d(columns, wide, 3, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(wide), nn.ReLU()]

    return nn.Sequential(
        nn.Unflatten(1, (channels, size, size)),
        *block(channels, 32),
        *block(32, 32),
        nn.MaxPool2d(2),
        *block(32, 64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(64, classes),
    )


def split_folder(folder: Path, seed: int, test_share: float = 0.25):
    """(train, test) datasets of the images of a folder, and the names of its classes."""
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
    images, labels = [], []
    for label, name in enumerate(classes):
        for path in sorted((folder / name).iterdir()):
            if path.suffix.lower() in (".png", ".jpg", ".jpeg"):
                images.append(read_image(path).flatten())
                labels.append(label)
    if len(set(labels)) < 2:
        raise SystemExit(f"{folder} needs at least two folders with PNG or JPEG files, one a class")
    x, y = adjit.stack(images), adjit.tensor(labels)
    order = adjit.tensor(np.random.default_rng(seed).permutation(len(labels)))
    cut = int(len(labels) * (1 - test_share))
    train, test = order[:cut], order[cut:]
    x = (x - x[train].mean()) / x[train].std()
    return TensorDataset(x[train], y[train]), TensorDataset(x[test], y[test]), classes


def read_image(path: Path) -> adjit.Tensor:
    """The red, green and blue of an image file, in the size of all."""
    found = matplotlib.image.imread(path).astype(np.float32)
    if found.max() > 1:
        found /= 255
    if found.ndim == 2:
        found = np.repeat(found[:, :, None], 3, 2)
    pixels = adjit.tensor(found[:, :, :3]).permute(2, 0, 1).unsqueeze(0)
    return F.interpolate(pixels, (SIZE, SIZE), mode="bilinear", antialias=True)[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    start = time.perf_counter()
    adjit.manual_seed(0)
    if options.images is None:
        train_set, test_set = digits.split_digits(seed=0)
        model = network(1, 8, 10)
    else:
        train_set, test_set, classes = split_folder(options.images, seed=0)
        model = network(3, SIZE, len(classes))
    print(f"{len(train_set)} training images, {len(test_set)} test images")
    print("the very first run compiles its kernels in the first epoch")
    losses = digits.train(model, train_set)

    images, labels = test_set.tensors
    found = digits.predict(model, images)
    accuracy = (found == labels).float().mean().item()
    if options.images is None:
        digits.OUTPUT.mkdir(exist_ok=True)
        picture = digits.OUTPUT / "digits_cnn.png"
        digits.draw_results(losses, images.numpy(), labels.numpy(), found.numpy(), picture)
        print(f"wrote {picture}")
        print("for your own images: --images FOLDER, with a folder of PNG or JPEG files for each class")
    print(f"{time.perf_counter() - start:.1f} s")
    print(f"test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
