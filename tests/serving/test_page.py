"""The web page, in Chromium."""

import os
import re
import shutil

import pytest
from page_site import ANSWERS
from page_site import ASTRAL
from page_site import EVIL
from page_site import EXAMPLES
from page_site import FRANKENSTEIN
from page_site import GENEVA
from page_site import SENTENCE
from page_site import WRONG
from page_site import Servable
from page_site import ask
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
        # A status that is no success is no defect of the page.
        if message.type == "error" and "status of" not in message.text:
            complaints.append(message.text)

    page.on("console", note)
    yield page
    page.close()
    assert complaints == []


def test_a_question_is_answered_with_its_evidence(page, site):
    go(page, site)
    page.wait_for_selector("#examples")
    assert texts(page, "#example-list a") == EXAMPLES
    assert page.inner_text("#corpus") == (
        "Answered from 51,234 blocks of text · such as Frankenstein, Etna · "
        "model realm, version 3 · index ivf"
    )
    assert page.evaluate("document.activeElement.id") == "question"
    page.keyboard.insert_text("Who wrote Frankenstein?")
    page.keyboard.press("Enter")
    page.wait_for_selector("#result")
    assert page.evaluate("location.search") == "?q=Who+wrote+Frankenstein%3F"
    assert page.title() == "Who wrote Frankenstein?"
    assert page.inner_text(".answer") == SENTENCE
    assert texts(page, ".answer mark") == ["Mary Shelley"]
    assert texts(page, ".facts span") == ["confidence 0.76", "score 12.50"]
    assert page.inner_text("#evidence h2") == "[1] Frankenstein"
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


def test_candidates_and_other_answers(page, site):
    ask(page, site, "Who wrote Frankenstein?")
    assert texts(page, "#blocks .number") == [
        *("60.7 %", "30.0 %", "8.0 %", "1.3 %")
    ]
    widths = page.evaluate(
        "Array.from(document.querySelectorAll('.bar'), (b) => "
        "b.children[1].getBoundingClientRect().width / "
        "b.children[0].getBoundingClientRect().width)"
    )
    assert widths == pytest.approx([0.607, 0.3, 0.08, 0.013], abs=0.002)
    assert texts(page, "#blocks .title")[1] == "[2] Year Without a Summer"
    assert texts(page, "#blocks .own") == [
        *("Mary Shelley", "Tambora", "no answer", "a poet")
    ]
    assert texts(page, "#blocks .chosen .title") == ["[1] Frankenstein"]
    assert texts(page, "#nbest dd") == ["Mary Shelley", "Percy Shelley"]
    assert texts(page, "#nbest dt") == ["12.50", "9.25"]


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
        if reached[-1] == "[2] Year Without a Summer":
            break
    assert "[1] Frankenstein" in reached
    page.keyboard.press("Enter")
    assert texts(page, "#blocks [open] .text") == [GENEVA]
    # The answer that this block alone would give.
    assert texts(page, "#blocks [open] mark") == ["Tambora"]
    link = page.locator("#blocks [open] .source a")
    assert link.get_attribute("href") == "https://example.org/2"


def test_offsets_count_code_points(page, site):
    ask(page, site, "astral")
    assert texts(page, "#evidence mark") == ["Mary\U0001f600"]
    assert texts(page, "#evidence .text") == [ASTRAL]


def test_markup_is_text(page, site):
    ask(page, site, EVIL)
    assert page.input_value("#question") == EVIL
    assert texts(page, ".answer") == [EVIL]
    assert texts(page, "#evidence h2") == [f"[1] {EVIL}"]
    assert texts(page, "#evidence mark") == [EVIL]
    assert texts(page, "#blocks .own") == [EVIL]
    assert page.title() == EVIL
    # An address that would run is shown and cannot be followed.
    assert page.inner_text(".source").startswith(
        "Source: javascript:hacked=3\n"
    )
    assert page.locator("#evidence a").count() == 0
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("img").count() == 0
    ask(page, site, "plain source")
    assert page.inner_text(".source").startswith("Source: a dump of 2024\n")
    assert page.locator("#evidence a").count() == 0
    # What a corpus says of its documents.
    ask(page, site, "fields")
    assert page.inner_text(".source").startswith(f"tags=hr|{EVIL}\n")


