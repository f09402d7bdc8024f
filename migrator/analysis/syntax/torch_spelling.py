"""How new code in a file should spell names."""

from migrator.analysis.syntax.names import Names


def of_torch(names: Names, name: str) -> tuple[str, tuple[str, ...]]:
    """A torch name as this file spells it, and the imports that it needs.

    The longest imported module of its path is used.
    """
    head, bracket, rest = name.partition("(")
    path = head.split(".")
    for end in range(len(path) - 1, 0, -1):
        spelled = names.spelled(".".join(path[:end]))
        if spelled is not None:
            return ".".join([spelled, *path[end:]]) + bracket + rest, ()
    if path[0] == "torch" and path[1] in ("device", "cuda", "autocast", "save"):
        return name, ("torch",)
    return name, (".".join(path[:-1]),)
