package cudnn

import "github.com/vprof/vprof/internal/ceil"

// winograd is the workspace of the Winograd engines (fp32; Lavin and Gray,
// arXiv 1509.09308). The unfused ones keep the transformed input, filter and
// output: (m+r-1)^2 numbers per tile of m x m outputs and pair of channels. The
// fused one keeps the filter, and its transform of 16 numbers per pair of
// channels with the outputs padded to 32.
func (p *problem) winograd(e Engine) int64 {
	groups := min(p.Groups, concurrentGroups)
	if e == WinogradFused {
		in, out := p.cg, p.kg
		if p.kind == dgrad {
			in, out = out, in
		}
		one := (in*out*p.taps + 16*in*ceil.Multiple(out, 32) + out) * 4
		if p.Groups == 1 {
			return one
		}
		images := p.N * (p.c*p.xs + p.k*p.ys) * 4 / p.Groups
		return groups * (one + images + copyAlign)
	}
	tile, transformed, n := int64(4), int64(36), p.N
	if e == Winograd9 {
		tile, transformed = 9, 169
	}
	if e == Winograd9 || p.kind != wgrad {
		// These kernels take the samples sixteen at a time.
		n = ceil.Multiple(n, 16)
	}
	tiles := n * ceil.Div(p.Out[0], tile) * ceil.Div(p.Out[1], tile)
	if p.kind == dgrad {
		tiles = n * ceil.Div(p.In[0], tile) * ceil.Div(p.In[1], tile)
	}
	return 4 * transformed * (tiles*(p.cg+p.kg) + p.cg*p.kg) * groups
}
