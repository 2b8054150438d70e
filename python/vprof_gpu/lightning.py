"""A callback for Lightning's Trainer."""

from typing import Any

from lightning.pytorch import Callback

from .results import Plan
from .watching import Watch


class PeakMemory(Callback):
    """Logs planned and measured peaks to every logger of the trainer: ``Trainer(callbacks=[PeakMemory(plan)])``. The
    options are `Watch`'s.
    """

    def __init__(self, plan: Plan, **options: Any) -> None:
        self.peaks = Watch(plan, **options)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        logs = self.peaks.after(trainer.global_step)
        if trainer.is_global_zero:
            for logger in trainer.loggers if logs else ():
                logger.log_metrics(dict(logs), step=trainer.global_step)
