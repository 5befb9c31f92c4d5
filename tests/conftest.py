"""How the suite is run: on another device, and all of it or a part.

ADJIT_TEST_DEVICE=cuda, or stub for a GPU that is not there: the files named here say nothing of devices, so
they run as they are: what they make is on the default device, and what they look at with NumPy comes to the
CPU first. With `simulated` the kernels for GPUs run, in the simulator: slowly, but what nothing was written to
is NaN there, and an access outside of an array an error.

ADJIT_TEST_TURN=7: of tests with many cases, which say `in_turn(n)`, one case of n is run, the seventh's turn.
Every kernel is compiled where the suite runs first, which takes most of its time; commits take turns. Without
it all cases are run.

ADJIT_TEST_SIZES=1 makes templates as soon as sizes differ, and looks at what they make (`templates.py`).

ADJIT_TEST_GUARD=1 looks at what is written beside blocks of memory (`guarded_memory.py`).
"""

import contextlib
import gc
import os
import zlib
from collections import defaultdict

import guarded_memory  # before the library
import pytest
import templates

import adjit
from adjit import overrides
from adjit.schedule import plan_cache

DEVICE = os.environ.get("ADJIT_TEST_DEVICE", "cpu")
TURN = os.environ.get("ADJIT_TEST_TURN", "")
ON_EVERY_DEVICE = {
    "test_attention", "test_batch_norm", "test_conv", "test_distribution_transforms",
    "test_distributions", "test_elementwise_laws", "test_index", "test_inplace", "test_linalg",
    "test_losses", "test_matmul", "test_nn_layers", "test_optim", "test_pool", "test_reduce",
    "test_resample", "test_sampling",
    "test_scan_sort", "test_shape_ops",
}  # fmt: skip


if os.environ.get("ADJIT_TEST_SIZES"):
    templates.look_at_all()


def is_of_a_gpu(item):
    return item.get_closest_marker("gpu") is not None


def pytest_report_header():
    share = f"the share of turn {TURN}: without ADJIT_TEST_TURN all are run" if TURN else "all"
    return f"of tests with many cases: {share}"


def pytest_collection_modifyitems(config, items):
    chosen = [item for item in items if is_for(DEVICE, item)]
    if TURN:
        chosen = those_whose_turn_it_is(chosen, int(TURN))
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run tests that are marked so twice before the run that counts for the others."""
    if pyfuncitem.get_closest_marker("several_times"):
        given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        for _ in range(2):
            pyfuncitem.obj(**given)


def is_for(device, item):
    if device == "cpu" or is_of_a_gpu(item):
        return True
    is_named = item.module.__name__ in ON_EVERY_DEVICE
    return is_named and not item.get_closest_marker("cpu")


def those_whose_turn_it_is(items, turn):
    """Of the cases of a test every n-th, from one on that its name decides, so that tests of one long case do
    not all come at once; others as they are."""
    seen, chosen = defaultdict(int), []
    for item in items:
        marker = item.get_closest_marker("in_turn")
        if marker:
            place = seen[item.path, item.originalname] + zlib.crc32(item.originalname.encode())
            seen[item.path, item.originalname] += 1
            if (place + turn) % marker.args[0]:
                continue
        chosen.append(item)
    return chosen


def pytest_collection_finish():
    overrides._unwrap_functions()  # wrapped by the classes of tensors that test files define


@pytest.fixture(scope="module", autouse=True)
def what_is_there_is_old():
    """What earlier files have left, millions of objects, would take the collector a second each time; and where
    there are many plans, structures have to come more often until they get one."""
    plan_cache.wait()
    plan_cache.clear()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nobody_is_asked_afterwards():
    """A class of tensors that a test defines has functions ask from then on."""
    yield
    overrides._unwrap_functions()


@pytest.fixture(autouse=True)
def threads_are_as_before():
    """The tests of a process share its threads."""
    before = adjit.get_num_threads()
    yield
    left = adjit.get_num_threads()
    adjit.set_num_threads(before)
    assert left == before


@pytest.fixture(autouse=guarded_memory.IS_ON)
def nobody_writes_beside_a_block():
    """What is freed by the end of a test, or during the next one."""
    yield
    found, guarded_memory.broken[:] = guarded_memory.broken[:], []
    assert not found


@pytest.fixture(autouse=True)
def device(request):
    """Where the test makes its tensors."""
    if DEVICE == "cpu" or is_of_a_gpu(request.node):
        yield
        return
    on_host, shared = adjit.Tensor.numpy, adjit.from_numpy
    if DEVICE in ("stub", "simulated"):
        import stub_driver

        driver = stub_driver.installed(simulated=DEVICE == "simulated")
    else:
        driver = contextlib.nullcontext()
    with pytest.MonkeyPatch.context() as patch, driver, adjit.device("cuda"):
        patch.setattr(adjit.Tensor, "numpy", lambda t, **more: on_host(t.cpu(), **more))
        patch.setattr(adjit, "from_numpy", lambda array: shared(array).cuda())
        yield
