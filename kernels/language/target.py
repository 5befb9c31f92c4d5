"""Kernels to machine code: Numba's compiler, without what kernels have no use for.

A kernel becomes one C function; whatever it calls is compiled into it. Numba's own target for the
CPU makes machine code of each of these functions as well and loads it, has passes for features
that kernels do not use, and begins by importing all that Python functions may call, from lists to
linear algebra. This target keeps helpers as LLVM's text until they are linked, and its contexts know
numbers, ranges, tuples, pointers and `math`. The first kernel of a process takes 0.2 s for 0.6, and
those of first training steps 40 % less.

The contexts are the target's own, so nothing here changes how the functions of users are compiled
(https://numba.readthedocs.io/en/stable/extending, "target extension").
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import _dynfunc, types
from numba.core import cgutils, cpu, errors, lowering, sigutils, typing
from numba.core import ir as numba_ir
from numba.core.codegen import CodeLibrary, JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import CompilerBase, Flags, _LowerResult, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import LoweringPass, PassManager, register_pass
from numba.core.descriptors import TargetDescriptor
from numba.core.dispatcher import Dispatcher
from numba.core.funcdesc import PythonFunctionDescriptor
from numba.core.target_extension import (
    CPU,
    dispatcher_registry,
    jit_registry,
    target_override,
    target_registry,
)
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.typing.templates import Registry
from numba.core.typing.typeof import typeof_impl
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FixupArgs,
    IRProcessing,
    ReconstructSSA,
    TranslateByteCode,
)

from .conversion import to_integer
from .intrinsics import VECTOR_FORMS
from .processor import CHOSEN, TUNING

NAME = "adjit"
OPTIONS = {"nopython": True, "error_model": "numpy", "no_cpython_wrapper": True}


class CompiledKernel(NamedTuple):
    """A C function in object code."""

    symbol: str
    code: bytes
    external: tuple[str, ...]  # symbols that the code needs
    library: KernelLibrary  # LLVM's form of it


class Translated(NamedTuple):
    """A function as LLVM's text, and what it is called."""

    library: KernelLibrary
    description: Any

    def finish(self) -> CompiledKernel:
        """LLVM's part of compiling, for which any thread will do; Python's lock is free meanwhile."""
        description = self.description
        return self.library.whole(description.llvm_func_name, description.llvm_cfunc_wrapper_name)


class Unfiltered(errors.WarningsFixer):  # type: ignore[misc]
    """Typing that leaves the filters of warnings alone: they are the whole process's, so a thread that
    compiles in the background would lose warnings that the program waits for, or its filters."""

    def catch_warnings(self, filename: Any = None, lineno: Any = None) -> Any:
        """Nothing is caught."""
        return contextlib.nullcontext()


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Hold Numba's lock, and have it compile for this target and infer types with `Unfiltered`."""
    with global_compiler_lock, target_override(NAME):
        usual = errors.WarningsFixer
        errors.WarningsFixer = Unfiltered
        try:
            yield
        finally:
            errors.WarningsFixer = usual


def compile_function(function: Callable[..., Any], signature: str) -> CompiledKernel:
    """Compile a function that Python does not call, for instance a kernel."""
    return translate(function, signature).finish()


def translate(function: Callable[..., Any], signature: str) -> Translated:
    """Numba's part of compiling."""
    target = KernelDispatcher.targetdescr
    flags = Flags()
    # With `forceinline` nothing is left of the function beside its C form.
    Target.options.parse_as_flags(flags, {**OPTIONS, "forceinline": True})
    flags.no_compile = True
    with compiling():
        arguments, result = sigutils.normalize_signature(signature)
        made = compile_extra(
            target.typing_context, target.target_context, function, arguments, result, flags, {},
            pipeline_class=Compiler,
        )  # fmt: skip
        return Translated(made.library, made.fndesc)


def machine() -> Any:
    """LLVM's form of this processor. Making it takes Numba's lock."""
    return KernelDispatcher.targetdescr.target_context.codegen()._tm


