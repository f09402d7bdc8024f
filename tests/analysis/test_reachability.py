"""Reach: what a program gets to by the names that it says, and by the defaults of its options."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from migrator.analysis.project.file_facts import File
from migrator.analysis.project.looked_up_files import LookedUpPlaces
from migrator.analysis.project.reachability import Reach
from migrator.frameworks.torch.device_constructs import DEVICE_CONSTRUCTS


def reaches(**files: str) -> bool:
    """Whether `here` is reached, in one of some files by their names."""
    paths = {
        Path(f"/project/{name}.py"): File(text.encode(), DEVICE_CONSTRUCTS)
        for name, text in files.items()
    }
    program = Reach(
        list(paths), LookedUpPlaces(paths.__getitem__), lambda path: False,
        lambda path, name: name.partition(".")[0] in files,
    )  # fmt: skip
    ((path, node),) = (
        (path, node)
        for path, file in paths.items()
        for node in ast.walk(file.tree or ast.Module([], []))
        if isinstance(node, ast.Name) and node.id == "here"
    )
    return program.reaches(path, node)


FUNCTION = "def work():\n    here\n"
METHOD = "class Tool(Base):\n    def work(self):\n        here\n"


@pytest.mark.parametrize(
    "main",
    [
        "import lib\nlib.work()",
        "from lib import work\nwork()",
        "from lib import work as other\n\ndef main():\n    other()\n\nmain()",
        "from lib import *\nrun(work)",
        "import lib\ngetattr(lib, 'work')()",
        "name = 'work'",
        "target = 'lib:work'",
        "import lib\nstart(lib)",
        "import lib as tools\nvars(tools)",
        "class A:\n    def run(self):\n        work()\n\nA().run()",
        "def f(call=work):\n    pass\n\nf()",
        "from lib import work\n__all__ = {'Work': work}\n__all__[cfg.NAME]()",
        "getattr(lib, 'wo' + name)()",
        "getattr(lib, f'wo{name}')()",
        "getattr(lib, 'wo%s' % name)()",
        "getattr(lib, 'wo{}'.format(name))()",
    ],
)
def test_a_name_reaches_a_function(main: str) -> None:
    assert reaches(lib=FUNCTION, main=main)


@pytest.mark.parametrize(
    "main",
    [
        "import lib",
        "from lib import work",
        "from lib import work as other",
        "from lib import *\n__all__ = ['work']",
        "def never():\n    work()",
        "def one():\n    two()\n\ndef two():\n    one()\n    work()",
        "class Never:\n    def run(self):\n        work()",
        "class A:\n    def never(self):\n        work()\n\nA()",
        '"""\nwork\n"""',
        "print('the work is done')",
        "import lib\nhasattr(lib, 'name')",
        "import lib\ngetattr(lib.x, 'run_' + name)()",
        "import lib\n\ndef never(name):\n    getattr(lib.x, 'wo' + name)()",
        "if x.__name__ == 'work': y()",
        "import others\nothers.work()",
        "from others import work\nwork()",
        "from torch import lib\nstart(lib)",
    ],
)
def test_what_is_not_named_is_not_reached(main: str) -> None:
    assert not reaches(lib=FUNCTION, main=main)


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        (f"@register\n{FUNCTION}", True),  # who registers may call
        (f"@tools.task('work')\n{FUNCTION}", True),
        (f"import torch\n@torch.no_grad()\n{FUNCTION}", False),
        (f"def checked(f):\n    return wrap(f)\n\n@checked\n{FUNCTION}", False),
        (f"def kept(f):\n    TASKS.append(f)\n    return f\n\n@kept\n{FUNCTION}", True),
        (f"{FUNCTION}\nglobals()['wo' + 'rk']()", True),
        (f"{FUNCTION}\nimport sys\nsys.modules[__name__]", True),
        ("here", True),
        ("if __name__ == '__main__':\n    here", True),
    ],
)
def test_decorators_and_modules_that_name_all_of_themselves(library: str, expected: bool) -> None:
    assert reaches(lib=library) is expected


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        ("Tool().work()", True),
        ("Tool()", False),
        ("other.work()", False),  # nothing makes a Tool
        ("Tool()\nother.work()", True),
        ("Tool()\nrun('work')", True),
        ("class More(Tool):\n    pass\n\nMore().work()", True),
        ("isinstance(x, (list, Tool))\nx.work()", False),
        ("make(Tool)\nx.work()", True),
        ("Kind = lib.Tool\nisinstance(x, Kind)\nx.work()", False),
        ("Kind = lib.Tool\nKind()\nx.work()", True),
    ],
)
def test_a_method_is_reached_with_its_class(main: str, expected: bool) -> None:
    library = f"class Base:\n    pass\n\n{METHOD}"
    assert reaches(lib=library, main=main) is expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("getattr(self, name)()", True),
        ("getattr(self, cfg.NAME, None)()", True),
        ("getattr(self, 'do_' + name)()", False),
        ("getattr(other, name)()", False),
        ("getattr(self, 'other')()", False),
    ],
)
def test_a_class_computes_the_names_of_its_methods(call: str, expected: bool) -> None:
    tool = f"class Tool:\n    def __init__(self, name, cfg, other):\n        {call}\n"
    assert reaches(main=f"{tool}\n    def work(self):\n        here\n\nTool()") is expected


@pytest.mark.parametrize(
    ("base", "method", "expected"),
    [
        ("Unknown", "work", True),  # who may call whatever it likes
        ("nn.Module", "work", False),
        ("nn.Module", "forward", True),
        ("object", "work", False),
        ("object", "__call__", True),
    ],
)
def test_a_base_of_another_library_calls_methods(base: str, method: str, expected: bool) -> None:
    library = METHOD.replace("Base", base).replace("work", method)
    assert reaches(lib=library, main="Tool()") is expected


def test_a_class_that_keeps_its_subclasses() -> None:
    keeps = "class Base:\n    def __init_subclass__(cls):\n        ALL.append(cls)\n\n"
    assert reaches(lib=f"{keeps}class Tool(Base):\n    here\n", main="import lib")
    assert not reaches(
        lib="class Base:\n    pass\n\nclass Tool(Base):\n    def __init__(self):\n        here\n",
        main="import lib",
    )


def test_tests_are_called_by_pytest() -> None:
    assert reaches(test_lib="def test_work():\n    here\n")
    assert not reaches(lib="def test_work():\n    here\n")


OPTION = "parser.add_argument('--deep', action='store_true')\nargs = parser.parse_args()\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"{OPTION}if args.deep:\n    here", False),
        (f"{OPTION}if not args.deep:\n    here", True),
        (f"{OPTION}if args.deep:\n    pass\nelse:\n    here", True),
        (f"{OPTION}if other and args.deep:\n    here", False),
        (f"{OPTION}if other or args.deep:\n    here", True),
        (f"{OPTION}x = here if args.deep else 1", False),
        (f"{OPTION}x = args.deep and here", False),
        (f"{OPTION}if getattr(args, 'deep', False):\n    here", False),
        (f"{OPTION}deep = args.deep\nif deep:\n    here", False),
        (f"{OPTION}def main():\n    if not args.deep:\n        return\n    here\n\nmain()", False),
        (f"{OPTION}args.deep = True\nif args.deep:\n    here", True),
        (f"{OPTION}args.deep = ask()\nif args.deep:\n    here", True),
        (f"{OPTION}if args.deep:\n    args.deep = True\nif args.deep:\n    here", False),
        (f"{OPTION}setattr(args, 'deep', True)\nif args.deep:\n    here", True),
        (f"{OPTION}update(args, {{'deep': 1}})\nif args.deep:\n    here", True),
        (f"{OPTION}args = Namespace(deep=True)\nif args.deep:\n    here", True),
        ("if args.deep:\n    here", True),  # nobody knows it
        ("p.add_argument('--deep', default=True)\nif args.deep:\n    here", True),
        ("p.add_argument('--deep', action='store_false')\nif args.deep:\n    here", True),
        ("p.add_argument('--deep', required=True)\nif args.deep:\n    here", True),
        ("p.add_argument('deep')\nif args.deep:\n    here", True),
        ("p.add_argument('--too-deep', dest='deep')\nif args.deep:\n    here", False),
        ("p.add_argument('--ranks', type=int, default=1)\nif args.ranks > 1:\n    here", False),
        ("p.add_argument('--ranks', type=int, default='2')\nif args.ranks > 1:\n    here", True),
        ("p.add_argument('--how', default='ddp')\nif args.how == 'fsdp':\n    here", False),
        ("p.add_argument('--how', default='ddp')\nif args.how != 'fsdp':\n    here", True),
        ("DEEP = False\nif DEEP:\n    here", False),
        ("DEEP = False\nDEEP = True\nif DEEP:\n    here", True),
        ("for deep in (1,):\n    if deep:\n        here", True),
    ],
)
def test_a_branch_that_an_option_selects(source: str, expected: bool) -> None:
    assert reaches(main=source) is expected


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ("f(1)", False),
        ("f(1, deep=False)", False),
        ("f(1, False)\ng(f(2))", False),
        ("f(1, deep=True)", True),
        ("f(1, True)", True),
        ("f(*given)", True),
        ("f(1, **given)", False),  # nothing has such a key
        ("given = {'deep': 1}\nf(1, **given)", True),
        ("f(1, **dict(deep=True))", True),
        ("run(f)", True),
        ("f(1)\ndef never():\n    f(1, True)", False),
    ],
)
def test_a_parameter_has_its_default_and_what_is_passed(calls: str, expected: bool) -> None:
    library = "def f(x, deep=False):\n    if deep:\n        here\n"
    assert reaches(lib=library, main=calls) is expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("Tool()", False),
        ("Tool(deep=True)", True),
        ("class More(Tool):\n    def __init__(self):\n        super().__init__(True)\n\nMore()",
         True),
        ("class More(Tool):\n    def __init__(self):\n        super().__init__(False)\n\nMore()",
         False),
        ("make = Tool\nmake(True)", True),
        ("tool = Tool()\ntool.deep = True", True),
    ],
)  # fmt: skip
def test_what_an_object_is_made_with(made: str, expected: bool) -> None:
    library = (
        "class Tool:\n    def __init__(self, deep=False):\n        self.deep = deep\n"
        "    def __call__(self):\n        if self.deep:\n            here\n"
    )
    assert reaches(lib=library, main=f"from lib import Tool\n{made}\n") is expected


def test_what_is_set_where_nothing_gets() -> None:
    """One branch sets what another one asks for, and neither is reached by itself."""
    library = (
        "class Tool:\n    def __init__(self):\n        self.deep = False\n"
        "    def dig(self):\n        self.deep = True\n"
        "    def save(self):\n        if self.deep:\n            here\n"
    )
    assert not reaches(
        lib=library, main=f"{OPTION}t = Tool()\nt.save()\nif args.deep:\n    t.dig()"
    )
    assert reaches(lib=library, main="t = Tool()\nt.save()\nt.dig()")
