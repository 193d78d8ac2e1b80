"""Tools for assistants, over the Model Context Protocol.

The protocol is that of the `mcp` package; a tool is a request like any other,
with the server's limits, metrics and log.

References:
    [Model Context Protocol](https://modelcontextprotocol.io/specification).
"""

import contextlib
import pathlib
from typing import Any

import numpy as np
from mcp.server.mcpserver import Context
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import ToolAnnotations

from realm_tf.export import signatures
from realm_tf.serving import documents
from realm_tf.serving.client import MODEL_NAME
from realm_tf.serving.client import to_answers
from realm_tf.serving.client import to_retrieved
from realm_tf.serving.client import with_filter
from realm_tf.serving.metrics import RequestRecord
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.tensors import PredictRequest
from realm_tf.version import __version__

_INSTRUCTIONS = (
    "Answers come word for word from the documents of this server. Where "
    "`answered` is false the documents probably do not say it: search, or say "
    "so. Cite `source`."
)
# Assistants run tools of this kind without asking.
_READS = ToolAnnotations(readOnlyHint=True, openWorldHint=False)

_OBJECT = dict[str, Any]


class _Tools:
    """The tools; their docstrings are what an assistant reads."""

    def __init__(self, handler: RequestHandler):
        self._handler = handler

    def ask(self, question: str, context: Context, filter: str = "") -> _OBJECT:
        """Answers a question from the documents, with the sentence that says it.

        `filter` limits the documents by their fields: tags=hr|law;date>=2024.
        Gives answer, confidence (0 to 1), answered (whether to trust it),
        sentence, title, source (a link) and document (for `read_document`).
        """
        with self._request(context) as record:
            outputs = self._run(record, signatures.DEFAULT, question, filter)
            (found,) = to_answers(outputs, count=1)
        return {
            "answer": found.answer,
            "confidence": round(found.confidence, 4),
            "answered": found.answered,
            "sentence": found.answer_sentence or found.text,
            "title": found.title,
            **self._origin(found.block_id, found.url, context),
        }

    def search(
        self, query: str, context: Context, filter: str = "", limit: int = 5
    ) -> list[_OBJECT]:
        """Finds the passages of the documents nearest to a question or words.

        `filter` is as in `ask`. Gives of at most 20 passages, best first, score,
        title, text, fields (as a filter), source and document.
        """
        with self._request(context) as record:
            outputs = self._run(record, signatures.RETRIEVE, query, filter)
            (found,) = to_retrieved(outputs, count=1)
        # Of equal texts, the first.
        found = list({each.text: each for each in found[::-1]}.values())[::-1]
        return [
            {
                "score": round(each.score, 4),
                "title": each.title,
                "text": each.text,
                "fields": each.fields,
                **self._origin(each.block_id, each.url, context),
            }
            for each in found[: max(1, limit)]
        ]

    def read_document(self, document: str, context: Context) -> _OBJECT:
        """Gives the text of a document that `ask` or `search` has named.

        Without what follows the "#" of a section, that of its whole file.
        """
        with self._request(context) as record:
            row, block_ids = self._handler.documents.of_id(document)
            if record.required_filter:
                # A search tells whether the key may see it.
                text = f"{row['title']} {row['text']}"
                found = self._run(record, signatures.RETRIEVE, text, "")
                if not {*found["block_id"][0]}.intersection(block_ids):
                    raise documents.missing(document)
        return {
            "title": row["title"],
            "text": row["text"],
            **self._origin(next(iter(block_ids), -1), row["url"], context),
            "document": document,
        }

    @contextlib.contextmanager
    def _request(self, context):
        """Checks the key, counts and logs; errors are for the assistant."""
        record = RequestRecord("Predict", "MCP", model=MODEL_NAME)
        try:
            # A program that starts the server itself needs no key.
            if context.headers is not None:
                self._handler.check_key(context.headers, record, "")
            with self._handler.recorded(record), self._handler.admitted():
                yield record
        except RequestError as error:
            raise ToolError(error.message) from error

    def _run(self, record, signature, text, filter):
        signature, inputs = with_filter(signature, [text], filter)
        arrays = {k: np.array(v, object) for k, v in inputs.items()}
        request = PredictRequest(arrays, signature)
        _, outputs = self._handler.predict(record, lambda _: request)
        return {name: array.tolist() for name, array in outputs.items()}

    def _origin(self, block_id, url, context):
        """Id and address of the document of a block."""
        served = self._handler.documents
        request, name = context.request_context.request, ""
        # A change of the corpus may just have removed it.
        with contextlib.suppress(RequestError):
            row = served.of_block(block_id)
            name = row["id"]
            if "://" not in url:
                _, mark, anchor = url.partition("#")
                if request is None:
                    address = pathlib.Path(served.path(row)).as_uri()
                else:
                    address = f"{request.base_url}documents/{block_id}"
                url = address + mark + anchor
        return {"source": url, "document": name}


def make(handler: RequestHandler) -> MCPServer:
    """The tools over a handler."""
    tools = _Tools(handler)
    about = {"instructions": _INSTRUCTIONS, "version": __version__}
    server = MCPServer("realm", **about, log_level="ERROR")
    for each in (tools.ask, tools.search, tools.read_document):
        server.add_tool(each, annotations=_READS)
    return server


def manager(handler: RequestHandler) -> StreamableHTTPSessionManager:
    """The protocol over HTTP, each request by itself.

    Keys and names of hosts are checked before.
    """
    server = make(handler)
    server.streamable_http_app(stateless_http=True, json_response=True, host="")
    return server.session_manager
