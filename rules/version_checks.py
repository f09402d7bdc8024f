"""Checks of versions that the target's versions fail."""

import ast

from migrator.rule_api import Construct, Context, Decision, Effort, Example, Keep, Report, Rule
from migrator.rule_api.devices import tpu_answer
from migrator.rule_api.libraries import known_modules
from migrator.rule_api.upgrade_templates import is_of_gpu_code

CHECKS = Rule(
    code="UPG007",
    name="version-check",
    summary="a check of versions that ends the program with the versions of the target",
    why="""A program that says `assert timm.__version__ == "0.3.2"`, or raises an error for PyTorch
2, stops there. Its code does not show whether it works with newer versions, and gives the same
numbers, so the check stays: try the program without it. Packages are taken to have the versions
that were imported beside the target's PyTorch. timm 0.3.2, for example, does not start there (it
needs `torch._six`); 0.4.5 does.""",
    effort=Effort.MINUTES,
    examples=(
        Example(
            """
            import timm
            import torch
            assert timm.__version__ == "0.3.2"
            model = timm.create_model("resnet18").cuda()
            """,
            after="""
            import timm
            import torch
            assert timm.__version__ == "0.3.2"
            model = timm.create_model("resnet18").to("{device}")
            """,
            says={3: "this check fails with timm"},
        ),
        Example(
            """
            import torch
            if int(torch.__version__.split(".")[0]) > 1:
                raise RuntimeError("torch 2 is not supported")
            x = torch.ones(3).cuda()
            """,
            after="""
            import torch
            if int(torch.__version__.split(".")[0]) > 1:
                raise RuntimeError("torch 2 is not supported")
            x = torch.ones(3).to("{device}")
            """,
            says={2: "this check fails with the versions of"},
        ),
        Example(
            """
            import timm
            import torch
            assert timm.__version__ == "0.3.2"
            """,
            says={3: "nothing here uses a device"},
        ),
        Example(
            """
            import timm
            from accelerate import Accelerator
            accelerator = Accelerator()
            try:
                assert timm.__version__ == "0.3.2"
            except AssertionError:
                print("another timm")
            """,
            says={5: "its error is caught"},
        ),
    ),
)


@CHECKS.on("version check", "*")
def version_check(ctx: Context, found: Construct) -> Decision:
    if not is_of_gpu_code(ctx):
        return Keep("nothing here uses a device")
    if ctx.names.is_caught(found.node, _error(ctx, found.node)):
        return Keep("its error is caught")
    if installed := _passing(ctx, found):
        return Keep(f"{installed} passes it")
    modules = _modules(found)
    versions = " and ".join(map(_tried, modules)) or f"the versions of {ctx.target.name}"
    unknown = bool(modules) and not any(known_modules()[module].oldest for module in modules)
    older = "; older ones may not start with this PyTorch" if unknown else ""
    return Report(
        f"this check fails with {versions}{older}: try the program without it, and compare its "
        "numbers"
    )


def _modules(found: Construct) -> list[str]:
    return found.key.split(" and ") if found.key else []


def _tried(module: str) -> str:
    """A module's version that was tried, and the first that can be."""
    known = known_modules()[module]
    first = f" ({known.oldest} is the first that starts with this PyTorch)" if known.oldest else ""
    return f"{module} {known.tested}{first}"


def _passing(ctx: Context, found: Construct) -> str:
    """The modules of the environment that pass a check, which those of the target fail."""
    versions = dict(ctx.options.versions)
    known = {module: versions[module] for module in _modules(found) if module in versions}
    assert isinstance(found.node, ast.Assert | ast.If)
    passes = tpu_answer(ctx.names, found.node.test, known) is isinstance(found.node, ast.Assert)
    return " and ".join(map(" ".join, known.items())) if passes else ""


def _error(ctx: Context, check: ast.AST) -> str:
    """The error that a failing check raises; an unknown one is ""."""
    if isinstance(check, ast.Assert):
        return "AssertionError"
    match check:
        case ast.If(body=[*_, ast.Raise(exc=ast.expr() as error)]):
            made = error.func if isinstance(error, ast.Call) else error
            return ctx.names.qualified(made) or ""
        case ast.If(body=[*_, ast.Expr(value=ast.Call())]):
            return "SystemExit"
    return ""
