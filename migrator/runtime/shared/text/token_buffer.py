"""Growing text in a buffer whose length is a power of two.

With `torch.cat`, each new token makes a new shape, which has to be compiled. Here the model gets
the whole buffer, padded on the right, and its output for the last token is selected by a position
that is a tensor. The results are only the same if outputs don't depend on later tokens, as with
causal attention.
"""

import torch
from torch import Tensor

_LEAST = 64  # tokens: shorter ones aren't faster


class TokenBuffer:
    """Tokens of shape (batch, length, …) that are appended to."""

    def __init__(self, tokens: Tensor) -> None:
        self._length = tokens.shape[1]
        self._values = _padded(tokens)
        # On the device, so that one program serves every end.
        self._end = torch.tensor([self._length], device=tokens.device)
        self._width = 0  # of the window

    @property
    def tokens(self) -> Tensor:
        """All tokens so far."""
        return self._values.cpu()[:, : self._length].to(self._values.device)

    def window(self, limit: int | None = None) -> Tensor:
        """For the model: all tokens, padded on the right, or the last ``limit``."""
        size = self._values.shape[1]
        self._width = min(size, limit or size)  # because `tokens[:, -0:]` is all of them
        if self._length <= self._width:
            return self._values[:, : self._width]
        places = torch.arange(self._width, device=self._values.device)
        return self._values.index_select(1, self._end - self._width + places)

    @property
    def position(self) -> Tensor:
        """The last token's position in the window, of shape (1,)."""
        return self._end.clamp(max=self._width) - 1

    def last(self, outputs: Tensor) -> Tensor:
        """``outputs[:, -1]`` of the model for the window: (batch, length, …) → (batch, …).

        Raises ValueError for a model that returns other positions than the window's.
        """
        if outputs.shape[1] != self._width:
            raise ValueError(
                f"the model was given {self._width} tokens, padded on the right, and returns "
                f"{outputs.shape[1]} positions: choose the last token's in the model, by an "
                "argument that is the buffer's `position`"
            )
        return outputs.index_select(1, self.position)[:, 0]

    def append(self, tokens: Tensor) -> None:
        """Append (batch, n, …) tokens; types are promoted as by ``torch.cat``."""
        count = tokens.shape[1]
        dtype = torch.promote_types(self._values.dtype, tokens.dtype)
        self._values, tokens = self._values.to(dtype), tokens.to(dtype)
        if self._length + count > self._values.shape[1]:
            self._values = _padded(self.tokens, count)
        places = self._end + torch.arange(count, device=self._end.device)
        self._values = self._values.index_copy(1, places, tokens)
        self._length, self._end = self._length + count, self._end + count


def _padded(tokens: Tensor, more: int = 0) -> Tensor:
    """Padded on the CPU, where a new length needs no new program."""
    length = tokens.shape[1]
    size = max(_LEAST, 1 << (length + more - 1).bit_length())
    padding = tokens.new_zeros((tokens.shape[0], size - length, *tokens.shape[2:]), device="cpu")
    return torch.cat([tokens.cpu(), padding], dim=1).to(tokens.device)
