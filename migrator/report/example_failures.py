"""The result of `tpu-migrate rules --test PACKAGE`: a table of failures and differences."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from migrator.examples import failures, rules_of
from migrator.report.statistics import count_noun
from migrator.report.terminal import print_code


def show_examples(wanted: str, console: Console) -> bool:
    """Test the examples of the rules of a package, or of a code; True if none failed.

    Raises:
        UsageError: there are no such rules.
    """
    rules = rules_of(wanted)
    failed = list(failures(rules))
    names = sorted(
        {
            name
            for rule in rules
            for name, target in rule.targets.items()
            if any(example.speaks_of(target) for example in rule.examples)
        }
    )
    number = sum(len(rule.examples) for rule in rules)
    said = (
        f"{count_noun(number, 'example')} of {count_noun(len(rules), 'rule')} on {', '.join(names)}"
    )
    if not failed:
        console.print(f"{said}: all hold")
        return True
    table = Table(box=None, pad_edge=False)
    for column, style in (("rule", "cyan"), ("example", ""), ("target", ""), ("what failed", "")):
        table.add_column(column, style=style)
    for failure in failed:
        table.add_row(failure.code, str(failure.number), failure.target or "all", failure.reason)
    console.print(table)
    for failure in failed:
        if failure.diff:
            console.print(f"\n{failure.code}, example {failure.number}, {failure.target}:")
            print_code(failure.diff, "diff", console)
    console.print(f"\n{said}: {count_noun(len(failed), 'failure')}")
    return False
