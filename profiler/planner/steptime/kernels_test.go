package steptime

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// one returns a program of one product that moves bytes.
func one(work program.Work, p program.Precision, x program.Product, bytes int64) *program.Program {
	return &program.Program{
		Ops: []program.Op{{
			Work: work, Precision: p, FLOPs: 2 * x.Batch * x.M * x.N * x.K, ProductIndex: 1,
			Reads: program.Span{From: 0, To: 1},
		}},
		Operands: []program.Operand{{Bytes: bytes}}, Products: []program.Product{x},
		Phases: []program.Phase{{}}, Instructions: []program.Instruction{
			{Kind: program.Launch},
			{Kind: program.MarkPhase},
		},
	}
}

// A kernel takes at least its roofline on every GPU, and one with more work no less.
func TestKernelsTakeTheirRooflineAndMoreForMoreWork(t *testing.T) {
	gpus := device.Catalog()
	rapid.Check(t, func(t *rapid.T) {
		gpu := rapid.SampledFrom(gpus).Draw(t, "gpu")
		work := rapid.SampledFrom([]program.Work{program.Matmul, program.Attention, program.Softmax}).Draw(t, "work")
		precision := rapid.SampledFrom([]program.Precision{program.FP32, program.TF32, program.BF16}).Draw(t,
			"precision")
		size := rapid.Int64Range(1, 5000)
		x := program.Product{
			M: size.Draw(t, "m"), N: size.Draw(t, "n"), K: size.Draw(t, "k"), Batch: size.Draw(t, "batch") % 9,
		}
		x.Batch++
		bytes := size.Draw(t, "bytes") << 10
		load := KernelLoad(one(work, precision, x, bytes), gpu, 0)
		require.GreaterOrEqual(t, load.Expected[work], load.Seconds[work])
		more := x
		more.M += size.Draw(t, "more")
		require.GreaterOrEqual(t, KernelLoad(one(work, precision, more, bytes), gpu, 0).Expected[work],
			load.Expected[work])
	})
}

// A product with one tile more than the GPU has multiprocessors needs another wave.
func TestTheLastWaveIsPaidInFull(t *testing.T) {
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	wave := program.Product{M: 256, N: 128 * int64(gpu.SMs), K: 8192, Batch: 1}
	seconds := func(x program.Product) float64 {
		return KernelLoad(one(program.Matmul, program.BF16, x, 1), gpu, 0).Expected[program.Matmul]
	}
	full := seconds(wave)
	wave.N += 128
	require.Greater(t, seconds(wave), 1.05*full, "one percent more work")
}

// Of a GPU's rows, the one that names it counts, then its generation's, its kind of memory's, and all GPUs'.
func TestTheClosestRowOfTheTableCounts(t *testing.T) {
	var text strings.Builder
	text.WriteString("parameter,gpus,arithmetic,value,source\n")
	for _, name := range Parameters {
		text.WriteString(name + ",*,*,1,all\n")
	}
	text.WriteString("stream,gddr,*,2,x\nstream,Turing,*,3,x\nstream,t4|l4,*,4,x\n")
	text.WriteString("matmul,*,tensor,5,x\nmatmul,*,bf16,6,x\n")
	k, err := ReadKernels(text.String())
	require.NoError(t, err)
	for name, want := range map[string]float64{"t4": 4, "rtx-2080": 3, "rtx-3090": 2, "a100-80": 1} {
		gpu, err := device.Lookup(name)
		require.NoError(t, err)
		require.Equal(t, want, k.parameter("stream", &gpu, program.FP32), name)
		require.Equal(t, 1.0, k.parameter("matmul", &gpu, program.FP32))
		require.Equal(t, 5.0, k.parameter("matmul", &gpu, program.FP16))
		require.Equal(t, 6.0, k.parameter("matmul", &gpu, program.BF16))
	}
	require.True(t, k.Set("stream", "gddr", "*", 7))
	require.False(t, k.Set("stream", "gddr", "bf16", 7))
}

func TestDamagedTablesAreExplained(t *testing.T) {
	for text, want := range map[string]string{
		"head\nstream,*,*,1":      "line 2: need five cells, found 4",
		"head\nstream,*,*,-1,x":   `line 2: invalid value "-1": need a positive number`,
		"head\nstream,*,*,fast,x": `line 2: invalid value "fast": need a positive number`,
		"head\nstream,*,*,1,x":    `the row of kernel "reduction" is missing`,
	} {
		_, err := ReadKernels(text)
		require.EqualError(t, err, want)
	}
}