def load(symbol: str, code: bytes) -> int:
    """The address of a function of some object code, which stays in memory from now on."""
    engine = loader()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(symbol)
    if not address:
        raise RuntimeError(f"the compiled kernel {symbol} has no address")
    return int(address)


@functools.cache
def loader() -> Any:
    """LLVM's linker of object code: it needs none of Numba's contexts."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(jit=True, codemodel="jitdefault")
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


# ----- LLVM's part -----


class KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of one function; a kernel's is optimised once all that it calls is linked into it.

    Until LLVM's part begins it is text: whoever calls LLVM waits for other threads that do.
    """

    def __init__(self, codegen: Any, name: str) -> None:
        CodeLibrary.__init__(self, codegen, name)
        self._linking_libraries: list[KernelLibrary] = []
        self._shared_module = None
        self._texts: list[str] = []

    def add_ir_module(self, ir_module: Any) -> None:
        # LLVM knows a loop by a node of metadata that begins with itself; llvmlite has no word for that.
        text = re.sub(r'(!\d+) = !{ !"loop \d+",', r"\1 = distinct !{ \1,", str(ir_module))
        self._texts.append(cgutils.normalize_ir_text(text))

    def add_linking_library(self, library: KernelLibrary) -> None:
        self._linking_libraries.append(library)

    def finalize(self) -> None:
        self._finalized = True

    @functools.cached_property
    def _final_module(self) -> Any:
        first, *others = (llvm.parse_assembly(text) for text in self._texts)
        for module in (first, *others):
            module.verify()
            self._optimize_functions(module)
        for module in others:
            first.link_in(module)
        for library in dict.fromkeys(self._linking_libraries):
            first.link_in(library._get_module_for_linking(), preserve=True)
        self._texts.clear()
        return first

    def whole(self, function: str, wrapper: str) -> CompiledKernel:
        """The object code of a kernel's wrapper, which holds the function and all that it calls."""
        module = self._final_module
        module.get_function(function).linkage = "internal"
        self._optimize_final_module()
        self._inline_vector_forms()
        module.verify()
        things = (*module.functions, *module.global_variables)
        external = (thing.name for thing in things if thing.is_declaration)
        return CompiledKernel(
            wrapper,
            bytes(self._codegen._tm.emit_object(module)),
            tuple(sorted(name for name in external if not name.startswith("llvm."))),
            self,
        )

    def _inline_vector_forms(self) -> None:
        """What is rarely asked for, asked for by a test within the vectorised loop instead of a call."""
        try:
            forms = self._final_module.get_global_variable(VECTOR_FORMS)
        except NameError:  # there are none
            return
        forms.name, forms.linkage = "vector_forms", "internal"  # so that what nobody calls goes
        passes = llvm.newpassmanagers.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_global_dead_code_eliminate_pass()
        passes.add_simplify_cfg_pass()
        passes.run(self._final_module, self._codegen._pass_builder())


class Codegen(JITCPUCodegen):  # type: ignore[misc]
    _library_class = KernelLibrary

    def _get_host_cpu_name(self) -> str:
        return CHOSEN.name

    def _get_host_cpu_features(self) -> str:
        return CHOSEN.features + TUNING

    def _create_empty_module(self, name: str) -> ir.Module:
        module = ir.Module(cgutils.normalize_ir_text(name))
        module.triple, module.data_layout = CHOSEN.triple, self._data_layout or ""
        return module


# ----- what kernels may use -----

_numbers = Registry()
for _kind in types.number_domain:
    _numbers.register_global(getattr(np, str(_kind)), types.NumberClass(_kind))


def _is_written_in_python(rule: Any) -> bool:
    return hasattr(rule, "_overload_func")


