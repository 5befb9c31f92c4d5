"""Operations that recording itself needs: constants, fresh memory, copies of arrays, turned copies.

The op table is built on the same ones. What else recording needs of the table, it looks up in `registry`.
"""

from __future__ import annotations

import math
from ctypes import addressof, c_char, memmove
from typing import Any

import numpy as np

from .. import dtypes
from ..devices import CPU, device
from ..dtypes import dtype
from ..kernels.ops import fill
from ..kernels.ops import shape as kernels
from ..schedule import deferred
from ..schedule.planning.recipe import GRAIN, Recipe
from ..schedule.settle import float_word, fresh_block
from ..shapes import Size, coalesce, sized
from ..unknown import current
from .launch import launch_recipe, recipe_of
from .node import NewTensor, Node, Spec, TensorBase, dense_spec
from .record import MAX_RECIPES, ready_node, result

Array = np.ndarray[Any, Any]
NO_AXES = sized(())
MOST_BYTES = 1 << 10  # copied once more, which takes less time than to ask for an array's address


def filled(shape: Size, value: float, kind: dtype, place: device) -> NewTensor:
    """Record a tensor with a number in every place."""
    recipe = constant_recipe(shape, kind, place)
    if kind.is_floating_point:
        word = float_word(float(value))
    else:
        word = int(bool(value) if kind.kind == "b" else value)
    return launch_recipe(recipe, (), (word,))


def constant_recipe(shape: Size, kind: dtype, place: device) -> Recipe:
    """How a number is put into every place of a tensor."""
    key = shape, kind, place
    is_kept = current() is None
    recipe = _constants.get(key) if is_kept else None
    if recipe is None:
        if len(_constants) >= MAX_RECIPES:
            _constants.clear()
        recipe = recipe_of(
            fill.constant_float if kind.is_floating_point else fill.constant_int, (), [(shape, kind)],
            bind={"T": kind}, scalars=1, n=math.prod(shape), grain=1 << 16, device=place,
        )  # fmt: skip
        if is_kept:
            _constants[key] = recipe
    return recipe


_constants: dict[tuple[Size, dtype, device], Recipe] = {}


def is_filled_with_zeros(t: TensorBase) -> bool:
    """Whether a tensor is recorded as zeros, and all of them."""
    value = t._storage.value
    recipe = value.recipe
    return isinstance(recipe, Recipe) and recipe.spec is t._spec and deferred.are_zeros(value)


def fresh_node(spec: Spec) -> Node:
    """A value of undefined bytes."""
    return ready_node(fresh_block(spec.nbytes, spec.device))


def empty(spec: Spec) -> NewTensor:
    """A tensor of undefined bytes."""
    return result(fresh_node(spec), spec)


def number(value: float, kind: dtype) -> NewTensor:
    """A tensor without axes of a Python number, which the dtype holds."""
    spec = _numbers.get(kind)
    if spec is None:
        spec = _numbers[kind] = dense_spec(NO_AXES, kind)
    node = fresh_node(spec)
    kind.ctype.from_address(node.address).value = value
    return result(node, spec)


_numbers: dict[dtype, Spec] = {}


def from_array(array: Array) -> NewTensor:
    """A new tensor with the elements of an array, on the CPU."""
    kind = dtypes.of_numpy(array.dtype)
    spec = dense_spec(array.shape, kind)
    node = fresh_node(spec)
    size = array.nbytes
    if size <= MOST_BYTES:
        memmove(node.address, array.tobytes(), size)
    else:
        source = np.ascontiguousarray(array)
        memmove(node.address, address_of(source), size)
    return result(node, spec)


def address_of(array: Array) -> int:
    """Where the elements of an array lie."""
    if array.flags.writeable and array.flags.c_contiguous:
        return addressof(c_char.from_buffer(array.data))
    address: int = array.__array_interface__["data"][0]
    return address


def same_bits(t: TensorBase, kind: dtype) -> NewTensor:
    """Record the bits of a dense tensor as numbers of another dtype, without axes but one, in the order in
    which they lie."""
    spec = t._spec
    part = dtypes.carrier(min(spec.dtype, kind, key=lambda one: one.itemsize))
    recipe = recipe_of(
        fill.same_bits, (spec,), [((spec.nbytes // kind.itemsize,), kind)], bind={"T": part},
        n=spec.nbytes // part.itemsize, grain=1 << 16,
    )  # fmt: skip
    return launch_recipe(recipe, (t,))


def turning(source: Spec, spec: Spec) -> Recipe | None:
    """The recipe of a dense copy of dense matrices that are seen turned; None if it is something else.

    Element by element, each would be read from another line of memory.
    """
    if source.dtype is not spec.dtype or not spec.contiguous or spec.device is not CPU:
        return None
    sizes, (steps,) = coalesce(source.shape, [source.strides])
    if len(sizes) not in (2, 3) or steps[-2:] != (1, sizes[-2]):
        return None
    columns, rows = sizes[-2:]
    if min(rows, columns) < kernels.TILE or (len(sizes) == 3 and steps[0] != rows * columns):
        return None
    return recipe_of(
        kernels.turn, (source,), [(spec.shape, spec.dtype)], bind={"T": spec.dtype}, words=(rows, columns),
        n=spec.numel // (rows * columns) * -(-columns // kernels.TILE),
        grain=max(1, GRAIN // (2 * kernels.TILE * rows)),
    )  # fmt: skip
