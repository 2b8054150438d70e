package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/models"
)

// Profile is a recommendation for a part of a project's training.
type Profile struct {
	Name string `json:"name"`
	// Settings are those in which the parts differ.
	Settings models.Settings `json:"settings,omitempty"`
	Choice   Choice          `json:"choice"`
}

// GuideProfile is what the script of a model's project recommends for a part of its
// training, see [models.Script], and what is true of it.
type GuideProfile struct {
	Profile        string  `json:"profile"`
	Batch          int     `json:"batch"`
	Accumulate     int     `json:"accumulate"`
	EffectiveBatch int     `json:"effective_batch"`
	Utilization    float64 `json:"utilization"`
	// Components sum to Total.
	Components []Component `json:"components"`
	Total      int64       `json:"total_bytes"`
	// True is what the same batch needs, and TrueLargest the largest that
	// fits; absent where the model is not known.
	True        *Estimate `json:"true,omitempty"`
	TrueLargest int       `json:"true_largest_batch,omitempty"`
}

// guideSheet has a column for each profile of the guide's formula.
func (f *Fit) guideSheet() Sheet {
	s := Sheet{
		Title: "by the formula of the project's own script",
		Columns: Columns("MiB | batch | micro-batches | effective | total | total GB | use | " +
			"true need of this batch | true largest batch"),
	}
	for i, c := range f.Guide[0].Components {
		s.Columns = slices.Insert(s.Columns, 4+i, Column{Head: c.Name})
	}
	mib := func(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/bytesize.MiB) }
	for _, g := range f.Guide {
		var parts []string
		for _, c := range g.Components {
			parts = append(parts, mib(c.Bytes))
		}
		need, largest := "-", "-"
		if g.True != nil {
			need, largest = mib(g.True.Device.Bytes), strconv.Itoa(g.TrueLargest)
		}
		s.Row(g.Profile, g.Batch, g.Accumulate, g.EffectiveBatch, parts, mib(g.Total),
			fmt.Sprintf("%.2f", float64(g.Total)/bytesize.GiB), fmt.Sprintf("%.1f%%", 100*g.Utilization), need,
			largest)
	}
	return s.turned()
}

// profilesSheet has a row for each part of the curriculum.
func (f *Fit) profilesSheet() Sheet {
	s := sheetIn("the parts of the project's curriculum, as its authors train them",
		"profile | batch> | micro-batches> | effective> | device {}> | use>",
		largest(f.Profiles, func(p Profile) int64 { return p.Choice.Estimate.Device.High }))
	settings := slices.Sorted(maps.Keys(f.Profiles[0].Settings))
	for i, name := range settings {
		s.Columns = slices.Insert(s.Columns, 1+i, Column{Head: name, Right: true})
	}
	for _, p := range f.Profiles {
		c := p.Choice
		found := []string{"none fits", "-", "-"}
		if c.Batch > 0 {
			found = []string{strconv.Itoa(c.Batch), strconv.Itoa(c.Case.Accumulate), strconv.Itoa(c.EffectiveBatch)}
		}
		var values []string
		for _, name := range settings {
			values = append(values, strconv.FormatInt(p.Settings[name], 10))
		}
		s.Row(p.Name, values, found, c.Estimate.Device, fmt.Sprintf("%.0f%%", 100*c.Utilization))
	}
	s.Note("--formula guide shows beside it what the project's own script would say.")
	return s
}
