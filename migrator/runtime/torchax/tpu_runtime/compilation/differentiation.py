"""Gradients of a compiled module: its backward pass is a separate program.

Forward and backward pass are traced as one, with the gradients of the results as inputs that are
known later. What doesn't depend on them is the forward program; the rest is the backward program,
which gets the values that the forward program saves for it. Layout changes are repeated, not saved.
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

from ..tensors.views import peek
from . import recomputation
from .function_state import Memory

Array = Any
_MADE_AGAIN = ("broadcast_in_dim", "convert_element_type", "iota", "reshape", "transpose")


@dataclass(eq=False)
class Backward:
    """The backward pass of a program."""

    memory: Memory
    attached: list[int]  # which results have a graph
    used: list[int]  # which of them may get a gradient
    forms: list[tuple[Any, Any]]  # the shapes and dtypes of those
    targets: list[Any]  # where the graph ends: tensors, or numbers of inputs
    leads: list[set[int]]  # which of the targets each of the attached results leads to
    reached: list[int]  # which of the targets get a gradient
    requiring: list[bool]  # which inputs require one
    # Takes which gradients are required, saved values, inputs of the forward pass, and gradients
    # of its results.
    program: Any = None
    reads: list[int] = field(default_factory=list)  # which of the inputs, flattened

    def __post_init__(self) -> None:
        self.graphs = _graphs(self.leads)


def _graphs(leads: list[set[int]]) -> list[tuple[list[int], list[int]]]:
    """The graphs that share no target: the attached results and the targets of each."""
    found: list[tuple[set[int], set[int]]] = []
    for n, targets in enumerate(leads):
        joined = [graph for graph in found if graph[1] & targets]
        found = [graph for graph in found if not graph[1] & targets]
        results = {n}.union(*(graph[0] for graph in joined))
        found.append((results, targets.union(*(graph[1] for graph in joined))))
    return [(sorted(results), sorted(targets)) for results, targets in found]


def _is_kept(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive.name not in _MADE_AGAIN


def split(traced: Any, forms: list[tuple[Any, Any]], n_gradients: int) -> tuple[Any, Any, Any]:
    """The forward program, the backward program, and which inputs it reads.

    ``traced`` has the gradients of the results, in these ``forms``, as its last inputs; its outputs
    are a tuple, the last item of which are the ``n_gradients`` that depend on them. Instead of
    that item the forward program returns the values that the backward program needs.
    """
    whole = traced.jaxpr
    tree = jax.tree.structure(traced.out_info)
    n_known, n_out = len(whole.in_avals) - len(forms), len(whole.out_avals) - n_gradients
    is_gradient = [False] * n_out + [True] * n_gradients
    named = recomputation.with_kept(whole.jaxpr, n_known, _MADE_AGAIN)
    known, later, unknown, _, n_kept = partial_eval_jaxpr_custom(
        named or whole.jaxpr,
        [False] * n_known + [True] * len(forms), True, is_gradient, is_gradient,
        recomputation.is_kept if named else _is_kept,
    )  # fmt: skip
    assert unknown == is_gradient
    # Its outputs are the gradients and any other values available there.
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

    def backward(
        asked: tuple[int, ...], kept: list[Array], inputs: list[Array], gradients: list[Array]
    ) -> list[Array]:
        given = [gradients[i].astype(forms[i][1]) for i in wanted]
        values = [*kept, *inputs, *given]
        found = run_later(*(recomputation.apart(values) if named else values))
        return [found[i] for i in asked]

    return forward, backward, reads


def attach(
    env: Environment,
    backward: Backward,
    targets: list[torch.Tensor],
    values: tuple[list[Array], list[Array]],
    run_again: Callable[[], dict[int, Any]],
    made: list[Any],
) -> None:
    """Give the new tensors of a module's run the graphs that lead to its targets.

    Each has its own graph, as in torch: backward through one doesn't affect the others, and
    doesn't reach their parameters, whose hooks would run.
    """
    for results, its_targets in backward.graphs:
        run = Pass(env, backward, results, its_targets, targets, values, run_again)
        numbers = [backward.attached[n] for n in results]
        with env:
            after = _Attach.apply(
                run, [made[number] for number in numbers], *(targets[n] for n in its_targets)
            )
        for number, result in zip(numbers, after, strict=True):
            made[number] = result


class Pass:
    """The graph of one run of a module: what its backward pass needs, until it has run."""

    def __init__(
        self,
        env: Environment,
        backward: Backward,
        results: list[int],
        targets: list[int],
        tensors: list[torch.Tensor],
        values: tuple[list[Array], list[Array]],
        run_again: Callable[[], dict[int, Any]],
    ) -> None:
        self.env, self.backward = env, backward
        self._results, self._targets = results, targets  # by number
        self._left: Any = [tensors[n] for n in targets], values, run_again

    def gradients(self, of_results: Sequence[Any]) -> list[Any]:
        """The targets' gradients; with a graph of their own, if they are to be differentiated."""
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
        given = {n: g for n, g in zip(self._results, of_results, strict=True) if g is not None}
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
            peek(given[n]) if n in given else jnp.zeros(shape, dtype)
            for n, (shape, dtype) in zip(backward.used, backward.forms, strict=True)
        ]
        asked = [i for i, target in enumerate(backward.reached) if target in self._targets]
        found = dict.fromkeys(self._targets)
        # None isn't zero: an optimizer skips parameters without a gradient.
        led = {target for n in given for target in backward.leads[n]}
        for i, array in zip(asked, backward.program(tuple(asked), *values, arrays), strict=True):
            if backward.reached[i] in led:
                found[backward.reached[i]] = Tensor(array, self.env)
        return [*found.values()]


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
            return (None,) * len(ctx.needs_input_grad)
        return None, None, *ctx.run.gradients(gradients)
