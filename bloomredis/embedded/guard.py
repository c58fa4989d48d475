"""The guard: a process that ends an embedded server when no program uses the server any more.

A server has a directory, its home, and a guard, which is this module run as a process.  Three file locks in
the home say which processes are alive; the kernel releases a lock however its process ends:

* `users.lock` is shared by the programs that use the server, and inherited by their forked children.
  The guard waits until it gets the lock exclusively; then it ends the server.
* `guard.lock` is taken by the program that starts the server, and inherited by the guard, which holds
  it until it exits.
* `server.lock` is held by the guard and by the server, so that two servers never write to one directory.
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
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO, Final

PATIENCE: Final = 60.0
"""Seconds allowed for a server to end, or to start and load its data."""
EXIT_PATIENCE: Final = 10.0
"""Seconds that an exiting program waits for its servers to end; they also end if it does not wait."""
TERM_PATIENCE: Final = 30.0
"""Seconds after SIGTERM until the guard kills the server."""
PR_SET_PDEATHSIG: Final = 1

_held: dict[IO[bytes], Home] = {}
"""The `users.lock` files that this process holds, with their homes."""
_used: set[Home] = set()
"""The homes of all servers that this process has used."""


@dataclass(frozen=True)
class Home:
    """A server's directory; a private one is removed after the server has ended."""

    path: Path
    private: bool

    @property
    def link(self) -> Path:
        """The symbolic link to the socket, whose own path is short: the limit is about 100 bytes."""
        return self.path / "server.socket"

    def check_owner(self) -> None:
        """Raise `PermissionError` if another user could put links and sockets into the directory."""
        found = self.path.stat()
        if found.st_uid != os.geteuid():
            raise PermissionError(
                f"{self.path} belongs to user {found.st_uid}, not to {os.geteuid()}: its owner could replace "
                "the server; give a directory of your own"
            )
        if found.st_mode & stat.S_IWOTH:
            raise PermissionError(
                f"{self.path} has mode {stat.S_IMODE(found.st_mode):o}: everybody can write to it; "
                "make it 700"
            )

    def lock(self, name: str, how: int) -> IO[bytes] | None:
        """Return an open file that holds the lock; None if others hold it or the home is removed."""
        with contextlib.ExitStack() as undo:
            try:
                file = undo.enter_context(open(self.path / name, "rb+", opener=above_streams))
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except (BlockingIOError, FileNotFoundError):
                return None
            undo.pop_all()
            return file

    def is_free(self, name: str, how: int) -> bool:
        """Return True if the lock can be taken now."""
        with self.lock(name, how) or contextlib.nullcontext() as file:
            return file is not None

    def has_ended(self) -> bool:
        """Return True if the home is removed or has no guard; a guard outlives its server."""
        return not self.path.exists() or self.is_free("guard.lock", fcntl.LOCK_EX)

    def has_users(self) -> bool:
        """Return True if a program uses the server; False also while the guard holds the lock to end it."""
        return not self.is_free("users.lock", fcntl.LOCK_EX) and self.is_free("users.lock", fcntl.LOCK_SH)


def above_streams(path: str, flags: int) -> int:
    """Open a file on a descriptor above 2, since a child's standard streams replace 0 to 2."""
    low = os.open(path, flags)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(low)


def new_directory() -> Path:
    """Create a directory of mode 700 with a path short enough for a socket; return the path."""
    default = tempfile.gettempdir()
    short = default if len(default) <= 60 else "/tmp"  # noqa: S108 - mkdtemp makes it safe
    return Path(tempfile.mkdtemp(prefix="bloomredis-", dir=short))


def join(directory: Path | None, command: list[str]) -> tuple[str, IO[bytes]]:
    """Return the socket of the directory's server, and a lock that keeps it running until `leave(lock)`.

    `command` starts the server if it is not running; without a directory, a new server is
    started in a private home.  Raises `ConnectionError` with the server's log if it does not answer.
    """
    home = Home(directory or new_directory(), private=directory is None)
    with contextlib.ExitStack() as undo:
        if home.private:
            undo.callback(shutil.rmtree, home.path, ignore_errors=True)
        users = enter(home)
        undo.callback(leave, users)
        path = serve(home, command)
        undo.pop_all()
        return path, users


