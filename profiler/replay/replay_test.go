package replay_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

const mib = 1 << 20

func mustReplay(tb testing.TB, p *program.Program, o replay.Options) *replay.Run {
	tb.Helper()
	run, err := replay.Replay(tb.Context(), p, o)
	require.NoError(tb, err)
	return run
}

func configOf(tb testing.TB, conf string) *allocator.Config {
	tb.Helper()
	config, err := allocator.ParseConfig(conf)
	require.NoError(tb, err)
	return &config
}

// TestRecordedStepsTakeWhatPyTorchTook replays the allocations and frees that PyTorch 2.11 made on a GPU of 16 GB, and
// compares all phases of the set-up and of the first step with what it reported, under several settings.
func TestRecordedStepsTakeWhatPyTorchTook(t *testing.T) {
	f, err := os.Open("testdata/recorded.jsonl")
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var want struct {
			List, Conf string
			Phases     [][6]any // step, phase, allocated, most, reserved, most
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &want))
		t.Run(want.List+"/"+want.Conf, func(t *testing.T) {
			run := mustReplay(t, recordedList(t, want.List), replay.Options{
				Config: configOf(t, want.Conf), Total: 16615079936, Available: 16615079936 - 199229440, Rising: true,
			})
			require.Len(t, want.Phases, 8)
			for i, phase := range want.Phases {
				got := run.Phases[i]
				require.Equal(t, phase, [6]any{
					float64(got.Step), got.Name,
					float64(got.End.Allocated), float64(got.Max.Allocated),
					float64(got.End.Reserved), float64(got.Max.Reserved),
				})
			}
		})
	}
}

// TestResidualNet is worked out by hand, instruction by instruction; a real
// PyTorch without cuDNN gave the same figures at the ends of the phases.
func TestResidualNet(t *testing.T) {
	text, err := os.ReadFile("testdata/residual-net.txt")
	require.NoError(t, err)
	net := parse(t, string(text))
	run := mustReplay(t, net, replay.Options{})
	var got [][3]any
	for _, p := range run.Phases {
		got = append(got, [3]any{p.Name, p.End.Allocated, p.Max.Allocated})
		require.Equal(t, int64(2*mib), p.Max.Reserved, "one small segment holds everything")
	}
	require.Equal(t, [][3]any{
		{"model", int64(192_000), int64(192_000)},
		{"input", int64(217_088), int64(217_088)},
		{"forward", int64(747_008), int64(875_520)},
		{"backward", int64(280_576), int64(879_104)},
		{"optimizer", int64(280_576), int64(343_040)},
		{"zero_grad", int64(218_112), int64(280_576)},
		{"step_end", int64(192_000), int64(218_112)},
	}, got)
	require.Equal(t, "backward", peakPhase(run).Name)

	// The peak is where relu3 has written its gradient and the mean's gradient still lives.
	peak := run.Peak
	require.Equal(t, program.Phase{Step: 0, Name: "backward"}, peak.Phase)
	last := net.Buffers[net.Instructions[peak.Instruction].Arg]
	require.Equal(t, "relu3-grad", net.Sites[last.Site].Op)
	require.Equal(t, program.Breakdown{
		program.Weights: 62_464, program.Buffers: 4_608, program.Gradients: 1_536 + 512,
		program.OptimizerState: 2 * 62_464, program.Batch: 24_576 + 512,
		// conv1, relu1; conv2, relu2, conv3, relu3; six statistics, logits, loss
		program.Activations: 2*131_072 + 4*65_536 + 8*512,
		program.Temporaries: 2*65_536 + 512,
	}, peak.Allocated)
	require.Equal(t, peak.Allocated, peak.Requested, "all sizes are multiples of 512")
	require.Equal(t, replay.Usage{
		Requested: 879_104, Allocated: 879_104, Active: 879_104,
		Reserved: 2 * mib,
	}, peak.Usage)
	largest := peak.Largest(3)
	require.Equal(t, []int64{131_072, 131_072, 65_536},
		[]int64{largest[0].Allocated, largest[1].Allocated, largest[2].Allocated})
}

