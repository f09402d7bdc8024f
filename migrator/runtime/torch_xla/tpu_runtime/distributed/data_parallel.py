"""DataParallel: one process drives all devices, with torch_xla's SPMD (`setup(spmd=True)`)."""

from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..device import DEVICE_TYPE
from . import mesh
from .batch_sharding import move_batch, note_batch


class DataParallel(nn.DataParallel[nn.Module]):
    """`torch.nn.DataParallel`: each batch is split over all devices, whatever ``device_ids`` says.

    Statistics of BatchNorm are those of the whole batch; in the original, those of one part.
    """

    def __init__(
        self, module: nn.Module, device_ids: object = None, output_device: object = None,
        dim: int = 0,
    ) -> None:  # fmt: skip
        nn.Module.__init__(self)
        self.module, self.dim = module, dim
        self.device_ids, self.output_device = list(range(mesh.start(mesh.DATA))), 0

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's results for the whole batch."""
        inputs, kwargs = move_batch(self.module, inputs), move_batch(self.module, kwargs)
        count = len(self.device_ids)
        if mesh.divides(mesh.DATA):
            tree_map_only(Tensor, self._split, (inputs, kwargs))
            note_batch((*inputs, *kwargs.values()), lambda n: f"a batch of {n} " + (
                f"cannot be split over {count} devices: each computes all of it" if n % count
                else f"is {n // count} on each of {count} devices"))  # fmt: skip
        return self.module(*inputs, **kwargs)

    def _split(self, tensor: Tensor) -> None:
        """A part for each device if the first dimension can be divided."""
        if tensor.dim() and tensor.shape[0] and tensor.shape[0] % len(self.device_ids) == 0:
            if tensor.device.type == DEVICE_TYPE:
                mesh.placed(tensor, 0)
