"""A site whose page shows answers of all kinds."""

import contextlib
import math
import threading
import urllib.parse

import grpc
import numpy as np
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from realm_tf.serving.client import MODEL_NAME
from realm_tf.serving.metrics import ServingMetrics
from realm_tf.serving.options import ServerOptions
from realm_tf.serving.options import bind
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import invalid
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.rest_server import RestServer

DEADLINE_SECONDS = 30
FRANKENSTEIN = (
    "Frankenstein is a novel that Mary Shelley began at eighteen, by Lake "
    "Geneva. It was printed in London in 1818 without her name."
)
SENTENCE = FRANKENSTEIN[: FRANKENSTEIN.index(" It was printed")]
GENEVA = "The summer of 1816 followed the eruption of Mount Tambora."
EVIL = '<img src=x onerror="hacked=1"><script>hacked=2</script>'
WRONG = "The graph failed on <b>this</b> question."
NOTHING = {
    "answer": "",
    "score": 0.0,
    "confidence": 0.0,
    "answered": False,
    "block_id": -1,
    "title": "",
    "text": "",
    "url": "",
    "start": 0,
    "limit": 0,
    "nbest": [("", 0.0)] * 3,
    "candidates": [],
}


def found(answer, text, *, title, **more):
    start = text.index(answer)
    return {
        **NOTHING,
        "answer": answer,
        "score": 12.504,
        "confidence": 0.756,
        "answered": True,
        "block_id": 7,
        "title": title,
        "text": text,
        "start": start,
        "limit": start + len(answer),
        "nbest": [(answer, 12.504), ("", 0.0), ("", 0.0)],
        "candidates": [(7, title, text, answer, math.log(0.7))],
        **more,
    }


ANSWERS = {
    "Who wrote Frankenstein?": found(
        "Mary Shelley",
        FRANKENSTEIN,
        answer_sentence=SENTENCE,
        is_sentence=False,
        title="Frankenstein: Origin",
        url="https://example.org/wiki/Frankenstein?a=1&b=2",
        nbest=[("Mary Shelley", 12.504), ("Percy Shelley", 9.25), ("", 0.0)],
        candidates=[
            (7, "Frankenstein", FRANKENSTEIN, "Mary Shelley", math.log(0.607)),
            (2, "Year Without a Summer", GENEVA, "Tambora", math.log(0.3)),
            # An older version of the same page.
            (9, "Summer of 1816", GENEVA, "Tambora", math.log(0.08)),
            (4, "Percy Bysshe Shelley", "A poet.", "", math.log(0.013)),
        ],
    ),
    EVIL: found(
        EVIL, f"before {EVIL} after", title=EVIL, url="javascript:hacked=3"
    ),
    "file": found("x", "x", title="A: B", url="docs/a.html#part"),
    "long": found(
        "w" * 300,
        "w" * 300,
        title="t" * 200,
        url="https://example.org/" + "u" * 300,
        nbest=[("w" * 300, 1.0), ("n" * 300, 0.5), ("", 0.0)],
    ),
    "nothing": NOTHING,
    "slow": found("late", "It came late.", title="Late"),
}
EXAMPLES = ["Who wrote Frankenstein?", "nothing", "\u202eWho"]
NUM_CANDIDATES = 5


def columns(answer):
    """An answer as the outputs of a signature, padded as exports are."""
    padding = (-1, "", "", "", -math.inf, "")
    rows = [
        (*candidate, f"https://example.org/{candidate[0]}")
        for candidate in answer["candidates"]
    ] + [padding] * NUM_CANDIDATES
    nested = {
        f"nbest_{name}": [[row[i] for row in answer["nbest"]]]
        for i, name in enumerate(["answer", "score"])
    }
    names = ["block_id", "title", "text", "answer", "log_prob", "url"]
    for i, name in enumerate(names):
        nested[f"candidate_{name}"] = [
            [row[i] for row in rows[:NUM_CANDIDATES]]
        ]
    single = {
        name: [value]
        for name, value in answer.items()
        if name not in ("nbest", "candidates")
    }
    return {
        name: as_array(values) for name, values in {**single, **nested}.items()
    }


def as_array(values):
    array = np.array(values)
    if array.dtype.kind == "U":
        return np.vectorize(lambda v: v.encode(), otypes=[object])(array)
    dtypes = {"f": np.float32, "i": np.int64, "b": bool}
    return array.astype(dtypes[array.dtype.kind])


class Servable:
    """Answers from `ANSWERS`; is its own manager, of one version."""

    directory = "none"
    version = 3
    card = {
        "num_blocks": 51234,
        "fields": ["tags"],
        "index": "ivf",
        "evidence_license": "CC BY-SA 4.0",
        "example_questions": EXAMPLES,
        "example_titles": ["Frankenstein", "Etna"],
    }

    def __init__(self):
        info = meta_graph_pb2.TensorInfo(dtype=types_pb2.DT_STRING)
        info.tensor_shape.dim.add(size=-1)
        definition = meta_graph_pb2.SignatureDef()
        definition.inputs["question"].CopyFrom(info)
        self.signature_defs = {"serving_default": definition}
        filtered = meta_graph_pb2.SignatureDef()
        filtered.inputs["question"].CopyFrom(info)
        filtered.inputs["filter"].CopyFrom(info)
        self.signature_defs["serving_default_filtered"] = filtered
        # Of each request.
        self.filters = []
        self.let_go = threading.Event()

    @contextlib.contextmanager
    def use(self, name, **choice):
        assert name == MODEL_NAME
        yield self.version, self

    def check(self, inputs, **arguments):
        pass

    def run(self, inputs, **arguments):
        (question,) = inputs["question"]
        (filter,) = inputs.get("filter", [b""])
        self.filters.append(filter)
        if filter == b"tag=hr":
            raise invalid("tag is no field of this corpus")
        if question == b"slow":
            assert self.let_go.wait(timeout=DEADLINE_SECONDS)
        if question.decode() not in ANSWERS:
            raise RequestError(grpc.StatusCode.UNAVAILABLE, WRONG)
        return columns(ANSWERS[question.decode()])


class Documents:
    """Shows a file for each block."""

    exist = True

    def __init__(self, file):
        self.file = file

    def values(self, names):
        return {name: ["hr", "\u202elaw"] for name in names}

    def of_block(self, block_id):
        return {}

    def path(self, row):
        return str(self.file)


@contextlib.contextmanager
def serving(servable, *, api_keys=None, documents=None):
    """The URL of the page over a servable."""
    options = ServerOptions(saved_model="none")
    handler = RequestHandler(
        servable, options=options, metrics=ServingMetrics(), api_keys=api_keys
    )
    handler.documents = documents or handler.documents
    server = RestServer(handler, bind("127.0.0.1", 0, flag=""))
    try:
        yield f"{server.url}/"
    finally:
        server.stop(grace_seconds=10)
        server.join(DEADLINE_SECONDS)


def go(page, url, question=None):
    if question is not None:
        url += "?" + urllib.parse.urlencode({"q": question})
    page.goto(url)


def ask(page, url, question):
    """Opens the link to a question and waits for its answer."""
    go(page, url, question)
    page.wait_for_selector("#result")


def texts(page, selector):
    return page.locator(selector).all_text_contents()
