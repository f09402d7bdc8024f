"""Requirements of a library: a range of versions, and an extra `tpu` for a TPU."""

import ast
from dataclasses import replace

from migrator.rule_api import Construct, Context, Decision, EditCall, Keep, Report, Rewrite
from migrator.rule_api.packages import (
    SETUP,
    asked_of,
    excludes,
    in_a_range,
    in_place_of,
    name_of,
    ranges,
    tested,
)

EXTRA = "what a TPU needs is an extra, `tpu`"


def of_library(ctx: Context, found: Construct, name: str, said: str, body: str) -> Decision:
    """A library's requirement: its users have other packages' versions to reconcile."""
    version = tested(ctx.target)[name]
    if not excludes(asked_of(body), asked_of(version)):
        return with_extra(ctx, found, Keep("allows the version that was tested"))
    if said.strip() != body.strip():
        return Report(f"leaves out {version}, which was tested with the target")
    indent = said[: len(said) - len(said.lstrip())]
    text = indent + in_place_of(body, in_a_range(version)) + found.content[len(said) :]
    new = ctx.code.with_text(found, text, "a range that has the version that was tested")
    return with_extra(ctx, found, new)


def _first(ctx: Context) -> tuple[Construct | None, ast.Call | None]:
    """The first `torch` of a file, and its call of `setup`."""
    dependencies = (each for each in ctx.constructs if each.key == "dependency")
    torch = (each for each in dependencies if name_of(each.content) == "torch")
    calls = (node for node in ctx.names.order if isinstance(node, ast.Call))
    return next(torch, None), next((c for c in calls if ctx.names.qualified(c.func) in SETUP), None)


def with_extra(ctx: Context, found: Construct, decision: Decision) -> Decision:
    """The first `torch` of a setup.py adds the extra for TPUs."""
    first, call = ctx.once(_first)
    if call is None or first is not found or not isinstance(decision, Keep | Rewrite):
        return decision
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    extras = given.get("extras_require")
    if extras is None and None not in given:
        listed = ", ".join(ctx.code.quoted(each, call) for each in ranges(ctx.target))
        put = EditCall(
            call, put={"extras_require": f"{{{ctx.code.quoted('tpu', call)}: [{listed}]}}"}
        )
        edits = decision.edits if isinstance(decision, Rewrite) else ()
        return Rewrite([*edits, put], note=EXTRA)
    if isinstance(extras, ast.Dict) and any(
        isinstance(key, ast.Constant) and key.value == "tpu" for key in extras.keys
    ):
        return decision
    return replace(decision, advice=f'{EXTRA}: add `"tpu": {ranges(ctx.target)}`')
