"""The web page, in Chromium."""

import os
import shutil

import pytest
from page_site import ANSWERS
from page_site import EVIL
from page_site import EXAMPLES
from page_site import FRANKENSTEIN
from page_site import GENEVA
from page_site import SENTENCE
from page_site import WRONG
from page_site import Documents
from page_site import Servable
from page_site import ask
from page_site import found
from page_site import go
from page_site import serving
from page_site import texts
from page_style import rgb
from page_style import schemes

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright drives the browser"
)
expect = sync_api.expect
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
KEY = "k" * 32


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
    page.on("pageerror", lambda error: complaints.append(error))

    def note(message):
        # A server that refuses or is gone is no defect of the page.
        if message.type == "error" and "Failed to" not in message.text:
            complaints.append(message.text)

    page.on("console", note)
    yield page
    page.close()
    assert complaints == []


def test_a_question_is_answered_with_its_evidence(page, site):
    go(page, site)
    page.wait_for_selector("#examples")
    shown = [*EXAMPLES[:2], r"\u202eWho"]
    assert texts(page, "#example-list a") == shown
    assert page.inner_text("#corpus") == (
        "Answers from 51,234 passages, such as Frankenstein, Etna"
    )
    assert page.evaluate("document.activeElement.id") == "question"
    page.click("#example-list a")
    page.wait_for_selector("#result")
    assert page.is_hidden("#examples")
    assert page.evaluate("location.search") == "?q=Who+wrote+Frankenstein%3F"
    assert page.title() == "Who wrote Frankenstein?"
    assert page.inner_text(".answer") == SENTENCE
    assert texts(page, ".answer mark") == ["Mary Shelley"]
    assert texts(page, ".facts span") == ["76 % sure"]
    assert page.inner_text("#evidence h2") == "Frankenstein: Origin"
    assert texts(page, "#evidence mark") == ["Mary Shelley"]
    assert texts(page, "#evidence .text") == [FRANKENSTEIN]
    link = page.evaluate(
        "(({href, rel}) => [href, rel])(document.querySelector('.source a'))"
    )
    url = ANSWERS["Who wrote Frankenstein?"]["url"]
    assert link == [url, "noopener noreferrer"]
    assert page.inner_text(".source") == f"Source: {url}\nLicence: CC BY-SA 4.0"
    status = "Answer: Mary Shelley. From: Frankenstein: Origin."
    assert texts(page, "#status") == [status]


def test_equal_texts_are_shown_once_and_numbers_are_details(page, site):
    ask(page, site, "Who wrote Frankenstein?")
    assert texts(page, "#others .title") == [
        *("Year Without a Summer", "Percy Bysshe Shelley")
    ]
    assert texts(page, "#others .own") == ["Tambora"]
    shown = page.inner_text("body").lower()
    for word in ("p(z|x)", "block", "candidate", "index", "score"):
        assert word not in shown
    page.focus("#others summary")
    page.keyboard.press("Enter")
    assert texts(page, "#others [open] .text") == [GENEVA]
    # The answer that this one alone would give.
    assert texts(page, "#others [open] mark") == ["Tambora"]
    link = page.locator("#others [open] .source a")
    assert link.get_attribute("href") == "https://example.org/2"
    page.click("#details summary")
    assert texts(page, "#blocks dt") == ["0.607", "0.300", "0.080", "0.013"]
    assert texts(page, "#nbest dd") == ["Mary Shelley", "Percy Shelley"]
    assert texts(page, "#nbest dt") == ["12.50", "9.25"]
    assert "version 3, index ivf." in page.inner_text("#details")


def test_markup_is_text(page, site):
    ask(page, site, EVIL)
    assert page.input_value("#question") == EVIL
    for place in (".answer", "#evidence h2", "#evidence mark"):
        assert texts(page, place) == [EVIL]
    assert page.title() == EVIL
    # An address that would run is shown and cannot be followed.
    assert page.inner_text(".source").startswith("Source: javascript:hacked=3")
    assert page.locator("#evidence a").count() == 0
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("img").count() == 0


# The last two sentences are equal; the answer is in the last.
TEXT = "\U0001f600 One sat. He sat. He sat."
LAST = {"start": 19, "limit": 21, "answer_sentence": "He sat."}


@pytest.mark.parametrize(
    "answer, text, more, html",
    [
        ("He", TEXT, LAST, "<mark>He</mark> sat."),
        (
            *("One", TEXT, {"answer_sentence": "\U0001f600 One sat."}),
            "\U0001f600 <mark>One</mark> sat.",
        ),
        (
            *("He", TEXT, {**LAST, "answered": False}),
            '<span class="remark">The documents do not seem to say this. '
            "The closest is:</span><mark>He</mark> sat.",
        ),
        # All of the sentence answers.
        (
            *("He sat.", TEXT, {**LAST, "limit": 26, "is_sentence": True}),
            "He sat.",
        ),
        # Offsets are those of what is escaped.
        (
            *("\u202eb", "\x1b[\u202eb.", {"answer_sentence": "\x1b[\u202eb."}),
            r"\u001b[<mark>\u202eb</mark>.",
        ),
    ],
)
def test_the_sentence_is_shown_with_answer_marked(
    page, site, monkeypatch, answer, text, more, html
):
    shown = found(answer, text, title="t", **more)
    monkeypatch.setitem(ANSWERS, "asked", shown)
    ask(page, site, "asked")
    assert page.inner_html(".answer") == html
    classes = page.get_attribute(".answer", "class").split()
    assert ("none" in classes) == ("remark" in html)


