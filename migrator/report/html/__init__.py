"""The report as one HTML file: `page.html.j2` with its style, script and data."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from migrator.diagnostics import Diagnostic, Effort, Outcome, Safety
from migrator.distribution import __version__
from migrator.errors import UsageError
from migrator.files import staging
from migrator.registry import registry
from migrator.report.html import page_data
from migrator.report.html.verify_numbers import PageNumbers
from migrator.report.markup import pieces
from migrator.report.statistics import (
    NO_PROGRAM,
    by_code,
    count_noun,
    inventory,
    of_project,
    runtimes,
    untried,
)
from migrator.report.staying import staying
from migrator.runs.run_report import FileReport, Report
from migrator.targets import targets

MARK = "tpu-migrate report"  # in the second line of the file, which may then be overwritten
_FOLDER = Path(__file__).parent
_SCRIPT = ("data", "text", "filters", "files", "tree", "navigation", "controls")
_LIST = 8  # reasons, and places of one, that the overview lists initially
# Characters that are invisible, or that change the direction of the following text.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)


def check(path: Path) -> None:
    """Refuse a path where the report would overwrite something, before anything is migrated.

    Only files that end in .html are written: no run reads such a file, so that the report may lie
    among the code.

    Raises:
        UsageError: another name, a file that is no report, a folder that cannot be written to.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--report {path}: name a file that ends in .html")
    try:
        if path.is_dir():
            raise UsageError(f"--report {path}: is a folder")
        if path.exists() and path.stat().st_size and not _is_report(path):
            raise UsageError(f"--report {path}: exists and is not a report of tpu-migrate")
        folder = next(parent for parent in path.absolute().parents if parent.exists())
    except OSError as error:
        raise UsageError(f"--report {path}: {error.strerror or error}") from None
    if not folder.is_dir():
        raise UsageError(f"--report {path}: {folder} is not a folder")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--report {path}: {folder} cannot be written to")


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return MARK.encode() in file.read(200)


def write(report: Report, path: Path, *, written: bool, numbers: PageNumbers | None = None) -> None:
    """Write the report in one step; ``numbers``: of the original and the migrated script.

    Raises:
        UsageError: it cannot be written.
    """
    content = render(report, written=written, numbers=numbers).encode("utf-8", "xmlcharrefreplace")
    try:
        staging.write(path, content)
    except OSError as error:
        raise UsageError(f"--report {path}: cannot be written: {error.strerror or error}") from None


def render(report: Report, *, written: bool, numbers: PageNumbers | None = None) -> str:
    """The page. `written` tells whether the files have been changed already.

    The same run gives the same page: it contains no time and no path of this machine.
    """
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": visible,
        "prose": prose,
        "counted": count_noun,
        "inventory": inventory,
        "name": page_data.name,
    }
    style = _read("report.css")
    parts = "\n".join(_read(f"script/{name}.js") for name in _SCRIPT)
    script = Markup(f'"use strict";\n(() => {{\n{parts}}})();\n')
    index, texts = page_data.index(report, written)
    return environment.get_template("page.html.j2").render(
        mark=MARK,
        version=__version__,
        style=style,
        script=script,
        policy=_policy(style, script),
        index=_embedded(index),
        texts=[(number, _embedded(text)) for number, text in enumerate(texts) if text],
        overview=_overview(report, written),
        numbers=numbers,
    )


def _read(name: str) -> Markup:
    return Markup((_FOLDER / name).read_text("utf-8"))


def _policy(style: str, script: str) -> str:
    """Load nothing, and run no script but our own, whatever the source contains."""
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    )
    return (
        f"default-src 'none'; script-src 'sha256-{script_hash}'; "
        f"style-src 'sha256-{style_hash}'; base-uri 'none'; form-action 'none'"
    )


def _embedded(value: Any) -> Markup:
    """JSON that can't end its enclosing element; ASCII, so that no character is lost."""
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))


