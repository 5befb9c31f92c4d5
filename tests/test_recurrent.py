"""Recurrent layers, their cells and packed sequences: values, gradients and gradients of these, beside
PyTorch and by finite differences."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest

import adjit
from adjit import nn
from adjit.autograd import gradcheck, gradgradcheck
from adjit.nn.utils import rnn as sequences
from adjit.ops import recurrent

torch = pytest.importorskip("torch")

rng = np.random.default_rng(0)
LAYERS = ["LSTM", "GRU", "RNN"]
DTYPES = {"float32": 2e-5, "float64": 1e-12}


def both(name, *args, dtype="float64", **kwargs):
    """A layer of adjit and PyTorch's, with the same parameters."""
    ours = getattr(nn, name)(*args, **kwargs, dtype=getattr(adjit, dtype))
    theirs = getattr(torch.nn, name)(*args, **kwargs, dtype=getattr(torch, dtype))
    state = {key: torch.tensor(value.numpy()) for key, value in ours.state_dict().items()}
    assert list(state) == list(theirs.state_dict())
    theirs.load_state_dict(state)
    assert repr(ours) == repr(theirs)
    return ours, theirs


def pair(*shape, dtype="float64"):
    values = rng.standard_normal(shape).astype(dtype)
    return adjit.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)


def flat(results):
    """All tensors among results, packed sequences by their data."""
    if isinstance(results, (sequences.PackedSequence, torch.nn.utils.rnn.PackedSequence)):
        return [results.data]
    if isinstance(results, tuple):
        return [t for each in results for t in flat(each)]
    return [results]


def compare(layers, inputs, run, tol):
    """Results of both layers, and gradients of a weighted sum of them."""
    results = []
    for k, layer in enumerate(layers):
        outs = flat(run(layer, [each[k] for each in inputs], (nn, torch.nn)[k]))
        loss = sum((out * (out + 0.3).cos()).sum() for out in outs)
        loss.backward()
        leaves = [each[k] for each in inputs] + list(layer.parameters())
        results.append([t.detach().numpy() for t in outs] + [t.grad.numpy() for t in leaves])
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=tol, atol=tol * max(1, abs(theirs).max()))


def states(name, count, batch, hidden, dtype="float64", projected=0):
    h = pair(count, batch, projected or hidden, dtype=dtype)
    return [h, pair(count, batch, hidden, dtype=dtype)] if name == "LSTM" else [h]


def given(hx):
    return tuple(hx) if len(hx) == 2 else hx[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1), (3, 1, 2, 7), (4, 7, 3, 33), (2, 13, 5, 70), (3, 2, 300, 260)]
)
def test_a_layer_is_pytorchs(name, sizes, dtype):
    steps, batch, inputs, hidden = sizes
    layers = both(name, inputs, hidden, dtype=dtype)
    operands = [pair(steps, batch, inputs, dtype=dtype), *states(name, 1, batch, hidden, dtype)]
    compare(layers, operands, lambda layer, x, _: layer(x[0], given(x[1:])), DTYPES[dtype])


OPTIONS = {
    "several layers": {"num_layers": 3},
    "both ways": {"bidirectional": True},
    "batch first, without biases": {"batch_first": True, "bias": False},
    "all of them": {"num_layers": 2, "bidirectional": True, "batch_first": True},
}


@pytest.mark.parametrize("name", [*LAYERS, "relu", "projected"])
@pytest.mark.parametrize("options", OPTIONS)
def test_options_are_pytorchs(name, options):
    options = dict(OPTIONS[options])
    if name == "relu":
        name, options["nonlinearity"] = "RNN", "relu"
    projected = 0
    if name == "projected":
        name, options["proj_size"] = "LSTM", (projected := 3)
    layers = both(name, 4, 5, **options)
    count = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    shape = (3, 6, 4) if options.get("batch_first") else (6, 3, 4)
    operands = [pair(*shape), *states(name, count, 3, 5, projected=projected)]
    compare(layers, operands, lambda layer, x, _: layer(x[0], given(x[1:])), 1e-11)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("batched", [False, True])
def test_states_are_zeros_unless_given(name, batched):
    layers = both(name, 4, 5, num_layers=2, batch_first=True)
    shape = (3, 6, 4) if batched else (6, 4)
    compare(layers, [pair(*shape)], lambda layer, x, _: layer(x[0]), 1e-11)


@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_may_be_absent(name):
    layers = both(name, 4, 5, bidirectional=True)
    operands = [pair(6, 4), *[pair(2, 5) for _ in states(name, 1, 1, 1)]]
    compare(layers, operands, lambda layer, x, _: layer(x[0], given(x[1:])), 1e-11)


