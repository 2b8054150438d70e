package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/modelcard"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
)

type modelEntry struct {
	Name          string            `json:"name"`
	Summary       string            `json:"summary"`
	Source        string            `json:"source"`
	Stages        []string          `json:"stages"`
	Tasks         []string          `json:"tasks,omitempty"`
	Batch         int               `json:"batch"`
	BatchUnit     string            `json:"batch_unit"`
	AMP           models.Autocast   `json:"amp"`
	Weights       models.WeightType `json:"weights,omitempty"`
	Checkpointing bool              `json:"checkpointing"`
	Accumulate    int               `json:"accumulate"`
	Batches       []int             `json:"batches"`
	// Validation is the batch size of validation; absent if it equals the training batch, or without validation.
	Validation int `json:"validation,omitempty"`
	// TakesLoRA reports whether the model supports --lora.
	TakesLoRA bool             `json:"adapts"`
	Settings  []models.Setting `json:"settings"`
	Notes     []string         `json:"notes"`
}

func newModelEntry(m models.Model) modelEntry {
	return modelEntry{
		Name: m.Name, Summary: m.Summary, Source: m.Source, Stages: m.Stages, Tasks: m.Tasks,
		Batch: m.Default.Batch, BatchUnit: m.BatchUnit, AMP: m.Default.AMP, Weights: m.Default.Weights,
		Checkpointing: m.Default.Checkpointing,
		Accumulate: max(1,
			m.Default.Accumulate), Batches: m.Batches, Validation: m.Validation, TakesLoRA: m.SupportsLoRA,
		Settings: append([]models.Setting{}, m.Settings...), Notes: m.Notes,
	}
}

// hfTypes returns the supported model types of configurations, as text.
func hfTypes() string { return strings.Join(hfconfig.Types(), ", ") }

// modelList is the result of "vprof models".
type modelList struct {
	Schema string       `json:"schema"`
	Models []modelEntry `json:"models"`
	// Hub are models of the Hugging Face hub whose configurations vprof has.
	Hub []hfconfig.HubModel `json:"hub,omitempty"`
	// filtered reports whether the list has what a text selected.
	filtered bool
}

func newModelsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "models [TEXT]", Short: "List the models for --model", Args: argCount(0, 1, "search for one text"),
	}
	cmd.AddCommand(newModelsShowCmd(a))
	return (&output{app: a}).showDocument(cmd, func(args []string) (report.Document, error) {
		l := modelList{
			Schema: "vprof.models/v1", Models: lists.Map(a.models().All(), newModelEntry), Hub: hfconfig.HubModels(),
		}
		if len(args) == 0 {
			return l, nil
		}
		return l.matching(args[0])
	})
}

// matching returns the models that have a text in their name, summary or type.
func (l modelList) matching(text string) (modelList, error) {
	has := func(texts ...string) bool {
		return strings.Contains(strings.ToLower(strings.Join(texts, " ")), strings.ToLower(text))
	}
	l.filtered = true
	l.Models = slices.DeleteFunc(l.Models, func(m modelEntry) bool { return !has(m.Name, m.Summary) })
	l.Hub = slices.DeleteFunc(l.Hub, func(m hfconfig.HubModel) bool { return !has(m.Name, m.Type) })
	if len(l.Models)+len(l.Hub) == 0 {
		return l, usagef("no model has %q in its name; list all with \"vprof models\", show one with \"vprof "+
			"models show NAME\", or name one of the Hugging Face Hub: --model hf:ORGANIZATION/NAME", text)
	}
	return l, nil
}

// Sheets returns the tables to print, for [report.Document].
func (l modelList) Sheets() []report.Sheet {
	s := report.Sheet{Columns: report.Columns("model | trains | stages | batch> | of | amp | micro-batches>")}
	for _, m := range l.Models {
		s.Row(m.Name, m.Summary, strings.Join(m.Stages, ", "), m.Batch, m.BatchUnit+"s", m.AMP, m.Accumulate)
	}
	if !l.filtered {
		s.Notes.Add("hf:Qwen/Qwen3-8B and %d other models of the hub by name (vprof models TEXT lists them)",
			len(l.Hub)-1)
		s.Notes.Add("hf:PATH: the config.json of a transformers model of type %s", hfTypes())
		return []report.Sheet{s}
	}
	named := report.Sheet{Columns: report.Columns("model | type")}
	for _, m := range l.Hub {
		named.Row(hfconfig.Scheme+":"+m.Name, m.Type)
	}
	named.Notes.Add("--format json names the public source of each configuration")
	switch {
	case len(l.Models) == 0:
		return []report.Sheet{named}
	case len(l.Hub) == 0:
		return []report.Sheet{s}
	}
	return []report.Sheet{s, named}
}

