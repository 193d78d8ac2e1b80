"""`realm ask`."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Annotated

import tyro
from rich.console import Console

from realm_tf.answering.answer import Answer
from realm_tf.artifacts.paths import check_new_file
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation
from realm_tf.serving.client import BATCH_SIZE
from realm_tf.serving.client import MODEL_NAME
from realm_tf.serving.client import RealmClient
from realm_tf.serving.client import RealmServerError
from realm_tf.serving.rendering import AnswerView

DEFAULT_SERVER = "127.0.0.1:8500"
_OF_SERVER = ("server", "tls_ca", "tls_client", "api_key_file")
# Fields of an answer in the lines of --questions, beside the answer.
_OF_ANSWERS = (
    "score",
    "confidence",
    "answered",
    "block_id",
    "title",
    "text",
    "url",
    "answer_sentence",
    "is_sentence",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask(Operation):
    """Asks a corpus or a SavedModel in this process, or a running server.

    Without --corpus, --saved-model and --server it asks 127.0.0.1:8500.
    """

    command = "ask"

    question: tyro.conf.Positional[tuple[str, ...]] = ()
    """the questions"""
    questions: str | None = None
    """file of questions, lines {"question": ...}; needs --output"""
    output: str | None = None
    """file to write: the lines of --questions plus prediction, score, confidence,
    answered, block_id, title, text, url, answer_sentence and is_sentence"""
    saved_model: Annotated[str | None, tyro.conf.arg(aliases=("--corpus",))] = (
        None
    )
    """corpus or SavedModel to load and ask"""
    server: str | None = None
    """server to ask, HOST:PORT"""
    model_name: str = MODEL_NAME
    """name of the model on the server"""
    tls_ca: str | None = None
    """use TLS and trust the certificates in this PEM file; those of the public
    authorities are usually in /etc/ssl/certs/ca-certificates.crt"""
    tls_client: tuple[str, str] | None = None
    """PEM files of a certificate and its key, for a server that requires one"""
    api_key_file: str | None = None
    """file whose first line is the server's API key"""
    filter: str = ""
    """only find documents whose fields match: tags=hr|legal;date>=2024 (of a
    corpus that was made with --fields)"""

    def run(self) -> list[AnswerView] | list[str]:
        """Answers the questions.

        Returns:
            list of `AnswerView`, one per question; with `output`, the JSON lines.

        Raises:
            InputError: if options contradict each other, there is no
                SavedModel, a file cannot be used, or the server cannot be
                reached or refuses.
        """
        # gRPC's C++ log is for its developers.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        self._check()
        records = self._records()
        found = []
        try:
            with self._open() as model:
                # TF Serving's protocol has no place for it.
                terms = getattr(model, "evidence_license", None)
                for record, answer in self._answered(model, records):
                    if self.questions:
                        found.append(_of_file(record, answer))
                    else:
                        view = AnswerView(answer, record["question"], terms)
                        found.append(view)
        except RealmServerError as error:
            raise InputError(error.message) from error
        if self.output:
            # It appears whole or not at all.
            write_text(self.output, "".join(f"{line}\n" for line in found))
        return found

    def report(self, result: list) -> str:
        if self.output:
            return f"{self.output}: {len(result)} questions answered"
        console = Console()
        for view in result:
            # A file has no width to wrap at.
            console.print(view, soft_wrap=not console.is_terminal)
            console.print()
        return ""

    def _check(self) -> None:
        if bool(self.question) == bool(self.questions):
            raise InputError("Expected either a question or --questions FILE.")
        if bool(self.questions) != bool(self.output):
            raise InputError(
                "--questions FILE and --output FILE go together: give both or "
                "neither."
            )
        if self.saved_model is not None:
            self.refuse_given(_OF_SERVER, "--saved-model")
        host, _, port = (self.server or DEFAULT_SERVER).rpartition(":")
        if not host or not port.isdigit():
            raise InputError(
                f"--server {self.server!r} is not an address: expected "
                f"HOST:PORT, such as {DEFAULT_SERVER}."
            )
        if self.output:
            check_new_file(self.output, flag="--output")

    def _records(self) -> list[dict]:
        """A dict with `question` for each question."""
        if self.questions:
            # Not all that asks needs its imports.
            from realm_tf.artifacts.question_files import read_questions

            # A line may have its question under another name.
            return [
                {**each.line, "question": each.question}
                for each in read_questions(self.questions, need_answers=False)
            ]
        # The shell may hand over bytes that are no text.
        return [
            {"question": text.encode("utf-8", "replace").decode("utf-8")}
            for text in self.question
        ]

    def _open(self):
        """A client, or a model in this process."""
        if self.saved_model is not None:
            from realm_tf.serving.servable import SavedModelServable

            # For one question it would take longer than the answer.
            return SavedModelServable(self.saved_model, optimized=False)
        api_key = None
        if self.api_key_file is not None:
            from realm_tf.serving.access import read_api_keys

            api_key = next(iter(read_api_keys(self.api_key_file)))
        return RealmClient(
            self.server or DEFAULT_SERVER,
            model=self.model_name,
            tls_ca=self.tls_ca,
            tls_client=self.tls_client,
            api_key=api_key,
        )

    def _answered(self, model, records) -> Iterator[tuple[dict, Answer]]:
        with contextlib.ExitStack() as stack:
            progress = None
            if self.questions:
                from realm_tf.progress import Progress

                progress = stack.enter_context(
                    Progress("ask", "questions", len(records))
                )
            for first in range(0, len(records), BATCH_SIZE):
                batch = records[first : first + BATCH_SIZE]
                answers = model.ask(
                    [record["question"] for record in batch],
                    filter=self.filter,
                )
                yield from zip(batch, answers, strict=True)
                if progress:
                    progress.add(len(batch))


def _of_file(record: dict, answer: Answer) -> str:
    found = {name: getattr(answer, name) for name in _OF_ANSWERS}
    line = {**record, "prediction": answer.answer, **found}
    return json.dumps(line, ensure_ascii=False)
