"""Set-up: once per entry script, after its imports."""

import ast
from collections.abc import Iterator

from migrator.rule_api import (
    RUNTIME,
    Construct,
    Context,
    Decision,
    Example,
    Family,
    Insert,
    Report,
    Rewrite,
    Rule,
    dotted,
)
from migrator.rule_api.python import above_first_use, own_module
from migrator.rule_api.training import following

FAMILY = Family("SET", "Set-up", 10)

SETUP = Rule(
    code="SET001",
    name="set-up",
    summary="an entry script turns the target on, once, after its imports",
    why="""`setup()` turns the target on, keeps float32 products in float32 (a TPU's default is
bfloat16), turns on the persistent cache of compiled programs, and makes `torch.manual_seed` seed
the device.

An entry script has a main guard, or does something when it is loaded and is not imported by other
files. `__main__.py` is one, and so is a module that a command of the project starts
(`[project.scripts]`, Poetry's scripts, `console_scripts`), or that a framework loads: Cog's
predictor, a handler of TorchServe, a service of BentoML, actors and tasks of Ray and Celery, an
application of FastAPI or Flask. So is a program that takes its device from settings or options, if
a configuration or a script of the project names a GPU there (`device: cuda`, `--device cuda`).

Modules that are only imported get no set-up. If a folder has no program, the summary says that
whoever imports it has to call `setup()`.""",
    examples=(
        Example(
            """
            import torch


            def main():
                x = torch.ones(2).cuda()


            if __name__ == "__main__":
                main()
            """,
            after="""
            import torch
            import tpu_runtime

            tpu_runtime.setup()


            def main():
                x = torch.ones(2).to("{device}")


            if __name__ == "__main__":
                main()
            """,
            script=True,
        ),
        Example(
            """
            import torch


            def main(device):
                print(torch.ones(2).to(device))


            main("cpu")
            """,
            script=True,
        ),
        Example(
            """
            import torch


            def moved(x, device):
                return x.to(device)
            """,
        ),
    ),
)


FLAG = Rule(
    code="SET002",
    name="use-tpu-flag",
    summary="with --portable, a script's argparse parser gains --use-tpu",
    why="""A portable program uses a TPU if there is one, otherwise a GPU, otherwise the CPU.
`--use-tpu` and `--no-use-tpu` override that, as does the environment variable `TPU_RUNTIME_DEVICE`.
`setup()` reads the flag before the parser does, so a device that is chosen during imports is right.
""",
    examples=(
        Example(
            """
            import argparse
            import torch
            parser = argparse.ArgumentParser()
            parser.add_argument("--lr", type=float)
            args = parser.parse_args()
            x = torch.ones(2).cuda()
            """,
            after="""
            import argparse
            import torch
            import tpu_runtime
            parser = argparse.ArgumentParser()
            parser.add_argument("--lr", type=float)
            parser.add_argument("--use-tpu", action=tpu_runtime.UseTpu, help="run on a TPU")
            args = parser.parse_args()
            x = torch.ones(2).to(tpu_runtime.device())
            """,
            portable=True,
        ),
        Example(
            """
            import argparse
            import torch
            parser = argparse.ArgumentParser()
            parser.add_argument("--device", default="cpu")
            x = torch.ones(2, device=parser.parse_args().device)
            """,
            portable=True,
        ),
        Example(
            """
            import argparse
            from accelerate import Accelerator
            parser = argparse.ArgumentParser()
            parser.add_argument("--use-tpu", action="store_true")
            accelerator = Accelerator(cpu=not parser.parse_args().use_tpu)
            """,
            portable=True,
        ),
    ),
)


@SETUP.on("file", "setup")
def setup(ctx: Context, found: Construct) -> Decision | None:
    word = ctx.code.runtime("setup")
    if not ctx.file.is_entry or not _needs_device(ctx):
        return None
    if word is None or _present(ctx) or (ctx.api.on_gpu is not None and _only_pins(ctx)):
        return None
    given = [f'precision="{ctx.options.precision}"'] if ctx.options.precision else []
    arguments = ", ".join(filter(None, [*given, *_for_devices(ctx)]))
    anchor, before = above_first_use(ctx.names, ctx.file.is_own)
    lines = ["", f"{word.code}({arguments})", ""]
    return Rewrite([Insert(ctx.names.tree, anchor, lines, before=before)], word.requires)


