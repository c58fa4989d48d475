"""How programs share a server that ends with the last of them, however that ends.

A server has a directory, its home, and a guard: this file, run as a process of its own.  Who lives is
told by three locks in the home, which the kernel releases when a process ends in whatever way:

* `users.lock` is shared by the programs that use the server, and inherited by children that they
  fork.  The guard waits until it can have the lock alone; then it ends the server.
* `guard.lock` is taken by the program that starts the server, and inherited by the guard, which keeps
  it to its end.
* `server.lock` is held by the guard and by the server, so that never two write to one directory.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

PATIENCE: Final = 60.0
"""Seconds that a server may take to end, or to start and load its data."""
EXIT_PATIENCE: Final = 10.0
"""Seconds that a program which ends waits for the end of its servers; they end without it, too."""
TERM_PATIENCE: Final = 30.0
"""Seconds after SIGTERM at which the guard kills the server."""
PR_SET_PDEATHSIG: Final = 1

_held: dict[IO[bytes], Home] = {}
"""The users' locks that this process holds."""
_used: set[Home] = set()
"""The homes of all servers that this process has used."""


@dataclass(frozen=True)
class Home:
    """A server's directory; a private one is removed when the server has ended."""

    path: Path
    private: bool

    @property
    def link(self) -> Path:
        """What leads to the socket, which lies elsewhere: the path of one has some 100 bytes at most."""
        return self.path / "server.socket"

    def lock(self, name: str, how: int) -> IO[bytes] | None:
        """Return an open file that holds the lock; None while others hold it, or if the home has gone."""
        with contextlib.ExitStack() as undo:
            try:
                file = undo.enter_context(open(self.path / name, "rb+", opener=above_streams))
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except (BlockingIOError, FileNotFoundError):
                return None
            undo.pop_all()
            return file

    def is_free(self, name: str, how: int) -> bool:
        """True if the lock can be had at this moment."""
        with self.lock(name, how) or contextlib.nullcontext() as file:
            return file is not None

    def has_ended(self) -> bool:
        """True if there is neither a server nor a guard."""
        return not self.path.exists() or self.is_free("guard.lock", fcntl.LOCK_EX)

    def has_users(self) -> bool:
        """True if a program uses the server, and not if its guard holds the lock to end it."""
        return not self.is_free("users.lock", fcntl.LOCK_EX) and self.is_free("users.lock", fcntl.LOCK_SH)


def above_streams(path: str, flags: int) -> int:
    """Open a file under a number above 2: a child process has its standard streams under the others."""
    low = os.open(path, flags)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(low)


def new_directory() -> Path:
    """Return a new directory of mode 700, its name short enough for a socket's."""
    usual = tempfile.gettempdir()
    short = usual if len(usual) <= 60 else "/tmp"  # noqa: S108 - mkdtemp makes it safe
    return Path(tempfile.mkdtemp(prefix="bloomredis-", dir=short))


def join(directory: Path | None, command: list[str]) -> tuple[str, IO[bytes]]:
    """Return the socket of the directory's server, and the lock that keeps it until `leave(lock)`.

    The server is started by `command` if it does not run; without a directory it is a new one in a
    private home.  Raises `ConnectionError` with the server's log if it does not answer.
    """
    home = Home(directory or new_directory(), private=directory is None)
    with contextlib.ExitStack() as undo:
        if home.private:
            undo.callback(shutil.rmtree, home.path, ignore_errors=True)
        users = enter(home)
        undo.callback(leave, users)
        answering = serve(home, command)
        undo.pop_all()
        return answering, users


def enter(home: Home) -> IO[bytes]:
    """Become a user of the server; if it is ending, after its end."""
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("users.lock", "guard.lock", "server.lock"):
        (home.path / name).touch(mode=0o600)
    for _ in attempts(PATIENCE):
        if users := home.lock("users.lock", fcntl.LOCK_SH):
            _held[users] = home
            _used.add(home)
            return users
    raise ConnectionError(f"the server in {home.path} did not end within {PATIENCE:.0f} s")


