"""Hogwild: processes that train one model in shared memory, without a lock.

`LIBRARY` says which library it imports; the arguments are how many processes there are (0: this one trains)
and where to write what was found.
"""

import importlib
import os
import sys

import numpy as np

torch = importlib.import_module(os.environ["LIBRARY"])
mp = importlib.import_module(f"{torch.__name__}.multiprocessing")
nn, F = torch.nn, torch.nn.functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=3)
        self.conv2 = nn.Conv2d(4, 8, kernel_size=2)
        self.conv2_drop = nn.Dropout2d(0.0)  # random numbers are those of a library
        self.fc1 = nn.Linear(32, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = F.relu(self.fc1(x.view(-1, 32)))
        return F.log_softmax(self.fc2(x), dim=1)


def dataset():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 64)
    shown = rng.standard_normal((4, 1, 12, 12))[labels] + 0.3 * rng.standard_normal((64, 1, 12, 12))
    return torch.utils.data.TensorDataset(
        torch.from_numpy(shown.astype(np.float32)), torch.from_numpy(labels)
    )


def train(rank, model, data, epochs, seen):
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    model.train()
    for _ in range(epochs):
        for batch, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(batch), target)
            loss.backward()
            optimizer.step()
            seen[rank] += 1


def tested(model, data):
    model.eval()
    with torch.no_grad():
        shown, labels = data.tensors
        output = model(shown)
        right = output.max(1)[1].eq(labels).sum().item()
        return [F.nll_loss(output, labels, reduction="sum").item() / len(data), right]


if __name__ == "__main__":
    count, target = int(sys.argv[1]), sys.argv[2]
    mp.set_start_method("spawn", force=True)
    model, data = Net(), dataset()
    with torch.no_grad():
        rng = np.random.default_rng(1)
        for p in model.parameters():
            fan = p[0].numel() if p.ndim > 1 else 1
            values = rng.standard_normal(tuple(p.shape)) / fan**0.5
            p.copy_(torch.from_numpy(values.astype(np.float32)))
    seen = torch.zeros(max(count, 1), dtype=torch.int64)
    losses = tested(model, data)
    if count:
        model.share_memory()  # gradients come later, and are each process's own
        seen.share_memory_()
        processes = [
            mp.Process(target=train, args=(rank, model, data, 3, seen)) for rank in range(count)
        ]
        for p in processes:
            p.start()
        for p in processes:
            p.join()
    else:
        train(0, model, data, 3, seen)
    losses += [*tested(model, data), *seen.tolist()]
    np.savez(target, losses, *[p.detach().numpy() for p in model.parameters()])
