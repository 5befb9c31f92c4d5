"""`elementwise`: a user's function of numbers as an op of the graph, like those of the library."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import dtypes
from ..dtypes import dtype
from ..graph.elementwise import Elementwise
from ..graph.elementwise_record import together
from ..graph.inplace import write_out
from ..graph.levels import tracers
from ..graph.record import is_tensor
from ..schedule.codegen.body import Body, Pasted, own
from .refusal import NotDifferentiable
from .scalar_programs import FLOAT, TRUTH, WHOLE, Program, Rule, ScalarParameter, read_program
from .source import Function, Meaning, Values, python_function, remember

_KINDS = {"f": FLOAT, "i": WHOLE, "u": WHOLE, "b": TRUTH}


RESULTS = "result_"  # what a kernel calls the results of a program, with their numbers
# Before the names of recipes: products and convolutions know activations by those of the library's ops.
USERS = "user_"


# ----- bodies -----


class CallBody(Body):
    """A body that calls a program's function, for one of its results.

    `names` has what the op calls the program's parameters, by their numbers: all of them, or those that
    the program reads.
    """

    def __init__(self, program: Program, function: Function, result: int, is_whole: bool) -> None:
        self.program, self.function, self.result = program, function, result
        self.name = f"{USERS}{program.name}"
        numbers = range(len(program.parameters)) if is_whole else program.reads
        self.names: dict[int, str] = {}
        for k in numbers:
            name = program.parameters[k].name
            taken = (*self.names.values(), "g", "out")
            while name in taken or name.startswith(("g_", RESULTS)):
                name = f"_{name}"
            self.names[k] = name
        self._sort(program.parameters)

    def _sort(self, parameters: Sequence[ScalarParameter]) -> None:
        """Note which names are operands, and which are read as what."""
        kinds = [(name, parameters[k]) for k, name in self.names.items()]
        self.params = [name for name, p in kinds if not p.is_setting]
        self.attributes = [name for name, p in kinds if p.is_setting]
        self.logical = frozenset(name for name, p in kinds if p.kind == TRUTH)
        self.whole = frozenset(name for name, p in kinds if p.kind == WHOLE)

    def that_gives(self, wanted: Sequence[int]) -> Program:
        """The program that gives some of the results."""
        return self.program

    @property
    def is_cheap(self) -> bool:
        return self.program.is_cheap

    @property
    def results(self) -> list[ast.expr]:
        """What results read, as expressions."""
        return [self._reading([0])]

    def _reading(self, wanted: Sequence[int]) -> ast.expr:
        _, names = self.needed(wanted)
        return ast.Tuple([ast.Name(n, ast.Load()) for n in sorted(names)], ast.Load())

    def needed(self, wanted: Sequence[int]) -> tuple[list[ast.Assign], set[str]]:
        return [], {self.names[k] for k in self.that_gives(wanted).reads}

    def passes(self, k: int) -> bool:
        return False

    def paste(
        self,
        wanted: Sequence[int],
        into: Sequence[str],
        compute: dtype,
        given: Mapping[str, str] | None = None,
        of: str = "",
    ) -> Pasted:
        program = self.that_gives(wanted)
        function, module = program.function(compute.computed)
        names = [self.names[k] for k in program.reads]
        call = f"{function}({', '.join([(given or {}).get(n) or own(n, of) for n in names])})"
        if len(program.results) == 1:
            return Pasted([into[0].format(call)], {function: module})
        found = [own(f"{RESULTS}{k}", of) for k in range(len(program.results))]
        parts = zip(into, self.places(wanted), strict=True)
        lines = [f"{', '.join(found)} = {call}", *[target.format(found[k]) for target, k in parts]]
        return Pasted(lines, {function: module})

    def places(self, wanted: Sequence[int]) -> Sequence[int]:
        """Where results are among those of the program."""
        return [self.result]

    def arguments(self, program: Program, given: Mapping[str, Any]) -> list[Any]:
        """What a program reads, in the order of an op's operands and settings."""
        numbers = sorted(program.reads, key=lambda k: program.parameters[k].is_setting)
        return [given[self.names[k]] for k in numbers]


class BodyOfAll(CallBody):
    """The body that gives all results of a program."""

    def places(self, wanted: Sequence[int]) -> Sequence[int]:
        return wanted


