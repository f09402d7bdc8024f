"""A function's results or stored values, as a form to be filled with the arrays of each run."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..tensors.structures import SIMPLE, Structure, is_plain
from .changing_numbers import Number
from .compile_state import NotCompilable


class Template:
    """The result of a trace, to be rebuilt from the arrays of a run."""

    def __init__(
        self,
        value: Any,
        outgoing: Callable[[Any], tuple[str, Any]],
        arguments: Structure | None = None,
    ) -> None:
        leaves, self.spec = pytree.tree_flatten(value)
        objects = arguments.objects() if arguments is not None else ()
        given = {id(each): place for each, place in objects}
        self.kinds = [self._kind(leaf, outgoing, given) for leaf in leaves]

    def _kind(
        self,
        leaf: Any,
        outgoing: Callable[[Any], tuple[str, Any]],
        given: dict[int, tuple[int, ...]],
    ) -> Any:
        if isinstance(leaf, torch.Tensor):
            return outgoing(leaf)
        if type(leaf) is Number:
            raise NotCompilable("it returns a number that it is given")
        if isinstance(leaf, (*SIMPLE, type, torch.nn.Module)):
            return "constant", leaf
        if id(leaf) in given:
            return "given", given[id(leaf)]
        if is_plain(leaf):
            shell = copy.copy(leaf)
            inside = Template(dict(vars(leaf)), outgoing)
            vars(shell).clear()
            return "object", (shell, inside)
        raise NotCompilable(f"it returns a {type(leaf).__name__}")

    @property
    def tensors(self) -> list[bool]:
        """Which of its parts are tensors."""
        return [kind in ("new", "alias", "old") for kind, _ in self.kinds]

    def build(self, new: list[Any], old: list[torch.Tensor], arguments: Structure) -> Any:
        leaves = []
        for kind, value in self.kinds:
            if kind == "new":
                leaves.append(new[value])
            elif kind == "alias":
                leaves.append(new[value].detach())
            elif kind == "old":
                leaves.append(old[value])
            elif kind == "given":
                leaves.append(arguments.at(value))
            elif kind == "object":
                made = copy.copy(value[0])
                vars(made).update(value[1].build(new, old, arguments))
                leaves.append(made)
            else:
                leaves.append(value)
        return pytree.tree_unflatten(leaves, self.spec)

    def find(self, value: Any, new: dict[int, Any]) -> None:
        """Record where the new tensors are in another value of this form."""
        for (kind, inside), leaf in zip(self.kinds, pytree.tree_leaves(value), strict=True):
            if kind == "new":
                new[inside] = leaf
            elif kind == "object":
                inside[1].find(dict(vars(leaf)), new)
