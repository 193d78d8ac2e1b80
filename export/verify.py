"""The fresh process of `realm verify`: it needs no package of realm's.

Prints one JSON line. Run as `python verify.py VERSION_DIR`: by its path, so that
`runtime` is found beside it and no package is imported.
"""

import functools
import json
import pathlib
import sys
import time

import numpy as np

# Realm's, none of which may be needed here.
PACKAGES = ("realm_tf", "export", "serving", "beam_pipelines")
# Scores of two graphs that add in another order; see docs of float32.
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05}
# int8 rounds each score to about one part in a hundred, bfloat16 less.
_CLOSE_ROUNDED = {"atol": 0.05, "rtol": 0.02}
STRANGE = {
    "an empty string": "",
    "blanks": "   ",
    "10,000 letters": "x" * 10_000,
    "2,500 words": "who " * 2_500,
    "emoji": "\U0001f9d1\u200d\U0001f680 \U0001f680?",
    "invalid UTF-8": b"\xff\xfe broken",
}


def main(directory: str, runtime_class: type) -> dict:
    """Loads a SavedModel, asks it and compares.

    Args:
        directory: str. Version directory.
        runtime_class: `runtime.Runtime`.

    Returns:
        dict, the report of `operations.verify.Verify`.
    """
    folder = pathlib.Path(directory, "assets.extra")
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    card = json.loads((folder / "card.json").read_text("utf-8"))
    questions = [row["question"] for row in expected]
    started = time.monotonic()
    runtime = runtime_class(directory, index=card["index"])
    signatures = {
        name: functools.partial(_ask, runtime, name)
        for name in (
            *("serving_default", "retrieve"),
            *("embed_query", "embed_block"),
        )
    }
    answer = signatures["serving_default"]
    answer(question=questions[:1])
    load_seconds = time.monotonic() - started
    batch = answer(question=questions)
    retrieved = signatures["retrieve"](question=questions)
    tolerance = TOLERANCES[card.get("precision", "float32")]
    checks = {
        **_check_answers(expected, batch, tolerance),
        **_check_batching(answer, questions, batch, tolerance),
        **_check_strange(answer, questions, tolerance),
        **_check_retrieval(card, signatures, expected, retrieved, tolerance),
    }
    started = time.monotonic()
    for question in questions:
        answer(question=[question])
    seconds = time.monotonic() - started
    checks["nothing of realm's was imported"] = not any(
        name.split(".")[0] in PACKAGES for name in sys.modules
    )
    return {
        "ok": all(checks.values()),
        "checks": [
            {"name": name, "ok": bool(ok)} for name, ok in checks.items()
        ],
        "load_seconds": round(load_seconds, 2),
        "milliseconds_per_question": round(1000 * seconds / len(questions), 1),
    }


def _check_answers(expected, batch, tolerance):
    """Answers are those of the Python code."""
    close = _close(tolerance)
    block_ids = batch["candidate_block_id"]
    wanted_ids = _padded(expected, "candidate_block_id", block_ids, -1)

    def wanted(name):
        return [row[name] for row in expected]

    # Where encoders are rounded to 8 bits, spans and blocks of nearly equal
    # score change places; another last block may hold another answer.
    rounded = tolerance > TOLERANCES["float32"]
    same_blocks = np.sort(block_ids, axis=1) == np.sort(wanted_ids, axis=1)
    other_blocks = rounded & ~np.all(same_blocks, axis=1)
    tied = other_blocks | (
        rounded & np.isclose(batch["score"], wanted("score"), **close)
    )
    checks = {
        f"{name} equals that of the Python code": np.all(
            tied | (batch[name] == wanted(name))
        )
        for name in (
            *("answer", "block_id", "start", "limit"),
            *("answer_sentence", "is_sentence"),
        )
    }
    checks[
        f"candidate_block_id equals, in order but for ties of {tolerance:g}"
    ] = _same_ranking(block_ids, wanted_ids, batch["candidate_log_prob"], close)
    answers = _padded(expected, "candidate_answer", block_ids, "")
    if not rounded:
        checks["candidate_answer equals, of each block in its place"] = np.all(
            (block_ids != wanted_ids) | (batch["candidate_answer"] == answers)
        )
    for name in ("score", "confidence"):
        checks[f"{name} within {tolerance:g}"] = np.all(
            other_blocks | np.isclose(batch[name], wanted(name), **close)
        )
    checks[f"candidate_log_prob within {tolerance:g}"] = np.allclose(
        batch["candidate_log_prob"],
        _padded(expected, "candidate_log_prob", block_ids, -np.inf),
        **close,
    )
    return checks


