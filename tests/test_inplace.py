"""In-place writes and views: version counters, checks and their texts, gradients after writes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from library import (
    AGAINST_TORCH,
    FREED,
    LEAF_VIEW_WRITE,
    LEAF_WRITE,
    T,
    adjit_only,
    array,
    leaf,
    plain,
    raises,
    raises_modified,
    same,
)

from adjit.graph.export import methods
from adjit.nn import functional

pytestmark = pytest.mark.several_times

MULTIPLE_VIEWS = (
    "This view is the output of a function that returns multiple views. Such functions do not "
    "allow the output views to be modified inplace. You should replace the inplace operation by "
    "an out-of-place one."
)
AMBIGUOUS_VIEW = (
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your "
    "code by moving both the view and the inplace either both inside the no_grad block (if you "
    "don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked)."
)
OVERLAPS_ITSELF = (
    "unsupported operation: more than one element of the written-to tensor refers to a single "
    "memory location. Please clone() the tensor before performing the operation."
)
OVERLAPS_INPUT = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to "
    "a single memory location. Please clone() the tensor before performing the operation."
)
DETACHED_VIEW = (
    "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel "
    "(DDP) for training, and gradient_as_bucket_view is set as True, gradients are views of DDP "
    "buckets, and hence detach_() cannot be called on these gradients. To fix this error, please "
    "refer to the Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution."
)


# ---------------------------------------------------------------- version counters


def test_every_write_counts():
    x = T.zeros(4)
    versions = [x._version]
    for write in (
        lambda: x.add_(1),
        lambda: x.__setitem__(0, 1.0),
        lambda: x.zero_(),
        lambda: x.fill_(2),
        lambda: x.copy_(T.ones(4)),
        lambda: x[:2].mul_(3),
        lambda: x.view(2, 2).t().sub_(1),
        lambda: x.detach().div_(2),
        lambda: x.exp_(),
        lambda: x.clamp_(0, 1),
        lambda: x.masked_fill_(x > 0, 1.0),
        lambda: x.resize_(2, 2),
        lambda: x.resize_as_(T.ones(8)),
        lambda: T.add(T.ones(8), 1, out=x),
    ):
        write()
        versions.append(x._version)
    assert versions == list(range(15))
    x.resize_(8)
    assert x._version == 14


def test_views_and_detached_tensors_share_the_counter():
    x = T.zeros(4)
    view, detached = x[:2], x.detach()
    view.add_(1)
    detached.add_(1)
    x.add_(1)
    assert x._version == view._version == detached._version == view[0]._version == 3


def test_equal_tensors_may_have_other_dtypes():
    assert T.equal(T.tensor([1, 2]), T.tensor([1.0, 2.0]))
    assert T.equal(T.ones(2), T.ones(2, dtype=T.float64))
    assert not T.equal(T.tensor([1, 2]), T.tensor([1.0, 2.5]))
    assert not T.equal(T.ones(2), T.ones(2, 1))


def test_data_has_a_counter_of_its_own():
    x = T.zeros(4)
    data = x.data
    data += 1
    assert (x._version, data._version) == (0, 1)
    x.data.zero_()
    assert x._version == 0


def test_reading_and_copies_do_not_count():
    x = leaf([1.0, 2.0])
    y = x * 2
    for read in (lambda: y + 1, lambda: y[0], lambda: y.clone(), lambda: y.view(1, 2)):
        read()
    x.sum().backward()
    assert (x._version, y._version) == (0, 0)
    y.clone().add_(1)
    assert y._version == 0


def test_requires_grad_does_not_count_but_writes_under_no_grad_do():
    x = T.zeros(2).requires_grad_()
    assert x._version == 0
    with T.no_grad():
        x.add_(1)
    assert x._version == 1


def test_assigning_data_counts_nothing():
    x = T.zeros(2)
    x.data = T.ones(2)
    assert x._version == 0
    same(x, [1.0, 1.0])
    x.add_(1)
    x.data = T.ones(3)
    assert x._version == 1
    assert x.shape == (3,)


def test_assigned_data_of_a_leaf():
    x = leaf([1.0, 2.0])
    x.data = T.zeros(2)
    assert x.requires_grad
    assert x.is_leaf
    (x + 1).pow(2).sum().backward()
    same(x.grad, [2.0, 2.0])
    with raises(
        RuntimeError,
        "data set to a tensor that requires gradients must be floating point or complex dtype",
    ):
        x.data = T.zeros(2, dtype=T.int64)


def test_the_gradient_counts_its_accumulations():
    x = leaf([1.0, 2.0])
    x.sum().backward()
    start = x.grad._version
    x.sum().backward()
    assert x.grad._version == start + 1


# ---------------------------------------------------------------- checks when writing


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x.mul_(x),
        lambda x: x.zero_(),
        lambda x: x.copy_(T.zeros(2, 2)),
        lambda x: x.exp_(),
        lambda x: x.t_(),
        lambda x: x.unsqueeze_(0),
        lambda x: x.masked_fill_(x > 0, 0.0),
        lambda x: x.normal_(),
        lambda x: x.__setitem__(x > 0, 0.0),
        lambda x: x.__iadd__(1),
    ],
)
def test_leaves_cannot_be_written(write):
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    with raises(RuntimeError, LEAF_WRITE):
        write(x)
    same(x, [[1.0, 2.0], [3.0, 4.0]])
    assert x._version == 0


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x[0].add_(1),
        lambda x: x.view(4).zero_(),
        lambda x: x.t()[0].mul_(2),
        lambda x: x.__setitem__(0, 100.0),
        lambda x: x.__setitem__((slice(None), 1), 100.0),
        lambda x: x.diagonal().fill_(0),
    ],
)
def test_views_of_leaves_cannot_be_written(write):
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    with raises(RuntimeError, LEAF_VIEW_WRITE):
        write(x)
    same(x, [[1.0, 2.0], [3.0, 4.0]])


def test_views_of_leaves_can_be_written_under_no_grad():
    x = leaf([1.0, 2.0, 3.0])
    view = x[:2]
    with T.no_grad():
        view.add_(1)
        x[2] = 10.0
    same(x, [2.0, 3.0, 10.0])
    same(view, [2.0, 3.0])
    assert view.requires_grad
    (x * x).sum().backward()
    same(x.grad, [4.0, 6.0, 20.0])


def test_a_leaf_that_is_a_view():
    base = T.ones(4)
    view = base[:2]
    view.requires_grad_()
    assert view.is_leaf
    assert view._is_view()
    assert not base.requires_grad
    with raises(RuntimeError, LEAF_VIEW_WRITE):
        view.add_(1)
    base.add_(1)
    same(view, [2.0, 2.0])
    (view * view).sum().backward()
    same(view.grad, [4.0, 4.0])


@pytest.mark.parametrize(
    ("take", "name"),
    [
        (lambda x: x.unbind(0)[0], "Unbind"),
        (lambda x: x.split(1)[0], "Split"),
        (lambda x: x.chunk(2)[0], "Split"),
        (lambda x: x.split([1, 1])[0], "SplitWithSizes"),
        (lambda x: x.unbind(0)[0].view(3, 1), "View"),
        (lambda x: next(iter(x)), "Unbind"),
    ],
)
@pytest.mark.parametrize("make", [lambda x: x, lambda x: x * 1], ids=["leaf", "computed"])
def test_one_of_several_views_cannot_be_written(take, name, make):
    view = take(make(leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])))
    text = f"Output 0 of {name} is a view and is being modified inplace. {MULTIPLE_VIEWS}"
    with raises(RuntimeError, text):
        view.mul_(2)


def test_several_views_can_be_written_without_autograd():
    x = T.ones(2, 2)
    first, second = x.unbind(0)
    first.zero_()
    second.mul_(3)
    same(x, [[0.0, 0.0], [3.0, 3.0]])
    y = leaf([[1.0, 1.0], [1.0, 1.0]]) * 1
    with T.no_grad():
        for row in y.unbind(0):
            row.mul_(2)
    same(y, np.full((2, 2), 2.0))


def test_one_of_several_views_is_lost_when_the_base_is_written():
    x = leaf([[1.0, 2.0], [3.0, 4.0]]) * 1
    view = x.unbind(0)[1]
    x.mul_(2)
    with raises(
        RuntimeError,
        "Output 1 of Unbind is a view and its base or another view of its base has been modified "
        f"inplace. {MULTIPLE_VIEWS}",
    ):
        view.sum()


def test_a_view_made_under_no_grad_cannot_be_written_outside():
    x = leaf([[1.0, 2.0], [3.0, 4.0]]) * 1
    with T.no_grad():
        view = x[0]
    with raises(
        RuntimeError,
        "A view was created in no_grad mode and is being modified inplace with grad mode enabled. "
        + AMBIGUOUS_VIEW,
    ):
        view.mul_(2)


def test_a_view_made_under_no_grad_is_lost_when_the_base_is_written():
    x = leaf([[1.0, 2.0], [3.0, 4.0]]) * 1
    with T.no_grad():
        view = x[0]
    x.mul_(2)
    with raises(
        RuntimeError,
        "A view was created in no_grad mode and its base or another view of its base has been "
        f"modified inplace with grad mode enabled. {AMBIGUOUS_VIEW}",
    ):
        view.grad_fn  # noqa: B018


def test_a_view_of_a_view_made_under_no_grad_says_so():
    x = leaf([1.0, 2.0, 3.0, 4.0]) * 1
    with T.no_grad():
        view = x[1:]
    part = view[1:]
    text = "Output 0 of Slice is a view of a view which was created in no_grad mode and"
    with raises(
        RuntimeError,
        f"{text} is being modified inplace with grad mode enabled. {AMBIGUOUS_VIEW}",
    ):
        part.mul_(2)
    x.mul_(2)
    with raises(
        RuntimeError,
        f"{text} its base or another view of its base has been modified inplace with grad mode "
        f"enabled. {AMBIGUOUS_VIEW}",
    ):
        part.grad_fn  # noqa: B018


def test_views_of_a_leaf_that_is_a_view_are_lost_when_it_is_written():
    """Also where the base needs no gradient."""
    x = T.ones(4)[1:].requires_grad_()
    part = x.split(2)[0]
    with T.no_grad():
        part.mul_(2)
    with raises(
        RuntimeError,
        "Output 0 of Split is a view and its base or another view of its base has been modified "
        f"inplace. {MULTIPLE_VIEWS}",
    ):
        part.sum()


def test_one_of_several_views_without_history_takes_none():
    part = T.ones(4).split(2)[0]
    with raises(
        RuntimeError,
        "A view was created in no_grad mode and is being modified inplace with grad mode enabled. "
        + MULTIPLE_VIEWS,
    ):
        part.mul_(leaf([1.0, 2.0]))


def test_a_view_of_a_leaf_made_under_no_grad_leads_nowhere():
    x = leaf([1.0, 2.0, 3.0])
    with T.no_grad():
        view = x[:2]
    assert view.requires_grad
    assert view.is_leaf
    y = view * 3
    assert y.requires_grad
    assert y.grad_fn.next_functions[0] == (None, 0)
    y.sum().backward()
    assert x.grad is None
    assert view.grad is None


def test_views_and_writes_both_inside_no_grad():
    x = leaf([1.0, 1.0, 1.0, 1.0])
    y = x * 1
    with T.no_grad():
        y[:2].zero_()
    (y * y).sum().backward()
    same(x.grad, [0.0, 0.0, 2.0, 2.0])
    assert y.grad_fn.name() == "MulBackward0"


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda x: x.add_(T.ones(2, 3)),
         "output with shape [3] doesn't match the broadcast shape [2, 3]"),
        (lambda x: x[:1].mul_(T.ones(2, 3)),
         "output with shape [1] doesn't match the broadcast shape [2, 3]"),
        (lambda x: x.add_(T.ones(4)),
         "The size of tensor a (3) must match the size of tensor b (4) at non-singleton "
         "dimension 0"),
        (lambda x: x.copy_(T.ones(4)),
         "The size of tensor a (3) must match the size of tensor b (4) at non-singleton "
         "dimension 0"),
        (lambda x: x.__setitem__(slice(0, 2), T.ones(4)),
         "The expanded size of the tensor (2) must match the existing size (4) at non-singleton "
         "dimension 0.  Target sizes: [2].  Tensor sizes: [4]"),
        (lambda x: x.expand(2, 3).add_(1), OVERLAPS_ITSELF),
        (lambda x: x[:2].add_(x[1:]), OVERLAPS_INPUT),
        (lambda x: x[1:].copy_(x[:2]), OVERLAPS_INPUT),
        (lambda x: x.__setitem__(slice(1, 3), x[:2]), OVERLAPS_INPUT),
        (lambda x: x.view(2, 2), "shape '[2, 2]' is invalid for input of size 3"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("tracked", [False, True])
def test_shape_errors(write, text, tracked):
    x = leaf([1.0, 2.0, 3.0]) * 1 if tracked else T.tensor([1.0, 2.0, 3.0])
    with raises(RuntimeError, text):
        write(x)
    same(x, [1.0, 2.0, 3.0])
    assert x._version == 0


@pytest.mark.parametrize(
    ("dtype", "write", "text"),
    [
        (T.int64, lambda x: x.add_(T.ones(3)),
         "result type Float can't be cast to the desired output type Long"),
        (T.int64, lambda x: x.add_(1.5),
         "result type Float can't be cast to the desired output type Long"),
        (T.int64, lambda x: x.div_(2),
         "result type Float can't be cast to the desired output type Long"),
        (T.int32, lambda x: x.mul_(T.ones(3, dtype=T.float64)),
         "result type Double can't be cast to the desired output type Int"),
        (T.bool, lambda x: x.add_(1),
         "result type Long can't be cast to the desired output type Bool"),
        (T.int64, lambda x: x.exp_(),
         "result type Float can't be cast to the desired output type Long"),
    ],
)  # fmt: skip
def test_dtype_errors(dtype, write, text):
    x = T.ones(3, dtype=dtype)
    with raises(RuntimeError, text):
        write(x)
    same(x, [1, 1, 1])
    assert x._version == 0


def test_writes_keep_the_dtype():
    x = T.ones(2)
    x.add_(T.ones(2, dtype=T.float64))
    x += True
    assert x.dtype == T.float32
    n = T.ones(3, dtype=T.int64)
    n[0] = 2.7
    n += True
    n.mul_(T.tensor(2, dtype=T.int8))
    same(n, [6, 4, 4])
    n.copy_(T.tensor([1.9, 2.9, -1.5]))
    same(n, [1, 2, -1])
    assert n.dtype == T.int64


def test_index_errors():
    with raises(IndexError, "index 5 is out of bounds for dimension 0 with size 2"):
        T.zeros(2)[5] = 1
    with raises(
        RuntimeError,
        "view size is not compatible with input tensor's size and stride (at least one dimension "
        "spans across two contiguous subspaces). Use .reshape(...) instead.",
    ):
        T.ones(2, 3).t().view(6)


# ---------------------------------------------------------------- checks when reading back


@pytest.mark.parametrize(
    ("program", "shape", "versions", "producer"),
    [
        (lambda y, z: y.add_(1), [3], (1, 0), "Add"),
        (lambda y, z: y.mul_(2).mul_(2), [3], (2, 0), "Mul"),
        (lambda y, z: y[:1].zero_(), [3], (1, 0), "torch::autograd::CopySlices"),
        (lambda y, z: y.__setitem__(0, 1.0), [3], (1, 0), "torch::autograd::CopySlices"),
        (lambda y, z: y.detach().zero_(), [3], (1, 0), "Mul"),
    ],
)
def test_an_overwritten_operand(program, shape, versions, producer):
    y = leaf([1.0, 2.0, 3.0]) * 1
    z = y * y
    program(y, z)
    with raises_modified("FloatTensor", shape, *versions, producer):
        z.sum().backward()


def test_an_overwritten_constant_operand():
    constant = T.ones(2, dtype=T.float64)
    z = leaf([1.0, 2.0], dtype=T.float64) * constant
    constant.add_(1)
    with raises_modified("DoubleTensor", [2], 1, 0):
        z.sum().backward()


def test_an_overwritten_result():
    y = leaf([1.0, 2.0])
    z = y.exp()
    z[:1].add_(1)
    with raises_modified("FloatTensor", [2], 1, 0, "Exp"):
        z.sum().backward()


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "relu"])
def test_a_result_written_in_place_and_then_over(name):
    z = leaf([1.0, 2.0]) * 1
    getattr(z, f"{name}_")()
    z.add_(1)
    with raises_modified("FloatTensor", [2], 2, 1, name.capitalize()):
        z.sum().backward()


@pytest.mark.parametrize(
    ("write", "frees"),
    [
        (lambda y: y.mul_(2.0), True),  # a number
        (lambda y: y.exp_(), True),
        (lambda y: y.add_(2.0), False),
        (lambda y: y[:2].add_(2.0), True),  # which part is cleared
    ],
)
def test_what_a_write_saved_is_freed(write, frees):
    y = leaf([1.0, 2.0, 3.0]) + 1
    write(y)
    loss = y.sum()
    loss.backward()
    if frees:
        with raises(RuntimeError, FREED):
            loss.backward()
    else:
        loss.backward()


def test_a_number_of_a_tensor_copied_into_a_part():
    for _ in range(2):
        x, s = leaf([[1.0, 2.0], [3.0, 4.0]]), leaf(2.0)
        y, z = x * 1, x * 3
        y[0].copy_(s)
        z[1] = s
        (y * y + z * z * z).sum().backward()
        same(x.grad, [[81.0, 324.0], [6.0, 8.0]])
        same(s.grad, 8.0 + 24.0)
        y[0], z[1] = 5.0, 5.0  # by which machine code knows such writes of numbers


def test_an_item_of_no_gradient_assigned_to_itself():
    x = leaf([1.0, 2.0, 3.0])
    y = x * 2
    with T.no_grad():
        item = y[1]
    y[1] = item
    y[2] = y[2].detach()
    (y * y).sum().backward()
    same(y, [2.0, 4.0, 6.0])
    same(x.grad, [8.0, 0.0, 0.0])


def test_an_overwritten_leaf():
    x = leaf([1.0, 2.0])
    z = x * x
    with T.no_grad():
        x.add_(1)
    with raises_modified("FloatTensor", [2], 1, 0):
        z.sum().backward()
    assert x.grad is None


def test_a_write_to_another_part_of_the_base_counts():
    y = leaf([1.0, 2.0, 3.0]) * 1
    view = y[:1]
    z = view * view
    y[2] = 5
    with raises_modified("FloatTensor", [1], 1, 0, "AsStrided"):
        z.sum().backward()


def test_a_value_that_is_written_before_it_is_saved():
    y = leaf([1.0, 2.0])
    z = (y * 1).add_(1).exp_()
    w = z.mul(2)
    same(T.autograd.grad(w.sum(), y)[0], 2 * np.exp([2.0, 3.0]))


def test_a_result_overwritten_by_itself():
    y = leaf([1.0, 2.0]) * 2
    y *= y
    with raises_modified("FloatTensor", [2], 1, 0, "Mul"):
        y.sum().backward()


def test_a_failed_check_does_not_spoil_other_graphs():
    x = leaf([1.0, 2.0])
    y = x * 1
    bad, good = y * y, y + 1
    y.add_(1)
    with raises_modified("FloatTensor", [2], 1, 0, "Add"):
        bad.sum().backward()
    good.sum().backward()
    same(x.grad, [1.0, 1.0])


def two_by_two():
    return T.full((2, 2), 0.75, requires_grad=True)


# What backward needs of each op: its operand, its result, both or neither.
NEEDS = {
    "add": (lambda x: x + two_by_two(), ""),
    "rsub": (lambda x: 1 - x, ""),
    "neg": (lambda x: -x, ""),
    "mul": (lambda x: x * two_by_two(), "operand"),
    "mul number": (lambda x: x * 2, ""),
    "div": (lambda x: x / two_by_two(), "operand"),
    "div number": (lambda x: x / 2, ""),
    "divisor": (lambda x: two_by_two() / x, "operand"),
    "pow": (lambda x: x**3, "operand"),
    "root": (lambda x: x**0.5, "operand"),
    "inverse root": (lambda x: x**-0.5, "operand"),
    "inverse": (lambda x: x**-1, "operand"),
    "exp": (lambda x: x.exp(), "result"),
    "log": (lambda x: x.log(), "operand"),
    "sqrt": (lambda x: x.sqrt(), "result"),
    "rsqrt": (lambda x: x.rsqrt(), "result"),
    "reciprocal": (lambda x: x.reciprocal(), "result"),
    "sin": (lambda x: x.sin(), "operand"),
    "tan": (lambda x: x.tan(), "result"),
    "tanh": (lambda x: x.tanh(), "result"),
    "sigmoid": (lambda x: x.sigmoid(), "result"),
    "relu": (lambda x: x.relu(), "result"),
    "gelu": (lambda x: T.nn.functional.gelu(x), "operand"),
    "silu": (lambda x: T.nn.functional.silu(x), "operand"),
    "abs": (lambda x: x.abs(), "operand"),
    "clamp": (lambda x: x.clamp(0, 1), "operand"),
    "maximum": (lambda x: T.maximum(x, two_by_two() / 2), "operand"),
    "where": (lambda x: T.where(x > 0, x, -x), ""),
    "masked_fill": (lambda x: x.masked_fill(x > 1, 0.0), ""),
    "sum": (lambda x: x.sum(0), ""),
    "mean": (lambda x: x.mean(), ""),
    "max": (lambda x: x.max(), "operand, result"),
    "max of columns": (lambda x: x.max(0)[0], ""),
    "amax": (lambda x: x.amax(0), "operand, result"),
    "prod": (lambda x: x.prod(), "operand, result"),
    "var": (lambda x: (x * T.eye(2)).var(), ""),
    "logsumexp": (lambda x: x.logsumexp(0), "operand, result"),
    "norm": (lambda x: x.norm(), "operand, result"),
    "cumsum": (lambda x: x.cumsum(0), ""),
    "cumprod": (lambda x: x.cumprod(0), "operand, result"),
    "softmax": (lambda x: x.softmax(0), "result"),
    "log_softmax": (lambda x: x.log_softmax(0), "result"),
    "matmul": (lambda x: x @ two_by_two(), "operand"),
    "matmul constant": (lambda x: x @ T.ones(2, 2), ""),
    "clone": (lambda x: x.clone(), ""),
    "cat": (lambda x: T.cat([x, x]), ""),
    "gather": (lambda x: x.gather(0, T.zeros(1, 2, dtype=T.int64)), "operand"),
    "index": (lambda x: x[T.tensor([0])], ""),
    "mask": (lambda x: x[T.tensor([True, False])], ""),
    "flip": (lambda x: x.flip(0), ""),
    "double": (lambda x: x.double(), ""),
    "repeat": (lambda x: x.repeat(2, 1), ""),
    "roll": (lambda x: x.roll(1, 0), ""),
    "sort": (lambda x: x.sort(0)[0], ""),
    "topk": (lambda x: x.topk(1, 0)[0], ""),
    "mse_loss": (lambda x: T.nn.functional.mse_loss(x, T.ones(2, 2)), "operand"),
    # adjit's fused kernel saves the logits where PyTorch saves their log-softmax.
    "cross_entropy": (
        lambda x: T.nn.functional.cross_entropy(x, T.tensor([0, 1])),
        "" if AGAINST_TORCH else "operand",
    ),
    "cross_entropy of each": (
        lambda x: T.nn.functional.cross_entropy(x, T.tensor([0, 1]), reduction="none"),
        "" if AGAINST_TORCH else "operand",
    ),
    "max_pool1d": (lambda x: T.nn.functional.max_pool1d(x, 2), "operand"),
    "max_pool2d": (lambda x: T.nn.functional.max_pool2d(x[None], 2), "operand"),
    "max_pool3d": (lambda x: T.nn.functional.max_pool3d(x[None, None], (1, 2, 2)), "operand"),
    "adaptive_max_pool1d": (lambda x: T.nn.functional.adaptive_max_pool1d(x, 1), "operand"),
    "adaptive_max_pool2d": (lambda x: T.nn.functional.adaptive_max_pool2d(x[None], 1), "operand"),
    "lp_pool1d": (lambda x: T.nn.functional.lp_pool1d(x, 2, 2), "operand"),
    "layer_norm": (lambda x: T.nn.functional.layer_norm(x, (2,)), "operand"),
}


@pytest.mark.in_turn(6)
@pytest.mark.parametrize("written", ["operand", "result"])
@pytest.mark.parametrize("name", NEEDS)
def test_a_write_is_noticed_or_harmless(name, written):
    """A write that backward cannot bear is refused; after any other the gradient is right."""
    op, needs = NEEDS[name]
    gradients, refusal = [], None
    for writes in (False, True):
        x = leaf([[0.5, 0.25], [1.5, 2.0]])
        operand = x * 1
        result = op(operand)
        if writes:
            (operand if written == "operand" else result).mul_(3)
        try:
            result.sum().backward()
        except RuntimeError as error:
            refusal = str(error)
        gradients.append(x.grad)
    if refusal or AGAINST_TORCH:
        assert (written in needs) == (refusal is not None)
    if refusal:
        assert "modified by an inplace operation" in refusal
        assert gradients[0] is not None
    else:
        same(gradients[1], (3 if written == "result" else 1) * array(gradients[0]), rtol=1e-5)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda y: (y + 1, y.add_(5))[0], [1.0, 1.0, 1.0]),
        (lambda y: (y.exp(), y.zero_())[0], np.exp([1.0, 2.0, 3.0])),
        (lambda y: (y * 3, y.zero_())[0], [3.0, 3.0, 3.0]),
        (lambda y: (y.sum(), y.zero_())[0], [1.0, 1.0, 1.0]),
        (lambda y: (y[:2].clone(), y.zero_())[0], [1.0, 1.0, 0.0]),
        (lambda y: (T.cat([y, y]), y.zero_())[0], [2.0, 2.0, 2.0]),
        (lambda y: (y.tanh(), y[1].fill_(7))[0], 1 - np.tanh([1.0, 2.0, 3.0]) ** 2),
    ],
)
def test_writes_that_backward_does_not_notice(program, expected):
    x = leaf([1.0, 2.0, 3.0])
    program(x * 1).sum().backward()
    same(x.grad, expected)


def test_what_was_read_before_a_write_stays_as_it_was():
    y = T.tensor([1.0, 2.0, 3.0])
    doubled, tail = y * 2, y[1:]
    copied = y.clone()
    y.add_(10)
    tail.mul_(2)
    same(doubled, [2.0, 4.0, 6.0])
    same(copied, [1.0, 2.0, 3.0])
    same(y, [11.0, 24.0, 26.0])


# ---------------------------------------------------------------- gradients of writes

WRITES = {
    "add": (lambda y, w: y.add_(w), lambda y, w: y + w),
    "sub-alpha": (lambda y, w: y.sub_(w, alpha=3), lambda y, w: y - 3 * w),
    "mul": (lambda y, w: y.mul_(w), lambda y, w: y * w),
    "div": (lambda y, w: y.div_(w), lambda y, w: y / w),
    "pow": (lambda y, w: y.pow_(3), lambda y, w: y**3),
    "pow-tensor": (lambda y, w: y.pow_(w.abs()), lambda y, w: y ** w.abs()),
    "exp": (lambda y, w: y.exp_(), lambda y, w: y.exp()),
    "log": (lambda y, w: y.log_(), lambda y, w: y.log()),
    "sqrt": (lambda y, w: y.sqrt_(), lambda y, w: y.sqrt()),
    "sin": (lambda y, w: y.sin_(), lambda y, w: y.sin()),
    "tanh": (lambda y, w: y.tanh_(), lambda y, w: y.tanh()),
    "sigmoid": (lambda y, w: y.sigmoid_(), lambda y, w: y.sigmoid()),
    "relu": (lambda y, w: y.sub_(1).relu_(), lambda y, w: (y - 1).relu()),
    "neg": (lambda y, w: y.neg_(), lambda y, w: -y),
    "abs": (lambda y, w: y.sub_(1).abs_(), lambda y, w: (y - 1).abs()),
    "clamp": (lambda y, w: y.clamp_(0.7, 1.4), lambda y, w: y.clamp(0.7, 1.4)),
    "reciprocal": (lambda y, w: y.reciprocal_(), lambda y, w: 1 / y),
    "copy": (lambda y, w: y.copy_(w), lambda y, w: 0 * y + w),
    "fill": (lambda y, w: y.fill_(2.5), lambda y, w: 0 * y + 2.5),
    "zero": (lambda y, w: y.zero_(), lambda y, w: 0 * y),
    "masked_fill": (
        lambda y, w: y.masked_fill_(y.detach() > 1, 0.5),
        lambda y, w: T.where(y > 1, T.full_like(y, 0.5), y),
    ),
    "lerp": (lambda y, w: y.lerp_(w.expand(2, 3), 0.25), lambda y, w: y + 0.25 * (w - y)),
    "addcmul": (lambda y, w: y.addcmul_(w, w, value=2), lambda y, w: y + 2 * w * w),
    "self-add": (lambda y, w: y.add_(y), lambda y, w: y + y),
    "setitem": (lambda y, w: y.__setitem__(..., w), lambda y, w: 0 * y + w),
    "+=": (lambda y, w: y.__iadd__(w), lambda y, w: y + w),
    "-=": (lambda y, w: y.__isub__(w), lambda y, w: y - w),
    "*=": (lambda y, w: y.__imul__(w), lambda y, w: y * w),
    "/=": (lambda y, w: y.__itruediv__(w), lambda y, w: y / w),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_its_op_with_the_same_gradient(name):
    write, op = WRITES[name]
    results = []
    for in_place in (True, False):
        x = leaf([[0.5, 1.25, 2.0], [0.75, 1.5, 0.3]], dtype=T.float64)
        w = leaf([[1.5, -0.5, 2.0]], dtype=T.float64)
        y = x * 1
        address = y.data_ptr()
        if in_place:
            assert write(y, w) in (None, y)
            assert y.data_ptr() == address
        else:
            y = op(y, w)
        (y * y + w.sum()).sum().backward()
        results.append([array(y), array(x.grad), array(w.grad)])
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


VIEWS = {
    "whole": lambda y: y,
    "row": lambda y: y[1],
    "column": lambda y: y[:, 1],
    "element": lambda y: y[1, 2],
    "slice": lambda y: y[1:],
    "steps": lambda y: y[::2, 1::2],
    "select": lambda y: y.select(1, 3),
    "narrow": lambda y: y.narrow(1, 1, 2),
    "transpose": lambda y: y.t(),
    "swapped": lambda y: y.transpose(0, 1)[1:3],
    "permute": lambda y: y.permute(1, 0),
    "flat": lambda y: y.view(12),
    "reshape": lambda y: y.reshape(2, 6)[1],
    "unsqueeze": lambda y: y.unsqueeze(1),
    "squeeze": lambda y: y[:1].squeeze(0),
    "diagonal": lambda y: y.diagonal(),
    "off-diagonal": lambda y: y.diagonal(1),
    "as_strided": lambda y: y.as_strided((2, 2), (5, 2), 1),
    "expand": lambda y: y[:, :1].expand(3, 1),
    "unflatten": lambda y: y.unflatten(1, (2, 2))[:, 0],
    "flatten": lambda y: y.flatten()[3:9],
    "ellipsis": lambda y: y[..., -1],
    "none": lambda y: y[None, 2],
    "view of view": lambda y: y[1:].t()[1:3].t(),
    "view of view of view": lambda y: y.view(2, 6).t()[1:4][:, 1].unsqueeze(0),
    "movedim": lambda y: y.movedim(0, 1)[0],
    "view_as": lambda y: y.view_as(y)[2:],
}


def selected(view):
    """The places in a 3 by 4 tensor that a view sees, in its order, and the view's shape."""
    places = view(T.arange(12).view(3, 4))
    return array(places).ravel(), tuple(places.shape)


