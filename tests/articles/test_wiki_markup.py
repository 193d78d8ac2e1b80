import time

import pytest

from realm_tf.articles import mediawiki
from realm_tf.articles import wiki_markup


def plain(markup, **kwargs):
    return wiki_markup.to_plain_text(markup, **kwargs).text


def links(markup, **kwargs):
    result = wiki_markup.to_plain_text(markup, **kwargs)
    places = zip(result.link_starts, result.link_limits, strict=True)
    return [result.text[start:limit] for start, limit in places]


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        (
            "A '''bold''' and ''slanted'' '''''word'''''.",
            "A bold and slanted word.",
        ),
        ("''[[dog]]'''s tail.", "dog's tail."),
        ("Rock 'n' roll 'tis.", "Rock 'n' roll 'tis."),
        ("[[Graz]] and [[Linz|the city]].", "Graz and the city."),
        ("See [[:Category:Rivers]].", "See Category:Rivers."),
        ("Old.[[Category:Rivers]] [[de:Fluss]]", "Old."),
        ("[[File:a.jpg|thumb|A [[river]] ''x'']]Wide.", "Wide."),
        ("[[Image:a.jpg|left|[[File:b.png|x]] c]]Wide.", "Wide."),
        ("Deep [http://example.org/a the lake].", "Deep the lake."),
        ("Deep http://example.org/a lake.", "Deep lake."),
        ("A<ref>B [[c]]</ref> d<ref name=x /> e.", "A d e."),
        ("A<!-- no\nno --> b.<!-- open", "A b."),
        ("A <math>x^2</math> b <gallery>\nFile:a.jpg\n</gallery>c.", "A b c."),
        ("__NOTOC__A.", "A."),
        (
            "AT&amp;T&nbsp;is &lt;b&gt; &#39;&#39;so&#39;&#39;.",
            "AT&T is <b> ''so''.",
        ),
        ("<nowiki>''a''</nowiki> b.", "''a'' b."),
        (
            "10<sup>6</sup> of H<sub>2</sub>O, 1<sup>st</sup>.",
            "10^6 of H2O, 1st.",
        ),
        ("One<br />two <small>three</small>.", "One two three."),
        ("soft\xadhy\u200bphen.", "softhyphen."),
        (
            "One line\nof a paragraph.\n\nThe next\n[[File:a.jpg|b]]\none.",
            "One line of a paragraph.\nThe next\none.",
        ),
        # What dropped templates leave.
        (
            "'''Ada''' ({{IPAc-en|eɪ}}; {{lang-fr|Adèle}}; born 1950) and "
            "'''Bo''' ({{IPA-en|b}} or {{respell|BO}}) met ( , once , ).",
            "Ada (Adèle; born 1950) and Bo met (once).",
        ),
        # Tables, and malformed ones.
        (
            'Before.\n{| class="wikitable"\n! a\n|-\n| [[b]] || c\n|}\nAfter.',
            "Before.\nAfter.",
        ),
        ("Before.\n{|\n| x\n{|\n| y\n|}\n|}\nAfter.", "Before.\nAfter."),
        ("Before.\n\n{| class=x\n! a\n|-\n| b\n\nAfter.", "Before.\nAfter."),
    ],
)
def test_markup(markup, expected):
    assert plain(markup) == expected


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("{{lang|de|Donau}}", "Donau"),
        ("{{lang-de|''Donau''}}", "Donau"),
        ("{{transl|ru|BGN|Moskva}}", "Moskva"),
        ("{{convert|2850|km|mi}}", "2850 km"),
        ("{{Convert|5|to|10|km|mi|abbr=on}}", "5 to 10 km"),
        ("{{convert|5|-|10|sqmi|km2}}", "5–10 square miles"),
        ("{{cvt|1,300|C}}", "1,300 °C"),
        ("a{{nbsp}}b{{ndash}}c{{snd}}d", "a b–c – d"),
        ("{{nowrap|5 [[metre|m]]}}", "5 m"),
        ("{{as of|2014|lc=y}}", "as of 2014"),
        ("{{As of|2014|3}}", "As of March 2014"),
        ("{{frac|1|2}} {{frac|2|1|2}}", "1/2 2 1/2"),
        ("{{chem|H|2|O}}", "H2O"),
        ("{{circa|1500}}", "c. 1500"),
        ("{{nihongo|'''Aikido'''|合気道|Aikidō}}", "Aikido (合気道, Aikidō)"),
        ("{{HMS|Ajax|22|6}}", "HMS Ajax"),
        ("${{formatnum:1234}}", "$1234"),
        ("{{sortname|Ada|Lovelace|x}} {{sort|07|seven}}", "Ada Lovelace seven"),
        ("{{dts|2014|3|1}} {{dts|May 2}} {{nts|7}}", "1 March 2014 May 2 7"),
        ("{{yes}} {{no|Never}} {{n/a}}", "Yes Never N/A"),
        ("born {{birth date|1956|7|9}}", "born 9 July 1956"),
        ("{{hlist|a|[[b]]|}}", "a, b"),
        ("-{zh-hans:a; zh-hant:b}- -{H|zh:c}--{A|d}-", "a d"),
        ("{{citation needed|date=May 2015}}", ""),
        (
            "{{Infobox river\n| name = [[Danube]]\n| x = {{convert|1|km}}\n}}",
            "",
        ),
        ("{{convert|}} {{lang|de}} {{nowrap}} {{hlist}}", ""),
    ],
)
def test_templates(markup, expected):
    assert plain(f"Before {markup} after.") == " ".join(
        f"Before {expected} after.".split()
    )


