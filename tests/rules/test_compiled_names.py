"""torch.compile gives parameters other names: `_orig_mod.weight`."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, cli, constructs, migrated, run, write_tree

USING = {
    "saves": "torch.save(net.state_dict(), path)",
    "loads": "net.load_state_dict(torch.load(path))",
    "saves parts": "torch.save({'net': net.state_dict(), 'step': 3}, path)",
    "groups": "groups = [p for n, p in net.named_parameters() if n.startswith('head')]",
    "the original": "torch.save(net._orig_mod.state_dict(), path)",
    "a function": "def save(model):\n    torch.save(model.state_dict(), path)\nsave(net)",
}
COMPILED = (
    'net = torch.compile(net, mode="max-autotune")',
    "net = torch.compile(model=net, fullgraph=True)",
    "if fast:\n    net = torch.compile(net)",
    "net = torch.compile(net) if fast else net",
)
NOT_USING = (
    ("net = torch.compile(net)", "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
     "torch.save(optimizer.state_dict(), path)"),
    ("fast = torch.compile(net)", "torch.save(net.state_dict(), path)\ny = fast(x)"),
    ("def f(x):\n    return x\nf = torch.compile(f)", "torch.save(net.state_dict(), path)"),
)  # fmt: skip
NET = "import torch\nnet = torch.nn.Linear(2, 2).cuda()\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("kind", USING)
def test_names_that_are_used_stay(kind: str, compiled: str, target: str) -> None:
    source = f"{NET}{compiled}\n{USING[kind]}\n"
    assert "tpu_runtime.compile(net)" in migrated(source, target)
    (found,) = [d for d in constructs(run(source, target)) if d.code == "RUN002"]
    assert "_orig_mod." in found.message


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("compiled", "use"), NOT_USING)
def test_names_that_nobody_uses_go(compiled: str, use: str, target: str) -> None:
    after = migrated(f"{NET}{compiled}\n{use}\n", target)
    assert ".compile(" not in after


def test_names_that_another_file_uses(tmp_path: Path) -> None:
    write_tree(tmp_path / "p", {
        "main.py": f"{NET}from files import save\nnet = torch.compile(net)\nsave(net)\n",
        "files.py": "import torch\n\n\ndef save(net):\n    torch.save(net.state_dict(), 'x')\n",
    })  # fmt: skip
    cli("p", "--target", "torchax", "-o", "out", cwd=tmp_path)
    assert "tpu_runtime.compile(net)" in (tmp_path / "out/main.py").read_text()