class BackwardBody(CallBody):
    """A derivative of a body: a result for each parameter of that."""

    forward: CallBody

    @property
    def is_cheap(self) -> bool:
        return False

    @property
    def is_one_computation(self) -> bool:
        """Whether its function, with its loops, runs once for all gradients."""
        return not self.forward.is_cheap

    @property
    def results(self) -> list[ast.expr]:
        return [self._reading([k]) for k in range(len(self.forward.params))]


class PullbackBody(BackwardBody):
    """The derivative of a result, by the program that gives the gradients that are wanted."""

    def __init__(self, forward: CallBody) -> None:
        self.forward = forward
        self.program, self.function, self.result = forward.program, forward.function, forward.result
        self.name = f"{forward.name}_vjp"
        self.names = {0: "g"} | {k + 1: name for k, name in forward.names.items()}
        self._sort([ScalarParameter("g", FLOAT), *self.program.parameters])

    def that_gives(self, wanted: Sequence[int]) -> Program:
        numbers = [*self.forward.names]
        return self.program.pullback(self.result, tuple([numbers[k] for k in wanted]))

    def places(self, wanted: Sequence[int]) -> Sequence[int]:
        return range(len(wanted))

    def on_tensors(self, wanted: tuple[int, ...], functions: Mapping[str, Any]) -> Any:
        names = [*self.params, *self.attributes]

        def pulled(*values: Any) -> tuple[Any, ...]:
            given = dict(zip(names, values, strict=True))
            return tuple([self._gradient(k, given) for k in wanted])

        return pulled

    def _gradient(self, k: int, given: Mapping[str, Any]) -> Any:
        program = self.that_gives([k])
        if not program.reads:
            return 0.0
        return op_of(program, self.function, 0, is_whole=False)(*self.arguments(program, given))


class VjpBody(BackwardBody):
    """A derivative of the user's own, as gradients of all parameters."""

    def __init__(self, forward: CallBody, rule: Program) -> None:
        program = forward.program
        self.forward, self.program, self.result = forward, rule, 0
        self.function = forward.function
        self.name = f"{forward.name}_vjp"
        own_names = [program.parameters[k].name for k in forward.names]
        known = dict(zip(own_names, forward.names.values(), strict=True)) | {"g": "g", "out": "out"}
        self.names = {k: known[p.name] for k, p in enumerate(rule.parameters)}
        self._sort(rule.parameters)
        count = len(forward.params)
        if len(program.results) > 1:
            raise TypeError(
                f"{program.name}.vjp: {program.name} has several results; give their tangents by "
                f"{program.name}.jvp"
            )
        if len(rule.results) != count:
            raise TypeError(
                f"{program.name}.vjp: expected {count} results, one for each of {forward.params}, got "
                f"{len(rule.results)}"
            )

    def places(self, wanted: Sequence[int]) -> Sequence[int]:
        return wanted

    def on_tensors(self, wanted: tuple[int, ...], functions: Mapping[str, Any]) -> Any:
        names = [*self.params, *self.attributes]

        def pulled(*values: Any) -> tuple[Any, ...]:
            operands = self.arguments(self.program, dict(zip(names, values, strict=True)))
            ops = [op_of(self.program, self.function, k, is_whole=False) for k in wanted]
            return tuple([op(*operands) for op in ops])

        return pulled


class JvpBody(PullbackBody):
    """A derivative of the user's own, as the tangent of the result."""

    def __init__(self, forward: CallBody, rule: Program) -> None:
        self.forward, self.program, self.result = forward, rule, forward.result
        self.function = forward.function
        self.name = f"{forward.name}_vjp"
        program = forward.program
        parameters = program.parameters
        known = {parameters[k].name: name for k, name in forward.names.items()} | {"out": "out"}
        kept = [p for p in rule.parameters if not p.is_tangent]
        self.names = {0: "g"} | {k + 1: known[p.name] for k, p in enumerate(kept)}
        self._sort([ScalarParameter("g", FLOAT), *kept])
        if "out" in self.names.values() and len(program.results) > 1:
            raise TypeError(
                f"{program.name}.jvp: {program.name} has several results; compute what the rule needs of them"
            )
        self._tangents = {p.name: k for k, p in enumerate(rule.parameters) if p.is_tangent}

    def that_gives(self, wanted: Sequence[int]) -> Program:
        parameters = self.forward.program.parameters
        names = [parameters[k].name for k in self.forward.names]
        return self.program.pullback(
            self.result, tuple([self._tangents[f"t_{names[k]}"] for k in wanted])
        )


