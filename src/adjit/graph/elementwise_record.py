"""Records elementwise ops on tensors and Python numbers, with a backward node where gradients are wanted.

Specs are shared objects, so one dictionary lookup by those of the operands stands for shape rules, promotion
and the choice of a kernel. The machine code of `kernels/fastpath/elementwise.py` does the same for the usual
calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .. import config, devices, dtypes
from ..dtypes import dtype
from ..schedule import deferred
from ..schedule.codegen import loops
from ..schedule.codegen.body import Body
from ..schedule.planning.recipe import Element, Fusible, Operand, Recipe, Step
from ..schedule.settle import MAX_PENDING, pending, settle
from ..shapes import (
    Size,
    broadcast_shapes,
    broadcast_strides,
    contiguous_strides,
    dense_in_order,
    is_dense,
)
from ..unknown import current
from . import primitives
from .levels import innermost, tracers
from .node import NewTensor, Node, Spec, TensorBase, as_reported, spec_of
from .op_record import ElementwiseOp, Number, OpKey, OpRecord
from .other_sizes import OtherSizes, form_of, spec_like
from .record import (
    INFERENCE,
    MAX_RECIPES,
    common_device,
    edge_of,
    find_device_steps,
    give_history,
    is_tensor,
    make_storage,
    make_tensor,
    needs_grad,
    new_grad_node,
    new_node,
    no_tensor,
    picks,
    tensor_classes,
)
from .saved import NUMBERS, examine, keep, pack
from .signature import Argument
from .state import inference_used, inferring, modes_used, state


def recorder(op: ElementwiseOp) -> Callable[..., NewTensor]:
    """A function of one or two operands that records an op: tensors, and perhaps a Python number."""

    def record(*operands: Argument) -> NewTensor:
        return elementwise(op, operands, ())

    return record


def after(out: TensorBase, shared: int) -> None:
    """The rare duties of a recorded op: run at once over shared bytes, mark inference tensors, call hooks."""
    if shared or len(pending) >= MAX_PENDING:
        settle()
    if state.inference:
        out._version_counter = INFERENCE
    if state.saving and out._edge is not None and len(out._edge[0].saved):
        pack(out._edge[0])


def elementwise(
    op: ElementwiseOp,
    operands: tuple[Argument, ...],
    attributes: tuple[Argument, ...],
    over: bool = False,
) -> NewTensor:
    """Record an elementwise op on tensors and Python numbers, with attributes in order."""
    key: list[Spec | type] = []
    values = []
    offsets = []
    numbers = []
    shifted = shared = 0
    requires_grad = False
    for operand in operands:
        kind = operand.__class__
        if kind not in tensor_classes and is_tensor(operand) and kind in tracers:
            return innermost(operands).elementwise(op, operands, attributes)
        if kind in tensor_classes:
            storage = operand._storage
            key.append(operand._spec)
            values.append(storage.value)
            offsets.append(operand._offset)
            shifted += operand._offset
            shared += storage.shared
            if operand._needs_grad or operand._view_of is not None:
                requires_grad = True
        else:
            if kind is not float and kind is not int and kind is not bool:
                operand = as_number(op, operand, operands)
                kind = operand.__class__
            key.append(kind)
            numbers.append(operand)
    op_record = op.op_records.get(tuple(key) if len(key) > 1 else key[0])
    if op_record is None:
        if len(numbers) == len(operands) and op.name in OF_NUMBERS:
            first = primitives.number(numbers[0], dtypes.of_scalar(numbers[0]))
            return elementwise(op, (first, *numbers[1:]), attributes)
        op_record = plan(op, operands, tuple(key))
        if op_record.kin is not None:  # a template has made it: machine code can go on
            return op.record_known(operands, attributes, over)
    recipe = op_record.recipe
    node = new_node(Node)
    node.recipe = recipe_over(op, op_record) if over else recipe
    node.inputs = tuple(values)
    node.offsets = tuple(offsets) if shifted else None
    if numbers or attributes:
        node.scalars = scalars = op.words(op_record, numbers, attributes)
    else:
        node.scalars = scalars = ()
    out = make_tensor(make_storage(node, recipe.spec), recipe.spec)
    if requires_grad and state.grad:
        attach(op, op_record, operands, scalars, out)
    pending.append(node)
    if shared or inferring or modes_used or len(pending) >= MAX_PENDING:
        after(out, shared)
    return out


# What PyTorch computes of numbers alone too.
OF_NUMBERS = {
    "add", "add_scaled", "sub", "sub_scaled", "mul", "div", "floor_divide", "trunc_divide",
}  # fmt: skip


def as_number(op: ElementwiseOp, value: Argument, operands: tuple[Argument, ...]) -> Number:
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


# What operands may be called where they are given by name: PyTorch's name, the library's, and NumPy's.
NAMES_OF_OPERANDS = {"x": ("input", "x", "a", "x1"), "y": ("other", "y", "x2")}
PYTORCH_NAMES = {name: names[0] for name, names in NAMES_OF_OPERANDS.items()}


def plan(
    op: ElementwiseOp, operands: tuple[Argument, ...], key: tuple[Spec | type, ...]
) -> OpRecord:
    """What is to be known of an elementwise op on operands such as these, of which the key has the specs, and
    the classes of numbers; remembered for the next time."""
    if Spec not in map(type, key):
        raise no_tensor(op.name, "input", 1, operands[0])
    for k in op.tensors_only:
        if not isinstance(key[k], Spec):
            name = op.params[k]
            raise no_tensor(op.name, PYTORCH_NAMES.get(name, name), k + 1, operands[k])
    if current() is not None:
        return planned(op, _described(key))
    found = form_of(key)
    op_record = None
    if found is not None:
        form, numbers = found

        def make(given: Iterator[int]) -> OpRecord:
            made = planned(op, specs_like(_described(key), given))
            made.kin = OtherSizes()
            return made

        op_record = op.sizes.made(form, numbers, make)
    if op_record is None:
        op_record = planned(op, _described(key))
    _keep(op, key[0] if len(key) == 1 else key, op_record, found)
    return op_record


def _keep(op: ElementwiseOp, op_key: OpKey, op_record: OpRecord, said: object) -> None:
    """Remember what is to be known of an op."""
    if len(op.op_records) >= MAX_RECIPES:
        op.op_records.clear()
    op.op_records[op_key] = op_record
    op.sizes.keep(op.op_records, op_key, op.name, said, is_made=op_record.kin is not None)


def _described(key: tuple[Spec | type, ...]) -> list[Spec | dtype]:
    """Specs, and the dtypes of numbers."""
    return [part if isinstance(part, Spec) else dtypes.of_scalar(part()) for part in key]


def specs_like(described: Sequence[Spec | dtype], numbers: Iterator[int]) -> list[Spec | dtype]:
    """Operands like others, with other numbers."""
    return [spec_like(s, numbers) if isinstance(s, Spec) else s for s in described]


def planned(op: ElementwiseOp, operands: Sequence[Spec | dtype]) -> OpRecord:
    """What is to be known of an elementwise op on tensors with these specs and numbers of these dtypes."""
    described = [*zip(op.params, operands, strict=True)]
    specs = [s for s in operands if isinstance(s, Spec)]
    place = common_device(specs, with_numbers=True)
    shape = broadcast_shapes(*[s.shape for s in specs])
    kinds = [
        (s.dtype, s.ndim) if isinstance(s, Spec) else (s, -1)
        for name, s in described
        if name not in op.body.logical
    ]
    compute, out_kind = op.dtypes(kinds)
    out_spec = result_spec(shape, _laid_by(op, described, specs), out_kind, place)
    if not op.laid_by:
        out_spec = in_c_order(out_spec)
    inputs = [
        Operand(name, s.dtype, broadcast_strides(s.shape, s.strides, shape))
        if isinstance(s, Spec)
        else number_of(op, name, compute)
        for name, s in described
    ]
    inputs += [number_of(op, name, compute) for name in op.attributes]
    recipe = elementwise_recipe(
        op.name, op.body, [0], compute, inputs, [("out", out_spec)], tuple(specs)
    )
    return OpRecord(
        recipe,
        tuple(s if isinstance(s, Spec) else None for s in operands),
        tuple(o.name for o in inputs if o.strides is None),
        compute,
        whole=compute.kind in "iu" and not op.attributes,  # which are looked at
        differentiable=op.differentiable and out_kind.is_floating_point,
        uniform=not op.body.whole,
    )


def number_of(op: ElementwiseOp, name: str, compute: dtype) -> Operand:
    """An operand or attribute that is a Python number."""
    return Operand(name, dtypes.int64 if name in op.body.whole else compute, None)


def _laid_by(
    op: ElementwiseOp, described: Sequence[tuple[str, Spec | dtype]], specs: Sequence[Spec]
) -> Sequence[Spec]:
    """The tensors among the operands, first those whose order of axes counts first."""
    if not op.laid_by:
        return specs
    return [spec for k in op.laid_by if isinstance(spec := described[k][1], Spec)]


def in_c_order(spec: Spec) -> Spec:
    """The same memory, reported to lie in C order."""
    return spec_of(
        spec.shape, spec.strides, spec.dtype, spec.device, contiguous_strides(spec.shape)
    )


def result_spec(shape: Size, specs: Sequence[Spec], kind: dtype, place: devices.device) -> Spec:
    """Dense memory in the order of the axes of the operands, both as it lies and as it is reported."""
    reported = None
    if any(spec.chosen for spec in specs):
        reported = _strides_of_result(shape, [as_reported(spec) for spec in specs])
    return spec_of(shape, _strides_of_result(shape, specs), kind, place, reported)


def _strides_of_result(shape: Size, specs: Sequence[Spec]) -> tuple[int, ...]:
    if all(spec.contiguous and spec.shape == shape for spec in specs):
        return contiguous_strides(shape)
    first = specs[0]
    if all(s.shape == shape and s.strides == first.strides for s in specs) and is_dense(
        shape, first.strides
    ):
        return first.strides
    seen = [broadcast_strides(spec.shape, spec.strides, shape) for spec in specs]
    return dense_in_order(shape, seen)


def elementwise_recipe(
    name: str,
    body: Body,
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
    order: Sequence[int] = range(first.ndim)
    if not first.contiguous:
        order = sorted(order, key=lambda d: (-first.strides[d], d))
    step, constants = loops.elementwise(
        name, body, wanted, compute, inputs, outputs, first.shape, order, alias, fresh=not alias
    )
    numbers = sum(o.strides is None for o in inputs)
    recipe = Recipe(
        name, specs, tuple(spec for _, spec in results), [step], constants, scalars=numbers
    )
    element = Element(body, tuple(wanted), compute, tuple(inputs), tuple(outputs), first.shape)
    # On a GPU every launch that is saved counts, on the CPU short loops gain nothing.
    least = config.MIN_FUSED if first.device is devices.CPU else 1
    recipe.fusion = Fusible(
        element=element.turned(order), wide=first.numel if first.numel >= least else 0
    )
    if first.numel == 0:
        recipe.steps = [Step(step.source, 0, 1)]
        recipe.large = False
    find_device_steps(recipe)
    return recipe


def recipe_over(op: ElementwiseOp, op_record: OpRecord) -> Recipe:
    """The recipe that may write its result over its first input."""
    found = op_record.over
    if found is None:
        found = recipe = op_record.recipe
        specs, compute = op_record.operands, op_record.compute
        spec: Spec = recipe.spec
        if specs[0] is spec and spec.nbytes >= ALIAS_BYTES:
            inputs = inputs_of(op, op_record)
            found = Recipe(recipe.name, recipe.inputs, recipe.outputs, recipe.steps,
                           recipe.constants, scalars=len(op_record.numbers))  # fmt: skip
            found.can_take_fast_path = False
            found.fusion, found.device_steps = recipe.fusion, recipe.device_steps
            found.alias = elementwise_recipe(
                op.name, op.body, [0], compute, inputs, [("out", spec)],
                recipe.inputs, True,
            )  # fmt: skip
        op_record.over = found
    return found


def inputs_of(op: ElementwiseOp, op_record: OpRecord) -> list[Operand]:
    """The operands of an op's kernel, then its attributes."""
    shape, compute = op_record.recipe.spec.shape, op_record.compute
    inputs = [
        number_of(op, n, compute)
        if s is None
        else Operand(n, s.dtype, broadcast_strides(s.shape, s.strides, shape))
        for n, s in zip(op.params, op_record.operands, strict=True)
    ]
    return inputs + [number_of(op, n, compute) for n in op.attributes]