@pytest.mark.parametrize("name", [*LAYERS, "projected"])
@pytest.mark.parametrize("enforce_sorted", [False, True])
@pytest.mark.parametrize("has_states", [False, True])
def test_packed_sequences_are_pytorchs(name, enforce_sorted, has_states):
    options = {"num_layers": 2, "bidirectional": True}
    projected = 3 if name == "projected" else 0
    if projected:
        name, options["proj_size"] = "LSTM", projected
    layers = both(name, 4, 5, **options)
    lengths = [6, 5, 5, 2, 1] if enforce_sorted else [5, 1, 6, 2, 5]
    operands = [pair(6, 5, 4), *(states(name, 4, 5, 5, projected=projected) if has_states else ())]

    def run(layer, x, room):
        utils = room.utils.rnn
        packed = utils.pack_padded_sequence(x[0], lengths, enforce_sorted=enforce_sorted)
        out, hx = layer(packed, given(x[1:])) if has_states else layer(packed)
        return utils.pad_packed_sequence(out)[0], hx

    compare(layers, operands, run, 1e-11)


@pytest.mark.parametrize("name", LAYERS)
def test_only_the_last_state_may_be_wanted(name):
    layers = both(name, 4, 5)
    compare(layers, [pair(6, 3, 4)], lambda layer, x, _: flat(layer(x[0])[1])[-1], 1e-11)


KINDS = [*recurrent.KINDS]


def operands_of(kind, steps=3, batch=2, inputs=2, hidden=3, rows=None):
    """Inputs of the op behind a layer, in float64."""
    of = recurrent.KINDS[kind]

    def made(*shape):
        return adjit.tensor(rng.standard_normal(shape), requires_grad=True)

    return (
        made(rows or steps * batch, inputs), made(of.gates * hidden, inputs),
        made(of.gates * hidden, hidden), made(of.gates * hidden),
        made(hidden) if kind == "gru" else None, made(batch, hidden),
        made(batch, hidden) if kind == "lstm" else None,
    )  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_and_those_of_gradients_are_finite_differences(kind, packed, reverse):
    operands = operands_of(kind, steps=3, batch=2, rows=4 if packed else None)
    sizes = adjit.tensor([2, 1, 1]) if packed else None
    present = [t for t in operands if t is not None]

    def layer(*tensors):
        rest = iter(tensors)
        args = [None if t is None else next(rest) for t in operands]
        out, state, cell, *_ = recurrent.recurrent_layer(*args, sizes, kind, 3, reverse, True)
        return (out, state, cell) if kind == "lstm" else (out, state)

    assert gradcheck(layer, present)
    assert gradgradcheck(layer, present)


