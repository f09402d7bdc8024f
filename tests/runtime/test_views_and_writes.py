"""Views and writes on a device do what they do on the CPU; on both targets."""

from collections.abc import Callable

import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor

from tests.runtime.contract import HERE
from tests.runtime.support import DEVICE, WORD, on_device, small

tpu.setup()


def indices(x: torch.Tensor, *numbers: int) -> torch.Tensor:
    return torch.tensor(numbers).to(x.device)


WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "index": lambda x: x[0].add_(10),
    "slice": lambda x: x[:, 1:].mul_(0),
    "set item": lambda x: x.__setitem__((slice(None), 1), 5),
    "set row of a CPU tensor": lambda x: x.__setitem__(0, torch.ones(3)),
    "set by mask": lambda x: x.__setitem__(x > 2, 0),
    "set by mask values": lambda x: x.__setitem__(x > 2, x[x > 2] * 2),
    "set by row mask": lambda x: x.__setitem__(torch.tensor([True, False]), 7.0),
    "set by list": lambda x: x.__setitem__([1], 7.0),
    "set by a range": lambda x: x.__setitem__((range(2), indices(x, 2, 0)), x.max()),
    "set by index tensors": lambda x: x.__setitem__((indices(x, 0, 1), indices(x, 2, 0)), 9.0),
    "set row with a dimension more": lambda x: x.__setitem__(0, x[1:] * 2),
    "set by mask with a dimension more": lambda x: x.__setitem__(x > 2, x[x > 2][None] * 2),
    "set item adds": lambda x: x.__setitem__((0, 2), x[0, 2] + 3),
    "view": lambda x: x.view(-1).__setitem__(2, 100),
    "reshape of a contiguous": lambda x: x.reshape(3, 2).zero_(),
    "reshape of a transposed is a copy": lambda x: x.t().reshape(-1).zero_(),
    "contiguous is a copy": lambda x: x.t().contiguous().zero_(),
    "contiguous of a row is no copy": lambda x: x[1:].contiguous().zero_(),
    "contiguous columns are a copy": lambda x: x[:, 1:].contiguous().zero_(),
    "flatten of columns is a copy": lambda x: x[:, ::2].flatten().zero_(),
    "contiguous of a detached is a copy": lambda x: x.t().detach().contiguous().zero_(),
    "contiguous of an expanded is a copy": lambda x: x[:1].expand(2, 3).contiguous().zero_(),
    "t": lambda x: x.t()[0].add_(1),
    "permute": lambda x: x.permute(1, 0)[1:, 0].mul_(3),
    "select": lambda x: x.select(0, 1).zero_(),
    "narrow": lambda x: x.narrow(1, 1, 2).fill_(4),
    "unsqueeze": lambda x: x.unsqueeze(0).squeeze(0)[1].zero_(),
    "chunk": lambda x: x.chunk(3, 1)[2].neg_(),
    "split": lambda x: x.split([1, 2], 1)[1].copy_(torch.ones(2)),
    "unbind": lambda x: x.unbind(1)[1].zero_(),
    "iteration": lambda x: [row.add_(1) for row in x],
    "diagonal": lambda x: x.diagonal().fill_(8),
    "flatten": lambda x: x.flatten().add_(1),
    "flatten of a negative start": lambda x: x.flatten(-2, -1).add_(1),
    "view of a view": lambda x: x[:, 1:].t()[0].view(-1).add_(5),
    "detach": lambda x: x.detach().zero_(),
    "data": lambda x: x.data.fill_(3),
    "data set": lambda x: setattr(x, "data", torch.ones(2, 3).to(x.device)),
    "copy broadcasts": lambda x: x.copy_(torch.ones(3)),
    "missing in-place": lambda x: x.mul_(0.3).round_(),
    "clamp": lambda x: x.clamp_(1, 4),
    "out": lambda x: torch.add(x[0], 1, out=x[1]),
    "expand clone": lambda x: x[0].expand(2, 3).clone().zero_(),
    "unsqueeze in place": lambda x: x[0].unsqueeze_(0).zero_(),
    "transpose in place": lambda x: x.t_()[0].zero_(),
    "index add": lambda x: x.index_add_(0, indices(x, 1), torch.ones_like(x[:1])),
    "scatter": lambda x: x.scatter_(1, torch.tensor([[0], [1]]).to(x.device), 9.0),
    "masked fill": lambda x: x[1].masked_fill_(x[1] > 3, -1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str) -> None:
    expected, result = small(), on_device()
    older = [(x.view(-1), x[1:]) for x in (expected, result)]
    WRITES[name](expected)
    WRITES[name](result)
    assert result.stride() == expected.stride()
    assert torch.equal(result.cpu(), expected)
    if name not in HERE.older_views_differ:
        assert all(torch.equal(y.cpu(), x) for x, y in zip(*older, strict=True))


