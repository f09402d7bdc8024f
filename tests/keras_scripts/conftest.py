"""Tests in the environment of a target for Keras: `python3 tests/run.py --keras`.

Those of other environments are not collected with them, nor they with those.
"""

from __future__ import annotations

from target import TARGET

from migrator.targets import targets

if TARGET not in targets() or targets()[TARGET].framework != "tensorflow":
    collect_ignore_glob = ["test_*.py"]
