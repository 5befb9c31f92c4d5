"""`compile(f)` gives what `f` gives, whatever changes between calls and whatever else `f` does.

A situation is a program of `wrap`, which is `adjit.compile` or nothing; both must see the same. It says how
many of its calls a plan has to answer at least, and at most where some must run as usual.
"""

import collections
import contextlib
import ctypes
import dataclasses
import datetime
import dis
import enum
import functools
import gc
import io
import itertools
import logging
import math
import operator
import os
import pickle
import random
import re
import subprocess
import sys
import textwrap
import threading
import time
import types
import weakref

import numpy as np
import pytest
from llvmlite.binding import ffi
from test_compile import bits, data, leaf, observe

import adjit as T
from adjit import nn
from adjit.captured import codes, guards, replay
from adjit.captured.compiled import CompiledFunction
from adjit.captured.guards import Guards
from adjit.graph.state import state

SITUATIONS = {}
MANY = 1000


def situation(least=0, most=MANY):
    """Register a program: at least and at most so many of its calls are answered by a plan."""

    def register(f):
        SITUATIONS[f.__name__.replace("_", " ")] = f, least, most
        return f

    return register


def always(most=0):
    """Calls of this situation run as usual."""
    return situation(0, most)


@pytest.fixture
def replays(monkeypatch):
    """How many calls were answered by a replay."""
    counts = []
    run = replay.Replay.run

    def counted(self, arguments):
        results = run(self, arguments)
        if results is not None:
            counts.append(1)
        return results

    monkeypatch.setattr(replay.Replay, "run", counted)
    return counts


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("words", [True, False], ids=["words", "asked"])
@pytest.mark.parametrize("name", SITUATIONS)
def test_compiled_gives_what_the_function_gives(name, words, replays, monkeypatch):
    monkeypatch.setattr(guards, "HAS_WORDS", words and guards.HAS_WORDS)
    program, least, most = SITUATIONS[name]
    expected = observe(program, lambda f: f)
    found = observe(program, T.compile)
    for k, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one == other, f"step {k}"
    assert least <= len(replays) <= most


# ----- guards: what is read from Python -----

FACTOR = 2.0
NUMBERS = {"factor": 2.0}


@situation(5)
def a_global_number(wrap):
    global FACTOR
    step = wrap(lambda x: x * FACTOR)
    for number in (2.0, 2.0, 2.0, 3.0, 3.0, 2.0, 3.0):
        FACTOR = number
        yield step(data(3))
        yield step(data(3))


@situation(2)
def a_global_that_was_not_there(wrap):
    scope = {"abs": abs}
    exec("def step(x):\n    return x * abs(-3)", scope)
    step = wrap(scope["step"])
    for k in range(8):
        if k == 4:
            scope["abs"] = lambda number: number
        yield step(data(3))


@situation(4)
def a_variable_of_a_closure(wrap):
    factor = 2.0
    step = wrap(lambda x: x * factor)
    for number in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0, 5.0):
        factor = number
        yield step(data(3))


@situation(4)
def an_entry_of_a_dict(wrap):
    step = wrap(lambda x: x * NUMBERS["factor"])
    for factor in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0, 5.0):
        NUMBERS["factor"] = factor
        yield step(data(3))


@situation(4)
def a_dict_that_grew(wrap):
    weights = {"a": data(3)}
    step = wrap(lambda x: sum([x * w for w in weights.values()]))
    for k in range(8):
        if k == 4:
            weights["b"] = data(3, seed=4)
        yield step(data(3))


@situation(2)
def the_order_of_a_dict(wrap):
    weights = collections.OrderedDict(a=data(3), b=data(3, seed=2))
    step = wrap(lambda x: functools.reduce(lambda a, w: a * 2 + w, weights.values(), x))
    for k in range(8):
        if k == 4:
            weights.move_to_end("a")
        yield step(data(3))


@situation(2)
def equal_keys_in_another_order(wrap):
    weights = {"a": 2.0, "b": 3.0}
    step = wrap(lambda x: functools.reduce(lambda a, w: a * w + w, weights.values(), x))
    for k in range(8):
        if k == 4:
            weights["a"] = weights.pop("a")
        yield step(data(3))


class Settings:
    def __init__(self):
        self.factor, self.inner = 2.0, types.SimpleNamespace(depth=1)


@situation(4)
def an_attribute_of_an_object_given(wrap):
    settings = Settings()
    step = wrap(lambda x, settings: x * settings.factor)
    for factor in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0, 5.0):
        settings.factor = factor
        yield step(data(3), settings)


@situation(4)
def an_attribute_of_an_object_outside(wrap):
    settings = Settings()
    step = wrap(lambda x: x * settings.inner.depth)
    for depth in (2, 2, 2, 5, 5, 5, 5):
        settings.inner.depth = depth
        yield step(data(3))


@situation(2)
def an_object_with_another_dict(wrap):
    settings = Settings()
    step = wrap(lambda x: x * settings.factor)
    for k in range(8):
        if k == 4:
            settings.__dict__ = {"factor": 7.0}
        yield step(data(3))


