"""A tiny model of gpt-2-Pytorch continues two prompts greedily."""

import sys

import torch
from GPT2.config import GPT2Config
from GPT2.model import GPT2LMHeadModel
from GPT2.sample import sample_sequence

new = int(sys.argv[1]) if len(sys.argv) > 1 else 16
torch.manual_seed(0)
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size_or_config_json_file=128, n_positions=64, n_ctx=64, n_embd=32, n_layer=2, n_head=4
    )
)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(4)
model.to("cuda").eval()


def text():
    prompt = [5, 17, 99, 3]
    made = sample_sequence(model, new, context=prompt, batch_size=2, device="cuda", sample=False)
    return made.tolist()


if __name__ == "__main__":
    print(text())
