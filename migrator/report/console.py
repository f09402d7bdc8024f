"""The terminal: changes by file, remaining manual work, a summary."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.text import Text

from migrator.codes import INTERNAL
from migrator.diagnostics import Diagnostic, Effort, Outcome, Safety, Severity, first_of
from migrator.errors import to_send
from migrator.registry import registry
from migrator.report.diff import unified
from migrator.report.findings import as_written
from migrator.report.statistics import (
    MANY,
    NO_FILES,
    NO_PROGRAM,
    REPORTED,
    Work,
    by_code,
    by_effort,
    count_noun,
    inventory,
    of_project,
    runtimes,
    untried,
)
from migrator.report.staying import Staying, staying
from migrator.report.terminal import fits, line, print_code, printable, say
from migrator.runs.run_report import WHEEL, Report


def render(
    report: Report,
    console: Console,
    *,
    written: bool,
    quiet: bool = False,
    verbose: bool = False,
    statistics: bool = False,
    hidden: bool = False,
) -> None:
    """Print a run; for `written` files, what they have become.

    `hidden`: the diff that is printed leaves the runtime out.
    """
    report = as_written(report, edits=verbose) if written else report
    if not quiet:
        _changes(report, console, verbose, hidden)
        _left(report, console)
        if report.advice:
            _section(console, "Advice", report.advice, brief=True)
    _errors(report, console, verbose)
    if statistics:
        _statistics(report, console)
    if not quiet:
        for note in report.notes:
            say(console, line(("note  ", "yellow"), note))
        _summary(report, console, written)
    if any(diagnostic.code == INTERNAL for _, diagnostic in report.failures):
        said = to_send("" if verbose else " (-v shows it)")
        say(console, line(said))


def show_diff(report: Report, console: Console, companions: bool = True) -> None:
    """Print the diff of a run in colours; the runtime's files only if `companions` are wanted."""
    report = report if companions else replace(report, companions={})
    print_code(b"".join(unified(report, codes=True)).decode("utf-8", "replace"), "diff", console)


def show_cell(report: Report, console: Console) -> None:
    """Print the diff of one notebook cell, and its diagnostics."""
    if report.changed:
        show_diff(report, console)
    _left(report, console)
    if report.advice:
        _section(console, "Advice", report.advice, brief=True)


def _changes(report: Report, console: Console, verbose: bool, hidden: bool) -> None:
    for file in report.files:
        details = [d for d in file.result.diagnostics if verbose and d.severity is Severity.INFO]
        if not file.result.changed and not details:
            continue
        codes = Counter(d.code for d in file.result.diagnostics if d.is_edit)
        others = "for the runtime" if report.target else "comments"
        edits = _times(sorted(codes.items())) or others
        edits = edits if file.result.changed else "stays as it is"
        style = "green" if file.result.changed else "dim"
        console.print(line((str(file.path), "bold"), "  ", (edits, style)), soft_wrap=True)
        for diagnostic in details:
            outcome = str(diagnostic.outcome or "added")
            style = "green" if diagnostic.outcome is not Outcome.KEPT else "dim"
            unsafe = diagnostic.safety not in (None, Safety.SAFE)
            row = line(
                (f"  {diagnostic.range!s:>8}  ", "dim"), (diagnostic.code, "cyan"),
                (f"  {outcome:<9}  ", style),
                (f"{diagnostic.safety or '':<6}  ", "yellow" if unsafe else style),
                diagnostic.construct,
            )  # fmt: skip
            why = diagnostic.why if unsafe else ""
            said = "; ".join(dict.fromkeys(filter(None, (diagnostic.message, why))))
            if said:
                row.append(printable(f"  ({said})"), "dim")
            say(console, row, 10)
    for folder, (files, lines) in runtimes(report).items():
        if folder.suffix == WHEEL:
            continue  # a delivery
        size = f"{count_noun(files, 'file')}, {count_noun(lines, 'line')}"
        text = f"  runtime of the migrated code: {size}"
        text += " (--with-runtime shows them)" if hidden else ""
        console.print(line((f"{folder}/", "bold"), text), soft_wrap=True)
    for delivery in report.deliveries:
        said = delivery.said()
        if len(said) > console.width:  # the command on a line of its own, to be copied
            said, _, command = said.rpartition(": ")
            say(console, line(said, ":"))
            said = f"    {command}"
        console.print(line(said), soft_wrap=True)


def _left(report: Report, console: Console) -> None:
    programs, left = staying(report)
    if programs:
        console.print()
        console.print(Text("Programs that stay as they are", "bold yellow"))
    for number, program in enumerate(programs):
        others = (other.furthest for other in programs[number + 1 :])
        _staying(console, program, "" if program.furthest in others else program.furthest)
    if left:
        _section(console, REPORTED, left)


