"""Gradients of users' own Numba functions, by source transformation.

`reader` makes the structured form (`structure`) of a function's text, with `jumps`, `expressions`,
`array_dtypes`, `emitter`, `values`, `vocabulary`, `for_each`, `numpy_functions`, `numpy_loops`, `round_sizes`,
`library` (with `library_orders` and `library_shapes`) and `advice`; `typing_pass` asks Numba for its types.
`reverse` writes the way back (`activity`, `undo`, `subscripts`, `sizes`, `tape_layout`, `rules`;
`checkpoints`, `single_rounds` with `written_first`, and `parallel` for loops that run again), `forward_mode`
the tangents, `writing` source. `generated` keeps the files, whose code calls `runtime`; `dispatch` finds
them for a call, `examples` puts a loop around it, `tangent_functions` makes a function of the tangents.
`gradients`, `tensors` and `usual_calls` are what users call, `refusal` what they get for the rest.

On a GPU loops by `prange` are device kernels: `gpu_files` has the functions around them, `gpu_loops` makes
them, `gpu_text` writes their text, `gpu_run` launches them, `gpu_tensors` has what tensors need of this.

Functions of numbers become ops: `scalar_programs` has their derivatives (with `scalar_reverse`),
`scalar_source` writes what kernels call, `scalar_functions` makes the ops.
"""

from __future__ import annotations

from .gradients import hvp, jvp, value_and_grad
from .refusal import NotDifferentiable
from .scalar_functions import ElementwiseFunction, elementwise
from .tensors import UserKernel, kernel

__all__ = ["ElementwiseFunction", "NotDifferentiable", "UserKernel", "elementwise", "hvp", "jvp", "kernel",
           "value_and_grad"]  # fmt: skip
