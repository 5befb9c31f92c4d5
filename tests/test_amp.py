"""`adjit.amp` beside PyTorch's: scaled losses, skipped steps, and casts that are asked for and not done."""

from __future__ import annotations

import importlib
import itertools
import pickle
import re
import warnings
from typing import Any

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")

LIBRARIES = torch, adjit
SETTINGS = {
    "init_scale": 2.0**100,
    "growth_interval": 2,
    "growth_factor": 4.0,
    "backoff_factor": 0.25,
}


def training(
    library: Any, slopes: list[float], clip: float | None = None, **settings: Any
) -> list[Any]:
    """The factor, its counter and the weights after each step; a slope of 1e30 times 2**100 is infinite."""
    weight = library.nn.Parameter(library.tensor([1.0, -2.0]))
    optimizer = library.optim.Adam([weight], lr=0.1)
    scaler = library.amp.GradScaler("cpu", **SETTINGS | settings)
    seen = []
    for slope in slopes:
        optimizer.zero_grad()
        scaler.scale((weight * slope).sum()).backward()
        if clip is not None:
            scaler.unscale_(optimizer)
            library.nn.utils.clip_grad_norm_([weight], clip)
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), scaler._get_growth_tracker(), weight.tolist()))
    return [seen, scaler.state_dict()]


@pytest.mark.parametrize("clip", [None, 0.5])
def test_steps_are_taken_and_skipped_as_by_pytorch(clip):
    slopes = [1.0, 1e30, 1e30, 2.0, 3.0, float("nan"), 1.0, 1.0, 1.0]
    (theirs, their_state), (ours, our_state) = (training(L, slopes, clip) for L in LIBRARIES)
    assert our_state == their_state
    assert [step[:2] for step in ours] == [step[:2] for step in theirs]
    np.testing.assert_allclose([step[2] for step in ours], [step[2] for step in theirs], rtol=1e-6)
    weights = [[1.0, -2.0], *(step[2] for step in ours)]
    stayed = [before == after for before, after in itertools.pairwise(weights)]
    assert stayed == [slope != slope or slope == 1e30 for slope in slopes]


def test_a_factor_that_cannot_grow_stays():
    for library in LIBRARIES:
        seen, _ = training(library, [1e-6] * 3, init_scale=2.0**126, growth_interval=1)
        assert [step[0] for step in seen] == [2.0**126] * 3


def test_outputs_of_any_nesting_are_scaled_and_none_when_disabled():
    for library in LIBRARIES:
        scaler = library.amp.GradScaler("cpu", init_scale=8.0)
        one = library.ones(())
        pair = scaler.scale((one, [one, (one,)]))
        assert isinstance(pair, tuple)
        assert (pair[0].item(), pair[1][0].item(), pair[1][1][0].item()) == (8.0, 8.0, 8.0)
        assert [t.item() for t in scaler.scale(t for t in [one])] == [8.0]
        off = library.amp.GradScaler("cpu", enabled=False)
        assert off.scale(one) is one
        assert (off.get_scale(), off.state_dict(), off.is_enabled()) == (1.0, {}, False)
        weight = library.nn.Parameter(library.ones(1))
        weight.grad = library.ones(1)
        off.step(library.optim.SGD([weight], lr=0.5))
        off.update()
        assert weight.item() == 0.5


def faults(library: Any) -> list[Any]:
    """What misuse raises."""

    def scaled(**settings: Any) -> Any:
        scaler = library.amp.GradScaler("cpu", **settings)
        scaler.scale(weight.sum()).backward()
        return scaler

    weight = library.nn.Parameter(library.ones(2))
    optimizer = library.optim.SGD([weight], lr=0.1)
    empty = library.optim.SGD([library.nn.Parameter(library.ones(2))], lr=0.1)
    twice, late, stepped, used = scaled(), scaled(), scaled(), scaled()
    twice.unscale_(optimizer)
    late.step(optimizer)
    stepped.step(optimizer)
    used.unscale_(optimizer)
    calls = [
        lambda: library.amp.GradScaler("cpu", growth_factor=1.0),
        lambda: library.amp.GradScaler("cpu", backoff_factor=1.0),
        lambda: library.amp.GradScaler("cpu").step(optimizer),
        lambda: library.amp.GradScaler("cpu").update(),
        lambda: library.amp.GradScaler("cpu").scale(3.0),
        lambda: library.amp.GradScaler("cpu").load_state_dict({}),
        lambda: twice.unscale_(optimizer),
        lambda: late.unscale_(optimizer),
        lambda: stepped.step(optimizer),
        lambda: scaled().step(optimizer, closure=None),
        lambda: scaled().step(empty),
        lambda: scaled().update(),
        lambda: scaled().update(library.ones(2)),
        lambda: pickle.dumps(used),
        lambda: library.autocast(3),
        lambda: library.autocast("nowhere"),
        lambda: library.autocast("cpu", enabled=False)(3),
        lambda: library.amp.custom_fwd(device_type=3),
        lambda: library.amp.custom_bwd(device_type=3),
    ]
    found = []
    for call in calls:
        with pytest.raises((AssertionError, RuntimeError, ValueError, TypeError)) as caught:
            call()
        text = str(caught.value).replace("torch.autocast", "adjit.autocast")
        found.append(
            (caught.type, re.sub("Expected one of .* device", "Expected one of ... device", text))
        )
    return found


