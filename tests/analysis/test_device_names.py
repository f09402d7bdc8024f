"""What takes a device's name apart: on a TPU it has other letters."""

from __future__ import annotations

import pytest
from helpers import TARGETS, constructs, run

from migrator.diagnostics import Outcome

BEFORE = """
import fnmatch, re
import torch

device = torch.device("cuda:0")
name = "cuda:1"
x = torch.ones(2, device=name)
"""
TAKEN_APART = {
    "a regular expression": 're.match(r"cuda:(\\d+)", str(device))',
    "one for the whole name": 're.fullmatch(r"cuda(:\\d+)?", name)',
    "one with other devices": 're.search(r"^(cpu|cuda|mps)$", device.type)',
    "one that is sought": 're.search("[cC]uda:", string=name)',
    "one that replaces": 're.sub(r"cuda:\\d", "gpu", str(device))',
    "a compiled one": 'PATTERN = re.compile(r"cuda:(\\d+)")\nPATTERN.match(str(device))',
    "a compiled one under a name": 'IS_CUDA = re.compile("^cuda")\nprint(IS_CUDA.search(name))',
    "a pattern of files": 'fnmatch.fnmatch(name, "cuda*")',
    "large letters": 'device.type.upper() == "CUDA"',
    "a large letter": 'str(device).capitalize() in ("Cuda:0", "Cuda:1")',
    "an end": 'str(device).endswith("cuda:0")',
    "a place": 'str(device).find("cuda")',
    "a prefix that goes": 'int(name.removeprefix("cuda:"))',
    "letters that go": 'int(name.strip("cuda:"))',
    "a part that goes": 'int(name.replace("cuda:", ""))',
    "a part by places": "int(name[5:])",
    "a part of a formatted one": 'int(f"{device}"[5:])',
    "the last letter": "int(str(device)[-1])",
    "the first letters": 'str(device)[:4] == "cuda"',
    "another beginning": 'name.startswith("cuda:")',
    "a row of names": 'name in "cuda:0,cuda:1"',
    "a split": 'name.split("cuda:")[1]',
}


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
@pytest.mark.parametrize("kind", TAKEN_APART)
def test_a_name_that_is_taken_apart_is_reported(kind: str, target: str) -> None:
    result = run(f"{BEFORE}{TAKEN_APART[kind]}\n", target)
    told = [d for d in constructs(result) if d.outcome is Outcome.REPORTED]
    assert told and all(d.range.line > BEFORE.count("\n") for d in told)
    assert TAKEN_APART[kind] in result.source.decode()


@pytest.mark.parametrize(
    "part",
    [
        "int(str(x.device)[5:])",
        "str(x.device)[-1]",
        'f"{x.device}"[5:]',
        "x.device.type[0]",
        're.search(r"[0-9]+", str(x.device))',
    ],
)
def test_a_file_that_never_speaks_of_cuda_may_take_a_name_apart(part: str) -> None:
    result = run(f"import re\nimport torch\n\n\ndef number(x):\n    return {part}\n")
    assert [d.range.line for d in constructs(result) if d.outcome is Outcome.REPORTED] == [6]


# Text of other kinds; a reader must not be told about it.
OTHER_TEXT = (
    're.search(r"release (\\d+), cuda_(\\d+)", output)',
    're.compile(r"#include <cuda")',
    'line.replace("CUDA error", "error")',
    'fnmatch.fnmatch(path, "cuda*")',
    'if title == "CUDA":\n    pass',
    "x = lines[5:]",
    "first = [device][0]",
)


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
@pytest.mark.parametrize("text", OTHER_TEXT)
def test_other_text_is_not_spoken_of(text: str, target: str) -> None:
    result = run(f"{BEFORE}{text}\n", target)
    assert all(d.outcome is Outcome.REWRITTEN for d in constructs(result))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "line",
    [
        'print("using", {})',
        'print("using {{}}".format({}))',
        'logging.info("on %s", {})',
        'self.logger.warning("on %s", {})',
    ],
)
def test_a_message_names_the_targets_device(line: str, target: str) -> None:
    source = f"import logging\nimport torch\nx = torch.ones(1).cuda()\n{line}\n"
    result = run(source.format('"cuda:0"'), target)
    assert "cuda" not in result.source.decode()
    kept = run(source.format('"cuda"'), target)  # may be a label of what follows
    assert line.format('"cuda"') in kept.source.decode()
    assert not any(
        d.outcome is Outcome.REPORTED for each in (result, kept) for d in each.diagnostics
    )


OPTION = 'p.add_argument("--kind", default="cuda", choices=["cuda", "mps"])\n'


@pytest.mark.parametrize(
    ("declared", "asked", "places"),
    [
        (OPTION, 'if p.parse_args().kind == "cuda":\n    go()\n', "lines 5, 6"),
        (OPTION, 'if args.kind in ("cuda", "mps"):\n    go()\n', "lines 5, 6"),
        (OPTION, 'go = args.kind != "cuda"\nstop = args.kind == "cuda"\n', "lines 5, 6, 7"),
        (OPTION, 'if args.other == "cuda":\n    go()\n', ""),  # of another option
        (OPTION, 'if args.kind == "mps":\n    go()\n', ""),  # nothing asks for it
        ("", 'if args.kind == "cuda":\n    go()\n', ""),  # declared elsewhere
    ],
)
def test_an_options_value_is_changed_on_both_sides_or_on_none(
    declared: str, asked: str, places: str
) -> None:
    """Whoever wrote 'jax' where the message stood had a branch that no option chooses."""
    source = (
        f"import argparse\nimport torch\np = argparse.ArgumentParser()\nx = 1\n{declared}{asked}"
    )
    said = {d.message for d in run(source).diagnostics if d.code == "DEV002"}
    if places:
        both = f"this string is a value of the option --kind, given and compared in {places}"
        assert said == {f"{both}: leave all of them, or write 'jax' in all"}
    else:
        assert said and all("if it names a device, write 'jax'" in each for each in said)
