package recorded

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// A model of a recorded step plans what was recorded and what lies between, survives being written into results, and
// refuses what would take another recording.
func TestModelsOfSteps(t *testing.T) {
	f := file(step(4), step(16), step(64))
	f.Steps.Form, f.Steps.Loss = Eager, "mse"
	path := filepath.Join(t.TempDir(), "toy.vprof")
	require.NoError(t, os.WriteFile(path, packed(t, f), 0o600))
	m, err := Source(nil).Open(path)
	require.NoError(t, err)
	require.Equal(t, "vprof:toy", m.Name)
	again, err := Source(nil).Restore(m.Name, m.Description.Text())
	require.NoError(t, err)
	require.Equal(t, m.Description, again.Description)
	require.Equal(t, []int{4, 16, 64}, m.Batches)
	require.False(t, m.IsPartial)
	require.Contains(t, f.Linearity("bf16"), "sizes follow the batch in a line")
	c := m.Default
	c.Batch = 10
	c, err = m.Complete(c)
	require.NoError(t, err)
	trainer, err := m.Build(c)
	require.NoError(t, err)
	tape := trace.New(trace.GPU{}, trace.Rules{}, trace.Options{Warm: true})
	require.NoError(t, trainer.Record(tape, 2))
	require.NoError(t, tape.Program().Validate())
	c.Batch = 200
	require.Contains(t, m.Caveat(c)[1], "beyond batch 4 to 64 goes on in a line")
	for _, change := range []func(*models.Case){
		func(c *models.Case) { c.Compile = true }, func(c *models.Case) { c.AMP = "fp16" },
		func(c *models.Case) { c.Checkpointing = true }, func(c *models.Case) { c.Torch = "2.14" },
	} {
		c := m.Default
		change(&c)
		require.ErrorContains(t, m.Check(c), "recorded")
	}
	require.Equal(t, models.LoopFunction, m.Supports.Loop)
	require.NoError(t, os.WriteFile(path, packed(t, file(step(4))), 0o600))
	_, err = Source(nil).Open(path)
	require.ErrorContains(t, err, "form: the file holds a step compiled as \"whole\", for which vprof also needs the model; name the model's file with --model, and add --torch-compile")
}

// A case that differs from what was recorded says in what.
func TestCasesThatWereNotRecorded(t *testing.T) {
	f, usual := file(step(4)), models.Case{
		Model: "pt2:toy", Stage: "full", Batch: 1, Accumulate: 1,
		Settings: models.Settings{"seq": 256},
	}
	f.Steps.Sizes = map[string]int64{"seq": 256}
	for _, k := range []struct {
		change func(*models.Case)
		want   string
	}{
		{func(*models.Case) {}, ""},
		{func(c *models.Case) { c.Optimizer, c.Accumulate, c.Clip = "sgd", 4, models.ClipNorm }, ""},
		{func(c *models.Case) { c.Batch = 5 }, "cannot interpolate to batch size 5: the file has one recorded size; record two with --batch of vprof capture"},
		{func(c *models.Case) { c.AMP = "none" }, "no step with --amp none is recorded"},
		{func(c *models.Case) { c.Torch = "2.14" }, "PyTorch 2.15.0+cu132 compiled what is recorded"},
		{func(c *models.Case) { c.Checkpointing = true }, "recorded without checkpointing"},
		{func(c *models.Case) { c.Settings = models.Settings{"seq": 512} }, "recorded with seq=256"},
		{func(c *models.Case) { c.Loss = "mse" }, "recorded with another loss"},
		{func(c *models.Case) { c.LoRA = &models.LoRA{Rank: 8} }, "recorded without lora"},
		{func(c *models.Case) { c.GPUs = 8 }, "recorded on one GPU"},
		{func(c *models.Case) { c.Loop = models.LoopPlain }, ""},
		{func(c *models.Case) { c.UseCache = "false" }, ""},
		{func(c *models.Case) { c.UseCache = "true" }, "recorded with use_cache=False"},
	} {
		c := toyCase(4)
		k.change(&c)
		if k.want == "" {
			require.Empty(t, f.missingReason(c, usual))
		} else {
			require.Contains(t, f.missingReason(c, usual), k.want)
		}
	}
}