@situation(2)
def an_object_of_another_class(wrap):
    class Twice:
        def apply(self, x):
            return x * 2

    class Thrice:
        def apply(self, x):
            return x * 3

    one = Twice()
    step = wrap(lambda x: one.apply(x))
    for k in range(8):
        if k == 4:
            one.__class__ = Thrice
        yield step(data(3))


class Slotted:
    __slots__ = ("factor",)


@situation(4)
def a_slot(wrap):
    settings = Slotted()
    step = wrap(lambda x: x * settings.factor)
    for factor in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0, 5.0):
        settings.factor = factor
        yield step(data(3))


@situation(4)
def an_attribute_found_by_its_name(wrap):
    settings = Settings()
    step = wrap(lambda x, name: x * getattr(settings, name))
    for factor in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0, 5.0):
        settings.factor = factor
        yield step(data(3), "factor")


@situation(2)
def an_attribute_that_hides_that_of_the_class(wrap):
    class Scaler:
        factor = 2.0

    scaler = Scaler()
    step = wrap(lambda x: x * scaler.factor)
    for k in range(8):
        if k == 4:
            scaler.factor = 9.0
        yield step(data(3))


@situation(2)
def an_attribute_of_a_class(wrap):
    class Base:
        factor = 2.0

    class Scaler(Base):
        def __call__(self, x):
            return x * self.factor

    step = wrap(Scaler())
    for k in range(8):
        if k == 4:
            Base.factor = 9.0
        yield step(data(3))


@situation(2)
def a_method_replaced_in_its_class(wrap):
    class Scaler:
        def __call__(self, x):
            return self.scale(x)

        def scale(self, x):
            return x * 2

    step = wrap(Scaler())
    for k in range(8):
        if k == 4:
            Scaler.scale = lambda self, x: x * 3
        yield step(data(3))


@situation(2)
def a_method_replaced_in_an_object(wrap):
    model = Affine()
    step = wrap(lambda x: model(x))
    for k in range(8):
        if k == 4:
            model.forward = lambda x: x * 10
        yield step(data(3))


@situation(2)
def a_function_replaced_in_an_object(wrap):
    settings = types.SimpleNamespace(act=T.relu)
    step = wrap(lambda x: settings.act(x))
    for k in range(8):
        if k == 4:
            settings.act = T.tanh
        yield step(data(3))


@situation(2)
def a_function_replaced_in_a_module(wrap):
    module = types.ModuleType("some_module")
    module.act = lambda x: x * 2
    step = wrap(lambda x: module.act(x))
    for k in range(8):
        if k == 4:
            module.act = lambda x: x * 3
        yield step(data(3))


@situation(2)
def the_code_of_a_function(wrap):
    def inner(x):
        return x * 2

    def other(x):
        return x * 3

    step = wrap(lambda x: inner(x))
    for k in range(8):
        if k == 4:
            inner.__code__ = other.__code__
        yield step(data(3))


@situation(2)
def the_defaults_of_a_function(wrap):
    def inner(x, factor=2.0, *, shift=1.0):
        return x * factor + shift

    step = wrap(lambda x: inner(x))
    for k in range(10):
        if k == 4:
            inner.__defaults__ = (5.0,)
        if k == 7:
            inner.__kwdefaults__["shift"] = 4.0
        yield step(data(3))


@situation(2)
def a_list_as_a_default(wrap):
    def step(x, factors=[2.0]):  # noqa: B006
        return x * factors[0]

    factors = step.__defaults__[0]
    step = wrap(step)
    for k in range(8):
        if k == 4:
            factors[0] = 3.0
        yield step(data(3))


@situation(2)
def a_partial_function(wrap):
    options = {"alpha": 2.0}
    part = functools.partial(T.add, data(3), **options)
    step = wrap(lambda x: part(x))
    for k in range(8):
        if k == 4:
            part.keywords["alpha"] = 5.0
        yield step(data(3))


@situation(2)
def a_set(wrap):
    chosen = {1}
    step = wrap(lambda x: x * sum(chosen))
    for k in range(8):
        if k == 4:
            chosen.add(5)
        yield step(data(3))


@situation(2)
def a_deque(wrap):
    last = collections.deque([1.0], maxlen=2)
    step = wrap(lambda x: x * sum(last))
    for k in range(8):
        if k == 4:
            last.append(5.0)
        yield step(data(3))


@situation(2)
def a_small_array(wrap):
    weights = np.ones(3, np.float32)
    step = wrap(lambda x: x * T.tensor(weights))
    for k in range(8):
        if k == 4:
            weights[1] = 4
        yield step(data(3))


@situation(2)
def a_property(wrap):
    class Scaler:
        def __init__(self):
            self._factor = 2.0

        @property
        def factor(self):
            return self._factor * 2

    scaler = Scaler()
    step = wrap(lambda x: x * scaler.factor)
    for k in range(8):
        if k == 4:
            scaler._factor = 3.0
        yield step(data(3))


@dataclasses.dataclass
class Config:
    factor: float = 2.0
    kinds: tuple = ("a", 1)


class Kind(enum.Enum):
    FIRST = 1
    SECOND = 2


@situation(4)
def dataclasses_and_enums(wrap):
    config = Config()
    step = wrap(lambda x, kind: x * config.factor * kind.value)
    for k in range(10):
        if k == 5:
            config.factor = 3.0
        yield step(data(3), Kind.FIRST if k % 2 else Kind.SECOND)


