package replay_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// recorder is a real GPU that notes the memory that is written and read.
type recorder struct {
	*sim.Device
	written, read []device.Range
}

func (*recorder) Simulated() bool { return false }

func (d *recorder) Fill(dst uint64, value byte, bytes int64) error {
	d.written = append(d.written, device.Range{Addr: dst, Bytes: bytes})
	return d.Device.Fill(dst, value, bytes)
}

func (d *recorder) Launch(k device.Kernel) error {
	d.read = append(d.read, k.Reads...)
	d.written = append(d.written, k.Writes...)
	return d.Device.Launch(k)
}

// A workspace of 10 MiB, which no op names, is filled and read, once; so is the
// half of a buffer that its ops leave alone.
func TestWhatOpsLeaveAloneIsTouched(t *testing.T) {
	s := newScript()
	s.alloc("x", program.Activations, 40*mib)
	s.launch(nil, []string{"x"})
	s.Operands[0].Bytes = 15 * mib
	s.alloc("workspace", program.Workspace, 10*mib)
	s.launch([]string{"x"}, []string{"x"})
	s.Operands[1].Bytes, s.Operands[2].Bytes = 20*mib, 20*mib
	s.free("workspace")
	s.mark(0, "step")
	d := &recorder{Device: newGPU(t, 0)}
	_, err := replay.Measure(t.Context(), d, &s.Program, replay.Conditions{Repeat: 2})
	require.NoError(t, err)
	count := func(of []device.Range, bytes int64) int {
		return len(slices.DeleteFunc(slices.Clone(of), func(r device.Range) bool { return r.Bytes != bytes }))
	}
	require.Equal(t, 1, count(d.written, 10*mib), "in the replay that is watched, not in the timed ones")
	require.Equal(t, 1, count(d.read, 10*mib))
	require.Equal(t, 3+1, count(d.written, 20*mib), "by an op in three replays, and the rest")
	require.Equal(t, 3+1, count(d.read, 20*mib))
}

// Every byte that is asked for is written and read, whatever the program.
func TestEveryByteIsWrittenAndRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t)
		d := &recorder{Device: newGPU(t, 0)}
		m, err := replay.Measure(t.Context(), d, p, replay.Conditions{})
		require.NoError(t, err)
		if m.OOM != nil {
			return
		}
		asked := int64(0)
		for _, in := range p.Instructions {
			if in.Kind == program.Alloc {
				asked += p.Buffers[in.Arg].Bytes
			}
		}
		for _, of := range [][]device.Range{d.written, d.read} {
			touched := int64(0)
			for _, r := range of {
				touched += r.Bytes
			}
			require.GreaterOrEqual(t, touched, asked)
		}
	})
}
