"""Settings of YAML and JSON."""

import re
from collections.abc import Callable

from migrator.rule_api import Construct, Context, Decision
from migrator.rule_api.texts import (
    without_comment,
)


def with_setting(
    ctx: Context,
    found: Construct,
    setting: re.Pattern[str],
    change: str | Callable[[re.Match[str]], str],
) -> Decision:
    """A line with another setting; its comment stays."""
    text = found.content
    said = without_comment(text)
    return ctx.code.with_text(found, setting.sub(change, said) + text[len(said) :])
