from beam_pipelines import execution

TWO_THREADS = [
    "--direct_num_workers=2",
    "--direct_running_mode=multi_threading",
]


def test_options_pin_the_local_runner():
    options = execution.pipeline_options([])
    other = execution.pipeline_options(["--runner=FlinkRunner", "--own=1"])

    assert options.get_all_options()["runner"] == "FnApiRunner"
    assert other.get_all_options()["runner"] == "FlinkRunner"
    assert execution.num_local_workers(options) == 1
    assert (
        execution.num_local_workers(execution.pipeline_options(TWO_THREADS))
        == 2
    )
