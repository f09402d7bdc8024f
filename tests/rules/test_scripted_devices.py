"""What asks for a device in TorchScript, which sees none of torchax's."""

from __future__ import annotations

from textwrap import dedent

import pytest
from helpers import TARGETS, assert_sound, constructs, run

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
    "net = torch.jit.script(Net().cuda())\nnet.save(path)",
    "net = Net().cuda()\nnet = torch.jit.script(net)\nnet.save(path)",
    "net = torch.jit.script(Outer(Net()).cuda())\nnet.save(path)",
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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("script", "module"),
    [
        ("net = torch.jit.script(net)\nnet = net.cuda()", "net = {move}"),
        ("net = torch.jit.script(net).cuda()", "net = {move}"),
        ("net = torch.jit.script(net).cuda() if fast else net.cuda()",
         "net = {move} if fast else {move}"),
        ("net = torch.jit.script(Net()).eval().cuda()", "net = Net().eval()"),
        ("fast = torch.jit.script(net.cuda())\ny = fast(x)", "fast = {move}\ny = fast(x)"),
        ("holder.net = torch.jit.script(holder.net).cuda()", "holder.net = holder.net."),
        ("y = loss(torch.jit.script(net.cuda())(x))", "y = loss({move}(x))"),
        ("if fast:\n    net = torch.jit.script(net)\nnet = net.cuda()", "net = {move}"),
        ("net = net.cuda()\ntry:\n    net = torch.jit.script(net)\nexcept RuntimeError:\n    pass",
         "net = {move}"),
    ],
)  # fmt: skip
def test_the_module_takes_the_place_of_its_script(script: str, module: str, target: str) -> None:
    result = run(
        f"import torch\nfrom nets import Net, fast, loss, net, x, holder\n{script}\n", target
    )
    text = result.source.decode()
    assert_sound(result, target)
    moved = run("from nets import net\nimport torch\nnet = net.cuda()\n", target).source.decode()
    move = moved.rpartition("net = ")[2].strip()
    assert module.format(move=move) in text and "torch.jit" not in text
    assert not any(d.outcome is Outcome.REPORTED for d in constructs(result))


@pytest.mark.parametrize(
    "script",
    [
        "net = torch.jit.script(net).cuda()\nnet.save('net.pt')",
        "net = torch.jit.script(net).cuda()\ntorch.jit.save(net, 'net.pt')",
        "net = torch.jit.script(net)\nprint(net.graph)\nnet = net.cuda()",
        "net = torch.jit.script(net, example_inputs=[x]).cuda()",
        # One may be in training and the other not.
        "fast = torch.jit.script(net).cuda()\nfast.eval()\nnet(x)",
        "for i in range(2):\n    fast = torch.jit.script(net).cuda()\n    net.train()",
        # These compute something else where they are scripted.
        "if torch.jit.is_scripting():\n    x = 0\nnet = torch.jit.script(net).cuda()",
        "import torchvision\nnet = torchvision.models.detection.fasterrcnn_resnet50_fpn()\n"
        "net = torch.jit.script(net).cuda()",
        "export(torch.jit.script(net).cuda())",
        "def make():\n    return torch.jit.script(net).cuda()",
    ],
)
def test_a_script_that_is_needed_stays(script: str) -> None:
    source = f"import torch\nfrom nets import net, x, export\n{script}\n"
    result = run(source)
    assert "torch.jit.script(" in result.source.decode()
    reported = [d for d in constructs(result) if d.outcome is Outcome.REPORTED]
    assert [d.code for d in reported] == ["RUN004"]
