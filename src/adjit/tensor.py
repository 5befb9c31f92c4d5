"""The tensor: a handle on a storage. Its arithmetic comes from the op table."""

from __future__ import annotations

import contextlib
import copy as copying
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import devices, dtypes, errors, formats, printing
from .absent import Missing, is_missing, missing_methods
from .dtypes import dtype
from .graph import copies, record, write
from .graph.export import attach_methods
from .graph.levels import tracers
from .graph.links import links_of
from .graph.node import Meta, RemovableHandle, Spec, TensorBase, reported_offset
from .graph.state import State, observers, state
from .graph.view import current_fn
from .schedule import settle as scheduling
from .schedule.jit import native
from .shapes import Size, check_bool
from .storage import Export, Storage, Version

MOST_AXES_OF_NUMPY = 64


class ItemContext(NamedTuple):
    """What making Python's numbers of elements needs."""

    fallback: Callable[..., Any]
    tensor_classes: set[Any]
    cpu: devices.device
    observers: list[Any]
    value_of: Callable[..., Any]
    state: State
    deterministic: str  # the name of a switch of the state
    false: bool
    true: bool


native.register_layout(ITEM=ItemContext)


IN_TRANSFORM = (
    "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* APIs) "
    "inside of a function being transformed by a functorch transform. This is unsupported, please attempt to "
    "use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call requires_grad_() outside "
    "of a function being transformed instead."
)

subclass_hooks: list[Callable[[type], object]] = []  # called with new subclasses of `Tensor`


