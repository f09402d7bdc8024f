"""Averages gradients over the ranks, once, after the backward pass that completes them.

Each target defines how counts and gradients are exchanged, and notes which gradients are ready.
"""

import functools
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

_averaging: list["weakref.ref[Averaging]"] = []


class Averaging:
    """The gradients of one model, which become the mean over the ranks.

    ``finds_unused`` is torch's ``find_unused_parameters``; ``alone``: there is only one rank.
    """

    alone = False
    sent: tuple[torch.dtype, Any] | None = None  # in lower precision, in a process group

    def __init__(self, module: nn.Module, trained: list[nn.Parameter], finds_unused: bool) -> None:
        self._module, self._trained, self.finds_unused = module, trained, finds_unused
        self._ready: set[int] = set()  # those that got a gradient since the last exchange
        self._averages = False  # whether the last forward pass announced an exchange
        _averaging.append(weakref.ref(self))

    def is_own(self) -> bool:
        """Whether this rank owns it, if ranks are threads."""
        return True

    def sum(self, counts: Tensor) -> None:
        """Replace each of these CPU integers by the sum over the ranks."""
        raise NotImplementedError

    def mean(self, parameters: list[nn.Parameter]) -> None:
        """Replace the gradients of these parameters by the means over the ranks."""
        raise NotImplementedError

    def note(self, number: int, parameter: Tensor) -> None:
        """A backward pass has set this parameter's gradient; called by a hook."""
        self._ready.add(number)

    def begin(self, averages: bool) -> None:
        """Before a forward pass; ``averages``: whether its gradients will be averaged.

        Raises RuntimeError if the previous pass left parameters without gradients.
        """
        if self._averages and self._ready:
            raise RuntimeError(self._unfinished())
        self._averages = averages
        if averages and not self.finds_unused:
            self._ready.clear()  # by passes that announced nothing

    def average(self) -> None:
        """After a backward pass: gradients become the mean once all are there."""
        if not self._ready or not self._averages:
            return  # gradients from within `no_sync()` count in the next pass outside
        trained = self._trained
        if not self.finds_unused:
            if len(self._ready) < len(trained):
                return  # the next backward pass brings them, or the next forward pass raises
            self._averages = False
        ready, self._ready = self._ready, set()
        if self.alone:
            return
        if self.finds_unused:
            # Another backward pass averages again, which doesn't change averaged gradients.
            used = torch.tensor([i in ready for i in range(len(trained))], device="cpu").int()
            self.sum(used)
            trained = [p for p, n in zip(trained, used.tolist(), strict=True) if n]
            for parameter in trained:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
        trained = [p for p in trained if p.grad is not None]
        if self.sent is None:
            self.mean(trained)
        else:
            self._mean_as(*self.sent, trained)

    @torch.no_grad()
    def _mean_as(self, kind: torch.dtype, group: Any, parameters: list[nn.Parameter]) -> None:
        """Like torch's hooks: divided first, then sent."""
        sent = [p.grad.to(kind).div_(group.size()) for p in parameters]  # type: ignore[union-attr]
        group.allreduce_coalesced(sent, dist.AllreduceCoalescedOptions())
        for parameter, value in zip(parameters, sent, strict=True):
            parameter.grad = value.to(parameter.dtype)

    def _unfinished(self) -> str:
        names = {id(p): name for name, p in self._module.named_parameters()}
        missing = [names[id(p)] for i, p in enumerate(self._trained) if i not in self._ready]
        return (
            f"{', '.join(missing[:5])}: no gradient since the last forward pass. Where a loss does "
            "not need all parameters: DistributedDataParallel(…, find_unused_parameters=True)"
        )


def install() -> None:
    """Average the gradients of ranks after each backward pass."""
    backward = torch.autograd.backward

    @functools.wraps(backward)
    def backward_and_average(*args: Any, **kwargs: Any) -> None:
        backward(*args, **kwargs)
        if torch._C._current_graph_task_id() == -1:  # not a checkpoint's inner one
            there = [exchange for ref in _averaging if (exchange := ref()) is not None]
            for exchange in there:
                if exchange.is_own():
                    exchange.average()

    torch.autograd.backward = backward_and_average
