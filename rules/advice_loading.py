"""Advice on feeding the device: loaders, and sizes."""

import ast
import re

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Family,
    Rule,
    Safety,
    advice,
    argument,
    dotted,
)

_GUIDE = "https://cloud.google.com/tpu/docs/performance-guide"

_LOADER = "from torch.utils.data import DataLoader\n\nmodel.cuda()\n"


def _loader(arguments: str) -> Example:
    return Example.moved(f"{_LOADER}train_loader = DataLoader(\n    train_set, {arguments}\n)\n")


FAMILY = Family("ADV", "Advice", 190)

LAST = Rule(
    code="ADV004",
    name="last-partial-batch",
    summary="a smaller last batch has a new shape, so the step is compiled again",
    safety=Safety.DISPLAY_ONLY,
    why="""The smaller last batch of an epoch has a new shape, so the step is compiled again, which
takes as long as the first time. `drop_last=True` (Trainer: `dataloader_drop_last`) skips a few
examples per epoch, different ones if they are shuffled. Loaders for evaluation, which must not skip
any, and those with an explicit `drop_last` get no advice.""",
    examples=(
        _loader("batch_size=64, shuffle=True, num_workers=4"),
        _loader("batch_size=64, shuffle=True, num_workers=4, drop_last=True"),
        Example.moved(
            """
            from torch.utils.data import DataLoader

            model.cuda()
            val_loader = DataLoader(val_set, batch_size=64, num_workers=4)  # must not skip anything
            """
        ),
        Example.moved(
            """
            from torch.utils.data import DataLoader

            model.cuda()
            train_loader = DataLoader(train_set, batch_sampler=by_length, num_workers=4)
            """
        ),
    ),
    references=("https://docs.pytorch.org/xla/release/r2.8/perf/recompilation.html",),
)

WORKERS = Rule(
    code="ADV005",
    name="loader-without-workers",
    summary="a training loader without workers reads each batch while the device waits",
    safety=Safety.DISPLAY_ONLY,
    why="""Without `num_workers`, the process that drives the device also reads, decodes and
collates each batch. Workers prepare the next ones meanwhile, on the many cores of a TPU's host.
There is no advice for a `TensorDataset`, or for data that is moved to the device while loading,
which a worker can't do.""",
    examples=(
        _loader("batch_size=64, shuffle=True, drop_last=True"),
        _loader("batch_size=64, shuffle=True, drop_last=True, num_workers=8"),
        Example.moved(
            """
            from torch.utils.data import DataLoader, TensorDataset

            model.cuda()
            train_set = TensorDataset(x, y)  # in memory already
            train_loader = DataLoader(train_set, batch_size=64, shuffle=True, drop_last=True)
            """
        ),
        Example.moved(
            """
            import torch
            from torch.utils.data import DataLoader

            model.cuda()
            collate = lambda rows: torch.stack(rows).to(device)  # no worker could
            loader = DataLoader(train_set, 64, shuffle=True, drop_last=True, collate_fn=collate)
            """
        ),
    ),
    references=(_GUIDE,),
)

SIZES = Rule(
    code="ADV006",
    name="padded-sizes",
    summary="sizes that don't fill the matrix unit are padded",
    safety=Safety.DISPLAY_ONLY,
    why="""A TPU multiplies matrices in blocks of 128 by 128 (256 by 256 on a v6e), and stores
tensors in tiles of 8 by 128: a hidden width of 200 takes as long as 256, a batch of 12 as long as
16.

So take multiples of 128 for widths, and of 8 for batches, if you are free to choose. Another width
is another model: change it only before training from scratch.

There is advice for hidden widths of 128 or more, written as numbers, that waste a fifth of a block
or more, and for training batches that are no multiple of 8.""",
    examples=(
        Example.moved(
            "from torch import nn\n\nmodel = nn.Sequential(\n"
            "    nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)\n).cuda()\n"
        ),
        Example.moved(
            "from torch import nn\n\nmodel = nn.Sequential(\n"
            "    nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)\n).cuda()\n"
        ),
        Example.moved(
            """
            from torch import nn

            model = nn.Sequential(nn.Linear(784, 256), nn.Linear(256, 200)).cuda()  # 200 classes
            """
        ),
        Example.moved(
            """
            from torch import nn

            model = nn.Sequential(nn.Linear(784, 240), nn.Linear(240, 10)).cuda()  # wastes little
            """
        ),
    ),
    references=(_GUIDE,),
)

# ---- loaders -------------------------------------------------------------------------------------

_OTHER = re.compile(
    r"(?:^|_|\b)(?:val\w*|test\w*|eval\w*|dev|infer\w*|predict\w*|query|gallery)", re.I
)
_TRAIN = re.compile(r"train", re.I)


