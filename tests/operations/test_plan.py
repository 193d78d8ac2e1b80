import json
import shutil

import pytest

from realm_tf import cli
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.export import footprint
from realm_tf.operations.plan import Plan
from realm_tf.training.footprint import Sizes


def test_what_fits_is_told(capsys):
    assert cli.main(["plan", "pretrain", "--num-devices", "16"]) == 1
    *_, told = capsys.readouterr().out.splitlines()
    start, _, changes = told.partition("What fits (")
    assert start.startswith("It does not fit: ")
    size, _, changes = changes.partition(" GB): ")
    words = changes.replace("--set ", "").split()
    assert sorted(words) == [
        "batch_size=256",
        "gradient_accumulation_steps=2",
        "num_steps=400000",
        "refresh_every=1000",
    ]
    again = Plan(what="pretrain", num_devices=16, set=words)
    need = again.run()
    assert again.status(need) == 0
    # As many examples, for as many changes of the weights.
    assert need.flop * need.num_steps == pytest.approx(
        Plan(what="pretrain").run().flop * 200_000
    )
    assert f"{need.device_bytes / 1e9:,.1f}" == size


def test_the_batch_of_the_inverse_cloze_task_is_not_cut():
    plan = Plan(what="ict", num_devices=64, device="tpu-v3-core")
    need = plan.run()
    assert plan.status(need) == 1
    assert plan.report(need).endswith("--set gradient_checkpointing=True")


def test_nothing_fits():
    plan = Plan(what="finetune", device="tpu-v5e")
    assert "Nor with one example" in plan.report(plan.run())


@pytest.mark.parametrize("what", ["ict", "pretrain", "finetune", "embed"])
def test_sizes_of_a_model_and_its_blocks(what, model_dir, blocks_dir):
    given = Plan(what=what, model=model_dir, blocks=blocks_dir)
    told = given.report(given.run())
    assert f", {given.blocks.num_blocks:,} blocks, 1 x h100" in told
    paper = Plan(what=what, num_blocks=given.blocks.num_blocks)
    small, large = given.run(), paper.run()
    assert small.memory["weights"] < large.memory["weights"] / 100
    assert small.flop < large.flop / 100


@pytest.mark.parametrize(
    "options, fitting",
    [
        ({"what": "index", "host_memory": 16}, "--num-parts 12"),
        ({"what": "index", "host_memory": 12}, "--kind ivf"),
        ({"what": "index", "kind": "ivf", "host_memory": 6}, "--kind brute_f"),
        ({"what": "export", "host_memory": 66}, "--kind brute_force"),
        ({"what": "export", "host_memory": 32}, "more memory."),
    ],
)
def test_what_fits_a_machine_is_told(options, fitting):
    plan = Plan(**{"kind": "scann", **options})
    need = plan.run()
    assert plan.status(need) == 1
    told = plan.report(need)
    assert f"a machine of {plan.host_memory:g} GB" in told
    assert fitting in told.splitlines()[-1]


@pytest.mark.parametrize(
    "what, kind, num_blocks, num_parts, embedding_dim, gigabytes",
    [
        # docs/measurements/corpus.md
        ("index", "brute_force", 3_000_000, None, 128, 0.4),
        ("index", "ivf", 3_000_000, None, 128, 2.1),
        ("index", "scann", 3_000_000, None, 128, 4.5),
        ("index", "scann", 3_000_000, 3, 128, 3.9),
        ("index", "ivf", 1_000_000, None, 384, 2.1),
        ("index", "scann", 1_000_000, None, 384, 4.9),
        ("index", "scann", 1_000_000, 4, 384, 3.8),
    ],
)
def test_indices_had_as_much(
    what, kind, num_blocks, num_parts, embedding_dim, gigabytes
):
    need = footprint.index(
        num_blocks,
        embedding_dim,
        kind,
        Plan(
            what=what, kind=kind, num_blocks=num_blocks, num_parts=num_parts
        )._num_parts,
    )
    assert need.device_bytes / 1e9 == pytest.approx(
        gigabytes, rel=0.12, abs=0.11
    )


@pytest.mark.parametrize(
    "kind, is_hybrid, memory, disk",
    [
        # docs/measurements/corpus.md: 400,000 passages of 115.7 wordpieces.
        ("brute_force", False, 1.60, 1.254),
        ("brute_force", True, 2.50, 1.390),
        ("ivf", False, 2.24, 1.261),
        ("scann", False, 2.24, 1.334),
    ],
)
def test_exports_had_as_much(kind, is_hybrid, memory, disk):
    minilm = Sizes(
        num_layers=6,
        hidden_dim=384,
        num_heads=12,
        intermediate_dim=1536,
        embedding_dim=384,
        value_bytes=2,
    )
    need = footprint.export(
        minilm,
        400_000,
        kind=kind,
        block_length=115.7,
        is_hybrid=is_hybrid,
    )
    assert need.device_bytes / 1e9 == pytest.approx(memory, rel=0.05)
    assert sum(need.disk.values()) / 1e9 == pytest.approx(disk, rel=0.05)


def test_two_towers_are_counted_twice(model_dir, tmp_path):
    config = Model(model_dir).config
    assert config["share_embedders"]
    two = tmp_path / "two"
    shutil.copytree(model_dir, two)
    path = two / "config.json"
    path.write_text(json.dumps({**config, "share_embedders": False}))
    one, more = (
        Plan(what="ict", model=each, num_blocks=9).run().memory["AdamW"]
        for each in (model_dir, two)
    )
    assert more == 2 * one


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_devices": 7}, "7 devices share each batch: .* 512"),
        ({"recipe": "huge"}, "--recipe must be one of paper, wiki-small"),
        ({"set": ["steps=3"]}, "--set steps=3: expected NAME=VALUE"),
        ({"share_of_peak": 0.0}, "above 0 and at most 1"),
        (
            {"what": "embed", "recipe": "paper"},
            "--recipe is not for `realm plan embed`",
        ),
        (
            {"what": "index", "set": ["seed=1"]},
            "--set is not for `realm plan index`",
        ),
        ({"what": "index", "host_memory": 0.0}, "--host-memory must be above"),
        ({"what": "index", "num_parts": 0}, "`num_parts` must be 1 to"),
        (
            {"what": "index", "kind": "ivf", "num_parts": 5},
            "--num-parts is not for --kind ivf",
        ),
        (
            {"what": "finetune", "num_devices": 8},
            "--num-devices is not for `realm plan finetune`",
        ),
        (
            {"host_memory": 1.0},
            "--host-memory is not for `realm plan pretrain`",
        ),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(InputError, match=message):
        Plan(**{"what": "pretrain", **arguments}).run()
