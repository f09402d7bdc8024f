"""TargetApi: the code that rules write for a target, and what they need to know about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

# Names of torch.cuda that a runtime may also offer.
MIRRORED = frozenset({
    "Event", "autocast", "current_device", "device_count", "get_device_name",
    "get_device_properties", "initial_seed", "is_available", "is_bf16_supported", "manual_seed",
    "manual_seed_all",
    "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_reserved", "memory_stats", "memory_summary", "reset_max_memory_allocated",
    "reset_peak_memory_stats", "seed", "seed_all", "synchronize",
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor",
    "HalfTensor", "IntTensor", "LongTensor", "ShortTensor",
})  # fmt: skip


@dataclass(frozen=True)
class Snippet:
    """A piece of the target's code, and the modules that it needs (`a.b as c` with an alias).

    In `code`, `{torch}` is the file's own name for torch, `{device}` the device string in the
    quotes of the code around it, `{cpu}` that of the CPU, and `{0}` the first argument of the call
    that it replaces.
    """

    code: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Devices:
    """How a program uses several devices.

    With `launch`, it keeps its ranks: a process for each device, as in the original. Without it, a
    single process drives all devices and does the work of all ranks.
    """

    group: str  # the backend of torch.distributed
    # Whether torch.distributed serves the device itself, all of it but what `lacks` has
    native: bool = False
    lacks: Mapping[str, str] = field(default_factory=dict)  # reasons, by name
    copies: Snippet | None = None  # what torch.nn.DataParallel becomes; None: it stays
    # What torch.nn.parallel.DistributedDataParallel becomes; None: it stays itself
    ranks: Snippet | None = None
    back_end: Snippet | None = None  # code for `group`, if the program chooses its device
    launch_environment: Snippet | None = None  # called before processes start
    launch_command: str = ""  # the same in a shell
    launch: Snippet | None = None  # what torch.multiprocessing.spawn becomes; it may stay itself
    address: str = ""  # the init_method of the group, if it replaces the program's own
    unsharded: Snippet | None = None  # what FullyShardedDataParallel becomes, if ranks stay ranks
    replicated: Snippet | None = None  # what fully_shard becomes there
    sharded: Snippet | None = None  # what it becomes with --shard fsdp and the like
    sampler: Snippet | None = None  # what torch.utils.data.DistributedSampler becomes
    copies_setup: str = ""  # arguments of set-up for programs with copies
    launch_setup: str = ""  # arguments of set-up for programs that start processes
    one_process: Devices | None = None  # the words with --shard, if they differ


@dataclass(frozen=True)
class TargetApi:
    """The code that rules write for a target, what it can do, and what messages say about it.

    Only `device` is required. A construct without a word, and not in the target's runtime, is
    reported. `calls` are the target's own functions, by their names in torch.cuda; they take
    precedence over the runtime's.
    """

    device: str  # the device type string
    device_object: Snippet | None = None  # None: torch.device(<device string>)
    # If the program chooses its device when it starts: names for the variable that holds
    # `device_object`; a file uses the first name that it doesn't use otherwise.
    device_names: tuple[str, ...] = ()
    on_gpu: Snippet | None = None  # if so, whether it runs on a GPU
    autocast: Snippet | None = None  # the function; `autocast_arguments` choose bfloat16
    autocast_arguments: tuple[str, ...] = ()
    step_boundary: Snippet | None = None  # the statement after an optimizer step, if it needs one
    holds_steps: bool = False  # the runtime computes a step as one program, without a boundary
    device_loader: Snippet | None = None  # a loader that moves its batches
    calls: Mapping[str, Snippet] = field(default_factory=dict)
    renames: Mapping[str, Snippet] = field(
        default_factory=dict
    )  # functions with the same arguments
    devices: Devices | None = None  # None: programs for several devices are reported
    keras_backend: str = ""  # Keras' back end, if it isn't TensorFlow
    # The statement that makes a strategy of tf.distribute, as `{name}`; None: there is none
    strategy: Snippet | None = None

    # The target's abilities. Anything not known to work is reported.
    device_has_index: bool = False  # `device_object` equals a tensor's device, including the index
    compiles_constants: bool = False  # lists that become tensors are only sent to the device once
    generators: bool = False  # it has generator objects of its own
    compiles: bool = False  # torch.compile works, without options for other back ends
    transforms: bool = False  # `vmap`, `grad` and the like of torch.func work
    scripts_normalization: bool = False  # a module on the device can be scripted with BatchNorm
    scripts_dropout: bool = False  # … and trained with dropout
    scripts_devices: bool = True  # TorchScript sees which device a tensor is on
    flex_attention: bool = False  # FlexAttention works
    safetensors: bool = False  # safetensors reads straight onto the device, by its name
    threads: bool = False  # any thread may use the device
    absent: frozenset[str] = frozenset()  # operators that neither it nor the CPU supports
    thread_setup: str = ""  # the call that lets another thread use it as well

    # For messages.
    profiler: str = "its own profiler"  # the profiler of the device
    float64: str = "float64 is slow"  # how it behaves
    accelerate_off: str = ""  # the variable that always keeps accelerate from using it

    @property
    def records(self) -> bool:
        """Whether operations are only recorded until a value is needed."""
        return self.holds_steps or self.step_boundary is not None

    @property
    def launches(self) -> bool:
        """Whether a program with ranks keeps them: a process for each device."""
        return self.devices is not None and self.devices.launch is not None


_Filled = TypeVar("_Filled")


def filled(words: _Filled, placeholders: Mapping[str, str], requires: tuple[str, ...]) -> _Filled:
    """TargetApi, or any part of them, with `{name}` replaced by text.

    A word that uses a placeholder also `requires` what that needs.
    """
    texts = {f"{{{name}}}": text for name, text in placeholders.items()}
    result: _Filled = _filled(words, texts, requires)
    return result


def _filled(words: Any, texts: Mapping[str, str], requires: tuple[str, ...]) -> Any:
    match words:
        case Snippet(code=code) if any(name in code for name in texts):
            return Snippet(_filled(code, texts, ()), (*words.requires, *requires))
        case str():
            for name, text in texts.items():
                words = words.replace(name, text)
            return words
        case tuple():
            return tuple(_filled(each, texts, requires) for each in words)
        case Mapping():
            return {name: _filled(each, texts, requires) for name, each in words.items()}
    if is_dataclass(words) and not isinstance(words, Snippet | type):
        own = {f.name: _filled(getattr(words, f.name), texts, requires) for f in fields(words)}
        return replace(words, **own)
    return words
