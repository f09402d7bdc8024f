"""Numbers in the output of two runs, and which of them are shares of decisions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from migrator.targets import targets

from .comparisons import LAST, Comparison, Finding, moved_by_rounding, scalar
from .recordings import Recording
from .tolerances import (
    DECIDED,
    PRINTED,
    ROUNDED,
    Tolerances,
)

_NUMBER = re.compile(
    r"[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b)"
)
_TIME = re.compile(
    r"\d%\||\[\d+:\d\d[<,]|it/s|s/it|times?\b|\bms\b|\bsec|\bMi?B\b|\bGi?B\b|elapsed|duration"
    r"|\d\s?[mu]?s\b|\d/s\b|\beta\b|took",
    re.IGNORECASE,
)
_LINE = re.compile(r"[^\r\n\b]+")
# A progress bar of tqdm, to where its times begin.
_BAR = re.compile(r"(?:\d%\|[^|]*\| [^\[]*|\b\d+ ?[A-Za-z]+ )\[\d+:\d\d(?::\d\d)?[<,]")
# Timings next to losses: in the output of transformers' Trainer, seconds for each batch, and the
# meters `BT 0.451 (0.602)` of batches and of their data.
_TIMED = re.compile(
    r"'\w+_(?:runtime|per_second)': '?[\d.]+'?,?|\bs(?:ec)?/b(?:atch)?\s*[:=]\s*[\d.]+"
    r"|\b[BD]T[:=]?\s+[\d.]+(?:\s*\(\s*[\d.]+\))?"
)
# Shares of decisions, where rounding can change single decisions; and similar names that are not.
_DECIDED = re.compile(
    r"(?:\b|_)(?:acc|accuracy|correct|precision|recall|f1|m?iou|dice|top[-#]?|error rate)(?:\b|_|#)"
    r"(?!.*\b(?:loss|lr)\b)",
    re.IGNORECASE,
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CLOCK = re.compile(  # timestamps: of ctime, of logging, of ISO 8601
    r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\s+)?"
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d+\s+\d\d:\d\d:\d\d\s+\d{4}\b"
    r"|\b\d{4}[-/]\d\d[-/]\d\d(?:T(?=\d)|\b)|(?<![\d.])\d{1,2}:\d\d:\d\d(?:[.,]\d+)?"
)
_VERSION = re.compile(r"(?<![\d.])v?\d+\.\d+\.\d[\w.+-]*")  # an address, too
# The name of a torch.distributed back end is the same as the target's device.
_DEVICES = ["cuda", "nccl", *(target.api.device for target in targets().values())]
_DEVICE = re.compile(rf"\b(?:{'|'.join(_DEVICES)})\b(?::\d+)?")
# A Python warning of one or several lines, or with a whole model in it, and the line it refers to.
_WARNING = re.compile(
    r"^.*\.py:\d+: \w*Warning: (?:.*\(\n(?: .*\n)+\).*\n|(?:.*\n){1,4}?)  \S.*$", re.MULTILINE
)
_CODE = re.compile(r"\.py|\.cc:\d+\]")  # log lines of libraries
_FOLDERS = re.compile(r"(?<![\w./])(?:/[\w.+=@-]+){2,}/")  # file paths, which differ between runs
# Depending on who configures logging first, its prefix differs; \r\n\b also end lines.
_LEVEL = re.compile(r"(?<![^\r\n\b])(?:DEBUG|INFO): ")
# Types that a back end may have instead, as for tensors: bfloat16 for float16, 32 bits for 64.
_TYPES = [
    (re.compile(r"\b(?:bfloat16|float16|half)\b"), "half"),
    (re.compile(r"\b(?:float64|float32|double)\b"), "float"),
    (re.compile(r"\bint(?:64|32)\b"), "int"),
]
# What a printed tensor says besides its values: back ends differ in it, and so in where the line
# ends that has the rest.
_OF_TENSOR = re.compile(r",\s+(?:device='[^']*'|grad_fn=<\w+>|requires_grad=True)")
_BROKEN = re.compile(r",\n\s+(?=(?:dtype|size|layout)=)")
_DIGITS = re.compile(r"\d+")
_PADDED = re.compile(r"(?<=\[) (#)|(?<=#) (?=\])")  # NumPy aligns numbers


def printed_numbers(
    golden: Recording,
    rounded: Sequence[Recording],
    run: Recording,
    tolerances: Tolerances,
    result: Comparison,
) -> Iterator[Finding]:
    """Numbers that both print in the same text; integers are compared in lines with a fraction.

    Lines that the original doesn't print the second time, such as about an empty cache, are not
    required.
    """
    ours, third = _by_text(run), [_by_text(recording) for recording in rounded]
    whole = [texts for texts, r in zip(third, rounded, strict=True) if not r.ended]
    for order, (key, numbers) in enumerate(_by_text(golden).items()):
        text, _ = key
        about: dict[str, Any] = {"kind": "printed", "name": "printed", "step": golden.steps,
                 "order": 10 * LAST + order, "line": ""}  # fmt: skip
        got = ours.get(key)
        if got is None and (result.is_cut or any(key not in texts for texts in whole)):
            continue
        if got is None or len(got) != len(numbers):
            yield Finding(place=text, ratio=math.inf, reason="is not printed", **about)
            continue
        again = [texts.get(key, []) for texts in third]
        decided = _decided(text, numbers)
        for place, (want, other) in enumerate(zip(numbers, got, strict=True)):
            value, digit = _value(want)
            there = _value(other)[0]
            if math.isinf(value) and there == value:  # a peak that nobody knows
                continue
            if decided[place] and math.isnan(value) and math.isnan(there):  # a share of nothing
                continue
            moved = moved_by_rounding(value, (_value(a[place])[0] for a in again if len(a) > place))
            is_half = any(abs(value - half) <= digit for half in golden.halves)
            unit = tolerances.units["BF16" if is_half else "F32"]
            allowed = result.growth * unit * abs(value) + ROUNDED * moved
            allowed = decided[place] + PRINTED * digit + tolerances.factor("printed") * allowed
            yield scalar(about, text, value, there, allowed)


def _decided(text: str, numbers: Sequence[str]) -> list[float]:
    """How much each number may differ because single decisions differ; 0 for other numbers.

    ``text`` has # in place of each number.
    """
    most = max((float(n) for n in numbers if n.isdecimal()), default=1.0)
    found: list[float] = []
    before = ""
    for number, part in zip(numbers, text.split("#"), strict=False):
        before = re.split(r"[,;|\t]", before + part)[-1]
        behind = text.split("#", len(found) + 1)[-1].lstrip()
        whole = most if number.isdecimal() else 100.0 if behind.startswith("%") else 1.0
        found.append(DECIDED * whole if _DECIDED.search(before) else 0.0)
    return found


def is_decided(name: str) -> bool:
    """Whether a number of this name is a share of decisions."""
    return _DECIDED.search(name) is not None


def _value(text: str) -> tuple[float, float]:
    """A number, and the value of one unit in its last printed place."""
    mantissa, _, exponent = text.lower().partition("e")
    places = len(mantissa.partition(".")[2])
    digit = 10.0 ** (int(exponent or 0) - places) if "." in mantissa or exponent else 0.0
    return float(text), digit


def _behind_bar(line: re.Match[str]) -> str:
    """What a line says behind a progress bar, which is drawn every so often, where it ends there;
    the whole line without a bar."""
    bar = _BAR.search(line[0])
    if bar is None:
        return line[0]
    told, _, behind = line[0][bar.end() :].partition("]")
    return "" if "[" in told else behind


def _by_text(recording: Recording) -> dict[tuple[str, int], list[str]]:
    """The numbers of each line with a fraction, by the text around them; no times."""
    found: dict[tuple[str, int], list[str]] = {}
    count: Counter[str] = Counter()
    printed, device = recording.printed, recording.machine.get("device", "CPU")
    if device != "CPU":  # the name of a GPU, or of its stand-in; a target prints "cpu"
        printed = printed.replace(device, "cpu")
    printed = _BROKEN.sub(", ", _OF_TENSOR.sub("", printed))
    printed = _LEVEL.sub("", _FOLDERS.sub("/", printed))
    plain = _LINE.sub(_behind_bar, _ESCAPES.sub("", _TIMED.sub("", printed)))
    plain = _DEVICE.sub("device", _WARNING.sub("", plain))
    for types, name in _TYPES:
        plain = types.sub(name, plain)
    for line in re.split(r"[\r\n\b]+", _VERSION.sub("", _CLOCK.sub("", plain))):
        if _TIME.search(line) or "warn" in line.lower() or _CODE.search(line):
            continue
        numbers = _NUMBER.findall(line)
        if any("." in n or "n" in n for n in numbers):
            text = _PADDED.sub(r"\1", " ".join(_NUMBER.sub("#", line).split()))
            count[text] += 1
            found[(text, count[text])] = numbers
    return found
