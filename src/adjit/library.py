"""Operators of a program's own, by name: `adjit.library.custom_op`, as in `torch.library`.

An operator runs its function as one piece: gradients are not recorded inside of it, and are those that
`register_autograd` gives. `autograd.Function` is the same without a name and a schema.
"""

from __future__ import annotations

import collections.abc
import contextlib
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, cast

from .absent import absent
from .autograd.function import Function
from .autograd.modes import no_grad
from .devices import device
from .dtypes import dtype
from .graph import record
from .graph.state import state
from .tensor import Tensor
from .types import Number

__all__ = [
    "CustomOpDef", "custom_op", "infer_schema", "register_autograd", "register_fake", "register_kernel",
    "register_vmap",
]  # fmt: skip

_LIBRARY = __name__.rpartition(".")[0]

# A type in annotations, its name in schemas, and whether lists of it, of it or None, and such or None are.
_TYPES: tuple[tuple[Any, str, bool, bool, bool], ...] = (
    (Tensor, "Tensor", True, True, False),
    (int, "SymInt", True, False, True),
    (float, "float", True, False, True),
    (bool, "bool", True, False, True),
    (str, "str", False, False, False),
    (Number, "Scalar", True, False, False),
    (dtype, "ScalarType", False, False, False),
    (device, "Device", False, False, False),
)


def _parameter_types() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for kind, name, lists, lists_of_optional, optional_lists in _TYPES:
        found |= {kind: name, typing.Optional[kind]: f"{name}?"}  # noqa: UP045
        if lists:
            found |= dict.fromkeys(_sequences(kind), f"{name}[]")
        if lists_of_optional:
            found |= dict.fromkeys(_sequences(typing.Optional[kind]), f"{name}?[]")  # noqa: UP045
        if optional_lists:
            found |= {typing.Optional[one]: f"{name}[]?" for one in _sequences(kind)}  # noqa: UP045
    return found


def _sequences(kind: Any) -> tuple[Any, ...]:
    return (
        typing.Sequence[kind], typing.List[kind], collections.abc.Sequence[kind], list[kind],  # noqa: UP006
    )  # fmt: skip


_PARAMETERS = _parameter_types()
_RETURNS: dict[Any, str] = {
    Tensor: "Tensor", typing.List[Tensor]: "Tensor[]", list[Tensor]: "Tensor[]", int: "SymInt",  # noqa: UP006
    float: "float", bool: "bool", Number: "Scalar",
}  # fmt: skip
# What arguments of a type in a schema may be, and what PyTorch calls it.
_CLASSES: dict[str, tuple[tuple[type, ...], str]] = {
    "Tensor": ((Tensor,), "Tensor"), "SymInt": ((int,), "int"), "float": ((int, float), "float"),
    "bool": ((bool,), "bool"), "str": ((str,), "str"), "Scalar": ((int, float), "number"),
    "ScalarType": ((dtype,), "int"), "Device": ((str, device), "Device"), "int": ((int,), "int"),
}  # fmt: skip


class Argument(NamedTuple):
    """A parameter of an operator, as the schema has it."""

    name: str
    kind: str  # its type, without what says that it is written
    default: Any
    by_name_only: bool
    is_written: bool


def infer_schema(
    prototype_function: Callable[..., Any], /, *, mutates_args: str | Iterable[str],
    op_name: str | None = None,
) -> str:  # fmt: skip
    """Read the schema of an operator from the annotations of a function.

    Args:
        prototype_function: the function; all its parameters have types.
        mutates_args: the names of the tensors that it writes into, or "unknown": all of them.
        op_name: put in front.

    Raises:
        ValueError: if a type is missing or not supported, with PyTorch's texts.

    Example:
        >>> def scaled(x: adjit.Tensor, by: float = 2.0) -> adjit.Tensor:
        ...     return x * by
        >>> adjit.library.infer_schema(scaled, mutates_args=())
        '(Tensor x, float by=2.0) -> Tensor'
    """
    arguments, made = _inferred(prototype_function, mutates_args)
    return f"{op_name or ''}{_text(arguments, made)}"


