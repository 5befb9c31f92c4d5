"""What recording makes: nodes, storages, tensors and backward nodes, without `__init__`.

This is the hot path of every program.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

from .. import devices, errors
from ..schedule.gpu import lower
from ..schedule.planning.recipe import Recipe
from ..schedule.settle import MAX_PENDING, pending, settle, value_of
from ..storage import Storage, Version
from .levels import tracers
from .node import (
    Edge,
    Gradient,
    GradNode,
    GradOp,
    NewTensor,
    Node,
    Spec,
    Specs,
    TensorBase,
    is_bare,
    sequence,
)
from .state import modes_used, state

Tensor: type[TensorBase] = TensorBase  # as the room above defines it
tensor_classes: set[type[Any]] = set()  # Tensor and the subclasses seen so far

new_node, new_storage = Node.__new__, Storage.__new__
new_grad: Callable[[type[GradNode]], GradNode] = object.__new__
new_tensor: Callable[[type], NewTensor] = object.__new__
INFERENCE = Version()  # stands in for the version counter of inference tensors


def adopt_class(cls: type[TensorBase]) -> None:
    """Tell this room which class the handles it makes are of."""
    global Tensor
    Tensor = cls
    tensor_classes.add(cls)


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor, subclasses included."""
    if value.__class__ in tensor_classes:
        return True
    if isinstance(value, Tensor):
        if value._uninitialized:
            raise uninitialized_error(value.__class__)
        if value.__class__ not in tracers:
            tensor_classes.add(value.__class__)
        return True
    return False


def uninitialized_error(cls: type) -> ValueError:
    """The error about the use of a parameter whose shape is not known yet."""
    return ValueError(
        "Attempted to use an uninitialized parameter. This error happens when you are using a "
        f"`LazyModule` or explicitly manipulating `torch.nn.parameter.{cls.__name__}` objects. When "
        "using LazyModules Call `forward` with a dummy batch to initialize the parameters before "
        "calling torch functions"
    )


# ----- results -----


def make_storage(node: Node, spec: Spec) -> Storage:
    """A storage around a value."""
    storage = new_storage(Storage)
    storage.value = node
    storage.spec = spec
    storage.version = storage.shared = 0
    return storage


def make_tensor(
    storage: Storage, spec: Spec, offset: int = 0, counter: Storage | Version | None = None
) -> NewTensor:
    """A handle without history."""
    out = new_tensor(Tensor)
    out._storage = storage
    out._spec = spec
    out._offset = offset
    out._version_counter = storage if counter is None else counter
    out._needs_grad = False
    out._edge = out._view_of = out._autograd_meta = None
    return out


def result(node: Node, spec: Spec) -> NewTensor:
    """A new tensor around a recorded value."""
    return make_tensor(make_storage(node, spec), spec, 0, new_counter())


def new_counter() -> Version | None:
    """What counts the writes into a new tensor: None for its storage; in inference mode nothing does."""
    return INFERENCE if state.inference else None


def as_tensor(g: Gradient | None, spec: Spec | None) -> NewTensor:
    """A gradient as others see it: a backward walk carries the bare values that it records."""
    if is_bare(g):
        assert spec is not None
        return make_tensor(make_storage(g, spec), spec)
    return g


def as_tensors(fn: GradNode, grads: Sequence[Gradient | None]) -> list[NewTensor]:
    """The gradients that arrived at a backward node, as others see them."""
    return [as_tensor(g, spec) for g, spec in zip(grads, fn.outputs, strict=True)]


def node_on(recipe: Recipe, tensors: Sequence[TensorBase], scalars: tuple[int, ...] = ()) -> Node:
    """A node that runs a recipe on tensors; to put it into `pending` is left to the caller."""
    node = new_node(Node)
    node.recipe = recipe
    node.inputs = tuple([t._storage.value for t in tensors])
    offsets = tuple([t._offset for t in tensors])
    node.offsets = offsets if recipe.write or recipe.moves or any(offsets) else None
    node.scalars = scalars
    node.call_site = errors.user_call_site() if recipe.fallible is not None else None
    return node


def ready_node(block: int) -> Node:
    """A value that is there already."""
    node = new_node(Node)
    node.recipe = node.inputs = node.offsets = node.call_site = None
    node.scalars = ()
    node.address = block
    return node


def value_address(tensor: TensorBase) -> int:
    """The address of a tensor's first element, its value settled."""
    value = value_of(tensor._storage)
    return int(value.address) + tensor._offset * int(tensor._spec.dtype.itemsize)


# ----- history -----


def edge_of(t: TensorBase) -> Edge | None:
    """Where the gradient of a tensor goes: its backward function, or its accumulator."""
    if t._view_of is not None:
        t._current_fn()
    if t._edge is None and t._needs_grad:
        return leaf_edge(t)
    return t._edge


def leaf_edge(t: TensorBase) -> Edge:
    """The edge to the accumulator of a leaf: the one that some graph holds already, or a new one."""
    meta = t._autograd_meta
    found = None if meta is None or meta.accumulator is None else meta.accumulator()
    return t._accumulator() if found is None else found, 0


def needs_grad(t: TensorBase) -> bool:
    """`requires_grad`, also for a view whose base came to need gradients after the view was made."""
    return bool(t._needs_grad or (t._view_of is not None and t._view_of.base._needs_grad))


def plain_number(value: Any, function: str, argument: str) -> Any:
    """A number that is to be one, which may be that of a tensor.

    Raises:
        TypeError: it is a tensor that needs a gradient, which would not get any.
    """
    if isinstance(value, str):  # which `float` would read
        raise TypeError(f"{function}(): argument '{argument}' must be Number, not str")
    if not is_tensor(value):
        return value
    if needs_grad(value):
        raise TypeError(
            f"{function}(): argument '{argument}' must be Number, not Tensor: no gradient goes to it; "
            "give its item()"
        )
    return value.item()


