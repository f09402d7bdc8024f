"""A diagnosis for people: readable at 80 columns and below."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from migrator.report.terminal import line
from migrator.verify.interpreters import Interpreter, Problem

from .diagnosis import Diagnosis, State, packages, version
from .machine import gib


def show(found: Diagnosis, console: Console) -> None:
    """Machine, packages, variables, targets, and last what is in the way."""
    console.print(_machine(found))
    console.print()
    console.print(_packages(found.looked_at))
    for number, interpreter in enumerate(found.looked_at, 1):
        console.print(line((f"[{number}] {interpreter.python}", "dim")), soft_wrap=True)
    if found.variables:
        console.print()
        console.print(_variables(found))
    console.print()
    console.print(_targets(found))
    _findings(found, console)


def _grid(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)


def _machine(found: Diagnosis) -> Table:
    machine = found.machine
    table = _grid("Machine")
    table.show_header = False
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    features = f": {', '.join(machine.features)}" if machine.features else ""
    cores = f"{machine.cores} core{'s' * (machine.cores != 1)}"
    free = f", {gib(machine.free)} free" if machine.free is not None else ""
    place = f"{machine.place}, " if machine.place else ""
    table.add_row("system", Text(place + machine.system))
    table.add_row("CPU", Text(f"{machine.cpu}, {cores}{features}"))
    table.add_row("memory", gib(machine.memory) + free)
    missing = []
    for accelerator in machine.accelerators:
        if accelerator.found:
            table.add_row(accelerator.kind, line(accelerator.found))
        else:
            missing.append(accelerator.kind)
    if missing:
        table.add_row("not here", ", ".join(missing))
    return table


def _packages(interpreters: Sequence[Interpreter]) -> Table:
    table = _grid("Packages")
    table.add_column("", style="cyan", no_wrap=True)
    for number, found in enumerate(interpreters, 1):
        python = ".".join(map(str, found.release[:2])) or "?"
        table.add_column(f"\\[{number}] Python {python}", overflow="fold")
    for package in packages():
        versions = [version(found, package) or "-" for found in interpreters]
        table.add_row(package, *map(Text, versions))
    return table


def _variables(found: Diagnosis) -> Table:
    table = _grid("Environment variables")
    table.add_column("set", style="cyan", overflow="fold", ratio=2)
    table.add_column("what it does", overflow="fold", ratio=3)
    chosen = {state.target.name for state in found.states}
    for variable in found.variables:
        readers = chosen & set(variable.read_by)
        note = "" if readers == chosen else f" ({', '.join(variable.read_by)} only)"
        table.add_row(line(f"{variable.name}={variable.value}"), Text(variable.meaning + note))
    return table


def _targets(found: Diagnosis) -> Table:
    table = _grid("Targets")
    table.add_column("", style="cyan", no_wrap=True)
    table.add_column("can run", no_wrap=True)
    table.add_column("on")
    table.add_column("with", no_wrap=True)
    for state in found.states:
        pythons = [i.python for i in found.looked_at]
        interpreter = state.interpreter
        number = f"[{pythons.index(interpreter.python) + 1}]" if interpreter else "-"
        can = Text("yes", "green") if state.ready else Text("no", "bold red")
        where = state.runs_on if state.ready else "-"
        table.add_row(state.target.name, can, where, Text(number if state.ready else "-"))
    return table


def _findings(found: Diagnosis, console: Console) -> None:
    """Each problem and warning once, with the targets that it is of; commands in whole lines."""
    for title, style, kind in (("Problems", "bold red", 0), ("Warnings", "bold yellow", 1)):
        said: dict[Problem, list[str]] = {}
        for state in found.states:
            for problem in _problems_of_kind(state, kind):
                said.setdefault(problem, []).append(state.target.name)
        if not said:
            continue
        console.print()
        console.print(Text(title, style))
        problems = list(said)
        for problem, after in zip(problems, [*problems[1:], None], strict=True):
            of = ", ".join(said[problem])
            console.print(line((f"{of}  ", "cyan"), problem.text), soft_wrap=True)
            if problem.fix and (after is None or after.fix != problem.fix):
                console.print(line("    ", (problem.fix, "bold")), soft_wrap=True)


def _problems_of_kind(state: State, kind: int) -> Sequence[Problem]:
    return state.warnings if kind else state.problems
