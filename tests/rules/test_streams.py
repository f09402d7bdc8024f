"""Streams that only order work are taken out; others are reported."""

from __future__ import annotations

import pytest
from helpers import TARGETS, constructs, errors, run

PREFETCHER = """import torch


class Prefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        {made}
        self.preload()

    def preload(self):
        self.images = next(self.loader, None)
        if self.images is None:
            return
        with torch.cuda.stream(self.stream):
            self.images = self.images.float()

    def next(self):
        {waits}
        images = self.images
        self.preload()
        return images
"""
MADE = "self.stream = torch.cuda.Stream()"
WAITS = "torch.cuda.current_stream().wait_stream(self.stream)"


def reports(source: str) -> list[str]:
    return [d.code for d in constructs(run(source, entry=False)) if d.outcome == "reported"]


def prefetcher(made: str = MADE, waits: str = WAITS) -> str:
    return PREFETCHER.format(made=made, waits=waits)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("made", [MADE, "self.stream = torch.cuda.Stream(device=0, priority=-1)"])
@pytest.mark.parametrize("waits", [WAITS, "self.stream.wait_stream(torch.cuda.default_stream())"])
def test_a_prefetcher_becomes_a_plain_one(made: str, waits: str, target: str) -> None:
    result = run(prefetcher(made, waits), target, entry=False)
    assert not errors(result)
    expected = prefetcher("", "").replace("        \n", "")
    expected = expected.replace("        with torch.cuda.stream(self.stream):\n    ", "")
    assert result.source.decode() == expected


def test_a_stream_in_a_variable() -> None:
    source = "import torch\ns = torch.cuda.Stream()\nwith torch.cuda.stream(s), open(f) as g:\n"
    source += "    y = x + 1\ntorch.cuda.current_stream().wait_stream(s)\n"
    expected = "import torch\nwith open(f) as g:\n    y = x + 1\n"
    assert run(source, entry=False).source.decode() == expected


@pytest.mark.parametrize(
    ("made", "waits"),
    [
        (MADE, "self.stream.synchronize()"),
        (MADE, "show(self.stream)"),
        (MADE, "other.wait_stream(self.stream)"),
        (MADE, "done = torch.cuda.current_stream().wait_stream(self.stream)"),
        (MADE, f"{WAITS}\n        self.stream = None"),
        (MADE, f"{WAITS}\n        show(other.stream)"),
        ("self.stream = torch.cuda.Stream() if fast else None", WAITS),
        ("self.stream = self.main = torch.cuda.Stream()", WAITS),
    ],
)
def test_a_stream_that_is_used_for_more_stays(made: str, waits: str) -> None:
    source = prefetcher(made, waits)
    assert run(source, entry=False).source.decode() == source
    assert "CUD003" in reports(source)


def test_a_portable_program_keeps_its_streams() -> None:
    source = prefetcher()
    assert MADE in run(source, "torchax", portable=True, entry=False).source.decode()


def test_a_function_of_the_programs_own_called_record_stream() -> None:
    """YOLOX's prefetcher chooses one for its kind of batches."""
    source = "import torch\n\n\nclass Prefetcher:\n    def __init__(self, loader):\n"
    source += "        self.record_stream = recording\n        self.loader = loader\n\n"
    source += "    def next(self):\n        self.record_stream(next(self.loader))\n"
    assert not reports(source)
