"""When a program says that it compiles again and again, and what helps."""

MANY = 6  # calls or steps that compiled something, after which it is said
SHOWN = 3  # lines of the program
CURE = (
    "shapes or Python numbers that change compile again: pad to one shape, `torch.where` in place "
    "of `x[mask]`, drop_last=True in a loader, a tensor in place of a number"
)
WITHOUT_READS = (
    "torch.where in place of a condition, a fill value in place of a selection, a check after the "
    "step"
)
