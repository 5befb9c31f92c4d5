"""Modules in several processes: gradients beside one process on the whole batch, and beside PyTorch's."""

import importlib
import warnings

import numpy as np
import pytest
from in_processes import results

import adjit
import adjit.distributed as dist
from adjit import nn

needs_mpi = pytest.mark.skipif(
    not dist.is_mpi_available(), reason="needs mpi4py and an MPI: pip install adjit[distributed]"
)


def network(T, rank=0):
    T.manual_seed(0)
    net = T.nn.Sequential(
        T.nn.Linear(5, 7), T.nn.BatchNorm1d(7), T.nn.Tanh(), T.nn.Linear(7, 3)
    ).double()
    with T.no_grad():
        for k, p in enumerate(
            net.parameters()
        ):  # the same for both libraries, others in other processes
            p.copy_(T.arange(p.numel(), dtype=T.float64).reshape(p.shape).mul(0.7 + k + rank).sin())
    return net


def data(T):
    values = T.arange(60, dtype=T.float64).reshape(12, 5).mul(1.3).sin()
    return values, T.arange(12) % 3


def trained(T, dist, rank, size):
    """Gradients and buffers after some steps: of all processes, and of one on the whole batch."""
    inputs, targets = data(T)
    whole = network(T)
    net = T.nn.SyncBatchNorm.convert_sync_batchnorm(network(T, rank))
    net = T.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1e-5)
    rows = slice(rank * 12 // size, (rank + 1) * 12 // size)
    steps = []
    for one, x, y in ((net, inputs[rows], targets[rows]), (whole, inputs, targets)):
        optimizer = T.optim.SGD(one.parameters(), lr=0.1, momentum=0.9)
        for _ in range(4):
            optimizer.zero_grad()
            T.nn.functional.cross_entropy(one(x), y).backward()
            optimizer.step()
        steps.append([t.tolist() for t in (*[p.grad for p in one.parameters()], *one.buffers())])
    return *steps, list(net.state_dict())


@pytest.mark.in_turn(3)
@needs_mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_gradients_are_those_of_the_whole_batch(size):
    found = results(trained, size)
    for several, whole, names in found:
        assert several == found[0][0]  # the same bits in all processes
        for one, other in zip(several, whole, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
        assert names[:3] == ["module.0.weight", "module.0.bias", "module.1.weight"]


def ways_of_training(T, dist, rank, size):
    """What no_sync, unused parameters and buffers of rank 0 give."""
    DDP = T.nn.parallel.DistributedDataParallel
    found = {}
    x = T.ones(2, 3, dtype=T.float64) * (rank + 1)

    def line():
        T.manual_seed(1)
        made = T.nn.Linear(3, 1).double()
        with T.no_grad():
            made.weight.fill_(0.5)
        return made

    net = DDP(line())
    with net.no_sync():
        net(x).sum().backward()
        found["alone"] = net.module.weight.grad.tolist()
    net(x).sum().backward()
    found["together"] = net.module.weight.grad.tolist()

    class Branches(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.always, self.sometimes, self.never = line(), line(), line()

        def forward(self, x):
            out = self.always(x)
            return out + self.sometimes(x) if rank == 0 else out

    net = DDP(Branches(), find_unused_parameters=True)
    for _ in range(2):
        net(x).sum().backward()
    found["unused"] = [p.grad if p.grad is None else p.grad.tolist() for p in net.parameters()]
    net = DDP(Branches())
    net(x).sum().backward()
    try:
        net(x)
    except RuntimeError as error:
        found["not finished"] = str(error).split("\n")[0]
    norm = DDP(T.nn.BatchNorm1d(3).double())
    norm(T.arange(6.0, dtype=T.float64).reshape(2, 3) * (rank + 1)).sum().backward()
    norm(x).sum().backward()  # begins with what rank 0 has
    found["buffers"] = norm.module.running_mean.tolist()
    for call in (
        lambda: DDP(T.nn.ReLU()),
        lambda: DDP(line(), device_ids=[0]),
    ):
        try:
            call()
        except Exception as error:
            found[str(call.__code__.co_firstlineno)] = type(error).__name__, str(error)[:80]
    return found


@pytest.mark.in_turn(2)
@needs_mpi
def test_ways_of_training_do_what_pytorchs_do():
    pytest.importorskip("torch")
    ours, theirs = results(ways_of_training, 2), results(ways_of_training, 2, library="torch")
    for one, other in zip(ours, theirs, strict=True):
        if not one.get("not finished"):
            assert "not finished" not in other
        assert one == other


def uneven(T, dist, rank, size):
    """What training on different numbers of batches gives, in several ways."""
    warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated")
    DDP, double = T.nn.parallel.DistributedDataParallel, T.float64
    algorithms = importlib.import_module(f"{dist.__name__}.algorithms.join")
    zero = importlib.import_module(f"{dist.__name__}.optim").ZeroRedundancyOptimizer
    batches = [
        T.arange(12.0, dtype=double).reshape(4, 3).sin() + rank + k for k in range(2 * rank + 1)
    ]

    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            T.manual_seed(1)
            self.first, self.norm = T.nn.Linear(3, 4).double(), T.nn.BatchNorm1d(4).double()
            self.last, self.never = T.nn.Linear(4, 1).double(), T.nn.Linear(4, 1).double()
            with T.no_grad():
                for k, p in enumerate(self.parameters()):
                    p.copy_(
                        T.arange(float(p.numel()), dtype=double).reshape(p.shape).cos() / (k + 1)
                    )

        def forward(self, x, everything=True):
            h = self.norm(self.first(x)).tanh()
            return self.last(h) + self.never(h) if everything else self.last(h)

    def trained(net, enter, everything=True, accumulate=False, optimizer=None):
        optimizer = optimizer or T.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        with enter(net, optimizer):
            for k, x in enumerate(batches):
                if accumulate and k % 2 == 0:
                    with net.no_sync():
                        net(x, everything).square().mean().backward()
                else:
                    net(x, everything).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        return [t.tolist() for t in (*net.parameters(), *net.buffers())]

    found = {
        "by all": trained(DDP(Net(), bucket_cap_mb=1e-5), lambda net, _: net.join()),
        "by the active": trained(
            DDP(Net(), bucket_cap_mb=1e-5),
            lambda net, _: net.join(divide_by_initial_world_size=False),
        ),
        "unused": trained(
            DDP(Net(), find_unused_parameters=True), lambda net, _: net.join(), everything=False
        ),
        "without buffers": trained(DDP(Net(), broadcast_buffers=False), lambda net, _: net.join()),
        "added up": trained(DDP(Net()), lambda net, _: net.join(), accumulate=True),
    }
    net = DDP(Net())
    optimizer = zero(net.parameters(), T.optim.SGD, lr=0.1)
    join = algorithms.Join
    found["share of the state"] = trained(net, lambda *both: join(list(both)), optimizer=optimizer)
    try:
        trained(DDP(Net()), lambda net, _: net.join(throw_on_early_termination=True))
    except RuntimeError as error:
        found["thrown"] = str(error)
    with DDP(Net()).join(enable=False):
        pass
    try:
        join([])
    except ValueError as error:
        found["empty"] = str(error)

    class Counter(algorithms.Joinable):
        def __init__(self):
            super().__init__()
            self.seen, self.last, self.most = T.zeros(1), [], 0

        def __call__(self):
            join.notify_join_context(self)
            one = T.ones(1)
            dist.all_reduce(one)
            self.seen += one

        def join_hook(self, **kwargs):
            counter = self

            class Hook(algorithms.JoinHook):
                def main_hook(self):
                    dist.all_reduce(T.zeros(1))

                def post_hook(self, is_last_joiner):
                    counter.last.append((is_last_joiner, kwargs))

            return Hook()

        @property
        def join_device(self):
            return T.device("cpu")

        @property
        def join_process_group(self):
            return dist.group.WORLD

    counter = Counter()
    with join([counter], more=3):
        for _ in batches:
            counter()
    found["counter"] = counter.seen.item(), counter.last
    return found


@pytest.mark.in_turn(2)
@needs_mpi
@pytest.mark.parametrize("size", [2, 3])
def test_processes_with_different_numbers_of_batches(size):
    pytest.importorskip("torch")
    ours, theirs = results(uneven, size), results(uneven, size, library="torch")
    for rank, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert one.keys() == other.keys()
        for name, values in other.items():
            if isinstance(values, list):
                for a, b, first in zip(one[name], values, ours[0][name], strict=True):
                    np.testing.assert_allclose(
                        a, b, rtol=1e-10, atol=1e-12, err_msg=f"{name}, {rank}"
                    )
                    assert a == first or name == "without buffers"
            else:
                assert one[name] == values
    assert ours[0]["counter"][1] == [(False, {"more": 3})]
    assert ours[-1]["counter"][1] == [(True, {"more": 3})]


def test_one_process_without_gpus_runs_the_module():
    net = nn.Linear(2, 1)
    for wrapped in (nn.DataParallel(net), nn.DataParallel(net, device_ids=None)):
        assert wrapped.module is net
        assert adjit.equal(wrapped(adjit.ones(3, 2)), net(adjit.ones(3, 2)))
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        nn.parallel.DistributedDataParallel(net)


def test_copies_pass_gradients_back():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    twins = nn.parallel.replicate(net, ["cpu", "cpu"])
    parts = nn.parallel.scatter((adjit.randn(4, 2),), ["cpu", "cpu"])
    out = nn.parallel.gather(nn.parallel.parallel_apply(twins, parts), "cpu")
    assert out.shape == (4, 3)
    (out * adjit.arange(12.0).reshape(4, 3)).sum().backward()
    assert net[1].weight.grad.abs().sum() > 0
    assert list(net.state_dict()) == list(nn.DataParallel(net).module.state_dict())


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [4, 5, 11, 12])
def test_samplers_have_pytorchs_parts(length, size, drop_last):
    torch = pytest.importorskip("torch")
    for rank in range(size):
        given = (range(length), size, rank, False, 0, drop_last)
        ours = adjit.utils.data.DistributedSampler(*given)
        theirs = torch.utils.data.DistributedSampler(*given)
        assert (list(ours), len(ours)) == (list(theirs), len(theirs))
    shuffled = [
        list(adjit.utils.data.DistributedSampler(range(length), size, rank, drop_last=drop_last))
        for rank in range(size)
    ]
    together = {k for part in shuffled for k in part}
    assert len(together) == (length if not drop_last else len(shuffled[0]) * size)
    with pytest.raises(
        ValueError, match=r"Invalid rank 2, rank should be in the interval \[0, 1\]"
    ):
        adjit.utils.data.DistributedSampler(range(length), 2, 2)


def test_one_process_normalises_its_batch():
    x = adjit.randn(4, 3, 2)
    ours, plain = nn.SyncBatchNorm(3), nn.BatchNorm1d(3)
    assert adjit.equal(ours(x), plain(x))
    assert adjit.equal(ours.running_var, plain.running_var)
    with pytest.raises(ValueError, match="expected at least 2D input"):
        ours(adjit.ones(3))


def test_programs_import_the_functions_of_copies_from_their_files():
    from adjit.nn.parallel._functions import Broadcast
    from adjit.nn.parallel.parallel_apply import parallel_apply
    from adjit.nn.parallel.replicate import _broadcast_coalesced_reshape, replicate

    assert nn.parallel.replicate is replicate
    assert nn.parallel.parallel_apply is parallel_apply
    p = nn.Parameter(adjit.ones(2))
    [[kept], [detached]] = (
        _broadcast_coalesced_reshape([p], ["cpu"], detach)[0] for detach in (False, True)
    )
    assert kept.requires_grad
    assert not detached.requires_grad
    with pytest.raises(NotImplementedError, match=r"use adjit\.compile, and adjit\.distributed"):
        Broadcast()
