"""What the page's files hold, as read without a browser."""

import bs4

from realm_tf.serving import rest_server

PAGE = rest_server.PAGE_DIRECTORY


def test_the_page_is_files_of_its_own():
    markup = (PAGE / "index.html").read_text()
    elements = bs4.BeautifulSoup(markup, "html.parser").find_all(True)
    # What the content security policy would not run.
    assert not [
        each
        for each in elements
        if each.name == "style"
        or (each.name == "script" and "src" not in each.attrs)
        or any(name == "style" or name[:2] == "on" for name in each.attrs)
    ]
    files = [
        each[name]
        for each in elements
        for name in ("src", "href")
        if name in each.attrs
    ]
    assert sorted(files) == [*("answer.css", "icon.svg", "page.css", "page.js")]
    for name in files:
        assert (PAGE / name).is_file()
    for style in PAGE.glob("*.css"):
        assert "url(" not in style.read_text()
    script = "".join(path.read_text() for path in PAGE.glob("*.js"))
    for risk in (
        *("innerHTML", "outerHTML", "insertAdjacent", "eval(", ".write("),
    ):
        assert risk not in script
    assert "://" not in script
