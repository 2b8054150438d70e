"""Arguments and options that earlier releases of libraries took: each is passed on under its present name, or dropped if
it changes no memory.
"""

import functools
import inspect
import json
import sys

from . import memory, options, placeholders

# Arguments of transformers.TrainingArguments until release 5, and their present names.
TRAINING = {
    "evaluation_strategy": "eval_strategy", "no_cuda": "use_cpu", "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size", "push_to_hub_model_id": "hub_model_id", "push_to_hub_token": "hub_token",
}

# Arguments of the same that change no memory: schedules, logs, uploads, and choices that have one value left.
DROPPED = frozenset("""warmup_ratio logging_dir overwrite_output_dir save_safetensors push_to_hub_organization use_legacy_prediction_loop ray_scope
    half_precision_backend fp16_backend fp16_opt_level dispatch_batches split_batches include_inputs_for_metrics include_tokens_per_second jit_mode_eval
    use_ipex past_index tpu_num_cores tpu_metrics_debug mp_parameters torchdynamo use_mps_device xpu_backend ddp_backend_timeout""".split())

# Arguments that earlier releases of timm's schedulers of learning rates took.
SCHEDULES = {"t_mul": "cycle_mul", "decay_rate": "cycle_decay"}

# The argument of trainers for a tokenizer until transformers 5, and its present name.
TOKENIZER = {"tokenizer": "processing_class"}


def note(owner, old, new):
    placeholders.replaced("setting", "%s of %s" % (old, owner), "passed on as %s" % new if new else "dropped, as the installed release does not take it")


def taking(cls, translate):
    """Replaces the constructor of a class: arguments that it does not take are translated to some that it does."""
    real = cls.__init__
    known = inspect.signature(real).parameters

    @functools.wraps(real)
    def init(self, *args, **kwargs):
        other = {name: kwargs.pop(name) for name in list(kwargs) if name not in known}
        for name, value in other.items():
            new = translate(name, value)
            if new is None:
                kwargs[name] = value  # refused by the constructor, as without vprof
                continue
            note(cls.__name__, name, ", ".join(new))
            kwargs.update({key: content for key, content in new.items() if key not in kwargs})
        real(self, *args, **kwargs)

    cls.__init__ = init


def renaming(names):
    return lambda name, value: {names[name]: value} if name in names else None


# transformers.


def training_argument(name, value):
    """Returns the present arguments for one of an earlier release; None for a name that none had."""
    if name in TRAINING:
        return {TRAINING[name]: value}
    if name in DROPPED:
        return {}
    true = str(value).lower() in ("true", "1")
    if name == "group_by_length":
        return {"train_sampling_strategy": "group_by_length"} if true else {}
    if name == "adafactor":
        return {"optim": "adafactor"} if true else {}
    if name == "fsdp_transformer_layer_cls_to_wrap":
        return {"fsdp_config": {"transformer_layer_cls_to_wrap": [value]}} if value else {}
    return None


def watch_arguments(module):
    """Called when a module with arguments of a trainer has been imported."""
    for cls in list(vars(module).values()):
        if isinstance(cls, type) and cls.__module__ == module.__name__ and cls.__name__.endswith(("TrainingArguments", "SFTConfig")):
            taking(cls, lambda name, value: {"max_length": value} if name == "max_seq_length" else training_argument(name, value))
            without_trackers(cls)


def without_trackers(cls):
    """Reads None as no tracker in the arguments of a trainer, as releases of transformers before 5 did not refuse it."""
    real = cls.__init__

    @functools.wraps(real)
    def init(self, *args, **kwargs):
        if "report_to" in kwargs and kwargs["report_to"] is None:
            kwargs["report_to"] = "none"
        real(self, *args, **kwargs)

    cls.__init__ = init


def watch_parser(module):
    """Called when transformers.hf_argparser has been imported: translates the options of the command."""
    parse = module.HfArgumentParser.parse_args_into_dataclasses

    @functools.wraps(parse)
    def wrapped(self, args=None, *rest, **kwargs):
        if args is None:
            sys.argv[1:] = translated(sys.argv[1:], set(self._option_string_actions))
        if args is not None or rest or kwargs.get("return_remaining_strings") or "documented" not in placeholders.ASKED:
            return parse(self, args, *rest, **kwargs)
        *found, others = parse(self, args, return_remaining_strings=True, **kwargs)
        options.leave_out(others)
        return tuple(found)

    module.HfArgumentParser.parse_args_into_dataclasses = wrapped


def translated(words, known):
    """Returns the words of a command whose parser knows some options, with others under their present names."""
    found, words = [], list(words)
    while words:
        name, given, value = words.pop(0).partition("=")
        new = training_argument(name.lstrip("-"), "true") if name.startswith("--") and name not in known and name.replace("-", "_") not in known else None
        if new is None:
            found.append(name + given + value)
            continue
        if not given:
            value = words.pop(0) if words and not words[0].startswith("--") else "true"
        new = training_argument(name.lstrip("-"), value)
        note("the command", name, ", ".join(new))
        for key, content in new.items():
            found += ["--" + key, content if isinstance(content, str) else json.dumps(content)]
    return found


