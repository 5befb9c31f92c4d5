"""Pruning: elements of parameters that are zero and stay so, by masks."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ...ops.creation import ones_like, zeros_like
from ...ops.random import rand, rand_like
from ...tensor import Tensor
from ..module import Module
from .convert_parameters import parameters_to_vector

_M = TypeVar("_M", bound=Module)


class BasePruningMethod(ABC):
    """Base class of the ways to choose what is pruned, and of your own.

    A subclass defines `compute_mask(t, default_mask)`, and `PRUNING_TYPE`: `"unstructured"` is given
    the elements that are left, `"structured"` the channels along its `dim` that are, `"global"` all.

    Example:
        >>> class EveryOther(nn.utils.prune.BasePruningMethod):
        ...     PRUNING_TYPE = "unstructured"
        ...     def compute_mask(self, t, default_mask):
        ...         mask = default_mask.clone()
        ...         mask.view(-1)[::2] = 0
        ...         return mask
        >>> layer = nn.Linear(4, 1)
        >>> method = EveryOther.apply(layer, "weight")
        >>> layer.weight_mask
        tensor([[0., 1., 0., 1.]])
    """

    PRUNING_TYPE: str
    _tensor_name: str | None = None

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, str(self._tensor_name), self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Choose what is kept: a mask of the shape of `t`, with zeros where `default_mask` has them.

        Example:
            >>> method = nn.utils.prune.L1Unstructured(1)
            >>> method.compute_mask(adjit.tensor([1.0, 3.0, 2.0]), adjit.tensor([1.0, 1.0, 0.0]))
            tensor([0., 1., 0.])
        """

    def apply_mask(self, module: Any) -> Tensor:
        """Compute the pruned tensor of a module.

        Example:
            >>> layer = nn.Linear(2, 1)
            >>> method = nn.utils.prune.CustomFromMask.apply(layer, "weight", mask=adjit.tensor([[0, 1]]))
            >>> (method.apply_mask(layer) == 0).tolist()
            [[True, False]]
        """
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original: Tensor = getattr(module, self._tensor_name + "_orig")
        mask: Tensor = getattr(module, self._tensor_name + "_mask")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls,
        module: Any,
        name: str,
        *args: Any,
        importance_scores: Tensor | None = None,
        **kwargs: Any,
    ) -> BasePruningMethod:
        """Prune a tensor of a module, before each forward; what was pruned before stays so.

        Args:
            module: whose tensor it is.
            name: the parameter: `name + "_orig"` is what is learned then, `name + "_mask"` a buffer.
            args: what the method is made of.
            importance_scores: decide in the place of the tensor, of its shape.
            kwargs: what the method is made of, by name.

        Returns:
            The method that acts now: a `PruningContainer` where there was one before.

        Example:
            >>> layer = nn.Linear(2, 1)
            >>> method = nn.utils.prune.L1Unstructured.apply(layer, "weight", amount=1)
            >>> sorted(layer.state_dict())
            ['bias', 'weight_mask', 'weight_orig']
        """
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        hooks = module._forward_pre_hooks
        earlier = [
            key
            for key, hook in hooks.items()
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
        ]
        if len(earlier) > 1:
            raise AssertionError(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. "
                "Use a PruningContainer."
            )
        for key in earlier:
            before = hooks.pop(key)
            container = before if isinstance(before, PruningContainer) else PruningContainer(before)
            container.add_pruning_method(method)
            method = container
        original = getattr(module, name)
        if importance_scores is not None and importance_scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got "
                f"{importance_scores.shape} vs {original.shape}"
            )
        is_first = not isinstance(method, PruningContainer)
        if is_first:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            known = ones_like(original)
        else:
            known = getattr(module, name + "_mask").detach().clone()
        try:
            scores = original if importance_scores is None else importance_scores
            mask = method.compute_mask(scores.detach(), default_mask=known)
            module.register_buffer(name + "_mask", mask)
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if is_first:
                module.register_parameter(name, module._parameters.pop(name + "_orig"))
            raise
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """Give a tensor with what is pruned set to zero; no module is needed.

        Example:
            >>> nn.utils.prune.L1Unstructured(1).prune(adjit.tensor([1.0, 3.0, 2.0]))
            tensor([0., 3., 2.])
        """
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise AssertionError(
                "importance_scores should have the same shape as tensor t, got "
                f"{importance_scores.shape} vs {t.shape}"
            )
        scores = t if importance_scores is None else importance_scores
        known = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=known)

    def remove(self, module: Any) -> None:
        """Make the pruned tensor a parameter again: its zeros stay, and may be learned.

        Example:
            >>> layer = nn.Linear(2, 1)
            >>> method = nn.utils.prune.Identity.apply(layer, "weight")
            >>> method.remove(layer)
            >>> sorted(layer.state_dict())
            ['bias', 'weight']
        """
        name = self._tensor_name
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        original.data = weight.data
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several ways of pruning one tensor, one after the other; the last decides about what is left.

    Args:
        args: the methods, all for the tensor of one name.

    Raises:
        TypeError: something else than a method.
        ValueError: methods for tensors of other names.

    Example:
        >>> layer = nn.Linear(8, 1)
        >>> _ = nn.utils.prune.l1_unstructured(layer, "weight", 2)
        >>> container = nn.utils.prune.L1Unstructured.apply(layer, "weight", amount=3)
        >>> len(container), layer.weight_mask.sum().item()
        (2, 3.0)
    """

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a method to the end.

        Example:
            >>> container = nn.utils.prune.PruningContainer()
            >>> method = nn.utils.prune.L1Unstructured(2)
            >>> method._tensor_name = container._tensor_name = "weight"
            >>> container.add_pruning_method(method)
            >>> len(container)
            1
        """
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' "
                f"to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Let the last method choose among what the mask so far has left.

        Example:
            >>> method = nn.utils.prune.L1Unstructured(1)
            >>> method._tensor_name = "weight"
            >>> container = nn.utils.prune.PruningContainer(method)
            >>> container.compute_mask(adjit.tensor([1.0, 3.0, 2.0]), adjit.tensor([0.0, 1.0, 1.0]))
            tensor([0., 1., 0.])
        """
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if mask is default_mask:
            mask = mask.clone()
        place: Any
        if method.PRUNING_TYPE == "unstructured":
            place = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError(
                    'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` '
                    "defined."
                )
            dim = method.dim + t.ndim if method.dim < 0 else method.dim
            if dim < 0:
                raise IndexError(f"Index is out of bounds for tensor with dimensions {t.ndim}")
            kept = default_mask.sum(dim=[d for d in range(t.ndim) if d != dim]) != 0
            place = (*[slice(None)] * dim, kept)
        elif method.PRUNING_TYPE == "global":
            place = ()
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        part = method.compute_mask(t[place], default_mask=default_mask[place])
        mask[place] = part.to(dtype=mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing, but makes mask and parameter as all others do.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> method = nn.utils.prune.Identity.apply(layer, "weight")
        >>> layer.weight_mask
        tensor([[1., 1.]])
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Keep what was kept.

        Example:
            >>> nn.utils.prune.Identity().compute_mask(adjit.ones(2), adjit.tensor([0.0, 1.0]))
            tensor([0., 1.])
        """
        return default_mask


