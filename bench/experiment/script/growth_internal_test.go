package script

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// What later steps add takes what the allocator has cached, where all that is allocated has room.
func TestGrowthTakesWhatIsCached(t *testing.T) {
	run := &report.Run{Allocated: 40, Reserved: 90, Device: 90, Phases: []report.Phase{{Step: 5, Name: "forward"}}}
	for memory, rest := range map[int64]int64{100: 10, 1000: 30} {
		o := &Outcome{
			Command: Command{GPU: device.GPU{Memory: memory}}, Program: &program.Program{},
			events: []Event{{Name: "end", Trace: "trace", Growth: 2, Total: 20}},
		}
		g := o.growth(run)
		require.False(t, g.Fills())
		require.Equal(t, rest, g.RestBytes)
	}
}

// The least memory has no room for what the allocator can free.
func TestLeastMemory(t *testing.T) {
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	const mib = 1 << 20
	p := &program.Program{Streams: nil, Sites: []program.Site{{}}}
	for i := range 8 { // each larger than all before, so that nothing cached serves it
		p.Buffers = append(p.Buffers, program.Buffer{Bytes: int64(100+10*i) * mib})
		p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Alloc, Arg: uint32(i)},
			program.Instruction{Kind: program.Free, Arg: uint32(i)})
	}
	gpu.Memory = gpu.Context + 100*mib
	o := &Outcome{Command: Command{GPU: gpu}, Program: p}
	least, err := o.LeastMemory(t.Context(), gpu.Context+1000*mib)
	require.NoError(t, err)
	require.InDelta(t, gpu.Context+170*mib, least, 8*mib)
}
