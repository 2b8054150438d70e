package fit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
)

// A PartResult is the result of some cases of a search. All parts of a search together give its result.
type PartResult struct {
	// Choices are the results of the part's cases on all GPUs, ordered by GPU.
	Choices []report.Choice `json:"choices"`
	// Confirmed holds replays by their index in Choices: of the choices that would be recommended without the other
	// parts, and of higher-ranked choices that did not fit.
	Confirmed map[int]report.Choice `json:"confirmed,omitempty"`
	// Intervals is the text of [report.Fit.Intervals].
	Intervals string `json:"intervals,omitempty"`
	// Profiles are the recommendations for a curriculum of the whole search. Only the first part has them.
	Profiles []report.Profile `json:"profiles,omitempty"`
}

// RunPart searches the configurations of one part of a search. It simulates all GPUs.
func RunPart(ctx context.Context, s Search) (*PartResult, error) {
	f := s.newReport()
	s.Evidence = s.WithSharedSteps(s.GPUs)
	v, err := s.surveyCases(ctx, s.Cases)
	if err != nil {
		return nil, err
	}
	f.Choices = v.choices
	p := &PartResult{
		Choices: slices.Clone(v.choices), Confirmed: map[int]report.Choice{}, Intervals: intervalsSource(v.choices),
	}
	rankChoices(f, s.Model.Stages)
	confirmed, err := s.replayRecommended(ctx, f)
	if err != nil {
		return nil, err
	}
	for i, c := range p.Choices {
		if exact, ok := confirmed[choiceKey(c)]; ok {
			p.Confirmed[i] = exact
		}
	}
	return p, nil
}

// intervalsSource returns the text about the intervals of the first choice with an estimate; empty if there is none.
func intervalsSource(choices []report.Choice) string {
	c, ok := lists.First(choices, func(c report.Choice) bool { return c.Estimate != nil })
	if !ok {
		return ""
	}
	return c.Estimate.Source
}

// choiceKey returns a key for a choice's configuration and GPU.
func choiceKey(c report.Choice) string {
	text, err := json.Marshal(c.Case)
	if err != nil {
		panic(err) // it came from JSON, or goes there
	}
	return c.Device + " " + string(text)
}

// JoinParts merges the parts of a search, which must be in order. head is the report without choices. stages are the
// model's. The error reports that PyTorch or the model refuses every configuration.
func JoinParts(head report.Fit, stages []string, parts []*PartResult) (*report.Fit, error) {
	f := &head
	f.Choices = []report.Choice{}
	confirmed := map[string]report.Choice{}
	for i := range f.Devices {
		for _, p := range parts {
			n := len(p.Choices) / len(f.Devices)
			f.Choices = append(f.Choices, p.Choices[i*n:(i+1)*n]...)
		}
	}
	for _, p := range parts {
		f.Profiles, f.Intervals = append(f.Profiles, p.Profiles...), cmp.Or(f.Intervals, p.Intervals)
		for at, c := range p.Confirmed {
			confirmed[choiceKey(p.Choices[at])], confirmed[choiceKey(c)] = c, c
		}
	}
	if !slices.ContainsFunc(f.Choices, func(c report.Choice) bool { return c.Refused == "" }) && len(f.Choices) > 0 {
		return nil, &step.RefusedError{Err: errors.New(f.Choices[0].Refused)}
	}
	rankChoices(f, stages)
	for settled := false; !settled; { // each time others are recommended
		settled = applyConfirmed(f, stages, confirmed)
	}
	return f, nil
}

// CommonResult returns the report of the search without choices, which is the same for all parts.
func (s *Search) CommonResult() report.Fit {
	return *s.newReport()
}
