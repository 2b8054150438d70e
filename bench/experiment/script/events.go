package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/vprof/vprof/bench/report"
)

// An Event is an observation of the hook in one of the command's processes.
type Event struct {
	// Name is the kind of event: importing, imported, torch, cuda, phase, mark, step, diverted, kept, made, guessed,
	// allocator, replaced, wanted, lengths, longer, error, end, timed, tried, cut (the script ended before all changes
	// were tried), estimate, busy.
	Name string `json:"event"`
	PID  int    `json:"pid"`
	// At is the time, in microseconds since 1970.
	At int64 `json:"at"`

	// For importing and imported: the module and the duration of its import.
	Module  string  `json:"module"`
	Seconds float64 `json:"seconds"`

	// For torch: its release, the CUDA release that it was built for, whether it finds a GPU, and the interpreter.
	Version   string `json:"version"`
	CUDA      string `json:"cuda"`
	Available bool   `json:"available"`
	Python    string `json:"python"`

	// For cuda: the settings of PyTorch's allocator.
	Allocator string `json:"allocator"`

	// For phase and mark: the step, counted from 0; -1 in set-up. phase begins a phase. mark ends one, with its
	// allocated bytes at the end and their peaks.
	Step          int    `json:"step"`
	Phase         string `json:"phase"`
	Allocated     int64  `json:"allocated"`
	Reserved      int64  `json:"reserved"`
	Requested     int64  `json:"requested"`
	PeakAllocated int64  `json:"peak_allocated"`
	PeakReserved  int64  `json:"peak_reserved"`
	PeakRequested int64  `json:"peak_requested"`
	// For mark: the GPU, and its memory in use by all processes. For end: the GPU that all values are about.
	GPU  int   `json:"gpu"`
	Used int64 `json:"used"`

	// For step: the number of finished steps and of all steps.
	Done int `json:"done"`
	Of   int `json:"of"`

	// For timed: the seconds of each step without and with the loading of its batch.
	Times   []float64 `json:"times"`
	Loading []float64 `json:"loading"`

	// For lengths: the batches of an epoch, the samples of the data set, how many of them were read, and why not all
	// were. For longer, a batch larger than all before it: the shape of its largest tensor, and the same of the largest
	// earlier batch. For end: the batches of a script without an optimizer.
	Batches int    `json:"batches"`
	Samples int    `json:"samples"`
	Read    int    `json:"read"`
	Why     string `json:"why"`
	Shape   []int  `json:"shape"`
	Before  []int  `json:"before"`

	// For diverted, kept and made: the path that the script used. For guessed and wanted: file:line. For replaced: the
	// name of what was absent. For allocator: the setting of another allocator that was not used.
	Path string `json:"path"`
	// For replaced: the placeholder's name. For wanted: the option or file that would answer.
	By string `json:"by"`

	// For tried: text names a change that was made for one step, PeakAllocated is that step's peak, and Allocated the
	// peak of a step without changes. For estimate: text names a change that saves Allocated bytes. For busy: text is
	// what the script does, without an event for Seconds. For options: the options of the command's argument parser.
	Options []Option `json:"options"`

	// For error: the exception that the script did not catch. For replaced: the kind (weights, data, tokenizer, kernel
	// or tracker). For wanted: the text says what the line requires.
	Kind      string `json:"kind"`
	Text      string `json:"text"`
	Traceback string `json:"traceback"`

	// For end: the reason, the calls and kinds of each optimizer, and the file of allocations. Allocated, Reserved and
	// Requested are the peaks of the whole run.
	Reason     string   `json:"reason"`
	Steps      []int    `json:"steps"`
	Optimizers []string `json:"optimizers"`
	Trace      string   `json:"trace"`
	// Growth is the bytes that each of the last steps added to memory at its end or to its peak; zero if they differ.
	// Uneven reports whether the steps added equal numbers of allocations of different sizes. Through names what holds
	// the allocations. Total is the largest number of steps that can grow; zero if unknown. Later is the peak of the
	// last of those steps; zero if the steps so far do not show it.
	Growth  int64  `json:"growth"`
	Total   int    `json:"total"`
	Later   int64  `json:"later"`
	Uneven  bool   `json:"uneven"`
	Through string `json:"through"`
	// Graded is the line (file:line) of an evaluation loop that records autograd graphs; empty if there is none.
	Graded string `json:"graded"`
	// Untried reports whether further steps would show the savings of changes, unless "tried" events follow.
	Untried bool `json:"untried"`
	// Unseen are the lines (file:line) that evaluate ("eval") or save and did not run; empty if a trainer may do so.
	Unseen map[string]string `json:"unseen"`
	// Releases are the releases of the imported libraries by their name on PyPI.
	Releases map[string]string `json:"releases"`
	// Failure is the last allocation that failed.
	Failure *Failure `json:"failure"`
	Retries int64    `json:"retries"`
	OOMs    int64    `json:"ooms"`
	// Benchmark reports whether torch.backends.cudnn.benchmark is on.
	Benchmark bool `json:"benchmark"`
	// TunedBefore is the number of torch.compile kernels whose autotuning result Inductor found in its cache.
	TunedBefore int `json:"tuned_before"`
	// PrivatePools is the number of PyTorch's private memory pools (CUDA graphs) at the end, PrivateBytes their bytes.
	PrivatePools int   `json:"private_pools"`
	PrivateBytes int64 `json:"private_bytes"`
	// Elsewhere holds the peaks on the other devices that the process used.
	Elsewhere []report.OtherGPUMemory `json:"elsewhere"`
}

// An Option is an option of the command's argument parser, with its value.
type Option struct {
	Flag, Value string
	// Switch reports whether the option has no value, Number whether it accepts numbers. Choices are all its possible
	// values; empty for any.
	Switch, Number bool
	Choices        []string
}

// An eventLog reads the file to which the hook appends events.
type eventLog struct {
	path    string
	onEvent func(Event)
	all     []Event
	at      int64
}

// read reads the events added since the last call, up to the last complete line.
func (l *eventLog) read() error {
	file, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no Python has begun
	}
	if err != nil {
		return err
	}
	defer file.Close()
	data, err := io.ReadAll(io.NewSectionReader(file, l.at, 1<<40))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		l.at += int64(len(line))
		var e Event
		if json.Unmarshal(line, &e) == nil {
			l.all = append(l.all, e)
			l.onEvent(e)
		}
	}
	return nil
}
