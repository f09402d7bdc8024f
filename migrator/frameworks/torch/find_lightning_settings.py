"""Lightning's Trainer and Fabric: their settings for devices and precisions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.syntax.literals import values
from migrator.construct import Construct

# Values that choose nothing that a TPU lacks.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "accelerator": ("auto", "tpu", None),
    "gpus": (0, None),
    "devices": ("auto", 1, [0], "1", None),
    "num_nodes": (1,),
    "strategy": ("auto", "single_device", None),
    "precision": (32, "32", "32-true", None),
}
GPUS = ("gpu", "cuda")
HALF = {16: "bf16-mixed", "16": "bf16-mixed", "16-mixed": "bf16-mixed", "16-true": "bf16-true"}


def lightning(node: ast.Call, is_said: bool) -> Iterator[Construct]:
    """The Lightning class that a call creates, its settings, and whether the call names it."""
    told = {keyword.arg: keyword for keyword in node.keywords if keyword.arg}
    accelerator = told.get("accelerator")
    if accelerator is not None and values(accelerator.value) == ["cpu"]:
        yield Construct("lightning", "cpu", node)
        return
    if is_said:
        yield Construct("trainer", "lightning", node)
    for name, keyword in told.items():
        if name in _NEUTRAL:
            yield from _chosen(name, keyword.value, keyword)
        elif name == "trainer_defaults":
            yield from _defaults(keyword.value)


def _chosen(name: str, value: ast.expr, at: ast.AST) -> Iterator[Construct]:
    if not all(any(v is w or v == w for w in _NEUTRAL[name]) for v in values(value)):
        yield Construct("lightning", name, at)


def _defaults(value: ast.expr) -> Iterator[Construct]:
    """The settings that LightningCLI passes to a trainer by default."""
    if not isinstance(value, ast.Dict):
        return
    for key, each in zip(value.keys, value.values, strict=True):
        if isinstance(key, ast.Constant) and key.value in _NEUTRAL:
            yield from _chosen(str(key.value), each, each)
