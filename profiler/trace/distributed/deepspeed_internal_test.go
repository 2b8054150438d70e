package distributed

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// halves returns parameters in bf16 with the given numbers of elements.
func halves(t *trace.Tape, sizes ...int64) []Param {
	out := make([]Param, len(sizes))
	for i, n := range sizes {
		x := t.Hold(t.New("to", program.Weights, trace.BF16, n)).Leaf()
		out[i] = Param{Name: string(rune('a'+i)) + ".weight", Tensor: &x}
	}
	return out
}

// held returns the bytes that live at the end of a recording, by class.
func held(p *program.Program) (b program.Breakdown) {
	for _, in := range p.Instructions {
		switch in.Kind {
		case program.Alloc:
			b[p.Buffers[in.Arg].Class] += p.Buffers[in.Arg].Bytes
		case program.Free:
			b[p.Buffers[in.Arg].Class] -= p.Buffers[in.Arg].Bytes
		}
	}
	return b
}

// Of p parameters in bf16, ZeRO-2 has 2p bytes and 4p/n of master weights on each of n
// ranks, ZeRO-3 2p/n and 4p/n, and gradients of 2p/n.
func TestRanksHoldWhatTheZeROPaperSays(t *testing.T) {
	for _, ranks := range []int64{1, 2, 8} {
		tape := newTape()
		z, err := PartitionZeRO2(tape, World{Size: ranks}, DeepSpeed{}, 2, halves(tape, 4096, 8192, 4096))
		require.NoError(t, err)
		require.Len(t, z.Masters(), 1)
		b := held(tape.Finish())
		require.Equal(t, 2*16384+4*16384/ranks, b[program.Weights])

		tape = newTape()
		ps := halves(tape, 4096, 8192, 4096)
		var groups []ModuleGroup
		for _, p := range ps {
			groups = append(groups, ModuleGroup{Module: p.Name[:1], Params: []Param{p}})
		}
		_, err = PartitionZeRO3(tape, World{Size: ranks}, DeepSpeed{Bucket: 1000}, ZeRO3Options{SubGroupSize: 1 << 40},
			groups)
		require.NoError(t, err)
		b = held(tape.Finish())
		require.Equal(t, (2*16384+4*16384)/ranks, b[program.Weights])
		require.Equal(t, 2*16384/ranks+2*1000, b[program.Gradients])
	}
}

func TestTheHostHoldsWhatIsOffloaded(t *testing.T) {
	tape := newTape()
	z, err := PartitionZeRO2(tape, World{Size: 4}, DeepSpeed{OffloadOptimizer: true}, 2, halves(tape, 4096, 8192))
	require.NoError(t, err)
	require.Empty(t, z.Masters())
	b := held(tape.Finish())
	require.EqualValues(t, 2*12288, b[program.Weights])
	require.EqualValues(t, 2*8192, b[program.Workspace], "gradients go by way of a buffer as large as the largest")
}

func TestEveryElementIsOfOneRank(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 5000), 1, 8).Draw(rt, "sizes")
		ranks := rapid.Int64Range(1, 9).Draw(rt, "ranks")
		tape := newTape()
		ps := halves(tape, sizes...)
		heaviest := HeaviestRank(ps, ranks)
		require.Less(rt, heaviest, ranks)
		tape.Finish()
		total, sum, most := int64(0), int64(0), make([]int64, ranks)
		for _, n := range sizes {
			total += n
		}
		for r := range ranks {
			tape := newTape()
			z, err := PartitionZeRO2(tape, World{Size: ranks, Rank: r}, DeepSpeed{}, 2, halves(tape, sizes...))
			require.NoError(rt, err)
			for i, s := range z.spans {
				sum += s.overlap(z.own)
				if z.ownsParam(i) {
					most[r] += s.end - s.begin
				}
			}
			tape.Finish()
		}
		require.Equal(rt, total, sum)
		for _, n := range most {
			require.LessOrEqual(rt, n, most[heaviest])
		}
	})
}

