"""`GradScaler`: losses times a factor that grows while gradients are finite and shrinks when they are not.

The method: Micikevicius et al., Mixed Precision Training, https://arxiv.org/abs/1710.03740, section 3.2.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .. import driver
from ..autograd.modes import no_grad
from ..dtypes import float32
from ..ops.comparison import isfinite
from ..ops.creation import full
from ..ops.joining import stack
from ..tensor import Tensor

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """Where an optimizer is between two calls of `GradScaler.update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


@dataclass
class _Optimizer:
    """What a scaler knows of an optimizer since the last `update`."""

    stage: OptState = OptState.READY
    finite: list[Tensor] = field(
        default_factory=list
    )  # a truth value for the gradients of each device

    def has_infs(self) -> bool:
        return not all(bool(finite) for finite in self.finite)


class GradScaler:
    """Scale losses so that small gradients survive in half precision, and skip steps with infinite ones.

    Tensors are float32 or float64 here, which rarely need it, but programs written for half precision take the
    same steps. Disabled, `scale` and `unscale_` leave all as it is, and `step` is the optimizer's.

    Args:
        device: "cuda" or "cpu"; without a GPU a scaler for "cuda" warns and is disabled.
        init_scale: the first factor.
        growth_factor: what the factor is multiplied with after `growth_interval` steps with finite gradients.
        backoff_factor: what it is multiplied with after a step with others.
        growth_interval: a number of steps in a row.
        enabled: False for none of it.

    Raises:
        AssertionError: if the factor would not grow, or not shrink.

    Example:
        >>> weight = adjit.nn.Parameter(adjit.ones(2))
        >>> optimizer = adjit.optim.SGD([weight], lr=0.5)
        >>> scaler = adjit.amp.GradScaler("cpu")
        >>> scaler.scale(weight.sum()).backward()
        >>> weight.grad
        tensor([65536., 65536.])
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> weight
        Parameter containing:
        tensor([0.5000, 0.5000], requires_grad=True)
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device, self._enabled = device, enabled
        if enabled and device == "cuda" and driver.reason():
            warnings.warn(
                "GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2
            )
            self._enabled = False
        if not self._enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._scale: Tensor | None = None  # where the first loss is
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        self._per_optimizer_states: defaultdict[int, _Optimizer] = defaultdict(_Optimizer)

    # ----- a step -----

    def scale(self, outputs: Any) -> Any:
        """Multiply a tensor, or each of an iterable of them, nested too, by the factor.

        Raises:
            ValueError: if there is something else.

        Example:
            >>> scaler = adjit.amp.GradScaler("cpu")
            >>> scaler.scale(adjit.tensor(0.5))
            tensor(32768.)
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._scale = full((), self._init_scale, dtype=float32, device=outputs.device)
            return outputs * self._scale.to(outputs.device)
        if not isinstance(outputs, Iterable):
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")
        scaled = map(self.scale, outputs)
        return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the factor, e.g. to clip them; once a step.

        Raises:
            AssertionError: if nothing was scaled.
            RuntimeError: if it was called or the step taken since the last `update`.

        Example:
            >>> scaler = adjit.amp.GradScaler("cpu")
            >>> weight = adjit.nn.Parameter(adjit.ones(1))
            >>> optimizer = adjit.optim.SGD([weight], lr=0.5)
            >>> scaler.scale(weight.sum()).backward()
            >>> scaler.unscale_(optimizer)
            >>> weight.grad
            tensor([1.])
        """
        if not self._enabled:
            return
        factor = self._known_scale("unscale_")
        known = self._per_optimizer_states[id(optimizer)]
        if known.stage is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if known.stage is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        places: dict[Any, list[Tensor]] = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    places.setdefault(parameter.grad.device, []).append(parameter.grad)
        with no_grad():
            inverse = factor.double().reciprocal().float()
            for place, gradients in places.items():
                known.finite.append(
                    stack([isfinite(gradient).all() for gradient in gradients]).all()
                )
                there = inverse.to(place)
                for gradient in gradients:
                    gradient.mul_(there)
        known.stage = OptState.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Take the optimizer's step if all gradients are finite, once they are divided by the factor.

        Returns:
            What the optimizer's step returns, None where it is left out.

        Raises:
            AssertionError: if nothing was scaled, or no parameter has a gradient.
            RuntimeError: for a closure, and for a second step before `update`.

        Example:
            >>> scaler = adjit.amp.GradScaler("cpu")
            >>> weight = adjit.nn.Parameter(adjit.ones(1))
            >>> optimizer = adjit.optim.SGD([weight], lr=0.5)
            >>> scaler.scale(weight.sum()).backward()
            >>> scaler.step(optimizer)
            >>> weight.item()
            0.5
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._known_scale("step")
        known = self._per_optimizer_states[id(optimizer)]
        if known.stage is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if known.stage is OptState.READY:
            self.unscale_(optimizer)
        if not known.finite:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        taken = None if known.has_infs() else optimizer.step(*args, **kwargs)
        known.stage = OptState.STEPPED
        return taken

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Let the factor grow or shrink by what the last step found, or set it.

        Raises:
            AssertionError: if there was no step since the last time, or `new_scale` is a tensor of more than
                one element, on another device or one that needs a gradient.

        Example:
            >>> scaler = adjit.amp.GradScaler("cpu")
            >>> weight = adjit.nn.Parameter(adjit.ones(1))
            >>> optimizer = adjit.optim.SGD([weight], lr=0.5)
            >>> scaler.scale(weight.sum()).backward()
            >>> weight.grad.fill_(float("inf"))
            tensor([inf])
            >>> scaler.step(optimizer)
            >>> scaler.update()
            >>> weight.item(), scaler.get_scale()
            (1.0, 32768.0)
        """
        if not self._enabled:
            return
        factor = self._known_scale("update")
        if isinstance(new_scale, Tensor):
            if (
                new_scale.device.type != self._device
                or new_scale.numel() != 1
                or new_scale.requires_grad
            ):
                raise AssertionError(
                    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
                    "torch.FloatTensor with requires_grad=False."
                )
            factor.copy_(new_scale.reshape(()))
        elif new_scale is not None:
            factor.fill_(new_scale)
        else:
            self._follow([known for known in self._per_optimizer_states.values() if known.finite])
        self._per_optimizer_states.clear()

    def _follow(self, optimizers: list[_Optimizer]) -> None:
        if not optimizers:
            raise AssertionError("No inf checks were recorded prior to update.")
        factor = self._known_scale("update")
        if any(known.has_infs() for known in optimizers):
            factor.mul_(self._backoff_factor)
            self._growth_tracker = 0
            return
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            larger = factor * self._growth_factor
            if math.isfinite(larger.item()):
                factor.copy_(larger)
            self._growth_tracker = 0

    def _known_scale(self, method: str) -> Tensor:
        if self._scale is None:
            raise AssertionError(
                f"Attempted {method} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )
        return self._scale

    # ----- settings and state -----

    def is_enabled(self) -> bool:
        """True if losses are scaled.

        Example:
            >>> adjit.amp.GradScaler(enabled=False).is_enabled()
            False
        """
        return self._enabled

    def get_scale(self) -> float:
        """Tell the factor; 1.0 if nothing is scaled.

        Example:
            >>> adjit.amp.GradScaler("cpu").get_scale()
            65536.0
        """
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """Tell what the factor is multiplied with to grow.

        Example:
            >>> adjit.amp.GradScaler("cpu").get_growth_factor()
            2.0
        """
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set what the factor is multiplied with to grow.

        Example:
            >>> scaler = adjit.amp.GradScaler("cpu")
            >>> scaler.set_growth_factor(4.0)
        """
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """Tell what the factor is multiplied with to shrink.

        Example:
            >>> adjit.amp.GradScaler("cpu").get_backoff_factor()
            0.5
        """
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set what the factor is multiplied with to shrink.

        Example:
            >>> scaler = adjit.amp.GradScaler("cpu")
            >>> scaler.set_backoff_factor(0.25)
        """
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Tell after how many steps in a row the factor grows.

        Example:
            >>> adjit.amp.GradScaler("cpu").get_growth_interval()
            2000
        """
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many steps in a row the factor grows.

        Example:
            >>> scaler = adjit.amp.GradScaler("cpu")
            >>> scaler.set_growth_interval(100)
        """
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        return self._growth_tracker if self._enabled else 0

    def state_dict(self) -> dict[str, Any]:
        """Everything to go on from, in numbers; empty if nothing is scaled.

        Example:
            >>> adjit.amp.GradScaler("cpu").state_dict()["growth_interval"]
            2000
        """
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave, of PyTorch's scaler too; of no effect if nothing is scaled.

        Raises:
            RuntimeError: if it is empty.

        Example:
            >>> scaler = adjit.amp.GradScaler("cpu")
            >>> scaler.load_state_dict(adjit.amp.GradScaler("cpu", 8.0).state_dict())
            >>> scaler.get_scale()
            8.0
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved "
                "from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning "
                    "of an iteration, or at the end after scaler.update()."
                )
            state |= {"_init_scale": self.get_scale(), "_scale": None}
        return state
