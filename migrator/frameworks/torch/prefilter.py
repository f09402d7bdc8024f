"""Which files can hold constructs of PyTorch's, by words alone; which constructs use a device."""

from __future__ import annotations

import re

from migrator.analysis import traces
from migrator.analysis.devices import accelerators
from migrator.analysis.libraries import MODULES
from migrator.construct import Construct
from migrator.frameworks.torch import trainers
from migrator.vocabulary import Vocabulary

# What is found by more than its name: a file without any of these bytes, and without the words of
# the vocabulary, holds no construct and is not even parsed. The second pattern is asked only of
# files that speak of torch, since its words are common.
_TOKENS = re.compile(
    rb"cuda|cudnn|nccl|nvidia-smi|torchrun|XRT_|lightning|__cell__|__command__|__setting__|__text__|__requirement__|__dependency__|"
    rb"__constraint__|__compiled__|__conda__|__build__|__python__|__table__|__source__|__pixi__|_requires?\b|autocast|GradScaler|pin_memory|non_blocking|accelerator|DataParallel|submitit|"
    rb"LOCAL_RANK|WORLD_SIZE|local.rank|DistributedSampler|"
    + trainers.TOKENS
    + b"|"
    + "|".join([*sorted(MODULES), *traces.LIBRARIES, *sorted(traces.OLDER_VARIABLES)]).encode()
)

_TORCH_TOKENS = re.compile(
    rb"Generator|sparse\s*=|\bpip\b|get_device|set_default_device|inference_mode|no_grad|\.step\(|distributed|parallel"
    rb"|torch\.a(?:ll|ny)\(|CUDA_VISIBLE|[Oo]ut ?[Oo]f ?[Mm]emory"
    rb"|mpi4py|multiproc|futures|[Tt]hread|executor"
    rb"|(?:rank|gpu|dev|device)_?\w*\s*[,)]|to\(\s*\d|device=\s*\d|device\(\s*\d"
)

# What makes a program one that runs on a device, whatever the rules are about.
DEVICES = Vocabulary(
    names=frozenset({
        "torch.autocast", "torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.nn.DataParallel",
        "torch.set_default_device",
    }),
    prefixes=("torch.accelerator", "torch.amp", "torch.cuda"),
)  # fmt: skip


def has_tokens(source: bytes) -> bool:
    """A cheap test: False means that the file holds no construct but for names of a vocabulary."""
    if _TOKENS.search(source):
        return True
    return b"torch" in source and (
        _TORCH_TOKENS.search(source) is not None or accelerators.TOKENS.search(source) is not None
    )


_DEVICE_METHODS = frozenset({"cuda", "to", "type", "is_cuda", "get_device", "device"})
_DEVICE_NAMES = (
    "torch.cuda", "torch.accelerator", "torch.amp", "torch.autocast", "torch.device",
    "torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.nn.DataParallel",
    "torch.set_default_device",
)  # fmt: skip


def uses_device(construct: Construct) -> bool:
    """True for a construct that makes its program one that runs on a device.

    Checkpoints, flags of libraries, extensions or `inference_mode` alone do not.
    """
    if construct.kind == "name":
        return construct.key.startswith(_DEVICE_NAMES)
    if construct.kind in ("method", "keyword"):
        return construct.key in _DEVICE_METHODS
    if construct.kind == "trainer":
        return construct.key in ("accelerator", "trainer", "lightning")
    return construct.kind in ("string", "tensor_type")
