"""PyTorch's own samples of its modules and optimisers, in both libraries: what differs is said below, and why.

`ADJIT_OPINFO_SAMPLES=0` takes all of them, and float32 besides float64.
"""

from __future__ import annotations

import copy
import os
import pickle
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from against_torch import plain
from opinfo import (
    DTYPES,
    Arguments,
    Lacking,
    Raised,
    attempt,
    differing,
    gradients,
    is_tensor,
    parts,
    settled,
    torch,
    translated,
)

import adjit

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import ModuleErrorEnum, module_db
    from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

USUAL = 4
SAMPLES = int(os.environ.get("ADJIT_OPINFO_SAMPLES", USUAL))
FLOATS = (torch.float64,) if SAMPLES else (torch.float32, torch.float64)
STEPS = 6


def some(samples: list[Any]) -> list[Any]:
    """As many as are asked for, evenly spaced."""
    if not SAMPLES or len(samples) <= SAMPLES:
        return samples
    return [samples[round(k)] for k in np.linspace(0, len(samples) - 1, SAMPLES)]


# ------------------------------------------------------------------ modules

DRAWS = {
    "AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout", "RReLU",
}  # fmt: skip

NOT_TWICE = "is not implemented"  # a derivative of PyTorch's
# What differs on purpose: texts, by the module.
ON_PURPOSE = {
    "LinearCrossEntropyLoss": ["options of chunks are not supported"],
    "MultiLabelMarginLoss": [NOT_TWICE],
    "MultiMarginLoss": [NOT_TWICE],
    "Transformer": [NOT_TWICE],
    "TransformerDecoderLayer": [NOT_TWICE],
    "TransformerEncoder": [NOT_TWICE],
    "TransformerEncoderLayer": [NOT_TWICE],
}


def of(library: Any, given: Any, grad: bool = False) -> tuple[Any, Any, Arguments]:
    """Arguments of a sample, in a library."""
    arguments = Arguments(library, grad)
    args, kwargs = arguments.of((tuple(given.args), dict(given.kwargs)))
    return args, kwargs, arguments


def built(info: Any, library: Any, given: Any) -> Any:
    """A module of a library."""
    kind = info.module_cls if library is torch else getattr(adjit.nn, info.module_cls.__name__)
    if library is adjit and info.name == "nn.TransformerEncoder":
        layer, count = given.args
        return kind(layer_like(layer), count)
    args, kwargs, _ = of(library, given)
    return kind(*args, **kwargs)


def layer_like(layer: Any) -> Any:
    """adjit's layer of a transformer with the options of one of PyTorch's."""
    attention = layer.self_attn
    return adjit.nn.TransformerEncoderLayer(
        attention.embed_dim,
        attention.num_heads,
        layer.linear1.out_features,
        layer.dropout.p,
        translated(layer.activation),
        batch_first=attention.batch_first,
        norm_first=layer.norm_first,
        bias=layer.linear1.bias is not None,
    )


