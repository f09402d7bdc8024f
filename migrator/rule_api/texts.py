# ruff: noqa: F401  what it imports is for rules
"""Text that is no Python: commands, strings, settings."""

from migrator.analysis.gpu_text_patterns import (
    ATTENTION_OPTION,
    ATTENTION_SETTING,
    DEVICE_OPTION,
    DEVICE_SETTING,
    FLASH_SETTING,
    HIDES,
    LISTED_PACKAGE,
    NAMED_CLASS,
    NOT_HALF,
    OVERRIDE,
    PLACE_SETTING,
    hides_gpus,
    mentions_variables_alone,
    puts_folders_on_a_path,
    speaks_of_gpus,
    without_comment,
)
from migrator.formats.embedded_text import CONSTRAINT, is_embedded
from migrator.formats.shell import ShellWord, quoted, words
