"""Names of devices that a program takes apart."""

from migrator.rule_api import Construct, Context, Decision, Report

from .device import STRING


@STRING.on("string", "device name")
def taken_apart(ctx: Context, found: Construct) -> Decision:
    return Report(f"looks into the name of a device, which begins with {ctx.api.device!r} here")
