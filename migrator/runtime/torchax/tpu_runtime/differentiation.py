"""Gradients of a compiled module: its backward pass is a program of its own.

Forward and backward pass are traced as one, where the gradients of the results are inputs that are
known later. What does not depend on them is the forward program; the rest is the backward program,
which gets what the forward one keeps for it. Changes of layout are made again instead of kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax._src.core import jaxpr_as_fun
from jax._src.interpreters.partial_eval import dce_jaxpr, partial_eval_jaxpr_custom
from jax.extend.core import ClosedJaxpr
from torchax.tensor import Environment, Tensor

from .functions import Memory

Array = Any
_MADE_AGAIN = ("broadcast_in_dim", "convert_element_type", "iota", "reshape", "transpose")


@dataclass(eq=False)
class Backward:
    """The backward pass of a program."""

    memory: Memory
    attached: list[int]  # which results have a graph
    used: list[int]  # which of them may have a gradient
    forms: list[tuple[Any, Any]]  # the shapes and dtypes of those
    targets: list[Any]  # where the graph ends: tensors, or numbers of inputs
    leads: list[set[int]]  # which of the targets each of the attached results leads to
    reached: list[int]  # which of the targets have a gradient
    requiring: list[bool]  # which inputs require one
    program: Any = None  # takes what was kept, inputs of the forward pass, gradients of its results
    reads: list[int] = field(default_factory=list)  # which of the inputs, flattened


def split(traced: Any, forms: list[tuple[Any, Any]], n_gradients: int) -> tuple[Any, Any, Any]:
    """The forward program, the backward program, and which inputs it reads.

    ``traced`` has the gradients of the results, of these ``forms``, as its last inputs; its outputs
    are a tuple, the last item of which are the ``n_gradients`` that depend on them. In its place
    the forward program gives what the backward program goes on with.
    """
    whole = traced.jaxpr
    tree = jax.tree.structure(traced.out_info)
    n_known, n_out = len(whole.in_avals) - len(forms), len(whole.out_avals) - n_gradients
    is_gradient = [False] * n_out + [True] * n_gradients
    known, later, unknown, _, n_kept = partial_eval_jaxpr_custom(
        whole.jaxpr, [False] * n_known + [True] * len(forms), True, is_gradient, is_gradient,
        lambda primitive, *_, **__: primitive.name not in _MADE_AGAIN,
    )  # fmt: skip
    assert unknown == is_gradient
    # Its outputs are the gradients and whatever else is at hand there.
    later = later.replace(outvars=later.outvars[-n_gradients:], debug_info=later.debug_info)
    later, used = dce_jaxpr(later, True)
    kept = [n_out + i for i in range(n_kept) if used[i]]
    reads = [i for i in range(n_known) if used[n_kept + i]]
    wanted = [i for i in range(len(forms)) if used[n_kept + n_known + i]]
    run_known = jaxpr_as_fun(ClosedJaxpr(known, whole.consts))
    run_later = jaxpr_as_fun(ClosedJaxpr(later, whole.consts))

    def forward(*inputs: Any) -> Any:
        found = run_known(*jax.tree.leaves(inputs)[:n_known])
        outputs = jax.tree.unflatten(tree, [*found[:n_out], *[0] * n_gradients])
        return *outputs[:-1], [found[i] for i in kept]

    def backward(kept: list[Array], inputs: list[Array], gradients: list[Array]) -> list[Array]:
        return run_later(*kept, *inputs, *(gradients[i] for i in wanted))  # type: ignore[no-any-return]

    return forward, backward, reads


class Pass:
    """One run of a module: what its backward pass needs, until it has been."""

    def __init__(
        self,
        env: Environment,
        backward: Backward,
        targets: list[torch.Tensor],
        values: tuple[list[Array], list[Array]],
        run_again: Callable[[], dict[int, Any]],
    ) -> None:
        self.env, self.backward = env, backward
        self._left: Any = targets, values, run_again

    def attach(self, results: list[Any]) -> list[Any]:
        """The results, with the graph that leads to the targets."""
        attached = [results[i] for i in self.backward.attached]
        with self.env:
            after = _Attach.apply(self, attached, *self._left[0])  # type: ignore[no-untyped-call]
        for number, result in zip(self.backward.attached, after, strict=True):
            results[number] = result
        return results

    def gradients(self, of_results: Sequence[Any]) -> list[Any]:
        """Those of the targets; in a graph of their own, if they are to be differentiated."""
        if self._left is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved "
                "tensors after they have already been freed). Specify retain_graph=True if you "
                "need to backward through the graph a second time."
            )
        targets, values, run_again = self._left
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            self._left = None
        backward = self.backward
        given = {n: gradient for n, gradient in enumerate(of_results) if gradient is not None}
        if torch.is_grad_enabled() or not given.keys() <= set(backward.used):
            backward.memory.used |= given.keys()
            if torch.is_grad_enabled():
                backward.memory.refused = "its gradient is differentiated again"
            results = run_again()
            return list(
                torch.autograd.grad(
                    [results[backward.attached[n]] for n in given], targets, [*given.values()],
                    create_graph=torch.is_grad_enabled(), allow_unused=True,
                )
            )  # fmt: skip
        arrays = [
            given[n].jax().astype(dtype) if n in given else jnp.zeros(shape, dtype)
            for n, (shape, dtype) in zip(backward.used, backward.forms, strict=True)
        ]
        found: list[Any] = [None] * len(targets)
        for number, array in zip(backward.reached, backward.program(*values, arrays), strict=True):
            # None is not zero: an optimizer leaves alone what has no gradient.
            if any(number in backward.leads[n] for n in given):
                found[number] = Tensor(array, self.env)
        return found


class _Attach(torch.autograd.Function):
    """The graph of a module's results."""

    @staticmethod
    def forward(ctx: Any, run: Pass, results: list[Any], *targets: Any) -> Any:
        ctx.run = run
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if all(g is None for g in gradients):
            return None, None, *[None] * len(ctx.run.backward.targets)
        return None, None, *ctx.run.gradients(gradients)
