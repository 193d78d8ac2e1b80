"""The Hugging Face Hub, as far as its library asks for it, on loopback."""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse


class StubHub(http.server.ThreadingHTTPServer):
    """Repositories in memory.

    Args:
        token: str. What a writer must show.

    Attributes:
        repos: dict. `OWNER/NAME` to `{file: bytes}`.
        gated: set of str. Repositories whose files are refused.
        asked: list of `(method, path)`, in order.
    """

    daemon_threads = True

    def __init__(self, token="hf_secret"):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token = token
        self.repos = {}
        self.gated = set()
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, repo, directory):
        """Takes all files of a directory."""
        self.repos[repo] = {
            str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        }

    def files_sent(self):
        """Names of the files whose content was asked for, sorted."""
        found = {
            path.partition("/resolve/")[2].partition("/")[2]
            for method, path in self.asked
            if method == "GET" and "/resolve/" in path
        }
        return sorted(found)


@contextlib.contextmanager
def serving():
    """Yields a `StubHub` that is being served."""
    hub = StubHub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


def attach(hub, monkeypatch, cache):
    """Makes the hub's library ask this one, and keep its files in `cache`."""
    from huggingface_hub import constants

    url = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", hub.token)


def commit(files):
    """The name of the commit of some files."""
    digest = hashlib.sha1()
    for name, content in sorted(files.items()):
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()


def _blob(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entries(files):
    """Files as `list_repo_tree` and `model_info` name them."""
    return [
        {
            **{"type": "file", "path": name, "rfilename": name},
            **{"size": len(content), "oid": _blob(content)},
            "blobId": _blob(content),
        }
        for name, content in files.items()
    ]


class _Refused(Exception):
    """A status and the value of X-Error-Code."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.server.asked.append((self.command, path))
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        for pattern, answer in (
            (r"/api/repos/create", self._create),
            (r"/api/validate-yaml", self._validate),
            (r"/api/models/([^/]+/[^/]+)/preupload/(.+)", self._preupload),
            (r"/api/models/([^/]+/[^/]+)/commit/(.+)", self._commit),
            (r"/api/models/([^/]+/[^/]+)/tree/(.+)", self._tree),
            (r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", self._info),
            (r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self._file),
        ):
            found = re.fullmatch(pattern, path)
            if found:
                try:
                    answer(body, *found.groups())
                except _Refused as refused:
                    status, code = refused.args
                    self._send(status, X_Error_Code=code)
                return
        self._send(404, {"error": f"stub: {path}"})

    do_HEAD = do_POST = do_GET

    def _send(self, status, content=b"", **headers):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
            headers["Content_Type"] = "application/json"
        self.send_response(status)
        headers.setdefault("Content_Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _repo(self, repo, revision="main"):
        """The files of a repository."""
        files = self.server.repos.get(repo)
        if files is None:
            raise _Refused(404, "RepoNotFound")
        if repo in self.server.gated:
            raise _Refused(403, "GatedRepo")
        if revision not in (None, "main", commit(files)):
            raise _Refused(404, "RevisionNotFound")
        return files

    def _info(self, _, repo, revision):
        files = self._repo(repo, revision)
        about = {"id": repo, "sha": commit(files), "private": False, "tags": []}
        self._send(200, {**about, "siblings": _entries(files)})

    def _tree(self, _, repo, revision):
        self._send(200, _entries(self._repo(repo, revision)))

    def _file(self, _, repo, revision, name):
        files = self._repo(repo, revision)
        if name not in files:
            raise _Refused(404, "EntryNotFound")
        content = files[name]
        headers = {
            "ETag": f'"{_blob(content)}"',
            "X_Repo_Commit": commit(files),
        }
        self._send(200, content, **headers)

    def _check_token(self):
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            raise _Refused(401, "InvalidCredentials")

    def _create(self, body):
        self._check_token()
        asked = json.loads(body)
        repo = f"{asked.get('organization') or 'me'}/{asked['name']}"
        is_there = repo in self.server.repos
        self.server.repos.setdefault(repo, {})
        url = f"{self.server.url}/{repo}"
        self._send(409 if is_there else 200, {"url": url})

    def _validate(self, _):
        self._send(200, {"errors": [], "warnings": []})

    def _preupload(self, body, repo, _):
        files = [
            {
                "path": each["path"],
                "uploadMode": "regular",
                "shouldIgnore": False,
            }
            for each in json.loads(body)["files"]
        ]
        self._send(200, {"files": files})

    def _commit(self, body, repo, _):
        self._check_token()
        files = self.server.repos[repo]
        for line in body.splitlines():
            each = json.loads(line)
            if each["key"] == "file":
                value = each["value"]
                files[value["path"]] = base64.b64decode(value["content"])
        name = commit(files)
        self._send(
            200,
            {
                "commitOid": name,
                "commitUrl": f"{self.server.url}/{repo}/commit/{name}",
                "hookOutput": "",
                "success": True,
            },
        )