@situation(2)
def the_environment(wrap):
    step = wrap(lambda x: x * float(os.environ.get("ADJIT_TEST_FACTOR", "2")))
    try:
        for k in range(8):
            if k == 4:
                os.environ["ADJIT_TEST_FACTOR"] = "5"
            yield step(data(3))
    finally:
        os.environ.pop("ADJIT_TEST_FACTOR", None)


@situation(2)
def a_context_manager_of_the_user(wrap):
    settings = Settings()

    @contextlib.contextmanager
    def doubled():
        yield settings.factor

    def step(x):
        with doubled() as factor:
            return x * factor

    step = wrap(step)
    for k in range(8):
        if k == 4:
            settings.factor = 4.0
        yield step(data(3))


# ----- guards: modules, tensors, hooks, optimisers -----


class Affine(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(data(3))
        self.register_buffer("shift", data(3, seed=8))
        self.factor, self.layers = 1.0, [T.tanh]
        self.parts = nn.ModuleList([nn.Identity()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        for part in self.parts:
            x = part(x)
        return x * self.weight * self.factor + self.shift


def change(alter, least=2):
    """A situation in which a module is altered after four calls, trained by one function."""

    def program(wrap):
        model = Affine()

        def step(x):
            model.zero_grad()
            loss = model(x).pow(2).sum()
            loss.backward()
            return loss.detach()

        step = wrap(step)
        for k in range(9):
            if k == 4:
                alter(model)
            yield step(data(3, seed=k)), [(n, p.grad) for n, p in model.named_parameters()]

    program.__name__ = alter.__name__
    return situation(least)(program)


@change
def a_number_of_a_module(model):
    model.factor = 3.0


@change
def a_list_of_layers_that_grew(model):
    model.layers.append(T.sigmoid)


@change
def a_list_of_modules_that_grew(model):
    model.parts.append(nn.ReLU())


@change
def a_submodule_replaced(model):
    model.parts[0] = nn.Sigmoid()


@change
def a_parameter_replaced(model):
    model.weight = nn.Parameter(data(3, seed=30))


@change
def a_buffer_replaced(model):
    model.shift = data(3, seed=30)


@change
def a_parameter_without_gradients(model):
    model.weight.requires_grad_(False)
    model.parts.append(nn.Linear(3, 3))


@change
def a_forward_hook(model):
    model.register_forward_hook(lambda module, args, out: out * 2)


@change
def a_pre_hook_of_a_part(model):
    model.parts[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))


@change
def a_hook_of_a_parameter(model):
    model.weight.register_hook(lambda g: g * 3)


@change
def a_module_in_evaluation(model):
    model.parts.append(nn.Dropout(0.5))
    model.eval()


@change
def a_module_of_another_class(model):
    class Doubled(Affine):
        def forward(self, x):
            return super().forward(x) * 2

    model.__class__ = Doubled


@situation(3)
def a_global_hook(wrap):
    model = Affine()
    step = wrap(lambda x: model(x))
    for k in range(10):
        if k == 4:
            handle = nn.modules.module.register_module_forward_hook(lambda m, a, out: out + 1)
        if k == 7:
            handle.remove()
        yield step(data(3))


@situation(3)
def a_backward_hook(wrap):
    model = Affine()
    step = wrap(lambda x: model(x).pow(2).sum().backward())
    for k in range(9):
        if k == 4:
            model.register_full_backward_hook(lambda module, grads, outs: (grads[0] * 3,))
        x = data(3, seed=k).requires_grad_()
        model.zero_grad()
        step(x)
        yield x.grad, model.weight.grad


@situation(3)
def a_hook_removed(wrap):
    model = Affine()
    handle = model.register_forward_hook(lambda module, args, out: out * 2)
    step = wrap(lambda x: model(x))
    for k in range(8):
        if k == 4:
            handle.remove()
        yield step(data(3))


@situation(3)
def hooks_of_arguments(wrap):
    def step(x):
        (x * x).sum().backward()

    step = wrap(step)
    for k in range(9):
        x = data(3, seed=k).requires_grad_()
        if k > 5:
            x.register_hook(lambda g: g * 5)
        step(x)
        yield x.grad


@situation(2)
def a_tensor_in_a_dict_replaced(wrap):
    tensors = {"w": data(3)}
    step = wrap(lambda x: x * tensors["w"])
    for k in range(8):
        if k == 4:
            tensors["w"] = data(3, seed=33)
        yield step(data(3))


@situation(4)
def a_module_given_as_an_argument(wrap):
    first, second = Affine(), nn.Linear(3, 3)
    step = wrap(lambda module, x: module(x))
    for k in range(12):
        if k == 6:
            first.factor = 4.0
        yield step(first if k % 2 else second, data(3))


@situation(3)
def a_scheduler_outside(wrap):
    w = leaf(3)
    opt = T.optim.SGD([w], lr=0.1, momentum=0.5)
    scheduler = T.optim.lr_scheduler.ExponentialLR(opt, 0.5)

    def step(x):
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()

    step = wrap(step)
    for k in range(8):
        step(data(3, seed=k))
        scheduler.step()
        yield w, opt.param_groups[0]["lr"]


def optimiser(name, alter, make=T.optim.Adam, least=2):
    """A situation in which an optimiser is altered after four steps."""

    def program(wrap):
        w, b = leaf(3), leaf(3, seed=3)
        opt = make([w], lr=0.1)

        def step(x):
            opt.zero_grad()
            (w * x + b).pow(2).sum().backward()
            opt.step()

        step = wrap(step)
        for k in range(10):
            if k == 5:
                alter(opt, b)
            step(data(3, seed=k))
            yield w, b, b.grad
            b.grad = None

    program.__name__ = name
    situation(least)(program)


def _put_moments(opt, b):
    (moments,) = opt.state.values()
    moments["exp_avg"] = T.ones(3)


optimiser("a parameter added to an optimiser", lambda o, b: o.add_param_group({"params": [b]}))
optimiser("parameters of a group exchanged", lambda o, b: o.param_groups[0]["params"].append(b))
optimiser("state of an optimiser loaded", lambda o, b: o.load_state_dict(o.state_dict()))
optimiser("a moment replaced", _put_moments)
optimiser("state of an optimiser cleared", lambda o, b: o.state.clear())
optimiser(
    "options of an optimiser", lambda o, b: o.param_groups[0].update(lr=0.5, betas=(0.5, 0.6))
)
optimiser(
    "an option that chooses", lambda o, b: o.param_groups[0].update(nesterov=True),
    functools.partial(T.optim.SGD, momentum=0.5),
)  # fmt: skip
optimiser(
    "a learning rate that is a tensor", lambda o, b: o.param_groups[0].update(lr=T.tensor(0.5))
)
optimiser(
    "a hook of an optimiser",
    lambda o, b: o.register_step_pre_hook(lambda o, a, k: (b.data.mul_(0.5), None)[1]),
)
optimiser(
    "momentum switched off", lambda o, b: o.param_groups[0].update(momentum=0, dampening=0.5),
    functools.partial(T.optim.SGD, momentum=0.5),
)  # fmt: skip
optimiser("options of Rprop", lambda o, b: o.param_groups[0].update(etas=(0.4, 2.0)), T.optim.Rprop)
optimiser("options of RMSprop", lambda o, b: o.param_groups[0].update(alpha=0.5), T.optim.RMSprop)


# ----- as usual: what a function does beside its tensors -----


@always()
def a_counter_of_its_own(wrap):
    calls = 0

    def step(x):
        nonlocal calls
        calls += 1
        return x * calls

    step = wrap(step)
    for _ in range(8):
        yield step(data(3)), calls


@always()
def a_counter_that_it_does_not_read(wrap):
    counts = Settings()

    def step(x):
        counts.calls = getattr(counts, "calls", 0) + 1
        return x * 2

    step = wrap(step)
    for _ in range(8):
        yield step(data(3)), counts.calls


@always()
def a_list_that_it_writes(wrap):
    seen = []

    def step(x):
        seen.append(len(seen))
        return x * 2

    step = wrap(step)
    for _ in range(8):
        yield step(data(3)), list(seen)


@always()
def a_list_given_that_it_writes(wrap):
    def step(x, seen):
        seen.append(x * 2)
        return x

    step = wrap(step)
    for _ in range(8):
        seen = []
        yield step(data(3), seen), seen


@always()
def an_attribute_that_it_sets(wrap):
    model = Affine()

    def step(x):
        model.last = x * 2
        return model(x)

    step = wrap(step)
    for k in range(8):
        yield step(data(3, seed=k)), model.last


@always()
def a_global_that_it_writes(wrap):
    scope = {"calls": 0}
    exec("def step(x):\n    global calls\n    calls += 1\n    return x * 2", scope)
    step = wrap(scope["step"])
    for _ in range(8):
        yield step(data(3)), scope["calls"]


@always()
def an_attribute_of_a_class_that_it_writes(wrap):
    class Counter:
        calls = 0

    def step(x):
        Counter.calls += 1
        return x * 2

    step = wrap(step)
    for _ in range(8):
        yield step(data(3)), Counter.calls


@always()
def a_scheduler_inside(wrap):
    w = leaf(3)
    opt = T.optim.SGD([w], lr=0.1)
    scheduler = T.optim.lr_scheduler.StepLR(opt, 2, 0.5)

    def step(x):
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()
        scheduler.step()

    step = wrap(step)
    for k in range(8):
        step(data(3, seed=k))
        yield w, opt.param_groups[0]["lr"]


@always()
def a_learning_rate_set_inside(wrap):
    w = leaf(3)
    opt = T.optim.SGD([w], lr=0.1)
    rates = iter(range(1, 100))

    def step(x):
        opt.param_groups[0]["lr"] = 0.1 / next(rates)
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()

    step = wrap(step)
    for k in range(8):
        step(data(3, seed=k))
        yield w


@always()
def random_numbers_of_python(wrap):
    random.seed(3)
    step = wrap(lambda x: x * random.random())
    for _ in range(8):
        yield step(data(3))


@always()
def a_random_choice(wrap):
    random.seed(3)
    step = wrap(lambda x: x * (2 if random.choice([True, False]) else 3))
    for _ in range(8):
        yield step(data(3))


@always()
def random_numbers_of_numpy(wrap):
    np.random.seed(3)
    step = wrap(lambda x: x * float(np.random.rand()))
    for _ in range(8):
        yield step(data(3))


@always()
def a_generator_of_numpy(wrap):
    generator = np.random.default_rng(3)
    step = wrap(lambda x: x * float(generator.uniform()))
    for _ in range(8):
        yield step(data(3))


@always()
def a_function_of_chance_under_another_name(wrap):
    random.seed(3)
    draw = random.random
    step = wrap(lambda x: x * sum(map(operator.methodcaller("__call__"), [draw])))
    for _ in range(8):
        yield step(data(3))


@always()
def an_iterator(wrap):
    numbers = itertools.count()
    step = wrap(lambda x: x * next(numbers))
    for _ in range(8):
        yield step(data(3))


@always()
def a_generator(wrap):
    numbers = (k * k for k in range(100))
    step = wrap(lambda x: x * next(numbers))
    for _ in range(8):
        yield step(data(3))


@always()
def the_clock(wrap):
    ticks = [0.0]

    def step(x):
        ticks[0] = time.perf_counter()
        return x * 2

    step = wrap(step)
    last = 0.0
    for _ in range(6):
        yield step(data(3)), ticks[0] > last
        last = ticks[0]


@always()
def the_clock_alone(wrap):
    step = wrap(lambda x: x * (time.time() > 0) + 0 * datetime.datetime.now().year)
    for _ in range(6):
        yield step(data(3))


@always()
def something_printed(wrap):
    def step(x):
        print("step")
        return x * 2

    step = wrap(step)
    for _ in range(6):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            value = step(data(3))
        yield value, out.getvalue()


@always()
def something_printed_by_another(wrap):
    def step(x):
        list(map(print, ["step"]))
        return x * 2

    step = wrap(step)
    for _ in range(6):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            value = step(data(3))
        yield value, out.getvalue()


@situation(4)
def a_print_that_does_not_happen(wrap):
    settings = Settings()

    def step(x):
        if settings.factor > 5:
            print("large")
        return x * 2

    step = wrap(step)
    for _ in range(6):
        yield step(data(3))


@always()
def something_logged(wrap):
    log, seen = logging.getLogger("adjit.test"), []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())
    log.addHandler(handler)

    def step(x):
        log.warning("step")
        return x * 2

    step = wrap(step)
    for _ in range(6):
        yield step(data(3)), list(seen)
    log.removeHandler(handler)


@always()
def a_file_read(wrap):
    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"adjit_{os.getpid()}")

    def step(x):
        with open(path) as file:
            return x * float(file.read())

    step = wrap(step)
    for k in range(6):
        with open(path, "w") as file:
            file.write(str(k))
        yield step(data(3))
    os.unlink(path)


