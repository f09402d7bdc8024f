"""Generators of random numbers on a device."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    EditCall,
    Example,
    Keep,
    Kind,
    Replace,
    Report,
    Rewrite,
    Rule,
    argument,
)

GENERATOR = Rule(
    code="DEV005",
    name="cuda-generator",
    summary="a generator on CUDA becomes a CPU generator; its numbers are moved to the device",
    why="""torchax and torch_xla have no generator for the device: torch_xla raises an error, and
stock torchax silently draws the same numbers in every call. A CPU generator works on both, and its
numbers no longer depend on the hardware (they differ from CUDA's).""",
    examples=(
        Example(
            """
            import torch
            g = torch.Generator(device="cuda").manual_seed(0)
            """,
            after="""
            import torch
            g = torch.Generator().manual_seed(0)
            """,
        ),
        Example(
            """
            import torch
            g = torch.Generator().manual_seed(0)
            """,
        ),
        Example(
            """
            import torch
            with torch.random.fork_rng(devices=[]):
                x = torch.rand(2)
            """,
            says={2: "forks the CPU's generator"},
        ),
        Example(
            """
            import torch
            with torch.random.fork_rng(devices=[0]):
                x = torch.rand(2).cuda()
            """,
            after="""
            import torch
            with torch.random.fork_rng(devices=[0]):
                x = torch.rand(2).to("{device}")
            """,
            says={2: "seed again after the block"},
        ),
    ),
    moves_to_device=True,
)


@GENERATOR.on("name", "torch.random.fork_rng")
def fork_rng(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    devices = argument(call, 0, "devices") if call is not None else None
    named = argument(call, None, "device_type") if call is not None else None
    if isinstance(devices, ast.List) and not devices.elts:
        return Keep("forks the CPU's generator")
    if ctx.api.generators and call is not None:
        if named is not None:
            return Keep("names the kind of device")
        return Rewrite([EditCall(call, put={"device_type": ctx.code.device_string(call)})])
    if devices is None:
        return Keep("forks the CPU's generator")
    return Report("forks CUDA's generators; seed again after the block instead")


@GENERATOR.on("name", "torch.Generator")
def generator(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    assert call is not None
    if ctx.api.generators:
        device = argument(call, 0, "device")
        named = isinstance(device, ast.Constant | ast.JoinedStr)
        if device is None or not (named or ctx.flow.kind(device) & Kind.DEVICE_INT):
            return Keep("a generator for the device that the program chooses")
        return Rewrite([Replace(device, ctx.code.device(device))])
    return Rewrite([Replace(call, "{function}()", {"function": call.func})])
