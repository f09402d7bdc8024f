"""Targets: each file here supplies the words that the rules need; a new target is one new file."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

RUNTIME = "tpu_runtime"  # the package that migrated code imports (migrator/runtime/<target>)

# What the runtime offers under the name that torch.cuda has for it, for every target.
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
class Word:
    """A piece of the target's code. `{torch}` is the file's own name for torch (see `filled`).

    In `calls`, `{0}` is the first argument; in `autocast_arguments`, `{device}` is the device
    string in the quotes of the code around it.
    """

    code: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Devices:
    """How a program uses several devices.

    With `launch`, it starts a process for each device, as the original does; without, one process
    drives all devices and takes the place of all ranks.
    """

    group: str  # the back end of torch.distributed
    copies: Word  # what torch.nn.DataParallel becomes
    ranks: Word  # what torch.nn.parallel.DistributedDataParallel becomes
    launch: Word | None = None  # what torch.multiprocessing.spawn becomes
    sharded: Word | None = None  # what FullyShardedDataParallel becomes, and more with --shard fsdp
    sampler: Word | None = None  # what torch.utils.data.DistributedSampler becomes
    copies_setup: str = ""  # what set-up has to be told, where there are copies
    launch_setup: str = ""  # the same, where processes are started


@dataclass(frozen=True)
class Target:
    """The words of one target, and what it can not do.

    `calls` are native spellings that are better than the runtime's; everything else in `MIRRORED`
    becomes `tpu_runtime.<name>`.
    """

    name: str
    summary: str
    home: str  # where it is developed
    device: str  # the device type string
    device_object: Word | None  # None: torch.device(<device string>)
    autocast: Word  # the function; `autocast_arguments` are what it takes for bfloat16
    autocast_arguments: tuple[str, ...] = ()
    step_boundary: Word | None = None  # the statement behind an optimizer's step, if it needs one
    train_step: Word | None = None  # the decorator of a step that is compiled as a whole
    calls: Mapping[str, Word] = field(default_factory=dict)
    renames: Mapping[str, Word] = field(default_factory=dict)  # functions with the same arguments
    devices: Devices | None = None  # None: programs for several devices are reported
    profiler: str = ""  # what traces the device, for the messages
    float64: str = ""  # what becomes of it, for the messages
    lightning: str = "write the loop in PyTorch"  # what takes the place of Lightning's GPU trainer
    safetensors: bool = False  # whether safetensors reads straight onto the device
    library: str = ""  # what programs for it import; "torch_xla": its own older code stays its own
    device_loader: Word | None = None  # a loader that moves its batches, as torch_xla's does
    today: Mapping[str, str] = field(default_factory=dict)  # the names of what was renamed there
    portable: bool = False  # the program chooses its device when it starts, see `portable`

    @property
    def launches(self) -> bool:
        """Whether a program with ranks stays one: a process for each device."""
        return self.devices is not None and self.devices.launch is not None

    @property
    def label(self) -> str:
        """What was asked for, in words."""
        return f"{self.name} --portable" if self.portable else self.name

    def call(self, name: str) -> Word | None:
        """The spelling of a call to `torch.cuda.<name>`, None where only the runtime has it."""
        return self.calls.get(name)


def filled(words: Any, torch: str, requires: tuple[str, ...]) -> Any:
    """A target, or any of its words, with a file's own name for torch in it."""
    match words:
        case Word(code=code) if "{torch}" in code:
            return Word(code.replace("{torch}", torch), (*words.requires, *requires))
        case str():
            return words.replace("{torch}", torch)
        case tuple():
            return tuple(filled(each, torch, requires) for each in words)
        case Mapping():
            return {name: filled(each, torch, requires) for name, each in words.items()}
        case Target() | Devices():
            own = {f.name: getattr(words, f.name) for f in fields(words)}
            return replace(words, **filled(own, torch, requires))
    return words


def with_ranks(target: Target) -> Target:
    """The words of a program that starts a process for each device.

    The one that starts them must not use the device itself, which the runtime sees to.
    """
    return replace(
        target,
        device_object=None,
        calls={name: word for name, word in target.calls.items() if not word.requires},
        renames=_of_runtime(target.renames),
    )


def _of_runtime(names: Mapping[str, Word]) -> dict[str, Word]:
    return {name: Word(f"{RUNTIME}.{name.rpartition('.')[2]}", (RUNTIME,)) for name in names}


def portable(target: Target) -> Target:
    """The words of a program that still runs on a GPU and on a CPU: all of them the runtime's."""
    boundary = target.step_boundary
    return replace(
        target,
        device_object=Word(f"{RUNTIME}.device()", (RUNTIME,)),
        autocast=Word(f"{RUNTIME}.autocast", (RUNTIME,)),
        autocast_arguments=(),
        step_boundary=Word(f"{RUNTIME}.sync()", (RUNTIME,)) if boundary else None,
        device_loader=None,
        calls={},
        devices=None,
        renames=_of_runtime(target.renames),
        portable=True,
    )


@cache
def targets() -> dict[str, Target]:
    """Every target by name, found by looking into this folder."""
    found: dict[str, Target] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found[module.TARGET.name] = module.TARGET
    return dict(sorted(found.items()))
