"""Models divided over several devices: tensor parallel."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Edit,
    Example,
    Family,
    Insert,
    Keep,
    Replace,
    Rewrite,
    Rule,
    argument,
)
from migrator.rule_api.python import above_first_use

FAMILY = Family("SHD", "Large models", 120)

SHARD = Rule(
    code="SHD001",
    name="sharded-model",
    summary="with --shard tp, each device has a part of a model's layers",
    why="""A model that is too large or too slow for one device is divided: each device computes
some heads of attention and a part of the MLP. A table in the source, which you can edit, names the
layers; `shard` checks it against the model when the program starts.

Queries, keys, values and the first layer of an MLP are divided by their outputs ("column"). The
layers after them are whole on each device ("replicated"), and their inputs are gathered: nothing is
summed, at the cost of memory. With --shard tp-row these are divided by their inputs ("row"), and
the results are summed. Only layers of repeated blocks whose names show their role are divided.""",
    examples=(
        Example(
            """
            import torch
            from torch import nn


            class MLP(nn.Module):
                def __init__(self, dim):
                    super().__init__()
                    self.fc1 = nn.Linear(dim, 4 * dim)
                    self.fc2 = nn.Linear(4 * dim, dim)


            class Net(nn.Module):
                def __init__(self, dim):
                    super().__init__()
                    self.blocks = nn.ModuleList(MLP(dim) for _ in range(4))


            model = Net(64).cuda().eval()
            """,
            after="""
            import torch
            import tpu_runtime
            from torch import nn

            # What each device has of the layers of Net, where * is any number:
            # "column", a part of the outputs; "row", a part of the inputs, whose sums are added up;
            # "replicated", all of it, and the input is gathered.
            SHARDING = {
                "blocks.*.fc1": "column",
                "blocks.*.fc2": "replicated",
            }


            class MLP(nn.Module):
                def __init__(self, dim):
                    super().__init__()
                    self.fc1 = nn.Linear(dim, 4 * dim)
                    self.fc2 = nn.Linear(4 * dim, dim)


            class Net(nn.Module):
                def __init__(self, dim):
                    super().__init__()
                    self.blocks = nn.ModuleList(MLP(dim) for _ in range(4))


            model = tpu_runtime.shard(Net(64), SHARDING).eval()
            """,
            shard="tp",
        ),
        Example(
            """
            import torch
            from accelerate import Accelerator
            device = Accelerator().device
            model = torch.nn.Linear(8, 8).to(device)
            """,
            says={4: "goes to the device unchanged"},
            shard="tp",
        ),
        Example(
            """
            import torch
            from accelerate import Accelerator
            from torch import nn


            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.fc1 = nn.Linear(8, 8)


            model = Net().to(Accelerator().device)
            """,
            says={12: "has no layers in repeated blocks"},
            shard="tp",
        ),
    ),
)

_COMMENT = """\
# What each device has of the layers of {model}, where * is any number:
# "column", a part of the outputs; "row", a part of the inputs, whose sums are added up;
# "replicated", all of it, and the input is gathered."""


@SHARD.on("model", "move")
def move(ctx: Context, found: Construct) -> Decision:
    model, call = found.node, _call(ctx, found.node)
    assert isinstance(model, ast.expr)
    table = ctx.training.shardings.get(model)
    if table is None:
        return Keep(
            "goes to the device unchanged",
            advice="is not divided: the model's class can't be told",
        )
    if not table.rules:
        return Keep("has no layers in repeated blocks that could be divided")
    if not _only_moves(call):
        return Keep(
            "goes to the device unchanged",
            advice="is not divided: move the model and change its dtype by calls of their own",
        )
    note = ""
    if table.unknown:
        note = f"whole on each device, because their role is not known: {', '.join(table.unknown)}"
    word = ctx.code.runtime("shard")
    if word is None:
        return ctx.code.lacks("a model on one device")
    name, edit = _tables(ctx)[table.definition]
    holes, text = {"model": model}, f"{word.code}({{model}}, {name})"
    device = _device(ctx, call)
    if device is not None:
        holes, text = holes | {"device": device}, f"{word.code}({{model}}, {name}, {{device}})"
    return Rewrite([Replace(call, text, holes), edit], word.requires, note)


def _call(ctx: Context, model: ast.AST) -> ast.Call:
    """The method call that moves a model."""
    method = ctx.names.parent(model)
    call = ctx.names.call_of(method) if method is not None else None
    assert call is not None
    return call


def _device(ctx: Context, call: ast.Call) -> ast.expr | None:
    """The device that a model is moved to, unless it may be the CPU."""
    moves = isinstance(call.func, ast.Attribute) and call.func.attr == "to"
    device = argument(call, 0, "device") if moves else None
    if device is None or isinstance(device, ast.Constant) or not ctx.flow.is_device(device):
        return None
    return device


def _only_moves(call: ast.Call) -> bool:
    """Whether a call only moves a model."""
    return len(call.args) < 2 and {k.arg for k in call.keywords} <= {"device", "non_blocking"}


def _tables(ctx: Context) -> dict[ast.ClassDef, tuple[str, Edit]]:
    """The tables of the file by class: their names, and the edits that write them."""
    known = ctx.training.sharding_tables
    if not known:
        moved = (t for t in ctx.training.shardings.values() if t is not None and t.rules)
        tables = {table.definition: table for table in moved}
        taken = {*ctx.names.bound}
        anchor, before = above_first_use(ctx.names, ctx.file.is_own)
        for table in tables.values():
            name = "SHARDING" if len(tables) == 1 else f"{table.model.upper()}_SHARDING"
            while name in taken:
                name += "_OF_WEIGHTS"
            taken.add(name)
            rules = [f'    "{layer}": "{kind}",' for layer, kind in table.rules.items()]
            comment = _COMMENT.format(model=table.model).splitlines()
            lines = ["", "\n".join([*comment, f"{name} = {{", *rules, "}"]), ""]
            edit = Insert(ctx.names.tree, anchor, lines, before=before)
            known[table.definition] = name, edit
    return known
