package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// x.data = y frees what x had, and x lives in the memory of y from then on.
func TestAssignedDataTakesTheOthersPlace(t *testing.T) {
	tape := trace.New(hopper, rules, trace.Options{Warm: true})
	x := leaf(tape, true, 100)
	before := len(tape.Program().Buffers)
	f := tape.Frame()
	y := x.Detach().MulScalar()
	f.Bind(y)
	x.SetData(y)
	f.End()
	require.True(t, x.RequiresGrad())
	p := tape.Program()
	freed := p.Instructions[len(p.Instructions)-1]
	require.Equal(t, program.Free, freed.Kind)
	require.Less(t, int(freed.Arg), before, "the parameter's first memory")
}