@LAST.on("advice", "DataLoader()", node=ast.Call)
def last_batch(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    if not _is_for_training(ctx, call) or argument(call, 8, "drop_last") is not None:
        return None
    size = argument(call, 1, "batch_size")
    if not isinstance(size, ast.Constant | ast.Name | ast.Attribute | ast.BinOp):
        return None
    if isinstance(size, ast.Constant) and size.value in (None, 1):
        return None
    return advice(
        "a smaller last batch has a new shape, so the step is compiled again: "
        "drop_last=True, if each epoch may skip a few examples",
    )


@LAST.on(
    "advice", "TrainingArguments()", "Seq2SeqTrainingArguments()", "SFTConfig()", node=ast.Call
)
def last_batch_of_trainer(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    name = ctx.names.qualified(call.func) or ""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if not name.startswith(("transformers.", "trl.")) or given.keys() & {
        "dataloader_drop_last",
        None,
    }:
        return None
    size = given.get("per_device_train_batch_size")
    if isinstance(size, ast.Constant) and size.value == 1:
        return None
    return advice(
        "a smaller last batch has a new shape, so the step is compiled again: "
        "dataloader_drop_last=True, if each epoch may skip a few examples",
    )


@WORKERS.on("advice", "DataLoader()", node=ast.Call)
def workers(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    number = argument(call, 5, "num_workers")
    if number is not None and not (isinstance(number, ast.Constant) and number.value == 0):
        return None
    if not _is_for_training(ctx, call) or _is_in_memory(ctx, call):
        return None
    return advice(
        "without num_workers each batch is read while the device waits: start with one "
        "for each core that the host can spare",
    )


@SIZES.on("advice", "DataLoader()", node=ast.Call)
def batch(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    match argument(call, 1, "batch_size"):
        case ast.Constant(value=int(size)) if size > 1 and size % 8 and _is_for_training(ctx, call):
            return advice(
                "tensors are stored in tiles of 8 by 128, so a batch that is not a multiple of 8 "
                "is often padded: choose a multiple, if the training may change"
            )
    return None


def _is_for_training(ctx: Context, call: ast.Call) -> bool:
    if ctx.names.qualified(call.func) != "torch.utils.data.DataLoader":
        return False
    if argument(call, 4, "batch_sampler") is not None or any(k.arg is None for k in call.keywords):
        return False
    said = [_target(ctx, call), dotted(call.args[0]) if call.args else None]
    function = ctx.names.function(call)
    said.append(function.name if function is not None else None)
    words = [word for word in said if word]
    if any(map(_OTHER.search, words[:2])):
        return False
    shuffled = argument(call, 2, "shuffle")
    if isinstance(shuffled, ast.Constant):
        return shuffled.value is True
    return any(map(_TRAIN.search, words[:2]))


def _target(ctx: Context, call: ast.Call) -> str | None:
    match ctx.names.statement(call):
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                return str(target.slice.value)
            return dotted(target)
    return None


def _is_in_memory(ctx: Context, call: ast.Call) -> bool:
    """A dataset of tensors, or one that moves items to the device, which no worker could do."""
    made = [a for a in (argument(call, 0, "dataset"), argument(call, 7, "collate_fn")) if a]
    for value in list(made):
        if isinstance(value, ast.Name):
            made += [b.value for b in ctx.names.lookup(value) if b.value is not None]
            made += [b.node for b in ctx.names.lookup(value) if b.kind == "def"]  # type: ignore[misc]
    for value in made:
        if isinstance(value, ast.Call):
            if (ctx.names.qualified(value.func) or "").endswith(".TensorDataset"):
                return True
            definition = ctx.flow.called_definition(value)
            if definition is not None and _moves(definition):
                return True
        if _moves(value):
            return True
    return False


def _moves(node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Attribute | ast.Name)
        and (n.attr if isinstance(n, ast.Attribute) else n.id) in ("to", "cuda", "device")
        for n in ast.walk(node)
    )


# ---- widths --------------------------------------------------------------------------------------

_WIDTHS = {
    "torch.nn.Linear": ("in_features", "out_features"),
    "torch.nn.Embedding": (None, "embedding_dim"),
}
_WASTE = 0.2  # of the padded width


@SIZES.on("advice", "Linear()", "Embedding()", node=ast.Call)
def width(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    size = _size(ctx, call, 1)
    if size is None or size < 128 or 1 - size / (-(-size // 128) * 128) < _WASTE:
        return None
    around = ctx.names.enclosing_class(call) or ctx.names.tree
    others = [n for n in ast.walk(around) if isinstance(n, ast.Call)]
    if not any(_size(ctx, other, 0) == size for other in others):
        return None  # not for outputs: the data determines their number
    if next(other for other in others if _size(ctx, other, 1) == size) is not call:
        return None  # reported once
    return advice(
        "the matrix unit multiplies blocks of 128 (v6e: 256), so this width is padded to the "
        "next multiple: choose a multiple of 128, if you train the model from scratch",
    )


def _size(ctx: Context, call: ast.Call, side: int) -> int | None:
    """The literal size of inputs (0) or outputs (1)."""
    keywords = _WIDTHS.get(ctx.names.qualified(call.func) or "")
    keyword = keywords[side] if keywords else None
    match argument(call, side, keyword) if keyword else None:
        case ast.Constant(value=int(size)):
            return size
    return None
