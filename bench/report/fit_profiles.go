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
	s := Sheet{Title: "by the formula of the project's own script", Columns: Columns("MiB")}
	names := []string{"batch", "micro-batches", "effective"}
	for _, c := range f.Guide[0].Components {
		names = append(names, c.Name)
	}
	names = append(names, "total", "total GB", "use", "true need of this batch", "true largest batch")
	for _, n := range names {
		s.Rows = append(s.Rows, []string{n})
	}
	for _, g := range f.Guide {
		s.Columns = append(s.Columns, Column{Head: g.Profile, Right: true})
		cells := []string{strconv.Itoa(g.Batch), strconv.Itoa(g.Accumulate), strconv.Itoa(g.EffectiveBatch)}
		for _, c := range g.Components {
			cells = append(cells, fmt.Sprintf("%.1f", float64(c.Bytes)/bytesize.MiB))
		}
		need, largest := "-", "-"
		if g.True != nil {
			need, largest = fmt.Sprintf("%.1f", float64(g.True.Device.Bytes)/bytesize.MiB), strconv.Itoa(g.TrueLargest)
		}
		cells = append(cells, fmt.Sprintf("%.1f", float64(g.Total)/bytesize.MiB),
			fmt.Sprintf("%.2f", float64(g.Total)/bytesize.GiB),
			fmt.Sprintf("%.1f%%", 100*g.Utilization), need, largest)
		for i, cell := range cells {
			s.Rows[i] = append(s.Rows[i], cell)
		}
	}
	return s
}

// profilesSheet has a row for each part of the curriculum.
func (f *Fit) profilesSheet() Sheet {
	s := Sheet{Title: "the parts of the project's curriculum, as its authors train them"}
	var high []int64
	for _, p := range f.Profiles {
		high = append(high, p.Choice.Estimate.Device.High)
	}
	unit := columnOf(high...)
	s.Columns = Columns("profile")
	settings := slices.Sorted(maps.Keys(f.Profiles[0].Settings))
	for _, name := range settings {
		s.Columns = append(s.Columns, Column{Head: name, Right: true})
	}
	s.Columns = append(s.Columns, unit.columns("batch> | micro-batches> | effective> | device {}> | use>")...)
	for _, p := range f.Profiles {
		c := p.Choice
		batch, steps, effective := "none fits", "-", "-"
		if c.Batch > 0 {
			batch, steps, effective = strconv.Itoa(c.Batch), strconv.Itoa(c.Case.Accumulate),
				strconv.Itoa(c.EffectiveBatch)
		}
		row := []string{p.Name}
		for _, name := range settings {
			row = append(row, strconv.FormatInt(p.Settings[name], 10))
		}
		s.Rows = append(s.Rows, append(row, batch, steps, effective, unit.interval(c.Estimate.Device),
			fmt.Sprintf("%.0f%%", 100*c.Utilization)))
	}
	s.Notes = []string{"--formula guide shows beside it what the project's own script would say."}
	return s
}
