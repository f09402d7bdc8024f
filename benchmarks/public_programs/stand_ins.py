"""Stand-ins for what public programs download: tiny models of random weights, drawn data.

    HF_HOME=cache python benchmarks/public_programs/stand_ins.py FOLDER

Nothing here is the real thing. A program that starts in FOLDER finds there, by the very name that
it asks the hub for ("bert-base-cased", "nyu-mll/glue"), a folder with a tiny model or a few drawn
rows, so that it runs unedited and without a network. `files/` has metrics and timm of that kind.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
from pathlib import Path

import datasets
import diffusers
import numpy as np
import torch
import transformers

WIDTH = 32
_WORDS = (
    "the a one this that some cat dog bird tree house river red blue small old runs sees has finds "
    "takes in on under by with and or but then today"
)
WORDS = _WORDS.split()
DRAWN = np.random.default_rng(0)
IMAGE, IMAGES = 16, 320
MNIST = {"train": 60_000, "t10k": 10_000}  # programs divide them into 55,000 and 5,000
TINY = {
    "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH,
    "num_attention_heads": 2, "num_hidden_layers": 2,
}  # fmt: skip


def sentence(least: int = 4, most: int = 12) -> str:
    return " ".join(DRAWN.choice(WORDS, DRAWN.integers(least, most)))


def bytes_as_words() -> dict[str, int]:
    """The alphabet of a byte-level BPE without merges."""
    alphabet = sorted(transformers.convert_slow_tokenizer.bytes_to_unicode().values())
    return {letter: number for number, letter in enumerate(alphabet)}


def tokenizers(folder: Path) -> None:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = {word: number for number, word in enumerate([*special, *WORDS])}
    bert = transformers.BertTokenizer(vocab=words, do_lower_case=False, model_max_length=64)
    for name in ("bert-base-cased", "google-bert/bert-base-cased"):
        bert.save_pretrained(folder / name)
    letters = bytes_as_words()
    end = "<|endoftext|>"
    plain = transformers.GPT2Tokenizer(vocab={**letters, end: len(letters)}, merges=[])
    plain.save_pretrained(folder / "openai-community/gpt2")
    chat = transformers.Qwen2Tokenizer(vocab={**letters, end: len(letters)}, merges=[])
    chat.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    chat.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    chat.save_pretrained(folder / "Qwen/Qwen2-0.5B")
    marks = {"</s>": 257, "<pad>": 258, "<s>": 256}
    opt = transformers.GPT2Tokenizer(
        vocab={**letters, **marks}, merges=[], bos_token="<s>", eos_token="</s>", unk_token="</s>",
        pad_token="<pad>",
    )  # fmt: skip
    opt.save_pretrained(folder / "facebook/opt-125m")
    slow = folder / "facebook/opt-125m"  # what `use_fast=False` reads with transformers 4
    (slow / "vocab.json").write_text(json.dumps({**letters, **marks}))
    (slow / "merges.txt").write_text("#version: 0.2\n")
    ends = {letter + "</w>": len(letters) + number for letter, number in letters.items()}
    marks = {"<|startoftext|>": 512, "<|endoftext|>": 513}
    clip = transformers.CLIPTokenizer(
        vocab={**letters, **ends, **marks}, merges=[], model_max_length=24
    )
    clip.save_pretrained(folder / "stable-diffusion/tokenizer")


def language_models(folder: Path) -> None:
    bert = transformers.BertConfig(vocab_size=64, max_position_embeddings=128, **TINY)
    for name in ("bert-base-cased", "google-bert/bert-base-cased"):
        transformers.BertForSequenceClassification(bert).save_pretrained(folder / name)
    gpt2 = transformers.GPT2Config(
        vocab_size=257, n_positions=64, n_embd=WIDTH, n_layer=2, n_head=2
    )
    transformers.GPT2LMHeadModel(gpt2).save_pretrained(folder / "openai-community/gpt2")
    qwen = transformers.Qwen2Config(
        vocab_size=264, num_key_value_heads=2, max_position_embeddings=256, **TINY
    )
    transformers.Qwen2ForCausalLM(qwen).save_pretrained(folder / "Qwen/Qwen2-0.5B")
    opt = transformers.OPTConfig(
        vocab_size=259, ffn_dim=2 * WIDTH, word_embed_proj_dim=WIDTH, max_position_embeddings=512,
        pad_token_id=258, bos_token_id=256, eos_token_id=257,
        **{key: value for key, value in TINY.items() if key != "intermediate_size"},
    )  # fmt: skip
    transformers.OPTForCausalLM(opt).save_pretrained(folder / "facebook/opt-125m")


def diffusion_models(folder: Path) -> None:
    blocks = {"layers_per_block": 1, "norm_num_groups": 8}
    unet = diffusers.UNet2DModel(
        sample_size=IMAGE, block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8, **blocks,
    )  # fmt: skip
    unet.save_pretrained(folder / "tiny-unet")
    stable = folder / "stable-diffusion"
    diffusers.DDPMScheduler(
        beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012
    ).save_pretrained(stable / "scheduler")
    text = transformers.CLIPTextConfig(
        vocab_size=514, max_position_embeddings=24, bos_token_id=512, eos_token_id=513, **TINY
    )
    transformers.CLIPTextModel(text).save_pretrained(stable / "text_encoder")
    diffusers.AutoencoderKL(
        block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, sample_size=IMAGE, **blocks,
    ).save_pretrained(stable / "vae")  # fmt: skip
    diffusers.UNet2DConditionModel(
        sample_size=IMAGE // 2, block_out_channels=(16, 32), cross_attention_dim=WIDTH,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), **blocks,
    ).save_pretrained(stable / "unet")  # fmt: skip
    index = {
        "_class_name": "StableDiffusionPipeline",
        "scheduler": ["diffusers", "DDPMScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "safety_checker": [None, None],
        "feature_extractor": [None, None],
        "requires_safety_checker": False,
    }
    (stable / "model_index.json").write_text(json.dumps(index))


def pictures() -> list[np.ndarray]:
    return list(DRAWN.integers(0, 256, (IMAGES, IMAGE, IMAGE, 3), dtype=np.uint8))


def pairs(rows: int) -> datasets.Dataset:
    """Two sentences, and whether one says the same as the other, as in MRPC."""
    columns = {
        "sentence1": [sentence() for _ in range(rows)],
        "sentence2": [sentence() for _ in range(rows)],
        "label": DRAWN.integers(0, 2, rows).tolist(),
        "idx": list(range(rows)),
    }
    labels = datasets.ClassLabel(names=["not_equivalent", "equivalent"])
    return datasets.Dataset.from_dict(columns).cast_column("label", labels)


def keep(folder: Path, configuration: str, splits: dict[str, datasets.Dataset]) -> None:
    """A data set as the hub has it: its splits, and a card that names them."""
    lines = ["---", "configs:", f"- config_name: {configuration}", "  data_files:"]
    for split, rows in splits.items():
        file = f"{configuration}/{split}.parquet"
        (folder / configuration).mkdir(parents=True, exist_ok=True)
        rows.to_parquet(str(folder / file))
        lines += [f"  - split: {split}", f"    path: {file}"]
    (folder / "README.md").write_text("\n".join([*lines, "---", "Drawn: a stand-in.", ""]))


def data(folder: Path) -> None:
    of = datasets.Dataset.from_dict
    keep(
        folder / "nyu-mll/glue",
        "mrpc",
        {"train": pairs(160), "validation": pairs(48), "test": pairs(48)},
    )
    texts = {split: of({"text": [sentence() for _ in range(rows)]})
             for split, rows in {"train": 160, "validation": 32}.items()}  # fmt: skip
    keep(folder / "Salesforce/wikitext", "wikitext-2-raw-v1", texts)

    def chat() -> list[dict[str, str]]:
        return [{"role": role, "content": sentence()} for role in ("user", "assistant")]

    chats = {split: of({"messages": [chat() for _ in range(48)]}) for split in ("train", "test")}
    keep(folder / "trl-lib/Capybara", "default", chats)
    asked = [{"instruction": sentence(), "input": "", "output": sentence()} for _ in range(64)]
    (folder / "alpaca_data.json").write_text(json.dumps(asked))
    keep(folder / "yahma/alpaca-cleaned", "default", {"train": datasets.Dataset.from_list(asked)})
    seen = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
    shown = {"image": pictures(), "text": [sentence() for _ in range(IMAGES)]}
    for name in ("huggan/flowers-102-categories", "lambdalabs/naruto-blip-captions"):
        keep(folder / name, "default", {"train": of(shown, features=seen)})


def photographs(folder: Path) -> None:
    """Oxford's pets, as cv_example reads them: the kind is in the name."""
    from PIL import Image

    (folder / "images").mkdir()
    for number in range(IMAGES):
        drawn = DRAWN.integers(0, 256, (48, 48, 3), dtype=np.uint8)
        kind = ("beagle", "Bengal", "pug")[number % 3]
        Image.fromarray(drawn).save(folder / f"images/{kind}_{number}.jpg")


def mnist(folder: Path) -> None:
    """Digits of torchvision's MNIST: noise, of the true number."""
    folder.mkdir(parents=True)
    for name, rows in MNIST.items():
        digits = DRAWN.integers(0, 256, (rows, 28, 28), dtype=np.uint8)
        head = struct.pack(">4i", 2051, rows, 28, 28)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(head + digits.tobytes())
        labels = DRAWN.integers(0, 10, rows, dtype=np.uint8)
        head = struct.pack(">2i", 2049, rows)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())


def make(folder: Path) -> None:
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    shutil.copytree(Path(__file__).parent / "files", folder, dirs_exist_ok=True)
    tokenizers(folder)
    language_models(folder)
    diffusion_models(folder)
    data(folder)
    photographs(folder)
    mnist(folder / "data/MNIST/raw")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
