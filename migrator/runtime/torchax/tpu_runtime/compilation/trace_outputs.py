"""The outputs of a trace: results, stored values, gradients, and changes."""

from collections.abc import Sequence
from typing import Any

import torch
from torchax.tensor import Tensor

from ..dispatch.calls import is_device_tensor, is_leaf, natively
from ..distributed import mesh
from ..tensors.structures import MISSING
from ..tensors.tensor_storages import root
from ..tensors.view_elements import is_whole, overlap
from .compile_state import NotCompilable
from .compiled_program import Array, has_graph
from .differentiation import Backward
from .result_templates import Template
from .trace_inputs import Inputs
from .undo_log import Snapshot


class Outputs(Inputs):
    """The outputs of a trace."""

    def _leaf(self, number: int, wrappers: list[Tensor]) -> Any:
        leaf = self.leaves[number]
        return wrappers[leaf] if isinstance(leaf, int) else leaf

    def _snapshot(self) -> Snapshot:
        inside = [(h, None, "its argument ") for h in self.call.structure.holders()]
        return Snapshot([*self.guards.holders.values(), *inside])

    def _stores(self, snapshot: Snapshot) -> list[tuple[Any, Any, Template]]:
        """Values that were stored in variables and attributes."""
        stores = []
        for holder, name, old, new, label in snapshot.changes():
            if isinstance(old, torch.Tensor) and id(old) in self.guards.fixed:
                self.memory.replaced.add((id(holder), name))
            if new is MISSING or isinstance(holder, list) or label.startswith("its argument"):
                raise NotCompilable(f"it changes {label.strip()}")
            counts = isinstance(new, (int, float, complex)) and not isinstance(new, bool)
            if counts or isinstance(new, (list, dict)):
                raise NotCompilable(f"it counts or remembers in Python ({label})")
            if not self.guards.keep_holder(holder):
                raise NotCompilable(f"it puts something into {label}")
            stores.append((holder, name, Template(new, self.outgoing)))
        return stores

    def outgoing(self, tensor: Any) -> Any:
        """How a tensor is returned: as one of the inputs, or as a new array."""
        old = {id(t): i for i, t in enumerate([*self._wrappers, *self.state])}
        if id(tensor) in old:
            return "old", old[id(tensor)]
        if not is_device_tensor(tensor):
            if id(tensor) in {id(t) for t in self.guards.on_cpu}:
                return "constant", tensor
            raise NotCompilable("it makes a tensor of the CPU")
        base = root(tensor)
        if base in old:
            raise NotCompilable("it returns a view of a tensor that is there before")
        for number, other in enumerate(self._results):
            if other is tensor:
                return "new", number
            if root(other) == base:
                if is_whole(other) and is_whole(tensor) and not tensor.requires_grad:
                    return "alias", number
                if overlap(other, tensor):
                    raise NotCompilable("it returns tensors that share memory")
        self._results.append(tensor)
        return "new", len(self._results) - 1

    def _differentiate(self, cotangents: Sequence[Array], wrappers: list[Tensor]) -> list[Array]:
        """The gradients of a module's inputs and parameters, from those of its results."""
        with natively():
            self._check_graphs(wrappers)
            results = [self._results[i] for i in self.attached]
            used = [n for n in range(len(results)) if n in (self.memory.used or [n])]
            self.forms = [(results[n].jax().shape, results[n].jax().dtype) for n in used]
            graphs = [i for i, t in enumerate(self.inputs) if has_graph(t)]
            leaves = [_leaves(result) for result in results]
            pairs = [(x, wrappers[x] if isinstance(x, int) else x) for x in (*self.leaves, *graphs)]
            pairs = [
                (x, tensor) for x, tensor in pairs if any(id(tensor) in ends for ends in leaves)
            ]
        if not cotangents or not pairs or self.forms != self.forms_before:
            return []
        found = torch.autograd.grad(
            [results[n] for n in used], [tensor for _, tensor in pairs],
            [Tensor(array, self.env) for array in cotangents], allow_unused=True,
        )  # fmt: skip
        with natively():
            reached = [n for n, gradient in enumerate(found) if gradient is not None]
            self.backward = Backward(
                self.memory, self.attached, used, self.forms, [x for x, _ in pairs],
                [{n for n, (_, t) in enumerate(pairs) if id(t) in these} for these in leaves],
                reached, [t.requires_grad for t in self.inputs],
            )  # fmt: skip
            return [gradient.jax() for gradient in found if gradient is not None]  # type: ignore[attr-defined]

    def _check_graphs(self, wrappers: list[Tensor]) -> None:
        """Only the values that a module returns or stores may have a graph."""
        self.attached = [i for i, result in enumerate(self._results) if result.requires_grad]
        if any(is_leaf(self._results[i]) for i in self.attached):
            raise NotCompilable("it makes a tensor that requires a gradient")
        if any(has_graph(t) for t in (*self.state, *wrappers)):
            raise NotCompilable("it changes a tensor in place, with a graph")
        hooked = any(
            hooks
            for module in self.trainers.modules.values()
            for hooks in (module._backward_hooks, module._backward_pre_hooks)
        )
        leaves = (x for x in self.leaves if not isinstance(x, int))
        if hooked or _global_hooks() or any(leaf._backward_hooks for leaf in leaves):
            raise NotCompilable("it has hooks on its backward pass")

    def _outputs(
        self,
        state: list[Array],
        gradients: list[Array],
        arrays: list[Array],
        wrappers: list[Tensor],
    ) -> Any:
        now = [tensor.__dict__["_elem"] for tensor in self.state]
        pairs = zip(self.state, state, now, strict=True)
        self.changed = {id(tensor) for tensor, before, after in pairs if before is not after}
        self.changed |= {id(t) for t, a in self._first_values if t.__dict__["_elem"] is not a}
        given = [wrapper.__dict__["_elem"] for wrapper in wrappers]
        self.written = [i for i, array in enumerate(arrays) if given[i] is not array]
        among_leaves = {x for x in self.leaves if isinstance(x, int)}
        for i, wrapper in enumerate(wrappers):
            if i not in among_leaves and wrapper.grad is not None:
                raise NotCompilable("it is given a tensor with a graph, and asks for its gradient")
        leaves = [self._leaf(i, wrappers) for i in range(len(self.leaves))]
        self.learning = []
        if not self.differentiable:
            if any(leaf.grad is not self._gradients.get(i) for i, leaf in enumerate(leaves)):
                raise NotCompilable("it computes gradients")
            before = zip(self.with_gradient, gradients, strict=True)
            self.learning = [i for i, array in before if leaves[i].grad.jax() is not array]
        gradients = [leaves[i].grad.jax() for i in self.learning]
        new, inputs = now[: self.n_written], [given[i] for i in self.written]
        if mesh.in_use() is not None:
            places = dict(zip(map(id, self.state), self.shardings, strict=False))
            new = list(map(mesh.stay, new, self.shardings))
            of_leaves = [places.get(id(leaves[i])) for i in self.learning]
            gradients = list(map(mesh.stay, gradients, of_leaves))
        results = [result.jax() for result in self._results]
        return new, inputs, gradients, self.env.prng_key, results


def _global_hooks() -> bool:
    """Whether there are hooks on the backward passes of all modules."""
    module = torch.nn.modules.module
    return bool(module._global_backward_hooks or module._global_backward_pre_hooks)


def _leaves(tensor: Any) -> dict[int, Any]:
    """The leaves of a tensor's graph, by id."""
    found: dict[int, Any] = {}
    seen, left = set(), [tensor.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        left += [following for following, _ in node.next_functions]
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found[id(leaf)] = leaf
    return found
