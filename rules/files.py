"""Inputs and outputs: checkpoints and images."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Edit,
    EditCall,
    Example,
    Family,
    Keep,
    Kind,
    Replace,
    Report,
    Rewrite,
    Rule,
    argument,
)
from migrator.rule_api.devices import are_places_by_name, device_call, places_of_load, uses_device
from migrator.rule_api.project import program_file
from migrator.rule_api.python import is_script
from migrator.rule_api.training import is_always_cpu, is_only_state, may_be_none, placing

FAMILY = Family("IOS", "Checkpoints and images", 90)

LOAD = Rule(
    code="IOS001",
    name="torch-load",
    summary="torch.load can't load straight to the target's device",
    why="""A `map_location` of the target raises an error. What only goes to `load_state_dict`, or
is only read for numbers and strings, is loaded to the CPU and copied from there. Every use is
followed, also through functions and files. Everything else goes through the runtime's `load`, which
moves it to the device (without `map_location`: what came from a GPU).""",
    examples=(
        Example(
            """
            import torch
            model.load_state_dict(torch.load(path))
            """,
            after="""
            import torch
            model.load_state_dict(torch.load(path, map_location="cpu"))
            """,
        ),
        Example(
            """
            import torch
            def read(path):
                return torch.load(path)
            checkpoint = read(path)
            model.load_state_dict(checkpoint["model"])
            for epoch in range(checkpoint["next"], 10):
                train(epoch)
            """,
            after="""
            import torch
            def read(path):
                return torch.load(path, map_location="cpu")
            checkpoint = read(path)
            model.load_state_dict(checkpoint["model"])
            for epoch in range(checkpoint["next"], 10):
                train(epoch)
            """,
        ),
        Example(
            """
            import torch
            stats = torch.load(path, map_location=device)
            """,
            after="""
            import torch
            import tpu_runtime
            stats = tpu_runtime.load(path, map_location=device)
            """,
        ),
        Example(
            """
            import torch
            features = torch.load(path)
            print((features @ features.T).sum())
            """,
            after="""
            import torch
            import tpu_runtime
            features = tpu_runtime.load(path)
            print((features @ features.T).sum())
            """,
        ),
        Example(
            """
            import torch
            at = {'cuda:0': f'cuda:{rank}'}
            model.load_state_dict(torch.load(path, map_location=at))
            """,
            after="""
            import torch
            at = 'cpu'
            model.load_state_dict(torch.load(path, map_location=at))
            """,
        ),
        Example(
            """
            import torch
            loc = 'cuda:{}'.format(gpu)
            model.load_state_dict(torch.load(path, map_location=loc))
            """,
            after="""
            import torch
            loc = 'cpu'
            model.load_state_dict(torch.load(path, map_location=loc))
            """,
        ),
        Example(
            """
            import torch
            at = None if torch.cuda.is_available() else "cpu"
            model.load_state_dict(torch.load(path, map_location=at))
            """,
            after="""
            import torch
            import tpu_runtime
            at = None if tpu_runtime.is_available() else "cpu"
            model.load_state_dict(torch.load(path, map_location="cpu"))
            """,
        ),
        Example(
            """
            import torch
            state = torch.load("a.pt", map_location="cpu")
            """,
            says={2: "loads to the CPU"},
        ),
        Example(
            """
            import torch
            state = torch.load(path, map_location=lambda storage, place: storage.cuda(rank).half())
            """,
            says={2: "its map_location is a function"},
        ),
    ),
)

SAVE = Rule(
    code="IOS002",
    name="torch-save",
    summary="checkpoints are written from the CPU, so any machine can read them",
    why="""A file of XLA tensors can only be read with torch_xla. `xm.save` moves tensors to the CPU
