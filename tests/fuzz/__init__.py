"""Random programs, run in every way that there is to run one: `make fuzz`.

A program is a list of Python lines that say `T` for the library. `calls.py` says how to call each public
function and `arguments.py` what with, `programs.py` strings calls together, `worker.py` runs a program,
`ways.py` has the processes that do it, one for each set of settings, `compare.py` says what may differ between
two of them, `shrink.py` makes a program shorter that shows something, and `found/` keeps what was found.
"""
