package report

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/internal/phrase"
)

// MatrixSchema names this version of the format of [Matrix].
const MatrixSchema = "vprof.matrix/v1"

// Matrix lists which cases fit which GPUs.
type Matrix struct {
	Schema  string       `json:"schema" jsonschema:"const=vprof.matrix/v1"`
	Tool    Tool         `json:"tool"`
	Started time.Time    `json:"started"`
	Name    string       `json:"name"`
	Rows    []MatrixCell `json:"rows"`
	// Notes are the assumptions behind the values.
	Notes    []string  `json:"notes,omitempty"`
	Warnings []Warning `json:"warnings,omitempty"`
	// SelectedColumns are the columns to show, with a row for each cell; empty shows cases by GPUs.
	SelectedColumns []string `json:"-"`
}

// MatrixCell is a case on a GPU.
type MatrixCell struct {
	Model string `json:"model"`
	// Case describes the case in words.
	Case string `json:"case"`
	GPU  string `json:"gpu"`
	// Device is the GPU's name in its report; Title, Host and UUID identify a measured GPU.
	Device string `json:"device"`
	Title  string `json:"title"`
	Host   string `json:"host,omitempty"`
	UUID   string `json:"uuid,omitempty"`
	Memory int64  `json:"memory_bytes"`
	// RunKind is "estimated", "simulated" or "measured".
	RunKind string `json:"run" jsonschema:"enum=estimated,enum=simulated,enum=measured"`
	// Fits is the verdict on Batch: the largest requested batch size that fits, or else the smallest.
	Fits  Verdict `json:"fits,omitempty"`
	Batch int     `json:"batch"`
	// Largest is the largest safe batch size, or the largest that ran in a sweep; zero if there is none or it was not
	// searched. Capped reports whether the search ended there, so that a larger one may be safe, too.
	Largest int  `json:"largest,omitempty"`
	Capped  bool `json:"capped,omitempty"`
	// Need are the device's bytes at Batch.
	Need Interval `json:"needs"`
	// Error is the relative error of the estimate compared with a run; absent without one.
	Error *float64 `json:"error,omitempty"`
	// Refused is the reason why the case cannot be trained, or why there is no result.
	Refused string `json:"refused,omitempty"`
}

// A matrixColumn is a column of the rows. Numbers are compared as numbers.
type matrixColumn struct {
	name   string
	text   func(MatrixCell) string
	number func(MatrixCell) float64
}

var matrixColumns = []matrixColumn{
	{"model", func(c MatrixCell) string { return c.Model }, nil},
	{"case", func(c MatrixCell) string { return c.Case }, nil},
	{"gpu", func(c MatrixCell) string { return c.GPU }, nil},
	{"device", func(c MatrixCell) string { return c.Device }, nil},
	{"host", func(c MatrixCell) string { return c.Host }, nil},
	{"uuid", func(c MatrixCell) string { return c.UUID }, nil},
	{"run", func(c MatrixCell) string { return c.RunKind }, nil},
	bytesColumn("memory", func(c MatrixCell) int64 { return c.Memory }),
	{"fits", func(c MatrixCell) string { return string(c.Fits) }, nil},
	batchColumn("batch", func(c MatrixCell) (int, bool) { return c.Batch, false }),
	batchColumn("largest", func(c MatrixCell) (int, bool) { return c.Largest, c.Capped }),
	bytesColumn("needs", func(c MatrixCell) int64 { return c.Need.Bytes }),
	bytesColumn("low", func(c MatrixCell) int64 { return c.Need.Low }),
	bytesColumn("high", func(c MatrixCell) int64 { return c.Need.High }),
	{"error", func(c MatrixCell) string {
		if c.Error == nil {
			return "-"
		}
		return fmt.Sprintf("%+.1f %%", 100**c.Error)
	}, func(c MatrixCell) float64 {
		if c.Error == nil {
			return 0
		}
		return 100 * *c.Error
	}},
	{"refused", func(c MatrixCell) string { return c.Refused }, nil},
}

