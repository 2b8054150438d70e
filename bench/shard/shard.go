// Package shard stores the results of parts of a plan in files, one for each part, and merges them.
//
// A plan is a list of units of work, divided into shards of consecutive units. A shard's file is JSON Lines: a header,
// a line for each finished unit, and an end. It is written under a temporary name and renamed when it is complete. An
// interrupted shard resumes at its first unfinished unit.
package shard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vprof/vprof/bench/report"
)

// Schema names this version of the files.
const Schema = "vprof.shard/v1"

// A Plan describes work that is divided into shards. Shards of different plans do not merge.
type Plan struct {
	// Verb is the command whose work is divided: "plan", "sweep", "accuracy", "fit" or "fleet".
	Verb string `json:"verb"`
	// Hash identifies the work, see [Hash].
	Hash string `json:"plan"`
	// Units is the number of units of work.
	Units int         `json:"units"`
	Tool  report.Tool `json:"tool"`
}

// A Header is the first line of a shard's file.
type Header struct {
	Schema string `json:"schema"`
	Plan
	// Shard is the index of the shard, counted from zero, ShardCount the number of shards.
	Shard      int `json:"shard"`
	ShardCount int `json:"of"`
	// From is the shard's first unit, To the unit after its last.
	From int `json:"from"`
	To   int `json:"to"`
	// Common is data about the whole work, the same in all shards.
	Common json.RawMessage `json:"common,omitempty"`
	// Started is the start of the shard's work, UTC, and Host its machine.
	Started time.Time `json:"started"`
	Host    string    `json:"host,omitempty"`
}

