"""Scalar functions that vectorise.

`vector.py` has those of floats, with the constants beside it, `special.py` those that are longer, `integer.py`
those of whole numbers, and `double_word.py` sums and products of twice the precision.
"""
