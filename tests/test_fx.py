"""Programs as graphs of symbols, beside PyTorch's."""

import copy
import math
import operator
import pickle
from typing import Any

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")

LIBRARIES = adjit, torch


def doubled(x):
    if x.sum() > 0:  # cannot be traced
        return 2 * x
    return x


def halved(x):
    return x / 2 if len(x) else x


def through_wrapped(x):
    return doubled(x) + math.sqrt(4.0) + len(x)


adjit.fx.wrap("doubled")
torch.fx.wrap("doubled")
adjit.fx.wrap("len")
torch.fx.wrap("len")


def modules(T: Any) -> dict[str, Any]:
    nn = T.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 4)
            self.w = nn.Parameter(T.full((4,), 0.5))
            self.register_buffer("b", T.arange(4.0))
            self.seq = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def forward(self, x):
            y = T.relu(self.lin(x)) + self.w * self.b
            a, b = y.chunk(2, dim=-1)
            z = T.cat([a, b], dim=1)
            z += 1
            return self.seq(z).view(z.size(0), -1)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(), Block()])
            self.head = nn.Linear(4, 3)

        def forward(self, x: T.Tensor, scale: float = 2.0) -> T.Tensor:
            for block in self.blocks:
                x = self.head(block(x)) * scale
            return x[:, 1:] ** 2 - x.mean()

    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.functional.gelu
            self.constant = T.ones(3)

        def forward(self, x):
            return {
                "a": self.act(x) @ x.t(),
                "b": (x.shape[0], self.constant + x),
                "c": [-x, ~(x > 0)],
            }

    class Variadic(nn.Module):
        def forward(self, *args, **kwargs):
            return args[0] + args[1] * kwargs["scale"]

    return {"block": Block, "outer": Outer, "kept": Kept, "variadic": Variadic}


def functions(T: Any) -> dict[str, Any]:
    def operators(x):
        return (2 - x) / (1 + x**2) // 0.1 % 7 + 2**x - (x @ x) * (x > 0) + abs(x)

    def slices(x):
        return x[1:, None, ..., -1], x[[0, 1]], x[x > 0]

    def dtypes(x):
        return x.to(T.float64).sum(dim=(0, 1), keepdim=True, dtype=T.float64)

    def methods(x):
        return x.relu().add(1).clamp(min=0, max=T.inf).softmax(-1).transpose(0, 1).contiguous()

    def named(x, lambda_=3, type=None):
        return T.dropout(x, 0.0, False) * lambda_

    def in_place(x):
        y = x.clone()
        y.add_(1)
        y.relu_()
        return y

    def nested(x):
        def inner(z):
            return T.sin(z) + z

        return inner(inner(x))

    def constants(x):
        return x + T.ones(3, 3) * math.pi

    return {
        f.__name__: f
        for f in (operators, slices, dtypes, methods, named, in_place, nested, constants)
    }


CALLS = {"variadic": lambda f, x: f(x, x, scale=2)}


def run(f: Any, name: str, x: Any) -> Any:
    return CALLS.get(name, lambda f, x: f(x))(f, x)


def numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: numbers(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [numbers(v) for v in value]
    return np.asarray(value.detach()) if hasattr(value, "detach") else value


def same(a: Any, b: Any) -> None:
    np.testing.assert_equal(numbers(a), numbers(b))


def text(code: str) -> str:
    """Without PyTorch's private names of some functions, and the libraries' own."""
    return code.replace("torch._C._nn.", "torch.nn.functional.").replace("adjit.", "torch.")


@pytest.mark.parametrize("name", [*modules(adjit)])
def test_modules_have_pytorchs_code_and_the_modules_values(name):
    made = []
    for T in LIBRARIES:
        model = modules(T)[name]().double()
        traced = T.fx.symbolic_trace(model)
        traced.graph.lint()
        x = T.arange(9.0, dtype=T.float64).reshape(3, 3) / 5 - 1
        same(run(traced, name, x), run(model, name, x))
        made.append((traced.code, str(traced.graph), [*traced.state_dict()]))
    assert text(made[0][0]) == text(made[1][0])
    assert text(made[0][1]) == text(made[1][1])
    assert made[0][2] == made[1][2]


@pytest.mark.parametrize("name", [*functions(adjit)])
def test_functions_have_pytorchs_code_and_their_values(name):
    made = []
    for T in LIBRARIES:
        f = functions(T)[name]
        traced = T.fx.symbolic_trace(f)
        x = T.arange(9.0).reshape(3, 3) / 5 - 1
        same(traced(x), f(x))
        made.append((traced.code, str(traced.graph)))
    assert text(made[0][0]) == text(made[1][0])
    assert text(made[0][1]) == text(made[1][1])


def test_gradients_of_a_traced_module_are_the_modules():
    model = modules(adjit)["outer"]().double()
    traced = adjit.fx.symbolic_trace(model)
    x = adjit.randn(5, 3, dtype=adjit.float64, requires_grad=True)
    wanted = adjit.autograd.grad(model(x).sum(), [x, *model.parameters()])
    found = adjit.autograd.grad(traced(x).sum(), [x, *traced.parameters()])
    for a, b in zip(wanted, found, strict=True):
        same(a, b)
    assert adjit.autograd.gradcheck(traced, (x,))


def test_a_traced_module_can_be_captured():
    model = modules(adjit)["block"]()
    captured = adjit.compile(adjit.fx.symbolic_trace(model))
    x = adjit.randn(2, 3)
    for _ in range(3):
        np.testing.assert_allclose(numbers(captured(x)), numbers(model(x)), rtol=1e-6)


# ----- wrapped functions, functions of math, values that are known -----


def test_wrapped_functions_are_called_in_the_graph():
    codes = []
    for T in LIBRARIES:
        traced = T.fx.symbolic_trace(through_wrapped)
        codes.append(traced.code)
        same(traced(T.ones(2)), through_wrapped(T.ones(2)))
        same(traced(-T.ones(2)), through_wrapped(-T.ones(2)))
        assert not hasattr(doubled, "_calls_in_graphs")
    assert codes[0] == codes[1]
    with pytest.raises(
        NotImplementedError, match="wrap must be called at the top level of a module"
    ):
        adjit.fx.wrap("doubled")
    with pytest.raises(RuntimeError, match="Must be either a callable or string name"):
        adjit.fx.wrap(3)


def test_functions_of_math_meet_symbols():
    def f(x):
        return math.floor(x.size(0) / 2)

    for T in LIBRARIES:
        traced = T.fx.symbolic_trace(f)
        assert traced(T.ones(5)) == 2
        assert math.floor(2.5) == 2
        targets = [n.target for n in traced.graph.nodes if n.op == "call_function"]
        assert targets[-1] is math.floor


def test_concrete_args_stay_values_and_are_checked():
    def f(x, double, other=None):
        if double:
            x = x * 2
        return x if other is None else x + other

    for T in LIBRARIES:
        traced = T.fx.symbolic_trace(f, concrete_args={"double": True, "other": None})
        same(traced(T.ones(2), True, None), f(T.ones(2), True))
        with pytest.raises(AssertionError, match="double has been specialized to have value True"):
            traced(T.ones(2), False, None)
        with pytest.raises(AssertionError, match="other has been specialized to have value None"):
            traced(T.ones(2), True, 3)
    with pytest.raises(NotImplementedError, match=r"concrete_args\['double'\] is a list"):
        adjit.fx.symbolic_trace(f, concrete_args={"double": [1]})


# ----- errors -----


def loops(x):
    return [part for part in x]  # noqa: C416


def branches(x):
    return x if x.sum() > 0 else -x


def writes(x):
    x[0] = 1
    return x


def holds_object(x):
    return x + object()


@pytest.mark.parametrize("f", [loops, branches, writes, holds_object])
def test_what_cannot_be_traced_raises_pytorchs_errors(f):
    found = []
    for T in LIBRARIES:
        with pytest.raises(Exception) as error:  # noqa: PT011
            T.fx.symbolic_trace(f)
        found.append((type(error.value).__name__, " ".join(str(error.value).split())))
    assert found[0] == found[1]
    same(adjit.relu(adjit.ones(2)), adjit.ones(2))  # nothing is left behind
    assert not adjit.fx.is_fx_tracing()
    assert adjit.nn.Module.__call__.__name__ == "__call__"


def refused(T: Any) -> list[Any]:
    graph = T.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(operator.add, (x, [1, 2]))
    graph.output(y)
    return [
        lambda: graph.erase_node(x),
        lambda: y.args[1].append(3),
        lambda: x.append(T.fx.Graph().placeholder("z")),
        lambda: T.fx.Graph().erase_node(T.fx.Graph().placeholder("z")),
        lambda: graph.find_nodes(op="call_function"),
        lambda: y.insert_arg(5, 1),
        lambda: T.fx.GraphModule({}, _named(graph)),
        lambda: T.fx.GraphModule(3, graph),
        lambda: T.fx.symbolic_trace(3),
    ]


def test_graphs_refuse_what_pytorchs_refuse():
    found = []
    for T in LIBRARIES:
        told = []
        for attempt in refused(T):
            with pytest.raises(Exception) as error:  # noqa: PT011
                attempt()
            told.append((type(error.value), str(error.value).splitlines()[0]))
        found.append(told)
    assert found[0] == found[1]


def _named(graph: Any) -> Any:
    made = copy.deepcopy(graph)
    with made.inserting_before(next(iter(made.nodes))):
        made.get_attr("weight")
    return made


def test_lint_notices_disorder():
    for T in LIBRARIES:
        graph = T.fx.Graph()
        x = graph.placeholder("x")
        y = graph.call_function(T.relu, (x,))
        y.append(x)
        with pytest.raises(RuntimeError, match="was used before it has been defined"):
            graph.lint()
        traced = T.fx.symbolic_trace(T.nn.Sequential(T.nn.ReLU()))
        del traced._modules["0"]
        with pytest.raises(RuntimeError, match="references nonexistent attribute 0"):
            traced.graph.lint()


# ----- changing graphs -----


def test_passes_change_graphs_as_in_pytorch():
    codes = []
    for T in LIBRARIES:
        traced = T.fx.symbolic_trace(functions(T)["nested"])
        for node in traced.graph.nodes:
            if node.target == T.sin:
                with traced.graph.inserting_after(node):
                    new = traced.graph.call_function(T.cos, node.args, node.kwargs)
                with traced.graph.inserting_after(new):
                    twice = traced.graph.call_method("mul", (new, 2))
                node.replace_all_uses_with(twice)
                traced.graph.erase_node(node)
        with traced.graph.inserting_before(traced.graph.output_node()):
            traced.graph.call_function(T.tan, (twice,))
        assert traced.graph.eliminate_dead_code() is True
        assert traced.graph.eliminate_dead_code() is False
        traced.graph.lint()
        traced.recompile()
        x = T.arange(3.0)
        same(traced(x), (lambda z: T.cos(z) * 2 + z)(T.cos(x) * 2 + x))
        codes.append(traced.code)
    assert codes[0] == codes[1]


def test_names_in_code_lead_to_what_they_stand_for():
    """Whatever public name has the same words: a class of `nn`, a function that is private, NumPy's numbers."""

    def f(x: adjit.nn.Linear, y: adjit.optim.Optimizer = None) -> adjit.nn.Module:
        return x * np.float64(0.5) + np.int64(2).item()

    traced = adjit.fx.symbolic_trace(f)
    same(traced(adjit.ones(2)), adjit.full((2,), 2.5))
    kinds = traced.forward.__annotations__
    assert kinds == {"x": adjit.nn.Linear, "y": adjit.optim.Optimizer, "return": adjit.nn.Module}
    specialized = adjit.fx.symbolic_trace(lambda x, k: x, concrete_args={"k": None})
    same(specialized(adjit.ones(2), None), adjit.ones(2))


def test_tracers_can_refuse_writes():
    for T in LIBRARIES:
        tracer = T.fx.Tracer()
        tracer.check_mutable_operations = True
        with pytest.raises(RuntimeError, match="Tried to trace mutable operation"):
            tracer.trace(written_in_place(T))
    tracer = adjit.fx.Tracer()
    tracer.check_mutable_operations = True
    with pytest.raises(RuntimeError, match="Tried to trace mutable operation"):
        tracer.trace(lambda x: adjit.add(x, 1, out=x))


def written_in_place(T: Any) -> Any:
    return lambda x: T.relu_(x) + 1


def test_dead_writes_and_random_numbers_stay():
    def f(x):
        adjit.nn.functional.relu(x, True)
        x.add_(1)
        adjit.dropout(x, 0.5, True)
        adjit.exp(x)
        return x * 2

    traced = adjit.fx.symbolic_trace(f)
    traced.graph.eliminate_dead_code()
    names = [n.name for n in traced.graph.nodes]
    assert names == ["x", "relu", "add_", "dropout", "mul", "output"]


def test_writes_by_operators_are_written_as_such_and_stay():
    codes = []
    for T in LIBRARIES:
        graph = T.fx.Graph()
        x = graph.placeholder("x")
        graph.call_function(operator.setitem, (x, 0, 5))
        graph.call_function(operator.iadd, (x, 1))
        graph.output(x)
        module = T.fx.GraphModule(T.nn.Module(), graph)
        codes.append(module.code)
        same(module(T.zeros(2)), T.tensor([6.0, 1.0]))
    assert codes[0] == codes[1]
    made = copy.deepcopy(adjit.fx.symbolic_trace(doubled_twice).graph)
    with made.inserting_before(made.output_node()):
        made.call_function(operator.setitem, (next(iter(made.nodes)), 0, 5))
    assert made.eliminate_dead_code() is False


def test_symbols_append_to_graphs():
    codes = []
    for T in LIBRARIES:
        graph = T.fx.Graph()
        x = T.fx.Proxy(graph.placeholder("x"))
        y = T.cat([x, T.nn.functional.softplus(x)], 0).sum(dim=0) / 3
        graph.output(y.node)
        module = T.fx.GraphModule(T.nn.Module(), graph)
        same(
            module(T.zeros(2)),
            T.cat([T.zeros(2), T.nn.functional.softplus(T.zeros(2))]).sum(dim=0) / 3,
        )
        codes.append(module.code)
    assert codes[0] == text(codes[1])


def two_patterns(T: Any) -> Any:
    def f(x, w):
        a = T.relu(x + w)
        b = T.relu(a + w)
        return b + T.relu(x + b), T.relu(x + x)

    return f, lambda p, q: T.relu(p + q), lambda p, q: T.tanh(p) - q


def test_replaced_patterns_are_pytorchs():
    found = []
    for T in LIBRARIES:
        f, pattern, replacement = two_patterns(T)
        traced = T.fx.symbolic_trace(f)
        matches = T.fx.replace_pattern(traced, pattern, replacement)
        found.append((traced.code, [m.nodes_map[m.anchor].name for m in matches]))
        x, w = T.arange(3.0), -T.ones(3)
        a = T.tanh(x) - w
        b = T.tanh(a) - w
        same(traced(x, w), (b + (T.tanh(x) - b), T.relu(x + x)))
    assert found[0] == found[1]


def value_used_twice(T: Any) -> Any:
    def f(x):
        y = x + 1
        return T.relu(y) * y

    return f, lambda p: T.relu(p + 1), lambda p: p


def test_a_value_used_beside_keeps_a_part_from_being_replaced():
    for T in LIBRARIES:
        f, pattern, replacement = value_used_twice(T)
        traced = T.fx.symbolic_trace(f)
        assert T.fx.replace_pattern(traced, pattern, replacement) == []
        same(traced(T.ones(2)), f(T.ones(2)))


def test_arguments_of_a_pattern_stand_for_numbers_too():
    codes = []
    for T in LIBRARIES:
        traced = T.fx.symbolic_trace(lambda x: (x + 1) * 2 + (x + 3) * x)
        matches = T.fx.replace_pattern(traced, lambda p, q: p + q, lambda p, q: q - p)
        codes.append((traced.code, len(matches)))
        same(traced(T.ones(2)), T.full((2,), 2.0))
    assert codes[0] == codes[1]


def test_constants_of_a_pattern_have_to_be_equal():
    for T in LIBRARIES:
        traced = T.fx.symbolic_trace(lambda x: (x + 1) * 2 + (x + 3))
        matches = T.fx.replace_pattern(traced, lambda p: p + 1, lambda p: p - 1)
        assert len(matches) == 1
        same(traced(T.ones(2)), T.full((2,), 4.0))


# ----- interpreters -----


def test_interpreters_give_the_modules_values():
    for T in LIBRARIES:
        model = modules(T)["outer"]()
        traced = T.fx.symbolic_trace(model)
        x = T.arange(6.0).reshape(2, 3)
        interpreter = T.fx.Interpreter(traced)
        same(interpreter.run(x), model(x))
        same(interpreter.run(x, 3.0), model(x, 3.0))
        with pytest.raises(RuntimeError, match="While executing %blocks_0_lin"):
            interpreter.run(T.ones(2, 7))
        with pytest.raises(RuntimeError, match="Expected positional argument for parameter x"):
            interpreter.run()
        x_node = next(iter(traced.graph.nodes))
        same(interpreter.run(initial_env={x_node: x}), model(x))


def softer(T: Any) -> Any:
    class Softer(T.fx.Transformer):
        def call_function(self, target, args, kwargs):
            if target == T.relu:
                return self.call_method("tanh", args, {})
            return super().call_function(target, args, kwargs)

    return Softer


def test_transformers_make_pytorchs_graphs():
    codes = []
    for T in LIBRARIES:
        traced = T.fx.symbolic_trace(modules(T)["outer"]())
        codes.append((traced.code, softer(T)(traced).transform().code))
        same(T.fx.Transformer(traced).transform()(T.ones(1, 3)), traced(T.ones(1, 3)))
    assert codes[0] == codes[1]


def test_shapes_are_pytorchs():
    found = []
    for T in LIBRARIES:
        passes = __import__(f"{T.__name__}.fx.passes.shape_prop", fromlist=["ShapeProp"])
        traced = T.fx.symbolic_trace(modules(T)["block"]())
        same(passes.ShapeProp(traced).propagate(T.ones(2, 3)), traced(T.ones(2, 3)))
        told = []
        for node in traced.graph.nodes:
            meta = node.meta.get("tensor_meta")
            if hasattr(meta, "shape"):
                told.append((tuple(meta.shape), str(meta.dtype).split(".")[1], meta.stride))
        found.append(told)
    assert found[0] == found[1]


# ----- copies -----


@pytest.mark.parametrize("how", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g)), copy.copy])
@pytest.mark.parametrize("name", ["outer", "variadic", "kept"])
def test_copies_do_the_same(how, name):
    traced = adjit.fx.symbolic_trace(modules(adjit)[name]())
    made = how(traced)
    x = adjit.arange(9.0).reshape(3, 3)
    same(run(made, name, x), run(traced, name, x))
    assert made.code == traced.code
    assert type(made).__name__ == type(traced).__name__
    assert made.graph is not traced.graph
    assert made.graph.owning_module is made
    node = made.graph.output_node()
    node.args = (next(iter(made.graph.nodes)),)
    made.recompile()
    assert made.code != traced.code


