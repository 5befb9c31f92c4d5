"""Tracing: a program is run on symbols, and what it does with them becomes a graph."""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from .. import overrides
from ..names import _assert
from ..nn import Module, Sequential
from ..nn.parameter import Parameter
from ..tensor import Tensor
from .graph import Graph
from .graph_module import GraphModule, compiled
from .node import Node, base_types, map_aggregate
from .proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase

__all__ = ["PH", "ProxyableClassMeta", "Tracer", "is_fx_tracing", "symbolic_trace", "wrap"]

_LIBRARY = __name__.partition(".")[0]
F = TypeVar("F", bound="str | Callable[..., Any]")

# Where names of functions lie that are called in graphs, not looked into: the globals of modules by their id.
_wrapped: dict[tuple[int, str], dict[str, Any]] = {}
_proxyable: set[type] = set()
_tracing = 0


class _Placeholder:
    """An input among `concrete_args` that stays a symbol."""

    def __repr__(self) -> str:
        return "PH"


PH = _Placeholder()


def is_fx_tracing() -> bool:
    """True while a program is being traced.

    Example:
        >>> adjit.fx.is_fx_tracing()
        False
    """
    return bool(_tracing)


class ProxyableClassMeta(type):
    """Makes of calls of a class with symbols nodes that construct it.

    Example:
        >>> class Pair(metaclass=adjit.fx.ProxyableClassMeta):
        ...     def __init__(self, left, right):
        ...         self.left, self.right = left, right
        >>> def swapped(x, y):
        ...     pair = Pair(x, y)
        ...     return pair.right - pair.left
        >>> adjit.fx.symbolic_trace(swapped)(adjit.ones(1), adjit.zeros(1))
        tensor([-1.])
    """

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        _proxyable.add(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        new: Any = cls.__new__
        made = new(cls, *args, **kwargs)
        if not is_fx_tracing():
            made.__init__(*args, **kwargs)
            return made
        found = _proxies((args, kwargs))
        if not found:
            made.__init__(*args, **kwargs)
            return made
        return found[0].tracer.create_proxy("call_function", cls, args, kwargs)


def wrap(fn_or_name: F) -> F:
    """Have calls of a function with symbols become nodes: it is not looked into when a program is traced.

    It is for the top of a module: a decorator of a function there, or `wrap("len")` for a name used there.

    Args:
        fn_or_name: the function, or its name.

    Returns:
        The same.

    Raises:
        RuntimeError: if it is neither.
        NotImplementedError: inside of a function.

    Example:
        >>> @adjit.fx.wrap
        ... def half(x):
        ...     return x / 2 if x.sum() > 0 else x
        >>> half(adjit.ones(2))
        tensor([0.5000, 0.5000])
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    if caller is None or caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped[id(caller.f_globals), name] = caller.f_globals
    return fn_or_name


class Tracer(TracerBase):
    """Traces modules and functions. A subclass says what is looked into, and how nodes are made.

    Args:
        autowrap_modules: modules whose functions are called in the graph, `math` by default, wherever the
            program has them under a name of its own.
        autowrap_functions: more such functions.
        param_shapes_constant: give symbols of parameters their sizes, which conditions may then ask for.

    Example:
        >>> class Whole(adjit.fx.Tracer):
        ...     def is_leaf_module(self, m, module_qualified_name):
        ...         return isinstance(m, nn.Linear)
        >>> graph = Whole().trace(nn.Sequential(nn.Linear(2, 1), nn.ReLU()))
        >>> [node.op for node in graph.nodes]
        ['placeholder', 'call_module', 'call_function', 'output']
    """

    root: Module
    submodule_paths: dict[Module, str] | None

    def __init__(
        self, autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (), param_shapes_constant: bool = False,
    ) -> None:  # fmt: skip
        public = [
            value for module in autowrap_modules for name, value in vars(module).items()
            if not name.startswith("_") and callable(value)
        ]  # fmt: skip
        self._autowrapped = {id(function) for function in (*public, *autowrap_functions)}
        self._autowrap_modules = autowrap_modules
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths = None
        self.root_module_name = ""
        self.scope = Scope("", None)
        self.module_stack = {}
        self.node_name_to_scope = {}
        self.tensor_attrs: dict[int, str] = {}

    # ----- what subclasses say -----

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """True for modules that are called in the graph, not looked into: those of `nn` but `Sequential`.

        Example:
            >>> tracer = adjit.fx.Tracer()
            >>> tracer.is_leaf_module(nn.ReLU(), "0"), tracer.is_leaf_module(nn.Sequential(), "1")
            (True, False)
        """
        return m.__module__.startswith(f"{_LIBRARY}.nn") and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The name of a module below the root.

        Raises:
            NameError: if it is none of the root's.

        Example:
            >>> net = nn.Sequential(nn.Sequential(nn.ReLU()))
            >>> tracer = adjit.fx.Tracer()
            >>> _ = tracer.trace(net)
            >>> tracer.path_of_module(net[0][0])
            '0.0'
        """
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
            if path is None:
                raise NameError("module is not installed as a submodule")
            return path
        for name, found in self.root.named_modules():
            if found is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(
        self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Take a call of a module: give a symbol of a node, or what its `forward` gives.

        Example:
            >>> class Telling(adjit.fx.Tracer):
            ...     def call_module(self, m, forward, args, kwargs):
            ...         print(self.path_of_module(m), args)
            ...         return super().call_module(m, forward, args, kwargs)
            >>> _ = Telling().trace(nn.Sequential(nn.ReLU(), nn.Tanh()))
            0 (Proxy(input_1),)
            1 (Proxy(_0),)
        """
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))):
            key = path if path not in self.module_stack else f"{path}@{len(self.module_stack)}"
            self.module_stack[key] = path, type(m)
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                del self.module_stack[key]

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Take a look at an attribute of a module: give a symbol of a parameter, and what is there of others.

        Example:
            >>> tracer = adjit.fx.Tracer()
            >>> tracer.root, tracer.graph = nn.Linear(2, 1), adjit.fx.Graph()
            >>> tracer.getattr("bias", tracer.root.bias, {}), tracer.getattr("in_features", 2, {})
            (Proxy(bias), 2)
        """
        named: Iterable[tuple[str, Any]] = ()
        if isinstance(attr_val, Parameter):
            named = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            named = self.root.named_buffers()
        for name, value in named:
            if value is not attr_val:
                continue
            if name not in parameter_proxy_cache:
                factory = None
                if self.param_shapes_constant and isinstance(value, Parameter):
                    factory = functools.partial(self._parameter_proxy, name, value)
                parameter_proxy_cache[name] = self.create_proxy(
                    "get_attr", name, (), {}, proxy_factory_fn=factory
                )
            return parameter_proxy_cache[name]
        return attr_val

    def _parameter_proxy(self, name: str, value: Parameter, node: Node) -> Proxy:
        return ParameterProxy(self, node, name, value)

    def create_arg(self, a: Any) -> Any:
        """Make an argument of a node of a value; tensors and modules become attributes of the root.

        Raises:
            NameError: for a parameter that is none of the root's.

        Example:
            >>> tracer = adjit.fx.Tracer()
            >>> graph = tracer.trace(lambda x: x + 1)
            >>> tracer.create_arg([adjit.ones(2), 3])
            [_tensor_constant0, 3]
            >>> tracer.root._tensor_constant0
            tensor([1., 1.])
        """
        if isinstance(a, Parameter):
            for name, value in self.root.named_parameters():
                if value is a:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, Tensor):
            for name, buffer in self.root.named_buffers():
                if buffer is a:
                    return self.create_node("get_attr", name, (), {})
            if id(a) not in self.tensor_attrs:
                name = self.get_fresh_qualname("_tensor_constant")
                self.tensor_attrs[id(a)] = name
                setattr(self.root, name, a)
            return self.create_node("get_attr", self.tensor_attrs[id(a)], (), {})
        if isinstance(a, Module):
            for name, module in self.root.named_modules():
                if module is a:
                    return self.create_node("get_attr", name, (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(map(self.create_arg, a)), {})
        if type(a) in _proxyable:
            name = self.get_fresh_qualname(f"_{type(a).__name__}_constant_")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name that begins so and that the root has not.

        Example:
            >>> tracer = adjit.fx.Tracer()
            >>> tracer.root = nn.ReLU()
            >>> tracer.root.scale0 = 2.
            >>> tracer.get_fresh_qualname("scale")
            'scale1'
        """
        k = 0
        while hasattr(self.root, f"{prefix}{k}"):
            k += 1
        return f"{prefix}{k}"

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """The function that is run, and its arguments: the root if it is a method, and symbols.

        Raises:
            RuntimeError: if the concrete arguments are too many or too few.
            NotImplementedError: for containers among them.

        Example:
            >>> tracer = adjit.fx.Tracer()
            >>> tracer.root, tracer.graph = nn.Module(), adjit.fx.Graph()
            >>> tracer.create_args_for_root(lambda x, *rest: x, is_module=False)[1]
            [Proxy(x), Proxy(_rest)]
        """
        function = inspect.unwrap(root_fn)
        code, signature = function.__code__, inspect.signature(function)
        count = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames)
        args: list[Any] = []
        if is_module:
            if count == 0:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
        own = names[len(args) : count]
        if isinstance(concrete_args, tuple):
            if len(own) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(own)} arguments but got {len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(own, concrete_args, strict=True))
        annotations = _annotations(function)
        for name in own:
            default = signature.parameters[name].default
            given = () if default is inspect.Parameter.empty else (default,)
            symbol = self.create_proxy(
                "placeholder", name, given, {}, type_expr=annotations.get(name)
            )
            concrete = (concrete_args or {}).get(name, PH)
            args.append(symbol if concrete is PH else self._specialized(name, symbol, concrete))
        has_more = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        if code.co_kwonlyargcount or has_more:
            rest = iter(names[count:])
            for flag, stars in ((inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")):
                if code.co_flags & flag:
                    args.append(self.create_proxy("placeholder", stars + next(rest), (), {}))
            root_fn = _by_place(root_fn, len(args))
        return root_fn, args

    def _specialized(self, name: str, symbol: Proxy, value: Any) -> Any:
        """A concrete value, and a node that checks that callers pass it too."""
        told = f"{name} has been specialized to have value {value} but got another value"
        if value is None:
            self.create_proxy("call_function", _assert_is_none, (symbol, told), {})
        elif isinstance(value, base_types):
            self.create_proxy("call_function", _assert, (operator.eq(symbol, value), told), {})
        elif isinstance(value, (list, tuple, dict)):
            raise NotImplementedError(
                f"symbolic_trace: concrete_args[{name!r}] is a {type(value).__name__}, whose parts cannot "
                "be symbols here; pass tensors as arguments of their own"
            )
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized function. It "
                "is up to the user to make sure that your inputs match the inputs you specialized the function "
                "with.",
                stacklevel=4,
            )
        return value

    # ----- tracing -----

    def trace(self, root: Any, concrete_args: Any = None) -> Graph:
        """The graph of a module or a function.

        Args:
            root: the module, or a function of Python.
            concrete_args: values that stay values, by the names of the arguments; others become symbols.

        Raises:
            TraceError: where the program needs a value that is not known.
            AssertionError: if `root` is neither.

        Example:
            >>> graph = adjit.fx.Tracer().trace(lambda x, deep: adjit.relu(x) if deep else x, {"deep": True})
            >>> graph.output_node().args
            (relu,)
        """
        global _tracing
        if isinstance(root, Module):
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(
                    f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}"
                )
            self.root = root
            function = getattr(type(root), self.traced_func_name)
            self.root_module_name = type(root).__name__
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            self.root, function = Module(), root
        if not isinstance(function, FunctionType):
            raise AssertionError(f"Expected FunctionType, got {type(function)}")
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = {
            id(value): f"{path}.{name}".lstrip(".")
            for path, module in self.root.named_modules()
            for name, value in vars(module).items() if isinstance(value, Tensor)
        }  # fmt: skip
        places = function.__globals__
        returns = _annotations(inspect.unwrap(function)).get("return")
        _tracing += 1
        try:
            overrides.ask_others()
            run, args = self.create_args_for_root(function, isinstance(root, Module), concrete_args)
            with self._patched(places):
                result = run(*args)
                self.create_node(
                    "output", "output", (self.create_arg(result),), {}, type_expr=returns
                )
        finally:
            _tracing -= 1
            self.submodule_paths = None
        return self.graph

    @contextlib.contextmanager
    def _patched(self, places: dict[str, Any]) -> Iterator[None]:
        """Have modules and wrapped functions meet this tracer, inside of a block."""
        cache: dict[str, Any] = {}
        look, call = Module.__getattr__, Module.__call__

        def traced_look(module: Module, name: str) -> Any:
            return self.getattr(name, look(module, name), cache)

        def traced_call(module: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return call(module, *args, **kwargs)

            patches.autowrap(getattr(module.forward, "__globals__", {}), self._autowrapped)
            return self.call_module(module, forward, args, kwargs)

        patches = _Patches()
        try:
            patches.set_attribute(Module, "__getattr__", traced_look)
            patches.set_attribute(Module, "__call__", traced_call)
            for (_, name), home in _wrapped.items():
                patches.wrap(home, name)
            for home in (places, *map(vars, self._autowrap_modules)):
                patches.autowrap(home, self._autowrapped)
            for module in self.root.modules():
                patches.ask(vars(module))
            yield
        finally:
            patches.undo()


class _Patches:
    """What stands elsewhere for a while."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []
        self._seen: set[int] = set()

    def set_attribute(self, kind: type, name: str, value: Any) -> None:
        self._undo.append(functools.partial(setattr, kind, name, getattr(kind, name)))
        setattr(kind, name, value)

    def put(self, home: dict[str, Any], name: str, value: Any) -> None:
        before = functools.partial(home.__setitem__, name, home[name]) if name in home else None
        self._undo.append(before or functools.partial(home.pop, name, None))
        home[name] = value

    def wrap(self, home: dict[str, Any], name: str) -> None:
        """Have a function become a node where it meets a symbol."""
        function = home.get(name, getattr(builtins, name, None))
        if function is not None and not hasattr(function, "_calls_in_graphs"):
            self.put(home, name, _leaf(function))

    def autowrap(self, home: dict[str, Any], functions: set[int]) -> None:
        if id(home) in self._seen:
            return
        self._seen.add(id(home))
        for name, value in list(home.items()):
            if not name.startswith("_") and callable(value) and id(value) in functions:
                self.wrap(home, name)

    def ask(self, home: dict[str, Any]) -> None:
        """Have functions of the library that a module keeps ask what they are given."""
        for name, value in list(home.items()):
            asks = overrides.as_asking(value)
            if asks is not value:
                self.put(home, name, asks)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


def _leaf(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        found = _proxies((args, kwargs))
        if not found:
            return function(*args, **kwargs)
        made = found[0].tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    called._calls_in_graphs = True  # type: ignore[attr-defined]
    return called


def _proxies(values: Any) -> list[Proxy]:
    found: list[Proxy] = []
    map_aggregate(values, lambda value: found.append(value) if isinstance(value, Proxy) else None)
    return found


def _by_place(function: Any, count: int) -> Any:
    """A function whose `*args`, `**kwargs` and arguments by name are arguments by place: one symbol each."""
    code = function.__code__
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    other = code.replace(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=flags
    )
    made = FunctionType(
        other, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    made.__annotations__ = function.__annotations__
    return made


def _annotations(function: Any) -> dict[str, Any]:
    """The annotations of a user's function, those that are texts only where what they name is found."""
    if str(function.__module__).partition(".")[0] == _LIBRARY:
        return {}  # not for users
    try:
        return inspect.get_annotations(function, eval_str=True)
    except Exception:
        found = inspect.get_annotations(function)
        return {name: kind for name, kind in found.items() if not isinstance(kind, str)}


def _assert_is_none(value: Any, msg: str) -> None:
    if value is not None:
        raise AssertionError(msg)


def symbolic_trace(root: Any, concrete_args: Any = None) -> GraphModule:
    """Trace a module or function, and give a module that does the same, by a graph that can be changed.

    Conditions and loops on values cannot be traced, and raise; those on anything else run now, once.
    Modules of `nn` stay calls of modules, all others are looked into. Random numbers that are drawn from
    nothing but numbers (`adjit.rand(3)`) are drawn now, as every value that depends on no input.

    Args:
        root: a module, or a function of Python.
        concrete_args: values of arguments that are known, by their names; code that depends on them may be
            traced. The module checks that it is called with them.

    Returns:
        A `GraphModule` with `graph` and `code`.

    Raises:
        TraceError: where the program needs a value that is not known.
        NotImplementedError: for containers among the concrete arguments.

    Example:
        >>> def f(x, y):
        ...     return adjit.relu(x) + y * 2
        >>> traced = adjit.fx.symbolic_trace(f)
        >>> print(traced.code.strip())
        def forward(self, x, y):
            relu = torch.relu(x);  x = None
            mul = y * 2;  y = None
            add = relu + mul;  relu = mul = None
            return add
        >>> traced(adjit.tensor([-1., 1.]), adjit.ones(2))
        tensor([2., 3.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


def _from_text(state: dict[str, Any], imports: str, tracer_cls: Any, name: str) -> GraphModule:
    """A module that was pickled: its code is traced again."""
    names: dict[str, Any] = {}
    exec(imports, names)
    base = tracer_cls if tracer_cls is not None else Tracer

    class AllLeaves(base):  # type: ignore[misc, valid-type]
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    root = Module()
    root.__dict__.update({key: value for key, value in state.items() if key != "_code"})
    root_class: Any = type(name, (Module,), {"forward": compiled(state["_code"], names)})
    root.__class__ = root_class
    made = GraphModule(root, AllLeaves().trace(root), name)
    rest = {key: value for key, value in state.items() if key not in ("_graph", "_code")}
    made.__dict__.update(rest)
    made.graph._tracer_cls = tracer_cls
    return made


GraphModule._from_text = staticmethod(_from_text)
