"""Which recorded nodes become one kernel.

`groups.py` joins elementwise nodes and the reductions that they feed, `row_groups.py` those that go row by
row, `loops.py` finds groups that are alike, and the epilogues are what products and convolutions do to results.
"""
