"""Views: what is written to them and to their bases, and tensors that become others in place."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import tpu_runtime as tpu

from tests.runtime.support import DEVICE, ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import views

tpu.setup()

BECOMES: dict[str, Callable[[torch.Tensor], Any]] = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "squeeze_": lambda x: x.unsqueeze_(0).squeeze_(0),
    "data": lambda x: setattr(x, "data", x.detach() * 10),
    "data of another shape": lambda x: setattr(x, "data", x.detach()[0] * 10),
}
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a row": lambda x: x[1],
    "an element of a list": lambda x: list(x)[1],
    "flat": lambda x: x.view(-1),
    "turned": lambda x: x.t(),
    "data": lambda x: x.data,
    "a view of a view": lambda x: x[:, 1:].unsqueeze(1),
    "by places": lambda x: x.as_strided((2,), (3,), 1),
}


@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 200), marks=pytest.mark.thorough)], ids=repr
)
def test_random_programs_of_views(seeds: range) -> None:
    """`benchmarks/views.py` runs thousands of them. What torch alone can do raises here."""
    verdicts = {seed: views.compared(seed, str(DEVICE)) for seed in seeds}
    wrong = ["\n".join(lines) for verdict, lines in verdicts.values() if verdict == "wrong"]
    assert not wrong, wrong[0]
    raised = [verdict for verdict, _ in verdicts.values() if verdict.startswith("raises")]
    assert all("elements that are shared" in verdict for verdict in raised), raised


OF_BUFFERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows": lambda x: x[:2],
    "a row": lambda x: x[1],
    "columns": lambda x: x[:, 1::2],
    "a place": lambda x: x[1, 2],
    "a view of a slice": lambda x: x[1:].t(),
    "a slice of a view": lambda x: x.view(-1)[2:7],
    "a new dimension": lambda x: x[None, 1:, ..., 2],
    "narrow": lambda x: x.narrow(0, 1, 2),
    "select": lambda x: x.select(1, 0),
    "diagonal": lambda x: x.diagonal(),
}
OF_WEIGHTS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "copy_": lambda x, w: x.copy_(w * 3),
    "add_": lambda x, w: x.add_(w, alpha=2),
    "+=": lambda x, w: x.__iadd__(w),
    "mul_": lambda x, w: x.mul_(w),
    "set": lambda x, w: x.__setitem__(..., w),
    "fill_": lambda x, w: x.fill_(w),
    "lerp_": lambda x, w: x.lerp_(x + 2, w),
    "addcmul_": lambda x, w: x.addcmul_(x.clone(), w),
    "masked_fill_": lambda x, w: x.masked_fill_(x > 4, w),
    "clamp_": lambda x, w: x.clamp_(min=w),
}


BUFFERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "of its own": lambda x: x[:3, :4].clone(),
    "detached columns": lambda x: x[:3, 1:].detach(),
    "what is detached and transposed": lambda x: x.t()[1:, :4].detach(),
}


@pytest.mark.parametrize("kind", BUFFERS)
@pytest.mark.parametrize("view", OF_BUFFERS)
def test_gradients_of_what_is_written_to_a_part_of_a_buffer(view: str, kind: str) -> None:
    """It needs none until then: `tokens[:n].copy_(masked)`, whose gradients torchax lost."""
    if view == "a slice of a view" and kind != "of its own":
        return  # torch cannot view it so
    for write in OF_WEIGHTS.values():
        results = []
        for device in (DEVICE, "cpu"):
            weight = torch.tensor(1.5).to(device).requires_grad_()
            buffer = BUFFERS[kind](torch.arange(20.0).reshape(4, 5).to(device))
            older, part = buffer[:, :3], OF_BUFFERS[view](buffer)
            write(part, weight)
            assert buffer.requires_grad and part.requires_grad and older.requires_grad
            loss = buffer.square().sum() + 2 * part.square().sum() + 3 * older.sin().sum()
            loss.backward()
            assert weight.grad is not None
            results.append((buffer.detach().cpu(), weight.grad.cpu()))
        for found, expected in zip(*results, strict=True):
            torch.testing.assert_close(found, expected)


def test_a_part_that_was_taken_without_gradients_is_written_with_them() -> None:
    """As in torch, which cannot follow it."""
    buffer = torch.zeros(3, device=DEVICE)
    with torch.no_grad():
        part = buffer[:2]
    with pytest.raises(RuntimeError, match="no_grad mode"):
        part.copy_(torch.ones(2, device=DEVICE).requires_grad_())


@pytest.mark.parametrize("shape", [(2, 3), (3, 3)])
@pytest.mark.parametrize("how", BECOMES)
@pytest.mark.parametrize("view", VIEWS)
def test_older_views(view: str, how: str, shape: tuple[int, int]) -> None:
    base = torch.arange(float(shape[0] * shape[1])).reshape(shape)
    here, there = _after(base.clone(), view, how), _after(base.to(DEVICE), view, how)
    for expected, found in zip(here, there, strict=True):
        assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize(
    "alias", [lambda g: g.data, lambda g: g.detach(), lambda g: g.view(-1), lambda g: g.data[:]]
)
def test_a_gradient_is_written_through_an_alias(alias: Callable[[torch.Tensor], Any]) -> None:
    """`p.grad.data.clamp_(-1, 1)`: nothing but the parameter has the gradient itself."""
    parameter = torch.nn.Parameter(torch.ones(2, device=DEVICE))
    (parameter * 2).sum().backward()
    alias(parameter.grad).mul_(0.5)
    assert parameter.grad is not None and parameter.grad.tolist() == [1, 1]
    parameter.grad = torch.ones(2, device=DEVICE)
    alias(parameter.grad).add_(2)
    assert parameter.grad.tolist() == [3, 3]


def test_an_element_is_read_by_a_new_operator_after_its_base_was_written() -> None:
    """Its dtypes are asked for at the first call, while nothing else of torch's is dispatched."""
    base = torch.arange(3.0, device=DEVICE)
    element = base.unbind(0)[1]
    base.fill_(3)
    assert torch.hypot(element, element).item() == pytest.approx(18**0.5)


def test_older_views_beside_elements_that_are_shared() -> None:
    shared = torch.arange(3.0, device=DEVICE).expand(2, 3)
    test_older_views("a view of a view", "data of another shape", (2, 3))
    assert shared.sum().item() == 6


def _after(x: torch.Tensor, view: str, how: str) -> list[torch.Tensor]:
    older = VIEWS[view](x)
    BECOMES[how](x)
    x += 1
    older *= 3
    return [x, older, x[0], older[0]]


@pytest.mark.parametrize("make", [lambda x: x.unfold(0, 2, 1), lambda x: x.expand(2, 4)])
def test_shared_elements_are_not_written(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    view = make(torch.arange(4.0, device=DEVICE))
    for part in (view, view[0], view[0].detach()):
        with pytest.raises(RuntimeError, match="elements that are shared"):
            part.add_(1)


def test_windows_that_leave_elements_out() -> None:
    """They are written as torch writes them, or not at all."""
    expected, x = torch.arange(5.0), torch.arange(5.0, device=DEVICE)
    expected.unfold(0, 2, 2)[0] += 1
    try:
        x.unfold(0, 2, 2)[0] += 1
    except RuntimeError:
        expected = torch.arange(5.0)
    assert x.tolist() == expected.tolist()


def test_windows_side_by_side_are_written() -> None:
    x = torch.arange(4.0, device=DEVICE)
    x.unfold(0, 2, 2)[1] += 1
    assert x.tolist() == [0, 1, 3, 4]
