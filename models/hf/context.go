package hf

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// ContextParallel is context parallelism: each rank holds an equal part of every sequence, and attention exchanges
// keys and values.
type ContextParallel struct {
	// Ranks is the number of ranks that share a sequence; zero means none. Rank is the recorded rank; later ranks
	// attend to more keys.
	Ranks, Rank int64
	// Algorithm is the algorithm, such as [models.Ring].
	Algorithm string
}

func contextOf(c models.Case) ContextParallel {
	s := c.Strategy
	if s == nil || s.CP < 2 {
		return ContextParallel{}
	}
	x := ContextParallel{Ranks: s.CP, Rank: s.CP - 1, Algorithm: s.ContextParallelStyle()}
	if s.Rank != nil {
		x.Rank = *s.Rank / max(1, s.TP) % s.CP
	}
	return x
}

// IsActive reports whether ranks share sequences.
func (c ContextParallel) IsActive() bool { return c.Ranks > 1 }

// hasPerTokenLoss reports whether the trainer computes a loss for every token outside of the model (Ulysses).
func (t Text) hasPerTokenLoss() bool { return t.Context.Algorithm == models.Ulysses && t.IsModelCall() }

// shardBatch replaces the tokens and labels of a batch by the rank's part.
func (c ContextParallel) shardBatch(f *frame, b *TextBatch) {
	switch {
	case !c.IsActive():
		return
	case c.Algorithm == models.TorchRing:
		c.resizeBatch(f, b)
		return
	}
	b.IDs = f.Bind(c.localTokens(f, b.IDs))
	if b.Labels != nil {
		b.Labels = f.Bind(c.localTokens(f, b.Labels))
	}
}

// resizeBatch resizes a batch's tensors in place as context_parallel does (Tensor.resize_): their buffers keep the size
// of whole sequences and begin with the rank's tokens. Labels are shifted before.
func (c ContextParallel) resizeBatch(f *frame, b *TextBatch) {
	n, length := b.IDs.Size(0), b.IDs.Size(1)
	if length%(2*c.Ranks) != 0 {
		f.Tape().Raise(fmt.Errorf("context_parallel (cp) splits sequences into %d parts, two for each rank, and %d "+
			"tokens are not a multiple of that; change --seq-len", 2*c.Ranks, length))
	}
	for _, x := range []**tensor{&b.IDs, &b.Labels, &b.Positions} {
		if *x != nil {
			*x = f.Bind((*x).Part(0, n, length/c.Ranks))
		}
	}
	b.Shifted = true
}

// allocateBuffers allocates what context_parallel needs for a batch of n rows: positions, and a copy of the rank's
// tokens of each buffer, which is then copied to the buffer's start.
func (c ContextParallel) allocateBuffers(fresh func(op string, shape ...int64) *tensor, n, length int64) *tensor {
	positions := fresh("arange", n, length)
	for range 4 { // the variable still holds the last copy
		fresh("clone", n, length/c.Ranks)
	}
	return positions
}

// localTokens returns the rank's part of token ids or labels [batch, length] after padding to a multiple of the ranks.
func (c ContextParallel) localTokens(f *frame, x *tensor) *tensor {
	g := f.FunctionFrame(x)
	if rest := x.Size(1) % c.Ranks; rest != 0 {
		g.Set(&x, x.Pad(0, c.Ranks-rest))
	}
	return g.Return(c.sequencePart(x))
}

// sequencePart computes x.chunk(ranks, dim=1)[rank].contiguous().
func (c ContextParallel) sequencePart(x *tensor) *tensor {
	n := x.Size(1) / c.Ranks
	return x.Narrow(1, c.Rank*n, n).Contiguous()
}

// Attention computes causal attention over the tokens of all ranks. query, key and value are [batch, heads, local
// length, head size], the result [batch, local length, heads, head size].
func (c ContextParallel) Attention(f *frame, q, k, v, mask *tensor, o AttentionOptions) *tensor {
	switch {
	// a hook removes the mask for TorchRing (_attach_context_parallel_hooks)
	case mask != nil && c.Algorithm != models.TorchRing:
		f.Tape().Raise(fmt.Errorf("context parallelism (cp) has no attention mask, which this model needs; plan " +
			"sequences without padding, packing and windows (--set padding=0 --set packed=0), or leave out cp"))
	case c.Algorithm != models.Ulysses && o.Dropout > 0:
		f.Tape().Raise(fmt.Errorf("vprof records ring attention (cp) only without dropout; use cp_by=%s, or leave "+
			"out cp", models.Ulysses))
	case c.Algorithm == models.Ulysses:
		return c.ulyssesAttention(f, q, k, v, o)
	}
	if half, casting := f.Tape().Autocasting(); casting {
		q, k, v = f.Bind(q.To(half)), f.Bind(k.To(half)), f.Bind(v.To(half))
	}
	if c.Algorithm == models.TorchRing {
		if !q.DType().IsHalf() {
			f.Tape().Raise(errors.New("vprof records context_parallel (cp) with FlashAttention, which needs half " +
				"precision; add --amp bf16 or --weights bf16"))
		}
		return c.callTorchRing(f, q, k, v, o)
	}
	q, k, v = q.Transpose(1, 2), k.Transpose(1, 2), v.Transpose(1, 2)
	g := f.FunctionFrame(q, k, v)
	var y *tensor
	if c.Algorithm == models.Llama3 {
		if q.Size(0) != 1 {
			f.Tape().Raise(
				fmt.Errorf("the llama3 attention of ring-flash-attn (cp) needs --batch 1; set it, or use cp_by=%s",
					models.Ring))
		}
		y = g.Bind(g.Apply(c.llama3Attention(), q.Squeeze(0), k.Squeeze(0), v.Squeeze(0))[0]).Unsqueeze(0)
	} else {
		y = g.Apply(c.ringAttention(), q, k, v)[0]
	}
	return g.Return(y)
}

