"""CUDA-only libraries: what is rewritten, when an import goes, and what stays."""

from __future__ import annotations

import pytest
from helpers import TARGETS, constructs, migrated, run

HEAD = "import torch\n"


def after(source: str, target: str = "torchax") -> str:
    return migrated(source, target, entry=False)


def reported(source: str) -> list[str]:
    return [d.message for d in constructs(run(source, entry=False)) if d.outcome == "reported"]


# ---- attention -----------------------------------------------------------------------------------

SPELLINGS = [
    ("from flash_attn import flash_attn_func", "flash_attn_func", "flash_attn_func"),
    ("from flash_attn import flash_attn_func as fa", "fa", "flash_attn_func"),
    ("import flash_attn", "flash_attn.flash_attn_func", "flash_attn_func"),
    ("import flash_attn as fa", "fa.flash_attn_qkvpacked_func", "flash_attn_qkvpacked_func"),
    (
        "from flash_attn.flash_attn_interface import flash_attn_kvpacked_func",
        "flash_attn_kvpacked_func", "flash_attn_kvpacked_func",
    ),
    (
        "from flash_attn import flash_attn_interface",
        "flash_attn_interface.flash_attn_func", "flash_attn_func",
    ),
    (
        "import xformers.ops",
        "xformers.ops.memory_efficient_attention", "memory_efficient_attention",
    ),
    (
        "import xformers\nimport xformers.ops",
        "xformers.ops.memory_efficient_attention", "memory_efficient_attention",
    ),
    ("from xformers import ops", "ops.memory_efficient_attention", "memory_efficient_attention"),
    (
        "from xformers.ops import fmha",
        "fmha.memory_efficient_attention", "memory_efficient_attention",
    ),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("statement", "name", "become"), SPELLINGS)
def test_every_spelling_of_an_import(statement: str, name: str, become: str, target: str) -> None:
    before = f"{HEAD}{statement}\ny = {name}(q, k, v)\n"
    assert after(before, target) == f"{HEAD}import tpu_runtime\ny = tpu_runtime.{become}(q, k, v)\n"


def test_an_import_inside_a_function_goes() -> None:
    before = f"{HEAD}def f(q):\n    from flash_attn import flash_attn_func\n"
    before += "    return flash_attn_func(q, q, q)\n"
    now = f"{HEAD}import tpu_runtime\ndef f(q):\n    return tpu_runtime.flash_attn_func(q, q, q)\n"
    assert after(before) == now


def test_an_import_keeps_what_is_not_rewritten() -> None:
    before = f"{HEAD}from flash_attn import flash_attn_func, flash_attn_with_kvcache as cached\n"
    before += "y = flash_attn_func(q, k, v) + cached(q)\n"
    now = f"{HEAD}import tpu_runtime\nfrom flash_attn import flash_attn_with_kvcache as cached\n"
    now += "y = tpu_runtime.flash_attn_func(q, k, v) + cached(q)\n"
    assert after(before) == now
    assert len(reported(before)) == 2  # the import, and the use


GUARDED = [
    "try:\n    from flash_attn import flash_attn_func\n    HAS = True\n"
    "except ImportError:\n    HAS = False\n"
    "y = flash_attn_func(q, k, v) if HAS else g(q)\n",
    "try:\n    import xformers.ops as xops\nexcept ImportError:\n    xops = None\n"
    "if xops is not None:\n    y = xops.memory_efficient_attention(q, k, v)\n",
    "try:\n    from apex.optimizers import FusedAdam\nexcept ImportError:\n"
    "    from torch.optim import Adam as FusedAdam\nopt = FusedAdam(ps, lr=1)\n",
    "try:\n    from apex.normalization import FusedLayerNorm as LayerNorm\nexcept ImportError:\n"
    "    from torch.nn import LayerNorm\nn = LayerNorm(8)\n",
    "try:\n    from numba import cuda\nexcept ImportError:\n    cuda = None\nif cuda:\n"
    "    cuda.jit(f)\n",
]


