"""How numbers are given to what changes shapes: one by one, in a list, by name, as NumPy's, as tensors.

The function and the method of a name are not alike in this. Both give what PyTorch gives, or its errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjit

# Arguments as text: `S` makes a size, `I` a NumPy integer, `N` a 0-d tensor.
SHAPES = (
    "24|(24,)|[4, 6]|4, 6|4, -1|(4, -1)|-1, -1|-2, 3|5, 5|()||S(4, 6)|I(4), 6|(N(4), 6)|4.0, 6|None"
)
GIVEN = {
    "permute": "(1, 0, 2)|1, 0, 2|[1, 0, 2]|S(1, 0, 2)|I(1), 0, 2|(N(1), 0, 2)|-1, 0, 1|(0, 0, 1)"
    "|0, 0, 1|(0, 1)"
    "|0, 1|(0, 1, 3)||1.0, 0, 2|(1.0, 0, 2)|None|'a'|dims=(1, 0, 2)|(1, 0), 2",
    "flip": "0|(0,)|[0, 1]|0, 1|(0, 0)|-1|(3,)|3||()|dims=(0,)|I(0)|(I(0),)|(N(0),)|1.0|None|(0, 1), 2",
    "reshape": SHAPES + "|shape=(4, 6)",
    "view": SHAPES + "|size=(4, 6)",
    "tile": "2|(2,)|2, 1, 1|(2, 1, 1)|[2, 2, 1, 1]||()|dims=(2,)|-1|(0,)|I(2)|(N(2),)|2.0|None|(2,), 1",
    "repeat": "2, 1, 1|(2, 1, 1)|[2, 2, 1, 1]|2||repeats=(1, 1, 2)|-1, 1, 1|0, 1, 1|I(2), 1, 1"
    "|(N(2), 1, 1)|None",
    "expand": "2, 3, 4|(2, 3, 4)|5, 2, 3, 4|-1, 3, 4|3|2, 3, 5||()|size=(2, 3, 4)|I(2), 3, 4"
    "|(N(2), 3, 4)|-2, 3, 4",
    "broadcast_to": "(2, 3, 4)|2, 3, 4|[5, 2, 3, 4]|size=(2, 3, 4)|(2, 3)|(-1, 3, 4)",
    "transpose": "0, 1|0||0, 3|-1, 0|dim0=0, dim1=1|I(0), 1|N(0), 1|0.0, 1|0, 1, 2",
    "swapaxes": "0, 1|axis0=0, axis1=1|dim0=0, dim1=1|0|0, 5",
    "swapdims": "0, 1|dim0=0, dim1=1|axis0=0, axis1=1",
    "roll": "1|(1,)|1, 0|(1, 2), (0, 1)|1, (0, 1)|shifts=1, dims=0|I(1), 0|N(1), 0|1, 3|(1, 2, 3)"
    "|(1, 1), (0, 0)|()",
    "movedim": "0, 1|(0, 1), (1, 0)|source=0, destination=1|0|(0, 0), (1, 2)|(0, 1), (2, 2)|0, 3|I(0), 1"
    "|N(0), 1"
    "|0.0, 1",
    "unsqueeze": "0|-1|-4|3|4|(0,)|0, 1|dim=0||I(0)|1.0|None|N(0)",
    "squeeze": "|0|-1|(0, 1)|[0]|3|dim=(0, 1)|I(0)|1.0|(0, 0)|()",
    "flatten": "|1|0, 1|start_dim=1|1, 0|0, 3|None|1.0|I(0)",
    "unfold": "0, 2, 1|2, 2, 2|0, 3, 1|0, 2, 0|0, -1, 1|0, 2|0, 2.0, 1",
    "narrow": "0, 0, 1|0, 1, 1|0, 2, 1|0, -1, 1|0, 0, -1|0, 0, 3|0, N(0), 1|0, 0.0, 1|3, 0, 1",
    "select": "0, 0|0, -1|0, 2|3, 0|0, 0.0|0, N(0)|0, I(0)",
    "rot90": "|1|1, (0, 1)|1, [0, 1]|1, 0, 1|k=1, dims=(0, 2)|1, (0, 0)|1, (0,)|1, (0, 3)|1.0|-1, (0, 1)",
    "chunk": "2|2, 0|2, 2|0|-1|chunks=2, dim=1|2, 3|2.0|I(2)",
    "split": "1|2, 2|[1, 1]|[1, 2]|-1|0|1, 3|[-1, 3], 0|1.0",
    "as_strided": "(2, 2), (1, 2)|[2, 2], [1, 2], 1|(2,), (1, 2)|(100,), (1,)|(2,), (-1,)|(-1,), (1,)",
    "count_nonzero": "0|(0, 1)|dim=0",
    "tril": "|1|diagonal=1|1.0",
    "topk": "1|1, 0|1, dim=0|5|-1|1.0|k=1",
    "index_select": "0, [0]|3, L.tensor([0])",
    "gather": "0, 0",
}  # fmt: skip
MADE = {
    "zeros": "2, 3|(2, 3)|[2, 3]|2||()|size=(2, 3)|-1|2.0|(2.0,)|I(2)|(I(2), 3)|N(2)|(N(2),)|None|S(2)"
    "|(2,), 3",
    "ones": "2, 3|(2, 3)|size=(2,)||N(2)",
    "full": "(2,), 1|2, 1|[2], 1|size=(2,), fill_value=1|(2,)",
    "eye": "2|2, 3|n=2, m=3|-1|2.0|(2,)",
}
CASES = [("x.", name, text) for name, texts in GIVEN.items() for text in texts.split("|")]
CASES += [
    ("L.", name, f"x, {text}" if text else "x")
    for name, texts in GIVEN.items()
    if name not in ("view", "repeat", "expand", "unfold")
    for text in texts.split("|")
]
CASES += [("L.", name, text) for name, texts in MADE.items() for text in texts.split("|")]
AS_ONE_LIST = "must be tuple of ints, not"


def outcome(library: Any, prefix: str, name: str, text: str) -> Any:
    """The results of a call, or the kind of error and its text."""
    names = {
        "L": library, "x": library.arange(24.0).reshape(2, 3, 4), "I": np.int64, "N": library.tensor,
        "S": lambda *sizes: library.Size(sizes),
    }  # fmt: skip
    try:
        made = eval(f"{prefix}{name}({text})", names)
    except Exception as error:
        return type(error), str(error).split("\n")[0]
    return [(list(t.shape), t.tolist()) for t in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize(
    ("prefix", "name", "text"), CASES, ids=[f"{p}{n}({t})" for p, n, t in CASES]
)
def test_numbers_are_taken_as_by_pytorch(prefix: str, name: str, text: str) -> None:
    theirs = outcome(pytest.importorskip("torch"), prefix, name, text)
    ours = outcome(adjit, prefix, name, text)
    if isinstance(theirs, tuple) and isinstance(ours, tuple):
        assert ours[0] is theirs[0]
        if prefix == "L." and name in ("flip", "permute", "reshape", "tile"):
            assert (AS_ONE_LIST in ours[1]) == (AS_ONE_LIST in theirs[1])
    else:
        assert ours == theirs
