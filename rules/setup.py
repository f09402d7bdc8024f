"""Set-up: once per entry script, behind its imports."""

import ast

from migrator import imports
from migrator.edits import Insert
from migrator.inventory import Construct
from migrator.rule import Context, Decision, Example, Rewrite, Rule
from migrator.targets import RUNTIME

SETUP = Rule(
    code="SET001",
    name="set-up",
    summary="an entry script switches the target on, once, behind its imports",
    why="""setup() enables the target, keeps float32 products in float32 (a TPU's default is
bfloat16), turns on the persistent compilation cache, and lets torch.manual_seed reach the
device. Modules that are only imported get none.""",
    examples=(
        Example(
            "import torch\n\n\ndef main():\n    x = torch.ones(2).cuda()\n\n\n"
            'if __name__ == "__main__":\n    main()\n',
            torchax="import torch\nimport tpu_runtime\n\ntpu_runtime.setup()\n\n\ndef main():\n"
            '    x = torch.ones(2).to("jax")\n\n\nif __name__ == "__main__":\n    main()\n',
            torch_xla="import torch\nimport tpu_runtime\n\ntpu_runtime.setup()\n\n\ndef main():\n"
            '    x = torch.ones(2).to("xla")\n\n\nif __name__ == "__main__":\n    main()\n',
            script=True,
        ),
    ),
)


@SETUP.on("file", "setup")
def setup(ctx: Context, found: Construct) -> Decision | None:
    if not ctx.uses_device or not ctx.is_entry or _present(ctx):
        return None
    arguments = f'precision="{ctx.options.precision}"' if ctx.options.precision else ""
    anchor = imports.last_import(ctx.names, _first_use(ctx))
    lines = ["", f"{RUNTIME}.setup({arguments})", ""]
    return Rewrite([Insert(ctx.names.tree, anchor, lines, before=anchor is None)], (RUNTIME,))


def _present(ctx: Context) -> bool:
    """A second run finds the set-up of the first."""
    return any(
        isinstance(node, ast.Call) and ctx.names.qualified(node.func) == f"{RUNTIME}.setup"
        for node in ctx.names.order
    )


def _first_use(ctx: Context) -> set[ast.AST]:
    """The first top-level statement that computes something: set-up has to stand above it."""
    for statement in ctx.names.tree.body:
        if isinstance(statement, ast.For | ast.While | ast.With):
            return {statement}
        if isinstance(statement, ast.Expr | ast.Assign | ast.If):
            for node in ast.walk(statement):
                if isinstance(node, ast.Call):
                    name = ctx.names.qualified(node.func) or ""
                    moves = isinstance(node.func, ast.Attribute) and node.func.attr in (
                        "to",
                        "cuda",
                    )
                    if moves or name.startswith(("torch.", RUNTIME)):
                        return {statement}
    return set()
