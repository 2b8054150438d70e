// Package compare compares the training steps of two files: reports, reference records or memory snapshots.
package compare

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/bench/observe/snapshot"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
)

// A ComparedFile is one of the two files of a comparison.
type ComparedFile struct {
	Label string
	// Steps are the training steps of the file.
	Steps []StepMemory
	// Snapshot is the summary of a memory snapshot; nil for other files.
	Snapshot *snapshot.Summary
}

// StepMemory are the peaks of one training step.
type StepMemory struct {
	report.MemoryCounts
	// Subject names the step. Steps of both sides are compared if they have the same subject. It is empty for a
	// snapshot, which does not record what was trained.
	Subject string
	// AnyRelease is Subject without the release of PyTorch. Steps are compared by it if each side has one release.
	AnyRelease string
	// Script reports whether the step comes from "vprof run". Two such steps are compared whatever their subjects are.
	Script bool
	// Case is the trained case; its model is empty if the file names none.
	Case  models.Case
	Batch int
	// Identity is the name of the physical GPU, and UUID the driver's identifier; empty if the file lacks them.
	Identity, UUID string
}

// Read reads a report (its runs or, without runs, its estimates), reference records, or a PyTorch memory snapshot.
func Read(r io.Reader, name, label string) (*ComparedFile, error) {
	head := make([]byte, 4096)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	head = head[:n]
	whole := io.MultiReader(strings.NewReader(string(head)), r)
	side := &ComparedFile{Label: label}
	switch {
	case snapshot.IsSnapshot(head):
		err = side.addSnapshot(whole, name)
	case strings.Contains(string(head), `"`+reference.Schema+`"`):
		err = side.addReference(whole, name)
	case strings.Contains(string(head), `"`+report.Schema+`"`):
		err = side.addReports(whole, name)
	case strings.Contains(string(head), `"`+report.SmokeSchema+`"`):
		err = side.addSmokeTest(whole, name)
	default:
		err = input.FileErrorf(name, "unknown format: need a result of vprof plan, sweep, run or smoke, reference "+
			"records or a memory snapshot of PyTorch%s", report.SchemaNote(name, head))
	}
	if err != nil {
		return nil, err
	}
	if len(side.Steps) == 0 {
		return nil, &input.FormatError{File: name, Reason: "has no training step that got through"}
	}
	return side, nil
}

func (s *ComparedFile) addSnapshot(r io.Reader, name string) error {
	shot, err := snapshot.Read(r, name)
	if err != nil {
		return err
	}
	sum, err := shot.SummarizeOnlyDevice(name)
	if err != nil {
		return err
	}
	s.Snapshot = &sum
	kind := "snapshot"
	if shot.SimulatedBy != "" {
		kind = "simulated snapshot"
	}
	s.Steps = []StepMemory{{MemoryCounts: report.MemoryCounts{
		Kind: kind, Allocated: sum.PeakAllocated,
		Reserved: sum.PeakReserved,
	}}}
	return nil
}

func (s *ComparedFile) addReference(r io.Reader, name string) error {
	f, err := reference.Read(r, name)
	if err != nil {
		return err
	}
	for i := range f.Records {
		rec := &f.Records[i]
		if rec.Status == reference.StatusOK {
			a := stepOf(rec.Case, rec.Batch, rec.GPU)
			a.Kind, a.Allocated, a.Reserved, a.Device = "reference", rec.PeakAllocated, rec.PeakReserved, rec.PeakDevice
			s.Steps = append(s.Steps, a)
		}
	}
	return nil
}

func (s *ComparedFile) addReports(r io.Reader, name string) error {
	reports, err := report.Read(name, r)
	if err != nil {
		return err
	}
	report.NameDevices(reports...)
	for _, r := range reports {
		for _, p := range r.Points {
			d, _ := r.Find(p.Device)
			a := stepOf(r.Case.Case, p.Batch, d.GPU)
			if r.Script != nil { // whose precision and batch nobody knows
				a.Subject, a.AnyRelease = r.Case.Model, r.Case.Model
			}
			a.Identity, a.UUID = d.Name, d.UUID
			a.Script = r.Script != nil || strings.HasPrefix(r.Case.Model, "vprof:")
			switch {
			case p.Run != nil && p.Run.Fits:
				a.Kind, a.Allocated, a.Reserved, a.Device = p.Run.Kind(), p.Run.Allocated, p.Run.Reserved, p.Run.Device
			case p.Run == nil && p.Estimate != nil:
				e := p.Estimate
				a.Kind, a.Allocated = "estimate", e.Allocated.Bytes
				a.Reserved, a.Device = e.Reserved.Bytes, e.Device.Bytes
			default:
				continue
			}
			s.Steps = append(s.Steps, a)
		}
	}
	return nil
}

