"""Steps: the statements that train, as a function of their own, for targets that compile a step.

A step is a run of statements in one block that ends with an optimizer's step. What is nothing but
computation moves; what brings data in front of it, and what reads a value behind it, stays where it
is, in its order. Where it cannot be shown that the numbers stay the same, nothing is moved, and
the reason is given.
"""

from migrator.steps.computation import Computation
from migrator.steps.find import Steps
from migrator.steps.step import NotMovable, Settled, Step

__all__ = ["Computation", "NotMovable", "Settled", "Step", "Steps"]
