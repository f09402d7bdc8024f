"""Lists of tensors that are joined: `torch.cat([memory[k] for k in picked])`.

torch_xla 2.9 takes graphs for the same that only differ in which of their inputs are used again:
`cat([a, b, a])`, then `cat([a, b, b])` gives a, b, a again, and so do two lists that share other
tensors than before. A list of computed tensors is therefore joined by a program of its own, in
which each of them occurs once.
"""

from collections.abc import Sequence

import torch
import torch_xla
from torch import Tensor

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import Kernel, replace, stock

FEWEST = 3  # two tensors are one or two inputs, which makes a difference


def _are_computed(tensors: Sequence[Tensor]) -> bool:
    if any(tensor.device.type != DEVICE_TYPE for tensor in tensors):
        return False
    return not any(torch_xla._XLAC._check_tensor_need_materialization([*tensors]))


def _apart(name: str) -> Kernel:
    """`cat` or `stack`, which compute the joined list at once."""
    join, choose = stock(name), stock("index_select")

    def once(tensors: Sequence[Tensor], dim: int) -> Tensor:
        """The joined list; a tensor that occurs again is looked up."""
        handles = torch_xla._XLAC._get_tensors_handle([*tensors])
        each = dict(zip(handles, tensors, strict=True))
        if len(each) == len(tensors) or len({tensor.dim() for tensor in tensors}) > 1:
            return join(tensors, dim)  # type: ignore[no-any-return]
        dim %= tensors[0].dim() + (name == "stack")
        places: dict[int, range] = {}
        end = 0
        for handle, tensor in each.items():
            begin, end = end, end + (1 if name == "stack" else tensor.shape[dim])
            places[handle] = range(begin, end)
        rows = torch.tensor([row for handle in handles for row in places[handle]])
        joined = join([*each.values()], dim)
        return choose(joined, dim, rows.to(joined.device))  # type: ignore[no-any-return]

    def kernel(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        is_allowed = torch_xla._XLAC._get_allow_execution()
        if len(tensors) < FEWEST or not is_allowed or not _are_computed(tensors):
            return join(tensors, dim)  # type: ignore[no-any-return]
        result = once(tensors, dim)
        torch_xla._XLAC._xla_sync_multi([result], [str(result.device)], False, True)
        return result

    return kernel


def install() -> None:
    """Join lists of computed tensors by programs of their own."""
    for name in ("cat", "stack"):
        replace(name, _apart(name))
