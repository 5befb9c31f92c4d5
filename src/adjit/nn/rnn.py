"""Recurrent layers, and cells, which are one step of a layer."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any, ClassVar, TypeAlias

from ..dtypes import dtype as DType
from ..ops import creation, recurrent
from ..tensor import Tensor
from . import init
from .module import Module, entry
from .parameter import Parameter
from .utils.rnn import PackedSequence

Sequences: TypeAlias = Tensor | PackedSequence

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def in_order(t: Tensor, places: Tensor | None) -> Tensor:
    """The sequences of states in another order."""
    return t if places is None else t.index_select(1, places)


class RNNBase(Module):
    """Base of `RNN`, `LSTM` and `GRU`: parameters, checks, and how input comes to the layers.

    Args:
        mode: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU".
        input_size: elements of the input at a step.
        hidden_size: elements of the state.
        num_layers: layers on top of each other.
        bias: whether the layers have biases.
        batch_first: whether input and output are (batch, steps, elements); states never are.
        dropout: the probability of an element to be dropped behind each layer but the last.
        bidirectional: whether each layer goes both ways.
        proj_size: elements that the state of an LSTM is projected to, 0 for no projection.

    Raises:
        ValueError: for sizes that are not positive, a dropout that is no probability, an unknown mode.
        TypeError: if a flag is no bool or a size no int.

    Example:
        >>> [name for name, _ in nn.RNNBase("GRU", 2, 3).named_parameters()]
        ['weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0']
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.dropout = float(dropout)
        check_arguments(
            mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size
        )
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._all_weights: list[list[str]] = []
        rows, states = GATES[mode] * hidden_size, proj_size or hidden_size
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: self._directions]:
                inputs = states * self._directions if layer else input_size
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (rows, inputs),
                    "weight_hh": (rows, states),
                }
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = []
                for part, shape in shapes.items():
                    names.append(f"{part}_l{layer}{suffix}")
                    made = creation.empty(shape, device=device, dtype=dtype)
                    setattr(self, names[-1], Parameter(made))
                self._all_weights.append(names)
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction.

        Example:
            >>> len(nn.GRU(2, 3, num_layers=2).all_weights)
            2
        """
        return [[entry(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Parameter]:
        return [weight for weights in self.all_weights for weight in weights]

    def flatten_parameters(self) -> None:
        """Do nothing: parameters may lie anywhere.

        Example:
            >>> nn.GRU(2, 3).flatten_parameters()
        """

    def reset_parameters(self) -> None:
        """Draw all parameters anew from U(-k, k), k = 1 / sqrt(hidden_size).

        Example:
            >>> layer = nn.GRU(2, 4)
            >>> layer.reset_parameters()
            >>> bool(layer.weight_ih_l0.abs().max() <= 0.5)
            True
        """
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raise if the input has another dtype than the weights, or other axes.

        Example:
            >>> nn.GRU(2, 3).check_input(adjit.ones(5, 1, 2), None)
        """
        kind = self._flat_weights[0].dtype
        if input.dtype is not kind:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({kind}). "
                f"Convert input: input.to({kind}), or convert model: model.to({input.dtype})"
            )
        axes = 3 if batch_sizes is None else 2
        if input.ndim != axes:
            raise RuntimeError(f"input must have {axes} dimensions, got {input.ndim}")
        if self.input_size != input.shape[-1]:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                f"{input.shape[-1]}"
            )

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The shape of the states for such an input.

        Example:
            >>> nn.GRU(2, 3).get_expected_hidden_size(adjit.ones(5, 7, 2), None)
            (1, 7, 3)
        """
        return self._state_shape(input, batch_sizes, self.proj_size or self.hidden_size)

    def _state_shape(
        self, input: Tensor, batch_sizes: Tensor | None, size: int
    ) -> tuple[int, int, int]:
        batch = (
            input.shape[0 if self.batch_first else 1]
            if batch_sizes is None
            else int(batch_sizes[0])
        )
        return self.num_layers * self._directions, batch, size

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:  # fmt: skip
        """Raise if states have another shape.

        Example:
            >>> nn.GRU(2, 3).check_hidden_size(adjit.zeros(1, 7, 3), (1, 7, 3))
        """
        if hx.shape != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Raise if an input or its states do not fit the layer.

        Example:
            >>> nn.GRU(2, 3).check_forward_args(adjit.ones(5, 7, 2), adjit.zeros(1, 7, 3), None)
        """
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """States with the sequences in another order.

        Example:
            >>> nn.GRU(2, 1).permute_hidden(adjit.tensor([[[1.0], [2.0]]]), adjit.tensor([1, 0]))
            tensor([[[2.],
                     [1.]]])
        """
        return in_order(hx, permutation)

    def extra_repr(self) -> str:
        shown = [f"{self.input_size}, {self.hidden_size}"]
        usual = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0,
            "bidirectional": False,
        }  # fmt: skip
        shown += [
            f"{name}={getattr(self, name)}"
            for name, value in usual.items()
            if getattr(self, name) != value
        ]
        return ", ".join(shown)

    # What the states of a layer are: one tensor, of an LSTM two.

    def _states(self, hx: Any) -> tuple[Tensor, ...]:
        return (hx,)

    def _zeros(self, input: Tensor, batch_sizes: Tensor | None) -> Any:
        shape = self.get_expected_hidden_size(input, batch_sizes)
        return input.new_zeros(shape)

    def _check_axes(self, hx: Any, is_batched: bool) -> None:
        axes = 3 if is_batched else 2
        if hx.ndim != axes:
            raise RuntimeError(
                f"For {'batched' if is_batched else 'unbatched'} {axes}-D input, hx should also be "
                f"{axes}-D but got {hx.ndim}-D tensor"
            )

    def _run(self, input: Sequences, hx: Any) -> tuple[Sequences, Tensor, Tensor | None]:
        """States of the last layer, last states and cells, with the axes and the order of the input."""
        if isinstance(input, PackedSequence):
            data, sizes, places, places_back = input
            hx = self._zeros(data, sizes) if hx is None else self.permute_hidden(hx, places)
            self.check_forward_args(data, hx, sizes)
            out, state, cell = self._layers(data, sizes, *self._states(hx))
            cell = None if cell is None else in_order(cell, places_back)
            return (
                PackedSequence(out, sizes, places, places_back),
                in_order(state, places_back),
                cell,
            )
        if input.ndim not in (2, 3):
            kind, end = self.mode.partition("_")[0], " tensor" * self.mode.startswith("RNN")
            raise ValueError(
                f"{kind}: Expected input to be 2D or 3D, got {input.ndim}D{end} instead"
            )
        is_batched, axis = input.ndim == 3, 0 if self.batch_first else 1
        x = input if is_batched else input.unsqueeze(axis)
        if hx is not None:
            self._check_axes(hx, is_batched)
            if not is_batched:
                added = [t.unsqueeze(1) for t in self._states(hx)]
                hx = added[0] if len(added) == 1 else tuple(added)
        else:
            hx = self._zeros(x, None)
        self.check_forward_args(x, hx, None)
        out, state, cell = self._layers(x, None, *self._states(hx))
        if is_batched:
            return out, state, cell
        return out.squeeze(axis), state.squeeze(1), None if cell is None else cell.squeeze(1)

    def _layers(
        self, x: Tensor, sizes: Tensor | None, h: Tensor, c: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        return recurrent.layers(
            self.mode.lower(), x, sizes, h, c, self._flat_weights, self.bias, self.num_layers,
            self.dropout, self.training, self.bidirectional, self.batch_first,
        )  # fmt: skip


def check_arguments(
    mode: str, input_size: Any, hidden_size: int, num_layers: int, bias: Any, batch_first: Any,
    dropout: Any, proj_size: int,
) -> None:  # fmt: skip
    """Raise for what is no layer, and warn of a dropout without effect."""
    if (
        not isinstance(dropout, numbers.Number)
        or isinstance(dropout, (bool, complex))
        or not 0 <= dropout <= 1  # type: ignore[operator]
    ):
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element being "
            "zeroed"
        )
    if dropout > 0 and num_layers == 1:  # type: ignore[operator]
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
            f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=3,
        )
    for name, value, kind in (
        ("bias", bias, bool), ("batch_first", batch_first, bool), ("input_size", input_size, int),
        ("hidden_size", hidden_size, int),
    ):  # fmt: skip
        if not isinstance(value, kind):
            raise TypeError(
                f"{name} should be of type {kind.__name__}, got: {type(value).__name__}"
            )
    for name, number in (
        ("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers),
    ):  # fmt: skip
        if number <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if mode not in GATES:
        raise ValueError(f"Unrecognized RNN mode: {mode}")


def check_no_projection(named: dict[str, Any]) -> None:
    """Only LSTMs project their states."""
    if "proj_size" in named:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """Elman's recurrent layers: `h = tanh(x @ W_ih.T + b_ih + h_before @ W_hh.T + b_hh)`, step by step.

    Args:
        input_size, hidden_size, num_layers: elements of input and state, and how many layers there are.
        nonlinearity: "tanh" or "relu".
        bias, batch_first, dropout, bidirectional, device, dtype: as in `RNNBase`.

    Shape:
        - input: (steps, batch, input_size), (batch, steps, input_size) if `batch_first`, (steps, input_size)
          without a batch, or a `PackedSequence`
        - hx: (layers * directions, batch, hidden_size), without a batch (layers * directions, hidden_size);
          zeros unless given
        - output: the states of the last layer, like the input with directions * hidden_size elements
        - h_n: the last states, like hx

    Differentiable in all of them and the parameters, any number of times.

    Raises:
        ValueError, RuntimeError: if arguments or shapes do not fit.

    Example:
        >>> layer = nn.RNN(4, 8, num_layers=2, batch_first=True)
        >>> out, h = layer(adjit.ones(3, 5, 4))
        >>> out.shape, h.shape
        (adjit.Size([3, 5, 8]), adjit.Size([2, 3, 8]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_no_projection(kwargs)
        if len(args) > 3:
            nonlinearity, args = args[3], (*args[:3], *args[4:])
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity

    def forward(self, input: Sequences, hx: Tensor | None = None) -> tuple[Sequences, Tensor]:
        """The states of the last layer, and the last states of all."""
        return self._run(input, hx)[:2]


class LSTM(RNNBase):
    """Layers of long short-term memory, step by step with `i, f, g, o` the parts of the sum of
    `x @ W_ih.T + b_ih` and `h_before @ W_hh.T + b_hh`:
    `c = sigmoid(f) * c_before + sigmoid(i) * tanh(g)`, `h = sigmoid(o) * tanh(c)`.

    Args:
        input_size, hidden_size, num_layers: elements of input and state, and how many layers there are.
        bias, batch_first, dropout, bidirectional, device, dtype: as in `RNNBase`.
        proj_size: elements that `h` is projected to by one more weight, 0 for no projection.

    Shape:
        - input: (steps, batch, input_size), (batch, steps, input_size) if `batch_first`, (steps, input_size)
          without a batch, or a `PackedSequence`
        - hx: a pair of states and cells (layers * directions, batch, hidden_size), without a batch
          (layers * directions, hidden_size); projected states have proj_size elements; zeros unless given
        - output: the states of the last layer, like the input
        - (h_n, c_n): the last states and cells, like hx

    Differentiable in all of them and the parameters, any number of times.

    Raises:
        ValueError, RuntimeError: if arguments or shapes do not fit.

    Example:
        >>> layer = nn.LSTM(4, 8, bidirectional=True)
        >>> out, (h, c) = layer(adjit.ones(5, 3, 4))
        >>> out.shape, h.shape, c.shape
        (adjit.Size([5, 3, 16]), adjit.Size([2, 3, 8]), adjit.Size([2, 3, 8]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The shape of the cells for such an input.

        Example:
            >>> nn.LSTM(2, 3, proj_size=1).get_expected_cell_size(adjit.ones(5, 7, 2), None)
            (1, 7, 3)
        """
        return self._state_shape(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        expected = (
            self.get_expected_hidden_size(input, batch_sizes),
            self.get_expected_cell_size(input, batch_sizes),
        )
        for k in range(2):
            self.check_hidden_size(
                hidden[k], expected[k], f"Expected hidden[{k}] size {{}}, got {{}}"
            )

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        return in_order(hx[0], permutation), in_order(hx[1], permutation)

    def _states(self, hx: Any) -> tuple[Tensor, ...]:
        return hx[0], hx[1]

    def _zeros(self, input: Tensor, batch_sizes: Tensor | None) -> Any:
        shape = self.get_expected_cell_size(input, batch_sizes)
        cells = input.new_zeros(shape)
        return super()._zeros(input, batch_sizes) if self.proj_size else cells, cells

    def _check_axes(self, hx: Any, is_batched: bool) -> None:
        axes = 3 if is_batched else 2
        if hx[0].ndim != axes or hx[1].ndim != axes:
            raise RuntimeError(
                f"For {'batched' if is_batched else 'unbatched'} {axes}-D input, hx and cx should also "
                f"be {axes}-D but got ({hx[0].ndim}-D, {hx[1].ndim}-D) tensors"
            )

    def forward(
        self, input: Sequences, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Sequences, tuple[Tensor, Tensor]]:
        """The states of the last layer, and the last states and cells of all."""
        out, state, cell = self._run(input, hx)
        assert cell is not None
        return out, (state, cell)


class GRU(RNNBase):
    """Layers of gated recurrent units, step by step with `r, z, n` the parts of `x @ W_ih.T + b_ih` and
    `s, u, m` those of `h_before @ W_hh.T + b_hh`:
    `new = tanh(n + sigmoid(r + s) * m)`, `h = new + sigmoid(z + u) * (h_before - new)`.

    Args:
        input_size, hidden_size, num_layers: elements of input and state, and how many layers there are.
        bias, batch_first, dropout, bidirectional, device, dtype: as in `RNNBase`.

    Shape:
        - input: (steps, batch, input_size), (batch, steps, input_size) if `batch_first`, (steps, input_size)
          without a batch, or a `PackedSequence`
        - hx: (layers * directions, batch, hidden_size), without a batch (layers * directions, hidden_size);
          zeros unless given
        - output: the states of the last layer, like the input with directions * hidden_size elements
        - h_n: the last states, like hx

    Differentiable in all of them and the parameters, any number of times.

    Raises:
        ValueError, RuntimeError: if arguments or shapes do not fit.

    Example:
        >>> layer = nn.GRU(4, 8)
        >>> out, h = layer(adjit.ones(5, 3, 4))
        >>> out.shape, h.shape
        (adjit.Size([5, 3, 8]), adjit.Size([1, 3, 8]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_no_projection(kwargs)
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Sequences, hx: Tensor | None = None) -> tuple[Sequences, Tensor]:
        """The states of the last layer, and the last states of all."""
        return self._run(input, hx)[:2]


# --------------------------------------------------------------------------- cells


class RNNCellBase(Module):
    """Base of the cells: two weights, two biases, and how they are shown.

    Args:
        input_size, hidden_size: elements of input and state.
        bias: whether there are biases.
        num_chunks: parts of the weights' rows.

    Example:
        >>> nn.RNNCellBase(2, 3, True, num_chunks=4).weight_ih.shape
        adjit.Size([12, 2])
    """

    _has_two: ClassVar[bool] = False  # whether a cell has two states

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, input_size),
            "weight_hh": (rows, hidden_size),
        }
        shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        for name, shape in shapes.items():
            has = bias or len(shape) > 1
            made = Parameter(creation.empty(shape, device=device, dtype=dtype)) if has else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew from U(-k, k), k = 1 / sqrt(hidden_size).

        Example:
            >>> layer = nn.GRUCell(2, 4)
            >>> layer.reset_parameters()
            >>> bool(layer.weight_ih.abs().max() <= 0.5)
            True
        """
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        shown = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            shown += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            shown += f", nonlinearity={self.nonlinearity}"
        return shown

    def _step(self, function: Any, input: Tensor, hx: Any) -> Any:
        """Run a cell on an input with or without a batch; states are zeros unless given."""
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        for k, t in enumerate(() if hx is None else hx if self._has_two else (hx,)):
            if t.ndim not in (1, 2):
                what = f"hx[{k}]" if self._has_two else "hidden"
                raise ValueError(f"{name}: Expected {what} to be 1D or 2D, got {t.ndim}D instead")
        is_batched = input.ndim == 2
        x = input if is_batched else input.unsqueeze(0)
        if hx is None:
            size = (x.shape[0], self.hidden_size)
            zeros = input.new_zeros(size)
            hx = (zeros, zeros) if self._has_two else zeros
        elif not is_batched:
            hx = tuple([t.unsqueeze(0) for t in hx]) if self._has_two else hx.unsqueeze(0)
        made = function(x, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        if is_batched:
            return made
        return tuple([t.squeeze(0) for t in made]) if self._has_two else made.squeeze(0)


class RNNCell(RNNCellBase):
    """One step of an `RNN` of one layer.

    Args:
        input_size, hidden_size: elements of input and state.
        bias: whether there are biases.
        nonlinearity: "tanh" or "relu".

    Shape:
        - input: (batch, input_size) or (input_size,)
        - hx, output: (batch, hidden_size) or (hidden_size,); zeros unless given

    Example:
        >>> nn.RNNCell(4, 8)(adjit.ones(3, 4)).shape
        adjit.Size([3, 8])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=1, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state."""
        functions = {"tanh": recurrent.rnn_tanh_cell, "relu": recurrent.rnn_relu_cell}
        if self.nonlinearity not in functions:
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        made: Tensor = self._step(functions[self.nonlinearity], input, hx)
        return made


class LSTMCell(RNNCellBase):
    """One step of an `LSTM` of one layer.

    Args:
        input_size, hidden_size: elements of input and state.
        bias: whether there are biases.

    Shape:
        - input: (batch, input_size) or (input_size,)
        - hx, output: a pair of state and cell (batch, hidden_size) or (hidden_size,); zeros unless given

    Example:
        >>> h, c = nn.LSTMCell(4, 8)(adjit.ones(3, 4))
        >>> h.shape, c.shape
        (adjit.Size([3, 8]), adjit.Size([3, 8]))
    """

    _has_two = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4, device=device, dtype=dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The next state and cell."""
        made: tuple[Tensor, Tensor] = self._step(recurrent.lstm_cell, input, hx)
        return made


class GRUCell(RNNCellBase):
    """One step of a `GRU` of one layer.

    Args:
        input_size, hidden_size: elements of input and state.
        bias: whether there are biases.

    Shape:
        - input: (batch, input_size) or (input_size,)
        - hx, output: (batch, hidden_size) or (hidden_size,); zeros unless given

    Example:
        >>> nn.GRUCell(4, 8)(adjit.ones(3, 4)).shape
        adjit.Size([3, 8])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3, device=device, dtype=dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state."""
        made: Tensor = self._step(recurrent.gru_cell, input, hx)
        return made
