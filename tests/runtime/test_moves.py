"""What a move to the device keeps: what torch keeps when a module goes to another device or dtype.

The same module is moved by `.to(DEVICE)`, and a copy by `.to(torch.float64)` on the CPU, which is
torch's own code. Run in the environment of each target, see conftest.py.
"""

import copy
import weakref
from collections.abc import Callable

import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor, nn

from tests.runtime.support import DEVICE, WORD

tpu.setup()
torch.zeros(1).to(DEVICE)

Move = Callable[[nn.Module], nn.Module]
MOVES: dict[str, Move] = {
    "device": lambda net: net.to(DEVICE),
    "word": lambda net: net.to(WORD),
    "keyword": lambda net: net.to(device=WORD, non_blocking=True),
    "there and back": lambda net: net.to(DEVICE).cpu(),
    "twice": lambda net: net.to(DEVICE).to(DEVICE),
    "with a dtype": lambda net: net.to(DEVICE, torch.bfloat16),
    "of a whole": lambda net: nn.Sequential(net).to(DEVICE)[0],
    "apply": lambda net: net._apply(lambda tensor: tensor.to(DEVICE)),
}


class Scaled(nn.Parameter):
    """A class of parameters, with state."""

    scale: float


class Named(torch.Tensor):
    """A class of tensors."""


class Net(nn.Module):
    """Has what can be moved."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.scaled = Scaled(torch.ones(3))
        self.scaled.scale = 2.0
        self.several = nn.ParameterList([torch.ones(2), torch.zeros(1)])
        self.by_name = nn.ParameterDict({"a": torch.ones(2)})
        self.register_parameter("none", None)
        self.register_buffer("mean", torch.ones(3))
        self.register_buffer("count", torch.tensor(4))
        self.register_buffer("mask", torch.tensor([True, False]), persistent=False)
        self.register_buffer("nothing", None)
        self.plain = torch.ones(2)
        self.first.weight._optim = {"lr": 0.001}  # type: ignore[attr-defined]
        self.first.weight.no_decay = True  # type: ignore[assignment]
        self.mean.note = "of a buffer"  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x) * self.scaled)  # type: ignore[no-any-return]


ATTRIBUTES = ("_optim", "no_decay", "scale", "note")


def tensors(net: Net) -> dict[str, Tensor]:
    return {**dict(net.named_parameters(remove_duplicate=False)), **dict(net.named_buffers())}


def moved(name: str) -> tuple[Net, Net]:
    """A module with gradients after a move, and one after torch's own."""
    net, reference = Net(), Net()
    for each in (net, reference):
        each(torch.ones(2, 3)).sum().backward()
    assert MOVES[name](net) is net
    reference.to(torch.float64)
    return net, reference


@pytest.mark.parametrize("name", MOVES)
def test_values(name: str) -> None:
    values = Net().state_dict()
    net, reference = moved(name)
    where = "cpu" if name == "there and back" else WORD
    assert list(net.state_dict()) == list(reference.state_dict())
    assert sorted(vars(net)) == sorted(vars(reference))
    for key, value in net.state_dict().items():
        assert value.device.type == where
        assert torch.equal(value.cpu(), values[key].to(value.dtype)), key
        assert value.dtype.is_floating_point == values[key].dtype.is_floating_point
    assert net.mask.dtype == torch.bool and net.mask.device.type == where
    assert net.plain.device.type == "cpu" and net.none is None and net.nothing is None


@pytest.mark.parametrize("name", MOVES)
def test_kinds_and_flags(name: str) -> None:
    net, reference = map(tensors, moved(name))
    assert list(net) == list(reference)
    for key, expected in reference.items():
        found = net[key]
        assert isinstance(found, nn.Parameter) == isinstance(expected, nn.Parameter), key
        assert isinstance(found, Scaled) == isinstance(expected, Scaled), key
        assert found.requires_grad == expected.requires_grad, key
        assert found.is_leaf and found.shape == expected.shape, key


@pytest.mark.parametrize("name", MOVES)
def test_attributes(name: str) -> None:
    net, reference = map(tensors, moved(name))
    for key, expected in reference.items():
        for attribute in ATTRIBUTES:
            assert getattr(net[key], attribute, None) == getattr(expected, attribute, None), key


@pytest.mark.parametrize("name", MOVES)
def test_gradients(name: str) -> None:
    net, reference = map(tensors, moved(name))
    for key, expected in reference.items():
        gradient = net[key].grad
        assert (gradient is None) == (expected.grad is None), key
        if gradient is not None and expected.grad is not None:
            assert gradient.device.type == net[key].device.type
            difference = gradient.cpu().double() - expected.grad
            assert difference.abs().max() <= (0.1 if name == "with a dtype" else 1e-5), key


