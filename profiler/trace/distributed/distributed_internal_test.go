package distributed

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

func newTape() *trace.Tape {
	return trace.New(trace.GPU{Name: "a100-80", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 80 << 30},
		stack.Default().Rules(), trace.Options{})
}

// The shares of a rank of eight, in bytes, of a block of width 768, and the tables that
// PyTorch brought to an A100 for it.
func TestTablesOfTheCopiesAreAsLargeAsPyTorchs(t *testing.T) {
	block := []int64{384, 384, 884736, 1152, 294912, 384, 384, 384, 1179648, 1536, 1179648, 384}
	root := []int64{6144000, 196608, 384, 384, 6144000}
	const blocks = 108 * 2048 / 128 * 2
	require.Equal(t, int64(7368/8), splitTable(block, 8, blocks))
	require.Equal(t, int64(12376/8), splitTable(root, 8, blocks))
	require.Equal(t, int64(14480/8), chunkTable(block))
}

func params(t *trace.Tape, shapes ...[]int64) []Param {
	out := make([]Param, len(shapes))
	for i, s := range shapes {
		x := t.Hold(t.New("to", program.Weights, trace.F32, s...)).Leaf()
		out[i] = Param{Name: string(rune('a' + i)), Tensor: &x}
	}
	return out
}

// A parameter that is tied to another is gathered by itself, and the optimizer steps their one shard once.
func TestTiedParametersHaveOneShard(t *testing.T) {
	for _, from := range []ParameterSource{FromMeta, FromDevice, FromHost} {
		tape := newTape()
		p := params(tape, []int64{8, 3}, []int64{8, 3})
		p[1].Order, p[1].TiedTo = 1, "a"
		f, err := FullyShard(tape, World{Size: 2}, Options{From: from}, []ModuleGroup{
			{Module: "words", Params: p[:1]}, {Params: p[1:]},
		})
		require.NoError(t, err)
		words, root := f.groups[1].params[0], f.root.params[0]
		require.Same(t, words.local, root.local)
		require.NotSame(t, words.whole, root.whole)
		require.Len(t, f.Parameters([]string{"a", "b"}), 1)
	}
}

func TestShardsCoverEveryRowOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rows := rapid.Int64Range(1, 100).Draw(rt, "rows")
		ranks := rapid.Int64Range(1, min(rows, 20)).Draw(rt, "ranks")
		sum := int64(0)
		for r := range ranks {
			tape := newTape()
			p := params(tape, []int64{rows, 3})
			f, err := FullyShard(tape, World{Size: ranks, Rank: r}, Options{}, []ModuleGroup{{Params: p}})
			require.NoError(rt, err)
			local := f.Parameters([]string{"a"})[0]
			sum += local.Size(0)
			shard := f.root.params[0]
			require.LessOrEqual(rt, local.Size(0), shard.rows)
			require.GreaterOrEqual(rt, shard.padded(f.world), rows*3)
			tape.Finish()
		}
		require.Equal(rt, rows, sum)
	})
}

func TestPartitionsHaveEveryParameterOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tape := newTape()
		var xs []*trace.Tensor
		for _, n := range rapid.SliceOfN(rapid.Int64Range(1, 1000), 1, 20).Draw(rt, "sizes") {
			xs = append(xs, *params(tape, []int64{n})[0].Tensor)
		}
		parts := Partition(xs, rapid.Int64Range(1, 9).Draw(rt, "ranks"))
		seen := map[*trace.Tensor]bool{}
		most, least := int64(0), int64(1<<40)
		for _, part := range parts {
			n := int64(0)
			for _, x := range part {
				require.False(rt, seen[x])
				seen[x] = true
				n += x.Numel()
			}
			most, least = max(most, n), min(least, n)
		}
		require.Len(rt, seen, len(xs))
		n := int64(0)
		for _, x := range parts[LargestPart(parts)] {
			n += x.Numel()
		}
		require.Equal(rt, most, n)
		require.LessOrEqual(rt, most-least, int64(1000)) // no rank is ahead by more than one
		tape.Finish()
	})
}

