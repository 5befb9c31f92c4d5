"""Names of TorchScript: decorations leave functions and modules as they are, files are refused."""

from __future__ import annotations

from typing import Any

import pytest

import adjit
from adjit import jit, nn

torch = pytest.importorskip("torch")


def double(x: Any) -> Any:
    return x * 2 if x.sum() > 0 else -x


class Net(nn.Module):
    size: jit.Final[int]

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.size = jit.annotate(int, 3)

    def forward(self, x: Any) -> Any:
        return self.helper(self.linear(x))

    @jit.export
    @jit.unused
    def helper(self, x: Any) -> Any:
        return x * self.size if not jit.is_scripting() and not jit.is_tracing() else x

    @jit.ignore(drop=True)
    def more(self) -> int:
        return 1

    @jit.ignore
    def less(self) -> int:
        return 0


def test_what_is_scripted_does_what_it_did():
    x = adjit.tensor([1.0, -2.0])
    assert jit.script(double)(x).tolist() == [-1.0, 2.0]
    net = Net()
    assert jit.script(net) is net
    assert jit.script(net)(adjit.ones(3, 2)).shape == (3, 1)
    assert (net.more(), net.less()) == (1, 0)
    with pytest.raises(RuntimeError, match="expected a function, module or class, got int"):
        jit.script(3)


def test_a_trace_calls_on_the_example_and_follows_branches():
    calls = []

    def watched(*args: Any) -> Any:
        calls.append(args)
        return double(args[0])

    x = adjit.tensor([1.0, -2.0])
    traced = jit.trace(watched, x, check_trace=False, strict=False)
    assert len(calls) == 1
    assert traced(-x).tolist() == [-2.0, 4.0]
    jit.trace(watched, (x, x))
    assert len(calls[-1]) == 2
    jit.trace(double, example_kwarg_inputs={"x": x})
    net = Net()
    assert jit.trace_module(net, {"forward": adjit.ones(1, 2), "helper": (adjit.ones(1),)}) is net
    with pytest.raises(RuntimeError):
        jit.trace(net, adjit.ones(3, 5))


def test_files_are_refused_with_what_to_do_instead():
    for call in (
        lambda: jit.save(Net(), "model.pt"),
        lambda: jit.load("model.pt", map_location="cpu"),
    ):
        with pytest.raises(
            NotImplementedError, match=r"Save model\.state_dict\(\) with adjit\.save"
        ):
            call()


def test_modules_with_methods_of_their_own():
    class Old(jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(adjit.ones(2))

        @jit.script_method
        def forward(self, x: Any) -> Any:
            return x * self.weight

    assert isinstance(Old(), nn.Module)
    assert list(Old().state_dict()) == ["weight"]
    assert not isinstance(Net(), jit.ScriptModule)


def test_freezing_wants_evaluation():
    net = Net()
    with pytest.raises(RuntimeError, match="only implemented for modules in eval mode"):
        jit.freeze(net)
    assert jit.freeze(net.eval()) is net
    assert jit.optimize_for_inference(Net()).training is False


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, int),
        (1, str),
        ([1], list[int]),
        ([1, "a"], list[int]),
        ((1, "a"), tuple[int, str]),
        ((1,), tuple[int, str]),
        ({"a": 1}, dict[str, int]),
        ({"a": "b"}, dict[str, int]),
        (None, int | None),
        ("a", int | None),
        (1, (int, str)),
        ([[1]], list[list[int]]),
    ],
)
def test_types_of_elements(value, kind):
    assert jit.isinstance(value, kind) == torch.jit.isinstance(value, kind)


def test_names_are_those_of_pytorch():
    for name in jit.__all__:
        assert hasattr(torch.jit, name), name
    assert jit.annotations.List[int]
    with jit.fuser("fuser1"), jit.optimized_execution(False), jit.strict_fusion():
        assert jit.wait(jit.fork(double, adjit.ones(1))).item() == 2
    assert jit.set_fusion_strategy([("STATIC", 1)]) == []
    jit.enable_onednn_fusion(True)
    assert not jit.onednn_fusion_enabled()


def test_old_copies_of_attention_unwrap_weights():
    weight = adjit.ones(2)
    assert jit._unwrap_optional(weight) is weight
    for library in (adjit, torch):
        with pytest.raises(AssertionError, match="Unwrapping null optional"):
            library.jit._unwrap_optional(None)


@pytest.mark.parametrize("library", [adjit, torch], ids=["adjit", "torch"])
def test_a_dispatch_by_a_truth_value(library):
    internal = library._jit_internal
    assert internal.Optional[int] == int | None
    chosen = internal.boolean_dispatch(
        "flag",
        1,
        False,
        lambda x, flag=True: (x, True),
        lambda x, flag=False: (x, False),
        "here",
        "chosen",
    )
    assert [chosen(1), chosen(1, True), chosen(1, flag=True), chosen(1, False)] == [
        (1, False), (1, True), (1, True), (1, False),
    ]  # fmt: skip
    assert (chosen.__module__, chosen.__name__) == ("here", "chosen")
