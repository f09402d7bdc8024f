"""What a program says in a roundabout way is rewritten as it is meant, or reported."""

from __future__ import annotations

from textwrap import dedent

import pytest
from helpers import TARGETS, reported, reported_codes, run

REPORTED = {
    "an import with two meanings": (
        """
        if torch.cuda.is_available():
            from torch.cuda.amp import autocast
        else:
            from contextlib import nullcontext as autocast
        with autocast():
            y = net(x)
        """,
        "CUD005",
    ),
    "an import that a function takes the place of": (
        """
        from torch.cuda import synchronize
        synchronize()
        def synchronize():
            pass
        """,
        "CUD005",
    ),
    "code in a string": ('exec("x = torch.ones(1).cuda()")', "CUD005"),
    "code in a named string": ('code = "x = torch.ones(1).cuda()"\nexec(code)', "CUD005"),
    "code in pieces": ('eval("torch.cuda" + f".{name}()")', "CUD005"),
    "a module of torch's by the name of a device": (
        "def wait(device):\n    getattr(torch, device.type).synchronize()",
        "CUD005",
    ),
    "a method by one of two names": (
        'x = getattr(torch.ones(2), "cuda" if torch.cuda.is_available() else "cpu")()',
        "DEV002",
    ),
    "a method by a name that is also a device": (
        """
        place = "cuda" if torch.cuda.is_available() else "cpu"
        net = getattr(torch.nn.Linear(2, 2), place)()
        x = torch.ones(2, device=place)
        """,
        "DEV002",
    ),
    "methods by names in a row": (
        """
        import operator
        for device in ("cuda", "cpu"):
            x = operator.methodcaller(device)(torch.ones(2))
        """,
        "DEV002",
    ),
    "a method by the default of a parameter": (
        """
        def move(x, device="cuda"):
            return getattr(x, device)()
        """,
        "DEV002",
    ),
    "a method by an argument": (
        """
        def move(x, device):
            return getattr(x, device)()
        move(torch.ones(2), device="cuda")
        """,
        "DEV002",
    ),
    "a method by an option": (
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--device", default="cuda")
        x = getattr(torch.ones(2), parser.parse_args().device)()
        """,
        "DEV002",
    ),
    "more than a tensor for Tensor.cuda": (
        "move = functools.partial(torch.Tensor.cuda, non_blocking=True)",
        "MOV001",
    ),
    "a class whose `to` looks at the name": (
        """
        class Box:
            def to(self, where):
                self.fast = self.places[where]
        Box().to("cuda")
        """,
        "DEV002",
    ),
    "a class whose `to` is a lambda": (
        """
        class Box:
            to = lambda self, *where: where[0] == "cuda"
        Box().to("cuda")
        """,
        "DEV002",
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", REPORTED)
def test_it_is_reported(kind: str, target: str) -> None:
    text, code = REPORTED[kind]
    assert code in reported_codes(run(f"import functools\nimport torch\n{dedent(text)}", target))


@pytest.mark.parametrize("kind", [kind for kind in REPORTED if kind.startswith("a method by")])
def test_the_name_of_a_method_stays(kind: str) -> None:
    text = f"import functools\nimport torch\n{dedent(REPORTED[kind][0])}"
    assert '"cuda"' in run(text).source.decode()


@pytest.mark.parametrize(("target", "word"), [("torchax", "jax:0"), ("torch_xla", "xla:0")])
def test_a_name_whose_index_is_taken_out_keeps_it(target: str, word: str) -> None:
    text = 'import torch\ndevice = "cuda:0"\nindex = int(device.split(":")[1])\n'
    assert f'device = "{word}"' in run(text, target).source.decode()


def test_a_to_that_hands_the_device_on_is_torchs() -> None:
    text = """
    import torch
    class Batch:
        def to(self, device):
            self.fast = device == "cuda"
            self.x = self.x.to(device)
    Batch().to("cuda")
    """
    assert not reported_codes(run(dedent(text)))
    assert '"cuda"' not in run(dedent(text)).source.decode()


@pytest.mark.parametrize("target", TARGETS)
def test_a_scaler_is_switched_off_whatever_its_name(target: str) -> None:
    calls = ("torch.GradScaler(enabled=False)", "torch.amp.GradScaler()", 'GradScaler("cuda")')
    source = "import torch\nfrom torch import GradScaler\n"
    source += "".join(f"s{n} = {call}\n" for n, call in enumerate(calls))
    after = run(source, target).source.decode()
    for n in range(len(calls)):
        assert f's{n} = torch.amp.GradScaler("cpu", enabled=False)\n' in after


@pytest.mark.parametrize("target", TARGETS)
def test_a_scaler_in_an_annotation_is_no_scaler(target: str) -> None:
    """RT-DETR's configuration."""
    source = """from torch.cuda.amp import GradScaler


class Config:
    @property
    def scaler(self) -> GradScaler:
        return self._scaler

    @scaler.setter
    def scaler(self, obj: GradScaler):
        assert isinstance(obj, GradScaler)
        self._scaler = obj
"""
    result = run(source, target)
    assert result.source.decode() == source and not reported(result)


EXAMPLES = '''
import torch


def double(x):
    """Doubles.

    >>> double(torch.ones(2).cuda())
    tensor([2., 2.], device='cuda:0')
    """
    return 2 * x
'''


@pytest.mark.parametrize("target", TARGETS)
def test_examples_of_docstrings_count_where_the_file_runs_them(target: str) -> None:
    runs = "\nif __name__ == '__main__':\n    import doctest\n    doctest.testmod()\n"
    assert reported(run(EXAMPLES, target)) == []
    assert reported_codes(run(EXAMPLES + runs, target)) == {"CUD005"}
    assert reported(run(EXAMPLES.replace(".cuda()", "") + runs, target)) == []
