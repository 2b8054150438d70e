// Package series reads what a monitor saw of a GPU's memory over time, and
// finds patterns in it: growth, spikes, ups and downs.
package series

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// Series is the memory in use of one GPU, in bytes, sample by sample.
type Series struct {
	GPU  string
	Used []float64
	// Total is the board's memory; zero is unknown.
	Total int64
	// Elapsed is from the first sample to the last; zero is unknown.
	Elapsed time.Duration
}

// A FormatError says what is wrong with a file.
type FormatError struct {
	File   string
	Line   int
	Reason string
}

func (e *FormatError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason) }

// maxFile is the largest file read in bytes.
const maxFile = 256 << 20

// IsCSV tells whether a file that begins with head has the columns of a log of
// memory.
func IsCSV(head []byte) bool {
	first, _, _ := strings.Cut(string(head), "\n")
	for name := range strings.SplitSeq(first, ",") {
		if strings.HasPrefix(strings.TrimSpace(name), "memory.used") {
			return true
		}
	}
	return false
}

// Read reads the CSV of nvidia-smi --query-gpu=...,memory.used,... --format=csv,
// with or without units. Timestamp, name, index and memory.total are used
// where they are. Rows of several GPUs make several series. The error is a
// [*FormatError] unless reading itself failed.
func Read(r io.Reader, name string) ([]Series, error) {
	c := csv.NewReader(io.LimitReader(r, maxFile))
	c.TrimLeadingSpace, c.FieldsPerRecord, c.ReuseRecord = true, -1, true
	head, err := c.Read()
	if err != nil {
		return nil, &FormatError{name, 1, "no header: " + err.Error()}
	}
	columns := columnsOf(head)
	if columns.used < 0 {
		return nil, &FormatError{name, 1, "there is no column memory.used"}
	}
	var all []Series
	at := map[string]int{}
	first := map[string]time.Time{}
	for line := 2; ; line++ {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, &FormatError{name, line, err.Error()}
		}
		s, err := columns.sample(row)
		if err != nil {
			return nil, &FormatError{name, line, err.Error()}
		}
		i, seen := at[s.gpu]
		if !seen {
			i = len(all)
			at[s.gpu], first[s.gpu] = i, s.when
			all = append(all, Series{GPU: s.gpu})
		}
		all[i].Used = append(all[i].Used, s.used)
		all[i].Total = max(all[i].Total, s.total)
		if !s.when.IsZero() {
			all[i].Elapsed = s.when.Sub(first[s.gpu])
		}
	}
	if len(all) == 0 {
		return nil, &FormatError{name, 2, "there are no samples"}
	}
	return all, nil
}

type columns struct{ used, total, when, name, index int }

func columnsOf(head []string) columns {
	find := func(prefix string) int {
		return slices.IndexFunc(head, func(s string) bool {
			word, _, _ := strings.Cut(strings.TrimSpace(s), " ")
			return word == prefix
		})
	}
	return columns{find("memory.used"), find("memory.total"), find("timestamp"), find("name"), find("index")}
}

type sample struct {
	gpu   string
	used  float64
	total int64
	when  time.Time
}

func (c columns) sample(row []string) (sample, error) {
	cell := func(i int) string {
		if i < 0 || i >= len(row) {
			return ""
		}
		return strings.TrimSpace(row[i])
	}
	var s sample
	used, err := mebibytes(cell(c.used))
	if err != nil {
		return s, fmt.Errorf("memory.used: %w", err)
	}
	s.used = used
	if text := cell(c.total); text != "" {
		total, err := mebibytes(text)
		if err != nil {
			return s, fmt.Errorf("memory.total: %w", err)
		}
		s.total = int64(total)
	}
	s.gpu = strings.TrimSpace(cell(c.index) + " " + cell(c.name))
	// nvidia-smi's own format; a clock that cannot be read is no clock.
	if when, err := time.Parse("2006/01/02 15:04:05.000", cell(c.when)); err == nil {
		s.when = when
	}
	return s, nil
}

// mebibytes reads "1234 MiB" or "1234", nvidia-smi's unit.
func mebibytes(s string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(s, "MiB")), 64)
	if err != nil || !(v >= 0 && v < 1e9) {
		return 0, fmt.Errorf("%q is no number of MiB", s)
	}
	return v * (1 << 20), nil
}

// Trend is the result of a test for growth.
type Trend struct {
	// PerSample is the median of the slopes between all pairs of samples
	// (Theil and Sen), in bytes: outliers do not move it.
	PerSample float64
	// P is the probability of samples in such an order without a trend (the
	// test of Mann and Kendall, two-sided, with ties).
	P float64
}

// trendSamples is how many samples the test compares in pairs; more are
// thinned out to medians of stretches.
const trendSamples = 400

// TrendOf tests for growth or decline.
func TrendOf(values []float64) Trend {
	short, stretch := thin(values, trendSamples)
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
		p = 2 * distuv.UnitNormal.Survival(z)
	}
	return Trend{Median(slopes) / float64(stretch), min(1, p)}
}

// thin replaces stretches of equal length by their medians, so that at most n
// are left.
func thin(values []float64, n int) (short []float64, stretch int) {
	stretch = (len(values) + n - 1) / max(n, 1)
	if stretch <= 1 {
		return values, 1
	}
	for part := range slices.Chunk(values, stretch) {
		short = append(short, Median(part))
	}
	return short, stretch
}

// Median is the middle value; zero of none.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile is the value at a share of the sorted values, by the nearest rank;
// zero of none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Round(q*float64(len(sorted)-1)))]
}
