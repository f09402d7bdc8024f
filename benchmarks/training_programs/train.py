"""Three training steps of a public model at its real size, on made-up data.

    python train.py MODEL [--batch N]

The models are those of torchvision and transformers; `gan` is DCGAN, `unet` the U-Net of
github.com/milesial/Pytorch-UNet, `dit` DiT-B/2, both written out here.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from models import DiT, UNet, dcgan
from torch import nn

Step = tuple[nn.Module, Callable[[int], torch.Tensor]]
DEVICE = torch.device("cuda")


def images(batch: int, size: int = 224) -> torch.Tensor:
    return torch.randn(batch, 3, size, size).to(DEVICE)


def labels(batch: int, *shape: int, classes: int = 1000) -> torch.Tensor:
    return torch.randint(0, classes, (batch, *shape)).to(DEVICE)


def of_torchvision(name: str) -> Step:
    import torchvision

    model = getattr(torchvision.models, name)()
    return model, lambda batch: F.cross_entropy(model(images(batch)), labels(batch))


def resnet50() -> Step:
    return of_torchvision("resnet50")


def vit() -> Step:
    return of_torchvision("vit_b_16")


def unet() -> Step:
    model = UNet(3, 2)
    return model, lambda batch: F.cross_entropy(
        model(images(batch, 512)), labels(batch, 512, 512, classes=2)
    )


def dit() -> Step:
    model = DiT()

    def loss(batch: int) -> torch.Tensor:
        latents, times = torch.randn(batch, 4, 32, 32).to(DEVICE), torch.rand(batch).to(DEVICE)
        return F.mse_loss(model(latents, times, labels(batch)), torch.zeros_like(latents))

    return model, loss


def of_tokens(model: nn.Module, length: int, words: int) -> Step:
    def loss(batch: int) -> torch.Tensor:
        tokens = labels(batch, length, classes=words)
        found: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
        return found

    return model, loss


def llama() -> Step:
    """Llama 3.2 1B, in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    torch.set_default_dtype(torch.bfloat16)
    return of_tokens(LlamaForCausalLM(config), 2048, 128256)


def bert() -> Step:
    from transformers import BertConfig, BertForMaskedLM

    return of_tokens(BertForMaskedLM(BertConfig()), 512, 30522)


def mae() -> Step:
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    model = ViTMAEForPreTraining(ViTMAEConfig())

    def loss(batch: int) -> torch.Tensor:
        found: torch.Tensor = model(images(batch)).loss
        return found

    return model, loss


def video() -> Step:
    """VideoMAE, as a classifier: 16 frames."""
    from transformers import VideoMAEConfig, VideoMAEForVideoClassification

    model = VideoMAEForVideoClassification(VideoMAEConfig(num_labels=400))

    def loss(batch: int) -> torch.Tensor:
        frames = torch.randn(batch, 16, 3, 224, 224).to(DEVICE)
        found: torch.Tensor = model(frames, labels=labels(batch, classes=400)).loss
        return found

    return model, loss


def train(model: nn.Module, loss_of: Callable[[int], torch.Tensor], batch: int) -> None:
    model.to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(3):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


def gan(batch: int) -> None:
    """DCGAN: two losses, two optimizers."""
    generator, critic = (part.to(DEVICE) for part in dcgan())
    makes = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judges = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judge, ones = F.binary_cross_entropy_with_logits, torch.ones(batch).to(DEVICE)
    for _ in range(3):
        made = generator(torch.randn(batch, 100, 1, 1).to(DEVICE))
        real = images(batch, 64)
        loss = judge(critic(real), ones) + judge(critic(made.detach()), 0 * ones)
        judges.zero_grad()
        loss.backward()
        judges.step()
        makes.zero_grad()
        judge(critic(made), ones).backward()
        makes.step()
        print(loss.item())


MODELS = {made.__name__: made for made in (resnet50, vit, unet, dit, llama, bert, mae, video)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=[*MODELS, "gan"])
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    if args.model == "gan":
        gan(args.batch)
    else:
        train(*MODELS[args.model](), args.batch)
