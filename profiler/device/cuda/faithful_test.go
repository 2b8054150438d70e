package cuda

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/models"
	registry "github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// The launches for whole training steps have the arithmetic that the program says,
// of each kind of work that arithmetic bounds, on every module of kernels.
func TestLaunchesHaveTheArithmeticOfTheProgram(t *testing.T) {
	for _, name := range []string{"t4", "a100-40"} {
		gpu, err := device.Lookup(name)
		require.NoError(t, err)
		for _, c := range []models.Case{
			{Model: "redimnet-b2", Batch: 4},
			{Model: "resnet50", Batch: 4, AMP: "fp16"},
			{Model: "llama-tiny", Batch: 2, AMP: "fp16"},
			{Model: "vit-b16-224", Batch: 4, AMP: "fp16"},
			{Model: "vit-b16-224", Batch: 4},
		} {
			recorded, launched := map[program.Work]int64{}, map[program.Work]int64{}
			eachOp(t, c, gpu, func(op *program.Op, launches []kernels.Launch) {
				recorded[op.Work] += op.FLOPs
				for _, l := range launches {
					launched[op.Work] += l.FLOPs
				}
			})
			for _, kind := range []program.Work{program.Matmul, program.Convolution, program.Attention} {
				if recorded[kind] > 0 {
					t.Logf("%s on %s: %v %.3f", c.Model, name, kind, float64(launched[kind])/float64(recorded[kind]))
					require.InEpsilon(t, recorded[kind], launched[kind], 0.05, "%s on %s: %v", c.Model, name, kind)
				}
			}
		}
	}
}

// eachOp calls do with the ops of a case's recording and the launches for each.
func eachOp(t *testing.T, c models.Case, gpu device.GPU, do func(*program.Op, []kernels.Launch)) {
	recorderGPU := trace.GPU{
		Name: gpu.Name, Capability: int(gpu.Capability), SMs: gpu.SMs, ThreadsPerSM: gpu.ThreadsPerSM,
		Memory: gpu.Memory,
	}
	rec, err := registry.Models().Record(c, recorderGPU, models.Options{})
	require.NoError(t, err)
	var w kernels.Work
	var launches []kernels.Launch
	for i := range rec.Program.Ops {
		op := &rec.Program.Ops[i]
		x := rec.Program.ProductOf(op)
		ranges := func(s program.Span) (r []device.Range) {
			for _, o := range rec.Program.Operands[s.From:s.To] {
				r = append(r, device.Range{Addr: 1<<40 + uint64(o.Buffer)<<20, Bytes: o.Bytes})
			}
			return r
		}
		w = workOf(w, device.Kernel{
			Work: op.Work, Precision: op.Precision, FLOPs: op.FLOPs, M: x.M, N: x.N, K: x.K, Batch: x.Batch,
			Window: x.Window,
			Reads:  ranges(op.Reads), Writes: ranges(op.Writes),
		})
		launches = w.Append(launches[:0], int(gpu.Capability))
		do(op, launches)
	}
}

// Every kernel is there for a model: each is launched in a training step of one, but for
// those by which the device itself fills and checks memory.
func TestEveryKernelIsLaunchedByAModel(t *testing.T) {
	launched := map[string]bool{"fill": true, "verify": true}
	for _, c := range []models.Case{
		{Model: "redimnet-b2", Batch: 4},
		{Model: "resnet50", Batch: 4},
		{Model: "resnet50", Batch: 4, AMP: "fp16"},
		{Model: "resnet50", Batch: 4, AMP: "bf16"},
		{Model: "gpt2", Batch: 2},
		{Model: "gpt2", Batch: 2, Weights: "fp16"},
		{Model: "gpt2", Batch: 2, Weights: "bf16"},
		{Model: "bert-base", Batch: 2, AMP: "fp16"},
		{Model: "naics-embedder", Batch: 2, AMP: "bf16"},
		{Model: "spectrogram-gan", Batch: 2},
		{Model: "bdslw-spoter", Batch: 2},
		{Model: "patch-vqvae", Batch: 2},
		{Model: "unet", Batch: 2},
		// Heads of 256, wider than the heads of kernels that work in tiles.
		{Model: "hf:../../../models/hfconfig/testdata/configs/gemma/config.json", Batch: 1},
	} {
		for _, name := range []string{"t4", "a100-40"} {
			gpu, err := device.Lookup(name)
			require.NoError(t, err)
			eachOp(t, c, gpu, func(_ *program.Op, launches []kernels.Launch) {
				for _, l := range launches {
					launched[l.Name] = true
				}
			})
		}
	}
	var idle []string
	for _, entry := range regexp.MustCompile(`\.entry (\w+)`).FindAllStringSubmatch(kernels.PTX(80), -1) {
		if !launched[entry[1]] {
			idle = append(idle, entry[1])
		}
	}
	require.Empty(t, idle)
}
