"""Where the values of a plan lie, and the words that its steps read.

`recipe.py` is a lowered operation, `lower.py` lays groups of them out in memory and writes their steps,
`plan.py` is the result, which runs, and `step_info.py` what it remembers for a profile.
"""
