"""Gradients: how large they are, and what has one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from store import NAMES
from torch import nn
from values import for_json, on_host


def norms(parameters: Iterable[tuple[str, torch.Tensor]]) -> dict[str, Any]:
    """Their norms by name, and the dtypes of those that are not float32."""
    found: dict[str, float | str] = {}
    dtypes = {}
    for name, parameter in parameters:
        if parameter.grad is not None:
            found[name] = for_json(float(on_host(parameter.grad).to(torch.float64).norm()))
            if parameter.grad.dtype != torch.float32:
                dtypes[name] = NAMES.get(parameter.grad.dtype, "F32")
    return {"norms": found, "dtypes": dtypes}


def others(models: Iterable[tuple[str, nn.Module]], used: Iterable[torch.Tensor]) -> list[str]:
    """What else of these models has a gradient: a teacher has none."""
    own = {id(parameter) for parameter in used}
    return [
        f"{name}.{path}"
        for name, module in models
        for path, parameter in module.named_parameters()
        if parameter.grad is not None and id(parameter) not in own
    ]
