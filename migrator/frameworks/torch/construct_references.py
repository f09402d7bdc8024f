"""Names and attributes that are constructs because of their object or arguments."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from migrator.analysis.construct_names import Vocabulary
from migrator.analysis.devices import other_accelerators
from migrator.analysis.devices.indices import is_device_index
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument
from migrator.analysis.training.find_optimizer_steps import is_optimizer_step
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import Kind
from migrator.construct import Construct
from migrator.frameworks.by_name import rule_name
from migrator.targets import RUNTIME

# Rules register for these, but they are only constructs depending on their use.
BY_SHAPE = frozenset({
    "torch.device", "torch.Generator", "cuda", "is_cuda", "get_device", "to", "type", "step",
    "unclear step", "device", "compile",
})  # fmt: skip


_METHODS = frozenset({
    "cuda", "is_cuda", "get_device", "to", "step", "compile", "type", *other_accelerators.METHODS,
})  # fmt: skip


def may_be_method(node: ast.Attribute | ast.Name, vocabulary: Vocabulary) -> bool:
    """A cheap test: False for what `reference_of` knows by its full name alone."""
    return type(node) is ast.Attribute and (
        node.attr in _METHODS or node.attr in vocabulary.methods
    )


def reference_of(
    names: Names, flow: Flow, node: ast.Attribute | ast.Name, vocabulary: Vocabulary
) -> Construct | None:
    qualname = names.qualified(node)
    if qualname is not None:
        found = rule_name(names, node, vocabulary, switches="torch.backends.")
        if found is not None and _is_given_number(names, flow, node, qualname):
            return replace(found, by_number=True)
        if found is not None or qualname.startswith(vocabulary.libraries):
            return found
        if qualname in ("torch.device", "torch.Generator"):
            return _device_call(names, flow, node, qualname)
        accelerator = other_accelerators.of_name(qualname)
        if accelerator is not None:
            return Construct("accelerator", accelerator, node)
        if qualname.startswith(("torch.", f"{RUNTIME}.")):
            return None
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return None
    call = names.call_of(node)
    kind = None
    if node.attr == "cuda":
        tensors = Kind.TENSOR | Kind.MODULE
        if call is not None or flow.kind(node.value) & tensors or _passed_on(names, node):
            kind = "cuda"
    elif node.attr == "is_cuda":
        kind = "is_cuda"
    elif call is not None and qualname is None and (accelerator := other_accelerators.moves(call)):
        return None if node.attr in names.owners else Construct("accelerator", accelerator, node)
    elif call is not None:
        if node.attr in vocabulary.methods:
            kind = node.attr
        elif node.attr == "get_device" and not call.args and not call.keywords:
            kind = "get_device" if qualname is None and "get_device" not in names.owners else None
        elif node.attr == "to" and call.args and is_device_index(names, flow, call.args[0]):
            kind = "to"
        elif node.attr == "step" and not names.never_runs(node):
            verdict = is_optimizer_step(names, flow, call)
            kind = {True: "step", None: "unclear step", False: None}[verdict]
        elif node.attr == "compile" and qualname is None:
            kind = "compile" if _compiles_model(flow, node, call) else None
        elif node.attr == "type" and len(call.args) == 1:
            kind = "type" if flow.kind(call.args[0]) & Kind.TENSOR_TYPE else None
    return Construct("method", kind, node) if kind else None


_OF_COMPILE = frozenset({"fullgraph", "dynamic", "backend", "mode", "options", "disable"})


def _compiles_model(flow: Flow, node: ast.Attribute, call: ast.Call) -> bool:
    """`nn.Module.compile`: of a model, or with torch.compile's arguments alone."""
    given = {keyword.arg for keyword in call.keywords}
    if call.args or not given <= _OF_COMPILE:
        return False
    return bool(given) or bool(flow.kind(node.value) & Kind.MODULE)


# Where what also works without a device is given one.
NUMBERED = {
    "torch.random.fork_rng": (0, "devices"), "torch.Generator": (0, "device"),
    "safetensors.torch.load_file": (1, "device"), "safetensors.safe_open": (2, "device"),
}  # fmt: skip


def _is_given_number(names: Names, flow: Flow, node: ast.expr, qualname: str) -> bool:
    """Whether a device is asked for by its number: `load_file(path, device=0)`."""
    place, call = NUMBERED.get(qualname), names.call_of(node)
    device = argument(call, *place) if place is not None and call is not None else None
    if isinstance(device, ast.List | ast.Tuple):
        return bool(device.elts)
    return device is not None and is_device_index(names, flow, device)


def _device_call(names: Names, flow: Flow, node: ast.expr, qualname: str) -> Construct | None:
    call = names.call_of(node)
    if call is None:
        return None
    if qualname == "torch.Generator":
        device = argument(call, 0, "device")
        cpu = device is not None and flow.kind(device) == Kind.CPU
        by_number = _is_given_number(names, flow, node, qualname)
        kept = device is None or cpu
        return None if kept else Construct("name", qualname, node, by_number=by_number)
    first = argument(call, 0, "device", "type")
    if first is not None and is_device_index(names, flow, first):
        return Construct("name", qualname, node)
    return None


def _passed_on(names: Names, node: ast.Attribute) -> bool:
    """`self.cuda = model.cuda`, `wrap(model.cuda)`: a model's method used as a value."""
    return False if names.parents.get(node) is None else bool(re.match(
        r"(?:net|model|module)", ast.unparse(node.value).rpartition(".")[2]
    ) and isinstance(names.parents[node], ast.Call | ast.Assign))  # fmt: skip
