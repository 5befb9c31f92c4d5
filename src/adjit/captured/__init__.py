"""`adjit.compile`: functions that are captured once and replayed as one plan.

`compiled.py` is what users call: it knows the captures of a function by what their arguments were.
`tracing.py` watches one run of the function: what it reads from outside, writes and draws.
`replay.py` makes a plan of that, finds its inputs (`inputs.py`) at every call and leaves behind what
the function left (`outputs.py`); `waiting_call.py` is a call whose plan runs later, perhaps with that of
its backward, `exported.py` memory that is written while others look at it. For the graphs behind results
(`result_graphs.py`) the backward is recorded too while the function is watched (`backward_tracing.py`);
`backward.py` replays it, as plans of `backward_plan.py`, and `double_backward.py` makes the graph anew where
gradients are to be differentiated again. `program.py` is what all of them run: a plan with numbers that are
new at every run.
"""

from .compiled import compile

__all__ = ["compile"]
