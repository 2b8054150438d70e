package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
)

// SmokeSchema names this version of the format of [Smoke].
const SmokeSchema = "vprof.smoke/v1"

// Smoke is the result of a test before training: the points of training at which memory may run out, and if it does.
type Smoke struct {
	Schema  string    `json:"schema" jsonschema:"const=vprof.smoke/v1"`
	Tool    Tool      `json:"tool"`
	Started time.Time `json:"started"`
	Case    Case      `json:"case"`
	Batch   int       `json:"batch"`
	Device  Device    `json:"device"`
	// Command is the user's command that was run; absent if a model was replayed.
	Command []string `json:"command,omitempty"`
	Budget  Budget   `json:"budget"`
	// Limit is the number of bytes that may be filled: the budget's share of the memory that other processes leave.
	Limit  int64   `json:"limit_bytes"`
	Checks []Check `json:"checks"`
	// Intervals names the records from which the ranges of the needs were computed, and the share of them within the
	// ranges of the others; absent for measured checks.
	Intervals string `json:"intervals,omitempty"`
	// StackRange is the range of the training step in runs that others report; see [Point].
	StackRange *StackRange `json:"stack_range,omitempty"`
	// Safe reports whether every check is within the limit.
	Safe bool `json:"safe"`
	// Passed reports whether training is safe and nothing has grown since the baseline: the command's exit code is 0.
	Passed bool `json:"passed"`
	// Reason is why the case is not safe; absent if it is. Judged is the batch size that is not safe, if all checks of
	// Batch are within the limit: a smaller one, or the next larger one that was judged.
	Reason Reason `json:"reason,omitempty" jsonschema:"enum=over-share,enum=gpu-full,enum=oom,enum=gives-back,enum=not-recorded,enum=host-full,enum=smaller-batch"`
	Judged int    `json:"judged_batch,omitempty"`
	// LargestBatch is the largest safe batch, if this one is not safe; absent if none is.
	LargestBatch int `json:"largest_batch,omitempty"`
	// Streamed is the peak of device bytes in the training step with the data set on the host; absent if the data set
	// is not on the GPU.
	Streamed int64 `json:"streamed_device_bytes,omitempty"`
	// Components are the components of the training step's peak.
	Components []Component `json:"components"`
	// Host is the host memory that the machine needs; absent if unknown.
	Host *HostMemory `json:"host,omitempty"`
	// Baseline is the comparison with an earlier result, if there was one.
	Baseline *Baseline `json:"baseline,omitempty"`
	// Workspaces counts the convolutions of the training step whose workspace is cuDNN's own answer; absent if cuDNN
	// was not queried about the model.
	Workspaces *Workspaces `json:"convolution_workspaces,omitempty"`
	// Warnings are about other processes on the device, and properties of the case that the values do not include.
	Warnings []Warning `json:"warnings,omitempty"`
	SettingsFrom
}

// Check is the memory in use at one point of training.
type Check struct {
	// Source is the text of [Smoke.Intervals]; empty if a device measured the need.
	Source string `json:"-"`
	Name   string `json:"name"`
	// Simulated is false for measurements on a device.
	Simulated bool  `json:"simulated"`
	Allocated int64 `json:"allocated_bytes"`
	Reserved  int64 `json:"reserved_bytes"`
	Device    int64 `json:"device_bytes"`
	// Need is the number of bytes that must stay within the limit: Device, or its upper quantile at the budget's risk.
	Need int64 `json:"need_bytes"`
	// Safe is true within the limit, Fits within all free memory.
	Safe bool `json:"safe"`
	Fits bool `json:"fits"`
	// Reason is why the check is not safe; absent if it is.
	Reason Reason `json:"reason,omitempty" jsonschema:"enum=over-share,enum=gpu-full,enum=oom,enum=gives-back,enum=not-recorded,enum=host-full,enum=smaller-batch"`
	// NotInVerdict marks a check that does not decide the verdict, because it tests a stage that was not requested.
	NotInVerdict bool `json:"aside,omitempty"`
	// FreesCache reports whether training continues only because PyTorch frees cached memory, which is slow.
	FreesCache bool `json:"gives_back_cache,omitempty"`
	// Note describes the point of training.
	Note string `json:"note,omitempty"`
	OOM  *OOM   `json:"oom,omitempty"`
	// Lengths are the replayed epochs, if the check is one of epochs.
	Lengths *Lengths `json:"lengths,omitempty"`
}

// OutOfMemory reports whether training runs out of memory at the point itself, or in an epoch.
func (c Check) OutOfMemory() bool {
	return c.OOM != nil || c.Lengths != nil && c.Lengths.Epochs.OutOfMemory > 0
}

