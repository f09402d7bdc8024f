# ruff: noqa: F401  what it imports is for rules
"""Names that newer releases of torch, NumPy and Python don't have."""

from migrator.analysis.find_absent_names import missing
from migrator.analysis.find_removed_names import removed, removed_from
from migrator.analysis.old_images import numbers
from migrator.analysis.old_numbers import owner_of
from migrator.analysis.upgrade_tables import (
    BUILTIN,
    METHOD,
    Removed,
    keyword_only,
    removed_arguments,
    removed_builtins,
    removed_frame_methods,
    removed_methods,
    removed_names,
)
