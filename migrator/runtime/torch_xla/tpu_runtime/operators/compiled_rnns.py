"""`nn.LSTM`, `nn.GRU` and `nn.RNN` as one compiled loop.

torch_xla 2.9 unrolls them: a program grows with the length of the sequence, and its compile time
even faster (12 s for 28 steps of one layer on a CPU, 1.2 s as a loop). The results are the same
up to rounding. Packed sequences, whose steps differ in size, stay unrolled.
"""

import functools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_xla.experimental import scan as scanning

from ..device import DEVICE_TYPE
from .once_differentiable import once
from .recurrent_layers import layered, let_packed_tell_device

SHORT = 2  # steps, up to which a loop isn't worth it
# The carry of a step: the states, then the weights (hidden, and bias and projection if present).
Carry = tuple[Tensor, ...]
Step = Callable[[Carry, Tensor], tuple[Carry, Tensor]]


def _hidden(carry: Carry, states: int, bias: bool) -> Tensor:
    weights = carry[states:]
    return F.linear(carry[0], weights[0], weights[1] if bias else None)


def _lstm(carry: Carry, x: Tensor, bias: bool, projected: bool) -> tuple[Carry, Tensor]:
    into, forget, new, out = (x + _hidden(carry, 2, bias)).chunk(4, -1)
    cell = torch.sigmoid(forget) * carry[1] + torch.sigmoid(into) * torch.tanh(new)
    hidden = torch.sigmoid(out) * torch.tanh(cell)
    if projected:
        hidden = F.linear(hidden, carry[-1])
    return (hidden, cell, *carry[2:]), hidden


def _gru(carry: Carry, x: Tensor, bias: bool, projected: bool) -> tuple[Carry, Tensor]:
    reset_x, update_x, new_x = x.chunk(3, -1)
    reset_h, update_h, new_h = _hidden(carry, 1, bias).chunk(3, -1)
    update = torch.sigmoid(update_x + update_h)
    new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
    hidden = new + update * (carry[0] - new)
    return (hidden, *carry[1:]), hidden


def _rnn(
    carry: Carry, x: Tensor, bias: bool, projected: bool, activation: Callable[[Tensor], Tensor]
) -> tuple[Carry, Tensor]:
    hidden = activation(x + _hidden(carry, 1, bias))
    return (hidden, *carry[1:]), hidden


_CELLS: dict[str, Callable[..., tuple[Carry, Tensor]]] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": functools.partial(_rnn, activation=torch.tanh),
    "rnn_relu": functools.partial(_rnn, activation=torch.relu),
}


@functools.cache
def _step(kind: str, bias: bool, projected: bool, gradients: bool) -> Step:
    """One object for each kind of step: `scan` caches its traces by object, shape and dtype.

    The key lacks whether the input needs gradients, so a step isn't shared between the two.
    """
    return lambda carry, x: _CELLS[kind](carry, x, bias, projected)


def _run(
    kind: str,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    bias: bool,
    back: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer in one direction over (time, batch, features): its outputs and last states."""
    projected = len(weights) == (5 if bias else 3)
    x = F.linear(x, weights[0], weights[2] if bias else None)
    own = (weights[1], *weights[3:]) if bias else weights[1:]
    step = _step(kind, bias, projected, x.requires_grad)
    carry, outputs = scanning.scan(step, (*states, *own), x.flip(0) if back else x, is_fn_pure=True)
    return outputs.flip(0) if back else outputs, carry[: len(states)]


def _is_ours(x: Tensor) -> bool:
    return x.device.type == DEVICE_TYPE


def install() -> None:
    """Replace the functions that the modules call."""
    let_packed_tell_device()
    for kind in _CELLS:
        stock = getattr(torch._VF, kind)
        setattr(torch._VF, kind, layered(kind, stock, _run, _is_ours, SHORT))
    backward = staticmethod(once(scanning.Scan.backward))
    scanning.Scan.backward = backward  # type: ignore[method-assign]
