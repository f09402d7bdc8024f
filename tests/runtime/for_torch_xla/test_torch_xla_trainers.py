"""Processes of a launcher that have no device each, as on the CPU."""

import pytest
import tpu_runtime
from accelerate import Accelerator
from accelerate.state import AcceleratorState

tpu_runtime.setup()


def test_ranks_do_not_train_alone_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="set up for 2 ranks, and there are 1"):
        Accelerator()
    AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.delenv("WORLD_SIZE")
    assert Accelerator().num_processes == 1
