package replay_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// GPU has 400 MiB, of which the context takes 100, and moves a byte in a nanosecond.
var testGPU = device.GPU{
	Name: "board", Memory: 400 * mib, Context: 100 * mib, Bandwidth: 1e9,
	Peak: device.Rates{FP32: 1e12},
}

func newGPU(t require.TestingT, taken int64) *sim.Device {
	d, err := sim.New(testGPU, taken)
	require.NoError(t, err)
	return d
}

// launch adds an op that reads and writes all of some buffers.
func (s *script) launch(reads, writes []string) {
	var op program.Op
	operands := func(names []string) program.Span {
		from := uint32(len(s.Operands))
		for _, name := range names {
			b := s.buffers[name]
			s.Operands = append(s.Operands, program.Operand{Buffer: b, Bytes: s.Buffers[b].Bytes})
		}
		return program.Span{From: from, To: uint32(len(s.Operands))}
	}
	op.Reads, op.Writes = operands(reads), operands(writes)
	s.Ops = append(s.Ops, op)
	s.emit(program.Launch, uint32(len(s.Ops)-1))
}

// twoSteps returns a program with a set-up that writes 20 MiB of weights and two steps, each of a forward that writes
// 60 MiB and a backward that reads them.
func twoSteps() *script {
	s := newScript()
	s.alloc("w", program.Weights, 20*mib)
	s.launch(nil, []string{"w"})
	s.mark(-1, "setup")
	for step, name := range []string{"a", "b"} {
		s.alloc(name, program.Activations, 60*mib)
		s.launch([]string{"w"}, []string{name})
		s.mark(step, "forward")
		s.launch([]string{name}, nil)
		s.free(name)
		s.mark(step, "backward")
	}
	return s
}

// The GPU shows 100 MiB of context, 30 taken by others and 80 of segments. It reads or writes 20 MiB in set-up, 80 in
// forward, 60 in backward, at a nanosecond a byte.
func TestAMeasurementIsAReplayWithItsWork(t *testing.T) {
	p := &twoSteps().Program
	d := &real{Device: newGPU(t, 30*mib)}
	m, err := replay.Measure(t.Context(), d, p, replay.Conditions{WarmUp: 2, Repeat: 3})
	require.NoError(t, err)
	require.Equal(t, mustReplay(t, p, replay.Options{Total: 400 * mib, Available: 270 * mib}), m.Run)
	require.False(t, m.MemoryVaried)
	require.Equal(t, (1+2+3)*5, d.launches)
	require.Equal(t, device.Baseline{Others: 30 * mib, OthersKnown: true, Context: 100 * mib}, m.Baseline)
	require.Equal(t, int64(210*mib), m.Device)
	require.Equal(t, int64(180*mib), m.Process)
	want := []time.Duration{20 * mib, 80 * mib, 60 * mib, 80 * mib, 60 * mib}
	require.Len(t, m.Times, 3)
	for i, times := range m.Times {
		require.Len(t, times, len(want))
		for j := range want {
			require.InDelta(t, want[j], times[j], 2)
		}
		require.InDelta(t, 140*mib, m.StepTimes()[i], 4, "the last step only")
	}
}

// real is a GPU that does not say that it is simulated. It counts launches.
type real struct {
	*sim.Device
	launches int
	// hungry takes a segment of its own at the nth launch.
	hungry int
}

func (*real) Simulated() bool { return false }

func (d *real) Launch(k device.Kernel) error {
	if d.launches++; d.launches == d.hungry {
		if _, err := d.Get(250 * mib); err != nil {
			return err
		}
	}
	return d.Device.Launch(k)
}

func TestASimulatedGPUIsMeasuredOnce(t *testing.T) {
	m, err := replay.Measure(t.Context(), newGPU(t, 0), &twoSteps().Program, replay.Conditions{WarmUp: 2, Repeat: 3})
	require.NoError(t, err)
	require.Len(t, m.Times, 1)
	require.InDelta(t, 140*mib, m.StepTimes()[0], 4)
}

// The GPU fills up in the second replay: what fitted once does not fit.
func TestWhatFitsOnlySometimesDoesNotFit(t *testing.T) {
	d := &real{Device: newGPU(t, 0), hungry: 6}
	m, err := replay.Measure(t.Context(), d, &twoSteps().Program, replay.Conditions{Repeat: 3})
	require.NoError(t, err)
	require.True(t, m.MemoryVaried)
	require.NotNil(t, m.OOM)
	require.Empty(t, m.Times)
}

// 20 MiB of weights and 60 of activations do not fit into 70.
func TestWhatDoesNotFitHasNoTimes(t *testing.T) {
	d := newGPU(t, 230*mib)
	m, err := replay.Measure(t.Context(), d, &twoSteps().Program, replay.Conditions{Repeat: 5})
	require.NoError(t, err)
	require.NotNil(t, m.OOM)
	require.Empty(t, m.Times)
	require.Empty(t, m.StepTimes())
	require.Equal(t, int64(350*mib), m.Device)
	require.Equal(t, int64(330*mib), d.Used(), "everything is released")
}

// A measurement on a simulated GPU equals a replay without work, whatever the program and the settings; all of the
// GPU's memory is released.
func TestMeasuringIsReplaying(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, config := drawProgram(t), drawConfig(t)
		gpu := testGPU
		gpu.Memory = gpu.Context + rapid.Int64Range(40, 400).Draw(t, "MiB")*mib
		d, err := sim.New(gpu, 0)
		require.NoError(t, err)
		m, err := replay.Measure(t.Context(), d, p, replay.Conditions{Config: config})
		require.NoError(t, err)
		require.Equal(t, gpu.Context, d.Used())
		run, err := replay.Replay(t.Context(), p,
			replay.Options{Config: config, Total: gpu.Memory, Available: gpu.Memory - gpu.Context})
		require.NoError(t, err)
		require.Equal(t, run, m.Run)
		if m.Device > 0 {
			require.Equal(t, d.Peak(), m.Device)
		}
		seen := max(m.Device, gpu.Context)
		if run.OOM == nil && run.Stats.NumAllocRetries == 0 {
			require.Equal(t, gpu.Context+run.Max.Reserved, seen, "segments are whole granules")
		}
		// Pages that were mapped for a stretch that then did not fit count for the GPU only.
		require.GreaterOrEqual(t, seen, gpu.Context+run.Max.Reserved)
	})
}

