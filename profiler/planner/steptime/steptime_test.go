package steptime

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// GPU does 10 FLOP/s and moves 2 bytes/s.
var testGPU = device.GPU{Peak: device.Rates{FP32: 10}, Bandwidth: 2}

// twoSteps returns a program with a product of 100 FLOPs in step 0, and in step 1 a product of 100 FLOPs and a copy of
// 6 bytes.
func twoSteps() *program.Program {
	return &program.Program{
		Buffers:  []program.Buffer{{Bytes: 6}},
		Operands: []program.Operand{{Buffer: 0, Bytes: 6}},
		Ops: []program.Op{
			{Work: program.Matmul, FLOPs: 100},
			{Work: program.Copy, Reads: program.Span{From: 0, To: 1}},
		},
		Phases: []program.Phase{{Step: 0, Name: "forward"}, {Step: 1, Name: "forward"}},
		Instructions: []program.Instruction{
			{Kind: program.Launch, Arg: 0},
			{Kind: program.MarkPhase, Arg: 0},
			{Kind: program.Launch, Arg: 0},
			{Kind: program.Launch, Arg: 1},
			{Kind: program.MarkPhase, Arg: 1},
		},
	}
}

// 100 FLOPs at 10/s and 6 bytes at 2/s: 10 s and 3 s.
func TestLoadIsTheRooflineOfTheStepsOps(t *testing.T) {
	l := KernelLoad(twoSteps(), testGPU, 1)
	require.InDelta(t, 10, l.Seconds[program.Matmul], 1e-12)
	require.InDelta(t, 3, l.Seconds[program.Copy], 1e-12)
	require.Equal(t, 2, l.Launches)
	require.InDelta(t, 10, KernelLoad(twoSteps(), testGPU, 0).Roofline(), 1e-12)
	require.False(t, KernelLoad(twoSteps(), device.GPU{}, 1).IsKnown())
}

// At shares of 1/2 and 1/4 and a second a launch: 20 + 12 + 2, of the rooflines if the shares are relative to the peak.
func TestTimeDividesByShares(t *testing.T) {
	e := DefaultEfficiency()
	e.Share[program.Matmul].Value, e.Share[program.Copy].Value, e.Launch.Value = 0.5, 0.25, 1
	load := KernelLoad(twoSteps(), testGPU, 1)
	want := load.Expected[program.Matmul]/0.5 + load.Expected[program.Copy]/0.25 + 2
	require.InDelta(t, want, e.Time(load).Seconds, 1e-9)
	e.RelativeToPeak = true
	require.InDelta(t, 34, e.Time(load).Seconds, 1e-9)
}

// What waits for the host comes on top, within a factor of what machines differ by.
func TestTheHostComesOnTop(t *testing.T) {
	l := KernelLoad(twoSteps(), testGPU, 1)
	without := DefaultEfficiency().Time(l)
	l.Host = 5
	with := DefaultEfficiency().Time(l)
	require.InDelta(t, without.Seconds+5, with.Seconds, 1e-9)
	require.InDelta(t, without.Low+5.0/hostSpreadFactor, with.Low, 1e-9)
	require.InDelta(t, without.High+5*hostSpreadFactor, with.High, 1e-9)
}

func TestNoStepBeatsItsRoofline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Load
		for w := range l.Seconds {
			l.Seconds[w] = rapid.Float64Range(0, 1).Draw(t, "seconds")
			l.Expected[w] = l.Seconds[w] * rapid.Float64Range(1, 10).Draw(t, "slower")
		}
		l.Launches = rapid.IntRange(0, 10000).Draw(t, "launches")
		got := DefaultEfficiency().Time(l)
		require.GreaterOrEqual(t, got.Low, l.Roofline())
		require.GreaterOrEqual(t, got.Seconds, got.Low)
		require.GreaterOrEqual(t, got.High, got.Seconds)
	})
}

