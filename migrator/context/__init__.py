"""What a rule may ask: about the file, its program and the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import TypeVar, cast

from migrator.context.distributed_facts import DistributedFacts
from migrator.context.known_values import KnownValues
from migrator.context.target_code import TargetCode
from migrator.context.task import Task
from migrator.context.this_file import ThisFile
from migrator.context.training_facts import TrainingFacts
from migrator.frameworks import find_framework
from migrator.targets import Target, filled, in_one_process

_T = TypeVar("_T")


@dataclass
class Context(Task):
    """Everything that a handler may look at. Nothing here does I/O."""

    for_others: InitVar[bool] = False  # only analysed, for a file that imports this one
    code: TargetCode = field(init=False)
    file: ThisFile = field(init=False)
    values: KnownValues = field(init=False)
    training: TrainingFacts = field(init=False)
    distributed: DistributedFacts = field(init=False)
    _found: dict[object, object] = field(default_factory=dict)

    def __post_init__(self, for_others: bool) -> None:
        self.code = TargetCode(self)
        self.file = ThisFile(self, for_others)
        self.values = KnownValues(self)
        self.training = TrainingFacts(self)
        self.distributed = DistributedFacts(self)
        alone = self.options.shard != "replicated"
        write_for(self, in_one_process(self.target) if alone else self.target)

    def once(self, find: Callable[[Context], _T]) -> _T:
        """What a rule's function finds in the whole file, looked for once."""
        if find not in self._found:
            self._found[find] = find(self)
        return cast(_T, self._found[find])


def write_for(context: Context, target: Target) -> None:
    """Let a context's rules write for `target`."""
    context.target = target
    context.framework = find_framework(target.framework)
    spelled, requires = context.code.module(context.framework.module)
    texts = {context.framework.module: spelled}
    if target.api.device_names:  # to know the file's quotes takes a look at all its strings
        texts["cpu"] = context.code.quoted("cpu")
    context.api = filled(target.api, texts, requires)
