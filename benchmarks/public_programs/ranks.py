"""Public programs with ranks: two ranks of gloo beside two ranks of a target.

    python benchmarks/public_programs/ranks.py CHECKOUTS [--only NAME] [--work FOLDER]
                                               [--target torchax]

In the environment of a target, with what the programs import (timm, tensorboardX, omegaconf,
fvcore, opencv-python-headless, pandas). CHECKOUTS has a folder for each repository that PROGRAMS
names. Each runs by `tpu-migrate verify --devices 2 --quick` in a copy of its repository, with drawn
pictures and, where it asks for one, a stand-in of `files/ranks`. What is changed in a program so
that it runs on a CPU at all, and soon, stands at its entry. The table has the verdict, how far
losses and the last weights are apart, how many values were compared, and the seconds of the
original and of the others.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from compare import verified
from PIL import Image

HERE = Path(__file__).resolve().parent
CLASSES, PICTURES, SIDE = 2, 16, 80


class Change(NamedTuple):
    file: str
    old: str
    new: str


class Program(NamedTuple):
    name: str
    repository: str
    script: str
    arguments: str
    changes: tuple[Change, ...] = ()
    stand_ins: tuple[str, ...] = ()
    steps: int = 3


_FLOAT32 = " ".join(
    f"compute_precision.{who}.{part}.mixed_precision.{kind}=fp32"
    for who in ("student", "teacher")
    for part in ("backbone", "dino_head", "ibot_head")
    for kind in ("param_dtype", "reduce_dtype")
)
DINOV2 = Program(
    "dinov2 `train.py`", "dinov2", "dinov2/train/train.py",
    "--config-file dinov2/configs/ssl_default_config.yaml --output-dir out --no-resume "
    "train.dataset_path=ImageNet:split=TRAIN:root=drawn:extra=drawn train.batch_size_per_gpu=2 "
    "train.num_workers=0 train.OFFICIAL_EPOCH_LENGTH=4 optim.epochs=1 optim.warmup_epochs=0 "
    "optim.freeze_last_layer_epochs=0 student.arch=vit_small crops.global_crops_size=64 "
    "crops.local_crops_size=32 crops.local_crops_number=2 dino.head_n_prototypes=64 "
    "dino.head_hidden_dim=64 dino.head_bottleneck_dim=32 ibot.head_n_prototypes=64 "
    f"ibot.head_hidden_dim=64 ibot.head_bottleneck_dim=32 {_FLOAT32}",
    (
        # Private parts of FSDP, as torch has them today.
        Change("dinov2/fsdp/__init__.py", "handles = x._handles", "handles = x._handle"),
        Change("dinov2/fsdp/__init__.py", "[True for h in handles]", "True"),
        Change(
            "dinov2/train/ssl_meta_arch.py", "need_to_synchronize_fsdp_streams = True",
            "need_to_synchronize_fsdp_streams = False",
        ),
        # As many pictures and layers as run soon, and numbers in float32.
        Change("dinov2/data/datasets/image_net.py", "1_281_167", str(CLASSES * PICTURES)),
        Change("dinov2/models/vision_transformer.py", "depth=12", "depth=2"),
        Change("dinov2/train/train.py", "torch.half", "torch.float"),
    ),
    ("xformers",),
    2,
)  # fmt: skip
SWAV = Program(
    "SwAV `main_swav.py`, resnet50, crops of 64 and 32", "swav", "main_swav.py",
    "--data_path drawn/train --nmb_crops 2 2 --size_crops 64 32 --min_scale_crops 0.14 0.05 "
    "--max_scale_crops 1 0.14 --batch_size 4 --epochs 2 --warmup_epochs 0 --base_lr 0.6 "
    "--nmb_prototypes 32 --hidden_mlp 64 --feat_dim 32 --queue_length 0 --workers 0 "
    "--use_fp16 false --freeze_prototypes_niters 1 --dump_path .",
    (),
    ("apex",),
    2,
)  # fmt: skip
SEMSEG = Program(
    "semseg `train.py`, PSPNet, images of 65", "semseg", "tool/train.py",
    "--config config/cityscapes/cityscapes_pspnet50.yaml data_root drawn train_list drawn/list.txt "
    "train_h 65 train_w 65 train_gpu [0,1] workers 0 batch_size 4 epochs 1 save_path out "
    "base_lr 0.001",
    (
        Change("config/cityscapes/cityscapes_pspnet50.yaml", "manual_seed:", "manual_seed: 2"),
        Change("model/pspnet.py", "pretrained=True)", "pretrained=False)"),
        Change("util/transform.py", "collections.Iterable", "collections.abc.Iterable"),
        Change("util/transform.py", "import collections", "import collections.abc"),
    ),
    (),
    2,
)  # fmt: skip
IMAGENET = Program(
    "pytorch/examples `imagenet/main.py`, resnet18", "examples", "imagenet/main.py",
    "drawn -a resnet18 -b 8 -j 0 --epochs 1 --seed 1 --lr 0.01 --multiprocessing-distributed "
    "--dist-url tcp://127.0.0.1:23456 --world-size 1 --rank 0",
)  # fmt: skip
TIMM = Program(
    "timm `train.py`, resnet10t, images of 64", "pytorch-image-models", "train.py",
    "--data-dir drawn --model resnet10t --num-classes 2 --input-size 3 64 64 -b 4 --epochs 1 -j 0 "
    "--output out",
)  # fmt: skip
MAE = Program(
    "MAE `main_pretrain.py`, 2 and 1 layers, images of 64", "mae", "main_pretrain.py",
    "--data_path drawn --input_size 64 --batch_size 4 --epochs 2 --warmup_epochs 1 --num_workers 0 "
    "--output_dir out --log_dir out",
    (
        # timm and torch as they are today.
        Change("main_pretrain.py", 'assert timm.__version__ == "0.3.2"', ""),
        Change("main_pretrain.py", "y.add_weight_decay(", "y.param_groups_weight_decay("),
        Change("models_mae.py", "qk_scale=None, ", ""),
        Change("models_mae.py", "img_size=224", "img_size=64"),
        Change("models_mae.py", "embed_dim=768, depth=12", "embed_dim=192, depth=2"),
        Change("models_mae.py", "decoder_embed_dim=512", "decoder_embed_dim=128"),
        Change("models_mae.py", "decoder_depth=8", "decoder_depth=1"),
        Change("util/misc.py", "from torch._six import inf", "from math import inf"),
        Change("util/pos_embed.py", "np.float)", "float)"),
        Change("main_pretrain.py", "mae_vit_large_patch16", "mae_vit_base_patch16"),
    ),
    (),
    3,
)  # fmt: skip
DIT = Program(
    "DiT `train.py`, DiT-S/8 of 2 layers", "DiT", "train.py",
    "--data-path drawn/train --model DiT-S/8 --global-batch-size 4 --epochs 1 --num-workers 0 "
    "--results-dir out --log-every 1 --ckpt-every 4",
    (
        Change("models.py", "depth=12, hidden_size=384", "depth=2, hidden_size=384"),
        Change(
            "train.py", 'AutoencoderKL.from_pretrained(f"stabilityai/sd-vae-ft-{args.vae}")',
            'AutoencoderKL(down_block_types=("DownEncoderBlock2D",) * 4, '
            'up_block_types=("UpDecoderBlock2D",) * 4, block_out_channels=(8, 8, 8, 8), '
            "norm_num_groups=4)",
        ),
    ),
    (),
    3,
)  # fmt: skip
PROGRAMS = [IMAGENET, TIMM, DINOV2, SWAV, SEMSEG, MAE, DIT]


def pictures(folder: Path) -> None:
    """Drawn pictures in a folder for each class, and what programs ask for beside them."""
    drawn = np.random.default_rng(0)
    entries, pairs = [], []
    for split in ("train", "val"):
        for label in range(CLASSES):
            there = folder / split / f"n{label}"
            there.mkdir(parents=True)
            for number in range(PICTURES):
                coarse = drawn.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                file = there / f"n{label}_{number}.JPEG"
                Image.fromarray(coarse).resize((SIDE, SIDE)).save(file)
                if split == "train":
                    entries.append((number, label, f"n{label}", f"class {label}"))
                    mask = Image.fromarray(drawn.integers(0, 19, (5, 5), dtype=np.uint8))
                    named = file.with_suffix(".mask.png")
                    mask.resize((SIDE, SIDE), Image.Resampling.NEAREST).save(folder / named.name)
                    pairs.append(f"{file.relative_to(folder)} {named.name}\n")
    (folder / "list.txt").write_text("".join(pairs))
    kinds = [
        ("actual_index", "<u4"),
        ("class_index", "<u4"),
        ("class_id", "U8"),
        ("class_name", "U8"),
    ]
    np.save(folder / "entries-TRAIN.npy", np.array(entries, dtype=kinds))


def lay(program: Program, checkouts: Path, work: Path) -> tuple[Path, list[str]]:
    """A copy of its repository to start it in, and its command."""
    folder = work / program.repository
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(
        checkouts / program.repository, folder, ignore=shutil.ignore_patterns(".git", "*.ipynb")
    )
    pictures(folder / "drawn")
    for name in program.stand_ins:
        shutil.copytree(HERE / "files/ranks" / name, folder / name)
    (folder / "out").mkdir()
    for change in program.changes:
        file = folder / change.file
        source = file.read_text()
        if change.old not in source:
            raise SystemExit(f"{program.name}: {change.file} has no {change.old!r}")
        file.write_text(source.replace(change.old, change.new))
    return folder, [program.script, *shlex.split(program.arguments)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", default="", help="programs whose name has this")
    parser.add_argument("--target", choices=["torchax", "torch_xla"], default="torchax")
    parser.add_argument("--work", type=Path, help="a folder that is kept")
    asked = parser.parse_args()
    work = (asked.work or Path(tempfile.mkdtemp())).resolve()
    work.mkdir(exist_ok=True, parents=True)
    for program in PROGRAMS:
        if asked.only in program.name:
            folder, command = lay(program, asked.checkouts, work)
            row = verified(folder, command, asked.target, 2, program.steps)
            print(f"| {program.name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
