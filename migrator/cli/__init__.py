"""The command line. Exit codes: 0 done, 1 `--check` or `--diff` found something, 2 an error."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrator.distribution import __version__
from migrator.errors import UsageError
from migrator.report.terminal import printable, spell_out

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Where each command is. The modules are only imported for what is asked.
COMMANDS = {
    "assess": "migrator.cli.assess:assess_command",
    "completion": "migrator.cli.completion:completion_command",
    "doctor": "migrator.doctor.command:doctor_command",
    "explain": "migrator.cli.rules:explain_command",
    "forecast": "migrator.forecast.command:forecast_command",
    "init": "migrator.cli.settings_commands:init_command",
    "lsp": "migrator.editor.command:lsp_command",
    "mcp": "migrator.mcp_server.command:mcp_command",
    "migrate": "migrator.cli.migrate:migrate_command",
    "record": "migrator.verify.record_command:record_command",
    "remaining": "migrator.remaining.command:remaining_command",
    "review": "migrator.review.command:review_command",
    "runtime": "migrator.cli.runtime:runtime_command",
    "rules": "migrator.cli.rules:rules_command",
    "verify": "migrator.verify.command:verify_command",
}
# What people try who know other tools, and what does it here.
_OF_OTHERS = {
    "check": "tpu-migrate PATH --target TARGET --check",
    "diff": "tpu-migrate PATH --target TARGET --diff",
    "fix": "tpu-migrate PATH --target TARGET rewrites in place",
    "undo": "tpu-migrate PATH --undo",
}
COMPLETING = "_TPU_MIGRATE_COMPLETE"  # set where a shell asks


def _command(name: str) -> click.Command:
    module, _, attribute = COMMANDS[name].partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    return command


class _CommandGroup(click.Group):
    """A group whose first word may also be a path: `tpu-migrate src/ --target torchax`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name) if cmd_name in COMMANDS else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # a folder may be called `rules`; nobody asks for the table of rules with a target
        named = bool(args) and args[0] in COMMANDS
        if named and args[0] in ("rules", "explain", "init", "runtime") and "--target" in args:
            named = not Path(args[0]).exists()
        if "--fix" in args:
            raise UsageError(f"no such option: --fix; {_OF_OTHERS['fix']}")
        if args and args[0] == "help" and not os.path.lexists("help"):
            args[:] = [*args[1:2], "--help"]
            named = args[0] in COMMANDS
        if args and not named and args[0] not in ("--help", "-h", "--version"):
            if args[0].isalpha() and not os.path.lexists(args[0]):
                _refuse_misspelled(args[0])
            args.insert(0, "migrate")
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Commands, and what the default command takes."""
        from click.shell_completion import CompletionItem

        found = [
            *super().shell_complete(ctx, incomplete),
            *_command("migrate").shell_complete(ctx, incomplete),
        ]
        if not incomplete.startswith("-"):
            found.append(CompletionItem(incomplete, type="file"))
        return list({item.value if item.type == "plain" else "": item for item in found}.values())

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from migrator.targets import names

        formatter.write_usage(ctx.command_path, f"PATH... --target {'|'.join(names())} [OPTIONS]")
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of the default command are this program's options."""
        from migrator.cli.option_groups import write_options

        write_options((*_command("migrate").params, *self.get_params(ctx)), ctx, formatter)
        self.format_commands(ctx, formatter)


def _refuse_misspelled(word: str) -> None:
    """Raise UsageError for what is nearly a command, or one of other tools, and no path."""
    from difflib import get_close_matches

    if word in _OF_OTHERS:
        raise UsageError(f"{word}: no such file or folder, and no command: {_OF_OTHERS[word]}")
    for meant in get_close_matches(word, COMMANDS, 1):
        raise UsageError(f"{word}: no such file or folder; did you mean the command {meant}?")


@click.group(cls=_CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tpu-migrate")
def cli() -> None:
    """Rewrite GPU PyTorch source so that it runs on a TPU.

    PATH... are Python files or folders, or `-` for standard input. Files are rewritten in place,
    only if they change and only if git holds what they are now.
    """


# Trees are many objects that stay: to look at them every 700 objects takes a quarter of all time,
# every 100,000 a twentieth. In each process, up to half a gigabyte waits for so many.
COLLECTING = (5_000_000, 20, 50)


def main() -> None:
    """The entry point: every foreseen failure is one line on standard error and exit code 2.

    What is not foreseen is for `migrator.start`.
    """
    if COMPLETING in os.environ:
        import_module("migrator.cli.completion")  # brings our shells
    spell_out()
    gc.set_threshold(*COLLECTING)
    try:
        cli.main(prog_name="tpu-migrate", standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.Abort:  # what click makes of Ctrl-C
        click.echo("tpu-migrate: stopped by Ctrl-C", err=True)
        sys.exit(130)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.NoSuchOption as error:
        said = printable(error.format_message().rstrip("."))
        if {"verify", "record"}.intersection(sys.argv[1:2]):
            name = printable(error.option_name)
            said = f"no option {name}; options of the script itself come behind --: -- {name}"
        click.echo(f"tpu-migrate: {said}", err=True)
        sys.exit(2)
    except click.ClickException as error:
        message = " ".join(error.format_message().split())  # click's own may have several lines
        click.echo(f"tpu-migrate: {printable(message)}", err=True)
        sys.exit(2)
