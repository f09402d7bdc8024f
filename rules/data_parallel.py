"""nn.DataParallel: a model that is copied to each device."""

import ast
from collections.abc import Iterator

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Effort,
    Example,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    argument,
    dotted,
    first_of,
)
from migrator.rule_api.devices import Questions
from migrator.rule_api.distributed import COPIES as COPYING
from migrator.rule_api.distributed import COPIES_FOR_A_CALL as CALL
from migrator.rule_api.rank_words import is_asked_for, wrapped

COPIES = Rule(
    code="DST002",
    name="data-parallel",
    summary="nn.DataParallel splits each batch over the TPU's devices",
    why="""One process drives all devices (on torch_xla by SPMD, which set-up has to know about).
Each device has all parameters and a part of each batch, split along its first dimension; XLA sums
over devices. The source goes on working with whole batches, so batch size and learning rate stay.

The choice of GPUs is dropped: all devices take part. BatchNorm uses the statistics of the whole
batch, where nn.DataParallel uses those of each part. `data_parallel(model, x, ids)`, for one call
alone, becomes the call of the model. On torch_tpu, DataParallel stays: it uses several GPUs, or the
one TPU that the process has. What is left and reported is the model itself, on one device.""",
    effort=Effort.HOURS,
    examples=(
        Example(
            """
            import torch.nn as nn
            model = nn.DataParallel(model, device_ids=[0, 1])
            """,
            after="""
            import tpu_runtime
            model = tpu_runtime.DataParallel(model)
            """,
        ),
        Example(
            """
            from torch import nn
            if x.is_cuda and n > 1:
                y = nn.parallel.data_parallel(model, x, range(n))
            """,
            after="""
            if x.device.type == "{device}" and n > 1:
                y = model(x)
            """,
        ),
        Example(
            """
            from torch import nn
            class Parallel(nn.DataParallel):
                pass
            """,
            says={2: "splits batches and joins results in its own way"},
        ),
        Example(
            """
            from torch import nn
            y = nn.parallel.data_parallel(model, inputs, range(2))
            """,
            says={2: "may be a tuple"},
        ),
    ),
)


@COPIES.on("name", *COPYING)
def copies(ctx: Context, found: Construct) -> Decision | None:
    words = ctx.api.devices
    if words is None:
        return None
    if isinstance(ctx.names.parent(found.node), ast.ClassDef):
        return Report("a subclass splits batches and joins results in its own way")
    lines = ctx.distributed.own_ranks.counts_copies
    if lines and not is_asked_for(ctx, found):
        first, *others = [f"line {line}" for line in lines]
        also = f" (also {first_of(others, 5)})" if others else ""
        return Report(
            f"{first} computes with the number of GPUs, or adds their results{also}; here the "
            "model returns one result of the whole batch"
        )
    if words.copies is None:
        return Keep("on a TPU, set-up makes it the model itself: a process computes on one")
    sharded = words.sharded if ctx.options.shard == "fsdp" else None
    note = "BatchNorm uses the statistics of the whole batch"
    return wrapped(ctx, found, sharded or words.copies, note)


@COPIES.on("name", CALL)
def copies_for_a_call(ctx: Context, found: Construct) -> Decision:
    """`data_parallel(net, x, ids)`: copies that only one call uses."""
    call = ctx.names.call_of(found.node)
    if ctx.api.device_names or ctx.target.portable:
        if Questions(ctx.names, ctx.flow).is_guarded(found.node):
            return Keep("only for several GPUs, and checks for one first")
        return Report("is for several GPUs: on a TPU, call the model itself")
    model = argument(call, 0, "module") if call is not None else None
    inputs = argument(call, 1, "inputs") if call is not None else None
    if call is None or model is None or inputs is None:
        return Report("its arguments are not seen; call the model itself")
    more = argument(call, 5, "module_kwargs")
    if more is not None and not isinstance(more, ast.Dict):
        return Report("its arguments are not seen; call the model itself")
    parts = inputs.elts if isinstance(inputs, ast.Tuple) else [inputs]
    if any(isinstance(part, ast.Starred) for part in parts) or not (
        isinstance(inputs, ast.Tuple) or _is_tensor(ctx, inputs)
    ):
        return Report("what it is given may be a tuple; call the model itself")
    holes: dict[str, ast.expr] = {"model": model}
    given = []
    for n, part in enumerate(parts):
        holes[f"x{n}"] = part
        moved = "" if _is_asked(ctx, part) else f".to({ctx.code.device(call)})"
        given.append(f"{{x{n}}}{moved}")
    for n, (key, value) in enumerate(zip(more.keys, more.values, strict=True) if more else ()):
        name = str(key.value) if isinstance(key, ast.Constant) else ""
        if not name.isidentifier():
            return Report("its arguments are not seen; call the model itself")
        holes[f"y{n}"] = value
        given.append(f"{name}={{y{n}}}")
    note = "one call for the whole batch: BatchNorm uses the statistics of all of it"
    return Rewrite([Replace(call, f"{{model}}({', '.join(given)})", holes)], note=note)


def _is_tensor(ctx: Context, node: ast.expr) -> bool:
    return ctx.values.evidence.is_tensor(node) or any(_asked(ctx, node, "is_cuda", "data"))


def _is_asked(ctx: Context, node: ast.expr) -> bool:
    """Whether the program asks whether a tensor is on the device."""
    return any(_asked(ctx, node, "is_cuda")) or any(
        isinstance(above := ctx.names.parent(use), ast.Call) and dotted(above.func) == "isinstance"
        for use in _asked(ctx, node, "data")
    )


def _asked(ctx: Context, node: ast.expr, *attributes: str) -> Iterator[ast.Attribute]:
    """Where the function of a value uses an attribute of it."""
    name, function = dotted(node), ctx.names.function(node)
    for attribute in attributes if name is not None else ():
        for use in ctx.names.by_attribute.get(attribute, ()):
            if dotted(use.value) == name and ctx.names.function(use) is function:
                yield use
