// Package epoch simulates epochs whose samples differ in length. It finds the batch that needs the most memory, the
// growth of the allocator's reserved memory from step to step, and the probability of running out of memory.
package epoch

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
)

// Lengths describes the sample lengths of a data set, and how samples are batched. Its JSON is a part of jobs.
type Lengths struct {
	// Source is the user's text: the name of a file, or a distribution.
	Source string `json:"source"`
	// Setting is the model's setting for the length of a sample; empty if the model has only one.
	Setting string `json:"setting,omitempty"`
	// Counts are the lengths in a file, ascending; Law is the distribution of lengths if there is no file.
	Counts       []Count       `json:"counts,omitempty"`
	Distribution *Distribution `json:"law,omitempty"`
	// Batching is the kind of batching. The length of batches is a multiple of Multiple; zero is any length.
	Batching Batching `json:"batching"`
	Multiple int64    `json:"multiple,omitempty"`
	// Masked reports whether padded batches have an attention mask, if the model makes one ([hf.Padding]).
	Masked bool `json:"masked,omitempty"`
}

// Count is the number of samples of a length.
type Count struct {
	Length  int64 `json:"length"`
	Samples int64 `json:"samples"`
}

// Limits of the input. Larger values are refused as mistakes.
const (
	maxLength  = 1 << 24
	maxSamples = 10_000_000
	maxFile    = 256 << 20
)

// ParseLengths parses a distribution such as "lognormal:mean=512,p95=1500", or reads the named file. Each line of a
// file has a length, or a length and its number of samples: "512,1000".
func ParseLengths(text string) (*Lengths, error) {
	if law, ok, err := parseDistribution(text); ok {
		if err != nil {
			return nil, err
		}
		return &Lengths{Source: text, Distribution: law}, nil
	}
	f, err := input.OpenFile(text)
	if err != nil {
		return nil,
			fmt.Errorf("%w; name a file of one length a line, or a distribution like lognormal:mean=512,p95=1500", err)
	}
	defer f.Close()
	counts, err := readLengths(text, f)
	if err != nil {
		return nil, err
	}
	return &Lengths{Source: text, Counts: counts}, nil
}

// readLengths reads the lines of a file. Empty lines, lines that begin with # and a header are skipped.
func readLengths(name string, r io.Reader) ([]Count, error) {
	samples := map[int64]int64{}
	limited := &io.LimitedReader{R: r, N: maxFile}
	lines := bufio.NewScanner(limited)
	var total int64
	seen := false // a line that is not empty
	for at := 1; lines.Scan(); at++ {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if line == "" || line[0] == '#' {
			continue
		}
		c, err := parseCount(line)
		if err != nil && !seen && !strings.ContainsAny(line, "0123456789") {
			seen = true
			continue
		}
		seen = true
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, at, err)
		}
		if total += c.Samples; total > maxSamples {
			return nil, fmt.Errorf("%s:%d: the file has more than %d samples; give a part of them, or lengths with "+
				"counts", name, at, maxSamples)
		}
		samples[c.Length] += c.Samples
	}
	switch err := lines.Err(); {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case limited.N <= 0:
		return nil, fmt.Errorf("%s: the file is longer than %d MiB; write each length once, with its count",
			name, maxFile>>20)
	case total == 0:
		return nil, fmt.Errorf("%s: the file has no lengths; write one length per line", name)
	}
	var counts []Count
	for length, n := range samples {
		counts = append(counts, Count{length, n})
	}
	slices.SortFunc(counts, func(a, b Count) int { return cmp.Compare(a.Length, b.Length) })
	return counts, nil
}

// parseCount parses "512" or "512,1000"; a tab or a semicolon may replace the comma.
func parseCount(line string) (Count, error) {
	fields := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(",;\t ", r) })
	if len(fields) == 0 || len(fields) > 2 {
		return Count{}, fmt.Errorf("%s: need a length, or a length and a count, like 512 or 512 1000",
			input.Quote(line))
	}
	c := Count{Samples: 1}
	var err error
	if c.Length, err = strconv.ParseInt(fields[0], 10, 64); err != nil || c.Length < 1 || c.Length > maxLength {
		return Count{}, fmt.Errorf("%s is not a length; need a whole number from 1 to %d",
			input.Quote(fields[0]), maxLength)
	}
	if len(fields) == 2 {
		if c.Samples, err = strconv.ParseInt(fields[1], 10, 64); err != nil || c.Samples < 0 || c.Samples > maxSamples {
			return Count{}, fmt.Errorf("%s is not a number of samples; need a whole number from 0 to %d",
				input.Quote(fields[1]), maxSamples)
		}
	}
	return c, nil
}

// setMasked turns on attention masks for padding in a case whose batches have padding.
func (l *Lengths) setMasked(m models.Model, batch int, s models.Settings) {
	padded := l.Masked && batch > 1 && l.Batching != Packed
	if padded && slices.ContainsFunc(m.Settings, func(s models.Setting) bool { return s.Name == hf.Padding }) {
		s[hf.Padding] = 1
	}
}

// samples returns the lengths of all samples of a data set, in no order. A distribution is sampled.
func (l *Lengths) samples(r *rand.Rand) []int32 {
	if l.Distribution != nil {
		return l.Distribution.drawLengths(r)
	}
	var all []int32
	for _, c := range l.Counts {
		all = append(all, slices.Repeat([]int32{int32(c.Length)},
			int(c.Samples))...) //nolint:gosec // bounded by maxLength
	}
	return all
}

// Check validates lengths that were read from a job's JSON.
func (l *Lengths) Check() error {
	var total int64
	for _, c := range l.Counts {
		if c.Length < 1 || c.Length > maxLength || c.Samples < 0 || c.Samples > maxSamples {
			return fmt.Errorf("lengths: %d samples of length %d: a number is out of range; make the file again with "+
				"vprof plan --lengths", c.Samples, c.Length)
		}
		total += c.Samples
	}
	switch {
	case l.Distribution != nil && len(l.Counts) > 0:
		return fmt.Errorf("lengths: %s has both a distribution and counts; remove one of them", l.Source)
	case l.Distribution == nil && (total == 0 || total > maxSamples):
		return fmt.Errorf("lengths: %d samples: need 1 to %d samples", total, maxSamples)
	case !slices.Contains(Batchings(), l.Batching):
		return fmt.Errorf("lengths: unknown batching %q: need one of %q", l.Batching, Batchings())
	case l.Multiple < 0 || l.Multiple > maxLength:
		return fmt.Errorf("lengths: multiple of %d: need 0 to %d tokens to pad to", l.Multiple, maxLength)
	case l.Distribution != nil:
		return l.Distribution.check()
	}
	return nil
}
