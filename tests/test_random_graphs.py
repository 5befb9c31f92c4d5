"""Random programs beside naive models: NumPy for the values, PyTorch (if installed) for the rest.

Each step of a program is run in every world at once. NumPy's views alias as tensors' do, so its
arrays say what every handle holds; PyTorch says which steps are refused, with which text, and what
the gradients, flags and version counters are. Values are looked at rarely and late: what was
recorded before a write must not see it, what shares memory must.
"""

from __future__ import annotations

import operator
from contextlib import ExitStack
from functools import partial

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from library import AGAINST_TORCH, FREED, T, array, plain, putting_off

try:
    import torch
except ImportError:
    torch = None

WORLDS = [T] if AGAINST_TORCH or torch is None else [T, torch]


def square_part_diagonal(a):
    """The diagonal as a view that can be written, which `np.diagonal` is not."""
    side = min(a.shape[:2])
    return np.einsum("ii...->...i", a[:side, :side])


VIEWS = {
    "first": (lambda x: x[0], lambda a: a[0, ...]),
    "last": (lambda x: x[-1], lambda a: a[-1, ...]),
    "rest": (lambda x: x[1:], lambda a: a[1:]),
    "steps": (lambda x: x[::2], lambda a: a[::2]),
    "start of rows": (lambda x: x[..., :2], lambda a: a[..., :2]),
    "end of rows": (lambda x: x[..., -1], lambda a: a[..., -1]),
    "transpose": (lambda x: x.transpose(0, -1), lambda a: a.swapaxes(0, -1)),
    "permute": (
        lambda x: x.permute(*range(1, x.ndim), 0),
        lambda a: a.transpose(*range(1, a.ndim), 0),
    ),
    "flat": (lambda x: x.view(-1), lambda a: a.reshape(-1)),
    "unsqueeze": (lambda x: x.unsqueeze(-1), lambda a: a[..., None]),
    "squeeze": (lambda x: x.squeeze(), lambda a: a.squeeze()),
    "diagonal": (lambda x: x.diagonal(), square_part_diagonal),
    "expand": (
        lambda x: x.expand(2, *x.shape),
        lambda a: np.lib.stride_tricks.as_strided(a, (2, *a.shape), (0, *a.strides)),
    ),
    "detach": (lambda x: x.detach(), lambda a: a[...]),
    "data": (lambda x: x.data, lambda a: a[...]),
}
UNARY = {
    "sin": (lambda lib, x: x.sin(), np.sin),
    "tanh": (lambda lib, x: x.tanh(), np.tanh),
    "sigmoid": (lambda lib, x: x.sigmoid(), lambda a: 1 / (1 + np.exp(-a))),
    "relu": (lambda lib, x: x.relu(), lambda a: np.maximum(a, 0)),
    "negate": (lambda lib, x: -x, np.negative),
    "scale": (lambda lib, x: x * 1.5, lambda a: a * 1.5),
    "shift": (lambda lib, x: 1 - x, lambda a: 1 - a),
    "square": (lambda lib, x: x**2, np.square),
    "clone": (lambda lib, x: x.clone(), np.copy),
    "sum": (lambda lib, x: x.sum(), np.sum),
    "sum of columns": (lambda lib, x: x.sum(0), lambda a: a.sum(0)),
    "sum of rows": (lambda lib, x: x.sum(-1, keepdim=True), lambda a: a.sum(-1, keepdims=True)),
    "mean of rows": (
        lambda lib, x: x.mean(-1, keepdim=True),
        lambda a: a.mean(-1, keepdims=True),
    ),
    "mean of the inner": (lambda lib, x: x.mean((0, -1)), lambda a: a.mean((0, -1))),
    "hardswish": (
        lambda lib, x: lib.nn.functional.hardswish(x),
        lambda a: a * np.clip(a + 3, 0, 6) / 6,
    ),
    "gelu": (
        lambda lib, x: lib.nn.functional.gelu(x, approximate="tanh"),
        lambda a: a * (0.5 + 0.5 * np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3))),
    ),
    "twice": (lambda lib, x: lib.cat([x, x]), lambda a: np.concatenate([a, a])),
    "pick": (lambda lib, x: x[lib.tensor([0, -1, 0])], lambda a: a[[0, -1, 0]]),
    "softmax": (
        lambda lib, x: x.softmax(0),
        lambda a: np.exp(a - a.max(0)) / np.exp(a - a.max(0)).sum(0),
    ),
}
BINARY = {
    "add": (lambda lib, x, y: x + y, np.add),
    "subtract": (lambda lib, x, y: x - y, np.subtract),
    "multiply": (lambda lib, x, y: x * y, np.multiply),
    "divide": (lambda lib, x, y: x / (y * y + 1), lambda a, b: a / (b * b + 1)),
    "where": (lambda lib, x, y: lib.where(x > y, x, y), lambda a, b: np.where(a > b, a, b)),
    "matmul": (lambda lib, x, y: x @ y.t(), lambda a, b: a @ b.T),
}
UNARY_WRITES = {
    "sin": (lambda x: x.sin_(), np.sin),
    "tanh": (lambda x: x.tanh_(), np.tanh),
    "negate": (lambda x: x.neg_(), np.negative),
    "relu": (lambda x: x.relu_(), lambda a: np.maximum(a, 0)),
    "scale": (lambda x: x.mul_(0.5), lambda a: a * 0.5),
    "zero": (lambda x: x.zero_(), lambda a: a * 0),
    "fill": (lambda x: x.fill_(1.5), lambda a: a * 0 + 1.5),
    "clamp": (lambda x: x.clamp_(-0.5, 1), lambda a: a.clip(-0.5, 1)),
}
BINARY_WRITES = {
    "add": (lambda x, y: x.add_(y), np.add),
    "subtract": (lambda x, y: x.sub_(y, alpha=2), lambda a, b: a - 2 * b),
    "multiply": (lambda x, y: x.mul_(y), np.multiply),
    "copy": (lambda x, y: x.copy_(y), lambda a, b: np.broadcast_to(b, a.shape)),
    "iadd": (operator.iadd, np.add),
    "imul": (operator.imul, np.multiply),
}
PLACES = {
    "first": 0,
    "all": ...,
    "rest": slice(1, None),
    "steps": slice(None, None, 2),
    "end of rows": (..., -1),
}
LARGEST = 100.0
# Which of several overwritten values is noticed first is not compared.
OVERWRITTEN = "one of the variables needed for gradient computation has been modified by an inplace"