// TestWorkedExamples has sizes in bytes to allocate; a negative number -k frees
// the k-th of them, zero empties the cache.
func TestWorkedExamples(t *testing.T) {
	for _, c := range []struct {
		name                string
		total               int64
		ops                 []int64
		allocated, reserved int64
		retries             int64
	}{
		{"one byte", 0, []int64{1}, 512, 2 * mib, 0},
		{"two fill a small segment", 0, []int64{mib, mib, 1}, 2*mib + 512, 4 * mib, 0},
		{"just over 1 MiB is large", 0, []int64{mib + 1}, mib + 512, 20 * mib, 0},
		{"ten per large segment", 0, []int64{
			2 * mib, 2 * mib, 2 * mib, 2 * mib, 2 * mib, 2 * mib, 2 * mib, 2 * mib,
			2 * mib, 2 * mib, 2 * mib,
		}, 22 * mib, 40 * mib, 0},
		{"just under 10 MiB", 0, []int64{10*mib - 512}, 10*mib - 512, 20 * mib, 0},
		{"just over 10 MiB", 0, []int64{10*mib + 1}, 10*mib + 512, 12 * mib, 0},
		{"rest of at most 1 MiB is not split off", 0, []int64{20_000_000}, 20 * mib, 20 * mib, 0},
		{"rest of exactly 1 MiB", 0, []int64{19 * mib}, 20 * mib, 20 * mib, 0},
		{"rest of more than 1 MiB", 0, []int64{19*mib - 512}, 19*mib - 512, 20 * mib, 0},
		{"best fit", 0, []int64{100 * mib, 50 * mib, -1, -2, 40 * mib}, 40 * mib, 150 * mib, 0},
		{"segments do not merge", 0, []int64{30 * mib, 30 * mib, -1, -2, 60 * mib}, 60 * mib, 120 * mib, 0},
		{"empty cache", 0, []int64{4 * mib, 64 * mib, -2, 0}, 4 * mib, 20 * mib, 0},
		{"two cuBLAS workspaces", 0, []int64{8_519_680, 8_519_680}, 17_039_360, 20 * mib, 0},
		{"cache is emptied before giving up", 100 * mib, []int64{60 * mib, -1, 70 * mib}, 70 * mib, 70 * mib, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			for _, op := range c.ops {
				switch {
				case op > 0:
					s.alloc(fmt.Sprint(len(s.Buffers)+1), program.Temporaries, op)
				case op < 0:
					s.free(fmt.Sprint(-op))
				default:
					s.emit(program.EmptyCache, 0)
				}
			}
			s.mark(0, "end")
			run := mustReplay(t, &s.Program, replay.Options{Total: c.total})
			require.Nil(t, run.OOM)
			require.Equal(t, c.allocated, run.Phases[0].End.Allocated)
			require.Equal(t, c.reserved, run.Phases[0].End.Reserved)
			require.Equal(t, c.retries, run.Stats.NumAllocRetries)
		})
	}
}

// outOfMemory needs 20 + 30 + 30 MiB at once; names say what for.
const outOfMemory = `
+ weights w 20971520
m -1:model
+ activations a 31457280
+ temporaries t 31457280
- t
m 0:forward
`

func TestOOMIsAResult(t *testing.T) {
	// 100 MiB less 30 for the context: the third allocation does not fit.
	run := mustReplay(t, parse(t, outOfMemory), replay.Options{Total: 100 * mib, Available: 70 * mib})
	oom := run.OOM
	require.NotNil(t, oom)
	usage := replay.Usage{Requested: 50 * mib, Allocated: 50 * mib, Active: 50 * mib, Reserved: 50 * mib}
	at := replay.MemoryState{
		Instruction: 2, Phase: program.Phase{Step: 0, Name: "forward"},
		Requested: program.Breakdown{program.Weights: 20 * mib, program.Activations: 30 * mib},
		Allocated: program.Breakdown{program.Weights: 20 * mib, program.Activations: 30 * mib},
		Usage:     usage,
		Live: []replay.Holding{
			{Buffer: 0, Class: program.Weights, Requested: 20 * mib, Allocated: 20 * mib},
			{Buffer: 1, Class: program.Activations, Requested: 30 * mib, Allocated: 30 * mib},
		},
	}
	require.Equal(t, &replay.OOM{
		Instruction: 3, Buffer: 2, Class: program.Temporaries, Site: program.Site{Op: "t"},
		Phase: program.Phase{Step: 0, Name: "forward"}, Requested: 30 * mib,
		Cause: &allocator.OOMError{
			Requested: 30 * mib, Segment: 30 * mib, Allocated: 50 * mib, Reserved: 50 * mib, Limit: -1,
		},
		At: at,
	}, oom)
	require.Equal(t,
		"out of memory in 1:forward: t asks for 31457280 bytes (temporaries); 52428800 bytes allocated, 52428800 "+
			"reserved", oom.String())
	require.Equal(t, at, run.Peak)
	require.Len(t, run.Phases, 2)
	require.Equal(t, replay.Phase{Phase: program.Phase{Step: 0, Name: "oom"}, End: usage, Max: usage}, run.Phases[1])
	require.Equal(t, usage, run.Max)
	require.Equal(t, int64(1), run.Stats.NumOOMs)
}