def scatter_back(y, places, shape, op):
    """`op` on the places of `y` with no view and no write: products with a selection matrix."""
    chosen = np.eye(12)[places]
    flat = y.reshape(12)
    part = op((T.tensor(chosen) @ flat).reshape(shape)).reshape(-1)
    kept = T.tensor(1 - chosen.sum(0))
    return (flat * kept + T.tensor(chosen.T.copy()) @ part).reshape(3, 4)


START = np.linspace(0.25, 2.0, 12).reshape(3, 4)
PART_OPS = {
    "mul": (lambda v, w: v.mul_(w), lambda v, w: v * w),
    "exp": (lambda v, w: v.exp_(), lambda v, w: v.exp()),
    "set": (lambda v, w: v.copy_(w), lambda v, w: 0 * v + w),
    "zero": (lambda v, w: v.zero_(), lambda v, w: 0 * v),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("read_view", [False, True], ids=["base", "view"])
@pytest.mark.parametrize("op", PART_OPS)
@pytest.mark.parametrize("name", VIEWS)
def test_a_write_through_a_view(name, op, read_view):
    write, same_op = PART_OPS[op]
    places, shape = selected(VIEWS[name])
    results = []
    for in_place in (True, False):
        x, w = leaf(START.tolist(), dtype=T.float64), leaf(1.5, dtype=T.float64)
        y = x * 2
        if in_place:
            view = VIEWS[name](y)
            write(view, w)
            assert view is y or view._base is y
            seen = view
        else:
            y = scatter_back(y, places, shape, lambda v, w=w: same_op(v, w))
            seen = (T.tensor(np.eye(12)[places]) @ y.reshape(12)).reshape(shape)
        total = (y * y).sum() + w * 0
        if read_view:
            total = total + (seen * seen * seen).sum()
        total.backward()
        results.append([array(y), array(seen), array(x.grad), array(w.grad)])
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_gradients_in_the_order_of_the_writes():
    """Base, view, another view, base again: each write sees the ones before it."""

    def in_place(x):
        y = x * 1
        row, column = y[1], y[:, 1]
        y.mul_(2)
        row.add_(column.sum())
        column.mul_(row[0].clone())
        y.t()[0].copy_(row[:3].clone())
        y.sub_(1)
        return y

    def functional(x):
        y = x * 1
        y = y * 2
        total = y[:, 1].sum()
        y = scatter_back(y, *selected(lambda y: y[1]), lambda v: v + total)
        first = y[1, 0]
        y = scatter_back(y, *selected(lambda y: y[:, 1]), lambda v: v * first)
        start = y[1, :3]
        y = scatter_back(y, *selected(lambda y: y[:, 0]), lambda v: 0 * v + start)
        return y - 1

    results = []
    for program in (in_place, functional):
        x = leaf(START.tolist(), dtype=T.float64)
        y = program(x)
        (y.sin() * y).sum().backward()
        results.append((array(y), array(x.grad)))
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_two_views_of_one_base():
    x = leaf([1.0, 2.0, 3.0])
    y = x * 1
    first, second = y[:2], y[1:]
    first.mul_(2)
    second.mul_(3)
    assert first._version == second._version == y._version == 2
    same(first, [2.0, 12.0])
    same(second, [12.0, 9.0])
    (first.sum() + 10 * second.sum()).backward()
    same(x.grad, [2.0, 6 + 60, 30.0])


def test_a_write_to_a_constant_makes_it_part_of_the_graph():
    constant, w = T.ones(4), leaf([2.0, 3.0])
    view = constant[:2]
    view.mul_(w)
    assert constant.requires_grad
    assert not constant.is_leaf
    assert constant.grad_fn.name().endswith("CopySlices")
    assert view.requires_grad
    (constant * constant).sum().backward()
    same(w.grad, [4.0, 6.0])


@pytest.mark.parametrize(
    "take", [lambda x: x[:, 1], lambda x: x.t()[1], lambda x: x[::2, 1], lambda x: x[1:3, 2]]
)
def test_a_write_to_a_view_of_a_detached_view(take):
    """The base of the write has gaps itself."""
    base, w = take(T.ones(3, 4)).detach(), leaf([2.0, 3.0])
    base[:2].mul_(w)
    (base * base).sum().backward()
    same(w.grad, [4.0, 6.0])


def test_items_are_assigned_with_gradients():
    out, w = T.zeros(2, 3), leaf([1.0, 2.0, 3.0])
    for i in range(2):
        for j in range(3):
            out[i, j] = w[j] * (i + 1)
    same(out, [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]])
    (out * out).sum().backward()
    same(w.grad, [10.0, 20.0, 30.0])


