"""Arguments of `tpu-migrate verify`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrator.config import load
from migrator.errors import UsageError
from migrator.frameworks import find_framework, imported_in
from migrator.runs.run_targets import of_source
from migrator.targets import DEFAULT, targets

from . import shared_options
from .verify_errors import VerifyError

if TYPE_CHECKING:
    from rich.console import Console

    from migrator.frameworks.framework import Framework

    from .recordings import RecordSettings
    from .run_options import RunOptions
    from .tolerances import Tolerances


@dataclass(frozen=True)
class VerifyArguments:
    """The options and arguments of the command line."""

    app: str | None  # or a script
    arguments: tuple[str, ...]
    all_apps: bool
    chosen: str | None  # a target, or "all"
    compile_for: str | None
    golden: Path | None
    bisect: bool
    layers: bool
    dropout: bool
    float64: bool
    steps: int
    roundings: int
    quick: bool
    module: bool
    tolerances: tuple[str, ...]
    memory: float | None
    devices: int | None
    shard: str | None
    measure: bool
    diff: bool
    portable: bool
    unsafe: bool
    python: Path | None
    install: bool
    timeout: float | None
    report: Path | None
    as_json: bool
    keep: Path | None
    asked: tuple[str, ...]  # all of it, as it was typed

    @property
    def is_script(self) -> bool:
        name = self.app
        return name is not None and (name.endswith(".py") or self.module or Path(name).is_file())

    def check(self) -> None:
        """Raise UsageError for options that can't be combined, or don't apply to the argument."""
        if bool(self.app) == self.all_apps:
            raise click.UsageError("name a script (train.py) or an app, or give --all (apps)")
        if self.bisect and self.compile_for:
            raise click.UsageError("--bisect compares numbers, --compile-for does not")
        if self.compile_for:
            able = [name for name, each in targets().items() if each.host.compiles_for_tpu]
            if not {*self.targets()} <= {*able}:
                raise click.UsageError(f"--compile-for needs --target {' or '.join(able)}")
        if self.layers and (not self.is_script or self.compile_for):
            raise click.UsageError("--layers compares the layers of a SCRIPT.py")
        if self.quick and (not self.is_script or self.compile_for):
            raise click.UsageError("--quick compares the first steps of a SCRIPT.py")
        if self.shard and self.devices is None:
            raise click.UsageError(f"--shard {self.shard} divides models: give --devices N, too")
        if self.is_script:
            self._check_script()
        else:
            self._check_app()

    def _check_script(self) -> None:
        if self.measure:
            raise click.UsageError("--measure runs what an app's app.toml names: name an app")
        if self.module and self.compile_for:
            raise click.UsageError("--compile-for runs a SCRIPT.py, not a module")
        if self.report is None:
            return
        from migrator.report import html

        if self.chosen == "all" or self.compile_for:
            raise click.UsageError("--report goes with a SCRIPT.py, on one target")
        try:
            html.check(self.report)
        except UsageError as error:
            raise click.UsageError(str(error)) from error

    def _check_app(self) -> None:
        if self.golden is not None:
            raise click.UsageError("--golden goes with a SCRIPT.py: an app has its own")
        if self.arguments:
            first = self.arguments[0]
            raise click.UsageError(f"arguments ({first} …) go with a SCRIPT.py, not with an app")
        if self.tolerances or self.memory or self.module:
            raise click.UsageError("--tolerance, --memory and -m go with a script, not with an app")
        if self.report is not None:
            raise click.UsageError("--report goes with a SCRIPT.py, on one target")

    def targets(self, name: str = "") -> tuple[str, ...]:
        """The names of the targets: without --target, the one in the project's configuration.

        ``name``: of one app, if all apps run.
        """
        if self.all_apps or not self.is_script:
            from .apps import framework_of

            framework = find_framework(framework_of(name or str(self.app)))
            if self.chosen not in (None, "all"):
                fits = targets()[str(self.chosen)].framework == framework.name
                return (str(self.chosen),) if fits or not self.all_apps else ()
            return self._of(framework)
        if self.chosen not in (None, "all"):
            return (str(self.chosen),)
        script = Path(str(self.app))
        if not script.is_file():
            return self._of(find_framework("torch"))
        source = script.read_bytes()
        configured = load(script).targets
        if configured and self.chosen is None:
            return (of_source(source, configured).name,)
        return self._of(imported_in(source))

    def _of(self, framework: Framework) -> tuple[str, ...]:
        """All targets of a framework if all are wanted, otherwise the default, or its first."""
        able = tuple(name for name, each in targets().items() if each.framework == framework.name)
        if self.chosen == "all" or not able:
            return able
        return (DEFAULT if DEFAULT in able else able[0],)

    def apps(self) -> list[str]:
        """The apps, or the one script. Raises UsageError."""
        from .apps import app_names

        try:
            return app_names() if self.all_apps else [str(self.app)]
        except VerifyError as error:
            raise click.UsageError(str(error)) from error

    def factors(self) -> Tolerances:
        """Raises UsageError."""
        from .tolerances import Tolerances

        try:
            return Tolerances.parse(self.tolerances)
        except VerifyError as error:
            raise click.UsageError(str(error)) from error

    def settings(self) -> RecordSettings:
        """Settings for the recordings."""
        from .recordings import RecordSettings

        return RecordSettings(
            steps=self.steps, roundings=self.roundings, dropout=self.dropout,
            timeout=self.timeout or 600.0, memory=shared_options.in_bytes(self.memory),
            quick=self.quick, layers=self.layers, float64=self.float64,
        )  # fmt: skip

    def how(self, out: Console) -> RunOptions:
        """Options for the verification."""
        from .run_options import RunOptions

        return RunOptions(
            diff=self.diff, portable=self.portable, unsafe=self.unsafe, python=self.python,
            install=self.install, timeout=self.timeout, keep=self.keep, console=out,
            compile_for=self.compile_for, devices=self.devices, shard=self.shard,
            measure=self.measure, bisect=self.bisect, asked=self.asked,
        )  # fmt: skip
