"""What happens in every torch call: CPU code runs natively, device code through torchax.

torchax 0.0.13 takes over all calls once it is enabled. CPU code then goes wrong: factories that
name no device give device tensors, CPU `one_hot`, `where`, `quantile`, `normal` and DataLoader
workers fail, `import torchvision` fails, and a CPU operation takes 20 times as long. The two modes
here replace torchax's own: a call that neither holds nor asks for a device tensor never reaches
torchax. What torchax gets wrong is replaced, see `calls.replaces`.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._device as torch_device
from torch._ops import mode_stack_state_for_pre_dispatch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torchax.ops import mappings
from torchax.tensor import Environment, Tensor, XLADispatchMode, XLAFunctionMode

from ..device import DEVICE_TYPE
from ..tensors.moving import check_range
from . import lost_gradients, result_dtypes
from .calls import (
    Function,
    holds_device_tensor,
    is_device_tensor,
    move,
    names_device,
    native,
    patch,
    replacements,
)

# torchax creates these on the device. All other factories are computed on the CPU and moved, since
# torchax's own give wrong dtypes: `torch.tensor([1, 2.5])` gave [1, 2], an int array float32.
_FACTORIES_ON_DEVICE = {
    torch.zeros,
    torch.ones,
    torch.empty,
    torch.full,
    torch.rand,
    torch.randn,
    torch.randint,
    torch.randperm,
}
# The values of these follow from their arguments: in a traced program they are constants.
_CONSTANT = {torch.arange, torch.linspace, torch.logspace, torch.eye}
# Backward may reach device tensors that are not among its arguments.
_NEVER_NATIVE = {torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad}


@dataclass(frozen=True)
class Hooks:
    """What other modules do in a call; NotImplemented for a result means "go on as usual"."""

    # The arguments as autocast requires them.
    cast_arguments: Callable[[Environment, Any, Any, Any], tuple[Any, Any]]
    # The result of a call with `out=`.
    write_result: Callable[[Environment, Any, Any, Any], Any]
    # The arguments of `as_strided` for the base of a tensor.
    of_base: Callable[..., tuple[Any, ...]]
    # The result of a view operator.
    link: Callable[[Environment, Any, Any, Any, Function], Any]
    # The result of an operator that is recorded.
    hold: Callable[[Any, Any, Any, Any, Any], Any]
    # The same for a torch function that torchax computes in one piece.
    hold_function: Callable[[Any, Any, Any, Any, Function], Any]


def is_watched() -> bool:
    """Whether another mode sees the operators: FlopCounterMode, export's, one of the program's."""
    mode = _get_current_dispatch_mode()
    is_other = mode is not None and not isinstance(mode, XLADispatchMode)
    return is_other or mode_stack_state_for_pre_dispatch().count() > 0


def modes_from_within(env: Environment) -> Any:
    """The device's modes, from within one of them; a mode that observes stays in front."""
    return contextlib.nullcontext() if is_watched() else env


def _check_devices(values: Any) -> None:
    """Raise torch's error if another tensor isn't on the device as well."""
    for value in pytree.tree_leaves(values):
        if isinstance(value, torch.Tensor) and not is_device_tensor(value):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{DEVICE_TYPE}:0 and {value.device}!"
            )


def _arrays(stock: Function) -> Function:
    """The arrays of tensors; torchax 0.0.13 raises AssertionError for some."""

    def t2j_iso(env: Environment, values: Any) -> Any:
        try:
            return stock(env, values)
        except AssertionError:
            _check_devices(values)
            raise

    return t2j_iso


