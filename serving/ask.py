"""Asks a running server, or a SavedModel in this process.

Without --saved-model and --server it asks the server at 127.0.0.1:8500. With
--questions and --output it answers a file of questions, one JSON object a
line.
"""

import argparse
import json
import math
import os
import pathlib
import sys
from dataclasses import asdict

from rich.console import Console
from rich.progress import track

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.question_files import read_questions
from realm_tf.errors import InputError
from realm_tf.serving.answers import Answer
from realm_tf.serving.answers import RealmServerError
from realm_tf.serving.client import BATCH_SIZE
from realm_tf.serving.client import MODEL_NAME
from realm_tf.serving.client import TIMEOUT_SECONDS
from realm_tf.serving.client import RealmClient
from realm_tf.serving.local_model import LocalModel
from realm_tf.serving.rendering import render

DEFAULT_SERVER = "127.0.0.1:8500"


def _check_target(server: str) -> None:
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(
            f"--server {server!r} is not an address: expected HOST:PORT, "
            f"such as {DEFAULT_SERVER}."
        )


def _read_api_key(path: str) -> str:
    """The first key of a file such as the server reads."""
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"--api-key-file {path} cannot be read ({error}): expected a "
            "text file with the key on a line."
        ) from error
    keys = [line.strip() for line in lines if not line.startswith("#")]
    key = next(filter(None, keys), None)
    if key is None:
        raise InputError(
            f"--api-key-file {path} holds no key: expected it on a line."
        )
    return key


def open_model(
    *,
    saved_model: str | None = None,
    server: str | None = None,
    model_name: str = MODEL_NAME,
    version: int | None = None,
    label: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    tls_ca: str | None = None,
    tls_certificate: str | None = None,
    tls_key: str | None = None,
    api_key_file: str | None = None,
) -> LocalModel | RealmClient:
    """What answers: a SavedModel in this process or a server.

    Args:
        saved_model: str. A SavedModel's directory. The other arguments are
            of a server.
        server: str. `"HOST:PORT"`. Defaults to `"127.0.0.1:8500"` if there
            is no `saved_model` either.
        model_name: str. The name the server serves it under.
        version: int. The version to ask. Defaults to the server's choice.
        label: str. The label of the version to ask, in its place.
        timeout_seconds: float. The longest a request to a server may take.
            Defaults to 30.
        tls_ca: str. PEM file of the certificates to trust; turns TLS on.
        tls_certificate: str. PEM file of this client's own certificate.
        tls_key: str. PEM file of its key.
        api_key_file: str. Text file with the key on a line.

    Returns:
        `LocalModel` or `RealmClient`; a context manager with `ask`.

    Raises:
        InputError: if there is no SavedModel, the address is none, or a
            file cannot be used.
    """
    of_server = {
        "--server": server,
        "--version": version,
        "--label": label,
        "--tls-ca": tls_ca,
        "--tls-certificate": tls_certificate,
        "--tls-key": tls_key,
        "--api-key-file": api_key_file,
    }
    if saved_model is not None:
        for option, value in of_server.items():
            if value is not None:
                raise InputError(
                    f"{option} is for a server and --saved-model for none: "
                    "give one of them, not both."
                )
        return LocalModel(saved_model)
    server = server or DEFAULT_SERVER
    _check_target(server)
    if timeout_seconds <= 0:
        raise InputError(
            f"--timeout-seconds {timeout_seconds:g} is not positive."
        )
    if version is not None and label is not None:
        raise InputError("Give --version or --label, not both.")
    if (tls_certificate is None) != (tls_key is None):
        raise InputError("--tls-certificate and --tls-key go together.")
    if tls_key is not None and tls_ca is None:
        raise InputError("--tls-certificate and --tls-key need --tls-ca.")
    try:
        return RealmClient(
            server,
            model=model_name,
            version=version,
            label=label,
            timeout_seconds=timeout_seconds,
            tls_ca=tls_ca,
            client_certificate=tls_certificate,
            client_key=tls_key,
            api_key=api_key_file and _read_api_key(api_key_file),
        )
    except ValueError as error:
        # Of files that cannot be used; it names them.
        raise InputError(str(error)) from error


def _finite(value: float) -> float | None:
    # JSON has no infinity.
    return value if math.isfinite(value) else None


