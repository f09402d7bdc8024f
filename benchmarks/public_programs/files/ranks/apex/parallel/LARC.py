"""Layer-wise adaptive rates around an optimizer (You, Gitman and Ginsburg, arXiv 1708.03888)."""

from __future__ import annotations

from typing import Any

import torch


class LARC:
    def __init__(
        self, optimizer: torch.optim.Optimizer, trust_coefficient: float = 0.02, clip: bool = True,
        eps: float = 1e-8,
    ) -> None:  # fmt: skip
        self.optim, self.clip = optimizer, clip
        self.trust_coefficient, self.eps = trust_coefficient, eps

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optim, name)

    @torch.no_grad()
    def step(self) -> None:
        decays = [group["weight_decay"] for group in self.optim.param_groups]
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            group["weight_decay"] = 0
            for p in group["params"]:
                if p.grad is None:
                    continue
                weight, gradient = torch.norm(p), torch.norm(p.grad)
                rate = self.trust_coefficient * weight / (gradient + decay * weight + self.eps)
                if self.clip:
                    rate = torch.clamp(rate / group["lr"], max=1)
                moved = (p.grad + decay * p) * rate
                p.grad.copy_(torch.where((weight > 0) & (gradient > 0), moved, p.grad))
        self.optim.step()
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            group["weight_decay"] = decay
