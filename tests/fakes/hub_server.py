"""A Hugging Face Hub on loopback: repositories of small files, gated and private ones included.

Answers what `huggingface_hub` asks for: model info, the file tree, and files by HEAD and (ranged)
GET with ETag and X-Repo-Commit. Records every request.
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from tests.fakes.stub_server import Listener

COMMIT = "a" * 40


@dataclass
class FakeRepo:
    """A repository: path -> content. `gated`: files need the token; `private`: everything does."""

    files: dict[str, bytes]
    gated: bool = False
    private: bool = False
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})


class FakeHub:
    """Context manager; `endpoint` is its address, `requests` what was asked: (method, path)."""

    def __init__(self, repos: dict[str, FakeRepo], token: str = "hf_good") -> None:
        self.repos = repos
        self.token = token
        self.requests: list[tuple[str, str]] = []
        self.is_failing = False
        hub = self

        class Handler(_Handler):
            server_hub = hub

        self._server = Listener(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeHub:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def fetched(self) -> set[str]:
        """Names of the files that were downloaded."""
        return {
            path.split("/resolve/")[1].split("/", 1)[1]
            for method, path in self.requests
            if method == "GET" and "/resolve/" in path
        }


class _Handler(BaseHTTPRequestHandler):
    server_hub: ClassVar[FakeHub]
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        hub = self.server_hub
        path = unquote(urlsplit(self.path).path)
        hub.requests.append((self.command, path))
        if hub.is_failing:
            self._send(503, b"down")
        elif path.startswith("/api/models/"):
            self._answer_api(path.removeprefix("/api/models/"))
        elif "/resolve/" in path:
            repo_name, rest = path[1:].split("/resolve/", 1)
            revision, name = rest.split("/", 1)
            self._answer_file(repo_name, revision, name)
        else:
            self._send(404, b"")

    def _answer_api(self, path: str) -> None:
        kind = next((kind for kind in ("/revision/", "/tree/") if kind in path), "")
        repo_name, revision = path.split(kind, 1) if kind else (path, "main")
        repo = self._repo(repo_name)
        if repo is None:
            return
        commit = self._commit(repo, revision)
        if commit is None:
            return
        if kind == "/tree/":
            body: object = [
                {"type": "file", "path": name, "size": len(data), "oid": _etag(data)}
                for name, data in repo.files.items()
            ]
        else:
            body = {
                "id": repo_name,
                "sha": commit,
                "siblings": [{"rfilename": name} for name in repo.files],
                "gated": "auto" if repo.gated else False,
                "private": repo.private,
                "tags": [],
                "downloads": 0,
                "likes": 0,
            }
        self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _answer_file(self, repo_name: str, revision: str, name: str) -> None:
        repo = self._repo(repo_name)
        if repo is None:
            return
        if repo.gated and not self._is_authorized():
            self._send(403, b"gated", {"X-Error-Code": "GatedRepo"})
            return
        commit = self._commit(repo, revision)
        if commit is None:
            return
        data = repo.files.get(name)
        if data is None:
            headers = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}
            self._send(404, b"", headers)
            return
        headers = {"ETag": f'"{_etag(data)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range")
        if wanted is None:
            self._send(200, data, headers)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, end = int(first), int(last) if last else len(data) - 1
        headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
        self._send(206, data[start : end + 1], headers)

    def _repo(self, name: str) -> FakeRepo | None:
        repo = self.server_hub.repos.get(name)
        if repo is None or (repo.private and not self._is_authorized()):
            self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
            return None
        return repo

    def _commit(self, repo: FakeRepo, revision: str) -> str | None:
        commit = revision if revision in repo.revisions.values() else repo.revisions.get(revision)
        if commit is None:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        return commit

    def _is_authorized(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.server_hub.token}"

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
