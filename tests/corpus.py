"""Migrate whole repositories in memory and count what must never happen.

    python tests/corpus.py FOLDER [--target torchax] [--ungated]

FOLDER holds checked-out repositories. Prints one row for each: files, files with a construct, files
changed; then the error columns, which must all be 0: internal errors, unparsable output, a second
run that changes something, lines changed that hold no construct, comments lost, constructs that an
independent count finds and no diagnostic names, notebooks in which more changes than code and
Colab's accelerator. `--ungated` also rewrites files that train.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import io
import json
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.project_cache import ProjectCache
from migrator.codes import INTERNAL
from migrator.config import Config
from migrator.diagnostics import Diagnostic, Outcome
from migrator.files.discover import Disk, discover, project_root
from migrator.formats import file_kinds, notebook, python_source
from migrator.frameworks.torch.device_constructs import DEVICE_CONSTRUCTS
from migrator.pipeline.engine import migrate, migrate_file
from migrator.pipeline.normalise import AsGpuCode
from migrator.pipeline.result import Result
from migrator.registry import registry
from migrator.targets import Target, targets

COLUMNS = ("files", "unread", "hit", "changed", "rewritten", "kept", "reported", "unknown")
ERRORS = ("crashed", "unparsable", "unstable", "stray", "comments", "missed", "notebook")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="torchax", choices=list(targets()))
    parser.add_argument("--ungated", action="store_true", help="rewrite files that train, too")
    parser.add_argument("-v", "--verbose", action="store_true", help="name each fault")
    arguments = parser.parse_args()
    if arguments.ungated:
        registry().exact.pop(("file", "gate"), None)
    print(f"{'repository':28}", *(f"{c:>10}" for c in (*COLUMNS, *ERRORS)))
    total: Counter[str] = Counter()
    for repository in sorted(p for p in arguments.folder.iterdir() if p.is_dir()):
        counts = check(repository, arguments.target, arguments.verbose)
        total += counts
        print(f"{repository.name[:28]:28}", *(f"{counts[c]:10}" for c in (*COLUMNS, *ERRORS)))
    print(f"{'all':28}", *(f"{total[c]:10}" for c in (*COLUMNS, *ERRORS)))
    return 1 if any(total[c] for c in ERRORS) else 0


def check(repository: Path, target: str, verbose: bool = False) -> Counter[str]:
    """Migrate every file of one repository, in memory."""
    counts: Counter[str] = Counter()
    words, options = targets()[target], Config().options
    disk = AsGpuCode(Disk(), words)
    cache = ProjectCache(disk, DEVICE_CONSTRUCTS)
    for path in discover([repository]).files:
        counts["files"] += 1
        source = path.read_bytes()
        facts = ProjectFacts(path.resolve(), project_root(path.resolve()), disk, cache)
        other = 0
        if file_kinds.line_kind(path) is not None:
            faults = count_lines(counts, path, source, facts, words)
            if verbose and faults.total():
                print(f"    {path}: {dict(faults)}", file=sys.stderr)
            counts += faults
            continue
        if file_kinds.is_notebook(path):
            whole = migrate_file(path, source, words, options, facts)
            if whole.failed:
                counts["unread"] += 1
                continue
            again = migrate_file(path, whole.source, words, options, facts)
            other = not equal_but_for_code(source, whole.source) or again.changed
            source = notebook.read_notebook(source).module.encode()
        result = migrate(source, words, options, facts)
        count_outcomes(counts, result)
        faults = Counter[str]()
        faults["notebook"] = other
        faults["crashed"] = sum(d.code == INTERNAL for d in result.diagnostics)
        if not result.failed:
            text = python_source.decode(source).text
            faults["missed"] = len(missed(text, result.diagnostics))
            if result.changed:
                faults += changed_faults(text, result.source, result.diagnostics)
                again = migrate(result.source, words, options, facts)
                faults["unstable"] = again.changed
        if verbose and faults.total():
            print(f"    {path}: {dict(faults)}", file=sys.stderr)
        counts += faults
    return counts


def count_outcomes(counts: Counter[str], result: Result) -> None:
    counts["hit"] += any(d.outcome for d in result.diagnostics)
    counts["changed"] += result.changed
    for diagnostic in result.diagnostics:
        if diagnostic.outcome:
            counts[str(diagnostic.outcome)] += 1
        counts["unknown"] += diagnostic.code == "GEN001"


def count_lines(
    counts: Counter[str], path: Path, source: bytes, facts: ProjectFacts, words: Target
) -> Counter[str]:
    """Faults in a shell script, in lists of requirements or in a configuration."""
    result = migrate_file(path, source, words, project=facts)
    counts["unread"] += result.failed
    count_outcomes(counts, result)
    faults = Counter[str]()
    faults["crashed"] = sum(d.code == INTERNAL for d in result.diagnostics)
    faults["unstable"] = migrate_file(path, result.source, words, project=facts).changed
    if result.changed:
        before, after = (text.decode().split("\n") for text in (source, result.source))
        rewritten = (d.range for d in result.diagnostics if d.outcome is Outcome.REWRITTEN)
        touched = {n for where in rewritten for n in range(where.line, where.end_line + 1)}
        for number in range(1, len(before)):
            if number in touched and before[number - 1].rstrip("\r").endswith("\\"):
                touched.add(number + 1)  # goes on
        left = [line for n, line in enumerate(before, 1) if n not in touched]
        rest = iter(after)
        faults["stray"] = sum(line not in rest for line in left)  # in their order
    return faults


def equal_but_for_code(before: bytes, after: bytes) -> bool:
    """Whether two notebooks differ in code cells and in Colab's accelerator alone."""
    notebooks = [json.loads(content) for content in (before, after)]
    for each in notebooks:
        each["metadata"].pop("accelerator", None)
        each["metadata"].get("colab", {}).pop("gpuType", None)
        for cell in each["cells"]:
            if cell["cell_type"] == "code":
                cell["source"] = type(cell["source"])()
    return bool(notebooks[0] == notebooks[1])