def test_assigned_into_a_plain_tensor():
    out, w = T.ones(4), leaf([2.0, 3.0])
    out[:2] = w
    (out * out).sum().backward()
    same(w.grad, [4.0, 6.0])


@pytest.mark.parametrize(
    ("index", "value", "gx", "gw"),
    [
        (0, lambda w: w[0], [0, 1, 1, 1], [1, 0]),
        (slice(1, 3), lambda w: w, [1, 0, 0, 1], [1, 1]),
        (slice(1, 3), lambda w: 7.0, [1, 0, 0, 1], None),
        (slice(None, None, 2), lambda w: w * 3, [0, 1, 0, 1], [3, 3]),
        (..., lambda w: w[1], [0, 0, 0, 0], [0, 4]),
        (None, lambda w: w[:1], [0, 0, 0, 0], [4, 0]),
        (-1, lambda w: w.sum(), [1, 1, 1, 0], [1, 1]),
        ([0, 3], lambda w: w, [0, 1, 1, 0], [1, 1]),
        ([True, False, False, True], lambda w: w * 2, [0, 1, 1, 0], [2, 2]),
        ([False, True, False, False], lambda w: 0.0, [1, 0, 1, 1], None),
    ],
)
def test_assignments(index, value, gx, gw):
    x, w = leaf([1.0, 2.0, 3.0, 4.0]), leaf([5.0, 6.0])
    y = x * 1
    place = T.tensor(index) if isinstance(index, list) else index
    y[place] = value(w)
    assert y._version == 1
    expected = np.array([1.0, 2.0, 3.0, 4.0])
    constant = value(np.array([5.0, 6.0]))
    expected[index] = constant
    same(y, expected)
    y.sum().backward()
    same(x.grad, gx)
    if gw is None:
        assert w.grad is None
    else:
        same(w.grad, gw)


