"""Module: attributes, the tree, state, hooks, conversions, printing, copies.

`ADJIT_TESTS_AGAINST=torch pytest tests/test_nn_module.py` checks the expectations themselves.
"""

from __future__ import annotations

import copy
import functools
import pickle
from collections import OrderedDict
from typing import Any

import pytest
from library import T, array, plain, raises, same, warns

nn = T.nn


class Head(nn.Module):
    """A parameter, buffers of both kinds, and a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(T.tensor([2.0, 3.0]))
        self.register_buffer("count", T.tensor(1))
        self.register_buffer("scratch", T.tensor([0.0]), persistent=False)
        self.inner = nn.Linear(2, 2)

    def forward(self, x: Any, *, shift: float = 0.0) -> Any:
        return self.inner(x) * self.scale + shift


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = Head()
        self.tail = nn.Sequential(nn.Linear(2, 1), nn.ReLU())


class Double(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


def names(pairs: Any) -> list[str]:
    return [name for name, _ in pairs]


# ---------------------------------------------------------------- attributes and registration


def test_members_of_the_tree() -> None:
    model = Nested()
    parameters = [
        "head.scale", "head.inner.weight", "head.inner.bias", "tail.0.weight", "tail.0.bias",
    ]  # fmt: skip
    assert names(model.named_parameters()) == parameters
    assert names(model.named_parameters(prefix="net")) == ["net." + name for name in parameters]
    assert names(model.head.named_parameters(recurse=False)) == ["scale"]
    assert names(model.named_buffers()) == ["head.count", "head.scratch"]
    assert names(model.named_modules()) == ["", "head", "head.inner", "tail", "tail.0", "tail.1"]
    assert names(model.named_children()) == ["head", "tail"]
    assert list(model.state_dict()) == [
        "head.scale", "head.count", "head.inner.weight", "head.inner.bias",
        "tail.0.weight", "tail.0.bias",
    ]  # fmt: skip
    assert [id(p) for p in model.parameters()] == [id(p) for _, p in model.named_parameters()]
    assert [id(b) for b in model.buffers()] == [id(b) for _, b in model.named_buffers()]


def test_a_module_may_name_its_modules_itself() -> None:
    def walked(library: Any) -> list[str]:
        class Shy(library.nn.Sequential):
            def named_modules(
                self, memo: Any = None, prefix: str = "", remove_duplicate: bool = True
            ) -> Any:
                for name, module in super().named_modules(memo, prefix, remove_duplicate):
                    if not name.endswith(".hidden"):
                        yield name, module

        linear = library.nn.Linear
        shy = Shy(linear(1, 1), linear(1, 1))
        shy.add_module("hidden", linear(1, 1))
        model = library.nn.Sequential(linear(1, 1), shy, library.nn.Sequential(shy, shy[0]), shy[1])
        every = [model.named_modules(remove_duplicate=flag) for flag in (True, False)]
        found = [name for walk in every for name, _ in walk]
        seen = {shy[0]}
        found += [name for name, _ in model.named_modules(seen, "top")]
        return [*found, *[name for name, _ in model.named_parameters()]]

    assert walked(T) == walked(pytest.importorskip("torch"))


def test_shared_members_come_once() -> None:
    linear = nn.Linear(2, 2)
    model = nn.Sequential(linear, linear)
    assert names(model.named_parameters()) == ["0.weight", "0.bias"]
    assert names(model.named_parameters(remove_duplicate=False)) == [
        "0.weight", "0.bias", "1.weight", "1.bias",
    ]  # fmt: skip
    assert names(model.named_modules(remove_duplicate=False)) == ["", "0", "1"]
    assert len(list(model.modules())) == 2
    assert len(list(model.children())) == 1
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]

    tied = nn.ModuleDict({"encode": nn.Linear(2, 2), "decode": nn.Linear(2, 2)})
    tied["decode"].weight = tied["encode"].weight
    assert names(tied.named_parameters()) == ["encode.weight", "encode.bias", "decode.bias"]


def test_assignment_registers_and_moves_between_registries() -> None:
    module = nn.Module()
    module.thing = 1
    module.thing = nn.Parameter(T.ones(2))
    assert names(module.named_parameters()) == ["thing"]
    assert "thing" not in vars(module)
    module.thing = None
    assert list(module.parameters()) == []
    assert module.thing is None
    del module.thing
    module.thing = nn.ReLU()
    assert names(module.named_children()) == ["thing"]
    module.thing = nn.Parameter(T.ones(2))
    assert names(module.named_children()) == []
    module.plain_tensor = T.ones(2)
    assert names(module.named_buffers()) == []
    module.kept = nn.Buffer(T.ones(2))
    module.dropped = nn.Buffer(T.ones(2), persistent=False)
    assert isinstance(module.kept, nn.Buffer)
    assert not isinstance(module.plain_tensor, nn.Buffer)
    assert names(module.named_buffers()) == ["kept", "dropped"]
    assert list(module.state_dict()) == ["thing", "kept"]
    module.kept = T.zeros(3)
    same(module.state_dict()["kept"], [0.0, 0.0, 0.0])


def test_deletion() -> None:
    head = Head()
    del head.scale, head.count, head.scratch, head.inner
    assert list(head.parameters()) == list(head.buffers()) == list(head.children()) == []
    head.register_buffer("scratch", T.ones(1))
    assert list(head.state_dict()) == ["scratch"]
    with pytest.raises(AttributeError):
        del head.scale


def test_missing_attribute() -> None:
    with raises(AttributeError, "'Head' object has no attribute 'wieght'"):
        _ = Head().wieght


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (
            "scale",
            T.ones(2),
            "cannot assign 'torch.FloatTensor' as parameter 'scale' "
            "(torch.nn.Parameter or None expected)",
        ),
        (
            "scale",
            3,
            "cannot assign 'int' as parameter 'scale' (torch.nn.Parameter or None expected)",
        ),
        (
            "inner",
            T.ones(2),
            "cannot assign 'torch.FloatTensor' as child module 'inner' "
            "(torch.nn.Module or None expected)",
        ),
        (
            "count",
            "one",
            "cannot assign 'str' as buffer 'count' "
            "(torch.nn.Buffer, torch.Tensor or None expected)",
        ),
    ],
)
def test_refused_assignments(name: str, value: Any, text: str) -> None:
    with raises(TypeError, text):
        setattr(Head(), name, value)


def test_refused_registrations() -> None:
    head = Head()
    with raises(KeyError, "\"attribute 'inner' already exists\""):
        head.register_parameter("inner", None)
    with raises(KeyError, "\"attribute 'scale' already exists\""):
        head.register_buffer("scale", None)
    with raises(KeyError, "\"attribute 'scale' already exists\""):
        head.add_module("scale", nn.ReLU())
    with raises(KeyError, "'parameter name can\\'t contain \".\"'"):
        head.register_parameter("a.b", None)
    with raises(KeyError, "'buffer name can\\'t be empty string \"\"'"):
        head.register_buffer("", None)
    with raises(KeyError, "'module name can\\'t contain \".\", got: a.b'"):
        head.register_module("a.b", None)
    with raises(TypeError, "parameter name should be a string. Got int"):
        head.register_parameter(1, None)
    with raises(
        TypeError,
        "cannot assign 'torch.FloatTensor' object to parameter 'a' "
        "(torch.nn.Parameter or None required)",
    ):
        head.register_parameter("a", T.ones(1))
    with raises(
        TypeError, "cannot assign 'list' object to buffer 'a' (torch Tensor or None required)"
    ):
        head.register_buffer("a", [1.0])
    with raises(TypeError, "int is not a Module subclass"):
        head.add_module("a", 1)


def test_assignment_before_init() -> None:
    class Early(nn.Module):
        def __init__(self, value: Any) -> None:
            self.value = value

    with raises(AttributeError, "cannot assign parameters before Module.__init__() call"):
        Early(nn.Parameter(T.ones(1)))
    with raises(AttributeError, "cannot assign module before Module.__init__() call"):
        Early(nn.ReLU())
    with raises(AttributeError, "cannot assign parameter before Module.__init__() call"):
        Early(1).register_parameter("a", None)
    with raises(AttributeError, "cannot assign buffer before Module.__init__() call"):
        Early(1).register_buffer("a", None)


def test_init_takes_no_arguments() -> None:
    with raises(TypeError, "Module.__init__() takes 1 positional argument but 2 were given"):
        nn.Module(1)
    with raises(TypeError, "Module.__init__() got an unexpected keyword argument 'a'"):
        nn.Module(a=1)


def test_forward_is_required() -> None:
    with raises(NotImplementedError, 'Module [Module] is missing the required "forward" function'):
        nn.Module()(1)


def test_paths() -> None:
    model = Nested()
    assert model.get_submodule("") is model
    assert model.get_submodule("tail.0") is model.tail[0]
    assert model.get_parameter("head.inner.bias") is model.head.inner.bias
    assert model.get_buffer("head.count") is model.head.count
    replacement = nn.Linear(2, 5)
    model.set_submodule("head.inner", replacement)
    assert model.head.inner is replacement
    with raises(AttributeError, "Sequential has no attribute `7`"):
        model.get_submodule("tail.7")
    with raises(AttributeError, "`scale` is not an nn.Module"):
        model.get_submodule("head.scale")
    with raises(AttributeError, "`inner` is not an nn.Parameter"):
        model.get_parameter("head.inner")
    with raises(AttributeError, "`scale` is not a buffer"):
        model.get_buffer("head.scale")
    with raises(AttributeError, "Linear has no attribute `x`"):
        model.get_parameter("tail.0.x")


# ---------------------------------------------------------------- parameters


def test_parameter() -> None:
    values = T.tensor([1.0, 2.0])
    parameter = nn.Parameter(values)
    assert isinstance(parameter, T.Tensor)
    assert isinstance(parameter, nn.Parameter)
    assert not isinstance(values, nn.Parameter)
    assert parameter.requires_grad
    assert parameter.is_leaf
    assert plain(repr(parameter)) == ("Parameter containing:\ntensor([1., 2.], requires_grad=True)")
    assert repr(nn.Parameter(values, requires_grad=False)) == (
        "Parameter containing:\ntensor([1., 2.])"
    )
    assert nn.Parameter().shape == (0,)
    values[0] = 5.0  # the storage is shared
    same(parameter, [5.0, 2.0])
    doubled = parameter * 2
    assert not isinstance(doubled, nn.Parameter)
    doubled.sum().backward()
    same(parameter.grad, [2.0, 2.0])


def test_parameter_under_no_grad_requires_gradients() -> None:
    with T.no_grad():
        assert nn.Parameter(T.ones(1)).requires_grad


def test_parameter_of_a_computed_tensor_is_a_leaf() -> None:
    parameter = nn.Parameter(T.ones(2, requires_grad=True) * 2)
    assert parameter.is_leaf
    assert parameter.grad_fn is None


def test_parameter_needs_a_floating_dtype() -> None:
    with raises(
        RuntimeError, "Only Tensors of floating point and complex dtype can require gradients"
    ):
        nn.Parameter(T.tensor([1, 2]))
    assert nn.Parameter(T.tensor([1, 2]), requires_grad=False).dtype == T.int64


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_parameter_copies(copied: Any) -> None:
    parameter = nn.Parameter(T.tensor([1.0, 2.0]), requires_grad=False)
    fallback = copied(parameter)
    assert isinstance(fallback, nn.Parameter)
    assert fallback.requires_grad is False
    assert fallback is not parameter
    parameter[0] = 9.0
    same(fallback, [1.0, 2.0])
    assert copied(nn.Parameter(T.ones(1))).requires_grad


# ---------------------------------------------------------------- state


def test_state_dict_shares_memory_and_is_detached() -> None:
    linear = nn.Linear(2, 1)
    state = linear.state_dict()
    assert isinstance(state, OrderedDict)
    assert not state["weight"].requires_grad
    assert not isinstance(state["weight"], nn.Parameter)
    assert linear.state_dict(keep_vars=True)["weight"] is linear.weight
    state["bias"].fill_(7.0)
    same(linear.bias, [7.0])
    assert dict(state._metadata) == {"": {"version": 1}}
    destination: dict[str, Any] = {}
    assert linear.state_dict(destination=destination, prefix="a.") is destination
    assert list(destination) == ["a.weight", "a.bias"]


def test_loading_copies() -> None:
    source, target = Nested(), Nested()
    weight = target.head.inner.weight
    result = target.load_state_dict(source.state_dict())
    assert repr(result) == str(result) == "<All keys matched successfully>"
    assert result.missing_keys == result.unexpected_keys == []
    assert target.head.inner.weight is weight
    for name, value in source.state_dict().items():
        same(target.state_dict()[name], value)
    with T.no_grad():
        source.head.inner.weight.zero_()
    assert array(target.head.inner.weight).any()


def test_loading_other_keys() -> None:
    model = Nested()
    state = model.state_dict()
    state["extra"] = state.pop("head.scale")
    state["tail.0.other"] = T.ones(1)
    with raises(
        RuntimeError,
        "Error(s) in loading state_dict for Nested:\n"
        '\tMissing key(s) in state_dict: "head.scale". \n'
        '\tUnexpected key(s) in state_dict: "extra", "tail.0.other". ',
    ):
        model.load_state_dict(state)
    result = model.load_state_dict(state, strict=False)
    assert result.missing_keys == ["head.scale"]
    assert result.unexpected_keys == ["extra", "tail.0.other"]
    assert "missing_keys=['head.scale'], unexpected_keys=['extra', 'tail.0.other']" in repr(result)


def test_loading_other_shapes_and_types() -> None:
    linear = nn.Linear(2, 1)
    with raises(
        RuntimeError,
        "Error(s) in loading state_dict for Linear:\n"
        "\tsize mismatch for weight: copying a param with shape torch.Size([3, 2]) from "
        "checkpoint, the shape in current model is torch.Size([1, 2]).\n"
        "\tsize mismatch for bias: copying a param with shape torch.Size([3]) from checkpoint, "
        "the shape in current model is torch.Size([1]).",
    ):
        linear.load_state_dict(nn.Linear(2, 3).state_dict(), strict=False)
    with raises(
        RuntimeError,
        "Error(s) in loading state_dict for Linear:\n"
        '\tWhile copying the parameter named "bias", expected torch.Tensor or Tensor-like object '
        "from checkpoint but received <class 'int'>",
    ):
        linear.load_state_dict({"weight": T.ones(1, 2), "bias": 1})
    with raises(TypeError, "Expected state_dict to be dict-like, got <class 'list'>."):
        linear.load_state_dict([])


def test_loading_casts_to_the_dtype_of_the_module() -> None:
    linear = nn.Linear(2, 1)
    linear.load_state_dict(nn.Linear(2, 1).double().state_dict())
    assert linear.weight.dtype == T.float32


def test_loading_by_assignment() -> None:
    linear = nn.Linear(2, 1)
    linear.bias.requires_grad_(False)
    state = {"weight": T.ones(1, 2, dtype=T.float64), "bias": T.ones(1)}
    linear.load_state_dict(state, assign=True)
    assert linear.weight.dtype == T.float64
    assert isinstance(linear.weight, nn.Parameter)
    assert linear.weight.requires_grad
    assert not linear.bias.requires_grad
    state["weight"][0, 0] = 5.0
    same(linear.weight, [[5.0, 1.0]])


def test_extra_state() -> None:
    class Counting(nn.Linear):
        seen = 0

        def get_extra_state(self) -> Any:
            return {"seen": self.seen}

        def set_extra_state(self, state: Any) -> None:
            self.seen = state["seen"]

    source, target = Counting(1, 1), Counting(1, 1)
    source.seen = 3
    assert list(source.state_dict()) == ["weight", "bias", "_extra_state"]
    target.load_state_dict(source.state_dict())
    assert target.seen == 3
    assert nn.Linear(1, 1).load_state_dict(source.state_dict(), strict=False).unexpected_keys == [
        "_extra_state"
    ]


def test_state_hooks() -> None:
    linear = nn.Linear(1, 1)
    calls: list[Any] = []

    def after_save(module: Any, state: Any, prefix: str, metadata: Any) -> None:
        state[prefix + "added"] = metadata["version"]

    linear.register_state_dict_pre_hook(
        lambda module, prefix, keep_vars: calls.append((module is linear, prefix, keep_vars))
    )
    linear.register_state_dict_post_hook(after_save)
    state = linear.state_dict(prefix="a.")
    assert calls == [(True, "a.", False)]
    assert list(state) == ["a.weight", "a.bias", "a.added"]

    renamed = nn.Linear(1, 1)

    def before_load(module: Any, state: Any, prefix: str, *rest: Any) -> None:
        state[prefix + "weight"] = state.pop(prefix + "kernel")

    def after_load(module: Any, keys: Any) -> None:
        keys.missing_keys.clear()

    renamed.register_load_state_dict_pre_hook(before_load)
    renamed.register_load_state_dict_post_hook(after_load)
    given = {"kernel": T.ones(1, 1)}
    renamed.load_state_dict(given)
    same(renamed.weight, [[1.0]])
    assert list(given) == ["kernel"]


# ---------------------------------------------------------------- modes and conversions


def test_train_and_eval() -> None:
    model = Nested()
    assert all(module.training for module in model.modules())
    assert model.eval() is model
    assert not any(module.training for module in model.modules())
    assert model.train() is model
    assert model.tail[1].training
    with raises(ValueError, "training mode is expected to be boolean"):
        model.train("yes")


def test_apply_goes_from_the_leaves_up() -> None:
    seen: list[str] = []
    model = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU()))
    assert model.apply(lambda module: seen.append(type(module).__name__)) is model
    assert seen == ["Linear", "ReLU", "Sequential", "Sequential"]


def test_conversions_keep_the_parameters() -> None:
    head = Head()
    head(T.ones(1, 2)).sum().backward()
    weight = head.inner.weight
    assert head.double() is head
    assert head.inner.weight is weight
    assert weight.dtype == weight.grad.dtype == T.float64
    assert head.scratch.dtype == T.float64
    assert head.count.dtype == T.int64
    assert head(T.ones(1, 2, dtype=T.float64)).dtype == T.float64
    assert head.float().scale.dtype == T.float32
    assert head.to(T.float64).scale.dtype == T.float64
    assert head.to("cpu", T.float32).scale.dtype == T.float32
    assert head.to(T.ones(1, dtype=T.float64)).scale.dtype == T.float64
    assert head.to(dtype=T.float32, device=T.device("cpu")).scale.dtype == T.float32
    assert head.cpu().count.dtype == T.int64
    assert head.type(T.float64).count.dtype == T.float64


def test_conversion_to_integers_is_refused() -> None:
    with raises(
        TypeError,
        "nn.Module.to only accepts floating point or complex dtypes, but got desired "
        "dtype=torch.int64",
    ):
        Head().to(T.int64)


def test_arguments_of_to_have_an_order() -> None:
    head, like = Head(), T.ones(1)
    for args in (("cpu", T.float32, True), (T.float32, True), (like, True), (None, None, True), ()):
        assert head.to(*args) is head
    assert head.to(tensor=like, non_blocking=True) is head
    wrong: list[tuple[Any, ...]] = [
        ("cpu", True), (None, True), (True,), (T.float32, "cpu"), (like, T.float32), ("cpu", like), (3.5,),
    ]  # fmt: skip
    for args in wrong:
        with pytest.raises(TypeError, match=r"to\(\) received an invalid combination of arguments"):
            head.to(*args)
    for options in ({"other": like}, {"tensor": like, "dtype": T.float32}):
        with pytest.raises(TypeError, match=r"to\(\) received an invalid combination of arguments"):
            head.to(**options)
    with raises(RuntimeError, ".to() does not accept copy argument"):
        head.to("cpu", copy=True)


def test_requires_grad_and_zero_grad() -> None:
    model = nn.Linear(2, 1)
    assert model.requires_grad_(False) is model
    assert not any(p.requires_grad for p in model.parameters())
    model.requires_grad_()
    model(T.ones(1, 2)).sum().backward()
    model.zero_grad(set_to_none=False)
    same(model.weight.grad, [[0.0, 0.0]])
    model.zero_grad()
    assert model.weight.grad is None


# ---------------------------------------------------------------- hooks around the call


def test_forward_hooks_in_order() -> None:
    module = Double()
    calls: list[str] = []
    module.register_forward_pre_hook(lambda m, args: calls.append("pre"))
    module.register_forward_hook(lambda m, args, out: calls.append("post"))
    module.register_forward_pre_hook(lambda m, args: calls.append("first"), prepend=True)
    removed = module.register_forward_hook(lambda m, args, out: calls.append("never"))
    removed.remove()
    removed.remove()
    with module.register_forward_hook(lambda m, args, out: calls.append("once"), prepend=True):
        module(T.ones(1))
    module(T.ones(1))
    assert calls == ["first", "pre", "once", "post", "first", "pre", "post"]


def test_a_hook_may_remove_itself() -> None:
    module = Double()
    handle = module.register_forward_hook(lambda m, args, out: handle.remove())
    module.register_forward_hook(lambda m, args, out: out + 1)
    same(module(T.ones(1)), [3.0])
    assert len(module._forward_hooks) == 1


def test_forward_hooks_replace() -> None:
    module = Double()
    module.register_forward_pre_hook(lambda m, args: args[0] + 1)
    module.register_forward_pre_hook(lambda m, args: (args[0] * 10,))
    module.register_forward_hook(lambda m, args, out: (args[0], out))
    seen, out = module(T.tensor([1.0]))
    same(seen, [20.0])
    same(out, [40.0])


def test_forward_hooks_with_kwargs() -> None:
    head = Head()
    seen: list[Any] = []

    def shifted(module: Any, args: Any, kwargs: Any) -> Any:
        return args, {"shift": kwargs["shift"] + 1}

    head.register_forward_pre_hook(shifted, with_kwargs=True)
    head.register_forward_hook(lambda m, args, kwargs, out: seen.append(kwargs), with_kwargs=True)
    head.register_forward_hook(lambda m, args, out: seen.append(len(args)))
    head(T.ones(1, 2), shift=1.0)
    assert seen == [{"shift": 2.0}, 1]
    wrong = Double()
    wrong.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
    with raises(
        RuntimeError,
        "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got 3.",
    ):
        wrong(1)


def test_hooks_on_all_modules() -> None:
    register = T.nn.modules.module
    calls: list[str] = []

    def note(kind: str) -> Any:
        return lambda module, *rest: calls.append(f"{kind} {type(module).__name__}")

    handles = [
        register.register_module_forward_pre_hook(note("before")),
        register.register_module_forward_hook(note("after")),
        register.register_module_full_backward_hook(note("backward")),
    ]
    model = nn.Sequential(Double())
    model(T.ones(1, requires_grad=True)).sum().backward()
    for handle in handles:
        handle.remove()
    model(T.ones(1))
    assert calls == [
        "before Sequential", "before Double", "after Double", "after Sequential",
        "backward Double", "backward Sequential",
    ]  # fmt: skip


def registrations(library: Any) -> list[Any]:
    """What hooks on all modules see of what becomes a part of one, and what they make of it."""
    register, seen = library.nn.modules.module, []

    def note(kind: str) -> Any:
        def hook(module: Any, name: str, value: Any) -> Any:
            kept = (
                "tensor" if kind == "buffer" else type(value).__name__
            )  # of which PyTorch has no class
            seen.append((kind, type(module).__name__, name, kept))
            if kind == "parameter" and value is not None:
                return library.nn.Parameter(value.detach() * 2)
            return library.nn.Identity() if isinstance(value, library.nn.ReLU) else None

        return hook

    handles = [
        getattr(register, f"register_module_{kind}_registration_hook")(note(kind))
        for kind in ("parameter", "buffer", "module")
    ]
    part = library.nn.Module()
    part.weight = library.nn.Parameter(library.ones(2))
    part.weight = None
    part.register_parameter("bias", None)
    part.bias = library.nn.Parameter(library.ones(2))
    part.register_buffer("mean", library.zeros(1))
    part.mean = library.ones(1)
    part.other = library.nn.Buffer(library.ones(1))
    part.layer = library.nn.ReLU()
    part.layer = None
    part.add_module("second", library.nn.ReLU())
    seen.append((part.bias.tolist(), type(part.second).__name__))
    for handle in handles:
        handle.remove()
    part.third = library.nn.ReLU()
    return [*seen, type(part.third).__name__]


def test_hooks_on_all_modules_see_what_becomes_a_part() -> None:
    torch = pytest.importorskip("torch")
    found = registrations(T)
    assert found == registrations(torch)
    assert ([2.0, 2.0], "Identity") in found


def test_old_backward_hooks_on_all_modules() -> None:
    register = T.nn.modules.module
    seen: list[Any] = []
    handle = register.register_module_backward_hook(
        lambda module, grads, outer: seen.append((type(module).__name__, array(outer[0]).tolist()))
    )
    with pytest.raises(RuntimeError, match="full backward hooks as a global Module hook"):
        register.register_module_full_backward_hook(lambda module, grads, outer: None)
    Double()(T.ones(1, requires_grad=True)).sum().backward()
    handle.remove()
    assert seen == [("Double", [1.0])]
    handle = register.register_module_full_backward_hook(lambda module, grads, outer: None)
    with pytest.raises(RuntimeError, match="full backward hooks as a global Module hook"):
        register.register_module_backward_hook(lambda module, grads, outer: None)
    handle.remove()


def test_backward_hooks_see_the_gradients() -> None:
    module = Double()
    seen: list[Any] = []
    module.register_full_backward_pre_hook(
        lambda m, grad_output: seen.append(("pre", array(grad_output[0]).tolist()))
    )
    module.register_full_backward_hook(
        lambda m, grad_input, grad_output: seen.append(
            (array(grad_input[0]).tolist(), array(grad_output[0]).tolist())
        )
    )
    x = T.ones(2, requires_grad=True)
    module(x * 3).backward(T.tensor([1.0, 10.0]))
    assert seen == [("pre", [1.0, 10.0]), ([2.0, 20.0], [1.0, 10.0])]
    same(x.grad, [6.0, 60.0])


def test_backward_hooks_replace() -> None:
    module = Double()
    module.register_full_backward_pre_hook(lambda m, grad_output: (grad_output[0] * 10,))
    module.register_full_backward_hook(lambda m, grad_input, grad_output: (grad_input[0] + 1,))
    x = T.ones(2, requires_grad=True)
    module(x).sum().backward()
    same(x.grad, [21.0, 21.0])


def test_backward_hooks_and_several_values() -> None:
    class Several(nn.Module):
        def forward(self, a: Any, factor: float, b: Any) -> Any:
            return a * factor, b + a

    module = Several()
    seen: list[Any] = []
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    a, b = T.ones(2, requires_grad=True), T.ones(2)
    first, second = module(a, 3.0, b)
    (first.sum() + 2 * second.sum()).backward()
    ((grad_a, grad_factor, _), grad_outputs) = seen[0]
    same(grad_a, [5.0, 5.0])
    assert grad_factor is None
    assert [array(grad).tolist() for grad in grad_outputs] == [[1.0, 1.0], [2.0, 2.0]]
    same(a.grad, [5.0, 5.0])


def test_backward_hook_without_input_gradients() -> None:
    linear = nn.Linear(1, 1)
    seen: list[Any] = []
    linear.register_full_backward_hook(lambda m, gi, go: seen.append((gi, array(go[0]).tolist())))
    out = linear(T.ones(1, 1))
    with warns(
        UserWarning,
        "Full backward hook is firing when gradients are computed with respect to module outputs "
        "since no inputs require gradients. See "
        "https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
        "#torch.nn.Module.register_full_backward_hook for more details.",
    ):
        out.sum().backward()
    assert seen == [((None,), [[1.0]])]
    same(linear.bias.grad, [1.0])


def test_backward_hooks_of_wrong_length() -> None:
    module = Double()
    module.register_full_backward_hook(lambda m, gi, go: (None, None))
    with raises(
        RuntimeError,
        "Backward hook returned an invalid number of grad_input, got 2, but expected 1",
    ):
        module(T.ones(1, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("lib", [T, pytest.param("torch")], ids=["ours", "torch"])
def test_backward_hooks_of_the_old_kind(lib: Any) -> None:
    lib = pytest.importorskip("torch") if lib == "torch" else lib
    seen = []

    def double(module: Any, grad_input: Any, grad_output: Any) -> Any:
        seen.append((type(module).__name__, grad_output[0].tolist()))
        return tuple(2 * grad for grad in grad_input)

    module = lib.nn.Sigmoid()
    module.register_backward_hook(double)
    x = lib.zeros(2, requires_grad=True)
    module(x * 1).backward(lib.ones(2))
    assert seen == [("Sigmoid", [1.0, 1.0])]
    assert x.grad.tolist() == [0.5, 0.5]
    full = lib.nn.Sigmoid()
    full.register_full_backward_hook(double)
    for register in (module.register_full_backward_hook, full.register_backward_hook):
        with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full"):
            register(double)
    two = lib.nn.Sequential(lib.nn.Sigmoid(), lib.nn.Sigmoid())
    two.register_backward_hook(double)
    with pytest.warns(FutureWarning, match="when the forward contains multiple autograd Nodes"):
        two(x * 1)
    module.register_forward_hook(lambda module, args, result: [result])
    with pytest.warns(FutureWarning, match="does not return a single Tensor or a tuple"):
        module(x * 1)


@pytest.mark.parametrize("lib", [T, pytest.param("torch")], ids=["ours", "torch"])
def test_forward_hooks_that_are_always_called(lib: Any) -> None:
    lib = pytest.importorskip("torch") if lib == "torch" else lib
    seen: list[Any] = []

    class Failing(lib.nn.Module):
        def forward(self, x: Any) -> Any:
            raise KeyError("forward")

    module = Failing()
    module.register_forward_hook(lambda *args: seen.append("usual"))
    module.register_forward_hook(lambda module, args, result: seen.append(result), always_call=True)
    module.register_forward_hook(
        lambda module, args, kwargs, result: 1 / 0, always_call=True, with_kwargs=True
    )
    with (
        pytest.warns(UserWarning, match="raised an exception that was silenced"),
        pytest.raises(KeyError, match="forward"),
    ):
        module(lib.ones(1))
    assert seen == [None]


def test_to_empty() -> None:
    net = T.nn.BatchNorm1d(3)
    weight = net.weight
    assert net.to_empty(device="cpu") is net
    assert net.weight is weight
    assert net.running_mean.shape == (3,)


def test_backward_hooks_rest_under_no_grad() -> None:
    module = Double()
    module.register_full_backward_hook(lambda *args: pytest.fail("called"))
    with T.no_grad():
        same(module(T.ones(1, requires_grad=True)), [2.0])


def test_backward_hook_needs_tensors() -> None:
    class Listing(nn.Module):
        def forward(self, x: Any) -> Any:
            return [x * 2]

    module = Listing()
    module.register_full_backward_hook(lambda *args: None)
    with warns(
        UserWarning,
        "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
        "but received <class 'list'>",
    ):
        module(T.ones(1, requires_grad=True))


# ---------------------------------------------------------------- copies


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_module_copies(copied: Any) -> None:
    model = Nested().eval()
    model.tail[0].weight = nn.Parameter(T.ones(1, 2), requires_grad=False)
    fallback = copied(model)
    assert repr(fallback) == repr(model)
    assert not fallback.training
    assert not fallback.tail[0].weight.requires_grad
    for (name, mine), (other_name, other) in zip(
        model.state_dict().items(), fallback.state_dict().items(), strict=True
    ):
        assert name == other_name
        same(other, mine)
    with T.no_grad():
        model.head.scale.zero_()
    same(fallback.head.scale, [2.0, 3.0])
    assert list(fallback.state_dict()) == list(model.state_dict())


def test_deepcopy_keeps_shared_parameters_shared() -> None:
    tied = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    tied[1].weight = tied[0].weight
    fallback = copy.deepcopy(tied)
    assert fallback[1].weight is fallback[0].weight
    assert fallback[0].weight is not tied[0].weight


def test_copies_carry_their_hooks() -> None:
    module = Double()
    module.register_forward_hook(lambda m, args, out: out + 1)
    fallback = copy.deepcopy(module)
    same(fallback(T.ones(1)), [3.0])
    module._forward_hooks.clear()
    same(fallback(T.ones(1)), [3.0])


# ---------------------------------------------------------------- printing


def test_repr() -> None:
    assert repr(Nested()) == (
        "Nested(\n"
        "  (head): Head(\n"
        "    (inner): Linear(in_features=2, out_features=2, bias=True)\n"
        "  )\n"
        "  (tail): Sequential(\n"
        "    (0): Linear(in_features=2, out_features=1, bias=True)\n"
        "    (1): ReLU()\n"
        "  )\n"
        ")"
    )
    assert repr(nn.Module()) == "Module()"

    class Verbose(Nested):
        def extra_repr(self) -> str:
            return "one=1\ntwo=2"

        def _get_name(self) -> str:
            return "Named"

    assert repr(Verbose()).startswith("Named(\n  one=1\n  two=2\n  (head): Head(")


def test_dir_lists_the_members() -> None:
    listed = dir(Nested().head)
    assert {"scale", "count", "inner", "forward", "training"} <= set(listed)
    assert "0" not in dir(Nested().tail)


# ---------------------------------------------------------------- containers


def test_sequential_is_a_list() -> None:
    a, b, c = nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 3)
    model = nn.Sequential(a, b)
    assert len(model) == 2
    assert model.append(c) is model
    assert list(model) == [a, b, c]
    assert model[-1] is c
    assert list(model[1:]) == [b, c]
    assert type(model[1:]) is nn.Sequential
    model.insert(1, nn.Tanh())
    assert names(model.named_children()) == ["0", "1", "2", "3"]
    assert [type(m).__name__ for m in model] == ["Linear", "Tanh", "ReLU", "Linear"]
    del model[1]
    assert list(model) == [a, b, c]
    assert names(model.named_children()) == ["0", "1", "2"]
    assert model.pop(1) is b
    assert list(model) == [a, c]
    model[1] = b
    assert list(model) == [a, b]
    model.extend([c])
    assert list(model + nn.Sequential(b)) == [a, b, c, b]
    assert list(model * 2) == list(2 * model) == [a, b, c, a, b, c]
    model *= 2
    model += nn.Sequential(b)
    assert list(model) == [a, b, c, a, b, c, b]
    del model[1:5]
    assert list(model) == [a, c, b]
    named = nn.Sequential(OrderedDict([("first", a), ("second", b)]))
    assert names(named.named_children()) == ["first", "second"]
    assert named.second is b
    assert names(named[1:].named_children()) == ["second"]


def test_sequential_errors() -> None:
    model = nn.Sequential(nn.ReLU())
    with raises(IndexError, "index 3 is out of range"):
        _ = model[3]
    with raises(IndexError, "Index out of range: 5"):
        model.insert(5, nn.ReLU())
    with raises(ValueError, "Non-positive multiplication factor 0 for " + str(nn.Sequential)):
        _ = model * 0
    with raises(
        ValueError,
        "add operator supports only objects of Sequential class, but <class 'list'> is given.",
    ):
        _ = model.__add__([])
    with raises(TypeError, "int is not a Module subclass"):
        model.append(1)


def test_module_list() -> None:
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    first, second, third = layers
    assert len(layers) == 3
    assert list(layers[1:]) == [second, third]
    assert type(layers[1:]) is nn.ModuleList
    layers.insert(0, third)
    layers.append(nn.ReLU())
    layers.extend([nn.Tanh()])
    layers += [first]
    assert names(layers.named_children()) == ["0", "1", "2", "4", "5"]
    assert repr(layers) == (
        "ModuleList(\n"
        "  (0-3): 4 x Linear(in_features=2, out_features=2, bias=True)\n"
        "  (4): ReLU()\n"
        "  (5): Tanh()\n"
        "  (6): Linear(in_features=2, out_features=2, bias=True)\n"
        ")"
    )
    assert repr(nn.ModuleList()) == "ModuleList()"
    del layers[1:5]
    assert list(layers._modules) == ["0", "1", "2"]
    assert list(layers.__add__([first]))[-1] is first
    with raises(TypeError, "ModuleList.extend should be called with an iterable, but got int"):
        layers.extend(3)
    with raises(
        NotImplementedError, 'Module [ModuleList] is missing the required "forward" function'
    ):
        layers(T.ones(2))


def test_module_dict() -> None:
    a, b = nn.Linear(1, 1), nn.ReLU()
    modules = nn.ModuleDict({"b": b, "a": a})
    assert list(modules) == list(modules.keys()) == ["b", "a"]
    assert modules["a"] is a
    assert "a" in modules
    assert dict(modules.items()) == {"b": b, "a": a}
    assert list(modules.values()) == [b, a]
    assert modules.pop("b") is b
    modules.update([("c", b)])
    del modules["a"]
    assert repr(modules) == "ModuleDict(\n  (c): ReLU()\n)"
    with raises(ValueError, "ModuleDict update sequence element #0 has length 1; 2 is required"):
        modules.update([("x",)])
    with raises(
        TypeError,
        "ModuleDict.update should be called with an iterable of key/value pairs, but got int",
    ):
        modules.update(3)
    modules.clear()
    assert len(modules) == 0


def test_parameter_list() -> None:
    listed = nn.ParameterList([T.ones(2), nn.Parameter(T.zeros(3)), "note"])
    assert isinstance(listed[0], nn.Parameter)
    assert len(listed) == 3
    assert names(listed.named_parameters()) == ["0", "1"]
    assert plain(repr(listed)) == (
        "ParameterList(\n"
        "    (0): Parameter containing: [T.float32 of size 2]\n"
        "    (1): Parameter containing: [T.float32 of size 3]\n"
        "    (2): Object of type: str\n"
        ")"
    )
    assert listed[-1] == "note"
    assert len(listed[:2]) == 2
    listed.append(T.ones(1))
    listed[2] = T.ones(4)
    listed += [T.ones(5)]
    assert [tuple(p.shape) for p in listed] == [(2,), (3,), (4,), (1,), (5,)]
    with raises(IndexError, "index 7 is out of range"):
        _ = listed[7]
    with raises(
        TypeError, "ParameterList.extend should be called with an iterable, but got Tensor"
    ):
        listed.extend(T.ones(2))
    with raises(RuntimeError, "ParameterList should not be called."):
        listed()


def test_parameter_dict() -> None:
    params = nn.ParameterDict({"right": T.ones(2), "left": T.zeros(1)})
    assert list(params) == ["left", "right"]
    assert isinstance(params["left"], nn.Parameter)
    assert names(params.named_parameters()) == ["left", "right"]
    assert plain(repr(params)) == (
        "ParameterDict(\n"
        "    (left): Parameter containing: [T.FloatTensor of size 1]\n"
        "    (right): Parameter containing: [T.FloatTensor of size 2]\n"
        ")"
    )
    assert params.get("missing", 3) == 3
    assert params.setdefault("extra", T.ones(1)) is params["extra"]
    assert params.pop("extra").shape == (1,)
    assert params.popitem()[0] == "right"
    both = params | nn.ParameterDict({"up": T.ones(1)})
    assert list(both) == ["left", "up"]
    params |= both
    assert "up" in params
    assert list(reversed(params)) == ["up", "left"]
    assert len(list(params.values())) == len(params) == 2
    assert list(params.fromkeys(["k"], T.ones(1))) == ["k"]
    params.clear()
    assert list(params.parameters()) == []
    with raises(
        TypeError,
        "Index given to ParameterDict cannot be used as a key as it is not a string (type is "
        "'int'). Open an issue on github if you need non-string keys.",
    ):
        params[1] = T.ones(1)


@pytest.mark.parametrize("lib", [T, pytest.param("torch")], ids=["ours", "torch"])
def test_state_dict_hooks_of_the_old_kind_may_give_another_dict(lib: Any) -> None:
    lib = pytest.importorskip("torch") if lib == "torch" else lib
    net = lib.nn.Sequential(lib.nn.Linear(2, 1))
    handle = net._register_state_dict_hook(
        lambda module, saved, prefix, metadata: {f"net.{name}": t for name, t in saved.items()}
    )
    assert list(net.state_dict()) == ["net.0.weight", "net.0.bias"]
    handle.remove()
    assert list(net.state_dict()) == ["0.weight", "0.bias"]
    net.register_state_dict_post_hook(lambda *_: {})
    with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
        net.state_dict()


@pytest.mark.parametrize("lib", [T, pytest.param("torch")], ids=["ours", "torch"])
def test_keys_that_do_not_match_are_shown(lib: Any) -> None:
    lib = pytest.importorskip("torch") if lib == "torch" else lib
    shown = repr(lib.nn.ReLU().load_state_dict({"a": lib.ones(1)}, strict=False))
    assert shown == "_IncompatibleKeys(missing_keys=[], unexpected_keys=['a'])"


def test_functions_of_the_library_are_no_methods_of_modules() -> None:
    """PyTorch's are built in, so that a class may have them as attributes; those in Python are left to us."""
    torch = pytest.importorskip("torch")

    def told(L: Any) -> Any:
        class Net(L.nn.Module):
            conv = L.conv2d
            squash, join, weigh = L.softmax, L.cat, L.nn.functional.linear
            relu, product, scale = L.relu, L.matmul, L.mul
            in_place = L.relu_

            @L.no_grad()
            def forward(self, x: Any) -> Any:
                y = self.conv(x, L.ones(1, 1, 1, 1, dtype=x.dtype)).flatten(1)
                y = self.join([self.squash(y, -1), self.relu(y)], dim=1)
                return self.in_place(self.scale(self.product(y, y.T), 2)), self.weigh(y, y)

            @functools.wraps(L.tanh)
            def tanh(self, x: Any) -> Any:
                return type(self).__name__, x

            @functools.wraps(L.softmax)
            def softmax(self, x: Any) -> Any:
                return type(self).__name__, x

        class Changed(Net):
            conv = L.conv_transpose2d
            join = None

        net, changed = Net(), Changed()
        x = L.arange(8.0, dtype=L.float64).reshape(2, 1, 2, 2) - 3
        one = L.ones(1, 1, 1, 1, dtype=L.float64)
        return (
            [(y * 1e9).round().tolist() for y in net(x)], net.tanh(1), net.softmax(2), Net.conv is L.conv2d,
            changed.conv(x, one).tolist(), changed.join, Changed.squash is L.softmax,
        )  # fmt: skip

    for _ in range(10):  # as machine code too
        assert told(T) == told(torch)


