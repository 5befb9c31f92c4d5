"""Small names of PyTorch: constants, questions about objects, old switches, spellings of arguments."""

from __future__ import annotations

import importlib
import inspect
import itertools
import math
import pickle
import re
import typing
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import adjit
from adjit import nn
from adjit.graph.export import methods, namespace
from adjit.graph.operation import Operation

torch = pytest.importorskip("torch")
from against_torch import agree_in_warning, plain  # noqa: E402

LIBRARIES = torch, adjit


def outcome(call: Any, library: Any) -> Any:
    """What a call gives, or the type and the text of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = call(library)
        except Exception as error:
            return type(error), plain(error).split("\n")[0]
    return made.tolist() if library.is_tensor(made) else made


def same(call: Any) -> Any:
    """What both libraries give, or raise, alike."""
    theirs, ours = outcome(call, torch), outcome(call, adjit)
    assert ours == theirs
    return ours


# ----- constants, objects -----


def test_constants():
    for name in ("pi", "e", "inf"):
        assert getattr(adjit, name) == getattr(torch, name)
    assert math.isnan(adjit.nan)
    assert adjit.newaxis is None
    assert adjit.arange(2)[:, adjit.newaxis].shape == (2, 1)


@pytest.mark.parametrize("kind", ["memory_format", "layout"])
def test_formats_and_layouts_are_constants_with_names(kind):
    cls = getattr(adjit, kind)
    names = [name for name in dir(adjit) if isinstance(getattr(adjit, name), cls)]
    assert {"contiguous_format", "strided"} & set(names)
    for name in names:
        one = getattr(adjit, name)
        assert plain(repr(one)) == plain(repr(getattr(torch, name)))
        assert pickle.loads(pickle.dumps(one)) is one


QUESTIONS = {
    "is_tensor": ["L.ones(2)", "L.nn.Parameter(L.ones(2))", "[1.]", "None", "3."],
    "is_storage": ["L.ones(2).untyped_storage()", "L.ones(2)", "[1]"],
    "numel": ["L.ones(2, 3)", "L.tensor(1)", "3", "[1]"],
    "is_floating_point": ["L.ones(2)", "L.tensor([1])", "3."],
    "is_complex": ["L.ones(2)", "3."],
    "is_nonzero": ["L.tensor([2.])", "L.tensor(0)", "L.ones(2)", "L.ones(0)", "3."],
    "typename": ["L.ones(2)", "L.tensor([True])", "3", "'s'", "None", "list", "L.nn.Parameter(L.ones(1))"],
    "_assert_async": ["L.tensor(1)", "L.tensor(0)", "L.ones(2)", "L.tensor(0), 'text'"],
    "_check": ["True", "True, lambda: 1 / 0", "False, lambda: 5", "False, 'text'", "1", "None"],
    "_check_index": ["True", "False, lambda: 'text'"],
    "_check_value": ["True", "False, lambda: 'text'"],
    "_check_type": ["True", "False, lambda: 'text'"],
    "_check_not_implemented": ["True", "False, lambda: 'text'"],
    "_assert": ["True, 'text'", "False, 'text'", "L.tensor(0), 'text'"],
    "set_default_tensor_type": ["'torch.IntTensor'", "L.float32"],
    "set_warn_always": ["1"],
    "set_deterministic_debug_mode": ["'x'", "7", "1.5"],
    "range": ["1, 4", "1, 4, 0.5", "3, 5.5", "True, 3", "4, 1, -1", "1, 4, -1", "0, float('inf')",
              "1, 2.9, dtype=L.int64", "2, 2", "1, 4, 0"],
}  # fmt: skip
CASES = [(name, text) for name, texts in QUESTIONS.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), CASES)
def test_questions_are_answered_as_by_pytorch(name, text):
    same(lambda L: eval(f"L.{name}({text})", {"L": L}))


def test_questions_take_their_argument_by_name():
    for name in ("numel", "is_floating_point", "is_complex"):
        same(lambda L, name=name: getattr(L, name)(input=L.ones(2)))


def test_the_default_type_of_tensors():
    try:
        with pytest.warns(UserWarning, match=r"set_default_tensor_type\(\) is deprecated"):
            adjit.set_default_tensor_type("torch.DoubleTensor")
        assert adjit.tensor(1.5).dtype is adjit.float64
        with pytest.warns(UserWarning, match="is deprecated"):
            adjit.set_default_tensor_type(adjit.FloatTensor)
        assert adjit.tensor(1.5).dtype is adjit.float32
        assert adjit.get_default_device() == adjit.device("cpu")
    finally:
        adjit.set_default_dtype(adjit.float32)


def test_the_default_type_of_tensors_on_a_gpu():
    import stub_driver

    with stub_driver.installed():
        try:
            with pytest.warns(UserWarning, match="is deprecated"):
                adjit.set_default_tensor_type(adjit.cuda.FloatTensor)
            assert adjit.ones(2).is_cuda
            with pytest.warns(UserWarning, match="is deprecated"):
                adjit.set_default_tensor_type("torch.FloatTensor")
            assert not adjit.ones(2).is_cuda
        finally:
            adjit.set_default_device(None)


def test_what_warns_as_in_pytorch():
    agree_in_warning(lambda L: L.range(1, 4))
    agree_in_warning(lambda L: L.autograd.Variable(L.ones(2), volatile=True))
    agree_in_warning(lambda L: L.nn.utils.clip_grad_norm([L.nn.Parameter(L.ones(2))], 1.0))


def test_a_gradient_is_clipped_by_the_old_name():
    weight = nn.Parameter(adjit.zeros(2))
    weight.grad = adjit.tensor([3.0, 4.0])
    with pytest.warns(FutureWarning):
        assert nn.utils.clip_grad_norm(weight, 1.0).item() == 5
    assert weight.grad.norm().item() == pytest.approx(1.0)


def test_switches_that_change_nothing():
    adjit.set_warn_always(True)
    assert adjit.is_warn_always_enabled()
    adjit.set_warn_always(False)
    assert not adjit.is_warn_always_enabled()
    adjit.set_num_interop_threads(3)
    assert adjit.get_num_interop_threads() == 1
    adjit.set_deterministic_debug_mode("warn")
    assert adjit.get_deterministic_debug_mode() == 2
    assert adjit.set_flush_denormal(True) is False
    assert adjit.is_deterministic_algorithms_warn_only_enabled() is False


def test_versions():
    assert adjit.version.__version__ == adjit.__version__
    assert (adjit.version.cuda, adjit.version.hip, adjit.version.debug) == (None, None, False)
    with pytest.raises(AttributeError, match="no attribute 'cudas'"):
        adjit.version.cudas  # noqa: B018


# ----- spellings of arguments -----


def parameters(function: Any) -> list[str]:
    """The names of the parameters of an op or of a function behind it."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if isinstance(function, Operation):
        return list(function.params)
    return list(inspect.signature(function).parameters) if inspect.isfunction(function) else []


TABLE = [(room, n, f) for room in ("", "linalg", "special") for n, f in namespace[room].items()]
TABLE += [("Tensor", n, f) for n, f in methods.items() if n[0] != "_"]
WITH_DIM = [f"{room}.{n}".lstrip(".") for room, n, f in TABLE if "dim" in parameters(f)]


