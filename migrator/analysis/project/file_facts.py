"""File facts: what other files need to know of one file, from its own content alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from functools import cached_property
from typing import Protocol

from migrator.analysis import foreign_code
from migrator.analysis.construct_names import STAR, imported_words
from migrator.analysis.devices import device_strings, given, other_accelerators
from migrator.analysis.devices.indices import compares_indices
from migrator.analysis.devices.machine_conditions import MAY_ASK
from migrator.analysis.devices.patches import patches
from migrator.analysis.optional_libraries import is_optional
from migrator.analysis.prefilter import Tokens, without_prose, words_of
from migrator.analysis.project import composed_settings, started_scripts
from migrator.analysis.project.composed_settings import Composed
from migrator.analysis.project.import_scan import imported_modules
from migrator.analysis.project.imports_by_name import ByName, imported_by_name
from migrator.analysis.project.name_index import NameIndex, name_index
from migrator.analysis.ranks.file_ranks import Ranks
from migrator.analysis.ranks.vocabulary import STARTS
from migrator.analysis.saved_objects import saved_keys
from migrator.analysis.syntax.command_line import is_option
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.scripts import is_main_guard
from migrator.analysis.training.find_kv_caches import kv_passes
from migrator.analysis.training.find_optimizer_steps import speaks_of_training, stops_gradients
from migrator.analysis.values.flow import Flow
from migrator.construct import Construct
from migrator.formats.python_source import decode
from migrator.targets import RUNTIME

# Cheap tests: a file without these words doesn't have to be parsed for the answer no.
_DISTRIBUTES = re.compile("|".join({name.rpartition(".")[2] for name in STARTS}).encode())
_PROCESSES = Tokens(
    rb"distributed(?!\s+(?:under|on)\b)",  # not in a licence
    b"spawn", rb"rank\b", rb"gpus?\b", b"device_count", b"world_size", rb"n_?procs",
    b"multiprocessing", b"horovod", rb"num_?devices", b"slurm_", b"comm_world", b"comm_hook",
    b"submitit", b"pmi_", *(name.lower().encode() for name in foreign_code.LIBRARIES),
    ignore_case=True,
)  # fmt: skip
# What each rank has a share of also matters if one process does the work of all.
_SHARES = Tokens(
    rb"batch_?size", rb"\bbsz?\b", rb"sampler(?:_cls)?\b", rb"\.backward\b",
    rb"reduction\s*=\s*[\"']sum", b"size_average", ignore_case=True,
)  # fmt: skip
# not for `getLogger(__name__)` and `function.__name__`
_MAY_GUARD = re.compile(rb"(?<![.\w])(?<!\w\()__name__|\bif\b[^\n]*__name__")
_NAMES_MODULES = re.compile(
    rb"import_module|__import__|spec_from_file_location|load_source|SourceFileLoader|\bexec\("
)
_INFERS = re.compile(rb"no_grad|inference_mode")
_WORD = re.compile(r"[^\W\d]\w*")
_SAVES = re.compile(rb"save\w*\(", re.IGNORECASE), re.compile(rb"\b(?:args|opts?)\b", re.IGNORECASE)
_OPTIONS = re.compile(rb"add_argument|option")
_ATTENDS = re.compile(rb"softmax|scaled_dot_product")
_PATCHES = re.compile(rb"setattr\(|(?:cuda|accelerator|Tensor|Module)\.\w+[ \t]*=(?!=)")
_TRAINS = re.compile(rb"backward|optim|autograd|train|Trainer|DistributedSampler|func")


class DeviceConstructs(Protocol):
    """The constructs of a framework that concern devices; `frameworks.torch` has PyTorch's."""

    def may_be_in(self, source: bytes) -> bool:
        """A cheap test: False if a file has none."""

    def find(self, names: Names, flow: Flow) -> Iterator[Construct]:
        """Those of one file."""

    def uses_device(self, construct: Construct) -> bool:
        """Whether one makes its program one that runs on a device."""


