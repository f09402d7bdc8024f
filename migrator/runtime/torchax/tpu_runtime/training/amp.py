"""Mixed precision, with the operator lists of CUDA's autocast and bfloat16.

torchax 0.0.13: `torch.autocast` leaves float32; torchax's own misses convolutions (a bfloat16 input
meets a float32 bias and raises), softmax, norms and exponentials, fails in `cat`, and on exit
rewinds the random numbers, so that every step draws the same dropout mask.
"""

import functools
import warnings
from collections.abc import Callable
from types import SimpleNamespace, TracebackType
from typing import Any, ParamSpec, TypeVar

import torch
import torchax
from torch.utils import _pytree as pytree
from torchax import amp as torchax_amp
from torchax.tensor import Environment

from ..device import DEVICE_TYPE
from ..dispatch.calls import is_device_tensor, patch
from ..frameworks.import_hooks import when_imported

P = ParamSpec("P")
R = TypeVar("R")

# https://docs.pytorch.org/docs/stable/amp.html, "CUDA Ops that can autocast". An operator that is
# called inside another torch function is listed by its ATen name.
_LOWER = """
    __matmul__ __rmatmul__ addbmm addmm addmv addr baddbmm bmm chain_matmul multi_dot conv1d conv2d
    conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc einsum linear matmul mm mv
    prelu scaled_dot_product_attention vecdot
"""
_LOWER_ATEN = "addbmm addmm addmv baddbmm bmm convolution mm mv _prelu_kernel"
_FLOAT32 = """
    __pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cdist cosh
    cosine_embedding_loss cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1
    group_norm hinge_embedding_loss interpolate kl_div l1_loss layer_norm log log10 log1p log2
    log_softmax logsumexp margin_ranking_loss matrix_norm mse_loss multi_margin_loss
    multilabel_margin_loss
    nll_loss norm normalize pdist poisson_nll_loss pow prod reciprocal renorm rsqrt sinh
    smooth_l1_loss soft_margin_loss softmax softmin softplus sum tan triplet_margin_loss
    vector_norm
"""
_FLOAT32_ATEN = "_softmax _log_softmax native_layer_norm native_group_norm"


def _functions(names: str, aten_names: str) -> set[Any]:
    homes = (torch, torch.Tensor, torch.nn.functional, torch.linalg)
    found = {
        function
        for name in names.split()
        for home in homes
        if (function := getattr(home, name, None)) is not None
    }
    for name in aten_names.split():
        packet = getattr(torch.ops.aten, name)
        found.update(getattr(packet, overload) for overload in packet.overloads())
    return found


_lower_functions = _functions(_LOWER, _LOWER_ATEN)
_float32_functions = _functions(_FLOAT32, _FLOAT32_ATEN)


def cast_arguments(env: Environment, function: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments in the dtype that autocast requires for ``function``; only device tensors."""
    if function in _lower_functions:
        dtype = env.param.autocast_dtype
    elif function in _float32_functions:
        dtype = torch.float32
    else:
        return args, kwargs

    def cast(value: Any) -> Any:
        if (
            not is_device_tensor(value)
            or value.dtype == dtype
            or value.dtype not in (torch.float32, torch.bfloat16, torch.float16)
        ):
            return value
        with env._dispatch_mode:
            return torch.ops.aten._to_copy.default(value, dtype=dtype)

    return pytree.tree_map(cast, (args, kwargs))  # type: ignore[no-any-return]


class autocast:
    """`torch.autocast` for the device: a context manager and a decorator.

    Takes the arguments of ``torch.autocast`` (device type first) and of ``torch.cuda.amp.autocast``
    (enabled first). The device type is ignored, except that "cpu" means torch's own autocast.
    float16 becomes bfloat16, which the TPU computes in, and which is the default; ``cache_enabled``
    changes nothing. A dtype that isn't lower precision disables it, with a warning, as in torch.
    """

    def __init__(
        self,
        device_type: str | bool | None = None,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if isinstance(device_type, bool):  # torch.cuda.amp.autocast(True)
            enabled = device_type
            device_type = None
        self._cpu: Any = None
        if device_type is not None and torch.device(device_type).type == "cpu":
            self._cpu = torch.autocast("cpu", dtype=dtype, enabled=enabled)
        elif dtype not in (None, torch.float16, torch.bfloat16):
            warnings.warn(f"autocast to {dtype} is not supported: disabled", stacklevel=2)
            enabled = False
        self._dtype = torch.bfloat16 if enabled else None
        self._before: list[torch.dtype | None] = []

    def __enter__(self) -> "autocast":
        if self._cpu is not None:
            self._cpu.__enter__()
        else:
            state = torchax.default_env().param
            self._before.append(state.autocast_dtype)
            state.autocast_dtype = self._dtype
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._cpu is not None:
            self._cpu.__exit__(kind, error, trace)
        else:
            torchax.default_env().param.autocast_dtype = self._before.pop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return wrapped


def _is_on() -> bool:
    return torchax.default_env().param.autocast_dtype is not None


def _answers() -> None:
    """Answer torch's questions about autocast for the device; also if none is named, because code
    for GPUs means it."""
    is_enabled, get_dtype = torch.is_autocast_enabled, torch.get_autocast_dtype

    @functools.wraps(is_enabled)
    def is_autocast_enabled(device_type: str | None = None) -> bool:
        return _is_on() if device_type in (None, DEVICE_TYPE) else is_enabled(device_type)

    @functools.wraps(get_dtype)
    def get_autocast_dtype(device_type: str) -> torch.dtype:
        return torch.bfloat16 if device_type == DEVICE_TYPE else get_dtype(device_type)

    patch(torch, is_autocast_enabled=is_autocast_enabled, get_autocast_dtype=get_autocast_dtype)
    patch(torch, get_autocast_gpu_dtype=lambda: torch.bfloat16)


def _as_in_the_first_pass(checkpoint: Callable[..., R]) -> Callable[..., R]:
    """A function of `torch.utils.checkpoint`, which asks torch's own autocast how to recompute:
    that autocast is off here."""

    def with_autocast(function: Callable[..., Any], *args: Any, **kwargs: Any) -> R:
        first = autocast(enabled=_is_on())
        return checkpoint(first(function), *args, **kwargs)

    return with_autocast


def _keep_autocast(module: Any) -> None:
    name = "_checkpoint_without_reentrant_generator"
    setattr(module, name, _as_in_the_first_pass(getattr(module, name)))
    if hasattr(module, "CheckpointFunction"):
        apply = _as_in_the_first_pass(module.CheckpointFunction.apply)
        module.CheckpointFunction = SimpleNamespace(apply=apply)


def install(env: Environment) -> None:
    """Cast arguments by these lists only.

    torchax's policies for lists of tensors are removed: they fail, and JAX promotes by itself.
    """
    _answers()
    for operator, policy in list(torchax_amp.autocast_policy.items()):
        if policy is torchax_amp.CastPolicy.PROMOTE:
            del torchax_amp.autocast_policy[operator]
    when_imported("torch.utils.checkpoint", _keep_autocast)
    when_imported("torch.distributed._composable.checkpoint_activation", _keep_autocast)
