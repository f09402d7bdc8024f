"""KNN_CUDA's module in PyTorch: its kernel needs CUDA. https://github.com/unlimblue/KNN_CUDA"""

import torch
from torch import Tensor, nn

__all__ = ["KNN"]


class KNN(nn.Module):
    """The nearest ``k`` of ``ref`` for each point of ``query``: distances and indices.

    With ``transpose_mode``, points are (batch, points, dim) and results (batch, queries, k);
    otherwise, each is transposed.
    """

    def __init__(self, k: int, transpose_mode: bool = False) -> None:
        super().__init__()
        self.k, self._t = k, transpose_mode

    @torch.no_grad()
    def forward(self, ref: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        if not self._t:
            ref, query = ref.transpose(1, 2), query.transpose(1, 2)
        squares = (query[:, :, None] - ref[:, None]).float().square().sum(-1)
        nearest, index = squares.topk(self.k, dim=-1, largest=False)
        distances = nearest.sqrt()
        if not self._t:
            return distances.transpose(1, 2), index.transpose(1, 2)
        return distances, index
