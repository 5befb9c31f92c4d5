"""Recording: a call of an op becomes a node, a tensor and, where asked, a backward node.

This is the hot path of every program. Specs are shared objects, so one dictionary lookup stands
for shape rules, promotion and the choice of a kernel; results are made without `__init__`.
"""

from __future__ import annotations

import re
import struct
import traceback
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from .. import config, devices, dtypes, errors
from ..dtypes import dtype
from ..schedule import deferred
from ..schedule.codegen import loops
from ..schedule.gpu import lower
from ..schedule.planning.recipe import Element, Operand, Recipe, Step
from ..schedule.settle import MAX_PENDING, settle, tape, value_of
from ..shapes import Size, broadcast_shapes, broadcast_strides, contiguous_strides, is_dense
from ..storage import Storage, Version
from .node import GradNode, Node, Spec, sequence, spec_of
from .state import modes_used, state

Tensor: Any = None
Meta: Any = None  # what few tensors have, their accumulator for instance
tensor_classes: set[Any] = set()  # Tensor and the subclasses seen so far

new_node, new_storage, new_grad = Node.__new__, Storage.__new__, object.__new__
new_tensor: Any = None
INFERENCE = Version()  # stands in for the version counter of inference tensors


def adopt_classes(cls: type, meta: type) -> None:
    """Tell this room which class the handles it makes are of, and that of their rare fields."""
    global Tensor, Meta, new_tensor
    Tensor, Meta, new_tensor = cls, meta, object.__new__
    tensor_classes.add(cls)


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor, subclasses included."""
    if value.__class__ in tensor_classes:
        return True
    if isinstance(value, Tensor):
        tensor_classes.add(value.__class__)
        return True
    return False


# ----- results -----


def make_storage(node: Node, spec: Spec) -> Storage:
    """A cell around a value."""
    storage = new_storage(Storage)
    storage.value = node
    storage.spec = spec
    storage.version = storage.shared = 0
    return storage


def make_tensor(storage: Storage, spec: Spec, offset: int = 0, counter: Any = None) -> Any:
    """A handle without history."""
    out = new_tensor(Tensor)
    out.storage = storage
    out.spec = spec
    out.offset = offset
    out.counter = storage if counter is None else counter
    out.needs_grad = False
    out.edge = out.view_of = out.meta = None
    return out


def result(node: Node, spec: Spec) -> Any:
    """A new tensor around a recorded value."""
    if state.inference:
        return make_tensor(make_storage(node, spec), spec, 0, INFERENCE)
    return make_tensor(make_storage(node, spec), spec)


def as_tensor(g: Any, spec: Spec) -> Any:
    """A gradient as others see it: a backward walk carries the bare values that it records."""
    return make_tensor(make_storage(g, spec), spec) if g.__class__ is Node else g


def as_tensors(fn: GradNode, grads: list[Any]) -> list[Any]:
    """The gradients that arrived at a backward node, as others see them."""
    return [as_tensor(g, spec) for g, spec in zip(grads, fn.outputs, strict=True)]


def node_on(recipe: Recipe, tensors: Sequence[Any], scalars: tuple[int, ...] = ()) -> Node:
    """A node that runs a recipe on tensors; to put it onto the tape is left to the caller."""
    node = new_node(Node)
    node.recipe = recipe
    node.inputs = tuple([t.storage.value for t in tensors])
    offsets = tuple([t.offset for t in tensors])
    node.offsets = offsets if recipe.write or recipe.moves or any(offsets) else None
    node.scalars = scalars
    node.site = errors.user_site() if recipe.fallible is not None else None
    return node


def ready_node(block: Any) -> Node:
    """A value that is there already."""
    node = new_node(Node)
    node.recipe = node.inputs = node.offsets = node.site = None
    node.scalars = ()
    node.address = block
    return node


def value_address(tensor: Any) -> int:
    """The address of a tensor's first element, its value settled."""
    value = value_of(tensor.storage)
    return int(value.address) + tensor.offset * int(tensor.spec.dtype.itemsize)


# ----- history -----


def edge_of(t: Any) -> tuple[GradNode, int] | None:
    """Where the gradient of a tensor goes: its backward function, or its accumulator."""
    if t.view_of is not None:
        t.current_fn()
    if t.edge is None and t.needs_grad:
        return leaf_edge(t)
    return t.edge


def leaf_edge(t: Any) -> tuple[GradNode, int]:
    """The edge to the accumulator of a leaf: the one that some graph holds already, or a new one."""
    meta = t.meta
    found = None if meta is None or meta.accumulator is None else meta.accumulator()
    return t.accumulator() if found is None else found, 0


