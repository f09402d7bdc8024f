# ruff: noqa: F401  what it imports is for rules
"""The other files of a project."""

from migrator.analysis.project.devices_of_others import is_device_elsewhere
from migrator.analysis.project.program_files import ProgramFile
from migrator.pipeline.file_blockers import context_of, why_it_stays
from migrator.rule_api import Context


def program_file(ctx: Context) -> ProgramFile:
    """This file, as a part of its program."""
    return ProgramFile(ctx.names, ctx.flow, ctx.project)
