"""The process of a program: how it ends, the processes it starts, and files elsewhere."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing.process
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recorded_ranks import Started

OUT_OF_MEMORY = "out of memory"
_WRITING = os.O_WRONLY | os.O_RDWR
_CACHES = ("TORCH_HOME", "XDG_CACHE_HOME", "HF_HOME", "JAX_COMPILATION_CACHE_DIR")
_MOST = 5  # number of files that are named


class Stopped(BaseException):
    """SIGTERM: the time limit was reached."""


class Ended(BaseException):
    """`os._exit`: the program ends here, without any cleanup."""


class Finished(BaseException):
    """Nothing after this is needed."""


_asked: list[str] = []  # "stopped" after a request to stop


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """SIGTERM and `os._exit` end the program only after the recording has been written."""
    owner, leave = os.getpid(), os._exit

    def stop(_number: int, _frame: object) -> None:
        _asked.append("stopped")
        raise Stopped

    def end(status: int) -> None:
        if os.getpid() != owner:
            leave(status)
        raise Ended(status)

    signal.signal(signal.SIGTERM, stop)
    os._exit = end  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = leave
        if os.getpid() == owner:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def outcome(program: Callable[[], object], root: Path) -> tuple[str, int]:
    """Run a program: the reason if it ended early, in one line ("" otherwise), and its exit
    code."""
    try:
        with ending():
            program()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1 if error.code else 0
        if error.code and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        return (f"exit code {code}" if code else ""), code
    except Finished:
        pass
    except BaseException as error:
        return why(error, root)
    return "", 0


def why(error: BaseException, root: Path) -> tuple[str, int]:
    """Why a program ended, in one line, with its own line that failed; and its exit code."""
    if _asked or isinstance(error, Stopped):
        return "stopped", 124
    if isinstance(error, Ended):
        status = int(error.args[0])
        return f"exit code {status}" if status else "", status
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if root in Path(f.filename).parents]
    if own:  # without the recorder's frames
        traceback.print_exception(error, limit=frames.index(own[0]) - len(frames))
    else:
        sys.stderr.writelines(traceback.format_exception_only(error))
    place = ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{Path(error.filename).name}:{error.lineno}: "
    elif own:
        place = f"{Path(own[-1].filename).relative_to(root).as_posix()}:{own[-1].lineno}: "
    text = str(error).strip().splitlines() or [""]
    if isinstance(error, EOFError) and own and "input" in (own[-1].line or ""):
        return f"{place}it asks for input, and there is none", 1
    if isinstance(error, MemoryError) or "t allocate memory" in text[0]:
        return f"{place}{OUT_OF_MEMORY}", 1
    return f"{place}{type(error).__name__}{': ' if text[0] else ''}{text[0][:300]}", 1


def limit_memory(limit: int | None) -> None:
    """Limit the memory of this process to so many bytes, if the system supports it."""
    if limit is None:
        return
    import resource

    # Mapped files such as libraries count in RLIMIT_AS.
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (limit, hard))


def there(root: Path) -> dict[Path, tuple[int, int]]:
    """Size and time of every file below a folder."""
    found = {}
    for path in root.rglob("*"):
        if path.is_file() and not {"__pycache__", "tpu_runtime", ".git"} & set(path.parts):
            stat = path.stat()
            found[path] = (stat.st_size, stat.st_mtime_ns)
    return found


class Children:
    """Processes that a program starts. Workers of data loaders are ignored, others are counted.
    With `ranks`, each of these is recorded."""

    def __init__(self, leave: Callable[[], None], ranks: Started | None = None) -> None:
        self.started = 0
        self._within = False
        start = multiprocessing.process.BaseProcess.start
        children = self

        def begin(process: Any) -> None:
            is_worker = getattr(process._target, "__name__", "") == "_worker_loop"
            children.started += not is_worker
            children._within = True
            try:
                with contextlib.nullcontext() if is_worker or ranks is None else ranks.one():
                    start(process)
            finally:
                children._within = False

        def left() -> None:
            leave()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

        multiprocessing.process.BaseProcess.start = begin  # type: ignore[method-assign]
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._forks, after_in_child=left)

    def _forks(self) -> None:
        self.started += not self._within


class Outside:
    """Files that a program writes outside of some folders, except temporary files and caches."""

    def __init__(self, inside: Sequence[Path]) -> None:
        self.written: list[str] = []
        caches = [tempfile.gettempdir(), sys.prefix, sys.base_prefix, "/dev", "/proc", "/sys"]
        caches += [str(Path.home() / ".cache")]
        caches += [os.environ.get(name, "/dev") for name in _CACHES]
        self.inside = tuple(os.path.realpath(f) + os.sep for f in (*inside, *caches))
        sys.addaudithook(self._audit)
        torch = sys.modules.get("torch")
        if torch is None:  # a program of another framework
            return
        save = torch.save

        @functools.wraps(save)
        def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(f, (str, os.PathLike)):  # written by C++, which is not audited
                self._seen(f)
            save(obj, f, *args, **kwargs)

        torch.save = saved

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and args[2] is not None and args[2] & _WRITING:
            self._seen(args[0])

    def _seen(self, name: Any) -> None:
        if isinstance(name, int) or len(self.written) >= _MOST:
            return
        path = os.path.realpath(os.fsdecode(name))
        known = (
            (path + os.sep).startswith(self.inside) or "__pycache__" in path or path in self.written
        )
        if not known:
            self.written.append(path)


def redirect(original: Path, root: Path) -> None:
    """Make Python search modules in the copy instead of the original folder."""
    for number, entry in enumerate(sys.path):
        path = Path(entry)
        if path == original or _lies_in(original, root, path):
            sys.path[number] = str(root / path.relative_to(original))


def _lies_in(original: Path, root: Path, path: Path) -> bool:
    """Whether a path is in the folder, but not in the copy, which may be inside of it."""
    return original in path.parents and root not in (path, *path.parents)


def imported_from(original: Path, root: Path) -> list[str]:
    """Modules imported from the original of the copied folder."""
    if original == root:
        return []
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # environments may be inside of it, too
        if not isinstance(file, str) or "site-packages" in file:
            continue
        if _lies_in(original, root, Path(file)):
            found.append(name)
    return found
