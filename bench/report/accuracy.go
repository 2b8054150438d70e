package report

import (
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
)

// AccuracySchema names the format of an accuracy report.
const AccuracySchema = "vprof.accuracy/v1"

// Accuracy describes the errors of estimates compared with reference records.
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
	// Torch is the release of PyTorch of the record and of its estimate: "2.15".
	Torch     string `json:"torch"`
	GPU       string `json:"gpu"`
	AllocConf string `json:"alloc_conf,omitempty"`
}

// AccuracyRow is one record with its estimate.
type AccuracyRow struct {
	AccuracyCase
	Reference AccuracySide `json:"reference"`
	Estimate  AccuracySide `json:"estimate"`
	// Error is null if bytes cannot be compared, since PyTorch did not complete the case.
	Error *RelativeError `json:"error" jsonschema:"nullable"`
	// Phases compares phase by phase.
	Phases []AccuracyPhase `json:"phases,omitempty"`
	// PhasesDiffer is true if the estimate ran other phases.
	PhasesDiffer bool `json:"phases_differ,omitempty"`
}

// AccuracySide is the result of PyTorch or of the estimate. After an out-of-memory error, the bytes are those reached.
type AccuracySide struct {
	OOM       bool  `json:"oom"`
	Allocated int64 `json:"allocated_bytes"`
	Reserved  int64 `json:"reserved_bytes"`
	// Refused is the reason why the case does not run at all; absent if it does.
	Refused string `json:"refused,omitempty"`
}

// RelativeError is (estimate - reference) / reference. Differences are zero below both 2 % of the reference and 4 MiB
// allocated, or 20 MiB reserved.
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

// AccuracySummary summarizes the rows.
type AccuracySummary struct {
	// Records counts rows and unknown records, Compared the rows whose bytes could be compared.
	Records  int `json:"records"`
	Compared int `json:"compared"`
	Unknown  int `json:"unknown"`
	AccuracyErrors
	// Refusals counts records that PyTorch refused.
	Refusals Verdicts `json:"refusals"`
	// PhasesDiffer counts rows whose phases could not be compared.
	PhasesDiffer int             `json:"phases_differ"`
	ByModel      []AccuracyGroup `json:"by_model"`
	ByAMP        []AccuracyGroup `json:"by_amp"`
	ByStage      []AccuracyGroup `json:"by_stage"`
	ByGPU        []AccuracyGroup `json:"by_gpu"`
	// ByTorch distinguishes releases of PyTorch.
	ByTorch []AccuracyGroup `json:"by_torch"`
	// ByPhase has the errors of the peaks within phases of a name.
	ByPhase []AccuracyGroup `json:"by_phase"`
}

// AccuracyGroup holds the errors of a group of rows.
type AccuracyGroup struct {
	Name string `json:"name"`
	// Compared is the number of rows whose errors the values summarize.
	Compared int `json:"compared"`
	AccuracyErrors
}

// AccuracyErrors are errors and verdicts.
type AccuracyErrors struct {
	Allocated ErrorStatistics `json:"allocated"`
	Reserved  ErrorStatistics `json:"reserved"`
	// OOM counts verdicts: right means that estimate and PyTorch agree on whether the case fits.
	OOM Verdicts `json:"oom_verdicts"`
}

// ErrorStatistics describe relative errors. Quantiles are nearest-rank, of absolute values; Mean keeps the sign.
type ErrorStatistics struct {
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	P95    float64 `json:"p95"`
	Max    float64 `json:"max"`
	Mean   float64 `json:"mean_signed"`
	// Underestimated is the share of estimates more than 5 % too low.
	Underestimated float64 `json:"share_under_5_percent"`
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

// accuracyErrors summarizes the errors of records.
func accuracyErrors(errs []RelativeError, oom Verdicts) AccuracyErrors {
	return AccuracyErrors{
		errorStatistics(lists.Map(errs, func(e RelativeError) float64 { return e.Allocated })),
		errorStatistics(lists.Map(errs, func(e RelativeError) float64 { return e.Reserved })), oom,
	}
}

// errorStatistics computes statistics of errors; all are zero if there are none.
func errorStatistics(errs []float64) ErrorStatistics {
	if len(errs) == 0 {
		return ErrorStatistics{}
	}
	sizes := make([]float64, len(errs))
	var f ErrorStatistics
	for i, e := range errs {
		sizes[i] = math.Abs(e)
		f.Mean += e / float64(len(errs))
		if e < -0.05 {
			f.Underestimated += 1 / float64(len(errs))
		}
	}
	slices.Sort(sizes)
	rank := func(q float64) float64 { return sizes[max(0, int(math.Ceil(q*float64(len(sizes))))-1)] }
	f.Median, f.P90, f.P95, f.Max = rank(0.5), rank(0.9), rank(0.95), rank(1)
	return f
}

func groupOf(name string, rows []AccuracyRow) AccuracyGroup {
	var oom Verdicts
	var errs []RelativeError
	for _, r := range rows {
		oom.count(r.Reference.OOM == r.Estimate.OOM)
		if r.Error != nil {
			errs = append(errs, *r.Error)
		}
	}
	return AccuracyGroup{name, len(errs), accuracyErrors(errs, oom)}
}

// groupRows groups a list by name, in the order of names, and applies sum to each group.
func groupRows[T any](list []T, name func(T) string, sum func(string, []T) AccuracyGroup) []AccuracyGroup {
	groups := lists.Map(lists.Groups(list, name), func(of []T) AccuracyGroup { return sum(name(of[0]), of) })
	slices.SortFunc(groups, func(a, b AccuracyGroup) int { return strings.Compare(a.Name, b.Name) })
	return groups
}

// Summarize computes the summary from rows and unknown records.
func (a *Accuracy) Summarize() {
	s := &a.Summary
	*s = AccuracySummary{Records: len(a.Rows) + len(a.Unknown), Unknown: len(a.Unknown)}
	var rows []AccuracyRow
	var phases []AccuracyPhase
	for _, r := range a.Rows {
		if r.Reference.Refused != "" {
			s.Refusals.count(strings.Contains(r.Estimate.Refused, r.Reference.Refused))
			continue
		}
		if r.PhasesDiffer {
			s.PhasesDiffer++
		}
		rows, phases = append(rows, r), append(phases, r.Phases...)
	}
	all := groupOf("", rows)
	s.Compared, s.AccuracyErrors = all.Compared, all.AccuracyErrors
	s.ByModel = groupRows(rows, func(r AccuracyRow) string { return r.Case }, groupOf)
	s.ByAMP = groupRows(rows, func(r AccuracyRow) string { return ampName(r.AMP) }, groupOf)
	s.ByStage = groupRows(rows, func(r AccuracyRow) string { return r.Stage }, groupOf)
	s.ByGPU = groupRows(rows, func(r AccuracyRow) string { return r.GPU }, groupOf)
	s.ByTorch = groupRows(rows, func(r AccuracyRow) string { return r.Torch }, groupOf)
	s.ByPhase = groupRows(phases, func(p AccuracyPhase) string { return p.Name },
		func(name string, of []AccuracyPhase) AccuracyGroup {
			errs := lists.Map(of, func(p AccuracyPhase) RelativeError { return p.Error })
			return AccuracyGroup{name, len(of), accuracyErrors(errs, Verdicts{})}
		})
}

func ampName(amp *string) string {
	if amp == nil {
		return "none"
	}
	return *amp
}
