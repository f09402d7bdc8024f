"""Calls for which torch_tpu ends the process, unless its runtime takes them: the CPU's values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime
from torch import Tensor


def none(x: Tensor) -> Tensor:
    return torch.zeros(0, dtype=torch.int64, device=x.device)


def columns(x: Tensor) -> Tensor:
    return torch.tensor([0, 2, 2], device=x.device)


# Of a tensor of 4 times 3, and of the same without rows.
WITHOUT_ELEMENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "index_select": lambda x: x.index_select(0, none(x)),
    "index_add": lambda x: x.detach().index_add(0, none(x), x),
    "index_copy": lambda x: x.detach().index_copy(0, none(x), x),
    "combinations": lambda x: torch.combinations(x.flatten(), 2),
    "grid_sample": lambda x: F.grid_sample(
        x[:, :, None, None].expand(-1, -1, 2, 2), x.new_zeros(len(x), 2, 2, 2), align_corners=False
    ),
    "grid_sample of volumes": lambda x: F.grid_sample(
        x[:, :, None, None, None].expand(-1, -1, 2, 2, 2),
        x.new_zeros(len(x), 1, 2, 2, 3), align_corners=False,
    ),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "channel_shuffle": lambda x: F.channel_shuffle(x[:, :, None, None], 3),
}  # fmt: skip
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "index_reduce": lambda x: x.index_reduce(1, columns(x), x * 2, "amax"),
    "index_reduce, in place": lambda x: (x * 1).index_reduce_(
        1, columns(x), x.detach() + 1, "mean", include_self=False
    ),
    "index_reduce, of one dimension": lambda x: x[0].index_reduce(0, columns(x), x[1], "prod"),
    "fftn of a number": lambda x: torch.fft.fftn(x[0, 0]).real,
    "index_select by a number": lambda x: x.index_select(1, columns(x)[1]),
    "index_add by a number": lambda x: x.detach().index_add(0, columns(x)[1], x[:1]),
    "index_copy by a number": lambda x: x.detach().index_copy(0, columns(x)[1], x[:1]),
    "index_select of a number": lambda x: x[0, 0].index_select(-1, columns(x)[0]),
    "index_fill of a number": lambda x: x[0, 0].index_fill(0, columns(x)[:1], 2.0),
    "index_fill with a tensor": lambda x: x.detach().index_fill(1, columns(x), x[0, 0]),
    "reflected": lambda x: F.grid_sample(
        x[None, None], x.view(1, 3, 2, 2) * 3, padding_mode="reflection", align_corners=False
    ),
    "reflected, by cubes": lambda x: F.grid_sample(
        x[None, None], x.view(1, 3, 2, 2) * 3, "bicubic", "reflection", align_corners=True
    ),
    "reflected, volumes": lambda x: F.grid_sample(
        x.view(1, 1, 3, 2, 2),
        x.view(1, 2, 2, 1, 3) * 3,
        "bilinear",
        "reflection",
        align_corners=False,
    ),
    "reflected by the nearest": lambda x: F.grid_sample(
        x[None, None], x.view(1, 3, 2, 2) * 3, "nearest", "reflection", align_corners=False
    ),
    "replicated and cut": lambda x: F.pad(x[None], (-1, 2), mode="replicate"),
    "replicated and cut, images": lambda x: F.pad(x[None], (1, -1, -2, 1), mode="replicate"),
    "replicated and cut, volumes": lambda x: F.pad(
        x[None, None], (1, -1, -2, 1, 1, 1), mode="replicate"
    ),
    "replicated": lambda x: F.pad(x[None], (1, 1, 2, 1), mode="replicate"),
}


def results(run: Callable[[Tensor], Tensor], start: Tensor, device: str) -> list[Tensor | None]:
    x = start.to(device).requires_grad_()
    found = run(x)
    assert found.device.type == device
    (found.square().sum() if found.numel() else found.sum()).backward()
    return [found.detach().cpu(), None if x.grad is None else x.grad.cpu()]


@pytest.mark.parametrize("name", WITHOUT_ELEMENTS)
def test_what_has_no_elements_gives_what_the_cpu_gives(name: str) -> None:
    tpu_runtime.setup()
    run, start = WITHOUT_ELEMENTS[name], torch.zeros(0, 3)
    torch.testing.assert_close(results(run, start, "tpu"), results(run, start, "cpu"))


@pytest.mark.parametrize("name", OTHERS)
def test_the_cpu_computes_what_would_end_the_process_or_be_wrong(name: str) -> None:
    tpu_runtime.setup()
    run, start = OTHERS[name], torch.linspace(-1, 2, 12).view(4, 3)
    torch.testing.assert_close(results(run, start, "tpu"), results(run, start, "cpu"))


def test_an_index_into_nothing_raises_an_error() -> None:
    tpu_runtime.setup()
    for device in ("cpu", "tpu"):
        x = torch.zeros(0, 3, device=device)
        with pytest.raises(RuntimeError, match="should be positive"):
            x.index_select(0, columns(x))
