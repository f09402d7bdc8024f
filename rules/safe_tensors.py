"""Files of safetensors, and the devices that it reads onto."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    EditCall,
    Example,
    Keep,
    Kind,
    Replace,
    Report,
    Rewrite,
    Rule,
    argument,
)
from migrator.rule_api.project import program_file
from migrator.rule_api.training import is_only_state

TENSORS = Rule(
    code="IOS004",
    name="safetensors",
    summary="safetensors only reads to devices that it knows",
    why="""If the result only goes into `load_state_dict`, it is read on the CPU and copied into the
parameters. Otherwise the runtime's `load_file` moves it to the device. safetensors knows
torch_xla's device by the name `"xla"`, but doesn't take a `torch.device`.""",
    examples=(
        Example(
            """
            from safetensors.torch import load_file
            x = load_file(path, device="cuda")["x"]
            """,
            after="""
            import tpu_runtime
            x = tpu_runtime.load_file(path, device="{device}")["x"]
            """,
            except_on={
                "torch_xla": """
                from safetensors.torch import load_file
                x = load_file(path, device="{device}")["x"]
                """
            },
        ),
        Example(
            """
            from safetensors.torch import load_file
            model.load_state_dict(load_file(path, device="cuda"))
            """,
            after="""
            from safetensors.torch import load_file
            model.load_state_dict(load_file(path))
            """,
        ),
        Example(
            """
            from safetensors.torch import load_file
            x = load_file(path, device=0)["x"] + y.cuda()
            """,
            after="""
            import tpu_runtime
            x = tpu_runtime.load_file(path, device="{device}")["x"] + y.to("{device}")
            """,
            except_on={
                "torch_xla": """
                from safetensors.torch import load_file
                x = load_file(path, device="{device}")["x"] + y.to("{device}")
                """
            },
        ),
        Example(
            """
            from safetensors.torch import load_file
            x = load_file(path, device="cpu")
            """,
        ),
        Example(
            """
            import torch
            from safetensors.torch import load_file
            device = "cuda" if torch.cuda.is_available() else "cpu"
            x = load_file(path, device=device)
            """,
            after="""
            import torch
            import tpu_runtime
            device = "{device}"
            x = tpu_runtime.load_file(path, device=device)
            """,
        ),
        Example(
            """
            from safetensors import safe_open
            with safe_open(path, framework="pt", device=device) as f:
                x = f.get_tensor("x")
            """,
            says={2: "it on the CPU, and move what is read"},
        ),
    ),
)


_PLACES = {"safetensors.torch.load_file": 1, "safetensors.torch.load_model": 3,
           "safetensors.safe_open": 2}  # fmt: skip


@TENSORS.on("name", *_PLACES)
def tensors(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    place = argument(call, _PLACES[found.key], "device") if call is not None else None
    if call is None or place is None or ctx.flow.kind(place) == Kind.CPU:
        return Keep("reads on the CPU")
    if found.key.endswith("load_model") or is_only_state(program_file(ctx), call):
        named = [k for k in call.keywords if k.value is place]
        return Rewrite([EditCall(call, drop=named or [place])])
    is_number = isinstance(place, ast.Constant) and isinstance(place.value, int)
    named_device = [Replace(place, ctx.code.device_string(place))] if is_number else []
    if ctx.api.safetensors and not ctx.target.portable and isinstance(place, ast.Constant):
        known = Keep("safetensors knows the target's device by its name")
        return Rewrite(named_device) if named_device else known
    if ctx.api.device_names and found.key.endswith("load_file"):
        return _moved(ctx, call, place)
    if found.key == "safetensors.safe_open":
        return Report("opened on a device that safetensors may not know; open it on the CPU, and "
                      "move what is read")  # fmt: skip
    word = ctx.code.runtime("load_file")
    if word is None:
        return Report("safetensors does not know the target's device; read on the CPU, and move")
    return Rewrite([EditCall(call, function=word.code), *named_device], word.requires)


def _moved(ctx: Context, call: ast.Call, place: ast.expr) -> Decision:
    """Read on the CPU, and moved to a device that safetensors may not know."""
    path = argument(call, 0, "filename")
    if path is None:
        return Report("its arguments are unpacked; read on the CPU, and move")
    holes = {"function": call.func, "path": path}
    device = ctx.code.device(place)
    if not isinstance(place, ast.Constant):
        device, holes = "{device}", {**holes, "device": place}
    match ctx.names.parent(call):
        case ast.Subscript(value=value, slice=key) as one if value is call:
            text = f"{{function}}({{path}})[{{key}}].to({device})"
            return Rewrite([Replace(one, text, {**holes, "key": key})])
    text = f"{{name: x.to({device}) for name, x in {{function}}({{path}}).items()}}"
    return Rewrite([Replace(call, text, holes)])
