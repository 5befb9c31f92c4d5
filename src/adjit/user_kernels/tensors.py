"""`kernel`: a user's function of arrays as one node of the graph on tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
from numba import types

from .. import devices, dtypes
from ..autograd.dual import CAPTURED, DualLevel
from ..autograd.function import Function as AutogradFunction
from ..autograd.modes import is_grad_enabled
from ..graph.levels import innermost, is_traced, tracers
from ..graph.primitives import from_array, number
from ..graph.record import needs_grad
from ..graph.state import below
from ..ops.creation import from_numpy, tensor
from ..ops.joining import stack
from ..tensor import Tensor
from ..tracers.batched import BatchLevel
from .dispatch import Specializations, types_of
from .examples import ResultOfOne, for_examples
from .generated import GeneratedFile, Mode, generated
from .gpu_run import GpuArray
from .gpu_tensors import GpuFiles, memory_on, place_of, results_on
from .refusal import NotDifferentiable
from .source import Function, Values, positional, python_function, remember
from .tangent_functions import tangent_function
from .usual_calls import (
    SAVED,
    KernelOp,
    UsualCall,
    array_of,
    kinds_of,
    refuse_shared,
    restored,
    scaled,
    values_of,
)


@overload
def kernel(f: Function, *, checkpoint: bool = False) -> UserKernel: ...
@overload
def kernel(*, checkpoint: bool = False) -> Callable[[Function], UserKernel]: ...
def kernel(
    f: Function | None = None, *, checkpoint: bool = False
) -> UserKernel | Callable[[Function], UserKernel]:
    """Decorate a Numba function of arrays so that tensors can be given to it and gradients flow through it.

    The function may have loops and branches of any kind, local arrays, whole-array statements and calls of
    other functions; its source is read, as `value_and_grad` does. On tensors a call is one node of the
    graph: arrays are tensors or NumPy arrays, numbers are Python's or tensors without dimensions.
    Results are tensors, in the precision that Numba computes in; whole numbers stay Python's. A tensor that the
    function writes into is changed as by an in-place operation. Without tensors the function runs on
    NumPy arrays. Beside tensors that need gradients, a NumPy array that is written has the values, as a tensor
    on its memory would, and one that is read is copied: it may be another one by the time of backward.

    A function that returns one float and writes into no argument computes its gradient with its value;
    otherwise it runs once more on the way back. Forward mode works everywhere, double backward, to any order,
    where no argument is written. Inside of `adjit.func.vmap` the loop over the examples is part of the kernel.

    On tensors of a GPU each loop by `prange` that is in no other loop is a device kernel, forward and back,
    with a thread for each round; statements of whole arrays are too, where their elements are independent.
    All else runs on the host, and waits for the GPU where it reads an element or a sum over a loop. What
    several rounds read gets its gradient in the same bits in each run, unless
    `use_deterministic_algorithms(False)` lets threads add by atomics. There is no double backward, no
    forward mode and no `vmap` on a GPU.

    Args:
        f: the function; without it the result is a decorator: `@adjit.kernel(checkpoint=True)`.
        checkpoint: whether outer loops run again on the way back, as for `value_and_grad`: memory for about
            √(2n) of n rounds.

    Raises:
        NotDifferentiable: at the first call, if the function has something that cannot be differentiated.
        RuntimeError: on a GPU for a function without a loop by `prange` or with another loop over arrays, and
            for tensors that are not all on one device; on a double backward through a written argument,
            for a written argument that all examples of `vmap` share, and as in-place operations on a leaf
            that requires gradients, and in forward mode on a tensor without a tangent; if NumPy arrays are all
            that a function with gradients writes, and it returns nothing.

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
    if f is None:
        return functools.partial(UserKernel, checkpoint=checkpoint)
    return UserKernel(f, checkpoint=checkpoint)