def needs_grad(t: Any) -> bool:
    """`requires_grad`, also for a view whose base came to need gradients after the view was made."""
    return bool(t.needs_grad or (t.view_of is not None and t.view_of.base.needs_grad))


def new_grad_node(op: Any, edges: Sequence[Any], inputs: tuple[Any, ...]) -> GradNode:
    """A backward node with nothing saved."""
    fn = new_grad(op.node_class)
    fn.op = op
    fn.edges = tuple(edges)
    fn.inputs = inputs
    fn.seq = sequence()
    fn.saved = ()
    fn.extras = None
    fn.recipe = None
    fn.scalars = ()
    fn.mask = 0
    if modes_used and state.anomaly:
        fn.more().traceback = traceback.format_list(traceback.extract_stack(errors.user_frame()))
    return fn


def copy_of(fn: GradNode, saved: Sequence[Any]) -> GradNode:
    """A backward node like another one, with other tensors saved."""
    twin = new_grad_node(fn.op, fn.edges, fn.inputs)
    twin.outputs, twin.recipe = fn.outputs, fn.recipe
    twin.saved = tuple([part for t in saved for part in (t, t.counter.version)])
    return twin


def give_history(out: Any, fn: GradNode, nr: int = 0) -> None:
    """Make `out` the output `nr` of a backward node."""
    out.edge = (fn, nr)
    out.needs_grad = True


# ----- elementwise -----


def binary_recorder(op: Any, fallback: Callable[[Any, Any, Any], Any] | None = None) -> Any:
    """`f(a, b)` that records an elementwise op on two tensors, without a call in between.

    `fallback(op, a, b)` takes the calls where not both are tensors.
    """
    recipes = op.recipes
    fallback = fallback or mixed

    def record(a: Any, b: Any) -> Any:
        if b.__class__ not in tensor_classes or a.__class__ not in tensor_classes:
            return fallback(op, a, b)
        recipe = recipes.get((a.spec, b.spec))
        if recipe is None:
            recipe = plan(op, (a, b))
        sa, sb = a.storage, b.storage
        node = new_node(Node)
        node.recipe = recipe
        node.inputs = (sa.value, sb.value)
        node.offsets = (a.offset, b.offset) if a.offset or b.offset else None
        node.scalars = ()
        storage = new_storage(Storage)
        storage.value = node
        storage.version = storage.shared = 0
        out = new_tensor(Tensor)
        out.storage = out.counter = storage
        out.spec = storage.spec = recipe.spec
        out.offset = 0
        out.needs_grad = False
        out.edge = out.view_of = out.meta = None
        if (
            a.needs_grad or b.needs_grad or a.view_of is not None or b.view_of is not None
        ) and state.grad:
            attach2(op, recipe, a, b, out)
        tape.append(node)
        if sa.shared or sb.shared or modes_used or len(tape) >= MAX_PENDING:
            after(out, sa.shared or sb.shared)
        return out

    return record


def binary(op: Any, a: Any, b: Any) -> Any:
    """Record an elementwise op on two operands, one of them a tensor."""
    return op.record(a, b)


def mixed(op: Any, a: Any, b: Any) -> Any:
    """Record an elementwise op on a tensor and a Python number, in either order."""
    if a.__class__ in tensor_classes:
        t, number, at = a, b, 0
        key = (a.spec, b.__class__)
    else:
        t, number, at = b, a, 1
        key = (a.__class__, getattr(b, "spec", None))
    kind = number.__class__
    recipe = op.recipes.get(key) if kind is float or kind is int else None
    if recipe is None or t.__class__ not in tensor_classes:
        return elementwise(op, (a, b), ())
    storage = t.storage
    node = new_node(Node)
    node.recipe = recipe
    node.inputs = (storage.value,)
    node.offsets = (t.offset,) if t.offset else None
    if recipe.compute.is_floating_point:
        node.scalars = scalars = _unpack_word(_pack_double(number))
    else:
        node.scalars = scalars = op.words(recipe, (number,), ())
    out = make_tensor(make_storage(node, recipe.spec), recipe.spec)
    if (t.needs_grad or t.view_of is not None) and state.grad:
        attach1(op, recipe, t, out, at, scalars)
    tape.append(node)
    if storage.shared or modes_used or len(tape) >= MAX_PENDING:
        after(out, storage.shared)
    return out


_pack_double, _unpack_word = struct.Struct("d").pack, struct.Struct("q").unpack


