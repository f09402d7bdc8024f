"""Device names that classes and objects hold under a name of their own."""

import pytest
from helpers import migrated, outcomes, run

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
