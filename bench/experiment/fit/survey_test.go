package fit

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/steptest"
)

// everyWay returns a search over precision, checkpointing and stage of a model.
func everyWay(t testing.TB, model string, maxBatch int, gpus ...string) Search {
	m, err := all.Models().Lookup(model)
	require.NoError(t, err)
	s := Search{
		Model: m, Budget: planner.Budget{Margin: 0.85}, MaxBatch: maxBatch, Evidence: steptest.Exact(),
		GPUs: steptest.GPUs(t, gpus...),
	}
	for _, stage := range m.Stages {
		for _, amp := range models.AutocastPrecisions() {
			for _, checkpointing := range []bool{false, true} {
				s.Cases = append(s.Cases, models.Case{
					Stage: stage, AMP: amp, Checkpointing: checkpointing,
					Accumulate: 1,
				})
			}
		}
	}
	return s
}

// Each row of a search on several GPUs is what the GPU alone would have.
func TestRowsAreThoseOfEachGPUAlone(t *testing.T) {
	s := everyWay(t, "patch-vqvae", 64, "t4", "rtx-3060", "h100")
	s.Cases = s.Cases[:2]
	together, err := Run(t.Context(), s)
	require.NoError(t, err)
	require.Len(t, together.Choices, 3*len(s.Cases))
	var rows []report.Choice
	for _, gpu := range s.GPUs {
		alone := s
		alone.GPUs = []device.GPU{gpu}
		f, err := Run(t.Context(), alone)
		require.NoError(t, err)
		rows = append(rows, f.Choices...)
	}
	require.Equal(t, rows, together.Choices)
}

// Where the replay of what a survey recommends does not fit, the next of its stage is recommended.
func TestWhatDoesNotFitOnReplayMakesWay(t *testing.T) {
	row := func(amp models.Autocast, batch int, speed float64) report.Choice {
		c := report.Choice{Device: "sim:t4", Batch: batch, SamplesPerSecond: speed}
		c.Case.Stage, c.Case.AMP = "full", amp
		return c
	}
	f := &report.Fit{Devices: []report.Device{{Name: "sim:t4"}}}
	f.Choices = []report.Choice{row("fp16", 8, 20), row("bf16", 8, 10), row("", 4, 5)}
	rankChoices(f, []string{"full"})
	confirmed := map[string]report.Choice{choiceKey(f.Choices[0]): row("fp16", 0, 0)}
	require.False(t, applyConfirmed(f, []string{"full"}, confirmed))
	require.True(t, applyConfirmed(f, []string{"full"}, confirmed))
	require.EqualValues(t, "bf16", f.Choices[0].Case.AMP)
	require.True(t, f.Choices[0].Recommended)
	require.EqualValues(t, "fp16", f.Choices[2].Case.AMP)
	require.False(t, f.Choices[2].Recommended)
}

// A survey of many configurations reads them off lines; what it recommends has been replayed, as in a search of few.
func TestSurveyRecommendsWhatASearchOfFewWould(t *testing.T) {
	s := everyWay(t, "patch-vqvae", 64, "t4", "rtx-3060")
	s.Cases = s.Cases[:2]
	few, err := Run(t.Context(), s)
	require.NoError(t, err)
	s.CaseCount = maxExactCases
	many, err := Run(t.Context(), s)
	require.NoError(t, err)
	for i, c := range many.Choices {
		if c.Recommended {
			require.Equal(t, few.Choices[i], c)
			continue
		}
		require.Nil(t, c.Run, "only what is recommended is replayed")
		require.True(t, c.Estimate.Interpolated)
		require.InEpsilon(t, few.Choices[i].Batch, c.Batch, 0.15)
	}
}

func TestSurveySaysWhatIsRefused(t *testing.T) {
	s := toySearch(1000, steptest.Full(models.Case{Settings: models.Settings{"seq-len": 3, "heads": 2}}),
		steptest.Full(models.Case{}))
	other := steptest.Card(500)
	other.Name = "other"
	s.GPUs = append(s.GPUs, other)
	f, err := Run(t.Context(), s)
	require.NoError(t, err)
	refused := 0
	for _, c := range f.Choices {
		if c.Refused != "" {
			refused++
			require.Contains(t, c.Refused, "2 does not divide seq-len 3")
			require.False(t, c.Recommended)
		}
	}
	require.Equal(t, 2, refused)
	s.Cases = s.Cases[:1]
	_, err = Run(t.Context(), s)
	require.Error(t, err)
}

