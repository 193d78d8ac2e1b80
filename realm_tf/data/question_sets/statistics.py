"""Statistics of questions files, and how they are shown."""

from realm_tf.artifacts.question_files import Question


def of_files(parts: dict[str, list[Question]]) -> dict:
    """What files of questions hold, and what two of them share.

    Args:
        parts: dict of file name to list of `Question`.

    Returns:
        dict: `files` with the `statistics` of each; if there is a dev.jsonl,
        `in_train_and_dev`, its questions that train.jsonl has, too, once
        case and white space are ignored.
    """
    found = {"files": {name: statistics(part) for name, part in parts.items()}}
    if "dev.jsonl" in parts:
        train = {_folded(q.question) for q in parts["train.jsonl"]}
        found["in_train_and_dev"] = sum(
            _folded(question.question) in train
            for question in parts["dev.jsonl"]
        )
    return found


def _folded(question):
    return " ".join(question.casefold().split())


def statistics(questions: list[Question]) -> dict:
    """Numbers of questions and answers.

    Args:
        questions: list of `Question`, not empty.

    Returns:
        dict: `questions`; `answers` of all; `max_answers` of one;
        `mean_answer_words` and `max_answer_words` between white space, `None`
        where all answers are patterns; `patterns` and `with_evidence`,
        questions.
    """
    lengths = [
        len(answer.split())
        for question in questions
        if question.answer_type == "string"
        for answer in question.answers
    ]
    numbers = [len(question.answers) for question in questions]
    return {
        "questions": len(questions),
        "answers": sum(numbers),
        "max_answers": max(numbers),
        "mean_answer_words": round(sum(lengths) / len(lengths), 2)
        if lengths
        else None,
        "max_answer_words": max(lengths, default=None),
        "patterns": sum(q.answer_type == "regex" for q in questions),
        "with_evidence": sum(bool(q.line.get("evidence")) for q in questions),
    }


def describe(output: str, report: dict) -> str:
    """The report of `question_sets.prepare` as a few lines of text.

    Args:
        output: str. Where the files are.
        report: dict.
    """
    lines = [f"{output}: {shown(report['counts'])}"]
    if report["answer_counts"]:
        lines.append(f"  answers: {shown(report['answer_counts'])}")
    for name, each in report["files"].items():
        total = each["questions"]
        line = (
            f"  {name:<15} {total:,} questions, "
            f"{each['answers'] / total:.2f} answers each"
        )
        if each["max_answer_words"] is not None:
            line += (
                f" of {each['mean_answer_words']} words (at most "
                f"{each['max_answer_words']})"
            )
        if each["patterns"]:
            line += f", {each['patterns']:,} with patterns"
        if each["with_evidence"]:
            line += f", {each['with_evidence']:,} with evidence"
        if "answer_in_blocks" in each:
            share = each["answer_in_blocks"] / total
            line += (
                f", an answer in the blocks for "
                f"{each['answer_in_blocks']:,} ({share:.1%})"
            )
        lines.append(line)
    if "in_train_and_dev" in report:
        lines.append(
            f"  {report['in_train_and_dev']:,} of dev are in train but for "
            "case and white space"
        )
    return "\n".join(lines)


def shown(counts: dict[str, int]) -> str:
    """Counts with their names, on one line."""
    return ", ".join(f"{name} {number:,}" for name, number in counts.items())