@pytest.mark.parametrize("name", WITH_DIM)
def test_every_function_with_dim_takes_axis(name):
    """A wrong axis is found whatever the other arguments are, and an unknown name before."""
    function = adjit
    for part in name.split("."):
        function = getattr(function, part)
    x = adjit.ones(2, 2)
    given = {"index": x.long(), "src": x, "source": x, "tensors": [x], "other": x, "x2": x, "indices": x.long(),
             "value": 1.0, "start": 0, "length": 1, "sizes": (1, 2), "k": 1, "chunks": 2, "repeats": 2,
             "split_size_or_sections": 1, "split_sizes": [2], "indices_or_sections": 1, "reduce": "sum",
             "q": 0.5, "p": 2.0, "maxnorm": 1.0, "sorted": True, "return_inverse": False,
             "return_counts": False, "n": 1, "pow": 2}  # fmt: skip
    if "select" in name and "index_select" not in name:
        given["index"] = 0
    names = [n for n in parameters(function) if n != "dx"]
    first = names[: names.index("dim")]
    args = [given.get(n, x) for n in first if n != "spacing"]  # which has to be named
    later = [] if "keepdim" in names else names[names.index("dim") :]  # all of them may be left out
    rest = {n: given[n] for n in later if n in given}
    with pytest.raises(Exception) as caught:  # noqa: PT011
        function(*args, axis=9, **rest)
    assert "argument" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "L.cat([x, x], axis=1)", "L.cat(tensors=[x, x], axis=-1)", "L.stack((x, x), axis=1)",
        "L.concat([x, x], axis=0)", "x.unsqueeze(axis=1)", "x[:1].squeeze(axis=0)", "L.squeeze(x[:1], axis=0)",
        "x.chunk(2, axis=0)[0]", "x.unbind(axis=1)[0]", "x.split(1, 0)[0]", "L.sum(x, axis=1, keepdims=True)",
        "L.sum(a=x, axis=0)", "L.gather(x, axis=1, index=L.zeros(2, 1, dtype=L.int64))",
        "L.index_select(x, axis=0, index=L.tensor([1]))", "L.cat([x, x], dim=1, axis=0)",
        "L.cat([x, x], axes=0)",
        "L.tensor_split(x, 2, axis=1)[0]", "L.repeat_interleave(x, 2, dim=0)", "L.cross(x, x, axis=1)",
        "x.select(axis=1, index=0)", "x.narrow(axis=0, start=0, length=1)",
    ],
)  # fmt: skip
def test_numpy_names_of_arguments(text):
    for _ in range(3):  # a call that came before is recorded in another way
        theirs, ours = (
            outcome(lambda L: eval(text, {"L": L, "x": L.arange(6.0).reshape(2, 3)}), L)
            for L in LIBRARIES
        )
        if isinstance(theirs, tuple):
            assert isinstance(ours, tuple)
            assert ours[0] is theirs[0]
        else:
            assert ours == theirs


NUMBERS_FIRST = ("add", "sub", "mul", "div", "true_divide", "floor_divide", "remainder", "pow", "multiply",
                 "subtract", "divide", "xlogy", "bitwise_and", "bitwise_left_shift", "float_power",
                 "special.xlogy")  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS_FIRST)
@pytest.mark.parametrize("number", [2, True, 2.5])
def test_numbers_may_come_first(name, number):
    def call(L: Any, whole: bool) -> Any:
        function = L
        for part in name.split("."):
            function = getattr(function, part)
        made = function(number, L.tensor([2, 3] if whole else [2.0, 3.0]))
        return [plain(made.dtype), np.asarray(made).round(5).tolist()]

    for whole in (True, False):
        theirs, ours = (outcome(lambda L: call(L, whole), L) for L in LIBRARIES)  # noqa: B023
        assert (
            ours == theirs or (isinstance(theirs, tuple) and isinstance(ours, tuple))
        ), (ours, theirs)  # fmt: skip


# ----- memory formats -----


def arrangements(L: Any) -> list[Any]:
    """Tensors whose elements lie in many orders, with gaps and repeated."""
    g = L.arange(120.0)
    turned = g.reshape(2, 4, 5, 3).permute(0, 3, 1, 2)
    return [
        g.reshape(2, 3, 4, 5), turned, g.reshape(2, 3, 4, 5)[:, :, ::2], turned[:, :, ::2],
        g.reshape(10, 12).t(), g.reshape(10, 12).t()[::2], g.reshape(1, 2, 3, 4, 5).permute(0, 4, 1, 2, 3),
        L.ones(1, 3, 1).expand(2, 3, 4), L.ones(3).expand(2, 5, 3), g.reshape(2, 3, 4, 5)[:, :1],
        L.tensor(1.0), g.reshape(120, 1, 1, 1), g.reshape(1, 120, 1, 1), L.arange(8.0).reshape(4, 2).t(),
    ]  # fmt: skip


FORMATS = (None, "contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
BY_FORMAT = {
    "clone": lambda L, x, m: x.clone(**m),
    "contiguous": lambda L, x, m: x.contiguous(**m),
    "to": lambda L, x, m: x.to(**m),
    "to another dtype": lambda L, x, m: x.to(L.float64, **m),
    "a copy": lambda L, x, m: x.to(copy=True, **m),
    "double": lambda L, x, m: x.double(**m),
    "cpu": lambda L, x, m: x.cpu(**m),
    "empty_like": lambda L, x, m: L.empty_like(x, **m),
    "zeros_like": lambda L, x, m: L.zeros_like(x, **m),
    "ones_like": lambda L, x, m: L.ones_like(x, **m),
    "full_like": lambda L, x, m: L.full_like(x, 2, **m),
    "rand_like": lambda L, x, m: L.rand_like(x, **m),
    "randn_like": lambda L, x, m: L.randn_like(x, **m),
    "randint_like": lambda L, x, m: L.randint_like(x, 5, **m),
    "empty": lambda L, x, m: L.empty(x.shape, **m),
    "is_contiguous": lambda L, x, m: x.is_contiguous(**m),
}


@pytest.mark.parametrize("name", BY_FORMAT)
def test_memory_formats(name):
    call = BY_FORMAT[name]
    for (k, theirs), ours in zip(enumerate(arrangements(torch)), arrangements(adjit), strict=True):
        for form in FORMATS:
            found = []
            for L, x in ((torch, theirs), (adjit, ours)):
                try:
                    made = call(L, x, {"memory_format": getattr(L, form)} if form else {})
                except RuntimeError as error:
                    found.append(str(error))
                    continue
                if isinstance(made, bool):
                    found.append(made)
                    continue
                has_values = "empty" not in name and "rand" not in name
                found.append([made.shape, made.stride(), made.data_ptr() == x.data_ptr(),
                              made.tolist() if has_values else None])  # fmt: skip
            assert found[0] == found[1], (k, form)


def test_strides_of_elementwise_results_are_those_of_pytorch():
    def tensors(L: Any) -> list[Any]:
        g = L.arange(24.0)
        return [
            g.reshape(2, 3, 4), g.reshape(4, 3, 2).permute(2, 1, 0), g.reshape(3, 2, 4).permute(1, 0, 2),
            g.reshape(2, 4, 3).permute(0, 2, 1), g.reshape(4, 2, 3).permute(1, 2, 0),
            L.arange(48.0).reshape(4, 6, 2).permute(2, 1, 0)[:, ::2], L.arange(4.0),
            L.arange(12.0).reshape(4, 3).t(), L.arange(2.0).reshape(2, 1, 1),
            L.arange(6.0).reshape(3, 2).t().reshape(2, 3, 1), L.arange(8.0).reshape(4, 2).t().reshape(2, 1, 4),
            L.tensor(2.0), L.arange(3.0).reshape(1, 3, 1).expand(2, 3, 4),
        ]  # fmt: skip

    theirs, ours = tensors(torch), tensors(adjit)
    for i, j in itertools.product(range(len(ours)), repeat=2):
        made, wanted = ours[i] + ours[j], theirs[i] + theirs[j]
        assert (made.stride(), made.tolist()) == (wanted.stride(), wanted.tolist()), (i, j)
        made = adjit.where(ours[0] > 3, ours[i], ours[j])
        wanted = torch.where(theirs[0] > 3, theirs[i], theirs[j])
        assert (made.stride(), made.tolist()) == (wanted.stride(), wanted.tolist()), (i, j)


def test_results_that_are_like_others_are_written_and_fused():
    """They have strides of their own, and lie densely: hot code treats them as any other tensor."""
    x = adjit.rand(3, 4).t()

    def step(x: Any) -> Any:
        total = adjit.zeros_like(x)
        for _ in range(3):
            total.add_(x).mul_(2.0)
        return total, (adjit.ones_like(x) + x) * 2

    wanted = [t.tolist() for t in step(torch_twin(x))]
    compiled = adjit.compile(step)
    for call in (step, compiled):
        for _ in range(12):
            got = call(x)
            assert [t.stride() for t in got] == [(1, 4)] * 2
            for made, values in zip(got, wanted, strict=True):
                np.testing.assert_allclose(made.numpy(), values, rtol=1e-6)


def torch_twin(x: Any) -> Any:
    """The values of a tensor, dense: what is computed with them is right."""
    return x.contiguous()


@pytest.mark.parametrize("form", ["contiguous_format", "channels_last"])
def test_gradients_pass_copies_in_another_format(form):
    def run(L: Any) -> Any:
        x = L.arange(24.0).reshape(1, 2, 3, 4).requires_grad_()
        y = x.clone(memory_format=getattr(L, form)) * x.to(
            L.float64, memory_format=getattr(L, form)
        )
        (y * L.arange(24.0).reshape(1, 2, 3, 4)).sum().backward()
        return x.grad.tolist()

    assert run(adjit) == run(torch)


def test_a_network_goes_to_channels_last():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(2, 2)).to(memory_format=adjit.channels_last)
    fallback = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(2, 2))
    fallback.to(memory_format=torch.channels_last)
    for ours, theirs in zip(net.parameters(), fallback.parameters(), strict=True):
        assert ours.stride() == theirs.stride()
        assert ours.is_leaf


