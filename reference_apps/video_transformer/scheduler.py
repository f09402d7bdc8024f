"""Flow matching with Euler steps."""

import torch


class FlowMatchEuler:
    """Steps from noise (sigma 1) to latents (sigma 0); larger steps early with ``shift`` > 1."""

    def __init__(self, num_steps: int, shift: float = 5.0) -> None:
        sigmas = torch.linspace(1, 0, num_steps + 1)
        self.sigmas = shift * sigmas / (1 + (shift - 1) * sigmas)
        self.timesteps = self.sigmas[:-1] * 1000

    def step(self, velocity: torch.Tensor, index: int, latents: torch.Tensor) -> torch.Tensor:
        """The latents after step ``index``."""
        distance = self.sigmas[index + 1] - self.sigmas[index]
        return latents.float() + velocity.float() * distance.item()