// line is a line after the header: the result of units, a partial result, a failure, or the end.
type line struct {
	// Unit is the first unit to which Result belongs, and Units the number of units.
	Unit   *int            `json:"unit,omitempty"`
	Units  int             `json:"units,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	// Partial is the partial result of an unfinished unit.
	Partial json.RawMessage `json:"partial,omitempty"`
	Failure *Failure        `json:"failure,omitempty"`
	// Done is the number of units in the file. Only the last line has it.
	Done *int `json:"done,omitempty"`
}

// A Failure is the reason why a process stopped before the end of its shard.
type Failure struct {
	// Reason is the error's text, Code the command's exit code.
	Reason string    `json:"reason"`
	Code   int       `json:"code"`
	At     time.Time `json:"at"`
	Host   string    `json:"host,omitempty"`
}

// Part is one shard of several.
type Part struct{ Index, ShardCount int }

// Range returns the part's units, of all units in the work. They are consecutive, since neighbors share most work. The
// sizes of parts differ by at most one.
func (p Part) Range(units int) (from, to int) {
	return p.Index * units / p.ShardCount, (p.Index + 1) * units / p.ShardCount
}

func (p Part) String() string { return fmt.Sprintf("%d/%d", p.Index, p.ShardCount) }

// MaxShards is the largest number of shards of a plan: more files take too long to list.
const MaxShards = 100_000

// AutoPart is the value of --shard that reads the part from the scheduler's environment variables.
const AutoPart = "auto"

// Parse parses the value of --shard: "i/n" with i from 0, "auto", or "auto/n" for schedulers whose environment has the
// index but not the number of shards. getenv looks up an environment variable.
func Parse(s string, getenv func(string) string) (Part, error) {
	which, many, given := strings.Cut(s, "/")
	if which != AutoPart {
		p, err := parse(which, many)
		if err == nil && !given {
			err = fmt.Errorf("invalid shard %q: need i/n, like 0/4", s)
		}
		return p, err
	}
	if id := getenv("SLURM_ARRAY_TASK_ID"); id != "" {
		return partOfArray(id, many, getenv)
	}
	if index := getenv("JOB_COMPLETION_INDEX"); index != "" {
		if !given {
			return Part{},
				fmt.Errorf("auto: JOB_COMPLETION_INDEX is %s, but the number of shards is unknown; use auto/n, like "+
					"auto/4", index)
		}
		return parse(index, many)
	}
	return Part{},
		fmt.Errorf("auto: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set; start it as a job array, or " +
			"name the shard as i/n, like 0/4")
}

// partOfArray returns the part of a task of a Slurm job array, whose first index and step are in the environment.
func partOfArray(id, many string, getenv func(string) string) (Part, error) {
	first, step := cmp.Or(getenv("SLURM_ARRAY_TASK_MIN"), "0"), cmp.Or(getenv("SLURM_ARRAY_TASK_STEP"), "1")
	numbers := make([]int, 3)
	for i, text := range []string{id, first, step} {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || i == 2 && n == 0 {
			return Part{}, fmt.Errorf("auto: invalid SLURM_ARRAY_TASK_ID=%q, SLURM_ARRAY_TASK_MIN=%q, "+
				"SLURM_ARRAY_TASK_STEP=%q: need whole numbers, and a step of 1 or more", id, first, step)
		}
		numbers[i] = n
	}
	many = cmp.Or(many, getenv("SLURM_ARRAY_TASK_COUNT"))
	if many == "" {
		return Part{}, fmt.Errorf("auto: SLURM_ARRAY_TASK_COUNT is not set; name the number of shards as auto/n, " +
			"like auto/4")
	}
	return parse(strconv.Itoa((numbers[0]-numbers[1])/numbers[2]), many)
}

func parse(which, many string) (Part, error) {
	i, err := strconv.Atoi(which)
	n, errN := strconv.Atoi(many)
	switch {
	case err != nil || errN != nil:
		return Part{}, fmt.Errorf("invalid shard %q: need i/n, like 0/4", which+"/"+many)
	case n < 1 || n > MaxShards:
		return Part{}, fmt.Errorf("%d shards: need a number from 1 to %d", n, MaxShards)
	case i < 0 || i >= n:
		return Part{}, fmt.Errorf("%d/%d: shards count from 0, so the last of %d is %d/%d", i, n, n, n-1, n)
	}
	return Part{i, n}, nil
}

// file returns the name of the shard's file.
func (h Header) file() string {
	width := len(strconv.Itoa(h.ShardCount))
	return fmt.Sprintf("shard-%0*d-of-%d.jsonl", width, h.Shard, h.ShardCount)
}

// unfinishedSuffix is the suffix of a file that is being written.
const unfinishedSuffix = ".part"

// check returns an error for a header that vprof does not write.
func (h Header) check() error {
	from, to := Part{h.Shard, max(1, h.ShardCount)}.Range(h.Units)
	switch {
	case h.Schema != Schema:
		return fmt.Errorf("the schema is %q: need %s", h.Schema, Schema)
	case h.ShardCount < 1 || h.ShardCount > MaxShards || h.Shard < 0 || h.Shard >= h.ShardCount:
		return fmt.Errorf("shard number %d is out of range; there are %d shards, counted from 0", h.Shard, h.ShardCount)
	case h.Units < 0 || h.From != from || h.To != to:
		return fmt.Errorf("units %d to %d of %d do not belong to shard %d of %d; run this shard again", h.From, h.To,
			h.Units, h.Shard, h.ShardCount)
	}
	return nil
}

// Ranges formats numbers as ranges: "0-3", "7".
func Ranges(numbers []int) (words []string) {
	numbers = slices.Sorted(slices.Values(numbers))
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		word := strconv.Itoa(numbers[i])
		if j > i {
			word += "-" + strconv.Itoa(numbers[j])
		}
		words = append(words, word)
		i = j + 1
	}
	return words
}

// toolVersion returns the version of the program, and its commit if known.
func toolVersion(t report.Tool) string {
	if t.Commit == "" {
		return t.Version
	}
	return t.Version + " (" + t.Commit[:min(8, len(t.Commit))] + ")"
}
