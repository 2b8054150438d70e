package report

import (
	"encoding/json"
	"fmt"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
)

// Tried is a case at a batch size on a board: what a fit recommends, or what a smoke test is of.
type Tried struct {
	Case   Case
	Batch  int
	Device Device
}

// ReadTried reads what a file of fit or of smoke was about; none of a file of another kind. File is its name for
// errors, which are [*input.FormatError].
func ReadTried(file string, data []byte) ([]Tried, error) {
	var d struct {
		Schema string `json:"schema"`
		// Of a smoke test.
		Case   Case   `json:"case"`
		Batch  int    `json:"batch"`
		Device Device `json:"device"`
		// Of a fit.
		Config  json.RawMessage `json:"config"`
		Devices []Device        `json:"devices"`
		Choices []Choice        `json:"choices"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, nil //nolint:nilerr // it is no file of these
	}
	var all []Tried
	switch d.Schema {
	default:
		return nil, nil
	case SmokeSchema:
		all = []Tried{{d.Case, d.Batch, d.Device}}
	case FitSchema:
		boards := map[string]Device{}
		for _, b := range d.Devices {
			boards[b.Name] = b
		}
		for _, c := range d.Choices {
			if c.Recommended {
				c.Case.Config = d.Config
				all = append(all, Tried{c.Case, c.Batch, boards[c.Device]})
			}
		}
		if len(all) == 0 {
			return nil, &input.FormatError{
				File: file, Reason: "no configuration of the search is safe, so none is recommended",
			}
		}
	}
	for _, t := range all {
		if t.Batch < 1 || t.Batch > models.MaxBatch || t.Device.Memory <= 0 || t.Case.Model == "" {
			return nil, &input.FormatError{
				File: file,
				Reason: fmt.Sprintf("batch %d of %q on %q is no case that was tried", t.Batch, t.Case.Model,
					t.Device.Name),
			}
		}
	}
	return all, nil
}
