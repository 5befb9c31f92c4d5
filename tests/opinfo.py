"""PyTorch's own samples of its ops (`OpInfo`), run in PyTorch and in adjit: what differs.

An `OpInfo` says which dtypes an op takes and yields calls with arguments of many shapes and layouts, calls that
raise, its aliases, its method and its in-place form. Its callables are PyTorch's; `translated` finds adjit's of
the same name, and reads a lambda again with adjit where it says `torch`.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # what PyTorch's tests import

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_methods_invocations

from against_torch import plain  # noqa: E402

OPS = {info.formatted_name: info for info in common_methods_invocations.op_db}
DTYPES = {getattr(torch, plain(dtype)[2:]): dtype for dtype in adjit.dtypes.SUPPORTED}
TOLERANCE = {"float32": (2e-5, 2e-5), "float64": (1e-9, 1e-10)}
ROOMS = [  # where PyTorch keeps callables, and adjit those of the same names
    (torch, adjit),
    (torch.Tensor, adjit.Tensor),
    (torch.nn.functional, adjit.nn.functional),
    (torch.linalg, adjit.linalg),
    (torch.special, adjit.special),
    (torch.nn, adjit.nn),
    (torch.autograd, adjit.autograd),
]


class Lacking(Exception):
    """The sample takes something that adjit says it does not have: a dtype, a layout, a function."""


class Difference(NamedTuple):
    """What one sample gave in one library and not in the other."""

    op: str
    aspect: str
    dtype: str
    sample: str
    text: str


# ------------------------------------------------------------------ from PyTorch's arguments to adjit's


@functools.cache
def _counterparts() -> dict[int, tuple[Any, str]]:
    """Room and name in adjit for each callable of PyTorch, by identity."""
    found = {}
    for theirs, ours in reversed(ROOMS):
        for name in dir(theirs):
            value = getattr(theirs, name, None)
            if callable(value) and (_has(ours, name) or id(value) not in found):
                found[id(value)] = ours, name
    return found


def translated(value: Any) -> Any:
    """adjit's counterpart of one of PyTorch's modules, dtypes or callables; others as they are."""
    for theirs, ours in ROOMS:
        if value is theirs:
            return ours
    if isinstance(value, torch.dtype):
        if value not in DTYPES:
            raise Lacking(str(value))
        return DTYPES[value]
    if isinstance(value, torch.device):
        return adjit.device(str(value))
    if isinstance(value, torch.layout):
        if value is not torch.strided:
            raise Lacking(str(value))
        return adjit.strided
    if isinstance(value, torch.memory_format):
        raise Lacking(str(value))
    if isinstance(value, torch.nn.Module):
        return getattr(adjit.nn, type(value).__name__)()
    if not callable(value) or isinstance(value, type):
        return value
    if isinstance(value, torch._ops.OpOverloadPacket):
        return getattr(adjit.ops.aten, value.__name__)
    if id(value) in _counterparts():
        room, name = _counterparts()[id(value)]
        if not _has(room, name):
            raise Lacking(name)
        return getattr(room, name)
    if value is common_methods_invocations.wrapper_set_seed:
        return lambda function, *args, **kwargs: function(*args, **kwargs)
    if isinstance(value, types.FunctionType) and value.__module__.startswith("torch.testing"):
        return _read_again(value)
    if value.__class__ is functools.partial:
        return functools.partial(translated(value.func), *value.args, **value.keywords)
    if getattr(value, "__module__", None) in ("_operator", "math", "builtins"):
        return value
    raise Lacking(str(value))


def _read_again(function: types.FunctionType) -> types.FunctionType:
    """A function of PyTorch's tests that looks up its globals in adjit."""
    known = dict(vars(builtins))
    for name in _names(function.__code__):
        if name in function.__globals__:
            value = function.__globals__[name]
            known[name] = value if value is np else translated(value)
    cells = None
    if function.__closure__ is not None:
        cells = tuple(types.CellType(translated(c.cell_contents)) for c in function.__closure__)
    again = types.FunctionType(
        function.__code__, known, function.__name__, function.__defaults__, cells
    )
    again.__kwdefaults__ = function.__kwdefaults__
    return again