def _check_batching(answer, questions, batch, tolerance):
    """Answers do not depend on the other questions of a batch."""
    alone = [answer(question=[each]) for each in questions]
    many = answer(question=(questions * 64)[:64])
    return {
        "alone as in a batch": all(
            _same_answer(one, 0, batch, row, tolerance)
            for row, one in enumerate(alone)
        ),
        "batch of 64": all(
            _same_answer(many, row, batch, row % len(questions), tolerance)
            for row in range(64)
        ),
    }


def _check_strange(answer, questions, tolerance):
    """What is no question is answered, too, and disturbs no other."""
    checks = {}
    for name, strange in STRANGE.items():
        one = answer(question=[strange])
        both = answer(question=[strange, questions[0]])
        checks[f"answers {name}, alone as in a batch"] = _same_answer(
            one, 0, both, 0, tolerance
        )
    empty = answer(question=[""])
    checks["an empty question has no answer"] = (
        empty["answer"][0] == ""
        and empty["block_id"][0] == -1
        and empty["score"][0] == 0
    )
    return checks


def _check_retrieval(card, signatures, expected, retrieved, tolerance):
    """The other signatures agree with the Python code and with one another."""
    block_ids = retrieved["block_id"]
    exact = card["index"] == "brute_force" and card["quantize"] == "none"
    return {
        "retrieve finds the blocks that the Python code finds, in order but "
        f"for ties of {tolerance:g}": _same_ranking(
            block_ids,
            _padded(expected, "block_ids", block_ids, -1),
            retrieved["score"],
            _close(tolerance),
        ),
        "embed_block agrees with the index": _embeds(
            signatures,
            [row["question"] for row in expected[:4]],
            retrieved,
            _close(tolerance) if exact else _CLOSE_ROUNDED,
            is_hybrid=card.get("lexical_weight") is not None,
        ),
    }


def _ask(runtime, signature, **strings):
    inputs = {name: np.array(v, object) for name, v in strings.items()}
    outputs = runtime.run(signature, inputs)
    return {name: _decoded(value) for name, value in outputs.items()}


def _decoded(array):
    if array.dtype != object:
        return array
    return np.vectorize(bytes.decode, otypes=[object])(array)


def _padded(expected, name, found, filler):
    """The lists under a name, as long as those of the export."""
    width = found.shape[1]
    return [
        row[name][:width] + [filler] * (width - len(row[name]))
        for row in expected
    ]


def _close(tolerance):
    return {"atol": tolerance, "rtol": tolerance}


def _same_answer(outputs, row, others, other, tolerance):
    """Whether two answers are equal or, of rounded encoders, of like score."""
    if outputs["answer"][row] == others["answer"][other]:
        return True
    scores = outputs["score"][row], others["score"][other]
    rounded = tolerance > TOLERANCES["float32"]
    return rounded and np.isclose(*scores, **_close(tolerance))


def _same_ranking(found, wanted, scores, close):
    """Whether blocks come in one order, those of like score in any.

    Sums in another order are rounded otherwise, here and in Python. At the
    end of a row a block may have been pushed out by one of like score.
    """
    for ids, others, row in zip(found.tolist(), wanted, scores, strict=True):
        blocks = [block_id for block_id in ids if block_id >= 0]
        if len(set(blocks)) < len(blocks):
            return False
        for place, block_id in enumerate(ids):
            if block_id == others[place]:
                continue
            other = others.index(block_id) if block_id in others else -1
            if block_id < 0 or not np.isclose(row[place], row[other], **close):
                return False
    return True


def _embeds(signatures, questions, retrieved, close, *, is_hybrid):
    """Scores of `retrieve`, less BM25's, are inner products of embeddings.

    Of a block that BM25 alone has found, the product is but not greater.
    Rounding changes a product by a share of both lengths, whatever it is itself.
    """
    queries = signatures["embed_query"](question=questions)["embedding"]
    for row, query in enumerate(queries):
        # An empty question retrieves nothing.
        is_block = retrieved["block_id"][row] >= 0
        if not is_block.any():
            continue
        blocks = signatures["embed_block"](
            title=retrieved["title"][row][is_block],
            text=retrieved["text"][row][is_block],
        )["embedding"]
        products = blocks @ query
        scores = retrieved["score"][row] - retrieved["lexical_score"][row]
        scores = scores[is_block]
        lengths = np.linalg.norm(blocks, axis=1) * np.linalg.norm(query)
        same = np.abs(products - scores) <= (
            close["atol"] + close["rtol"] * lengths
        )
        if is_hybrid and same.any():
            same |= products < scores
        if not same.all():
            return False
    return True


if __name__ == "__main__":
    from runtime import Runtime

    print(json.dumps(main(sys.argv[1], Runtime)))
