"""Private rooms of PyTorch that programs use: trees of containers, flat tensors, switches, annotations."""

from __future__ import annotations

import importlib
import sys
import time
from collections import OrderedDict, defaultdict, deque, namedtuple

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")
from against_torch import plain  # noqa: E402

Point = namedtuple("Point", "x y")
TREES = [
    1, None, [1, (2, 3)], {"b": 1, "a": [2]}, (), [], [[], {}], Point(1, [2, Point(3, 4)]),
    OrderedDict(z=1, a=(2,)),
    deque([1, 2], maxlen=3), defaultdict(list, {"k": [1]}), "text", {1, 2}, [None, 1],
]  # fmt: skip


def rooms():
    return [importlib.import_module(f"{name}.utils._pytree") for name in ("torch", "adjit")]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_trees_are_taken_apart_as_by_pytorch(tree):
    theirs, ours = rooms()
    leaves, spec = ours.tree_flatten(tree)
    wanted, other = theirs.tree_flatten(tree)
    assert leaves == wanted
    assert spec.num_leaves == other.num_leaves == len(leaves)
    made = ours.tree_unflatten(leaves, spec)
    assert made == tree
    assert type(made) is type(tree)
    assert ours.tree_map(lambda x: (x,), tree) == theirs.tree_map(lambda x: (x,), tree)
    assert spec == ours.tree_structure(tree)
    assert getattr(made, "maxlen", None) == getattr(tree, "maxlen", None)


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_leaves_have_the_places_that_pytorch_names(tree):
    theirs, ours = rooms()
    found, spec = ours.tree_flatten_with_path(tree)
    wanted, _ = theirs.tree_flatten_with_path(tree)
    assert [(ours.keystr(path), leaf) for path, leaf in found] == [
        (theirs.keystr(path), leaf) for path, leaf in wanted
    ]
    assert [repr(path) for path, _ in found] == [repr(path) for path, _ in wanted]
    assert spec == ours.tree_structure(tree)
    assert ours.tree_leaves_with_path(tree) == found
    assert all(ours.key_get(tree, path) is leaf for path, leaf in found)
    doubled = ours.tree_map_with_path(lambda path, *xs: (len(path), xs), tree, tree)
    assert doubled == theirs.tree_map_with_path(lambda path, *xs: (len(path), xs), tree, tree)


def test_a_shape_is_a_tuple():
    """With PyTorch its class is lost, too."""
    for library, room in zip((torch, adjit), rooms(), strict=True):
        tree = {"shape": library.ones(2, 3).shape, "none": library.Size([])}
        leaves, spec = room.tree_flatten(tree)
        assert leaves == [2, 3]
        made = room.tree_map(lambda n: n + 1, tree)
        assert made == {"shape": (3, 4), "none": ()}
        assert type(made["shape"]) is tuple
        assert [room.keystr(path) for path, _ in room.tree_leaves_with_path(tree)] == [
            "['shape'][0]", "['shape'][1]",
        ]  # fmt: skip
        assert spec != room.tree_structure({"shape": (2, 3), "none": ()})


def test_a_class_like_dict_has_places_by_the_functions_of_dict():
    class Output(OrderedDict):
        pass

    for room in rooms():
        room.register_pytree_node(
            Output, lambda d: (list(d.values()), list(d)),
            lambda values, keys: Output(zip(keys, values, strict=True)),
            serialized_type_name="tests.Output", flatten_with_keys_fn=room._dict_flatten_with_keys,
        )  # fmt: skip
        [(path, leaf)] = room.tree_leaves_with_path(Output(a=Output(b=3)))
        assert (room.keystr(path), leaf) == ("['a']['b']", 3)

        class Bare(list):
            pass

        room.register_pytree_node(Bare, lambda d: (list(d), None), lambda values, _: Bare(values))
        with pytest.raises(ValueError, match="Did not find a flatten_with_keys_fn for type"):
            room.tree_leaves_with_path(Bare([1]))


def test_several_trees_and_some_leaves():
    theirs, ours = rooms()
    a, b = {"x": [1, 2]}, {"x": [10, 20]}
    for room in (theirs, ours):
        assert room.tree_map(lambda p, q: p + q, a, b) == {"x": [11, 22]}
        assert room.tree_map_only(int, lambda x: -x, [1, "a", 2.0]) == [-1, "a", 2.0]
        assert room.tree_map_only((int, float), lambda x: -x, [1, "a", 2.0]) == [-1, "a", -2.0]
        assert room.tree_all(bool, [1, [2]])
        assert not room.tree_any(bool, [0, [0]])
        assert room.tree_map(len, [[1, 2], [3]], is_leaf=lambda x: x == [3] or x == [1, 2]) == [
            2,
            1,
        ]
        assert list(room.tree_leaves(a)) == [1, 2]
        seen = []
        assert room.tree_map_(seen.append, a) is a
        assert seen == [1, 2]
        with pytest.raises(ValueError, match=r"mismatch"):
            room.tree_map(lambda p, q: p, [1, (2,)], [1, [2]])
        with pytest.raises(
            ValueError, match="has length 1 but the spec refers to a pytree that holds 2"
        ):
            room.tree_unflatten([1], room.tree_structure([1, 2]))
        with pytest.raises(TypeError, match="Expected `treespec` to be an instance of PyTreeSpec"):
            room.tree_unflatten([1], [1])


def test_names_that_pytorch_lists():
    theirs, ours = rooms()
    missing = {name for name in theirs.__all__ if not hasattr(ours, name)}
    assert missing == {"treespec_dumps", "treespec_loads", "treespec_pprint"}
    for name in set(theirs.__all__) - missing - {"PyTreeSpec", "TreeSpec", "LeafSpec"}:
        wanted = getattr(theirs, name)
        assert wanted == getattr(ours, name) or callable(wanted), name
    assert ours.PyTreeSpec is ours.TreeSpec