def changed_faults(text: str, after: bytes, diagnostics: tuple[Diagnostic, ...]) -> Counter[str]:
    faults: Counter[str] = Counter()
    new = python_source.decode(after).text
    try:
        ast.parse(new)
    except SyntaxError:
        faults["unparsable"] += 1
        return faults
    touched = touched_lines(text, diagnostics)
    old_lines, new_lines = text.split("\n"), new.split("\n")
    kept = Counter(map(_as_moved, new_lines))  # also where they have moved to
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    for tag, start, end, _, _ in matcher.get_opcodes():
        if tag in ("replace", "delete"):
            lines = [
                _as_moved(old_lines[n - 1]) for n in range(start + 1, end + 1) if n not in touched
            ]
            faults["stray"] += len([line for line in lines if line and not kept[line]])
    lost = Counter(comments(text)) - Counter(comments(new))
    deleted = Counter(c for n, c in comment_lines(text) if n in touched)
    faults["comments"] += (lost - deleted).total()
    return faults


def _as_moved(line: str) -> str:
    """A line without what it may lose or get when it moves into a compiled step."""
    line = re.sub(r"\.item\(\)|\bself\.", "", line.strip())
    return re.sub(r"^if .*% .*:$|^if update\w*:$", "if …:", line)


def touched_lines(text: str, diagnostics: tuple[Diagnostic, ...]) -> set[int]:
    """Lines of the statements that hold a rewritten construct, and of imports."""
    rewritten = [d.range for d in diagnostics if d.outcome is Outcome.REWRITTEN]
    lines: set[int] = set()
    for node in reversed(list(ast.walk(ast.parse(text)))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if not isinstance(node, ast.stmt):
            continue
        first, last = node.lineno, node.end_lineno or node.lineno
        body = getattr(node, "body", None)
        inside = [r for r in rewritten if first <= r.line <= last]
        if isinstance(node, ast.With | ast.AsyncWith):  # may be unwrapped
            heads = [i.context_expr for i in node.items]
            ends = [(h.lineno, h.end_lineno or h.lineno) for h in heads]
            inside = [r for r in inside if any(a <= r.line <= b for a, b in ends)]
        elif isinstance(body, list) and body:
            if isinstance(node, ast.If) and all(s.lineno in lines for s in body):
                lines.add(node.lineno)  # an `if` that lost its whole body
            continue
        if inside:
            lines.update(range(first, last + 1))
    for where in rewritten:
        lines.update(range(where.line, where.end_line + 1))
    return lines


def comments(text: str) -> list[str]:
    return [comment for _, comment in comment_lines(text)]


def comment_lines(text: str) -> list[tuple[int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [(t.start[0], t.string.strip()) for t in tokens if t.type == tokenize.COMMENT]


def missed(text: str, diagnostics: tuple[Diagnostic, ...]) -> list[ast.AST]:
    """GPU constructs by a count of its own, which knows no aliases, that no diagnostic covers."""
    covered = {line for d in diagnostics if d.outcome
               for line in range(d.range.line, d.range.end_line + 1)}  # fmt: skip
    tree = ast.parse(text)
    binds_torch = any(
        (isinstance(n, ast.Import) and any(a.name.split(".")[0] == "torch" for a in n.names))
        or (isinstance(n, ast.ImportFrom) and n.names[0].name == "*")
        for n in ast.walk(tree)
    )
    docstrings = {
        id(n.body[0].value)
        for n in ast.walk(tree)
        if isinstance(n, ast.Module | ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        and n.body and isinstance(n.body[0], ast.Expr)
    }  # fmt: skip
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Attribute(value=ast.Name("torch"), attr="cuda")):
                if binds_torch:
                    found.append(node)
            case ast.Call(func=ast.Attribute(attr="cuda")):
                found.append(node.func)
            case ast.Constant(value=str(value)) if id(node) not in docstrings:
                if re.fullmatch(r"cuda(:\d+)?", value):
                    found.append(node)
            case ast.Attribute(attr="is_cuda"):
                found.append(node)
    return [n for n in found if (n.end_lineno or n.lineno) not in covered]  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main())