func bytesColumn(name string, of func(MatrixCell) int64) matrixColumn {
	number := func(c MatrixCell) float64 { return float64(of(c)) / bytesize.GiB }
	return matrixColumn{name, func(c MatrixCell) string { return strconv.FormatFloat(number(c), 'f', 2, 64) }, number}
}

// batchColumn returns a column of numbers, with a plus sign for a lower bound.
func batchColumn(name string, of func(MatrixCell) (n int, capped bool)) matrixColumn {
	return matrixColumn{name, func(c MatrixCell) string {
		n, capped := of(c)
		return cmp.Or(phrase.If(n > 0, "%d", n)+phrase.If(capped, "+"), "-")
	}, func(c MatrixCell) float64 { n, _ := of(c); return float64(n) }}
}

// MatrixColumns returns the valid names for Columns, Sort and Filter.
func MatrixColumns() []string {
	return lists.Map(matrixColumns, func(c matrixColumn) string { return c.name })
}

func columnNamed(name string) (matrixColumn, error) {
	i := slices.IndexFunc(matrixColumns, func(c matrixColumn) bool { return c.name == name })
	if i < 0 {
		return matrixColumn{}, fmt.Errorf("there is no column %q%s (there are %s)", name,
			nearest.Hint(name, MatrixColumns(), 3), strings.Join(MatrixColumns(), ", "))
	}
	return matrixColumns[i], nil
}

// Columns selects the columns of the table with a row for each cell.
func (m *Matrix) Columns(names []string) error {
	for _, name := range names {
		if _, err := columnNamed(name); err != nil {
			return err
		}
	}
	m.SelectedColumns = names
	return nil
}

// Sort sorts the rows by columns, the first column first; a - before a name sorts from the largest down.
func (m *Matrix) Sort(names []string) error {
	for _, name := range slices.Backward(names) { // stable, so that the first decides
		bare, down := strings.CutPrefix(name, "-")
		c, err := columnNamed(bare)
		if err != nil {
			return err
		}
		order := func(a, b MatrixCell) int { return cmp.Compare(c.text(a), c.text(b)) }
		if c.number != nil {
			order = func(a, b MatrixCell) int { return cmp.Compare(c.number(a), c.number(b)) }
		}
		slices.SortStableFunc(m.Rows, func(a, b MatrixCell) int {
			if down {
				a, b = b, a
			}
			return order(a, b)
		})
	}
	return nil
}

// filterOperators of conditions, the longer ones first, with the results of [cmp.Compare] that meet them.
var filterOperators = []struct {
	sign string
	meet []int
}{{"!=", []int{-1, 1}}, {"<=", []int{-1, 0}}, {">=", []int{0, 1}}, {"=", []int{0}}, {"<", []int{-1}}, {">", []int{1}}}

// Filter keeps the rows that meet all conditions: COLUMN=PATTERN and COLUMN!=PATTERN, where * matches anything, and
// COLUMN<NUMBER and the like for numbers; bytes are compared in GiB.
func (m *Matrix) Filter(conditions []string) error {
	for _, text := range conditions {
		meets, err := parseCondition(text)
		if err != nil {
			return err
		}
		m.Rows = slices.DeleteFunc(m.Rows, func(c MatrixCell) bool { return !meets(c) })
	}
	return nil
}

