package report

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"

	"github.com/vprof/vprof/internal/input"
)

// good returns the result of a good day.
func good() *Smoke {
	check := func(name string) Check {
		return Check{
			Name: name, Simulated: true, Allocated: 80, Reserved: 90, Device: 100, Need: 100,
			Safe: true, Fits: true,
		}
	}
	return &Smoke{
		Schema: SmokeSchema, Case: Case{Case: models.Case{Model: "toy", Stage: "full", AMP: "fp16", Accumulate: 1}},
		Batch:  8,
		Device: Device{Name: "sim:card", GPU: "card", Memory: 1000, Context: 10}, Limit: 900,
		Checks:     []Check{check("model size"), check("training step"), check("validation, batch 8")},
		Safe:       true,
		Components: []Component{{"weights", 60}, {"activations", 40}},
	}
}

func TestBaselineThatCouldHideGrowthIsRefused(t *testing.T) {
	for want, change := range map[string]func(s *Smoke){
		"schema":                                        func(s *Smoke) { s.Schema = Schema },
		"no model":                                      func(s *Smoke) { s.Case.Model = "" },
		"batch size 0: need at least 1":                 func(s *Smoke) { s.Batch = 0 },
		"above the largest that vprof accepts":          func(s *Smoke) { s.Batch = 1 << 62 },
		"are too many to record":                        func(s *Smoke) { s.Case.Accumulate = 1 << 62 },
		"no GPU":                                        func(s *Smoke) { s.Limit = 2000 },
		"none of the checks decides the verdict":        func(s *Smoke) { s.Checks = nil },
		"decides the verdict":                           func(s *Smoke) { s.Checks = s.Checks[:1]; s.Checks[0].NotInVerdict = true },
		"appears twice":                                 func(s *Smoke) { s.Checks[1] = s.Checks[0] },
		"allocated <= reserved <= device":               func(s *Smoke) { s.Checks[1].Device = 1 << 62 },
		"80 allocated, 0 reserved":                      func(s *Smoke) { s.Checks[1].Reserved = 0 },
		"marked safe, but its numbers exceed the limit": func(s *Smoke) { s.Checks[1].Need = 950 },
		"safe contradicts":                              func(s *Smoke) { s.Checks[1].Safe = false },
		"must add up to the":                            func(s *Smoke) { s.Components = s.Components[:1] },
		"weights: -1 bytes are out of range":            func(s *Smoke) { s.Components[0].Bytes = -1 },
	} {
		s := good()
		change(s)
		text, err := json.Marshal(s)
		require.NoError(t, err)
		_, err = ReadSmoke("base.json", strings.NewReader(string(text)))
		require.ErrorAs(t, err, new(*input.FormatError))
		require.ErrorContains(t, err, want)
	}
	for _, text := range []string{"", "{}", "[]", `{"schema":1}`, `{"batch":1,"batch":2}`} {
		_, err := ReadSmoke("base.json", strings.NewReader(text))
		require.ErrorAs(t, err, new(*input.FormatError), text)
	}
}

func TestGrowthIsNamedWithItsCausesAndNeverHidesDanger(t *testing.T) {
	now := good()
	now.Batch, now.Case.AMP = 12, ""
	was := good()
	was.Case.Stack = map[string]string{"peft": "0.21", "trl": "1.15"}
	now.Case.Stack = map[string]string{"peft": "0.21", "trl": "1.16"}
	now.Checks[1].Device, now.Components[1].Bytes = 100+5<<20, 40+5<<20
	now.Checks[2].Name = "validation, batch 12"
	require.NoError(t, now.Compare(was, "base.json", 0.01))
	require.Equal(t, []string{"batch 8 -> 12", "precision fp16 -> none", "trl 1.15 -> 1.16"}, now.Baseline.Changed)
	require.Regexp(t, `^GROWN: peak \+5.00 MiB since base.json \(batch 8 -> 12, precision fp16 -> none, `+
		`trl 1.15 -> 1.16\); activations grew from .* \(\+\d`, now.Verdict())

	now.Safe, now.Checks[1].Safe, now.Checks[1].OOM = false, false, &OOM{}
	require.Regexp(t, `^NOT SAFE: .*\(batch 8 -> 12.*activations grew from`, now.Verdict())

	missing := good()
	missing.Checks = missing.Checks[:2]
	require.ErrorContains(t, good().Compare(missing, "base.json", 0), `check "validation" is only in one of the two results; make a new baseline`)
	require.ErrorContains(t, missing.Compare(good(), "base.json", 0), `check "validation" is only in one of the two results; make a new baseline`)
}

func FuzzReadSmoke(f *testing.F) {
	text, err := json.Marshal(good())
	require.NoError(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ReadSmoke("f", strings.NewReader(string(text)))
		require.True(t, err != nil || slices.ContainsFunc(s.Checks, func(c Check) bool { return !c.NotInVerdict }))
	})
}

// What was not judged, as a stage that nobody asked for, may be unsafe in a baseline.
func TestBaselineMayHaveWhatWasNotJudged(t *testing.T) {
	s := good()
	s.Checks[2].Name, s.Checks[2].Safe, s.Checks[2].NotInVerdict, s.Checks[2].Need = "stage full", false, true, 950
	text, err := json.Marshal(s)
	require.NoError(t, err)
	_, err = ReadSmoke("base.json", strings.NewReader(string(text)))
	require.NoError(t, err)
}
