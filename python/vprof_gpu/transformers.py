"""A callback for transformers' Trainer."""

from typing import Any

from transformers import Trainer, TrainerCallback

from .results import Plan
from .watching import Watch


class PeakMemory(TrainerCallback):
    """Logs planned and measured peaks through the trainer, and so to W&B, TensorBoard and others:
    ``trainer.add_callback(PeakMemory(trainer, plan))``. The options are `Watch`'s.
    """

    def __init__(self, trainer: Trainer, plan: Plan, **options: Any) -> None:
        self.trainer, self.peaks = trainer, Watch(plan, **options)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        logs = self.peaks.after(state.global_step)
        if logs and state.is_world_process_zero:
            self.trainer.log(dict(logs))