# ----- ops -----


def _result_dtypes(kind: str) -> Callable[[list[tuple[dtype, int]]], tuple[dtype, dtype]]:
    """The rule of dtypes of a result of a kind: it is computed in the floats of the operands."""

    def rule(operands: list[tuple[dtype, int]]) -> tuple[dtype, dtype]:
        found = dtypes.result_of(operands) if operands else dtypes.bool
        compute = found if found.is_floating_point else dtypes.get_default_dtype()
        return compute, {FLOAT: compute, WHOLE: dtypes.int64, TRUTH: dtypes.bool}[kind]

    return rule


def op_of(program: Program, function: Function, result: int, *, is_whole: bool) -> Elementwise:
    """The op of a result of a program, on all its parameters or on those that it reads."""
    found: Elementwise | None = program.ops.get(result)
    if found is None:
        body = CallBody(program, function, result, is_whole)
        kind = program.results[result]
        backward_name = f"{program.name.title().replace('_', '')}Backward0"
        found = program.ops[result] = Elementwise(
            body, dtypes=_result_dtypes(kind), backward_name=backward_name
        )
        if kind == FLOAT:
            found.back = _derivative(body)
            found.differentiable = True
    return found


def _derivative(body: CallBody) -> CallBody:
    rule, program = body.program.rule, body.program
    if rule is None:
        return PullbackBody(body)
    if program.rule_program is None:
        program.rule_program = _program_of_rule(program, rule)
    kind = JvpBody if rule.is_forward else VjpBody
    return kind(body, program.rule_program)


def _program_of_rule(program: Program, rule: Rule) -> Program:
    of_forward = {p.name: p for p in program.parameters}
    parameters = []
    for name in _names_of(rule.function):
        if name in of_forward:
            parameters.append(of_forward[name])
        else:
            parameters.append(ScalarParameter(name, FLOAT, is_tangent=name.startswith("t_")))
    return read_program(rule.function, parameters, f"{program.name}_rule")


def _names_of(f: Function) -> tuple[str, ...]:
    """The parameters of a function."""
    code = f.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


