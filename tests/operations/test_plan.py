import importlib.util
import json

import pytest
import python_code

from realm_tf import cli
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.export import footprint
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.operations import plan
from realm_tf.operations.plan import Plan

_SIZES = {
    "num_layers": 2,
    "hidden_dim": 32,
    "num_heads": 2,
    "intermediate_dim": 64,
    "vocabulary_size": 100,
}
_MINILM = {
    "num_layers": 6,
    "hidden_dim": 384,
    "intermediate_dim": 1536,
    "vocabulary_size": 30_522,
}
needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX compiles steps"
)
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="the TPU's compiler is not installed: pip install 'realm-tf[tpu]'",
)


def _config(encoder, projection_dim=None):
    tower = {"encoder": encoder, "projection_dim": projection_dim}
    return {
        "query_embedder": tower,
        "block_embedder": tower,
        "share_embedders": True,
        "reader": {"encoder": encoder},
    }


@needs_jax
def test_blocks_embedded_on_two_devices(model_dir, capsys):
    given = ["--model", model_dir, "--recipe", "tiny", "--num-blocks", "600"]
    assert cli.main(["plan", "embed", "--topology", "cpu:2", *given]) == 0
    told = capsys.readouterr().out
    assert told.startswith("embed, recipe tiny, 600 blocks, batch_size 256, 2")
    assert "GB together" in told and "does not fit" not in told


@needs_jax
@pytest.mark.slow
def test_steps_need_what_their_sizes_say(model_dir):
    def numbers(what, devices=1, num_blocks=4001, **changes):
        return Plan(
            what=what,
            recipe="tiny",
            model=model_dir,
            num_blocks=num_blocks,
            topology=f"cpu:{devices}",
            set=[f"{name}={value}" for name, value in changes.items()],
        ).run()["numbers"]

    product = "TFLOP of products"
    one, four = (numbers("pretrain", n, batch_size=8) for n in (1, 4))
    # The null block, alone, is each device's.
    assert four[product] == pytest.approx(one[product] / 4, rel=0.05)
    assert "GB of all-reduce (in a loop: of one pass)" in four
    double = numbers("pretrain", 4, batch_size=16)
    assert double[product] == pytest.approx(2 * four[product], rel=0.05)
    # Tables of blocks are shared by rows.
    more = numbers("pretrain", 4, num_blocks=40_001, batch_size=8)
    table = more["GB of arguments"] - four["GB of arguments"]
    dim = Model(model_dir).config["query_embedder"]["projection_dim"]
    rows = 4 * dim + 2 * (24 + 24) + 2 + 2 + 4
    assert table * 1e9 == pytest.approx(36_000 / 4 * rows, rel=0.02)
    assert numbers("ict", batch_size=8)[product] < one[product]
    assert numbers("finetune", devices=4)["GB of temporaries"] > 0
    # No more than two devices divide two examples.
    two, of_four = (numbers("ict", n, batch_size=2)[product] for n in (2, 4))
    assert of_four == pytest.approx(two, rel=0.01)


_ON_TPU = """
    import json, sys
    from realm_tf.configs import pretrain
    from realm_tf.training import step_costs

    config, recipe, changes = json.loads(sys.argv[1])
    found = step_costs.costs(
        step_costs.STEPS["pretrain"],
        pretrain.RECIPES[recipe].parse(changes),
        config,
        4000,
        step_costs.devices_of("v5e:2x2"),
    )
    print(json.dumps(found))
"""


@needs_libtpu
@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe, changes",
    [
        ("paper", ["batch_size=8", "gradient_checkpointing=true"]),
        # The notebook's, for two layers.
        ("wiki-small", ["batch_size=32", "num_frozen_layers=1"]),
    ],
)
def test_the_compiler_of_tpus_takes_a_step(model_dir, recipe, changes):
    """It refuses shapes that are not known, and calls of the host."""
    config = dict(Model(model_dir).config)
    encoder = {**_SIZES, "vocabulary_size": 30_522}
    for part in ("query_embedder", "block_embedder", "reader"):
        config[part] = {**config[part], "encoder": encoder}
    environment, _ = plan.environment_of("v5e:2x2")
    task = json.dumps([config, recipe, changes])
    printed = python_code.run(_ON_TPU, task, **environment)
    numbers, refused = json.loads(printed.splitlines()[-1])
    assert not refused and numbers["GB of code"] < 0.2


