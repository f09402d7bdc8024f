"""How a review is shown: on the terminal, as JSON, as Markdown."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from migrator.diagnostics import Safety, first_of
from migrator.distribution import __version__
from migrator.report import as_json as as_text
from migrator.report.markup import Page, changed, code, prose
from migrator.report.statistics import count_noun
from migrator.report.terminal import line
from migrator.review.changes import FileReview, Review
from migrator.review.line_changes import ChangeKind, LineChange

_TITLES = {
    ChangeKind.DIFFERENT: "Different from the tool's change",
    ChangeKind.MISSING: "Missing: the tool would change this",
    ChangeKind.BY_HAND: "By hand: no rule does this",
    ChangeKind.MADE: "Made by the tool",
}
_LINES = 30  # of a change, on the terminal
_SMALL = 10  # lines that are shown beside others, not against them
_WHOLE = ("added", "deleted")


def _sorted(review: Review, kind: ChangeKind) -> list[tuple[FileReview, LineChange]]:
    """What a review has of a kind, what may change results first."""
    found = [(file, change) for file in review.files for change in file.of(kind)]
    return sorted(found, key=lambda item: item[1].risk)


def _summary(review: Review) -> str:
    counts = ", ".join(f"{review.count(kind)} {kind}" for kind in ChangeKind)
    return (
        f"{count_noun(sum(map(review.count, ChangeKind)), 'change')} for {review.target}: {counts}"
    )


def _place(file: FileReview, change: LineChange) -> str:
    if file.path.endswith("/"):
        return file.path
    cell = f"cell {change.cell}:" if change.cell else ""
    return f"{file.path}:{cell}{change.line}"


def _remark(file: FileReview, change: LineChange) -> str:
    """What there is to say of a change beside its lines."""
    if file.status in _WHOLE:
        lines = len(change.after or change.before)
        return f"{file.status}, {count_noun(lines, 'line')}"
    said = [change.why if change.kind is not ChangeKind.BY_HAND else "", file.note]
    if file.old_path:
        said.append(f"was {file.old_path}")
    return "; ".join(filter(None, said))


def _is_whole(file: FileReview) -> bool:
    """Whether it is not shown line by line."""
    return file.status in _WHOLE or file.path.endswith("/")


# ---- the terminal --------------------------------------------------------------------------------


def show(review: Review, out: Console, *, verbose: bool = False) -> None:
    """What asks for attention with its lines; what the tool makes by file, and all with verbose."""
    for kind in ChangeKind:
        found = _sorted(review, kind)
        if not found:
            continue
        out.print(Text(_TITLES[kind], "bold green" if kind is ChangeKind.MADE else "bold yellow"))
        for file, change in found:
            if kind is not ChangeKind.MADE or change.safety is Safety.UNSAFE or verbose:
                _change(file, change, out)
        if kind is ChangeKind.MADE and not verbose:
            _made(review, out)
        out.print()
    if review.others:
        names = first_of(review.others, 5)
        out.print(line((f"Not reviewed: {names}", "dim")), soft_wrap=True)
    for error in review.errors:
        out.print(line(("error  ", "red"), error), soft_wrap=True)
    out.print(Text(_summary(review), "bold"), soft_wrap=True)


def _made(review: Review, out: Console) -> None:
    for file in review.files:
        codes = Counter(c.name for c in file.of(ChangeKind.MADE) if c.safety is not Safety.UNSAFE)
        if codes:
            names = ", ".join(
                f"{name} ×{n}" if n > 1 else name for name, n in sorted(codes.items())
            )
            flags = f"  with {' '.join(file.flags)}" if file.flags else ""
            row = line((file.path, "bold"), "  ", (names, "green"), (flags, "yellow"))
            out.print(row, soft_wrap=True)


def _change(file: FileReview, change: LineChange, out: Console) -> None:
    unsafe = change.safety is Safety.UNSAFE
    head = line(
        _place(file, change), "  ", (change.name, "cyan"),
        (f"  {Safety.UNSAFE.words}" * unsafe, "yellow"), ("  " + _remark(file, change), "dim"),
    )  # fmt: skip
    head.rstrip()
    out.print(head, soft_wrap=True)
    if _is_whole(file):
        return
    rows = [row for heading, diff in _diffs(change) for row in (heading, *diff) if row]
    for row in rows[:_LINES]:
        out.print(Text(f"    {row}".expandtabs(), _STYLES.get(row[0], "dim")), soft_wrap=True)
    if len(rows) > _LINES:
        out.print(Text(f"    … {len(rows) - _LINES} more lines", "dim"))


_STYLES = {"-": "red", "+": "green"}


def _diffs(change: LineChange) -> Iterator[tuple[str, list[str]]]:
    """Lines of diffs, each with what it is where that needs words."""
    if change.kind is ChangeKind.DIFFERENT and len(change.tool) + len(change.after) > _SMALL:
        lines = difflib.unified_diff(change.tool, change.after, n=2, lineterm="")
        told = [row for row in list(lines)[2:] if not row.startswith("@@")]
        yield "from the tool's version to this one:", told
        return
    after = change.tool if change.kind is ChangeKind.MISSING else change.after
    yield "", [*(f"-{row}" for row in change.before), *(f"+{row}" for row in after)]
    if change.kind is ChangeKind.DIFFERENT:
        heading = "the tool makes:" if change.tool else "the tool removes it"
        yield heading, [f"+{row}" for row in change.tool]


# ---- JSON ----------------------------------------------------------------------------------------


def as_json(review: Review) -> str:
    document: dict[str, Any] = {
        "version": __version__,
        "old": review.old,
        "new": review.new or None,
        "target": review.target,
        "files": [_file(file) for file in review.files],
        "others": review.others,
        "errors": review.errors,
        "summary": {str(kind): review.count(kind) for kind in ChangeKind},
    }
    return as_text(document)


def _file(file: FileReview) -> dict[str, Any]:
    return {
        "path": file.path,
        "status": file.status,
        **({"old_path": file.old_path} if file.old_path else {}),
        **({"flags": list(file.flags)} if file.flags else {}),
        **({"note": file.note} if file.note else {}),
        "changes": [_as_dict(change) for change in file.changes],
    }


def _as_dict(change: LineChange) -> dict[str, Any]:
    return {
        "kind": str(change.kind),
        "line": change.line,
        **({"cell": change.cell} if change.cell else {}),
        "before": list(change.before),
        "after": list(change.after),
        **({} if change.kind is ChangeKind.BY_HAND else {
            "tool": list(change.tool),
            "codes": change.codes,
            "safety": str(change.safety),
            "why": change.why,
        }),
        **({"label": change.label} if change.label else {}),
    }  # fmt: skip


# ---- Markdown ------------------------------------------------------------------------------------


def markdown(review: Review) -> str:
    """For a comment on a pull request; it keeps to the length that GitHub allows."""
    open_ = sum(review.count(kind) for kind in ChangeKind if kind is not ChangeKind.MADE)
    head = (
        f"{count_noun(open_, 'change')} to look at" if open_ else "every change matches the tool's"
    )
    rows = ["| | changes |", "|---|---:|"]
    rows += [f"| {_TITLES[kind]} | {review.count(kind)} |" for kind in ChangeKind]
    title = f"### tpu-migrate review for {code(review.target)}: {head}"
    errors = [f"* {prose(error)}" for error in review.errors]
    blocks = [title, "\n".join(rows), *(["\n".join(errors[:20])] if errors else [])]
    if review.others:
        names = first_of([*map(code, review.others)], 10)
        blocks.append(f"Not reviewed: {names}.")
    page = Page(blocks)
    for kind in ChangeKind:
        found = _sorted(review, kind)
        risky = [
            _item(f, c)
            for f, c in found
            if c.safety is Safety.UNSAFE or kind is not ChangeKind.MADE
        ]
        rest = [_item(f, c) for f, c in found] if kind is ChangeKind.MADE else []
        rest = rest[len(risky) :]
        share = 1 if kind is ChangeKind.MADE and not rest else 0.6
        page.add(_TITLES[kind], risky, share)
        page.add(f"{_TITLES[kind]} ({len(rest)})", rest, 1, fold=True)
    return page.text


def _item(file: FileReview, change: LineChange) -> str:
    said = prose(_remark(file, change))
    flags = f" with {code(' '.join(file.flags))}" if file.flags and change.tool else ""
    unsafe = f"**{Safety.UNSAFE.words}**" * (change.safety is Safety.UNSAFE)
    words = [change.name + flags, unsafe, said]
    first = f"{code(_place(file, change))} {': '.join(filter(None, words))}".rstrip()
    blocks = [first]
    for heading, diff in () if _is_whole(file) else _diffs(change):
        blocks += filter(None, [heading, changed(diff) if diff else ""])
    return "\n\n".join(blocks)


def shown(review: Review, form: str) -> str:
    return as_json(review) if form == "json" else markdown(review)
