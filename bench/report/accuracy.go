package report

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// AccuracySchema names the format of an accuracy report.
const AccuracySchema = "vprof.accuracy/v1"

// Accuracy says how far estimates are from reference records.
type Accuracy struct {
	Schema  string          `json:"schema" jsonschema:"const=vprof.accuracy/v1"`
	Rows    []AccuracyRow   `json:"rows"`
	Summary AccuracySummary `json:"summary"`
	// Unknown are the records that could not be estimated.
	Unknown []UnknownRecord `json:"unknown"`
}

// AccuracyCase identifies a reference record. AMP and Optimizer are null for none and for the model's own.
type AccuracyCase struct {
	File          string  `json:"file"`
	Line          int     `json:"line"`
	Case          string  `json:"case"`
	Stage         string  `json:"stage"`
	Batch         int     `json:"batch"`
	AMP           *string `json:"amp" jsonschema:"nullable"`
	Checkpointing bool    `json:"checkpointing"`
	Accumulate    int     `json:"accumulate"`
	Optimizer     *string `json:"optimizer" jsonschema:"nullable"`
	// Torch is the release of PyTorch that the record is of, and by whose rules it was estimated: "2.15".
	Torch     string `json:"torch"`
	GPU       string `json:"gpu"`
	AllocConf string `json:"alloc_conf,omitempty"`
}

// AccuracyRow is one record beside its estimate.
type AccuracyRow struct {
	AccuracyCase
	Reference AccuracySide `json:"reference"`
	Estimate  AccuracySide `json:"estimate"`
	// Error is null where bytes cannot be compared: PyTorch did not get through.
	Error *RelativeError `json:"error" jsonschema:"nullable"`
	// Phases compares phase by phase.
	Phases []AccuracyPhase `json:"phases,omitempty"`
	// PhasesDiffer is true if the estimate ran other phases.
	PhasesDiffer bool `json:"phases_differ,omitempty"`
}

// AccuracySide is the result of one side, PyTorch's or the estimate's. After an
// out-of-memory error, the bytes are those reached.
type AccuracySide struct {
	OOM       bool  `json:"oom"`
	Allocated int64 `json:"allocated_bytes"`
	Reserved  int64 `json:"reserved_bytes"`
	// Refused is why the case does not run at all; absent if it does.
	Refused string `json:"refused,omitempty"`
}

// RelativeError is (estimate - reference) / reference. Differences below 4 MiB allocated, or 20 MiB reserved,
// and 2 % of the reference count as zero.
type RelativeError struct {
	Allocated float64 `json:"allocated"`
	Reserved  float64 `json:"reserved"`
}

// AccuracyPhase compares the peaks within one phase. Steps count from 1; 0 is set-up.
type AccuracyPhase struct {
	Step      int           `json:"step"`
	Name      string        `json:"phase"`
	Reference PhaseBytes    `json:"reference"`
	Estimate  PhaseBytes    `json:"estimate"`
	Error     RelativeError `json:"error"`
}

// PhaseBytes are the peaks within a phase.
type PhaseBytes struct {
	Allocated int64 `json:"allocated_bytes"`
	Reserved  int64 `json:"reserved_bytes"`
}

// UnknownRecord is a record that could not be estimated, and why.
type UnknownRecord struct {
	AccuracyCase
	Reason string `json:"reason"`
}

// AccuracySummary sums up the rows.
type AccuracySummary struct {
	// Records counts rows and unknown records, Compared those rows whose bytes could be compared.
	Records  int `json:"records"`
	Compared int `json:"compared"`
	Unknown  int `json:"unknown"`
	AccuracyFigures
	// Refusals counts records that PyTorch refused.
	Refusals Verdicts `json:"refusals"`
	// PhasesDiffer counts rows whose phases could not be compared.
	PhasesDiffer int             `json:"phases_differ"`
	ByModel      []AccuracyGroup `json:"by_model"`
	ByAMP        []AccuracyGroup `json:"by_amp"`
	ByStage      []AccuracyGroup `json:"by_stage"`
	ByGPU        []AccuracyGroup `json:"by_gpu"`
	// ByTorch tells releases of PyTorch apart.
	ByTorch []AccuracyGroup `json:"by_torch"`
	// ByPhase has the errors of the peaks within phases of a name.
	ByPhase []AccuracyGroup `json:"by_phase"`
}

