"""What is no tensor in the place of one: the error is PyTorch's TypeError, which names function and argument.

Every public function is called, as `fuzz/calls.py` says how, with each of its tensors exchanged.
"""

from __future__ import annotations

import ast
import copy
import inspect
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fuzz import calls, programs, worker
from fuzz.programs import HOLE, Palette

import adjit
from adjit.graph import wrong_types
from adjit.graph.export import methods

torch = pytest.importorskip("torch")
from against_torch import plain  # noqa: E402

pytestmark = [pytest.mark.cpu, pytest.mark.filterwarnings("ignore")]


class Thing:
    """An object that has nothing."""


GIVEN = {
    "None": None, "str": "a", "ndarray": np.ones(2, np.float32), "list": [1.0, 2.0], "float": 1.5, "int": 2,
    "object": Thing(),
}  # fmt: skip
# Where None is a default, here but not in PyTorch.
DEFAULTS = {"max", "min", "trapz", "cumulative_trapezoid"}
# An error that names one argument. Others list all signatures.
SHORT = re.compile(r"\w+\(\): argument '\w+' .*must be (Tensor|tuple of Tensors), not ")
# What PyTorch calls the function behind one, whose errors come instead.
BEHIND = {
    **wrong_types.BEHIND, "unique": "_unique2", "adaptive_max_pool1d_with_indices": "adaptive_max_pool1d",
}  # fmt: skip
# Others, in which also arguments have other names.
OTHERS_BEHIND = """
    embedding gumbel_softmax linear_cross_entropy matrix_norm multilabel_soft_margin_loss one_hot rrelu
"""


def functions() -> Iterator[tuple[str, str]]:
    """A call of each function and method, and what kind it is; operators have errors of Python's."""
    for kind, texts in calls.table().items():
        if kind not in ("looks", "derived", "differentiating"):
            for call in texts:
                if re.search(r"[\w}]\.\w+\(|^[TF]\.", call):
                    yield call, kind


def legal(call: str, kind: str) -> tuple[list[str], ast.Call]:
    """Lines that make arguments which fit, and the call with these."""
    palette = Palette.whole_registry()._replace(calls={kind: [call]})
    for seed in range(60):
        writer = programs.Writer(random.Random(seed).randint, palette)
        writer.write_inputs()
        text = HOLE.sub(lambda hole, w=writer: w.fill(hole[1]), call)
        names = worker.world("adjit")
        if all(worker.run_line(line, names) is None for line in [*writer.lines, text]):
            break
    return writer.lines, next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call))


class Place:
    """Where a call takes a tensor: an argument, one by name, or one in a list."""

    def __init__(self, holder: str, *at: Any) -> None:
        self.holder, self.at = holder, at

    def exchanged(self, call: ast.Call) -> ast.Expression:
        """The call with the name `given` there."""
        call = copy.deepcopy(call)
        name = ast.Name("given", ast.Load())
        if self.holder == "keywords":
            call.keywords[self.at[0]].value = name
        elif len(self.at) == 1:
            call.args[self.at[0]] = name
        else:
            call.args[self.at[0]].elts[self.at[1]] = name  # type: ignore[attr-defined]
        return ast.fix_missing_locations(ast.Expression(call))


def places(lines: list[str], call: ast.Call) -> Iterator[Place]:
    """All the places of tensors."""
    names = ran(lines, "adjit")

    def is_tensor(node: ast.expr) -> bool:
        value = eval(compile(ast.Expression(node), "<call>", "eval"), names)
        return isinstance(value, adjit.Tensor)

    for k, node in enumerate(call.args):
        parts = node.elts if isinstance(node, (ast.List, ast.Tuple)) else []
        if isinstance(node, ast.Starred) or any(isinstance(part, ast.Starred) for part in parts):
            continue
        tensors = [j for j, part in enumerate(parts) if is_tensor(part)]
        if tensors or is_tensor(node):
            yield Place("args", k)
        for j in tensors:
            yield Place("args", k, j)
    for k, by_name in enumerate(call.keywords):
        if is_tensor(by_name.value):
            yield Place("keywords", k)


def ran(lines: list[str], library: str) -> dict[str, Any]:
    names = worker.world(library)
    for line in lines:
        assert worker.run_line(line, names) is None
    return names


def outcome(library: str, lines: list[str], call: ast.Expression, given: Any) -> Any:
    """The error of a call."""
    names = {**ran(lines, library), "given": given}
    try:
        made = eval(compile(call, "<call>", "eval"), names)
        for t in made if isinstance(made, tuple) else (made,):
            if isinstance(t, adjit.Tensor):
                t.numpy(force=True)
    except Exception as error:
        return error
    return None


def text_of(error: Exception, name: str, is_exact: bool) -> str:
    """What an error says; where functions and methods are one, without names and positions."""
    said = plain(error).splitlines()[0].replace("special_", "")
    said = said.replace(f"{BEHIND.get(name, name)}()", f"{name}()")
    return said if is_exact else re.sub(r"^\w+\(\)| \(position \d+\)", "", said)