def test_errors_are_told_in_the_servers_words(page, servable, monkeypatch):
    with serving(servable) as site:
        go(page, site, "unheard of")
        page.wait_for_selector("#problem")
        assert page.inner_text("#problem-text") == (
            "The server did not answer (status 503)."
        )
        assert page.inner_text("#problem-words") == WRONG
        monkeypatch.setitem(ANSWERS, "unheard of", ANSWERS[EVIL])
        page.click("#retry")
        page.wait_for_selector("#result")
        assert page.is_hidden("#problem")
        page.wait_for_load_state("networkidle")
    page.press("#question", "Enter")
    page.wait_for_selector("#problem")
    assert page.inner_text("#problem-text") == (
        "The server cannot be reached: it may have stopped."
    )


def test_keys_and_history(page, site):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    ask(page, site, "file")
    page.click(".facts button")
    expect(page.locator(".facts button")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"{site}?q=file"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "question"
    # It selects what is there, so that typing replaces it.
    page.keyboard.insert_text(EVIL)
    page.keyboard.press("Enter")
    expect(page.locator("#evidence mark")).not_to_have_text("x")
    page.keyboard.press("Escape")
    assert page.input_value("#question") == ""
    assert page.is_hidden("#result")
    assert page.evaluate("location.search") == ""
    page.evaluate("history.go(-2)")
    expect(page.locator("#evidence mark")).to_have_text("x")
    assert page.input_value("#question") == "file"


def test_a_filter_that_is_wrong_shows_what_there_is(page, tmp_path):
    servable = Servable()
    with serving(servable, documents=Documents(tmp_path)) as site:
        go(page, site)
        page.wait_for_selector("#filter")
        page.fill("#question", "nothing")
        page.fill("#filter", " tags=hrr ")
        page.press("#filter", "Enter")
        page.wait_for_selector("#result")
        assert page.url == f"{site}?q=nothing&filter=tags%3Dhrr"
        shown = "No document matches the filter “tags=hrr”."
        assert page.inner_text(".answer") == shown
        assert texts(page, "#fields > *") == ["tags", "hr, \\u202elaw"]
        page.reload()
        page.wait_for_selector("#result")
        page.fill("#filter", "tag=hr")
        page.press("#filter", "Enter")
        page.wait_for_selector("#problem")
        assert page.inner_text("#problem-text") == (
            "The server cannot use this filter."
        )
        assert page.inner_text("#problem-words") == (
            "tag is no field of this corpus"
        )
        assert texts(page, "#fields dt") == ["tags"]
        page.fill("#filter", "")
        page.press("#filter", "Enter")
        page.wait_for_selector("#result")
        assert page.inner_text(".answer") == (
            "Nothing was found for this question."
        )
        assert page.is_hidden("#filters")
    assert servable.filters == [*[b"tags=hrr"] * 2, b"tag=hr", b""]


@pytest.mark.parametrize("keys", [{}, {KEY: ""}])
def test_a_document_is_opened_and_runs_nothing(page, tmp_path, keys):
    file = tmp_path / "a.html"
    file.write_text(f"<h1>Part</h1><script>document.title=1</script>{EVIL}")
    with serving(Servable(), api_keys=keys, documents=Documents(file)) as site:
        go(page, site, "file")
        if keys:
            for key in ("wrong", KEY):
                expect(page.locator("#key")).to_be_focused()
                page.keyboard.insert_text(key)
                page.keyboard.press("Enter")
                expect(page.locator("#key")).to_have_value("")
        page.wait_for_selector("#result")
        assert page.inner_text("#evidence h2") == "A › B"
        with page.context.expect_page() as opened:
            page.get_by_text("docs/a.html#part", exact=True).click()
        document = opened.value
        document.wait_for_load_state()
        assert document.url == f"{site}documents/7#part"
        assert document.inner_text("h1") == "Part"
        assert document.title() == ""
        assert KEY not in page.url
        document.close()
        go(page, "about:blank")


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
    page.keyboard.insert_text(EVIL)
    page.keyboard.press("Enter")
    expect(page.locator("#evidence mark")).to_be_visible()
    servable.let_go.set()
    expect(page.locator("#progress")).to_be_hidden()
    assert texts(page, "#evidence h2") == [EVIL]
    ((what, milliseconds), *later) = page.evaluate("seen")
    assert (what, milliseconds >= 200) == ("progress", True)
    # Nor was the end of the first question an error.
    assert "problem" not in dict(later)


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(page, site, width):
    page.set_viewport_size({"width": width, "height": 800})
    for question in (EXAMPLES[0], "long", EVIL):
        ask(page, site, question)
        page.evaluate(
            "for (const d of document.querySelectorAll('details')) "
            "d.open = true"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width


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
