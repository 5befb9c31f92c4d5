"""Docstrings of everything public: each says what the thing does, and shows it by an example that runs."""

from __future__ import annotations

import doctest
import functools
import importlib
import inspect
import io
import re
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import adjit
from adjit.absent import absent

SOURCE = Path(adjit.__file__).parent
ROOMS = (
    "", "_higher_order_ops", "accelerator", "amp", "autograd", "autograd.forward_ad", "autograd.functional",
    "autograd.graph", "backends", "backends.cuda", "backends.cudnn", "backends.mkl", "backends.mkldnn",
    "backends.mps", "backends.openmp", "compiler", "config", "cpu", "cpu.amp", "cuda",
    "cuda.amp", "cuda.inspection", "cuda.nvtx",
    "cuda.simulator", "distributed", "distributed.algorithms", "distributed.checkpoint",
    "distributed.checkpoint.default_planner", "distributed.checkpoint.format_utils",
    "distributed.checkpoint.metadata", "distributed.checkpoint.planner", "distributed.checkpoint.state_dict",
    "distributed.checkpoint.state_dict_saver", "distributed.checkpoint.stateful",
    "distributed.checkpoint.storage", "distributed.nn", "distributed.optim",
    "distributions", "distributions.constraint_registry", "distributions.constraints",
    "distributions.relaxed_bernoulli", "distributions.relaxed_categorical", "distributions.utils", "func",
    "fx", "hub", "jit", "library", "linalg", "models", "mps", "multiprocessing", "nn",
    "nn.attention.flex_attention", "nn.functional", "nn.grad", "nn.init", "nn.parallel", "nn.parameter",
    "nn.utils", "nn.utils.parametrizations", "nn.utils.parametrize", "nn.utils.prune", "nn.utils.rnn",
    "nn.utils.stateless", "onnx", "onnx.errors", "optim", "optim.lr_scheduler", "optim.optimizer",
    "optim.swa_utils",
    "overrides", "profiler", "random", "scipy", "serialization", "special", "testing", "user_kernels",
    "utils", "utils.benchmark", "utils.checkpoint", "utils.data", "utils.dlpack", "utils.flop_counter",
    "utils.tensorboard", "xpu",
)  # fmt: skip
# Members that a class has for the library's own files, not for users.
INTERNAL = {
    "Generator": {"advance", "reserve"},
    "distributed.ProcessGroup": {"channel", "own_channel"},
    "user_kernels.UserKernel": {"code_for"},
    "utils.flop_counter.FlopCounterMode": {"add", "knows", "ran"},
}
VAGUE = re.compile(r"(What|Whether|Where|How|The same as)\b")
ONLY = {
    "cuda.simulator": ("SimulationError", "grad", "run", "value"),
    "optim.optimizer": ("register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"),
}
# Outside of `cuda` and `accelerator` these need a GPU, and the others there need none.
GPU_ELSEWHERE = ("Tensor.cuda", "Tensor.pin_memory", "Tensor.record_stream", "nn.Module.cuda",
                 "nn.utils.rnn.PackedSequence.cuda", "nn.utils.rnn.PackedSequence.pin_memory")  # fmt: skip
NO_GPU = ("cuda.inspection.", "cuda.kernels", "cuda.nvtx.", "cuda.simulator.")
SECTIONS = ("Args", "Returns", "Yields", "Raises", "Example")


def is_ours(thing: Any) -> bool:
    thing = getattr(thing, "func", thing)  # of a partial
    modules = (getattr(thing, "__module__", None), type(thing).__module__)
    return any(m == "adjit" or str(m).startswith("adjit.") for m in modules)


def function_of(member: Any) -> Any:
    """A function or property behind a member of a class, None for anything else."""
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    if isinstance(member, (property, functools.cached_property)) or inspect.isfunction(member):
        return member
    return member if callable(member) and is_ours(member) and not isinstance(member, type) else None


def members(name: str, cls: type) -> Iterator[tuple[str, Any]]:
    """What a class adds to its bases, or says again; what stands silently for a base's is known from there."""
    inherited = {m for base in cls.__mro__[1:] for m in vars(base)}
    for member, value in vars(cls).items():
        function = function_of(value)
        if function is None or member.startswith("_") or member in INTERNAL.get(name, ()):
            continue
        if function.__doc__ or member not in inherited:
            yield f"{name}.{member}", function


