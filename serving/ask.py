"""Asks a running server, or a SavedModel in this process.

Without --saved-model and --server it asks the server at 127.0.0.1:8500. With
--questions and --output it answers a file of questions, one JSON object a
line.
"""

import argparse
import dataclasses
import json
import math
import os
import sys

from rich.console import Console
from rich.progress import track

from realm_tf import stages
from realm_tf.data.open_qa import read_questions
from realm_tf.errors import InputError
from serving.client import Answer
from serving.client import RealmClient
from serving.client import RealmServerError
from serving.client import to_answers
from serving.rendering import render

DEFAULT_SERVER = "127.0.0.1:8500"
# Questions of a file in one request; our choice.
_BATCH_SIZE = 16


class LocalModel:
    """A SavedModel in this process that answers as `RealmClient` does.

    Args:
        saved_model: str. Its base directory or a version directory.

    Raises:
        InputError: if there is no SavedModel or it does not load.
    """

    def __init__(self, saved_model: str):
        from serving import locate

        # A wrong path shows before TensorFlow is imported.
        locate.find_version(saved_model)
        from serving import servable

        self._servable = servable.SavedModelServable(saved_model)
        self._request_error = servable.RequestError

    def __enter__(self) -> "LocalModel":
        return self

    def __exit__(self, *exception_info) -> None:
        self.close()

    def close(self) -> None:
        """Frees the model."""
        self._servable.close()

    def ask(self, questions: list[str]) -> list[Answer]:
        """Answers questions in one batch; see `RealmClient.ask`."""
        import numpy as np

        if not questions:
            return []
        texts = [question.encode("utf-8", "replace") for question in questions]
        try:
            outputs = self._servable.run(
                {"question": np.array(texts, dtype=object)}
            )
        except self._request_error as error:
            raise RealmServerError(error.code.name, error.message) from error
        return to_answers(
            {name: array.tolist() for name, array in outputs.items()},
            count=len(questions),
        )


def _check_target(server: str) -> None:
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(
            f"--server {server!r} is not an address: expected HOST:PORT, "
            f"such as {DEFAULT_SERVER}."
        )


def open_model(
    *,
    saved_model: str | None = None,
    server: str | None = None,
    model_name: str = "realm",
    timeout_seconds: float = 30.0,
) -> LocalModel | RealmClient:
    """What answers: a SavedModel in this process or a server.

    Args:
        saved_model: str. A SavedModel's directory.
        server: str. `"HOST:PORT"`. Defaults to `"127.0.0.1:8500"` if there
            is no `saved_model` either.
        model_name: str. The name the server serves it under.
        timeout_seconds: float. The longest a request to a server may take.
            Defaults to 30.

    Returns:
        `LocalModel` or `RealmClient`; a context manager with `ask`.

    Raises:
        InputError: if there is no SavedModel, or the address is none.
    """
    if saved_model is not None:
        if server is not None:
            raise InputError("Give --saved-model or --server, not both.")
        return LocalModel(saved_model)
    server = server or DEFAULT_SERVER
    _check_target(server)
    if timeout_seconds <= 0:
        raise InputError(
            f"--timeout-seconds {timeout_seconds:g} is not positive."
        )
    return RealmClient(
        server, model=model_name, timeout_seconds=timeout_seconds
    )


def _finite(value: float) -> float | None:
    # JSON has no infinity.
    return value if math.isfinite(value) else None


def to_json(answer: Answer, question: str) -> str:
    """One JSON line with everything about an answer."""
    record = {"question": question, **dataclasses.asdict(answer)}
    for name in ("score", "confidence"):
        record[name] = _finite(record[name])
    for alternative in record["nbest"]:
        alternative["score"] = _finite(alternative["score"])
    for candidate, source in zip(
        record["candidates"], answer.candidates, strict=True
    ):
        candidate["log_prob"] = _finite(source.log_prob)
        candidate["probability"] = _finite(source.probability)
    return json.dumps(record, ensure_ascii=False)


