"""mshnet: its golden, the GPU original through the CPU stand-in, and each of its parts."""

import importlib
import json
import math
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
APP, GOLDEN = ROOT / "reference_apps" / "mshnet", ROOT / "golden" / "mshnet"
SETTINGS = tomllib.loads((APP / "app.toml").read_text(encoding="utf-8"))
MODULES = ("main", "model", "loss", "data", "metrics", "record", "make_data")


@pytest.fixture(scope="module")
def app() -> Iterator[dict[str, ModuleType]]:
    """The app's modules, imported as the app imports them."""
    sys.path.insert(0, str(APP))
    yield {name: importlib.import_module(name) for name in MODULES}
    sys.path.remove(str(APP))
    for name in MODULES:
        del sys.modules[name]


# the golden


def test_the_golden_has_two_epochs_on_each_side_of_the_warm_up() -> None:
    golden = load_file(GOLDEN / "outputs.safetensors")
    warm, later = golden["train_loss"][:2], golden["train_loss"][2:]
    assert len(warm) == len(later) == 2
    assert 0 < warm.max() < 1 < later.min()  # an IoU alone, then with the location's term
    assert golden["epoch_loss"].shape == golden["test_miou"].shape == (4,)
    assert 0 < golden["test_miou"].max() < 1 and 0 < golden["test_pd"].max() < 1
    assert set(golden["state.num_batches_tracked"]) == {4}
    assert np.all(golden["state.running_var"] > 0)
    assert all(np.isfinite(values).all() for values in golden.values())


def test_the_original_knows_nothing_of_tpus() -> None:
    for path in APP.glob("*.py"):
        found = re.search(r"\b(tpu|jax|torchax|xla|migrat\w*|stand.?in)\b", path.read_text(), re.I)
        assert found is None, f"{path.name}: {found}"


# the data


def test_the_data_are_those_of_make_data(app: dict[str, ModuleType]) -> None:
    names = [(APP / "data" / file).read_text().split() for file in ("trainval.txt", "test.txt")]
    assert [len(part) for part in names] == [8, 4]
    for number, name in enumerate(names[0] + names[1]):
        image, mask = app["make_data"].draw(32, 20240301, number)
        stored = np.array(Image.open(APP / "data" / "images" / f"{name}.png")).astype(int)
        assert np.abs(stored - image).max() <= 1  # OpenCV's cubic resize may round differently
        assert np.array_equal(Image.open(APP / "data" / "masks" / f"{name}.png"), mask)
        assert image[mask > 0].mean() > image[mask == 0].mean() + 40  # bright targets


def test_transforms_keep_image_and_mask_aligned(app: dict[str, ModuleType]) -> None:
    """A mask that is also the image stays where the image's is."""
    picture = np.zeros((40, 60), np.uint8)
    picture[8:20, 10:24] = 255
    mask = Image.fromarray(picture)
    sizes, seen = set(), 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        image, moved = app["data"].augment(mask.convert("RGB"), mask, 32, 32, rng)
        assert image.size == moved.size == (32, 32) and image.mode == "RGB"
        bright, wanted = np.array(image.convert("L")) > 127, np.array(moved) > 127
        sizes.add(int(wanted.sum()))
        overlap, union = (bright & wanted).sum(), (bright | wanted).sum()
        if wanted.sum() > 60:
            assert overlap / union > 0.8
            seen += 1
    assert seen > 20 and len(sizes) > 20


def test_transforms_depend_on_seed_epoch_and_index_only(app: dict[str, ModuleType]) -> None:
    def item(seed: int, epoch: int, index: int) -> torch.Tensor:
        dataset = app["data"].IRSTDDataset(APP / "data", "train", 32, 32, seed)
        dataset.set_epoch(epoch)
        _ = dataset[(index + 1) % 8]  # what came before does not matter
        image, mask = dataset[index]
        assert image.shape == (3, 32, 32) and mask.shape == (1, 32, 32)
        assert set(mask.unique().tolist()) <= {0.0, 1.0}
        return image

    assert torch.equal(item(0, 1, 2), item(0, 1, 2))
    others = [item(1, 1, 2), item(0, 2, 2), item(0, 1, 3)]
    assert not any(torch.equal(item(0, 1, 2), other) for other in others)


def test_test_images_are_resized_only(app: dict[str, ModuleType]) -> None:
    dataset = app["data"].IRSTDDataset(APP / "data", "test", 64)
    image, mask = dataset[0]
    assert len(dataset) == 4 and image.shape == (3, 64, 64) and mask.shape == (1, 64, 64)
    stored = np.array(Image.open(APP / "data" / "masks" / f"{dataset.names[0]}.png")) > 0
    assert np.array_equal(mask[0].numpy() > 0, stored.repeat(2, 0).repeat(2, 1))


# the model and the loss


