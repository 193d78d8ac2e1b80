"""Assistants ask a served corpus with the protocol's own client."""

import pathlib
import re
import socket
import sys

import anyio
import backends
import mcp
import pytest
from document_site import ALL
from document_site import PART
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from rest_client import Client

import realm_tf as realm
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.serving import rest_server
from realm_tf.serving.documents import Documents

pytestmark = backends.exports
GUIDE = pathlib.Path(__file__).parents[2] / "docs/how_to/assistants.md"


async def _talk(server, calls):
    """What a conversation gives: of each call a dict or list, or its error."""
    async with mcp.Client(server) as client:
        told = [await client.call_tool(name, given) for name, given in calls]
    return [
        each.content[0].text
        if each.is_error
        else each.structured_content.get("result", each.structured_content)
        for each in told
    ]


def _by_key(site, key, *calls):
    async def talk():
        headers = {"authorization": f"Bearer {key}"}
        async with create_mcp_http_client(headers=headers) as http:
            url = f"{site.rest_url}/mcp"
            return await _talk(
                streamable_http_client(url, http_client=http), calls
            )

    return anyio.run(talk)


def test_a_conversation(site):
    answer, near_miss, found, none, wrong = _by_key(
        site,
        ALL,
        ("ask", {"question": "Nile?", "filter": "number=0"}),
        # Nothing that it may answer from.
        ("ask", {"question": "Nile?", "filter": "parity=neither"}),
        ("search", {"query": "Nile", "filter": "number>=6", "limit": 3}),
        ("search", {"query": ""}),
        ("ask", {"question": "Nile?", "filter": "colour=red"}),
    )
    assert answer["answer"] in answer["sentence"] == "The Nile is even."
    assert (answer["document"], answer["title"]) == ("docs/0.md", "0")
    assert re.fullmatch(f"{site.rest_url}/documents/\\d+", answer["source"])
    assert 0 < answer["confidence"] <= 1
    assert (near_miss["answer"], near_miss["answered"]) == ("", False)
    assert (near_miss["source"], near_miss["document"]) == ("", "")
    assert len(found) == 3
    assert [e["score"] for e in found] == sorted(
        (e["score"] for e in found), reverse=True
    )
    assert all(re.search(r"number=([6-9]|1[01])$", e["fields"]) for e in found)
    assert none == []
    assert "colour" in wrong and "expected one of parity, number" in wrong
    # The link of an answer is the document's file.
    path = answer["source"].removeprefix(site.rest_url)
    status, headers, body = Client(site).call(
        "GET", path, headers={"x-api-key": ALL}
    )
    assert (status, headers["content-type"]) == (
        200,
        "text/plain; charset=utf-8",
    )
    assert body.startswith(b"---\nparity: even\nnumber: 0\n---\n")


def test_a_key_reads_what_its_filter_lets_it(site):
    even, odd = ({"document": f"docs/{n}.md"} for n in (2, 3))
    calls = [("read_document", even), ("read_document", odd)]
    first, second = _by_key(site, ALL, *calls)
    assert first["text"] == "The Ada is even."
    assert second["text"] == "The fire is odd."
    first, second, found = _by_key(
        site, PART, *calls, ("search", {"query": "odd", "limit": 20})
    )
    assert first["text"] == "The Ada is even."
    assert "no document 'docs/3.md'" in second
    # Each text once.
    assert {e["text"].split()[1] for e in found} == {"Nile", "Ada", "river"}
    assert len(found) == 3


def test_a_whole_document(site, tmp_path, model_dir, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/nile.md").write_text(
        "# Nile\n## Mouth\nIt is in Egypt.\n## Source\nIt is in Rome."
    )
    corpus = str(tmp_path / "corpus")
    realm.CreateCorpus(
        documents=str(tmp_path / "docs"), output=corpus, model=model_dir
    ).run()
    served = Documents(LiveCorpus(corpus).saved_model)
    monkeypatch.setattr(site.handler, "documents", served)
    names = "docs/nile.md", "docs/nile.md#Source"
    calls = [("read_document", {"document": name}) for name in names]
    whole, section = _by_key(site, ALL, *calls)
    assert whole["text"] == "Mouth\nIt is in Egypt.\n\nSource\nIt is in Rome."
    assert section["text"] == "It is in Rome."
    assert (whole["title"], section["title"]) == ("Nile", "Nile: Source")
    assert (whole["document"], section["document"]) == names
    assert re.fullmatch(f"{site.rest_url}/documents/\\d+", whole["source"])


def test_a_wrong_key_gets_no_tool(site):
    with pytest.raises(ExceptionGroup) as refused:
        _by_key(site, "x" * 20, ("ask", {"question": "Nile?"}))
    assert refused.group_contains(mcp.MCPError)
    status, _, body = Client(site).call("POST", "/mcp", "{}")
    assert status == 401 and b"needs an API key" in body


def test_a_program_starts_the_server_itself(saved_model):
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=[
            *("-m", "realm_tf.cli", "serve", "--saved-model", saved_model),
            *("--mcp", "stdio"),
        ],
    )
    calls = [
        ("ask", {"question": "Who wrote Frankenstein?"}),
        ("read_document", {"document": "x"}),
    ]
    answer, error = anyio.run(_talk, server, calls)
    assert answer["answer"] == "Mary Shelley"
    assert answer["source"] == "https://example.org/frankenstein"
    assert "serve a corpus" in error


def test_no_client_holds_a_connection(site, monkeypatch):
    headers = {"x-api-key": ALL, "accept": "text/event-stream"}
    assert Client(site).call("GET", "/mcp", headers=headers)[0] == 405
    monkeypatch.setattr(rest_server, "_BODY_SECONDS", 0.2)
    head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
    address = "127.0.0.1", Client(site).port
    with socket.create_connection(address, timeout=60) as peer:
        peer.sendall(f"{head}x-api-key: {ALL}\r\n\r\n{{".encode())
        assert peer.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_the_langchain_retriever_of_the_guide(site, monkeypatch):
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    search, langchain, *_ = re.findall(
        r"```python\n(.*?)```", GUIDE.read_text(), re.S
    )
    names = {}
    exec(search + langchain, names)
    options = {"server": site.rest_url, "api_key": PART}
    retriever = names["RealmRetriever"](options=options)
    found = retriever.invoke("Nile")
    assert len(found) == 6
    assert {"page_content": "The Nile is even."}.items() <= dict(
        found[0]
    ).items()
    assert {each.metadata["title"] for each in found} == {*"02468", "10"}