func TestBucketsAreFilledToTheirLimits(t *testing.T) {
	tape := newTape()
	var xs []*trace.Tensor
	for _, p := range params(tape, []int64{1 << 18}, []int64{10}, []int64{1 << 20}, []int64{1 << 20}, []int64{10}) {
		xs = append(xs, *p.Tensor)
	}
	require.Equal(t, [][]int{{0}, {1, 2, 3}, {4}}, fillBuckets(xs, []int{0, 1, 2, 3, 4}, []int64{1 << 20, 8 << 20}))
	require.Equal(t, [][]int{{4, 3}, {2}, {1, 0}}, fillBuckets(xs, []int{4, 3, 2, 1, 0}, []int64{1 << 20, 4 << 20}))
	tape.Finish()
}

func TestWhatRanksCannotShareIsRefused(t *testing.T) {
	tape := newTape()
	p := params(tape, []int64{8, 8}, nil)
	_, err := FullyShard(tape, World{Size: 8, Rank: 8}, Options{}, []ModuleGroup{{Params: p[:1]}})
	require.ErrorContains(t, err, "there is no rank 8 among 8 ranks; ranks begin with 0")
	_, err = FullyShard(tape, World{Size: 8}, Options{Replicate: 3}, []ModuleGroup{{Params: p[:1]}})
	require.ErrorContains(t, err, "8 ranks cannot be divided into 3 replicas")
	_, err = FullyShard(tape, World{Size: 9}, Options{}, []ModuleGroup{{Params: p[:1]}})
	require.ErrorContains(t, err, "9 ranks shard parameters by rows, and the longest parameter has only 8 rows, so some ranks would get none; use fewer GPUs, or replicate=")
	_, err = FullyShard(tape, World{Size: 1}, Options{}, []ModuleGroup{{Params: p[1:]}})
	require.ErrorContains(t, err, "invalid for 0D tensor")
	_, err = DistributedDataParallel(tape, World{}, DDPOptions{}, p, nil)
	require.ErrorContains(t, err, "0 ranks: need 1 or more")
	f, err := FullyShard(tape, World{Size: 2}, Options{}, []ModuleGroup{{Module: "head", Params: p[:1]}})
	require.NoError(t, err)
	require.ErrorContains(t, f.Check(), `forward is never called, so fully_shard never gathers them; wrap another module`)
}

// Of tokens that two ranks share, each half of a block sees all: they are gathered before it, and sums return
// by tokens; backward does the reverse.
func TestRanksShareTokensOutsideOfHalves(t *testing.T) {
	tape := newTape()
	p := params(tape, []int64{8, 6}, []int64{6, 8}, []int64{10, 6})
	layers := []SharedLayer{
		{Path: "up", Sharing: trace.Sharing{Split: trace.ByColumn, Tokens: true}, Weight: p[0].Tensor},
		{Path: "down", Sharing: trace.Sharing{Split: trace.ByRow, Tokens: true}, Weight: p[1].Tensor},
		{Path: "words", Sharing: trace.Sharing{Split: trace.ByWord, Tokens: true}, Weight: p[2].Tensor},
	}
	require.NoError(t, ParallelizeModule(tape, World{Size: 2}, layers, true))
	ParametersToDevice(tape, p, false)
	f := tape.Frame()
	ids := f.Bind(tape.New("zeros", program.Batch, trace.I64, 3, 4))
	x := f.Bind(ids.Embedding(*p[2].Tensor))
	require.Equal(t, []int64{3, 2, 6}, x.Shape())
	y := f.Bind(x.Linear(*p[0].Tensor, nil))
	require.Equal(t, []int64{3, 4, 4}, y.Shape())
	z := f.Bind(y.Linear(*p[1].Tensor, nil))
	require.Equal(t, []int64{3, 2, 6}, z.Shape())
	f.Bind(z.Sum(false)).Backward()
	require.Equal(t, []int64{4, 6}, (*p[0].Tensor).Grad().Shape())
	f.End()
	var works []program.Work
	for _, op := range tape.Finish().Ops {
		if op.GroupSize == 2 {
			works = append(works, op.Work)
		}
	}
	sum, all := program.ReduceScatter, program.AllGather
	require.Equal(t, []program.Work{sum, all, sum, all, sum, all}, works)
}

