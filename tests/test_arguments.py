"""How numbers are given to what changes shapes: one by one, in a list, by name, as NumPy's, as tensors.

The function and the method of a name are not alike in this. Both give what PyTorch gives, or its errors.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import adjit

# Arguments as text: `S` makes a size, `I` a NumPy integer, `N` a 0-d tensor.
SHAPES = (
    "24|(24,)|[4, 6]|4, 6|4, -1|(4, -1)|-1, -1|-2, 3|5, 5|()||S(4, 6)|I(4), 6|(N(4), 6)|4.0, 6|None"
)
GIVEN = {
    "permute": "(1, 0, 2)|1, 0, 2|[1, 0, 2]|S(1, 0, 2)|I(1), 0, 2|(N(1), 0, 2)|-1, 0, 1|(0, 0, 1)"
    "|0, 0, 1|(0, 1)"
    "|0, 1|(0, 1, 3)||1.0, 0, 2|(1.0, 0, 2)|None|'a'|dims=(1, 0, 2)|(1, 0), 2",
    "flip": "True|0|(0,)|[0, 1]|0, 1|(0, 0)|-1|(3,)|3||()|dims=(0,)|I(0)|(I(0),)|(N(0),)|1.0|None|(0, 1), 2",
    "reshape": SHAPES + "|shape=(4, 6)",
    "view": SHAPES + "|size=(4, 6)",
    "tile": "2|(2,)|2, 1, 1|(2, 1, 1)|[2, 2, 1, 1]||()|dims=(2,)|-1|(0,)|I(2)|(N(2),)|2.0|None|(2,), 1",
    "repeat": "2, 1, 1|(2, 1, 1)|[2, 2, 1, 1]|2||repeats=(1, 1, 2)|-1, 1, 1|0, 1, 1|I(2), 1, 1"
    "|(N(2), 1, 1)|None",
    "expand": "2, 3, 4|(2, 3, 4)|5, 2, 3, 4|-1, 3, 4|3|2, 3, 5||()|size=(2, 3, 4)|I(2), 3, 4"
    "|(N(2), 3, 4)|-2, 3, 4",
    "broadcast_to": "(2, 3, 4)|2, 3, 4|[5, 2, 3, 4]|size=(2, 3, 4)|(2, 3)|(-1, 3, 4)",
    "transpose": "0, True|0, 1|0||0, 3|-1, 0|dim0=0, dim1=1|I(0), 1|N(0), 1|0.0, 1|0, 1, 2",
    "swapaxes": "0, 1|axis0=0, axis1=1|dim0=0, dim1=1|0|0, 5",
    "swapdims": "0, 1|dim0=0, dim1=1|axis0=0, axis1=1",
    "roll": "True|1, True|(1.5,), 0|1|(1,)|1, 0|(1, 2), (0, 1)|1, (0, 1)|shifts=1, dims=0|I(1), 0|N(1), 0|1, 3"
    "|(1, 2, 3)"
    "|(1, 1), (0, 0)|()",
    "movedim": "0, 1|(0, 1), (1, 0)|source=0, destination=1|0|(0, 0), (1, 2)|(0, 1), (2, 2)|0, 3|I(0), 1"
    "|N(0), 1"
    "|0.0, 1",
    "unsqueeze": "True|0|-1|-4|3|4|(0,)|0, 1|dim=0||I(0)|1.0|None|N(0)",
    "squeeze": "True||0|-1|(0, 1)|[0]|3|dim=(0, 1)|I(0)|1.0|(0, 0)|()",
    "flatten": "|1|0, 1|start_dim=1|1, 0|0, 3|None|1.0|I(0)",
    "unfold": "0, 2, 1|2, 2, 2|0, 3, 1|0, 2, 0|0, -1, 1|0, 2|0, 2.0, 1",
    "narrow": "0, True, 1|0, 0, 1|0, 1, 1|0, 2, 1|0, -1, 1|0, 0, -1|0, 0, 3|0, N(0), 1|0, 0.0, 1|3, 0, 1",
    "select": "0, True|0, 0|0, -1|0, 2|3, 0|0, 0.0|0, N(0)|0, I(0)",
    "rot90": "|1|1, (0, 1)|1, [0, 1]|1, 0, 1|k=1, dims=(0, 2)|1, (0, 0)|1, (0,)|1, (0, 3)|1.0|-1, (0, 1)",
    "chunk": "True|2|2, 0|2, 2|0|-1|chunks=2, dim=1|2, 3|2.0|I(2)",
    "split": "True|1, True|[1.5, 0.5]|1|2, 2|[1, 1]|[1, 2]|-1|0|1, 3|[-1, 3], 0|1.0",
    "as_strided": "(2, 2), (1, 2)|[2, 2], [1, 2], 1|(2,), (1, 2)|(100,), (1,)|(2,), (-1,)|(-1,), (1,)",
    "count_nonzero": "True|0|(0, 1)|dim=0",
    "tril": "True||1|diagonal=1|1.0",
    "topk": "1, True|True|1|1, 0|1, dim=0|5|-1|1.0|k=1",
    "sum": "True|dim=True|(True,)|0, 1|0, keepdim=1",
    "mean": "True|1, 1",
    "amax": "True|0, 1",
    "max": "True|0, 1",
    "all": "True|0, 1",
    "logsumexp": "True|0, 1",
    "norm": "2, True|2, 0, 1",
    "cumsum": "True",
    "softmax": "True",
    "sort": "True",
    "argmax": "True|0, 1",
    "kthvalue": "True|1, True|1.0",
    "diff": "True|1.0",
    "tensor_split": "True|(1.5,)|2, True",
    "unflatten": "True, (1, 2)",
    "index_select": "0, [0]|3, L.tensor([0])",
    "gather": "0, 0",
}  # fmt: skip
MADE = {
    "zeros": "True|(True, 2)|2, 3|(2, 3)|[2, 3]|2||()|size=(2, 3)|-1|2.0|(2.0,)|I(2)|(I(2), 3)|N(2)|(N(2),)"
    "|None|S(2)|(2,), 3",
    "ones": "2, 3|(2, 3)|size=(2,)||N(2)",
    "full": "(2,), 1|2, 1|[2], 1|size=(2,), fill_value=1|(2,)",
    "eye": "True|2|2, 3|n=2, m=3|-1|2.0|(2,)",
}
CASES = [("x.", name, text) for name, texts in GIVEN.items() for text in texts.split("|")]
CASES += [
    ("L.", name, f"x, {text}" if text else "x")
    for name, texts in GIVEN.items()
    if name not in ("view", "repeat", "expand", "unfold")
    for text in texts.split("|")
]
CASES += [("L.", name, text) for name, texts in MADE.items() for text in texts.split("|")]
AS_ONE_LIST = "must be tuple of ints, not"


def outcome(library: Any, prefix: str, name: str, text: str) -> Any:
    """The results of a call, or the kind of error and its text."""
    names = {
        "L": library, "x": library.arange(24.0).reshape(2, 3, 4), "I": np.int64, "N": library.tensor,
        "S": lambda *sizes: library.Size(sizes),
    }  # fmt: skip
    try:
        made = eval(f"{prefix}{name}({text})", names)
    except Exception as error:
        return type(error), str(error).split("\n")[0]
    return [(list(t.shape), t.tolist()) for t in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize(
    ("prefix", "name", "text"), CASES, ids=[f"{p}{n}({t})" for p, n, t in CASES]
)
def test_numbers_are_taken_as_by_pytorch(prefix: str, name: str, text: str) -> None:
    theirs = outcome(pytest.importorskip("torch"), prefix, name, text)
    ours = outcome(adjit, prefix, name, text)
    if isinstance(theirs, tuple) and isinstance(ours, tuple):
        assert ours[0] is theirs[0]
        if prefix == "L." and name in ("flip", "permute", "reshape", "tile"):
            assert (AS_ONE_LIST in ours[1]) == (AS_ONE_LIST in theirs[1])
    else:
        assert ours == theirs


# ----- whole numbers that are no int: NumPy's, and tensors without axes -----


def _with_numbers(T, n):
    """Calls with `n(2)` where an int is meant, by their names."""
    x, F = T.arange(24.0).reshape(4, 6), T.nn.functional
    image, at = x.reshape(1, 1, 4, 6), T.tensor([0])
    return {
        "view": lambda: x.reshape(n(2), -1).view((n(2), -1)).view(n(2), 12),
        "expand": lambda: x[None].expand(n(2), 4, 6) + x[None].expand((n(2), n(4), 6)),
        "broadcast_to": lambda: x[0].broadcast_to((n(2), 6)),
        "zeros": lambda: T.zeros(n(2), 3) + T.zeros((n(2), n(3))) + T.empty(n(2), 3).zero_(),
        "full": lambda: T.full((n(2), 3), 1.0) + x.new_full((n(2), 3), 1.0) + x.new_zeros(n(2), 3),
        "random": lambda: T.rand(n(2), 3) * T.randn((n(2), 3)) * 0 + T.randint(0, n(1), (n(2), 3)),
        "randperm": lambda: T.randperm(n(3)) * 0,
        "as_strided": lambda: x.as_strided((n(2), 3), (n(6), n(1)), n(1)),
        "as_strided by name": lambda: x.as_strided(size=(2, n(3)), stride=(n(6), 1)),
        "repeat": lambda: x.repeat(n(2), 1) + x.tile((n(2), 1)) + T.cat([x, x], n(0)),
        "unflatten": lambda: x.unflatten(n(1), (n(2), -1)),
        "narrow": lambda: x.narrow(n(0), n(1), n(2)),
        "roll": lambda: x.roll(n(1), n(0)).flip(n(0)),
        "flatten": lambda: x[None].flatten(n(0), n(1)),
        "sums": lambda: x.sum(n(1)) + x.mean(n(1)) + x.var(n(1)) + x.logsumexp(n(1)) + x.max(n(1))[0],
        "sum of axes": lambda: x.sum((n(0), n(1))),
        "axes": lambda: x.transpose(n(0), n(1)) + x.permute(n(1), n(0)) + x.movedim(n(0), n(1)),
        "unsqueeze": lambda: x.unsqueeze(n(1)).squeeze(n(1)),
        "parts": lambda: x.chunk(n(2))[0] + x.tensor_split(n(2))[0] + x.unbind(n(0))[0],
        "hsplit": lambda: x.hsplit(n(2))[0],
        "unfold": lambda: x.unfold(n(0), n(2), n(1)),
        "arange": lambda: T.arange(n(4)) + T.linspace(0, 1, n(4)),
        "eye": lambda: T.eye(n(3)) + T.eye(3, n(3)),
        "select": lambda: x.select(n(0), n(1)) + x[n(1) : n(3)].sum(0),
        "diagonal": lambda: x.diagonal(n(1)),
        "triangle": lambda: x.tril(n(1)) + x.triu(n(1)),
        "topk": lambda: x.topk(n(2))[0],
        "order": lambda: x.kthvalue(n(2))[0] + x.sort(n(1))[0][:, 0],
        "scans": lambda: x.cumsum(n(1)) + x.softmax(n(1)),
        "pad": lambda: F.pad(x, (n(1), n(2))),
        "one_hot": lambda: F.one_hot(at, n(3)),
        "repeat_interleave": lambda: x.repeat_interleave(n(2), n(0)),
        "stack": lambda: T.stack([x, x], n(1)),
        "interpolate": lambda: F.interpolate(image, (n(6), n(6))),
        "pools": lambda: F.max_pool2d(image, n(2)) + F.avg_pool2d(image, n(2)),
        "adaptive": lambda: F.adaptive_avg_pool2d(image, (n(2), n(3))),
        "adaptive max": lambda: F.adaptive_max_pool2d(image, (2, n(3))),
        "conv": lambda: F.conv2d(image, T.ones(1, 1, 2, 2), stride=n(2), padding=n(1), dilation=n(1)),
        "windows": lambda: F.unfold(image, (n(2), 2), stride=(2, n(2))),
        "rot90": lambda: T.rot90(x, n(1)),
        "norm": lambda: F.layer_norm(x, (n(6),)) + F.normalize(x, dim=n(1)),
        "glu": lambda: F.glu(x, n(1)),
        "pixel_shuffle": lambda: F.pixel_shuffle(x.reshape(1, 4, 2, 3), n(2)),
        "rows": lambda: x.index_select(n(1), at) + x.gather(n(1), T.zeros(4, 1, dtype=T.int64)),
        "index_add": lambda: x.index_add(n(0), at, T.ones(1, 6)),
        "tensordot": lambda: T.tensordot(x, x, ([n(1)], [n(1)])),
        "layers": lambda: T.nn.MaxPool2d(n(2))(image),
    }  # fmt: skip


_KINDS_OF_NUMBERS = {
    "NumPy": lambda T: np.int64,
    "tensor": lambda T: T.tensor,
    # The same calls with other numbers: nothing is remembered by what a tensor is, and not by what it holds.
    "other tensor": lambda T: lambda k: T.tensor({0: 1, 1: 0, 2: 1, 3: 2}.get(k, k)),
}


@pytest.mark.parametrize("name", _with_numbers(adjit, int))
def test_whole_numbers_may_be_numpys_or_tensors(name):
    torch = pytest.importorskip("torch")
    for kind, number in _KINDS_OF_NUMBERS.items():
        try:
            wanted = _with_numbers(torch, number(torch))[name]()
        except (RuntimeError, IndexError, ValueError) as error:
            with pytest.raises(type(error)):
                _with_numbers(adjit, number(adjit))[name]()
            continue
        found = _with_numbers(adjit, number(adjit))[name]()
        assert {type(size) for size in found.shape} <= {int}, kind
        assert tuple(found.shape) == tuple(wanted.shape), kind
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6, err_msg=kind)


@pytest.mark.parametrize(
    "name", ["leaky_relu", "elu", "celu", "softplus", "hardshrink", "softshrink"]
)
def test_numbers_of_functions_are_no_tensors_that_need_gradients(name):
    """A slope to be learnt would get no gradient; a tensor without one is its number."""
    torch = pytest.importorskip("torch")
    for T in (torch, adjit):
        f, x, slope = getattr(T.nn.functional, name), -T.ones(2), T.tensor(0.25)
        np.testing.assert_array_equal(f(x, slope).numpy(), f(x, 0.25).numpy())
        for _ in range(2):
            with pytest.raises(TypeError, match="must be Number, not Tensor"):
                f(x, slope.clone().requires_grad_())


OF_NUMBERS = {
    "full": lambda T, t: T.full((2,), t),
    "full_like": lambda T, t: T.full_like(T.ones(2), t),
    "new_full": lambda T, t: T.ones(2).new_full((2,), t),
    "scalar_tensor": lambda T, t: T.scalar_tensor(t),
    "arange": lambda T, t: T.arange(t),
    "arange from": lambda T, t: T.arange(t, 4),
    "add": lambda T, t: T.ones(2).add(T.ones(2), alpha=t),
    "add_": lambda T, t: T.ones(2).add_(T.ones(2), alpha=t),
    "sub": lambda T, t: T.sub(T.ones(2), T.ones(2), alpha=t),
    "rsub": lambda T, t: T.rsub(T.ones(2), T.ones(2), alpha=t),
    "dropout": lambda T, t: T.nn.functional.dropout(T.ones(2), t, training=False),
    "dropout2d": lambda T, t: T.nn.functional.dropout2d(T.ones(2, 2, 2, 2), t, training=False),
    "cross_entropy": lambda T, t: T.nn.functional.cross_entropy(
        T.eye(2), T.tensor([0, 1]), label_smoothing=t
    ),
    "norm": lambda T, t: T.norm(T.ones(2), t),
    "vector_norm": lambda T, t: T.linalg.vector_norm(T.ones(2), t),
    "renorm": lambda T, t: T.renorm(T.ones(2, 2), t, 0, 0.5),
    "cdist": lambda T, t: T.cdist(T.ones(2, 2), T.zeros(2, 2), t),
}
OF_DRAWS = {
    "normal": lambda T, t: T.normal(0.0, t, (2,)),
    "uniform_": lambda T, t: T.ones(2).uniform_(0, t),
    "normal_": lambda T, t: T.ones(2).normal_(0, t),
    "log_normal_": lambda T, t: T.ones(2).log_normal_(0, t),
    "cauchy_": lambda T, t: T.ones(2).cauchy_(0, t),
    "exponential_": lambda T, t: T.ones(2).exponential_(t),
    "geometric_": lambda T, t: T.ones(2).geometric_(t * 0.5),
}


@pytest.mark.parametrize("name", [*OF_NUMBERS, *OF_DRAWS])
def test_tensors_that_need_gradients_are_no_numbers(name):
    """Also where the number is the default."""
    torch = pytest.importorskip("torch")
    f = {**OF_NUMBERS, **OF_DRAWS}[name]
    number = torch.tensor(1.0), adjit.tensor(1.0)
    if name in OF_NUMBERS:
        found, wanted = f(adjit, number[1]).numpy(), f(torch, number[0]).numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert found.dtype == wanted.dtype
    for T, t in zip((torch, adjit), number, strict=True):
        with pytest.raises(TypeError):
            f(T, t.requires_grad_())


def test_scatter_of_a_tensor_without_axes():
    torch = pytest.importorskip("torch")
    for T in (torch, adjit):
        x, t = T.ones(3, requires_grad=True), T.tensor(2.0, requires_grad=True)
        made = x.scatter(0, T.tensor([1]), t)
        (made * T.tensor([1.0, 3.0, 5.0])).sum().backward()
        assert made.tolist() == [1.0, 2.0, 1.0]
        assert (x.grad.tolist(), t.grad.item()) == ([1.0, 0.0, 5.0], 3.0)
        with pytest.raises(RuntimeError):
            x.scatter(0, T.tensor([1, 2]), t)


@pytest.mark.parametrize(
    "sizes",
    [[1.0, 2.0], ["a"], (1, None), [[1]], [np.float64(2)], 3, [2, True, -3], [], [np.int64(3)]],
)
def test_sizes_are_whole_numbers(sizes: Any) -> None:
    texts: list[Any] = []
    for library in (adjit, pytest.importorskip("torch")):
        try:
            texts.append(tuple(library.Size(sizes)))
        except TypeError as e:
            texts.append(str(e))
    assert texts[0] == texts[1]


def test_sizes_of_tensors_are_ints() -> None:
    made = adjit.Size([adjit.tensor(2), 3])
    assert made == (2, 3)
    assert type(made[0]) is int
    for wrong in (adjit.tensor(2.0), adjit.tensor([2])):
        with pytest.raises(TypeError, match=r"takes an iterable of 'int' \(item 1 is 'Tensor'\)"):
            adjit.Size([1, wrong])


@pytest.mark.parametrize(
    "arguments",
    [(-1,), ("cpu", -1), ("cuda", -1), ("",), ("cpu:01",), (None,), (1.0,), ("cuda:1", 1), ("CPU",), (True,),
     ("cpu:",), ("cpu:-1",), (" cpu",), ("cpu:1",), ("cuda", 1), ("foo",)],
)  # fmt: skip
def test_devices_that_are_none(arguments: Any) -> None:
    texts: list[Any] = []
    for library in (adjit, pytest.importorskip("torch")):
        try:
            texts.append(str(library.device(*arguments)))
        except (TypeError, RuntimeError) as e:
            texts.append((type(e), str(e).splitlines()[0]))
    assert texts[0] == texts[1]


def test_numbers_of_what_requires_gradients_warn_once() -> None:
    """As PyTorch does, in another process: this one may have warned before."""
    pytest.importorskip("torch")
    program = """
import warnings, {0} as T
t = T.tensor(1.5, requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(float(t), float(t), int(t), complex(t))
print(len(caught), str(caught[0].message).splitlines()[0])
"""
    found = [
        subprocess.run(
            [sys.executable, "-c", program.format(name)], capture_output=True, text=True, check=True
        ).stdout
        for name in ("adjit", "torch")
    ]
    assert found[0] == found[1]
