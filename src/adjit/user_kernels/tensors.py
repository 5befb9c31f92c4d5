"""`kernel`: a user's function of arrays as one node of the graph on tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from ..autograd.function import Function as AutogradFunction
from ..autograd.modes import is_grad_enabled
from ..ops.creation import tensor
from ..tensor import Tensor
from .generated import GeneratedFile, Mode, generated
from .source import Function, python_function, remember


def kernel(f: Function) -> UserKernel:
    """Decorate a Numba function of arrays so that tensors can be given to it and gradients flow through it.

    The function may have loops and branches of any kind, local arrays, whole-array statements and calls of
    other functions; its source is read, as `value_and_grad` does. On tensors a call is one node of the
    graph: arrays are tensors or NumPy arrays, numbers are Python's or tensors without dimensions.
    Results are tensors, in the precision that Numba computes in; whole numbers stay Python's. A tensor that the
    function writes into is changed as by an in-place operation. Without tensors the function runs on
    NumPy arrays.

    A function that returns one float and writes into no argument computes its gradient with its value;
    otherwise it runs once more on the way back. Double backward works where no argument is written.

    Raises:
        NotDifferentiable: at the first call, if the function has something that cannot be differentiated.
        RuntimeError: for tensors that are not on the CPU, on a double backward through a written argument,
            and as in-place operations on a leaf that requires gradients.

    Example:
        >>> import numpy as np
        >>> @adjit.kernel
        ... def smooth(x, rate):
        ...     y = np.empty_like(x)
        ...     y[0] = x[0]
        ...     for i in range(1, len(x)):
        ...         y[i] = rate * y[i - 1] + (1.0 - rate) * x[i]
        ...     return y
        >>> x = adjit.tensor([1., 2., 4.], requires_grad=True)
        >>> smooth(x, 0.5)
        tensor([1.0000, 1.5000, 2.7500], grad_fn=<smoothBackward>)
        >>> smooth(x, 0.5).sum().backward()
        >>> x.grad
        tensor([1.7500, 0.7500, 0.5000])
    """
    return UserKernel(f)


class UserKernel:
    """A function that `kernel` has decorated.

    Example:
        >>> def total(x):
        ...     return x[0] + x[1]
        >>> adjit.kernel(total)
        <kernel total>
    """

    def __init__(self, f: Function) -> None:
        self.py_func = python_function(f)
        functools.update_wrapper(self, self.py_func)
        remember(self.py_func)
        # The node of the graph by the name of the kernel, in `repr` and in drawings.
        self._call: Any = type(self.py_func.__name__, (KernelCall,), {})

    def __repr__(self) -> str:
        return f"<kernel {self.py_func.__name__}>"

    def __call__(self, *args: Any) -> Any:
        """Call the function on tensors, arrays and numbers."""
        if not any(isinstance(a, Tensor) for a in args):
            return self._file(args, None).module.primal(*args)
        outs = self._call.apply(self, *args)
        file = self._file(_values(args), None)
        count = len(file.facts["results"])
        results = outs[:count] if isinstance(outs, tuple) else (outs,)
        if not count:
            return None
        return tuple(results) if file.facts["is_tuple"] else results[0]

    def _file(
        self, values: Sequence[Any], wrt: tuple[int, ...] | None, mode: Mode = "reverse"
    ) -> GeneratedFile:
        """The generated file for arguments like these."""
        return generated(self.py_func, [numba.typeof(v) for v in values], wrt, mode)

    def source(self, *args: Any) -> str:
        """Read the generated code for arguments like these, with the user's lines as comments.

        Example:
            >>> def square(x):
            ...     return x * x
            >>> "# back 2: return x * x" in adjit.kernel(square).source(3.0)
            True
        """
        return self._file(_values(args), None).source

    def explain(self, *args: Any) -> str:
        """Say what the way back keeps and why, where no gradient flows, and the most memory that it takes.

        Example:
            >>> import numpy as np
            >>> def power(x, n):
            ...     y = x
            ...     for k in range(n):
            ...         y = np.exp(-y)
            ...     return y
            >>> print(adjit.kernel(power).explain(0.5, 100))
            power: float64, int64
            kept: y_2, the result of np.exp, which costs more to compute again (4: y = np.exp(-y))
            on the tape: 800 bytes
        """
        values = _values(args)
        file = self._file(values, None)
        facts = file.facts
        lines = [f"{self.py_func.__name__}: {', '.join(str(numba.typeof(v)) for v in values)}"]
        lines += [f"kept: {name}, {why} ({note})" for name, note, why in facts["kept"]]
        lines += [
            f"no gradient flows through {function} ({note})" for function, note in facts["flat"]
        ]
        if facts["results"] == ["float"]:
            lines.append(f"on the tape: {file.module.peak_bytes(*values)} bytes")
        return "\n".join(lines)


def _values(args: Sequence[Any]) -> list[Any]:
    """What Numba is given for arguments: arrays, and numbers for tensors without dimensions."""
    found: list[Any] = []
    for a in args:
        if not isinstance(a, Tensor):
            found.append(a)
            continue
        if a.device.type != "cpu":
            raise RuntimeError(
                f"kernels run on the CPU, got a tensor on {a.device}: move it by .cpu()"
            )
        array = a.detach().contiguous().numpy()
        found.append(array if array.ndim else array[()])
    return found


def _as_results(results: Sequence[Any], dtypes: Sequence[str]) -> list[Any]:
    """Tensors of floats and arrays; whole numbers as they are."""
    return [
        r if kind == "whole" else tensor(np.asarray(r, None if isinstance(r, np.ndarray) else kind))
        for r, kind in zip(results, dtypes, strict=True)
    ]


def _like(gradient: Any, argument: Any) -> Any:
    """A gradient as a tensor of an argument's dtype."""
    return tensor(np.asarray(gradient)).to(argument.dtype)