// breaking fails the nth call of a device that is asked for work or memory.
type breaking struct {
	*sim.Device
	left int
}

var errBroken = errors.New("broken")

func (d *breaking) call() error {
	if d.left--; d.left == 0 {
		return errBroken
	}
	return nil
}

func (d *breaking) AvailableBytes() (int64, error) {
	n, err := d.Device.AvailableBytes()
	return n, errors.Join(err, d.call())
}

func (d *breaking) Get(n int64) (uint64, error) {
	if err := d.call(); err != nil {
		return 0, err
	}
	return d.Device.Get(n)
}

func (d *breaking) Map(addr uint64, n int64) error {
	if err := d.call(); err != nil {
		return err
	}
	return d.Device.Map(addr, n)
}

func (d *breaking) Launch(k device.Kernel) error { return errors.Join(d.Device.Launch(k), d.call()) }

func (d *breaking) Record() (device.Event, error) {
	e, err := d.Device.Record()
	if err := errors.Join(err, d.call()); err != nil {
		return nil, err
	}
	return e, nil
}

func TestAFailureEndsAMeasurementAndLeavesNothing(t *testing.T) {
	for _, conf := range []string{"", "expandable_segments:True"} {
		for n := 1; ; n++ {
			d := &breaking{newGPU(t, 0), n}
			_, err := replay.Measure(t.Context(), d, &twoSteps().Program, replay.Conditions{Config: configOf(t, conf)})
			if d.left > 0 {
				require.NoError(t, err)
				require.Greater(t, n, 10)
				break
			}
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, testGPU.Context, d.Used())
		}
	}
}

// stopping ends the context at the nth launch.
type stopping struct {
	*sim.Device
	left int
	stop context.CancelFunc
}

func (d *stopping) Launch(k device.Kernel) error {
	if d.left--; d.left == 0 {
		d.stop()
	}
	return d.Device.Launch(k)
}

func TestAnInterruptedMeasurementLeavesNothing(t *testing.T) {
	for n := 1; n < 5; n++ {
		ctx, stop := context.WithCancel(t.Context())
		d := &stopping{newGPU(t, 0), n, stop}
		_, err := replay.Measure(ctx, d, &twoSteps().Program, replay.Conditions{})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, testGPU.Context, d.Used())
	}
}

// A bench is a GPU whose memory is there: patterns are kept by address.
type bench struct {
	*sim.Device
	held map[uint64]uint64
	// stray is what a write of the nth pattern also overwrites.
	left  int
	stray uint64
}

func (b *bench) Patterns() (device.Patterns, error) { return patterns{b}, nil }

// patterns implements the writes of patterns of a bench.
type patterns struct{ b *bench }

func (patterns) Close() error { return nil }

func (p patterns) Write(r device.Range, seed uint64) error {
	b := p.b
	b.held[r.Addr] = seed
	if b.left--; b.left == 0 {
		b.held[b.stray] = seed + 1000
	}
	return nil
}

func (p patterns) Verify(r device.Range, seed uint64) error {
	if p.b.held[r.Addr] != seed {
		return &device.PatternError{Range: r, Bytes: 16}
	}
	return nil
}

func TestVerifyingTriesEveryBuffer(t *testing.T) {
	b := &bench{Device: newGPU(t, 0), held: map[uint64]uint64{}}
	m, err := replay.Measure(t.Context(), b, &twoSteps().Program, replay.Conditions{Verify: true})
	require.NoError(t, err)
	require.Equal(t, 3, m.Verified, "the weights, which live to the end, and both activations")

	first := uint64(0)
	for addr := range b.held {
		first = max(first, addr)
	}
	b = &bench{Device: newGPU(t, 0), held: map[uint64]uint64{}, left: 2, stray: first}
	_, err = replay.Measure(t.Context(), b, &twoSteps().Program, replay.Conditions{Verify: true})
	var wrong *device.PatternError
	require.ErrorAs(t, err, &wrong)

	_, err = replay.Measure(t.Context(), newGPU(t, 0), &twoSteps().Program, replay.Conditions{Verify: true})
	require.ErrorContains(t, err, "no memory to verify")
}

// twice is a GPU that gives all segments the same address.
type twice struct{ *sim.Device }

func (d twice) Get(n int64) (uint64, error) {
	_, err := d.Device.Get(n)
	return 1 << 40, err
}

func TestMemoryThatIsGivenTwiceIsFound(t *testing.T) {
	_, err := replay.Measure(t.Context(), twice{newGPU(t, 0)}, &twoSteps().Program, replay.Conditions{})
	require.ErrorContains(t, err, "the same memory twice")
}

var _ allocator.PagedSource = (*breaking)(nil)

// BenchmarkMeasure is two training steps on a device that does no work: what
// is left is the overhead of measuring, 14,744 instructions a run.
func BenchmarkMeasure(b *testing.B) {
	p := recordedList(b, "redimnet-b2-b32-none-plain-full")
	gpu := testGPU
	gpu.Memory = 1 << 40
	d, err := sim.New(gpu, 0)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := replay.Measure(b.Context(), d, p, replay.Conditions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(p.Instructions)), "ns/instruction")
}
