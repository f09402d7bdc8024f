"""Restores torch's own `nn.GRU`, and supports packed sequences in recurrent modules."""

import functools
from typing import Any

import torch
import torch_xla.experimental.gru
from torch import nn
from torch.nn.utils import rnn

from ..device import DEVICE_TYPE


def _restore_gru() -> None:
    """Undo what importing torch_xla 2.9 does: it replaces `nn.GRU` by its own.

    That one fails on CPU tensors, on packed sequences and in bidirectional subclasses.
    Models that were created with it, and classes derived from it, become torch's too.
    """
    original = getattr(nn.GRU, "_orig", None)
    if original is None:
        return
    replacement: Any = torch_xla.experimental.gru.GRU
    replacement.__new__ = lambda cls, *args, **kwargs: object.__new__(cls)
    replacement.__init__, replacement.forward = original.__init__, original.forward
    nn.GRU = original  # type: ignore[misc]


def _pack_by_index() -> None:
    """Let recurrent modules read a sequence that is packed on the device, and train with it.

    torch_xla 2.9: its batch sizes are wrapped like a device tensor, and LSTM, GRU, RNN and the
    gradient of packing, which need to read them, raise "its data is not allocated yet". So torch
    packs the positions, on the CPU, and the device gathers the values from there.
    """
    pack = rnn.pack_padded_sequence

    @functools.wraps(pack)
    def pack_padded_sequence(
        input: torch.Tensor,
        lengths: torch.Tensor | list[int],
        batch_first: bool = False,
        enforce_sorted: bool = True,
    ) -> rnn.PackedSequence:
        if input.device.type != DEVICE_TYPE:
            return pack(input, lengths, batch_first, enforce_sorted)
        rows, columns = input.shape[:2]
        positions = torch.arange(rows * columns, device="cpu").reshape(rows, columns)
        packed = pack(positions, lengths, batch_first, enforce_sorted)
        data, sizes, *order = packed
        return rnn.PackedSequence(
            input.flatten(0, 1).index_select(0, data.to(input.device)),
            sizes,
            *(None if indices is None else indices.to(input.device) for indices in order),
        )

    rnn.pack_padded_sequence = pack_padded_sequence


def install() -> None:
    _restore_gru()
    _pack_by_index()