def test_augmented_assignment_to_items():
    x = leaf([1.0, 2.0, 3.0, 4.0])
    y = x * 1
    y[1:3] += 10
    y[1:3] *= 2
    y[-1] **= 2
    same(y, [1.0, 24.0, 26.0, 16.0])
    y.sum().backward()
    same(x.grad, [1.0, 2.0, 2.0, 8.0])


def test_values_of_assignments_fit():
    x = T.ones(3)
    x[0:2] = T.tensor([1, 2])
    x[0] = T.tensor([7])
    same(x, [7.0, 2.0, 1.0])
    y = T.zeros(2, 2)
    y[0][1] = 5
    y[:, 0] = 7
    y[1, ...] = 9
    y[None, 0, 0] = 1
    same(y, [[1.0, 5.0], [9.0, 9.0]])


def test_fill_with_a_tensor():
    x, w = leaf([1.0, 2.0, 3.0]), leaf(2.0)
    y = x * 1
    y.fill_(w)
    y.sum().backward()
    same(x.grad, [0.0, 0.0, 0.0])
    same(w.grad, 3.0)


def test_overwriting_a_whole_tensor_saves_nothing():
    x = leaf([1.0, 2.0])
    for write in (lambda y: y.fill_(3), lambda y: y.zero_(), lambda y: y.copy_(T.ones(2))):
        total = write(x.clone()).sum()
        total.backward()
        total.backward()
        same(x.grad, [0.0, 0.0])


