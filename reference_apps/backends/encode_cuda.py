"""Text embeddings on CUDA, or on ROCm, which PyTorch calls the same."""

import torch

from engine import make_model, tokenize


def is_available() -> bool:
    """Whether there is such a device."""
    return torch.cuda.is_available()


@torch.inference_mode()
def encode(texts: list[str], batch_size: int = 32) -> torch.Tensor:
    """Embeddings of `texts` on the CPU: float32 (texts, 64)."""
    torch.cuda.reset_peak_memory_stats()
    model = make_model().cuda()
    parts = []
    for start in range(0, len(texts), batch_size):
        tokens = tokenize(texts[start : start + batch_size]).cuda(non_blocking=True)
        with torch.cuda.amp.autocast(dtype=torch.float16):
            parts.append(model(tokens).cpu())
    torch.cuda.synchronize()
    print(f"CUDA: {torch.cuda.max_memory_allocated() / 2**20:.1f} MiB at most")
    torch.cuda.empty_cache()
    return torch.cat(parts)
