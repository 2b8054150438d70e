package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
)

// Sheets returns the tables of the report, for [Document].
func (f *Fit) Sheets() []Sheet {
	var sheets []Sheet
	if len(f.Devices) > 1 {
		sheets = append(sheets, f.gpusSheet())
	} else if len(f.Choices) > 0 {
		sheets = append(sheets, f.choicesSheet())
	}
	sheets = append(sheets, f.waterfalls()...)
	if len(f.Profiles) > 0 {
		sheets = append(sheets, f.profilesSheet())
	}
	return sheets
}

func (f *Fit) memory(device string) int64 {
	d, _ := find(f.Devices, device)
	return d.Memory
}

// choicesSheet returns a row for every configuration on the one device; the title has the values that all rows share.
func (f *Fit) choicesSheet() Sheet {
	s := sheetIn("", " | "+choiceColumns, largest(f.Choices, func(c Choice) int64 {
		if c.Estimate == nil {
			return 0
		}
		return c.Estimate.Device.High
	}))
	var answers workspaceCounts
	shown := f.visibleChoices(s.unit)
	for _, c := range shown {
		mark := ""
		switch {
		case c.Recommended:
			mark = "▶"
			answers.add(c.Batch, c.Workspaces)
		case c.IsAuthorsOwn:
			mark = "·"
		}
		s.Row(mark, c.cells(s.unit))
	}
	title := phrase.List{f.searchSubject()}
	stage := s.removeCommonParts("stage", "\n")
	title.If(stage != "" && shown[0].Case.LoRA == nil, "stage %s", stage) // adapters train no stage
	title.AddTexts(s.removeCommonParts("precision", "\n"), s.removeCommonParts("settings", " "),
		s.removeCommonParts("options", " + "))
	s.Title = fmt.Sprintf("%s on %s; the device may fill %s", strings.Join(title, ", "), f.Devices[0], f.Budget) +
		phrase.If(f.Parallel != nil, "; %v, values for each", f.Parallel)
	s.Answer = f.Answer()
	s.Notes.If(len(shown) < len(f.Choices), "left out: %d rows that are slower or equal a simpler one (--format csv).",
		len(f.Choices)-len(shown))
	s.Notes.If(slices.ContainsFunc(shown, func(c Choice) bool { return c.Estimate != nil && !c.Fits() }),
		"none: no batch is safe; the memory is for the smallest one tried.")
	s.Notes = slices.Concat(s.Notes, f.notes(), answers.notes(), warningNotes(f.Warnings))
	return s.withoutEmptyColumns()
}

// maxRowsPerStage limits the configurations shown of a stage; recommended ones and the authors' own always are.
const maxRowsPerStage = 8

// visibleChoices returns the choices that are shown. Of those with the same values, such as with and without
// recomputation of frozen layers, it is the one with the fewest settings.
func (f *Fit) visibleChoices(unit byteColumn) (out []Choice) {
	alike := lists.Groups(f.Choices, func(c Choice) string {
		cells := c.cells(unit)
		if c.Estimate != nil {
			cells[2] = "" // checkpointing
		}
		if c.Estimate != nil && c.Case.Weights != models.FP32 {
			cells[1] = "" // autocast to the type of the weights
		}
		return strings.Join(cells, "|")
	})
	of := map[string]int{}
	for _, group := range alike {
		c := slices.MinFunc(group, func(a, b Choice) int {
			return cmp.Or(CompareBools(a.Recommended, b.Recommended), CompareBools(a.IsAuthorsOwn, b.IsAuthorsOwn),
				CompareBools(!a.Case.Checkpointing, !b.Case.Checkpointing),
				cmp.Compare(len(a.Case.Precision()), len(b.Case.Precision())))
		})
		if of[c.Case.Stage]++; of[c.Case.Stage] <= maxRowsPerStage || c.Recommended || c.IsAuthorsOwn {
			out = append(out, c)
		}
	}
	return out
}

// choiceColumns are the heads of a choice's cells.
const choiceColumns = "stage? | precision? | checkpointing? | settings? | strategy? | options? | batch> | " +
	"micro-batches>-2 | effective>-4 | device {}> | use>-3 | samples/s ~>-1"

