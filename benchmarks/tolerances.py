"""What right programs use of their tolerances, and what faults come to: the table of the docs.

    python benchmarks/tolerances.py --python torchax=PYTHON torch_xla=PYTHON [--write FILE]

One script trains small models of several depths and dtypes. It is verified as anybody's is, and
once more with a fault in each kind of model of the migrated copy. Printed: the largest difference,
by what is allowed, of each model and kind of value. --write replaces the table of a page that
begins with `| target |`.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections import defaultdict
from functools import partial
from pathlib import Path

from migrator import migrate_paths
from migrator.config import Config
from migrator.targets import find_target
from migrator.verify.comparisons import Finding
from migrator.verify.recordings import RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_verification import verify_against

STEPS = 4
FAULTS = {
    "mlp": "no gradient to the first layer",
    "convolutions": "BatchNorm's statistics stay",
    "attention": "the mask of the other side",
    "lstm": "a product in bfloat16",
    "constant": "a factor that stays 1",
}
SCRIPT = f"""\
import torch
from torch import nn

FAULT = False
STEPS = {STEPS}
device = torch.device("cuda")


class Mlp(nn.Module):
    shape = (8, 32)

    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(depth))

    def forward(self, x, scale):
        for number, layer in enumerate(self.layers):
            x = x + torch.relu(layer(x)) / len(self.layers)
            if FAULT and number == 0:
                x = x.detach()
        return x


class Convolutions(nn.Module):
    shape = (8, 4, 10, 10)

    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(depth))
        momentum = 0.0 if FAULT else 0.1
        self.norms = nn.ModuleList(nn.BatchNorm2d(4, momentum=momentum) for _ in range(depth))

    def forward(self, x, scale):
        for layer, norm in zip(self.layers, self.norms):
            x = torch.relu(norm(layer(x)))
        return x


class Attention(nn.Module):
    shape = (4, 12, 32)

    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 96) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(depth))
        mask = torch.ones(12, 12, dtype=torch.bool).tril()
        self.register_buffer("mask", mask.T.clone() if FAULT else mask)

    def forward(self, x, scale):
        for layer, norm in zip(self.layers, self.norms):
            q, k, v = layer(norm(x)).chunk(3, -1)
            scores = (q @ k.transpose(1, 2)) / 32**0.5
            x = x + torch.softmax(scores.masked_fill(~self.mask, -1e4), -1) @ v
        return x


class Lstm(nn.Module):
    shape = (6, 4, 32)

    def __init__(self, depth):
        super().__init__()
        self.inner = nn.LSTM(32, 32, depth)
        self.last = nn.Linear(32, 32)

    def forward(self, x, scale):
        x = self.inner(x)[0]
        if FAULT:
            return nn.functional.linear(
                x.bfloat16(), self.last.weight.bfloat16(), self.last.bias.bfloat16()
            ).to(x.dtype)
        return self.last(x)


class Constant(Mlp):
    def forward(self, x, scale):
        for layer in self.layers:
            x = x + torch.relu(layer(x)) / len(self.layers)
        return x * (1.0 if FAULT else scale)


def train(model, autocast):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(STEPS):
        x = torch.randn(*model.shape, device=device)
        y = torch.randn(*model.shape, device=device)
        scale = 1.0 + torch.rand((), device=device)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            loss = nn.functional.mse_loss(model(x, scale).float(), y)
        loss.backward()
        optimizer.step()


for kind in (Mlp, Convolutions, Attention, Lstm, Constant):
    for depth in DEPTHS:
        for dtype in ("float32", "bfloat16"):
            made = type(f"{{kind.__name__}}_{{depth}}_{{dtype}}", (kind,), {{}})
            train(made(depth).to(device), dtype == "bfloat16")
"""
DEPTHS = (2, 8)
_TABLE = re.compile(r"^\| target \|(?:.*\n)(?:\|.*\n)*", re.MULTILINE)
KINDS = {"output": "outputs", "loss": "losses", "gradients": "gradients", "end": "weights"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", nargs="+", required=True, metavar="TARGET=PYTHON")
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    heads = ["target", "dtype", "depth", "model", *KINDS.values(), "with a fault"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for text in given.python:
        target, _, python = text.partition("=")
        right, wrong = (
            ratios(verified(target, Path(python), given.depths, fault), given.depths)
            for fault in (False, True)
        )
        for (model, depth, dtype), found in sorted(right.items(), key=lambda row: row[0][::-1]):
            cells = [percent(found.get(kind)) for kind in KINDS]
            faulty = max(wrong[model, depth, dtype].values(), default=0.0)
            of = f"{percent(faulty)} ({FAULTS[model]})"
            row = [target, dtype, str(depth), model, *cells, of]
            lines.append("| " + " | ".join(row) + " |")
    table = "\n".join(lines)
    print(table)
    if given.write:
        page = given.write.read_text("utf-8")
        given.write.write_text(_TABLE.sub(lambda _: table + "\n", page), "utf-8")


def verified(target: str, python: Path, depths: list[int], fault: bool) -> ScriptResult:
    """The script, as `tpu-migrate verify` looks at it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        script = SCRIPT.replace("DEPTHS", repr(tuple(depths)))
        (Path(folder) / "train.py").write_text(script, "utf-8")
        os.chdir(folder)
        try:
            options = RunOptions(python=python.absolute(), migrate=partial(migrate, fault))
            settings = RecordSettings(timeout=3600.0)
            result = verify_against(
                Path("train.py"), [], find_target(target), None, settings, options
            )
        finally:
            os.chdir(before)
    if result.error or result.problems:
        raise SystemExit(f"{target}: {result.error or result.problems}\n{result.log_tail}")
    return result


def migrate(fault: bool, source: Path, target: str, to: Path) -> list[str]:
    """The migration; with ``fault``, a wrong one."""
    report = migrate_paths([source], target=target, config=Config(runtime="copy"), output=to)
    path = to / "train.py"
    text = path.read_text("utf-8")
    path.write_text(text.replace("FAULT = False", f"FAULT = {fault}", 1), "utf-8")
    return [*report.errors, *(d.message for _, d in report.failures)]


def ratios(result: ScriptResult, depths: list[int]) -> dict[tuple[str, int, str], dict[str, float]]:
    """The largest difference by what is allowed, of each model and kind of value."""
    names = [(kind, depth, dtype) for kind in FAULTS for depth in depths
             for dtype in ("float32", "bfloat16")]  # fmt: skip
    found: dict[tuple[str, int, str], dict[str, float]] = defaultdict(dict)
    losses = 0
    for finding in [*result.stepwise.findings, *result.compiled.findings]:
        if finding.kind not in KINDS:
            continue
        if finding.kind == "loss":
            model = names[losses // STEPS]
            losses += 1
        else:
            model = named(finding)
        found[model][finding.kind] = max(found[model].get(finding.kind, 0.0), finding.ratio)
    return found


def named(finding: Finding) -> tuple[str, int, str]:
    whole = finding.place if finding.kind == "gradients" else finding.name
    kind, depth, dtype = whole.partition(".")[0].split("_")
    return kind.lower(), int(depth), dtype


def percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.2g} %" if ratio < 10 else f"× {ratio:.2g}"


if __name__ == "__main__":
    main()
