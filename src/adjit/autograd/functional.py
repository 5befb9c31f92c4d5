"""Products with Jacobians and Hessians, and the matrices themselves, of functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from ..ops.creation import eye, zeros_like
from ..ops.joining import stack
from ..tensor import Tensor
from .api import grad
from .modes import enable_grad, is_grad_enabled, set_grad_enabled

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors: TypeAlias = tuple[Tensor, ...]
Grads: TypeAlias = tuple[Tensor | None, ...]
Func: TypeAlias = Callable[..., Any]

_OUTPUTS = "outputs of the user-provided function"


def _tensors_of(value: Any, what: str, caller: str) -> tuple[bool, Tensors]:
    """Whether `value` was a tuple, and the tensors in it."""
    if isinstance(value, Tensor):
        return False, (value,)
    if not isinstance(value, tuple):
        raise TypeError(
            f"The {what} given to {caller} must be either a Tensor or a tuple of Tensors but the "
            f"given {what} has type {type(value)}."
        )
    for i, entry in enumerate(value):
        if not isinstance(entry, Tensor):
            raise TypeError(
                f"The {what} given to {caller} must be either a Tensor or a tuple of Tensors but "
                f"the value at index {i} has type {type(entry)}."
            )
    return True, value


def _unpack(tensors: Sequence[Any], was_tuple: bool) -> Any:
    return tuple(tensors) if was_tuple else tensors[0]


def _tracked(tensors: Tensors, create_graph: bool, requires_grad: bool) -> Tensors:
    """The tensors as new ends of a graph; with `create_graph`, still joined to their own."""
    return tuple(
        t.view_as(t)
        if create_graph and t.requires_grad
        else t.detach().requires_grad_(requires_grad)
        for t in tensors
    )


def _released(tensors: Tensors, create_graph: bool) -> Tensors:
    return tensors if create_graph else tuple(t.detach() for t in tensors)


def _check_vector(v: Tensors, like: Tensors, like_is_tuple: bool) -> None:
    """`v` has the shapes of `like`."""
    if len(v) != len(like):
        if like_is_tuple:
            raise RuntimeError(
                f"v is a tuple of invalid length: should be {len(like)} but got {len(v)}."
            )
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (given, wanted) in enumerate(zip(v, like, strict=True)):
        if given.size() != wanted.size():
            entry = f"Entry {i} in " if like_is_tuple else ""
            raise RuntimeError(
                f"{entry}v has invalid size: should be {wanted.size()} but got {given.size()}."
            )


def _input_vector(v: Any, inputs: Tensors, was_tuple: bool, caller: str, create: bool) -> Any:
    """The vector that a matrix with one column for each input element is multiplied with."""
    if v is not None:
        _, v = _tensors_of(v, "v", caller)
        v = _tracked(v, create, requires_grad=False)
        _check_vector(v, inputs, was_tuple)
    elif len(inputs) != 1 or inputs[0].nelement() != 1:
        raise RuntimeError(
            "The vector v can only be None if the input to the user-provided function is a single "
            "Tensor with a single element."
        )
    return v


_NOT_ALLOWED = "This is not allowed in strict mode"

_INDEPENDENT = {
    "outputs": (
        "Output {i} of the user-provided function does not require gradients. The outputs must be "
        "computed in a differentiable manner from the input when running in strict mode."
    ),
    "grad_inputs": (
        "The gradient with respect to input {i} is independent of the inputs of the user-provided "
        f"function. {_NOT_ALLOWED}."
    ),
    "jacobian": (
        "While computing the hessian, found that the jacobian of the user-provided function with "
        f"respect to input {{i}} is independent of the input. {_NOT_ALLOWED}. You should ensure "
        "that your function is twice differentiable and that the jacobian depends on the inputs "
        "(this would be violated by a linear function for example)."
    ),
}

_MISSING = {
    "vjp": (
        f"The output of the user-provided function is independent of input {{i}}. {_NOT_ALLOWED}."
    ),
    "jvp": (
        "The gradient with respect to the input is independent of entry {i} in the grad_outputs "
        "when using the double backward trick to compute forward mode gradients. "
        f"{_NOT_ALLOWED}."
    ),
    "vhp": (
        f"The jacobian of the user-provided function is independent of input {{i}}. {_NOT_ALLOWED}."
    ),
    "hvp": (
        "The hessian of the user-provided function is independent of entry {i} in the "
        f"grad_jacobian. {_NOT_ALLOWED} as it prevents from using the double backward trick to "
        "replace forward mode AD."
    ),
}


def _check_depends(tensors: Grads, what: str, strict: bool) -> None:
    """In strict mode, all of the tensors depend on the inputs."""
    if not strict:
        return
    for i, tensor in enumerate(tensors):
        if tensor is None:
            raise RuntimeError(_MISSING["vjp"].format(i=i))
        if not tensor.requires_grad:
            raise RuntimeError(_INDEPENDENT[what].format(i=i))


def _filled(grads: Grads, like: Tensors, caller: str, strict: bool, create: bool) -> Tensors:
    """Zeros in place of the gradients that there are not, or an error in strict mode."""
    if strict:
        matrix = "hessian" if caller in ("vhp", "hvp") else "jacobian"
        for i, g in enumerate(grads):
            if g is None:
                raise RuntimeError(_MISSING[caller].format(i=i))
            if create and not g.requires_grad:
                raise RuntimeError(
                    f"The {matrix} of the user-provided function is independent of input {i}. "
                    f"{_NOT_ALLOWED} when create_graph=True."
                )
    return tuple(zeros_like(ref) if g is None else g for g, ref in zip(grads, like, strict=True))


def _grad(
    outputs: Grads,
    inputs: Tensors,
    grad_outputs: Grads | None = None,
    create_graph: bool = False,
    retain_graph: bool | None = None,
    is_grads_batched: bool = False,
) -> Grads:
    """`adjit.autograd.grad` that passes over outputs without a graph, and may find nothing."""
    pairs = [
        (output, vector)
        for output, vector in zip(outputs, grad_outputs or (None,) * len(outputs), strict=True)
        if output is not None and output.requires_grad
    ]
    if not pairs:
        return (None,) * len(inputs)
    grads: Grads = grad(
        [output for output, _ in pairs],
        inputs,
        [vector for _, vector in pairs],
        allow_unused=True,
        create_graph=create_graph,
        retain_graph=retain_graph,
        is_grads_batched=is_grads_batched,
    )
    return grads


def _scalar_outputs(func: Func, inputs: Tensors, caller: str, strict: bool) -> Tensors:
    """What `func` returns, which has to be one tensor of one element."""
    was_tuple, outputs = _tensors_of(func(*inputs), _OUTPUTS, caller)
    _check_depends(outputs, "outputs", strict)
    if was_tuple:
        raise RuntimeError(f"The function given to {caller} should return a single Tensor")
    if outputs[0].nelement() != 1:
        raise RuntimeError(
            f"The Tensor returned by the function given to {caller} should contain a single element"
        )
    return outputs


def vjp(
    func: Func,
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The product of a vector, from the left, with the Jacobian of `func` at `inputs`.

    Args:
        func: takes tensors and returns a tensor or a tuple of tensors.
        inputs: a tensor or a tuple of tensors.
        v: of the shapes of the outputs; may be left out for a single output of one element.
        create_graph: whether the results can be differentiated.
        strict: raise if an output does not depend on an input, in place of zeros.

    Returns:
        What `func` returned, and the product, which has the shapes of the inputs.

    Raises:
        TypeError: something that is not a tensor.
        RuntimeError: `v` is missing or has the wrong shape; independence in strict mode.

    Example:
        >>> row_sums = lambda x: x.exp().sum(dim=1)
        >>> adjit.autograd.functional.vjp(row_sums, adjit.zeros(2, 2), adjit.ones(2))
        (tensor([2., 2.]), tensor([[1., 1.],
                [1., 1.]]))
    """
    with enable_grad():
        inputs_are_tuple, inputs = _tensors_of(inputs, "inputs", "vjp")
        inputs = _tracked(inputs, create_graph, requires_grad=True)
        outputs_are_tuple, outputs = _tensors_of(func(*inputs), _OUTPUTS, "vjp")
        _check_depends(outputs, "outputs", strict)
        if v is not None:
            _, v = _tensors_of(v, "v", "vjp")
            v = _tracked(v, create_graph, requires_grad=False)
            _check_vector(v, outputs, outputs_are_tuple)
        elif len(outputs) != 1 or outputs[0].nelement() != 1:
            raise RuntimeError(
                "The vector v can only be None if the user-provided function returns a single "
                "Tensor with a single element."
            )
    with set_grad_enabled(create_graph or is_grad_enabled()):
        grads = _grad(outputs, inputs, v, create_graph)
        product = _filled(grads, inputs, "vjp", strict, create_graph)
    return (
        _unpack(_released(outputs, create_graph), outputs_are_tuple),
        _unpack(_released(product, create_graph), inputs_are_tuple),
    )