func (c Choice) cells(unit byteColumn) []string {
	row := []string{
		c.Case.Stage, c.Case.Precision(), yesOrEmpty(c.Case.Checkpointing),
		strings.Join(c.Case.Settings.Assignments(), " "), c.Case.Strategy.String(), c.savingsText(),
	}
	if c.Refused != "" {
		return append(row, "refused", "", "", "-", "-", "-")
	}
	device, use := "-", "-"
	if c.Estimate != nil {
		device, use = unit.interval(c.Estimate.Device), fmt.Sprintf("%.0f%%", 100*c.Utilization)
	}
	if !c.Fits() {
		batch := "none"
		if c.Estimate != nil && c.Estimate.Verdict == Slow {
			batch = "none, 1 " + string(Slow)
		}
		return append(row, batch, "", "", device, use, "-")
	}
	batch := strconv.Itoa(c.Batch) + phrase.If(c.SeqLen > 0, " x %d", c.SeqLen) +
		phrase.If(c.LargestIsCapped && c.Batch == c.Largest, "+")
	return append(row, batch, strconv.Itoa(c.Case.Accumulate), strconv.Itoa(c.EffectiveBatch), device, use,
		formatRate(c.SamplesPerSecond))
}

// Answer lists the recommendations, one a line, or reports that nothing fits.
func (f *Fit) Answer() []string {
	var notes phrase.List
	for _, c := range f.Choices {
		if !c.Recommended {
			continue
		}
		on := phrase.If(len(f.Devices) > 1, "%s, ", strings.TrimPrefix(c.Device, "sim:"))
		notes.Add("▶ %s%s", on, f.Recommendation(c))
	}
	if len(f.Devices) != 1 {
		return notes
	}
	switch all, ok := f.Overall(f.Devices[0].Name); {
	case len(notes) == 0:
		notes.Add("%s", f.noFitText())
	case len(notes) > 1 && ok && !f.Budget.SeqLen: // stages do not share the longest sequence
		notes.Add("  for all stages: %s", f.Recommendation(all))
	}
	return notes
}

// notes explains the marks, and what the recommendations do not consider.
func (f *Fit) notes() []string {
	notes := append(f.headroomNotes(), f.hostNotes()...)
	var loops []models.Loop
	notes.If(slices.ContainsFunc(f.Choices, func(c Choice) bool { return c.IsAuthorsOwn && !c.Recommended }),
		"· the settings of the model's authors.")
	notes.If(f.Intervals != "", intervalNote, f.Intervals)
	notes = append(notes, f.refusals()...)
	if i := slices.IndexFunc(f.Choices, func(c Choice) bool { return c.LargestIsCapped }); i >= 0 {
		end := fmt.Sprintf("batch %d (--max-batch)", f.Budget.MaxBatch)
		if n := f.Choices[i].SeqLen; n > 0 {
			end = fmt.Sprintf("sequences of %d tokens, the longest that vprof accepts for the model", n)
		}
		notes.Add("+ the search ends at %s.", end)
	}
	var ranges *StackRange
	var needs []string
	for _, c := range f.Choices {
		if c.StackRange != nil {
			ranges = c.StackRange
			needs = append(needs, c.StackRange.need(phrase.If(c.Case.LoRA == nil, "stage %s, ", c.Case.Stage), c.Batch))
		}
		if c.Estimate != nil && c.Estimate.OtherLoop != nil {
			loops = append(loops, c.Estimate.Loop)
		}
	}
	notes.AddTexts(releasesNote(ranges, needs...))
	return slices.Concat(notes, f.partNotes(), f.sampleNotes(), loopNamesOf(loops), f.fasterNotes(),
		f.epochSentences(), f.parallelNotes(),
		[]string{"samples/s ~: an estimate for ranking; vprof time shows its uncertainty."})
}

// fasterNotes returns a note for each stage whose fastest configuration is not advised.
func (f *Fit) fasterNotes() (notes phrase.List) {
	for i, c := range f.Choices[min(1, len(f.Choices)):] {
		best := f.Choices[i]
		notes.If(best.Recommended && c.NotAdvised == "" && c.Case.Stage == best.Case.Stage && len(f.Devices) == 1 &&
			c.SeqLen == best.SeqLen && c.SamplesPerSecond > best.SamplesPerSecond, "stage %s: the recommended row is "+
			"the simplest of those within 1 %% of the fastest.", best.Case.Stage)
		notes.If(best.Recommended && c.NotAdvised != "" && c.Case.Stage == best.Case.Stage && len(f.Devices) == 1 &&
			c.SamplesPerSecond > best.SamplesPerSecond, "faster and not recommended: stage %s, %s, batch %d: %s.",
			c.Case.Stage, c.Case.Precision()+phrase.If(c.Case.Checkpointing, ", checkpointing"), c.Batch, c.NotAdvised)
	}
	return notes
}