def is_differentiated(t: TensorBase) -> bool:
    """Whether a derivative may be asked for, of a backward pass or of a transform."""
    return t.__class__ in tracers or bool(state.grad and needs_grad(t))


def new_grad_node(op: GradOp, edges: Sequence[Edge | None], inputs: Specs) -> GradNode:
    """A backward node with nothing saved."""
    fn = new_grad(op.node_class)
    fn.op = op
    fn.edges = tuple(edges)
    fn.inputs = inputs
    fn.seq = sequence()
    fn.saved = ()
    fn.extras = None
    fn.context = None
    fn.scalars = ()
    fn.mask = 0
    if modes_used and state.anomaly:
        fn.more().traceback = traceback.format_list(traceback.extract_stack(errors.user_frame()))
    return fn


def copy_of(fn: GradNode, saved: Sequence[TensorBase]) -> GradNode:
    """A backward node like another one, with other tensors saved."""
    copied = new_grad_node(fn.op, fn.edges, fn.inputs)
    copied.outputs, copied.context = fn.outputs, fn.context
    copied.saved = tuple([part for t in saved for part in (t, t._version_counter.version)])
    return copied


def give_history(out: TensorBase, fn: GradNode, nr: int = 0) -> None:
    """Make `out` the output `nr` of a backward node."""
    out._edge = (fn, nr)
    out._needs_grad = True


def no_gradient(function: str, name: str) -> RuntimeError:
    """PyTorch's error for an argument that has no derivative and requires a gradient."""
    return RuntimeError(
        f"The function '{function}' is not differentiable with respect to argument '{name}'. This input "
        "cannot have requires_grad True."
    )


def check_no_gradient(function: str, **arguments: TensorBase | None) -> None:
    """Raise where an argument that has no derivative requires a gradient."""
    for name, t in arguments.items():
        if t is not None and t.requires_grad and state.grad:
            raise no_gradient(function, name)


def check_tensor(function: str, name: str, position: int, value: object) -> None:
    """Raise PyTorch's error if an argument is no tensor."""
    if not is_tensor(value):
        raise no_tensor(function, name, position, value)


def no_tensor(
    function: str, name: str, position: int | None, value: object, wanted: str = "Tensor"
) -> TypeError:
    """PyTorch's error for an argument that should be a tensor; without `position` one that is given by name."""
    place = "" if position is None else f" (position {position})"
    return TypeError(
        f"{function}(): argument '{name}'{place} must be {wanted}, not {type_name(value)}"
    )


def type_name(value: object) -> str:
    """The name of a class as PyTorch's errors have it: with its module where it is written in C."""
    kind = type(value)
    if is_of_pytorch(kind):
        return f"PyTorch's {kind.__name__}, which from_dlpack() takes"
    is_plain = kind.__module__ == "builtins" or kind.__flags__ & HEAP_TYPE
    return kind.__name__ if is_plain else f"{kind.__module__}.{kind.__name__}"


HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def is_of_pytorch(kind: type) -> bool:
    """Whether instances of a class are tensors of PyTorch itself: asked what functions do with them, they ask
    the functions."""
    return any(base.__name__ == "Tensor" and base.__module__ == "torch" for base in kind.__mro__)


MAX_RECIPES = 4096
MOST_MET_ONCE = (
    256  # of one op, whose records stay until others come: large networks have half as many shapes
)
met: set[int] = set()  # hashes of what was looked at once
MOST_MET_AT_ALL = 4 * MAX_RECIPES


def is_met_again(key: tuple[object, ...]) -> bool:
    """Whether a key comes for another time. What comes once is not worth being kept for long: where sizes are
    ever others, the collector would go several times through all that is known of each."""
    found = hash(key)
    if found in met:
        return True
    if len(met) >= MOST_MET_AT_ALL:
        met.clear()
    met.add(found)
    return False


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


def recipe_of(node: Node) -> Recipe:
    """What runs a node that is recorded and has not run."""
    recipe = node.recipe
    assert isinstance(recipe, Recipe)
    return recipe


def pick_all(node: Node) -> list[NewTensor]:
    """One tensor for each result of a node with several."""
    specs = recipe_of(node).outputs  # before another thread that settles takes the recipe
    made = [
        make_tensor(make_storage(picked, spec), spec)
        for picked, spec in zip(picks(node), specs, strict=True)
    ]
    if len(pending) >= MAX_PENDING:
        settle()
    return made


def picks(node: Node) -> list[Node]:
    """Put a node into `pending`: a value for each of its results. Once they have owners, a full one is to
    be settled."""
    recipe = recipe_of(node)
    if len(recipe.outputs) == 1:
        pending.append(node)
        return [node]
    found = []
    for pick in picks_of(recipe):
        picked = new_node(Node)
        picked.recipe = pick
        picked.inputs = (node,)
        picked.offsets = None
        picked.scalars = ()
        found.append(picked)
    pending.extend([node, *found])  # at once: another thread that settles takes all of them
    return found


def picks_of(recipe: Recipe) -> list[Recipe]:
    """The recipes that take one of several results."""
    if recipe.picks is None:
        recipe.picks = [_pick(k, spec) for k, spec in enumerate(recipe.outputs)]
    return recipe.picks


_picks: dict[tuple[int, Spec], Recipe] = {}


def _pick(k: int, spec: Spec) -> Recipe:
    recipe = _picks.get((k, spec))
    if recipe is None:
        if len(_picks) >= MAX_RECIPES:
            _picks.clear()
        recipe = _picks[k, spec] = Recipe("pick", (spec,), (spec,), [])
        recipe.pick = k
        recipe.can_take_fast_path = False
    return recipe