def unary_recorder(op: Any) -> Any:
    """`f(a)` that records an elementwise op on one tensor, without a call in between."""
    recipes = op.recipes

    def record(a: Any) -> Any:
        if a.__class__ not in tensor_classes:
            return elementwise(op, (a,), ())
        recipe = recipes.get(a.spec)
        if recipe is None:
            recipe = plan(op, (a,))
        source = a.storage
        node = new_node(Node)
        node.recipe = recipe
        node.inputs = (source.value,)
        node.offsets = (a.offset,) if a.offset else None
        node.scalars = ()
        storage = new_storage(Storage)
        storage.value = node
        storage.version = storage.shared = 0
        out = new_tensor(Tensor)
        out.storage = out.counter = storage
        out.spec = storage.spec = recipe.spec
        out.offset = 0
        out.needs_grad = False
        out.edge = out.view_of = out.meta = None
        if (a.needs_grad or a.view_of is not None) and state.grad:
            attach1(op, recipe, a, out)
        tape.append(node)
        if source.shared or modes_used or len(tape) >= MAX_PENDING:
            after(out, source.shared)
        return out

    return record


def unary(op: Any, a: Any) -> Any:
    """Record an elementwise op on one tensor."""
    return op.record(a)


def after(out: Any, shared: int) -> None:
    """The rare duties of a recorded op: run at once over shared bytes, mark inference tensors."""
    if shared or len(tape) >= MAX_PENDING:
        settle()
    if state.inference:
        out.counter = INFERENCE


def elementwise(
    op: Any, operands: tuple[Any, ...], attributes: tuple[Any, ...], over: bool = False
) -> Any:
    """Record an elementwise op on tensors and Python numbers, with attributes in order."""
    key: Any = []
    values = []
    offsets = []
    numbers = []
    shifted = shared = 0
    watched = False
    for operand in operands:
        kind = operand.__class__
        if kind in tensor_classes or is_tensor(operand):
            storage = operand.storage
            key.append(operand.spec)
            values.append(storage.value)
            offsets.append(operand.offset)
            shifted += operand.offset
            shared += storage.shared
            if operand.needs_grad or operand.view_of is not None:
                watched = True
        else:
            if kind is not float and kind is not int and kind is not bool:
                operand = as_number(op, operand, operands)
                kind = operand.__class__
            key.append(kind)
            numbers.append(operand)
    recipe = op.recipes.get(tuple(key) if len(key) > 1 else key[0])
    if recipe is None:
        recipe = plan(op, operands)
    node = new_node(Node)
    node.recipe = recipe_over(op, recipe) if over else recipe
    node.inputs = tuple(values)
    node.offsets = tuple(offsets) if shifted else None
    if numbers or attributes:
        node.scalars = scalars = op.words(recipe, numbers, attributes)
    else:
        node.scalars = scalars = ()
    out = make_tensor(make_storage(node, recipe.spec), recipe.spec)
    if watched and state.grad:
        attach(op, recipe, operands, scalars, out)
    tape.append(node)
    if shared or modes_used or len(tape) >= MAX_PENDING:
        after(out, shared)
    return out


def as_number(op: Any, value: Any, operands: tuple[Any, ...]) -> Any:
    """A Python number for a NumPy one; anything else is refused."""
    if value.__class__ in (float, int, bool):
        return value
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "ndim", None) == 0:
        found = item()
        if found.__class__ in (float, int, bool):
            return found
    if isinstance(value, (float, int)):
        return float(value) if isinstance(value, float) else int(value)
    if isinstance(value, complex):
        raise dtypes.unsupported(dtypes.complex64)
    position = next(k for k, operand in enumerate(operands) if operand is value)
    name = op.params[position]
    raise no_tensor(op.name, PYTORCH_NAMES.get(name, name), position + 1, value)


PYTORCH_NAMES = {"x": "input", "y": "other"}  # of operands, where they are not the library's own


def check_tensor(function: str, name: str, position: int, value: Any) -> None:
    """Raise PyTorch's error if an argument is no tensor."""
    if not is_tensor(value):
        raise no_tensor(function, name, position, value)


def no_tensor(function: str, name: str, position: int, value: Any) -> TypeError:
    """PyTorch's error for an argument that should be a tensor."""
    return TypeError(
        f"{function}(): argument '{name}' (position {position}) must be Tensor, not "
        f"{type(value).__name__}"
    )