def enter(home: Home) -> IO[bytes]:
    """Take the shared `users.lock`; if the server is ending, wait for its end first."""
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.check_owner()
    for name in ("users.lock", "guard.lock", "server.lock"):
        (home.path / name).touch(mode=0o600)
    for _ in attempts(PATIENCE):
        if users := home.lock("users.lock", fcntl.LOCK_SH):
            _held[users] = home
            _used.add(home)
            return users
    raise ConnectionError(f"the server in {home.path} did not end within {PATIENCE:.0f} s")


def private(path: str, flags: int) -> int:
    """Open a file; create it with mode 600."""
    return os.open(path, flags, 0o600)


def serve(home: Home, command: list[str]) -> str:
    """Return the path of the server's socket once it answers; start it if it has no guard."""
    with open(home.path / "server.log", "a+b", opener=private) as log:
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
                break  # the guard of a server that did not start has removed the private home
            elif path := answering_socket(home):
                return path
        log.seek(begin)
        text = log.read().decode(errors="replace").strip()
    raise ConnectionError(f"the server in {home.path} does not answer; its log: {text}")


def start(home: Home, command: list[str], guard: IO[bytes], log: IO[bytes]) -> None:
    """Start a guard, which inherits the lock and starts the server."""
    end_unguarded(home)
    with contextlib.ExitStack() as undo:
        runtime = home.path if home.private else new_directory()
        undo.callback(shutil.rmtree, runtime, ignore_errors=True)
        home.link.symlink_to(runtime / "s")
        done = subprocess.run(  # noqa: S603 - bloomredis.embedded's own command
            [sys.executable, "-I", "-S", "-c", source(), runtime, *command, "--unixsocket", runtime / "s"],
            check=False,  # the error is in the log
            cwd=home.path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[guard.fileno()],
            start_new_session=True,
        )
        if done.returncode == 0:
            undo.pop_all()


def source() -> str:
    """Return the text of this module, which may be in a zip, where no process can run it."""
    return (files("bloomredis.embedded") / "guard.py").read_text("utf-8")


def end_unguarded(home: Home) -> None:
    """Shut down a server whose guard was killed, and remove its socket."""
    with contextlib.suppress(OSError):
        path = home.link.readlink()
        home.link.unlink()  # so that no other program joins it
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
    """Return the server's reply to a command, empty if none arrives within a second."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(str(path))
            connection.sendall(command + b"\r\n")
            return connection.recv(100).rstrip()
    except OSError:
        return b""


def attempts(seconds: float) -> Iterator[None]:
    """Yield every 5 ms until the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.005)


def leave(users: IO[bytes]) -> None:
    """Stop using a server, without waiting for its end."""
    # Closed, never unlocked: forked children share the lock and may still use the server.
    if _held.pop(users, None):
        users.close()


@atexit.register
def leave_all() -> None:
    """Stop using all servers; wait until those without other users have ended."""
    for users in list(_held):
        leave(users)
    waiting = set(_used)
    for _ in attempts(EXIT_PATIENCE):
        waiting = {home for home in waiting if not (home.has_ended() or home.has_users())}
        if not waiting:
            return


def guard_server(command: list[str]) -> None:
    """Run the server of the current directory; return after it has ended by itself or for lack of users."""
    users, lock = (os.open(name, os.O_RDWR) for name in ("users.lock", "server.lock"))
    fcntl.flock(lock, fcntl.LOCK_EX)
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: None
    server = subprocess.Popen(  # noqa: S603 - bloomredis.embedded's own command
        command,
        pass_fds=[lock],
        # On Linux, the server gets SIGTERM if its guard is killed.
        preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509 - no thread runs yet
    )
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    threading.Thread(target=end_unused, args=(server, users), daemon=True).start()
    server.wait()


def end_unused(server: subprocess.Popen[bytes], users: int) -> None:
    """Wait until the server has no users, then terminate it; kill it if it does not end."""
    fcntl.flock(users, fcntl.LOCK_EX)
    server.terminate()
    try:
        server.wait(TERM_PATIENCE)
    except subprocess.TimeoutExpired:
        server.kill()


def main(runtime: str, *command: str) -> None:
    """Detach from the program that starts the server, guard the server, and remove its files."""
    # An orphan needs no wait(), and survives if somebody kills the program's children.
    if os.fork():
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        guard_server(list(command))
    except Exception:
        traceback.print_exc()  # before the home is removed: then `serve` reads the log
    finally:
        Path("server.socket").unlink(missing_ok=True)
        shutil.rmtree(runtime, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