first, and so does the runtime's `save`, which also has torch's other arguments. On torchax the
runtime makes `torch.save` do this, so the call stays; so does one for what is on the CPU.""",
    examples=(
        Example(
            """
            import torch
            torch.save(model.state_dict(), path)
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla.core.xla_model as xm
                xm.save(model.state_dict(), path)
                """
            },
        ),
        Example(
            """
            import torch
            torch.save(obj=model.state_dict(), f=path, pickle_protocol=4)
            """,
            except_on={
                "torch_xla": """
                import torch
                import tpu_runtime
                tpu_runtime.save(obj=model.state_dict(), f=path, pickle_protocol=4)
                """
            },
        ),
        Example(
            """
            import torch
            model = torch.nn.Linear(4, 2).cpu()
            torch.save({"model": model}, path)
            """,
            except_on={
                "torch_xla": """
                import torch
                import tpu_runtime
                model = torch.nn.Linear(4, 2).cpu()
                tpu_runtime.save({"model": model}, path)
                """
            },
        ),
        Example(
            """
            import torch
            weights = model.state_dict()
            torch.save({"step": 3, "weights": {n: w.cpu() for n, w in weights.items()}}, path)
            """,
        ),
        Example(
            """
            import pickle
            import torch
            torch.save(model.state_dict(), path, pickle_module=pickle)
            """,
            except_on={"torch_xla": None},
        ),
        Example(
            """
            import torch
            if __name__ == "__main__":
                torch.save(torch.rand(2), "noise.pt")
            """,
        ),
    ),
)

IMAGE = Rule(
    code="IOS003",
    name="decode-image",
    summary="torchvision's image decoders are custom operators that torchax can't run",
    why="""The runtime decodes with PIL and returns the same uint8 tensor of shape (C, H, W). On
