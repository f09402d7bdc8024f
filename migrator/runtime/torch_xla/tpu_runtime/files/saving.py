"""Files of tensors: saved as CPU tensors, so that they can be read on any machine."""

import pickle
from types import ModuleType
from typing import Any

import torch
import torch_xla

from ..device import DEVICE_TYPE


class _Pickler(pickle.Pickler):
    """Writes device tensors as CPU tensors; torch_xla's own format can't be read without torch_xla.

    If there are none, it doesn't call torch_xla: in a forked data loader worker that would hang.
    """

    _is_first = True

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.device.type != DEVICE_TYPE:
            return NotImplemented
        if self._is_first:
            torch_xla.sync()  # one program for all pending values, not one for each tensor
            self._is_first = False
        tensor = value.detach().cpu()
        if isinstance(value, torch.nn.Parameter):
            tensor = torch.nn.Parameter(tensor, value.requires_grad)
        else:
            tensor.requires_grad_(value.requires_grad)
        return tensor.__reduce_ex__(2)


_pickle_module = ModuleType("pickle_with_cpu_tensors")
_pickle_module.__dict__.update(pickle.__dict__ | {"Pickler": _Pickler})


def save(obj: object, f: Any, **kwargs: Any) -> None:
    """`torch.save`, with every device tensor in ``obj`` written as a CPU tensor."""
    torch.save(obj, f, pickle_module=_pickle_module, **kwargs)