@pytest.mark.parametrize(
    "text",
    [
        "L.ones(2).clone(memory_format=3)", "L.ones(2).contiguous(memory_format='x')",
        "L.zeros(2, layout=3)", "L.ones(2, 3).to(memory_format=L.channels_last)",
        "L.empty(2, memory_format=L.preserve_format)",
    ],
)  # fmt: skip
def test_what_is_no_format_is_refused(text):
    assert isinstance(same(lambda L: eval(text, {"L": L})), tuple)


@pytest.mark.parametrize("maker", ["zeros", "ones", "empty", "rand", "arange", "eye"])
def test_layouts(maker):
    make = getattr(adjit, maker)
    for _ in range(3):
        assert make(2, layout=adjit.strided).layout is adjit.strided
        with pytest.raises(NotImplementedError, match=r"layout=adjit\.sparse_coo is not supported"):
            make(2, layout=adjit.sparse_coo)


# ----- paths -----

# What lies there in PyTorch is not here, or it has other names of its own.
WITHOUT = (
    "_dynamo._trace_wrapped_higher_order_op",
    "_inductor",
    "_inductor.config",
    "_subclasses",
    "_tensor",
    "nn.modules.rnn",
    "nn.modules.transformer",
    "quantization.observer",
    "quantization.qconfig",
    "utils.data._utils",
    "utils.data._utils.fetch",
    "utils.model_zoo",
)
PATHS = sorted(adjit.paths.PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_gives_what_pytorch_has_there(path):
    ours, theirs = (importlib.import_module(f"{root}.{path}") for root in ("adjit", "torch"))
    assert importlib.util.find_spec(f"adjit.{path}") is ours.__spec__
    parent = importlib.import_module(f"adjit.{path}".rpartition(".")[0])
    assert getattr(parent, path.rpartition(".")[2]) is ours
    here = getattr(theirs, "__all__", None) or [
        n for n, v in vars(theirs).items() if getattr(v, "__module__", "") == theirs.__name__
    ]
    found = [name for name in here if hasattr(ours, name)]
    assert found or path in WITHOUT
    for name in found:
        exec(f"from adjit.{path} import {name}")
        assert name in dir(ours) or "is there by name only" in getattr(ours, name).__doc__


def test_programs_walk_through_the_names_of_a_path():
    for L in LIBRARIES:
        found = vars(L.nn.modules.activation)
        kinds = {n for n, v in found.items() if isinstance(v, type) and issubclass(v, L.nn.Module)}
        assert {"ReLU", "Tanh", "Softmax", "MultiheadAttention"} <= kinds
        assert inspect.getmodule(L.nn.modules.activation) is L.nn.modules.activation
        L.nn.modules.activation.mine = 3
        assert vars(L.nn.modules.activation)["mine"] == 3
        del L.nn.modules.activation.mine
        assert "mine" not in vars(L.nn.modules.activation)


def test_no_path_hides_a_file_or_a_name():
    source = inspect.getsourcefile(adjit)
    assert source is not None
    from pathlib import Path

    for path in PATHS:
        file = Path(source).parent / (path.replace(".", "/") + ".py")
        assert not file.exists()
        assert not file.with_suffix("").is_dir()


def test_classes_keep_their_home():
    from adjit.nn.modules.linear import Linear

    assert Linear is nn.Linear
    assert Linear.__module__ == "adjit.nn.layers"
    assert pickle.loads(pickle.dumps(Linear)) is Linear


def test_a_path_has_no_name_that_its_homes_have_not():
    with pytest.raises(ImportError, match="cannot import name 'Foo'"):
        exec("from adjit.nn.modules.batchnorm import Foo")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("adjit.nn.modules.foo")


PRIVATE = {
    "nn.modules.batchnorm": "_BatchNorm _NormBase", "nn.modules.instancenorm": "_InstanceNorm",
    "nn.modules.conv": "_ConvNd _ConvTransposeNd", "nn.modules.loss": "_Loss _WeightedLoss",
    "nn.modules.dropout": "_DropoutNd", "nn.modules.module": "_IncompatibleKeys register_module_forward_hook",
    "nn.modules.pooling": "_MaxPoolNd _LPPoolNd _AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _MaxUnpoolNd",
    "nn.modules.padding": "_ReflectionPadNd _ReplicationPadNd _ConstantPadNd",
    "nn.modules.utils": "_single _pair _triple _quadruple _ntuple", "utils.hooks": "RemovableHandle",
    "utils.data.dataloader": "default_collate DataLoader get_worker_info", "optim.lr_scheduler": "_LRScheduler",
    "_jit_internal": "boolean_dispatch ignore is_scripting export _overload _copy_to_script_wrapper",
    "nn.parallel.replicate": "replicate _broadcast_coalesced_reshape",
    "nn.parallel.parallel_apply": "parallel_apply",
    "nn.parallel._functions": "Broadcast Gather ReduceAddCoalesced Scatter",
    "utils.cpp_extension": "load load_inline BuildExtension",
}  # fmt: skip


@pytest.mark.parametrize(("path", "names"), PRIVATE.items())
def test_names_that_programs_import_from_paths(path, names):
    ours, theirs = (importlib.import_module(f"{root}.{path}") for root in ("adjit", "torch"))
    for name in names.split():
        assert callable(getattr(ours, name))
        assert callable(getattr(theirs, name))


def test_layers_are_instances_of_the_classes_that_programs_ask_for():
    modules = nn.modules
    assert isinstance(nn.BatchNorm2d(3), modules.batchnorm._BatchNorm)
    assert not isinstance(nn.InstanceNorm2d(3), modules.batchnorm._BatchNorm)
    assert isinstance(nn.ConvTranspose2d(1, 1, 1), modules.conv._ConvNd)
    assert isinstance(nn.Dropout2d(), modules.dropout._DropoutNd)


@pytest.mark.parametrize(
    "text", ["L.Size([2]) + (3,)", "(3,) + L.Size([2])", "L.Size([2]) * 2", "2 * L.Size([2, 3])"]
)
def test_sizes_of_sizes_are_sizes(text):
    same(lambda L: (list(eval(text, {"L": L})), type(eval(text, {"L": L})).__name__))


def test_untyped_storages_are_as_long_as_their_bytes():
    same(lambda L: (L.ones(3).untyped_storage().size(), len(L.ones(3).untyped_storage())))


@pytest.mark.parametrize("value", [3, (1, 2), [4, 5, 6], "ab"])
def test_tuples_of_numbers(value):
    for name in ("_single", "_pair", "_triple", "_quadruple"):
        same(lambda L, name=name: getattr(L.nn.modules.utils, name)(value))
    same(lambda L: L.nn.modules.utils._reverse_repeat_tuple((1, 2), 2))
    same(lambda L: L.nn.modules.utils._list_with_default([None, 3], [5, 6, 7]))
    same(lambda L: L.nn.modules.utils._list_with_default([None, 3], [5, 6]))


# ----- parts of complex numbers, of real ones -----

PARTS = [
    "{x}.real", "real({x})", "{x}.imag", "imag({x})", "{x}.conj()", "conj({x})", "conj_physical({x})",
    "{x}.conj_physical()", "{x}.conj_physical_()", "resolve_conj({x})", "{x}.resolve_conj()",
    "resolve_neg({x})", "{x}.resolve_neg()", "is_conj({x})", "{x}.is_conj()", "is_neg({x})", "{x}.is_neg()",
    "angle({x})", "{x}.angle()", "linalg.vecdot({x}, {x})", "linalg.vecdot({x}, {x}, dim=0)",
    "linalg.vecdot({x}.expand(2, 3), {x}[:1], dim=1)", "linalg.vecdot({x}, ones(2))", "linalg.vecdot({x}, 2.0)",
]  # fmt: skip
NUMBERS = [
    "tensor([1.5, -2.0, float('nan')])[:2]", "tensor([3, -4, 0])", "tensor([True, False])",
    "tensor([-0.0, 0.0, -8.0], dtype=float64)",
]  # fmt: skip


@pytest.mark.parametrize("text", PARTS)
@pytest.mark.parametrize("number", NUMBERS)
def test_real_tensors_have_real_parts_and_conjugates(text, number):
    filled = re.sub(r"\b(tensor|float64)\b", r"L.\1", number)
    whole = text.replace("{x}", f"({filled})")
    whole = re.sub(
        r"(?<![.\w])(real|imag|conj|conj_physical|resolve_\w+|is_\w+|angle|linalg|ones)\b",
        r"L.\1",
        whole,
    )
    same(lambda L: eval(whole, {"L": L}))


def test_a_real_part_is_the_tensor_itself_and_angles_have_a_gradient_of_zero():
    for library in LIBRARIES:
        x = library.tensor([1.0, -2.0], requires_grad=True)
        for part in (x.real, library.real(x), x.conj(), library.resolve_conj(x), x.resolve_neg()):
            assert part is x
        x.angle().sum().backward()
        assert x.grad.tolist() == [0.0, 0.0]


def test_marks_for_tracers_give_back_what_they_mark():
    for library in LIBRARIES:
        fx = importlib.import_module(f"{library.__name__}.fx")
        with pytest.raises(RuntimeError, match="Must be either a callable or string name"):
            fx.wrap(3)
        with pytest.raises(NotImplementedError, match="at the top level of a module"):
            fx.wrap(len)
    with pytest.raises(AttributeError, match=r"use adjit\.compile"):
        importlib.import_module("adjit.fx.experimental").meta_tracer  # noqa: B018


def test_types_of_halves_are_there_for_annotations():
    for room in (adjit, adjit.cuda):
        for name in ("HalfTensor", "BFloat16Tensor"):
            kind = getattr(room, name)
            assert not isinstance(adjit.ones(2), kind)
            assert repr(kind) == f"<class '{room.__name__}.{name}'>"
    for kind in (adjit.HalfTensor, adjit.BFloat16Tensor):
        with pytest.raises((TypeError, RuntimeError, NotImplementedError), match="float32"):
            kind(2)
    annotations = importlib.import_module("adjit.jit.annotations")
    assert annotations.List is typing.List  # noqa: UP006


def test_what_the_library_is_made_of_is_told():
    told = adjit.__config__.show()
    assert f"numba      {importlib.import_module('numba').__version__}" in told
    assert adjit.__config__.parallel_info() in told
    assert adjit.get_num_threads() == int(re.search(r"threads +(\d+)", told)[1])
    assert adjit.serialization.MAP_LOCATION


def test_lists_of_tensors_are_grouped_as_by_pytorch():
    def grouped(library):
        utils = importlib.import_module(f"{library.__name__}.utils._foreach_utils")
        kinds = [library.float32, library.int64, library.float32]
        tensors = [library.ones(2, dtype=kind) for kind in kinds]
        lists = [tensors, [None, tensors[0], None]]
        found = utils._group_tensors_by_device_and_dtype(lists, with_indices=True)
        assert utils._has_foreach_support(tensors, library.device("cpu"))
        return {
            (str(key[0]), str(key[1]).split(".")[1]): (
                [len(a) for a in values],
                [t is None for t in values[1]],
                places,
            )
            for key, (values, places) in found.items()
        }

    assert grouped(adjit) == grouped(torch)


def test_engines_of_devices():
    for name in ("cpu", "cuda"):
        backends = [L.distributed.get_default_backend_for_device(name) for L in LIBRARIES]
        assert backends[0] == backends[1]
    for library in LIBRARIES:
        with library.accelerator.device_index(None):
            pass
    assert adjit._C._LinAlgError is adjit.linalg.LinAlgError


def test_what_lies_in_c():
    """Every name of `torch._C` that both libraries show at their top is the same object here too."""
    for name in sorted(vars(torch._C)):
        theirs = getattr(torch._C, name)
        if name.startswith("__") or getattr(torch, name, None) is not theirs:
            continue
        if hasattr(adjit, name) and not isinstance(theirs, ModuleType):
            assert getattr(adjit._C, name) is getattr(adjit, name), name
    for library in LIBRARIES:
        c = library._C
        assert issubclass(library.futures.Future, c.Future)
        assert isinstance(c.ScriptModule, type)
        assert isinstance(c.ScriptFunction, type)
        assert isinstance(library.ones(2), c.TensorBase)
        assert issubclass(library.Tensor, c._TensorBase)
        for name in ("Value", "Graph", "Node", "Type", "TensorType", "FunctionSchema"):
            assert not isinstance(library.ones(2), getattr(c, name))
        assert not hasattr(c, "nn")
        assert not hasattr(c, "no_such_name")


def test_what_torchvision_asks_for_when_it_is_imported():
    """Its operators of C++ aside: without them it says itself what is missing, as soon as one is called."""
    for library in LIBRARIES:
        c = library._C
        keys = [
            c.DispatchKeySet(getattr(c.DispatchKey, f"Autocast{name}")) for name in ("CPU", "CUDA")
        ]
        both = keys[0] | keys[1]
        assert all(both.has(getattr(c.DispatchKey, f"Autocast{name}")) for name in ("CPU", "CUDA"))
        assert not both.has(c.DispatchKey.CPU)
        assert both & keys[0] == keys[0] == both - keys[1] != keys[1]
        with c._ExcludeDispatchKeyGuard(both):
            assert library.ones(2).sum().item() == 2
        assert importlib.import_module(f"{library.__name__}._dynamo.utils").is_compile_supported(
            "cpu"
        )
        importlib.import_module(f"{library.__name__}._custom_ops")
        importlib.import_module(f"{library.__name__}.onnx.symbolic_opset11")
        helper = importlib.import_module(f"{library.__name__}.onnx.symbolic_helper")
        rule = helper.parse_args("v", "f")(lambda g, x, scale: x)
        library.onnx.register_custom_op_symbolic("nowhere::nothing", rule, 11)
        library.onnx.unregister_custom_op_symbolic("nowhere::nothing", 11)
    assert adjit.library.register_fake("nowhere::nothing")(len) is len
    assert adjit.library.register_fake("nowhere::nothing", len) is len
    with pytest.raises(AttributeError, match="nothing"):
        adjit.library.register_fake("nothing")


# ----- devices that are not there, and exports -----

ELSEWHERE = [
    "mps.synchronize()", "mps.empty_cache()", "mps.is_available()", "mps.device_count()", "mps.manual_seed(1)",
    "mps.current_allocated_memory()", "mps.driver_allocated_memory()", "mps.recommended_max_memory()",
    "mps.set_per_process_memory_fraction(0.5)", "xpu.is_available()", "xpu.is_initialized()",
    "xpu.device_count()", "xpu.empty_cache()", "xpu.manual_seed(1)", "xpu.manual_seed_all(1)",
    "xpu.memory_allocated()", "xpu.max_memory_allocated()", "xpu.current_device()", "xpu.set_device(0)",
    "xpu.get_device_name()", "xpu.synchronize()", "onnx.is_in_onnx_export()",
    "cpu.is_available()", "cpu.is_initialized()", "cpu.device_count()", "cpu.current_device()",
    "cpu.set_device(0)", "cpu.synchronize()", "cpu.Event().query()", "cpu.Event().record()",
    "cpu.Stream(1).wait_stream(L.cpu.current_stream())", "cuda.get_rng_state_all()",
    "cuda.set_rng_state_all([])", "backends.mkldnn.deterministic",
    *(f"ones(2).{name}" for name in dir(torch.Tensor) if name.startswith("is_")
      and not callable(getattr(torch.Tensor, name)) and hasattr(adjit.Tensor, name)),
]  # fmt: skip


@pytest.mark.parametrize("text", ELSEWHERE)
def test_of_other_devices_is_told_what_pytorch_tells_without_them(text):
    same(lambda L: eval(f"L.{text}", {"L": L}))


def test_streams_of_the_cpu_are_selected_for_a_while():
    def told(L):
        first, mine = L.cpu.current_stream(), L.cpu.Stream()
        inside = []
        with L.cpu.stream(mine):
            inside.append(L.cpu.current_stream() is mine)
            with L.cpu.stream(None):
                inside.append(L.cpu.current_stream() is mine)
            with L.cpu.StreamContext(first):
                inside.append(L.cpu.current_stream() is first)
            inside.append(L.cpu.current_stream() is mine)
        return inside, L.cpu.current_stream() is first

    assert same(told) == ([True, True, True, True], True)


def test_autocast_of_the_cpu_warns_of_its_age():
    def told(L):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            made = importlib.import_module(f"{L.__name__}.cpu.amp").autocast(enabled=False)
        with made:
            y = L.ones(2) * 2
        return made.device, y.tolist(), [(w.category, plain(w.message)) for w in seen]

    same(told)
    from adjit.cpu.amp.autocast_mode import autocast

    assert autocast is adjit.cpu.amp.autocast


# ----- names that packages ask for at their beginning -----


def test_shapes_as_tensors():
    def told(L):
        room = importlib.import_module(f"{L.__name__}.onnx.operators")
        x = L.arange(6.0)
        shape = room.shape_as_tensor(L.ones(2, 3))
        y = room.reshape_from_tensor_shape(x, shape)
        scalar = L._shape_as_tensor(L.tensor(1.0))
        return [plain(repr(v)) for v in (shape, y, scalar, L._shape_as_tensor(L.ones(0, 2)))]

    same(told)


@pytest.mark.parametrize("name", ["_softmax_backward_data", "_log_softmax_backward_data"])
def test_derivatives_that_functions_with_a_backward_of_their_own_call(name):
    """As attention of diffusion models and of older transformers does."""
    rows = np.random.default_rng(0).standard_normal((2, 3, 4))

    def told(L):
        call, x = getattr(L, name), L.tensor(rows, requires_grad=True)
        g = L.tensor(rows[::-1].copy(), requires_grad=True)
        made = call(g, x.softmax(1), 1, L.float64)
        found = [made, *L.autograd.grad(made.square().sum(), (x, g))]
        by_name = call(grad_output=g, output=x, dim=-1, input_dtype=L.float64)
        return [np.round(t.detach().numpy(), 9).tolist() for t in (*found, by_name)]

    same(told)
    if name.startswith("_log"):
        return  # where PyTorch's checks nothing
    for arguments in ((5, None), (1, "float"), (1, "short"), (1, "int")):

        def wrong(L, dim=arguments[0], what=arguments[1]):
            x, g = L.tensor(rows), L.tensor(rows)
            g = (
                g.float()
                if what == "float"
                else g[:1]
                if what == "short"
                else g.int()
                if what == "int"
                else g
            )
            with pytest.raises(Exception) as found:  # noqa: PT011
                getattr(L, name)(g, x.int() if what == "int" else x, dim, L.float64)
            return type(found.value).__name__, plain(str(found.value)).splitlines()[0]

        same(wrong)


@pytest.mark.parametrize("of", ["int32", "int64"])
def test_where_rows_of_sparse_matrices_begin(of):
    """As graph libraries ask."""

    def told(L):
        rows = L.tensor([0, 0, 2, 3, 3, 3], dtype=getattr(L, of))
        columns = L.tensor([4, 1, 0, 2, 1, 3], dtype=getattr(L, of))
        found = []
        for more in ({}, {"out_int32": True}):
            starts = L._convert_indices_from_coo_to_csr(rows, 5, **more)
            none = L._convert_indices_from_coo_to_csr(rows[:0], 3, **more)
            found += [starts, none, L._convert_indices_from_coo_to_csr(input=rows, size=4, **more)]
            if starts.dtype == columns.dtype:
                both = L._convert_indices_from_csr_to_coo(starts, columns, **more)
                turned = L._convert_indices_from_csr_to_coo(starts, columns, transpose=True, **more)
                found += [both, turned]
        return [(t.tolist(), plain(str(t.dtype))) for t in found]

    same(told)
    with pytest.raises(TypeError, match="expected int32 or int64 indices, got"):
        adjit._convert_indices_from_coo_to_csr(adjit.ones(2), 3)
    with pytest.raises(ValueError, match="expected indices of one dimension, got 2"):
        adjit._convert_indices_from_coo_to_csr(adjit.ones(2, 2, dtype=adjit.int64), 3)


def test_numbers_by_private_names():
    adjit.manual_seed(0)
    shapes = adjit.full((20_000,), 2.5, dtype=adjit.float64, requires_grad=True)
    drawn = adjit._standard_gamma(shapes)
    assert drawn.mean().item() == pytest.approx(2.5, rel=0.03)
    assert adjit.autograd.grad(drawn.mean(), shapes)[0].sum().item() == pytest.approx(1, rel=0.05)
    assert (adjit._standard_gamma(adjit.full((50,), 1e-5)) > 0).all()
    parts = adjit._sample_dirichlet(adjit.tensor([[1.0, 2.0, 3.0]]).expand(20_000, 3))
    np.testing.assert_allclose(parts.sum(-1).numpy(), 1, rtol=1e-5)
    np.testing.assert_allclose(parts.mean(0).numpy(), [1 / 6, 2 / 6, 3 / 6], rtol=0.05)
    with pytest.raises(NotImplementedError, match="\"gamma_cpu\" not implemented for 'Long'"):
        adjit._standard_gamma(adjit.ones(2, dtype=adjit.int64))


def test_a_conjugation_in_place_counts_as_a_write():
    def told(L):
        x = L.ones(3, requires_grad=True)
        y = x * 2
        before = y._version
        assert y.conj_physical_() is y
        found = [y._version - before, L.autograd.grad(y.sum(), x)[0].tolist()]
        for t in (x, x[1:]):
            with pytest.raises(RuntimeError) as error:
                t.conj_physical_()
            found.append(str(error.value))
        return found

    same(told)


@pytest.mark.parametrize("name", ["spmm", "dsmm"])
def test_products_by_names_that_are_of_sparse_ones_too(name):
    rows = np.arange(6.0).reshape(2, 3)
    same(lambda L: getattr(L, name)(L.tensor(rows), L.tensor(rows).t()).tolist())
    same(lambda L: getattr(L, name)(mat2=L.tensor(rows).t(), input=L.tensor(rows)).tolist())


@pytest.mark.parametrize("text", [
    "_utils._element_size(L.float64)", "_utils._element_size(L.bool)", "_utils._element_size(L.bfloat16)",
    "_utils._element_size(3)", "nn.modules.transformer._get_activation_fn('relu')(L.tensor([-1.0, 2.0]))",
    "nn.modules.transformer._get_activation_fn('tanh')",
    "nn.modules.transformer._get_clones(L.nn.Linear(2, 1), 3).__len__()",
    "nn.init._no_grad_fill_(L.empty(2), 3.0)", "nn.init._no_grad_zero_(L.empty(2))",
    "nn.init._no_grad_uniform_(L.empty(2, requires_grad=True), 2.0, 2.0)",
    "nn.init._no_grad_normal_(L.empty(2), 2.0, 0.0)",
    "nn.init._no_grad_trunc_normal_(L.empty(3), 0.0, 1.0, -1e-9, 1e-9).abs() < 1e-8",
    "types._device('cpu') == L.device('cpu')",
    "jit._script_if_tracing(lambda x: x + 1)(2)", "jit.annotations.BroadcastingList2[int]",
    "jit.annotations.BroadcastingList3[float]", "ops.load_library('no_such_library.so')",
])  # fmt: skip
def test_names_of_packages_do_what_pytorchs_do(text):
    same(lambda L: eval(f"L.{text}", {"L": L}))


def test_kinds_of_datasets():
    def told(L):
        class Stream(L.utils.data.IterableDataset):
            def __iter__(self):
                return iter(range(3))

        kinds = importlib.import_module(f"{L.__name__}.utils.data.dataloader")._DatasetKind
        loader = L.utils.data.DataLoader
        return kinds.Map, kinds.Iterable, loader([1])._dataset_kind, loader(Stream())._dataset_kind

    assert same(told) == (0, 1, 0, 1)


def test_members_of_reductions_are_of_a_class_with_pytorchs_name():
    def told(L):
        op = L.distributed.ReduceOp
        return isinstance(op.SUM, op.RedOpType), isinstance(op.SUM, op), isinstance(1, op.RedOpType)

    assert same(told) == (True, True, False)
    constants = importlib.import_module("adjit.distributed.constants")
    assert constants.default_pg_timeout == torch.distributed.constants.default_pg_timeout


def test_progress_bars_come_from_the_hub(monkeypatch, capsys):
    tqdm = pytest.importorskip("tqdm")
    from adjit.utils.model_zoo import tqdm as ours

    assert ours is tqdm.tqdm
    monkeypatch.setitem(importlib.sys.modules, "tqdm", None)
    with adjit.hub.tqdm(total=3, disable=True) as bar:
        bar.set_description("loading")
        bar.update(2)
        assert (bar.total, bar.n) == (3, 2)
        bar.write("told")
        bar.close()
    assert capsys.readouterr().err == "told\n"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = adjit.hub.nothing


PLACEMENTS = ["Shard(0)", "Shard(-1)", "Shard(dim=2)", "Replicate()", "Partial()", "Partial('avg')"]


@pytest.mark.parametrize("text", PLACEMENTS)
def test_placements_are_pytorchs_values(text):
    def told(L):
        names = vars_of(importlib.import_module(f"{L.__name__}.distributed.tensor"))
        one, others = eval(text, names), [eval(other, names) for other in PLACEMENTS]
        return (
            repr(one), str(one), [one == other for other in others], one != None,  # noqa: E711
            [hash(one) == hash(other) for other in others if one == other],
            [one.is_shard(), one.is_shard(0), one.is_shard(dim=-1), one.is_replicate()],
            [one.is_partial(), one.is_partial("sum"), one.is_partial(reduce_op="avg")],
            isinstance(one, names["Placement"]),
        )  # fmt: skip

    same(told)


def vars_of(module):
    return {name: getattr(module, name) for name in ("Placement", "Shard", "Replicate", "Partial")}


def test_states_of_devices_that_no_tensor_is_on():
    def told(L):
        names = L.utils.checkpoint
        found = names.get_device_states([L.ones(2), (3, {"x": L.ones(1)})], None)
        names.set_device_states(*found)
        names.set_device_states([0], [L.zeros(1)], device_type="meta")
        return found

    same(told)
    assert adjit.serialization.DEFAULT_PROTOCOL == torch.serialization.DEFAULT_PROTOCOL


def test_states_of_devices_go_back_to_where_they_were():
    import stub_driver

    with stub_driver.installed():
        x = adjit.ones(2, device="cuda")
        places, states = adjit.utils.checkpoint.get_device_states([x, {"y": x}], 1)
        assert places == [0, 0]
        drawn = adjit.rand(3, device="cuda").tolist()
        adjit.utils.checkpoint.set_device_states(places, states)
        assert adjit.rand(3, device="cuda").tolist() == drawn


class Ragged(list):
    """A list that a program collates as it likes."""


@pytest.mark.parametrize("batch", [
    "[1, 2]", "[Ragged([1]), Ragged([2, 3])]", "[{'x': Ragged([1])}, {'x': Ragged([2, 3])}]",
    "[(L.ones(2), 'a'), (L.zeros(2), 'b')]", "[L.nn.Parameter(L.ones(1)), L.ones(1)]",
    "[np.float64(1.5), np.float64(2)]", "[np.array(['a']), np.array(['b'])]", "[None, None]",
])  # fmt: skip
def test_types_are_collated_by_functions_of_the_program(batch):
    def told(L):
        samples = eval(batch, {"L": L, "np": np, "Ragged": Ragged})
        room = importlib.import_module(f"{L.__name__}.utils.data._utils.collate")
        functions = room.default_collate_fn_map
        mine = {Ragged: lambda batch, *, collate_fn_map: [*map(len, batch), collate_fn_map is mine]}
        with pytest.MonkeyPatch.context() as patch:
            for kind, function in mine.items():
                patch.setitem(functions, kind, function)
            mine.update(functions)
            first = outcome(lambda L: plain(repr(L.utils.data.default_collate(samples))), L)
        return first, outcome(
            lambda L: plain(repr(room.collate(samples, collate_fn_map=mine))), L
        ), outcome(lambda L: room.collate(samples), L)[0]  # fmt: skip

    same(told)


def test_names_of_distributions_that_packages_import():
    def told(L):
        names, x = L.distributions.utils, L.arange(24.0).reshape(2, 3, 4)
        drawn = names._standard_normal(L.Size([2, 3]), dtype=L.float64, device=x.device)
        return (
            [names._sum_rightmost(x, dim).tolist() for dim in range(4)],
            tuple(drawn.shape), plain(drawn.dtype), bool((drawn != 0).all()),
        )  # fmt: skip

    same(told)


ATEN_CALLS = [
    "add.Tensor(x, y, alpha=2)", "add.Scalar(x, 2)", "add(x, y)", "sub.Tensor(x, y, alpha=3)",
    "mul.Scalar(x, 2.0)", "div.Tensor(x, y + 1)", "add_.Tensor(x.clone(), y)",
    "sub_.Scalar(x.clone(), 1, alpha=2)", "mul_.Tensor(x.clone(), y)", "alias.default(x)",
    "clone.default(x)", "detach.default(x)", "cat.default([x, y], dim=-1)", "stack.default([x, y], 1)",
    "flip.default(x, [0, -1])", "index_select.default(x, 1, L.tensor([2, 0]))", "select.int(x, 1, -1)",
    "slice.Tensor(x, 1, 0, 3, 2)", "slice.Tensor(x, -1, 1)", "slice.Tensor(x)", "slice(x, 2, None, 1)",
    "index.Tensor(x, [L.tensor([1, 0])])", "index.Tensor(x, [None, L.tensor([1, 0])])",
    "index.Tensor(x, [L.tensor([1, 0]), None, L.tensor([[0], [1]])])", "index.Tensor(x, [x > 3])",
    "sort.default(x, 1, True)", "sort.stable(x, stable=True, dim=0, descending=True)",
    "squeeze.default(x[:1])", "squeeze.dim(x[:1], 0)", "squeeze.dims(x[:1], [0, 1])",
    "unsqueeze.default(x, -1)", "unbind.int(x, 1)", "_to_copy.default(x, dtype=L.float32)",
    "mm.default(x[0], y[0].t())", "bmm.default(x, y.mT)",
    "addmm.default(x[0, :, :1], x[0], y[0].t(), beta=2, alpha=3)", "sum.default(x)",
    "sum.dim_IntList(x, [0, 1], True)", "t.default(x[0])", "transpose.int(x, 0, 1)",
    "permute.default(x, [2, 0, 1])", "view.default(x, [4, -1])", "expand.default(x[:, :1], [2, 5, 3])",
    "copy_.default(x.clone(), y)", "abs.default(-x)", "neg.default(x)", "exp.default(x)",
    "log.default(x + 1)", "sqrt.default(x)", "relu.default(x - 3)", "tanh.default(x)",
    "sigmoid.default(x)", "_softmax_backward_data.default(y, x.softmax(2), 2, L.float64)",
    "_log_softmax_backward_data.default(y, x.log_softmax(-1), -1, L.float64)",
]  # fmt: skip


@pytest.mark.parametrize("text", ATEN_CALLS)
def test_operators_by_their_names_in_cpp_are_called_as_pytorchs(text):
    def told(L):
        x, y = (L.arange(24.0, dtype=L.float64).reshape(2, 4, 3) * k for k in (1, 0.5))
        made = eval(f"aten.{text}", {"aten": L.ops.aten, "x": x, "y": y, "L": L})
        return [
            (t.tolist(), t.dtype.itemsize, t.shape == x.shape)
            for t in (made if isinstance(made, tuple | list) else [made])
        ]

    theirs, ours = told(torch), told(adjit)
    for (expected, *facts), (found, *others) in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)
        assert others == facts


