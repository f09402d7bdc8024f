"""Ranks of torchrun, which accelerate does not join on torch_xla."""

import pytest
import tpu_runtime
from accelerate import Accelerator
from accelerate.state import AcceleratorState

tpu_runtime.setup()


def test_ranks_do_not_train_alone_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="2 processes"):
        Accelerator()
    AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.delenv("WORLD_SIZE")
    assert Accelerator().num_processes == 1
