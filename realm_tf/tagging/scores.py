"""Precision, recall and F1 of marked entities."""

from seqeval.metrics import classification_report


def entity_scores(expected: list, predicted: list) -> dict:
    """Scores by whole entities: both ends and the type must be right.

    Args:
        expected: list of lists of str. Tags in IOB2.
        predicted: list of lists of str. Tags; an I that continues nothing
            begins an entity.

    Returns:
        dict of type, and `"all"` (every entity counts once), to `precision`,
        `recall`, `f1` and `num_entities`.

    References:
        CoNLL-2003's conlleval, by the library seqeval.
    """
    report = classification_report(
        [list(tags) for tags in expected],
        predicted,
        output_dict=True,
        zero_division=0,
    )
    report["all"] = report.pop("micro avg")
    return {
        name: {
            "precision": float(scores["precision"]),
            "recall": float(scores["recall"]),
            "f1": float(scores["f1-score"]),
            "num_entities": int(scores["support"]),
        }
        for name, scores in report.items()
        if name not in ("macro avg", "weighted avg")
    }
