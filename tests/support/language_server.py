"""A client of basedpyright's language server: the texts that an editor shows at a place of a program."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class LanguageServer:
    """A running language server, in which one program is open."""

    def __init__(self, process: subprocess.Popen[bytes], program: Path) -> None:
        self._process = process
        self._uri = program.as_uri()
        self._text = program.read_text("utf-8")
        self._number = 0
        folder = {"uri": program.parent.as_uri(), "name": "programs"}
        capabilities = {
            "workspace": {"configuration": True},
            "textDocument": {"hover": {"contentFormat": ["plaintext"]}},
        }
        self._ask(
            "initialize", {"processId": None, "workspaceFolders": [folder], "capabilities": capabilities}
        )
        self._send(method="initialized", params={})
        document = {"uri": self._uri, "languageId": "python", "version": 1, "text": self._text}
        self._send(method="textDocument/didOpen", params={"textDocument": document})

    def hover(self, line: str, word: str) -> str:
        """Return the text that is shown at a word in the line that begins with `line`."""
        lines = self._text.splitlines()
        number = next(number for number, text in enumerate(lines) if text.startswith(line))
        place = {"line": number, "character": lines[number].index(word)}
        found = self._ask("textDocument/hover", {"textDocument": {"uri": self._uri}, "position": place})
        return str(found["contents"]["value"]) if found else ""

    def _ask(self, method: str, params: object) -> Any:
        """Send a request and return its result; meanwhile answer the server's own requests."""
        self._number += 1
        self._send(id=self._number, method=method, params=params)
        while True:
            message = self._receive()
            if "method" not in message:
                assert message["id"] == self._number, message
                return message["result"]
            if "id" in message:
                wants = message.get("params", {}).get("items", [])
                self._send(id=message["id"], result=[{"pythonPath": sys.executable} for _ in wants])

    def _send(self, **message: object) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._process.stdin.flush()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        length = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        assert length, "the language server has ended"
        return json.loads(self._process.stdout.read(length))


@contextmanager
def language_server(program: Path) -> Iterator[LanguageServer]:
    """Run a language server with a program."""
    command = [str(Path(sys.executable).with_name("basedpyright-langserver")), "--stdio"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield LanguageServer(process, program)
        finally:
            process.kill()
