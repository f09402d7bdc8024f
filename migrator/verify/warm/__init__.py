"""An interpreter that has imported what takes seconds, and forks, for runs that each import that.

What it stands for is not changed: see fork_server.py.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path

# Drivers of GPUs: a program that has looked for one must not be forked.
_GPUS = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
_PATIENCE = 5.0  # seconds that the server has to end
_FILES = Path("/proc/self/fd")  # how it is known which files to hand over


@contextmanager
def warm(
    python: Path,
    modules: Sequence[str],
    environment: Mapping[str, str],
    programs_see_it: bool = False,
    forked_from: Path | None = None,
) -> Iterator[Path]:
    """A program that takes what ``python`` takes, and has imported ``modules``, as far as they are
    there, in ``environment``; while this goes on.

    ``programs_see_it``: it is `sys.executable` there, too, so that what they start starts fast. It
    is ``python`` itself where there is a GPU, where files cannot be handed over to another process
    (no Linux), and where each program starts by a `sitecustomize` of its own. ``forked_from``:
    another such program, which has imported some of it.
    """
    if not _FILES.exists() or any(gpu.exists() for gpu in _GPUS) or _customized():
        yield python
        return
    folder = Path(tempfile.mkdtemp(prefix="tpu-migrate-warm-"))
    with as_file(files(__package__)) as here, socket.socket(socket.AF_UNIX) as listener:
        program, path = folder / "python", folder / "socket"
        at = os.open(folder, os.O_PATH)  # the path of a socket has at most 107 characters
        listener.bind(f"/proc/self/fd/{at}/{path.name}")
        os.close(at)
        listener.listen(64)
        itself = program if programs_see_it else python
        client = [python, "-IS", here / "client.py", itself, path, python]
        program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, client))} "$@"\n', "utf-8")
        program.chmod(0o755)
        server = subprocess.Popen(
            [forked_from or python, here / "fork_server.py", str(listener.fileno()), *modules],
            cwd=folder, env=dict(environment), pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        listener.close()
        try:
            yield program
        finally:
            assert server.stdin is not None
            server.stdin.close()  # so it ends what still runs
            with suppress(subprocess.TimeoutExpired):
                server.wait(_PATIENCE)
            server.kill()
            server.wait()
            shutil.rmtree(folder, ignore_errors=True)


def _customized() -> bool:
    """Whether a folder of PYTHONPATH has a module that Python imports before any program."""
    folders = (Path(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)
    modules = ("sitecustomize", "usercustomize")
    return any((f / f"{module}.py").exists() for f in folders for module in modules)
