"""Attributes that users set: nothing that the library keeps in its objects has a public name that PyTorch's
lack, and whatever name a user takes, values are what they are without it.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import adjit
from adjit.captured import replay
from adjit.schedule.jit import native

torch = pytest.importorskip("torch")

# What our objects had once, and what PyTorch programs call what they keep there.
ONCE = """
accumulator counter current_fn dropout_ edge fn grad_value kernels meta more needs_grad nr of_class offset plan
set_grad spec storage view_of
""".split()  # noqa: SIM905
OF_TRANSFORMS = [
    "value",
    "level",
    "like",
    "parts",
    "changed",
    "become",
    "tangent",
    "memory",
    "origin",
]
OF_OPTIMIZERS = ["update", "counts", "count", "kernel", "numbers", "moments", "advance", "choices"]
USUAL = """
tag info label scale zero_point quant_state main_grad allreduce sequence_parallel partition_dim ds_id
weight_decay lr owner parent children cache hooks state step version base view node op inputs outputs saved
context extras mask recipe address extent rows metadata index_in_list is_sharded _meta _counter _id _tag
""".split()  # noqa: SIM905
NAMES = [
    name
    for name in (*ONCE, *OF_TRANSFORMS, *OF_OPTIMIZERS, *USUAL)
    if name == "storage" or not hasattr(torch.Tensor, name)
]


def public(thing: Any) -> set[str]:
    """The public names of an object."""
    names = {*dir(thing), *getattr(thing, "__dict__", ())}
    return {name for name in names if not name.startswith("_")}


# ----- which names there are -----

# What ours have and PyTorch's lack, by a class that they are of, and why.
ALLOWED = {
    # They show what would run; what a user sets by these names is the user's.
    adjit.Tensor: {"kernels", "plan"},
    adjit.nn.DataParallel: {"dim"},  # PyTorch's has it where there is a GPU
    adjit.distributions.Geometric: {"param_shape"},  # its relatives have it in PyTorch
    adjit.fx.Interpreter: {"args_iter"}, adjit.fx.Tracer: {"tensor_attrs"},  # PyTorch's have them once they run
    adjit.set_grad_enabled: {"before"},  # PyTorch's: `prev`
}  # fmt: skip

LAYERS: dict[str, str] = {
    "AdaptiveLogSoftmaxWithLoss": "4, 10, [2]", "Bilinear": "2, 3, 4", "DataParallel": "nn.Linear(2, 2)",
    "Embedding": "3, 4", "EmbeddingBag": "3, 4", "Fold": "4, 2", "GroupNorm": "1, 3",
    "LinearCrossEntropyLoss": "2, 3", "Linear": "3, 4", "MultiheadAttention": "4, 2", "RNNBase": "'LSTM', 2, 3",
    "RNNCellBase": "2, 3, True, 4", "Threshold": "1., 2.", "Transformer": "4, 2, 1, 1",
    "TransformerDecoder": "nn.TransformerDecoderLayer(4, 2), 1", "TransformerDecoderLayer": "4, 2",
    "TransformerEncoder": "nn.TransformerEncoderLayer(4, 2), 1", "TransformerEncoderLayer": "4, 2",
    "Unflatten": "1, (2, 2)",
    **dict.fromkeys(["ChannelShuffle", "CrossMapLRN2d", "LocalResponseNorm", "PixelShuffle"], "2"),
    **dict.fromkeys(["PixelUnshuffle", "Unfold", "Upsample", "UpsamplingNearest2d"], "2"),
    "UpsamplingBilinear2d": "2",
    **dict.fromkeys(["LayerNorm", "LazyLinear", "RMSNorm", "SyncBatchNorm"], "3"),
    **dict.fromkeys(["RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"], "2, 3"),
    **{f"{kind}Norm{d}d": "3" for kind in ("Batch", "Instance") for d in (1, 2, 3)},
    **{f"{kind}{d}d": "2, 3, 1" for kind in ("Conv", "ConvTranspose") for d in (1, 2, 3)},
    **{f"Lazy{kind}{d}d": "2, 1" for kind in ("Conv", "ConvTranspose") for d in (1, 2, 3)},
    **{f"Adaptive{kind}Pool{d}d": "2" for kind in ("Avg", "Max") for d in (1, 2, 3)},
    **{f"{kind}{d}d": "2" for kind in ("AvgPool", "MaxPool", "MaxUnpool") for d in (1, 2, 3)},
    **{f"FractionalMaxPool{d}d": "2, output_size=2" for d in (2, 3)},
    **{f"LPPool{d}d": "2, 2" for d in (1, 2, 3)},
    **{f"{kind}Pad{d}d": "1" for kind in ("Zero", "Reflection", "Replication", "Circular") for d in (1, 2, 3)},
    **{f"ConstantPad{d}d": "1, 0." for d in (1, 2, 3)},
}  # fmt: skip
MODULES = """
with_parametrization(); with_parametrization().parametrizations.weight; pruned()
next(iter(pruned()._forward_pre_hooks.values())); parametrizations.weight_norm(linear())
parametrizations.spectral_norm(linear()); parametrizations.spectral_norm(linear()).parametrizations.weight[0]
nn.utils.weight_norm(linear()); nn.utils.spectral_norm(linear()); optim.swa_utils.AveragedModel(linear())
L.compile(linear()); nn.ParameterList([w()]); nn.ParameterDict({"a": w()}); L.fx.symbolic_trace(linear())
linear().register_forward_hook(print); L.fx.Interpreter(L.fx.symbolic_trace(linear())); L.fx.Tracer()
L.fx.Transformer(L.fx.symbolic_trace(linear())); next(iter(L.fx.symbolic_trace(linear()).graph.nodes))
"""
OPTIMIZERS = """
optim.ASGD([w()], 0.1); optim.Adadelta([w()], 0.1); optim.Adafactor([w()], 0.1); optim.Adagrad([w()], 0.1)
optim.Adam([w()], 0.1); optim.AdamW([w()], 0.1); optim.Adamax([w()], 0.1); optim.LBFGS([w()], 0.1)
optim.Muon([w()], 0.1); optim.NAdam([w()], 0.1); optim.RAdam([w()], 0.1); optim.RMSprop([w()], 0.1)
optim.Rprop([w()], 0.1); optim.SGD([w()], 0.1); optim.SparseAdam([w()], 0.1); rates.ConstantLR(sgd)
rates.CosineAnnealingLR(sgd, 3); rates.CosineAnnealingWarmRestarts(sgd, 3); rates.CyclicLR(sgd, 0.1, 0.2)
rates.ExponentialLR(sgd, 0.9); rates.LambdaLR(sgd, float); rates.LinearLR(sgd); rates.MultiStepLR(sgd, [2])
rates.MultiplicativeLR(sgd, float); rates.OneCycleLR(sgd, 0.1, 9); rates.PolynomialLR(sgd)
rates.ReduceLROnPlateau(sgd); rates.StepLR(sgd, 2); rates.ChainedScheduler([rates.LinearLR(sgd)])
rates.SequentialLR(sgd, [rates.LinearLR(sgd), rates.StepLR(sgd, 2)], [2]); optim.swa_utils.SWALR(sgd, 0.1)
L.amp.GradScaler("cpu")
"""
TENSORS = """
one; w(); nn.Buffer(one); w() * 2; w()[0]; inside(lambda f: L.vmap(f)(w())); context()
inside(lambda f: L.func.grad(f)(one)); inside(lambda f: L.func.jvp(f, (one,), (one,))); L.no_grad()
L.enable_grad(); L.inference_mode(); L.set_grad_enabled(True); L.amp.autocast("cpu")
L.overrides.TorchFunctionMode()
"""
DATA = """
data.Dataset(); Counting(); rows; data.Subset(rows, [0]); data.ConcatDataset([rows])
data.StackDataset(rows); data.ChainDataset([Counting()]); data.DataLoader(rows)
iter(data.DataLoader(rows)); data.SequentialSampler(rows); data.RandomSampler(rows)
data.BatchSampler(data.SequentialSampler(rows), 2, False); data.SubsetRandomSampler([1])
data.WeightedRandomSampler([1.0], 1); data.distributed.DistributedSampler(rows, 2, 0)
"""
DISTRIBUTIONS = """
d.Bernoulli(half); d.Beta(one, one); d.Binomial(3, half); d.Categorical(half); d.Cauchy(one, one); d.Chi2(one)
d.ContinuousBernoulli(half); d.Dirichlet(one); d.Exponential(one); d.FisherSnedecor(one, one); d.Gamma(one, one)
d.GeneralizedPareto(one, one, one); d.Geometric(half); d.Gumbel(one, one); d.HalfCauchy(one); d.HalfNormal(one)
d.InverseGamma(one, one); d.Kumaraswamy(one, one); d.LKJCholesky(3); d.Laplace(one, one); d.LogNormal(one, one)
d.LogisticNormal(one, one); d.LowRankMultivariateNormal(one, L.ones(2, 1), one); d.Multinomial(3, half)
d.MultivariateNormal(one, L.eye(2)); d.NegativeBinomial(3, half); d.Normal(one, one); d.OneHotCategorical(half)
d.OneHotCategoricalStraightThrough(half); d.Pareto(one, one); d.Poisson(one); d.RelaxedBernoulli(half[0], half)
d.RelaxedOneHotCategorical(half[0], half); d.StudentT(one); d.Uniform(-one, one); d.VonMises(one, one)
d.Weibull(one, one); d.Wishart(L.tensor(3.0), L.eye(2)); d.Independent(d.Normal(one, one), 1)
d.MixtureSameFamily(d.Categorical(half), d.Normal(one, one)); d.AbsTransform(); d.AffineTransform(1.0, 2.0)
d.TransformedDistribution(d.Normal(one, one), [d.ExpTransform()]); d.CatTransform([d.ExpTransform()])
d.ComposeTransform([d.ExpTransform()]); d.CorrCholeskyTransform(); d.IndependentTransform(d.ExpTransform(), 1)
d.CumulativeDistributionTransform(d.Normal(one, one)); d.ExpTransform(); d.LowerCholeskyTransform()
d.PositiveDefiniteTransform(); d.PowerTransform(one); d.ReshapeTransform((2,), (1, 2)); d.SigmoidTransform()
d.SoftmaxTransform(); d.SoftplusTransform(); d.StackTransform([d.ExpTransform()]); d.StickBreakingTransform()
d.TanhTransform()
"""


def layers() -> list[str]:
    """A call of each layer."""
    classes = {name: getattr(torch.nn, name) for name in dir(torch.nn) if hasattr(adjit.nn, name)}
    names = [n for n, c in classes.items() if inspect.isclass(c) and issubclass(c, torch.nn.Module)]
    return [f"nn.{name}({LAYERS.get(name, '')})" for name in names]


def calls(text: str) -> list[str]:
    return [call.strip() for line in text.strip().splitlines() for call in line.split(";")]


def at_hand(L: Any) -> dict[str, Any]:
    """The names of the calls above, in a library."""
    nn = L.nn
    importlib.import_module(f"{L.__name__}.nn.utils.prune")

    class Twice(nn.Module):
        def forward(self, x: Any) -> Any:
            return 2 * x

    class Counting(L.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter([1])

    def linear() -> Any:
        return nn.Linear(2, 2)

    def with_parametrization() -> Any:
        made = linear()
        nn.utils.parametrize.register_parametrization(made, "weight", Twice())
        return made

    def pruned() -> Any:
        made = linear()
        nn.utils.prune.l1_unstructured(made, "weight", 1)
        return made

    def w() -> Any:
        return nn.Parameter(L.ones(2, 3))

    def inside(run: Callable[[Callable[[Any], Any]], Any]) -> Any:
        seen: list[Any] = []
        run(lambda x: (seen.append(x), x.sin().sum())[1])
        return seen[0]

    def context() -> Any:
        seen: list[Any] = []

        class Double(L.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                seen.append(ctx)
                return 2 * x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return 2 * g

        Double.apply(w()).sum().backward()
        return seen[0]

    return {
        "L": L, "nn": nn, "optim": L.optim, "rates": L.optim.lr_scheduler, "data": L.utils.data,
        "d": L.distributions, "parametrizations": nn.utils.parametrizations, "linear": linear, "w": w,
        "Counting": Counting,
        "with_parametrization": with_parametrization, "pruned": pruned, "inside": inside, "context": context,
        "one": L.ones(2), "half": L.full((2,), 0.5), "rows": L.utils.data.TensorDataset(L.arange(4.0)),
        "sgd": L.optim.SGD([w()], lr=0.1, momentum=0.9),
    }  # fmt: skip


@pytest.mark.parametrize(
    "call",
    [*layers(), *(c for text in (MODULES, OPTIMIZERS, TENSORS, DATA, DISTRIBUTIONS) for c in calls(text))],
)  # fmt: skip
def test_no_object_has_a_public_name_that_pytorchs_lacks(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = (eval(call, at_hand(L)) for L in (torch, adjit))
        more = public(ours) - public(theirs)
    assert more == {n for cls in type(ours).__mro__ for n in ALLOWED.get(cls, ())}


ROOMS = [
    "nn", "nn.parameter", "nn.utils.parametrize", "nn.utils.prune", "nn.utils.rnn", "optim",
    "optim.lr_scheduler", "optim.swa_utils", "autograd.function", "utils.data", "distributions", "fx",
]  # fmt: skip
# What PyTorch gives to objects and to classes derived of these, not to the class.
LATER = {
    "ReduceLROnPlateau": {"mode_worse"}, "Transform": {"codomain", "domain"}, "Geometric": {"param_shape"},
    "FunctionCtx": {
        "materialize_grads", "needs_input_grad", "saved_for_forward", "saved_tensors", "saved_variables",
    },
}  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_no_class_has_a_public_name_that_pytorchs_lacks(room):
    theirs, ours = (importlib.import_module(f"{library}.{room}") for library in ("torch", "adjit"))
    wrong = {}
    for name in sorted(set(dir(theirs)) & set(dir(ours))):
        a, b = getattr(theirs, name), getattr(ours, name)
        if not name.startswith("_") and inspect.isclass(a) and inspect.isclass(b) and a is not b:
            tensors = ALLOWED[adjit.Tensor] if issubclass(b, adjit.Tensor) else set()
            wrong[name] = public(b) - public(a) - tensors - LATER.get(name, set())
    assert wrong
    assert not {name: more for name, more in wrong.items() if more}


def test_private_names_of_tensors_are_none_of_pytorchs_but_with_its_meaning():
    def private(cls: type) -> set[str]:
        return {n for n in dir(cls) if n.startswith("_") and not n.startswith("__")}

    ours = private(adjit.Tensor) & private(torch.Tensor)
    refused = {"_indices", "_make_wrapper_subclass"}
    of_sparse_tensors = {"_values"}
    told = {"_base", "_cdata", "_grad", "_is_view", "_make_subclass", "_version"}
    assert ours == told | refused | of_sparse_tensors
    for L in (torch, adjit):
        x = L.ones(2, 2, requires_grad=True)
        y = (x * 2).detach()
        y.zero_()
        assert (y._version, y._base, y._is_view(), x._grad) == (1, None, False, None)
        assert y[0]._base is y


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("kernels", "plan", "storage")])
def test_nobody_finds_a_name_that_no_user_has_set(name):
    w = adjit.ones(2, requires_grad=True)
    for thing in (adjit.ones(2), adjit.nn.Parameter(adjit.ones(2)), w, w * 2, w[0]):
        assert not hasattr(thing, name)


# ----- values do not depend on what users set -----


def nothing(t: Any) -> Any:
    return t


def setting(*names: str) -> Callable[[Any], Any]:
    """A function that sets attributes of an object, and finds what it has set."""

    def mark(t: Any) -> Any:
        for name in names:
            setattr(t, name, (name, 7))
        assert all(getattr(t, name) == (name, 7) for name in names)
        return t

    return mark


def everything(mark: Callable[[Any], Any]) -> list[Any]:
    """Values of a program that does some of everything with tensors that `mark` has had."""
    x = mark(adjit.arange(6.0).reshape(2, 3))
    w = mark(adjit.tensor([1.0, 2.0, 3.0], requires_grad=True))
    found: list[Any] = []
    for _ in range(10):  # machine code does this by and by
        y = mark(x * w)
        row, flat, turned = mark(y[1]), mark(y.view(6)), mark(y.t())
        y.add_(1)
        mark(row).mul_(2)
        shown = mark(x.clone())
        part = mark(shown[:, 1:])
        part += 0.25
        halves = [mark(h) for h in adjit.cat([flat, row]).split(5)]
        mean = mark(adjit.nn.functional.relu(y)).mean()
        loss = mark(turned.tanh().sum() + halves[0].sum() + mean)
        loss.backward()
        mark(w.grad).mul_(0.5)
        copied, read = copy.deepcopy(w), pickle.loads(pickle.dumps(w))
        mark(copied.detach()).zero_()
        mark(w.data).sub_(0.01)
        with adjit.no_grad():
            mark(w).mul_(1.01)
        tensors = y, flat, turned, loss, w, w.grad, copied, read, shown, part
        found += [[t.tolist(), t._version, t._is_view()] for t in tensors]
        found += [y.grad_fn.name(), row._base is y, turned.numpy(force=True).tolist()]
        found += [str(w), bool(x[0, 1])]
        found.append(shown.untyped_storage().data_ptr() == part.untyped_storage().data_ptr())
    return found


def transforms(mark: Callable[[Any], Any]) -> list[Any]:
    """The same inside of transforms."""

    def f(x: Any) -> Any:
        mark(x)
        y = mark(x.clone())
        mark(y[0]).mul_(2)
        return mark(mark(y.sin()) * x).sum()

    x = mark(adjit.tensor([[1.0, 2.0], [3.0, 4.0]]))
    found = [adjit.func.grad(f)(x), adjit.vmap(f)(x), adjit.vmap(adjit.func.grad(f))(x)]
    found += [*adjit.func.jvp(f, (x,), (x,)), adjit.func.hessian(f)(x[0])]
    return [t.tolist() for t in found]


@pytest.fixture(scope="module", autouse=True)
def machine_code():
    for family in native.families:
        assert family.load(compiling=True)


@pytest.fixture(scope="module")
def plain_values():
    return everything(nothing), transforms(nothing)


@pytest.mark.parametrize("name", NAMES)
def test_values_do_not_depend_on_an_attribute(name, plain_values):
    assert everything(setting(name)) == plain_values[0]


def test_values_do_not_depend_on_all_attributes_at_once(plain_values):
    assert everything(setting(*NAMES)) == plain_values[0]
    assert transforms(setting(*NAMES)) == plain_values[1]


@pytest.mark.parametrize("name", ["offset", "spec", "storage", "meta", "plan"])
def test_copies_have_the_attributes_too(name):
    x = adjit.ones(3)
    setattr(x, name, [7])
    made = copy.deepcopy(x)
    assert getattr(made, name) == [7]
    assert getattr(made, name) is not getattr(x, name)
    assert getattr(copy.copy(x), name) is getattr(x, name)
    assert not isinstance(getattr(x * 2, name, None), list)  # results are others


# ----- steps -----


@pytest.fixture
def replays(monkeypatch):
    """The calls that were answered by a replay."""
    found, run = [], replay.Replay.run

    def noted(self: Any, arguments: Any) -> Any:
        results = run(self, arguments)
        found.extend([self] * (results is not None))
        return results

    monkeypatch.setattr(replay.Replay, "run", noted)
    return found


def names_free_in(cls: type) -> list[str]:
    return [n for n in (*ONCE, *OF_TRANSFORMS, *OF_OPTIMIZERS) if not hasattr(cls, n)]


def trained(rule: str, is_marked: bool, is_compiled: bool) -> list[Any]:
    """What steps of an optimiser leave, with attributes on all that takes part."""
    adjit.manual_seed(0)
    model = adjit.nn.Sequential(
        adjit.nn.Linear(3, 4), adjit.nn.BatchNorm1d(4), adjit.nn.Tanh(), adjit.nn.Linear(4, 1)
    )
    optimizer = getattr(adjit.optim, rule)(model.parameters(), lr=0.1)
    mark = setting(*NAMES) if is_marked else nothing
    if is_marked:
        for module in model.modules():
            setting(*names_free_in(torch.nn.BatchNorm1d))(module)
        setting(*names_free_in(getattr(torch.optim, rule)))(optimizer)
        for p in (*model.parameters(), *model.buffers()):
            setting(*NAMES)(p)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = adjit.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = adjit.compile(step) if is_compiled else step
    found = []
    for k in range(8):
        x = mark(adjit.arange(15.0).reshape(5, 3) / (k + 1))
        found.append(mark(run(x, mark(x.sum(1, keepdim=True).sin()))).item())
        if is_marked:
            for p in model.parameters():
                mark(p.grad)
    state = [t.tolist() for t in model.state_dict().values()]
    return [found, state, optimizer.state_dict()["param_groups"]]


@pytest.mark.parametrize("is_compiled", [False, True], ids=["as usual", "captured"])
@pytest.mark.parametrize("rule", ["SGD", "Adam", "RMSprop", "Adagrad"])
def test_steps_do_not_depend_on_attributes(rule, is_compiled, replays):
    assert trained(rule, True, is_compiled) == trained(rule, False, is_compiled)
    assert len(replays) == (2 * 6 if is_compiled else 0)  # of the calls from the third on


def test_a_captured_step_follows_the_attributes_that_it_reads():
    w = adjit.nn.Parameter(adjit.ones(2))
    names = "offset", "spec", "counter", "scale"
    setting(*names)(w)

    @adjit.compile
    def f(x: Any) -> Any:
        return (x * w).sum() * (w.offset[1] + w.spec[1] + w.counter[1] + w.scale[1])

    assert [f(adjit.ones(2)).item() for _ in range(4)] == [56.0] * 4
    for k, name in enumerate(names):
        setattr(w, name, (name, 8))
        assert f(adjit.ones(2)).item() == 56.0 + 2 * (k + 1)


# ----- classes that users derive -----


@pytest.mark.parametrize("rule", ["SGD", "Adam"])
def test_a_users_optimizer_has_methods_of_its_own(rule):
    def never(self: Any, *_: Any) -> Any:
        raise AssertionError("a method of the user's was called")

    base = getattr(adjit.optim, rule)
    names = names_free_in(getattr(torch.optim, rule))
    own = type("Own", (base,), dict.fromkeys(names, never))
    results = []
    for cls in (base, own):
        w = adjit.nn.Parameter(adjit.tensor([1.0, 2.0]))
        optimizer = cls([w], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            w.square().sum().backward()
            optimizer.step()
        results.append((w.tolist(), str(optimizer.state_dict())))
    assert results[0] == results[1]


def test_a_users_tensor_has_methods_of_its_own():
    def never(self: Any, *_: Any) -> Any:
        raise AssertionError("a method of the user's was called")

    names = [n for n in NAMES if n != "storage"]
    own = type("Own", (adjit.Tensor,), {**dict.fromkeys(names, never), "_meta": {}, "_counter": 0})
    results = []
    for cls in (adjit.Tensor, own):
        w = adjit.tensor([1.0, 2.0, 3.0], requires_grad=True).as_subclass(cls)
        y = w * 2
        y[1:].mul_(3)
        y.sum().backward()
        results.append((y.tolist(), copy.deepcopy(w.detach()).tolist(), y[0].item()))
    assert results[0] == results[1]


@pytest.mark.parametrize("name", [n for n in adjit.Tensor.__slots__ if not n.startswith("__")])
def test_a_users_tensor_cannot_take_a_field(name):
    told = f"class Own defines {name}, which is a field of every tensor here: choose another name"
    for body in ({name: 0}, {"__slots__": (name,)}):
        with pytest.raises(TypeError, match=told):
            type("Own", (adjit.Tensor,), body)
    assert not hasattr(torch.Tensor, name)


def test_the_storage_is_a_method():
    x = adjit.arange(6.0).reshape(2, 3)
    with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
        kept = x[1].storage()
    assert kept.tolist() == x.view(-1).tolist()
    assert "storage" not in adjit.Tensor.__slots__