def _staying(console: Console, program: Staying, furthest: str) -> None:
    """One paragraph: the line in the way, what depends on it, and which option gets furthest."""
    first, *more = program.obstacles
    code = registry().for_launched_code.code
    row = line(first.place, "  ", (code, "yellow"), "  ", (program.keeps, "bold"), ":")
    _with_message(console, row, f" {first.reason}")
    said = [f"also in the way: {other.place}: {other.reason}" for other in more[:_MANY]]
    if len(more) > _MANY:
        said.append(f"and {count_noun(len(more) - _MANY, 'more line')}")
    if len(program.files) > 1:
        named = first_of([*map(str, program.files)], 2)
        said.append(f"a program is migrated with all its files, or not at all: {named}")
    for text in filter(None, (*said, furthest)):
        say(console, line((f"    {text}", "dim")), 8)


def _section(
    console: Console, title: str, found: Iterable[tuple[Path, Diagnostic]], brief: bool = False
) -> None:
    """Each reason once per file with all its places; `brief`: without the code there."""
    console.print()
    console.print(Text(title, "bold yellow"))
    every = list(found)
    files: dict[tuple[str, str, str], dict[Path, None]] = {}
    for path, diagnostic in every:
        files.setdefault(_same(diagnostic, brief), {})[path] = None
    for path, group in groupby(every, key=lambda item: item[0]):
        reasons: dict[tuple[str, str], list[Diagnostic]] = {}
        elsewhere: dict[Path, None] = {}
        for _, diagnostic in group:
            paths = files[_same(diagnostic, brief)]
            if len(paths) > _MANY:  # the same in many files is printed once
                if path is not next(iter(paths)):
                    continue
                elsewhere |= paths
            reasons.setdefault((diagnostic.code, diagnostic.message), []).append(diagnostic)
        for (code, message), diagnostics in reasons.items():
            _reason(console, path, code, message, diagnostics, brief)
        if len(elsewhere) > 1:
            others = [str(other) for other in elsewhere if other != path]
            text = f"    and the same in {first_of(others, 2)}"
            say(console, line((text, "dim")), 8)


_MANY = 5  # files, or places of one reason in a file


def _same(diagnostic: Diagnostic, brief: bool) -> tuple[str, str, str]:
    return diagnostic.code, diagnostic.message, "" if brief else diagnostic.construct


def _reason(
    console: Console,
    path: Path,
    code: str,
    message: str,
    diagnostics: list[Diagnostic],
    brief: bool,
) -> None:
    """One reason with all its places: `path:line:column` first, so that terminals link it."""
    first = diagnostics[0]
    what = ("  ", (first.construct, "bold")) if first.construct else ()
    row = line(str(path), (f":{first.range}", "dim"), "  ", (code, "yellow"), *what)
    _with_message(console, row, f"  {message}")
    rest = diagnostics[1:]
    if rest and brief:
        places = ", ".join(str(d.range) for d in rest[:_MANY])
        more = ", …" if len(rest) > _MANY else ""
        text = f"    also {count_noun(len(rest), 'place')}: {places}{more}"
        say(console, line((text, "dim")), 8)
    elif rest:
        places = ", ".join(f"{d.range} {d.construct}" for d in rest)
        say(console, line((f"    also {places}", "dim")), 8)


def _with_message(console: Console, place: Text, message: str) -> None:
    """A place and what is said of it; on a line of its own where one line is too short for both."""
    row = place.copy().append_text(line(message))
    if fits(console, row):
        say(console, row)
        return
    say(console, place)
    say(console, line("    ", message.lstrip()))


def _errors(report: Report, console: Console, verbose: bool) -> None:
    for path, diagnostic in report.failures:
        where = f"{path}:{diagnostic.range}"
        say(
            console, line((where, "bold"), "  ", (diagnostic.code, "red"), "  ", diagnostic.message)
        )
        for each in diagnostic.trace.splitlines() if verbose else ():
            console.print(line((f"    {each}", "dim")), soft_wrap=True)
    for error in report.errors:
        say(console, line(("error  ", "red"), error))


_SHOWN = 10  # files


