"""Random numbers of a target, 10^8 of each distribution: range, mean and variance.

Run in the environment of the target (some minutes of one core):

    PYTHON benchmarks/draws.py --target torchax

It writes the raw results to draws_TARGET.json, and the target's table in docs/draws.md.
"""

import argparse
import importlib
import json
import math
import os
import re
import statistics
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operator_audit import ROOT, TARGETS

from migrator.targets.copies import folder_to_import

CHUNK = 5_000_000
NAMES = ("torchax", "torch_xla", "torch_tpu")
# Standard errors: of 10^8 draws one mean in 2 million is further off; variances are compared by
# the spread of some twenty.
FAR = {"mean": 5.0, "variance": 6.5}
WEIGHTS = (0.0, 1, 0, 2, 0, 5)

HEAD = """# Random numbers

Made by `benchmarks/draws.py`: draws of each distribution on the CPU back ends, after `setup`.
`least` and `most` are the ends that were met; none may be outside of what a GPU draws, infinite or
NaN. `mean` is the distance from the true mean in standard errors, `variance` that of the variance.
"""


@dataclass(frozen=True)
class Distribution:
    """How ``n`` numbers are drawn on a device, and what is true of them."""

    draw: Callable[[int, Any], Any]
    mean: float
    variance: float | None
    least: float = -math.inf
    most: float = math.inf
    measure: Callable[[Any], Any] = lambda x: x  # has a mean, where the numbers have none


def distributions() -> dict[str, Distribution]:
    return {**_of_floats(), **_of_integers(), **_of_weights(), **_of_classes()}


def _zeros(n: int, device: Any, **options: Any) -> Any:
    import torch

    return torch.zeros(n, device=device, **options)


def _scalar(number: Any, device: Any) -> Any:
    import torch

    return torch.tensor(number, device=device)


def _of_floats() -> dict[str, Distribution]:
    import torch

    half = torch.bfloat16
    below_11 = math.nextafter(11, 0)
    tiny = 2.0**-40
    return {
        "`exponential_(1.5)`": Distribution(
            lambda n, d: _zeros(n, d).exponential_(1.5), 1 / 1.5, 1 / 2.25, tiny
        ),
        "`exponential_()`, bfloat16": Distribution(
            lambda n, d: _zeros(n, d, dtype=half).exponential_(), 1, None, tiny
        ),
        "`-exponential_().log()`": Distribution(
            lambda n, d: -_zeros(n, d).exponential_().log(), 0.5772156649, math.pi**2 / 6
        ),
        "`rand`": Distribution(lambda n, d: torch.rand(n, device=d), 0.5, 1 / 12, 0, 1 - 2**-25),
        "`rand`, bfloat16": Distribution(
            lambda n, d: torch.rand(n, device=d, dtype=half),
            0.5 - 2**-9 * (1 - 2**-10), None, 0, 1 - 2**-10,
        ),
        "`uniform_(10, 11)`": Distribution(
            lambda n, d: _zeros(n, d).uniform_(10, 11), 10.5, 1 / 12, 10, below_11
        ),
        "`randn`": Distribution(lambda n, d: torch.randn(n, device=d), 0, 1),
        "`normal_(1, 2)`, bfloat16": Distribution(
            lambda n, d: _zeros(n, d, dtype=half).normal_(1, 2), 1, None
        ),
        "`log_normal_(0, 0.5)`": Distribution(
            lambda n, d: _zeros(n, d).log_normal_(0, 0.5),
            math.exp(0.125), (math.exp(0.25) - 1) * math.exp(0.25), 0,
        ),
        "`cauchy_()`, share below 1": Distribution(
            lambda n, d: _zeros(n, d).cauchy_(), 0.75, 0.1875, measure=lambda x: (x < 1).float()
        ),
    }  # fmt: skip


def _of_integers() -> dict[str, Distribution]:
    import torch

    return {
        "`geometric_(0.3)`": Distribution(
            lambda n, d: _zeros(n, d).geometric_(0.3), 1 / 0.3, 0.7 / 0.09, 1
        ),
        "`bernoulli_(0.3)`": Distribution(
            lambda n, d: _zeros(n, d).bernoulli_(0.3), 0.3, 0.21, 0, 1
        ),
        "`bernoulli` of a tensor": Distribution(
            lambda n, d: torch.bernoulli(_zeros(n, d) + 0.3), 0.3, 0.21, 0, 1
        ),
        "`randint(-3, 5)`": Distribution(
            lambda n, d: torch.randint(-3, 5, (n,), device=d), 0.5, 5.25, -3, 4
        ),
        "`randint(256)`, uint8": Distribution(
            lambda n, d: torch.randint(256, (n,), device=d, dtype=torch.uint8),
            127.5, (256**2 - 1) / 12, 0, 255,
        ),
        "`poisson` of 4": Distribution(lambda n, d: torch.poisson(_zeros(n, d) + 4), 4, 4, 0),
    }  # fmt: skip


