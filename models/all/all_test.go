package all

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/sample"
)

var testGPU = trace.GPU{Name: "rtx-5060-ti", Capability: 120, SMs: 36, ThreadsPerSM: 1536, Memory: 16_615_079_936}

// liveAtStepEnds returns what is requested and not freed when each step ends.
func liveAtStepEnds(p *program.Program) []int64 {
	var ends []int64
	for i, now := range p.Live() {
		if i.Kind == program.MarkPhase && p.Phases[i.Arg].Name == "step_end" {
			ends = append(ends, now)
		}
	}
	return ends
}

// TestStepsLeaveNothingBehind: once the optimizer's state is there, a step frees all that it allocates, in every
// precision, with and without checkpointing, with and without accumulation, and with adapters.
func TestStepsLeaveNothingBehind(t *testing.T) {
	for _, m := range sample.Of(Models().All()) {
		for _, amp := range models.AutocastPrecisions() {
			cases := []models.Case{{}, {Checkpointing: true}, {Accumulate: 2}}
			if m.SupportsLoRA {
				cases = append(cases, models.Case{LoRA: &models.LoRA{Rank: 8, Dropout: 0.1}, Checkpointing: true})
			}
			for _, c := range cases {
				c.Batch, c.AMP = 2, amp
				r, err := m.Record(c, testGPU, models.Options{Steps: 3})
				require.NoError(t, err, "%s %+v", m.Name, c)
				require.NoError(t, r.Program.Validate(), "%s %+v", m.Name, c)
				ends := liveAtStepEnds(r.Program)
				require.Len(t, ends, 3)
				require.Equal(t, ends[1], ends[2], "%s %+v: the third step left %d bytes behind", m.Name, c,
					ends[2]-ends[1])
			}
		}
	}
}

// withoutBatches follows what is requested and not freed, the batches that
// loops hold left out: by step, the most and what is left at the end.
func withoutBatches(p *program.Program) (most, left map[int]int64) {
	most, left = map[int]int64{}, map[int]int64{}
	var now, high int64
	for _, i := range p.Instructions {
		if i.Kind == program.MarkPhase {
			step := p.Phases[i.Arg].Step
			most[step], left[step] = max(most[step], high), now
			high = now
			continue
		}
		sign := map[program.Kind]int64{program.Alloc: 1, program.Free: -1}[i.Kind]
		if sign != 0 && p.Buffers[i.Arg].Class != program.Batch {
			now += sign * p.Buffers[i.Arg].Bytes
			high = max(high, now)
		}
	}
	return most, left
}

// TestValidationKeepsNothing: a batch without gradients needs less than one with
// them, leaves nothing behind, and comes after steps that are what they were.
func TestValidationKeepsNothing(t *testing.T) {
	validate := 0
	registered := sample.Of(Models().All())
	for _, m := range registered {
		for _, c := range []models.Case{{}, {Checkpointing: true, AMP: "fp16"}} {
			c.Batch, c.Stage = 2, "full"
			alone, err := m.Record(c, testGPU, models.Options{})
			require.NoError(t, err)
			r, err := m.Record(c, testGPU, models.Options{Validation: 2})
			require.NoError(t, err, "%s %+v", m.Name, c)
			require.NoError(t, r.Program.Validate(), "%s %+v", m.Name, c)
			steps := len(alone.Program.Instructions)
			require.Equal(t, alone.Program.Instructions, r.Program.Instructions[:steps])
			if r.Validation == 0 {
				require.Len(t, r.Program.Instructions, steps)
				continue
			}
			validate++
			most, left := withoutBatches(r.Program)
			require.Equal(t, 2, r.Validation)
			require.Equal(t, left[1], left[2], "%s %+v: validation leaves bytes behind", m.Name, c)
			require.Less(t, most[2], most[1], "%s %+v", m.Name, c)
		}
	}
	require.GreaterOrEqual(t, validate, len(registered))
}

// A setting that says it does not change memory records the same program whatever its value, and its caveat says so.
func TestInertSettingsChangeNothing(t *testing.T) {
	inert := 0
	for _, m := range Models().All() {
		for _, s := range m.Settings {
			if s.Inert == "" {
				continue
			}
			inert++
			own, err := m.Record(models.Case{Batch: 2}, testGPU, models.Options{})
			require.NoError(t, err)
			for _, v := range []int64{s.Min, s.Max} {
				c := models.Case{Batch: 2, Settings: models.Settings{s.Name: v}}
				r, err := m.Record(c, testGPU, models.Options{})
				require.NoError(t, err)
				require.Equal(t, own.Program, r.Program, "%s %s=%d", m.Name, s.Name, v)
				require.Contains(t, m.Caveats(r.Case), s.Name+" does not change memory: "+s.Inert)
			}
			require.NotContains(t, m.Caveats(own.Case), s.Name+" does not change memory: "+s.Inert)
		}
	}
	require.Positive(t, inert)
}

func TestEveryStageSaysWhatItTrains(t *testing.T) {
	for _, m := range Models().All() {
		for _, stage := range m.Stages {
			require.NotEmpty(t, m.StageDescription(stage), "%s stage %s", m.Name, stage)
		}
		for stage := range m.TrainedByStage {
			require.Contains(t, m.Stages, stage, m.Name)
		}
	}
}

// TestRecordingDoesNotDependOnThoseBefore: recordings hand their memory on, and
// nothing else. Programs that were returned stay as they are.
func TestRecordingDoesNotDependOnThoseBefore(t *testing.T) {
	record := func(model string) *program.Program {
		r, err := Models().Record(models.Case{Model: model, Batch: 2}, testGPU, models.Options{})
		require.NoError(t, err)
		return r.Program
	}
	cases := []string{"resnet18", "llama-tiny", "spectrogram-gan", "naics-embedder"}
	first := map[string]*program.Program{}
	for range 2 {
		for _, model := range cases {
			p := record(model)
			require.NoError(t, p.Validate())
			if first[model] == nil {
				first[model] = p
			}
			require.Equal(t, first[model], p, model)
		}
		slices.Reverse(cases)
	}
}

// What says that autocast changed nothing of it is the same without autocast; decoders in bf16 say so.
func TestWhatAutocastLeavesAloneIsTheSameWithoutIt(t *testing.T) {
	said := map[string]bool{}
	for _, m := range sample.Of(Models().All()) {
		for _, c := range []models.Case{{}, {Weights: "bf16"}, {Weights: "bf16", Checkpointing: true}} {
			c.Batch = 2
			record := func(amp models.Autocast) *models.Recording {
				c.AMP = amp
				r, err := m.Record(c, testGPU, models.Options{Validation: 2})
				if err != nil {
					return nil
				}
				return r
			}
			cast, plain := record("bf16"), record(models.NoAutocast)
			if cast == nil || !cast.Facts.Uncast {
				continue
			}
			said[m.Name] = true
			require.Equal(t, plain.Program, cast.Program, "%s %+v", m.Name, c)
		}
	}
	require.True(t, said["llama-tiny"], said)
}
