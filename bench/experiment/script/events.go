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

// An Event is something that the hook observed in one of the command's processes.
type Event struct {
	// Name is the kind of event: importing, imported, torch, cuda, phase, mark, step, diverted, kept, made, guessed,
	// allocator, replaced, wanted, lengths, longer, error, end, timed, tried, cut (the script ended before all changes
	// were tried), estimate, busy.
	Name string `json:"event"`
	PID  int    `json:"pid"`
	// At is the time, in microseconds since 1970.
	At int64 `json:"at"`

	// Of importing and imported: the module and the duration of its import.
	Module  string  `json:"module"`
	Seconds float64 `json:"seconds"`

	// Of torch: its release, the CUDA that it was built for and whether it finds a GPU, and the interpreter.
	Version   string `json:"version"`
	CUDA      string `json:"cuda"`
	Available bool   `json:"available"`
	Python    string `json:"python"`

	// Of cuda: the settings of the allocator.
	Allocator string `json:"allocator"`

	// Of phase and mark: the step from 0, -1 in set-up. A phase begins, and a mark ends one
	// with the bytes at its end and their peaks.
	Step          int    `json:"step"`
	Phase         string `json:"phase"`
	Allocated     int64  `json:"allocated"`
	Reserved      int64  `json:"reserved"`
	Requested     int64  `json:"requested"`
	PeakAllocated int64  `json:"peak_allocated"`
	PeakReserved  int64  `json:"peak_reserved"`
	PeakRequested int64  `json:"peak_requested"`
	// Of mark: the GPU, and its memory in use by all processes. Of end: the GPU of all values.
	GPU  int   `json:"gpu"`
	Used int64 `json:"used"`

	// Of step: the numbers of finished steps and of all steps.
	Done int `json:"done"`
	Of   int `json:"of"`

	// Of timed: the seconds of each step, without and of the loading of its batch.
	Times   []float64 `json:"times"`
	Loading []float64 `json:"loading"`

	// Of lengths: the batches of an epoch, the samples of the data set, how many of them were read, and why not all
	// were. Of longer, a batch that is larger than those before: the shape of its largest tensor, and of the largest
	// batch before.
	// Of end: the batches of a script without an optimizer.
	Batches int    `json:"batches"`
	Samples int    `json:"samples"`
	Read    int    `json:"read"`
	Why     string `json:"why"`
	Shape   []int  `json:"shape"`
	Before  []int  `json:"before"`

	// Of diverted, kept and made: the path as the script knows it; of guessed and wanted: file:line; of replaced: the
	// name of what was absent; of allocator: the setting of another allocator that was not used.
	Path string `json:"path"`
	// Of replaced: the placeholder's name; of wanted: what answers.
	By string `json:"by"`

	// Of tried: the text names a change that was made for one step, which had the peak PeakAllocated, and Allocated is
	// the peak of a step without changes. Of estimate: the text names a change that saves Allocated bytes. Of busy: the
	// text is what the script does, without an event for Seconds.
	// Of options: what the parser of the command has.
	Options []Option `json:"options"`

	// Of error: the exception that the script did not catch. Of replaced: the kind is weights, data, tokenizer, kernel
	// or tracker. Of wanted: the text is what the line requires.
	Kind      string `json:"kind"`
	Text      string `json:"text"`
	Traceback string `json:"traceback"`

	// Of end: why, the calls of each optimizer, their kinds, and the file of allocations.
	// The peaks of the whole run are in Allocated, Reserved and Requested.
	Reason     string   `json:"reason"`
	Steps      []int    `json:"steps"`
	Optimizers []string `json:"optimizers"`
	Trace      string   `json:"trace"`
	// Growth is the bytes that each of the last steps added at its end or its peak; zero if they differ. Uneven reports
	// whether the steps added equal numbers of allocations with different sizes. Through names what holds them. Total
	// is the largest number of steps that can grow; zero if unknown. Later is the peak of the last of them; zero if the
	// steps seen do not show it.
	Growth  int64  `json:"growth"`
	Total   int    `json:"total"`
	Later   int64  `json:"later"`
	Uneven  bool   `json:"uneven"`
	Through string `json:"through"`
	// Graded is the line, file:line, of a loop that evaluates and keeps graphs of autograd; empty if none does.
	Graded string `json:"graded"`
	// Untried reports whether further steps would show the savings of changes, unless "tried" events follow.
	Untried bool `json:"untried"`
	// Unseen are the lines, file:line, that evaluate ("eval") or save and did not run; empty where a trainer may do so.
	Unseen map[string]string `json:"unseen"`
	// Releases are the versions of the imported libraries, by their names on PyPI.
	Releases map[string]string `json:"releases"`
	// Failure is the last allocation that failed.
	Failure *Failure `json:"failure"`
	Retries int64    `json:"retries"`
	OOMs    int64    `json:"ooms"`
	// Benchmark reports whether torch.backends.cudnn.benchmark is on.
	Benchmark bool `json:"benchmark"`
	// TunedBefore is the number of torch.compile kernels whose tuning Inductor found in its cache.
	TunedBefore int `json:"tuned_before"`
	// PrivatePools is the number of private pools, as of CUDA graphs, at the end, PrivateBytes their reserved bytes.
	PrivatePools int   `json:"private_pools"`
	PrivateBytes int64 `json:"private_bytes"`
	// Elsewhere are the peaks on the other devices that the process used.
	Elsewhere []report.OtherGPUMemory `json:"elsewhere"`
}

// An Option is an option of a command's own parser and its value.
type Option struct {
	Flag, Value string
	// Switch needs no value, Number takes numbers. Choices are all possible values; empty for any.
	Switch, Number bool
	Choices        []string
}

// An eventLog is the file that the hook appends events to.
type eventLog struct {
	path    string
	onEvent func(Event)
	all     []Event
	at      int64
}

// read reads the events that were added since the last call, up to the last complete line.
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
