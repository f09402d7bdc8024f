"""A tiny Whisper of random weights writes what it hears in two noises, greedily."""

import sys

import torch
from whisper import DecodingOptions, ModelDimensions, Whisper

new = int(sys.argv[1]) if len(sys.argv) > 1 else 16
torch.manual_seed(0)
model = Whisper(
    ModelDimensions(
        n_mels=8, n_audio_ctx=50, n_audio_state=32, n_audio_head=4, n_audio_layer=2,
        n_vocab=51865, n_text_ctx=64, n_text_state=32, n_text_head=4, n_text_layer=2,
    )
)  # fmt: skip
with torch.no_grad():
    for parameter in model.parameters():
        parameter.normal_(std=0.3)
model.to("cuda").eval()
noise = torch.randn(2, 8, 100)


def text():
    options = DecodingOptions(language="en", fp16=False, sample_len=new)
    return [heard.tokens for heard in model.decode(noise.to("cuda"), options)]


if __name__ == "__main__":
    print(text())