@pytest.mark.parametrize("source", GUARDED)
def test_an_import_that_may_fail_stays_with_its_uses(source: str) -> None:
    assert after(HEAD + source) == HEAD + source
    assert [d.outcome for d in constructs(run(HEAD + source, entry=False))] == ["kept"]


def test_what_asks_for_a_library_stays() -> None:
    source = (
        "import importlib.util\nfrom transformers.utils import is_flash_attn_2_available\n"
        'HAS = importlib.util.find_spec("flash_attn") is not None\n'
        "if is_flash_attn_2_available():\n    from flash_attn import flash_attn_func\n\n\n"
        "def f(q):\n    return flash_attn_func(q, q, q)\n"
    )
    assert after(source) == source


UNKNOWN = [
    ("flash_attn_func(q, k, v, softcap=30.0)", "no softcap"),
    ("flash_attn_func(q, k, v, return_attn_probs=True)", "no return_attn_probs"),
    ("flash_attn_func(q, k, v, 0.0, None, True, False)", "differs by version"),
    ("flash_attn_func(q, k, v, 0.0, None, True, (-1, -1), 0.0)", "differs by version"),
    ("flash_attn_func(*qkv)", "unpacked"),
    ("flash_attn_with_kvcache(q, k, v)", "into the cache"),
    ("bert_padding.unpad_input(x, m)", "keep the padding"),
    ("layers.rotary.apply_rotary_emb(x, c, s)", "write the rotation out"),
    ("ops.rms_norm.rms_norm(x, w, e)", "torch.nn.RMSNorm"),
    ("modules.mha.MHA(8, 2)", "scaled_dot_product_attention"),
]


@pytest.mark.parametrize(("call", "words"), UNKNOWN)
def test_what_torch_has_not_is_reported(call: str, words: str) -> None:
    source = f"{HEAD}import flash_attn\ny = flash_attn.{call}\n"
    assert after(source) == source
    assert any(words in message for message in reported(source))


KNOWN = [
    "q, k, v, 0.0, None, True, (-1, 0)", "q, k, v, softcap=0.0, alibi_slopes=None",
    "q, k, v, deterministic=True", "q, k, v, window_size=(w, w), softmax_scale=s",
    "q, k, v, softcap=self.softcap",  # the runtime says so if it is not 0
]  # fmt: skip


@pytest.mark.parametrize("arguments", KNOWN)
def test_arguments_stay_as_written(arguments: str) -> None:
    before = f"{HEAD}import flash_attn\ny = flash_attn.flash_attn_func({arguments})\n"
    now = f"{HEAD}import tpu_runtime\ny = tpu_runtime.flash_attn_func({arguments})\n"
    assert after(before) == now


def test_packed_sequences_say_what_they_cost() -> None:
    source = f"{HEAD}from flash_attn import flash_attn_varlen_func\n"
    source += "y = flash_attn_varlen_func(q, k, v, c, c, n, n, causal=True)\n"
    assert "tpu_runtime.flash_attn_varlen_func(q, k, v, c, c, n, n, causal=True)" in after(source)
    notes = [d.message for d in constructs(run(source, entry=False))]
    assert any("square of all tokens" in note for note in notes)


def test_masks_and_operators_of_xformers() -> None:
    head = f"{HEAD}from xformers import ops\n"
    before = "y = ops.memory_efficient_attention(q, k, v, attn_bias=ops.LowerTriangularMask(), "
    before += "op=ops.MemoryEfficientAttentionFlashAttentionOp)\n"
    now = "y = tpu_runtime.memory_efficient_attention(q, k, v, "
    now += "attn_bias=tpu_runtime.LowerTriangularMask())\n"
    assert after(head + before) == f"{HEAD}import tpu_runtime\n{now}"
    source = f"{head}m = ops.fmha.BlockDiagonalMask.from_seqlens(n)\n"
    assert after(source) == source
    assert any("BlockDiagonalMask" in message for message in reported(source))
    source = f"{head}q, k, v = ops.unbind(qkv, 2)\n"
    assert after(source) == f"{HEAD}q, k, v = torch.unbind(qkv, 2)\n"


