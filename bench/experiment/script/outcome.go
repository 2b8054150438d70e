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
	// Seconds is the run's duration, CPUSeconds its processor time. TimedOut reports whether the timeout ended the run.
	Seconds, CPUSeconds float64
	TimedOut            bool
	// ExitCode is the command's exit code, as a shell reports it.
	ExitCode int
	// StderrTail is the end of the command's standard error if that was hidden.
	StderrTail string
	// HostPeak is the peak host memory in bytes of the process that used the most.
	HostPeak int64
	// LeftFolders are non-empty folders that the command created. Their files were written by code other than Python,
	// so vprof did not redirect them.
	LeftFolders []string
	// NoOpCalls are the functions of NVIDIA's libraries whose stub did nothing when called, in order of the first call.
	NoOpCalls []string
	// Sizes counts the sizes that libraries choose: answers of the library itself, results of vprof's rules, and
	// unknown sizes, which count as zero bytes.
	Sizes report.Workspaces
	// Program is the recording of the training process; nil if no process trained.
	Program *program.Program
	// OOM is the last failed allocation of the recording; nil if none failed.
	OOM *Failure

	events []Event
	fault  string // what Python said of a crash in native code
}

// Failure is an allocation for which the GPU had too little memory.
type Failure struct {
	// Want is the requested bytes, Free the free bytes of the GPU.
	Want int64 `json:"want"`
	Free int64 `json:"free"`
	// Where is the line of the user's code that allocated, as file:line:function.
	Where string `json:"where"`
	// Step and Phase are those in which the allocation failed.
	Step  int    `json:"step"`
	Phase string `json:"phase"`
}

// TrainingProcess returns the ID of the process with the most optimizer steps, else of one that used the GPU, or zero.
func (o *Outcome) TrainingProcess() int {
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

// eventsOfRank returns the events with a name from the training process.
func (o *Outcome) eventsOfRank(name string) []Event {
	pid := o.TrainingProcess()
	return slices.DeleteFunc(o.eventsNamed(name), func(e Event) bool { return e.PID != pid })
}

// marks returns the phase ends on the GPU that the report describes.
func (o *Outcome) marks() []Event {
	gpu := o.EndEvent().GPU
	return slices.DeleteFunc(o.eventsOfRank("mark"), func(e Event) bool { return e.GPU != gpu })
}

// EndEvent returns the last event of the training process; the zero Event if there is none.
func (o *Outcome) EndEvent() Event {
	if ends := o.eventsOfRank("end"); len(ends) > 0 {
		return ends[len(ends)-1]
	}
	return Event{}
}

// Steps returns the numbers of steps of all optimizers that stepped, largest first.
func (o *Outcome) Steps() []int {
	return slices.DeleteFunc(slices.Clone(o.EndEvent().Steps), func(n int) bool { return n == 0 })
}

// Torch returns the event that describes PyTorch; the zero Event if PyTorch was never imported.
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

// DivertedFiles returns the files whose writes vprof redirected, by the paths in the script.
func (o *Outcome) DivertedFiles() []string { return o.paths("diverted") }

// UncomputedLines returns the user's lines (file:line) that depend on a number that no kernel computed.
func (o *Outcome) UncomputedLines() []string { return o.paths("guessed") }

// paths returns the distinct paths in all events with a name.
func (o *Outcome) paths(event string) []string {
	paths := lists.Map(o.eventsNamed(event), func(e Event) string { return e.Path })
	slices.Sort(paths)
	return slices.Compact(paths)
}

// Kind describes how a run ended.
type Kind int

// The kinds of ends.
const (
	// Fits means that the command completed the requested steps on the GPU.
	Fits Kind = iota
	// OutOfMemory means that the command ended with an OutOfMemoryError that the script did not catch.
	OutOfMemory
	// Failed means that the script failed for another reason.
	Failed
	// TimedOut means that the timeout ended the command.
	TimedOut
	// NoCUDA means that PyTorch is missing, or was built for a release of CUDA without stub libraries.
	NoCUDA
	// NoGPU means that the command needs a GPU of this machine and PyTorch finds none.
	NoGPU
	// Untrained means that the command never used the GPU.
	Untrained
)

// Kind returns how the run ended.
func (o *Outcome) Kind() Kind {
	torch, failure := o.Torch(), o.exception()
	switch {
	case o.TimedOut:
		return TimedOut
	case strings.Contains(failure.Kind, "OutOfMemoryError"):
		return OutOfMemory
	case torch.Version != "" && (torch.CUDA == "" || o.Stubs != "" && !isSupportedCUDA(torch.CUDA)):
		return NoCUDA
	case torch.Version != "" && o.Device != "" && !torch.Available:
		return NoGPU
	case o.ExitCode != 0 && slices.Contains([]string{"", "exit"}, o.EndEvent().Reason):
		// A program that started the training, such as a notebook, may report a run that vprof ended as a failure.
		return Failed
	case torch.Version == "":
		return NoCUDA
	case o.EndEvent().Allocated == 0:
		return Untrained
	}
	return Fits
}

// isSupportedCUDA reports whether vprof has stub libraries for a release of CUDA.
func isSupportedCUDA(cuda string) bool {
	major, _, _ := strings.Cut(cuda, ".")
	return slices.Contains([]string{"12", "13"}, major)
}

// exception returns the exception that ended the script; the zero Event if there is none.
func (o *Outcome) exception() Event {
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

// readTrace reads the recorded allocations of the training process.
func (o *Outcome) readTrace() error {
	end := o.EndEvent()
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

// ReachedText describes how far a command without training steps came.
func (o *Outcome) ReachedText() string {
	if wanted := o.MissingObjectText(); wanted != "" {
		return wanted
	}
	if len(o.eventsNamed("step")) > 0 {
		return "an optimizer stepped on the CPU: does the command need a flag to use the GPU?"
	}
	return "PyTorch was imported, and its CUDA was not used"
}
