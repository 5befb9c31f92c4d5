"""Nested containers as a list of leaves and a description: PyTorch's `torch.utils._pytree`."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from types import UnionType
from typing import Any, NamedTuple

from ..captured import codes
from ..shapes import Size

__all__ = [
    "Context", "DumpableContext", "FlattenFn", "FromDumpableContextFn", "GetAttrKey", "LeafSpec", "MappingKey",
    "PyTree", "PyTreeSpec", "SequenceKey", "ToDumpableContextFn", "TreeSpec", "UnflattenFn", "is_namedtuple",
    "is_namedtuple_class", "is_namedtuple_instance", "is_structseq", "is_structseq_class",
    "is_structseq_instance", "key_get", "keystr", "register_pytree_node", "tree_all", "tree_all_only",
    "tree_any", "tree_any_only", "tree_flatten", "tree_flatten_with_path", "tree_is_leaf", "tree_iter",
    "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_",
    "tree_map_with_path", "tree_structure", "tree_unflatten",
]  # fmt: skip

# For annotations.
PyTree = Any
Context = Any
DumpableContext = Any
FlattenFn = FlattenFunc = Callable[[PyTree], tuple[list[Any], Context]]
UnflattenFn = UnflattenFunc = Callable[[Iterable[Any], Context], PyTree]
ToDumpableContextFn = Callable[[Context], DumpableContext]
FromDumpableContextFn = Callable[[DumpableContext], Context]
Leaf = Callable[[Any], bool] | None


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """The place of a value in a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The value there."""
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """The place of a value in a list, a tuple or a deque."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The value there."""
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """The place of a value in a named tuple or another object."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The value there."""
        return getattr(obj, self.name)


KeyEntry = MappingKey | SequenceKey | GetAttrKey
KeyPath = tuple[KeyEntry, ...]


class NodeKind(NamedTuple):
    """How a container is taken apart, into values and what else it is made of, and put together again."""

    flatten: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten: Callable[[Iterable[Any], Any], Any]
    # The values with their places, and what else; None if nobody has said how.
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[KeyEntry, Any]], Any]] | None


def _kind(
    flatten: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten: Callable[[Iterable[Any], Any], Any],
    keys: Callable[[Any], Iterable[KeyEntry]],
) -> NodeKind:
    """A kind of container whose places `keys` knows."""

    def flatten_with_keys(tree: Any) -> tuple[Iterable[tuple[KeyEntry, Any]], Any]:
        values, context = flatten(tree)
        return list(zip(keys(tree), values, strict=True)), context

    return NodeKind(flatten, unflatten, flatten_with_keys)


def _places(tree: Any) -> Iterable[KeyEntry]:
    return map(SequenceKey, range(len(tree)))


def _names(tree: Any) -> Iterable[KeyEntry]:
    return map(GetAttrKey, tree._fields)


def _keys(tree: Any) -> Iterable[KeyEntry]:
    return map(MappingKey, tree)


def _of_dict(kind: Any) -> NodeKind:
    return _kind(
        lambda d: (list(d.values()), list(d)),
        lambda values, keys: kind(zip(keys, values, strict=True)),
        _keys,
    )


