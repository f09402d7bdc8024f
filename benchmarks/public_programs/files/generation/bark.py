"""A tiny model of bark continues two prompts greedily, as `generate_text_semantic` does."""

import sys

import torch
from model import GPT, GPTConfig

new = int(sys.argv[1]) if len(sys.argv) > 1 else 16
torch.manual_seed(0)
model = GPT(
    GPTConfig(
        block_size=64, input_vocab_size=128, output_vocab_size=128, n_layer=2, n_head=4, n_embd=32
    )
)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(4)
model.to("cuda").eval()


@torch.inference_mode()
def text():
    x = torch.tensor([[5, 17, 99, 3], [1, 64, 2, 7]], device="cuda")
    kv_cache, made = None, []
    for _ in range(new):
        logits, kv_cache = model(x, use_cache=True, past_kv=kv_cache)
        x = logits[:, -1].argmax(-1, keepdim=True)
        made.append(x)
    return torch.cat(made, dim=1).tolist()


if __name__ == "__main__":
    print(text())
