import torch

before, after = [], []
register_optimizer_step_pre_hook = before.append
register_optimizer_step_post_hook = after.append


class Optimizer:
    def __init__(self, params):
        self.param_groups = [{"params": list(params)}]
        self.state = {}

    def load_state_dict(self, state_dict):
        self.state = state_dict["state"]

    def step(self):
        for hook in before:
            hook(self, (), {})
        self.update()
        for hook in after:
            hook(self, (), {})


class SGD(Optimizer):
    def update(self):
        pass


class Adam(Optimizer):
    def update(self):
        if self.param_groups[0].get("foreach", False) is None:  # copies
            torch.Tensor(9000)
        for p in self.param_groups[0]["params"]:
            self.state.setdefault(p, {"exp_avg": torch.Tensor(p.size)})
