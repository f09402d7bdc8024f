"""Tests in the environment of torch_tpu, on XLA's CPU client: `python3 tests/run.py --torch-tpu`.

Those of other environments are not collected with them, nor they with those.
"""

from __future__ import annotations

import sys

from target import TARGET

from migrator.targets import find_target
from migrator.targets.copies import folder_to_import

if TARGET == "torch_tpu":
    sys.path.insert(0, str(folder_to_import(TARGET)))
    stand_in = find_target(TARGET).host.stand_in
    assert stand_in is not None and str(stand_in.modules) in sys.path  # as tests/run.py has it
else:
    collect_ignore_glob = ["test_*.py"]
