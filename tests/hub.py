"""A model hub on the loopback, good enough for the real client: repositories, ranges, gates, and accidents on demand.

Knows the hub's HTTP interface and nothing of localspec.
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repo:
    """Files of one repository.

    gate     who may read; `granted` is the token that may read a gated or private one
    claimed  the sha256 that is given out instead of the true one
    said     the size that is given out instead of the true one
    """

    files: dict[str, bytes]
    commit: str = COMMIT
    gate: Literal["open", "gated", "private"] = "open"
    granted: str = ""
    claimed: str = ""
    said: int | None = None


@dataclass(frozen=True)
class Request:
    """One line of the log."""

    method: str
    path: str
    range: str | None
    authorization: str | None
    sent: int = 0


@dataclass
class Hub:
    """A running hub. Accidents are used up one per GET of a file.

    cuts     bytes after which the connection breaks
    slow     set: the first half of a file is sent, the rest only after the event
    cdn      another hub that serves the bytes: this one answers with a redirect, as the real one does
    """

    url: str
    repos: dict[str, Repo] = field(default_factory=dict)
    log: list[Request] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    ignored_ranges: int = 0
    statuses: list[int] = field(default_factory=list)
    slow: threading.Event | None = None
    cdn: Hub | None = None

    def gets(self) -> list[Request]:
        """The requests that asked for bytes of files."""
        kinds = ("/resolve/", "/cdn/")
        return [
            request for request in self.log if request.method == "GET" and any(kind in request.path for kind in kinds)
        ]

    def sent(self) -> int:
        """Bytes of files that went out."""
        return sum(request.sent for request in self.gets())


@contextmanager
def running(certificate: Path | None = None) -> Iterator[Hub]:
    """A hub on a free port of 127.0.0.1; with a certificate (and its key, in one PEM file) it speaks HTTPS."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign] # a client that hangs up is expected
    hub = Hub(f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}")
    server.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> Hub:
        return self.server.hub  # type: ignore[attr-defined,no-any-return]

    def log_message(self, format: str, *args: object) -> None:
        return None

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        entry = Request(self.command, path, self.headers.get("Range"), self.headers.get("Authorization"))
        self.hub.log.append(entry)
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
            if repo := self._readable(found[1], found[2]):
                self._list(found[1], repo)
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            if repo := self._readable(found[1], found[2]):
                self._file(repo, found[3], len(self.hub.log) - 1)
        elif found := re.fullmatch(r"/cdn/([^/]+/[^/]+)/(.+)", path):
            self._file(self.hub.repos[found[1]], found[2], len(self.hub.log) - 1)
        else:
            self._fail(404, "")

    def _readable(self, name: str, revision: str | None) -> Repo | None:
        """The repository if this client may read it; otherwise the answer of the real hub has been sent."""
        repo, token = self.hub.repos.get(name), (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token == "expired":
            self._fail(401, "", "Invalid credentials in Authorization header")
        elif repo is None or (repo.gate == "private" and token != repo.granted):
            # Without a token the hub does not say whether the repository is missing or private.
            self._fail(404 if token else 401, "RepoNotFound" if token else "")
        elif repo.gate == "gated" and token != repo.granted:
            self._fail(403 if token else 401, "GatedRepo")
        elif revision not in (None, "main", repo.commit):
            self._fail(404, "RevisionNotFound")
        else:
            return repo
        return None

    def _list(self, name: str, repo: Repo) -> None:
        body = {"id": name, "sha": repo.commit, "siblings": [{"rfilename": file} for file in repo.files]}
        self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _file(self, repo: Repo, path: str, entry: int) -> None:
        if path not in repo.files:
            self._fail(404, "EntryNotFound", headers={"X-Repo-Commit": repo.commit})
            return
        data = repo.files[path]
        digest = repo.claimed or hashlib.sha256(data).hexdigest()
        headers = {
            "ETag": f'"{digest}"',
            "X-Linked-Etag": f'"{digest}"',
            "X-Linked-Size": str(len(data) if repo.said is None else repo.said),
            "X-Repo-Commit": repo.commit,
            "Accept-Ranges": "bytes",
        }
        if self.hub.cdn is not None:
            name = next(name for name, known in self.hub.repos.items() if known is repo)
            self._send(302, b"", headers | {"Location": f"{self.hub.cdn.url}/cdn/{name}/{path}"})
            return
        if self.command == "HEAD":
            self._send(200, data, headers)
            return
        if self.hub.statuses:
            self._fail(self.hub.statuses.pop(0), "")
            return
        start = self._start(len(data))
        if start is None:
            self._fail(416, "")
            return
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._stream(206 if start else 200, data[start:], headers, entry)

    def _start(self, size: int) -> int | None:
        """Where the client wants to go on; None: beyond the end."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if asked is None:
            return 0
        if self.hub.ignored_ranges:
            self.hub.ignored_ranges -= 1
            return 0
        return int(asked[1]) if int(asked[1]) < size else None

    def _stream(self, status: int, body: bytes, headers: dict[str, str], entry: int) -> None:
        cut = self.hub.cuts.pop(0) if self.hub.cuts else None
        self._head(status, len(body), headers)
        sent = body if cut is None else body[:cut]
        try:
            if self.hub.slow is not None:
                self.wfile.write(sent[: len(sent) // 2])
                self.wfile.flush()
                self.hub.slow.wait(20)
                self.wfile.write(sent[len(sent) // 2 :])
            else:
                self.wfile.write(sent)
            self.wfile.flush()
        except OSError:  # the client has gone
            self.close_connection = True
        asked = self.hub.log[entry]
        self.hub.log[entry] = Request(asked.method, asked.path, asked.range, asked.authorization, len(sent))
        if cut is not None:
            self.close_connection = True

    def _fail(self, status: int, code: str, message: str = "", headers: dict[str, str] | None = None) -> None:
        extra = dict(headers or {})
        if code:
            extra["X-Error-Code"] = code
        if message:
            extra["X-Error-Message"] = message
        self._send(status, b"", extra)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._head(status, len(body), headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
