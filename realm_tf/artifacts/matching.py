"""Whether directories go together: every refusal is stated here.

Vocabulary decides what a block's wordpieces mean, the block tower what its
embedding means, the blocks which row is which. Their fingerprints are in the
metadata of what was made from them.
"""

from realm_tf.errors import InputError


def check_vocabulary(one, other) -> None:
    """Refuses two directories whose wordpieces differ.

    Args:
        one: `Blocks` or `Model`.
        other: `Model`.

    Raises:
        InputError: if the tokenizers differ.
    """
    if one.tokenizer != other.tokenizer:
        raise InputError(
            f"{one} and {other} have different vocabularies. Make blocks of "
            f"this vocabulary with `realm chunk --vocab {other.vocabulary}`, or "
            "choose another model."
        )


def check_teacher(teacher, *, model, candidates) -> None:
    """Refuses a model whose reader cannot read what another's reads.

    Args:
        teacher: `Model`.
        model: `Model`. The student.
        candidates: `configs.finetune.Candidates`. What the student will read.

    Raises:
        InputError: if the vocabularies differ, or the teacher alone reads
            titles, or it takes less wordpieces than the student will read.
    """
    if teacher.tokenizer != model.tokenizer:
        raise InputError(
            f"--teacher {teacher} has another vocabulary than {model}, so its "
            "spans are of other wordpieces: choose a teacher of the same "
            "vocabulary."
        )
    own, others = (each.config["reader"] for each in (model, teacher))
    reads_titles = own.get("reads_titles", False) or candidates.read_titles
    if others.get("reads_titles", False) and not reads_titles:
        raise InputError(
            f"--teacher {teacher} reads titles, and {model} does not: add "
            "--set read_titles=true."
        )
    limit = own["encoder"]["max_sequence_length"]
    check_length(
        candidates.max_joint_length or limit,
        others["encoder"]["max_sequence_length"],
        what=f"Question and block for --teacher {teacher}",
        mend="choose a smaller length with --set max_joint_length=N",
    )


def check_lengths(model, parameters: dict) -> None:
    """Refuses lengths that a model's encoders do not take.

    Args:
        model: `Model`.
        parameters: dict. Of a recipe, `max_query_length` and the like.

    Raises:
        InputError: if one is more.
    """
    for name, part in (
        ("max_query_length", "query_embedder"),
        ("max_block_length", "block_embedder"),
        ("max_joint_length", "reader"),
    ):
        config = model.config[part]
        limit = config["encoder"]["max_sequence_length"]
        check_length(
            parameters.get(name, 0),
            limit - len(config.get("prefix_ids", ())),
            what=f"{name} of {model}",
            mend=f"choose a smaller one with --set {name}=N",
        )


def check_index(index, *, blocks=None, model=None) -> None:
    """Refuses an index that other blocks or another block tower made.

    Args:
        index: `Index` or `Embeddings`.
        blocks: `Blocks`. Defaults to `None`: not compared.
        model: `Model`. Its block tower. Defaults to `None`: not compared.

    Raises:
        InputError: if one of them differs.
    """
    for name, other, expected in (
        ("blocks", blocks, blocks and blocks.fingerprint),
        ("block_tower", model, model and model.block_tower),
    ):
        if other is not None and index.parents[name] != expected:
            what = "" if name == "blocks" else "the block tower of "
            raise InputError(
                f"The index {index} was not made from {what}{other} (it is "
                f"from {index.parents[name]}, expected {expected}). Run `realm "
                "embed` and `realm index` again."
            )


def check_passages(passages, *, blocks) -> None:
    """Refuses passages that were annotated from other blocks.

    Args:
        passages: `Passages`.
        blocks: `Blocks`.

    Raises:
        InputError: if they were annotated from other blocks.
    """
    # Else the block a sentence is from would not be known.
    if passages.blocks not in (None, blocks.fingerprint):
        raise InputError(
            f"{passages} was annotated from other blocks than {blocks}: "
            "annotate these, or another corpus with `realm annotate "
            "--other-corpus`."
        )


def check_calibration(evaluation, *, model, retriever: str) -> None:
    """Refuses a calibration that says nothing of some answers.

    Args:
        evaluation: `Evaluation`. Made with `calibrate`.
        model: `Model`. What gives the answers.
        retriever: str. What finds the blocks.

    Raises:
        InputError: if the evaluation was of another model or retriever.
    """
    if evaluation.parents["model"] != model.fingerprint:
        raise InputError(
            f"--calibration {evaluation} is of another model than {model}: run "
            "`realm evaluate --calibrate` with this one."
        )
    if evaluation.parameters["retriever"] != retriever:
        raise InputError(
            f"--calibration {evaluation} is of --retriever "
            f"{evaluation.parameters['retriever']}, not {retriever}: run `realm "
            f"evaluate --calibrate --retriever {retriever}`."
        )


def check_length(length: int, limit: int, *, what: str, mend: str) -> None:
    """Refuses what is longer than an encoder takes.

    Args:
        length: int. Wordpieces that there can be.
        limit: int. Wordpieces that the encoder takes.
        what: str. Subject of the sentence, such as "Question and block of X".
        mend: str. What to do.

    Raises:
        InputError: if `length` is more than `limit`.
    """
    if length > limit:
        raise InputError(
            f"{what} can be {length} wordpieces long, the encoder takes "
            f"{limit}: {mend}."
        )
