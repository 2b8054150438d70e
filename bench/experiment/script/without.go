package script

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models/hfconfig"
)

// Without names the kinds of absent files that placeholders replace while a command runs.
type Without struct {
	// Weights and Data report whether these kinds are replaced. Documented reports whether a repository documents the
	// command: options that its parser refuses are dropped, and absent output folders are replaced.
	Weights, Data, Documented bool
	// Lengths are the token counts of generated texts, used in turn for the samples; empty for the script's own limit.
	Lengths []int64
	// Shapes is a JSON file with the shapes of generated data, see [CheckShapes]; empty for none.
	Shapes string
	// Fetch is the folder for configurations and weight headers fetched from the hub; empty without network access.
	Fetch string
}

// Any reports whether any kind of file is replaced.
func (w Without) Any() bool { return w.Weights || w.Data }

// credentials are environment variables that are removed for commands without weights or data.
var credentials = []string{
	"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "WANDB_API_KEY", "COMET_API_KEY", "NEPTUNE_API_TOKEN",
	"CLEARML_API_ACCESS_KEY", "CLEARML_API_SECRET_KEY", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD",
	"SWANLAB_API_KEY", "KAGGLE_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY",
	"AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS",
}

// environment returns env with the variables of the placeholders, and writes the files that those variables name.
func (w Without) environment(r *hookFolder, env []string) ([]string, error) {
	if !w.Any() {
		return env, nil
	}
	env = slices.DeleteFunc(env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(credentials, name) && (name != "HF_TOKEN" || w.Fetch == "")
	})
	var kinds phrase.List
	kinds.If(w.Weights, "weights")
	kinds.If(w.Data, "data")
	kinds.If(w.Documented, "documented")
	text, err := json.Marshal(hfconfig.Named())
	if err == nil {
		err = os.WriteFile(r.path("configs.json"), text, 0o600)
	}
	lengths := lists.Map(w.Lengths, func(n int64) string { return strconv.FormatInt(n, 10) })
	return append(env, "VPROF_WITHOUT="+strings.Join(kinds, ","), "VPROF_LENGTHS="+strings.Join(lengths, ","),
		"VPROF_SHAPES="+w.Shapes, "VPROF_FETCH="+w.Fetch, "HF_HUB_OFFLINE=1", "HF_DATASETS_OFFLINE=1",
		"TRANSFORMERS_OFFLINE=1"), err
}

// Replaced returns the distinct absent files that placeholders replaced.
func (o *Outcome) Replaced() []report.Replaced {
	all := lists.Union(nil, lists.Map(o.eventsNamed("replaced"), func(e Event) report.Replaced {
		return report.Replaced{Kind: e.Kind, Name: e.Path, By: e.By}
	})...)
	slices.SortStableFunc(all, func(a, b report.Replaced) int { return cmp.Compare(b.Kind, a.Kind) })
	return all
}

// Options returns the options of the command's argument parser; of several parsers, the one with the most options.
func (o *Outcome) Options() (options []Option) {
	for _, e := range o.eventsNamed("options") {
		if len(e.Options) > len(options) {
			options = e.Options
		}
	}
	return options
}

// MissingObjectText returns a sentence about the last missing object that the script required and no placeholder could
// replace; empty if there was none.
func (o *Outcome) MissingObjectText() string {
	all := o.eventsNamed("wanted")
	if len(all) == 0 {
		return ""
	}
	e := all[len(all)-1]
	return fmt.Sprintf("%s requires %s: %s", cmp.Or(e.Path, o.scriptName()), e.Text, e.By)
}

// mostShapes is the largest accepted size in bytes of the file of --data-shapes.
const mostShapes = 1 << 20

// CheckShapes checks that a file of data shapes is JSON with known sections. The hook checks their contents.
func CheckShapes(path string) error {
	f, err := input.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	decoder := json.NewDecoder(io.LimitReader(f, mostShapes))
	decoder.DisallowUnknownFields()
	var sections struct {
		Images                                     string
		Columns, Datasets, Classes, Folders, Files map[string]any
	}
	if err := decoder.Decode(&sections); err != nil {
		return input.FileErrorf(path, "%v; use the keys images, columns, datasets, classes, folders and files", err)
	}
	return nil
}
