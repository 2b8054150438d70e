package trace

// KeptOperator is an operator whose results a checkpointed region keeps, while it recomputes the rest
// (torch.utils.checkpoint.create_selective_checkpoint_contexts).
type KeptOperator struct {
	// Op is one of [KeptOperators].
	Op string
	// Every is 1 to keep the results of every call. Otherwise the results of every call except each Every-th are kept.
	Every int
}

// The values of KeptOperator.Op: matrix products without and with a bias, batched products, and fused attention.
const (
	keptMM        = "mm"
	keptAddMM     = "addmm"
	keptBMM       = "bmm"
	keptAttention = "sdpa"
)

// KeptOperators returns the values of KeptOperator.Op.
func KeptOperators() []string { return []string{keptMM, keptAddMM, keptBMM, keptAttention} }

// KeepInRegions sets the operators whose results all later checkpointed regions keep, except reentrant ones.
func (t *Tape) KeepInRegions(all []KeptOperator) { t.autograd.kept = all }

// selectiveCheckpoint holds the results that one region keeps: the storage of its two dispatch modes.
type selectiveCheckpoint struct {
	kept  []KeptOperator
	again bool // the region runs again
	calls map[string]int
	store map[string][]keptResult
}

// keptResult holds the results of an operator's call, and the number of calls inside it.
type keptResult struct {
	outs  []*Tensor
	begun int
}

// newSelection returns the selective checkpoint of a new region; nil if no operator is kept.
func (t *Tape) newSelection() *selectiveCheckpoint {
	if len(t.autograd.kept) == 0 {
		return nil
	}
	return &selectiveCheckpoint{kept: t.autograd.kept, calls: map[string]int{}, store: map[string][]keptResult{}}
}

// runRegion runs the function f of a region with selective checkpointing on. again reports whether f is recomputed.
func (s *selectiveCheckpoint) runRegion(t *Tape, again bool, f func()) {
	if s != nil {
		s.again = again
		clear(s.calls)
	}
	withValue(&t.autograd.selection, s, f)
}

// BelowDispatch runs f, an operator of another library. Selective checkpointing ignores the operators that f calls,
// since dispatch modes are off inside an operator.
func (t *Tape) BelowDispatch(f func()) { withValue(&t.autograd.selection, nil, f) }

// ProductBySubclass records aten.mm of a subclass of Tensor. Selective checkpointing treats it as one product and
// ignores the operators inside compute.
func (t *Tape) ProductBySubclass(compute func() *Tensor) *Tensor {
	return t.selectedResults(keptMM, func() (y []*Tensor) {
		t.BelowDispatch(func() { y = []*Tensor{compute()} })
		return y
	})[0]
}

// shouldKeep counts a call of an operator and reports whether its results are kept.
func (s *selectiveCheckpoint) shouldKeep(op string) bool {
	for _, k := range s.kept {
		if k.Op == op {
			s.calls[op]++
			return k.Every == 1 || s.calls[op]%k.Every != 0
		}
	}
	return false
}

// release releases kept results that were not used.
func (s *selectiveCheckpoint) release() {
	if s == nil {
		return
	}
	for _, calls := range s.store {
		for _, r := range calls {
			releaseAll(r.outs)
		}
	}
	clear(s.store)
}

// selectedResults returns the results of an operator: the kept ones if the region has kept them, else the results of
// compute, which it may keep.
func (t *Tape) selectedResults(op string, compute func() []*Tensor) []*Tensor {
	s := t.autograd.selection
	if s == nil || t.autograd.hooks.unwinding || t.autograd.hooks.stopping || !s.shouldKeep(op) {
		return compute()
	}
	if stored := s.store[op]; s.again && len(stored) > 0 {
		s.store[op] = stored[1:]
		t.activations += stored[0].begun
		outs := make([]*Tensor, len(stored[0].outs))
		for i, x := range stored[0].outs {
			if x != nil {
				outs[i] = x.withoutHistory()
				x.Release()
			}
		}
		return outs
	}
	begun := t.activations
	outs := compute()
	if s.again {
		return outs
	}
	held := make([]*Tensor, len(outs))
	for i, x := range outs {
		if x != nil {
			held[i] = t.newBareHeader(x.store, x.dtype, x.layout, x.offset).Retain()
		}
	}
	s.store[op] = append(s.store[op], keptResult{held, t.activations - begun})
	return outs
}