def test_wrapped_functions_survive_pickles():
    traced = adjit.fx.symbolic_trace(through_wrapped)
    made = pickle.loads(pickle.dumps(traced))
    same(made(-adjit.ones(2)), through_wrapped(-adjit.ones(2)))
    assert made.code == traced.code


def test_submodules_come_and_go():
    for T in LIBRARIES:
        traced = T.fx.symbolic_trace(modules(T)["block"]())
        assert traced.add_submodule("a.b.extra", T.nn.ReLU())
        assert not traced.add_submodule("w.x", T.nn.ReLU())
        with traced.graph.inserting_before(traced.graph.output_node()):
            new = traced.graph.call_module("a.b.extra", traced.graph.output_node().args)
        traced.graph.output_node().args = (new,)
        traced.recompile()
        assert traced(T.ones(2, 3)).min() >= 0
        assert traced.add_submodule("unused", T.nn.Linear(2, 2))
        traced.delete_all_unused_submodules()
        assert [n for n, _ in traced.named_modules()] == [
            "", "lin", "seq", "seq.0", "seq.1", "a", "a.b", "a.b.extra"
        ]  # fmt: skip
        assert traced.delete_submodule("lin")
        assert not traced.delete_submodule("lin")
    traced = adjit.fx.symbolic_trace(doubled_twice)
    with pytest.raises(NotImplementedError, match="to_folder is not supported; write `code`"):
        traced.to_folder("anywhere")


