"""Retrieval in languages without a pretrained model: XQuAD's.

    python benchmarks/languages.py --data-dir DIR --output DIR

DIR/xquad has `corpus.LANG.jsonl.gz` and `LANG.test.jsonl.gz`. For each language
wordpieces are learned from its 240 paragraphs, by Hugging Face's library, and a
BERT of two layers begins with random weights and learns the Inverse Cloze Task
from them. Numbers are answer recall@1 and @5 of the test questions, by the rules
of the language: of the towers, of these and BM25 of wordpieces (`hybrid`), and of
BM25 of words, whose stems and stop words are English's.
"""

import gzip
import json
import os

import tokenizers
import tyro

import realm_tf as realm

LANGUAGES = ("ar", "de", "es", "ru", "zh")
_VOCABULARY_SIZE = 8_000
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def main(
    *,
    data_dir: str,
    output: str,
    languages: tuple[str, ...] = LANGUAGES,
    num_steps: int = 150,
    seed: int = 0,
):
    """Measures each language."""
    os.makedirs(output, exist_ok=True)
    return {
        language: _measure(
            os.path.join(data_dir, "xquad"),
            os.path.join(output, language),
            language,
            num_steps=num_steps,
            seed=seed,
        )
        for language in languages
    }


def _measure(xquad, output, language, *, num_steps, seed):
    os.makedirs(output, exist_ok=True)
    corpus = f"{output}/corpus.jsonl"
    # Its titles are those of the English articles.
    rows = _rows(f"{xquad}/corpus.{language}.jsonl.gz")
    _write(corpus, [{**row, "title": ""} for row in rows])
    questions = f"{output}/questions.jsonl"
    _write(questions, _rows(f"{xquad}/{language}.test.jsonl.gz"))
    start = realm.Init(
        from_="random",
        vocab=_learn_wordpieces(rows, output),
        cosine=True,
        seed=seed,
        output=f"{output}/start",
    ).run()
    blocks = realm.Chunk(
        input=corpus,
        vocab=start.vocabulary,
        unit="rows",
        keep_all_titles=True,
        output=f"{output}/blocks",
    ).run()
    trained = realm.InverseClozeTask(
        recipe="quickstart",
        set=(f"num_steps={num_steps}", "num_frozen_layers=0"),
        model=start,
        blocks=blocks,
        output=f"{output}/ict",
    ).run(verbose=0)
    found = {}
    for name, model in (("random", start), ("ict", trained)):
        stem = f"{output}/{os.path.basename(model.path)}"
        rows = realm.Embed(
            model=model, blocks=blocks, output=f"{stem}-rows"
        ).run()
        index = realm.BuildIndex(
            embeddings=rows, kind="brute_force", output=f"{stem}-index"
        ).run()
        metrics = (
            realm.Evaluate(
                model=model,
                blocks=blocks,
                index=index,
                questions=questions,
                num_reader_blocks=0,
                compare=("bm25", "hybrid"),
                output=f"{stem}-evaluation",
            )
            .run()
            .metrics
        )
        found[name] = _recall(metrics, "answer_recall")
        found[f"{name}_and_bm25"] = _recall(metrics, "hybrid_answer_recall")
    found["bm25_of_words"] = _recall(metrics, "bm25_answer_recall")
    return found


def _recall(metrics, name):
    return [metrics[f"{name}@{k}"] for k in (1, 5)]


def _rows(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _write(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False), file=file)


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
    return learned.save_model(output)[0]


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
