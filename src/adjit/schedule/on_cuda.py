"""The CUDA side of recipes: which device kernels run a node, over which words."""

from __future__ import annotations

from .recipe import DeviceStep, Recipe


def device_steps(recipe: Recipe) -> list[DeviceStep]:
    """What runs a node with this recipe on a GPU, in order, all over the same row of words.

    The row is that of the CPU: the addresses of inputs, of results, of `recipe.scratch` bytes and
    of the status words (where `fallible`), `recipe.constants`, the Python numbers.

    Raises:
        NotImplementedError: if one of its kernels has no CUDA side yet.
    """
    raise NotImplementedError(f"{recipe.name} has no CUDA side yet")