def test_an_answer_that_is_not_sure_enough(page, site):
    ask(page, site, "unsure")
    assert page.inner_text(".answer") == "Not sure; the likeliest is Geneva"
    assert texts(page, ".facts span") == ["confidence 0.13", "score 12.50"]
    assert texts(page, "#evidence mark") == ["Geneva"]


def test_no_answer(page, site):
    ask(page, site, "nothing")
    assert page.inner_text(".answer") == "No answer found."
    assert page.evaluate("document.querySelector('#evidence')") is None
    assert texts(page, "#blocks .title") == ["[1] Etna"]
    assert texts(page, "#nbest dd") == []


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
    assert page.is_hidden("#problem")


def test_keys_and_history(page, site):
    ask(page, site, "plain source")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "question"
    # It selects what is there, so that typing replaces it.
    page.keyboard.insert_text("astral")
    page.keyboard.press("Enter")
    expect(page.locator("#evidence mark")).not_to_have_text("x")
    page.keyboard.press("Escape")
    assert page.input_value("#question") == ""
    assert page.is_hidden("#result")
    assert page.evaluate("location.search") == ""
    page.evaluate("history.go(-2)")
    expect(page.locator("#evidence mark")).to_have_text("x")
    assert page.input_value("#question") == ("plain source")


def test_a_new_state_of_the_corpus_is_named(page, site, servable, monkeypatch):
    ask(page, site, "plain source")
    assert "version 3" in page.inner_text("#corpus")
    monkeypatch.setattr(servable, "version", 4)
    page.fill("#question", "astral")
    page.keyboard.press("Enter")
    expect(page.locator("#evidence mark")).not_to_have_text("x")
    assert "version 4" in page.inner_text("#corpus")


def test_examples_are_links(page, site):
    go(page, site)
    page.wait_for_selector("#examples")
    link = page.evaluate("document.querySelector('#example-list a').href")
    assert link == f"{site}?q=Who+wrote+Frankenstein%3F"
    page.click("#example-list a")
    page.wait_for_selector("#result")
    assert page.evaluate("location.href") == link
    assert page.is_hidden("#examples")


def test_the_link_is_copied(page, site):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    ask(page, site, "plain source")
    page.click(".facts button")
    expect(page.locator(".facts button")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"{site}?q=plain+source"


def test_documents_are_chosen_by_a_filter(page, monkeypatch):
    with serving(Servable()) as plain:
        go(page, plain)
        page.wait_for_selector("#examples")
        expect(page.locator("#filter")).to_be_hidden()
    monkeypatch.setitem(Servable.card, "fields", ["tags", "date"])
    servable = Servable()
    with serving(servable) as site:
        go(page, site)
        page.wait_for_selector("#filter")
        page.fill("#question", "plain source")
        page.fill("#filter", " tags=hr ")
        page.press("#filter", "Enter")
        page.wait_for_selector("#result")
        assert page.url == f"{site}?q=plain+source&filter=tags%3Dhr"
        page.reload()
        page.wait_for_selector("#result")
        expect(page.locator("#filter")).to_have_value("tags=hr")
        page.fill("#filter", "")
        page.press("#filter", "Enter")
        page.wait_for_url(f"{site}?q=plain+source")
        # The server must not go before it has answered.
        page.wait_for_load_state("networkidle")
    assert servable.filters == [b"tags=hr", b"tags=hr"]


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
    expect(page.locator("#evidence mark")).to_be_visible()
    servable.let_go.set()
    expect(page.locator("#progress")).to_be_hidden()
    assert texts(page, "#evidence h2") == ["[1] Astral"]
    ((what, milliseconds), *later) = page.evaluate("seen")
    assert (what, milliseconds >= 200) == ("progress", True)
    # Nor was the end of the first question an error.
    assert "problem" not in dict(later)


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


def test_a_key_is_asked_for(page):
    with serving(Servable(), api_keys={KEY: ""}) as site:
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
        assert texts(page, "#evidence h2") == ["[1] x"]
        assert KEY not in page.evaluate("location.href")
        go(page, "about:blank")