def together(
    ops: Sequence[ElementwiseOp],
    body: Body,
    recipes: dict[OpRecord, Recipe],
    operands: tuple[Argument, ...],
    attributes: tuple[Argument, ...],
) -> tuple[NewTensor, ...]:
    """Record ops on the same operands as one node, whose body gives the results of all.

    Each result has a backward node of its own, as if its op had been recorded. `recipes` are those so far.
    """
    first = ops[0]
    operands = tuple([t if is_tensor(t) else as_number(first, t, operands) for t in operands])
    key = tuple([t._spec if is_tensor(t) else t.__class__ for t in operands])
    op_key = key if len(key) > 1 else key[0]
    found = [op.op_records.get(op_key) or plan(op, operands, key) for op in ops]
    recipe = recipes.get(found[0])
    if recipe is None:
        outputs = [(f"out_{k}", r.recipe.spec) for k, r in enumerate(found)]
        if len(recipes) >= MAX_RECIPES:
            recipes.clear()
        recipe = recipes[found[0]] = elementwise_recipe(
            body.name, body, range(len(ops)), found[0].compute, inputs_of(first, found[0]), outputs,
            found[0].recipe.inputs,
        )  # fmt: skip
    tensors = [t for t in operands if is_tensor(t)]
    node = new_node(Node)
    node.recipe = recipe
    node.inputs = tuple([t._storage.value for t in tensors])
    node.offsets = tuple([t._offset for t in tensors]) if any(t._offset for t in tensors) else None
    numbers = [t for t in operands if not is_tensor(t)]
    node.scalars = scalars = first.words(found[0], numbers, attributes)
    made = [
        make_tensor(make_storage(value, spec), spec)
        for value, spec in zip(picks(node), recipe.outputs, strict=True)
    ]
    for op, op_record, out in zip(ops, found, made, strict=True):
        attach(op, op_record, operands, scalars, out)
    shared = sum([t._storage.shared for t in tensors])
    if shared or inferring or modes_used or len(pending) >= MAX_PENDING:
        for out in made:
            after(out, shared)
    return tuple(made)