class _ByAmount(BasePruningMethod):
    """A way that prunes a number of elements, or a share of them."""

    amount: Any

    def __init__(self, amount: Any) -> None:
        if not isinstance(amount, numbers.Real):
            raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        if float(amount) < 0 or (not isinstance(amount, numbers.Integral) and float(amount) > 1):
            raise ValueError(
                f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
                "integer"
            )
        self.amount = amount

    def _number_of(self, size: int) -> int:
        """Compute how many of `size` are pruned."""
        if not isinstance(self.amount, numbers.Integral):
            return round(self.amount * size)
        if int(self.amount) > size:
            raise ValueError(
                f"amount={self.amount} should be smaller than the number of parameters to "
                f"prune={size}"
            )
        return int(self.amount)


class RandomUnstructured(_ByAmount):
    """Prunes any elements.

    Args:
        amount: how many, or which share of them as a float in [0, 1].

    Raises:
        TypeError: no number.
        ValueError: a number out of range.

    Example:
        >>> layer = nn.Linear(4, 1)
        >>> method = nn.utils.prune.RandomUnstructured.apply(layer, "weight", amount=0.5)
        >>> layer.weight_mask.sum().item()
        2.0
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Choose by numbers that are drawn.

        Example:
            >>> method = nn.utils.prune.RandomUnstructured(1)
            >>> method.compute_mask(adjit.ones(3), adjit.ones(3)).sum().item()
            2.0
        """
        count = self._number_of(t.numel())
        mask = default_mask.clone()
        if count:
            mask.view(-1)[rand_like(t).view(-1).topk(count).indices] = 0
        return mask