@SETUP.on("file", "gate")
def name_of_its_own(ctx: Context, found: Construct) -> Decision | None:
    """A program that has the runtime's name for something else can't import the runtime."""
    if ctx.code.runtime("setup") is None or not (ctx.file.uses_device or ctx.distributed.ranks):
        return None
    module = own_module(ctx.project) if ctx.project is not None else None
    if module is not None:
        return Report(
            f"the migrated code imports a package `{RUNTIME}`, and {module} is the project's own; "
            "rename it"
        )
    if not ctx.file.is_entry:
        return None  # each rewrite that needs the name says so
    meant = [b for b in ctx.names.top.bindings.get(RUNTIME, ()) if b.qualname != RUNTIME]
    if not meant:
        return None
    return Report(
        f"the migrated code needs the name `{RUNTIME}`, which this file uses for something else "
        f"(line {meant[0].node.lineno}); rename that"  # type: ignore[attr-defined]
    )


def _needs_device(ctx: Context) -> bool:
    """Whether this program uses a device: here, or in code of the project that it reaches."""
    if ctx.distributed.ranks or (
        ctx.values.evidence.of_torch and any(map(ctx.framework.uses_device, ctx.constructs))
    ):
        return True
    project = ctx.project
    if project is None:
        return False
    is_given = project.takes_gpu(ctx.framework) and project.gives_gpu()
    return is_given or project.reaches_device()


def _only_pins(ctx: Context) -> bool:
    """Whether a file's only use of a GPU is deciding whether to pin memory."""
    if ctx.distributed.ranks or (
        ctx.project is not None and ctx.project.imports_gpu_code(ctx.framework)
    ):
        return False
    if ctx.project is not None and ctx.project.takes_gpu(ctx.framework):
        return False  # its settings name one
    pins = {ctx.names.statement(c.node) for c in ctx.constructs if c.key == "pin_memory"}
    using = filter(ctx.framework.uses_device, ctx.constructs)
    return all(ctx.names.statement(c.node) in pins for c in using)


def _for_devices(ctx: Context) -> Iterator[str]:
    """Arguments that set-up needs before a device is used."""
    words = ctx.api.devices
    if words is None:
        return
    if any(ranks.spawns for ranks in ctx.distributed.ranks.values()):
        yield words.launch_setup
    elif ctx.training.divides_models:
        yield words.copies_setup
    elif ctx.distributed.ranks and words.launch is not None:
        return  # torchrun starts them, and each has a device
    elif ctx.distributed.own_ranks.copies or (
        ctx.project is not None and ctx.project.makes_copies()
    ):
        yield words.copies_setup
    elif not ctx.distributed.ranks:
        return
    if ctx.options.num_cores != "all":
        yield f"num_cores={ctx.options.num_cores}"


@FLAG.on("file", "setup")
def flag(ctx: Context, found: Construct) -> Decision | None:
    if not ctx.target.asks_runtime or not ctx.file.uses_device:
        return None
    parser = _parser(ctx)
    if parser is None or any(
        isinstance(node, ast.Constant) and node.value == "--use-tpu" for node in ctx.names.order
    ):
        return None
    name, anchor = parser
    text = f'{name}.add_argument("--use-tpu", action={RUNTIME}.UseTpu, help="run on a TPU")'
    return Rewrite([Insert(ctx.names.tree, anchor, [text])], (RUNTIME,))


def _parser(ctx: Context) -> tuple[str, ast.stmt] | None:
    """The name of an argparse parser, and the last statement that adds an option to it before
    other code may read it."""
    for node in ctx.names.order:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if ctx.names.qualified(node.value.func) == "argparse.ArgumentParser":
            name = dotted(node.targets[0])
            if name is None or len(node.targets) > 1:
                continue
            last: ast.stmt = node
            for statement in following(ctx.names, node):
                if _adds_option(statement, name):
                    last = statement
                elif not ctx.values.order.may_swap(
                    ctx.values.order.contents(node.targets[0]), statement
                ):
                    break
            return name, last
    return None


def _adds_option(statement: ast.stmt, parser: str) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=func)) | ast.Assign(value=ast.Call(func=func)):
            return dotted(func) == f"{parser}.add_argument"
    return False


def _present(ctx: Context) -> bool:
    """Set-up that an earlier run has added."""
    return any(
        isinstance(node, ast.Call) and ctx.names.qualified(node.func) == f"{RUNTIME}.setup"
        for node in ctx.names.order
    )
