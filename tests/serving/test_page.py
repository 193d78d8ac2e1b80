"""The web page, in Chromium."""

import contextlib
import html.parser
import math
import os
import re
import shutil
import threading
import urllib.parse

import grpc
import numpy as np
import pytest
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from realm_tf.serving import rest_api
from realm_tf.serving import rest_server
from realm_tf.serving.metrics import ServingMetrics
from realm_tf.serving.options import ServerOptions
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.request_log import RequestLog
from realm_tf.serving.rest_server import RestServer
from realm_tf.serving.security import ApiKeys

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright drives the browser"
)
expect = sync_api.expect

PAGE = rest_api.PAGE_DIRECTORY
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium"
)
DEADLINE_SECONDS = 30
KEY = "k" * 32
FRANKENSTEIN = (
    "Frankenstein is a novel that Mary Shelley began at eighteen, in the wet "
    "summer of 1816 by Lake Geneva, where four friends had agreed to write a "
    "ghost story each. It was printed in London in 1818 without her name, and "
    "many took Percy Shelley for its author. The title names the student who "
    "makes the creature; the creature itself has no name in the book."
)
GENEVA = (
    "The summer of 1816 was the coldest in Europe for a century, after the "
    "eruption of Mount Tambora. The guests of the Villa Diodati stayed inside "
    "and read German ghost stories aloud."
)
# Eight code points, fifteen UTF-16 units, stand before the answer.
ASTRAL = "\U0001d509\U0001d52f\U0001d51e\U0001f600\U0001f468\u200d\U0001f469 is by Mary\U0001f600."
EVIL = '<img src=x onerror="hacked=1"><script>hacked=2</script>'
WRONG = "The graph failed on <b>this</b> question."
NOTHING = {
    "answer": "",
    "score": 0.0,
    "confidence": 0.0,
    "block_id": -1,
    "title": "",
    "text": "",
    "url": "",
    "start": 0,
    "limit": 0,
    "nbest": [("", 0.0)] * 3,
    "candidates": [],
}


def found(answer, text, *, title, start=None, **more):
    start = text.index(answer) if start is None else start
    return {
        **NOTHING,
        "answer": answer,
        "score": 12.504,
        "confidence": 0.756,
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
        title="Frankenstein",
        url="https://example.org/wiki/Frankenstein?a=1&b=2",
        nbest=[("Mary Shelley", 12.504), ("Percy Shelley", 9.25), ("", 0.0)],
        candidates=[
            (7, "Frankenstein", FRANKENSTEIN, "Mary Shelley", math.log(0.607)),
            (2, "Year Without a Summer", GENEVA, "Tambora", math.log(0.3)),
            (9, "Geneva", "A city on a lake.", "", math.log(0.08)),
            (4, "Percy Bysshe Shelley", "A poet.", "a poet", math.log(0.013)),
        ],
    ),
    "astral": found("Mary\U0001f600", ASTRAL, title="Astral"),
    EVIL: found(
        EVIL, f"before {EVIL} after", title=EVIL, url="javascript:hacked=3"
    ),
    "plain source": found("x", "x", title="x", url="a dump of 2024"),
    "long": found(
        "w" * 300,
        "w" * 300,
        title="t" * 200,
        url="https://example.org/" + "u" * 300,
        nbest=[("w" * 300, 1.0), ("n" * 300, 0.5), ("", 0.0)],
    ),
    "nothing": {**NOTHING, "candidates": [(5, "Etna", "A hill.", "", -0.1)]},
    "slow": found("late", "It came late.", title="Late"),
}
EXAMPLES = ["Who wrote Frankenstein?", "nothing"]
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
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)


