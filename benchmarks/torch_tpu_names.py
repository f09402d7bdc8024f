"""Which names an installed torch_tpu offers to programs, and which it keeps for PyTorch itself.

    python benchmarks/torch_tpu_names.py > tests/rules/torch_tpu_names.json

Needs torch_tpu, and no TPU: docs/torch-tpu.md says how it runs without one. What raises "internal
to TorchTPU" when a program calls it counts as absent. With it come the names of torch.accelerator
and torch.distributed in that torch, which words may use.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import json
from types import ModuleType

MODULES = ("torch.tpu", "torch.tpu.compiler", "torch.tpu.distributed", "torch.tpu.profiler")
BESIDE = ("torch.accelerator", "torch.distributed", "torch.amp")


def names(module: ModuleType) -> list[str]:
    return sorted(name for name in dir(module) if not name.startswith("_"))


def is_internal(value: object) -> bool:
    """By the stage that torch_tpu attaches to what it annotates."""
    return str(getattr(value, "__tt_api_stage__", "")).endswith(("INTERNAL", "Internal"))


def main() -> None:
    found: dict[str, dict[str, list[str]]] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        values = {n: inspect.getattr_static(module, n, None) or getattr(module, n, None)
                  for n in names(module)}  # fmt: skip
        internal = [n for n, value in values.items() if is_internal(value)]
        found[name] = {"public": [n for n in values if n not in internal], "internal": internal}
    for name in BESIDE:
        found[name] = {"public": names(importlib.import_module(name))}
    versions = {n: importlib.metadata.version(n) for n in ("torch", "torch_tpu")}
    made = {"made by": "benchmarks/torch_tpu_names.py", **versions, "names": found}
    print(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
