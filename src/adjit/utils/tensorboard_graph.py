"""The graph of a module for TensorBoard: the functions that its forward calls, in the modules around them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.step_stats_pb2 import DeviceStepStats, StepStats
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.versions_pb2 import VersionDef

from ..nn.module import Module, register_module_forward_hook, register_module_forward_pre_hook
from ..overrides import TorchFunctionMode, name_of
from ..tensor import Tensor
from ._pytree import tree_leaves

PRODUCER = 22  # of the version of graphs that PyTorch writes


class _Recorder(TorchFunctionMode):
    """Notes each function that is called with tensors: a node in the module that is running."""

    def __init__(self, model: Module) -> None:
        self.nodes: dict[str, Any] = {}
        self.held: list[Tensor] = []  # so that no two have one id
        self.names: dict[int, str] = {}  # of nodes, by the ids of the tensors that they give
        self.parameters: dict[int, tuple[str, Tensor]] = {}
        self.scopes: list[str] = []
        self._scope_of: dict[Module, str] = {}
        root = type(model).__name__
        for name, module in model.named_modules():
            scope = root
            path = ""
            for part in name.split(".") if name else ():
                path = f"{path}.{part}".lstrip(".")
                scope += f"/{type(model.get_submodule(path)).__name__}[{part}]"
            self._scope_of[module] = scope
            own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
            for attribute, value in own:
                self.parameters.setdefault(id(value), (f"{scope}/{attribute}", value))

    # ----- modules -----

    def begins(self, module: Module, args: Any) -> None:
        """A module is called."""
        self.scopes.append(self._scope_of.get(module, type(module).__name__))

    def ends(self, module: Module, args: Any, output: Any) -> None:
        """Its call is over."""
        self.scopes.pop()

    # ----- nodes -----

    def add(
        self, name: str, op: str, inputs: list[str], value: Any = None, attributes: str = ""
    ) -> str:
        """Note a node under a name that no other has."""
        unique, more = name, 0
        while unique in self.nodes:
            more += 1
            unique = f"{name}.{more}"
        attr = {"attr": AttrValue(s=attributes.encode())}
        if isinstance(value, Tensor):
            shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in value.shape])
            attr["_output_shapes"] = AttrValue(list=AttrValue.ListValue(shape=[shape]))
        self.nodes[unique] = NodeDef(name=unique, op=op, input=inputs, attr=attr)
        return unique

    def gives(self, name: str, value: Tensor) -> None:
        """Note which node gives a tensor from now on."""
        self.held.append(value)
        self.names[id(value)] = name

    def name_of(self, value: Tensor) -> str:
        """The node that gives a tensor: where none did, a parameter, or a constant of the module that runs."""
        if id(value) not in self.names:
            if id(value) in self.parameters:
                path, _ = self.parameters[id(value)]
                attribute = path.rpartition("/")[2]
                name = self.add(f"{path}/{attribute}", "prim::GetAttr", [], value)
            else:
                name = self.add(f"{self.scopes[-1]}/constant", "prim::Constant", [], value)
            self.gives(name, value)
        return self.names[id(value)]

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        results = [t for t in tree_leaves(made) if isinstance(t, Tensor)]
        if not results or not self.scopes:
            return made
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        inputs = [self.name_of(t) for t in given]
        op = name_of(func).strip("_")
        name = self.add(f"{self.scopes[-1]}/{op}", f"aten::{op}", inputs, results[0], "{}")
        for result in results:
            self.gives(name, result)
        return made


@contextlib.contextmanager
def _evaluating(model: Module) -> Iterator[None]:
    """A block in which a module and its parts are not in training."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def graph_of(model: Module, given: Any, verbose: bool) -> tuple[Any, Any]:
    """The graph of a call of a module, and what TensorBoard wants to know of the run."""
    args = given if isinstance(given, tuple) else (given,)
    recorder = _Recorder(model)
    names = [name for name in inspect.signature(model.forward).parameters if name != "self"]
    for k, value in enumerate(args):
        name = names[k] if k < len(names) else f"input.{k + 1}"
        for leaf in tree_leaves(value):
            if isinstance(leaf, Tensor):
                recorder.gives(recorder.add(f"input/{name}", "IO Node", [], leaf), leaf)
    hooks = (
        register_module_forward_pre_hook(recorder.begins),
        register_module_forward_hook(recorder.ends),
    )
    try:
        with _evaluating(model), recorder:
            made = model(*args)
    finally:
        for hook in hooks:
            hook.remove()
    recorder.scopes.append(type(model).__name__)  # of constants that it returns
    for k, value in enumerate([t for t in tree_leaves(made) if isinstance(t, Tensor)]):
        recorder.add(f"output/output.{k + 1}", "IO Node", [recorder.name_of(value)], value)
    used = {name for node in recorder.nodes.values() for name in node.input}
    nodes = [
        node
        for name, node in recorder.nodes.items()
        if name in used or not name.startswith("input/")
    ]
    if verbose:
        for node in nodes:
            print(f"{node.name} = {node.op}({', '.join(node.input)})")
    stats = StepStats(dev_stats=[DeviceStepStats(device="/device:CPU:0")])
    graph = GraphDef(node=nodes, versions=VersionDef(producer=PRODUCER))
    return graph, RunMetadata(step_stats=stats)