class KernelCall(AutogradFunction):
    """A call of a kernel on tensors."""

    @staticmethod
    def forward(ctx: Any, function: UserKernel, *args: Any) -> Any:
        values = _values(args)
        wrt = tuple(k for k, needs in enumerate(ctx.needs_input_grad[1:]) if needs)
        file = function._file(values, wrt or None)
        facts = file.facts
        ctx.function, ctx.wrt, ctx.gradients = function, wrt, None
        ctx.args = [None if isinstance(a, Tensor) else v for a, v in zip(args, values, strict=True)]
        written = [k for k in facts["written"] if isinstance(args[k], Tensor)]
        ctx.written = facts["written"]
        ctx.floats = [k for k, r in enumerate(facts["dtypes"]) if r[0] == "f"]
        originals = [a.detach().clone() if k in written else a for k, a in enumerate(args)]
        ctx.save_for_backward(*[a for a in originals if isinstance(a, Tensor)])
        if wrt and facts["results"] == ["float"] and not facts["is_tuple"] and not facts["written"]:
            value, ctx.gradients = file.module.value_and_grad(*values)
            return _as_results([value], facts["dtypes"])[0]
        given = [v.copy() if k in written else v for k, v in enumerate(values)]
        results = file.module.primal(*given)
        several = results if facts["is_tuple"] else (results,) if facts["results"] else ()
        outs = _as_results(several, facts["dtypes"])
        for k in written:
            args[k].copy_(tensor(given[k]))
        ctx.mark_dirty(*[args[k] for k in written])
        return (*outs, *[args[k] for k in written])

    @staticmethod
    def backward(ctx: Any, *adjoints: Any) -> Any:
        args = _restored(ctx)
        create_graph = is_grad_enabled()
        if create_graph and ctx.written:
            raise RuntimeError(
                f"{ctx.function.py_func.__name__} writes into its arguments: "
                "it has no double backward; write into new arrays and return them"
            )
        grads: dict[int, Any] = {}
        if ctx.gradients is not None and not create_graph:
            grads = {
                k: _like(g, args[k]) * adjoints[0].to(args[k].dtype)
                for k, g in zip(ctx.wrt, ctx.gradients, strict=True)
            }
        else:
            floats = [adjoints[k] for k in ctx.floats]
            written = [
                a
                for k, a in zip(
                    ctx.written, adjoints[len(adjoints) - len(ctx.written) :], strict=True
                )
            ]
            found = KernelPullback.apply(ctx.function, ctx.wrt, len(args), *args, *floats, *written)
            grads = dict(zip(ctx.wrt, found if isinstance(found, tuple) else (found,), strict=True))
        return (None, *[grads.get(k) for k in range(len(args))])


def _restored(ctx: Any) -> list[Any]:
    """The arguments of a call: saved tensors and what was no tensor."""
    saved = iter(ctx.saved_tensors)
    return [next(saved) if a is None else a for a in ctx.args]


class KernelPullback(AutogradFunction):
    """The gradients of a kernel's call, by adjoints of its results; differentiable once more."""

    @staticmethod
    def forward(
        ctx: Any, function: UserKernel, wrt: tuple[int, ...], count: int, *both: Any
    ) -> Any:
        args, adjoints = both[:count], both[count:]
        values = _values(args)
        ctx.function, ctx.wrt, ctx.count = function, wrt, count
        ctx.args = [None if isinstance(a, Tensor) else a for a in both]
        ctx.save_for_backward(*[a for a in both if isinstance(a, Tensor)])
        file = function._file(values, wrt)
        found = file.module.pullback(*values, *_values(adjoints))
        return tuple(_like(g, args[k]) for k, g in zip(wrt, found, strict=True))

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        if is_grad_enabled():
            name = ctx.function.py_func.__name__
            raise RuntimeError(f"the third derivative of the kernel {name} is not supported")
        both = _restored(ctx)
        args, adjoints = both[: ctx.count], both[ctx.count :]
        values = _values(args)
        along = [
            v.astype(a.dtype) if isinstance(v, np.ndarray) else type(a)(v)
            for v, a in zip(_values(directions), [values[k] for k in ctx.wrt], strict=True)
        ]
        second = ctx.function._file(values, ctx.wrt, "second").module
        found = second.pullback(*values, *along, *_values(adjoints))[: len(ctx.wrt)]
        by_argument = {k: _like(g, args[k]) for k, g in zip(ctx.wrt, found, strict=True)}
        forward = ctx.function._file(values, ctx.wrt, "forward")
        _, _, tangents, _ = forward.module.value_and_tangent(*values, *along)
        several = tangents if forward.facts["is_tuple"] else (tangents,)
        floats = [
            t for t, kind in zip(several, forward.facts["dtypes"], strict=True) if kind[0] == "f"
        ]
        by_adjoint = [_like(t, a) for t, a in zip(floats, adjoints, strict=True)]
        return (None, None, None, *[by_argument.get(k) for k in range(ctx.count)], *by_adjoint)