def visible(text: object) -> str:
    """The text, with invisible characters replaced by their numbers."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", str(text))


def prose(text: str) -> Markup:
    """A sentence with its `code` marked."""
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if is_code else piece
        for piece, is_code in pieces(visible(text))
    )


# ---- the overview: everything that is there without the script -----------------------------------


@dataclass
class _Row:
    """A bar of the chart, or a rule below it: constructs by outcome."""

    code: str
    name: str
    counts: Counter[Outcome] = field(default_factory=Counter)

    def of(self, outcome: str) -> int:
        return self.counts[Outcome(outcome)]

    @property
    def total(self) -> int:
        return self.counts.total()


@dataclass
class _Reason:
    """Remaining manual work, or advice, for one reason."""

    code: str
    message: str
    effort: Effort | None
    places: list[tuple[str, int, Diagnostic]] = field(default_factory=list)


def _overview(report: Report, written: bool) -> dict[str, Any]:
    work = of_project(report)
    programs, others = staying(report)
    rules = _by_rule(report)
    families = _by_family(rules)
    made = Counter(
        d.safety for _, d in report.diagnostics(Outcome.REWRITTEN) if d.safety is not None
    )
    return {
        "project": _project(report),
        "target": report.target,
        "about": targets().get(report.target),
        "written": written,
        "output": report.output,
        "files": len(report.files),
        "statuses": Counter(page_data.status(file) for file in report.files),
        "changed": len(report.changed),
        "failed": len(report.failures),
        "work": work,
        "counts": {str(outcome): work.outcomes[outcome] for outcome in Outcome},
        "total": work.outcomes.total(),
        "safe": made[Safety.SAFE],
        "unsafe": made[Safety.UNSAFE],
        "with_unsafe": report.unsafe.total(),
        "families": families,
        "most": max((family.total for family in families), default=0),
        "rules": rules,
        "staying": programs,
        "left": _reasons(report.files, {id(diagnostic) for _, diagnostic in others}),
        "advice": len(report.advice),
        "errors": report.errors,
        "notes": [*(d.said() for d in report.deliveries), *report.notes, *untried(report)],
        "lacks_program": NO_PROGRAM if report.lacks_program else "",
        "companions": [(folder, files) for folder, (files, _) in runtimes(report).items()],
        "list": _LIST,
    }


def _project(report: Report) -> str:
    """The name of the folder that contains all files."""
    if not report.files:
        return ""
    folders = [str(file.path.absolute().parent) for file in report.files]
    return Path(os.path.commonpath(folders)).name


def _by_rule(report: Report) -> list[_Row]:
    rules = registry().rules
    return [
        _Row(code, rules[code].summary if code in rules else "", counts)
        for code, counts in by_code(report).items()
    ]


def _by_family(rules: Iterable[_Row]) -> list[_Row]:
    """The first letters of codes, the most frequent first; named by their rules."""
    families: dict[str, _Row] = {}
    known = registry().rules
    for row in rules:
        letters = row.code.rstrip("0123456789")
        family = families.setdefault(letters, _Row(letters, ""))
        family.counts += row.counts
        name = known[row.code].name if row.code in known else row.code
        family.name += f", {name}" if family.name else name
    return sorted(families.values(), key=lambda family: (-family.total, family.code))


def _reasons(files: Iterable[FileReport], left: Set[int]) -> list[_Reason]:
    """Those with the most effort first; of these, the most frequent."""
    found: dict[tuple[str, str], _Reason] = {}
    for file in files:
        for number, d in enumerate(file.result.diagnostics):
            if id(d) in left:
                key = (d.code, d.message)
                reason = found.setdefault(key, _Reason(d.code, d.message, d.effort))
                reason.places.append((page_data.name(file.path), number, d))
    order = list(Effort)
    return sorted(
        found.values(),
        key=lambda r: (order.index(r.effort) if r.effort else -1, len(r.places)),
        reverse=True,
    )
