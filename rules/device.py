"""Device selection: strings, `torch.device`, indices."""

import ast
from collections.abc import Sequence
from dataclasses import replace

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Family,
    Keep,
    Kind,
    Replace,
    Report,
    Rewrite,
    Rule,
    SetString,
    argument,
    dotted,
)
from migrator.rule_api.device_objects import device_name, device_object, keeps_index
from migrator.rule_api.devices import (
    INDEXED,
    ONLY_SHOWN,
    asks_for_implementation,
    compared_with,
    device_call,
    implementation_beside,
    is_of_gpus,
    is_read,
    is_written_out,
    method_caller,
    not_a_device,
    own_move,
    places_of_load,
    table_of,
    whole_string,
)
from migrator.rule_api.option_help import help_beside
from migrator.rule_api.portable_device_names import asked_for, with_index
from migrator.rule_api.possible_devices import may_be_device
from migrator.rule_api.printed_devices import printed_beside
from migrator.rule_api.project import is_device_elsewhere, program_file
from migrator.rule_api.python import CUDA_STRING
from migrator.rule_api.training import is_tag

FAMILY = Family("DEV", "Devices", 20)

STRING = Rule(
    code="DEV002",
    name="device-string",
    summary='"cuda" as a device becomes the device of the target',
    why="""A string is a device if it is given to `torch.device`, `.to` or `device=`, compared with
a device's type, or stored under a name that is used that way.

Other uses of "cuda" stay. What might be a device is reported: what goes to a package that may not
use PyTorch's devices, or is compared by a method `to` of the program, and what takes a device's
name apart (a regular expression, letters by their places). Indices (`cuda:1`) go, since the target
shows one device. In a file that compares devices with a tensor's, `cuda:0` keeps its index, and
others are reported.""",
    examples=(
        Example(
            """
            import torch
            x = torch.zeros(2, device="cuda:0")
            """,
            after="""
            import torch
            x = torch.zeros(2, device="{device}")
            """,
        ),
        Example(
            """
            import torch
            device = torch.device(f"cuda:{rank}")
            """,
            after="""
            import torch
            device = torch.device("{device}")
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                device = torch_xla.device()
                """
            },
        ),
        Example(
            """
            if impl == "cuda":
                run()
            """,
        ),
        Example(
            """
            import torch
            logger.info("cuda")
            """,
            says={2: "is only printed"},
        ),
        Example(
            """
            import torch

            def device_of(args):
                print("Use GPU: cuda:{}".format(args.gpu))
                return torch.device("cuda:{}".format(args.gpu))
            """,
            after="""
            import torch

            def device_of(args):
                print("Use GPU: {device}")
                return torch.device("{device}")
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla

                def device_of(args):
                    print("Use GPU: {device}")
                    return torch_xla.device()
                """
            },
        ),
        Example(
            """
            import re
            import torch
            index = re.match(r"cuda:(\\d+)", str(x.device))[1]
            """,
            says={3: "looks into the name of a device"},
        ),
        Example(
            """
            import torch
            apply = {"cuda": fast, "cpu": slow}[kind]
            """,
            says={2: "is used as a key, beside 'cpu'; of devices, add one for"},
        ),
        Example(
            """
            import enum
            class Kind(enum.Enum):
                CPU = ("cpu", "gloo")
                CUDA = ("cuda", "nccl")
                NPU = ("npu", "hccl")
            """,
            says={
                4: "is stored as CUDA, which is not known to be a device, beside 'cpu', 'npu'; of"
            },
        ),
    ),
    moves_to_device=True,
)

