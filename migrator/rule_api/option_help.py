"""Help texts of options, which mention values that are rewritten."""

import ast
import re

from migrator.rule_api import Context, Edit, SetString
from migrator.rule_api.python import is_option

# `cuda` as one of the choices: "cuda or cpu", "cpu/cuda", "'cuda', 'cpu'"
_AMONG_CHOICES = re.compile(
    r"""\bcuda\b(?=['"`]?\s*(?:or|and|/|\||,)\s*['"`]?cpu\b)"""
    r"""|(?P<cpu>\bcpu['"`]?\s*(?:or|and|/|\||,)\s*['"`]?)cuda\b(?![:.])"""
)


def help_beside(ctx: Context, value: ast.Constant) -> list[Edit]:
    """The help of an option whose default or choices are rewritten, with the device's new name."""
    call = next((a for a in ctx.names.ancestors(value) if isinstance(a, ast.Call)), None)
    if call is None or not is_option(call):
        return []
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    said = given.get("help")
    first = next(
        (n for part in ("default", "choices") if part in given for n in ast.walk(given[part])
         if isinstance(n, ast.Constant) and n.value == value.value), None)  # fmt: skip
    if first is not value or not isinstance(said, ast.Constant) or not isinstance(said.value, str):
        return []
    device = ctx.api.device
    text = _AMONG_CHOICES.sub(lambda match: f"{match['cpu'] or ''}{device}", said.value)
    return [SetString(said, text)] if text != said.value and "\n" not in text else []
