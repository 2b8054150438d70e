package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/vprof/vprof/internal/lists"
)

// PublishedSchema names the format of a report on published values.
const PublishedSchema = "vprof.published/v1"

// Published describes the errors of plans compared with values that others measured on real GPUs.
type Published struct {
	Schema string         `json:"schema" jsonschema:"const=vprof.published/v1"`
	Rows   []PublishedRow `json:"rows"`
	Groups []FigureGroup  `json:"groups"`
}

// PublishedRow is a published value with its plan.
type PublishedRow struct {
	// Group is the source whose values are summarized together, Source the page of this one.
	Group  string `json:"group"`
	Source string `json:"source"`
	// Subject quotes what was trained, with which release of PyTorch and on which GPU.
	Subject string `json:"what"`
	Torch   string `json:"torch_published,omitempty"`
	GPU     string `json:"gpu,omitempty"`
	// Kind is the kind of bytes: "allocated", "active", "reserved" or "device". Active bytes include freed blocks that
	// another stream may still use: a plan has their bounds, allocated and reserved bytes.
	Kind string `json:"kind"`
	// Bytes is the value, with a possible error of Rounding, since it was printed rounded.
	Bytes    int64 `json:"published_bytes"`
	Rounding int64 `json:"rounding_bytes,omitempty"`
	// Command plans the same training: "plan --model hf:config.json ...", with files beside the rows' own.
	Command string `json:"command,omitempty"`
	// Estimate is the value of the plan; absent without one, and Refused is the reason.
	Estimate *Interval `json:"estimate,omitempty"`
	Refused  string    `json:"refused,omitempty"`
}

// FigureGroup summarizes the values of one kind and group.
type FigureGroup struct {
	Group   string          `json:"group"`
	Kind    string          `json:"kind"`
	Figures int             `json:"figures"`
	Planned int             `json:"planned"`
	Within  int             `json:"within_interval"`
	Errors  ErrorStatistics `json:"errors"`
}

// PublishedOf summarizes rows.
func PublishedOf(rows []PublishedRow) *Published {
	d := &Published{Schema: PublishedSchema, Rows: rows}
	for _, of := range lists.Groups(rows, func(r PublishedRow) [2]string { return [2]string{r.Group, r.Kind} }) {
		g := FigureGroup{Group: of[0].Group, Kind: of[0].Kind, Figures: len(of)}
		var errs []float64
		for _, r := range lists.Filter(of, func(r PublishedRow) bool { return r.Estimate != nil }) {
			errs = append(errs, r.relativeError())
			if r.Estimate.Low <= r.Bytes+r.Rounding && r.Bytes-r.Rounding <= r.Estimate.High {
				g.Within++
			}
		}
		g.Planned, g.Errors = len(errs), errorStatistics(errs)
		d.Groups = append(d.Groups, g)
	}
	slices.SortFunc(d.Groups, func(a, b FigureGroup) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	})
	return d
}

// relativeError returns the relative error of the plan; zero if the plan is within the rounding of the value.
func (r *PublishedRow) relativeError() float64 {
	d := r.Estimate.Bytes - r.Bytes
	if max(d, -d) <= r.Rounding {
		return 0
	}
	return float64(d) / float64(r.Bytes)
}

// Data returns the values that JSON files hold, for [Document].
func (d *Published) Data() Data {
	return Data{AsLines(d.Rows), Rows(`group source what torch_published gpu kind published_bytes rounding_bytes command
		estimate_bytes estimate_low_bytes estimate_high_bytes refused`, d.Rows)}
}

// Sheets returns the errors of each group, and the values with the largest errors.
func (d *Published) Sheets() []Sheet {
	s := Sheet{
		Title: fmt.Sprintf("%d published measurements of real GPUs", len(d.Rows)),
		Columns: Columns("source | bytes | values> | planned> | median> | p95> | largest> | signed mean> | " +
			"in the interval>"),
	}
	for _, g := range d.Groups {
		var errs []string
		if e := g.Errors; g.Planned > 0 {
			errs = []string{percent(e.Median), percent(e.P95), percent(e.Max), percent(e.Mean), strconv.Itoa(g.Within)}
		}
		s.Row(g.Group, g.Kind, g.Figures, g.Planned, errs)
	}
	return []Sheet{s, d.worst(10)}
}

// worst returns the values with the largest errors.
func (d *Published) worst(most int) Sheet {
	s := Sheet{Title: "furthest off", Columns: Columns("source | what | bytes | published> | planned> | error>")}
	rows := slices.DeleteFunc(slices.Clone(d.Rows), func(r PublishedRow) bool { return r.Estimate == nil })
	slices.SortStableFunc(rows, func(a, b PublishedRow) int {
		return cmp.Compare(math.Abs(b.relativeError()), math.Abs(a.relativeError()))
	})
	for _, r := range rows[:min(most, len(rows))] {
		s.Row(r.Group, r.Subject, r.Kind, integer(r.Bytes), integer(r.Estimate.Bytes), percent(r.relativeError()))
	}
	return s
}
