"""What PyTorch, NumPy, other libraries and Python no longer have in the versions that a TPU needs.

upgrades.json has one entry a line: the name, what takes its place, since which version it is gone
(of packages beside PyTorch: the first whose wheel lacks it), and a page about it. One that is
`exact` is the same under its new name. `code` is what replaces the name, or its call, whose
arguments are `{0}`, `{1}`; `{numpy}` is a module as the program spells it, `{owner}` the object of
a method. An entry with a `keyword` is an argument of the function; one with `named` is a function
that takes these by name only, behind `takes` others; an argument that `takes` others stand before
was once given without its name, too. `*.iteritems` is a method of any object,
`pandas.DataFrame.ix` an attribute of frames and series; `builtins.xrange` is a name of Python 2.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

METHOD = "*."
FRAME = "pandas.DataFrame."
BUILTIN = "builtins."
# Functions that are a module now: `torch.fft(x, 2)`.
CALLED = frozenset({"torch.fft"})


@dataclass(frozen=True)
class Removed:
    """A function, class, constant, module, method or argument that is gone."""

    name: str
    instead: str
    source: str
    exact: bool = False
    code: str = ""
    since: str = ""
    keyword: str = ""
    takes: int = 0
    named: Sequence[str] = ()


@cache
def _upgrades() -> Sequence[Removed]:
    text = Path(__file__).with_name("upgrades.json").read_text(encoding="utf-8")
    return [Removed(**row) for row in json.loads(text)]


@cache
def removed_names() -> dict[str, Removed]:
    """Names that are reached through a module or imported from it."""
    others = (METHOD, BUILTIN, FRAME)
    of_names = (u for u in _upgrades() if not u.keyword and not u.named)
    return {u.name: u for u in of_names if not u.name.startswith(others)}


@cache
def removed_methods() -> dict[str, Removed]:
    methods = (u for u in _upgrades() if u.name.startswith(METHOD) and not u.keyword)
    return {u.name.removeprefix(METHOD): u for u in methods}


@cache
def removed_frame_methods() -> dict[str, Removed]:
    """What frames and series of pandas lack."""
    methods = (u for u in _upgrades() if u.name.startswith(FRAME) and not u.named)
    return {u.name.removeprefix(FRAME): u for u in methods}


@cache
def removed_builtins() -> dict[str, Removed]:
    return {u.name.removeprefix(BUILTIN): u for u in _upgrades() if u.name.startswith(BUILTIN)}


@cache
def removed_arguments() -> dict[tuple[str, str], Removed]:
    """Arguments by their function and keyword."""
    return {(u.name, u.keyword): u for u in _upgrades() if u.keyword}


@cache
def keyword_only() -> dict[str, Removed]:
    """Functions that once took the arguments `named` without their names, behind `takes` others."""
    return {u.name: u for u in _upgrades() if u.named}
