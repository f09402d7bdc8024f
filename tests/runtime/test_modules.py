"""Modules that are moved, wrapped, copied; on both targets."""

import copy
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from tiers import thorough_but
from torch import Tensor, nn

from tests.runtime.contract import Net
from tests.runtime.support import DEVICE, WORD, on_device, run

tpu.setup()


class Scaled(nn.Parameter):
    scale = 1.0

    def scaled(self) -> torch.Tensor:
        return self * self.scale


def square() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 3)


def test_ties_optimizer_ema_and_copies_survive_the_move() -> None:
    first, second = square(), square()
    second.weight = first.weight
    net = nn.Sequential(first, second)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    average = torch.optim.swa_utils.AveragedModel(net)
    net.to(DEVICE)
    average.to(DEVICE)
    assert first.weight is second.weight and len(list(net.parameters())) == 3
    before = first.weight.detach().cpu()
    net(torch.ones(2, 3).to(DEVICE)).sum().backward()
    optimizer.step()
    assert not torch.equal(first.weight.detach().cpu(), before)
    average.update_parameters(net)
    copied = copy.deepcopy(net)
    assert copied[0].weight is copied[1].weight and copied[0].weight is not first.weight
    copied.load_state_dict({name: x.cpu() + 1 for name, x in net.state_dict().items()})
    assert torch.allclose(copied[0].weight.cpu(), first.weight.cpu() + 1)
    assert net.half()(on_device().half()).dtype == torch.float16
    assert net.cpu()[0].weight.device.type == "cpu" and first.weight is second.weight


def test_hooks_attributes_gradients_and_weak_references_survive() -> None:
    net, called = square(), []
    net(torch.ones(1, 3)).sum().backward()
    net.weight.no_decay = True  # type: ignore[assignment]
    handle = net.weight.register_hook(lambda g: called.append("hook"))
    net.weight.register_post_accumulate_grad_hook(lambda p: called.append("after"))
    reference = weakref.ref(net.weight)
    gradient = net.weight.grad
    net.to(DEVICE)
    assert reference() is net.weight and net.weight.no_decay and net.weight.grad is gradient
    assert gradient is not None and gradient.device.type == WORD and gradient.sum().item() == 9
    net(torch.ones(1, 3).to(DEVICE)).sum().backward()
    assert called == ["hook", "after"] and net.weight.grad.sum().item() == 18
    handle.remove()
    net(torch.ones(1, 3).to(DEVICE)).sum().backward()
    assert called == ["hook", "after", "after"]


def test_a_graph_from_before_the_move_is_refused() -> None:
    net = square()
    loss = net(torch.ones(1, 3)).pow(2).sum()
    net.to(DEVICE)
    with pytest.raises(RuntimeError, match="before its module moved"):
        loss.backward()


def test_lazy_modules_and_loading_recurrent_ones() -> None:
    lazy = nn.LazyLinear(3).to(DEVICE)
    assert lazy(torch.ones(1, 2).to(DEVICE)).shape == (1, 3) and lazy.weight.device.type == WORD
    norm = nn.LazyBatchNorm1d(momentum=1.0).to(DEVICE)
    norm(torch.tensor([[0.0, 2], [2, 6]]).to(DEVICE))
    assert norm.running_mean.tolist() == [1, 4] and norm.running_mean.device.type == WORD
    assert [type(t) for t in norm.buffers()] == [type(torch.ones(1).to(DEVICE))] * 3
    net = nn.LSTM(2, 2)
    net.load_state_dict(nn.LSTM(2, 2).state_dict())


def test_parameters_of_another_class_and_their_copies() -> None:
    """As torch has it: a pickle keeps the attributes of a Parameter, a deepcopy does not."""

    net = square()
    net.weight, net.bias.decay = Scaled(torch.ones(3, 3)), 0.5  # type: ignore[attr-defined]
    net.weight.scale = 2.0
    net.to(DEVICE)
    assert type(net.weight).__name__ == "Scaled" and isinstance(net.weight, Scaled)
    assert net.weight.scaled().device.type == WORD and net.weight.scaled().sum().item() == 18
    net(on_device()).sum().backward()
    copied, loaded = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
    assert isinstance(copied.weight, Scaled) and copied.weight.grad is None
    assert copied.weight.scale == 1.0 and not hasattr(copied.bias, "decay")
    assert loaded.weight.scale == 2.0 and loaded.bias.decay == 0.5
    assert copied.weight.device.type == WORD and repr(net.bias).startswith("Parameter containing:")
    net.cpu()
    assert type(net.weight) is Scaled and type(net.bias) is nn.Parameter
    assert vars(net.weight) == {"scale": 2.0} and vars(net.bias) == {"decay": 0.5}


