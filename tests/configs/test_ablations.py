"""The suites of `realm ablate`: what they name exists."""

from realm_tf.configs import ablations as configs


def test_suites_name_models_and_sources_that_exist():
    assert set(configs.BEGINNINGS) <= set(configs.ENCODER_KEPT)
    for name in configs.SUITES:
        suite = configs.get_suite(name)
        names = [system.name for system in suite.systems]
        assert len(set(names)) == len(names) and suite.reference in names
        for system in suite.systems:
            assert system.towers in {
                *configs.ENCODER_KEPT,
                *configs.PRETRAININGS,
            }
            assert system.encoder in {
                configs.START,
                configs.WARM_UP,
                *configs.PRETRAININGS,
            }
            assert not system.paper or set(system.paper) == set(suite.metrics)
    assert [s.name for s in configs.get_suite("table2").systems] == [
        "realm",
        "realm_retriever+baseline_encoder",
        "baseline_retriever+realm_encoder",
        "orqa",
        "uniform_masks",
        "span_masks",
        "stale_30x",
    ]


def test_cells_keep_the_order_of_the_table():
    suite = configs.get_suite("table2", ["stale_30x", "orqa"])
    assert [system.name for system in suite.systems] == ["orqa", "stale_30x"]
    assert suite.reference == "orqa"
    suite = configs.get_suite("table1", ["bm25", "realm_retriever"])
    assert suite.reference == "realm_retriever"
    suite = configs.get_suite("table2", ["stale_30x", "realm"])
    assert suite.reference == "realm"
