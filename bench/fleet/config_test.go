package fleet

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/shard"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/tools/toy"
)

func TestMistakesAreNamedWithTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"": "f.yaml: the file is empty",
		"models: [toy]\nboards: [t4]\n---\nmodels: []":        "has more than one document",
		"models: [toy]\nboard: [t4]":                          `f.yaml:2: there is no key "board"; near it: boards`,
		"models: [{models: toy}]\nboards: [t4]":               `f.yaml:1: models[0]: there is no key "models"; near it: model`,
		"models: [toy]\nboards: [{gpu: t4, zone: a}]":         `f.yaml:2: boards[0]: there is no key "zone"`,
		"models: [toy]\nmodels: [toy]\nboards: [t4]":          "already defined",
		"models: [toy]\nboards: [t4, T4]":                     "f.yaml:2: boards[1]: t4 appears twice",
		"models: [toy]\nboards: []":                           "f.yaml: boards: names no GPU",
		"boards: [t4]":                                        "f.yaml: models: names no model",
		"models: [{amp: fp16}]\nboards: [t4]":                 "f.yaml:1: models[0]: names no model",
		"models: [a]\ncases: [{model: b}]\nboards: [t4]":      "f.yaml:2: cases[0]: names a model (b)",
		"name: My Lab\nmodels: [a]\nboards: [t4]":             `f.yaml: name: "My Lab"; want lower-case letters`,
		"models: [a]\nboards: [t4]\nstrategy: {tasks: -1}":    "strategy.tasks: -1; a GPU can have 1 to 1000 tasks",
		"models: [a]\nboards: [t4]\nstrategy: {device: x}":    `strategy.device: "x" is neither cuda:0 nor sim`,
		"models: [a]\nboards: [t4]\nbatches: {a: 1}":          "f.yaml:3: batches: ",
		"models: [a]\nboards: [t4]\nstrategy: {repeat: x}":    "f.yaml:3: invalid value `x`: need a whole number",
		"models: [a]\nboards: [t4]\nslurm: {time: \"a\\nb\"}": "slurm.time: has a line end",

		"models: [a]\nboards: [t4]\nslurm: {container: \"a\\e[2J\"}": `slurm.container: has control characters: a\x1b[2J`,

		"models: 3": "f.yaml:1: invalid value `3`: need a list",
		"[":         "f.yaml",
	} {
		_, err := Read(strings.NewReader(text), "f.yaml")
		require.ErrorContains(t, err, want, text)
		require.True(t, input.IsBadInput(err), text)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestUnitsAreModelsByCases(t *testing.T) {
	c, err := Read(strings.NewReader("models: [toy, {model: toy, stage: frozen}]\ncases: [{amp: fp16}, "+
		"{checkpointing: true, settings: {seq_len: 4}}]\nbatches: [64, 8, 64]\nboards: [t4]"), "f.yaml")
	require.NoError(t, err)
	units, err := c.Units("f.yaml", models.NewRegistry([]models.Model{toy.Model()}), nil)
	require.NoError(t, err)
	require.Len(t, units, 4)
	require.Equal(t, []int{8, 64}, units[0].Batches)
	require.Equal(t, "frozen", units[3].Case.Stage)
	require.True(t, units[3].Case.Checkpointing)
	require.EqualValues(t, 4, units[3].Case.Settings["seq-len"])

	c.Cases = append(c.Cases, c.Cases[0])
	_, err = c.Units("f.yaml", models.NewRegistry([]models.Model{toy.Model()}), nil)
	require.ErrorContains(t, err, "this case is already in the fleet, as f.yaml:2")
}

// FuzzRead reads anything as a fleet: it is refused with a sentence or is one.
func FuzzRead(f *testing.F) {
	f.Add("models: [toy]\nboards: [t4]\nbatches: 8..64x2\n")
	f.Add("models: &a [{model: toy, settings: {n: 1}}]\nboards: [{gpu: t4, node-selector: {a: b}}]\ncases: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Read(strings.NewReader(text), "f.yaml")
		if err != nil {
			require.True(t, input.IsBadInput(err))
			return
		}
		require.NotEmpty(t, c.Models)
		for _, b := range c.GPUs {
			require.False(t, strings.ContainsAny(b.Key(), `/\:*?"<>|`), "a folder of any system")
		}
	})
}

