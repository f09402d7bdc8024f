"""Names that the pinned versions don't have, and that no table of upgrades knows."""

import ast

from migrator.rule_api import Construct, Context, Decision, Effort, Example, Keep, Report, Rule
from migrator.rule_api.absent_imports import unused_names, without_unused
from migrator.rule_api.upgrade_templates import reason_to_keep
from migrator.rule_api.upgrades import missing

ABSENT = Rule(
    code="UPG006",
    of_python=True,
    name="absent-name",
    summary="a name that the versions of the target do not have",
    why="""The names that a program takes from torch, torchvision, NumPy, SciPy, Pillow and pandas
are looked up in lists made from the versions that programs for the target run with. One that is
not there fails when it is reached. It may be of an older version, of a newer one, or misspelt. An
import that nothing uses goes.""",
    effort=Effort.MINUTES,
    examples=(
        Example(
            """
            import torch
            from torchvision.models import resnet19
            model = resnet19().cuda()
            """,
            after="""
            import torch
            from torchvision.models import resnet19
            model = resnet19().to("{device}")
            """,
        ),
        Example(
            """
            import torch
            from torch.functional import align_all, split
            x = split(torch.ones(4).cuda(), 2)
            """,
            after="""
            import torch
            from torch.functional import split
            x = split(torch.ones(4).to("{device}"), 2)
            """,
        ),
        Example(
            """
            try:
                from torchvision.models import resnet19
            except ImportError:
                resnet19 = None
            """,
            says={2: "the fallback is used"},
        ),
        Example(
            """
            import torch
            torch.normed = lambda x: x / x.norm()
            y = torch.normed(x)
            """,
            says={3: "the program gives it a value"},
        ),
        Example(
            """
            import torch
            if torch.__version__ < "2":
                torch.fast_mode(True)
            """,
            says={3: "never runs on a TPU machine"},
        ),
    ),
)


@ABSENT.on("absent", "*")
def absent(ctx: Context, found: Construct) -> Decision:
    name = missing(found.key, ctx.target.environment.names)
    if name is None:
        return Keep("is in the versions of this target")
    parent = ctx.names.parent(found.node)
    node = parent if isinstance(parent, ast.Import | ast.ImportFrom) else found.node
    if (kept := reason_to_keep(ctx, node, found.key)) is not None:
        return kept
    if isinstance(node, ast.Attribute) and ctx.names.is_question(node):
        return Keep("is imported where it is there")
    if any(isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load)
           and ctx.names.qualified(n) == name for n in ctx.names.order):  # fmt: skip
        return Keep("the program gives it a value")
    installed = ctx.target.environment.names
    unused = unused_names(ctx, node, lambda name: bool(missing(name, installed)))
    if found.node in unused and isinstance(node, ast.Import | ast.ImportFrom):
        return without_unused(found.node, node, unused)
    module, _, last = name.rpartition(".")
    return Report(f"{module} has no {last} in the versions of {ctx.target.name}")
