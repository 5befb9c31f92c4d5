"""Modules whose forward is compiled."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from ..captured.compiled import compile, compiled_forms
from .module import Module


class OptimizedModule(Module):
    """What `adjit.compile(module)` gives: a module that is called through captures of the other's forward.

    Parameters, buffers and submodules are the other's, under `_orig_mod.` in a `state_dict`; attributes
    are read from and written to it.
    """

    _orig_mod: Module
    _own = frozenset({"_orig_mod", "_compiled"})

    def __init__(self, module: Module, compiled: Any) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["_compiled"] = compiled
        del self.__dict__["training"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The other's forward, compiled."""
        return self._compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._own or "_orig_mod" not in self.__dict__.get("_modules", ()):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __len__(self) -> int:
        if isinstance(self._orig_mod, Sized):
            return len(self._orig_mod)
        raise TypeError(f"{type(self._orig_mod).__name__} does not support len()")

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __reduce__(self) -> Any:
        return compile, (self._orig_mod,)

    def extra_repr(self) -> str:
        return ""


compiled_forms[Module] = OptimizedModule
