# ruff: noqa: F401  what it imports is for rules
"""Programs of several processes (ranks), and what wraps their models."""

from migrator.analysis.ranks.file_ranks import Ranks
from migrator.analysis.ranks.started_processes import JOBS, after_torchrun
from migrator.analysis.ranks.vocabulary import (
    BY_LIBRARIES,
    CHECKPOINTING,
    COPIES,
    COPIES_FOR_A_CALL,
    ENVIRONMENT,
    GONE,
    GROUP,
    OF_SHARDED,
    PER_PARAMETER,
    PER_PARAMETER_SHARDING,
    SHARDED,
    SPAWNS,
    WRAPPER,
    environment,
    is_behind_gone,
    is_served,
)