@pytest.mark.parametrize(("call", "kind"), list(functions()))
def test_errors_name_what_is_no_tensor(call: str, kind: str) -> None:
    lines, node = legal(call, kind)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    for place in places(lines, node):
        changed = place.exchanged(node)
        for what, given in GIVEN.items():
            theirs = outcome("torch", lines, changed, given)
            if type(theirs) is not TypeError:
                continue
            ours = outcome("adjit", lines, changed, given)
            if what == "None" and name in DEFAULTS:
                continue
            assert type(ours) is TypeError, (ast.unparse(changed), what, ours, theirs)
            if SHORT.match(str(theirs)) and name not in OTHERS_BEHIND.split():
                is_exact = call.startswith("T.") and is_named_so(name) and place.holder == "args"
                pair = [text_of(error, name, is_exact) for error in (ours, theirs)]
                assert pair[0] == pair[1], ast.unparse(changed)


def flags_of(node: ast.Call) -> list[tuple[str, type]]:
    """The parameters of what is called that are truth values or whole numbers."""
    function = node.func
    assert isinstance(function, ast.Attribute)
    names = worker.world("adjit")
    if ast.unparse(function).split(".")[0] in names:
        found = eval(ast.unparse(function), names)
    else:
        found = methods.get(function.attr, adjit.ones)
    return [(flag.name, flag.kind) for flag in wrong_types.flags(getattr(found, "choose", found))]


@pytest.mark.parametrize(("call", "kind"), list(functions()))
def test_numbers_are_no_truth_values_and_halves_no_whole_numbers(call: str, kind: str) -> None:
    lines, node = legal(call, kind)
    if "(" in ast.unparse(node.func):
        pytest.skip("a call of what a call gives")
    for flag, kind_of_flag in flags_of(node):
        changed = copy.deepcopy(node)
        changed.keywords = [word for word in node.keywords if word.arg != flag]
        changed.keywords.append(ast.keyword(flag, ast.Name("given", ast.Load())))
        expression = ast.fix_missing_locations(ast.Expression(changed))
        for given in (
            (1, 0, np.True_, "a") if kind_of_flag is bool else (1.0, 2.5, True, "a", np.int64(1))
        ):
            theirs = outcome("torch", lines, expression, given)
            ours = outcome("adjit", lines, expression, given)
            if "argument" in str(theirs) and flag in str(theirs):
                assert type(ours) is TypeError, (ast.unparse(changed), given, theirs)
                is_named = f"'{flag}'" in str(ours) or "combination" in str(theirs)
                assert is_named or kind_of_flag is int
            elif theirs is None:
                assert ours is None, (ast.unparse(changed), given)


def test_truth_values_of_calls_that_are_known() -> None:
    x = adjit.tensor([3.0, 1.0, 2.0])
    for _ in range(12):  # machine code has them then
        x.sort(0, True).values.sum().item()
        x.sum(0, keepdim=True).item()
        adjit.topk(x, 1, 0, True).values.item()
    for call in (
        lambda: x.sort(0, 1),
        lambda: x.sum(0, keepdim=1),
        lambda: x.sum(0, 1),
        lambda: adjit.topk(x, 1, 0, 1),
        lambda: adjit.zeros(2, requires_grad=1),
        lambda: adjit.tensor(1.0, requires_grad=1),
        lambda: x.copy_(x, 1),
        lambda: adjit.zeros(3, 3).fill_diagonal_(1.0, 1),
    ):
        with pytest.raises(TypeError, match="must be bool, not int"):
            call()


def is_named_so(name: str) -> bool:
    """Whether a function is no method too, nor one of another name."""
    function = getattr(adjit, name, None) or getattr(adjit.special, name, None)
    return name not in methods and getattr(function, "name", name) == name