def plan(op: Any, operands: tuple[Any, ...]) -> Recipe:
    """The recipe of an elementwise op on operands such as these, remembered for the next time."""
    key = []
    described: list[tuple[str, Any]] = []
    for name, operand in zip(op.params, operands, strict=True):
        if is_tensor(operand):
            key.append(operand.spec)
            described.append((name, operand.spec))
        else:
            operand = as_number(op, operand, operands)
            key.append(operand.__class__)
            described.append((name, dtypes.of_scalar(operand)))
    specs = [s for _, s in described if isinstance(s, Spec)]
    if not specs:
        raise no_tensor(op.name, "input", 1, operands[0])
    place = common_device(specs, with_numbers=True)
    shape = broadcast_shapes(*[s.shape for s in specs])
    kinds = [
        (s.dtype, s.ndim) if isinstance(s, Spec) else (s, -1)
        for name, s in described
        if name not in op.body.logical
    ]
    compute, out_kind = op.dtypes(kinds)
    out_spec = spec_of(shape, result_strides(shape, specs), out_kind, place)
    inputs = [
        Operand(name, s.dtype, broadcast_strides(s.shape, s.strides, shape))
        if isinstance(s, Spec)
        else Operand(name, compute, None)
        for name, s in described
    ]
    inputs += [Operand(name, compute, None) for name in op.attributes]
    recipe = elementwise_recipe(
        op.name, op.body, [0], compute, inputs, [("out", out_spec)], tuple(specs)
    )
    recipe.numbers = tuple(o.name for o in inputs if o.strides is None)
    recipe.compute, recipe.floating = compute, compute.is_floating_point
    recipe.whole = compute.kind in "iu"
    recipe.operands = tuple(s if isinstance(s, Spec) else None for _, s in described)
    recipe.differentiable = op.differentiable and out_kind.is_floating_point
    if len(op.recipes) >= MAX_RECIPES:
        op.recipes.clear()
    op.recipes[key[0] if len(key) == 1 else tuple(key)] = recipe
    return recipe


MAX_RECIPES = 4096


def common_device(specs: Sequence[Spec], *, with_numbers: bool = False) -> devices.device:
    """Where operands are; `with_numbers` lets 0-d tensors on the CPU go with tensors on a GPU.

    Raises:
        RuntimeError: if they are on several devices, with PyTorch's text.
    """
    found: devices.device | None = None
    for spec in specs:
        place = spec.device
        if found is None or place is found:
            found = place
        elif with_numbers and place is devices.CPU and not spec.ndim:
            continue
        elif (
            with_numbers
            and found is devices.CPU
            and all(not s.ndim for s in specs if s.device is found)
        ):
            found = place
        else:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{found} and {place}!"
            )
    return devices.CPU if found is None else found


def result_strides(shape: Size, specs: Sequence[Spec]) -> tuple[int, ...]:
    """C order, or the order of axes that every full operand has; one that repeats has none."""
    full = [
        spec
        for spec in specs
        if spec.shape == shape
        and not any(s == 0 and n > 1 for s, n in zip(spec.strides, shape, strict=True))
    ]
    if full and not full[0].contiguous:
        strides = full[0].strides
        if is_dense(shape, strides) and all(
            s.strides == strides for s in full if not (s.contiguous and s.numel <= 1)
        ):
            return strides
    return contiguous_strides(shape)


def elementwise_recipe(
    name: str,
    body: Any,
    wanted: Sequence[int],
    compute: dtype,
    inputs: Sequence[Operand],
    results: Sequence[tuple[str, Spec]],
    specs: tuple[Spec, ...],
    alias: bool = False,
) -> Recipe:
    """A recipe that runs a scalar body over the shape of its results."""
    first = results[0][1]
    outputs = [Operand(label, spec.dtype, spec.strides) for label, spec in results]
    order = sorted(range(first.ndim), key=lambda d: (-first.strides[d], d))
    step, constants = loops.elementwise(
        name, body, wanted, compute, inputs, outputs, first.shape, order, alias, fresh=not alias
    )
    numbers = sum(o.strides is None for o in inputs)
    recipe = Recipe(
        name, specs, tuple(spec for _, spec in results), [step], constants, scalars=numbers
    )
    recipe.element = Element(
        body, tuple(wanted), compute, tuple(inputs), tuple(outputs), first.shape
    ).turned(order)
    # On a GPU every launch that is saved counts, on the CPU short loops gain nothing.
    least = config.MIN_FUSED if first.device is devices.CPU else 1
    recipe.wide = first.numel if first.numel >= least else 0
    if first.numel == 0:
        recipe.steps = [Step(step.source, 0, 1)]
        recipe.large = False
    find_device_steps(recipe)
    return recipe


def find_device_steps(recipe: Recipe) -> None:
    """Find what runs a recipe on a GPU, at the line that records it the first time.

    Raises:
        NotImplementedError: if one of its kernels has no CUDA side, with what to do instead.
    """
    if recipe.device is devices.CPU:
        return
    try:
        recipe.device_steps = lower.device_steps(recipe)
    except NotImplementedError as error:
        raise NotImplementedError(
            f"{error}; compute it on the CPU: x.cpu() brings an operand there, .to('{recipe.device}') "
            "the result back"
        ) from None


