"""Retrieval in XQuAD's languages without a pretrained model.

    python benchmarks/languages.py --data-dir DIR --output DIR

DIR/xquad has `corpus.LANG.jsonl.gz` and `LANG.test.jsonl.gz`. Hugging Face's
library learns wordpieces from the 240 paragraphs of a language. A BERT of two
layers with random weights learns the Inverse Cloze Task from them. The numbers
are answer recall@1 and @5 of the test questions: of the towers, of the towers and
BM25 of wordpieces (`hybrid`), and of BM25 of words with English stems.
"""

import json
import pathlib

import runs
import tokenizers
import tyro

import realm_tf as realm

_LANGUAGES = ("ar", "de", "es", "ru", "zh")
_VOCABULARY_SIZE = 8_000
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def main(*, data_dir: pathlib.Path, output: pathlib.Path):
    """Measures each language.

    Args:
        data_dir: with a folder xquad.
        output: where models, blocks and indices are kept.
    """
    return {
        language: _measure(data_dir / "xquad", output / language, language)
        for language in _LANGUAGES
    }


def _measure(xquad, output, language):
    output.mkdir(parents=True, exist_ok=True)
    corpus, questions = output / "corpus.jsonl", output / "questions.jsonl"
    rows = runs.read_rows(xquad / f"corpus.{language}.jsonl.gz")
    # The titles are those of the English articles.
    _write(corpus, [{**row, "title": ""} for row in rows])
    _write(questions, runs.read_rows(xquad / f"{language}.test.jsonl.gz"))
    if not (output / "vocab.txt").exists():
        _learn_wordpieces(rows, output)
    steps = runs.Runs(output)
    start = steps.add(
        realm.Init,
        "start",
        from_="random",
        vocab=str(output / "vocab.txt"),
        set="cosine=true",
    )
    blocks = steps.add(
        realm.Chunk,
        "blocks",
        input=str(corpus),
        vocab=start.vocabulary,
        unit="rows",
        keep_all_titles=True,
    )
    trained = steps.add(
        realm.InverseClozeTask,
        "ict",
        recipe="quickstart",
        set=("num_steps=150", "num_frozen_layers=0"),
        model=start,
        blocks=blocks,
    )
    indices = {
        model: steps.index(model, blocks, f"{name}-index")
        for name, model in (("random", start), ("ict", trained))
    }
    evaluations = {
        name: steps.add(
            realm.Evaluate,
            f"{name}-evaluation",
            model=model,
            blocks=blocks,
            index=indices[model],
            questions=str(questions),
            num_reader_blocks=0,
            retriever=retriever,
        )
        for name, model, retriever in (
            ("random_and_bm25", start, "hybrid"),
            ("ict", trained, "realm"),
            ("ict_and_bm25", trained, "hybrid"),
            ("bm25_of_words", trained, "bm25"),
        )
    }
    steps.graph.run()
    return {
        name: [each.metrics[f"answer_recall@{k}"] for k in (1, 5)]
        for name, each in evaluations.items()
    }


def _write(path, rows):
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


def _learn_wordpieces(rows, output):
    learned = tokenizers.BertWordPieceTokenizer()
    learned.train_from_iterator(
        [row["text"] for row in rows],
        vocab_size=_VOCABULARY_SIZE,
        # All ideographs.
        limit_alphabet=_VOCABULARY_SIZE,
        special_tokens=_SPECIAL,
        show_progress=False,
    )
    learned.save_model(str(output))


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
