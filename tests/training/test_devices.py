import json

import eight_devices
import pytest


def test_on_eight_devices():
    pytest.importorskip("jax")
    code = """
        import keras, numpy as np
        from realm_tf.retrieval import block_embedder
        from realm_tf.training import devices

        with devices.use_all(16):
            inputs = keras.Input((2,), name="x")
            model = keras.Model({"x": inputs}, 2.0 * inputs)
            for num_rows in (1, 64, 70):
                x = np.arange(2.0 * num_rows).reshape(num_rows, 2)
                found = block_embedder.predict(model, {"x": x})
                np.testing.assert_array_equal(found, 2 * x)
        assert keras.distribution.distribution() is None
        print("done")
    """
    assert eight_devices.run(code) == "done\n"


def test_a_batch_is_on_the_most_devices_that_divide_it():
    pytest.importorskip("jax")
    code = """
        import contextlib, io, types
        import keras
        from realm_tf.errors import InputError
        from realm_tf.training import devices

        told = io.StringIO()
        for batch_size in (8, 6, 1):
            with contextlib.redirect_stderr(told), devices.use_all(batch_size):
                found = keras.distribution.distribution()
                print(found and found.device_mesh.shape)
        print(told.getvalue(), end="")
        hosts = [types.SimpleNamespace(process_index=n // 4) for n in range(8)]
        used = devices.sharing(6, hosts)
        print([each.process_index for each in used])
        try:
            devices.sharing(7, hosts)
        except InputError as error:
            print(error)
    """
    assert eight_devices.run(code, number=4).splitlines() == [
        "(4,)",
        "(3,)",
        "None",
        "each batch is on 3 of 4 devices, the most that divide batch_size=6 "
        "evenly",
        "each batch is on 1 of 4 devices, the most that divide batch_size=1 "
        "evenly",
        "[0, 0, 0, 1, 1, 1]",
        "2 processes share each batch: batch_size must be a multiple of that. "
        "Received: batch_size=7.",
    ]


_EMBEDDED = """
    import threading, types
    import jax, keras, numpy as np
    from realm_tf.models.bert_encoder import BertEncoder
    from realm_tf.models.embedder import Embedder
    from realm_tf.training import devices, index_builder

    number = len(jax.devices())
    computed = []
    predict = keras.Model.predict

    def count(model, inputs, *, batch_size, **options):
        computed.append(len(inputs["token_ids"]))
        assert batch_size % number == 0
        return predict(model, inputs, batch_size=batch_size, **options)

    keras.Model.predict = count

    class Blocks:
        def __len__(self):
            return 500

        def __getitem__(self, number):
            return types.SimpleNamespace(title_ids=[7], token_ids=[8] * 12)

        def count_wordpieces(self):
            return np.full(500, 13)

    def flop(rows):
        inputs = {name: keras.ops.ones((rows, 16), "int32") for name in names}
        layout = keras.distribution.distribution()
        if layout:
            mesh = layout.device_mesh.backend_mesh
            split = jax.sharding.PartitionSpec("batch")
            inputs = jax.device_put(
                inputs, jax.sharding.NamedSharding(mesh, split)
            )
        state = [
            [variable.value for variable in part]
            for part in (tower.trainable_variables,
                         tower.non_trainable_variables)
        ]
        step = jax.jit(tower.predict_step).lower(state, inputs).compile()
        return step.cost_analysis()["flops"]

    names = ("token_ids", "segment_ids", "padding_mask")
    tower = Embedder(BertEncoder(60, 2, 2, 64, 256))
    alone = flop(8 * number)
    with devices.use_all(number):
        tower = Embedder(BertEncoder(60, 2, 2, 64, 256))
        shared = flop(8 * number)
        loaded = types.SimpleNamespace(
            model=types.SimpleNamespace(block_embedder=tower),
            tokenizer=types.SimpleNamespace(cls_id=1, sep_id=2, pad_id=0),
            block_segment_ids=(0, 1),
        )
        build = index_builder.builder_in_process(
            loaded, Blocks(), max_block_length=16
        )
        weights = [np.array(each) for each in tower.get_weights()]
        thread = threading.Thread(
            target=build, args=(weights, threading.Event())
        )
        thread.start()
        thread.join()
    print(alone / number / shared * 500 / sum(computed))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [4, 8])
def test_a_refresh_uses_all_devices(number):
    """Operations a device that are needed, of those that it computes."""
    pytest.importorskip("jax")
    shown = eight_devices.run(_EMBEDDED, number=number)
    assert 0.9 < float(shown.split()[-1]) <= 1.02


_FINE_TUNED = """
    import json, sys
    from realm_tf.operations.fine_tune import FineTune

    model, blocks, index, questions, output, recipe, *changes = sys.argv[1:]
    made = FineTune(
        recipe=recipe,
        set=("dropout=0.0", "num_epochs=2", *changes),
        model=model,
        blocks=blocks,
        index=index,
        questions=[questions],
        dev=questions,
        output=output,
    ).run(verbose=0)
    print(json.dumps(made.metadata["history"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe, changes",
    [
        ("tiny", ["batch_size=8", "refresh_every=1"]),
        # One question at a time.
        ("orqa", ["num_candidates=5", "num_reader_blocks=3"]),
    ],
)
def test_fine_tuning_on_eight_devices_is_that_on_one(
    open_qa_world, tmp_path, recipe, changes
):
    pytest.importorskip("jax")
    world = (
        *map(open_qa_world.get, ("model", "blocks", "exact")),
        *open_qa_world["questions"],
    )
    histories = []
    for number in (1, 8):
        output = str(tmp_path / str(number))
        given = (*world, output, recipe, *changes)
        shown = eight_devices.run(_FINE_TUNED, *given, number=number)
        histories.append(json.loads(shown.splitlines()[-1]))
    for one, eight in zip(*histories, strict=True):
        assert eight == pytest.approx(one, abs=1e-4)


_FINE_TUNING_STEP = """
    import jax
    from realm_tf.configs import finetune
    from realm_tf.training import step_costs

    step_costs._add_memory = lambda numbers, compiled, device: (
        compiled.cost_analysis(), ""
    )
    encoder = dict(
        vocabulary_size=60, num_layers=1, num_heads=2, hidden_dim=64,
        intermediate_dim=256,
    )
    tower = {"encoder": encoder, "projection_dim": 16}
    config = dict(
        query_embedder=tower, block_embedder=tower, share_embedders=True,
        reader={"encoder": encoder}, masked_lm_head=False, score_scale=1.0,
    )
    recipe = finetune.RECIPES["tiny"].replace(batch_size=16)
    alone, shared = (
        step_costs.costs(
            step_costs.STEPS["finetune"], recipe, config, 500, used
        )[0]["flops"]
        for used in (jax.devices()[:1], jax.devices())
    )
    print(alone / len(jax.devices()) / shared)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [4, 8])
def test_fine_tuning_uses_all_devices(number):
    """Operations a device that are needed, of those that it computes."""
    pytest.importorskip("jax")
    shown = eight_devices.run(_FINE_TUNING_STEP, number=number)
    assert 0.9 < float(shown.split()[-1]) <= 1.02
