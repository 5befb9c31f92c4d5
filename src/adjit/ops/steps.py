"""Steps of optimisers over many parameters: one node, and one launch, for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

from ..devices import CPU
from ..formats import contiguous_format
from ..graph import write
from ..graph.fastpath import basic, replacing
from ..graph.node import Spec
from ..graph.primitives import NO_AXES, filled
from ..graph.record import find_device_steps, make_storage, make_tensor
from ..graph.state import state
from ..kernels.ops import optim as kernels
from ..schedule.jit.cache import expect, instantiate
from ..schedule.planning.recipe import GRAIN, Recipe, Step
from ..schedule.settle import settle
from ..tensor import Tensor
from .row_steps import float_words, is_whole, recorded_tables, rests_where_zero, sgd_rows

Tensors = list[Tensor]
Numbers = Callable[[], Sequence[float]]  # counts the step, gives its numbers
Then = Callable[[], object] | None  # calls no Python
Save = Callable[[], Callable[[], object]] | None

# Element operations that a step of one element is worth: 0.09, 0.15 and 0.6 ns in the second cache; 4 of
# the others.
COST = {kernels.sgd_step: 1, kernels.momentum_step: 2}


def _go_together(params: list[Tensor]) -> bool:
    """Whether one launch can move them all: they are on one device, have one dtype, and no two share
    a storage.
    """
    kind, place = params[0]._spec.dtype, params[0]._spec.device
    for p in params:
        if p._spec.dtype is not kind or p._spec.device is not place:
            return False
    return kind.is_floating_point and len({p._storage for p in params}) == len(params)


def _lie_plainly(written: list[Tensor], read: list[Tensor]) -> bool:
    """Whether tensors are all of their storages, and what is read lies densely; nobody outside looks at
    either.
    """
    return all(map(is_whole, written)) and all(
        t._spec.contiguous and not t._storage.shared for t in read
    )


go_together = basic("multi_tensor", "go_together", _go_together)
lie_plainly = basic("multi_tensor", "lie_plainly", _lie_plainly)


def prepare(rule: str, params: Iterable[Tensor]) -> None:
    """Have a kernel of steps compiled along with those of the first loss."""
    kernel = getattr(kernels, rule)
    for kind in dict.fromkeys(p._spec.dtype for p in params if p._spec.device is CPU):
        if kind.is_floating_point:
            expect(instantiate(kernel, {"T": kind}))


def sgd_step(params: Tensors, grads: Tensors, numbers: Numbers) -> None:
    """Plain steps. Numbers: the sign of the gradients, weight decay, -lr."""

    def words() -> list[int]:
        return float_words(numbers())

    tables = recorded_tables(params, grads) if rests_where_zero(*numbers()) else {}
    if not tables:
        _step(kernels.sgd_step, params, [], grads, words)
        return
    then = sgd_rows([params[k] for k in tables], [*tables.values()], numbers)
    others = [k for k in range(len(params)) if k not in tables]
    if others:
        _step(
            kernels.sgd_step,
            [params[k] for k in others],
            [],
            [grads[k] for k in others],
            words,
            then,
        )
    else:
        then()
    settle()  # nothing that can fail comes in between, so tables change in their places


def momentum_step(
    params: Tensors, velocities: Tensors, grads: Tensors, firsts: Sequence[bool],
    numbers: Numbers, nesterov: bool, then: Then,
) -> None:  # fmt: skip
    """Steps with momentum, together with what is to be done `then`. Numbers: as for `sgd_step`, momentum,
    the share of the gradients."""

    def words() -> list[int]:
        return [*map(int, firsts), *float_words(numbers()), int(nesterov)]

    _step(kernels.momentum_step, params, velocities, grads, words, then)


def rule_step(
    rule: str, params: Tensors, states: Tensors, grads: Tensors, numbers: Numbers,
    choices: Sequence[int], then: Then, save: Save,
) -> None:  # fmt: skip
    """Steps by a rule, the name of a kernel, together with what is to be done `then`. Numbers: those of each
    parameter, one kind after the other, and those of all, which `choices` follow.
    """

    def words() -> list[int]:
        return [*float_words(numbers()), *choices]

    _step(getattr(kernels, rule), params, states, grads, words, then, save)


def number(read: Callable[[], float], like: Tensor) -> Any:
    """What `read()` gives; in a captured function a tensor without axes that holds it anew at every call."""
    value = read()
    if state.session is None:
        return value
    state.session.numbers(float_words([value]), lambda: float_words([read()]))
    return filled(NO_AXES, value, like.dtype, like.device)


def _step(
    kernel: Any, params: Tensors, states: Tensors, grads: Tensors, numbers: Callable[[], list[int]],
    then: Then = None, save: Save = None,
) -> None:  # fmt: skip
    """Record a kernel that gives the parameters and the states new values.

    `numbers` is called once for every step, also for those of a captured function; `save` gives what takes
    back that it has counted one.
    """
    old = written = [*params, *states]
    read = grads
    are_plain = lie_plainly(written, read)
    if not are_plain:
        for t in written:
            write.refuse_overlapping(t._spec)
    words = numbers()
    if state.session is not None:
        state.session.numbers(words, numbers, save=save)
    if not are_plain and _can_be_seen(written, read):
        seen = tuple([t._storage.shared > 0 for t in written])
        settle()  # first what read them
        recipe, _ = _known_recipe(kernel, params, written, len(words) + 1, seen)
        _replace(recipe, written, read, (*words, len(params)), then)
        settle()
        return
    if not are_plain:
        written = [
            _placeholder(t) if is_whole(t) else t.clone(memory_format=contiguous_format)
            for t in old
        ]
        read = [g if g._spec.contiguous else g.contiguous() for g in grads]
    recipe, is_large = _known_recipe(kernel, written[: len(params)], written, len(words) + 1)
    _replace(recipe, written, read, (*words, len(params)), then if are_plain else None)
    if not are_plain:
        write.store_all(old, written, () if then is None else (then,))
    if is_large or not (are_plain or all(not g._storage.shared for g in read)):
        settle()


def _can_be_seen(written: list[Tensor], read: list[Tensor]) -> bool:
    """Whether all would lie plainly, did others not look at the memory of some; and a write is one that they
    see when the step has been made."""
    return (
        all(t._spec is t._storage.spec and t._spec.contiguous and not t._offset for t in written)
        and written[0]._spec.device is CPU
        and all(t._spec.contiguous for t in read)
        and state.session is None
    )


def _known_recipe(
    kernel: Any, params: list[Tensor], written: list[Tensor], scalars: int, here: tuple[bool, ...] = ()
) -> tuple[Recipe, bool]:  # fmt: skip
    """The recipe of a step that writes parameters and states, and whether the gradients are large; `here`
    says which are written where they lie, though others look at them."""
    specs = [p._spec for p in params]
    key = (kernel, len(written), here, *specs)
    found = _recipes.get(key)
    if found is None:
        if len(_recipes) >= MAX_STEPS:
            _recipes.clear()
        recipe = _recipe(kernel, [t._spec for t in written], specs, scalars)
        recipe.here = here
        found = _recipes[key] = recipe, sum([spec.nbytes for spec in specs]) >= LARGE
    return found


def _placeholder(t: Tensor) -> Any:
    """A tensor with the value of another one in a storage of its own."""
    return make_tensor(make_storage(t._storage.value, t._spec), t._spec)


_replace = replacing(write.replace)
MAX_STEPS = 256
LARGE = 1 << 22  # bytes of gradients that a recorded step must not keep alive beside the next ones
_recipes: dict[Any, tuple[Recipe, bool]] = {}  # and whether its gradients are large


def _recipe(kernel: Any, written: list[Spec], params: Sequence[Spec], scalars: int) -> Recipe:
    units = [-(-spec.numel // kernels.CHUNK) for spec in params]
    begins = accumulate(units, initial=0)
    work = COST.get(kernel, 4) * sum(spec.numel for spec in params)
    grain = GRAIN * sum(units) // max(work, 1)  # many units are smaller than a chunk
    step = Step(instantiate(kernel, {"T": params[0].dtype}), sum(units), grain)
    words = [*list(begins)[:-1], *[spec.numel for spec in params]]
    recipe = Recipe(
        kernel.__name__, (*written, *params), tuple(written), [step], tuple(words), scalars=scalars
    )
    find_device_steps(recipe)
    recipe.over = len(written)
    recipe.can_take_fast_path = False
    return recipe
