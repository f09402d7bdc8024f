"""A tiny model of gpt-fast continues a prompt; `top_k=1` is greedy."""

import sys

import torch
from generate import generate
from model import ModelArgs, Transformer

new = int(sys.argv[1]) if len(sys.argv) > 1 else 16
torch.manual_seed(0)
model = Transformer(ModelArgs(block_size=128, vocab_size=128, n_layer=2, n_head=4, dim=32))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(2)
model.to("cuda").eval()


def text():
    prompt = torch.tensor([5, 17, 99, 3], device="cuda")
    made, _ = generate(
        model, prompt, new, batch_size=2, interactive=False, draft_model=None, top_k=1
    )
    return made.tolist()


if __name__ == "__main__":
    print(text())