LAYERS = {
    "Linear": lambda nn: nn.Linear(2, 2),
    "Conv1d": lambda nn: nn.Conv1d(1, 1, 1),
    "Conv2d": lambda nn: nn.Conv2d(1, 1, 1),
    "ConvTranspose2d": lambda nn: nn.ConvTranspose2d(1, 1, 1),
    "Embedding": lambda nn: nn.Embedding(2, 2),
    "LayerNorm": lambda nn: nn.LayerNorm(2),
    "RMSNorm": lambda nn: nn.RMSNorm(2),
    "ReLU": lambda nn: nn.ReLU(),
    "ReLU in place": lambda nn: nn.ReLU(inplace=True),
    "GELU": lambda nn: nn.GELU(),
    "Sigmoid": lambda nn: nn.Sigmoid(),
    "Tanh": lambda nn: nn.Tanh(),
    "Softplus": lambda nn: nn.Softplus(),
    "Dropout": lambda nn: nn.Dropout(),
    "MaxPool2d": lambda nn: nn.MaxPool2d(2),
    "AvgPool1d": lambda nn: nn.AvgPool1d(2),
    "PixelShuffle": lambda nn: nn.PixelShuffle(2),
    "Sequential": lambda nn: nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("what", GIVEN)
def test_layers_name_what_is_no_tensor(layer: str, what: str) -> None:
    said = []
    for library in (torch, adjit):
        with pytest.raises(TypeError) as raised:
            LAYERS[layer](library.nn)(GIVEN[what])
        said.append(re.sub(r" \(position \d+\)|_(?=\()", "", str(raised.value)).splitlines()[0])
    assert not SHORT.match(said[0]) or layer == "Embedding" or said[0] == said[1]


@pytest.mark.parametrize("T", [torch, adjit], ids=["torch", "adjit"])
def test_arguments_by_name_and_lists(T: Any) -> None:
    x = T.ones(2, 2)
    for call, said in (
        (lambda: T.nn.functional.linear(x, weight=None), "argument 'weight'"),
        (lambda: T.diff(x, prepend="a"), "argument 'prepend' must be Tensor, not str"),
        (
            lambda: T.cat(None),
            "argument 'tensors' (position 1) must be tuple of Tensors, not NoneType",
        ),
        (lambda: T.cat([x, None]), "expected Tensor as element 1 in argument 0, but got NoneType"),
        (
            lambda: T.broadcast_tensors(x, 1),
            "expected Tensor as element 1 in argument 0, but got int",
        ),
    ):
        with pytest.raises(TypeError, match=re.escape(said)):
            call()


def test_errors_of_tensors_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="invalid for input of size 6"):
        adjit.ones(6).view_as(adjit.ones(4))
    with pytest.raises(RuntimeError) as raised:
        adjit.where(adjit.ones(2) > 0, adjit.ones(2), adjit.ones(3))
    assert raised.value.__context__ is None


def test_what_is_like_a_tensor_is_no_wrong_type() -> None:
    """It may be asked first: an error has other reasons then."""

    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(Exception) as raised:  # noqa: PT011
        wrong_types.explaining(lambda input: input.shape, "f")(Like())
    assert type(raised.value) is AttributeError


def test_explaining_functions_have_the_same_parameters() -> None:
    def given(a: Tensor, b=2, *rest, c, d=4, **more):  # noqa: F821
        if a is None:
            raise ValueError
        return a, b, rest, c, d, more

    made = wrong_types.explaining(given, "given")
    assert made is not given
    assert made(1, c=3) == given(1, c=3)
    assert made(1, 5, 6, 7, c=3, d=8, e=9) == given(1, 5, 6, 7, c=3, d=8, e=9)
    assert made(a=1, c=3) == given(a=1, c=3)
    assert inspect.signature(made) == inspect.signature(given)
    with pytest.raises(
        TypeError, match=re.escape("given(): argument 'a' (position 1) must be Tensor")
    ):
        made(None, c=3)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'c'"):
        made(1)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss", "grid_sample"])
def test_errors_of_functions_behind_others(name: str) -> None:
    said = []
    for library in (torch, adjit):
        rest = {"cross_entropy": (0,), "nll_loss": (0,), "grid_sample": (library.ones(1, 1, 1, 2),)}
        with pytest.raises(TypeError) as raised:
            getattr(library.nn.functional, name)(None, *rest.get(name, ()))
        said.append(str(raised.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("dim", [1.0, "a", True])
def test_what_is_no_dimension(dim: Any) -> None:
    for call in (
        lambda T, x: T.amax(x, dim), lambda T, x: T.argsort(x, dim=dim), lambda T, x: T.topk(x, 1, dim),
        lambda T, x: T.cumsum(x, dim), lambda T, x: T.logsumexp(x, dim), lambda T, x: T.stack([x], dim),
        lambda T, x: T.cat([x], dim), lambda T, x: T.gather(x, dim, x.long()), lambda T, x: T.select(x, dim, 0),
        lambda T, x: T.nn.functional.glu(x, dim), lambda T, x: T.cosine_similarity(x, x, dim),
        lambda T, x: T.transpose(x, 0, dim), lambda T, x: T.nansum(x, dim), lambda T, x: T.unsqueeze(x, dim),
        lambda T, x: T.cosine_similarity(x, x, (0,)),
    ):  # fmt: skip
        said = []
        for library in (torch, adjit):
            try:
                call(library, library.ones(2, 2))
            except TypeError as error:
                said.append(str(error))
            except (RuntimeError, IndexError):
                continue
            else:
                said.append("")
        if SHORT_OF_INTS.match(said[0]):
            assert said[0] == said[-1]


SHORT_OF_INTS = re.compile(r"\w+\(\): argument '\w+' .*must be (int|tuple of ints), not ")