def serve(home: Home, command: list[str]) -> str:
    """Return the path of the server's socket once it answers; start it if nobody guards it."""
    with (home.path / "server.log").open("a+b") as log:
        begin = log.tell()
        started = False
        for _ in attempts(PATIENCE):
            if guard := home.lock("guard.lock", fcntl.LOCK_EX):
                with guard:
                    if started:
                        break
                    start(home, command, guard, log)
                    started = True
            elif not home.path.exists():
                break  # a private home goes with a server that does not start
            elif path := answering_socket(home):
                return path
        log.seek(begin)
        text = log.read().decode(errors="replace").strip()
    raise ConnectionError(f"the server in {home.path} does not answer; its log: {text}")


def start(home: Home, command: list[str], guard: IO[bytes], log: IO[bytes]) -> None:
    """Start a guard, which inherits the lock, and through it the server."""
    end_unguarded(home)
    with contextlib.ExitStack() as undo:
        runtime = home.path if home.private else new_directory()
        undo.callback(shutil.rmtree, runtime, ignore_errors=True)
        home.link.symlink_to(runtime / "s")
        done = subprocess.run(  # noqa: S603 - bloomredis.embedded's own command
            [sys.executable, "-I", "-S", __file__, runtime, *command, "--unixsocket", runtime / "s"],
            check=False,  # the log says what is wrong
            cwd=home.path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[guard.fileno()],
            start_new_session=True,
        )
        if done.returncode == 0:
            undo.pop_all()


def end_unguarded(home: Home) -> None:
    """Have a server whose guard was killed save and end, and remove what they leave."""
    with contextlib.suppress(OSError):
        path = home.link.readlink()
        home.link.unlink()  # so that nobody joins it any more
        ask(path, b"SHUTDOWN")
        if any(home.is_free("server.lock", fcntl.LOCK_EX) for _ in attempts(PATIENCE)):
            path.unlink(missing_ok=True)
            path.parent.rmdir()


def answering_socket(home: Home) -> str | None:
    """Return the path of the server's socket if the server answers and has loaded its data."""
    with contextlib.suppress(FileNotFoundError):
        path = home.link.readlink()
        return str(path) if ask(path, b"PING") == b"+PONG" else None
    return None


def ask(path: Path, command: bytes) -> bytes:
    """Return the server's reply to a command, nothing if none comes within a second."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(str(path))
            connection.sendall(command + b"\r\n")
            return connection.recv(100).rstrip()
    except OSError:
        return b""


def attempts(seconds: float) -> Iterator[None]:
    """Yield every few milliseconds until the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.005)


def leave(users: IO[bytes]) -> None:
    """Stop using a server, without waiting for its end."""
    # Closed, never unlocked: children that were forked share the lock and may go on.
    if _held.pop(users, None):
        users.close()


@atexit.register
def leave_all() -> None:
    """Stop using all servers, and wait for the end of those that nobody else uses."""
    for users in list(_held):
        leave(users)
    waiting = set(_used)
    for _ in attempts(EXIT_PATIENCE):
        waiting = {home for home in waiting if not (home.has_ended() or home.has_users())}
        if not waiting:
            return


def guard_server(command: list[str]) -> None:
    """Run the server of the present directory; return when it has ended, unused or by itself."""
    users, lock = (os.open(name, os.O_RDWR) for name in ("users.lock", "server.lock"))
    fcntl.flock(lock, fcntl.LOCK_EX)
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: None
    server = subprocess.Popen(  # noqa: S603 - bloomredis.embedded's own command
        command,
        pass_fds=[lock],
        # On Linux, the end of a guard that is killed is a SIGTERM to the server.
        preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509 - no thread runs yet
    )
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    threading.Thread(target=end_unused, args=(server, users), daemon=True).start()
    server.wait()


def end_unused(server: subprocess.Popen[bytes], users: int) -> None:
    """Wait until nobody uses the server, then have it save and end; kill it if it does not."""
    fcntl.flock(users, fcntl.LOCK_EX)
    server.terminate()
    try:
        server.wait(TERM_PATIENCE)
    except subprocess.TimeoutExpired:
        server.kill()


def main(runtime: str, *command: str) -> None:
    """Let the program that starts a server go on, guard the server, and remove what it leaves."""
    # As nobody's child a guard needs no waiting for, and who kills a program's children spares it.
    if os.fork():
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        guard_server(list(command))
    finally:
        Path("server.socket").unlink(missing_ok=True)
        shutil.rmtree(runtime, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
