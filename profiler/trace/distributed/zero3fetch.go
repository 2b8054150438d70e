package distributed

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// enter gathers a module's parameters and starts gathering the next modules' parameters (fetch_sub_module).
func (z *ZeRO3) enter(m *ZeROModule) {
	var need []*zeroParam
	if z.used == 0 { // what small parameters take that stay is not counted (reset_step)
		z.live = 0
	}
	if z.known && z.used == 0 && m.module != "" { // the model's own forward begins before
		z.prefetch()
	}
	for _, q := range m.params {
		q.users[m] = true
		if !q.isGathered {
			need = append(need, q)
		}
	}
	z.startGather(need)
	for _, q := range m.params {
		z.awaitGather(q)
	}
	if !z.known {
		z.order = append(z.order, m)
	}
	z.used++
	if z.known {
		z.prefetch()
	}
}

// prefetch starts gathering the parameters of the next modules, up to the bucket's size.
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
		if q := params[z.within]; !q.isGathered && !slices.Contains(next, q) {
			next = append(next, q)
			n += q.numel
		}
		z.within++
	}
	z.startGather(next)
}

// A gatherHandle holds parameters that are gathered together. Several parameters share one buffer for each type. All
// are copied out when the first is needed, and the buffer lives until then (AllGatherCoalescedHandle).
type gatherHandle struct {
	types  [][]*zeroParam
	flats  []*trace.Tensor
	copied bool
	left   int // parameters that were not needed yet
}

func (z *ZeRO3) startGather(params []*zeroParam) {
	if len(params) == 0 {
		return
	}
	t := z.tape
	f := &gatherHandle{left: len(params)}
	t.NoGrad(func() {
		t.WaitStream(z.gatherStream(), 0)
		t.OnStream(z.gatherStream(), func() {
			if len(params) > 1 && z.world.Size > 1 {
				f.coalesce(z, params)
				return
			}
			for _, q := range params { // several of one rank are copied from the host, each on its own
				q.allocate()
				t.Collective(program.AllGather, z.world.Size, q.flat, q.flat)
			}
		})
	})
	for _, q := range params {
		q.isGathered, q.handle = true, f
		z.live += q.numel
	}
}

// coalesce allocates the buffers of an all-gather, bf16 first (sort_dtypes).
func (f *gatherHandle) coalesce(z *ZeRO3, params []*zeroParam) {
	for _, d := range []trace.DType{trace.BF16, trace.F16, trace.F32} {
		same := lists.Filter(params, func(q *zeroParam) bool { return q.flat.DType() == d })
		if len(same) == 0 {
			continue
		}
		flat := z.tape.Hold(newEmpty(z.tape, program.Temporaries, d, ownedElements(same)*z.world.Size))
		z.tape.Collective(program.AllGather, z.world.Size, flat, flat)
		f.types, f.flats = append(f.types, same), append(f.flats, flat)
	}
}

// awaitGather waits for a parameter that is being gathered.
func (z *ZeRO3) awaitGather(q *zeroParam) {
	f, t := q.handle, z.tape
	if f == nil {
		return
	}
	q.handle = nil
	t.NoGrad(func() {
		t.OnStream(z.gatherStream(), func() {
			if f.copied {
				return
			}
			for i, same := range f.types {
				for _, p := range same {
					p.allocate()
					trace.ForeachUpdate("_foreach_copy_", 0, []*trace.Tensor{p.flat}, f.flats[i:i+1])
				}
			}
			f.copied = true
		})
		t.WaitStream(0, z.gatherStream())
	})
	if f.left--; f.left == 0 {
		t.Release(f.flats...)
	}
}

func (q *zeroParam) allocate() {
	op := "resize_bytes_cuda"
	if !q.used {
		op, q.used = "empty_memory_format", true
	}
	q.flat.AllocStorage(op, program.Weights)
}

// leave releases a module's parameters except persistent ones, ones that another module uses, and ones needed again
// soon (release_sub_module).
func (z *ZeRO3) leave(m *ZeROModule) {
	for _, q := range m.params {
		delete(q.users, m)
		if !z.keepsGathered(q) && !z.usedSoon(q) {
			z.free(q)
		}
	}
}

// keepsGathered reports whether a parameter stays gathered between modules, as a persistent one does once the order of
// modules is known.
func (z *ZeRO3) keepsGathered(q *zeroParam) bool { return q.isPersistent && z.known }

// free releases a parameter that no module uses.
func (z *ZeRO3) free(q *zeroParam) {
	if !q.isGathered || q.usedInPlace || len(q.users) > 0 {
		return
	}
	z.awaitGather(q)
	if z.fetch.TorchLinear { // param.data = torch.empty(0): views that were saved have the memory still
		f := z.tape.Frame()
		q.flat.SetData(f.Bind(z.tape.Unallocated(q.flat.DType(), q.flat.Numel())))
		q.whole.SetData(f.Bind(q.flat.PartLike(0, q.whole)))
		f.End()
	} else {
		q.flat.FreeStorage()
	}
	q.isGathered = false
	z.live -= q.numel
}

// usedSoon reports whether a parameter is used again within the reuse distance or by a module that is already fetched.
func (z *ZeRO3) usedSoon(q *zeroParam) bool {
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

// zeroLinear records DeepSpeed's linear layer (LinearFunctionForZeroStage3 in deepspeed/runtime/zero/linear.py), which
// zero.Init substitutes for torch.nn.functional.linear. It saves its input and weight for backward even if the weight
// is frozen. It adds the bias in a separate operation unless the input is a matrix.
func zeroLinear(f *trace.Frame, x, weight, bias *trace.Tensor) *trace.Tensor {
	return f.Apply(&trace.Function{
		Name: "LinearFunctionForZeroStage3Backward",
		Forward: func(f *trace.Frame, ctx *trace.FunctionContext, in []*trace.Tensor) []*trace.Tensor {
			ctx.SaveForBackward(in...)
			x, weight, bias := in[0], in[1], in[2]
			turned := f.Bind(weight.T())
			if bias != nil && len(x.Shape()) == 2 {
				return []*trace.Tensor{bias.AddMM(x, turned)}
			}
			y := x.Matmul(turned)
			if bias != nil {
				y.AddInPlace(bias)
			}
			return []*trace.Tensor{y}
		},
		Backward: func(f *trace.Frame, ctx *trace.FunctionContext, grads []*trace.Tensor) []*trace.Tensor {
			out := make([]*trace.Tensor, 3)
			g := grads[0]
			rows := func(x *trace.Tensor) *trace.Tensor { return f.Bind(x.Reshape(-1, x.Size(-1))) }
			if ctx.NeedsInputGrad(0) {
				out[0] = f.Bind(g.Matmul(ctx.Saved(1)))
			}
			if ctx.NeedsInputGrad(1) {
				out[1] = f.Bind(f.Bind(rows(g).T()).Matmul(rows(ctx.Saved(0))))
			}
			if ctx.NeedsInputGrad(2) {
				out[2] = f.Bind(rows(g).Sum(false, 0))
			}
			return out
		},
	}, x, weight, bias)[0]
}
