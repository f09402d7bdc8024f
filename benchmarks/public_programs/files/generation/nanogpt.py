"""nanoGPT's sample.py continues a text by a tiny model; `top_k=1` is greedy."""

import pickle
import runpy
import string
import sys
from pathlib import Path

import torch
from model import GPT, GPTConfig

new = int(sys.argv[1]) if len(sys.argv) > 1 else 16
device = torch.device("cuda")
letters = "\n" + string.printable[:63]
torch.manual_seed(0)
size = {"block_size": 64, "vocab_size": 64, "n_layer": 2, "n_head": 4, "n_embd": 32}
model = GPT(GPTConfig(**size))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(4)
Path("out").mkdir(exist_ok=True)
checkpoint = {"model": model.state_dict(), "model_args": size, "config": {"dataset": "tiny"}}
torch.save(checkpoint, "out/ckpt.pt")
Path("data/tiny").mkdir(parents=True, exist_ok=True)
known = {"stoi": {c: i for i, c in enumerate(letters)}, "itos": dict(enumerate(letters))}
Path("data/tiny/meta.pkl").write_bytes(pickle.dumps(known))


def sample(texts):
    settings = {
        "start": "Once", "num_samples": texts, "max_new_tokens": new, "top_k": 1,
        "device": device.type, "dtype": "float32",
    }  # fmt: skip
    sys.argv = ["sample.py", *(f"--{name}={value}" for name, value in settings.items())]
    return runpy.run_path("sample.py")


made = sample(0)


def text():
    with torch.no_grad(), made["ctx"]:
        texts = made["model"].generate(made["x"], new, temperature=made["temperature"], top_k=1)
    return texts.tolist()


if __name__ == "__main__":
    sample(2)
