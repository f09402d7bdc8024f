"""What torch_xla 2.9 gets wrong in training and tpu_runtime mends, fault by fault."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.debug.metrics as metrics
import tpu_runtime as tpu
from torch import Tensor, nn, optim
from torch.nn.utils import rnn
from torch.utils.checkpoint import checkpoint

from tests.runtime.support import DEVICE, run

tpu.setup()

# Some ten float32 roundings in another order.
FLOAT32 = 1e-5


def close(result: Tensor, expected: Tensor) -> bool:
    return torch.allclose(result.detach().cpu().double(), expected.double(), FLOAT32, FLOAT32)


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 3)


# Normalization.

NORMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: nn.BatchNorm1d(3), (4, 3)),
    "2d": (lambda: nn.BatchNorm2d(3), (2, 3, 3, 3)),
    "3d": (lambda: nn.BatchNorm3d(3, affine=False), (2, 3, 2, 2, 2)),
    "sync": (lambda: nn.SyncBatchNorm(3, momentum=None), (4, 3, 2)),
    "cumulative": (lambda: nn.BatchNorm1d(3, momentum=None), (4, 3)),
    "no statistics": (lambda: nn.BatchNorm1d(3, track_running_stats=False), (4, 3)),
    "instance": (lambda: nn.InstanceNorm1d(3, track_running_stats=True, affine=True), (2, 3, 4)),
    "layer": (lambda: nn.LayerNorm((3, 4)), (2, 3, 4)),
    "group": (lambda: nn.GroupNorm(2, 4), (2, 4, 3)),
}


def programs() -> list[int]:
    """How many have been compiled, and how many found."""
    return [metrics.counter_value(c) or 0 for c in ("UncachedCompile", "CachedCompile")]


@pytest.mark.parametrize("name", NORMS)
def test_norms(name: str) -> None:
    """Outputs, gradients and statistics, in training and frozen; compiled once, one run a step."""
    make, shape = NORMS[name]
    reference, net = (make() if name != "sync" else nn.BatchNorm1d(3, momentum=None)), make()
    net.to(DEVICE)
    runs = []
    for step in range(5):
        reference.train(step < 4)
        net.train(step < 4)
        values = torch.randn(shape, generator=torch.Generator().manual_seed(step)) * 3 + 1
        x, y = values.clone().requires_grad_(), values.to(DEVICE).requires_grad_()
        scale = torch.arange(float(values.numel())).reshape(shape)
        before = programs()
        (reference(x) * scale).mean().backward()
        (net(y) * scale.to(DEVICE)).mean().backward()
        torch_xla.sync()
        runs.append([new - old for new, old in zip(programs(), before, strict=True)])
        assert x.grad is not None and y.grad is not None and close(y.grad, x.grad)
        for key, value in reference.state_dict().items():
            assert close(net.state_dict()[key], value), key
        for p, q in zip(reference.parameters(), net.parameters(), strict=True):
            assert p.grad is not None and q.grad is not None and close(q.grad, p.grad)
    assert runs[2:4] == [[0, 1], [0, 1]]


@pytest.mark.parametrize("name", NORMS.keys() - {"sync", "cumulative"})
def test_norms_of_values_far_from_zero(name: str) -> None:
    """Where a variance by squares is nothing but rounding; torch in float64 is right."""
    make, shape = NORMS[name]
    reference, net = make().double(), make().to(DEVICE)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + 1000.0
    x, y = values.double().requires_grad_(), values.to(DEVICE).requires_grad_()
    scale = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    expected, found = reference(x), net(y)
    (expected * scale).sum().backward()
    (found * scale.to(DEVICE)).sum().backward()
    assert x.grad is not None and y.grad is not None
    assert close(found, expected.float()) and close(y.grad, x.grad.float())


def test_norms_of_16_bits_and_of_one_value() -> None:
    reference, net = nn.BatchNorm1d(3), nn.BatchNorm1d(3).to(DEVICE)
    x = torch.randn(8, 3).bfloat16()
    result = net(x.to(DEVICE))
    assert result.dtype == torch.bfloat16 and close(result, reference(x))
    assert close(net.running_var, reference.running_var)
    with tpu.autocast():
        net(F.linear(x.float().to(DEVICE), torch.eye(3).to(DEVICE)))
        assert nn.LayerNorm(3).to(DEVICE)(x.to(DEVICE)).dtype == torch.float32  # as on GPUs
    assert nn.LayerNorm(3).to(DEVICE).bfloat16()(x.to(DEVICE)).dtype == torch.bfloat16
    assert net.running_var.dtype == torch.float32
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        net(x[:1].float().to(DEVICE))


# Recurrent modules, clipping: what importing torch_xla replaces.


def test_replaced_functions_are_torchs_also_where_they_were_imported_before() -> None:
    code = (
        "import tpu_runtime, torch; from torch import nn; from torch.nn import GRU;"
        "from torch.nn.utils import clip_grad_norm_ as clip\n"
        "built = nn.GRU(2, 3)\n"
        "class Mine(nn.GRU): pass\n"
        "tpu_runtime.setup()\n"
        "assert nn.GRU is nn.modules.rnn.GRU\n"
        "for net in (built, Mine(2, 3), GRU(2, 3), nn.GRU(2, 3)):\n"
        "    out, _ = net(torch.ones(4, 1, 2)); net.zero_grad(); out.sum().backward()\n"
        "    total = clip(net.parameters(), 1.0, foreach=True)\n"
        "    assert total.device.type == 'cpu' and isinstance(net, nn.GRU)\n"
        "assert Mine(2, 3, bidirectional=True)(torch.ones(4, 1, 2))[0].shape[-1] == 6\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_packed_sequences(kind: type[nn.GRU]) -> None:
    net, values = kind(2, 3, batch_first=True), torch.randn(2, 3, 2)

    def unpacked(x: Tensor) -> list[Tensor]:
        net.zero_grad()
        packed = rnn.pack_padded_sequence(x.requires_grad_(), [2, 3], True, enforce_sorted=False)
        padded, lengths = rnn.pad_packed_sequence(net(packed)[0], batch_first=True)
        padded.pow(2).sum().backward()
        assert lengths.tolist() == [2, 3] and x.grad is not None
        return [x.cpu().clone() for x in (padded, x.grad, net.weight_ih_l0.grad)]

    expected = unpacked(values.clone())
    net.to(DEVICE)
    for result, value in zip(unpacked(values.to(DEVICE)), expected, strict=True):
        assert close(result, value.detach())


@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf"), 3])
@pytest.mark.parametrize("foreach", [None, True])
def test_clipping(norm: float, foreach: bool | None) -> None:
    def run(device: torch.device | str) -> list[Tensor]:
        net = linear().to(device)
        net(torch.ones(2, 3).to(device)).pow(2).sum().backward()
        total = nn.utils.clip_grad_norm_(net.parameters(), 0.1, norm, foreach=foreach)
        assert net.weight.grad is not None
        return [total.cpu(), net.weight.grad.cpu()]

    assert all(close(a, b) for a, b in zip(run(DEVICE), run("cpu"), strict=True))


def test_clipping_of_nothing_and_of_infinity() -> None:
    net = linear().to(DEVICE)
    assert nn.utils.clip_grad_norm_(net.parameters(), 1.0).item() == 0
    net(torch.full((1, 3), float("inf")).to(DEVICE)).sum().backward()
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)


# Checkpoints of activations, and dropout by the seed.


@pytest.mark.parametrize("autocast", [False, True])
def test_checkpoint(autocast: bool) -> None:
    net = nn.Sequential(linear(), nn.Dropout(0.5), nn.Tanh(), linear()).to(DEVICE)

    def run(reentrant: bool | None) -> list[Tensor]:
        net.zero_grad()
        x = torch.ones(4, 3).to(DEVICE).requires_grad_()
        torch.manual_seed(5)
        with tpu.autocast(enabled=autocast):
            y = net(x) if reentrant is None else checkpoint(net, x, use_reentrant=reentrant)
        y.float().pow(2).sum().backward()
        after = torch.rand(2, device=DEVICE)
        assert x.grad is not None
        return [t.detach().cpu() for t in (y, x.grad, net[0].weight.grad, after)]

    expected = run(None)
    for reentrant in (True, False):
        assert all(close(a, b) for a, b in zip(run(reentrant), expected, strict=True))
    x = torch.ones(4, 3, requires_grad=True)
    checkpoint(torch.sin, x, use_reentrant=False).sum().backward()
    assert x.grad is not None and x.grad.device.type == "cpu"


# Optimizers.


def test_fused_capturable_and_scaler() -> None:
    net = linear()
    optimizer = optim.AdamW(net.parameters(), fused=True)
    net.to(DEVICE)
    state = optimizer.state_dict()
    state["param_groups"][0]["fused"] = True  # as a file from a GPU has it
    optimizer.load_state_dict(state)
    scaler = torch.amp.GradScaler("cuda")
    assert not scaler.is_enabled() and not torch.amp.GradScaler(DEVICE.type).is_enabled()
    loss = net(torch.ones(1, 3).to(DEVICE)).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 1 and optimizer.state[net.weight]["step"].device.type == "cpu"
    capturable = optim.Adam(net.parameters(), capturable=True)
    capturable.step()
    assert capturable.state[net.weight]["step"].device.type == "xla"


@pytest.mark.parametrize("kind", [optim.Rprop, optim.ASGD])
def test_optimizers_that_compiled_each_step(kind: type[optim.Optimizer]) -> None:
    net = linear().to(DEVICE)
    optimizer, seen = kind(net.parameters(), 0.01), []  # type: ignore[call-arg]
    for _ in range(6):
        optimizer.zero_grad()
        net(torch.ones(1, 3).to(DEVICE)).pow(2).sum().backward()
        optimizer.step()
        torch_xla.sync()
        seen.append(metrics.metric_data("CompileTime")[0])
    assert seen[1:] == [seen[1]] * 5


@pytest.mark.thorough
def test_logging_stays_the_scripts_own(cold_interpreter: str) -> None:
    """Stock torch_xla configures logging at import: a script's INFO lines are lost."""
    code = (
        "import logging, torch, torch_xla{}\n"
        "logging.basicConfig(level=logging.INFO, format='%(levelname)s: %(message)s')\n"
        "logging.info('loss 0.5')\n"
    )
    assert "INFO: loss 0.5" not in run(code.format(""), cold_interpreter).stderr
    later = code.format(", tpu_runtime").replace(")\nlogging", ")\ntpu_runtime.setup()\nlogging")
    for ours in (code.format(", tpu_runtime; tpu_runtime.setup()"), later):
        assert "INFO: loss 0.5" in run(ours, cold_interpreter).stderr


