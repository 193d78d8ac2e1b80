import pytest

from realm_tf.artifacts import schema
from realm_tf.data import cloze

SENTENCES = [
    "The long canal between the two seas was opened on 17 November 1869.",
    "It has no locks because both of the seas are equally high.",
    "About 1.5 million people of Egypt had dug it for ten years or so.",
    "They saw Rome.",
]
QUESTION_WORDS = {
    "17 November 1869": {"when", "what year"},
    "1.5 million": {"how many", "what number"},
    "ten years": {"how many", "what number"},
    "Egypt": {"who", "what", "which", "where"},
}


def _block(block_id, sentences=SENTENCES):
    starts = [0]
    for sentence in sentences[:-1]:
        starts.append(starts[-1] + len(sentence) + 1)
    return schema.Block(
        block_id=block_id,
        article_id=str(block_id),
        title="Suez Canal",
        text=" ".join(sentences),
        sentence_starts=starts,
    )


def _questions(num_blocks=200, *, num_questions=10_000, seed=0):
    return cloze.make_cloze_questions(
        map(_block, range(num_blocks)), num_questions=num_questions, seed=seed
    )


def _words(sentence, answer):
    before, _, after = sentence.lower().partition(answer.lower())
    return before.split(), [word for word in after.split() if word != "."]


def test_answers_are_the_salient_spans():
    questions = _questions()
    assert {tuple(each["answer"]) for each in questions} == {
        ("17 November 1869",),
        ("1.5 million",),
        ("Egypt",),
        ("ten years",),
    }
    for each in questions:
        assert set(each) == {"question", "answer", "evidence"}
        assert each["evidence"]["title"] == "Suez Canal"
        assert each["evidence"]["sentence"] in SENTENCES
        assert each["answer"][0] in each["evidence"]["sentence"]


def test_a_question_word_stands_for_the_answer():
    seen = {answer: set() for answer in QUESTION_WORDS}
    for each in _questions():
        (answer,) = each["answer"]
        (sentence,) = [s for s in SENTENCES if answer in s]
        before, after = _words(sentence, answer)
        assert answer.lower() not in each["question"]
        assert each["question"] == each["question"].lower()
        for word in sorted(QUESTION_WORDS[answer], key=len, reverse=True):
            if f" {word} " in f" {each['question']} ":
                break
        else:
            pytest.fail(f"no question word in {each['question']!r}")
        seen[answer].add(word)
        left, right = (
            part.split() for part in f" {each['question']} ".split(f" {word} ")
        )
        # The words around the gap, in their order, some left out; or the
        # question word first and what was before it last.
        if left:
            assert _is_subsequence(left, before)
            assert _is_subsequence(right, after)
        else:
            assert _is_subsequence(right, after + before)
    assert seen == QUESTION_WORDS


def _is_subsequence(part, whole):
    rest = iter(whole)
    return all(word in rest for word in part)


def test_some_words_are_left_out():
    sizes = [
        len(each["question"].split())
        for each in _questions()
        if each["answer"] == ["17 November 1869"]
    ]
    # 10 words around the span, of which 70 % are kept, and one or two
    # question words.
    assert sum(sizes) / len(sizes) == pytest.approx(10 * 0.7 + 1.5, abs=0.3)


def test_no_mark_stands_alone():
    sentence = "The old canal (opened in 1869 ) had no locks — see Port Said ."
    questions = cloze.make_cloze_questions(
        [_block(number, [sentence]) for number in range(50)],
        num_questions=1000,
    )
    assert len(questions) == 100
    for each in questions:
        assert not {"(", ")", ".", "—"} & set(each["question"].split())


def test_a_long_sentence_is_cut_to_a_window(monkeypatch):
    monkeypatch.setattr(cloze, "_DROPPED", -1.0)
    words = [f"w{number}" for number in range(60)]
    for place in (0, 3, 30, 57, 60):
        sentence = " ".join([*words[:place], "by Rome", *words[place:]])
        for seed in range(20):
            (question,) = cloze.make_cloze_questions(
                [_block(0, [sentence])], num_questions=1, seed=seed
            )
            kept = [w for w in question["question"].split() if w in words]
            assert len(set(kept)) >= 17
            numbers = sorted(words.index(word) for word in kept)
            # Consecutive, and next to the gap.
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
            assert numbers[0] <= place <= numbers[-1] + 1


def test_the_same_seed_gives_the_same_questions():
    assert _questions() == _questions()
    assert _questions() != _questions(seed=1)
    assert _questions(num_questions=7) == _questions()[:7]


def test_no_questions_from_sentences_without_spans_or_context():
    blocks = [_block(0, SENTENCES[1:2]), _block(1, SENTENCES[3:])]
    assert cloze.make_cloze_questions(blocks, num_questions=10) == []
    assert cloze.make_cloze_questions([], num_questions=10) == []