INDEX = Rule(
    code="DEV003",
    name="device-index",
    summary="an integer that means a CUDA device becomes the device of the target",
    why="""`torch.device(0)` and `x.to(rank)` mean a CUDA device. On the target they raise an error
or mean the CPU, so they become the target's device.""",
    examples=(
        Example(
            """
            import torch
            device = torch.device(0)
            """,
            after="""
            import torch
            device = torch.device("{device}")
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                device = torch_xla.device()
                """
            },
        ),
        Example(
            """
            import torch

            def send(x, rank: int):
                return torch.zeros(2, device=rank), x.to(rank)
            """,
            after="""
            import torch

            def send(x, rank: int):
                return torch.zeros(2, device="{device}"), x.to("{device}")
            """,
        ),
        Example(
            """
            import torch

            def init(net, gpu_ids=[]):
                net.to(gpu_ids[0])
                return torch.nn.DataParallel(net, gpu_ids)
            """,
            after="""
            import torch
            import tpu_runtime

            def init(net, gpu_ids=[]):
                net.to("{device}")
                return tpu_runtime.DataParallel(net)
            """,
        ),
        Example(
            """
            import torch
            def send(x, rank):
                return x.to(rank)
            """,
            says={3: "doesn't show where rank comes from"},
        ),
        Example(
            """
            import torch
            device = torch.device("cpu", 0)
            """,
        ),
    ),
    moves_to_device=True,
)


def _unequal(ctx: Context, node: ast.expr) -> str | None:
    """Why a name with an index that is compared directly can't be the target's device."""
    others = compared_with(ctx.names, node)
    indexed = INDEXED.match(str(node.value)) if isinstance(node, ast.Constant) else None
    if not others or indexed is None:
        return None
    if int(indexed[1]) > 0:
        return "names one of several devices, and the target shows one"
    reads = any(is_read(ctx.names, other) for other in others)
    if ctx.target.portable:
        return "is compared with its index; compare the type of the device" if reads else None
    if not ctx.api.device_has_index and device_call(ctx.names, node) is not None:
        if not reads and not any(ctx.flow.kind(other) & Kind.DEVICE for other in others):
            return "is compared with its index; compare the type of the device"
    return None


@STRING.on("string", "cuda", node=ast.expr)
def string(ctx: Context, found: Construct, node: ast.expr) -> Decision | None:
    decision = _string(ctx, node)
    if isinstance(decision, Rewrite):
        said = printed_beside(ctx, whole_string(ctx.names, node))
        return replace(decision, edits=[*decision.edits, *said]) if said else decision
    return decision


def _string(ctx: Context, node: ast.expr) -> Decision | None:
    if places_of_load(ctx.names, node) is not None:
        return None  # torch.load's handling decides
    if method_caller(ctx.names, node) is not None:
        return None  # a method by its name
    above = ctx.names.parent(node)
    if isinstance(above, ast.Call) and dotted(above.func) == "hasattr":
        return Keep("asks whether there is such an attribute")
    whole = whole_string(ctx.names, node)
    if asks_for_implementation(ctx.names, whole):
        return Keep("belongs to CUDA's implementation, which a TPU does not take")
    if any(is_tag(program_file(ctx), o) for o in _others(ctx, whole)):
        return Keep("the device in a file, which a GPU may have written")
    reason = not_a_device(ctx.names, ctx.flow, whole)
    if reason is not None and ctx.project is not None:
        reason = None if is_device_elsewhere(ctx.project, ctx.names, whole) else reason
    if reason is not None and _is_path(ctx, whole):
        return Keep("a part of a path")
    if reason is not None and (other := implementation_beside(ctx.names, whole)) is not None:
        return Keep(f"names an implementation, as {other!r} does, and no device")
    if reason is not None:
        return Keep(reason) if reason == ONLY_SHOWN else Report(may_be_device(ctx, whole, reason))
    if (package := ctx.values.evidence.foreign(whole)) is not None:
        return Report(
            f"is given to {package}, which may have its own devices; if it takes PyTorch's, "
            f"write {ctx.api.device!r}"
        )
    if (reads := _read_by(ctx, whole)) is not None:
        return reads
    if ctx.api.device_names or ctx.target.portable:
        table = table_of(ctx.names, whole)
        if table is not None and is_written_out(ctx.names, table):
            return Report(f"a key of a table by device; give it one for {ctx.api.device!r}, too")
    if isinstance(node, ast.Constant):
        text = str(node.value)
        if whole is node and not CUDA_STRING.match(text):
            return Report(f"{text!r} is a part of a device name; check what is built from it")
    if (unequal := _unequal(ctx, whole)) is not None:
        return Report(unequal)
    if ctx.api.device_names and (indexed := with_index(ctx, whole)) is not None:
        return indexed
    if (call := device_call(ctx.names, whole)) is not None:
        return device_object(ctx, call, node)
    if ctx.api.device_names:
        if (asked := asked_for(ctx, whole)) is not None:
            return asked
        if _takes_device(ctx, whole):
            return Rewrite([Replace(whole, ctx.code.device(whole))])
    if whole is node and isinstance(node, ast.Constant) and not ctx.target.portable:
        index = ":0" if keeps_index(ctx, node) else ""
        return Rewrite([SetString(node, ctx.api.device + index), *help_beside(ctx, node)])
    if ctx.target.portable and isinstance(ctx.names.parent(whole), ast.MatchValue):
        return Report("a pattern cannot ask which device was chosen; write an `if`")
    return Rewrite([Replace(whole, device_name(ctx, whole))])


