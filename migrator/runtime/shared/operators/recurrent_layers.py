"""Layers and directions of `nn.LSTM`, `nn.GRU` and `nn.RNN`, around a target's loop over time."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

# Runs one layer in one direction over (time, batch, features). Arguments: kind, input, states,
# weights, bias, whether it runs backwards. Returns its outputs and last states.
Loop = Callable[[str, Tensor, Sequence[Tensor], Sequence[Tensor], bool, bool], Any]


def layered(
    kind: str,
    unrolled: Callable[..., Any],
    loop: Loop,
    is_ours: Callable[[Tensor], bool],
    short: int = 0,
) -> Callable[..., Any]:
    """A function of `torch._VF` that uses `loop`; but `unrolled` for other tensors, for packed
    sequences, and up to `short` steps."""

    @functools.wraps(unrolled)
    def run(*args: Any) -> Any:
        packed = isinstance(args[1 if kind == "lstm" else 2], Tensor)
        x = args[0]
        if packed or not is_ours(x):
            return unrolled(*args)
        _, first, weights, bias, layers, dropout, training, bidirectional, batch_first = args
        x = x.transpose(0, 1) if batch_first else x
        if x.shape[0] <= short:
            return unrolled(*args)
        first = first if kind == "lstm" else (first,)
        directions = 2 if bidirectional else 1
        each = len(weights) // (layers * directions)
        last: list[tuple[Tensor, ...]] = []
        for layer in range(layers):
            outputs = []
            for direction in range(directions):
                at = layer * directions + direction
                own = weights[at * each : (at + 1) * each]
                states = [state[at] for state in first]
                output, final = loop(kind, x, states, own, bias, direction == 1)
                outputs.append(output)
                last.append(final)
            x = torch.cat(outputs, -1)
            if dropout and training and layer < layers - 1:
                x = F.dropout(x, dropout)
        x = x.transpose(0, 1) if batch_first else x
        return (x, *(torch.stack(states) for states in zip(*last, strict=True)))

    return run


def let_packed_tell_device() -> None:
    """Packed sequences only have `is_cuda`; migrated code uses `.device`."""
    PackedSequence.device = property(lambda self: self.data.device)  # type: ignore[attr-defined]
