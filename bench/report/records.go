package report

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Lines are reports of one point each, so that files of lines can be cut and
// put together freely.
func (r *Report) Lines() []any {
	lines := make([]any, len(r.Points))
	for i, p := range r.Points {
		line := *r
		line.Points = []Point{p}
		line.Stopped = nil
		line.Devices = nil
		if d, ok := r.Find(p.Device); ok {
			line.Devices = []Device{d}
		}
		lines[i] = line
	}
	return lines
}

// ranksRecord are the number of ranks, their strategy and the one that is shown; empty for
// one GPU, and the last for the rank that needs most.
func (c Case) ranksRecord() []string {
	if c.Strategy == nil {
		return []string{"", "", ""}
	}
	s, rank := *c.Strategy, ""
	if s.Rank != nil {
		rank, s.Rank = strconv.FormatInt(*s.Rank, 10), nil
	}
	return []string{strconv.Itoa(c.GPUs), s.String(), rank}
}

// Records are the points with everything that a spreadsheet can use, one a
// row. Cells of what a point does not have are empty.
func (r *Report) Records() [][]string {
	head := []string{
		"model", "task", "stage", "amp", "weights", "checkpointing", "accumulate", "optimizer", "lora", "settings",
		"alloc_conf", "batch", "device",
		"estimate_allocated_bytes", "estimate_allocated_low_bytes", "estimate_allocated_high_bytes",
		"estimate_reserved_bytes", "estimate_reserved_low_bytes", "estimate_reserved_high_bytes",
		"estimate_device_bytes", "estimate_device_low_bytes", "estimate_device_high_bytes",
		"estimate_peak_phase", "estimate_verdict", "estimate_interpolated",
	}
	components := r.componentNames()
	for _, name := range components {
		head = append(head, "estimate_"+strings.ReplaceAll(name, " ", "_")+"_bytes")
	}
	if r.Kind == Sweep {
		head = append(head, "run", "run_fits", "run_requested_bytes", "run_allocated_bytes", "run_reserved_bytes",
			"run_device_bytes",
			"run_peak_phase", "run_retries", "oom_phase", "oom_op", "oom_class", "oom_want_bytes",
			"device_error", "step_seconds", "samples_per_second",
			"run_context_bytes", "run_kernels_bytes", "run_others_bytes", "run_process_bytes")
	}
	rows := [][]string{append(head, "dataset_bytes", "streamed_device_bytes",
		"claim_of", "claim_low_bytes", "claim_high_bytes", "claim_source",
		"gpu", "board", "board_memory_bytes", "board_uuid", "board_mig", "host", "driver", "cuda", "run_at", "gpus",
		"strategy", "rank")}
	for _, p := range r.Points {
		row := []string{
			r.Case.Model, r.Case.Task, r.Case.Stage, r.Case.AMP.String(), r.Case.Weights.String(),
			strconv.FormatBool(r.Case.Checkpointing), strconv.Itoa(r.Case.Accumulate),
			r.Case.Optimizer, r.Case.LoRA.String(), strings.Join(r.Case.Settings.Words(), " "), r.Case.AllocConf,
			strconv.Itoa(p.Batch), p.Device,
		}
		row = append(row, p.Estimate.record(len(components))...)
		if r.Kind == Sweep {
			row = append(row, p.Run.record()...)
			row = append(row, p.timing()...)
		}
		rows = append(rows, slices.Concat(row, r.dataset(p), p.claimRecord(), r.boardRecord(p), r.Case.ranksRecord()))
	}
	return rows
}

// boardRecord are the cells of which board a point is of, and when it ran.
func (r *Report) boardRecord(p Point) []string {
	d, _ := r.Find(p.Device)
	at := ""
	if p.Run != nil && !p.Run.At.IsZero() {
		at = p.Run.At.UTC().Format(time.RFC3339)
	}
	mig := ""
	if d.UUID != "" {
		mig = strconv.FormatBool(d.MIG)
	}
	return []string{d.GPU, d.Title, integer(d.Memory), d.UUID, mig, d.Host, d.Driver, d.CUDA, at}
}

// componentNames are the names of the components of every estimate, which has
// them all, in one order.
func (r *Report) componentNames() []string {
	var names []string
	for _, p := range r.Points {
		if p.Estimate == nil {
			continue
		}
		for _, c := range p.Estimate.Components {
			names = append(names, c.Name)
		}
		break
	}
	return names
}

func (e *Estimate) record(components int) []string {
	if e == nil {
		return make([]string, 12+components)
	}
	var cells []string
	for _, i := range []Interval{e.Allocated, e.Reserved, e.Device} {
		cells = append(cells, integer(i.Bytes), integer(i.Low), integer(i.High))
	}
	cells = append(cells, e.PeakPhase, string(e.Verdict), strconv.FormatBool(e.Interpolated))
	for _, c := range e.Components {
		cells = append(cells, integer(c.Bytes))
	}
	return cells
}

func (u *Run) record() []string {
	if u == nil {
		return make([]string, 12)
	}
	kind := "measured"
	if u.Simulated {
		kind = "simulated"
	}
	cells := []string{
		kind, strconv.FormatBool(u.Fits), integer(u.Requested), integer(u.Allocated), integer(u.Reserved),
		integer(u.Device),
		u.PeakPhase, integer(u.Retries), "", "", "", "",
	}
	if o := u.OOM; o != nil {
		copy(cells[8:], []string{o.Phase, o.Op, o.Class, integer(o.Want)})
	}
	return cells
}

// timing are the cells of what a run shows besides peaks.
func (p Point) timing() []string {
	cells := make([]string, 7)
	if share, ok := p.Error(); ok {
		cells[0] = number(share)
	}
	if p.Run == nil {
		return cells
	}
	if t := p.Run.Step; t != nil {
		cells[1], cells[2] = number(t.Seconds), number(t.SamplesPerSecond)
	}
	for i, bytes := range []int64{p.Run.Context, p.Run.Kernels, p.Run.Others, p.Run.Process} {
		cells[3+i] = integer(bytes)
	}
	return cells
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

func integer(n int64) string { return strconv.FormatInt(n, 10) }
