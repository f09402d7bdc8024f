"""Run an unchanged CUDA PyTorch script on a machine without a GPU: the CPU stands in for it.

    python cpu_stand_in.py [--also xpu,mps,vulkan] SCRIPT [ARGUMENTS…]

`install()` replaces, in this process only, what a script uses to reach the GPU:

* devices: "cuda", "cuda:1", 0 and torch.device("cuda") mean the CPU wherever torch takes a device
  (moves, factories, map_location, device contexts, generators, autocast, GradScaler);
* `torch.cuda`: a device is available (or several), seeds go to the CPU generator, events take wall
  time, streams run in program order, memory statistics are 0;
* processes: nccl becomes gloo, DataParallel and DistributedDataParallel take a CPU module,
  SyncBatchNorm computes on the CPU;
* with `--also`, the accelerators named there are the CPU as well, and say that they are available.

A move still copies, as it does over PCIe, so what a script keeps on the host does not change when
it goes on writing on the "device". Arithmetic, dtypes and the order of operations are PyTorch's.

Known limits: tensors say that they are on the CPU (`x.device`, `x.is_cuda`); CUDA graphs,
extensions and child processes started by `spawn` are not covered. Numbers are those of a CPU, and
whoever stores them must say so (`capture.py` does, in provenance.json).
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo  # maps torch's functions by identity, so it must see the original ones
import torch.utils._device
from torch.nn.parameter import UninitializedTensorMixin

NAME = "CPU stand-in for CUDA"
MEMORY = 16 * 2**30  # bytes of memory that the device reports

NEW_METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "new_empty_strided")
LEGACY_TYPES = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long")
DO_NOTHING = (
    "empty_cache", "init", "ipc_collect", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats",
    "set_per_process_memory_fraction", "set_stream", "synchronize",
)  # fmt: skip
MEMORY_COUNTERS = (
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "utilization",
)


stood_in = {"cuda"}  # device types that mean the CPU
current = 0  # the device that the program has chosen
times_named = 0  # how often it has named one


def is_cuda(device: object) -> bool:
    """Whether `device` names a GPU: a device index, "cuda", "cuda:N" or such a torch.device."""
    global times_named
    text = str(device) if isinstance(device, (str, torch.device)) else ""
    kind, colon, index = text.partition(":")
    found = kind in stood_in and (index.isdigit() if colon else True)
    found |= isinstance(device, int) and not isinstance(device, bool)
    times_named += found
    return found


def on_cpu(device: Any) -> Any:
    """The device to use instead of `device`; anything that isn't a GPU is returned unchanged."""
    return torch.device("cpu") if is_cuda(device) else device


