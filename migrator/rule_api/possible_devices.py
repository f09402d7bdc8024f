"""What is said of a string that may be the name of a device."""

import ast

from migrator.analysis.devices.device_keys import kinds_beside
from migrator.rule_api import Context
from migrator.rule_api.devices import option_of


def may_be_device(ctx: Context, string: ast.expr, reason: str) -> str:
    """What to write in its place; one side of a comparison alone would never be equal again."""
    write, (option, lines) = ctx.api.device, option_of(ctx.names, string)
    if option:
        places = f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"
        return (
            f"this string is a value of the option --{option}, given and compared in {places}: "
            f"leave all of them, or write {write!r} in all"
        )
    if beside := kinds_beside(ctx.names, string):
        others = ", ".join(map(repr, beside))
        return f"this string {reason}, beside {others}; of devices, add one for {write!r}, too"
    return f"this string {reason}; if it names a device, write {write!r}"