def test_writes_through_views_are_freed_by_backward():
    y = leaf([1.0, 2.0]) + 1
    y[0] = 5
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    with raises(RuntimeError, FREED):
        y.sum().backward()


def test_copy_broadcasts_and_converts():
    y = leaf([1.0, 1.0, 1.0]) * 1
    w = leaf([2.0], dtype=T.float64)
    y.copy_(w)
    assert y.dtype == T.float32
    (y * y).sum().backward()
    same(w.grad, [12.0])
    assert w.grad.dtype == T.float64


@pytest.mark.parametrize("shape", [(2, 3, 1), (3, 4)])
@pytest.mark.parametrize("fill", [lambda v: v.fill_(1.5), lambda v: v.zero_()])
def test_a_filled_expanded_view_has_no_backward(fill, shape):
    leaf = T.ones(3, 1, requires_grad=True)
    base = leaf.clone()
    view = base.expand(*shape)
    fill(view)
    for t in (view, base):
        with pytest.raises(RuntimeError, match=f"^{re.escape(OVERLAPS_ITSELF)}"):
            t.sum().backward(retain_graph=True)
    assert leaf.grad is None


def test_no_elements_refer_to_no_place_twice():
    x = T.zeros(0, 3, 1).expand(0, 3, 2)  # strides 3, 1, 0
    assert x.is_contiguous()
    assert x.transpose(0, 2).is_contiguous()
    for step in (1, 2):
        x[::step] = x.clone()[::step]
    x.add_(1).copy_(x.clone())
    assert x._version == 4
    assert x.view(6, 0).shape == (6, 0)