class WeightDrop(nn.Module):
    """Drops weights of an LSTM, which are computed anew at each call (AWD-LSTM)."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module, self.name = module, name
        weight = module._parameters.pop(name)
        assert weight is not None
        module.register_parameter(f"{name}_raw", nn.Parameter(weight.data))

    def forward(self, x: Tensor) -> Tensor:
        raw = getattr(self.module, f"{self.name}_raw")
        setattr(self.module, self.name, F.dropout(raw, p=0.0, training=self.training))
        return self.module(x)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("called", [False, True])
def test_weight_drop(called: bool) -> None:
    torch.manual_seed(0)
    net = WeightDrop(nn.LSTM(3, 4), "weight_hh_l0")
    found = copy.deepcopy(net)
    before = found(torch.ones(5, 2, 3)) if called else None  # its graph is alive
    found.to(DEVICE)
    del before
    optimizers = [torch.optim.SGD(module.parameters(), 0.1) for module in (net, found)]
    for number in range(3):
        x = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(number))
        given = x, x.to(DEVICE)
        for module, optimizer, here in zip((net, found), optimizers, given, strict=True):
            optimizer.zero_grad()
            module(here).square().sum().backward()
            optimizer.step()
    for parameter, expected in zip(found.parameters(), net.parameters(), strict=True):
        assert parameter.grad is not None and expected.grad is not None
        torch.testing.assert_close(parameter.grad.cpu(), expected.grad, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(parameter.cpu(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", [WORD, torch.device(WORD)])
def test_a_module_is_moved_by_keyword_too(device: str | torch.device) -> None:
    module = torch.nn.Linear(3, 2)
    expected = module(torch.ones(1, 3))
    moved = module.to(device=device)
    result = moved(torch.ones(1, 3).to(device=device))
    assert result.device.type == WORD
    torch.testing.assert_close(result.detach().cpu(), expected.detach())


def everything(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Outputs, states and gradients of a recurrent module."""
    with torch.no_grad():  # traced without gradients first
        alone = module(x)[0]
    x = x.requires_grad_()
    output, last = module(x)
    states = last if isinstance(last, tuple) else (last,)
    weight = torch.arange(output.numel()).view_as(output).cos().to(x.device)
    ((output * weight).sum() + sum((1.7 * state).sin().sum() for state in states)).backward()
    gradients = [x.grad, *(parameter.grad for parameter in module.parameters())]
    return [t.detach().cpu() for t in (alone, output, *states, *gradients) if t is not None]


RECURRENT: list[tuple[Any, dict[str, Any]]] = [
    (kind, how)
    for kind in (nn.LSTM, nn.GRU, nn.RNN)
    for how in (
        {},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"bidirectional": True, "bias": False},
    )
]
RECURRENT += [
    (nn.LSTM, {"proj_size": 3, "bias": False}),
    (nn.RNN, {"nonlinearity": "relu", "num_layers": 2}),
]


@pytest.mark.parametrize("module", thorough_but([RECURRENT[1], RECURRENT[-1]], RECURRENT))
def test_recurrent_modules(module: tuple[Any, dict[str, Any]]) -> None:
    kind, how = module
    torch.manual_seed(0)
    module = kind(5, 7, **how)
    x = torch.randn(6, 4, 5)
    expected = everything(copy.deepcopy(module), x.clone())
    assert len(expected) > len(list(module.parameters())) + 3
    found = everything(module.to(DEVICE), x.to(DEVICE))
    for value, wanted in zip(found, expected, strict=True):
        assert value.shape == wanted.shape
        assert (value - wanted).abs().max() <= 2e-6 * (1e-3 + wanted.abs().max())


def test_a_recurrent_module_is_not_differentiated_twice() -> None:
    """It raises, instead of losing a derivative."""
    module = nn.GRU(3, 4).to(DEVICE)
    x = torch.randn(3, 2, 3).to(DEVICE).requires_grad_(True)
    (slope,) = torch.autograd.grad(module(x)[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        slope.square().sum().backward()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "wrap",
    [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm, nn.utils.spectral_norm],
)
def test_reparametrized(wrap: Callable[[nn.Module], nn.Module]) -> None:
    net, x = wrap(nn.Linear(8, 3)).eval(), torch.randn(2, 8)
    with torch.no_grad():
        expected = net(x)
        result = net.to(DEVICE)(x.to(DEVICE))
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-5, atol=1e-6)


def test_inference_mode() -> None:
    net = Net().to(DEVICE).eval()
    x = torch.randn(2, 3, 8, 8).to(DEVICE)
    with torch.inference_mode():
        inside = net(x).t().view(-1)
    assert not inside.requires_grad

    @torch.inference_mode()
    def called(a: torch.Tensor) -> torch.Tensor:
        return net(a)  # type: ignore[no-any-return]

    @torch.inference_mode
    def bare(a: torch.Tensor) -> torch.Tensor:
        return net(a)  # type: ignore[no-any-return]

    assert not called(x).requires_grad and not bare(x).requires_grad
    with torch.inference_mode(mode=False):
        assert torch.is_grad_enabled()


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_rows_that_are_too_long_are_shortened(kind: Any) -> None:
    """In the weights, too, at each call: `max_norm` writes in the forward pass."""
    torch.manual_seed(0)
    net = kind(6, 3, max_norm=0.5)
    moved = copy.deepcopy(net).to(DEVICE)
    rows = torch.tensor([[1, 4, 1], [0, 4, 3]])
    for _ in range(3):
        expected, found = net(rows), moved(rows.to(DEVICE))
        assert torch.allclose(found.detach().cpu(), expected.detach(), atol=1e-6)
        assert torch.allclose(moved.weight.detach().cpu(), net.weight.detach(), atol=1e-6)
        assert not torch.allclose(net.weight[2].norm(), net.weight[4].norm())


