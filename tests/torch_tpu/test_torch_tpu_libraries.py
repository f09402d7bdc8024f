"""Operators of torchvision, and what the runtime has of libraries for CUDA: the same tests as for
the other targets."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from test_box_libraries import *  # noqa: F403
from test_boxes import *  # noqa: F403
from test_fused_attention import *  # noqa: F403
from test_library_functions import *  # noqa: F403
from test_point_functions import *  # noqa: F403
