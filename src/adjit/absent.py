"""What PyTorch has and adjit has not: the names, by subject, and what to do instead.

One table, from which errors are told, those of imports too. The list in the README has the same subjects.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from importlib.abc import MetaPathFinder
from typing import Any, NamedTuple, NoReturn

ROOT = __name__.rpartition(".")[0]


class Subject(NamedTuple):
    """Names that are missing for one reason."""

    title: str
    instead: str
    names: str  # apart by spaces, of functions of modules with the module


SUBJECTS = (
    Subject(
        "Decompositions and solvers",
        "compute it with NumPy or SciPy on x.detach().numpy(), without gradients",
        "",
    ),
    Subject(
        "Orthogonal weights",
        "begin with nn.init.orthogonal_, and add (w.mT @ w - adjit.eye(n)).square().sum() to the loss",
        "nn.utils.parametrizations.orthogonal",
    ),
    Subject(
        "Transforms, windows and complex numbers",
        "keep real and imaginary parts in two tensors, and use numpy.fft",
        "",
    ),
    Subject(
        "Special functions of physics and statistics",
        "use scipy.special on x.detach().numpy(), without gradients",
        """special.airy_ai special.bessel_j0 special.bessel_j1
        special.bessel_y0 special.bessel_y1 special.chebyshev_polynomial_t
        special.chebyshev_polynomial_u special.chebyshev_polynomial_v special.chebyshev_polynomial_w
        special.hermite_polynomial_h
        special.hermite_polynomial_he special.laguerre_polynomial_l special.legendre_polynomial_p
        special.modified_bessel_i0 special.modified_bessel_i1 special.modified_bessel_k0
        special.modified_bessel_k1 special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1
        special.spherical_bessel_j0 special.shifted_chebyshev_polynomial_t
        special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
        special.shifted_chebyshev_polynomial_w""",
    ),
    Subject(
        "Function transforms that write nothing",
        "functions may write in place under every transform",
        "func.functionalize",
    ),
    Subject(
        "Sparse, quantised and half-precision tensors",
        "use dense float32 or float64 tensors",
        """sparse sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor
        sparse_csc_tensor sparse_csr_tensor nested hspmm dequantize
        quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic""",
    ),
    Subject(
        "Ops of one's own by PyTorch's registries and compilers",
        "write an adjit.autograd.Function, or a function for adjit.library.custom_op",
        """library.Library library.define library.impl library.triton_op library.wrap_triton library.opcheck
        classes""",
    ),
    Subject(
        "Other processes, other compilers",
        "use adjit.compile, and adjit.distributed with DistributedDataParallel",
        """export package _inductor.aoti_compile_and_package _inductor.aoti_load_package
        distributed.optim.DistributedOptimizer distributed.pipelining
        distributed.init_device_mesh distributed.DeviceMesh
        distributed.algorithms.ddp_comm_hooks distributed.algorithms.model_averaging""",
    ),
)  # fmt: skip


# Methods of tensors that are missing, by the title of a subject above or of one below.
METHODS = {
    "Decompositions and solvers": """cholesky cholesky_inverse cholesky_solve det eig geqrf inverse logdet lstsq
        lu lu_solve matrix_exp matrix_power orgqr ormqr pinverse qr slogdet solve svd symeig
        triangular_solve""",
    "Transforms, windows and complex numbers": "cdouble cfloat chalf istft stft",
    "Sparse, quantised and half-precision tensors": """ccol_indices coalesce col_indices crow_indices dense_dim
        dequantize indices int_repr is_coalesced q_per_channel_axis
        q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme
        resize_as_sparse_ row_indices slice_inverse smm sparse_dim sparse_mask sparse_resize_
        sparse_resize_and_clear_ sspaddmm to_mkldnn to_padded_tensor to_sparse to_sparse_bsc
        to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr values _indices""",
    "Other devices": "ipu mtia xpu",
    "Memory of another size or elsewhere": "as_strided_ const_data_ptr resize resize_as set_ storage_type",
    "Python on every element": "apply_ map2_ map_",
    "Parts and rows": "index",
    "What PyTorch uses itself or has no longer": """hash_tensor dim_order grad_dtype module_load reinforce
        volatile _make_wrapper_subclass""",
}  # fmt: skip
OTHER_SUBJECTS = {
    "Other devices": "look at x.device and x.is_cuda",
    "Memory of another size or elsewhere": "make a new tensor, with new_empty, as_strided or narrow",
    "Python on every element": "use the functions of tensors, or adjit.tensor of a list",
    "Optimisers as functions": "use the class, whose step moves all parameters at once",
    "Parts and rows": "use tensor_split, split, chunk, narrow, diagonal, scatter_reduce, x[...]",
    "What PyTorch uses itself or has no longer": "there is nothing to do instead",
}
# Functions and classes that can be imported and are there by name only, by the same titles.
KNOWN = {
    "Parts and rows": "segment_reduce",
    "Optimisers as functions": """
        optim.adadelta.adadelta optim.adagrad.adagrad optim.adam.adam optim.adamax.adamax optim.asgd.asgd
        optim.nadam.nadam optim.radam.radam optim.rmsprop.rmsprop optim.rprop.rprop optim.sgd.sgd""",
    "Decompositions and solvers": """
        cholesky cholesky_inverse cholesky_solve det geqrf inverse logdet lu_solve lu_unpack orgqr ormqr
        pinverse qr slogdet svd triangular_solve matrix_exp matrix_power lobpcg nuclear_norm
        linalg.cholesky_ex linalg.cond linalg.det linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh
        linalg.householder_product linalg.inv linalg.inv_ex linalg.ldl_factor linalg.ldl_factor_ex
        linalg.ldl_solve linalg.lstsq linalg.lu linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve
        linalg.matrix_exp linalg.matrix_power linalg.matrix_rank linalg.pinv linalg.qr linalg.slogdet
        linalg.solve linalg.solve_ex linalg.svd linalg.svdvals linalg.tensorinv linalg.tensorsolve
        svd_lowrank pca_lowrank""",
    "Transforms, windows and complex numbers": """
        stft istft bartlett_window blackman_window hamming_window hann_window kaiser_window complex polar
        view_as_complex view_as_real fft.fft fft.fft2 fft.fftfreq fft.fftn fft.fftshift fft.hfft fft.hfft2
        fft.hfftn fft.ifft fft.ifft2 fft.ifftn fft.ifftshift fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft
        fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftfreq fft.rfftn""",
    "Other processes, other compilers": """
        distributed._composable.fsdp.fully_shard distributed._composable.fsdp.FSDPModule
        distributed._tensor.experimental.implicit_replication distributed.fsdp.FSDPModule
        distributed._functional_collectives.all_to_all_single_autograd
        distributed._functional_collectives.wait_tensor
        distributed.checkpoint.HuggingFaceStorageReader distributed.checkpoint.HuggingFaceStorageWriter
        distributed.checkpoint.QuantizedHuggingFaceStorageReader
        distributed.checkpoint.load_sharded_optimizer_state_dict
        distributed.checkpoint.hf_storage.HuggingFaceStorageReader
        distributed.checkpoint.hf_storage.HuggingFaceStorageWriter distributed.device_mesh.DeviceMesh
        distributed.device_mesh.init_device_mesh distributed.fsdp.CPUOffloadPolicy
        distributed.fsdp.FullyShardedDataParallel distributed.fsdp.MixedPrecisionPolicy
        distributed.autograd.backward distributed.autograd.get_gradients
        distributed.fsdp.fully_shard distributed.rpc.init_rpc distributed.rpc.remote
        distributed.rpc.rpc_async distributed.rpc.rpc_sync distributed.rpc.shutdown
        distributed.tensor.DTensor distributed.tensor._utils.compute_local_shape_and_global_offset
        distributed.tensor.distribute_tensor distributed.tensor.placement_types._StridedShard
        nn.parallel._functions.Broadcast nn.parallel._functions.Gather
        nn.parallel._functions.ReduceAddCoalesced nn.parallel._functions.Scatter""",
    "Ops of one's own by PyTorch's registries and compilers": """
        utils.cpp_extension.BuildExtension
        utils.cpp_extension.include_paths utils.cpp_extension.library_paths utils.cpp_extension.load
        utils.cpp_extension.load_inline""",
    "Sparse, quantised and half-precision tensors": """
        quantization.DeQuantStub quantization.QConfig quantization.QuantStub quantization.QuantWrapper
        quantization.convert quantization.fuse_modules quantization.get_default_qat_qconfig
        quantization.get_default_qconfig quantization.prepare quantization.prepare_qat quantization.quantize
        quantization.quantize_dynamic quantization.observer.HistogramObserver
        quantization.observer.MinMaxObserver quantization.observer.MovingAverageMinMaxObserver
        quantization.observer.PerChannelMinMaxObserver quantization.qconfig.QConfig
        ao.quantization.DeQuantStub ao.quantization.QConfig ao.quantization.QuantStub
        ao.quantization.QuantWrapper ao.quantization.convert ao.quantization.fuse_modules
        ao.quantization.get_default_qat_qconfig ao.quantization.get_default_qconfig ao.quantization.prepare
        ao.quantization.prepare_qat ao.quantization.quantize ao.quantization.quantize_dynamic
        nn.quantized.BatchNorm2d nn.quantized.Conv2d nn.quantized.FloatFunctional nn.quantized.Linear
        nn.quantized.QFunctional quint8 qint8 qint32 quint4x2 quint2x4""",
    "What PyTorch uses itself or has no longer": """
        SymBool SymFloat SymInt _C.Argument _C.Block _C.FunctionSchema _C.Graph _C.Node _C.ScriptObject
        _C.Type _C.Use _C.Value _C.ListType _C.TensorType _C.OptionalType _C.TupleType _C.DictType
        _C.ClassType _C.IntType _C.FloatType _C.BoolType _C.StringType _C.NumberType _C.NoneType _C.AnyType
        autograd.profiler.EventList
        utils.data.dataloader._MultiProcessingDataLoaderIter
        utils._python_dispatch.TorchDispatchMode utils._python_dispatch.is_traceable_wrapper_subclass
        utils._python_dispatch.return_and_correct_aliasing utils._device.DeviceContext
        _subclasses.fake_tensor.FakeTensor _subclasses.fake_tensor.FakeTensorMode
        _subclasses.fake_tensor.FakeTensorConverter _subclasses.fake_tensor.unset_fake_temporarily""",
}  # fmt: skip
# Modules that have such names alone, or nearly so: what else is asked of them has a subject too.
MODULES_OF_NAMES = {
    "Other processes, other compilers": """_inductor distributed._composable distributed._functional_collectives
        distributed._tensor
        distributed.autograd distributed.checkpoint distributed.device_mesh distributed.elastic
        distributed.fsdp distributed.rpc
        distributed.tensor
        fx.experimental""",
    "Sparse, quantised and half-precision tensors": "quantization ao nn.quantized",
    "Ops of one's own by PyTorch's registries and compilers": "utils.cpp_extension",
}  # fmt: skip


class Missing:
    """Stands for a method that tensors have not: to look at it is the error that says what to do instead.

    `hasattr` and `getattr` with a default find nothing, and what a user sets is found before.
    """

    __slots__ = ("name", "told")

    def __init__(self, name: str, told: str) -> None:
        self.name, self.told = name, told

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        what = (
            f"type object '{owner.__name__}'" if instance is None else f"'{owner.__name__}' object"
        )
        raise AttributeError(
            f"{what} has no attribute {self.name!r}. {self.told}", name=self.name, obj=instance
        )


def missing_methods() -> Iterable[Missing]:
    """What to put in the place of methods that tensors have not."""
    for title, names in METHODS.items():
        for name in names.split():
            yield Missing(name, _told(title))


def is_missing(value: Any, name: str) -> bool:
    """Whether an attribute that `dir` lists is a method that is missing."""
    return isinstance(inspect.getattr_static(value, name, None), Missing)


def _told(title: str) -> str:
    instead = {subject.title: subject.instead for subject in SUBJECTS} | OTHER_SUBJECTS
    return f"{title}: adjit has not all that PyTorch has; {instead[title]}"


@functools.cache
def _titles() -> dict[str, str]:
    """The subject of each name that is missing."""
    modules = {name: title for title, names in MODULES_OF_NAMES.items() for name in names.split()}
    return modules | {name: subject.title for subject in SUBJECTS for name in subject.names.split()}


@functools.cache
def _known_titles() -> dict[str, str]:
    """The subject of each name that is there by name only."""
    return {name: title for title, names in KNOWN.items() for name in names.split()}


def _title(name: str) -> str | None:
    """The subject of a name, or of the module around it; or None."""
    while name and name not in _titles():
        name = name.rpartition(".")[0]
    return _titles().get(name)


def absent(room: str, name: str) -> AttributeError:
    """The error about a name that a module has not; `room` is the module without `adjit.`."""
    told = f"module '{'adjit.' + room if room else 'adjit'}' has no attribute {name!r}"
    title = _title(f"{room}.{name}" if room else name)
    return AttributeError(told if title is None else f"{told}. {_told(title)}")


@functools.cache
def known(room: str, name: str) -> Any:
    """What stands for a name that is imported to ask what something is, or for what may be called later.

    Nothing is an instance of such a class. To make one, and to call such a function, is the error.

    Raises:
        AttributeError: for other names, as `absent` has it.
    """
    full = f"{room}.{name}" if room else name
    if full not in _known_titles():
        raise absent(room, name)
    told = f"{ROOT}.{full} is there by name only. {_told(_known_titles()[full])}"
    home = f"{ROOT}.{room}" if room else ROOT

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(told)

    if name.lstrip("_")[0].isupper():
        return type(name, (), {"__new__": refuse, "__doc__": told, "__module__": home})
    refuse.__name__ = refuse.__qualname__ = name
    refuse.__module__, refuse.__doc__ = home, told
    return refuse


class AbsentModules(MetaPathFinder):
    """Asked last for a module: those of PyTorch that are missing are refused with what to do instead."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """Find nothing.

        Raises:
            ModuleNotFoundError: for a module of the table.
        """
        root, _, name = fullname.partition(".")
        if root == ROOT and (title := _title(name)) is not None:
            told = f"No module named {fullname!r}. {_told(title)}"
            raise ModuleNotFoundError(told, name=fullname)
