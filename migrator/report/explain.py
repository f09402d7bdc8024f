"""One rule, explained: the same text on the terminal and, later, on its page."""

from __future__ import annotations

import difflib
import re

from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from migrator.report.terminal import print_code
from migrator.rule import Example, Rule
from migrator.targets import targets


def markdown(rule: Rule) -> str:
    """A rule as Markdown: what, why, examples as diffs for each target, safety, references."""
    parts = [
        f"# {rule.code} {rule.name}",
        rule.summary + ".",
        rule.why,
    ]
    parts.append(f"Safety: {rule.safety}. Switch off: `# tpu-migrate: ignore[{rule.code}]`")
    parts.append(f"Where it leaves a construct for a person: {rule.effort}.")
    for example in rule.examples:
        parts += _example(example)
    if rule.references:
        parts.append("\n".join(["References:", *(f"* <{r}>" for r in rule.references)]))
    return "\n\n".join(parts) + "\n"


def _example(example: Example) -> list[str]:
    diffs: dict[str, list[str]] = {}
    for name in targets():
        before, after = example.before.splitlines(), example.after(name).splitlines()
        lines = [d for d in difflib.ndiff(before, after) if not d.startswith("?")]
        diffs.setdefault("\n".join(lines), []).append(name)
    parts = []
    for diff, names in diffs.items():
        changed = any(line.startswith(("+", "-")) for line in diff.splitlines())
        flag = " with `--unsafe`" if example.unsafe else ""
        flag += " with `--portable`" if example.portable else ""
        flag += f" with `--shard {example.shard}`" if example.shard != "replicated" else ""
        flag += "".join(f' with `"{old}" = "{new}"`' for old, new in example.replace)
        parts.append(f"{' and '.join(names)}{flag}{'' if changed else ' (stays)'}:")
        parts.append(f"```diff\n{diff}\n```")
    return parts


def explain(rule: Rule, console: Console) -> None:
    """Print a rule: for a terminal, or, in pipes, as the Markdown that it is."""
    text = markdown(rule)
    if not console.is_terminal:
        console.print(Text(text), end="", soft_wrap=True)
        return
    for part in re.split(r"(^```diff\n.*?^```$)", text, flags=re.MULTILINE | re.DOTALL):
        if part.startswith("```"):
            code = part.removeprefix("```diff\n").removesuffix("```")
            print_code(code, "diff", console)
            console.print()
        elif part.strip():
            console.print(Markdown(part), width=min(console.width, _WIDEST))
            console.print()


_WIDEST = 100  # of prose