@pytest.mark.filterwarnings("error:.*not compiled as a whole")
def test_transformers_do_not_read_their_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of the device that is read breaks a step into programs."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0), 1)
    x = torch.randn(5, 2, 8).to(DEVICE)
    masks = nn.Transformer.generate_square_subsequent_mask(5), torch.randn(5, 5)
    expected = [decoder(encoder(x.cpu(), m), x.cpu(), m).detach() for m in masks]
    for net in (encoder, decoder):
        net.to(DEVICE)
    reads = []
    monkeypatch.setattr(Tensor, "__bool__", lambda tensor: reads.append(tensor) or True)
    for mask, want in zip(masks, expected, strict=True):
        for _ in range(3):
            there = mask.to(DEVICE)
            loss = (got := decoder(encoder(x, there), x, there)).sum()
            loss.backward()
        assert torch.allclose(got.detach().cpu(), want, atol=1e-5)
    assert not reads


PADDED = """
def encoder(norm):
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, nn.LayerNorm(8) if norm else None).eval()

BEHIND, BEFORE = [[0, 0, 0, 1], [0, 0, 0, 0]], [[1, 0, 0, 0], [0, 0, 1, 0]]
"""


def test_padding_behind_a_text_is_zero_where_torch_has_it_so(tmp_path: Path) -> None:
    """Without gradients, torch computes no padding, if it is behind the texts."""
    path = tmp_path / "cases.pt"
    done = run(f"""
import torch
from torch import nn
{PADDED}
torch.manual_seed(0)
cases = []
for norm in (False, True):
    net = encoder(norm)
    for padding in (BEHIND, BEFORE):
        x, there = torch.randn(2, 4, 8), torch.tensor(padding).bool()
        with torch.no_grad():
            cases.append([norm, net.state_dict(), x, there, net(x, src_key_padding_mask=there)])
torch.save(cases, {str(path)!r})
""")
    assert done.returncode == 0, done.stderr
    exec(PADDED, made := {"nn": nn})
    for norm, state, x, padding, expected in torch.load(path):
        net = made["encoder"](norm)
        net.load_state_dict(state)
        net.to(DEVICE)
        given = x.to(DEVICE), None, padding.to(DEVICE)
        with torch.no_grad():
            for _ in range(3):
                result = net(*given)
        assert torch.allclose(result.cpu(), expected, atol=1e-5)
        computed = [net(*given)]  # with gradients, padding, too, and where the program says so
        torch.backends.mha.set_fastpath_enabled(False)
        with torch.no_grad():
            computed.append(copy.deepcopy(net)(*given))
        torch.backends.mha.set_fastpath_enabled(True)
        for result in (result.detach().cpu() for result in computed):
            assert torch.allclose(result[~padding], expected[~padding], atol=1e-5)
            assert result[padding].abs().amin() > 1e-4


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_labels_end_at_the_first_minus_one(reduction: str) -> None:
    loss = nn.MultiLabelMarginLoss(reduction=reduction)
    labels = torch.tensor([[3, 1, -1, 2, 0], [-1, 1, 2, 3, 4], [4, 3, 2, 1, 0]])
    for x, y in ((torch.randn(3, 5), labels), (torch.randn(5), labels[0])):
        leaf, there = x.clone().requires_grad_(), x.to(DEVICE).requires_grad_()
        expected, result = loss(leaf, y), loss(there, y.to(DEVICE))
        assert result.shape == expected.shape
        assert torch.allclose(result.detach().cpu(), expected, atol=1e-6)
        expected.sum().backward()
        result.sum().backward()
        assert torch.allclose(there.grad.cpu(), leaf.grad, atol=1e-6)


def test_a_batch_of_nothing_leaves_running_statistics() -> None:
    norm = nn.BatchNorm1d(3).to(DEVICE)
    norm(torch.randn(4, 3).to(DEVICE))
    before = norm.running_mean.cpu(), norm.running_var.cpu()
    assert norm(torch.zeros(0, 3, 5).to(DEVICE)).shape == (0, 3, 5)
    assert torch.equal(norm.running_mean.cpu(), before[0])
    assert torch.equal(norm.running_var.cpu(), before[1])
    assert norm.num_batches_tracked.item() == 2