somewhere = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 6, 8, 11, 15, 20])  # 0 is the newest
modes = st.sampled_from(["enable_grad", "enable_grad", "enable_grad", "no_grad"])


def is_tame(a):
    """Small enough for rounding to stay out of sight, and for the program to stay quick."""
    return a.ndim <= 4 and a.size <= 64 and bool((np.abs(a) <= LARGEST).all())


def outcome(call):
    """What a call returned, or the text of its error."""
    try:
        return "returned", call()
    except (RuntimeError, IndexError, ValueError) as error:
        text = plain(error)
        return "raised", OVERWRITTEN if text.startswith(OVERWRITTEN) else text


def on_arrays(call):
    """The model's answer, or None where NumPy cannot or warns, or the values grow out of hand."""
    try:
        result = np.asarray(call())
    except (ValueError, IndexError, RuntimeWarning, np.exceptions.AxisError):
        return None
    return result if is_tame(result) else None


def fit(a, b):
    """Whether two arrays can be broadcast together."""
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return False
    return True


class Programs(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.arrays: list[np.ndarray] = []
        self.handles: list[list] = []
        self.exports: list[tuple[np.ndarray, list[np.ndarray]]] = []

    # ---- running a step everywhere

    def everywhere(self, step, *places):
        """Run `step(lib, *tensors)` in each world; None if it was refused, alike in each."""
        outcomes = [
            outcome(lambda lib=lib, n=n: step(lib, *(self.handles[i][n] for i in places)))
            for n, lib in enumerate(WORLDS)
        ]
        kinds = [kind for kind, _ in outcomes]
        if kinds == ["returned", "raised"] and outcomes[1][1] in (FREED, OVERWRITTEN):
            return None  # PyTorch saves more: what must be refused is in the other files
        assert len(set(kinds)) == 1, outcomes
        if kinds[0] == "raised":
            assert len({text for _, text in outcomes}) == 1, outcomes
            return None
        return [result for _, result in outcomes]

    def add(self, values, tensors):
        assert all(tuple(tensor.shape) == values.shape for tensor in tensors)
        self.arrays.append(values)
        self.handles.append(tensors)
        self.compare_flags(len(self.handles) - 1)

    def add_result(self, values, step, *places):
        """Keep what `step` computes; contiguous, since layouts of results may differ."""
        results = self.everywhere(lambda lib, *x: step(lib, *x).contiguous(), *places)
        if results is not None:
            self.add(np.array(values, order="C"), results)

    def place(self, i):
        return -1 - i % len(self.handles)

    def is_out_of_the_graph(self, i):
        return outcome(lambda: self.handles[i][0].requires_grad) == ("returned", False)

    # ---- comparing

    def compare_flags(self, i):
        for flag in ("requires_grad", "is_leaf", "_version"):
            self.compare_all([outcome(partial(getattr, x, flag)) for x in self.handles[i]], flag)

    def compare_all(self, found, what):
        assert all(one == found[0] for one in found), (what, found)

    def compare_values(self, i):
        for tensor in self.handles[i]:
            np.testing.assert_allclose(array(tensor), self.arrays[i], rtol=1e-8, atol=1e-8)

    def compare_gradients(self):
        for tensors in self.handles:
            if outcome(lambda x=tensors[0]: x.is_leaf and x.requires_grad) != ("returned", True):
                continue
            gradients = [tensor.grad for tensor in tensors]
            self.compare_all([gradient is None for gradient in gradients], "no gradient")
            for gradient in gradients:
                if gradient is not None:
                    np.testing.assert_allclose(
                        array(gradient), array(gradients[-1]), rtol=1e-7, atol=1e-7
                    )

    # ---- making

    @initialize()
    def start(self):
        self.make((3, 4), 1, True)
        self.make((4,), 2, True)
        self.make((3, 1), 3, False)

    @rule(
        shape=st.sampled_from([(3, 4), (4, 3), (4,), (2, 2), (1,), (), (2, 3, 2)]),
        seed=st.integers(0, 9),
        requires_grad=st.sampled_from([True, True, False]),
    )
    def make(self, shape, seed, requires_grad):
        values = np.asarray(np.random.default_rng(seed).uniform(-2, 2, shape))
        self.add(
            values,
            [
                lib.tensor(values.tolist(), dtype=lib.float64, requires_grad=requires_grad)
                for lib in WORLDS
            ],
        )

    @rule(seed=st.integers(0, 9))
    def import_from_numpy(self, seed):
        values = np.random.default_rng(seed).uniform(-2, 2, (3, 4))
        if seed % 2:
            values = np.asfortranarray(values)
        shared = [values.copy(order="K") for _ in WORLDS]
        self.add(values, [lib.from_numpy(a) for lib, a in zip(WORLDS, shared, strict=True)])
        self.exports.append((values, shared))

    # ---- computing

    @rule(i=somewhere, name=st.sampled_from(sorted(UNARY)), mode=modes)
    def compute(self, i, name, mode):
        i = self.place(i)
        function, model = UNARY[name]
        values = on_arrays(lambda: model(self.arrays[i]))
        if values is not None:

            def step(lib, x):
                with getattr(lib, mode)():
                    return function(lib, x)

            self.add_result(values, step, i)

    @rule(i=somewhere, j=somewhere, name=st.sampled_from(sorted(BINARY)), mode=modes)
    def combine(self, i, j, name, mode):
        i, j = self.place(i), self.place(j)
        function, model = BINARY[name]
        x, y = self.arrays[i], self.arrays[j]
        if name == "matmul" and not x.ndim == y.ndim == 2:
            return
        values = on_arrays(lambda: model(x, y))

        def step(lib, x, y):
            with getattr(lib, mode)():
                return function(lib, x, y)

        if values is not None:
            self.add_result(values, step, i, j)
        elif not fit(x, y) and name != "matmul":
            assert self.everywhere(step, i, j) is None

    @rule(i=somewhere, name=st.sampled_from(sorted(VIEWS)))
    def look(self, i, name):
        i = self.place(i)
        function, model = VIEWS[name]
        if name == "flat" and not self.arrays[i].flags.c_contiguous:
            return
        view = on_arrays(lambda: model(self.arrays[i]))
        if view is None:
            return

        tensors = self.everywhere(lambda lib, x: function(x), i)
        if tensors is not None:
            self.add(view, tensors)

    # ---- writing

    def write(self, i, model, step, *places, index=...):
        target = self.arrays[i]
        values = on_arrays(lambda: np.broadcast_to(model(), target[index].shape).copy())
        if values is None:
            return
        for tensor in self.handles[i]:
            outcome(lambda tensor=tensor: tensor.grad_fn)  # PyTorch's checks may miss it otherwise
        if self.everywhere(step, i, *places) is not None:
            target[index] = values
        self.compare_flags(i)

    @rule(i=somewhere, name=st.sampled_from(sorted(UNARY_WRITES)), mode=modes)
    def overwrite(self, i, name, mode):
        i = self.place(i)
        function, model = UNARY_WRITES[name]

        def step(lib, x):
            with getattr(lib, mode)():
                function(x)

        self.write(i, lambda: model(self.arrays[i]), step)

    @rule(i=somewhere, j=somewhere, name=st.sampled_from(sorted(BINARY_WRITES)), mode=modes)
    def overwrite_with(self, i, j, name, mode):
        i, j = self.place(i), self.place(j)
        if name == "copy" and i == j:
            return
        function, model = BINARY_WRITES[name]
        overlap = i != j and np.may_share_memory(self.arrays[i], self.arrays[j])

        def step(lib, x, y):
            with getattr(lib, mode)():
                function(x, y.clone() if overlap else y)

        self.write(i, lambda: model(self.arrays[i], self.arrays[j]), step, j)

    @rule(
        i=somewhere,
        j=somewhere,
        where=st.sampled_from(sorted(PLACES)),
        constant=st.one_of(st.none(), st.floats(-2, 2)),
        mode=modes,
    )
    def assign(self, i, j, where, constant, mode):
        i, j = self.place(i), self.place(j)
        index = PLACES[where]

        def model():
            return self.arrays[j] if constant is None else constant

        def step(lib, x, y):
            with getattr(lib, mode)():
                x[index] = y.clone() if constant is None else constant

        self.write(i, model, step, j, index=index)

    @rule(
        steps=st.lists(
            st.tuples(
                st.sampled_from(["compute", "combine", "look", "overwrite", "overwrite_with"]),
                somewhere,
                somewhere,
                st.integers(0, 99),
                modes,
            ),
            min_size=4,
            max_size=12,
        )
    )
    def run_several(self, steps):
        """Most of a program is computing and writing."""
        tables = {
            "compute": UNARY,
            "combine": BINARY,
            "look": VIEWS,
            "overwrite": UNARY_WRITES,
            "overwrite_with": BINARY_WRITES,
        }
        for kind, i, j, number, mode in steps:
            names = sorted(tables[kind])
            arguments = {"i": i, "name": names[number % len(names)]}
            if kind in ("combine", "overwrite_with"):
                arguments["j"] = j
            if kind != "look":
                arguments["mode"] = mode
            getattr(self, kind)(**arguments)

    @precondition(lambda self: self.exports)
    @rule(k=somewhere, where=st.integers(0, 63), value=st.floats(-2, 2))
    def scribble(self, k, where, value):
        values, shared = self.exports[k % len(self.exports)]
        if values.size:
            for a in (values, *shared):
                a.flat[where % values.size] = value

    # ---- looking

    @rule(i=somewhere)
    def read(self, i):
        self.compare_values(self.place(i))

    @rule(i=somewhere)
    def export_to_numpy(self, i):
        i = self.place(i)
        self.exports.append((self.arrays[i], [array(tensor) for tensor in self.handles[i]]))
        self.compare_exports()

    def compare_exports(self):
        for values, shared in self.exports:
            for a in shared:
                np.testing.assert_allclose(a, values, rtol=1e-8, atol=1e-8)

    @precondition(lambda self: len(self.handles) > 3)
    @rule(i=somewhere)
    def drop(self, i):
        i = self.place(i)
        del self.arrays[i], self.handles[i]

    @precondition(lambda self: self.exports)
    @rule(k=somewhere)
    def drop_export(self, k):
        del self.exports[k % len(self.exports)]

    # ---- differentiating

    @rule(i=somewhere)
    def require_grad(self, i):
        """Only where no other handle shares the memory: views and their bases would not agree."""
        i = self.place(i)
        if sum(np.may_share_memory(a, self.arrays[i]) for a in self.arrays) == 1:
            self.everywhere(lambda lib, x: x.requires_grad_(), i)
            self.compare_flags(i)

    @rule(i=somewhere, retain=st.booleans())
    def backward(self, i, retain):
        i = self.place(i)
        if self.is_out_of_the_graph(i):
            return
        if self.everywhere(lambda lib, x: x.sum().backward(retain_graph=retain), i) is None:
            self.start_over()
        else:
            self.compare_gradients()

    @rule(i=somewhere, j=somewhere, create_graph=st.booleans())
    def differentiate(self, i, j, create_graph):
        i, j = self.place(i), self.place(j)
        if self.is_out_of_the_graph(i) or self.is_out_of_the_graph(j):
            return
        found = self.everywhere(
            lambda lib, y, x: lib.autograd.grad(
                (y * y).sum(), x, create_graph=create_graph, retain_graph=True, allow_unused=True
            ),
            i,
            j,
        )
        if found is None:
            self.start_over()
            return
        gradients = [one for (one,) in found]
        self.compare_all([one is None for one in gradients], "unused")
        if gradients[0] is None:
            return
        values = array(gradients[-1]).copy()
        for gradient in gradients:
            np.testing.assert_allclose(array(gradient), values, rtol=1e-7, atol=1e-7)
        if is_tame(values):
            if len({one.requires_grad for one in gradients}) == 2:  # one of them is a plain zero
                gradients = [one.detach() for one in gradients]
            self.add(np.array(values, order="C"), [one.clone().contiguous() for one in gradients])

    @rule(i=somewhere)
    def descend(self, i):
        i = self.place(i)
        if outcome(lambda: self.handles[i][0].is_leaf) != ("returned", True):
            return
        gradients = [tensor.grad for tensor in self.handles[i]]
        if any(gradient is None for gradient in gradients):
            return
        change = array(gradients[-1]).copy()

        def step(lib, x):
            with lib.no_grad():
                x -= 0.1 * x.grad

        self.write(i, lambda: self.arrays[i] - 0.1 * change, step)

    @rule()
    def forget_gradients(self):
        for tensors in self.handles:
            if outcome(lambda x=tensors[0]: x.is_leaf) == ("returned", True):
                for tensor in tensors:
                    tensor.grad = None

    def start_over(self):
        """After a refused backward: how far it came is nobody's business."""
        values = [a.copy() for a in self.arrays[-3:]]
        self.arrays, self.handles, self.exports = [], [], []
        for number, one in enumerate(values):
            self.add(
                one,
                [
                    lib.tensor(one.tolist(), dtype=lib.float64, requires_grad=number != 1).reshape(
                        one.shape
                    )
                    for lib in WORLDS
                ],
            )

    def teardown(self):
        for i in range(len(self.handles)):
            self.compare_flags(i)
            self.compare_values(i)
        self.compare_exports()
        self.compare_gradients()


class PuttingOff(Programs):
    """What only graphs hold waits until somebody reads it."""

    def __init__(self):
        super().__init__()
        self.everything = ExitStack()
        self.everything.enter_context(putting_off())

    def teardown(self):
        try:
            super().teardown()
        finally:
            self.everything.close()


SETTINGS = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPrograms = Programs.TestCase
TestPrograms.settings = SETTINGS
if not AGAINST_TORCH:
    TestPuttingOff = PuttingOff.TestCase
    TestPuttingOff.settings = SETTINGS
