// Package slurm runs the tasks of a fleet as Slurm job arrays, one for each partition, through Slurm's commands.
package slurm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/vprof/vprof/bench/fleet"
	"github.com/vprof/vprof/bench/shard"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/internal/rewrite"
	"github.com/vprof/vprof/internal/shellword"
)

// Engine runs a fleet on Slurm.
type Engine struct {
	Folder *fleet.Folder
	// Program is the path of vprof on the nodes.
	Program string
}

var _ fleet.Engine = (*Engine)(nil)

// missingCommand returns the error that a Slurm command is missing on this machine.
func missingCommand(command string) error {
	return input.Errorf(
		"%s is not on the PATH of this machine; run the fleet on a login node of the Slurm cluster", command)
}

// run runs a Slurm command and returns its standard output.
func run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	out, err := fleet.Command(ctx, []byte(stdin), missingCommand(name), name, name, args...)
	return strings.TrimSpace(string(out)), err
}

// Partitions returns the partitions of this machine's cluster. The error means that Slurm's commands fail.
func Partitions(ctx context.Context) ([]string, error) {
	for _, name := range []string{"sbatch", "squeue", "scancel"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, missingCommand(name)
		}
	}
	out, err := run(ctx, "", "sinfo", "--noheader", "--format=%R")
	return slices.Compact(slices.Sorted(slices.Values(strings.Fields(out)))), err
}

// Check checks that the cluster can be reached, for [fleet.Engine].
func (e *Engine) Check(ctx context.Context) error {
	there, err := Partitions(ctx)
	if err != nil {
		return err
	}
	for _, b := range e.Folder.GPUs {
		if !slices.Contains(there, b.Partition) {
			return input.Errorf("GPU %s: Slurm has no partition %q%s; set partition: to one of %s", b.GPU,
				b.Partition, nearest.Hint(b.Partition, there, 3), strings.Join(there, ", "))
		}
		if _, err := e.Script(b, []int{0}, nil); err != nil {
			return err
		}
	}
	return nil
}

// CanRestart implements [fleet.Engine]. Slurm itself only requeues tasks of failed nodes.
func (*Engine) CanRestart() bool { return false }

// array is a submitted job array.
type array struct {
	Job   string `json:"job"`
	GPU   string `json:"board"`
	Tasks []int  `json:"tasks"`
}

func (e *Engine) arraysFile() string { return filepath.Join(e.Folder.Dir, "slurm.jsonl") }