// TestOOMSaysWhere: as much as the program knows of the place.
func TestOOMSaysWhere(t *testing.T) {
	for want, site := range map[string]program.Site{
		"1:x: conv2d of ConvolutionBackward0 in stem.0 asks": {
			Op: "conv2d", Node: "ConvolutionBackward0",
			Module: "stem.0",
		},
		"1:x: in stem.0 asks": {Module: "stem.0"},
		"1:x: buffer 0 asks":  {},
	} {
		s := newScript()
		s.alloc("a", program.Workspace, 3*mib)
		s.mark(0, "x")
		s.Sites[0] = site
		run := mustReplay(t, &s.Program, replay.Options{Total: mib})
		require.Contains(t, run.OOM.String(), want)
	}
}

// TestAvailableIsTheEdge: 80 MiB are just enough, one byte less is not.
func TestAvailableIsTheEdge(t *testing.T) {
	p := parse(t, outOfMemory)
	require.Nil(t, mustReplay(t, p, replay.Options{Total: 100 * mib, Available: 80 * mib}).OOM)
	require.NotNil(t, mustReplay(t, p, replay.Options{Total: 100 * mib, Available: 80*mib - 1}).OOM)
	require.Nil(t, mustReplay(t, p, replay.Options{Total: 80 * mib}).OOM)
	require.Nil(t, mustReplay(t, p, replay.Options{}).OOM)
}

func TestOptionsThatCannotBe(t *testing.T) {
	p := parse(t, outOfMemory)
	for want, o := range map[string]replay.Options{
		"must be from 0 to Total":   {Total: 10, Available: 11},
		"Available (-1 bytes)":      {Total: 10, Available: -1},
		"leave Total and Available": {Source: allocator.NewMemory(100*mib, 0), Total: 1},
		"DefaultConfig":             {Config: &allocator.Config{}},
	} {
		_, err := replay.Replay(t.Context(), p, o)
		require.ErrorContains(t, err, want)
		_, err = replay.SnapshotAt(t.Context(), p, o, 0)
		if o.Source == nil {
			require.ErrorContains(t, err, want)
		}
	}
}

func TestCanceledReplayReturnsTheRunSoFar(t *testing.T) {
	p := recordedList(t, "vit-b16-224-b4-none-plain-full")
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	run, err := replay.Replay(ctx, p, replay.Options{Hooks: replay.Hooks{
		Mark: func(phase program.Phase) error {
			if phase.Name == "forward" {
				cancel(stop)
			}
			return nil
		},
	}})
	require.ErrorIs(t, err, stop)
	require.NotEmpty(t, run.Phases)
	require.Positive(t, run.Peak.Usage.Allocated)
	require.Less(t, len(run.Phases), len(p.Phases))
}

func TestMalformedProgramsAreErrors(t *testing.T) {
	instructions := func(in ...program.Instruction) *program.Program {
		return &program.Program{
			Instructions: in,
			Buffers:      []program.Buffer{{Bytes: 1}, {Bytes: 0}, {Bytes: 1, Class: program.NumClasses}},
			Ops: []program.Op{
				{Reads: program.Span{From: 0, To: 1}},
				{Writes: program.Span{From: 1, To: 2}},
				{Reads: program.Span{From: 1, To: 0}},
			},
			Operands: []program.Operand{{Buffer: 0, Bytes: 1}},
		}
	}
	in := func(k program.Kind, arg uint32) program.Instruction { return program.Instruction{Kind: k, Arg: arg} }
	for want, p := range map[string]*program.Program{
		"instruction 1: buffer 0 is allocated twice": instructions(in(program.Alloc, 0),
			in(program.Alloc, 0)),
		"instruction 2: buffer 0 is allocated twice": instructions(in(program.Alloc, 0),
			in(program.Free, 0), in(program.Alloc, 0)),
		"instruction 0: buffer 0 is freed but not allocated": instructions(in(program.Free, 0)),
		"instruction 2: buffer 0 is freed but not allocated": instructions(in(program.Alloc, 0),
			in(program.Free, 0), in(program.Free, 0)),
		"replay of the step stopped at instruction 0: there is no buffer 3 to allocate": instructions(in(program.Alloc, 3)),
		"buffer 3 is freed":                                                                                  instructions(in(program.Free, 3)),
		"buffer 1 has an invalid size (0 bytes)":                                                             instructions(in(program.Alloc, 1)),
		"buffer 2 has an invalid size (1 bytes) or class (9)":                                                instructions(in(program.Alloc, 2)),
		"replay of the step stopped at instruction 0: there is no phase 0 to end":                            instructions(in(program.MarkPhase, 0)),
		"replay of the step stopped at instruction 0: there is no kind of instruction 9":                     instructions(in(9, 0)),
		"replay of the step stopped at instruction 0: there is no operator call 3 to run":                    instructions(in(program.Launch, 3)),
		"replay of the step stopped at instruction 0: operator call 0 uses buffer 0, which is not allocated": instructions(in(program.Launch, 0)),
		"instruction 1: operator call 1 refers to operands that do not exist": instructions(in(program.Alloc, 0),
			in(program.Launch, 1)),
		"instruction 0: operator call 2 refers to operands that do not exist": instructions(in(program.Launch, 2)),
		"instruction 2: operator call 0 uses buffer 0, which is not allocated": instructions(in(program.Alloc, 0),
			in(program.Free, 0), in(program.Launch, 0)),
	} {
		_, err := replay.Replay(t.Context(), p, replay.Options{Hooks: replay.Hooks{
			Launch: func(*program.Op, func(uint32) uint64) error { return nil },
		}})
		require.ErrorContains(t, err, want)
	}
	_, err := replay.SnapshotAt(t.Context(), instructions(), replay.Options{}, 0)
	require.ErrorContains(t, err, "no instruction 0")
}