def _statistics(report: Report, console: Console) -> None:
    console.print()
    console.print(Text("By rule", "bold"))
    rules = registry().rules
    for code, counts in by_code(report).items():
        rule = rules.get(code)
        numbers = ", ".join(f"{counts[o]:,} {o}" for o in Outcome if counts[o])
        say(console, line((code, "cyan"), f" {numbers}: {rule.summary if rule else ''}"))
    found = by_effort(report)
    if not found:
        return
    console.print()
    console.print(Text("To do by hand, by file", "bold"))
    for path, work in found[:_SHOWN]:
        _say_work_left(console, path, work)
    if len(found) > _SHOWN:
        console.print(Text(f"and {count_noun(len(found) - _SHOWN, 'more file')}", "dim"))
    said = f"takes: the time of the hardest one; over {MANY} that take minutes each count as hours"
    say(console, Text(said, "dim"))


def _say_work_left(console: Console, path: Path, work: Work) -> None:
    assert work.effort is not None
    codes = work.codes.most_common()
    more = f", and {len(codes) - 4} more" if len(codes) > 4 else ""
    say(
        console,
        line(
            f"{printable(path)} takes ", (_TIMES[work.effort], _COLOURS[work.effort]),
            f": {work.reported:,} of {count_noun(work.outcomes.total(), 'construct')}, ",
            (_times(codes[:4]) + more, "cyan"),
        ),
    )  # fmt: skip


_TIMES = {Effort.REWRITE: "a rewrite", Effort.HOURS: "hours", Effort.MINUTES: "minutes"}
_COLOURS = {Effort.REWRITE: "red", Effort.HOURS: "yellow", Effort.MINUTES: "green"}


def _times(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{code} ×{n}" if n > 1 else code for code, n in counts)


def _summary(report: Report, console: Console, written: bool) -> None:
    work = of_project(report)
    total = work.outcomes.total()
    console.print()
    scanned, failed = len(report.files), len(report.failures) + len(report.errors)
    changed = f"{len(report.changed):,} {'changed' if written else 'would change'}"
    said = ", ".join((count_noun(scanned, "file") + " scanned", changed))
    said += f", {failed} failed" * bool(failed)
    console.print(Text(f"{said}  ({report.seconds:.2f} s)", "bold"))
    if report.since:
        console.print(f"only what concerns lines that differ from {report.since}", soft_wrap=True)
    if report.untracked and report.output is None:
        folders = " ".join(shlex.quote(str(folder)) for folder in report.untracked)
        console.print(
            line(("the runtime is not in git yet: ", "yellow"), f"git add {folders}"),
            soft_wrap=True,
        )
    if report.output is not None:
        console.print(line(f"written to {report.output}"), soft_wrap=True)
    if total:
        without = ", not counting those" if work.suppressed else ""
        share = f" ({work.automatic:.0f}% automatic{without}{_part_of_the_program(report)})"
        said = share if work.suppressed < total else ""  # no share of nothing
        say(console, f"{inventory(work)}: {_outcomes(work)}{said}")
    elif scanned and report.target and not failed and not report.incomplete:
        say(console, "no GPU code was found")
    elif not scanned and not failed and not report.since:
        say(console, NO_FILES)
    if report.lacks_program:
        say(console, line((NO_PROGRAM, "yellow")))
    if work.left:
        say(console, f"by hand: {_by_hand(work)}")
    for each in untried(report):
        say(console, each)
    if report.unsafe:
        say(
            console,
            f"--unsafe would rewrite {report.unsafe.total()} more, which {Safety.UNSAFE.words}: "
            f"{_times(sorted(report.unsafe.items()))}",
        )


def _outcomes(work: Work) -> str:
    """How many constructs became what: "4 rewritten, 2 kept (1 by comments), 1 reported"."""
    by_comments = f" ({work.suppressed:,} by comments)" if work.suppressed else ""
    return ", ".join(
        f"{work.outcomes[outcome]:,} {outcome}{by_comments * (outcome is Outcome.KEPT)}"
        for outcome in Outcome
        if work.outcomes[outcome]
    )


def _by_hand(work: Work) -> str:
    """What the reported constructs take a person, the hardest first."""
    takes = {
        Effort.REWRITE: ("has to be written anew", "have to be written anew"),
        Effort.HOURS: ("takes hours", "take hours each"),
        Effort.MINUTES: ("takes minutes", "take minutes each"),
    }
    counts = sorted(work.efforts.items(), key=_worst)
    return ", ".join(f"{n:,} {takes[effort][n > 1]}" for effort, n in counts)


def _part_of_the_program(report: Report) -> str:
    """What the percentage does not count, if that is known."""
    if report.failures or report.errors:
        return ", of the files that could be read"
    return ", of the files that were looked at" if report.incomplete else ""


def _worst(item: tuple[Effort, int]) -> int:
    return -list(Effort).index(item[0])
