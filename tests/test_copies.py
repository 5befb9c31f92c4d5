"""Deep copies and pickles: memory that tensors share is shared afterwards too."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import adjit
from adjit import nn


def through_a_file(value: Any) -> Any:
    import io

    file = io.BytesIO()
    adjit.save(value, file)
    file.seek(0)
    return adjit.load(file)


COPIES = [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value)), through_a_file]
named = pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle", "file"])


@named
def test_shared_memory_is_shared_afterwards(copied: Any) -> None:
    v = adjit.arange(6.0).view(2, 3)
    a, b, row = copied([v, v.t(), v[1]])
    a[1, 0] = 99.0
    assert b[0, 1].item() == row[0].item() == 99.0
    b[2, 1] = -1.0
    assert a[1, 2].item() == row[2].item() == -1.0
    assert v.flatten().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert (b.stride(), row.storage_offset()) == (v.t().stride(), 3)


@named
def test_parts_of_one_memory_that_overlap(copied: Any) -> None:
    v = adjit.arange(8)
    parts = copied({"head": v[:5], "tail": v[3:], "even": v[::2]})
    parts["head"][4] = 40
    assert parts["tail"].tolist() == [3, 40, 5, 6, 7]
    assert parts["even"].tolist() == [0, 2, 40, 6]
    assert v.tolist() == list(range(8))


@named
@pytest.mark.parametrize("dtype", [adjit.float64, adjit.int8, adjit.bool], ids=repr)
def test_every_geometry(copied: Any, dtype: Any) -> None:
    v = (adjit.arange(24) % 2).to(dtype).view(2, 3, 4)
    given = [
        v,
        v.permute(2, 0, 1),
        v[:, 1],
        v[..., ::2],
        v[0, 0, 0],
        v[:0],
        v[:1].expand(5, 3, 4),
        v.exp(),
    ]
    for t, made in zip(given, copied(given), strict=True):
        assert made.dtype is t.dtype
        np.testing.assert_array_equal(made.numpy(), t.numpy())


@pytest.mark.parametrize("copied", COPIES[:2], ids=["deepcopy", "pickle"])
def test_what_numpy_writes_to_is_copied(copied: Any) -> None:
    array = np.arange(6.0)
    given = adjit.from_numpy(array)
    made, turned = copied([given, given.view(2, 3).t()])
    array[1] = 50.0
    given[2] = 60.0
    assert made.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    made[3] = 7.0
    assert turned[0, 1].item() == 7.0


@pytest.mark.parametrize("copied", COPIES[:2], ids=["deepcopy", "pickle"])
def test_leaves_their_gradients_and_modules(copied: Any) -> None:
    x = adjit.ones(3, requires_grad=True)
    y, view = copied((x, x.detach()))
    (y * 2).sum().backward()
    assert (y.requires_grad, view.requires_grad, x.grad) == (True, False, None)
    assert y.grad.tolist() == [2.0, 2.0, 2.0]
    layer = nn.Linear(2, 2, bias=False)
    fallback, weight = copied((layer, layer.weight.data))
    with adjit.no_grad():
        fallback.weight.zero_()
    assert weight.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert layer.weight.count_nonzero().item() == 4


def test_a_write_into_a_copy_is_seen_by_its_backward() -> None:
    """Tensors that share memory share the count of its writes."""
    a, b = copy.deepcopy([v := adjit.ones(2), v.view(2, 1)])
    w = adjit.ones(2, requires_grad=True)
    out = (w * a).sum()
    b.mul_(3.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


PARTS = {
    "narrow_copy": lambda lib, x: [lib.narrow_copy(x, 1, 1, 2), x.narrow_copy(-1, 0, 1)],
    "split_copy": lambda lib, x: lib.split_copy(x, 2, 1),
    "split_with_sizes_copy": lambda lib, x: lib.split_with_sizes_copy(x, [1, 2], dim=1),
    "unbind_copy": lambda lib, x: lib.unbind_copy(x, -1),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_in_memory_of_their_own(name):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (torch, adjit):
        x = lib.arange(6.0).view(2, 3).requires_grad_()
        parts = PARTS[name](lib, x)
        assert all(part._base is None and part.is_contiguous() for part in parts)
        sum((part * (k + 1)).sum() for k, part in enumerate(parts)).backward()
        found.append(([part.tolist() for part in parts], x.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("name", "rest"),
    [("split_copy", (1,)), ("split_with_sizes_copy", ([1, 1],)), ("unbind_copy", ())],
)
def test_parts_written_into_tensors(name, rest):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (torch, adjit):
        x = lib.arange(6.0).view(2, 3)
        out = [lib.empty_like(part) for part in getattr(lib, name)(x, *rest)]
        assert getattr(lib, name)(x, *rest, out=out) is None
        found.append([t.tolist() for t in out])
        with pytest.raises(RuntimeError) as caught:
            getattr(lib, name)(x, *rest, out=out[:1])
        found[-1].append(str(caught.value))
    assert found[0] == found[1]