@pytest.mark.parametrize("name", MOVES)
def test_identities(name: str) -> None:
    """Optimizers and lists of parameters that were made before hold the same objects."""
    net = Net()
    net(torch.ones(2, 3)).sum().backward()
    parameters, gradient = list(net.parameters()), net.first.weight.grad
    MOVES[name](net)
    assert all(p is q for p, q in zip(net.parameters(), parameters, strict=True))
    assert net.first.weight is net.second.weight and net.first.weight.grad is gradient


def test_hooks_and_references() -> None:
    net, called = Net(), []
    weight = net.first.weight
    handle = weight.register_hook(lambda g: called.append("gradient"))
    weight.register_post_accumulate_grad_hook(lambda p: called.append("accumulated"))
    net.register_forward_hook(lambda *_: called.append("forward"))
    net.register_full_backward_hook(lambda *_: called.append("backward"))
    reference = weakref.ref(weight)
    net.to(DEVICE)
    assert reference() is weight
    net(torch.ones(2, 3).to(DEVICE).requires_grad_()).sum().backward()
    assert sorted(called) == ["accumulated", "backward", "forward", "gradient"]
    handle.remove()
    net(torch.ones(2, 3).to(DEVICE)).sum().backward()
    assert called.count("gradient") == 1 and called.count("accumulated") == 2


def test_groups_of_an_optimizer_that_reads_attributes() -> None:
    """As state space models sort their parameters, before or after the move."""

    def groups(net: Net) -> list[list[str]]:
        special = [n for n, p in net.named_parameters() if hasattr(p, "_optim")]
        return [special, [n for n, p in net.named_parameters() if n not in special]]

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    assert groups(net.to(DEVICE)) == groups(Net())
    assert net.first.weight._optim == {"lr": 0.001}  # type: ignore[attr-defined]
    before = net.scaled.detach().cpu()
    net(torch.ones(2, 3).to(DEVICE)).sum().backward()
    optimizer.step()
    assert not torch.equal(net.scaled.detach().cpu(), before) and net.scaled.scale == 2.0
    copied = copy.deepcopy(net)
    assert isinstance(copied.scaled, Scaled)
    assert not hasattr(copied.first.weight, "_optim")  # torch copies no attributes either


def test_tensors_by_themselves() -> None:
    x = torch.ones(3, requires_grad=True)
    x.note = 1  # type: ignore[attr-defined]
    moved = x.to(DEVICE)
    assert not hasattr(moved, "note") and not moved.is_leaf and moved.requires_grad
    (moved * 2).sum().backward()
    assert x.grad is not None and x.grad.device.type == "cpu" and x.grad.tolist() == [2, 2, 2]
    parameter = Scaled(torch.ones(3))
    alone = parameter.to(DEVICE)
    assert not alone.is_leaf and isinstance(alone, nn.Parameter) == isinstance(
        parameter.to(torch.float64), nn.Parameter
    )
    alone.sum().backward()
    assert parameter.grad is not None and parameter.grad.tolist() == [1, 1, 1]
    assert not torch.ones(3).to(DEVICE).requires_grad
    there = moved.detach().requires_grad_()
    there.note = 2  # type: ignore[attr-defined]
    assert there.to(DEVICE) is there and there.cpu().device.type == "cpu"
    assert not hasattr(there.cpu(), "note") and there.detach().cpu().is_leaf


def test_a_subclass_of_tensors() -> None:
    x = torch.ones(3).as_subclass(Named)
    reference, moved = x.to(torch.float64), x.to(DEVICE)
    kept = WORD != "jax"  # torchax has one class of tensors: docs/limits.md
    assert isinstance(moved, type(reference)) == kept and moved.device.type == WORD
    assert isinstance(moved + 1, type(reference + 1)) == kept
    assert (moved + 1).cpu().tolist() == [2, 2, 2]
    net = nn.Module()
    net.register_buffer("x", x)
    assert isinstance(net.to(DEVICE).x, type(reference)) == kept


def test_data_that_is_moved_by_hand() -> None:
    parameter = Scaled(torch.ones(3))
    parameter.scale = 3.0
    parameter.data = parameter.data.to(DEVICE)
    assert parameter.device.type == WORD and isinstance(parameter, Scaled)
    assert parameter.scale == 3.0
    (parameter * 2).sum().backward()
    assert parameter.grad is not None and parameter.grad.cpu().tolist() == [2, 2, 2]
    parameter.data = parameter.data.cpu()
    assert parameter.device.type == "cpu" and parameter.tolist() == [1, 1, 1]


