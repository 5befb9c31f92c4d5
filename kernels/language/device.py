"""The words that the CUDA side of a kernel is written in.

A device kernel is plain Python over pointers and numbers. Its words for threads, shared memory and
128-bit access are bound by `schedule/jit/nvidia.py` when it is compiled for a GPU, and by
`adjit.cuda.simulator` when it is run without one; no file of this room imports anything of CUDA.

    @on_device(scale, units=256)
    def scale_on_device(row, n):
        x, out, factor = at(row[0], T), at(row[1], T), scalar(row[2], T)
        for i in range(first_unit(), n, all_threads()):
            out[i] = x[i] * factor

Its row is that of the CPU kernel, and its letters are bound as there. A kernel works for every
grid: threads go on until no unit is left.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

WARP = 32
ALL_LANES = -1
WIDE = 16  # bytes that one access moves at most
I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)


class Word:
    """A function with a meaning only inside device kernels: how Numba types and lowers it."""

    def __init__(self, definition: Callable[..., Any]) -> None:
        self.definition = definition
        self.__name__, self.__doc__ = definition.__name__, definition.__doc__

    def __call__(self, *args: Any) -> Any:
        raise RuntimeError(
            f"{self.__name__}() has a meaning only inside a device kernel: compile it for a GPU, or "
            "run it in adjit.cuda.simulator"
        )

    def __repr__(self) -> str:
        return f"<device word {self.__name__}>"


VOCABULARY: dict[str, Word] = {}


def word(definition: Callable[..., Any]) -> Any:
    """Enter a word: a function that types and lowers a call, as for Numba's `intrinsic`."""
    return VOCABULARY.setdefault(definition.__name__, Word(definition))


def function(module: Any, name: str, result: ir.Type, *args: ir.Type) -> Any:
    """A function that LLVM or PTX knows, declared in a module."""
    return cgutils.get_or_insert_function(module, ir.FunctionType(result, args), name)


def call(builder: Any, name: str, result: ir.Type, *args: ir.Value) -> Any:
    """Call such a function."""
    return builder.call(function(builder.module, name, result, *[a.type for a in args]), args)


def register(builder: Any, name: str) -> Any:
    """A special register of PTX."""
    return call(builder, f"llvm.nvvm.read.ptx.sreg.{name}", I32)


# ----- where a thread is: all int32 -----


@word
def thread(typingctx):
    """The number of this thread in its block."""
    return types.int32(), lambda context, builder, sig, args: register(builder, "tid.x")


@word
def threads(typingctx):
    """Threads of a block."""
    return types.int32(), lambda context, builder, sig, args: register(builder, "ntid.x")


@word
def block(typingctx):
    """The number of this block in the grid."""
    return types.int32(), lambda context, builder, sig, args: register(builder, "ctaid.x")


@word
def blocks(typingctx):
    """Blocks of the grid."""
    return types.int32(), lambda context, builder, sig, args: register(builder, "nctaid.x")


@word
def lane(typingctx):
    """The number of this thread in its warp, 0 to 31."""
    return types.int32(), lambda context, builder, sig, args: register(builder, "laneid")


@word
def first_unit(typingctx):
    """The number of this thread in the grid."""

    def codegen(context, builder, sig, args):
        here = builder.mul(register(builder, "ctaid.x"), register(builder, "ntid.x"))
        return builder.add(here, register(builder, "tid.x"))

    return types.int32(), codegen


@word
def all_threads(typingctx):
    """Threads of the grid: from one unit of a thread to its next."""

    def codegen(context, builder, sig, args):
        return builder.mul(register(builder, "nctaid.x"), register(builder, "ntid.x"))

    return types.int32(), codegen


# ----- memory -----


def shared_memory(context, builder, element, count):
    """A pointer to so many elements of the block's shared memory."""
    kind = ir.ArrayType(context.get_data_type(element), count)
    name = builder.module.get_unique_name("shared")
    memory = cgutils.add_global_variable(builder.module, kind, name, addrspace=3)
    memory.linkage, memory.align = "internal", WIDE
    memory.initializer = ir.Constant(kind, ir.Undefined)
    first = builder.gep(memory, [I32(0), I32(0)])
    return builder.addrspacecast(first, kind.element.as_pointer())


