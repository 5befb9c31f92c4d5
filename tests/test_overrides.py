"""`__torch_function__`: subclasses are asked, in the order and with the arguments that PyTorch gives them."""

from __future__ import annotations

import copy
import operator
import pickle
import subprocess
import sys
import textwrap
import threading
from typing import Any

import numpy as np
import pytest

import adjit
from adjit.schedule.jit import native

torch = pytest.importorskip("torch")
from against_torch import plain  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def machine_code():
    """All of it is there, whatever ran before: it must ask as Python does."""
    for family in native.families:
        assert family.load(compiling=True)


CALLS = {
    "x + y": lambda L, x, y: x + y,
    "y + x": lambda L, x, y: y + x,
    "x * 2": lambda L, x, y: x * 2,
    "x - y": lambda L, x, y: x - y,
    "-x": lambda L, x, y: -x,
    "x / 2": lambda L, x, y: x / 2,
    "x ** 2": lambda L, x, y: x**2,
    "x @ x": lambda L, x, y: x @ x,
    "x[0]": lambda L, x, y: x[0],
    "x.sin()": lambda L, x, y: x.sin(),
    "sin(x)": lambda L, x, y: L.sin(x),
    "relu(x)": lambda L, x, y: L.nn.functional.relu(x),
    "stack": lambda L, x, y: L.stack([y, x]),
    "max": lambda L, x, y: x.max(0),
    "by name": lambda L, x, y: L.add(y, other=x),
    "add_": lambda L, x, y: x.add_(1),
    "x += y": lambda L, x, y: x.__iadd__(y),
    "where": lambda L, x, y: L.where(y > 0, x, y),
    "split": lambda L, x, y: x.split(1),
    "linear": lambda L, x, y: L.nn.functional.linear(x, L.ones(3, 2)),
}


