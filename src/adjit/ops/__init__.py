"""The op table: every op is one place in one of these files."""

import os

from . import (
    activations,
    arithmetic,
    aten,
    attention,
    batch_norm,
    bitwise,
    bounds,
    comparison,
    contract,
    conv,
    conv_tbc,
    conversions,
    copied_views,
    creation,
    cross,
    diagonals,
    distances,
    drawing,
    dropout,
    elementwise,
    embedding,
    exchange,
    fractional_pool,
    grid_sample,
    grids,
    incomplete_gamma,
    index,
    interpolate,
    layouts,
    linalg,
    linear,
    losses,
    masks,
    matmul,
    matrix_norms,
    moments,
    neighbours,
    nn,
    norm,
    operators,
    overwriting,
    padding,
    pool,
    powers,
    product_sums,
    random,
    random_fill,
    real_parts,
    recurrent,
    reduce,
    regions,
    resample,
    resizing,
    rounding,
    rows,
    sampling,
    scan,
    shape,
    sharing,
    slicing,
    softmax,
    sort,
    special_functions,
    statistics,
    total_products,
    transcendental,
    turning,
    ufuncs,
    unfold,
    view,
)

# Methods that PyTorch has as functions of the same name too, none of them an op of its own.
METHODS_AND_FUNCTIONS = (
    "addmv_", "adjoint", "detach", "detach_", "fill_", "get_device", "index_put_", "is_complex",
    "is_floating_point", "is_inference", "is_same_size", "is_signed", "numel", "zero_",
)  # fmt: skip


def load_library(path: str) -> None:
    """Refuse, as PyTorch does with files that it cannot load: libraries of PyTorch's ops are none of ours.

    Programs that have them catch it, and go on without (torchvision does).

    Raises:
        OSError: always.
    """
    raise OSError(f"Could not load this library: {os.path.realpath(path)}")