@word
def shared(typingctx, dtype, count):
    """shared(T, count): a pointer to elements that the threads of a block share."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    element = dtype.dtype

    def codegen(context, builder, sig, args):
        return shared_memory(context, builder, element, count.literal_value)

    return types.CPointer(element)(dtype, count), codegen


@word
def dynamic(typingctx, dtype, first):
    """dynamic(T, first): a pointer into the shared memory whose size a launch gives, from byte `first`
    on."""
    element = dtype.dtype

    def codegen(context, builder, sig, args):
        module, kind = builder.module, ir.ArrayType(I8, 0)
        memory = module.globals.get("dynamic_shared")
        if memory is None:
            memory = cgutils.add_global_variable(module, kind, "dynamic_shared", addrspace=3)
            memory.linkage, memory.align = "external", WIDE
        place = builder.addrspacecast(builder.gep(memory, [I32(0), args[1]]), I8.as_pointer())
        return builder.bitcast(place, context.get_data_type(element).as_pointer())

    return types.CPointer(element)(dtype, types.int64), codegen


@word
def local(typingctx, dtype, count):
    """local(T, count): a pointer to elements of this thread's own."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    element = dtype.dtype

    def codegen(context, builder, sig, args):
        size = count.literal_value
        return cgutils.alloca_once(builder, context.get_data_type(element), size=size)

    return types.CPointer(element)(dtype, count), codegen


def wide_pointer(context, builder, pointer, args, count):
    """A pointer to a vector of `count` elements, and the vector's type."""
    vector = ir.VectorType(context.get_data_type(pointer.dtype), count)
    return builder.bitcast(builder.gep(args[0], [args[1]]), vector.as_pointer()), vector


