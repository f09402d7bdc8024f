"""Metrics of small-target detection; all of them work on NumPy arrays, on the host.

Scores (0..1) and masks (0 or 1) have the shape (batch, 1, height, width).
"""

import cv2
import numpy as np


class AverageMeter:
    """Mean of a value over samples."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, value: float, count: int = 1) -> None:
        """Add `count` samples whose mean is `value`."""
        self.total += value * count
        self.count += count

    @property
    def average(self) -> float:
        """The mean so far."""
        return self.total / max(self.count, 1)


class IoU:
    """mIoU over the pixels of all images, and nIoU: the mean of the IoU of each image."""

    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold = threshold
        self.overlap, self.union = 0, 0
        self.of_images: list[float] = []

    def update(self, scores: np.ndarray, masks: np.ndarray) -> None:
        """Add a batch."""
        found, wanted = scores > self.threshold, masks > 0
        overlap = (found & wanted).sum(axis=(1, 2, 3))
        union = (found | wanted).sum(axis=(1, 2, 3))
        self.overlap += int(overlap.sum())
        self.union += int(union.sum())
        # nothing to find and nothing found: right
        self.of_images += [o / u if u else 1.0 for o, u in zip(overlap, union, strict=True)]

    def get(self) -> tuple[float, float]:
        """mIoU and nIoU."""
        niou = float(np.mean(self.of_images)) if self.of_images else 0.0
        return self.overlap / max(self.union, 1), niou


class PDFA:
    """Probability of detection (of whole targets) and false alarms (a fraction of the pixels).

    A target is detected if a region of the prediction, not yet taken by another target, has its
    centroid within `distance` pixels of the target's. The other regions are false alarms.
    """

    def __init__(self, threshold: float = 0.5, distance: float = 3.0) -> None:
        self.threshold, self.distance = threshold, distance
        self.targets, self.detected, self.false_pixels, self.pixels = 0, 0, 0, 0

    def update(self, scores: np.ndarray, masks: np.ndarray) -> None:
        """Add a batch."""
        for score, mask in zip(scores[:, 0], masks[:, 0], strict=True):
            regions = components(score > self.threshold)
            targets = components(mask > 0)
            for centroid, _ in targets:
                for i, (other, _) in enumerate(regions):
                    if np.linalg.norm(centroid - other) < self.distance:
                        self.detected += 1
                        del regions[i]
                        break
            self.targets += len(targets)
            self.false_pixels += sum(area for _, area in regions)
            self.pixels += score.size

    def get(self) -> tuple[float, float]:
        """PD and FA."""
        return self.detected / max(self.targets, 1), self.false_pixels / max(self.pixels, 1)


def components(binary: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """The 8-connected regions of a boolean image: centroid (x, y) and area of each."""
    _, _, stats, centroids = cv2.connectedComponentsWithStats(binary.astype(np.uint8))
    areas = stats[:, cv2.CC_STAT_AREA].tolist()
    return list(zip(centroids, areas, strict=True))[1:]  # the first is the background


class ROC:
    """True and false positive rate of the pixels at `bins` + 1 thresholds from 0 to 1."""

    def __init__(self, bins: int = 10) -> None:
        self.thresholds = np.linspace(0, 1, bins + 1)
        self.true, self.false = np.zeros(bins + 1, np.int64), np.zeros(bins + 1, np.int64)
        self.positives, self.negatives = 0, 0

    def update(self, scores: np.ndarray, masks: np.ndarray) -> None:
        """Add a batch."""
        wanted = masks > 0
        for i, threshold in enumerate(self.thresholds):
            found = scores > threshold
            self.true[i] += np.count_nonzero(found & wanted)
            self.false[i] += np.count_nonzero(found & ~wanted)
        self.positives += np.count_nonzero(wanted)
        self.negatives += np.count_nonzero(~wanted)

    def get(self) -> tuple[np.ndarray, np.ndarray]:
        """True positive rates and false positive rates."""
        return self.true / max(self.positives, 1), self.false / max(self.negatives, 1)