def test_every_operator_has_pytorchs_names():
    for name in adjit.ops.aten._OVERLOADS:
        packet, expected = getattr(adjit.ops.aten, name), getattr(torch.ops.aten, name)
        assert (repr(packet), str(packet), packet.__name__) == (
            repr(expected), str(expected), expected.__name__,
        )  # fmt: skip
        assert set(packet.overloads()) <= set(expected.overloads())
        for overload in packet.overloads():
            ours, theirs = getattr(packet, overload), getattr(expected, overload)
            assert (repr(ours), str(ours), ours.__name__, ours.name()) == (
                repr(theirs), str(theirs), theirs.__name__, theirs.name(),
            )  # fmt: skip
            assert ours.overloadpacket is packet
            assert {ours: 1}[getattr(getattr(adjit.ops.aten, name), overload)] == 1
    assert {text.partition("(")[0].partition(".")[0] for text in ATEN_CALLS} == {
        name for name in adjit.ops.aten._OVERLOADS if "sparse" not in name and "pin" not in name
    }
    for name in ("_sparse_addmm", "_sparse_mm_reduce_impl"):
        with pytest.raises(NotImplementedError, match="no sparse tensors here: use dense ones"):
            getattr(adjit.ops.aten, name).default(adjit.ones(2))
    with pytest.raises(RuntimeError, match=r"device .cuda. is not available"):
        adjit.ops.aten._pin_memory.default(adjit.ones(2))
    same(lambda L: L.ops.aten.nonsense)
    same(lambda L: L.ops.aten.add.Nonsense)


