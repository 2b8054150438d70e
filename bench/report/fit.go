package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
)

// FitSchema names this version of the format of [Fit].
const FitSchema = "vprof.fit/v1"

// Fit is the result of a search for the largest batch.
type Fit struct {
	Schema string `json:"schema" jsonschema:"const=vprof.fit/v1"`
	Tool   Tool   `json:"tool"`
	// Started is the start of the work, UTC.
	Started   time.Time `json:"started"`
	Model     string    `json:"model"`
	BatchUnit string    `json:"batch_unit"`
	// Config is the description of the choices' model, if it is not one of vprof's own; see [Case].
	Config json.RawMessage `json:"config,omitempty" jsonschema:"type=object"`
	Budget Budget          `json:"budget"`
	// Devices are the GPUs that choices refer to by name.
	Devices []Device `json:"devices"`
	// Parallel describes the GPUs if several share the work; estimates are for each of them. Absent for one GPU.
	Parallel *Parallel `json:"parallel,omitempty"`
	// Choices are the configurations searched, by device and stage, the fastest first.
	Choices []Choice `json:"choices"`
	// Intervals names the records of the estimates' ranges, and the share of them within the ranges of the others.
	Intervals string `json:"intervals,omitempty"`
	// Parts are the settings of the parts of a curriculum that train with one batch: each choice is safe in all.
	Parts []models.Settings `json:"parts,omitempty"`
	// Profiles are recommendations for the parts of the project's curriculum, if it has one.
	Profiles []Profile `json:"profiles,omitempty"`
	Warnings []Warning `json:"warnings,omitempty"`
	SettingsFrom
}

// Budget is the memory of a device that a batch may use.
type Budget struct {
	// Margin is the share of the memory that the estimate may fill; absent if Risk replaces it.
	Margin float64 `json:"margin,omitempty"`
	// Risk is the probability of needing more than the memory.
	Risk float64 `json:"risk,omitempty"`
	// Preset is the name of the margin, if the user gave one.
	Preset string `json:"preset,omitempty"`
	// OtherProcessBytes is the memory of other processes on each device.
	OtherProcessBytes int64 `json:"other_processes_bytes,omitempty"`
	// EffectiveBatch is the number of samples that an optimizer step should see; absent if it does not matter.
	EffectiveBatch int `json:"target_effective_batch,omitempty"`
	// MaxBatch is the largest batch size to try.
	MaxBatch int `json:"max_batch"`
	// Multiple is the number that batches are multiples of; absent for any.
	Multiple int `json:"batch_multiple,omitempty"`
	// Batch is the one batch size that was tried; absent for the largest that fits.
	Batch int `json:"batch,omitempty"`
	// SeqLen reports whether the longest sequence was searched, at that batch.
	SeqLen bool `json:"search_seq_len,omitempty"`
}

// Parallel is a group of GPUs.
type Parallel struct {
	GPUs     int    `json:"gpus"`
	Strategy string `json:"strategy"`
	// Bandwidth is the bandwidth of one GPU's links, bytes a second.
	Bandwidth float64 `json:"link_bytes_per_second"`
	// MinGPUs is the smallest power of two of GPUs, or all of them, on which a configuration fits with one sample each;
	// absent if it was not computed.
	MinGPUs int `json:"least_gpus,omitempty"`
}

// String returns the group in a few words.
func (p Parallel) String() string { return fmt.Sprintf("%d GPUs, %s", p.GPUs, p.Strategy) }