// addSmokeTest adds the largest check of a smoke test as a step.
func (s *ComparedFile) addSmokeTest(r io.Reader, name string) error {
	t, err := report.ReadSmoke(name, r)
	if err != nil {
		return err
	}
	c := slices.MaxFunc(lists.Filter(t.Checks, func(c report.Check) bool { return !c.NotInVerdict }),
		func(a, b report.Check) int {
			return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Allocated, b.Allocated))
		})
	a := stepOf(t.Case.Case, t.Batch, t.Device.GPU)
	a.Kind, a.Allocated, a.Reserved, a.Device = "simulated", c.Allocated, c.Reserved, c.Device
	if !c.Simulated {
		a.Kind = "measured"
	}
	a.Identity, a.UUID, a.Script = t.Device.Name, t.Device.UUID, t.Command != nil
	s.Steps = append(s.Steps, a)
	return nil
}

// stepOf returns a training step with its names and GPU, but without peaks.
func stepOf(c models.Case, batch int, gpu string) StepMemory {
	a := StepMemory{Subject: fmt.Sprintf("%s, batch %d", c, batch), Case: c, Batch: batch}
	a.GPU, a.Torch = gpu, c.ReleaseName()
	a.AnyRelease = fmt.Sprintf("%s, batch %d", c.StringWithoutRelease(), batch)
	return a
}

// Compare compares a and b. Differences are relative to a. A row exceeds the tolerance if the larger side exceeds the
// smaller by more. batch, if not zero, selects the steps of that batch size. If each side has one step of the same
// model with different options, the comparison lists the options that differ and, the resulting difference of memory,
// as estimated by price in memory.
func Compare(a, b *ComparedFile, tolerance float64, batch int, price NeedFunc) (*report.Comparison, error) {
	out := &report.Comparison{
		Schema: report.ComparisonSchema, A: a.Label, B: b.Label, Tolerance: tolerance, Rows: []report.ComparisonRow{},
	}
	as, bs := filterBatch(a.Steps, batch), filterBatch(b.Steps, batch)
	if a.Snapshot != nil || b.Snapshot != nil {
		if len(as) != 1 || len(bs) != 1 {
			return nil, input.Errorf("a memory snapshot does not name its model, so it is compared with one step of "+
				"one run; choose the step with --batch (%s has %d, %s has %d steps)", a.Label, len(as),
				b.Label, len(bs))
		}
		out.Match(as[0].MemoryCounts, bs[0].MemoryCounts, cmp.Or(as[0].Subject, bs[0].Subject, "snapshot"))
	} else if pairSteps(out, as, bs); len(out.Rows) == 0 && len(as) == 1 && len(bs) == 1 && as[0].Script &&
		bs[0].Script {
		// Each file has one run, so these two are compared although their commands differ.
		out.Match(as[0].MemoryCounts, bs[0].MemoryCounts, as[0].Subject+" and "+bs[0].Subject)
	} else if len(out.Rows) == 0 && len(as) == 1 && len(bs) == 1 && as[0].Case.Model != "" &&
		as[0].Case.Model == bs[0].Case.Model {
		out.OnlyA, out.OnlyB = nil, nil
		out.Match(as[0].MemoryCounts, bs[0].MemoryCounts, as[0].Case.Model)
		out.Changes = listChanges(as[0], bs[0], price)
	}
	if len(out.Rows) == 0 {
		return nil, input.Errorf("the two files have no step in common: %s has %s, %s has %s; choose one step of "+
			"each with --batch, or show both with vprof report --side-by-side", a.Label, stepText(as),
			b.Label, stepText(bs))
	}
	for _, s := range []*ComparedFile{a, b} {
		if s.Snapshot != nil {
			out.Snapshots = append(out.Snapshots, snapshotOf(s.Label, s.Snapshot))
		}
	}
	return out, nil
}

func filterBatch(steps []StepMemory, batch int) []StepMemory {
	if batch == 0 {
		return steps
	}
	return slices.DeleteFunc(slices.Clone(steps),
		func(s StepMemory) bool { return s.Batch != batch && s.Subject != "" })
}

// pairSteps compares steps with the same subject. Steps must be on the same physical GPU if both sides have it, else on
// GPUs of one kind. Kinds of GPUs and releases of PyTorch may differ if each side has one.
func pairSteps(out *report.Comparison, as, bs []StepMemory) {
	several := gpuCount(as) > 1 || gpuCount(bs) > 1
	step := func(a StepMemory) string { return a.Subject }
	if releases := [2]string{releaseOf(as), releaseOf(bs)}; releases[0] != releases[1] && releases[0] != "" &&
		releases[1] != "" {
		step = func(a StepMemory) string { return a.AnyRelease }
	}
	name := func(a StepMemory) string {
		if several && a.Identity != "" {
			return step(a) + " on " + a.Identity
		}
		return step(a)
	}
	least := otherGPU
	if several {
		least = sameGPU
	}
	matched, used := matchNearest(as, bs, least, func(x, y StepMemory) bool { return step(x) == step(y) })
	for i, x := range as {
		if matched[i] < 0 {
			out.OnlyA = append(out.OnlyA, name(x))
			continue
		}
		out.Match(x.MemoryCounts, bs[matched[i]].MemoryCounts, name(x))
	}
	for j, y := range bs {
		if !used[j] {
			out.OnlyB = append(out.OnlyB, name(y))
		}
	}
}

