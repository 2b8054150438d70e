package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/shard"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
)

// Result is the report of one job, or the reason why there is no report.
type Result struct {
	Report        *report.Report `json:"report,omitempty"`
	Case          report.Case    `json:"case,omitzero"`
	RefusedReason string         `json:"refused,omitempty"`
}

// Results calls each with the result of every job on every GPU, in the order of the fleet. One shard is open at a time.
// The error names every GPU with missing results.
func (f *Folder) Results(each func(b GPUTasks, r Result) error) error {
	sets := make([]*shard.Set, len(f.GPUs))
	var missing error
	for i, b := range f.GPUs {
		set, err := f.shards(b)
		switch {
		case err == nil && set == nil:
			err = &shard.IncompleteError{Dir: f.Path(b), ShardCount: b.Tasks, Missing: lists.Ascending(b.Tasks)}
		case err == nil:
			err = set.Incomplete()
		}
		missing = errors.Join(missing, err)
		sets[i] = set
	}
	if missing != nil {
		return missing
	}
	for i, b := range f.GPUs {
		if err := sets[i].Results(func(unit, _ int, text json.RawMessage) error {
			var r Result
			if err := json.Unmarshal(text, &r); err != nil {
				return &input.FormatError{File: f.Path(b), Reason: fmt.Sprintf("job %d: %v", unit, err)}
			}
			if r.Report != nil && len(r.Report.Devices) > 1 {
				return input.FileErrorf(f.Path(b), "job %d is a sweep of several GPUs, and a job of a fleet has one; "+
					"run the fleet again with this version of vprof", unit)
			}
			return each(b, r)
		}); err != nil {
			return err
		}
	}
	return nil
}

// shards returns the set of a GPU's shards; nil if no task has written one.
func (f *Folder) shards(b GPUTasks) (*shard.Set, error) {
	set, err := shard.ReadDir(f.Path(b))
	switch {
	case errors.As(err, new(*shard.FolderError)), errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && (set.Hash != b.JobsHash || set.ShardCount != b.Tasks):
		err = input.Errorf("%s: the shards in this folder belong to another fleet; name another folder with --dir",
			f.Path(b))
	}
	return set, err
}