class Threefold(T.nn.Linear):
    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return found * 3 if name == "weight" else found


class Offset(T.nn.Linear):
    def _call_impl(self, *args: Any) -> Any:
        return super()._call_impl(*args) + 100  # type: ignore[misc]


class StandIn:
    weight, bias = T.full((1, 2), 2.0), None


def ones_layer(kind: type[T.nn.Linear] = T.nn.Linear) -> T.nn.Linear:
    layer = kind(2, 1)
    for p in layer.parameters():
        p.data.fill_(1)
    return layer


def test_layers_read_the_attributes_that_programs_have_put_in_place_of_theirs() -> None:
    """What an attribute is is found as Python finds it, never looked up past what stands in front of it."""
    x, five = T.ones(1, 2), T.full((1, 2), 5.0)
    layer = ones_layer()
    layer.__dict__["weight"] = five
    assert layer(x).item() == 11
    layer = ones_layer()
    object.__setattr__(layer, "weight", five)
    assert layer(x).item() == 11
    assert ones_layer(Threefold)(x).item() == 7
    late = ones_layer(type("Late", (T.nn.Linear,), {}))
    type(late).weight = property(lambda layer: layer._parameters["weight"] * 3)  # type: ignore[assignment]
    assert late(x).item() == 7
    assert T.nn.Linear.forward(StandIn(), x).item() == 4  # type: ignore[arg-type]


def test_calls_go_by_what_a_class_or_a_module_says_is_a_call() -> None:
    x = T.ones(1, 2)
    assert ones_layer(Offset)(x).item() == 103
    hooked = ones_layer(Offset)
    hooked.register_forward_hook(lambda module, args, out: out * 2)
    assert hooked(x).item() == 106
    layer = ones_layer()
    layer._call_impl = lambda x: x * 7  # type: ignore[assignment]
    assert layer(x).tolist() == [[7, 7]]