def test_the_model_predicts_at_one_scale_then_at_four(app: dict[str, ModuleType]) -> None:
    torch.manual_seed(0)
    model = app["model"].MSHNet(width=2)
    images = torch.randn(2, 3, 32, 48)
    masks, output = model(images, False)
    assert masks == [] and output.shape == (2, 1, 32, 48)
    output.sum().backward()
    idle = {name for name, value in model.named_parameters() if value.grad is None}
    assert {name.split(".")[0] for name in idle} == {"heads", "final"}
    assert not any(name.startswith("heads.0") for name in idle)
    masks, output = model(images, True)
    assert [tuple(mask.shape[2:]) for mask in masks] == [(32, 48), (16, 24), (8, 12), (4, 6)]
    assert output.shape == (2, 1, 32, 48)


def test_no_parameter_has_a_gradient_of_zero_by_nature(app: dict[str, ModuleType]) -> None:
    """A bias in front of BatchNorm would: there is none, so parameters compare by value."""
    for block in app["model"].MSHNet(width=2).modules():
        if isinstance(block, app["model"].ResidualBlock):
            convolutions = [m for m in block.modules() if isinstance(m, nn.Conv2d)]
            assert all(convolution.bias is None for convolution in convolutions)


def reference_loss(logits: np.ndarray, target: np.ndarray, warm: bool) -> float:
    """SLSIoU, image by image."""
    losses = []
    for pred, mask in zip(1 / (1 + np.exp(-logits[:, 0])), target[:, 0], strict=True):
        overlap, p, t = (pred * mask).sum(), pred.sum(), mask.sum()
        iou = overlap / (p + t - overlap)
        if warm:
            losses.append(1 - iou)
            continue
        spread = ((p - t) / 2) ** 2
        loss = 1 - iou * (min(p, t) + spread) / (max(p, t) + spread)
        if t:
            rows, columns = np.indices(mask.shape)
            y, x = (rows + 0.5) / mask.shape[0], (columns + 0.5) / mask.shape[1]
            centres = [((m * y).sum() / m.sum(), (m * x).sum() / m.sum()) for m in (pred, mask)]
            (r1, a1), (r2, a2) = ((math.hypot(*c), math.atan2(*c)) for c in centres)
            loss += 1 - min(r1, r2) / max(r1, r2) + 4 / math.pi**2 * (a1 - a2) ** 2
        losses.append(loss)
    return float(np.mean(losses))


@pytest.mark.parametrize("epoch", [0, 4, 5, 9])
def test_loss_against_numpy(app: dict[str, ModuleType], epoch: int) -> None:
    rng = np.random.default_rng(epoch)
    logits = rng.normal(size=(3, 1, 12, 20))
    target = np.zeros_like(logits)  # the last one stays empty
    target[0, 0, 2:5, 3:6] = 1
    target[1, 0, 7, 18] = 1
    values = torch.from_numpy(logits).requires_grad_()
    loss = app["loss"].SLSIoULoss(warm_epoch=5)(values, torch.from_numpy(target), epoch)
    assert loss.item() == pytest.approx(reference_loss(logits, target, epoch < 5), rel=1e-7)
    loss.backward()
    assert values.grad is not None and torch.isfinite(values.grad).all()
    assert values.grad[0].abs().sum() > 0


def test_loss_falls_towards_the_target(app: dict[str, ModuleType]) -> None:
    target = torch.zeros(1, 1, 16, 16)
    target[..., 4:8, 9:12] = 1
    loss = app["loss"].SLSIoULoss(warm_epoch=0)
    right, shifted, spread = (20 * m - 10 for m in (target, target.roll(2, -1), target * 0))
    assert loss(right, target, 0).item() < 0.02
    assert loss(right, target, 0) < loss(shifted, target, 0) < loss(spread, target, 0) + 1


# the metrics


def boxes(*corners: tuple[int, int]) -> np.ndarray:
    """A mask (1, 1, 20, 20) with a 2x2 box at each (row, column)."""
    mask = np.zeros((1, 1, 20, 20), np.float32)
    for row, column in corners:
        mask[0, 0, row : row + 2, column : column + 2] = 1
    return mask


def test_iou(app: dict[str, ModuleType]) -> None:
    iou = app["metrics"].IoU()
    iou.update(boxes((2, 2)), boxes((2, 3)))  # 2 of 6
    iou.update(boxes((2, 2), (9, 9)), boxes((2, 2), (9, 9)))  # 8 of 8
    iou.update(boxes(), boxes())
    assert iou.get() == (pytest.approx(10 / 14), pytest.approx((2 / 6 + 1 + 1) / 3))
    assert app["metrics"].IoU().get() == (0, 0)