@pytest.mark.parametrize(
    "text", ["L.arange(6.0).reshape(2, 3)", "L.zeros(0)", "L.arange(2000)", "L.tensor(True)"]
)
def test_the_elements_of_a_tensor_as_text(text):
    def told(L):
        names = importlib.import_module(f"{L.__name__}._tensor_str")
        before, names.PRINT_OPTS.threshold = names.PRINT_OPTS.threshold, 100
        try:
            return names._tensor_str(eval(text, {"L": L}), 4), names.PRINT_OPTS.linewidth
        finally:
            names.PRINT_OPTS.threshold = before

    same(told)


def test_what_loaders_iterate_by_has_the_classes_that_programs_ask_for():
    for L, workers in itertools.product(LIBRARIES, (0, 1)):
        names = importlib.import_module(f"{L.__name__}.utils.data.dataloader")
        batches = iter(L.utils.data.DataLoader([1, 2], num_workers=workers))
        assert isinstance(batches, names._BaseDataLoaderIter)
        assert isinstance(batches, names._SingleProcessDataLoaderIter) == (not workers)
        if not workers or L is adjit:  # whose workers are threads
            assert not isinstance(batches, names._MultiProcessingDataLoaderIter)
        assert [batch.tolist() for batch in batches] == [[1], [2]]


