"""Parameters of which each rank has a part: those of FSDP and `fully_shard`, seen as a whole.

Gathering the parts is an exchange, so all ranks have to do it at the same time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

_WRAPPED = "_fsdp_wrapped_module"


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A `DTensor` with the parts of all ranks; other tensors are returned as they are."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()  # type: ignore[no-any-return]


def inner(module: nn.Module) -> nn.Module:
    """The module wrapped by FSDP, or by its replacement."""
    return getattr(module, _WRAPPED, module)


def plain(path: str) -> str:
    """The name of a parameter without FSDP's prefixes."""
    return path.replace(f"{_WRAPPED}.", "")


def has_parts(module: nn.Module) -> bool:
    return bool(_units(module)) or any(hasattr(p, "full_tensor") for p in module.parameters())


def state_dict(module: nn.Module) -> dict[str, Any]:
    """The whole state dict, in whichever form the program keeps it."""
    if not _units(module):
        return module.state_dict()
    fsdp = sys.modules["torch.distributed.fsdp"]
    with fsdp.FullyShardedDataParallel.state_dict_type(
        module, fsdp.StateDictType.FULL_STATE_DICT, fsdp.FullStateDictConfig()
    ):
        return module.state_dict()


def gradients(
    models: Iterable[tuple[str, nn.Module]], used: set[int]
) -> Iterator[tuple[set[int], dict[str, float], torch.dtype]]:
    """Of each unit of FSDP that has some of the parameters ``used``: their ids, the norms of their
    gradients on all ranks together, and the dtype."""
    for name, module in models:
        units = {id(unit) for unit in _units(module)}
        for path, unit in module.named_modules(prefix=name):
            handle = getattr(unit, "_handle", None) if id(unit) in units else None
            if handle is None:  # it has no parameters of its own
                continue
            flat = handle.flat_param
            own = {id(p) for p in (flat, *(flat._params or ()))} & used
            if own:
                yield own, _norms(path, handle), flat.dtype


def _norms(name: str, handle: Any) -> dict[str, float]:
    parts = list(_parts(handle.flat_param))
    squares = [0.0 if part is None else float(part.double().square().sum()) for part in parts]
    there = [float(part is not None) for part in parts]
    table = torch.tensor([squares, there], dtype=torch.float64, device=handle.device)
    if handle.uses_sharded_strategy:
        torch.distributed.all_reduce(table, group=handle.process_group)
    paths = handle.flat_param._fqns
    return {
        plain(f"{name}.{path}"): square**0.5
        for path, square, number in zip(paths, *table.tolist(), strict=True)
        if number
    }


def _parts(flat: Any) -> Iterator[torch.Tensor | None]:
    """The local part of each parameter's gradient."""
    for number, place in enumerate(flat._shard_param_infos):
        if flat._params is not None:  # use_orig_params=True
            yield flat._params[number].grad
        elif flat.grad is None or not place.in_shard:
            yield None
        else:
            yield flat.grad.flatten()[place.offset_in_shard :][: place.numel_in_shard]


def _units(module: nn.Module) -> list[Any]:
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp.FullyShardedDataParallel.fsdp_modules(module) if fsdp is not None else []