def test_modules_that_make_their_parameters() -> None:
    lazy = nn.LazyLinear(2).to(DEVICE)
    assert lazy(torch.ones(1, 3).to(DEVICE)).shape == (1, 2) and lazy.weight.device.type == WORD
    x = torch.ones(1, 3)
    for norm in (
        nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm,
        nn.utils.weight_norm,
    ):  # fmt: skip
        net = norm(nn.Linear(3, 3)).eval()
        expected = net(x).detach()
        net.to(DEVICE)
        assert torch.allclose(net(x.to(DEVICE)).detach().cpu(), expected, atol=1e-5)
        net.train()(x.to(DEVICE)).sum().backward()
        assert all(p.grad is not None for p in net.parameters())


def test_where_a_packed_sequence_is() -> None:
    """`packed.is_cuda` becomes a question for `.device`."""
    packed = nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    assert packed.device.type == "cpu"
    assert packed.to(DEVICE).device.type == WORD


@pytest.mark.parametrize(
    "make",
    [
        torch.zeros_like,
        torch.randn_like,
        lambda x, **on: torch.full_like(x, 2, **on),
        lambda x, **on: x.new_ones(2, **on),
        lambda x, **on: x.new_empty_strided((2,), (1,), **on).fill_(1),
    ],
)
def test_what_is_made_like_a_tensor_of_the_device(make: Callable[..., Tensor]) -> None:
    x = torch.ones(2, dtype=torch.float16)
    there, here = make(x.to(DEVICE)), make(x.to(DEVICE), device="cpu")
    assert there.device.type == WORD and here.device.type == "cpu"
    assert here.dtype == there.dtype == x.dtype and len(here.tolist()) == len(here.numpy()) == 2


def test_a_tensor_of_another_size() -> None:
    x = torch.arange(6.0).view(2, 3).to(DEVICE)
    assert x.resize_(2, 2) is x and x.tolist() == [[0, 1], [2, 3]]
    x.resize_((3,)).copy_(torch.ones(3).to(DEVICE))
    assert x.shape == (3,) and x.sum().item() == 3
    assert x.resize_as_(torch.ones(2, 1).to(DEVICE)).shape == x.shape == (2, 1)


def resized(device: torch.device) -> list[object]:
    x = torch.arange(6.0).view(2, 3).to(device)
    flat, seen = x.view(6), []
    for shape in ((2, 2), (0,), (3, 2), (1,), (6,)):
        x.resize_(shape)
        x.view(-1)[:1].add_(1)
        seen += [x.tolist(), flat.tolist()]
    row = flat[2:4]
    row.resize_(3)[2] = 9
    more = torch.empty(0).to(device)
    for n in (2, 1, 3, 0, 5):
        seen.append(
            torch.ones(n).to(device).mul_(n).sum().item() == more.resize_(n).fill_(n).sum().item()
        )
    return [*seen, row.tolist(), flat.tolist(), more.tolist()]


def test_a_tensor_of_another_size_stays_in_its_memory() -> None:
    assert resized(DEVICE) == resized(torch.device("cpu"))
    with pytest.raises(RuntimeError, match="more elements than its base"):
        torch.ones(3).to(DEVICE)[1:].resize_(3)


def test_a_shallow_copy_shares_its_elements() -> None:
    x = torch.arange(3.0).to(DEVICE)
    x.tag = "x"  # type: ignore[attr-defined]
    weight = nn.Parameter(torch.ones(3).to(DEVICE))
    for original in (x, weight, x[1:], (weight * 2).requires_grad_(), torch.arange(3).to(DEVICE)):
        other = copy.copy(original)
        assert type(other) is type(original) and other.device == original.device
        assert other.requires_grad == original.requires_grad and other is not original
        with torch.no_grad():
            other[0], original[1] = 5, 7
        assert other.tolist() == original.tolist() and other.tolist()[:2] == [5, 7]
    assert copy.copy(x).tag == "x"
    assert copy.copy({"x": x})["x"] is x and copy.copy(x.cpu()).device.type == "cpu"


def copied(device: torch.device) -> list[object]:
    x = torch.arange(6.0).to(device)
    parts = {"rows": x.view(2, 3), "x": x, "rest": x[1:], "same": x.detach(), "again": x}
    found = copy.deepcopy(parts)
    found["x"][1] = -1
    found["rows"][1] += 5
    alone = copy.deepcopy(x[2:4])
    alone.zero_()
    return [alone.tolist(), found["again"] is found["x"], *(v.tolist() for v in found.values()),
            *(v.tolist() for v in parts.values())]  # fmt: skip


def test_copies_of_views_are_views_of_a_copy() -> None:
    assert copied(DEVICE) == copied(torch.device("cpu"))
