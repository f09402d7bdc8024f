"""An infrared small-target data set in the layout of IRSTD-1k.

DIR/images/NAME.png, DIR/masks/NAME.png, and DIR/trainval.txt and DIR/test.txt: a NAME on each line.
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps
from torch.utils.data import Dataset
from torchvision import transforms

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class IRSTDDataset(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Pairs of a normalised image (3, height, width) and a mask (1, height, width) of 0 and 1.

    For training, images are flipped, scaled, cropped and blurred at random. What happens to an
    image depends on `seed`, the epoch and its index only, so neither the number of workers nor a
    resumed run changes it. For testing, images are resized to `base_size`.
    """

    def __init__(
        self, root: Path, mode: str, base_size: int = 256, crop_size: int = 256, seed: int = 0
    ) -> None:
        self.root, self.mode = root, mode
        self.base_size, self.crop_size = base_size, crop_size
        self.seed, self.epoch = seed, 0
        listed = root / ("trainval.txt" if mode == "train" else "test.txt")
        self.names = listed.read_text().split()
        self.to_tensor = transforms.Compose(
            [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        )

    def __len__(self) -> int:
        return len(self.names)

    def set_epoch(self, epoch: int) -> None:
        """Choose the random transforms of `epoch`; call it before the loader is iterated."""
        self.epoch = epoch

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        file = f"{self.names[index]}.png"
        image = Image.open(self.root / "images" / file).convert("RGB")
        mask = Image.open(self.root / "masks" / file).convert("L")
        if self.mode == "train":
            rng = np.random.default_rng([self.seed, self.epoch, index])
            image, mask = augment(image, mask, self.base_size, self.crop_size, rng)
        else:
            size = (self.base_size, self.base_size)
            image, mask = image.resize(size, Image.BILINEAR), mask.resize(size, Image.NEAREST)
        binary = (np.array(mask) > 127).astype(np.float32)
        return self.to_tensor(image), torch.from_numpy(binary).unsqueeze(0)


def augment(
    image: Image.Image,
    mask: Image.Image,
    base_size: int,
    crop_size: int,
    rng: np.random.Generator,
) -> tuple[Image.Image, Image.Image]:
    """Flip, scale (short side half to twice `base_size`), crop to `crop_size` and blur."""
    if rng.random() < 0.5:
        image, mask = ImageOps.mirror(image), ImageOps.mirror(mask)

    short = int(rng.integers(base_size // 2, base_size * 2, endpoint=True))
    scale = short / min(image.size)
    size = (round(image.width * scale), round(image.height * scale))
    image, mask = image.resize(size, Image.BILINEAR), mask.resize(size, Image.NEAREST)

    missing = (0, 0, max(crop_size - size[0], 0), max(crop_size - size[1], 0))
    image, mask = ImageOps.expand(image, missing), ImageOps.expand(mask, missing)
    left = int(rng.integers(image.width - crop_size, endpoint=True))
    top = int(rng.integers(image.height - crop_size, endpoint=True))
    box = (left, top, left + crop_size, top + crop_size)
    image, mask = image.crop(box), mask.crop(box)

    if rng.random() < 0.5:
        image = image.filter(ImageFilter.GaussianBlur(radius=rng.random()))
    return image, mask
