"""Programs of every kind, each a function that does one step and leaves nothing behind."""

import adjit as T
from adjit import nn


def leaf(*shape):
    return T.full(shape, 0.5, requires_grad=True)


X, W, ROWS, PLACES = leaf(2, 3), leaf(3, 3), T.ones(4, 3), T.tensor([1, 0])
FAR = T.tensor([0, 9])
TOTAL = T.zeros(2, 3)


def recorded():
    ((X * 2 + X.exp()) @ W).sum().item()


def unwatched():
    X * 2 + 1  # nobody looks


def viewed():
    X.t()[1:].reshape(-1).tolist()
    T.arange(6.0).view(2, 3).chunk(3, 1)[1].tolist()


def in_place():
    TOTAL.add_(1).mul_(0.5)
    TOTAL[0] = 2.0
    TOTAL[1].copy_(ROWS[0])
    TOTAL.tolist()


def backward():
    (X @ W).tanh().sum().backward()
    X.grad = W.grad = None


def backward_twice():
    (first,) = T.autograd.grad((X**3).sum(), X, create_graph=True)
    first.square().sum().backward()
    X.grad = None


def hooked():
    y = X * 2
    handle = y.register_hook(lambda g: g * 2)
    y.sum().backward()
    handle.remove()
    X.grad = None


class Doubled(T.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 + x * 0


def custom():
    Doubled.apply(X).sum().backward()
    X.grad = None


def trained(make):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = make(model.parameters())

    def step():
        loss = model(ROWS).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


@T.compile
def formula(x):
    return (x @ W).softmax(1).sum(0)


def compiled():
    formula(ROWS).tolist()


def compiled_backward():
    formula(X).sum().backward()
    X.grad = W.grad = None


def failing():
    for look in (lambda t: t.tolist(), lambda t: (t * 2).sum().item()):
        try:
            look(ROWS.index_select(0, FAR))
        except IndexError:
            continue
        raise AssertionError("nothing was raised")


def refused():
    try:
        X @ ROWS[:, :2]
    except RuntimeError:
        return
    raise AssertionError("nothing was raised")


def random():
    T.manual_seed(0)
    T.nn.functional.dropout(T.rand(2, 3) + T.randn(2, 3), 0.5).tolist()


def printed():
    repr(X * 2)
    str(PLACES)


def indexed():
    ROWS[PLACES].tolist()
    ROWS[ROWS > 0].tolist()
    X[0, 1:].sum().backward()
    X.grad = None


def written_with_history():
    x, y = X * 2, T.zeros(3)
    y[0] = x[0, 1] * 2
    x[1:] = x[:-1] * 3
    x[0, 0] = y[0]
    (x.sum() + y.sum()).backward()
    X.grad = None


PROGRAMS = {
    f.__name__: f
    for f in (
        recorded, unwatched, viewed, in_place, written_with_history, backward, backward_twice, hooked, custom,
        compiled, compiled_backward, failing, refused, random, printed, indexed,
    )
} | {
    "SGD": trained(lambda p: T.optim.SGD(p, lr=1e-3, momentum=0.9)),
    "Adam": trained(lambda p: T.optim.Adam(p, lr=1e-3)),
}  # fmt: skip
