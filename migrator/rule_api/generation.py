# ruff: noqa: F401  what it imports is for rules
"""Generation of text: loops over tokens, and caches of keys and values."""

from migrator.analysis.training.find_kv_caches import Attention, ForwardPass, kv_passes
from migrator.analysis.training.forward_passes import reads_in_passes
from migrator.analysis.training.kv_cache_argument import GivenCache, given_caches
from migrator.analysis.training.kv_cache_attention import Join, Shown
from migrator.analysis.training.kv_cache_concat import GrownCaches, grown_caches
from migrator.analysis.training.last_position import is_returned, last_positions
from migrator.analysis.training.token_counters import Counter, token_counters
from migrator.analysis.training.token_loops import (
    CollectingLoop,
    TokenLoop,
    collecting_loop,
    token_loop,
)
