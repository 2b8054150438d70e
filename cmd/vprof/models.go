package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
)

// modelEntry is a model as "vprof models" shows it.
type modelEntry struct {
	Name          string         `json:"name"`
	Summary       string         `json:"summary"`
	Source        string         `json:"source"`
	Stages        []string       `json:"stages"`
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
		Name: m.Name, Summary: m.Summary, Source: m.Source, Stages: m.Stages,
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
		Args:  noArgs,
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
	// Parameters has the element counts of each stage, in the stages' order.
	Parameters []stageParameters `json:"parameters"`
}

type stageParameters struct {
	Stage string `json:"stage"`
	report.Parameters
}

func newModelsShowCmd(a *app) *cobra.Command {
	out := output{app: a}
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show what is known of a model",
		Example: "  vprof models show redimnet-b2",
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
	for _, stage := range m.Stages {
		c := m.Default
		c.Stage = stage
		c, err := m.Complete(c)
		if err != nil {
			return d, err
		}
		trainer, err := m.Build(c)
		if err != nil {
			return d, fmt.Errorf("%s: %w", m.Name, err)
		}
		d.Parameters = append(d.Parameters, stageParameters{stage, report.Parameters(trainer.Counts())})
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
	for _, p := range d.Parameters {
		counts.Rows = append(counts.Rows, []string{
			p.Stage, grouped(p.Total), grouped(p.Trainable), grouped(p.Criterion), grouped(p.Buffers),
		})
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
	rows := [][]string{{"name", "stage", "total", "trainable", "criterion", "buffers"}}
	for _, p := range d.Parameters {
		rows = append(rows, []string{
			d.Name, p.Stage, fmt.Sprint(p.Total), fmt.Sprint(p.Trainable), fmt.Sprint(p.Criterion), fmt.Sprint(p.Buffers),
		})
	}
	return rows
}