PARTS: dict[str, Callable[[Tensor], object]] = {
    "real": lambda z: z.real.mul_(2),
    "an imaginary part": lambda z: z.imag.__setitem__((0, 1), 5),
    "set real": lambda z: setattr(z, "real", 7),
    "view_as_real": lambda z: torch.view_as_real(z)[..., 1].add_(3),
    "there and back": lambda z: torch.view_as_complex(torch.view_as_real(z)).mul_(2),
    "of rows": lambda z: z[1:].real.zero_(),
    "of what is transposed": lambda z: z.t().imag[0].neg_(),
    "conjugate": lambda z: z.conj().add_(1 + 2j),
    "part of a conjugate": lambda z: z.conj().imag.add_(1),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_complex_numbers_are_written(name: str) -> None:
    """An optimizer steps so for complex parameters; one part of them was lost on torchax."""
    results = []
    for word in ("cpu", WORD):
        z = torch.complex(small(), small() - 2).to(word)
        older = torch.view_as_real(z)
        PARTS[name](z)
        results.append((torch.view_as_real(z).cpu(), older.cpu()))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_complex_parameters_are_trained() -> None:
    results = []
    for word in ("cpu", WORD):
        weight = torch.nn.Parameter(torch.complex(small(), small() - 2).to(word))
        optimizer = torch.optim.Adam([weight], 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            (weight * weight).abs().sum().backward()
            optimizer.step()
        results.append(torch.view_as_real(weight.detach()).cpu())
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


STRIDED: dict[str, Callable[[Tensor], Tensor]] = {
    "of a leaf": lambda x: x.as_strided((2, 2), (1, 2), 1),
    "of what is transposed": lambda x: x.t().as_strided((2, 2), (1, 3)),
    "of rows": lambda x: x[1:].as_strided((2, 2), (1, 2), 4),
    "of columns that are transposed": lambda x: x[:, 1:].t().as_strided((2, 2), (3, 1), 1),
    "of columns, where they begin": lambda x: torch.as_strided(x[:, 1:], (2, 2), (3, 1)),
    "places that overlap": lambda x: x.t().as_strided((3, 3), (1, 1)),
    "of what is permuted": lambda x: x.view(2, 2, 3).permute(2, 0, 1).as_strided((2, 3), (3, 1)),
}


@pytest.mark.parametrize("name", STRIDED)
def test_as_strided_counts_places_in_memory(name: str) -> None:
    """On stock torchax those of the view, silently."""
    results = []
    for word in ("cpu", WORD):
        x = torch.arange(12.0).reshape(4, 3).to(word).requires_grad_()
        made = STRIDED[name](x)
        weights = torch.arange(1.0, made.numel() + 1).reshape(made.shape).to(word)
        (gradient,) = torch.autograd.grad((made * weights).sum(), x)
        with torch.no_grad():
            written = x.detach().clone()
            if name != "places that overlap":
                STRIDED[name](written).mul_(2)
        results.append([tensor.detach().cpu() for tensor in (made, gradient, written)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


REPEATS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "of a number, with the size": lambda x, r: x.repeat_interleave(2, 0, output_size=8),
    "of a tensor, with the size": lambda x, r: x.repeat_interleave(r, 0, output_size=7),
    "a function": lambda x, r: torch.repeat_interleave(x, r, dim=-2, output_size=7),
    "flat": lambda x, r: torch.repeat_interleave(x, 2),
    "places": lambda x, r: torch.repeat_interleave(r, output_size=7),
}


@pytest.mark.parametrize("name", REPEATS)
def test_repeat_interleave(name: str) -> None:
    results = []
    for word in ("cpu", WORD):
        x = torch.arange(12.0).reshape(4, 3).to(word).requires_grad_()
        made = REPEATS[name](x, torch.tensor([1, 2, 0, 4]).to(word))
        results.append([made.detach().cpu().long()])
        if made.requires_grad:
            results[-1].append(torch.autograd.grad((made * made).sum(), x)[0].cpu())
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_size_that_is_not_that_of_the_repeats_is_refused() -> None:
    with pytest.raises(RuntimeError):
        made = on_device().repeat_interleave(torch.tensor([1, 2]).to(WORD), 0, output_size=7)
        made.tolist()


def test_gradients_survive_indexing_and_casts() -> None:
    x = on_device().requires_grad_()
    y = (x[1, :2] * 2).to(torch.bfloat16).float().sum()
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [[0.0, 0.0, 0.0], [2.0, 2.0, 0.0]]


BEYOND = [
    slice(-16, None), slice(None, -16), slice(-16, 2), slice(-16, -1), slice(-16, -20),
    slice(-16, None, 2), slice(1, 16), slice(16, None), slice(-3, None), slice(None, -3),
]  # fmt: skip


@pytest.mark.parametrize("places", BEYOND, ids=str)
@pytest.mark.parametrize("shape", [(3, 2), (2, 20), (3, 0)])
def test_slices_beyond_the_ends(places: slice, shape: tuple[int, ...]) -> None:
    """As `x[:, -16:]` of the last tokens, where there are fewer yet."""
    results = []
    for device in (DEVICE, "cpu"):
        x = torch.arange(float(shape[0] * shape[1])).reshape(shape).to(device).requires_grad_()
        y = x[:, places]
        (y * y).sum().backward()
        written = x.detach().clone()
        written[:, places] = -1
        written[:, places] += x.detach()[:, places]
        assert x.grad is not None
        results.append([t.detach().cpu() for t in (y, x.grad, written)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def of_one_buffer(device: torch.device) -> list[float]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
    x = small().to(device)
    flat = torch.nn.utils.parameters_to_vector(net.parameters()).detach().to(device)
    net.to(device)
    parts = flat.split([p.numel() for p in net.parameters()])
    for p, part in zip(net.parameters(), parts, strict=True):
        p.data = part.view_as(p)
    losses = []
    for _ in range(4):
        loss = net(x).square().sum()
        net.zero_grad()
        loss.backward()
        grads = [p.grad.flatten() for p in net.parameters() if p.grad is not None]
        flat.sub_(torch.cat(grads), alpha=0.1)
        losses.append(loss.item())
    return losses


def test_weights_that_are_views_of_one_buffer() -> None:
    assert of_one_buffer(DEVICE) == pytest.approx(of_one_buffer(torch.device("cpu")), rel=1e-5)


def test_places_of_a_view_whose_base_has_other_data() -> None:
    x = torch.arange(6.0).reshape(3, 2).to(DEVICE)
    flat = x.ravel()
    x.data = x.clone() + 1
    part = flat.as_strided((2,), (1,), 1)
    flat[2] = 9
    assert part.tolist() == [1, 9] and x.tolist() == [[1, 2], [3, 4], [5, 6]]
