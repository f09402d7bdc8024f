"""Which files can contain PyTorch constructs, by words alone; which constructs use a device."""

from __future__ import annotations

import re
from itertools import pairwise

from migrator.analysis import (
    find_old_arithmetic,
    find_version_checks,
    foreign_code,
    old_images,
    old_numbers,
    old_shapes,
)
from migrator.analysis.construct_names import STAR, imported_words
from migrator.analysis.cuda_libraries import HEADS
from migrator.analysis.devices import other_accelerators
from migrator.analysis.prefilter import Tokens, without_prose
from migrator.construct import Construct
from migrator.frameworks.torch import find_ray_requests, find_trainers

# Constructs found by more than their name: a file without any of these bytes, and without the words
# of the vocabulary, has no construct and isn't even parsed. The second ones are only used for
# files that mention torch, because their words are common.
_TOKENS = Tokens(
    b"cuda", b"cudnn", b"nccl", b"nvidia-smi", b"torchrun", b"XRT_", b"lightning", b"__cell__",
    b"__command__", b"__setting__", b"__text__", b"__requirement__", b"__dependency__",
    b"__constraint__", b"__compiled__", b"__conda__", b"__build__", b"__python__", b"__table__",
    b"__source__", b"__pixi__", rb"_requires?\b", b"autocast", b"GradScaler", b"pin_memory",
    b"non_blocking", b"accelerator", b"DataParallel", b"flash_attention_", b"flash-attn",
    b"submitit", b"LOCAL_RANK", b"WORLD_SIZE",
    rb"opt\w*\.step\(",  # of a wrapper, which need not import torch
    rb"device_map\s*=", rb"load_in_[48]bit\s*=",  # of files that only import transformers
    b"ExecutionProvider",
    b"local.rank", b"DistributedSampler", b"set_default_device", *find_trainers.TOKENS,
    *find_ray_requests.TOKENS,
    *(name.encode() for name in sorted({*foreign_code.LIBRARIES, *foreign_code.OLDER_VARIABLES})),
)  # fmt: skip

_TORCH_TOKENS = Tokens(
    rb"[.\"']Generator\b", rb"(?<!class )\bGenerator\b\s*(?:\(\s*[^)\s]|as\b)",
    rb"sparse[\"']?\s*[=:]", rb"\bpip\b", b"get_device", rb"\.step\(", rb"torch\.a(?:ll|ny)\(",
    b"CUDA_VISIBLE",
    rb"[Oo]ut ?[Oo]f ?[Mm]emory", b"mpi4py", b"multiproc", b"futures", rb"[Tt]hread", b"executor",
    rb"\.compile\(\s*(?:fullgraph|dynamic|backend|mode|options|disable)\b", rb"rank\w*\s*[,)]",
    rb"gpu\w*\s*[,)]", rb"dev(?!ice\s*[,)])\w*\s*[,)]", rb"device(?<=\wdevice)\s*[,)]",
    rb"to\(\s*\d", rb"device[=(]\s*\d", rb"[\"'](?:GROUP_)?RANK[\"']", b"SLURM_",
    b"OMPI_COMM_WORLD_", b"PMI_", rb"getattr\(\s*torch\s*,\s*[^\"'\s]",
    rb"\]\s*=\s*[\w.]+\[(?:~?\w*(?:mask|valid)\w*|[^\]\n]*[=!<>~][^\]\n]*)\]",
    rb"getattr\(\s*\w+\s*,[^,)\"']*dev", rb"custom_[fb]wd\b",
    rb"device(?:\.type|\)|\}[\"'])\s*\[", rb"device\w*\[\s*(?:-?\d*\s*:|-)",  # str(x.device)[5:]
    rb"(?:match|search|find\w+|split|subn?)\([^\n]*device",  # re.match(pattern, str(device))
)  # fmt: skip
# A variable called just `device` is seldom a number. It may be one if it is an option, is annotated
# as one, is bound by anything but an assignment, or is assigned more than a device.
_DEVICE = re.compile(rb"device\s*[,)]")
_VALUE = rb"(?:None|[\"'][\w:]*[\"']|(?:(?:[\w.\[\]\"']|\((?:[^()\n]|\([^()\n]*\))*\))*\.)?device)"
_NUMBER = re.compile(
    rb"device(?:(?<!\wdevice)[\"'](?!, None\))\s*[,)]|(?<=\bas device)\b|(?<=\bdef device)\b"
    rb"|\b[^\n:=]*\bin\b"
    rb"|\s*(?::=|[-+*/%|&^<>]+=)|\s*:(?:[^=\n]*\bint\b|[^=\n\]]*\[\s*\n)"
    rb"|(?<!torch\.device)\b(?!\s*:)[^\n=()]*[)\]]\s*=(?!=)|\s*(?::[^=\n]*)?=(?!=)"
    rb"(?!\s*"
    + _VALUE
    + rb"(?: if (?:(?! else )[^\n])* else "
    + _VALUE
    + rb")?[ \t\r]*(?:[,)\n#;]|\\n)))"
)
_UNPACKED = re.compile(rb"device[ \t]*,[^\n=(]*=(?!=)")
_FROM_TENSOR = re.compile(rb"[ \t]*(?:[\w.\[\]]|\([^()\n]*\))*\.device[ \t]*,")
# Where a function or one of its decorators begins, and a loop, in a notebook, too.
_FUNCTION = re.compile(rb"^(?: {0,4}|\t?)(?=@|(?:async )?def |class )", re.MULTILINE)
_LOOP = re.compile(rb"(?:^|\"|\\n)(?:[ \t]|\\t)*(?:async )?(?:for|while)\b", re.MULTILINE)
# A file that works on a device, and code that there is advice about in such a file.
_WORKS = re.compile(rb"def forward\(|device\s*[,)]")
_ADVISED = Tokens(
    rb"\.item\(", rb"\.tolist\(", rb"\.cpu\(", rb"\.any\(", rb"\.all\(", b"nonzero",
    b"masked_select", b"argwhere", b"repeat_interleave", rb"\bunique", rb"nms\(",
    rb"tokenizer\(", b"float16", b"float64", rb"\bdouble\b", rb"cat\(\s*[\[(]\s*(?:prev|past|self)",
    rb"\[(?<=[\w\])]\[)[^\]\n]*(?:[=!<>]=|[<>~])[^\]\n]*\]",
    *(
        rb"%b\b(?:(?! else )[^\n])*\b(?:sum|max|min|isnan|isfinite|equal|allclose)\(" % word
        for word in (b"if", b"while", b"assert")
    ),
)  # fmt: skip
_OF_OWNER = re.compile(rb"\.device\s*[,)]")
_IMPORT = re.compile(rb"\b(?:from|import)\b([^\n#;]*)")
_WORD = re.compile(rb"\w+")
_LAST_WORD = re.compile(rb"\w*\Z")