def declared(x):
    pass


def test_declarations_for_torchscript_change_nothing():
    for L in LIBRARIES:
        for mark in (L.jit._overload, L.jit._overload_method):
            assert mark(declared) is declared


NEW = [
    "x.new()", "x.new(2, 3).shape == (2, 3)", "x.new((2, 3))", "x.new([[1, 2], [3, 4]])",
    "x.new(L.Size([2, 3])).shape == (2, 3)",
    "x.new(x)", "x.new(x).data_ptr() == x.data_ptr()", "x.new(3.5)", "x.new([2.5])", "x.long().new([1, 2])",
    "x.new(2, device='cpu').shape == (2,)", "x.new(size=(2,)).shape == (2,)", "x.new(np.ones(2))",
    "type(L.nn.Parameter(x).new(2)) is L.Tensor",
    "x.new(range(3))", "x.new(2).dtype is x.dtype",
]  # fmt: skip


@pytest.mark.parametrize("text", NEW)
def test_tensors_are_made_as_before_new_empty(text):
    same(lambda L: eval(text, {"L": L, "np": np, "x": L.ones(2, 3, dtype=L.float64)}))


ONES = [
    "L.tensor(2.0)",
    "L.tensor(2, dtype=L.int8)",
    "np.float32(2)",
    "np.int64(2)",
    "np.float64(2)",
]
SCALED = [
    "x.add(y, alpha=one)", "L.add(x, y, alpha=one)", "x.clone().add_(y, alpha=one)", "x.sub(y, alpha=one)",
    "x.clone().subtract_(y, alpha=one)", "L.rsub(x, y, alpha=one)",
    "x.index_add(0, L.tensor([0]), y[:1], alpha=one)",
    "x.lerp(y, one)", "x.clone().lerp_(y, one)", "L.normal(one, 0.0, (3,))", "L.normal(0.0, one, (3,)) * 0",
    "L.randint_like(x, high=int(one)) * 0", "L.randint_like(x, 5, high=6)", "L.randint_like(x, 1)",
]  # fmt: skip


