"""Nested containers as a list of leaves and a description: PyTorch's `torch.utils._pytree`."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

__all__ = [
    "LeafSpec", "TreeSpec", "register_pytree_node", "tree_all", "tree_any", "tree_flatten", "tree_iter",
    "tree_leaves", "tree_map", "tree_map_", "tree_map_only", "tree_structure", "tree_unflatten",
]  # fmt: skip

Leaf = Callable[[Any], bool] | None


class NodeKind(NamedTuple):
    """How a container is taken apart, into values and what else it is made of, and put together again."""

    flatten: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten: Callable[[Iterable[Any], Any], Any]


def _of_dict(kind: Any) -> NodeKind:
    def flatten(d: Any) -> tuple[Iterable[Any], Any]:
        return list(d.values()), list(d)

    return NodeKind(flatten, lambda values, keys: kind(zip(keys, values, strict=True)))


_KINDS: dict[Any, NodeKind] = {
    list: NodeKind(lambda x: (x, None), lambda values, _: list(values)),
    tuple: NodeKind(lambda x: (x, None), lambda values, _: tuple(values)),
    deque: NodeKind(lambda x: (x, x.maxlen), deque),
    namedtuple: NodeKind(lambda x: (x, type(x)), lambda values, kind: kind(*values)),
    dict: _of_dict(dict),
    OrderedDict: _of_dict(OrderedDict),
    defaultdict: NodeKind(
        lambda d: (list(d.values()), (d.default_factory, list(d))),
        lambda values, told: defaultdict(told[0], zip(told[1], values, strict=True)),
    ),
}  # fmt: skip


def register_pytree_node(
    cls: type, flatten_fn: Callable[[Any], Any], unflatten_fn: Callable[..., Any], **names: Any
) -> None:
    """Have containers of a class taken apart.

    Args:
        cls: the class itself, not those derived from it.
        flatten_fn: gives the values and what else the container is made of.
        unflatten_fn: makes a container of the two.

    Raises:
        ValueError: if the class is one already.
    """
    if cls in _KINDS:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _KINDS[cls] = NodeKind(flatten_fn, unflatten_fn)


def _kind_of(tree: Any) -> Any:
    """The kind of container that something is, None for a leaf."""
    cls = type(tree)
    if cls not in _KINDS and isinstance(tree, tuple) and hasattr(cls, "_fields"):
        return namedtuple
    return cls if cls in _KINDS else None


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


def LeafSpec() -> TreeSpec:
    """The description of a leaf."""
    return TreeSpec(None, None, ())


def tree_flatten(tree: Any, is_leaf: Leaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of nested containers, and what they are without them."""
    kind = None if is_leaf is not None and is_leaf(tree) else _kind_of(tree)
    if kind is None:
        return [tree], LeafSpec()
    values, context = _KINDS[kind].flatten(tree)
    leaves: list[Any] = []
    children = []
    for value in values:
        found, spec = tree_flatten(value, is_leaf)
        leaves += found
        children.append(spec)
    return leaves, TreeSpec(kind, context, tuple(children))


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
    if len(given) != treespec.num_leaves:
        raise ValueError(
            f"treespec.unflatten(leaves): `leaves` has length {len(given)} but the spec refers to a pytree "
            f"that holds {treespec.num_leaves} items ({treespec})."
        )
    return _built(iter(given), treespec)


def _built(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    return _KINDS[spec.type].unflatten(
        [_built(leaves, child) for child in spec.children_specs], spec.context
    )


def tree_leaves(tree: Any, is_leaf: Leaf = None) -> list[Any]:
    """The leaves of nested containers."""
    return tree_flatten(tree, is_leaf)[0]


tree_iter = tree_leaves


def tree_structure(tree: Any, is_leaf: Leaf = None) -> TreeSpec:
    """What nested containers are without their leaves."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Leaf = None) -> Any:
    """Containers like one, or several of one structure, with what a function gives for their leaves.

    Raises:
        ValueError: if they have not one structure.
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves]
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
    """`tree_map` for leaves of a class, of several, or of which a function says so."""
    wanted = kind if callable(kind) and not isinstance(kind, type) else None

    def apply(x: Any) -> Any:
        return func(x) if (wanted(x) if wanted else isinstance(x, kind)) else x

    return tree_map(apply, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Leaf = None) -> bool:
    """Whether a function is true of all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Leaf = None) -> bool:
    """Whether a function is true of a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


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
