"""What asks for a device in TorchScript, which sees none of torchax's."""

from __future__ import annotations

from textwrap import dedent

import pytest
from helpers import assert_sound, constructs, run

from migrator.diagnostics import Outcome

ASKING = (
    "if x.is_cuda:\n        return x * 2\n    return x",
    'if x.device.type == "cuda":\n        return x * 2\n    return x',
    "if x.is_cpu:\n        return x\n    return x * 2",
    'return x * 2 if x.device == torch.device("cuda") else x',
    'return x + torch.ones(2, device="cuda")',
    "return x + torch.ones(2, device=x.device)",
    "return x.cuda()",
)
FORMS = {
    "a decorator": "@torch.jit.script\ndef f(x: torch.Tensor):\n    {}\n\ny = f(x.cuda())",
    "a call": "def f(x: torch.Tensor):\n    {}\n\nf = torch.jit.script(f)\ny = f(x.cuda())",
    "a call at a place": "def f(x: torch.Tensor):\n    {}\n\ny = torch.jit.script(f)(x.cuda())",
    "a function that it calls": """
def f(x: torch.Tensor):
    {}


@torch.jit.script
def g(x: torch.Tensor):
    return f(x) + 1


y = g(x.cuda())
""",
}


@pytest.mark.parametrize("asking", ASKING)
@pytest.mark.parametrize("form", FORMS)
def test_a_function_that_asks_is_left_unscripted(form: str, asking: str) -> None:
    source = f"import torch\n\n\n{FORMS[form].format(asking)}\n"
    result = run(source)
    assert_sound(result, "torchax")
    assert "torch.jit" not in result.source.decode()
    assert not any(d.outcome is Outcome.REPORTED for d in constructs(result))


@pytest.mark.parametrize("form", FORMS)
def test_torch_xlas_devices_are_seen(form: str) -> None:
    result = run(f"import torch\n\n\n{FORMS[form].format(ASKING[0])}\n", "torch_xla")
    assert "torch.jit.script" in result.source.decode()


def test_a_function_that_only_computes_stays_scripted() -> None:
    source = "import torch\n\n\n@torch.jit.script\ndef f(x: torch.Tensor):\n    return x * 2\n"
    assert "@torch.jit.script" in run(f"{source}\n\ny = f(x.cuda())\n").source.decode()


MODELS = (
    "net = torch.jit.script(Net().cuda())",
    "net = Net().cuda()\nnet = torch.jit.script(net)",
    "net = torch.jit.script(Outer(Net()).cuda())",
)


@pytest.mark.parametrize("script", MODELS)
def test_a_model_that_asks_is_reported(script: str) -> None:
    source = dedent("""
        import torch


        class Net(torch.nn.Module):
            def forward(self, x):
                if x.is_cuda:
                    return x * 2
                return x


        class Outer(torch.nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = net

            def forward(self, x):
                return self.net(x)


    """)
    result = run(f"{source}{script}\n")
    (found,) = [d for d in constructs(result) if d.code == "RUN004"]
    assert found.outcome is Outcome.REPORTED
    assert "device" in found.message