class Servable:
    """Answers from `ANSWERS`; is its own manager, of one version."""

    directory = "none"
    card = {
        "num_blocks": 51234,
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
        self.let_go = threading.Event()

    @contextlib.contextmanager
    def use(self, name, **choice):
        assert name == "a model"
        yield 3, self

    def run(self, inputs, **arguments):
        (question,) = inputs["question"]
        if question == b"slow":
            assert self.let_go.wait(timeout=DEADLINE_SECONDS)
        if question.decode() not in ANSWERS:
            raise RequestError(grpc.StatusCode.UNAVAILABLE, WRONG)
        return columns(ANSWERS[question.decode()])


@contextlib.contextmanager
def serving(servable, *, api_keys=None):
    """The URL of the page over a servable."""
    options = ServerOptions(saved_model="none", model_name="a model")
    handler = RequestHandler(
        servable, options=options, metrics=ServingMetrics(), log=RequestLog()
    )
    app = rest_api.make_app(handler, api_keys=api_keys)
    bound = rest_server.bind("127.0.0.1", 0, flag="")
    server = RestServer(app, bound, options)
    try:
        yield f"{server.url}/"
    finally:
        server.stop(grace_seconds=10)
        server.join(DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def servable():
    servable = Servable()
    yield servable
    servable.let_go.set()


@pytest.fixture(scope="module")
def site(servable):
    with serving(servable) as url:
        yield url


@pytest.fixture(scope="module")
def browser():
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=options
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A tab of its own; what it complains of fails the test."""
    complaints = []
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(1000 * DEADLINE_SECONDS)
    page.on("pageerror", lambda error: complaints.append(error))

    def note(message):
        # A status that is no success is no defect of the page.
        if message.type == "error" and "status of" not in message.text:
            complaints.append(message.text)

    page.on("console", note)
    yield page
    page.close()
    assert complaints == []


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


@needs_chromium
def test_a_question_is_answered_with_its_evidence(page, site):
    go(page, site)
    page.wait_for_selector("#examples")
    assert texts(page, "#example-list a") == EXAMPLES
    assert page.inner_text("#corpus") == (
        "Answered from 51,234 blocks of text · such as Frankenstein, Etna · "
        "model a model, version 3 · index ivf"
    )
    assert page.evaluate("document.activeElement.id") == "question"
    page.keyboard.insert_text("Who wrote Frankenstein?")
    page.keyboard.press("Enter")
    page.wait_for_selector("#result")
    assert page.evaluate("location.search") == "?q=Who+wrote+Frankenstein%3F"
    assert page.evaluate("document.title") == "Who wrote Frankenstein?"
    assert page.inner_text(".answer") == "Mary Shelley"
    assert texts(page, ".facts span") == ["confidence 0.76", "score 12.50"]
    assert page.inner_text("#evidence h2") == "Frankenstein"
    assert texts(page, "#evidence mark") == ["Mary Shelley"]
    assert texts(page, "#evidence .text") == [FRANKENSTEIN]
    link = page.evaluate(
        "(({href, rel}) => [href, rel])(document.querySelector('.source a'))"
    )
    url = ANSWERS["Who wrote Frankenstein?"]["url"]
    assert link == [url, "noopener noreferrer"]
    assert page.inner_text(".source") == f"Source: {url}\nLicence: CC BY-SA 4.0"
    assert texts(page, "#status") == [
        "Answer: Mary Shelley. From: Frankenstein."
    ]
    assert re.fullmatch(
        r"Answered in \d+ ms, of which \d+ ms on the server\.",
        page.inner_text(".timings"),
    )


@needs_chromium
def test_candidates_and_other_answers(page, site):
    ask(page, site, "Who wrote Frankenstein?")
    assert texts(page, "#blocks .number") == [
        "60.7 %",
        "30.0 %",
        "8.0 %",
        "1.3 %",
    ]
    widths = page.evaluate(
        "Array.from(document.querySelectorAll('.bar'), (b) => "
        "b.children[1].getBoundingClientRect().width / "
        "b.children[0].getBoundingClientRect().width)"
    )
    assert widths == pytest.approx([0.607, 0.3, 0.08, 0.013], abs=0.002)
    assert texts(page, "#blocks .title")[1] == "Year Without a Summer"
    assert texts(page, "#blocks .own") == [
        "Mary Shelley",
        "Tambora",
        "no answer",
        "a poet",
    ]
    assert texts(page, "#blocks .chosen .title") == ["Frankenstein"]
    assert texts(page, "#nbest dd") == ["Mary Shelley", "Percy Shelley"]
    assert texts(page, "#nbest dt") == ["12.50", "9.25"]


@needs_chromium
def test_blocks_unfold_by_keyboard(page, site):
    ask(page, site, "Who wrote Frankenstein?")
    assert (
        page.evaluate("document.querySelectorAll('#blocks [open]').length") == 0
    )
    page.evaluate("document.querySelector('#question').focus()")
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "document.activeElement.querySelector('.title')?.textContent"
            )
        )
        if reached[-1] == "Year Without a Summer":
            break
    assert "Frankenstein" in reached
    page.keyboard.press("Enter")
    assert texts(page, "#blocks [open] .text") == [GENEVA]
    link = page.locator("#blocks [open] .source a")
    assert link.get_attribute("href") == "https://example.org/2"


@needs_chromium
def test_offsets_count_code_points(page, site):
    ask(page, site, "astral")
    assert texts(page, "#evidence mark") == ["Mary\U0001f600"]
    assert texts(page, "#evidence .text") == [ASTRAL]


@needs_chromium
def test_markup_is_text(page, site):
    ask(page, site, EVIL)
    assert page.evaluate("document.querySelector('#question').value") == EVIL
    assert texts(page, ".answer") == [EVIL]
    assert texts(page, "#evidence h2") == [EVIL]
    assert texts(page, "#evidence mark") == [EVIL]
    assert texts(page, "#blocks .own") == [EVIL]
    assert page.evaluate("document.title") == EVIL
    # An address that would run is shown and cannot be followed.
    assert page.inner_text(".source").startswith(
        "Source: javascript:hacked=3\n"
    )
    assert page.evaluate("document.querySelectorAll('#evidence a').length") == 0
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.scripts.length") == 1


@needs_chromium
def test_a_source_that_is_no_address_is_text(page, site):
    ask(page, site, "plain source")
    assert page.inner_text(".source").startswith("Source: a dump of 2024\n")
    assert page.evaluate("document.querySelectorAll('#evidence a').length") == 0


@needs_chromium
def test_no_answer(page, site):
    ask(page, site, "nothing")
    assert page.inner_text(".answer") == "No answer found."
    assert page.evaluate("document.querySelector('#evidence')") is None
    assert texts(page, "#blocks .title") == ["Etna"]
    assert texts(page, "#nbest dd") == []


@needs_chromium
def test_errors_are_told_in_the_servers_words(page, site):
    go(page, site, "unheard of")
    page.wait_for_selector("#problem")
    assert page.inner_text("#problem-text") == (
        "The server did not answer (status 503)."
    )
    assert page.inner_text("#problem-words") == WRONG
    ANSWERS["unheard of"] = ANSWERS["plain source"]
    try:
        page.click("#retry")
        page.wait_for_selector("#result")
    finally:
        del ANSWERS["unheard of"]
    assert page.evaluate("document.querySelector('#problem').hidden") is True


@needs_chromium
def test_keys_and_history(page, site):
    ask(page, site, "plain source")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "question"
    # It selects what is there, so that typing replaces it.
    page.keyboard.insert_text("astral")
    page.keyboard.press("Enter")
    expect(page.locator("mark")).not_to_have_text("x")
    page.keyboard.press("Escape")
    assert page.evaluate("document.querySelector('#question').value") == ""
    assert page.evaluate("document.querySelector('#result').hidden") is True
    assert page.evaluate("location.search") == ""
    page.evaluate("history.go(-2)")
    expect(page.locator("mark")).to_have_text("x")
    assert page.evaluate("document.querySelector('#question').value") == (
        "plain source"
    )


@needs_chromium
def test_examples_are_links(page, site):
    go(page, site)
    page.wait_for_selector("#examples")
    link = page.evaluate("document.querySelector('#example-list a').href")
    assert link == f"{site}?q=Who+wrote+Frankenstein%3F"
    page.click("#example-list a")
    page.wait_for_selector("#result")
    assert page.evaluate("location.href") == link
    assert page.evaluate("document.querySelector('#examples').hidden") is True


@needs_chromium
def test_the_link_is_copied(page, site):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    ask(page, site, "plain source")
    page.click(".facts button")
    expect(page.locator(".facts button")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"{site}?q=plain+source"


@needs_chromium
def test_where_there_is_no_clipboard_the_link_is_shown(page, site):
    ask(page, site, "plain source")
    page.evaluate(
        "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
    )
    page.click(".facts button")
    expect(page.locator(".facts input")).to_be_focused()
    assert (
        page.evaluate("getSelection().toString()") == f"{site}?q=plain+source"
    )


@needs_chromium
def test_waiting_shows_only_when_it_is_long(page, site, servable):
    # When what was seen, in milliseconds since the question.
    watch = """
      window.seen = [];
      for (const id of ['progress', 'problem']) {
        const node = document.getElementById(id);
        new MutationObserver(() => {
          if (!node.hidden) seen.push([id, performance.now() - asked]);
        }).observe(node, {attributeFilter: ['hidden']});
      }
      document.getElementById('ask').addEventListener(
        'submit', () => { window.asked = performance.now(); }, true);
    """
    go(page, site)
    page.wait_for_selector("#examples")
    page.evaluate(watch)
    page.keyboard.insert_text("slow")
    page.keyboard.press("Enter")
    page.wait_for_selector("#progress", state="visible")
    assert page.inner_text("#status") == "Asking the server."
    # A second question takes the place of the first.
    page.keyboard.press("/")
    page.evaluate("document.querySelector('#question').select()")
    page.keyboard.insert_text("astral")
    page.keyboard.press("Enter")
    expect(page.locator("mark")).to_be_visible()
    servable.let_go.set()
    expect(page.locator("#progress")).to_be_hidden()
    assert texts(page, "#evidence h2") == ["Astral"]
    ((what, milliseconds), *later) = page.evaluate("seen")
    assert (what, milliseconds >= 200) == ("progress", True)
    # Nor was the end of the first question an error.
    assert "problem" not in dict(later)


@needs_chromium
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(page, site, width):
    page.set_viewport_size({"width": width, "height": 800})
    for question in (EXAMPLES[0], "long", EVIL):
        ask(page, site, question)
        page.evaluate(
            "for (const d of document.querySelectorAll('details')) "
            "d.open = true"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@needs_chromium
def test_dark_where_the_system_is_dark(page, site):
    light, dark = schemes()
    for scheme, colours in (("light", light), ("dark", dark)):
        page.emulate_media(color_scheme=scheme)
        ask(page, site, EXAMPLES[0])
        shown = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, "
            "getComputedStyle(document.querySelector('mark')).color]"
        )
        assert shown == [rgb(colours["paper"]), rgb(colours["on-mark"])]


@needs_chromium
def test_a_key_is_asked_for(page):
    with serving(Servable(), api_keys=ApiKeys([KEY])) as site:
        go(page, site, "plain source")
        expect(page.locator("#key")).to_be_focused()
        page.keyboard.insert_text("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#key")).to_have_value("")
        expect(page.locator("#key")).to_be_focused()
        expect(page.locator("#access")).to_be_visible()
        page.keyboard.insert_text(KEY)
        page.keyboard.press("Enter")
        page.wait_for_selector("#result")
        assert texts(page, "#evidence h2") == ["x"]
        assert KEY not in page.evaluate("location.href")
        go(page, "about:blank")


def schemes():
    """The colours of the light and of the dark scheme by name."""
    blocks = re.findall(
        r":root \{(.*?)\}", (PAGE / "page.css").read_text(), re.S
    )
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in blocks
    )
    assert set(light) == set(dark)
    return light, dark


def channels(colour):
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def rgb(colour):
    return f"rgb({', '.join(map(str, channels(colour)))})"


def luminance(colour):
    """Relative luminance of WCAG 2.1."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (value / 255 for value in channels(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1])
def test_texts_can_be_read(scheme):
    colours = schemes()[scheme]
    pairs = [
        ("on-accent", "accent"),
        ("on-mark", "mark"),
        ("problem", "raised"),
    ]
    for name in ("ink", "quiet", "accent"):
        pairs += [(name, "paper"), (name, "raised")]
    for front, back in pairs:
        lighter, darker = sorted(
            (luminance(colours[front]), luminance(colours[back])), reverse=True
        )
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (front, back)


class Markup(html.parser.HTMLParser):
    """Collects what the content security policy would not run or load."""

    def __init__(self):
        super().__init__()
        self.files = []
        self.inline = []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("src", "href"):
                self.files.append(value)
            if name == "style" or name.startswith("on"):
                self.inline.append((tag, name))
        if tag == "style" or (
            tag == "script" and "src" not in dict(attributes)
        ):
            self.inline.append((tag, ""))


def test_the_page_is_files_of_its_own():
    markup = Markup()
    markup.feed((PAGE / "index.html").read_text())
    assert markup.inline == []
    assert sorted(markup.files) == [
        "answer.css",
        "icon.svg",
        "page.css",
        "page.js",
    ]
    for name in markup.files:
        assert (PAGE / name).is_file()
    for style in PAGE.glob("*.css"):
        assert "url(" not in style.read_text()
    script = "".join(path.read_text() for path in PAGE.glob("*.js"))
    for risk in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "eval(",
        ".write(",
    ):
        assert risk not in script
    assert set(re.findall(r"https?://[\w.]+", script)) == {
        "http://www.w3.org"  # the namespace of SVG
    }
