package report

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
)

// waterfalls returns tables of the savings of each memory-saving option of the recommended choices.
func (f *Fit) waterfalls() []Sheet {
	var sheets []Sheet
	for _, c := range f.Choices {
		if c.Recommended && len(c.Waterfall) > 0 {
			sheets = append(sheets, f.waterfall(c))
		}
	}
	return sheets
}

// waterfall returns a row for each option, in the order in which they are added.
func (f *Fit) waterfall(c Choice) Sheet {
	most := max(1, largest(c.Waterfall, func(l Lever) int64 { return l.Device }))
	d, _ := find(f.Devices, c.Device)
	s := sheetIn(fmt.Sprintf("Savings of each option at batch %d on %s", c.Batch, d),
		"option | saves {}> | needs {}> | samples/s ~> | ", most)
	for i, l := range c.Waterfall {
		name, saves := l.Name, s.unit.amount(l.Saves)
		if i == 0 {
			name, saves = "without", ""
		}
		s.Row(name, saves, l.Device, formatRate(l.SamplesPerSecond),
			strings.Repeat("█", int((30*l.Device+most/2)/most)))
	}
	return s
}

// TriedCase is a case at a batch size on a GPU: a recommendation of fit, or the case of a smoke test.
type TriedCase struct {
	Case   Case
	Batch  int
	Device Device
}

// ReadFit parses a result file of fit; it returns nil for other files.
func ReadFit(data []byte) *Fit {
	var f Fit
	if json.Unmarshal(data, &f) != nil || f.Schema != FitSchema {
		return nil
	}
	for _, c := range f.Choices {
		if _, known := find(f.Devices, c.Device); !known {
			return nil
		}
	}
	return &f
}

// ReadTried parses the cases of a result of fit or smoke; other files have none. The error is an [*input.FormatError].
func ReadTried(file string, data []byte) ([]TriedCase, error) {
	var d struct {
		Schema string `json:"schema"`
		// The case of a smoke test.
		Case   Case   `json:"case"`
		Batch  int    `json:"batch"`
		Device Device `json:"device"`
		// The cases of a fit.
		Config  json.RawMessage `json:"config"`
		Devices []Device        `json:"devices"`
		Choices []Choice        `json:"choices"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, nil //nolint:nilerr // it is no file of these
	}
	var all []TriedCase
	switch d.Schema {
	default:
		return nil, nil
	case SmokeSchema:
		all = []TriedCase{{d.Case, d.Batch, d.Device}}
	case FitSchema:
		for _, c := range d.Choices {
			if c.Recommended {
				c.Case.Config = d.Config
				gpu, _ := find(d.Devices, c.Device)
				all = append(all, TriedCase{c.Case, c.Batch, gpu})
			}
		}
		if len(all) == 0 {
			return nil, input.FileErrorf(file, "no configuration of this search is safe, so none can be used; run "+
				"fit with a larger GPU or budget")
		}
	}
	for _, t := range all {
		if t.Batch < 1 || t.Batch > models.MaxBatch || t.Device.Memory <= 0 || t.Case.Model == "" {
			return nil, input.FileErrorf(file, "batch %d of %q on %q is not a complete case; run fit again to write "+
				"the file", t.Batch, t.Case.Model, t.Device.Name)
		}
	}
	return all, nil
}
