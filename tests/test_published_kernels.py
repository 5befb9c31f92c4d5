"""Gradients of kernels that others have published, beside their formulas in NumPy and SciPy.

ADBench's objectives (https://github.com/microsoft/ADBench) and GradBench's evaluations
(https://github.com/gradbench/gradbench) as loops; soft-DTW (Cuturi and Blondel, 2017) and hidden Markov models
beside sums over all alignments and all paths; an example of SciPy's documentation.
"""

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation
from scipy.special import logsumexp
from test_user_kernels import assert_gradients, copies, hmm, softdtw, stochastic

import adjit


def values(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape) * 0.6


# ----- ADBench -----


def gmm(alphas, means, logs, lower, x, gamma, m):
    """The log-posterior of a mixture of Gaussians: `logs` and `lower` are inverse factors of the
    covariances, with a Wishart prior, whose constant is left out."""
    k, d = means.shape
    n = len(x)
    total = 0.0
    terms = np.empty(k)
    centred = np.empty(d)
    for i in range(n):
        top = -np.inf
        for j in range(k):
            for a in range(d):
                centred[a] = x[i, a] - means[j, a]
            square = 0.0
            at = 0
            for b in range(d):
                acc = math.exp(logs[j, b]) * centred[b]
                for a in range(b):
                    acc += lower[j, at] * centred[a]
                    at += 1
                square += acc * acc
            sum_of_logs = 0.0
            for a in range(d):
                sum_of_logs += logs[j, a]
            terms[j] = alphas[j] + sum_of_logs - 0.5 * square
            top = max(top, terms[j])
        acc = 0.0
        for j in range(k):
            acc += math.exp(terms[j] - top)
        total += math.log(acc) + top
    top = np.max(alphas)
    weight = 0.0
    for j in range(k):
        weight += math.exp(alphas[j] - top)
    prior = 0.0
    for j in range(k):
        square = 0.0
        sum_of_logs = 0.0
        for a in range(d):
            square += math.exp(logs[j, a]) ** 2
            sum_of_logs += logs[j, a]
        for a in range(d * (d - 1) // 2):
            square += lower[j, a] ** 2
        prior += 0.5 * gamma * gamma * square - m * sum_of_logs
    return total - n * (math.log(weight) + top) - prior - 0.5 * n * d * math.log(2 * math.pi)


def gmm_in_numpy(alphas, means, logs, lower, x, gamma, m):
    k, d = means.shape
    factors = np.zeros((k, d, d))
    rows, columns = np.tril_indices(d, -1)
    factors[:, rows, columns] = lower
    factors[:, range(d), range(d)] = np.exp(logs)
    turned = np.einsum("kab,nkb->nka", factors, x[:, None] - means)
    terms = alphas + logs.sum(1) - 0.5 * (turned**2).sum(2)
    prior = 0.5 * gamma**2 * (factors**2).sum() - m * logs.sum()
    data = logsumexp(terms, axis=1).sum() - len(x) * logsumexp(alphas)
    return data - prior - 0.5 * len(x) * d * np.log(2 * np.pi)


def project(camera, point, out):
    """A point in a picture: rotation by Rodrigues' formula, then a lens with two coefficients."""
    square = 0.0
    for a in range(3):
        square += camera[a] * camera[a]
    moved = np.empty(3)
    for a in range(3):
        moved[a] = point[a] - camera[3 + a]
    turned = np.empty(3)
    if square > 0.0:
        theta = math.sqrt(square)
        cosine = math.cos(theta)
        sine = math.sin(theta)
        w = camera[:3] / theta
        along = (w[0] * moved[0] + w[1] * moved[1] + w[2] * moved[2]) * (1.0 - cosine)
        for a in range(3):
            b = (a + 1) % 3
            c = (a + 2) % 3
            cross = w[b] * moved[c] - w[c] * moved[b]
            turned[a] = moved[a] * cosine + cross * sine + w[a] * along
    else:
        for a in range(3):
            b = (a + 1) % 3
            c = (a + 2) % 3
            turned[a] = moved[a] + camera[b] * moved[c] - camera[c] * moved[b]
    x = turned[0] / turned[2]
    y = turned[1] / turned[2]
    r2 = x * x + y * y
    lens = 1.0 + camera[9] * r2 + camera[10] * r2 * r2
    out[0] = x * lens * camera[6] + camera[7]
    out[1] = y * lens * camera[6] + camera[8]


def bundle_adjustment(cameras, points, weights, seen, features):
    s = 0.0
    spot = np.empty(2)
    for i in range(len(seen)):
        project(cameras[seen[i, 0]], points[seen[i, 1]], spot)
        s += (weights[i] * (spot[0] - features[i, 0])) ** 2
        s += (weights[i] * (spot[1] - features[i, 1])) ** 2
        s += (1.0 - weights[i] ** 2) ** 2
    return s


def lstm_objective(weights, extra, state, text):
    """A model of characters: each has two gates from the input and two from the layer before, as ADBench's."""
    layers = len(weights)
    n = text.shape[1]
    loss = 0.0
    now = state.copy()
    x = np.empty(n)
    for t in range(len(text) - 1):
        for j in range(n):
            x[j] = text[t, j] * extra[0, j]
        for k in range(layers):
            for j in range(n):
                forget = 1.0 / (1.0 + math.exp(-(x[j] * weights[k, 0, j] + weights[k, 1, j])))
                keep = 1.0 / (1.0 + math.exp(-(now[k, 0, j] * weights[k, 2, j] + weights[k, 3, j])))
                out = 1.0 / (1.0 + math.exp(-(x[j] * weights[k, 4, j] + weights[k, 5, j])))
                change = math.tanh(now[k, 0, j] * weights[k, 6, j] + weights[k, 7, j])
                now[k, 1, j] = now[k, 1, j] * forget + keep * change
                now[k, 0, j] = out * math.tanh(now[k, 1, j])
            for j in range(n):
                x[j] = now[k, 0, j]
        total = 2.0
        for j in range(n):
            x[j] = x[j] * extra[1, j] + extra[2, j]
            total += math.exp(x[j])
        for j in range(n):
            loss += (x[j] - math.log(total)) * text[t + 1, j]
    return -loss


# ----- GradBench -----


def rotation(x, z, y):
    """Of Euler's angles."""
    about_x = np.array([[1.0, 0.0, 0.0], [0.0, np.cos(x), -np.sin(x)], [0.0, np.sin(x), np.cos(x)]])
    about_y = np.array([[np.cos(y), 0.0, np.sin(y)], [0.0, 1.0, 0.0], [-np.sin(y), 0.0, np.cos(y)]])
    about_z = np.array([[np.cos(z), -np.sin(z), 0.0], [np.sin(z), np.cos(z), 0.0], [0.0, 0.0, 1.0]])
    return about_z @ about_y @ about_x


def axis_rotation(v):
    found = np.eye(3)
    n = np.sqrt(np.sum(v * v))
    if n >= 1e-4:
        x, y, z = v / n
        s, c = np.sin(n), np.cos(n)
        t = 1.0 - c
        found[0] = np.array([x * x + (1.0 - x * x) * c, x * y * t - z * s, x * z * t + y * s])
        found[1] = np.array([x * y * t + z * s, y * y + (1.0 - y * y) * c, y * z * t - x * s])
        found[2] = np.array([x * z * t - y * s, z * y * t + x * s, z * z + (1.0 - z * z) * c])
    return found


def hand(theta, parents, relatives, inverses, base, weights, is_mirrored, points, seen):
    """The distances of points to a posed and skinned hand (ADBench's simple case), as the sum of their squares.

    A pose is a rotation, a translation and four angles for each finger of four bones.
    """
    bones, vertices = weights.shape
    pose = np.zeros((bones, 3))
    at, bone = 6, 2
    while at < len(theta):
        for joint in range(3):
            pose[bone, 0] = theta[at]
            at += 1
            if joint == 0:
                pose[bone, 1] = theta[at]
                at += 1
            bone += 1
        bone += 1
    absolute = np.zeros((bones, 4, 4))
    for b in range(bones):
        turned = np.eye(4)
        turned[:3, :3] = rotation(pose[b, 0], pose[b, 1], pose[b, 2])
        relative = relatives[b] @ turned
        if parents[b] == -1:
            absolute[b] = relative
        else:
            absolute[b] = absolute[parents[b]] @ relative
    skin = np.zeros((3, vertices))
    for b in range(bones):
        moved = absolute[b] @ inverses[b] @ base
        for v in range(vertices):
            skin[:, v] += weights[b, v] * moved[:3, v]
    if is_mirrored:
        skin[0] = -skin[0]
    placed = axis_rotation(theta[:3]) @ skin
    total = 0.0
    for i, v in enumerate(seen):
        for d in range(3):
            error = points[d, i] - placed[d, v] - theta[3 + d]
            total += error * error
    return total


def hand_by_matrices(theta, parents, relatives, inverses, base, weights, is_mirrored, points, seen):
    """The same by SciPy's rotations, and the chain of each bone's own product."""
    turns = np.zeros((len(weights), 3))
    for finger, four in enumerate(theta[6:].reshape(-1, 4)):
        start = 2 + 4 * finger
        turns[start, :2] = four[:2]
        turns[start + 1, 0], turns[start + 2, 0] = four[2:]
    skin = 0.0
    for b in range(len(weights)):
        chain = np.eye(4)
        k = b
        while k != -1:
            turn = np.eye(4)
            turn[:3, :3] = Rotation.from_euler("xyz", turns[k, [0, 2, 1]]).as_matrix()
            chain = relatives[k] @ turn @ chain
            k = parents[k]
        skin = skin + weights[b] * (chain @ inverses[b] @ base)[:3]
    if is_mirrored:
        skin[0] *= -1
    placed = Rotation.from_rotvec(theta[:3]).as_matrix() @ skin + theta[3:6, None]
    return np.sum((points - placed[:, seen]) ** 2)


def kmeans(points, centroids):
    cost = 0.0
    for i in range(len(points)):
        nearest = np.inf
        for j in range(len(centroids)):
            square = 0.0
            for a in range(points.shape[1]):
                square += (points[i, a] - centroids[j, a]) ** 2
            nearest = min(nearest, square)
        cost += nearest
    return cost


def particle(w, rounds):
    """Where a particle hits the ground between charges at (10, 10 − w) and (10, 0), by Euler's steps and
    one step of Newton."""
    x, y, vx, vy = 0.0, 8.0, 0.75, 0.0
    dt = 0.1
    for _ in range(rounds):
        ax = ay = 0.0
        for c in range(2):
            dx = x - 10.0
            dy = y - (10.0 - w if c == 0 else 0.0)
            r = math.hypot(dx, dy)
            ax += dx / r**3
            ay += dy / r**3
        nx, ny = x + dt * vx, y + dt * vy
        if ny < 0.0:
            break
        x, y = nx, ny
        vx += dt * ax
        vy += dt * (ay - 0.05)
    hit = -y / vy
    return (x + hit * vx) ** 2


def determinant(matrix):
    """By elimination with a pivot."""
    a = matrix.copy()
    n = len(a)
    det = 1.0
    for k in range(n):
        best = k
        for i in range(k + 1, n):
            if abs(a[i, k]) > abs(a[best, k]):
                best = i
        if best != k:
            for j in range(n):
                t = a[k, j]
                a[k, j] = a[best, j]
                a[best, j] = t
            det = -det
        det *= a[k, k]
        for i in range(k + 1, n):
            f = a[i, k] / a[k, k]
            for j in range(k, n):
                a[i, j] -= f * a[k, j]
    return det


GMM = (values(1, 2), values(2, 2, 3), values(3, 2, 3), values(4, 2, 3), values(5, 4, 3), 1.3, 2)
CAMERAS = values(6, 2, 11) * 0.2 + np.array([0, 0, 0, 0, 0, -4.0, 1, 0, 0, 0, 0])
CAMERAS[1, :3] = 0.0
BA = (
    CAMERAS,
    values(7, 3, 3),
    values(8, 4),
    np.array([[0, 0], [1, 1], [0, 2], [1, 0]]),
    values(9, 4, 2),
)
LSTM = (
    values(10, 2, 8, 3), values(11, 3, 3), values(12, 2, 2, 3), np.eye(3)[[0, 2, 1, 1]],
)  # fmt: skip
HAND = (
    values(16, 14), np.array([-1, 0, 1, 2, 3, 4, 1, 6, 7, 8]), values(17, 10, 4, 4) * 0.3 + np.eye(4),
    values(18, 10, 4, 4) * 0.3 + np.eye(4), values(19, 4, 5), np.abs(values(20, 10, 5)), True,
    values(21, 3, 4), np.array([0, 3, 1, 4]),
)  # fmt: skip
HAND[2][:, 3] = HAND[3][:, 3] = [0.0, 0.0, 0.0, 1.0]
HMM = (np.array([0.5, 0.2, 0.3]), stochastic(3, 3, 4), stochastic(3, 4, 5), np.array([0, 2, 1, 3]))
KERNELS = [
    (gmm, GMM), (bundle_adjustment, BA), (lstm_objective, LSTM), (kmeans, (values(13, 6, 2), values(14, 3, 2))),
    (hand, HAND), (particle, (1.3, 200)), (determinant, (values(15, 4, 4),)), (hmm, HMM),
]  # fmt: skip


def check_in_python():
    """In a process without Numba's compiler; forward mode is compared too."""
    for f, args in KERNELS:
        print(f.__name__, flush=True)
        assert_gradients(f, *copies(args), tolerance=1e-5)


def test_gradients_of_published_kernels_as_plain_python():
    done = subprocess.run(
        [sys.executable, "-c", "import test_published_kernels as t; t.check_in_python()"],
        capture_output=True, text=True, cwd=Path(__file__).parent,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [f.__name__ for f, _ in KERNELS]


def test_the_mixture_of_gaussians_is_that_of_numpy():
    value, _ = adjit.value_and_grad(gmm, wrt=0)(*GMM)
    np.testing.assert_allclose(value, gmm_in_numpy(*GMM), rtol=1e-12)


def test_the_hand_is_that_of_rotations_and_chains():
    """Also mirrored or not, and the gradient of a pose as ADBench asks for it."""
    for is_mirrored in (True, False):
        args = [*HAND[:6], is_mirrored, *HAND[7:]]
        value, (slope,) = adjit.value_and_grad(hand, wrt=(0,))(*args)
        np.testing.assert_allclose(value, hand_by_matrices(*args), rtol=1e-12)
        for k in range(len(slope)):
            high, low = (
                hand_by_matrices(HAND[0] + s * 1e-6 * (np.arange(14) == k), *args[1:])
                for s in (1, -1)
            )
            np.testing.assert_allclose(slope[k], (high - low) / 2e-6, rtol=1e-5, atol=1e-6)


def test_the_determinant_is_that_of_the_adjugate():
    (matrix,) = dict(KERNELS)[determinant]
    value, (slope,) = adjit.value_and_grad(determinant)(matrix)
    np.testing.assert_allclose(value, np.linalg.det(matrix), rtol=1e-12)
    np.testing.assert_allclose(slope, value * np.linalg.inv(matrix).T, rtol=1e-9)


# ----- sums over everything -----


def alignments(n, m):
    """All ways from (0, 0) to (n − 1, m − 1), as lists of elements."""
    if n == 0 or m == 0:
        return
    if n == m == 1:
        yield [(0, 0)]
        return
    for i, j in ((n - 1, m), (n, m - 1), (n - 1, m - 1)):
        for way in alignments(i, j):
            yield [*way, (n - 1, m - 1)]


def test_soft_dtw_is_a_soft_minimum_over_all_alignments():
    costs, gamma = np.abs(values(16, 3, 4)), 0.4
    ways = list(alignments(3, 4))
    assert len(ways) == 25  # a number of Delannoy
    totals = np.array([sum(costs[at] for at in way) for way in ways])
    chances = np.exp(-totals / gamma - logsumexp(-totals / gamma))
    expected = np.zeros_like(costs)
    for way, chance in zip(ways, chances, strict=True):
        for at in way:
            expected[at] += chance
    value, (by_costs, by_gamma) = adjit.value_and_grad(softdtw)(costs, gamma)
    np.testing.assert_allclose(value, -gamma * logsumexp(-totals / gamma), rtol=1e-12)
    np.testing.assert_allclose(by_costs, expected, rtol=1e-10)
    np.testing.assert_allclose(by_gamma, (value - chances @ totals) / gamma, rtol=1e-10)


def test_the_likelihood_of_a_hidden_markov_model_is_a_sum_over_all_paths():
    start, moves, emits, seen = HMM
    total, first = 0.0, np.zeros(3)
    for path in itertools.product(range(3), repeat=len(seen)):
        chance = start[path[0]] * np.prod([emits[s, k] for s, k in zip(path, seen, strict=True)])
        chance *= np.prod([moves[a, b] for a, b in itertools.pairwise(path)])
        total += chance
        first[path[0]] += chance / start[path[0]]
    value, (by_start,) = adjit.value_and_grad(hmm, wrt=0)(*HMM)
    np.testing.assert_allclose(value, math.log(total), rtol=1e-12)
    np.testing.assert_allclose(by_start, first / total, rtol=1e-10)


# ----- SciPy's documentation -----


def lotka_volterra(z, p):
    slope = np.empty(2)
    slope[0] = p[0] * z[0] - p[1] * z[0] * z[1]
    slope[1] = -p[2] * z[1] + p[3] * z[0] * z[1]
    return slope


def prey(z, p, end, steps):
    """The classic method of Runge and Kutta."""
    h = end / steps
    for _ in range(steps):
        k1 = lotka_volterra(z, p)
        k2 = lotka_volterra(z + 0.5 * h * k1, p)
        k3 = lotka_volterra(z + 0.5 * h * k2, p)
        k4 = lotka_volterra(z + h * k3, p)
        z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return z[0]


def test_the_example_of_solve_ivp():
    """Lotka and Volterra's equations, in the documentation of `scipy.integrate.solve_ivp`."""
    start, p, end = np.array([10.0, 5.0]), np.array([1.5, 1.0, 3.0, 1.0]), 5.0

    def solved(start, p):
        def slope(t, z):
            return lotka_volterra(z, p)

        return solve_ivp(slope, [0, end], start, method="DOP853", rtol=1e-12, atol=1e-12).y[0, -1]

    value, (by_start, by_p, _) = adjit.value_and_grad(prey)(start, p, end, 4000)
    assert abs(value - solved(start, p)) < 1e-7
    for found, at in ((by_start, 0), (by_p, 1)):
        for k in range(len(found)):
            high, low = ([start.copy(), p.copy()] for _ in range(2))
            high[at][k] += 1e-4
            low[at][k] -= 1e-4
            difference = (solved(*high) - solved(*low)) / 2e-4
            assert abs(found[k] - difference) < 1e-5 * (1 + abs(difference))
