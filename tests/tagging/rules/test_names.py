import pytest

from realm_tf.tagging.rules.names import find_names


def _found(text, taken=()):
    return [text[start:limit] for start, limit in find_names(text, taken)]


@pytest.mark.parametrize(
    "name",
    [
        *("Rome", "Museum of Arts and Crafts", "Trinidad and Tobago", "AT&T"),
        *("Hadrian's Wall", "Vincent van Gogh", "van Gogh"),
        *("Muḥammad ibn Mūsā al-Khwārizmī", "Alexander the Great"),
        *("Charles I of Spain", "Martin Luther King Jr.", "J. R. R. Tolkien"),
        *("O'Brien", "Kim Jong-un", "St. Petersburg", "U.S. Supreme Court"),
        *("Vostok 5", "Лев Толстой", "7th Cavalry"),
    ],
)
def test_a_name_is_found_whole(name):
    assert _found(f"they wrote about {name} when it rained.") == [name]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Ranks and possessives stay outside.
        ("then King James and Dr. Ott met.", ["James", "Ott"]),
        ("then General de Gaulle spoke.", ["de Gaulle"]),
        ("a London-based firm was sold.", ["London"]),
        # What joins and what does not.
        ("from Rome to Paris and Berlin.", ["Rome", "Paris", "Berlin"]),
        ("the wars of France, Spain.", ["France", "Spain"]),
        # Where a sentence begins.
        ("The Nile is long.", ["Nile"]),
        ("In Rome it rained.", ["Rome"]),
        ("Newton wrote it.", ["Newton"]),
        ("Newton's apple fell.", ["Newton"]),
        ("Newton, who wrote it, died.", ["Newton"]),
        ("NASA sent it up.", ["NASA"]),
        ("French soldiers came.", ["French"]),
        ("He left. Newton died.", ["Newton"]),
        # Places are code points.
        ("👍 they saw Rome.", ["Rome"]),
    ],
)
def test_names_of_a_sentence(text, expected):
    assert _found(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "Nothing is here.", "However, it rained.", "Water is wet."),
        *("Iron, a metal, rusts.", "Elephants were hunted."),
        *("the élite and the école.", "so I went, and A too."),
        *("the tiger (Panthera tigris) sleeps.", "東京 العربية ١٢٣"),
    ],
)
def test_no_name(text):
    assert _found(text) == []


def test_nothing_where_a_date_is():
    text = "on 4 May Napoleon left for Easter Island in 1815."
    taken = [(3, 8), (44, 48)]
    assert _found(text, taken) == ["Napoleon", "Easter Island"]
    assert find_names("in May", [(3, 6)]) == []
