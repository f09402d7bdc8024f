"""Norms of gradients, and which parameters have one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from recorded_tensors import for_json, is_there, kept, now
from recording_store import name_of
from sharded import gradients, plain
from torch import nn


def norms(
    parameters: Sequence[tuple[str, torch.Tensor]], models: Iterable[tuple[str, nn.Module]]
) -> tuple[Callable[[], bool], Callable[[], dict[str, Any]]]:
    """Norms by name, and the dtypes other than float32, of the present gradients: whether they are
    computed already, and what returns them. ``models`` own the parameters."""
    found: dict[str, float | str] = {}
    kinds: dict[str, torch.dtype] = {}
    waiting: dict[str, torch.Tensor] = {}
    divided: set[int] = set()
    for own, of_all, kind in gradients(models, {id(parameter) for _, parameter in parameters}):
        divided |= own
        found |= {name: for_json(norm) for name, norm in of_all.items()}
        kinds |= dict.fromkeys(of_all, kind)
    for name, parameter in parameters:
        if parameter.grad is not None and id(parameter) not in divided:
            gradient = kept(parameter.grad)
            if is_there(gradient):
                found[name] = _norm(gradient)
            else:
                found[name], waiting[name] = "", gradient  # in the order of the parameters
            kinds[name] = parameter.grad.dtype
    dtypes = {n: name_of(kind) or "F32" for n, kind in kinds.items() if kind != torch.float32}

    def read() -> dict[str, Any]:
        found.update({name: _norm(gradient) for name, gradient in waiting.items()})
        return {"norms": found, "dtypes": dtypes}

    return lambda: all(map(is_there, waiting.values())), read


def _norm(gradient: torch.Tensor) -> float | str:
    return for_json(float(now(gradient).to(torch.float64).norm()))


def others(models: Iterable[tuple[str, nn.Module]], used: Iterable[torch.Tensor]) -> list[str]:
    """Other parameters of these models with a gradient; a teacher should have none."""
    own = {id(parameter) for parameter in used}
    return [
        plain(f"{name}.{path}")
        for name, module in models
        for path, parameter in module.named_parameters()
        if parameter.grad is not None and id(parameter) not in own
    ]
