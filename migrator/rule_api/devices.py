# ruff: noqa: F401  what it imports is for rules
"""Which code names, chooses and asks for devices."""

from migrator.analysis.devices.attributes import names_attribute
from migrator.analysis.devices.availability_checks import Questions
from migrator.analysis.devices.choices import (
    AVAILABLE,
    are_places_by_name,
    availability_choice,
    device_call,
    method_caller,
    names_device,
    places_of_load,
    whole_string,
    with_older_torch,
)
from migrator.analysis.devices.current_device import Role, roles
from migrator.analysis.devices.device_keys import is_written_out, table_of
from migrator.analysis.devices.device_selection import ladder, question
from migrator.analysis.devices.device_strings import (
    ONLY_SHOWN,
    is_migrated,
    not_a_device,
    only_prints,
)
from migrator.analysis.devices.implementation_names import (
    asks_for_implementation,
    implementation_beside,
)
from migrator.analysis.devices.indices import (
    INDEXED,
    compared_with,
    is_of_gpus,
    is_read,
    names_index,
)
from migrator.analysis.devices.machine_conditions import never_runs, tpu_answer
from migrator.analysis.devices.option_values import option_of
from migrator.analysis.devices.other_accelerators import LIBRARIES, OTHERS, asked_for, is_guarded
from migrator.analysis.devices.own_moves import does_as_torch, own_move
from migrator.frameworks.torch.strings import VISIBLE
from migrator.frameworks.torch.torch_tokens import uses_device
