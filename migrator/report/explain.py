"""Explanations of all codes: the same text on the terminal and on its page in docs/rules."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.syntax import Syntax
from rich.text import Text

from migrator.by_hand import cures
from migrator.codes import OTHERS, Code
from migrator.diagnostics import Effort, Outcome, Safety, Severity
from migrator.formats.file_kinds import is_module
from migrator.pipeline.advice import KIND
from migrator.pipeline.engine import migrate_file
from migrator.pipeline.result import Result
from migrator.registry import registry
from migrator.report.terminal import print_code
from migrator.rule import Example, Rule
from migrator.targets import targets

_SAFETY = {
    Safety.SAFE: "the meaning stays",
    Safety.UNSAFE: "results may change: only with `--unsafe`",
    Safety.DISPLAY_ONLY: "only a message",
}
_EFFORT = {
    Effort.MINUTES: "the line",
    Effort.HOURS: "the code around it",
    Effort.REWRITE: "write it anew",
}
_SMALL = 7  # members of a family, up to which all are named
_CODE = re.compile(r"\b[A-Z]{3}\d{3}\b")


def every_code() -> dict[str, Rule | Code]:
    """All codes that can be explained: those of rules, and others."""
    known: dict[str, Rule | Code] = {**registry().rules, **OTHERS}
    return dict(sorted(known.items()))


def explain(entry: Rule | Code, console: Console) -> None:
    """Print an explanation: formatted for a terminal, or, in pipes, as plain Markdown."""
    if not console.is_terminal:
        console.print(Text(markdown(entry)), end="", soft_wrap=True)
        return
    for number, part in enumerate(_markdown_blocks(entry)):
        if number and part[0] not in "*>":  # rich puts a line above these
            console.print()
        if part.startswith("```"):
            language, _, code = part[3:-4].partition("\n")
            print_code(code, language, console)
        else:
            console.print(Markdown(part), width=min(console.width, _WIDEST))


_WIDEST = 100  # of prose


def pages() -> dict[str, str]:
    """The files of docs/rules by name: an index, and a page for each code."""
    known = every_code()
    found = {"README.md": _index(known)}
    for code, entry in known.items():
        text = "\n\n".join(_markdown_blocks(entry, on_page=True)) + "\n"
        found[f"{code}.md"] = _linked(text, known, code)
    return found


def markdown(entry: Rule | Code) -> str:
    """A code's meaning as Markdown, without links to other pages."""
    return "\n\n".join(_markdown_blocks(entry)) + "\n"


def _linked(text: str, known: Mapping[str, Rule | Code], own: str) -> str:
    """Turn codes and page names in prose into links; code and the title stay."""
    pieces = re.split(r"(^# [^\n]*$|^```.*?^```$|`[^`\n]*`|https://\S+)", text, flags=re.M | re.S)

    def code(match: re.Match[str]) -> str:
        linked = match[0] in known and match[0] != own
        return f"[{match[0]}]({match[0]}.md)" if linked else match[0]

    for number in range(0, len(pieces), 2):
        pieces[number] = _CODE.sub(code, pieces[number])
        pieces[number] = re.sub(r"\bdocs/([\w-]+)\.md", r"[\1](../\1.md)", pieces[number])
    return "".join(pieces)


def _index(known: Mapping[str, Rule | Code]) -> str:
    parts = [
        "# Codes",
        "Every message of tpu-migrate has a code. `tpu-migrate explain CODE` prints its page; "
        "`python docs/generate.py` writes these pages.",
        "Examples show parts of modules. A file that is started as a program also gets the set-up "
        "([SET001](SET001.md)).",
        "[Safe, unsafe and display-only](../how-it-decides.md#safe-unsafe-display-only) say what a "
        "rewrite may change. *Effort* says what to change where a construct is reported: the line "
        "(minutes), the code around it (hours), or all of it (rewrite). [Switch a code "
        "off](../how-it-decides.md#saying-so) for a line, a file, a run or a project.",
    ]
    titles = {family.prefix: family.title for family in registry().families}
    titles |= {code[:3]: code[:3] for code in known if code[:3] not in titles}
    for family, title in titles.items():
        rows = [
            f"| [{code}]({code}.md) | {entry.name} | {_safety(entry)} | {entry.summary} |"
            for code, entry in known.items()
            if code.startswith(family)
        ]
        table = ["| code | name | safety | |", "|---|---|---|---|", *rows]
        parts += [f"## {title}", "\n".join(table)]
    return "\n\n".join(parts) + "\n"


