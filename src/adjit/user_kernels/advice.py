"""What to write instead of what cannot be read: kinds of statements and expressions, functions, methods."""

from __future__ import annotations

_RESULTS = "return it, or write it into an array that is an argument"
_FILL = "make an array before, y = np.empty(n), and fill it in a loop"
_OUTSIDE = "define it with `def` outside of this function, and call it"

# By the names of classes of `ast`.
OF_NODES = {
    "Try": "test by `if` what may go wrong, in place of catching it",
    "TryStar": "test by `if` what may go wrong, in place of catching it",
    "With": "open and close outside of the function, and pass arrays",
    "Global": f"{_RESULTS}, in place of changing a global",
    "Nonlocal": f"{_RESULTS}, in place of changing a variable of the function around",
    "FunctionDef": _OUTSIDE, "AsyncFunctionDef": _OUTSIDE, "ClassDef": "use numbers, tuples and arrays",
    "Lambda": _OUTSIDE,
    "Import": "import it at the beginning of the file", "ImportFrom": "import it at the beginning of the file",
    "Match": "write if, elif, else", "Delete": "leave it out",
    "ListComp": _FILL, "GeneratorExp": "write the loop, and add up in it", "SetComp": _FILL, "DictComp": _FILL,
    "List": "use a tuple, np.array([...]), or an array that is filled: y = np.empty(n)",
    "Dict": "use variables, or an array and whole numbers for its keys", "Set": "use an array of truth values",
    "JoinedStr": "leave texts out, apart from those of errors", "Yield": "fill an array and return it",
    "YieldFrom": "fill an array and return it", "Await": "wait outside of the function",
    "Starred": "write the items out",
}  # fmt: skip

_LINALG = "use np.linalg.solve, inv, det, slogdet or cholesky, or do this step on tensors, by adjit.linalg"
_DRAW = "draw outside of the function and pass the numbers as an argument"
_INDEX = "compute the index, x[i * columns + j], or give the function the array in that shape"
_ORDER = "call np.sort, or np.argsort for the places: x[np.argsort(x)]"

# By the names of functions and methods, without their module.
OF_FUNCTIONS = {
    "sort": _ORDER, "argsort": _ORDER, "partition": _ORDER, "argpartition": _ORDER, "sorted": _ORDER,
    "reshape": _INDEX, "ravel": _INDEX, "resize": _INDEX,
    "solve": _LINALG, "qr": _LINALG,
    "svd": _LINALG, "eigh": _LINALG, "eig": _LINALG, "lstsq": _LINALG, "pinv": _LINALG, "eigvalsh": _LINALG,
    "rand": _DRAW, "randn": _DRAW, "random": _DRAW, "normal": _DRAW, "uniform": _DRAW, "randint": _DRAW,
    "standard_normal": _DRAW, "choice": _DRAW, "seed": _DRAW,
    "print": "return what is to be seen, or run the generated file with NUMBA_DISABLE_JIT=1",
    "isinstance": "leave the test out: the function is read for one kind of arguments",
    "complex": "compute with the real and the imaginary part", "dict": OF_NODES["Dict"],
    "list": OF_NODES["List"], "set": OF_NODES["Set"],
    "map": "write the loop", "filter": "write the loop with an if",
    "open": OF_NODES["With"], "str": OF_NODES["JoinedStr"], "getattr": "write the attribute",
    "gamma": "write math.exp(math.lgamma(x)), for x > 0",
    "remainder": "write x % y",
    "ldexp": "write x * 2.0**n",
    "einsum": "write the loops over the indices",
    "nonzero": "write a loop with an if", "where": "call it with three arguments, or write a loop with an if",
    "argwhere": "write a loop with an if",
    "append": _FILL, "tile": _FILL, "meshgrid": "write two loops, over one vector each",
    "fft": "do this step outside, on tensors, by adjit.fft",
    "partial": "write a function that calls it with the argument",
    "add.at": "write the loop: y[k[i]] += v[i]",
    "fsum": "write np.sum of an array",
    "prod": "write the product, or np.prod of an array",
}  # fmt: skip
