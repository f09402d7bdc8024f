"""What torch_tpu draws: the tests of the other runtimes' draws, in its environment."""

from tests.runtime.test_distributions import *  # noqa: F403
from tests.runtime.test_draws import *  # noqa: F403
