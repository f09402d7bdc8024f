"""Activations that the backward pass computes again, instead of keeping them.

What `torch.utils.checkpoint` runs is a block: only what enters and leaves it is kept for the
backward pass, which computes the rest again. With TPU_RUNTIME_RECOMPUTE=on, the elements of each
`ModuleList` and `Sequential` are blocks, too, the outermost ones. Results stay the same, memory
shrinks, and a step takes longer.
"""

import functools
import itertools
import os
from collections.abc import Callable
from typing import Any

import jax
from jax._src.ad_checkpoint import name_p
from jax._src.core import Literal, new_jaxpr_eqn, no_effects, trace_state_clean
from torch.utils import checkpoint
from torchax.tensor import Environment

from ..dispatch.calls import patch
from .compile_state import is_inside

VARIABLE = "TPU_RUNTIME_RECOMPUTE"
_SCOPE = "checkpoint."
_numbers = itertools.count()


def install(env: Environment) -> None:
    """Take over `torch.utils.checkpoint` in programs."""
    patch(checkpoint, checkpoint=_checkpointing(checkpoint.checkpoint))


def _checkpointing(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Stock torch runs the function twice, of which the second is no part of a backward program."""

    @functools.wraps(stock)
    def recompute(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not is_inside() or trace_state_clean() or "context_fn" in kwargs:
            return stock(function, *args, **kwargs)
        for own in ("use_reentrant", "preserve_rng_state", "determinism_check", "debug",
                    "early_stop"):  # fmt: skip
            kwargs.pop(own, None)
        with jax.named_scope(f"{_SCOPE}{next(_numbers)}"):
            return function(*args, **kwargs)

    return recompute


def is_kept(primitive: Any, *_: Any, **__: Any) -> bool:
    """Whether the results of a primitive are kept: a rule for partial evaluation."""
    return bool(primitive is name_p)


def with_kept(jaxpr: Any, n_known: int, made_again: tuple[str, ...]) -> Any:
    """The same computation, with a name for each value that is to be kept; None without blocks.

    Its inputs after the first ``n_known`` are gradients: where they are used, the backward pass
    begins. ``made_again``: primitives whose results are not worth keeping, outside of blocks.
    """
    gradients = set(jaxpr.invars[n_known:])
    starts = (n for n, eqn in enumerate(jaxpr.eqns) if gradients.intersection(_reads(eqn)))
    start = next(starts, len(jaxpr.eqns))
    every = os.environ.get(VARIABLE) == "on"
    forward = [(eqn, _block(eqn, every)) for eqn in jaxpr.eqns[:start]]
    if not any(block for _, block in forward):
        return None
    origin = {v: block for eqn, block in forward for v in eqn.outvars if block}
    leaving = {v for eqn, at in forward for v in _reads(eqn) if origin.get(v, at) != at}
    named: dict[Any, Any] = {}

    def now(v: Any) -> Any:
        return v if isinstance(v, Literal) else named.get(v, v)

    eqns = []
    for eqn, block in [*forward, *((eqn, None) for eqn in jaxpr.eqns[start:])]:
        eqns.append(eqn.replace(invars=[now(v) for v in eqn.invars]))
        outside = block == "" and eqn.primitive.name not in made_again
        for v in (v for v in eqn.outvars if v in leaving or outside):
            named[v] = type(v)(v.aval)
            name = {"name": "kept"}
            eqns.append(new_jaxpr_eqn([v], [named[v]], name_p, name, no_effects, eqn.source_info))
    return jaxpr.replace(eqns=eqns, outvars=[now(v) for v in jaxpr.outvars])


def _reads(eqn: Any) -> list[Any]:
    return [v for v in eqn.invars if not isinstance(v, Literal)]


def apart(values: Any) -> Any:
    """The same values: the compiler does not take what is computed of them for what it has."""
    return jax.lax.optimization_barrier(values)


def _block(eqn: Any, every: bool) -> str:
    """The outermost block that an equation is in, such as `layer1/0`, or nothing. ``every``: also
    the elements of modules' lists are blocks."""
    parts = str(eqn.source_info.name_stack).split("/")
    for at, part in enumerate(parts):
        numbered = every and any(piece.isdecimal() for piece in part.split("."))
        if numbered or part.startswith(_SCOPE):
            return "/".join(parts[: at + 1])
    return ""