def doubled_twice(x):
    return x * 4


def with_pairs(T: Any) -> Any:
    class Pair(metaclass=T.fx.ProxyableClassMeta):
        def __init__(self, left, right):
            self.left, self.right = left, right

    return lambda x, y: Pair(x, y).left * 2


def test_classes_become_calls():
    names = []
    for T in LIBRARIES:
        traced = T.fx.symbolic_trace(with_pairs(T))
        same(traced(T.ones(2), T.zeros(2)), T.full((2,), 2.0))
        names.append([n.name for n in traced.graph.nodes])
    assert names[0] == names[1]


def test_sequences_and_names_are_pytorchs():
    codes = []
    for T in LIBRARIES:
        traced = T.fx.symbolic_trace(T.nn.Sequential(T.nn.Linear(2, 3), T.nn.ReLU()))
        for node in traced.graph.nodes:
            if node.op == "call_module":
                node._rename("step")
        traced.recompile()
        codes.append((traced.code, str(traced.graph)))
    assert codes[0] == codes[1]


def test_errors_of_nodes_say_which_one_it_was():
    for T in LIBRARIES:
        traced = T.fx.symbolic_trace(lambda x: x["key"])
        with pytest.raises(RuntimeError, match="key"):
            T.fx.Interpreter(traced).run({})
