# ruff: noqa: F401  what it imports is for rules
"""What every rule needs: its own parts, decisions, edits, and the target's words.

Rules import from this package alone; what they ask of code is in its modules, by subject.
"""

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.values.value_kinds import Kind
from migrator.codes import UPGRADES, Family
from migrator.construct import Construct
from migrator.decision import Obstacle
from migrator.diagnostics import Effort, Safety, first_of, lines_of
from migrator.edits import (
    AddBranch,
    AddParameter,
    Delete,
    Edit,
    EditCall,
    EditImport,
    Insert,
    Replace,
    ReplaceStatement,
    SetString,
    Spread,
    Unwrap,
    Wrap,
)
from migrator.rule import Context, Decision, Example, Keep, Report, Rewrite, Rule, advice
from migrator.targets import MIRRORED, RUNTIME, Devices, Snippet, TargetApi, filled, targets
from migrator.targets.signatures import Signature
from migrator.targets.wheel import NAME as RUNTIME_PACKAGE