func TestNothingTrainedIsRefused(t *testing.T) {
	tape := newTape()
	x := tape.Hold(tape.New("to", program.Weights, trace.BF16, 8))
	_, err := PartitionZeRO2(tape, World{Size: 2}, DeepSpeed{}, 2, []Param{{Name: "a", Tensor: &x}})
	require.ErrorIs(t, err, errNothingTrained)
}

// Weights in fp32 have master weights beside them under stage 3, too, as others have.
func TestWeightsInFullPrecisionAreCopiedUnderStage3(t *testing.T) {
	tape := newTape()
	_, err := PartitionZeRO3(tape, World{Size: 4}, DeepSpeed{Bucket: 16}, ZeRO3Options{SubGroupSize: 1 << 40},
		[]ModuleGroup{{Params: params(tape, []int64{64, 32})}})
	require.NoError(t, err)
	require.EqualValues(t, 2*64*32*4/4, held(tape.Finish())[program.Weights])
}

// Without contiguous_gradients there is no bucket, and without overlap_comm no other stream.
func TestStage3WithoutBucketsOrStreams(t *testing.T) {
	record := func(fetch ZeRO3Options) *program.Program {
		tape := newTape()
		fetch.SubGroupSize, fetch.Reuse, fetch.Live, fetch.Prefetch = 1<<40, 1<<40, 1<<40, 1<<40
		ps := halves(tape, 4096, 8192)
		z, err := PartitionZeRO3(tape, World{Size: 4}, DeepSpeed{Bucket: 1 << 20}, fetch,
			[]ModuleGroup{{Module: "a", Params: ps}})
		require.NoError(t, err)
		z.enter(z.modules[0])
		return tape.Finish()
	}
	streams := func(p *program.Program) (n int) {
		for _, b := range p.Buffers {
			if b.Stream != 0 {
				n++
			}
		}
		return n
	}
	plain := record(ZeRO3Options{})
	require.Positive(t, streams(plain))
	require.Zero(t, streams(record(ZeRO3Options{Serial: true})))
	require.EqualValues(t, 2<<20,
		held(plain)[program.Gradients]-held(record(ZeRO3Options{Scattered: true}))[program.Gradients])
}

// A checkpoint that ends its second forward early enters a module again before leaving it. The module's weights are
// freed when it is left once; weights that another module uses stay.
func TestAModuleThatIsEnteredTwiceIsLeftOnce(t *testing.T) {
	tape := newTape()
	ps := halves(tape, 4096, 8192)
	z, err := PartitionZeRO3(tape, World{Size: 4}, DeepSpeed{Bucket: 1 << 20},
		ZeRO3Options{SubGroupSize: 1 << 40, Live: 1 << 40}, []ModuleGroup{
			{Module: "a", Params: ps},
			{Module: "b", Params: ps[:1]},
		})
	require.NoError(t, err)
	a := z.modules[0]
	z.enter(a)
	z.enter(a)
	a.params[0].users[z.modules[1]] = true
	z.leave(a)
	require.True(t, a.params[0].isGathered)
	require.False(t, a.params[1].isGathered)
	tape.Finish()
}

// Without room for two copies the weights go by way of the host.
func TestFlatWeightsGoByTheHostWhereTheGPUIsSmall(t *testing.T) {
	ops := func(memory int64) (out []string) {
		tape := trace.New(trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: memory}, trace.Rules{},
			trace.Options{})
		_, err := PartitionZeRO2(tape, World{Size: 4}, DeepSpeed{}, 2, halves(tape, 4096, 8192))
		require.NoError(t, err)
		p := tape.Finish()
		for _, b := range p.Buffers {
			out = append(out, p.Sites[b.Site].Op)
		}
		return out
	}
	require.Contains(t, ops(1<<30), "flatten_dense_tensors")
	require.Contains(t, ops(2*12288+1), "to_device")
}