def _safety(entry: Rule | Code) -> str:
    return str(entry.safety) if isinstance(entry, Rule) else "stays"


def _markdown_blocks(entry: Rule | Code, on_page: bool = False) -> list[str]:
    """Blocks of Markdown: a title, paragraphs, lists, code; `on_page`: what another page has is
    left to that one."""
    parts = [f"# {entry.code} {entry.name}", f"{_sentence(entry.summary)}."]
    parts += [" ".join(paragraph.split()) for paragraph in entry.why.split("\n\n")]
    if isinstance(entry, Code):
        return [*parts, " ".join(entry.todo.split())]
    if any(kind == KIND for kind, _, _ in entry.handlers):
        parts += _by_hand(entry)
    else:
        for example in entry.examples:
            parts += _example(entry, example)
    facts = [
        f"Safety: {entry.safety} ({_SAFETY[entry.safety]}).",
        f"Effort: {entry.effort} ({_EFFORT[entry.effort]}).",
        f"Switch it off: `# tpu-migrate: ignore[{entry.code}]`, or `--ignore {entry.code}`.",
    ]
    related = [f"{code} ({known.name})" for code, known in _related(entry).items()]
    facts += [f"Related: {', '.join(related)}."] if related else []
    facts += [f"Reference: <{reference}>" for reference in entry.references]
    facts += [f"Source: `{source}`." for source in [_source(entry)] if source]
    return [*parts, "\n".join(f"* {fact}" for fact in facts), *_cures(entry, on_page)]


def _source(rule: Rule) -> str:
    """The file that a rule of this tool's own stands in; "" for those of other packages."""
    modules = {handler.__module__ for _, _, handler in rule.handlers}
    own = sorted(m for m in modules if m.startswith("migrator.rules."))
    return f"{own[0].removeprefix('migrator.').replace('.', '/')}.py" if own else ""


def _sentence(text: str) -> str:
    """Capitalized, if it starts with a word and not with code."""
    first = text.split()[0]
    return text[0].upper() + text[1:] if first.isalpha() and first.islower() else text


def _related(rule: Rule) -> dict[str, Rule | Code]:
    """Codes that this one mentions, that mention it, and the others of a small family."""
    known = every_code()
    spoken = {code: set(_CODE.findall(f"{e.summary} {e.why}")) for code, e in known.items()}
    family = [code for code in known if code[:3] == rule.code[:3]]
    near = family if len(family) <= _SMALL else []
    return {
        code: entry
        for code, entry in known.items()
        if code != rule.code
        and (code in spoken[rule.code] or rule.code in spoken[code] or code in near)
    }


def _by_hand(rule: Rule) -> Iterator[str]:
    """For advice: the message for the first example, the second one as the code to write, and the
    others, of which it says nothing."""
    before, after, *others = (example.before for example in rule.examples)
    yield "What a TPU expert would change:"
    yield _fenced(_diff(before, after), "diff")
    said = {name: _messages(rule, rule.examples[0], name) for name in rule.targets}
    yield from _quoted_messages(said)
    for other in others:
        yield "No advice:"
        yield _fenced(other, "python")


def _cures(rule: Rule, on_page: bool) -> Iterator[str]:
    """What to write by hand: for each example the code, and a check of it."""
    found = [cure for cure in cures() if rule.code in cure.codes]
    if found:
        yield "## By hand"
        yield "In checks, `device` is the target's."
    for cure in found:
        alike: dict[tuple[str, str, str], list[str]] = {}
        for name, target in rule.targets.items():
            if (own := cure.for_target(target)) is not None:
                alike.setdefault((own.offers, own.after, own.check), []).append(name)
        yield f"### {_sentence(cure.title)}"
        if on_page and (first := cure.codes[0]) != rule.code:
            yield f"See {first}."
            continue
        yield "Instead of:"
        yield _listing(cure.before, cure.path)
        for (offers, after, check), names in alike.items():
            who = f"{', '.join(names)}: " if len(names) < len(rule.targets) else ""
            yield f"{who}{' '.join(offers.split())}"
            yield _listing(after, cure.path)
            if check:
                yield "Check it:"
                yield _listing(check, cure.path)


