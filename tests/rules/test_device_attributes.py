"""Device names that classes and objects hold under a name of their own."""

import pytest
from helpers import constructs, migrated, outcomes, run

from migrator.diagnostics import Outcome

HEAD = "import torch\n\n\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('class C:\n    kind = "cuda"\n\n\nx = torch.ones(3, device=C.kind)\n', 'kind = "jax"'),
        (
            'class C:\n    kind = "cuda"\n\n\nx = torch.ones(3).to(C.kind)\nif C.kind == "cuda":\n'
            "    print(x)\n",
            'if C.kind == "jax":',
        ),
        (
            'class C:\n    def __init__(self):\n        self.where = "cuda"\n\n'
            "    def run(self, x):\n        return x.to(self.where)\n",
            'self.where = "jax"',
        ),
    ],
)
def test_an_attribute_that_is_given_as_a_device_is_one(before: str, after: str) -> None:
    text = migrated(HEAD + before)
    assert after in text and "cuda" not in text


@pytest.mark.parametrize(
    "source",
    [
        'class C:\n    kind = "cuda"\n\n\nprint({"cuda": 1}[C.kind])\n',
        'class C:\n    cuda = "cuda"\n\n\nx = torch.ones(3).to(C.other)\n',
    ],
)
def test_another_attribute_is_reported(source: str) -> None:
    found = outcomes(run(HEAD + source))
    assert any(code == "DEV002" and outcome == "reported" for code, outcome, _ in found)


CLASSES = (
    'class Conf:\n    gpu = "{}"\n    lr = 0.1\n\n\nx = x.to(Conf.gpu)\n',
    'class Conf:\n    gpu: str = "{}"\n\n\nx = torch.ones(3, device=Conf.gpu)\n',
    'class Conf:\n    gpu = "{}"\n\n\ndef run(x):\n    conf = Conf()\n    return x.to(conf.gpu)\n',
    'class Conf:\n    def __init__(self):\n        self.gpu = "{}"\n\n\n'
    "conf = Conf()\nmodel.to(conf.gpu)\n",
)


@pytest.mark.parametrize(("target", "device"), [("torchax", "jax"), ("torch_xla", "xla")])
@pytest.mark.parametrize("text", CLASSES)
def test_a_device_that_a_class_holds_is_known_by_the_class(
    text: str, target: str, device: str
) -> None:
    head = "import torch\n\nmodel = torch.nn.Linear(1, 1)\nx = torch.ones(1)\n\n\n"
    result = run(head + text.format("cuda"), target)
    assert result.source.decode().endswith(text.format(device))
    assert all(d.outcome is not Outcome.REPORTED for d in constructs(result))


def test_attributes_that_hold_each_other_hold_nothing() -> None:
    text = (
        "class A:\n    gpu = A.gpu\n    b = B.b\n\n\nclass B:\n    b = A.b\n\n\n"
        "a = A()\na.gpu = a.gpu\n"
    )
    result = run(f"import torch\n\n\n{text}torch.ones(3).to(a.gpu).to(A.b)\n")
    assert [d.outcome for d in constructs(result)] == [Outcome.REPORTED]
