"""Views on torchax: what does not become one."""

import torch
import tpu_runtime as tpu

from tests.runtime.support import DEVICE

tpu.setup()


def test_what_turns_without_views_stays_whole() -> None:
    x = torch.ones(2, 3, device=DEVICE)
    x.t()  # of which nobody has the result
    x.t_()
    assert x.__dict__.get("_link") is None
