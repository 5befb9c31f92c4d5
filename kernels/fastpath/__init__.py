"""The interpreter's part of recording, settling and going back, as machine code.

`cpython.py` reads and makes Python's objects, `freelists.py` and `pool.py` keep freed ones and their memory.
Each other file is the machine code of functions in `src/adjit` that do the same in Python: these are the
specification, and take over what is unusual. `adjit.schedule.jit.native` says how both come together.

What a file sets to BOUND it finds by name: slots of classes, fields of NamedTuples, parameters and numbers,
which `src/adjit` makes known by `native.register_layout`. Only pairs (an edge, a value and where it
starts) are read by 0 and 1.
"""
