"""The Python versions that a project allows."""

import re

from migrator.construct import Construct
from migrator.requirements import excludes, pythons
from migrator.rule import Context, Decision, Keep, Report

from .requirement_lists import is_exported, is_of
from .requirements import REQUIREMENT


@REQUIREMENT.on("requirement", "python")
def python(ctx: Context, found: Construct) -> Decision:
    asked = re.sub(r"^python(?=\d)", "", ctx.text(found).strip())
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


def python_of_conda(ctx: Context, found: Construct, version: str, needs_torch: bool) -> Decision:
    first, last = ctx.target.environment.pythons[0], ctx.target.environment.newest
    low, high = (".".join(map(str, each)) for each in (first, last))
    match = re.match(r"\s*=*\s*3(?:\.(\d+))?", version) or re.search(r"<\s*3\.(\d+)", version)
    if not needs_torch or match is None or match[1] is None:
        return Keep("does not depend on the device")
    if "<" not in version and first[1] <= int(match[1]) <= last[1]:
        return Keep("a version that the target has wheels for")
    if "<" in version and int(match[1]) > first[1]:
        return Keep("allows a version that the target has wheels for")
    reason = f"the target's packages need Python {low} to {high}"
    if re.fullmatch(r"\s*=+\s*3\.\d+", version):
        text = ctx.text(found).replace(version, f"={low}")
        return ctx.with_text(found, text, reason)
    return Report(f"{reason}: `{'' if is_exported(ctx, found) else '- '}python={low}`")


def _names_torch(ctx: Context) -> bool:
    """Whether the file lists torch, or a related package, next to its Python version."""
    texts = (ctx.text(each) for each in ctx.constructs if each.kind == "requirement")
    return any(re.match(r"\W*(?:py)?torch\b", text) for text in texts)
