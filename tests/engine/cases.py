"""What a hard case becomes on both targets."""

from __future__ import annotations

from textwrap import dedent

from helpers import DEVICE, TARGETS, assert_sound, reported, run


def becomes(before: str, after: str, **options: bool) -> None:
    """The exact text on both targets."""
    for target in TARGETS:
        result = run(dedent(before), target, **options)
        assert_sound(result, target, **options)
        assert result.source.decode() == dedent(after).replace("@", DEVICE[target])


def left(before: str, *constructs: str, code: str | None = None) -> None:
    """Untouched, and exactly these constructs reported."""
    for target in TARGETS:
        result = run(dedent(before), target)
        assert_sound(result, target)
        assert result.source.decode() == dedent(before)
        assert reported(result) == list(constructs)
        if code is not None:
            assert {d.code for d in result.diagnostics if d.outcome == "reported"} == {code}
