"""Writing through a mask what another tensor has there."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Keep,
    ReplaceStatement,
    Rewrite,
    Rule,
)
from migrator.rule_api.training import masked_assignment

MASKED = Rule(
    code="TEN003",
    name="masked-assignment",
    summary="`d[mask] = x[mask]` becomes torch.where: how much a mask selects is no shape",
    why="""How many elements `x[mask]` selects is only known after running, so the program around it
can't be compiled: PointNet++'s farthest-point sampling runs hundreds of programs for each batch. If
the mask compares `d` (`mask = x < d`, `mask = d == 0`), all three have one shape, and `torch.where`
makes the same choice, with the same gradients.

Other masked assignments get advice: with a mask of fewer dimensions, `torch.where` would choose
wrong elements.""",
    examples=(
        Example(
            """
            import torch


            def farthest_points(xyz, count):
                distance = torch.full(xyz.shape[:2], 1e10, device="cuda")
                chosen = []
                for _ in range(count):
                    dist = torch.sum((xyz - xyz[:, :1]) ** 2, -1)
                    mask = dist < distance
                    distance[mask] = dist[mask]  # the nearest so far
                    chosen.append(torch.max(distance, -1)[1])
                return chosen
            """,
            after="""
            import torch


            def farthest_points(xyz, count):
                distance = torch.full(xyz.shape[:2], 1e10, device="{device}")
                chosen = []
                for _ in range(count):
                    dist = torch.sum((xyz - xyz[:, :1]) ** 2, -1)
                    mask = dist < distance
                    distance.copy_(torch.where(mask, dist, distance))  # the nearest so far
                    chosen.append(torch.max(distance, -1)[1])
                return chosen
            """,
        ),
        Example(
            """
            import torch
            x, d = torch.rand(4, 8), torch.zeros(4, 8)
            mask = torch.rand(4) < 0.5  # of rows
            d[mask] = x[mask]
            """,
        ),
        Example(
            """
            import numpy as np
            import torch
            x, d = np.random.rand(4, 8), np.zeros((4, 8))
            mask = x < d
            d[mask] = x[mask]
            """,
        ),
    ),
)


@MASKED.on("tensor", "masked assignment", node=ast.Assign)
def masked(ctx: Context, found: Construct, node: ast.Assign) -> Decision:
    chosen = masked_assignment(ctx.names, ctx.flow, node)
    if chosen is None or ctx.file.is_without_device:
        return Keep("nothing here uses a device")
    spelled, requires = ctx.code.module("torch")
    holes = {"mask": chosen.mask, "value": chosen.value}
    target = ctx.source.code(chosen.target)
    new = f"{target}.copy_({spelled}.where({{mask}}, {{value}}, {target}))"
    return Rewrite([ReplaceStatement(node, new, holes)], requires)