@functools.cache
def public() -> dict[str, dict[str, Any]]:
    """Everything public, each thing once: for every room its names and what they stand for."""
    found: dict[str, dict[str, Any]] = {}
    known: set[int] = set()
    for room in ROOMS:
        module = importlib.import_module(f"adjit.{room}".rstrip("."))
        names = ONLY.get(room) or getattr(module, "__all__", sorted(vars(module)))
        things = {f"{room}.{n}".lstrip("."): getattr(module, n) for n in names if n[0] != "_"}
        found[room] = {}
        for name, thing in things.items():
            is_public = (
                is_ours(thing) and callable(thing) and not isinstance(thing, types.ModuleType)
            )
            if not is_public or thing is absent or id(thing) in known:
                continue
            known.add(id(thing))
            found[room][name] = thing
            if isinstance(thing, type):
                own = dict(members(name, thing))
                found[room] |= {n: f for n, f in own.items() if id(f) not in known}
                known.update(map(id, own.values()))
    return found


@functools.cache
def documented() -> dict[str, str]:
    return {n: t.__doc__ or "" for names in public().values() for n, t in names.items()}


def is_shown_by_base(name: str) -> bool:
    """Whether a member says again what a base class shows by an example."""
    of, _, member = name.rpartition(".")
    cls = next((names[of] for names in public().values() if of in names), None)
    bases = cls.__mro__[1:] if isinstance(cls, type) else ()
    return any(">>> " in (getattr(vars(base).get(member), "__doc__", None) or "") for base in bases)


def sections(text: str) -> list[str]:
    return re.findall(rf"^({'|'.join(SECTIONS)}):$", inspect.cleandoc(text), re.M)


def failures(name: str, text: str, names: dict[str, Any]) -> str:
    """What is wrong with the examples in a docstring, run with `names` at hand."""
    test = doctest.DocTestParser().get_doctest(text, dict(names), name, None, None)
    told = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old names, which warn, have examples too
        doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(test, out=told.write)
    return told.getvalue()


def at_hand() -> dict[str, Any]:
    return {"adjit": adjit, "nn": adjit.nn, "F": adjit.nn.functional}


@pytest.mark.parametrize("room", ROOMS)
def test_examples_show_what_they_say(room, tmp_path, monkeypatch):
    if room.startswith("onnx"):
        pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    assert_shown([name for name in public()[room] if not is_of_gpu(name)])


@pytest.mark.parametrize("room", ["", "accelerator", "cuda", "nn"])
def test_examples_for_gpus_show_what_they_say(room, tmp_path, monkeypatch):
    import stub_driver

    monkeypatch.chdir(tmp_path)
    names = [name for name in public()[room] if is_of_gpu(name)]
    assert names
    with stub_driver.installed():
        assert_shown(names)


def assert_shown(names: list[str]) -> None:
    """Run the examples of what is public, each text once."""
    texts = {documented()[name]: name for name in names}
    if not adjit.distributed.is_mpi_available():
        texts = {text: name for text, name in texts.items() if "init_process_group(" not in text}
    wrong = [failures(name, text, at_hand()) for text, name in texts.items()]
    assert not "".join(wrong)


def is_of_gpu(name: str) -> bool:
    is_there = name.startswith(("accelerator.", "cuda.")) and not name.startswith(NO_GPU)
    return is_there or name in GPU_ELSEWHERE


def test_examples_of_what_is_not_public(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = set(documented().values())
    wrong = []
    for file in sorted(SOURCE.rglob("*.py")):
        if ">>> " in file.read_text():
            module = importlib.import_module(
                ".".join(("adjit", *file.relative_to(SOURCE).with_suffix("").parts))
            )
            for test in doctest.DocTestFinder().find(module):
                if test.examples and test.docstring not in shown:
                    wrong.append(failures(test.name, test.docstring, test.globs | at_hand()))
    assert not "".join(wrong)


def test_everything_has_an_example():
    lacking = {name for name, text in documented().items() if ">>> " not in text}
    lacking = {name for name in lacking if not is_shown_by_base(name)}
    assert not lacking, f"{len(lacking)} of {len(documented())}: {sorted(lacking)}"


def test_summaries_begin_with_what_a_thing_does():
    vague = [n for n, t in documented().items() if VAGUE.match(t.strip()) or not t.strip()]
    assert vague == [], len(vague)


@pytest.mark.parametrize("sign", ["``", "Example::", "Examples:", ":func:", ":class:", ":meth:"])
def test_docstrings_speak_one_dialect(sign):
    assert [name for name, text in documented().items() if sign in text] == []


def test_sections_come_in_one_order():
    texts = {name: sections(text) for name, text in documented().items()}
    assert [
        n for n, found in texts.items() if found != sorted(set(found), key=SECTIONS.index)
    ] == []