func TestRanksShareLinearLayers(t *testing.T) {
	tape := newTape()
	p := params(tape, []int64{8, 6}, []int64{8}, []int64{6, 8}, []int64{6})
	layers := []SharedLayer{
		{Path: "up", Sharing: trace.Sharing{Split: trace.ByColumn}, Weight: p[0].Tensor, Bias: p[1].Tensor},
		{Path: "down", Sharing: trace.Sharing{Split: trace.ByRow}, Weight: p[2].Tensor, Bias: p[3].Tensor},
	}
	require.NoError(t, ParallelizeModule(tape, World{Size: 2, Rank: 1}, layers, false))
	for i, want := range [][]int64{{4, 6}, {4}, {6, 4}, {6}} {
		require.Equal(t, want, (*p[i].Tensor).Shape())
		require.True(t, (*p[i].Tensor).RequiresGrad())
	}

	// The sums over ranks: the output of the second in forward, the gradient of the input of the first in backward.
	f := tape.Frame()
	x := f.Bind(tape.New("zeros", program.Batch, trace.F32, 5, 6).Leaf())
	y := f.Bind(f.Bind(x.Linear(*p[0].Tensor, *p[1].Tensor)).ReLU().Linear(*p[2].Tensor, *p[3].Tensor))
	require.Equal(t, []int64{5, 6}, y.Shape())
	f.Bind(y.Sum(false)).Backward()
	require.Equal(t, []int64{8 / 2, 6}, (*p[0].Tensor).Grad().Shape())
	f.End()
	var sums []uint32
	for _, op := range tape.Finish().Ops {
		if op.Work == program.AllReduce {
			sums = append(sums, op.GroupSize)
		}
	}
	require.Equal(t, []uint32{2, 2}, sums)

	tape = newTape()
	p = params(tape, []int64{9, 6})
	err := ParallelizeModule(tape, World{Size: 2},
		[]SharedLayer{{Path: "up", Sharing: trace.Sharing{Split: trace.ByColumn}, Weight: p[0].Tensor}}, false)
	require.ErrorContains(t, err, "2 ranks cannot share the 9 outputs of the linear layer up evenly; use another number of ranks (tp=)")
}

// Whatever the numbers, each micro-batch goes forward and back once on each stage of an
// interleaved pipeline, and back after forward.
func TestInterleavedStagesSeeEveryMicroBatch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ranks, stages := rapid.IntRange(1, 6).Draw(rt, "ranks"), rapid.IntRange(2, 4).Draw(rt, "stages")
		micro := ranks * rapid.IntRange(1, 4).Draw(rt, "rounds")
		seen := map[PipelineAction]bool{}
		for _, a := range InterleavedSchedule(micro, ranks, rapid.IntRange(0, ranks-1).Draw(rt, "rank"), stages) {
			require.False(rt, seen[a])
			require.True(rt, !a.Backward || seen[PipelineAction{Stage: a.Stage, Micro: a.Micro}])
			seen[a] = true
		}
		require.Len(rt, seen, 2*micro*stages)
	})
}