@word
def load_wide(typingctx, pointer, i, count):
    """load_wide(x, i, 4): the elements from x[i] on, a tuple; one access of up to 16 bytes, at an
    address that is a multiple of them."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    many = count.literal_value

    def codegen(context, builder, sig, args):
        address, _ = wide_pointer(context, builder, pointer, args, many)
        loaded = builder.load(address, align=many * pointer.dtype.bitwidth // 8)
        parts = [builder.extract_element(loaded, I32(k)) for k in range(many)]
        return context.make_tuple(builder, sig.return_type, parts)

    return types.UniTuple(pointer.dtype, many)(pointer, i, count), codegen


@word
def store_wide(typingctx, pointer, i, values):
    """store_wide(x, i, values): write a tuple from x[i] on, as `load_wide` reads."""
    many = len(values)

    def codegen(context, builder, sig, args):
        address, vector = wide_pointer(context, builder, pointer, args, many)
        made = ir.Constant(vector, ir.Undefined)
        for k, value in enumerate(cgutils.unpack_tuple(builder, args[2], many)):
            made = builder.insert_element(made, value, I32(k))
        builder.store(made, address, align=many * pointer.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(pointer, i, types.UniTuple(pointer.dtype, many)), codegen


@word
def take_wide(typingctx, mine, j, pointer, i, count):
    """take_wide(a, j, x, i, 4): a[j : j + 4] = the elements that `load_wide` reads, without a tuple.

    Memory of a thread's own becomes registers if it is written by elements.
    """
    if not isinstance(count, types.IntegerLiteral):
        return None
    many = count.literal_value

    def codegen(context, builder, sig, args):
        address, _ = wide_pointer(context, builder, pointer, args[2:4], many)
        loaded = builder.load(address, align=many * pointer.dtype.bitwidth // 8)
        first = builder.gep(args[0], [args[1]])
        for k in range(many):
            builder.store(builder.extract_element(loaded, I32(k)), builder.gep(first, [I32(k)]))
        return context.get_dummy_value()

    return types.void(mine, j, pointer, i, count), codegen


@word
def give_wide(typingctx, pointer, i, mine, j, count):
    """give_wide(x, i, a, j, 4): write a[j : j + 4] from x[i] on, as `store_wide` writes a tuple."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    many = count.literal_value

    def codegen(context, builder, sig, args):
        address, vector = wide_pointer(context, builder, pointer, args[:2], many)
        first, made = builder.gep(args[2], [args[3]]), ir.Constant(vector, ir.Undefined)
        for k in range(many):
            made = builder.insert_element(made, builder.load(builder.gep(first, [I32(k)])), I32(k))
        builder.store(made, address, align=many * pointer.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(pointer, i, mine, j, count), codegen


@word
def aligned(typingctx, pointer, size):
    """aligned(x, 16): whether the address of x is a multiple of a power of two."""

    def codegen(context, builder, sig, args):
        address = builder.ptrtoint(args[0], I64)
        low = builder.and_(address, builder.sub(args[1], I64(1)))
        return builder.icmp_unsigned("==", low, I64(0))

    return types.boolean(pointer, types.int64), codegen


@word
def shifted(typingctx, pointer, i):
    """shifted(x, i): the pointer to x[i]."""
    return pointer(pointer, i), lambda context, builder, sig, args: builder.gep(args[0], [args[1]])


# ----- together -----


@word
def barrier(typingctx):
    """Wait for all threads of the block; what they wrote can be read afterwards."""

    def codegen(context, builder, sig, args):
        call(builder, "llvm.nvvm.barrier0", ir.VoidType())
        return context.get_dummy_value()

    return types.void(), codegen


@word
def sync_warp(typingctx):
    """Wait for all threads of the warp."""

    def codegen(context, builder, sig, args):
        call(builder, "llvm.nvvm.bar.warp.sync", ir.VoidType(), I32(ALL_LANES))
        return context.get_dummy_value()

    return types.void(), codegen


def shuffled(mode: str, clamp: int) -> Callable[..., Any]:
    """How a shuffle is typed and lowered: 64 bits travel as two halves."""

    def define(typingctx, value, k):
        def codegen(context, builder, sig, args):
            number, distance = args
            kind = number.type
            width = value.bitwidth
            whole = builder.bitcast(number, ir.IntType(width)) if is_float(value) else number
            if width < 32:
                whole = builder.zext(whole, I32)
            halves = [whole] if width <= 32 else [
                builder.trunc(whole, I32), builder.trunc(builder.lshr(whole, I64(32)), I32)
            ]  # fmt: skip
            name = f"llvm.nvvm.shfl.sync.{mode}.i32"
            moved = [
                call(builder, name, I32, I32(ALL_LANES), half, distance, I32(clamp))
                for half in halves
            ]
            if width == 64:
                high = builder.shl(builder.zext(moved[1], I64), I64(32))
                whole = builder.or_(builder.zext(moved[0], I64), high)
            else:
                whole = builder.trunc(moved[0], ir.IntType(width)) if width < 32 else moved[0]
            return builder.bitcast(whole, kind) if is_float(value) else whole

        return value(value, types.int32), codegen

    return define


def is_float(kind: Any) -> bool:
    return isinstance(kind, types.Float)


def _shuffle(name: str, mode: str, clamp: int, doc: str) -> Any:
    define = shuffled(mode, clamp)
    define.__name__, define.__doc__ = name, doc
    return word(define)


shuffle = _shuffle("shuffle", "idx", 31, "shuffle(value, k): the value of lane k.")
shuffle_down = _shuffle(
    "shuffle_down",
    "down",
    31,
    "shuffle_down(value, k): of the lane k further on; the last keep theirs.",
)
shuffle_up = _shuffle(
    "shuffle_up", "up", 0, "shuffle_up(value, k): of the lane k before; the first keep theirs."
)
shuffle_xor = _shuffle("shuffle_xor", "bfly", 31, "shuffle_xor(value, k): of lane `lane() ^ k`.")


@word
def ballot(typingctx, condition):
    """ballot(condition): 32 bits as an int32, one for each lane where it holds."""

    def codegen(context, builder, sig, args):
        return call(builder, "llvm.nvvm.vote.ballot.sync", I32, I32(ALL_LANES), args[0])

    return types.int32(types.boolean), codegen


# ----- atomics: the old value -----


def _atomic(name: str, float_name: str, signed: str, unsigned: str, doc: str) -> Any:
    def define(typingctx, pointer, i, value):
        kind = pointer.dtype
        if is_float(kind) and not float_name:
            return None

        def codegen(context, builder, sig, args):
            address = builder.gep(args[0], [args[1]])
            if is_float(kind):  # NVVM refuses `atomicrmw` of floats
                size = f"f{kind.bitwidth}"
                named = f"llvm.nvvm.atomic.load.{float_name}.{size}.p0{size}"
                return call(builder, named, args[2].type, address, args[2])
            operation = signed if kind.signed else unsigned
            return builder.atomic_rmw(operation, address, args[2], "monotonic")

        return kind(pointer, i, kind), codegen

    define.__name__, define.__doc__ = name, doc
    return word(define)


atomic_add = _atomic("atomic_add", "add", "add", "add", "atomic_add(x, i, v): x[i] += v.")
atomic_min = _atomic(
    "atomic_min", "", "min", "umin", "atomic_min(x, i, v): the smaller whole number."
)
atomic_max = _atomic(
    "atomic_max", "", "max", "umax", "atomic_max(x, i, v): the larger whole number."
)


@word
def compare_and_swap(typingctx, pointer, i, old, new):
    """compare_and_swap(x, i, old, new): x[i] = new if it is `old`; whole numbers of 32 or 64 bits."""
    kind = pointer.dtype

    def codegen(context, builder, sig, args):
        address = builder.gep(args[0], [args[1]])
        pair = builder.cmpxchg(address, args[2], args[3], "monotonic", "monotonic")
        return builder.extract_value(pair, 0)

    return kind(pointer, i, kind, kind), codegen


# ----- tensor cores -----


@word
def tf32(typingctx, value):
    """tf32(x): a float32 rounded to the 10 bits of mantissa that tensor cores read."""

    def codegen(context, builder, sig, args):
        kind = ir.FunctionType(I32, [ir.FloatType()])
        rounded = builder.call(ir.InlineAsm(kind, "cvt.rna.tf32.f32 $0, $1;", "=r,f"), args)
        return builder.bitcast(rounded, ir.FloatType())

    return types.float32(types.float32), codegen


@word
def bf16_pair(typingctx, first, second):
    """bf16_pair(a, b): two float32 rounded to bfloat16, in the bits of one float32."""

    def codegen(context, builder, sig, args):
        kind = ir.FunctionType(I32, [ir.FloatType()] * 2)
        text = "cvt.rn.bf16x2.f32 $0, $2, $1;"  # the upper half is named first
        rounded = builder.call(ir.InlineAsm(kind, text, "=r,f,f"), args)
        return builder.bitcast(rounded, ir.FloatType())

    return types.float32(types.float32, types.float32), codegen


def _multiply(name: str, kinds: str, doc: str) -> Any:
    """A word for products on tensor cores, whose lanes hold the same places in every kind of number."""

    def define(typingctx, sums, first, second, a, i, b, j):
        def codegen(context, builder, sig, args):
            if sums.dtype is not types.float32:  # in a branch that products of float64 never take
                return context.get_dummy_value()

            def place(pointer, at, k):
                return builder.gep(builder.gep(args[pointer], [args[at]]), [I32(k)])

            single = ir.FloatType()
            totals = [place(0, at, k) for at in (1, 2) for k in range(2)]
            factors = [place(3, 4, k) for k in range(4)] + [place(5, 6, k) for k in range(2)]
            given = [builder.bitcast(builder.load(p), I32) for p in factors]
            given += [builder.load(p) for p in totals]
            kind = ir.FunctionType(ir.LiteralStructType([single] * 4), [g.type for g in given])
            text = (
                f"mma.sync.aligned.{kinds} "
                "{$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
            )
            constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
            made = builder.call(ir.InlineAsm(kind, text, constraints, side_effect=True), given)
            for k, pointer in enumerate(totals):
                builder.store(builder.extract_value(made, k), pointer)
            return context.get_dummy_value()

        return types.void(sums, first, second, a, i, b, j), codegen

    define.__name__, define.__doc__ = name, doc
    return word(define)


multiply_tf32 = _multiply(
    "multiply_tf32",
    "m16n8k8.row.col.f32.tf32.tf32.f32",
    """multiply_tf32(sums, first, second, a, i, b, j): a warp adds the product of 16 x 8 numbers and
    8 x 8 to 16 x 8.

    With `g, q = lane() // 4, lane() % 4` a lane holds of the left matrix rows g and g + 8 of column q,
    then those of column q + 4, in a[i : i + 4]; of the right one rows q and q + 4 of column g, in
    b[j : j + 2]; and of the sum columns 2 * q and 2 * q + 1 of row g, in sums[first] and the next, and
    of row g + 8, in sums[second] and the next.
    """,
)
multiply_bf16 = _multiply(
    "multiply_bf16",
    "m16n8k16.row.col.f32.bf16.bf16.f32",
    """The same as `multiply_tf32` for 16 x 16 numbers and 16 x 8: each of its columns and rows of
    factors is a pair of neighbours, made by `bf16_pair`.""",
)


# ----- numbers -----


@word
def rest_of_product(typingctx, a, b):
    """rest_of_product(a, b): what rounding takes from a * b, which floats can hold; 0 for whole numbers."""

    def codegen(context, builder, sig, args):
        if isinstance(a, types.Integer):
            return context.get_constant(a, 0)
        product = builder.fmul(*args)
        kind = product.type
        less = builder.fsub(kind(-0.0), product)  # NVVM knows no `fneg`
        return call(builder, f"llvm.fma.{kind.intrinsic_name}", kind, *args, less)

    return a(a, b), codegen


# ----- pairing -----


class Device(NamedTuple):
    """How a device kernel is launched."""

    threads: int  # of a block
    units: int  # of work that a block does at once
    work: Callable[[Any], int] | None  # units of work from the words after the addresses
    when: Callable[[Any, Any], bool] | None  # whether it fits those words and the letters' dtypes
    passes: (
        Callable[[Any], list[tuple[int, ...]]] | None
    )  # the last words of one launch after the other


def on_device(
    kernel: Any,
    *,
    threads: int = 256,
    units: int = 1,
    work: Callable[[Any], int] | None = None,
    when: Callable[[Any, Any], bool] | None = None,
    passes: Callable[[Any], list[tuple[int, ...]]] | None = None,
) -> Any:
    """Make a function `(row, n)` the CUDA side of a CPU kernel.

    `n` are its units of work: those of the CPU kernel, or what `work` makes of the words that
    follow the addresses in the row. Blocks do `units` of them at once. A kernel may have several
    CUDA sides: the first whose `when(words, letters)` holds, or that has none, runs. Work that every
    block has to be done with before it goes on takes several launches: `passes` makes of those words
    what each of them has behind its row.
    """

    def pair(made: Callable[..., Any]) -> Callable[..., Any]:
        made.launch = Device(threads, units, work, when, passes)  # type: ignore[attr-defined]
        if not hasattr(kernel, "devices"):
            kernel.devices = []
        kernel.devices.append(made)
        return made

    return pair


def device_side(kernel: Any, words: Any, letters: Any) -> Any:
    """The CUDA side of a kernel over such words and dtypes, None if it has none of its own."""
    for side in getattr(kernel, "devices", ()):
        if side.launch.when is None or side.launch.when(words, letters):
            return side
    return None


def instead_of(helper: Any) -> Any:
    """Make a function what device kernels call where CPU kernels call a helper."""

    def pair(made: Callable[..., Any]) -> Callable[..., Any]:
        helper.py_func.on_gpu = made
        return made

    return pair


def function_on_gpu(value: Any) -> Any:
    """The function that a global of a kernel stands for on a GPU; itself if it is no helper."""
    called = getattr(value, "py_func", value)
    return getattr(called, "on_gpu", called)
