"""Functions of torch that were imported by name before set-up replaced them."""

import sys
from types import ModuleType
from typing import Any

_RUNTIME = __name__.partition(".")[0]
_OURS = ("torch", "torchax", "torch_xla", "torch_tpu", "jax", "jaxlib", _RUNTIME)

Functions = dict[tuple[str, str], Any]


def of_torch() -> Functions:
    """The functions of torch's modules, by module and name."""
    return {
        (module.__name__, name): value
        for module in _modules(of_torch=True)
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_")
    }


def renew(before: Functions) -> None:
    """Update names like `matmul` from `from torch import matmul` to torch's new functions."""
    replaced: dict[int, tuple[Any, Any]] = {}
    for (of, name), value in before.items():
        now = getattr(sys.modules.get(of), name, value)
        if now is not value and (getattr(value, "__module__", None) or "torch").startswith("torch"):
            replaced[id(value)] = value, now
    for module in _modules(of_torch=False) if replaced else ():
        for names in (vars(module), *_tables(module)):
            for name in [n for n, value in names.items() if id(value) in replaced]:
                value, now = replaced[id(names[name])]
                if names[name] is value:
                    names[name] = now


def _tables(module: ModuleType) -> list[dict[Any, Any]]:
    """Dictionaries of a module and of its classes, such as `{"min": torch.lt}` of Lightning's
    EarlyStopping, which compares that with torch's."""
    own = [*vars(module).values()]
    classes = [c for c in own if isinstance(c, type) and c.__module__ == module.__name__]
    held = [value for kind in classes for value in vars(kind).values()]
    return [value for value in (*own, *held) if type(value) is dict]


def _modules(of_torch: bool) -> list[ModuleType]:
    """Torch's modules, or those that are neither torch's nor a target's."""
    found = [m for m in list(sys.modules.values()) if isinstance(m, ModuleType)]
    heads = ("torch",) if of_torch else _OURS
    return [m for m in found if (m.__name__.partition(".")[0] in heads) is of_torch]
