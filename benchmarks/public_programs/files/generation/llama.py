"""A tiny Llama 2 of Meta's own code continues two prompts greedily."""

import sys
from types import SimpleNamespace

import torch
from llama import Llama, ModelArgs, Transformer

new = int(sys.argv[1]) if len(sys.argv) > 1 else 16
torch.manual_seed(0)
model = Transformer(
    ModelArgs(
        dim=32, n_layers=2, n_heads=4, n_kv_heads=2, vocab_size=128, multiple_of=16,
        max_batch_size=2, max_seq_len=64,
    )
)  # fmt: skip
model.to("cuda").eval()
generator = Llama(model, SimpleNamespace(pad_id=-1, eos_id=128))


def text():
    texts, _ = generator.generate([[5, 17, 99, 3], [1, 64, 2, 7, 12]], new, temperature=0.0)
    return texts


if __name__ == "__main__":
    print(text())
