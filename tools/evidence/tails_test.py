import json
import pathlib
import unittest

import tails

RECORD = pathlib.Path(__file__).parents[2] / "bench/reference/data/tails.json"


class TailsTest(unittest.TestCase):
    def test_the_first_row_that_fits_gives_a_model_its_type(self):
        for name, types in {
            "Qwen/Qwen2.5-7B-Instruct": {"qwen2"},
            "Qwen/Qwen2.5-VL-7B-Instruct": {"qwen2_5_vl"},
            "Qwen/Qwen2.5-Omni-7B": set(),
            "Qwen/Qwen3-30B-A3B": {"qwen3_moe"},
            "Qwen/Qwen3-8B": {"qwen3"},
            "google/gemma-3n-E2B-it": {"gemma3n", "gemma3n_text"},
            "google/gemma-3-1b-it": {"gemma3_text"},
            "/tmp/Llama-3.2-11B-Vision-Instruct": {"mllama"},
            "meta-llama/Llama-3.2-1B": {"llama"},
            "tiiuae/Falcon-H1-7B-Base": {"falcon_h1"},
            "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": {"qwen2"},
            "mistralai/Ministral-8B-Instruct-2410": {"mistral"},
            "swift/Chinese-Qwen3-235B-2507-Distill-data-110k-SFT": set(),
        }.items():
            self.assertEqual(tails.types_of(f"base_model: {name}"), types, name)

    def test_a_use_is_found_in_each_trainers_own_words(self):
        for repository, path, text, kind, names in [
            ("axolotl-ai-cloud/axolotl", "examples/a.yaml", "rl: dpo\noptimizer: adamw_bnb_8bit", "objectives", {"dpo"}),
            ("axolotl-ai-cloud/axolotl", "examples/a.yaml", "optimizer: adamw_bnb_8bit", "optimizers", {"adamw8bit"}),
            ("modelscope/ms-swift", "examples/a.sh", "swift rlhf --rlhf_type gkd \\\n  --optimizer muon", "optimizers", {"muon"}),
            ("modelscope/ms-swift", "examples/a.sh", "swift rlhf --rlhf_type gkd", "objectives", {"gkd"}),
            ("hiyouga/LLaMA-Factory", "examples/a.yaml", "use_badam: true", "optimizers", {"badam"}),
            ("pytorch/torchtune", "recipes/a.yaml", "_component_: bitsandbytes.optim.PagedAdamW", "optimizers", {"paged-adamw32bit"}),
            ("huggingface/trl", "examples/a.py", "trainer = KTOTrainer(args=KTOConfig())", "objectives", {"kto"}),
            ("huggingface/alignment-handbook", "recipes/z/orpo/c.yaml", "beta: 0.1", "objectives", {"orpo"}),
            ("modelscope/ms-swift", "examples/a.sh", "--tuner_type boft", "peft", {"BOFT"}),
            ("huggingface/trl", "examples/a.py", "peft_config = LoraConfig(r=8)", "peft", {"LoRA"}),
            ("modelscope/ms-swift", "examples/a.sh", "# --rlhf_type kto\npython -m swift", "objectives", set()),
        ]:
            self.assertEqual(tails.uses(repository, path, text)[kind], names, text)

    def test_a_notebook_is_its_code(self):
        cells = [{"cell_type": "markdown", "source": ["Qwen3-8B"]}, {"cell_type": "code", "source": ["load('gpt2')"]}]
        self.assertEqual(tails.types_of(tails.code("a.ipynb", json.dumps({"cells": cells}))), {"gpt2"})

    def test_three_files_of_two_repositories_keep_a_name(self):
        self.assertTrue(tails.kept({"a": 2, "b": 1}))
        self.assertFalse(tails.kept({"a": 9}))
        self.assertFalse(tails.kept({"a": 1, "b": 1}))

    def test_the_record_is_of_this_count(self):
        found = json.loads(RECORD.read_text())
        self.assertEqual(set(found["repositories"]), set(tails.REPOSITORIES))
        for kind, names in tails.all_names().items():
            self.assertEqual(set(found["counts"][kind]), names)
            for name, counted in found["counts"][kind].items():
                self.assertEqual(counted["kept"], tails.kept(counted["by"]), name)
        for page in ("docs/lab/evidence.md", "tools/evidence/preface.md"):
            self.assertIn(tails.page(found), (RECORD.parents[3] / page).read_text())


if __name__ == "__main__":
    unittest.main()