def watched(library: Any) -> tuple[Any, list[Any]]:
    """A tensor of a class that notes what it is asked."""
    seen: list[Any] = []

    class Watched(library.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(
                (func.__name__, [t.__name__ for t in types], len(args), sorted(kwargs or {}))
            )
            return super().__torch_function__(func, types, args, kwargs or {})

    return library.tensor([1.0, 2.0]).as_subclass(Watched), seen


@pytest.mark.parametrize("name", CALLS)
def test_what_a_class_is_asked(name):
    found = []
    for library in (torch, adjit):
        x, seen = watched(library)
        made = CALLS[name](library, x, library.tensor([3.0, 4.0]))
        asked = list(seen)
        parts = made if isinstance(made, tuple) else (made,)
        found.append((asked, [type(p).__name__ for p in parts], [p.tolist() for p in parts]))
    (theirs, *rest), (ours, *others) = found
    assert rest == others
    assert len(ours) == len(theirs) == 1
    assert ours[0][1:2] == theirs[0][1:2]
    assert ours[0][0] == theirs[0][0]


def test_a_subclass_that_switches_it_off_is_taken_as_the_tensor_that_it_is():
    class Off(adjit.Tensor):
        __torch_function__ = adjit._C._disabled_torch_function_impl

    off = adjit.ones(2, 2).as_subclass(Off)
    assert type(off) is Off
    assert type(off + 1) is adjit.Tensor
    assert type(off.T) is adjit.Tensor
    assert type(adjit.sin(off)) is adjit.Tensor
    assert repr(off.sum().as_subclass(Off)) == "Off(4.)"
    assert type(adjit.nn.Parameter(adjit.ones(2)) + 1) is adjit.Tensor
    assert not adjit.overrides._plain


KEPT = """copy.copy(s); reversed(s); L.nn.Linear(3, 2)(s).shape; L.nn.Linear(3, 2)(s) * 0
    L.nn.Conv1d(1, 1, 2)(s[:, None]) * 0; L.nn.LSTM(3, 2)(s[None])[0] * 0; L.nn.BatchNorm1d(3)(s) * 0
    L.nn.MSELoss()(s, s * 2); L.nn.MultiheadAttention(3, 1)(s, s, s)[0] * 0; L.tensor(s.tolist())
    L.as_tensor(s); L.Tensor(s); L.nn.utils.rnn.pad_sequence([s, s]); L.special.expit(s)
    L.rand_like(s) * 0; L.nn.functional.pad(s, (1, 1))
    L.autograd.grad((s.requires_grad_() * 2).sum(), s)[0]; s[s > 0]; s.argmax()
    L.distributions.Normal(s, 1.0).log_prob(s); L.nn.functional.one_hot(s.long(), 3)
    L.broadcast_tensors(s, L.ones(1))[1]; s.type_as(L.ones(1).double()); L.vmap(lambda r: r * 2)(s)
    L.func.grad(lambda x: (x * x).sum())(s); s.new_tensor([1.0]); S(s); 0.25 in s
    pickle.loads(pickle.dumps(s)); int(s.sum()); float(s.sum()); bool(s[0, 0] == 0); s.is_leaf
    s.grad_fn; len(s); s.ndim; s.device; s.__array__()
    s.requires_grad_().mul(2).sum().backward(); format(s.sum()); s + 1; 1 + s; L.sin(s); s.max(0)[0]
    L.max(s, 0)[1]; s.data; s.mT; s.T; s.detach(); s.split(1)[0]; L.stack([s]); s.unbind()[0]; s[0]
    s.sum(); s.clone(); s.add_(1); s.to(L.float64); L.nn.functional.relu(s); s.twice; s > 1
    L.where(s > 0, s, s); L.ones(2, 3) + s; L.ones(3, 2) @ s; L.ones(2, 3) == s
    L.cat([L.ones(1, 3), s]); s.view(-1); s.new_zeros(2); L.zeros_like(s); s == s; -s; s @ s.mT; [*s][0]
    abs(s); L.softmax(s, 0); s.norm(); S([1., 2.]) + 1; s.shape; L.linalg.norm(s); s.tolist()
    s.mean().item(); len(s); s.is_cuda; s.requires_grad; s.dtype; s.numpy(); repr(s); repr(s.double())
    repr(S([0.25])); str(s.sum() * 2); L.nn.Parameter(L.ones(2)) + 1; s.grad
    L.nn.functional.linear(s, L.ones(4, 3)); (s * 2).requires_grad_().sum().exp()"""


@pytest.mark.parametrize("text", [t.strip() for t in KEPT.replace("\n", ";").split(";")])
def test_a_subclass_without_a_function_of_its_own_keeps_its_class(text):
    found = []
    for library in (torch, adjit):

        class S(library.Tensor):
            @property
            def twice(self):
                return self * 2

        S.__module__, S.__qualname__ = __name__, "S"
        globals()["S"] = S  # where pickles find it
        s = (library.arange(6.0).view(2, 3) / 4).as_subclass(S)
        names = {"L": library, "s": s, "S": S, "copy": copy, "pickle": pickle}
        made = eval(text, names)
        shown = made.detach().tolist() if isinstance(made, library.Tensor) else plain(made)
        found.append((type(made).__name__, shown))
    assert found[0][0] == found[1][0]
    if isinstance(found[0][1], str):
        assert found[1] == found[0]
    else:
        np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-6)


def test_what_a_subclass_calls_by_super_asks_too():
    for library in (torch, adjit):

        class Sized:
            def __len__(self):
                return 77

        class S(Sized, library.Tensor):
            def __add__(self, other):
                return super().__add__(other)

            def sin(self):
                return super().sin()

        s = library.ones(2, 2).as_subclass(S)
        assert [type(s + 1), type(s.sin()), type(library.sin(s)), len(s)] == [S, S, S, 77]
        assert isinstance(s, library.Tensor)


