"""What a program holds after each round of its loop: every value that its names reach."""

from __future__ import annotations

import ast
import hashlib
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

OBSERVE = "_observe"  # what the loop calls, among the program's globals
State = dict[str, Any]  # values by their places
Known = dict[int, tuple[str, object]]  # what has a place, by its id, and kept for that

_PLAIN = (bool, int, float, str, bytes, type(None), torch.Size, torch.dtype, range, slice)
_IGNORED = (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType, torch.device,
            types.GeneratorType, types.MethodType)  # fmt: skip


class _Watch(ast.NodeTransformer):
    """The loop over `step` says when a round is over."""

    def __init__(self) -> None:
        self.loops = 0

    def visit_For(self, node: ast.For) -> ast.AST:
        if "step" not in {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}:
            return self.generic_visit(node)
        self.loops += 1
        node.iter = ast.Call(ast.Name(OBSERVE, ast.Load()), [node.iter], [])
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        if "step" not in {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}:
            return self.generic_visit(node)
        self.loops += 1
        node.test = ast.BoolOp(
            ast.And(), [ast.Call(ast.Name(OBSERVE, ast.Load()), [], []), node.test]
        )
        return node


def watched(text: str, name: str) -> types.CodeType:
    """The program's code, which calls `_observe` at the end of each round."""
    watch = _Watch()
    tree = watch.visit(ast.parse(text, name))
    if watch.loops != 1:
        raise ValueError(f"{name} has {watch.loops} loops over `step`, not one")
    return compile(ast.fix_missing_locations(tree), name, "exec")


def observer(after: Callable[[dict[str, Any]], None]) -> Callable[..., Any]:
    """`_observe` of a program: gives all names of the loop to ``after`` when a round is over."""
    began = False

    def names(frame: types.FrameType) -> dict[str, Any]:
        return {**frame.f_globals, **frame.f_locals}

    def rounds(iterable: Iterable[Any]) -> Iterator[Any]:
        for item in iterable:
            yield item
            after(names(sys._getframe(1)))

    def observe(*iterable: Any) -> Any:
        nonlocal began
        if iterable:
            return rounds(*iterable)
        if began:
            after(names(sys._getframe(1)))
        began = True
        return True

    return observe


def state_of(names: dict[str, Any]) -> State:
    """All values that the names reach, and the states of the CPU's generators."""
    found: State = {}
    known: Known = {}
    for name in sorted(names):
        if name[0] != "_" and name not in ("device", "tpu_runtime"):
            _collect(found, known, name, names[name])
    found["generator of torch"] = _digest(torch.get_rng_state().numpy().tobytes())
    found["generator of numpy"] = _digest(repr(np.random.get_state()).encode())
    found["generator of random"] = _digest(repr(random.getstate()).encode())
    found["grad mode"] = torch.is_grad_enabled()
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _collect(found: State, known: Known, place: str, value: Any) -> None:
    if isinstance(value, (*_PLAIN, np.generic)):
        found[place] = value.item() if isinstance(value, np.generic) else value
        return
    if isinstance(value, _IGNORED):
        return
    if id(value) in known:
        found[place] = f"the same as {known[id(value)][0]}"
        return
    known[id(value)] = place, value
    if isinstance(value, np.ndarray):
        found[place] = value.copy()
    elif isinstance(value, Tensor):
        _collect_tensor(found, known, place, value)
    else:
        for name, item in _items(value):
            _collect(found, known, f"{place}{name}", item)


def _collect_tensor(found: State, known: Known, place: str, value: Tensor) -> None:
    found[place] = value.detach().cpu().numpy().copy()
    found[f"{place}, needs a gradient"] = value.requires_grad
    if value.is_leaf and value.requires_grad:
        if value.grad is None:
            found[f"{place}.grad"] = None
        else:
            _collect(found, known, f"{place}.grad", value.grad)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object consists of, and how that is written behind its name."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"[{key!r}]", item
    elif isinstance(value, (list, tuple, set)):
        yield ", length", len(value)
        for number, item in enumerate(value):
            yield f"[{number}]", item
    elif isinstance(value, nn.Module):
        yield ".training", value.training
        yield from ((f".{name}", item) for name, item in value._parameters.items())
        yield from ((f".{name}", item) for name, item in value._buffers.items())
        yield from ((f".{name}", item) for name, item in value._modules.items())
        own = vars(value).items() if type(value).__module__ == "__main__" else ()
        yield from ((f".{name}", item) for name, item in own if name[0] != "_")
    elif isinstance(value, (Optimizer, LRScheduler)):
        yield ".state_dict()", _of_numbers(value.state_dict())
    elif type(value).__module__ in ("__main__", "types"):
        yield from ((f".{name}", item) for name, item in vars(value).items())


def _of_numbers(value: Any) -> Any:
    """A state with its counts of steps as numbers: they may be tensors, on any device."""
    if isinstance(value, dict):
        return {
            key: float(item) if key == "step" else _of_numbers(item) for key, item in value.items()
        }
    return value
