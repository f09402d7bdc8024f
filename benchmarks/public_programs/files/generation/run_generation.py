"""transformers' run_generation.py continues a text by a tiny GPT-2; `--k 1` is greedy."""

import functools
import string
import sys

import torch
import transformers

transformers.BloomTokenizerFast = transformers.AutoTokenizer  # transformers 5 has no such name
import run_generation  # noqa: E402

new = int(sys.argv[1]) if len(sys.argv) > 1 else 16
letters = {letter: number for number, letter in enumerate(string.printable[:94] + "Ġ")}
end = "<|endoftext|>"
transformers.GPT2Tokenizer(vocab={**letters, end: len(letters)}, merges=[]).save_pretrained("tiny")
torch.manual_seed(0)
config = transformers.GPT2Config(
    vocab_size=len(letters) + 1, n_positions=128, n_embd=32, n_layer=2, n_head=4,
    initializer_range=0.3, bos_token_id=len(letters), eos_token_id=len(letters),
)  # fmt: skip
transformers.GPT2LMHeadModel(config).save_pretrained("tiny")


class Kept:
    """The model is read once."""

    from_pretrained = functools.cache(transformers.GPT2LMHeadModel.from_pretrained)


run_generation.MODEL_CLASSES["gpt2"] = Kept, transformers.GPT2Tokenizer


def text():
    asked = {"model_type": "gpt2", "model_name_or_path": "tiny", "prompt": "Once", "length": new}
    sys.argv = ["run_generation.py", "--k=1", *(f"--{name}={asked[name]}" for name in asked)]
    return run_generation.main()


if __name__ == "__main__":
    text()