def test_a_write_to_one_cell_of_an_expanded_view():
    x = leaf([[1.0, 1.0, 1.0]])
    base = x * 1
    view = base.expand(2, 3)
    view[0, 0] = 5
    same(view, [[5.0, 1.0, 1.0], [5.0, 1.0, 1.0]])
    base.sum().backward()
    same(x.grad, [[0.0, 1.0, 1.0]])


# ---------------------------------------------------------------- grad_fn after writes


def test_views_get_a_new_history_when_the_base_is_written():
    x = leaf([1.0, 2.0, 3.0])
    y = x * 1
    view = y[:2]
    old = view.grad_fn
    assert old.name() == "SliceBackward0"
    assert view.grad_fn is old
    y.mul_(3)
    assert view.grad_fn.name() == "AsStridedBackward0"
    assert view.grad_fn is view.grad_fn
    assert view.grad_fn.next_functions[0][0] is y.grad_fn
    view.sum().backward()
    same(x.grad, [3.0, 3.0, 0.0])


def test_views_get_a_new_history_when_another_view_is_written():
    x = leaf([1.0, 2.0, 3.0, 4.0])
    y = x * 1
    first, second = y[:3], y[1:]
    inner = second.view(3, 1)
    first.mul_(5)
    assert plain(y.grad_fn.name()) == "T::autograd::CopySlices"
    assert {t.grad_fn.name() for t in (first, second, inner)} == {"AsStridedBackward0"}
    inner.sum().backward()
    same(x.grad, [0.0, 5.0, 5.0, 1.0])


def test_views_get_a_new_history_when_something_was_written_under_no_grad():
    x = leaf([1.0, 2.0, 3.0])
    outer = x.view(3)
    inner = outer[:2]
    with T.no_grad():
        inner.clamp_(0, 1)
    assert inner.grad_fn.name() == "AsStridedBackward0"
    assert plain(inner.grad_fn.next_functions[0][0].name()) == "T::autograd::AccumulateGrad"
    assert T.autograd.grad(inner.sum(), outer, allow_unused=True) == (None,)
    same(T.autograd.grad(inner.sum(), x)[0], [1.0, 1.0, 0.0])


def test_the_base_of_a_view():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = x * 1
    inner = y.t()[0][1:]
    assert inner._is_view()
    assert inner._base is y
    assert not y._is_view()
    assert y._base is None
    assert not y.clone()._is_view()


def test_hooks_and_retained_gradients_move_with_the_value():
    x = leaf([1.0, 2.0])
    y = x * 1
    y.retain_grad()
    z = y.exp()
    y.mul_(2)
    (y.sum() + z.sum() * 10).backward()
    same(y.grad, [1.0, 1.0])
    same(x.grad, 2 + 10 * np.exp([1.0, 2.0]), rtol=1e-5)


@pytest.mark.parametrize(
    ("write", "shape", "name"),
    [
        (lambda y: y.t_(), (3, 2), "TBackward1"),
        (lambda y: y.transpose_(0, 1), (3, 2), "TransposeBackward1"),
        (lambda y: y.unsqueeze_(0), (1, 2, 3), "UnsqueezeBackward1"),
    ],
)
def test_shapes_change_in_place(write, shape, name):
    x = leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    y = x * 1
    assert write(y) is y
    assert y.shape == shape
    assert y.grad_fn.name() == name
    assert y._version == 1
    weights = T.arange(6.0).view(shape)
    (y * weights).sum().backward()
    expected = np.arange(6.0).reshape(shape)
    same(x.grad, expected.T if expected.shape == (3, 2) else expected[0])