def _listing(code: str, path: str) -> str:
    return _fenced(code.strip("\n"), _language(code, path))


def _language(code: str, path: str) -> str:
    return "python" if is_module(Path(path)) else Syntax.guess_lexer(path, code)


def _example(rule: Rule, example: Example) -> Iterator[str]:
    flags = "".join([
        " with `--portable`" if example.portable else "",
        f" with `--shard {example.shard}`" if example.shard != "replicated" else "",
        *(f' with `"{old}" = "{new}"`' for old, new in example.replace),
    ])  # fmt: skip
    file = "" if example.path.endswith("example.py") else f", `{example.path}`"
    alike: dict[tuple[str, str], list[str]] = {}
    for name, target in rule.targets.items():
        if example.speaks_of(target):
            expected = example.expected(target)
        elif example.portable:
            continue  # without that option it is the same
        else:
            expected = _migrated(example, name).source.decode()
        as_safe = _migrated(replace(example, unsafe=False), name).source.decode()
        unsafe = " with `--unsafe`" if as_safe != expected else ""
        alike.setdefault((_diff(example.before, expected), unsafe), []).append(name)
    for (diff, unsafe), names in alike.items():
        stays = "" if diff else " (stays)"
        who = ", ".join(names) if len(names) < len(rule.targets) else "All targets"
        yield f"{who}{unsafe}{flags}{file}{stays}:"
        language = "diff" if diff else _language(example.before, example.path)
        yield _fenced(diff or example.before, language)
        yield from _quoted_messages({name: _messages(rule, example, name) for name in names})


@lru_cache(maxsize=128)  # the examples of a rule or two: each is asked for several times
def _migrated(example: Example, target: str) -> Result:
    source = example.before.encode()
    return migrate_file(Path(example.path), source, targets()[target], example.options)


def _messages(rule: Rule, example: Example, target: str) -> list[str]:
    """The rule's messages for places that it leaves, or that it gives advice on."""
    result = _migrated(example, target)
    said = [Outcome.REPORTED] if result.changed else [Outcome.REPORTED, Outcome.KEPT]
    places: dict[str, list[str]] = {}
    for d in result.diagnostics:
        if d.code == rule.code and (d.outcome in said or d.severity is Severity.ADVICE):
            at = f"line {d.range.line}{f', `{d.construct}`' if d.construct else ''}"
            places.setdefault(_plain(d.message), []).append(at)
    return [f"{'; '.join(at)}: {message}." for message, at in places.items()]


def _plain(text: str) -> str:
    """A message as Markdown: `__init__` isn't emphasized, `<device>` isn't a tag."""
    return re.sub(r"(`[^`]*`)|([_*<])", lambda m: m[1] or f"\\{m[2]}", text)


def _quoted_messages(messages: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A list of the messages; those that only some targets have, with the targets' names."""
    lines: list[str] = []
    for message in dict.fromkeys(line for found in messages.values() for line in found):
        names = [name for name, found in messages.items() if message in found]
        one = "" if len(names) == len(messages) else f"{', '.join(names)}, "
        lines.append(f"> {one}{message}")
    if lines:
        yield "\n>\n".join(lines)


def _diff(before: str, after: str) -> str:
    """All lines, with changed ones marked; "" if there are none."""
    old, new = before.splitlines(), after.splitlines()
    lines = difflib.unified_diff(old, new, n=len(old), lineterm="")
    return "".join(f"{line}\n" for line in list(lines)[3:])


def _fenced(code: str, language: str) -> str:
    return f"```{language}\n{code.rstrip()}\n```"
