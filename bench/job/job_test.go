package job

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/shard"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/coefficients"
	"github.com/vprof/vprof/tools/toy"
)

// here runs jobs of the toy, which replays get right.
func here() *Local {
	exactly := func(planner.ResidualSubject) (allocated, reserved planner.Residual, err error) { return }
	return &Local{
		Models:   models.NewRegistry([]models.Model{toy.Model()}),
		Evidence: step.Evidence{Residuals: exactly},
	}
}

func toyCase(t require.TestingT) report.Case {
	c, err := toy.Model().Complete(models.Case{AMP: "fp16", Settings: models.Settings{"seq-len": 2}})
	require.NoError(t, err)
	return report.CaseOf(toy.Model(), c)
}

func gpus(t require.TestingT, names ...string) []device.GPU {
	var all []device.GPU
	for _, name := range names {
		gpu, err := device.Lookup(name)
		require.NoError(t, err)
		all = append(all, gpu)
	}
	return all
}

func quietly(*report.Report) error { return nil }

func TestAJobComesBackFromItsJSON(t *testing.T) {
	gpu := gpus(t, "t4")[0]
	for _, j := range []Job{
		Plan(toyCase(t), []device.GPU{gpu}, []int{2, 4})[0],
		Sweep(toyCase(t), Simulated(gpu), []int{8}, sweep.Conditions{FindMax: true, Repeat: 3}),
		Sweep(toyCase(t), Target{Device: "cuda:0"}, []int{8}, sweep.Conditions{}),
	} {
		text, err := json.Marshal(j)
		require.NoError(t, err)
		again, err := Read(bytes.NewReader(text))
		require.NoError(t, err)
		require.Equal(t, j, again)
	}
}

// Coefficients travel with the job.
func TestAJobIsEstimatedByItsOwnCoefficients(t *testing.T) {
	j := Plan(toyCase(t), gpus(t, "t4"), []int{8})[0]
	plain, err := here().Run(t.Context(), j, quietly)
	require.NoError(t, err)
	j.Calibrated = &coefficients.Selection{Entries: []coefficients.Entry{{
		GPU: "t4", Models: []string{"toy"},
		Memory: map[string]coefficients.Number{planner.LibraryWorkspace.String(): {Value: 1 << 20}},
	}}}
	text, err := json.Marshal(j)
	require.NoError(t, err)
	sent, err := Read(bytes.NewReader(text))
	require.NoError(t, err)
	more, err := here().Run(t.Context(), sent, quietly)
	require.NoError(t, err)
	require.Equal(t, plain.Points[0].Estimate.Allocated.Bytes+1<<20, more.Points[0].Estimate.Allocated.Bytes)
}

func TestReadSaysWhatIsWrongWithAJob(t *testing.T) {
	text, err := json.Marshal(Plan(toyCase(t), gpus(t, "t4"), []int{2})[0])
	require.NoError(t, err)
	for _, c := range [][3]string{
		{"vprof.job/v1", "vprof.job/v9", `the schema is "vprof.job/v9": need vprof.job/v1`},
		{`"plan"`, `"dance"`, `the kind is "dance"`},
		{`"toy"`, `""`, "the case names no model"},
		{`"fp16"`, `"fp8"`, `there is no precision "fp8"`},
		{`"target":{`, `"target":{"device":"cuda:0",`, "either a device or a GPU"},
		{"[2]", "[]", "no batch size is named"},
		{"[2]", "[0]", "batch size 0: need at least 1"},
		{"[2]", "[4611686018427387904]", "job: batch size 4611686018427387904 is above the largest that vprof accepts, 1048576"},
		{`"batches"`, `"sizes"`, `unknown field "sizes"`},
		{`"stage"`, `"config_sha256":"00","stage"`, "does not match the case's config_hash"},
	} {
		_, err := Read(strings.NewReader(strings.Replace(string(text), c[0], c[1], 1)))
		require.ErrorContains(t, err, c[2])
	}
	_, err = Read(strings.NewReader(string(text) + "{}"))
	require.ErrorContains(t, err, "text follows the end of the JSON")
}