def recipe_here(recipe: Recipe) -> Recipe:
    """A recipe that may write over its first input as one that does, whoever looks at that."""
    found = recipe.in_place
    if found is None:
        found = Recipe(recipe.name, recipe.inputs, recipe.outputs, recipe.steps, recipe.constants,
                       scalars=recipe.scalars, scratch=recipe.scratch, fallible=recipe.fallible)  # fmt: skip
        found.can_take_fast_path, found.here, found.alias = False, (True,), recipe.alias
        recipe.in_place = found
    return found


ALIAS_BYTES = 1 << 16  # smaller results are not worth a kernel of their own


def attach(
    op: ElementwiseOp,
    op_record: OpRecord,
    operands: tuple[Argument, ...],
    scalars: tuple[int, ...],
    out: TensorBase,
) -> None:
    """Give the result of an elementwise op its backward node, if gradients are wanted."""
    if not state.grad or not op_record.differentiable:
        return
    edges = tuple([edge_of(t) if is_tensor(t) else None for t in operands])
    mask = 0
    for k, t in enumerate(operands):
        if edges[k] is not None or (is_tensor(t) and needs_grad(t)):
            mask |= 1 << k
    if not mask:
        return
    recipe = op_record.recipe
    fn = new_grad_node(op, edges, op_record.operands)
    fn.context = op_record
    fn.outputs = recipe.outputs
    fn.scalars = scalars
    fn.mask = mask
    saves = op.saves[mask]
    fn.saved = (keep(saves, operands, out) or NUMBERS) if saves else ()
    give_history(out, fn)
    if recipe.large and len(fn.saved) and not state.saving:
        deferred.track_saved(fn)
    if modes_used or inference_used:
        examine(fn)