def to_json(
    answer: Answer, question: str, *, evidence_license: str | None = None
) -> str:
    """One JSON line with everything about an answer."""
    record = {
        "question": question,
        **asdict(answer),
        "evidence_license": evidence_license,
    }
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


def ask(question: list[str], **source) -> list[Answer]:
    """Answers questions.

    Args:
        question: list of str.
        **source: As the arguments of `open_model`.

    Returns:
        list of `Answer`, one a question.

    Raises:
        InputError: if there is no SavedModel, the address is none, or a
            file cannot be used.
        RealmServerError: if the server cannot be reached or refuses.
    """
    with open_model(**source) as model:
        return model.ask(question)


def answer_file(questions: str, output: str, **source) -> int:
    """Answers a file of questions.

    Args:
        questions: str. JSONL with a `"question"` a line.
        output: str. The file to write: the same lines plus `prediction`,
            `score`, `block_id`, `title`, `text` and `url`. It appears whole
            or not at all.
        **source: As the arguments of `open_model`.

    Returns:
        int, the number of questions.

    Raises:
        InputError: if a line is broken or `output` exists; as `ask`.
        RealmServerError: if the server cannot be reached or refuses.
    """
    if Path(output).exists():
        raise InputError(
            f"{output} exists already. Remove it or choose another --output."
        )
    folder = os.path.dirname(output)
    if folder and not is_remote(output) and not os.path.isdir(folder):
        raise InputError(f"--output: the directory {folder} does not exist.")
    records = [
        question.line
        for question in read_questions(questions, need_answers=False)
    ]
    with open_model(**source) as model:
        lines = _answer_records(model, records)
    write_text(output, "".join(lines))
    return len(records)


def _answer_records(model, records: list[dict]) -> list[str]:
    lines = []
    for first in track(
        range(0, len(records), BATCH_SIZE),
        description="Answering",
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    ):
        batch = records[first : first + BATCH_SIZE]
        answers = model.ask([record["question"] for record in batch])
        for record, answer in zip(batch, answers, strict=True):
            line = {
                **record,
                "prediction": answer.answer,
                "score": _finite(answer.score),
                "block_id": answer.block_id,
                "title": answer.title,
                "text": answer.text,
                "url": answer.url,
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
        default=MODEL_NAME,
        help="the name the server serves it under (default: %(default)s)",
    )
    parser.add_argument(
        "--version",
        type=int,
        help="the version to ask (default: the server's newest)",
    )
    parser.add_argument(
        "--label",
        help="the label of the version to ask, such as stable",
    )
    parser.add_argument(
        "--timeout-seconds",
        type=float,
        default=TIMEOUT_SECONDS,
        help="the longest a request may take (default: %(default)g)",
    )
    parser.add_argument(
        "--tls-ca",
        metavar="FILE",
        help="speak TLS and trust the certificates in this PEM file; those "
        "of the public authorities are usually in "
        "/etc/ssl/certs/ca-certificates.crt",
    )
    parser.add_argument(
        "--tls-certificate",
        metavar="FILE",
        help="PEM file of a certificate, for a server that asks for one",
    )
    parser.add_argument("--tls-key", metavar="FILE", help="PEM file of its key")
    parser.add_argument(
        "--api-key-file",
        metavar="FILE",
        help="text file with the server's API key on a line",
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
    own = ("question", "questions", "output", "json")
    source = {k: v for k, v in vars(args).items() if k not in own}
    try:
        if args.questions:
            count = answer_file(args.questions, args.output, **source)
            print(f"{args.output}: {count} questions answered")
        else:
            _print_answers(args.question, as_json=args.json, **source)
    except RealmServerError as error:
        raise InputError(error.message) from error
    return 0


def _print_answers(question: list[str], *, as_json: bool, **source) -> None:
    # The shell may hand over bytes that are no text.
    questions = [
        text.encode("utf-8", "replace").decode("utf-8") for text in question
    ]
    with open_model(**source) as model:
        answers = model.ask(questions)
        local = isinstance(model, LocalModel)
        terms = model.evidence_license if local else None
    console = Console()
    for answer, text in zip(answers, questions, strict=True):
        if as_json:
            print(to_json(answer, text, evidence_license=terms))
        else:
            # A file has no width to wrap at.
            console.print(
                render(answer, text, evidence_license=terms),
                soft_wrap=not console.is_terminal,
            )
            console.print()
