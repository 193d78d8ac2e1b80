"""A SavedModel with REALM's signature, small enough to export in a test."""

import contextlib
import datetime
import json
import logging
import threading

import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from document_site import ALL
from document_site import PART
from document_site import WORDS
from rest_client import Client
from tensorflow.core.protobuf import meta_graph_pb2
from version_world import World
from waiting import wait_for

import realm_tf as realm
from realm_tf.artifacts import saved_models
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.serving import server
from realm_tf.serving.options import ServerOptions
from realm_tf.serving.server import RunningServer

# The third row is for every other question: no block, padded candidates.
QUESTIONS = ["who wrote frankenstein?", "where is the eiffel tower?"]
FRANKENSTEIN = (
    "Frankenstein is a novel. It was written by Mary Shelley “in” 1818. "
    "It came out in London."
)
TOWER = "Café culture aside, the Eiffel Tower stands in Paris."
URL = "https://example.org/frankenstein"
LONDON = (2, "London", "London is large.", "", "London")
CANDIDATES = [
    [
        (7, "Frankenstein", FRANKENSTEIN, URL, "Mary Shelley", -0.5),
        (*LONDON, -1.0),
    ],
    [(3, "Eiffel Tower", TOWER, "", "Paris", -0.25), (*LONDON, -1.5)],
    [],
]
PADDING = 3 * [(-1, "", "", "", "", float("-inf"))]
ROWS = {
    "answer": ["Mary Shelley", "Paris", ""],
    "score": [12.5, 9.25, 0.0],
    "confidence": [0.75, 0.5, 0.0],
    "answered": [True, True, False],
    "block_id": [7, 3, -1],
    "title": ["Frankenstein", "Eiffel Tower", ""],
    "text": [FRANKENSTEIN, TOWER, ""],
    "url": [URL, "", ""],
    "start": [FRANKENSTEIN.index("Mary"), TOWER.index("Paris"), 0],
    "limit": [FRANKENSTEIN.index("Mary") + 12, len(TOWER) - 1, 0],
    "answer_sentence": ["It was written by Mary Shelley “in” 1818.", TOWER, ""],
    "is_sentence": [False, False, False],
    "nbest_answer": [["Mary Shelley", "1818"], ["Paris", ""], ["", ""]],
    "nbest_score": [[12.5, 3.0], [9.25, 0.0], [0.0, 0.0]],
    **{
        f"candidate_{name}": [
            [each[place] for each in (*row, *PADDING)][:3] for row in CANDIDATES
        ]
        for place, name in enumerate(
            ("block_id", "title", "text", "url", "answer", "log_prob")
        )
    },
}


def _column(values):
    column = tf.constant(values)
    is_integer = column.dtype.is_integer
    return tf.Variable(tf.cast(column, tf.int64) if is_integer else column)


class AnswerModule(tf.Module):
    """Looks the case-folded question up and gathers the row's outputs."""

    def __init__(self, directory):
        super().__init__()
        # A file, so that the SavedModel has an asset.
        path = f"{directory}/questions.txt"
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{question}\n" for question in QUESTIONS)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                path,
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            default_value=2,
        )
        self.columns = {name: _column(rows) for name, rows in ROWS.items()}

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="steps")])
    def slow(self, steps):
        """Takes as long as it has steps."""
        tf.debugging.assert_non_negative(steps, "steps are negative")
        value = tf.ones([64, 64]) / 64.0
        for _ in tf.range(steps):
            value = tf.matmul(value, value)
        return {"value": value[0, 0]}

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="question")]
    )
    def answer(self, question):
        rows = self.table.lookup(tf_text.case_fold_utf8(question))
        return {
            name: tf.gather(column, rows)
            for name, column in self.columns.items()
        }


@pytest.fixture(scope="session")
def rows():
    """What the model answers: output name to the values of its rows."""
    return ROWS


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory):
    """A base directory with the versions 1 and 2; 2 scores 100 higher."""
    base = tmp_path_factory.mktemp("model")
    module = AnswerModule(str(tmp_path_factory.mktemp("vocabulary")))
    for version in (1, 2):
        tf.saved_model.save(
            module,
            str(base / str(version)),
            signatures={"serving_default": module.answer, "slow": module.slow},
        )
        module.columns["score"].assign_add([100.0, 100.0, 0.0])
    # An export that is still being written, and files of others.
    (base / "3").mkdir()
    (base / "README.md").write_text("notes")
    return str(base)


