"""Loops in a sequence: their repetitions are told apart, and nothing else is cut."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from adjit.schedule.fusion.loops import LEAST, LOOK, repetitions

sizes, periods = st.integers(1, 12), st.integers(1, 15)


@st.composite
def sequences(draw):
    """Few different values, in pieces that come several times in a row."""
    pieces = st.tuples(st.lists(st.integers(0, 3), max_size=9), st.integers(1, 5))
    return [x for piece, times in draw(st.lists(pieces, max_size=5)) for x in piece * times]


class Watched(list):
    """A list that counts how many of its elements are read."""

    read = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        self.read += len(found) if isinstance(index, slice) else 1
        return found


@given(sizes, st.integers(0, 40))
def test_what_never_repeats_is_one_stretch(size, count):
    assert repetitions(range(count), size) == [0] * count


@given(sizes, periods, st.integers(0, 2), st.integers(1, 9), st.integers(0, 2))
def test_a_loop_is_cut_between_repetitions(size, period, before, times, after):
    body = range(period)
    first = before * period
    sequence = [~x for x in body] * before + [*body] * times + [100 + x for x in body] * after
    cuts = set()
    if times >= LEAST and (times - 1) * period >= LOOK:
        end = first + times * period
        cuts = {end, *range(first, end, max(size // period, 1) * period)}
    expected = [sum(0 < cut <= at for cut in cuts) for at in range(len(sequence))]
    assert repetitions(sequence, size) == expected


@given(sizes, periods, st.integers(1, 4))
def test_of_loops_in_loops_the_inner_ones_are_cut(size, period, times):
    body = [*range(period)] * max(LEAST, 1 + -(-LOOK // period)) + [-1]
    once = repetitions([-1, *body], size)
    expected = [number + k * once[-1] for k in range(times) for number in once[1:]]
    assert repetitions([-1, *body * times], size) == [0, *expected]


@given(sizes, sequences())
def test_numbers_cover_every_place_and_count_up(size, sequence):
    numbers = repetitions(sequence, size)
    assert len(numbers) == len(sequence)
    assert numbers[:1] in ([], [0])
    assert {after - before for before, after in pairwise(numbers)} <= {0, 1}


@given(sizes, sequences())
def test_only_which_places_are_equal_counts(size, sequence):
    assert repetitions([-7 * x for x in sequence], size) == repetitions(sequence, size)


@given(st.integers(1, 300), st.integers(1, 8), st.integers(0, 300))
def test_the_work_is_linear(period, times, rest):
    sequence = Watched([*range(period)] * times + [*range(rest)])
    repetitions(sequence, 64)
    assert sequence.read <= 2 * (LOOK + 2) * len(sequence)
