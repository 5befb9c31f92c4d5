"""Train a classifier on the 1,797 scanned digits that scikit-learn ships.

Writes `demo-output/digits.png` (loss curve, test digits with predictions) and
`demo-output/graph.svg` (the backward graph of the model), and prints the test accuracy.
"""

import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import adjit
from adjit import nn, optim
from adjit.nn import functional as F
from adjit.utils.data import DataLoader, TensorDataset

EPOCHS = 30
OUTPUT = Path("demo-output")


def split_digits(seed: int, test_share: float = 0.25):
    """(train, test) datasets of standardised images and labels, no digit in both."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images = digits.data.astype(np.float32)[order] / 16
    labels = digits.target.astype(np.int64)[order]
    cut = int(len(labels) * (1 - test_share))
    mean, spread = images[:cut].mean(), images[:cut].std()  # of the training images alone
    images = (images - mean) / spread
    pairs = [(images[:cut], labels[:cut]), (images[cut:], labels[cut:])]
    return [TensorDataset(adjit.tensor(x), adjit.tensor(y)) for x, y in pairs]


def train(model: nn.Module, dataset: TensorDataset) -> list[float]:
    """Fit the model; the loss after every epoch."""
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    losses = []
    with tqdm(range(EPOCHS), desc="training", unit="epoch") as progress:
        for _ in progress:
            total = adjit.zeros(())
            for images, labels in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                total += loss.detach() * len(labels)
            scheduler.step()
            losses.append(total.item() / len(dataset))
            progress.set_postfix(loss=f"{losses[-1]:.4f}")
    return losses


@adjit.no_grad()
def predict(model: nn.Module, images: adjit.Tensor) -> adjit.Tensor:
    """The most likely digit of each image."""
    model.eval()
    return model(images).argmax(dim=1)


def draw_results(
    losses: list[float], images: np.ndarray, labels: np.ndarray, found: np.ndarray, picture: Path
) -> None:
    """The loss curve, and test digits under the label that the model gives them."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.3])
    axes = left.subplots()
    axes.semilogy(range(1, len(losses) + 1), losses)
    axes.set(xlabel="epoch", ylabel="training loss", title="Loss")
    axes.grid(alpha=0.3)
    right.suptitle(
        f"{(labels == found).sum()} of {len(labels)} test digits right; "
        "in red: mistakes (with the true digit)",
        fontsize=10,
    )
    wrong_first = np.argsort(labels == found, kind="stable")[:7]
    chosen = np.concatenate([wrong_first, np.setdiff1d(np.arange(28), wrong_first)])[:28]
    for k, box in zip(chosen, right.subplots(4, 7).flat, strict=True):
        box.imshow(images[k].reshape(8, 8), cmap="gray_r")
        right_answer = labels[k] == found[k]
        text = str(found[k]) if right_answer else f"{found[k]} ({labels[k]})"
        box.set_title(text, fontsize=9, color="black" if right_answer else "crimson")
        box.axis("off")
    figure.savefig(picture, dpi=120)


def main() -> None:
    start = time.perf_counter()
    adjit.manual_seed(0)
    train_set, test_set = split_digits(seed=0)
    model = nn.Sequential(
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    print(f"{len(train_set)} training digits, {len(test_set)} test digits")
    print("the very first run compiles its kernels in the first epoch")
    losses = train(model, train_set)

    images, labels = test_set.tensors
    found = predict(model, images)
    accuracy = (found == labels).float().mean().item()

    OUTPUT.mkdir(exist_ok=True)
    picture = OUTPUT / "digits.png"
    draw_results(losses, images.numpy(), labels.numpy(), found.numpy(), picture)
    model.train()
    loss = F.cross_entropy(model(images[:8]), labels[:8])
    adjit.autograd.draw(loss, dict(model.named_parameters())).save(OUTPUT / "graph.svg")
    print(f"wrote {picture} and {OUTPUT / 'graph.svg'}")
    print(f"{time.perf_counter() - start:.1f} s")
    print(f"test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