@always()
def a_lock_held(wrap):
    lock = threading.Lock()

    def step(x):
        with lock:
            return x * 2

    step = wrap(step)
    for _ in range(6):
        yield step(data(3))


@always(2)
def a_large_array(wrap):
    weights = np.ones(5000, np.float32)
    step = wrap(lambda x: x * T.tensor(weights).sum())
    for k in range(8):
        weights[k] = 4
        yield step(data(3))


@situation(5)
def a_choice_by_a_value(wrap):
    best = T.tensor(0.5)

    def step(x):
        loss = (x * x).sum()
        if loss < best:
            return loss * 2
        return loss

    step = wrap(step)
    for k in range(8):
        yield step(data(3, seed=k) / (k + 1))


@always()
def a_loop_until_a_value(wrap):
    def step(x):
        steps = 0
        while x.abs().max().item() > 0.1:
            x, steps = x / 2, steps + 1
        return x, steps

    step = wrap(step)
    for k in range(8):
        yield step(data(3, seed=k) * k)


@always()
def early_stopping_in_a_training_loop(wrap):
    w, losses = leaf(3), []
    opt = T.optim.Adam([w], lr=0.1)

    def step(x):
        opt.zero_grad()
        loss = (w * x - 1).pow(2).sum()
        loss.backward()
        if not math.isnan(loss.item()):
            opt.step()
        losses.append(loss.item())
        return loss.detach()

    step = wrap(step)
    for k in range(8):
        yield step(data(3, seed=k)), w, list(losses)


