"""From recorded nodes to bytes.

`settle.py` says what runs, and `deferred.py` what can wait. A graph that is new runs operation by operation
(`dispatch.py`). `graph_key.py` tells whether it came back; then `plan_cache.py` has or makes its plan: `fusion`
finds what becomes one kernel, `planning` where values lie, `codegen` writes the text of kernels, and `jit` has
their machine code. `run_cpu.py` and `gpu` run it, `profile.py` times it, and `forks.py` sees to it that child
processes can go on.
"""
