"""Dates of languages, by the forms of CLDR."""

import pytest

from realm_tf.errors import InputError
from realm_tf.tagging import taggers
from realm_tf.tagging.dates import date_finder
from realm_tf.tagging.rules.dates import find_dates


def dates(language, text):
    return [text[start:limit] for start, limit in date_finder(language)(text)]


@pytest.mark.parametrize(
    "language, text, expected",
    [
        (
            "de",
            "Am 3. Oktober 1990, im Mai 1848, am 1. Mai, 44 v. Chr., 1914–1918, "
            "am 3.10.1990 mit 1.500 von 12000 Gästen; 1990er, 2,1990.",
            [
                *("3. Oktober 1990", "Mai 1848", "1. Mai", "44 v. Chr."),
                *("1914–1918", "3.10.1990"),
            ],
        ),
        (
            "es",
            "El 5 de mayo de 1862, en Mayo de 1990, el 2 de enero y en 1492; "
            "44 a. C., 21 de mayos.",
            [
                *("5 de mayo de 1862", "Mayo de 1990", "2 de enero", "1492"),
                "44 a. C.",
            ],
        ),
        # The genitive after a day, the nominative before a year.
        (
            "ru",
            "5 мая 1990 года, май 1990 г., 9 мая; в 1990 году",
            ["5 мая 1990", "май 1990", "9 мая", "1990"],
        ),
        # No spaces, and durations are none.
        (
            "zh",
            "他于1990年10月3日出生，公元前221年，5月4日，历时20年，1500人。",
            ["1990年10月3日", "公元前221年", "5月4日"],
        ),
        (
            "ar",
            "في 3 أكتوبر 1990 و ١٩٩٠ و٥ مايو",
            ["3 أكتوبر 1990", "١٩٩٠", "٥ مايو"],
        ),
        ("fr", "Le 1er mai 1886 et 1789.", ["1er mai 1886", "1789"]),
        ("pt-BR", "7 de setembro de 1822", ["7 de setembro de 1822"]),
    ],
)
def test_dates_of_languages(language, text, expected):
    assert dates(language, text) == expected


def test_english_of_any_country_has_its_grammar():
    text = "In early 1941, from May to 4 June, some 1500 men came."
    for language in ("en", "en-GB"):
        assert date_finder(language)(text) == find_dates(text)


def test_languages_one_after_the_other_are_as_alone():
    """Babel hands months of one locale to others, in the order of loading."""
    for language in ("zh", "ar", "ru", "ja", "fr"):
        date_finder(language)
    assert dates("ru", "май 1990") == ["май 1990"]
    assert dates("fr", "五月, mai 1990") == ["mai 1990"]


def test_a_language_without_dates_is_named():
    with pytest.raises(InputError, match="dates of --language 'xx-y'"):
        date_finder("xx-y")
    with pytest.raises(InputError, match="rules knows English"):
        taggers.identity("rules", language="de")
    assert taggers.identity("links", language="de") == "links, dates of de"