class L1Unstructured(_ByAmount):
    """Prunes the elements of least magnitude.

    Args:
        amount: how many, or which share of them as a float in [0, 1].

    Raises:
        TypeError: no number.
        ValueError: a number out of range.

    Example:
        >>> nn.utils.prune.L1Unstructured(2).prune(adjit.tensor([1.0, -4.0, 3.0, 2.0]))
        tensor([ 0., -4.,  3.,  0.])
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Choose by magnitude.

        Example:
            >>> nn.utils.prune.L1Unstructured(1).compute_mask(adjit.tensor([1.0, 3.0]), adjit.ones(2))
            tensor([0., 1.])
        """
        count = self._number_of(t.numel())
        mask = default_mask.clone()
        if count:
            mask.view(-1)[t.abs().reshape(-1).topk(count, largest=False).indices] = 0
        return mask


class _Structured(_ByAmount):
    """A way that prunes whole channels."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Choose channels.

        Example:
            >>> method = nn.utils.prune.LnStructured(1, n=2, dim=0)
            >>> method.compute_mask(adjit.tensor([[1.0], [3.0]]), adjit.ones(2, 1))
            tensor([[0.],
                    [1.]])
        """
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor of "
                f"shape {t.shape} with {t.ndim} dims"
            )
        if self.dim >= t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        count = self._number_of(t.shape[self.dim])
        if not count:
            return default_mask
        mask = zeros_like(t)
        mask.movedim(self.dim, 0)[self._kept(t, count)] = 1
        return mask.mul_(default_mask.to(dtype=mask.dtype))

    def _kept(self, t: Tensor, count: int) -> Tensor:
        """Choose the channels that stay, where `count` of them are pruned."""
        raise NotImplementedError


class RandomStructured(_Structured):
    """Prunes any channels.

    Args:
        amount: how many, or which share of them as a float in [0, 1].
        dim: the dimension of the channels.

    Raises:
        TypeError: no number.
        ValueError: a number out of range, or a tensor of one dimension.
        IndexError: `dim` is out of range.

    Example:
        >>> layer = nn.Linear(2, 4)
        >>> method = nn.utils.prune.RandomStructured.apply(layer, "weight", amount=1, dim=0)
        >>> layer.weight_mask.sum().item()
        6.0
    """

    def _kept(self, t: Tensor, count: int) -> Tensor:
        """Choose by numbers that are drawn."""
        drawn = rand(t.shape[self.dim])
        return drawn > drawn.kthvalue(count).values


