"""What tensors that stand for others have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..graph import record
from ..graph.levels import Level
from ..graph.node import RemovableHandle
from ..tensor import Tensor, plainly


def _of_value(name: str) -> Any:
    """A field that is the one of the tensor behind."""
    return property(lambda t: getattr(t._value, name), lambda t, new: setattr(t._value, name, new))


class Tracer(Tensor):
    """A tensor of a level, which stands for `value`. It has a spec, and no memory that anybody could read.

    Where it is in the graph is where `value` is: levels around it, and backward nodes, know only that.
    """

    __slots__ = ("_level", "_value")
    __torch_function__ = plainly
    if TYPE_CHECKING:
        _level: Any
        _value: Tensor

    _version_counter = _of_value("_version_counter")
    _needs_grad = _of_value("_needs_grad")
    _edge = _of_value("_edge")
    _view_of = _of_value("_view_of")
    _autograd_meta = _of_value("_autograd_meta")

    @property
    def _storage(self) -> Any:  # type: ignore[override]
        """There is none: whoever asks has not been told what to do with this tensor."""
        raise NotImplementedError(f"Cannot access storage of {type(self).__name__}TensorImpl")

    def _current_fn(self) -> Any:
        """`grad_fn` of a view, brought up to date with its base."""
        return self._value._current_fn()

    def _accumulator(self) -> Any:
        """The node at which the gradients of this leaf arrive."""
        return self._value._accumulator()

    def detach(self) -> Tensor:
        """The same without history."""
        return self._like(self._value.detach())

    @property  # type: ignore[misc]
    def data(self) -> Tensor:
        """The same without history, with a version counter of its own."""
        return self._like(self._value.data)

    def detach_(self) -> Tensor:
        """Forget the history."""
        self._value.detach_()
        return self

    def register_hook(self, hook: Callable[[Tensor], Any]) -> RemovableHandle:
        """Call `hook(grad)` each time a gradient arrives here."""

        def on_value(g: Tensor) -> Any:
            made = hook(self._level.dressed(g))
            return self._level.stripped(made) if record.is_tensor(made) else made

        return self._value.register_hook(on_value)

    def _become(self, other: Tracer) -> None:
        """Stand for what another tracer of this level stands for."""
        self._value, self._spec, self._offset = other._value, other._spec, other._offset

    def _like(self, value: Tensor) -> Tensor:
        """A tracer of the same level that stands for another tensor."""
        return tracer(type(self), self._level, value, self._spec)

    def _parts(self) -> tuple[Tensor, ...]:
        """The tensors behind it that may have a history each."""
        return (self._value,)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> Tensor:
        """The same with `change` of each part in its place."""
        return self._like(change(self._value))


def tracer(cls: type[Any], level: Level, value: Tensor, spec: Any) -> Any:
    """A tracer that stands for `value` and looks like `spec`."""
    made = record.new_tensor(cls)
    made._level, made._value = level, value
    made._spec, made._offset = spec, value._offset
    return made