def _is_path(ctx: Context, name: ast.expr) -> bool:
    """`os.path.join(here, "cuda")`, `here / "cuda"`"""
    match ctx.names.parent(name):
        case ast.BinOp(op=ast.Div()):
            return True
        case ast.Call(func=func):
            return ctx.names.qualified(func) in ("os.path.join", "pathlib.Path")
    return False


def _others(ctx: Context, name: ast.expr) -> Sequence[ast.expr]:
    """What a name is compared with, also by its first letters."""
    match ctx.names.parent(name):
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Call(func=ast.Attribute(attr="startswith", value=other)):
            return [other]
    return ()


def _takes_device(ctx: Context, name: ast.expr) -> bool:
    """Whether a name is passed where a device object is accepted, too: `.to("cuda")`."""
    match ctx.names.parent(name):
        case ast.keyword(arg="device") as keyword:
            call = ctx.names.parent(keyword)
        case ast.Call(func=ast.Attribute(attr="to"), args=[first, *_]) as call if first is name:
            return True
        case _:
            return False
    called = ctx.names.qualified(call.func) if isinstance(call, ast.Call) else None
    return (called or "").startswith("torch.")


def _read_by(ctx: Context, given: ast.expr) -> Report | None:
    """Where one of the program's own methods may get the name and inspect it."""
    call = ctx.names.parent(given)
    call = ctx.names.parent(call) if isinstance(call, ast.keyword) else call
    owner = own_move(ctx.values.evidence, call) if isinstance(call, ast.Call) else ""
    said = f"{owner} has a method `to` that checks its argument; change both by hand"
    return Report(said) if owner else None


@INDEX.on("name", "torch.device")
def device_of_index(ctx: Context, found: Construct) -> Decision:
    if ctx.api.device_names:
        return Keep(_ANY_INDEX)
    call = ctx.names.call_of(found.node)
    index = argument(call, 0, "device", "type") if call is not None else None
    assert call is not None and index is not None
    return _unknown_index(ctx, index) or device_object(ctx, call, call)


@INDEX.on("method", "to")
def to_index(ctx: Context, found: Construct) -> Decision:
    if ctx.api.device_names:
        return Keep(_ANY_INDEX)
    call = ctx.names.call_of(found.node)
    assert call is not None
    index = call.args[0]
    refused = _unknown_index(ctx, index) or _read_by(ctx, index)
    return refused or Rewrite([Replace(index, ctx.code.device(call))])


@INDEX.on("keyword", "device")
def device_keyword(ctx: Context, found: Construct) -> Decision:
    if ctx.api.device_names:
        return Keep(_ANY_INDEX)
    refused = _unknown_index(ctx, found.value) or _read_by(ctx, found.value)
    return refused or Rewrite([Replace(found.value, ctx.code.device(found.node))])


_ANY_INDEX = "the index of an accelerator of any kind; a process has one TPU"


def _unknown_index(ctx: Context, index: ast.expr) -> Report | None:
    """If only its name suggests that a value is a device index."""
    if ctx.values.evidence.is_index(index):
        return None
    if isinstance(index, ast.Subscript) and is_of_gpus(ctx.names, index):
        return None
    return Report(
        f"the source doesn't show where {ctx.source.code(index)} comes from; if it is the index of "
        f"a device, write {ctx.api.device!r}"
    )
