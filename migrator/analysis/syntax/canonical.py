"""One spelling for library names that have several."""

from __future__ import annotations

# Where a library defines the names that it re-exports: real code uses both spellings.
_CANONICAL = {
    "torch.cuda.amp.autocast_mode": "torch.cuda.amp",
    "torch.cuda.amp.grad_scaler": "torch.cuda.amp",
    "torch.amp.autocast_mode": "torch.amp",
    "torch.amp.grad_scaler": "torch.amp",
    "torch.cuda.random": "torch.cuda",
    "torch.cuda.memory": "torch.cuda",
    "torch.cuda.streams": "torch.cuda",
    "torch.cuda.graphs": "torch.cuda",
    "torch.utils.data.dataloader": "torch.utils.data",
    "torch.utils.data.distributed": "torch.utils.data",
    "torch.distributed.distributed_c10d": "torch.distributed",
    "torch.distributed.fsdp.fully_sharded_data_parallel": "torch.distributed.fsdp",
    "torch.distributed._composable.fsdp": "torch.distributed.fsdp",
    "torch.nn.parallel.data_parallel": "torch.nn.parallel",
    "torch.nn.parallel.distributed": "torch.nn.parallel",
    "torch.serialization": "torch",
    "flash_attn.flash_attn_interface": "flash_attn",
    "xformers.ops.fmha": "xformers.ops",
    "xformers.ops.attn_bias": "xformers.ops",
    "xformers.ops.fmha.attn_bias": "xformers.ops",
    "apex.optimizers.fused_adam": "apex.optimizers",
    "apex.optimizers.fused_sgd": "apex.optimizers",
    "apex.normalization.fused_layer_norm": "apex.normalization",
}
# A function by the name of the module that defines it: the package has the function.
_FUNCTIONS = {"torch.nn.parallel.data_parallel"}


def canonical(name: str | None) -> str | None:
    """`torch.cuda.amp.autocast` for `torch.cuda.amp.autocast_mode.autocast`; None for None."""
    if not name or "." not in name:
        return name
    head, _, last = name.rpartition(".")
    return (
        name not in _FUNCTIONS and _CANONICAL.get(name)
    ) or f"{_CANONICAL.get(head, head)}.{last}"


def spellings(name: str) -> list[str]:
    """A name, and those that `canonical` makes it."""
    head, _, last = name.rpartition(".")
    return [name, *(f"{long}.{last}" for long, short in _CANONICAL.items() if short == head)]
