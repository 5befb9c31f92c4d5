"""Machine code gives back every reference that it takes, on every path; `reference_counts.py` tells how
that is seen.

`ADJIT_EVERY_MUTANT=1` spoils every `own` and `drop` of the machine code in turn, not only a part of them.
"""

import ast
import copy
import os
import textwrap

import pytest
import reference_counts
from reference_counts import Checker, Program

from adjit.schedule.jit import kernel_files

EVERY = 1 if os.environ.get("ADJIT_EVERY_MUTANT") else 8


@pytest.fixture(scope="module")
def program():
    return reference_counts.program()


@pytest.fixture(scope="module")
def checker(program):
    """What has run all machine code."""
    made = Checker(program)
    made.check(program.entries)
    return made


@pytest.mark.timeout(600)
def test_counts_are_balanced_on_every_path(checker):
    assert sorted(checker.found) == []


def test_every_function_runs(program, checker):
    """None is passed over because nobody seems to call it."""
    ran = {key for key, _ in checker.calls} | set(program.entries)
    short = {key for key, each in program.functions.items() if reference_counts.is_short(each.node)}
    assert set(program.functions) - ran - short == {
        key
        for key in program.functions
        if key[1] in reference_counts.TRUSTED or key[0] == "sorting"
    }


def test_the_effect_of_every_c_function_is_known(program):
    assert set(program.imported.values()) == set(reference_counts.EFFECTS)


def test_what_is_trusted_is_there(program):
    names = {name for _, name in program.functions}
    assert reference_counts.TRUSTED.keys() <= names
    assert names >= reference_counts.OPEN
    assert reference_counts.TAKEN.keys() <= program.functions.keys()
    assert program.functions.keys() >= reference_counts.RAW


# ----- what it sees -----

HEAD = """
from ..language.abi import helper, stack_words
from .cpython import append, drop, exchange, fill, find, get, item, length
from .cpython import new_pair, new_result, new_single, new_tuple, new_word, own, put

def entry(function, arguments, count, names):
    context, given = get(function, CONTEXT), get(arguments, 0)
"""

WELL = {
    "a result": "return own(item(context, NONE))",
    "nothing": "return 0",
    "what a failure leaves": """
        a, b = new_word(1), new_word(2)
        if a == 0 or b == 0:
            drop(a)
            drop(b)
            return 0
        pair = new_tuple(2)
        if pair == 0:
            drop(a)
            drop(b)
            return 0
        fill(pair, 0, a)
        fill(pair, 1, b)
        return pair
    """,
    "a loop": """
        made = new_tuple(length(given))
        for k in range(length(given) if made != 0 else 0):
            number = new_word(k)
            if number == 0:
                drop(made)
                made = 0
                break
            fill(made, k, number)
        return made
    """,
    "the same question twice": """
        is_old = given == item(context, OLD)
        made = own(given) if is_old else new_word(1)
        if not is_old:
            drop(made)
        return made if is_old else own(given)
    """,
    "a slot": """
        before = get(given, SLOT)
        put(given, SLOT, own(context))
        drop(before)
        exchange(given, SLOT, own(context))
        return own(given)
    """,
}