def has_tokens(source: bytes) -> bool:
    """A cheap test: False if the file has no construct except names of a vocabulary."""
    return (
        has_device_tokens(source)
        or old_images.may_be_in(source)
        or old_numbers.may_be_in(source)
        or old_shapes.may_be_in(source)
        or find_old_arithmetic.may_be_in(source)
        or find_version_checks.may_be_in(source)
        or (
            b"torch" in source
            and (
                (_WORKS.search(source) is not None and _ADVISED.are_in(source))
                or (b"no_grad" in source and _may_repeat_without_gradients(source))
            )
        )
    )


def has_device_tokens(source: bytes) -> bool:
    """The same for constructs that concern devices."""
    if _TOKENS.are_in(source) or _imports_for_cuda(source):
        return True
    return b"torch" in source and (
        _TORCH_TOKENS.are_in(source)
        or other_accelerators.TOKENS.are_in(source)
        or (_DEVICE.search(source) is not None and _may_number_devices(source))
    )


def _imports_for_cuda(source: bytes) -> bool:
    """Whether a file may import one of the libraries for CUDA."""
    return any(not HEADS.isdisjoint(_WORD.findall(each)) for each in _IMPORT.findall(source))


def _may_repeat_without_gradients(source: bytes) -> bool:
    """Whether a function, with its decorators, has `no_grad` and a loop."""
    begins = [found.start() for found in _FUNCTION.finditer(source)]
    without = False
    for begin, end in pairwise([0, *begins, len(source)]):
        part = source[begin:end]
        without = without or b"no_grad" in part
        if without and _LOOP.search(part):
            return True
        without = without and part.lstrip().startswith(b"@")
    return False


def _may_number_devices(source: bytes) -> bool:
    """Whether `device` may be a number, of this file or of a module that it imports."""
    if STAR.search(source) or (
        _NUMBER.search(source) is not None and _NUMBER.search(without_prose(source)) is not None
    ):
        return True
    for found in _UNPACKED.finditer(source):
        before = source[source.rfind(b"\n", 0, found.start()) + 1 : found.start()]
        if not before.strip() and _FROM_TENSOR.match(source, found.end()):
            continue  # device, dtype = x.device, x.dtype
        if b"(" not in before and b"=" not in before:  # not the arguments of a call
            return True
    owners = {b"device"}
    for found in _OF_OWNER.finditer(source):
        if match := _LAST_WORD.search(source, max(0, found.start() - 100), found.start()):
            owners.add(match[0])
    return not owners.isdisjoint(imported_words(source) - {b"torch"})


_DEVICE_METHODS = frozenset({"cuda", "to", "type", "is_cuda", "get_device", "device"})
_DEVICE_NAMES = (
    "torch.cuda", "torch.accelerator", "torch.amp", "torch.autocast", "torch.device",
    "torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel", "torch.set_default_device",
)  # fmt: skip


def uses_device(construct: Construct) -> bool:
    """True for a construct that makes its program one that runs on a device.

    Checkpoints, library flags, extensions or `inference_mode` alone don't.
    """
    if construct.kind == "name":
        return construct.by_number or construct.key.startswith(_DEVICE_NAMES)
    if construct.kind in ("method", "keyword"):
        return construct.key in _DEVICE_METHODS
    if construct.kind == "trainer":
        return construct.key in ("accelerator", "trainer", "lightning")
    return construct.kind in ("string", "tensor_type")
