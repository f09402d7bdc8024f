"""Text embeddings on Intel's XPU, with their extension where it is installed."""

import torch

from engine import make_model, tokenize

try:
    import intel_extension_for_pytorch as ipex
except ImportError:
    ipex = None


def is_available() -> bool:
    """Whether there is such a device."""
    return hasattr(torch, "xpu") and torch.xpu.is_available()


@torch.inference_mode()
def encode(texts: list[str], batch_size: int = 32) -> torch.Tensor:
    """Embeddings of `texts` on the CPU: float32 (texts, 64)."""
    device = torch.device("xpu:0")
    model = make_model().to(device)
    if ipex is not None:
        model = ipex.optimize(model)
    parts = []
    for start in range(0, len(texts), batch_size):
        tokens = tokenize(texts[start : start + batch_size]).to("xpu")
        with torch.autocast(device_type="xpu", dtype=torch.bfloat16):
            parts.append(model(tokens).cpu())
    torch.xpu.synchronize()
    print(f"XPU: {torch.xpu.get_device_name(0)}")
    torch.xpu.empty_cache()
    return torch.cat(parts)