def jvp(
    func: Func,
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The product of the Jacobian of `func` at `inputs` with a vector.

    `u @ J` is linear in `u`: differentiating it with respect to `u` gives `J @ v` in
    reverse mode, at the price of a second backward.

    Args:
        func: takes tensors and returns a tensor or a tuple of tensors.
        inputs: a tensor or a tuple of tensors.
        v: of the shapes of the inputs; may be left out for a single input of one element.
        create_graph: whether the results can be differentiated.
        strict: raise if an output does not depend on an input, in place of zeros.

    Returns:
        What `func` returned, and the product, which has the shapes of the outputs.

    Raises:
        TypeError: something that is not a tensor.
        RuntimeError: `v` is missing or has the wrong shape; independence in strict mode.

    Example:
        >>> row_sums = lambda x: x.exp().sum(dim=1)
        >>> adjit.autograd.functional.jvp(row_sums, adjit.zeros(2, 2), adjit.ones(2, 2))
        (tensor([2., 2.]), tensor([2., 2.]))
    """
    with enable_grad():
        inputs_are_tuple, inputs = _tensors_of(inputs, "inputs", "jvp")
        inputs = _tracked(inputs, create_graph, requires_grad=True)
        v = _input_vector(v, inputs, inputs_are_tuple, "jvp", create_graph)
        outputs_are_tuple, outputs = _tensors_of(func(*inputs), _OUTPUTS, "jvp")
        _check_depends(outputs, "outputs", strict)
        u = tuple(zeros_like(output, requires_grad=True) for output in outputs)
        u_times_jacobian = _grad(outputs, inputs, u, create_graph=True)
        _check_depends(u_times_jacobian, "grad_inputs", strict)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        grads = _grad(u_times_jacobian, u, v, create_graph)
        product = _filled(grads, outputs, "jvp", strict, create_graph)
    return (
        _unpack(_released(outputs, create_graph), outputs_are_tuple),
        _unpack(_released(product, create_graph), outputs_are_tuple),
    )


def vhp(
    func: Func,
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The product of a vector, from the left, with the Hessian of `func` at `inputs`.

    Args:
        func: takes tensors and returns a tensor of one element.
        inputs: a tensor or a tuple of tensors.
        v: of the shapes of the inputs; may be left out for a single input of one element.
        create_graph: whether the results can be differentiated.
        strict: raise if the gradient does not depend on an input, in place of zeros.

    Returns:
        What `func` returned, and the product, which has the shapes of the inputs.

    Raises:
        TypeError: something that is not a tensor.
        RuntimeError: `func` returns something else, `v` is missing or has the wrong shape;
            independence in strict mode.

    Example:
        >>> cubes = lambda x: x.pow(3).sum()
        >>> adjit.autograd.functional.vhp(cubes, adjit.ones(2), adjit.tensor([1.0, 2.0]))
        (tensor(2.), tensor([ 6., 12.]))
    """
    with enable_grad():
        inputs_are_tuple, inputs = _tensors_of(inputs, "inputs", "vhp")
        inputs = _tracked(inputs, create_graph, requires_grad=True)
        v = _input_vector(v, inputs, inputs_are_tuple, "vhp", create_graph)
        outputs = _scalar_outputs(func, inputs, "vhp", strict)
        gradient = _grad(outputs, inputs, create_graph=True)
        _check_depends(gradient, "jacobian", strict)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        grads = _grad(gradient, inputs, v, create_graph)
        product = _filled(grads, inputs, "vhp", strict, create_graph)
    return (
        _released(outputs, create_graph)[0],
        _unpack(_released(product, create_graph), inputs_are_tuple),
    )


def hvp(
    func: Func,
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The product of the Hessian of `func` at `inputs` with a vector.

    The Hessian of a function that is twice continuously differentiable is symmetric: `vhp`
    then gives the same with one backward less.

    Args:
        func: takes tensors and returns a tensor of one element.
        inputs: a tensor or a tuple of tensors.
        v: of the shapes of the inputs; may be left out for a single input of one element.
        create_graph: whether the results can be differentiated.
        strict: raise if the gradient does not depend on an input, in place of zeros.

    Returns:
        What `func` returned, and the product, which has the shapes of the inputs.

    Raises:
        TypeError: something that is not a tensor.
        RuntimeError: `func` returns something else, `v` is missing or has the wrong shape;
            independence in strict mode.

    Example:
        >>> cubes = lambda x: x.pow(3).sum()
        >>> adjit.autograd.functional.hvp(cubes, adjit.ones(2), adjit.tensor([1.0, 2.0]))
        (tensor(2.), tensor([ 6., 12.]))
    """
    with enable_grad():
        inputs_are_tuple, inputs = _tensors_of(inputs, "inputs", "hvp")
        inputs = _tracked(inputs, create_graph, requires_grad=True)
        v = _input_vector(v, inputs, inputs_are_tuple, "hvp", create_graph)
        outputs = _scalar_outputs(func, inputs, "hvp", strict)
        gradient = _grad(outputs, inputs, create_graph=True)
        _check_depends(gradient, "jacobian", strict)
        u = tuple(zeros_like(t, requires_grad=True) for t in inputs)
        u_times_hessian = _grad(gradient, inputs, u, create_graph=True)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        grads = _grad(u_times_hessian, u, v, create_graph)
        product = _filled(grads, inputs, "hvp", strict, create_graph)
    return (
        _released(outputs, create_graph)[0],
        _unpack(_released(product, create_graph), inputs_are_tuple),
    )


Strategy: TypeAlias = Literal["reverse-mode", "forward-mode"]


def _check_strategy(strategy: str) -> None:
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has '
            'more outputs than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to '
            'use "reverse-mode".'
        )


def _check_forward(create_graph: bool, strict: bool, vectorize: bool) -> None:
    for option, given, kind in (
        ("create_graph", create_graph, NotImplementedError), ("strict", strict, RuntimeError),
    ):  # fmt: skip
        if given:
            raise kind(
                f'adjit.autograd.functional.jacobian: `{option}=True` and `strategy="forward-mode"` are not '
                f"supported together (yet). Please either set `{option}=False` or "
                '`strategy="reverse-mode"`.'
            )
    if not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly implemented for "
            "`vectorize=True`."
        )


def jacobian(
    func: Func,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: Strategy = "reverse-mode",
) -> Any:
    """The Jacobian of `func` at `inputs`, one backward for each element of the outputs.

    Args:
        func: takes tensors and returns a tensor or a tuple of tensors.
        inputs: a tensor or a tuple of tensors.
        create_graph: whether the Jacobian can be differentiated.
        strict: raise if an output does not depend on an input, in place of zeros.
        vectorize: compute all rows in one backward, whose gradients have one more axis.
        strategy: `"reverse-mode"`, or `"forward-mode"` for a pass over columns instead of rows: where
            there are more outputs than inputs. It takes `vectorize=True`.

    Returns:
        For an output of shape `O` and an input of shape `I` a tensor of shape `O + I`. A
        tuple of these for several inputs; a tuple of that for several outputs.

    Raises:
        TypeError: something that is not a tensor.
        RuntimeError: independence in strict mode, `strict` together with `vectorize`.
        NotImplementedError: `strategy="forward-mode"` with `create_graph` or without `vectorize`.

    Example:
        >>> adjit.autograd.functional.jacobian(lambda x: x * x, adjit.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    _check_strategy(strategy)
    if strategy == "forward-mode":
        _check_forward(create_graph, strict, vectorize)
    with enable_grad():
        inputs_are_tuple, inputs = _tensors_of(inputs, "inputs", "jacobian")
        inputs = _tracked(inputs, create_graph, requires_grad=True)
        outputs_are_tuple, outputs = _tensors_of(func(*inputs), _OUTPUTS, "jacobian")
        _check_depends(outputs, "outputs", strict)
        if vectorize and strict:
            raise RuntimeError(
                "adjit.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not "
                "supported together. Please either set `strict=False` or `vectorize=False`."
            )
        if vectorize:
            found = (
                _all_rows(outputs, inputs, create_graph)
                if strategy == "reverse-mode"
                else _all_columns(outputs, inputs)
            )
            blocks = [_released(row, create_graph) for row in found]
            return _unpack([_unpack(row, inputs_are_tuple) for row in blocks], outputs_are_tuple)
        blocks = [
            _released(_rows(i, output, inputs, create_graph, strict), create_graph)
            for i, output in enumerate(outputs)
        ]
    return _unpack([_unpack(row, inputs_are_tuple) for row in blocks], outputs_are_tuple)


def _rows(i: int, output: Tensor, inputs: Tensors, create_graph: bool, strict: bool) -> Tensors:
    """The Jacobians of the i-th output with respect to each of the inputs."""
    rows: list[list[Tensor]] = [[] for _ in inputs]
    for element in output.reshape(-1).unbind(0):
        grads = _grad((element,), inputs, create_graph=create_graph, retain_graph=True)
        for j, (g, input, column) in enumerate(zip(grads, inputs, rows, strict=True)):
            if strict and g is None:
                raise RuntimeError(
                    f"Output {i} of the user-provided function is independent of input {j}. "
                    f"{_NOT_ALLOWED}."
                )
            if strict and create_graph and g is not None and not g.requires_grad:
                raise RuntimeError(
                    f"The jacobian of the user-provided function is independent of input {j}. "
                    f"{_NOT_ALLOWED} when create_graph=True."
                )
            column.append(zeros_like(input) if g is None else g)
    return tuple(
        stack(column, 0).reshape((*output.shape, *input.shape))
        if column
        else input.new_zeros((*output.shape, *input.shape))
        for column, input in zip(rows, inputs, strict=True)
    )


def unit_rows(
    tensors: Sequence[Tensor], counts: Sequence[int], start: int, stop: int
) -> list[Tensor]:
    """Rows `start` to `stop` of the unit matrix of all elements of tensors, cut into parts like these."""
    first = tensors[0]
    rows = eye(sum(counts), dtype=first.dtype, device=first.device)[start:stop]
    return [
        part.to(t.dtype).reshape(stop - start, *t.shape)
        for part, t in zip(rows.split(list(counts), 1), tensors, strict=True)
    ]


def _all_rows(outputs: Tensors, inputs: Tensors, create_graph: bool) -> list[Tensors]:
    """The Jacobians of each output, all rows in one backward."""
    counts = [t.numel() for t in outputs]
    total = sum(counts)
    basis = unit_rows(outputs, counts, 0, total)
    rows = _batched_grad(outputs, inputs, basis, create_graph)
    whole = [
        t.new_zeros((total, *t.shape)) if g is None else g
        for g, t in zip(rows, inputs, strict=True)
    ]
    parts = [g.split(counts) for g in whole]
    return [
        tuple(
            part[k].reshape((*out.shape, *t.shape)) for part, t in zip(parts, inputs, strict=True)
        )
        for k, out in enumerate(outputs)
    ]


def _all_columns(outputs: Tensors, inputs: Tensors) -> list[Tensors]:
    """The Jacobians of each output, all columns in one pass: by the transpose of the backward, which
    is linear."""
    vectors = tuple(zeros_like(t, requires_grad=True) for t in outputs)
    gradients = _grad(outputs, inputs, vectors, create_graph=True)
    reached = [k for k, g in enumerate(gradients) if g is not None and g.requires_grad]
    counts = [t.numel() for t in inputs]
    total = sum(counts)
    basis = unit_rows(inputs, counts, 0, total)
    columns: Grads = (None,) * len(outputs)
    if reached:
        chosen = tuple(gradients[k] for k in reached)
        columns = _batched_grad(chosen, vectors, [basis[k] for k in reached], False)
    found = []
    for out, column in zip(outputs, columns, strict=True):
        whole = out.new_zeros((total, *out.shape)) if column is None else column
        found.append(
            tuple(
                part.movedim(0, -1).reshape((*out.shape, *t.shape))
                for part, t in zip(whole.split(counts), inputs, strict=True)
            )
        )
    return found


def _batched_grad(
    outputs: Any, inputs: Tensors, vectors: Sequence[Tensor], create_graph: bool
) -> Grads:
    """The gradients of several vectors at once, None where no output depends on an input."""
    known = [k for k, t in enumerate(outputs) if t.requires_grad]
    if not known:
        return (None,) * len(inputs)
    return grad(
        [outputs[k] for k in known], inputs, [vectors[k] for k in known], create_graph=create_graph,
        retain_graph=True, allow_unused=True, is_grads_batched=True,
    )  # fmt: skip


def hessian(
    func: Func,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: Strategy = "reverse-mode",
) -> Any:
    """The Hessian of `func` at `inputs`: the Jacobian of its gradient.

    Args:
        func: takes tensors and returns a tensor of one element.
        inputs: a tensor or a tuple of tensors.
        create_graph: whether the Hessian can be differentiated.
        strict: raise if the gradient does not depend on an input, in place of zeros.
        vectorize: compute all rows in one backward, as in `jacobian`.
        outer_jacobian_strategy: `"reverse-mode"`, or `"forward-mode"` with `vectorize=True`.

    Returns:
        For inputs of shapes `I` and `J` a tensor of shape `I + J`; a tuple of tuples of
        these for several inputs.

    Raises:
        TypeError: something that is not a tensor.
        RuntimeError: `func` returns something else; independence in strict mode, or `strict`
            together with `vectorize`.
        NotImplementedError: `outer_jacobian_strategy="forward-mode"` without `vectorize`.

    Example:
        >>> adjit.autograd.functional.hessian(lambda x: x.pow(3).sum(), adjit.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    inputs_are_tuple, inputs = _tensors_of(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def gradient(*at: Tensor) -> Tensors:
        def scalar(*point: Tensor) -> Tensor:
            return _scalar_outputs(func, point, "hessian", strict)[0].squeeze()

        found: Tensors = jacobian(scalar, at, create_graph=True)
        _check_depends(found, "jacobian", strict)
        return found

    blocks = jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return blocks if inputs_are_tuple else blocks[0][0]


# ---------------------------------------------------------------- PyTorch's names for the parts

# Programs copy its `jacobian` or `jvp`, change a line, and import the helpers.
_autograd_grad = _grad
_check_requires_grad = _check_depends
_validate_v = _check_vector
_STAGES = {"back": "vjp", "back_trick": "jvp", "double_back": "vhp", "double_back_trick": "hvp"}


def _as_tuple(inp: Any, arg_name: str | None = None, fn_name: str | None = None) -> Any:
    """Whether it was a tuple, and the tuple; without names, the tuple alone, of whatever it is."""
    if arg_name is not None and fn_name is not None:
        return _tensors_of(inp, arg_name, fn_name)
    return tuple(inp) if isinstance(inp, tuple | list) else (inp,)


def _grad_preprocess(inputs: Tensors, create_graph: bool, need_graph: bool) -> Tensors:
    return _tracked(inputs, create_graph, need_graph)


def _grad_postprocess(inputs: Sequence[Any], create_graph: bool) -> Any:
    """The tensors, in tuples of tuples too, without their history unless there shall be a graph."""
    if isinstance(inputs[0], Tensor):
        return _released(tuple(inputs), create_graph)
    return tuple(_grad_postprocess(entry, create_graph) for entry in inputs)


def _tuple_postprocess(res: Sequence[Any], to_unpack: bool | tuple[bool, bool]) -> Any:
    """What `_as_tuple` made a tuple, as it was; with a pair, also what lies in the tuple."""
    outer, inner = to_unpack if isinstance(to_unpack, tuple) else (to_unpack, True)
    return _unpack(res if inner else [entry[0] for entry in res], outer)


def _fill_in_zeros(
    grads: Grads, refs: Tensors, strict: bool, create_graph: bool, stage: str
) -> Tensors:
    if stage not in _STAGES:
        raise RuntimeError(f"Invalid stage argument '{stage}' to _fill_in_zeros")
    return _filled(grads, refs, _STAGES[stage], strict, create_graph)


def _construct_standard_basis_for(tensors: Tensors, tensor_numels: Sequence[int]) -> Tensors:
    """The unit matrix of all elements, cut into columns of the tensors, in their dtypes."""
    total = sum(tensor_numels)
    rows = unit_rows(tensors, tensor_numels, 0, total)
    return tuple(
        part.reshape(total, count) for part, count in zip(rows, tensor_numels, strict=True)
    )
