"""Configurations change with the programs that may read them."""

from pathlib import Path

import pytest
from helpers import write_tree

from migrator import migrate_paths

MIGRATES = "import torch\n\nx = torch.ones(3).cuda()\n"
STAYS = """\
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2,))
"""
SETTING = "model: small\ndevice: cuda\n"


@pytest.mark.parametrize(
    ("files", "changes"),
    [
        ({"main.py": MIGRATES}, True),
        ({"main.py": MIGRATES, "other.py": STAYS}, False),
        ({"conf/main.py": MIGRATES, "apart/other.py": STAYS}, True),  # which isn't above it
        ({"src/main.py": MIGRATES}, True),
        ({"src/main.py": MIGRATES, "src/other.py": STAYS}, False),
        (
            {
                "src/main.py": MIGRATES,
                "tests/test_other.py": f"import pytest\n{STAYS}\n\ndef test_it(): pass\n",
            },
            True,
        ),
    ],
)
def test_it_stays_with_a_program_that_may_read_it(
    tmp_path: Path, files: dict[str, str], changes: bool
) -> None:
    write_tree(tmp_path, {**files, "conf/base.yaml": SETTING})
    report = migrate_paths([tmp_path], "torchax")
    file = next(file for file in report.files if file.path.name == "base.yaml")
    assert file.result.changed == changes
    if not changes:
        [found] = file.result.diagnostics
        assert found.message.endswith("may read it, and stays as it is")


def test_a_hook_asks_for_programs_that_it_was_not_given(tmp_path: Path) -> None:
    write_tree(tmp_path, {"main.py": STAYS, "conf/base.yaml": SETTING})
    report = migrate_paths([tmp_path / "conf/base.yaml"], "torchax", from_hook=True)
    assert not report.changed
