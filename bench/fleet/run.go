package fleet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/vprof/vprof/bench/shard"
	"github.com/vprof/vprof/internal/lists"
)

// Command runs a scheduler's program and returns its standard output. The error is absent if this machine lacks the
// program. Otherwise the error has name and the program's standard error.
func Command(ctx context.Context, stdin []byte, absent error, name, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, absent
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("%s: %s", name, cmp.Or(strings.Join(strings.Fields(errs.String()), " "), err.Error()))
	}
	return out.Bytes(), nil
}

// An Engine runs tasks through a scheduler, or on this machine. Task i of a GPU is shard i of its jobs.
type Engine interface {
	// Check finds errors before tasks start: missing programs and partitions.
	Check(ctx context.Context) error
	// Start starts tasks of a GPU, except on the nodes in avoid. It returns once the scheduler has accepted them.
	Start(ctx context.Context, b GPUTasks, tasks []int, avoid []string) error
	// Active returns the waiting and running tasks, with the scheduler's name of their state.
	Active(ctx context.Context) (map[Task]string, error)
	// Cancel ends all waiting and running tasks and returns their number.
	Cancel(ctx context.Context) (int, error)
	// CanRestart reports whether the scheduler itself restarts failed tasks.
	CanRestart() bool
}

// Task identifies one task of a GPU.
type Task struct {
	GPU   string
	Index int
}

// Status is the progress of all GPUs of a fleet.
type Status struct {
	GPUs []GPUStatus `json:"boards"`
}

// GPUStatus is the progress of the tasks of one GPU.
type GPUStatus struct {
	GPU string `json:"board"`
	// Done is the number of finished jobs out of Jobs, Whole the number of finished tasks out of Tasks.
	Done        int `json:"jobs_done"`
	Jobs        int `json:"jobs"`
	WholeShards int `json:"tasks_done"`
	Tasks       int `json:"tasks"`
	// Running and Waiting count the tasks in the scheduler. States counts them by the scheduler's state names.
	Running int            `json:"running"`
	Waiting int            `json:"waiting"`
	States  map[string]int `json:"states,omitempty"`
	// Failed are tasks that ended early and are not in the scheduler.
	Failed []shard.State `json:"failed,omitempty"`

	missing []int // neither whole nor with the engine
	failure map[int]*shard.Failure
}

// Complete reports whether all jobs are finished.
func (s *Status) Complete() bool {
	return !slices.ContainsFunc(s.GPUs, func(b GPUStatus) bool { return b.WholeShards < b.Tasks })
}

// Active reports whether tasks wait or run.
func (s *Status) Active() bool {
	return slices.ContainsFunc(s.GPUs, func(b GPUStatus) bool { return b.Running+b.Waiting > 0 })
}

// Status reads the state of all shards. active are the tasks that the scheduler reported; nil if it was not queried.
func (f *Folder) Status(active map[Task]string) (*Status, error) {
	out := &Status{}
	for _, b := range f.GPUs {
		s := GPUStatus{
			GPU: b.Key, Jobs: b.Jobs, Tasks: b.Tasks, States: map[string]int{},
			failure: map[int]*shard.Failure{},
		}
		states := make([]shard.State, b.Tasks)
		for i := range states {
			from, to := shard.Part{Index: i, ShardCount: b.Tasks}.Range(b.Jobs)
			states[i] = shard.State{Shard: i, Units: to - from}
		}
		set, err := f.shards(b)
		if err != nil {
			return nil, err
		}
		if set != nil {
			states = set.States()
		}
		for _, state := range states {
			s.add(b, state, active)
		}
		out.GPUs = append(out.GPUs, s)
	}
	return out, nil
}

func (s *GPUStatus) add(b GPUTasks, state shard.State, active map[Task]string) {
	s.Done += state.Done
	word, with := active[Task{b.Key, state.Shard}]
	switch {
	case state.Complete:
		s.WholeShards++
		return
	case with && word == RunningState, state.Running:
		s.Running++
	case with:
		s.Waiting++
	default:
		s.missing = append(s.missing, state.Shard)
		s.failure[state.Shard] = state.Failure
		if state.Failure != nil {
			s.Failed = append(s.Failed, state)
		}
		return
	}
	if with {
		s.States[word]++
	}
}

// RunningState is the state of a running task in the result of [Engine.Active].
const RunningState = "running"

