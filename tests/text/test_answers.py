import pytest

from realm_tf.text import answers


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", ""),
        ("Ada Lovelace", "ada lovelace"),
        ("  The \t Nile\n", "nile"),
        ("the a an", ""),
        # Articles are whole words.
        ("Theatre of an Andean", "theatre of andean"),
        # Punctuation goes before articles, and joins what it separated.
        ("'The' Beatles!", "beatles"),
        ("well-known", "wellknown"),
        ("3,000.5", "30005"),
        ("!?.", ""),
        # Only ASCII punctuation goes.
        ("«Rome» – 1869", "«rome» – 1869"),
        ("ÉCOLE", "e\u0301cole"),
        ("Straße", "straße"),
        ("İ", "i\u0307"),
        ("東京", "東京"),
        # NFD, not NFKD: compatibility forms stay.
        ("ﬁ", "ﬁ"),
        ("no\u00a0break", "no break"),
        ("👍🏽", "👍🏽"),
    ],
)
def test_normalize_answer(text, expected):
    assert answers.normalize_answer(text) == expected


@pytest.mark.parametrize(
    "language, text, expected",
    [
        ("de", "Die «Donau», der Fluss!", "donau fluss"),
        ("de", "Einem U-Boot", "uboot"),
        # Whole words alone.
        ("de", "Desto dererlei", "desto dererlei"),
        # English's are none of them.
        ("de", "the End", "the end"),
        ("es", "¿El río — la Plata?", "río plata"),
        ("es", "él", "él"),
        ("vi", "những cái nhà của tôi", "nhà tôi"),
        # Composed or not.
        ("vi", "nh\u0061\u0300 l\u0061\u0300", "nh\u00e0"),
        ("ar", "في القاهرة", "في قاهرة"),
        ("ar", "«القاهرة»", "قاهرة"),
        ("hi", "दिल्ली।", "दिल्ली"),
        ("ru", "«Москва», а не Тверь", "москва а не тверь"),
        ("zh", "《紅樓夢》,1791年", "紅 樓 夢 1791 年"),
        ("zh", "IBM公司", "ibm 公 司"),
    ],
)
def test_languages_have_rules_of_their_own(language, text, expected):
    assert answers.normalize_answer(text, language) == expected
    assert answers.exact_match(text, [expected], language)


def test_f1_of_chinese_is_over_ideographs():
    score = answers.f1_score("紅樓", ["紅樓夢"], "zh")
    assert score == pytest.approx(2 * 1 * (2 / 3) / (1 + 2 / 3))
    assert answers.f1_score("紅樓", ["紅樓夢"]) == 0


def test_a_chinese_answer_is_found_within_a_sentence():
    finder = answers.AnswerFinder(["《紅樓夢》是清代小說。", "水滸傳"])
    assert finder.contains(0, ["紅樓夢"], language="zh")
    assert finder.contains(0, ["樓夢"], language="zh")
    assert not finder.contains(0, ["樓夢"])
    assert finder.first_rank([1, 0], ["清代"], language="zh") == 2


@pytest.mark.parametrize(
    "prediction, accepted, expected",
    [
        ("the Nile", ["Nile River", "Nile"], True),
        ("Nile", ["Nile River"], False),
        ("caf\u00e9", ["CAFE\u0301"], True),
        ("cafe", ["caf\u00e9"], False),
        ("U.S.", ["us"], True),
        ("12 May 1869", ["May 12, 1869"], False),
        ("Nile", [], False),
        # As in the original: both are empty once normalised.
        ("a", ["the"], True),
        (" ", ["the"], False),
    ],
)
def test_exact_match(prediction, accepted, expected):
    assert answers.exact_match(prediction, accepted) is expected
    assert answers.is_correct(prediction, accepted, "string") is expected


@pytest.mark.parametrize(
    "prediction, patterns, expected",
    [
        ("1869", [r"18\d\d"], True),
        # `match`: from the start, but not to the end.
        ("1869 AD", [r"18\d\d"], True),
        ("in 1869", [r"18\d\d"], False),
        ("in 1869", [r".*18\d\d"], True),
        ("PARIS", ["paris"], True),
        ("Zürich", [r"z.rich$"], True),
        # Not even a new line starts anew for `match`.
        ("in\n1869", [r"^1869"], False),
        ("first", ["second", "first"], True),
        # Invalid ones never match, and do not hide valid ones.
        ("(", ["("], False),
        ("(", ["(", r"\("], True),
        ("a", ["a{99999999999}"], False),
        ("a", ["(?P<x>a)(?P<x>a)"], False),
    ],
)
def test_a_pattern_matches(prediction, patterns, expected):
    assert answers.is_correct(prediction, patterns, "regex") is expected


@pytest.mark.parametrize(
    "text, accepted, expected",
    [
        ("He was born in the U.S. in 1869.", ["US"], True),
        ("He was born in the USA.", ["US"], False),
        ("Rome is old.", ["Rome"], True),
        ("It is in Rome", ["the Rome."], True),
        ("Jerome is old.", ["Rome"], False),
        ("Luc Jacquet's film of 2005", ["Luc Jacquet"], True),
        ("the Ruhr-Rhine area", ["Rhine"], True),
        ("an old city of Rome", ["city of the Rome"], True),
        ("city Rome of", ["city of Rome"], False),
        ("CAFÉ culture", ["cafe\u0301"], True),
        # An answer without a word is in no text.
        ("Rome", ["", "the", "!"], False),
    ],
)
def test_a_text_contains_an_answer(text, accepted, expected):
    assert answers.AnswerFinder([text]).contains(0, accepted) is expected


@pytest.mark.parametrize(
    "text, patterns, expected",
    [
        # `search`: anywhere, in any case, not by whole words.
        ("It opened in 1869.", [r"18\d\d"], True),
        ("It opened in 1769.", [r"18\d\d"], False),
        ("first\nsecond line", ["^SECOND"], True),
        ("The USA.", ["US"], True),
        ("a (", ["("], False),
        ("a (", ["(", r"\("], True),
    ],
)
def test_a_text_contains_a_pattern(text, patterns, expected):
    finder = answers.AnswerFinder([text])
    assert finder.contains(0, patterns, "regex") is expected
