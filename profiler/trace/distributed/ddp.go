package distributed

import (
	"math"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// communicationStream is the stream of DDP's collectives: NCCL's own, on which the caching allocator allocates nothing.
const communicationStream program.Stream = 1

const mib = 1 << 20

// The default sizes of DDP's buckets, in bytes.
const (
	defaultBucketBytes   = 25 * mib // bucket_cap_mb
	firstBucketBytes     = 1 * mib  // _DEFAULT_FIRST_BUCKET_BYTES, unless a cap is given
	broadcastBucketBytes = 250 * mib
)

// DDPOptions holds the options of DistributedDataParallel.
type DDPOptions struct {
	// BucketCap is bucket_cap_mb in bytes; zero is the default, with a small first bucket.
	BucketCap int64
	// BucketView is gradient_as_bucket_view: gradients are views of the buckets.
	BucketView bool
	// FindUnused is find_unused_parameters: buckets are never rebuilt.
	FindUnused bool
	// StaticGraph is static_graph: the first backward pass with a reduction reduces after its end, and buckets are
	// rebuilt after the second.
	StaticGraph bool
}

// DDP is a model under DistributedDataParallel. It implements [trace.Wrapper], around the model.
type DDP struct {
	tape    *trace.Tape
	world   World
	options DDPOptions
	params  []*trace.Tensor // the trained parameters
	buffers []*trace.Tensor

	buckets       []*bucket
	bucketOfParam []int // the bucket of each parameter
	gradientViews []*trace.Tensor
	readyParams   []int // parameters in the order in which their gradients came
	rebuilt       bool
	syncs         bool // the next backward reduces
	expectsHooks  bool // and hooks are waited for
	finishQueued  bool
	// delaysReduction reports whether the next backward pass with a reduction is the first one of a static graph.
	delaysReduction bool
}

// bucket holds gradients that are reduced together (Reducer::Bucket).
type bucket struct {
	params  []int
	flat    *trace.Tensor
	pending int
}

// DistributedDataParallel makes the gradient buckets of a model's parameters and registers their hooks.
func DistributedDataParallel(t *trace.Tape, w World, o DDPOptions, params []Param,
	buffers []*trace.Tensor,
) (*DDP, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	d := &DDP{tape: t, world: w, options: o, buffers: buffers, syncs: true, delaysReduction: o.StaticGraph}
	t.Streams("compute", "communication")
	all := lists.Map(params, func(p Param) *trace.Tensor { return *p.Tensor })
	d.params = lists.Filter(all, (*trace.Tensor).RequiresGrad)
	order := lists.Ascending(len(d.params))
	limits := []int64{math.MaxInt64}
	if o.FindUnused {
		limits = d.bucketLimits()
	}
	assigned := d.assignBuckets(order, limits)
	slices.SortStableFunc(assigned, func(a, b []int) int { return a[0] - b[0] })
	slices.Reverse(assigned)
	d.makeBuckets(assigned)
	if o.FindUnused || o.StaticGraph {
		t.Hold(t.New("empty_memory_format", program.Buffers, trace.I32, int64(len(d.params))))
	}
	for i, x := range d.params {
		x.OnAccumulated(func() { d.onGradientAccumulated(i) })
	}
	return d, nil
}

// bucketLimits returns the sizes of the first bucket and of the others.
func (d *DDP) bucketLimits() []int64 {
	if d.options.BucketCap > 0 {
		return []int64{d.options.BucketCap, d.options.BucketCap}
	}
	return []int64{firstBucketBytes, defaultBucketBytes}
}

// assignBuckets assigns parameters of one type, in the given order, to buckets up to limits
// (compute_bucket_assignment_by_size).
func (d *DDP) assignBuckets(order []int, limits []int64) [][]int {
	return fillBuckets(d.params, order, limits)
}

func fillBuckets(tensors []*trace.Tensor, order []int, limits []int64) [][]int {
	type open struct {
		members []int
		bytes   int64
		limit   int
	}
	var out [][]int
	byType := map[trace.DType]*open{}
	var types []trace.DType
	for _, i := range order {
		x := tensors[i]
		b := byType[x.DType()]
		if b == nil {
			b = &open{}
			byType[x.DType()] = b
			types = append(types, x.DType())
		}
		b.members = append(b.members, i)
		b.bytes += x.Bytes()
		if b.bytes >= limits[b.limit] {
			out = append(out, b.members)
			b.members, b.bytes, b.limit = nil, 0, min(b.limit+1, len(limits)-1)
		}
	}
	for _, t := range types {
		if b := byType[t]; len(b.members) > 0 {
			out = append(out, b.members)
		}
	}
	return out
}

// makeBuckets allocates new buckets in place of the previous ones (initialize_buckets).
func (d *DDP) makeBuckets(assigned [][]int) {
	t := d.tape
	t.Release(d.gradientViews...)
	for _, b := range d.buckets {
		t.Release(b.flat)
	}
	d.buckets, d.bucketOfParam, d.gradientViews = nil, make([]int, len(d.params)), make([]*trace.Tensor, len(d.params))
	for k, members := range assigned {
		b := &bucket{params: members}
		n := lists.Sum(members, func(i int) int64 { return d.params[i].Numel() })
		b.flat = t.Hold(newEmpty(t, program.Gradients, d.params[members[0]].DType(), n))
		at := int64(0)
		for _, i := range members {
			d.bucketOfParam[i] = k
			d.gradientViews[i] = t.Hold(b.flat.PartLike(at, d.params[i]))
			at += d.params[i].Numel()
		}
		d.buckets = append(d.buckets, b)
	}
}

// SetSync sets whether the next backward passes reduce gradients (no_sync).
func (d *DDP) SetSync(on bool) { d.syncs = on }

// Inputs returns the dtype to which forward's arguments are cast, for [trace.Wrapper].
func (d *DDP) Inputs() (t trace.DType, cast bool) { return t, false }

// Enter implements [trace.Wrapper] and runs before forward (_pre_forward).
func (d *DDP) Enter([]*trace.Tensor) {
	if !d.tape.RequiresGrad(d.params...) {
		return
	}
	d.rebuild()
	if d.syncs {
		d.sendBuffers()
	}
}

// Leave implements [trace.Wrapper] and runs after forward.
func (d *DDP) Leave([]*trace.Tensor) {
	if !d.tape.RequiresGrad(d.params...) {
		return
	}
	d.expectsHooks = d.syncs
	if !d.syncs {
		return
	}
	for _, b := range d.buckets {
		b.pending = len(b.params)
	}
}

// rebuild reorders DDP's buckets, once, by the order of gradients in the first backward pass. The ranks agree on the
// order by a broadcast on the device.
func (d *DDP) rebuild() {
	if d.rebuilt || d.options.FindUnused || len(d.readyParams) == 0 {
		return
	}
	d.rebuilt = true
	assigned := d.assignBuckets(d.readyParams, d.bucketLimits())
	t := d.tape
	frame := t.Frame()
	indices := frame.Bind(t.New("empty_memory_format", program.Temporaries, trace.I32, int64(len(d.readyParams))+1))
	t.Collective(program.Broadcast, d.world.Size, indices, nil)
	sizes := t.New("empty_memory_format", program.Temporaries, trace.I32, int64(len(assigned)))
	t.Collective(program.Broadcast, d.world.Size, sizes, nil)
	frame.Discard(sizes)
	frame.End()
	d.makeBuckets(assigned)
}

// sendBuffers broadcasts the first rank's buffers (_distributed_broadcast_coalesced).
func (d *DDP) sendBuffers() {
	if len(d.buffers) == 0 {
		return
	}
	t := d.tape
	frame := t.Frame()
	t.NoGrad(func() {
		for _, members := range fillBuckets(d.buffers, lists.Ascending(len(d.buffers)), []int64{broadcastBucketBytes}) {
			flat := d.buffers[members[0]]
			if len(members) > 1 {
				n := lists.Sum(members, func(i int) int64 { return d.buffers[i].Numel() })
				flat = frame.Bind(t.New("flatten_dense_tensors", program.Temporaries, flat.DType(), n))
			}
			t.Collective(program.Broadcast, d.world.Size, flat, flat)
		}
	})
	frame.End()
}

// onGradientAccumulated runs when the gradient of parameter i is complete (autograd_hook).
func (d *DDP) onGradientAccumulated(i int) {
	if !d.expectsHooks {
		return
	}
	if !d.finishQueued {
		d.finishQueued = true
		d.tape.AfterBackward(d.finish)
	}
	if d.delaysReduction {
		return
	}
	if !d.rebuilt && !d.options.FindUnused {
		d.readyParams = append(d.readyParams, i)
	}
	d.copyToBucket(i)
	b := d.buckets[d.bucketOfParam[i]]
	if b.pending--; b.pending == 0 {
		d.reduce(b)
	}
}

// copyToBucket copies a gradient into its bucket (mark_variable_ready_dense).
func (d *DDP) copyToBucket(i int) {
	x, view := d.params[i], d.gradientViews[i]
	if g := x.Grad(); g != nil && !g.SharesStorage(view) {
		d.tape.NoGrad(func() { trace.Update("mul_out", 1, view, g) })
		if d.options.BucketView {
			x.SetGrad(view)
		}
	}
}

// reduce sums a bucket over the ranks (all_reduce_bucket).
func (d *DDP) reduce(b *bucket) {
	d.tape.WaitStream(communicationStream, 0)
	d.tape.OnStream(communicationStream, func() { d.tape.Collective(program.AllReduce, d.world.Size, b.flat, b.flat) })
}

// reduceDelayed records the first reduction of a static graph (delay_all_reduce).
func (d *DDP) reduceDelayed() {
	d.delaysReduction = false
	for i := range d.params {
		d.copyToBucket(i)
	}
	for _, b := range d.buckets {
		d.reduce(b)
	}
}

// CopiesResults reports whether the results of the last forward pass are copied, so that gradients reach DDP first
// (_DDPSink).
func (d *DDP) CopiesResults() bool {
	return d.expectsHooks && (d.options.FindUnused || d.delaysReduction)
}

// finish waits for the reductions and copies the reduced gradients out of the buckets (finalize_backward).
func (d *DDP) finish() {
	t := d.tape
	if d.delaysReduction {
		d.reduceDelayed()
	}
	d.finishQueued, d.expectsHooks = false, false
	t.WaitStream(0, communicationStream)
	if d.options.BucketView {
		return
	}
	t.NoGrad(func() {
		for i, x := range d.params {
			if x.Grad() != nil {
				trace.Update("copy_", 0, x.Grad(), d.gradientViews[i])
			}
		}
	})
}
