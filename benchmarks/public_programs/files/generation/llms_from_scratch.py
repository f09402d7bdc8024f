"""A tiny GPT of a chapter of LLMs-from-scratch continues a prompt greedily."""

import sys

import chapter
import torch

new = int(sys.argv[1]) if len(sys.argv) > 1 else 16
torch.manual_seed(0)
size = {"vocab_size": 128, "context_length": 128, "emb_dim": 32, "n_heads": 4, "n_layers": 2}
kinds = {
    "n_kv_groups": 2, "latent_dim": 16, "sliding_window_size": 8, "sliding_window_stride": 2,
    "hidden_dim": 64, "num_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip
model = chapter.GPTModel({**size, **kinds, "drop_rate": 0.1, "qkv_bias": False})
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(2)
model.to("cuda").eval()
names = ("generate_text_simple_cached", "generate", "generate_text_simple")
generate = next(getattr(chapter, name) for name in names if hasattr(chapter, name))


def text():
    prompt = torch.tensor([[5, 17, 99, 3], [1, 64, 2, 7]], device="cuda")
    return generate(model, prompt, new, context_size=128).tolist()


if __name__ == "__main__":
    print(text())