class UserKernel:
    """A function that `kernel` has decorated.

    Example:
        >>> def total(x):
        ...     return x[0] + x[1]
        >>> adjit.kernel(total)
        <kernel total>
    """

    def __init__(self, f: Function, *, checkpoint: bool = False, strong_zero: bool = False) -> None:
        self.py_func, self.checkpoint = python_function(f), checkpoint
        self._function = f
        # As `py_func`, what Numba's dispatchers have.
        self.targetoptions = getattr(f, "targetoptions", None)
        self._count, self._bound = self.py_func.__code__.co_argcount, positional(f)
        self._strong_zero = strong_zero  # as a function of tangents needs it: they may be infinite
        self._codes = Specializations(self.py_func, self._code_for)
        self._on_gpu = GpuFiles(self._function)
        self._examples: dict[object, UserKernel] = {}  # the kernels that `vmap` calls
        self._tangents = Specializations(self.py_func, self._tangents_for)
        functools.update_wrapper(self, self.py_func)
        remember(self.py_func)
        # The node of the graph by the name of the kernel, in `repr` and in drawings.
        self._call: Any = type(self.py_func.__name__, (KernelCall,), {})
        self._op = KernelOp(self._call)

    def __repr__(self) -> str:
        return f"<kernel {self.py_func.__name__}>"

    def _constants_of_capture(self) -> Values:
        """What `adjit.compile` compares: which objects the names of the function's text mean."""
        meaning = self._codes.meaning
        return Values() if meaning is None else meaning.now()

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function on tensors, arrays and numbers."""
        if named or len(args) < self._count:
            args = self._bound(args, named)
        kinds = kinds_of(args)
        call = None if kinds is None else self._codes.call_of(kinds)
        return self._first_call(kinds, args) if call is None else call(args)

    def _first_call(self, kinds: object, args: Sequence[Any]) -> Any:
        """A call on arguments of kinds that are new, or that have to be looked at each time."""
        if not any(isinstance(a, Tensor) for a in args):
            primal = self.code_for(args).module.primal
            self._codes.keep_call(kinds, lambda args: primal(*args))
            return primal(*args)
        if tracers and is_traced(args):
            level = innermost(args)
            if isinstance(level, DualLevel):
                return self._of_duals(level, args)
            if isinstance(level, BatchLevel):
                return self._of_examples(level, args)
            raise NotImplementedError(
                f"the kernel {self.py_func.__name__} has no rule for {type(level).__name__}: only for vmap and "
                "forward mode"
            )
        values = values_of(args)
        wrt = tuple([k for k, a in enumerate(args) if isinstance(a, Tensor) and needs_grad(a)])
        code = self.code_for(values, wrt if wrt and is_grad_enabled() else None)
        if code.place is devices.CPU and any(isinstance(a, Tensor) and a.is_cuda for a in args):
            raise RuntimeError(
                f"{self.py_func.__name__} is given no array on a GPU, so it runs on the CPU: "
                "move its numbers by .cpu()"
            )
        if code.place is devices.CPU and code.wrt and any(isinstance(a, np.ndarray) for a in args):
            refuse_lost(code, args)
            written = {*code.written}
            self._codes.keep_call(kinds, lambda args: self(*with_tensors(args, written)))
            return self(*with_tensors(args, written))
        if code.place is devices.CPU and not (code.written and code.wrt):
            call = UsualCall(self._op, code, args)
            self._codes.keep_call(kinds, call)
            return call(args)
        refuse_shared(code, args)
        outs = self._call.apply(Call(code, values), *args)
        if not code.kinds:
            return None
        return outs[: len(code.kinds)] if code.is_tuple else outs[0]

    def _of_examples(self, level: BatchLevel, args: Sequence[Any]) -> Any:
        """A call inside of `vmap`: one of a kernel with the loop over the examples."""
        name = self.py_func.__name__
        firsts = values_of([_first(a) for a in args])
        code = self.code_for(firsts)
        if code.place is not devices.CPU:
            raise RuntimeError(
                f"the kernel {name} has no vmap on a GPU: give it the whole batch, with a prange over "
                "the examples"
            )
        has = tuple([level.has(a) for a in args])
        for k in code.written:
            if not has[k]:
                raise RuntimeError(
                    f"vmap: {name} writes into its argument {k}, which all examples share: expand and copy it"
                )
        sizes: list[int] = []
        results: list[ResultOfOne] = []
        if any(kind is not None for kind in code.kinds):
            given = [v.copy() if k in code.written else v for k, v in enumerate(firsts)]
            found = code.module.primal(*given)
            for one, kind in zip(found if code.is_tuple else (found,), code.kinds, strict=True):
                sizes += np.shape(one)
                results.append(
                    ResultOfOne(np.ndim(one), "i8" if kind is None else kind.numpy.str[1:])
                )
        else:
            results = [ResultOfOne(0, "i8") for _ in code.kinds]
        key = has, tuple(results)
        kernel = self._examples.get(key)
        if kernel is None:
            function = for_examples(self.py_func, has, results, is_tuple=code.is_tuple)
            kernel = self._examples[key] = UserKernel(
                function, checkpoint=self.checkpoint, strong_zero=self._strong_zero
            )
        with below(level):
            outs = kernel(*sizes, *[a._value if h else a for a, h in zip(args, has, strict=True)])
        made = tuple([level.wrapped(t) for t in outs or ()])
        return made if code.is_tuple else made[0] if made else None

    def _of_duals(self, level: DualLevel, args: Sequence[Any]) -> Any:
        """A call in forward mode: one on values, and one of the kernel of tangents."""
        values, tangents = [level.value(a) for a in args], [level.tangent(a) for a in args]
        code = self.code_for(values_of([_first(v) for v in values]))
        written = [k for k in code.written if isinstance(args[k], Tensor)]
        for k in {*code.written}.difference(written):
            if values[k].dtype.kind == "f" and any(t is not None for t in tangents):
                raise RuntimeError(
                    f"{self.py_func.__name__} writes into its argument {self._name_of(k)}, a NumPy array, "
                    "which has no tangent: make it in the kernel, by np.empty"
                )
        changed: dict[int, Any] = {}
        found: Sequence[Any] | None = None
        if any(t is not None for t in tangents):
            if not all(level.has(args[k]) for k in written):
                raise RuntimeError(CAPTURED)
            changed, found = self._pushed(code, values, tangents, written)
        made = self(*values)
        for k, tangent in changed.items():
            level.write_tangent(args[k], tangent)
        several = made if code.is_tuple else (made,)
        duals = list(several)
        for k in code.floats:
            tangent = None if found is None else _tangent_like(several[k], found[k])
            duals[k] = level.dual(several[k], tangent)
        return tuple(duals) if code.is_tuple else duals[0]

    def _name_of(self, k: int) -> str:
        """What the function calls an argument."""
        return self.py_func.__code__.co_varnames[k]

    def _pushed(
        self, code: KernelCode, values: Sequence[Any], tangents: Sequence[Any], written: Sequence[int]
    ) -> tuple[dict[int, Any], Sequence[Any]]:  # fmt: skip
        """The tangents of the arguments that are written, and those of the results."""
        floats = [
            k for k, v in enumerate(values) if isinstance(v, Tensor) and v.dtype.is_floating_point
        ]
        along = tuple([k for k in floats if tangents[k] is not None or k in written])
        directions = {
            k: values[k].new_zeros(values[k].shape)
            if tangents[k] is None
            else tangents[k].to(values[k].dtype)
            for k in along
        }
        given = list(values)
        for k in code.written:
            if k not in written:
                given[k] = values[k].copy()
            elif k in directions:
                directions[k] = directions[k].clone()
                # Where there are many directions of one value, each has its own.
                given[k] = directions[k].new_zeros(values[k].shape).copy_(values[k])
            else:
                given[k] = values[k].clone()
        made = self.tangents(values, along)(*given, *directions.values())
        changed = {k: directions[k] for k in written if k in directions}
        return changed, made if code.is_tuple else (made,)

    def tangents(self, values: Sequence[Any], along: tuple[int, ...]) -> UserKernel:
        """The kernel of (arguments like these, directions of some) that gives the tangents of results.

        Args:
            values: arguments of the kernel.
            along: the positions of those that have directions.

        Raises:
            RuntimeError: on a GPU.

        Example:
            >>> @adjit.kernel
            ... def square(x):
            ...     return x[0] * x[0]
            >>> x = adjit.tensor([3.0])
            >>> square.tangents([x], (0,))(x, adjit.ones(1))
            tensor(6.)
        """
        name, firsts = self.py_func.__name__, values_of([_first(v) for v in values])
        if place_of(name, firsts) is not None:
            raise RuntimeError(
                f"the kernel {name} has no forward mode and no double backward on a GPU: "
                "move its arguments by .cpu()"
            )
        return self._tangents.find(firsts, along)

    def _tangents_for(
        self, argument_types: tuple[types.Type, ...], along: tuple[int, ...]
    ) -> UserKernel:
        function = tangent_function(self._function, argument_types, along)
        return UserKernel(function, checkpoint=self.checkpoint, strong_zero=True)

    def code_for(
        self, values: Sequence[Any], wrt: tuple[int, ...] | None = None, mode: Mode = "reverse"
    ) -> KernelCode:
        """The code for arguments like these, differentiated by those of `wrt`."""
        place = place_of(self.py_func.__name__, values)
        if place is not None:
            return KernelCode(self, self._on_gpu.find(values, wrt), wrt, place)
        return self._codes.find(values, (wrt, mode))

    def _code_for(
        self, argument_types: tuple[types.Type, ...], more: tuple[tuple[int, ...] | None, Mode]
    ) -> KernelCode:
        wrt, mode = more
        file = generated(
            self._function, argument_types, wrt, mode,
            checkpoint=self.checkpoint, strong_zero=self._strong_zero,
        )  # fmt: skip
        return KernelCode(self, file, wrt)

    def source(self, *args: Any) -> str:
        """Read the generated code for arguments like these, with the user's lines as comments.

        Example:
            >>> def square(x):
            ...     return x * x
            >>> "# back 2: return x * x" in adjit.kernel(square).source(3.0)
            True
        """
        return self.code_for(values_of(args)).file.source

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
        values = values_of(args)
        file = self.code_for(values).file
        facts = file.facts
        lines = [f"{self.py_func.__name__}: {', '.join(map(str, types_of(values)))}"]
        lines += [f"kept: {name}, {why} ({note})" for name, note, why in facts["kept"]]
        lines += [
            f"no gradient flows through {function} ({note})" for function, note in facts["flat"]
        ]
        if hasattr(file.module, "peak_bytes"):  # on a GPU launches count
            lines.append(f"on the tape: {file.module.peak_bytes(*values)} bytes")
        return "\n".join(lines)


class KernelCode:
    """The generated code for one kind of arguments, and what there is to do with its results."""

    def __init__(
        self,
        kernel: UserKernel,
        file: GeneratedFile,
        wrt: tuple[int, ...] | None,
        place: devices.device = devices.CPU,
    ) -> None:
        facts = file.facts
        self.place = place
        self.kernel, self.file, self.module, self.wrt = kernel, file, file.module, wrt or ()
        self.is_tuple: bool = facts["is_tuple"]
        # Of results: the dtypes of floats and arrays, None for whole numbers, which stay Python's.
        self.kinds = [
            None if kind == "whole" else dtypes.of_numpy(np.dtype(kind)) for kind in facts["dtypes"]
        ]
        self.ndims: list[int] = [
            int(kind[5]) if kind.startswith("array") else 0 for kind in facts["results"]
        ]
        self.floats = [
            k for k, kind in enumerate(self.kinds) if kind is not None and kind.is_floating_point
        ]
        self.written: list[int] = facts.get("written", [])
        # Whether the gradient is computed with the value.
        self.is_joint = (
            wrt is not None
            and facts["results"] == ["float"]
            and not self.is_tuple
            and not self.written
        )

    def pull_back(
        self, values: Sequence[Any], adjoints: Sequence[Any], wanted: Sequence[Any]
    ) -> tuple[Sequence[Any], list[Tensor]]:
        """The results that are numbers, and the gradients as tensors of the shapes and dtypes of `wanted`."""
        gradients = [memory_on(self.place, a) if a._spec.ndim else None for a in wanted]
        arrays = [array_of(g) for g in gradients if g is not None]
        numbers, found = self.module.pullback(*values, *adjoints, *arrays)
        rest = iter(found)
        return numbers, [
            number(float(next(rest)), a._spec.dtype).to(a.device) if g is None else g
            for a, g in zip(wanted, gradients, strict=True)
        ]

    def as_results(self, results: Sequence[Any]) -> list[Any]:
        """Tensors of floats and arrays; whole numbers as they are."""
        if self.place is not devices.CPU:
            return results_on(self.place, results, self.kinds)
        return [
            r if kind is None else from_array(r) if isinstance(r, np.ndarray) else number(r, kind)
            for r, kind in zip(results, self.kinds, strict=True)
        ]


def with_tensors(args: Sequence[Any], written: set[int]) -> list[Any]:
    """Arguments with tensors for NumPy arrays: on the memory of those that are written, copies of the others,
    which may be others until backward reads them. `kind_of` has refused dtypes that no tensor has."""
    return [
        a if not isinstance(a, np.ndarray) else from_numpy(a) if k in written else tensor(a)
        for k, a in enumerate(args)
    ]


def refuse_lost(code: KernelCode, args: Sequence[Any]) -> None:
    """Refuse a call whose gradients would be lost, as NumPy arrays are all that it writes.

    Raises:
        RuntimeError: if nothing comes out that has gradients.
    """
    if not code.kinds and not any(isinstance(args[k], Tensor) for k in code.written):
        raise RuntimeError(
            f"{code.kernel.py_func.__name__} returns nothing and writes into NumPy arrays alone, which have no "
            "gradients: give it tensors to write into, or x.detach() instead of x"
        )


def _first(a: Any) -> Any:
    """The first example of all that an argument stands for."""
    while a.__class__ in tracers:
        a = a._value[0] if isinstance(a._level, BatchLevel) else a._value
    return a


def _tangent_like(value: Tensor, tangent: Any) -> Any:
    """The tangent of a result: that of one which no direction reaches is the number 0."""
    if not isinstance(tangent, Tensor) or tangent.ndim != value.ndim:
        return value.new_zeros(value.shape)
    return tangent.to(value.dtype)


class Call:
    """One call of a kernel; what its forward leaves for the way back."""

    __slots__ = ("code", "gradients", "originals", "values")

    def __init__(self, code: KernelCode, values: list[Any]) -> None:
        self.code, self.values = code, values
        self.gradients: list[Tensor] | None = None
        self.originals: Sequence[Any] = ()  # the arguments as they were before

    @property
    def written(self) -> list[int]:
        """The tensors that are written; numbers and arrays of the caller's are no part of the graph."""
        return [k for k in self.code.written if isinstance(self.originals[k], Tensor)]