// Small steps wait for the host, large ones do not.
func TestTheHostHoldsUpSmallSteps(t *testing.T) {
	l := Load{Launches: 1000, Modules: 500}
	e := DefaultEfficiency()
	require.True(t, e.HostBound(l))
	require.InDelta(t, 500*(e.Dispatch.Value+e.Module.Value), e.Time(l).Seconds, 1e-9)
	l.Seconds[program.Matmul], l.Expected[program.Matmul] = 1, 1
	require.False(t, e.HostBound(l))
}

// A convolution on tensor cores is faster with channels last, one of groups too; depthwise ones are as memory allows.
func TestChannelsLastSparesTransposes(t *testing.T) {
	gpu, err := device.Lookup("rtx-3090")
	require.NoError(t, err)
	seconds := func(x program.Product, p program.Precision, last bool) float64 {
		r := one(program.Convolution, p, x, 1<<28)
		r.Ops[0].ChannelsLast = last
		return KernelLoad(r, gpu, 0).Expected[program.Convolution]
	}
	plain := program.Product{M: 256, N: 100352, K: 2304, Batch: 1}
	groups := program.Product{M: 8, N: 100352, K: 72, Batch: 32}
	depthwise := program.Product{M: 1, N: 100352, K: 9, Batch: 256}
	for _, x := range []program.Product{plain, groups} {
		require.Less(t, seconds(x, program.FP16, true), seconds(x, program.FP16, false))
	}
	require.Equal(t, seconds(plain, program.FP32, true), seconds(plain, program.FP32, false), "no tensor cores")
	large := depthwise
	large.K = 81
	require.Greater(t, seconds(large, program.FP16, false), 1.5*seconds(depthwise, program.FP16, false))
	require.InEpsilon(t, seconds(large, program.FP16, true), seconds(depthwise, program.FP16, true), 0.01)
}

// With channels last, tensor cores are slower where the channels of a pixel do not fill pieces of 16 bytes.
func TestPixelsThatAreNotAlignedCostMore(t *testing.T) {
	gpu, err := device.Lookup("rtx-3090")
	require.NoError(t, err)
	seconds := func(x program.Product, lanes int64, p program.Precision, last bool) float64 {
		x.Window.Groups = lanes
		r := one(program.Convolution, p, x, 1<<26)
		r.Ops[0].ChannelsLast = last
		return KernelLoad(r, gpu, 0).Expected[program.Convolution]
	}
	dense, depthwise := program.Product{M: 60, N: 5000, K: 540, Batch: 1}, program.Product{
		M: 1, N: 5000, K: 9,
		Batch: 60,
	}
	for _, c := range []struct {
		p     program.Precision
		whole int64 // lanes that fill the pieces
		last  bool
	}{
		{program.FP16, 8, true},
		{program.BF16, 8, true},
		{program.TF32, 4, true},
		{program.FP32, 1, true},
		{program.FP64, 1, true},
		{program.FP16, 1, false},
	} {
		for _, x := range []program.Product{dense, depthwise} {
			for lanes := int64(1); lanes <= 16; lanes *= 2 {
				slow := seconds(x, lanes, c.p, c.last) > 1.5*seconds(x, 16, c.p, c.last)
				require.Equal(t, lanes < c.whole, slow, "%v, %d lanes, %v", c.p, lanes, x)
			}
		}
	}
}

// The rows of a norm take turns on the multiprocessors, however short they are; long ones take what memory does.
func TestShortRowsTakeTheirTurn(t *testing.T) {
	gpu, err := device.Lookup("rtx-3090")
	require.NoError(t, err)
	seconds := func(rows, row int64) float64 {
		x := program.Product{M: rows, N: row, Batch: 1}
		return KernelLoad(one(program.Normalization, program.FP32, x, 8*rows*row), gpu,
			0).Expected[program.Normalization]
	}
	require.Equal(t, seconds(1<<20, 24), seconds(1<<20, 48))
	require.InEpsilon(t, 2*seconds(1<<20, 24), seconds(1<<21, 24), 1e-9)
	require.InEpsilon(t, 2*seconds(1<<10, 1<<13), seconds(1<<10, 1<<14), 1e-9)
}
