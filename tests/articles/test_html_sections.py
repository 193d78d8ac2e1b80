"""What of a web page is text, and under which heading and column."""

import itertools

import pytest

from realm_tf.articles import html_sections

pytestmark = pytest.mark.fast

STAYS = "<tr><th>City<th>2023<th>2024<th>2025"


def _sections(markup):
    _, sections, _ = html_sections.read(markup)
    return [(each.headings, each.lines) for each in sections]


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        pytest.param(
            "<tr><th>City<th>Class<th>Stay<tr><td rowspan=2>Oslo<td>A<td>160"
            "<tr><td>B<td>120",
            [
                "City: Oslo; Class: A; Stay: 160.",
                "City: Oslo; Class: B; Stay: 120.",
            ],
            id="rowspan, and tags that are not closed",
        ),
        pytest.param(
            f"{STAYS}<tr><td>Oslo</td><td colspan=2>160</td><td>170</td></tr>",
            ["2024.", "City: Oslo; 2023: 160; 2025: 170."],
            id="colspan, and a column without cells",
        ),
        pytest.param(
            "<tr><th colspan=2>Rates</th></tr><tr><th>City</th><th>Stay</th>"
            "</tr><tr><td>Oslo</td><td>160</td></tr>",
            ["Rates", "City: Oslo; Stay: 160."],
            id="a caption in a row",
        ),
        pytest.param(
            "<tr><th>City</th></tr><tr><td>Oslo</td></tr>",
            ["City: Oslo."],
            id="one column",
        ),
        pytest.param(
            "<tr><th rowspan=2>City</th><th colspan=2>Stay</th></tr>"
            "<tr><th>Min</th><th>Max</th></tr>"
            "<tr><td>Oslo</td><td>90</td><td>160</td></tr>",
            ["City: Oslo; Stay Min: 90; Stay Max: 160."],
            id="groups of columns",
        ),
        pytest.param(
            "<thead><tr><td></td><td>2023</td></tr></thead>"
            "<tr><th>Oslo</th><td>160</td></tr>",
            ["Oslo; 2023: 160."],
            id="a corner",
        ),
        pytest.param(
            "<tr><th>Notice period</th><td>3 months</td></tr>"
            "<tr><th>Probation</th><td>6 months</td></tr>",
            ["Notice period: 3 months.", "Probation: 6 months."],
            id="names beside values",
        ),
        pytest.param(
            "<tr><td>CO<sub>2</sub></td><td><b>160</b>, see <a href=x>y</a>."
            "</td><td><p>Two</p><p>lines</p></td></tr>",
            ["CO2; 160, see y.; Two lines."],
            id="words as a browser breaks them",
        ),
        pytest.param(
            "From 2024.<script>no</script><tr>Net.<th>City<th>Stay</tr>"
            "<p>In <b>euros</b>.</p><tr><td>Oslo<td>160<p hidden>no</tr>",
            ["From 2024.", "Net.", "In euros.", "City: Oslo; Stay: 160."],
            id="text beside cells",
        ),
        pytest.param(
            "<tr><td>Ask.<table><tr><td>25 days.</table><tr><td><h2>Pay</h2>"
            "On the 24th.",
            ["Ask.", "25 days."],
            id="a table for the layout",
        ),
    ],
)
def test_tables(rows, lines):
    (_, found), *below = _sections(f"<table>{rows}</table>")
    assert found == lines
    assert below in ([], [(["Pay"], ["On the 24th."])])


def test_what_stands_around_the_text_and_what_is_a_part_of_it():
    assert _sections(
        "<header>Menu</header><aside>Other pages</aside><article><header>"
        "<h1>Leave<a class=headerlink href=#>¶</a></h1><p>Intro.</p></header>"
        "<section><header><h2><button>Sick leave</button></h2></header>"
        "<p>A note.</p><aside>Ask HR.</aside><div hidden>no</div>"
        '<p style="color: red; display: none">no</p><footer>By Ann.</footer>'
        "</section></article><footer>Imprint</footer>"
    ) == [
        (["Leave"], ["Intro."]),
        (["Leave", "Sick leave"], ["A note.", "Ask HR.", "By Ann."]),
    ]


