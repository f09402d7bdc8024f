"""Mixed precision, optimizers, and what else a step of training needs."""
