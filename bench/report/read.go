package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/jsonkeys"
	"github.com/vprof/vprof/internal/lists"
)

// maxFileBytes is the largest size of a file of reports, in bytes: some thirty thousand batch sizes. Decoded, it may
// take twenty times as much memory.
const maxFileBytes = 64 << 20

// Read reads the reports of a file: one JSON value, one a line, or a list. Lines of one report are joined again. file
// names the file in errors, which are [*input.FormatError].
func Read(file string, r io.Reader) ([]*Report, error) {
	var reports []*Report
	bounded := &io.LimitedReader{R: r, N: maxFileBytes}
	d := json.NewDecoder(bounded)
	for n := 1; ; {
		next, err := decodeValues(d)
		if errors.Is(err, io.EOF) {
			break
		}
		if bounded.N <= 0 {
			return nil, &input.FormatError{File: file, Reason: fmt.Sprintf("longer than %d MiB", maxFileBytes>>20)}
		}
		if err != nil {
			return nil, notAReport(file, n, err)
		}
		for _, text := range next {
			var one Report
			if err = json.Unmarshal(text, &one); err == nil {
				err = one.check()
			}
			if err != nil {
				return nil, notAReport(file, n, err)
			}
			// Reports that are older than the hash of cases have only the description.
			one.Case.ConfigHash = one.Case.Description().Hash()
			reports = joinRanks(reports, &one)
			n++
		}
	}
	if len(reports) == 0 {
		return nil, &input.FormatError{File: file, Reason: "is empty; make one with \"vprof sweep --export run.json\""}
	}
	for _, r := range reports {
		if err := r.checkPoints(); err != nil {
			return nil, &input.FormatError{File: file, Reason: err.Error()}
		}
	}
	return reports, nil
}

func notAReport(file string, n int, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the file ends in the middle of it; write or copy the file again")
	}
	return &input.FormatError{File: file, Reason: fmt.Sprintf("value %d is not a %s report: %v", n, Schema, err)}
}

var schemaText = regexp.MustCompile(`"(vprof\.[a-z-]+/v\d+)"`)

// schemaReaders describes files by their schema, with what reads them.
var schemaReaders = map[string]string{
	"vprof.program/v1": ", a recorded run; name it as a model: --model FILE",
	FitSchema:          ", a result of fit, which vprof report shows",
}

// SchemaNote names the schema in the head of a JSON file and what reads such a file; it is empty without a schema.
func SchemaNote(name string, head []byte) string {
	if strings.HasSuffix(name, ".vprof") { // compressed
		head = []byte(`"vprof.program/v1"`)
	}
	if found := schemaText.FindSubmatch(head); found != nil {
		return fmt.Sprintf(" (the file has the schema %s%s)", found[1], schemaReaders[string(found[1])])
	}
	return ""
}

// decode reads the next value of a file. A repeated key is an error.
func decode(d *json.Decoder, v any) error {
	var text json.RawMessage
	if err := d.Decode(&text); err != nil {
		return err
	}
	if err := jsonkeys.CheckUnique(text); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// decodeValues reads the next value of a file, or the elements of a list: reports, or [Ranks].
func decodeValues(d *json.Decoder) ([]json.RawMessage, error) {
	var text json.RawMessage
	if err := decode(d, &text); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		return []json.RawMessage{text}, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	for i, element := range list {
		var rank struct{ Plan json.RawMessage }
		if json.Unmarshal(element, &rank) == nil && rank.Plan != nil {
			list[i] = rank.Plan
		}
	}
	return list, nil
}

// AreRanks reports whether each report is the plan of a rank, all of one case.
func AreRanks(reports []*Report) bool {
	if len(reports) < 2 {
		return false
	}
	whole := func(c Case) Case {
		if c.Strategy != nil {
			s := *c.Strategy
			s.Rank = nil
			c.Strategy = &s
		}
		return c
	}
	return !slices.ContainsFunc(reports, func(r *Report) bool {
		return r.Case.Strategy == nil || r.Case.Strategy.Rank == nil || !whole(r.Case).Same(whole(reports[0].Case))
	})
}

// joinRanks appends a report to a list. If both are lines of one report, it joins their points.
func joinRanks(reports []*Report, r *Report) []*Report {
	if n := len(reports); n > 0 {
		last := reports[n-1]
		if last.Kind == r.Kind && last.Started.Equal(r.Started) && last.Case.Same(r.Case) && last.isSameSweep(r) {
			for _, d := range r.Devices {
				if _, known := last.Find(d.Name); !known {
					last.Devices = append(last.Devices, d)
				}
			}
			last.Points = append(last.Points, r.Points...)
			return reports
		}
	}
	return append(reports, r)
}

// isSameSweep reports whether devices with the same name are the same device in two reports.
func (r *Report) isSameSweep(other *Report) bool {
	return !slices.ContainsFunc(other.Devices, func(d Device) bool {
		known, ok := r.Find(d.Name)
		return ok && known.identity() != d.identity()
	})
}

// compact removes white space from JSON.
func compact(text json.RawMessage) []byte {
	var b bytes.Buffer
	if len(text) == 0 {
		return nil
	}
	if json.Compact(&b, text) != nil {
		return text
	}
	return b.Bytes()
}

// Batches returns the batch sizes of the points, ascending.
func (r *Report) Batches() []int {
	sizes := lists.Map(r.Points, func(p Point) int { return p.Batch })
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// Components returns the parts of the device's memory: the components of the estimate, which sum to its device bytes,
// or else the classes of the run.
func (p Point) Components() []Component {
	if p.Estimate != nil {
		return p.Estimate.Components
	}
	return p.Run.Classes
}
