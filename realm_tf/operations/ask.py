"""`realm ask`."""

import dataclasses
import json
import os

import tyro
from rich.console import Console

from realm_tf.artifacts import saved_models
from realm_tf.artifacts.paths import check_new_file
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.question_files import read_questions
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation
from realm_tf.progress import Progress
from realm_tf.serving.answers import RealmServerError
from realm_tf.serving.client import BATCH_SIZE
from realm_tf.serving.client import MODEL_NAME
from realm_tf.serving.client import TIMEOUT_SECONDS
from realm_tf.serving.client import RealmClient
from realm_tf.serving.rendering import AnswerView
from realm_tf.serving.security import read_api_keys

DEFAULT_SERVER = "127.0.0.1:8500"
_OF_SERVER = (
    "server",
    "version",
    "tls_ca",
    "tls_certificate",
    "tls_key",
    "api_key_file",
)
# What a file of answers says of each, beside the answer.
_OF_ANSWERS = (
    "score",
    "confidence",
    "answered",
    "block_id",
    "title",
    "text",
    "url",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask(Operation):
    """Asks a running server, or a SavedModel in this process.

    Without --saved-model and --server it asks the server at 127.0.0.1:8500.
    With --questions and --output it answers a file of questions, one JSON
    object a line.
    """

    command = "ask"

    question: tyro.conf.Positional[tuple[str, ...]] = ()
    """what to ask"""
    saved_model: str | None = None
    """load this SavedModel and ask it"""
    server: str | None = None
    """ask this server, HOST:PORT"""
    model_name: str = MODEL_NAME
    """the name the server serves it under"""
    version: int | None = None
    """the version to ask, in place of the server's newest"""
    timeout_seconds: float = TIMEOUT_SECONDS
    """the longest a request may take"""
    tls_ca: str | None = None
    """speak TLS and trust the certificates in this PEM file; those of the
    public authorities are usually in /etc/ssl/certs/ca-certificates.crt"""
    tls_certificate: str | None = None
    """PEM file of a certificate, for a server that asks for one"""
    tls_key: str | None = None
    """PEM file of its key"""
    api_key_file: str | None = None
    """text file with the server's API key on a line"""
    filter: str = ""
    """ask documents alone whose fields are such: tags=hr|legal;date>=2024 (of a
    corpus that was made with --fields)"""
    json: bool = False
    """print one JSON line a question"""
    questions: str | None = None
    """answer a file, a JSON object with "question" a line"""
    output: str | None = None
    """where to write the answers to --questions: the same lines plus
    prediction, score, block_id, title, text and url"""

    def run(self) -> list[AnswerView] | int:
        """Answers the question, or the file of questions.

        Returns:
            list of `AnswerView`, one a question; of a file their number.

        Raises:
            InputError: if options contradict each other, there is no
                SavedModel, a file cannot be used, or the server cannot be
                reached or refuses.
        """
        # gRPC's C++ log is for its developers.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        self._check()
        try:
            if self.questions:
                return self._answer_file()
            # The shell may hand over bytes that are no text.
            questions = [
                text.encode("utf-8", "replace").decode("utf-8")
                for text in self.question
            ]
            with self._open() as model:
                # TF Serving's protocol has no place for it.
                terms = getattr(model, "evidence_license", None)
                answers = model.ask(questions, filter=self.filter)
        except RealmServerError as error:
            raise InputError(error.message) from error
        return [
            AnswerView(answer, question, terms)
            for answer, question in zip(answers, questions, strict=True)
        ]

    def report(self, result: list[AnswerView] | int) -> str:
        if self.questions:
            return f"{self.output}: {result} questions answered"
        console = Console()
        for view in result:
            if self.json:
                print(to_json(view))
                continue
            # A file has no width to wrap at.
            console.print(view, soft_wrap=not console.is_terminal)
            console.print()
        return ""

    def _check(self) -> None:
        if bool(self.question) == bool(self.questions):
            raise InputError("Expected either a question or --questions FILE.")
        if bool(self.questions) != bool(self.output):
            raise InputError("--questions FILE and --output FILE go together.")
        if self.saved_model is not None:
            for name in _OF_SERVER:
                if getattr(self, name) is not None:
                    raise InputError(
                        f"--{name.replace('_', '-')} is for a server and "
                        "--saved-model for none: give one of them, not both."
                    )
        host, _, port = (self.server or DEFAULT_SERVER).rpartition(":")
        if not host or not port.isdigit():
            raise InputError(
                f"--server {self.server!r} is not an address: expected "
                f"HOST:PORT, such as {DEFAULT_SERVER}."
            )

    def _open(self):
        """What answers: a client, or a model in this process."""
        if self.saved_model is not None:
            # A wrong path shows before TensorFlow is imported.
            saved_models.find_version(self.saved_model)
            from realm_tf.serving.servable import SavedModelServable

            return SavedModelServable(self.saved_model)
        api_key = None
        if self.api_key_file is not None:
            # Another server's may be short.
            keys = read_api_keys(self.api_key_file, min_length=1)
            api_key = next(iter(keys))
        return RealmClient(
            self.server or DEFAULT_SERVER,
            model=self.model_name,
            version=self.version,
            timeout_seconds=self.timeout_seconds,
            tls_ca=self.tls_ca,
            client_certificate=self.tls_certificate,
            client_key=self.tls_key,
            api_key=api_key,
        )

    def _answer_file(self) -> int:
        check_new_file(self.output, flag="--output")
        # A line may have its question under another name.
        records = [
            {**each.line, "question": each.question}
            for each in read_questions(self.questions, need_answers=False)
        ]
        with self._open() as model:
            lines = _answer_records(model, records, self.filter)
        # It appears whole or not at all.
        write_text(self.output, "".join(lines))
        return len(records)


def _answer_records(model, records: list[dict], filter: str) -> list[str]:
    lines = []
    with Progress("ask", "questions", len(records)) as progress:
        for first in range(0, len(records), BATCH_SIZE):
            batch = records[first : first + BATCH_SIZE]
            answers = model.ask(
                [record["question"] for record in batch], filter=filter
            )
            for record, answer in zip(batch, answers, strict=True):
                found = {name: getattr(answer, name) for name in _OF_ANSWERS}
                line = {**record, "prediction": answer.answer, **found}
                lines.append(_json_line(line) + "\n")
            progress.add(len(batch))
    return lines


def to_json(view: AnswerView) -> str:
    """One JSON line with everything about an answer."""
    record = {"question": view.question, **dataclasses.asdict(view.answer)}
    record["candidates"] = [
        {**dataclasses.asdict(each), "probability": each.probability}
        for each in view.answer.candidates
    ]
    record["evidence_license"] = view.evidence_license
    return _json_line(record)


def _json_line(record: dict) -> str:
    # JSON has no infinity.
    finite = json.loads(json.dumps(record), parse_constant=lambda name: None)
    return json.dumps(finite, ensure_ascii=False)
