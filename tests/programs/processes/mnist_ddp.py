"""A convolutional classifier in several processes, as a launcher starts them: samplers, losses summed.

`LIBRARY` says which library it imports, and the argument where the first process writes what it has found.
"""

import importlib
import os
import sys

import numpy as np

torch = importlib.import_module(os.environ["LIBRARY"])
dist = importlib.import_module(f"{torch.__name__}.distributed")
DistributedSampler = importlib.import_module(
    f"{torch.__name__}.utils.data.distributed"
).DistributedSampler
nn, F = torch.nn, torch.nn.functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.conv2 = nn.Conv2d(4, 8, 3, 1)
        self.dropout1 = nn.Dropout(0.0)  # random numbers are those of a library
        self.fc1 = nn.Linear(128, 16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def main():
    dist.init_process_group(backend="gloo")
    rank, size = int(os.environ["RANK"]), dist.get_world_size()
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.standard_normal((36, 1, 12, 12)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, 10, 36))
    data = torch.utils.data.TensorDataset(images, labels)
    sampler = DistributedSampler(data, num_replicas=size, rank=rank, shuffle=False)
    loader = torch.utils.data.DataLoader(data, batch_size=6, sampler=sampler)

    model = Net()
    with torch.no_grad():
        rng = np.random.default_rng(1 + rank)  # those of the first process are taken over
        for p in model.parameters():
            fan = p[0].numel() if p.ndim > 1 else 1
            values = rng.standard_normal(tuple(p.shape)) * (0.5 / fan**0.5)
            p.copy_(torch.from_numpy(values.astype(np.float32)))
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    losses = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for batch, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(batch), target)
            loss.backward()
            optimizer.step()
            told = loss.detach().clone()
            dist.all_reduce(told, op=dist.ReduceOp.SUM)
            losses.append(told.item() / size)
        model.eval()
        found = torch.zeros(2)
        with torch.no_grad():
            for batch, target in loader:
                output = model(batch)
                found[0] += F.nll_loss(output, target, reduction="sum")
                found[1] += output.argmax(dim=1).eq(target).sum()
        dist.all_reduce(found)
        losses += found.tolist()
        scheduler.step()
    dist.barrier()
    if rank == 0:
        np.savez(sys.argv[1], losses, *[p.detach().numpy() for p in model.parameters()])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
