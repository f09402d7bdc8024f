"""What a rule may ask: about the file, its program and the target."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from migrator.analysis.devices.indices import compares_indices
from migrator.analysis.devices.own_moves import definition
from migrator.analysis.devices.patches import patches
from migrator.analysis.devices.variable import DeviceVariable
from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.ranks.file_ranks import Ranks
from migrator.analysis.ranks.obstacles import Cause
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.scripts import is_script
from migrator.analysis.training.iterations import Iterations
from migrator.analysis.training.loops import speaks_of_training, stops_gradients
from migrator.analysis.training.sync_points import Hot
from migrator.analysis.values.effects import Effects
from migrator.analysis.values.evidence import Evidence
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.kinds import Kind
from migrator.analysis.values.statement_order import StatementOrder
from migrator.construct import Construct
from migrator.decision import Decision, Obstacle, Report, Rewrite
from migrator.diagnostics import SourceMap
from migrator.edits import Edit, SetString, Spread
from migrator.formats.embedded import is_embedded
from migrator.frameworks import find_framework
from migrator.frameworks.framework import Framework
from migrator.options import Options
from migrator.targets import RUNTIME, Target, Word, Words, filled, in_one_process

if TYPE_CHECKING:
    from migrator.analysis.training.computation import Computation
    from migrator.analysis.training.sharding import Table

_T = TypeVar("_T")


@dataclass
class Context:
    """Everything that a handler may look at. Nothing here does I/O."""

    names: Names
    flow: Flow
    source: SourceMap
    target: Target
    options: Options
    constructs: Sequence[Construct] = ()
    project: ProjectFacts | None = None
    for_others: bool = False  # only analysed, for a file that imports this one
    sharding_tables: dict[ast.ClassDef, tuple[str, Edit]] = field(default_factory=dict)  # by model
    framework: Framework = field(init=False)  # of the target
    words: Words = field(init=False)  # of the target, as this file speaks of torch
    _found: dict[object, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        alone = self.options.shard != "replicated"
        self.use(in_one_process(self.target) if alone else self.target)

    def use(self, target: Target) -> None:
        """Switch to `target`."""
        self.target = target
        self.framework = find_framework(target.framework)
        spelled, requires = self.module(self.framework.module)
        texts = {self.framework.module: spelled}
        if target.words.device_names:  # to know the file's quotes takes a look at all its strings
            texts["cpu"] = self.quoted("cpu")
        self.words = filled(target.words, texts, requires)

    def once(self, find: Callable[[Context], _T]) -> _T:
        """What a rule's function finds in the whole file, looked for once."""
        if find not in self._found:
            self._found[find] = find(self)
        return cast(_T, self._found[find])

    def runtime(self, name: str) -> Word | None:
        """A name of the target's runtime; None if it has no such name, which is to be reported."""
        return Word(f"{RUNTIME}.{name}", (RUNTIME,)) if self.target.offers(name) else None

    def lacks(self, what: str) -> Report:
        """A report that neither the words nor the runtime of the target have this."""
        return Report(f"{self.target.name} has no counterpart for {what}")

    def quoted(self, value: str, near: ast.AST | None = None) -> str:
        """`value` as a string literal in the quotes that the code nearby uses."""
        quote = self._usual_quote
        if near is not None:
            for node in ast.walk(near):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    text = self.source.code(node).lstrip("rRbBuU")
                    if text[:1] in ("'", '"'):
                        quote = text[0]
                        break
            outer = next((a for a in self.names.ancestors(near) if isinstance(a, ast.JoinedStr)), 0)
            if isinstance(outer, ast.JoinedStr):
                opening = self.source.code(outer).lstrip("rRfF")[:1]
                quote = "'" if opening == '"' else '"'
        return f"{quote}{value}{quote}"

    @cached_property
    def _usual_quote(self) -> str:
        """The quotes of most strings in the file."""
        single = 0
        for node in self.names.order:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                single += 1 if self.source.code(node).lstrip("rRbBuU").startswith("'") else -1
        return "'" if single > 0 else '"'

    def device_string(self, near: ast.AST | None = None, *, compared: bool = False) -> str:
        """Code for the type of the target's device: a string, or a call in a portable program.

        In a comparison, a portable program names the accelerator: its device may be the CPU.
        """
        if self.words.device_names:
            return f"{self.device_variable.name(near)}.type"
        if self.target.portable:
            compared = compared or (
                near is not None and isinstance(self.names.parents.get(near), ast.Compare)
            )
            return f"{RUNTIME}.{'accelerator' if compared else 'device'}_type()"
        return self.quoted(self.words.device, near)

    @cached_property
    def compares_indices(self) -> bool:
        """Whether "cuda:0" has to keep its index, for this file or for the rest of its program."""
        return compares_indices(self.names, self.flow) or (
            self.project is not None and self.project.compares_indices()
        )

    def device_name(self, indexed: bool) -> str:
        """The name of the target's device that replaces one with or without an index."""
        return f"{self.words.device}{':0' if indexed and self.compares_indices else ''}"

    def device(self, near: ast.AST | None = None) -> str:
        """Code for the target's device where a torch.device will do as well as a string."""
        if self.words.device_names:
            return self.device_variable.name(near)
        return f"{RUNTIME}.device()" if self.target.portable else self.device_string(near)

    @cached_property
    def device_variable(self) -> DeviceVariable:
        """The variable that holds the device of a program that chooses it when it starts."""
        return DeviceVariable(self.names, self.flow, self.words.device_names)

    def torch(self) -> tuple[str, tuple[str, ...]]:
        """How this file spells torch (`th`), and the imports that this needs."""
        return self.module("torch")

    def module(self, name: str) -> tuple[str, tuple[str, ...]]:
        """How this file spells a module (`dist`), and the imports that this needs."""
        spelled = self.names.spelled(name)
        return (spelled, ()) if spelled is not None else (name, (name,))

    def text(self, found: Construct) -> str:
        """The text of a construct that is a string."""
        if found.text is not None:
            return found.text
        assert isinstance(found.node, ast.Constant)
        return str(found.node.value)

    def with_text(self, found: Construct, text: str, note: str = "", advice: str = "") -> Decision:
        """Change the text of a construct that is a string; report what its quotes cannot hold.

        If the string is an element of a list, each new line becomes an element.
        """
        assert isinstance(found.node, ast.Constant)
        literal = self.source.code(found.node)
        if is_embedded(self.names.parents.get(found.node)):
            return Rewrite(
                [SetString(found.node, json.dumps(text)[1:-1])], note=note, advice=advice
            )
        if (
            isinstance(self.parent(found.node), ast.List | ast.Tuple | ast.Set)
            and literal[0] in "\"'"
        ):
            elements = [f"{literal[0]}{line}{literal[0]}" for line in text.split("\n")]
            return Rewrite([Spread(found.node, elements)], note=note)
        other = {'"': "'", "'": '"'}.get(literal[0], "")  # quotes that fit inside
        if literal[-3:] in ('"""', "'''") or any(
            mark in text for mark in "\"'\\\n{}" if mark != other
        ):
            return Report(f"becomes `{text}`")
        return Rewrite([SetString(found.node, text)], note=note)

    def is_statement(self, node: ast.expr) -> bool:
        return isinstance(self.names.parents.get(node), ast.Expr)

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.names.parents.get(node)

    @cached_property
    def computation(self) -> Computation:
        """What the code of this file computes."""
        from migrator.analysis.training.computation import Computation  # few files ask

        return Computation(self.names, self.flow, self.project)

    @cached_property
    def package(self) -> str:
        """The package of this file; "" if unknown."""
        return self.project.package() if self.project is not None else ""

    def defines(self, attribute: str, kind: Kind = Kind.NOTHING) -> str:
        """A class of the project that defines an attribute which torch's classes have; "" for none.

        If the object is known to be a model, only models count. A method that does the same as
        torch's does not count.
        """
        return definition(self.evidence, attribute, kind)

    def is_own(self, qualname: str) -> bool:
        """Whether an imported name comes from a file of the project."""
        return self.project is not None and self.project.holds(qualname)

    @cached_property
    def uses_device(self) -> bool:
        """Whether this file, or a file that it imports, uses a device."""
        own = any(map(self.framework.uses_device, self.constructs))
        return own or bool(self.project and self.project.leads_to_gpu(self.framework))

    @cached_property
    def is_without_device(self) -> bool:
        """Whether this is a program that uses no device, or code that may be of another framework,
        and no other program takes its code to a device."""
        may_be_other = not any(name in self.source.text for name in self.framework.packages)
        is_cpu = (self.is_entry or may_be_other) and not self.uses_device
        return is_cpu and (self.project is None or not self.project.is_imported_by_gpu_code())

    @cached_property
    def is_native(self) -> bool:
        """Whether the code was written for the target itself: then only older spellings change."""
        imports = [i for i in self.names.imports if self.names.parents[i] is self.names.tree]
        names = (
            [i.module] if isinstance(i, ast.ImportFrom) else [a.name for a in i.names]
            for i in imports
        )
        libraries = {(name or "").partition(".")[0] for each in names for name in each}
        if self.target.traces.library not in libraries - {""} or RUNTIME in libraries:
            return False
        return not any(map(self.framework.uses_device, self.constructs))

    @cached_property
    def effects(self) -> Effects:
        """The side effects of expressions."""
        known = {c.node for c in self.constructs if c.kind == "method" and c.key == "get_device"}
        return Effects(self.names, self.flow, self.project, known)

    @cached_property
    def order(self) -> StatementOrder:
        """Which statements may change places."""
        return StatementOrder(self.names, self.effects, self.evidence.is_tensor)

    @cached_property
    def evidence(self) -> Evidence:
        """What is known about values, beyond the hints that names give."""
        return Evidence(self.names, self.flow, self.project)

    @cached_property
    def patched(self) -> Mapping[str, str]:
        """The functions of torch.cuda that the program replaces itself, and where."""
        own = {k: f"line {node.lineno}" for k, node in patches(self.names, self.flow).items()}
        return own if self.project is None else {**self.project.patches(), **own}

    @cached_property
    def hot(self) -> Hot:
        """The loops in which this file uses the device."""
        return Hot(self.names, self.flow)

    @cached_property
    def iterations(self) -> Iterations:
        """The iterations in which this file trains."""
        return Iterations(self.hot)

    @cached_property
    def shardings(self) -> dict[ast.expr, Table | None]:
        """How each model that moves to the device is divided; None if unknown."""
        inner = self.options.tensor_parallel
        if not inner:
            return {}
        from migrator.analysis.training.sharding import Models

        return Models(self.names, self.flow, self.project).tables(inner)

    @cached_property
    def divides_models(self) -> bool:
        """Whether this file, or one that it imports, divides a model over the devices."""
        if any(table is not None and table.rules for table in self.shardings.values()):
            return True
        inner = self.options.tensor_parallel
        return bool(inner) and self.project is not None and self.project.divides_models()

    @cached_property
    def own_ranks(self) -> Ranks:
        """The ranks of this file."""
        return Ranks(self.names, self.flow)

    @cached_property
    def ranks(self) -> Mapping[Path | None, Ranks]:
        """The ranks of each file of this file's multi-device program; None is this file.

        Empty if there is no such program, or if the target runs it as nobody launched it.
        """
        return {} if self.is_unlaunched else self._program

    @cached_property
    def is_unlaunched(self) -> bool:
        """Whether only a launcher creates the program's ranks, and the target cannot serve them:
        the program then runs as if nobody had launched it."""
        if self.words.devices is None:
            return False
        parts = [ranks for ranks in self._program.values() if ranks.take_part]
        if not parts or not all(ranks.launched.holds_all for ranks in parts):
            return False
        if self.rank_obstacle is not None:
            return True
        if self.target.launches:
            return False
        joined = self.options.unsafe and any(ranks.samples for ranks in parts)
        return not joined and not self.only_infers

    @cached_property
    def _program(self) -> Mapping[Path | None, Ranks]:
        if self.project is None:
            return {None: self.own_ranks} if self.own_ranks.start is not None else {}
        program: dict[Path | None, Ranks] = dict(self._ranks_by_file.items())
        program.pop(self.project.path, None)
        return {None: self.own_ranks, **program} if self._ranks_by_file else {}

    @cached_property
    def _ranks_by_file(self) -> Mapping[Path, Ranks]:
        alone = self.words.devices is None or self.words.devices.launch is None
        return self.project.distributed_program(in_one_process=alone) if self.project else {}

    def label(self, path: Path) -> str:
        """The name of a file of the program in messages, or its path if names clash; "" for this
        file."""
        if self.project is None or path == self.project.path:
            return ""
        return self.project.label(path)

    @cached_property
    def rank_obstacle(self) -> Obstacle | None:
        """Why the target cannot run the program's ranks."""
        alone = {None: self.own_ranks} if self.project is None else {}
        for path, ranks in (alone or self._ranks_by_file).items():
            found = self._obstacle(ranks, path)
            if found is not None:
                return Obstacle(path, *found)
        return None

    def _obstacle(self, ranks: Ranks, path: Path | None = None) -> tuple[int, str] | None:
        devices = self.words.devices
        if devices is not None and devices.launch is not None:
            for node, reason in self._in_the_way(ranks, path):
                if self.project is None or path is None or self.project.reaches(path, node):
                    return node.lineno, reason
            return None
        if self.only_infers:
            return ranks.obstacles.to_one_rank
        if self.project is None or path is None:
            return ranks.obstacles.to_one_process()
        return self.project.obstacle(path, ranks)

    def _in_the_way(self, ranks: Ranks, path: Path | None = None) -> Sequence[Cause]:
        """What the target does not support of a file's ranks, if it keeps ranks."""
        if (devices := self.words.devices) is None or devices.launch is None:
            return ()
        if self.project is not None:
            return self.project.in_the_way(path, ranks, devices=devices)
        return ranks.obstacles.to_launch(devices=devices)

    @cached_property
    def unserved(self) -> dict[ast.AST, str]:
        """Code that the target does not support, and why; the program never reaches it."""
        return dict(self._in_the_way(self.own_ranks)) if self.ranks else {}

    @cached_property
    def only_infers(self) -> bool:
        """Whether a program with ranks does no training: one rank can then do the work of all."""
        if self.project is None:
            return stops_gradients(self.names) and not speaks_of_training(self.names.tree)
        return self.project.only_infers()

    @cached_property
    def is_entry(self) -> bool:
        """Whether this file is started as a program, not imported."""
        if self.options.entry is not None:
            return self.options.entry
        script = is_script(self.names)
        if script is None:
            return self.project is None or not self.project.is_imported()
        return script or (self.project is not None and self.project.is_started())