func parseCondition(text string) (func(MatrixCell) bool, error) {
	at, op, meet := len(text), "", []int(nil)
	for _, o := range filterOperators {
		if i := strings.Index(text, o.sign); i >= 0 && i < at {
			at, op, meet = i, o.sign, o.meet
		}
	}
	if op == "" {
		return nil, fmt.Errorf("invalid condition %q: write it like gpu=a100* or needs<16", text)
	}
	name, want := strings.TrimSpace(text[:at]), strings.TrimSpace(text[at+len(op):])
	c, err := columnNamed(name)
	if err != nil {
		return nil, err
	}
	if c.number == nil {
		if _, err := path.Match(want, ""); err != nil || op != "=" && op != "!=" {
			return nil, fmt.Errorf("%q: %s holds text; compare it with = or != and a pattern like a100*", text, name)
		}
		return func(cell MatrixCell) bool {
			ok, _ := path.Match(want, c.text(cell))
			return ok == (op == "=")
		}, nil
	}
	n, err := strconv.ParseFloat(want, 64)
	if err != nil {
		return nil, fmt.Errorf("%q: %q is not a number; write a condition like needs<16", text, want)
	}
	return func(cell MatrixCell) bool { return slices.Contains(meet, cmp.Compare(c.number(cell), n)) }, nil
}

// Sheets returns the tables of the report, for [Document].
func (m *Matrix) Sheets() []Sheet {
	if len(m.SelectedColumns) > 0 {
		return []Sheet{m.listSheet()}
	}
	return []Sheet{m.gridSheet()}
}

// listSheet returns a row for each cell.
func (m *Matrix) listSheet() Sheet {
	s := Sheet{Title: m.Name, Notes: m.notes()}
	var of []matrixColumn
	for _, name := range m.SelectedColumns {
		c, err := columnNamed(name)
		if err != nil {
			panic(err) // Columns has checked them
		}
		head := name
		head += phrase.If(slices.Contains([]string{"memory", "needs", "low", "high"}, name), " GiB")
		of = append(of, c)
		s.Columns = append(s.Columns, Column{Head: head, Right: c.number != nil})
	}
	for _, r := range m.Rows {
		row := lists.Map(of, func(c matrixColumn) string { return c.text(r) })
		s.Row(row)
	}
	return s
}

// Grid returns a cell of each GPU, and for each case its cells in the order of the GPUs, zero for missing ones.
func (m *Matrix) Grid() (gpus []MatrixCell, cases [][]MatrixCell) {
	for _, of := range lists.Groups(m.Rows, func(r MatrixCell) string { return r.Device }) {
		gpus = append(gpus, of[0])
	}
	for _, of := range lists.Groups(m.Rows, func(r MatrixCell) [2]string { return [2]string{r.Model, r.Case} }) {
		row := make([]MatrixCell, len(gpus))
		for _, r := range of {
			row[slices.IndexFunc(gpus, func(g MatrixCell) bool { return g.Device == r.Device })] = r
		}
		cases = append(cases, row)
	}
	return gpus, cases
}

// Column returns the head of the cell's column: the GPU's model, or the device if it is a particular GPU.
func (c MatrixCell) Column() string {
	if c.UUID != "" || c.Host != "" {
		return c.Device
	}
	return c.GPU
}

// gridSheet returns a row for each case and a column for each GPU.
func (m *Matrix) gridSheet() Sheet {
	notes := phrase.List{"batch (largest safe batch): GiB needed at batch."}
	notes.AddTexts(append([]string{legend(m.usedSigns())}, m.notes()...)...)
	s := Sheet{Title: m.Name, Columns: Columns("model | case"), Notes: notes}
	gpus, cases := m.Grid()
	for _, g := range gpus {
		memory := fmt.Sprintf("%.1f GiB", float64(g.Memory)/bytesize.GiB)
		s.Columns = append(s.Columns, Column{Head: memory, Group: g.Column(), Right: true})
	}
	for _, cells := range cases {
		of, _ := lists.First(cells, func(c MatrixCell) bool { return c.Model != "" })
		s.Row(of.Model, of.Case, lists.Map(cells, MatrixCell.String))
	}
	return s
}

func (m *Matrix) usedSigns() (signs []string) {
	for _, c := range m.Rows {
		if c.Refused != "" {
			signs = append(signs, refusedCell)
			continue
		}
		signs = append(signs, c.Fits.mark(), phrase.If(c.Capped, "+"))
	}
	return signs
}