torch_xla the decoder runs on the CPU, as before.""",
    examples=(
        Example(
            """
            import torchvision
            x = torchvision.io.decode_image(path)
            """,
            after="""
            import torchvision
            import tpu_runtime
            x = tpu_runtime.decode_image(path)
            """,
            except_on={"torch_xla": None},
        ),
        Example(
            """
            import torchvision
            torchvision.io.write_jpeg(x.cpu(), path)
            """,
        ),
        Example(
            """
            from PIL import Image
            from torchvision.transforms.functional import pil_to_tensor
            x = pil_to_tensor(Image.open(path))
            """,
        ),
    ),
)


@LOAD.on("name", "torch.load", node=ast.expr)
def load(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    call = ctx.names.call_of(node)
    if call is None:
        return _loaded(ctx, node)
    unpacked = any(isinstance(each, ast.Starred) for each in call.args)
    location = None if unpacked else argument(call, 1, "map_location")
    if unpacked or (location is None and any(k.arg is None for k in call.keywords)):
        return _loaded(ctx, node)
    functions = [*placing(program_file(ctx), location)] if location is not None else []
    if location is not None and not functions and is_always_cpu(program_file(ctx), location):
        return Keep("loads to the CPU")
    as_saved = location is None or may_be_none(program_file(ctx), location)
    if ctx.api.device_names and location is not None and not as_saved:
        if not functions and not isinstance(location, ast.Dict):
            return _to_chosen(ctx, location)
    if is_only_state(program_file(ctx), call):
        if location is not None and are_places_by_name(ctx.names, location):
            return Keep("loads to the CPU, which the name now says")
        cpu = ctx.code.quoted("cpu", call)
        if location is None:
            return Rewrite([EditCall(call, put={"map_location": cpu})])
        return Rewrite([Replace(location, cpu)])
    if ctx.api.device_names and as_saved:
        return Keep("returns to where it was saved", advice=_SAVED_ELSEWHERE)
    if isinstance(location, ast.Lambda):
        return _load_by_function(ctx, call, location)
    if isinstance(location, ast.Dict) and places_of_load(ctx.names, location) is not None:
        return _loaded(ctx, node, Replace(location, ctx.code.device_string(location)))
    if functions and ctx.api.device_names:
        return Keep("loads to where the program's own function says")
    return _loaded(ctx, node)


_SAVED_ELSEWHERE = "a file that a GPU wrote needs map_location on a TPU: say where its tensors go"


def _to_chosen(ctx: Context, location: ast.expr) -> Decision:
    """Onto the device that the program chooses."""
    if ctx.flow.kind(location) & Kind.DEVICE_STRING and not isinstance(location, ast.Name):
        if device_call(ctx.names, location) is None and isinstance(location, ast.Constant):
            return Rewrite([Replace(location, ctx.code.device(location))])
    return Keep("loads to the device that the program chooses")


def _loaded(ctx: Context, function: ast.expr, *edits: Edit) -> Decision:
    """With the runtime's function, which knows the target's device."""
    word = ctx.code.runtime("load")
    if word is None and edits and ctx.api.device_names:
        return Rewrite(edits)
    if word is None:
        return Report('load to the CPU (map_location="cpu"), and move what the device needs')
    return Rewrite([Replace(function, word.code), *edits], word.requires)


@LOAD.on("string", "cuda")
def place(ctx: Context, found: Construct) -> Decision | None:
    """`map_location = {"cuda:0": f"cuda:{rank}"}`: source and destination, both in one device
    here."""
    of_load = places_of_load(ctx.names, found.node)
    if of_load is None:
        return None
    places, call = of_load
    values = places.values if isinstance(places, ast.Dict) else [places]
    to = [value for value in values if not (ctx.flow.kind(value) & Kind.CPU)]
    if not to or is_only_state(program_file(ctx), call):
        return Rewrite([Replace(places, ctx.code.quoted("cpu", places))])
    return Rewrite([Replace(places, ctx.code.device_string(places))])


def _load_by_function(ctx: Context, call: ast.Call, location: ast.Lambda) -> Decision:
    """`lambda storage, loc: storage` loads to the CPU, `… storage.cuda()` to the device."""
    first = location.args.args[0].arg if location.args.args else ""
    match location.body:
        case ast.Name(id=name) if name == first:
            return Rewrite([Replace(location, ctx.code.quoted("cpu", call))])
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="cuda")) if name == first:
            return _loaded(ctx, call.func, Replace(location, ctx.code.device_string(call)))
    return Report('its map_location is a function; load to "cpu" and move afterwards', whole=call)


@SAVE.on("name", "torch.save", node=ast.expr)
def save(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    word = ctx.api.renames.get("torch.save")
    if word is None:
        return Keep("the runtime writes device tensors as CPU tensors")
    if not _may_hold_device_tensors(ctx):
        return Keep("this script uses no device")
    call = ctx.names.call_of(node)
    if call is not None and call.args and _is_on_cpu(call.args[0]):
        return Keep("what it saves is on the CPU")
    if call is not None and (
        call.keywords or any(isinstance(a, ast.Starred) or _holds_module(ctx, a) for a in call.args)
    ):
        word = ctx.code.runtime("save")  # it has torch's arguments, and looks inside of modules
        if word is None or any(k.arg == "pickle_module" for k in call.keywords):
            return Report("move the tensors with .cpu() before saving: they can only be read with "
                          "the target's library")  # fmt: skip
    return Rewrite([Replace(node, word.code)], word.requires)


def _is_on_cpu(value: ast.expr) -> bool:
    """Whether it surely holds no tensor of a device: constants, and what was brought to the CPU."""
    match value:
        case ast.Constant():
            return True
        case ast.Dict(values=held) | ast.List(elts=held) | ast.Tuple(elts=held):
            return all(map(_is_on_cpu, held))
        case ast.DictComp(value=held) | ast.ListComp(elt=held):
            return _is_on_cpu(held)
        case ast.Call(func=ast.Attribute(attr="cpu" | "item" | "tolist" | "numpy"), args=[]):
            return True
    return False


def _holds_module(ctx: Context, value: ast.expr) -> bool:
    match value:
        case ast.Dict(values=held) | ast.List(elts=held) | ast.Tuple(elts=held):
            return any(_holds_module(ctx, each) for each in held)
    return bool(ctx.flow.kind(value) & Kind.MODULE)


def _may_hold_device_tensors(ctx: Context) -> bool:
    """A script that uses no device has no device tensors to save; a library may get some."""
    if any(map(uses_device, ctx.constructs)) or not is_script(ctx.names):
        return True
    return ctx.project is not None and ctx.project.imports_gpu_code()


@IMAGE.on("name", *(f"torchvision.io.{path}{name}" for path in ("", "image.")
                   for name in ("decode_image", "read_image")), node=ast.expr)  # fmt: skip
def image(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    word = ctx.api.renames.get(found.key)
    if word is None:
        return Keep("decodes on the CPU, as before")
    return Rewrite([Replace(node, word.code)], word.requires)