def without_cuda(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with its device= argument, or any torch.device among the others, on the CPU.

    Memory is not pinned, which would ask for a driver.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = on_cpu(kwargs["device"])
        kwargs.pop("pin_memory", None)
        args = tuple(on_cpu(a) if isinstance(a, torch.device) else a for a in args)
        return function(*args, **kwargs)

    return wrapper


def nothing(*args: object, **kwargs: object) -> None:
    """A call that has no meaning without a GPU."""


def always(value: object) -> Callable[..., Any]:
    """A function of any arguments that returns `value`."""
    return lambda *args, **kwargs: value


def set_device(device: Any) -> None:
    """Choose a device, which only changes what `current_device` says."""
    global current
    index = device if isinstance(device, int) else torch.device(device).index
    current = current if index is None or index < 0 else index


def manual_seed(seed: int) -> None:
    """Seed the one generator there is, but don't rewind it when it has that seed already."""
    if torch.initial_seed() != int(seed):
        torch.default_generator.manual_seed(int(seed))


def context(value: object) -> AbstractContextManager[Any]:
    """`torch.cuda.stream(value)`: a context that changes nothing."""
    return nullcontext(value)


@contextmanager
def nvtx_range(*args: object, **kwargs: object) -> Any:
    """`torch.cuda.nvtx.range`, a context and a decorator."""
    yield


def patch_tensor() -> None:
    """Tensor moves. They copy, except that a leaf that wants a gradient stays the leaf it is."""
    original_to, original_type = torch.Tensor.to, torch.Tensor.type

    def keeps_identity(tensor: torch.Tensor) -> bool:
        return tensor.is_leaf and tensor.requires_grad

    def copy_of(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if isinstance(tensor, UninitializedTensorMixin) else tensor.clone()

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        named = args[0] if args else None
        if not isinstance(named, (str, torch.device, int)):
            named = kwargs.get("device")
        if named is None:
            return original_to(self, *args, **kwargs)
        if args and args[0] is named:
            args = (on_cpu(named), *args[1:])
        else:
            kwargs["device"] = on_cpu(named)
        moved = original_to(self, *args, **kwargs)
        stays = is_cuda(named) and keeps_identity(self)
        if moved is not self or stays:
            return moved
        if isinstance(self, torch.nn.Parameter) and not torch.is_grad_enabled():
            # accelerate makes one for a model that it loads: on the CPU it would stay what it is
            return torch.nn.Parameter(self.detach().clone(), self.requires_grad)
        return copy_of(self)

    def cuda(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        is_cuda("cuda")  # is counted
        return self if keeps_identity(self) else copy_of(self)

    def cpu(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return copy_of(self)

    def tensor_type(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.")
        return original_type(self, dtype, *args, **kwargs)

    torch.Tensor.to, torch.Tensor.type = to, tensor_type
    torch.Tensor.cuda, torch.Tensor.cpu = cuda, cpu
    torch.Tensor.xpu = cuda
    UninitializedTensorMixin._allowed_methods += [to, cuda, cpu]
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
    torch.Tensor.record_stream = nothing
    torch.UntypedStorage.cuda = lambda self, *args, **kwargs: self
    for name in NEW_METHODS:
        setattr(torch.Tensor, name, without_cuda(getattr(torch.Tensor, name)))
    module_to = torch.nn.Module.to

    def move_module(self: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
        if args and isinstance(args[0], int):
            args = (torch.device("cuda", args[0]), *args[1:])
        return module_to(self, *args, **kwargs)

    torch.nn.Module.to = move_module


def patch_factories() -> None:
    """Everything that makes tensors, generators or default devices."""
    constructors: Iterable[Any] = torch.utils._device._device_constructors()
    modules = (torch, torch.fft, torch.nested)
    for module in modules:
        for name, value in list(vars(module).items()):
            if callable(value) and (value in constructors or name.endswith("_like")):
                here = without_cuda(value)
                setattr(module, name, here)
                if operator := torch.jit._builtins._find_builtin(value):  # for TorchScript
                    torch.jit._builtins._register_builtin(here, operator)

    default_context = torch.utils._device.DeviceContext
    original_init = default_context.__init__
    default_context.__init__ = lambda self, device: original_init(self, on_cpu(device))

    original_generator = torch.Generator

    class GeneratorMeta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original_generator)

        def __call__(cls, device: Any = "cpu") -> torch.Generator:
            return original_generator(on_cpu(device))

    torch.Generator = GeneratorMeta("Generator", (), {})

    load = torch.load

    @functools.wraps(load)
    def load_on_cpu(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, dict):
            map_location = "cpu"
        return load(f, on_cpu("cuda" if map_location is None else map_location), *args, **kwargs)

    torch.load = load_on_cpu
    default_type = torch.set_default_tensor_type

    def set_default_tensor_type(kind: Any) -> None:
        default_type(kind.replace("torch.cuda.", "torch.") if isinstance(kind, str) else kind)

    torch.set_default_tensor_type = set_default_tensor_type


def patch_cuda(count: int) -> None:
    """The functions of torch.cuda and torch.accelerator, with so many devices."""
    from gpu_objects import DeviceContext, Event, Stream

    properties = SimpleNamespace(
        name=NAME, major=8, minor=0, total_memory=MEMORY, multi_processor_count=1, warp_size=32
    )
    names: dict[str, Any] = {
        **dict.fromkeys(DO_NOTHING, nothing),
        **dict.fromkeys(MEMORY_COUNTERS, always(0)),
        "Event": Event,
        "Stream": Stream,
        "current_device": lambda: current,
        "current_stream": lambda *args, **kwargs: Stream(),
        "default_stream": lambda *args, **kwargs: Stream(),
        "device": DeviceContext,
        "device_count": always(count),
        "device_of": DeviceContext,
        "get_arch_list": always([]),
        "get_device_capability": always((8, 0)),
        "get_device_name": always(NAME),
        "get_device_properties": always(properties),
        "get_rng_state": lambda *args, **kwargs: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "initial_seed": torch.initial_seed,
        "is_available": always(True),
        "is_bf16_supported": always(True),
        "is_current_stream_capturing": always(False),
        "is_initialized": always(True),
        "manual_seed": manual_seed,
        "manual_seed_all": manual_seed,
        "mem_get_info": always((MEMORY, MEMORY)),
        "memory_stats": always({}),
        "memory_summary": always(""),
        "set_device": set_device,
        "seed": lambda: torch.default_generator.seed(),
        "seed_all": lambda: torch.default_generator.seed(),
        "set_rng_state": lambda state, *args, **kwargs: torch.set_rng_state(state),
        "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
        "stream": context,
        **{f"{kind}Tensor": getattr(torch, f"{kind}Tensor") for kind in LEGACY_TYPES},
    }
    for name, value in names.items():
        for module in (torch.cuda, torch.cuda.memory, torch.cuda.random):
            if hasattr(module, name):
                setattr(module, name, value)
        if "xpu" in stood_in:
            setattr(torch.xpu, name, value)
    for name in ("range_push", "range_pop", "mark"):
        setattr(torch.cuda.nvtx, name, nothing)
    torch.cuda.nvtx.range = nvtx_range
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        accelerator.is_available = always(True)
        accelerator.current_accelerator = always(torch.device("cuda"))
        accelerator.device_count = always(count)
        accelerator.current_device_index = lambda: current
        accelerator.set_device_index = accelerator.set_device_idx = set_device
        accelerator.synchronize = accelerator.set_stream = nothing
        accelerator.current_stream = names["current_stream"]


def patch_mps() -> None:
    """The names of torch.mps and torch.backends.mps."""
    for name in ("synchronize", "empty_cache", "set_per_process_memory_fraction"):
        setattr(torch.mps, name, nothing)
    for name in ("current_allocated_memory", "driver_allocated_memory"):
        setattr(torch.mps, name, always(0))
    torch.mps.recommended_max_memory = always(MEMORY)
    torch.mps.manual_seed = manual_seed
    torch.mps.device_count = always(1)
    torch.backends.mps.is_available = torch.backends.mps.is_built = always(True)


def patch_safetensors() -> None:
    """Files that are read directly onto a device."""
    with suppress(ImportError):
        import safetensors.torch

        load = safetensors.torch.load_file

        @functools.wraps(load)
        def load_file(filename: Any, device: Any = "cpu") -> Any:
            return load(filename, device="cpu" if is_cuda(device) else device)

        safetensors.torch.load_file = load_file


def patch_amp() -> None:
    """Mixed precision: the CPU's autocast, with CUDA's lists, and its GradScaler."""
    original_autocast = torch.autocast.__init__
    original_scaler = torch.amp.GradScaler.__init__

    @functools.wraps(original_autocast)
    def autocast(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if is_cuda(device_type):
            device_type, dtype = "cpu", dtype or torch.float16
        original_autocast(self, device_type, dtype, *args, **kwargs)

    @functools.wraps(original_scaler)
    def scaler(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        original_scaler(self, "cpu" if is_cuda(device) else device, *args, **kwargs)

    def of_function(custom: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(custom)
        def decorator(*args: Any, device_type: str, **kwargs: Any) -> Any:
            device_type = "cpu" if is_cuda(device_type) else device_type
            return custom(*args, device_type=device_type, **kwargs)

        return decorator

    torch.autocast.__init__ = autocast
    torch.amp.GradScaler.__init__ = scaler
    for name in ("custom_fwd", "custom_bwd"):
        setattr(torch.amp, name, of_function(getattr(torch.amp, name)))


@functools.cache
def install(*also: str, count: int = 1) -> None:
    """Put the CPU in CUDA's place for the rest of this process. Further calls do nothing.

    `also` names other accelerators that it stands for: "xpu", "mps", "vulkan"; `count` is the
    number of GPUs.
    """
    import cuda_autocast
    import gpu_operators
    import several_gpus

    cuda_autocast.install()
    gpu_operators.install()
    stood_in.update(also)
    os.environ["USE_TORCH_XLA"] = "0"  # otherwise accelerate uses it, if it is installed
    if "mps" in also:
        patch_mps()
    if "vulkan" in also:
        torch.is_vulkan_available = always(True)
    patch_tensor()
    patch_factories()
    patch_cuda(count)
    patch_safetensors()
    patch_amp()
    several_gpus.patch()


def run(script: Path, arguments: list[str], also: Sequence[str] = ()) -> None:
    """Run `script` as `python script arguments…` would, with the stand-in installed."""
    install(*also)
    sys.argv = [str(script), *arguments]
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    named, command = [], sys.argv[1:]
    if command[:1] == ["--also"] and len(command) > 1:
        named, command = command[1].split(","), command[2:]
    if not command or not set(named) <= {"xpu", "mps", "vulkan"}:
        sys.exit("usage: python cpu_stand_in.py [--also xpu,mps,vulkan] SCRIPT [ARGUMENTS…]")
    run(Path(command[0]), command[1:], named)
