package distributed

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// The streams of FullyShardedDataParallel besides the compute stream.
const (
	unshardStream program.Stream = iota + 1
	postBackwardStream
	preUnshardStream
	replicaStream
)

// The times at which backward gathers the next unit: before the gradients of a unit are computed, or after.
const (
	PrefetchPre  = "pre"
	PrefetchPost = "post"
)

// FSDP1 is a model under FullyShardedDataParallel with use_orig_params, which has the parameters of each wrapped module
// in one flat tensor (torch/distributed/fsdp/_flat_param.py and _runtime_utils.py).
type FSDP1 struct {
	tape    *trace.Tape
	world   World // the ranks that a flat parameter is divided among, and the rank there
	copies  int64 // of the world
	options Options
	units   []*FlatUnit // the root last
	ended   []*FlatUnit // in the order in which forward passes ended
	queued  bool        // the callback at the end of backward is
	syncs   bool        // gradients are reduced; under no_sync they add up whole
}

// FlatUnit is a wrapped module whose parameters are views of one flat tensor (FlatParamHandle). It implements
// [trace.Wrapper].
type FlatUnit struct {
	fsdp   *FSDP1
	module string
	root   bool
	trains bool
	// shard is the rank's part of the flat tensor, grad its gradient, locals its parts of trained parameters, by name.
	shard, grad *trace.Tensor
	locals      map[string]*trace.Tensor
	// flat is the whole flat tensor, empty between uses. The model computes with views of it; the last one is padding.
	flat  *trace.Tensor
	parts []*trace.Tensor

	phase         trainingPhase
	isUnsharded   bool
	prefetched    bool
	needed, began bool   // backward will use it, and has begun to
	endedIndex    int    // its place in FSDP1.ended, -1 for none
	entered       int    // forwards that run
	forget        func() // removes the hooks on its inputs
}