class KernelCall(AutogradFunction):
    """A call of a kernel on tensors."""

    @staticmethod
    def forward(call: Call, *args: Any) -> Any:
        code, values = call.code, call.values
        call.originals = args
        if code.is_joint:
            results, call.gradients = code.pull_back(values, (1.0,), [args[k] for k in code.wrt])
            return tuple(code.as_results(results))
        written = call.written
        if written and code.wrt:
            call.originals = [a.detach().clone() if k in written else a for k, a in enumerate(args)]
        for k in written:
            values[k] = values[k].copy()
        results = code.module.primal(*values)
        several = results if code.is_tuple else (results,) if code.kinds else ()
        outs = code.as_results(several)
        for k in written:
            changed = values[k]
            args[k].copy_(changed.tensor if isinstance(changed, GpuArray) else from_array(changed))
        return (*outs, *[args[k] for k in written])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        call, *args = inputs
        ctx.code, ctx.gradients, ctx.written = call.code, call.gradients, call.written
        ctx.args = [SAVED if isinstance(a, Tensor) else a for a in args]
        written = [args[k] for k in call.written]
        ctx.mark_dirty(*[t for t in written if t.dtype.is_floating_point])
        ctx.mark_non_differentiable(*[t for t in written if not t.dtype.is_floating_point])
        if call.code.wrt:
            ctx.save_for_backward(*[a for a in call.originals if isinstance(a, Tensor)])
        call.originals = call.values = ()

    @staticmethod
    def backward(ctx: Any, *adjoints: Any) -> Any:
        args, code = restored(ctx), ctx.code
        create_graph = is_grad_enabled()
        if create_graph and code.written:
            raise RuntimeError(
                f"{code.kernel.py_func.__name__} writes into its arguments: "
                "it has no double backward; write into new arrays and return them"
            )
        if ctx.gradients is not None and not create_graph:
            found = [scaled(g, adjoints[0]) for g in ctx.gradients]
        else:
            floats = [adjoints[k] for k in code.floats]
            written = [
                adjoint
                for k, adjoint in zip(ctx.written, adjoints[len(code.kinds) :], strict=True)
                if args[k].dtype.is_floating_point
            ]
            both = [*args, *floats, *written]
            is_simple = not create_graph and not (tracers and is_traced(both))
            pull = KernelPullback.forward if is_simple else KernelPullback.apply
            found = pull(code, len(args), *both)
        grads = dict(zip(code.wrt, found, strict=True))
        return (None, *[grads.get(k) for k in range(len(args))])


