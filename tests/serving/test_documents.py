"""Files of documents, as the REST port serves them."""

import pathlib

import backends
import pytest
from document_site import ALL
from document_site import PART
from rest_client import Client

from realm_tf.serving import documents

pytestmark = backends.exports


def _get(site, path, key=ALL):
    status, headers, body = Client(site).call(
        "GET", path, headers={"x-api-key": key}
    )
    return status, headers, body


def _of(site, name):
    """File and path on the server of a document."""
    row, (block_id,) = site.handler.documents.of_id(name)
    file = pathlib.Path(site.handler.documents.path(row))
    return file, f"/documents/{block_id}"


def test_a_file_is_shown_and_runs_nothing(site):
    file, path = _of(site, "docs/5.md")
    status, headers, body = _get(site, path)
    assert (status, body) == (200, file.read_bytes())
    assert headers["content-security-policy"].startswith("sandbox; default-src")
    assert headers["content-disposition"] == 'inline; filename="5.md"'
    # As the page sends a key, which no link can carry.
    form = {"content-type": "application/x-www-form-urlencoded"}
    for key, expected in ((ALL, 200), ("x" * 20, 401), (PART, 403)):
        found = Client(site).call("POST", path, f"key={key}", form)
        assert found[0] == expected
    assert Client(site).call("GET", path)[0] == 401


def test_nothing_else_is_served(site, tmp_path):
    file, path = _of(site, "docs/7.md")
    content = file.read_bytes()
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for change in (lambda: file.symlink_to(secret), file.mkdir, lambda: None):
        file.unlink()
        change()
        try:
            status, _, body = _get(site, path)
        finally:
            if file.is_dir():
                file.rmdir()
            file.unlink(missing_ok=True)
            file.write_bytes(content)
        assert status == 404 and b"secret" not in body
    for other in ("99", "-1", "7.md", "9" * 5000):
        assert _get(site, f"/documents/{other}")[0] == 404
    assert _get(site, path)[0] == 200


def test_a_damaged_corpus_still_answers(site):
    """Its model is whole: only files of documents are not there."""
    file, path = _of(site, "docs/5.md")
    (manifest,) = file.parents[1].glob("corpus/corpus.json")
    content = manifest.read_bytes()
    manifest.write_text("{")
    try:
        status, _, body = _get(site, path)
        about = _get(site, "/about.json")
    finally:
        manifest.write_bytes(content)
    assert status == 503 and b"`realm corpus status`" in body
    assert about[0] == 200 and b'"fields": ["parity", "number"]' in about[2]
    assert _get(site, path)[0] == 200


@pytest.mark.parametrize(
    "name, kind, is_shown",
    [
        ("a.html", "text/html", True),
        ("a.PDF", "application/pdf", True),
        ("a.md", "text/plain; charset=utf-8", True),
        ("a.csv", "text/plain; charset=utf-8", True),
        ("a.svg", "application/octet-stream", False),
        ("a.txt.gz", "application/octet-stream", False),
        ("a", "application/octet-stream", False),
    ],
)
def test_what_a_browser_shows(name, kind, is_shown):
    assert documents.content_type(name) == (kind, is_shown)
