"""What people write in functions that they compile: captured as a whole, and the same bits as uncompiled.

Each case makes a function and its arguments.
What is not captured runs as usual, and says why: these are cases too.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import logging
import math
import operator
import random
import re
import time
import types
import warnings as W

import numpy as np
import pytest

import adjit as T

nn, F, D = T.nn, T.nn.functional, T.distributions
CASES = {}


def case(make):
    CASES[make.__name__.rstrip("_")] = make
    return make


def rows():
    return T.tensor(np.random.default_rng(1).uniform(-1, 1, (8, 16)).astype(np.float32))


def tokens():
    return T.tensor(np.random.default_rng(2).integers(0, 50, (4, 12)))


LIN = nn.Linear(16, 16)
EMB = nn.Embedding(50, 16)


@case
def checkpoint():
    from adjit.utils.checkpoint import checkpoint as ck

    return lambda x: ck(lambda y: LIN(y).relu(), x, use_reentrant=False).sum(), (
        rows().requires_grad_(),
    )


@case
def checkpoint_reentrant():
    from adjit.utils.checkpoint import checkpoint as ck

    return lambda x: ck(lambda y: LIN(y).relu(), x, use_reentrant=True).sum(), (
        rows().requires_grad_(),
    )


@case
def transformer():
    m = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return lambda x: m(x), (T.randn(2, 5, 16),)


@case
def transformer_mask():
    m = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    return lambda x: m(x, x, tgt_mask=mask, tgt_is_causal=True), (T.randn(2, 5, 16),)


@case
def mha():
    m = nn.MultiheadAttention(16, 2, batch_first=True)
    return lambda x: m(x, x, x)[0], (T.randn(2, 5, 16),)


@case
def lstm():
    m = nn.LSTM(16, 16, 2, batch_first=True)
    return lambda x: m(x)[0], (T.randn(2, 5, 16),)


@case
def gru_packed():
    m = nn.GRU(16, 16, batch_first=True)

    def f(x):
        p = nn.utils.rnn.pack_padded_sequence(x, [5, 3], batch_first=True)
        o, _ = m(p)
        return nn.utils.rnn.pad_packed_sequence(o, batch_first=True)[0]

    return f, (T.randn(2, 5, 16),)


@case
def normal_logprob():
    return lambda x: D.Normal(x, 1.0).log_prob(x + 1).sum(), (rows(),)


@case
def normal_rsample():
    return lambda x: D.Normal(x, x.exp()).rsample(), (rows(),)


@case
def categorical():
    return lambda x: D.Categorical(logits=x).log_prob(T.zeros(8, dtype=T.int64)), (rows(),)


@case
def categorical_sample():
    return lambda x: D.Categorical(logits=x).sample(), (rows(),)


@case
def kl():
    return lambda x: D.kl_divergence(D.Normal(x, x.exp()), D.Normal(0.0, 1.0)).sum(), (rows(),)


@case
def mvn():
    return lambda x: D.Independent(D.Normal(x, 1.0), 1).log_prob(x), (rows(),)


@case
def gamma():
    return lambda x: D.Gamma(x.exp(), 1.0).rsample(), (rows(),)


@case
def step_clip_sched():
    m = nn.Linear(16, 4)
    o = T.optim.AdamW(m.parameters(), lr=1e-3)
    T.optim.lr_scheduler.CosineAnnealingLR(o, 10)

    def f(x):
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        o.step()
        return loss.detach()

    return f, (rows(),)


@case
def step_with_sched():
    m = nn.Linear(16, 4)
    o = T.optim.SGD(m.parameters(), lr=1e-3, momentum=0.9)
    s = T.optim.lr_scheduler.StepLR(o, 10)

    def f(x):
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        s.step()
        return loss.detach()

    return f, (rows(),)


@case
def amp():
    m = nn.Linear(16, 4)

    def f(x):
        with T.no_grad():
            return m(x)

    return f, (rows(),)


@case
def ema():
    m = nn.Linear(16, 4)
    e = nn.Linear(16, 4)

    def f(x):
        with T.no_grad():
            for p, q in zip(m.parameters(), e.parameters(), strict=True):
                q.lerp_(p, 0.1)
        return e(x)

    return f, (rows(),)


@case
def averaged():
    m = nn.Linear(16, 4)
    a = T.optim.swa_utils.AveragedModel(m)

    def f(x):
        a.update_parameters(m)
        return a(x)

    return f, (rows(),)


@case
def bn_train():
    m = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.ReLU())
    return lambda x: m(x), (rows(),)


@case
def weight_norm():
    m = nn.utils.parametrizations.weight_norm(nn.Linear(16, 4))
    return lambda x: m(x), (rows(),)


@case
def spectral():
    m = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 4))
    return lambda x: m(x), (rows(),)


@case
def old_weight_norm():
    m = nn.utils.weight_norm(nn.Linear(16, 4))
    return lambda x: m(x), (rows(),)


@case
def old_spectral():
    m = nn.utils.spectral_norm(nn.Linear(16, 4))
    return lambda x: m(x), (rows(),)


@case
def nested_module_loop():
    ms = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])
    d = nn.ModuleDict({"a": nn.Linear(16, 16)})

    def f(x):
        for i, m in enumerate(ms):
            x = m(x) + i
        for _, m in d.items():
            x = m(x)
        return x

    return f, (rows(),)


@case
def embedding_bag():
    m = nn.EmbeddingBag(50, 16)
    return lambda t: m(t), (tokens(),)


@case
def generation_loop():
    def f(t):
        h = EMB(t).mean(1)
        out = []
        for _ in range(3):
            h = LIN(h).tanh()
            out.append(h.argmax(-1))
        return T.stack(out)

    return f, (tokens(),)


@case
def item_print():
    def f(x):
        return x * float(x.shape[0])

    return f, (rows(),)


@case
def numpy_const():
    c = np.float32(3.0)
    a = np.arange(16, dtype=np.float32)
    return lambda x: x * c + T.from_numpy(a), (rows(),)


@case
def dataclass_state():
    @dataclasses.dataclass
    class Cfg:
        a: float = 1.0
        n: int = 3

    cfg = Cfg()
    return lambda x: x * cfg.a + cfg.n, (rows(),)


@case
def kwargs_out():
    def f(x, *, scale=2.0):
        return {"y": x * scale, "more": [x, x + 1]}

    return f, (rows(),)


@case
def einsum():
    return lambda x: T.einsum("ij,kj->ik", x, x), (rows(),)


@case
def scatter():
    return lambda x: T.zeros(8, 16).scatter_add(1, T.zeros(8, 16, dtype=T.int64), x), (rows(),)


@case
def masked():
    return lambda x: x.masked_fill(x > 0, 0.0).sum(), (rows(),)


@case
def boolean_index():
    return lambda x: x[x > 0].sum(), (rows(),)


@case
def topk():
    return lambda x: x.topk(3, dim=1).values, (rows(),)


@case
def sort():
    return lambda x: x.sort(1).values, (rows(),)


@case
def ctc():
    return lambda x: F.ctc_loss(
        x.log_softmax(-1)[:, None].expand(8, 2, 16),
        T.tensor([[1, 2], [3, 4]]),
        T.tensor([8, 8]),
        T.tensor([2, 2]),
    ), (rows(),)


@case
def interpolate():
    return lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"), (rows(),)


@case
def grid_sample():
    return lambda x: F.grid_sample(x[None, None], T.zeros(1, 3, 3, 2), align_corners=False), (
        rows(),
    )


@case
def conv_unet():
    m = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.ConvTranspose2d(4, 1, 2, 2)
    )
    return lambda x: m(x), (T.randn(2, 1, 8, 8),)


@case
def lbfgs():
    w = T.zeros(16, requires_grad=True)
    o = T.optim.LBFGS([w], max_iter=3)

    def f(x):
        def c():
            o.zero_grad()
            loss = (x @ w - 1).square().mean()
            loss.backward()
            return loss

        return o.step(c)

    return f, (rows(),)


@case
def custom_function():
    class Sq(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    w = T.ones(16, requires_grad=True)

    def f(x):
        w.grad = None
        Sq.apply(x * w).sum().backward()
        return w.grad

    return f, (rows(),)


@case
def hooks_inside():
    w = T.ones(16, requires_grad=True)

    def f(x):
        w.grad = None
        y = x * w
        y.register_hook(lambda g: g * 2)
        y.sum().backward()
        return w.grad

    return f, (rows(),)


@case
def fwd_hook():
    m = nn.Linear(16, 4)
    m.register_forward_hook(lambda m, i, o: o * 2)
    return lambda x: m(x), (rows(),)


@case
def retain():
    def f(x):
        x = x.detach().requires_grad_()
        y = x.sin()
        y.retain_grad()
        y.sum().backward()
        return y.grad + x.grad

    return f, (rows(),)


@case
def assoc_scan():
    from adjit._higher_order_ops import associative_scan

    return lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic"), (rows(),)


@case
def flex():
    from adjit.nn.attention.flex_attention import flex_attention

    q = T.randn(1, 2, 8, 16)
    return lambda q: flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + (i - j)), (q,)


@case
def sdpa():
    q = T.randn(1, 2, 8, 16)
    return lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (q,)


@case
def user_elementwise():
    @T.elementwise
    def f(x):
        return x * x + 1.0

    return lambda x: f(x), (rows(),)


@case
def isinstance_cfg():
    c = types.SimpleNamespace(n=3, act="relu")
    return lambda x: getattr(F, c.act)(x) * c.n, (rows(),)


@case
def math_fn():
    return lambda x: x / math.sqrt(x.shape[-1]), (rows(),)


@case
def fstring_assert():
    def f(x):
        assert x.shape[1] == 16, f"bad {x.shape}"
        return x * 2

    return f, (rows(),)


@case
def assert_finite():
    def f(x):
        assert T.isfinite(x).all()
        return x * 2

    return f, (rows(),)


@case
def try_except():
    def f(x):
        try:
            return x.undefined_attr
        except AttributeError:
            return x * 2

    return f, (rows(),)


@case
def contextmanager():
    @contextlib.contextmanager
    def cm():
        yield 2.0

    def f(x):
        with cm() as s:
            return x * s

    return f, (rows(),)


@case
def lru():
    @functools.lru_cache
    def k(n):
        return T.arange(n).float()

    return lambda x: x + k(16), (rows(),)


@case
def dict_state():
    st = {"h": T.zeros(16)}

    def f(x):
        st["h"] = st["h"] * 0.9 + x.mean(0)
        return st["h"] * 1

    return f, (rows(),)


@case
def list_append():
    hist = []

    def f(x):
        hist.append(x.mean())
        return x * 2

    return f, (rows(),)


@case
def counter_attr():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 0
            self.inner = nn.Linear(16, 4)

        def forward(self, x):
            self.n += 1
            return self.inner(x)

    m = M()
    return lambda x: m(x), (rows(),)


@case
def buffer_replace():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("h", T.zeros(16))

        def forward(self, x):
            self.h = self.h * 0.9 + x.mean(0)
            return x + self.h

    m = M()
    return lambda x: m(x), (rows(),)


@case
def enumerate_zip_sorted():
    def f(x):
        return sum(
            a * b for a, b in sorted(zip([1.0, 2.0], [x, x * 2], strict=True), key=lambda p: p[0])
        )

    return f, (rows(),)


@case
def np_random():
    def f(x):
        return x + np.random.rand()

    return f, (rows(),)


@case
def py_random():
    def f(x):
        return x * 2 if random.random() > 0.5 else x

    return f, (rows(),)


@case
def randperm():
    return lambda x: x[T.randperm(8)], (rows(),)


@case
def multinomial():
    return lambda x: T.multinomial(x.softmax(1), 1), (rows(),)


@case
def gumbel():
    return lambda x: F.gumbel_softmax(x, hard=True), (rows(),)


@case
def unique():
    return lambda x: T.unique(x), (tokens(),)


@case
def nonzero():
    return lambda x: T.nonzero(x > 0), (rows(),)


@case
def split_chunk():
    return lambda x: sum(c.sum() for c in x.chunk(4, 1)), (rows(),)


@case
def to_device():
    return lambda x: x.to("cpu").to(T.float64).double(), (rows(),)


@case
def fn_partial():
    g = functools.partial(F.leaky_relu, negative_slope=0.1)
    return lambda x: g(x), (rows(),)


@case
def module_getattr_cfg():
    class B(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(16)
            self.p = nn.Parameter(T.zeros(16))
            self.cfg = {"eps": 1e-5, "flags": (True, "x")}

        def forward(self, x):
            if self.cfg["flags"][0] and self.training:
                x = self.norm(x)
            return x + self.p * self.cfg["eps"]

    m = B()
    return lambda x: m(x), (rows(),)


@case
def it_chain():
    a = nn.Linear(16, 16)
    b = nn.Linear(16, 4)

    def f(x):
        return (
            sum(p.square().sum() for p in itertools.chain(a.parameters(), b.parameters())) * x.sum()
        )

    return f, (rows(),)


@case
def it_many():
    def f(x):
        t = 0
        for i, j in itertools.product(range(2), range(2)):
            t = t + x * i * j
        for a, b in itertools.pairwise([1, 2, 3]):
            t = t + a * b
        for k, g in itertools.groupby([1, 1, 2]):
            t = t + k * len(list(g))
        for a, b in itertools.zip_longest([1, 2], [3]):
            t = t + (a or 0) + (b or 0)
        for a in itertools.islice(itertools.count(), 3):
            t = t + a
        return t + sum(itertools.accumulate([1, 2, 3]))

    return f, (rows(),)


@case
def sorted_itemgetter():
    return lambda x: x * sorted([(2, 1), (1, 5)], key=operator.itemgetter(1))[0][0], (rows(),)


@case
def reduce_():
    return lambda x: functools.reduce(operator.mul, [x, x + 1, 2.0]), (rows(),)


@case
def enum_cfg():
    class E(enum.Enum):
        A = 1
        B = 2

    def f(x):
        return x * E.B.value if E.A is not E.B else x

    return f, (rows(),)


@case
def namedtuple_out():
    P = collections.namedtuple("P", "a b")
    return lambda x: P(x * 2, x + 1), (rows(),)


@case
def dataclass_out():
    @dataclasses.dataclass
    class Out:
        a: object
        b: object

    return lambda x: Out(x * 2, x + 1).a, (rows(),)


@case
def class_instance():
    class Helper:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return x * self.k

    h = Helper(3)
    return lambda x: h(x), (rows(),)


@case
def make_instance():
    class Helper:
        def __init__(self, k):
            self.k = k

        def go(self, x):
            return x * self.k

    return lambda x: Helper(2).go(x), (rows(),)


@case
def defaultdict_():
    def f(x):
        d = collections.defaultdict(list)
        d["a"].append(x)
        d["a"].append(x + 1)
        return T.cat(d["a"])

    return f, (rows(),)


@case
def warn_():
    def f(x):
        if x.shape[0] > 100:
            W.warn("big", stacklevel=2)
        return x * 2

    return f, (rows(),)


@case
def log_():
    lg = logging.getLogger("q")

    def f(x):
        lg.debug("x")
        return x * 2

    return f, (rows(),)


@case
def deepcopy_():
    cfg = {"a": 1}

    def f(x):
        c = copy.deepcopy(cfg)
        return x * c["a"]

    return f, (rows(),)


@case
def isinstance_list():
    def f(xs):
        if isinstance(xs, (list, tuple)):
            return sum(xs)
        return xs

    return f, ([rows(), rows()],)


@case
def str_format():
    def f(x, mode="mean"):
        return getattr(T, mode)(x)

    return f, (rows(),)


@case
def globals_mod():
    return lambda x: T.nn.functional.relu(x), (rows(),)


@case
def nograd_deco():
    @T.no_grad()
    def f(x):
        return x * 2

    return f, (rows(),)


@case
def inference():
    def f(x):
        with T.inference_mode():
            return x * 2

    return f, (rows(),)


@case
def autocast():
    m = nn.Linear(16, 4)

    def f(x):
        with T.autocast("cpu", enabled=False):
            return m(x)

    return f, (rows(),)


@case
def enable_grad():
    def f(x):
        with T.enable_grad():
            x = x.detach().requires_grad_()
            (g,) = T.autograd.grad(x.pow(3).sum(), x)
        return g

    return f, (rows(),)


@case
def set_grad():
    def f(x):
        with T.set_grad_enabled(False):
            return x * 2

    return f, (rows(),)


@case
def record_function():
    def f(x):
        with T.profiler.record_function("a"):
            return x * 2

    return f, (rows(),)


@case
def einops_like():
    return lambda x: x.reshape(2, 4, 4, 4).permute(0, 2, 1, 3).flatten(1), (rows(),)


@case
def module_apply():
    m = nn.Linear(16, 4)

    def f(x):
        m.train()
        return m(x)

    return f, (rows(),)


@case
def eval_train():
    m = nn.Sequential(nn.Linear(16, 4), nn.Dropout())

    def f(x):
        m.eval()
        return m(x)

    return f, (rows(),)


@case
def zero_grad_step_closure():
    m = nn.Linear(16, 4)
    o = T.optim.Adam(m.parameters())
    lf = nn.CrossEntropyLoss()
    y = T.zeros(8, dtype=T.int64)

    def f(x):
        o.zero_grad(set_to_none=True)
        loss = lf(m(x), y)
        loss.backward()
        o.step()
        return loss

    return f, (rows(),)


@case
def two_optim():
    g = nn.Linear(16, 16)
    d = nn.Linear(16, 1)
    og = T.optim.Adam(g.parameters())
    od = T.optim.Adam(d.parameters())
    bce = nn.BCEWithLogitsLoss()

    def f(x):
        od.zero_grad()
        fk = g(T.randn(8, 16))
        loss = bce(d(x), T.ones(8, 1)) + bce(d(fk.detach()), T.zeros(8, 1))
        loss.backward()
        od.step()
        og.zero_grad()
        l2 = bce(d(fk), T.ones(8, 1))
        l2.backward()
        og.step()
        return loss, l2

    return f, (rows(),)


@case
def grad_accum():
    m = nn.Linear(16, 4)
    o = T.optim.SGD(m.parameters(), lr=0.1)

    def f(x):
        for c in x.chunk(4):
            (m(c).sum() / 4).backward()
        o.step()
        o.zero_grad()
        return m.bias.sum()

    return f, (rows(),)


@case
def scaler():
    m = nn.Linear(16, 4)
    o = T.optim.SGD(m.parameters(), lr=0.1)
    s = T.amp.GradScaler("cpu", enabled=False)

    def f(x):
        o.zero_grad()
        loss = m(x).sum()
        s.scale(loss).backward()
        s.step(o)
        s.update()
        return loss

    return f, (rows(),)


@case
def clip_value():
    m = nn.Linear(16, 4)
    o = T.optim.SGD(m.parameters(), lr=0.1)

    def f(x):
        o.zero_grad()
        m(x).sum().backward()
        nn.utils.clip_grad_value_(m.parameters(), 0.1)
        o.step()
        return m.weight.sum()

    return f, (rows(),)


@case
def params_to_vec():
    m = nn.Linear(16, 4)
    return lambda x: nn.utils.parameters_to_vector(m.parameters()) * x.sum(), (rows(),)


@case
def state_dict_():
    m = nn.Linear(16, 4)
    return lambda x: sum(v.sum() for v in m.state_dict().values()) * x, (rows(),)


@case
def named_params():
    m = nn.Sequential(nn.Linear(16, 4), nn.BatchNorm1d(4))
    return (
        lambda x: (
            sum(p.abs().sum() for n, p in m.named_parameters() if "weight" in n and p.requires_grad)
            * x
        ),
        (rows(),),
    )


@case
def requires_grad_toggle():
    m = nn.Linear(16, 4)

    def f(x):
        for p in m.parameters():
            p.requires_grad_(False)
        return m(x)

    return f, (rows(),)


@case
def fold_unfold():
    return lambda x: F.unfold(x[None, None], 3), (rows(),)


@case
def pad_seq():
    return lambda x: nn.utils.rnn.pad_sequence([x[:3], x[:5]]), (rows(),)


@case
def cosine():
    return (
        lambda x: (
            F.cosine_similarity(x, x + 1) + F.pairwise_distance(x, x + 1) + F.normalize(x).sum(1)
        ),
        (rows(),),
    )


@case
def onehot():
    return lambda t: F.one_hot(t, 50).float() @ EMB.weight, (tokens(),)


@case
def where_idx():
    return lambda x: x[T.arange(8), x.argmax(1)], (rows(),)


@case
def cdist():
    return lambda x: T.cdist(x, x), (rows(),)


@case
def meshg():
    return lambda x: T.meshgrid(x[0], x[1], indexing="ij")[0], (rows(),)


@case
def vmapf():
    return lambda x: T.vmap(lambda r: r * 2)(x), (rows(),)


@case
def slicing_assign():
    def f(x):
        y = T.zeros(8, 16)
        y[:, ::2] = x[:, ::2]
        y[0] += 1
        return y

    return f, (rows(),)


@case
def rnn_cell_loop():
    c = nn.LSTMCell(16, 16)

    def f(x):
        h = x.new_zeros(8, 16)
        s = x.new_zeros(8, 16)
        for _ in range(3):
            h, s = c(x, (h, s))
        return h

    return f, (rows(),)


@case
def lazy():
    m = nn.LazyLinear(4)
    m(rows())
    return lambda x: m(x), (rows(),)


@case
def subclass_fn():
    class MyT(T.Tensor):
        pass

    z = rows().as_subclass(MyT)
    return lambda x: (x * 2).sum(), (z,)


@case
def param_list():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.ps = nn.ParameterList([nn.Parameter(T.ones(16)) for _ in range(3)])
            self.pd = nn.ParameterDict({"a": nn.Parameter(T.ones(16))})

        def forward(self, x):
            for p in self.ps:
                x = x * p
            return x * self.pd["a"]

    m = M()
    return lambda x: m(x), (rows(),)


@case
def property_mod():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(16, 4)

        @property
        def w(self):
            return self.inner.weight

        def forward(self, x):
            return x @ self.w.T

    m = M()
    return lambda x: m(x), (rows(),)


@case
def super_fwd():
    class L(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    m = L(16, 4)
    return lambda x: m(x), (rows(),)


@case
def compiled_module():
    m = nn.Sequential(nn.Linear(16, 4), nn.ReLU())
    return T.compile(m), (rows(),)


@case
def device_prop():
    m = nn.Linear(16, 4)

    def f(x):
        return m(x.to(next(m.parameters()).device, dtype=m.weight.dtype))

    return f, (rows(),)


@case
def time_():
    def f(x):
        return x * 2 if time.time() > 0 else x

    return f, (rows(),)


@case
def tqdm_like():
    def f(x):
        for _ in range(3):
            x = x * 1.1
        return x

    return f, (rows(),)


@case
def dist_mix():
    def f(x):
        m = D.MixtureSameFamily(D.Categorical(logits=x), D.Normal(x, x.exp()))
        return m.log_prob(T.zeros(8))

    return f, (rows(),)


@case
def dist_transformed():
    def f(x):
        d = D.TransformedDistribution(D.Normal(x, 1.0), [D.transforms.TanhTransform()])
        y = d.rsample()
        return d.log_prob(y)

    return f, (rows(),)


@case
def bern():
    return lambda x: D.Bernoulli(logits=x).entropy(), (rows(),)


@case
def beta():
    return lambda x: D.Beta(x.exp(), x.exp()).log_prob(T.full((8, 16), 0.5)), (rows(),)


# What is not captured, and why.
AS_USUAL = {
    "checkpoint": "hooks are given what is saved",
    "checkpoint_reentrant": "an autograd.Function",
    "gru_packed": "it looks at the value of a tensor",
    "step_with_sched": "last_epoch",
    "old_weight_norm": "it changes weight of",
    "old_spectral": "it changes weight of",
    "boolean_index": "it looks at the value of a tensor",
    "ctc": "it looks at the value of a tensor",
    "lbfgs": "it looks at the value of a tensor",
    "lru": "functools._lru_cache_wrapper, which cannot be looked into",
    "dict_state": "it changes st of",
    "list_append": "it changes hist of",
    "counter_attr": "it changes n of",
    "buffer_replace": "._buffers",
    "np_random": "RandomState, which cannot be looked into",
    "py_random": "calls Random.random",
    "unique": "it looks at the value of a tensor",
    "nonzero": "it looks at the value of a tensor",
    "log": "_thread.RLock, which cannot be looked into",
    "deepcopy": "of C. The call did not run",
    "time": "calls time.time",
}
NEVER_THE_SAME = {"np_random", "py_random"}  # twice


def bits(value):
    if T.is_tensor(value):
        return value.dtype, value.shape, value.detach().numpy().tobytes()
    if isinstance(value, dict):
        return {name: bits(part) for name, part in value.items()}
    return [bits(part) for part in value] if isinstance(value, (list, tuple)) else value


def calls(make, wrap):
    """What six calls give, from the same start."""
    T.manual_seed(0)
    function, arguments = make()
    function = wrap(function)
    return [bits(function(*arguments)) for _ in range(6)]


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("name", sorted(CASES.keys() - AS_USUAL.keys()))
def test_it_is_captured_and_gives_the_same(name):
    captured = calls(CASES[name], lambda f: T.compile(f, fullgraph=True))
    assert captured == calls(CASES[name], lambda f: f)


@pytest.mark.in_turn(2)
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("name", AS_USUAL)
def test_what_runs_as_usual_says_why(name):
    T.manual_seed(0)
    function, arguments = CASES[name]()
    compiled = T.compile(function, fullgraph=True)
    with pytest.raises(RuntimeError, match=re.escape(AS_USUAL[name])):
        [compiled(*arguments) for _ in range(3)]
    if name not in NEVER_THE_SAME:
        assert calls(CASES[name], T.compile) == calls(CASES[name], lambda f: f)
