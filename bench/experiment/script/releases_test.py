"""Tests of vprof_hook/releases.py. They need no packages."""

import os
import sys
import types
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import releases


@unittest.mock.patch.object(releases.placeholders, "replaced")
class ReleasesTest(unittest.TestCase):
    def test_arguments_of_trainers_have_their_present_names(self, _):
        class TrainingArguments:
            def __init__(self, output_dir, eval_strategy="no", optim="adamw", fsdp_config=None):
                self.given = (output_dir, eval_strategy, optim, fsdp_config)

        TrainingArguments.__module__ = "arguments"
        releases.watch_arguments(types.SimpleNamespace(__name__="arguments", TrainingArguments=TrainingArguments))
        made = TrainingArguments("out", evaluation_strategy="steps", warmup_ratio=0.1, adafactor=True, fsdp_transformer_layer_cls_to_wrap="Layer")
        self.assertEqual(made.given, ("out", "steps", "adafactor", {"transformer_layer_cls_to_wrap": ["Layer"]}))
        self.assertEqual(TrainingArguments("out", eval_strategy="epoch", evaluation_strategy="no").given[1], "epoch")
        with self.assertRaises(TypeError):
            TrainingArguments("out", evaluation_strategi="steps")

    def test_options_of_a_command_have_their_present_names(self, _):
        words = ["--lr", "1e-4", "--evaluation_strategy", "no", "--warmup_ratio=0.03", "--overwrite_output_dir", "--group_by_length", "--max-steps", "3", "--other"]
        self.assertEqual(
            releases.translated(words, {"--lr", "--max_steps"}),
            ["--lr", "1e-4", "--eval_strategy", "no", "--train_sampling_strategy", "group_by_length", "--max-steps", "3", "--other"],
        )
        self.assertEqual(releases.translated(["--warmup_ratio", "0.1"], {"--warmup_ratio"}), ["--warmup_ratio", "0.1"])

    def test_options_that_no_release_takes_are_left_out_of_documented_commands(self, replaced):
        class HfArgumentParser:
            _option_string_actions = {"--lr": None}

            def parse_args_into_dataclasses(self, args=None, return_remaining_strings=False):
                return ("parsed", sys.argv[1:]) if return_remaining_strings else ("strict",)

        releases.watch_parser(types.SimpleNamespace(HfArgumentParser=HfArgumentParser))
        with unittest.mock.patch.object(sys, "argv", ["train.py", "--what", "1"]):
            self.assertEqual(HfArgumentParser().parse_args_into_dataclasses(), ("strict",))
            with unittest.mock.patch.object(releases.placeholders, "ASKED", {"documented"}):
                self.assertEqual(HfArgumentParser().parse_args_into_dataclasses(), ("parsed",))
                self.assertEqual(HfArgumentParser().parse_args_into_dataclasses(return_remaining_strings=True), ("parsed", ["--what", "1"]))
        self.assertEqual([call.args[1] for call in replaced.call_args_list], ["--what"])

    def test_a_vision_transformer_of_early_releases_pools_its_features(self, _):
        class VisionTransformer:
            def forward(self, x, attn_mask=None):
                return "features of the release"

            def forward_features(self, x, attn_mask=None):
                return x

            def head(self, x):
                return "classes"

            forward_head = head

        releases.watch_transformer(types.SimpleNamespace(VisionTransformer=VisionTransformer))

        class Own(VisionTransformer):
            def forward_features(self, x):
                return x

        x = types.SimpleNamespace(dim=lambda: 2)
        self.assertEqual([cls().forward(x) for cls in (VisionTransformer, Own)], ["features of the release", "classes"])

    def test_none_is_no_tracker(self, _):
        class TrainingArguments:
            def __init__(self, report_to="none"):
                self.report_to = report_to

        TrainingArguments.__module__ = "arguments"
        releases.watch_arguments(types.SimpleNamespace(__name__="arguments", TrainingArguments=TrainingArguments))
        self.assertEqual([TrainingArguments(**given).report_to for given in ({}, {"report_to": None}, {"report_to": "wandb"})], ["none", "none", "wandb"])

    def test_bits_are_a_configuration(self, _):
        class PreTrainedModel:
            @classmethod
            def from_pretrained(cls, name, **kwargs):
                return kwargs

        releases.watch_models(types.SimpleNamespace(PreTrainedModel=PreTrainedModel))
        library = types.SimpleNamespace(BitsAndBytesConfig=dict)
        with unittest.mock.patch.dict(sys.modules, transformers=library):
            self.assertEqual(PreTrainedModel.from_pretrained("a", load_in_8bit=True), {"quantization_config": {"load_in_8bit": True}})
            self.assertEqual(PreTrainedModel.from_pretrained("a", load_in_4bit=False), {})
            self.assertEqual(PreTrainedModel.from_pretrained("a", load_in_4bit=True, quantization_config=3), {"quantization_config": 3})

    def test_arguments_of_the_tuning_trainer_are_its_configuration(self, _):
        class SFTConfig:
            def __init__(self, output_dir, max_length=1024):
                self.output_dir, self.max_length = output_dir, max_length

        class SFTTrainer:
            def __init__(self, model, args=None, processing_class=None):
                self.args, self.processing_class = args, processing_class

        releases.watch_sft(types.SimpleNamespace(SFTConfig=SFTConfig, SFTTrainer=SFTTrainer))
        other = types.SimpleNamespace(to_dict=lambda: {"output_dir": "out"})
        for args, folder in ((None, "trainer_output"), (other, "out"), (SFTConfig("own"), "own")):
            made = SFTTrainer("model", args=args, max_seq_length=512, tokenizer="tokenizer")
            self.assertEqual((made.args.output_dir, made.args.max_length, made.processing_class), (folder, 512, "tokenizer"))

    def test_schedules_and_models_of_timm(self, _):
        class CosineLRScheduler:
            def __init__(self, optimizer, cycle_mul=1.0):
                self.cycle_mul = cycle_mul

        releases.watch_schedule(types.SimpleNamespace(CosineLRScheduler=CosineLRScheduler))
        self.assertEqual(CosineLRScheduler("optimizer", t_mul=2.0).cycle_mul, 2.0)
        module = types.SimpleNamespace(model_entrypoint=lambda name: lambda pretrained, **kwargs: kwargs)
        releases.watch_factory(module)
        given = {"pretrained": False, "pretrained_cfg": None, "pretrained_cfg_overlay": None, "cache_dir": None, "num_classes": 10}
        with unittest.mock.patch.object(releases.memory, "of_user", return_value=True):
            self.assertEqual(module.model_entrypoint("vit")(**given), {"num_classes": 10})
        with unittest.mock.patch.object(releases.memory, "of_user", return_value=False):
            self.assertEqual(len(module.model_entrypoint("vit")(**given)), 4)

    def test_lightning_trains_on_the_gpu(self, replaced):
        class Trainer:
            def __init__(self, accelerator="auto", devices=1):
                self.accelerator = accelerator

        releases.watch_lightning(types.SimpleNamespace(Trainer=Trainer))
        self.assertEqual([Trainer(accelerator=of).accelerator for of in ("cpu", "gpu")], ["gpu", "gpu"])
        self.assertEqual(replaced.call_count, 1)


if __name__ == "__main__":
    unittest.main()
