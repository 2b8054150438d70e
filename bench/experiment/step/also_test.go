package step_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
)

// A recording that serves other GPUs is, instruction by instruction, what each would
// have had for itself: of every model, on GPUs of every architecture.
func TestARecordingServesOtherGPUsAsTheirOwnWould(t *testing.T) {
	gpus := steptest.GPUs(t, "t4", "p100", "v100-16", "a100-80", "rtx-4090", "h100", "rtx-5090")
	shared := 0
	for i, m := range sample.Of(all.Models().All()) {
		c := m.Default
		c.AMP = models.AutocastPrecisions()[i%len(models.AutocastPrecisions())]
		record := func(gpu device.GPU, others ...device.GPU) *models.Recording {
			var o models.Options
			for _, other := range others {
				o.Others = append(o.Others, step.RecorderGPU(other))
			}
			rec, err := m.Record(c, step.RecorderGPU(gpu), o)
			require.NoError(t, err, m.Name)
			return rec
		}
		from := i % 2 * (len(gpus) - 1) // before Ampere and since
		rec := record(gpus[from], gpus...)
		for k, gpu := range gpus {
			if on := rec.ForGPU(k); on != nil {
				shared++
				alone := record(gpu)
				require.True(t, slices.Equal(events(alone), events(on)), "%s on %s", m.Name, gpu.Name)
				if gpu.Name == gpus[from].Name {
					require.True(t, slices.Equal(events(alone), events(rec)), m.Name)
				}
				require.NoError(t, on.Program.Validate())
				require.Equal(t, alone.Facts, on.Facts)
				alone.Discard()
			}
		}
		require.Nil(t, rec.ForGPU(len(gpus)))
		rec.Discard()
		require.Nil(t, rec.ForGPU(from))
	}
	require.Positive(t, shared)
}

// event is an instruction with all that it refers to but for the numbers of buffers.
type event struct {
	kind  program.Kind
	bytes int64
	class program.Class
	work  program.Op
	phase program.Phase
}

func events(rec *models.Recording) (all []event) {
	p := rec.Program
	for _, in := range p.Instructions {
		e := event{kind: in.Kind}
		switch in.Kind {
		case program.Alloc, program.Free:
			b := p.Buffers[in.Arg]
			e.bytes, e.class = b.Bytes, b.Class
		case program.Launch:
			e.work = p.Ops[in.Arg]
			e.work.Site, e.work.Reads, e.work.Writes = 0, program.Span{}, program.Span{}
		case program.MarkPhase:
			e.phase = p.Phases[in.Arg]
		}
		all = append(all, e)
	}
	return all
}

// GPUs that differ in scratch memory alone share a recording.
func TestNewGPUsShareRecordings(t *testing.T) {
	m, err := all.Models().Lookup("redimnet-b0")
	require.NoError(t, err)
	gpus := steptest.GPUs(t, "a100-80", "h100", "b200", "rtx-5090")
	var o models.Options
	for _, gpu := range gpus[1:] {
		o.Others = append(o.Others, step.RecorderGPU(gpu))
	}
	rec, err := m.Record(m.Default, step.RecorderGPU(gpus[0]), o)
	require.NoError(t, err)
	for i := range o.Others {
		require.NotNil(t, rec.ForGPU(i), o.Others[i].Name)
	}
	require.NotEqual(t, rec.Program.Buffers, rec.ForGPU(2).Program.Buffers, "they do differ")
}

// Trials on GPUs that share recordings and replays give what each would alone, also after results are discarded; tf32
// needs recordings of its own.
func TestATrialAcrossGPUsGivesWhatEachWouldAlone(t *testing.T) {
	m, err := all.Models().Lookup("redimnet-b0")
	require.NoError(t, err)
	gpus := steptest.GPUs(t, "t4", "rtx-2080", "a100-80", "a100-40", "v100-16", "h100", "rtx-5090", "rtx-4090",
		"rtx-4080")
	exact := steptest.Exact()
	alone, err := step.New(m, m.Default, exact)
	require.NoError(t, err)
	exact.Trials = &step.CachedExecutor{GPUs: gpus}
	across, err := step.New(m, m.Default, exact)
	require.NoError(t, err)
	for range 2 {
		for _, gpu := range gpus {
			try := func(s *step.Setup) *step.Result {
				trial := s.TrainingTrial(s.Trial(gpu, 8), 0)
				trial.Timed = []device.GPU{gpu}
				r, err := s.Try(t.Context(), trial)
				require.NoError(t, err)
				return r
			}
			want, got := try(alone), try(across)
			require.Equal(t, want.Loads, got.Loads, gpu.Name)
			require.Equal(t, want.Facts, got.Facts)
			require.Equal(t, want.Counts, got.Counts)
			require.Equal(t, want.Device, got.Device)
			require.Equal(t, unnumbered(want), unnumbered(got))
			require.Equal(t, want.Sample(), got.Sample())
			for _, how := range []step.ReplayOptions{{Expandable: true}, {StopAtLimit: true}} {
				want, err := alone.Try(t.Context(), want.ReplayTrial(how))
				require.NoError(t, err)
				got, err := across.Try(t.Context(), got.ReplayTrial(how))
				require.NoError(t, err)
				require.Equal(t, unnumbered(want), unnumbered(got))
				require.Equal(t, want.Device, got.Device)
				require.Equal(t, want.Sample(), got.Sample())
			}
			got.Discard()
		}
	}
}

// unnumbered returns a result's run without the numbers of buffers: a shared recording numbers the buffers of all GPUs.
func unnumbered(r *step.Result) replay.Run {
	run := *r.Run
	run.Peak.Live = slices.Clone(run.Peak.Live)
	for i := range run.Peak.Live {
		run.Peak.Live[i].Buffer = 0
	}
	return run
}

// GPUs with equal programs share a replay.
func TestGPUsAlikeShareReplays(t *testing.T) {
	m, err := all.Models().Lookup("gpt2")
	require.NoError(t, err)
	gpus := steptest.GPUs(t, "a100-40", "a100-80")
	evidence := steptest.Exact()
	evidence.Trials = &step.CachedExecutor{GPUs: gpus}
	setup, err := step.New(m, models.Case{}, evidence)
	require.NoError(t, err)
	var runs []*replay.Run
	for _, gpu := range gpus {
		r, err := setup.Try(t.Context(), setup.Trial(gpu, 4))
		require.NoError(t, err)
		runs = append(runs, r.Run)
	}
	require.True(t, runs[0] == runs[1])
}

// What reads properties of the GPU compares them on all GPUs, so that GPUs alike share a recording.
func TestGPUsThatAreAlikeShareARecording(t *testing.T) {
	gpus := steptest.GPUs(t, "h100", "h200")
	for _, flags := range [][]string{
		{"quantize=nf4", "lora=r=8"},
		{"quantize=int8", "lora=r=8"},
		{"liger=true"},
		{"gpus=4", "strategy=fsdp2"},
		{"gpus=4", "strategy=zero2"},
	} {
		c, patch := models.Case{Model: "llama", Batch: 1}, models.Patch{}
		for _, flag := range flags {
			name, text, _ := strings.Cut(flag, "=")
			change, err := models.FieldNamed(name).Parse(text)
			require.NoError(t, err, flag)
			patch.Set(change)
		}
		patch.Apply(&c)
		rec, err := all.Models().Record(c, step.RecorderGPU(gpus[0]), models.Options{
			Others: []trace.GPU{step.RecorderGPU(gpus[1])},
		})
		require.NoError(t, err, flags)
		require.True(t, rec.Others.IsUsable(0), flags)
		rec.Discard()
	}
}
