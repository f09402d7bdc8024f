"""Norms of gradients, and which parameters have one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sharded import gradients, plain
from store import name_of
from torch import nn
from values import for_json, on_host


def norms(
    parameters: Sequence[tuple[str, torch.Tensor]], models: Iterable[tuple[str, nn.Module]]
) -> dict[str, Any]:
    """Norms by name, and the dtypes other than float32. ``models`` own the parameters."""
    found: dict[str, float | str] = {}
    kinds: dict[str, torch.dtype] = {}
    divided: set[int] = set()
    for own, of_all, kind in gradients(models, {id(parameter) for _, parameter in parameters}):
        divided |= own
        found |= {name: for_json(norm) for name, norm in of_all.items()}
        kinds |= dict.fromkeys(of_all, kind)
    for name, parameter in parameters:
        if parameter.grad is not None and id(parameter) not in divided:
            found[name] = for_json(float(on_host(parameter.grad).to(torch.float64).norm()))
            kinds[name] = parameter.grad.dtype
    dtypes = {n: name_of(kind) or "F32" for n, kind in kinds.items() if kind != torch.float32}
    return {"norms": found, "dtypes": dtypes}


def others(models: Iterable[tuple[str, nn.Module]], used: Iterable[torch.Tensor]) -> list[str]:
    """Other parameters of these models with a gradient; a teacher should have none."""
    own = {id(parameter) for parameter in used}
    return [
        plain(f"{name}.{path}")
        for name, module in models
        for path, parameter in module.named_parameters()
        if parameter.grad is not None and id(parameter) not in own
    ]
