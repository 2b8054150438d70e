package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/vprof/vprof/bench/advise/configfile"
	"github.com/vprof/vprof/bench/report"
)

// readBack returns an error if a trainer's file with the new values would give another plan: nothing is written.
func (f *applyFlags) readBack(changes []configfile.Change, c report.Choice) error {
	if f.trainer == nil || len(f.mapPairs) > 0 || len(changes) != 1 {
		return nil
	}
	reread, err := f.trainer.Reread(changes[0].After)
	if err != nil {
		return fmt.Errorf("nothing was written: with the recommendation, vprof could not read the %s file again: %w",
			f.trainer.Trainer, err)
	}
	read := map[string]string{}
	for _, s := range reread.Settings {
		read[s.Flag] = s.Value
	}
	k := &c.Case.Case
	v := trainerValues(c)
	want := map[string]string{
		"batch": fmt.Sprint(c.Batch), "accumulate": fmt.Sprint(max(1, k.Accumulate)),
		"checkpointing": "false",
	}
	if k.Checkpointing {
		want["checkpointing"] = cmp.Or(string(k.Recompute), "true")
	}
	for _, lever := range []string{"liger", "offload", "optimizer-in-backward", "quantize"} {
		want[lever] = cmp.Or(v.Savings[lever], "false")
	}
	if name, turned := v.Savings["optimizer"]; turned {
		want["optimizer"] = name
	}
	unsaid := map[string]string{"accumulate": "1"}
	for _, flag := range slices.Sorted(maps.Keys(want)) {
		if got := cmp.Or(read[flag], unsaid[flag], "false"); got != want[flag] {
			key := reread.DecidedBy(flag)
			if flag == "checkpointing" && got != "false" && k.Checkpointing {
				key, want[flag] = reread.DecidedBy("reentrant"), cmp.Or(string(k.Recompute), "non-reentrant")
			}
			return fmt.Errorf("%s: nothing was written: with the recommendation the file would mean --%s %s, but fit "+
				"chose %s; set %s by hand and run fit again", f.trainer.File, flag, got, want[flag], cmp.Or(key, "it"))
		}
	}
	return nil
}

// flagsNotInFile are the flags of a case that fit considers and does not write.
var flagsNotInFile = []string{
	"task", "seq-len", "weights", "amp", "lora", "optimizer", "objective", "train-only", "trained-weights", "qat",
	"chunked-loss",
	"linear-cross-entropy", "torch-compile", "tiled-mlp", "clip", "routing", "strategy", "alloc-conf",
	"cublas-workspace",
}

// flagOfFact maps such flags to their names in the trainers' tables, if those differ.
var flagOfFact = map[string]string{"amp": "mixed", "lora": "lora-r"}

// valuesNotInFile appends to a note the flags of the command line that the trainer's file lacks.
func (f *applyFlags) valuesNotInFile(c report.Choice, note string) (lines []string) {
	if note != "" {
		lines = append(lines, note)
	}
	if f.trainer == nil || len(f.mapPairs) > 0 {
		return lines
	}
	said := map[string]string{}
	for _, s := range f.trainer.Settings {
		said[s.Flag] = s.Value
	}
	levers := trainerValues(c).Savings
	for _, name := range flagsNotInFile {
		flag := f.flags.Lookup(name)
		if flag == nil || !f.isFixedFlag(name) || levers[name] != "" || said[name] == flag.Value.String() {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: --%s %s is not in the file and is not written; set %s by hand",
			f.trainer.File, name, flag.Value,
			cmp.Or(f.trainer.DecidedBy(name), f.trainer.DecidedBy(flagOfFact[name]), "it")))
	}
	return lines
}