// Data implements [report.Document]. A model of the hub has only the first cells of a CSV row.
func (l modelList) Data() report.Data {
	columns := "name summary source stages batch batch_unit amp checkpointing accumulate"
	rows := report.Rows(columns, l.Models)
	for _, m := range l.Hub {
		row := make([]string, len(rows[0]))
		row[0], row[1], row[2] = hfconfig.Scheme+":"+m.Name, m.Type, m.Source
		rows = append(rows, row)
	}
	return report.Data{Lines: report.AsLines(l.Models), CSV: rows}
}

// modelPage is the result of "vprof models show".
type modelPage struct {
	Schema string `json:"schema"`
	modelEntry
	*report.Model
}

func newModelsShowCmd(a *app) *cobra.Command {
	out, target := output{app: a}, gpuFlags{}
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Describe a model",
		Args:  argCount(1, 1, `name one model (list them with "vprof models")`),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return a.models().Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := a.models().Lookup(args[0])
			if err != nil {
				return err
			}
			gpu, err := target.oneGPU()
			if err != nil {
				return err
			}
			page, err := modelcard.Describe(cmd.Context(), m, gpu, a.residuals)
			if err != nil {
				return err
			}
			return out.finish(modelPage{"vprof.models/v1", newModelEntry(m), page})
		},
	}
	target.register(cmd, "`GPU` for attention kernels and estimates, unless a guide names another (see vprof gpus)")
	return out.register(cmd)
}

// Sheets returns the tables to print, for [report.Document].
func (p modelPage) Sheets() []report.Sheet {
	sheets := []report.Sheet{p.about(), p.StageSheet()}
	if len(p.Inputs) > 0 {
		sheets = append(sheets, p.InputSheet(p.BatchUnit))
	}
	if len(p.Settings) > 0 {
		sheets = append(sheets, p.settings())
	}
	if len(p.Attention) > 0 {
		sheets = append(sheets, p.AttentionSheet())
	}
	return append(sheets, report.ClaimSheets(p.Claims)...)
}

// about returns the table of the page's notes.
func (p modelPage) about() report.Sheet {
	s := report.Sheet{Title: p.Name + ": " + p.Summary}
	s.Notes.Add("source: %s", p.Source)
	words := []string{
		"stage " + p.Stages[0], fmt.Sprintf("batch %d (%s)", p.Batch, p.BatchUnit),
		"amp " + p.AMP.String(),
	}
	if p.Weights != models.FP32 {
		words = append(words, p.Weights.String()+" weights")
	}
	if p.Checkpointing {
		words = append(words, "checkpointing")
	}
	if p.Accumulate > 1 {
		words = append(words, fmt.Sprintf("%d micro-batches a step", p.Accumulate))
	}
	if p.Validation > 0 {
		words = append(words, fmt.Sprintf("validation in batches of %d", p.Validation))
	}
	s.Notes.Add("by default: %s", strings.Join(words, ", "))
	if len(p.Batches) > 0 {
		s.Notes.Add("vprof sweep tries batch %s",
			strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Batches), " ", ", "), "[]"))
	}
	if p.TakesLoRA {
		s.Notes.Add("--lora trains adapters instead")
	}
	s.Notes = append(s.Notes, p.Notes...)
	return s
}

// settings returns the model's settings and their flags.
func (p modelPage) settings() report.Sheet {
	s := report.Sheet{Columns: report.Columns("setting | default> | from> | to> | is")}
	for _, e := range p.Settings {
		flag := "--set " + e.Name + "="
		if f := models.FieldNamed(e.Name); f != nil && !f.SetOnly {
			flag = "--" + e.Name
		}
		is := e.Usage
		if e.Inert != "" {
			is += "; does not change memory: " + e.Inert
		}
		s.Row(flag, int(e.Default), int(e.Min), int(e.Max), is)
	}
	return s
}

// Data implements [report.Document]: CSV has one row for each stage.
func (p modelPage) Data() report.Data {
	columns := "name task stage total trainable criterion buffers"
	return report.Data{Lines: []any{p}, CSV: report.Rows(columns, p.Parameters, p)}
}
