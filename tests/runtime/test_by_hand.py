"""What the pages say to write by hand: it runs on the target, and its check passes."""

from __future__ import annotations

import pytest
from checked_cures import checked, run
from target import TARGET

from migrator.by_hand import Cure

CURES = checked(TARGET)


@pytest.mark.parametrize("cure", CURES, ids=[cure.key for cure in CURES])
def test_it_does_the_same(cure: Cure) -> None:
    run(cure.program)


# What is right, and a mistake that is easily made.
MISTAKES = {
    "flash_attn": ("if causal:", "if False:"),
    "cuda_extension": ("* weight[:, None]", ""),
    "numba_cuda": ("(1, 1, 1, 1)", "(0, 2, 1, 1)"),
    "triton": (" + residual.float()", ""),
    "pointnet2": ("(inside == n, first,", "(inside == n, 0,"),
    "selective_scan": ("delta = F.softplus(delta)", ""),
    "causal_conv1d": ("(weight.shape[1] - 1, 0)", "(0, weight.shape[1] - 1)"),
    "flex_attention": ("* (j - i)", "* (i - j)"),
    "liger_kernel": ("/ len(labels)", "/ chunk"),
    "deepspeed": (" / accumulate", ""),
    "apex_lamb": (" * ratio", ""),
    "bitsandbytes_optimizer": ("AdamW", "Adam"),
    "simple_knn": ("nearest[:, 1:]", "nearest[:, :3]"),
    "torch_cluster": ("torch.inf", "0.0"),
    "torch_scatter": ("include_self=False", "include_self=True"),
    "swiglu": ("F.silu(gate) * value", "F.silu(value) * gate"),
    "fused_ssim": ("- mean_a * mean_b", ""),
    "hash_grid": ("1 - part[:, axis]", "part[:, axis]"),
    "mmcv_ops": ("* scale - 0.5", "* scale"),
    "rng_state": ("        torch.manual_seed(seed)\n", ""),
    "transformer_engine": ("self.norm(x)", "x"),
    "sparse_convolution": ("z * shape[1] + y", "z * shape[2] + y"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("key", MISTAKES)
def test_a_mistake_is_told_from_it(key: str) -> None:
    cure = next(cure for cure in CURES if cure.key == key)
    right, wrong = MISTAKES[key]
    program = cure.program.replace(right, wrong)
    assert program != cure.program
    with pytest.raises((AssertionError, IndexError, RuntimeError, TypeError)):
        run(program)
