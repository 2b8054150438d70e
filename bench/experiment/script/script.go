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
	// GPU is the GPU that PyTorch finds.
	GPU device.GPU
	// Stubs is the folder of libraries that give PyTorch the GPU, with a folder for
	// each major version of CUDA; empty to run on the GPU of the machine.
	Stubs string
	// Device names a GPU of the machine ("cuda:0"), of which other processes use Others bytes; empty with Stubs.
	Device string
	Others int64
	// Steps is the number of steps of each optimizer after which training is ended; zero for no limit.
	Steps int
	// Brief ends training after the steps and the longest batches, without further steps.
	Brief bool
	// Timed adds timed steps after them, which a run on a GPU of the machine always has.
	Timed bool
	// Longest limits the search for the largest batches of the data set, of which one or two are trained on after the
	// steps; zero skips the search.
	Longest time.Duration
	// Until is "eval" or "save" to train until the first evaluation or saving, "end" to let the command end by itself.
	Until string
	// NoGrad turns off autograd.
	NoGrad bool
	// Timeout ends the command; zero is none.
	Timeout time.Duration
	// KeepFiles lets the script save files at their own paths, and its trackers go online.
	KeepFiles bool
	// Triton reports whether Triton compiles the kernels of torch.compile. The allocated bytes do not depend on it.
	Triton bool
	// ActivationBudget is PyTorch's activation_memory_budget for torch.compile; zero keeps the script's.
	ActivationBudget float64
	// InductorCache is a folder in which Inductor keeps compiled code and tunings for further runs; empty for a folder
	// that is deleted after the run.
	InductorCache string
	// Tunings is a file with Inductor's tunings of other commands; empty for none. It is not read if there is an
	// InductorCache.
	Tunings string
	// Without names the kinds of files that placeholders replace.
	Without Without
	// GPUs is the number of ranks of the training, Rank the rank that runs.
	GPUs, Rank int
	// Folders are searched for packages before the environment's own. Libraries reports whether allocations are also
	// named by lines of libraries other than PyTorch.
	Folders   []string
	Libraries bool
	// Stdin, Stdout and Stderr are the command's streams. Without a Stderr, its standard error is hidden, and
	// Outcome.StderrTail is the end of it.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Foreground reports whether the command shares a terminal with this process.
	Foreground bool
	// OnEvent is called with each event as it happens; nil for none.
	OnEvent func(Event)
}

// terminateGrace is the time that an interrupted command has to end.
const terminateGrace = 10 * time.Second

// Run runs the command to its end. A failure of the command is a result. The error is about its environment, and means
// bad input if the program does not exist.
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
	late := c.await(ctx, p, log)
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
	if (err != nil || o.ExitCode != 0) && (isFull(room.dir) || strings.Contains(o.failure().Text, noSpaceMessage)) {
		return nil, fmt.Errorf("%s in %s, where vprof stores the script's files; set TMPDIR to a folder with more",
			strings.ToLower(noSpaceMessage), os.TempDir())
	}
	return o, err
}

// noSpaceMessage is the start of Linux's error for a full disk.
const noSpaceMessage = "No space left on device"

// eventHandler returns a function that passes events on, and tells the server which Python has the cuDNN to query.
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

// await reads the log until the command has ended; late reports whether it ran out of time.
func (c *Command) await(ctx context.Context, p *supervisor.Process, log *eventLog) (late bool) {
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
