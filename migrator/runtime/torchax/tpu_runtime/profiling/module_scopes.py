"""Names of modules in compiled programs, for profilers and for messages about a program.

Results of `model.blocks[0].attn.q` are named `blocks.0/attn.q`, if `blocks.0` calls it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import jax
import torch
from jax._src.core import trace_state_clean

_state = threading.local()  # .names of modules by id, and .within: the running module's name


@contextlib.contextmanager
def scope_of_module(module: object) -> Iterator[None]:
    """While a program is traced: operations in this context belong to ``module``, if it is one."""
    if trace_state_clean() or not isinstance(module, torch.nn.Module):
        yield
        return
    names, within = getattr(_state, "names", None), getattr(_state, "within", "")
    if names is None or id(module) not in names:  # the outermost one has the program's name
        inner = {id(m): name for name, m in module.named_modules()}
        with _now(inner, ""):
            yield
        return
    name = names[id(module)]
    with _now(names, name), jax.named_scope(name.removeprefix(f"{within}.")):
        yield


@contextlib.contextmanager
def _now(names: dict[int, str], within: str) -> Iterator[None]:
    before = getattr(_state, "names", None), getattr(_state, "within", "")
    _state.names, _state.within = names, within
    try:
        yield
    finally:
        _state.names, _state.within = before