class FileFacts:
    """What other files need to know of one file, without the facts of its imports."""

    def __init__(self, names: Names, devices: DeviceConstructs) -> None:
        self.names, self._devices = names, devices
        self.flow = Flow(names)
        self.ranks = Ranks(names, self.flow)

    def _constructs(self) -> Iterator[Construct]:
        """Its constructs that concern devices."""
        return self._devices.find(self.names, self.flow)

    @cached_property
    def needs_cuda(self) -> bool:
        """Whether it can't be imported without a CUDA library."""
        return any(
            found.kind == "library" and not is_optional(self.names, found.node, found.key)
            for found in self._constructs()
        )

    @cached_property
    def uses_device(self) -> bool:
        """Whether it uses a device, before a migration or after one."""
        return next(self._device_uses(), None) is not None

    @cached_property
    def device_uses(self) -> Sequence[ast.AST]:
        """Where it uses a device."""
        return [*self._device_uses()]

    def _device_uses(self) -> Iterator[ast.AST]:
        with suppress(RecursionError):
            uses = self._devices.uses_device
            yield from (found.node for found in self._constructs() if uses(found))
            yield from device_strings.migrated_uses(self.names, self.flow)


class File:
    """One file as read: parsed on demand, and only once."""

    def __init__(self, content: bytes, devices: DeviceConstructs) -> None:
        self.content, self._devices = content, devices
        self._has: dict[Tokens, bool] = {}
        self._may_define: dict[str, bool] = {}

    @cached_property
    def parsed(self) -> other_accelerators.Parsed | None:
        """The tree; None if it isn't Python."""
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return other_accelerators.parse(decode(self.content).text, self.content)
        return None

    @property
    def tree(self) -> ast.Module | None:
        return self.parsed.tree if self.parsed is not None else None

    @cached_property
    def facts(self) -> FileFacts | None:
        with suppress(RecursionError):
            if self.tree is not None:
                return FileFacts(Names(self.tree), self._devices)
        return None

    @cached_property
    def words(self) -> Set[str]:
        """All names that may occur in it."""
        return frozenset(_WORD.findall(self.content.decode("utf-8", "replace")))

    def has(self, tokens: Tokens) -> bool:
        """Whether one of these words occurs in it."""
        if tokens not in self._has:
            self._has[tokens] = tokens.are_in(self.content)
        return self._has[tokens]

    @cached_property
    def _code(self) -> tuple[bytes, bytes]:
        """Its content without comments and docstrings, and the words of that."""
        code = without_prose(self.content)
        return code, words_of(code)

    def _says(self, tokens: Tokens) -> bool:
        """Whether its code has one of these words."""
        return tokens.are_in(self.content) and tokens.are_in(*self._code)

    @cached_property
    def name_index(self) -> NameIndex | None:
        return name_index(self.tree) if self.tree is not None else None

    @cached_property
    def options(self) -> Set[str]:
        """The command-line options that it declares: `--lr`."""
        calls = self.facts.names.order if _OPTIONS.search(self.content) and self.facts else ()
        declared = (call for call in calls if isinstance(call, ast.Call) and is_option(call))
        given = (arg for call in declared for arg in call.args if isinstance(arg, ast.Constant))
        return {str(arg.value) for arg in given if str(arg.value).startswith("--")}

    @cached_property
    def saved_keys(self) -> Set[str]:
        """The keys of the checkpoints that it saves with the command line's arguments."""
        saves = all(each.search(self.content) for each in _SAVES)
        return saved_keys(self.facts.names) if saves and self.facts else frozenset()

    @cached_property
    def libraries(self) -> frozenset[str]:
        """The packages that it imports from."""
        return frozenset(module.partition(".")[0] for module in self.modules)

    @cached_property
    def modules(self) -> Sequence[str]:
        """The modules that it imports: `pkg`, `.sub`, and `pkg.mod` for `from pkg import mod`."""
        found = imported_modules(self.content)
        # files written by a migration aren't part of the project
        return [module for module in found if module.partition(".")[0] != RUNTIME]

    @cached_property
    def by_name(self) -> ByName:
        """What it imports by a string."""
        if _NAMES_MODULES.search(self.content) is None or self.tree is None:
            return ByName()
        return imported_by_name(self.tree)

    @cached_property
    def _imported(self) -> Set[bytes]:
        """All words of its imports."""
        return imported_words(self.content)

    def may_lend(self, name: str) -> bool:
        """A cheap test: False if no import of this file brings a name, for others to take."""
        return self._has_star or name.encode() in self._imported

    @cached_property
    def _has_star(self) -> bool:
        return STAR.search(self.content) is not None

    def may_define(self, name: str) -> bool:
        """A cheap test: False if it has no class with such a method or property."""
        if name not in self._may_define:
            self._may_define[name] = b"class" in self.content and name.encode() in self.content
        return self._may_define[name]

    @property
    def is_of_package(self) -> bool:
        """Whether it imports from its own package: `from . import x`."""
        return any(module.startswith(".") for module in self.modules)

    @cached_property
    def may_have_main_guard(self) -> bool:
        """A cheap test for the following."""
        return b"__name__" in self.content and _MAY_GUARD.search(self.content) is not None

    @cached_property
    def has_main_guard(self) -> bool:
        if not self.may_have_main_guard or self.tree is None:
            return False
        return any(map(is_main_guard, self.tree.body))

    @cached_property
    def infers(self) -> bool:
        """Whether it switches gradients off."""
        if not _INFERS.search(self.content) or self.facts is None:
            return False
        return stops_gradients(self.facts.names)

    @cached_property
    def writes_caches(self) -> bool:
        """Whether it has caches of keys and values that can be written at a tensor index."""
        if not _ATTENDS.search(self.content) or self.facts is None:
            return False
        return bool(kv_passes(self.facts.names, self.facts.names.tree))

    @cached_property
    def may_train(self) -> bool:
        """Whether it mentions training."""
        if not _TRAINS.search(self.content):
            return False
        return self.tree is not None and speaks_of_training(self.tree)

    @cached_property
    def taken_devices(self) -> Sequence[ast.expr]:
        """Where it asks its settings for a device."""
        if given.MAY_TAKE.search(self.content) is None or self.facts is None:
            return ()
        return [*given.taken(self.facts.names, self.facts.flow)]

    @cached_property
    def device_keys(self) -> Set[str]:
        """The settings that it takes for devices, and that aren't named so: `cfg.where`."""
        if not self.taken_devices or self.facts is None:
            return frozenset()
        return frozenset(given.other_key(self.facts.flow, e) for e in self.taken_devices) - {""}

    @cached_property
    def started(self) -> Sequence[tuple[str, bool]]:
        """The scripts, or modules (True), that it starts."""
        if started_scripts.MAY_START.search(self.content) is None or self.facts is None:
            return ()
        return [*dict.fromkeys(started_scripts.started(self.facts.names))]

    @cached_property
    def settings(self) -> Sequence[str]:
        """The settings that it names: `configs/train.yaml`."""
        if started_scripts.MAY_NAME_SETTINGS.search(self.content) is None or self.facts is None:
            return ()
        return started_scripts.settings_named(self.facts.names)

    @cached_property
    def composed(self) -> Composed:
        """The folders of settings that Hydra composes for it."""
        if composed_settings.MAY_COMPOSE.search(self.content) is None or self.facts is None:
            return Composed()
        return composed_settings.composed(self.facts.names)

    @cached_property
    def distributes(self) -> bool:
        """True for a file that starts processes for several devices."""
        if not _DISTRIBUTES.search(self.content) or self.facts is None:
            return False
        return self.facts.ranks.start is not None

    @cached_property
    def speaks_of_processes(self) -> bool:
        """A cheap test: False for a file that can't concern the processes of ranks."""
        return self._says(_PROCESSES)

    @cached_property
    def speaks_of_ranks(self) -> bool:
        """A cheap test: False for a file that can't concern ranks."""
        return self.speaks_of_processes or self._says(_SHARES)

    @cached_property
    def takes_part(self) -> bool:
        """True for a file that concerns ranks."""
        if not self.speaks_of_processes or self.facts is None:
            return False
        return self.facts.ranks.take_part or self.facts.ranks.ask_other_launcher

    @cached_property
    def compares_indices(self) -> bool:
        """True for a file that compares the device of a tensor with one that may have an index."""
        if b".device" not in self.content or self.facts is None:
            return False
        return compares_indices(self.facts.names, self.facts.flow)

    @cached_property
    def asks_machine(self) -> bool:
        """A cheap test: False for a file without conditions that a TPU machine decides."""
        return MAY_ASK.search(self.content) is not None

    @cached_property
    def patches(self) -> dict[str, ast.expr]:
        """The functions of torch.cuda that it replaces for good, with the node that does it."""
        if not _PATCHES.search(self.content) or self.facts is None:
            return {}
        return patches(self.facts.names, self.facts.flow, lasting=True)

    @cached_property
    def makes_copies(self) -> bool:
        """True for a file that uses nn.DataParallel, or its migrated form."""
        return (
            b"DataParallel" in self.content and self.facts is not None and self.facts.ranks.copies
        )

    @cached_property
    def uses_device(self) -> bool:
        """True for a file with GPU code, or its migrated form."""
        migrated = foreign_code.MIGRATED.search(self.content)
        if not (self._devices.may_be_in(self.content) or migrated):
            return False
        return self.facts is not None and self.facts.uses_device
