"""Checkpoints as folders: states by name beside PyTorch's, round trips, errors, lost bytes, two processes."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import warnings
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from in_processes import results

import adjit
import adjit.distributed as dist
import adjit.distributed.checkpoint as dcp
from adjit import dtypes, nn
from adjit.distributed.checkpoint import format_utils, nesting, state_dict
from adjit.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from adjit.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

Options = state_dict.StateDictOptions
needs_mpi = pytest.mark.skipif(
    not dist.is_mpi_available(), reason="needs mpi4py and an MPI: pip install adjit[distributed]"
)
ALONE = r"torch\.distributed is disabled, unavailable or uninitialized, assuming the intent is to (save|load)"
pytestmark = pytest.mark.filterwarnings(f"ignore:{ALONE}:UserWarning")


@pytest.fixture(autouse=True, scope="module")
def pytorchs_distributions_go_on_checking():
    """PyTorch's states of optimisers start its compiler, which switches these checks off."""
    yield
    if torch := sys.modules.get("torch"):
        torch.distributions.Distribution.set_default_validate_args(True)


def modules(library: str) -> tuple[Any, Any, Any]:
    """A library, its `checkpoint` and its `checkpoint.state_dict`."""
    if library == "torch":
        pytest.importorskip("torch")
    names = (library, f"{library}.distributed.checkpoint")
    return (*map(importlib.import_module, names), importlib.import_module(f"{names[1]}.state_dict"))


def trained(T: Any) -> tuple[Any, Any]:
    """A model after a step of AdamW, the same in each library."""
    model = T.nn.Sequential(T.nn.Linear(2, 3), T.nn.BatchNorm1d(3), T.nn.Linear(3, 1)).double()
    with T.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(
                T.linspace(-1, 1, parameter.numel(), dtype=T.float64).reshape(parameter.shape)
            )
            parameter.mul_(number + 1)
    optimizer = T.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    rows = T.tensor([[1.0, 2.0], [3.0, 5.0], [0.5, -1.0]], dtype=T.float64)
    model(rows).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def plain(value: Any) -> Any:
    """A state with lists in the place of tensors, rounded; types of containers are kept by name."""
    if hasattr(value, "tolist"):
        return ("tensor", list(value.shape), np.round(value.tolist(), 4).tolist())
    if isinstance(value, dict):
        return (type(value).__name__, {key: plain(part) for key, part in value.items()})
    if isinstance(value, (list, tuple)):
        return type(value)(plain(part) for part in value)
    return value


