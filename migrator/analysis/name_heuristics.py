"""What a name that somebody chose says of a value. Every such heuristic is here.

The law: a hint may withhold a rewrite, have something reported, or add advice. It never justifies a
rewrite: that takes what a name resolves to, or where a value is from (`evidence`). The hints that
still do are named in tests/analysis/test_name_heuristics.py, which turns each of them off.
"""

from __future__ import annotations

import re

_DEVICE = re.compile(
    r"(?:^|_)(?:devices?|dev|map_location)(?:$|_(?:type|str|name|id)$)|^cuda_?dev", re.I
)
_INDEX = re.compile(
    r"^(?:local_?|global_?|proc_?)?rank$|^gpu(?:_?id|_?idx|_?num)?$|^device_?id$|^cuda_?id$", re.I
)
_RANK = re.compile(rf"(?:^|_)rank$|{_INDEX.pattern}")
_WORLD_SIZE = re.compile(
    r"^_*(?:ddp_|dist_)?(?:world_?size|n_?procs?|num_(?:gpus|procs|processes|replicas|tasks|ranks)"
    r"|(?:num_|n_?)?gpus?_per_(?:node|machine)|n_?gpus?|num_?devices)$",
    re.I,
)
_BATCH_SIZE = re.compile(
    r"^_?(?:(?:train|val|valid|test|eval|global|local|total|micro|mini|per_gpu|per_device)_)*"
    r"(?:batch_?size|bs|bsz)(?:_per_\w+)?$|^(?:imgs|images|samples)_per_gpu$",
    re.I,
)
_OPTIMIZER = re.compile(r"optim|(?:^|_)opt(?:$|_|[a-z]?$|imizer)|^(?:adam|adamw|sgd|lbfgs)$", re.I)
_OTHER_STEPS = re.compile(
    r"sched|warmup|lr|env|prof|bar|pbar|self|meter|timer|writer|logger|clock|ema|agent|tracker",
    re.I,
)
_MODEL = re.compile(
    # Not what tensors, dicts and Python have of such names: `x.div_()`.
    r"^(?!(?:data|det|diag|diff|dim|dist|div_?|dot|gcd_?|ge_?|ger|gt_?|dict|dir|get)$)"
    r"(?:self|net\w*|\w*_net|unet|\w*model\w*|ema|gpt|vae|clip|transformer|vgg\w*|resnet\w*|bert"
    r"|critic|actor|policy|student|teacher|backbone|classifier|denoise(?:r|_fn)|\w*_?extractor"
    r"|(?:net)?(?:[gd]|generator|discriminator|encoder|decoder)(?:_?\w{1,3})?)$", re.I
)  # fmt: skip
# `train_model()`, `data`, `draw()`
_NO_MODEL = re.compile(
    r"(?:add|build|check|compile|configure|convert|create|define|eval(?:uate)?|export|fit|get|init"
    r"(?:ialize)?|load|make|prepare|print|query|register|reset|run|save|setup|test|train|update)_"
    r"|(?!gen$|dis$|disc$|gan$|gpt$)[dg][a-z]{1,3}$"
)
_LOSS = re.compile(r"(?:^|_)(?:criterion|loss(?:_?f(?:n|unc(?:tion)?))?)$|^criterion", re.I)
_COMPUTED_LOSS = re.compile(r"criter|loss|objective|^(?:mse|bce|ce|l1|kl)", re.I)
_ACTION = re.compile(
    r"(?:save|load|log|print|update|plot|write|dump|eval|test|train|get|set|make|build|create|run)_"
)
_TRAINING = re.compile(r"(?:^|\.)optim(?:$|\.)|Trainer$|DistributedSampler")
_SETTINGS = re.compile(r"(?:args?|opts?|options?|cfg|conf|config|hparams|params|flags)\Z", re.I)
_KERNELS = re.compile(
    r"_C|_ext|\w+_ext|\w+_kernels|\w+_cuda(?:_(?:\w+_)?(?:fwd|bwd|forward|backward|kernels?|ops|impl))?"
)
_NO_KERNELS = re.compile(
    r"_*(?:to|is|are|on|no|use|has|have|get|set|init|move|send|put|with|if|check|want|enable|setup"
    r"|needs?|requires?|supports?|\w+_(?:to|on|is|has|use))_(?:ext|cuda)"
)
_ACCELERATOR = re.compile(r"(?:is_)?(?:mlu|npu|musa|xpu|hpu|mps|hip|gcu)")


def is_device_name(name: str) -> bool:
    """`device`, `map_location`: what is given under this name is a device."""
    return _DEVICE.search(name) is not None


def is_index_name(name: str) -> bool:
    """`rank`, `gpu_id`: the value may be the index of a device, so that it is looked into."""
    return _INDEX.search(name) is not None


def is_rank_name(name: str) -> bool:
    """`rank`, `node_rank`: the value may be another one in each process."""
    return _RANK.search(name) is not None


def is_world_size_name(name: str) -> bool:
    """`world_size`, `ngpus_per_node`: the value may be the number of processes."""
    return _WORLD_SIZE.search(name) is not None


def is_loader_name(name: str) -> bool:
    """`train_loader`: what is looped over may be batches, so that no step takes the loop in."""
    return "loader" in name.lower()


def is_batch_size_name(name: str) -> bool:
    """`batch_size`, `imgs_per_gpu`: what is divided among processes may be the batch."""
    return _BATCH_SIZE.search(name) is not None


def is_optimizer_name(name: str) -> bool:
    """`opt_g`: its `step()` may change parameters."""
    return _OPTIMIZER.search(name) is not None


def steps_otherwise(name: str) -> bool:
    """`scheduler`, `env`: its `step()` changes no parameters."""
    return _OTHER_STEPS.search(name) is not None


def is_model_name(name: str) -> bool:
    """`net`, `critic`: a call may be one of a model."""
    return _MODEL.match(name) is not None


def is_no_model_name(name: str) -> bool:
    """`train_model`: named for a model, and none."""
    return _NO_MODEL.match(name) is not None


def is_loss_name(name: str) -> bool:
    """`criterion`, `loss_fn`: a call may give a loss."""
    return _LOSS.search(name) is not None


def speaks_of_loss(name: str) -> bool:
    """`bce_weight`, `objective`: a call may compute a loss."""
    return _COMPUTED_LOSS.search(name) is not None


def is_action_name(name: str) -> bool:
    """`save_model`, `update_loss`: a call does more than to compute."""
    return _ACTION.match(name) is not None


def speaks_of_training(name: str) -> bool:
    """`torch.optim`, `MyTrainer`: the program may train."""
    return _TRAINING.search(name) is not None


def is_settings_name(name: str) -> bool:
    """`args`, `cfg`: its `device` is what somebody has chosen, not where a tensor is."""
    return _SETTINGS.match(name) is not None


def is_kernel_name(name: str) -> bool:
    """`_C`, `nms_cuda_forward`: a compiled module, or a function of one."""
    return _KERNELS.fullmatch(name) is not None and _NO_KERNELS.fullmatch(name) is None


def is_other_accelerator_name(name: str) -> bool:
    """`is_npu`, `"mlu"`: the condition is about an accelerator of another kind."""
    return _ACCELERATOR.fullmatch(name) is not None
