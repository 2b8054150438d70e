// Package series reads logs of GPU memory over time, from vprof monitor or nvidia-smi, and tests them for growth.
package series

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// Series is the memory of one GPU over time, in bytes.
type Series struct {
	// GPU is the name of the GPU in the log, with its index if it has one: "0 Tesla T4". Product is the name alone;
	// empty if the log does not contain it.
	GPU, Product string
	// WatchedBytes is the memory of the training in each sample: of the watched processes, else of the process with the
	// most memory, else, if the log has no processes, the GPU's used memory.
	WatchedBytes []float64
	// Process is the process to which WatchedBytes belongs; the zero Process if it is the whole GPU's memory.
	Process Process
	// Others are the other processes, largest first. One without a PID represents processes that the log does not list.
	Others []Process
	// Peak is the highest used memory of the GPU; zero is unknown.
	Peak int64
	// Total is the GPU's memory; zero is unknown.
	Total int64
	// Last is the GPU's used memory in the last sample; zero is unknown.
	Last int64
	// Elapsed is the time between the first and the last sample; zero is unknown.
	Elapsed time.Duration
}

// Process is a process that used a GPU.
type Process struct {
	PID  int
	Name string
	// Peak is the process's highest memory, in bytes.
	Peak int64
}

func (p Process) String() string {
	if p.PID == 0 {
		return "other processes"
	}
	return fmt.Sprintf("process %d", p.PID) + phrase.If(p.Name != "", " (%s)", p.Name)
}

// IsLog reports whether a file that begins with head is a log of GPU memory.
func IsLog(head []byte) bool {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	return formatOf(first) != nil
}

// formatOf returns the parser for files with this first line; nil if the format is unknown.
func formatOf(first []byte) func([]byte) (*log, error) {
	if bytes.HasPrefix(first, []byte("{")) && bytes.Contains(first, []byte(`"used_bytes"`)) {
		return readJSONLines
	}
	for name := range strings.SplitSeq(string(first), ",") {
		word, _, _ := strings.Cut(strings.TrimSpace(name), " ")
		switch word {
		case "memory.used":
			return readGPUs
		case "used_memory", "used_gpu_memory":
			return readProcesses
		case "used_bytes":
			return readMonitor
		}
	}
	return nil
}

// Read reads the log of vprof monitor (--csv or --jsonl), or the CSV of nvidia-smi --query-gpu=...,memory.used,... or
// --query-compute-apps=pid, used_memory,..., with or without units. Unknown columns and an incomplete last line are
// ignored. The error is a [*input.FormatError] unless reading failed.
func Read(r io.Reader, name string) ([]Series, error) {
	data, err := input.ReadAll(r, name)
	if err != nil {
		return nil, err
	}
	if end := bytes.LastIndexByte(data, '\n'); end >= 0 && bytes.IndexByte(data[:end], '\n') >= 0 {
		data = data[:end+1] // whoever wrote the log may have been stopped in a line
	}
	first, _, _ := bytes.Cut(data, []byte("\n"))
	read := formatOf(first)
	if read == nil {
		return nil, &input.FormatError{
			File: name, Line: 1,
			Reason: "there is no column memory.used, used_memory or used_bytes (log with the header)",
		}
	}
	j, err := read(data)
	if err != nil {
		wrong := &input.FormatError{File: name, Line: 1, Reason: err.Error()}
		if j != nil {
			wrong.Line = j.line
		}
		return nil, wrong
	}
	if len(j.gpus) == 0 {
		return nil, &input.FormatError{File: name, Line: j.line, Reason: "there are no samples"}
	}
	return lists.Map(j.gpus, func(b *gpu) Series { return b.series() }), nil
}

// log collects the samples of a log, by GPU and time.
type log struct {
	line int // that is read, from 1
	gpus []*gpu
}

// gpu has the samples of one GPU.
type gpu struct {
	key, name, product string
	total              int64
	moments            []moment
}

// moment is one sample of a GPU. Unknown amounts are negative.
type moment struct {
	when                   time.Time
	used, highest, watched float64
	processes              map[int]float64
	names                  map[int]string
}

// unknownMoment returns a sample without any value.
func unknownMoment() moment { return moment{used: -1, highest: -1, watched: -1} }

// maxGPUs is more than the number of GPUs in any machine.
const maxGPUs = 256

