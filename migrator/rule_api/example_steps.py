"""Examples of rules with loops, whose steps end by a line of their own on torch_xla."""

from dataclasses import replace
from textwrap import dedent

from migrator.rule_api import Example


def with_step_end(example: Example, last: str) -> Example:
    """The same on torch_xla, where a step ends below the last line of the loop."""
    text = dedent((example.after or example.before).removeprefix("\n"))
    indent = next(n for n in text.splitlines()[::-1] if n.strip() == last).removesuffix(last)
    head, tail = text.rsplit(f"{indent}{last}\n", 1)
    head = head.replace("import torch\n", "import torch\nimport torch_xla\n", 1)
    ended = f"{head}{indent}{last}\n{indent}torch_xla.sync()\n{tail}"
    return replace(example, except_on={"torch_xla": ended})
