"""Completion in bash, zsh and fish: what the command line offers, and where it is asked."""

from __future__ import annotations

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
)

from migrator.report import FORMATS

_PROGRAM = "tpu-migrate"
_VARIABLE = "_TPU_MIGRATE_COMPLETE"
_SHELLS = {
    "bash": f'eval "$({_PROGRAM} completion bash)"      in ~/.bashrc',
    "zsh": f'eval "$({_PROGRAM} completion zsh)"       in ~/.zshrc, behind compinit',
    "fish": f"{_PROGRAM} completion fish | source   in ~/.config/fish/config.fish",
}


@click.command("completion", epilog="\b\n" + "\n".join(_SHELLS.values()))
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def completion_command(shell: str) -> None:
    """Print the script with which a shell completes options, rules, targets, apps and paths."""
    complete = get_completion_class(shell)
    assert complete is not None
    cli = click.get_current_context().find_root().command
    click.echo(complete(cli, {}, _PROGRAM, _VARIABLE).source())


class _Joined(ShellComplete):
    """Completes the value of `--target=tor` as one word, which is what shells ask for."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        option, equals, value = incomplete.partition("=")
        if not equals or not option.startswith("--"):
            return super().get_completions(args, incomplete)
        return [
            CompletionItem(f"{option}={item.value}", help=item.help)
            for item in super().get_completions([*args, option], value)
            if item.type == "plain"
        ]


@add_completion_class
class _Zsh(_Joined, ZshComplete):
    name = "zsh"


@add_completion_class
class _Fish(_Joined, FishComplete):
    """Click's own ends a word at its first comma."""

    name = "fish"
    source_template = """\
function %(complete_func)s
    set -lx COMP_WORDS (commandline -cp)
    set -lx COMP_CWORD (commandline -t)
    for offer in (%(complete_var)s=fish_complete %(prog_name)s)
        set -l parts (string split -m 1 , -- $offer)
        switch $parts[1]
            case dir
                __fish_complete_directories $parts[2]
            case file
                __fish_complete_path $parts[2]
            case plain
                echo $parts[2]
        end
    end
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


@add_completion_class
class _Bash(_Joined, BashComplete):
    """Click's own offers either words or paths; bash takes the = of `--target=` for a word."""

    name = "bash"
    source_template = """\
%(complete_func)s() {
    local kind value IFS=$'\\n'
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            file | dir)
                compopt -o filenames
                if [[ $value == '~'* ]]; then
                    compopt -o default
                else
                    COMPREPLY+=($(compgen -A ${kind/dir/directory} -- "$value"))
                fi ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
             %(complete_var)s=bash_complete "$1")
}
complete -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        return [arg for arg in args if arg != "="], "" if incomplete == "=" else incomplete


def codes(
    _context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Codes of rules; behind a comma, too, where several are taken."""
    from migrator.registry import registry

    before, comma, last = incomplete.rpartition(",") if parameter.multiple else ("", "", incomplete)
    return [
        CompletionItem(f"{before}{comma}{code}", help=rule.summary)
        for code, rule in registry().rules.items()
        if code.startswith(last.upper()) and code not in before.split(",")
    ]


def apps(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Apps of the checkout, and scripts."""
    from migrator.verify.apps import app_names
    from migrator.verify.errors import VerifyError

    try:
        names = app_names()
    except VerifyError:
        names = []
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return [*found, *paths(_context, _parameter, incomplete)]


def formats(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Names of reports."""
    return [CompletionItem(n) for n in ("console", *FORMATS) if n.startswith(incomplete)]


def paths(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Files and folders."""
    return [CompletionItem(incomplete, type="file")]


def folders(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Folders."""
    return [CompletionItem(incomplete, type="dir")]