@situation(4)
def a_compiled_function_inside_one_that_runs_as_usual(wrap):
    w = leaf(3)
    inner = wrap(lambda x: (w * x).tanh())

    def outer(x):
        out = inner(x)
        return out * 2 if out.sum().item() > 0 else out

    outer = wrap(outer)
    for k in range(10):
        yield outer(data(3, seed=k))


@always()
def a_disabled_function_inside(wrap):
    seen = []

    @T.compiler.disable
    def report(x):
        seen.append(1)

    def step(x):
        report(x)
        return x * 2

    step = wrap(step)
    for _ in range(8):
        yield step(data(3)), len(seen)


@always()
def an_opaque_object(wrap):
    counter = ctypes.c_int(2)
    step = wrap(lambda x: x * counter.value)
    for k in range(8):
        counter.value = k
        yield step(data(3))


@always()
def a_cached_function(wrap):
    @functools.lru_cache
    def factor(name):
        return NUMBERS["factor"]

    step = wrap(lambda x: x * factor("a"))
    for k in range(8):
        NUMBERS["factor"] = float(k)
        if k == 5:
            factor.cache_clear()
        yield step(data(3))


@always(4)
def a_number_that_is_new_at_every_call(wrap):
    settings = Settings()
    step = wrap(lambda x: x * settings.factor)
    for k in range(40):
        settings.factor = float(k)
        yield step(data(3))


