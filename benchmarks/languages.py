"""Retrieval in languages without a pretrained model: XQuAD's.

    python benchmarks/languages.py --data-dir DIR --output DIR

DIR/xquad has `corpus.LANG.jsonl.gz` and `LANG.test.jsonl.gz`. For each language
wordpieces are learned from its 240 paragraphs, by Hugging Face's library, and a
BERT of two layers begins with random weights and learns the Inverse Cloze Task
from them. Numbers are answer recall@1 and @5 of the test questions, by the rules
of the language: of the towers, of these and BM25 of wordpieces (`hybrid`), and of
BM25 of words, whose stems and stop words are English's.

With `--num-epochs`, a reader of random weights then learns from the language's 435
training questions, over the blocks of BM25 of wordpieces, and the whole is exported:
exact match and F1 of `realm evaluate`, and exact match of what `realm ask` gets from
the SavedModel.
"""

import gzip
import json
import os

import tokenizers
import tyro

import realm_tf as realm
from realm_tf.artifacts.question_files import read_questions
from realm_tf.operations.graph import Step
from realm_tf.text.answers import is_correct

LANGUAGES = ("ar", "de", "es", "ru", "zh")
_VOCABULARY_SIZE = 8_000
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def main(
    *,
    data_dir: str,
    output: str,
    num_epochs: int = 0,
):
    """Measures each language.

    Args:
        data_dir: with a folder xquad.
        output: where models, blocks and exports are kept.
        num_epochs: of the reader; 0: no reader is trained.
    """
    os.makedirs(output, exist_ok=True)
    return {
        language: _measure(
            os.path.join(data_dir, "xquad"),
            os.path.join(output, language),
            language,
            num_epochs=num_epochs,
        )
        for language in LANGUAGES
    }


def _measure(xquad, output, language, *, num_epochs):
    os.makedirs(output, exist_ok=True)
    corpus = f"{output}/corpus.jsonl"
    # Its titles are those of the English articles.
    rows = _rows(f"{xquad}/corpus.{language}.jsonl.gz")
    _write(corpus, [{**row, "title": ""} for row in rows])
    questions = f"{output}/questions.jsonl"
    _write(questions, _rows(f"{xquad}/{language}.test.jsonl.gz"))
    start = _made(
        realm.Init(
            from_="random",
            vocab=_learn_wordpieces(rows, output),
            set="cosine=true",
            output=f"{output}/start",
        )
    )
    blocks = _made(
        realm.Chunk(
            input=corpus,
            vocab=start.vocabulary,
            unit="rows",
            keep_all_titles=True,
            output=f"{output}/blocks",
        )
    )
    trained = _made(
        realm.InverseClozeTask(
            recipe="quickstart",
            set=("num_steps=150", "num_frozen_layers=0"),
            model=start,
            blocks=blocks,
            output=f"{output}/ict",
        ),
        verbose=0,
    )
    found = {}
    for name, model in (("random", start), ("ict", trained)):
        search = _search(model, blocks, questions, output)
        found[name] = search("realm")
        found[f"{name}_and_bm25"] = search("hybrid")
    found["bm25_of_words"] = search("bm25")
    if num_epochs:
        found |= _read(
            {
                "blocks": blocks,
                "index": f"{output}/start-index",
                "model": start,
                "questions": questions,
            },
            [
                f"{xquad}/{language}.{part}.jsonl.gz"
                for part in ("train", "dev")
            ],
            output,
            (f"num_epochs={num_epochs}",),
        )
    return found


def _search(model, blocks, questions, output):
    """A function that gives the recall of a retriever with a model."""
    stem = f"{output}/{os.path.basename(model.path)}"
    rows = _made(realm.Embed(model=model, blocks=blocks, output=f"{stem}-rows"))
    index = _made(
        realm.BuildIndex(
            embeddings=rows, kind="brute_force", output=f"{stem}-index"
        )
    )

    def search(retriever):
        evaluation = realm.Evaluate(
            model=model,
            blocks=blocks,
            index=index,
            questions=questions,
            num_reader_blocks=0,
            retriever=retriever,
            output=f"{stem}-{retriever}",
        )
        metrics = _made(evaluation).metrics
        return [metrics[f"answer_recall@{k}"] for k in (1, 5)]

    return search


def _read(given, learned_from, output, settings):
    """What is read off the blocks, here and where it is served."""
    train, dev = learned_from
    reads = _made(
        realm.FineTune(
            **given
            | {"questions": train, "dev": dev, "output": f"{output}/reads"},
            recipe="quickstart",
            set=(
                *(*settings, "dropout=0", "learning_rate=1e-3"),
                *("retriever=hybrid", "num_candidates=50"),
            ),
        ),
        verbose=0,
    )
    given = given | {"model": reads}
    metrics = _made(
        realm.Evaluate(
            **given, retriever="hybrid", output=f"{output}/reads-evaluation"
        )
    ).metrics
    questions = given.pop("questions")
    saved = _made(
        realm.Export(**given, retriever="hybrid", output=f"{output}/export")
    )
    answered = f"{output}/answers.jsonl"
    if not os.path.exists(answered):
        realm.Ask(
            saved_model=saved.path, questions=questions, output=answered
        ).run()
    right = [
        is_correct(
            each.line["prediction"],
            each.answers,
            each.answer_type,
            each.language,
        )
        for each in read_questions(answered)
    ]
    return {
        "read": [metrics["exact_match"], metrics["f1"]],
        "served": sum(right) / len(right),
    }


def _made(operation, **options):
    """What an operation makes, which an earlier run may have made."""
    if not Step(operation).is_done():
        operation.run(**options)
    return operation.result


def _rows(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _write(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False), file=file)


def _learn_wordpieces(rows, output):
    path = f"{output}/vocab.txt"
    if os.path.exists(path):
        # What is there was made of it.
        return path
    learned = tokenizers.BertWordPieceTokenizer()
    learned.train_from_iterator(
        [row["text"] for row in rows],
        vocab_size=_VOCABULARY_SIZE,
        # All ideographs.
        limit_alphabet=_VOCABULARY_SIZE,
        special_tokens=_SPECIAL,
        show_progress=False,
    )
    return learned.save_model(output)[0]


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