def test_detection_and_false_alarms(app: dict[str, ModuleType]) -> None:
    pd_fa = app["metrics"].PDFA()
    # one two pixels off, one missed, one invented
    pd_fa.update(boxes((2, 4), (15, 2)), boxes((2, 2), (10, 15)))
    assert pd_fa.get() == (1 / 2, 4 / 400)
    # three pixels off is too far; a region is no two targets'
    pd_fa.update(boxes((2, 5)), boxes((2, 2)))
    pd_fa.update(boxes((10, 10)), boxes((10, 9), (11, 12)))
    assert pd_fa.get() == (2 / 5, 8 / 1200)


def test_components_are_eight_connected(app: dict[str, ModuleType]) -> None:
    (centroid, area), *others = app["metrics"].components(np.eye(5, dtype=bool))
    assert centroid.tolist() == [2, 2] and area == 5 and not others


def test_roc(app: dict[str, ModuleType]) -> None:
    roc = app["metrics"].ROC(bins=4)
    roc.update(np.array([0.1, 0.3, 0.6, 0.9]).reshape(1, 1, 2, 2), np.eye(2)[None, None])
    true_rate, false_rate = roc.get()
    assert true_rate.tolist() == [1, 0.5, 0.5, 0.5, 0]
    assert false_rate.tolist() == [1, 1, 0.5, 0, 0]


# training, on the CPU


TINY = (
    "--dataset-dir", str(APP / "data"), "--base-size", "32", "--crop-size", "32", "--width", "2",
    "--blocks", "1", "--batch-size", "2", "--workers", "0", "--lr", "0.01", "--warm-epoch", "1",
)  # fmt: skip


def trainer(app: dict[str, ModuleType], folder: Path, *flags: str) -> Any:
    """A trainer of the tiny preset for two epochs, as main() makes it, writing into `folder`."""
    command = ["main.py", *TINY, "--epochs", "2", "--save-dir", str(folder), *flags]
    with mock.patch.object(sys, "argv", command):
        args = app["main"].parse_args()
    app["main"].seed_everything(args.seed)
    return app["main"].Trainer(args)


@pytest.fixture(scope="module")
def trained(app: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trainer after two epochs, the second one behind the warm-up."""
    whole = trainer(app, tmp_path_factory.mktemp("whole"))
    whole.fit()
    return whole


@pytest.mark.thorough
def test_one_epoch_and_one_more_equal_two(
    app: dict[str, ModuleType], trained: Any, tmp_path: Path
) -> None:
    first = trainer(app, tmp_path, "--epochs", "1")
    first.fit()
    rest = trainer(app, tmp_path, "--if-checkpoint")
    rest.resume(tmp_path / "checkpoint.pth")
    assert rest.start_epoch == 1
    rest.fit()
    for name, values in trained.recorder.series.items():
        assert first.recorder.series[name] + rest.recorder.series[name] == values, name
    state_vectors = app["record"].state_vectors
    want, got = (state_vectors(t.net, t.optimizer) for t in (trained, rest))
    assert want.keys() == got.keys() and len(want) == 5
    assert all(torch.equal(want[name], got[name]) for name in want)


@pytest.mark.parametrize("file", ["checkpoint.pth", "best.pth"])
def test_test_mode_takes_a_checkpoint_or_weights(
    app: dict[str, ModuleType], trained: Any, file: str
) -> None:
    tester = trainer(app, trained.args.save_dir, "--mode", "test", "--seed", "7")
    tester.load(trained.args.save_dir / file)
    tester.test(trained.args.epochs)
    if file == "checkpoint.pth":
        want, got = (t.recorder.arrays["test_scores"] for t in (trained, tester))
        assert torch.equal(want, got)


def test_the_record_holds_series_state_and_times(trained: Any, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "record.safetensors"
    trained.recorder.write(path, trained.net, trained.optimizer)
    record, times = load_file(path), json.loads(path.with_suffix(".json").read_text())
    assert record["train_loss"].shape == (8,) and record["test_miou"].shape == (2,)
    count = sum(parameter.numel() for parameter in trained.net.parameters())
    assert record["state.parameters"].shape == record["state.adagrad_sum"].shape == (count,)
    assert times["repeat"] == 2 and times["steps"]["train_epoch"]["first_s"] > 0


def test_several_gpus_are_used_on_request(
    app: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(nn.DataParallel, "cuda", lambda self: self)
    wrapped = trainer(app, tmp_path, "--multi-gpus")
    assert isinstance(wrapped.model, nn.DataParallel) and wrapped.model.module is wrapped.net
    wrapped.save(0, 0.5)
    assert not any(name.startswith("module.") for name in torch.load(tmp_path / "best.pth"))
    assert not isinstance(trainer(app, tmp_path).model, nn.DataParallel)


def test_the_defaults_are_the_papers(
    app: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["main.py"])
    args = app["main"].parse_args()
    assert (args.batch_size, args.epochs, args.lr, args.warm_epoch) == (4, 400, 0.05, 5)
    assert (args.base_size, args.crop_size, args.mode) == (256, 256, "train")