class Typing(typing.Context):  # type: ignore[misc]
    def load_additional_registries(self) -> None:
        from numba.core.typing import mathdecl

        self.install_registry(mathdecl.registry)
        self.install_registry(_numbers)

    def _insert_global(self, value: Any, kind: Any) -> None:
        """The rules of a function, those written in Python last: by itself Numba asks them in the order in
        which the process has imported its modules, and one of `getitem` may then call itself for ever."""
        if isinstance(kind, types.Function) and len(kind.templates) > 1:
            kind = types.Function(sorted(kind.templates, key=_is_written_in_python))
        super()._insert_global(value, kind)

    def resolve_value_type(self, value: Any) -> Any:
        """The type of a global. For `range` and `bool` Numba first imports its typed containers, 30 ms."""
        known = self._get_global_type(value) if isinstance(value, type) else None
        return known or super().resolve_value_type(value)


class Context(cpu.CPUContext):  # type: ignore[misc]
    def init(self) -> None:
        self.is32bit = False
        self._internal_codegen = Codegen("adjit.kernels")

    def load_additional_registries(self) -> None:
        # Imported for what they put into Numba's registry of built-in functions.
        from numba.cpython import builtins, mathimpl, numbers, rangeobj, tupleobj  # noqa: F401

        self.install_registry(mathimpl.registry)

    def cast(self, builder: Any, value: Any, old: Any, new: Any) -> Any:
        """A value as another type."""
        if isinstance(old, types.Float) and isinstance(new, types.Integer):
            return to_integer(builder, value, new)
        return super().cast(builder, value, old, new)

    def post_lowering(self, module: Any, library: Any) -> None:
        """Nothing of Numba's memory management is linked: kernels have no objects."""

    def create_cfunc_wrapper(
        self, library: Any, description: Any, environment: Any, call_helper: Any
    ) -> None:
        """The function as C calls it, without Numba's status: a kernel raises nothing."""
        module = self.create_module("cfunc_wrapper")
        kind = self.call_conv.get_function_type(description.restype, description.argtypes)
        function = ir.Function(module, kind, description.llvm_func_name)
        arguments = [self.get_value_type(t) for t in description.argtypes]
        kind = ir.FunctionType(self.get_value_type(description.restype), arguments)
        wrapper = ir.Function(module, kind, description.llvm_cfunc_wrapper_name)
        builder = ir.IRBuilder(wrapper.append_basic_block("entry"))
        _, result = self.call_conv.call_function(
            builder, function, description.restype, description.argtypes, wrapper.args
        )
        builder.ret(result)
        library.add_ir_module(module)

    def get_executable(self, library: Any, description: Any, environment: Any) -> Any:
        """What other functions find this one by; nobody can call it."""
        library._ensure_finalized()
        name = description.qualname
        module = description.lookup_module()
        return _dynfunc.make_function(module, name, "", 0, environment, (library,))


class Lowering(lowering.Lower):  # type: ignore[misc]
    """Numba's, but in a module with the name INTERLEAVED loops tell LLVM how many vectors to work on at
    once. By itself it takes one where a round is long, and most of the time waits for results. With the
    name ROLLED they are not unrolled, which LLVM does to short ones before it tries to make vectors."""

    # Numba's next two tell a debugger the sizes of variables, for which they have LLVM read modules.

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        return cgutils.alloca_once(self.builder, lltype, name=name)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        super().storevar(value, name)

    def lower_inst(self, inst: Any) -> None:
        super().lower_inst(inst)
        if isinstance(inst, numba_ir.Jump) and self.blkmap[inst.target].is_terminated:
            known = self.func_ir.func_id.func.__globals__
            hints = []
            if (count := known.get("INTERLEAVED")) is not None:
                hints.append(("llvm.loop.interleave.count", ir.Constant(ir.IntType(32), count)))
            if "ROLLED" in known:
                hints.append(("llvm.loop.unroll.disable",))
            if hints:
                self._advise(hints)

    def _advise(self, hints: list[Any]) -> None:
        """Tell LLVM of the loop that ends here: names, and numbers behind some."""
        module = self.module
        name = ir.MetaDataString(module, f"loop {len(module.metadata)}")
        nodes = [
            module.add_metadata([ir.MetaDataString(module, what), *number])
            for what, *number in hints
        ]
        jump = self.builder.block.terminator
        jump.set_metadata("llvm.loop", module.add_metadata([name, *nodes]))


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerKernel(LoweringPass):  # type: ignore[misc]
    """Numba's, without statistics of LLVM's, for which it would wait."""

    _name = "lower_kernel"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        context, flags = state.targetctx, state.flags
        library = state.library = context.codegen().create_library(state.func_id.func_qualname)
        description = PythonFunctionDescriptor.from_specialized_function(
            state.func_ir, state.typemap, state.return_type, state.calltypes,
            mangler=context.mangler, inline=flags.forceinline, noalias=flags.noalias,
            abi_tags=[flags.get_mangle_string()],
        )  # fmt: skip
        with context.push_code_library(library):
            lower = Lowering(context, library, description, state.func_ir, metadata=state.metadata)
            lower.lower()
            if not flags.no_cfunc_wrapper:
                lower.create_cfunc_wrapper()
        entry = None
        if not flags.no_compile:  # a helper
            entry = context.get_executable(library, description, lower.env)
            context.insert_user_function(entry, description, [library])
        state["cr"] = _LowerResult(description, lower.call_helper, cfunc=entry, env=lower.env)
        return True


