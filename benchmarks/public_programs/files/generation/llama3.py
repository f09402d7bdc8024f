"""A tiny Llama 3 of LLMs-from-scratch continues two prompts greedily."""

import sys

import torch
from llms_from_scratch.kv_cache.generate import generate_text_simple
from llms_from_scratch.kv_cache.llama3 import Llama3Model

new = int(sys.argv[1]) if len(sys.argv) > 1 else 16
torch.manual_seed(0)
model = Llama3Model({
    "vocab_size": 128, "context_length": 128, "emb_dim": 32, "n_heads": 4, "n_layers": 2,
    "hidden_dim": 64, "n_kv_groups": 2, "rope_base": 500_000.0, "dtype": torch.float32,
    "rope_freq": None,
})  # fmt: skip
model.to("cuda").eval()


def text():
    prompt = torch.tensor([[5, 17, 99, 3], [1, 64, 2, 7]], device="cuda")
    return generate_text_simple(model, prompt, new).tolist()


if __name__ == "__main__":
    print(text())
