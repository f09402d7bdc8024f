"""Views on a target against CPU torch: random chains of them, written to in all ways.

Each seed makes a tensor, views of it, and writes to some of them, on the CPU and on the device; all
tensors that are there have to hold the same at the end. In a part of the programs a weight is
written to tensors that need no gradient before, and it has to get the same one from all of them.
Run in the environment of the target:

    PYTHON benchmarks/views.py --target torchax --count 2000

A program that raises on the device alone is counted, and so is one whose values differ, which
prints the seed and the program.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from random_programs import asked
from torch import Tensor

Step = tuple[str, str]  # what is written down, and the kind


def _dims(rng: random.Random, x: Tensor) -> tuple[int, int]:
    first, second = rng.sample(range(x.dim()), 2)
    return first, second - x.dim() if rng.random() < 0.3 else second


def _view(rng: random.Random, x: Tensor, trained: bool) -> str:
    """A view of `x`, as code with `{}` for it."""
    dim = rng.randrange(x.dim()) if x.dim() else 0
    length = x.shape[dim] if x.numel() and x.dim() else 0
    of_some = [
        "{}.detach()", "{}.data", "{}[:]", "{}[...]", "{}.view_as({})", "{}[None]",
        "{}.unsqueeze(0)", "{}.unsqueeze(-1)", "{}.squeeze()", "{}.flatten()", "{}.reshape(-1)",
        "{}.contiguous()", "{}.expand_as({})", "{}.ravel()",
    ]  # fmt: skip
    if length:
        at, end = rng.randrange(length), rng.randrange(length + 1)
        of_some += [
            f"{{}}.select({dim}, {at})", f"{{}}[{rng.randrange(x.shape[0])}]",
            f"{{}}.narrow({dim}, {at}, {rng.randint(0, length - at)})",
            f"{{}}[{rng.randrange(x.shape[0])}::{rng.choice((1, 2))}]", f"{{}}[..., :{end}]",
            f"{{}}.chunk(2, {dim})[0]", f"{{}}.split(2, {dim})[-1]", f"{{}}.unbind({dim})[-1]",
            f"{{}}.unfold({dim}, {min(2, length)}, {rng.choice((1, 2))})",
            f"{{}}.unflatten({dim}, (1, -1))", f"{{}}.tensor_split(2, {dim})[-1]",
            f"{{}}.expand(2, *{tuple(x.shape)})", f"{{}}.swapdims(0, {dim})",
        ]  # fmt: skip
    if x.dim() >= 2 and x.numel():
        first, second = _dims(rng, x)
        order = rng.sample(range(x.dim()), x.dim())
        of_some += [
            f"{{}}.transpose({first}, {second})", f"{{}}.permute({', '.join(map(str, order))})",
            f"{{}}.diagonal({rng.choice((-1, 0, 1))}, {first}, {second})", "{}.mT",
            f"{{}}.movedim({first}, {second})", f"{{}}.flatten({0}, {1})",
            f"{{}}.reshape({x.shape[-1]}, -1)", "{}.T" if x.dim() == 2 else "{}.mT",
            f"{{}}.view({x.shape[0]}, -1)", "{}.transpose(0, 1).contiguous()",
        ]  # fmt: skip
    if x.numel() and x.dim() and not trained:  # what it finds beside a view has no gradient
        steps = ", ".join(str(rng.choice((1, 2))) for _ in range(2))
        size = rng.choice(((1, 2), (2, 1), (2, 2)))
        of_some += [f"{{}}.as_strided({size}, ({steps}))", "{}.as_strided((2,), (1,), 1)"]
    return rng.choice(of_some)


def _write(rng: random.Random, x: Tensor, trained: bool) -> str:
    """A write to `x`, as code with `{}` for it."""
    if trained and rng.random() < 0.7:
        return _write_of_weight(rng, x)
    number = rng.randint(2, 9)
    flipped = "{}.copy_({}.flip(0))" if x.dim() else "{}.neg_()"
    writes = [
        f"{{}}.add_({number})", f"{{}}.mul_({number})", f"{{}}.fill_({number})", "{}.zero_()",
        f"{{}}.copy_({{}} * {number})", f"{{}}[...] = {number}", f"{{}}.data.add_({number})",
        f"{{}} += {number}", f"{{}}.detach().mul_({number})", f"{{}}.clamp_(max={number})", flipped,
        f"{{}}.masked_fill_({{}} > {number}, 1)",
    ]  # fmt: skip
    if x.is_contiguous():  # torch does not say what `out=` does to elements that are shared
        writes.append(f"torch.add({{}}, {number}, out={{}})")
    if x.dim() and x.shape[0]:
        at = rng.randrange(x.shape[0])
        writes += [f"{{}}[{at}] = {number}", f"{{}}[{at}:] *= {number}", f"{{}}[{at}].add_(1)",
                   f"{{}}[[{at}]] = {number}"]  # fmt: skip
    if trained:  # torch's gradients follow from what `.data` has written since, JAX's never do
        writes = [write for write in writes if ".data" not in write and "out=" not in write]
    return rng.choice(writes)


def _write_of_weight(rng: random.Random, x: Tensor) -> str:
    writes = [
        "{}.add_(w)", "{}.mul_(w)", "{} += w", "{} *= w", "{}.copy_({} * w)", "{}.copy_(w)",
        "{}[...] = w", "{}.sub_({} * w)", "{}.addcmul_({}, w)", "{}.lerp_({} + 1, w)",
        "{}.masked_fill_({} > 4, w)", "{}.fill_(w)", "{}.clamp_(max=w * 3)", "{}.div_(w)",
    ]  # fmt: skip
    if x.dim() and x.shape[0]:
        at = rng.randrange(x.shape[0])
        writes += [
            f"{{}}[{at}] = w", f"{{}}[{at}:] *= w", f"{{}}[{at}].add_(w)", f"{{}}[[{at}]] = w",
            f"{{}}[{at}:].copy_({{}}[{at}:] * w)", "{}[..., :1].mul_(w)",
            f"{{}}[{{}} > {at}] = w", "{}.index_fill_(0, torch.tensor([0]).to(DEVICE), w)",
            "{}.index_copy_(0, torch.tensor([0]).to(DEVICE), {}[:1] * w)",
            "{}.index_add_(0, torch.tensor([0]).to(DEVICE), {}[:1] * w)",
        ]  # fmt: skip
    return rng.choice(writes)


def _turn(rng: random.Random, x: Tensor) -> str:
    """What changes the shape of `x` itself, or gives it other data."""
    turns = ["{}.unsqueeze_(0)", "{}.squeeze_()", "{}.data = {}.clone() + 1", "{}.detach_()",
             "{}.data = {}.data"]  # fmt: skip
    if x.dim() >= 2:
        first, second = _dims(rng, x)
        turns += [f"{{}}.transpose_({first}, {second})", f"{{}}.swapdims_({first}, {second})"]
        turns += ["{}.t_()"] if x.dim() == 2 else []
    return rng.choice(turns)


def program(seed: int) -> Iterator[str]:
    """Lines of code that run on the CPU; each is asked for when those before it have been run.

    They are sent back the tensors that there are, by name.
    """
    rng = random.Random(seed)
    shape = rng.choice(((4,), (2, 3), (3, 2), (4, 4), (2, 3, 2), (1, 4), (2, 1, 3)))
    tensors = yield f"a = torch.arange({torch.Size(shape).numel()}.0).reshape({shape}).to(DEVICE)"
    turns, trained = rng.random() < 0.4, rng.random() < 0.4
    if trained:
        turns = False
        yield "w = torch.tensor(1.5).to(DEVICE).requires_grad_()"
    for number in range(rng.randint(3, 9)):
        of = rng.choice([name for name in tensors if name != "w"])
        kind = rng.random()
        if kind < 0.5 or number == 0:
            tensors = yield f"v{number} = " + _view(rng, tensors[of], trained).replace("{}", of)
        elif kind < 0.9 or not turns:
            tensors = yield _write(rng, tensors[of], trained).replace("{}", of)
        else:
            tensors = yield _turn(rng, tensors[of]).replace("{}", of)


def run(lines: list[str], device: str) -> dict[str, object]:
    names: dict[str, object] = {"torch": torch, "DEVICE": device}
    for line in lines:
        exec(line, names)
    return names


def on_cpu(seed: int) -> tuple[list[str], dict[str, Tensor]]:
    """The lines of a program that torch does not refuse, and its tensors."""
    names, lines = run([], "cpu"), list[str]()
    made = program(seed)
    line = next(made)
    while True:
        try:
            exec(line, names)
            lines.append(line)
        except (RuntimeError, IndexError, ValueError):  # so nobody writes it
            names = run(lines, "cpu")  # anew, since it may have been written before it was refused
        tensors = {n: t for n, t in names.items() if isinstance(t, Tensor)}
        try:
            line = made.send(tensors)
        except StopIteration:
            return lines, tensors


def gradient(tensors: dict[str, Tensor]) -> Tensor | None:
    """Of the weight, if the program has one, by all that follows from it."""
    made = [tensor for name, tensor in tensors.items() if tensor.requires_grad and name != "w"]
    if made:
        sum((tensor * tensor).sum() for tensor in made).backward()  # type: ignore[union-attr]
    return tensors["w"].grad if "w" in tensors else None


def compared(seed: int, device: str) -> tuple[str, list[str]]:
    """What becomes of a program on a device: right, raises, wrong."""
    lines, expected = on_cpu(seed)
    try:
        expected["gradient"] = gradient(expected)
    except RuntimeError:
        return "torch raises", lines
    try:
        made = run(lines, device)
        found: dict[str, Any] = {name: made[name] for name in expected if name in made}
        found["gradient"] = gradient(found)
    except Exception as error:
        return f"raises {type(error).__name__}: {str(error).splitlines()[0][:60]}", lines
    for name, tensor in expected.items():
        if not _same(found[name], tensor):
            return "wrong", [*lines, f"# {name}: {tensor}, not {found[name]}"]
    return "right", lines


def _same(found: Tensor | None, expected: Tensor | None) -> bool:
    if found is None or expected is None:
        return found is expected
    values = found.detach().cpu()
    return (
        found.requires_grad == expected.requires_grad
        and values.shape == expected.shape
        and torch.allclose(values, expected.detach(), rtol=1e-5, atol=1e-4)
    )


def main(show: Callable[[str], None] = print) -> int:
    device, seeds = asked(__doc__, count=2000)
    counts: Counter[str] = Counter()
    for seed in seeds:
        verdict, lines = compared(seed, device)
        counts[verdict] += 1
        if verdict == "wrong":
            show("\n".join([f"seed {seed}:", *lines, ""]))
    for verdict, number in counts.most_common():
        show(f"{number:6} {verdict}")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
