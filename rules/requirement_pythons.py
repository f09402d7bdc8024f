"""The Python versions that a project allows."""

import re

from migrator.rule_api import Construct, Context, Decision, Keep, Report
from migrator.rule_api.packages import excludes, pythons
from migrator.rule_api.requirement_lists import is_of

from .requirements import REQUIREMENT


@REQUIREMENT.on("requirement", "python")
def python(ctx: Context, found: Construct) -> Decision:
    asked = re.sub(r"^python(?=\d)", "", found.content.strip())
    if ctx.target.portable or not ctx.once(_names_torch):
        return Keep("does not depend on the device")
    wanted = pythons(ctx.target)
    if excludes(asked, wanted):
        return Report(f"the target's packages have no wheels for these Pythons: take {wanted}")
    if excludes(asked, f"<{wanted[2:6]}"):
        return Keep("allows Pythons that the target has wheels for")
    if is_of(ctx, "table"):
        return Report(f"the target's packages have to fit all of these Pythons: take {wanted}")
    advice = f"uv locks for all of these Pythons, and the target's packages need {wanted}"
    return Keep(
        "allows Pythons that the target has wheels for", advice if is_of(ctx, "source") else ""
    )


def _names_torch(ctx: Context) -> bool:
    """Whether the file lists torch, or a related package, next to its Python version."""
    texts = (each.content for each in ctx.constructs if each.kind == "requirement")
    return any(re.match(r"\W*(?:py)?torch\b", text) for text in texts)
