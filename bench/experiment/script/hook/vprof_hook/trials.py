"""Measures memory-saving options: after everything else was recorded, runs further steps of the script with one change
each.

The changes are made between steps, in objects of the script: options of its optimizers, checkpointing of its blocks,
autocast. The peak of each step is compared with an unchanged step. If a changed step fails, the run still counts as
complete.
"""

import collections
import contextlib
import functools
import gc
import sys
import threading
import time

from . import closing, events, holders

# Trials may use this share of the CPU time used so far, and at least LEAST seconds.
SHARE, LEAST = 0.1, 4.0

# The share of the CPU time for searches for copies of the model, after the first FIRST searches.
LOOKS, FIRST = 0.02, 4

# Cross-entropy over fewer classes is not split: its logits are small.
CLASSES = 4096

CHUNKS = 8

# Methods of models in transformers and diffusers: checkpointing on, checkpointing off, and the property that reports
# it.
METHODS = (
    ("activation_checkpointing_enable", "activation_checkpointing_disable", "is_activation_checkpointing"),
    ("gradient_checkpointing_enable", "gradient_checkpointing_disable", "is_gradient_checkpointing"),
    ("enable_gradient_checkpointing", "disable_gradient_checkpointing", "is_gradient_checkpointing"),
)


def compiles():
    """Reports whether torch.compile has compiled a function of the script."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and utils.counters["frames"]["total"] > 0


class Trials:
    """Runs the changes, one for each step."""

    def __init__(self, watch):
        self.watch, self.torch = watch, watch.torch
        self.running = False
        self.began = time.process_time()
        self.queue = collections.deque()
        self.undo = None
        self.name = ""
        self.base = 0  # peak of the unchanged step, in bytes
        self.stepped = set()  # optimizers that have stepped during this trial
        self.copies = {}  # bytes of copies of the model by description, at the step with the highest peak
        # The number of searches for copies, the peak at the last one, and CPU seconds until which no other begins.
        self.looks = self.looked = self.rest = 0
        # Whether the script uses autocast, a cross-entropy over at least CLASSES classes, and attention that returns weights.
        self.autocast = self.loss = self.weights = False

    def trained(self):
        """Returns the parameters of all optimizers."""
        return [p for o in self.watch.counts for group in o.param_groups for p in group["params"]]

    def possible(self):
        """Reports whether further steps can measure the changes: memory must be recorded and must not grow between
        steps.
        """
        watch, distributed = self.watch, self.torch.distributed
        if watch.longest.seconds <= 0 or watch.growth.found() or events.quiet or not watch.memory.used:
            return False
        # With torch.compile a change would recompile; with several ranks, all of them would have to make the change.
        return not compiles() and not (distributed.is_available() and distributed.is_initialized())

    def begin(self):
        """Starts the trials after the last counted step. Returns False if nothing can be tried."""
        watch = self.watch
        if not self.possible() or not any(watch.counts.values()):
            return False
        budget = max(LEAST, SHARE * (time.process_time() - self.began))
        self.until = time.process_time() + budget
        try:
            self.owned = {id(p) for p in self.trained()}
            self.send_copies()
            self.queue.extend([("", self.observe), *self.optimizers(), *self.unowned(), *self.blocks()])
            self.running = True
            self.next()
        except Exception:  # this release or model lacks an attribute that a change sets
            self.running = False
            return False
        sys.excepthook = lambda *_: None
        alarm = threading.Timer(6 * budget, closing.interrupt, [lambda: self.running])
        alarm.daemon = True
        alarm.start()
        return True

    def after_step(self, optimizer):
        """Called after each optimizer step. Once every active optimizer has stepped, sends the peak and starts the next
        trial.
        """
        self.stepped.add(optimizer)
        if any(n > 0 and o not in self.stepped for o, n in self.watch.active().items()):
            return
        peak = self.watch.memory.read(self.watch.memory.judged())["allocated_bytes"]["all"]["peak"]
        self.undo()
        if not self.name:
            self.base = peak
            self.queue.extend(self.losses())
            if not self.autocast:
                self.queue.extend(self.casts())
            self.queue.extend(self.attentions())
        events.send("tried", text=self.name, peak_allocated=peak, allocated=self.base)
        self.next()

    def next(self):
        """Applies the next change. Ends the script if none is left or the time is used up."""
        if not self.queue or time.process_time() > self.until:
            self.running = False
            self.watch.leave_loop()
            return
        self.name, change = self.queue.popleft()
        self.stepped = set()
        self.undo = change()
        memory = self.watch.memory
        memory.reset(memory.judged())

    # Changes. Each generator yields (text, change); change applies the option and returns the function that undoes it.

    def observe(self):
        """Changes nothing; detects whether the script uses autocast, a cross-entropy over many classes, and attention
        that returns weights.
        """
        torch, attention = self.torch, self.torch.nn.MultiheadAttention
        enter, loss, attend = torch.autocast.__enter__, torch.nn.functional.cross_entropy, attention.forward

        def entered(context):
            self.autocast = True
            return enter(context)

        @functools.wraps(loss)
        def computed(logits, *args, **kwargs):
            self.loss |= logits.dim() == 2 and logits.shape[-1] >= CLASSES
            return loss(logits, *args, **kwargs)

        @functools.wraps(attend)
        def attended(module, query, key, value, key_padding_mask=None, need_weights=True, *args, **kwargs):
            self.weights |= need_weights
            return attend(module, query, key, value, key_padding_mask, need_weights, *args, **kwargs)

        torch.autocast.__enter__, torch.nn.functional.cross_entropy, attention.forward = entered, computed, attended

        def undo():
            torch.autocast.__enter__, torch.nn.functional.cross_entropy, attention.forward = enter, loss, attend

        return undo

    def optimizers(self):
        """Yields foreach=False for optimizers whose multi-tensor step copies all values at once."""
        groups = [g for o in self.watch.counts for g in o.param_groups if g.get("foreach", False) is not False and not g.get("fused")]
        if groups:
            yield self.each(groups)
        for optimizer in self.watch.counts:
            if not type(optimizer).__module__.startswith("torch.optim"):
                yield "a step of %s for one parameter after the other, without _foreach functions" % type(optimizer).__name__, functools.partial(self.split, optimizer)

    def each(self, groups):
        def change():
            before = [g["foreach"] for g in groups]
            for group in groups:
                group["foreach"] = False
            return lambda: [g.__setitem__("foreach", b) for g, b in zip(groups, before)]

        names = sorted({type(o).__name__ for o in self.watch.counts if any(g in groups for g in o.param_groups)})
        fused = "fused=True or " if all("fused" in g for g in groups) else ""
        return "%s with %sforeach=False" % (" and ".join(names), fused), change

    @staticmethod
    def split(optimizer):
        """Makes optimizer.step() update one parameter at a time: all other gradients are None meanwhile. Returns a
        function that undoes the change.
        """
        whole, own = optimizer.step, getattr(type(optimizer).step, "__wrapped__", type(optimizer).step)

        def step(*args, **kwargs):
            grads = {p: p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None}
            for p in grads:
                p.grad = None
            for number, (p, grad) in enumerate(grads.items(), 1):
                p.grad = grad
                result = whole(*args, **kwargs) if number == len(grads) else own(optimizer)
                p.grad = None
            for p, grad in grads.items():
                p.grad = grad
            return result

        optimizer.step = step
        return lambda: setattr(optimizer, "step", whole)

    def modules(self):
        """Returns the root modules: modules that no other module contains."""
        every = [m for m in gc.get_objects() if issubclass(type(m), self.torch.nn.Module) and "_modules" in vars(m)]
        inner = {id(c) for m in every for c in m._modules.values() if c is not None}
        return [m for m in every if id(m) not in inner]

    def unowned(self):
        """Yields requires_grad_(False) for parameters that get gradients although no optimizer updates them."""
        found = {id(p): p for m in self.modules() for p in m.parameters() if p.requires_grad and p.grad is not None and id(p) not in self.owned}
        if not found:
            return

        def change():
            for p in found.values():
                p.requires_grad_(False).grad = None
            return lambda: [p.requires_grad_(True) for p in found.values()]

        yield "requires_grad_(False) for %d parameters that no optimizer has" % len(found), change

    def blocks(self):
        """Yields SDPA instead of eager attention, and checkpointing: by the model's own method, or else of its repeated
        blocks.
        """
        for module in self.modules():
            if not any(id(p) in self.owned for p in module.parameters()):
                continue
            for inner in module.modules():
                implementation = getattr(getattr(inner, "config", None), "_attn_implementation", "")
                if implementation == "eager" and hasattr(inner, "set_attn_implementation"):
                    yield 'attn_implementation="sdpa"', functools.partial(self.call, inner.set_attn_implementation, ["sdpa"], ["eager"])
                for on, off, known in METHODS:
                    if hasattr(inner, on) and not getattr(inner, known, False):
                        yield f"{on}() of the {type(inner).__name__}", functools.partial(self.switch, getattr(inner, on), getattr(inner, off))
                        return
                if isinstance(inner, (self.torch.nn.ModuleList, self.torch.nn.Sequential)) and len(inner) >= 3:
                    kind, number = collections.Counter(type(c) for c in inner).most_common(1)[0]
                    alike = [c for c in inner if type(c) is kind and any(True for _ in c.children())]
                    if number == len(alike) >= 3:
                        yield "checkpointing of the %d %s (torch.utils.checkpoint)" % (number, kind.__name__), functools.partial(self.wrap, alike)
                        return

    @staticmethod
    def switch(on, off):
        on()
        return off

    @staticmethod
    def call(method, there, back):
        method(*there)
        return lambda: method(*back)

    def wrap(self, blocks):
        from torch.utils.checkpoint import checkpoint

        for block in blocks:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        return lambda: [vars(block).pop("forward", None) for block in blocks]

    def losses(self):
        """Yields a cross-entropy that computes the rows in CHUNKS checkpointed parts."""
        if not self.loss:
            return
        from torch.utils.checkpoint import checkpoint

        functional = self.torch.nn.functional
        own = functional.cross_entropy

        @functools.wraps(own)
        def parts(logits, target, *args, **kwargs):
            if logits.dim() != 2 or logits.shape[-1] < CLASSES or args or kwargs.get("reduction", "mean") == "none":
                return own(logits, target, *args, **kwargs)
            kwargs["reduction"] = "sum"
            rows = zip(logits.chunk(CHUNKS), target.chunk(CHUNKS))
            return sum(checkpoint(own, x, y, use_reentrant=False, **kwargs) for x, y in rows) / len(target)

        def change():
            functional.cross_entropy = parts
            return lambda: setattr(functional, "cross_entropy", own)

        yield "cross_entropy in %d parts, each checkpointed" % CHUNKS, change

    def casts(self):
        """Yields bf16 autocast if all parameters are fp32."""
        torch = self.torch
        if not all(p.dtype is torch.float32 for p in self.trained()):
            return

        def change():
            torch.set_autocast_dtype("cuda", torch.bfloat16)
            torch.set_autocast_enabled("cuda", True)

            def undo():
                torch.set_autocast_enabled("cuda", False)
                torch.clear_autocast_cache()

            return undo

        yield 'torch.autocast("cuda", torch.bfloat16)', change

    def attentions(self):
        """Yields need_weights=False for attention that returns its weights. A script that uses them fails in this trial,
        which therefore is the last.
        """
        if not self.weights:
            return
        attention = self.torch.nn.MultiheadAttention
        own = attention.forward

        @functools.wraps(own)
        def forward(module, query, key, value, key_padding_mask=None, need_weights=True, *args, **kwargs):
            return own(module, query, key, value, key_padding_mask, False, *args, **kwargs)

        def change():
            attention.forward = forward
            return lambda: setattr(attention, "forward", own)

        yield "need_weights=False for nn.MultiheadAttention", change

    # Copies of the model, found without a trial.

    def look(self):
        """Called after a step: searches for copies of the model if the peak has risen. The search takes at most the
        share LOOKS of the CPU time.
        """
        now, top = time.process_time(), self.watch.memory.top()
        if now < self.rest or top <= 1.01 * self.looked or self.watch.growth.found():
            return
        self.looks, self.looked = self.looks + 1, top
        growth = self.watch.growth
        known = growth.holder, growth.bound
        with contextlib.suppress(Exception):  # raised by attribute access of the script's own objects
            self.copies = self.find_copies()
        growth.holder, growth.bound = known
        after = time.process_time()
        self.rest = after + (after - now) / LOOKS if self.looks >= FIRST else 0

    def send_copies(self):
        self.rest = 0
        self.look()
        for text, size in self.copies.items():
            events.send("estimate", text=text, allocated=size)

    def find_copies(self):
        """Returns the bytes of copies of the trained parameters that are not trained, by description: averages, target
        networks, reference models, checkpoints.
        """
        torch, parameters = self.torch, [p for p in self.trained() if p.is_cuda]
        states = [s for o in self.watch.counts for state in o.state.values() if isinstance(state, dict) for s in state.values()]
        trained = collections.Counter(tuple(p.shape) for p in parameters)
        held = [t for t in (*parameters, *(p.grad for p in parameters), *states) if isinstance(t, torch.Tensor)]
        sizes = [getattr(t, "_local_tensor", t).untyped_storage() for t in held if holders.is_strided(torch, t)]
        sizes = {s.data_ptr(): s.nbytes() for s in sizes}
        # A copy takes at least a byte for each value. The search of all objects takes longer than some steps.
        if self.watch.memory.allocated() < sum(sizes.values()) + sum(getattr(p, "_local_tensor", p).numel() for p in parameters):
            return {}
        own, own_storages = {id(t) for t in held}, {p.untyped_storage().data_ptr() for p in parameters}
        sets = [(m, type(m).__name__, list(m.parameters())) for m in self.modules()]
        for thing in gc.get_objects():
            # The list itself would be a cycle, which keeps tensors alive.
            if type(thing) in (list, dict, collections.OrderedDict) and len(thing) >= len(trained) and thing is not sets:
                sets.append((thing, f"an {type(thing).__name__}" if type(thing) is collections.OrderedDict else "a " + type(thing).__name__, list(thing.values() if isinstance(thing, dict) else thing)))
        known, least, found = set(), sum(trained.values()), {}
        for holder, name, values in sets:
            values = [v for v in values if issubclass(type(v), torch.Tensor) and v.is_cuda and v.grad_fn is None]
            if len(values) < least or least < 2 or any(id(v) in own for v in values):
                continue
            storages = {v.untyped_storage().data_ptr(): v.untyped_storage().nbytes() for v in values}
            if trained - collections.Counter(tuple(v.shape) for v in values) or known & set(storages) or own_storages & set(storages):
                continue
            known |= set(storages)
            where = holders.Path(self.watch, holder).text() or name
            found[f"the copy of the model in {where}, such as an average, on the host"] = sum(storages.values())
        return found
