"""Recording a call of kernels that are written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import devices
from ..dtypes import dtype
from ..schedule.jit.cache import instantiate
from ..schedule.planning.recipe import Fusible, NamedRows, Recipe, Reduction, RowCall, Source, Step
from ..schedule.settle import remember, settle
from ..shapes import sized
from ..unknown import current, whole
from .levels import is_traced, tracers
from .node import NewTensor, Spec, TensorBase, dense_spec
from .record import MAX_RECIPES, common_device, find_device_steps, node_on, pick_all, result

Kernel = Callable[..., Any] | Source  # a function of the kernels room, or the text of one
KernelStep = tuple[Kernel, int, int]  # with its units of work, and how many are worth a thread
Kernels = Kernel | list[KernelStep]
Fails = Callable[[tuple[int, ...]], Exception]  # of the status words
Messages = dict[int, str | tuple[type[Exception], str]]


def launch(
    kernel: Kernels,
    inputs: Sequence[TensorBase],
    outputs: Sequence[tuple[Sequence[int], dtype]],
    *,
    scalars: Sequence[int] = (),
    **how: Any,
) -> NewTensor:
    """Record a node that runs hand-written kernels; its results are dense and in C order.

    `recipe_of` says what else there is to give. `scalars` are words that change from call to call.
    """
    recipe = recipe_of(
        kernel, tuple([t._spec for t in inputs]), outputs, scalars=len(scalars), **how
    )
    return launch_recipe(recipe, inputs, tuple(map(whole, scalars)))


def recipe_of(
    kernel: Kernels,
    inputs: tuple[Spec, ...],
    outputs: Sequence[tuple[Sequence[int], dtype]],
    *,
    bind: dict[str, dtype] | None = None,
    words: Sequence[int] = (),
    scalars: int = 0,
    n: int = 0,
    grain: int = 1,
    scratch: int = 0,
    fallible: bool | Fails = False,
    messages: Messages | None = None,
    activation: int = -1,
    finishes: bool = False,
    draw: Callable[[], tuple[int, int, int]] | None = None,
    device: devices.device | None = None,
    rows: NamedRows | None = None,
) -> Recipe:
    """The recipe of a launch, on inputs with these specs and with so many `scalars`.

    `kernel` is a kernel of the kernels room with its work in `n` and `grain`, or a list of steps
    (kernel, n, grain) over the same words: addresses of `inputs`, of `outputs`, of `scratch` bytes
    and of the status words (where `fallible`), then `words`, then `scalars` (floats travel as
    bits). `messages` maps a status code to a message, or (exception type, message), formatted
    with the details the kernel left. `activation` is the place of the word that says what the
    kernel does to its result last, 0 for nothing; `finishes` that it is a convolution, of which
    `schedule/fusion/conv_epilogue.py` says more. `draw` gives the last scalars anew whenever the node is
    recorded again from a trace. Results are where the inputs are; `device` says where, if there are none.
    `rows` says that the result is zero but for some rows.
    """
    steps = tuple(kernel) if isinstance(kernel, list) else ((kernel, n, grain),)
    words = tuple(words)
    key = (
        steps, inputs, tuple([(tuple(shape), kind) for shape, kind in outputs]), words,
        tuple(bind.items()) if bind else None, scalars, scratch,
        tuple(messages.items()) if messages else fallible, draw, device, rows,
    )  # fmt: skip
    is_kept = current() is None  # unknown sizes are in no key
    recipe = _launches.get(key) if is_kept else None
    if recipe is None:
        recipe = _launch_recipe(
            steps, inputs, outputs, words, bind or {}, scalars, scratch, fallible, messages or {},
            device or common_device(inputs),
        )  # fmt: skip
        recipe.fusion = recipe.fusion._replace(
            activation=activation, finishes=finishes and recipe.device is devices.CPU, rows=rows
        )
        recipe.draw = draw
        if len(_launches) >= MAX_RECIPES:
            _launches.clear()
        if is_kept:
            _launches[key] = recipe
    return recipe


def launch_recipe(
    recipe: Recipe, inputs: Sequence[TensorBase], scalars: tuple[int, ...] = ()
) -> NewTensor:
    """Record a node with a recipe that is there already.

    Raises:
        RuntimeError: on tensors inside of transforms, which no rule has taken.
    """
    if tracers and is_traced(inputs):
        raise RuntimeError(
            f"Batching rule not implemented for aten::{recipe.name}. We could not generate a fallback."
        )
    node = node_on(recipe, inputs, scalars)
    if len(recipe.outputs) == 1:
        out = result(node, recipe.spec)
        remember(node)
    else:
        out = tuple(pick_all(node))
    if any(t._storage.shared for t in inputs):
        settle()
    return out


_launches: dict[tuple[object, ...], Recipe] = {}


def _launch_recipe(
    steps: Sequence[KernelStep],
    inputs: tuple[Spec, ...],
    outputs: Sequence[tuple[Sequence[int], dtype]],
    words: tuple[int, ...],
    bind: dict[str, dtype],
    scalars: int,
    scratch: int,
    fallible: bool | Fails,
    messages: Messages,
    place: devices.device,
) -> Recipe:
    """The recipe behind a launch."""
    made = [
        Step(_source(k, whole(n), words, bind, place), whole(n), whole(size))
        for k, n, size in steps
    ]
    fails = None
    if fallible:
        fails = fallible if callable(fallible) else _status_error(messages)
    recipe = Recipe(
        made[0].source.name, inputs, tuple([dense_spec(sized(shape), kind, place) for shape, kind in outputs]),
        made, tuple(map(whole, words)), scalars=scalars, scratch=scratch, fallible=fails,
    )  # fmt: skip
    find_device_steps(recipe)
    recipe.find_heads()
    folds, row = (getattr(steps[0][0], name, None) for name in ("folds", "row"))
    recipe.fusion = Fusible(
        row=RowCall(row, bind["T"], words) if row else None,
        fold=Reduction(folds, bind.get("X", bind["T"]), bind["T"], words) if folds else None,
    )
    return recipe


def _source(
    kernel: Kernel, n: int, words: tuple[int, ...], bind: dict[str, dtype], place: devices.device
) -> Source:
    """The source of a step. A kernel with a `width` is compiled for that of its rows or columns, which on a GPU
    are units.
    """
    if isinstance(kernel, Source):
        return kernel
    width = getattr(kernel, "width", None) if place is devices.CPU else None
    return instantiate(kernel, bind, width(words, n, bind["T"].itemsize) if width else 0)


def _status_error(messages: Messages) -> Fails:
    def error(status: tuple[int, ...]) -> Exception:
        found = messages.get(status[0], "a kernel found a bad value: {0}")
        kind, text = found if isinstance(found, tuple) else (IndexError, found)
        return kind(text.format(*status[1:]))

    return error