// The order of four micro-batches on the stages of a pipeline of three.
func TestSchedulesAreThoseOfPyTorch(t *testing.T) {
	text := func(actions []PipelineAction) string {
		var b strings.Builder
		for _, a := range actions {
			fmt.Fprintf(&b, "%s%d ", map[bool]string{false: "F", true: "B"}[a.Backward], a.Micro)
		}
		return strings.TrimSpace(b.String())
	}
	require.Equal(t, "F0 F1 F2 B0 F3 B1 B2 B3", text(PipelineSchedule("1f1b", 4, 3, 0)))
	require.Equal(t, "F0 F1 B0 F2 B1 F3 B2 B3", text(PipelineSchedule("1f1b", 4, 3, 1)))
	require.Equal(t, "F0 B0 F1 B1 F2 B2 F3 B3", text(PipelineSchedule("", 4, 3, 2)))
	require.Equal(t, "F0 F1 F2 F3 B0 B1 B2 B3", text(PipelineSchedule("gpipe", 4, 3, 2)))

	// Of several stages the place comes first.
	staged := func(actions []PipelineAction) string {
		var b strings.Builder
		for _, a := range actions {
			fmt.Fprintf(&b, "%s%d.%d ", map[bool]string{false: "F", true: "B"}[a.Backward], a.Stage, a.Micro)
		}
		return strings.TrimSpace(b.String())
	}
	require.Equal(t,
		"F0.0 F0.1 F0.2 F0.3 F1.0 F1.1 F1.2 F1.3 F0.4 F0.5 F0.6 B1.0 F0.7 B1.1 F1.4 B1.2 F1.5 B1.3 F1.6 B0.0 F1.7 "+
			"B0.1 B0.2 B0.3 B1.4 B1.5 B1.6 B1.7 B0.4 B0.5 B0.6 B0.7", staged(InterleavedSchedule(8, 4, 0, 2)))
	require.Equal(t,
		"F0.0 F0.1 F0.2 F1.0 F1.1 F1.2 B1.0 F0.3 B1.1 F0.4 B1.2 F0.5 B0.0 F1.3 B0.1 F1.4 B0.2 F1.5 B1.3 B1.4 B1.5 "+
			"B0.3 B0.4 B0.5", staged(InterleavedSchedule(6, 3, 1, 2)))
	require.Equal(t,
		"F0.0 F0.1 F1.0 F1.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F1.2 B1.0 F1.3 B1.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B1.2 "+
			"B1.3 B0.2 B0.3", staged(InterleavedSchedule(4, 2, 0, 3)))
	require.Equal(t, "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1", staged(InterleavedSchedule(2, 4, 0, 2)))
}

// With CPUOffloadPolicy nothing of a shard is on the device between steps.
func TestOffloadedShardsAreOnTheHost(t *testing.T) {
	for _, offload := range []bool{false, true} {
		tape := newTape()
		_, err := FullyShard(tape, World{Size: 4}, Options{Offload: offload},
			[]ModuleGroup{{Params: params(tape, []int64{64, 32})}})
		require.NoError(t, err)
		want := int64(64 / 4 * 32 * 4)
		if offload {
			want = 0
		}
		require.Equal(t, want, held(tape.Finish())[program.Weights])
	}
}

// Of parameters of 64 and 32 rows on four ranks the shards stay, 24 rows. At a time there are on the way: of the model
// on the device all rows and the shards; of a group from the host the same; one by one the first shard and the second
// parameter, or the first one with its shard; from the meta device nothing else.
func TestShardsArriveAsTheirSourceHasThem(t *testing.T) {
	const row = 32 * 4
	for source, most := range map[ParameterSource]int64{
		FromDevice: 64 + 32 + 24, FromHost: 64 + 32 + 24, FromMeta: 24, FromRank0: 64 + 16,
	} {
		tape := newTape()
		var whole []Param
		made := func() { whole = params(tape, []int64{64, 32}, []int64{32, 32}) }
		if source == FromDevice {
			made()
		} else {
			tape.WithoutWeightMemory(made)
		}
		_, err := FullyShard(tape, World{Size: 4}, Options{From: source}, []ModuleGroup{{Params: whole}})
		require.NoError(t, err)
		p := tape.Finish()
		peak := int64(0)
		for _, now := range p.Live() {
			peak = max(peak, now)
		}
		require.Equal(t, most*row, peak, source)
		require.Equal(t, int64(24*row), p.LeftBytes(), source)
	}
}
