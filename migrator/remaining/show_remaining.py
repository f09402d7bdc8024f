"""What is left, as JSON and on the terminal."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrator.by_hand import Cure
from migrator.diagnostics import first_of
from migrator.distribution import __version__
from migrator.report.json import span
from migrator.report.statistics import count_noun
from migrator.report.terminal import line, print_code, printable, say
from migrator.targets import find_target

from .kernels.kernel import KernelPart
from .kernels.show_kernels import lines_of_part, part_to_dict
from .kernels.skeletons import pytorch_skeleton
from .remaining import Left, Remaining

if TYPE_CHECKING:
    from rich.console import Console

_PROGRAMS = 3
_KEPT = 5
_SKELETONS = 3  # that are printed: of more, a file at a time


def to_dict(left: Left) -> dict[str, Any]:
    """As JSON: `remaining`, each with the key of its example in `by_hand`, and `errors`."""
    cures = {each.cure.key: each.cure for each in left.remaining if each.cure is not None}
    return {
        "version": __version__,
        "target": left.report.target,
        "remaining": [_one(each) for each in left.remaining],
        "by_hand": {key: _cure(cure) for key, cure in sorted(cures.items())},
        "errors": list(left.errors),
    }


def _one(each: Remaining) -> dict[str, Any]:
    return {
        "path": str(each.path),
        **span(each.range),
        **({"cell": each.range.cell} if each.range.cell else {}),
        "code": each.code,
        "name": each.name,
        "construct": each.construct,
        "reason": each.reason,
        "effort": each.effort and str(each.effort),
        "unsafe": each.unsafe or None,
        "programs": [str(program) for program in each.programs],
        "keeps": list(each.keeps),
        "by_hand": each.cure and each.cure.key,
        "write": [part_to_dict(part, find_target(each.target)) for part in each.parts],
        "check": each.check,
    }


def _cure(cure: Cure) -> dict[str, Any]:
    return {
        "title": cure.title,
        "offers": cure.offers,
        "before": cure.before,
        "after": cure.after,
        "check": cure.program or None,
    }


def show(left: Left, out: Console, named: Collection[Path] = ()) -> None:
    """Each construct in a few lines; an example is printed where it is first of use.

    `named` files have skeletons of their kernels, others if there are few.
    """
    printed: dict[str, str] = {}
    shows_code = sum(len(each.parts) for each in left.remaining) <= _SKELETONS
    for each in left.remaining:
        _show(each, printed, shows_code or each.path in named, out)
    for error in left.errors:
        say(out, line((f"not read: {error}", "red")))
    said = f"{count_noun(len(left.remaining), 'place')} to change by hand on {left.report.target}"
    codes = {each.code for each in left.remaining}
    more = f"; tpu-migrate explain CODE says more of {', '.join(sorted(codes))}" if codes else ""
    say(out, line((said, "bold"), more))


def _show(each: Remaining, printed: dict[str, str], shows_code: bool, out: Console) -> None:
    say(out, line((each.place, "bold"), "  ", (each.code, "cyan"), f"  {each.construct}"))
    effort = f" ({each.effort})" if each.effort else ""
    _say(out, f"why: {each.reason}{effort}")
    if each.unsafe:
        _say(out, f"--unsafe rewrites it: {each.unsafe}")
    if each.programs:
        _say(out, f"reached by: {first_of([*map(str, each.programs)], _PROGRAMS)}")
    if each.keeps:
        _say(out, f"keeps {count_noun(len(each.keeps), 'construct')}:")
        for kept in each.keeps[:_KEPT]:
            _say(out, f"  {kept}")
        if len(each.keeps) > _KEPT:
            _say(out, f"  and {len(each.keeps) - _KEPT} more (--format json has all)")
    if each.cure is not None and each.cure.key in printed:
        _say(out, f"by hand: {each.cure.title}, as at {printed[each.cure.key]}")
    elif each.cure is not None:
        printed[each.cure.key] = each.place
        _show_cure(each.cure, out)
    for part in each.parts:
        _show_part(part, each, shows_code, out)
    _say(out, f"check: {each.check}")
    out.print()


def _show_part(part: KernelPart, each: Remaining, shows_code: bool, out: Console) -> None:
    """A function that takes the place of kernels: what is known of it, and its skeleton."""
    for text in lines_of_part(part):
        _say(out, text)
    if not shows_code:
        _say(out, f"  skeleton: tpu-migrate remaining {each.path} --target {each.target}")
        return
    _print(pytorch_skeleton(part, find_target(each.target)), out)


def _print(code: str, out: Console) -> None:
    lines = code.strip("\n").splitlines()
    print_code("".join(f"    {printable(text)}".rstrip() + "\n" for text in lines), "python", out)
    out.print()


def _say(out: Console, text: str) -> None:
    say(out, line(f"  {text}"))


def _show_cure(cure: Cure, out: Console) -> None:
    _say(out, f"by hand: {cure.title}. {' '.join(cure.offers.split())}")
    if cure.after:
        _print(cure.after, out)
    if cure.check:
        _say(out, "a test of these lines, which runs below them:")
        _print(f"device = {cure.device!r}\n{cure.check}", out)
