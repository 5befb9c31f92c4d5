"""Sobol points: those of PyTorch where they are not scrambled, and how evenly they lie where they are."""

import copy
import warnings

import numpy as np
import pytest
from scipy.stats import qmc

import adjit

SobolEngine = adjit.quasirandom.SobolEngine


@pytest.mark.parametrize("dimension", [1, 2, 7, 300])
def test_points_are_those_of_pytorch(dimension):
    torch = pytest.importorskip("torch")
    ours, theirs = SobolEngine(dimension), torch.quasirandom.SobolEngine(dimension)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in (
            lambda e, m: e.draw(3), lambda e, m: e.draw(),
            lambda e, m: e.fast_forward(9).draw(5, dtype=m.float64),
            lambda e, m: e.reset().draw(), lambda e, m: e.draw(10), lambda e, m: e.reset().draw_base2(4),
            lambda e, m: e.reset().fast_forward(3).draw(2), lambda e, m: copy.deepcopy(e).draw(4),
        ):  # fmt: skip
            found, wanted = step(ours, adjit), step(theirs, torch)
            assert found.numpy().dtype == wanted.numpy().dtype
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())
            assert ours.num_generated == theirs.num_generated
    assert repr(ours) == repr(theirs)


def test_scrambled_points_cover_evenly_and_depend_on_the_seed():
    engine = SobolEngine(4, scramble=True, seed=3)
    points = engine.draw(256, dtype=adjit.float64).numpy()
    random = np.random.default_rng(0).random((256, 4))
    assert qmc.discrepancy(points) < qmc.discrepancy(random) / 10
    for axis in points.T:  # one in each 256th
        assert sorted(np.floor(axis * 256).astype(int)) == list(range(256))
    np.testing.assert_array_equal(
        points, SobolEngine(4, scramble=True, seed=3).draw(256, dtype=adjit.float64).numpy()
    )
    assert (points != SobolEngine(4, scramble=True, seed=4).draw(256).numpy()).mean() > 0.9
    assert repr(engine) == "SobolEngine(dimension=4, scramble=True, seed=3)"


def test_without_a_seed_the_library_decides():
    def drawn():
        return SobolEngine(2, scramble=True).draw(8)

    adjit.manual_seed(5)
    first, second = drawn(), drawn()
    adjit.manual_seed(5)
    assert drawn().equal(first)
    assert not first.equal(second)


def test_points_go_into_a_tensor():
    out = adjit.empty(0)
    assert SobolEngine(2).draw(4, out=out) is out
    assert out.tolist() == [[0, 0], [0.5, 0.5], [0.75, 0.25], [0.25, 0.75]]


def test_what_is_refused():
    for dimension in (0, 21202):
        with pytest.raises(ValueError, match=r"SobolEngine is \[1, 21201\]"):
            SobolEngine(dimension)
    engine = SobolEngine(1)
    engine.draw(3)
    with pytest.raises(ValueError, match=r"n=3\+2\*\*1=5\. If you still want"):
        engine.draw_base2(1)
