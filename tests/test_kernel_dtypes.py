"""Whole-array statements of users' kernels in float32 and whole numbers, beside what Numba makes of them."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest

import adjit
from adjit.user_kernels.refusal import NotDifferentiable

x32 = np.array([0.3, 0.15, 0.9, 0.55, 0.42, 0.71], np.float32)
ARGUMENTS: dict[str, Any] = {
    "x": x32, "X": x32.reshape(2, 3) * np.float32(0.5), "d": np.linspace(0.2, 0.8, 6), "k": np.arange(1, 7),
    "W": np.outer(x32, x32) + 2 * np.eye(6, dtype=np.float32),
    "b": x32 > 0.5, "s": np.float32(0.3), "f": 0.7, "n": 3,
}  # fmt: skip
EXPRESSIONS = """
x*2.0  x*2  x*True  x**2  x**3  x**0.5  x**s  x/2  x/n  x/f  x/x.shape[0]  x+k  -x  x*n  x*f  x*s  x*x[0]
x*d[0]  x+d  k*2  k/2  k*2.0  k**2  k*s  b*x  b*2  b*1.0  x%2  x//2  x//s  k//2  k%2  -k
1-x  1.0-x  (x*2)/n  x*k+f
x*(n+1)  x*(n-1)/n  x*(f+s)  x*(s+s)  x*(s*2)  x*(s/2)  x*min(s,s)  x*(s if n>2 else f)  x*(s if n>2 else s)
np.exp(x)  np.exp(k)  np.sqrt(k)  np.tanh(x)+1  np.log1p(x)  np.sqrt(x)*2  np.sin(x)*np.cos(x)  np.sign(x-0.5)
np.maximum(x,0)  np.maximum(x,0.5)  np.maximum(x,s)  np.minimum(k,2)  np.maximum(x,d)  np.arctan2(x,1)
np.copysign(x,-1)  np.hypot(x,1)  np.floor(x*3)  np.power(x,2)  np.multiply(x,2.0)  np.subtract(1,x)
np.square(x)  np.reciprocal(x)  np.exp2(x)  np.degrees(x)  np.reciprocal(s)  np.exp2(s)  np.radians(s)
np.clip(x,0.3,0.5)  np.clip(x,0,1)  x.clip(0.3,0.5)  np.clip(x,s,0.5)  np.clip(d,s,0.5)
np.where(b,x,0.0)  np.where(b,x,0)  np.where(b,x,x*x)  np.where(b,x,s)  np.where(b,x,d)  np.where(b,1,0)
np.where(b,1.0,0.0)  np.where(x>0.5,x,-x)  np.where(b,k,0)  (x>0.5)&b  b^b
x.astype(np.float64)  x.astype(np.float64)*x  d.astype(np.float32)*x
np.sum(x)  x.sum()  np.sum(x*x)  np.sum(x*2.0)  X.sum()  np.mean(x)  X.mean()  np.var(x)  np.std(x)  np.prod(x)
np.max(x)  x.min()  np.max(x)-np.min(x)  x.argmax()  np.sum(k)  np.sum(b)  X.sum(axis=0)  X.sum(axis=1)
np.linalg.norm(x)  np.trace(X)  np.dot(x,x)  np.dot(X,x[:3])  np.dot(x[:2],X)  X@X.T  np.vdot(x,x)
np.cumsum(x)  np.cumprod(x)  np.diff(x)  np.outer(x,x)  np.diag(x)  np.diag(X)
x.flatten()  X.flatten()  np.roll(x,1)
np.concatenate((x,x*2))  np.concatenate((x,x))  np.flip(x)*2  np.cross(x[:3],x[3:])
np.interp(s,x,d)  np.interp(f,k,x)
np.array([x[0],x[1]])  np.array([x[0],d[1]])  np.array([x[0],1.0])  np.array([x[0],1])
np.array([n,1])  np.array([[s],[s]])
np.full(n,x[0])  np.full(n,f)  np.full(n,s)  np.full_like(x,1)  np.zeros_like(x)+1  np.ones(6)*x  np.eye(n)*s
x*0.5+W@x  x*2+np.cumsum(x)  x*2+copied(x*3)  x*2+np.arange(6)+np.full(6,x[0])  x*C
x*TUPLE[0]  float(s)*x  float(x[0])*x
np.arange(s,s+5)  np.arange(f,f+5)*2  np.arange(n)*x[0]  np.arange(n,dtype=np.float32)*2
np.eye(n,dtype=np.float32)*s
(x>0.5).astype(np.float32)*x  np.mean(x>0.5)*x  (x>0.5).mean()  k.mean()*x  k.std()*x  np.outer(k,x)
np.outer(x,d)
np.concatenate((x,d))  (x*9).astype(np.int64)*x  np.std(X)  X.var()  X.ravel()*2  X.reshape(-1)*s  np.nansum(x)
np.average(x)  np.ptp(d)
np.linspace(s,x[2],n)  np.arange(s,x[2],s)  x[:3]*X  np.expand_dims(x,0)*2  x[k-1]*2
"""
STATEMENTS = {
    "accumulated": "y = x * 0\n for i in range(n):\n  y = y * s + x\n return y",
    "accumulated in float64": "y = x * 0.0\n for i in range(n):\n  y = y * f + x\n return y",
    "largest handed on": "m = x[0]\n for i in range(1, 6):\n  m = max(m, x[i])\n return np.exp(x - m)",
    "sum handed on": "t = x[0] * 0\n for i in range(6):\n  t += x[i]\n return x / t",
    "float64 sum handed on": "t = 0.0\n for i in range(6):\n  t += x[i]\n return x / t",
    "count handed on": "c = 0\n for i in range(6):\n  if x[i] > s:\n   c += 1\n return x / c",
    "scalar of a branch": "if n > 2:\n  c = s\n else:\n  c = s * s\n return x * c",
    "promoted by a branch": "if n > 2:\n  c = s\n else:\n  c = f\n return x * c",
    "in place": "y = x.copy()\n y *= 2.0\n y += f\n y -= x\n y /= n\n return y",
    "slices": "y = np.zeros_like(x)\n y[1:] = x[:-1] * f\n y[0] = s\n return y",
    "softmax": "e = np.exp(x - np.max(x))\n return e / e.sum()",
    "normalised": "return (x - x.mean()) / np.sqrt(np.mean(x * x) + s)",
    "while": "c = s\n while c < 5:\n  c = c * n\n return x * c",
    "each row": "y = np.zeros(2, np.float32)\n for i in range(2):\n  y[i] = np.sum(X[i] * x[:3])\n return y",
    "counter": "y = x * 0\n for i in range(n):\n  y = y + x * i\n return y",
    "elimination": (
        "A = W.copy()\n for i in range(3):\n  for j in range(i + 1, 3):\n"
        "   A[j, i:] -= A[j, i] / A[i, i] * A[i, i:]\n return A"
    ),
    "rows of a round before": "A = W.copy()\n for i in range(1, 3):\n  A[i] += A[i - 1] * A[i - 1]\n return A",
    "read and written by indices": "y = x.copy()\n y[:] = y[6 - k] * 2.0\n y += y[6 - k]\n return y",
    "beside a write": "a = x * 2\n b = x * s\n b[0] = f\n return a + b",
    "of another function": "return twice(x) + twice(s)",
}  # fmt: skip


BODIES = {e: f"return {e}" for e in re.split(r"\s{2,}|\n", EXPRESSIONS.strip())} | STATEMENTS
HEAD = """import numpy as np
from numba import njit