def test_roles_and_notices_that_are_no_text():
    around = "".join(
        f"<div {each}>no</div>"
        for each in (
            "role=navigation",
            "role=banner",
            "role=contentinfo",
            "role=search",
            'class="cookie-banner"',
            'id="cookieConsentPopup"',
            "aria-hidden=true",
        )
    )
    kept = (
        "<div id=cookies>Cookies are sweet.</div><div role=tabpanel hidden>Tab."
        "</div><figcaption aria-hidden=true>Map</figcaption><main>Yes.</main>"
    )
    lines = ["Cookies are sweet.", "Tab.", "Map", "Yes."]
    assert _sections(around + kept) == [([], lines)]


@pytest.mark.parametrize(
    ("markup", "lines"),
    [
        (
            "<form><label>City<input></label><select><option>Oslo<option>Rome"
            "</select><button>Go</button></form>",
            ["City", "Oslo", "Rome", "Go"],
        ),
        (
            "<dl><dt>Term<dd>What it is.<dt>B<dd>C</dl>",
            ["Term", "What it is.", "B", "C"],
        ),
        (
            "10<sup>6</sup>, 2020<sup><a>1</a></sup>, a<sup>b</sup>",
            ["10^6, 2020 1, ab"],
        ),
        (
            "a well-\nknown super<wbr>market<!-- x -->s",
            ["a well-known supermarkets"],
        ),
        (
            "<script>//<![CDATA[\nno //]]></script><p>If <![CDATA[a < b & c]]>.",
            ["If a < b & c."],
        ),
        (
            "<!-- <![CDATA[ --><p>A<script>//<![CDATA[\n</script> b.<p>]]> c.",
            ["A b.", "]]> c."],
        ),
        (
            "<pre>a<br>b</pre><table><tr><td><pre>c\nd</pre></table>",
            ["a", "b", "c", "d"],
        ),
        ("<p>It is<h2>So</h2><h2>B</h2>x", ["It is", "So"]),
        ("<font>" * 3000 + "a <b>word</b>", ["a word"]),
        ("<sup>" * 1500 + "x", ["x"]),
        ("<table><tr><td>" * 600 + "x", ["x."]),
        ("<tr hidden><td>no</td></tr>", []),
    ],
    ids=itertools.count(),
)
def test_lines(markup, lines):
    assert [line for _, each in _sections(markup)[:1] for line in each] == lines


def test_a_section_is_found_by_the_id_around_its_heading():
    _, (section,), _ = html_sections.read("<section id=x><h2>A</h2>b</section>")
    assert section.anchor == "x"


def test_the_title_of_a_picture_is_none():
    assert html_sections.read("<svg><title>no</title></svg><p>x")[0] == ""


def test_lines_of_code_stay_lines():
    assert _sections("<p>Run<pre>a = 1\n  b = <b>2</b>\n\nc</pre>so.") == [
        ([], ["Run", "a = 1", "b = 2", "c", "so."])
    ]


@pytest.mark.parametrize(
    ("markup", "title"),
    [
        ("<h1>A</h1>x<h2>B</h2>y<h3>C</h3>z", "A"),
        ("<h2>A</h2>x<h3>B</h3>y", "A"),
        ("<h2>A</h2>x<h2>B</h2>y", ""),
        ("<h2>A</h2>x<h1>B</h1>y", ""),
        ("Before.<h1>A</h1>x", ""),
        ("<title> T  t </title><h2>A</h2>x<h2>B</h2>y", "T t"),
    ],
)
def test_a_heading_is_the_title_if_all_else_is_below_it(markup, title):
    assert html_sections.read(markup)[0] == title
