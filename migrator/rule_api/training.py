# ruff: noqa: F401  what it imports is for rules
"""Training loops, checkpoints and samplers, and what reads values of tensors in them."""

from migrator.analysis.training.blocking_reads import (
    CHECK_IN_MODEL,
    is_asked,
    is_checked_later,
    only_checks,
    prints_tensor,
    reads_tensor_value,
)
from migrator.analysis.training.checkpoints import is_only_state
from migrator.analysis.training.cpu_locations import is_always_cpu, may_be_none
from migrator.analysis.training.evaluation import only_evaluates, trains_in_calls
from migrator.analysis.training.find_masked_assignments import masked_assignment
from migrator.analysis.training.find_optimizer_steps import (
    READING_METHODS,
    end_of_round,
    end_of_step,
    following,
    is_model,
    is_of_an_optimizer,
    is_optimizer_step,
    is_scaler,
    may_step,
    trains,
)
from migrator.analysis.training.samplers import samples
from migrator.analysis.training.storage_locations import is_storage, is_tag, placing
from migrator.analysis.training.token_positions import (
    free_name,
    keys,
    window,
    with_key,
    with_key_of,
)