// simulated names the GPUs whose runs were simulated; empty if there are none.
func (m *Matrix) simulated() string {
	var gpus []string
	for _, c := range m.Rows {
		if c.RunKind == "simulated" {
			gpus = lists.Union(gpus, c.Device)
		}
	}
	switch {
	case len(gpus) == 0:
		return ""
	case !slices.ContainsFunc(m.Rows, func(c MatrixCell) bool { return c.RunKind == measured }):
		return "all runs were simulated; no GPU was used."
	}
	return "simulated, not measured: " + strings.Join(gpus, ", ") + "."
}

// String formats the cell with few characters, "64 (97): 10.31"; empty for the zero value.
func (c MatrixCell) String() string {
	switch {
	case c.Refused != "":
		return refusedCell
	case c == MatrixCell{}:
		return ""
	}
	return strconv.Itoa(c.Batch) + phrase.If(c.Largest > 0, " (%d%s)", c.Largest, phrase.If(c.Capped, "+")) +
		fmt.Sprintf(": %.2f", float64(c.Need.Bytes)/bytesize.GiB) + c.Fits.mark()
}

func (m *Matrix) notes() []string {
	notes := phrase.List(slices.Clone(m.Notes))
	notes.AddTexts(m.simulated())
	refused := lists.Filter(m.Rows, func(r MatrixCell) bool { return r.Refused != "" })
	for i, of := range lists.Groups(refused, func(r MatrixCell) string { return r.Refused }) {
		notes.If(i < 5, "x %s, %s on %s: %s", of[0].Model, of[0].Case, of[0].GPU, of[0].Refused)
	}
	return append(notes, warningNotes(m.Warnings)...)
}

// Data returns the values that JSON files hold, for [Document].
func (m *Matrix) Data() Data {
	lines := make([]any, len(m.Rows))
	for i, r := range m.Rows {
		lines[i] = struct {
			Schema string `json:"schema"`
			MatrixCell
		}{m.Schema, r}
	}
	return Data{lines, Rows(`model case gpu device board=title host board_uuid=uuid board_memory_bytes=memory_bytes run
		fits batch largest needs_bytes needs_low_bytes needs_high_bytes error refused`, m.Rows)}
}

// Cell returns a report of one device as a cell: the run of a sweep, or the estimate of a plan.
func (r *Report) Cell() MatrixCell {
	c := MatrixCell{Model: r.Case.Model, Case: r.Case.PrecisionAndCheckpointing(), RunKind: "estimated"}
	if len(r.Devices) > 0 {
		d := r.Devices[0]
		c.GPU, c.Device, c.Title, c.Host, c.UUID, c.Memory = d.GPU, d.Name, d.Title, d.Host, d.UUID, d.Memory
		if r.Kind == Sweep {
			c.RunKind = d.Kind()
		}
	}
	if r.Largest != nil {
		c.Largest = r.Largest.Batch
	}
	if len(r.Points) == 0 {
		c.Refused = "no batch size ran"
		return c
	}
	best, ok := lists.Largest(r.Points, Point.FittingBatch)
	if !ok {
		best = r.Points[0]
	}
	c.Batch, c.Fits = best.Batch, best.Verdict()
	switch {
	case best.Run != nil && best.Run.Fits:
		needed := best.Run.Device
		c.Need = Interval{needed, needed, needed}
		if share, ok := best.Error(); ok {
			c.Error = &share
		}
	case best.Estimate != nil:
		c.Need = best.Estimate.Device
	}
	return c
}

// PrecisionAndCheckpointing describes how the case trains its model: precision, checkpointing and other settings.
func (c Case) PrecisionAndCheckpointing() string {
	return strings.TrimPrefix(strings.TrimPrefix(c.String(), c.Model), ", ")
}
