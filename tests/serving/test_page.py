"""The web page, in a headless Chromium that is driven over its DevTools."""

import contextlib
import html.parser
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import grpc
import numpy as np
import pytest
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from realm_tf.serving.limits import Limits
from realm_tf.serving.metrics import ServingMetrics
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.request_log import RequestLog
from realm_tf.serving.rest import app as rest
from realm_tf.serving.rest import server as rest_server
from realm_tf.serving.rest.server import RestServer
from realm_tf.serving.security import ApiKeys

websockets = pytest.importorskip(
    "websockets.sync.client", reason="the browser is driven by a websocket"
)

PAGE = pathlib.Path(rest.__file__).with_name("page")
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
    padding = (-1, "", "", "", -math.inf)
    rows = answer["candidates"] + [padding] * NUM_CANDIDATES
    nested = {
        f"nbest_{name}": [[row[i] for row in answer["nbest"]]]
        for i, name in enumerate(["answer", "score"])
    }
    names = ["block_id", "title", "text", "answer", "log_prob"]
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
    }

    def __init__(self):
        info = meta_graph_pb2.TensorInfo(dtype=types_pb2.DT_STRING)
        info.tensor_shape.dim.add(size=-1)
        definition = meta_graph_pb2.SignatureDef()
        definition.inputs["question"].CopyFrom(info)
        self.signature_defs = {"serving_default": definition}
        self.let_go = threading.Event()

    def names(self):
        return ["a model"]

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
def serving(servable, *, api_key=None):
    """The URL of the page over a servable."""
    handler = RequestHandler(
        servable, limits=Limits(), metrics=ServingMetrics(), log=RequestLog()
    )
    app = rest.make_app(
        handler,
        max_body_bytes=1 << 20,
        api_key=api_key,
        default_model="a model",
    )
    server = RestServer(app, rest_server.bind("127.0.0.1", 0))
    try:
        yield f"{server.url}/"
    finally:
        server.stop(grace_seconds=10)
        server.join(DEADLINE_SECONDS)


def wait_until(condition, what):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)
    return value


@pytest.fixture(scope="module")
def servable():
    servable = Servable()
    yield servable
    servable.let_go.set()


@pytest.fixture(scope="module")
def site(servable):
    with serving(servable) as url:
        yield url