@njit
def twice(a):
    return a + a

@njit
def copied(a):
    b = np.zeros_like(a)
    b[:] = a
    return b

C, TUPLE = np.float32(0.5), (np.float32(0.5), 2)
"""


def parameters(body: str) -> list[str]:
    words = set(re.findall(r"\b\w+\b", body))
    return [a for a in ARGUMENTS if a in words]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """A file with a function for each body, as source is read from files."""
    path = tmp_path_factory.mktemp("kernels") / "whole_arrays.py"
    texts = [
        f"def f{i}({', '.join(parameters(b))}):\n {b}\n" for i, b in enumerate(BODIES.values())
    ]
    path.write_text(HEAD + "\n".join(texts))
    spec = importlib.util.spec_from_file_location("whole_arrays", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensors(names: list[str], *, double: bool) -> list[Any]:
    """Floats as tensors that need gradients, in their own dtypes or all in float64."""
    found = []
    for name in names:
        a = ARGUMENTS[name]
        if np.asarray(a).dtype.kind == "f":
            dtype = adjit.float64 if double or np.asarray(a).dtype == np.float64 else adjit.float32
            a = adjit.tensor(np.asarray(a).tolist(), dtype=dtype, requires_grad=True)
        found.append(a)
    return found


@pytest.mark.in_turn(8)
@pytest.mark.parametrize("text", list(BODIES))
def test_dtypes_and_values_are_those_of_numba(text: str, kernels: ModuleType) -> None:
    function = getattr(kernels, f"f{list(BODIES).index(text)}")
    names = parameters(BODIES[text])
    copies = [a.copy() if isinstance(a, np.ndarray) else a for n in names for a in [ARGUMENTS[n]]]
    compiled = numba.njit(error_model="numpy")(function)
    expected = np.asarray(compiled(*copies))
    if not expected.shape:  # Python's float stands for both
        kind = compiled.overloads[compiled.signatures[0]].signature.return_type
        expected = expected.astype(str(kind))
    result = adjit.kernel(function)(*tensors(names, double=False))
    found = result.detach().numpy() if isinstance(result, adjit.Tensor) else np.asarray(result)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    has_float32 = any(np.asarray(ARGUMENTS[n]).dtype == np.float32 for n in names)
    tight = 1e-6 if has_float32 else 1e-13
    np.testing.assert_allclose(found, expected, rtol=tight, atol=0)


@pytest.mark.in_turn(8)
@pytest.mark.parametrize("text", list(BODIES))
def test_gradients_are_those_of_float64(text: str, kernels: ModuleType) -> None:
    function = getattr(kernels, f"f{list(BODIES).index(text)}")
    names = parameters(BODIES[text])
    gradients: list[Any] = []
    flows = []
    for double in (False, True):
        given = tensors(names, double=double)
        result = adjit.kernel(function)(*given)
        flows.append(isinstance(result, adjit.Tensor) and result.requires_grad)
        if not flows[-1]:  # whole numbers and truth values
            continue
        weights = 1.0 + adjit.arange(result.numel()).reshape(result.shape) * 0.25
        result.backward(weights.to(result.dtype))
        leaves = [a for a in given if isinstance(a, adjit.Tensor)]
        assert all(a.grad is None or a.grad.dtype == a.dtype for a in leaves)
        gradients.append([np.zeros(a.shape) if a.grad is None else a.grad.numpy() for a in leaves])
    assert flows[0] == flows[1]
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("text", ["softmax", "normalised", "in place", "each row"])
def test_transforms_are_those_of_float64(text: str, kernels: ModuleType) -> None:
    function = adjit.kernel(getattr(kernels, f"f{list(BODIES).index(text)}"))
    names = parameters(BODIES[text])
    found = []
    for double in (False, True):
        given = tensors(names, double=double)
        at = names.index("x")

        def of_x(x: adjit.Tensor, given: list[Any] = given, at: int = at) -> Any:
            return function(*given[:at], x, *given[at + 1 :])

        x = given[at]
        (slope,) = adjit.autograd.grad(of_x(x).square().sum(), x, create_graph=True)
        (second,) = adjit.autograd.grad(slope.square().sum(), x)
        tangent = adjit.func.jvp(of_x, (x.detach(),), (adjit.ones_like(x),))[1]
        batch = adjit.vmap(of_x)(adjit.stack([x.detach(), x.detach() * 0.5]))
        results = [slope, second, tangent, batch]
        assert {r.dtype for r in (slope, second)} == {x.dtype}
        found.append([r.detach().numpy() for r in results])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def cast(k: Any) -> Any:
    return np.int32(k) * 2


def of_bytes(k: Any) -> Any:
    return k * 2


def of_truths(b: Any) -> Any:
    return b * b


def mixed(x: Any, d: Any) -> Any:
    return np.dot(x, d)


def whole_kron(x: Any, k: Any) -> Any:
    return np.kron(k, x)  # which Numba makes whole numbers of


@pytest.mark.parametrize(
    ("function", "given", "said"),
    [
        (cast, [np.arange(3)], "a whole array as whole numbers cannot"),
        (of_bytes, [np.arange(3, dtype=np.int8)], "whole numbers that are not int64 cannot"),
        (of_truths, [np.ones(3, bool)], "arithmetic on arrays of truth values cannot"),
        (mixed, [x32, ARGUMENTS["d"]], "a function of arrays of different dtypes cannot"),
        (whole_kron, [x32, np.arange(6)], "a function of arrays of different dtypes cannot"),
    ],
)
def test_what_is_refused_says_so(function: Any, given: list[Any], said: str) -> None:
    with pytest.raises(NotDifferentiable, match=said):
        adjit.kernel(function)(*given)