def _names(code: types.CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


class Arguments:
    """The arguments of a sample in one library: values, strides and shared memory as in the sample."""

    def __init__(self, library: Any, grad: bool) -> None:
        self.library, self.grad = library, grad
        self.memory: dict[Any, Any] = {}
        self.tensors: dict[int, Any] = {}
        self.leaves: list[Any] = []

    def of(self, value: Any) -> Any:
        """`value` with its tensors made anew."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self.tensors:
                self.tensors[id(value)] = self._tensor(value)
            return self.tensors[id(value)]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.of, value))
        if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
            return type(value)(map(self.of, value))
        if isinstance(value, torch.Size):
            return self.library.Size(value)
        if isinstance(value, dict):
            return {k: self.of(v) for k, v in value.items()}
        return value if self.library is torch else translated(value)

    def shared(self, result: Any) -> list[bool]:
        """Which tensors of a result lie in memory of the arguments."""
        known = {_memory(t) for t in self.tensors.values()}
        return [_memory(t) in known for t in parts(result) if is_tensor(t) and t.numel()]

    def _tensor(self, given: Any) -> Any:
        if given.dtype not in DTYPES:
            raise Lacking(str(given.dtype))
        if given.layout is not torch.strided or given.device.type != "cpu":
            raise Lacking(f"{given.layout} on {given.device}")
        if given.ndim >= 64:
            raise Lacking("as many axes")
        key = given.untyped_storage().data_ptr(), given.dtype
        if given.is_contiguous() and not given._is_view():
            made = self.library.tensor(given.detach().numpy(force=True))
        else:
            if key not in self.memory or not key[0]:
                flat = torch.empty(0, dtype=given.dtype).set_(given.untyped_storage())
                self.memory[key] = self.library.tensor(flat.numpy())
            place = given.shape, given.stride(), given.storage_offset()
            made = self.memory[key].as_strided(*place).detach()
        if self.grad and given.requires_grad:
            made.requires_grad_()
            self.leaves.append(made)
        return made


# ------------------------------------------------------------------ running and comparing


class Raised(NamedTuple):
    """What came instead of a result."""

    error: Exception

    def __str__(self) -> str:
        lines = plain(self.error).splitlines() or [""]
        return f"{type(self.error).__name__}: {lines[0]}"


def attempt(call: Callable[[], Any]) -> Any:
    """The result of `call`, or what it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except Lacking:
            raise
        except Exception as error:
            return Raised(error)


def parts(result: Any) -> list[Any]:
    """The tensors and plain values of a result."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (tuple, list)) and not isinstance(result, (torch.Size, adjit.Size)):
        return [one for item in result for one in parts(item)]
    return [result]


def is_tensor(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, adjit.Tensor))


def settled(result: Any) -> Any:
    """`result`, with its values computed."""
    for one in parts(result):
        if is_tensor(one):
            one.numpy(force=True)
    return result


def differing(ours: Any, theirs: Any, loose: bool = False) -> Iterator[tuple[str, str]]:
    """In which aspects two results differ; with `loose`, values may."""
    if isinstance(ours, Raised) or isinstance(theirs, Raised):
        if not isinstance(theirs, Raised):
            yield "refused", str(ours)
        elif not isinstance(ours, Raised):
            yield "accepted", str(theirs)
        elif not isinstance(ours.error, type(theirs.error)):
            yield "error type", f"{ours} | {theirs}"
        elif str(ours) != str(theirs):
            yield "error text", f"{ours} | {theirs}"
        return
    ours, theirs = parts(ours), parts(theirs)
    if len(ours) != len(theirs):
        yield "number", f"{len(ours)} results | {len(theirs)}"
        return
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        at = f"[{k}] " if len(ours) > 1 else ""
        if is_tensor(a) and is_tensor(b):
            for aspect, text in _differing_tensors(a, b, loose):
                yield aspect, at + text
        elif is_tensor(a) or is_tensor(b):
            yield "kind", f"{at}{type(a).__name__} | {type(b).__name__}"
        elif (type(a).__name__, plain(a)) != (type(b).__name__, plain(b)) and not loose:
            yield "value", f"{at}{a!r} | {b!r}"


def _differing_tensors(ours: Any, theirs: Any, loose: bool) -> Iterator[tuple[str, str]]:
    if plain(ours.dtype) != plain(theirs.dtype):
        yield "dtype", f"{plain(ours.dtype)} | {plain(theirs.dtype)}"
    if tuple(ours.shape) != tuple(theirs.shape):
        yield "shape", f"{tuple(ours.shape)} | {tuple(theirs.shape)}"
        return
    if ours.requires_grad != theirs.requires_grad:
        yield "requires_grad", f"{ours.requires_grad} | {theirs.requires_grad}"
    if theirs.numel() > 1 and _steps(ours) != _steps(theirs):
        yield "stride", f"{ours.stride()} | {theirs.stride()} of {tuple(theirs.shape)}"
    if not loose and (text := _differing_values(ours, theirs)):
        yield "value", text


def _memory(tensor: Any) -> int:
    return tensor.untyped_storage().data_ptr()


def _steps(tensor: Any) -> list[int]:
    """The strides that mean something: of axes longer than 1."""
    return [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


def _differing_values(ours: Any, theirs: Any) -> str:
    got, wanted = ours.detach().numpy(), theirs.numpy(force=True)
    if got.dtype.kind != "f" or wanted.dtype.kind != "f":
        wrong = got != wanted
    else:
        rtol, atol = TOLERANCE[str(min(got.dtype, wanted.dtype, key=lambda d: d.itemsize))]
        with np.errstate(all="ignore"):  # what cancels is as exact as its summands
            atol = atol + rtol / 10 * np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
            wrong = ~np.isclose(got, wanted, rtol=rtol, atol=atol, equal_nan=True)
    if not wrong.any():
        return ""
    first = tuple(np.argwhere(wrong)[0])
    return f"{wrong.sum()} of {wrong.size}: {got[first]!r} | {wanted[first]!r} at {list(map(int, first))}"


def upstream(like: Any, library: Any, seed: int) -> Any:
    """A random gradient for `like`, dense, transposed or expanded."""
    shape = tuple(like.shape)
    random = np.random.default_rng(seed)
    dtype = str(like.dtype).rpartition(".")[2]
    if seed % 3 == 2:
        return library.tensor(random.standard_normal(()).astype(dtype)).expand(shape)
    if seed % 3 == 1:
        g = library.tensor(random.standard_normal(shape[::-1]).astype(dtype))
        return g.permute(tuple(range(g.ndim))[::-1])
    return library.tensor(random.standard_normal(shape).astype(dtype))


def gradients(library: Any, outputs: Sequence[Any], leaves: Sequence[Any], again: bool) -> Any:
    """Gradients of the outputs, and with `again` those of these gradients."""
    outputs = [o for o in outputs if is_tensor(o) and o.requires_grad]
    gs = [upstream(o, library, seed) for seed, o in enumerate(outputs)]
    for g in gs if again else ():
        g.requires_grad_(g.is_leaf)
    grads = library.autograd.grad(outputs, leaves, gs, create_graph=again, allow_unused=True)
    if not again:
        return grads
    return grads, [g for g in gs if g.is_leaf]


class Form(NamedTuple):
    """One way to call an op, in both libraries; an optional one may be unknown to PyTorch."""

    name: str
    theirs: Callable[..., Any]
    ours: Callable[..., Any]
    optional: bool = False


class Comparison:
    """One op at one dtype: what differs between adjit and PyTorch."""

    def __init__(self, info: Any, dtype: Any) -> None:
        self.info, self.dtype = info, dtype
        self.grad = bool(
            info.supports_autograd and dtype.is_floating_point and dtype in info.backward_dtypes
        )
        self.found: list[Difference] = []
        self.ran = self.lacking = 0

    def note(self, sample: str, prefix: str, differences: Iterator[tuple[str, str]]) -> bool:
        """Keep differences; whether there were any that make going on pointless."""
        fatal = False
        for aspect, text in differences:
            full = f"{prefix} {aspect}".strip()
            self.found.append(
                Difference(self.info.formatted_name, full, plain(self.dtype)[2:], sample, text)
            )
            fatal |= aspect not in ("stride", "memory")
        return fatal

    def samples(self, most: int | None) -> list[tuple[int, Any]]:
        """Of the op's samples at most so many, evenly spaced."""
        every = list(enumerate(self.info.sample_inputs("cpu", self.dtype, requires_grad=self.grad)))
        if most is None or len(every) <= most:
            return every
        return [every[round(k)] for k in np.linspace(0, len(every) - 1, most)]

    def call(self, library: Any, sample: Any, function: Any, grad: bool, **more: Any) -> Any:
        """The result in one library, settled, and the leaves it depends on."""
        args = Arguments(library, grad)
        given = args.of((sample.input, sample.args, sample.kwargs))
        result = attempt(lambda: settled(function(given[0], *given[1], **given[2], **more)))
        return result, args

    def compare(self, sample: Any, at: str, form: Form, loose: bool) -> None:
        """Values of a call, its gradients, its second derivatives."""
        prefix = form.name
        theirs, their_args = self.call(torch, sample, form.theirs, self.grad)
        if form.optional:  # PyTorch may have another overload with such a name, or none
            usual, _ = self.call(torch, sample, self.info.op, False)
            if isinstance(theirs, Raised) or any(differing(usual, theirs, loose)):
                return
        ours, our_args = self.call(adjit, sample, form.ours, self.grad)
        their_leaves, our_leaves = their_args.leaves, our_args.leaves
        self.ran += 1
        fatal = self.note(at, prefix, differing(ours, theirs, loose))
        if not fatal and not isinstance(theirs, Raised):
            shared = [args.shared(r) for args, r in ((our_args, ours), (their_args, theirs))]
            if shared[0] != shared[1]:
                self.note(at, prefix, iter([("memory", f"shared: {shared[0]} | {shared[1]}")]))
        if fatal or loose or isinstance(theirs, Raised) or not self.grad:
            return
        ours, theirs = parts(ours), parts(theirs)
        if not any(is_tensor(t) and t.requires_grad for t in theirs):
            return
        again = bool(self.dtype is torch.float64 and self.info.supports_gradgrad)
        first = attempt(lambda: gradients(torch, theirs, their_leaves, again))
        own = attempt(lambda: gradients(adjit, ours, our_leaves, again))
        if isinstance(first, Raised) or isinstance(own, Raised):
            self.note(at, f"{prefix} grad", differing(own, first))
            return
        if again:
            (first, their_gs), (own, our_gs) = first, own
        fatal = self.note(at, f"{prefix} grad", self._differing_gradients(own, first))
        if not again or fatal:
            return

        def twice(library: Any, grads: Any, leaves: Any) -> Any:
            deeper = [g for g in grads if g is not None and g.requires_grad and g.numel()]
            return gradients(library, deeper, leaves, again=False) if deeper else ()

        second = attempt(lambda: twice(torch, first, their_leaves + their_gs))
        deeper = attempt(lambda: twice(adjit, own, our_leaves + our_gs))
        if isinstance(second, Raised) or isinstance(deeper, Raised):
            self.note(at, f"{prefix} second", differing(deeper, second))
        elif second and deeper:
            self.note(at, f"{prefix} second", self._differing_gradients(deeper, second))
        else:
            for one in [*second, *deeper]:
                if one is not None and one.numpy(force=True).any():
                    self.note(at, f"{prefix} second", iter([("number", "none in one library")]))

    def _differing_gradients(self, ours: Any, theirs: Any) -> Iterator[tuple[str, str]]:
        for a, b in zip(ours, theirs, strict=True):
            if a is None or b is None:  # a gradient that is zero everywhere may be missing
                present = a if a is not None else b
                if present is not None and present.numpy(force=True).any():
                    yield "missing", "ours" if a is None else "theirs"
                continue
            if plain(a.dtype) != plain(b.dtype) or tuple(a.shape) != tuple(b.shape):
                yield "shape", f"{a.dtype} {tuple(a.shape)} | {b.dtype} {tuple(b.shape)}"
            elif text := _differing_values(a, b):
                yield "value", text

    def run(self, loose: bool, most: int | None, few: int) -> None:
        """Every sample as a function, the first few as a method, in place, by name, and into `out`."""
        function = Form("", self.info.op, translated(self.info.op))
        for k, (n, sample) in enumerate(self.samples(most)):
            at = f"#{n}"
            try:
                self.compare(sample, at, function, loose)
                if k >= few:
                    continue
                for form in self._forms(sample):
                    self.compare(sample, at, form, loose)
                if self.info.supports_out:
                    self._out(sample, at, loose)
            except Lacking:
                self.lacking += 1

    def _forms(self, sample: Any) -> Iterator[Form]:
        """The other ways to call the op that PyTorch has."""
        info = self.info
        for name, theirs in (
            ("method", info.method_variant),
            ("operator", info.operator_variant),
            ("inplace", info.inplace_variant),
            ("inplace operator", info.inplace_operator_variant),
        ):
            if theirs is None or theirs is info.op:
                continue
            try:
                ours = translated(theirs)
            except Lacking:
                self.note("", name, iter([("missing", getattr(theirs, "__name__", str(theirs)))]))
                continue
            if name.startswith("inplace"):
                yield Form(name, _on_a_copy(theirs), _on_a_copy(ours))
            else:
                yield Form(name, theirs, ours)
        if info.name.startswith("__"):
            return
        for name, theirs in (
            ("by name", None if _is_of_the_tests(info.op) else info.op),
            ("method by name", info.method_variant),
            ("inplace by name", info.inplace_variant),
        ):
            if theirs is None:
                continue
            try:
                ours = translated(theirs)
            except Lacking:
                continue  # as told above
            if name.startswith("inplace"):
                theirs, ours = _on_a_copy(theirs), _on_a_copy(ours)
            seen = []
            for names in _argument_names(info.op, info.name):
                named = [
                    None if name != "by name" else FIRST.get(names[0], names[0]) if names else None
                ]
                named += names[1 : 1 + len(sample.args)]
                if len(named) == 1 + len(sample.args) and named not in seen and any(named):
                    seen.append(named)
                    yield Form(name, _by_name(theirs, named), _by_name(ours, named), True)

    def _out(self, sample: Any, at: str, loose: bool) -> None:
        function = translated(self.info.op)
        expected, _ = self.call(torch, sample, self.info.op, False)
        if not parts(expected) or not all(map(is_tensor, parts(expected))):
            return
        for kind in ("dense", "transposed", "empty", "narrow"):
            if kind == "transposed" and self.info.name in ("tril", "triu"):
                continue  # PyTorch writes beyond the memory of such an `out`

            def into(library: Any, kind: str = kind) -> Any:
                outs = [_room(library, t, kind) for t in parts(expected)]
                return outs[0] if isinstance(expected, torch.Tensor) else tuple(outs)

            mine, other = into(adjit), into(torch)
            theirs, _ = self.call(torch, sample, self.info.op, False, out=other)
            ours, _ = self.call(adjit, sample, function, False, out=mine)
            if isinstance(ours, Raised) and "'out'" in str(ours):
                return  # there is no `out` here
            self.ran += 1
            if not self.note(at, f"out {kind}", differing(ours, theirs, loose)):
                if isinstance(theirs, Raised):
                    continue
                returned = mine if ours is None else ours  # functions of lists give nothing
                for got, given in zip(parts(returned), parts(mine), strict=True):
                    if got is not given:
                        self.note(at, f"out {kind}", iter([("identity", "another tensor")]))
                self.note(at, f"out {kind} written", differing(mine, other, loose))


def _on_a_copy(function: Any) -> Any:
    """An in-place form, as a function that writes into a copy of its first argument."""
    return lambda input, *args, **kwargs: function(input.clone(), *args, **kwargs)


FIRST = {"self": "input"}  # what PyTorch's functions call the tensor that is a method's


def _by_name(function: Any, names: Sequence[str | None]) -> Any:
    """A function, its arguments given by name, but for the first where that has none."""

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=True)) | kwargs
        first = given.pop(None, MISSING)
        return function(**given) if first is MISSING else function(first, **given)

    return call