@pytest.mark.parametrize(
    ("kind", "thing"),
    [
        ("list", [1, [2]]), ("tuple", (1, 2)), ("deque", deque([1], maxlen=2)), ("namedtuple", Point(1, 2)),
        ("dict", {"b": 1, "a": 2}), ("odict", OrderedDict(b=1, a=2)), ("ordereddict", OrderedDict(b=1, a=2)),
        ("defaultdict", defaultdict(list, {"k": [1]})),
    ],
)  # fmt: skip
def test_how_containers_are_taken_apart(kind, thing):
    found = []
    for room in rooms():
        values, context = getattr(room, f"_{kind}_flatten")(thing)
        made = getattr(room, f"_{kind}_unflatten")(values, context)
        assert made == thing
        assert type(made) is type(thing)
        found.append((values, context))
        if kind != "odict":
            pairs, context = getattr(room, f"_{kind}_flatten_with_keys")(thing)
            found[-1] += [(str(key), value) for key, value in pairs], context
    assert found[0] == found[1]


def test_old_names_register_too():
    for room in rooms():

        class Box:
            def __init__(self, x):
                self.x = x

        with pytest.warns(FutureWarning, match="_register_pytree_node` is deprecated. Please use"):
            room._register_pytree_node(Box, lambda b: ([b.x], None), lambda values, _: Box(*values))
        assert room.tree_map(lambda x: x + 1, Box([1])).x == [2]


class Derived(Point):
    pass


class Fields(tuple):
    _fields = ("x",)


THINGS = [
    1, None, (1, 2), [1], Point, Point(1, 2), Derived, Derived(1, 2), Fields, Fields((1,)), tuple, list,
    time.struct_time, time.gmtime(0), sys.version_info, type(sys.version_info), {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize("thing", THINGS, ids=repr)
def test_what_something_is(thing):
    for name in (
        "is_namedtuple", "is_namedtuple_class", "is_namedtuple_instance", "is_structseq",
        "is_structseq_class", "is_structseq_instance", "tree_is_leaf", "tree_leaves",
    ):  # fmt: skip
        theirs, ours = (getattr(room, name)(thing) for room in rooms())
        assert theirs == ours, name
    for room in rooms():
        assert room.tree_is_leaf(thing, lambda x: True)
        assert not room.tree_is_leaf([thing], lambda x: x is thing)


def test_leaves_of_a_kind():
    tree = {"x": [1, 2.0, "a"], "y": (3,)}
    for room in rooms():
        for kind in (int, (int, float), int | float, lambda x: isinstance(x, int)):
            seen = []
            assert room.tree_map_only_(kind, seen.append, tree) is tree
            assert len(seen) == (2 if kind is int or room.map_only(kind)(str)(2.0) == 2.0 else 3)
        assert room.tree_all_only(int, lambda x: x > 0, tree)
        assert not room.tree_all_only((int, float), lambda x: x > 1, tree)
        assert room.tree_any_only(float, lambda x: x == 2, tree)
        assert not room.tree_any_only(list, bool, tree)
        assert room.tree_any_only(list, bool, tree, is_leaf=lambda x: isinstance(x, list))
        for function in (room.tree_map_only, room.tree_map_only_):
            with pytest.raises(TypeError, match="Argument must be a type, a tuple of types, or a"):
                function([int], abs, tree)


def test_a_class_of_a_program_may_be_a_container():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    _, ours = rooms()
    assert ours.tree_leaves(Pair(1, 2))[0].a == 1
    ours.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda values, _: Pair(*values))
    made = ours.tree_map(lambda x: x * 2, Pair(1, [2]))
    assert (made.a, made.b) == (2, [4])
    assert ours.LeafSpec().is_leaf()
    assert ours.tree_structure([1]).unflatten([5]) == [5]
    with pytest.raises(ValueError, match="already registered"):
        ours.register_pytree_node(Pair, lambda p: ([], None), lambda values, _: None)


def test_tensors_as_one_vector():
    parts = [adjit.ones(2, 3), adjit.zeros(4), adjit.tensor(7.0)]
    flat = adjit._utils._flatten_dense_tensors(parts)
    assert flat.shape == (11,)
    again = adjit._utils._unflatten_dense_tensors(flat, parts)
    assert [t.shape for t in again] == [t.shape for t in parts]
    assert again[2].item() == 7
    again[0].zero_()
    assert flat[0] == 0  # they are views


def test_switches_are_accepted():
    for name in (
        "_jit_set_profiling_mode",
        "_jit_set_nvfuser_enabled",
        "_jit_override_can_fuse_on_cpu",
    ):
        assert getattr(adjit._C, name)(False) is False
    assert adjit._C._get_tracing_state() is None
    for args, kwargs in (
        (("cpu",), {}), ((), {"non_blocking": True}), (("cpu", "float64", True), {}), ((), {}),
    ):  # fmt: skip
        found = []
        for library in (torch, adjit):
            given = [getattr(library, a) if a == "float64" else a for a in args]
            found.append([plain(part) for part in library._C._nn._parse_to(*given, **kwargs)])
        assert found[0] == found[1]


def test_names_for_annotations():
    import adjit.types as t

    assert isinstance(adjit.device("cpu"), t.Device)
    assert isinstance(adjit.Size([1]), t._size)
    assert isinstance(np.float64(1), t.Number)
    assert t._dtype is adjit.dtype