def test_the_largest_of_nan_is_nan() -> None:
    """On the CPU stock torch_xla leaves it out, or makes the lowest number of it."""
    x = "torch.tensor([1.0, float('nan')], device='xla')"
    code = f"import torch, tpu_runtime; tpu_runtime.setup(); x = {x}; print(x.max(), x.amin())"
    assert run(code, XLA_FLAGS="").stdout.count("nan") == 2


def test_a_sparse_tensor_is_dense_on_the_device() -> None:
    """Stock torch_xla raises when one is moved."""
    matrix = torch.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 1.0]])
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.warns(UserWarning, match="2 x 3 is dense on a TPU"):
        there = matrix.to_sparse().to("xla")
    for multiply in (torch.spmm, torch.sparse.mm, torch.matmul):
        moved = x.detach().to("xla").requires_grad_()
        multiply(there, moved).square().sum().backward()
        (matrix @ x).square().sum().backward()
        assert moved.grad is not None and x.grad is not None
        assert torch.allclose(moved.grad.cpu(), x.grad, rtol=1e-5)
        x.grad = None


def test_the_program_of_a_recurrent_module_does_not_grow_with_the_sequence() -> None:
    def size(steps: int) -> int:
        module = nn.LSTM(3, 4).to("xla")
        output, _ = module(torch.randn(steps, 2, 3).to("xla"))
        return len(torch_xla._XLAC._get_xla_tensors_text([output]))

    assert size(60) == pytest.approx(size(20), rel=0.01)  # the length itself has digits


CONVOLUTIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "plain": (lambda: nn.Conv2d(4, 8, 3, padding=1), (2, 4, 9, 11)),
    "stride, dilation, groups": (
        lambda: nn.Conv2d(4, 8, 3, stride=3, padding=2, dilation=2, groups=2), (2, 4, 9, 11)
    ),
    "depthwise": (lambda: nn.Conv2d(4, 8, 4, stride=2, padding=1, groups=4), (2, 4, 9, 11)),
    "one dimension, no bias": (lambda: nn.Conv1d(4, 6, 3, stride=2, bias=False), (2, 4, 10)),
    "three dimensions": (lambda: nn.Conv3d(2, 4, 3, padding=1, groups=2), (2, 2, 5, 6, 7)),
    "transposed": (
        lambda: nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
        (2, 8, 5, 4),
    ),
    "transposed, dilation": (lambda: nn.ConvTranspose2d(8, 4, 3, dilation=2), (2, 8, 5, 4)),
}  # fmt: skip


class Traced(nn.Module):
    """Holds tensors in all ways, and names the device."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
        self.tied = self.net[0].weight
        self.masks = [torch.ones(6).to(DEVICE)]

    def forward(self, x: Tensor) -> Tensor:
        y = self.net(x) * self.masks[0] + torch.ones(6, device=DEVICE)
        return y + torch.zeros(6).to("xla:0")


def test_a_trace_is_that_of_a_cpu_copy(tmp_path: Path) -> None:
    """As TensorBoard's `add_graph` makes it; the module is left as it was."""
    net, x = Traced().to(DEVICE), torch.ones(2, 3, 8, 8, device=DEVICE)
    objects, values = list(net.parameters()), {n: v.cpu() for n, v in net.state_dict().items()}
    drawn = torch.get_rng_state()
    torch.jit.trace(net, x, check_trace=False)
    traced = torch.jit.trace(net.eval(), (x,))
    assert all(
        p is q and p.device.type == "xla" for p, q in zip(net.parameters(), objects, strict=True)
    )
    assert all(torch.equal(v.cpu(), values[n]) for n, v in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn) and net.tied is net.net[0].weight
    traced.save(tmp_path / "net.pt")
    for module in (traced, torch.jit.load(tmp_path / "net.pt")):
        assert close(net(x), module(x.cpu()).detach())
    assert "aten::_convolution" in str(traced.inlined_graph)
    with pytest.raises(RuntimeError, match="cannot follow functions"):
        torch.jit.trace(lambda y: y * net.masks[0], x)
    assert torch.jit.trace(lambda y: y + 1, x.cpu())(x.cpu()).sum() == 2 * x.numel()


