"""A tiny GPT of a chapter of LLMs-from-scratch continues a prompt greedily."""

import sys

import chapter
import torch

new = int(sys.argv[1]) if len(sys.argv) > 1 else 16
torch.manual_seed(0)
size = {"vocab_size": 128, "context_length": 128, "emb_dim": 32, "n_heads": 4, "n_layers": 2}
model = chapter.GPTModel({**size, "drop_rate": 0.1, "qkv_bias": False, "n_kv_groups": 2})
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(2)
model.to("cuda").eval()


def text():
    prompt = torch.tensor([[5, 17, 99, 3], [1, 64, 2, 7]], device="cuda")
    return chapter.generate_text_simple_cached(model, prompt, new)


if __name__ == "__main__":
    print(text().tolist())
