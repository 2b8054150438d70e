package distributed

import (
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Fetching are the options of DeepSpeed's stage 3 about weights, in elements.
type Fetching struct {
	// Prefetch is stage3_prefetch_bucket_size, Persist stage3_param_persistence_threshold,
	// Reuse stage3_max_reuse_distance, Live stage3_max_live_parameters, Part
	// sub_group_size.
	Prefetch, Persist, Reuse, Live, Part int64
	// Frozen says that the model is not trained, as DeepSpeed takes one without an optimizer.
	Frozen bool
	// OffloadWeights keeps the rank's parts of weights in the host's memory.
	OffloadWeights bool
	// Serial is without overlap_comm: gathered and reduced is on the stream that computes.
	Serial bool
	// Scattered is without contiguous_gradients: no bucket holds copies of gradients.
	Scattered bool
}

// ZeRO3 is a model under DeepSpeed's stage 3: a rank has a part of each parameter, and
// modules gather theirs when they run.
type ZeRO3 struct {
	tape    *trace.Tape
	world   World
	options DeepSpeed
	fetch   Fetching

	modules []*ZeROModule
	trained []*zeroParam
	groups  [][]*zeroParam // that the optimizer steps one after the other
	masters masters

	bucket   *trace.Tensor
	elements int64
	members  []*zeroParam
	grads    *trace.Tensor // the rank's parts of all gradients
	queued   bool
	// order is that of the modules of a step, once known; used is where the running step
	// stands in it, ahead how far fetching is.
	order       []*ZeROModule
	known       bool
	used, ahead int
	within      int   // the parameters of the module where fetching is
	live        int64 // elements that are whole
}

// zeroParam is a parameter of which the rank has a part.
type zeroParam struct {
	numel, part   int64
	trains, stays bool
	flat, whole   *trace.Tensor
	at            int64 // in the buffer of gradients
	// users are the modules that run with it (ds_active_sub_modules): a set, so that one whose forward a
	// checkpoint runs again, and breaks off before the hook behind it, has let go of it after its backward.
	users map[*ZeROModule]bool
	// isWhole says that it is, or on its way, with which flight.
	isWhole, used bool
	flight        *flight
}

// ZeROModule are a module's own parameters and the hooks around its forward. It
// implements [trace.Wrapper].
type ZeROModule struct {
	zero    *ZeRO3
	module  string
	params  []*zeroParam
	restore []func()
	running int // in backward
}

// FullyPartitioned puts a model under stage 3. Its weights must not be on the device yet:
// they come there part by part.
func FullyPartitioned(t *trace.Tape, w World, o DeepSpeed, fetch Fetching, groups []Group) (*ZeRO3, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	z := &ZeRO3{tape: t, world: w, options: o, fetch: fetch, masters: masters{tape: t}}
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
	for _, x := range olds {
		t.Release(x)
	}
	switch {
	case !fetch.Frozen && len(z.trained) == 0:
		return nil, errNothingTrained
	case !fetch.Frozen:
		z.allocate()
	}
	t.OnAbsent(z.external)
	return z, nil
}

// reduction and gathering are the streams that gradients are reduced and parameters
// gathered on.
func (z *ZeRO3) reduction() program.Stream {
	if z.fetch.Serial {
		return 0
	}
	return reductionStream
}

func (z *ZeRO3) gathering() program.Stream {
	if z.fetch.Serial {
		return 0
	}
	return gatheringStream
}

// external gathers a parameter that the code of another module reads, which has it until
// backward ends (register_external_parameter).
func (z *ZeRO3) external(x *trace.Tensor) {
	for _, m := range z.modules {
		for _, q := range m.params {
			if q.whole.SharesStorage(x) {
				q.users[nil] = true // no module's hook lets go of it
				if q.flight == nil {
					z.launch([]*zeroParam{q})
				}
				z.land(q)
				return
			}
		}
	}
}

// partition takes a parameter apart.
func (z *ZeRO3) partition(p Param) *zeroParam {
	t, old := z.tape, *p.Tensor
	q := &zeroParam{
		numel: old.Numel(), part: ceil.Div(old.Numel(), z.world.Size),
		trains: old.RequiresGrad(), users: map[*ZeROModule]bool{},
	}
	q.stays = q.numel <= z.fetch.Persist
	old.FreeStorage()
	if !q.trains && !z.fetch.OffloadWeights {
		t.Hold(empty(t, program.Weights, old.DType(), q.part))
	}
	q.flat = t.Hold(t.Unallocated(old.DType(), q.part*z.world.Size))
	q.whole = t.Hold(q.flat.PartLike(0, old))
	q.whole.SplitLike(old)
	if q.trains {
		q.whole.Leaf()
		z.trained = append(z.trained, q)
	}
	*p.Tensor = q.whole
	return q
}

// allocate makes what the rank holds of weights, gradients and master weights.
func (z *ZeRO3) allocate() {
	t := z.tape
	total, inGroup := int64(0), int64(0)
	for _, q := range z.trained {
		q.at = total
		total += q.part
	}
	d := z.trained[0].whole.DType()
	var flat *trace.Tensor
	if !z.fetch.OffloadWeights {
		flat = t.Hold(t.New("to_device", program.Weights, d, total))
	}
	for i, q := range z.trained {
		if inGroup == 0 {
			z.groups = append(z.groups, nil)
		}
		last := len(z.groups) - 1
		z.groups[last] = append(z.groups[last], q)
		if inGroup += q.part; inGroup >= z.fetch.Part && total > z.fetch.Part {
			inGroup = 0
		}
		q.whole.OnAccumulated(func() { z.accumulated(z.trained[i]) })
	}
	if !z.options.OffloadOptimizer {
		z.hold(d, flat)
	}
	if !z.fetch.Scattered {
		z.bucket = t.Hold(empty(t, program.Gradients, d, z.options.bucket()))
	}
	if !z.options.OffloadOptimizer {
		z.grads = t.Hold(t.New("zeros", program.Gradients, d, total))
	}
	// gathered once, so that a hook finds its gradient (create_reduce_and_remove_grad_hooks)
	for _, q := range z.trained {
		f := t.Frame()
		f.Let(empty(t, program.Temporaries, d, q.part*z.world.Size))
		f.End()
	}
}

// hold makes the master weights of each group, by a copy in fp32 that ends with the next one,
// and for a moment their gradients (_create_fp32_partitions, initialize_optimizer_states).
// Weights in fp32, which lie in flat, are their own.
func (z *ZeRO3) hold(d trace.DType, flat *trace.Tensor) {
	t, largest := z.tape, int64(0)
	t.NoGrad(func() {
		f := t.Frame()
		var converted *trace.Tensor
		for _, g := range z.groups {
			n := sizeOf(g)
			largest = max(largest, n)
			if d == trace.F32 && flat != nil {
				z.masters.parts = append(z.masters.parts, t.Hold(flat.Part(g[0].at, n)).Leaf())
				continue
			}
			f.Set(&converted, t.New("to_dtype", program.Temporaries, trace.F32, n))
			z.masters.parts = append(z.masters.parts, t.Hold(t.New("clone", program.Weights, trace.F32, n)).Leaf())
		}
		f.End()
		f = t.Frame()
		f.Let(t.New("zeros", program.Gradients, trace.F32, largest))
		f.End()
	})
}

// sizeOf is the number of elements that a rank holds of some parameters.
func sizeOf(params []*zeroParam) (n int64) {
	for _, q := range params {
		n += q.part
	}
	return n
}

// Masters are what the optimizer steps; none if the host does.
func (z *ZeRO3) Masters() []*trace.Tensor { return z.masters.parts }

// Modules are those with parameters, in the order in which they were given.
func (z *ZeRO3) Modules() []*ZeROModule { return z.modules }

// Module is the path of the module.
func (m *ZeROModule) Module() string { return m.module }

// Inputs implements [trace.Wrapper].
func (m *ZeROModule) Inputs() (d trace.DType, cast bool) { return d, false }

// Enter implements [trace.Wrapper].
func (m *ZeROModule) Enter(args []*trace.Tensor) {
	t := m.zero.tape
	restore := func() {}
	if !t.Unwinding() {
		t.Aside(func() { m.zero.enter(m) })
		restore = t.BeforeInputs("PostBackwardFunctionModuleBackward", m.backwardDone, args)
	}
	m.restore = append(m.restore, restore)
}

// Leave implements [trace.Wrapper].
func (m *ZeROModule) Leave(results []*trace.Tensor) {
	last := len(m.restore) - 1
	m.restore[last]()
	m.restore = m.restore[:last]
	z := m.zero
	if z.tape.Unwinding() {
		return // an exception passes by the hooks
	}
	z.leave(m)
	if z.tape.Tracks(results...) {
		for _, y := range results {
			if y != nil && y.RequiresGrad() {
				y.OnGradient(m.backwardBegins)
				break
			}
		}
	}
}

// backwardBegins runs when the gradient of the module's result is there.
func (m *ZeROModule) backwardBegins() {
	z := m.zero
	if !z.queued {
		z.queued = true
		z.tape.AfterBackward(z.finish)
	}
	m.running++
	z.enter(m)
}

// backwardDone runs when those of its inputs are there.
func (m *ZeROModule) backwardDone() {
	if m.running > 0 {
		m.running--
		m.zero.leave(m)
	}
}

// enter has a module's parameters whole, and those of the modules that follow on their
// way (fetch_sub_module).
func (z *ZeRO3) enter(m *ZeROModule) {
	var need []*zeroParam
	if z.known && z.used == 0 && m.module != "" { // the model's own forward begins before
		z.prefetch()
	}
	for _, q := range m.params {
		q.users[m] = true
		if !q.isWhole {
			need = append(need, q)
		}
	}
	z.launch(need)
	for _, q := range m.params {
		z.land(q)
	}
	if !z.known {
		z.order = append(z.order, m)
	}
	z.used++
	if z.known {
		z.prefetch()
	}
}

// prefetch gathers for the next modules, up to the bucket's size.
func (z *ZeRO3) prefetch() {
	most := min(z.fetch.Prefetch, z.fetch.Live-z.live)
	var next []*zeroParam
	n := int64(0)
	if z.ahead < z.used {
		z.ahead, z.within = z.used, 0
	}
	for z.ahead < len(z.order) && n < most {
		params := z.order[z.ahead].params
		if z.within == len(params) {
			z.ahead, z.within = z.ahead+1, 0
			continue
		}
		if q := params[z.within]; !q.isWhole && !slices.Contains(next, q) {
			next = append(next, q)
			n += q.numel
		}
		z.within++
	}
	z.launch(next)
}

// A flight is parameters that are gathered together: one in its own buffer, several in one,
// from which all are copied when the first of them is needed, and which stays until all were
// (AllGatherCoalescedHandle).
type flight struct {
	params []*zeroParam
	flat   *trace.Tensor
	landed bool
	left   int // parameters that were not needed yet
}

// launch begins to gather parameters.
func (z *ZeRO3) launch(params []*zeroParam) {
	if len(params) == 0 {
		return
	}
	t := z.tape
	f := &flight{params: params, left: len(params)}
	t.NoGrad(func() {
		t.WaitStream(z.gathering(), 0)
		t.On(z.gathering(), func() {
			if len(params) > 1 {
				f.flat = t.Hold(empty(t, program.Temporaries, params[0].whole.DType(), sizeOf(params)*z.world.Size))
				t.Collective(program.AllGather, z.world.Size, f.flat, f.flat)
			} else {
				q := params[0]
				q.allocate()
				t.Collective(program.AllGather, z.world.Size, q.flat, q.flat)
			}
		})
	})
	for _, q := range params {
		q.isWhole, q.flight = true, f
		z.live += q.numel
	}
}

// land waits for a parameter that is on its way.
func (z *ZeRO3) land(q *zeroParam) {
	f, t := q.flight, z.tape
	if f == nil {
		return
	}
	q.flight = nil
	t.NoGrad(func() {
		t.On(z.gathering(), func() {
			if f.flat != nil && !f.landed {
				for _, p := range f.params {
					p.allocate()
					trace.ForeachUpdate("_foreach_copy_", 0, []*trace.Tensor{p.flat}, []*trace.Tensor{f.flat})
				}
			}
			f.landed = true
		})
		t.WaitStream(0, z.gathering())
	})
	if f.left--; f.left == 0 && f.flat != nil {
		t.Release(f.flat)
	}
}

func (q *zeroParam) allocate() {
	op := "resize_bytes_cuda"
	if !q.used {
		op, q.used = "empty_memory_format", true
	}
	q.flat.AllocStorage(op, program.Weights)
}

// leave lets go of a module's parameters, but of those that persist, that another module
// uses, or that come again soon (release_sub_module).
func (z *ZeRO3) leave(m *ZeROModule) {
	for _, q := range m.params {
		delete(q.users, m)
		if q.isWhole && len(q.users) == 0 && !q.stays && !z.soon(q) {
			z.free(q)
		}
	}
}

func (z *ZeRO3) free(q *zeroParam) {
	z.land(q)
	q.flat.FreeStorage()
	q.isWhole = false
	z.live -= q.numel
}

// soon tells whether a parameter is used again within the distance of reuse, or was
// skipped by fetching since it was whole.
func (z *ZeRO3) soon(q *zeroParam) bool {
	if !z.known {
		return false
	}
	n := int64(0)
	for i := z.used; i < len(z.order) && (n < z.fetch.Reuse || i < z.ahead); i++ {
		for _, p := range z.order[i].params {
			if p == q {
				return true
			}
			n += p.numel
		}
	}
	return false
}
