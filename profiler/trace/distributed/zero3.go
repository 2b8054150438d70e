package distributed

import (
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// ZeRO3Options are the options of DeepSpeed's ZeRO stage 3 for weights, in elements.
type ZeRO3Options struct {
	// Prefetch is stage3_prefetch_bucket_size, Persist stage3_param_persistence_threshold, Reuse
	// stage3_max_reuse_distance, Live stage3_max_live_parameters, SubGroupSize sub_group_size.
	Prefetch, Persist, Reuse, Live, SubGroupSize int64
	// Frozen reports whether the model is not trained, so that DeepSpeed makes no optimizer.
	Frozen bool
	// OffloadWeights keeps the rank's parts of weights in host memory.
	OffloadWeights bool
	// Serial is overlap_comm=False: collectives run on the compute stream.
	Serial bool
	// Scattered is contiguous_gradients=False: no bucket holds copies of gradients.
	Scattered bool
	// TorchLinear is memory_efficient_linear=False: a layer's saved tensors keep its gathered weight.
	TorchLinear bool
}

// ZeRO3 is a model under DeepSpeed's ZeRO stage 3. Each rank has a part of each parameter, and modules gather their
// parameters when they run.
type ZeRO3 struct {
	tape    *trace.Tape
	world   World
	options DeepSpeed
	fetch   ZeRO3Options

	// dtype is the type in which the engine trains. Parameters that peft adds outside of zero.Init stay in fp32
	// (_cast_module_mixed_precision); their gradients are exchanged in dtype.
	dtype   trace.DType
	modules []*ZeROModule
	trained []*zeroParam
	groups  [][]*zeroParam // that the optimizer steps one after the other
	masters masterWeights

	bucket   *trace.Tensor
	elements int64
	members  []*zeroParam
	grads    *trace.Tensor // the rank's parts of all gradients
	queued   bool
	// order are the modules of a step in the order of their calls, once known. used is the index of the running module,
	// ahead of the module being fetched.
	order       []*ZeROModule
	known       bool
	used, ahead int
	within      int   // the parameters of the module where fetching is
	live        int64 // elements that are whole
	// running are the modules whose forward is running, active the modules whose backward has begun but not ended.
	running, active []*ZeROModule
}

// zeroParam is a parameter that is partitioned over the ranks.
type zeroParam struct {
	numel, part          int64
	trains, isPersistent bool
	usedInPlace          bool // the only rank uses its part itself: nothing is gathered (NoGatherHandle)
	flat, whole          *trace.Tensor
	at                   int64 // in the buffer of gradients
	// users are the modules that currently use the parameter (ds_active_sub_modules). It is a set: a module that a
	// checkpoint recomputes may stop before its post-forward hook, and is then removed after its backward.
	users map[*ZeROModule]bool
	// isGathered reports whether the parameter is gathered or being gathered. handle is the collective that gathers it.
	isGathered, used bool
	handle           *gatherHandle
}

// ZeROModule holds a module's own parameters and the hooks around its forward. It implements [trace.Wrapper].
type ZeROModule struct {
	zero    *ZeRO3
	module  string
	params  []*zeroParam
	restore []func()
	running int // in backward
	// recomputed are frozen parameters of modules that a checkpoint recomputed while this module was the last whose
	// backward had begun (ds_recompute_parameters). They stay gathered until that backward ends.
	recomputed []*zeroParam
}

// PartitionZeRO3 puts a model under ZeRO stage 3. Its weights must not be on the device yet.
func PartitionZeRO3(t *trace.Tape, w World, o DeepSpeed, fetch ZeRO3Options, groups []ModuleGroup) (*ZeRO3, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	z := &ZeRO3{tape: t, world: w, options: o, fetch: fetch, masters: masterWeights{tape: t}}
	t.Streams("compute", "reduction", "all-gather")
	var olds []*trace.Tensor
	for _, g := range groups {
		m := &ZeROModule{zero: z, module: g.Module}
		for _, p := range g.Params {
			olds = append(olds, *p.Tensor)
			m.params = append(m.params, z.partition(p))
		}
		z.modules = append(z.modules, m)
	}
	if len(olds) > 0 {
		z.dtype = olds[0].DType()
	}
	t.Release(olds...)
	switch {
	case !fetch.Frozen && len(z.trained) == 0:
		return nil, errNothingTrained
	case !fetch.Frozen:
		z.allocate()
	}
	t.OnEmptyRead(z.markExternal)
	if !fetch.TorchLinear {
		t.OverrideLinear(zeroLinear)
	}
	return z, nil
}

func (z *ZeRO3) reductionStream() program.Stream {
	if z.fetch.Serial {
		return 0
	}
	return zeroReduceStream
}

func (z *ZeRO3) gatherStream() program.Stream {
	if z.fetch.Serial {
		return 0
	}
	return zeroGatherStream
}

// markExternal gathers a parameter that another module's code reads. From then on it also counts as a parameter of that
// module (register_external_parameter).
func (z *ZeRO3) markExternal(x *trace.Tensor) {
	for _, m := range z.modules {
		for _, q := range m.params {
			if !q.whole.SharesStorage(x) {
				continue
			}
			z.awaitGather(q)
			if !q.isGathered {
				q.allocate()
				z.tape.Collective(program.AllGather, z.world.Size, q.flat, q.flat)
				q.isGathered = true
			}
			if len(z.running) > 0 && !z.known {
				reader := z.running[len(z.running)-1]
				reader.params = append(reader.params, q)
			}
			return
		}
	}
}

// partition divides a parameter among the ranks.
func (z *ZeRO3) partition(p Param) *zeroParam {
	t, old := z.tape, *p.Tensor
	q := &zeroParam{
		numel: old.Numel(), part: ceil.Div(old.Numel(), z.world.Size),
		trains: old.RequiresGrad(), users: map[*ZeROModule]bool{},
	}
	q.isPersistent = q.numel <= z.fetch.Persist
	old.FreeStorage()
	switch bytes, h := q.part*old.DType().Size(), t.Host(); {
	case !z.fetch.OffloadWeights:
	case q.trains: // until all are in one buffer
		h.Cache(bytes)
	default:
		h.Pin(&h.Weights, bytes)
	}
	q.flat = t.Hold(t.Unallocated(old.DType(), q.part*z.world.Size))
	q.whole = t.Hold(q.flat.PartLike(0, old))
	if !q.trains && !z.fetch.OffloadWeights {
		z.setOwnPart(q, t.Hold(newEmpty(t, program.Weights, old.DType(), q.part)), 0)
	}
	q.whole.SplitLike(old)
	if q.trains {
		q.whole.Leaf()
		z.trained = append(z.trained, q)
	}
	*p.Tensor = q.whole
	return q
}

// setOwnPart sets the rank's part of a parameter if there is only one rank, which owns the whole.
func (z *ZeRO3) setOwnPart(q *zeroParam, part *trace.Tensor, at int64) {
	if z.world.Size > 1 {
		return
	}
	f := z.tape.Frame()
	q.whole.SetData(f.Bind(part.PartLike(at, q.whole)))
	f.End()
	q.isGathered, q.usedInPlace = true, true
}

// allocate allocates the rank's weights, gradients and master weights.
func (z *ZeRO3) allocate() {
	t := z.tape
	total, inGroup := int64(0), int64(0)
	for _, q := range z.trained {
		q.at = total
		total += q.part
	}
	d := z.trained[0].whole.DType()
	var flat *trace.Tensor
	if h := t.Host(); z.fetch.OffloadWeights {
		h.Pin(&h.Weights, total*d.Size())
	} else {
		flat = t.Hold(t.New("to_device", program.Weights, d, total))
	}
	for i, q := range z.trained {
		if flat != nil {
			z.setOwnPart(q, flat, q.at)
		}
		if inGroup == 0 {
			z.groups = append(z.groups, nil)
		}
		last := len(z.groups) - 1
		z.groups[last] = append(z.groups[last], q)
		if inGroup += q.part; inGroup >= z.fetch.SubGroupSize && total > z.fetch.SubGroupSize {
			inGroup = 0
		}
		q.whole.OnAccumulated(func() { z.onGradientAccumulated(z.trained[i]) })
	}
	if !z.options.OffloadOptimizer {
		z.allocateMasters(d)
	} else {
		z.offload(t.Host())
	}
	if !z.fetch.Scattered {
		z.bucket = t.Hold(newEmpty(t, program.Gradients, z.dtype, z.options.bucket()))
	}
	if !z.options.OffloadOptimizer {
		z.grads = t.Hold(t.New("zeros", program.Gradients, z.dtype, total))
	}
	// Each trained parameter is gathered once, so that a hook finds its gradient (create_reduce_and_remove_grad_hooks).
	for _, q := range z.trained {
		f := t.Frame()
		f.Bind(newEmpty(t, program.Temporaries, d, q.part*z.world.Size))
		f.End()
	}
}

// offload counts the optimizer's host memory in stage 3 (_create_fp32_partitions, initialize_optimizer_states): master
// weights, their gradients in page-locked memory for each group, and all parameters' gradients in the reduction's type.
func (z *ZeRO3) offload(h *trace.Host) {
	total := ownedElements(z.trained)
	for _, g := range z.groups {
		n := ownedElements(g) * trace.F32.Size()
		h.Weights += n
		h.Pin(&h.Gradients, n)
		h.Stepped += n
	}
	h.Pin(&h.Gradients, total*z.dtype.Size())
}

// allocateMasters allocates the fp32 master weights of each group, each through a copy that lives until the next one is
// made, and temporarily their gradients (_create_fp32_partitions, initialize_optimizer_states). fp32 weights are
// copied, too, since DeepSpeed compares a torch.device with a string to find out that no copy is needed.
func (z *ZeRO3) allocateMasters(d trace.DType) {
	t, largest := z.tape, int64(0)
	t.NoGrad(func() {
		f := t.Frame()
		var converted *trace.Tensor
		for _, g := range z.groups {
			n := ownedElements(g)
			largest = max(largest, n)
			if d != trace.F32 {
				f.Set(&converted, t.New("to_dtype", program.Temporaries, trace.F32, n))
			}
			z.masters.parts = append(z.masters.parts, t.Hold(t.New("clone", program.Weights, trace.F32, n)).Leaf())
		}
		f.End()
		f = t.Frame()
		f.Bind(t.New("zeros", program.Gradients, trace.F32, largest))
		f.End()
	})
}

// ownedElements returns the number of elements that one rank owns of the given parameters.
func ownedElements(params []*zeroParam) int64 {
	return lists.Sum(params, func(q *zeroParam) int64 { return q.part })
}

// Masters returns the fp32 master weights that the optimizer updates; none if they are in host memory.
func (z *ZeRO3) Masters() []*trace.Tensor { return z.masters.parts }

// Modules returns the modules that were passed to PartitionZeRO3, in that order.
func (z *ZeRO3) Modules() []*ZeROModule { return z.modules }

// Module returns the path of the module.
func (m *ZeROModule) Module() string { return m.module }

// Inputs returns the dtype to which forward's arguments are cast, for [trace.Wrapper].
func (m *ZeROModule) Inputs() (d trace.DType, cast bool) { return d, false }

// Enter runs before forward, for [trace.Wrapper].
func (m *ZeROModule) Enter(args []*trace.Tensor) {
	t := m.zero.tape
	restore := func() {}
	z := m.zero
	z.running = append(z.running, m)
	if !t.Unwinding() {
		t.RunHook(func() {
			z.enter(m)
			z.addUser(m)
		})
		restore = t.BeforeInputs("PostBackwardFunctionModuleBackward", m.backwardDone, args)
	}
	m.restore = append(m.restore, restore)
}

// Leave runs after forward, for [trace.Wrapper].
func (m *ZeROModule) Leave(results []*trace.Tensor) {
	last := len(m.restore) - 1
	m.restore[last]()
	m.restore = m.restore[:last]
	z := m.zero
	z.running = z.running[:len(z.running)-1]
	if z.tape.Unwinding() {
		return // an exception passes by the hooks
	}
	z.leave(m)
	if z.tape.RequiresGrad(results...) {
		for _, y := range results {
			if y != nil && y.RequiresGrad() {
				y.OnGradient(m.backwardBegins)
				break
			}
		}
	}
}

// backwardBegins runs when the gradient of the module's result is computed, before the module's backward.
func (m *ZeROModule) backwardBegins() {
	z := m.zero
	if !z.queued {
		z.queued = true
		z.tape.AfterBackward(z.finish)
	}
	m.running++
	z.active = lists.Union(z.active, m)
	z.enter(m)
}

// addUser assigns the frozen parameters of module m, which a checkpoint recomputes, to the last module whose backward
// has begun (update_recompute_parameters).
func (z *ZeRO3) addUser(m *ZeROModule) {
	if !z.queued || len(z.active) == 0 {
		return
	}
	owner := z.active[len(z.active)-1]
	for _, q := range m.params {
		if !q.trains {
			q.users[owner] = true
			owner.recomputed = append(owner.recomputed, q)
		}
	}
}

// backwardDone runs when the gradients of the module's inputs are computed, after the module's backward.
func (m *ZeROModule) backwardDone() {
	if m.running == 0 {
		return
	}
	m.running--
	z := m.zero
	z.active = slices.DeleteFunc(z.active, func(a *ZeROModule) bool { return a == m })
	z.leave(m)
	for _, q := range m.recomputed {
		delete(q.users, m)
		if !q.isPersistent {
			z.free(q)
		}
	}
	m.recomputed = nil
}