def _inferred(
    function: Callable[..., Any], mutates_args: str | Iterable[str]
) -> tuple[list[Argument], str]:
    """The parameters of an operator, and the type of what it returns."""
    signature = inspect.signature(function)
    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise ValueError(
            "mutates_args must either be a sequence of the names of the arguments that are mutated or the "
            "string 'unknown'. "
        )
    written = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)

    def wrong(what: str) -> NoReturn:
        raise ValueError(f"infer_schema(func): {what} Got func with signature {signature})")

    def evaluated(annotation: Any) -> Any:
        if not isinstance(annotation, str):
            return annotation
        try:
            return eval(annotation, function.__globals__)
        except Exception as error:
            wrong(
                f"Unsupported type annotation {annotation}. It is not a type. "
                f"({type(error).__name__}: {error})"
            )

    arguments = []
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            wrong("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.annotation is parameter.empty:
            wrong(f"Parameter {name} must have a type annotation.")
        annotation = evaluated(parameter.annotation)
        kind = _PARAMETERS.get(annotation)
        if kind is None:
            wrong(
                f"Parameter {name} has unsupported type {parameter.annotation}. "
                f"The valid types are: {_PARAMETERS.keys()}."
            )
        if not isinstance(written, str) and name in written and not kind.startswith("Tensor"):
            wrong(
                f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be "
                "mutated"
            )
        is_written = kind.startswith("Tensor") and (written == "unknown" or name in written)
        if not isinstance(
            parameter.default, (type(None), int, float, bool, str, device, dtype, type)
        ):
            wrong(
                f"Parameter {name} has an unsupported default value type {type(parameter.default)}. "
                "Please file an issue on GitHub so we can prioritize this."
            )
        by_name = parameter.kind is parameter.KEYWORD_ONLY
        arguments.append(Argument(name, kind, parameter.default, by_name, is_written))
    if not isinstance(written, str) and (unseen := set(written) - set(signature.parameters)):
        wrong(
            f"{unseen} in mutates_args were not found in the custom op's signature. mutates_args should "
            "contain the names of all args that the custom op mutates, or just the string 'unknown' if "
            "you don't know."
        )
    if signature.return_annotation is signature.empty:
        wrong("No return type annotation was provided. Please add one.")
    returned = evaluated(signature.return_annotation)
    if returned is None:
        return arguments, "()"
    parts = typing.get_args(returned) if typing.get_origin(returned) is tuple else (returned,)
    if any(part not in _RETURNS for part in parts):
        wrong(f"Return has unsupported type {returned}. The valid types are: {_RETURNS}.")
    names = ", ".join(_RETURNS[part] for part in parts)
    if typing.get_origin(returned) is not tuple:
        return arguments, names
    return arguments, f"(({names}))" if len(parts) == 1 else f"({names})"


def _text(arguments: Sequence[Argument], made: str) -> str:
    parts = []
    for k, argument in enumerate(arguments):
        if argument.by_name_only and "*" not in parts:
            parts.append("*")
        kind = argument.kind
        if argument.is_written:
            kind = f"Tensor(a{k}!){kind.removeprefix('Tensor')}"
        default = argument.default
        if default is inspect.Parameter.empty:
            shown = ""
        elif isinstance(default, (str, device)):
            shown = f'="{default}"'
        else:
            shown = f"={str(default).removeprefix(f'{_LIBRARY}.')}"
        parts.append(f"{kind} {argument.name}{shown}")
    return f"({', '.join(parts)}) -> {made}"


class _Namespace:
    """The operators of one namespace: `adjit.ops.<namespace>`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")


class CustomOpDef:
    """An operator of a program, made by `custom_op`; called like its function.

    Example:
        >>> @adjit.library.custom_op("shown::double", mutates_args=())
        ... def double(x: adjit.Tensor) -> adjit.Tensor:
        ...     return x * 2
        >>> double
        <CustomOpDef(shown::double)>
        >>> double(adjit.ones(2)), adjit.ops.shown.double(adjit.ones(2))
        (tensor([2., 2.]), tensor([2., 2.]))
    """

    def __init__(
        self, namespace: str, name: str, arguments: Sequence[Argument], made: str,
        function: Callable[..., Any],
    ) -> None:  # fmt: skip
        self._namespace, self._name, self._init_fn = namespace, name, function
        self._arguments, self._made = arguments, made
        self._schema = _text(arguments, made)
        self._kernels: dict[str | None, Callable[..., Any]] = {}
        self._disabled: set[str] = set()
        self._fake: Callable[..., Any] | None = None
        self._backward: Callable[..., Any] | None = None
        self._setup: Callable[..., Any] | None = None
        self._vmap: Callable[..., Any] | None = None

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    @property
    def default(self) -> CustomOpDef:
        """The only overload: the operator itself.

        Example:
            >>> @adjit.library.custom_op("shown::triple", mutates_args=())
            ... def triple(x: adjit.Tensor) -> adjit.Tensor:
            ...     return x * 3
            >>> adjit.ops.shown.triple.default(adjit.ones(2))
            tensor([3., 3.])
        """
        return self

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    # ----- what programs register -----

    def register_kernel(
        self, device_types: str | Sequence[str] | None, fn: Callable[..., Any] | None = None, /
    ) -> Any:
        """Give the operator a function for tensors on some devices; a decorator without `fn`.

        Args:
            device_types: "cpu", "cuda", several, or None for all that have no function of their own.
            fn: the function.

        Example:
            >>> @adjit.library.custom_op("shown::half", mutates_args=(), device_types="cuda")
            ... def half(x: adjit.Tensor) -> adjit.Tensor:
            ...     return x / 2
            >>> @half.register_kernel("cpu")
            ... def _(x):
            ...     return x * 0.5
            >>> half(adjit.ones(2))
            tensor([0.5000, 0.5000])
        """
        names = (
            [device_types]
            if device_types is None or isinstance(device_types, str)
            else [*device_types]
        )
        has_place = any(a.kind.startswith(("Tensor", "Device")) for a in self._arguments)
        if device_types is not None and not has_place:
            raise ValueError(
                "Functions without tensor inputs are required to have a `device: torch.device` argument"
            )

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._kernels.update(dict.fromkeys(names, function))
            return function

        return register if fn is None else register(fn)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Keep the function that tells shapes without values. Nothing here calls it: `compile` watches a call
        that has values.

        Example:
            >>> @adjit.library.custom_op("shown::copied", mutates_args=())
            ... def copied(x: adjit.Tensor) -> adjit.Tensor:
            ...     return x.clone()
            >>> @copied.register_fake
            ... def _(x):
            ...     return adjit.empty_like(x)
            >>> copied(adjit.ones(2))
            tensor([1., 1.])
        """
        self._fake = fn
        return fn

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Give the operator its gradients.

        Args:
            backward: of `(ctx, *grads)`; gives a gradient (or None) for each argument that is not by name
                alone, for a list of tensors a list.
            setup_context: of `(ctx, inputs, output)`, and `keyword_only_inputs` where there are such
                arguments; saves what `backward` needs, as in `autograd.Function`.

        Raises:
            RuntimeError: for an operator that writes into its arguments.

        Example:
            >>> @adjit.library.custom_op("shown::square", mutates_args=())
            ... def square(x: adjit.Tensor) -> adjit.Tensor:
            ...     return adjit.from_numpy(x.numpy(force=True) ** 2)
            >>> square.register_autograd(
            ...     lambda ctx, grad: 2 * ctx.saved_tensors[0] * grad,
            ...     setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
            ... )
            >>> x = adjit.tensor([3.0], requires_grad=True)
            >>> square(x).backward()
            >>> x.grad
            tensor([6.])
        """
        if any(argument.is_written for argument in self._arguments):
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self} with schema "
                f"{self._qualname}{self._schema}. Please create a functional operator and register an "
                "autograd formula for that."
            )
        self._backward, self._setup = backward, setup_context

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """Give the operator a rule for `vmap`; a decorator without `func`.

        Without one the operator's function runs on batched tensors.

        Args:
            func: of `(info, in_dims, *args)`, as `vmap` of `autograd.Function`.

        Raises:
            NotImplementedError: for an operator with lists of tensors, or arguments by name alone.

        Example:
            >>> @adjit.library.custom_op("shown::minus", mutates_args=())
            ... def minus(x: adjit.Tensor) -> adjit.Tensor:
            ...     return adjit.from_numpy(-x.numpy(force=True))
            >>> @minus.register_vmap
            ... def _(info, in_dims, x):
            ...     return minus(x), in_dims[0]
            >>> adjit.vmap(minus)(adjit.ones(2, 2))
            tensor([[-1., -1.],
                    [-1., -1.]])
        """
        if any(
            a.by_name_only or (a.kind.startswith("Tensor") and "[]" in a.kind)
            for a in self._arguments
        ):
            raise NotImplementedError(
                f"register_vmap of {self}: not with lists of tensors or keyword-only arguments"
            )

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._vmap = function
            return function

        return register if func is None else register(func)

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Use the function of a device in a block or not: then the one that the operator was made of.

        Example:
            >>> @adjit.library.custom_op("shown::one", mutates_args=())
            ... def one(x: adjit.Tensor) -> adjit.Tensor:
            ...     return x * 0 + 1
            >>> _ = one.register_kernel("cpu", lambda x: x * 0 + 100)
            >>> with one.set_kernel_enabled("cpu", False):
            ...     one(adjit.zeros(1))
            tensor([1.])
        """
        before = set(self._disabled)
        (self._disabled.discard if enabled else self._disabled.add)(device_type)
        try:
            yield
        finally:
            self._disabled = before

    # ----- calls -----

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        positional, by_name = self._bound(args, kwargs)
        tensors = [t for t in _flat(positional) if record.is_tensor(t)]
        is_functional = not any(argument.is_written for argument in self._arguments)
        if self._vmap or (is_functional and state.grad and any(t.requires_grad for t in tensors)):
            return self._recorded(positional, by_name)
        with no_grad():
            return self._run(positional, by_name)

    def _bound(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments in the order of the schema, checked; and those that are by name alone."""
        told = f"Declaration: {self._qualname}{self._schema}"
        most = sum(not argument.by_name_only for argument in self._arguments)
        if len(args) > most:
            counted = f"expected at most {most} argument(s) but received {len(args)} argument(s)."
            if most < len(self._arguments):
                counted = f"takes {most} positional argument(s) but {len(args)} was/were given."
            raise RuntimeError(f"{self._qualname}() {counted}  {told}")
        given = dict(zip((a.name for a in self._arguments), args, strict=False))
        for place, argument in enumerate(self._arguments):
            value = given.setdefault(argument.name, kwargs.get(argument.name, argument.default))
            if value is inspect.Parameter.empty:
                raise RuntimeError(
                    f"{self._qualname}() is missing value for argument '{argument.name}'. {told}"
                )
            if not _fits(value, argument.kind):
                raise RuntimeError(
                    f"{self._qualname}() Expected a value of type '{_shown(argument.kind)}' for argument "
                    f"'{argument.name}' but instead found type '{type(value).__name__}'.\n"
                    f"Position: {place}\nValue: {value!r}\n{told}"
                )
        for name in kwargs:
            if name not in given or name in {a.name for a in self._arguments[: len(args)]}:
                raise RuntimeError(f"{self._qualname}() Unknown keyword argument '{name}'. {told}")
        ordered = [given[a.name] for a in self._arguments if not a.by_name_only]
        return ordered, {a.name: given[a.name] for a in self._arguments if a.by_name_only}

    def _run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call the function for the device of the arguments."""
        values = [*_flat(args), *kwargs.values()]
        places = [t.device.type for t in values if record.is_tensor(t)]
        places += [device(v).type for v in values if isinstance(v, device)]
        place = places[0] if places else None
        kernel = self._kernels.get(place, self._kernels.get(None))
        if kernel is None:
            raise NotImplementedError(
                f"Could not run '{self._qualname}' with arguments from the '{str(place).upper()}' backend. "
                f"There are kernels for {', '.join(str(name) for name in self._kernels)}."
            )
        if place in self._disabled:
            kernel = self._init_fn
        made = kernel(*args, **kwargs)
        self._check_alias(values, made)
        return made

    def _check_alias(self, values: Sequence[Any], made: Any) -> None:
        parts = made if isinstance(made, (tuple, list)) else (made,)
        known = {id(t._storage) for t in values if record.is_tensor(t) and _has_memory(t)}
        for part in parts:
            if record.is_tensor(part) and _has_memory(part):
                if id(part._storage) in known:
                    raise RuntimeError(
                        f"{self._name} (with implementation in {inspect.getmodule(self._init_fn)}): The "
                        "output of this custom operator (1) must not also be an input to this custom "
                        "operator and (2) may not alias any inputs to this custom operator or other "
                        "returns. The most common way to trigger this error is if we have y = "
                        "custom_op(x) and y and x are the same Tensor. Please instead return a clone of "
                        "the offending output tensor(s) (e.g. return x.clone()) or refactor the custom "
                        "operator to not return y."
                    )
                known.add(id(part._storage))

    def _recorded(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call the operator as one node of the graph."""
        op, shape = self, [len(a) if isinstance(a, (list, tuple)) else None for a in args]
        made_list: list[bool] = []

        def forward(*flat: Any) -> Any:
            with no_grad():
                made = op._run(list(_folded(flat, shape)), kwargs)
            made_list.append(isinstance(made, list))
            return tuple(made) if made_list[-1] else made

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            if op._setup is not None:
                by_name = {"keyword_only_inputs": kwargs} if kwargs else {}
                made = list(output) if made_list[-1] else output
                op._setup(ctx=ctx, inputs=tuple(_folded(inputs, shape)), output=made, **by_name)

        def backward(ctx: Any, *grads: Any) -> Any:
            if op._backward is None:
                raise RuntimeError(
                    f"Trying to backward through {op._namespace}.{op._name}.default but no autograd formula "
                    "was registered. Please use register_autograd to add one."
                )
            flat_needs = ctx.needs_input_grad
            ctx.needs_input_grad = tuple(_folded(flat_needs, shape))
            try:
                found = (
                    op._backward(ctx, list(grads)) if made_list[0] else op._backward(ctx, *grads)
                )
            finally:
                ctx.needs_input_grad = flat_needs
            single = len(shape) == 1 and shape[0] is not None
            parts = found if isinstance(found, tuple) else (found,)
            if (
                single
                and isinstance(found, (tuple, list))
                and len(found) == shape[0]
                and not (len(found) == 1 and isinstance(found[0], (list, tuple)))
            ):
                parts = (found,)
            if len(parts) != len(shape):
                raise RuntimeError(
                    f"Expected the return from backward to be of the same structure as the inputs. Got: "
                    f"{len(parts)} gradients for {len(shape)} arguments of {op}."
                )
            return tuple(_flat(_filled(parts, shape)))

        static = {"forward": forward, "setup_context": setup_context, "backward": backward}
        if self._vmap is not None:
            static["vmap"] = self._vmap
        body = {key: staticmethod(function) for key, function in static.items()}
        name = f"GeneratedBackwardFor_{self._namespace}_{self._name}_default"
        made = cast(Any, type(name, (Function,), body)).apply(*_flat(args))
        return list(made) if made_list and made_list[0] else made


def _shown(kind: str) -> str:
    """A type of a schema, as errors call it."""
    if kind.endswith("?"):
        return f"Optional[{_shown(kind[:-1])}]"
    return f"List[{_shown(kind[:-2])}]" if kind.endswith("[]") else _CLASSES[kind][1]


def _fits(value: Any, kind: str) -> bool:
    """Whether an argument is of a type of a schema."""
    if kind.endswith("?"):
        return value is None or _fits(value, kind[:-1])
    if kind.endswith("[]"):
        return isinstance(value, (list, tuple)) and all(_fits(part, kind[:-2]) for part in value)
    return isinstance(value, _CLASSES[kind][0])


def _has_memory(t: Any) -> bool:
    return t.__class__ in record.tensor_classes and bool(t.numel())


def _flat(values: Iterable[Any]) -> list[Any]:
    """The values, those of lists one by one."""
    return [
        part
        for value in values
        for part in (value if isinstance(value, (list, tuple)) else (value,))
    ]


def _folded(flat: Sequence[Any], shape: Sequence[int | None]) -> Iterator[Any]:
    """The inverse of `_flat`."""
    parts = iter(flat)
    for count in shape:
        yield next(parts) if count is None else [next(parts) for _ in range(count)]


def _filled(parts: Sequence[Any], shape: Sequence[int | None]) -> Iterator[Any]:
    """Gradients, with None for each of a list of which there are none."""
    for part, count in zip(parts, shape, strict=True):
        yield [None] * count if part is None and count is not None else part


# ----- by name -----

_operators: dict[str, CustomOpDef] = {}


def custom_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None, schema: str | None = None,
) -> Any:  # fmt: skip
    """Make an operator of a function with typed arguments, known by name; a decorator without `fn`.

    Args:
        name: "namespace::name"; `adjit.ops.<namespace>.<name>` is the operator then.
        fn: the function. It may use NumPy or any other library: no gradients are recorded inside of it. It
            returns new tensors, no arguments or views of them.
        mutates_args: the names of the tensors that it writes into, or "unknown": all.
        device_types: for tensors on which devices it is: "cpu", "cuda", several, or None for all.
        schema: PyTorch's text of types and names, where the annotations are not enough. Only the
            annotations are read here; it must agree with them.

    Raises:
        ValueError: if the annotations are missing, or of types that operators do not have, or disagree with
            `schema`.

    Example:
        >>> @adjit.library.custom_op("shown::cube", mutates_args=())
        ... def cube(x: adjit.Tensor) -> adjit.Tensor:
        ...     return adjit.from_numpy(x.numpy(force=True) ** 3)
        >>> cube(adjit.tensor([2.0]))
        tensor([8.])
    """

    def define(function: Callable[..., Any]) -> CustomOpDef:
        arguments, made = _inferred(function, mutates_args)
        if schema is not None and schema.replace(" ", "") != _text(arguments, made).replace(
            " ", ""
        ):
            raise ValueError(
                f"schema={schema!r} is not that of the annotations, {_text(arguments, made)!r}"
            )
        namespace, _, own = name.partition("::")
        if not own:
            raise ValueError(f"the name of an operator is 'namespace::name', got {name!r}")
        op = CustomOpDef(namespace, own, arguments, made, function)
        op.register_kernel(device_types, function)
        ops = sys.modules[f"{_LIBRARY}.ops"]
        room = vars(ops).get(namespace)
        if room is None:
            room = _Namespace(namespace)
            setattr(ops, namespace, room)
        if isinstance(room, _Namespace):
            setattr(room, own, op)
        _operators[name] = op
        return op

    return define if fn is None else define(fn)


def _operator(op: str | CustomOpDef) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if op not in _operators:
        namespace, _, name = op.partition("::")
        raise AttributeError(f"'_OpNamespace' '{namespace}' object has no attribute '{name}'")
    return _operators[op]


def register_kernel(
    op: str | CustomOpDef, device_types: str | Sequence[str] | None, func: Any = None, /
) -> Any:
    """`register_kernel` of an operator, by its name: see `CustomOpDef.register_kernel`.

    Example:
        >>> @adjit.library.custom_op("shown::inverse", mutates_args=(), device_types="cuda")
        ... def inverse(x: adjit.Tensor) -> adjit.Tensor:
        ...     return 1 / x
        >>> _ = adjit.library.register_kernel("shown::inverse", "cpu", lambda x: x.reciprocal())
        >>> inverse(adjit.tensor([2.0]))
        tensor([0.5000])
    """
    return _operator(op).register_kernel(device_types, func)


def register_fake(op: str | CustomOpDef, func: Any = None, /) -> Any:
    """`register_fake` of an operator, by its name; a decorator without `func`.

    What is said of an operator that a library of C++ would have, as torchvision's `nms`, is passed over.

    Example:
        >>> @adjit.library.custom_op("shown::same", mutates_args=())
        ... def same(x: adjit.Tensor) -> adjit.Tensor:
        ...     return x.clone()
        >>> @adjit.library.register_fake("shown::same")
        ... def _(x):
        ...     return adjit.empty_like(x)
    """
    if isinstance(op, str) and op not in _operators and "::" in op:
        return (lambda function: function) if func is None else func
    found = _operator(op)
    return found.register_fake if func is None else found.register_fake(func)


def register_autograd(
    op: str | CustomOpDef, backward: Callable[..., Any], /, *,
    setup_context: Callable[..., Any] | None = None,
) -> None:  # fmt: skip
    """`register_autograd` of an operator, by its name: see `CustomOpDef.register_autograd`.

    Example:
        >>> @adjit.library.custom_op("shown::times5", mutates_args=())
        ... def times5(x: adjit.Tensor) -> adjit.Tensor:
        ...     return x * 5
        >>> adjit.library.register_autograd("shown::times5", lambda ctx, grad: 5 * grad)
        >>> x = adjit.ones(1, requires_grad=True)
        >>> times5(x).backward()
        >>> x.grad
        tensor([5.])
    """
    _operator(op).register_autograd(backward, setup_context=setup_context)


def register_vmap(op: str | CustomOpDef, func: Any = None, /) -> Any:
    """`register_vmap` of an operator, by its name: see `CustomOpDef.register_vmap`.

    Example:
        >>> @adjit.library.custom_op("shown::plus1", mutates_args=())
        ... def plus1(x: adjit.Tensor) -> adjit.Tensor:
        ...     return x + 1
        >>> _ = adjit.library.register_vmap("shown::plus1", lambda info, dims, x: (plus1(x), dims[0]))
        >>> adjit.vmap(plus1)(adjit.ones(2))
        tensor([2., 2.])
    """
    return _operator(op).register_vmap(func)


def __getattr__(name: str) -> Any:
    raise absent("library", name)
