"""Prints the first difference inside of a step."""

from __future__ import annotations

from rich.text import Text

from .bisection import BisectedEdit, Bisection, TracePlace

_WORDS = {
    "output": "its result differs",
    "input": "its input differs",
    "buffer": "the buffer that it changes differs",
    "gradient": "the gradient that it returns differs",
}


def bisected(found: Bisection) -> Text:
    """Module, operation, the lines of both programs, both values, edits that touch these lines."""
    text = Text()
    step = f"bisect: step {found.step + 1}"
    if not found.found:
        return text.append(f"{step}: nothing found: {found.problem}", style="yellow")
    text.append(f"{step}: {found.agreed} tensors agree, then:", style="bold")
    original, migrated = found.original, found.migrated
    names = [place.operation for place in (original, migrated) if place is not None]
    names = list(dict.fromkeys(name for name in names if name))
    _row(text, "module", found.module or "none: the script itself")
    _row(
        text,
        "operation",
        " / ".join(names) or "not known: operations in the module can't be paired",
    )
    for label, place in (("original", original), ("migrated", migrated)):
        if place is not None:
            _place(text, label, place)
    name = found.name if found.name and found.what != "gradient" else ""
    _row(text, "difference", f"{_WORDS[found.what]}{f' ({name})' if name else ''}", "red")
    _row(text, "", found.reason, "red")
    if found.want is not None and found.got is not None:
        at = f"at {list(found.at)}: " if found.at else ""
        limit = f", allowed {found.allowed:.3g}" if found.allowed is not None else ""
        _row(text, "", f"{at}original {found.want:.7g}, here {found.got:.7g}{limit}", "red")
    for number, line in enumerate(found.differences):
        _row(text, "" if number else "besides", line)
    for edit in found.edits:
        _edit(text, edit)
    if not found.edits:
        _row(text, "edits", "tpu-migrate didn't change or report these lines")
    return text


def _row(text: Text, label: str, content: str, style: str = "") -> None:
    text.append(f"\n  {label:<11}", style="dim").append(content, style=style)


def _place(text: Text, label: str, place: TracePlace) -> None:
    said = f"{place.line}  {place.text}" if place.line else "not in the program's own files"
    if not place.operation:
        said += "  (has no such operation)" if place.line else ""
    _row(text, label, said)
    if place.made_text and place.made != place.line:
        _row(text, "", f"made at {place.made}  {place.made_text}")


def _edit(text: Text, edit: BisectedEdit) -> None:
    label = ", ".join(edit.codes)
    for number, message in enumerate(edit.messages):
        _row(text, "" if number else "edit" if edit.before or edit.after else "said",
             f"{label}: {message}" if label else message)  # fmt: skip
    for line in edit.before:
        _row(text, "", f"- {line}", "red")
    for line in edit.after:
        _row(text, "", f"+ {line}", "green")