// partNotes returns the parts of a curriculum in which each row is safe.
func (f *Fit) partNotes() []string {
	if len(f.Parts) == 0 {
		return nil
	}
	parts := lists.Map(f.Parts, func(s models.Settings) string { return strings.Join(s.Assignments(), " ") })
	return []string{fmt.Sprintf("safe in every part of the curriculum (%s); values are for the part that needs most.",
		strings.Join(parts, "; "))}
}

// sampleNotes returns a note for each stage where no safe batch divides the samples of an optimizer step, or where a
// divisor is not safe.
func (f *Fit) sampleNotes() (notes phrase.List) {
	want := f.Budget.EffectiveBatch
	for _, c := range f.Choices {
		next := c.Batch + 1
		for next < want && want%next != 0 {
			next++
		}
		notes.If(c.Recommended && c.EffectiveBatch == want && next <= want && !c.LargestIsCapped && f.Parallel == nil &&
			f.Budget.Multiple == 0, "batches that divide the %d samples of a step are tried: %d is safe, %d is not.",
			want, c.Batch, next)
		notes.If(c.Recommended && want > 0 && c.EffectiveBatch != want, "stage %s: a step sees %d samples, not %d, "+
			"which no safe batch above 1 divides.", c.Case.Stage, c.EffectiveBatch, want)
	}
	return notes
}

// headroomNotes describes larger batches that expandable segments would allow, and why a batch is not a multiple of
// --batch-multiple.
func (f *Fit) headroomNotes() (notes phrase.List) {
	more := "a larger batch"
	if f.Budget.SeqLen {
		more = "longer sequences"
	}
	for _, c := range f.Choices {
		if c.Recommended && c.Expandable != nil {
			notes.Add("stage %s, batch %d: %s, which leaves room for %s (--alloc-conf %s).",
				c.Case.Stage, c.Batch, expandableText(c.Estimate, *c.Expandable), more, ExpandableSegments)
		}
		if n := f.Budget.Multiple; c.Recommended && n > 1 && c.Batch%n != 0 {
			notes.Add("stage %s: batch %d is not a multiple of %d, because no batch above %d is safe.",
				c.Case.Stage, c.Batch, n, c.Largest)
		}
	}
	return notes
}

// refusals returns the reasons why configurations are refused, each once.
func (f *Fit) refusals() []string {
	var notes phrase.List
	refused := lists.Filter(f.Choices, func(c Choice) bool { return c.Refused != "" })
	for _, of := range lists.Groups(refused, func(c Choice) string { return c.Refused }) {
		n := len(of) - 1
		notes.Add("refused, %v%s: %s", of[0].Case, phrase.If(n > 0, ", and %d more", n), of[0].Refused)
	}
	return notes
}

// parallelNotes lists the assumptions behind the values for several GPUs.
func (f *Fit) parallelNotes() []string {
	var notes phrase.List
	p := f.Parallel
	if p == nil {
		return nil
	}
	notes.Add("values are for each GPU, from one recorded rank. NCCL's memory (without a coefficient for it) and "+
		"communication at the share of the links' %.0f GB/s that collectives reach (docs/time.md), overlapped with "+
		"kernels, are assumptions.", p.Bandwidth/1e9)
	notes.If(p.MinGPUs > 0, "the fewest GPUs on which it fits (powers of two): %d.", p.MinGPUs)
	return notes
}

func (f *Fit) epochSentences() []string {
	var notes []string
	for _, c := range f.Choices {
		if c.Lengths != nil && (c.Recommended || !c.Fits()) {
			notes = append(notes, c.epochText())
		}
	}
	return notes
}

// epochText returns the result of the choice's replayed epochs.
func (c Choice) epochText() string {
	what := fmt.Sprintf("stage %s, batch %d", c.Case.Stage, c.Batch)
	if !c.Fits() {
		what = fmt.Sprintf("%s: no batch gets through an epoch; with one of 1", c.Case)
	}
	text := fmt.Sprintf("%s: %s over %s (%s), simulated", what, c.Lengths.Epochs.outcome(), c.Lengths.Source,
		c.Lengths.Batching)
	if c.Lengths.MostDevice != nil {
		text += fmt.Sprintf("; at most %s on the device", bytesize.Format(c.Lengths.MostDevice.Bytes))
	}
	return text + "."
}

