package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/vprof/vprof/internal/rewrite"
)

// Local runs tasks as processes of this machine, several at a time.
type Local struct {
	Folder *Folder
	// Program is the path of vprof. Most is the largest number of concurrent tasks.
	Program      string
	MaxProcesses int

	mu      sync.Mutex
	queue   []Task
	running map[Task]bool
}

// Check returns nil, since processes of this machine need nothing else, for [Engine].
func (*Local) Check(context.Context) error { return nil }

// CanRestart returns false: failed tasks are not restarted, for [Engine].
func (*Local) CanRestart() bool { return false }

// Start queues tasks, which run as processes of this machine, for [Engine].
func (l *Local) Start(_ context.Context, b GPUTasks, tasks []int, _ []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range tasks {
		l.queue = append(l.queue, Task{b.Key, i})
	}
	return l.startQueued()
}

// startQueued starts queued tasks up to the limit. The caller holds the mutex.
func (l *Local) startQueued() error {
	for len(l.running) < max(1, l.MaxProcesses) && len(l.queue) > 0 {
		t := l.queue[0]
		l.queue = l.queue[1:]
		cmd, err := l.command(t)
		if err != nil {
			return err
		}
		if l.running == nil {
			l.running = map[Task]bool{}
		}
		l.running[t] = true
		go func() {
			// The exit code is ignored: the task's result is in the file of its shard.
			_ = cmd.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.running, t)
			if err := l.startQueued(); err != nil {
				l.queue = nil // they are seen to be missing
			}
		}()
	}
	return nil
}

// command returns the command of a task. It does not receive this process's interrupts.
func (l *Local) command(t Task) (*exec.Cmd, error) {
	b, _ := l.Folder.GPU(t.GPU)
	log, err := os.OpenFile(filepath.Join(l.Folder.Path(b), "log", fmt.Sprintf("task-%d.txt", t.Index)),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(l.Program, "fleet", "task", l.Folder.Path(b), "--shard", fmt.Sprintf("%d/%d", t.Index, b.Tasks))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := rewrite.Append(l.pids(), fmt.Appendln(nil, cmd.Process.Pid), 0o644); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill())
	}
	return cmd, nil
}

func (l *Local) pids() string { return filepath.Join(l.Folder.Dir, "local.pids") }

// Active implements [Engine]. Locked shards are tasks that this or an earlier process started.
func (l *Local) Active(context.Context) (map[Task]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	active := map[Task]string{}
	for t := range l.running {
		active[t] = RunningState
	}
	for _, t := range l.queue {
		active[t] = "waiting"
	}
	return active, nil
}

// Cancel implements [Engine]. It interrupts this fleet's processes, which then write their partial results.
func (l *Local) Cancel(context.Context) (int, error) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		return 0,
			errors.New("stopping the tasks of a local fleet is supported only on Linux; end `vprof fleet run` with " +
				"Ctrl-C")
	}
	text, err := os.ReadFile(l.pids())
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n := 0
	for word := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil || !l.isTask(pid) {
			continue // it has ended, and another process may have its number
		}
		if err := interrupt(pid); err == nil {
			n++
		}
	}
	return n, nil
}

// isTask reports whether a process runs a task of this fleet.
func (l *Local) isTask(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := strings.Split(string(text), "\x00")
	return len(args) > 3 && args[1] == "fleet" && args[2] == "task" &&
		filepath.Dir(args[3]) == filepath.Clean(l.Folder.Dir)
}
