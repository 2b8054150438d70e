package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
)

// modelEntry is a model as "vprof models" shows it.
type modelEntry struct {
	Name          string         `json:"name"`
	Summary       string         `json:"summary"`
	Source        string         `json:"source"`
	Stages        []string       `json:"stages"`
	Tasks         []string       `json:"tasks,omitempty"`
	Batch         int            `json:"batch"`
	BatchUnit     string         `json:"batch_unit"`
	AMP           string         `json:"amp"`
	Checkpointing bool           `json:"checkpointing"`
	Accumulate    int            `json:"accumulate"`
	Batches       []int          `json:"batches"`
	Settings      []settingEntry `json:"settings"`
	Notes         []string       `json:"notes"`
}

// settingEntry is a number that a case of the model may choose.
type settingEntry struct {
	Name  string `json:"name"`
	Usage string `json:"usage"`
	// Inert says why it does not change memory; absent if it does.
	Inert   string `json:"inert,omitempty"`
	Default int64  `json:"default"`
	Min     int64  `json:"min"`
	Max     int64  `json:"max"`
}

func entryOf(m models.Model) modelEntry {
	e := modelEntry{
		Name: m.Name, Summary: m.Summary, Source: m.Source, Stages: m.Stages, Tasks: m.Tasks,
		Batch: m.Default.Batch, BatchUnit: m.BatchUnit, AMP: "none", Checkpointing: m.Default.Checkpointing,
		Accumulate: max(1, m.Default.Accumulate), Batches: m.Batches, Settings: []settingEntry{}, Notes: m.Notes,
	}
	for _, s := range m.Settings {
		e.Settings = append(e.Settings, settingEntry{s.Name, s.Usage, s.Inert, s.Default, s.Min, s.Max})
	}
	if m.Default.AMP != "" {
		e.AMP = m.Default.AMP
	}
	return e
}

// hfTypes are the model types of configurations, for people.
func hfTypes() string { return strings.Join(hfconfig.Types(), ", ") }

// modelList is the result of "vprof models".
type modelList struct {
	Schema string       `json:"schema"`
	Models []modelEntry `json:"models"`
}

func newModelsCmd(a *app) *cobra.Command {
	out := output{app: a}
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List the models that vprof knows",
		Long: `List the models that vprof knows by name, for --model.

Besides these, --model takes the configuration of any model of Hugging Face
transformers of these types, without its weights:

  --model hf:path/to/config.json    or the folder that holds it

  ` + hfTypes() + `

What it is trained for goes by the file's architectures, or by --task. Sizes of
samples are --seq-len, --image-size and --audio-seconds; whether rows are padded,
how many classes there are, and more are set with --set. "vprof models show
hf:path/to/config.json" lists all of that.

Results hold what was read of the file, so that reports, exports and comparisons
made of them later need it no more.`,
		Example: `  # where does training a Llama of one's own with adapters end?
  vprof sweep --model hf:my-llama/config.json --seq-len 4096 --amp bf16 --checkpointing --lora r=16,target=q_proj,v_proj`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := out.open(); err != nil {
				return err
			}
			list := modelList{Schema: "vprof.models/v1", Models: []modelEntry{}}
			for _, m := range a.models().All() {
				list.Models = append(list.Models, entryOf(m))
			}
			return out.finish(list)
		},
	}
	out.register(cmd)
	cmd.AddCommand(newModelsShowCmd(a))
	return cmd
}

// Sheets implements [report.Document].
func (l modelList) Sheets() []report.Sheet {
	s := report.Sheet{Columns: []report.Column{
		{Head: "model"}, {Head: "trains"}, {Head: "stages"}, {Head: "batch", Right: true}, {Head: "of"}, {Head: "amp"}, {Head: "micro-batches", Right: true},
	}}
	for _, m := range l.Models {
		s.Rows = append(s.Rows, []string{
			m.Name, m.Summary, strings.Join(m.Stages, ", "), strconv.Itoa(m.Batch), m.BatchUnit + "s", m.AMP, strconv.Itoa(m.Accumulate),
		})
	}
	s.Notes = []string{"hf:PATH is the model of a config.json of transformers: " + hfTypes()}
	return []report.Sheet{s}
}

// Lines implements [report.Document].
func (l modelList) Lines() []any {
	var lines []any
	for _, m := range l.Models {
		lines = append(lines, m)
	}
	return lines
}

