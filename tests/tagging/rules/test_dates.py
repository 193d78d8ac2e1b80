import pytest

from realm_tf.tagging.rules.dates import find_dates


def _found(text):
    return [text[start:limit] for start, limit in find_dates(text)]


@pytest.mark.parametrize(
    "date",
    [
        # Days.
        *("17th of November 1869", "Nov. 17, 1869", "November the 5th, 1605"),
        *("2–6 September 1666", "September 2 and 4", "Ides of March, 44 BC"),
        *("1991-12-26", "12/25/1991", "25.12.1991"),
        # Months and weekdays.
        *("November 1869", "November of 1869", "Tuesday"),
        # Years, spans, decades.
        *("1869", "1914–18", "1860s"),
        # Centuries.
        *("19th century", "nineteenth century", "16th and 17th centuries"),
        "16th to 11th centuries BC",
        # Eras.
        *("AD 79", "604–561 BCE", "22,800 BCE"),
        # Seasons and feasts.
        *("spring of 1848", "Christmas Eve", "Christmas Day 800"),
        *("New Year's Day", "Mother's Day", "International Women's Day"),
    ],
)
def test_a_date_is_found_whole(date):
    assert _found(f"It was held on {date}, and went well.") == [date]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("From 2 May 1519 – 6 June 1520.", ["2 May 1519", "6 June 1520"]),
        ("It lasted from 1914 to 1918.", ["1914", "1918"]),
        ("In 1916, 1940 and 1944 none met.", ["1916", "1940", "1944"]),
        ("In October Napoleon left.", ["October"]),
        ("They meet each May.", ["May"]),
        ("Those of '68 remember it.", ["'68"]),
        ("Rome fell in August 410 to them.", ["August 410"]),
        ("Rome fell in 410, at night.", ["410"]),
        ("He built it between 103 and 105.", ["103", "105"]),
        ("The Prague Spring of '68 ended.", ["'68"]),
        ("Its 1954 novel sold well.", ["1954"]),
        ("The 1963 protests spread.", ["1963"]),
        ("A 1901-built house stood there.", ["1901"]),
    ],
)
def test_what_belongs_to_a_date(text, expected):
    assert _found(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        # Quantities.
        *("More than 1500 people came.", "They counted 1500 or 2000 eggs."),
        *("She paid £1500 for it.", "Some 1,864 ships, or 19.45 in a hundred."),
        "One in 100 of them died.",
        "It lies between 200 and 300 miles away.",
        "It holds seats (325) for all.",
        # Numbers that name.
        *("It landed as Flight 1549.", "See No. 1066 of the list."),
        # Durations and ages.
        "He was 42 years old for a year.",
        "It took ten years and three days.",
        # Words that are no months, days or seasons here.
        *("May Smith met April Jones.", "The March of Dimes paid."),
        "Sandra Day O'Connor was a judge.",
        "Summer is warm, in autumn it rains.",
        # Impossible dates, versions, ratios, addresses.
        *("On 1991-13-45 nothing was.", "It won 7–0 at 12:30."),
        "He said '12 is enough', then left.",
    ],
)
def test_no_date(text):
    assert _found(text) == []


def test_any_unicode():
    text = "👍 東京 (1868年) – Ænima’s 1996 tour; ١٩٩٦; 𝟙𝟡𝟞𝟠; Mai\u00a01968."
    assert _found(text) == ["1996", "1968"]
    assert _found("on 4\u00a0May\u00a01912, so") == ["4\u00a0May\u00a01912"]
    assert find_dates("👍 in 1869.") == [(5, 9)]