// arrays returns the IDs of the submitted job arrays with the GPU of each.
func (e *Engine) arrays() (map[string]string, error) {
	text, err := os.ReadFile(e.arraysFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	gpus := map[string]string{}
	for row := range bytes.Lines(text) {
		var a array
		if err := json.Unmarshal(row, &a); err != nil {
			continue // its writer was ended; that array is found by its name
		}
		gpus[a.Job] = a.GPU
	}
	return gpus, nil
}

// Start submits tasks as a Slurm job array, for [fleet.Engine].
func (e *Engine) Start(ctx context.Context, b fleet.GPUTasks, tasks []int, avoid []string) error {
	script, err := e.Script(b, tasks, avoid)
	if err != nil {
		return fmt.Errorf("GPU %s: %w", b.Key, err)
	}
	if err := os.WriteFile(filepath.Join(e.Folder.Path(b), "job.sh"), []byte(script), 0o644); err != nil {
		return err
	}
	id, err := run(ctx, script, "sbatch", "--parsable")
	if err != nil {
		return fmt.Errorf("GPU %s: %w", b.Key, err)
	}
	id, _, _ = strings.Cut(id, ";") // the cluster follows, where there are several
	text, err := json.Marshal(array{id, b.Key, tasks})
	if err != nil {
		return err
	}
	return rewrite.Append(e.arraysFile(), append(text, '\n'), 0o644)
}

// option returns an #SBATCH line, quoted as sbatch requires; empty if the value is empty.
func option(name, value string) (string, error) {
	switch {
	case value == "":
		return "", nil
	case strings.ContainsFunc(value, func(r rune) bool {
		return unicode.IsControl(r) || strings.ContainsRune("\"'\\", r)
	}):
		return "", input.Errorf("#SBATCH --%s=%q: Slurm allows no quotes, backslashes or line breaks in this value; "+
			"use another one", name, value)
	case strings.ContainsAny(value, " #"):
		value = `"` + value + `"`
	}
	return "#SBATCH --" + name + "=" + value + "\n", nil
}

// Script returns the batch script that runs some tasks of a GPU.
func (e *Engine) Script(b fleet.GPUTasks, tasks []int, avoid []string) (string, error) {
	c, s := e.Folder.Config, e.Folder.Config.Slurm
	dir := e.Folder.Path(b)
	var out strings.Builder
	out.WriteString("#!/bin/bash\n")
	logs := strings.ReplaceAll(filepath.Join(dir, "log"), "%", "%%") // a % stands for what Slurm fills in
	for _, o := range [][2]string{
		{"job-name", "vprof-" + e.Folder.Name + "-" + b.Key},
		{"partition", b.Partition},
		{"gres", b.Gres},
		{"array", arraySpec(tasks, c.Strategy.MaxRunning)},
		{"output", filepath.Join(logs, "task-%a-%A.txt")},
		{"account", s.Account},
		{"qos", s.QOS},
		{"time", s.Time},
		{"mem", s.Memory},
		{"cpus-per-task", positiveText(s.CPUs)},
		{"exclude", strings.Join(avoid, ",")},
	} {
		line, err := option(o[0], o[1])
		if err != nil {
			return "", err
		}
		out.WriteString(line)
	}
	out.WriteString("#SBATCH --requeue\n")
	for _, o := range s.Options {
		out.WriteString("#SBATCH " + o + "\n")
	}
	if s.Setup != "" {
		out.WriteString(strings.TrimSpace(s.Setup) + "\n")
	}
	task := fmt.Sprintf("%s fleet task %s --shard \"$SLURM_ARRAY_TASK_ID/%d\"",
		shellword.Quote(cmp.Or(s.Vprof, e.Program)), shellword.Quote(dir), b.Tasks)
	switch {
	case s.Container != "" && s.Runtime == "pyxis":
		task = fmt.Sprintf("srun --container-image=%s --container-mounts=%s %s", shellword.Quote(s.Container),
			shellword.Quote(e.Folder.Dir+":"+e.Folder.Dir), task)
	case s.Container != "":
		task = fmt.Sprintf("apptainer exec --nv --bind %s %s %s",
			shellword.Quote(e.Folder.Dir), shellword.Quote(s.Container), task)
	}
	out.WriteString("exec " + task + "\n")
	return out.String(), nil
}

// positiveText formats a number; zero is empty.
func positiveText(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// arraySpec formats task numbers for the option --array: "0-3,7%2".
func arraySpec(tasks []int, atOnce int) string {
	text := strings.Join(shard.Ranges(tasks), ",")
	if atOnce > 0 {
		text += "%" + strconv.Itoa(atOnce)
	}
	return text
}

// Active returns the tasks that Slurm has queued or runs, for [fleet.Engine].
func (e *Engine) Active(ctx context.Context) (map[fleet.Task]string, error) {
	gpus, err := e.arrays()
	if err != nil || len(gpus) == 0 {
		return nil, err
	}
	out, err := run(ctx, "", "squeue", "--noheader", "--array", "--me", "--format=%F|%K|%T|%r")
	if err != nil {
		return nil, err
	}
	return parseQueue(out, gpus), nil
}

// parseQueue parses the output of squeue into tasks with their states.
func parseQueue(out string, gpus map[string]string) map[fleet.Task]string {
	tasks := map[fleet.Task]string{}
	for row := range strings.Lines(out) {
		cells := strings.Split(strings.TrimSpace(row), "|")
		if len(cells) != 4 {
			continue
		}
		gpu, ours := gpus[cells[0]]
		index, err := strconv.Atoi(cells[1])
		if !ours || err != nil {
			continue
		}
		t := fleet.Task{GPU: gpu, Index: index}
		switch cells[2] {
		case "RUNNING":
			tasks[t] = fleet.RunningState
		case "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "SUSPENDED",
			"STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT":
			tasks[t] = strings.ToLower(cells[2])
			if reason := cells[3]; reason != "" && reason != "None" {
				tasks[t] += ": " + reason
			}
		} // in any other it has ended, and shows for a while
	}
	return tasks
}

// Cancel ends all waiting and running tasks and returns their number, for [fleet.Engine].
func (e *Engine) Cancel(ctx context.Context) (int, error) {
	gpus, err := e.arrays()
	if err != nil {
		return 0, err
	}
	tasks, err := e.Active(ctx)
	if err != nil || len(tasks) == 0 {
		return 0, err
	}
	args := []string{"--quiet"}
	for job := range gpus {
		args = append(args, job)
	}
	_, err = run(ctx, "", "scancel", args...)
	return len(tasks), err
}