@pytest.mark.parametrize("what, least", [("index", 16), ("export", 70)])
def test_a_machine_that_is_too_small(what, least):
    for host_memory, status in ((least, 1), (2 * least, 0)):
        given = Plan(what=what, host_memory=host_memory)
        need = given.run()
        assert given.status(need) == status
        told = given.report(need)
        assert f"a machine of {host_memory:g} GB" in told
        assert told.endswith("with more memory.") == bool(status)


@pytest.mark.parametrize(
    "kind, num_blocks, embedding_dim, gigabytes",
    [
        # docs/measurements/corpus.md
        ("brute_force", 3_000_000, 128, 0.4),
        ("ivf", 3_000_000, 128, 2.1),
        ("scann", 3_000_000, 128, 4.5),
        ("ivf", 1_000_000, 384, 2.1),
        ("scann", 1_000_000, 384, 4.9),
    ],
)
def test_indices_had_as_much(kind, num_blocks, embedding_dim, gigabytes):
    config = _config(_MINILM, embedding_dim)
    need = footprint.index(config, num_blocks, kind=kind, block_length=64)
    assert sum(need["memory"].values()) / 1e9 == pytest.approx(
        gigabytes, rel=0.12, abs=0.11
    )


@pytest.mark.parametrize(
    "kind, memory, disk",
    [
        # docs/measurements/corpus.md: 400,000 passages of 115.7 wordpieces.
        ("brute_force", 1.60, 1.254),
        ("ivf", 2.24, 1.261),
        ("scann", 2.24, 1.334),
    ],
)
def test_exports_had_as_much(kind, memory, disk):
    config = _config(_MINILM)
    need = footprint.export(config, 400_000, kind=kind, block_length=115.7)
    assert sum(need["memory"].values()) / 1e9 == pytest.approx(memory, rel=0.05)
    assert sum(need["disk"].values()) / 1e9 == pytest.approx(disk, rel=0.05)


def test_weights_of_an_export_are_those_of_the_encoder():
    one = footprint.export(
        _config(_SIZES), 9, kind="brute_force", block_length=8
    )
    two = footprint.export(
        {**_config(_SIZES), "share_embedders": False},
        9,
        kind="brute_force",
        block_length=8,
    )
    weights = 2 * BertEncoder(**_SIZES).count_params()
    assert one["memory"]["towers and reader"] == 2 * weights
    assert two["memory"]["towers and reader"] == 3 * weights


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"recipe": "huge"}, "--recipe of `realm plan pretrain` must be one"),
        ({"set": ["steps=3"]}, "--set steps=3: expected NAME=VALUE"),
        (
            {"what": "index", "set": ["seed=1"]},
            "--set is not for `realm plan index`",
        ),
        (
            {"what": "index", "host_memory": 0.0},
            "--host-memory 0.0: expected 1",
        ),
        (
            {"host_memory": 1.0},
            "--host-memory is not for `realm plan pretrain`",
        ),
        ({"topology": "v9:2x2"}, "--topology v9:2x2: expected cpu:NUMBER"),
        ({"topology": "cpu:0"}, "--topology cpu:0: expected cpu:NUMBER"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(InputError, match=message):
        Plan(**{"what": "pretrain", **arguments}).run()


def test_without_the_compiler_of_tpus(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n: n != "libtpu" and find(n) or None
    )
    with pytest.raises(
        InputError, match=r"run `pip install 'realm-tf\[tpu\]'`"
    ):
        Plan(what="ict", topology="v5e:2x2").run()
