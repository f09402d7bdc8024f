"""NVIDIA's apex: features that torch now has itself."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Report,
    Rule,
)
from migrator.rule_api.rank_words import CONVERT_BY_APEX, in_one_process
from migrator.rule_api.torch_classes import ANY, Counterpart, made_by_torch

APEX = Rule(
    code="LIB005",
    name="apex",
    summary="apex's fused optimizers, norms and SyncBatchNorm become torch's own",
    why="""FusedAdam, FusedSGD, FusedLayerNorm and FusedRMSNorm fuse by hand what torch.optim and
torch.nn compute; XLA fuses by itself. Defaults that differ are written out: FusedAdam is AdamW
without weight decay (unless `adam_w_mode=False`), where torch's AdamW decays by 0.01;
FusedRMSNorm's eps is 1e-5. Arguments without a counterpart are reported. apex keeps the averages of
16-bit parameters in float32, torch in the type of the parameters.

`apex.amp` changes models, optimizers and torch's functions behind the scenes, so it is reported,
with what to use instead.""",
    references=("https://nvidia.github.io/apex/",),
    examples=(
        Example(
            """
            import torch
            from apex.optimizers import FusedAdam
            opt = FusedAdam(net.parameters(), lr=1e-4)
            """,
            after="""
            import torch
            opt = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.0)
            """,
        ),
        Example(
            """
            import torch
            from apex.optimizers import FusedAdam
            opt = FusedAdam(net.parameters(), adam_w_mode=False, weight_decay=0.1)
            """,
            after="""
            import torch
            opt = torch.optim.Adam(net.parameters(), weight_decay=0.1)
            """,
        ),
        Example(
            """
            from apex.normalization import FusedLayerNorm, FusedRMSNorm
            from torch import nn
            norms = nn.ModuleList([FusedLayerNorm(8, eps=1e-6), FusedRMSNorm(8)])
            """,
            after="""
            from torch import nn
            norms = nn.ModuleList([nn.LayerNorm(8, eps=1e-6), nn.RMSNorm(8, eps=1e-5)])
            """,
        ),
        Example(
            """
            import apex
            from torch import nn
            model = apex.parallel.convert_syncbn_model(model)
            """,
            after="""
            from torch import nn
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
            """,
        ),
        Example(
            """
            from apex import amp
            model, opt = amp.initialize(model, opt, opt_level="O1")
            with amp.scale_loss(loss, opt) as scaled:
                scaled.backward()
            """,
        ),
        Example(
            """
            from apex.optimizers import FusedSGD
            opt = FusedSGD(net.parameters(), lr=0.1, wd_after_momentum=True)
            """,
            says={2: "no counterpart for wd_after_momentum=True"},
        ),
        Example(
            """
            from apex.optimizers import FusedAdam
            opt = FusedAdam(net.parameters(), **options)
            """,
            says={2: "are unpacked"},
        ),
        Example(
            """
            from apex.optimizers import FusedAdam
            kinds = {"adam": FusedAdam}
            """,
            says={2: "its defaults are not AdamW's"},
        ),
    ),
)


_ADAM = {
    "adam_w_mode": (True,), "bias_correction": (True,), "amsgrad": (False,),
    "set_grad_none": (True,), "capturable": (False,), "master_weights": (False,),
}  # fmt: skip
_CLASSES = {
    "apex.optimizers.FusedAdam": Counterpart(
        "torch.optim", "AdamW", 2, _ADAM, {"weight_decay": "0.0"}
    ),
    "apex.optimizers.FusedSGD": Counterpart(
        "torch.optim", "SGD", 6,
        {"wd_after_momentum": (False,), "materialize_master_grads": (True,),
         "set_grad_none": (True,)},
    ),
    "apex.normalization.FusedLayerNorm": Counterpart(
        "torch.nn", "LayerNorm", 3, {"memory_efficient": ANY}
    ),
    "apex.normalization.FusedRMSNorm": Counterpart(
        "torch.nn", "RMSNorm", 3, {"memory_efficient": ANY}, {"eps": "1e-5"}
    ),
    "apex.parallel.SyncBatchNorm": Counterpart(
        "torch.nn", "SyncBatchNorm", 6, {"channel_last": (False,), "fuse_relu": (False,)}
    ),
    CONVERT_BY_APEX: Counterpart(
        "torch.nn", "SyncBatchNorm.convert_sync_batchnorm", 2, {"channel_last": (False,)}
    ),
}  # fmt: skip
_WITHOUT_DECAY = Counterpart("torch.optim", "Adam", 2, {**_ADAM, "adam_w_mode": (False,)})

_AMP = (
    "O1 and O2 are autocast in bfloat16, around the forward pass and the loss only; O0 is float32 "
    "and needs nothing"
)
_SYNCHRONISED = (CONVERT_BY_APEX, "apex.parallel.SyncBatchNorm")
_ADVICE = {
    "apex.amp.initialize": _AMP,
    "apex.amp.scale_loss": "bfloat16 needs no loss scaling; call backward() of the loss itself",
    "apex.amp.master_params": "use the model's parameters()",
    "apex.amp": _AMP,
    "apex.fp16_utils": "keep float32 parameters, and autocast in bfloat16",
    "apex.parallel.DistributedDataParallel": "call torch.nn.parallel.DistributedDataParallel, and "
    "migrate again",
    **dict.fromkeys(_SYNCHRONISED, "use torch.nn.SyncBatchNorm"),
    "apex.parallel.create_syncbn_process_group": "torch.distributed.new_subgroups(SIZE)[0] is the "
    "same group; for a size of 0, None",
    "apex.parallel.LARC": "torch has none; apex's is plain PyTorch: copy that class, and use "
    "torch.where and torch.clamp where it reads values, which would wait for the device",
    "apex.normalization.MixedFused": "its result has the dtype of its weight; use torch.nn's norm "
    "and convert",
    "apex.optimizers.FusedAdagrad": "use torch.optim.Adagrad",
    "apex.optimizers": "torch.optim has no counterpart; write it in PyTorch, XLA fuses it",
    "apex.mlp": "use torch.nn.Linear; XLA fuses the rest",
    "apex.fused_dense": "use torch.nn.Linear",
    "apex.multi_tensor_apply": "use torch._foreach functions, or a loop: XLA fuses it",
    "apex.transformer": "write it in PyTorch, and shard over a mesh (`tpu-migrate explain SHD001`)",
}


@APEX.on("name", *_CLASSES, node=ast.expr)
def same_class(ctx: Context, found: Construct, node: ast.expr) -> Decision | None:
    if found.key == CONVERT_BY_APEX and in_one_process(ctx):
        return None
    if found.key in _SYNCHRONISED and ctx.api.devices is None:  # neither would be rewritten
        return None
    counterpart, call = _CLASSES[found.key], ctx.names.call_of(node)
    for keyword in call.keywords if call is not None else ():
        if keyword.arg == "adam_w_mode" and ast.unparse(keyword.value) == "False":
            counterpart = _WITHOUT_DECAY
    return made_by_torch(ctx, node, counterpart)


@APEX.on("name", "apex.*")
def other(ctx: Context, found: Construct) -> Decision:
    advice = next((text for start, text in _ADVICE.items() if found.key.startswith(start)), "")
    return Report(f"{found.key} is for CUDA only" + (f": {advice}" if advice else ""))
