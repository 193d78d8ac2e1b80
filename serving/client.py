"""Clients of a REALM server that need neither TensorFlow nor Keras.

with RealmClient("127.0.0.1:8500") as client:
    for answer in client.ask(["Who wrote Frankenstein?"]):
        print(answer.answer, answer.title, answer.url)

async with AsyncRealmClient("127.0.0.1:8500") as client:
    answers = await client.ask(["Who wrote Frankenstein?"])
"""

import math

import grpc
import grpc.aio

from realm_tf.answering.answer import Answer
from realm_tf.serving import connection
from realm_tf.serving.answers import ModelVersionStatus
from realm_tf.serving.answers import RealmServerError
from realm_tf.serving.answers import RetrievedBlock
from realm_tf.serving.calls import Call
from realm_tf.serving.calls import Calls

# Few enough for a server that allows batches of 32; our choice.
BATCH_SIZE = 16
MODEL_NAME = "realm"
TIMEOUT_SECONDS = 30.0


class _Client:
    """What both clients are made of but the call itself; see `RealmClient`."""

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
            raise ValueError(
                "`timeout_seconds` must be positive and finite. "
                f"Received: timeout_seconds={timeout_seconds}"
            )
        self.target = target
        self.model = model
        self.timeout_seconds = timeout_seconds
        self._calls = Calls(model=model, version=version, batch_size=batch_size)
        self._headers = connection.headers(api_key)
        options = connection.channel_options(max_attempts)
        credentials = connection.credentials(
            tls=tls,
            tls_ca=tls_ca,
            client_certificate=client_certificate,
            client_key=client_key,
        )
        if credentials is None:
            self._channel = self._grpc.insecure_channel(target, options)
        else:
            self._channel = self._grpc.secure_channel(
                target, credentials, options
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target!r}, model={self.model!r})"

    def _start(self, call: Call):
        """The response, or what it can be awaited by."""
        return self._channel.unary_unary(call.method)(
            call.request, timeout=self.timeout_seconds, metadata=self._headers
        )

    def _explained(self, error: grpc.RpcError) -> RealmServerError:
        message = connection.explain(
            error.code().name,
            error.details() or "",
            target=self.target,
            timeout_seconds=self.timeout_seconds,
        )
        return RealmServerError(error.code().name, message)


class RealmClient(_Client):
    """Asks a server of this project, or any TF Serving with a REALM export.

    One client may be used by any number of threads. A request that the
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
        ValueError: if an argument is wrong or a certificate cannot be used.

    Example:

    ```python
    with RealmClient("127.0.0.1:8500") as client:
        print(client.ask(["Who wrote Frankenstein?"])[0].answer)
    ```
    """

    _grpc = grpc

    def __enter__(self) -> "RealmClient":
        return self

    def __exit__(self, *exception_info) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def ask(self, questions: list[str]) -> list[Answer]:
        """Answers questions.

        Args:
            questions: list of str.

        Returns:
            list of `Answer`, in the order of the questions.

        Raises:
            RealmServerError: if the server cannot be reached, refuses or
                answers nonsense.
        """
        return self._all(self._calls.ask(questions))

    def retrieve(self, questions: list[str]) -> list[list[RetrievedBlock]]:
        """Finds the blocks nearest to questions, without reading them.

        Args:
            questions: list of str.

        Returns:
            list with a list of `RetrievedBlock` for each question, best
            first; empty for an empty question.

        Raises:
            RealmServerError: As `ask`.
        """
        return self._all(self._calls.retrieve(questions))

    def embed(self, questions: list[str]) -> list[list[float]]:
        """Embeds questions as the index is searched with them.

        Args:
            questions: list of str.

        Returns:
            list of lists of `projection_dim` floats.

        Raises:
            RealmServerError: As `ask`.
        """
        return self._all(self._calls.embed(questions))

    def metadata(self) -> dict:
        """What the server serves.

        Returns:
            dict with `"model"`, `"version"` (int) and `"signatures"`: name
            to `{"inputs": {name: {"dtype", "shape"}}, "outputs": ...}`.

        Raises:
            RealmServerError: As `ask`.
        """
        return self._call(self._calls.metadata())

    def status(self) -> list[ModelVersionStatus]:
        """The state of the model's versions, or of the one asked for.

        Returns:
            list of `ModelVersionStatus`, in the server's order.

        Raises:
            RealmServerError: As `ask`.
        """
        return self._call(self._calls.status())

    def _all(self, calls) -> list:
        return [row for call in calls for row in self._call(call)]

    def _call(self, call: Call):
        try:
            response = self._start(call)
        except grpc.RpcError as error:
            raise self._explained(error) from error
        return call.result(response, target=self.target)


class AsyncRealmClient(_Client):
    """`RealmClient` for coroutines: the same methods, to be awaited.

    Make it inside a coroutine: its connection belongs to the running event
    loop. Questions of one list are sent one request after the other;
    `asyncio.gather` sends several lists at once.

    Args:
        target: str. As this and the other arguments, see `RealmClient`.

    Example:

    ```python
    async with AsyncRealmClient("127.0.0.1:8500") as client:
        print((await client.ask(["Who wrote Frankenstein?"]))[0].answer)
    ```
    """

    _grpc = grpc.aio

    async def __aenter__(self) -> "AsyncRealmClient":
        return self

    async def __aexit__(self, *exception_info) -> None:
        await self.close()

    async def close(self) -> None:
        """See `RealmClient.close`."""
        await self._channel.close()

    async def ask(self, questions: list[str]) -> list[Answer]:
        """See `RealmClient.ask`."""
        return await self._all(self._calls.ask(questions))

    async def retrieve(
        self, questions: list[str]
    ) -> list[list[RetrievedBlock]]:
        """See `RealmClient.retrieve`."""
        return await self._all(self._calls.retrieve(questions))

    async def embed(self, questions: list[str]) -> list[list[float]]:
        """See `RealmClient.embed`."""
        return await self._all(self._calls.embed(questions))

    async def metadata(self) -> dict:
        """See `RealmClient.metadata`."""
        return await self._call(self._calls.metadata())

    async def status(self) -> list[ModelVersionStatus]:
        """See `RealmClient.status`."""
        return await self._call(self._calls.status())

    async def _all(self, calls) -> list:
        return [row for call in calls for row in await self._call(call)]

    async def _call(self, call: Call):
        try:
            response = await self._start(call)
        except grpc.RpcError as error:
            raise self._explained(error) from error
        return call.result(response, target=self.target)