class Tab:
    """A page of the browser.

    Args:
        socket: its DevTools connection.
    """

    def __init__(self, socket):
        self._socket = socket
        self._ids = itertools.count(1)
        self.complaints = []
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")
        self.command("Emulation.setFocusEmulationEnabled", enabled=True)

    def command(self, method, **parameters):
        number = next(self._ids)
        self._socket.send(
            json.dumps({"id": number, "method": method, "params": parameters})
        )
        while True:
            message = json.loads(self._socket.recv(timeout=DEADLINE_SECONDS))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, event):
        parameters = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.complaints.append(parameters["exceptionDetails"])
        entry = parameters.get("entry", {})
        # A status that is no success is no defect of the page.
        if entry.get("level") == "error" and entry["source"] != "network":
            self.complaints.append(entry)

    def js(self, expression):
        result = self.command(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def text(self, selector):
        return self.js(
            f"document.querySelector({json.dumps(selector)})?.innerText"
        )

    def texts(self, selector):
        return self.js(
            f"Array.from(document.querySelectorAll({json.dumps(selector)}), "
            "(node) => node.textContent)"
        )

    def wait_for(self, expression):
        return wait_until(lambda: self.js(expression), expression)

    def go(self, url, question=None):
        if question is not None:
            url += "?" + urllib.parse.urlencode({"q": question})
        self.command("Page.navigate", url=url)
        self.wait_for(
            f"location.href === {json.dumps(url)} && "
            "document.readyState === 'complete'"
        )

    def ask(self, url, question):
        """Opens the link to a question and waits for its answer."""
        self.go(url, question)
        self.wait_for("!document.querySelector('#result').hidden")

    def type(self, text):
        self.command("Input.insertText", text=text)

    def press(self, key):
        typed = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "/": 191}
        for kind in ("keyDown", "keyUp"):
            self.command(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=codes[key],
                **({"text": typed} if typed and kind == "keyDown" else {}),
            )

    def resize(self, width, *, dark=False):
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = "dark" if dark else "light"
        self.command(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """The port of a headless Chromium's DevTools."""
    profile = tmp_path_factory.mktemp("chromium")
    command = [
        CHROMIUM,
        "--headless=new",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "about:blank",
    ]
    if os.geteuid() == 0:
        command.insert(1, "--no-sandbox")
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port_file = profile / "DevToolsActivePort"
        wait_until(
            lambda: port_file.exists() and "\n" in port_file.read_text(),
            "the browser starts",
        )
        yield int(port_file.read_text().splitlines()[0])
    finally:
        process.terminate()
        process.wait(timeout=DEADLINE_SECONDS)


@pytest.fixture
def tab(browser):
    request = urllib.request.Request(
        f"http://127.0.0.1:{browser}/json/new?about:blank", method="PUT"
    )
    with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
        address = json.load(answer)["webSocketDebuggerUrl"]
    with websockets.connect(address, max_size=None) as socket:
        tab = Tab(socket)
        tab.resize(1280)
        yield tab
        assert tab.complaints == []
        tab.command("Page.close")


@needs_chromium
def test_a_question_is_answered_with_its_evidence(tab, site):
    tab.go(site)
    tab.wait_for("!document.querySelector('#examples').hidden")
    assert tab.texts("#example-list a") == EXAMPLES
    assert tab.text("#corpus") == (
        "Answered from 51,234 blocks of text · model a model, version 3 · "
        "index ivf"
    )
    assert tab.js("document.activeElement.id") == "question"
    tab.type("Who wrote Frankenstein?")
    tab.press("Enter")
    tab.wait_for("!document.querySelector('#result').hidden")
    assert tab.js("location.search") == "?q=Who+wrote+Frankenstein%3F"
    assert tab.js("document.title") == "Who wrote Frankenstein?"
    assert tab.text(".answer") == "Mary Shelley"
    assert tab.texts(".facts span") == ["confidence 0.76", "score 12.50"]
    assert tab.text("#evidence h2") == "Frankenstein"
    assert tab.texts("#evidence mark") == ["Mary Shelley"]
    assert tab.texts("#evidence .text") == [FRANKENSTEIN]
    link = tab.js(
        "(({href, rel}) => [href, rel])(document.querySelector('.source a'))"
    )
    url = ANSWERS["Who wrote Frankenstein?"]["url"]
    assert link == [url, "noopener noreferrer"]
    assert tab.text(".source") == f"Source: {url}\nLicence: CC BY-SA 4.0"
    assert tab.texts("#status") == ["Answer: Mary Shelley. From: Frankenstein."]
    assert re.fullmatch(
        r"Answered in \d+ ms, of which \d+ ms on the server\.",
        tab.text(".timings"),
    )


@needs_chromium
def test_candidates_and_other_answers(tab, site):
    tab.ask(site, "Who wrote Frankenstein?")
    assert tab.texts("#blocks .number") == [
        "60.7 %",
        "30.0 %",
        "8.0 %",
        "1.3 %",
    ]
    widths = tab.js(
        "Array.from(document.querySelectorAll('.bar'), (b) => "
        "b.children[1].getBoundingClientRect().width / "
        "b.children[0].getBoundingClientRect().width)"
    )
    assert widths == pytest.approx([0.607, 0.3, 0.08, 0.013], abs=0.002)
    assert tab.texts("#blocks .title")[1] == "Year Without a Summer"
    assert tab.texts("#blocks .own") == [
        "Mary Shelley",
        "Tambora",
        "no answer",
        "a poet",
    ]
    assert tab.texts("#blocks .chosen .title") == ["Frankenstein"]
    assert tab.texts("#nbest dd") == ["Mary Shelley", "Percy Shelley"]
    assert tab.texts("#nbest dt") == ["12.50", "9.25"]


@needs_chromium
def test_blocks_unfold_by_keyboard(tab, site):
    tab.ask(site, "Who wrote Frankenstein?")
    assert tab.js("document.querySelectorAll('#blocks [open]').length") == 0
    tab.js("document.querySelector('#question').focus()")
    reached = []
    for _ in range(12):
        tab.press("Tab")
        reached.append(
            tab.js(
                "document.activeElement.querySelector('.title')?.textContent"
            )
        )
        if reached[-1] == "Year Without a Summer":
            break
    assert "Frankenstein" in reached
    tab.press("Enter")
    assert tab.texts("#blocks [open] .text") == [GENEVA]


@needs_chromium
def test_offsets_count_code_points(tab, site):
    tab.ask(site, "astral")
    assert tab.texts("#evidence mark") == ["Mary\U0001f600"]
    assert tab.texts("#evidence .text") == [ASTRAL]


@needs_chromium
def test_markup_is_text(tab, site):
    tab.ask(site, EVIL)
    assert tab.js("document.querySelector('#question').value") == EVIL
    assert tab.texts(".answer") == [EVIL]
    assert tab.texts("#evidence h2") == [EVIL]
    assert tab.texts("#evidence mark") == [EVIL]
    assert tab.texts("#blocks .own") == [EVIL]
    assert tab.js("document.title") == EVIL
    # An address that would run is shown and cannot be followed.
    assert tab.text(".source").startswith("Source: javascript:hacked=3\n")
    assert tab.js("document.querySelectorAll('.source a').length") == 0
    assert tab.js("typeof hacked") == "undefined"
    assert tab.js("document.querySelectorAll('img').length") == 0
    assert tab.js("document.scripts.length") == 1


@needs_chromium
def test_a_source_that_is_no_address_is_text(tab, site):
    tab.ask(site, "plain source")
    assert tab.text(".source").startswith("Source: a dump of 2024\n")
    assert tab.js("document.querySelectorAll('.source a').length") == 0


@needs_chromium
def test_no_answer(tab, site):
    tab.ask(site, "nothing")
    assert tab.text(".answer") == "No answer found."
    assert tab.js("document.querySelector('#evidence')") is None
    assert tab.texts("#blocks .title") == ["Etna"]
    assert tab.texts("#nbest dd") == []


@needs_chromium
def test_errors_are_told_in_the_servers_words(tab, site):
    tab.go(site, "unheard of")
    tab.wait_for("!document.querySelector('#problem').hidden")
    assert tab.text("#problem-text") == (
        "The server did not answer (status 503)."
    )
    assert tab.text("#problem-words") == WRONG
    ANSWERS["unheard of"] = ANSWERS["plain source"]
    try:
        tab.js("document.querySelector('#retry').click()")
        tab.wait_for("!document.querySelector('#result').hidden")
    finally:
        del ANSWERS["unheard of"]
    assert tab.js("document.querySelector('#problem').hidden") is True


@needs_chromium
def test_keys_and_history(tab, site):
    tab.ask(site, "plain source")
    tab.js("document.activeElement.blur()")
    tab.press("/")
    assert tab.js("document.activeElement.id") == "question"
    # It selects what is there, so that typing replaces it.
    tab.type("astral")
    tab.press("Enter")
    tab.wait_for("document.querySelector('mark')?.textContent !== 'x'")
    tab.press("Escape")
    assert tab.js("document.querySelector('#question').value") == ""
    assert tab.js("document.querySelector('#result').hidden") is True
    assert tab.js("location.search") == ""
    tab.js("history.go(-2)")
    tab.wait_for("document.querySelector('mark')?.textContent === 'x'")
    assert tab.js("document.querySelector('#question').value") == (
        "plain source"
    )


@needs_chromium
def test_examples_are_links(tab, site):
    tab.go(site)
    tab.wait_for("!document.querySelector('#examples').hidden")
    link = tab.js("document.querySelector('#example-list a').href")
    assert link == f"{site}?q=Who+wrote+Frankenstein%3F"
    tab.js("document.querySelector('#example-list a').click()")
    tab.wait_for("!document.querySelector('#result').hidden")
    assert tab.js("location.href") == link
    assert tab.js("document.querySelector('#examples').hidden") is True


@needs_chromium
def test_the_link_is_copied(tab, site):
    tab.command("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    tab.ask(site, "plain source")
    tab.js("document.querySelector('.facts button').click()")
    tab.wait_for(
        "document.querySelector('.facts button').textContent === 'Copied'"
    )
    copied = tab.js("navigator.clipboard.readText()")
    assert copied == f"{site}?q=plain+source"


@needs_chromium
def test_where_there_is_no_clipboard_the_link_is_shown(tab, site):
    tab.ask(site, "plain source")
    tab.js("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    tab.js("document.querySelector('.facts button').click()")
    tab.wait_for("document.activeElement.matches('.facts input')")
    assert tab.js("getSelection().toString()") == f"{site}?q=plain+source"


@needs_chromium
def test_waiting_shows_only_when_it_is_long(tab, site, servable):
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
    tab.go(site)
    tab.wait_for("!document.querySelector('#examples').hidden")
    tab.js(watch)
    tab.type("slow")
    tab.press("Enter")
    tab.wait_for("!document.querySelector('#progress').hidden")
    assert tab.text("#status") == "Asking the server."
    # A second question takes the place of the first.
    tab.press("/")
    tab.js("document.querySelector('#question').select()")
    tab.type("astral")
    tab.press("Enter")
    tab.wait_for("document.querySelector('mark')?.textContent !== undefined")
    servable.let_go.set()
    tab.wait_for("document.querySelector('#progress').hidden")
    assert tab.texts("#evidence h2") == ["Astral"]
    ((what, milliseconds), *later) = tab.js("seen")
    assert (what, milliseconds >= 200) == ("progress", True)
    # Nor was the end of the first question an error.
    assert "problem" not in dict(later)


@needs_chromium
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(tab, site, width):
    tab.resize(width)
    for question in (EXAMPLES[0], "long", EVIL):
        tab.ask(site, question)
        tab.js(
            "for (const d of document.querySelectorAll('details')) "
            "d.open = true"
        )
        assert tab.js("document.documentElement.scrollWidth") <= width


@needs_chromium
def test_dark_where_the_system_is_dark(tab, site):
    light, dark = schemes()
    for is_dark, colours in ((False, light), (True, dark)):
        tab.resize(1280, dark=is_dark)
        tab.ask(site, EXAMPLES[0])
        shown = tab.js(
            "[getComputedStyle(document.body).backgroundColor, "
            "getComputedStyle(document.querySelector('mark')).color]"
        )
        assert shown == [rgb(colours["paper"]), rgb(colours["on-mark"])]


@needs_chromium
def test_a_key_is_asked_for(tab):
    with serving(Servable(), api_key=ApiKeys([KEY])) as site:
        tab.go(site, "plain source")
        tab.wait_for("document.activeElement.id === 'key'")
        tab.type("wrong")
        tab.press("Enter")
        tab.wait_for(
            "document.activeElement.id === 'key' && "
            "sessionStorage.length === 0 && "
            "document.querySelector('#key').value === ''"
        )
        tab.type(KEY)
        tab.press("Enter")
        tab.wait_for("!document.querySelector('#result').hidden")
        assert tab.texts("#evidence h2") == ["x"]
        assert KEY not in tab.js("location.href")
        tab.go("about:blank")


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