def test_subclasses_that_know_nothing_of_each_other():
    for library in (torch, adjit):

        class A(library.Tensor):
            pass

        class B(library.Tensor):
            pass

        a, b = library.ones(2).as_subclass(A), library.ones(2).as_subclass(B)
        with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+: 'A' and 'B'"):
            a + b
        told = (
            "Multiple dispatch failed for 'torch.add'; all __torch_function__ handlers returned Not"
        )
        with pytest.raises(TypeError, match=told):
            library.add(a, b)
        told = "no implementation found for 'torch.nn.functional.cross_entropy' on types that implement"
        with pytest.raises(TypeError, match=told):
            library.nn.functional.cross_entropy(a, b)


def test_functions_that_a_program_took_before_its_subclass():
    code = (
        "import adjit\n"
        "from adjit import sin\n"
        "from adjit.nn.functional import relu as rectified\n"
        "class S(adjit.Tensor): pass\n"
        "s = adjit.ones(2).as_subclass(S)\n"
        "print(type(sin(s)).__name__, type(rectified(s)).__name__)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "S S\n"


BINARY = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "@",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    "<",
    "<=",
    ">",
    ">=",
    "==",
    "!=",
]
OPERATIONS = {
    **{f"{a} {o} {b}": f"{a} {o} {b}" for o in BINARY for a, b in ("st", "ts", "s2", "2s")},
    **{f"{a} {o}= {b}": f"{a} {o}= {b}" for o in BINARY[:13] for a, b in ("st", "ts")},
    **{text: text for text in ("-s", "+s", "~s", "abs(s)", "s[0]", "t[s]", "1 in s", "t[0] = s[0]")},
}  # fmt: skip
del OPERATIONS["s @ 2"]  # PyTorch refuses it before it asks


@pytest.mark.parametrize("text", OPERATIONS)
def test_operators_ask_as_the_functions_of_pytorch(text):
    found = []
    for library in (torch, adjit):
        seen = []

        class Seen(library.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None, seen=seen):
                name = {"__rdiv__": "__rtruediv__"}.get(func.__name__, func.__name__)
                seen.append((name, [type(a).__name__ for a in args]))
                return 1

        values = library.ones(3, 3, dtype=library.int64)
        names = {"s": values.clone().as_subclass(Seen), "t": values.clone()}
        try:
            exec(text, names)
        except (TypeError, IndexError, ValueError) as error:
            seen.append(type(error).__name__)
        found.append(seen)
    assert found[1] == found[0]