// Baseline lists the growth since an earlier result.
type Baseline struct {
	File string `json:"file"`
	// Peak is the growth of the largest need: of device bytes, or of allocated bytes if device bytes have not grown.
	Peak Growth `json:"peak"`
	// Grown are components and checks that need more than before, the largest growth first.
	Grown []Growth `json:"grown"`
	// Changed lists the other differences from the earlier result, as "batch 55 -> 96": the possible causes of growth.
	Changed []string `json:"changed,omitempty"`
}

// String describes the growth of the peak, its causes, and the largest growth of a part.
func (b *Baseline) String() string {
	return fmt.Sprintf("%s +%s since %s%s; %s", b.Peak.Name, bytesize.Format(b.Peak.Now-b.Peak.Before), b.File,
		phrase.If(len(b.Changed) > 0, " (%s)", strings.Join(b.Changed, ", ")), b.Grown[0])
}

// Grown reports whether any need exceeds the baseline's; false without a baseline.
func (s *Smoke) Grown() bool { return s.Baseline != nil && len(s.Baseline.Grown) > 0 }

// Growth is a value that grew.
type Growth struct {
	Name   string `json:"name"`
	Before int64  `json:"before_bytes"`
	Now    int64  `json:"now_bytes"`
}

// String returns the growth in a few words.
func (g Growth) String() string {
	return fmt.Sprintf("%s grew from %s to %s (+%.1f %%)", g.Name, bytesize.Format(g.Before), bytesize.Format(g.Now),
		100*float64(g.Now-g.Before)/float64(max(1, g.Before)))
}

// WorstCheck returns the first check that ran out of memory, or else the check that needs most.
func (s *Smoke) WorstCheck() Check {
	judged := lists.Filter(s.Checks, func(c Check) bool { return !c.NotInVerdict })
	if c, found := lists.First(judged, Check.OutOfMemory); found {
		return c
	}
	return largestNeed(judged)
}

func largestNeed(all []Check) (most Check) {
	for _, c := range all {
		if c.Need > most.Need || (c.Need == most.Need && c.Allocated > most.Allocated) {
			most = c
		}
	}
	return most
}

// isSeparate reports whether the check has a run of its own, apart from the training run.
func (c Check) isSeparate() bool {
	return c.Name == "training step, other loop" || c.Name == "longest sample" || c.Lengths != nil ||
		strings.HasPrefix(c.Name, "stage ") || strings.HasPrefix(c.Name, "part ")
}

func (c Check) isEvaluation() bool { return strings.HasPrefix(c.Name, "validation") }

// Verdict describes the result in a line.
func (s *Smoke) Verdict() string {
	w := s.WorstCheck()
	most := largestNeed(lists.Filter(s.Checks, func(c Check) bool { return !c.isSeparate() && !c.isEvaluation() }))
	needs := "needs " + bytesize.Format(w.Need)
	switch {
	case w.Lengths != nil && w.OutOfMemory():
		needs = "of different lengths: " + w.Lengths.Epochs.outcome()
	case w.OOM != nil && most.Need > w.Need && !w.isSeparate():
		needs = fmt.Sprintf("runs out of memory; training may need %s", bytesize.Format(most.Need))
	case w.OOM != nil && w.Need > s.Limit:
		needs += " and runs out of memory"
	case w.OOM != nil:
		needs = "runs out of memory"
	case w.FreesCache:
		needs = "fits slowly: it needs " + bytesize.Format(w.Need) +
			" and finishes only because PyTorch frees cached memory"
	case w.Need > w.Device:
		needs = "may need " + bytesize.Format(w.Need)
	}
	if s.Reason == hostFull {
		return fmt.Sprintf("NOT SAFE: %s%s on %s: the machine may need %s of host memory, more than %s",
			s.Case.Model, s.batchText(), s.Device.GPU, bytesize.Format(s.Host.High), s.Host.available())
	}
	what := fmt.Sprintf("%s%s on %s: %s %s, %s may be filled",
		s.Case.Model, s.batchText(), s.Device.GPU, w.Name, needs, bytesize.Format(s.Limit))
	grown := s.Grown()
	what += phrase.If(grown && !s.Safe, "; %v", s.Baseline)
	switch {
	case s.Safe && grown:
		return "GROWN: " + s.Baseline.String()
	case s.Safe:
		return "SAFE: " + what
	case s.Judged > 0:
		return fmt.Sprintf("NOT SAFE: %s, but batch %d is %s; the largest safe batch is %d",
			what, s.Judged, s.Reason.forOtherBatch(), s.LargestBatch)
	case s.LargestBatch > 0:
		return fmt.Sprintf("NOT SAFE: %s; the largest safe batch is %d", what, s.LargestBatch)
	case s.Command != nil:
		return "NOT SAFE: " + what
	case w.isEvaluation():
		return "NOT SAFE: " + what + "; no batch of training is safe with that"
	}
	return "NOT SAFE: " + what + "; not even the smallest batch is safe"
}