class KernelPullback(AutogradFunction):
    """The gradients of a kernel's call, by adjoints of its results; differentiable once more."""

    @staticmethod
    def forward(code: KernelCode, count: int, *both: Any) -> Any:
        args, adjoints = both[:count], both[count:]
        wanted = [args[k] for k in code.wrt]
        return tuple(code.pull_back(values_of(args), values_of(adjoints), wanted)[1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.code, ctx.count, *both = inputs
        ctx.args = [SAVED if isinstance(a, Tensor) else a for a in both]
        ctx.set_materialize_grads(False)
        tensors = [a for a in both if isinstance(a, Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], code: KernelCode, count: int, *both: Any) -> Any:
        """Many pullbacks of one call, as of `jacrev`: one after the other."""
        found = [
            KernelPullback.apply(
                code,
                count,
                *[b if d is None else b[k] for b, d in zip(both, in_dims[2:], strict=True)],
            )
            for k in range(info.batch_size)
        ]
        return tuple([stack(rows) for rows in zip(*found, strict=True)]), (0,) * len(code.wrt)

    @staticmethod
    def jvp(ctx: Any, code: Any, count: Any, *tangents: Any) -> Any:
        """It is linear in the adjoints; the arguments were saved, and so are values."""
        if any(t is not None for t in tangents[: ctx.count]):
            raise NotImplementedError("the derivative of a kernel along its arguments, once saved")
        both = restored(ctx)
        adjoints = [
            b.new_zeros(b.shape) if t is None else t
            for b, t in zip(both[ctx.count :], tangents[ctx.count :], strict=True)
        ]
        return KernelPullback.apply(ctx.code, ctx.count, *both[: ctx.count], *adjoints)

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        """The gradient of the sum of adjoints times tangents in these directions."""
        code, wrt, count = ctx.code, ctx.code.wrt, ctx.count
        both = restored(ctx)
        args, adjoints = both[:count], both[count:]
        along = [
            args[k].new_zeros(args[k].shape) if d is None else d.to(args[k].dtype)
            for k, d in zip(wrt, directions, strict=True)
        ]
        try:
            kernel = code.kernel.tangents(args, wrt)
            kernel.code_for(values_of([_first(a) for a in [*args, *along]]))
        except NotDifferentiable:
            # Of arrays that change places in loops of loops, whose tangents cannot be read.
            if is_grad_enabled() or (tracers and is_traced(along)):
                raise
            return _second_order(code, args, adjoints, along)
        given = [*args, *along]
        also = tuple(range(count, count + len(along))) if is_grad_enabled() else ()
        of_tangents = kernel.code_for(values_of([_first(a) for a in given]), (*wrt, *also))
        by_result = dict(zip(code.floats, adjoints, strict=True))
        theirs = [
            by_result[k] if of_tangents.ndims[k] == code.ndims[k] and k in by_result else 0.0
            for k in of_tangents.floats
        ]
        found = KernelPullback.apply(of_tangents, len(given), *given, *theirs)
        made = kernel(*given)
        several = made if code.is_tuple else (made,)
        by_argument = dict(zip(wrt, found, strict=False))
        by_adjoint = [_tangent_like(a, several[k]) for k, a in by_result.items()]
        return (None, None, *[by_argument.get(k) for k in range(count)], *by_adjoint)


def _second_order(
    code: KernelCode, args: Sequence[Any], adjoints: Sequence[Any], along: Sequence[Any]
) -> tuple[Any, ...]:
    """What the backward of `KernelPullback` gives, by code that is written for this and nothing else."""
    kernel, wrt, values = code.kernel, code.wrt, [*values_of(args), *values_of(along)]
    wanted = [args[k] for k in wrt]
    second = kernel.code_for(values[: len(args)], wrt, "second")
    _, found = second.pull_back(values, values_of(adjoints), [*wanted, *wanted])
    by_argument = dict(zip(wrt, found, strict=False))
    forward = kernel.code_for(values[: len(args)], wrt, "forward")
    _, _, tangents, _ = forward.module.value_and_tangent(*values)
    results = forward.as_results(tangents if forward.is_tuple else (tangents,))
    by_adjoint = [_tangent_like(a, results[k]) for k, a in zip(code.floats, adjoints, strict=True)]
    return (None, None, *[by_argument.get(k) for k in range(len(args))], *by_adjoint)
