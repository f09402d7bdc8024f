"""Text embeddings by Vulkan, which has no half precision: float32."""

import torch

from engine import make_model, tokenize


def is_available() -> bool:
    """Whether there is such a device."""
    return torch.is_vulkan_available()


@torch.inference_mode()
def encode(texts: list[str], batch_size: int = 32) -> torch.Tensor:
    """Embeddings of `texts` on the CPU: float32 (texts, 64)."""
    model = make_model().to(device="vulkan")
    parts = []
    for start in range(0, len(texts), batch_size):
        tokens = tokenize(texts[start : start + batch_size]).to("vulkan")
        parts.append(model(tokens).cpu())
    return torch.cat(parts)
