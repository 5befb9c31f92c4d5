"""A kernel for many examples: a loop around the user's function, differentiated as one function."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .source import Function, function_of_text, source_of


class ResultOfOne(NamedTuple):
    """What a result is for one example: the dimensions and dtype of an array, or those of a number."""

    ndim: int
    dtype: str


def for_examples(
    function: Function, has: Sequence[bool], results: Sequence[ResultOfOne], *, is_tuple: bool
) -> Function:
    """A function of all examples: its arguments are the sizes of each result's axes, then those of
    `function`, with one more axis in front where examples differ. It gives arrays of all examples.
    """
    name = function.__name__
    params = [f"argument{k}" for k in range(len(has))]
    sizes = [[f"size{k}_{d}" for d in range(r.ndim)] for k, r in enumerate(results)]
    outs = [f"out{k}" for k in range(len(results))]
    length = f"len({params[list(has).index(True)]})"
    given = [*itertools.chain(*sizes), *params]
    lines = [f"def {name}_of_examples({', '.join(given)}):"]
    for out, result, size in zip(outs, results, sizes, strict=True):
        shape = ", ".join([length, *size])
        dtype = "bool_" if result.dtype == "b1" else np.dtype(result.dtype).name
        lines.append(f"    {out} = np.empty(({shape},), np.{dtype})")
    call = f"function({', '.join(f'{p}[k]' if h else p for p, h in zip(params, has, strict=True))})"
    found = [f"found{k}" for k in range(len(results))]
    lines.append(f"    for k in range({length}):")
    if outs:
        target = f"{', '.join(found)}," if is_tuple else found[0]
        lines.append(f"        {target} = {call}")
    else:
        lines.append(f"        {call}")
    lines += [f"        {out}[k] = {f}" for out, f in zip(outs, found, strict=True)]
    lines.append(f"    return ({', '.join(outs)},)" if outs else "    return None")
    source = source_of(function)
    origin = f"{name} of {source.filename}:{source.first} for examples"
    names = {"np": np, "function": function}
    return function_of_text(f"{name}_of_examples", "\n".join(lines) + "\n", origin, names)