class FunctionMode(XLAFunctionMode):
    """Decides for each call of a torch function or tensor method."""

    def __init__(self, env: Environment, hooks: Hooks) -> None:
        super().__init__(env)  # type: ignore[no-untyped-call]
        self.hooks = hooks

    def __torch_function__(
        self,
        func: Function,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if (
            torch_device.CURRENT_DEVICE is not None
            and kwargs.get("device") is None
            and func in torch_device._device_constructors()
        ):  # `with torch.device(...)` and set_default_device are below this mode
            kwargs = {**kwargs, "device": torch_device.CURRENT_DEVICE}
        device = kwargs.get("device")
        on_device = holds_device_tensor(args) or holds_device_tensor(kwargs)
        wants_device = names_device(device)
        if wants_device and isinstance(device, int):
            kwargs = {**kwargs, "device": DEVICE_TYPE}
        if func is torch._C._nn._parse_to:  # module.to(device="jax") only parses its arguments
            return native(func, args, kwargs)
        if func in _NEVER_NATIVE:
            return func(*args, **kwargs)
        replacement = replacements.get(func)
        if replacement is not None:
            result = replacement(self.env, func, args, kwargs)
            if result is not NotImplemented:
                return result
        watched = is_watched()
        if not on_device and not wants_device:
            return func(*args, **kwargs) if watched else native(func, args, kwargs)
        if kwargs.get("out") is not None:
            result = self.hooks.write_result(self.env, func, args, kwargs)
            if result is not NotImplemented:
                return result
        if self.env.param.autocast_dtype is not None:
            args, kwargs = self.hooks.cast_arguments(self.env, func, args, kwargs)
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if on_device and device is not None and not wants_device:  # zeros_like(x, device="cpu")
            rest = {name: value for name, value in kwargs.items() if name != "device"}
            return self.__torch_function__(func, types, args, rest).to(device)
        if wants_device and not on_device and func not in _FACTORIES_ON_DEVICE:
            made = native(func, args, {**kwargs, "device": "cpu"})
            check_range(made)
            if func in _CONSTANT:  # tracing.py watches what `env.t2j_copy` moves
                array = Environment.t2j_copy(self.env, made.detach())
                return Tensor(array, self.env, made.requires_grad)
            return move(self.env, made)
        if watched or lost_gradients.bypasses_autograd(func, args, kwargs):
            return func(*args, **kwargs)
        stock = super().__torch_function__
        if not on_device or lost_gradients.is_shortcut(func):
            result = self.hooks.hold_function(self, func, args, kwargs, stock)
            if result is not NotImplemented:
                return result
        elif func not in self.env._ops:  # torchax looks for it, and then calls it as well
            return func(*args, **kwargs)
        return stock(func, types, args, kwargs)


class DispatchMode(XLADispatchMode):
    """Decides for each ATen operator that a torch function is made of."""

    def __init__(self, env: Environment, hooks: Hooks) -> None:
        super().__init__(env)  # type: ignore[no-untyped-call]
        self.hooks = hooks

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if not holds_device_tensor(args) and not holds_device_tensor(kwargs):
            device = kwargs.get("device")
            # C++ takes device tensors for meta tensors, so "meta" means the device here.
            if not names_device(device) and str(device) != "meta":
                return func(*args, **kwargs)
        if func is torch.ops.aten.as_strided.default:
            args, kwargs = self.hooks.of_base(*args, **kwargs), {}
        if func._schema.is_mutable:
            if func is not torch.ops.aten.copy_.default and isinstance(args[0], torch.Tensor):
                _check_devices(args[0])

        def run() -> Any:
            result = self.hooks.hold(self, func, types, args, kwargs)
            return self.compute(func, types, args, kwargs) if result is NotImplemented else result

        if getattr(func, "is_view", False) and is_device_tensor(args[0]):
            return self.hooks.link(self.env, func, args, kwargs, run)
        return run()

    def compute(
        self, func: Any, types: object, args: tuple[Any, ...], kwargs: Any,
        as_arrays: Function | None = None,
    ) -> Any:  # fmt: skip
        """The result of an operator; views are not linked yet.

        ``as_arrays``: what numbers that vary become, after torch has told the dtypes.
        """
        if self.env.param.autocast_dtype is not None:
            args, kwargs = self.hooks.cast_arguments(self.env, func, args, kwargs)
        wanted = result_dtypes.of(func, args, kwargs)
        if wanted.inputs is not None:
            args = result_dtypes.promoted(func, args, wanted, self.env)
        if as_arrays is not None:
            args = as_arrays(args)
            kwargs = {name: as_arrays(value) for name, value in kwargs.items()}
        result = super().__torch_dispatch__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        return result_dtypes.converted(result, wanted, self.env) if wanted.results else result


def install(env: Environment, hooks: Hooks) -> None:
    """Replace torchax's own modes with these two, whether or not those are enabled already."""
    was_enabled = env.enabled
    if was_enabled:
        env.disable_torch_modes()
    env._function_mode = FunctionMode(env, hooks)
    env._dispatch_mode = DispatchMode(env, hooks)
    mappings.j2t = _to_cpu
    patch(Environment, t2j_iso=_arrays(Environment.t2j_iso))
    if was_enabled:
        env.enable_torch_modes()


def _to_cpu(array: Any, use_dlpack: bool = False) -> torch.Tensor:
    """A JAX array as a separate CPU tensor.

    torchax 0.0.13 shares the memory: `y = x.cpu(); y += 1` changes x on JAX's CPU back end, and
    the result of a later `x.cpu()` on a TPU.
    """
    import ml_dtypes
    import numpy as np

    host = np.array(array)
    dtype = mappings.j2t_dtype(array.dtype)

    def convert() -> torch.Tensor:
        if host.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(host.view(np.int16)).view(torch.bfloat16)
        try:
            return torch.from_numpy(host)
        except TypeError:  # 8 and 4 bit floats
            return torch.from_numpy(host.astype(np.float32)).to(dtype)

    with torch._C.DisableTorchFunction():
        return native(convert, (), {})  # type: ignore[no-any-return]
