package replay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
)

// spillingStep returns two steps over 64 MiB of weights and activations of 40 and 60 MiB: a kernel reads 30 MiB of the
// first and writes the second. The cache is emptied at the end.
func spillingStep() *program.Program {
	p := weightsAnd(program.Activations, 40<<20, 60<<20)
	p.Operands = []program.Operand{{Buffer: 1, Bytes: 30 << 20}, {Buffer: 2, Bytes: 60 << 20}}
	p.Ops = []program.Op{{Reads: program.Span{To: 1}, Writes: program.Span{From: 1, To: 2}}}
	p.Phases = []program.Phase{{Step: 0, Name: "forward"}, {Step: 1, Name: "forward"}}
	in := p.Instructions
	p.Instructions = append(append([]program.Instruction{}, in[:3]...), program.Instruction{Kind: program.Launch},
		program.Instruction{Kind: program.MarkPhase}, program.Instruction{Kind: program.Launch},
		program.Instruction{Kind: program.MarkPhase, Arg: 1})
	p.Instructions = append(append(p.Instructions, in[3:]...), program.Instruction{Kind: program.EmptyCache})
	return p
}

// With room for all nothing spills. With too little for the 40 MiB, the 60 MiB would not fit either.
func TestSegmentsBeyondTheRoomSpill(t *testing.T) {
	for _, c := range []struct {
		room int64
		want Spill
	}{
		{164 << 20, Spill{}},
		{163 << 20, Spill{60 << 20, 60 << 20}},
		{103 << 20, Spill{100 << 20, 90 << 20}},
	} {
		got, err := MeasureSpill(t.Context(), spillingStep(), allocator.DefaultConfig(), c.room, false, 1)
		require.NoError(t, err)
		require.Equal(t, c.want, got, c.room)
	}
}
