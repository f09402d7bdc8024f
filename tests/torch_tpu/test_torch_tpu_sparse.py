"""Sparse tensors are dense on TorchTPU too, with the numbers and entries of CPU torch."""

from tests.runtime.test_sparse_tensors import (  # noqa: F401
    test_computed_with_dense_values,
    test_entries_that_are_not_known,
    test_it_is_what_it_is_on_the_cpu,
    test_others_are_torchs,
    test_what_it_costs_is_said,
)
