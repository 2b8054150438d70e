// Package script runs a user's own training command, unchanged, on a simulated GPU, and reports its memory. The command
// runs in the user's environment with a hook in its Python (package hook). The hook counts optimizer steps, marks
// phases and records PyTorch's allocations. Stubs in place of NVIDIA's libraries give PyTorch the GPU.
package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/internal/supervisor"
	"github.com/vprof/vprof/internal/tail"
	"github.com/vprof/vprof/profiler/device"
)

// Command is a command to run, and when to end it.
type Command struct {
	// Args are the program and its arguments.
	Args []string
	// GPU is the simulated GPU that PyTorch finds.
	GPU device.GPU
	// Stubs is the folder of stub libraries that simulate the GPU, with a subfolder for each major version of CUDA;
	// empty to run on a GPU of this machine.
	Stubs string
	// Device names the GPU of this machine to use ("cuda:0"); empty with Stubs. Other processes use Others bytes of it.
	Device string
	Others int64
	// Steps is the number of steps of each optimizer after which training ends; zero is no limit.
	Steps int
	// Brief ends training after Steps and the longest batches, without the further steps that try changes.
	Brief bool
	// Timed reports whether additional steps are timed. A run on a GPU of this machine always times steps.
	Timed bool
	// Longest is the time limit of the search for the largest batches of the data set. Training runs one or two of them
	// after the steps. Zero skips the search.
	Longest time.Duration
	// Until is "eval" or "save" to train until the first evaluation or saving, "end" until the command ends by itself.
	Until string
	// NoGrad turns off autograd.
	NoGrad bool
	// Timeout ends the command; zero is no limit.
	Timeout time.Duration
	// KeepFiles lets the script save files at their own paths, and its trackers use the network.
	KeepFiles bool
	// Triton reports whether Triton compiles the kernels of torch.compile. Allocated bytes do not depend on it.
	Triton bool
	// ActivationBudget is PyTorch's activation_memory_budget for torch.compile; zero keeps the script's.
	ActivationBudget float64
	// InductorCache is the folder in which Inductor keeps compiled code and autotuning results for later runs. If
	// empty, the folder is deleted after the run.
	InductorCache string
	// Tunings is a file with Inductor's tunings of other commands; empty for none. InductorCache takes its place.
	Tunings string
	// Without names the kinds of files that placeholders replace.
	Without Without
	// GPUs is the number of ranks of the training, Rank the one that runs.
	GPUs, Rank int
	// Folders are searched for packages before the environment's own. Libraries reports whether allocations are also
	// attributed to lines of libraries other than PyTorch.
	Folders   []string
	Libraries bool
	// Stdin, Stdout and Stderr are the command's streams. If Stderr is nil, standard error is hidden, and
	// Outcome.StderrTail holds its end.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Foreground reports whether the command shares a terminal with this process.
	Foreground bool
	// OnEvent, if not nil, is called with each event as it happens.
	OnEvent func(Event)
}

// terminateGrace is the time after which an interrupted command is killed.
const terminateGrace = 10 * time.Second

// launchers are the modules of programs that may be absent from PATH.
var launchers = map[string]string{
	"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.accelerate_cli",
	"deepspeed": "deepspeed.launcher.runner",
}

// Run runs the command to its end. A failing command is a result, not an error. The error is about the environment, and
// means bad input if the program does not exist.
func Run(ctx context.Context, c Command) (*Outcome, error) {
	room, err := openHookFolder()
	if err != nil {
		return nil, err
	}
	defer room.Close()
	env, err := c.environment(room)
	if err != nil {
		return nil, err
	}
	known := c.findTuned(room)
	server, err := c.serve(ctx, room)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	if _, err := exec.LookPath(c.Args[0]); err != nil && launchers[c.Args[0]] != "" {
		c.Args = append([]string{"python", "-m", launchers[c.Args[0]]}, c.Args[1:]...)
	}
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = c.Stdin, c.Stdout, c.Stderr, env
	runtime.LockOSThread() // KillWithParent goes by it
	defer runtime.UnlockOSThread()
	var said tail.Tail
	if cmd.Stderr == nil {
		cmd.Stderr = &said
	}
	supervisor.KillWithParent(cmd)
	began := time.Now()
	p, err := supervisor.Start(cmd, c.Foreground)
	if err != nil {
		how := phrase.If(strings.HasSuffix(c.Args[0], ".py"), "; write python before it")
		return nil, input.Errorf("cannot start %s: %w%s", c.Args[0], err, how)
	}
	log := &eventLog{path: room.path("events.jsonl"), onEvent: c.eventHandler(server)}
	late := c.awaitEnd(ctx, p, log)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := log.read(); err != nil {
		return nil, err
	}
	c.keepTuned(room, known)
	o := &Outcome{
		Command: c, Seconds: time.Since(began).Seconds(), TimedOut: late, StderrTail: said.String(),
		events: log.all,
	}
	o.LeftFolders, o.Sizes = removeCreatedFiles(log.all), server.Sizes()
	o.HostPeak = hostPeak(cmd.ProcessState)
	o.CPUSeconds = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if failed := (*exec.ExitError)(nil); errors.As(p.Err(), &failed) {
		o.ExitCode = supervisor.ExitCode(failed)
	} else if p.Err() != nil {
		o.ExitCode = 1
	}
	err = errors.Join(o.readNative(room), o.readTrace())
	if (err != nil || o.ExitCode != 0) && (isFull(room.dir) || strings.Contains(o.exception().Text, noSpaceMessage)) {
		return nil, fmt.Errorf("%s in %s, where vprof stores the script's files; set TMPDIR to a folder with more "+
			"space", strings.ToLower(noSpaceMessage), os.TempDir())
	}
	return o, err
}

// noSpaceMessage is the start of Linux's error for a full disk.
const noSpaceMessage = "No space left on device"

// eventHandler returns a function that calls OnEvent, and tells the server which Python's cuDNN to query.
func (c *Command) eventHandler(s *cudnnServer) func(Event) {
	return func(e Event) {
		if e.Name == "torch" {
			s.addPython(e.Python)
		}
		if c.OnEvent != nil {
			c.OnEvent(e)
		}
	}
}

// awaitEnd reads events until the command has ended; late reports whether it reached its timeout.
func (c *Command) awaitEnd(ctx context.Context, p *supervisor.Process, log *eventLog) (late bool) {
	var timeout <-chan time.Time
	if c.Timeout > 0 {
		timeout = time.After(c.Timeout)
	}
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-p.Done():
			return late
		case <-ctx.Done():
			p.End(terminateGrace)
			return late
		case <-timeout:
			late = true
			p.End(terminateGrace)
			return late
		case <-look.C:
			_ = log.read() // which is reported when all has been read
		}
	}
}