METHODS = {
    "mul": lambda t, s: t.mul(s), "add by name": lambda t, s: t.add(other=s), "add_": lambda t, s: t.add_(s),
    "pow_": lambda t, s: t.pow_(s), "clamp": lambda t, s: t.clamp(min=s),
    "clamp_": lambda t, s: t.clamp_(s), "addcmul_ by name": lambda t, s: t.addcmul_(t, tensor2=s),
    "where": lambda t, s: t.where(t > 0, s),
    "copy_": lambda t, s: t.copy_(s), "lerp": lambda t, s: t.lerp(s, 0.5), "dot": lambda t, s: t.dot(s),
    "expand_as": lambda t, s: t.expand_as(s), "type_as": lambda t, s: t.type_as(s), "to": lambda t, s: t.to(s),
    "equal": lambda t, s: t.equal(s), "allclose": lambda t, s: t.allclose(s), "div": lambda t, s: t.div(s),
    "addcmul": lambda t, s: t.addcmul(t, s), "outer": lambda t, s: t.outer(s), "dist": lambda t, s: t.dist(s),
    "matmul": lambda t, s: t.matmul(s), "eq": lambda t, s: t.eq(s), "maximum": lambda t, s: t.maximum(s),
    "sum": lambda t, s: t.sum(), "reshape": lambda t, s: t.reshape(2),
    "of plain": lambda t, s: t.add(t, alpha=2),
    "masked_fill": lambda t, s: t.masked_fill(s.as_subclass(type(t)) > 0, s[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_plain_tensors_ask_their_arguments(name):
    found = []
    for library in (torch, adjit):
        s, seen = watched(library)
        for _ in range(10):
            (library.ones(2) + 1).sum().item()  # so that machine code is there
        t = library.tensor([0.5, 2.0])
        for _ in range(3):
            made = METHODS[name](t, s)
        found.append((seen, type(made).__name__))
    assert found[1] == found[0]


def test_methods_are_told_as_what_they_are():
    told = []

    class Told(adjit.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            told.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    t = adjit.ones(2)
    s = t.as_subclass(Told)
    handlers = {adjit.Tensor.mul: "mul", adjit.Tensor.sum: "sum"}
    t.mul(s), s.mul(t), s.sum(), t * s
    assert told[0] is told[1] is told[3] is adjit.Tensor.mul
    assert [handlers[func] for func in told] == ["mul", "mul", "sum", "mul"]
    assert pickle.loads(pickle.dumps(adjit.Tensor.mul)) is adjit.Tensor.mul
    with adjit.overrides.DisableTorchFunctionSubclass():
        assert type(t.mul(s)) is adjit.Tensor
    assert len(told) == 4


def test_what_is_no_tensor_is_asked_by_operators_too():
    class Other:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    for library in (torch, adjit):
        watched(library)
        t = library.ones(2)
        assert (t.mul(Other()), t + Other(), library.add(t, Other())) == ("mul", "add", "add")
        with pytest.raises(TypeError):
            t + object()


def test_a_subclass_that_is_defined_in_a_mode_is_asked_afterwards():
    class Quiet(adjit.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Quiet():
        s, seen = watched(adjit)
        adjit.ones(2).mul(s)
    assert [name for name, *_ in seen] == ["mul"]
    adjit.ones(2).mul(s)
    assert [name for name, *_ in seen] == ["mul", "mul"]


def test_plain_arguments_go_through_machine_code_beside_a_subclass():
    code = (
        "import adjit\n"
        "from adjit import overrides\n"
        "for _ in range(12): (adjit.ones(2) + 1).sum().item()\n"
        "class S(adjit.Tensor): pass\n"
        "asked = []\n"
        "plain, overrides._TensorMethod._ask = overrides._TensorMethod._ask, None\n"
        "x = adjit.ones(2)\n"
        "print(type(adjit.Tensor.mul).__name__, x.mul(x).tolist(), x.add_(x).tolist(), (x * x).tolist())\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "_TensorMethod [1.0, 1.0] [2.0, 2.0] [4.0, 4.0]\n", found.stderr


def test_functions_that_a_program_took_before_can_be_pickled():
    code = (
        "import pickle, subprocess, sys\n"
        "import adjit\n"
        "F = adjit.nn.functional\n"
        "held = [adjit.sin, F.relu, F.cross_entropy, adjit.stack, adjit.sum]\n"
        "held += [adjit.Tensor.mul, adjit.Tensor.sum]\n"
        "class S(adjit.Tensor): pass\n"
        "for p in range(pickle.HIGHEST_PROTOCOL + 1):\n"
        "    assert pickle.loads(pickle.dumps(held, p)) == held\n"
        "print(pickle.dumps(held, 0).hex(), end='')\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    read = (
        "import pickle, sys, adjit\n"
        "held = pickle.loads(bytes.fromhex(sys.stdin.read()))\n"
        "print(held == [adjit.sin, adjit.nn.functional.relu, adjit.nn.functional.cross_entropy, adjit.stack,"
        " adjit.sum, adjit.Tensor.mul, adjit.Tensor.sum])\n"
    )
    again = subprocess.run(
        [sys.executable, "-c", read], input=found.stdout, capture_output=True, text=True
    )
    assert again.stdout == "True\n", again.stderr


def test_properties_ask_as_their_getters():
    for library in (torch, adjit):
        seen: list[Any] = []

        class S(library.Tensor):
            noted = seen

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                cls.noted.append(func)
                return super().__torch_function__(func, types, args, kwargs or {})

        s = library.ones(2, 3).as_subclass(S)
        s.shape, s.dtype, s.T, s.grad  # noqa: B018
        expected = [getattr(library.Tensor, n).__get__ for n in ("shape", "dtype", "T", "grad")]
        assert seen == expected
        assert all(map(library.overrides.is_tensor_method_or_property, expected))


# ----- modes -----


def watching(library: Any, seen: list[str]) -> Any:
    """A mode that notes what it is handed."""

    class Watch(library.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    return Watch()


MODES = """x + 1; x.sin(); L.ones(2); L.tensor([1.0]); L.nn.functional.relu(x); L.stack([x, x]); x[0]; len(x)
    x.T; x.sum().backward(); L.rand(2); L.zeros_like(x); x.add_(0); L.nn.functional.linear(x, x)
    L.arange(3); bool(x.sum()); L.eye(2); L.randn(2); L.full((2,), 1.0); L.empty(2); L.linspace(0, 1, 3)
    L.as_tensor([1]); L.randint(3, (2,)); L.randperm(3); L.autograd.grad(x.sum(), x); x.grad
    x.numpy(force=True); repr(x); x @ x; -x; s + 1; s.sin()"""


@pytest.mark.parametrize("text", [t.strip() for t in MODES.replace("\n", ";").split(";")])
def test_what_a_mode_is_handed(text):
    found = []
    for library in (torch, adjit):
        seen: list[str] = []

        class S(library.Tensor):
            pass

        x = library.ones(2, 2, requires_grad=not text.startswith("x.add_"))
        names = {"L": library, "x": x, "s": library.ones(2).as_subclass(S)}
        with watching(library, seen):
            made = eval(text, names)
        found.append((seen, type(made).__name__))
    assert found[0] == found[1]


def test_modes_inside_of_modes():
    found = []
    for library in (torch, adjit):
        seen: list[Any] = []

        class Named(library.overrides.TorchFunctionMode):
            noted = seen

            def __init__(self, name):
                self.name = name

            def __torch_function__(self, func, types, args=(), kwargs=None):
                self.noted.append((self.name, func.__name__))
                if self.name == "inner" and func.__name__ == "sin":
                    return args[0].cos()
                return func(*args, **(kwargs or {}))

        x = library.zeros(2)
        with Named("earlier"):
            for _ in range(20):  # from then on machine code knows them
                x.abs(), x.exp(), x.cos(), x.sin()
        seen.clear()
        with Named("outer"):
            x.exp()
            with Named("inner") as inner:
                assert library.overrides._get_current_function_mode() is inner
                seen.append(x.sin().tolist())
                with library._C.DisableTorchFunctionSubclass():
                    x.abs()
                with library._C.DisableTorchFunction():
                    x.neg()
            x.sin()
        x.cos()
        found.append(seen)
    assert found[0] == found[1]


def test_a_mode_that_chooses_the_dtype():
    found = []
    for library in (torch, adjit):

        class Double(library.overrides.TorchFunctionMode):
            makers = (library.zeros, library.rand, library.empty)
            wanted = library.float64

            def __torch_function__(self, func, types, args=(), kwargs=None):
                kwargs = kwargs or {}
                if func in set(self.makers):
                    kwargs.setdefault("dtype", self.wanted)
                return func(*args, **kwargs)

        with Double():
            made = [library.zeros(2), library.ones(2), library.nn.Linear(2, 2).weight]
        found.append([str(t.dtype).partition(".")[2] for t in made])
    assert found[0] == found[1]


def test_a_mode_that_says_nothing_and_errors():
    for library in (torch, adjit):

        class Silent(library.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                return NotImplemented

        class Bare(library.overrides.TorchFunctionMode):
            pass

        x = library.ones(2)
        with (
            Silent(),
            pytest.raises(
                TypeError, match=r"Multiple dispatch failed for 'torch.sin'(.|\n)*mode object"
            ),
        ):
            library.sin(x)
        with Bare(), pytest.raises(NotImplementedError):
            x.sin()
        with pytest.raises(ZeroDivisionError), library.overrides.BaseTorchFunctionMode():
            1 / 0  # noqa: B018
        assert library.overrides._get_current_function_mode_stack() == []
        assert library.sin(x).tolist() == x.sin().tolist()


def test_a_mode_is_of_its_thread_and_leaves_nothing_behind():
    seen: list[str] = []

    before = dict(vars(adjit.Tensor))
    x = adjit.ones(2)
    with watching(adjit, seen):
        thread = threading.Thread(target=lambda: adjit.sin(x) + 1)
        thread.start()
        thread.join()
    assert seen == []
    assert dict(vars(adjit.Tensor)) == before
    assert adjit.sin == adjit.overrides._plain[adjit, "sin"]
    with watching(adjit, seen):
        assert adjit.Tensor.sin == before["sin"]
        assert hash(adjit.Tensor.sin) == hash(before["sin"])


def test_a_subclass_of_one_that_is_asked_comes_first():
    x, seen = watched(adjit)

    class Closer(type(x)):
        pass

    y = adjit.ones(2).as_subclass(Closer)
    assert type(x + y) is Closer
    assert seen[-1] == ("add", ["Closer", "Watched"], 2, [])


def test_gradients_pass_through_a_subclass():
    class Image(adjit.Tensor):
        pass

    leaf = adjit.tensor([1.0, 2.0], requires_grad=True)
    ((leaf.as_subclass(Image) * 3).sin() * leaf).sum().backward()
    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(leaf.grad.numpy(), np.sin(3 * x) + 3 * x * np.cos(3 * x), rtol=1e-5)


def test_functions_that_a_program_replaces():
    replaced = {adjit.mean: lambda x: "mean of mine"}

    class Mine(adjit.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func in replaced:
                return replaced[func](*args, **(kwargs or {}))
            return NotImplemented

    replaced[adjit.sum] = lambda x: "sum of mine"
    x = adjit.ones(2).as_subclass(Mine)
    assert adjit.mean(x) == "mean of mine"
    assert adjit.sum(x) == "sum of mine"
    with pytest.raises(
        TypeError,
        match=r"Multiple dispatch failed for 'torch.sin'; all __torch_function__ handlers",
    ):
        adjit.sin(x)
    with adjit.overrides.DisableTorchFunctionSubclass():
        assert type(adjit.sin(x)) is adjit.Tensor
    assert adjit.mean(adjit.ones(2)).item() == 1


def test_objects_that_are_no_tensors_are_asked():
    class Diagonal:
        def __init__(self, value):
            self.value = value

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return (func.__name__, args[0].value)

    x, _ = watched(adjit)
    assert adjit.mean(Diagonal(3)) == ("mean", 3)
    assert adjit.overrides.is_tensor_like(Diagonal(1))
    assert adjit.overrides.has_torch_function((Diagonal(1),))
    assert not adjit.overrides.has_torch_function((adjit.nn.Parameter(adjit.ones(1)), 3))
    assert adjit.overrides.has_torch_function_unary(x)
    assert adjit.overrides.handle_torch_function(len, (Diagonal(4),), Diagonal(4)) == ("len", 4)

    @adjit.overrides.wrap_torch_function(lambda a, b: (a, b))
    def mine(a, b):
        return a

    assert mine(1, 2) == 1
    assert mine(Diagonal(5), 2) == ("mine", 5)


class Quotation:
    """What says itself what functions do with it, and is no tensor."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, *(type(value).__name__ for value in args), *(kwargs or {}).items()

    def __radd__(self, other):
        return "asked by Python"


ASKED = {
    "elementwise": lambda torch, x, q: torch.sin(q),
    "elementwise, second": lambda torch, x, q: torch.mul(x, q),
    "a function in Python": lambda torch, x, q: torch.add(q, x),
    "out of it": lambda torch, x, q: torch.argmax(q, 0),
    "by name": lambda torch, x, q: torch.clamp(q, min=0.5),
    "with defaults": lambda torch, x, q: torch.diagonal(q, dim1=-1, dim2=-2),
    "checks": lambda torch, x, q: torch.sum(q, 0),
    "composed": lambda torch, x, q: torch.isclose(q, x),
    "view": lambda torch, x, q: torch.transpose(q, 0, 1),
    "among others": lambda torch, x, q: torch.cat([x, q]),
    "einsum": lambda torch, x, q: torch.einsum("ij,jk", (x, q)),
    "product": lambda torch, x, q: torch.matmul(x, q),
    "layer": lambda torch, x, q: torch.nn.functional.linear(x, q),
    "factory": lambda torch, x, q: torch.zeros_like(q),
    "of a method": lambda torch, x, q: torch.numel(q),
    "linalg": lambda torch, x, q: torch.linalg.matmul(q, x)[1:],
    "method": lambda torch, x, q: x.add(q),
    "in place": lambda torch, x, q: x.mul_(q),
    "operator": lambda torch, x, q: x + q,
    "power": lambda torch, x, q: x**q,
    "other operator": lambda torch, x, q: x // q,
    "comparison": lambda torch, x, q: x < q,
    "product by operator": lambda torch, x, q: x @ q,
    "index": lambda torch, x, q: x[q],
}


@pytest.fixture
def nobody_asks():
    """The library as it is before there is a class with something to say."""
    overrides = adjit.overrides
    before = overrides._asks_others
    overrides._unwrap_functions()
    overrides._asks_others = False
    yield
    overrides._asks_others = before


@pytest.mark.parametrize("name", ASKED)
def test_the_first_call_asks_what_is_no_tensor(name, nobody_asks):
    torch = pytest.importorskip("torch")
    for _ in range(2):  # the first call asks because it has failed, others before they do anything
        found = ASKED[name](adjit, adjit.ones(2, 2), Quotation())
        assert found == ASKED[name](torch, torch.ones(2, 2), Quotation())


def test_a_function_that_calls_others_is_the_one_that_is_asked_about(nobody_asks):
    def negated(x):  # a program's function, and a layer that calls it
        return adjit.nn.functional.dropout1d(x, 0.25)

    class Layer(adjit.nn.Module):
        def forward(self, x):
            return negated(x)

    assert Layer()(Quotation()) == ("dropout1d", "Quotation", "float")


def test_what_has_no_answer_fails_as_any_other_argument(nobody_asks):
    class Plain(Quotation):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with adjit._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    class Silent(Quotation):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    x = adjit.ones(2)
    with pytest.raises(
        TypeError, match=r"sin\(\): argument 'input' \(position 1\) must be Tensor, not Plain"
    ):
        adjit.sin(Plain())
    assert (x == Plain()) is False
    assert x + Silent() == "asked by Python"
    with pytest.raises(TypeError, match=r"Multiple dispatch failed for 'torch\.add'"):
        adjit.add(x, Silent())


def test_what_can_be_overridden():
    listed = adjit.overrides.get_overridable_functions()
    assert adjit.sin in listed[adjit]
    assert adjit.nn.functional.relu in listed[adjit.nn.functional]
    assert adjit.Tensor.add in listed[adjit.Tensor]
    assert adjit.zeros in adjit.overrides.get_ignored_functions()
    assert adjit.zeros not in listed[adjit]
    assert adjit.overrides.resolve_name(adjit.sin) == "adjit.sin"
    assert adjit.overrides.resolve_name(adjit.Tensor.sin) == "adjit.Tensor.sin"
    assert adjit.overrides.resolve_name(len) is None
    assert adjit.overrides.is_tensor_method_or_property(adjit.Tensor.sin)
    assert not adjit.overrides.is_tensor_method_or_property(len)


def test_nothing_is_in_the_way_until_there_is_a_subclass():
    code = (
        "import adjit\n"
        "before = adjit.sin, adjit.nn.functional.relu\n"
        "class Layer(adjit.nn.Parameter): pass\n"
        "print(before == (adjit.sin, adjit.nn.functional.relu), type(adjit.sin).__name__)\n"
        "class Image(adjit.Tensor): pass\n"
        "print(before[0] is adjit.sin, before[0] == adjit.sin, hash(before[0]) == hash(adjit.sin))\n"
        "import pickle\n"
        "print(pickle.loads(pickle.dumps(adjit.sin)) == adjit.sin, adjit.sin.__name__)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second, third = found.stdout.splitlines()
    assert first.startswith("True")
    assert "Overridable" not in first
    assert second == "False True True"
    assert third == "True sin"


@pytest.mark.parametrize("library", [torch, adjit], ids=["torch", "adjit"])
def test_functions_that_ask_keep_what_functions_have(library):
    class Mine(library.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    library.ones(2).as_subclass(Mine)
    assert "indexing" in library.meshgrid.__kwdefaults__
    assert library.meshgrid.__code__.co_name == "meshgrid"
    assert not hasattr(library.meshgrid, "nonsense")
    assert copy.deepcopy(library.meshgrid) == library.meshgrid


def told_by(library):
    """What a class gives that leaves calls to the one of parameters, which asks nobody."""
    called = []

    class Quiet(library.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            called.append(func.__name__)
            return library.nn.Parameter.__torch_function__(func, types, args, kwargs or {})

    class Other(library.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return library._C._disabled_torch_function_impl(func, types, args, kwargs)

    x, y = library.ones(2).as_subclass(Quiet), library.ones(2).as_subclass(Other)
    made = [x + 1, library.nn.functional.linear(x, library.ones(2, 2)), y * 3]
    return called, [(type(t).__name__, t.tolist()) for t in made]


def test_the_function_of_parameters_can_be_called():
    assert told_by(adjit) == told_by(torch)


def test_what_programs_put_onto_tensors_is_not_asked():
    """As libraries do it, before the first subclass that asks."""
    text = """
        import adjit

        adjit.Tensor.doubled = lambda self: self * 2

        class Asking(adjit.Tensor):
            asked = []

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                cls.asked.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs or {})

        made = adjit.ones(2).as_subclass(Asking).doubled()
        print(type(made).__name__, *Asking.asked)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["Asking", "mul"]


MIXED = {
    "theirs of ours": (lambda torch, a, t: torch.sin(a), "torch.sin"),
    "their module": (lambda torch, a, t: torch.nn.Linear(2, 2)(a), "torch.nn.linear"),
    "their method": (lambda torch, a, t: t.add_(a), "torch.Tensor.add_"),
    "ours of theirs": (lambda torch, a, t: adjit.sin(t), "not PyTorch.s Tensor, which from_dlpack"),
    "our module": (lambda torch, a, t: adjit.nn.Linear(2, 2)(t), "not PyTorch's Tensor"),
    "our list": (lambda torch, a, t: adjit.cat([a, t]), "expected Tensor as element 1"),
    "our method": (lambda torch, a, t: a.copy_(torch.nn.Parameter(t)), "not PyTorch's Parameter"),
    "sum": (lambda torch, a, t: a + t, r"unsupported operand type\(s\) for \+"),
    "sum, turned": (lambda torch, a, t: t + a, r"unsupported operand type\(s\) for \+"),
    "product": (lambda torch, a, t: a @ t, "unsupported operand"),
    "write": (lambda torch, a, t: operator.iadd(a, t), "unsupported operand"),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_tensors_of_both_libraries_in_one_call_are_refused(name, nobody_asks):
    """Each of them asks the other one what its functions do with its tensors: without end, once."""
    torch = pytest.importorskip("torch")
    call, text = MIXED[name]
    for _ in range(2):
        with pytest.raises(TypeError, match=text):
            call(torch, adjit.ones(2), torch.ones(2))
    assert not adjit.overrides._asks_others
