"""Modules of PyTorch that programs import and that lie elsewhere here, with the modules that have their names.

`import adjit.nn.modules.batchnorm` and `from adjit.nn.modules.batchnorm import _BatchNorm` work, as do the
attributes. A path has no names of its own: it asks its homes, in their order, whenever somebody asks it, and
after them the table of what is there by name only.
Classes and functions keep the `__module__` of their home, so pickles know nothing of paths.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .absent import AbsentModules, absent, known

ROOT = __name__.rpartition(".")[0]

# Without the name of the library, which stands for its top.
PATHS = {
    "_C._functorch": ("tracers.batched",),
    "_dynamo._trace_wrapped_higher_order_op": ("_dynamo",),
    "_custom_ops": ("library",),
    "_dynamo.utils": ("_dynamo",),
    "_inductor": (),
    "_jit_internal": ("jit.internal", "jit", "jit.annotations"),
    "_inductor.config": (),
    "_subclasses": ("names",),
    "_subclasses.fake_tensor": ("names",),
    "_vmap_internals": ("func.vmap",),
    "_tensor": ("tensor", "_utils"),
    "_tensor_str": ("printing",),
    "fft": (),
    "functional": ("",),
    "ao": (),
    "ao.quantization": (),
    "autograd.anomaly_mode": ("autograd.modes",),
    "autograd.grad_mode": ("autograd.modes",),
    "autograd.profiler": ("profiler",),
    "autograd.variable": ("autograd.api",),
    "cuda.memory": ("cuda",),
    "cuda.random": ("cuda",),
    "nn._reduction": ("nn.reduction",),
    "nn.modules": ("nn",),
    "nn.modules.activation": ("nn.activation", "nn"),
    "nn.modules.batchnorm": ("nn.norm", "nn"),
    "nn.modules.channelshuffle": ("nn.resizing",),
    "nn.modules.container": ("nn.container", "nn"),
    "nn.modules.conv": ("nn.conv", "nn", "nn.tuples"),
    "nn.modules.distance": ("nn.layers",),
    "nn.modules.dropout": ("nn.layers",),
    "nn.modules.flatten": ("nn.layers",),
    "nn.modules.fold": ("nn.resizing",),
    "nn.modules.instancenorm": ("nn.norm", "nn"),
    "nn.modules.linear": ("nn.layers", "nn.transformer", "nn"),
    "nn.modules.loss": ("nn.loss", "nn"),
    "nn.modules.module": ("nn.module",),
    "nn.modules.normalization": ("nn.norm", "nn.layers", "nn"),
    "nn.modules.padding": ("nn.padding",),
    "nn.modules.pixelshuffle": ("nn.resizing",),
    "nn.modules.pooling": ("nn.pooling", "nn.tuples"),
    "nn.modules.rnn": ("nn",),
    "nn.modules.sparse": ("nn.layers", "nn"),
    "nn.modules.transformer": ("nn.transformer", "nn"),
    "nn.modules.upsampling": ("nn.resizing",),
    "nn.modules.utils": ("nn.tuples", "nn.utils"),
    "nn.quantized": (),
    "optim.adamw": ("optim",),
    "quantization": (),
    "quantization.observer": (),
    "quantization.qconfig": (),
    "utils.data._utils": ("utils.data",),
    "utils.data._utils.collate": ("utils.data.collate",),
    "utils.data._utils.fetch": ("utils.data.workers",),
    "utils.data._utils.pin_memory": ("utils.data.collate",),
    "utils.data._utils.worker": ("utils.data.workers",),
    "utils.data.dataloader": ("utils.data.loader", "utils.data.workers", "utils.data"),
    "utils._device": (),
    "utils._python_dispatch": (),
    "utils.cpp_extension": (),
    "utils.hooks": ("graph.node",),
    "utils.model_zoo": ("hub",),
}


_names_of_its_own = vars(ModuleType)["__dict__"].__get__


class ModulePath(ModuleType):
    """A module whose names are those of others."""

    __slots__ = ("homes",)

    def __init__(self, name: str, homes: tuple[str, ...]) -> None:
        super().__init__(name, f"PyTorch's path to what {ROOT} has in {', '.join(homes) or ROOT}.")
        self.__spec__ = ModuleSpec(name, None, origin="path", is_package=True)
        self.__path__: list[str] = []
        self.homes = [f"{ROOT}.{home}".rstrip(".") for home in homes]

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """What `vars` gives: names of its own, and those of its homes, as they are now."""
        names = (name for name in dir(self) if not name.startswith("__"))
        return _names_of_its_own(self) | {name: getattr(self, name) for name in names}

    def __getattr__(self, name: str) -> Any:
        room = self.__name__.partition(".")[2]
        if name.startswith("__") and name != "__all__":
            raise absent(room, name)
        error = None
        for home in self.homes:
            try:
                return getattr(importlib.import_module(home), name)
            except AttributeError as told:
                error = told
        try:
            return known(room, name)
        except AttributeError as told:
            raise error or told from None

    def __dir__(self) -> list[str]:
        names = {name for home in self.homes for name in dir(importlib.import_module(home))}
        return sorted({*_names_of_its_own(self), *names})


class UnderAnotherName(MetaPathFinder, Loader):
    """Gives modules of this library to a program that has put it under PyTorch's name.

    After `sys.modules["torch"] = adjit` the name `torch.nn` would be found in the library's folder, and its
    code run once more, beside that which is there: other classes, other tensors.
    """

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Find what is asked for among the modules of this library."""
        if not fullname.startswith(OTHER) or sys.modules.get(OTHER[:-1]) is not sys.modules[ROOT]:
            return None
        own = importlib.import_module(f"{ROOT}.{fullname.removeprefix(OTHER)}")
        return ModuleSpec(fullname, self, loader_state=(own, own.__spec__), is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        found: ModuleType = spec.loader_state[0]
        return found

    def exec_module(self, module: ModuleType) -> None:
        """Give it back what the import system has written over."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state[1]


OTHER = "torch."


def put_in_place() -> None:
    """Have the import system and the modules around them know the paths, and what is missing."""
    sys.meta_path.insert(0, UnderAnotherName())
    sys.meta_path.append(AbsentModules())
    for path, homes in PATHS.items():
        place(path, homes)


def place(path: str, homes: tuple[str, ...]) -> None:
    """Have one path in the module around it."""
    name = f"{ROOT}.{path}"
    module = sys.modules[name] = ModulePath(name, homes)
    around, _, last = name.rpartition(".")
    setattr(sys.modules[around], last, module)
