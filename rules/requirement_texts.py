"""Requirements in strings of setup.py that are no plain lists."""

import re

from migrator.rule_api import Construct, Context, Decision, Keep, Report, lines_of
from migrator.rule_api.libraries import of_package
from migrator.rule_api.packages import asked_of, name_of, shut_out, tested
from migrator.rule_api.requirement_lists import all_needed

from .requirements import REQUIREMENT


@REQUIREMENT.on("requirement", "text")
def requirements_in_text(ctx: Context, found: Construct) -> Decision:
    """Strings of setup.py that are not in a list, or in one that is parsed in pieces."""
    every = lines_of(found.content)
    names = [name_of(re.split(r"[;#]", line)[0]) for line in every]
    libraries = [library.reason(str(n)) for n in names if (library := of_package(n or ""))]
    if ctx.target.portable:
        return Keep("a portable program uses what its machine has")
    lines = [line for line in every if (name := name_of(line))
             and shut_out(ctx.target, name, asked_of(line))]  # fmt: skip
    said = [f"`{line.strip()}` excludes every tested version" for line in lines] + libraries
    if "torch" in names or (None in names and "torch" in found.content):
        said.insert(0, f"the target needs {all_needed(ctx)}")
    versions = [tested(ctx.target).get(n or "") for n in names if n != "torch"]
    said += [f"the target needs {version}" for version in versions if version]
    asked = (tested(ctx.target)["torch"], *filter(None, versions))
    done = set(asked) <= set(found.content.split())
    if not said or (done and not lines and not libraries):
        return Keep("does not depend on the device")
    return Report(f"not changed automatically, because it is not a plain list: {'; '.join(said)}")