func TestSurveyAimsAtTheEffectiveBatch(t *testing.T) {
	s := toySearch(700, steptest.Full(models.Case{}))
	other := steptest.Card(2000)
	other.Name = "other"
	s.GPUs = append(s.GPUs, other)
	s.Effective = 256
	f, err := Run(t.Context(), s)
	require.NoError(t, err)
	for _, c := range f.Choices {
		require.InEpsilon(t, 256, c.EffectiveBatch, 0.02)
		require.Equal(t, c.EffectiveBatch, c.Batch*c.Case.Accumulate)
	}
}

// 3 models x 64 batch sizes x 3 precisions x checkpointing or not x 2 stages x 5
// GPUs are 11,520 configurations. Two cores should search them in a second.
func BenchmarkFitTenThousandConfigurations(b *testing.B) {
	var searches []Search
	configurations := 0
	for _, model := range []string{"redimnet-b0", "redimnet-b2", "redimnet-M"} {
		s := everyWay(b, model, 64, "rtx-3060", "rtx-5060-ti", "rtx-3090", "a100-40", "a100-80") // the guide's GPUs
		searches = append(searches, s)
		configurations += s.MaxBatch * len(s.Cases) * len(s.GPUs)
	}
	require.GreaterOrEqual(b, configurations, 10_000)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the program runs
	for b.Loop() {
		for _, s := range searches {
			_, err := Run(b.Context(), s)
			require.NoError(b, err)
		}
	}
	b.ReportMetric(float64(configurations), "configurations")
}

// BenchmarkFit is what the command does: a survey of all GPUs, and one GPU exactly.
func BenchmarkFit(b *testing.B) {
	var gpus []string
	for _, gpu := range device.Catalog() {
		gpus = append(gpus, gpu.Name)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the program runs
	for _, of := range []struct {
		model string
		gpus  []string
	}{{"redimnet-b2", gpus}, {"patch-vqvae", gpus}, {"naics-embedder", []string{"rtx-5060-ti"}}} {
		s := everyWay(b, of.model, 4096, of.gpus...)
		b.Run(fmt.Sprintf("model=%s/boards=%d", of.model, len(of.gpus)), func(b *testing.B) {
			for b.Loop() {
				_, err := Run(b.Context(), s)
				require.NoError(b, err)
			}
		})
	}
}

// refusing is an executor that refuses what computes in bf16, as a model may.
type refusing struct{ step.Local }

func (r refusing) Try(ctx context.Context, t step.Trial) (*step.Result, error) {
	if t.Case.AMP == "bf16" {
		return nil, &step.RefusedError{Err: errors.New("not in bf16")}
	}
	return r.Local.Try(ctx, t)
}

// The case without autocast is looked at by itself where the one in bf16, off whose lines it may be read, is refused.
func TestRefusedAutocastLeavesTheCaseWithoutIt(t *testing.T) {
	for _, gpus := range [][]string{{"t4"}, {"t4", "rtx-3060"}} {
		s := toySearch(0, steptest.Full(models.Case{AMP: "bf16"}), steptest.Full(models.Case{}))
		s.GPUs, s.Trials = steptest.GPUs(t, gpus...), refusing{}
		look := func(s Search) *survey {
			n := len(s.GPUs) * len(s.Cases)
			v := &survey{search: &s, choices: make([]report.Choice, n), refusals: make([]error, n)}
			require.NoError(t, v.fillChoices(t.Context()))
			return v
		}
		both := look(s)
		s.Cases = s.Cases[1:]
		alone := look(s)
		for i := range s.GPUs {
			require.ErrorContains(t, both.refusals[2*i], "not in bf16")
			require.Positive(t, both.choices[2*i+1].Batch)
			require.Equal(t, alone.choices[i], both.choices[2*i+1])
		}
	}
}
