"""Tapes: machine code makes of a template what its lines of Python make."""

import copy
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import templates
from hypothesis import given, settings
from hypothesis import strategies as st
from test_other_sizes import (  # noqa: F401
    CALLS,
    SIZES,
    STEPS,
    computed,
    forget,
    machine_code,
    results,
)

import adjit
from adjit.graph import other_sizes
from adjit.graph.node import spec_of
from adjit.graph.templates import first_made, inquire
from adjit.graph.view_cache import ViewPart
from adjit.schedule.planning.recipe import Source, Step
from adjit.shapes import Size
from adjit.unknown import through

NUMBERS = st.lists(st.integers(-9, 40), min_size=3, max_size=3)


def both(template, numbers):
    """What a template gives as Python, and by its tape."""
    found = first_made([template], numbers)
    return template.function(numbers), None if found is None else found[0]


TAPED = {"+", "-", "*", "//", "%", "<", "<=", ">", ">=", "==", "!=", "max", "min", "divmod"}


@settings(max_examples=300, deadline=None)
@given(
    STEPS.map(lambda steps: [step for step in steps if step[0] in TAPED]),
    NUMBERS,
    NUMBERS,
    st.lists(NUMBERS, max_size=4),
)
def test_tapes_compute_as_python(steps, first, second, others):
    def make(numbers):
        return computed(steps, list(numbers))

    template = inquire(tuple(first), tuple(second), make)
    if template is None:  # for these numbers alone
        return
    assert template.tape is not None
    for numbers in (second, *others):
        python, tape = both(template, tuple(numbers))
        assert tape == python
        if python is not None:
            assert [*map(type, tape)] == [*map(type, python)]


def arithmetic(numbers):
    """What sizes go through."""
    a, b, c = numbers
    found = [a + b, a - b, a * b - c, -a, -(-a // 7), (a - 40) // 5, (c - 40) % 9]
    if b > 0:
        found += [a // b, a % b, a.bit_length()]
    return found if a < b or a >= c else [max(a, b)]


@pytest.mark.parametrize("large", [2**31, 2**40, 2**61, 2**62, 2**63 - 1, 2**63, 2**80])
def test_tapes_leave_what_is_no_word_to_python(large):
    template = inquire((3, 5, 7), (4, 6, 8), arithmetic)
    for numbers in (
        (large, 5, 7),
        (4, large, 8),
        (large, large, 9),
        (-large, 6, 8),
        (4, -large, 8),
    ):
        python, tape = both(template, numbers)
        assert tape == python


def test_tapes_make_objects_of_every_kind():
    like = Step(Source("f", ""), 4, 2)

    def make(numbers):
        n, m = next(numbers), next(numbers)
        spec = spec_of(Size((n, m)), (m, 1), adjit.float32)
        step = Step(like.source, n * m, 2)
        part = ViewPart(spec, n + m)
        return [
            (n, "a", None),
            {"shape": spec.shape},
            part,
            step,
            [spec, spec],
            slice(0, n, 1),
            Size((m,)),
        ]

    template = inquire((3, 5), (4, 7), make)
    assert template.tape is not None
    for numbers in ((4, 7), (8, 9), (12, 1), (5, 5)):
        python, tape = both(template, numbers)
        assert templates.told(python) == templates.told(tape)
        if tape is None:
            continue
        assert tape[0].__class__ is tuple
        assert tape[2].__class__ is ViewPart
        assert tape[-1].__class__ is Size
        assert tape[4][0] is tape[4][1] is tape[2].spec is python[2].spec
        assert hash(tape[-1]) == hash(python[-1])
        assert hash(tape[2]) == hash(python[2])
        assert (tape[3].n, tape[3].grain, tape[3].source) == (
            numbers[0] * numbers[1],
            2,
            like.source,
        )
        copy.copy(tape[3])
        gc.collect()


def test_functions_of_numbers_are_called():
    def doubled(n):
        if n > 100:
            raise OverflowError("too many")
        return 2 * n

    def make(numbers):
        return (through(doubled, next(numbers)),)

    template = inquire((3,), (4,), make)
    assert template.tape is not None
    assert both(template, (9,)) == ((18,), (18,))
    with pytest.raises(OverflowError, match="too many"):
        first_made([template], (101,))


def test_no_line_of_a_template_is_beyond_tapes(monkeypatch):
    """All that calls of these ops leave behind has one."""
    seen = []

    def watched(*args):
        made = inquire(*args)
        if made is not None:
            seen.append(made)
        return made

    monkeypatch.setattr(other_sizes, "inquire", watched)
    for name, call in CALLS.items():
        forget()
        with templates.checked():
            for n in SIZES:
                results(call, n)
        assert seen, name
        assert all(template.tape is not None for template in seen), name


def test_threads_may_make_templates_at_once():
    """Python 3.11 counts the depth of the trees of all threads in one place, and raises a SystemError."""

    def make(numbers):
        a, b = next(numbers), next(numbers)
        return [(a * k + b, [a - k * b, (b + k,)]) for k in range(2, 40)]

    with ThreadPoolExecutor(4) as threads:
        made = [threads.submit(inquire, (3 + k, 5), (4 + k, 6), make) for k in range(200)]
        assert all(one.result().tape is not None for one in made)