@pytest.fixture(scope="session")
def running(saved_model):
    """A server of version 2 at free ports, gRPC and REST."""
    with server.start(saved_model) as running:
        yield running


class FakeServable:
    """Counts its runs and holds each until it is let go.

    Its one signature, of strings, gives what it gets.
    """

    directory = "fake"
    version = 1
    card = {"index": "fake"}

    def __init__(self):
        definition = meta_graph_pb2.SignatureDef(
            method_name="tensorflow/serving/predict"
        )
        for side in (definition.inputs, definition.outputs):
            side["question"].dtype = tf.string.as_datatype_enum
            side["question"].tensor_shape.dim.add(size=-1)
        self.signature_defs = {"serving_default": definition}
        self.started = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.error = None
        self.runs = 0
        self.closed = False

    def check(self, inputs, *, signature="", output_filter=()):
        assert list(inputs) == ["question"]
        return self.signature_defs[signature or "serving_default"]

    def warm_up(self):
        pass

    def run(self, inputs, **unused):
        self.runs += 1
        self.started.release()
        assert self.let_go.wait()
        if self.error is not None:
            raise self.error
        return inputs

    def close(self):
        self.closed = True


@pytest.fixture
def fake_servable():
    servable = FakeServable()
    yield servable
    servable.let_go.set()


@pytest.fixture
def serve_fake(fake_servable, tmp_path):
    """Starts a server of the fake servable with the given options."""
    version = tmp_path / "fake" / "1"
    version.mkdir(parents=True)
    (version / saved_models.SAVED_MODEL_FILE).touch()
    with contextlib.ExitStack() as stack:

        def start(**options):
            options = ServerOptions(
                **{
                    "saved_model": str(version.parent),
                    "grpc_port": 0,
                    "rest_port": 0,
                    **options,
                }
            )
            running = RunningServer(options, lambda *_: fake_servable)
            stack.callback(running.stop)
            stack.callback(fake_servable.let_go.set)
            return running

        yield start


@pytest.fixture
def serve(serve_fake):
    """Starts such a server; gives a client of its REST port."""
    return lambda **options: Client(serve_fake(**options))


@pytest.fixture
def read_log(caplog):
    """Reads the lines of a kind in the log."""
    caplog.set_level(logging.INFO, logger="realm_tf.serving")

    def read(kind="request"):
        lines = (
            json.loads(record.message)
            for record in caplog.records
            if record.name == "realm_tf.serving"
        )
        return [line for line in lines if line["kind"] == kind]

    return read


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A directory with server and client: NAME.pem, NAME.key, NAME.locked.

    Both are for localhost and sign themselves. The third is the key under a
    passphrase.
    """
    directory = tmp_path_factory.mktemp("certificates")
    now = datetime.datetime.now(datetime.UTC)
    for name in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            x509.CertificateBuilder(subject, subject, key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName("localhost")]),
                critical=False,
            )
            # Python verifies strictly since 3.13.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(
                    key.public_key()
                ),
                critical=False,
            )
            .sign(key, hashes.SHA256())
        )
        (directory / f"{name}.pem").write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
        )
        for suffix, encryption in (
            ("key", serialization.NoEncryption()),
            ("locked", serialization.BestAvailableEncryption(b"secret")),
        ):
            (directory / f"{name}.{suffix}").write_bytes(
                key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    encryption,
                )
            )
    return directory


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.stop()
    wait_for(lambda: world.open_versions() == [])


@pytest.fixture(scope="session")
def site(tmp_path_factory, model_dir):
    """A server of twelve documents, of which one key sees the even ones."""
    root = tmp_path_factory.mktemp("site")
    (root / "docs").mkdir()
    for number in range(12):
        word = WORDS[number % len(WORDS)]
        parity = ("even", "odd")[number % 2]
        (root / f"docs/{number}.md").write_text(
            f"---\nparity: {parity}\nnumber: {number}\n---\n"
            f"The {word} is {parity}."
        )
    realm.CreateCorpus(
        documents=str(root / "docs"),
        output=str(root / "corpus"),
        model=model_dir,
        fields=("parity", "number"),
    ).run()
    (root / "keys").write_text(f"{ALL}\n{PART} parity=even\n")
    with server.start(
        LiveCorpus(root / "corpus").saved_model,
        api_key_file=str(root / "keys"),
        mcp="http",
    ) as running:
        yield running