// Choice is a configuration and the batch size found for it.
type Choice struct {
	Device string `json:"device"`
	Case   Case   `json:"case"`
	// IsAuthorsOwn reports whether the model's authors train with this precision, checkpointing and settings.
	IsAuthorsOwn bool `json:"own"`
	// NotAdvised is the reason why the choice is not recommended although it may be fastest: the project's code does
	// not support it, or the GPU lacks its arithmetic. Absent for other choices.
	NotAdvised string `json:"not_advised,omitempty"`
	// Recommended reports whether the choice is the recommendation for its stage on its device.
	Recommended bool `json:"recommended"`
	// Largest is the largest batch within the budget with this case's accumulation, zero if not even one sample fits.
	Largest int `json:"largest_batch"`
	// LargestIsCapped reports whether the search ended at the largest batch to try.
	LargestIsCapped bool `json:"capped,omitempty"`
	// Batch is the batch size to use: Largest, or a smaller one that divides the effective batch more evenly.
	// Accumulate is in Case.
	Batch int `json:"batch"`
	// SeqLen is the longest sequence within the budget in tokens, also in Case; absent if the batch was searched.
	SeqLen int `json:"seq_len,omitempty"`
	// EffectiveBatch is the number of samples of one optimizer step.
	EffectiveBatch int `json:"effective_batch"`
	// Estimate is for Batch, or for the smallest batch if none fits.
	Estimate *Estimate `json:"estimate,omitempty"`
	// StackRange is the range of runs that others report at Batch, if the choice is recommended; see [Point].
	StackRange *StackRange `json:"stack_range,omitempty"`
	// Utilization is Estimate.Device over the device's memory.
	Utilization float64 `json:"utilization"`
	// StepSeconds is the estimated time of one optimizer step, and SamplesPerSecond the resulting speed.
	StepSeconds      float64 `json:"step_seconds"`
	SamplesPerSecond float64 `json:"samples_per_second"`
	// Expandable is the estimated device bytes at Batch with expandable segments; absent if they are on already or
	// would save little.
	Expandable *Interval `json:"expandable_device,omitempty"`
	// Lengths are the epochs over samples of different lengths that were replayed at Batch, or at a batch of one if no
	// batch completes them; absent unless lengths were given.
	Lengths *Lengths `json:"lengths,omitempty"`
	// Workspaces counts the convolutions whose workspace cuDNN answered; absent if it was not queried about the model.
	Workspaces *Workspaces `json:"convolution_workspaces,omitempty"`
	// Run is the step at Batch, replayed on the device.
	Run *Run `json:"run,omitempty"`
	// Waterfall is the need at Batch as memory-saving options are added one after the other; the first entry has none.
	// Absent unless options were searched.
	Waterfall []Lever `json:"waterfall,omitempty"`
	// Refused is the reason why PyTorch or the model would not train this configuration; absent if it would.
	Refused string `json:"refused,omitempty"`
}

// Lever is one step of a waterfall: the need after a memory-saving option is added.
type Lever struct {
	// Name is the option, as on the command line; empty for the case without options.
	Name   string `json:"name,omitempty"`
	Device int64  `json:"device_bytes"`
	// Saves is the number of bytes that the option saves, SamplesPerSecond the speed with it.
	Saves            int64   `json:"saves_bytes"`
	SamplesPerSecond float64 `json:"samples_per_second"`
}

// Fits reports whether a batch was found.
func (c Choice) Fits() bool { return c.Batch > 0 && c.Refused == "" }

// CompareBools orders two bools: true comes first.
func CompareBools(a, b bool) int {
	order := map[bool]int{true: 0, false: 1}
	return order[a] - order[b]
}

// configurationText names the fields of a case that choices of several stages can share.
func (c Choice) configurationText() string {
	return fmt.Sprint(c.Case.AMP, c.Case.Checkpointing, c.Case.Strategy, c.Case.Settings.Assignments(), c.savingsText())
}

// savingsText lists the memory-saving options in words, with an optimizer that replaces the system's own.
func (c Choice) savingsText() string {
	words := c.Case.OptionTexts()
	if c.Case.Optimizer != "" {
		words = append(words, c.Case.Optimizer)
	}
	return strings.Join(words, " + ")
}

// SameConfiguration reports whether two choices differ only in stage, device and batch.
func (c Choice) SameConfiguration(other Choice) bool {
	return c.configurationText() == other.configurationText()
}

