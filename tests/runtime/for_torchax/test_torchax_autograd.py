"""Single features of torch's autograd on torchax; run as tests/runtime/conftest.py says.

Each function runs on both devices, and gives the same numbers.
"""

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from tpu_runtime.tensors import views

from tests.runtime.support import difference

tpu.setup()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def inputs(device: str) -> Tensor:
    return torch.arange(1.0, 7.0).reshape(2, 3).to(device).requires_grad_()


def gradient(x: Tensor, value: Tensor) -> Tensor:
    return torch.autograd.grad(value.sum(), x)[0]


def written(device: str, write: Callable[[Tensor], object]) -> Tensor:
    x = inputs(device)
    y = (x * 2).clone()
    write(y)
    return torch.cat([y.detach(), gradient(x, y**3)])


def in_place(write: Callable[[Tensor], object]) -> Callable[[str], Tensor]:
    return lambda device: written(device, write)


def crossing(device: str) -> Tensor:
    x = inputs("cpu")
    return gradient(x, (x.to(device) * 3).cpu() * x + (x.to(device) ** 2).to("cpu"))


class Shifted(torch.autograd.Function):
    """Its backward pass moves a tensor to the device."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2 + torch.arange(3.0).to(grad.device)


def moves_within_the_backward_pass(device: str) -> Tensor:
    x = inputs(device)
    y = Shifted.apply(x)
    y.register_hook(lambda grad: grad * torch.tensor([1.0, 2.0, 3.0]).to(device))
    y.sum().backward()
    assert x.grad is not None
    return torch.cat([x.grad, gradient(x, Shifted.apply(x))])


def hooks(device: str) -> Tensor:
    x = inputs(device)
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    y.retain_grad()
    seen: list[Tensor] = []
    module = nn.Identity()
    module.register_full_backward_hook(lambda m, grad_in, grad_out: seen.append(grad_out[0]))
    module(y * y).sum().backward()
    assert x.grad is not None and y.grad is not None
    return torch.stack([x.grad, y.grad, seen[0]])


def checkpointing(reentrant: bool) -> Callable[[str], Tensor]:
    def recompute(device: str) -> Tensor:
        torch.manual_seed(0)
        net, x = mlp().to(device), torch.ones(2, 6, device=device, requires_grad=True)
        checkpoint(net, x, use_reentrant=reentrant).sum().backward()
        return torch.cat([p.grad.flatten() for p in (*net.parameters(), x) if p.grad is not None])

    return recompute


def clipping(device: str) -> Tensor:
    x, y = inputs(device), inputs(device)
    (x**2).sum().backward()
    (y**2).sum().backward()
    assert x.grad is not None and y.grad is not None
    norm = nn.utils.clip_grad_norm_([x], 1.0)
    nn.utils.clip_grad_value_([y], 3.0)
    return torch.cat([x.grad.flatten(), y.grad.flatten(), norm.reshape(1)])


def averages(device: str) -> Tensor:
    """Moving averages of a model: by copy, by state_dict, and torch's own."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(device)
    mean = copy.deepcopy(net)
    own = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    )
    for _ in range(2):
        net(torch.ones(2, 3, device=device) * net[0].weight.detach()[0])
        with torch.no_grad():
            for p in net.parameters():
                p.add_(1)
        for p, q in zip(mean.parameters(), net.parameters(), strict=True):
            p.data.mul_(0.9).add_(q.data, alpha=0.1)
        state, now = mean.state_dict(), net.state_dict()
        for key in state:
            state[key].copy_(0.5 * state[key] + 0.5 * now[key])
        own.update_parameters(net)
    return torch.cat([p.flatten() for p in (*mean.parameters(), *own.parameters())])


def statistics(device: str) -> Tensor:
    """BatchNorm's buffers with and without momentum, and its gradient in both modes."""
    found = []
    for momentum in (0.1, None):
        net = nn.BatchNorm1d(3, momentum=momentum).to(device)
        for factor in (1, 2, 3):
            loss = (net(inputs(device) * factor) ** 3).sum()
        loss.backward()
        net.eval()
        x = inputs(device)
        found += [gradient(x, net(x) ** 2).flatten(), net.running_mean, net.running_var]
        found += [net.num_batches_tracked.reshape(1).float(), net.weight.grad]
    return torch.cat(found)