_KINDS: dict[Any, NodeKind] = {
    list: _kind(lambda x: (x, None), lambda values, _: list(values), _places),
    tuple: _kind(lambda x: (list(x), None), lambda values, _: tuple(values), _places),
    Size: _kind(lambda x: (list(x), None), lambda values, _: tuple(values), _places),
    deque: _kind(lambda x: (list(x), x.maxlen), deque, _places),
    namedtuple: _kind(lambda x: (list(x), type(x)), lambda values, kind: kind(*values), _names),
    dict: _of_dict(dict),
    OrderedDict: _of_dict(OrderedDict),
    defaultdict: _kind(
        lambda d: (list(d.values()), [d.default_factory, list(d)]),
        lambda values, told: defaultdict(told[0], zip(told[1], values, strict=True)),
        _keys,
    ),
}  # fmt: skip
_registered: dict[type, NodeKind] = {}  # those of users
codes.registries[__name__] = _registered
# For classes of programs that derive from these, or are taken apart like them.
_list_flatten, _list_unflatten, _list_flatten_with_keys = _KINDS[list]
_tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys = _KINDS[tuple]
_deque_flatten, _deque_unflatten, _deque_flatten_with_keys = _KINDS[deque]
_namedtuple_flatten, _namedtuple_unflatten, _namedtuple_flatten_with_keys = _KINDS[namedtuple]
_dict_flatten, _dict_unflatten, _dict_flatten_with_keys = _KINDS[dict]
_ordereddict_flatten, _ordereddict_unflatten, _ordereddict_flatten_with_keys = _KINDS[OrderedDict]
_odict_flatten, _odict_unflatten, _ = _KINDS[OrderedDict]
_defaultdict_flatten, _defaultdict_unflatten, _defaultdict_flatten_with_keys = _KINDS[defaultdict]


def register_pytree_node(
    cls: type, flatten_fn: Callable[[Any], Any], unflatten_fn: Callable[..., Any], *,
    flatten_with_keys_fn: Callable[[Any], Any] | None = None, **names: Any,
) -> None:  # fmt: skip
    """Have containers of a class taken apart.

    Args:
        cls: the class itself, not those derived from it.
        flatten_fn: gives the values and what else the container is made of.
        unflatten_fn: makes a container of the two.
        flatten_with_keys_fn: gives pairs of places and values, and what else the container is made of.

    Raises:
        ValueError: if the class is one already.
    """
    if cls in _KINDS:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _KINDS[cls] = _registered[cls] = NodeKind(flatten_fn, unflatten_fn, flatten_with_keys_fn)


_private_register_pytree_node = register_pytree_node


def _register_pytree_node(
    cls: type, flatten_fn: Callable[[Any], Any], unflatten_fn: Callable[..., Any], to_str_fn: Any = None,
    maybe_from_str_fn: Any = None, **kwargs: Any,
) -> None:  # fmt: skip
    """`register_pytree_node` by its old name, which warns; its functions of texts are not called."""
    warnings.warn(
        "`adjit.utils._pytree._register_pytree_node` is deprecated. "
        "Please use `adjit.utils._pytree.register_pytree_node` instead.",
        FutureWarning,
        stacklevel=2,
    )
    register_pytree_node(cls, flatten_fn, unflatten_fn, **kwargs)


def _kind_of(tree: Any) -> Any:
    """The kind of container that something is, None for a leaf."""
    cls = type(tree)
    if cls in _KINDS:
        return cls
    return namedtuple if isinstance(tree, tuple) and is_namedtuple_class(cls) else None


def is_namedtuple_class(cls: type) -> bool:
    """Whether a class is one of named tuples, or derived from one."""
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(fields := getattr(cls, "_fields", None), tuple)
        and all(type(field) is str for field in fields)
        and callable(getattr(cls, "_make", None))
        and callable(getattr(cls, "_asdict", None))
    )


def is_namedtuple_instance(obj: object) -> bool:
    """Whether something is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: object) -> bool:
    """Whether something is a named tuple, or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: type) -> bool:
    """Whether a class is one of C's named tuples, as `time.struct_time`."""
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and all(
            isinstance(getattr(cls, name, None), int)
            for name in ("n_fields", "n_sequence_fields", "n_unnamed_fields")
        )
        and not cls.__flags__ & _CAN_BE_DERIVED_FROM
    )


_CAN_BE_DERIVED_FROM = 1 << 10  # `Py_TPFLAGS_BASETYPE`


def is_structseq_instance(obj: object) -> bool:
    """Whether something is a named tuple of C."""
    return is_structseq_class(type(obj))


