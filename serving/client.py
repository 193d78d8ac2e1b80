"""The client of a REALM server, which needs neither TensorFlow nor Keras."""

import math

import grpc

from realm_tf.errors import InputError
from realm_tf.export import signatures
from realm_tf.serving import answers
from realm_tf.serving import connection
from realm_tf.serving.answers import RealmServerError
from realm_tf.serving.messages import decode_tensor
from realm_tf.serving.messages import encode_strings
from realm_tf.serving.messages import wire

# Few enough for a server that allows batches of 32; our choice.
BATCH_SIZE = 16
MODEL_NAME = "realm"
TIMEOUT_SECONDS = 30.0
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"


class RealmClient:
    """Asks a server of this project, or any TF Serving with a REALM export.

    One client may be used by any number of threads, and so by coroutines
    (`await asyncio.to_thread(client.ask, questions)`). A request that the
    server could not take (UNAVAILABLE, RESOURCE_EXHAUSTED) is sent again
    after a pause, as long as the request's time lasts; one that took too
    long is not.

    Args:
        target: str. `"HOST:PORT"` of the gRPC port.
        model: str. The name the model is served under. Defaults to
            `"realm"`.
        version: int. The version to ask. Defaults to `None`: the one the
            server prefers, which is the highest.
        timeout_seconds: float. The longest a request may take with all its
            attempts; of a long list of questions, each request. Defaults to
            30.
        max_attempts: int. How often a request is sent at most, 1 to 5 (the
            most that gRPC allows). Defaults to 5.
        batch_size: int. The most questions in one request; a longer list is
            sent in several. Defaults to 16.
        tls: bool. Whether to speak TLS, trusting the public authorities.
            Defaults to `False`.
        tls_ca: str. Path of the certificates to trust (PEM), which turns
            TLS on.
        client_certificate: str. Path of this client's own certificate
            chain (PEM), for a server that wants one.
        client_key: str. Path of its key (PEM).
        api_key: str. Sent with every request; without TLS it is readable
            on the way. Not shown in errors.

    Raises:
        InputError: if an argument is wrong or a certificate cannot be used.

    Example:

    ```python
    with RealmClient("127.0.0.1:8500") as client:
        print(client.ask(["Who wrote Frankenstein?"])[0].answer)
    ```
    """

    def __init__(
        self,
        target: str,
        *,
        model: str = MODEL_NAME,
        version: int | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        max_attempts: int = connection.MAX_ATTEMPTS,
        batch_size: int = BATCH_SIZE,
        tls: bool = False,
        tls_ca: str | None = None,
        client_certificate: str | None = None,
        client_key: str | None = None,
        api_key: str | None = None,
    ):
        if not 0 < timeout_seconds < math.inf:
            raise InputError(
                "`timeout_seconds` must be positive and finite. "
                f"Received: timeout_seconds={timeout_seconds}"
            )
        if batch_size < 1:
            raise InputError(
                "`batch_size` must be at least 1. "
                f"Received: batch_size={batch_size}"
            )
        self.target = target
        self.model = model
        self.timeout_seconds = timeout_seconds
        self._version = version
        self._batch_size = batch_size
        self._headers = connection.headers(api_key)
        options = connection.channel_options(target, max_attempts)
        credentials = connection.credentials(
            tls=tls,
            tls_ca=tls_ca,
            client_certificate=client_certificate,
            client_key=client_key,
        )
        if credentials is None:
            self._channel = grpc.insecure_channel(target, options)
        else:
            self._channel = grpc.secure_channel(target, credentials, options)

    def __enter__(self) -> "RealmClient":
        return self

    def __exit__(self, *exception_info) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target!r}, model={self.model!r})"

    def ask(
        self, questions: list[str], *, filter: str = ""
    ) -> list[answers.Answer]:
        """Answers questions.

        Args:
            questions: list of str.
            filter: str. What must hold of the documents that are read, such as
                `"tags=hr;date>=2024"`; see `export.field_table`. Defaults to
                `""`: nothing.

        Returns:
            list of `Answer`, in the order of the questions.

        Raises:
            RealmServerError: if the server cannot be reached, refuses or
                answers nonsense.
        """
        return self._predict(
            questions, signatures.DEFAULT, answers.to_answers, filter
        )

    def retrieve(
        self, questions: list[str], *, filter: str = ""
    ) -> list[list[answers.RetrievedBlock]]:
        """Finds the blocks nearest to questions, without reading them.

        Args:
            questions: list of str.
            filter: str. As of `ask`.

        Returns:
            list with a list of `RetrievedBlock` for each question, best
            first; empty for an empty question.

        Raises:
            RealmServerError: As `ask`.
        """
        return self._predict(
            questions, signatures.RETRIEVE, answers.to_retrieved, filter
        )

    def embed(self, questions: list[str]) -> list[list[float]]:
        """Embeds questions as the index is searched with them.

        Args:
            questions: list of str.

        Returns:
            list of lists of `projection_dim` floats.

        Raises:
            RealmServerError: As `ask`.
        """
        return self._predict(
            questions, signatures.EMBED_QUERY, answers.to_embeddings
        )

    def status(self) -> list[answers.ModelVersionStatus]:
        """The state of the model's versions, or of the one asked for.

        Returns:
            list of `ModelVersionStatus`, in the server's order.

        Raises:
            RealmServerError: As `ask`.
        """
        request = self._of_model(wire.GetModelStatusRequest())
        return self._call(_STATUS, request, answers.read_statuses)

    def _predict(self, questions, signature, convert, filter=""):
        if isinstance(questions, str):
            raise TypeError(
                "`questions` must be a list of str. "
                f"Received: questions={questions!r}"
            )
        # One after the other: the last requests need not wait in memory.
        return [
            row
            for first in range(0, len(questions), self._batch_size)
            for row in self._predict_part(
                questions[first : first + self._batch_size],
                signature,
                convert,
                filter,
            )
        ]

    def _predict_part(self, questions, signature, convert, filter):
        request = self._of_model(wire.PredictRequest())
        request.model_spec.signature_name = signature
        inputs = {"question": questions}
        if filter:
            request.model_spec.signature_name += signatures.FILTERED
            inputs[signatures.FILTER] = [filter] * len(questions)
        for name, texts in inputs.items():
            request.inputs.add(key=name, value=encode_strings(texts))

        def read(response):
            parsed = wire.PredictResponse.FromString(response)
            outputs = {
                one.key: decode_tensor(one.value) for one in parsed.outputs
            }
            return convert(outputs, count=len(questions))

        return self._call(_PREDICT, request, read)

    def _of_model(self, request):
        request.model_spec.name = self.model
        if self._version is not None:
            request.model_spec.version.value = self._version
        return request

    def _call(self, method, request, read):
        """What `read` makes of the response's bytes."""
        try:
            with answers.checked(f"The server at {self.target}"):
                return read(
                    self._channel.unary_unary(method)(
                        request.SerializeToString(),
                        timeout=self.timeout_seconds,
                        metadata=self._headers,
                    )
                )
        except grpc.RpcError as error:
            message = connection.explain(
                error,
                target=self.target,
                timeout_seconds=self.timeout_seconds,
            )
            raise RealmServerError(error.code().name, message) from error