// ulyssesAttention records DeepSpeed's Ulysses as in ms-swift. An all-to-all gives each rank all tokens of some heads,
// the rank computes attention for these, and a second all-to-all undoes the exchange.
func (c ContextParallel) ulyssesAttention(f *frame, q, k, v *tensor, o AttentionOptions) *tensor {
	if k.Size(1)%c.Ranks != 0 {
		f.Tape().Raise(
			fmt.Errorf("%d ranks cannot share %d heads of keys and values evenly (cp); use a number of ranks that "+
				"divides the number of heads, or cp_by=%s", c.Ranks, k.Size(1), models.Ring))
	}
	g := f.FunctionFrame(q, k, v)
	heads := func(x *tensor) *tensor { return g.Bind(g.Apply(c.seqAllToAll(true), x.Transpose(1, 2))[0]) }
	qs, ks, vs := heads(q), heads(k), heads(v)
	y := g.Bind(Attention(g, qs.Transpose(1, 2), ks.Transpose(1, 2), vs.Transpose(1, 2), nil, o))
	return g.Return(g.Apply(c.seqAllToAll(false), y)[0])
}

// seqAllToAll records _SeqAllToAll over [batch, length, heads, head size]: from all heads of the rank's tokens to all
// tokens of some heads if forTokens is set, else back.
func (c ContextParallel) seqAllToAll(forTokens bool) *trace.Function {
	return &trace.Function{
		Name: "_SeqAllToAllBackward",
		Forward: func(f *frame, _ *trace.FunctionContext, in []*tensor) []*tensor {
			return []*tensor{c.allToAll(f, in[0], forTokens)}
		},
		Backward: func(f *frame, _ *trace.FunctionContext, grads []*tensor) []*tensor {
			return f.Apply(c.seqAllToAll(!forTokens), grads[0])
		},
	}
}

// allToAll follows DeepSpeed's single_all_to_all.
func (c ContextParallel) allToAll(f *frame, x *tensor, forTokens bool) *tensor {
	n, batch, length, heads, size := c.Ranks, x.Size(0), x.Size(1), x.Size(2), x.Size(3)
	g := f.FunctionFrame(x)
	pre := g.FunctionFrame(x)
	var sent *tensor
	if forTokens {
		sent = pre.Bind(x.Reshape(batch, length, n, heads/n, size).Contiguous())
		pre.Set(&sent, sent.Permute(2, 0, 1, 3, 4).Contiguous())
	} else {
		sent = pre.Bind(x.Reshape(batch, n, length/n, heads, size).Contiguous())
		pre.Set(&sent, sent.Permute(1, 0, 2, 3, 4).Contiguous())
	}
	pre.End(sent)
	g.Bind(sent)
	got := g.Bind(sent.EmptyLike())
	f.Tape().Collective(program.Send, n, got, sent)
	post := g.FunctionFrame(got)
	var y *tensor
	if forTokens {
		post.Set(&got, got.Permute(1, 0, 2, 3, 4).Contiguous())
		y = got.Reshape(batch, n*length, heads/n, size).Contiguous()
	} else {
		post.Set(&got, got.Permute(1, 2, 0, 3, 4).Contiguous())
		y = got.Reshape(batch, length/n, n*heads, size).Contiguous()
	}
	post.End(y)
	return g.Return(y)
}

// flashKernels records allocations of flash-attn 2's kernels.
type flashKernels struct{ f *frame }

// forward returns the result, with the shape of q, and its log-sum-exp.
func (k flashKernels) forward(q *tensor, keys int64, lse ...int64) (y, sums *tensor) {
	t := k.f.Tape()
	y = k.f.Bind(t.Empty(q.DType(), q.Shape()...))
	sums = k.f.Bind(t.Empty(trace.F32, lse...))
	seed := k.f.Bind(t.Empty(trace.I64, 2))
	t.Product("flash_attn", 4*q.Numel()*keys, []*tensor{y, sums}, []*tensor{q, seed})
	return y, sums
}

// backward allocates the gradients: of q [..., heads, size] with rows in all, and of keys and values.
func (k flashKernels) backward(q *tensor, rows, heads, keys, keyHeads int64) {
	t := k.f.Tape()
	g := k.f.FunctionFrame()
	size := q.Size(-1)
	rounded := ceil.Multiple(size, 32)
	if size > 128 {
		rounded = ceil.Multiple(size, 64)
	}
	sums := g.Bind(t.Empty(trace.F32, heads, rows))
	wide := g.Bind(t.Empty(trace.F32, rows, heads, rounded))
	writes := []*tensor{sums, wide}
	if heads != keyHeads {
		writes = append(writes, g.Bind(t.Empty(q.DType(), keys, heads, size)),
			g.Bind(t.Empty(q.DType(), keys, heads, size)))
	}
	t.Product("flash_attn_backward", 10*q.Numel()*keys, writes, []*tensor{q})
	g.End()
}

// expertParallelism returns how the ranks of a case share experts.
func expertParallelism(c models.Case) ExpertParallelism {
	if c.Strategy == nil {
		return ExpertParallelism{}
	}
	return ExpertParallelism{
		Ranks: c.Strategy.EP, AllToAll: c.Strategy.EPStyle == models.TorchExperts, Load: c.ExpertLoad(),
		Tensor: tensorParallelRanks(c, func(s *models.Strategy) bool { return s.TPPlan != "" }),
	}
}
