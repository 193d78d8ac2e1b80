import random

import pytest

from realm_tf.text import sentences

# One case a line, "|" where a sentence ends.
CASES = """
Dr. Smith arrived at 5 p.m. on Monday. | He left an hour later.
The U.S. Senate voted on the bill. | It passed.
He moved to the U.S. in 1998. | She followed him.
She was born in St. Louis, Missouri. | Her father was a judge.
Chanel No. 5 was launched in 1921. | It is still sold.
J. R. R. Tolkien wrote The Hobbit. | It was published in 1937.
George W. Bush was the 43rd president. | He served two terms.
The value of pi is about 3.14159. | It is irrational.
"I am here," he said. | "Where are you?" she asked.
He asked, "Who is there?" | Nobody answered.
The film, Mr. & Mrs. Smith, opened in 2005. | Critics were divided.
Washington, D.C. is the capital. | It lies on the Potomac.
He worked for Apple Inc. and Google LLC. | Both are in California.
He founded Acme Corp. in 1950. | It failed in 1960.
The species (Canis lupus, cf. Fig. 3) is large. | It hunts in packs.
Mount St. Helens erupted in 1980. | Fifty-seven people died.
It happened c. 1500 B.C. in Egypt. | No record survives.
The Battle of Hastings (14 Oct. 1066) was decisive. | William won.
They sell books, pens, etc. in the shop. | It opens at nine.
Prof. John D. Barrow, Jr. gave the lecture. | It was well received.
The ratio is 1.5 vs. 2.5 in the other group. | That is a large gap.
See e.g. the work of Turing. | He was a pioneer.
Gen. Robert E. Lee surrendered. | The war was over.
Who won? | France did! | The crowd cheered.
He shouted "Stop!" and ran away. | Nobody followed.
The website Yahoo! was founded in 1994. | It grew quickly.
The temperature fell to -40.5 °C. | Nobody was hurt.
It was the No. 1 song in the U.K. for five weeks. | The album sold well.
He died on Jan. 3, 1892, in Bloemfontein. | He was 61.
Sgt. Pepper's Lonely Hearts Club Band is an album. | It is from 1967.
The law (Pub.L. 107-56) was signed in 2001. | It is still in force.
"It is over." | He closed the book.
Vitamin B12 was isolated in 1948. | In 1956, its structure was described.
The river is 2,850 km (1,770 mi.) long. | It ends in the Black Sea.
Lt. Col. James A. Garfield led the 42nd. | He later became president.
E. coli is a bacterium. | It lives in the gut.
The show ran for three seasons... | Then it was cancelled.
Ph.D. students at M.I.T. built it. | It took two years.
He played for F.C. Barcelona. | Later he moved to A.C. Milan.
The bill, H.R. 3590, became law. | Obama signed it.
It scored 7.5/10 on IGN.com and 80 on Metacritic. | Sales were poor.
Iceland's capital is Reykjavík. | Ísland means "ice land".
The band (formerly "Wham!") split up. | George Michael went solo.
iPhone sales rose. | eBay shares fell.
At 7 a.m. Eastern Time the bridge collapsed. | Three cars fell.
The ship sank in Havana harbor on Feb. 15, 1898. | War followed.
It lies on the Canada–U.S. border near Québec. | Few live there.
""".strip().splitlines()

# What the library gets wrong today; a release that does better will show.
MISSED = """
He said it was over. | (Nobody believed him.) | They went home.
The company is based in Cambridge, Mass. and employs 300 people. | It grew.
Louis XIV. was the name on the coin. | It was rare.
In the 1990s, it had approx. 2.5 million. | By 2010 it had doubled.
""".strip().splitlines()


def split(text, **kwargs):
    spans = sentences.split(text, **kwargs)
    return [text[start:limit] for start, limit in spans]


@pytest.mark.parametrize(
    "case",
    CASES
    + [pytest.param(c, marks=pytest.mark.xfail(strict=True)) for c in MISSED],
)
def test_hard_cases(case):
    expected = case.split(" | ")

    assert split(" ".join(expected)) == expected


def test_spans_are_code_points_without_the_space_around():
    text = "  Temüjin 🙂 ran.   He fell. \n\n  “New” one."

    assert sentences.split(text) == [(2, 16), (19, 27), (32, 42)]


def test_a_line_break_ends_a_sentence():
    assert split("The first line\nthe second\r\nthe third\u2028end") == [
        "The first line",
        "the second",
        "the third",
        "end",
    ]


def test_languages():
    german = "Am 3. Oktober 1990 kam er. Er ging z. B. nach Bonn."

    assert split(german, language="de") == [
        "Am 3. Oktober 1990 kam er.",
        "Er ging z. B. nach Bonn.",
    ]
    assert split("私は行く。彼は来た。", language="ja") == [
        "私は行く。",
        "彼は来た。",
    ]
    assert split("यह है। वह था।", language="hi") == ["यह है।", "वह था।"]
    assert split("One. Two.", language="xx") == ["One.", "Two."]


def test_an_abbreviation_is_not_cut_inside():
    # Joined by a space again, a cut would change the text.
    assert split("His degree was an M.B. Ch.B. from London.") == [
        "His degree was an M.B. Ch.B. from London."
    ]


def test_a_long_quotation_is_split_inside():
    first = "She wrote: “The island lies far from the shore, " + "far " * 70
    first = first.strip() + "away."
    quote = f"{first} Nobody lives there.” Then she left."

    assert len(first) > sentences.LONG_SENTENCE
    assert split(quote) == [first, "Nobody lives there.”", "Then she left."]


def test_an_opening_mark_stays_with_its_sentence():
    start = "(A bracket never closed " + "goes on " * 40
    text = f'{start.strip()} here. "Quoted words," he said.'

    assert split(text) == [f"{start.strip()} here.", '"Quoted words," he said.']


def test_punctuation_alone_is_no_sentence():
    assert split('He wrote: "It is so." .') == ['He wrote: "It is so." .']


def test_empty():
    assert sentences.split("") == []
    assert sentences.split(" \n\t\n") == []


def test_nothing_is_lost_whatever_the_text():
    generator = random.Random(7)
    alphabet = "aBc .!?\"'()[]\n。é😀\u0301\u2028\x85中」「U.S.Dr.1.5"
    for _ in range(500):
        length = generator.randint(0, 400)
        text = "".join(generator.choices(alphabet, k=length))
        spans = sentences.split(text)
        limits = [0, *(limit for _, limit in spans)]

        for (start, limit), last in zip(spans, limits, strict=False):
            assert last <= start < limit
            assert not text[last:start].strip()
            assert not text[start].isspace()
            assert not text[limit - 1].isspace()
        assert not text[limits[-1] :].strip()
