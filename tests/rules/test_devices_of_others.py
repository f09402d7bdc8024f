"""A value that another file of the program uses as a device."""

from pathlib import Path

import pytest
from helpers import write_tree

from migrator import migrate_paths
from migrator.diagnostics import Outcome

CONFIG = """\
where = "cuda"


class Conf:
    place = "cuda"
    backend = "cuda"


conf = Conf()
"""
TRAIN = "import torch\n@IMPORT@\n\nx = torch.ones(3).cuda()\n@USE@\n"


def _migrated(folder: Path, imported: str, use: str) -> tuple[str, list[int]]:
    """config.py, and the lines that are reported."""
    files = {
        "config.py": CONFIG,
        "train.py": TRAIN.replace("@IMPORT@", imported).replace("@USE@", use),
    }
    report = migrate_paths([write_tree(folder, files)], "torchax")
    [config] = [f.result for f in report.files if f.path.name == "config.py"]
    left = [d.range.line for d in config.diagnostics if d.outcome is Outcome.REPORTED]
    return config.source.decode(), left


@pytest.mark.parametrize(
    ("imported", "use", "line"),
    [
        ("from config import Conf", "y = torch.ones(3, device=Conf.place)", 5),
        ("import config", "y = x.to(config.Conf.place)", 5),
        ("import config as c", "y = torch.device(c.where)", 1),
        ("from config import where as here", "y = x.to(here)", 1),
    ],
)
def test_it_becomes_the_targets(tmp_path: Path, imported: str, use: str, line: int) -> None:
    text, left = _migrated(tmp_path, imported, use)
    expected = CONFIG.splitlines()
    expected[line - 1] = expected[line - 1].replace("cuda", "jax")
    assert text.splitlines() == expected
    assert left == [n for n in (1, 5, 6) if n != line]


@pytest.mark.parametrize(
    ("imported", "use"),
    [
        ("from config import Conf", "y = choose(Conf.place)"),
        ("import config\nfrom other import Conf", "y = x.to(Conf.place)"),
        ("from config import Conf", "class Other:\n    place = 'cpu'\ny = x.to(Other.place)"),
    ],
)
def test_what_no_other_file_uses_so_is_reported(tmp_path: Path, imported: str, use: str) -> None:
    text, left = _migrated(tmp_path, imported, use)
    assert text == CONFIG and left == [1, 5, 6]
