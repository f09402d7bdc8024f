"""Train and test MSHNet for infrared small-target detection.

    python main.py --dataset-dir data/IRSTD-1k --epochs 400 --batch-size 4
    python main.py --dataset-dir data/IRSTD-1k --mode test --weight-path runs/best.pth

The data set has the layout of IRSTD-1k; make_data.py draws one.
"""

import argparse
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Adagrad
from torch.utils.data import DataLoader
from tqdm import tqdm

from data import IRSTDDataset
from loss import SLSIoULoss
from metrics import PDFA, ROC, AverageMeter, IoU
from model import MSHNet
from record import Recorder


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset-dir", type=Path, default=Path("data"))
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--warm-epoch", type=int, default=5, help="epochs on the finest scale only")
    parser.add_argument("--base-size", type=int, default=256)
    parser.add_argument("--crop-size", type=int, default=256)
    parser.add_argument("--width", type=int, default=16, help="channels of the finest scale")
    parser.add_argument("--blocks", type=int, default=2, help="residual blocks of a coarser scale")
    parser.add_argument("--multi-gpus", action="store_true", help="use all GPUs")
    parser.add_argument("--if-checkpoint", action="store_true", help="go on from a checkpoint")
    parser.add_argument("--mode", choices=["train", "test"], default="train")
    parser.add_argument(
        "--weight-path",
        type=Path,
        help="the checkpoint, or the weights to test; default: those in --save-dir",
    )
    parser.add_argument("--save-dir", type=Path, default=Path("runs"))
    parser.add_argument("--record", type=Path, help="write losses, metrics and final state here")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy, the CPU and every GPU."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


class Trainer:
    """The model with its data, loss, optimizer and metrics."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.recorder = Recorder()
        self.start_epoch, self.best_iou = 0, 0.0

        sizes = {"base_size": args.base_size, "crop_size": args.crop_size}
        self.train_set = IRSTDDataset(args.dataset_dir, "train", seed=args.seed, **sizes)
        self.order = torch.Generator()  # of the training images
        self.train_loader = DataLoader(
            self.train_set,
            batch_size=args.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=args.workers,
            pin_memory=True,
            generator=self.order,
        )
        test_set = IRSTDDataset(args.dataset_dir, "test", **sizes)
        self.test_loader = DataLoader(test_set, batch_size=1, pin_memory=True)

        self.net = MSHNet(width=args.width, blocks=args.blocks).to(self.device)
        self.model: nn.Module = self.net
        if args.multi_gpus and torch.cuda.device_count() > 1:
            print(f"using {torch.cuda.device_count()} GPUs")
            self.model = nn.DataParallel(self.net).cuda()

        self.criterion = SLSIoULoss(args.warm_epoch).to(self.device)
        self.down = nn.MaxPool2d(2, 2)
        self.optimizer = Adagrad(self.net.parameters(), lr=args.lr)

    def load(self, path: Path) -> None:
        """Load the weights of a checkpoint, or of a file that holds nothing else."""
        state = torch.load(path, map_location=self.device)
        self.net.load_state_dict(state.get("net", state))

    def resume(self, path: Path) -> None:
        """Go on after the epoch that wrote checkpoint `path`."""
        checkpoint = torch.load(path, map_location=self.device)
        self.net.load_state_dict(checkpoint["net"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.start_epoch = checkpoint["epoch"] + 1
        self.best_iou = checkpoint["iou"]
        print(f"resumed from {path}, epoch {self.start_epoch}")

    def save(self, epoch: int, iou: float) -> None:
        """Write the checkpoint, and the weights too if they are the best so far."""
        folder = self.args.save_dir
        folder.mkdir(parents=True, exist_ok=True)
        if iou >= self.best_iou:
            self.best_iou = iou
            torch.save(self.net.state_dict(), folder / "best.pth")
        checkpoint: dict[str, Any] = {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": epoch,
            "iou": self.best_iou,
        }
        torch.save(checkpoint, folder / "checkpoint.pth")
        if epoch + 1 == self.args.warm_epoch:  # kept, to try other settings from here
            shutil.copy(folder / "checkpoint.pth", folder / "warm.pth")

    def train(self, epoch: int) -> None:
        """One epoch of training."""
        self.model.train()
        self.train_set.set_epoch(epoch)
        self.order.manual_seed(self.args.seed + epoch)
        warm_flag = epoch >= self.args.warm_epoch
        losses = AverageMeter()
        bar = tqdm(self.train_loader)
        for image, label in bar:
            image = image.to(self.device, non_blocking=True)
            label = label.to(self.device, non_blocking=True)

            masks, output = self.model(image, warm_flag)
            loss = self.criterion(output, label, epoch)
            for scale, mask in enumerate(masks):
                if scale > 0:
                    label = self.down(label)
                loss = loss + self.criterion(mask, label, epoch)
            loss = loss / (len(masks) + 1)

            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

            value = loss.item()
            losses.update(value, image.size(0))
            self.recorder.add(train_loss=value)
            bar.set_description(f"epoch {epoch}, loss {losses.average:.4f}")
        self.recorder.add(epoch_loss=losses.average)

    @torch.no_grad()
    def test(self, epoch: int) -> float:
        """Evaluate on the test images; returns the mIoU."""
        self.model.eval()
        warm_flag = epoch >= self.args.warm_epoch
        iou, pd_fa, roc = IoU(), PDFA(), ROC()
        scores = []
        bar = tqdm(self.test_loader)
        for image, label in bar:
            _, output = self.model(image.to(self.device, non_blocking=True), warm_flag)
            score = torch.sigmoid(output).cpu().numpy()
            for metric in (iou, pd_fa, roc):
                metric.update(score, label.numpy())
            scores.append(score)
            bar.set_description(f"epoch {epoch}, mIoU {iou.get()[0]:.4f}")

        miou, niou = iou.get()
        pd, fa = pd_fa.get()
        true_rate, false_rate = roc.get()
        self.recorder.add(test_miou=miou, test_niou=niou, test_pd=pd, test_fa=fa)
        self.recorder.keep(
            test_scores=np.concatenate(scores), roc_true=true_rate, roc_false=false_rate
        )
        print(f"epoch {epoch}: mIoU {miou:.4f}, nIoU {niou:.4f}, PD {pd:.4f}, FA {fa * 1e6:.1f}e-6")
        return miou

    def fit(self) -> None:
        """Train and test from the first epoch, or the one after the checkpoint, to the last."""
        for epoch in range(self.start_epoch, self.args.epochs):
            with self.recorder.timed("train_epoch"):
                self.train(epoch)
            with self.recorder.timed("test_epoch"):
                iou = self.test(epoch)
            self.save(epoch, iou)
            torch.cuda.empty_cache()


def main() -> None:
    """Train or test, as the command line says."""
    args = parse_args()
    seed_everything(args.seed)
    # Fixed image sizes: let cuDNN pick its fastest convolution once. No TF32, runs on different
    # cards are compared.
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False

    trainer = Trainer(args)
    if args.mode == "train":
        if args.if_checkpoint:
            trainer.resume(args.weight_path or args.save_dir / "checkpoint.pth")
        trainer.fit()
    else:
        trainer.load(args.weight_path or args.save_dir / "best.pth")
        trainer.test(args.epochs)
    if args.record:
        trainer.recorder.write(args.record, trainer.net, trainer.optimizer)
    if torch.cuda.is_available():
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