// Of a gradient that is larger than the bucket each rank's slice is sent alone once it fills
// a bucket; smaller ones are put in a row.
func TestSlicesOfABucketAreThoseOfRanks(t *testing.T) {
	tape := newTape()
	z, err := PartitionZeRO2(tape, World{Size: 4}, DeepSpeed{Bucket: 2000}, 2, halves(tape, 1000, 6000, 1000))
	require.NoError(t, err)
	z.members = []int{1}
	require.Equal(t, []int64{1000, 2000, 2000, 1000}, z.sliceSizes())
	z.members = []int{2, 0}
	require.Equal(t, []int64{1000, 1000}, z.sliceSizes())
	tape.Finish()
}

// What trains in fp32 beside weights in bf16 is gathered apart, and its gradients are in bf16.
func TestAdaptersInFullPrecisionShareGradientsInTheTypeOfTheWeights(t *testing.T) {
	tape := newTape()
	frozen := tape.Hold(tape.New("to", program.Weights, trace.BF16, 4096))
	adapter := params(tape, []int64{64, 16})
	fetch := ZeRO3Options{SubGroupSize: 1 << 40, Reuse: 1 << 40, Live: 1 << 40, Prefetch: 1 << 40}
	z, err := PartitionZeRO3(tape, World{Size: 4}, DeepSpeed{Bucket: 1 << 10}, fetch,
		[]ModuleGroup{{Module: "a", Params: append([]Param{{Name: "a.weight", Tensor: &frozen}}, adapter...)}})
	require.NoError(t, err)
	z.enter(z.modules[0])
	gathered := map[int64]int{}
	for _, b := range tape.Finish().Buffers {
		if b.Stream == zeroGatherStream {
			gathered[b.Bytes]++
		}
	}
	require.Equal(t, map[int64]int{2 * 4096: 2, 4 * 1024: 2}, gathered, "a buffer and a copy of each type")
	require.Equal(t, trace.BF16, z.grads.DType())
	require.Equal(t, trace.BF16, z.bucket.DType())
}

// The only rank of stage 3 uses its parts themselves.
func TestOneRankGathersNothing(t *testing.T) {
	tape := newTape()
	ps := halves(tape, 4096, 8192)
	z, err := PartitionZeRO3(tape, World{Size: 1}, DeepSpeed{Bucket: 16}, ZeRO3Options{SubGroupSize: 1 << 40},
		[]ModuleGroup{{Module: "a", Params: ps}})
	require.NoError(t, err)
	z.enter(z.modules[0])
	z.leave(z.modules[0])
	for _, b := range tape.Finish().Buffers {
		require.Zero(t, b.Stream)
	}
}

// PyTorch's linear layers hold gathered weights until backward, by what they save of them; DeepSpeed's do not.
func TestTorchsLinearLayersHoldGatheredWeights(t *testing.T) {
	weights := map[bool]int64{}
	for _, torch := range []bool{false, true} {
		tape := newTape()
		w := tape.Hold(tape.New("to", program.Weights, trace.BF16, 512, 512)).Leaf()
		x := tape.Hold(tape.New("x", program.Batch, trace.BF16, 64, 512)).Leaf()
		z, err := PartitionZeRO3(tape, World{Size: 4}, DeepSpeed{Bucket: 16},
			ZeRO3Options{SubGroupSize: 1 << 40, TorchLinear: torch},
			[]ModuleGroup{{Module: "a", Params: []Param{{Name: "a.weight", Tensor: &w}}}})
		require.NoError(t, err)
		z.enter(z.modules[0])
		tape.Hold(x.Linear(w, nil))
		z.leave(z.modules[0])
		weights[torch] = held(tape.Finish())[program.Weights]
	}
	require.Equal(t, weights[false]+2*512*512, weights[true])
}
