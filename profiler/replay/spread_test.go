package replay

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
)

// weightsAnd returns a program of weights of 64 MiB and what else it allocates, which is freed in order.
func weightsAnd(class program.Class, sizes ...int64) *program.Program {
	p := &program.Program{Buffers: []program.Buffer{{Bytes: 64 << 20, Class: program.Weights}}}
	p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Alloc})
	for i, bytes := range sizes {
		p.Buffers = append(p.Buffers, program.Buffer{Bytes: bytes, Class: class})
		p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Alloc, Arg: uint32(i + 1)})
	}
	for i := range sizes {
		p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Free, Arg: uint32(i + 1)})
	}
	return p
}

func TestWhatDoesNotDependOnTheBatchHasNoSpread(t *testing.T) {
	s, err := MeasureSpread(t.Context(), weightsAnd(program.Gradients, 30<<20, 50<<20), allocator.DefaultConfig(),
		true, true, 0)
	require.NoError(t, err)
	require.Equal(t, PeakSpread{144 << 20, 144 << 20, 144 << 20, 0}, s)
}

// 1.5 % of 200 MiB are 3 MiB, in segments of 2 MiB.
func TestSpreadFollowsTheSizesOfSamples(t *testing.T) {
	p := weightsAnd(program.Activations, 200<<20)
	s, err := MeasureSpread(t.Context(), p, allocator.DefaultConfig(), true, true, 0)
	require.NoError(t, err)
	require.Equal(t, PeakSpread{262 << 20, 268 << 20, 264 << 20, 0}, s)
	again, err := MeasureSpread(t.Context(), p, allocator.DefaultConfig(), true, true, 0)
	require.NoError(t, err)
	require.Equal(t, s, again)
}

// Where sizes are known to the byte, the order of frees alone decides.
func TestSpreadOfKnownSizesIsThatOfFrees(t *testing.T) {
	s, err := MeasureSpread(t.Context(), weightsAnd(program.Activations, 200<<20), allocator.DefaultConfig(),
		false, true, 0)
	require.NoError(t, err)
	require.Equal(t, PeakSpread{264 << 20, 264 << 20, 264 << 20, 0}, s)

	p := weightsAnd(program.Activations, 200<<20)
	again := program.Buffer{Bytes: 200 << 20, Class: program.Activations}
	for range 40 { // of so many frees some come after the next allocation
		p.Buffers = append(p.Buffers, again)
		at := uint32(len(p.Buffers) - 1)
		p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Alloc, Arg: at},
			program.Instruction{Kind: program.Free, Arg: at})
	}
	s, err = MeasureSpread(t.Context(), p, allocator.DefaultConfig(), false, true, 0)
	require.NoError(t, err)
	require.EqualValues(t, 264<<20, s.Low)
	require.Greater(t, s.High, s.Low)
}

func TestSpreadEndsWithTheContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err := MeasureSpread(ctx, weightsAnd(program.Batch, 1), allocator.DefaultConfig(),
		true, true, 0)
	require.ErrorIs(t, err, context.Canceled)
}

// Workspaces of convolutions alone get what cuDNN may want beyond its answer.
func TestLargerWorkspacesAreThoseOfConvolutions(t *testing.T) {
	p := weightsAnd(program.Workspace, 30<<20)
	p.Sites = []program.Site{{Native: "addmm_out_cuda_impl"}, {Native: "run_conv_plan"}}
	s, err := MeasureSpread(t.Context(), p, allocator.DefaultConfig(), false, false, 20<<20)
	require.NoError(t, err)
	require.Equal(t, PeakSpread{94 << 20, 94 << 20, 94 << 20, 94 << 20}, s)
	p.Buffers[1].Site = 1
	s, err = MeasureSpread(t.Context(), p, allocator.DefaultConfig(), false, false, 20<<20)
	require.NoError(t, err)
	require.Equal(t, PeakSpread{94 << 20, 114 << 20, 94 << 20, 114 << 20}, s)
}

// A driver hands out each segment below the one before, so that the lowest of equally good blocks is another.
func TestAddressesFall(t *testing.T) {
	for _, rising := range []bool{false, true} {
		memory := allocator.NewMemory(unlimitedBytes, 0)
		memory.Rising = rising
		first, err := memory.Get(3 * allocator.PageSize)
		require.NoError(t, err)
		second, err := memory.Get(allocator.PageSize)
		require.NoError(t, err)
		require.Equal(t, rising, second > first)
		require.EqualValues(t, 4*allocator.PageSize, memory.Used())
	}
}