def recipe_over(op: Any, recipe: Recipe) -> Recipe:
    """The recipe that may write its result over its first input."""
    found = recipe.vjps.get("over")
    if found is None:
        found = recipe
        specs = recipe.operands
        if specs[0] is recipe.spec and recipe.spec.nbytes >= ALIAS_BYTES:
            shape = recipe.spec.shape
            inputs = [
                Operand(n, recipe.compute, None)
                if s is None
                else Operand(n, s.dtype, broadcast_strides(s.shape, s.strides, shape))
                for n, s in zip(op.params, specs, strict=True)
            ]
            inputs += [Operand(n, recipe.compute, None) for n in op.attributes]
            found = Recipe(recipe.name, recipe.inputs, recipe.outputs, recipe.steps,
                           recipe.constants, scalars=len(recipe.numbers))  # fmt: skip
            found.plain = False
            found.element, found.wide = recipe.element, recipe.wide
            found.device_steps = recipe.device_steps
            found.alias = elementwise_recipe(
                op.name, op.body, [0], recipe.compute, inputs, [("out", recipe.spec)],
                recipe.inputs, True,
            )  # fmt: skip
        recipe.vjps["over"] = found
    return found


def recipe_here(recipe: Recipe) -> Recipe:
    """A recipe that may write over its first input as one that does, whoever looks at that."""
    found: Recipe | None = recipe.vjps.get("here")
    if found is None:
        found = Recipe(recipe.name, recipe.inputs, recipe.outputs, recipe.steps, recipe.constants,
                       scalars=recipe.scalars, scratch=recipe.scratch, fallible=recipe.fallible)  # fmt: skip
        found.plain, found.here, found.alias = False, True, recipe.alias
        recipe.vjps["here"] = found
    return found


ALIAS_BYTES = 1 << 16  # smaller results are not worth a kernel of their own


def attach1(
    op: Any, recipe: Recipe, a: Any, out: Any, at: int = 0, scalars: tuple[int, ...] = ()
) -> None:
    """`attach` for one tensor, unrolled; beside a number it is operand `at` of two."""
    edge = a.edge if a.view_of is None else edge_of(a)
    if edge is None:
        if a.needs_grad:
            edge = leaf_edge(a)
        elif not needs_grad(a):
            return
    if not recipe.differentiable:
        return
    fn = new_grad(op.node_class)
    fn.op = op
    fn.recipe = recipe
    fn.edges = (None, edge) if at else (edge, None) if scalars else (edge,)
    fn.inputs = recipe.operands
    fn.outputs = recipe.outputs
    fn.seq = sequence()
    fn.extras = None
    fn.scalars = scalars
    fn.mask = mask = 1 << at
    saves = op.saves[mask]
    if not saves:
        fn.saved = ()
    else:
        saved = (a, a.counter.version) if at in saves else NUMBERS
        fn.saved = saved if saves[-1] >= 0 else (*saved, out.storage, 0)
    out.edge = (fn, 0)
    out.needs_grad = True
    if recipe.large and len(fn.saved):
        deferred.note(fn)
    if modes_used:
        examine(fn)


def attach2(op: Any, recipe: Recipe, a: Any, b: Any, out: Any) -> None:
    """`attach` for two tensors, unrolled."""
    first = a.edge if a.view_of is None else edge_of(a)
    if first is None and a.needs_grad:
        first = leaf_edge(a)
    second = b.edge if b.view_of is None else edge_of(b)
    if second is None and b.needs_grad:
        second = leaf_edge(b)
    mask = (first is not None) + 2 * (second is not None)
    if not mask:
        mask = needs_grad(a) + 2 * needs_grad(b)  # views of leaves made under no_grad lead nowhere
        if not mask:
            return
    if not recipe.differentiable:
        return
    fn = new_grad(op.node_class)
    fn.op = op
    fn.recipe = recipe
    fn.edges = (first, second)
    fn.inputs = recipe.operands
    fn.outputs = recipe.outputs
    fn.seq = sequence()
    fn.extras = None
    fn.scalars = ()
    fn.mask = mask
    saves = op.saves[mask]
    if not saves:
        fn.saved = ()
    elif len(saves) == 1:
        k = saves[0]
        if k < 0:
            fn.saved = (out.storage, 0)
        else:
            kept = b if k else a
            fn.saved = (kept, kept.counter.version)
    elif saves == (0, 1):
        fn.saved = (a, a.counter.version, b, b.counter.version)
    else:
        fn.saved = keep(saves, (a, b), out)
    out.edge = (fn, 0)
    out.needs_grad = True
    if recipe.large and len(fn.saved):
        deferred.note(fn)
    if modes_used:
        examine(fn)


