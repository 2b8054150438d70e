package script

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/recorded"
	"github.com/vprof/vprof/profiler/program"
)

// Outcome is the result of running a command.
type Outcome struct {
	Command
	// Seconds is the run's duration, CPUSeconds its processor time, and TimedOut reports whether its timeout ended it.
	Seconds, CPUSeconds float64
	TimedOut            bool
	// ExitCode is the command's exit code, as a shell reports it.
	ExitCode int
	// StderrTail is the end of its standard error, if that was hidden.
	StderrTail string
	// HostPeak is the peak host memory of the process with the most, in bytes.
	HostPeak int64
	// LeftFolders are non-empty folders that the command has made: code that is not Python wrote something there.
	LeftFolders []string
	// NoOpCalls are the functions of NVIDIA's libraries that were called and did nothing, in the order of their first
	// calls.
	NoOpCalls []string
	// Sizes counts the sizes that libraries decide: answers of the library itself, results of vprof's rules, and
	// unknown ones, which count as zero.
	Sizes report.Workspaces
	// Program is the recording of the process that trained; nil if none did.
	Program *program.Program
	// OOM is the last failed allocation of the recording; nil if none failed.
	OOM *Failure

	events []Event
	fault  string // what Python said of a crash in native code
}

// Failure is an allocation for which the GPU had too little memory.
type Failure struct {
	// Want and Free are the requested bytes and the free bytes of the GPU.
	Want int64 `json:"want"`
	Free int64 `json:"free"`
	// Where is the line of the user's code that allocated, as file:line:function.
	Where string `json:"where"`
	// Step and Phase are the step and the phase of the failure.
	Step  int    `json:"step"`
	Phase string `json:"phase"`
}

// Trained returns the ID of the process that stepped an optimizer most often. If none did, it returns one that used the
// GPU, or zero.
func (o *Outcome) Trained() int {
	best, most := 0, 0
	for _, e := range o.eventsNamed("end") {
		steps := 0
		for _, n := range e.Steps {
			steps += n
		}
		if e.Trace != "" && 1+steps > most {
			best, most = e.PID, 1+steps
		}
	}
	return best
}

func (o *Outcome) eventsNamed(name string) []Event {
	return slices.DeleteFunc(slices.Clone(o.events), func(e Event) bool { return e.Name != name })
}

// eventsOfRank returns the events with a name in the process that trained.
func (o *Outcome) eventsOfRank(name string) []Event {
	pid := o.Trained()
	return slices.DeleteFunc(o.eventsNamed(name), func(e Event) bool { return e.PID != pid })
}

// marks returns the ends of phases on the GPU whose values the report has.
func (o *Outcome) marks() []Event {
	gpu := o.End().GPU
	return slices.DeleteFunc(o.eventsOfRank("mark"), func(e Event) bool { return e.GPU != gpu })
}

// End returns the last event of the process that trained; the zero Event if there is none.
func (o *Outcome) End() Event {
	if ends := o.eventsOfRank("end"); len(ends) > 0 {
		return ends[len(ends)-1]
	}
	return Event{}
}

// Steps returns the number of steps of each optimizer that stepped, largest first.
func (o *Outcome) Steps() []int {
	return slices.DeleteFunc(slices.Clone(o.End().Steps), func(n int) bool { return n == 0 })
}

// Torch returns the event that describes PyTorch; the zero Event if it was never imported.
func (o *Outcome) Torch() Event {
	all := o.eventsNamed("torch")
	if len(all) == 0 {
		return Event{}
	}
	return slices.MaxFunc(all, func(a, b Event) int { return cmp.Compare(a.CUDA, b.CUDA) })
}

// allocConf returns the settings of PyTorch's allocator; empty for the defaults.
func (o *Outcome) allocConf() string {
	if cuda := o.eventsOfRank("cuda"); len(cuda) > 0 {
		return cuda[0].Allocator
	}
	return ""
}

// DivertedFiles returns the files whose writes vprof redirected, by the paths that the script used.
func (o *Outcome) DivertedFiles() []string { return o.paths("diverted") }

// UncomputedLines returns the user's lines, as file:line, that depend on a number that was never computed.
func (o *Outcome) UncomputedLines() []string { return o.paths("guessed") }

// paths returns the paths in all events of a name, each once.
func (o *Outcome) paths(event string) []string {
	paths := lists.Map(o.eventsNamed(event), func(e Event) string { return e.Path })
	slices.Sort(paths)
	return slices.Compact(paths)
}

// Kind describes how a run ended.
type Kind int

// The kinds of ends.
const (
	// Fits completed its requested steps on the GPU.
	Fits Kind = iota
	// OutOfMemory ended by an OutOfMemoryError that the script did not catch.
	OutOfMemory
	// Failed is a script that failed for another reason.
	Failed
	// TimedOut was ended by its timeout.
	TimedOut
	// NoCUDA has no PyTorch, or a PyTorch built for a release of CUDA without stub libraries.
	NoCUDA
	// NoGPU requires a GPU of the machine, which PyTorch does not find.
	NoGPU
	// Untrained never put anything on the GPU.
	Untrained
)

// Kind returns how the run ended.
func (o *Outcome) Kind() Kind {
	torch, failure := o.Torch(), o.failure()
	switch {
	case o.TimedOut:
		return TimedOut
	case strings.Contains(failure.Kind, "OutOfMemoryError"):
		return OutOfMemory
	case torch.Version != "" && (torch.CUDA == "" || o.Stubs != "" && !isSupportedCUDA(torch.CUDA)):
		return NoCUDA
	case torch.Version != "" && o.Device != "" && !torch.Available:
		return NoGPU
	case o.ExitCode != 0 && slices.Contains([]string{"", "exit"}, o.End().Reason):
		// A program that started the training, such as a notebook, may report its end by vprof as a failure.
		return Failed
	case torch.Version == "":
		return NoCUDA
	case o.End().Allocated == 0:
		return Untrained
	}
	return Fits
}

// isSupportedCUDA reports whether there are stubs for the libraries of a release of CUDA.
func isSupportedCUDA(cuda string) bool {
	major, _, _ := strings.Cut(cuda, ".")
	return slices.Contains([]string{"12", "13"}, major)
}

// failure returns the exception that ended the script; the zero Event if there is none.
func (o *Outcome) failure() Event {
	if o.ExitCode == 0 {
		return Event{}
	}
	all := o.eventsOfRank("error")
	if len(all) == 0 {
		all = o.eventsNamed("error")
	}
	if len(all) == 0 {
		return o.crashEvent()
	}
	return all[len(all)-1]
}

// readTrace reads the recorded allocations of the process that trained.
func (o *Outcome) readTrace() error {
	end := o.End()
	if end.Trace == "" {
		return nil
	}
	file, err := os.Open(end.Trace)
	if err != nil {
		return err
	}
	defer file.Close()
	r, err := recorded.ReadRecording(file, "the recording of allocations")
	if err != nil {
		return err
	}
	o.Program, o.OOM = r.Program, end.Failure
	return nil
}

// ReachedText describes which parts of training a command without training steps reached.
func (o *Outcome) ReachedText() string {
	if wanted := o.MissingObjectText(); wanted != "" {
		return wanted
	}
	if len(o.eventsNamed("step")) > 0 {
		return "an optimizer stepped on the CPU: does the command need a flag to use the GPU?"
	}
	return "PyTorch was imported, and its CUDA was not used"
}
