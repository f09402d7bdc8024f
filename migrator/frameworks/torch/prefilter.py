"""Which files can contain PyTorch constructs, by words alone; which constructs use a device."""

from __future__ import annotations

import re

from migrator.analysis import traces
from migrator.analysis.devices import accelerators
from migrator.analysis.libraries import MODULES
from migrator.analysis.tokens import Tokens
from migrator.construct import Construct
from migrator.frameworks.torch import trainers
from migrator.vocabulary import Vocabulary

# Constructs found by more than their name: a file without any of these bytes, and without the words
# of the vocabulary, has no construct and isn't even parsed. The second pattern is only used for
# files that mention torch, because its words are common.
_TOKENS = Tokens(
    b"cuda", b"cudnn", b"nccl", b"nvidia-smi", b"torchrun", b"XRT_", b"lightning", b"__cell__",
    b"__command__", b"__setting__", b"__text__", b"__requirement__", b"__dependency__",
    b"__constraint__", b"__compiled__", b"__conda__", b"__build__", b"__python__", b"__table__",
    b"__source__", b"__pixi__", rb"_requires?\b", b"autocast", b"GradScaler", b"pin_memory",
    b"non_blocking", b"accelerator", b"DataParallel", b"submitit", b"LOCAL_RANK", b"WORLD_SIZE",
    b"local.rank", b"DistributedSampler", *trainers.TOKENS,
    *(name.encode() for name in sorted({*MODULES, *traces.LIBRARIES, *traces.OLDER_VARIABLES})),
)  # fmt: skip

_TORCH_TOKENS = re.compile(
    rb"Generator|sparse\s*=|\bpip\b|get_device|set_default_device|inference_mode|no_grad|\.step\(|distributed|parallel"
    rb"|torch\.a(?:ll|ny)\(|CUDA_VISIBLE|[Oo]ut ?[Oo]f ?[Mm]emory"
    rb"|mpi4py|multiproc|futures|[Tt]hread|executor"
    rb"|\.compile\(\s*(?:fullgraph|dynamic|backend|mode|options|disable)\b"
    rb"|(?:rank|gpu|dev|device)_?\w*\s*[,)]|to\(\s*\d|device=\s*\d|device\(\s*\d"
)

# Makes a program one that runs on a device, independent of the rules.
DEVICES = Vocabulary(
    names=frozenset({
        "torch.autocast", "torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.nn.DataParallel",
        "torch.set_default_device",
    }),
    prefixes=("torch.accelerator", "torch.amp", "torch.cuda"),
)  # fmt: skip


LETTERS = (*_TOKENS.letters, b"torch")


def has_tokens(source: bytes) -> bool:
    """A cheap test: False if the file has no construct except names of a vocabulary."""
    if _TOKENS.are_in(source):
        return True
    return b"torch" in source and (
        _TORCH_TOKENS.search(source) is not None or accelerators.TOKENS.are_in(source)
    )


_DEVICE_METHODS = frozenset({"cuda", "to", "type", "is_cuda", "get_device", "device"})
_DEVICE_NAMES = (
    "torch.cuda", "torch.accelerator", "torch.amp", "torch.autocast", "torch.device",
    "torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.nn.DataParallel",
    "torch.set_default_device",
)  # fmt: skip


def uses_device(construct: Construct) -> bool:
    """True for a construct that makes its program one that runs on a device.

    Checkpoints, library flags, extensions or `inference_mode` alone don't.
    """
    if construct.kind == "name":
        return construct.key.startswith(_DEVICE_NAMES)
    if construct.kind in ("method", "keyword"):
        return construct.key in _DEVICE_METHODS
    if construct.kind == "trainer":
        return construct.key in ("accelerator", "trainer", "lightning")
    return construct.kind in ("string", "tensor_type")
