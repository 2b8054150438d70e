package distributed

import (
	"errors"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// ZeRO2 is a model under DeepSpeed's ZeRO stage 2, or stage 1, which keeps whole gradients. All trained weights are in
// one flat buffer, of which each rank updates a part.
type ZeRO2 struct {
	tape    *trace.Tape
	world   World
	options DeepSpeed
	whole   bool // stage 1

	params  []*trace.Tensor
	spans   []elementSpan
	own     elementSpan // of the flat buffer, this rank's
	masters masterWeights

	buckets  []*trace.Tensor
	filling  int   // which of the buckets
	elements int64 // in it
	members  []int // parameters in it
	large    *trace.Tensor
	// kept are the rank's reduced gradients of this backward pass, and summed their sums over earlier backward passes
	// of the same step, in the order of parameters.
	kept, summed []*trace.Tensor
	reduced      *trace.Tensor // the buffer that kept is in
	at           int64
	queued       bool
	last         bool   // micro-batch of a step
	several      bool   // a step has more than one
	summing      []bool // parameters whose gradients of several the host sums
}

// HeaviestRank returns the rank that keeps the most gradient elements, of the largest parameters.
func HeaviestRank(params []Param, ranks int64) (heaviest int64) {
	total := int64(0)
	for _, p := range params {
		if x := *p.Tensor; x.RequiresGrad() {
			total += x.Numel()
		}
	}
	part := alignToRanks(total, ranks) / ranks
	held := make([]int64, ranks)
	at := int64(0)
	for _, p := range params {
		x := *p.Tensor
		if !x.RequiresGrad() || x.Numel() == 0 {
			continue
		}
		for r := at / part; r <= (at+x.Numel()-1)/part; r++ {
			held[r] += x.Numel()
		}
		at += x.Numel()
	}
	for r, n := range held {
		if n > held[heaviest] {
			heaviest = int64(r)
		}
	}
	return heaviest
}

// errNothingTrained is the error for a model without parameters that train, for which DeepSpeed makes no optimizer.
var errNothingTrained = errors.New("DeepSpeed needs trained parameters to partition, and none is trained; train a " +
	"part of the model")

// PartitionZeRO2 puts a model under ZeRO stage 1 or 2.
func PartitionZeRO2(t *trace.Tape, w World, o DeepSpeed, stage int, params []Param) (*ZeRO2, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(params, func(p Param) bool { return (*p.Tensor).RequiresGrad() }) {
		return nil, errNothingTrained
	}
	z := &ZeRO2{tape: t, world: w, options: o, whole: stage == 1, masters: masterWeights{tape: t}}
	t.Streams("compute", "reduction")
	z.flatten(params)
	if !o.OffloadOptimizer {
		z.masters.allocate(z.params[0].DType(), z.own.end-z.own.begin)
		f := t.Frame() // initialize_optimizer_states
		f.Bind(t.New("zeros", program.Gradients, trace.F32, z.own.end-z.own.begin))
		f.End()
	} else {
		most := int64(0)
		for _, x := range z.params {
			most = max(most, x.Numel())
		}
		t.Hold(t.New("zeros", program.Workspace, z.params[0].DType(), most))
		z.offload(t.Host(), z.params[0].DType(), most)
	}
	for i, x := range z.params {
		x.OnAccumulated(func() { z.onGradientAccumulated(i) })
	}
	z.summing = make([]bool, len(z.params))
	z.kept, z.summed = make([]*trace.Tensor, len(z.params)), make([]*trace.Tensor, len(z.params))
	return z, nil
}

// offload counts the page-locked host memory of stages 1 and 2 (DeepSpeedZeroOptimizer.__init__): the rank's master
// weights, their copy in the model's type, their gradients, and room for the largest gradient.
func (z *ZeRO2) offload(h *trace.Host, d trace.DType, largest int64) {
	n := z.own.end - z.own.begin
	h.Pin(&h.Weights, n*trace.F32.Size())
	h.Pin(&h.Weights, n*d.Size())
	h.Pin(&h.Gradients, n*trace.F32.Size())
	h.Pin(&h.Gradients, largest*d.Size())
	h.Stepped += n * trace.F32.Size()
}

// flatten copies the trained weights into one flat buffer: on the device if it has room for both copies, else through
// the host.
func (z *ZeRO2) flatten(params []Param) {
	t := z.tape
	var places []Param
	total := int64(0)
	for _, p := range params {
		if x := *p.Tensor; x.RequiresGrad() {
			places = append(places, p)
			z.spans = append(z.spans, elementSpan{total, total + x.Numel()})
			total += x.Numel()
		}
	}
	d := (*places[0].Tensor).DType()
	n := alignToRanks(total, z.world.Size)
	part := n / z.world.Size
	z.own = elementSpan{z.world.Rank * part, (z.world.Rank + 1) * part}
	f := t.Frame()
	t.EmptyCache()
	var flat *trace.Tensor
	need := parameterBytes(params) + n*d.Size()
	onDevice := trace.GPUProperty(t, func(gpu trace.GPU) bool { return gpu.Memory >= need })
	if onDevice {
		if n > total {
			f.Bind(t.New("zeros", program.Temporaries, d, n-total))
		}
		flat = t.Hold(t.New("flatten_dense_tensors", program.Weights, d, n))
		f.End()
	}
	olds := make([]*trace.Tensor, len(places))
	for i, p := range places {
		olds[i] = *p.Tensor
		olds[i].FreeStorage()
	}
	if !onDevice {
		f.End()
		t.EmptyCache()
		flat = t.Hold(t.New("to_device", program.Weights, d, n))
	}
	for i, p := range places {
		x := t.Hold(flat.PartLike(z.spans[i].begin, olds[i])).Leaf()
		x.SplitLike(olds[i])
		*p.Tensor = x
		z.params = append(z.params, x)
	}
	t.Release(olds...)
	t.Release(flat)
}

func parameterBytes(params []Param) int64 {
	return lists.Sum(params, func(p Param) int64 { return (*p.Tensor).Bytes() })
}

// Masters returns the fp32 master weights that the optimizer updates; none if they are in host memory.
func (z *ZeRO2) Masters() []*trace.Tensor { return z.masters.parts }

// SetSync sets whether the next micro-batch is the last one of a step.
func (z *ZeRO2) SetSync(on bool) { z.last, z.several = on, z.several || !on }

// ownsParam reports whether the rank owns a part of a parameter.
func (z *ZeRO2) ownsParam(i int) bool { return z.spans[i].overlap(z.own) > 0 }

// setup allocates the buckets of a backward pass (setup_buckets).
func (z *ZeRO2) setup() {
	t := z.tape
	if !z.queued {
		z.queued = true
		t.AfterBackward(z.finish)
	}
	if z.buckets != nil {
		return // of a backward that has reduced nothing
	}
	n := 1
	if z.options.Overlap {
		n = 2
	}
	for range n {
		z.buckets = append(z.buckets, t.Hold(newEmpty(t, program.Gradients, z.params[0].DType(), z.options.bucket())))
	}
	z.filling = 0
}

// onGradientAccumulated runs when the gradient of parameter i is complete (process_gradients).
func (z *ZeRO2) onGradientAccumulated(i int) {
	t, x := z.tape, z.params[i]
	z.setup()
	if z.whole && (!z.last || !z.options.Overlap) {
		return // reduced after backward, if this is the last one
	}
	t.NoGrad(func() { z.addToBucket(i, x) })
}

// addToBucket copies a gradient into the bucket (reduce_independent_p_g_buckets_and_remove_grads).
func (z *ZeRO2) addToBucket(i int, x *trace.Tensor) {
	if x.Grad() == nil {
		return
	}
	if z.elements+x.Numel() > z.options.bucket() {
		z.reduce()
		if z.options.Overlap {
			z.filling = 1 - z.filling
		}
	}
	if x.Numel() > z.options.bucket() {
		z.large = x
	} else {
		part := z.buckets[z.filling].PartLike(z.elements, x)
		trace.Update("copy_", 0, part, x.Grad())
		x.SetGrad(part)
	}
	z.elements += x.Numel()
	z.members = append(z.members, i)
}

// reduce sums the bucket over the ranks and keeps this rank's part (reduce_ipg_grads).
func (z *ZeRO2) reduce() {
	if len(z.members) == 0 {
		return
	}
	t := z.tape
	stream := program.Stream(0)
	if z.options.Overlap {
		stream = zeroReduceStream
		t.WaitStream(stream, 0)
		t.WaitStream(0, stream)
	}
	t.OnStream(stream, func() {
		z.sumGradients()
		for _, i := range z.members {
			z.keepOwnGradient(i)
		}
	})
	z.members, z.elements, z.large = nil, 0, nil
}

// sumGradients records average_tensor: the parts of several ranks are concatenated and summed.
func (z *ZeRO2) sumGradients() {
	t := z.tape
	f := t.Frame()
	whole := z.large
	if whole != nil {
		whole = whole.Grad()
	} else {
		whole = f.Bind(z.buckets[z.filling].Part(0, z.elements))
	}
	trace.Update("div__Scalar", 1, whole)
	at, n, parts := int64(0), int64(0), 0
	send := func() {
		flat := f.FunctionFrame()
		x := flat.Bind(whole.Part(at, n))
		if parts > 1 {
			x = flat.Bind(t.New("flatten_dense_tensors", program.Temporaries, whole.DType(), n))
		}
		t.Collective(program.AllReduce, z.world.Size, x, x)
		flat.End()
		at, n, parts = at+n, 0, 0
	}
	for _, size := range z.sliceSizes() {
		n, parts = n+size, parts+1
		if n > z.options.bucket() {
			send()
		}
	}
	if parts > 0 {
		send()
	}
	f.End()
}

// sliceSizes returns the sizes of the bucket's parts, each of which belongs to one rank.
func (z *ZeRO2) sliceSizes() (sizes []int64) {
	part := z.own.end - z.own.begin
	last := int64(-1)
	for _, i := range z.members {
		for rank := z.spans[i].begin / part; rank <= (z.spans[i].end-1)/part; rank++ {
			if rank != last {
				sizes, last = append(sizes, 0), rank
			}
			sizes[len(sizes)-1] += z.spans[i].overlap(elementSpan{rank * part, (rank + 1) * part})
		}
	}
	return sizes
}

// keepOwnGradient copies a reduced gradient of the rank out of the bucket (copy_grads_in_partition). It frees the
// gradients of other ranks.
func (z *ZeRO2) keepOwnGradient(i int) {
	t, x := z.tape, z.params[i]
	switch {
	case !z.ownsParam(i):
		if !z.whole {
			x.ZeroGrad()
		}
		return
	case z.options.OffloadOptimizer:
		if h := t.Host(); z.several && !z.summing[i] { // accumulated_grads_in_cpu
			h.Pin(&h.Gradients, x.Bytes())
			z.summing[i] = true
		}
		f := t.Frame()
		n := z.spans[i].overlap(z.own)
		f.Discard(t.New("to_dtype", program.Temporaries, trace.F64, n))
		f.Bind(t.New("to_dtype", program.Temporaries, trace.F32, n))
		f.End()
		x.ZeroGrad()
		return
	}
	if z.reduced == nil {
		n := int64(0)
		for k, p := range z.params {
			if z.ownsParam(k) {
				n += p.Numel()
			}
		}
		z.reduced, z.at = t.Hold(newEmpty(t, program.Gradients, x.DType(), n)), 0
	}
	part := t.Hold(z.reduced.PartLike(z.at, x))
	trace.Update("copy_", 0, part, x.Grad())
	z.at += x.Numel()
	z.kept[i] = part
	x.SetGrad(part)
}

// finish runs at the end of a backward pass (independent_gradient_partition_epilogue).
func (z *ZeRO2) finish() {
	t := z.tape
	z.queued = false
	if z.whole && !z.last {
		return
	}
	t.NoGrad(func() {
		if z.whole && !z.options.Overlap {
			for i, x := range z.params {
				z.addToBucket(i, x)
			}
		}
		z.reduce()
	})
	if z.options.Overlap {
		t.WaitStream(0, zeroReduceStream)
	}
	for i, x := range z.kept {
		switch {
		case x == nil:
			continue
		case z.summed[i] == nil:
			z.summed[i] = x
		default:
			t.NoGrad(func() { z.summed[i].AddInPlace(x) })
			t.Release(x)
		}
		z.kept[i] = nil
	}
	t.Release(z.reduced)
	z.reduced = nil
	t.Release(z.buckets...)
	z.buckets = nil
	for _, x := range z.params {
		x.ZeroGrad()
	}
}

// Step records the first part of the optimizer's step: the rank's gradients become one flat tensor.
func (z *ZeRO2) Step() {
	if z.options.OffloadOptimizer {
		return
	}
	t := z.tape
	var mine []*trace.Tensor
	var sizes []int64
	for i, x := range z.summed {
		if x != nil {
			mine, sizes = append(mine, x), append(sizes, z.spans[i].overlap(z.own))
		}
		z.summed[i] = nil
	}
	if len(mine) == 0 {
		return
	}
	recordGradNorm(t, sizes)
	z.masters.setGradient(0, mine)
	t.Release(mine...)
}

// End records the last part of the optimizer's step: all ranks gather the updated weights.
func (z *ZeRO2) End() {
	for _, x := range z.masters.parts {
		x.ZeroGrad()
	}
	z.tape.Collective(program.AllGather, z.world.Size, z.params[0], z.params[0])
}
