"""What an elementwise function's text may have and what it may not; the style is that of users."""

# ruff: noqa
# fmt: off

import math

import numpy as np

COEFFICIENTS = (0.3, -1.2, 0.5, 0.1)


def horner(x, y):
    s = 0.0
    for c in reversed(COEFFICIENTS):
        s = s * x + c
    return s * y


def odd_terms(x, y):
    s = 0.0
    for k, (c, sign) in enumerate(zip(COEFFICIENTS, (1.0, -1.0, 1.0, -1.0))):
        if k == 1:
            continue
        s += sign * c * math.sin(k * x)
        if s > y:
            break
    return s


def early(x, y):
    for limit in (0.1, 0.5, 1.0):
        if x < limit:
            return limit * y * x
    return x * y * y


def values(x, y):
    a = x or y
    b = x and y
    c = (x > 0.2 or y) * 1.0
    return a * b + c * x


def named(x, y):
    if (s := x * y) > 0.05 and (x < 3.0) is not None:
        return s * s
    return s


def chained(x, y):
    return x * y if -1.0 < x < y <= 9.0 else y - x


def parts(x, y):
    a, b = divmod(x + 3.0 * y, 0.7)
    return b * x + a


def several(x, y):
    return pow(x, 3) + math.log(x + 2.0, 3.0) + np.logaddexp(x, y) + math.degrees(x) + np.exp2(y) + np.reciprocal(y + 1.0)


def tuples(x, y):
    p = (x, y) + (x * y,)
    return sum(p) * max(p) - min(p)


def members(x, y):
    n = int(y * 10.0)
    return x * x if n in (1, 2, 7, 9) else x * y


def tries(x):
    try:
        return 1.0 / x
    except ZeroDivisionError:
        return 0.0


def withs(x):
    with open("a"):
        return x


def lambdas(x):
    f = lambda v: v * v
    return f(x)


def comprehends(x):
    return sum([x * k for k in range(3)])


def matches(x):
    match 2:
        case 2:
            return x


def writes_global(x):
    global COEFFICIENTS
    return x


def defines(x):
    def f(v):
        return v
    return f(x)


def imports(x):
    import math
    return x


def prints(x):
    print(x)
    return x


def raises(x):
    if x < 0.0:
        raise ValueError("negative")
    return x


def asserts(x):
    assert x > 0.0
    return x


def arrays(x):
    y = np.zeros(3)
    y[0] = x
    return y[0]


def texts(x):
    s = "a"
    return x * len(s)


def draws(x):
    return x * np.random.rand()


def looks_up(x):
    s = 0.0
    for k in range(3):
        s += COEFFICIENTS[k] * x
    return s


def recursive(x):
    return x if x < 1.0 else recursive(x * 0.5)


def gammas(x):
    return math.gamma(x)


RIGHT = [horner, odd_terms, early, values, named, chained, parts, several, tuples, members]
REFUSED = [
    (tries, "Try", "Test by `if`"), (withs, "With", "outside of the function"), (lambdas, "Lambda", "with `def` outside"),
    (comprehends, "ListComp", "in a loop"), (matches, "Match", "if, elif, else"), (writes_global, "Global", "Return it"),
    (defines, "FunctionDef", "with `def` outside"), (imports, "Import", "at the beginning of the file"),
    (prints, "`print`", "Return what"), (raises, "raising an error", "math.nan"), (asserts, "an assertion", "math.nan"),
    (arrays, "an array", "adjit.kernel"), (texts, "the length of this", ""), (draws, "np.rand", "Draw outside"),
    (looks_up, "may raise", "for c in"), (recursive, "calls itself", "as a loop"), (gammas, "math.gamma", "lgamma"),
]
