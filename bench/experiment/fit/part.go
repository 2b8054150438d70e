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

// A Part is the result of some configurations of a search. All parts together give the result of the whole search.
type Part struct {
	// Choices hold the part's configurations on all GPUs, GPU after GPU.
	Choices []report.Choice `json:"choices"`
	// Confirmed are replays by the index in Choices: of the choices that would be recommended if there were no other
	// part, and of choices ranked before them that did not fit.
	Confirmed map[int]report.Choice `json:"confirmed,omitempty"`
	// Intervals is the text of [report.Fit.Intervals].
	Intervals string `json:"intervals,omitempty"`
	// Profiles hold the profiles of the whole search. The first part has them.
	Profiles []report.Profile `json:"profiles,omitempty"`
}

// RunPart searches the configurations of one part of a search. Several GPUs are searched in simulation, without
// measuring.
func RunPart(ctx context.Context, s Search) (*Part, error) {
	f := s.newReport()
	s.Evidence = s.WithSharedSteps(s.GPUs)
	v, err := s.surveyCases(ctx, s.Cases)
	if err != nil {
		return nil, err
	}
	f.Choices = v.choices
	p := &Part{
		Choices: slices.Clone(v.choices), Confirmed: map[int]report.Choice{}, Intervals: intervalsSource(v.choices),
	}
	rankChoices(f, s.Model.Stages)
	confirmed, err := s.confirm(ctx, f)
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

// intervalsSource returns the source of the intervals of the first estimate; empty without one.
func intervalsSource(choices []report.Choice) string {
	c, ok := lists.First(choices, func(c report.Choice) bool { return c.Estimate != nil })
	if !ok {
		return ""
	}
	return c.Estimate.Source
}

// choiceKey identifies a configuration on a GPU.
func choiceKey(c report.Choice) string {
	text, err := json.Marshal(c.Case)
	if err != nil {
		panic(err) // it came from JSON, or goes there
	}
	return c.Device + " " + string(text)
}

// JoinParts merges the parts, which have the configurations in order. head is the result without choices, stages are
// the model's. The error reports that PyTorch or the model refuses every configuration.
func JoinParts(head report.Fit, stages []string, parts []*Part) (*report.Fit, error) {
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

// CommonResult returns the result of the search without choices, which is the same for all parts.
func (s *Search) CommonResult() report.Fit {
	return *s.newReport()
}