@situation(4)
def an_error_that_is_caught(wrap):
    def step(x):
        try:
            raise KeyError("none")
        except KeyError:
            return x * 2

    step = wrap(step)
    for _ in range(6):
        yield step(data(3))


@situation(4)
def a_weak_reference(wrap):
    settings = Settings()
    reference = weakref.ref(settings)
    step = wrap(lambda x: x * reference().factor)
    for k in range(9):
        if k == 5:
            settings.factor = 6.0
        yield step(data(3))


# ----- what PyTorch's programs say around it -----


def captures_of(compiled):
    """The object behind a compiled function."""
    (found,) = [
        c.cell_contents
        for c in compiled.__closure__
        if isinstance(c.cell_contents, CompiledFunction)
    ]
    return found


def guards_of(compiled):
    """The guards of the newest capture of a compiled function."""
    return [kind.replays[-1].guards for kind in captures_of(compiled).captures.values()][-1]


def guards_in(compiled):
    """The guards of all captures of a compiled function."""
    kinds = captures_of(compiled).captures.values()
    return {capture.guards for kind in kinds for capture in kind.replays}


def test_a_compiled_module_is_a_module(replays):
    model = Affine()
    compiled = T.compile(model)
    assert isinstance(compiled, nn.Module)
    assert [n for n, _ in compiled.named_parameters()] == ["_orig_mod.weight"]
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.shift"]
    assert compiled.weight is model.weight
    for k in range(4):
        assert bits(compiled(data(3, seed=k))) == bits(model(data(3, seed=k)))
    assert len(replays) >= 2
    compiled.factor = 3.0
    assert model.factor == 3.0
    assert bits(compiled(data(3))) == bits(model(data(3)))
    compiled.eval()
    assert model.training is compiled.training is model.parts[0].training is False
    again = pickle.loads(pickle.dumps(T.compile(nn.Linear(2, 2))))
    assert list(again.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    restored = T.compile(Affine())
    restored.load_state_dict(compiled.state_dict())
    assert bits(restored(data(3))) == bits(Affine()(data(3)))
    assert repr(compiled).startswith("OptimizedModule(\n  (_orig_mod): Affine(")
    assert compiled
    with pytest.raises(TypeError, match="Affine does not support len"):
        len(compiled)
    assert len(T.compile(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))) == 2
    assert not T.compile(nn.Sequential())


def test_truth_values_of_numbers_are_guarded(replays):
    def of_a_number(x, k):
        return x * 3 if isinstance(k, bool) else x * 2 if bool(k) else x

    compiled = T.compile(of_a_number)
    for k in (2, 2, 2, True, 0, 0, False, 2.5, 2):
        assert bits(compiled(data(3), k)) == bits(of_a_number(data(3), k))
    assert len(replays) >= 2


def test_a_module_compiled_in_place(replays):
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    expected = [model(data(2, 3, seed=k)) for k in range(5)]
    model.compile()
    assert [bits(model(data(2, 3, seed=k))) for k in range(5)] == bits(expected)[1]
    assert len(replays) >= 3
    assert list(model.state_dict()) == ["0.weight", "0.bias"]
    copy = pickle.loads(pickle.dumps(model))
    assert bits(copy(data(2, 3))) == bits(expected[1])


def test_keywords_of_pytorch(replays):
    f = T.compile(
        lambda x: x * 2, fullgraph=True, dynamic=False, backend="inductor", mode="max-autotune"
    )
    assert [f(data(3, seed=k)).shape for k in range(3)] == [(3,)] * 3
    assert len(replays) == 1
    g = T.compile(options={"triton.cudagraphs": True})(lambda x: x * 3)
    assert bits(g(data(3))) == bits(data(3) * 3)

    def plain(x):
        return x

    assert T.compile(plain, disable=True) is plain
    assert T.compile(plain, backend="eager") is plain


def test_fullgraph_refuses_what_cannot_be_captured():
    f = T.compile(lambda x: x * x.sum().item(), fullgraph=True)
    f(data(3))
    with pytest.raises(T._dynamo.exc.Unsupported, match="looks at the value of a tensor"):
        f(data(3))
    draws = T.compile(lambda x: x * random.random(), fullgraph=True)
    draws(data(3))
    with pytest.raises(T._dynamo.exc.Unsupported, match=r"Random\.random"):
        draws(data(3))


def test_nothing_is_checked_where_purity_is_assumed(replays):
    settings, calls = Settings(), []

    @T.compile(assume_pure=True)
    def step(x):
        calls.append(1)
        return x * settings.factor

    for _ in range(5):
        out = step(data(3))
    settings.factor = 7.0
    assert bits(step(data(3))) == bits(out) == bits(data(3) * 2.0)
    assert (len(calls), len(replays)) == (2, 4)


