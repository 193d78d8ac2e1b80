"""What the page's script makes of an answer, in Node and without a browser."""

import json
import shutil
import subprocess

import pytest

from realm_tf.serving import rest_server

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node")

# As much of a document as the script needs; a node is written as markup.
DOCUMENT = """
class Element {
  constructor(tag) {
    Object.assign(this, {tag, children: [], className: ""});
    this.classList = {add: (name) => (this.className += ` ${name}`)};
  }
  setAttribute(name, value) {
    if (name === "class") this.className = value;
  }
  addEventListener() {}
  append(...nodes) { this.children.push(...nodes); }
  hasChildNodes() { return this.children.length > 0; }
  set textContent(text) { this.children = [text]; }
  toString() {
    return `<${this.tag} ${this.className}>${this.children.join("")}</>`;
  }
}
globalThis.document = {
  createElement: (tag) => new Element(tag),
  createElementNS: (_, tag) => new Element(tag),
};
const { readAnswer, render } = await import("./answer.mjs");
const outputs = JSON.parse(process.argv[2]);
const options = {filter: process.argv[3], headers: new Map(), total: 1};
console.log(render(readAnswer(outputs), options)[0].toString());
"""
NOTHING = {"answer": "", "answer_sentence": "", "block_id": -1}
TEXT = "\U0001f600 One sat. He sat. He sat."


def _headline(directory, filter="", **changes):
    for name, content in (
        ("answer.mjs", (rest_server.PAGE_DIRECTORY / "answer.js").read_text()),
        ("run.mjs", DOCUMENT),
    ):
        (directory / name).write_text(content)
    outputs = {
        "answer": "He",
        "score": 1.0,
        "confidence": 0.5,
        "answered": True,
        "block_id": 1,
        "title": "t",
        "text": TEXT,
        "url": "",
        # Of the last sentence, in code points.
        "start": 19,
        "limit": 21,
        "answer_sentence": "He sat.",
        "is_sentence": False,
        "nbest_answer": ["He"],
        "nbest_score": [1.0],
        **{
            f"candidate_{name}": []
            for name in ("block_id", "title", "text", "answer", "log_prob")
        },
        **changes,
    }
    outputs = {k: [v] for k, v in outputs.items() if v is not None}
    done = subprocess.run(
        [NODE, "run.mjs", json.dumps(outputs), filter],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    "changes, headline",
    [
        ({}, "<p answer sentence><mark >He</> sat.</>"),
        (
            {"answer": "One", "start": 2, "limit": 5}
            | {"answer_sentence": "\U0001f600 One sat."},
            "<p answer sentence>\U0001f600 <mark >One</> sat.</>",
        ),
        (
            {"answered": False},
            "<p answer none sentence><span remark>The documents do not seem to "
            "say this. The closest is:</><mark >He</> sat.</>",
        ),
        # All of the sentence answers.
        (
            {"answer": "He sat.", "limit": 26, "is_sentence": True},
            "<p answer sentence>He sat.</>",
        ),
        # An earlier export.
        ({"answer_sentence": None, "is_sentence": None}, "<p answer>He</>"),
        (
            NOTHING,
            "<p answer none><span remark>Nothing was found for this "
            "question.</></>",
        ),
        (
            {**NOTHING, "filter": "tags=hrr"},
            "<p answer none><span remark>No document matches the filter "
            "“tags=hrr”.</></>",
        ),
        # Offsets are those of what is escaped.
        (
            {"answer": "\u202eb", "start": 2, "limit": 4}
            | {"text": "\x1b[\u202eb.", "answer_sentence": "\x1b[\u202eb."},
            r"<p answer sentence>\u001b[<mark >\u202eb</>.</>",
        ),
    ],
)
def test_the_sentence_is_shown_with_answer_marked(tmp_path, changes, headline):
    assert _headline(tmp_path, **changes) == headline
