"""What PyTorch has and adjit has not: the names, by subject, and what to do instead.

One table, from which errors are told. The list in the README has the same subjects.
"""

from __future__ import annotations

import functools
from typing import NamedTuple


class Subject(NamedTuple):
    """Names that are missing for one reason."""

    title: str
    instead: str
    names: str  # apart by spaces, of functions of modules with the module


SUBJECTS = (
    Subject(
        "Decompositions and solvers",
        "compute it with NumPy or SciPy on x.detach().numpy(), without gradients",
        """cholesky cholesky_inverse cholesky_solve det geqrf inverse logdet lu_solve lu_unpack orgqr ormqr
        pinverse qr slogdet svd triangular_solve matrix_exp matrix_power lobpcg nuclear_norm
        linalg.cholesky linalg.cholesky_ex linalg.cond linalg.det linalg.eig linalg.eigh
        linalg.eigvals linalg.eigvalsh linalg.householder_product linalg.inv linalg.inv_ex
        linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve linalg.lstsq linalg.lu
        linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve linalg.matrix_exp linalg.matrix_power
        linalg.matrix_rank linalg.pinv linalg.qr linalg.slogdet linalg.solve linalg.solve_ex
        linalg.solve_triangular linalg.svd linalg.svdvals linalg.tensorinv linalg.tensorsolve""",
    ),
    Subject(
        "Small functions of vectors and matrices",
        "write it with the operations that are there",
        """cdist cov corrcoef cumulative_trapezoid trapezoid trapz dist frobenius_norm norm_except_dim pdist
        renorm vander gradient linalg.vander linalg.vecdot linalg.diagonal nn.functional.pdist""",
    ),
    Subject(
        "Quantiles, histograms and counts",
        "compute it with NumPy on x.detach().numpy(), or with sort and scatter_add",
        """bincount histc histogram histogramdd isin nanquantile quantile""",
    ),
    Subject(
        "Transforms, windows and complex numbers",
        "keep real and imaginary parts in two tensors, and use numpy.fft",
        """fft stft istft bartlett_window blackman_window hamming_window hann_window kaiser_window angle
        complex conj conj_physical conj_physical_ imag real polar view_as_complex view_as_real
        is_conj is_neg resolve_conj resolve_neg""",
    ),
    Subject(
        "Special functions of physics and statistics",
        "use scipy.special on x.detach().numpy(), without gradients",
        """i0 i0_ igamma igammac mvlgamma frexp nextafter special.airy_ai special.bessel_j0 special.bessel_j1
        special.bessel_y0 special.bessel_y1 special.chebyshev_polynomial_t
        special.chebyshev_polynomial_u special.chebyshev_polynomial_v special.chebyshev_polynomial_w
        special.entr special.erfcx special.gammainc special.gammaincc special.hermite_polynomial_h
        special.hermite_polynomial_he special.i0 special.i0e special.i1 special.i1e
        special.laguerre_polynomial_l special.legendre_polynomial_p special.log_ndtr
        special.modified_bessel_i0 special.modified_bessel_i1 special.modified_bessel_k0
        special.modified_bessel_k1 special.multigammaln special.ndtr special.ndtri special.xlog1py
        special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1
        special.spherical_bessel_j0 special.shifted_chebyshev_polynomial_t
        special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
        special.shifted_chebyshev_polynomial_w""",
    ),
    Subject(
        "Function transforms and forward mode",
        "use adjit.autograd.functional (jacobian, hessian, vjp, jvp, hvp)",
        "func vmap",
    ),
    Subject(
        "Other optimisers",
        "use adjit.optim.SGD, Adam, AdamW, RMSprop or Adagrad",
        """optim.Adafactor optim.Adadelta optim.Adamax optim.ASGD optim.LBFGS optim.Muon optim.NAdam
        optim.RAdam optim.Rprop optim.SparseAdam""",
    ),
    Subject(
        "Recurrent layers, attention and embedding bags",
        "write the cell or the product of softmax by hand: it is fused",
        """gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell embedding_bag
        nn.functional.embedding_bag nn.functional.multi_head_attention_forward
        nn.functional.scaled_dot_product_attention nn.functional.linear_cross_entropy""",
    ),
    Subject(
        "Losses",
        "write it with the operations that are there; the others are in adjit.nn.functional",
        """ctc_loss binary_cross_entropy_with_logits cosine_embedding_loss hinge_embedding_loss kl_div
        margin_ranking_loss poisson_nll_loss triplet_margin_loss nn.functional.ctc_loss
        nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss""",
    ),
    Subject(
        "Sparse, quantised and half-precision tensors",
        "use dense float32 or float64 tensors",
        """sparse sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor
        sparse_csc_tensor sparse_csr_tensor dequantize quantize_per_channel quantize_per_tensor
        quantize_per_tensor_dynamic quantization ao""",
    ),
    Subject(
        "Other processes, other compilers",
        "train in one process, with adjit.compile",
        "distributed multiprocessing jit export fx onnx package hub distributions futures cond",
    ),
)  # fmt: skip


@functools.cache
def _by_name() -> dict[str, Subject]:
    """The subject of each name."""
    return {name: subject for subject in SUBJECTS for name in subject.names.split()}


def absent(room: str, name: str) -> AttributeError:
    """The error about a name that a module has not; `room` is the module without `adjit.`."""
    told = f"module '{'adjit.' + room if room else 'adjit'}' has no attribute {name!r}"
    subject = _by_name().get(f"{room}.{name}" if room else name)
    if subject is None:
        return AttributeError(told)
    return AttributeError(
        f"{told}. {subject.title}: adjit has not all that PyTorch has; {subject.instead}"
    )
