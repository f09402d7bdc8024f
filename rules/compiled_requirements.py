"""Lists of requirements that uv or pip-compile made: they are made again, not edited."""

import re

from migrator.construct import Construct
from migrator.requirements import alike, name_of, tested
from migrator.rule import Context, Decision, Keep, Report

from .requirement_lists import all_needed
from .requirements import REQUIREMENT


@REQUIREMENT.on("requirement", "compiled")
def compiled(ctx: Context, found: Construct) -> Decision:
    pins = [re.split(r"[;\\#]| -", line)[0] for line in ctx.text(found).splitlines()]
    pinned = [pin for pin in pins if name_of(pin) == "torch"]
    if ctx.target.portable:
        return Keep("a portable program uses what its machine has")
    if not pinned:
        return Keep("no list for a program of torch's")
    if all(alike(pin, tested(ctx.target)["torch"]) for pin in pinned):
        return Keep("the version that was tested")
    return Report("is compiled from the project's own list: change that, and compile it "
                  f"again; the target needs {all_needed(ctx)}")  # fmt: skip