@staticmethod  # type: ignore[misc]
def plainly(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_function__` of classes that functions take as plain tensors, and do not ask."""
    with asking_nobody():
        return func(*args, **(kwargs or {}))


asking_nobody: Callable[[], Any] = contextlib.nullcontext  # what `overrides.py` puts here


def _reading(name: str) -> Callable[[Callable[..., Any]], Any]:
    """A method that makes Python's numbers of elements."""

    def made(fallback: Callable[..., Any]) -> Any:
        context = ItemContext(
            fallback, record.tensor_classes, devices.CPU, observers, scheduling.value_of, state,
            native.named(State, "deterministic"), False, True,
        )  # fmt: skip
        return native.FastPath("item", name).function(fallback, context)

    return made


class Tensor(TensorBase):
    """A multi-dimensional array of one dtype that can record how it was computed.

    `Tensor(data)` makes a copy in the default dtype, `Tensor(2, 3)` an uninitialised tensor of
    that shape; `adjit.tensor(data)` is the usual way.

    Example:
        >>> x = adjit.tensor([2.0, 3.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([4., 6.])
    """

    __slots__ = ("__dict__", "__weakref__", "_autograd_meta", "_edge", "_needs_grad", "_offset", "_spec",
                 "_storage", "_version_counter", "_view_of")  # fmt: skip
    _uninitialized = False  # whether operations refuse it: a parameter whose shape is not known yet

    if TYPE_CHECKING:  # the op table adds these when it is imported

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, key: Any) -> Tensor: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __eq__(self, other: Any) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Tensor: ...  # type: ignore[override]

    # Any comparison with a NumPy array or scalar goes through this class.
    __array_priority__ = 1000

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        for name in Tensor.__slots__:
            if name in own and not isinstance(own[name], property):
                raise TypeError(
                    f"class {cls.__name__} defines {name}, which is a field of every tensor here: "
                    "choose another name"
                )
        native.keep_attributes_in_dicts(cls)  # as its own, so that one can become the other
        for hook in subclass_hooks:
            hook(cls)

    # ----- geometry -----

    @property
    def shape(self) -> Size:
        """The sizes of the axes, as `adjit.Size`.

        Example:
            >>> adjit.zeros(2, 3).shape
            adjit.Size([2, 3])
        """
        return self._spec.shape

    def size(self, dim: int | None = None) -> Any:
        """Give the shape, or the size of one axis.

        Example:
            >>> adjit.zeros(2, 3).size(), adjit.zeros(2, 3).size(-1)
            (adjit.Size([2, 3]), 3)
        """
        shape = self._spec.shape
        if dim is None:
            return shape
        if dim.__class__ is int and -len(shape) <= dim < len(shape):
            return tuple.__getitem__(shape, dim)
        from .shapes import wrap_dim

        if not self._spec.ndim:
            raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        return shape[wrap_dim(dim, self._spec.ndim)]

    @property
    def ndim(self) -> int:
        """The number of axes.

        Example:
            >>> adjit.zeros(2, 3).ndim
            2
        """
        return self._spec.ndim

    def dim(self) -> int:
        """Count the axes.

        Example:
            >>> adjit.zeros(2, 3).dim()
            2
        """
        return self._spec.ndim

    ndimension = dim

    def numel(self) -> int:
        """Count the elements.

        Example:
            >>> adjit.zeros(2, 3).numel()
            6
        """
        return self._spec.numel

    nelement = numel

    def stride(self, dim: int | None = None) -> Any:
        """Give the elements to step over from one index to the next, of all axes or of one.

        Example:
            >>> adjit.zeros(2, 3).stride(), adjit.zeros(2, 3).stride(0)
            ((3, 1), 3)
        """
        if dim is None:
            return self._spec.reported
        from .shapes import wrap_dim

        return self._spec.reported[wrap_dim(dim, self._spec.ndim)]

    def storage_offset(self) -> int:
        """Tell where the first element lies in the storage, in elements.

        Example:
            >>> adjit.zeros(2, 3)[1].storage_offset()
            3
        """
        whole = (self if self._view_of is None else self._view_of.base)._spec
        return reported_offset(whole, self._offset) if whole.chosen else self._offset

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """True if the elements lie in C order without gaps; `memory_format` asks for `channels_last` or
        `channels_last_3d` instead.

        Example:
            >>> adjit.zeros(2, 3).is_contiguous(), adjit.zeros(2, 3).t().is_contiguous()
            (True, False)
        """
        if memory_format is None and not self._spec.chosen:
            return self._spec.contiguous
        formats.check("is_contiguous", memory_format)
        return formats.is_in(self._spec, memory_format)

    @property
    def dtype(self) -> dtype:
        """The type of the elements.

        Example:
            >>> adjit.zeros(2).dtype
            adjit.float32
        """
        return self._spec.dtype

    @property
    def device(self) -> devices.device:
        """The device that the elements are on.

        Example:
            >>> adjit.zeros(2).device
            device(type='cpu')
        """
        return self._spec.device

    @property
    def itemsize(self) -> int:
        """Bytes of one element.

        Example:
            >>> adjit.zeros(2).itemsize
            4
        """
        return self._spec.dtype.itemsize

    def element_size(self) -> int:
        """Tell the bytes of one element.

        Example:
            >>> adjit.zeros(2).element_size()
            4
        """
        return self._spec.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements.

        Example:
            >>> adjit.zeros(2, 3).nbytes
            24
        """
        return self._spec.numel * self._spec.dtype.itemsize

    @property
    def layout(self) -> formats.layout:
        """Always strided.

        Example:
            >>> adjit.zeros(2).layout
            adjit.strided
        """
        return formats.strided

    is_nested = is_mkldnn = is_sparse_csr = False
    name = None

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """Give the tensor itself, as every tensor is dense; in another dtype if so asked.

        Example:
            >>> x = adjit.ones(2)
            >>> x.to_dense() is x
            True
        """
        return self if dtype is None else self.to(dtype)

    def is_distributed(self) -> bool:
        """False: no tensor lies in several processes.

        Example:
            >>> adjit.ones(2).is_distributed()
            False
        """
        return False

    @property
    def is_cuda(self) -> bool:
        """True if the elements are on a GPU.

        Example:
            >>> adjit.zeros(2).is_cuda
            False
        """
        return self._spec.device is not devices.CPU

    @property
    def is_cpu(self) -> bool:
        """True if the elements are in the memory of the CPU.

        Example:
            >>> adjit.zeros(2).is_cpu
            True
        """
        return self._spec.device is devices.CPU

    _is_plain = True  # in the body of a class: its text form does not tell the class
    is_sparse = is_quantized = False
    is_meta = is_mps = is_xpu = is_xla = is_mtia = is_ipu = is_maia = is_vulkan = False

    def get_device(self) -> int:
        """Tell the number of the GPU that the elements are on, -1 on the CPU.

        Example:
            >>> adjit.zeros(2).get_device()
            -1
        """
        index = self._spec.device.index
        return -1 if index is None else index

    def is_floating_point(self) -> bool:
        """True if the dtype is a floating one.

        Example:
            >>> adjit.zeros(2).is_floating_point(), adjit.tensor(1).is_floating_point()
            (True, False)
        """
        return self._spec.dtype.is_floating_point

    def is_complex(self) -> bool:
        """True if the dtype is complex: never, as no tensor here is.

        Example:
            >>> adjit.zeros(2).is_complex()
            False
        """
        return False

    def is_signed(self) -> bool:
        """True if the dtype has negative numbers.

        Example:
            >>> adjit.zeros(2).is_signed(), adjit.tensor(True).is_signed()
            (True, False)
        """
        return self._spec.dtype.is_signed

    def is_inference(self) -> bool:
        """True if the tensor was made in inference mode.

        Example:
            >>> adjit.zeros(2).is_inference()
            False
        """
        return self._version_counter is record.INFERENCE

    def is_same_size(self, other: Tensor) -> bool:
        """True if another tensor has the same shape.

        Example:
            >>> adjit.zeros(2).is_same_size(adjit.ones(2))
            True
        """
        return self._spec.shape == other._spec.shape

    def is_set_to(self, tensor: Tensor) -> bool:
        """True if another tensor is the same view of the same storage.

        Example:
            >>> x = adjit.zeros(2)
            >>> x.is_set_to(x.view(2)), x.is_set_to(x.clone())
            (True, False)
        """
        is_same = self._storage is tensor._storage and self._offset == tensor._offset
        mine, other = self._spec, tensor._spec  # of which there may be two that are alike
        alike = (mine.shape, mine.strides, mine.dtype) == (other.shape, other.strides, other.dtype)
        return is_same and alike

    def data_ptr(self) -> int:
        """Give the address of the first element; from now on writes go to the same bytes.

        Raises:
            RuntimeError: where the library has laid out the elements otherwise than `stride()` reports.

        Example:
            >>> x = adjit.zeros(2)
            >>> x.view(2).data_ptr() == x.data_ptr()
            True
        """
        spec = self._spec
        if spec.chosen:
            raise RuntimeError(
                f"data_ptr(): the elements of this tensor lie with strides {spec.strides}, not as stride() "
                "reports them; ask that of x.clone(memory_format=torch.contiguous_format), or use x.numpy() or "
                "DLPack, which tell the strides"
            )
        return self._address()

    def _address(self) -> int:
        """The address of the first element, where it stays."""
        if self._spec.numel == 0:
            return 0
        if not self._storage.shared:
            self._share()
            self._storage.shared += 1
        return record.value_address(self)

    def untyped_storage(self) -> Any:
        """Give the storage, with `data_ptr()` and `nbytes()`: equal addresses mean shared memory.

        Example:
            >>> x = adjit.zeros(2, 3)
            >>> x[1].untyped_storage().nbytes()
            24
        """
        return StorageView(self)

    def storage(self) -> Any:
        """Give the storage as numbers of the tensor's dtype, with a warning as in PyTorch.

        Example:
            >>> len(adjit.zeros(2, 3)[1].storage())
            6
        """
        warnings.warn(
            "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only "
            "storage class. This should only matter to you if you are using storages directly.  To access "
            "UntypedStorage directly, use tensor.untyped_storage() instead of tensor.storage()",
            UserWarning, stacklevel=2,
        )  # fmt: skip
        whole = self._storage
        return TypedStorage(record.make_tensor(whole, whole.spec, 0))

    # ----- autograd fields -----

    @property
    def _fn(self) -> Any:
        """The backward node as it is recorded here; `grad_fn` follows a base written since."""
        return None if self._edge is None else self._edge[0]

    @property
    def _nr(self) -> int:
        """The number of the output of the backward node that this tensor is."""
        return 0 if self._edge is None else self._edge[1]

    def _more(self) -> Meta:
        """The rare fields, made when first asked for."""
        if self._autograd_meta is None:
            self._autograd_meta = Meta()
        return self._autograd_meta

    @property
    def requires_grad(self) -> bool:
        """True if gradients are recorded for this tensor. Can be set on leaves.

        Example:
            >>> x = adjit.ones(2, requires_grad=True)
            >>> x.requires_grad, (x * 2).requires_grad, x.detach().requires_grad
            (True, True, False)
        """
        return record.needs_grad(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value is not True and value is not False:
            raise RuntimeError("requires_grad must be a bool")
        if value and self.grad_fn is not None:
            raise RuntimeError("you can only change requires_grad flags of leaf variables.")
        if value and not self._spec.dtype.is_floating_point:
            raise RuntimeError(
                "only Tensors of floating point and complex dtype can require gradients"
            )
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Record gradients from now on, or no longer; returns the tensor.

        Raises:
            RuntimeError: on a tensor that is not a leaf, or not of floating-point dtype.

        Example:
            >>> adjit.ones(2).requires_grad_()
            tensor([1., 1.], requires_grad=True)
        """
        check_bool("requires_grad_", "requires_grad", requires_grad)
        value = requires_grad
        if state.inside or state.levels:
            raise RuntimeError(IN_TRANSFORM)
        if self.grad_fn is not None and not value:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a "
                "computed variable in a subgraph that doesn't require differentiation use "
                "var_no_grad = var.detach()."
            )
        if value and not self._spec.dtype.is_floating_point:
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        if value and self._version_counter is record.INFERENCE and not state.inference:
            raise RuntimeError(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
            )
        if self._fn is None:
            self._needs_grad = value
        return self

    @property
    def is_leaf(self) -> bool:
        """True if the tensor was not computed from tensors that need gradients.

        Example:
            >>> x = adjit.ones(2, requires_grad=True)
            >>> x.is_leaf, (x * 2).is_leaf
            (True, False)
        """
        return self.grad_fn is None

    @property
    def grad_fn(self) -> Any:
        """The backward function that made this tensor, None on leaves.

        Example:
            >>> x = adjit.ones(2, requires_grad=True)
            >>> (x * 2).grad_fn.name(), x.grad_fn
            ('MulBackward0', None)
        """
        return self._fn if self._view_of is None else current_fn(self)

    def _current_fn(self) -> Any:
        """`grad_fn` of a view, brought up to date with its base."""
        return current_fn(self)

    def _accumulator(self) -> Any:
        """The node at which the gradients of this leaf arrive; the engine puts its own here."""
        raise NotImplementedError

    @property
    def output_nr(self) -> int:
        """The number of the output of `grad_fn` that this tensor is.

        Example:
            >>> adjit.ones(2, requires_grad=True).unbind()[1].output_nr
            1
        """
        return self._nr

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf, or None.

        Example:
            >>> x = adjit.tensor([1., 2.], requires_grad=True)
            >>> x.square().sum().backward()
            >>> x.grad
            tensor([2., 4.])
        """
        if self._autograd_meta is not None and self._autograd_meta.grad is not None:
            return self._autograd_meta.grad
        if self._fn is not None and not (
            self._autograd_meta is not None and self._autograd_meta.retains_grad
        ):
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(). If you indeed want "
                "the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the "
                "non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you "
                "access the leaf Tensor instead. See github.com/pytorch/pytorch/pull/30531 for "
                "more information.",
                UserWarning,
                stacklevel=2,
            )
        return None

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not record.is_tensor(value):
                raise TypeError(
                    f"assigned grad expected to be a Tensor or None but got grad of type "
                    f"{type(value).__name__}"
                )
            if value is self:
                raise RuntimeError("can't assign Variable as its own grad")
            if value._spec.dtype is not self._spec.dtype:
                raise RuntimeError(
                    f"attempting to assign a gradient with dtype '{value.dtype.row.c}' to a "
                    f"tensor with dtype '{self.dtype.row.c}'. The gradient must match the "
                    "tensor's dtype (or the tensor's grad_dtype if set). You can use "
                    "`tensor.grad_dtype` to set the desired gradient dtype."
                )
            if value._spec.device is not self._spec.device:
                raise RuntimeError(
                    f"attempting to assign a gradient with device type '{value.device.type}' to a "
                    f"tensor with device type '{self.device.type}'. Please ensure that the gradient "
                    "and the tensor are on the same device"
                )
            if value._spec.shape != self._spec.shape:
                raise RuntimeError(
                    f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of "
                    f"size '{list(self.shape)}'. Please ensure that the gradient and the tensor are "
                    "the same size"
                )
        self._set_grad(value)

    @grad.deleter
    def grad(self) -> None:
        self._set_grad(None)

    @property
    def _grad(self) -> Tensor | None:
        """PyTorch's name of `grad` without the warning."""
        value: Tensor | None = self._grad_value()
        return value

    @_grad.setter
    def _grad(self, value: Tensor | None) -> None:
        self.grad = value

    def _grad_value(self) -> Any:
        """`grad` without the warning."""
        return None if self._autograd_meta is None else self._autograd_meta.grad

    def _set_grad(self, value: Any) -> None:
        """Set `grad` without the checks."""
        self._more().grad = value

    @property
    def retains_grad(self) -> bool:
        """True if this non-leaf keeps its gradient; see `retain_grad`.

        Example:
            >>> y = adjit.ones(2, requires_grad=True) * 2
            >>> y.retain_grad()
            >>> y.retains_grad
            True
        """
        return self._autograd_meta is not None and self._autograd_meta.retains_grad

    def retain_grad(self) -> None:
        """Keep the gradient of this tensor too, although it is not a leaf.

        Raises:
            RuntimeError: if the tensor needs no gradient.

        Example:
            >>> y = adjit.ones(2, requires_grad=True) * 2
            >>> y.retain_grad()
            >>> y.square().sum().backward()
            >>> y.grad
            tensor([4., 4.])
        """
        import weakref

        if not self.requires_grad:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        fn = self.grad_fn
        if fn is not None:
            self._more().retains_grad = True
            fn.more().retained[self._nr] = weakref.ref(self)

    @property
    def _version(self) -> int:
        if self._version_counter is record.INFERENCE:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._version_counter.version

    @property
    def _cdata(self) -> int:
        """A number that no other living tensor has."""
        return id(self)

    @property
    def _base(self) -> Any:
        return None if self._view_of is None else self._view_of.base

    def _is_view(self) -> bool:
        return self._view_of is not None

    def register_hook(self, hook: Callable[[Tensor], Any]) -> RemovableHandle:
        """Call `hook(grad)` each time a gradient arrives here; what it returns replaces it.

        Raises:
            RuntimeError: if the tensor needs no gradient.

        Example:
            >>> x = adjit.tensor(3., requires_grad=True)
            >>> handle = x.register_hook(lambda grad: 10 * grad)
            >>> (x * 2).backward()
            >>> x.grad
            tensor(20.)
        """
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        fn = self.grad_fn
        if fn is None:
            hooks = self._more().hooks
            self._accumulator().more().tensor_hooks[0] = hooks
            return RemovableHandle(hooks, hook)
        return RemovableHandle(fn.more().tensor_hooks.setdefault(self._nr, {}), hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Call `hook(tensor)` after a gradient has been added to `.grad` of this leaf.

        Raises:
            RuntimeError: if the tensor is not a leaf or needs no gradient.

        Example:
            >>> x = adjit.tensor(3., requires_grad=True)
            >>> handle = x.register_post_accumulate_grad_hook(lambda t: print(t.grad))
            >>> (x * 2).backward()
            tensor(2.)
        """
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if self.grad_fn is not None:
            raise RuntimeError(
                "post accumulate grad hooks cannot be registered on non-leaf tensors"
            )
        return RemovableHandle(self._more().post_hooks, hook)

    def detach(self) -> Tensor:
        """Give the same elements without history; shares storage and version counter.

        Example:
            >>> x = adjit.ones(2, requires_grad=True)
            >>> (x * 2).detach()
            tensor([2., 2.])
        """
        return record.make_tensor(self._storage, self._spec, self._offset, self._version_counter)

    def detach_(self) -> Tensor:
        """Forget the history of this tensor.

        Raises:
            RuntimeError: on a view.

        Example:
            >>> x = adjit.ones(2, requires_grad=True) * 2
            >>> x.detach_()
            tensor([2., 2.])
        """
        if self._view_of is not None:
            raise RuntimeError(
                "Can't detach views in-place. Use detach() instead. If you are using "
                "DistributedDataParallel (DDP) for training, and gradient_as_bucket_view is set as "
                "True, gradients are views of DDP buckets, and hence detach_() cannot be called on "
                "these gradients. To fix this error, please refer to the Optimizer.zero_grad() "
                "function in torch/optim/optimizer.py as the solution."
            )
        self._edge, self._needs_grad = None, False
        return self

    @property
    def data(self) -> Tensor:
        """The same elements without history and with a version counter of their own.

        Example:
            >>> x = adjit.ones(2, requires_grad=True)
            >>> x.data.mul_(3)
            tensor([3., 3.])
            >>> x
            tensor([3., 3.], requires_grad=True)
        """
        return record.make_tensor(self._storage, self._spec, self._offset, Version())

    @data.setter
    def data(self, value: Tensor) -> None:
        if not record.is_tensor(value):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        if self._needs_grad and not value._spec.dtype.is_floating_point:
            raise RuntimeError(
                "data set to a tensor that requires gradients must be floating point or complex dtype"
            )
        storage, spec, offset, counter = (
            value._storage,
            value._spec,
            value._offset,
            self._version_counter,
        )
        if counter.__class__ is Storage:
            counter = Version()
            counter.version = self._version_counter.version
        self._storage, self._spec, self._offset, self._version_counter = (
            storage,
            spec,
            offset,
            counter,
        )

    def as_subclass(self, cls: type[Any]) -> Any:
        """Give a view of the tensor as an instance of a subclass. Differentiable.

        Example:
            >>> class Image(adjit.Tensor):
            ...     pass
            >>> isinstance(adjit.zeros(2, 2).as_subclass(Image), Image)
            True
        """
        is_leaf = state.grad and self._edge is None and record.needs_grad(self)
        return (self.view_as(self) if is_leaf else self)._of_class(cls)

    @staticmethod
    def _make_subclass(cls: type[Any], data: Tensor, require_grad: bool = False) -> Any:
        """A leaf of a subclass on the storage of a tensor, as classes of parameters make them in PyTorch.

        Raises:
            TypeError: for what is no tensor, and no subclass.
            RuntimeError: `require_grad` with a dtype that cannot carry a gradient.
        """
        if not record.is_tensor(data):
            raise TypeError(
                "_make_subclass(): argument 'data' (position 2) must be Tensor, not "
                f"{type(data).__name__}"
            )
        if not issubclass(cls, Tensor):
            raise TypeError(
                "Creating a Tensor subclass from a class that does not inherit from Tensor is not "
                "possible. Make sure your class inherits from Tensor."
            )
        if require_grad and not (data.is_floating_point() or data.is_complex()):
            raise RuntimeError(
                "Only Tensors of floating point and complex dtype can require gradients"
            )
        return data.detach()._of_class(cls).requires_grad_(require_grad)

    def _of_class(self, cls: type[Any]) -> Any:
        """The same handle as one of another class: a leaf is another leaf."""
        made = record.new_tensor(cls)
        made._storage, made._spec, made._offset = self._storage, self._spec, self._offset
        made._version_counter, made._view_of = self._version_counter, self._view_of
        made._needs_grad, made._edge = self._needs_grad, self._edge
        made._autograd_meta = None
        if not cls._uninitialized:
            record.tensor_classes.add(cls)
        return made

    # ----- looking at values -----

    def _share(self) -> None:
        """Make the value the storage's own, settled: others will look at its bytes."""
        state.deterministic = False
        storage = self._storage
        with scheduling.lock:
            value = scheduling.value_of(storage)
            if not storage.shared:
                scheduling.compute_readers(value)
                storage.value = scheduling.own(value, storage.spec)

    def _values(self) -> np.ndarray[Any, Any]:
        """A NumPy array on the current bytes, for reading at once and not for keeping."""
        state.deterministic = False
        spec = self._spec
        if spec.numel == 0:
            return np.empty(spec.shape, spec.dtype.numpy)
        if spec.device is not devices.CPU:
            return on_host(self)._values()
        value = scheduling.value_of(self._storage)
        address = value.address + self._offset * spec.dtype.itemsize
        return np.asarray(_Look(value, {**_geometry_of(spec), "data": (address, True)}))

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """Give a NumPy array on the same memory: writes to one are seen by the other.

        The array can only be read where the tensor cannot be written in place (see `view`).

        Args:
            force: detach first where needed.

        Raises:
            RuntimeError: if the tensor needs gradients, these are recorded and `force` is False.
            TypeError: if it is on a GPU and `force` is False.

        Example:
            >>> adjit.tensor([1., 2.]).numpy()
            array([1., 2.], dtype=float32)
        """
        check_bool("numpy", "force", force)
        if state.grad and self.requires_grad and not force:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() "
                "instead."
            )
        spec = self._spec
        if spec.device is not devices.CPU:
            if not force:
                raise TypeError(
                    f"can't convert {spec.device} device type tensor to numpy. Use Tensor.cpu() to "
                    "copy the tensor to host memory first."
                )
            return on_host(self).numpy()
        if spec.numel == 0:
            return np.empty(spec.shape, spec.dtype.numpy)
        self._share()
        storage = self._storage
        block = storage.value.address
        data = block + self._offset * spec.dtype.itemsize, bool(links_of(storage))
        return np.asarray(Export(storage, block, {**_geometry_of(spec), "data": data}))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != np.dtype(dtype):
            if copy is False:
                raise ValueError("a tensor of another dtype cannot become an array without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    @_reading("read_one")
    def item(self) -> Any:
        """Give the only element as a Python number.

        Raises:
            RuntimeError: if there is not exactly one element.

        Example:
            >>> adjit.tensor(1.5).item()
            1.5
        """
        if self._spec.numel != 1:
            raise RuntimeError(
                f"a Tensor with {self._spec.numel} elements cannot be converted to Scalar"
            )
        if state.session is not None and self._spec.dtype is dtypes.bool:
            return bool(self)
        return self._number()

    def _number(self) -> Any:
        """The first element as a Python number."""
        spec = self._spec
        if spec.device is not devices.CPU:
            return on_host(self)._number()
        state.deterministic = False
        value = scheduling.value_of(self._storage)  # which is held while it is read
        return spec.dtype.ctype.from_address(
            value.address + self._offset * spec.dtype.itemsize
        ).value

    @_reading("read_all")
    def tolist(self) -> Any:
        """Give the elements as nested lists of Python numbers, a 0-d tensor as a number.

        Example:
            >>> adjit.tensor([[1, 2], [3, 4]]).tolist()
            [[1, 2], [3, 4]]
        """
        if self._spec.ndim > MOST_AXES_OF_NUMPY:
            return [part.tolist() for part in self.unbind(0)]
        return self._values().tolist()

    @_reading("is_true")
    def __bool__(self) -> bool:
        if self._spec.numel != 1:
            if self._spec.numel == 0:
                raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        answer = None if state.session is None else state.session.decide(self)
        return bool(self._number()) if answer is None else answer

    def __float__(self) -> float:
        return float(self._python_number())

    def __int__(self) -> int:
        return int(self._python_number())

    def __complex__(self) -> complex:
        return complex(self._python_number())

    def _python_number(self) -> Any:
        """The only element, for Python's own conversions."""
        if self._spec.numel != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        if self.requires_grad:
            errors.warn_once(
                "Converting a tensor with requires_grad=True to a scalar may lead to unexpected "
                "behavior.\nConsider using tensor.detach() first."
            )
        return self.item()

    def __index__(self) -> int:
        if self._spec.dtype.is_floating_point or self._spec.numel != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self._number())

    def __len__(self) -> int:
        if self._spec.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self._spec.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if self._spec.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __reversed__(self) -> Tensor:
        turned: Tensor = self.flip(0) if self._spec.ndim else self
        return turned

    def __contains__(self, element: Any) -> bool:
        if not (record.is_tensor(element) or isinstance(element, (int, float))):
            raise RuntimeError(
                f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
                f"{type(element)}."
            )
        return bool((self == element).any().item())

    __hash__ = object.__hash__  # by identity, whatever `==` says

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return self._shown()

    def _shown(self, tangent: str | None = None) -> str:
        """The text of a tensor, perhaps with that of its tangent."""
        kind = type(self)
        is_plain = "_is_plain" in vars(kind) or kind in tracers
        prefix = "tensor(" if is_plain else f"{kind.__name__}("
        around, shape = self._spec.ndim - MOST_AXES_OF_NUMPY, self._spec.shape
        if around > 0 and self._spec.numel and set(shape[:around]) == {1}:
            values = self.detach().reshape(shape[around:])._values()
        else:
            values, around = self._values(), 0
        return printing.tensor_repr(
            values,
            dtype_name=repr(self._spec.dtype),
            is_default_dtype=self._spec.dtype is dtypes.get_default_dtype(),
            requires_grad=self.requires_grad,
            grad_fn_name=self._shown_fn(),
            prefix=prefix,
            device=self._shown_device(),
            tangent=tangent,
            around=around,
        )

    def _shown_fn(self) -> str | None:
        """The name of `grad_fn` as `repr` shows it, which a view may have lost."""
        try:
            fn = self.grad_fn
        except RuntimeError:  # what `current_fn` raises of a view whose history cannot be told
            return "Invalid"
        return None if fn is None else str(fn.short_name)

    def _shown_device(self) -> str | None:
        """The device as `repr` shows it: not the one that everybody has."""
        return None if self._spec.device is devices.CPU else str(self._spec.device)

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return printing.tensor_html(
            self._values(),
            dtype_name=repr(self._spec.dtype),
            requires_grad=self.requires_grad,
            grad_fn_name=self._shown_fn(),
            kind=type(self).__name__,
            device=self._shown_device(),
        )

    def __format__(self, spec: str) -> str:
        if self._spec.ndim == 0 and type(self) is Tensor:
            return printing.format_tensor_spec(self._values(), spec)
        return object.__format__(self, spec)

    # ----- copies -----

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if self.grad_fn is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment.  If you were attempting to deepcopy a module, this may be "
                "because of a torch.nn.utils.weight_norm usage, see "
                "https://github.com/pytorch/pytorch/pull/103001"
            )
        if id(self) in memo:
            return memo[id(self)]
        made = copies.on_copied_memory(self, memo)
        if type(self) is not Tensor:
            made = made._of_class(type(self))
        made._needs_grad = self._needs_grad
        memo[id(self)] = made
        if self._grad_value() is not None:
            made._set_grad(copying.deepcopy(self._grad_value(), memo))
        if self.__dict__:
            made.__dict__.update(copying.deepcopy(self.__dict__, memo))
        return made

    def __copy__(self) -> Tensor:
        made = self._of_class(type(self))
        made._autograd_meta = self._autograd_meta
        made.__dict__.update(self.__dict__)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return copies.reduced(self)

    # ----- indexing and containers -----

    def __dir__(self) -> list[str]:
        return sorted(name for name in {*object.__dir__(self)} if not is_missing(self, name))


def on_host(t: Tensor) -> Tensor:
    """The elements of a tensor on the CPU, without history."""
    return write.move(t, devices.CPU)


@functools.lru_cache(maxsize=1 << 12)
def _geometry_of(spec: Spec) -> dict[str, Any]:
    """What NumPy wants to know of an array, but for where it lies."""
    size = spec.dtype.itemsize
    return {
        "version": 3,
        "shape": tuple(spec.shape),
        "strides": tuple(st * size for st in spec.strides),
        "typestr": spec.dtype.numpy.str,
    }


class _Look:
    """Keeps a value alive while NumPy looks at its bytes."""

    __slots__ = ("__array_interface__", "value")

    def __init__(self, value: Any, interface: dict[str, Any]) -> None:
        self.value, self.__array_interface__ = value, interface


class StorageView:
    """What `untyped_storage()` returns."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def data_ptr(self) -> int:
        """The address of the first byte."""
        t = self._tensor
        return t._address() - t._offset * t._spec.dtype.itemsize

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._tensor._storage.nbytes

    size = __len__ = nbytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageView) and self._cdata == other._cdata

    def __hash__(self) -> int:
        return hash(self._cdata)

    @property
    def _cdata(self) -> int:
        """A number that tensors on the same memory have in common."""
        return id(self._tensor._storage)

    @property
    def device(self) -> devices.device:
        """Where the bytes are."""
        return self._tensor.device

    @property
    def is_cuda(self) -> bool:
        """Whether they are on a GPU."""
        return self.device.type == "cuda"

    def is_shared(self) -> bool:
        """Whether other processes can look at them."""
        return bool(self._tensor.is_shared())

    def element_size(self) -> int:
        """The bytes of one element: here elements are bytes."""
        return 1

    def tolist(self) -> list[Any]:
        """The bytes as Python numbers."""
        whole = record.make_tensor(self._tensor._storage, self._tensor._storage.spec, 0)
        return list(TypedStorage(whole)._elements.detach().cpu().numpy().tobytes())


class TypedStorage(StorageView):
    """What `t.storage()` returns: all elements, in the order that strides are about."""

    @property
    def _elements(self) -> Tensor:
        t: Any = self._tensor
        return t.as_strided((t._storage.spec.numel,), (1,), 0)

    @property
    def dtype(self) -> dtype:
        """The dtype of the elements."""
        return self._tensor.dtype

    def element_size(self) -> int:
        """The bytes of one element."""
        return self._tensor.element_size()

    def size(self) -> int:
        """The number of elements."""
        return int(self._tensor._storage.spec.numel)

    __len__ = size

    def untyped(self) -> StorageView:
        """What `untyped_storage()` gives."""
        return StorageView(self._tensor)

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        return self._elements.tolist()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int) and not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range for storage of size {len(self)}")
        return self._element(index).item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._element(index).fill_(value)

    def _element(self, index: Any) -> Tensor:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, int):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        return self._elements[index]

    def __repr__(self) -> str:
        lines = [f" {value}" for value in self]
        kind = f"dtype={self.dtype}, device={self.device}"
        return "\n".join([*lines, f"[adjit.storage.TypedStorage({kind}) of size {len(self)}]"])


def _attach(name: str, function: Any) -> None:
    if name not in Tensor.__dict__ or isinstance(Tensor.__dict__[name], Missing):
        setattr(Tensor, name, function)


native.keep_attributes_in_dicts(Tensor)
record.adopt_class(Tensor)
native.register_layout(TENSOR=Tensor, META=Meta)
attach_methods(_attach)
for _missing in missing_methods():
    setattr(Tensor, _missing.name, _missing)

__all__ = ["Tensor"]