// However the jobs are shared out, each is in one part, and the parts merge to what one process gives.
func TestShardsMergeToTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.Permutation([]string{"t4", "rtx-3060", "a100-40", "h200", "rtx-5060-ti"}).Draw(t, "boards")
		jobs := Plan(toyCase(t), gpus(t, names...), []int{2, 8})
		whole, err := RunAll(t.Context(), here(), jobs, nil)
		require.NoError(t, err)

		n := rapid.IntRange(1, 7).Draw(t, "shards")
		ran := map[string]*report.Report{}
		for i := range n {
			from, to := shard.Part{Index: i, ShardCount: n}.Range(len(jobs))
			for _, j := range jobs[from:to] {
				require.NotContains(t, ran, j.Target.GPU.Name)
				ran[j.Target.GPU.Name], err = here().Run(t.Context(), j, quietly)
				require.NoError(t, err)
			}
		}
		var parts []*report.Report
		for _, j := range jobs {
			parts = append(parts, ran[j.Target.GPU.Name])
		}
		merged, err := report.Merge(parts...)
		require.NoError(t, err)
		require.Equal(t, whole, merged)
	})
}

// A job that was sent gives what it would have given here.
func TestASentJobGivesTheSame(t *testing.T) {
	gpu := gpus(t, "t4")[0]
	for _, j := range []Job{
		Plan(toyCase(t), []device.GPU{gpu}, []int{2, 64})[0],
		Sweep(toyCase(t), Simulated(gpu), []int{8, 16}, sweep.Conditions{FindMax: true, Repeat: 1}),
	} {
		text, err := json.Marshal(j)
		require.NoError(t, err)
		sent, err := Read(bytes.NewReader(text))
		require.NoError(t, err)
		want, err := here().Run(t.Context(), j, quietly)
		require.NoError(t, err)
		got, err := here().Run(t.Context(), sent, quietly)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestProgressCountsJobs(t *testing.T) {
	var said []int
	_, err := RunAll(t.Context(), here(), Plan(toyCase(t), gpus(t, "t4", "h200"), []int{8}),
		func(_ string, done, total int) {
			require.Equal(t, 2, total)
			said = append(said, done)
		})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, said)
}

func TestReportsOfDifferentWorkDoNotMerge(t *testing.T) {
	run := func(c report.Case, kind report.Kind, gpu string, batches ...int) *report.Report {
		r, err := here().Run(t.Context(),
			Job{Schema: Schema, Kind: kind, Case: c, Target: Simulated(gpus(t, gpu)[0]), Batches: batches}, quietly)
		require.NoError(t, err)
		return r
	}
	one := run(toyCase(t), report.Plan, "t4", 8)
	other := toyCase(t)
	other.AMP = "bf16"
	smaller := run(toyCase(t), report.Plan, "t4", 16)
	smaller.Devices[0].Memory /= 2
	for want, r := range map[string]*report.Report{
		"one result is a plan, another a sweep": run(toyCase(t), report.Sweep, "h200", 8),
		"one result is of toy":                  run(other, report.Plan, "h200", 8),
		"batch 8 on sim:t4 appears twice":       run(toyCase(t), report.Plan, "t4", 8),
	} {
		_, err := report.Merge(one, r)
		require.True(t, input.IsBadInput(err), want)
		require.ErrorContains(t, err, want)
	}
	merged, err := report.Merge(one, smaller)
	require.NoError(t, err)
	require.Equal(t, []string{"sim:t4 (14.74 GiB)", "sim:t4 (7.37 GiB)"},
		[]string{merged.Points[0].Device, merged.Points[1].Device})
	_, err = report.Merge()
	require.ErrorContains(t, err, "there are no results")
}
