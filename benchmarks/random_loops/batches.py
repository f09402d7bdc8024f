"""How random loops get a batch: drawn, from lists and loaders, as slices of a device's data."""

from __future__ import annotations

import random
from dataclasses import dataclass

ROUNDS = 9
TOKENS = "tokens"  # in place of a shape: words, no numbers
_COUNTED = f"for step in range({ROUNDS}):"


@dataclass(frozen=True)
class Batch:
    """``text`` gives `x` and `y`, on the device, in a loop that begins with ``head``."""

    text: str
    setup: str = ""
    head: str = _COUNTED
    definition: str = ""


def drawn(shape: str) -> str:
    """An expression for random inputs of the CPU's generator."""
    return "torch.randint(0, 9, (6, 5))" if shape == TOKENS else f"torch.randn{shape}"


def batches(shape: str, chance: random.Random) -> list[Batch]:
    """All that a program may have."""
    one, classes = drawn(shape), "torch.randint(0, 4, (6,))"
    many, all_classes = (text.replace("(6,", f"({6 * ROUNDS},") for text in (one, classes))
    pair = f"({one}, {classes})"
    move = chance.choice(["x, y = x.to(device), y.to(device)", "x = x.cuda()\ny = y.to(device)"])
    data = f"data = [{pair} for _ in range(5)]"
    on_device = f"inputs = {many}.to(device)\nanswers = {all_classes}.cuda()"
    generator = f"def batches(count):\n    for _ in range(count):\n        yield {pair}\n"
    dataset = f"dataset = torch.utils.data.TensorDataset({many}, {all_classes})"
    loader = "loader = torch.utils.data.DataLoader(dataset, batch_size=6, shuffle=True)"
    fetched = "for step, (x, y) in enumerate({}):"
    found = [
        Batch(f"x = {one}\ny = {classes}\n{move}"),
        Batch(f"x = {one}.to(device)\ny = {classes}.to(device)"),
        Batch(f"x, y = data[step % 5]\n{move}", data),
        Batch("batch = list(data[step % 5])\nbatch[0] = batch[0].cuda()\n"
              "batch[1] = batch[1].cuda()\nx, y = batch", data),
        Batch(f'batch = {{"x": {one}, "y": {classes}}}\n'
              "batch = {name: value.to(device) for name, value in batch.items()}\n"
              'x, y = batch["x"], batch["y"]'),
        Batch(move, f"{dataset}\n{loader}", fetched.format("loader")),
        Batch("at = slice(step * 6, step * 6 + 6)\nx, y = inputs[at], answers[at]", on_device),
        Batch(f"rows = torch.randint(0, {6 * ROUNDS}, (6,)).to(device)\n"
              "x, y = inputs[rows], answers[rows]", on_device),
        Batch(move, "", fetched.format(f"batches({ROUNDS})"), generator),
        Batch("", on_device,
              f"for step, x, y in zip(range({ROUNDS}), inputs.split(6), answers.split(6)):"),
        Batch(f"x = {one}\ny = {classes}\n{move}\nstep += 1", "step = -1",
              f"while step < {ROUNDS - 1}:"),
        Batch(f"x, y = data[(epoch + step) % 5]\n{move}", data,
              "for epoch in range(2):\n    for step in range(5):"),
    ]  # fmt: skip
    if shape != TOKENS:
        numpy = f"x = torch.from_numpy(np.random.randn{shape}).to(device)"
        classes = "y = torch.tensor([random.randrange(4) for _ in range(6)], device=device)"
        found.append(Batch(f"{numpy}\n{classes}"))
    return found
