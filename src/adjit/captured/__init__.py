"""`adjit.compile`: functions that are captured once and replayed as one plan.

`compiled.py` is what users call: it knows the captures of a function by what their arguments were.
`tracing.py` watches one run of the function: what it reads from outside, writes and draws.
`replay.py` makes a plan of that, finds its inputs (`inputs.py`) at every call and leaves behind what
the function left (`outputs.py`); `waiting_call.py` is a call whose plan runs later, perhaps with that of
its backward. `backward.py` does the same for the graph behind results, whose backward is captured too;
`double_backward.py` makes that graph anew where gradients are to be differentiated again.
`program.py` is what both run: a plan with numbers that are new at every run.
"""

from .compiled import compile

__all__ = ["compile"]