// TestHooksSeeTheProgram: an op that reads a and writes t is launched while
// both live, and every event names the instruction that made it happen.
func TestHooksSeeTheProgram(t *testing.T) {
	p := parse(t, outOfMemory)
	p.Ops = []program.Op{{
		Work: program.Copy, Reads: program.Span{From: 0, To: 1},
		Writes: program.Span{From: 1, To: 2},
	}}
	p.Operands = []program.Operand{{Buffer: 1, Bytes: 30 * mib}, {Buffer: 2, Bytes: 30 * mib}}
	p.Instructions = append(p.Instructions[:4:4],
		append([]program.Instruction{{Kind: program.Launch}}, p.Instructions[4:]...)...)
	var log []string
	memory := allocator.NewMemory(200*mib, 0)
	memory.Rising = true
	base, err := memory.Reserve(0)
	require.NoError(t, err)
	hooks := replay.Hooks{
		Launch: func(op *program.Op, address func(uint32) uint64) error {
			log = append(log, fmt.Sprintf("%v from %d to %d", op.Work, (address(1)-base)/mib, (address(2)-base)/mib))
			return nil
		},
		Mark: func(p program.Phase) error {
			log = append(log, p.Name)
			return nil
		},
		Trace: func(i int, e allocator.TraceEvent) {
			if e.Action == allocator.TraceAlloc || e.Action == allocator.TraceFreeRequested {
				log = append(log, fmt.Sprintf("%d %v %d", i, e.Action, e.Size/mib))
			}
		},
	}
	mustReplay(t, p, replay.Options{Source: memory, Hooks: hooks})
	require.Equal(t, []string{
		"0 alloc 20", "model", "2 alloc 30", "3 alloc 30", "copy from 20 to 50", "5 free_requested 30", "forward",
	}, log)
	require.Zero(t, memory.Used(), "the device has everything back")

	failure := errors.New("launch failed")
	hooks.Launch = func(*program.Op, func(uint32) uint64) error { return failure }
	run, err := replay.Replay(t.Context(), p, replay.Options{Source: memory, Hooks: hooks})
	require.ErrorIs(t, err, failure)
	require.Len(t, run.Phases, 1)
	require.Zero(t, memory.Used())
}

// TestTimelineHasEveryChange: five instructions change the memory, marks do not.
func TestTimelineHasEveryChange(t *testing.T) {
	p := parse(t, outOfMemory)
	p.Instructions = append(p.Instructions, program.Instruction{Kind: program.EmptyCache})
	run := mustReplay(t, p, replay.Options{Timeline: true})
	var got [][3]int64
	for _, point := range run.Timeline {
		got = append(got, [3]int64{int64(point.Instruction), point.Usage.Allocated / mib, point.Usage.Reserved / mib})
	}
	require.Equal(t, [][3]int64{{0, 20, 20}, {2, 50, 50}, {3, 80, 80}, {4, 50, 80}, {6, 50, 50}}, got)
}