LOST, GIVEN = "a reference is lost", "a reference is dropped, or given away, that is not ours"
WRONG = {
    "returns what others hold": ("return item(context, NONE)", "returns a borrowed reference"),
    "returns two": ("return own(own(given))", "returns one reference of several"),
    "forgets a result": ("""
        new_word(1)
        return own(given)
    """, LOST),
    "forgets it on one path": ("""
        number = new_word(1)
        if length(given) == 2:
            return own(given)
        return number
    """, LOST),
    "forgets it in a loop": ("""
        for k in range(length(given)):
            number = new_word(k)
        return own(given)
    """, LOST),
    "writes over a slot": ("""
        put(given, SLOT, own(context))
        return own(given)
    """, LOST),
    "leaves a failure": ("""
        number = new_word(1)
        pair = new_tuple(1) if number != 0 else 0
        if pair == 0:
            return 0
        fill(pair, 0, number)
        return pair
    """, LOST),
    "drops what others hold": ("""
        drop(find(context, given))
        return own(given)
    """, GIVEN),
    "drops twice": ("""
        number = new_word(1)
        drop(number)
        drop(number)
        return own(given)
    """, "used after it was dropped"),
    "gives away twice": ("""
        number = new_word(1)
        return new_pair(number, number)
    """, GIVEN),
    "fills with what others hold": ("""
        pair = new_tuple(1)
        if pair != 0:
            fill(pair, 0, given)
        return pair
    """, GIVEN),
    "uses what is gone": ("""
        number = new_word(1)
        drop(number)
        append(given, number)
        return own(given)
    """, "used after it was dropped"),
    "uses a part of what is gone": ("""
        single = new_single(new_word(1))
        if single == 0:
            return 0
        number = item(single, 0)
        drop(single)
        return own(number)
    """, "used after it was dropped"),
    "calls with what is gone": ("""
        number, words = new_word(1), stack_words(1)
        put(words, 0, number)
        drop(number)
        return new_result(given, words, 1, 0)
    """, "used after it was dropped"),
    "drops what a slot still holds": ("""
        drop(get(given, SLOT))
        put(given, SLOT, own(context))
        return own(given)
    """, "dropped before a slot is written over, or though it is not ours"),
    "counts more in a loop": ("""
        for k in range(length(given)):
            own(context)
        return own(given)
    """, "a count that a loop changes"),
    "takes no item off": ("""
        put(given, LENGTH, 0)
        return own(given)
    """, "a list is cut, and its last item not taken"),
}  # fmt: skip


def found_in(body):
    text = HEAD + textwrap.indent(textwrap.dedent(body), "    ")
    texts = {"cpython": kernel_files.text_of("fastpath.cpython"), "made_up": text}
    return {each.problem for each in Checker(Program(texts)).check([("made_up", "entry")])}


@pytest.mark.parametrize("body", WELL.values(), ids=WELL)
def test_what_is_well(body):
    assert found_in(body) == set()


@pytest.mark.parametrize(("body", "problem"), WRONG.values(), ids=WRONG)
def test_what_is_wrong(body, problem):
    assert problem in found_in(body)


# ----- what it sees when the machine code is spoiled -----


def counted(node):
    """The calls of `own` and `drop` in a function."""
    return [
        each for each in ast.walk(node)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in {"own", "drop"}
    ]  # fmt: skip


def spoiled(node):
    """A function with one of its `own` and `drop` left out, and with one done twice: all that there are."""
    for place in range(len(counted(node))):
        for times in (0, 2):
            made = copy.deepcopy(node)
            call = counted(made)[place]
            if times == 2 and makes_something(call.args[0]):
                continue  # twice of all that, which is well
            again = ast.Call(call.func, call.args, [])
            call.func = ast.Name("int", ast.Load())  # which is what it is given
            if times == 2:
                both = ast.Tuple([again, copy.deepcopy(again)], ast.Load())
                call.args = [ast.Subscript(both, ast.Constant(0), ast.Load())]
            name = f"line {call.lineno}: {ast.unparse(again)} {times} times"
            yield name, ast.fix_missing_locations(made)


def makes_something(argument):
    """Whether an argument is the result of a call that gives references."""
    names = {each.id for each in ast.walk(argument) if isinstance(each, ast.Name)}
    return any(name.startswith("new_") or name == "called" for name in names)


@pytest.mark.in_turn(3)
@pytest.mark.timeout(1200)
def test_it_notices_when_one_own_or_drop_is_left_out_or_done_twice(program, checker):
    missed, number = [], 0
    for (module, name), function in program.functions.items():
        if name not in reference_counts.TRUSTED:
            for what, node in spoiled(function.node):
                if number % EVERY == 0 and not checker.is_noticed(module, node):
                    missed.append((module, name, what))
                number += 1
    assert number > 800
    assert missed == []