def watch_trainer(module):
    """Called when transformers.trainer has been imported."""
    taking(module.Trainer, renaming(TOKENIZER))


def watch_models(module):
    """Called when transformers.modeling_utils has been imported: from_pretrained took the number of bits by itself."""
    real = module.PreTrainedModel.from_pretrained.__func__

    @functools.wraps(real)
    def from_pretrained(cls, *args, **kwargs):
        bits = {name: kwargs.pop(name) for name in ("load_in_8bit", "load_in_4bit") if name in kwargs}
        if any(bits.values()) and kwargs.get("quantization_config") is None:
            note("from_pretrained", ", ".join(bits), "quantization_config")
            kwargs["quantization_config"] = sys.modules["transformers"].BitsAndBytesConfig(**bits)
        return real(cls, *args, **kwargs)

    module.PreTrainedModel.from_pretrained = classmethod(from_pretrained)


def watch_sft(module):
    """Called when trl.trainer.sft_trainer has been imported: the trainer took arguments that its SFTConfig has now."""
    taking(module.SFTTrainer, renaming(TOKENIZER))
    real = module.SFTTrainer.__init__
    names = {"dataset_text_field": "dataset_text_field", "max_seq_length": "max_length", "packing": "packing", "dataset_num_proc": "dataset_num_proc"}

    @functools.wraps(real)
    def init(self, *args, **kwargs):
        moved = {names[name]: kwargs.pop(name) for name in names if name in kwargs}
        if moved:
            config = kwargs.get("args") or module.SFTConfig("trainer_output")
            kwargs["args"] = config if isinstance(config, module.SFTConfig) else module.SFTConfig(**config.to_dict())
            for name, value in moved.items():
                note("SFTTrainer", name, "an argument of SFTConfig")
                setattr(kwargs["args"], name, value)
        real(self, *args, **kwargs)

    module.SFTTrainer.__init__ = init


# timm and Lightning.


def watch_schedule(module):
    """Called when a scheduler of timm has been imported."""
    for name in ("CosineLRScheduler", "TanhLRScheduler", "PolyLRScheduler"):
        if hasattr(module, name):
            taking(getattr(module, name), renaming(SCHEDULES))


def watch_factory(module):
    """Called when timm.models._factory has been imported: a user's function that makes a model lacks the arguments that
    releases have added.
    """
    entrypoint = module.model_entrypoint

    @functools.wraps(entrypoint)
    def wrapped(*args, **kwargs):
        make = entrypoint(*args, **kwargs)
        if not memory.of_user(inspect.unwrap(make).__code__.co_filename, memory.LIBRARIES):
            return make
        return lambda *given, **more: make(*given, **{k: v for k, v in more.items() if v is not None or not k.startswith(("pretrained_cfg", "cache_dir"))})

    module.model_entrypoint = wrapped


def watch_transformer(module):
    """Called when timm.models.vision_transformer has been imported. A user's class with a forward_features of its own
    returns pooled features there, as in early releases, and takes no further arguments.
    """
    real = module.VisionTransformer.forward

    @functools.wraps(real)
    def forward(self, x, *args, **kwargs):
        features = type(self).forward_features
        if memory.of_user(features.__code__.co_filename, memory.LIBRARIES) and len(inspect.signature(features).parameters) == 2:
            x = self.forward_features(x)
            return self.head(x) if x.dim() == 2 else self.forward_head(x)
        return real(self, x, *args, **kwargs)

    module.VisionTransformer.forward = forward


def watch_lightning(module):
    """Called when the Trainer of Lightning has been imported: it trains on a GPU where a configuration states the CPU."""
    real = module.Trainer.__init__

    @functools.wraps(real)
    def init(self, *args, **kwargs):
        if kwargs.get("accelerator") == "cpu":
            placeholders.replaced("setting", "accelerator of Trainer", "gpu in place of cpu")
            kwargs["accelerator"] = "gpu"
        real(self, *args, **kwargs)

    module.Trainer.__init__ = init


WATCHED = {
    **dict.fromkeys(("transformers.training_args", "transformers.training_args_seq2seq", "trl.trainer.sft_config"), watch_arguments),
    "transformers.hf_argparser": watch_parser, "transformers.trainer": watch_trainer, "transformers.modeling_utils": watch_models,
    "trl.trainer.sft_trainer": watch_sft, "timm.models._factory": watch_factory, "timm.models.vision_transformer": watch_transformer,
    **dict.fromkeys(("timm.scheduler.cosine_lr", "timm.scheduler.tanh_lr", "timm.scheduler.poly_lr"), watch_schedule),
    **dict.fromkeys(("pytorch_lightning.trainer.trainer", "lightning.pytorch.trainer.trainer"), watch_lightning),
}
