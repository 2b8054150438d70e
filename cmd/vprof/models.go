package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
)

// modelEntry is a model as "vprof models" shows it.
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
	// Validation is the batch size of validation; absent if it is that of
	// training, or if there is none.
	Validation int `json:"validation,omitempty"`
	// Adapts says that --lora works.
	Adapts   bool             `json:"adapts"`
	Settings []models.Setting `json:"settings"`
	Notes    []string         `json:"notes"`
}

func entryOf(m models.Model) modelEntry {
	return modelEntry{
		Name: m.Name, Summary: m.Summary, Source: m.Source, Stages: m.Stages, Tasks: m.Tasks,
		Batch: m.Default.Batch, BatchUnit: m.BatchUnit, AMP: m.Default.AMP, Weights: m.Default.Weights,
		Checkpointing: m.Default.Checkpointing,
		Accumulate:    max(1, m.Default.Accumulate), Batches: m.Batches, Validation: m.Validation, Adapts: m.Adapts,
		Settings: append([]models.Setting{}, m.Settings...), Notes: m.Notes,
	}
}

// hfTypes are the model types of configurations, for people.
func hfTypes() string { return strings.Join(hfconfig.Types(), ", ") }

// modelList is the result of "vprof models".
type modelList struct {
	Schema string       `json:"schema"`
	Models []modelEntry `json:"models"`
}

func newModelsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "models", Short: "List the models that vprof knows", Args: noArgs}
	cmd.AddCommand(newModelsShowCmd(a))
	return (&output{app: a}).showing(cmd, func([]string) (report.Document, error) {
		list := modelList{Schema: "vprof.models/v1", Models: []modelEntry{}}
		for _, m := range a.models().All() {
			list.Models = append(list.Models, entryOf(m))
		}
		return list, nil
	})
}

// Sheets implements [report.Document].
func (l modelList) Sheets() []report.Sheet {
	s := report.Sheet{Columns: report.Columns("model | trains | stages | batch> | of | amp | micro-batches>")}
	for _, m := range l.Models {
		s.Row(m.Name, m.Summary, strings.Join(m.Stages, ", "), m.Batch, m.BatchUnit+"s", m.AMP, m.Accumulate)
	}
	s.Note("hf:PATH is the model of a config.json of transformers: %s", hfTypes())
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
	return report.Rows("name summary source stages batch batch_unit amp checkpointing accumulate", l.Models)
}
