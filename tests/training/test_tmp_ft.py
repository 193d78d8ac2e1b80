import time, cProfile, pstats
from realm_tf.configs import open_qa as configs
def test_time(model_dir, blocks_dir, scann_index_dir, questions_path, tmp_path):
    from realm_tf.training import finetune
    p=cProfile.Profile(); p.enable()
    h=finetune.finetune(model_dir, blocks_dir, scann_index_dir, questions_path, str(tmp_path/f'o'), recipe=configs.get_recipe('tiny', ['num_epochs=1','batch_size=8']), verbose=0)
    p.disable(); pstats.Stats(p).sort_stats('cumulative').print_stats(70)
