"""Whether the examples of rules hold, on every target: `tpu-migrate rules --test PACKAGE`."""

from __future__ import annotations

import difflib
import io
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from migrator.diagnostics import Severity
from migrator.errors import UsageError
from migrator.pipeline.engine import migrate_file
from migrator.pipeline.result import Result
from migrator.registry import registry
from migrator.rule import Example, Rule
from migrator.targets import Target


@dataclass(frozen=True)
class ExampleFailure:
    """An example that does not hold on a target."""

    code: str
    number: int  # of the example in its rule, from 1
    target: str
    reason: str
    diff: str = ""  # from what is expected to what comes out


def rules_of(wanted: str) -> list[Rule]:
    """The rules of an installed package, by its name, its entry point or its module; or of a code.

    Raises:
        UsageError: there are none.
    """
    found = registry()
    rules = [
        rule
        for code, rule in found.rules.items()
        if wanted in found.origins[code] or code.startswith(wanted.upper())
    ]
    if not rules:
        known = ", ".join(sorted({names[0] for names in found.origins.values()}))
        raise UsageError(
            f"no rules of a package {wanted!r}, and none with such a code (packages: {known})"
        )
    return rules


def failures(rules: Iterable[Rule]) -> Iterator[ExampleFailure]:
    """What does not hold of the examples of rules, target by target."""
    for rule in rules:
        said: set[str] = set()  # the codes that speak of the first example
        if not rule.examples:
            yield ExampleFailure(rule.code, 0, "", "there is no example")
            continue
        for number, example in enumerate(rule.examples, 1):
            for target in filter(example.speaks_of, rule.targets.values()):
                try:
                    result = _migrated(example, example.before.encode(), target)
                    said |= {d.code for d in result.diagnostics if number == 1}
                    faults = [
                        *_faults(example, target, result),
                        *_unsaid(rule, example, target, result),
                    ]
                except Exception as error:  # a handler's
                    faults = [(f"{type(error).__name__}: {error}", "")]
                    said.add(rule.code)
                for reason, diff in faults:
                    yield ExampleFailure(rule.code, number, target.name, reason, diff)
        if rule.code not in said:
            yield ExampleFailure(
                rule.code, 1, "", f"{rule.code} does not apply to its first example"
            )


def _migrated(example: Example, source: bytes, target: Target) -> Result:
    return migrate_file(Path(example.path), source, target, example.options)


def _faults(example: Example, target: Target, result: Result) -> Iterator[tuple[str, str]]:
    """What is wrong with what became of an example, each with a diff where one shows it."""
    errors = [d.message for d in result.diagnostics if d.severity is Severity.ERROR]
    if errors:
        yield errors[0], ""
        return
    after, expected = result.source.decode(), example.expected(target)
    if after != expected:
        yield "becomes something else", _diff(expected, after, "expected", "becomes")
    again = _migrated(example, result.source, target).source.decode()
    if again != after:
        yield "a second run changes it", _diff(after, again, "first run", "second run")
    if Path(example.path).suffix != ".py":
        return
    lost = _comments(example.before) - _comments(after)
    if lost:
        yield f"loses a comment: {next(iter(lost))}", ""


def _unsaid(
    rule: Rule, example: Example, target: Target, result: Result
) -> Iterator[tuple[str, str]]:
    """The messages that an example expects, and that its rule doesn't give in that line."""
    for line, words in example.says.items():
        wanted = words.replace("{device}", target.api.device)
        said = [
            d.message for d in result.diagnostics if d.code == rule.code and d.range.line == line
        ]
        if not any(wanted in message for message in said):
            instead = f"it says {'; '.join(said)!r}" if said else "it says nothing there"
            yield f"does not say {wanted!r} in line {line}: {instead}", ""


def _comments(source: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def _diff(before: str, after: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), old, new, lineterm="")
    return "".join(f"{line}\n" for line in lines)