class ElementwiseFunction:
    """A function that `elementwise` has decorated.

    Example:
        >>> def half(x):
        ...     return 0.5 * x
        >>> adjit.elementwise(half)
        <elementwise half>
    """

    def __init__(self, f: Function) -> None:
        self.py_func = python_function(f)
        if not inspect.isfunction(self.py_func):
            raise NotDifferentiable(f"{f!r} is no Python function: its source cannot be read")
        functools.update_wrapper(self, self.py_func)
        code = self.py_func.__code__
        if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            raise NotDifferentiable(
                f"{self._name}: a function with *args or **kwargs cannot be elementwise\n"
                "Use plain parameters, and keyword-only ones for settings."
            )
        count = code.co_argcount
        self._params = code.co_varnames[:count]
        self._settings = code.co_varnames[count : count + code.co_kwonlyargcount]
        if not self._params:
            raise NotDifferentiable(
                f"{self._name}: an elementwise function has a parameter that is a tensor\n"
                "Write its first parameter before the `*`."
            )
        late = self.py_func.__defaults__ or ()
        self._defaults = dict(zip(self._params[count - len(late) :], late, strict=True))
        self._defaults |= self.py_func.__kwdefaults__ or {}
        self._own_rule: Rule | None = None
        self._meanings: list[Meaning] = []
        self._by_digest: dict[str, dict[str, Program]] = {}
        self._programs: dict[
            str, Program
        ] = {}  # for the constants of now, by the kinds of arguments
        remember(self.py_func)

    @property
    def _name(self) -> str:
        return self.py_func.__name__

    def __repr__(self) -> str:
        return f"<elementwise {self._name}>"

    def __reduce__(self) -> str:
        """A copy is the object itself, as of any function."""
        return self.py_func.__qualname__

    def _constants_of_capture(self) -> Values:
        """What `adjit.compile` compares: the rule, and which objects the names of the function's text mean."""
        return Values([self._own_rule, *[v for meaning in self._meanings for v in meaning.now()]])

    def source(self, *args: Any, **settings: Any) -> str:
        """Read the functions that kernels call for arguments like these, with the user's lines as comments.

        Example:
            >>> @adjit.elementwise
            ... def half(x):
            ...     return 0.5 * x
            >>> "t = float32(0.5) * x" in half.source(adjit.ones(2))
            True
        """
        return self._program(self._bound(args, settings)).file.source

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Record a call on tensors and numbers; on numbers alone the function itself runs."""
        given = self._bound(args, named)
        if not any(map(is_tensor, given)):
            return self.py_func(*given[: len(self._params)], **dict(zip(
                self._settings, given[len(self._params) :], strict=True)))  # fmt: skip
        program = self._program(given)
        ops = [op_of(program, self.py_func, k, is_whole=True) for k in range(len(program.results))]
        made = self._recorded(program, ops, given)
        results = made if program.is_tuple else made[0]
        return results if out is None else write_out(self._name, out, results)

    def _recorded(
        self, program: Program, ops: Sequence[Elementwise], given: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The results: of a tracer one by one, else of one node."""
        if len(ops) == 1 or any(value.__class__ in tracers for value in given):
            return tuple([op(*given) for op in ops])
        if program.body_of_all is None:
            program.body_of_all = BodyOfAll(program, self.py_func, 0, True)
        count = len(self._params)
        return together(
            ops,
            program.body_of_all,
            program.joint_recipes,
            tuple(given[:count]),
            tuple(given[count:]),
        )

    def _bound(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arguments in order, those of settings behind the others."""
        if len(args) > len(self._params):
            raise TypeError(
                f"{self._name}() takes {len(self._params)} positional arguments but {len(args)} were given"
            )
        given = [*args]
        used = 0
        for name in (*self._params, *self._settings)[len(args) :]:
            if name in named:
                used += 1
                given.append(named[name])
            elif name in self._defaults:
                given.append(self._defaults[name])
            else:
                raise TypeError(f"{self._name}() missing a required argument: '{name}'")
        if used < len(named):
            unknown = next(
                n for n in named if n not in (*self._params, *self._settings)[len(args) :]
            )
            if unknown in self._params:
                raise TypeError(f"{self._name}() got multiple values for argument '{unknown}'")
            raise TypeError(f"{self._name}() got an unexpected keyword argument '{unknown}'")
        return given

    def vjp(self, rule: Function) -> ElementwiseFunction:
        """Give the function a derivative of its own, as gradients: a decorator.

        The rule is a function of numbers too. Its parameters are `g`, the gradient of the result, and any of
        the function's parameters and settings and `out`, the result; it returns a gradient for each
        parameter of the function that is no setting. It is differentiated in turn where
        second derivatives are wanted.

        Raises:
            TypeError: for parameters of other names, and for a function of several results, whose
                derivative is given by `jvp`.

        Example:
            >>> @adjit.elementwise
            ... def absolute(x):
            ...     return x if x > 0.0 else -x
            >>> @absolute.vjp
            ... def _(g, x):
            ...     return g if x >= 0.0 else -g
            >>> x = adjit.tensor([-2., 0., 3.], requires_grad=True)
            >>> absolute(x).sum().backward()
            >>> x.grad
            tensor([-1.,  1.,  1.])
        """
        return self._with_rule(rule, False, ["g"], ["out"])

    def jvp(self, rule: Function) -> ElementwiseFunction:
        """Give the function a derivative of its own, as tangents: a decorator.

        The rule is a function of numbers too. Its parameters are a tangent `t_x` for each parameter x of the
        function that is no setting, and any of its parameters and settings and `out`, the
        result if it is one; it returns the tangent of each result, and is linear in the tangents.

        Raises:
            TypeError: for parameters of other names.

        Example:
            >>> @adjit.elementwise
            ... def root(x):
            ...     y = 1.0
            ...     for k in range(20):
            ...         y = 0.5 * (y + x / y)
            ...     return y
            >>> @root.jvp
            ... def _(t_x, out):
            ...     return t_x / (2.0 * out)
            >>> x = adjit.tensor(9.0, requires_grad=True)
            >>> root(x).backward()
            >>> x.grad
            tensor(0.1667)
        """
        return self._with_rule(rule, True, [f"t_{p}" for p in self._params], ["out"])

    def _with_rule(
        self, rule: Function, is_forward: bool, needed: Sequence[str], more: Sequence[str]
    ) -> ElementwiseFunction:
        rule = python_function(rule)
        names = _names_of(rule)
        known = {*needed, *more, *self._params, *self._settings}
        if not {*needed} <= {*names} or not {*names} <= known:
            raise TypeError(
                f"{self._name}.{'jvp' if is_forward else 'vjp'}: expected the parameters {', '.join(needed)} "
                f"and any of {sorted(known - {*needed})}, got {[*names]}"
            )
        self._own_rule, self._meanings, self._by_digest = Rule(rule, is_forward), [], {}
        return self

    def _program(self, given: Sequence[Any]) -> Program:
        """The program for arguments of such kinds, as the function's constants are now."""
        kinds = "".join([self._kind(k, value) for k, value in enumerate(given)])
        if not self._meanings or not all(m.is_current() for m in self._meanings):
            functions = [self.py_func, *([self._own_rule.function] if self._own_rule else [])]
            self._meanings = [Meaning(f) for f in functions]
            digest = " ".join([meaning.digest for meaning in self._meanings])
            self._programs = self._by_digest.setdefault(digest, {})
        found = self._programs.get(kinds)
        if found is None:
            names = (*self._params, *self._settings)
            count = len(self._params)
            parameters = [
                ScalarParameter(name, kind, k >= count)
                for k, (name, kind) in enumerate(zip(names, kinds, strict=True))
            ]
            found = self._programs[kinds] = read_program(self.py_func, parameters)
            found.rule = self._own_rule
        return found

    def _kind(self, k: int, value: Any) -> str:
        if is_tensor(value):
            if k >= len(self._params):
                raise TypeError(
                    f"{self._name}(): the setting '{self._settings[k - len(self._params)]}' must be a number, "
                    "not Tensor; make it a parameter before the `*` to give tensors"
                )
            return _KINDS[value.dtype.kind]
        item = getattr(value, "item", None)
        if item is not None and getattr(value, "ndim", None) == 0:
            value = item()
        if isinstance(value, bool):
            return TRUTH
        if isinstance(value, (int, float)):
            return WHOLE if isinstance(value, int) else FLOAT
        name = (*self._params, *self._settings)[k]
        raise TypeError(
            f"{self._name}(): argument '{name}' must be Tensor or a number, not {type(value).__name__}"
        )


def elementwise(f: Function) -> ElementwiseFunction:
    """Decorate a function of numbers: it becomes an op on tensors, like a built-in one.

    The function may have `if`, `while`, `for` over a range, `break`, `continue` and `return` anywhere, locals
    of changing type, several results (a tuple), and call other functions, njit ones too, and those of
    `math` and NumPy; its source is read. Its parameters are tensors or numbers, which are broadcast and
    promoted as by any op; keyword-only ones are settings, numbers without gradients. Floats are computed in
    the dtype that operands are promoted to, and numbers of the text do not change that (a loop until a
    difference is below 1e-15 does not end in float32); whole numbers and truth values stay what they are, in
    int64. A result that is a float has the dtype of promotion (the default dtype if all operands are whole),
    one that is whole int64, a truth value bool.

    It is differentiable to any order and in forward mode in its operands that are floats; what a branch did not
    take contributes nothing, and functions that are constant between jumps (`floor`, `int`) have the
    gradient zero. The derivative of an iteration that stops is a step behind its value: `f.vjp` and `f.jvp`
    decorate a derivative of one's own, for instance that of the equation that is solved. It works in `vmap` and
    `adjit.compile`, fuses with its neighbours, and runs on CUDA. Without tensors the function
    itself is called. Globals and variables of closures may change: then the next call is of another kernel.

    Raises:
        NotDifferentiable: at the first call, with the line, if the function has something else; when it is
            decorated, if its source is not there, or it has *args or no parameter.
        TypeError: at a call, for arguments that the function does not have, that are neither tensors nor
            numbers, or for a tensor as a setting.

    Example:
        >>> import math
        >>> @adjit.elementwise
        ... def kepler(mean, eccentricity, *, rounds=50):
        ...     angle = mean
        ...     for k in range(rounds):
        ...         error = angle - eccentricity * math.sin(angle) - mean
        ...         step = error / (1.0 - eccentricity * math.cos(angle))
        ...         angle -= step
        ...         if abs(step) < 1e-12:
        ...             break
        ...     return angle
        >>> mean = adjit.tensor([0.5, 1.0, 2.0], requires_grad=True)
        >>> kepler(mean, 0.3)
        tensor([0.6913, 1.2881, 2.2360], grad_fn=<KeplerBackward0>)
        >>> kepler(mean, 0.3).sum().backward()
        >>> mean.grad
        tensor([1.3006, 1.0913, 0.8438])
    """
    return ElementwiseFunction(f)