def scalars_in_tensors(device: str) -> Tensor:
    x, factor = inputs(device), torch.tensor(2.0).to(device)
    with torch.no_grad():
        y = x.add(x, alpha=factor)
        y.addcmul_(x, x, value=factor)
        y.addcdiv_(x, x, value=torch.tensor(2.0))
        y.sub_(x, alpha=factor).lerp_(x, factor / 4)
        return y * torch.tensor(3.0)


def outputs(device: str) -> Tensor:
    x = inputs(device).detach()
    total, largest = torch.empty(2, 3).to(device), torch.zeros(2).to(device)
    places = torch.zeros(2, dtype=torch.long).to(device)
    torch.add(x, x, out=total)
    torch.max(x, 1, out=(largest, places))
    return torch.cat([total.flatten(), largest, places.float()])


def packed(device: str) -> Tensor:
    torch.manual_seed(0)
    net = nn.LSTM(3, 4, batch_first=True)
    x = torch.randn(2, 3, 3).to(device).requires_grad_()
    parts = nn.utils.rnn.pack_padded_sequence(
        x, torch.tensor([2, 3]), batch_first=True, enforce_sorted=False
    )
    padded = nn.utils.rnn.pad_packed_sequence(net.to(device)(parts)[0], batch_first=True)[0]
    return gradient(x, padded**2)


def replaced_data(device: str) -> Tensor:
    net = nn.Linear(3, 2).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.weight.data = torch.ones(4, 3).to(device)
    net.bias.data = torch.zeros(4).to(device)
    net(inputs(device)).sum().backward()
    optimizer.step()
    return net.weight.detach()


def masked_attention(device: str) -> Tensor:
    torch.manual_seed(0)
    q = torch.randn(2, 2, 4, 8).to(device).requires_grad_()
    mask = torch.ones(2, 1, 1, 4, dtype=torch.bool)
    mask[0, ..., 2:] = False
    rows = torch.ones(4, 4, dtype=torch.bool)
    rows[2] = False
    one = F.scaled_dot_product_attention(q, q, q, mask.to(device))
    other = F.scaled_dot_product_attention(q, q, q, rows.to(device))
    with torch.no_grad():
        assert torch.allclose(one, F.scaled_dot_product_attention(q, q, q, mask.to(device)))
    return gradient(q, one**2 + other**2)


def by_the_cpu(device: str) -> Tensor:
    scores = torch.arange(24.0).reshape(6, 1, 4).sin().to(device).requires_grad_()
    loss = F.ctc_loss(
        scores.log_softmax(-1), torch.tensor([[1, 2]]), torch.tensor([6]), torch.tensor([2])
    )
    return gradient(scores, loss)


FEATURES: dict[str, Callable[[str], Tensor]] = {
    "write to a row": in_place(lambda y: y[0].mul_(3.0)),
    "write to a view": in_place(lambda y: y.view(-1)[2:4].mul_(3.0)),
    "write to a transpose": in_place(lambda y: y.t()[0].mul_(2.0)),
    "write to a diagonal": in_place(lambda y: y.diagonal().mul_(4.0)),
    "write by index": in_place(lambda y: y.__setitem__((0, slice(0, 2)), 5.0)),
    "write by mask": in_place(lambda y: y.__setitem__(y > 3, 0.0)),
    "write with a gradient": in_place(lambda y: y.__setitem__((1, slice(0, 2)), y[0, :2] * 2)),
    "copy_ of a row": in_place(lambda y: y.copy_(y[0] * 2)),
    "between devices": crossing,
    "moves within the backward pass": moves_within_the_backward_pass,
    "hooks": hooks,
    "checkpoint": checkpointing(False),
    "reentrant checkpoint": checkpointing(True),
    "clipping": clipping,
    "averages": averages,
    "BatchNorm": statistics,
    "scalars in tensors": scalars_in_tensors,
    "out=": outputs,
    "packed sequences": packed,
    "replaced data": replaced_data,
    "masks": masked_attention,
    "ctc_loss": by_the_cpu,
}


@pytest.mark.parametrize("name", FEATURES)
def test_features(name: str) -> None:
    function = FEATURES[name]
    assert difference(function("jax"), function("cpu")) < 1e-5


