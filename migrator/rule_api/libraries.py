# ruff: noqa: F401  what it imports is for rules
"""Libraries: which modules they have, which of them need a GPU, what their arguments ask for."""

from migrator.analysis.import_verdicts import Verdict, verdict_of
from migrator.analysis.libraries import MODULES, mentioned, of_package
from migrator.frameworks.by_name import imported_name
from migrator.frameworks.torch.lightning import GPUS, HALF
from migrator.frameworks.torch.trainer_arguments import says_gpu
