"""Completion in bash, zsh, fish and PowerShell: the shells, and the command that sets it up."""

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

from migrator.cli import COMPLETING

_PROGRAM = "tpu-migrate"
_SHELLS = {
    "bash": f'eval "$({_PROGRAM} completion bash)"      in ~/.bashrc',
    "zsh": f'eval "$({_PROGRAM} completion zsh)"       in ~/.zshrc, after compinit',
    "fish": f"{_PROGRAM} completion fish | source   in ~/.config/fish/config.fish",
    "powershell": f"{_PROGRAM} completion powershell | Out-String | iex   in $PROFILE",
}


@click.command(
    "completion",
    short_help="Print a script for completion in a shell.",
    epilog="\b\n" + "\n".join(_SHELLS.values()),
)
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def completion_command(shell: str) -> None:
    """Print the script with which a shell completes options, rules, targets, apps and paths."""
    complete = get_completion_class(shell)
    assert complete is not None
    cli = click.get_current_context().find_root().command
    click.echo(complete(cli, {}, _PROGRAM, COMPLETING).source())


class _JoinedWords(ShellComplete):
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
class _Zsh(_JoinedWords, ZshComplete):
    name = "zsh"


_click_power_shell = get_completion_class("powershell")  # since click 8.5
if _click_power_shell is None:
    del _SHELLS["powershell"]
else:
    add_completion_class(type("_PowerShell", (_JoinedWords, _click_power_shell), {}), "powershell")


@add_completion_class
class _Fish(_JoinedWords, FishComplete):
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
class _Bash(_JoinedWords, BashComplete):
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
