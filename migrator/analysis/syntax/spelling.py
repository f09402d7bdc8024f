"""How a file spells what new code of it names."""

from migrator.analysis.syntax.names import Names


def of_torch(names: Names, name: str) -> tuple[str, tuple[str, ...]]:
    """A name of torch as this file spells it, and the imports that it needs.

    Its longest module that is imported counts.
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
