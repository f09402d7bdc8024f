"""Imports of names that are gone, and that nothing uses."""

from pathlib import Path

import pytest
from helpers import migrated, write_tree

from migrator import migrate_paths

HEAD = "import torch\n"
TAIL = "x = torch.ones(3).cuda()\n"


@pytest.mark.parametrize(
    ("imported", "left"),
    [
        ("from scipy.misc import imread\n", ""),
        ("from scipy.misc import imread, imresize\nprint(imresize)\n",
         "from scipy.misc import imresize\nprint(imresize)\n"),
        ("from torch._six import inf, string_classes\n", ""),
        ("from torch.legacy import nn as old\n", ""),
        ("import torchvision\nimport torchvision.models.utils\nprint(torchvision.io)\n",
         "import torchvision\nprint(torchvision.io)\n"),
        ("import urlparse\ny = urlparse.urljoin\n", "y = urllib.parse.urljoin\n"),
    ],
)  # fmt: skip
def test_an_import_that_nothing_uses_goes(imported: str, left: str) -> None:
    new = "import urllib.parse\n" if "urllib" in left else ""
    expected = f"{HEAD}{new}{left}{TAIL}".replace(".cuda()", '.to("jax")')
    assert "".join(migrated(f"{HEAD}{imported}{TAIL}").split()) == "".join(expected.split())


@pytest.mark.parametrize(
    "imported",
    [
        "from scipy.misc import imread\n__all__ = ['imread']\n",
        "import torchvision.models.utils\nprint(torchvision.io)\n",
        "try:\n    from scipy.misc import imread\nexcept ImportError:\n    pass\n",
    ],
)
def test_an_import_that_something_may_need_stays(imported: str) -> None:
    assert imported in migrated(f"{HEAD}{imported}{TAIL}")


def test_an_import_that_another_file_takes_stays(tmp_path: Path) -> None:
    files = {
        "net.py": f"{HEAD}from scipy.misc import imread\n{TAIL}",
        "train.py": "from net import imread\nprint(imread)\n",
    }
    report = migrate_paths([write_tree(tmp_path, files)], "torchax")
    [text] = [f.result.source.decode() for f in report.files if f.path.name == "net.py"]
    assert "from scipy.misc import imread\n" in text
