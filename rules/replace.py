"""The project's own names, replaced as its configuration says."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Family,
    Rule,
)
from migrator.rule_api.renamed_names import renamed, with_new_names

FAMILY = Family("USR", "Names of your own", 180)

OWN = Rule(
    code="USR001",
    framework="",
    name="own-name",
    summary="a name that [tool.tpu-migrate.replace] replaces",
    why="""Only a project's authors know its own functions for GPUs. A table in `pyproject.toml`
names their replacements, and the tool finds them by their imports, under any alias. Local names
stay; imports are adapted (docs/rules-of-your-own.md).""",
    examples=(
        Example(
            """
            import mylib as m
            x = m.to_gpu(x)
            """,
            after="""
            import mylib as m
            x = m.to_device(x)
            """,
            replace=(("mylib.to_gpu", "mylib.to_device"),),
        ),
        Example(
            """
            from mylib import load, to_gpu
            x = to_gpu(load())
            """,
            after="""
            from mylib import load
            from mylib.tpu import move
            x = move(load())
            """,
            replace=(("mylib.to_gpu", "mylib.tpu.move"),),
        ),
        Example(
            """
            from mylib import to_gpu as g
            x = g(x)
            """,
            after="""
            from mylib import to_device as g
            x = g(x)
            """,
            replace=(("mylib.to_gpu", "mylib.to_device"),),
        ),
        Example(
            """
            from mylib.arrays import to_gpu
            x = to_gpu(x)
            """,
            replace=(("mylib.to_gpu", "mylib.to_device"),),
        ),
        Example(
            """
            from mylib import batches
            x = batches().to_gpu()
            """,
            replace=(("mylib.to_gpu", "mylib.to_device"),),
        ),
    ),
)


@OWN.on("own", "*", node=ast.Attribute)
def reference(ctx: Context, found: Construct, node: ast.Attribute) -> Decision:
    return renamed(ctx, node, found.key, dict(ctx.options.replace)[found.key])


@OWN.on("own import", "*")
def imported(ctx: Context, found: Construct) -> Decision:
    return with_new_names(ctx, found, dict(ctx.options.replace))