# ----- the target -----


class KernelContexts(CPU):  # type: ignore[misc]
    """The kind of target this is: whatever Numba has for any CPU serves here too."""


class Target(TargetDescriptor):  # type: ignore[misc]
    options = cpu.CPUTargetOptions

    @functools.cached_property
    def typing_context(self) -> Typing:
        return Typing()

    @functools.cached_property
    def target_context(self) -> Context:
        return Context(self.typing_context, self._target_name)


class Passes(PassManager):  # type: ignore[misc]
    _ENFORCING = False  # no analysis after each pass: those that need one make it


class Compiler(CompilerBase):  # type: ignore[misc]
    def define_pipelines(self) -> list[PassManager]:
        passes = Passes("kernel")
        for step in (
            TranslateByteCode, FixupArgs, IRProcessing, DeadBranchPrune, ReconstructSSA,
            NopythonTypeInference, PreLowerStripPhis, IRLegalization, AnnotateTypes, LowerKernel,
            NoPythonBackend,
        ):  # fmt: skip
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]


class KernelDispatcher(Dispatcher):  # type: ignore[misc]
    """A function that kernels call, compiled for the types that they call it with."""

    targetdescr = Target(NAME)

    def compile(self, signature: Any) -> Any:
        arguments, result = sigutils.normalize_signature(signature)
        with compiling(), self._compiling_counter:
            made = self.overloads.get(tuple(arguments))
            if made is None:
                made = self._compiler.compile(arguments, result)
                self.add_overload(made)
            return made.entry_point


def _dispatcher(function: Callable[..., Any]) -> KernelDispatcher:
    options = {**OPTIONS, "no_cfunc_wrapper": True}
    return KernelDispatcher(function, targetoptions=options, pipeline_class=Compiler)


class Helper:
    """A function that kernels call. Numba hears of it when the first one that does is compiled: an import
    makes hundreds, and a process that finds its kernels in a cache compiles none."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.py_func.__name__} is for kernels to call; Python calls its py_func")

    @functools.cached_property
    def dispatcher(self) -> KernelDispatcher:
        """What compiles it for the types that it is called with."""
        return _dispatcher(self.py_func)


@typeof_impl.register(Helper)
def _(value: Helper, context: Any) -> Any:
    return typeof_impl(value.dispatcher, context)


def helper(function: Callable[..., Any]) -> Helper:
    """Mark a function that kernels call; Python cannot call it any more."""
    return Helper(function)


def _jit(**options: Any) -> Callable[[Callable[..., Any]], KernelDispatcher]:
    """What Numba decorates its own functions with, of which kernels call `min` and `max`."""
    return _dispatcher


target_registry[NAME] = KernelContexts
dispatcher_registry[KernelContexts] = KernelDispatcher
jit_registry[KernelContexts] = _jit