// WrapFSDP1 puts a model under FullyShardedDataParallel. groups are the wrapped modules, of which the root is the last.
func WrapFSDP1(t *trace.Tape, w World, o Options, groups []ModuleGroup) (*FSDP1, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	o.Replicate = max(1, o.Replicate)
	each := w.Size / o.Replicate
	f := &FSDP1{tape: t, world: World{each, w.Rank % each}, copies: o.Replicate, options: o, syncs: true}
	t.Streams("compute", "unshard", "post-backward", "pre-unshard", "all-reduce")
	for i, g := range groups {
		u := &FlatUnit{
			fsdp: f, module: g.Module, root: i == len(groups)-1, endedIndex: -1, locals: map[string]*trace.Tensor{},
		}
		if f.units = append(f.units, u); len(g.Params) > 0 {
			if err := u.flatten(g.Params); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// flatten replaces parameters by views of one flat tensor.
func (u *FlatUnit) flatten(params []Param) error {
	f, t := u.fsdp, u.fsdp.tape
	own, of := trace.BF16, ""
	for _, p := range params {
		switch d := (*p.Tensor).DType(); {
		case !d.IsFloat(): // packed weights are stored in the type of the others (bnb_4bit_quant_storage)
		case of == "":
			own, of = d, p.Name
		case d != own:
			return fmt.Errorf("FullyShardedDataParallel cannot flatten the parameters of %s: %s has another type "+
				"than %s (ValueError: Must flatten tensors with uniform dtype); wrap its module with wrap=, or use "+
				"--strategy fsdp2", cmp.Or(u.module, "the model"), p.Name, of)
		}
		u.trains = u.trains || (*p.Tensor).RequiresGrad()
	}
	used := own
	if d := f.options.ParamType; d != nil {
		used = *d
	}
	var offsets, gaps []int64
	total := int64(0)
	pad := func(to int64) {
		if rest := total % to; rest > 0 {
			gaps = append(gaps, to-rest)
			total += to - rest
		}
	}
	for _, p := range params {
		pad(16 / used.Size()) // bytes
		offsets = append(offsets, total)
		total += (*p.Tensor).Bytes() / own.Size()
	}
	pad(f.world.Size)
	u.place(params, own, total)
	if u.flat = t.Hold(t.Unallocated(used, total)); u.trains {
		u.flat.Leaf().OnAccumulated(u.postBackward)
	}
	for i, p := range params {
		u.addParam(p, offsets[i])
	}
	for _, n := range gaps {
		u.parts = append(u.parts, t.Hold(u.flat.Part(0, n)))
	}
	return nil
}

// place allocates the rank's shard: all parameters are copied to the device and concatenated, the rank's part copied.
func (u *FlatUnit) place(params []Param, own trace.DType, total int64) {
	f, t := u.fsdp, u.fsdp.tape
	var whole []*trace.Tensor
	for _, p := range params {
		if x := *p.Tensor; f.options.From == FromHost {
			whole = append(whole, t.Hold(t.New("to", program.Weights, x.DType(), x.Shape()...)))
		}
	}
	whole = append(whole, t.Hold(t.New("cat", program.Weights, own, total)))
	u.shard = t.Hold(t.New("clone", program.Weights, own, total/f.world.Size))
	t.Release(whole...)
}

// addParam replaces a parameter by a view of the flat tensor at an offset, and computes the rank's part.
func (u *FlatUnit) addParam(p Param, at int64) {
	t, old := u.fsdp.tape, *p.Tensor
	d, n, share := u.flat.DType(), old.Bytes()/u.shard.DType().Size(), u.shard.Numel()
	if !old.DType().IsFloat() {
		d = old.DType()
	}
	x := t.Hold(u.flat.PartAs(d, at, old))
	x.RequireGrad(old.RequiresGrad())
	first := share * u.fsdp.world.Rank
	if from, to := max(at, first), min(at+n, first+share); old.RequiresGrad() && from < to {
		u.locals[p.Name] = t.Hold(u.shard.Part(from-first, to-from)).Leaf()
	}
	u.parts, *p.Tensor = append(u.parts, x), x
	t.Release(old)
}

// Wrappers returns the wrapped modules' units by module path.
func (f *FSDP1) Wrappers() map[string]trace.Wrapper {
	out := map[string]trace.Wrapper{}
	for _, u := range f.units {
		out[u.module] = u
	}
	return out
}

// Parameters returns the rank's parts of trained parameters in the order of the given names.
func (f *FSDP1) Parameters(names []string) (out []*trace.Tensor) {
	for _, n := range names {
		for _, u := range f.units {
			if x := u.locals[n]; x != nil {
				out = append(out, x)
			}
		}
	}
	return out
}

// SetSync sets whether the next backward passes reduce gradients.
func (f *FSDP1) SetSync(on bool) { f.syncs = on }

// dropGradients removes the gradients of shards that the optimizer has set to None
// (_reset_flat_param_grad_info_if_needed).
func (f *FSDP1) dropGradients() {
	for _, u := range f.units {
		has := func(x *trace.Tensor) bool { return x.Grad() != nil }
		if u.grad != nil && !slices.ContainsFunc(slices.Collect(maps.Values(u.locals)), has) {
			f.tape.Release(u.grad)
			u.grad = nil
		}
	}
}

// Enter implements [trace.Wrapper] and runs before forward (_root_pre_forward, _pre_forward).
func (u *FlatUnit) Enter(args []*trace.Tensor) {
	f, t := u.fsdp, u.fsdp.tape
	if t.Unwinding() {
		return
	}
	if u.root {
		t.WaitStream(unshardStream, computeStream)
		t.WaitStream(preUnshardStream, computeStream)
		f.dropGradients()
	}
	if u.phase == beforeBackward { // a checkpoint runs again
		return
	}
	if u.entered++; u.entered > 1 || u.flat == nil {
		return
	}
	u.phase = inForward
	u.gather()
	t.EnableGrad(func() { u.flat.UseParts(u.parts) })
	if !u.trains && u.forget == nil && t.RequiresGrad(args...) {
		u.forget = t.OnGradients(args, u.endBackward)
	}
}

// Inputs implements [trace.Wrapper]. The root module casts its arguments.
func (u *FlatUnit) Inputs() (d trace.DType, cast bool) {
	if p := u.fsdp.options.ParamType; p != nil && u.root {
		return *p, true
	}
	return d, false
}

// Leave implements [trace.Wrapper] and runs after forward (_post_forward).
func (u *FlatUnit) Leave(results []*trace.Tensor) {
	f := u.fsdp
	switch {
	case f.tape.Unwinding(): // which no hook after forward sees
		u.entered = 0
		return
	case u.phase == beforeBackward:
		return
	}
	if u.entered--; u.entered > 0 {
		return
	}
	if u.flat != nil {
		if u.endedIndex <= 0 { // zero counts as none
			u.endedIndex = len(f.ended)
		}
		f.ended = append(f.ended, u)
		u.free(!u.root && f.options.Reshard == ReshardAll)
	}
	if f.tape.RequiresGrad(results...) {
		u.needed, u.began = true, false
		for _, y := range results {
			if y != nil && y.RequiresGrad() {
				y.OnGradient(u.preBackward)
			}
		}
	}
	u.phase = idlePhase
}

// preBackward runs when the first gradient of the module's results exists (_pre_backward_hook).
func (u *FlatUnit) preBackward() {
	f := u.fsdp
	if u.began {
		return
	}
	if u.root && !f.queued {
		f.queued = true
		f.tape.AfterBackward(f.finishBackward)
		f.dropGradients()
	}
	if u.flat == nil {
		return
	}
	u.phase, u.began = beforeBackward, true
	if u.needed {
		u.gather()
		u.needed = false
	}
	u.prefetch(PrefetchPre)
}

// finishBackward runs at the end of backward (_post_backward_final_callback).
func (f *FSDP1) finishBackward() {
	if f.syncs {
		f.tape.WaitStream(computeStream, postBackwardStream)
		f.tape.WaitStream(computeStream, replicaStream)
	}
	for _, u := range slices.Backward(f.units) {
		u.free(f.freesInBackward())
		if u.forget != nil {
			u.forget()
			u.forget = nil
		}
		u.began, u.needed, u.endedIndex, u.phase = false, false, -1, idlePhase
	}
	f.ended, f.queued = f.ended[:0], false
}

// freesInBackward reports whether backward frees whole parameters (_should_free_in_backward).
func (f *FSDP1) freesInBackward() bool { return f.syncs || f.options.Reshard == ReshardAll }

// prefetch gathers the unit that backward needs next, if now is the configured time.
func (u *FlatUnit) prefetch(now string) {
	f := u.fsdp
	if f.options.Prefetch != now || u.endedIndex < 1 {
		return
	}
	if next := f.ended[u.endedIndex-1]; next.needed && !next.prefetched {
		next.unshard()
		next.prefetched = true
	}
}

// gather gathers the whole flat parameter and makes the compute stream wait for that.
func (u *FlatUnit) gather() {
	if !u.prefetched {
		u.unshard()
	}
	u.fsdp.tape.WaitStream(computeStream, unshardStream)
}

// unshard casts the rank's shard to the compute dtype and gathers the whole flat parameter.
func (u *FlatUnit) unshard() {
	f, t := u.fsdp, u.fsdp.tape
	if u.isUnsharded {
		return
	}
	u.isUnsharded = true
	t.NoGrad(func() {
		frame := t.Frame()
		from := u.shard
		t.OnStream(preUnshardStream, func() {
			if d := u.flat.DType(); d != u.shard.DType() {
				from = frame.Bind(newEmpty(t, program.Temporaries, d, u.shard.Numel()))
				trace.Update("copy_", 0, from, u.shard)
			}
		})
		t.WaitStream(unshardStream, preUnshardStream)
		t.OnStream(unshardStream, func() {
			u.flat.AllocStorage("resize_bytes_cuda", program.Weights)
			t.Collective(program.AllGather, f.world.Size, u.flat, from)
		})
		frame.End()
	})
}

// free ends the use of the whole flat parameter, and frees its memory if on is set.
func (u *FlatUnit) free(on bool) {
	if on && u.isUnsharded {
		u.flat.FreeStorage()
		u.isUnsharded = false
	}
	u.prefetched = false
}

// endBackward runs when backward has used the unit (_post_backward_reshard).
func (u *FlatUnit) endBackward() {
	u.phase = afterBackward
	u.free(u.fsdp.freesInBackward())
	u.prefetch(PrefetchPost)
}

// postBackward runs when the gradient of the whole flat parameter exists (_post_backward_hook).
func (u *FlatUnit) postBackward() {
	f, t := u.fsdp, u.fsdp.tape
	u.phase = afterBackward
	if u.flat.Grad() == nil {
		return
	}
	if u.endBackward(); f.syncs {
		t.WaitStream(postBackwardStream, computeStream)
		t.NoGrad(func() { t.OnStream(postBackwardStream, u.reduce) })
	}
}

// reduce records the reduce-scatter of the gradient; each rank gets the sum of its part (_reduce_grad).
func (u *FlatUnit) reduce() {
	f, t := u.fsdp, u.fsdp.tape
	computed := u.flat.TakeGrad()
	frame := t.Frame()
	whole := computed
	if d := f.options.ReduceType; d != nil && *d != whole.DType() {
		whole = frame.Bind(whole.To(*d))
	}
	part := frame.Bind(newEmpty(t, program.Gradients, whole.DType(), u.shard.Numel()))
	t.Collective(program.ReduceScatter, f.world.Size, part, whole)
	on := postBackwardStream
	if f.copies > 1 {
		on = replicaStream
		t.WaitStream(on, postBackwardStream)
	}
	t.OnStream(on, func() {
		if f.copies > 1 {
			t.Collective(program.AllReduce, f.copies, part, part)
		}
		if d := u.shard.DType(); d != part.DType() {
			frame.Set(&part, part.To(d))
		}
		u.accumulate(part)
	})
	frame.End()
	t.Release(computed)
}

// accumulate makes a reduced gradient the shard's gradient, or adds it to the existing one (_accumulate_sharded_grad).
func (u *FlatUnit) accumulate(part *trace.Tensor) {
	if u.grad != nil {
		trace.Update("add__Tensor", 1, u.grad, part)
		return
	}
	u.grad = u.fsdp.tape.Hold(part)
	for _, x := range u.locals {
		x.SetGrad(part.Part(x.Offset(), x.Numel()))
	}
}