def attach(op: Any, recipe: Recipe, operands: tuple[Any, ...], scalars: Any, out: Any) -> None:
    """Give the result of an elementwise op its backward node, if gradients are wanted."""
    if not state.grad or not recipe.differentiable:
        return
    edges = tuple([edge_of(t) if is_tensor(t) else None for t in operands])
    mask = 0
    for k, t in enumerate(operands):
        if edges[k] is not None or (is_tensor(t) and needs_grad(t)):
            mask |= 1 << k
    if not mask:
        return
    fn = new_grad_node(op, edges, recipe.operands)
    fn.recipe = recipe
    fn.outputs = recipe.outputs
    fn.scalars = scalars
    fn.mask = mask
    saves = op.saves[mask]
    fn.saved = (keep(saves, operands, out) or NUMBERS) if saves else ()
    give_history(out, fn)
    if recipe.large and len(fn.saved):
        deferred.note(fn)
    if modes_used:
        examine(fn)


def keep(saves: Sequence[int], operands: tuple[Any, ...], out: Any) -> tuple[Any, ...]:
    """What `fn.saved` holds: operands by number, the result's cell for -1, each with its version."""
    saved: list[Any] = []
    for k in saves:
        if k < 0:
            saved += (out.storage, 0)
        elif is_tensor(operands[k]):
            saved += (operands[k], operands[k].counter.version)
    return tuple(saved)


class _Numbers(tuple[Any, ...]):
    """No tensors, but something that backward frees: a second backward is refused all the same."""

    def __bool__(self) -> bool:
        return True


NUMBERS = _Numbers()


def examine(fn: GradNode) -> None:
    """What anomaly mode and inference tensors ask of a new backward node."""
    for kept in fn.saved[::2]:
        if kept.__class__ is not Storage and kept.counter is INFERENCE:
            raise inference_save_error()
    if state.anomaly and fn.extras is None:
        fn.more().traceback = traceback.format_list(traceback.extract_stack(errors.user_frame()))


def inference_save_error() -> RuntimeError:
    """What saving an inference tensor raises."""
    return RuntimeError(
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
        "inference mode in computation tracked by autograd. To work around this, you can make a "
        "clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
        "`torch.inference_mode()`."
    )


# ----- saved tensors -----

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)


def unpack(fn: GradNode, k: int, spec: Spec | None = None, nr: int = 0) -> Any:
    """Saved tensor `k` of a backward node, after the version check.

    A saved output is kept as its cell (the tensor would be a cycle) and comes back as a new handle.
    """
    if fn.saved is None:
        raise RuntimeError(FREED)
    kept, version = fn.saved[2 * k : 2 * k + 2]
    counter = kept if kept.__class__ is Storage else kept.counter
    if counter.version != version:
        raise modified_error(fn, kept, counter, version, spec)
    if kept.__class__ is not Storage:
        return kept
    out = make_tensor(kept, fn.outputs[0] if spec is None else spec)
    if state.grad:
        give_history(out, fn, nr)
    return out


def modified_error(fn: GradNode, kept: Any, counter: Any, expected: int, spec: Any) -> Exception:
    """The error about a value that was needed and has been overwritten."""
    if kept.__class__ is Storage:
        source, spec, nr = fn, spec or fn.outputs[0], 0
    else:
        source = kept.fn if kept.view_of is None else kept.current_fn()
        spec, nr = kept.spec, kept.nr
    which = ""
    if source is not None:
        producer = re.sub(r"Backward\d*$", "", source.name())
        which = f", which is output {nr} of {producer},"
    hint = (
        " Hint: enable anomaly detection to find the operation that failed to compute its "
        "gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False)."
    )
    if state.anomaly:
        hint = (
            " Hint: the backtrace further above shows the operation that failed to compute its "
            "gradient. The variable in question was changed in there or anywhere later. Good luck!"
        )
    site = getattr(counter, "site", None)
    written = f" The last write was at {errors.describe(site)}." if site is not None else ""
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [torch.{spec.dtype.legacy}Tensor {list(spec.shape)}]{which} "
        f"is at version {counter.version}; expected version {expected} "
        f"instead.{hint}{written}"
    )