def test_it_can_be_asked_whether_a_call_is_compiled():
    seen = []
    f = T.compile(lambda x: x * (2 if T.compiler.is_compiling() else 3))
    for _ in range(4):
        assert bits(f(data(3))) == bits(data(3) * 2)

    @T.compiler.disable
    def ask(x):
        seen.append(T.compiler.is_compiling())
        return x

    T.compile(lambda x: ask(x))(data(3))
    assert seen == [False]
    assert not T.compiler.is_compiling()
    assert not state.compiling


def test_reset_forgets_what_was_captured(replays):
    f = T.compile(lambda x: x * 2)
    for _ in range(4):
        f(data(3))
    T.compiler.reset()
    assert not captures_of(f).captures
    for _ in range(4):
        assert bits(f(data(3))) == bits(data(3) * 2)
    assert len(replays) == 4
    T._dynamo.reset()
    T._dynamo.config.cache_size_limit = 64


def test_logs_say_why():
    program = textwrap.dedent(
        """
        import adjit as T
        factor = 2.0
        f = T.compile(lambda x: x * factor)
        for factor in (2.0, 2.0, 3.0, 3.0):
            f(T.ones(3))
        g = T.compile(lambda x: x * x.sum().item())
        for _ in range(2):
            g(T.ones(3))
        """
    )
    environment = {**os.environ, "ADJIT_LOGS": "graph_breaks,recompiles"}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert "[adjit.compile] <lambda> is captured again: factor of the globals of <lambda> has" in (
        found.stderr
    )
    assert (
        "[adjit.compile] <lambda> runs as usual: it looks at the value of a tensor" in found.stderr
    )
    environment["ADJIT_LOGS"] = "everything"
    found = subprocess.run(
        [sys.executable, "-c", "import adjit"], env=environment, capture_output=True, text=True
    )
    assert "ADJIT_LOGS must be some of graph_breaks, recompiles, got everything" in found.stderr


def test_a_running_profiler_is_left_alone(replays):
    seen = []
    f = T.compile(lambda x: x * 2)
    sys.setprofile(lambda frame, event, argument: seen.append(event))
    try:
        for _ in range(4):
            f(data(3))
        assert sys.getprofile() is not None
    finally:
        sys.setprofile(None)
    assert not replays
    assert seen


# ----- guards themselves -----


def test_most_guards_are_words_of_memory():
    model = Affine()
    opt = T.optim.Adam(model.parameters())

    @T.compile
    def step(x):
        opt.zero_grad()
        model(x).pow(2).sum().backward()
        opt.step()

    for k in range(4):
        step(data(3, seed=k))
    found = guards_of(step)
    assert len(found.table) // 24 > 50
    assert not found._asked
    assert found.hold()


def test_what_has_moved_without_changing_is_found_again(replays):
    scope = {"factor": 2.0}
    exec("def step(x):\n    return x * factor", scope)
    step = T.compile(scope["step"])
    for _ in range(3):
        step(data(3))
    before = guards_of(step).table
    for k in range(1000):
        scope[f"other_{k}"] = k  # the table of the dict grows, and moves
    assert bits(step(data(3))) == bits(data(3) * 2)
    assert guards_of(step).table != before
    scope["factor"] = float("2")  # another object
    assert bits(step(data(3))) == bits(data(3) * 2)
    assert len(replays) == 3
    scope["factor"] = -0.0
    assert bits(step(data(3))) == bits(data(3) * -0.0)


@pytest.mark.parametrize("size", [0, 1, 5, 30, 1000])
def test_words_tell_what_a_container_holds(size):
    mapping = {f"key {k}": object() for k in range(size)}
    items = [object() for _ in range(size)]
    instance = Settings()
    vars(instance).update(mapping)
    for unit in (
        guards.Whole(mapping, "m"),
        guards.Items(items, "l"),
        guards.Entries(mapping, ["key 0", "other"], "e"),
        guards.Entries(vars(instance), ["key 0", "factor", "other"], "a"),
        guards.Object(instance, vars(instance), "o"),
    ):
        held = Guards([unit])
        assert held.hold()
        assert not (guards.HAS_WORDS and held._asked)
        assert guards._first_changed(held) == -1
    mapping["other"] = instance.other = 1
    items.append(1)
    for unit in (guards.Whole({**mapping}, "m"), guards.Items([*items], "l")):
        assert Guards([unit]).hold()


def test_captures_that_depend_on_the_same_share_their_guards():
    """One table is read then, not one for every shape."""
    settings = types.SimpleNamespace(scale=2.0)

    @T.compile
    def scaled(x):
        return x * settings.scale

    def at(sizes):
        for n in sizes:
            for _ in range(3):
                assert scaled(T.ones(n)).tolist() == [settings.scale] * n

    at([1, 2, 3])
    held = guards_in(scaled)
    assert len(held) == (1 if guards.HAS_WORDS else 3)
    settings.scale = 3.0
    at([2, 1])
    others = guards_in(scaled) - held
    assert len(others) == (1 if guards.HAS_WORDS else 2)
    del settings.scale
    with pytest.raises(AttributeError, match="scale"):
        scaled(T.ones(1))


