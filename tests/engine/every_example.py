"""Migrates the examples of all rules for a target: `python every_example.py TARGET`.

Prints, as JSON, how many constructs were rewritten, kept and reported, and each fault.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from migrator.diagnostics import Severity
from migrator.pipeline.engine import Result, migrate_file
from migrator.registry import registry
from migrator.rule import Example
from migrator.targets import RUNTIME, Target, find_target


def migrated(source: str, example: Example, target: Target, entry: bool) -> Result:
    options = replace(example.options, entry=entry)
    return migrate_file(Path(example.path), source.encode(), target, options)


def faults(example: Example, target: Target, entry: bool, count: Counter[str]) -> list[str]:
    """What is wrong with what becomes of an example."""
    result = migrated(example.before, example, target, entry)
    count.update(str(d.outcome) for d in result.diagnostics if d.outcome is not None)
    text = result.source.decode()
    found = [d.message for d in result.diagnostics if d.severity is Severity.ERROR]
    if example.path.endswith(".py"):
        ast.parse(text)
    if migrated(text, example, target, entry).source.decode() != text:
        found.append(f"a second run changes it: {text}")
    if target.runtime is None and RUNTIME in text and RUNTIME not in example.before:
        found.append(f"speaks of a runtime: {text}")
    for name in ("torchax", "torch_xla", '"jax"', '"xla"', "{torch}", "{device}", "{0}"):
        if name in text and name not in example.before:
            found.append(f"{name} in {text}")
    return found


def main() -> None:
    target = find_target(sys.argv[1])
    count: Counter[str] = Counter()
    found = [
        f"{rule.code}: {fault}"
        for rule in registry().rules.values()
        for example in rule.examples
        if target.runtime is not None or not example.portable
        for entry in (False, True)
        for fault in faults(example, target, entry, count)
    ]
    print(json.dumps({"count": count, "faults": found}))


if __name__ == "__main__":
    main()
