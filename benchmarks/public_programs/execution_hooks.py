"""Calls a function at each optimizer step, and at each program that JAX runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def after_each_step(note: Callable[[], None]) -> None:
    """After the `step` of each class of optimizers. (A compiled step calls no hook.)"""
    kind = torch.optim.Optimizer
    stock = kind.profile_hook_step

    def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
        hooked = stock(function)  # type: ignore[arg-type,var-annotated]

        @functools.wraps(hooked)
        def step(*args: Any, **kwargs: Any) -> Any:
            result = hooked(*args, **kwargs)
            note()
            return result

        return step

    kind.profile_hook_step = staticmethod(profile_hook_step)  # type: ignore


def before_each_execution(note: Callable[[str], None]) -> None:
    """With the program's name. What JAX starts without Python couldn't be counted, so all is
    started by Python, which makes the program slower."""
    from jax._src import pjit
    from jax._src.interpreters.pxla import ExecuteReplicated, MeshExecutable

    stock = ExecuteReplicated.__call__

    def execute(self: Any, *args: Any) -> Any:
        note(self.name)
        return stock(self, *args)

    pjit._get_fastpath_data = MeshExecutable.create_cpp_call = lambda *args: None
    ExecuteReplicated.__call__ = execute