// A user's model is planned by what lies beside its file, and by its description where the file is not.
func TestModelsHaveWhatLiesBesideThem(t *testing.T) {
	plain := models.Source{
		Scheme: "toy", Open: func(string) (models.Model, error) {
			return models.Model{
				Name: "toy:m", Description: models.NewDescription("a description"), Stages: []string{"full"},
				Supports: models.MemoryOptionSupport{Loop: models.LoopFunction},
				Build:    func(models.Case) (models.Trainer, error) { return nil, nil },
			}, nil
		},
	}
	plain.Restore = func(_, description string) (models.Model, error) {
		require.Equal(t, "a description", description)
		return plain.Open("")
	}
	r, path := models.NewRegistry().WithSource(plain).WithSteps(CompiledSteps("", nil)), filepath.Join(t.TempDir(),
		"m.toy")
	require.NotEmpty(t, recorded(r, must(r.Lookup("toy:"+path)), toyCase(4)).NotRecordedReason(toyCase(4)))
	require.NoError(t, os.WriteFile(FileOf(path), packed(t, file(step(4), step(8))), 0o600))
	m := recorded(r, must(r.Lookup("toy:"+path)), toyCase(4))
	elsewhere := models.NewRegistry().WithSource(plain).WithSteps(CompiledSteps("", nil))
	c := toyCase(4)
	c.Model = m.Name
	for _, m := range []models.Model{m, must(elsewhere.ModelForCase(c, m.Description))} {
		require.Empty(t, m.NotRecordedReason(toyCase(4)))
		built, err := m.Build(toyCase(6))
		require.NoError(t, err)
		require.Equal(t, models.Counts{Total: 32, Trainable: 32, Buffers: 3, Gradients: 128}, built.Counts())
		require.Contains(t, m.Caveats(toyCase(64))[0], "Inductor of PyTorch 2.15.0+cu132")
		require.Contains(t, m.Caveats(toyCase(64))[1], "recorded from batch 4 to 8")
		eager, err := m.Build(models.Case{Batch: 6})
		require.NoError(t, err)
		require.Nil(t, eager)
	}
}

func recorded(r *models.Registry, m models.Model, c models.Case) models.Model {
	m, _, err := r.Complete(m, c)
	return must(m, err)
}

// A listed model is planned by the step that was recorded of it in the settings of a case, if that is compiled, and
// from its description where the folder is not. Steps of its own loop free the model's results and clip gradients.
func TestListedModelsHaveWhatWasRecordedOfThem(t *testing.T) {
	registry := func(folder string) *models.Registry {
		return models.NewRegistry([]models.Model{{
			Name: "toy", Stages: []string{"full"}, Settings: []models.Setting{{Name: "size", Default: 1, Max: 8}},
			Class:   func(s models.Settings) models.LibraryClass { return models.LibraryClass{Seq: int(s["size"])} },
			Default: toyCase(4), Supports: models.MemoryOptionSupport{Loop: models.LoopTrainer, Cache: true},
			Build: func(models.Case) (models.Trainer, error) { return nil, nil },
		}}).WithSteps(CompiledSteps(folder, nil))
	}
	folder := t.TempDir()
	r, c := registry(folder), toyCase(6)
	c.Model, c.Settings = "toy", models.Settings{"size": 2}
	plain := must(r.Lookup("toy"))
	path := FileOfListed(folder, plain, must(plain.Complete(c)))
	require.Equal(t, "toy,size=2.vprof", filepath.Base(path))
	require.Equal(t, "vprof capture toy --compile --set size=2 records it", recorded(r, plain, c).NotRecordedReason(c))
	recording := step(6)
	last := &recording.steps[1]
	last.Returned, last.Order = []int{0}, []int{0, 1, 2, ^0, 3, 4, ^4, ^1, ^2}
	last.Forward, last.Backward = 4, 8
	require.NoError(t, os.WriteFile(path, packed(t, file(recording, step(12))), 0o600))
	require.NotEmpty(t, plain.NotRecordedReason(c), "as it is listed")
	m := recorded(r, plain, c)
	for _, m := range []models.Model{m, must(registry("").ModelForCase(c, m.Description))} {
		require.Empty(t, m.NotRecordedReason(c))
		other := c
		other.Settings = models.Settings{"size": 3}
		require.Equal(t, "recorded without --set size", m.NotRecordedReason(other))
		var played [][]program.Instruction
		for _, levers := range []models.MemoryOptions{
			{}, {Loop: models.LoopTrainer, Clip: models.ClipNorm}, {Loop: models.LoopFunction},
		} {
			c.MemoryOptions, c.Compile = levers, true
			tape := trace.New(trace.GPU{}, trace.Rules{}, trace.Options{Warm: true})
			require.NoError(t, must(m.Build(c)).Record(tape, 2))
			played = append(played, tape.Program().Instructions)
		}
		require.Equal(t, played[0], played[1])
		require.NotEqual(t, played[0], played[2])
		require.Contains(t, m.Caveats(c)[1], "recorded with use_cache=False; a loop that keeps")
		c.UseCache = "false"
		require.Len(t, m.Caveats(c), 1)
	}
	c.Compile = false
	require.Empty(t, recorded(r, plain, c).Description, "an eager step is planned as it was")
}