class Sample:
    """A module made by PyTorch's sample, in both libraries, with PyTorch's parameters."""

    def __init__(self, info: Any, sample: Any, dtype: Any, training: bool) -> None:
        self.info, self.sample, self.dtype = info, sample, dtype
        self.is_loose = training and info.name.removeprefix("nn.") in DRAWS
        self.theirs = attempt(lambda: built(info, torch, sample.constructor_input))
        self.ours = attempt(lambda: built(info, adjit, sample.constructor_input))
        if not (isinstance(self.theirs, Raised) or isinstance(self.ours, Raised)):
            self.theirs.to(dtype).train(training)
            self.ours.to(DTYPES[dtype]).train(training)

    def differences(self) -> Iterator[tuple[str, str]]:
        theirs, ours = self.theirs, self.ours
        if isinstance(theirs, Raised) or isinstance(ours, Raised):
            yield from differing(ours, theirs)
            return
        for library, module in ((torch, theirs), (adjit, ours)):
            if self.info.is_lazy:
                args, kwargs, _ = of(library, self.sample.forward_input)
                module(*args, **kwargs)
        if plain(repr(ours)) != plain(repr(theirs)):
            yield "repr", f"{ours!r} | {theirs!r}"
        yield from self._differing_states(loose=True)
        ours.load_state_dict(
            {key: adjit.tensor(value.numpy()) for key, value in theirs.state_dict().items()}
        )
        self.ours = pickle.loads(pickle.dumps(copy.deepcopy(ours)))
        if self.sample.forward_input is not None:
            yield from self._differing_calls()
            yield from self._differing_states(loose=False)

    def _differing_states(self, loose: bool) -> Iterator[tuple[str, str]]:
        theirs, ours = self.theirs.state_dict(), self.ours.state_dict()
        if list(ours) != list(theirs):
            yield "keys", f"{list(ours)} | {list(theirs)}"
        for key in theirs:
            for aspect, text in differing(ours[key], theirs[key], loose):
                yield f"{key} {aspect}", text

    def _differing_calls(self) -> Iterator[tuple[str, str]]:
        (ours, our_leaves), (theirs, their_leaves) = map(self._called, (adjit, torch))
        different = [d for d in differing(ours, theirs, self.is_loose) if d[0] != "stride"]
        yield from different
        if different or self.is_loose or isinstance(theirs, Raised):
            return
        own = attempt(lambda: self._gradients(adjit, ours, our_leaves))
        wanted = attempt(lambda: self._gradients(torch, theirs, their_leaves))
        for aspect, text in differing(own, wanted):
            if aspect != "stride":
                yield f"grad {aspect}", text

    def _called(self, library: Any) -> tuple[Any, list[Any]]:
        """The result in one library, and the leaves it depends on."""
        module = self.theirs if library is torch else self.ours
        args, kwargs, arguments = of(library, self.sample.forward_input, grad=True)
        result = attempt(lambda: settled(module(*args, **kwargs)))
        return result, [*arguments.leaves, *module.parameters()]

    def _gradients(self, library: Any, result: Any, leaves: list[Any]) -> list[Any]:
        """Of a result, and at float64 of these gradients; zeros where there are none."""
        outputs = [one for one in parts(result) if is_tensor(one) and one.requires_grad]
        again = self.dtype is torch.float64 and self.info.supports_gradgrad
        if not outputs:
            return []
        found = gradients(library, outputs, leaves, again)
        if again:
            found, _ = found
            deeper = [g for g in found if g is not None and g.requires_grad and g.numel()]
            found = [*found, *(gradients(library, deeper, leaves, again=False) if deeper else ())]
        every = [*leaves, *leaves][: len(found)]
        return [
            library.zeros_like(leaf) if g is None else g.detach()
            for g, leaf in zip(found, every, strict=True)
        ]


MODULES = {info.name.removeprefix("nn."): info for info in module_db}


@pytest.mark.parametrize("name", MODULES)
def test_modules_do_what_those_of_pytorch_do(name: str) -> None:
    info, found = MODULES[name], []
    for dtype in FLOATS:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            torch.manual_seed(0)
            samples = info.module_inputs_func(
                info, device="cpu", dtype=dtype, requires_grad=True, training=training
            )
            for sample in some(list(samples)):
                found += Sample(info, sample, dtype, training).differences()
    purposes = ON_PURPOSE.get(name, [])
    assert not [(a, t) for a, t in found if not any(p in t for p in purposes)]
    assert not [p for p in purposes if not any(p in t for _, t in found)], "no longer differs"


@pytest.mark.parametrize("name", [n for n, m in MODULES.items() if m.module_error_inputs_func])
def test_modules_refuse_what_those_of_pytorch_refuse(name: str) -> None:
    info = MODULES[name]
    for error in info.module_error_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=True
    ):

        def call(library: Any, error: Any = error) -> Any:
            given = error.module_error_input
            module = built(info, library, given.constructor_input)
            if error.error_on is ModuleErrorEnum.FORWARD_ERROR:
                args, kwargs, _ = of(library, given.forward_input)
                settled(module(*args, **kwargs))

        try:
            assert not [*differing(attempt(lambda: call(adjit)), attempt(lambda: call(torch)))]
        except Lacking:
            continue  # of half precision