def test_misuse_is_told_as_by_pytorch():
    theirs, ours = map(faults, LIBRARIES)
    assert ours == theirs


def test_states_go_from_one_library_to_the_other_and_through_pickles():
    state = training(torch, [1.0, 1e30, 1.0])[1]
    scaler = adjit.amp.GradScaler("cpu")
    scaler.load_state_dict(state)
    assert scaler.state_dict() == state
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == state
    assert scaler.scale(adjit.ones(())).item() == state["scale"]
    scaler.load_state_dict(state | {"scale": 2.0})
    assert scaler.get_scale() == 2.0
    scaler.update(4.0)
    scaler.scale(adjit.ones(()))
    assert scaler.get_scale() == 4.0
    scaler.update(adjit.tensor([16.0]))
    assert scaler.get_scale() == 16.0


def test_nothing_is_cast_and_a_warning_says_so():
    for arguments in ("cpu",), ("cpu", adjit.float16), ("mps",):
        with pytest.warns(UserWarning, match="target dtype is not supported. Disabling autocast"):
            context = adjit.autocast(*arguments)
        with context as entered:
            assert entered is context
            assert (adjit.ones(2, 2) @ adjit.ones(2, 2)).dtype == adjit.float32
            assert not adjit.is_autocast_enabled("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        doubled = adjit.autocast("cuda", enabled=False)(lambda x: 2 * x)
        assert doubled(3) == 6
    for library in LIBRARIES:
        if not library.cuda.is_available():
            with pytest.warns(UserWarning, match="CUDA is not available.*Disabling autocast"):
                library.autocast("cuda")
            with pytest.warns(
                UserWarning, match="GradScaler is enabled, but CUDA is not available"
            ):
                assert not library.GradScaler().is_enabled()


def test_what_programs_ask():
    for name in "cpu", "cuda", "mps", "xpu":
        kinds = [str(L.get_autocast_dtype(name)).rpartition(".")[2] for L in LIBRARIES]
        assert kinds[0] == kinds[1]
        assert adjit.amp.is_autocast_available(name)
    for library in LIBRARIES:
        assert not library.is_autocast_enabled()
        assert library.is_autocast_cache_enabled()


def test_the_older_names_are_deprecated():
    for library in LIBRARIES:
        amp = importlib.import_module(f"{library.__name__}.cuda.amp")
        importlib.import_module(f"{library.__name__}.cuda.amp.grad_scaler")
        importlib.import_module(f"{library.__name__}.amp.grad_scaler")
        for make in (
            lambda amp=amp: amp.autocast(enabled=False), lambda amp=amp: amp.GradScaler(enabled=False),
            lambda amp=amp: amp.custom_fwd(len), lambda amp=amp: amp.custom_bwd(len),
        ):  # fmt: skip
            with pytest.warns(FutureWarning, match=r"is deprecated\. Please use `\w+\.amp\."):
                make()
        with pytest.warns(FutureWarning):
            assert isinstance(amp.autocast(enabled=False), library.autocast)


def test_functions_of_ones_own_are_decorated():
    def twice(library: Any) -> Any:
        class Twice(library.autograd.Function):
            @staticmethod
            @library.amp.custom_fwd(device_type="cuda", cast_inputs=library.float32)
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @library.amp.custom_bwd(device_type="cuda")
            def backward(ctx: Any, grad: Any) -> Any:
                (x,) = ctx.saved_tensors
                return 2 * x * grad

        x = library.arange(3.0, requires_grad=True)
        Twice.apply(x).sum().backward()
        return x.grad.tolist()

    assert twice(adjit) == twice(torch) == [0.0, 2.0, 4.0]
