"""Texts that the runtime buffers or pads, and masks: only the text itself is compared."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from recorded_tensors import leaves


@dataclass(frozen=True)
class Padding:
    """The model's input and output lengths along dimension 1, and how much of them is text."""

    width: int
    length: int

    def without(self, tensor: torch.Tensor) -> torch.Tensor:
        """The text part of a tensor, on the CPU; tensors of another size unchanged."""
        is_padded = tensor.ndim > 1 and tensor.shape[1] == self.width
        return tensor[:, : self.length].contiguous() if is_padded else tensor


NONE = Padding(0, 0)


def compared(kind: str, found: list[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    """A module's inputs without masks, whose effect shows in its outputs.

    A model whose cache position is a tensor makes its mask itself, so only the original is given
    one.
    """
    found = without_counts(found)
    return [(p, t) for p, t in found if kind != "input" or not _is_mask(t)]


def without_counts(found: list[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    """Caches of full length, whose last part counts the tokens, cut to that count.

    Only zeros are cut: anything written behind the tokens is compared, and differs.
    """
    parts, gone = dict(found), set[str]()
    names = {path: path for path in parts}
    for path, count in found:
        head, point, last = path.rpartition(".")
        held = [f"{head}{point}{number}" for number in range({"1": 1, "2": 2}.get(last, 0))]
        if not _is_count(count) or not held or not all(part in parts for part in held):
            continue
        dim = _grown([parts[part] for part in held], int(count))
        if dim is not None:
            gone.add(path)
            parts |= {p: parts[p].narrow(dim, 0, int(count)).contiguous() for p in held}
            if len(held) == 1:
                names[held[0]] = head
    return [(names[path], parts[path]) for path, _ in found if path not in gone]


def _is_count(tensor: torch.Tensor) -> bool:
    return tensor.ndim == 0 and tensor.dtype in (torch.int32, torch.int64) and int(tensor) > 0


def _grown(parts: list[torch.Tensor], count: int) -> int | None:
    """The dimension along which there are only zeros after `count`, or nothing."""
    dims = [d for d in (-2, 1, 2) if all(p.ndim > 2 and p.shape[d] >= count for p in parts)]
    longer = [d for d in dims if all(p.shape[d] > count for p in parts)]
    for dim in longer:
        if not any(bool(p.narrow(dim, count, p.shape[dim] - count).any()) for p in parts):
            return dim
    return next((d for d in dims if d not in longer), None)


def _is_mask(tensor: torch.Tensor) -> bool:
    """Whether it only contains zeros and minus infinity."""
    if tensor.ndim < 2 or not tensor.is_floating_point() or tensor.numel() == 0:
        return False
    hidden = tensor == -torch.inf
    return bool(hidden.any()) and bool((hidden | (tensor == 0)).all())


class Windows:
    """The last window passed to a model."""

    def __init__(self) -> None:
        self._window: torch.Tensor | None = None
        self._padding = NONE
        self._prompt = NONE  # of the prompt that transformers' `generate` passes to a model now

    def follow(self) -> None:
        """Follow the runtime's buffers, if it has any."""
        self._follow_prompts()
        module = sys.modules.get("tpu_runtime.text.token_buffer")
        if module is None:
            return
        windows, made = self, module.TokenBuffer.window

        def window(self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            found: torch.Tensor = made(self, *args, **kwargs)
            windows._window = found
            windows._padding = Padding(self._width, min(self._length, self._width))
            return found

        module.TokenBuffer.window = window  # type: ignore[attr-defined]

    def _follow_prompts(self) -> None:
        module = sys.modules.get("tpu_runtime.text.model_inputs")
        if module is None:
            return
        windows, called = self, module.filled

        def filled(model: Any, inputs: Any, width: int, length: int) -> Any:
            windows._prompt = Padding(width, length)
            try:
                return called(model, inputs, width, length)
            finally:
                windows._prompt = NONE

        module.filled = filled  # type: ignore[attr-defined]

    def padding(self, given: Any) -> Padding:
        """The padding of a model's arguments."""
        is_window = any(tensor is self._window for _, tensor in leaves(given))
        return self._padding if is_window else self._prompt