class LnStructured(_Structured):
    """Prunes the channels of least norm.

    Args:
        amount: how many, or which share of them as a float in [0, 1].
        n: the order of the norm.
        dim: the dimension of the channels.

    Raises:
        TypeError: no number.
        ValueError: a number out of range, or a tensor of one dimension.
        IndexError: `dim` is out of range.

    Example:
        >>> method = nn.utils.prune.LnStructured(1, n=2, dim=0)
        >>> method.prune(adjit.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[0., 0.],
                [3., 4.]])
    """

    def __init__(self, amount: float, n: float, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _kept(self, t: Tensor, count: int) -> Tensor:
        """Choose by norm."""
        dim = self.dim % t.ndim
        norms = t.norm(float(self.n), dim=[d for d in range(t.ndim) if d != dim])
        return norms.topk(t.shape[dim] - count).indices


class CustomFromMask(BasePruningMethod):
    """Prunes what a mask says.

    Args:
        mask: zero where an element is pruned, of the tensor's shape.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> mask = adjit.tensor([[1, 0]])
        >>> method = nn.utils.prune.CustomFromMask.apply(layer, "weight", mask=mask)
        >>> layer.weight_mask
        tensor([[1., 0.]])
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Keep what both masks keep.

        Example:
            >>> method = nn.utils.prune.CustomFromMask(adjit.tensor([1, 0]))
            >>> method.compute_mask(adjit.ones(2), adjit.ones(2))
            tensor([1., 0.])
        """
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape "
                f"{self.mask.shape}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: _M, name: str) -> _M:
    """Make mask and parameter of a tensor without pruning it; see `Identity`.

    Example:
        >>> nn.utils.prune.identity(nn.Linear(2, 1), "weight").weight_mask
        tensor([[1., 1.]])
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: _M, name: str, amount: float) -> _M:
    """Prune any elements of a tensor; see `RandomUnstructured`.

    Example:
        >>> nn.utils.prune.random_unstructured(nn.Linear(4, 1), "weight", 3).weight_mask.sum().item()
        1.0
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: _M, name: str, amount: float, importance_scores: Tensor | None = None
) -> _M:
    """Prune the elements of a tensor that have least magnitude, or least scores; see `L1Unstructured`.

    Example:
        >>> scores = adjit.tensor([[1.0, 4.0, 3.0, 2.0]])
        >>> nn.utils.prune.l1_unstructured(nn.Linear(4, 1), "weight", 0.5, scores).weight_mask
        tensor([[0., 1., 1., 0.]])
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: _M, name: str, amount: float, dim: int) -> _M:
    """Prune any channels of a tensor; see `RandomStructured`.

    Example:
        >>> layer = nn.utils.prune.random_structured(nn.Linear(2, 4), "weight", 0.5, dim=0)
        >>> layer.weight_mask.sum().item()
        4.0
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: _M,
    name: str,
    amount: float,
    n: float,
    dim: int,
    importance_scores: Tensor | None = None,
) -> _M:
    """Prune the channels of a tensor that have least norm; see `LnStructured`.

    Example:
        >>> layer = nn.utils.prune.ln_structured(nn.Linear(2, 4), "weight", 0.5, n=2, dim=0)
        >>> layer.weight_mask.sum().item()
        4.0
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: _M, name: str, mask: Tensor) -> _M:
    """Prune what a mask says; see `CustomFromMask`.

    Example:
        >>> mask = adjit.tensor([[1, 0]])
        >>> nn.utils.prune.custom_from_mask(nn.Linear(2, 1), "weight", mask).weight_mask
        tensor([[1., 0.]])
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: Any,
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune elements of several tensors as if they were one.

    Args:
        parameters: pairs of a module and the name of a tensor.
        pruning_method: an unstructured method, such as `L1Unstructured`.
        importance_scores: of some of the pairs, in the place of the tensors.
        kwargs: what the method is made of.

    Raises:
        TypeError: another kind of method, or arguments of other kinds.

    Example:
        >>> net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
        >>> nn.utils.prune.global_unstructured(
        ...     [(net[0], "weight"), (net[1], "weight")], nn.utils.prune.L1Unstructured, amount=0.5
        ... )
        >>> sum(layer.weight_mask.sum().item() for layer in net)
        5.0
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs = list(parameters)
    values = [getattr(module, name).detach() for module, name in pairs]
    judged = [scores.get(pair, value) for pair, value in zip(pairs, values, strict=True)]
    masks = [
        getattr(module, name + "_mask", ones_like(value))
        for (module, name), value in zip(pairs, values, strict=True)
    ]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    mask = PruningContainer(method).compute_mask(
        parameters_to_vector([one.reshape(-1) for one in judged]),
        parameters_to_vector([one.reshape(-1) for one in masks]),
    )
    parts = mask.split([value.numel() for value in values])
    for (module, name), value, part in zip(pairs, values, parts, strict=True):
        custom_from_mask(module, name, part.view_as(value))


def remove(module: _M, name: str) -> _M:
    """Make a pruned tensor an ordinary parameter, with its zeros.

    Raises:
        ValueError: it is not pruned.

    Example:
        >>> layer = nn.utils.prune.identity(nn.Linear(2, 1), "weight")
        >>> sorted(nn.utils.prune.remove(layer, "weight").state_dict())
        ['bias', 'weight']
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(
        f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
    )


def is_pruned(module: Module) -> bool:
    """Tell whether a module, or one inside of it, has a pruned tensor.

    Example:
        >>> nn.utils.prune.is_pruned(nn.Sequential(nn.utils.prune.identity(nn.Linear(2, 1), "weight")))
        True
    """
    return any(
        isinstance(hook, BasePruningMethod)
        for one in module.modules()
        for hook in one._forward_pre_hooks.values()
    )
