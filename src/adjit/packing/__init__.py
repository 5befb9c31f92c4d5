"""Kernel packs are made here: kernels that ordinary programs need first, compiled ahead of them.

`elementwise.py`, `operations.py`, `networks.py` and `sciences.py` are programs that need these kernels,
`programs.py` runs them, `build.py` has them run for a level and keeps what was compiled, and `wheel.py` makes
a package of it.
`schedule/jit/pack.py` finds and reads packs; nothing of this room is loaded by `import adjit`.
"""
