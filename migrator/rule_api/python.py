# ruff: noqa: F401  what it imports is for rules
"""What Python code says, whatever library it uses: nodes, names, values, places for statements."""

from migrator.analysis.syntax.annotations import is_only_named
from migrator.analysis.syntax.canonical import canonical
from migrator.analysis.syntax.command_line import is_option
from migrator.analysis.syntax.exports import exported, spoken
from migrator.analysis.syntax.literals import leaves, values
from migrator.analysis.syntax.nodes import parameters, said_name, taken_by
from migrator.analysis.syntax.scopes import FUNCTIONS
from migrator.analysis.syntax.scripts import is_script
from migrator.analysis.syntax.torch_spelling import of_torch
from migrator.analysis.values.conditional_calls import is_no_more_than, none_around
from migrator.analysis.values.device_tensors import own_nodes
from migrator.analysis.values.evidence import Loader
from migrator.analysis.values.statement_order import StatementOrder
from migrator.analysis.values.value_kinds import ANY_DEVICE, CUDA_STRING, TENSOR_TYPE_DTYPES
from migrator.pipeline.first_use import above_first_use
from migrator.pipeline.imports import holds_import, last_import
from migrator.pipeline.own_module import own_module