@pytest.mark.parametrize("text", SCALED)
@pytest.mark.parametrize("one", ONES)
def test_tensors_without_axes_and_numbers_of_numpy_are_numbers(text, one):
    def told(L):
        x = L.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=L.float64)
        made = eval(text, {"L": L, "x": x, "y": x * 3, "one": eval(one, {"L": L, "np": np})})
        return made.tolist(), plain(made.dtype)

    same(told)


def test_a_factor_is_a_number_or_an_error():
    for text in (
        "x.add(x, alpha=(x[0] * 2).requires_grad_())",
        "x.add(x, alpha='a')",
    ):
        same(lambda L, text=text: eval(text, {"x": L.ones(2)}))
    with pytest.raises(
        TypeError, match=r"^randint_like\(\) missing 1 required positional arguments: \"high\""
    ):
        adjit.randint_like(adjit.ones(2))


def test_a_weight_without_axes_has_its_gradient():
    def told(L):
        x, w = L.arange(4.0, dtype=L.float64), L.tensor(0.25, requires_grad=True)
        L.lerp(x, x * x, w).sum().backward()
        return w.grad.item(), plain(w.grad.dtype)

    same(told)


def test_nothing_is_noted_of_what_is_used():
    assert all(L._C._log_api_usage_once("a.part") is None for L in LIBRARIES)


TWO_BASES = {
    "distribution": lambda L: (L.distributions.Distribution, ()),
    "normal": lambda L: (L.distributions.Normal, (0.0, 1.0)),
    "of parts": lambda L: (L.distributions.Independent, (L.distributions.Normal(L.zeros(2), 1.0), 1)),
    "transform": lambda L: (L.distributions.transforms.Transform, ()),
    "affine": lambda L: (L.distributions.transforms.AffineTransform, (0.0, 1.0)),
    "transforms": lambda L: (L.distributions.transforms.ComposeTransform, ([],)),
    "datasets": lambda L: (L.utils.data.ConcatDataset, ([[1]],)),
    "dataset": lambda L: (L.utils.data.TensorDataset, (L.ones(2),)),
    "module": lambda L: (L.nn.Linear, (1, 1)),
    "optimiser": lambda L: (L.optim.SGD, ([L.nn.Parameter(L.ones(1))], 0.1)),
}  # fmt: skip


@pytest.mark.parametrize("name", TWO_BASES)
def test_a_class_of_two_bases_begins_both_or_one_as_in_pytorch(name):
    def told(L):
        begun = []

        class Mixin:
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                begun.append((args, kwargs))
                super().__init__()

        kind, args = TWO_BASES[name](L)
        type("Both", (kind, Mixin), {})(*args)
        return begun

    same(told)


def test_a_transform_may_be_a_module():
    for L in LIBRARIES:

        class Shift(L.distributions.Transform, L.nn.Module):
            __hash__ = L.nn.Module.__hash__

            def __init__(self, L=L):
                super().__init__(cache_size=1)
                self.by = L.nn.Parameter(L.ones(1))

        assert [name for name, _ in Shift().named_parameters()] == ["by"]


def test_numbers_tell_tensors_apart():
    for L in LIBRARIES:
        x, y = L.ones(1), L.ones(1)
        assert x._cdata == x._cdata != y._cdata != x.detach()._cdata


MADE = [
    "T._make_subclass(Mine, x)", "T._make_subclass(Mine, x, True)",
    "T._make_subclass(Mine, x * 2, require_grad=True)",
    "T._make_subclass(Mine, x.long(), True)", "T._make_subclass(Mine, 3)", "T._make_subclass(int, x)",
    "T._make_subclass(T, x)", "T._make_subclass(L.nn.Parameter, x, True)",
]  # fmt: skip


@pytest.mark.parametrize("text", MADE)
def test_subclasses_are_made_on_the_memory_of_a_tensor(text):
    def told(L):
        class Mine(L.Tensor):
            pass

        x = L.ones(2, requires_grad=True)
        y = eval(text, {"L": L, "T": L.Tensor, "Mine": Mine, "x": x})
        with L.no_grad():
            x.fill_(3.0)
        return type(y).__name__, y.requires_grad, y.is_leaf, y.tolist()

    same(told)


def test_a_parameter_of_a_program_takes_arguments_of_its_own():
    def told(L):
        class Named(L.nn.Parameter):
            def __new__(cls, data, name="", requires_grad=True):
                made = L.Tensor._make_subclass(cls, data, requires_grad)
                made.label = name
                return made

        layer = L.nn.Linear(1, 1)
        layer.weight = Named(L.ones(1, 1), name="weight")
        return layer.weight.label, [type(p).__name__ for p in layer.parameters()]

    same(told)


def test_functions_of_collate_have_pytorchs_names():
    def told(L):
        room = importlib.import_module(f"{L.__name__}.utils.data._utils.collate")
        samples = {"tensor": [L.ones(2)] * 2, "numpy_array": [np.ones(2)] * 2, "numpy_scalar": [np.int8(1)] * 2,
                   "float": [0.5, 1.5], "int": [1, 2], "str": ["a", "b"]}  # fmt: skip
        known = {"collate_fn_map": room.default_collate_fn_map}
        made = {n: getattr(room, f"collate_{n}_fn")(b, **known) for n, b in samples.items()}
        return {n: plain(repr(value)) for n, value in made.items()}

    same(told)


def test_names_at_the_top_and_of_devices():
    assert all(L.torch is L for L in LIBRARIES)
    assert adjit.Future is adjit.futures.Future
    assert issubclass(torch.futures.Future, torch.Future)
    same(lambda L: L.cuda._initialized)


def test_types_of_several_results():
    for name in adjit.return_types.__all__:
        ours, theirs = getattr(adjit.return_types, name), getattr(torch.return_types, name)
        assert (ours.__name__, plain(ours.__module__)) == (
            theirs.__name__,
            plain(theirs.__module__),
        )
        assert len(ours._fields) == theirs.n_fields
    for L in LIBRARIES:
        x = L.ones(2, 2)
        assert type(x.max(0)) is L.return_types.max
        assert type(x.sort()) is L.return_types.sort
        assert type(L.histogram(x, 2)) is L.return_types.histogram