def _of_weights() -> dict[str, Distribution]:
    import torch
    import torch.nn.functional as F

    half = torch.bfloat16
    one_ninth = float(torch.tensor(1 / 0.9).to(half))
    return {
        "`multinomial` with weights of 0": Distribution(
            lambda n, d: torch.multinomial(_scalar(WEIGHTS, d), n, True), 4, 2, 1, 5
        ),
        "`multinomial` of each row": Distribution(
            lambda n, d: torch.multinomial(_scalar(WEIGHTS, d).expand(n, 6), 1), 4, 2, 1, 5
        ),
        "`dropout(0.25)`": Distribution(
            lambda n, d: F.dropout(_zeros(n, d) + 1, 0.25), 1, 1 / 3, 0, 4 / 3 + 1e-6
        ),
        "`dropout(0.1)`, bfloat16": Distribution(
            lambda n, d: F.dropout(_zeros(n, d, dtype=half) + 1, 0.1),
            0.9 * one_ninth, 0.09 * one_ninth**2, 0, one_ninth,
        ),
        "`gumbel_softmax`": Distribution(
            lambda n, d: F.gumbel_softmax(_zeros(n, d).view(-1, 4)), 0.25, None, 0, 1 + 1e-6
        ),
    }  # fmt: skip


def _of_classes() -> dict[str, Distribution]:
    from torch import distributions as dist

    def sample(make: Callable[[Any], Any]) -> Callable[[int, Any], Any]:
        return lambda n, d: make(d).sample((n,))

    return {
        "Laplace": Distribution(
            sample(lambda d: dist.Laplace(_scalar(0.0, d), _scalar(1.0, d))), 0, 2
        ),
        "Gamma(2)": Distribution(
            sample(lambda d: dist.Gamma(_scalar(2.0, d), _scalar(1.0, d))), 2, 2, 0
        ),
        "Weibull(1, 2)": Distribution(
            sample(lambda d: dist.Weibull(_scalar(1.0, d), _scalar(2.0, d))),
            math.sqrt(math.pi) / 2, 1 - math.pi / 4, 0,
        ),
        "HalfNormal": Distribution(
            sample(lambda d: dist.HalfNormal(_scalar(1.0, d))), math.sqrt(2 / math.pi),
            1 - 2 / math.pi, 0,
        ),
    }  # fmt: skip


def measured(of: Distribution, total: int, device: Any) -> dict[str, Any]:
    """What is true of ``total`` draws."""
    means, variances, ends, unknown = [], [], [], 0
    for _ in range(max(1, total // CHUNK)):
        raw = of.draw(min(CHUNK, total), device).flatten()
        values = raw.float()
        ends += [values.min().item(), values.max().item()]
        unknown += int((~values.isfinite()).sum().item())
        kept = of.measure(values)
        mean = kept.mean().item()
        means.append(mean)
        variances.append((kept - mean).square().mean().item())
    true = statistics.fmean(variances) if of.variance is None else of.variance
    found: dict[str, Any] = {
        "draws": max(1, total // CHUNK) * min(CHUNK, total),
        "least": min(ends),
        "most": max(ends),
        "unknown": unknown,
    }
    found["mean"] = (statistics.fmean(means) - of.mean) / math.sqrt(true / found["draws"])
    if of.variance is not None and len(variances) > 1:
        spread = statistics.stdev(variances) / math.sqrt(len(variances))
        found["variance"] = (statistics.fmean(variances) - of.variance) / spread
    inside = of.least <= found["least"] and found["most"] <= of.most and not unknown
    near = all(abs(found.get(name, 0)) < far for name, far in FAR.items())
    return found | {"right": inside and near}


def section(target: str, found: dict[str, Any]) -> str:
    """Of the page: the table of a target."""
    right = sum(one["right"] for one in found.values())
    lines = [f"## {target}\n", f"{right} of {len(found)} right.\n"]
    lines += ["| distribution | draws | least | most | mean | variance | |", "|---" * 7 + "|"]
    for name, one in found.items():
        variance = f"{one['variance']:+.1f}" if "variance" in one else ""
        verdict = "" if one["right"] else "**wrong**"
        cells = (
            f"{one['draws']:.0e}".replace("e+0", "e"), f"{one['least']:.8g}",
            f"{one['most']:.8g}", f"{one['mean']:+.1f}", variance, verdict,
        )  # fmt: skip
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page(before: str, target: str, found: dict[str, Any]) -> str:
    """The page with a target's table in the place of the one that it had."""
    parts = re.split(r"^(?=## )", before, flags=re.MULTILINE)[1:]
    tables = {part.split()[1]: part.rstrip() + "\n" for part in parts}
    tables[target] = section(target, found)
    return "\n".join([HEAD, *(tables[name] for name in NAMES if name in tables)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=NAMES, required=True)
    parser.add_argument("--draws", type=float, default=1e8)
    parser.add_argument("--only", nargs="*", help="parts of names")
    options = parser.parse_args()
    target = TARGETS[options.target]
    os.environ.update(target.variables)
    del os.environ["XLA_FLAGS"]  # machine code that runs often should be polished
    if target.modules is not None:
        sys.path.insert(0, str(target.modules))
    warnings.filterwarnings("ignore")
    importlib.import_module("torch")
    importlib.import_module(target.package or options.target)
    sys.path.insert(0, str(folder_to_import(options.target)))
    importlib.import_module("tpu_runtime").setup()
    device = target.start()
    import torch

    torch.manual_seed(1)
    path = Path(f"draws_{options.target}.json")
    found = json.loads(path.read_text()) if path.exists() else {}
    for name, of in distributions().items():
        if options.only and not any(part in name for part in options.only):
            continue
        with device.context, torch.no_grad():
            found[name] = measured(of, int(options.draws), device.word)
        print(name, found[name], flush=True)
        path.write_text(json.dumps(found, indent=1))
    out = ROOT / "docs" / "draws.md"
    out.write_text(page(out.read_text(), options.target, found))


if __name__ == "__main__":
    main()