// scheduler is an engine whose tasks end as they are told to.
type scheduler struct {
	folder *Folder
	// ends are the exit codes of each task's attempts; zero does it, -1 is killed.
	ends    map[Task][]int
	started map[Task]int
	avoided [][]string
}

func (*scheduler) Check(context.Context) error                     { return nil }
func (*scheduler) CanRestart() bool                                { return false }
func (*scheduler) Cancel(context.Context) (int, error)             { return 0, nil }
func (*scheduler) Active(context.Context) (map[Task]string, error) { return nil, nil }

func (s *scheduler) Start(_ context.Context, b GPUTasks, tasks []int, avoid []string) error {
	s.avoided = append(s.avoided, avoid)
	for _, i := range tasks {
		t := Task{b.Key, i}
		n := s.started[t]
		s.started[t]++
		code := 0
		if n < len(s.ends[t]) {
			code = s.ends[t][n]
		}
		if code < 0 {
			continue
		}
		f, err := shard.Open(s.folder.Path(b),
			shard.Header{Plan: b.ShardPlan(s.folder.Tool), Shard: i, ShardCount: b.Tasks})
		if err != nil {
			return err
		}
		if code > 0 {
			if err := f.Fail(errors.New("it went wrong"), code, "n7", time.Time{}); err != nil {
				return err
			}
			continue
		}
		from, _ := f.Next()
		if err := errors.Join(f.Put(f.End()-from, Result{Report: &report.Report{}}), f.Finish()); err != nil {
			return err
		}
	}
	return nil
}

// Tasks that ended or were interrupted are restarted, tasks without a GPU run elsewhere, and what
// failed for good is named.
func TestTasksAreBegunAgainByTheirExitCodes(t *testing.T) {
	c, err := Read(strings.NewReader("models: [toy, {model: toy, stage: frozen}, {model: toy, amp: fp16}, {model: "+
		"toy, amp: bf16}, {model: toy, checkpointing: true}]\nbatches: 8\nboards: [t4]"), "f.yaml")
	require.NoError(t, err)
	units, err := c.Units("f.yaml", models.NewRegistry([]models.Model{toy.Model()}), nil)
	require.NoError(t, err)
	dir := t.TempDir()
	f, err := Prepare(dir, OnSlurm, c, units, nil, report.Tool{Version: "v1"}, time.Time{})
	require.NoError(t, err)
	s := &scheduler{folder: f, started: map[Task]int{}, ends: map[Task][]int{
		{"t4", 1}: {130}, {"t4", 2}: {4}, {"t4", 3}: {1}, {"t4", 4}: {-1, -1, -1, -1},
	}}
	err = (&Runner{Folder: f, Engine: s, Poll: time.Millisecond}).Run(t.Context())
	var unfinished *UnfinishedError
	require.ErrorAs(t, err, &unfinished)
	require.ErrorContains(t, err,
		"t4: 2 of 5 tasks are not done; shard 3 has 0 of 1 units and failed on n7: it went wrong")
	require.Equal(t, map[Task]int{{"t4", 0}: 1, {"t4", 1}: 2, {"t4", 2}: 2, {"t4", 3}: 1, {"t4", 4}: 3}, s.started)
	require.Contains(t, s.avoided, []string{"n7"})

	// Whoever runs it again has mended the cause.
	s.ends = nil
	again, err := Open(dir)
	require.NoError(t, err)
	require.NoError(t, (&Runner{Folder: again, Engine: s, Poll: time.Millisecond}).Run(t.Context()))
	n := 0
	require.NoError(t, again.Results(func(GPUTasks, Result) error { n++; return nil }))
	require.Equal(t, 5, n)

	// Two at once: the second is told who is there.
	release, err := again.Lock("vprof fleet run, process 7 of n1")
	require.NoError(t, err)
	other, err := Open(dir)
	require.NoError(t, err)
	_, err = other.Lock("me")
	require.ErrorContains(t, err, "another command (vprof fleet run, process 7 of n1) runs this fleet")
	require.NoError(t, release())

	_, err = Prepare(dir, OnSlurm, c, units, nil, report.Tool{Version: "v2"}, time.Time{})
	require.ErrorContains(t, err, "created by vprof v1, and this is v2")
	require.NoError(t, os.Remove(dir+"/fleet.json"))
	_, err = Open(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}
