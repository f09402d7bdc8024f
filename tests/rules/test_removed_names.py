"""Names that PyTorch and NumPy no longer have."""

import importlib
import math

import numpy as np
import pytest
import torch
from helpers import migrated, outcomes, run

from rules import removed_names

HEAD = "import numpy as np\nimport torch\n\nx = torch.ones(3).cuda()\n"


def exists(name: str) -> bool:
    module, _, last = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), last)
    except ImportError:
        return False


@pytest.mark.filterwarnings("ignore:In the future")
@pytest.mark.parametrize("name", sorted({*removed_names._BUILTIN, *removed_names._RENAMED}))
def test_another_name_of_numpy_is_replaced_by_what_it_stood_for(name: str) -> None:
    assert not hasattr(np, name)
    text = migrated(f"{HEAD}y = np.{name}\n")
    after = text.rpartition("y = ")[2].strip()
    value = eval(after, {"np": np})
    stood_for = {"unicode": str, "Infinity": math.inf, "infty": math.inf, "PINF": math.inf}
    if name in removed_names._BUILTIN:
        assert value is stood_for.get(name, getattr(__import__("builtins"), name, str))
    else:
        assert after == f"np.{removed_names._RENAMED[name]}"


@pytest.mark.parametrize("name", sorted(removed_names._INSTEAD))
def test_what_is_computed_otherwise_is_reported(name: str) -> None:
    call = {
        "torch.symeig": torch.eye(2),
        "torch.eig": torch.eye(2),
        "torch.matrix_rank": torch.eye(2),
    }
    if name in call:
        with pytest.raises(RuntimeError, match="removed"):
            getattr(torch, name.partition(".")[2])(call[name])
    elif name not in ("torch.lstsq", "torch.solve"):
        assert not exists(name)
    found = outcomes(run(f"{HEAD}import numpy\ny = {name}(x)\n"))
    assert any(code == "LIB010" and outcome == "reported" for code, outcome, *_ in found), found


def test_a_program_without_a_device_stays() -> None:
    source = "import numpy as np\nimport torch\n\nx = np.float(torch.ones(1).item())\n"
    assert migrated(source) == source


def test_a_name_of_the_programs_own_is_not_taken_for_pythons() -> None:
    source = f"{HEAD}float = np.float32\ny = np.float(1)\n"
    assert "np.float(1)" in migrated(source)