// matchNearest matches steps for which same is true, one to one. Steps on the most similar GPUs are matched first, and
// none whose GPUs are less similar than least. For each step of as it returns the index of its match in bs, or -1, and
// for each step of bs whether it has a match.
func matchNearest(as, bs []StepMemory, least int, same func(x, y StepMemory) bool) (matched []int, used []bool) {
	matched, used = slices.Repeat([]int{-1}, len(as)), make([]bool, len(bs))
	for nearness := samePhysicalGPU; nearness >= least; nearness-- {
		for i, x := range as {
			for j, y := range bs {
				if matched[i] < 0 && !used[j] && same(x, y) && x.gpuMatch(y) >= nearness {
					matched[i], used[j] = j, true
				}
			}
		}
	}
	return matched, used
}

// The similarity of the GPUs of two steps, in rising order.
const (
	otherGPU = iota
	sameGPU
	sameName
	samePhysicalGPU
)

func (a StepMemory) gpuMatch(b StepMemory) int {
	switch {
	case a.UUID != "" && a.UUID == b.UUID:
		return samePhysicalGPU
	case a.GPU == b.GPU && a.Identity == b.Identity:
		return sameName
	case a.GPU == b.GPU:
		return sameGPU
	}
	return otherGPU
}

// releaseOf returns the PyTorch release of all steps; empty if they differ.
func releaseOf(steps []StepMemory) string {
	if len(steps) == 0 || slices.ContainsFunc(steps, func(s StepMemory) bool { return s.Torch != steps[0].Torch }) {
		return ""
	}
	return steps[0].Torch
}

func gpuCount(steps []StepMemory) int {
	return len(lists.Groups(steps, func(s StepMemory) string { return s.GPU + " " + s.Identity }))
}

func stepText(steps []StepMemory) string {
	if len(steps) == 0 {
		return "none of that batch size"
	}
	return fmt.Sprintf("%q", steps[0].Subject)
}

func snapshotOf(label string, s *snapshot.Summary) report.SnapshotSummary {
	out := report.SnapshotSummary{
		Label: label, Allocated: s.Allocated, Reserved: s.Reserved, Requested: s.Requested,
		Events: s.Traced, OOMs: s.OOMs,
		Free: s.Free, LargestFree: s.LargestFree, Fragmentation: math.Round(s.Fragmentation()*1e4) / 1e4,
		Segments: s.Segments,
	}
	for _, c := range s.Categories {
		out.Categories = append(out.Categories, report.Component{Name: c.Where, Bytes: c.Bytes})
	}
	for _, b := range s.Largest {
		out.Largest = append(out.Largest, report.Component{Name: b.String(), Bytes: b.Size})
	}
	return out
}

// NeedFunc estimates the device bytes of training a case at a batch size on a GPU, named as in the catalog.
type NeedFunc func(c models.Case, batch int, gpu string) (int64, error)

// listChanges returns the differences between step a and step b: fields of the case, the batch size, the GPU. They are
// applied to a one after another, and the cost of each is the resulting difference in device memory. If the cost of a
// change cannot be simulated, no later cost is given, since it would include that change.
func listChanges(a, b StepMemory, price NeedFunc) []report.Change {
	type state struct {
		c     models.Case
		batch int
		gpu   string
	}
	at := state{a.Case, a.Batch, a.GPU}
	var all []report.Change
	before, err := price(at.c, at.batch, at.gpu)
	add := func(to state, about, from, now string) {
		change := report.Change{Field: about, A: from, B: now}
		after := int64(0)
		if err == nil {
			after, err = price(to.c, to.batch, to.gpu)
		}
		if err == nil {
			change.Device, before = new(after-before), after
		}
		all, at = append(all, change), to
	}
	for _, d := range models.Differences(a.Case, b.Case) {
		add(state{d.Case, at.batch, at.gpu}, d.Label, d.A, d.B)
	}
	if a.Batch != b.Batch {
		add(state{at.c, b.Batch, at.gpu}, "batch", strconv.Itoa(a.Batch), strconv.Itoa(b.Batch))
	}
	if a.GPU != b.GPU {
		add(state{at.c, at.batch, b.GPU}, "gpu", a.GPU, b.GPU)
	}
	return all
}
