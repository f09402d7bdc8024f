"""Strings that choose an implementation, and no device, stay where they are compared."""

from __future__ import annotations

import pytest
from helpers import TARGETS, constructs, run

from migrator.diagnostics import Outcome

CHOSEN = """import torch


def act(x, impl="cuda"):
    assert impl in ["{other}", "cuda"]
    if impl == "cuda" and x.device.type == "cuda" and init():
        return act_cuda(x)
    return act_ref(x)


class Kernel(torch.nn.Module):
    def check(self):
        assert self.backend in ("cuda", "{other}")

    def forward(self, z):
        if has_cuda_extension and z.device.type == "cuda" and self.backend == "cuda":
            return cauchy_cuda(z)
        return cauchy(z)
"""


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
@pytest.mark.parametrize(("other", "kept"), [("ref", True), ("naive", True), ("cpu", False)])
def test_what_is_compared_with_another_implementation(other: str, kept: bool, target: str) -> None:
    result = run(CHOSEN.replace("{other}", other), target)
    found = [d for d in constructs(result) if d.code == "DEV002"]
    assert [d.range.line for d in found] == [4, 5, 6, 6, 13, 16, 16]
    assert [d.outcome is Outcome.KEPT for d in found[1:]].count(True) == (6 if kept else 0)
    assert found[0].outcome is Outcome.REPORTED  # who chooses it has to choose another


def test_a_variable_of_another_function_says_nothing() -> None:
    source = 'import torch\n\n\ndef f(kind):\n    return kind == "ref"\n\n\n'
    source += 'def g(kind):\n    return kind == "cuda"\n'
    (found,) = [d for d in constructs(run(source)) if d.code == "DEV002"]
    assert found.outcome is Outcome.REPORTED


QUESTIONS = (
    "kind = 'cuda' if torch.cuda.is_available() else 'vanilla'\n",
    "kind = 'vanilla' if not torch.cuda.is_available() else 'cuda'\n",
    "assert kind in ('cuda', 'ref')\nif kind == 'cuda' and torch.cuda.is_available():\n    f(x)\n",
    "assert kind in ('cuda', 'ref')\nif x.is_cuda and kind == 'cuda':\n    f(x)\n",
    "from typing import Literal\ndef f(kind: Literal['cuda', 'vanilla']): pass\n",
    "import os\nsources = os.path.join(here, 'cuda')\n",
    "import pathlib\nsources = pathlib.Path(here) / 'cuda' / 'a.cu'\n",
)


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
@pytest.mark.parametrize("source", QUESTIONS)
def test_a_tpu_does_not_take_the_implementation_of_cuda(source: str, target: str) -> None:
    result = run(f"import torch\n{source}", target)
    assert source in result.source.decode()
    assert not [d for d in constructs(result) if d.outcome is Outcome.REPORTED]


@pytest.mark.parametrize("target", TARGETS)
def test_a_device_is_chosen_as_before(target: str) -> None:
    source = "import torch\nkind = 'cuda' if torch.cuda.is_available() else 'cpu'\nx.to(kind)\n"
    assert b"is_available" not in run(source, target).source