// AccuracyGroup is the figures of a group of rows.
type AccuracyGroup struct {
	Name string `json:"name"`
	// Compared is the number of rows whose errors the figures summarize.
	Compared int `json:"compared"`
	AccuracyFigures
}

// AccuracyFigures are errors and verdicts.
type AccuracyFigures struct {
	Allocated ErrorFigures `json:"allocated"`
	Reserved  ErrorFigures `json:"reserved"`
	// OOM counts verdicts: right means that estimate and PyTorch agree on whether the case fits.
	OOM Verdicts `json:"oom_verdicts"`
}

// ErrorFigures describe relative errors. Median, P90, P95 and Max are nearest-rank quantiles of the absolute values;
// Mean keeps the sign.
type ErrorFigures struct {
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	P95    float64 `json:"p95"`
	Max    float64 `json:"max"`
	Mean   float64 `json:"mean_signed"`
	// Under is the share of estimates more than 5 % too low.
	Under float64 `json:"share_under_5_percent"`
}

// Verdicts counts right and wrong predictions.
type Verdicts struct {
	Right int `json:"right"`
	Wrong int `json:"wrong"`
}

func (v *Verdicts) count(right bool) {
	if right {
		v.Right++
	} else {
		v.Wrong++
	}
}

// figures collects the values that AccuracyFigures summarize.
type figures struct {
	allocated, reserved []float64
	oom                 Verdicts
}

func (f *figures) add(e RelativeError) {
	f.allocated = append(f.allocated, e.Allocated)
	f.reserved = append(f.reserved, e.Reserved)
}

func (f *figures) result() AccuracyFigures {
	return AccuracyFigures{describe(f.allocated), describe(f.reserved), f.oom}
}

// describe computes the figures of errors; of none, all are zero.
func describe(errs []float64) ErrorFigures {
	if len(errs) == 0 {
		return ErrorFigures{}
	}
	sizes := make([]float64, len(errs))
	var f ErrorFigures
	for i, e := range errs {
		sizes[i] = math.Abs(e)
		f.Mean += e / float64(len(errs))
		if e < -0.05 {
			f.Under += 1 / float64(len(errs))
		}
	}
	slices.Sort(sizes)
	rank := func(q float64) float64 { return sizes[max(0, int(math.Ceil(q*float64(len(sizes))))-1)] }
	f.Median, f.P90, f.P95, f.Max = rank(0.5), rank(0.9), rank(0.95), rank(1)
	return f
}

// groups collects figures under names.
type groups map[string]*figures

func (g groups) of(name string) *figures {
	if g[name] == nil {
		g[name] = &figures{}
	}
	return g[name]
}

func (g groups) result() []AccuracyGroup {
	list := []AccuracyGroup{}
	for _, name := range slices.Sorted(maps.Keys(g)) {
		list = append(list, AccuracyGroup{name, len(g[name].allocated), g[name].result()})
	}
	return list
}

// Summarize computes the summary from rows and unknown records.
func (a *Accuracy) Summarize() {
	var all figures
	byModel, byAMP, byStage, byGPU, byTorch, byPhase := groups{}, groups{}, groups{}, groups{}, groups{}, groups{}
	s := AccuracySummary{Records: len(a.Rows) + len(a.Unknown), Unknown: len(a.Unknown)}
	for i := range a.Rows {
		row := &a.Rows[i]
		if row.Reference.Refused != "" {
			s.Refusals.count(strings.Contains(row.Estimate.Refused, row.Reference.Refused))
			continue
		}
		if row.PhasesDiffer {
			s.PhasesDiffer++
		}
		for _, f := range []*figures{
			&all, byModel.of(row.Case), byAMP.of(ampName(row.AMP)), byStage.of(row.Stage), byGPU.of(row.GPU),
			byTorch.of(row.Torch),
		} {
			f.oom.count(row.Reference.OOM == row.Estimate.OOM)
			if row.Error != nil {
				f.add(*row.Error)
			}
		}
		for _, p := range row.Phases {
			byPhase.of(p.Name).add(p.Error)
		}
	}
	s.Compared = len(all.allocated)
	s.AccuracyFigures = all.result()
	s.ByModel, s.ByAMP, s.ByStage, s.ByGPU = byModel.result(), byAMP.result(), byStage.result(), byGPU.result()
	s.ByTorch, s.ByPhase = byTorch.result(), byPhase.result()
	a.Summary = s
}

func ampName(amp *string) string {
	if amp == nil {
		return "none"
	}
	return *amp
}
