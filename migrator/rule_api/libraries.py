# ruff: noqa: F401  what it imports is for rules
"""Libraries: which modules they have, which of them need a GPU, what their arguments ask for."""

from migrator.analysis.cuda_libraries import MODULES, mentioned, of_package
from migrator.analysis.import_verdicts import Verdict, known_modules, verdict_of
from migrator.analysis.optional_libraries import is_optional
from migrator.frameworks.by_name import imported_name
from migrator.frameworks.torch.find_lightning_settings import GPUS, HALF
from migrator.frameworks.torch.trainer_arguments import says_gpu
