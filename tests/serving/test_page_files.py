"""What the page's files hold, as read without a browser."""

import html.parser
import re

from realm_tf.serving import rest_server

PAGE = rest_server.PAGE_DIRECTORY


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
