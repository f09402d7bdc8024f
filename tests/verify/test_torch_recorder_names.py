"""What the recorder sees of functions that torch transforms, and of names made of paths."""

from pathlib import Path

import pytest

from tests.verify.support import record


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "t").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


TRANSFORMED = """\
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).cuda()
x = torch.randn(6, 3).cuda()

def loss(weights, one):
    return functional_call(net, weights, (one[None],)).pow(2).sum()

with torch.no_grad():
    net(x)
weights = {name: value.detach() for name, value in net.named_parameters()}
gradients = vmap(grad(loss), in_dims=(None, 0))(weights, x)
print("norms", [value.norm().item() for value in gradients.values()])
print("jacobian", vmap(jacrev(net))(x).sum().item())
"""


def test_models_are_not_seen_inside_of_transforms_whose_tensors_have_no_values() -> None:
    found, _ = record(TRANSFORMED)
    assert not found.ended
    assert [event["kind"] for event in found.events] == ["start", "input", "output"]


WITHOUT_VALUES = """\
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

net = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).cuda()
with torch.no_grad():
    net(torch.ones(1, 3).cuda())
    traced = torch.jit.trace(net, torch.ones(1, 3).cuda())
    with FakeTensorMode():
        shape = nn.Linear(3, 4)(torch.ones(2, 3)).shape
    sizes = nn.Linear(3, 5, device="meta")(torch.ones(2, 3, device="meta")).shape
print(len(traced.code) > 0, tuple(shape), tuple(sizes))
"""


def test_models_are_not_seen_where_tensors_have_no_values() -> None:
    found, _ = record(WITHOUT_VALUES)
    assert not found.ended
    names = {event["name"] for event in found.events if event["kind"] == "output"}
    assert names == {"Sequential"}


PATHS = """\
import os
import torch

net = torch.nn.Linear(3, 2).cuda()
best = os.path.abspath("best.pt")
with torch.no_grad():
    net(torch.ones(1, 3).cuda())
torch.save({"models": {best: torch.tensor(0.5)}, "last": {f"Checkpoint{{{best!r}}}": net.weight}},
           "state.pt")
"""


def test_names_made_of_the_path_of_the_copy_are_the_same_in_each_run() -> None:
    found, _ = record(PATHS)
    (file,) = found.files
    assert [*file["tensors"]] == ["models../best.pt", "last.Checkpoint{'./best.pt'}"]


HALVES = """\
import torch
x = torch.full((3,), 0.3).cuda().bfloat16()
print(x.sum().item(), f"{x.mean():.3f}", float(x.float().sum()), x[0], (x * 2).tolist())
"""


def test_numbers_that_are_read_from_tensors_of_16_bits_are_noted() -> None:
    found, _ = record(HALVES)
    assert found.halves == [0.90234375, 0.30078125, 0.6015625]


LEARNER = """\
import torch
from torch import nn

class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.vars = nn.ParameterList([nn.Parameter(torch.ones(2, 3))])

    def forward(self, x):
        return nn.functional.linear(x, self.vars[0])

    def parameters(self):
        return self.vars

net = Learner().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loss = net(torch.ones(4, 3).cuda()).pow(2).mean()
loss.backward()
optimizer.step()
"""


def test_a_model_may_give_its_parameters_as_a_list() -> None:
    """As in MAML's learners, which keep them in a list of their own."""
    found, _ = record(LEARNER)
    assert [event["value"] for event in found.events if event["kind"] == "loss"] == [9.0]


GRAPH = """\
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).cuda()
with torch.no_grad():
    torch.jit.trace(net, torch.ones(1, 3).cuda())
    net(torch.ones(4, 3).cuda())
"""


def test_a_trace_is_no_call_of_the_model() -> None:
    """TensorBoard's add_graph makes one; a target traces a copy."""
    found, _ = record(GRAPH)
    assert [event["kind"] for event in found.events] == ["start", "input", "output"]
