"""The card of a SavedModel: its content, for people and for servers."""

import datetime
import json
import os

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import model_card
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import list_files
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.saved_models import SAVED_MODEL_FILE
from realm_tf.errors import InputError
from realm_tf.version import __version__

FILE = "assets.extra/card.json"
README = "README.md"
# Files of every directory, and those that are written here.
_NOT_LISTED = (artifact.JOB, artifact.MARKER, artifact.METADATA, FILE, README)


def write(directory: str, facts: dict) -> None:
    """Writes card.json, which servers read, and README.md.

    Args:
        directory: str. The version directory, with everything else in it.
        facts: dict. `num_blocks`, `index` (kind of search), `quantize`,
            `num_reader_blocks`, `precision`, `calibration` (dict) and
            `lexical_weight` (float) where there is one, `evidence_license`
            (str or `None`), `example_questions` (list of str that the model answers
            rightly), `example_titles` (list of str), `parents`
            (fingerprints), `parts` (name to bytes) and `model_card` (as in
            the model's metadata.json), `warnings` (list of str).
    """
    files = {
        name: fingerprints.sha256(os.path.join(directory, name))
        for name in list_files(directory)
        if name not in _NOT_LISTED
    }
    facts = {**facts, "files": files, "realm_version": __version__}
    write_text(
        os.path.join(directory, FILE),
        json.dumps(facts, ensure_ascii=False, indent=1),
    )
    write_text(os.path.join(directory, README), _render(facts))


def read(directory: str) -> dict:
    """The card of a version directory, its files checked; empty without one.

    Args:
        directory: str. The version directory.

    Raises:
        InputError: if it cannot be read, or a file is not as it says.
    """
    path = os.path.join(directory, FILE)
    if not Path(path).exists():
        return {}
    problems = []
    try:
        facts = json.loads(Path(path).read_bytes())
        for name, digest in facts["files"].items():
            file = os.path.join(directory, name)
            if not Path(file).exists():
                problems.append(f"{file} is missing.")
            elif fingerprints.sha256(file) != digest:
                problems.append(f"{file} is not the file that was exported.")
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(
            f"{path} cannot be read ({error!r}): expected the card that "
            "`realm export` writes; export again."
        ) from error
    if problems:
        raise InputError(f"{' '.join(problems)} Export or copy it again.")
    return facts


def differ_in_blocks_alone(facts: dict, others: dict) -> bool:
    """Whether two exports have one graph and model, made for changing blocks.

    Args:
        facts, others: dict. Of their cards, as read.
    """
    return bool(facts.get("room")) and _graph(facts) == _graph(others)


def _graph(facts) -> tuple:
    """What stands for a graph, with its constants and assets, and the weights."""
    files = {
        name: digest
        for name, digest in facts.get("files", {}).items()
        if name == SAVED_MODEL_FILE or name.startswith("assets/")
    }
    return files, facts.get("parents")


def _confidence(fitted) -> str:
    if fitted is None:
        return "- not calibrated: confidences are shares, all is `answered`"
    least = f"from {fitted['threshold']:.2f} on"
    if fitted.get("least_score") is not None:
        least = f"from a score of {fitted['least_score']:.2f} on, without BM25's part"
    return (
        f"- confidence fitted to {fitted['questions']:,} questions, `answered` "
        f"{least}"
    )


def _render(facts) -> str:
    card = model_card.Card.from_json(facts["model_card"])
    license = facts["evidence_license"] or "not stated"
    date = datetime.datetime.now(datetime.UTC).date()
    quantize = facts["quantize"]
    search = facts["index"] + (
        "" if quantize == "none" else f", embeddings as {quantize}"
    )
    if facts.get("lexical_weight") is not None:
        search += (
            f", with BM25 of wordpieces at weight {facts['lexical_weight']:g}"
        )
    lines = [
        "---",
        f"license: {card.license}",
        "library_name: realm-tf",
        "tags: [realm, open-domain-question-answering, saved-model]",
        f"date: {date}",
        "---",
        "",
        "# A REALM question-answering model",
        "",
        f"Weights: {card.origin} License of the weights: {card.license}.",
        f"License of the texts: {license}.",
        "",
        *(f"**{warning}**\n" for warning in facts["warnings"]),
        *(f"- {note}" for note in card.notes),
        *([""] if card.notes else []),
        f"- {facts['num_blocks']:,} blocks, search: {search}",
        f"- reads {facts['num_reader_blocks']} blocks a question",
        f"- encoders compute in {facts['precision']}",
        _confidence(facts.get("calibration")),
        *(
            f"- fingerprint of the {name}: {fingerprint}"
            for name, fingerprint in facts["parents"].items()
        ),
        "",
        "| part | bytes |",
        "|---|---|",
        *(f"| {name} | {size:,} |" for name, size in facts["parts"].items()),
        "",
    ]
    return "\n".join(lines)
