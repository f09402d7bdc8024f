"""image_ops: its golden, the GPU original through the CPU stand-in, and the crop and resize."""

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
APP, GOLDEN = ROOT / "reference_apps" / "image_ops", ROOT / "golden" / "image_ops"
SETTINGS = tomllib.loads((APP / "app.toml").read_text(encoding="utf-8"))
DRAWN_BY = "4.14.0"  # the OpenCV that drew the data
MODULES = ("crop_resize_blur", "timing", "make_data")


@pytest.fixture(scope="module")
def app() -> Iterator[dict[str, ModuleType]]:
    """The app's modules, imported as the app imports them."""
    sys.path.insert(0, str(APP))
    yield {name: importlib.import_module(name) for name in MODULES}
    sys.path.remove(str(APP))
    for name in MODULES:
        del sys.modules[name]


@pytest.fixture(scope="module")
def steps(app: dict[str, ModuleType]) -> ModuleType:
    """Module crop_resize_blur."""
    return app["crop_resize_blur"]


# the golden


def test_golden_values_make_sense() -> None:
    golden = load_file(GOLDEN / "outputs.safetensors")
    top, left, bottom, right = golden["crop.box"]
    assert (bottom - top) % 2 == 0 and (right - left) % 2 == 0 and bottom - top >= 512
    assert golden["decoders.difference"] == 0
    largest, smallest, mean, median = golden["photo.statistics"]
    assert 0.004 < largest < 0.0079 and -0.0079 < smallest < 0 and abs(mean) < 1e-3
    assert abs(median) < 1e-6
    total, differing, visible = golden["photo.counts"]
    assert total == 640 * 1080 * 3 and 0 < visible < differing < total
    assert golden["bfloat16.torchvision.factor"][0] > 1.5
    assert set(np.unique(golden["resize.mask"])) == {0, 1}
    assert golden["blur.mask"].max() > 254.9 and golden["blur.mask"].min() == 0


def test_the_original_knows_nothing_of_tpus() -> None:
    for path in APP.glob("*.py"):
        found = re.search(r"\b(tpu|jax|torchax|xla|migrat\w*|stand.?in)\b", path.read_text(), re.I)
        assert found is None, f"{path.name}: {found}"


def test_the_data_are_those_of_make_data(app: dict[str, ModuleType]) -> None:
    if cv2.__version__ != DRAWN_BY:
        pytest.skip("another OpenCV may draw text differently")
    photo = cv2.imread(str(APP / "data" / "photo.png"))[..., ::-1]
    assert np.array_equal(photo, app["make_data"].photo())
    frames = app["crop_resize_blur"].read_clip(APP / "data" / "clip.avi")
    masks = app["crop_resize_blur"].read_clip(APP / "data" / "mask.avi")
    assert frames.shape == masks.shape == (1, 3, 3, 1080, 1920)
    frame, mask = app["make_data"].clip_frame(1)
    assert np.array_equal(frames[0, 1].permute(1, 2, 0).numpy(), frame)
    assert np.array_equal(masks[0, 1, 0].numpy(), mask)


# the crop


def test_bounds_are_over_frames_and_channels(steps: ModuleType) -> None:
    mask = torch.zeros(1, 2, 2, 40, 60)
    mask[0, 0, 1, 5, 7] = 1
    mask[0, 1, 0, 30, 50] = 0.51
    mask[0, 1, 1, 39, 59] = 0.5  # not above
    assert steps.mask_bounds(mask) == (5, 7, 31, 51)


def test_an_empty_mask_takes_the_whole_image(steps: ModuleType) -> None:
    assert steps.mask_bounds(torch.zeros(1, 1, 1, 8, 8)) is None
    assert steps.crop_box(None, 1080, 1920) == (0, 0, 1080, 1920)


def test_padding_is_half_of_the_bounds(steps: ModuleType) -> None:
    assert steps.crop_box(steps.Box(240, 600, 840, 1200), 1080, 1920) == (90, 450, 990, 1350)


def test_small_bounds_grow_to_the_minimum(steps: ModuleType) -> None:
    assert steps.crop_box(steps.Box(500, 900, 510, 910), 1080, 1920) == (249, 649, 761, 1161)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0, 0, 20, 20), (0, 0, 512, 512)),
        ((1070, 1910, 1080, 1920), (568, 1408, 1080, 1920)),
        ((0, 0, 1080, 1920), (0, 0, 1080, 1920)),
    ],
)
def test_at_the_border_the_region_is_shifted_inside(
    steps: ModuleType, bounds: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert steps.crop_box(steps.Box(*bounds), 1080, 1920) == expected


def test_long_bounds_widen_to_the_critical_aspect_ratio(steps: ModuleType) -> None:
    box = steps.crop_box(steps.Box(500, 300, 520, 1100), 1080, 1920)
    assert (box.bottom - box.top, box.right - box.left) == (600, 1200)
    box = steps.crop_box(steps.Box(100, 900, 700, 910), 1080, 1920)
    assert (box.bottom - box.top, box.right - box.left) == (900, 512)


@pytest.mark.parametrize("size", [(1080, 1920), (721, 1281), (512, 512), (101, 63), (2, 2)])
def test_sides_are_even_and_inside(steps: ModuleType, size: tuple[int, int]) -> None:
    height, width = size
    rng = np.random.default_rng(0)
    for _ in range(200):
        top, bottom = sorted(rng.choice(height + 1, 2, replace=False))
        left, right = sorted(rng.choice(width + 1, 2, replace=False))
        box = steps.crop_box(steps.Box(*map(int, (top, left, bottom, right))), height, width)
        assert 0 <= box.top < box.bottom <= height and 0 <= box.left < box.right <= width
        assert (box.bottom - box.top) % 2 == 0 and (box.right - box.left) % 2 == 0
        assert box.bottom - box.top >= min(512, height - height % 2)
        assert box.right - box.left >= min(512, width - width % 2)


# the resize


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((742, 930), (640, 800)),
        ((1080, 1920), (640, 1136)),
        ((1920, 1080), (1136, 640)),
        ((512, 1200), (544, 1280)),
        ((100, 1000), (128, 1280)),
        ((640, 640), (640, 640)),
        ((2, 400), (16, 1280)),
    ],
)
def test_target_size(steps: ModuleType, size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert steps.target_size(*size) == expected


@pytest.mark.parametrize("limit", [1, 3 * 40 * 60 * 4, 2 * 3 * 40 * 60 * 4, 3 * 3 * 40 * 60 * 4])
def test_chunks_equal_the_whole(steps: ModuleType, limit: int) -> None:
    torch.manual_seed(0)
    clip = torch.rand(1, 5, 3, 40, 60)
    whole = steps.resize(clip, (32, 48))
    assert whole.shape == (1, 5, 3, 32, 48)
    assert torch.equal(steps.resize(clip, (32, 48), limit), whole)
    assert torch.equal(steps.resize(clip[0], (32, 48), limit), whole[0])


def test_blur_is_the_gaussian_of_the_mask(steps: ModuleType) -> None:
    mask = torch.zeros(1, 1, 1, 31, 31, dtype=torch.uint8)
    mask[..., 15, 15] = 1
    blurred = steps.blur_mask(mask)[0, 0, 0].numpy()
    offsets = np.arange(-3, 4)
    kernel = np.exp(-0.5 * (offsets / 1.5) ** 2)
    expected = 255 * np.outer(kernel, kernel) / kernel.sum() ** 2
    assert np.allclose(blurred[12:19, 12:19], expected, atol=1e-4)
    assert blurred.dtype == np.float32 and np.isclose(blurred.sum(), 255, atol=1e-3)