func (j *log) gpu(key, name, product string) (*gpu, error) {
	for _, b := range j.gpus {
		if b.key == key {
			return b, nil
		}
	}
	if len(j.gpus) == maxGPUs {
		return nil, fmt.Errorf("the log has more than %d GPUs; log fewer of them", maxGPUs)
	}
	b := &gpu{key: key, name: name, product: product}
	j.gpus = append(j.gpus, b)
	return b, nil
}

// series converts the samples of a GPU to the memory of the training and of other processes.
func (b *gpu) series() Series {
	s := Series{GPU: b.name, Product: b.product, Total: b.total}
	peaks, names := map[int]int64{}, map[int]string{}
	var watched bool
	for _, m := range b.moments {
		s.Peak = max(s.Peak, int64(m.used), int64(m.highest))
		s.Last = max(0, int64(m.used))
		watched = watched || m.watched >= 0
		for pid, bytes := range m.processes {
			peaks[pid] = max(peaks[pid], int64(bytes))
			names[pid] = m.names[pid]
		}
	}
	for pid, peak := range peaks {
		s.Others = append(s.Others, Process{pid, names[pid], peak})
	}
	slices.SortFunc(s.Others, func(x, y Process) int {
		return cmp.Or(cmp.Compare(y.Peak, x.Peak), cmp.Compare(x.PID, y.PID))
	})
	mine := func(m moment) float64 { return m.used }
	switch {
	case watched:
		mine = func(m moment) float64 { return m.watched }
		s.Others = b.unwatched()
	case len(s.Others) > 0:
		s.Process, s.Others = s.Others[0], s.Others[1:]
		mine = func(m moment) float64 {
			if v, ok := m.processes[s.Process.PID]; ok {
				return v
			}
			return -1 // it had not begun, or had ended
		}
	}
	var from, to time.Time
	for _, m := range b.moments {
		v := mine(m)
		if v < 0 {
			continue
		}
		if len(s.WatchedBytes) == 0 {
			from = m.when
		}
		s.WatchedBytes, to = append(s.WatchedBytes, v), m.when
	}
	if !from.IsZero() && !to.IsZero() {
		s.Elapsed = to.Sub(from)
	}
	return s
}

// unwatched returns the processes that were not watched, with their memory.
func (b *gpu) unwatched() []Process {
	most := 0.0
	for _, m := range b.moments {
		if m.watched >= 0 {
			most = max(most, m.used-m.watched)
		}
	}
	if most == 0 {
		return nil
	}
	return []Process{{Peak: int64(most)}}
}

// Trend is the result of a statistical test for growth.
type Trend struct {
	// PerSample is the median slope of all pairs of samples (Theil-Sen), in bytes per sample, unaffected by outliers.
	PerSample float64
	// P is the probability of this order of samples without a trend (Mann-Kendall test, two-sided, with ties).
	P float64
}

// trendSamples is the number of samples whose pairs the test compares. Longer series are reduced to medians.
const trendSamples = 400

// TrendOf tests a series for growth or decline.
func TrendOf(values []float64) Trend {
	short, stretch := thinValues(values, trendSamples)
	n := len(short)
	if n < 4 {
		return Trend{P: 1}
	}
	var slopes []float64
	sum := 0.0
	ties := map[float64]int{}
	for i, a := range short {
		ties[a]++
		for j := i + 1; j < n; j++ {
			d := short[j] - a
			slopes = append(slopes, d/float64(j-i))
			switch {
			case d > 0:
				sum++
			case d < 0:
				sum--
			}
		}
	}
	variance := float64(n * (n - 1) * (2*n + 5))
	for _, t := range ties {
		variance -= float64(t * (t - 1) * (2*t + 5))
	}
	variance /= 18
	p := 1.0
	if variance > 0 && sum != 0 {
		z := (math.Abs(sum) - 1) / math.Sqrt(variance)
		p = math.Erfc(z / math.Sqrt2) // both tails of the normal distribution
	}
	return Trend{Median(slopes) / float64(stretch), min(1, p)}
}

// thinValues replaces stretches of equal length by their medians, so that at most n values remain.
func thinValues(values []float64, n int) (short []float64, stretch int) {
	stretch = ceil.Div(len(values), max(n, 1))
	if stretch <= 1 {
		return values, 1
	}
	for part := range slices.Chunk(values, stretch) {
		short = append(short, Median(part))
	}
	return short, stretch
}

// Median returns the median; zero without values.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile returns the quantile q by the nearest rank; zero without values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Round(q*float64(len(sorted)-1)))]
}
