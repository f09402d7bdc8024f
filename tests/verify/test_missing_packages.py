"""What a script needs is named at once, and not one package in each run."""

from __future__ import annotations

import sys
from pathlib import Path

from helpers import write_tree

from migrator.verify.missing_packages import missing_packages
from migrator.verify.script import Script

FILES = {
    "train.py": "import os\nimport sklearn_nosuch, json\nimport lib.net\nfrom . import x\n"
    "try:\n    import optional_nosuch\nexcept ImportError:\n    pass\n"
    "def later():\n    import later_nosuch\n",
    "lib/__init__.py": "",
    "lib/net.py": "from deep_nosuch.part import a\nimport helper\nimport pytest\n",
    "helper.py": "import broken_nosuch.x\n",
    "other.py": "import other_nosuch\n",
}


def test_all_packages_are_named_that_the_script_imports_when_it_is_loaded(tmp_path: Path) -> None:
    write_tree(tmp_path, FILES)
    script = Script(tmp_path, "train.py", [])
    found = missing_packages(script, Path(sys.executable), "sklearn_nosuch")
    assert found == ["sklearn_nosuch", "broken_nosuch", "deep_nosuch"]
    # by the name that pip knows, and without an interpreter to ask only what was missed
    assert missing_packages(script, tmp_path / "none", "sklearn") == ["scikit-learn"]
