"""Text embeddings on Apple's GPU."""

import torch

from engine import make_model, tokenize


def is_available() -> bool:
    """Whether there is such a device."""
    return torch.backends.mps.is_built() and torch.backends.mps.is_available()


@torch.inference_mode()
def encode(texts: list[str], batch_size: int = 32) -> torch.Tensor:
    """Embeddings of `texts` on the CPU: float32 (texts, 64)."""
    device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    model = make_model().to(device)
    parts = []
    for start in range(0, len(texts), batch_size):
        tokens = tokenize(texts[start : start + batch_size]).to(device)
        with torch.autocast(device_type="mps", dtype=torch.float16):
            parts.append(model(tokens).cpu())
    torch.mps.synchronize()
    print(f"MPS: {torch.mps.current_allocated_memory() / 2**20:.1f} MiB")
    torch.mps.empty_cache()
    return torch.cat(parts)