def test_a_rule_that_is_off_keeps_the_import() -> None:
    source = f"{HEAD}from flash_attn import flash_attn_func\n"
    source += "y = flash_attn_func(q, k, v)  # tpu-migrate: ignore[LIB004]\n"
    assert after(source) == source


def test_diffusers_is_not_told_to_take_xformers() -> None:
    enable = "pipe.enable_xformers_memory_efficient_attention()\n"
    assert after(f"{HEAD}pipe = load()\n{enable}") == f"{HEAD}pipe = load()\n"
    for source in (
        f"if args.enable_xformers:\n    {enable}",
        f"try:\n    {enable}except ImportError:\n    pass\n",
        f"x = {enable}",
    ):
        assert after(HEAD + source) == HEAD + source
    assert len(reported(f"{HEAD}x = {enable}")) == 1


def test_flash_attention_3_is_reported() -> None:
    source = f"{HEAD}import flash_attn_interface\n"
    source += "y = flash_attn_interface.flash_attn_func(q, k, v)[0]\n"
    assert after(source) == source and reported(source)


# ---- apex ----------------------------------------------------------------------------------------

APEX = [
    ("optimizers.FusedAdam(ps)", "optim.AdamW(ps, weight_decay=0.0)"),
    ("optimizers.FusedAdam(ps, 1e-3, weight_decay=d)", "optim.AdamW(ps, 1e-3, weight_decay=d)"),
    ("optimizers.FusedAdam(params=ps, lr=1e-3, betas=b, eps=e, adam_w_mode=False)",
     "optim.Adam(params=ps, lr=1e-3, betas=b, eps=e)"),
    ("optimizers.FusedAdam(ps, bias_correction=True, amsgrad=False, set_grad_none=True)",
     "optim.AdamW(ps, weight_decay=0.0)"),
    ("optimizers.FusedSGD(ps, 0.1, 0.9, nesterov=True)", "optim.SGD(ps, 0.1, 0.9, nesterov=True)"),
    ("optimizers.FusedSGD(ps, lr=l, materialize_master_grads=True)", "optim.SGD(ps, lr=l)"),
    ("normalization.FusedLayerNorm(8)", "nn.LayerNorm(8)"),
    ("normalization.FusedLayerNorm((8, 4), 1e-6, elementwise_affine=False)",
     "nn.LayerNorm((8, 4), 1e-6, elementwise_affine=False)"),
    ("normalization.FusedRMSNorm(8)", "nn.RMSNorm(8, eps=1e-5)"),
    ("normalization.FusedRMSNorm(8, 1e-6)", "nn.RMSNorm(8, 1e-6)"),
    ("normalization.FusedRMSNorm(8, eps=e, memory_efficient=m)", "nn.RMSNorm(8, eps=e)"),
    ("parallel.SyncBatchNorm(8, 1e-5, fuse_relu=False)", "nn.SyncBatchNorm(8, 1e-5)"),
    ("parallel.convert_syncbn_model(x, process_group=g)",
     "nn.SyncBatchNorm.convert_sync_batchnorm(x, process_group=g)"),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("call", "become"), APEX)
def test_apex_has_counterparts(call: str, become: str, target: str) -> None:
    assert after(f"{HEAD}import apex\nx = apex.{call}\n", target) == f"{HEAD}x = torch.{become}\n"


def test_a_norm_that_is_passed_on() -> None:
    before = "import torch.nn as nn\nfrom apex.normalization import FusedLayerNorm as LN\n"
    before += "block = Block(norm=partial(LN, eps=1e-6))\n"
    now = "import torch.nn as nn\nblock = Block(norm=partial(nn.LayerNorm, eps=1e-6))\n"
    assert after(before) == now