// Overall returns the choice with which all stages on a device are safe: of the configurations that fit in every stage,
// the fastest in the stage with its smallest batch.
func (f *Fit) Overall(device string) (Choice, bool) {
	var best Choice
	of := lists.Filter(f.Choices, func(c Choice) bool { return c.Device == device })
	for _, stages := range lists.Groups(of, Choice.configurationText) {
		c := slices.MinFunc(stages, func(a, b Choice) int { return cmp.Compare(a.Batch, b.Batch) })
		fits := !slices.ContainsFunc(stages, func(c Choice) bool { return !c.Fits() })
		advised := c.NotAdvised == "" && best.NotAdvised != ""
		if fits && (!best.Fits() || advised || c.SamplesPerSecond > best.SamplesPerSecond &&
			(c.NotAdvised == "" || best.NotAdvised != "")) {
			best = c
		}
	}
	return best, best.Fits()
}

// String formats the memory that a batch may use as a line.
func (b Budget) String() string {
	s := fmt.Sprintf("%.0f %% of the memory", 100*b.Margin)
	if b.Risk > 0 {
		s = fmt.Sprintf("the memory, with a risk of %s %% of needing more", strconv.FormatFloat(100*b.Risk, 'g', 3, 64))
	}
	return s + phrase.If(b.Preset != "", " (preset %s)", b.Preset) +
		phrase.If(b.OtherProcessBytes > 0, " without %s of other processes", bytesize.Format(b.OtherProcessBytes))
}

// Data implements [Document]: each line is a fit with one choice.
func (f *Fit) Data() Data {
	lines, rows := make([]any, len(f.Choices)), make([][]any, len(f.Choices))
	for i, c := range f.Choices {
		rows[i] = []any{
			c, c.Case.textValues(),
			extraValues{"device_memory_bytes": f.memory(c.Device), "run": c.Run.Kind()},
		}
		line := *f
		line.Choices, line.Profiles, line.Devices = []Choice{c}, nil, nil
		if d, ok := find(f.Devices, c.Device); ok {
			line.Devices = []Device{d}
		}
		lines[i] = line
	}
	return Data{lines, Rows(`model device device_memory_bytes
		stage=case_stage amp=case_amp checkpointing=case_checkpointing settings own recommended
		largest_batch capped batch accumulate=case_accumulate effective_batch
		estimate_allocated_bytes estimate_reserved_bytes
		estimate_device_bytes estimate_device_low_bytes estimate_device_high_bytes
		utilization step_seconds samples_per_second run run_device_bytes refused
		gpus strategy rank`, rows, f)}
}

// Profile is a recommendation for one part of a project's training.
type Profile struct {
	Name string `json:"name"`
	// Settings are the settings in which the parts differ.
	Settings models.Settings `json:"settings,omitempty"`
	Choice   Choice          `json:"choice"`
}

// profilesSheet returns a row for each part of the curriculum.
func (f *Fit) profilesSheet() Sheet {
	s := sheetIn("the parts of the project's curriculum, as its authors train them",
		"profile | batch> | micro-batches> | effective> | device {}> | use>",
		largest(f.Profiles, func(p Profile) int64 { return p.Choice.Estimate.Device.High }))
	settings := slices.Sorted(maps.Keys(f.Profiles[0].Settings))
	for i, name := range settings {
		s.Columns = slices.Insert(s.Columns, 1+i, Column{Head: name, Right: true})
	}
	for _, p := range f.Profiles {
		c := p.Choice
		found := []string{"none fits", "-", "-"}
		if c.Batch > 0 {
			found = []string{strconv.Itoa(c.Batch), strconv.Itoa(c.Case.Accumulate), strconv.Itoa(c.EffectiveBatch)}
		}
		values := lists.Map(settings, func(name string) string { return strconv.FormatInt(p.Settings[name], 10) })
		s.Row(p.Name, values, found, c.Estimate.Device, fmt.Sprintf("%.0f%%", 100*c.Utilization))
	}
	return s
}