// Records implements [report.Document].
func (l modelList) Records() [][]string {
	rows := [][]string{{"name", "summary", "source", "stages", "batch", "batch_unit", "amp", "checkpointing", "accumulate"}}
	for _, m := range l.Models {
		rows = append(rows, []string{
			m.Name, m.Summary, m.Source, strings.Join(m.Stages, " "), strconv.Itoa(m.Batch), m.BatchUnit, m.AMP,
			strconv.FormatBool(m.Checkpointing), strconv.Itoa(m.Accumulate),
		})
	}
	return rows
}

// modelDetail is the result of "vprof models show".
type modelDetail struct {
	Schema string `json:"schema"`
	modelEntry
	// Parameters has the element counts of each stage, in the stages' order, of
	// each task if there is a choice.
	Parameters []stageParameters `json:"parameters"`
}

type stageParameters struct {
	Task  string `json:"task,omitempty"`
	Stage string `json:"stage"`
	report.Parameters
}

func newModelsShowCmd(a *app) *cobra.Command {
	out := output{app: a}
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show what is known of a model",
		Example: "  vprof models show redimnet-b2\n  vprof models show hf:bert-base-uncased/config.json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef(`name one model (list them with "vprof models")`)
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return a.models().Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			m, err := a.models().Lookup(args[0])
			if err != nil {
				return err
			}
			if err := out.open(); err != nil {
				return err
			}
			d, err := detailOf(m)
			if err != nil {
				return err
			}
			return out.finish(d)
		},
	}
	out.register(cmd)
	return cmd
}

func detailOf(m models.Model) (modelDetail, error) {
	d := modelDetail{Schema: "vprof.models/v1", modelEntry: entryOf(m)}
	tasks := m.Tasks
	if len(tasks) == 0 {
		tasks = []string{""}
	}
	for _, task := range tasks {
		for _, stage := range m.Stages {
			c := m.Default
			c.Task, c.Stage = task, stage
			c, err := m.Complete(c)
			if err != nil {
				return d, err
			}
			trainer, err := m.Build(c)
			if err != nil {
				return d, fmt.Errorf("%s: %w", m.Name, err)
			}
			d.Parameters = append(d.Parameters, stageParameters{task, stage, report.Parameters(trainer.Counts())})
		}
	}
	return d, nil
}

// Sheets implements [report.Document].
func (d modelDetail) Sheets() []report.Sheet {
	about := report.Sheet{Title: d.Name + ": " + d.Summary, Notes: []string{"source: " + d.Source}}
	checkpointing := ""
	if d.Checkpointing {
		checkpointing = ", checkpointing"
	}
	about.Notes = append(about.Notes, fmt.Sprintf("by default: batch %d (%s), amp %s%s, %d micro-batches a step",
		d.Batch, d.BatchUnit, d.AMP, checkpointing, d.Accumulate))
	about.Notes = append(about.Notes, d.Notes...)
	counts := report.Sheet{Columns: []report.Column{
		{Head: "stage"}, {Head: "parameters", Right: true}, {Head: "trainable", Right: true}, {Head: "criterion", Right: true}, {Head: "buffers", Right: true},
	}}
	if len(d.Tasks) > 0 {
		counts.Columns = slices.Insert(counts.Columns, 0, report.Column{Head: "task"})
	}
	for _, p := range d.Parameters {
		row := []string{p.Stage, grouped(p.Total), grouped(p.Trainable), grouped(p.Criterion), grouped(p.Buffers)}
		if len(d.Tasks) > 0 {
			row = slices.Insert(row, 0, p.Task)
		}
		counts.Rows = append(counts.Rows, row)
	}
	if len(d.Settings) == 0 {
		return []report.Sheet{about, counts}
	}
	settings := report.Sheet{Columns: []report.Column{
		{Head: "setting"}, {Head: "default", Right: true}, {Head: "from", Right: true}, {Head: "to", Right: true}, {Head: "counts"},
	}}
	for _, s := range d.Settings {
		settings.Rows = append(settings.Rows, []string{s.Name, grouped(s.Default), grouped(s.Min), grouped(s.Max), s.Usage})
	}
	return []report.Sheet{about, counts, settings}
}

// grouped writes n with commas between thousands.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Lines implements [report.Document].
func (d modelDetail) Lines() []any { return []any{d} }

// Records implements [report.Document].
func (d modelDetail) Records() [][]string {
	rows := [][]string{{"name", "task", "stage", "total", "trainable", "criterion", "buffers"}}
	for _, p := range d.Parameters {
		rows = append(rows, []string{
			d.Name, p.Task, p.Stage, fmt.Sprint(p.Total), fmt.Sprint(p.Trainable), fmt.Sprint(p.Criterion), fmt.Sprint(p.Buffers),
		})
	}
	return rows
}