# ---------------------------------------------------------------- detach


def test_detach_shares_values_but_not_history():
    x = leaf([1.0, 1.0])
    y = x * 1
    d = y.detach()
    d.zero_()
    same(y, [0.0, 0.0])
    y.sum().backward()
    same(x.grad, [1.0, 1.0])
    d.view(2, 1).add_(4)
    same(y, [4.0, 4.0])
    d.requires_grad_()
    assert not x.detach().requires_grad
    assert d.is_leaf


def test_detach_in_place():
    x = leaf([1.0, 2.0])
    y = x * 2
    assert y.detach_() is y
    assert y.is_leaf
    assert not y.requires_grad
    assert y.grad_fn is None
    x.detach_()
    assert not x.requires_grad
    with raises(RuntimeError, DETACHED_VIEW):
        (leaf([1.0, 2.0]) * 1)[:1].detach_()


def test_data_is_as_unsafe_as_ever():
    x = leaf([1.0, 2.0])
    y = x.exp()
    y.data.zero_()
    y.sum().backward()
    same(x.grad, [0.0, 0.0])


@pytest.mark.cpu
def test_writes_from_numpy_are_not_counted_but_seen():
    x = T.ones(3)
    view, doubled = x[1:], x * 2
    x.numpy()[1] = 5
    assert x._version == 0
    same(x, [1.0, 5.0, 1.0])
    same(view, [5.0, 1.0])
    same(x * 2, [2.0, 10.0, 2.0])
    same(doubled, [2.0, 2.0, 2.0])
    exported = view.numpy()
    x.mul_(3)
    np.testing.assert_array_equal(exported, [15.0, 3.0])


@pytest.mark.cpu
def test_writes_from_numpy_change_gradients_silently():
    values = np.ones(3, dtype=np.float32)
    constant, x = T.from_numpy(values), leaf([1.0, 2.0, 3.0])
    y = x * constant
    values[:] = 7
    same(y, [1.0, 2.0, 3.0])
    y.sum().backward()
    same(x.grad, [7.0, 7.0, 7.0])


# ---------------------------------------------------------------- programs


def test_a_recurrence_written_into_one_tensor():
    x = leaf(0.5, dtype=T.float64)
    states = T.zeros(20, dtype=T.float64)
    states[0] = x
    for t in range(1, 20):
        states[t] = (states[t - 1].clone() * 1.1).sin()
    states[-1].backward()
    value, slope = 0.5, 1.0
    for _ in range(19):
        slope *= 1.1 * np.cos(1.1 * value)
        value = np.sin(1.1 * value)
    np.testing.assert_allclose(states[-1].item(), value, rtol=1e-12)
    np.testing.assert_allclose(x.grad.item(), slope, rtol=1e-12)


def test_gradient_descent_by_hand():
    w = leaf([3.0, -2.0])
    for _ in range(40):
        loss = ((w - T.tensor([1.0, 2.0])) ** 2).sum()
        loss.backward()
        with T.no_grad():
            w -= 0.2 * w.grad
        w.grad.zero_()
    same(w, [1.0, 2.0], rtol=1e-5)


def test_running_statistics():
    x = leaf([1.0, 2.0, 3.0])
    running = T.zeros(3)
    for _ in range(3):
        y = x * 2
        with T.no_grad():
            running.mul_(0.9).add_(y, alpha=0.1)
        y.sum().backward()
    assert not running.requires_grad
    assert running._version == 6
    same(running, 0.1 * (1 + 0.9 + 0.81) * np.array([2.0, 4.0, 6.0]))
    same(x.grad, [6.0, 6.0, 6.0])


def test_only_numbers_fill():
    x = T.zeros(2)
    for value in ("1.5", None, [1.0]):
        with pytest.raises(
            TypeError, match=rf"fill_\(\) received .* - got \({type(value).__name__}\)"
        ):
            x.fill_(value)
    for value in (2, True, 2.5, np.float32(2.5), np.int8(3), T.tensor(4.0)):
        assert x.fill_(value).tolist() == [float(value)] * 2


# --------------------------------------------------------------------------- memory of NumPy's

PLACES = T.tensor([3, 0, 5])
OVER = {
    "add_ a number": lambda x, y: x.add_(1.5),
    "mul_": lambda x, y: x.mul_(y),
    "mul_ a row": lambda x, y: x.mul_(y[2]),
    "addcmul_": lambda x, y: x.addcmul_(y, y + 1, value=0.5),
    "clamp_": lambda x, y: x.clamp_(0.25, 0.75),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0.5, 2.0),
    "a mask": lambda x, y: x.__setitem__(y > 0.5, -1.0),
    "exp_": lambda x, y: x.exp_(),
    "rows of a number": lambda x, y: x.__setitem__(PLACES, 1.5),
    "rows": lambda x, y: x.__setitem__(PLACES, y[:3]),
    "columns": lambda x, y: x.__setitem__((slice(None), PLACES), 0.5),
    "points": lambda x, y: x.__setitem__((PLACES, PLACES), y[0, :3]),
    "index_add_": lambda x, y: x.index_add_(0, PLACES, y[:3]),
    "index_fill_": lambda x, y: x.index_fill_(1, PLACES, 0.5),
    "put_": lambda x, y: x.put_(PLACES, y[0, :3]),
    "scatter_add_": lambda x, y: x.scatter_add_(0, (y * 7).long(), y * 2),
    "a flat view": lambda x, y: x.view(-1).__setitem__(PLACES, 1.5),
    "x += its own": lambda x, y: x.add_(x * 2),
}
COPIED = {
    "copy_": lambda x, y: x.copy_(y),
    "copy_ a row": lambda x, y: x.copy_(y[3]),
    "copy_ turned": lambda x, y: x.copy_(y[:, :200].t()[:8].repeat(25, 1).t()),
    "copy_ other numbers": lambda x, y: x.copy_((y * 100).long()),
    "copy_ float64": lambda x, y: x.copy_(y.double() / 3),
    "copy_ of itself": lambda x, y: x.copy_(x.flip(0)),
    "copy_ columns of itself": lambda x, y: x.view(-1)[30000:].view(200, 50).copy_(x[:, 100:150]),
    "fill_": lambda x, y: x.fill_(2.5),
    "zero_": lambda x, y: x.zero_(),
    "tril_": lambda x, y: x.tril_(),
    "uniform_": lambda x, y: (T.manual_seed(3), x.uniform_()),
    "a row": lambda x, y: x[3].copy_(y[5]),
    "a column of numbers": lambda x, y: x.__setitem__((slice(None), 3), 0.5),
    "itself": lambda x, y: x.mul_(x),
    "rows of itself": lambda x, y: x.__setitem__(PLACES, x[1:4] * 2),
}


@pytest.mark.cpu
@pytest.mark.in_turn(2)
@pytest.mark.parametrize("way", ["from_numpy", "numpy", "data_ptr"])
@pytest.mark.parametrize("name", [*OVER, *COPIED])
def test_writes_reach_the_memory_that_others_look_at(name, way):
    write = {**OVER, **COPIED}[name]
    values = np.random.default_rng(0).random((200, 200), np.float32)
    other = T.tensor(np.random.default_rng(1).random((200, 200), np.float32))
    mine, expected = values.copy(), T.tensor(values)
    x = T.from_numpy(mine) if way == "from_numpy" else T.tensor(values)
    if way == "numpy":
        mine = x.numpy()
    address = x.data_ptr() if way == "data_ptr" else mine.ctypes.data
    for _ in range(3):
        version = x._version
        write(x, other)
        write(expected, other)
        assert x._version > version
        if way != "data_ptr":
            assert mine.tobytes() == expected.clone().numpy().tobytes()
        assert x.data_ptr() == address
        assert x.tolist() == expected.tolist()


