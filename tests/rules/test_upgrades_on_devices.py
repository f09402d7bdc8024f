"""What newer versions lack and what needs a GPU, in one line: both are rewritten, or reported."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import TARGETS, constructs, migrated, run
from tiers import thorough_between

from migrator.analysis.upgrade_tables import removed_arguments
from migrator.diagnostics import Outcome

HEAD = """\
import numpy
import numpy as np
import torch
import torchvision
from torch.autograd import Variable

"""
# With a value to compare.
COMPUTED = (
    "torch.symeig({x}, eigenvectors=True)[0]",
    "torch.symeig({x})[0]",
    "{x}.symeig()[0]",
    "torch.matrix_rank({x})",
    "torch.solve(b, {x})[0]",
    "torch.gesv(b, {x})[0]",
    "torch.rfft({x}, 2, onesided=False)",
    "{x}.rfft(1)",
    "torch.ger({x}[0], {x}[1])",
    "{x} * np.float(2)",
    "np.array({x}.cpu(), copy=False)",
    "np.asscalar({x}.sum().cpu().numpy())",
    "np.in1d({x}.cpu(), [1, 2])",
    "{x}.masked_fill({x}.byte(), 0)",
    "({x} > 0).sum().cpu().numpy().tostring()",
    "[{x} * k for k in xrange(2)][1]",
    "iter([{x}]).next()",
    "{{1: {x}}}.has_key(1)",
)
UPGRADES = (
    *COMPUTED,
    "torch.eig({x})",
    "torch.stft({x}[0].repeat(8), 8)",
    "{{'a': {x}}}.iteritems()",
    *(
        f"{function}({{x}}, {keyword}=False)"
        for function, keyword in removed_arguments()
        if function.startswith(("torch", "numpy"))
    ),
)
# What needs a GPU, and the same on a CPU.
OPERANDS = {
    "x.cuda()": "x",
    "x.cuda(0, non_blocking=True)": "x",
    "x.to('cuda')": "x",
    "x.to(device='cuda:0', dtype=torch.float32)": "x",
    "x.type(torch.cuda.FloatTensor)": "x",
    "torch.cuda.FloatTensor(3, 3).fill_(2)": "torch.full((3, 3), 2.0)",
    "torch.eye(3, device='cuda')": "torch.eye(3)",
    "torch.tensor(rows, device=torch.device('cuda'))": "torch.tensor(rows)",
    "torch.load(path, map_location='cuda')": "x",
    "torch.load(path).cuda()": "x",
    "Variable(x.cuda(), volatile=True)": "x",
    "Variable(x).cuda(torch.cuda.current_device())": "x",
    "(x.cuda() if torch.cuda.is_available() else x)": "x",
    "net.cuda()(x.cuda())": "net(x)",
}
AROUND = (
    "y = {}",
    "y = {}; torch.cuda.synchronize()",
    "y = {} if torch.cuda.is_available() else x.cuda()",
    "with torch.cuda.amp.autocast(enabled=False): y = {}",
    "y = (lambda x=x.cuda(): {})()",
    "y = [\n    # one\n    {},  # two\n][0]",
    'print(f"""{{({})!s}}""")',
)
ROWS = [[4.0, 1, 0], [1, 3, 2], [0, 2, 5]]


def pairs() -> list[tuple[str, str, str]]:
    """Each upgrade with each operand, and what stands around them, at random."""
    rng = random.Random(0)
    each = [(u, o, rng.choice(AROUND)) for u, o in itertools.product(UPGRADES, OPERANDS)]
    rng.shuffle(each)
    return each


PAIRS = pairs()
PARTS = 20


def lines(line: str) -> str:
    return f"{HEAD}z = torch.ones(1).cuda()\n{line}\n"


def codes(line: str, target: str) -> set[str]:
    return {d.code for d in constructs(run(lines(line), target))}


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
@pytest.mark.parametrize("part", thorough_between(PARTS, range(PARTS)))
def test_each_is_rewritten_or_reported(part: int, target: str) -> None:
    for upgrade, operand, around in PAIRS[part::PARTS]:
        line = around.format(upgrade.format(x=operand))
        text = migrated(lines(line), target)  # it parses, and a second run changes nothing
        alone = codes(around.format(upgrade.format(x="x")), target)
        assert codes(line, target) >= alone | codes(around.format(operand), target), line
        found = constructs(run(lines(line), target))
        if all(d.outcome is not Outcome.REPORTED for d in found):
            assert "cuda" not in text, line


def value(text: str, path: Path) -> object:
    net = torch.nn.Linear(3, 3, bias=False).requires_grad_(False)
    net.weight.data = torch.tensor(ROWS) + torch.eye(3)
    x, b = torch.tensor(ROWS), torch.ones(3, 2)
    scope: dict[str, Any] = {"x": x, "b": b, "rows": ROWS, "path": str(path), "net": net}
    exec(re.sub("""(["'])jax["']""", r"\1cpu\1", text), scope)
    return scope["y"]


@pytest.mark.parametrize("upgrade", COMPUTED)
def test_their_values_are_those_of_the_upgrade_on_a_cpu(upgrade: str, tmp_path: Path) -> None:
    torch.save(torch.tensor(ROWS), tmp_path / "x.pt")
    for operand, on_cpu in OPERANDS.items():
        text = migrated(lines(f"y = {upgrade.format(x=operand)}"))
        if "tpu_runtime" in text:
            continue  # it needs the device
        expected = value(migrated(lines(f"y = {upgrade.format(x=on_cpu)}")), tmp_path / "x.pt")
        found = value(text, tmp_path / "x.pt")
        np.testing.assert_allclose(as_numbers(found), as_numbers(expected), atol=1e-5)


def as_numbers(result: Any) -> np.ndarray[Any, Any]:
    values = result.detach().numpy() if isinstance(result, torch.Tensor) else np.asarray(result)
    return values if values.dtype.kind != "S" else np.frombuffer(values.tobytes(), "u1")
