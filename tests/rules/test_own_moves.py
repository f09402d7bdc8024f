"""Classes of the program that have a `cuda` or a `half` of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import write_tree

from migrator import migrate_paths
from migrator.config import Config

_USER = (
    "import torch\nimport library\n\n\ndef run(x):\n    x = x.cuda()\n    return x.half()\n\n\n"
    "def made():\n    return library.Own().cuda()\n"
)
_CLASS = """
import torch
from torch import nn


class Own(nn.Module):
    def __init__(self, model, table):
        super().__init__()
        self.model = model
        self.table = table

    def cuda(self):
        self.model.cuda()
        return self

    def half(self):
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def forward(self, x):
        return self.model(x)
"""
# What makes another thing of `cuda`.
_OTHER_CUDA = {
    "no model": ("nn.Module", "object"),
    "more": ("        return self\n", "        self.moved = True\n        return self\n"),
    "another member": ("self.model.cuda()", "self.model.half()"),
    "an argument": ("def cuda(self):", "def cuda(self, device=None):"),
    "to another device": ("self.model.cuda()", "self.model.cuda(1)"),
    "something else": ("        return self\n", "        return self.model\n"),
    "on the CPU": ("return self.model(x)", "return self.table(x.cpu()).to(x.device)"),
}
_OTHER_HALF = {
    "all": (" if t.is_floating_point() else t", ""),
    "another type": ("t.half()", "t.bfloat16()"),
    "only a part": ("self._apply", "self.model._apply"),
}


def _migrated(tmp_path: Path, library: str) -> tuple[str, str]:
    write_tree(tmp_path, {"library.py": library, "main.py": _USER})
    report = migrate_paths([tmp_path], "torchax", config=Config(unsafe=True))
    found = {file.path.name: file.result.source.decode() for file in report.files}
    return found["main.py"], found["library.py"]


def test_one_that_does_as_torch_is_migrated(tmp_path: Path) -> None:
    main, library = _migrated(tmp_path, _CLASS)
    assert 'x = x.to("jax")\n    return x.bfloat16()' in main
    assert 'library.Own().to("jax")' in main
    assert 'self.model.to("jax")\n        return self' in library


@pytest.mark.parametrize("change", _OTHER_CUDA.values(), ids=_OTHER_CUDA)
def test_one_that_does_something_else_is_left(tmp_path: Path, change: tuple[str, str]) -> None:
    assert change[0] in _CLASS
    main, _ = _migrated(tmp_path, _CLASS.replace(*change))
    assert "x = x.cuda()" in main and "library.Own().cuda()" in main


@pytest.mark.parametrize("change", _OTHER_HALF.values(), ids=_OTHER_HALF)
def test_a_half_of_its_own_is_left(tmp_path: Path, change: tuple[str, str]) -> None:
    assert change[0] in _CLASS
    assert "return x.half()" in _migrated(tmp_path, _CLASS.replace(*change))[0]


_HOLDER = """
class Held:
    def apply(self, function):
        return Held(*map(function, self.tensors))

    def to(self, device, *names, non_blocking=False):
        return self.apply(lambda x: x.to(device=device, non_blocking=non_blocking), *names)
"""
_TO_RANK = "import torch\nimport library\n\nrank = torch.cuda.current_device()\n"
# What makes another thing of `to`.
_OTHER_TO = {
    "it looks at it": (
        "        return self.apply",
        "        print(device)\n        return self.apply",
    ),
    "a type": ("x.to(device=device,", "x.to(dtype=device,"),
    "not the first": ("x.to(device=device,", "x.to(0, device,"),
    "not used": ("x.to(device=device,", "x.to(0,"),
    "decorated": ("    def to(", "    @staticmethod\n    def to("),
}


@pytest.mark.parametrize(
    "change",
    [("", ""), ("device, *names, non_blocking=False", "*args"), ("device=device, ", "device, ")],
)
def test_one_that_hands_the_device_on_is_as_torchs(change: tuple[str, str], tmp_path: Path) -> None:
    """A batch of graphs, as PyTorch Geometric has it in its own repository."""
    text = _HOLDER.replace(*change)
    if "*args" in text:
        text = text.replace("device=device, non_blocking=non_blocking), *names", "*args)")
    assert "held.to('jax', 'x')" in _to_rank(tmp_path, text)


@pytest.mark.parametrize("change", _OTHER_TO.values(), ids=_OTHER_TO)
def test_one_that_does_more_with_the_device_is_left(
    change: tuple[str, str], tmp_path: Path
) -> None:
    assert change[0] in _HOLDER
    assert "held.to(rank, 'x')" in _to_rank(tmp_path, _HOLDER.replace(*change))


def _to_rank(tmp_path: Path, library: str) -> str:
    main = f"{_TO_RANK}held = library.held()\nheld.to(rank, 'x')\n"
    write_tree(tmp_path, {"library.py": f"import torch\n\n{library}", "main.py": main})
    report = migrate_paths([tmp_path], "torchax")
    (found,) = [f.result.source.decode() for f in report.files if f.path.name == "main.py"]
    return found
