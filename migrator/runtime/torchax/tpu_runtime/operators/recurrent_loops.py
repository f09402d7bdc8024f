"""`nn.LSTM`, `nn.GRU` and `nn.RNN` as one loop for each layer and direction.

torchax 0.0.13 unrolls them: eagerly a sequence takes hundreds of programs, and a
compiled step grows with its length (28 steps of two bidirectional layers compile for minutes). The
results are the same up to rounding. Packed sequences, whose steps differ in size, stay unrolled.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch import Tensor
from torchax.tensor import Environment
from torchax.tensor import Tensor as DeviceTensor

from ..dispatch.calls import is_device_tensor, patch
from .once_differentiable import once
from .recurrent_layers import layered, let_packed_tell_device

Array = Any
States = tuple[Array, ...]
# A step gets the states, the projected input, and the weights: hidden, bias, projection or None.
Cell = Callable[[States, Array, Array, Array | None, Array | None], States]


def _hidden(hidden: Array, weight: Array, bias: Array | None) -> Array:
    product = hidden @ weight.T
    return product if bias is None else product + bias


def _lstm(
    states: States, x: Array, weight: Array, bias: Array | None, projection: Array | None
) -> States:
    hidden, cell = states
    into, forget, new, out = jnp.split(x + _hidden(hidden, weight, bias), 4, -1)
    cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(into) * jnp.tanh(new)
    hidden = jax.nn.sigmoid(out) * jnp.tanh(cell)
    return (hidden if projection is None else hidden @ projection.T), cell


def _gru(
    states: States, x: Array, weight: Array, bias: Array | None, projection: Array | None
) -> States:
    (hidden,) = states
    reset_x, update_x, new_x = jnp.split(x, 3, -1)
    reset_h, update_h, new_h = jnp.split(_hidden(hidden, weight, bias), 3, -1)
    update = jax.nn.sigmoid(update_x + update_h)
    new = jnp.tanh(new_x + jax.nn.sigmoid(reset_x + reset_h) * new_h)
    return (new + update * (hidden - new),)


def _rnn(
    states: States, x: Array, weight: Array, bias: Array | None, projection: Array | None,
    activation: Callable[[Array], Array],
) -> States:  # fmt: skip
    return (activation(x + _hidden(states[0], weight, bias)),)


_CELLS: dict[str, Cell] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": functools.partial(_rnn, activation=jnp.tanh),
    "rnn_relu": functools.partial(_rnn, activation=jax.nn.relu),
}


def _loop(
    kind: str, back: bool, x: Array, states: States, weights: Sequence[Array | None]
) -> tuple[Array, States]:
    """Loop over (time, batch, gates): the outputs, and the last states."""

    def step(states: States, x: Array) -> tuple[States, Array]:
        new = _CELLS[kind](states, x, *weights)
        return new, new[0]

    last, outputs = jax.lax.scan(step, states, x, reverse=back)
    return outputs, last


_forward = jax.jit(_loop, static_argnums=(0, 1))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _with_derivative(kind: str, back: bool, *inputs: Any) -> Any:
    return jax.vjp(functools.partial(_loop, kind, back), *inputs)


@jax.jit
def _pull_back(derivative: Any, gradients: Any) -> Any:
    return derivative(gradients)


class _Loop(torch.autograd.Function):
    """The loop with its gradient: arguments are kind, direction, x, the states, three weights."""

    @staticmethod
    def forward(ctx: Any, kind: str, back: bool, x: Any, *rest: Any) -> Any:
        *states, weight, bias, projection = rest
        inputs = (
            x.jax(),
            tuple(state.jax() for state in states),
            tuple(None if w is None else w.jax() for w in (weight, bias, projection)),
        )
        env = x._env
        if any(ctx.needs_input_grad):
            (outputs, last), ctx.derivative = _with_derivative(kind, back, *inputs)
        else:
            outputs, last = _forward(kind, back, *inputs)
        ctx.env, ctx.shapes = env, [outputs, *last]
        return tuple(DeviceTensor(array, env) for array in (outputs, *last))

    @staticmethod
    @once
    def backward(ctx: Any, *gradients: Any) -> Any:
        arrays = [
            jnp.zeros_like(array) if g is None else g.jax().astype(array.dtype)
            for g, array in zip(gradients, ctx.shapes, strict=True)
        ]
        x, states, weights = _pull_back(ctx.derivative, (arrays[0], tuple(arrays[1:])))
        found = [x, *states, *weights]
        return None, None, *(None if a is None else DeviceTensor(a, ctx.env) for a in found)


def _run(
    kind: str, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], bias: bool,
    back: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:  # fmt: skip
    """One layer in one direction over (time, batch, features): its outputs and last states."""
    into, hidden, *rest = weights
    projection = rest[-1] if len(weights) == (5 if bias else 3) else None
    x = F.linear(x, into, rest[0] if bias else None)
    same = [None if w is None else w.to(x.dtype) for w in
            (*states, hidden, rest[1] if bias else None, projection)]  # fmt: skip
    outputs, *last = _Loop.apply(kind, back, x, *same)
    return outputs, tuple(last)


def install(env: Environment) -> None:
    """Replace the functions that the modules call."""
    let_packed_tell_device()
    for kind in _CELLS:
        stock = getattr(torch._VF, kind)
        patch(torch._VF, **{kind: layered(kind, stock, _run, is_device_tensor)})
