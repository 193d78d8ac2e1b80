"""Questions about rows: which cell is asked for, by which other."""

import pytest
import row_questions
from annotated_passages import passage

from realm_tf.answering.recall import gold_blocks
from realm_tf.articles import table_rows
from realm_tf.artifacts import question_files
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Passages
from realm_tf.cli import main

HEADERS = ["Repair", "Price", "Days", "Place (town)"]
REPAIRS = [
    ["New whistle", "8 EUR", "3", "Bergen"],
    ["New lid", "12 EUR", "3", "Bergen"],
    ["Tinning anew", "45 EUR", "10", "Voss"],
]


def prices(title="Prices"):
    lines = table_rows.table_lines(HEADERS, REPAIRS)
    return passage("Kettles: we mend them at any age.", *lines, title=title)


def questions(*passages, num_questions=1000, seed=0):
    return row_questions.make_row_questions(
        passages, num_questions=num_questions, seed=seed
    )


def asked(*passages):
    """Questions of many draws, each once."""
    found = [q for n in range(40) for q in questions(*passages, seed=n)]
    return list({str(each): each for each in found}.values())


def test_a_cell_is_asked_for_by_one_that_tells_its_row():
    found = asked(prices())
    lines = table_rows.table_lines(HEADERS, REPAIRS)
    for each in found:
        assert set(each) == {"question", "answer", "evidence"}
        row = REPAIRS[lines.index(each["evidence"]["sentence"])]
        (answer,) = each["answer"]
        asking = each["question"].lower()
        header = HEADERS[row.index(answer)].removesuffix(" (town)").lower()
        assert header in asking
        # "Bergen" is of two rows, and a number names none.
        names = [row[0], "Voss"] if row[3] == "Voss" else [row[0]]
        assert any(name.lower() in asking for name in names if name != answer)
        assert each["evidence"]["title"] == "Prices"
    wanted = {cell for row in REPAIRS for cell in row} - {
        # Nothing else tells their rows.
        "New whistle",
        "New lid",
    }
    assert {each["answer"][0] for each in found} == wanted
    texts = {each["question"] for each in found}
    assert "how much is the price of New whistle" in texts
    assert "how much is the place of New whistle" not in texts
    assert "New lid price in Prices" in texts
    assert {"New lid price", "new lid price"} <= texts


def test_rows_of_one_cell_and_sentences_ask_nothing():
    assert not asked(
        passage("Founded: 1040.", "It said: no; they went away.", "A.")
    )


@pytest.mark.parametrize("answer", ["—", "one two three four five six seven"])
def test_what_is_no_answer(answer):
    (line,) = table_rows.table_lines(
        ["Name", "Post"], [["Jorunn Haaland", answer]]
    )
    # Who it is can be asked, by seven words; not what comes after.
    assert {
        each["answer"][0] for each in asked(passage(line, title="Staff"))
    } <= {"Jorunn Haaland"}


def test_the_draw():
    many = [prices(f"Prices of {year}") for year in range(1990, 2020)]
    assert questions(*many) == questions(*many)
    assert questions(*many, num_questions=5) == questions(*many)[:5]
    assert questions(*many, seed=1) != questions(*many)
    # Of a passage, and of an article.
    assert len(questions(prices())) == 8
    assert len(questions(*many)) == 240
    assert len(questions(*[prices()] * 30)) == 120


def test_every_question_about_a_document_has_its_block(
    tmp_path, vocabulary_path
):
    """From a page with a table to what fine-tuning reads, also where it is cut."""
    rows = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
        for row in REPAIRS
    )
    headers = "".join(f"<th>{header}</th>" for header in HEADERS)
    (tmp_path / "prices.html").write_text(
        "<title>Prices</title><p>Kettles are mended at any age.</p>"
        f"<table><tr>{headers}</tr>{rows}</table>"
    )
    blocks, annotated = str(tmp_path / "blocks"), str(tmp_path / "annotated")
    for arguments in (
        [
            *("chunk", "--input", str(tmp_path / "prices.html")),
            *("--vocab", vocabulary_path, "--keep-tables"),
            *("--max-block-length", "60", "--output", blocks),
        ],
        [
            *("annotate", "--blocks", blocks, "--tagger", "rules"),
            *("--output", annotated),
        ],
    ):
        assert main(arguments) == 0
    records = BlockRecords(Blocks(blocks))
    assert len(records) > 1
    lines = questions(*Passages(annotated).read())
    found = [question_files.to_question(line, "a row") for line in lines]
    assert len(found) >= 6
    for question, block_id in zip(
        found, gold_blocks(found, records), strict=True
    ):
        assert question.answers[0] in records.texts[block_id]