@pytest.mark.parametrize(
    "arguments", ["Said.|Ann", "author=Ann|text=Said.", "1=Said."]
)
def test_quotations_are_paragraphs(arguments):
    assert plain(f"A {{{{quote|{arguments}}}}}b {{{{rquote|left|Yes.}}}}") == (
        "A\nSaid.\nb\nYes."
    )


def test_sections():
    markup = (
        "Top.\n== Early ''life'' ==\nBorn.\n=== School ===\nRead.\n"
        "==See also==\n* [[A river that is long and wide and deep.]]\n"
        "=== More ===\nNot kept.\n== Death ==\nDied.\n"
        "== References ==\n{{reflist}}\nNot kept.\n"
    )

    assert plain(markup) == "Top.\nBorn.\nRead.\nDied."


def test_only_list_items_that_read_like_sentences_are_kept():
    markup = (
        "Rivers:\n"
        "* [[Danube]]\n"
        "* The [[Danube]] rises in the Black Forest and flows east.\n"
        "# It is long.\n"
        "* A name, a date and a place without an end to it\n"
        ': "He came, he saw, he went away again."\n'
        "; Term: explained in a sentence that is long enough.\n"
    )

    assert plain(markup).split("\n") == [
        "Rivers:",
        "The Danube rises in the Black Forest and flows east.",
        '"He came, he saw, he went away again."',
        "Term: explained in a sentence that is long enough.",
    ]


@pytest.mark.parametrize(
    "markup",
    [
        "A [[river that is not closed.",
        "A {{template | x = y that is not closed.",
        "A ]] stray }} end |} of things.",
        "A ''slanted '''bold'' mess''' ''here.",
        "A </div> stray <small> tag.",
        "A [[File:a.jpg|thumb|[[b]] that is not closed.",
        "{| class=x\n| a table\n\nA word that follows |} it.",
        "A {{nested {{template|[[x}} y]] z.",
    ],
)
def test_no_residue_of_malformed_markup(markup):
    text = plain(markup)

    assert "A " in text
    for mark in ("[[", "]]", "{{", "}}", "{|", "|}", "''", "</", "<small"):
        assert mark not in text


def test_links_are_places_in_the_final_text():
    markup = (
        "{{Infobox|[[x]]}}The   '''[[Danube]]''' flows through [[Vienna|''the "
        "capital'']].[[Category:Rivers]]\n\n* short [[item]]\n"
        "Many [[fish]]es <ref>[[y]]</ref> in [[ lake ]]."
    )
    result = wiki_markup.to_plain_text(markup)

    assert result.text == (
        "The Danube flows through the capital.\nMany fishes in lake."
    )
    assert result.link_starts == [4, 25, 43, 53]
    assert result.link_limits == [10, 36, 49, 57]