// batchText describes the batch size; empty for a command without one.
func (s *Smoke) batchText() string {
	return phrase.If(s.Command == nil || s.Batch != 1, ", batch %d", s.Batch)
}

// title describes the tested case and device.
func (s *Smoke) title() string {
	what := s.Case.String()
	if s.Command != nil {
		what = strings.Join(s.Command, " ")
	}
	return fmt.Sprintf("%s%s; %s; the device may fill %s", what, strings.Replace(s.batchText(), ",", ";", 1),
		s.Device, s.Budget)
}

// Sheets returns the tables of the report, for [Document].
func (s *Smoke) Sheets() []Sheet {
	sheet := sheetIn(s.title(), "check | allocated {}>-3 | reserved {}>-2 | device {}> | verdict | -1",
		largest(s.Checks, func(c Check) int64 { return c.Device }))
	ended := false // the training run
	for _, c := range s.Checks {
		note, verdict := c.Note, c.Reason.String()
		switch {
		case c.OOM == nil:
		case ended && !c.isSeparate():
			note, verdict = "what it would need; memory runs out before", "not reached"
		default:
			note, ended = c.OOM.String(), ended || !c.isSeparate() && !c.NotInVerdict
		}
		note += phrase.If(c.NotInVerdict, "; not part of the verdict")
		sheet.Row(c.Name, c.Allocated, c.Reserved, c.Device, verdict, note)
	}
	sheet.Answer = []string{s.Verdict()}
	if s.Baseline != nil {
		for _, g := range s.Baseline.Grown {
			sheet.Notes.Add("%s", g)
		}
		if len(s.Baseline.Grown) == 0 && len(s.Baseline.Changed) > 0 {
			sheet.Notes.Add("compared with %s, nothing has grown, although the test is another one: %s.",
				s.Baseline.File, strings.Join(s.Baseline.Changed, ", "))
		}
	}
	if s.Host.isShown(s.Device) {
		sheet.Notes.Add("%s", s.Host.note(s.Batch))
	}
	sheet.Notes.If(s.Intervals != "", "needs are upper ends of ranges from %s.", s.Intervals)
	sheet.Notes.AddTexts(releasesNote(s.StackRange, s.StackRange.need("", s.Batch)))
	sheet.Notes.If(s.Streamed > 0, "with the %s of data on the host and one batch at a time on the GPU, the training "+
		"step needs %s", bytesize.Format(s.Case.Dataset), bytesize.Format(s.Streamed))
	sheet.Notes.If(slices.ContainsFunc(s.Checks, func(c Check) bool { return c.FreesCache }), slowStepText)
	var answers workspaceCounts
	answers.add(s.Batch, s.Workspaces)
	sheet.Notes = append(sheet.Notes, answers.notes()...)
	sheet.Notes = append(sheet.Notes, warningNotes(s.Warnings)...)
	sheet.Notes.If(!slices.ContainsFunc(s.Checks, Check.isEvaluation), "%s", s.noValidationNote())
	return append(s.lengthsSheets(), sheet)
}

// lengthsSheets returns a table for each checked epoch over samples of different lengths.
func (s *Smoke) lengthsSheets() []Sheet {
	var sheets []Sheet
	for _, c := range s.Checks {
		if c.Lengths != nil {
			sheets = append(sheets, c.Lengths.sheet(s.Batch, s.Device))
		}
	}
	return sheets
}

// noValidationNote explains why there is no check of validation.
func (s *Smoke) noValidationNote() string {
	if s.Command != nil {
		return "no evaluation ran; --until eval continues until one has."
	}
	if s.Case.Strategy != nil && s.Case.Strategy.Name == models.PP {
		return "validation in a pipeline is not recorded."
	}
	if s.Case.Evaluate.IsOff {
		return "validation is left out (--evaluate none)."
	}
	return "the project does not validate during training."
}

// Data implements [Document]: a smoke test is one line.
func (s *Smoke) Data() Data {
	return Data{[]any{s}, Rows(`model=case_model batch device=device_name limit_bytes
		check=name allocated_bytes reserved_bytes device_bytes safe fits`, s.Checks, s)}
}
