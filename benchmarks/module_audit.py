"""Modules of torch on a target against CPU torch: outputs, gradients and buffers.

The modules are those of torch's ModuleInfo database, in training and not, with gradients and
without, each with its samples of arguments. What the CPU computes comes from a process without the
target's runtime. Run in the environment of the target:

    PYTHON benchmarks/module_audit.py --target torchax [--samples 8] [--only Linear GRU]

It prints what is wrong and what raises on the target alone, and how many were right.
"""

import argparse
import copy
import importlib
import logging
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from audit_samples import with_stand_ins
from random_programs import DEVICES
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from migrator.targets.copies import folder_to_import

Numbers = dict[str, Tensor | None]
# float32, relative and absolute: a gradient carries one more operator's roundings
CLOSE = {"output": (1e-3, 2e-4), "gradient": (3e-3, 1e-3), "buffer": (1e-3, 1e-4)}


def cases(samples: int, only: list[str]) -> Iterator[tuple[str, Any, bool, Any]]:
    """The name, the class, whether it trains, and the arguments, of at most so many samples."""
    with_stand_ins()
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        name = info.name.removeprefix("nn.")
        if (only and name not in only) or "Lazy" in name:
            continue
        for training in (True, False):
            torch.manual_seed(0)
            try:
                inputs = info.module_inputs_func(
                    info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
                )
            except (TypeError, NotImplementedError):
                continue
            inputs = [sample for sample in inputs if sample.forward_input is not None]
            for number in range(0, len(inputs), max(1, len(inputs) // samples)):
                mode = "training" if training else "evaluation"
                yield f"{name} {number}, {mode}", info.module_cls, training, inputs[number]


def made(kind: type[nn.Module], training: bool, sample: Any) -> nn.Module:
    torch.manual_seed(1)
    module = kind(*sample.constructor_input.args, **sample.constructor_input.kwargs)
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0  # else both draw numbers of their own
    return module.train(training)


def computed(module: nn.Module, args: Any, kwargs: Any, with_gradients: bool) -> Numbers:
    """All outputs, gradients of parameters and inputs, and buffers, by name."""
    with torch.set_grad_enabled(with_gradients):
        results = [x for x in pytree.tree_leaves(module(*args, **kwargs)) if _is_tensor(x)]
    numbers: Numbers = {f"output {n}": result for n, result in enumerate(results)}
    trained = [x for x in results if x.requires_grad and x.is_floating_point()]
    if trained:
        sum((x * _weights(x)).sum() for x in trained).backward()  # type: ignore[union-attr]
        for name, parameter in module.named_parameters():
            numbers[f"gradient of {name}"] = parameter.grad
        for n, x in enumerate(pytree.tree_leaves((args, kwargs))):
            if _is_tensor(x) and x.requires_grad and x.is_leaf:
                numbers[f"gradient of input {n}"] = x.grad
    numbers |= {f"buffer {name}": x for name, x in module.named_buffers()}
    return {name: None if x is None else x.detach().cpu() for name, x in numbers.items()}


def _weights(x: Tensor) -> Tensor:
    return torch.cos(torch.arange(float(x.numel())).reshape(x.shape)).to(x.device)


def _is_tensor(x: object) -> bool:
    return isinstance(x, Tensor)


def copied(values: Any, device: str) -> Any:
    """The arguments, each tensor a leaf of its own."""

    def copied_one(x: Any) -> Any:
        return x.detach().clone().to(device).requires_grad_(x.requires_grad) if _is_tensor(x) else x

    return pytree.tree_map(copied_one, values)


def references(samples: int, only: list[str]) -> dict[str, Any]:
    """By the name of a case: the module's state, and what the CPU computes or ``None``."""
    found = {}
    for name, kind, training, sample in cases(samples, only):
        for with_gradients in (True, False):
            module = made(kind, training, sample)
            state = copy.deepcopy(module.state_dict())
            given = sample.forward_input.args, sample.forward_input.kwargs
            try:
                numbers = computed(module, *copied(given, "cpu"), with_gradients)
            except Exception:
                continue  # torch refuses it
            key = f"{name}, {'gradients' if with_gradients else 'no gradients'}"
            found[key] = state, copied(given, "cpu"), numbers
    return found


def verdict(device: str, case: tuple[str, Any, bool, Any], reference: Any, key: str) -> str:
    """``right``, or what is not."""
    _, kind, training, sample = case
    state, given, expected = reference
    try:
        module = made(kind, training, sample)
        module.load_state_dict(state)
        module.to(device)
        found = computed(module, *copied(given, device), not key.endswith("no gradients"))
    except Exception as error:
        return f"raises {type(error).__name__}: {' '.join(str(error).split())[:100]}"
    wrong = [name for name, x in expected.items() if not _close(name, found.get(name), x)]
    return f"wrong: {', '.join(wrong)}" if wrong else "right"


def _close(name: str, found: Tensor | None, expected: Tensor | None) -> bool:
    if found is None or expected is None:  # no gradient is one of zeros
        return all(x is None or not x.any() for x in (found, expected))
    relative, absolute = CLOSE[name.split()[0]]
    return found.shape == expected.shape and torch.allclose(
        found.double(), expected.double(), relative, absolute, equal_nan=True
    )


def main(show: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=DEVICES, required=True)
    parser.add_argument("--samples", type=int, default=8, help="of each module, at most about")
    parser.add_argument("--only", nargs="*", default=[], metavar="MODULE")
    parser.add_argument("--references", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    if args.references is not None:
        torch.save(references(args.samples, args.only), args.references)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "references")
        command = [sys.executable, __file__, *sys.argv[1:], "--references", str(file)]
        subprocess.run(command, check=True)
        expected = torch.load(file, weights_only=False)
    sys.path.insert(0, str(folder_to_import(args.target)))
    importlib.import_module("tpu_runtime").setup()
    counts: Counter[str] = Counter()
    for case in cases(args.samples, args.only):
        for key in (f"{case[0]}, gradients", f"{case[0]}, no gradients"):
            if key in expected:
                said = verdict(DEVICES[args.target], case, expected[key], key)
                counts[said.split()[0].strip(":")] += 1
                if said != "right":
                    show(f"{key}: {said}")
    show(", ".join(f"{number} {kind}" for kind, number in counts.most_common()))
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