MISSING = object()


def _is_of_the_tests(function: Any) -> bool:
    return getattr(function, "__module__", "").startswith("torch.testing")


def _argument_names(function: Any, name: str) -> list[list[str]]:
    """The names of the parameters of one of PyTorch's functions, for each of its overloads."""
    if isinstance(function, types.FunctionType):
        return [list(inspect.signature(function).parameters)]
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name.rpartition('.')[2]}")
    given = [schema.arguments for schema in schemas if schema.arguments]
    return [[a.name for a in names] for names in given if "Tensor" in str(names[0].type)]


def _room(library: Any, like: Any, kind: str) -> Any:
    """A tensor to write a result like `like` into."""
    dtype = like.dtype if library is torch else translated(like.dtype)
    shape = tuple(like.shape)
    if kind == "dense":
        return library.full(shape, 77, dtype=dtype)
    if kind == "transposed":
        return library.full(shape[::-1], 77, dtype=dtype).permute(tuple(range(len(shape)))[::-1])
    if kind == "empty":
        return library.empty((0,), dtype=dtype)
    return library.full(shape, 1, dtype=library.uint8)


WRITTEN = {"cauchy", "exponential", "geometric", "log_normal", "uniform"}  # drawn in place alone


def exists(info: Any) -> bool:
    """Whether adjit has an op of this name."""
    names = [info.name, info.name + "_"] if info.name in WRITTEN else [info.name]
    return any(_has(room, name) for name in names for room in (adjit, adjit.Tensor))


def _has(room: Any, path: str) -> bool:
    """Whether a name is there, and not as a name only, nor that of a dtype."""
    try:
        found = operator.attrgetter(path)(room)
    except AttributeError:
        return False
    return type(found) is not adjit.dtype and "is there by name only" not in str(found.__doc__)


def missing_aliases(info: Any) -> list[str]:
    """The other names that PyTorch has for an op, and adjit has not."""
    names = [alias.name for alias in info.aliases]
    return [n for n in names if _has(torch, n) and not _has(adjit, n)]


def error_differences(info: Any) -> list[Difference]:
    """What raises in PyTorch: whether the same is raised here."""
    comparison = Comparison(info, torch.float32)
    for n, one in enumerate(info.error_inputs("cpu") if info.error_inputs_func else ()):
        try:
            theirs, _ = comparison.call(torch, one.sample_input, info.op, True)
            ours, _ = comparison.call(adjit, one.sample_input, translated(info.op), True)
        except Lacking:
            continue
        comparison.note(f"#{n}", "error:", differing(ours, theirs))
    return comparison.found