# ------------------------------------------------------------------ optimisers

OPTIMIZERS = {info.name: info for info in optim_db if info.name != "SparseAdam"}
# PyTorch computes with numbers of float32 here, adjit does not; Muon's products are of bfloat16 there.
LOOSE = {"ASGD", "Muon"}
LBFGS_OWN = {"H_diag", "t"}  # a number here, there a tensor


def trained(library: Any, name: str, options: dict[str, Any], schedulers: Any = ()) -> Any:
    """Parameters, losses and the state after some steps."""
    random = np.random.default_rng(0)
    leaves = [library.tensor(random.standard_normal(shape)) for shape in ((4, 5), (3, 2))]
    parameters = [library.nn.Parameter(leaf) for leaf in leaves]
    optimizer = getattr(library.optim, name)(parameters, **Arguments(library, False).of(options))
    rates = [scheduler(make, library)(optimizer) for make in schedulers]

    def closure() -> Any:
        optimizer.zero_grad()
        loss = sum((p.square() + p.sin()).sum() for p in parameters)
        loss.backward()
        return loss

    losses = []
    for _ in range(STEPS):
        losses.append(optimizer.step(closure).detach())
        for rate in rates:
            plateau = type(rate).__name__ == "ReduceLROnPlateau"
            rate.step(losses[-1]) if plateau else rate.step()
    kept = [
        value
        for state in optimizer.state_dict()["state"].values()
        for key, value in sorted(state.items())
        if is_tensor(value) and key not in LBFGS_OWN
    ]
    groups = [dict(group) for group in optimizer.state_dict()["param_groups"]]
    return [*[p.detach() for p in parameters], *losses, *kept], plain(groups)


def differing_training(name: str, *more: Any) -> list[tuple[str, str]]:
    ours = attempt(lambda: trained(adjit, name, *more))
    theirs = attempt(lambda: trained(torch, name, *more))
    if isinstance(ours, Raised) or isinstance(theirs, Raised):
        return [*differing(ours, theirs)]
    values = [*differing(ours[0], theirs[0], loose=name in LOOSE)]
    return values + [("groups", f"{ours[1]} | {theirs[1]}")] * (ours[1] != theirs[1])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimisers_do_what_those_of_pytorch_do(name: str) -> None:
    info = OPTIMIZERS[name]
    ways = [{}, *[{way: True} for way in info.supported_impls]]
    if "cpu" in info.supports_fused_on:
        ways.append({"fused": True})
    found = []
    for sample in info.optim_inputs_func(device="cpu"):
        for way in ways:
            found += differing_training(name, {**sample.kwargs, **way})
    assert not found


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_schedulers_move_optimisers_as_those_of_pytorch(name: str) -> None:
    for makers in OPTIMIZERS[name].scheduler_inputs:
        assert not differing_training(name, {}, makers)


def scheduler(make: Callable[[Any], Any], library: Any) -> Callable[[Any], Any]:
    """PyTorch's lambda that makes a scheduler, with those of a library."""
    assert isinstance(make, types.FunctionType)
    known = vars(library.optim.lr_scheduler)
    return types.FunctionType(make.__code__, known, closure=make.__closure__)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimisers_refuse_what_those_of_pytorch_refuse(name: str) -> None:
    info = OPTIMIZERS[name]
    for error in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
        sample = error.optimizer_error_input

        def call(library: Any, error: Any = error, sample: Any = sample) -> None:
            arguments = Arguments(library, False)
            given = sample.params
            if given is None:
                given = [torch.nn.Parameter(torch.ones(2, 2))]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                optimizer = getattr(library.optim, name)(
                    arguments.of(given), **arguments.of(sample.kwargs)
                )
                if error.error_on is OptimizerErrorEnum.STEP_ERROR:
                    optimizer.step()

        try:
            assert not [*differing(attempt(lambda: call(adjit)), attempt(lambda: call(torch)))]
        except Lacking:
            continue  # of complex numbers
