package report

import (
	"cmp"
	"fmt"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// ComparisonSchema names the format of a comparison.
const ComparisonSchema = "vprof.comparison/v1"

// Comparison is the comparison of two files, step by step.
type Comparison struct {
	Schema string `json:"schema" jsonschema:"const=vprof.comparison/v1"`
	Tool   Tool   `json:"tool"`
	// A and B are the labels of the files.
	A string `json:"a"`
	B string `json:"b"`
	// Tolerance is the largest relative difference that counts as none.
	Tolerance float64         `json:"tolerance"`
	Rows      []ComparisonRow `json:"rows"`
	// Over is the number of rows that differ by more than the tolerance.
	Over int `json:"over"`
	// OnlyA and OnlyB are steps that the other file does not have.
	OnlyA     []string          `json:"only_a,omitempty"`
	OnlyB     []string          `json:"only_b,omitempty"`
	Snapshots []SnapshotSummary `json:"snapshots,omitempty"`
	// Changes are the settings in which A and B differ if both train the same model, in the order of application.
	Changes []Change `json:"changes,omitempty"`
}

// Change is a setting in which two steps differ, and its cost.
type Change struct {
	// Field is the setting's name in tables; A and B are its values, empty if the model decides.
	Field string `json:"field"`
	A     string `json:"a"`
	B     string `json:"b"`
	// Device is the number of device bytes that B's value adds, simulated after the preceding changes; absent if that
	// cannot be simulated.
	Device *int64 `json:"device_bytes,omitempty"`
}

func (c Change) String() string {
	cost := "?"
	if c.Device != nil {
		cost = signedBytes(*c.Device)
	}
	return fmt.Sprintf("%s: %s %s -> %s", cost, c.Field, cmp.Or(c.A, "default"), cmp.Or(c.B, "default"))
}

// ComparisonRow is one count of bytes of one step in both files.
type ComparisonRow struct {
	Step string `json:"step"`
	// Count is "allocated", "reserved" or "device".
	Count string `json:"count"`
	A     int64  `json:"a_bytes"`
	B     int64  `json:"b_bytes"`
	KindA string `json:"a_kind"`
	KindB string `json:"b_kind"`
	GPUA  string `json:"a_gpu,omitempty"`
	GPUB  string `json:"b_gpu,omitempty"`
	// The releases of PyTorch; absent for a snapshot.
	TorchA string `json:"a_torch,omitempty"`
	TorchB string `json:"b_torch,omitempty"`
	// Difference is B minus A, relative to A.
	Difference float64 `json:"difference"`
	Over       bool    `json:"over"`
}

// MemoryCounts are the peaks of a step in bytes; zero is unknown.
type MemoryCounts struct {
	GPU, Torch, Kind            string
	Allocated, Reserved, Device int64
}

// SnapshotSummary summarizes a memory snapshot of PyTorch.
type SnapshotSummary struct {
	Label     string `json:"label"`
	Allocated int64  `json:"allocated_bytes"`
	Requested int64  `json:"requested_bytes"`
	Reserved  int64  `json:"reserved_bytes"`
	// Events is the number of events that the peaks are computed from; with none, the
	// peaks are the amounts at the time of the snapshot.
	Events int `json:"events"`
	// OOMs counts failed allocations.
	OOMs        int   `json:"ooms"`
	Free        int64 `json:"free_bytes"`
	LargestFree int64 `json:"largest_free_bytes"`
	// Fragmentation is the share of Free outside the largest free block.
	Fragmentation float64 `json:"fragmentation"`
	Segments      int     `json:"segments"`
	// Categories are the blocks in use by purpose, as their stacks suggest.
	Categories []Component `json:"categories"`
	// Largest are the largest blocks in use, by the line that allocated them.
	Largest []Component `json:"largest"`
}

// Match adds the rows of a step that both files have.
func (c *Comparison) Match(a, b MemoryCounts, step string) {
	for _, count := range []struct {
		name string
		a, b int64
	}{{"allocated", a.Allocated, b.Allocated}, {"reserved", a.Reserved, b.Reserved}, {"device", a.Device, b.Device}} {
		if count.a == 0 || count.b == 0 {
			continue
		}
		d := float64(count.b-count.a) / float64(count.a)
		row := ComparisonRow{
			Step: step, Count: count.name, A: count.a, B: count.b, KindA: a.Kind, KindB: b.Kind, GPUA: a.GPU,
			GPUB: b.GPU, TorchA: a.Torch, TorchB: b.Torch,
			Difference: d, Over: max(d, -d) > c.Tolerance,
		}
		if row.Over {
			c.Over++
		}
		c.Rows = append(c.Rows, row)
	}
}

// Sheets returns the tables of the report, for [Document].
func (c *Comparison) Sheets() []Sheet {
	s := sheetIn("", "step | count | > | > | difference> | relative> | verdict",
		largest(c.Rows, func(r ComparisonRow) int64 { return max(r.A, r.B) }))
	s.Columns[2].Head, s.Columns[3].Head = s.unit.head(c.A), s.unit.head(c.B)
	before := ""
	for _, r := range c.Rows {
		step, verdict := r.Step, "same"
		if step == before {
			step = ""
		}
		before = r.Step
		switch {
		case r.Over:
			verdict = "over"
		case r.A != r.B:
			verdict = "within"
		}
		s.Row(step, r.Count, r.A, r.B, signedBytes(r.B-r.A), fmt.Sprintf("%+.2f %%", 100*r.Difference), verdict)
	}
	if len(c.Rows) > 0 {
		r := c.Rows[0]
		withA, withB := "", ""
		if r.TorchA != r.TorchB && r.TorchA != "" && r.TorchB != "" {
			withA, withB = " with PyTorch "+r.TorchA, " with PyTorch "+r.TorchB
		}
		s.Notes.Add("%s is %s, %s is %s; %d of %d rows differ by more than %.4g %%.", c.A,
			kindText(r.KindA, r.GPUA)+withA, c.B, kindText(r.KindB, r.GPUB)+withB, c.Over, len(c.Rows), 100*c.Tolerance)
	}
	for _, change := range c.Changes {
		s.Notes = append(s.Notes, change.String())
	}
	s.Notes.If(len(c.Changes) > 0, "costs are simulated device bytes, one change after the other.")
	s.Notes = append(s.Notes, onlyIn(c.A, c.OnlyA)...)
	s.Notes = append(s.Notes, onlyIn(c.B, c.OnlyB)...)
	return append([]Sheet{s}, lists.Map(c.Snapshots, SnapshotSummary.sheet)...)
}

func kindText(kind, gpu string) string {
	if gpu == "" {
		return "a " + kind
	}
	return kind + " on " + gpu
}

func onlyIn(label string, steps []string) []string {
	if len(steps) == 0 {
		return nil
	}
	more := phrase.If(len(steps) > 1, " and %d more", len(steps)-1)
	return []string{"only in " + label + ": " + steps[0] + more + "."}
}

func signedBytes(n int64) string {
	if n < 0 {
		return "-" + bytesize.Format(-n)
	}
	return "+" + bytesize.Format(n)
}

func (s SnapshotSummary) sheet() Sheet {
	out := Sheet{Title: "snapshot " + s.Label, Columns: Columns("in use | bytes>"), Totals: 2}
	for _, c := range s.Categories {
		out.Row(c.Name, c.Bytes)
	}
	out.Row("allocated", s.Allocated)
	out.Row("reserved", s.Reserved)
	out.Notes.Add("%s of the cache are free, the largest block has %s (fragmentation %.0f %%), in %d segments.",
		bytesize.Format(s.Free), bytesize.Format(s.LargestFree), 100*s.Fragmentation, s.Segments)
	out.Notes.If(s.Events == 0, "no events were recorded, so its peaks are the bytes at the time of the snapshot; "+
		"torch.cuda.memory._record_memory_history() records them.")
	out.Notes.If(s.OOMs > 0, "%d allocations ran out of memory.", s.OOMs)
	for i, b := range s.Largest {
		out.Notes.If(b.Name != "" && i < 5, "%s at %s.", bytesize.Format(b.Bytes), b.Name)
	}
	return out
}

// Data returns the values that JSON files hold, for [Document].
func (c *Comparison) Data() Data {
	return Data{
		jsonLines(*c, func(c *Comparison) *[]ComparisonRow { return &c.Rows }),
		Rows("step count a a_kind a_gpu a_torch a_bytes b b_kind b_gpu b_torch b_bytes difference over", c.Rows, c),
	}
}