def test_namespaces_of_other_languages():
    markup = "[[Datei:a.jpg|mini|Ein Fluss]]Breit. [[Kategorie:Fluss]]"
    german = frozenset({"datei", "kategorie"})

    assert plain(markup, silent_prefixes=german) == "Breit."
    assert links(markup, silent_prefixes=german) == []


def test_private_use_characters_of_the_input_do_no_harm():
    assert links("\ue000a\ue001 [[b]] \ue003\ue003 c.") == ["b"]
    assert plain("&#xE000;a [[b]].") == "a b."


@pytest.mark.parametrize(
    ("title", "markup", "expected"),
    [
        ("Ada (disambiguation)", "", True),
        ("Ada", "'''Ada''' may be: {{disambiguation}}", True),
        ("Ada (Begriffsklärung)", "", True),
        ("Ada", "{{Begriffsklärung}}", True),
        ("Ada", "{{hndis|Ada}}", True),
        ("Ada", "{{Place name disambiguation}}", True),
        ("Ada", "x\n__DISAMBIG__", True),
        ("Ada", "{{disambiguation needed|date=May 2015}}", False),
        ("Ada", "{{other uses|Ada (disambiguation)}}", False),
        ("Ada", "{{redirect disambiguation|x}}", False),
        ("Ada", "A [[disambiguation]] page.", False),
    ],
)
def test_disambiguation(title, markup, expected):
    assert mediawiki.is_disambiguation(title, markup) is expected


def test_strip_tags():
    text = "A<ref>b</ref> c<br /> d <nowiki>e</nowiki>, 1 < 2 > 0 <x>."
    assert wiki_markup.strip_tags(text) == "A c d e, 1 < 2 > 0 <x>."


TABLE = """{| class="wikitable"
|+ Where [[people]] stay
! rowspan=2 | Year !! colspan=2 | Hotel
|-
! Town !! Price<br/>a night
|-
| rowspan="2" | '''1950''' || [[Oslo]]<br/>Bergen || 160 EUR
|-
| Rome ||
|-
! scope="row" | 1960
| style="color: red" colspan=2 | none since {{death date|1956|7|9}}
|-
| colspan="3" {{Yes|all}}
|}"""


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        (
            TABLE,
            [
                "Where people stay",
                "Year: 1950; Hotel Town: Oslo, Bergen; "
                "Hotel Price a night: 160 EUR.",
                "Year: 1950; Hotel Town: Rome.",
                "Year: 1960; Hotel Town: none since 9 July 1956.",
                "Year: all.",
            ],
        ),
        (
            "{{Infobox person | name = [[Ada]] | image = a.jpg\n"
            "| birth_date = {{Birth date and age|1815|12|10}}\n"
            "| occupation = {{plainlist|\n* Writer\n* [[Counter]]}}\n"
            "| size = 200px\n"
            "| image_alt2 = A face | altitude = 3 m | state = Ohio"
            "| website2 = x.org | spouse = }}Text.",
            [
                *("Name: Ada.", "Birth date: 10 December 1815."),
                *("Occupation: Writer, Counter.", "Altitude: 3 m."),
                *("State: Ohio.", "Website: x.org.", "Text."),
            ],
        ),
        ("{{Taxobox|regnum=[[Animal]]ia}}", ["Regnum: Animalia."]),
        ("{|\n| a || {|\n| b || c\n|}\n|}", ["a; b; c."]),
        ("{|\n| rowspan=x colspan=0 | a || b\n|}", ["a; b."]),
    ],
)
def test_tables_are_told_row_by_row(markup, expected):
    assert plain(markup, keep_tables=True).split("\n") == expected
    assert plain(markup).split("\n") == [
        line for line in expected if line.startswith("Text")
    ] or [""]


def test_links_of_tables_have_places():
    assert links(TABLE, keep_tables=True) == ["people", "Oslo"]


@pytest.mark.parametrize(
    "pattern",
    ["[http://a ", "<b>x ", "{{a|", "[[a|", "{| \n", "<ref>x ", "<i "],
)
def test_time_is_linear_in_what_nothing_closes(pattern):
    # Less than a second here; many minutes, were it quadratic.
    started = time.process_time()
    text = wiki_markup.to_plain_text(
        pattern * (200_000 // len(pattern)) + "\n\nThe end is here.",
        keep_tables=True,
    ).text
    assert text.endswith("The end is here.")
    assert time.process_time() - started < 20
