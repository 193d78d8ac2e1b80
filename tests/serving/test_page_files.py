"""What the page's files hold, as read without a browser."""

import html.parser
import re

import pytest
from page_style import channels
from page_style import schemes

from realm_tf.serving import rest_api

PAGE = rest_api.PAGE_DIRECTORY


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