def ask(
    question: list[str],
    *,
    saved_model: str | None = None,
    server: str | None = None,
    model_name: str = "realm",
    timeout_seconds: float = 30.0,
) -> list[Answer]:
    """Answers questions in one batch.

    Args:
        question: list of str.
        saved_model: str. As the other arguments, see `open_model`.

    Returns:
        list of `Answer`, one a question.

    Raises:
        InputError: if there is no SavedModel, or the address is none.
        RealmServerError: if the server cannot be reached or refuses.
    """
    with open_model(
        saved_model=saved_model,
        server=server,
        model_name=model_name,
        timeout_seconds=timeout_seconds,
    ) as model:
        return model.ask(question)


def answer_file(
    questions: str,
    output: str,
    *,
    saved_model: str | None = None,
    server: str | None = None,
    model_name: str = "realm",
    timeout_seconds: float = 30.0,
) -> int:
    """Answers a file of questions.

    Args:
        questions: str. JSONL with a `"question"` a line.
        output: str. The file to write: the same lines plus `prediction`,
            `score`, `block_id`, `title` and `text`. It appears whole or not
            at all.
        saved_model: str. As the other arguments, see `open_model`.

    Returns:
        int, the number of questions.

    Raises:
        InputError: if a line is broken or `output` exists.
        RealmServerError: if the server cannot be reached or refuses.
    """
    if stages.exists(output):
        raise InputError(
            f"{output} exists already. Remove it or choose another --output."
        )
    folder = os.path.dirname(output)
    if folder and not stages.is_remote(output) and not os.path.isdir(folder):
        raise InputError(f"--output: the directory {folder} does not exist.")
    records = [
        question.line
        for question in read_questions(questions, need_answers=False)
    ]
    with open_model(
        saved_model=saved_model,
        server=server,
        model_name=model_name,
        timeout_seconds=timeout_seconds,
    ) as model:
        lines = _answer_records(model, records)
    stages.write_text(output, "".join(lines))
    return len(records)


def _answer_records(model, records: list[dict]) -> list[str]:
    lines = []
    for first in track(
        range(0, len(records), _BATCH_SIZE),
        description="Answering",
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    ):
        batch = records[first : first + _BATCH_SIZE]
        answers = model.ask([record["question"] for record in batch])
        for record, answer in zip(batch, answers, strict=True):
            line = {
                **record,
                "prediction": answer.answer,
                "score": _finite(answer.score),
                "block_id": answer.block_id,
                "title": answer.title,
                "text": answer.text,
            }
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `realm ask`."""
    parser.add_argument("question", nargs="*", help="what to ask")
    parser.add_argument(
        "--saved-model", metavar="DIR", help="load this SavedModel and ask it"
    )
    parser.add_argument(
        "--server",
        metavar="HOST:PORT",
        help=f"ask this server (default: {DEFAULT_SERVER})",
    )
    parser.add_argument(
        "--model-name",
        default="realm",
        help="the name the server serves it under (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout-seconds",
        type=float,
        default=30.0,
        help="the longest a request may take (default: %(default)g)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON line a question"
    )
    parser.add_argument(
        "--questions",
        metavar="FILE",
        help='answer a file, a JSON object with "question" a line',
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="where to write the answers to --questions",
    )


def run(args: argparse.Namespace, extra: list[str]) -> int:
    """Runs `realm ask`."""
    if bool(args.question) == bool(args.questions):
        raise InputError("Expected either a question or --questions FILE.")
    if bool(args.questions) != bool(args.output):
        raise InputError("--questions FILE and --output FILE go together.")
    # gRPC's C++ log is for its developers.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    source = {
        "saved_model": args.saved_model,
        "server": args.server,
        "model_name": args.model_name,
        "timeout_seconds": args.timeout_seconds,
    }
    try:
        if args.questions:
            count = answer_file(args.questions, args.output, **source)
            print(f"{args.output}: {count} questions answered")
            return 0
        # The shell may hand over bytes that are no text.
        questions = [
            question.encode("utf-8", "replace").decode("utf-8")
            for question in args.question
        ]
        answers = ask(questions, **source)
    except RealmServerError as error:
        raise InputError(error.message) from error
    console = Console()
    for answer, question in zip(answers, questions, strict=True):
        if args.json:
            print(to_json(answer, question))
        else:
            # A file has no width to wrap at.
            console.print(
                render(answer, question), soft_wrap=not console.is_terminal
            )
            console.print()
    return 0
