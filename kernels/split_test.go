package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/kernels/cudac"
	"github.com/vprof/vprof/profiler/program"
)

// splitCases are works and how many parts they come in if none may have more than a third of their operations.
var splitCases = []struct {
	name          string
	work          kernels.Work
	reads, writes []int64 // bytes
	parts         int
}{
	{
		"of rows",
		kernels.Work{Kind: program.Matmul, FLOPs: 2 * 64 * 96 * 128, M: 64, N: 96, K: 128, Batch: 1},
		[]int64{64 * 128 * 4, 96 * 128 * 4, 96 * 4},
		[]int64{64 * 96 * 4},
		4,
	},
	{"of matrices", kernels.Work{
		Kind: program.Matmul, Precision: fp16, FLOPs: 2 * 12 * 64 * 96 * 128, M: 64, N: 96,
		K: 128, Batch: 12,
	}, []int64{12 * 64 * 128 * 2, 12 * 96 * 128 * 2}, []int64{12 * 64 * 96 * 2}, 3},
	{
		"of a prime",
		kernels.Work{Kind: program.Matmul, FLOPs: 2 * 61 * 96 * 128, M: 61, N: 96, K: 128, Batch: 1},
		[]int64{61 * 128 * 4, 96 * 128 * 4},
		[]int64{61 * 96 * 4},
		1,
	},
	{"attention", kernels.Work{
		Kind: program.Attention, Precision: fp16, FLOPs: 4 * 4 * 48 * 72 * 64, M: 48, N: 72,
		K: 64, Batch: 4,
	}, []int64{4 * 48 * 64 * 2, 4 * 72 * 64 * 2, 4 * 72 * 64 * 2}, []int64{4 * 48 * 64 * 2, 400}, 4},
	{
		"attention of shared keys",
		kernels.Work{
			Kind: program.Attention, Precision: fp16, FLOPs: 4 * 8 * 48 * 72 * 64,
			M: 48, N: 72, K: 64, Batch: 8,
		},
		[]int64{8 * 48 * 64 * 2, 4 * 72 * 64 * 2, 4 * 72 * 64 * 2},
		[]int64{8 * 48 * 64 * 2},
		4,
	},
	{"elementwise", kernels.Work{Kind: program.Elementwise, FLOPs: 4000}, []int64{4000, 4000}, []int64{4000}, 1},
}

func TestPartsOfWorkDoAllOfIt(t *testing.T) {
	if !cudac.Available {
		t.Skip(cudac.Missing)
	}
	c3 := convolutionOf(program.Window{
		Images: 6, Height: 9, Width: 7, TapsY: 3, TapsX: 3, StrideY: 1, StrideX: 1,
		PadY: 1, PadX: 1, DilationY: 1, DilationX: 1,
	}, 32, 64, 2)
	cases := splitCases
	for direction, name := range []string{"convolution", "its input", "its weight"} {
		w, reads, writes := c3.work(direction)
		cases = append(cases, splitCases[0])
		last := &cases[len(cases)-1]
		last.name, last.work, last.reads, last.writes, last.parts = name, w, reads, writes, 3
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			c := newCPU(t, 80, false)
			defer c.free()
			w := c.workOn(tt.work, tt.reads, tt.writes)
			parts := w.Split((w.FLOPs + 2) / 3)
			require.Len(t, parts, tt.parts)
			require.Equal(t, []kernels.Work{w}, w.Split(w.FLOPs), "work that is small enough stays whole")
			var launches []kernels.Launch
			flops := int64(0)
			for _, part := range parts {
				flops += part.FLOPs
				launches = part.Append(launches, c.arch)
			}
			require.InEpsilon(t, w.FLOPs, flops, 0.001)
			for _, l := range launches {
				c.run(l)
			}
			for _, b := range c.buffers {
				b.ClearMarks()
			}
			for _, l := range launches {
				require.NoError(t, cudac.Run(cudac.Launch{
					Arch: c.arch, Name: l.Name, Grid: l.Grid, Block: l.Block,
					Shared: l.Shared, Args: l.Args,
				}))
			}
			read, written := c.traffic()
			require.Equal(t, []int64{sum(tt.reads), sum(tt.writes)}, []int64{read, written}, "bytes visited")
		})
	}
}