@pytest.mark.parametrize(("make", "shape"), CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_convolutions_and_their_gradients(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    here = make()
    there = copy.deepcopy(here).to("xla")
    x = torch.randn(shape)
    results = []
    for module, device in ((here, "cpu"), (there, "xla")):
        moved = x.clone().to(device).requires_grad_()
        output = module(moved)
        weight = torch.arange(output.numel(), device=device).view_as(output).cos()
        (slope,) = torch.autograd.grad((output * weight).sum(), moved, create_graph=True)
        ((output**2 * weight).sum() + slope.square().sum()).backward()  # with second derivatives
        assert moved.grad is not None
        gradients = [parameter.grad for parameter in module.parameters()]
        results.append([t.detach().cpu() for t in (output, moved.grad, *gradients)])
    for expected, found in zip(*results, strict=True):
        assert found.shape == expected.shape
        assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


def products(*tensors: Tensor | None) -> list[str]:
    """The products and convolutions of the program that computes `tensors`."""
    text = torch_xla._XLAC._get_xla_tensors_hlo(list(tensors))
    return [line for line in text.splitlines() if " dot(" in line or " convolution(" in line]


def training(make: Callable[[], nn.Module], *shape: int) -> list[Tensor | None]:
    module = make().to("xla")
    x = torch.randn(shape).to("xla").requires_grad_()
    output = module(x)
    (output[0] if isinstance(output, tuple) else output).square().sum().backward()
    return [x.grad, *(parameter.grad for parameter in module.parameters())]


PRODUCTS: dict[str, Callable[[], list[Tensor | None]]] = {
    "convolution": lambda: training(lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), 2, 4, 9, 9),
    "transposed": lambda: training(lambda: nn.ConvTranspose2d(4, 6, 2, stride=2), 2, 4, 9, 9),
    "linear": lambda: training(lambda: nn.Linear(9, 3), 2, 9),
    "attention": lambda: training(
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2, 5, 8
    ),
    "lstm": lambda: training(lambda: nn.LSTM(4, 5), 6, 2, 4),
    "resize": lambda: training(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), 2, 4, 9, 9),
    "einsum": lambda: [
        torch.einsum("bij,bkj->bik", *(torch.randn(2, 3, 4).to("xla") for _ in range(2)))
    ],
}


@pytest.mark.parametrize("make", PRODUCTS.values(), ids=PRODUCTS.keys())
def test_every_product_has_the_precision_of_the_setup(
    make: Callable[[], list[Tensor | None]],
) -> None:
    """Stock torch_xla: none in gradients of convolutions, transposed ones and einsum."""
    found = products(*make())
    assert [line for line in found if "highest" not in line] == []
    assert found or make is PRODUCTS["resize"]


def test_a_backward_pass_on_the_cpu_before_the_first_use_of_the_device() -> None:
    """On stock torch_xla later ones on the device fail."""
    code = (
        "import torch, tpu_runtime; tpu_runtime.setup()\n"
        "for device in ('cpu', 'xla'):\n"
        "    x = torch.ones(2, device=device, requires_grad=True)\n"
        "    (x * 2).sum().backward()\n"
        "    print(x.grad.tolist())\n"
    )
    done = run(code)
    assert done.stdout == "[2.0, 2.0]\n[2.0, 2.0]\n", done.stderr