NOT_EXACT = [
    ("optimizers.FusedAdam(ps, adam_w_mode=mode)", "adam_w_mode=mode"),
    ("optimizers.FusedAdam(ps, bias_correction=False)", "bias_correction=False"),
    ("optimizers.FusedAdam(ps, 1e-3, True)", "by position"),
    ("optimizers.FusedAdam(ps, **options)", "unpacked"),
    ("optimizers.FusedAdam", "passed on"),
    ("optimizers.FusedSGD(ps, lr=l, wd_after_momentum=True)", "wd_after_momentum=True"),
    ("optimizers.FusedLAMB(ps)", "no counterpart"),
    ("optimizers.FusedNovoGrad(ps)", "no counterpart"),
    ("normalization.FusedRMSNorm", "passed on"),
    ("normalization.MixedFusedLayerNorm(8)", "type of its weight"),
    ("amp.initialize(model, opt, opt_level='O2')", "autocast in bfloat16"),
    ("amp.scale_loss(loss, opt)", "backward() of the loss itself"),
    ("parallel.DistributedDataParallel(model)", "torch.nn.parallel.DistributedDataParallel"),
    ("parallel.convert_syncbn_model(model, None, True)", "by position"),
    ("parallel.convert_syncbn_model(model, channel_last=True)", "channel_last=True"),
    ("parallel.create_syncbn_process_group(8)", "torch.distributed.new_subgroups(SIZE)[0]"),
    ("parallel.LARC.LARC(opt, trust_coefficient=0.001)", "copy that class"),
]


@pytest.mark.parametrize(("code", "words"), NOT_EXACT)
def test_what_apex_does_in_its_own_way_is_reported(code: str, words: str) -> None:
    source = f"{HEAD}import apex\nx = apex.{code}\n"
    assert after(source) == source
    assert any(words in message for message in reported(source))


# ---- libraries without counterparts --------------------------------------------------------------

FOREIGN = [
    ("import nvidia.dali.fn as fn", "torchvision"),
    ("from nvidia.dali import pipeline_def", "torchvision"),
    ("from numba import cuda", "Pallas"),
    ("import numba.cuda", "Pallas"),
    ("from numba.cuda import jit", "Pallas"),
    ("from numba import njit, cuda as gpu", "Pallas"),
    ("import triton.language as tl", "Pallas"),
    ("import tensorrt as trt", "XLA compiles"),
    ("import torch_tensorrt", "XLA compiles"),
    ("import cupy as cp", "numpy"),
    ("import bitsandbytes as bnb", "torch.optim"),
    ("import deepspeed", "shard"),
    ("import transformer_engine.pytorch as te", "torch.nn layers"),
    ("from pynvml import nvmlInit", "monitoring"),
]


@pytest.mark.parametrize(("statement", "words"), FOREIGN)
def test_the_reason_names_what_takes_its_place(statement: str, words: str) -> None:
    (message,) = reported(statement + "\n")
    assert words in message


def test_uses_of_numba_are_reported_and_numba_itself_is_not() -> None:
    source = "from numba import cuda, njit\n\n\n@cuda.jit\ndef f(x):\n    i = cuda.grid(1)\n"
    assert len(reported(source)) == 2  # the import, and the kernel
    assert not constructs(run("from numba import njit\n\n\n@njit\ndef f(x):\n    pass  # cuda\n"))


EXITS = ["sys.exit('no')", "sys.exit()", "exit()", "quit(1)", "os._exit(3)", "leave(1)",
         "raise SystemExit('no')", "raise",
         "if strict:\n        raise\n    else:\n        sys.exit(1)"]  # fmt: skip


@pytest.mark.parametrize("end", EXITS)
def test_a_program_that_ends_without_a_library_has_no_fallback(end: str) -> None:
    head = "import os\nimport sys\nfrom sys import exit as leave\n"
    source = f"{head}try:\n    import cupy\nexcept ImportError:\n    print('no')\n    {end}\n"
    (reason,) = reported(source)
    assert reason.startswith("cupy is for CUDA only")
    source = source.replace("import cupy", "import torch_xla.core.xla_model as xm")
    (reason,) = reported(f"{source}device = xm.xla_device()\n")
    assert reason.startswith("the program ends if torch_xla is missing")


def test_a_handler_that_only_raises_is_no_fallback() -> None:
    source = "try:\n    import cupy\nexcept ImportError:\n    if strict:\n        raise\n"
    assert len(reported(source)) == 1


