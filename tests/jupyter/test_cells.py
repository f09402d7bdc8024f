"""Cells one by one: what they know of others, and what is to run before them."""

from __future__ import annotations

import pytest

from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.errors import UsageError
from migrator.jupyter.migrated_cells import Cells
from migrator.targets import find_target

SET_UP = "import tpu_runtime\ntpu_runtime.setup()"


class Session:
    """Cells that are typed one after the other; each runs."""

    def __init__(self, target: str = "torchax") -> None:
        self.cells, self.typed, self.target = Cells(), list[str](), find_target(target)

    def plain(self, *lines: str) -> None:
        self.typed.append("\n".join(lines))

    def migrated(self, *lines: str) -> tuple[str, str]:
        """The set-up before a cell, and what runs in its place."""
        cell = "\n".join(lines) + "\n"
        self.last = self.cells.migrate(cell, self.typed, [self.target], Config())
        self.cells.accept(self.last)
        self.typed.append(f"%%tpu_migrate\n{cell}")
        return self.last.set_up, self.last.source.rstrip("\n")


def test_set_up_runs_once_and_before_the_first_cell_that_needs_it() -> None:
    session = Session()
    session.plain("import torch")
    assert session.migrated("x = 1") == ("", "x = 1")
    assert session.migrated("x = torch.ones(2).cuda()") == (
        SET_UP,
        'x = torch.ones(2).to("jax")',
    )
    assert session.migrated("y = x.cuda()") == ("", 'y = x.to("jax")')


def test_a_cell_knows_what_others_have_made() -> None:
    session = Session("torch_xla")
    session.plain("import torch", "from torch import nn", "from torch.cuda.amp import GradScaler")
    session.migrated("model = nn.Linear(4, 2).cuda()", "scaler = GradScaler()")
    session.plain("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)")
    set_up, source = session.migrated(
        "for x in [torch.ones(2, 4)]:",
        "    optimizer.zero_grad()",
        "    scaler.scale(model(x.cuda()).sum()).backward()",
        "    scaler.step(optimizer)",
        "    scaler.update()",
    )
    assert set_up == "import torch_xla"
    assert source.endswith("scaler.update()\n    torch_xla.sync()")


def test_other_cells_are_left_as_they_ran() -> None:
    session = Session()
    session.plain("import torch", "x = torch.ones(2).cuda()")
    assert session.migrated("y = x.cuda()")[1] == 'y = x.to("jax")'
    (found,) = (d for d in session.last.report.result.diagnostics if d.code == "MOV001")
    assert found.outcome is Outcome.REWRITTEN and found.range.line == 2  # below the magic


def test_a_cell_that_runs_again_takes_its_own_place() -> None:
    session = Session()
    session.plain("import torch")
    first = session.migrated("x = torch.ones(2).cuda()")
    session.migrated("del x")
    assert session.migrated("x = torch.ones(2).cuda()")[1] == first[1]
    assert str(session.last.report.path) == "In [2]"


def test_magics_and_cells_that_are_no_python_are_in_nobodys_way() -> None:
    session = Session()
    session.plain("%load_ext migrator", "!nvidia-smi")
    session.plain("%%bash", "python train.py --device cuda")
    session.plain("import torch", "1 +")
    session.plain("import torch")
    assert session.migrated("%%time", "torch.cuda.synchronize()") == (
        SET_UP,
        "%%time\ntpu_runtime.synchronize()",
    )


def test_what_another_cell_would_have_to_be_is_an_error() -> None:
    session = Session("keras_jax")
    session.plain("import keras")  # chooses its back end, which an environment variable names
    with pytest.raises(UsageError, match=r"In \[1\] has to change, too"):
        session.migrated("model = keras.Sequential([keras.layers.Dense(2)])", "model.compile()")
