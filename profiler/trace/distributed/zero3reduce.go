package distributed

import (
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// onGradientAccumulated runs when the gradient of q exists (reduce_independent_p_g_buckets_and_remove_grads).
func (z *ZeRO3) onGradientAccumulated(q *zeroParam) {
	t := z.tape
	t.NoGrad(func() {
		if z.elements+q.numel > z.options.bucket() && z.elements > 0 {
			z.reduce()
		}
		t.WaitStream(z.reductionStream(), 0)
		if z.bucket != nil && z.elements+q.numel <= z.options.bucket() {
			part := z.bucket.PartLike(z.elements, q.whole)
			t.OnStream(z.reductionStream(), func() { trace.Update("copy_", 0, part, q.whole.Grad()) })
			q.whole.SetGrad(part)
		}
		z.members = append(z.members, q)
		z.elements += q.numel
	})
}

// reduce sums gradients over the ranks and keeps the rank's parts (__reduce_and_partition_ipg_grads).
func (z *ZeRO3) reduce() {
	if len(z.members) == 0 {
		return
	}
	t := z.tape
	t.OnStream(z.reductionStream(), func() {
		f := t.Frame()
		first := z.members[0]
		flat := first.whole.Grad()
		if len(z.members) > 1 || first.numel%z.world.Size != 0 {
			flat = f.Bind(t.New("cat", program.Temporaries, flat.DType(), ownedElements(z.members)*z.world.Size))
		}
		trace.Update("div_", 1, flat)
		t.Collective(program.ReduceScatter, z.world.Size, flat, flat)
		for _, q := range z.members {
			z.storePart(q, flat)
		}
		f.End()
	})
	z.members, z.elements = nil, 0
}

// storePart copies the rank's share of a reduced gradient to the rank's gradient buffer (partition_grads).
func (z *ZeRO3) storePart(q *zeroParam, flat *trace.Tensor) {
	t := z.tape
	f := t.Frame()
	if z.grads != nil {
		to := f.Bind(z.grads.Part(q.at, q.part))
		trace.Update("copy_", 0, to, f.Bind(flat.Part(0, q.part)))
	} else {
		f.Bind(t.New("to_dtype", program.Temporaries, trace.F32, q.part))
	}
	f.End()
	q.whole.ZeroGrad()
}

// finish ends a backward pass: it reduces the gradients that are left in the bucket.
func (z *ZeRO3) finish() {
	t := z.tape
	z.queued, z.active = false, nil
	t.NoGrad(z.reduce)
	t.WaitStream(0, z.reductionStream())
	for _, m := range z.modules {
		m.running, m.recomputed = 0, nil
		for _, q := range m.params {
			clear(q.users)
			if !z.keepsGathered(q) {
				z.free(q)
			}
		}
	}
	z.known, z.used, z.ahead, z.within = true, 0, 0, 0
}

// Step steps the optimizer's groups one after the other with step, which skips master weights without a gradient. clip
// reports whether the norm of the gradients is computed.
func (z *ZeRO3) Step(clip bool, step func()) {
	t := z.tape
	z.eachPersistent(z.free)
	defer z.eachPersistent(func(q *zeroParam) {
		if !q.isGathered {
			q.allocate()
			t.Collective(program.AllGather, z.world.Size, q.flat, q.flat)
			q.isGathered = true
		}
	})
	for i, g := range z.groups {
		if z.grads == nil {
			return
		}
		f := t.Frame()
		parts, sizes := make([]*trace.Tensor, len(g)), make([]int64, len(g))
		for k, q := range g {
			parts[k], sizes[k] = f.Bind(z.grads.Part(q.at, q.part)), q.part
		}
		if i == 0 && clip {
			recordGradNorm(t, sizes)
		}
		z.masters.setGradient(i, parts)
		f.End()
		step()
		z.masters.parts[i].ZeroGrad()
	}
}

// eachPersistent calls f for each small parameter that stays gathered between modules: they are released before the
// optimizer's step and gathered again after it (_partition_all_parameters, _post_step).
func (z *ZeRO3) eachPersistent(f func(q *zeroParam)) {
	for _, m := range z.modules {
		for _, q := range m.params {
			if q.isPersistent {
				f(q)
			}
		}
	}
}
