"""The options of a run in groups, as `--help` shows them."""

from __future__ import annotations

from collections.abc import Iterable

import click

# By the options' names in `migrator.cli.migrate`; a test holds this against them.
GROUPS = {
    "What to do": (
        "target", "diff", "check_only", "output", "undo", "watch", "show_settings", "show_files",
    ),
    "What is rewritten": (
        "select", "ignore", "unsafe", "precision", "runtime", "portable", "shard", "num_cores",
        "python",
    ),
    "Comments in the code": ("todo_comments", "strip_todo", "add_ignores"),
    "Which files": (
        "only_named", "exclude", "extend_exclude", "diff_base", "stdin_filename", "allow_dirty",
        "configuration", "isolated",
    ),
    "What is printed": (
        "quiet", "verbose", "statistics", "forms", "page", "with_runtime", "color",
    ),
    "Hooks and CI": ("hook", "exit_zero", "strict"),
    "Speed": ("jobs", "part", "executor", "no_cache"),
}  # fmt: skip
_OTHERS = "Other options"  # --version, --help


def write_options(
    options: Iterable[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write options under the titles of their groups, in the groups' order."""
    found = [option for option in options if option.param_type_name == "option"]
    grouped = {name for names in GROUPS.values() for name in names}
    rest = tuple(o.name for o in found if o.name not in grouped)
    for title, names in {**GROUPS, _OTHERS: rest}.items():
        here = sorted((o for o in found if o.name in names), key=lambda o: names.index(o.name))
        records = [record for o in here if (record := o.get_help_record(ctx)) is not None]
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class GroupedCommand(click.Command):
    """A command whose options are shown in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self.get_params(ctx), ctx, formatter)