@pytest.mark.cpu
@pytest.mark.parametrize("name", OVER)
@pytest.mark.skipif(AGAINST_TORCH, reason="looks at how it is done")
def test_what_is_computed_of_shared_memory_is_not_copied_into_it(name, monkeypatch):
    from adjit.graph import write

    def refused(t, source):
        raise AssertionError("a result that could have been written there was copied")

    mine = np.random.default_rng(0).random((200, 200), np.float32)
    other = T.tensor(np.random.default_rng(1).random((200, 200), np.float32))
    monkeypatch.setattr(write, "_write_region", refused)
    OVER[name](T.from_numpy(mine), other)
    OVER[name](T.from_numpy(mine), T.from_numpy(other.numpy()))


@pytest.mark.cpu
def test_arrays_that_overlap_are_read_before_they_are_written():
    mine = np.arange(20000.0)
    expected = mine.copy()
    expected[1:] = mine[1:] + mine[:-1]
    if not AGAINST_TORCH:  # where that is not defined
        T.from_numpy(mine[1:]).add_(T.from_numpy(mine[:-1]))
        assert mine.tolist() == expected.tolist()


@pytest.mark.cpu
def test_gradients_of_a_write_into_shared_memory():
    mine = np.arange(20000.0)
    x, w = T.from_numpy(mine), leaf(np.full(20000, 3.0))
    x.mul_(w)
    assert mine[:4].tolist() == [0.0, 3.0, 6.0, 9.0]
    x.sum().backward()
    assert w.grad.tolist() == list(range(20000))


@pytest.mark.cpu
def test_what_is_not_zero_is_true_in_shared_memory():
    mine = np.zeros(4, np.bool_)
    T.from_numpy(mine).copy_(T.tensor([0.5, 0.0, -2.0, np.nan]))
    assert mine.view(np.uint8).tolist() == [1, 0, 1, 1]


@pytest.mark.cpu
@pytest.mark.parametrize("bad", [6, -7, 1 << 40])
def test_a_bad_index_leaves_shared_memory_as_it_was(bad):
    mine = np.arange(12.0).reshape(6, 2)
    x = T.from_numpy(mine)
    for write in (
        lambda: x.__setitem__(T.tensor([1, bad]), 7.0),
        lambda: x.index_add_(0, T.tensor([1, bad]), T.ones(2, 2, dtype=T.float64)),
    ):
        with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)"):
            write()
        if not AGAINST_TORCH:  # which has written the first one
            assert mine.tolist() == np.arange(12.0).reshape(6, 2).tolist()
            assert x.tolist() == mine.tolist()


@pytest.mark.cpu
@pytest.mark.skipif(AGAINST_TORCH, reason="nothing waits there")
def test_what_goes_wrong_elsewhere_is_raised_before_shared_memory_is_written():
    mine, table = np.zeros(20000), T.ones(4)
    x = T.from_numpy(mine)
    for _ in range(2):
        wrong = table[T.tensor([9])]
        with pytest.raises(IndexError, match="index 9 is out of bounds") as caught:
            x.add_(1.0)
        assert not mine.any()  # nor later, though the traceback holds what was recorded
        assert x.tolist() == [0.0] * 20000
        assert caught.value is not None
        with pytest.raises(IndexError):
            wrong.tolist()
    x.add_(1.0)
    assert mine.all()


@pytest.mark.parametrize("name", ["mul_", "div_", "pow_", "remainder_", "atan2_", "copysign_"])
def test_an_operand_of_a_wider_dtype_keeps_what_was_there(name):
    for part in (slice(None), slice(1, None)):
        x = T.tensor([0.5, 1.5, 2.5], requires_grad=True)
        y = T.tensor([0.7, 1.1, 3.0], dtype=T.float64, requires_grad=True)
        written, plain = x * 1.5, (x * 1.5)[part]
        getattr(written[part], name)(y[part])
        wanted = getattr(plain, name[:-1])(y[part]).float()
        for found, other in zip(
            T.autograd.grad(written[part].square().sum(), [x, y]),
            T.autograd.grad(wanted.square().sum(), [x, y]),
            strict=True,
        ):
            assert found.dtype is other.dtype
            assert found.tolist() == pytest.approx(other.tolist(), rel=1e-6)


def _of_one_tensor():
    """Functions of a square matrix: the methods that need nothing else, and some that do."""
    named = {
        name: lambda L, x, n=name: getattr(x, n)()
        for name in sorted(methods)
        if name[-1] != "_" and name not in ("half", "bfloat16")
    }
    named |= {
        f"F.{name}": lambda L, x, n=name: getattr(L.nn.functional, n)(x)
        for name in functional.__all__
        if isinstance(getattr(functional, name), type(_of_one_tensor)) and "dropout" not in name
    }
    return named | {
        "x ** 2": lambda L, x: x**2,
        "x ** 0.5": lambda L, x: x**0.5,
        "2 ** x": lambda L, x: 2**x,
        "2 / x": lambda L, x: 2 / x,
        "x * x": lambda L, x: x * x,
        "x / x": lambda L, x: x / x,
        "clamp": lambda L, x: x.clamp(0.2, 0.6),
        "softmax": lambda L, x: x.softmax(-1),
        "logit": lambda L, x: x.logit(0.1),
        "cumprod": lambda L, x: x.cumprod(0),
        "norm": lambda L, x: x.norm(3),
        "max": lambda L, x: x.max(0)[0],
    }


@pytest.mark.cpu
@adjit_only
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _of_one_tensor())
def test_programs_may_write_into_what_pytorch_does_not_keep(name):
    """Where PyTorch refuses, the gradient may still be there: values are never written over here."""
    torch = pytest.importorskip("torch")
    call = _of_one_tensor()[name]

    def gradient(L):
        x = L.tensor(np.linspace(0.1, 0.9, 9).reshape(3, 3), requires_grad=True)
        y = call(L, x)
        y.mul_(2)
        y.sum().backward()
        return x.grad.numpy()

    try:
        wanted = gradient(torch)
    except Exception:
        return
    np.testing.assert_allclose(gradient(T), wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "name",
    [
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
    ],
)
def test_a_comparison_that_is_written_forgets_what_it_compared(name: str) -> None:
    """The gradient is 0: before, that of the tensor as it was went on."""
    for of_view in (False, True):
        for other in (2.0, T.tensor([1.0, 2.0, 3.0])):
            x = T.tensor([1.0, 2.0, 4.0], requires_grad=True)
            y = x * 3
            z = y[:] if of_view else y
            wanted = getattr(T, name)(z, other).tolist()
            getattr(z, f"{name}_")(other)
            assert y.tolist() == [float(w) for w in wanted]
            assert y.requires_grad
            y.sum().backward()
            assert x.grad.tolist() == [0.0, 0.0, 0.0]
    x = T.ones(2, requires_grad=True)
    y = T.ones(2)
    assert getattr(y, f"{name}_")(x) is y
    y.sum().backward()
    assert x.grad is None or x.grad.tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        getattr(x, f"{name}_")(1)
    whole = T.tensor([1, 2])
    assert getattr(whole, f"{name}_")(1).dtype is T.int64
