"""A text encoder, and an engine that runs it on the best device there is."""

import zlib

import torch
from torch import nn

from devices import finish, get_best_device

VOCABULARY, LENGTH, WIDTH = 4096, 32, 64


def tokenize(texts: list[str]) -> torch.Tensor:
    """Hashed words: int64 (texts, LENGTH), 0 where a text is shorter."""
    tokens = torch.zeros(len(texts), LENGTH, dtype=torch.int64)
    for row, text in enumerate(texts):
        words = text.lower().split()[:LENGTH]
        ids = [zlib.crc32(word.encode()) % (VOCABULARY - 1) + 1 for word in words]
        tokens[row, : len(ids)] = torch.tensor(ids)
    return tokens


class TextEncoder(nn.Module):
    """Embedding, two transformer layers, the mean over words, length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.1)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Embeddings (texts, WIDTH) of tokens (texts, LENGTH)."""
        there = tokens != 0
        hidden = self.layers(self.words(tokens) + self.places, src_key_padding_mask=~there)
        weights = there.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1)
        return nn.functional.normalize(mean.float(), dim=-1)


def make_model() -> TextEncoder:
    """The encoder with weights of a fixed seed, on the CPU."""
    torch.manual_seed(0)
    return TextEncoder().eval()


class Engine:
    """Encodes texts in half precision where the device has it."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device or get_best_device()
        self.model = make_model().to(self.device)

    @torch.inference_mode()
    def encode(self, texts: list[str], batch_size: int = 32) -> torch.Tensor:
        """Embeddings of `texts` on the CPU: float32 (texts, WIDTH)."""
        parts = []
        half = self.device.type not in ("cpu", "vulkan")
        for start in range(0, len(texts), batch_size):
            tokens = tokenize(texts[start : start + batch_size]).to(self.device)
            with torch.autocast(self.device.type, dtype=torch.float16, enabled=half):
                parts.append(self.model(tokens).cpu())
        finish(self.device)
        return torch.cat(parts)