@pytest.mark.parametrize("end", ["cupy = None", "if strict:\n        sys.exit()", "log.exit()"])
def test_a_program_that_goes_on_without_a_library_has_one(end: str) -> None:
    source = f"import sys\ntry:\n    import cupy\nexcept ImportError:\n    {end}\n"
    assert not reported(source)


BOUND = """from functools import partial
import torch
{imported}


class Attention(torch.nn.Module):
    def __init__(self, fast):
        super().__init__()
        self.attend = {value}

    def forward(self, q, k, v):
        return self.attend({arguments})
"""
FLASH, XFORMERS = "flash_attn_func", "xops.memory_efficient_attention"


def bound(value: str, arguments: str) -> str:
    xformers = "xops" in value
    imported = "import xformers.ops as xops" if xformers else f"from flash_attn import {FLASH}"
    return BOUND.format(imported=imported, value=value, arguments=arguments)


@pytest.mark.parametrize(
    ("value", "arguments"),
    [
        (FLASH, "q, k, v, causal=True"),
        (f"partial({FLASH}, softmax_scale=0.5, causal=True)", "q, k, v"),
        (f"partial({FLASH}, softcap=0.0)", "q, k, v, 0.0, None, True"),
        (f"{FLASH} if fast else plain", "q, k, v"),
        (XFORMERS, "q, k, v, attn_bias=xops.LowerTriangularMask()"),
        (f"partial({XFORMERS}, p=0.1)", "q, k, v"),
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_attention_under_a_name_of_the_programs_own(
    value: str, arguments: str, target: str
) -> None:
    source = bound(value, arguments)
    body = source.partition("\n\n\n")[2].replace("xops.", "tpu_runtime.")
    body = body.replace(FLASH, f"tpu_runtime.{FLASH}")
    head = "from functools import partial\nimport torch\nimport tpu_runtime\n"
    assert after(source, target) == f"{head}\n\n{body}"


@pytest.mark.parametrize(
    ("value", "arguments"),
    [
        (f"partial({XFORMERS}, op=xops.MemoryEfficientAttentionFlashAttentionOp)", "q, k, v"),
        (XFORMERS, "q, k, v, op=xops.MemoryEfficientAttentionFlashAttentionOp"),
    ],
)
def test_a_choice_of_kernel_goes_wherever_it_is_made(value: str, arguments: str) -> None:
    source = bound(value, arguments)
    assert "xops" not in after(source) and not reported(source)


@pytest.mark.parametrize(
    ("value", "arguments", "reason"),
    [
        (f"partial({FLASH}, softcap=30.0)", "q, k, v", "no softcap"),
        (f"partial({FLASH}, causal=True)", "q, k, v, softcap=30.0", "line 12: torch's attention"),
        (f"partial({FLASH}, *given)", "q, k, v", "unpacked"),
        (FLASH, "q, k, v, alibi_slopes=None, return_attn_probs=True", "line 12: torch's"),
        (FLASH, "q, k, v, 0.0, None, True, (-1, -1), 30.0", "line 12: what its last arguments"),
        (f"partial({XFORMERS}, output_dtype=torch.float32)", "q, k, v", "no output_dtype"),
        (XFORMERS, "q, k, v, attn_bias=xops.fmha.BlockDiagonalMask(n)", "line 12: xformers.ops"),
    ],
)
def test_what_torchs_attention_has_not_is_reported_by_any_name(
    value: str, arguments: str, reason: str
) -> None:
    source = bound(value, arguments)
    assert f"self.attend = {value}" in after(source)
    assert any(reason in message for message in reported(source))


@pytest.mark.parametrize("target", TARGETS)
def test_flex_attention_is_left_for_a_person(target: str) -> None:
    source = """import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

mask = create_block_mask(causal, None, None, 128, 128)
attend = torch.compile(flex_attention)
out = flex_attention(q, k, v, block_mask=mask)
"""
    codes = [d.code for d in constructs(run(source, target)) if d.outcome == "reported"]
    assert codes.count("LIB006") == 3
