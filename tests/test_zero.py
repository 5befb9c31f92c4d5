"""Optimisers whose state is spread over processes, beside the same optimiser in one, and beside PyTorch's."""

import pytest
from in_processes import results

import adjit.distributed as dist
from adjit.distributed.optim import ZeroRedundancyOptimizer

needs_mpi = pytest.mark.skipif(
    not dist.is_mpi_available(), reason="needs mpi4py and an MPI: pip install adjit[distributed]"
)
OPTIONS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 0.01},
    "AdamW": {"lr": 0.01, "amsgrad": True},
    "Adadelta": {"lr": 1.0},
}


def parameters(T, count=5):
    shapes = [(3, 4), (4,), (2, 5), (5, 5), (1,)][:count]
    made = []
    for k, shape in enumerate(shapes):
        size = int(T.ones(shape).numel())
        made.append((T.arange(float(size)).reshape(shape) + k).sin().requires_grad_())
    return made


def give_gradients(params, step):
    for k, p in enumerate(params):
        if (step + k) % 4 != 3:  # now and then there is none
            p.grad = (p.detach() * (1 + k) + step).cos()


def moved(T, dist, rank, size, name, count):
    """Parameters after each step and the state of a spread optimiser, and of the same one alone."""
    kind = getattr(T.optim, name)
    from_library = __import__(
        f"{T.__name__}.distributed.optim", fromlist=["ZeroRedundancyOptimizer"]
    )
    ours, alone = parameters(T, count), parameters(T, count)
    spread = from_library.ZeroRedundancyOptimizer(ours[:2], optimizer_class=kind, **OPTIONS[name])
    plain = kind(alone[:2], **OPTIONS[name])
    schedule = T.optim.lr_scheduler.StepLR(spread, 2, 0.5)
    schedule_of_plain = T.optim.lr_scheduler.StepLR(plain, 2, 0.5)
    found = []
    for step in range(6):
        if step == 2 and count > 2:
            spread.add_param_group({"params": ours[2:], "lr": 0.03})
            plain.add_param_group({"params": alone[2:], "lr": 0.03})
            schedule = T.optim.lr_scheduler.StepLR(spread, 2, 0.5)
            schedule_of_plain = T.optim.lr_scheduler.StepLR(plain, 2, 0.5)
        for params, optimizer, lr in ((ours, spread, schedule), (alone, plain, schedule_of_plain)):
            optimizer.zero_grad()
            give_gradients(params, step)
            optimizer.step()
            lr.step()
        found.append([[p.tolist() for p in params] for params in (ours, alone)])
    own = [p.numel() for group in spread.optim.param_groups for p in group["params"]]
    for to in (0, size - 1):
        spread.consolidate_state_dict(to)
        if rank == to:
            saved = spread.state_dict()
            found.append([told(saved), told(plain.state_dict())])
    if rank != size - 1:
        try:
            spread.state_dict()
        except RuntimeError as error:
            found.append(str(error).replace(str(rank), "RANK"))

    # Another run goes on from there.
    box = [saved if rank == size - 1 else None]
    dist.broadcast_object_list(box, src=size - 1)
    again = [p.detach().clone().requires_grad_() for p in ours]
    groups = [{"params": again[:2]}, {"params": again[2:]}] if count > 2 else again
    other = from_library.ZeroRedundancyOptimizer(groups, optimizer_class=kind, **OPTIONS[name])
    other.load_state_dict(box[0])
    for step in (6, 7):
        for params, optimizer in ((again, other), (alone, plain)):
            optimizer.zero_grad()
            give_gradients(params, step)
            optimizer.step()
    found.append([[p.tolist() for p in params] for params in (again, alone)])
    return found, own


def told(saved):
    state = {
        k: {n: v.tolist() if hasattr(v, "tolist") else v for n, v in each.items()}
        for k, each in saved["state"].items()
    }
    return state, [
        {n: v for n, v in group.items() if n not in ("foreach", "fused")}
        for group in saved["param_groups"]
    ]


def all_moved(T, dist, rank, size):
    """`moved` of all optimisers, of two parameters, and the errors of what cannot be shared out."""
    found = {name: moved(T, dist, rank, size, name, 5) for name in OPTIONS}
    return found, moved(T, dist, rank, size, "Adam", 2), refused(T)


@pytest.mark.in_turn(3)
@needs_mpi
@pytest.mark.parametrize("size", [2, 3])
def test_spread_optimisers_move_as_alone_and_as_pytorchs(size):
    pytest.importorskip("torch")
    ours, theirs = results(all_moved, size), results(all_moved, size, library="torch")
    for (found, (few, own), errors), (expected, (_, own_of_other), wanted) in zip(
        ours, theirs, strict=True
    ):
        assert errors == wanted
        assert own == own_of_other
        assert all(entry[0] == entry[1] for entry in few if not isinstance(entry, str))
        for name in OPTIONS:
            (one, sizes), (other, expected_sizes) = found[name], expected[name]
            assert sizes == expected_sizes
            assert len(one) == len(other)
            for a, b in zip(one, other, strict=True):
                if isinstance(a, str):
                    assert a == b
                    continue
                assert a[0] == a[1], name  # bit for bit what it is alone
                if not isinstance(a[0], tuple):
                    assert flat(a[0]) == pytest.approx(flat(b[0]), rel=1e-4, abs=1e-6)
                    continue
                (state, groups), (state_of_other, groups_of_other) = a[0], b[0]
                assert [sorted(g) for g in groups] == [sorted(g) for g in groups_of_other]
                assert list(state) == list(state_of_other)
                for k, each in state.items():
                    assert list(each) == list(state_of_other[k])
                    for n, value in each.items():
                        assert flat(value) == pytest.approx(flat(state_of_other[k][n]), rel=1e-4)


def flat(values):
    return [v for part in values for v in flat(part)] if isinstance(values, list) else [values]


def refused(T):
    from_library = __import__(
        f"{T.__name__}.distributed.optim", fromlist=["ZeroRedundancyOptimizer"]
    )
    found = {}
    for name, params in {
        "tensor": T.ones(2, requires_grad=True),
        "number": 3,
        "nothing": [],
        "mixed": [T.ones(2), {"params": [T.ones(2)]}],
        "no params": [{"lr": 0.1}],
        "kinds": [T.ones(2, requires_grad=True), T.ones(2, dtype=T.float64, requires_grad=True)],
    }.items():
        try:
            from_library.ZeroRedundancyOptimizer(params, T.optim.SGD, lr=0.1)
        except Exception as error:
            found[name] = type(error).__name__, str(error)
    return found


def test_what_needs_hooks_is_refused():
    with pytest.raises(NotImplementedError, match="overlap_with_ddp needs communication hooks"):
        ZeroRedundancyOptimizer([], None, overlap_with_ddp=True)
