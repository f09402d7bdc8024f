"""The apps need torch and friends, so their tests run in a target's environment only."""

import os

collect_ignore_glob = [] if os.environ.get("TPU_MIGRATE_TARGET") else ["test_*.py"]