// The exit codes after which a task is started again.
const (
	codeNoGPU       = 4
	codeInterrupted = 130
)

// A Runner runs the tasks of a fleet until all are finished.
type Runner struct {
	Folder *Folder
	Engine Engine
	// Poll is the time between two checks of the tasks' states.
	Poll time.Duration
	// OnStatus is called with the fleet's state after each check.
	OnStatus func(*Status)

	attempts      map[Task]int
	missingChecks map[Task]int
	badNodes      map[string][]string // nodes, by GPU
}

// A StoppedWaitingError reports that a command stopped waiting for tasks, which continue to run.
type StoppedWaitingError struct{ Status *Status }

func (e *StoppedWaitingError) Error() string { return "tasks go on" }

func (e *StoppedWaitingError) Unwrap() error { return context.Canceled }

// An UnfinishedError reports that tasks have failed permanently.
type UnfinishedError struct{ Status *Status }

func (e *UnfinishedError) Error() string {
	var words []string
	for _, b := range e.Status.GPUs {
		if left := b.Tasks - b.WholeShards; left > 0 {
			words = append(words, fmt.Sprintf("%s: %d of %d tasks are not done", b.GPU, left, b.Tasks))
		}
		for i, f := range b.Failed {
			if i == 3 {
				words = append(words, fmt.Sprintf("and %d more", len(b.Failed)-i))
				break
			}
			words = append(words, f.String())
		}
	}
	return strings.Join(words, "; ") + ". What is done stays; mend the cause and run the fleet again"
}

// Run starts the unfinished tasks and waits until all are done. Tasks that were killed or interrupted are restarted,
// and tasks that found no usable GPU are started on another node, at most as often as the strategy allows. Tasks that
// failed otherwise are not restarted. The error is a [*StoppedWaitingError] if ctx ends first: tasks then continue.
func (r *Runner) Run(ctx context.Context) error {
	r.attempts, r.missingChecks, r.badNodes = map[Task]int{}, map[Task]int{}, map[string][]string{}
	var last *Status
	for {
		active, err := r.Engine.Active(ctx)
		if err == nil {
			last, err = r.Folder.Status(active)
		}
		if err == nil {
			if r.OnStatus != nil {
				r.OnStatus(last)
			}
			if last.Complete() {
				return nil
			}
			var settled bool
			if settled, err = r.startTasks(ctx, last); settled && err == nil {
				return &UnfinishedError{last}
			}
		}
		if ctx.Err() != nil {
			return &StoppedWaitingError{last}
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return &StoppedWaitingError{last}
		case <-time.After(r.Poll):
		}
	}
}

// startTasks starts the tasks that are neither finished, waiting nor running. settled reports whether all have ended.
func (r *Runner) startTasks(ctx context.Context, s *Status) (settled bool, err error) {
	settled = !s.Active()
	for i, b := range s.GPUs {
		var tasks []int
		for _, at := range b.missing {
			t := Task{b.GPU, at}
			if r.attempts[t] > 0 {
				// The scheduler may report the end of a task before the task's file is visible here.
				if r.missingChecks[t]++; r.missingChecks[t] < maxMissingChecks {
					settled = false
					continue
				}
			}
			if !r.shouldStart(t, b.failure[at]) {
				continue
			}
			r.attempts[t]++
			r.missingChecks[t] = 0
			tasks = append(tasks, at)
		}
		if len(tasks) == 0 {
			continue
		}
		settled = false
		if err := r.Engine.Start(ctx, r.Folder.GPUs[i], tasks, r.badNodes[b.GPU]); err != nil {
			return false, err
		}
	}
	return settled, nil
}

// maxMissingChecks is the number of consecutive checks without a task after which the task counts as ended.
const maxMissingChecks = 2

// shouldStart reports whether to start a task for the first time, or again after the failure f.
func (r *Runner) shouldStart(t Task, f *shard.Failure) bool {
	n := r.attempts[t]
	if n == 0 {
		return true // a new run of the fleet tries all tasks
	}
	if n >= cmp.Or(r.Folder.Config.Strategy.Attempts, 3) || r.Engine.CanRestart() {
		return false
	}
	switch {
	case f == nil, f.Code == codeInterrupted:
		return true
	case f.Code == codeNoGPU:
		if f.Host != "" {
			r.badNodes[t.GPU] = lists.Union(r.badNodes[t.GPU], f.Host)
		}
		return true
	}
	return false
}
