import asyncio
import threading
from concurrent import futures

import grpc
import pytest

from realm_tf.serving.client import AsyncRealmClient
from realm_tf.serving.client import RealmClient

QUESTIONS = ["who wrote Frankenstein?", "where is the Eiffel Tower?", "", "x"]


def test_answers_as_the_other_client(running):
    async def main():
        async with AsyncRealmClient(running.target) as client:
            return (
                await client.ask(QUESTIONS),
                await client.metadata(),
                await client.status(),
            )

    with RealmClient(running.target) as client:
        expected = client.ask(QUESTIONS), client.metadata(), client.status()
    assert asyncio.run(main()) == expected
    assert [a.answer for a in expected[0]] == ["Mary Shelley", "Paris", "", ""]


def test_many_at_once_share_a_connection(running):
    async def main():
        async with AsyncRealmClient(running.target) as client:
            return await asyncio.gather(
                *(client.ask([QUESTIONS[i % 2]]) for i in range(200))
            )

    answers = [answer.answer for (answer,) in asyncio.run(main())]
    assert answers == ["Mary Shelley", "Paris"] * 100


class Held(grpc.GenericRpcHandler):
    """Holds every call until it is let go; then answers with nothing."""

    def __init__(self):
        self.started = threading.Event()
        self.let_go = threading.Event()

    def service(self, details):
        def handle(request, context):
            self.started.set()
            assert self.let_go.wait(timeout=20)
            return b""

        return grpc.unary_unary_rpc_method_handler(handle)


def test_the_loop_goes_on_while_a_call_waits():
    """One call is held by the server; another coroutine lets it go."""
    held = Held()
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[held])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    async def main():
        async with AsyncRealmClient(f"127.0.0.1:{port}") as client:
            call = asyncio.create_task(client.status())
            assert await asyncio.to_thread(held.started.wait, 10)
            assert not call.done()
            held.let_go.set()
            return await call

    try:
        assert asyncio.run(main()) == []
    finally:
        held.let_go.set()
        server.stop(0).wait()


def test_a_cancelled_call_ends_at_once():
    """A pause for another attempt is left, and nothing is sent any more."""
    paused = threading.Event()

    async def sleep(seconds):
        paused.set()
        await asyncio.sleep(3600)

    async def main():
        async with AsyncRealmClient("127.0.0.1:1", sleep=sleep) as client:
            call = asyncio.create_task(client.status())
            while not paused.is_set():
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(asyncio.wait_for(main(), timeout=10))
    assert paused.is_set()