// smallestNeed returns the choice with the lowest need; nil if none is known.
func (f *Fit) smallestNeed() (least *Choice) {
	for i := range f.Choices {
		c := &f.Choices[i]
		if c.Estimate != nil && (least == nil || c.Estimate.Device.Bytes < least.Estimate.Device.Bytes) {
			least = c
		}
	}
	return least
}

// noFitText explains why there is no recommendation.
func (f *Fit) noFitText() string {
	c := f.smallestNeed()
	if c == nil {
		return "nothing fits."
	}
	smallest := cmp.Or(phrase.If(f.Budget.Batch > 0, "batch %d", f.Budget.Batch), "the smallest batch")
	text := fmt.Sprintf("nothing fits: %s%s of the smallest configuration needs %s", smallest,
		phrase.If(f.Budget.SeqLen, " of single tokens"), bytesize.Format(c.Estimate.Device.Bytes))
	if d := c.Estimate.Decides; d != nil && d.What != "training" {
		text += "; " + d.String() + phrase.If(strings.HasPrefix(d.What, "evaluation"), "; try --evaluate batch=1")
	}
	return text + "."
}

// Recommendation formats a choice as a line.
func (f *Fit) Recommendation(c Choice) string {
	line := phrase.If(c.Case.LoRA == nil, "stage %s: ", c.Case.Stage) + phrase.CountText(c.Batch, f.BatchUnit) +
		phrase.If(c.SeqLen > 0, " of %d tokens", c.SeqLen) +
		phrase.If(c.Case.Accumulate > 1, " x %d micro-batches", c.Case.Accumulate)
	if f.Parallel != nil {
		// In some strategies GPUs share a batch, or a pipeline has several batches.
		if n := c.Case.ParallelBatches(); c.Case.Strategy != nil && n != f.Parallel.GPUs {
			line += fmt.Sprintf(" x %d on %d GPUs", n, f.Parallel.GPUs)
		} else {
			line += fmt.Sprintf(" x %d GPUs", f.Parallel.GPUs)
		}
		line += phrase.If(c.Case.Strategy != nil, " with %v", c.Case.Strategy)
	}
	line += phrase.If(c.EffectiveBatch != c.Batch, " = %d a step", c.EffectiveBatch) + ", " + c.Case.Precision() +
		phrase.If(c.Case.Checkpointing, ", checkpointing") +
		phrase.Prefix(", ", strings.Join(c.Case.Settings.Assignments(), ", ")) + phrase.Prefix(", ", c.savingsText())
	switch {
	case c.Run == nil:
	case f.Parallel != nil && c.Estimate != nil: // a run has one rank, and no memory of NCCL
		line += "; estimated at this batch: " + bytesize.Format(c.Estimate.Device.Bytes)
	default:
		line += fmt.Sprintf("; %s at this batch: %s", c.Run.Kind(), bytesize.Format(c.Run.Device)) +
			phrase.If(!c.Run.Fits, ", out of memory")
	}
	return line + "."
}

// gpusSheet returns a row for the recommendation of each device and stage.
func (f *Fit) gpusSheet() Sheet {
	s := sheetIn(fmt.Sprintf("%s; a device may fill %s", f.searchSubject(), f.Budget),
		"gpu | memory {}>-3 | "+choiceColumns,
		bytesize.GiB)
	for _, d := range f.Devices {
		before, word := len(s.Rows), "none"
		of := lists.Filter(f.Choices, func(c Choice) bool { return c.Device == d.Name })
		for _, c := range of {
			if c.Recommended {
				s.Row(d.GPU, d.Memory, c.cells(s.unit))
			}
		}
		if len(of) > 0 && !slices.ContainsFunc(of, func(c Choice) bool { return c.Refused == "" }) {
			word = "refused"
		}
		if len(s.Rows) == before {
			s.Row(d.GPU, d.Memory)
			s.set("batch", word)
		}
	}
	s.Notes.Add("The fastest configuration of each stage. samples/s ~: an estimate for ranking; vprof time shows its " +
		"uncertainty.")
	s.Notes = slices.Concat(s.Notes, f.refusals(), warningNotes(f.Warnings))
	return s.withoutEmptyColumns()
}

// yesOrNo returns the two words of a table for a bool.
func yesOrNo(b bool) string { return map[bool]string{true: "yes", false: "no"}[b] }

func yesOrEmpty(b bool) string { return phrase.If(b, "yes") }

// formatRate formats a frequency with three digits.
func formatRate(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "-"
	case perSecond < 100:
		return strconv.FormatFloat(perSecond, 'g', 3, 64)
	}
	return strconv.FormatFloat(perSecond, 'f', 0, 64)
}
