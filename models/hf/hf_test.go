package hf_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

func record(t require.TestingT, run func(f *trace.Frame)) *program.Program {
	gpu := trace.GPU{Name: "h200", Capability: 90, SMs: 132, ThreadsPerSM: 2048, Memory: 141 << 30}
	tape := trace.New(gpu, stack.Default().Rules(), trace.Options{Warm: true})
	require.NoError(t, tape.Try(func() {
		f := tape.Frame()
		run(f)
		f.End()
	}))
	return tape.Program()
}

// Fused and eager attention, with and without sinks, give heads of the same shape back, for heads of
// key and value that are shared or not, and leave nothing behind. Eager attention gives its weights.
func TestKindsOfAttentionAgreeOnShapes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string, most int64) int64 { return rapid.Int64Range(1, most).Draw(rt, name) }
		batch, length, shared, groups, size := draw("batch", 3), draw("length", 40), draw("key heads", 4),
			draw("groups", 3), 8*draw("size", 16)
		heads := shared * groups
		p := record(rt, func(f *trace.Frame) {
			tensor := func(shape ...int64) *trace.Tensor {
				return f.Bind(f.Tape().New("input", program.Batch, trace.BF16, shape...))
			}
			q, k, v := tensor(batch, heads, length, size), tensor(batch, shared, length, size),
				tensor(batch, shared, length, size)
			mask, sinks := tensor(batch, 1, length, length), tensor(heads)
			o := hf.AttentionOptions{Causal: true, Groups: groups}
			want := []int64{batch, length, heads, size}
			require.Equal(rt, want, f.Bind(hf.Attention(f, q, k, v, nil, o)).Shape())
			require.Equal(rt, want, f.Bind(hf.Attention(f, q, k, v, mask, o)).Shape())
			for _, y := range [][]*trace.Tensor{
				pair(hf.EagerAttention(f, q, k, v, mask, o, true)),
				pair(hf.SinkAttention(f, q, k, v, mask, sinks, o)),
			} {
				f.BindAll(y)
				require.Equal(rt, want, y[0].Shape())
				require.Equal(rt, []int64{batch, heads, length, length}, y[1].Shape())
			}
		})
		require.Zero(rt, p.LeftBytes())
	})
}

func pair(x, y *trace.Tensor) []*trace.Tensor { return []*trace.Tensor{x, y} }

// Merging heads undoes splitting them.
func TestHeadsAreMergedAsTheyWereSplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		batch, length := rapid.Int64Range(1, 4).Draw(rt, "batch"), rapid.Int64Range(1, 64).Draw(rt, "length")
		heads, size := rapid.Int64Range(1, 16).Draw(rt, "heads"), rapid.Int64Range(1, 64).Draw(rt, "size")
		record(rt, func(f *trace.Frame) {
			x := f.Bind(f.Tape().New("input", program.Batch, trace.F32, batch, length, heads*size))
			y := f.Bind(hf.SplitHeads(x, size))
			require.Equal(rt, []int64{batch, heads, length, size}, y.Shape())
			require.Equal(rt, x.Shape(), f.Bind(hf.MergeHeads(y.Transpose(1, 2))).Shape())
		})
	})
}

// A causal mask has a place for every query and key. There is none where the kernels know which keys
// are seen: in rows that are neither padded nor packed. A window makes one where rows are longer.
func TestMasksAreThereWhenTheyAreNeeded(t *testing.T) {
	const batch, length = 2, 24
	for name, tc := range map[string]struct {
		padded bool
		packed hf.Packing
		window int64 // zero for a causal mask
		there  bool
	}{
		"plain":                {},
		"padded":               {padded: true, there: true},
		"packed":               {packed: hf.SeveralSequences, there: true},
		"packed, with a cache": {packed: hf.UncheckedPacking},
		"wide window":          {window: length + 1},
		"narrow window":        {window: length / 2, there: true},
		"window as long":       {window: length, there: true},
		"wide but padded":      {window: length + 1, padded: true, there: true},
		"narrow and packd":     {window: length / 2, packed: hf.SeveralSequences, there: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := record(t, func(f *trace.Frame) {
				positions := f.Bind(f.Tape().Arange(length).Unsqueeze(0))
				var padding *trace.Tensor
				if tc.padded {
					padding = f.Bind(f.Tape().New("ones", program.Batch, trace.I64, batch, length))
				}
				mask := hf.CausalMask
				if tc.window > 0 {
					mask = func(f *trace.Frame, n int64, positions, padding *trace.Tensor,
						packed hf.Packing,
					) *trace.Tensor {
						return hf.WindowMask(f, n, positions, padding, packed, tc.window)
					}
				}
				m := mask(f, batch, positions, padding, tc.packed)
				require.Equal(t, tc.there, m != nil)
				if m != nil {
					require.Equal(t, []int64{batch, 1, length, length}, f.Bind(m).Shape())
				}
			})
			require.Zero(t, p.LeftBytes())
		})
	}
}

// Each implementation of attention is chosen by a setting of its own.
func TestImplementationsAreChosenByTheirOwnSettings(t *testing.T) {
	all := []hf.Implementation{hf.Flash, hf.Eager, hf.Flex}
	for _, one := range all {
		s := one.Setting()
		require.NotEmpty(t, s.Usage)
		for _, other := range all {
			require.Equal(t, one == other, other.IsChosen(models.Case{Settings: models.Settings{s.Name: 1}}),
				"%s by the setting of %s", other, one)
			require.False(t, other.IsChosen(models.Case{Settings: models.Settings{s.Name: 0}}))
		}
	}
}

// One way of computing the loss is taken at a time, and by releases that have it.
func TestLossesThatDoNotGoTogether(t *testing.T) {
	liger := models.MemoryOptions{Liger: true}
	for name, tc := range map[string]struct {
		levers   models.MemoryOptions
		torch    string
		settings models.Settings
		refused  string
	}{
		"nothing":                {},
		"chunks":                 {settings: models.Settings{"chunked-loss": 8}},
		"fused":                  {settings: models.Settings{"fused-loss": 1}},
		"liger without its loss": {levers: liger, settings: models.Settings{"plain-loss": 1}},
		"plain without liger":    {settings: models.Settings{"plain-loss": 1}, refused: "plain-loss"},
		"plain and fused": {
			levers: liger, settings: models.Settings{"plain-loss": 1, "fused-loss": 1},
			refused: "plain-loss",
		},
		"chunks of liger": {
			levers: liger, settings: models.Settings{"chunked-loss": 8},
			refused: "chunked-loss",
		},
		"chunks beside plain loss": {levers: liger, settings: models.Settings{"chunked-loss": 8, "plain-loss": 1}},
		"linear":                   {torch: "2.13", settings: models.Settings{"linear-cross-entropy": 1}},
		"linear before 2.13": {
			torch: "2.11", settings: models.Settings{"linear-cross-entropy": 1},
			refused: "linear-cross-entropy",
		},
		"linear and chunks": {
			torch: "2.13", settings: models.Settings{"linear-cross-entropy": 1, "chunked-loss": 8},
			refused: "linear-cross-entropy",
		},
	} {
		field, reason := hf.CheckLoss(models.Case{MemoryOptions: tc.levers, Torch: tc.torch, Settings: tc.settings})
		require.Equal(t, tc.refused, field, name)
		require.Equal(t, tc.refused == "", reason == "", name)
	}
}