// TestSnapshotAtThePeakHasThePeak: the allocated bytes of the layout at the
// instruction of the peak are the peak, and each live buffer lies in its block.
func TestSnapshotAtThePeakHasThePeak(t *testing.T) {
	p := recordedList(t, "vit-b16-224-b4-none-plain-full")
	run := mustReplay(t, p, replay.Options{})
	layout, err := replay.SnapshotAt(t.Context(), p, replay.Options{}, run.Peak.Instruction)
	require.NoError(t, err)
	var allocated, reserved int64
	for _, s := range layout.Segments {
		allocated += s.Allocated
		reserved += s.Size
		for _, b := range s.Blocks {
			if b.State == allocator.Allocated {
				require.Equal(t, p.Buffers[layout.Buffers[b.Address]].Bytes, b.Requested)
			}
		}
	}
	require.Equal(t, run.Max.Allocated, allocated)
	require.Equal(t, run.Peak.Usage.Reserved, reserved)
	require.Len(t, layout.Buffers, len(run.Peak.Live))
}

func TestEmptyProgramTakesNothing(t *testing.T) {
	run := mustReplay(t, &program.Program{}, replay.Options{Timeline: true})
	require.Equal(t, &replay.Run{Peak: replay.MemoryState{Instruction: -1}}, run)
	require.Zero(t, peakPhase(run))
}

// BenchmarkReplay replays two training steps: 14,744 instructions.
func BenchmarkReplay(b *testing.B) {
	p := recordedList(b, "redimnet-b2-b32-none-plain-full")
	for _, c := range []struct {
		name    string
		options replay.Options
	}{
		{"default", replay.Options{}},
		{"expandable", replay.Options{Config: configOf(b, "expandable_segments:True")}},
		{"timeline", replay.Options{Timeline: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustReplay(b, p, c.options)
			}
			b.ReportMetric(float64(len(p.Instructions)), "instructions")
		})
	}
}

func TestStreamsHavePoolsOfTheirOwn(t *testing.T) {
	p := &program.Program{
		Buffers: []program.Buffer{{Bytes: 4 << 20, Stream: 1}, {Bytes: 4 << 20}, {Bytes: 4 << 20, Stream: 1}},
		Sites:   []program.Site{{}}, Streams: []string{"compute", "communicate"},
		Instructions: []program.Instruction{
			{Kind: program.Alloc, Arg: 0},
			{Kind: program.Free, Arg: 0},
			{Kind: program.Alloc, Arg: 1}, // what the other stream has freed does not serve it
			{Kind: program.Alloc, Arg: 2},
		},
	}
	require.NoError(t, p.Validate())
	run, err := replay.Replay(context.Background(), p, replay.Options{})
	require.NoError(t, err)
	require.Equal(t, int64(40<<20), run.Max.Reserved)
	require.Equal(t, int64(8<<20), run.Max.Allocated)

	p.Buffers[1].Stream = 1
	run, err = replay.Replay(context.Background(), p, replay.Options{})
	require.NoError(t, err)
	require.Equal(t, int64(20<<20), run.Max.Reserved)
}

func TestEventsHoldUpStreamsOfADevice(t *testing.T) {
	p := &program.Program{
		Buffers: []program.Buffer{{Bytes: 1 << 30, Stream: 1}},
		Ops: []program.Op{{
			Work: program.AllGather, Stream: 1, GroupSize: 2,
			Writes: program.Span{From: 0, To: 1},
		}},
		Operands: []program.Operand{{Buffer: 0, Bytes: 1 << 30}}, Sites: []program.Site{{}},
		Streams: []string{"compute", "communicate"},
		Phases:  []program.Phase{{Name: "sent"}, {Name: "waited"}},
		Events:  []program.Event{{Stream: 1}}, Waits: []program.Wait{{Stream: 0, Event: 0}},
		Instructions: []program.Instruction{
			{Kind: program.Alloc, Arg: 0},
			{Kind: program.Launch, Arg: 0},
			{Kind: program.RecordEvent, Arg: 0},
			{Kind: program.MarkPhase, Arg: 0},
			{Kind: program.AwaitEvent, Arg: 0},
			{Kind: program.MarkPhase, Arg: 1},
		},
	}
	require.NoError(t, p.Validate())
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	d, err := sim.New(gpu, 0)
	require.NoError(t, err)
	m, err := replay.Measure(context.Background(), d, p, replay.Conditions{})
	require.NoError(t, err)
	require.Equal(t, [][]time.Duration{{0, gpu.Transfer(1 << 29)}}, m.Times)
}

// peakPhase returns the first phase with the most allocated bytes.
func peakPhase(run *replay.Run) (top replay.Phase) {
	for i, p := range run.Phases {
		if i == 0 || p.Max.Allocated > top.Max.Allocated {
			top = p
		}
	}
	return top
}
