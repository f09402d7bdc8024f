"""A stand-in for Fashion-MNIST: drawn shapes, with noise, of ten kinds."""

import numpy as np

CLASSES = 10
SIZE = 28


def drawn(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (count, 28, 28, 1) and labels (count,), both in uint8."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, count).astype(np.uint8)
    y, x = np.mgrid[0:SIZE, 0:SIZE] / (SIZE - 1) * 2 - 1
    images = np.empty((count, SIZE, SIZE, 1), np.uint8)
    for number, label in enumerate(labels):
        tilt, size = generator.normal(0, 0.2), generator.uniform(0.6, 0.9)
        along, across = x * np.cos(tilt) + y * np.sin(tilt), y * np.cos(tilt) - x * np.sin(tilt)
        # Wider or higher, round or angular, with a hole or without.
        wide, power = 0.5 + 0.1 * (label % 5), 2.0 if label < 5 else 6.0
        distance = np.abs(along / wide) ** power + np.abs(across * (0.6 + 0.1 * label)) ** power
        shape = (distance < size**power) & ((label % 2 == 0) | (distance > 0.2))
        light = shape * generator.uniform(120, 220) + generator.normal(0, 25, shape.shape)
        images[number, ..., 0] = np.clip(light, 0, 255)
    return images, labels