@pytest.mark.parametrize("name", LAYERS)
def test_third_derivatives_are_pytorchs(name):
    layers = both(name, 2, 3)
    x = pair(3, 2, 2)
    found = []
    for k, grad in enumerate((adjit.autograd.grad, torch.autograd.grad)):
        value = layers[k](x[k])[0].sum()
        for _ in range(3):
            (g,) = grad(value, x[k], create_graph=True)
            value = (g * g).sum()
        found.append(g.detach().numpy())
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_by_other_ops_give_what_the_kernels_give(kind):
    """Gradients that are differentiated again take another way, which must not differ."""
    operands = operands_of(kind, steps=4, batch=3, hidden=20)
    present = [t for t in operands if t is not None]
    found = []
    for create_graph in (False, True):
        out = recurrent.recurrent_layer(*operands, None, kind, 4, False, True)
        loss = (out[0] * out[0]).sum() + out[1].sin().sum()
        grads = adjit.autograd.grad(loss, present, create_graph=create_graph)
        found.append([g.detach().numpy() for g in grads])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_depend_on_no_neighbours_and_threads(kind):
    """A sequence alone, in a batch, and on several threads gives the same bits."""
    operands = [None if t is None else t.detach().float() for t in operands_of(kind, 9, 16, 40, 70)]

    def run(places, threads=1):
        before = adjit.get_num_threads()
        adjit.set_num_threads(threads)
        try:
            x = operands[0].view(9, 16, 40)[:, places].reshape(9 * len(places), 40)
            chosen = [None if t is None else t[places] for t in operands[5:]]
            leaves = [
                None if t is None else t.clone().requires_grad_()
                for t in (x, *operands[1:5], *chosen)
            ]
            out = recurrent.recurrent_layer(*leaves, None, kind, 9, False, True)
            out[0].square().sum().backward()
            made = [
                out[0].detach().view(9, len(places), 70),
                leaves[0].grad.view(9, len(places), 40),
            ]
            return [t.numpy() for t in made]
        finally:
            adjit.set_num_threads(before)

    everyone = run([*range(16)])
    for one, other in zip(everyone, run([*range(16)], threads=2), strict=True):
        np.testing.assert_array_equal(one, other)
    for places in ([3], [2, 7, 11]):
        for one, other in zip(everyone, run(places), strict=True):
            np.testing.assert_array_equal(one[:, places], other)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_threads_that_share_a_large_layer_give_its_bits(kind, reverse):
    """Threads pack its weight, and share out a sequence that is alone; there may be more of them than cores."""
    steps, hidden = 6, 500
    large = adjit.ones(512, 512)
    operands = [None if t is None else t.float() for t in operands_of(kind, steps, 2, 10, hidden)]

    def run(threads, places, sizes=None):
        before = adjit.get_num_threads()
        adjit.set_num_threads(threads)
        try:
            x = operands[0].view(steps, 2, 10)[:, places].reshape(-1, 10)
            states = [None if t is None else t[places] for t in operands[5:]]
            leaves = [
                None if t is None else t.detach().clone().requires_grad_()
                for t in (x, *operands[1:5], *states)
            ]
            (large @ large).sum().item()  # which the threads are awake after
            out = recurrent.recurrent_layer(*leaves, sizes, kind, steps, reverse, True)
            quick = recurrent.recurrent_layer(*leaves, sizes, kind, steps, reverse, False)
            loss = sum((t * t).sum() for t in out[: 3 if kind == "lstm" else 2])
            grads = adjit.autograd.grad(
                loss, [leaves[0], *[t for t in leaves[5:] if t is not None]]
            )
            made = [*out[:3], *quick[:3], *grads]
            return [
                t.detach().numpy().reshape(-1, len(places), t.shape[1]) for t in made if t.numel()
            ]
        finally:
            adjit.set_num_threads(before)

    both = run(1, [0, 1])
    for one, other in zip(both, run(2, [0, 1]), strict=True):
        np.testing.assert_array_equal(one, other)
    expected = [t[:, :1] for t in both]
    for threads in (1, 2, 4):
        for one, other in zip(expected, run(threads, [0]), strict=True):
            np.testing.assert_array_equal(one, other)
    for one, other in zip(expected, run(2, [0], adjit.ones(steps, dtype=adjit.int64)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(
    ("sequences", "inputs", "hidden", "options"),
    [
        (3, 4, 5, {}),
        (16, 1, 3, {"num_layers": 2}),
        (20, 5, 70, {"bidirectional": True}),
        (33, 600, 20, {"bias": False}),
        (17, 130, 9, {"dtype": adjit.float64}),
        (16, 300, 400, {}),  # more than WEIGHT_BYTES
    ],
)
def test_without_gradients_nothing_is_kept(name, sequences, inputs, hidden, options):
    """Steps of many sequences multiply their inputs themselves then, to the same bits."""
    layer = getattr(nn, name)(inputs, hidden, **options)
    lengths = sorted(np.random.default_rng(0).integers(1, 8, sequences), reverse=True)
    x = adjit.randn(7, sequences, inputs, dtype=options.get("dtype"))
    for given in (x, nn.utils.rnn.pack_padded_sequence(x, lengths)):
        with adjit.no_grad():
            quick = flat(layer(given))
        usual = flat(layer(given))
        assert not quick[0].requires_grad
        assert usual[0].requires_grad
        for one, other in zip(quick, usual, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.detach().numpy())


def test_results_may_be_overwritten_before_backward():
    """What backward reads are no results that users see."""
    for name in LAYERS:
        layers = both(name, 4, 5)
        x = pair(3, 2, 4)
        grads = []
        for layer, values in zip(layers, x, strict=True):
            out, _ = layer(values)
            loss = (out.clone() ** 2).sum()
            if layer is layers[0]:
                out.mul_(0)
            loss.backward()
            grads.append(values.grad.numpy())
        np.testing.assert_allclose(*grads, rtol=1e-11)


@pytest.mark.parametrize("name", LAYERS)
def test_a_graph_that_is_kept_gives_the_same_gradients_again(name):
    """Gradients may lie over the gates, unless these are read once more."""
    layer = getattr(nn, name)(4, 70)
    x = adjit.randn(3, 2, 4, requires_grad=True)
    for _ in range(4):
        loss = layer(x)[0].square().sum()
        leaves = [x, *layer.parameters()]
        first = [g.clone() for g in adjit.autograd.grad(loss, leaves, retain_graph=True)]
        for one, other in zip(first, adjit.autograd.grad(loss, leaves), strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("name", LAYERS)
def test_sizes_are_whole_numbers(name):
    for size, kind in ((5.0, "float"), ("5", "str")):
        with pytest.raises(TypeError, match=f"hidden_size should be of type int, got: {kind}"):
            getattr(nn, name)(3, size)


@pytest.mark.parametrize("name", LAYERS)
def test_dropout_is_between_layers(name):
    layer = getattr(nn, name)(4, 5, num_layers=3, dropout=0.5)
    parts = [getattr(nn, name)(4 if k == 0 else 5, 5) for k in range(3)]
    made = x = adjit.randn(6, 3, 4)
    adjit.manual_seed(3)
    out = layer(x)[0]
    adjit.manual_seed(3)
    for k, part in enumerate(parts):
        part.load_state_dict(
            {
                key.replace(f"l{k}", "l0"): v
                for key, v in layer.state_dict().items()
                if key.endswith(f"l{k}")
            }
        )
        made = part(made)[0]
        made = nn.functional.dropout(made, 0.5) if k < 2 else made
    np.testing.assert_array_equal(out.detach().numpy(), made.detach().numpy())
    layer.eval()
    assert adjit.equal(layer(x)[0], layer(x)[0])


def test_a_layer_is_captured():
    for name in LAYERS:
        layer = getattr(nn, name)(4, 5, num_layers=2, bidirectional=True)
        params = list(layer.parameters())

        def step(x, layer=layer, params=params):
            loss = layer(x)[0].square().sum()
            return loss, adjit.autograd.grad(loss, params)

        compiled = adjit.compile(step)
        for _ in range(5):
            x = adjit.randn(6, 3, 4)
            (loss, grads), (wanted, others) = compiled(x), step(x)
            assert loss.item() == wanted.item()
            for one, other in zip(grads, others, strict=True):
                np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_captured_layer_has_second_gradients():
    layer = nn.GRU(2, 3, dtype=adjit.float64)
    compiled = adjit.compile(lambda x: layer(x)[0].square().sum())
    for _ in range(5):
        x = adjit.randn(4, 2, 2, dtype=adjit.float64, requires_grad=True)
        found = []
        for function in (compiled, compiled.__wrapped__):
            (g,) = adjit.autograd.grad(function(x), x, create_graph=True)
            found.append(adjit.autograd.grad(g.square().sum(), x)[0].numpy())
        np.testing.assert_allclose(*found, rtol=1e-10)


# --------------------------------------------------------------------------- modules


def message(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error).replace("torch.", "").replace("adjit.", "")
    return None


def both_raise(call):
    """What adjit says and PyTorch says is the same."""
    ours, theirs = message(lambda: call(adjit)), message(lambda: call(torch))
    assert ours == theirs
    assert ours is not None


BAD_LAYERS = [
    (("x",), {}), ((2, 0), {}), ((0, 2), {}), ((2, 3, 0), {}), ((2, 3), {"dropout": 2}),
    ((2, 3), {"dropout": True}), ((2, 3), {"dropout": "x"}), ((2, 3), {"bias": 1}),
    ((2, 3), {"batch_first": 1}), ((2.0, 3), {}),
]  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("case", range(len(BAD_LAYERS)))
def test_bad_layers_raise_as_in_pytorch(name, case):
    args, kwargs = BAD_LAYERS[case]
    if args == ("x",):
        args = ("x", 3)
    both_raise(lambda lib: getattr(lib.nn, name)(*args, **kwargs))


BAD_USES = {
    "input of four axes": lambda lib, m: m(lib.zeros(1, 2, 3, 4)),
    "input of another size": lambda lib, m: m(lib.zeros(5, 2, 3)),
    "input of another dtype": lambda lib, m: m(lib.zeros(5, 2, 4, dtype=lib.float64)),
    "no steps": lambda lib, m: m(lib.zeros(0, 2, 4)),
    "states of another batch": lambda lib, m: m(lib.zeros(5, 2, 4), hx(lib, m, 1, 3, 5)),
    "states without a batch": lambda lib, m: m(lib.zeros(5, 2, 4), hx(lib, m, 1, 5)),
    "states with a batch": lambda lib, m: m(lib.zeros(5, 4), hx(lib, m, 1, 1, 5)),
    "a packed input of another size": lambda lib, m: m(
        lib.nn.utils.rnn.pack_sequence([lib.zeros(2, 3)])
    ),
}


def hx(lib, layer, *shape):
    h = lib.zeros(*shape)
    return (h, h) if type(layer).__name__ == "LSTM" else h


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("case", BAD_USES)
def test_bad_inputs_raise_as_in_pytorch(name, case):
    if (
        case == "a packed input of another size" and name == "LSTM"
    ):  # PyTorch looks at none of these
        with pytest.raises(RuntimeError, match=r"input\.size\(-1\) must be equal to input_size"):
            BAD_USES[case](adjit, nn.LSTM(4, 5))
        return
    both_raise(lambda lib: BAD_USES[case](lib, getattr(lib.nn, name)(4, 5)))


def test_other_bad_arguments_raise_as_in_pytorch():
    both_raise(lambda lib: lib.nn.RNN(2, 3, nonlinearity="sin"))
    both_raise(lambda lib: lib.nn.RNN(2, 3, proj_size=1))
    both_raise(lambda lib: lib.nn.GRU(2, 3, proj_size=1))
    both_raise(lambda lib: lib.nn.LSTM(2, 3, proj_size=3))
    both_raise(lambda lib: lib.nn.LSTM(2, 3, proj_size=-1))
    both_raise(lambda lib: lib.nn.RNNBase("X", 2, 3))


@pytest.mark.parametrize("sizes", [[2, 3], [2, 2], [3, 2, 0], [1, 2, 2]])
def test_sizes_that_no_packed_sequences_have_raise(sizes):
    packed = sequences.PackedSequence(adjit.zeros(5, 4), adjit.tensor(sizes))
    for name in LAYERS:
        with pytest.raises(RuntimeError, match=r"batch_sizes"):
            getattr(nn, name)(4, 5)(packed)


def test_dropout_of_one_layer_warns_as_in_pytorch():
    said = []
    for lib in (nn, torch.nn):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            lib.GRU(2, 3, dropout=0.5)
        said.append([(w.category, str(w.message)) for w in caught])
    assert said[0] == said[1]


def test_an_empty_batch_has_no_results():
    for name in LAYERS:
        layer = getattr(nn, name)(2, 3)
        out, _ = layer(adjit.zeros(4, 0, 2))
        assert out.shape == (4, 0, 3)
        out.sum().backward()
        assert not layer.weight_hh_l0.grad.any()


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_drawn_as_in_pytorch(name):
    layer = getattr(nn, name)(3, 16, num_layers=2)
    for weight in layer.parameters():
        assert weight.abs().max() <= 0.25
        assert weight.std() > 0.1
    theirs = getattr(torch.nn, name)(3, 16, num_layers=2)
    assert [[w.shape for w in each] for each in layer.all_weights] == [
        [tuple(w.shape) for w in each] for each in theirs.all_weights
    ]
    assert (
        layer._flat_weights_names == theirs._flat_weights_names
    )  # by which programs draw them anew
    layer.flatten_parameters()


def test_layers_are_copied_pickled_and_given_other_weights():
    layer = nn.LSTM(2, 3, num_layers=2)
    x = adjit.randn(4, 2, 2)
    wanted = layer(x)[0]
    for fallback in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert adjit.equal(fallback(x)[0], wanted)
    layer.weight_hh_l0 = nn.Parameter(adjit.zeros(12, 3))
    assert not adjit.equal(layer(x)[0], wanted)
    assert layer.double()(x.double())[0].dtype is adjit.float64


@pytest.mark.parametrize("name", LAYERS)
def test_the_functions_behind_layers_take_pytorchs_arguments(name):
    kind = "rnn_tanh" if name == "RNN" else name.lower()
    layers = both(name, 4, 5, num_layers=2)
    operands = [pair(6, 3, 4), *states(name, 2, 3, 5)]
    packed = adjit.tensor([3, 3, 2, 1]), torch.tensor([3, 3, 2, 1])
    data = pair(9, 4)
    for k, lib in enumerate((adjit, torch)):
        call, hidden = getattr(lib, kind), given([t[k] for t in operands[1:]])
        weights = list(layers[k].parameters())
        plain = call(operands[0][k], hidden, weights, True, 2, 0.0, False, False, False)
        steps = call(data[k], packed[k], hidden, weights, True, 2, 0.0, False, False)
        if k == 0:
            kept = [t.detach().numpy() for t in (*plain, *steps)]
    for one, other in zip(kept, (*plain, *steps), strict=True):
        np.testing.assert_allclose(one, other.detach().numpy(), rtol=1e-10, atol=1e-12)
    with pytest.raises(TypeError, match=rf"{kind}\(\) takes the arguments input, hx, params"):
        getattr(adjit, kind)(operands[0][0])


@pytest.mark.parametrize("wrong", range(5))
def test_operands_that_do_not_fit_raise(wrong):
    """Kernels would read what is not there."""
    x, h = adjit.zeros(3, 2, 4), adjit.zeros(1, 2, 5)
    given = [x, h, adjit.zeros(15, 4), adjit.zeros(15, 5)]
    given[wrong % 4] = [
        x, adjit.zeros(1, 3, 5), adjit.zeros(14, 4), adjit.zeros(15, 6), adjit.zeros(3, 1, 4)
    ][wrong] if wrong else x.double()  # fmt: skip
    with pytest.raises(RuntimeError, match=r"expected (a weight or state of size|scalar type)"):
        adjit.gru(given[0], given[1], given[2:], False, 1, 0.0, False, False, False)
    with pytest.raises(RuntimeError, match=r"expected 2 weights and biases of a layer, got 1"):
        adjit.gru(x, h, given[3:], False, 1, 0.0, False, False, False)
    with pytest.raises(
        RuntimeError, match=r"mat1 and mat2 must have the same dtype, but got Double and Float"
    ):
        nn.GRU(4, 5)(x, h.double())
    with pytest.raises(
        RuntimeError, match=r"of 1 layers and directions, got 2 parameters and states of 2"
    ):
        adjit.gru(x, adjit.zeros(2, 2, 5), [adjit.zeros(15, 4), adjit.zeros(15, 5)], False, 1, 0.0, False,
                  False, False)  # fmt: skip


# --------------------------------------------------------------------------- cells


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell", "RNNCell", "relu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("has_states", [True, False])
@pytest.mark.parametrize("batched", [True, False])
def test_a_cell_is_pytorchs(name, bias, has_states, batched):
    options = {"bias": bias}
    if name == "relu":
        name, options["nonlinearity"] = "RNNCell", "relu"
    cells = both(name, 4, 5, **options)
    batch = (3,) if batched else ()
    count = 2 if name == "LSTMCell" else 1
    hidden = [pair(*batch, 5) for _ in range(count)] if has_states else []

    def run(cell, x, _):
        return cell(x[0], given(x[1:])) if has_states else cell(x[0])

    compare(cells, [pair(*batch, 4), *hidden], run, 1e-11)


BAD_CELLS = {
    "input of three axes": lambda lib, c: c(lib.zeros(1, 2, 4)),
    "input of another size": lambda lib, c: c(lib.zeros(2, 3)),
    "states of another batch": lambda lib, c: c(lib.zeros(2, 4), pair_of(lib, c, 3, 5)),
    "states of another size": lambda lib, c: c(lib.zeros(2, 4), pair_of(lib, c, 2, 6)),
    "states of three axes": lambda lib, c: c(lib.zeros(2, 4), pair_of(lib, c, 1, 2, 5)),
}


def pair_of(lib, cell, *shape):
    h = lib.zeros(*shape)
    return (h, h) if type(cell).__name__ == "LSTMCell" else h


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("case", BAD_CELLS)
def test_bad_inputs_of_cells_raise_as_in_pytorch(name, case):
    both_raise(lambda lib: BAD_CELLS[case](lib, getattr(lib.nn, name)(4, 5)))


def test_other_bad_cells_raise_as_in_pytorch():
    both_raise(lambda lib: lib.nn.RNNCell(4, 5, nonlinearity="sin")(lib.zeros(2, 4)))
    both_raise(
        lambda lib: lib.lstm_cell(
            lib.zeros(2, 4), (lib.zeros(2, 5),), lib.zeros(20, 4), lib.zeros(20, 5)
        )
    )


# --------------------------------------------------------------------------- sequences


def utils_of(lib):
    return lib.nn.utils.rnn


def lists(value):
    """Results of both libraries as plain values."""
    if hasattr(value, "_fields"):
        return {name: lists(getattr(value, name)) for name in value._fields}
    if isinstance(value, (list, tuple)):
        return [lists(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value


def ragged(lib, *lengths, extra=(2,)):
    start, made = 0, []
    for length in lengths:
        count = length * int(np.prod(extra))
        made.append(lib.arange(start, start + count).view(length, *extra) * 1.0)
        start += count
    return made


ROUNDS = {
    "packed": lambda lib: utils_of(lib).pack_sequence(ragged(lib, 4, 2, 1)),
    "packed out of order": lambda lib: utils_of(lib).pack_sequence(
        ragged(lib, 2, 4, 1), enforce_sorted=False
    ),
    "unpacked": lambda lib: utils_of(lib).unpack_sequence(
        utils_of(lib).pack_sequence(ragged(lib, 2, 4, 1), enforce_sorted=False)
    ),
    "padded": lambda lib: utils_of(lib).pad_sequence(ragged(lib, 2, 4, 1), padding_value=-1.0),
    "padded on the left": lambda lib: utils_of(lib).pad_sequence(
        ragged(lib, 2, 4, 1), batch_first=True, padding_side="left"
    ),
    "numbers": lambda lib: utils_of(lib).pad_sequence(ragged(lib, 2, 3, extra=())),
    "unpadded": lambda lib: utils_of(lib).unpad_sequence(
        utils_of(lib).pad_sequence(ragged(lib, 2, 4, 1)), lib.tensor([2, 4, 1])
    ),
    "padded again": lambda lib: utils_of(lib).pad_packed_sequence(
        utils_of(lib).pack_sequence(ragged(lib, 2, 4, 1), enforce_sorted=False),
        batch_first=True, padding_value=7.0, total_length=6,
    ),
    "batch first": lambda lib: utils_of(lib).pack_padded_sequence(
        lib.arange(24).view(2, 4, 3), lib.tensor([3, 1]), batch_first=True
    ),
    "inverted": lambda lib: utils_of(lib).invert_permutation(lib.tensor([2, 0, 3, 1])),
    "none inverted": lambda lib: utils_of(lib).invert_permutation(None),
    "from a pair": lambda lib: utils_of(lib).PackedSequence((lib.zeros(3), lib.tensor([2, 1]))),
    "with places": lambda lib: utils_of(lib).PackedSequence(
        lib.zeros(3), lib.tensor([2, 1]), lib.tensor([1, 0])
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ROUNDS)
def test_sequences_are_pytorchs(case):
    assert lists(ROUNDS[case](adjit)) == lists(ROUNDS[case](torch))


def test_packed_sequences_look_like_pytorchs():
    shown = [
        repr(utils_of(lib).pack_sequence([lib.tensor([1, 2]), lib.tensor([3])]))
        for lib in (adjit, torch)
    ]
    assert shown[0] == shown[1]


BAD_SEQUENCES = {
    "out of order": lambda lib: utils_of(lib).pack_padded_sequence(lib.zeros(4, 3, 2), [2, 3, 4]),
    "too few lengths": lambda lib: utils_of(lib).pack_padded_sequence(lib.zeros(4, 3, 2), [4, 3]),
    "a length of nothing": lambda lib: utils_of(lib).pack_padded_sequence(
        lib.zeros(4, 3, 2), [4, 3, 0]
    ),
    "nothing": lambda lib: utils_of(lib).pack_padded_sequence(lib.zeros(0, 3, 2), [1, 1, 1]),
    "lengths of two axes": lambda lib: utils_of(lib).pack_padded_sequence(
        lib.zeros(4, 3, 2), lib.tensor([[4, 3, 1]])
    ),
    "no sequences": lambda lib: utils_of(lib).pad_sequence([]),
    "an unknown side": lambda lib: utils_of(lib).pad_sequence([lib.zeros(1)], padding_side="up"),
    "a number": lambda lib: utils_of(lib).pad_sequence(3),
    "too short": lambda lib: utils_of(lib).pad_packed_sequence(
        utils_of(lib).pack_sequence([lib.zeros(4)]), total_length=2
    ),
    "no pair": lambda lib: utils_of(lib).PackedSequence(lib.zeros(3)),
}


@pytest.mark.parametrize("case", BAD_SEQUENCES)
def test_bad_sequences_raise_as_in_pytorch(case):
    both_raise(BAD_SEQUENCES[case])


def test_lengths_beyond_the_input_raise():
    """PyTorch reads memory that is none of the input's."""
    with pytest.raises(RuntimeError, match=r"at most the 4 steps of the input, but got 5"):
        sequences.pack_padded_sequence(adjit.zeros(4, 2), [5, 1])


def test_packed_sequences_change_their_dtype():
    packed = sequences.pack_sequence(
        [adjit.tensor([1, 2]), adjit.tensor([3])], enforce_sorted=False
    )
    names = {"double": "float64", "float": "float32", "long": "int64", "int": "int32", "short": "int16",
             "char": "int8", "byte": "uint8"}  # fmt: skip
    for method, dtype in names.items():
        made = getattr(packed, method)()
        assert made.data.dtype is getattr(adjit, dtype)
        assert made.batch_sizes.dtype is adjit.int64
        assert adjit.equal(made.sorted_indices, packed.sorted_indices)
    assert packed.long() is packed
    assert packed.cpu() is packed
    assert not packed.is_cuda
    assert not packed.is_pinned()


# --------------------------------------------------------------------------- programs


def test_a_sequence_of_cells_learns_a_sine():
    """PyTorch's example time_sequence_prediction: two LSTM cells in turn, word for word."""

    def program(lib, first, second, linear, signal, future):
        outputs = []
        h_t = lib.zeros(signal.size(0), 5, dtype=lib.double)
        c_t = lib.zeros(signal.size(0), 5, dtype=lib.double)
        h_t2 = lib.zeros(signal.size(0), 5, dtype=lib.double)
        c_t2 = lib.zeros(signal.size(0), 5, dtype=lib.double)
        for input_t in signal.split(1, dim=1):
            h_t, c_t = first(input_t, (h_t, c_t))
            h_t2, c_t2 = second(h_t, (h_t2, c_t2))
            output = linear(h_t2)
            outputs += [output]
        for _ in range(future):
            h_t, c_t = first(output, (h_t, c_t))
            h_t2, c_t2 = second(h_t, (h_t2, c_t2))
            output = linear(h_t2)
            outputs += [output]
        return lib.cat(outputs, dim=1)

    parts = [both("LSTMCell", 1, 5), both("LSTMCell", 5, 5), both("Linear", 5, 1)]
    values = np.sin(np.arange(12) / 3 + np.arange(3)[:, None])
    results = []
    for k, lib in enumerate((adjit, torch)):
        models = [part[k] for part in parts]
        params = [p for m in models for p in m.parameters()]
        optimizer = lib.optim.SGD(params, lr=0.5)
        for _ in range(4):
            optimizer.zero_grad()
            out = program(lib, *models, lib.tensor(values[:, :-1]), 0)
            loss = lib.nn.MSELoss()(out, lib.tensor(values[:, 1:]))
            loss.backward()
            optimizer.step()
        results.append((loss.item(), program(lib, *models, lib.tensor(values), 3).detach().numpy()))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-12)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-10)


def test_rows_of_an_image_are_steps():
    """PyTorch's example mnist_rnn: the rows of an image through an LSTM, its last output through a layer."""
    parts = [
        both("LSTM", 8, 16, dtype="float32", batch_first=True),
        both("Linear", 16, 4, dtype="float32"),
    ]
    images, labels = rng.standard_normal((6, 1, 8, 8)).astype("float32"), rng.integers(0, 4, 6)
    results = []
    for k, lib in enumerate((adjit, torch)):
        layer, linear = (part[k] for part in parts)
        optimizer = lib.optim.SGD([*layer.parameters(), *linear.parameters()], lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            out, _ = layer(lib.tensor(images).reshape(-1, 8, 8))
            scores = lib.nn.functional.log_softmax(linear(out[:, -1, :]), dim=1)
            loss = lib.nn.functional.nll_loss(scores, lib.tensor(labels))
            loss.backward()
            optimizer.step()
        results.append(loss.item())
    assert results[0] == pytest.approx(results[1], rel=1e-5)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN_TANH", "RNN_RELU"])
def test_a_language_model_goes_on_from_detached_states(name):
    """PyTorch's example word_language_model: embedding, recurrent layers, decoder, clipped gradients."""
    options = {} if name in ("LSTM", "GRU") else {"nonlinearity": name[4:].lower()}
    layer = name if name in ("LSTM", "GRU") else "RNN"
    parts = [both("Embedding", 11, 6), both(layer, 6, 7, 2, **options), both("Linear", 7, 11)]
    words = rng.integers(0, 11, (9, 4))
    results = []
    for k, lib in enumerate((adjit, torch)):
        encoder, rnn, decoder = (part[k] for part in parts)
        model = lib.nn.ModuleList([encoder, rnn, decoder])
        weight = next(model.parameters())
        hidden = weight.new_zeros(2, 4, 7)
        hidden = (hidden, weight.new_zeros(2, 4, 7)) if name == "LSTM" else hidden
        for start in (0, 4):
            model.zero_grad()
            hidden = tuple(h.detach() for h in hidden) if name == "LSTM" else hidden.detach()
            data, targets = (lib.tensor(words[start + j : start + j + 4]) for j in (0, 1))
            output, hidden = rnn(encoder(data), hidden)
            decoded = lib.nn.functional.log_softmax(decoder(output).view(-1, 11), dim=1)
            loss = lib.nn.NLLLoss()(decoded, targets.reshape(-1))
            loss.backward()
            lib.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-2.0)
        results.append((loss.item(), [p.detach().numpy() for p in model.parameters()]))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-11)
    for one, other in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def test_a_tensor_that_hides_a_parameter_is_what_is_read():
    """As attributes are looked up: programs put dropped or averaged weights into a layer's own dict."""
    layer, x = nn.RNN(3, 2), adjit.ones(4, 3)
    expected = nn.RNN(3, 2)
    expected.load_state_dict({**layer.state_dict(), "weight_hh_l0": adjit.zeros(2, 2)})
    vars(layer)["weight_hh_l0"] = adjit.zeros(2, 2)
    assert layer(x)[0].tolist() == expected(x)[0].tolist()
