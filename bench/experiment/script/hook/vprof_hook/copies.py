"""Counts the copies on the GPU that a script makes for its checkpoints without Module.state_dict."""

from . import events
from .memory import frame_of_user


class Copies:
    """The saves of a script, and the copies of the one with most."""

    def __init__(self, watch):
        self.watch = watch
        self.phases = set()  # (step, phase) of the phases that called torch.save
        self.bytes = self.allocated = 0  # bytes of the copies, and allocated bytes when torch.save was called
        self.line = ""  # file:line of this call

    def note(self, checkpoint, frame):
        """Called before torch.save: counts its CUDA tensors that were allocated in the current phase."""
        watch, memory = self.watch, self.watch.memory
        user = frame_of_user(frame, memory.libraries)
        if not memory.used or not any(watch.counts.values()) or user is None:
            return
        self.phases.add((watch.step(), watch.phases[-1]))
        kept = {id(p) for o in watch.counts for group in o.param_groups for p in group["params"]}
        kept |= {id(s) for o in watch.counts for state in o.state.values() if isinstance(state, dict) for s in state.values()}
        copies = [t.untyped_storage() for t in tensors(watch.torch, checkpoint) if t.is_cuda and id(t) not in kept]
        allocated = memory.allocated()
        found = min(sum({s.data_ptr(): s.nbytes() for s in copies}.values()), allocated - memory.before)
        if found > self.bytes:
            self.bytes, self.allocated = found, allocated
            self.line = f"{user.f_code.co_filename}:{user.f_lineno}"

    def send(self):
        """Sends by how much the copies raise the peak of the run."""
        rest = [peak for phase, peak in self.watch.memory.tops.items() if phase not in self.phases and phase[1] != "saving"]
        saves = min(self.bytes, self.allocated - max(rest, default=0))
        if saves > 0:
            events.send("estimate", text=f"copies for the checkpoint on the host, one tensor after the other ({self.line})", allocated=saves)


def tensors(torch, thing):
    """Yields the tensors in nested dicts, lists and tuples."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, (dict, list, tuple)):
        for value in thing.values() if isinstance(thing, dict) else thing:
            yield from tensors(torch, value)