def told(call: Any) -> Any:
    """What a call gives, or the type and the text of its error, the one of rank 0 behind a checkpoint's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = call()
        except Exception as error:
            return type(error).__name__, as_pytorch(str(error))
        except BaseException as error:
            (inner, _), *_ = error.failures.values()
            return type(inner).__name__, as_pytorch(str(inner)), "of rank 0"
    return plain(tuple(found) if isinstance(found, tuple) else found)


def as_pytorch(text: str) -> str:
    return text.replace("adjit.", "torch.")


def failure(call: Any) -> BaseException:
    """The error of rank 0."""
    with pytest.raises(dcp.CheckpointException) as caught:
        call()
    return caught.value.failures[0][0]


def same(ours: Any, theirs: Any) -> None:
    """That two states of adjit are equal to the bit."""
    if adjit.is_tensor(theirs):
        assert adjit.is_tensor(ours)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.detach().numpy().tobytes() == theirs.detach().numpy().tobytes()
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs)
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    else:
        assert type(ours) is type(theirs)
        assert ours == theirs or (ours != ours and theirs != theirs)


def emptied(state: Any) -> Any:
    """A state of the same structure without its values."""
    if adjit.is_tensor(state):
        return adjit.zeros(state.shape, dtype=state.dtype)
    if isinstance(state, dict):
        return type(state)((key, emptied(part)) for key, part in state.items())
    if isinstance(state, list):
        return [emptied(part) for part in state]
    return None


# ----- states by name -----

READS = {
    "model": lambda T, sd, m, o: sd.get_model_state_dict(m),
    "optimizer": lambda T, sd, m, o: sd.get_optimizer_state_dict(m, o),
    "both": lambda T, sd, m, o: sd.get_state_dict(m, o),
    "no optimizer": lambda T, sd, m, o: sd.get_state_dict(m, ()),
    "two optimizers": lambda T, sd, m, o: sd.get_optimizer_state_dict(
        m, [T.optim.SGD(m[0].parameters(), 0.1), T.optim.Adam(m[2].parameters(), amsgrad=True)]
    ),
    "fresh": lambda T, sd, m, o: sd.get_optimizer_state_dict(m, T.optim.AdamW(m.parameters())),
    "stateless": lambda T, sd, m, o: sd.get_optimizer_state_dict(m, T.optim.SGD(m.parameters(), 0.1)),
    "rate of a tensor": lambda T, sd, m, o: sd.get_optimizer_state_dict(
        m, T.optim.Adam(m.parameters(), lr=T.tensor(0.5))
    ),
    "flattened": lambda T, sd, m, o: sd.get_optimizer_state_dict(
        m, o, options=sd.StateDictOptions(flatten_optimizer_state_dict=True)
    ),
    "whole": lambda T, sd, m, o: sd.get_state_dict(
        m, o, options=sd.StateDictOptions(full_state_dict=True, cpu_offload=True)
    ),
    "on the CPU": lambda T, sd, m, o: sd.get_model_state_dict(
        m, options=sd.StateDictOptions(cpu_offload=True)
    ),
    "without frozen": lambda T, sd, m, o: (
        m[0].requires_grad_(False),
        sd.get_state_dict(m, o, options=sd.StateDictOptions(ignore_frozen_params=True)),
    )[1],
    "a part": lambda T, sd, m, o: sd.get_model_state_dict(m, submodules={m[2]}),
    "a part by its names": lambda T, sd, m, o: sd.get_model_state_dict(
        m, submodules={m[2]}, options=sd.StateDictOptions(keep_submodule_prefixes=False)
    ),
    "compiled": lambda T, sd, m, o: sd.get_model_state_dict(T.compile(m)),
    "compiled inside": lambda T, sd, m, o: sd.get_model_state_dict(T.nn.Sequential(T.compile(m))),
    "nothing to read": lambda T, sd, m, o: sd.get_optimizer_state_dict(m, ()),
    "broadcast of a part": lambda T, sd, m, o: sd.get_model_state_dict(
        m, options=sd.StateDictOptions(broadcast_from_rank0=True)
    ),
    "tied": lambda T, sd, m, o: tied(T, sd),
    "checkpointed": lambda T, sd, m, o: sd.get_model_state_dict(
        T.nn.Sequential(wrapper(T).checkpoint_wrapper(m[0]))
    ),
}  # fmt: skip


def tied(T: Any, sd: Any) -> Any:
    first, second = T.nn.Linear(2, 2, bias=False), T.nn.Linear(2, 2, bias=False)
    first.weight.data.fill_(2.0)
    second.weight = first.weight
    model = T.nn.Sequential(first, second)
    optimizer = T.optim.Adam(model.parameters())
    found = sd.get_state_dict(model, optimizer)
    sd.set_optimizer_state_dict(model, optimizer, found[1])
    return found


def wrapper(T: Any) -> Any:
    name = f"{T.__name__}.distributed.algorithms._checkpoint.checkpoint_wrapper"
    return importlib.import_module(name)


@pytest.mark.parametrize("name", READS)
def test_states_have_pytorchs_names_values_and_errors(name):
    found = []
    for library in ("torch", "adjit"):
        T, _, sd = modules(library)
        model, optimizer = trained(T)
        found.append(told(lambda T=T, sd=sd, m=model, o=optimizer: READS[name](T, sd, m, o)))
    assert found[1] == found[0]


def some(state: dict[str, Any], without: str) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key != without}


WRITES = {
    "model": lambda T, sd, m, o, a, b: sd.set_model_state_dict(m, a),
    "optimizer": lambda T, sd, m, o, a, b: sd.set_optimizer_state_dict(m, o, b),
    "both": lambda T, sd, m, o, a, b: sd.set_state_dict(m, o, model_state_dict=a, optim_state_dict=b),
    "optimizer alone": lambda T, sd, m, o, a, b: sd.set_state_dict(
        m, o, model_state_dict={}, optim_state_dict=b
    ) and None,
    "nothing": lambda T, sd, m, o, a, b: sd.set_state_dict(
        m, (), model_state_dict={}, optim_state_dict={}
    ),
    "no state": lambda T, sd, m, o, a, b: sd.set_optimizer_state_dict(m, o, {}),
    "one missing": lambda T, sd, m, o, a, b: sd.set_model_state_dict(m, some(a, "0.bias")),
    "one too many": lambda T, sd, m, o, a, b: sd.set_model_state_dict(m, a | {"x": T.ones(1)}),
    "one missing, not strict": lambda T, sd, m, o, a, b: sd.set_model_state_dict(
        m, some(a, "0.bias"), options=sd.StateDictOptions(strict=False)
    ),
    "one missing, whole": lambda T, sd, m, o, a, b: sd.set_model_state_dict(
        m, some(a, "0.bias"), options=sd.StateDictOptions(full_state_dict=True)
    ),
    "one missing in a wrapper": lambda T, sd, m, o, a, b: sd.set_model_state_dict(
        T.compile(m), some(a, "0.bias")
    ),
    "a wrapper": lambda T, sd, m, o, a, b: sd.set_model_state_dict(T.compile(m), a),
    "a size": lambda T, sd, m, o, a, b: sd.set_model_state_dict(m, a | {"0.bias": T.ones(4)}),
    "a part": lambda T, sd, m, o, a, b: sd.set_model_state_dict(
        m, {m[2]: {"weight": T.ones(1, 3)}}, options=sd.StateDictOptions(strict=False)
    ),
    "optimizer, one missing": lambda T, sd, m, o, a, b: sd.set_optimizer_state_dict(
        m, o, {**b, "state": some(b["state"], "0.bias")}
    ),
    "optimizer, whole": lambda T, sd, m, o, a, b: sd.set_optimizer_state_dict(
        m, o, b, options=sd.StateDictOptions(full_state_dict=True)
    ),
    "optimizer, one missing, whole": lambda T, sd, m, o, a, b: sd.set_optimizer_state_dict(
        m, o, {**b, "state": some(b["state"], "0.weight")},
        options=sd.StateDictOptions(full_state_dict=True, strict=False),
    ),
    "with names left out": lambda T, sd, m, o, a, b: set_renamed(T, sd),
    "checkpointed": lambda T, sd, m, o, a, b: set_checkpointed(T, sd, m),
    "optimizer, flat": lambda T, sd, m, o, a, b: sd.set_optimizer_state_dict(
        m, o, sd.get_optimizer_state_dict(
            m, o, options=sd.StateDictOptions(flatten_optimizer_state_dict=True)
        )
    ),
    "two optimizers": lambda T, sd, m, o, a, b: sd.set_optimizer_state_dict(
        m, [T.optim.AdamW(m[0].parameters()), o], b
    ),
}  # fmt: skip


def set_checkpointed(T: Any, sd: Any, m: Any) -> Any:
    model = T.nn.Sequential(wrapper(T).checkpoint_wrapper(m[0]), m[2])
    optimizer = T.optim.AdamW(model.parameters())
    of_model, of_optimizer = sd.get_state_dict(model, optimizer)
    sd.set_state_dict(model, optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer)
    return of_model, of_optimizer


def renaming(T: Any) -> Any:
    """A model whose hooks leave a name out of its state, and which says so."""

    def shorter(module, state, prefix, local_metadata):
        for name in ("weight", "bias"):
            state[f"{prefix}{name}"] = state.pop(f"{prefix}layer.{name}")

    def longer(module, state, prefix, *rest):
        for name in ("weight", "bias"):
            state[f"{prefix}layer.{name}"] = state.pop(f"{prefix}{name}")

    class Renaming(T.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = T.nn.Linear(2, 1)
            self.register_state_dict_post_hook(shorter)
            self.register_load_state_dict_pre_hook(longer)

        def _fqn_modifiers(self):
            return {"weight": "layer", "bias": "layer"}

    model = T.nn.Sequential(Renaming())
    for parameter in model.parameters():
        parameter.data.fill_(2.0)
    return model


def set_renamed(T: Any, sd: Any) -> Any:
    model = renaming(T)
    found = {key: value.clone() for key, value in sd.get_model_state_dict(model).items()}
    model[0].layer.weight.data.zero_()
    answer = sd.set_model_state_dict(model, dict(found))
    return list(found), list(answer), model[0].layer.weight.tolist()


@pytest.mark.parametrize("name", WRITES)
def test_states_are_set_as_pytorch_sets_them(name):
    found = []
    for library in ("torch", "adjit"):
        T, _, sd = modules(library)
        states = sd.get_state_dict(*trained(T))
        model, optimizer = trained(T)
        model[0].weight.data.zero_()
        optimizer.param_groups[0]["lr"] = 7.0
        call = WRITES[name]
        answer = told(
            lambda T=T, sd=sd, m=model, o=optimizer, s=states, call=call: call(T, sd, m, o, *s)
        )
        after = plain(model.state_dict()), plain(optimizer.state_dict()["state"])
        groups = plain([list(g.items()) for g in optimizer.state_dict()["param_groups"]])
        if name.endswith("whole"):  # PyTorch makes lists of the tuples in it
            groups = re.sub(r"[\[\]()]", "", str(groups))
        found.append((answer, after, groups))
    assert found[1] == found[0]


def test_the_given_states_stay_as_they_are():
    model, optimizer = trained(adjit)
    of_model, of_optimizer = state_dict.get_state_dict(model, optimizer)
    before = plain(of_model), plain(of_optimizer)
    state_dict.set_state_dict(
        adjit.compile(model), optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer
    )
    assert (plain(of_model), plain(of_optimizer)) == before


def test_states_that_files_cannot_have_are_refused():
    model, optimizer = trained(adjit)
    optimizer.state[model[0].weight]["note"] = "text"
    with pytest.raises(NotImplementedError, match=r"Type is <class 'str'>\.$"):
        state_dict.get_optimizer_state_dict(
            model, optimizer, options=Options(flatten_optimizer_state_dict=True)
        )
    optimizer.state[model[0].weight]["note"] = {1, 2}
    with pytest.raises(ValueError, match=r"^Unexpected value type <class 'set'>$"):
        state_dict.get_optimizer_state_dict(model, optimizer, options=Options(cpu_offload=True))
    with pytest.raises(RuntimeError, match=r"but model state_dict is empty\.rank = dist"):
        state_dict.get_model_state_dict(nn.ReLU())


def test_to_read_the_state_of_a_fresh_optimizer_changes_no_parameter():
    for rate in (0.5, adjit.tensor(0.5)):
        model, _ = trained(adjit)
        before = plain(model.state_dict())
        optimizer = adjit.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.5)
        found = state_dict.get_optimizer_state_dict(model, optimizer)
        assert plain(model.state_dict()) == before
        assert found["param_groups"][0]["lr"] == 0.5
        assert all(parameter.grad is None for parameter in model.parameters())


def test_nested_states_of_optimizers_are_flattened_and_back():
    model, optimizer = trained(adjit)
    optimizer.state[model[0].weight]["deep"] = {"a": {"b": adjit.ones(2).double()}, "c": 3}
    flat = state_dict.get_optimizer_state_dict(
        model, optimizer, options=Options(flatten_optimizer_state_dict=True)
    )
    assert flat["state.0.weight.deep.c"] == 3
    optimizer.state[model[0].weight]["deep"] = {}
    state_dict.set_optimizer_state_dict(model, optimizer, flat)
    same(optimizer.state[model[0].weight]["deep"], {"a": {"b": adjit.ones(2).double()}, "c": 3})


def test_extra_state():
    class Counting(nn.Linear):
        def get_extra_state(self):
            return {"calls": 3}

        def set_extra_state(self, state):
            self.calls = state["calls"]

    model = nn.Sequential(Counting(2, 1))
    found = state_dict.get_model_state_dict(adjit.compile(model))
    assert found["0._extra_state"] == {"calls": 3}
    state_dict.set_model_state_dict(model, found)
    assert model[0].calls == 3


# ----- round trips -----


def test_a_nested_state_comes_back_to_the_bit(tmp_path):
    state = {
        "model": OrderedDict(weight=adjit.randn(3, 2), bias=adjit.randn(3)),
        "optimizer": {
            "state": {0: {"step": adjit.tensor(3.0), "count": 5}, 1: {"step": adjit.tensor(4.0)}},
            "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}],
        },
        "mixed": [adjit.ones(2), 3, [adjit.zeros(1), "deep"]],
        "plain": [1, 2, ["a"]],
        "of tensors": (adjit.ones(1), adjit.zeros(2)),
        "scalars": {"none": None, "true": True, "nan": float("nan"), "inf": float("inf"),
                    "complex": 1 + 2j, "bytes": b"\x00\xff", "text": "ü\n", "big": 2**70},
        "dtype": adjit.float64,
        "with.dots": {"a.b": 1},
    }  # fmt: skip
    dcp.save(state, checkpoint_id=tmp_path)
    target = emptied(state)
    dcp.load(target, checkpoint_id=tmp_path)
    same(target, state)


@pytest.mark.parametrize("kind", dtypes.SUPPORTED, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (4,), (2, 3)], ids=str)
def test_every_dtype_and_shape(kind, shape, tmp_path):
    rng = np.random.default_rng(1)
    values = adjit.tensor(rng.integers(0, 2, shape)).to(kind)
    state = {"x": values}
    dcp.save(state, checkpoint_id=tmp_path)
    target = emptied(state)
    dcp.load(target, checkpoint_id=tmp_path)
    same(target, state)


def test_views_shared_memory_and_gradients(tmp_path):
    base = adjit.arange(24.0).reshape(4, 6)
    weight = nn.Parameter(adjit.randn(3))
    state = {
        "turned": base.t(), "stepped": base[::2, 1::2], "row": base[1], "whole": base,
        "again": base, "expanded": adjit.ones(1).expand(5), "parameter": weight, "of it": weight * 2,
    }  # fmt: skip
    dcp.save(state, checkpoint_id=tmp_path)
    target = emptied(state)
    column = adjit.zeros(4, 9)
    target["row"] = column.flatten()[:6]
    target["turned"] = adjit.zeros(4, 6).t()
    target["parameter"] = nn.Parameter(adjit.zeros(3))
    held = dict(target)
    dcp.load(target, checkpoint_id=tmp_path)
    same(target, state)
    assert all(target[key] is held[key] for key in held)
    assert column[0].tolist() == [6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 0.0, 0.0, 0.0]
    assert target["parameter"].requires_grad
    assert os.path.getsize(next(tmp_path.glob("*.distcp"))) < 8 * 1000  # a row takes no matrix


def test_objects_give_and_take_their_state(tmp_path):
    model, optimizer = trained(adjit)
    scheduler = adjit.optim.lr_scheduler.StepLR(optimizer, 1)
    dcp.save(
        {"model": model, "optimizer": optimizer, "scheduler": scheduler}, checkpoint_id=tmp_path
    )
    other, fresh = trained(adjit)
    with adjit.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    adjit.optim.lr_scheduler.StepLR(fresh, 1)
    fresh.param_groups[0]["lr"] = 3.0
    target = {"optimizer": fresh, "model": other}
    pointer = other[0].weight.data_ptr()
    dcp.load(target, checkpoint_id=tmp_path)
    assert target == {"optimizer": fresh, "model": other}
    assert other[0].weight.data_ptr() == pointer
    same(other.state_dict(), model.state_dict())
    same(fresh.state_dict(), optimizer.state_dict())


def test_keys_that_are_no_strings_are_found_again(tmp_path):
    dcp.save({"state": {0: 5, 1: adjit.ones(1)}}, checkpoint_id=tmp_path)
    target = {"state": {0: 0, 1: adjit.zeros(1)}}
    dcp.load(target, checkpoint_id=tmp_path)
    same(target, {"state": {0: 5, 1: adjit.ones(1)}})


def test_the_names_are_pytorchs():
    torch = pytest.importorskip("torch")
    flatten = importlib.import_module(
        "torch.distributed.checkpoint._nested_dict"
    ).flatten_state_dict
    for make in (
        lambda T: {"a": {"b": T.ones(1), 3: [1, 2]}, "c": [T.ones(1), 2, (T.ones(1),)]},
        lambda T: {"a": [[1], [{"x": 1}], []], "b": {}, "c": (), "d": OrderedDict(e=[{}])},
        lambda T: {"a": [[[T.ones(1)]], "text"], 5: None},
    ):
        ours, theirs = nesting.flatten(make(adjit)), flatten(make(torch))
        assert list(ours[0]) == list(theirs[0])
        assert ours[1] == theirs[1]


def test_all_of_a_checkpoint_or_what_lies_under_names(tmp_path):
    state = {"a": {"b": adjit.ones(2), "c": [adjit.zeros(1), 7]}, "n": 3}
    dcp.save(state, checkpoint_id=tmp_path)
    same(_load_state_dict_from_keys(checkpoint_id=tmp_path), state)
    same(_load_state_dict_from_keys("a.c", checkpoint_id=tmp_path), {"a": {"c": state["a"]["c"]}})
    some = _load_state_dict_from_keys({"n", "a.b"}, checkpoint_id=tmp_path)
    same(some, {"a": {"b": adjit.ones(2)}, "n": 3})
    with pytest.raises(AssertionError, match="not state_dict"):
        _EmptyStateDictLoadPlanner().set_up_planner({"a": 1}, dcp.Metadata({}))


def test_one_file_and_back(tmp_path):
    state = {"model": {"w": adjit.randn(3, 2)}, "rates": [0.1, 0.2], "epoch": 3}
    dcp.save(state, checkpoint_id=tmp_path / "folder")
    format_utils.dcp_to_torch_save(tmp_path / "folder", tmp_path / "file")
    same(adjit.load(tmp_path / "file"), state)
    format_utils.torch_save_to_dcp(tmp_path / "file", tmp_path / "again")
    target = emptied(state)
    dcp.load(target, checkpoint_id=tmp_path / "again")
    same(target, state)


def test_a_file_of_pytorch_becomes_a_checkpoint(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.arange(3.0)}, tmp_path / "file.pt")
    format_utils.torch_save_to_dcp(tmp_path / "file.pt", tmp_path / "folder")
    target = {"w": adjit.zeros(3)}
    dcp.load(target, checkpoint_id=tmp_path / "folder")
    assert target["w"].tolist() == [0.0, 1.0, 2.0]


# ----- planners, writers, what is written -----


def test_parts_are_loaded_and_left_alone(tmp_path):
    dcp.save({"a": 1, "b": adjit.ones(2)}, checkpoint_id=tmp_path)
    target = {"b": adjit.zeros(2), "c": 5}
    dcp.load(
        target, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(allow_partial_load=True)
    )
    same(target, {"b": adjit.ones(2), "c": 5})


def test_nested_dicts_as_one_value(tmp_path):
    state = {"a": {"b": adjit.ones(2), "c": 3}, "d": adjit.zeros(1)}
    dcp.save(
        state, checkpoint_id=tmp_path, planner=dcp.DefaultSavePlanner(flatten_state_dict=False)
    )
    target = {"a": None, "d": adjit.ones(1)}
    dcp.load(
        target, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(flatten_state_dict=False)
    )
    same(target, state)


def test_planners_may_change_what_passes(tmp_path):
    class Renaming(dcp.DefaultLoadPlanner):
        def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
            renamed = {f"old.{key}": value for key, value in state_dict.items()}
            super().set_up_planner(renamed, metadata, is_coordinator)

    dcp.save({"old": {"w": adjit.ones(2)}}, checkpoint_id=tmp_path)
    target = {"w": adjit.zeros(2)}
    dcp.load(target, checkpoint_id=tmp_path, planner=Renaming())
    assert target["w"].tolist() == [1.0, 1.0]


def test_a_file_for_each_value(tmp_path):
    state = {"a": adjit.ones(2), "b": 3, "c": adjit.zeros(1)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path, single_file_per_rank=False))
    assert len(list(tmp_path.glob("*.distcp"))) == 3
    target = emptied(state)
    dcp.load(target, storage_reader=dcp.FileSystemReader(tmp_path))
    same(target, state)


def test_a_writer_and_a_reader_take_another_name(tmp_path):
    writer = dcp.FileSystemWriter(tmp_path / "first")
    dcp.save({"a": 1}, storage_writer=writer, checkpoint_id=tmp_path / "second")
    assert not (tmp_path / "first").exists()
    target = {"a": 0}
    reader = dcp.FileSystemReader(tmp_path / "first")
    dcp.load(target, storage_reader=reader, checkpoint_id=str(tmp_path / "second"))
    assert target == {"a": 1}


def test_replacing_a_checkpoint_leaves_nothing_of_it(tmp_path):
    dcp.save({"a": adjit.ones(2), "b": 1}, checkpoint_id=tmp_path)
    (tmp_path / "mine.distcp").write_text("of the user's")
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.warns(
        UserWarning, match=r"^Detected an existing checkpoint in .*self\.overwrite=True"
    ):
        dcp.save({"a": adjit.zeros(2)}, checkpoint_id=tmp_path)
    after = {path.name for path in tmp_path.iterdir()}
    assert len(after) == 3
    assert before & after == {".metadata", "mine.distcp"}
    error = failure(lambda: dcp.load({"b": 0}, checkpoint_id=tmp_path))
    assert str(error) == "Missing key in checkpoint state_dict: b."
    writer = dcp.FileSystemWriter(tmp_path, overwrite=False)
    error = failure(lambda: dcp.save({"a": 1}, storage_writer=writer))
    assert str(error) == "Checkpoint already exists and self.overwrite=False."


@pytest.mark.parametrize("step", ["write", "finish"])
def test_a_save_that_fails_leaves_the_checkpoint_that_was(tmp_path, monkeypatch, step):
    dcp.save({"a": adjit.ones(2)}, checkpoint_id=tmp_path)
    value: Any = adjit.zeros(2)
    if step == "write":
        value = [adjit.zeros(2), iter(())]  # which files cannot have
    else:
        packed = "adjit.distributed.checkpoint.filesystem._packed"
        monkeypatch.setattr(packed, lambda _: 1 / 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        error = failure(lambda: dcp.save({"a": value}, checkpoint_id=tmp_path))
    assert isinstance(error, TypeError if step == "write" else ZeroDivisionError)
    assert not list(tmp_path.glob("*.tmp"))
    target = {"a": adjit.zeros(2)}
    dcp.load(target, checkpoint_id=tmp_path)
    assert target["a"].tolist() == [1.0, 1.0]


def test_the_old_functions_warn(tmp_path):
    with pytest.warns(
        FutureWarning, match=r"^`save_state_dict` is deprecated .*use `save` instead"
    ):
        dcp.save_state_dict({"a": 1}, dcp.FileSystemWriter(tmp_path), no_dist=True)
    target = {"a": 0}
    with pytest.warns(
        FutureWarning, match=r"^`load_state_dict` is deprecated .*use `load` instead"
    ):
        dcp.load_state_dict(target, dcp.FileSystemReader(tmp_path), no_dist=True)
    assert target == {"a": 1}


@pytest.mark.filterwarnings("default")
def test_a_process_alone_is_warned_as_by_pytorch(tmp_path):
    pytest.importorskip("torch")
    found = {}
    for library in ("torch", "adjit"):
        _, module, _ = modules(library)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            module.save({"a": 1}, checkpoint_id=tmp_path / library)
            module.load({"a": 1}, checkpoint_id=tmp_path / library)
        found[library] = [
            (w.category, str(w.message)) for w in caught if "assuming" in str(w.message)
        ]
        if library == "adjit":
            assert {w.filename for w in caught} == {__file__}
    assert found["adjit"] == found["torch"]


# ----- in a thread -----


def test_what_changes_after_async_save_is_not_saved(tmp_path):
    model, _ = trained(adjit)
    state = {"model": model.state_dict(), "list": [1, {"x": 2}], "lazy": model[0].weight * 2}
    kept = {"model": {k: v.clone() for k, v in state["model"].items()}, "list": [1, {"x": 2}],
            "lazy": (model[0].weight * 2).detach().clone()}  # fmt: skip
    saved = dcp.async_save(state, checkpoint_id=tmp_path)
    with adjit.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    state["list"][1]["x"] = 9
    assert list(saved.result().state_dict_metadata) == list(nesting.flatten(kept)[0])
    target = emptied(kept)
    dcp.load(target, checkpoint_id=tmp_path)
    same(target, kept)


def test_errors_of_async_save_are_those_of_its_future(tmp_path):
    saved = dcp.async_save({"a": {"b": 1}, "a.b": 2}, checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException):
        saved.result()
    assert not (tmp_path / ".metadata").exists()
    process = dcp.state_dict_saver.AsyncCheckpointerType.PROCESS
    with pytest.raises(NotImplementedError, match="async_save saves in a thread"):
        dcp.async_save({}, checkpoint_id=tmp_path, async_checkpointer_type=process)
    with pytest.raises(NotImplementedError, match="use_collectives=False"):
        dcp.save({}, checkpoint_id=tmp_path, use_collectives=False)


# ----- errors -----

ERRORS = {
    "missing": lambda T, dcp, path: dcp.load({"z": T.ones(1)}, checkpoint_id=path),
    "size": lambda T, dcp, path: dcp.load({"a": T.ones(3)}, checkpoint_id=path),
    "rank": lambda T, dcp, path: dcp.load({"a": T.ones(1, 2)}, checkpoint_id=path),
    "no tensor": lambda T, dcp, path: dcp.load({"a": 3}, checkpoint_id=path),
    "a tensor": lambda T, dcp, path: dcp.load({"b": T.ones(1)}, checkpoint_id=path),
    "twice": lambda T, dcp, path: dcp.save({"a": {"b": 1}, "a.b": 2}, checkpoint_id=path),
    "no name": lambda T, dcp, path: dcp.save({"a": 1}),
    "no name to load": lambda T, dcp, path: dcp.load({"a": 1}),
    "there already": lambda T, dcp, path: dcp.save(
        {"a": 1}, storage_writer=dcp.FileSystemWriter(path, overwrite=False)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_pytorchs(name, tmp_path):
    pytest.importorskip("torch")
    found = []
    for library in ("torch", "adjit"):
        T, module, _ = modules(library)
        path = tmp_path / library
        module.save({"a": T.ones(2), "b": 3}, checkpoint_id=path)
        found.append(told(lambda T=T, module=module, path=path: ERRORS[name](T, module, path)))
    assert found[1] == found[0]


def test_a_name_that_is_no_path(tmp_path):
    with pytest.raises(
        RuntimeError, match=r"^Cannot detect which StorageReader or StorageWriter to use"
    ):
        dcp.load({"a": 1}, checkpoint_id="s3://bucket/checkpoint")


def test_the_error_tells_of_each_rank(tmp_path):
    with pytest.raises(dcp.CheckpointException) as caught:
        dcp.load({"a": 1}, checkpoint_id=tmp_path)
    text = str(caught.value)
    assert text.startswith(
        "CheckpointException ranks:dict_keys([0])\nTraceback (most recent call last): (RANK 0)"
    )
    assert "read_metadata" in text
    assert text.endswith(
        f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/.metadata'\n"
    )


def filled(tmp_path):
    state = {"a": adjit.arange(100.0), "b": [1, 2, 3], "c": adjit.ones(7, dtype=adjit.int64)}
    dcp.save(state, checkpoint_id=tmp_path)
    return state, tmp_path / ".metadata", next(tmp_path.glob("*.distcp"))


def test_lost_files_are_told(tmp_path):
    state, metadata, data = filled(tmp_path)
    hidden = data.rename(tmp_path / "hidden")
    assert isinstance(
        failure(lambda: dcp.load(emptied(state), checkpoint_id=tmp_path)), FileNotFoundError
    )
    hidden.rename(data)
    metadata.unlink()
    assert isinstance(
        failure(lambda: dcp.load(emptied(state), checkpoint_id=tmp_path)), FileNotFoundError
    )


def test_truncated_and_changed_files_are_told(tmp_path):
    """Cut at every seventh place, and with every seventh byte changed: an error, or the same values."""
    state, metadata, data = filled(tmp_path)
    for file in (metadata, data):
        whole = file.read_bytes()
        harmless = 0
        for at in range(0, len(whole), 7):
            file.write_bytes(whole[:at])
            error = failure(lambda: dcp.load(emptied(state), checkpoint_id=tmp_path))
            assert isinstance(error, RuntimeError)
            assert file.name in str(error)
            assert file is metadata or "the file is truncated: " in str(error)
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            target = emptied(state)
            try:
                dcp.load(target, checkpoint_id=tmp_path)
            except dcp.CheckpointException as told:
                error = told.failures[0][0]
                assert isinstance(error, (RuntimeError, NotImplementedError)), error
            else:
                same(target, state)
                harmless += 1
        assert harmless < 20  # the spaces behind a header
        file.write_bytes(whole)


def test_checkpoints_of_others_are_refused(tmp_path):
    torch = pytest.importorskip("torch")
    _, theirs, _ = modules("torch")
    theirs.save({"a": torch.ones(2)}, checkpoint_id=tmp_path)
    error = failure(lambda: dcp.load({"a": adjit.ones(2)}, checkpoint_id=tmp_path))
    assert re.search(r"is of a checkpoint that PyTorch wrote, .*dcp_to_torch_save", str(error))
    adjit.save({"version": 2}, tmp_path / ".metadata")
    error = failure(lambda: dcp.load({"a": adjit.ones(2)}, checkpoint_id=tmp_path))
    assert str(error).endswith("this version of adjit wrote: its version is 2")


def test_what_is_not_here_says_so():
    for name in ("HuggingFaceStorageReader", "load_sharded_optimizer_state_dict"):
        with pytest.raises(NotImplementedError, match=rf"checkpoint\.{name} is there by name only"):
            getattr(dcp, name)()
    with pytest.raises(AttributeError, match="has no attribute 'sharded'"):
        dcp.sharded  # noqa: B018
    assert adjit.distributed.checkpoint is dcp


# ----- two processes -----


def saved_by_two(T, dist, rank, size, path):
    dcp = importlib.import_module("adjit.distributed.checkpoint")
    state = {
        "a": T.ones(4),
        "b": T.full((4,), 2.0),
        f"of {rank}": T.full((2,), float(rank)),
        "n": 5,
    }
    metadata = dcp.save(state, checkpoint_id=path)
    dist.barrier()
    target = {
        key: T.zeros(value.shape) if T.is_tensor(value) else 0 for key, value in state.items()
    }
    target["of 0"] = T.zeros(2)
    dcp.load(target, checkpoint_id=path)
    places = {index.fqn: place.file for index, place in metadata.storage_data.items()}
    return {k: v.tolist() if T.is_tensor(v) else v for k, v in target.items()}, places


@needs_mpi
def test_two_processes_write_each_value_once(tmp_path):
    (first, places), (second, others) = results(saved_by_two, 2, str(tmp_path))
    common = {"a": [1.0] * 4, "b": [2.0] * 4, "n": 5, "of 0": [0.0, 0.0]}
    assert first == common
    assert second == common | {"of 1": [1.0, 1.0]}
    assert places == others
    assert places["a"].startswith("__0_")  # spread over the ranks
    assert places["b"].startswith("__1_")
    assert {path.name for path in tmp_path.iterdir()} == {".metadata", *places.values()}
    target = {"of 1": adjit.zeros(2), "b": adjit.zeros(4)}
    dcp.load(target, checkpoint_id=tmp_path)  # by one process
    same(target, {"of 1": adjit.ones(2), "b": adjit.full((4,), 2.0)})


def failed_by_one(T, dist, rank, size, path):
    dcp = importlib.import_module("adjit.distributed.checkpoint")
    heard = []
    for state in (
        {"a": T.ones(2)},
        {"a": T.ones(2 + rank)},
        {"b": T.ones(2)} if rank else {"a": T.ones(2)},
    ):
        try:
            dcp.load(state, checkpoint_id=path)
        except BaseException as error:
            heard.append({r: str(told) for r, (told, _) in error.failures.items()})
    try:
        dcp.save({f"x{rank}": iter(()) if rank else 1}, checkpoint_id=path)
    except BaseException as error:
        heard.append({r: type(told).__name__ for r, (told, _) in error.failures.items()})
    return heard


@needs_mpi
def test_an_error_of_one_rank_is_told_on_all(tmp_path):
    dcp.save({"a": adjit.ones(2)}, checkpoint_id=tmp_path)
    first, second = results(failed_by_one, 2, str(tmp_path))
    assert first == second
    assert first == [
        {1: "Size mismatch between saved adjit.Size([2]) and current: adjit.Size([3]) for a"},
        {1: "Missing key in checkpoint state_dict: b."},
        {1: "TypeError"},
    ]


def trained_by_two(T, dist, rank, size, path):
    """States under DistributedDataParallel, from rank 0 alone, and saved beside collectives of the program."""
    dcp = importlib.import_module("adjit.distributed.checkpoint")
    sd = dcp.state_dict
    T.manual_seed(rank)
    model = T.nn.Sequential(T.nn.Linear(2, 3), T.nn.BatchNorm1d(3), T.nn.Linear(3, 1))
    wrapped = T.nn.parallel.DistributedDataParallel(model)
    optimizer = T.optim.AdamW(wrapped.parameters(), lr=0.1)
    found = {}
    for _ in range(2):
        wrapped(T.randn(4, 2)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    states = sd.get_state_dict(wrapped, optimizer)
    found["names"] = list(states[0]) == list(model.state_dict())
    found["names of the optimizer"] = list(states[1]["state"])
    weights = [p.tolist() for p in model.parameters()]
    saved = dcp.async_save({"model": states[0], "optimizer": states[1]}, checkpoint_id=path)
    for k in range(50):
        total = T.tensor(float(k + rank))
        dist.all_reduce(total)
        assert total.item() == 2 * k + 1
        gathered = [None] * size
        dist.all_gather_object(gathered, (k, rank))
        assert gathered == [(k, 0), (k, 1)]
    saved.result()
    whole = sd.StateDictOptions(full_state_dict=True, cpu_offload=True)
    of_model, of_optimizer = sd.get_state_dict(wrapped, optimizer, options=whole)
    found["only on rank 0"] = bool(of_model), bool(of_optimizer)

    T.manual_seed(10 + rank)
    other = T.nn.Sequential(T.nn.Linear(2, 3), T.nn.BatchNorm1d(3), T.nn.Linear(3, 1))
    fresh = T.optim.AdamW(other.parameters(), lr=0.5)
    sent = sd.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    sd.set_state_dict(
        other, fresh, model_state_dict=of_model, optim_state_dict=of_optimizer, options=sent
    ) if rank == 0 else (
        sd.set_optimizer_state_dict(other, fresh, {}, options=sent),
        sd.set_model_state_dict(other, {}, options=sent),
    )
    found["sent"] = [p.tolist() for p in other.parameters()] == weights
    of_fresh = fresh.state_dict()
    found["sent step"] = of_fresh["state"][0]["step"].item(), of_fresh["param_groups"][0]["lr"]
    average = fresh.state[other[0].weight]["exp_avg"].tolist()
    found["sent average"] = average == optimizer.state[model[0].weight]["exp_avg"].tolist()

    with T.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    of_model, of_optimizer = sd.get_state_dict(wrapped, optimizer)
    dcp.load({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=path)
    sd.set_state_dict(wrapped, optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer)
    found["loaded"] = [p.tolist() for p in model.parameters()] == weights
    try:
        sd.set_model_state_dict(wrapped, {"0.weight": T.ones(3, 2)})
    except RuntimeError as error:
        found["missing"] = str(error)
    return found


@needs_mpi
def test_states_of_two_processes(tmp_path):
    first, second = results(trained_by_two, 2, str(tmp_path))
    expected = {
        "names": True,
        "names of the optimizer": [
            "0.weight",
            "0.bias",
            "1.weight",
            "1.bias",
            "2.weight",
            "2.bias",
        ],
        "only on rank 0": (True, True),
        "sent": True,
        "sent step": (2.0, 0.1),
        "sent average": True,
        "loaded": True,
        "missing": "Missing key: 0.bias.",
    }
    assert first == expected
    assert second == expected | {"only on rank 0": (False, False)}


@needs_mpi
def test_one_process_with_a_group(tmp_path):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dcp.save({"a": adjit.ones(2)}, checkpoint_id=tmp_path / "one")
            dcp.async_save({"a": adjit.ones(2)}, checkpoint_id=tmp_path / "two").result()
            target = {"a": adjit.zeros(2)}
            dcp.load(target, checkpoint_id=tmp_path / "two", process_group=dist.new_group([0]))
        assert target["a"].tolist() == [1.0, 1.0]
    finally:
        with contextlib.suppress(ValueError):
            dist.destroy_process_group()
