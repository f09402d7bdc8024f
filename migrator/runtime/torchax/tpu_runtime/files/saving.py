"""Files of tensors: saved as CPU tensors, so that they can be read on any machine."""

from typing import Any

import torch


def save(obj: object, f: Any, **kwargs: Any) -> None:
    """`torch.save`, with every device tensor in ``obj`` written as a CPU tensor.

    After ``setup`` the same applies to `torch.save` itself, pickle and deepcopy.
    """
    torch.save(obj, f, **kwargs)