def is_structseq(obj: object) -> bool:
    """Whether something is a named tuple of C, or a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


@dataclasses.dataclass(frozen=True, eq=True)
class TreeSpec:
    """What a container is without its leaves."""

    type: Any
    context: Any
    children_specs: tuple[TreeSpec, ...]

    @property
    def num_leaves(self) -> int:
        """How many leaves there are."""
        return 1 if self.type is None else sum(child.num_leaves for child in self.children_specs)

    def is_leaf(self) -> bool:
        """Whether it is none."""
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The container with these leaves."""
        return tree_unflatten(leaves, self)


PyTreeSpec = TreeSpec


def LeafSpec() -> TreeSpec:
    """The description of a leaf."""
    return _LEAF


_LEAF = TreeSpec(None, None, ())


def tree_is_leaf(tree: Any, is_leaf: Leaf = None) -> bool:
    """Whether something is no container, or one that `is_leaf` takes for a leaf."""
    return (is_leaf is not None and is_leaf(tree)) or _kind_of(tree) is None


def tree_flatten(tree: Any, is_leaf: Leaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of nested containers, and what they are without them."""
    if is_leaf is None and _kind_of(tree) is None:  # as most arguments are
        return [tree], _LEAF
    leaves: list[Any] = []
    return leaves, _flatten_into(leaves, tree, is_leaf)


def _flatten_into(leaves: list[Any], tree: Any, is_leaf: Leaf) -> TreeSpec:
    kind = None if is_leaf is not None and is_leaf(tree) else _kind_of(tree)
    if kind is None:
        leaves.append(tree)
        return _LEAF
    values, context = _KINDS[kind].flatten(tree)
    return TreeSpec(kind, context, tuple([_flatten_into(leaves, v, is_leaf) for v in values]))


def tree_flatten_with_path(
    tree: Any, is_leaf: Leaf = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """The leaves of nested containers, each with the places that lead to it, and what they are without.

    Raises:
        ValueError: if a container was registered without `flatten_with_keys_fn`.
    """
    return list(_with_paths((), tree, is_leaf)), tree_structure(tree, is_leaf)


def _with_paths(path: KeyPath, tree: Any, is_leaf: Leaf) -> Iterator[tuple[KeyPath, Any]]:
    kind = None if is_leaf is not None and is_leaf(tree) else _kind_of(tree)
    if kind is None:
        yield path, tree
        return
    flatten_with_keys = _KINDS[kind].flatten_with_keys
    if flatten_with_keys is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {kind}. Please pass a flatten_with_keys_fn "
            "argument to register_pytree_node."
        )
    for key, value in flatten_with_keys(tree)[0]:
        yield from _with_paths((*path, key), value, is_leaf)


def keystr(kp: KeyPath) -> str:
    """The places that lead to a leaf, as Python writes them."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What places lead to."""
    for key in kp:
        obj = key.get(obj)
    return obj


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The containers with these leaves.

    Raises:
        TypeError: if there is no description.
        ValueError: if there are not as many leaves as it has.
    """
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"tree_unflatten(leaves, treespec): Expected `treespec` to be an instance of PyTreeSpec but got "
            f"item of type {type(treespec)}."
        )
    given = list(leaves)
    rest = iter(given)
    try:
        made = _built(rest, treespec)
    except StopIteration:  # too few
        made = rest
    if made is not rest and next(rest, rest) is rest:
        return made
    raise ValueError(
        f"treespec.unflatten(leaves): `leaves` has length {len(given)} but the spec refers to a pytree "
        f"that holds {treespec.num_leaves} items ({treespec})."
    )


def _built(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    return _KINDS[spec.type].unflatten(
        [_built(leaves, child) for child in spec.children_specs], spec.context
    )


def tree_leaves(tree: Any, is_leaf: Leaf = None) -> list[Any]:
    """The leaves of nested containers."""
    leaves: list[Any] = []
    _leaves_into(leaves, tree, is_leaf)
    return leaves


def _leaves_into(leaves: list[Any], tree: Any, is_leaf: Leaf) -> None:
    kind = None if is_leaf is not None and is_leaf(tree) else _kind_of(tree)
    if kind is None:
        leaves.append(tree)
        return
    for value in _KINDS[kind].flatten(tree)[0]:
        _leaves_into(leaves, value, is_leaf)


tree_iter = tree_leaves


def tree_leaves_with_path(tree: Any, is_leaf: Leaf = None) -> list[tuple[KeyPath, Any]]:
    """The leaves of nested containers, each with the places that lead to it."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: Leaf = None) -> TreeSpec:
    """What nested containers are without their leaves."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Leaf = None) -> Any:
    """Containers like one, or several of one structure, with what a function gives for their leaves.

    Raises:
        ValueError: if they have not one structure.
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    return _mapped(func, [leaves], spec, rests, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Leaf = None
) -> Any:
    """`tree_map` for a function that is also given, first, the places that lead to a leaf.

    Raises:
        ValueError: if the containers have not one structure, or have no names for their places.
    """
    found, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [[path for path, _ in found], [leaf for _, leaf in found]]
    return _mapped(func, columns, spec, rests, is_leaf)


def _mapped(
    func: Callable[..., Any], columns: list[list[Any]], spec: TreeSpec, rests: Iterable[Any], is_leaf: Leaf
) -> Any:  # fmt: skip
    for other in rests:
        found, its = tree_flatten(other, is_leaf)
        if its != spec:
            raise ValueError(f"Node type mismatch; expected {spec}, but got {its}.")
        columns.append(found)
    return tree_unflatten(map(func, *columns), spec)


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Leaf = None) -> Any:
    """Call a function with the leaves, for what it does; returns the tree."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(kind: Any, func: Callable[..., Any], tree: Any, is_leaf: Leaf = None) -> Any:
    """`tree_map` for leaves of a class, of several, or of which a function says so.

    Raises:
        TypeError: for a `kind` that is none of these.
    """
    return tree_map(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_map_only_(kind: Any, func: Callable[..., Any], tree: Any, is_leaf: Leaf = None) -> Any:
    """Call a function with the leaves of a class, of several, or of which a function says so.

    Returns:
        The tree.

    Raises:
        TypeError: for a `kind` that is none of these.
    """
    return tree_map_(map_only(kind)(func), tree, is_leaf=is_leaf)


def map_only(kind: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Have a function give what it does for some arguments, and the others as they are.

    Args:
        kind: a class, several, or a function that says of which.

    Raises:
        TypeError: for a `kind` that is none of these.
    """
    by_class = isinstance(kind, (type, tuple, UnionType))
    if not by_class and not callable(kind):
        raise TypeError("Argument must be a type, a tuple of types, or a callable.")

    def only(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(func)
        def apply(x: Any) -> Any:
            return func(x) if (isinstance(x, kind) if by_class else kind(x)) else x

        return apply

    return only


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Leaf = None) -> bool:
    """Whether a function is true of all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Leaf = None) -> bool:
    """Whether a function is true of a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(kind: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Leaf = None) -> bool:
    """Whether a function is true of all leaves of a class, or of several."""
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, kind))


def tree_any_only(kind: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Leaf = None) -> bool:
    """Whether a function is true of a leaf of a class, or of several."""
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, kind))


def _broadcast_to_and_flatten(
    tree: Any, treespec: TreeSpec, is_leaf: Leaf = None
) -> list[Any] | None:
    """The leaves of containers, each as often as the description has leaves in its place; None if it
    does not fit."""
    kind = None if is_leaf is not None and is_leaf(tree) else _kind_of(tree)
    if kind is None:
        return [tree] * treespec.num_leaves
    values, context = _KINDS[kind].flatten(tree)
    children = list(values)
    if (kind, context, len(children)) != (
        treespec.type, treespec.context, len(treespec.children_specs),
    ):  # fmt: skip
        return None
    found: list[Any] = []
    for child, spec in zip(children, treespec.children_specs, strict=True):
        leaves = _broadcast_to_and_flatten(child, spec, is_leaf)
        if leaves is None:
            return None
        found += leaves
    return found