// Recorded kernels of torch.compile are added up by their operands. Generated code costs the host less.
func TestCompiledKernelsAreThoseThatWereRecorded(t *testing.T) {
	p := twoSteps()
	p.Phases[0].Step, p.Phases[1].Step = otherStep, generatedStep
	l := CompiledLoad(p, testGPU)
	require.Equal(t, []int{3, 1}, []int{l.Launches, l.Modules})
	require.InDelta(t, 20, l.Seconds[program.Matmul], 1e-12)
	require.InDelta(t, 3, l.Seconds[program.Copy], 1e-12)
	e := DefaultEfficiency()
	require.InDelta(t, e.Module.Value+2*e.Dispatch.Value, e.Host(&l), 1e-12)
	require.Greater(t, l.Spread, KernelLoad(p, device.GPU{Name: "rtx-4090"}, 0).Spread, "they are estimated less well")
	half := Load{}.Plus(l, 0.25).Plus(l, 0.75)
	require.Equal(t, l.Seconds, half.Seconds)
	require.InDelta(t, 3, half.Launches, 1)
}

// What the host takes for a kernel of generated code is not known: it may be as much as for an eager one, or nothing.
func TestCompiledStepsWaitForTheHostAtMost(t *testing.T) {
	l := Load{Launches: 10000, Modules: 5000}
	l.Seconds[program.Matmul], l.Seconds[program.Copy] = 0.001, 0.001
	l.Expected = l.Seconds
	eager := DefaultEfficiency().Time(l)
	l.Compiled = true
	compiled := DefaultEfficiency().Time(l)
	require.Less(t, compiled.Seconds, eager.Seconds)
	require.InDelta(t, eager.High, compiled.High, 1e-12)
	require.InDelta(t, 0.001, compiled.Low, 1e-12, "copies may be a part of other kernels")
}

// An all-gather of a second beside a product that the GPU does in a millisecond: the
// step waits for it if the program says so.
func TestCommunicationHidesBehindKernels(t *testing.T) {
	gpu := device.GPU{Bandwidth: 1e12, Peak: device.Rates{FP32: 1e12}}
	b := DefaultKernels().limitsFor(&gpu)
	gpu.LinkBandwidth = 1e9 / b.link / (1 - b.collective)
	p := &program.Program{
		Buffers: []program.Buffer{{Bytes: 2e9, Stream: 1}}, Operands: []program.Operand{{Buffer: 0, Bytes: 2e9}},
		Sites: []program.Site{{}},
		Ops: []program.Op{
			{Work: program.AllGather, Stream: 1, GroupSize: 2, Writes: program.Span{From: 0, To: 1}},
			{Work: program.Matmul, FLOPs: 1e9},
		},
		Phases: []program.Phase{{Step: 1, Name: "step"}}, Streams: []string{"compute", "gather"},
		Events: []program.Event{{Stream: 1}}, Waits: []program.Wait{{Event: 0}},
		Instructions: []program.Instruction{
			{Kind: program.Alloc},
			{Kind: program.Launch, Arg: 0},
			{Kind: program.RecordEvent, Arg: 0},
			{Kind: program.AwaitEvent, Arg: 0},
			{Kind: program.Launch, Arg: 1},
			{Kind: program.MarkPhase},
		},
	}
	require.NoError(t, p.Validate())
	e := DefaultEfficiency()
	load := KernelLoad(p, gpu, 1)
	require.Equal(t, 1, load.Launches)
	kernel := load.Expected[program.Matmul] + e.Launch.Value
	require.InDelta(t, 1+kernel, e.Time(load).Seconds, 1e-9)
	p.Instructions[3], p.Instructions[4] = p.Instructions[4], p.Instructions[3]
	p.Ops[1].FLOPs = 2e12
	load = KernelLoad(p, gpu, 1)
	slow := load.Expected[program.Matmul] + e.Launch.Value
	require.Greater(t, slow, 1.0)
	require.InDelta(t, slow, e.Time(load).Seconds, 1e-9)
}

// Each row of `vprof time` says how often intervals held, as the page does.
func TestThePageCountsTheIntervalsThatHeld(t *testing.T) {
	page, err := os.ReadFile("../../../docs/time.md")
	require.NoError(t, err)
	of := regexp.MustCompile(`\d+ of \d+ measured steps of model families left out`)
	text := strings.Join(strings.Fields(string(page)), " ")
	require.Contains(t, text, "held "+of.FindString(fittedSource))
	require.NotEmpty(t, of.FindString(fittedSource))
}