def test_late_writes_are_errors() -> None:
    def through(write: Callable[[Tensor], object]) -> None:
        x, weight = inputs("jax"), torch.ones(2, 3).to("jax")
        product = (x * weight).sum()
        write(weight)
        product.backward()

    through(lambda w: w.data.mul_(2))  # torch does not count these either
    for write in (
        lambda w: w.__setitem__(0, 5.0),
        lambda w: w.detach().mul_(5),
        lambda w: w.add_(1),
    ):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            through(write)
    with pytest.raises(RuntimeError, match="leaf"):
        inputs("jax")[0] = 1


def test_data_of_a_view_of_a_view_is_written_to_without_an_error() -> None:
    """As in torch, which computes the gradient with what was written."""
    found = []
    for device in ("jax", "cpu"):
        x = inputs(device)
        rows = (x * 2).view(3, 2)
        loss = rows.t().square().sum() + rows.t()[0].square().sum()
        columns = rows.t()
        total = loss + columns.square().sum()
        columns.data.masked_fill_(torch.ones(2, 3, dtype=torch.bool, device=device), 3)
        total.backward()
        found.append((rows.tolist(), x.grad.tolist()))  # type: ignore[union-attr]
    assert found[0] == found[1]


def test_dropout_is_reproducible() -> None:
    def masks(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        ones = torch.ones(1000, device="jax")
        return [F.dropout(ones, 0.25).cpu() for _ in range(2)]

    first, again, other = masks(1), masks(1), masks(2)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[0], other[0])
    # Three standard deviations of 1000 draws: 0.04.
    assert abs(float((first[0] == 0).float().mean()) - 0.25) < 0.04
    assert set(first[0].unique().tolist()) == {0.0, float(torch.tensor(1 / 0.75))}


@pytest.mark.parametrize("reentrant", [False, True])
def test_dropout_in_a_checkpoint(reentrant: bool) -> None:
    x = torch.ones(200, device="jax", requires_grad=True)
    y = checkpoint(lambda v: F.dropout(v, 0.5) * v, x, use_reentrant=reentrant)
    torch.rand(3, device="jax")
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad.cpu(), 2 * y.detach().cpu())


def test_noise_of_an_operator_is_no_late_write() -> None:
    x = -torch.ones(50, device="jax", requires_grad=True)
    y = F.rrelu(x, training=True)
    slopes = torch.autograd.grad(y.sum(), x)[0]
    assert torch.equal((slopes * x).detach().cpu(), y.detach().cpu())


def test_autocast_trains() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    x, expected = torch.randn(8, 1, 4, 4), torch.randint(0, 2, (8,))
    losses = []
    for device in ("cpu", "jax"):
        model = copy.deepcopy(net).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            with tpu.autocast(device, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x.to(device)), expected.to(device))
            loss.backward()
            optimizer.step()
        assert all(p.grad is not None and p.grad.dtype == p.dtype for p in model.parameters())
        losses.append(loss.item())
    # bfloat16 keeps 8 bits: some 4e-3 for each product.
    assert abs(losses[0] - losses[1]) < 1e-2


def test_a_graph_without_backward_is_freed() -> None:
    """`exp` keeps its result for the gradient; an alias of it held it for ever."""
    layer = nn.Linear(4, 3).to("jax")
    x = torch.randn(2, 4).to("jax")

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())

    def forward() -> None:
        for function in (torch.exp, torch.tanh, torch.relu, torch.sigmoid):
            function(layer(x)).detach()

    forward()
    before = alive()
    forward()
    assert alive() == before


def test_a_write_to_what_was_detached_is_noticed() -> None:
    x = torch.ones(3).to("jax").requires_grad_()
    y = x.exp()
    y.detach().mul_(2)
    assert torch.equal(y.detach().cpu(), 2 * torch.ones(3).exp())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_backward_pass_makes_one_alias_of_each_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch detaches each twice, and the first result only to make the second."""
    seen: list[Tensor] = []
    same = views.same

    def counted(tensor: Tensor) -> Tensor:
        seen.append(tensor)
        return same(tensor)

    weights = [torch.ones(2).to("jax").requires_grad_() for _ in range(3)]
    loss = torch.stack([w + w for w in weights]).sum()
    monkeypatch.setattr(views, "same", counted)
    loss.backward()
    assert len(seen) == len(weights)
    seen[0].add_(1)  # is the gradient's memory
    assert sorted(w.grad.sum().item() for w in weights) == [4, 4, 6]