def test_programs_ask_whether_they_are_traced():
    def told(L):
        fake = importlib.import_module(f"{L.__name__}._subclasses.fake_tensor")
        proxy = importlib.import_module(f"{L.__name__}.fx.experimental.proxy_tensor")
        functorch, seen = importlib.import_module(f"{L.__name__}._C._functorch"), []

        def look(x):
            seen.append((L._C._are_functorch_transforms_active(), functorch.is_batchedtensor(x)))
            seen.append(functorch.get_unwrapped(x).tolist())
            return x * 2

        L.vmap(look)(L.ones(2))
        x = L.ones(2)
        return (
            seen, fake.is_fake(x), proxy.get_proxy_mode(), L._C._are_functorch_transforms_active(),
            functorch.is_batchedtensor(x), functorch.is_legacy_batchedtensor(x),
        )  # fmt: skip

    same(told)
    with pytest.raises(RuntimeError, match="No wrappers present!"):
        adjit._C._functorch.get_unwrapped(adjit.ones(2))


# ----- room for the names of subclasses -----

OWN_NAMES = {  # that PyTorch's class has not, and nobody else is likely to take
    "nn.Module": {"_forward_unimplemented", "_repr_html_"},
    "nn.Conv2d": {"_axes", "_forward_unimplemented", "_function", "_repr_html_", "_widths"},
    "optim.Optimizer": {"_opt_called", "_pack_state", "_params_of_groups", "_unpack_state"},
    "utils.data.Dataset": set(),
    "utils.data.Sampler": set(),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN_NAMES)
def test_classes_leave_names_to_their_subclasses(name):
    """A helper of a base class is no method that a program, written for PyTorch's, replaces unknowingly."""
    ours, theirs = (of(library, name) for library in (adjit, torch))
    added = set(dir(ours)) - set(dir(theirs))
    assert {n for n in added if not re.match(r"_[A-Z]\w*__", n)} <= OWN_NAMES[name]


def of(library: Any, path: str) -> Any:
    for name in path.split("."):
        library = getattr(library, name)
    return library


def test_an_optimizer_keeps_its_parameters_where_lbfgs_does():
    class Descent(adjit.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 0.5})
            self._params = self.param_groups[0]["params"]

        def step(self) -> None:
            with adjit.no_grad():
                for p in self._params:
                    p.sub_(p.grad)

    x = adjit.ones(2, requires_grad=True)
    optimizer = Descent([x])
    x.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
    assert (x.tolist(), x.grad) == ([0, 0], None)


def _small_names(T):
    """What names give that programs seldom ask for; each is PyTorch's."""
    x, F = T.arange(6.0).reshape(3, 2), T.nn.functional
    g = T.Generator().manual_seed(3)
    parts = (x.clone().requires_grad_() * 1).unsafe_chunk(2)
    parts[0].mul_(2)
    return {
        "embedding": T.embedding(x, T.tensor([[1, 2]]), 0).tolist(),
        "bilinear": T.bilinear(x, x, T.ones(1, 2, 2), T.ones(1)).tolist(),
        "split": [t.tolist() for t in T.unsafe_split(x, 2)],
        "sizes": [t.tolist() for t in x.unsafe_split_with_sizes([1, 2])],
        "chunk": [t.tolist() for t in parts],
        "reductions": [F._Reduction.get_enum(name) for name in ("none", "mean", "sum")],
        "flags": F._Reduction.legacy_get_enum(False, None, emit_warning=False),
        "sizes of layers": str(T.nn.common_types._size_2_t),
        "asked": F.has_torch_function((x,)) or F.has_torch_function_variadic(x, x),
        "clone": T.equal(T.rand(3, generator=g.clone_state()), T.rand(3, generator=g)),
        "sequence": (x.requires_grad_() * 2).grad_fn._sequence_nr() >= 0,
    }


def test_small_names():
    torch = pytest.importorskip("torch")
    assert _small_names(adjit) == _small_names(torch)
    for T in (torch, adjit):
        with pytest.raises(RuntimeError, match="CPU Generator does not use offset"):
            T.Generator().get_offset()
        with pytest.raises(ValueError, match="wrong is not a valid value for reduction"):
            T.nn.functional._Reduction.get_enum("wrong")


@pytest.mark.parametrize("name", ["adam", "sgd", "rmsprop"])
def test_functions_behind_optimisers_say_what_to_do_instead(name):
    module = importlib.import_module(f"adjit.optim.{name}")
    with pytest.raises(NotImplementedError, match="use the class"):
        getattr(module, name)([], [])
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing


# ----- names that libraries import -----


IMPORTED = """
    from adjit import ScriptModule, TensorType, quint8, qint32, svd_lowrank, pca_lowrank
    from adjit._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from adjit._vmap_internals import _vmap
    from adjit.nn.functional import _canonical_mask, _get_softmax_dim, _in_projection, _mha_shape_check
    from adjit.nn.modules.conv import _pair, _single
    from adjit.nn.modules.module import _addindent
    from adjit.nn.modules.pooling import _triple
    from adjit.optim.optimizer import _default_to_fused_or_foreach, _use_grad_for_differentiable
    from adjit.utils._device import DeviceContext
    from adjit.utils._python_dispatch import TorchDispatchMode
    from adjit.utils.checkpoint import check_backward_validity, detach_variable
    from adjit.utils.data._utils.fetch import _fetcher
    from adjit.utils.data._utils.pin_memory import pin_memory
    from adjit.utils.weak import WeakTensorKeyDictionary
    import adjit._dynamo.config
    import adjit._inductor.config
"""


@pytest.mark.parametrize("line", [line.strip() for line in IMPORTED.strip().splitlines()])
def test_libraries_import_it(line):
    exec(line, {})


def test_settings_of_compilers_are_accepted():
    import adjit._dynamo.config
    import adjit._inductor.config

    adjit._inductor.config.coordinate_descent_tuning = True
    assert adjit._inductor.config.coordinate_descent_tuning is True
    adjit._dynamo.config.cache_size_limit = 64
    assert adjit._dynamo.config.cache_size_limit == 64


def test_what_every_tensor_is_not():
    x = adjit.ones(2, 3)
    assert x.to_dense() is x
    assert x.to_dense(adjit.float64).dtype is adjit.float64
    assert not any([x.is_nested, x.is_mkldnn, x.is_sparse_csr, x.is_distributed()])
    assert x.name is None
    x.name = "weights"
    assert x.name == "weights"


def test_masks_and_projections_by_their_private_names():
    F, G = adjit.nn.functional, torch.nn.functional
    mask = [[True, False], [False, True]]
    args = [(T.tensor(mask), "attn_mask", None, "", T.float32) for T in (adjit, torch)]
    assert F._canonical_mask(*args[0]).tolist() == G._canonical_mask(*args[1]).tolist()
    arrays = [np.random.default_rng(k).standard_normal((3, 4)) for k in range(3)]
    weights = [np.random.default_rng(k).standard_normal((4, 4)) for k in range(3)]
    for name in ("_in_projection", "_in_projection_packed"):
        found = []
        for T in (adjit, torch):
            given = [T.tensor(a) for a in weights]
            if name == "_in_projection_packed":
                given = [T.cat(given)]
            made = getattr(T.nn.functional, name)(*[T.tensor(a) for a in arrays], *given)
            found.append([t.numpy() for t in made])
        np.testing.assert_allclose(*found, rtol=1e-12)
    for ndim in range(5):
        with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
            assert F._get_softmax_dim("softmax", ndim, 3) == (0 if ndim in (0, 1, 3) else 1)


def test_copies_of_optimisers_step_without_gradients():
    class Plain(adjit.optim.Optimizer):
        @adjit.optim.optimizer._use_grad_for_differentiable
        def step(self):
            assert adjit.is_grad_enabled() is self.defaults["differentiable"]
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-1.0)

    p = adjit.ones(2, requires_grad=True)
    p.grad = adjit.ones(2)
    Plain([p], {"differentiable": False}).step()
    assert p.tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        Plain([p], {"differentiable": True}).step()


def test_inputs_of_checkpoints_are_detached():
    from adjit.utils.checkpoint import check_backward_validity, detach_variable

    x = adjit.ones(2, requires_grad=True) * 2
    a, b, c = detach_variable((x, x.detach(), 3))
    assert (a.requires_grad, a.grad_fn, b.requires_grad, c) == (True, None, False, 3)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        check_backward_validity([b, 3])
    check_backward_validity([a])
