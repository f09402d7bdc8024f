"""A tiny minGPT continues two prompts greedily."""

import sys

import torch
from mingpt.model import GPT

new = int(sys.argv[1]) if len(sys.argv) > 1 else 16
torch.manual_seed(0)
config = GPT.get_default_config()
config.model_type = None
config.n_layer, config.n_head, config.n_embd = 2, 4, 32
config.vocab_size, config.block_size = 128, 64
model = GPT(config)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(4)
model.to("cuda").eval()


def text():
    prompt = torch.tensor([[5, 17, 99, 3], [1, 64, 2, 7]], device="cuda")
    return model.generate(prompt, new, do_sample=False).tolist()


if __name__ == "__main__":
    print(text())
