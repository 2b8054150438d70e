package models

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// toy trains nothing: every step is one phase. It refuses batch 1.
type toy struct{ c Case }

func (toy) Counts() Counts { return Counts{Total: 3, Trainable: 2} }

func (m toy) Record(t *trace.Tape, steps int) error {
	if m.c.Batch == 1 {
		return errors.New("norm: expected more than 1 value per channel")
	}
	t.Mark("model")
	for step := range steps {
		t.SetStep(step)
		t.Mark("step_end")
	}
	return nil
}

func toyModel(name string) Model {
	return Model{
		Name: name, Stages: []string{"full", "frozen"},
		Default: Case{Stage: "full", Batch: 8, AMP: "fp16", Accumulate: 4},
		Build:   func(c Case) (Trainer, error) { return toy{c}, nil },
	}
}

func TestRegistryKeepsTheOrderOfItsLists(t *testing.T) {
	r := NewRegistry([]Model{toyModel("b"), toyModel("a")}, []Model{toyModel("c")})
	require.Equal(t, []string{"b", "a", "c"}, r.Names())
	m, err := r.Lookup("a")
	require.NoError(t, err)
	require.Equal(t, "a", m.Name)
}

func TestUnknownModelNamesTheNearest(t *testing.T) {
	r := NewRegistry([]Model{toyModel("redimnet-b2"), toyModel("redimnet-b3"), toyModel("gpt2")})
	_, err := r.Lookup("redimnet-b9")
	var unknown *UnknownModelError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, []string{"redimnet-b2", "redimnet-b3"}, unknown.Nearest)
	require.EqualError(t, err,
		`unknown model "redimnet-b9"; near it: redimnet-b2, redimnet-b3 (list: vprof models; for others: vprof run, vprof capture)`)
	_, err = r.Lookup("")
	require.ErrorContains(t, err, "vprof models")
}

func TestCaseAndPunctuationOfAModelsNameDoNotMatter(t *testing.T) {
	r := NewRegistry([]Model{{Name: "redimnet-b2"}, {Name: "a-b"}, {Name: "ab"}})
	m, err := r.Lookup("ReDimNet_B2")
	require.NoError(t, err)
	require.Equal(t, "redimnet-b2", m.Name)
	_, err = r.Lookup("a_b")
	require.ErrorContains(t, err, "near it: a-b, ab")
}

func TestTwoModelsOfOneNameAreABug(t *testing.T) {
	require.Panics(t, func() { NewRegistry([]Model{toyModel("a")}, []Model{toyModel("a")}) })
}

func TestCompleteFillsWhatIsOpen(t *testing.T) {
	c, err := toyModel("toy").Complete(Case{})
	require.NoError(t, err)
	require.Equal(t, Case{Model: "toy", Stage: "full", Batch: 8, Accumulate: 4}, c,
		"no precision is a choice and stays")

	given := Case{
		Model: "toy", Stage: "frozen", Batch: 2, AMP: "bf16", Checkpointing: true, Accumulate: 1,
		Optimizer: "sgd",
	}
	c, err = toyModel("toy").Complete(given)
	require.NoError(t, err)
	require.Equal(t, given, c)
}

func TestImpossibleCaseNamesTheFieldAndTheChoices(t *testing.T) {
	for _, c := range []struct {
		c    Case
		want string
	}{
		{Case{Stage: "half"}, `toy: stage: the model has no freeze stage "half"; use one of full, frozen`},
		{Case{Batch: -1}, "toy: batch: batch size -1: need at least 1"},
		{Case{Accumulate: -2}, "toy: accumulate: -2 accumulation steps (micro-batches): need at least 1"},
		{Case{Accumulate: math.MaxInt}, "toy: accumulate: 9223372036854775807 accumulation steps (micro-batches) are too many to record; all after the second allocate the same memory, so use 1024"},
		{Case{Batch: math.MaxInt}, "toy: batch: batch size 9223372036854775807 is above the largest that vprof accepts, 1048576"},
		{Case{AMP: "fp8"}, `toy: amp: there is no precision "fp8"; use none, fp16 or bf16`},
		{Case{Optimizer: "adamv"}, `toy: optimizer: there is no optimizer "adamv"; near it: adamw`},
	} {
		_, err := toyModel("toy").Complete(c.c)
		var wrong *CaseError
		require.ErrorAs(t, err, &wrong)
		require.ErrorContains(t, err, c.want)
	}
}

func TestRecordRunsTwoStepsUnlessTold(t *testing.T) {
	r := NewRegistry([]Model{toyModel("toy")})
	last := func(p *program.Program) int { return p.Phases[len(p.Phases)-1].Step }
	rec, err := r.Record(Case{Model: "toy"}, trace.GPU{}, Options{})
	require.NoError(t, err)
	require.Equal(t, 8, rec.Case.Batch)
	require.EqualValues(t, 3, rec.Counts.Total)
	require.Equal(t, 1, last(rec.Program))

	rec, err = r.Record(Case{Model: "toy"}, trace.GPU{}, Options{Steps: 3})
	require.NoError(t, err)
	require.Equal(t, 2, last(rec.Program))
}

func TestRecordPassesErrorsOn(t *testing.T) {
	r := NewRegistry([]Model{toyModel("toy")})
	for want, c := range map[string]Case{
		"more than 1 value": {Model: "toy", Batch: 1},
		"unknown model":     {Model: "chair"},
		"stage":             {Model: "toy", Stage: "half"},
	} {
		_, err := r.Record(c, trace.GPU{}, Options{})
		require.ErrorContains(t, err, want)
	}
}

// A command opens a file and then makes the model again of what its job says: that is the
// same model, and large graphs take long. Another description is another model.
func TestWhatASourceOpenedIsNotMadeAgain(t *testing.T) {
	made := 0
	source := Source{
		Scheme: "file",
		Open: func(ref string) (Model, error) {
			return Model{Name: "file:" + ref, Description: NewDescription("{}")}, nil
		},
		Restore: func(name, d string) (Model, error) {
			made++
			return Model{Name: name, Description: NewDescription(d)}, nil
		},
	}
	r := NewRegistry().WithSource(source)
	opened, err := r.Lookup("file:a")
	require.NoError(t, err)
	for _, step := range []struct {
		name, description string
		made              int
	}{
		{"file:a", "{}", 0},
		{"file:a", "{}", 0},
		{"file:a", `{"n":1}`, 1},
		{"file:b", `{"n":1}`, 2},
		{"file:b", `{"n":1}`, 2},
	} {
		m, err := r.ModelForCase(Case{Model: step.name}, NewDescription(step.description))
		require.NoError(t, err)
		require.Equal(t, step.name, m.Name)
		require.Equal(t, step.description, m.Description.Text())
		require.Equal(t, step.made, made)
	}
	require.Equal(t, "{}", opened.Description.Text())
}