@pytest.mark.parametrize("change", range(8))
def test_every_word_is_looked_at(change):
    keys = [f"key {k}" for k in range(8)]
    mapping, items = dict.fromkeys(keys, 0), list(keys)
    held = Guards([guards.Whole(mapping, "m"), guards.Items(items, "l")])
    mapping[keys[change]] = 1
    assert not held.hold()
    assert held.failed == "m"
    mapping[keys[change]] = 0
    assert held.hold()
    items[change] = "other"
    assert not held.hold()
    assert held.failed == "l"


def test_every_instruction_that_reads_a_name_is_known():
    """Those of later Pythons too: one that is forgotten would be a name that nobody guards."""
    reads = re.compile("ATTR|GLOBAL|NAME|IMPORT|METHOD|CLASS|SPECIAL|LOCALS|DICT")
    others = {
        "IMPORT_NAME",  # has a branch of its own
        "IMPORT_STAR", "DELETE_NAME", "LOAD_LOCALS", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF",
        "LOAD_BUILD_CLASS", "KW_NAMES", "SET_FUNCTION_ATTRIBUTE",  # no name of another scope
        "LOAD_SPECIAL",  # what `with` calls, and a class is guarded with all that runs by itself
        "DICT_MERGE", "DICT_UPDATE",
    }  # fmt: skip
    known = codes._GLOBALS | codes._ATTRIBUTES | codes._ANY_ATTRIBUTE | others
    real = {
        name for name, number in dis.opmap.items() if number < 256
    }  # compilers alone see others
    found = {n for n in real if reads.search(n) and not n.startswith("INSTRUMENTED")}
    assert sorted(found - known) == []


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0
        self.weight = nn.Parameter(T.ones(3))

    def forward(self, x):
        return x * self.weight * self.scale


class Shifted(Scaled):
    def forward(self, x):
        return super().forward(x) + 1


def replays_in(monkeypatch):
    """How many calls a plan has answered, in a list."""
    count, run = [0], replay.Replay.run

    def counted(self, arguments):
        found = run(self, arguments)
        count[0] += found is not None
        return found

    monkeypatch.setattr(replay.Replay, "run", counted)
    return count


def test_methods_of_parents_are_captured_and_guarded(monkeypatch):
    count, model = replays_in(monkeypatch), Shifted()
    call = T.compile(lambda x: model(x).detach())
    for _ in range(5):
        assert call(T.ones(3)).tolist() == [3, 3, 3]
    assert count[0] >= 3
    model.scale = 3.0
    for _ in range(3):
        assert call(T.ones(3)).tolist() == [4, 4, 4]
    monkeypatch.setattr(Scaled, "forward", lambda self, x: x * 10)
    for _ in range(3):
        assert call(T.ones(3)).tolist() == [11, 11, 11]


def test_functional_call_is_captured_and_guarded(monkeypatch):
    count, call = (
        replays_in(monkeypatch),
        T.func.functional_call,
    )  # which is imported at its first use
    inner = Scaled()
    model = nn.Sequential(inner, nn.ReLU())
    given = {"0.weight": T.tensor([1.0, -1.0, 2.0], requires_grad=True)}

    @T.compile
    def step(x):
        loss = call(model, given, (x,)).sum()
        return T.autograd.grad(loss, given["0.weight"])[0]

    for _ in range(6):
        assert step(T.ones(3)).tolist() == [2, 0, 2]
    assert count[0] >= 3
    inner.scale = 5.0
    for _ in range(3):
        assert step(T.ones(3)).tolist() == [5, 0, 5]
    given["0.weight"] = T.tensor([-1.0, 1.0, 1.0], requires_grad=True)
    for _ in range(3):
        assert step(T.ones(3)).tolist() == [0, 5, 5]
    model[1] = nn.Identity()
    for _ in range(3):
        assert step(T.ones(3)).tolist() == [5, 5, 5]


def test_what_the_collector_calls_is_no_part_of_a_function(monkeypatch):
    """JAX has such a function."""
    count, seen = replays_in(monkeypatch), []

    def called(phase, info):
        seen.append(time.time())

    step = T.compile(lambda x: (x * 2 + 1).sum())
    before = gc.get_threshold()
    gc.callbacks.append(called)
    try:
        gc.set_threshold(1)
        for _ in range(6):
            assert step(T.ones(3)).item() == 9
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(called)
    assert seen
    assert count[0] >= 3


def test_what_finds_modules_for_the_library_is_no_part_of_a_function(monkeypatch):
    """setuptools has a finder that reads attributes by any name, and others ask the clock."""
    count, asked = replays_in(monkeypatch), []

    def note(name):
        asked.append((getattr(T, "float" + "32"), time.time(), name))

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            note(name)

    inside = {"__name__": "adjit.schedule.looks_for_a_module"}
    exec("import importlib.util\ndef look(): importlib.util.find_spec('nowhere')", inside)
    look = inside["look"]

    def f(x):
        look()
        return x * 2 + 1

    step = T.compile(f)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    for _ in range(6):
        assert step(T.ones(3)).tolist() == [3, 3, 3]
    assert asked
    assert count[0] >= 3


def test_finalizers_of_what_was_compiled_are_no_part_of_a_function():
    """They take a lock of llvmlite's, whenever something dies: a capture was refused for it."""
    lock, watched = ffi._LLVMLock(), codes.Run()
    with watched.watching(), lock:
        pass
    assert watched.problem == ""
