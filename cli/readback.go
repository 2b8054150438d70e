package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/advise/configfile"
	"github.com/vprof/vprof/bench/advise/systems"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
)

// flagsOutsideFiles are the flags about the GPU, the machine and the data, which no configuration decides. Flags of the
// step are not among them: the file must have their values.
var flagsOutsideFiles = []string{
	"gpu", "gpu-memory", "gpu-spec", "auto", "device", "other-processes", "host-memory", "safety-margin", "risk",
	"gpus", "link", "torch", "stack", "coefficients", "lengths", "batching", "pad-to-multiple-of",
}

// smokeArgs returns the command line with which vprof smoke reads the user's files on the same GPU. Values are flags in
// addition to the files.
func (f *applyFlags) smokeArgs(values []string) []string {
	args, known, t := []string{"smoke"}, newSmokeCmd(&app{}).Flags(), f.trainer()
	f.flags.Visit(func(flag *pflag.Flag) {
		name, list := flag.Name, []string{flag.Value.String()}
		isKept := slices.Contains(flagsOutsideFiles, name)
		switch {
		case isKept || !f.caseFlags.isFixed(name) || known.Lookup(name) == nil:
			isKept = isKept && f.caseFlags.isFixed(name)
		case t != nil:
			isKept = name == "model" && !t.NamesModel()
		case slices.Contains([]string{"model", "config-path", "map"}, name):
			isKept = true
		default: // other flags describe what no key of --map holds
			isKept = len(f.mapPairs) > 0 && groupOf(flag) != models.GroupOutput && name != "batch" &&
				!systems.IsMapped(f.mapPairs, name)
		}
		if several, is := flag.Value.(pflag.SliceValue); is {
			list = several.GetSlice()
		}
		for _, text := range list {
			if isKept && !strings.HasPrefix(text, "effective=") {
				args = append(args, "--"+name+"="+text)
			}
		}
	})
	args = append(args, values...)
	switch {
	case t == nil && f.config == "":
		return append(args, "--config-path="+f.caseFlags.config.path)
	case t != nil && f.flags.ArgsLenAtDash() == 0:
		args = append(args, "--")
	}
	if t != nil {
		args = append(args, f.flags.Args()...)
	}
	return args
}

// readBack returns an error unless vprof smoke, which reads the files as they would be written, judges the step of the
// choice and finds it safe. It returns the command line of smoke.
func (f *applyFlags) readBack(
	ctx context.Context, a *app, changes []configfile.Change, values []string, c report.Choice,
) (command string, err error) {
	edited := map[string][]byte{}
	for _, change := range changes {
		edited[change.Path] = change.After
	}
	defer input.Replace(edited)()
	args := f.smokeArgs(values)
	answer := a.runArgs(ctx, newSmokeCmd, "", append([]string{args[0], "--format=json"}, args[1:]...))
	var s report.Smoke
	switch {
	case json.Unmarshal(answer.result, &s) != nil:
		return "", usagef("nothing was written, because vprof smoke would refuse the result: %s", answer.message)
	case s.Batch != c.Batch:
		return "", f.notInFile("batch", fmt.Sprint(s.Batch), fmt.Sprint(c.Batch))
	case s.Case.Model != c.Case.Model && !bytes.Equal(s.Case.Config, c.Case.Config):
		return "", f.notInFile("model", s.Case.Model, c.Case.Model)
	}
	dropSettings(a, &s.Case.Case, &c.Case.Case)
	for _, d := range models.Differences(s.Case.Case, c.Case.Case) {
		unevaluated := d.Name == "evaluate" && d.A == "" && d.B == "none" // two words of a file without evaluation
		if d.Name != "stage" && d.A+d.B != "" && !unevaluated {           // all stages are judged
			return "", f.notInFile(cmp.Or(d.Name, d.Label), d.A, d.B)
		}
	}
	if !s.Safe {
		return "", negativeVerdict{fmt.Errorf("nothing was written: %s", s.Verdict())}
	}
	return "vprof " + strings.Join(args, " "), nil
}

// dropSettings removes settings that may differ between the read case and the choice: without an effect on memory, or
// zero in one and absent in the other.
func dropSettings(a *app, read, choice *models.Case) {
	m, _ := a.models().Lookup(choice.Model) // a model of a file has no settings without an effect
	for _, c := range []*models.Case{read, choice} {
		c.Settings = maps.Clone(c.Settings)
		maps.DeleteFunc(c.Settings, func(name string, value int64) bool {
			return value == 0 || slices.ContainsFunc(m.Settings, func(s models.Setting) bool {
				return s.Name == name && s.Inert != ""
			})
		})
	}
}

// notInFile returns the error for a value of the choice that the written files lack.
func (f *applyFlags) notInFile(flag, inFile, chosen string) error {
	assumes, usual := "--"+flag+" "+chosen, "the default"
	switch flag {
	case "settings":
		assumes = "--set " + chosen
	case "recompute":
		usual = "non-reentrant"
		assumes = "--checkpointing " + cmp.Or(chosen, usual)
	}
	file := cmp.Or(f.caseFlags.config.path, f.config)
	if t := f.trainer(); t != nil {
		file = t.File
	}
	return usagef("nothing was written: fit assumes %s, and a plan of %s would have %s; change the file yourself, and "+
		"run fit on it without that flag", assumes, file, cmp.Or(inFile, usual))
}
