"""Stands for an interpreter that fork_server.py forks: the same arguments, files, signals and end.

    python -IS client.py ITSELF SOCKET PYTHON ARGUMENTS…

PYTHON does itself what the server cannot: other options than -c, -m and -, and an environment that
it refuses. ITSELF is what `sys.executable` is to say.
"""

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def can_be_forked(arguments: list[str]) -> bool:
    first = arguments[0] if arguments else "-i"
    return first in ("-c", "-m", "-") or not first.startswith("-")


def connected(path: str) -> socket.socket | None:
    """To the server; it may still be importing. None where it has ended."""
    client = socket.socket(socket.AF_UNIX)
    folder, _, name = path.rpartition("/")
    try:
        at = os.open(folder, os.O_PATH)  # the path of a socket has at most 107 characters
        client.connect(f"/proc/self/fd/{at}/{name}")
        os.close(at)
    except OSError:
        return None
    return client


def main() -> None:
    itself, path, python, *arguments = sys.argv[1:]
    if arguments[:1] == ["-B"]:  # no bytecode is written: multiprocessing passes that on
        del arguments[0]
    client = connected(path) if can_be_forked(arguments) else None
    if client is None or not accepted(client, arguments, itself):
        os.execv(python, [python, *arguments])
    end = client.recv(16)
    if not end:
        sys.exit("the server of interpreters has ended")
    code = int(end)
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def accepted(client: socket.socket, arguments: list[str], itself: str) -> bool:
    """Whether the server has begun it."""
    files = [int(n) for n in os.listdir("/proc/self/fd") if is_open(int(n), client)]
    folder = os.getcwd()  # noqa: PTH109 (to import pathlib takes longer than all of this)
    job = {"arguments": arguments, "cwd": folder, "env": dict(os.environ), "files": files,
           "executable": itself}  # fmt: skip
    text = json.dumps(job).encode()
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: client.sendall(bytes([number])))
    try:
        socket.send_fds(client, [len(text).to_bytes(8, "little")], files)
        client.sendall(text)
        return client.recv(1) == b"+"
    except OSError:
        return False


def is_open(file: int, client: socket.socket) -> bool:
    """Whether it is handed over; the folder that was listed is closed by now."""
    try:
        return file != client.fileno() and (os.get_inheritable(file) or file < 3)
    except OSError:
        return False


main()
