package cuda

import (
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
		board := trace.Board{Name: gpu.Name, Capability: int(gpu.Capability), SMs: gpu.SMs, ThreadsPerSM: gpu.ThreadsPerSM, Memory: gpu.Memory}
		for _, c := range []models.Case{
			{Model: "redimnet-b2", Batch: 4},
			{Model: "resnet50", Batch: 4, AMP: "fp16"},
			{Model: "llama-tiny", Batch: 2, AMP: "fp16"},
			{Model: "vit-b16-224", Batch: 4, AMP: "fp16"},
			{Model: "vit-b16-224", Batch: 4},
		} {
			rec, err := registry.Models().Record(c, board, models.Options{})
			require.NoError(t, err)
			recorded, launched := map[program.Work]int64{}, map[program.Work]int64{}
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
					Work: op.Work, Precision: op.Precision, FLOPs: op.FLOPs, M: x.M, N: x.N, K: x.K, Batch: x.Batch, Window: x.Window,
					Reads: ranges(op.Reads), Writes: ranges(op.Writes),
				})
				launches = w.Append(launches[:0], int(gpu.Capability))
				recorded[op.Work] += op.FLOPs
				for _, l := range launches {
					launched[op.Work] += l.FLOPs
				}
			}
			for _, kind := range []program.Work{program.Matmul, program.Convolution, program.Attention} {
				if recorded[kind] > 0 {
					t.Logf("%s on %s: %v %.3f", c.Model, name, kind, float64(launched[kind])/float64(recorded[kind]))
					require.InEpsilon(t, recorded[kind], launched[kind], 0.05, "%s on %s: %v", c.Model, name, kind)
				}
			}
		}
	}
}