def pull_elementwise(fn: GradNode, grads: list[Any]) -> Sequence[Any]:
    """Record the vjp of an elementwise op; one gradient per operand, None where not needed."""
    saved = fn.saved
    if saved is None:
        raise RuntimeError(FREED)
    g = grads[0]
    if g.__class__ is Node:
        spec = fn.outputs[0]
        key: Any = fn.mask
        values, start, shared = [g], 0, 0
    elif state.grad:
        return _pull_on_tensors(fn, g)
    else:
        spec, storage = g.spec, g.storage
        key = spec, fn.mask
        values, start, shared = [storage.value], g.offset, storage.shared
    found: Any = fn.recipe.vjps.get(key)
    if found is None:
        found = fn.recipe.vjps[key] = plan_vjp(fn.op, fn, spec)
    passed, fits, kernels, _, _ = found
    if not fits:
        g = as_tensor(g, spec)
    if not kernels:
        return passed((g, None))
    results: list[Any] = [None] * len(fn.edges) if passed is None else [*passed((g, None))]
    shifted = start
    for k in range(0, len(saved), 2):
        kept = saved[k]
        if kept.__class__ is Storage:
            if kept.version != saved[k + 1]:
                unpack(fn, k // 2)
        else:
            if kept.counter.version != saved[k + 1]:
                unpack(fn, k // 2)
            shifted = shifted or kept.offset
            kept = kept.storage
        values.append(kept.value)
        shared += kept.shared
    for recipe, only, which, positions, pick, _ in kernels:
        node = new_node(Node)
        node.recipe = recipe
        node.inputs = pick(values)
        node.offsets = None
        if shifted:
            starts = [0 if t.__class__ is Storage else t.offset for t in saved[::2]]
            node.offsets = pick([start, *starts])
        node.scalars = tuple([fn.scalars[p] for p in positions]) if positions else ()
        if only >= 0:
            tape.append(node)
            results[only] = node
        else:
            for k, value, spec in zip(which, picks(node), recipe.outputs, strict=True):
                results[k] = value if spec is fn.inputs[k] else as_tensor(value, spec)
    if shared or len(tape) >= MAX_PENDING:
        settle()
    return results


def pick_all(node: Node) -> list[Any]:
    """One tensor for each result of a node with several."""
    specs = node.recipe.outputs
    return [
        make_tensor(make_storage(picked, spec), spec)
        for picked, spec in zip(picks(node), specs, strict=True)
    ]


def picks(node: Node) -> list[Node]:
    """Put a node onto the tape: a value for each of its results."""
    tape.append(node)
    if len(node.recipe.outputs) == 1:
        return [node]
    found = []
    recipe: Recipe = node.recipe
    recipes = recipe.vjps.get("picks")
    if recipes is None:
        recipes = recipe.vjps["picks"] = [_pick(k, spec) for k, spec in enumerate(recipe.outputs)]
    for pick in recipes:
        picked = new_node(Node)
        picked.recipe = pick
        picked.inputs = (node,)
        picked.offsets = None
        picked.scalars = ()
        found.append(picked)
    tape.extend(found)
    return found


_picks: dict[Any, Recipe] = {}


def _pick(k: int, spec: Spec) -> Recipe:
    recipe = _picks.get((k, spec))
    if recipe is None:
        if len(_picks) >= MAX_RECIPES:
            _picks.clear()
        recipe = _picks[k, spec] = Recipe("pick", (spec,), (spec,), [])
        recipe.pick = k
        recipe.plain = False
    return recipe


class Kernel(NamedTuple):
    """A kernel that gives gradients of some operands."""

    recipe: Recipe
    only: int  # the operand whose gradient is its only result and fits, or -1
    which: tuple[int, ...]  # the operands that it gives gradients for
    numbers: tuple[int, ...]  # the positions of its numbers among the forward's
    pick: Callable[[Any], Any]  # picks its inputs out of `g` and the saved values
    reads: tuple[int, ...]  # the places of its inputs there


class Vjp(NamedTuple):
    """How the gradients of an elementwise op's operands come from that of its result, `g`."""

    passed: Callable[[Any], Any] | None  # of (g, None): those that are `g` itself, if there are any
    fits: bool  # whether `g` has the specs of these operands
    kernels: tuple[Kernel, ...]  # for the others
    sources: tuple[int, ...] | None  # for each operand its kernel, -1 for `g`, -2 for none
    forms: tuple[int, ...]  # what to make of that: 0 nothing, 1 a tensor, 2 one of another shape


def plan_vjp(op: Any, fn: GradNode, g_spec: Spec) -> Vjp:
    """What the vjp of an elementwise op takes, for the operands that need a gradient.

    Large operands share one kernel, which reads them once; small ones have one each, which costs
    less to record.
    """
    forward: Recipe = fn.recipe
    compute, specs, shape = forward.compute, forward.operands, forward.spec.shape
    needed = [k for k in range(len(specs)) if fn.mask >> k & 1]
    passed = tuple(k for k in needed if op.back.passes(k))
    rest = [k for k in needed if k not in passed]
    saved = [k for k in op.saves[fn.mask] if k < 0 or specs[k] is not None]
    strides = result_strides(shape, [g_spec, forward.spec])
    kernels = []
    for which in [[k] for k in rest] if forward.spec.numel <= SMALL_VJP else [rest] if rest else []:
        _, reads = op.back.needed(which)
        operands = [("g", g_spec)]
        places = [0]
        for position, k in enumerate(saved, 1):
            name = "out" if k < 0 else op.params[k]
            if name in reads:
                operands.append((name, forward.spec if k < 0 else specs[k]))
                places.append(position)
        numbers = tuple(p for p, name in enumerate(forward.numbers) if name in reads)
        inputs = [
            Operand(name, s.dtype, broadcast_strides(s.shape, s.strides, shape))
            for name, s in operands
        ]
        inputs += [Operand(forward.numbers[p], compute, None) for p in numbers]
        place = forward.spec.device
        results = [
            (f"g_{op.params[k]}", spec_of(shape, strides, specs[k].dtype, place)) for k in which
        ]
        recipe = elementwise_recipe(
            f"{op.name}_vjp",
            op.back,
            which,
            compute,
            inputs,
            results,
            tuple(s for _, s in operands),
        )
        only = which[0] if len(which) == 1 and recipe.spec is specs[which[0]] else -1
        pick = tuple if len(places) == len(saved) + 1 else picker(places)
        kernels.append(Kernel(recipe, only, tuple(which), numbers, pick, tuple(places)))
    fits = all(specs[k] is forward.spec for k in passed)
    pass_places = [0 if k in passed else 1 for k in range(len(specs))]
    passing = picker(pass_places) if passed or not kernels else None
    if any(len(kernel.which) > 1 for kernel in kernels):
        return Vjp(passing, fits, tuple(kernels), None, ())
    found = dict.fromkeys(passed, PASSED) | {kernel.which[0]: i for i, kernel in enumerate(kernels)}
    made = dict.fromkeys(passed, g_spec) | {
        kernel.which[0]: kernel.recipe.spec for kernel in kernels
    }
    sources = tuple([found.get(k, NOTHING) for k in range(len(specs))])
    forms = tuple([form(made[k], specs[k]) if k in made else 0 for k in range(len(specs))])
    return Vjp(passing, fits, tuple(kernels), sources, forms)


def form(found: Spec, wanted: Spec) -> int:
    """What becomes of a gradient: 0 it fits as it is, 1 as a tensor, 2 after a sum or conversion."""
    if found is wanted:
        return 0
    alike = found.dtype is wanted.dtype and found.device is wanted.device
    return 1 if alike and found.shape == wanted.shape else 2


PASSED, NOTHING = -1, -2  # among the sources of a vjp


def picker(places: Sequence[int]) -> Callable[[Any], Any]:
    """A function that picks these places of a tuple, as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    only = slice(places[0], places[0] + 1) if places else slice(0)
    return lambda values: tuple(values[only])


SMALL_VJP = 1 << 12  # elements


def _pull_on_tensors(fn: GradNode, g: Any) -> list[Any]:
    """The vjp body read on tensors, so that it is recorded and differentiable itself."""
    op, specs = fn.op, fn.inputs
    which = tuple(k for k in range(len(specs)) if fn.mask >> k & 1)
    given: dict[str, Any] = dict.fromkeys([*op.back.params, *op.back.attributes])
    given["g"] = g
    tensors = [k for k in op.saves[fn.mask] if k < 0 or specs[k] is not None]
    for position, k in enumerate(tensors):
        given["out" if k < 0 else op.params[k]] = unpack(fn, position)
    if fn.recipe.numbers:
        numbers = op.numbers(fn.recipe, fn.scalars)
        given.update((name, value) for name, value in numbers.items() if name in given)
    results = op.back.on_tensors(which, op.functions())(**given)
    grads: list[Any] = [None] * len(specs)
    for k, gradient in zip(which, results, strict=True):
        grads[k] = gradient if is_tensor(gradient) else _constant_like(g, gradient)
    return grads


def _constant_like(g: Any, value: float) -> Any:
    """A gradient that the body gives as a number."""
    from ..ops.creation import full

    return full(g.shape, value, dtype=g.dtype, device=g.device)
